"The one-step rules against complete enumeration, and what the model refuses."
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from serving_or import experts
from serving_or.experts.model import Problem, Schedule, added, even_split, latency, water_level
from serving_or.experts.one_step import best_level, best_response, lazy_chase, lazy_cover, myopic, need, water_fill, worst_ratio

exhaustive = settings(max_examples=400, deadline=None)


@cache
def placements(m, k):
    "All integer placements, one a row."
    return np.array([x for x in product(range(k + 1), repeat=m) if sum(x) == k])


load = st.one_of(st.integers(0, 12).map(float), st.floats(0, 1e6, allow_subnormal=False), st.sampled_from([0.0, 1e-300, 1e-12, 1e300]))


@st.composite
def steps(draw):
    "Loads with ties and zeros, a placement to start from, and a price."
    m, k = draw(st.integers(1, 4)), draw(st.integers(0, 6))
    r = np.array(draw(st.lists(load, min_size=m, max_size=m)))
    options = placements(m, k)
    return r, options[draw(st.integers(0, len(options) - 1))], draw(st.floats(0, 50))


def close(a, b):
    return a <= b * (1 + 1e-9)


@exhaustive
@given(steps())
@example((np.array([1e300, 1e-300]), np.array([0, 3]), 2.0))
@example((np.zeros(3), np.array([0, 0, 4]), 2.0))
@example((np.array([6.0, 6.0, 0.0]), np.array([0, 0, 1]), 2.0))
def test_best_response_is_optimal(step):
    r, x, _ = step
    mine, everything = best_response(r, int(x.sum())), placements(len(x), int(x.sum()))
    assert mine.sum() == x.sum() and mine.min() >= 0 and mine.dtype.kind == "i"
    assert close(latency(r, mine), latency(r, everything).min())
    assert close(latency(r, everything).min(), best_level(r, int(x.sum())))


def one_at_a_time(r, k):
    x = np.zeros(len(r), int)
    for _ in range(k):
        x[np.argmax(r / (1 + x))] += 1
    return x


@exhaustive
@given(st.lists(st.integers(1, 50), min_size=1, max_size=12), st.integers(0, 40))
def test_best_response_is_slowest_first(r, k):
    r = np.array(r, float)
    assert latency(r, best_response(r, k)) == pytest.approx(latency(r, one_at_a_time(r, k)), rel=1e-12)


@exhaustive
@given(steps())
def test_lazy_chase_is_the_nearest_optimum(step):
    r, x, _ = step
    everything = placements(len(x), int(x.sum()))
    best = everything[latency(r, everything) <= latency(r, everything).min() * (1 + 1e-9)]
    mine = lazy_chase(r, x)
    assert close(latency(r, mine), latency(r, best).max()) and mine.sum() == x.sum()
    assert np.maximum(mine - x, 0).sum() == np.maximum(best - x, 0).sum(axis=1).min()


@exhaustive
@given(steps())
def test_myopic_is_the_best_step(step):
    r, x, w = step
    assume(r.max() < 1e299 or w == 0)                       # latency and price must be comparable in floating point
    everything = placements(len(x), int(x.sum()))
    best = (latency(r, everything) + w * np.maximum(everything - x, 0).sum(axis=1)).min()
    mine = myopic(r, x, w)
    assert mine.sum() == x.sum() and mine.min() >= 0
    assert close(latency(r, mine) + w * np.maximum(mine - x, 0).sum(), best)


def test_myopic_finds_levels_that_need_a_donor():
    "An intermediate level becomes feasible only by taking from an expert with a surplus; found by search, 2000 instances."
    rng = np.random.default_rng(5)
    for _ in range(2000):
        m, k = rng.integers(2, 5), rng.integers(1, 7)
        everything = placements(m, k)
        r, x, w = rng.integers(0, 40, m), everything[rng.integers(len(everything))], rng.uniform(0.05, 8)
        mine = myopic(r, x, w)
        cost = latency(r, mine) + w * np.maximum(mine - x, 0).sum()
        assert close(cost, (latency(r, everything) + w * np.maximum(everything - x, 0).sum(axis=1)).min())


@exhaustive
@given(steps(), st.data())
def test_lazy_cover_adds_the_fewest(step, data):
    _, x, _ = step
    a = placements(len(x), data.draw(st.integers(0, int(x.sum()))))
    a = a[data.draw(st.integers(0, len(a) - 1))]
    everything = placements(len(x), int(x.sum()))
    covers = everything[(everything >= a).all(axis=1)]
    mine = lazy_cover(x, a)
    assert (mine >= a).all() and mine.sum() == x.sum()
    assert np.maximum(mine - x, 0).sum() == np.maximum(covers - x, 0).sum(axis=1).min() == np.maximum(a - x, 0).sum()


@exhaustive
@given(steps())
def test_water_level_is_below_every_placement(step):
    r, x, _ = step
    k = int(x.sum())
    level, x = water_level(r, k), water_fill(r, k)
    assert x.sum() == pytest.approx(k, abs=1e-9) and x.min() >= 0
    assert latency(r, x) == pytest.approx(level, rel=1e-9)
    assert close(level, latency(r, placements(len(x), k)).min()) and close(best_level(r, k), 2 * level)


def test_rules_are_the_same_on_many_layers_at_once():
    r = np.random.default_rng(0).lognormal(0, 2, (7, 5, 9))
    for rule in (water_level, best_level, water_fill, best_response):
        one = np.array([[rule(r[a, b], 6) for b in range(5)] for a in range(7)])
        assert np.array_equal(rule(r, 6), one)


@exhaustive
@given(steps(), st.data())
def test_smoothness(step, data):
    r, x, _ = step
    everything = placements(len(x), int(x.sum()))
    other = everything[data.draw(st.integers(0, len(everything) - 1))]
    assert close(latency(r, x), worst_ratio(x, other) * latency(r, other))


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_extreme_loads(scale):
    r = np.array([6.0, 3.0, 1.0])
    assert best_response(r * scale, 3).tolist() == [2, 1, 0]
    assert lazy_chase(r * scale, np.array([0, 0, 3])).tolist() == [2, 1, 0]
    assert myopic(r * scale, np.array([1, 1, 1]), 0.0).tolist() == [2, 1, 0]
    assert water_level(r * scale, 3) == pytest.approx(1.8 * scale)
    with np.errstate(over="raise", invalid="raise"):
        assert Schedule(Problem(np.array([r * scale]), 3, move_price=0.0), [[2, 1, 0]]).ratio == pytest.approx(2 / 1.8)


def test_degenerate_sizes():
    assert best_response([5.0], 3).tolist() == [3] and lazy_chase([5.0], [3]).tolist() == [3] and myopic([5.0], [3], 1).tolist() == [3]
    assert best_response([5.0, 1.0], 0).tolist() == [0, 0] and myopic([5.0, 1.0], [0, 0], 1).tolist() == [0, 0]
    assert best_response(np.zeros(3), 4).tolist() == [2, 1, 1] and lazy_chase(np.zeros(3), [4, 0, 0]).tolist() == [4, 0, 0]
    assert even_split(5, 3).tolist() == [1, 1, 1, 0, 0] and even_split(2, 5).tolist() == [3, 2]
    none = Schedule(Problem(np.zeros((3, 2)), 0), np.zeros((3, 2), int))
    assert none.cost == 0 and none.bound == 0 and none.ratio == 1 and none.gap == 0
    nothing = Schedule(Problem(np.zeros((0, 2)), 1), np.zeros((0, 2), int))
    assert nothing.cost == 0 and nothing.bound == 0


@pytest.mark.parametrize("loads, message", [
    ([[1, 2], [3, -4]], r"step 1, expert 1 is -4.*at least 0"),
    ([[1, np.nan]], r"step 0, expert 1 is nan.*finite"),
    ([[np.inf, 1], [np.inf, np.nan]], r"step 0, expert 0 is inf.*3 such elements"),
    ([1, 2, 3], r"shape \(3,\).*\(T, m\)"),
    (np.zeros((3, 0)), r"shape \(3, 0\).*m >= 1"),
    (5.0, r"shape \(\)"),
])
def test_bad_loads(loads, message):
    with pytest.raises(ValueError, match=message):
        Problem(loads, 1)


@pytest.mark.parametrize("extra", [-1, 1.5, np.nan, True, None, "2", [3]])
def test_bad_extra(extra):
    with pytest.raises(ValueError, match="extra is .*whole number"):
        Problem([[1, 2]], extra)
    with pytest.raises(ValueError, match="extra is .*whole number"):
        best_response([1, 2], extra)


@pytest.mark.parametrize("change, message", [
    ({"move_price": -1.0}, "move_price is -1.0"), ({"move_price": np.inf}, "move_price is inf"),
    ({"start": [1, 2]}, "sums to 3.*extra = 2"), ({"start": [3, -1]}, "smallest element -1"), ({"start": [2]}, r"shape \(1,\)"),
    ({"start": [np.nan, 2]}, "sums to nan"),
])
def test_bad_problem(change, message):
    with pytest.raises(ValueError, match=message):
        Problem([[1, 2]], 2, **change)


def test_bad_schedule():
    p = Problem([[1, 2], [2, 1]], 2)
    with pytest.raises(ValueError, match=r"shape \(1, 2\)"):
        Schedule(p, [[1, 1]])
    with pytest.raises(ValueError, match="step 1 holds 3"):
        Schedule(p, [[1, 1], [2, 1]])
    with pytest.raises(ValueError, match="step 0 .*smallest count -1"):
        Schedule(p, [[3, -1], [2, 0]])
    with pytest.raises(ValueError, match="needs sum to 5"):
        lazy_cover([1, 1], [3, 2])


def test_schedule_is_recomputed_from_its_arrays():
    rng = np.random.default_rng(3)
    p = Problem(rng.uniform(0, 9, (20, 5)), 7, move_price=1.5)
    x = np.array([best_response(r, 7) for r in p.loads])
    s = Schedule(p, x)
    before = np.vstack([p.start, x[:-1]])
    assert s.cost == pytest.approx(sum(max(r / (1 + y)) for r, y in zip(p.loads, x)) + 1.5 * np.abs(x - before).sum() / 2)
    assert np.array_equal(s.moved, added(x, p.start)) and s.bound <= s.latency.sum()
    frame = s.to_frame()
    assert frame["cost"].sum() == pytest.approx(s.cost) and frame["ratio"].iloc[-1] == pytest.approx(s.ratio)
    assert experts.Schedule is Schedule


@settings(max_examples=100, deadline=None)
@given(st.floats(1e-6, 1e6), st.integers(0, 2**32 - 1))
def test_scaling_loads_and_price_changes_no_decision(scale, seed):
    rng = np.random.default_rng(seed)
    r, x = rng.integers(0, 30, 5).astype(float), rng.permutation([3, 2, 1, 0, 0])
    assert np.array_equal(myopic(r, x, 1.3), myopic(r * 2**10, x, 1.3 * 2**10))
    assert best_level(r * scale, 6) == pytest.approx(best_level(r, 6) * scale, rel=1e-9)
    assert np.array_equal(need(r, 2.0), need(r * 4, 8.0))
