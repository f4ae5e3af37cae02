"""The program on the line of blocks against the program of the literature, both solved by HiGHS.

On tight random clusters and on two networks; and with a good plan to start from, on sixty servers.
"""

import numpy as np

from bench import percent, timed
from serving_or.blocks import Cluster, improve, milp, sweep
from serving_or.blocks.cluster import scatter
from serving_or.blocks.line_program import block_line_program
from serving_or.blocks.link_program import paper_program
from serving_or.tools.data import load_topology
from serving_or.tools.programs import relaxation, solve

# seconds for a program
TIME_LIMIT = 30.0
# eight servers with just enough memory for eight requests, from the chapter
JUST_ENOUGH = Cluster(
    12,
    4,
    1,
    [32, 28, 36, 27, 31, 34, 29, 38],
    [7, 12, 9, 15, 11, 8, 14, 6],
    [20, 35, 15, 40, 25, 30, 10, 45],
)
HEAD = (
    "cluster                      kind   columns    rows  seconds status     value    bound relaxed"
)


def tight(n, blocks, requests, seed=0):
    "A random cluster that holds all blocks with caches, and not many more."
    rng = np.random.default_rng(seed)
    while True:
        memory = rng.integers(5, (4 + requests) * blocks * 2 // n + 4, n)
        c = Cluster(blocks, 4, 1, memory, rng.integers(1, 20, n), rng.integers(5, 40, n))
        if (c.counts(1) > 0).all() and c.counts(1).sum() >= blocks + 2:
            return c


def row(name, kind, program):
    answer = solve(program, TIME_LIMIT)
    rows, columns = program.matrix.shape
    print(
        f"   {name:<28} {kind:<6} {columns:>7} {rows:>7}",
        f"{answer.seconds:>8.2f} {answer.status:<10}",
        *(f"{v:>8.4g}" for v in (answer.value, answer.bound, relaxation(program))),
    )


def run():
    print("  ", HEAD)
    for n, L, R, seed in ((3, 6, 3, 0), (4, 6, 4, 0), (5, 8, 4, 0), (6, 10, 6, 1)):
        c = tight(n, L, R, seed)
        for kind, build in (("line", block_line_program), ("paper", paper_program)):
            row(f"random, n={n} L={L} R={R}", kind, build(c, c.demand(R)))
    program = block_line_program(JUST_ENOUGH, JUST_ENOUGH.demand(8))
    row("just enough, n=8 L=12 R=8", "line", program)
    for name, R in (("abovenet", 8), ("bellcanada", 16)):
        c = scatter(load_topology(name), seed=0)
        row(f"{name}, n={c.n} L={c.blocks} R={R}", "line", block_line_program(c, c.demand(R)))
    print("   sixty servers of gtsce, 60 seconds of search, then 60 of the line program")
    print("   seed    R    sweep   search     line    bound  gap, %  seconds")
    for seed in (1, 2, 4):
        c = scatter(load_topology("gtsce"), seed=seed)
        for R in (60, 400):
            first = sweep(c, R)
            begin = improve(first, 60)
            took, plan = timed(lambda c=c, R=R, begin=begin: milp(c, R, time_limit=60, start=begin))
            print(
                f"   {seed:>4} {R:>4}",
                *(f"{v:>8.2f}" for v in (first.cost, begin.cost, plan.cost, plan.bound)),
                f"{percent(plan.cost, plan.bound):>7} {took:>8.2f}",
            )
