"""Sweep, lanes and search against CG-BPRR: times on large fleets, gaps to the bound on GTS-CE."""

import numpy as np

from bench import cost, percent, seconds, timed
from serving_or.blocks import (
    Cluster,
    cg_bprr,
    chain_bound,
    improve,
    lanes,
    route_exact,
    sweep,
)
from serving_or.blocks.cluster import scatter
from serving_or.tools.data import load_topology
from tests.instances import fleet

TIME_LIMIT = 30.0  # seconds of search


def large_fleets(gts):
    "Seconds of the sweep, and its cost against CG-BPRR."
    print("   sweep: time, and cost against CG-BPRR")
    cases = (
        ("GTS-CE, 60 servers", scatter(gts, seed=1), 400),
        ("1000 servers", fleet(1000, fast=0.2), 1000),
        ("1000 servers", fleet(1000, fast=0.2), 5000),
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
    "Gaps of all methods, and seconds of lanes and of the search."
    limit = f"improve has {TIME_LIMIT:.0f} s at most"
    print(f"\n   gaps in %, GTS-CE, 60 servers, one client; {limit}")
    print(
        f"   {'A100s':>6} {'tokens':>6} {'R':>4}  {'bound':>8} {'CG-BPRR':>8} {'sweep':>7}"
        f" {'lanes':>7} (s)    {'improve':>8} (s)"
    )
    cases = (
        (0.2, 128, 200), (0.2, 128, 400), (0.2, 2028, 30), (0.2, 2028, 60),
        (0.0, 128, 100), (0.0, 1004, 20), (0.0, 1004, 40),
    )  # fmt: skip
    for fast, output, R in cases:
        c = scatter(gts, seed=1, fast=fast, output=output)
        bound = chain_bound(c, R).value
        swept = sweep(c, R)
        took, placement = timed(lambda: lanes(c, R))
        parallel = np.inf if placement is None else route_exact(c, placement, R).cost
        searched, better = timed(lambda: improve(swept, TIME_LIMIT, bound=bound))
        assert bound <= better.cost * (1 + 1e-9) and better.cost <= swept.cost
        shown = [cost(lambda: cg_bprr(c, R)), swept.cost, parallel, better.cost]
        first, second, third, fourth = (percent(value, bound) for value in shown)
        print(
            f"   {fast:>6} {output:>6} {R:>4}  {bound:>8.1f} {first:>8} {second:>7}"
            f" {third:>7} ({took:.1f})  {fourth:>8} ({searched:.0f})"
        )


def unlike_servers():
    "Where lanes have nothing to line up."
    print("\n   gaps in % on 40 servers that all differ, 40 blocks")
    rng = np.random.default_rng(0)
    memory, tau, rtt = rng.uniform(6, 24, 40), rng.uniform(4, 16, 40), rng.uniform(60, 120, 40)
    c = Cluster(40, 1.3, 0.05, memory, tau, rtt)
    for R in (10, 25):
        bound, swept = chain_bound(c, R).value, sweep(c, R)
        better = improve(swept, TIME_LIMIT, bound=bound)
        shown = [cost(lambda: cg_bprr(c, R)), swept.cost, better.cost]
        first, second, third = (percent(value, bound) for value in shown)
        print(f"   R = {R}: CG-BPRR {first}, sweep {second}, improve {third}")


def run():
    gts = load_topology("gtsce")
    large_fleets(gts)
    gaps(gts)
    unlike_servers()
