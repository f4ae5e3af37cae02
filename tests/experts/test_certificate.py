"""The certificate for any policy, and runs: worked examples, roundings, what is refused."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings

from serving_or.experts import certificate
from serving_or.experts.certificate import Certificate, certified, run
from serving_or.experts.model import Problem, Schedule, water_level
from serving_or.experts.policies import Chase, Myopic, Never, Policy
from serving_or.experts.regularized_greedy import RegularizedGreedy
from serving_or.experts.relaxation import lower_bound, relax, step_bound
from serving_or.experts.rounding import Credit, Hysteresis, Threshold
from tests.instances import BAD_COUNTS, BAD_PRICES, WORKED, draw_start, online_problems
from tests.long import cases

few = settings(max_examples=cases(1000, 30))


class Wander(Policy):
    "Goes anywhere."

    def __init__(self, rng):
        self.rng = rng

    def place(self, loads):
        return draw_start(self.rng, loads.size, self.extra)


@few
@given(online_problems())
def test_certificate_is_below_the_relaxation_whoever_plays(case):
    p, eta, rng = case
    prefix = np.array(
        [
            relax(Problem(p.loads[: t + 1], p.extra, p.move_price, p.start)).value
            for t in range(p.steps)
        ]
    )
    level = np.cumsum(water_level(p.loads, p.extra))
    for policy in (Never(), RegularizedGreedy(eta), Wander(rng)):
        bounds = run(p, policy).bounds
        assert np.all(bounds <= prefix * (1 + 1e-9) + 1e-12)
        assert np.all(bounds >= level * (1 - 1e-9) - 1e-9 * p.extra * p.move_price) and np.all(
            np.diff(bounds) >= 0
        )
    alone = Certificate(p.start, p.extra, p.move_price)
    assert np.all(
        np.array([alone.step(r) for r in p.loads]) <= bounds * (1 + 1e-9) + 1e-9
    )  # a second source never hurts


def test_certificate_of_free_moves_and_of_nothing():
    r = np.random.default_rng(2).exponential(3.0, (5, 4))
    for w, k in [(0.0, 3), (2.0, 0), (1e9, 3)]:
        s = run(Problem(r, k, w), RegularizedGreedy())
        assert water_level(r, k).sum() * (1 - 1e-9) <= s.bound <= s.cost * (1 + 1e-9)
    assert run(Problem(np.zeros((3, 2)), 2), RegularizedGreedy()).summary().startswith("cost 0 ")


@pytest.mark.parametrize("name", WORKED)
def test_worked_examples(name):
    (loads, k, w), table = WORKED[name]
    p = Problem(loads, k, w)
    for who, (latency_, l1, cost) in table.items():
        s = run(
            p,
            {"never": Never, "chase": Chase, "myopic": Myopic}[who]()
            if isinstance(who, str)
            else RegularizedGreedy(who),
        )
        assert np.allclose(
            [s.latency.sum(), 2 * s.moved.sum(), s.cost], [latency_, l1, cost], atol=1.1e-3
        ), who


def test_worked_path_and_bounds():
    p = Problem(WORKED["equal"][0][0], 4)
    s = run(p, RegularizedGreedy())
    assert s.x[:, 0].round(2).tolist() == [2.94, 3.54, 3.94, 2.28, 3.11, 1.75, 0.91, 0.36]
    assert 42.946 <= s.bound <= relax(p).value and np.isclose(relax(p).value, 48.317, atol=1e-3)
    assert run(p, Chase()).x.dtype.kind == "i" and run(p, RegularizedGreedy()).x.dtype.kind == "f"


def test_rounding_protocol():
    """The rounding gets the start, then each step's loads and placement; the bound is the same."""

    class Floor:
        def start(self, x0, k, move_price):
            self.given, self.seen = (np.array(x0), k, move_price), []

        def step(self, loads, x):
            self.seen.append((loads, x))
            whole = np.floor(x + 1e-9).astype(int)
            whole[np.argmax(x - whole)] += self.given[1] - whole.sum()
            return whole

    p = Problem(np.random.default_rng(0).exponential(6.0, (12, 4)), 9, 1.5)
    rounding, fractional = Floor(), run(p, RegularizedGreedy())
    s = run(p, RegularizedGreedy(), rounding=rounding)
    assert rounding.given[1:] == (9, 1.5) and np.array_equal(rounding.given[0], p.start)
    assert np.array_equal([r for r, _ in rounding.seen], p.loads) and np.array_equal(
        [x for _, x in rounding.seen], fractional.x
    )
    assert s.x.dtype.kind == "i" and np.array_equal(s.bounds, fractional.bounds)


@few
@given(online_problems())
def test_every_pair_by_itself_is_at_most_the_certificate(case):
    """Multipliers of one rule along one path, written out as in the chapter."""
    p, eta, _ = case
    certificate = Certificate(p.start, p.extra, p.move_price)
    path = run(p, RegularizedGreedy(eta), certify=False).x
    bounds = np.array([certificate.step(r, x) for r, x in zip(p.loads, path)])
    n = 1 + np.vstack([p.start, path])
    for c in (1 / max(1, np.log1p(p.extra)), 0.3, 2.5):
        b = np.clip(c * p.move_price * np.log((1 + p.extra) / n), 0, p.move_price)
        assert np.all(lower_bound(p, b) <= bounds * (1 + 1e-9) + 1e-9 * p.extra * p.move_price)


def sequences(members, length):
    """Members one after the other, which change through 0 only."""
    if length == 1:
        yield from ((j,) for j in range(members))
        return
    for head in sequences(members, length - 1):
        yield from ((*head, j) for j in (range(members) if head[-1] == 0 else {head[-1], 0}))


@pytest.mark.parametrize("seed", range(4))
def test_the_recursion_finds_the_best_of_all_sequences(seed, monkeypatch):
    """Each sequence of a small pool, written out; the bound is the best on any prefix."""
    monkeypatch.setattr(certificate, "_SLOPES", (0.75, 2.5))
    monkeypatch.setattr(certificate, "_OFFSETS", (1.0, 1 / 8))
    rng = np.random.default_rng(seed)
    k, w = int(rng.integers(2, 9)), float(rng.choice([0.3, 2.0, 9.0]))
    p = Problem(np.repeat(10 * rng.exponential(1.0, (2, 3)), 2, axis=0), k, w)
    running = Certificate(p.start, k, w)
    rows, terms, best = [running._b], [], 0.0
    for t, r in enumerate(p.loads):
        before, bound = rows[-1], running.step(r, draw_start(rng, 3, k))
        rows.append(running._b)
        z = before[:, None] - running._b[None]
        terms.append(step_bound(r, z, k))
        for s in sequences(len(before), t + 2):
            value = sum(G[i, j] for G, i, j in zip(terms, s, s[1:]))
            value += k * rows[-1][s[-1]].min() - rows[0][s[0]] @ p.start
            best = max(best, value)
        assert np.isclose(bound, best, rtol=1e-7), t


def test_without_a_certificate():
    p = Problem(np.random.default_rng(0).exponential(6.0, (12, 4)), 9, 1.5)
    full, quick = run(p, RegularizedGreedy()), run(p, RegularizedGreedy(), certify=False)
    assert np.array_equal(full.x, quick.x)
    assert np.allclose(quick.bounds, np.cumsum(water_level(p.loads, 9)))
    assert full.bound > quick.bound


def test_runs_of_nothing():
    empty = run(Problem(np.empty((0, 3)), 2), RegularizedGreedy(), Credit())
    assert empty.cost == 0 and empty.bounds.size == 0 and empty.ratio == 1
    one = run(Problem([[5.0]] * 3, 7), RegularizedGreedy())
    assert np.isclose(one.ratio, 1.0)


def test_labels_come_along():
    frame = pd.DataFrame([[9.0, 1.0], [1.0, 9.0]], index=["Mon", "Tue"], columns=["a", "b"])
    schedule = run(Problem(frame, 4), Chase())
    assert schedule.to_frame().index.tolist() == ["Mon", "Tue"]
    assert schedule.counts_frame().columns.tolist() == ["a", "b"]


def test_a_run_prints_nothing_and_one_line_when_it_is_asked(capfd):
    p = Problem(np.random.default_rng(0).exponential(6.0, (12, 4)), 9)
    run(p, RegularizedGreedy(), Credit())
    assert capfd.readouterr() == ("", "")
    run(p, RegularizedGreedy(), verbose=True)
    said = capfd.readouterr()
    assert said.out == "" and "bound" in said.err and said.err.count("\n") <= 1


def test_a_result_goes_everywhere(tmp_path):
    p = Problem(np.random.default_rng(0).exponential(6.0, (6, 4)), 9)
    s = run(p, RegularizedGreedy())
    assert pickle.loads(pickle.dumps(s)) == s
    s.save(tmp_path / "run.json")
    assert Schedule.load(tmp_path / "run.json") == s


@pytest.mark.parametrize(
    "x0", [[np.nan, 4], [-1, 5], [1, 2], 4, [[2, 2]], None, ["2", "2"], [2j, 2]]
)
def test_a_certificate_starts_with_a_placement(x0):
    with pytest.raises(ValueError, match="x0"):
        Certificate(x0, 4)


@pytest.mark.parametrize("extra", BAD_COUNTS)
def test_a_certificate_starts_with_a_number_of_gpus(extra):
    with pytest.raises(ValueError, match="extra is"):
        Certificate([1, 1], extra)


@pytest.mark.parametrize("price", BAD_PRICES)
def test_a_certificate_starts_with_a_price(price):
    with pytest.raises(ValueError, match="move_price is"):
        Certificate([1, 1], 2, price)


@pytest.mark.parametrize(
    "loads, x, message",
    [
        ([np.nan, 1], [2, 2], r"step 2: loads\[0\] is nan"),
        ([1, -1], None, r"step 2: loads\[1\] is -1"),
        ([1, 1, 1], None, "step 2: loads has shape"),
        ([1, np.inf], None, "loads"),
        ([1, 1], [np.nan, 4], r"step 2: x\[0\] is nan"),
        ([1, 1], [[2, 2]], "step 2: x has shape"),
        ([1, 1], [-1, 5], r"step 2: x\[0\] is -1"),
    ],
)
def test_a_broken_measurement_does_not_end_a_certificate(loads, x, message):
    """After one NaN it went on for ever without growing; now the step is refused and undone."""
    certificate, other = Certificate([2, 2], 4), Certificate([2, 2], 4)
    for c in (certificate, other):
        c.step([20.0, 4.0])
        c.step([4.0, 20.0])
    with pytest.raises(ValueError, match=message):
        certificate.step(loads, x)
    assert certificate.step([20.0, 4.0], [1, 3]) == other.step([20.0, 4.0], [1, 3]) > 12


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1.0, 1e290])
@pytest.mark.parametrize("price", [0.0, 1e-300, 2.0, 1e290])
def test_extreme_numbers(scale, price):
    """A bound that holds, without a warning, whatever the units."""
    loads = scale * np.array([[3, 1, 0], [0, 0, 0], [1, 1, 1], [0, 2, 9]] * 3, float)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rounding in (None, Credit(), Hysteresis(), Threshold(1)):
            s = run(Problem(loads, 5, price), RegularizedGreedy(), rounding)
            assert np.isfinite(s.bound) and s.bound <= s.cost and np.all(np.diff(s.bounds) >= 0)


def test_the_live_example_draws():
    for player in ("regularised greedy", "chase", "never", "myopic"):
        for scale in (0.1, 4.0):
            assert "ratio" in certified(player, scale) and "nan" not in certified(player, scale)
