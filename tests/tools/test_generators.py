"The generators: seeds that mean the same loads with every NumPy, sums, fitted statistics."

import hashlib
from itertools import combinations
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or.tools import data, generators

quick = settings(max_examples=60, deadline=None)


@quick
@given(
    st.integers(1, 3),
    st.integers(1, 9),
    st.integers(1, 12),
    st.integers(1, 500),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 20),
    st.floats(0, 1),
    st.integers(0, 2**32),
)
def test_generated_loads_sum_to_the_tokens(
    layers, experts, steps, tokens, diurnal, switch, spike, noise, seed
):
    made = generators.generate_experts(
        layers,
        experts,
        steps,
        tokens,
        diurnal=diurnal,
        switch=switch,
        spike=spike,
        noise=noise,
        seed=seed,
    )
    again = generators.generate_experts(
        layers,
        experts,
        steps,
        tokens,
        diurnal=diurnal,
        switch=switch,
        spike=spike,
        noise=noise,
        seed=seed,
    )
    assert (
        made.loads.shape == (steps, layers, experts)
        and (made.loads >= 0).all()
        and (made.loads.sum(axis=2) == tokens).all()
    )
    np.testing.assert_array_equal(made.loads, again.loads)
    assert (
        made.domain.tolist() == again.domain.tolist()
        and made.domain[0] == "intent"
        and set(made.domain) <= set(generators.SPREAD)
    )


def test_another_seed_gives_other_loads():
    assert (
        generators.generate_experts(1, 8, 4, 1000, seed=1).loads
        != generators.generate_experts(1, 8, 4, 1000, seed=2).loads
    ).any()


def test_each_knob_moves_only_its_own_part():
    calm = dict(diurnal=0, switch=0, spike=0, noise=0)
    n = 10**12  # so many tokens that the loads are the shares to six digits
    still = generators.generate_experts(2, 16, 300, n, **calm).loads / n
    assert (
        np.abs(still - still[0]).max() < 1e-4
        and generators.generate_experts(2, 16, 300, n, **calm).domain.tolist() == ["intent"] * 300
    )
    switched = generators.generate_experts(2, 16, 300, n, **calm | {"switch": 0.05})
    steps = data.total_variation(switched.loads[1:], switched.loads[:-1]).mean(axis=1)
    changes = switched.domain[1:] != switched.domain[:-1]
    assert 5 < changes.sum() < 30 and steps[changes].min() > 0.1 and steps[~changes].max() < 1e-4
    high = generators.generate_experts(2, 16, 300, n, **calm | {"spike": 4}).loads / n
    lifted = (
        high - still > 0.05
    )  # a height of 4 means adds (4 - 5 p) / 16 / (1 + 4 / 16) or so to a share p
    assert set(lifted.sum(axis=2).ravel()) == {0, 1} and 0.005 < lifted.any(axis=2).mean() < 0.1
    for layer in range(2):
        runs = np.diff(np.flatnonzero(np.diff(np.r_[0, lifted[:, layer].any(axis=1), 0])))[::2]
        assert runs.min() >= 1 and np.median(runs) <= 3
    # the height of a spike: without its addition the share is p, with it (p + h / m) / (1 + h / m)
    t, layer, expert = (index[0] for index in np.nonzero(lifted))
    np.testing.assert_allclose(
        high[t, layer, expert], (still[0, layer, expert] + 4 / 16) / (1 + 4 / 16), rtol=1e-4
    )
    daily = generators.generate_experts(2, 16, 289, n, **calm | {"diurnal": 0.5}).loads / n
    np.testing.assert_allclose(daily[288], daily[0], atol=1e-4)  # a full period
    noon = generators.generate_experts(2, 16, 289, n, **calm | {"diurnal": 1}).loads[144] / n
    np.testing.assert_allclose(daily[144], (still[0] + noon) / 2, atol=1e-4)


def test_noise_has_the_stated_deviation_and_memory():
    made = generators.generate_experts(
        1,
        200,
        4000,
        10**14,
        diurnal=0,
        switch=0,
        spike=0,
        noise=0.3,
        spread={"flat": 0.0},
        shared=0.0,
        seed=3,
    )
    z = np.log(made.loads[:, 0] / made.loads[:, 0].mean(axis=1, keepdims=True))
    assert np.isclose(z.std(), 0.3, rtol=0.03)
    z -= z.mean()
    assert np.isclose(
        (z[1:] * z[:-1]).mean() / z.var(), np.exp(-1 / generators.RELAXATION), rtol=0.02
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_fitted_constants_give_the_statistics_of_the_counts(seed):
    made = generators.generate_experts(
        400, 64, 40, 50_000, diurnal=0, switch=0.4, spike=0, seed=seed
    )
    total = {t: made.loads[made.domain == t].sum(axis=0) for t in data.TASKS}
    hottest = [np.median(r.max(axis=1) / r.mean(axis=1)) for r in total.values()]
    np.testing.assert_allclose(
        hottest, [3.96, 3.28, 4.35, 5.58], rtol=0.09
    )  # three standard deviations of the largest median over 400 layers
    slopes = [np.median(data.zipf_slope(r)) for r in total.values()]
    assert 0.37 < min(slopes) and max(slopes) < 0.74
    apart = [
        data.total_variation(total[a], total[b]).mean() for a, b in combinations(data.TASKS, 2)
    ]
    assert 0.29 < min(apart) and max(apart) < 0.44
    for t in data.TASKS:  # halves of sixteen windows with the tokens of a task
        quiet = generators.generate_experts(
            26,
            64,
            16,
            6 * 8300 // 16,
            diurnal=0,
            switch=0,
            spike=0,
            spread={t: generators.SPREAD[t]},
            seed=seed,
        ).loads
        halves = [(quiet[:8], quiet[8:]), (quiet[::2], quiet[1::2])]
        assert all(
            0.02 < data.total_variation(a.sum(axis=0), b.sum(axis=0)).mean() < 0.06
            for a, b in halves
        )


@pytest.mark.parametrize(
    "spreads, shared", [((0.7, 0.9), 0.3), ((0.5, 0.5), 0.0), ((0.6, 0.6), 0.6)]
)
def test_total_variation_of_two_domains_by_the_theorem(spreads, shared):
    made = generators.generate_experts(
        1,
        100_000,
        40,
        10**14,
        diurnal=0,
        switch=0.5,
        spike=0,
        noise=0,
        spread=dict(zip("ab", spreads)),
        shared=shared,
    )
    a, b = (made.loads[made.domain == d][0, 0] for d in "ab")
    theta = np.sqrt(sum(s**2 for s in spreads) - 2 * shared**2)
    assert np.isclose(data.total_variation(a, b), 2 * NormalDist().cdf(theta / 2) - 1, atol=0.005)


@quick
@given(
    st.sampled_from(generators.KINDS),
    st.integers(1, 9),
    st.integers(1, 30),
    st.floats(0.01, 1e4),
    st.integers(0, 2**32),
)
def test_families(kind, m, T, scale, seed):
    loads = generators.trace(kind, m, T, scale, seed)
    assert loads.shape == (T, m) and (loads > 0).all() and np.isclose(loads.mean(), scale)
    np.testing.assert_array_equal(loads, generators.trace(kind, m, T, scale, seed))
    np.testing.assert_allclose(loads, scale * generators.trace(kind, m, T, 1.0, seed))


def test_families_have_their_feature():
    for kind in ("zipf", "shifts"):  # one profile in every step
        loads = np.sort(generators.trace(kind, 16, 200), axis=1)
        np.testing.assert_allclose(loads, np.tile(loads[0], (200, 1)))
        assert np.isclose(data.zipf_slope(loads[0]), 0.8)
    same = [
        (np.diff(generators.trace(kind, 16, 400), axis=0) == 0).all(axis=1).mean()
        for kind in ("shifts", "zipf", "ar")
    ]
    assert 0.9 < same[0] < 1 and same[1] < 0.05 and same[2] == 0
    spikes = generators.trace("spikes", 16, 400)
    assert (
        np.isclose(spikes.max() / spikes.min(), 10)
        and len(np.unique(spikes)) == 2
        and np.isclose((spikes == spikes.max()).mean(), 0.05, atol=0.01)
    )
    bursts = generators.trace("bursts", 16, 2000)
    on = bursts > bursts.min()
    began = (on[1:] & ~on[:-1]).sum()
    assert np.isclose(on.sum() / began, 5, rtol=0.1) and np.isclose(
        on.mean(), 0.2, atol=0.03
    )  # 5 on, 20 off


def test_a_seed_means_the_same_loads_with_every_numpy():
    "The digest of NumPy 2.0.2, 2.4.6 and 2.5.5; a Generator's multinomial draw changed in 2.5."
    made = generators.generate_experts(1, 64, 96, 50_000, switch=0.1, spike=8, seed=6)
    assert hashlib.sha256(made.loads.astype("<i8").tobytes()).hexdigest()[:12] == "ed52f588eff9"


BAD = [
    (
        lambda: generators.trace("sine", 4, 4),
        "kind is 'sine'; it must be one of 'ar', 'zipf', 'spikes', 'shifts', 'bursts'",
    ),
    (lambda: generators.trace("ar", 0, 4), "m is 0"),
    (lambda: generators.trace("ar", 4, 2.5), "T is 2.5"),
    (lambda: generators.trace("ar", 4, 4, scale=-1), "scale is -1"),
    (lambda: generators.trace("ar", 4, 4, scale=float("inf")), "scale is inf"),
    (lambda: generators.trace("ar", 4, 4, seed=-1), "seed is -1"),
    (lambda: generators.generate_experts(1, 0, 4, 10), "experts is 0"),
    (lambda: generators.generate_experts(1, 4, 4, 10, diurnal=1.5), "diurnal is 1.5"),
    (lambda: generators.generate_experts(1, 4, 4, 10, switch=-0.1), "switch is -0.1"),
    (lambda: generators.generate_experts(1, 4, 4, 10, noise=float("nan")), "noise is nan"),
    (lambda: generators.generate_experts(1, 4, 4, 10, shared=0.8), "shared is 0.8"),
    (lambda: generators.generate_experts(1, 4, 4, 10, spread={}), "spread is empty"),
    (lambda: generators.generate_experts(1, 4, 4, 10, spread={"a": -1}), "spread of a is -1"),
    (lambda: generators.generate_experts("1", 4, 4, 10), "layers is '1'"),
]


@pytest.mark.parametrize("call, words", BAD)
def test_bad_input_is_told(call, words):
    with pytest.raises(ValueError) as caught:
        call()
    assert words in str(caught.value)
