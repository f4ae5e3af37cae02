"Churn: repairs against enumeration of all placements, what is never worse, what is refused."

import numpy as np
import pytest

from serving_or.blocks.churn import (
    after_churn,
    reloads,
    repair,
)
from serving_or.blocks.cluster import Cluster
from serving_or.blocks.designs import sweep
from serving_or.blocks.plan import Placement
from serving_or.tools.answers import Infeasible, NotFound
from tests.blocks.oracles import Oracle, spans_of
from tests.instances import fleet, random_placement
from tests.long import cases

NAMES = list("ABCDEF")
CLOSE = 1 + 1e-7


def any_fleet(rng, n, L, C, names):
    "Servers that all differ."
    sizes = rng.integers(2, 16, n), rng.integers(1, 9, n), rng.integers(1, 20, (C, n))
    return Cluster(L, 2, 1, *sizes, servers=names)


def drawn(rng):
    "A plan, servers that leave, servers that join, a price."
    while True:
        n, C = int(rng.integers(2, 5)), int(rng.integers(1, 3))
        L = 3 if n == 4 else int(rng.integers(2, 5))
        c, R = any_fleet(rng, n, L, C, NAMES[:n]), rng.integers(0, 3, C)
        try:
            plan = sweep(c, np.maximum(R, [1] + [0] * (C - 1)))
        except (Infeasible, NotFound):
            continue
        lost = [int(rng.integers(n))] if rng.random() < 0.8 else []
        joined = any_fleet(rng, 1, L, C, ["new"]) if rng.random() < 0.5 and n < 4 else None
        return plan, lost, joined, float(rng.choice([0, 0.5, 3, 30]))


def started(plan, lost, joined):
    "The cluster after churn, and what its servers hold."
    now, stayed = after_churn(plan.cluster, lost, joined)
    more = now.n - len(stayed)
    a = np.append(plan.placement.a[stayed], np.ones(more, int))
    return now, Placement(a, np.append(plan.placement.m[stayed], np.zeros(more, int)))


def blocks_of(span):
    return set(range(*span))


def all_values(plan, lost, joined, price):
    "The value of every placement, by enumeration, and how many servers it changes."
    now, held = started(plan, lost, joined)
    oracle, before, R = Oracle(now), spans_of(held), plan.requests
    for spans in oracle.placements:
        loads = sum(len(blocks_of(s) - blocks_of(h)) for s, h in zip(spans, before))
        changed = sum(s != h for s, h in zip(spans, before))
        yield oracle.routed(spans, R.tolist()) / R.sum() + price * loads, changed


def test_a_small_repair_is_the_best_of_all():
    rng = np.random.default_rng(1)
    optimal, impossible, ways = 0, 0, set()
    for _ in range(cases(4000, few=60)):
        plan, lost, joined, price = drawn(rng)
        values = list(all_values(plan, lost, joined, price))
        best = min(v for v, _ in values)
        pairs = min(v for v, changed in values if changed <= 2)
        try:
            answer = repair(plan, lost, joined, price)
        except Infeasible:
            impossible += 1
            assert best == np.inf
            continue
        assert answer.value <= pairs * CLOSE and answer.value == pytest.approx(best)
        assert answer.bound <= best * CLOSE
        optimal += answer.status == "optimal"
        ways.add(answer.way)
    assert optimal > impossible > 0 and {"keep", "route", "moves"} <= ways


def test_loads_are_counted_block_by_block():
    rng = np.random.default_rng(2)
    for _ in range(60):
        c = fleet(6)
        before, after = random_placement(rng, c), random_placement(rng, c)
        pairs = zip(spans_of(after), spans_of(before))
        counted = [len(blocks_of(new) - blocks_of(old)) for new, old in pairs]
        assert reloads(before, after).tolist() == counted
        assert not reloads(before, before).any()
