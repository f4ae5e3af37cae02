"""Sweep and lanes against CG-BPRR: times on large fleets, gaps to the bound on GTS-CE.

Then what routing every design exactly is worth where that is cheap. Costs and bounds are in
milliseconds per token.
"""

import numpy as np

from bench import cost, once, percent, race, row, timed
from serving_or.blocks import (
    Cluster,
    cg_bprr,
    chain_bound,
    designs,
    lanes,
    route_exact,
    sweep,
)
from serving_or.blocks.cluster import scatter
from serving_or.tools.data import load_topology
from tests.instances import fleet


def different(n):
    "Servers that all differ."
    rng = np.random.default_rng(0)
    memory, tau, rtt = rng.uniform(6, 24, n), rng.uniform(4, 16, n), rng.uniform(60, 120, n)
    return Cluster(70, 1.3, 0.005, memory, tau, rtt)


def large_fleets(gts):
    "Seconds of the sweep, and its cost against CG-BPRR."
    cases = (
        ("GTS-CE, 60 servers", scatter(gts, seed=1), 400),
        ("1000 servers", fleet(1000, fast=0.2), 1000),
        ("1000 servers", fleet(1000, fast=0.2), 5000),
        ("1000 that differ", different(1000), 5000),
    )
    for name, c, R in cases:
        found = race({"sweep": lambda: sweep(c, R)}, 3)
        swept, conservative = found.answers["sweep"], cost(lambda: cg_bprr(c, R))
        assert swept.cost <= conservative * (1 + 1e-9)
        values = {"CG-BPRR": conservative, "sweep": swept.cost, "bound": swept.bound}
        values |= {"design": swept.design, "chains": len(swept.chains)}
        yield row(f"{name}, R = {R}", found, **values)


def gaps(gts):
    "Gaps of all methods, and seconds of lanes."
    cases = (
        (0.2, 128, 200), (0.2, 128, 400), (0.2, 2028, 30), (0.2, 2028, 60),
        (0.0, 128, 100), (0.0, 1004, 20), (0.0, 1004, 40),
    )  # fmt: skip
    for fast, output, R in cases:
        c = scatter(gts, seed=1, fast=fast, output=output)
        bound = chain_bound(c, R).value
        took, placement = once(lambda: lanes(c, R), "processor")
        parallel = np.inf if placement is None else route_exact(c, placement, R).cost
        costs = {"CG-BPRR": cost(lambda: cg_bprr(c, R)), "sweep": sweep(c, R).cost}
        costs["lanes"] = parallel
        values = {f"gap of {name} %": percent(value, bound) for name, value in costs.items()}
        values |= {"bound": bound, "seconds of lanes": took.seconds["ours"][0]}
        yield row(f"GTS-CE, {fast:.0%} A100s, {output} tokens, R = {R}", **values)


def exact_routing():
    "Small random fleets, each swept with every design routed exactly, and without."
    rng, ratios, times = np.random.default_rng(0), [], np.zeros(2)
    usual = designs.EXACT
    for _ in range(1000):
        n, L, R = int(rng.integers(3, 9)), int(rng.integers(3, 12)), int(rng.integers(2, 12))
        c = Cluster(L, 2, 1, rng.integers(6, 40, n), rng.integers(1, 9, n), rng.integers(1, 30, n))
        costs = []
        for i, limit in enumerate((0, usual)):
            designs.EXACT = limit
            took, value = timed(lambda: cost(lambda: sweep(c, R)), "processor")
            times[i] += took
            costs.append(value)
        designs.EXACT = usual
        if np.isfinite(costs[0]):
            ratios.append(1 - costs[1] / costs[0])
    saved = 100 * np.array(ratios)
    values = {"fleets": len(saved), "saved on average %": saved.mean(), "at most %": saved.max()}
    values["of them %"] = 100 * (saved > 1e-6).mean()
    values |= {"seconds without": times[0], "seconds with": times[1]}
    yield row("exact routing of every design, random fleets of up to 8 servers", **values)


def run():
    gts = load_topology("gtsce")
    yield from large_fleets(gts)
    yield from gaps(gts)
    yield from exact_routing()
