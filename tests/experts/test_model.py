"Problems and schedules: what they compute, keep, save and refuse."

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_or import experts
from serving_or.experts.model import (
    Problem,
    Schedule,
    added,
    check_placement,
    even_split,
    latency,
    stay_or_move,
    water_level,
)
from serving_or.experts.one_step import best_response
from tests.instances import (
    BAD_ARRAYS,
    BAD_COUNTS,
    BAD_PRICES,
    EIGHT_STEPS,
    placements,
    problems,
    steps,
)


@given(steps())
def test_water_level_is_below_every_placement(step):
    r, x, _ = step
    k = int(x.sum())
    best = latency(r, placements(len(x), k)).min()
    assert water_level(r, k) <= best * (1 + 1e-9) + 1e-320


def test_schedule_is_recomputed_from_its_arrays():
    rng = np.random.default_rng(3)
    p = Problem(rng.uniform(0, 9, (20, 5)), 7, move_price=1.5)
    x = np.array([best_response(r, 7) for r in p.loads])
    s = Schedule(p, x)
    before = np.vstack([p.start, x[:-1]])
    slow = sum(max(r / (1 + y)) for r, y in zip(p.loads, x))
    assert s.cost == pytest.approx(slow + 1.5 * np.abs(x - before).sum() / 2)
    assert np.array_equal(s.moved, added(x, p.start)) and s.bound <= s.latency.sum()
    frame = s.to_frame()
    assert frame["cost"].sum() == pytest.approx(s.cost)
    assert frame["ratio"].iloc[-1] == pytest.approx(s.ratio) and s.value == s.cost
    assert experts.Schedule is Schedule and "svg" in s.plot()


def test_the_schedules_by_hand():
    p = Problem(EIGHT_STEPS, extra=4)
    follow = Schedule(p, [[4, 0]] * 3 + [[0, 4]] + [[4, 0]] + [[0, 4]] * 3)
    assert Schedule(p, [[2, 2]] * 8).cost == pytest.approx(160 / 3) and follow.cost == 60
    assert follow.bound == 32 and follow.gap == pytest.approx(28 / 60)
    assert follow.bounds.tolist() == (4 * np.arange(1, 9)).tolist()


def test_labels_come_along():
    frame = pd.DataFrame(
        EIGHT_STEPS, columns=["a", "b"], index=pd.date_range("2026-01-01", periods=8)
    )
    p = Problem(frame, extra=4)
    s = Schedule(p, [[2, 2]] * 8)
    assert p.labels == ("a", "b") and p.times[0].startswith("2026-01-01")
    assert list(s.counts_frame().columns) == ["a", "b"]
    assert list(s.to_frame().index) == list(s.counts_frame().index) == list(p.times)
    assert Problem(EIGHT_STEPS, 4).labels is None
    assert list(Schedule(Problem(EIGHT_STEPS, 4), s.x).to_frame().index) == list(range(8))
    with pytest.raises(ValueError, match="labels has length 1"):
        Problem([[1, 2]], 1, labels=["a"])


def test_nothing_is_shared_with_the_caller():
    loads, start, x = EIGHT_STEPS.copy(), np.array([2, 2]), np.full((8, 2), 2)
    p = Problem(loads, 4, start=start)
    s = Schedule(p, x, bounds := np.zeros(8))
    cost = s.cost
    loads[:], start[:], x[:], bounds[:] = 0, 0, 0, 99
    assert p.loads.sum() == EIGHT_STEPS.sum() and p.start.tolist() == [2, 2]
    assert Schedule(p, s.x).cost == s.cost == cost and s.bound == 0
    for array in (p.loads, p.start, s.x, s.bounds, s.latency, s.moved):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    s.counts[:] = 0
    s.costs[:] = 0
    assert s.cost == cost
    with pytest.raises(AttributeError):
        p.extra = 5


def test_equal_pickled_copied_saved(tmp_path):
    frame = pd.DataFrame(EIGHT_STEPS, columns=["a", "b"])
    p = Problem(frame, 4, 1.5, [3.5, 0.5])
    s = Schedule(p, [[2, 2]] * 8, bounds=[-np.inf] + [4.0] * 7)
    assert p.start.dtype.kind == "f" and s.x.dtype.kind == "i"
    for one in (p, s):
        one.save(tmp_path / "it.json")
        for other in (
            type(one).load(tmp_path / "it.json"),
            pickle.loads(pickle.dumps(one)),
            copy.deepcopy(one),
        ):
            assert other == one and hash(other) == hash(one)
    assert s != Schedule(p, [[2, 2]] * 8) and p != Problem(EIGHT_STEPS, 4)
    with ProcessPoolExecutor(1) as pool:
        assert pool.submit(copy.copy, s).result() == s
    with pytest.raises(ValueError, match=r"holds a experts\.Schedule|type"):
        Problem.load(tmp_path / "it.json")


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.float32, ">f8"])
def test_any_kind_of_number(kind):
    p = Problem(np.full((1, 2), 100, kind), extra=200, start=np.full(2, 100, kind))
    s = Schedule(p, np.full((1, 2), 100, kind))
    assert s.counts.tolist() == [[101, 101]] and s.cost == 100 / 101
    assert s.x.dtype in (np.intp, float)


def test_degenerate_sizes():
    assert even_split(5, 3).tolist() == [1, 1, 1, 0, 0] and even_split(2, 5).tolist() == [3, 2]
    none = Schedule(Problem(np.zeros((3, 2)), 0), np.zeros((3, 2), int))
    assert none.cost == 0 and none.bound == 0 and none.ratio == 1 and none.gap == 0
    nothing = Schedule(Problem(np.zeros((0, 2)), 1), np.zeros((0, 2), int), status="optimal")
    assert nothing.cost == 0 and nothing.bound == 0 and nothing.to_frame().empty


@pytest.mark.parametrize("scale", [5e-324, 1e-320, 1e-310, 1e-300, 1e300])
def test_extreme_loads(scale):
    p = Problem(np.array([[6.0, 3.0, 1.0]]) * scale, 3, move_price=0.0)
    with np.errstate(over="raise", invalid="raise"):
        s = Schedule(p, [[2, 1, 0]])
        assert s.bound <= s.cost
        assert scale < 1e-305 or s.ratio == pytest.approx(2 / 1.8)


def test_costs_beyond_the_largest_float_are_refused():
    for loads, w in ((np.full((40, 2), 1e307), 0.0), ([[1e308, 1.0]], 0.0), ([[1, 2]], 1e308)):
        with pytest.raises(ValueError, match="beyond the largest float"):
            Problem(loads, 3, w)


@given(problems(), st.data())
def test_no_schedule_is_cheaper_than_water(case, data):
    p, _ = case
    every = placements(p.experts, p.extra)
    rows = data.draw(st.lists(st.integers(0, len(every) - 1), min_size=p.steps, max_size=p.steps))
    s = Schedule(p, every[rows])
    assert np.all(s.bounds <= np.cumsum(s.costs)) and 0 <= s.gap <= 1 and s.ratio >= 1


@pytest.mark.parametrize("loads", BAD_ARRAYS, ids=str)
def test_bad_arrays(loads):
    with pytest.raises(ValueError, match="loads"):
        Problem(loads, 1)
    with pytest.raises(ValueError, match="x"):
        Schedule(Problem([[1, 2], [2, 1]], 2), loads)
    with pytest.raises(ValueError, match="start"):
        Problem([[1, 2]], 2, start=loads if loads is not None else [])


@pytest.mark.parametrize(
    "loads, message",
    [
        ([[1, 2], [3, -4]], r"loads\[1, 1\] is -4.*at least 0"),
        ([[1, np.nan]], r"loads\[0, 1\] is nan.*finite"),
        ([[np.inf, 1], [np.inf, np.nan]], r"loads\[0, 0\] is inf.*2 more"),
        ([1, 2, 3], r"shape \(3,\).*2 dimensions"),
        (np.zeros((3, 0)), r"shape \(3, 0\).*at least one expert"),
        (5.0, r"shape \(\)"),
    ],
)
def test_bad_loads(loads, message):
    with pytest.raises(ValueError, match=message):
        Problem(loads, 1)


@pytest.mark.parametrize("extra", BAD_COUNTS, ids=str)
def test_bad_extra(extra):
    with pytest.raises(ValueError, match=r"extra is .*whole number"):
        Problem([[1, 2]], extra)


def test_a_million_extra_gpus_are_enough():
    assert Problem([[1, 2]], 10**6).start.tolist() == [500_000, 500_000]
    with pytest.raises(ValueError, match="at most 1000000"):
        Problem([[1, 2]], 10**6 + 1)


@pytest.mark.parametrize("price", BAD_PRICES, ids=str)
def test_bad_price(price):
    with pytest.raises(ValueError, match="move_price is .*finite number, at least 0"):
        Problem([[1, 2]], 1, price)


@pytest.mark.parametrize(
    "start, message",
    [
        ([1, 2], r"start sums to 3.*extra = 2"),
        ([3, -1], r"start\[1\] is -1.*at least 0"),
        ([2], r"shape \(1,\)"),
        ([np.nan, 2], r"start\[0\] is nan"),
    ],
)
def test_bad_start(start, message):
    with pytest.raises(ValueError, match=message):
        Problem([[1, 2]], 2, start=start)


def test_bad_schedule():
    p = Problem([[1, 2], [2, 1]], 2)
    with pytest.raises(ValueError, match=r"shape \(1, 2\)"):
        Schedule(p, [[1, 1]])
    with pytest.raises(ValueError, match=r"x\[1\] sums to 3"):
        Schedule(p, [[1, 1], [2, 1]])
    with pytest.raises(ValueError, match=r"x\[0, 1\] is -1"):
        Schedule(p, [[3, -1], [2, 0]])
    with pytest.raises(ValueError, match="problem is of type list"):
        Schedule([[1, 2]], [[1, 1]])


@pytest.mark.parametrize(
    "claim, message",
    [
        ({"bounds": [1, 1e9]}, r"bounds\[1\] is 1000000000.0.*at most the value"),
        ({"bounds": [9, 9]}, r"bounds\[0\] is 9"),
        ({"bounds": [1, np.nan]}, r"bounds\[1\] is nan"),
        ({"bounds": [1]}, r"bounds has shape \(1,\)"),
        ({"bounds": [1, np.inf]}, "bounds"),
        ({"status": "banana"}, "status is 'banana'"),
        ({"status": "optimal"}, "gap"),
        ({"status": "optimal", "bounds": [1, 2], "scope": "placement"}, "scope"),
        ({"scope": "some"}, "scope is 'some'"),
    ],
)
def test_a_schedule_that_contradicts_itself_cannot_be_built(claim, message):
    with pytest.raises(ValueError, match=message):
        Schedule(Problem([[1, 2], [2, 1]], 2), [[1, 1], [1, 1]], **claim)


def test_bounds_above_by_rounding_are_lowered():
    p = Problem([[1, 2], [2, 1]], 2)
    s = Schedule(p, [[1, 1], [1, 1]], bounds=[1 + 1e-12, 2 + 1e-12], status="optimal")
    assert s.bound == s.cost == 2 and s.gap == 0 and s.ratio == 1 and s.bounds.tolist() == [1, 2]


def test_bounds_of_the_first_steps_carry_the_rounding_of_the_whole_sum():
    p = Problem([[1e-6, 0.0], [1e6, 0.0]], 0)
    s = Schedule(p, [[0, 0], [0, 0]], bounds=[1e-4, 1e6])
    assert s.bounds[0] == 1e-6 and s.bound <= s.cost
    with pytest.raises(ValueError, match=r"bounds\[0\] is 0.1"):
        Schedule(p, s.x, bounds=[0.1, 1e6])


def test_the_live_example_is_light():
    assert "Best: stay" in stay_or_move(1, 2.0) and "Best: move two" in stay_or_move(3, 2.0)


@pytest.mark.parametrize("error", [1e-12, 1e-8, 9e-7, -9e-7])
def test_a_cost_is_never_that_of_more_gpus_than_there_are(error):
    "A sum may be off by 1e-6, the cost of the row is that of exactly k."
    x = np.array([7 / 3, 2 / 3, 0]) * (1 + error)
    for bounds in (None, [1.8]):
        schedule = Schedule(Problem([[6, 3, 1]], 3, move_price=0.0), [x], bounds)
        assert (
            np.isclose(schedule.cost, 1.8, rtol=2e-12, atol=0) and schedule.bound <= schedule.cost
        )
        assert np.isclose(schedule.x.sum(), 3, rtol=1e-12, atol=0)
    # rounding errors are nobody's business, and whole numbers stay what they are
    tenths = np.array([0.1, 0.2, 0.7]) * 3
    assert np.array_equal(check_placement(tenths, 3), tenths)
    assert check_placement([1e-7, 0.0], 0).tolist() == [0, 0]
