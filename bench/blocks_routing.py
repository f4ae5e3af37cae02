"""Cheapest chains of 1,000 clients through 147 servers: the boundary program against Dijkstra.

Two peers, networkx and scipy, get their graph for nothing: it is built once, outside the clock;
networkx then asks a weight function, and scipy gets an array of weights for each client. The third
builds a networkx graph for each client, as one would who routes a single request. Costs must agree.
Then as many requests of one client as fit, in bulk against one dynamic program for each.
"""

import time

import networkx as nx
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

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


def clock(call, repeat=3):
    "Least seconds of a few calls, and the answer."
    best = np.inf
    for _ in range(repeat):
        began = time.perf_counter()
        answer = call()
        best = min(best, time.perf_counter() - began)
    return best, answer


def run():
    cluster, placement = instance()
    n = cluster.n
    ours, (cost, _) = clock(lambda: cheapest(cluster, placement))

    tail, head, k = arcs(cluster, placement)
    graph = nx.DiGraph()
    graph.add_edges_from((int(i), int(j), {"k": int(b)}) for i, j, b in zip(tail, head, k))
    t, tau = [[*row, 0.0, 0.0] for row in cluster.rtt.tolist()], [*cluster.tau.tolist(), 0.0, 0.0]
    theirs, paths = clock(
        lambda: [
            nx.dijkstra_path_length(
                graph, n, n + 1, weight=lambda i, j, d: t[c][j] + tau[j] * d["k"]
            )
            for c in range(ASKED)
        ],
        repeat=1,
    )
    np.testing.assert_allclose(cost[:ASKED], paths)

    def rebuilt(c):
        fresh = nx.DiGraph()
        fresh.add_weighted_edges_from((i, j, t[c][j] + tau[j] * b) for i, j, b in arcs_listed)
        return nx.dijkstra_path_length(fresh, n, n + 1)

    arcs_listed = [(int(i), int(j), int(b)) for i, j, b in zip(tail, head, k)]
    built, paths = clock(lambda: [rebuilt(c) for c in range(ASKED)], repeat=1)
    np.testing.assert_allclose(cost[:ASKED], paths)

    shape = csr_array((np.ones(len(tail)), (tail, head)), shape=(n + 2, n + 2))
    order = np.lexsort((head, tail))  # the order in which a sparse matrix keeps its arcs
    fixed, to = (np.array(tau)[head] * k)[order], head[order]
    padded = np.c_[cluster.rtt, np.zeros((CLIENTS, 2))]

    def scipy_all():
        lengths = []
        for row in padded:
            shape.data[:] = row[to] + fixed + 1e-9  # a zero would be no arc
            lengths.append(dijkstra(shape, indices=n)[n + 1])
        return np.array(lengths)

    sparse, lengths = clock(scipy_all, repeat=1)
    np.testing.assert_allclose(cost, lengths, rtol=1e-6)
    theirs, built = theirs * CLIENTS / ASKED, built * CLIENTS / ASKED
    print(f"{CLIENTS} clients, {n} servers, {len(tail)} arcs: chains of all clients")
    for name, seconds in (
        ("boundary program", ours),
        ("scipy dijkstra", sparse),
        ("networkx dijkstra", theirs),
        ("networkx, graph too", built),
    ):
        print(f"  {name:<20} {seconds * 1e3:9.1f} ms   {seconds / ours:7.1f} x")

    one, held = instance(clients=1)
    slots, total = one.slots(held.m), 0.0
    requests = MANY - int(bulk(one, held, [MANY])[2][0])  # as many as greedy can serve
    fast, (chains, cost, rest) = clock(lambda: bulk(one, held, [requests]))
    began = time.perf_counter()
    for _ in range(requests):
        (least,), (chain,) = cheapest(one, held, slots)
        slots = slots - visits([chain], n)
        total += least
    slow = time.perf_counter() - began
    assert not rest.any() and np.isclose(cost, total)
    print(f"{requests} requests of one client within memory, {len(chains)} chains")
    for name, seconds in (("in bulk", fast), ("one by one", slow)):
        print(f"  {name:<20} {seconds * 1e3:9.1f} ms   {seconds / fast:7.1f} x")
