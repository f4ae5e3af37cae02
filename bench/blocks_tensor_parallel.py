"""Groups of servers: the search on the chapter's three fleets, and its bound.

The peer is every uniform grouping (groups of neighbours of one size, for each size), which is where
the search begins; and on small clusters all partitions. Values are in milliseconds per token.
"""

import numpy as np

from bench import race, row
from serving_or.blocks.cluster import BLOOM, Cluster
from serving_or.blocks.tensor_parallel import Fabric, _Groupings, group_bound, plan_groups
from serving_or.tools.answers import Clock, NotFound
from serving_or.tools.models import A100, MIG


def fleets():
    "Name, requests, cluster and network."
    site = np.repeat([0, 1, 2], 8)
    three = site[:, None] == site
    for inside in (1, 10, 30):
        net = Fabric.of(np.where(three, inside, 100.0), width=14336, gbit=1)
        yield f"24 MIG far, {inside} ms", 40, Cluster.of(BLOOM, [MIG] * 24, np.full(24, 105.0)), net
    for inside in (1, 10, 20):
        net = Fabric.of(np.where(three, inside, 100.0), width=14336, gbit=1)
        near = Cluster.of(BLOOM, [MIG] * 24, np.array([5.0, 12, 20])[site])
        yield f"24 MIG near, {inside} ms", 10, near, net
    for inside in (0.1, 1, 5):
        net = Fabric.of(np.full((20, 20), inside), width=14336, gbit=1)
        mixed = Cluster.of(BLOOM, [A100] * 4 + [MIG] * 16, np.full(20, 105.0))
        yield f"4 A100 + 16 MIG, {inside} ms", 60, mixed, net


def uniform(cluster, requests, fabric):
    "The best grouping of one size."
    tried = _Groupings(cluster, requests, fabric, None, Clock(None))
    for state in tried.starts():
        tried.score(state)
    return tried.best[0][1]


def run():
    for name, R, cluster, net in fleets():
        calls = {
            "search and bound": lambda: plan_groups(cluster, R, net),
            "our bound alone": lambda: group_bound(cluster, R, net),
        }
        found = race(calls, 3, False)
        answer = found.answers["search and bound"]
        values = {"value": answer.value, "of one size": uniform(cluster, R, net)}
        yield row(name, found, **values, **{"gap %": 100 * answer.gap})
    yield all_partitions()


def all_partitions():
    "The search beside every partition of a few unlike servers."
    ratios, missed = [], 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(3, 6))
        c = Cluster(4, 2, 1, rng.integers(4, 16, n), rng.integers(1, 20, n), rng.integers(1, 20, n))
        apart = rng.integers(0, 8, (n, n)).astype(float)
        net = Fabric(apart + apart.T, 0.5)
        try:
            every = plan_groups(c, 2, net, method="all", time_limit=None)
        except NotFound:
            continue
        try:
            ratios.append(plan_groups(c, 2, net, time_limit=None).value / every.value)
        except NotFound:
            missed += 1
    r = np.array(ratios)
    values = {"clusters": len(r), "search / all, mean": r.mean(), "worst": r.max()}
    values |= {"equal %": 100 * np.mean(r < 1 + 1e-9), "missed": missed}
    return row("3 to 5 unlike servers, all partitions", **values)
