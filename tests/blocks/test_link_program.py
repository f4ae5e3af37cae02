"Enumeration and the program of the literature."

import numpy as np
import pytest

from serving_or.blocks import Cluster, Infeasible, Placement, TooLarge, check
from serving_or.blocks.link_program import (
    best_routing,
    enumeration,
    paper_program,
    placements,
    read_paper,
    write_paper,
)
from serving_or.tools.programs import relaxation, solve
from tests.instances import EXAMPLE_A
from tests.instances import THREE as EXAMPLE_B


def test_all_placements_are_listed_once():
    a, m = placements(EXAMPLE_A)
    assert len(a) == 275 == len({(*x, *y) for x, y in zip(a.tolist(), m.tolist(), strict=True)})
    assert (a + m <= 5).all() and (m <= EXAMPLE_A.counts(0)).all() and (a >= 1).all()


def test_too_many_placements_are_told():
    large = Cluster(70, 1, 1, [1000] * 10, [1] * 10, [1] * 10)
    with pytest.raises(TooLarge) as error:
        enumeration(large, 1)
    assert error.value.size > error.value.limit == 300_000
    with pytest.raises(ValueError, match="most is 0"):
        enumeration(EXAMPLE_A, 1, most=0)


def test_the_two_examples():
    a, b = enumeration(EXAMPLE_A, 4), enumeration(EXAMPLE_B, 4)
    assert (a.cost, a.status, b.cost, b.status) == (70, "optimal", 80, "optimal")
    assert a.bound == a.cost and a.gap == 0
    with pytest.raises(Infeasible, match="none of 275 placements serves 5 requests"):
        enumeration(EXAMPLE_A, 5)
    assert enumeration(EXAMPLE_A, 0).cost == 0


def test_routing_of_one_placement_with_a_cutoff():
    placement = enumeration(EXAMPLE_B, 4).placement
    total, chains = best_routing(EXAMPLE_B, placement, np.array([4]))
    assert total == 320 and sum(c.count for c in chains) == 4
    assert best_routing(EXAMPLE_B, placement, np.array([4]), cutoff=320) == (np.inf, [])
    assert best_routing(EXAMPLE_B, Placement([1, 1, 1], [2, 0, 0]), np.array([1]))[0] == np.inf


def test_two_clients_deal_out_what_both_want():
    "One cheap server with room for two requests: the far client needs it more."
    c = Cluster(1, 1, 1, memory=[3, 9], tau=[1, 1], rtt=[[0, 1], [0, 9]])
    plan = enumeration(c, [2, 2])
    assert plan.cost == pytest.approx((2 * 2 + 2 * 1) / 4)


@pytest.mark.parametrize("seed", range(12))
def test_a_plan_written_and_solved_is_read_back(seed):
    rng = np.random.default_rng(seed)
    c = Cluster(3, 2, 1, rng.integers(4, 12, 3), rng.integers(1, 5, 3), rng.integers(0, 9, (1, 3)))
    try:
        plan = enumeration(c, 2)
    except Infeasible:
        return
    program = paper_program(c, plan.requests)
    answer = solve(program, start=write_paper(program, c, plan))
    assert answer.value == pytest.approx(plan.cost) and relaxation(program) <= plan.cost + 1e-9
    placement, chains = read_paper(program, answer.x)
    both = [type(k)(0, k.servers, k.blocks, k.count) for k in chains]
    assert check(c, placement, both, 2).cost == pytest.approx(plan.cost)
