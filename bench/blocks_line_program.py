"""The program on the line of blocks against the program of the literature, both solved by HiGHS.

On tight random clusters and on two networks, within thirty seconds (``closed`` is 1 where a program
was solved in them); and on sixty servers with the plan of a minute's search to start from.
"""

import numpy as np

from bench import LIMITS, Race, once, percent, row
from serving_or.blocks import Cluster, improve, milp, sweep
from serving_or.blocks.cluster import scatter
from serving_or.blocks.line_program import block_line_program
from serving_or.blocks.link_program import paper_program
from serving_or.tools.data import load_topology
from serving_or.tools.programs import relaxation, solve

# seconds for a program
TIME_LIMIT = 30.0 * LIMITS
# eight servers with just enough memory for eight requests, from the chapter
JUST_ENOUGH = Cluster(
    12,
    4,
    1,
    [32, 28, 36, 27, 31, 34, 29, 38],
    [7, 12, 9, 15, 11, 8, 14, 6],
    [20, 35, 15, 40, 25, 30, 10, 45],
)


def tight(n, blocks, requests, seed=0):
    "A random cluster that holds all blocks with caches, and not many more."
    rng = np.random.default_rng(seed)
    while True:
        memory = rng.integers(5, (4 + requests) * blocks * 2 // n + 4, n)
        c = Cluster(blocks, 4, 1, memory, rng.integers(1, 20, n), rng.integers(5, 40, n))
        if (c.counts(1) > 0).all() and c.counts(1).sum() >= blocks + 2:
            return c


def solved(build, c, R, who=""):
    "Seconds, and what became of a program: its size, whether it was closed, value and bounds."
    program = build(c, c.demand(R))
    found, answer = once(lambda: solve(program, TIME_LIMIT))
    rows, columns = program.matrix.shape
    values = {"columns": columns, "rows": rows, "closed": float(answer.status == "optimal")}
    values |= {"value": answer.value, "bound": answer.bound, "relaxed": relaxation(program)}
    return found.seconds["ours"], {f"{who}{word}": value for word, value in values.items()}


def programs():
    "The program on the line, and that of the literature where it is small enough."
    for n, L, R, seed in ((3, 6, 3, 0), (4, 6, 4, 0), (5, 8, 4, 0), (6, 10, 6, 1)):
        c = tight(n, L, R, seed)
        ours, values = solved(block_line_program, c, R)
        theirs, others = solved(paper_program, c, R, "paper's ")
        found = Race({"line": ours, "program of the literature": theirs}, {}, "wall")
        yield row(f"random, n = {n}, L = {L}, R = {R}", found, **values, **others)
    alone = [("just enough", JUST_ENOUGH, 8)]
    for name, R in (("abovenet", 8), ("bellcanada", 16)):
        alone.append((name, scatter(load_topology(name), seed=0), R))
    for name, c, R in alone:
        ours, values = solved(block_line_program, c, R)
        found = Race({"line": ours}, {}, "wall")
        yield row(f"{name}, n = {c.n}, L = {c.blocks}, R = {R}", found, **values)


def run():
    yield from programs()
    for seed in (1, 2, 4):
        c = scatter(load_topology("gtsce"), seed=seed)
        for R in (60, 400):
            first = sweep(c, R)
            begin = improve(first, 60 * LIMITS)
            took, plan = once(lambda: milp(c, R, time_limit=60 * LIMITS, start=begin))
            values = {"sweep": first.cost, "search": begin.cost, "line program": plan.cost}
            values |= {"bound": plan.bound, "gap %": percent(plan.cost, plan.bound)}
            values["seconds of the line"] = took.seconds["ours"][0]
            yield row(f"gtsce, seed {seed}, R = {R}: sixty servers", **values)
