"""CG-BP: the tiling against the same rule read window by window, vectorised and in plain Python.

A100s and slices that serve BLOOM-176B. Then the plans beside the placement of the largest flow, in
the manner of Helix, routed exactly: on small fleets, several seeds and loads.
"""

import numpy as np

from bench import seconds
from serving_or.blocks import (
    Cluster,
    Infeasible,
    NotFound,
    cg_bp,
    cg_bprr,
    coverage,
    lone_bound,
    max_flow_placement,
    route_exact,
    sweep,
)
from serving_or.blocks.conservative_greedy import fastest, order_rtt, pace, tile, window_rule
from tests.instances import fleet


def plain(m, f, speed, blocks, requests):
    "The first phase in plain Python."
    price = 2 * max(s for s in speed if np.isfinite(s))
    C, T, a = [0.0] * blocks, [requests * price] * blocks, [1] * len(m)
    able = (j for j in range(len(m)) if np.isfinite(speed[j]))
    for j in sorted(able, key=lambda j: (speed[j], j)):
        if all(c >= requests for c in C):
            break
        every = range(blocks - m[j] + 1)
        starts = [s for s in every if any(c < requests for c in C[s : s + m[j]])]
        s = max(starts, key=lambda s: (sum(T[s : s + m[j]]), -s))
        for b in range(s, s + m[j]):
            T[b] -= (price - speed[j]) * min(max(requests - C[b], 0), f[j])
            C[b] += f[j]
        a[j] = s + 1
    return np.array(a)


def run():
    print(
        f"   {'n':>6} {'R':>5}  {'tiles ms':>9} {'windows ms':>11} {'Python ms':>10}"
        f"  {'CG-BP ms':>9} {'CG-BPRR ms':>11} {'bound ms':>9}   ratio"
    )
    for n, R in ((20, 20), (150, 60), (150, 600), (1000, 1000), (10_000, 1000)):
        c = fleet(n, fast=0.2)
        m = c.counts(R)
        f, speed = c.sessions(m), pace(c, m, order_rtt(c, c.demand(R)))
        calls = (
            lambda: tile(m, fastest(m, speed, c.blocks)[0], c.blocks),
            lambda: window_rule(m, f, speed, c.blocks, R)[0],
            lambda: plain(m, f, speed, c.blocks, R),
            lambda: cg_bp(c, R),
            lambda: cg_bprr(c, R),
            lambda: lone_bound(c, R),
        )
        same = [call() for call in calls[:3]]
        assert (same[0] == same[1]).all() and (same[0] == same[2]).all()
        times = [1e3 * seconds(call) for call in calls]
        print(
            f"   {n:>6} {R:>5}  {times[0]:>9.3f} {times[1]:>11.2f} {times[2]:>10.2f}"
            f"  {times[3]:>9.2f} {times[4]:>11.2f} {times[5]:>9.2f}   {cg_bprr(c, R).ratio:.4f}"
        )
    flows()


def flows():
    "Cost of CG-BPRR, sweep and the largest flow; a dash where there is no plan."
    print(f"\n   {'seed':>6} {'R':>5}  {'CG-BPRR':>9} {'sweep':>9} {'max flow':>9}   sessions")
    for seed in range(6):
        rng = np.random.default_rng(seed)
        memory, tau, rtt = (
            rng.integers(16, 60, 10),
            rng.integers(2, 8, 10),
            rng.integers(10, 40, 10),
        )
        c = Cluster(12, 4, 1, memory, tau, rtt)
        placement = max_flow_placement(c, time_limit=5)
        for R in (4, 8, 12, 16, 20):
            calls = (
                lambda R: cg_bprr(c, R),
                lambda R: sweep(c, R),
                lambda R: route_exact(c, placement, R),
            )
            costs = [cost_of(call, R) for call in calls]
            shown = "".join(f" {cost:>9.1f}" if cost else f" {'-':>9}" for cost in costs)
            print(f"   {seed:>6} {R:>5} {shown}   {coverage(c, placement).min():.0f}")


def cost_of(call, requests):
    "Milliseconds a token, or nothing."
    try:
        return call(requests).cost
    except (NotFound, Infeasible):
        return None
