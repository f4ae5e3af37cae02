"""PETALS' rules: 60 servers join 70 blocks, and each asks itself whether it should move.

The peer is the rule as it reads, in plain Python, restated from the published source: for every
choice it reads for each block who announces it, finds the spans, adds them up, and sorts every
window. Its records and its network are left out. Both get the same offers, whole numbers, so that
the same windows must come out. Random orders of who asks may end elsewhere: how many of ten would
move is told for both.
"""

from random import Random

import numpy as np

from bench import race, row
from serving_or.blocks.cluster import Cluster, scatter
from serving_or.blocks.petals_rules import _in_ticks, offers, petals_bp, should_move
from serving_or.blocks.plan import Placement
from serving_or.tools.data import load_topology
from serving_or.tools.models import GB, GIB

SERVERS, BLOCKS = 60, 70


def sums(spans, blocks):
    "What each block is offered, by adding up all spans."
    total = [0.0] * blocks
    for _, (start, length, offer) in sorted(spans.items()):
        for b in range(start, start + length):
            total[b] += offer
    return total


def best_start(total, length):
    "The start whose sorted window is lexicographically least."
    starts = range(len(total) - length + 1)
    return min((sorted(total[i : i + length]), i) for i in starts)[1]


def spans_of(announced):
    "The spans of all servers, from who announces each block."
    spans = {}
    for b, servers in enumerate(announced):
        for j, offer in servers.items():
            start, length, _ = spans.get(j, (b, 0, offer))
            spans[j] = start, length + 1, offer
    return spans


def join_one_by_one(m, ticks, blocks):
    "Each server reads who announces what, and chooses."
    announced = [{} for _ in range(blocks)]
    for j, (length, offer) in enumerate(zip(m, ticks)):
        if length:
            start = best_start(sums(spans_of(announced), blocks), length)
            for b in range(start, start + length):
                announced[b][j] = offer
    return spans_of(announced)


def would_move(spans, blocks, j, quality, rng):
    "The question of one server, as it reads."
    total, stay = sums(spans, blocks), 1e-3
    now, (start, length, offer) = min(total), spans[j]

    def add(at, size, share):
        for b in range(at, at + size):
            total[b] += share

    add(start, length, -(1 + stay) * offer)
    if now > 0 and min(total) <= 0:
        return False
    new = best_start(total, length)
    if new == start:
        return False
    spans, moved = {**spans, j: (new, length, offer)}, True
    while moved:
        moved, order = False, list(spans)
        rng.shuffle(order)
        for i in order:
            start, length, offer = spans[i]
            total = sums(spans, blocks)
            for b in range(start, start + length):
                total[b] -= (1 + stay) * offer
            new = best_start(total, length)
            moved |= new != start
            spans[i] = new, length, offer
    then = min(sums(spans, blocks))
    return then > 0 and now < (quality - stay) * then


def fleet(kind, seed=0):
    "GTS-CE with A100s and slices, or servers that all differ."
    if kind == "GTS-CE":
        return scatter(load_topology("gtsce"), seed=seed), 4096 / 148, 2 * GIB / GB
    rng = np.random.default_rng(seed)
    memory, tau = rng.uniform(8, 80, SERVERS), rng.uniform(3, 20, SERVERS)
    return Cluster(BLOCKS, 1.3, 0.008, memory, tau, np.full(SERVERS, 100.0)), 28.0, 0.0


def run():
    for kind in ("GTS-CE", "all different"):
        cluster, reserve, headroom = fleet(kind)
        placement = petals_bp(cluster, reserve, headroom)
        ticks = _in_ticks(offers(cluster, placement.m))
        m, listed = placement.m.tolist(), ticks.tolist()
        calls = {
            "ours": lambda: petals_bp(cluster, reserve, headroom),
            "as it reads, plain Python": lambda: join_one_by_one(m, listed, cluster.blocks),
        }
        found = race(calls)
        spans = found.answers["as it reads, plain Python"]
        assert [spans[j][0] + 1 for j in spans] == placement.a[list(spans)].tolist()
        name = f"{kind}, {cluster.n} servers, {cluster.blocks} blocks"
        yield row(f"joining: {name}", found)
        # half of the servers is lost, and then everybody asks
        left = Placement(placement.a, np.where(np.arange(cluster.n) % 2, placement.m, 0))
        spans = {j: spans[j] for j in np.flatnonzero(left.m).tolist()}
        some = list(spans)[:10]
        calls = {
            "ours": lambda: [
                should_move(left, ticks, cluster.blocks, j, 0.75, np.random.default_rng(j))
                for j in some
            ],
            "as it reads, plain Python": lambda: [
                would_move(spans, cluster.blocks, j, 0.75, Random(j)) for j in some
            ],
        }
        found = race(calls, 3, False)
        mine, other = (sum(answer) for answer in found.answers.values())
        values = {"ours would move": mine, "literal would move": other}
        yield row(f"ten questions whether to move: {name}", found, **values)
