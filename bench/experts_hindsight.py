"""Hindsight at 256 experts, 64 extra GPUs and 100 steps, beside HiGHS on the secant program.

Five synthetic kinds of trace and one real one (four layers of a model side by side as 256 experts),
mean load 25 for each expert, move price 2. The hard case, equal loads with spikes at a mean load of
4, comes last. Gaps are proved: for ours by multipliers that are checked, for the secant program by
HiGHS.
"""

from bench import timed
from serving_or.experts.hindsight import optimum, secant_program
from serving_or.experts.model import Problem
from serving_or.tools.data import load_experts
from serving_or.tools.generators import KINDS, trace

OURS, THEIRS = 15.0, 60.0  # seconds


def problems():
    for kind in KINDS:
        yield f"{kind}, load 25", Problem(trace(kind, 256, 100, 25, seed=1), 64)
    real = load_experts(window=2).loads[:100, 10:14].reshape(100, -1)
    yield "four real layers, load 25", Problem(25 * real / real.mean(), 64)
    yield "spikes, load 4 (hard)", Problem(trace("spikes", 256, 100, 4, seed=1), 64)


def run(ours=OURS, theirs=THEIRS):
    columns = f"{'seconds':>11s} {'cost':>10s} {'gap':>9s}"
    print(f"{'trace':28s} {'level chain':>32s} {'secant program, HiGHS':>32s}")
    print(f"{'':28s} {columns} {columns}")
    for name, problem in problems():
        row = []
        for method, time_limit in ((optimum, ours), (secant_program, theirs)):
            seconds, schedule = timed(lambda: method(problem, time_limit=time_limit))
            row.append(f"{seconds:11.1f} {schedule.cost:10.1f} {schedule.gap:9.3%}")
        print(f"{name:28s} {' '.join(row)}", flush=True)
