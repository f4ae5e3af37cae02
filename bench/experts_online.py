"""The steps of both entropies against each other, and against cvxpy with Clarabel.

Twenty steps of all layers of a model in a row. Clarabel gets one layer of 256 experts of 58, for
eight steps, and is compared by the time for as many as ours does at once; its program is compiled
once, outside the clock.
"""

import warnings

import numpy as np

from bench import Race, row, timed
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
        took, x = timed(lambda: step(r, x), "processor")
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
    """One step, NumPy alone, of both entropies in turn."""
    kinds = [("ar", 4.0), ("ar", 400.0), ("lognormal", 4.0), ("spikes", 4.0), ("zipf", 4.0)]
    both = {"regularised": regularized_step, "our reversed": reverse_step}
    for layers, m, k in [(58, 256, 16), (58, 256, 64), (58, 256, 1024), (1, 10_000, 2_000)]:
        for kind, scale in kinds:
            path = loads(kind, layers, m, scale)
            for step in both.values():
                play(path[:2], k, step)
            start, seconds = np.full(path.shape[1:], k / m), {name: [] for name in both}
            x = dict.fromkeys(both, start)
            for r in path:
                for n, step in both.items():
                    took, x[n] = timed(lambda s=step, at=x[n]: s(r, at), "processor")
                    seconds[n].append(took)
            name = f"{layers} x {m}, k = {k}, {kind} x {scale:g}"
            yield row(name, Race(seconds, {}, "processor"))


def against_clarabel():
    """One layer of 256 experts against the batch of all layers."""
    for k in (64, 1024):
        path, solve = loads("ar", 58, 256, 4.0), clarabel(256)
        play(path[:2], k)
        x, seconds, worse = np.full((58, 256), k / 256), {"ours": [], "cvxpy, Clarabel": []}, []
        solve(path[0, 0], x[0], 2.0)
        for r in path[:8]:
            before = x[0]
            took, x = timed(lambda r=r, x=x: regularized_step(r, x), "processor")
            seconds["ours"].append(took)
            took, found = timed(lambda: solve(r[0], before, 2.0), "processor")
            seconds["cvxpy, Clarabel"].append(took)
            ours, theirs = (objective(y, r[0], before, 2.0) for y in (x[0], found))
            worse.append(ours / theirs - 1)
        name = f"58 x 256, k = {k}, beside Clarabel"
        share, values = {"cvxpy, Clarabel": 1 / 58}, {"ours / theirs - 1, at most": max(worse)}
        yield row(name, Race(seconds, {}, "processor"), share, **values)


def accuracy():
    """Random steps of small layers: ties, zeros, vertices, loads over 12 decades."""
    for reverse in (False, True):
        worst, done, failed = compared(reverse)
        values = {"ours / Clarabel's - 1, at most": worst, "steps": done}
        values["Clarabel failed on"] = failed
        yield row(f"accuracy, {'reversed' if reverse else 'regularised'}", **values)


def compared(reverse):
    """Objectives of one entropy beside Clarabel's: the largest excess, how many steps, failures."""
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
    return worst, done, failed


def growth():
    """How the time of a step grows."""
    ranges = [
        ("m", [(1, 2**a, 2**a // 4) for a in range(9, 16)]),
        ("k", [(58, 256, 2**a) for a in range(4, 13)]),
        ("layers", [(2**a, 256, 64) for a in range(9)]),
    ]
    for name, sizes in ranges:
        rng = np.random.default_rng(0)
        for layers, m, k in sizes:
            took = play(4 * np.exp(rng.normal(size=(6, layers, m))), k)[0]
            size = dict(zip(("layers", "m", "k"), (layers, m, k)))[name]
            case, found = f"growth, {layers} x {m}, k = {k}: {name}", {"ours": took}
            yield row(case, Race(found, {}, "processor"), line=f"one step, {name}", size=size)


def run():
    warnings.filterwarnings("ignore", message="Solution may be inaccurate")
    yield from alone()
    yield from against_clarabel()
    yield from accuracy()
    yield from growth()
