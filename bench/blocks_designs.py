"""Sweep and lanes against CG-BPRR: times on large fleets, gaps to the bound on GTS-CE.

Then what routing every design exactly is worth where that is cheap.
"""

import numpy as np

from bench import cost, percent, seconds, timed
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
    print("   sweep: time, and cost against CG-BPRR")
    cases = (
        ("GTS-CE, 60 servers", scatter(gts, seed=1), 400),
        ("1000 servers", fleet(1000, fast=0.2), 1000),
        ("1000 servers", fleet(1000, fast=0.2), 5000),
        ("1000 that differ", different(1000), 5000),
    )
    for name, c, R in cases:
        swept, conservative = sweep(c, R), cost(lambda: cg_bprr(c, R))
        assert swept.cost <= conservative * (1 + 1e-9)
        took = seconds(lambda: sweep(c, R), repeats=3)
        print(
            f"   {name:<20} R = {R:>5}: {took:.3f} s, {conservative:.1f} -> {swept.cost:.1f} ms"
            f" (bound {swept.bound:.1f}), design {swept.design}, {len(swept.chains)} chains"
        )


def gaps(gts):
    "Gaps of all methods, and seconds of lanes."
    print("\n   gaps in % to the bound of chains, GTS-CE, 60 servers, one client")
    print("    A100s tokens    R     bound  CG-BPRR   sweep   lanes (s)")
    cases = (
        (0.2, 128, 200), (0.2, 128, 400), (0.2, 2028, 30), (0.2, 2028, 60),
        (0.0, 128, 100), (0.0, 1004, 20), (0.0, 1004, 40),
    )  # fmt: skip
    for fast, output, R in cases:
        c = scatter(gts, seed=1, fast=fast, output=output)
        bound = chain_bound(c, R).value
        took, placement = timed(lambda: lanes(c, R))
        parallel = np.inf if placement is None else route_exact(c, placement, R).cost
        shown = [cost(lambda: cg_bprr(c, R)), sweep(c, R).cost, parallel]
        first, second, third = (percent(value, bound) for value in shown)
        line = f"   {fast:>6} {output:>6} {R:>4}  {bound:>8.1f} {first:>8} {second:>7} {third:>7}"
        print(f"{line} ({took:.1f})")


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
            took, value = timed(lambda: cost(lambda: sweep(c, R)))
            times[i] += took
            costs.append(value)
        designs.EXACT = usual
        if np.isfinite(costs[0]):
            ratios.append(1 - costs[1] / costs[0])
    saved = 100 * np.array(ratios)
    print(f"\n   exact routing of every design, {len(saved)} random fleets of up to 8 servers:")
    print(
        f"   saves {saved.mean():.2f} % on average, at most {saved.max():.0f} %, in"
        f" {(saved > 1e-6).mean():.0%} of them; {times[0]:.1f} s without, {times[1]:.1f} s with it"
    )


def run():
    gts = load_topology("gtsce")
    large_fleets(gts)
    gaps(gts)
    exact_routing()
