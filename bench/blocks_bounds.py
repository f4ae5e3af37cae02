"""Bounds for fleets on GTS Central Europe: alone, aggregate, chains, exits and strip.

Seconds of the bound of chains, its rounds and columns, and the gaps of CG-BPRR and of the sweep to
it; a thousand servers that all differ; fleets whose memory is tight, with the gap of the sweep to
the largest bound. Bounds are in milliseconds per token.
"""

from dataclasses import replace

import numpy as np

from bench import cost, percent, race, row
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


def networks():
    "Fleets on the network, with memory to spare and without."
    graph = load_topology("gtsce")
    for fast, output, clients, R in CASES:
        c = scatter(graph, seed=0, fast=fast, output=output, clients=clients)
        found = race({"chains": lambda: chain_bound(c, R)}, 3, False)
        bound = found.answers["chains"]
        values = {"alone": lone_bound(c, R), "aggregate": aggregate_bound(c, R)}
        values |= {"chains": bound.value, "rounds": bound.rounds, "columns": bound.columns}
        for name, plan in (("CG-BPRR", cg_bprr), ("sweep", sweep)):
            values[f"gap of {name} %"] = percent(cost(lambda: plan(c, R)), bound.value)
        case = f"{fast:.0%} A100s, {output} tokens, {clients} clients, R = {R}"
        yield row(case, found, **values)


def run():
    yield from networks()
    c = thousand()
    found = race({"chains": lambda: chain_bound(c, 5000, time_limit=None)}, 1, False)
    bound = found.answers["chains"]
    values = {"chains": bound.value, "rounds": bound.rounds}
    values["from the best multipliers"] = 1 - bound.value / bound.limit
    yield row("1000 servers that all differ, R = 5000", found, **values)
    for name, c, R in tight(load_topology("gtsce")):
        plan = sweep(c, R)
        calls = {
            "chains": lambda: chain_bound(c, R, time_limit=None),
            "our exits": lambda: exit_bound(c, R, time_limit=None),
            "our strip": lambda: strip_bound(c, R, time_limit=None, start=plan),
        }
        found = race(calls, 1, False)
        values = {name.removeprefix("our "): b.value for name, b in found.answers.items()}
        values["gap of the sweep %"] = percent(plan.cost, max(values.values()))
        yield row(f"{name}, R = {R}", found, **values)
