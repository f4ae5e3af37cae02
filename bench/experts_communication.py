"""Copies on nodes: our flow beside HiGHS and networkx's network simplex on the same arcs.

One layer of 256 experts and 288 slots on four nodes of eight GPUs, loads as i^-0.8; sources of each
expert over the nodes drawn from Dirichlet distributions, from concentrated to even, or all on one
node; seed 0. Traffic is one way, in percent of all tokens. Then a whole model, with packing and
checks.
"""

import networkx as nx
import numpy as np

from bench import race, row
from serving_or.experts import communication, rebuild
from serving_or.experts.communication import crossing, place_on_nodes
from serving_or.tools.programs import Builder, solve

NODES, GPUS = 4, 8


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
    for name in ("Dirichlet 0.3", "Dirichlet 1", "Dirichlet 5", "one node"):
        share = np.eye(NODES)[np.zeros(256, int)]
        if name != "one node":
            share = rng.dirichlet([float(name.split()[1])] * NODES, 256)
        sources = (1e6 * heat / heat.sum())[:, None] * share
        plan = rebuild(sources.sum(axis=1)[None], NODES * GPUS, 32)
        counts, old = plan.counts, np.zeros((1, *sources.shape))
        step = communication._steps(sources[None], counts, GPUS, old, 0.0)[0]
        calls = {
            "ours": lambda: communication._flow(step, counts[0], 72),
            "HiGHS": lambda: highs(step, counts[0], 72),
            "networkx network simplex": lambda: network_simplex(step, counts[0], 72),
        }
        found = race(calls, 3)
        (on, _), *others = found.answers.values()
        value = crossing([sources], [on])[0]
        assert np.allclose(np.array(others) + sources.sum(), value, rtol=1e-4), name
        before = communication._on_nodes(plan.physical, 256, NODES)
        values = {"crossing, plan %": 100 * crossing([sources], before)[0] / 1e6}
        values["crossing, placed %"] = 100 * value / 1e6
        yield row(f"256 experts, {name}", found, **values)
    sources = 1e6 * heat[None, :, None] * rng.dirichlet([1.0] * NODES, (58, 256))
    plan = rebuild(sources.sum(axis=2), NODES * GPUS, 32)
    found = race({"ours": lambda: place_on_nodes(plan, sources)}, 3, False)
    placed = found.answers["ours"]
    values = {"gap %": 100 * placed.gap, "balancedness before": plan.balancedness}
    values["balancedness after"] = placed.balancedness
    yield row("58 layers of 256 experts, packed and checked", found, **values)
