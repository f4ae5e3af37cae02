"""Hindsight at 256 experts, 64 extra GPUs and 100 steps, beside HiGHS on the secant program; and
what branch and bound proves on middle sizes, beside the same.

Five synthetic kinds of trace and one real one (four layers of a model side by side as 256 experts),
mean load 25 for each expert, move price 2. The hard case, equal loads with spikes at a mean load of
4, comes last. Gaps are proved: for ours by multipliers that are checked, or by HiGHS on its
word (``trusted`` is 1); for the secant program by HiGHS. Then glued windows over a thousand steps,
up to 1,024 experts, where the secant program has no answer worth a column.
"""

import numpy as np

from bench import LIMITS, once, percent, row
from serving_or.experts.certificate import run as play
from serving_or.experts.hindsight import optimum, secant_program
from serving_or.experts.level_chain import chain_of
from serving_or.experts.model import Problem
from serving_or.experts.policies import Never
from serving_or.experts.relaxation import relax
from serving_or.tools.data import load_experts
from serving_or.tools.generators import KINDS, trace

# seconds
OURS, THEIRS = (15.0 * LIMITS, 45.0 * LIMITS), 60.0 * LIMITS
LONG = (("ar", 256, 64, 10.0), ("zipf", 256, 64, 10.0), ("ar", 256, 64, 45.0))
LARGEST = (("ar", 1024, 256, 60.0), ("ar", 1024, 256, 180.0))
# seconds for a proof on middle sizes
PROOF = 40.0 * LIMITS


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


def found_by(schedule, who=""):
    "Cost, gap in percent, and whether a bound rests on a solver's word."
    found = {"cost": schedule.cost, "gap %": percent(schedule.cost, schedule.bound)}
    found["trusted"] = float(schedule.trusted)
    return {f"{who}{word}": value for word, value in found.items()}


def large(ours, theirs):
    "Gaps at 256 experts."
    for name, problem in problems():
        took, peer = once(lambda: secant_program(problem, time_limit=theirs))
        beside = found_by(peer, "secant ") | {"secant seconds": took.seconds["ours"][0]}
        for limit in ours:
            took, mine = once(lambda: optimum(problem, time_limit=limit))
            values = {"seconds": took.seconds["ours"][0]} | found_by(mine)
            yield row(f"256 experts, {name}, {limit:g} s", **values, **beside)


def proofs(limit):
    "How long a proof takes, and the gap of the secant program after the same time."
    for name, problem in middle():
        found, ours = once(lambda: optimum(problem, time_limit=limit))
        theirs = secant_program(problem, time_limit=max(found.seconds["ours"][0], 1.0))
        values = found_by(ours) | {"secant gap %": percent(theirs.cost, theirs.bound)}
        values |= {"proved": float(ours.status == "optimal"), "events": chain_of(problem).events}
        yield row(f"a proof within {limit:g} s, {name}", found, **values)


def long(cases, steps=1000):
    "Glued windows over many steps."
    for kind, m, k, most in cases:
        limit = most * LIMITS
        problem = Problem(trace(kind, m, steps, 25, seed=1), k)
        took, schedule = once(lambda: optimum(problem, time_limit=limit))
        name = f"{steps} steps, {kind}, {m} experts, {k} extra, {limit:g} s"
        yield row(name, seconds=took.seconds["ours"][0], **found_by(schedule))


def ten(limits=(1.0, 3.0, 15.0)):
    "Ten instances: is the limit kept, and is the bound ever below the relaxation or certificate?"
    made = [(kind, m, k, T) for kind in KINDS for m, k, T in ((64, 64, 60), (128, 32, 100))]
    traces = [Problem(trace(kind, m, T, 25, seed=2), k) for kind, m, k, T in made]
    others = [(relax(p).bound, play(p, Never()).bound) for p in traces]
    for limit in limits:
        found = [once(lambda: optimum(p, time_limit=limit)) for p in traces]
        ratios = np.array([[s.bound / a, s.bound / b] for (_, s), (a, b) in zip(found, others)])
        gaps = [percent(s.cost, s.bound) for _, s in found]
        values = {
            "most seconds": max(each.seconds["ours"][0] for each, _ in found),
            "least bound / relaxation": ratios[:, 0].min(),
            "least bound / certificate": ratios[:, 1].min(),
            "least gap %": min(gaps),
            "largest gap %": max(gaps),
        }
        yield row(f"ten instances, {limit:g} s", **values)


def limits():
    "What is kept of a short limit, and the bounds of others that take their time."
    for kind in KINDS:
        problem = Problem(trace(kind, 64, 60, 25, seed=1), 64)
        whole, values = relax(problem).bound, {}
        for limit in (0.0, 1.0, 2.0, 3.0):
            took, found = once(lambda: optimum(problem, time_limit=limit))
            values[f"seconds of {limit:g}"] = took.seconds["ours"][0]
            values[f"bound / relaxation, {limit:g} s"] = found.bound / whole
        took, played = once(lambda: play(problem, Never()))
        values["seconds of the certificate"] = took.seconds["ours"][0]
        values["certificate / relaxation"] = played.bound / whole
        yield row(f"short limits, 64 experts, {kind}", **values)


def largest():
    "Short limits at the largest size; the bound is divided by that of the whole certificate."
    for kind in KINDS:
        problem, values = Problem(trace(kind, 1024, 200, 25, seed=1), 256), {}
        whole = play(problem, Never()).bound
        for limit in (0.0, 2.0, 10.0):
            took, found = once(lambda: optimum(problem, time_limit=limit))
            values[f"seconds of {limit:g}"] = took.seconds["ours"][0]
            values[f"bound / certificate, {limit:g} s"] = found.bound / whole
            values[f"cost / bound, {limit:g} s"] = found.ratio
        yield row(f"short limits, 1,024 experts, {kind}", **values)


def run(ours=OURS, theirs=THEIRS, proof=PROOF, cases=LONG + LARGEST):
    yield from large(ours, theirs)
    yield from proofs(proof)
    yield from long(cases)
    yield from ten()
    yield from limits()
    yield from largest()
