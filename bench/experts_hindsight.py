"""Hindsight at 256 experts, 64 extra GPUs and 100 steps, beside HiGHS on the secant program; and
what branch and bound proves on middle sizes, beside the same.

Five synthetic kinds of trace and one real one (four layers of a model side by side as 256 experts),
mean load 25 for each expert, move price 2. The hard case, equal loads with spikes at a mean load of
4, comes last. Gaps are proved: for ours by multipliers that are checked, or, with a star, by HiGHS
on its word; for the secant program by HiGHS. Then glued windows over a thousand steps, up to 1,024
experts, where the secant program has no answer worth a column.
"""

import numpy as np

from bench import percent, timed
from serving_or.experts.certificate import run as play
from serving_or.experts.hindsight import optimum, secant_program
from serving_or.experts.level_chain import chain_of
from serving_or.experts.model import Problem
from serving_or.experts.policies import Never
from serving_or.experts.relaxation import relax
from serving_or.tools.data import load_experts
from serving_or.tools.generators import KINDS, trace

OURS, THEIRS = (15.0, 45.0), 60.0  # seconds
LONG = (("ar", 256, 64, 10.0), ("zipf", 256, 64, 10.0), ("ar", 256, 64, 45.0))
LARGEST = (("ar", 1024, 256, 60.0), ("ar", 1024, 256, 180.0))
PROOF = 40.0  # seconds for a proof on middle sizes


def problems():
    for kind in KINDS:
        yield f"{kind}, load 25", Problem(trace(kind, 256, 100, 25, seed=1), 64)
    real = load_experts(window=2).loads[:100, 10:14].reshape(100, -1)
    yield "four real layers, load 25", Problem(25 * real / real.mean(), 64)
    yield "spikes, load 4 (hard)", Problem(trace("spikes", 256, 100, 4, seed=1), 64)


def middle():
    "The examples of the chapter, and 64 experts over 60 steps with 32 extra GPUs."
    walk = np.exp(np.cumsum(np.random.default_rng(1).normal(0, 0.3, (50, 64)), axis=0))
    yield "drift (chapter)", Problem(walk / walk.mean() * 25, 32)
    spikes = np.random.default_rng(2).random((60, 192)) < 0.05
    yield "192 experts (chapter)", Problem(np.where(spikes, 27.0, 2.7), 48)
    for kind in KINDS:
        yield f"{kind}, load 25", Problem(trace(kind, 64, 60, 25, seed=1), 32)


def row_of(seconds, schedule):
    "Seconds, cost and gap."
    star = "*" if schedule.trusted else " "
    return f"{seconds:7.1f} {schedule.cost:10.1f} {schedule.gap:8.3%}{star}"


def large(ours, theirs):
    "Gaps at 256 experts."
    columns = f"{'seconds':>7s} {'cost':>10s} {'gap':>8s} "
    head = [f"ours, {limit:g} s" for limit in ours] + ["secant program, HiGHS"]
    print(f"{'trace':28s} " + " ".join(f"{name:>28s}" for name in head))
    print(f"{'':28s} " + " ".join([columns] * len(head)))
    for name, problem in problems():
        calls = [(optimum, limit) for limit in ours] + [(secant_program, theirs)]
        row = []
        for method, time_limit in calls:
            row.append(row_of(*timed(lambda: method(problem, time_limit=time_limit))))
        print(f"{name:28s} {' '.join(row)}", flush=True)


def long(cases, steps=1000):
    "Glued windows over many steps."
    print(f"\n{steps} steps: {'seconds':>7s} {'cost':>10s} {'gap':>8s}")
    for kind, m, k, limit in cases:
        problem = Problem(trace(kind, m, steps, 25, seed=1), k)
        found = timed(lambda: optimum(problem, time_limit=limit))
        print(f"{kind:6s} {m:5d} {k:4d} {limit:4g} s {row_of(*found)}", flush=True)


def ten(limits=(1.0, 3.0, 15.0)):
    "Ten instances: is the limit kept, and is the bound ever below the relaxation or certificate?"
    print("\nten instances: limit, most seconds, least bound / relaxation, / certificate, gap")
    made = [(kind, m, k, T) for kind in KINDS for m, k, T in ((64, 64, 60), (128, 32, 100))]
    traces = [Problem(trace(kind, m, T, 25, seed=2), k) for kind, m, k, T in made]
    others = [(relax(p).bound, play(p, Never()).bound) for p in traces]
    for limit in limits:
        found = [timed(lambda: optimum(p, time_limit=limit)) for p in traces]
        ratios = np.array([[s.bound / a, s.bound / b] for (_, s), (a, b) in zip(found, others)])
        gaps = [s.gap for _, s in found]
        least = " ".join(f"{r:.3f}" for r in ratios.min(axis=0))
        most = max(seconds for seconds, _ in found)
        print(f"{limit:5g} s {most:7.2f} s {least} {min(gaps):.3%} to {max(gaps):.3%}", flush=True)


def proofs(limit):
    "How long a proof takes, and the gap of the secant program after the same time."
    print(f"\nproofs within {limit:g} s; gaps in percent")
    print(
        f"{'trace':24s} {'events':>7s} {'seconds':>8s} {'status':>11s} {'gap':>7s} {'secant':>7s}"
    )
    for name, problem in middle():
        seconds, ours = timed(lambda: optimum(problem, time_limit=limit))
        theirs = secant_program(problem, time_limit=max(seconds, 1.0))
        row = f"{name:24s} {chain_of(problem).events:7d} {seconds:8.1f} {ours.status:>11s}"
        mine, other = percent(ours.cost, ours.bound), percent(theirs.cost, theirs.bound)
        print(f"{row} {mine:>7s} {other:>7s}", flush=True)


def limits():
    "What is kept of a short limit, and the bounds of others that take their time."
    print("\n64 experts, 64 extra GPUs, 60 steps: bound / bound of the relaxation")
    for kind in KINDS:
        problem, row = Problem(trace(kind, 64, 60, 25, seed=1), 64), []
        whole = relax(problem).bound
        for limit in (0.0, 1.0, 2.0, 3.0):
            seconds, found = timed(lambda: optimum(problem, time_limit=limit))
            row.append(f"{limit:g} s ({seconds:.2f} s): {found.bound / whole:.3f}")
        seconds, played = timed(lambda: play(problem, Never()))
        row.append(f"certificate ({seconds:.2f} s): {played.bound / whole:.3f}")
        print(f"{kind:10s} {', '.join(row)}", flush=True)


def largest():
    "Short limits at the largest size; the bound is divided by that of the whole certificate."
    print("\n1,024 experts, 256 extra GPUs, 200 steps: seconds, bound / certificate, cost / bound")
    for kind in KINDS:
        problem, row = Problem(trace(kind, 1024, 200, 25, seed=1), 256), []
        whole = play(problem, Never()).bound
        for limit in (0.0, 2.0, 10.0):
            seconds, found = timed(lambda: optimum(problem, time_limit=limit))
            part = f"{found.bound / whole:.3f}, {found.ratio:.2f}"
            row.append(f"{limit:g} s ({seconds:.2f} s): {part}")
        print(f"{kind:10s} {'; '.join(row)}", flush=True)


def run(ours=OURS, theirs=THEIRS, proof=PROOF, cases=LONG + LARGEST):
    large(ours, theirs)
    proofs(proof)
    long(cases)
    ten()
    limits()
    largest()
