"Renting: the frontier against all subsets of servers, its bound, its record."

import pickle
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from time import process_time

import numpy as np
import pytest

from serving_or.blocks.bounds import chain_bound, exit_bound, strip_bound
from serving_or.blocks.cluster import Cluster
from serving_or.blocks.designs import sweep
from serving_or.blocks.link_program import enumeration
from serving_or.blocks.renting import Frontier, kinds, rental, rentals, rented, what_to_rent
from serving_or.blocks.routing import lone_bound
from serving_or.tools.answers import Infeasible, NotFound, TooLarge
from tests.instances import BAD_REQUESTS, THREE, fleet
from tests.long import cases

PAIR = Cluster(1, 1, 1, [2, 2], [1, 1], [[1, 50], [50, 1]], rent=[1, 1])


def test_frontier_falls_and_its_bound_holds():
    rng = np.random.default_rng(10)
    points = 0
    for _ in range(12):
        n = int(rng.integers(3, 7))
        kind = rng.integers(0, 2, n)
        pick = lambda one, other: np.array([one, other])[kind]
        memory, tau, rent = pick(20.0, 9.0), pick(2.0, 7.0), pick(2.0, 0.5)
        c = Cluster(int(rng.integers(2, 5)), 3, 1, memory, tau, rng.integers(1, 20, n), rent=rent)
        R = int(rng.integers(1, 3))
        frontier = rental(c, R)
        rents = [r for r, _, _ in frontier.points]
        costs = [plan.cost for _, _, plan in frontier.points]
        assert frontier.complete and (np.diff(rents) > 0).all() and (np.diff(costs) < 0).all()
        subsets = [list(s) for size in range(1, n + 1) for s in combinations(range(n), size)]
        exact = []
        for s in subsets if n < 5 else []:
            with suppress(Infeasible):
                exact.append((c.rent[s].sum(), enumeration(c.take(s), R).cost))
        for rent, counts, plan in frontier.points:
            points += 1
            assert np.isclose(rent, plan.cluster.rent.sum())
            assert np.isclose(rent, np.dot(counts, [o[2] for o in frontier.offers]))
            assert frontier.rent_bound(plan.cost) <= rent + 1e-9
            assert frontier.cheapest(plan.cost)[0] == rent
            # any subset of servers, not only the nearest ones
            for paid, cost in exact:
                if cost <= plan.cost + 1e-9:
                    assert frontier.rent_bound(plan.cost) <= paid + 1e-9
                    stronger = frontier.rent_bound(plan.cost, lambda c, r: chain_bound(c, r).value)
                    assert stronger <= paid + 1e-9
        assert len(frontier.to_frame()) == len(frontier.points)
    assert points > 12


def test_the_frontier_leaves_out_no_rental():
    "Against a sweep of all numbers of servers."
    rng = np.random.default_rng(13)
    points = 0
    for _ in range(12):
        kind = rng.integers(0, 2, 6)
        memory, tau = np.array([20.0, 9.0])[kind], np.array([2.0, 7.0])[kind]
        rent = np.array([2.0, 0.5])[kind]
        c = Cluster(int(rng.integers(2, 6)), 3, 1, memory, tau, rng.integers(1, 20, 6), rent=rent)
        R, found = int(rng.integers(1, 5)), []
        offers = kinds(c)
        for paid, counts in rentals(c, c.demand(R), offers):
            with suppress(Infeasible, NotFound):
                found.append((paid, sweep(rented(c, c.demand(R), offers, counts), R).cost))
        frontier = rental(c, R).points
        for paid, cost in found:
            assert min(p.cost for r, _, p in frontier if r <= paid + 1e-9) <= cost * (1 + 1e-9)
        points += len(frontier)
    assert points > 20


def test_several_clients():
    frontier = rental(PAIR, [1, 1])
    assert [(r, plan.cost) for r, _, plan in frontier.points] == [(2, 2)]
    # the best plan costs 2 for a rent of 2
    assert enumeration(PAIR, [1, 1]).cost == 2 and frontier.rent_bound(2.0) == 2


BOUNDS = {
    "lone": lone_bound,
    "chains": lambda c, r: chain_bound(c, r).value,
    "exits": lambda c, r: exit_bound(c, r).value,
    "strip": lambda c, r: strip_bound(c, r).value,
}


@pytest.mark.parametrize("name", BOUNDS)
def test_the_rent_bound_holds_for_several_clients(name):
    frontier = rental(PAIR, [1, 1])
    assert frontier.rent_bound(2.0, BOUNDS[name]) == 2


@pytest.mark.parametrize("seed", range(cases(1000, 40)))
def test_no_subset_of_servers_undercuts_a_rent_bound(seed):
    "Random frontiers of one to three clients, far and unreachable servers, all subsets listed."
    rng = np.random.default_rng(seed)
    n, clients, kind = int(rng.integers(2, 5)), 1 + seed % 3, rng.integers(0, 2, 5)
    pick = lambda one, other: np.array([one, other])[kind[:n]]
    rtt = rng.choice([1.0, 4.0, 9.0, 50.0], (clients, n))
    rtt[rng.random(rtt.shape) < 0.1] = np.inf
    memory = pick(*rng.integers(2, 14, 2))
    c = Cluster(
        int(rng.integers(1, 4)), int(rng.integers(1, 4)), 1, memory, pick(2, 5), rtt,
        rent=pick(2.0, 0.5),
    )  # fmt: skip
    R = rng.integers(0, 3, clients)
    R[0] += 1
    subsets = [list(s) for size in range(1, n + 1) for s in combinations(range(n), size)]
    exact = []
    for s in subsets:
        with suppress(Infeasible):
            exact.append((c.rent[s].sum(), enumeration(c.take(s), R).cost))
    if not exact:
        return
    frontier = rental(c, R)
    for _, target in exact:
        least = min(rent for rent, cost in exact if cost <= target * (1 + 1e-9))
        proved = {k: frontier.rent_bound(target, b) for k, b in BOUNDS.items()}
        assert max(proved.values()) <= least + 1e-9, (proved, least)
        assert min(proved.values()) == proved["lone"]


def test_of_several_clients_the_mean_round_trip_chooses():
    c = Cluster(1, 1, 1, [3, 3], [1, 1], [[1, 2], [50, 3]], rent=[1, 1])
    ((rent, counts, plan),) = rental(c, [1, 1]).points[:1]
    assert (rent, counts, plan.cost) == (1, (1,), 3.5)


def test_servers_need_no_order_and_what_does_not_fit_is_no_rental():
    c = Cluster(1, 1, 1, [3, 3, 3], [1, 1, 1], [9, 3, 6], rent=[1, 1, 1])
    for bound in BOUNDS.values():
        proved = [rental(c, 4).rent_bound(target, bound) for target in (3.9, 4, 5.4, 5.5)]
        assert proved == ([np.inf, 2, 2, 2] if bound is lone_bound else [np.inf, np.inf, np.inf, 2])
    # two small servers have the memory of one large one, and hold no block
    c = Cluster(1, 4, 1, [3, 3, 5], [1, 1, 1], [1, 1, 1], rent=[1, 1, 5])
    assert [rental(c, 1).rent_bound(2, bound) for bound in BOUNDS.values()] == [5] * 4


def test_rents_and_few_kinds_are_needed():
    c = fleet(12)
    with pytest.raises(ValueError, match="rent is None"):
        rental(c, 1)
    many = Cluster(1, 1, 1, np.arange(3, 23), np.ones(20), np.ones(20), rent=np.ones(20))
    with pytest.raises(TooLarge) as error:
        rental(many, 1)
    assert error.value.size == 2**20 and error.value.limit == 20_000
    kinds_of = many.take(range(15))
    with pytest.raises(TooLarge):
        rental(kinds_of, 1)
    huge = Cluster(1, 1, 1, np.arange(3, 1503), np.ones(1500), np.ones(1500), rent=np.ones(1500))
    with pytest.raises(TooLarge):
        rental(huge, 1)
    priced = rental(replace(c, rent=np.ones(12)), 1)
    assert priced.rent_bound(0.0) == np.inf and priced.cheapest(0.0) is None


def test_of_equal_rents_the_fastest_stays():
    c = Cluster(2, 4, 1, [14, 7, 7, 7], [1, 2, 2, 2], [5, 3, 9, 6], rent=[3, 1, 1, 1])
    points = rental(c, 2).points
    assert [(r, u, plan.cost) for r, u, plan in points] == [(2, (0, 2), 13), (3, (1, 0), 7)]
    # a rent that two kinds share: seven slow servers or one fast one
    c = Cluster(1, 1, 1, [2, 2, 9], [5, 5, 1], [1, 1, 1], rent=[0.5, 0.5, 1.0])
    assert [(r, plan.cost) for r, _, plan in rental(c, 1).points] == [(0.5, 6), (1.0, 2)]
    # the same rent and the same time: fewer servers
    c = Cluster(2, 1, 1, [4, 2, 2], [1, 1, 1], [2, 1, 1], rent=[2.0, 1.0, 1.0])
    assert [(r, u, plan.cost) for r, u, plan in rental(c, 1).points] == [(2, (1, 0), 4)]
    c = Cluster(1, 1, 1, [2, 2, 9], [5, 5, 1], [1, 1, 1])
    c = replace(c, rent=[0.1, 0.2, 0.2])
    assert [r for r, _, _ in rental(c, 1).points] == [0.1, 0.2]


def test_time_is_kept():
    c = fleet(60, 0.2)
    c = replace(c, rent=np.where(c.memory > 50, 2.0, 0.35))
    rental(replace(fleet(9), rent=np.ones(9)), 1)
    for limit in (0.0, 0.5):
        began = process_time()
        frontier = rental(c, 300, time_limit=limit)
        assert process_time() - began < limit + 0.5
        assert frontier.complete != ("stopped" in frontier.summary())
        assert limit > 0 or not frontier.complete
        began = process_time()
        assert frontier.rent_bound(1.0, time_limit=limit) >= 0
        assert process_time() - began < limit + 0.5


def test_records(tmp_path):
    c = Cluster(2, 4, 1, [14, 7, 7, 7], [1, 2, 2, 2], [5, 3, 9, 6], rent=[3, 1, 1, 1])
    frontier = rental(c, 2)
    frontier.save(tmp_path / "frontier.json")
    for again in (Frontier.load(tmp_path / "frontier.json"), pickle.loads(pickle.dumps(frontier))):
        assert again == frontier and hash(again) == hash(frontier)
        assert again.cheapest(10)[0] == 3 and again.rent_bound(10) == frontier.rent_bound(10)
    assert 'aria-label="what a rent buys' in frontier.plot()
    with pytest.raises(ValueError, match="rents must rise and costs fall"):
        replace(frontier, points=frontier.points[::-1])
    with pytest.raises(ValueError):
        replace(frontier, requests=[-1])
    assert list(frontier.to_frame().columns)[-2:] == ["rent", "ms per token"]
    empty = replace(frontier, points=())
    assert empty.summary() == "" and len(empty.to_frame()) == 0 and empty.cheapest(1e9) is None


@pytest.mark.parametrize("requests", BAD_REQUESTS)
def test_bad_requests(requests):
    c = Cluster(4, 2, 1, [20, 20], [1, 2], [[3, 5]] * 3, rent=[1, 1])
    with pytest.raises(ValueError, match="requests"):
        rental(c, requests)


@pytest.mark.parametrize("bad", [-1, np.nan, "1", None, True, [1], 1j])
def test_bad_targets(bad):
    frontier = rental(replace(THREE, rent=[1, 1, 1]), 1)
    for call in (frontier.cheapest, frontier.rent_bound):
        with pytest.raises(ValueError, match="target is"):
            call(bad)


@pytest.mark.parametrize("bad", [-1, np.nan, "1", True])
def test_bad_time_limits(bad):
    with pytest.raises(ValueError, match="time_limit is"):
        rental(replace(THREE, rent=[1, 1, 1]), 1, time_limit=bad)


def test_infeasible():
    with pytest.raises(Infeasible):
        rental(Cluster(4, 4, 1, [4, 4], [1, 1], [1, 1], rent=[1, 1]), 1)
    assert rental(replace(THREE, rent=[1, 1, 1]), 6).points == ()


def test_live_example():
    assert "Rent 8: 1 large and 2 small, 58 ms" in what_to_rent(60, 4)
    assert "Nothing on offer meets 40 ms" in what_to_rent(40, 4)
