"""The worked examples to three decimals, recomputed from the policies."""

import numpy as np
import pytest

from serving_or.experts.certificate import run
from serving_or.experts.hindsight import dynamic_program
from serving_or.experts.model import Problem
from serving_or.experts.one_step import myopic
from serving_or.experts.regularized_greedy import RegularizedGreedy
from serving_or.experts.relaxation import relax
from serving_or.experts.rounding import threshold_mean
from serving_or.experts.spikes_and_shifts import (
    EXAMPLES,
    glance,
    glanced,
    phases,
    play,
    spike_and_shift,
    watch,
    watched,
)
from tests.instances import EIGHT_STEPS

PROBLEMS = {name: spike_and_shift(name) for name in EXAMPLES}

# latency, price of moves, total, path of expert 1
TABLE = {
    "E1": {
        "never": (53.333, 0, 53.333, [2] * 8),
        "chase": (32.000, 28, 60.000, [4, 4, 4, 0, 4, 0, 0, 0]),
        "myopic": (53.333, 0, 53.333, [2] * 8),
        "regularised greedy": (
            41.104,
            14.376,
            55.480,
            [2.94, 3.54, 3.94, 2.28, 3.11, 1.75, 0.91, 0.36],
        ),
        "with hysteresis": (53.333, 0, 53.333, [2] * 8),
        "with credit": (41.333, 16, 57.333, [2, 3, 4, 2, 3, 1, 1, 0]),
        "thresholds": (53.567, 5.049, 58.616, None),
        "turned round": (45.102, 9.218, 54.319, [2.57, 2.99, 3.31, 2.30, 2.78, 1.97, 1.41, 0.99]),
        "turned round, with credit": (41.333, 16, 57.333, [2, 3, 4, 2, 3, 1, 1, 0]),
        "one threshold": (53.518, 5.049, 58.567, None),
        "hindsight": (40.333, 8, 48.333, [3, 3, 3, 2, 2, 0, 0, 0]),
    },
    "E2": {
        "never": (58.000, 0, 58.000, [2] * 8),
        "chase": (34.800, 28, 62.800, [4, 4, 4, 0, 4, 0, 0, 0]),
        "myopic": (51.000, 2, 53.000, [2, 2, 2, 2, 2, 1, 1, 1]),
        "regularised greedy": (
            43.262,
            14.463,
            57.725,
            [2.87, 3.45, 3.85, 2.30, 3.07, 1.45, 0.53, 0],
        ),
        "with hysteresis": (58.000, 0, 58.000, [2] * 8),
        "with credit": (42.800, 16, 58.800, None),
        "thresholds": (55.699, 5.393, 61.091, None),
        "turned round": (47.771, 9.386, 57.157, None),
        "turned round, with credit": (43.700, 12, 55.700, [2, 3, 3, 2, 3, 1, 0, 0]),
        "one threshold": (55.312, 5.393, 60.704, None),
        "hindsight": (42.300, 8, 50.300, [3, 3, 3, 2, 2, 0, 0, 0]),
    },
    "E3": {
        "never": (48.000, 0, 48.000, [2] * 12),
        "chase": (28.800, 28, 56.800, None),
        "myopic": (48.000, 0, 48.000, [2] * 12),
        "regularised greedy": (37.584, 13.304, 50.888, None),
        "hindsight": (35.000, 8, 43.000, [3, 3, 3, 3, 3, 2, 2, 0, 0, 0, 0, 0]),
    },
    "E4": {
        "never": (38.000, 0, 38.000, [4] * 10),
        "chase": (21.111, 28, 49.111, None),
        "myopic": (38.000, 0, 38.000, [4] * 10),
        "regularised greedy": (30.002, 10.855, 40.857, None),
        "with hysteresis": (38.362, 5, 43.362, None),
        "hindsight": (28.711, 6, 34.711, [5, 5, 5, 5, 4, 4, 0, 0, 0, 0]),
    },
}
# example, eta, policy: latency, price of moves, total
OTHER_ETA = [
    ("E1", np.log(5), "regularised greedy", (37.898, 17.193, 55.091)),
    ("E2", 3.0, "regularised greedy", (37.563, 20.019, 57.582)),
    ("E2", 3.0, "with credit", (39.3, 16, 55.3)),
    ("E3", 3.0, "with credit", (37.2, 12, 49.2)),
    ("E4", 3.0, "with hysteresis", (31.621, 6, 37.621)),
]
DIGITS = 5.01e-4


def parts(schedule):
    moves = schedule.problem.move_price * schedule.moved.sum()
    return schedule.latency.sum(), moves, schedule.cost


@pytest.mark.parametrize("example", TABLE)
def test_tables_to_three_decimals(example):
    problem = PROBLEMS[example]
    played = play(problem) | {"hindsight": dynamic_program(problem)}
    for name, (*numbers, path) in TABLE[example].items():
        if "threshold" in name:
            path, common = played["regularised greedy"].x, name == "one threshold"
            slow, moved = (part.sum() for part in threshold_mean(problem, path, common))
            found = slow, problem.move_price * moved, slow + problem.move_price * moved
        else:
            found = parts(played[name])
            if path is not None:
                assert np.allclose(played[name].x[:, 0], path, atol=5.01e-3), (
                    name,
                    played[name].x[:, 0],
                )
        assert np.allclose(found, numbers, atol=DIGITS), (name, found)


@pytest.mark.parametrize("example, eta, name, numbers", OTHER_ETA)
def test_rows_of_other_eta(example, eta, name, numbers):
    assert np.allclose(parts(play(PROBLEMS[example], eta)[name]), numbers, atol=DIGITS)


@pytest.mark.parametrize("example", TABLE)
def test_bounds_are_below_every_policy_and_the_optimum(example):
    problem = PROBLEMS[example]
    played, best, relaxed = play(problem), dynamic_program(problem), relax(problem)
    assert (
        played["regularised greedy"].bound <= relaxed.value + 1e-6
        and relaxed.bound <= best.cost + 1e-9
    )
    for name, schedule in played.items():
        fractional = name in ("regularised greedy", "turned round")
        assert schedule.cost >= (relaxed.bound if fractional else best.cost) - 1e-9
        assert np.all(schedule.bounds <= np.cumsum(schedule.costs) + 1e-9)


def test_the_relaxations_of_the_first_two():
    assert abs(relax(PROBLEMS["E1"], tolerance=1e-7).value - 48.317) < DIGITS
    assert abs(relax(PROBLEMS["E2"], tolerance=1e-7).value - 50.194) < DIGITS


def test_one_certificate_serves_all():
    problem = PROBLEMS["E2"]
    assert np.array_equal(play(problem)["never"].bounds, run(problem, RegularizedGreedy()).bounds)


def test_where_myopic_freezes():
    for load, gpus in [(24.0, 2), (24.1, 3), (39.9, 3), (40.1, 4)]:
        assert myopic([load, 0.0], [2, 2], 2.0)[0] == gpus


def test_a_setting_where_credit_loses_to_both():
    loads = phases(((20, 4), 3), ((4, 20), 4), ((20, 4), 4), ((4, 20), 5))
    played = play(Problem(loads, 4, 3.0))
    costs = [played[name].cost for name in ("with credit", "never", "chase")]
    assert np.allclose(costs, [114.333, 106.667, 106.0], atol=DIGITS)
    picture = watch(4, 4, 12, 20, 20, 3.0, 1.0)
    assert all(f"<td>{cost:.3f}</td>" in picture for cost in costs)


@pytest.mark.parametrize("m, k", [(1, 3), (2, 0), (3, 1)])
@pytest.mark.parametrize("w", [0.0, 2.0, 1e9])
def test_corners(m, k, w):
    for loads in (np.zeros((2, m)), np.arange(1.0, m + 1)[None]):
        for schedule in play(Problem(loads, k, w)).values():
            assert np.isfinite(schedule.cost)


@pytest.mark.parametrize("setting", [(2, 0, 2), (15, 4, 17), (9, 2, 2)])
def test_the_live_example_takes_every_corner(setting):
    assert "best in hindsight" in watch(*setting)


def test_an_unknown_example_is_named():
    with pytest.raises(
        ValueError, match="example is 'E9'; it must be one of 'E1', 'E2', 'E3', 'E4'"
    ):
        spike_and_shift("E9")
    with pytest.raises(ValueError, match="steps of part 1 is -1"):
        phases(((1, 2), 1), ((2, 1), -1))


def test_the_first_example_is_the_one_of_the_first_chapter():
    assert np.array_equal(spike_and_shift("E1").loads, EIGHT_STEPS)


def test_no_schedule_is_below_hindsight_in_the_live_example():
    for setting in [(4, 1, 6), (4, 4, 12), (9, 2, 2)]:
        _, schedules = watched(*setting, 20, 20, 2.0, 1.0)
        best = schedules.pop("best in hindsight")
        whole = [s for s in schedules.values() if s.x.dtype.kind == "i"]
        assert len(whole) == len(schedules) - 1
        assert all(s.cost >= best.cost - 1e-9 for s in whole)


@pytest.mark.parametrize("length", [1, 5, 12])
@pytest.mark.parametrize("move_price", [2.0, 8.0])
def test_the_front_page_says_what_the_policies_cost(length, move_price):
    """With one jump, by hand: never and the chase, from (4, 0) where the first load belongs."""
    schedules = glanced(length, move_price)
    assert np.isclose(schedules["never"].cost, 4 * (16 - length) + 20 * length)
    moved = 4 if length == 12 else 8
    assert np.isclose(schedules["chase"].cost, 4 * 16 + move_price * moved)
    best = schedules["hindsight"].cost
    assert all(s.cost >= best - 1e-9 for s in schedules.values())
    said = ", ".join(f"{n} {schedules[n].cost / best:.2f}" for n in ("never", "chase", "hedge"))
    assert said in glance(length, move_price)


def test_the_others_play_the_same_without_the_entropy_turned_round():
    problem = spike_and_shift("E1")
    every, most = play(problem, 2.0), play(problem, 2.0, turned=False)
    assert [name for name in every if name not in most] == [
        "turned round",
        "turned round, with hysteresis",
        "turned round, with credit",
    ]
    assert all(np.array_equal(every[name].x, s.x) for name, s in most.items())


def test_what_the_live_example_plays():
    "Spike and shift begin and end where they say, with their own heights, at the price and eta."
    problem, schedules = watched(3, 2, 7, 11, 30, 3.0, 2.5)
    loads = [[20, 4]] * 2 + [[4, 11]] * 2 + [[20, 4]] * 2 + [[4, 30]] * 10
    assert problem.loads.tolist() == loads
    assert problem.extra == 4 and problem.move_price == 3.0 and problem.start.tolist() == [2, 2]
    right = run(problem, RegularizedGreedy(2.5))
    assert np.array_equal(schedules["regularised greedy"].x, right.x)
    # a shift before the spike is over: the shift's loads
    assert watched(3, 5, 5, 11, 30, 3.0, 1.0)[0].loads[1:6, 1].tolist() == [4, 11, 11, 30, 30]


@pytest.fixture
def drawn(monkeypatch):
    "What the figures are given, by the name of the plot."
    from serving_or.tools import plots

    given = {"lines": [], "bars": [], "table": []}
    for name, kept in given.items():
        plot = getattr(plots, name)

        def keeps(*arguments, plot=plot, kept=kept, **options):
            kept.append(arguments)
            return plot(*arguments, **options)

        monkeypatch.setattr(plots, name, keeps)
    return given


def test_what_the_live_example_shows(drawn):
    setting = (3, 2, 7, 11, 30, 3.0, 2.5)
    watch(*setting)
    problem, schedules = watched(*setting)
    (paths,), (loads,) = drawn["lines"]
    assert len(paths) == 5
    assert all(np.array_equal(path, schedules[name].x[:, 0]) for name, path in paths.items())
    for i in (1, 2):
        assert np.array_equal(loads[f"load of expert {i}"], problem.loads[:, i - 1])
    ((columns, rows),) = drawn["table"]
    assert columns[1:] == ["latency", "GPUs added", "cost", "certified ratio"]
    assert [row[0] for row in rows] == [*schedules, "with one threshold, mean"]
    bound = schedules["regularised greedy"].bound
    one = threshold_mean(problem, schedules["regularised greedy"].x, True)
    for name, *numbers in rows:
        s = schedules.get(name)
        slow, moved = (s.latency, s.moved) if s else one
        cost = slow.sum() + 3.0 * moved.sum()
        assert np.allclose(numbers, [slow.sum(), moved.sum(), cost, cost / bound])


def test_what_the_front_page_shows(drawn):
    glance(5, 6.0)
    schedules = glanced(5, 6.0)
    ((paths,),), ((names, series, _),) = drawn["lines"], drawn["bars"]
    assert list(paths) == names == list(schedules) == ["never", "chase", "hedge", "hindsight"]
    for name, slow, moves in zip(names, series["latency"], series["moves"]):
        s = schedules[name]
        assert np.array_equal(paths[name], s.x[:, 0])
        assert np.isclose(slow, s.latency.sum()) and np.isclose(slow + moves, s.cost)
    right = run(schedules["never"].problem, RegularizedGreedy())
    assert np.array_equal(schedules["hedge"].x, right.x)
