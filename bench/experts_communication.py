"""Copies on nodes: our flow beside HiGHS and networkx's network simplex on the same arcs.

One layer of 256 experts and 288 slots on four nodes of eight GPUs, loads as i^-0.8; sources of each
expert over the nodes drawn from Dirichlet distributions, from concentrated to even, or all on one
node; seed 0. Processor time, best of three; one way traffic in percent of all tokens.
"""

import time

import networkx as nx
import numpy as np

from serving_or.experts import communication, rebuild
from serving_or.experts.communication import crossing, place_on_nodes
from serving_or.tools.programs import Builder, solve

NODES, GPUS = 4, 8


def best(call, repeats=3):
    """Least processor time in milliseconds, and the answer."""
    times = []
    for _ in range(repeats):
        began = time.process_time()
        answer = call()
        times.append(1e3 * (time.process_time() - began))
    return min(times), answer


def highs(step, counts, slots):
    """The linear program of the arcs."""
    real, (m, nodes, _) = np.isfinite(step), step.shape
    b = Builder()
    x = b.columns("x", step.shape, upper=1.0 * real, cost=np.where(real, step, 0.0))
    b.rows(m, (1.0, x.reshape(m, -1)), low=counts, high=counts)
    b.rows(nodes, (1.0, x.transpose(1, 0, 2).reshape(nodes, -1)), high=slots)
    return solve(b.build()).value


def network_simplex(step, counts, slots):
    """The same by networkx; costs are rounded to millionths."""
    g, (m, nodes, _) = nx.DiGraph(), step.shape
    unit = np.abs(step[np.isfinite(step)]).max() / 1e6
    for i in range(m):
        g.add_node(("expert", i), demand=-int(counts[i]))
        for h in range(nodes):
            for u in np.flatnonzero(np.isfinite(step[i, h])):
                way = (i, h, int(u))
                g.add_edge(("expert", i), way, capacity=1, weight=round(step[i, h, u] / unit))
                g.add_edge(way, ("node", h), capacity=1)
    for h in range(nodes):
        g.add_edge(("node", h), "all", capacity=slots)
    g.add_node("all", demand=int(counts.sum()))
    return nx.min_cost_flow_cost(g) * unit


def run():
    """One layer under four kinds of sources, then a whole model."""
    rng, heat = np.random.default_rng(0), np.arange(1, 257) ** -0.8
    print("sources            ours ms   HiGHS      networkx   crossing %: plan, placed")
    for name in ("Dirichlet 0.3", "Dirichlet 1", "Dirichlet 5", "one node"):
        share = np.eye(NODES)[np.zeros(256, int)]
        if name != "one node":
            share = rng.dirichlet([float(name.split()[1])] * NODES, 256)
        sources = (1e6 * heat / heat.sum())[:, None] * share
        plan = rebuild(sources.sum(axis=1)[None], NODES * GPUS, 32)
        counts, old = plan.counts, np.zeros((1, *sources.shape))
        step = communication._steps(sources[None], counts, GPUS, old, 0.0)[0]
        took, (on, _) = best(lambda: communication._flow(step, counts[0], 72))
        value = crossing([sources], [on])[0]
        line = f"{name:18} {took:6.2f}"
        for peer in (highs, network_simplex):
            ms, found = best(lambda: peer(step, counts[0], 72))
            assert np.isclose(found + sources.sum(), value, rtol=1e-4), (name, peer)
            line += f"   {ms / took:5.0f} ×"
        before = communication._on_nodes(plan.physical, 256, NODES)
        shares = 100 * crossing([sources], before)[0] / 1e6, 100 * value / 1e6
        print(f"{line}    {shares[0]:.1f}, {shares[1]:.1f}")
    sources = 1e6 * heat[None, :, None] * rng.dirichlet([1.0] * NODES, (58, 256))
    plan = rebuild(sources.sum(axis=2), NODES * GPUS, 32)
    took, placed = best(lambda: place_on_nodes(plan, sources), 1)
    print(f"58 layers with packing and checks: {took:.0f} ms, gap {placed.gap:.1g},", end=" ")
    print(f"balancedness {plan.balancedness:.4f} before, {placed.balancedness:.4f} after")
