"""The gap on fleets that are tight in memory: bounds, sweep, lanes, and the search.

Rows: GTS-CE with 60 servers, A100s and slices (A) or slices only (M), and 40 servers that all
differ (D). Two minutes of search each, and a minute of bounds; the environment variable CASES picks
rows. Costs and bounds are in milliseconds per token.
"""

import os

import numpy as np

from bench import LIMITS, cost, once, percent, row
from serving_or.blocks import Cluster, improve, lanes, route_exact, sweep
from serving_or.blocks.bounds import best_bound
from serving_or.blocks.cluster import scatter
from serving_or.tools.data import load_topology

SECONDS, BOUNDS = 120.0 * LIMITS, 60.0 * LIMITS


def different(seed):
    """40 servers that all differ, 40 blocks."""
    rng = np.random.default_rng(seed)
    memory, tau, rtt = rng.uniform(6, 24, 40), rng.uniform(4, 16, 40), rng.uniform(60, 120, 40)
    return Cluster(40, 1.3, 0.05, memory, tau, rtt)


def cases():
    """Name, fleet, requests."""
    gts = load_topology("gtsce")
    mixed = [scatter(gts, seed=seed, fast=0.2, output=2028) for seed in (1, 2, 3, 4)]
    slices = [scatter(gts, seed=seed, fast=0.0, output=1004) for seed in (1, 2, 3)]
    yield from ((f"A{i}", c, 60) for i, c in enumerate(mixed, 1))
    yield from ((f"M{i}", c, 40) for i, c in enumerate(slices, 1))
    yield from (
        (f"D{seed}", different(seed), R) for seed, R in ((0, 20), (0, 30), (1, 30), (2, 30))
    )
    yield from (("A1", mixed[0], R) for R in (80, 95, 101))


def best_lanes(c, R):
    """The cost of lanes; infinite without any."""
    placement = lanes(c, R)
    return np.inf if placement is None else cost(lambda: route_exact(c, placement, R))


def run():
    for name, c, R in cases():
        if name not in os.environ.get("CASES", name).split():
            continue
        begin = sweep(c, R)
        took, bound = once(lambda: best_bound(c, R, begin, time_limit=BOUNDS))
        better = improve(begin, SECONDS, bound=bound.value)
        assert bound.value <= better.cost * (1 + 1e-9) and better.cost <= begin.cost
        values = {k: bound.others.get(k) for k in ("chains", "exits", "strip")}
        values |= {"sweep": begin.cost, "lanes": best_lanes(c, R), "improve": better.cost}
        values["gap of the sweep %"] = percent(begin.cost, bound.value)
        values["gap of the search %"] = percent(better.cost, bound.value)
        values |= {"seconds of search": SECONDS, "seconds of bounds": took.seconds["ours"][0]}
        yield row(f"{name}, R = {R}", **values)
