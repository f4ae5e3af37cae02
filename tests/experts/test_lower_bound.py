"The dual game: bounds, the theorem's inequalities, game values against another solver."

import pickle
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or.experts.lower_bound import (
    Play,
    burst_dual,
    burst_game,
    burst_optimum,
    dual_limit,
    duration_law,
    fork_pool,
    hedge_a_burst,
    pool_against_a_burst,
    proved_by,
    sequence_pool,
    square_root_game,
)
from tests.long import cases


def conjugate(z, r=1.0):
    x = np.linspace(0, 200, 200_001)
    return (r / (1 + x) + z * x).min()


def test_optimum_of_a_burst_against_a_convex_program():
    import cvxpy as cp

    for k, load, price, n in [
        (1, 1.0, 1.0, 9),
        (4, 1.0, 1.0, 7),
        (4, 3.0, 0.5, 12),
        (3, 0.2, 2.0, 5),
        (0, 1.0, 1.0, 3),
    ]:
        x, y = cp.Variable(n, nonneg=True), cp.Variable(n, nonneg=True)  # of the busy expert
        moves = [y[0] >= x[0], *(y[t] >= x[t] - x[t - 1] for t in range(1, n))]
        value = cp.Problem(
            cp.Minimize(load * cp.sum(cp.inv_pos(1 + x)) + price * cp.sum(y)), [*moves, x <= k]
        ).solve(solver=cp.CLARABEL)
        assert burst_optimum(n, k, load, price)[-1] == pytest.approx(value, rel=1e-5)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12))
def test_every_play_is_a_bound_and_obeys_the_theorem(seed, k):
    g, N = np.random.default_rng(seed), k * k
    b = g.random((N + 1, 2)) ** g.choice([0.3, 1, 4])
    b = np.sort(b, axis=0)[::-1] if seed % 2 else b  # falling prices, or any
    if seed % 3 == 0:
        b[:, 0] = 0.0
    lam = g.exponential(g.choice([0.0, 0.01, 0.3]), N)
    proved, optima = burst_dual(b, lam, k), burst_optimum(N, k)
    assert np.all(proved <= optima + 1e-9)
    stop = duration_law(k)[1]
    harmonic = (1 / np.arange(1, N + 1)).sum()
    assert stop @ proved <= 2 * (harmonic**0.5 + 1) + 1e-9
    assert stop @ optima >= harmonic - 1 - 1e-9
    shift = g.random(N + 1) * (1 - b.max(axis=1))  # adding a constant to both prices of a step
    lam = np.maximum(lam, (b[1:] - b[:-1]).max(axis=1))
    moved = burst_dual(b + shift[:, None], lam + shift[1:] - shift[:-1], k)
    assert moved == pytest.approx(proved, abs=1e-6)  # roots of rounding errors


def test_multipliers_beyond_the_price_are_cut():
    """Whatever is given is a play: outside 0 and 1, and with charges that are too small."""
    g = np.random.default_rng(1)
    for _ in range(200):
        k = int(g.integers(1, 6))
        b, lam = 6 * g.random((k * k + 1, 2)) - 2.5, g.normal(size=k * k)
        proved = burst_dual(b, lam, k)
        assert np.all(proved <= burst_optimum(k * k, k) + 1e-9)
        assert np.array_equal(proved, burst_dual(np.clip(b, 0, 1), lam, k))


def test_dual_of_a_burst_from_its_definition():
    g = np.random.default_rng(0)
    b, lam, k = g.random((6, 2)), g.random(5) + 1, 3
    value = [
        sum(conjugate(lam[s] + b[s, 1] - b[s + 1, 1]) - k * lam[s] for s in range(n))
        - k * b[0, 0]
        + k * b[n].min()
        for n in range(1, 6)
    ]
    assert burst_dual(b, lam, k) == pytest.approx(value, abs=1e-6)
    even = np.linspace(1, 0, 10)[:, None] * [0, 1]  # the duration 9 is known
    assert burst_dual(even, np.zeros(9), 8)[-1] == pytest.approx(2 * 3 - 1)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 60), st.integers(0, 10**6))
def test_square_root_game_is_optimal(N, seed):
    z, ratio = square_root_game(N)
    n = np.arange(1, N + 1)
    assert z.sum() == pytest.approx(1) and np.sqrt(n) / np.cumsum(np.sqrt(z)) == pytest.approx(
        ratio
    )
    other = (
        np.random.default_rng(seed).dirichlet(np.ones(N))
        if seed % 2
        else z * np.random.default_rng(seed).uniform(0.9, 1.1, N)
    )
    other /= other.sum()
    assert (np.sqrt(n) / np.cumsum(np.sqrt(other))).max() >= ratio * (1 - 1e-12)
    harmonic = (1 / n).sum()
    assert harmonic / 4 <= ratio**2 <= harmonic


def test_published_numbers_of_the_square_root_game():
    assert [round(square_root_game(k * k)[1], 3) for k in (8, 64, 1024)] == [1.427, 1.754, 2.113]


def test_game_values():
    for k, value in [(4, 1.18), (8, 1.26), (16, 1.35)]:
        play = burst_game(k)
        assert play.ratio() == pytest.approx(value, abs=0.006)
        again = burst_optimum(k * k, k) / burst_dual(play.multipliers, play.charges, k)
        assert again.max() == play.ratio()
    for k, most in [(2, 2.11), (8, 4.03), (16, 4.84)]:
        reach, stop = duration_law(k)
        play = burst_game(k, against=stop)
        ratio, best = play.ratio(stop), stop @ play.proved
        assert best == pytest.approx(most, abs=0.006)
        assert stop @ burst_optimum(k * k, k) / best == pytest.approx(ratio)
        harmonic = (1 / np.arange(1, k * k + 1)).sum()
        # the theorem with the exact expected duration
        assert best <= 2 * harmonic**0.5 + reach.sum() / k
        assert dual_limit(k) <= ratio <= burst_game(k).ratio() + 1e-4


def test_guarantee_against_a_linear_program():
    "Tangents of the concave gain from outside: the guarantee is at most their value."
    from scipy.optimize import linprog

    k = 3
    N, optima = 9, burst_optimum(9, 3)
    touch = np.concatenate([[1e-4, 1e-3], np.linspace(0.005, 1, 300)])
    # the places of the variables: b0, b1 (10 each), lam, gain (9 each), low (10), alpha
    b0, b1, lam, gain, low, (alpha,) = np.split(np.arange(49), [10, 20, 29, 38, 48])
    rows, right = [], []

    def row(entries, bound):
        rows.append(np.bincount([j for j, _ in entries], [v for _, v in entries], 49))
        right.append(bound)

    for t in range(N):
        z0, z1 = ([(lam[t], 1), (b[t], 1), (b[t + 1], -1)] for b in (b0, b1))
        row([(j, -v) for j, v in z0], 0)
        row([(j, -v) for j, v in z1], 0)
        for u in touch:  # g(z) <= g(u) + g'(u) (z - u)
            slope = 1 / np.sqrt(u) - 1
            row([(gain[t], 1)] + [(j, -slope * v) for j, v in z1], 2 * np.sqrt(u) - u - slope * u)
        row([(low[t + 1], 1), (b0[t + 1], -1)], 0)
        row([(low[t + 1], 1), (b1[t + 1], -1)], 0)
        row(
            [(alpha, optima[t]), (b0[0], k), (low[t + 1], -k)]
            + [(gain[s], -1) for s in range(t + 1)]
            + [(lam[s], k) for s in range(t + 1)],
            0,
        )
    bounds = [(0, 1)] * 20 + [(None, None)] * 28 + [(0, None)]
    value = linprog(-np.eye(49)[48], np.array(rows), np.array(right), bounds=bounds)
    assert value.status == 0 and burst_game(k).ratio() == pytest.approx(-1 / value.fun, rel=2e-3)


def test_many_bursts_on_random_plays():
    "The proof's step on every path: the price paid is at least k (falls beyond w, minus w)."
    for seed in range(300):
        g = np.random.default_rng(seed)
        M, k = int(g.integers(1, 6)), int(g.integers(1, 6))
        lengths = g.integers(1, 8, M)
        busy, T = np.repeat(np.arange(1, M + 1), lengths), int(lengths.sum())
        b = g.random((T + 1, M + 1)) ** g.choice([0.2, 1, 5])
        b -= b.min(axis=1, keepdims=True)
        lam = (b[1:] - b[:-1]).max(axis=1) + g.exponential(g.choice([0.0, 0.2]), T)
        paid = k * (lam.sum() + b[0, 0])
        falls = [(lam + b[:-1, j] - b[1:, j])[busy == j].sum() for j in range(1, M + 1)]
        assert paid >= k * (sum(max(f - 1, 0) for f in falls) - 1) - 1e-9


def test_limits():
    assert dual_limit(64) < 1 < dual_limit(70)
    assert dual_limit(2**10) >= (np.sqrt(2 * np.log(2**10)) - 1) / 2
    limits = [dual_limit(64, bursts, additive=1.0) for bursts in (64, 640, 6400, 64_000)]
    assert np.all(np.diff(limits) > 0) and limits[-1] == pytest.approx(dual_limit(64), rel=1e-2)
    assert dual_limit(64, bursts=1, additive=1.0) < 0  # one burst says nothing against a constant
    # from the theorems: E OPT - c w k over 2 M w (sqrt(N H) + 1) + k w
    H = (1 / np.arange(1, 17)).sum()
    least = (5 * (H - 1) - 0.25 * 4) / (2 * 5 * (np.sqrt(3 * H) + 1) + 4)
    assert dual_limit(4, bursts=5, additive=0.25, sequences=3) == pytest.approx(least)
    assert dual_limit(4, sequences=3) == pytest.approx((H - 1) / (2 * (np.sqrt(3 * H) + 1)))


@pytest.mark.parametrize("k", [2, 16])
@pytest.mark.parametrize("guess", [1, 256])
def test_live_example(k, guess):
    assert "worst ratio" in hedge_a_burst(k, guess) and "nan" not in hedge_a_burst(k, guess)


def test_a_play_is_saved_and_sent(tmp_path):
    play = burst_game(2)
    play.save(tmp_path / "play.json")
    assert Play.load(tmp_path / "play.json") == play == pickle.loads(pickle.dumps(play))
    assert Play(2, np.zeros((5, 2)), np.zeros(4)).ratio() == np.inf  # proves nothing
    # and less than nothing, which is no negative ratio
    assert Play(2, np.eye(5)[:, :2], np.zeros(4)).ratio() == np.inf
    for law in ([np.nan, 0, 0, 1], [-1, 0, 0, 2], [0.5, 0.5]):
        with pytest.raises(ValueError, match="against"):
            play.ratio(law)
    with pytest.raises(ValueError, match="multipliers has shape"):
        Play(2, np.zeros((4, 2)), np.zeros(4))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1, "3", None, 1.5, True, 10**400, 1j])
def test_bad_numbers_are_named(bad):
    for call in (
        lambda: burst_optimum(bad, 2),
        lambda: burst_optimum(3, bad),
        lambda: square_root_game(bad),
        lambda: duration_law(bad),
        lambda: dual_limit(bad),
        lambda: dual_limit(4, bad),
        lambda: burst_game(bad),
        lambda: burst_dual([[0, bad], [0, 0]], [0.0], bad),
    ):
        with pytest.raises(ValueError, match="must"):
            call()


# ---- more than one sequence ----

POOLS = {"sequences": sequence_pool, "forks": fork_pool}


def optimum(loads, k, w=1.0):
    "Of a burst, after each of its steps."
    load = np.cumsum(loads)
    x = np.clip(np.sqrt(load / w) - 1, 0, k)
    return load / (1 + x) + w * x


@pytest.mark.parametrize("kind", POOLS)
def test_pools_prove_their_factor_on_any_loads(kind):
    """From far below the price to far above, k from 0, and never more than the optimum."""
    rng = np.random.default_rng(0)
    for _ in range(cases(2000)):
        k, N, w = int(rng.integers(0, 2000)), int(rng.integers(2, 9)), 10.0 ** rng.uniform(-2, 2)
        r = w * rng.exponential(size=50) * 10.0 ** (rng.uniform(-3, 3) + rng.uniform(-2, 2, 50))
        rows, gamma = POOLS[kind](N, k)
        best, proved = optimum(r, k, w), proved_by(r, rows, gamma, k, w)
        assert np.all(proved <= best * (1 + 1e-9))
        assert np.all(best + w <= gamma * (proved + w) * (1 + 1e-9))


@pytest.mark.parametrize("kind", POOLS)
@pytest.mark.parametrize("k", [64, 256, 1024])
def test_pools_over_all_lengths(kind, k):
    """At r = w, every duration up to k^2; and forks also in larger and smaller steps."""
    n = cases(k * k, 1 << 16) if k > 256 else k * k
    for N in (2, 8):
        rows, gamma = POOLS[kind](N, k)
        for r in (1.0,) if kind == "sequences" or n > 5000 else (0.1, 1.0, 30.0):
            loads = np.full(int(n / r), r)
            ratio = (optimum(loads, k) + 1) / (proved_by(loads, rows, gamma, k) + 1)
            assert 1 - 1e-12 <= ratio.min() and 0.97 * gamma < ratio.max() <= gamma
    assert sequence_pool(19, 1024)[1] == pytest.approx(1.0874, abs=5e-5)


@pytest.mark.parametrize("kind", POOLS)
def test_the_guess_of_one_gpu_has_short_bursts(kind):
    """Until the load is that of one move, staying is best, and the pool proves all of it."""
    for r in (np.full(50, 0.02), np.array([1e-6, 0.3, 0.5])):
        rows, gamma = POOLS[kind](5, 64)
        assert np.allclose(proved_by(r, rows, gamma, 64), np.cumsum(r), rtol=1e-12)


def test_forks_hold_few_rows_and_spend_all():
    for N, gamma in [(2, 1.284), (3, 1.183), (5, 1.113), (8, 1.075), (12, 1.053)]:
        rows, factor = fork_pool(N, 4000)
        assert factor == pytest.approx(gamma, abs=6e-4) and factor == fork_pool(N, 3)[1]
        load = np.geomspace(1e-3, 4001**2, 5000)[:, None]
        assert ((rows[:, 0] < load) & (load <= rows[:, 2])).sum(axis=1).max() == N
        fork, knee, end = rows.T
        spent = (knee / (knee - fork) + np.log(end / knee) / 4) / factor**2
        assert np.allclose(spent, 1) and end[-1] >= 4001**2
        # no other distance between the teeth proves more
        apart = np.linspace(1.01, 20, 2000)
        assert factor**2 <= (1 / (1 - apart ** (1.0 - N)) + np.log(apart) / 4).min() + 1e-9


def spent(t):
    "Least total fall of one play that reaches sqrt(t) at each of some durations."
    t = np.append(0.0, np.sort(t))
    return (np.diff(np.sqrt(t)) ** 2 / np.diff(t)).sum() if t.size > 1 else 0.0


@pytest.mark.parametrize("N, M", [(1, 6), (2, 4), (2, 5), (3, 3)])
def test_no_assignment_of_durations_beats_the_sequences(N, M):
    """Every way to share out geometric durations among N plays, and the proof's inequality."""
    K = 300.0
    t = K ** (np.arange((M - 1) * N + 1) / ((M - 1) * N))
    best = min(
        max(spent(t[np.array(a) == j]) for j in range(N)) for a in product(range(N), repeat=t.size)
    )
    least = 1 + (M - 1) * np.tanh(np.log(K) / (4 * N * (M - 1)))
    assert least - 1e-12 <= best <= sequence_pool(N, 0)[1] ** 2 + np.log(K) / (4 * N)
    # ranges without gaps are as good as any
    ranges = [a for a in product(range(N), repeat=t.size) if list(a) == sorted(a)]
    assert np.isclose(best, min(max(spent(t[np.array(a) == j]) for j in range(N)) for a in ranges))


@settings(max_examples=cases(2000, 100), deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 10), st.integers(1, 6))
def test_a_few_random_sequences_obey_the_theorem(seed, k, N):
    g, n = np.random.default_rng(seed), k * k
    plays = []
    for _ in range(N):
        b = np.sort(g.random((n + 1, 2)) ** g.choice([0.3, 1, 4]), axis=0)[::-1].copy()
        b[:, 0] *= g.integers(0, 2)
        lam = g.exponential(g.choice([0.0, 0.01, 0.3]), n)
        plays.append(burst_dual(b, lam, k))
    # and those that are made for it
    z = [np.where(np.arange(1, n + 1) <= m, 1 / m, 0) for m in np.geomspace(1, n, N)]
    busy = [1 - np.append(0, np.cumsum(f)) for f in z]
    plays += [burst_dual(np.column_stack([0 * b, b]), np.zeros(n), k) for b in busy]
    reach, stop = duration_law(k)
    harmonic = (1 / np.arange(1, n + 1)).sum()
    most = stop @ np.max(plays, axis=0)
    assert most <= 2 * (2 * N * harmonic) ** 0.5 + reach.sum() / k
    assert stop @ burst_optimum(n, k) / most >= dual_limit(k, sequences=2 * N) or most <= 0


def test_more_sequences_exclude_less():
    limits = [dual_limit(1024, sequences=N) for N in (1, 2, 4, 16)]
    assert limits[0] == dual_limit(1024) and np.all(np.diff(limits) < 0)
    with pytest.raises(ValueError, match="sequences is 0"):
        dual_limit(64, sequences=0)


def test_states_leave_an_angle_uncovered():
    """The angles of S rows and 0 leave one of [0, pi/2) that is pi / (4 S + 2) away from all."""
    rng, phi = np.random.default_rng(0), np.linspace(0, np.pi / 2, 4001)
    for _ in range(cases(2000)):
        S = int(rng.integers(1, 8))
        psi = np.append(0.0, np.pi / 2 * rng.random(S))
        if rng.random() < 0.5:
            psi = np.append(0.0, (2 * np.arange(1, S + 1)) * np.pi / (4 * S + 2))
        away = np.abs(phi[:, None] - psi).min(axis=1).max()
        assert away >= np.pi / (4 * S + 2) - 1e-3


@pytest.mark.parametrize("kind", POOLS)
@pytest.mark.parametrize("members", [2, 8])
@pytest.mark.parametrize("duration", [4, 4096])
def test_live_example_of_pools(kind, members, duration):
    picture = pool_against_a_burst(kind, members, duration)
    assert "worst" in picture and "nan" not in picture


@pytest.mark.parametrize("bad", [np.nan, -1, "3", None, 1.5])
def test_what_no_pool_is(bad):
    for make in POOLS.values():
        with pytest.raises(ValueError, match="must"):
            make(bad, 4)
        with pytest.raises(ValueError, match="must"):
            make(2, bad)
    with pytest.raises(ValueError, match="must"):
        proved_by([1.0, 2.0], np.array([[0, 1, 2.0]]), 1.1, 4, bad if bad != 1.5 else 0)
