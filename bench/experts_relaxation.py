"""The relaxation over a whole horizon: growing linear program (HiGHS) against the convex program as it is written (cvxpy, Clarabel); growth with T, m and k."""

import time

import numpy as np

from serving_or.experts.model import Problem
from serving_or.experts.relaxation import relax
from serving_or.tools.data import load_experts
from serving_or.tools.generators import trace


def timed(problem, method="cuts"):
    start = time.perf_counter()
    answer = relax(problem, method)
    return time.perf_counter() - start, answer


def run():
    timed(Problem(trace("ar", 4, 4, 4.0), 4))
    timed(Problem(trace("ar", 4, 4, 4.0), 4), "cvxpy")
    real = load_experts(window=4, layer=12).loads
    cases = [
        ("ar 60 x 16, k = 16", Problem(trace("ar", 16, 60, 25.0), 16)),
        ("ar 60 x 64, k = 64", Problem(trace("ar", 64, 60, 25.0), 64)),
        ("ar 60 x 256, k = 64", Problem(trace("ar", 256, 60, 25.0), 64)),
        ("spikes 60 x 64, k = 64", Problem(trace("spikes", 64, 60, 25.0), 64)),
        ("one real layer 52 x 64, k = 16", Problem(4 * real / real.mean(), 16)),
    ]
    for name, problem in cases:
        (ours, one), (theirs, two) = timed(problem), timed(problem, "cvxpy")
        print(
            f"  {name:31s} cuts {ours:6.2f} s (gap {one.gap:.0e}), cvxpy {theirs:6.2f} s (gap {two.gap:.0e}), ratio {theirs / ours:5.2f},"
            f" values differ by {abs(one.value / two.value - 1):.0e}"
        )
    print("growth of the cuts (slope of log time)")
    grids = {
        "T": [(T, 32, 16) for T in (15, 30, 60, 120)],
        "m": [(30, m, 16) for m in (16, 32, 64, 128, 256)],
        "k": [(30, 64, k) for k in (8, 16, 32, 64, 128)],
    }
    for number, (name, sizes) in enumerate(grids.items()):
        took = [
            np.median([timed(Problem(trace("ar", m, T, 25.0, seed), k))[0] for seed in range(3)])
            for T, m, k in sizes
        ]
        at = [size[number] for size in sizes]
        print(
            f"  {name} {at[0]}..{at[-1]}: slope {np.polyfit(np.log(at), np.log(took), 1)[0]:5.2f}  ({', '.join(f'{t:.2f}' for t in took)} s)"
        )
