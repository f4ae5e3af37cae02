"""The steps of both entropies against cvxpy with Clarabel and against each other, for all layers of
a model.
"""

import warnings

import numpy as np

from bench import timed
from serving_or.experts.regularized_greedy import move_entropy, regularized_step, reverse_step
from serving_or.tools.generators import trace

STEPS = 20


def loads(kind, layers, m, scale):
    """Loads (STEPS, layers, m): one trace for each layer."""
    if kind == "lognormal":
        return scale * np.exp(1.5 * np.random.default_rng(0).normal(size=(STEPS, layers, m)))
    return np.stack([trace(kind, m, STEPS, scale, seed) for seed in range(layers)], axis=1)


def play(path, k, step=regularized_step):
    """Seconds of each step of a run from an even start, and the placements."""
    x, times, places = np.full(path.shape[1:], k / path.shape[-1]), [], []
    for r in path:
        took, x = timed(lambda: step(r, x))
        times.append(took)
        places.append(x)
    return times, places


def clarabel(m, reverse=False):
    """The step as cvxpy states it, compiled once: from loads, extra GPUs before and w / eta, to the
    extra GPUs after. Reversed, the entropy is that of q beside n.
    """
    import cvxpy as cp

    n, load, linear = cp.Variable(m), cp.Parameter(m, nonneg=True), cp.Parameter(m)
    weight, total = cp.Parameter(nonneg=True), cp.Parameter(nonneg=True)
    cost = cp.max(cp.multiply(load, cp.inv_pos(n)))
    if reverse:
        linear = cp.Parameter(m, nonneg=True)
        cost = cost - linear @ cp.log(n)
    else:
        cost = cost - weight * cp.sum(cp.entr(n)) - linear @ n
    problem = cp.Problem(cp.Minimize(cost), [n >= 1, cp.sum(n) == total])
    assert problem.is_dpp()

    def solve(r, x, rho):
        load.value, linear.value = r, rho * (1 + x if reverse else np.log1p(x))
        weight.value, total.value = rho, x.sum() + m
        problem.solve(solver=cp.CLARABEL)
        found = np.maximum(n.value - 1, 0)
        return found * (x.sum() / found.sum())

    return solve


def objective(x, r, before, rho, reverse=False):
    """Latency and penalty."""
    pair = (before, x) if reverse else (x, before)
    return (r / (1 + x)).max() + rho * move_entropy(*pair)


def alone():
    """One step, NumPy alone."""
    print(f"one step, NumPy alone (median and largest of {STEPS})")
    kinds = [("ar", 4.0), ("ar", 400.0), ("lognormal", 4.0), ("spikes", 4.0), ("zipf", 4.0)]
    for layers, m, k in [(58, 256, 16), (58, 256, 64), (58, 256, 1024), (1, 10_000, 2_000)]:
        for kind, scale in kinds:
            path = loads(kind, layers, m, scale)
            for step in (regularized_step, reverse_step):
                play(path[:2], k, step)
            times = [
                1e3 * np.array(play(path, k, step)[0]) for step in (regularized_step, reverse_step)
            ]
            middle = np.median(times, axis=1)
            print(
                f"  {layers:3d} x {m:6d}, k = {k:5d}, {kind:9s} x {scale:5.0f}:"
                f" {middle[0]:6.2f} ms, largest {times[0].max():6.2f} ms; reversed"
                f" {middle[1]:6.2f} ms, largest {times[1].max():6.2f} ms,"
                f" {middle[1] / middle[0]:.2f} of the other"
            )


def against_clarabel():
    """One layer of 256 experts."""
    print("against cvxpy (DPP, compiled once) with Clarabel, one layer of 256 experts;")
    print("  ours is one 58th of the batched step")
    for k in (64, 1024):
        path, solve = loads("ar", 58, 256, 4.0), clarabel(256)
        times, places = play(path, k)
        solve(path[0, 0], np.full(256, k / 256), 2.0)
        theirs, worse = [], []
        for t in range(1, 8):
            r, before, x = path[t, 0], places[t - 1][0], places[t][0]
            took, found = timed(lambda: solve(r, before, 2.0))
            theirs.append(took)
            worse.append(objective(x, r, before, 2.0) / objective(found, r, before, 2.0) - 1)
        ours = np.median(times) / 58
        print(
            f"  k = {k:4d}: Clarabel {1e3 * np.median(theirs):6.1f} ms, ours {1e6 * ours:5.1f} us a"
            f" layer, {np.median(theirs) / ours:6.0f} times faster;"
            f" our objective over theirs - 1: at most {max(worse):.1e}"
        )


def accuracy():
    """Random steps of small layers."""
    print("accuracy on random steps (ties, zeros, vertices, loads over 12 decades)")
    for reverse in (False, True):
        compared(reverse)


def compared(reverse):
    """Objectives of one entropy beside Clarabel's."""
    step = reverse_step if reverse else regularized_step
    rng, solvers = np.random.default_rng(0), {m: clarabel(m, reverse) for m in (2, 4, 8)}
    worst, done, failed = -np.inf, 0, 0
    for turn in range(3000):
        m, k = (2, 4, 8)[turn % 3], int(rng.integers(1, 20))
        smooth, ties = np.exp(2 * rng.normal(size=m)), rng.integers(0, 4, m).astype(float)
        decades = 10 ** rng.uniform(-6, 6, m)
        r = [smooth, ties, decades][rng.integers(3)]
        x = k * (np.eye(m)[0] if rng.random() < 0.2 else rng.dirichlet(np.full(m, 0.5)))
        top = (r / (1 + x)).max()
        if top == 0:
            continue
        r, rho = r / top, 10 ** rng.uniform(-1.5, 1.5) / top
        try:
            theirs = solvers[m](r, x, rho)
        # cvxpy raises when Clarabel gives up
        except Exception:
            failed += 1
            continue
        values = [objective(y, r, x, rho, reverse) for y in (step(r, x, 1.0, rho), theirs)]
        worst = max(worst, values[0] / values[1] - 1)
        done += 1
    name = "reversed: " if reverse else ""
    print(f"  {name}{done} steps: our objective over Clarabel's - 1 is at most {worst:.1e}")
    print(f"  Clarabel failed on {failed}")


def growth():
    """How the time of a step grows."""
    print("growth of one step (slope of log time over a doubling range)")
    ranges = [
        ("m", [(1, 2**a, 2**a // 4) for a in range(9, 16)]),
        ("k", [(58, 256, 2**a) for a in range(4, 13)]),
        ("layers", [(2**a, 256, 64) for a in range(9)]),
    ]
    for name, sizes in ranges:
        at = np.array([dict(zip(("layers", "m", "k"), size))[name] for size in sizes])
        rng = np.random.default_rng(0)
        took = [
            np.median(play(4 * np.exp(rng.normal(size=(6, layers, m))), k)[0])
            for layers, m, k in sizes
        ]
        half = len(at) // 2
        slopes = [np.polyfit(np.log(at[i:]), np.log(took[i:]), 1)[0] for i in (0, half)]
        print(f"  {name:6s} {at[0]}..{at[-1]}: slope {slopes[0]:5.2f}, upper half {slopes[1]:5.2f}")


def run():
    warnings.filterwarnings("ignore", message="Solution may be inaccurate")
    alone()
    against_clarabel()
    accuracy()
    growth()
