"""CG-BP: the tiling against the same rule read window by window, vectorised and in plain Python, on A100s and slices that serve BLOOM-176B."""

import numpy as np

from bench import seconds
from serving_or.blocks import Cluster, cg_bp, cg_bprr, lone_bound
from serving_or.blocks.conservative_greedy import fastest, pace, order_rtt, tile, window_rule
from serving_or.blocks.cluster import BLOOM
from serving_or.tools.models import A100, MIG


def fleet(n, fast=0.2, output=128, seed=0):
    "A fleet with round trips drawn between 101 and 120 ms."
    rng = np.random.default_rng(seed)
    return Cluster.of(
        BLOOM,
        [A100 if j < round(fast * n) else MIG for j in range(n)],
        100 + rng.uniform(1, 20, (1, n)),
        output=output,
    )


def plain(m, f, speed, blocks, requests):
    "The first phase in plain Python."
    price = 2 * max(s for s in speed if np.isfinite(s))
    C, T, a = [0.0] * blocks, [requests * price] * blocks, [1] * len(m)
    for j in sorted(
        (j for j in range(len(m)) if np.isfinite(speed[j])), key=lambda j: (speed[j], j)
    ):
        if all(c >= requests for c in C):
            break
        starts = [s for s in range(blocks - m[j] + 1) if any(c < requests for c in C[s : s + m[j]])]
        s = max(starts, key=lambda s: (sum(T[s : s + m[j]]), -s))
        for b in range(s, s + m[j]):
            T[b] -= (price - speed[j]) * min(max(requests - C[b], 0), f[j])
            C[b] += f[j]
        a[j] = s + 1
    return np.array(a)


def run():
    print(
        f"   {'n':>6} {'R':>5}  {'tiles ms':>9} {'windows ms':>11} {'Python ms':>10}  {'CG-BP ms':>9} {'CG-BPRR ms':>11} {'bound ms':>9}   cost / bound"
    )
    for n, R in ((20, 20), (150, 60), (150, 600), (1000, 1000), (10_000, 1000)):
        c = fleet(n)
        m = c.counts(R)
        f, speed = c.sessions(m), pace(c, m, order_rtt(c, R))
        fast = lambda: tile(m, fastest(m, speed, c.blocks)[0], c.blocks)
        assert (fast() == window_rule(m, f, speed, c.blocks, R)[0]).all() and (
            fast() == plain(m, f, speed, c.blocks, R)
        ).all()
        plan = cg_bprr(c, R)
        times = [
            1e3 * seconds(call)
            for call in (
                fast,
                lambda: window_rule(m, f, speed, c.blocks, R),
                lambda: plain(m, f, speed, c.blocks, R),
                lambda: cg_bp(c, R),
                lambda: cg_bprr(c, R),
                lambda: lone_bound(c, R),
            )
        ]
        print(
            f"   {n:>6} {R:>5}  {times[0]:>9.3f} {times[1]:>11.2f} {times[2]:>10.2f}  {times[3]:>9.2f} {times[4]:>11.2f} {times[5]:>9.2f}   {plan.cost / plan.bound:.4f}"
        )
