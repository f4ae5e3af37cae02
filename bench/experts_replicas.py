"""Maps of replicas from scratch, beside the open balancers' rules restated here in NumPy.

``loops`` is the rule as it was published (greedy counts, greedy packing, layer by layer);
``counts at once`` has the counts of all layers in one array, as an engine's port has; ``snake``
deals the sorted copies to and fro, as the fastest port does. ``over`` is the largest over the mean
load of a GPU, the mean of all layers; ``twice`` counts second copies on a GPU.
"""

import numpy as np

from bench import race, row
from serving_or.experts.replicas import duplicates, gpu_loads, rebuild, replica_counts
from tests.instances import MAP_SHAPES, greedy_counts, peers_map, zipf_layers


def loops(loads, slots, gpus):
    """Counts and packing by loops over layers and slots."""
    maps = []
    for w in loads.tolist():
        counts = [1] * len(w)
        for _ in range(slots - len(w)):
            counts[max(range(len(w)), key=lambda e: w[e] / counts[e])] += 1
        copies = [(w[e] / c, e) for e, c in enumerate(counts) for _ in range(c)]
        held, load = [[] for _ in range(gpus)], [0.0] * gpus
        for share, e in sorted(copies, key=lambda copy: -copy[0]):
            gpu = min(
                (g for g in range(gpus) if len(held[g]) < slots // gpus), key=load.__getitem__
            )
            held[gpu].append(e)
            load[gpu] += share
        maps.append([e for experts in held for e in experts])
    return np.array(maps)


def snake(loads, slots, gpus):
    """Counts at once; the sorted copies go to GPUs 0, 1, ..., D - 1, D - 1, ..., 1, 0, 0, ..."""
    counts = greedy_counts(loads, slots)
    order = np.argsort(-loads / counts, axis=1, kind="stable")
    times = np.take_along_axis(counts, order, axis=1)
    copies = np.repeat(order.ravel(), times.ravel()).reshape(len(loads), slots // gpus, gpus)
    copies[:, 1::2] = copies[:, 1::2, ::-1]
    return copies.transpose(0, 2, 1).reshape(len(loads), slots)


def counts_alone():
    """The counts, one more copy at a time and by the threshold."""
    for layers, m, slots in [(58, 256, 288), (58, 256, 2048), (1, 10_000, 20_000)]:
        loads = zipf_layers(layers, m)
        calls = {
            "threshold": lambda: replica_counts(loads, slots),
            "one more copy at a time": lambda: greedy_counts(loads, slots),
        }
        found = race(calls)
        mine, theirs = found.answers.values()
        assert (theirs == mine).all()
        yield row(f"counts, {layers} x {m}, {slots} slots", found)


def from_scratch():
    """One plan, policy global, and hierarchical where there are groups."""
    for layers, m, slots, gpus, nodes, groups in MAP_SHAPES:
        loads, k = zipf_layers(layers, m), slots - m
        calls = {
            "ours": lambda: rebuild(loads, gpus, k),
            "loops": lambda: loops(loads, slots, gpus),
            "counts at once": lambda: peers_map(loads, slots, gpus),
            "snake": lambda: snake(loads, slots, gpus),
        }
        if groups > 1:
            at = (nodes, groups)
            calls["whole groups"] = lambda: peers_map(loads, slots, gpus, *at)
            calls["ours, whole groups"] = lambda: rebuild(loads, gpus, k, *at, "hierarchical")
        found, values = race(calls, 5, True, "processor", 10.0), {}
        for name, answer in found.answers.items():
            plan = answer if name.startswith("ours") else None
            physical = answer if plan is None else plan.physical
            on = gpu_loads(physical, loads, gpus)
            values[f"{name}: over"] = (on.max(axis=1) / on.mean(axis=1)).mean()
            values[f"{name}: twice"] = duplicates(physical, gpus).sum()
            if plan is not None:
                values[f"{name}: bound"] = (plan.bounds / on.mean(axis=1)).mean()
        yield row(f"{layers} x {m}, {slots} slots on {gpus} GPUs", found, **values)


def run():
    yield from counts_alone()
    yield from from_scratch()
