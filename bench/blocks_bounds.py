"""Bounds for 60 servers on GTS Central Europe: alone, aggregate and by chains.

Seconds, rounds and patterns, and the gaps of CG-BPRR and of the sweep.
"""

from bench import cost, percent, seconds
from serving_or.blocks import cg_bprr, chain_bound, lone_bound, sweep
from serving_or.blocks.bounds import aggregate_bound
from serving_or.blocks.cluster import scatter
from serving_or.tools.data import load_topology

# share of A100s, output tokens, clients, requests
# fmt: off
CASES = [
    (0.2, 128, 1, 5), (0.2, 128, 1, 60), (0.2, 128, 1, 400), (0.2, 2028, 1, 30), (0.2, 2028, 1, 60),
    (0.0, 128, 1, 100), (0.0, 1004, 1, 20), (0.0, 1004, 1, 40), (0.2, 128, 5, 60),
    (0.0, 1004, 5, 20),
]
# fmt: on
HEAD = (
    "A100s output clients   R    alone aggregate  chains  seconds rounds patterns"
    "  gaps in %: CG-BPRR, sweep"
)


def run():
    graph = load_topology("gtsce")
    print("  ", HEAD)
    for fast, output, clients, R in CASES:
        c = scatter(graph, seed=0, fast=fast, output=output, clients=clients)
        found = chain_bound(c, R)
        took = seconds(lambda: chain_bound(c, R), repeats=3)
        three = lone_bound(c, R), aggregate_bound(c, R), found.value
        gaps = [percent(cost(lambda: plan(c, R)), found.value) for plan in (cg_bprr, sweep)]
        print(
            f"   {fast:>5} {output:>6} {clients:>7} {R:>3}",
            *(f"{v:>8.1f}" for v in three),
            f"{took:>8.3f} {found.rounds:>6} {found.columns:>8} {gaps[0]:>19} {gaps[1]:>6}",
        )
