"""The relaxation of a whole horizon: the interior point method against the convex program as
it is written (cvxpy, Clarabel), and as a program in speeds; growth with T, m and k, each of three
seeds a round.
"""

import numpy as np

from bench import Race, race, row
from serving_or.experts.model import Problem
from serving_or.experts.relaxation import relax
from serving_or.tools.data import load_experts
from serving_or.tools.generators import trace


def cases():
    "Name and problem: generated loads, and one real layer."
    real = load_experts(window=4, layer=12).loads
    yield "ar 15 x 8, k = 8", Problem(trace("ar", 8, 15, 25.0), 8)
    yield "ar 30 x 32, k = 16", Problem(trace("ar", 32, 30, 25.0), 16)
    yield "ar 60 x 16, k = 16", Problem(trace("ar", 16, 60, 25.0), 16)
    yield "ar 60 x 64, k = 64", Problem(trace("ar", 64, 60, 25.0), 64)
    yield "ar 4 x 4, k = 4", Problem(trace("ar", 4, 4, 25.0), 4)
    yield "ar 120 x 256, k = 64", Problem(trace("ar", 256, 120, 25.0), 64)
    yield "ar 60 x 256, k = 64", Problem(trace("ar", 256, 60, 25.0), 64)
    yield "spikes 60 x 64, k = 64", Problem(trace("spikes", 64, 60, 25.0), 64)
    yield "one real layer 52 x 64, k = 16", Problem(4 * real / real.mean(), 16)


# sizes T, m, k of which one grows
GRIDS = {
    "T": [(T, 32, 16) for T in (15, 30, 60, 120)],
    "m": [(30, m, 16) for m in (16, 32, 64, 128, 256)],
    "k": [(30, 64, k) for k in (8, 16, 32, 64, 128)],
}


def as_written(p):
    "The program with its T m curves, as the chapter states it first (cvxpy, Clarabel)."
    import cvxpy as cp

    unit = max(float(np.max(p.loads)), 1.0)
    x, y = cp.Variable(p.loads.shape, nonneg=True), cp.Variable(p.loads.shape, nonneg=True)
    f = cp.max(cp.multiply(p.loads / unit, cp.inv_pos(1 + x)), axis=1)
    rows = [y >= x - cp.vstack([p.start[None], x[:-1]]), cp.sum(x, axis=1) == p.extra]
    program = cp.Problem(cp.Minimize(cp.sum(f) + p.move_price / unit * cp.sum(y)), rows)
    return program.solve(solver=cp.CLARABEL) * unit


def compare():
    "Ours, cvxpy with speeds, and cvxpy as the program is written, on each case."
    for name, p in cases():
        calls = {
            "interior point": lambda: relax(p),
            "cvxpy with speeds": lambda: relax(p, "cvxpy"),
            "cvxpy as written": lambda: as_written(p),
        }
        found = race(calls, 3, False, "wall", 10.0)
        one, two, value = found.answers.values()
        differ = max(abs(one.value / v - 1) for v in (two.value, value))
        yield row(name, found, **{"gap %": 100 * one.gap, "values differ by": differ})


def growth():
    "Time over size, of which one grows."
    for column, (name, sizes) in enumerate(GRIDS.items()):
        for T, m, k in sizes:
            problems = [Problem(trace("ar", m, T, 25.0, seed), k) for seed in range(3)]
            rounds = [race({"ours": lambda p=p: relax(p)}, 1, False) for p in problems]
            found = Race({"ours": [r.seconds["ours"][0] for r in rounds]}, {}, "processor")
            size = (T, m, k)[column]
            yield row(f"growth, T = {T}, m = {m}, k = {k}: {name}", found, line=name, size=size)


def run():
    # both solvers are loaded before the first measurement
    small = Problem(trace("ar", 4, 4, 4.0), 4)
    relax(small), relax(small, "cvxpy"), as_written(small)
    yield from compare()
    yield from growth()
