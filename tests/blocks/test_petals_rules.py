"""What the chapter on PETALS' rules claims, against literal loops; and what it refuses."""

import shlex
import subprocess
import time
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_or.blocks.cluster import Cluster
from serving_or.blocks.conservative_greedy import cg_bprr
from serving_or.blocks.petals_rules import (
    FARTHEST,
    FULL,
    PACKING,
    STAY,
    STEP,
    UNKNOWN,
    Launch,
    PetalsRouting,
    PetalsThroughput,
    _in_ticks,
    _Swarm,
    launch_commands,
    offers,
    one_by_one,
    petals,
    petals_bp,
    pool_tokens,
    pooled,
    read_launch,
    rebalance,
    should_move,
)
from serving_or.blocks.plan import Chain, Placement, check
from serving_or.blocks.routing import Hops, cheapest
from serving_or.tools.answers import NotFound
from tests.long import cases

B = Cluster(4, 4, 1, memory=[24, 12, 12], tau=[10, 20, 20], rtt=[10, 10, 10])
WHO = "QmedTaZXmULqwspJXz44SsPZyTNKxhnnFvYRajfH7MGhCY"
PEER = f"/ip4/10.0.0.7/tcp/31337/p2p/{WHO}"
LINE = (
    "python -m petals.cli.run_server bigscience/bloom --block_indices 0:3 --attn_cache_tokens 592"
    " --inference_max_length 148 --throughput 12.5 --torch_dtype bfloat16 --quant_type nf4"
    f" --initial_peers {PEER}"
)
NEEDED = {"attn_cache_tokens": 592, "inference_max_length": 148, "throughput": 12.5}


def swarm_of(rng, most=9):
    "A random placement with whole offers, and its blocks."
    L, n = int(rng.integers(1, most)), int(rng.integers(1, 7))
    m = rng.integers(0, L + 1, n)
    a = np.array([rng.integers(1, L - k + 2) for k in m])
    return Placement(a, m), rng.integers(1, 6, n).astype(float) * 1000, L


def sums(a, m, ticks, L):
    return [sum(w for j, w in enumerate(ticks) if a[j] <= b < a[j] + m[j]) for b in range(1, L + 1)]


def weakest_start(total, k):
    return min((sorted(total[i : i + k]), i + 1) for i in range(len(total) - k + 1))[1]


# placement


@pytest.mark.parametrize("seed", range(cases(2000)))
def test_servers_join_as_the_literal_rule_says(seed):
    rng = np.random.default_rng(seed)
    L, n = int(rng.integers(1, 12)), int(rng.integers(1, 9))
    memory = rng.integers(1, 3 * L + 2, n).astype(float)
    tau = rng.choice([0.5, 1, 2, 4], n)
    order = rng.permutation(n)[: int(rng.integers(1, n + 1))]
    c = Cluster(L, 1, 1, memory, tau, 1, time_unit="s")
    p = petals_bp(c, reserve=1, order=order)
    total = [0] * L
    for j in order.tolist():
        k = min(int(memory[j] // 2), L)
        assert p.m[j] == k
        if k:
            start = weakest_start(total, k)
            assert p.a[j] == start
            # exact sums
            for b in range(start - 1, start - 1 + k):
                total[b] += Fraction(2) / (Fraction(tau[j]) * (k + 1))
    assert (p.m[np.setdiff1d(np.arange(n), order)] == 0).all()
    # in another unit the same
    ms = replace(c, tau=tau * 1000, rtt=c.rtt * 1000, time_unit="ms")
    assert petals_bp(ms, 1, order=order) == p


def test_offers():
    c = Cluster(9, 1, 1, [9] * 3, [0.5, 0.25, 0], 1, time_unit="s")
    assert offers(c, np.array([3, 1, 2])).tolist() == [1, 4, np.inf]
    assert offers(c, np.array([3, 0, 2]), speed=[8, 8, 8], network=5).tolist() == [4, 0, 5]
    assert offers(c, np.array([3, 3, 3]), speed=1e308).tolist() == [5e307] * 3
    # a server that takes no time counts as much faster than the others, not as everything
    assert petals_bp(c, 1).m.tolist() == [4, 4, 4]
    for bad in ({"speed": [1, 2]}, {"network": -1}, {"speed": np.nan}, {"speed": "fast"}):
        with pytest.raises(ValueError, match="speed|network"):
            petals_bp(c, 1, **bad)


@pytest.mark.parametrize(
    "given, said",
    [
        ({"reserve": -1}, "reserve is -1"),
        ({"reserve": np.inf}, "reserve is inf"),
        ({"reserve": 1, "headroom": np.nan}, "headroom is nan"),
        ({"reserve": 1, "order": [0, 0]}, r"order\[1\]"),
        ({"reserve": 1, "order": [3]}, r"order\[0\]"),
    ],
)
def test_bad_numbers_are_refused(given, said):
    with pytest.raises(ValueError, match=said):
        petals_bp(B, **given)


def test_headroom_takes_blocks():
    c = Cluster(4, 1, 1, [4, 4, 4], [1, 1, 1], [1, 1, 1])
    assert list(petals_bp(c, 1).a) == [1, 3, 1]
    assert list(petals_bp(c, 1, headroom=2).m) == [1, 1, 1]
    assert list(petals_bp(c, 1, headroom=9).m) == [0, 0, 0]


# moves


@pytest.mark.parametrize("seed", range(cases(4000)))
def test_every_move_lifts_the_weakest(seed):
    rng = np.random.default_rng(seed)
    p, ticks, L = swarm_of(rng)
    swarm = _Swarm(p, ticks, L)
    for _ in range(30):
        j = int(rng.integers(len(ticks)))
        if swarm.m[j]:
            before = sorted(swarm.offered.tolist())
            moved = swarm.move(j, swarm.best(j))
            after = sorted(swarm.offered.tolist())
            assert after > before if moved else after == before
    assert swarm.offered.tolist() == sums(swarm.a, swarm.m, ticks, L)
    swarm.settle(rng)
    assert all(swarm.best(j) == swarm.a[j] for j in np.flatnonzero(swarm.m))


def literal_move(p, ticks, L, j, quality):
    "What one server decides, step by step; None where the order of the others may matter."
    a, m = p.a.tolist(), p.m.tolist()
    total = sums(a, m, ticks, L)
    now, mine = min(total), ticks[j]
    low = list(total)
    for b in range(a[j] - 1, a[j] - 1 + m[j]):
        low[b] -= (1 + STAY) * mine
    if now > 0 and min(low) <= 0:
        return False
    if weakest_start(low, m[j]) == a[j]:
        return False
    a[j] = weakest_start(low, m[j])
    for i in range(len(a)):
        total = sums(a, m, ticks, L)
        for b in range(a[i] - 1, a[i] - 1 + m[i]):
            total[b] -= (1 + STAY) * ticks[i]
        if m[i] and weakest_start(total, m[i]) != a[i]:
            return None
    then = min(sums(a, m, ticks, L))
    return then > 0 and now / then < quality - STAY


@pytest.mark.parametrize("seed", range(cases(2000)))
def test_a_server_decides_as_the_literal_rule_says(seed):
    rng = np.random.default_rng(seed)
    p, ticks, L = swarm_of(rng)
    for j in np.flatnonzero(p.m).tolist():
        for quality in (0, 0.5, 0.75, 1.0):
            wanted = literal_move(p, ticks, L, j, quality)
            if wanted is not None:
                assert should_move(p, ticks, L, j, quality, rng) == wanted
        assert should_move(p, ticks, L, j, 1.1, rng)


def test_a_thousandth_more_decides():
    # Ω = (12505, 7495); with the last server on block 2 both would have 10000
    p, ticks = Placement([1, 1, 2, 1], [1, 1, 1, 1]), np.array([5000.0, 5000, 7495, 2505])
    decide = lambda q: should_move(p, ticks, 2, 3, q, np.random.default_rng(0))
    assert [decide(q) for q in (0.75, 0.7504, 0.7506, 1)] == [False, False, True, True]


def test_offers_are_whole_ticks_and_nothing_is_nothing():
    ticks = _in_ticks(np.array([1, 1 / 3, 0.1, 0.7]))
    assert (ticks == np.rint(ticks)).all() and (ticks > 0).all()
    assert _in_ticks(np.zeros(3)).tolist() == [0, 0, 0] and len(_in_ticks(np.zeros(0))) == 0
    # who offers nothing does not move in anybody's imagination
    swarm = _Swarm(Placement([2, 2], [1, 1]), np.array([5.0, 0]), 2)
    swarm.settle(np.random.default_rng(0))
    assert swarm.a.tolist() == [2, 2]


def test_a_real_move_does_not_prefer_to_stay():
    c = Cluster(2, 1, 1, [2, 2], [1, 1], [1, 1])
    assert rebalance(c, Placement([2, 1], [1, 0]), quality=2).a.tolist() == [1, 1]
    assert rebalance(c, Placement([2, 1], [1, 0]), quality=1).a.tolist() == [2, 1]


def test_a_server_that_takes_no_time_has_a_finite_offer():
    ticks = _in_ticks(np.array([np.inf, 3.0, 0.0, np.inf]))
    assert np.isfinite(ticks).all() and ticks[0] == ticks[3] > ticks[1] > ticks[2] == 0
    c = Cluster(4, 1, 1, [4] * 3, [0, 1, 0], [1] * 3)
    assert rebalance(c, Placement([1, 1, 1], [2, 2, 2])).e.max() == 5


@pytest.mark.parametrize("seed", range(cases(1000)))
def test_rebalancing_never_weakens(seed):
    rng = np.random.default_rng(seed)
    p, _, L = swarm_of(rng)
    c = Cluster(
        L, 1, 1, np.full(len(p.m), 2.0 * L), rng.choice([1, 2, 4], len(p.m)), [[1.0] * len(p.m)]
    )
    after = rebalance(c, p, quality=float(rng.choice([0.5, 0.75, 1, 1.2])), rounds=2, seed=seed)
    assert after.m.tolist() == p.m.tolist()
    before = p.hosts(L).T @ offers(c, p.m)
    assert (after.hosts(L).T @ offers(c, p.m)).min() >= before.min() * (1 - 1e-9)
    assert rebalance(c, p, quality=0, rounds=3) == p == rebalance(c, p, rounds=0)


# chains


def every_chain(p, L):
    "All chains through a placement, as tuples of servers."
    ways, found = [((), 1)], []
    while ways:
        servers, x = ways.pop()
        if x == L + 1:
            found.append(servers)
        next_ones = np.flatnonzero((p.a <= x) & (x < p.e)).tolist()
        ways += [((*servers, j), int(p.e[j])) for j in next_ones]
    return found


def estimate(c, p, servers, full, rtt, hop, tau):
    "The client's estimate in seconds, term by term."
    one_way = lambda t: UNKNOWN if np.isnan(t) else min(t, FARTHEST)
    total, x, last = one_way(rtt[servers[0]] / 2), 1, None
    for j in servers:
        total += 0 if last is None else one_way(hop[last, j])
        speed = STEP if np.isnan(tau[j]) else tau[j]
        total += PACKING + FULL * full[j] + speed * (p.e[j] - x)
        x, last = int(p.e[j]), j
    return total + one_way(rtt[last] / 2)


@pytest.mark.parametrize("seed", range(cases(3000)))
def test_the_chain_has_the_least_estimate_of_all(seed):
    rng = np.random.default_rng(seed)
    p, _, L = swarm_of(rng, most=7)
    n = len(p.m)
    gaps = lambda x: np.where(rng.random(x.shape) < 0.2, np.nan, x)
    rtt, hop = gaps(rng.choice([0.01, 0.2, 30], (1, n))), gaps(rng.choice([0.01, 0.2, 30], (n, n)))
    tau, free = gaps(rng.choice([0.001, 0.05], n)), rng.integers(0, L + 2, n)
    c = Cluster(L, 1, 1, [9.0 * L] * n, [1.0] * n, [[1.0] * n], time_unit="s")
    router = PetalsRouting(rtt=rtt, hop=hop, tau=tau)
    router.start(c, p)
    chain, ways = router.chain(0, free), every_chain(p, L)
    assert (chain is None) == (not ways)
    if ways:
        costs = [estimate(c, p, w, free < p.m, rtt[0], hop, tau) for w in ways]
        assert chain.servers in ways
        mine = estimate(c, p, chain.servers, free < p.m, rtt[0], hop, tau)
        assert np.isclose(mine, min(costs), rtol=1e-9)
        assert sum(chain.blocks) == L
        pool, request = SimpleNamespace(free=2.0 * free), SimpleNamespace(client=0, units=2.0)
        assert router.choose(pool, request) == chain


@pytest.mark.parametrize("seed", range(cases(400)))
def test_the_rule_is_the_cheapest_forwarded_chain_of_another_cluster(seed):
    rng = np.random.default_rng(seed)
    p, _, L = swarm_of(rng)
    n = len(p.m)
    rtt, hop = rng.uniform(1, 50, (2, n)), rng.uniform(1, 50, (n, n))
    c = Cluster(L, 1, 1, [9.0 * L] * n, rng.uniform(1, 9, n), rtt, hop=hop)
    free = rng.integers(0, L + 2, n)
    visit = 1000 * (PACKING + FULL * (free < p.m))
    other = replace(c, rtt=rtt + visit, hop=hop + visit / 2 + visit[:, None] / 2)
    hops = Hops(other, p, np.full(n, np.inf))
    cost, router = hops.costs(), PetalsRouting()
    router.start(c, p)
    for client in range(2):
        chain = router.chain(client, free)
        assert (chain is None) == np.isinf(cost[client])
        if chain is not None:
            assert (chain.servers, chain.blocks) == hops.chain(client)


def test_a_server_that_a_client_cannot_reach_is_left_out():
    c = Cluster(2, 1, 1, [9, 9], [1, 9], [[np.inf, 5], [5, 5]])
    router = PetalsRouting()
    router.start(c, Placement([1, 1], [2, 2]))
    assert router.chain(0, [9, 9]).servers == (1,) and router.chain(1, [9, 9]).servers == (0,)
    walk = PetalsThroughput()
    walk.start(c, Placement([1, 1], [2, 2]))
    assert {walk.chain(0).servers for _ in range(20)} == {(1,)}
    walk.start(c, Placement([1, 2], [1, 1]))
    assert walk.chain(0) is None and walk.chain(1).servers == (0, 1)


def test_nobody_goes_through_a_server_that_the_client_cannot_reach():
    c = Cluster(3, 1, 1, [2] * 3, [1] * 3, [[5, np.inf, 5], [5, 5, 5]])
    router = PetalsRouting()
    router.start(c, Placement([1, 2, 3], [1, 1, 1]))
    assert router.chain(0, [9] * 3) is None and router.chain(1, [9] * 3).servers == (0, 1, 2)


@pytest.mark.parametrize("seed", range(cases(200)))
def test_what_is_not_known_is_the_same_in_any_unit(seed):
    rng = np.random.default_rng(seed)
    p, _, L = swarm_of(rng, most=7)
    n = len(p.m)
    gaps = lambda x: np.where(rng.random(x.shape) < 0.5, np.nan, x)
    rtt, hop = gaps(rng.uniform(0.01, 0.5, (1, n))), gaps(rng.uniform(0.01, 0.5, (n, n)))
    tau, free = gaps(rng.uniform(0.001, 0.05, n)), rng.integers(0, L + 2, n)
    chains = []
    for unit, size in (("s", 1), ("ms", 1000)):
        c = Cluster(L, 1, 1, [9.0 * L] * n, [size] * n, [[size] * n], time_unit=unit)
        router = PetalsRouting(rtt=rtt * size, hop=hop * size, tau=tau * size)
        router.start(c, p)
        chains.append(router.chain(0, free))
    assert chains[0] == chains[1]


def test_a_step_that_is_not_known_takes_a_three_hundredth_of_a_second():
    c = Cluster(9, 1, 1, [18, 18], [1, 1], [5, 5])
    for tau, servers in ((3.3, (1,)), (3.4, (0,))):
        router = PetalsRouting(tau=[np.nan, tau])
        router.start(c, Placement([1, 1], [9, 9]))
        assert router.chain(0, [9, 9]).servers == servers


@pytest.mark.parametrize("share", [1, 1 - 1e-14, 1 + 1e-14])
def test_of_equal_ways_the_shorter_one(share):
    # into server 1 at once, or by server 0, which takes 18 ms more for packing
    c = Cluster(2, 1, 1, [9, 9], [0.01, 0.01], [0.02, 0.076 * share], time_unit="s")
    router = PetalsRouting(hop=np.full((2, 2), 0.01))
    router.start(c, Placement([1, 1], [1, 2]))
    assert router.chain(0, [9, 9]).servers == (1,)


def test_not_all_chains_are_kept_for_ever(monkeypatch):
    monkeypatch.setattr("serving_or.blocks.petals_rules.MOST_KEPT", 2)
    c = Cluster(1, 1, 1, [9] * 4, [1] * 4, [1] * 4)
    router = PetalsRouting()
    router.start(c, Placement([1] * 4, [1] * 4))
    for full in range(8):
        assert router.chain(0, [9 * (full >> j & 1) for j in range(4)]) is not None
        assert len(router._kept) <= 2


def test_nobody_goes_where_the_client_cannot():
    c = Cluster(2, 1, 1, [9, 9], [1, 9], [[np.inf, 5], [5, 5]])
    router = PetalsRouting()
    router.start(c, Placement([1, 1], [2, 1]))
    assert router.chain(0, [9, 9]) is None and router.chain(1, [9, 9]).servers == (0,)


def test_equal_spans_are_walked_equally_often():
    c = Cluster(1, 1, 1, [9, 9], [1, 9], [5, 5])
    walk = PetalsThroughput()
    walk.start(c, Placement([1, 1], [1, 1]))
    drawn = [walk.chain(0).servers[0] for _ in range(400)]
    assert 150 < sum(drawn) < 250


def test_the_walk_begins_anew_and_keeps_to_the_rules():
    rng = np.random.default_rng(0)
    p, _, L = Placement([1, 1, 3, 2, 4], [5, 2, 3, 2, 2]), None, 5
    c = Cluster(L, 1, 1, [9.0 * L] * 5, [1.0] * 5, [[1.0] * 5])
    walk = PetalsThroughput(seed=int(rng.integers(9)))
    runs = []
    for _ in range(2):
        walk.start(c, p)
        runs.append([walk.chain(0) for _ in range(200)])
    assert runs[0] == runs[1] and {w.servers for w in runs[0]} <= set(every_chain(p, L))


@pytest.mark.parametrize("given", [{"rtt": [[1, 2]]}, {"hop": [[1]]}, {"tau": [1, 2]}])
def test_what_was_measured_has_the_shape_of_the_cluster(given):
    with pytest.raises(ValueError, match="the cluster needs"):
        PetalsRouting(**given).start(B, Placement([1, 1, 1], [4, 2, 2]))


# plans


def test_requests_take_chains_until_one_would_wait():
    plan = petals(B, 2, reserve=2)
    assert plan.scope == "placement" and plan.cost >= plan.bound
    with pytest.raises(NotFound, match="would wait for server") as error:
        petals(B, 10, reserve=2)
    # as many as came before have a plan
    assert petals(B, error.value.served, reserve=2).requests.sum() == error.value.served
    with pytest.raises(NotFound, match="covers the model"):
        petals(B.take([1]), 1, reserve=2)
    assert petals(B, 0, reserve=2).cost == 0
    with pytest.raises(ValueError, match="router is of type str"):
        petals(B, 1, reserve=2, router="petals")


def test_a_server_does_not_forward_out_of_its_reach():
    c = Cluster(4, 1, 1, [4, 4], [1, 1], [10, 10], hop=[[0, np.inf], [1, 0]])
    # the client counts five seconds and goes there; where it relays itself, it can
    assert petals(c, 1, reserve=1).cost == 24
    with pytest.raises(NotFound, match="from server 0 to 1, out of its reach") as error:
        petals(c, 1, reserve=1, forward=True)
    assert error.value.served == 0
    back = replace(c, hop=[[0, 1], [np.inf, 0]])
    assert petals(back, 1, reserve=1, forward=True).cost == 15


def test_the_pool_is_what_petals_reserves():
    p = petals_bp(B, 2)
    slots = pooled(B, p, 2).slots(p.m)
    assert (slots == np.minimum(2 * p.m, B.slots(p.m))).all()
    wide = replace(B, memory=B.memory * 10)
    assert (pooled(wide, p, 1.5).slots(p.m) == np.floor(1.5 * p.m)).all()
    router = PetalsRouting()
    router.start(B, p)
    chains = one_by_one(B, p, np.array([3]), router)
    assert len(chains) == 3 and cheapest(B, p)[1][0].servers in {c.servers for c in chains}


def test_the_clients_take_turns():
    asked = []

    class Noted:
        def chain(self, client, free):
            asked.append(client)
            return Chain(client, (0,), (4,))

    c = Cluster(4, 1, 1, [99], [1], [[1]] * 3)
    one_by_one(c, Placement([1], [4]), np.array([1, 3, 2]), Noted())
    assert asked == [0, 1, 2, 1, 2, 1]


# launch lines


def test_a_plan_becomes_lines_that_are_read_back():
    plan = cg_bprr(B, 4)
    lines = launch_commands(plan, "bigscience/bloom", 148, [PEER, PEER], port=[31337, 31338, 1])
    assert list(lines) == sorted(lines, key=lambda j: (plan.placement.e[j], plan.placement.a[j]))
    for j, line in lines.items():
        launch = read_launch(line)
        assert launch.line == line and launch.initial_peers == (PEER, PEER)
        assert (launch.start + 1, launch.end + 1) == (plan.placement.a[j], plan.placement.e[j])
        assert launch.port == [31337, 31338, 1][j] and launch.inference_max_length == 148
        # requests a second: tau is in milliseconds
        held = launch.end - launch.start
        assert launch.throughput == pytest.approx(2000 / (plan.cluster.tau[j] * (held + 1)))


@pytest.mark.parametrize("who", ["python3", "/usr/bin/python3.11", "python"])
@pytest.mark.parametrize("throughput", ["1e-05", "2.5e+16", "7", "7.", ".5"])
def test_pythons_and_numerals_that_are_read(who, throughput):
    line = LINE.replace("python", who, 1).replace("12.5", throughput)
    assert read_launch(line).throughput == float(throughput)


def test_options_go_before_what_the_plan_says():
    options = {"inference_max_length": 999, "attn_cache_tokens": 7, "throughput": 2.5}
    for line in launch_commands(cg_bprr(B, 4), "m", 148, [PEER], **options).values():
        launch = read_launch(line)
        assert {name: getattr(launch, name) for name in options} == options


def test_without_peers_one_server_starts_the_swarm():
    (line,) = launch_commands(cg_bprr(B, 4), "m", 148).values()
    assert read_launch(line).start == 0 and line.endswith(" --new_swarm")
    assert read_launch(line).initial_peers == ()


@given(
    st.integers(1, 6), st.integers(1, 9), st.integers(1, 300), st.floats(0.1, 3), st.floats(0, 1)
)
def test_the_cache_budget_holds_the_chains_and_keeps_to_memory(m, slots, tokens, size, spare):
    c = Cluster(m, 2.0, size, memory=[2 * m + size * (slots + spare)], tau=[1], rtt=[1])
    f = int(c.sessions([m])[0])
    if f:
        plan = check(c, Placement([1], [m]), [Chain(0, (0,), (m,), f)], f)
        (line,) = launch_commands(plan, "m", tokens).values()
        T = read_launch(line).attn_cache_tokens
        # f sessions of so many tokens in all m blocks are admitted
        assert f * tokens * m <= T * m
        # memory holds them, but for less than a token a block
        assert (T - 1) * m * size / tokens <= (size * (slots + spare)) * (1 + 1e-8)


def test_whole_tokens_are_rounded_up_where_the_chains_need_it():
    # eight slots of 148 tokens over three blocks are 394.67 tokens a block
    c = Cluster(4, 4, 1, memory=[20, 24], tau=[1, 1], rtt=[1, 1])
    chains = [Chain(0, (0, 1), (3, 1), 2)]
    placement = Placement([1, 4], [3, 1])
    assert c.slots([3, 1]).tolist() == [8, 20]
    lines = launch_commands(check(c, placement, chains, 2), "m", 148, [PEER])
    budgets = [read_launch(line).attn_cache_tokens for line in lines.values()]
    idle = check(Cluster(4, 4, 1, [40, 9], [1, 1], [1, 1]), Placement([1, 1], [4, 0]), [], 0)
    assert pool_tokens(idle, 148).tolist() == [24 * 148 // 4, 0]
    # six of the eight slots are taken, and whole tokens hold them
    assert budgets == [394, 20 * 148]
    some = [Chain(0, (0,), (3,), 2), Chain(0, (1, 0), (1, 2), 1)]
    room = Cluster(3, 4, 1, memory=[20, 8], tau=[1, 1], rtt=[1, 1])
    plan = check(room, Placement([1, 1], [3, 1]), some, 3)
    lines = launch_commands(plan, "m", 10, [PEER])
    # 8 of 8 slots are taken: 80 / 3 = 26.67
    assert read_launch(lines[0]).attn_cache_tokens == 27


def test_lines_keep_one_word_one_word_in_a_shell():
    for model in ("a b", "it's; rm -rf $HOME", '"`x`$(y)', "ümlaut/модель", "../odd|>&"):
        line = Launch(model, 0, 3, **NEEDED, dht_prefix="m").line
        assert read_launch(line).model == model == shlex.split(line)[3]
        show = subprocess.run(
            ["sh", "-c", f'printf "%s\\n" {line.removeprefix("python ")}'],
            capture_output=True,
            text=True,
            check=True,
        )
        assert show.stdout.splitlines() == shlex.split(line)[1:]


@pytest.mark.parametrize("folder", ["/m", "./m", "../m", "a/b/m", "m/", "a b", "~/m", "."])
def test_a_folder_needs_a_name_among_the_peers(folder):
    "PETALS makes one from a name on the hub, and stops where it has to make one from a folder."
    with pytest.raises(ValueError, match="is a folder.*dht_prefix"):
        Launch(folder, 0, 3, **NEEDED)
    line = Launch(folder, 0, 3, **NEEDED, dht_prefix="m").line
    with pytest.raises(ValueError, match="is a folder"):
        read_launch(line.replace(" --dht_prefix m", ""))
    for name in ("m", "bigscience/bloom", "meta-llama/Llama-2-70b.x"):
        assert Launch(name, 0, 3, **NEEDED).dht_prefix is None


def test_a_line_that_is_too_long_is_neither_written_nor_read():
    "Python's shlex takes a time that is the square of a word's length."
    for more in ("a" * 10**6, "--throughput " + "1" * 10**6, "'" * 200_000):
        begun = time.process_time()
        with pytest.raises(ValueError, match="characters; it must have at most") as caught:
            read_launch(f"{LINE} {more}")
        assert time.process_time() - begun < 0.2 and len(str(caught.value)) < 100
    with pytest.raises(ValueError, match="it must be") as caught:
        read_launch("a " * 50_000)
    assert len(str(caught.value)) < 1000
    peers = Launch("m", 0, 3, **NEEDED, initial_peers=[PEER] * 1000)
    assert read_launch(peers.line) == peers
    with pytest.raises(ValueError, match="characters; at most"):
        Launch("m", 0, 3, **NEEDED, initial_peers=[PEER] * 10_000)


def changed(old, new):
    assert old in LINE
    return LINE.replace(old, new)


@pytest.mark.parametrize(
    "line, said",
    [
        (changed("0:3", "0-3"), "start:end"),
        (changed("0:3", "0:3:5"), "start:end"),
        (changed("0:3", "3:3"), "3:3"),
        (changed("0:3", "5:3"), "5:3"),
        (changed("0:3", "-1:3"), "block_indices has 0 values"),
        (changed("0:3", "'٠:٣'"), "start:end"),
        (LINE + " --num_blocks 3", "beside --block_indices"),
        (changed("--block_indices", "--block_ind"), "'--block_ind'"),
        (changed("--block_indices 0:3", "--block_indices=0:3"), "'--block_indices=0:3'"),
        (changed(" --block_indices 0:3", ""), "block_indices is not given"),
        (LINE + " --block_indices 0:3", "given twice"),
        (changed("12.5", "auto"), "'auto'"),
        (changed("12.5", "nan"), "throughput is 'nan'"),
        (changed("12.5", "1_0"), "throughput is '1_0'"),
        (changed("12.5", "1.2.5"), "throughput is '1.2.5'"),
        (changed("12.5", "."), "throughput is '.'"),
        (changed("12.5", "' 1'"), "throughput is ' 1'"),
        (changed("12.5", "1e400"), "throughput is inf"),
        (changed("python -m", "rm -m"), "must be `python"),
        (changed("python -m", "pythonic -m"), "must be `python"),
        (changed("12.5", "0"), "throughput is 0"),
        (changed(" --throughput 12.5", ""), "throughput is not given"),
        (LINE + " --device cpu", "torch_dtype|quant_type"),
        (changed("nf4", "none").replace("bfloat16", "float16") + " --device cpu", "torch_dtype"),
        (changed("nf4", "none").replace("bfloat16", "auto") + " --device cpu", "torch_dtype"),
        (changed("nf4", "fp8"), "quant_type is 'fp8'"),
        (LINE + " --device tpu", "device is 'tpu'"),
        (LINE + " --dht_prefix my.model", "dht_prefix is 'my.model'"),
        (LINE + " --dht_prefix 'my model'", "dht_prefix is 'my model'"),
        (LINE + " --port 0", "port is 0"),
        (LINE + " --port 65536", "port is 65536"),
        (LINE + " --port 1e3", "'1e3'"),
        (LINE + " --port 80 --host_maddrs /ip4/0.0.0.0/tcp/80", "one of them"),
        (LINE + " --new_swarm", "and not both"),
        (changed(f" --initial_peers {PEER}", ""), "one of --initial_peers and --new_swarm"),
        (changed(f" {PEER}", ""), "initial_peers has 0 values"),
        (changed(f"/p2p/{WHO}", ""), r"initial_peers\[0\]"),
        (changed("/tcp/31337", "/tcp/99999"), r"initial_peers\[0\]"),
        (changed("592", "0"), "attn_cache_tokens is 0"),
        (changed("148", "1.5"), "'1.5'"),
        (changed("bigscience/bloom", "''"), "model is ''"),
        (changed("bigscience/bloom", "--new_swarm"), "model is '--new_swarm'"),
        (LINE + " 'open", "a shell cannot read it"),
        ("python -m petals.cli.run_dht", "must be `python"),
        ("", "must be `python"),
        (None, "line is None"),
        (changed("bigscience/bloom", "$HOME"), "quoted word by word"),
        (LINE + "; rm x", "quoted word by word"),
        (LINE + " # on the left", "quoted word by word"),
        (LINE + " extra", "initial_peers"),
    ],
)
def test_a_line_is_read_more_strictly_than_petals_does(line, said):
    with pytest.raises(ValueError, match=said):
        read_launch(line)


@pytest.mark.parametrize(
    "more, said",
    [
        ({"model": "-v"}, "model is '-v'"),
        ({"model": "a\nb"}, "model is"),
        ({"model": ""}, "model is ''"),
        ({"model": None}, "model is None"),
        ({"tokens": 0}, "tokens is 0"),
        ({"tokens": 1.5}, "tokens is 1.5"),
        ({"port": 0}, "port is 0"),
        ({"port": [1, 2]}, "port has shape"),
        ({"port": "80"}, "port is '80'"),
        ({"initial_peers": PEER}, "must be a list of addresses"),
        ({"initial_peers": ["10.0.0.7:31337"]}, r"initial_peers\[0\] is '10.0.0.7:31337'"),
        ({"initial_peers": [f"{PEER} --port 1"]}, r"initial_peers\[0\]"),
        ({"device": "cpu"}, "on a CPU"),
        ({"throughput": "auto"}, "throughput is 'auto'"),
    ],
)
def test_bad_launches_are_refused(more, said):
    given = {"model": "m", "tokens": 148, "initial_peers": [PEER]} | more
    with pytest.raises(ValueError, match=said):
        launch_commands(cg_bprr(B, 4), **given)


def test_caches_that_differ_or_take_nothing_have_no_line():
    for cache, said in (([1, 1, 1, 2], "differs by block"), (0, "cache_size is 0")):
        c = Cluster(4, 4, cache, memory=[40], tau=[10], rtt=[10])
        plan = check(c, Placement([1], [4]), [Chain(0, (0,), (4,), 1)], 1)
        with pytest.raises(ValueError, match=said):
            launch_commands(plan, "m", 148, [PEER])


def test_a_free_server_has_no_throughput_to_report():
    c = Cluster(4, 4, 1, memory=[40], tau=[0], rtt=[10])
    plan = check(c, Placement([1], [4]), [Chain(0, (0,), (4,), 1)], 1)
    with pytest.raises(ValueError, match="throughput is inf"):
        launch_commands(plan, "m", 148)
    (line,) = launch_commands(plan, "m", 148, throughput=np.float64(3)).values()
    assert read_launch(line).throughput == 3
