"""The step of regularised greedy against cvxpy with Clarabel: one step for all layers of a model, accuracy on random instances, and the certificate."""
import time
import warnings

import numpy as np

from serving_or.experts.certificate import Certificate
from serving_or.experts.regularized_greedy import regularized_step
from serving_or.tools.generators import trace

STEPS = 20


def loads(kind, layers, m, scale):
    "Loads (STEPS, layers, m): one trace for each layer."
    if kind == "lognormal":
        return scale * np.exp(1.5 * np.random.default_rng(0).normal(size=(STEPS, layers, m)))
    return np.stack([trace(kind, m, STEPS, scale, seed) for seed in range(layers)], axis=1)


def play(path, k):
    "Seconds of each step of a run from an even start, and the placements."
    x, times, places = np.full(path.shape[1:], k / path.shape[-1]), [], []
    for r in path:
        start = time.perf_counter()
        x = regularized_step(r, x)
        times.append(time.perf_counter() - start)
        places.append(x)
    return times, places


def clarabel(m):
    "The step as cvxpy states it, compiled once: a function of loads, counts before and w / eta, and the counts after."
    import cvxpy as cp

    n, load, linear, weight, total = cp.Variable(m), cp.Parameter(m, nonneg=True), cp.Parameter(m), cp.Parameter(nonneg=True), cp.Parameter(nonneg=True)
    cost = cp.max(cp.multiply(load, cp.inv_pos(n))) - weight * cp.sum(cp.entr(n)) - linear @ n
    problem = cp.Problem(cp.Minimize(cost), [n >= 1, cp.sum(n) == total])
    assert problem.is_dpp()

    def solve(r, q, rho):
        load.value, linear.value, weight.value, total.value = r, rho * np.log(q), rho, q.sum()
        problem.solve(solver=cp.CLARABEL)
        x = np.maximum(n.value - 1, 0)
        return 1 + x * ((q.sum() - m) / x.sum())

    return solve


def objective(n, r, q, rho):
    return (r / n).max() + rho * (n * np.log(n / q) - n + q).sum()


def run():
    warnings.filterwarnings("ignore", message="Solution may be inaccurate")
    print(f"one step, NumPy alone (median and largest of {STEPS})")
    for layers, m, k in [(58, 256, 16), (58, 256, 64), (58, 256, 1024), (1, 10_000, 2_000)]:
        for kind, scale in [("ar", 4.0), ("ar", 400.0), ("lognormal", 4.0), ("spikes", 4.0), ("zipf", 4.0)]:
            path = loads(kind, layers, m, scale)
            play(path[:2], k)
            times, _ = play(path, k)
            print(f"  {layers:3d} x {m:6d}, k = {k:5d}, {kind:9s} x {scale:5.0f}: {1e3 * np.median(times):6.2f} ms, largest {1e3 * max(times):6.2f} ms")
    print("against cvxpy (DPP, compiled once) with Clarabel, one layer of 256 experts; ours is one 58th of the batched step")
    for k in (64, 1024):
        path, solve = loads("ar", 58, 256, 4.0), clarabel(256)
        times, places = play(path, k)
        solve(path[0, 0], np.full(256, 1 + k / 256), 2.0)
        theirs, worse = [], []
        for t in range(1, 8):
            r, q = path[t, 0], 1 + places[t - 1][0]
            start = time.perf_counter()
            n = solve(r, q, 2.0)
            theirs.append(time.perf_counter() - start)
            worse.append(objective(1 + places[t][0], r, q, 2.0) / objective(n, r, q, 2.0) - 1)
        ours = np.median(times) / 58
        print(f"  k = {k:4d}: Clarabel {1e3 * np.median(theirs):6.1f} ms, ours {1e6 * ours:5.1f} us a layer, {np.median(theirs) / ours:6.0f} times faster;"
              f" our objective over theirs - 1: at most {max(worse):.1e}")
    print("accuracy on random steps (ties, zeros, vertices, loads over 12 decades)")
    rng, solvers, worst, n_done, failed = np.random.default_rng(0), {m: clarabel(m) for m in (2, 4, 8)}, -np.inf, 0, 0
    for number in range(3000):
        m, k = (2, 4, 8)[number % 3], int(rng.integers(1, 20))
        r = [np.exp(2 * rng.normal(size=m)), rng.integers(0, 4, m).astype(float), 10 ** rng.uniform(-6, 6, m)][rng.integers(3)]
        x = k * (np.eye(m)[0] if rng.random() < 0.2 else rng.dirichlet(np.full(m, 0.5)))
        top = (r / (1 + x)).max()
        if top == 0:
            continue
        rho = 10 ** rng.uniform(-1.5, 1.5) / top
        try:
            n = solvers[m](r / top, 1 + x, rho)
        except Exception:                                                      # cvxpy raises when Clarabel gives up
            failed += 1
            continue
        mine = 1 + regularized_step(r / top, x, 1.0, rho)
        worst, n_done = max(worst, objective(mine, r / top, 1 + x, rho) / objective(n, r / top, 1 + x, rho) - 1), n_done + 1
    print(f"  {n_done} steps: our objective over Clarabel's - 1 is at most {worst:.1e}; Clarabel failed on {failed}")
    print("certificate, one layer")
    for m, k in [(64, 16), (256, 64), (256, 1024)]:
        path, certificate = loads("ar", 1, m, 4.0)[:, 0], Certificate(np.full(m, k / m), k)
        start = time.perf_counter()
        for r in path:
            certificate.step(r)
        print(f"  m = {m:4d}, k = {k:5d}: {1e3 * (time.perf_counter() - start) / STEPS:5.2f} ms a step")
    print("growth of one step (slope of log time over a doubling range)")
    for name, sizes in [("m", [(1, 2**a, 2**a // 4) for a in range(9, 16)]), ("k", [(58, 256, 2**a) for a in range(4, 13)]), ("layers", [(2**a, 256, 64) for a in range(0, 9)])]:
        at = [dict(zip(("layers", "m", "k"), s))[name] for s in sizes]
        took = [np.median(play(4 * np.exp(np.random.default_rng(0).normal(size=(6, s[0], s[1]))), s[2])[0]) for s in sizes]
        half = len(at) // 2
        print(f"  {name:6s} {at[0]}..{at[-1]}: slope {np.polyfit(np.log(at), np.log(took), 1)[0]:5.2f}, upper half {np.polyfit(np.log(at[half:]), np.log(took[half:]), 1)[0]:5.2f}")
