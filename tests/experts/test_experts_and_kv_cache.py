"""Against a geometric program, enumeration, and differences; and what is refused."""

import warnings
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or.experts.experts_and_kv_cache import SharedMemory, share_memory
from serving_or.tools.answers import Infeasible, NotFound
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


@pytest.mark.parametrize("seed", range(cases(400, 40)))
def test_the_price_within_a_limit_is_the_derivative(seed):
    rng, (r, memory, step, cache), more = drawn(seed)
    free = share_memory(r, memory, step, cache, **more)
    limit = step + rng.uniform(0.3, 0.95) * (free.step_time - step)
    d = 1e-5 * memory
    try:
        low, plan, high = (
            share_memory(r, memory + e, step, cache, **more, limit=limit) for e in (-d, 0, d)
        )
    except Infeasible:
        return
    assert np.isclose((low.value - high.value) / (2 * d), plan.price, rtol=1e-3)
    assert plan.price > 0 and np.isclose(plan.used, memory)


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
    at_floor = share_memory(r, 1000, 16, 1, gpus=2, limit=26)
    # memory is left over and worth nothing
    assert at_floor.sequences == pytest.approx(2) and at_floor.price == 0
    # one GPU does all the work, however the experts share it
    alone = share_memory([5, 5], 100, 16, 1, batch=1, gpus=1)
    assert alone.expert_time == 10 and alone.copies.sum() == 0
    assert share_memory([5, 5], 100, 16, 1, batch=1, gpus=1, whole=True).expert_time == 10


def test_whole_batches_with_a_part_of_room():
    # room for 2.5 sequences: one cache more makes 3.5, half a cache makes three
    assert share_memory([0, 0], 1, 16, 1, batch=2.5, whole=True).sequences == 3
    assert share_memory([0, 0], 0.5, 16, 1, batch=2.5, whole=True).sequences == 3
    assert share_memory([0, 0], 0.4, 16, 1, batch=2.5, whole=True).sequences == 2
    with pytest.raises(Infeasible, match="one sequence takes 3; there are 2") as error:
        share_memory([9, 1], 2, 16, 3, whole=True)
    assert share_memory([9, 1], error.value.nearest, 16, 3, whole=True).sequences == 1


def test_whole_copies_go_where_they_help():
    # the slowest gets one, not those near it
    plan = share_memory([10, 9.5], 1, 0.01, 1, batch=1, whole=True)
    assert plan.copies.tolist() == [[1, 0]]
    # a layer at its floor gets no more
    plan = share_memory([[80, 0], [6, 0]], 2, 1, 10, batch=1, gpus=2, whole=True)
    assert plan.copies.tolist() == [[1, 0], [1, 0]] and plan.expert_time == 43


@pytest.mark.parametrize("limit", [None, 30])
def test_the_bound_of_a_whole_split_is_that_of_parts(limit):
    parts, plan = (share_memory([9, 1], 5, 16, 1.5, limit=limit, whole=w) for w in (False, True))
    assert plan.bound == parts.bound < plan.value and plan.status == "feasible"


def test_no_whole_batch_is_not_a_proof():
    # parts of copies keep the limit with a batch of .8 and more
    with pytest.raises(NotFound) as error:
        share_memory([9, 1], 3, 16, 1, limit=18.5, whole=True)
    assert error.value.bound == share_memory([9, 1], 3, 16, 1, limit=18.5).bound


@pytest.mark.parametrize("scale", [1e-90, 1e-30, 1e30, 1e60])
def test_units_do_not_matter(scale):
    plan = share_memory([9, 1], 6, 16, 1, batch=1, limit=26)
    for unit in ((scale, 1.0), (1.0, scale), (scale, scale)):
        time, byte = unit
        same = share_memory(
            np.array([9, 1]) * time, 6 * byte, 16 * time, byte, byte, batch=1, limit=26 * time
        )
        assert np.allclose(same.copies, plan.copies) and same.status == "optimal"
        assert np.isclose(same.price, plan.price * time / byte, rtol=1e-6)


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
        ({"gpus": 1.5}, "gpus"),
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
    for loads, limit in (([9, 1], 16), ([9, 1], 10), ([0, 0], 10)):
        with warnings.catch_warnings(), pytest.raises(Infeasible) as error:
            warnings.simplefilter("error")
            share_memory(loads, 5, 16, 1, limit=limit)
        assert share_memory(loads, 5, 16, 1, limit=error.value.nearest).sequences > 0
