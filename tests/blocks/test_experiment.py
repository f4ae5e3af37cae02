"""The comparison: same arrivals, delays that add up, light load, and what it refuses."""

import numpy as np
import pytest

from serving_or.blocks.cluster import Cluster
from serving_or.blocks.experiment import COMPARED, Comparison, compare_policies
from serving_or.blocks.routing import cheapest

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
    with pytest.raises(ValueError, match="held"):
        compare_policies(C, 1.0, held=[1, 2], **SIZES)


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


def test_a_comparison_is_saved_and_read_back(tmp_path):
    one = compare_policies(C, 2.0, count=20, **SIZES)
    one.save(tmp_path / "a.json")
    assert Comparison.load(tmp_path / "a.json") == one
