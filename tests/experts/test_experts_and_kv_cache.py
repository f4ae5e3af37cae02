"""Against a geometric program, enumeration, and differences; and what is refused."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or.experts.experts_and_kv_cache import SharedMemory, share_memory
from serving_or.tools.answers import Infeasible
from tests.long import cases


def drawn(seed):
    "Layers, and the rest of a call."
    rng = np.random.default_rng(seed)
    shape = rng.integers(1, 4), rng.integers(1, 5)
    more = {"sizes": rng.uniform(0.5, 3, shape), "batch": float(rng.choice([0, 1, 2.5]))}
    numbers = rng.uniform(1, 20), rng.uniform(1, 50), rng.uniform(0.3, 4)
    return rng, (rng.exponential(5, shape), *numbers), more


def geometric(r, memory, step, cache, sizes, batch, limit=None):
    "The least time of a token by cvxpy."
    import cvxpy as cp

    B, L = cp.Variable(pos=True), cp.Variable(len(r), pos=True)
    n = cp.Variable(r.shape, pos=True)
    room = memory + sizes.sum() + cache * batch
    rows = [n >= 1, cache * B + cp.sum(cp.multiply(sizes, n)) <= room]
    rows += [r[i] / (n[i] * L[i]) <= 1 for i in range(len(r))]
    rows += [batch / B <= 1] if batch else []
    rows += [] if limit is None else [step / limit + B * cp.sum(L) / limit <= 1]
    problem = cp.Problem(cp.Minimize(step / B + cp.sum(L)), rows)
    return problem.solve(gp=True, solver=cp.CLARABEL)


@pytest.mark.parametrize("seed", range(cases(200)))
def test_parts_are_the_geometric_program(seed):
    rng, call, more = drawn(seed)
    plan = share_memory(*call, **more)
    assert np.isclose(plan.value, geometric(*call, **more), rtol=2e-6) and plan.status == "optimal"
    least = call[1] and plan.step + rng.uniform(0.3, 0.95) * (plan.step_time - plan.step)
    try:
        within = share_memory(*call, **more, limit=least)
    except Infeasible as error:
        assert error.nearest > least
        share_memory(*call, **more, limit=error.nearest * 1.0001)
        return
    assert np.isclose(within.step_time, least) and within.status == "optimal"
    assert np.isclose(within.value, geometric(*call, **more, limit=least), rtol=2e-6)


@settings(max_examples=cases(2000))
@given(st.integers(0, 2**32 - 1))
def test_the_price_is_the_derivative_and_memory_is_used(seed):
    _, (r, memory, *rest), more = drawn(seed)
    plan = share_memory(r, memory, *rest, **more)
    step = 1e-5 * memory
    up, down = (share_memory(r, memory + d, *rest, **more).value for d in (step, -step))
    assert np.isclose((down - up) / (2 * step), plan.price, rtol=1e-3)
    assert np.isclose(plan.used, memory) and up <= plan.value <= down


@pytest.mark.parametrize("seed", range(cases(1000)))
def test_whole_splits_are_bounded_by_parts_and_by_the_best(seed):
    rng = np.random.default_rng(seed)
    r, K = rng.integers(0, 20, rng.integers(1, 4)).astype(float), int(rng.integers(1, 9))
    A, cache, b = float(rng.integers(1, 40)), int(rng.integers(1, 3)), int(rng.integers(1, 3))
    plan = share_memory(r, K, A, cache, batch=b, whole=True)
    best = min(
        A / (b + (K - sum(x)) // cache) + max(r / (1 + np.array(x)))
        for x in product(range(K + 1), repeat=len(r))
        if sum(x) <= K
    )
    assert plan.bound <= best * (1 + 1e-9) and best <= plan.value * (1 + 1e-9)
    assert np.array_equal(plan.copies, np.floor(plan.copies)) and plan.sequences % 1 == 0


def test_a_floor_ends_the_gain_of_copies():
    r = np.array([[9.0, 1.0]])
    plan = share_memory(r, 1000, 16, 1, batch=1, gpus=2)
    assert np.isclose(plan.expert_time, 5) and np.isclose(plan.copies.sum(), 0.8)
    with pytest.raises(Infeasible):
        share_memory(r, 1000, 16, 1, batch=1, gpus=2, limit=20)
    assert share_memory(r, 1000, 16, 1, gpus=2, limit=26).sequences == pytest.approx(2)


def test_no_load_leaves_all_to_caches():
    plan = share_memory([0, 0], 5, 16, 1, batch=1)
    assert np.isclose(plan.sequences, 6) and plan.copies.sum() == 0
    assert share_memory([0, 0], 5, 16, 1, batch=1, whole=True).sequences == 6


def test_it_travels(tmp_path):
    plan = share_memory([9, 1], 5, 16, 1, batch=1)
    plan.save(tmp_path / "plan.json")
    assert SharedMemory.load(tmp_path / "plan.json") == plan and "optimal" in repr(plan)


@pytest.mark.parametrize(
    "more, words",
    [
        ({"loads": [9, -1]}, "loads"),
        ({"loads": []}, "loads"),
        ({"loads": [[[1]]]}, "loads"),
        ({"memory": 0}, "memory is 0"),
        ({"step": 0}, "step is 0"),
        ({"cache": np.nan}, "cache"),
        ({"sizes": 0}, "sizes"),
        ({"sizes": [1, 2, 3]}, "sizes"),
        ({"batch": -1}, "batch"),
        ({"gpus": 0}, "gpus"),
        ({"limit": 0}, "limit"),
    ],
)
def test_what_is_refused(more, words):
    with pytest.raises(ValueError, match=words):
        share_memory(**({"loads": [9, 1], "memory": 5, "step": 16, "cache": 1} | more))


def test_a_step_that_nothing_shortens_is_said():
    with pytest.raises(Infeasible, match="the limit is 10") as error:
        share_memory([9, 1], 5, 16, 1, batch=1, limit=10)
    assert error.value.nearest > 16
