"""Maps from old maps: transfers, balance and time of repair, beside rebuilding by the open rule.

``rule`` is greedy counts and greedy packing from the loads alone, as the open balancers have it,
restated in NumPy; ``rule, renamed`` has the GPUs' names by an assignment; ours rebuilds, and
repairs as NumPy and as machine code (Numba). One time for each rebalance of a trace; the transfers
and balances are exact.
"""

import importlib.util

import numpy as np

from bench import Race, row, timed
from serving_or.experts import repair
from serving_or.experts.repair import plan, relabel, transfers
from serving_or.experts.replicas import balancedness, duplicates, rebuild
from serving_or.tools.data import load_experts
from serving_or.tools.generators import generate_experts
from tests.instances import peers_map


def along(loads, gpus, spare, ways):
    """A trace under several ways side by side, each from its own map: transfers (% of the slots),
    both balances, second copies; and seconds of each rebalance.
    """
    at = dict.fromkeys(ways, rebuild(loads[0], gpus, spare).physical)
    rows, seconds = {name: [] for name in ways}, {name: [] for name in ways}
    for now, coming in zip(loads[1:], loads[2:]):
        for name, step in ways.items():
            took, new = timed(lambda: step(now, at[name]), "processor")
            seconds[name].append(took)
            moved = 100 * transfers(at[name], new, gpus).sum() / new.size
            ahead = balancedness(new, coming, gpus)
            here, twice = balancedness(new, now, gpus), duplicates(new, gpus).sum()
            rows[name].append((moved, here, ahead, twice))
            at[name] = new
    words = ("moved %", "balance", "next", "second copies")
    found = {
        f"{name}: {word}": value
        for name, listed in rows.items()
        for word, value in zip(words, np.mean(listed, axis=0))
    }
    return found, seconds


def compared(title, loads, gpus, spare):
    """One trace under all ways to replan."""
    slots = loads.shape[2] + spare

    def rule(w, at):
        return peers_map(w, slots, gpus)

    def repaired(pays, slack=0.02):
        def step(w, at):
            repair._PAYS = pays
            return plan(w, gpus, spare, old=at, slack=slack).physical

        return step

    ways = {
        "ours, 2 %, NumPy": repaired(np.inf),
        "rule": rule,
        "rule, renamed": lambda w, at: relabel(at, rule(w, at), gpus),
        "ours, rebuilt": lambda w, at: rebuild(w, gpus, spare).physical,
    }
    if importlib.util.find_spec("numba"):
        repaired(0)(loads[1], rebuild(loads[0], gpus, spare).physical)
        ways = {"ours, 2 %": repaired(0), **ways, "ours, 5 %": repaired(0, 0.05)}
    layers, experts = loads.shape[1:]
    usual = repair._PAYS
    values, seconds = along(loads, gpus, spare, ways)
    repair._PAYS = usual
    case = f"{title}: {layers} x {experts} on {gpus} GPUs, {slots} slots"
    yield row(case, Race(seconds, {}, "processor"), **values, rebalances=len(loads) - 2)


def fewest():
    """Repair beside the integer program, on small layers with the program's targets."""
    for experts, gpus, slots in [(8, 6, 12), (9, 4, 12), (12, 8, 16)]:
        rng = np.random.default_rng(1)
        before = rng.lognormal(0, 1, (10, experts))
        loads = before * rng.lognormal(0, 0.3, before.shape)
        old, size = rebuild(before, gpus, slots - experts).physical, (gpus, slots - experts)
        for slack in (0.02, 0.05, 0.1):
            exact = plan(loads, *size, old=old, slack=slack, exact=True, time_limit=60)
            base = rebuild(loads, *size)
            task = repair._Task(old, base, exact.targets, None, None, False, False, repair.Clock())
            ends = [hull[-1] for hull in task.frontiers()[1]]
            ok = np.array([p.top for p in ends]) <= exact.targets * (1 + 1e-9)
            moved = np.array([p.moved for p in ends])
            values = {"reached of 10": ok.sum(), "transfers by repair": moved[ok].mean()}
            values["by the program"] = exact.transfers[ok].mean()
            values["at least"] = task.least[ok].mean()
            name = f"{experts} experts, {slots} slots on {gpus} GPUs, slack {slack:.0%}"
            yield row(name, **values)


def run():
    for seed in range(3):
        slow = generate_experts(58, 256, 9, 1_000_000, switch=0, spike=0, seed=seed).loads
        yield from compared(f"slow drift, seed {seed}", slow.astype(float), 32, 32)
    esft = load_experts(window=4).loads.astype(float)
    yield from compared("ESFT", esft, 8, 8)
    yield from compared("ESFT", esft, 16, 16)
    yield from fewest()
