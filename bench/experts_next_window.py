"""Backtests of a whole trace: what each policy takes for a window, beside the engines' rule
restated in plain NumPy, and what it sends and is served. Times are those of a window.
"""

import numpy as np

from bench import race, row
from serving_or.experts.next_window import (
    Keep,
    Rebuild,
    Relabelled,
    Repair,
    arrivals,
    backtest,
    cautious,
    engine_map,
    fewest_transfers,
    shuffled_tasks,
)
from serving_or.experts.predictions import ewma
from serving_or.experts.replicas import counts_of, rebuild
from serving_or.tools.data import load_experts
from serving_or.tools.generators import generate_experts


class Ours(Rebuild):
    "A rebuild by our own packing, from nothing."

    def place(self, loads):
        return rebuild(loads, self.gpus, self.map.shape[1] - self.experts).physical


def policies():
    """Name to maker; the engines' rule is the peer."""
    return {
        "keep": Keep,
        "engines' rule": Rebuild,
        "engines' rule, relabelled": Relabelled,
        "our rebuild": Ours,
        "repair, 0 %": lambda: Repair(0.0),
        "repair, 2 %": Repair,
        "repair, EWMA, 2 %": lambda: Repair(0.02, ewma(0.5)),
        "repair, EWMA, 5 %": lambda: Repair(0.05, ewma(0.5)),
    }


def rows(name, trace, gpus, redundant):
    """Transfers, balances, and the time of a window of each policy, repair with 2 % first."""
    makers, first = policies(), "repair, 2 %"
    # what is compiled is compiled before
    backtest(trace[:3], gpus, redundant, policies=[makers[first]()])
    makers = {first: makers.pop(first), **makers}
    calls = {
        n if n in (first, "engines' rule") else f"our {n}".replace("our our", "our"): (
            lambda make=make: backtest(trace, gpus, redundant, policies=[make()])
        )
        for n, make in makers.items()
    }
    found, values = race(calls, 3, False, "processor", 30.0), {}
    for run, word in zip(found.answers.values(), makers):
        values[f"{word}: transfers %"] = 100 * run.moved.mean()
        values[f"{word}: in window"] = run.in_window.mean()
        values[f"{word}: next window"] = run.next_window.mean()
    windows = next(iter(found.answers.values())).rebalances
    case = f"{name}, {gpus} GPUs, {redundant} spare slots, one window"
    yield row(case, found, dict.fromkeys(calls, windows), **values)


def over_seeds(name, traces, gpus):
    """Means over traces, and the next window less that of the engines' rule."""
    makers = policies() | {
        "engines' rule, EWMA": lambda: Rebuild(ewma(0.5)),
        "engines' rule, cautious": lambda: Rebuild(cautious(1.0, 8)),
        "repair, 5 %": lambda: Repair(0.05),
    }
    tests = [
        backtest(trace, gpus, gpus, policies={n: make() for n, make in makers.items()})
        for trace in traces
    ]
    served = np.array([test.next_window.mean(axis=1) for test in tests])
    sent = 100 * np.array([test.moved.mean(axis=1) for test in tests]).mean(axis=0)
    less = served - served[:, [list(makers).index("engines' rule")]]
    error = less.std(axis=0, ddof=1) / len(tests) ** 0.5
    for i, policy in enumerate(makers):
        values = {"transfers %": sent[i], "next window": served[:, i].mean()}
        values |= {"less the rule": less[:, i].mean(), "error of it": error[i]}
        yield row(f"{name}, {gpus} GPUs: {policy}", **values, traces=len(tests))


def one_per_gpu():
    """58 x 256 -> 320, one slot on each GPU: transfers of repair and the closed form."""
    trace = generate_experts(58, 256, 4, 200_000, noise=0.2, seed=1).loads.astype(float)
    for slack in (0.0, 0.01, 0.02, 0.05, 0.1):
        policy, sent, least = Repair(slack), 0, 0
        policy.start(engine_map(trace[0], 320, 320), 320, 256)
        for loads in trace[1:]:
            before = policy.map
            sent += sum(a.sum() for a in arrivals(before, policy.step(loads), 256, 320))
            least += fewest_transfers(loads, counts_of(before, 256), slack).sum()
        values = {"transfers": sent, "closed form": least}
        yield row(f"one on each of 320 GPUs, slack {slack:.0%}", **values)


def run():
    """ESFT whole on 8 and 16 GPUs; generated loads at the size of DeepSeek-V3."""
    esft = load_experts(window=4).loads
    yield from rows("ESFT, 26 x 64", esft, 8, 8)
    yield from rows("ESFT, 26 x 64", esft, 16, 16)
    made = generate_experts(58, 256, 9, 1_000_000, noise=0.2, seed=1).loads
    yield from rows("generated, 58 x 256", made, 32, 32)
    orders = [shuffled_tasks(seed) for seed in range(5)]
    for gpus in (8, 16):
        yield from over_seeds("ESFT, tasks and sequences shuffled", orders, gpus)
    fast = [generate_experts(4, 64, 31, 50_000, noise=0.5, switch=0.05, seed=s) for s in range(20)]
    yield from over_seeds("fast drift, 4 x 64", [one.loads for one in fast], 8)
    yield from one_per_gpu()
