"Plans: placements, chains, times, and the checker against every way to break a plan."

import copy
import pickle
import typing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import serving_or.blocks.cluster as cluster_module
import serving_or.blocks.plan as plan_module
from serving_or.blocks.cluster import Cluster
from serving_or.blocks.plan import (
    BadPlan,
    Chain,
    NoRoute,
    Placement,
    Plan,
    check,
    check_memory,
    check_spans,
    checked,
    request_time,
    spans,
    token_time,
    tried,
    visits,
)
from serving_or.tools.answers import Infeasible, NotFound, Scope, Status, TooLarge
from serving_or.tools.files import BadFile
from tests.instances import BEST, THREE, WAYS, placed_cluster
from tests.long import cases


def test_one_server_holds_all_and_no_requests():
    cluster = Cluster(3, 2, 1, [20, 2], [5, 1], [[7, 1], [np.inf, 1]])
    place = Placement([1, 1], [3, 0])
    plan = check(cluster, place, [Chain(0, (0,), (3,), 4)], [4, 0])
    assert plan.cost == 7 + 15 and np.isnan(plan.client_cost[1]) and plan.client_cost[0] == 22
    empty = check(cluster, place, [], 0)
    assert empty.cost == 0 and empty.status == "optimal" and empty.gap == 0 and empty.ratio == 1
    with pytest.raises(BadPlan, match="cannot reach"):
        check(cluster, place, [Chain(1, (0,), (3,), 1)], [0, 1])


def test_the_worked_examples():
    plan = check(THREE, BEST, WAYS, 4, bound=80)
    assert (plan.cost, plan.status, plan.gap) == (80, "optimal", 0)
    assert (THREE.slots(BEST.m) == plan.visits).all()
    safe = Placement([1, 3, 4], [2, 1, 1])
    plan = check(THREE, safe, [Chain(0, (0, 1, 2), (2, 1, 1), 4)], 4, bound=80)
    assert (plan.cost, plan.value, plan.tpot, plan.status) == (90, 90, 90, "feasible")
    assert plan.ratio == 1.125 and np.isclose(plan.gap, 1 / 9)


def test_alike_chains_are_merged():
    one = [replace(c, count=1) for c in WAYS for _ in range(2)]
    plan = check(THREE, BEST, one, 4)
    assert plan.chains == tuple(WAYS) and plan.cost == 80


ONE = [Chain(0, (0,), (4,), 1)]
UNEVEN = [Chain(0, (0, 1), (2, 2), 3), Chain(0, (0, 2), (2, 2), 1)]


@pytest.mark.parametrize(
    "place, chains, requests, bound, rule",
    [
        (Placement([1, 3, 4], [2, 2, 2]), WAYS, 4, 0, "span"),
        (Placement([0, 3, 3], [2, 2, 2]), WAYS, 4, 0, "span"),
        (Placement([1, 3], [2, 2]), WAYS, 4, 0, "span"),
        (Placement([1, 3, 3], [2, -1, 2]), WAYS, 4, 0, "span"),
        (Placement([1, 3, 3], [4, 2, 2]), ONE, 1, 0, "memory"),
        (BEST, UNEVEN, 4, 0, "memory"),
        (BEST, [Chain(0, (0, 1), (2, 1), 4)], 4, 0, "chain"),
        (BEST, [Chain(0, (0,), (2,), 4)], 4, 0, "chain"),
        (BEST, [Chain(0, (1, 0), (2, 2), 1)], 1, 0, "chain"),
        (BEST, [Chain(0, (0, 1, 2), (2, 2, 0), 1)], 1, 0, "chain"),
        (BEST, [Chain(0, (0, 7), (2, 2), 1)], 1, 0, "chain"),
        (BEST, [Chain(1, (0, 1), (2, 2), 1)], 1, 0, "chain"),
        (BEST, [Chain(0, (0, 1), (2, 2), 0)], 0, 0, "chain"),
        (BEST, [Chain(0, (), ())], 1, 0, "chain"),
        (BEST, ["chain"], 1, 0, "chain"),
        (BEST, None, 1, 0, "chain"),
        (Placement([1, 3, 3], [2, 2, 0]), [Chain(0, (0, 2), (2, 2), 1)], 1, 0, "chain"),
        (BEST, WAYS, 5, 0, "requests"),
        (BEST, WAYS, 4, 80.1, "bound"),
        (BEST, WAYS, 4, 80 * (1 + 1e-7), "bound"),
        (BEST, WAYS, 4, np.nan, "bound"),
        (BEST, WAYS, 4, np.inf, "bound"),
        (BEST, WAYS, 4, "80", "bound"),
        (BEST, WAYS, 4, None, "bound"),
    ],
)
def test_the_checker_refuses(place, chains, requests, bound, rule):
    with pytest.raises(BadPlan) as caught:
        check(THREE, place, chains, requests, bound)
    assert caught.value.rule == rule


@pytest.mark.parametrize(
    "claims, rule",
    [
        (dict(status="optimal"), "status"),
        (dict(status="optimal", bound=79.9), "status"),
        (dict(status="optimal", bound=80, scope="placement"), "status"),
        (dict(guarantee=79), "guarantee"),
        (dict(guarantee=80 * (1 - 1e-7)), "guarantee"),
        (dict(design=5), "design"),
        (dict(bound=60, scope="relayed", forward=True), "bound"),
    ],
)
def test_claims_must_be_true(claims, rule):
    cluster = replace(THREE, hop=np.full((3, 3), 10.0))
    with pytest.raises(BadPlan) as caught:
        check(cluster, BEST, WAYS, 4, **claims)
    assert caught.value.rule == rule


@pytest.mark.parametrize(
    "wrong",
    [
        dict(status="banana"),
        dict(status=3),
        dict(scope="world"),
        dict(scope=None),
        dict(guarantee=np.nan),
        dict(guarantee=-1),
        dict(design=1.5),
        dict(design=-1),
        dict(requests=[4, 0]),
        dict(requests=[1e19]),
        dict(requests="4"),
        dict(placement=[[1, 3, 3], [2, 2, 2]]),
        dict(cluster=None),
    ],
    ids=repr,
)
def test_what_is_no_claim_at_all(wrong):
    given = dict(cluster=THREE, placement=BEST, chains=WAYS, requests=4) | wrong
    with pytest.raises(ValueError):
        check(**given)


def test_what_a_bound_ranges_over():
    routed = check(THREE, BEST, WAYS, 4, bound=80, scope="placement")
    assert routed.scope == Scope.PLACEMENT and routed.status == Status.FEASIBLE
    assert "for this placement" in routed.summary()
    # of relayed plans, a bound on relayed plans is a bound on all
    relayed = check(THREE, BEST, WAYS, 4, bound=80, scope=Scope.RELAYED)
    assert relayed.scope == Scope.ALL and relayed.status == Status.OPTIMAL
    # time may be over and the plan still the best
    late = check(THREE, BEST, WAYS, 4, bound=80, status="time_limit")
    assert late.status == Status.TIME_LIMIT and late.gap == 0
    # a bound that is above by rounding, or below every cost
    assert check(THREE, BEST, WAYS, 4, bound=80 * (1 + 1e-12)).bound == 80
    assert check(THREE, BEST, WAYS, 4, bound=-np.inf).bound == 0
    # where blocks are not alike, the largest counts, and nothing is the best
    unlike = replace(THREE, exact=False)
    assert check(unlike, BEST, WAYS, 4, bound=80).status == "feasible"
    with pytest.raises(BadPlan):
        check(unlike, BEST, WAYS, 4, bound=80, status="optimal")


def test_a_plan_is_checked_wherever_it_comes_from(tmp_path):
    plan = check(THREE, BEST, WAYS, 4, bound=60, guarantee=90, design=None)
    plan.save(tmp_path / "plan.json")
    again = Plan.load(tmp_path / "plan.json")
    assert again == plan == pickle.loads(pickle.dumps(plan)) == copy.deepcopy(plan)
    assert hash(again) == hash(plan) and again.cost == 80 and not again.requests.flags.writeable
    text = (tmp_path / "plan.json").read_text()
    for old, new in (('"values": [4]', '"values": [5]'), ('"bound": 60.0', '"bound": 81.0')):
        assert old in text
        (tmp_path / "bad.json").write_text(text.replace(old, new))
        with pytest.raises(ValueError):
            Plan.load(tmp_path / "bad.json")
    for change in (dict(bound=81), dict(requests=[5]), dict(cluster=replace(THREE, block_size=5))):
        with pytest.raises(BadPlan):
            replace(plan, **change)
    assert Placement.load.__self__ is Placement
    for record in (BEST, WAYS[0]):
        record.save(tmp_path / "record.json")
        assert type(record).load(tmp_path / "record.json") == record


def test_checked_takes_a_demand():
    assert checked(THREE, BEST, WAYS, THREE.demand(4), 80) == check(THREE, BEST, WAYS, 4, 80)
    check_spans(THREE, BEST)
    check_memory(THREE, BEST)
    with pytest.raises(BadPlan, match="memory"):
        check_memory(THREE, Placement([1, 1, 1], [4, 4, 4]))


def test_forwarding_and_first_token():
    hop = [[0, 3, 5], [9, 0, 9], [9, 9, 0]]
    cluster = replace(THREE, hop=hop, prefill_tau=[100, 200, 200], prefill_rtt=[[1, 2, 3]])
    assert token_time(cluster, WAYS[0], forward=True) == 5 + 20 + 3 + 40 + 5
    assert token_time(cluster, WAYS[1], prefill=True) == (1 + 200) + (3 + 400)
    assert request_time(cluster, WAYS[1], 11) == 604 + 10 * 80
    relayed = check(cluster, BEST, WAYS, 4)
    assert relayed.ttft == (603 + 604) / 2
    plan = check(cluster, BEST, WAYS, 4, forward=True)
    assert plan.cost == (73 + 75) / 2
    # the first token is forwarded too: half of 1, a hop of 3, half of 2
    assert plan.ttft == ((0.5 + 200 + 3 + 400 + 1) + (0.5 + 200 + 5 + 400 + 1.5)) / 2
    with pytest.raises(ValueError, match="hop"):
        token_time(THREE, WAYS[0], forward=True)
    with pytest.raises(ValueError, match="tokens"):
        request_time(THREE, WAYS[0], 0)


def test_plans_speak():
    plan = check(THREE, BEST, WAYS, 4, bound=80)
    assert "4 requests of 1 client, 4 blocks on 3 of 3 servers" in plan.summary()
    assert "80 ms per token, bound 80, optimal" in plan.summary()
    frame = plan.to_frame()
    held = frame["parameters, bytes"] + frame["caches, bytes"]
    assert held.tolist() == [16, 12, 12] == frame["memory, bytes"].tolist()
    named = replace(THREE, servers=["<a>", "b", "c"])
    assert list(check(named, BEST, WAYS, 4).to_frame().index) == ["<a>", "b", "c"]
    assert "<a>" not in spans(named, BEST, WAYS)
    assert "&lt;a&gt;" in check(named, BEST, WAYS, 4)._repr_html_()
    assert plan.plot().count("<svg") == 1 and visits(WAYS, 3).tolist() == [8, 4, 4]


def test_placements_and_chains_are_values():
    assert Placement([3, 2], [0, 1]) == Placement([1, 2], [0, 1])
    assert len({Placement([1], [2]), Placement([1], [2]), Placement([1], [3])}) == 2
    a = np.array([1, 2])
    place = Placement(a, [1, 1])
    a[0] = 9
    assert place.a.tolist() == [1, 2]
    with pytest.raises(ValueError):
        place.a[0] = 2
    assert Chain(0, np.array([0, 1]), [2.0, 2], np.int64(3)) == Chain(0, (0, 1), (2, 2), 3)
    assert len({Chain(0, [0], [1]), Chain(0, (0,), (1,)), Chain(0, (0,), (1,), 2)}) == 2


@pytest.mark.parametrize(
    "a, m", [([1.5], [1]), ([1], [1, 2]), ("1", [1]), (None, [1]), ([True], [1])]
)
def test_what_is_no_placement(a, m):
    with pytest.raises(ValueError):
        Placement(a, m)


@pytest.mark.parametrize(
    "wrong",
    [
        (0, (0, 1), (2.7, 2), 1),
        (0, (0, 1), (2, 2), 1.9),
        (0, (0, 1), (2,)),
        (0.5, (0,), (2,)),
        (-1, (0,), (2,)),
        (0, (-1,), (2,)),
        (0, (True,), (2,)),
        (0, "01", (2, 2)),
        (0, 3, (2,)),
        (0, (0,), (np.nan,)),
        (0, (0,), (None,)),
        (0, (0,), (2,), 1e300),
    ],
    ids=repr,
)
def test_what_is_no_chain(wrong):
    with pytest.raises(ValueError):
        Chain(*wrong)


def test_errors_are_kinds_of_builtin_errors():
    assert issubclass(Infeasible, ValueError) and issubclass(NoRoute, Infeasible)
    assert issubclass(NotFound, RuntimeError) and issubclass(TooLarge, ValueError)
    assert issubclass(BadPlan, ValueError) and issubclass(BadFile, ValueError)


def test_errors_and_plans_go_through_a_pool():
    errors = [
        NoRoute("no", client=1, boundary=2, blocks_short=3),
        BadPlan("bad", rule="memory", server=1),
    ]
    plan = check(THREE, BEST, WAYS, 4, bound=80)
    with ProcessPoolExecutor(1) as pool:
        for error, again in zip(errors, pool.map(copy.copy, errors)):
            assert vars(again) == vars(error) and str(again) == str(error)
        assert pool.submit(copy.copy, plan).result() == plan
        failed = pool.submit(check, THREE, BEST, WAYS, 5).exception()
    assert isinstance(failed, BadPlan) and failed.rule == "requests"


@pytest.mark.parametrize("module", [cluster_module, plan_module])
def test_type_hints_resolve(module):
    for name in module.__all__:
        thing = getattr(module, name)
        if callable(thing):
            typing.get_type_hints(thing)


@settings(max_examples=cases(2000, 100), deadline=None)
@given(st.integers(0, 10**9), st.data())
def test_random_plans_against_a_plain_recount(seed, data):
    "Random chains are accepted if and only if a slow reading of the rules accepts them."
    cluster, place = placed_cluster(seed, n=4, L=5)
    n, L = cluster.n, cluster.blocks
    number = st.integers(0, n - 1)
    chains, demand = [], [0, 0]
    for _ in range(data.draw(st.integers(0, 3))):
        servers = data.draw(st.lists(number, min_size=1, max_size=3))
        ends = [1, *place.e[servers].tolist()]
        blocks = [max(b - a, 0) for a, b in zip(ends, ends[1:])]
        client, count = data.draw(st.integers(0, 1)), data.draw(st.integers(1, 3))
        chains.append(Chain(client, servers, blocks, count))
        demand[client] += count
    good, used = True, np.zeros(n)
    for chain in chains:
        x = 1
        for j, k in zip(chain.servers, chain.blocks):
            good &= k >= 1 and place.a[j] <= x and x + k == place.e[j]
            good &= bool(np.isfinite(cluster.rtt[chain.client, j]))
            used[j] += k * chain.count
            x += k
        good &= x == L + 1
    memory = cluster.block_size * place.m + cluster.cache_size * used
    good &= bool((memory <= cluster.memory).all())
    if good:
        plan = check(cluster, place, chains, demand)
        times = [c.count * token_time(cluster, c) for c in chains]
        assert np.isclose(plan.cost * max(sum(demand), 1), sum(times))
    else:
        with pytest.raises(BadPlan):
            check(cluster, place, chains, demand)


def test_the_live_example_answers_everywhere():
    for blocks in (1, 2, 3):
        for requests in range(5):
            assert tried(blocks, requests).count("<svg") == 1


def test_what_may_be_reserved_depends_on_where_a_span_begins():
    c = Cluster(4, [1, 1, 8, 8], 1, [20, 20], 1, [1, 1])
    place, way = Placement([1, 3], [2, 2]), [Chain(0, (0, 1), (2, 2))]
    assert c.longest(3)[:, [0, 2]].tolist() == [[3, 1], [3, 1]]
    assert check(c, place, way, 1, design=2).design == 2
    with pytest.raises(BadPlan, match="holds 2 blocks from block 3 on") as caught:
        check(c, place, way, 1, design=3)
    assert (caught.value.rule, caught.value.server) == ("design", 1)


def test_small_caches_take_their_share_of_a_slot():
    c = Cluster(2, 1, [1, 4], [1 + 3, 1 + 12], 1, [1, 1])
    place = Placement([1, 2], [1, 1])
    plan = check(c, place, [Chain(0, (0, 1), (1, 1), 3)], 3)
    assert plan.to_frame()["caches, bytes"].tolist() == [3, 12]
    with pytest.raises(BadPlan, match="leave 3 for caches, the chains need 4") as caught:
        check(c, place, [Chain(0, (0, 1), (1, 1), 4)], 4)
    assert (caught.value.rule, caught.value.server) == ("memory", 0)


def test_a_server_is_run_to_its_end():
    c = Cluster(3, 1, 1, [9, 9], 1, [1, 1])
    place = Placement([1, 2], [2, 2])
    assert check(c, place, [Chain(0, (0, 1), (2, 1))], 1).cost == 5
    with pytest.raises(BadPlan, match="run to its end"):
        check(c, place, [Chain(0, (0, 1), (1, 2))], 1)
