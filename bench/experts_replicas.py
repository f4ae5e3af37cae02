"""Maps of replicas from scratch, beside the open balancers' rules restated here in NumPy.

``loops`` is the rule as it was published (greedy counts, greedy packing, layer by layer);
``counts at once`` has the counts of all layers in one array, as an engine's port has; ``snake``
deals the sorted copies to and fro, as the fastest port does. Ours beside them, in processor time.
"""

import time

import numpy as np

from serving_or.experts.replicas import duplicates, gpu_loads, rebuild, replica_counts
from tests.instances import MAP_SHAPES, greedy_counts, peers_map, zipf_layers


def spent(call, repeats=7, most=3.0):
    """Median processor time of a call in milliseconds, and its answer."""
    answer, times = call(), []
    while len(times) < repeats and sum(times) < most:
        began = time.process_time()
        answer = call()
        times.append(time.process_time() - began)
    return 1e3 * float(np.median(times)), answer


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
    print("counts (ms): one more copy at a time, threshold")
    for layers, m, slots in [(58, 256, 288), (58, 256, 2048), (1, 10_000, 20_000)]:
        loads = zipf_layers(layers, m)
        one, theirs = spent(lambda: greedy_counts(loads, slots))
        two, mine = spent(lambda: replica_counts(loads, slots))
        assert (theirs == mine).all()
        print(
            f"  {layers:2d} x {m:6d} -> {slots:6d}: {one:8.2f} {two:6.2f}, ratio {one / two:5.1f}"
        )


def from_scratch():
    """One plan, policy global, and hierarchical where there are groups."""
    print("from scratch: ms, mean of largest over mean load, second copies on a GPU")
    for layers, m, slots, gpus, nodes, groups in MAP_SHAPES:
        loads, k = zipf_layers(layers, m), slots - m
        calls = {
            "loops": lambda: loops(loads, slots, gpus),
            "counts at once": lambda: peers_map(loads, slots, gpus),
            "snake": lambda: snake(loads, slots, gpus),
            "ours": lambda: rebuild(loads, gpus, k),
        }
        if groups > 1:
            at = (nodes, groups)
            calls["whole groups"] = lambda: peers_map(loads, slots, gpus, *at)
            calls["ours, whole groups"] = lambda: rebuild(loads, gpus, k, *at, "hierarchical")
        print(f" {layers} x {m} -> {slots} on {gpus} GPUs")
        for name, call in calls.items():
            took, found = spent(call)
            plan = found if name.startswith("ours") else None
            physical = found if plan is None else plan.physical
            on = gpu_loads(physical, loads, gpus)
            over = (on.max(axis=1) / on.mean(axis=1)).mean()
            more = "" if plan is None else f", bound {(plan.bounds / on.mean(axis=1)).mean():.4f}"
            twice = duplicates(physical, gpus).sum()
            print(f"  {name:18s} {took:9.2f} ms  {over:.4f} {twice:4d}{more}")


def run():
    counts_alone()
    from_scratch()
