"""Sweep, lanes and search against CG-BPRR: times on large fleets, and gaps to the bound on GTS-CE."""

import time

import numpy as np

from bench import seconds
from bench.blocks_cg import fleet
from serving_or.blocks import (
    Cluster,
    NotFound,
    cg_bprr,
    chain_bound,
    improve,
    lanes,
    route_exact,
    sweep,
)
from serving_or.blocks.cluster import scatter
from serving_or.tools.data import load_topology

BUDGET = 30.0  # seconds of search


def cost(call):
    try:
        return call().cost
    except NotFound:
        return np.nan


def run():
    print("   sweep: time, and cost against CG-BPRR")
    gts = load_topology("gtsce")
    for name, c, R in (
        ("GTS-CE, 60 servers", scatter(gts, seed=1), 400),
        ("1000 servers", fleet(1000), 1000),
        ("1000 servers", fleet(1000), 5000),
    ):
        swept, conservative = sweep(c, R), cost(lambda: cg_bprr(c, R))
        assert not swept.cost > conservative * (1 + 1e-9)
        print(
            f"   {name:<20} R = {R:>5}: {seconds(lambda: sweep(c, R), repeats=3):.3f} s, {conservative:.1f} -> {swept.cost:.1f} ms (bound {swept.bound:.1f}), "
            f"design {swept.design}, {len(swept.chains)} chains"
        )

    print(
        f"\n   gaps to the bound in %, GTS-CE, 60 servers, one client; improve has {BUDGET:.0f} s at most"
    )
    print(
        f"   {'A100s':>6} {'tokens':>6} {'R':>4}  {'bound':>8} {'CG-BPRR':>8} {'sweep':>7} {'lanes':>7} (s)    {'improve':>8} (s)"
    )
    for fast, output, R in (
        (0.2, 128, 200),
        (0.2, 128, 400),
        (0.2, 2028, 30),
        (0.2, 2028, 60),
        (0.0, 128, 100),
        (0.0, 1004, 20),
        (0.0, 1004, 40),
    ):
        c = scatter(gts, seed=1, fast=fast, output=output)
        bound = chain_bound(c, R).value
        gap = lambda v: 100 * (v / bound - 1)
        swept, began = sweep(c, R), time.perf_counter()
        placement = lanes(c, R)
        took = time.perf_counter() - began
        parallel = route_exact(c, placement, R).cost if placement is not None else np.nan
        began = time.perf_counter()
        better = improve(swept, BUDGET, bound)
        assert bound <= better.cost * (1 + 1e-9) and better.cost <= swept.cost
        print(
            f"   {fast:>6} {output:>6} {R:>4}  {bound:>8.1f} {gap(cost(lambda: cg_bprr(c, R))):>8.1f} {gap(swept.cost):>7.2f} {gap(parallel):>7.2f} ({took:.1f})  "
            f"{gap(better.cost):>8.2f} ({time.perf_counter() - began:.0f})"
        )

    print("\n   the same on 40 servers that all differ, 40 blocks")
    rng = np.random.default_rng(0)
    c = Cluster(
        40, 1.3, 0.05, rng.uniform(6, 24, 40), rng.uniform(4, 16, 40), rng.uniform(60, 120, 40)
    )
    for R in (10, 25):
        bound, swept = chain_bound(c, R).value, sweep(c, R)
        better = improve(swept, BUDGET, bound)
        print(
            f"   R = {R}: CG-BPRR {100 * (cost(lambda: cg_bprr(c, R)) / bound - 1):.1f} %, sweep {100 * (swept.cost / bound - 1):.2f} %, "
            f"improve {100 * (better.cost / bound - 1):.2f} %"
        )
