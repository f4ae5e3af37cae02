"Static placement against enumeration, cvxpy and its own theorem; the reduction against networkx."
from itertools import combinations, product

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or import experts
from serving_or.experts.model import latency
from serving_or.experts.hardness import place_exact, subgraph_loads
from serving_or.experts.static import place, polish, round_top, static_bound, static_cvxpy, static_relaxed


def placements(m, k):
    return np.array([x for x in product(range(k + 1), repeat=m) if sum(x) == k])


def optimum(loads, k):
    return min(latency(loads, x).sum() for x in placements(loads.shape[1], k))


load = st.one_of(st.integers(0, 9).map(float), st.floats(1e-3, 1e3), st.just(0.0))
instances = st.integers(1, 4).flatmap(lambda m: st.tuples(
    st.lists(st.lists(load, min_size=m, max_size=m), min_size=1, max_size=5).map(np.array), st.integers(0, 6)))


@settings(max_examples=150, deadline=None)
@given(instances)
def test_bound_relaxation_optimum_placement_guarantee(instance):
    loads, k = instance
    plan, best = place(loads, k), optimum(loads, k)
    assert plan.x.sum() == k and plan.x.min() >= 0
    assert plan.bound <= plan.relaxation * (1 + 1e-9) and plan.bound <= best * (1 + 1e-9)
    assert plan.relaxation <= plan.bound * (1 + 1e-6) + 1e-12                       # the relaxation is solved
    assert best <= plan.value * (1 + 1e-9)
    left = k - np.floor(plan.fractional + 1e-9).sum()
    rounded = round_top(plan.fractional)
    for r in loads:                                                                 # step by step, as the theorem says
        assert latency(r, rounded) <= (2 - 1 / (left + 1)) * latency(r, plan.fractional) * (1 + 1e-7) + 1e-300
    assert plan.value <= latency(loads, rounded).sum() * (1 + 1e-12) <= plan.guarantee * plan.bound * (1 + 1e-5) + 1e-12


@settings(max_examples=60, deadline=None)
@given(instances, st.integers(0, 2**32 - 1))
def test_any_weights_give_a_bound(instance, seed):
    loads, k = instance
    weights = np.random.default_rng(seed).normal(size=loads.shape)
    assert static_bound(loads, k, weights) <= optimum(loads, k) * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_relaxation_equals_cvxpy(seed):
    rng = np.random.default_rng(seed)
    loads = rng.lognormal(0, 1.2, (rng.integers(2, 9), rng.integers(2, 20))) * (rng.random((1, 1)) < 2)
    k = int(rng.integers(1, 30))
    x, weights = static_relaxed(loads, k)
    x_cvxpy, value = static_cvxpy(loads, k)
    assert latency(loads, x).sum() == pytest.approx(value, rel=2e-6)
    assert static_bound(loads, k, weights) == pytest.approx(value, rel=2e-6)


@pytest.mark.parametrize("m", range(2, 11))
def test_gap_family(m):
    loads = np.ones((1, m))
    x, weights = static_relaxed(loads, m - 1)
    assert place(loads, m - 1).value / static_bound(loads, m - 1, weights) == pytest.approx((2 * m - 1) / m, rel=1e-12)
    for k in range(1, m):                                                           # and the factor is tight for every k < m
        loads = np.r_[np.ones(k + 1), np.zeros(m - k - 1)][None]
        assert place(loads, k).ratio == pytest.approx(2 - 1 / (k + 1), rel=1e-9)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 5)), min_size=1, max_size=8), st.integers(0, 12))
def test_rounding_keeps_the_budget_and_the_factor(x, k):
    x = np.array(x)
    x = x * (k / x.sum()) if x.sum() > 0 else np.full(x.size, k / x.size)
    rounded = round_top(x)
    assert rounded.sum() == k and rounded.min() >= 0 and (np.abs(rounded - x) < 1 + 1e-6).all()
    left = k - np.floor(x + 1e-9).sum()
    assert ((1 + x) / (1 + rounded)).max() <= 2 - 1 / (left + 1) + 1e-7


@pytest.mark.parametrize("seed", range(12))
def test_densest_subgraph_identity(seed):
    graph = nx.gnp_random_graph(6, 0.6, seed=seed)
    if graph.number_of_edges() == 0:
        pytest.fail("the seed gives no edge; choose another")
    loads, edges = subgraph_loads(graph), graph.number_of_edges()
    for k in (2, 3, 4):
        densest = max(graph.subgraph(s).number_of_edges() for s in combinations(graph, k))
        assert optimum(loads, k) == pytest.approx(2 * edges - densest)
        x, value, bound = place_exact(loads, k)
        assert value == pytest.approx(2 * edges - densest) and bound == pytest.approx(value)
        assert latency(loads, [int(v in list(graph)[:k]) for v in graph]).sum() == 2 * edges - graph.subgraph(list(graph)[:k]).number_of_edges()


@pytest.mark.parametrize("seed", range(20))
def test_exact_is_exact(seed):
    rng = np.random.default_rng(seed)
    loads = rng.choice([0, 1, 2, 5, 9.5], (rng.integers(1, 5), rng.integers(1, 5)))
    k = int(rng.integers(0, 6))
    x, value, bound = place_exact(loads, k)
    assert value == pytest.approx(optimum(loads, k)) and bound == pytest.approx(value) and x.sum() == k
    assert latency(loads, x).sum() == pytest.approx(value)


def test_polish_is_a_local_optimum_and_never_worse():
    rng = np.random.default_rng(2)
    for _ in range(40):
        loads, x = rng.lognormal(0, 1, (5, 4)), rng.multinomial(6, np.ones(4) / 4)
        y = polish(loads, x)
        assert y.sum() == 6 and latency(loads, y).sum() <= latency(loads, x).sum()
        for i, j in product(range(4), repeat=2):
            if i != j and y[j] > 0:
                z = y.copy()
                z[i] += 1
                z[j] -= 1
                assert latency(loads, z).sum() >= latency(loads, y).sum() * (1 - 1e-9)


@pytest.mark.parametrize("loads", [np.zeros((3, 4)), np.full((2, 3), 1e-300), np.full((2, 3), 1e300), np.array([[5.0]]), np.array([[1e300, 1e-300]])])
@pytest.mark.parametrize("k", [0, 1, 7])
def test_edges(loads, k):
    plan = place(loads, k)
    assert plan.x.sum() == k and np.isfinite(plan.ratio) and plan.ratio <= plan.guarantee * (1 + 1e-6)
    assert "ratio" in plan.summary() and len(plan.to_frame()) == loads.shape[1]
    assert experts.place is place


@pytest.mark.parametrize("loads, extra, message", [
    ([[1, -2]], 1, r"loads\[0, 1\] is -2"), ([[1, np.nan]], 1, "is nan"), ([1, 2], 1, r"shape \(2,\)"),
    ([[1, 2]], -1, "whole number"), ([[1, 2]], 0.5, "whole number"), (np.zeros((2, 0)), 1, "at least one expert"),
])
def test_bad_input(loads, extra, message):
    with pytest.raises(ValueError, match=message):
        place(loads, extra)
    with pytest.raises(ValueError, match=message):
        place_exact(loads, extra)
