"""Bounds for fleets on GTS Central Europe: alone, aggregate, chains, exits and strip.

Seconds (processor), rounds and columns, and the gaps of CG-BPRR and of the sweep to the largest; a
thousand servers that all differ; fleets whose memory is tight.
"""

import time
from dataclasses import replace

import numpy as np

from bench import cost, percent
from serving_or.blocks import (
    cg_bprr,
    chain_bound,
    exit_bound,
    lone_bound,
    strip_bound,
    sweep,
)
from serving_or.blocks.bounds import aggregate_bound
from serving_or.blocks.cluster import BLOOM, Cluster, scatter
from serving_or.tools.data import load_topology
from serving_or.tools.models import A100, MIG

# share of A100s, output tokens, clients, requests
# fmt: off
CASES = [
    (0.2, 128, 1, 5), (0.2, 128, 1, 60), (0.2, 128, 1, 400), (0.2, 2028, 1, 30), (0.2, 2028, 1, 60),
    (0.0, 128, 1, 100), (0.0, 1004, 1, 20), (0.0, 1004, 1, 40), (0.2, 128, 5, 60),
    (0.0, 1004, 5, 20),
]
# fmt: on
HEAD = (
    "A100s output clients   R    alone aggregate  chains  seconds rounds columns"
    "  gaps in %: CG-BPRR, sweep"
)


def processor(call):
    "Seconds of the processor, and the answer."
    began = time.process_time()
    answer = call()
    return time.process_time() - began, answer


def unlike(seed, n=40, blocks=40):
    "Servers that all differ, one client; memory for a few blocks each."
    rng = np.random.default_rng(seed)
    memory, tau, rtt = rng.uniform(6, 24, n), rng.uniform(4, 16, n), rng.uniform(60, 120, n)
    return Cluster(blocks, 1.3, 0.05, memory, tau, rtt)


def thousand(seed=0):
    "A thousand servers of BLOOM-176B, a fifth near an A100 and the others near a slice."
    rng = np.random.default_rng(seed)
    devices = [A100 if j < 200 else MIG for j in range(1000)]
    c = Cluster.of(BLOOM, devices, 100 + rng.uniform(1, 20, (1, 1000)), output=128)
    memory, tau = c.memory * rng.uniform(0.8, 1.1, 1000), c.tau * rng.uniform(0.9, 1.2, 1000)
    return replace(c, memory=memory, tau=tau)


def tight(graph):
    "Fleets whose memory is tight: name, cluster, requests."
    for seed in (1, 2, 3, 4):
        mixed = scatter(graph, seed=seed, fast=0.2, output=2028)
        for R in (60, 80, 95, 101) if seed == 1 else (60,):
            yield f"mixed {seed}", mixed, R
    for seed in (1, 2, 3):
        yield f"slices {seed}", scatter(graph, seed=seed, fast=0.0, output=1004), 40
    for seed, R in ((0, 20), (0, 30), (1, 30), (2, 30)):
        yield f"differ {seed}", unlike(seed), R


def run():
    graph = load_topology("gtsce")
    print("  ", HEAD)
    for fast, output, clients, R in CASES:
        c = scatter(graph, seed=0, fast=fast, output=output, clients=clients)
        took, found = processor(lambda: chain_bound(c, R))
        three = lone_bound(c, R), aggregate_bound(c, R), found.value
        gaps = [percent(cost(lambda: plan(c, R)), found.value) for plan in (cg_bprr, sweep)]
        print(
            f"   {fast:>5} {output:>6} {clients:>7} {R:>3}",
            *(f"{v:>8.1f}" for v in three),
            f"{took:>8.3f} {found.rounds:>6} {found.columns:>8} {gaps[0]:>19} {gaps[1]:>6}",
        )
    c = thousand()
    took, found = processor(lambda: chain_bound(c, 5000, time_limit=None))
    apart = 1 - found.value / found.limit
    print(f"   1000 servers that all differ, R = 5000: {took:.1f} s, {found.rounds} rounds,")
    print(f"   {found.value:.2f} ms, at most {apart:.1e} from the best multipliers")
    print("   fleet       R   chains    exits    strip  seconds               gap in %: sweep")
    for name, c, R in tight(graph):
        plan = sweep(c, R)
        bounds = (chain_bound, exit_bound, lambda *a, **k: strip_bound(*a, start=plan, **k))
        took, found = zip(*(processor(lambda: bound(c, R, time_limit=None)) for bound in bounds))
        values = [bound.value for bound in found]
        print(
            f"   {name:<9} {R:>3}",
            *(f"{v:>8.2f}" for v in values),
            *(f"{v:>6.2f}" for v in took),
            f"{percent(plan.cost, max(values)):>14}",
        )
