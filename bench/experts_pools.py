"""Steps of layers that share a pool against cvxpy with Clarabel and a plain loop; sharing a pool of
whole copies exactly and by hulls against a plain loop.

Processor time, best of some. Loads are lognormal, ESFT's, or falling as powers; seeds are printed
where there are some.
"""

import time
import warnings

import numpy as np

from serving_or.experts.one_step import best_level
from serving_or.experts.pools import layer_curve, place_pool
from serving_or.experts.sizes_and_pools import ExpertPool, pool_certificate, pooled_step
from serving_or.tools.data import load_experts


def best(call, repeats=5):
    """Least processor time in milliseconds, and the answer."""
    times = []
    for _ in range(repeats):
        began = time.process_time()
        answer = call()
        times.append(1e3 * (time.process_time() - began))
    return min(times), answer


def objective(n, r, q, w):
    """Latency and entropy."""
    return (r / n).max(axis=1).sum() + (w * (n * np.log(n / q) - n + q)).sum()


def loops(r, x, K, w, rounds=45):
    """The step as one writes it first: a bisection on the price, one on each level within."""
    q = 1 + x

    def counts(lam):
        tau = np.exp(-lam / w)
        n = np.maximum(1.0, tau * q)
        for row in range(len(r)):
            low, high = 1e-9, (r[row] / n[row]).max()
            for _ in range(rounds):
                L = np.sqrt(low * high)
                pinned = r[row] / L > n[row]
                rise = r[row][pinned] / L / (tau * q[row][pinned])
                p = (w * r[row][pinned] / L**2 * np.log(rise)).sum()
                low, high = (L, high) if p > 1 else (low, L)
            n[row] = np.maximum(n[row], r[row] / high)
        return n

    low, high = 0.0, 1.0
    while (counts(high) - 1).sum() > K:
        high *= 2
    for _ in range(rounds):
        middle = (low + high) / 2
        low, high = (middle, high) if (counts(middle) - 1).sum() > K else (low, middle)
    return counts(high) - 1


def clarabel(r, x, K, w):
    """The step as cvxpy states it."""
    import cvxpy as cp

    n = cp.Variable(r.shape)
    slow = cp.sum(cp.max(cp.multiply(r, cp.inv_pos(n)), axis=1))
    move = cp.sum(cp.multiply(w, cp.kl_div(n, 1 + x)))
    problem = cp.Problem(cp.Minimize(slow + move), [n >= 1, cp.sum(n - 1) <= K])
    problem.solve(solver=cp.CLARABEL)
    found = np.maximum(n.value - 1, 0)
    return found * min(1.0, K / found.sum())


def steps():
    """One step of all layers."""
    print("pooled step, w = 2, eta = 1 (greedy, reversed: median and largest of 12 steps, ms)")
    for layers, m, k in ((26, 64, 16), (58, 256, 32), (58, 256, 256)):
        for spread in (0.5, 1.5, 3.0):
            said = []
            for reverse in (False, True):
                rng, x, times = np.random.default_rng(0), np.full((layers, m), k / m), []
                for _ in range(12):
                    r = 4 * np.exp(spread * rng.normal(size=(layers, m)))
                    took, after = best(
                        lambda r=r, x=x, how=reverse: pooled_step(
                            r, x, layers * k, 1.0, 2.0, 1.0, how
                        ),
                        2,
                    )
                    x = after
                    times.append(took)
                said.append(f"{np.median(times):5.2f} {max(times):5.2f}")
            print(f"  {layers} x {m:3d}, k = {k:3d}, spread {spread}: {said[0]};  {said[1]}")


def peers():
    """One step beside cvxpy and loops."""
    print("one step beside cvxpy with Clarabel and a plain loop (lognormal 1.5, seed 0)")
    warnings.simplefilter("ignore")
    # the first call also imports
    clarabel(np.ones((1, 2)), np.ones((1, 2)), 2.0, np.ones((1, 2)))
    rng = np.random.default_rng(0)
    for layers, m, k, loop in ((4, 16, 8, True), (26, 64, 16, True), (58, 256, 32, False)):
        r = 4 * np.exp(1.5 * rng.normal(size=(layers, m)))
        x = k * rng.dirichlet(np.ones(m), layers)
        w, K, q = np.full((layers, m), 2.0), layers * k, 1 + x
        ours, after = best(lambda r=r, x=x, w=w, K=K: pooled_step(r, x, K, 1.0, w))
        text = f"{ours:6.2f} ms"
        try:
            theirs, other = best(lambda r=r, x=x, w=w, K=K: clarabel(r, x, K, w), 1)
            worse = objective(1 + after, r, q, w) / objective(1 + other, r, q, w) - 1
            text += f", cvxpy {theirs:6.1f} ms ({theirs / ours:4.0f} x), ours - 1 {worse:.0e}"
        # cvxpy raises when Clarabel gives up
        except Exception as error:
            text += f", cvxpy: {type(error).__name__}"
        if loop:
            slow, same = best(lambda r=r, x=x, K=K: loops(r, x, K, 2.0), 1)
            apart = np.abs(same - after).max()
            text += f"; loop {slow:7.0f} ms ({slow / ours:4.0f} x), apart {apart:.0e}"
        print(f"  {layers} x {m}: {text}")


def plain(curves, K):
    """The dynamic program in Python's own loops."""
    value = [0.0] * (K + 1)
    for used, levels in curves:
        used = [int(u) for u in used]
        value = [
            min(value[c - u] + float(v) for u, v in zip(used, levels) if u <= c)
            for c in range(K + 1)
        ]
    return value[K]


def shares():
    """Whole copies for all layers."""
    print("sharing whole copies: exact and hulls (ms), hulls over exact, pool over equal shares")
    mean = load_experts(window=4).loads.mean(axis=0)
    cases = [(f"ESFT, k = {k}", mean, k) for k in (4, 8, 16, 32)]
    for low, high in ((0.2, 0.5), (0.2, 1.2), (0.0, 1.5)):
        shares_of = np.arange(1.0, 257) ** -np.linspace(low, high, 58)[:, None]
        name = f"58 x 256, powers {low} to {high}, k = 32"
        cases.append((name, shares_of / shares_of.sum(axis=1, keepdims=True), 32))
    for name, r, k in cases:
        K = len(r) * k
        exact, plan = best(lambda r=r, K=K: place_pool(r, K), 3)
        fast, hull = best(lambda r=r, K=K: place_pool(r, K, exact=False), 3)
        same = sum(best_level(row, k) for row in r)
        print(
            f"  {name:32s} {exact:7.1f} {fast:7.1f}  {hull.value / plan.value:.6f}"
            f"  {plan.value / same:.4f}  proved within {hull.gap:.1e}"
        )
        if len(r) < 58 and k < 32:
            curves = [layer_curve(row, K) for row in r]
            slow, value = best(lambda c=curves, K=K: plain(c, K), 1)
            assert np.isclose(value, plan.value)
            print(f"    the program in plain loops {slow:.0f} ms, {slow / exact:.0f} times")


def certificates():
    """The bound while it runs."""
    loads = load_experts(window=4).loads.astype(float)
    pool = ExpertPool(4 * loads / loads.mean(), 26 * 16)
    took, _ = best(lambda: pool_certificate(pool), 1)
    print(f"certificate, 26 x 64, 52 steps: {took / 52:.1f} ms a step")


def run():
    steps()
    peers()
    shares()
    certificates()
