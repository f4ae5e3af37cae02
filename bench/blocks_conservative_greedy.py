"""CG-BP: the tiling against the same rule read window by window, vectorised and in plain Python.

A100s and slices that serve BLOOM-176B; then the whole of CG-BP, of CG-BPRR, and the bound. Then the
plans beside the placement of the largest flow, in the manner of Helix, routed exactly: on small
fleets, several seeds and loads, in milliseconds per token.
"""

import numpy as np

from bench import cost, race, row
from serving_or.blocks import (
    Cluster,
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


def times():
    "Placing and planning as fleets grow."
    for n, R in ((20, 20), (150, 60), (150, 600), (1000, 1000), (10_000, 1000)):
        c = fleet(n, fast=0.2)
        m = c.counts(R)
        f, speed = c.sessions(m), pace(c, m, order_rtt(c, c.demand(R)))
        calls = {
            "tiles": lambda: tile(m, fastest(m, speed, c.blocks)[0], c.blocks),
            "window by window, NumPy": lambda: window_rule(m, f, speed, c.blocks, R)[0],
            "window by window, plain Python": lambda: plain(m, f, speed, c.blocks, R),
        }
        found = race(calls)
        first, *others = found.answers.values()
        assert all((first == other).all() for other in others)
        at = {"size": n} if R != 600 else {}
        name = f"{n:,} servers, R = {R}"
        yield row(f"placing, {name}", found, line="placing, servers" if at else None, **at)
        calls = {
            "CG-BPRR": lambda: cg_bprr(c, R),
            "our CG-BP alone": lambda: cg_bp(c, R),
            "our bound": lambda: lone_bound(c, R),
        }
        found, line = race(calls), "CG-BPRR, servers" if at else None
        ratio = found.answers["CG-BPRR"].ratio
        yield row(f"planning, {name}", found, line=line, **at, **{"cost / bound": ratio})


def run():
    yield from times()
    yield from flows()


def flows():
    "Cost of CG-BPRR, sweep and the largest flow; None where there is no plan."
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
            values = {"CG-BPRR": cost(lambda: cg_bprr(c, R)), "sweep": cost(lambda: sweep(c, R))}
            values["max flow"] = cost(lambda: route_exact(c, placement, R))
            values["sessions of the flow"] = coverage(c, placement).min()
            yield row(f"small fleet, seed {seed}, R = {R}", **values)
