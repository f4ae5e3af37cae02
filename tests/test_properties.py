"""Every policy, rounding, predictor and certificate of the experts: what each of them promises.

The classes come from the part's ``__all__``, so a new one is covered at once. One that needs
arguments is named in ``MADE``.
"""

import copy
import inspect
import pickle
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from serving_or import experts
from serving_or.experts import Policy, Rounding
from serving_or.experts.one_step import best_response, lazy_chase
from serving_or.experts.policies import with_parts
from serving_or.experts.predictions import Predictor
from tests.experts.oracles import Exact, over_scales
from tests.long import cases

GREEDY = experts.RegularizedGreedy
MADE = {
    "Follow": {
        "": lambda: experts.Follow(experts.last, 2),
        "committed": lambda: experts.Follow(experts.last, 2, commit=True, seed=1),
        "ewma": lambda: experts.Follow(experts.ewma(0.5), 3),
    },
    "Mix": {
        "": lambda: experts.Mix([experts.Never(), GREEDY(), experts.Follow(experts.last, 2)]),
        "linear": lambda: experts.Mix(
            [experts.ReverseEntropy(), GREEDY(), experts.Never()], weights="linear"
        ),
        "drawn": lambda: experts.Mix([experts.Chase(), experts.Myopic()], 0.5, seed=3),
        "nested": lambda: experts.Mix([experts.Mix([GREEDY(0.1), GREEDY()]), experts.Chase()]),
    },
    "Rounded": {
        "": lambda: experts.Rounded(GREEDY(), experts.Credit()),
        "threshold": lambda: experts.Rounded(GREEDY(), experts.Threshold(5)),
        "thresholds": lambda: experts.Rounded(GREEDY(), experts.Threshold(5, common=False)),
    },
    "RegularizedGreedy": {"": GREEDY, "3": lambda: GREEDY(3.0)},
    "ReverseEntropy": {"": experts.ReverseEntropy, "2": lambda: experts.ReverseEntropy(2.0)},
    "Threshold": {"": experts.Threshold, "each": lambda: experts.Threshold(3, common=False)},
    "Hysteresis": {"": experts.Hysteresis, "narrow": lambda: experts.Hysteresis(1.3)},
    "Credit": {"": experts.Credit, "little": lambda: experts.Credit(0.3)},
    "seasonal": {"": lambda: experts.seasonal(2)},
    "ewma": {"": lambda: experts.ewma(0.3)},
    "last": {"": lambda: experts.last},
}


def made(is_one):
    "Name to maker, for the doors that are of a kind."
    found = {}
    for name in experts.__all__:
        thing = getattr(experts, name)
        if is_one(thing):
            for how, make in MADE.get(name, {"": thing}).items():
                found[f"{name}({how})" if how else name] = make
    return found


def subclass_of(kind):
    return lambda thing: inspect.isclass(thing) and issubclass(thing, kind) and thing is not kind


def predicts(thing):
    "A predictor, or a function that makes one."
    if not inspect.isfunction(thing):
        return False
    return inspect.signature(thing).return_annotation is Predictor or thing is experts.last


def certifies(thing):
    return (
        inspect.isclass(thing)
        and hasattr(thing, "step")
        and hasattr(thing, "__init__")
        and ("x0" in inspect.signature(thing).parameters)
    )


POLICIES = made(subclass_of(Policy))
ROUNDINGS = made(subclass_of(Rounding))
PREDICTORS = made(predicts)
CERTIFICATES = made(certifies)
LOADS = np.array([[20, 4, 1], [20, 4, 2], [1, 20, 4], [3, 3, 3], [0, 0, 0], [1, 2, 30.0]])
START, EXTRA, PRICE = [2, 1, 1], 4, 2.0
# where a rounding is led: fractional, and away from its start
PATH = np.array(
    [[2.6, 0.9, 0.5], [3.4, 0.6, 0], [1.2, 2.7, 0.1], [0, 4, 0], [1, 1, 2], [0, 0, 4.0]]
)


class Walk:
    "Any of the three, under one name: begun, and given step after step."

    def __init__(self, kind, make):
        self.kind, self.make = kind, make

    def begin(self, x0=START, extra=EXTRA, price=PRICE):
        if self.kind == "certificate":
            return self.make(x0, extra, price)
        rule = self.make()
        rule.start(x0, extra, price)
        return rule

    def step(self, rule, loads, x):
        if self.kind == "rounding":
            return rule.step(loads, x)
        return rule.step(loads)

    def steps(self, rule, loads=LOADS, path=PATH):
        return [np.copy(self.step(rule, r, x)) for r, x in zip(loads, path)]


WALKS = {name: Walk("policy", make) for name, make in POLICIES.items()}
WALKS |= {name: Walk("rounding", make) for name, make in ROUNDINGS.items()}
WALKS |= {name: Walk("certificate", make) for name, make in CERTIFICATES.items()}
every_one = pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS)


def test_all_kinds_are_there():
    assert {"Never", "Chase", "Myopic", "RegularizedGreedy", "Follow", "Mix"} <= set(POLICIES)
    assert {"Threshold", "Hysteresis", "Credit"} <= set(ROUNDINGS)
    assert (
        set(PREDICTORS) == {"last", "ewma", "seasonal", "cautious"}
        and "Certificate" in CERTIFICATES
    )
    assert set(MADE) <= set(experts.__all__)


# room for the next step's numbers, which may hold anything
SCRATCH = {("Certificate", "_next")}


def state(rule):
    "All that a rule and its parts hold, so that it can be compared."
    held = []
    for part in with_parts(rule):
        for name, value in sorted(vars(part).items()):
            if (type(part).__name__, name) in SCRATCH:
                continue
            if isinstance(value, np.ndarray):
                value = (value.dtype.str, value.shape, value.tobytes())
            elif isinstance(value, np.random.Generator):
                value = repr(value.bit_generator.state)
            elif isinstance(value, list | tuple) and any(hasattr(v, "step") for v in value):
                value = [id(v) for v in value]
            elif isinstance(value, list | tuple | dict):
                value = repr(value)
            held.append((type(part).__name__, name, value))
    return held


def equal(one, two):
    return len(one) == len(two) and all(np.array_equal(a, b) for a, b in zip(one, two))


# Legal at any scale

SCALES = [5e-324, 1e-320, 1e-310, 1e-300, 1e-12, 1.0, 1e12, 1e300]


@pytest.mark.parametrize("scale", SCALES)
@every_one
def test_denormal_tiny_and_huge_loads_and_prices(walk, scale):
    for price in (0.0, 5e-324, 1e-310, scale, min(scale * 1e6, 1e300), 1e300):
        with np.errstate(under="ignore"):
            loads = LOADS * scale
        rule, before = walk.begin(price=price), 0.0
        for x in walk.steps(rule, loads):
            if walk.kind == "certificate":
                assert before <= x < np.inf
                before = x
            else:
                assert (x >= 0).all() and abs(x.sum() - EXTRA) <= 4e-6
                assert walk.kind != "rounding" or x.dtype.kind == "i"


@pytest.mark.parametrize("power", [-200, 200])
@every_one
def test_a_unit_changes_nothing(walk, power):
    unit = 2.0**power
    one = walk.steps(walk.begin())
    two = walk.steps(walk.begin(price=PRICE * unit), LOADS * unit)
    if walk.kind == "certificate":
        two = [b / unit for b in two]
    assert np.allclose(one, two, rtol=1e-9, atol=1e-12)


@every_one
def test_one_expert_and_no_gpu(walk):
    for m, k in ((1, 0), (1, 3), (3, 0)):
        x = np.full(m, k // m)
        rule = walk.begin(x, k)
        for found in walk.steps(rule, LOADS[:, :m], np.tile(x, (6, 1))):
            assert walk.kind == "certificate" or found.tolist() == x.tolist()


@every_one
def test_layers_together_are_layers_alone_or_refused(walk):
    "Those that take several layers place, round and bound each of them as if it were alone."
    loads = np.stack([LOADS, LOADS[::-1], np.roll(LOADS, 1, axis=1)], axis=1)
    path = np.stack([PATH, PATH[::-1], np.roll(PATH, 1, axis=1)], axis=1)
    starts = np.array([START, START[::-1], [4, 0, 0]])
    try:
        together = walk.begin(starts)
    except ValueError as error:
        assert "layer" in str(error) and walk.kind == "policy"
        return
    drawn = any(isinstance(part, experts.Threshold) for part in with_parts(together))
    found = walk.steps(together, loads, path)
    for n in range(3):
        alone = walk.steps(walk.begin(starts[n]), loads[:, n], path[:, n])
        mine = [x[n] for x in found]
        # several layers draw several thresholds
        assert drawn or np.allclose(mine, alone, rtol=1e-9, atol=1e-12)
    spoilt = loads[0].copy()
    spoilt[1, 1] = np.nan
    before = state(together)
    with pytest.raises(ValueError):
        walk.step(together, spoilt, path[0])
    assert state(together) == before


# What cannot be a load

BAD = [
    [np.nan, 1.0, 1.0], [np.inf, 1, 1], [-1.0, 1, 1], [-5e-324, 1, 1], [1.0, 1.0], [[1, 1, 1]], 3,
    None, "loads", ["a", "b", "c"], ["1", "2", "3"], [1j, 0, 0], [None, 1, 1], [],
    np.ma.masked_array([1.0, 2, 3], [True, False, False]),
]  # fmt: skip


@every_one
def test_what_cannot_be_a_load_is_refused_and_leaves_no_trace(walk):
    undisturbed = walk.steps(walk.begin())
    rule, found = walk.begin(), []
    for r, x in zip(LOADS, PATH):
        for bad in BAD:
            before = state(rule)
            with pytest.raises(ValueError):
                walk.step(rule, bad, x)
            assert state(rule) == before
        found.append(np.copy(walk.step(rule, r, x)))
    assert equal(found, undisturbed)


@pytest.mark.parametrize("name", ROUNDINGS)
def test_what_cannot_be_a_placement_is_refused_and_leaves_no_trace(name):
    rule = WALKS[name].begin()
    bad = [[np.nan, 2, 2], [-1.0, 3, 2], [1.0, 3], [np.inf, 0, 0], "abc", [1j, 2, 1]]
    bad += [[4.0, 4, 4]]
    rule.step(LOADS[0], PATH[0])
    for x in bad:
        before = state(rule)
        with pytest.raises(ValueError):
            rule.step(LOADS[1], x)
        assert state(rule) == before


BAD_STARTS = [
    ([2, 1, np.nan], 4, 2.0), ([2, 1, 2], 4, 2.0), ([5, -1, 0], 4, 2.0), ([2, 1, 1], 4, np.nan),
    ([2, 1, 1], 4, -1.0), ([2, 1, 1], 4, np.inf), ([2, 1, 1], np.inf, 2.0), ([2, 1, 1], 4.5, 2.0),
    ([2, 1, 1], -4, 2.0), ([], 0, 2.0), (None, 4, 2.0), ([2, 1, 1], True, 2.0), ("abc", 4, 2.0),
]  # fmt: skip


@every_one
def test_what_cannot_be_a_start_is_refused_and_leaves_no_trace(walk):
    for x0, extra, price in BAD_STARTS:
        with pytest.raises(ValueError):
            walk.begin(x0, extra, price)
        if walk.kind != "certificate":
            rule = walk.begin()
            walk.step(rule, LOADS[0], PATH[0])
            before = state(rule)
            with pytest.raises(ValueError):
                rule.start(x0, extra, price)
            assert state(rule) == before


# Memory


@every_one
def test_nothing_is_shared_with_the_caller(walk):
    "What goes in may be refilled, what comes out may be changed."
    expected = walk.steps(walk.begin())
    x0 = np.array(START)
    rule, loads, path = walk.begin(x0), np.empty(3), np.empty(3)
    x0[:] = 99
    for r, x, right in zip(LOADS, PATH, expected):
        # one buffer for all steps
        loads[:], path[:] = r, x
        answer = walk.step(rule, loads, path)
        assert np.array_equal(answer, right)
        assert loads.tolist() == r.tolist() and path.tolist() == x.tolist()
        loads[:], path[:] = np.nan, -1.0
        if isinstance(answer, np.ndarray):
            answer += 7


@every_one
def test_any_memory_will_do(walk):
    "Read-only, strided, reversed, other types and byte orders, lists."
    expected = walk.steps(walk.begin())
    wide = np.full((6, 7), np.nan)
    wide[:, 1:6:2] = LOADS
    still = LOADS.copy()
    still.flags.writeable = False
    guises = [wide[:, 1:6:2], still, np.asfortranarray(LOADS), LOADS[:, ::-1].copy()[:, ::-1]]
    guises += [LOADS.astype(t) for t in (">f8", "f4", "f2", "i8", "u1", object)]
    for loads in [*guises, LOADS.tolist()]:
        assert equal(walk.steps(walk.begin(), loads), expected)


@every_one
def test_started_again_copied_and_sent(walk):
    expected, rule = walk.steps(walk.begin()), walk.begin()
    begun = walk.steps(rule, LOADS[:3])
    copies = [copy.deepcopy(rule)]
    if "Follow" not in repr([type(part).__name__ for part in with_parts(rule)]):
        copies.append(pickle.loads(pickle.dumps(rule)))
    before = state(rule)
    for one in [*copies, rule]:
        # what a copy does is no matter of the rule
        assert one is not rule or state(rule) == before
        assert equal(begun + walk.steps(one, LOADS[3:], PATH[3:]), expected)
    if walk.kind != "certificate":
        rule.start(START, EXTRA, PRICE)
        assert equal(walk.steps(rule), expected)


def do_not_meet(walk):
    "Two in turn, on different ways, each as if it were alone; neither's step changes the other."
    ways = {(2, 1, 1): (LOADS, PATH, PRICE), (0, 0, 4): (LOADS[::-1, ::-1], PATH[::-1], 0.5)}
    alone = [walk.steps(walk.begin(x0, price=w), r, x) for x0, (r, x, w) in ways.items()]
    both = [walk.begin(x0, price=w) for x0, (_, _, w) in ways.items()]
    for t, n in product(range(len(LOADS)), range(2)):
        loads, path, _ = list(ways.values())[n]
        other = state(both[1 - n])
        assert np.array_equal(walk.step(both[n], loads[t], path[t]), alone[n][t])
        assert state(both[1 - n]) == other


@every_one
def test_two_of_them_do_not_meet(walk):
    do_not_meet(walk)


class OnTheClass(experts.Chase):
    "What must not be: one placement for all of its kind."

    held = None

    def start(self, x0, extra, move_price=2.0):
        super().start(x0, extra, move_price)
        OnTheClass.held = self.x

    def place(self, loads):
        OnTheClass.held = lazy_chase(loads, OnTheClass.held)
        return OnTheClass.held


class ByDefault(Policy):
    "What must not be: a list that all of its kind were given, and what it says depends on it."

    whole = True

    def __init__(self, seen=[]):  # noqa: B006
        self.seen = seen

    def start(self, x0, extra, move_price=2.0):
        super().start(x0, extra, move_price)
        self.seen.clear()

    def place(self, loads):
        self.seen.append(loads)
        return best_response(np.mean(self.seen, axis=0), self.extra)


@pytest.mark.parametrize("make", [OnTheClass, ByDefault])
def test_a_policy_that_shares_its_state_would_be_noticed(make):
    with pytest.raises(AssertionError):
        do_not_meet(Walk("policy", make))


# All or nothing


class Failure(Exception):
    pass


def parts_that_work(rule):
    "Every object in a rule that is stepped, and the method that does its work."
    for part in with_parts(rule):
        for name in ("place", "targets", "spend", "_advance"):
            if hasattr(part, name):
                yield part, name


@pytest.mark.parametrize("error", [Failure, KeyboardInterrupt, MemoryError])
@every_one
def test_a_step_happens_whole_or_not_at_all(walk, error):
    "Whatever part of a rule fails, before its work or after it, and in whichever step."
    expected = walk.steps(walk.begin())
    places = list(parts_that_work(walk.begin()))
    assert places
    for n, late in product(range(len(places)), (False, True)):
        rule, found = walk.begin(), []
        part, name = list(parts_that_work(rule))[n]
        works = getattr(part, name)

        def fails(*arguments, works=works, late=late):
            if late:
                works(*arguments)
            raise error

        for r, x in zip(LOADS, PATH):
            before = state(rule)
            setattr(part, name, fails)
            with pytest.raises(error):
                walk.step(rule, r, x)
            delattr(part, name)
            assert state(rule) == before
            found.append(np.copy(walk.step(rule, r, x)))
        assert equal(found, expected)


@pytest.mark.parametrize("name", PREDICTORS)
def test_a_forecast_that_fails_or_is_none_leaves_no_trace(name):
    predict = PREDICTORS[name]()
    answers = [None, -1.0, np.full((2, 3), np.nan), np.ones((2, 4)), np.ones((9, 3)), Failure]

    def flaky(seen, horizon):
        answer = next(said)
        if answer is Failure:
            raise Failure
        return predict(seen, horizon) if answer == "good" else answer

    said = iter(["good"] * 99)
    policy, expected = experts.Follow(flaky, 2), []
    policy.start(START, EXTRA, PRICE)
    expected = [policy.step(r) for r in LOADS]
    policy.start(START, EXTRA, PRICE)
    for r, right in zip(LOADS, expected):
        for answer in answers:
            said, before = iter([answer]), state(policy)
            with pytest.raises((ValueError, Failure)):
                policy.step(r)
            assert state(policy) == before
        said = iter(["good"])
        assert np.array_equal(policy.step(r), right)


# Predictors


@pytest.mark.parametrize("name", PREDICTORS)
def test_a_predictor_gives_rows_of_loads_at_any_scale_and_shares_nothing(name):
    predict = PREDICTORS[name]()
    for scale, horizon in product([0.0, *SCALES], (0, 1, 5)):
        with np.errstate(under="ignore"):
            seen = LOADS * scale
        still = seen.copy()
        still.flags.writeable = False
        ahead = predict(still, horizon)
        assert ahead.shape == (horizon, 3) and np.isfinite(ahead).all() and (ahead >= 0).all()
        assert (ahead <= seen.max(initial=0) * (1 + 1e-12)).all()
        again = predict(seen, horizon)
        assert np.array_equal(again, ahead)
        if again.flags.writeable:
            again += 1
        assert np.array_equal(seen, still)
    # as far back as it looks, and no further
    assert np.array_equal(predict(LOADS[:1], 2), np.tile(LOADS[0], (2, 1)))


# Against the oracles, at any scale


def bounds_and_costs(problem, exact, schedule, whole):
    "A schedule's bounds are below the optimum of each prefix, its cost is what it says."
    best = exact.best()
    slack = Fraction(5e-324) * 8 * problem.steps * (problem.experts + 2)
    near = Fraction(1 + 1e-9)
    for t, bound in enumerate(schedule.bounds):
        assert Fraction(bound) <= best[t] * near + slack + best[-1] * Fraction(1e-9)
    assert schedule.bound <= schedule.cost and Fraction(schedule.bound) <= best[-1] * near + slack
    if whole:
        cost = exact.cost(schedule.x)
        assert abs(Fraction(schedule.cost) - cost) <= cost * Fraction(1e-12) + slack
        assert best[-1] <= cost
        assert schedule.status != "optimal" or cost <= best[-1] * Fraction(1 + 2e-6) + slack


@pytest.mark.parametrize("part", range(4))
def test_what_run_says_of_every_policy_and_rounding(part):
    for seed in range(part, cases(1000, 100), 4):
        problem = over_scales(seed)
        exact = Exact(problem)
        names = list(product(POLICIES, [None, *ROUNDINGS]))
        # two pairs a problem in turn, so that every pair meets every kind of problem
        for i in range(2):
            policy, rounding = names[(2 * seed + i) % len(names)]
            rule = None if rounding is None else ROUNDINGS[rounding]()
            schedule = experts.run(problem, POLICIES[policy](), rule)
            whole = rule is not None or schedule.x.dtype.kind == "i"
            bounds_and_costs(problem, exact, schedule, whole)


@pytest.mark.parametrize("name", CERTIFICATES)
def test_a_certificate_is_below_the_optimum_of_every_prefix(name):
    for seed in range(cases(1000)):
        problem = over_scales(seed)
        best = Exact(problem).best()
        certificate = CERTIFICATES[name](problem.start, problem.extra, problem.move_price)
        slack = Fraction(5e-324) * 8 * problem.steps * (problem.experts + 2)
        for t, r in enumerate(problem.loads):
            assert Fraction(certificate.step(r)) <= best[t] * Fraction(1 + 1e-9) + slack


def test_what_relax_and_the_placements_say():
    for seed in range(cases(1000)):
        problem = over_scales(seed)
        exact = Exact(problem)
        best, slack = exact.best()[-1], Fraction(5e-324) * 8 * problem.steps * (problem.experts + 2)
        near = Fraction(1 + 1e-9)
        for limit in (None, 0, 0.05):
            found = experts.relax(problem, time_limit=limit)
            assert Fraction(found.bound) <= best * near + slack and found.bound <= found.value
            assert found.status != "optimal" or found.gap <= 1e-6
            static = exact.static()
            for place in (experts.place, experts.place_exact):
                at = place(problem.loads, problem.extra, time_limit=limit)
                assert Fraction(at.bound) <= static * near + slack and at.bound <= at.value
                assert static <= Fraction(at.value) * near + slack
                if at.status == "optimal":
                    assert Fraction(at.value) <= static * Fraction(1 + 2e-6) + slack
