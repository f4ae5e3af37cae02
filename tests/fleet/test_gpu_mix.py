"""Mixes against all assignments and all counts; prices against duality; refusals against both."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from serving_or.fleet.gpu_mix import (
    SPEEDS,
    Fleet,
    GpuMix,
    fleet_text,
    greedy,
    mix,
    mix_by_enumeration,
    mix_for,
    mix_program,
    price_bound,
    price_of,
    prices_for,
    read_fleet,
    roofline,
    slices_of,
    write_fleet,
)
from serving_or.tools.answers import Clock, Infeasible, NotFound, Status
from serving_or.tools.data import load_requests
from serving_or.tools.files import BadFile
from serving_or.tools.models import CARDS, GPUS
from serving_or.tools.programs import solve
from tests.long import cases


def made(seed, classes=4, types=3):
    "A small fleet: zeros, ties, equal rents, stocks from none to enough, classes without demand."
    g = np.random.default_rng(seed)
    S, G = g.integers(1, classes + 1), g.integers(1, types + 1)
    u = g.integers(0, 7, (S, G)) / g.choice([1, 2, 3])
    demand = g.integers(0, 6, S) * g.choice([0.5, 1, 1.7])
    rent = g.integers(0, 5, G) * g.choice([1.0, 0.3])
    stock = np.where(g.random(G) < 0.5, g.integers(0, 5, G), np.inf)
    return Fleet(demand, u, rent, stock, split=bool(g.random() < 0.5))


def carried(fleet, count):
    "Whether so many GPUs serve the demand when classes are split."
    busy = fleet.busy
    s, g = np.nonzero(np.isfinite(busy) & (fleet.demand[:, None] > 0))
    some = np.flatnonzero(fleet.demand > 0)
    if not set(some) <= set(s):
        return False
    if not len(some):
        return True
    equal = (s[None] == some[:, None]).astype(float)
    load = (g[None] == np.arange(len(count))[:, None]) * busy[s, g]
    done = linprog(np.zeros(len(s)), load, count, equal, np.ones(len(some)), bounds=(0, None))
    return done.status == 0


def best(fleet):
    "The least rent by enumeration; infinite when there is no mix."
    if not fleet.split:
        values = [np.inf]
        types = [
            np.flatnonzero(row > 0) if r > 0 else [0]
            for row, r in zip(fleet.throughput, fleet.demand)
        ]
        for to in product(*types):
            load = np.zeros(len(fleet.rent))
            for s, g in enumerate(to):
                load[g] += fleet.busy[s, g] if fleet.demand[s] > 0 else 0
            count = np.ceil(load - 1e-9)
            if (count <= fleet.stock).all():
                values.append(fleet.rent @ count)
        return min(values)
    most = np.ceil(np.where(np.isfinite(fleet.busy), fleet.busy, 0).sum(axis=0))
    every = product(*[range(int(min(m, k)) + 1) for m, k in zip(most, fleet.stock)])
    values = sorted((float(fleet.rent @ c), c) for c in every)
    return next((v for v, c in values if carried(fleet, np.array(c))), np.inf)


@pytest.mark.parametrize("seed", range(cases(1600, 150)))
def test_every_mix_is_the_best_of_all(seed):
    fleet = made(seed)
    if fleet.split and np.where(np.isfinite(fleet.busy), fleet.busy, 0).sum() > 40:
        fleet = replace(fleet, demand=fleet.demand / 4)
    value = best(fleet)
    try:
        answer = mix_for(fleet, Clock(20))
    except Infeasible as error:
        assert value == np.inf
        if error.nearest is None:
            assert ((fleet.demand > 0) & ~(fleet.throughput > 0).any(axis=1)).any()
            return
        # what it names has an answer, and no stock with an answer costs less to add
        more = replace(fleet, stock=error.nearest)
        assert np.isfinite(best(more)) and mix_for(more, Clock(20)).status == "optimal"
        theta = error.largest
        if 0 < theta < np.inf:
            fits = replace(fleet, demand=fleet.demand * min(theta, 1), split=True)
            assert (mix_for(fits, Clock(20)).count <= fleet.stock).all()
        return
    assert answer.status == "optimal" and np.isclose(answer.value, value)
    assert answer.bound <= answer.value
    # it serves what is asked, with what there is
    some = fleet.demand > 0
    assert np.allclose(answer.share[some].sum(axis=1), 1) and (answer.count <= fleet.stock).all()
    assert (answer.loads <= answer.count + 1e-6).all()


@pytest.mark.parametrize("seed", range(cases(2000, 100)))
def test_any_prices_prove_a_bound_and_the_best_are_the_relaxation(seed):
    fleet = made(seed)
    if not ((fleet.throughput > 0).any(axis=1) | (fleet.demand == 0)).all():
        return
    relaxed = solve(mix_program(fleet), relaxed=True)
    rng = np.random.default_rng(seed)
    limited = np.isfinite(fleet.stock)
    if relaxed.status != "optimal":
        return
    w = prices_for(fleet, Clock())
    assert np.isclose(price_bound(fleet, w), relaxed.value, rtol=1e-6, atol=1e-9)
    for _ in range(5):
        guess = np.where(limited, rng.exponential(1.0, len(limited)) * (rng.random() < 0.8), 0)
        assert price_bound(fleet, guess) <= relaxed.value * (1 + 1e-9) + 1e-9
    # the prices of one demand and stock bound the relaxation of every other
    pi = np.where(np.isfinite(price_of(fleet, w)), price_of(fleet, w), 0)
    for _ in range(3):
        demand = fleet.demand * rng.choice([0, 0.5, 1, 2], len(fleet.demand))
        stock = np.maximum(fleet.stock + rng.integers(-1, 3, len(limited)), 0)
        other = solve(mix_program(replace(fleet, demand=demand, stock=stock)), relaxed=True)
        paid = (demand - fleet.demand) @ pi - (stock[limited] - fleet.stock[limited]) @ w[limited]
        if other.status == "optimal":
            assert other.value >= relaxed.value + paid - 1e-6 * (1 + abs(relaxed.value) + abs(paid))


@pytest.mark.parametrize("seed", range(cases(1000, 60)))
def test_prices_are_slopes_of_the_relaxation(seed):
    "The relaxation is convex in stock and demand, so a price lies between its two slopes."
    fleet = made(seed)
    base = solve(mix_program(fleet), relaxed=True)
    if base.status != "optimal" or not (fleet.stock > 1).all():
        return
    w, eps = prices_for(fleet, Clock()), 1e-3
    for g in np.flatnonzero(np.isfinite(fleet.stock)):
        for step in (eps, -eps):
            stock = fleet.stock.copy()
            program = mix_program(fleet, np.where(np.arange(len(stock)) == g, stock + step, stock))
            changed = solve(program, relaxed=True)
            if changed.status == "optimal":
                # a subgradient of a convex function: value(K + d) >= value(K) - w d
                assert changed.value >= base.value - w[g] * step - 1e-7
    p = GpuMix(
        replace(fleet, split=True, stock=np.full(len(w), np.inf)),
        np.full(len(w), 1000),
        np.where(fleet.demand[:, None] > 0, _first(fleet), 0),
        w,
        0.0,
        "feasible",
    ).price
    assert np.isclose(
        p[fleet.demand > 0] @ fleet.demand[fleet.demand > 0]
        - sum(a * b for a, b in zip(w, fleet.stock) if a > 0),
        base.value,
        rtol=1e-6,
        atol=1e-9,
    )


def _first(fleet):
    "Each class on the first type that can serve it."
    able = fleet.throughput > 0
    return able & (np.cumsum(able, axis=1) == 1)


@pytest.mark.parametrize("seed", range(cases(1000, 60)))
def test_laws(seed):
    "Split is never dearer; more stock and less demand neither; units do not matter."
    fleet = replace(made(seed), split=False)

    def rent(f):
        try:
            return mix_for(f, Clock(20)).value
        except Infeasible:
            return np.inf

    value = rent(fleet)
    split = replace(fleet, split=True)
    assert rent(split) <= value + 1e-9
    assert rent(replace(fleet, stock=fleet.stock + 1)) <= value + 1e-9
    assert rent(replace(fleet, demand=fleet.demand * 0.7)) <= value + 1e-9
    assert np.isclose(rent(replace(fleet, rent=fleet.rent * 7)), 7 * value) or value == np.inf
    minutes = replace(fleet, demand=fleet.demand * 60, throughput=fleet.throughput * 60)
    assert np.isclose(rent(minutes), value) or value == np.inf
    order = np.random.default_rng(seed).permutation(len(fleet.demand))
    mixed = replace(fleet, demand=fleet.demand[order], throughput=fleet.throughput[order])
    assert np.isclose(rent(mixed), value) or value == np.inf


@pytest.mark.parametrize("seed", range(cases(400, 40)))
def test_enumeration_and_greedy(seed):
    fleet = replace(made(seed, classes=5), split=False)
    fleet = replace(fleet, demand=np.maximum(fleet.demand, 0.5))
    value = best(fleet)
    if value == np.inf:
        return
    count, to = mix_by_enumeration(fleet)
    assert np.isclose(fleet.rent @ count, value)
    assert (fleet.throughput[np.arange(len(to)), to] > 0).all()
    if (point := greedy(fleet, np.zeros(len(fleet.rent)))) is not None:
        assert fleet.rent @ point[0] >= value - 1e-9
        GpuMix(fleet, *point, np.zeros(len(fleet.rent)), 0.0, "feasible")


@pytest.mark.parametrize("seed", range(cases(400, 25)))
def test_the_nearest_stock_is_the_cheapest_to_add(seed):
    fleet = replace(made(seed, classes=3, types=2), split=False)
    fleet = replace(fleet, stock=np.minimum(fleet.stock, 1), rent=fleet.rent + 1)
    if np.where(np.isfinite(fleet.busy), fleet.busy, 0).sum() > 30:
        return
    try:
        mix_for(fleet, Clock(20))
    except Infeasible as error:
        if error.nearest is None:
            return
        added = fleet.rent @ (error.nearest - fleet.stock)
        for more in product(range(12), repeat=len(fleet.stock)):
            if fleet.rent @ more < added - 1e-9:
                assert best(replace(fleet, stock=fleet.stock + more)) == np.inf


@pytest.mark.parametrize("over", [5e-7, 2e-7, 9e-8, 3e-8, 1e-9, 0.0, -1e-9])
@pytest.mark.parametrize("whole", [1, 7, 1000])
def test_a_load_within_rounding_of_whole_gpus_is_told_the_same_everywhere(over, whole):
    "A stock carries a load if without a stock so many GPUs are rented; else one more would do."
    call = [whole * (1 + over)], [[1.0]], [1.0]
    count = int(mix(*call).count[0])
    assert count == (whole if over < 4e-8 else whole + 1)
    assert mix(*call, [count]).count[0] == count
    if count > whole:
        with pytest.raises(
            Infeasible, match="carries 0.9999 of this .* 1 more 0 would do"
        ) as error:
            mix(*call, [whole])
        assert error.value.nearest.tolist() == [count]


def test_large_classes_choose_first():
    "The small one first would take the GPU that the large one cannot do without."
    count, share = greedy(Fleet([1, 3], [[1, 1], [1, 0]], [1, 5], [3, 1]), np.zeros(2))
    assert count.tolist() == [3, 1] and share.tolist() == [[0, 1], [1, 0]]


def test_largest_multiple_of_the_demand():
    with pytest.raises(Infeasible) as error:
        mix([6, 3], [[4, 10], [0, 2]], [1, 3], [1, 1])
    theta = error.value.largest
    assert theta == pytest.approx(2 / 3)
    just = mix(np.array([6, 3]) * theta * (1 - 1e-9), [[4, 10], [0, 2]], [1, 3], [1, 1], split=True)
    assert just.count.tolist() == [1, 1]
    with pytest.raises(Infeasible):
        mix(np.array([6, 3]) * theta * 1.001, [[4, 10], [0, 2]], [1, 3], [1, 1], split=True)


def test_it_says_which_class_and_which_stock():
    names = {"classes": ["chat", "books"], "gpus": ["small", "large"]}
    with pytest.raises(Infeasible, match="class books cannot be served: no type can"):
        mix([1, 1], [[4, 10], [0, 0]], [1, 3], **names)
    none_left = "class books .* of large, which can, there are none; 1 more large would do"
    with pytest.raises(Infeasible, match=none_left) as error:
        mix([1, 1], [[4, 10], [0, 2]], [1, 3], [9, 0], **names)
    assert error.value.largest == 0 and error.value.nearest.tolist() == [9, 1]
    with pytest.raises(Infeasible, match="carries 0.5 of this demand.*1 more large would do"):
        mix([0, 4], [[4, 10], [0, 2]], [1, 3], [9, 1], **names)
    with pytest.raises(Infeasible, match="split=True there is an answer; 1 more small would do"):
        mix([6, 1], [[4, 10], [0, 2]], [1, 3], [1, 1], **names)
    # without demand a class may be impossible, and nothing is rented
    nothing = mix([0, 0], [[4, 10], [0, 0]], [1, 3], **names)
    assert nothing.value == nothing.bound == 0 and nothing.status == "optimal"
    assert "nothing" in nothing.summary() and nothing.gap == 0


def test_no_time_gives_the_greedy_mix_or_says_so():
    rng = np.random.default_rng(0)
    u, demand = rng.uniform(1, 5, (60, 4)), rng.uniform(0.1, 2, 60)
    rent = [1.0, 1.5, 2.0, 2.5]
    quick = mix(demand, u, rent, time_limit=0)
    slow = mix(demand, u, rent, time_limit=5)
    assert quick.status in (Status.TIME_LIMIT, Status.OPTIMAL) and quick.value >= slow.value - 1e-9
    assert quick.bound <= slow.value + 1e-9
    # greedy gets stuck: the first class takes the only GPU that can serve the second
    with pytest.raises(NotFound) as error:
        mix([1.0, 0.9], [[1, 1], [0, 1]], [3, 1], [1, 1], time_limit=0)
    assert error.value.bound >= 0
    assert mix([1.0, 0.9], [[1, 1], [0, 1]], [3, 1], [1, 1]).value == 4


def test_labels_come_along_and_must_agree():
    u = pd.DataFrame([[4, 10], [0, 2]], index=["short", "long"], columns=["small", "large"])
    demand = pd.Series([6, 1], index=["short", "long"])
    rent = pd.Series([1, 3], index=["small", "large"])
    answer = mix(demand, u, rent)
    assert answer.fleet.classes == ("short", "long") and answer.fleet.gpus == ("small", "large")
    assert answer.to_frame().loc["small", "GPUs"] == 2
    assert answer.to_classes().loc["long", "large"] == 1
    with pytest.raises(ValueError, match="demand has the labels.*same order"):
        mix(demand[::-1], u, rent)
    with pytest.raises(ValueError, match="rent has the labels"):
        mix(demand, u, rent.rename({"small": "tiny"}))
    assert "small" in answer.plot()


@pytest.mark.parametrize(
    "change, match",
    [
        ({"demand": [1]}, "demand has shape"),
        ({"demand": [1, -1]}, r"demand\[1\]"),
        ({"demand": [1, np.inf]}, r"demand\[1\]"),
        ({"demand": [1, 1e10]}, "use other units"),
        ({"demand": [1e8, 1], "throughput": [[1e-8, 1], [1, 1]]}, "use other units"),
        ({"throughput": [[1, 2]]}, "demand has shape"),
        ({"throughput": [1, 2]}, "throughput"),
        ({"rent": [1]}, "rent has shape"),
        ({"stock": [1, 1.5]}, r"stock\[1\] is 1.5; it must be a whole number"),
        ({"stock": [1, np.nan]}, "stock"),
        ({"split": 1}, "split is 1"),
        ({"time_limit": -1}, "time_limit"),
        ({"tolerance": np.nan}, "tolerance"),
        ({"classes": ["a", "a"]}, "all different"),
        ({"gpus": "ab"}, "gpus must be a list"),
    ],
)
def test_bad_input_is_refused(change, match):
    call = {"demand": [1, 1], "throughput": [[1, 2], [1, 1]], "rent": [1, 1]} | change
    with pytest.raises(ValueError, match=match):
        mix(**call)


def test_a_mix_that_does_not_serve_is_refused():
    fleet = Fleet([6, 1], [[4, 10], [0, 2]], [1, 3], [2, 1])
    fine = {"count": [2, 1], "share": [[1, 0], [0, 1]], "stock_price": [0, 0], "bound": 0.0}
    assert GpuMix(fleet, **fine, status="feasible").value == 5
    for change, match in (
        ({"count": [1, 1]}, "load of 1.5"),
        ({"count": [3, 1]}, "stock is 2"),
        ({"share": [[1, 0], [1, 0]]}, "cannot be served"),
        ({"share": [[0.5, 0], [0, 1]]}, "do not sum to 1"),
        ({"share": [[0.5, 0.5], [0, 1]]}, "split is False"),
        ({"bound": 5.1}, "bound"),
    ):
        with pytest.raises(ValueError, match=match):
            GpuMix(fleet, **(fine | change), status="feasible")
    with pytest.raises(ValueError, match="optimal"):
        GpuMix(fleet, **fine, status="optimal")


# files


@settings(max_examples=cases(400), deadline=None)
@given(
    st.integers(0, 10**6),
    st.lists(
        st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=8),
        min_size=7,
        max_size=7,
        unique=True,
    ),
)
def test_files_come_back(tmp_path_factory, seed, names):
    fleet = made(seed)
    S, G = fleet.throughput.shape
    fleet = replace(fleet, classes=tuple(names[:S]), gpus=tuple(names[4 : 4 + G]))
    path = tmp_path_factory.mktemp("fleet") / "fleet.yaml"
    write_fleet(path, fleet)
    assert read_fleet(path) == fleet


@pytest.mark.parametrize(
    "old, new, match",
    [
        ("rent: 0.8", "rent: -1", "fleet.yaml:3: gpus.0.rent is -1; it must be a number"),
        ("rent: 0.8", "price: 0.8", "price is not a field"),
        ('"L4": 3.0', '"L5": 3.0', "must be one of the types L4, A100, H100"),
        ('name: "books"', 'name: "chat"', "a name of its own"),
        ("stock: 40", "stock: 4.5", "gpus.0.stock is 4.5; it must be a whole number"),
        ("rate: 12.0", "rate: many", "classes.0.rate"),
        ("split: false", "split: perhaps", "true or false"),
    ],
)
def test_mistakes_in_files_are_named(tmp_path, old, new, match):
    path = tmp_path / "fleet.yaml"
    write_fleet(path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(BadFile, match=match):
        read_fleet(path)


def test_names_that_are_no_text_in_one_line_are_not_written(tmp_path):
    with pytest.raises(ValueError, match="no name for a file"):
        write_fleet(tmp_path / "x", Fleet([1], [[1]], [1], classes=("a\nb",)))
    assert not (tmp_path / "x").exists()
    assert "split: false" in fleet_text(Fleet([1], [[1]], [1]))


# throughputs and slices


def test_roofline_against_its_formula_at_every_batch():
    card = CARDS["Llama-3.1-8B"]
    prompt, output = [100, 3000, 60_000], [50, 400, 100]
    weights = card.total * 2
    for tpot in (None, 0.03):
        u = roofline(card, prompt, output, list(SPEEDS), tpot)
        for (i, s), (g, name) in product(enumerate(prompt), enumerate(SPEEDS)):
            bandwidth, speed = SPEEDS[name][0] * 0.7, SPEEDS[name][1] * 0.5
            o, fits = output[i], 0.0
            for b in range(1, 10_001):
                if weights + b * card.cache_bytes(s + o).sum() > 0.9 * GPUS[name].memory:
                    break
                read = (weights + b * card.cache_bytes(s + o / 2).sum()) / bandwidth
                step = max(read, 2 * card.active * b / speed)
                if tpot is not None and step > tpot:
                    break
                fits = 1 / (2 * card.active * s / speed + o * step / b)
            assert np.isclose(u[i, g], fits, rtol=1e-9), (tpot, s, name)


def test_slices_hold_every_request():
    trace = load_requests("azure_conv")
    table = slices_of(trace, [256, 1024, 2048, 4096], [64, 256])
    span = trace.arrival[-1]
    assert np.isclose(table["rate"].sum(), len(trace) / span)
    assert np.isclose(table["rate"] @ table["prompt"], trace.prompt.sum() / span)
    assert np.isclose(table["rate"] @ table["output"], trace.output.sum() / span)
    inside = (trace.prompt > 256) & (trace.prompt <= 1024) & (trace.output <= 64)
    assert np.isclose(table.loc["to 1024, to 64", "rate"], inside.sum() / span)
    with pytest.raises(ValueError, match="limits must rise"):
        slices_of(trace, [5, 5], [1])
    with pytest.raises(ValueError, match="list of names from"):
        roofline(CARDS["Llama-3.1-8B"], [1], [1], ["H1"])
