"""The losses add up, chance is chance, and what a rebalance must bring."""

import pickle
from math import comb

import numpy as np
import pytest

from serving_or.experts.diagnosis import (
    LOSSES,
    Diagnosis,
    StepTime,
    balance_losses,
    break_even,
    chance_bound,
    diagnose,
    noise_floor,
)
from serving_or.experts.next_window import Link, shuffled_tasks
from serving_or.experts.replicas import balancedness, rebuild
from serving_or.tools.data import load_experts
from serving_or.tools.generators import generate_experts
from tests.long import cases

LINK, TIME = Link(1e6), StepTime(0.03, 0.01, stall=0.1)


def drawn(seed, layers=2, m=8, steps=6, tokens=500, **more):
    "A trace of generated counts."
    return generate_experts(layers, m, steps, tokens, seed=seed, **more).loads


# The losses


@pytest.mark.parametrize("seed", range(cases(40, 4)))
def test_the_losses_add_up_to_what_is_lost(seed):
    rng = np.random.default_rng(seed)
    topology = [{}, {"nodes": 2, "groups": 4, "policy": "hierarchical"}][seed % 2]
    found = diagnose(
        drawn(seed, tokens=int(rng.integers(50, 5000)), noise=float(rng.random())),
        gpus=4,
        redundant=4 * int(rng.integers(3)),
        spares=[0],
        draws=1,
        **topology,
    )
    assert np.isclose(sum(found.losses.values()), found.lost, rtol=0, atol=1e-12)
    assert list(found.losses) == list(LOSSES)
    assert np.isclose(found.rungs[:, 6].mean(), 1 - found.lost)
    # a bound is a bound, and the first losses are none of chance
    assert (found.rungs[:, 0] == 1).all() and (found.rungs[:, 1] <= 1).all()
    assert (found.rungs[:, 2] <= found.rungs[:, 1] + 1e-12).all()
    if not topology:
        assert found.losses["topology"] == 0


def test_the_rungs_are_those_of_the_maps():
    loads = drawn(3)
    found = diagnose(loads, 4, 4, spares=[0])
    for t, rung in enumerate(found.rungs):
        made = rebuild(loads[t], 4, 4)
        assert np.isclose(rung[1], loads[t].sum() / 4 / made.bound)
        assert rung[2] == rung[3] == balancedness(made.physical, loads[t], 4)
        assert rung[6] == balancedness(made.physical, loads[t + 1], 4)


def test_the_losses_alone_are_the_same():
    loads = drawn(4)
    alone = balance_losses(loads, 4, 4, draws=3, seed=5)
    assert alone == diagnose(loads, 4, 4, draws=3, seed=5, spares=[0]).losses
    assert alone == balance_losses(loads, 4, 4, draws=3, seed=5)
    assert alone != balance_losses(loads, 4, 4, draws=3, seed=6)


def test_where_nothing_changes_there_is_no_drift():
    """Over many windows; each draw has its own chance."""
    losses = balance_losses(drawn(0, steps=60, noise=0, switch=0, spike=0, diurnal=0), 4, 4)
    assert abs(losses["drift"]) < 0.02 < losses["chance, served"]


def test_steady_counts_have_chance_only_in_the_draws():
    loads = np.repeat(drawn(1, steps=1), 5, axis=0)
    losses = balance_losses(loads, 4, 4)
    given = losses["chance, served"] + losses["chance, planned"] + losses["drift"]
    assert abs(given) < 1e-12 and losses["drift"] < 0 < losses["chance, served"]


def test_topology_is_lost_where_two_groups_are_hot():
    """Three of four groups are hot, and each node gets two groups: one node has two of them."""
    loads = np.tile(np.repeat([[10, 10, 10, 1]], 2, axis=1)[:, None], (4, 1, 1))
    found = diagnose(loads, 4, 4, nodes=2, groups=4, policy="hierarchical", spares=[0])
    free = diagnose(loads, 4, 4, spares=[0])
    assert found.losses["topology"] > 0.1 and free.losses["topology"] == 0
    assert found.losses["packing"] == free.losses["packing"]
    loads = drawn(3, noise=1.0)
    found = diagnose(loads, 4, 4, nodes=2, groups=4, policy="hierarchical", spares=[0])
    for t, rung in enumerate(found.rungs):
        P = rebuild(loads[t], 4, 4, nodes=2, groups=4, policy="hierarchical").physical
        assert rung[3] == balancedness(P, loads[t], 4)
        assert rung[6] == balancedness(P, loads[t + 1], 4)


def test_with_many_tokens_all_is_drift():
    """Draws have the shares of the window that is planned on, not of the next."""
    loads = 10_000_000 * np.array([[[8, 1, 1, 2]], [[1, 8, 2, 1]]])
    losses = balance_losses(loads, 2, 2)
    assert abs(losses["chance, served"]) < 0.002 and abs(losses["chance, planned"]) < 0.002
    assert losses["drift"] > 0.1


def test_plans_start_from_what_was_seen():
    """The last window is another one, and very large; no plan may know of it."""
    loads = np.repeat([[[40, 10, 10, 20]]], 9, axis=0)
    loads[-1] = [[1000, 9000, 5000, 1000]]
    assert not diagnose(loads, 4, 4, spares=[4]).grid[:, 3].any()


def test_a_plan_is_drawn_with_the_tokens_that_it_saw():
    """Long windows to plan on and short ones to serve: what is planned on has little chance."""
    rng = np.random.default_rng(0)
    shares = np.array([0.4, 0.2, 0.1, 0.1, 0.1, 0.05, 0.05])
    losses = {}
    for planned, served in ((100_000, 100), (100, 100)):
        parts = [
            balance_losses(
                np.array([rng.multinomial(n, shares) for n in (planned, served)]), 2, 1, draws=60
            )
            for _ in range(5)
        ]
        losses[planned] = np.mean([one["chance, planned"] for one in parts])
    assert losses[100_000] < 0.004 < 0.01 < losses[100]


def test_a_layer_without_load_does_not_harm():
    loads = drawn(5).copy()
    loads[:, 1] = 0
    found = diagnose(loads, 4, 4)
    assert np.isfinite(found.rungs).all()
    assert diagnose(np.zeros((4, 2, 8)), 4, 4).lost == 0


# Chance


@pytest.mark.parametrize("tokens", [1, 2, 7, 20])
def test_the_floor_of_two_experts_is_the_mean_of_a_binomial(tokens):
    """One expert on each of two GPUs: the mean of (N / 2) / max(k, N - k)."""
    exact = sum(
        comb(tokens, k) / 2**tokens * tokens / 2 / max(k, tokens - k) for k in range(tokens + 1)
    )
    known, fitted = noise_floor([1, 1], gpus=2, tokens=tokens, draws=400)
    assert abs(known - exact) < 0.04 and abs(fitted - exact) < 0.04


@pytest.mark.parametrize("seed", range(cases(60, 6)))
def test_chance_takes_no_more_than_the_theorem_says(seed):
    rng = np.random.default_rng(seed)
    gpus = int(rng.choice([2, 4, 8]))
    popularity = rng.exponential(size=(1, 16))
    spare, tokens = gpus * int(rng.integers(2)), int(rng.choice([20, 200, 2000]))
    b = balancedness(rebuild(popularity, gpus, spare).physical, popularity, gpus)
    known, _ = noise_floor(popularity, gpus, spare, tokens, draws=60, seed=seed)
    assert known >= chance_bound(tokens, gpus, b) - 0.01


def test_the_bound_of_chance():
    by_hand = 1 / (2 + np.sqrt(16 * np.log(8) / 50) + 8 * np.log(8) / 300)
    assert np.isclose(chance_bound(100, 8, 0.5), by_hand)
    assert chance_bound(100, 1) == 1 and chance_bound(1e12, 32) > 0.999
    assert chance_bound(100, 8) < chance_bound(200, 8) < chance_bound(200, 4)
    assert chance_bound(1e15, 8, 0.7) < 0.7 < chance_bound(1e15, 8, 0.7) + 1e-6


def test_the_floor_rises_with_tokens_and_is_the_same_each_time():
    zipf = np.arange(1, 33) ** -0.8
    floors = [noise_floor(zipf, 8, 8, tokens, seed=1) for tokens in (200, 2000, 20_000)]
    assert floors[0] < floors[1] < floors[2]
    assert floors[0] == noise_floor(100 * zipf[None], 8, 8, [200], seed=1)
    assert floors[0] != noise_floor(zipf, 8, 8, 200, seed=2)


# What pays


def test_break_even_is_where_the_times_agree():
    n = break_even(stall=2.0, before=0.7, after=0.9, moe=0.02)
    time = StepTime(dense=0.03, moe=0.02)
    assert np.isclose(n * time.seconds(0.7), n * time.seconds(0.9) + 2.0)
    assert break_even(1.0, 0.9, 0.9, 1.0) == np.inf == break_even(1.0, 0.9, 0.8, 1.0)
    assert break_even(0.0, 0.9, 0.9, 1.0) == 0 == break_even(0.0, 0.8, 0.9, 1.0)
    assert break_even(0.0, 0.9, 0.8, 1.0) == np.inf


def test_stalls_of_a_diagnosis():
    loads = drawn(6, steps=8, tokens=5000)
    found = diagnose(loads, 4, 4, link=LINK, time=TIME, spares=[4])
    pays, served = found.break_even(), 1 / (1 / found.test.next_window).mean(axis=1)
    stall = 0.1 + found.test.seconds[1].mean()
    # so many steps take as long in all windows together
    wait = (0.01 / found.test.next_window).mean(axis=1)
    assert np.isclose(pays["rebuild"] * wait[0], pays["rebuild"] * wait[1] + stall)
    assert np.isclose(pays["rebuild"], break_even(stall, served[0], served[1], 0.01))
    beside = diagnose(
        loads, 4, 4, link=LINK, time=StepTime(0.03, 0.01, stall=0.1, background=True), spares=[4]
    ).break_even()
    assert np.isclose(beside["rebuild"], break_even(0.1, served[0], served[1], 0.01))
    assert beside["rebuild"] < pays["rebuild"]
    with pytest.raises(ValueError, match="time is None"):
        diagnose(loads, 4, 4, spares=[4]).break_even()


def test_window_and_interval():
    """Loads that take turns in pairs of windows: the pair is the thing to plan on."""
    loads = np.tile([[[40, 10, 10, 20]], [[10, 40, 20, 10]]], (16, 1, 1))
    found = diagnose(loads, 4, 4, spares=[4])
    on, every = found.best_plan()
    assert on % 2 == 0 and every == 8
    plans = found.plans_frame()
    assert plans.loc[on, every] > plans.loc[1, 1] + 0.05


# What travels


def test_a_diagnosis_travels(tmp_path):
    found = diagnose(drawn(7), 4, 4, link=LINK, time=TIME)
    assert (
        pickle.loads(pickle.dumps(found)) == found == diagnose(drawn(7), 4, 4, link=LINK, time=TIME)
    )
    found.save(tmp_path / "found.json")
    assert Diagnosis.load(tmp_path / "found.json") == found
    assert "largest: " + found.largest in found.summary() and "<svg" in found.plot()
    assert np.isclose(found.to_frame()["lost"].sum(), found.lost)
    assert np.isclose(found.to_frame()["share"].sum(), 1)
    spares = found.spares_frame()
    assert list(spares.index) == [0, 4, 8, 12, 16] and np.isclose(spares.loc[4, "GB"], 8e6 / 1e9)
    assert "steps" in found.summary()


def test_progress_is_shown_when_asked(capsys):
    diagnose(drawn(8), 4, 4, verbose=True)
    assert "diagnosis" in capsys.readouterr().err


BAD = {
    "one window": ({"trace": drawn(0)[:1]}, "one to plan on"),
    "nan": ({"trace": [[np.nan, 1.0]] * 4}, r"trace\[0, 0\]"),
    "shares": ({"trace": [[0.5, 0.5]] * 4}, "routed tokens, whole numbers"),
    "policy": ({"policy": "best"}, "policy is 'best'"),
    "groups": ({"policy": "hierarchical", "nodes": 2, "groups": 3}, "group"),
    "slots": ({"redundant": 3}, "redundant|slots"),
    "spares": ({"spares": [1]}, "redundant|slots"),
    "no spares": ({"spares": []}, "spares"),
    "draws": ({"draws": 0}, "draws is 0"),
    "link": ({"link": 3.0}, "link is"),
    "time": ({"time": 0.1}, "time is"),
    "slack": ({"slack": -1}, "slack"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused(name):
    change, said = BAD[name]
    with pytest.raises(ValueError, match=said):
        diagnose(**({"trace": drawn(0), "gpus": 4, "redundant": 4} | change))


def test_what_the_small_doors_refuse():
    for call, said in [
        (lambda: noise_floor([[0.0, 0.0]], 2), "has no load"),
        (lambda: noise_floor([1, 1], 2, tokens=[5, 5]), "tokens has shape"),
        (lambda: noise_floor([1, 1], 2, tokens=0), "at least 1"),
        (lambda: break_even(1, 0, 1, 1), "before is 0"),
        (lambda: break_even(1, 1, 1.1, 1), "after is 1.1"),
        (lambda: StepTime(1, 0), "moe is 0"),
        (lambda: StepTime(1, 1, background=1), "background is 1"),
        (lambda: StepTime(1, 1).seconds(0), "balance is 0"),
        (lambda: balance_losses([[1, 2]], 2), "one window|1 window"),
        (lambda: chance_bound(0, 2), "tokens is 0"),
    ]:
        with pytest.raises(ValueError, match=said):
            call()


# On a real model


def test_chance_is_most_of_what_is_lost_on_a_real_model():
    for loads in (load_experts(window=4).loads[:, ::6], shuffled_tasks(1)[:, ::6]):
        losses = balance_losses(loads, 8, 8)
        total = sum(losses.values())
        assert 0.09 < total < 0.14
        assert losses["chance, served"] > 0.5 * total > 0.4 * total > losses["drift"]
        assert abs(losses["packing"]) < 0.006
