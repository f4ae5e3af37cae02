"""Backtests of a whole trace: what each policy takes for a window, beside the engines' rule
restated in plain NumPy, and what it sends and is served.
"""

import time

import numpy as np

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
    ranges,
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
    """A row for each policy: transfers, balances, processor time of a window, and its ratio."""
    print(f"{name}, {gpus} GPUs, {redundant} spare slots; ms of processor time a window")
    peer = None
    for policy, make in policies().items():
        # what is compiled is compiled before
        backtest(trace[:3], gpus, redundant, policies=[make()])
        began = time.process_time()
        run = backtest(trace, gpus, redundant, policies=[make()])
        took = 1e3 * (time.process_time() - began) / run.rebalances
        peer = took if policy == "engines' rule" else peer
        beside = f"{took / peer:6.2f} x" if peer else "       -"
        sent, own = 100 * run.moved.mean(), run.in_window.mean()
        served = f"in-window {own:.4f}  next {run.next_window.mean():.4f}"
        print(f"  {policy:26s} transfers {sent:5.1f} %  {served}  {took:7.1f} ms {beside}")


def over_seeds(name, traces, gpus):
    """Mean and range over traces, and the next window less that of the engines' rule."""
    makers = policies() | {
        "engines' rule, EWMA": lambda: Rebuild(ewma(0.5)),
        "engines' rule, cautious": lambda: Rebuild(cautious(1.0, 8)),
        "repair, 5 %": lambda: Repair(0.05),
    }
    tests = [
        backtest(trace, gpus, gpus, policies={n: make() for n, make in makers.items()})
        for trace in traces
    ]
    table = ranges(tests)[["transfers %", "next window"]]
    served = np.array([test.next_window.mean(axis=1) for test in tests])
    less = served - served[:, [list(makers).index("engines' rule")]]
    table["less the rule"] = less.mean(axis=0)
    table["error of it"] = less.std(axis=0, ddof=1) / len(tests) ** 0.5
    print(f"{name}, {gpus} GPUs, {len(tests)} traces")
    print(table.round(4).to_string())


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
        print(f"one on each of 320 GPUs, slack {slack:.0%}: {sent} transfers, closed form {least}")


def run():
    """ESFT whole on 8 and 16 GPUs; generated loads at the size of DeepSeek-V3."""
    esft = load_experts(window=4).loads
    rows("ESFT, 26 x 64", esft, 8, 8)
    rows("ESFT, 26 x 64", esft, 16, 16)
    made = generate_experts(58, 256, 9, 1_000_000, noise=0.2, seed=1).loads
    rows("generated, 58 x 256", made, 32, 32)
    orders = [shuffled_tasks(seed) for seed in range(5)]
    for gpus in (8, 16):
        over_seeds("ESFT, tasks and sequences shuffled", orders, gpus)
    fast = [generate_experts(4, 64, 31, 50_000, noise=0.5, switch=0.05, seed=s) for s in range(20)]
    over_seeds("fast drift, 4 x 64", [one.loads for one in fast], 8)
    one_per_gpu()
