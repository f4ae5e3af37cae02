"The exact placement against enumeration; the reduction against networkx."

from dataclasses import replace
from itertools import combinations

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given

from serving_or.experts import hardness
from serving_or.experts.hardness import place_exact, subgraph_loads
from serving_or.experts.model import latency
from serving_or.experts.static import place
from serving_or.tools.answers import TooLarge
from tests.instances import BAD_ARRAYS, BAD_COUNTS, best_static, static_instances


@pytest.mark.parametrize("seed", range(12))
def test_densest_subgraph_identity(seed):
    graph = nx.gnp_random_graph(6, 0.6, seed=seed)
    loads, edges = subgraph_loads(graph), graph.number_of_edges()
    assert edges > 0
    for k in (2, 3, 4):
        densest = max(graph.subgraph(s).number_of_edges() for s in combinations(graph, k))
        assert best_static(loads, k) == pytest.approx(2 * edges - densest)
        exact = place_exact(loads, k)
        assert exact.value == pytest.approx(2 * edges - densest)
        assert exact.bound == pytest.approx(exact.value) and exact.status == "optimal"
        first = list(graph)[:k]
        inside = graph.subgraph(first).number_of_edges()
        assert latency(loads, [int(v in first) for v in graph]).sum() == 2 * edges - inside
    for k in (6, 7, 8):
        assert place_exact(loads, k).value == pytest.approx(edges - (k == 8) / 3)


@given(static_instances)
def test_exact_is_exact(instance):
    loads, k = instance
    exact, best = place_exact(loads, k), best_static(loads, k)
    assert exact.status == "optimal" and exact.x.sum() == k
    assert exact.value == pytest.approx(best, rel=2e-6)
    assert exact.value == latency(loads, exact.x).sum()
    assert exact.bound <= min(best * (1 + 1e-9), exact.value)
    assert exact.value <= place(loads, k).value


@pytest.mark.parametrize("scale", [5e-324, 1e-310, 1e-300, 1e-9, 1e9, 1e300])
def test_scale(scale):
    loads = np.random.default_rng(4).integers(1, 12, (4, 4)) * scale
    exact = place_exact(loads, 5)
    assert exact.bound <= exact.value
    if scale > 1e-305:
        assert exact.value == pytest.approx(best_static(loads, 5)) and exact.status == "optimal"


@pytest.mark.parametrize("excess, status", [(1e-8, "optimal"), (1e-2, "feasible")])
def test_a_solver_that_claims_too_much_is_not_believed(excess, status, monkeypatch):
    loads = np.random.default_rng(1).integers(0, 12, (4, 4))
    best, solve = best_static(loads, 5) / loads.max(), hardness.solve

    def boasting(*args, **kwargs):
        return replace(solve(*args, **kwargs), bound=best * (1 + excess))

    monkeypatch.setattr(hardness, "solve", boasting)
    exact = place_exact(loads, 5)
    assert exact.status == status and exact.value == pytest.approx(best * loads.max())
    assert exact.bound <= exact.value and (exact.proved > 0) == (status == "optimal")


def test_time_limit_and_size():
    loads = np.random.default_rng(0).lognormal(0, 1, (30, 30))
    hurried = place_exact(loads, 20, time_limit=0)
    assert hurried.status == "time_limit" and 0 < hurried.bound <= hurried.value
    assert place_exact(loads, 20, time_limit=0.3).bound >= hurried.bound
    with pytest.raises(TooLarge, match="20000000 at most") as caught:
        place_exact(np.ones((1000, 1000)), 100)
    assert caught.value.size == 101_000_000
    with pytest.raises(ValueError, match="time_limit is nan"):
        place_exact(loads, 3, time_limit=np.nan)


def test_labels_come_along():
    frame = pd.DataFrame([[6, 1, 1], [1, 6, 1]], columns=["a", "b", "c"])
    assert list(place_exact(frame, 2).to_frame().index) == ["a", "b", "c"]


def test_bad_input():
    for loads in BAD_ARRAYS:
        with pytest.raises(ValueError, match="loads"):
            place_exact(loads, 1)
    for extra in BAD_COUNTS:
        with pytest.raises(ValueError, match="extra is"):
            place_exact([[1, 2]], extra)
