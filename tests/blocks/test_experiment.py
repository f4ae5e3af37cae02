"""The comparison: same arrivals, delays that add up, light load, and what it refuses."""

from dataclasses import replace

import numpy as np
import pytest

from serving_or.blocks.cluster import Cluster
from serving_or.blocks.conservative_greedy import cg_bprr
from serving_or.blocks.designs import sweep
from serving_or.blocks.experiment import COMPARED, Comparison, compare_policies
from serving_or.blocks.petals_rules import PetalsRouting, petals_bp, pooled
from serving_or.blocks.routing import cheapest
from serving_or.blocks.simulation import Arrivals, simulate
from serving_or.blocks.two_time_scales import WaitingPenalised, design_capacity

C = Cluster(4, 4, 1, memory=[24, 16, 16, 16], tau=[10, 20, 20, 25], rtt=[10, 10, 10, 12])
SIZES = dict(prompt=2, output=8, cache_tokens=20)


@pytest.mark.parametrize("seed", range(4))
def test_delays_that_hold_nothing_are_added(seed):
    plain = compare_policies(C, 2.0, seed, **SIZES)
    late = compare_policies(C, 2.0, seed, delays=(1, 2, 5), holding=False, **SIZES)
    held = compare_policies(C, 2.0, seed, delays=(1, 2, 5), **SIZES)
    for k, D in enumerate((1, 2, 5)):
        assert np.isclose(late.per_token[k], plain.per_token[k] + D / 8)
        assert np.isclose(late.first[k], plain.first[k] + D)
        assert np.isclose(late.slowest[k], plain.slowest[k] + D)
        assert np.isclose(late.later[k], plain.later[k]) and late.wait[k] == plain.wait[k]
        # whoever holds caches longer makes nobody faster here
        assert held.per_token[k] >= late.per_token[k] - 1e-9


def test_each_way_is_what_its_parts_make_of_it():
    # ten servers, two of them fast: crowded enough that the three ways differ
    tau, rtt = [12, 11, 13, 14, 12, 10, 9, 12], [100, 120, 90, 80, 70, 110, 100, 60, 95, 105]
    c = Cluster(12, 2, 0.1, [80.0] * 2 + [24.0] * 8, [3, 3, *tau], rtt)
    result = compare_policies(c, 40, seed=1, count=400, prompt=8, output=32, cache_tokens=1600)
    arrivals = Arrivals.poisson(40, 400, prompt=8, output=32, seed=1)
    runs, designs = [], [0, 0, 0]
    for k, method in enumerate((cg_bprr, sweep)):
        design = design_capacity(c, 40, 32, method=method)
        designs[k] = design.requests
        runs.append(simulate(c, design.placement, arrivals, WaitingPenalised()))
    placement = petals_bp(c, 1600 / 40)
    runs.append(simulate(pooled(c, placement, 1600 / 40), placement, arrivals, PetalsRouting()))
    assert result.designs.tolist() == designs
    assert result.unstable == tuple(bool(run.unstable) for run in runs)
    for k, run in enumerate(runs):
        assert np.isclose(result.per_token[k], run.total.mean() / 32 / 1000)
        assert np.isclose(result.slowest[k], np.percentile(run.total, 95) / 1000)
        assert np.isclose(result.wait[k], run.wait.mean() / 1000)
    assert len(set(result.per_token.round(6))) == 3 and len(set(result.unstable)) == 2
    assert result.reduction == 1 - result.per_token[0] / result.per_token[2]


def test_light_load_is_the_cheapest_chain():
    result = compare_policies(C, 1e-3, count=5, **SIZES)
    assert result.wait.tolist() == [0, 0, 0] and result.rejected.tolist() == [0, 0, 0]
    from serving_or.blocks.conservative_greedy import cg_bp

    ((cost,), _) = cheapest(C, cg_bp(C, int(result.designs[0])))
    assert np.isclose(result.per_token[0], cost / 1000)
    assert np.isclose(result.later[0], cost / 1000) and np.isclose(result.first[0], cost / 1000)


def test_a_delay_that_holds_caches_counts_once():
    prompt = Cluster(4, 4, 1, C.memory, C.tau, C.rtt, prefill_tau=C.tau * 3)
    plain = compare_policies(prompt, 1e-3, count=5, **SIZES)
    held = compare_policies(prompt, 1e-3, count=5, delays=(1, 2, 5), **SIZES)
    assert np.allclose(held.first, plain.first + [1, 2, 5])
    assert np.allclose(held.later, plain.later) and plain.designs[2] == 0 < plain.designs[0]


def test_all_clients_ask():
    far = Cluster(4, 4, 1, C.memory, C.tau, [C.rtt[0], C.rtt[0] + 1000])
    one, two = (compare_policies(c, 1e-3, count=40, **SIZES) for c in (C, far))
    assert (two.per_token > one.per_token + 0.1).all()


def test_the_unit_of_time_does_not_matter():
    seconds = Cluster(4, 4, 1, C.memory, C.tau / 1000, C.rtt / 1000, time_unit="s")
    one, two = (compare_policies(c, 2.0, seed=3, **SIZES) for c in (C, seconds))
    assert np.allclose(one.per_token, two.per_token) and np.allclose(one.first, two.first)
    assert one.designs.tolist() == two.designs.tolist()


def test_same_seed_same_numbers_and_frames():
    one, two = (compare_policies(C, 2.0, seed=5, **SIZES) for _ in range(2))
    assert one == two and one != compare_policies(C, 2.0, seed=6, **SIZES)
    assert list(one.to_frame().index) == list(COMPARED) == list(one.names)
    assert one.reduction == 1 - one.per_token[0] / one.per_token[2]
    assert all(name in one.summary() for name in COMPARED)


def test_given_blocks_are_held():
    # all blocks on the first server, none on the others
    one = compare_policies(C, 1e-3, count=3, held=[4, 0, 0, 0], **SIZES)
    assert np.isclose(one.per_token[2], (10 + 4 * 10) / 1000)
    # its caches are what the memory leaves, not what is reserved
    few = compare_policies(C, 1e-3, count=3, held=[4, 0, 0, 0], **SIZES | {"cache_tokens": 1})
    assert few.rejected.tolist() == [0, 0, 0]
    # as many as are given, however much cache is asked for, and in the order that is given
    two = compare_policies(C, 1e-3, count=3, held=[2, 2, 0, 0], **SIZES | {"cache_tokens": 100})
    assert np.isclose(two.per_token[2], (10 + 2 * 10 + 10 + 2 * 20) / 1000)
    one = compare_policies(C, 1e-3, count=3, held=[2, 2, 0, 0], order=[1], **SIZES)
    assert one.rejected.tolist() == [0, 0, 3]
    for held, said in (
        ([1, 2], "held"),
        ([-1, 2, 2, 2], r"held\[0\]"),
        ([5, 2, 2, 2], r"held\[0\] is 5; the server holds 4"),
        ([2, 2, 2, 9], r"held\[3\] is 9; the server holds 4"),
    ):
        with pytest.raises(ValueError, match=said):
            compare_policies(C, 1.0, held=held, **SIZES)
    small = Cluster(4, 4, 1, [24, 10, 16, 16], C.tau, C.rtt)
    with pytest.raises(ValueError, match=r"held\[1\] is 3; the server holds 2"):
        compare_policies(small, 1.0, held=[2, 3, 2, 2], **SIZES)


def test_the_headroom_is_left_where_blocks_are_not_given():
    # eight less: two blocks on the first server, one on each other
    plain = compare_policies(C, 1e-3, count=3, **SIZES)
    less = compare_policies(C, 1e-3, count=3, headroom=8, **SIZES)
    assert less.per_token[2] > plain.per_token[2] and less.per_token[0] == plain.per_token[0]
    given = [
        compare_policies(C, 1e-3, count=3, held=[4, 0, 0, 0], headroom=h, **SIZES) for h in (0, 9)
    ]
    assert given[0] == given[1]


@pytest.mark.parametrize(
    "more, said",
    [
        ({"delays": (1, 2)}, "delays"),
        ({"delays": (1, 2, -3)}, "delays"),
        ({"cache_tokens": np.nan}, "cache_tokens is nan"),
        ({"output": 0}, "output"),
        ({"rate": 0}, "rate"),
        ({"count": 0}, "count is 0"),
    ],
)
def test_bad_input_is_refused(more, said):
    given = {"rate": 1.0, **SIZES} | more
    with pytest.raises(ValueError, match=said):
        compare_policies(C, **given)


def test_a_comparison_has_a_number_for_each_way():
    one = compare_policies(C, 2.0, count=9, **SIZES)
    for name in ("per_token", "unstable", "rejected"):
        with pytest.raises(ValueError, match="shape"):
            replace(one, **{name: list(getattr(one, name))[:2]})


def test_nobody_served_has_no_mean():
    # caches for half a request
    none = compare_policies(C, 1.0, count=9, prompt=2, output=8, cache_tokens=5)
    assert none.rejected.tolist() == [0, 0, 9] and np.isnan(none.reduction)
    assert np.isnan([none.per_token[2], none.first[2], none.later[2], none.wait[2]]).all()
    assert "9 rejected" in none.summary()


def test_a_comparison_is_saved_and_read_back(tmp_path):
    one = compare_policies(C, 2.0, count=20, **SIZES)
    one.save(tmp_path / "a.json")
    assert Comparison.load(tmp_path / "a.json") == one
