"""Steps of layers that share a pool against cvxpy with Clarabel and a plain loop; sharing a pool of
whole copies exactly and by hulls against a plain loop.

Loads are lognormal (seed 0), ESFT's, or falling as powers; one step is that of all layers.
"""

import warnings

import numpy as np

from bench import Race, race, row
from serving_or.experts.one_step import best_level
from serving_or.experts.pools import layer_curve, place_pool
from serving_or.experts.sizes_and_pools import ExpertPool, pool_certificate, pooled_step
from serving_or.tools.data import load_experts


def objective(n, r, q, w):
    """Latency and entropy."""
    return (r / n).max(axis=1).sum() + (w * (n * np.log(n / q) - n + q)).sum()


def loops(r, x, K, w, rounds=45):
    """The step as one writes it first: a bisection on the price, one on each level within."""
    q = 1 + x

    def counts(lam):
        tau = np.exp(-lam / w)
        n = np.maximum(1.0, tau * q)
        for i in range(len(r)):
            low, high = 1e-9, (r[i] / n[i]).max()
            for _ in range(rounds):
                L = np.sqrt(low * high)
                pinned = r[i] / L > n[i]
                rise = r[i][pinned] / L / (tau * q[i][pinned])
                p = (w * r[i][pinned] / L**2 * np.log(rise)).sum()
                low, high = (L, high) if p > 1 else (low, L)
            n[i] = np.maximum(n[i], r[i] / high)
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
    """One step of all layers, greedy and reversed: twelve in a row."""
    for layers, m, k in ((26, 64, 16), (58, 256, 32), (58, 256, 256)):
        for spread in (0.5, 1.5, 3.0):
            seconds = {}
            for name, reverse in (("greedy", False), ("our reversed", True)):
                rng, x, times = np.random.default_rng(0), np.full((layers, m), k / m), []
                for _ in range(12):
                    r = 4 * np.exp(spread * rng.normal(size=(layers, m)))
                    call = lambda r=r, x=x, how=reverse: pooled_step(
                        r, x, layers * k, 1.0, 2.0, 1.0, how
                    )
                    found = race({"ours": call}, 1, False)
                    x = found.answers["ours"]
                    times += found.seconds["ours"]
                seconds[name] = times
            case = f"pooled step, {layers} x {m}, k = {k}, spread {spread}"
            yield row(case, Race(seconds, {}, "processor"))


def gives_up(call):
    """The answer, or None where cvxpy raises because Clarabel has given up."""
    try:
        return call()
    except Exception:
        return None


def peers():
    """One step beside cvxpy and loops."""
    warnings.simplefilter("ignore")
    # the first call also imports
    clarabel(np.ones((1, 2)), np.ones((1, 2)), 2.0, np.ones((1, 2)))
    rng = np.random.default_rng(0)
    for layers, m, k, loop in ((4, 16, 8, True), (26, 64, 16, True), (58, 256, 32, False)):
        r = 4 * np.exp(1.5 * rng.normal(size=(layers, m)))
        x = k * rng.dirichlet(np.ones(m), layers)
        w, K, q = np.full((layers, m), 2.0), layers * k, 1 + x
        calls = {
            "ours": lambda: pooled_step(r, x, K, 1.0, w),
            "cvxpy, Clarabel": lambda: gives_up(lambda: clarabel(r, x, K, w)),
        }
        if loop:
            calls["plain loop"] = lambda: loops(r, x, K, 2.0)
        found, values = race(calls, 3, False), {}
        after, other = found.answers["ours"], found.answers["cvxpy, Clarabel"]
        values["Clarabel gave up"] = float(other is None)
        if other is not None:
            ratio = objective(1 + after, r, q, w) / objective(1 + other, r, q, w)
            values["ours / Clarabel's - 1"] = ratio - 1
        if loop:
            values["apart from the loop"] = np.abs(found.answers["plain loop"] - after).max()
        yield row(f"one step, {layers} x {m}, k = {k}", found, **values)


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
    """Whole copies for all layers: exact and by hulls."""
    mean = load_experts(window=4).loads.mean(axis=0)
    cases = [(f"ESFT, k = {k}", mean, k) for k in (4, 8, 16, 32)]
    for low, high in ((0.2, 0.5), (0.2, 1.2), (0.0, 1.5)):
        shares_of = np.arange(1.0, 257) ** -np.linspace(low, high, 58)[:, None]
        name = f"58 x 256, powers {low} to {high}, k = 32"
        cases.append((name, shares_of / shares_of.sum(axis=1, keepdims=True), 32))
    for name, r, k in cases:
        K, curves = len(r) * k, None
        calls = {
            "exact": lambda: place_pool(r, K),
            "our hulls": lambda: place_pool(r, K, exact=False),
        }
        if len(r) < 58 and k < 32:
            curves = [layer_curve(each, K) for each in r]
            calls["plain loops"] = lambda: plain(curves, K)
        found = race(calls, 3)
        plan, hull = found.answers["exact"], found.answers["our hulls"]
        if curves:
            assert np.isclose(found.answers["plain loops"], plan.value)
        same = sum(best_level(each, k) for each in r)
        values = {"hulls / exact": hull.value / plan.value, "hulls proved within %": 100 * hull.gap}
        yield row(f"sharing: {name}", found, **values, **{"pool / equal": plan.value / same})


def certificates():
    """The bound while it runs."""
    loads = load_experts(window=4).loads.astype(float)
    pool = ExpertPool(4 * loads / loads.mean(), 26 * 16)
    found = race({"ours": lambda: pool_certificate(pool)}, 1, False)
    yield row("certificate, 26 x 64, one of 52 steps", found, {"ours": 52})


def run():
    yield from steps()
    yield from peers()
    yield from shares()
    yield from certificates()
