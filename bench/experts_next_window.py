"""Backtests of a whole trace: what each policy takes for a window, beside the engines' rule
restated in plain NumPy, and what it sends and is served.
"""

import time

from serving_or.experts.next_window import (
    Keep,
    Rebuild,
    Relabelled,
    Repair,
    backtest,
)
from serving_or.experts.predictions import ewma
from serving_or.experts.replicas import rebuild
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


def run():
    """ESFT whole on 8 and 16 GPUs; generated loads at the size of DeepSeek-V3."""
    esft = load_experts(window=4).loads
    rows("ESFT, 26 x 64", esft, 8, 8)
    rows("ESFT, 26 x 64", esft, 16, 16)
    made = generate_experts(58, 256, 9, 1_000_000, noise=0.2, seed=1).loads
    rows("generated, 58 x 256", made, 32, 32)
