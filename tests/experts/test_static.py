"Static placement against enumeration, cvxpy and its own theorem."

import pickle
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_or import experts
from serving_or.experts.model import latency
from serving_or.experts.static import (
    StaticPlacement,
    place,
    polish,
    round_top,
    static_bound,
    static_cvxpy,
    static_relaxed,
    two_kinds,
)
from tests.instances import BAD_ARRAYS, BAD_COUNTS, best_static, static_instances


@given(static_instances)
def test_bound_relaxation_optimum_placement_guarantee(instance):
    loads, k = instance
    plan, best = place(loads, k), best_static(loads, k)
    assert plan.x.sum() == k and plan.x.min() >= 0
    assert plan.bound <= plan.relaxation * (1 + 1e-9) and plan.bound <= best * (1 + 1e-9)
    assert plan.relaxation <= plan.bound * (1 + 1e-6) + 1e-12  # the relaxation is solved
    assert best <= plan.value * (1 + 1e-9)
    left = k - np.floor(plan.fractional + 1e-9).sum()
    rounded = round_top(plan.fractional)
    for r in loads:  # step by step, as the theorem says
        factor = (2 - 1 / (left + 1)) * (1 + 1e-7)
        assert latency(r, rounded) <= factor * latency(r, plan.fractional) + 1e-300
    before = latency(loads, rounded).sum()
    assert plan.value <= before * (1 + 1e-12)
    assert before <= plan.guarantee * plan.bound * (1 + 1e-5) + 1e-12


@given(static_instances, st.integers(0, 2**32 - 1))
def test_any_multipliers_give_a_bound(instance, seed):
    loads, k = instance
    multipliers = np.random.default_rng(seed).normal(size=loads.shape)
    assert static_bound(loads, k, multipliers) <= best_static(loads, k) * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_relaxation_equals_cvxpy(seed):
    rng = np.random.default_rng(seed)
    loads = rng.lognormal(0, 1.2, (rng.integers(2, 9), rng.integers(2, 20)))
    k = int(rng.integers(1, 30))
    x, multipliers = static_relaxed(loads, k)
    _, value = static_cvxpy(loads, k)
    assert latency(loads, x).sum() == pytest.approx(value, rel=2e-6)
    assert static_bound(loads, k, multipliers) == pytest.approx(value, rel=2e-6)


@pytest.mark.parametrize("m", range(2, 11))
def test_gap_family(m):
    loads = np.ones((1, m))
    _, multipliers = static_relaxed(loads, m - 1)
    bound = static_bound(loads, m - 1, multipliers)
    assert place(loads, m - 1).value / bound == pytest.approx((2 * m - 1) / m, rel=1e-12)
    for k in range(1, m):  # and the factor is tight for every k < m
        loads = np.r_[np.ones(k + 1), np.zeros(m - k - 1)][None]
        assert place(loads, k).ratio == pytest.approx(2 - 1 / (k + 1), rel=1e-9)


@given(
    st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 5)), min_size=1, max_size=8),
    st.integers(0, 12),
)
def test_rounding_keeps_the_budget_and_the_factor(x, k):
    x = np.array(x)
    x = x * (k / x.sum()) if x.sum() > 0 else np.full(x.size, k / x.size)
    rounded = round_top(x)
    assert rounded.sum() == k and rounded.min() >= 0 and (np.abs(rounded - x) < 1 + 1e-6).all()
    left = k - np.floor(x + 1e-9).sum()
    assert ((1 + x) / (1 + rounded)).max() <= 2 - 1 / (left + 1) + 1e-7


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


@pytest.mark.parametrize(
    "loads",
    [
        np.zeros((3, 4)),
        np.full((2, 3), 1e-300),
        np.full((2, 3), 1e300),
        np.array([[5.0]]),
        np.array([[1e300, 1e-300]]),
    ],
)
@pytest.mark.parametrize("k", [0, 1, 7])
def test_edges(loads, k):
    plan = place(loads, k)
    assert plan.x.sum() == k
    assert np.isfinite(plan.ratio) and plan.ratio <= plan.guarantee * (1 + 1e-6)
    assert "ratio" in plan.summary() and len(plan.to_frame()) == loads.shape[1]
    assert experts.place is place


@pytest.mark.parametrize(
    "loads, extra, message",
    [
        ([[1, -2]], 1, r"loads\[0, 1\] is -2"),
        ([[1, np.nan]], 1, "is nan"),
        ([1, 2], 1, r"shape \(2,\)"),
        ([[1, 2]], -1, "whole number"),
        ([[1, 2]], 0.5, "whole number"),
        (np.zeros((2, 0)), 1, "at least one expert"),
    ],
)
def test_bad_input(loads, extra, message):
    with pytest.raises(ValueError, match=message):
        place(loads, extra)


def test_bad_arrays_and_counts():
    for loads in BAD_ARRAYS:
        with pytest.raises(ValueError, match="loads"):
            place(loads, 1)
    for extra in BAD_COUNTS:
        with pytest.raises(ValueError, match="extra is"):
            place([[1, 2]], extra)
    with pytest.raises(ValueError, match="beyond the largest float"):
        place(np.full((9, 2), 1e308), 1)
    with pytest.raises(ValueError, match="time_limit is -1"):
        place([[1, 2]], 1, time_limit=-1)


@pytest.mark.parametrize("scale", [1e-320, 1e-300, 1e-9, 1e9, 1e290])
def test_scale_changes_no_decision(scale):
    loads = np.random.default_rng(0).integers(1, 99, (6, 5)).astype(float)
    one, two = place(loads, 7), place(loads * scale, 7)
    assert two.bound <= two.value
    if scale > 1e-305:
        assert np.array_equal(one.x, two.x) and two.ratio == pytest.approx(one.ratio, rel=1e-6)
        x, value = static_cvxpy(loads * scale, 7)
        assert x.sum() == pytest.approx(7)
        assert value == pytest.approx(one.relaxation * scale, rel=1e-5)


def test_no_steps():
    assert place(np.zeros((0, 3)), 2).value == 0 == place(np.zeros((0, 3)), 2).bound


def test_time_limit_and_progress(capfd):
    loads = np.random.default_rng(1).lognormal(0, 1, (20, 30))
    hurried = place(loads, 12, time_limit=0)
    assert hurried.status == "time_limit" and 0 < hurried.bound <= hurried.value
    assert hurried.bound <= place(loads, 12).value
    assert capfd.readouterr() == ("", "")
    place(loads, 12, verbose=True)
    out, err = capfd.readouterr()
    assert out == "" and "place: " in err and "bound" in err


def test_a_placement_is_a_result(tmp_path):
    frame = pd.DataFrame([[6, 1, 1], [1, 6, 1]], columns=["a", "b", "c"])
    plan = place(frame, 2)
    assert plan.labels == ("a", "b", "c") and plan.status == "optimal" and plan.scope == "all"
    assert list(plan.to_frame().index) == ["a", "b", "c"] and "svg" in plan.plot()
    plan.save(tmp_path / "plan.json")
    assert StaticPlacement.load(tmp_path / "plan.json") == plan == pickle.loads(pickle.dumps(plan))
    frame.loc[0, "a"] = 0
    plan.counts[:] = 0
    assert plan.value == 6 and plan.loads[0, 0] == 6


@pytest.mark.parametrize(
    "change, message",
    [
        ({"x": [1, 1]}, "x has shape"),
        ({"x": [1.5, 0.5, 0]}, r"x\[0\] is 1.5.*whole"),
        ({"x": [2, 0, 0]}, "gap"),
        ({"fractional": [1, 1, 1]}, "fractional sums to 3"),
        ({"multipliers": [[1, 0, 0]]}, "multipliers has shape"),
        ({"multipliers": [[np.nan, 0, 0], [0, 1, 0]]}, r"multipliers\[0, 0\] is nan"),
        ({"proved": 7.0}, "bound is 7.0"),
        ({"proved": np.nan}, "proved is nan"),
        ({"status": "good"}, "status is 'good'"),
        ({"labels": ["a"]}, "labels has length 1"),
    ],
)
def test_a_placement_that_contradicts_itself_cannot_be_built(change, message):
    parts = {
        "loads": [[6, 1, 1], [1, 6, 1]],
        "x": [1, 1, 0],
        "fractional": [1, 1, 0],
        "multipliers": [[1, 0, 0], [0, 1, 0]],
        "status": "optimal",
    }
    assert StaticPlacement(**parts).value == 6
    with pytest.raises(ValueError, match=message):
        StaticPlacement(**parts | change)


def test_the_live_example_is_light():
    assert "ratio" in two_kinds(4, 0.25)
