"Failures: what is left against enumeration of losses, plans that survive, their records."

import pickle
from dataclasses import replace
from itertools import combinations
from time import process_time

import numpy as np
import pytest

from serving_or.blocks.cluster import Cluster
from serving_or.blocks.conservative_greedy import NoPlacement, cg_bprr, largest_requests
from serving_or.blocks.designs import candidate_designs, sweep
from serving_or.blocks.failures import (
    RobustPlan,
    by_domain,
    labels,
    largest_robust,
    losses,
    place_robust,
    robust,
    robust_for,
    surviving,
    what_is_left,
)
from serving_or.blocks.flow import coverage, route_exact
from serving_or.blocks.link_program import placements as every_placement
from serving_or.blocks.plan import Chain, Placement, check
from serving_or.tools.answers import Clock, Infeasible, NotFound, TooLarge
from tests.blocks.oracles import Oracle, spans_of
from tests.instances import BAD_REQUESTS, fleet, random_placement, tiny_cluster
from tests.long import cases

CLOSE = 1 + 1e-7


def without(placement, label, lost):
    "What is left of a placement."
    return Placement(placement.a, np.where(np.isin(label, lost), 0, placement.m))


def test_surviving_is_the_worst_loss():
    rng = np.random.default_rng(8)
    for _ in range(60):
        n = int(rng.integers(2, 8))
        c = replace(tiny_cluster(rng, n=n), domain=rng.integers(0, 4, n).tolist())
        p, f = random_placement(rng, c), int(rng.integers(0, 3))
        label, names = labels(c)
        sets = combinations(range(len(names)), min(f, len(names)))
        worst = np.min([coverage(c, without(p, label, lost)) for lost in sets], axis=0)
        assert np.allclose(surviving(c, p, f), worst)
        assert np.allclose(by_domain(c, p).sum(axis=0), coverage(c, p))


def test_robust_plans_survive_every_loss():
    rng = np.random.default_rng(9)
    found = 0
    for _ in range(60):
        n, f = int(rng.integers(3, 9)), int(rng.integers(1, 3))
        memory, tau, rtt = rng.integers(6, 40, n), rng.integers(1, 9, n), rng.integers(1, 30, n)
        domain = rng.integers(0, 5, n).tolist()
        c = Cluster(int(rng.integers(1, 7)), 2, 1, memory, tau, rtt, domain=domain)
        R = int(rng.integers(1, 5))
        try:
            answer = robust(c, R, f)
        except (NoPlacement, Infeasible):
            continue
        found += 1
        p, label, names = answer.plan.placement, *labels(c)
        assert answer.capacity >= R and (surviving(c, p, f) >= R).all()
        for lost in combinations(range(len(names)), f):
            again = route_exact(c, without(p, label, lost), R)
            reported = answer.losses[tuple(names[i] for i in lost)]
            assert np.isfinite(reported) and again.cost <= max(reported, answer.value) * CLOSE
        assert answer.worst >= answer.value - 1e-9 or answer.losses
        assert "survives" in answer.summary()
    assert found > 20


def test_single_moves_repair_what_the_greedy_choice_leaves():
    "Server 1 is put on blocks 1 and 2 first; block 3 is then short by one until it moves."
    c = Cluster(3, 2, 1, [3, 8, 15, 14], [2, 1, 2, 5], [4, 2, 8, 7])
    p = place_robust(c, 3, design=1)
    assert p == Placement([1, 2, 1, 1], [1, 2, 3, 3]) and list(surviving(c, p)) == [3, 4, 4]


def safe_placements(c, demand, f):
    "All placements that keep capacity for all requests, by enumeration."
    every = (Placement(*held) for held in zip(*every_placement(c)))
    return [p for p in every if (surviving(c, p, f) >= demand.sum()).all()]


def test_a_placement_that_survives_is_found_whenever_there_is_one():
    rng = np.random.default_rng(41)
    by_program = none = 0
    for i in range(cases(4000, few=70)):
        n, f = int(rng.choice([2, 3, 4, 4])), int(rng.choice([1, 1, 1, 2]))
        L = 2 if n == 4 else int(rng.integers(1, 4))
        memory, tau, rtt = rng.integers(3, 11, n), rng.integers(1, 6, n), rng.integers(1, 9, n)
        domain = rng.integers(0, 4, n).tolist() if rng.random() < 0.2 else None
        c = Cluster(L, 2, 1, memory, tau, rtt, domain=domain)
        demand = np.array([rng.integers(1, 5)])
        if i % 10 == 0:
            # no single design will do here
            c = Cluster(2, 2, 1, rng.permutation([4, 7, 8, 7]), rng.integers(1, 5, 4), rtt=4)
            demand, f = np.array([3]), 1
        safe = safe_placements(c, demand, f)
        greedy = any(
            (robust_for(c, demand, f, design, "max", Clock())[1] >= demand.sum()).all()
            for design in candidate_designs(c, int(demand.sum())).tolist()
        )
        if not safe:
            none += 1
            for call in (place_robust, robust):
                with pytest.raises((NoPlacement, Infeasible)) as error:
                    call(c, demand, f)
                if error.type == NoPlacement:
                    assert "no placement has the capacity" in str(error.value)
            continue
        assert (surviving(c, place_robust(c, demand, f), f) >= demand.sum()).all()
        answer, best = robust(c, demand, f), min(route_exact(c, p, demand).cost for p in safe)
        assert answer.plan.placement in safe and answer.value >= best / CLOSE
        if not greedy:
            by_program += 1
            assert answer.value <= best * CLOSE
        oracle, (label, names) = Oracle(c), labels(c)
        for lost, cost in answer.losses.items():
            gone = np.isin(label, [names.index(d) for d in lost])
            left = Placement(answer.plan.placement.a, np.where(gone, 0, answer.plan.placement.m))
            exact = oracle.routed(spans_of(left), demand.tolist()) / demand.sum()
            touched = (gone & (answer.plan.visits > 0)).any()
            assert cost == (pytest.approx(exact) if touched else answer.value)
    assert by_program >= 2 and none > 10


def test_clients_that_reach_their_own_region():
    "Two servers in each of two regions; one may fail."
    far = np.inf
    rtt = [[5, 6, far, far], [far, far, 5, 6]]
    c = Cluster(2, 1, 1, [6] * 4, [1] * 4, rtt)
    answer = robust(c, [1, 1])
    assert answer.value == 7 and answer.worst == 7.5 and len(answer.losses) == 4
    assert largest_robust(c, 1, [1, 1]) == 4
    with pytest.raises((NoPlacement, Infeasible)):
        robust(c.take([0, 1, 2]), [1, 1])
    # one request alone is of the first client, who has two servers
    assert largest_robust(c.take([0, 1, 2]), 1, [1, 1]) == 1


def test_capacity_in_the_other_region_is_no_capacity():
    far = np.inf
    c = Cluster(2, 1, 1, [6] * 4, [1] * 4, [[5, 6, far, far], [far, far, 5, 6]])
    plan = check(c, Placement([1] * 4, [2] * 4), cg_bprr(c, [1, 1]).chains, [1, 1])
    assert surviving(c, plan.placement, 2).min() == 4
    for known in (None, losses(plan, 2)):
        with pytest.raises(ValueError, match="capacity is 0 .* on the servers that they reach"):
            RobustPlan(plan, 2, known)
    # two groups that share the last server
    c = Cluster(1, 1, 1, [2, 2, 2], [1] * 3, [[1, far, 1], [far, 1, 1]])
    chains = [Chain(0, (0,), (1,)), Chain(1, (1,), (1,))]
    plan = check(c, Placement([1] * 3, [1] * 3), chains, [1, 1])
    assert np.isfinite(list(losses(plan).values())).all() and RobustPlan(plan, 1).capacity == 2
    with pytest.raises(ValueError, match="infinite"):
        RobustPlan(plan, 1, {(0,): np.inf})


def test_the_largest_number_keeps_its_time():
    c = fleet(40, 0.2)
    all_of_it = largest_robust(c)
    for limit in (0.0, 0.2):
        began = process_time()
        assert 0 <= largest_robust(c, time_limit=limit) <= all_of_it
        assert process_time() - began < limit + 0.5


def test_the_weight_of_the_worst_case():
    "For each weight no answer for another weight has a lower score."
    rng = np.random.default_rng(14)
    differ = 0
    for _ in range(cases(60, few=40)):
        n, R = int(rng.integers(3, 8)), int(rng.integers(2, 7))
        memory, tau, rtt = rng.integers(6, 40, n), rng.integers(1, 9, n), rng.integers(1, 30, n)
        c = Cluster(int(rng.integers(2, 7)), 2, 1, memory, tau, rtt)
        try:
            answers = {w: robust(c, R, weight=w) for w in (0.0, 0.5, 1.0)}
        except (NoPlacement, Infeasible):
            continue
        for w, answer in answers.items():
            score = lambda a: (1 - w) * a.value + w * a.worst
            assert score(answer) <= min(map(score, answers.values())) * CLOSE
        differ += answers[0.0].value < answers[1.0].value
    assert differ > 0


def test_no_failures_is_plain_coverage():
    c = fleet(12)
    assert (surviving(c, place_robust(c, 20, 0), 0) >= 20).all()


def test_errors_name_what_is_short():
    c = fleet(9, 0.22)
    most = largest_robust(c)
    assert 0 < most < largest_requests(c)
    robust(c, most)
    with pytest.raises(NoPlacement, match=f"up to {most} requests; another placement") as error:
        robust(c, 10 * most)
    assert error.value.blocks_short > 0 and error.value.largest == most
    again = pickle.loads(pickle.dumps(error.value))
    assert again.largest == most and str(again) == str(error.value)


def test_nothing_is_left_of_nobody():
    c = Cluster(2, 1, 1, [10, 10, 4], [1, 1, 1], [1, 2, 30])
    for call in (place_robust, robust):
        with pytest.raises(Infeasible, match="any 3 of 3 domains may fail"):
            call(c, 1, 3)
        with pytest.raises(Infeasible):
            call(c, 1, 10**9)
    assert largest_robust(c, 3) == 0 and largest_robust(c, 10**9) == 0
    assert list(surviving(c, Placement([1, 1, 1], [2, 2, 2]), 5)) == [0, 0]
    assert robust(c, 0, 3).value == 0


def test_losses_by_hand():
    c = Cluster(2, 1, 1, [10, 10, 4], [1, 1, 1], [1, 2, 30])
    plan = check(c, Placement([1, 1, 1], [2, 2, 2]), cg_bprr(c, 1).chains, 1)
    assert losses(plan) == {(0,): 4.0, (1,): 3.0, (2,): 3.0} and losses(plan, 2)[0, 1] == 32.0
    assert losses(plan, 3)[0, 1, 2] == np.inf and losses(plan, 0) == {(): 3.0}


def test_too_many_losses():
    big = Cluster(1, 1, 1, [3] * 200, [1] * 200, [1] * 200)
    with pytest.raises(TooLarge) as error:
        losses(sweep(big, 1), 3)
    assert error.value.limit == 5000 and error.value.size == 1313400
    # the plan is not lost with its losses
    answer = robust(big, 1, 3)
    assert answer.losses is None and np.isnan(answer.worst) and answer.capacity >= 1
    assert "not computed" in answer.summary() and len(answer.to_frame()) == 0
    with pytest.raises(NotFound, match="losses were tried in 0 s"):
        losses(sweep(big, 1), 1, time_limit=0)


def test_time_is_kept():
    c = fleet(60, 0.2)
    robust(fleet(9), 3)
    for limit in (0.0, 0.5):
        began = process_time()
        try:
            answer = robust(c, 200, 2, time_limit=limit)
            assert answer.capacity >= 200
            assert limit > 0 or (answer.status == "time_limit" and answer.losses is None)
        except NoPlacement as error:
            assert error.largest is None and "unknown" in str(error)
        assert process_time() - began < limit + 0.5


def test_a_plan_that_does_not_survive_is_no_robust_plan():
    c = Cluster(2, 1, 1, [10, 10], [1, 1], [1, 2])
    alone = cg_bprr(replace(c, memory=[10, 1]), 1)
    plan = check(c, alone.placement, alone.chains, 1)
    with pytest.raises(ValueError, match="capacity is 0"):
        RobustPlan(plan, 1)
    good = robust(c, 1)
    for bad in (dict(failures=-1), dict(failures=0.5), dict(losses={(0,): np.nan})):
        with pytest.raises(ValueError):
            replace(good, **bad)
    with pytest.raises(ValueError, match="status"):
        replace(good, status="banana")


def test_records(tmp_path):
    c = Cluster(2, 1, 1, [10, 10, 9], [1, 1, 2], [1, 2, 9], domain=["a", "b", "b"])
    answer = robust(c, 2)
    assert answer == robust(c, 2) and hash(answer) == hash(robust(c, 2))
    assert answer != robust(c, 1)
    answer.save(tmp_path / "plan.json")
    for again in (RobustPlan.load(tmp_path / "plan.json"), pickle.loads(pickle.dumps(answer))):
        assert again == answer and again.worst == answer.worst and again.losses == answer.losses
    assert list(answer.to_frame().index) == ["a", "b"]
    assert 'aria-label="capacity of each block' in answer.plot()
    assert answer.gap == answer.plan.gap and answer.ratio == answer.plan.ratio


@pytest.mark.parametrize("requests", BAD_REQUESTS)
def test_bad_requests(requests):
    c = Cluster(4, 2, 1, [20, 20], [1, 2], [[3, 5]] * 3)
    for door in (place_robust, robust, lambda c, r: largest_robust(c, 1, r)):
        with pytest.raises(ValueError, match="requests"):
            door(c, requests)


@pytest.mark.parametrize("bad", [-1, 0.5, np.nan, np.inf, "1", True, None, [1]])
def test_bad_failures(bad):
    c = fleet(6)
    plan = sweep(c, 1)
    for call in (
        lambda: surviving(c, plan.placement, bad),
        lambda: place_robust(c, 1, bad),
        lambda: losses(plan, bad),
        lambda: robust(c, 1, bad),
        lambda: largest_robust(c, bad),
    ):
        with pytest.raises(ValueError, match="failures is"):
            call()


@pytest.mark.parametrize(
    "arguments, words",
    [
        (dict(weight=1.5), "weight is 1.5"),
        (dict(weight=np.nan), "weight is nan"),
        (dict(orders=("max", 3)), r"orders\[1\] is 3"),
        (dict(orders=()), "orders is empty"),
        (dict(most=0), "most is 0"),
        (dict(time_limit=-1), "time_limit is -1"),
    ],
)
def test_bad_input_says_what_is_wrong(arguments, words):
    with pytest.raises(ValueError, match=words):
        robust(fleet(6), 1, **arguments)


def test_free_caches():
    free = Cluster(3, 1, 0, [3, 3], [1, 1], [2, 1])
    assert (surviving(free, sweep(free, 10**5).placement, 0) > 10**5).all()
    assert robust(free, 10**5).capacity >= 10**5 and largest_robust(free) == 10**9


def test_live_example():
    assert "at least 8 requests left" in what_is_left(1, 7)
    assert "no placement found" in what_is_left(1, 10)
