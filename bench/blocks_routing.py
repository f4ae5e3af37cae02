"""Cheapest chains of 1,000 clients through 147 servers: the boundary program against Dijkstra.

Two peers, networkx and scipy, get their graph for nothing: it is built once, outside the clock;
networkx then asks a weight function, and scipy gets an array of weights for each client. The third
builds a networkx graph for each client, as one would who routes a single request. Costs must agree.
Then as many requests of one client as fit, in bulk against one dynamic program for each.
"""

import networkx as nx
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from bench import race, row
from serving_or.blocks.cluster import BLOOM, Cluster
from serving_or.blocks.plan import Placement, visits
from serving_or.blocks.routing import bulk, cheapest
from serving_or.tools.models import A100, MIG

MANY = 10**6
# networkx answers for the first ASKED clients only, and is scaled
SERVERS, CLIENTS, ASKED = 147, 1000, 100


def instance(seed=0, clients=CLIENTS):
    "A fifth A100s, the rest MIG slices, BLOOM-176B, random round trips and random spans."
    rng = np.random.default_rng(seed)
    devices = [A100 if fast else MIG for fast in rng.random(SERVERS) < 0.2]
    cluster = Cluster.of(BLOOM, devices, rng.uniform(100, 140, (clients, SERVERS)))
    m = cluster.counts(100)
    return cluster, Placement(rng.integers(1, cluster.blocks - m + 2), m)


def arcs(cluster, placement):
    "Tails, heads and blocks of the graph of servers; node n starts, node n + 1 ends."
    n, a, e = cluster.n, placement.a, placement.e
    tail, head = np.nonzero((a[None, :] <= e[:, None]) & (e[:, None] < e[None, :]))
    first, last = np.flatnonzero(a == 1), np.flatnonzero(e == cluster.blocks + 1)
    k = np.concatenate([e[head] - e[tail], e[first] - 1, np.zeros(len(last), int)])
    return (
        np.concatenate([tail, np.full(len(first), n), last]),
        np.concatenate([head, first, np.full(len(last), n + 1)]),
        k,
    )


def with_networkx(cluster, tail, head, k):
    "Calls for the first clients: on one graph, and with a graph built for each."
    n, listed = cluster.n, list(zip(tail.tolist(), head.tolist(), k.tolist()))
    t, tau = [[*row, 0.0, 0.0] for row in cluster.rtt.tolist()], [*cluster.tau.tolist(), 0.0, 0.0]
    graph = nx.DiGraph()
    graph.add_edges_from((i, j, {"k": b}) for i, j, b in listed)

    def once(c):
        weight = lambda i, j, arc: t[c][j] + tau[j] * arc["k"]
        return nx.dijkstra_path_length(graph, n, n + 1, weight=weight)

    def rebuilt(c):
        fresh = nx.DiGraph()
        fresh.add_weighted_edges_from((i, j, t[c][j] + tau[j] * b) for i, j, b in listed)
        return nx.dijkstra_path_length(fresh, n, n + 1)

    return [lambda route=r: [route(c) for c in range(ASKED)] for r in (once, rebuilt)]


def with_scipy(cluster, tail, head, k):
    "A call for all clients."
    n = cluster.n
    graph = csr_array((np.ones(len(tail)), (tail, head)), shape=(n + 2, n + 2))
    # the order in which a sparse matrix keeps its arcs
    order = np.lexsort((head, tail))
    to, tau = head[order], np.append(cluster.tau, [0.0, 0.0])
    fixed, padded = tau[to] * k[order], np.c_[cluster.rtt, np.zeros((CLIENTS, 2))]

    def lengths():
        found = []
        for trips in padded:
            # a zero would be no arc
            graph.data[:] = trips[to] + fixed + 1e-9
            found.append(dijkstra(graph, indices=n)[n + 1])
        return np.array(found)

    return lengths


def all_clients():
    "The boundary program against Dijkstra."
    cluster, placement = instance()
    tail, head, k = arcs(cluster, placement)
    given, built = with_networkx(cluster, tail, head, k)
    calls = {
        "boundary program": lambda: cheapest(cluster, placement),
        "scipy dijkstra": with_scipy(cluster, tail, head, k),
        "networkx dijkstra": given,
        "networkx dijkstra, graph too": built,
    }
    found = race(calls, 3)
    (cost, _), lengths, once, rebuilt = found.answers.values()
    np.testing.assert_allclose(cost[:ASKED], once)
    np.testing.assert_allclose(cost[:ASKED], rebuilt)
    np.testing.assert_allclose(cost, lengths, rtol=1e-6)
    share = {name: ASKED / CLIENTS for name in calls if name.startswith("networkx")}
    yield row(f"{CLIENTS} clients, {cluster.n} servers", found, share, arcs=len(tail))


def one_by_one(cluster, placement, requests):
    "The total cost of one dynamic program for each request."
    slots, total = cluster.slots(placement.m), 0.0
    for _ in range(requests):
        (cost,), (chain,) = cheapest(cluster, placement, slots)
        slots = slots - visits([chain], cluster.n)
        total += cost
    return total


def many_requests():
    "As many requests of one client as greedy can serve."
    cluster, placement = instance(clients=1)
    requests = MANY - int(bulk(cluster, placement, [MANY])[2][0])
    calls = {
        "in bulk": lambda: bulk(cluster, placement, [requests]),
        "one by one": lambda: one_by_one(cluster, placement, requests),
    }
    found = race(calls, 3)
    (chains, cost, rest), total = found.answers.values()
    assert not rest.any() and np.isclose(cost, total)
    yield row("requests of one client within memory", found, requests=requests, chains=len(chains))


def run():
    yield from all_clients()
    yield from many_requests()
