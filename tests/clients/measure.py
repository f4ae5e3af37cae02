"""Planners of the engines beside ours: time of a plan, balance, copies on one card, transfers.

``python -m tests.clients.measure``, with ``SERVING_OR_ENGINES`` as in `engines`. One process, one
thread, processor time, best of three. The chapter on the engines' files prints one run.
"""

import time
import types
import warnings
from datetime import date

import numpy as np
import torch

from serving_or.experts.repair import plan, transfers
from serving_or.experts.replicas import balancedness, duplicates, gpu_loads, rebuild
from serving_or.tools.data import load_experts
from tests.clients import engines
from tests.instances import zipf_layers

DIE_PER_HOST = 16


def best(call, repeats=3):
    """Least processor time of a call in milliseconds, and its answer."""
    times = []
    for _ in range(repeats):
        began = time.process_time()
        answer = call()
        times.append(time.process_time() - began)
    return 1e3 * min(times), answer


def tensors(function):
    """A map (layers, n) from an engine's function of tensors."""

    def call(loads, n, gpus, groups, nodes, old):
        made = function(torch.tensor(loads), n, gpus, groups, nodes, old)
        return (made if isinstance(made, torch.Tensor) else made[0]).numpy()

    return call


def vllm(loads, n, gpus, groups, nodes, old):
    policy = engines.load("vllm.distributed.eplb.policy").DefaultEplbPolicy
    old = None if old is None else torch.tensor(old)
    return policy.rebalance_experts(loads, n, groups, nodes, gpus, old)


def sglang(loads, n, gpus, groups, nodes, old):
    rule = engines.load("sglang.srt.eplb.eplb_algorithms.deepseek")
    return rule.rebalance_experts(loads, n, groups, nodes, gpus, nodes > 1)


def sglang_vec(loads, n, gpus, groups, nodes, old):
    rule = engines.load("sglang.srt.eplb.eplb_algorithms.deepseek_vec")
    return rule.rebalance_experts(loads[None], n, n // gpus, groups, nodes, nodes > 1)


FROM_NOTHING = {
    "vLLM default": tensors(vllm),
    "SGLang deepseek": tensors(sglang),
    "SGLang deepseek_vec": tensors(sglang_vec),
    "ours, rebuild": lambda loads, n, gpus, groups, nodes, old: (
        rebuild(
            loads,
            gpus,
            n - loads.shape[1],
            nodes,
            groups,
            "hierarchical" if nodes > 1 else "global",
        ).physical
    ),
}


def one_plan():
    """A plan of 58 layers of 256 experts in 288 slots on 32 GPUs."""
    loads = zipf_layers(58, 256)
    for title, nodes, groups in (("hierarchical", 4, 8), ("global", 1, 1)):
        print(f"\n58 x 256 -> 288 on 32 GPUs, {title}: ms, mean over layers of max/mean, doubles")
        for name, call in FROM_NOTHING.items():
            took, made = best(lambda: call(loads, 288, 32, groups, nodes, None))
            load = gpu_loads(made, loads, 32)
            share = (load.max(axis=1) / load.mean(axis=1)).mean()
            print(f"{name:22} {took:8.1f} {share:8.4f} {duplicates(made, 32).sum():6d}")


class Ascend:
    """A policy of vLLM-Ascend: it sees the loads of slots, spread evenly over copies."""

    def __init__(self, module, name, gpus):
        torch.npu = types.SimpleNamespace(device_count=lambda: DIE_PER_HOST)
        rule = engines.load(f"vllm_ascend.eplb.core.policy.{module}")
        # the number of cards decides the thresholds of one policy
        rule.get_dynamic_eplb_group = lambda: types.SimpleNamespace(world_size=gpus)
        self.policy, self.gpus = getattr(rule, name)(), gpus
        self.stages = "flash" in module

    def __call__(self, loads, old):
        layers, m = loads.shape
        at = np.arange(layers)[:, None]
        counts = np.stack([np.bincount(row, minlength=m) for row in old])
        slots = (loads / counts)[at, old].reshape(layers, self.gpus, -1)
        table = torch.tensor(old.reshape(slots.shape))
        work = torch.tensor(slots[None] if self.stages else slots)
        _, _, made = self.policy.rebalance_experts(table, work)
        return np.array(made).reshape(layers, -1)


def policies(n, gpus, m):
    """Name to a function of loads and the old map."""
    return {
        "keep": lambda loads, old: old,
        **{
            name: lambda loads, old, call=call: call(loads, n, gpus, 1, 1, old)
            for name, call in FROM_NOTHING.items()
        },
        "Ascend default": Ascend("policy_default_eplb", "DefaultEplb", gpus),
        "Ascend SwiftBalancer": Ascend("policy_swift_balancer", "SwiftBalanceEplb", gpus),
        "Ascend FlashLB": Ascend("policy_flashlb", "FlashLB", gpus),
        "ours, repair": lambda loads, old: plan(loads, gpus, n - m, old=old).physical,
    }


def windows(gpus, n):
    """Plan on a window of four sequences, score on the next; tasks in order, as ESFT has them."""
    trace = load_experts(window=4).loads.astype(float)
    layers, m = trace.shape[1:]
    start = np.tile(np.arange(n) % m, (layers, 1))
    print(f"\n{layers} x {m} -> {n} on {gpus} GPUs, {len(trace)} windows:")
    print("transfers (% of slots), balance on the next window, ms a plan, doubles a plan")
    for name, call in policies(n, gpus, m).items():
        # the first plan starts from the engine's own map, and compiles what is compiled
        first = rebuild(trace[0], gpus, n - m).physical
        old = first if name == "keep" else call(trace[0], start)
        if name.startswith("ours"):
            call(trace[1], old)
        moved, scores, took, twice = [], [], 0.0, 0
        for now, after in zip(trace[1:], trace[2:]):
            began = time.process_time()
            new = call(now, old)
            took += time.process_time() - began
            moved.append(transfers(old, new, gpus).sum() / (layers * n))
            scores.append(balancedness(new, after, gpus))
            twice += duplicates(new, gpus).sum()
            old = new
        steps = len(moved)
        print(
            f"{name:22} {100 * np.mean(moved):6.1f} {np.mean(scores):7.4f}"
            f" {1e3 * took / steps:7.1f} {twice / steps:6.1f}"
        )


def main():
    """Both tables."""
    assert engines.ready(), "SERVING_OR_ENGINES names no folder"
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(f"{date.today()}, torch {torch.__version__}, numpy {np.__version__}")
    one_plan()
    windows(8, 72)
    windows(16, 80)


if __name__ == "__main__":
    main()
