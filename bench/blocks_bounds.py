"""Bounds for 60 servers on GTS Central Europe: alone, aggregate and by chains; seconds, and the gaps of CG-BPRR and of the sweep."""
from bench import seconds
from serving_or.blocks import Infeasible, NotFound, cg_bprr, chain_bound, lone_bound, sweep
from serving_or.blocks.bounds import aggregate_bound
from serving_or.blocks.cluster import scatter
from serving_or.tools.data import load_topology

CASES = ((0.2, 128, 1, 5), (0.2, 128, 1, 60), (0.2, 128, 1, 400), (0.2, 2028, 1, 30), (0.2, 2028, 1, 60), (0.0, 128, 1, 100), (0.0, 1004, 1, 20),
         (0.0, 1004, 1, 40), (0.2, 128, 5, 60), (0.0, 1004, 5, 20))  # share of A100s, output tokens, clients, requests


def gap(method, cluster, requests, bound):
    "Percent above the bound."
    try:
        return f"{100 * (method(cluster, requests).cost / bound - 1):.2f}"
    except (Infeasible, NotFound):
        return "-"


def run():
    graph = load_topology("gtsce")
    print(f"   {'A100s':>5} {'output':>6} {'clients':>7} {'R':>4}  {'alone':>7} {'aggregate':>9} {'chains':>7} {'seconds':>8} {'rounds':>6} {'patterns':>8}  {'CG %':>7} {'sweep %':>7}")
    for fast, output, clients, R in CASES:
        c = scatter(graph, seed=0, fast=fast, output=output, clients=clients)
        bound = chain_bound(c, R)
        took = seconds(lambda: chain_bound(c, R), repeats=3)
        print(f"   {fast:>5} {output:>6} {clients:>7} {R:>4}  {lone_bound(c, R):>7.1f} {aggregate_bound(c, R):>9.1f} {bound.value:>7.1f} {took:>8.3f} {bound.rounds:>6} {bound.columns:>8}"
              f"  {gap(cg_bprr, c, R, bound.value):>7} {gap(sweep, c, R, bound.value):>7}")
