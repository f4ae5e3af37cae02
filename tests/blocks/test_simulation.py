"""One event loop: against a plain restatement, its invariants, servers that leave, bad input."""

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or.blocks.cluster import Cluster
from serving_or.blocks.plan import BadPlan, Chain, NoRoute, Placement, request_time
from serving_or.blocks.routing import cheapest
from serving_or.blocks.simulation import (
    Arrivals,
    Change,
    Fastest,
    Lengths,
    Pool,
    Run,
    WithRoom,
    simulate,
)
from serving_or.tools.answers import NotFound
from serving_or.tools.data import load_requests
from tests.long import cases


@st.composite
def runs(draw, most=12):
    "A small cluster, a placement that covers its blocks, arrivals, and lengths."
    L, n, C = draw(st.integers(1, 5)), draw(st.integers(1, 5)), draw(st.integers(1, 2))
    times = st.integers(0, 9)
    rows = lambda size: draw(st.lists(times, min_size=size, max_size=size))
    a = [draw(st.integers(1, L)) for _ in range(n)]
    m = [draw(st.integers(0, L + 1 - x)) for x in a]
    a, m, n = [1, *a], [L, *m], n + 1
    spare = [draw(st.integers(0, 25)) for _ in range(n)]
    memory = [3.0 * k + s for k, s in zip(m, spare)]
    memory[0] += 7 * L
    prompts = {"prefill_tau": rows(n), "prefill_rtt": [rows(n) for _ in range(C)]}
    # caches of all blocks alike, or not
    shares = st.lists(st.sampled_from([1, 2, 4]), min_size=L, max_size=L)
    cache = draw(st.one_of(st.just(1), shares))
    cluster = Cluster(L, 3, cache, memory, rows(n), [rows(n) for _ in range(C)], **prompts)
    count = draw(st.integers(0, most))
    column = lambda of: draw(st.lists(of, min_size=count, max_size=count))
    gaps, prompt = column(st.integers(0, 20)), column(st.integers(0, 4))
    arrivals = Arrivals(
        np.cumsum(gaps), prompt, column(st.integers(1, 5)), column(st.integers(0, C - 1))
    )
    return cluster, Placement(a, m), arrivals, Lengths(1, 0, rows(n), draw(st.integers(0, 2)))


def chains_through(placement, blocks, x=1):
    "All chains from boundary x on, as tuples of (server, entry, end)."
    if x == blocks + 1:
        yield ()
    for j in np.flatnonzero((placement.a <= x) & (x < placement.e)).tolist():
        for rest in chains_through(placement, blocks, int(placement.e[j])):
            yield ((j, x, int(placement.e[j])), *rest)


class Plain:
    "The same in the plainest words: all chains are listed, and takings are added up anew."

    def __init__(self, cluster, placement, arrivals, lengths):
        self.c, self.a, self.sizes = cluster, arrivals, lengths
        self.ways = list(chains_through(placement, cluster.blocks))
        self.room = cluster.slots(placement.m, placement.a).tolist()
        self.accepted, self.total = [], np.full(len(arrivals), np.nan)

    def time(self, i, way):
        "Of the first token, and of all."
        c, first = self.c, 0.0
        who, p, later = self.a.client[i], self.a.prompt[i], 0.0
        for j, x, e in way:
            first += c.prompt_rtt[who, j] + self.sizes.rtt_slope * p
            first += (c.prompt_tau[j] + self.sizes.tau_slope[j] * p) * (e - x)
            later += c.rtt[who, j] + c.tau[j] * (e - x)
        return first + (self.a.output[i] - 1) * later

    def has_room(self, i, way, when):
        u, take = self.a.tokens[i], lambda x, e: float(self.c.cached(x, e))
        for j, x, e in way:
            held = sum(
                v * take(x, e)
                for end, v, other in self.accepted
                for q, x, e in other
                if q == j and end > when
            )
            if held + u * take(x, e) > self.room[j]:
                return False
        return True

    def accept(self, i, way, now):
        later = sorted({now, *(end for end, _, _ in self.accepted if end > now)})
        start = next(t for t in later if self.has_room(i, way, t))
        end = start + self.time(i, way)
        self.accepted.append((end, self.a.tokens[i], way))
        self.total[i] = end - self.a.arrival[i]

    def best(self, i, ways):
        return min(ways, key=lambda way: self.time(i, way), default=None)

    def fastest(self):
        for i, now in enumerate(self.a.arrival.tolist()):
            fit = [w for w in self.ways if self.has_room(i, w, np.inf)]
            if fit:
                self.accept(i, self.best(i, fit), now)
        return self.total

    def with_room(self):
        queue, coming, now = [], list(range(len(self.a))), 0.0
        while queue or coming:
            ends = [end for end, _, _ in self.accepted if end > now]
            moments = [*ends, *(self.a.arrival[i] for i in coming[:1])]
            now = min(moments, default=np.inf)
            if now == np.inf:
                break
            # whoever ends now is counted as gone, one departure after the other
            queue = self.served(queue, now)
            while coming and self.a.arrival[coming[0]] == now:
                i = coming.pop(0)
                if any(self.has_room(i, w, np.inf) for w in self.ways):
                    queue = self.served([*queue, i], now) if not queue else [*queue, i]
        return self.total

    def served(self, queue, now):
        while queue:
            way = self.best(queue[0], [w for w in self.ways if self.has_room(queue[0], w, now)])
            if way is None:
                break
            self.accept(queue[0], way, now)
            queue = queue[1:]
        return queue


@given(run=runs())
@settings(max_examples=cases(3000))
def test_the_loop_is_its_plain_restatement(run):
    cluster, placement, arrivals, lengths = run
    # a first token at least takes time: who takes none is gone at once
    lengths = replace(lengths, rtt_slope=1.0)
    arrivals = replace(arrivals, prompt=arrivals.prompt + 1)
    got = simulate(cluster, placement, arrivals, Fastest(), lengths=lengths, reject=True)
    plain = Plain(cluster, placement, arrivals, lengths)
    # chains of equal times may wait for different others
    times = [sorted(plain.time(i, w) for w in plain.ways) for i in range(len(arrivals))]
    one = all((np.diff(t) > 1e-9 * t[0]).all() for t in times)
    if one:
        np.testing.assert_allclose(got.total, plain.fastest(), rtol=1e-9)
        queued = simulate(cluster, placement, arrivals, WithRoom(), lengths=lengths, reject=True)
        expected = Plain(cluster, placement, arrivals, lengths).with_room()
        np.testing.assert_allclose(queued.total, expected, rtol=1e-9)


@pytest.mark.parametrize("router", [Fastest, WithRoom])
@given(run=runs())
@settings(max_examples=cases(2000))
def test_every_request_is_served_or_too_large(router, run):
    cluster, placement, arrivals, lengths = run
    given = {"lengths": lengths, "reject": True}
    got = simulate(cluster, placement, arrivals, router(), **given)
    assert got == simulate(cluster, placement, arrivals, router(), **given)
    pool = Pool(cluster, placement, lengths)
    fits = arrivals.tokens <= np.array([pool.limit(c) for c in arrivals.client.tolist()])
    assert (got.served == fits).all() and got.rejected == (~fits).sum()
    present, rate, time = got.little()
    assert present == pytest.approx(rate * time, rel=1e-9)
    ok = got.served
    assert (got.wait[ok] >= 0).all() and (got.ttft[ok] >= got.wait[ok]).all()
    assert (got.end[ok] >= got.first[ok]).all()
    if not fits.all():
        with pytest.raises(NoRoute, match="tokens"):
            simulate(cluster, placement, arrivals, router(), lengths=lengths)


@given(run=runs())
@settings(max_examples=cases(1000))
def test_alone_everyone_takes_the_offline_shortest_chain(run):
    cluster, placement, arrivals, _ = run
    # a cache each, so that the offline chain is one over the same servers
    apart = Arrivals(1e6 * np.arange(len(arrivals)), 0, arrivals.output, arrivals.client)
    for router in (Fastest(), WithRoom()):
        got = simulate(cluster, placement, apart, router, lengths=Lengths(5), reject=True)
        for i in np.flatnonzero(got.served).tolist():
            output = int(apart.output[i])
            whole = cluster.weighted(output)
            if (apart.output == 5).all():
                assert got.total[i] / output == pytest.approx(
                    cheapest(whole, placement)[0][apart.client[i]]
                )
            chain = got.chains[got.chain[i]]
            assert got.total[i] == pytest.approx(request_time(cluster, chain, output))
        assert not got.wait[got.served].any()


@given(run=runs())
@settings(max_examples=cases(1000))
def test_time_has_no_unit(run):
    cluster, placement, arrivals, lengths = run
    slow = {k: getattr(cluster, k) * 1024 for k in ("tau", "rtt", "prefill_tau", "prefill_rtt")}
    longer = replace(
        lengths, tau_slope=lengths.tau_slope * 1024, rtt_slope=lengths.rtt_slope * 1024
    )
    got = simulate(cluster, placement, arrivals, lengths=lengths, reject=True)
    later = replace(arrivals, arrival=arrivals.arrival * 1024)
    again = simulate(replace(cluster, **slow), placement, later, lengths=longer, reject=True)
    np.testing.assert_array_equal(got.total * 1024, again.total)


@given(st.integers(0, 200), st.integers(2, 40))
@settings(max_examples=cases(200))
def test_behind_a_long_queue_counting_back_is_counting_on(seed, rate):
    rng = np.random.default_rng(seed)
    c = Cluster(4, 4, 1, memory=[16, 12], tau=[10, 20], rtt=[10, 10])
    a = Arrivals.poisson(rate, 60, rng.integers(1, 3, 60), rng.integers(1, 3, 60), seed=seed)
    pool = Pool(c, Placement([1, 3], [2, 2]), Lengths(4))
    seen = []

    class Watch(Fastest):
        def choose(self, pool, request):
            for j in range(2):
                for need in (1.0, 5.0, pool.capacity[j], pool.capacity[j] + 1):
                    free, on = pool.free[j], pool.time
                    for end, _, given_back in pool.releases[j]:
                        if free >= need:
                            break
                        free, on = free + given_back, end
                    assert pool.from_time(j, need) == (on if free >= need else np.inf)
                    seen.append(-pool.free[j] > pool.capacity[j])
            return super().choose(pool, request)

    simulate(c, pool.placement, a, Watch(), lengths=Lengths(4))
    assert seen


# servers that come and go


@st.composite
def changes(draw, placement, n):
    "Placements in which servers are lost, come back, or are started anew."
    at, found = 0, []
    for _ in range(draw(st.integers(0, 4))):
        at += draw(st.integers(0, 25))
        gone = draw(st.lists(st.booleans(), min_size=n, max_size=n))
        lost = draw(st.lists(st.integers(0, n - 1), unique=True, max_size=2))
        found.append(Change(at, Placement(placement.a, np.where(gone, 0, placement.m)), lost))
    return found


@pytest.mark.parametrize("router", [Fastest, WithRoom])
@given(data=st.data(), run=runs())
@settings(max_examples=cases(2000))
def test_runs_with_losses_pass_the_replay(router, data, run):
    cluster, placement, arrivals, lengths = run
    churn = data.draw(changes(placement, cluster.n))
    given = {"churn": churn, "lengths": lengths, "reject": True}
    got = simulate(cluster, placement, arrivals, router(), **given)
    made = np.bincount(got.request, got.tokens, minlength=len(arrivals))
    assert (made[got.served] == arrivals.output[got.served]).all()
    assert (made <= arrivals.output).all()
    present, rate, time = got.little()
    assert present == pytest.approx(rate * time, rel=1e-9)
    if not churn:
        assert got == simulate(cluster, placement, arrivals, router(), lengths=lengths, reject=True)


TWINS = Cluster(4, 4, 1, memory=[16, 12, 12], tau=[10, 20, 20], rtt=[10, 10, 30])
BOTH = Placement([1, 3, 3], [2, 2, 2])
WITHOUT = Placement([1, 3, 3], [2, 0, 2])


def lose(time, output=3, prompt=1, **more):
    run = simulate(
        TWINS, BOTH, Arrivals([0], prompt, output), churn=[Change(time, WITHOUT)], **more
    )
    return run.tokens.tolist(), run.first[0], run.end[0]


def test_of_equal_chains_the_first_with_the_earliest_entry_is_taken():
    same = Cluster(2, 1, 1, [9, 9, 9, 9], tau=1, rtt=[2, 2, 1, 1])
    run = simulate(same, Placement([1, 1, 1, 2], [2, 2, 1, 1]), Arrivals([0], 0, 3))
    # 4 a token on servers 0 and 1, and on 2 with 3
    assert run.chains == (Chain(0, (0,), (2,)),)


@pytest.mark.parametrize("router", [Fastest, WithRoom])
@pytest.mark.parametrize("output", [1, 2])
def test_what_is_out_of_reach_is_out_of_reach_for_one_token_too(router, output):
    far = {"rtt": [[np.inf, 5, 5]], "prefill_rtt": [[1, np.inf, 5]]}
    c = Cluster(2, 1, 1, [90, 90, 9], tau=1, prefill_tau=1, **far)
    placed = Placement([1, 1, 1], [2, 2, 2])
    run = simulate(c, placed, Arrivals([0], 0, output), router())
    assert run.chains[0].servers == (2,) and run.total[0] == 7 * output
    with pytest.raises(NoRoute, match="request 0 has 20 tokens; no chain .* more than 3 for"):
        simulate(c, placed, Arrivals([0], 0, 20), router(), lengths=Lengths(1))


@pytest.mark.parametrize("router", [Fastest, WithRoom])
def test_blocks_of_different_sizes_fill_a_server_to_the_last_share(router):
    # the blocks leave 60, and a token takes 0.1 and 0.2: room for two hundred
    c = Cluster(2, [1, 2], [0.1, 0.2], memory=[63], tau=1, rtt=0)
    a = Arrivals([0] * 201, 0, 1)
    run = simulate(c, Placement([1], [2]), a, router(), lengths=Lengths(1))
    assert run.wait.tolist() == [0] * 200 + [2]
    full = {"start": np.zeros(201), "stop": np.full(201, 2.0)}
    with pytest.raises(BadPlan, match="holds"):
        replace(run, **full, first=full["stop"], end=full["stop"])


def test_a_loss_costs_a_prefill_of_all_tokens_so_far():
    # 80 ms a token, then 100 on the twin; 7 ms more for each block and token of the prompt
    slopes = {"lengths": Lengths(4, 1, [7, 7, 7])}
    assert lose(170, 5, **slopes) == ([2, 3], 80, 170 + (100 + 4 * 7 * 2) + 2 * 100)
    # in the prefill: nothing is generated yet
    assert lose(50) == ([0, 3], 150, 350)
    # at the very time of a token it counts, and at the end nothing is lost
    assert lose(80)[0] == [1, 2] and lose(160)[0] == [2, 1] and lose(240) == ([3], 80, 240)


def test_a_server_started_anew_has_lost_its_caches():
    again = [Change(100, BOTH, lost=[1])]
    run = simulate(TWINS, BOTH, Arrivals([0], 1, 3), churn=again)
    assert run.tokens.tolist() == [1, 2] and run.end[0] == 260


def test_who_is_about_to_start_when_a_server_is_lost_has_no_leg_there():
    change = Change(240, WITHOUT)
    run = simulate(TWINS, BOTH, Arrivals([0, 5, 10], 1, 3), churn=[change])
    # the third one would start at 240, just when the first one leaves
    last = run.request == 2
    assert last.sum() == 1 and run.start[last] == 240 and run.tokens[last] == 3
    assert run.chains[run.chain[last][0]].servers == (0, 2)


@pytest.mark.parametrize("router", [Fastest, WithRoom])
def test_after_a_change_they_stand_in_the_order_of_arrival(router):
    c = Cluster(1, 1, 1, memory=[11, 6], tau=[1, 2], rtt=0)
    here = lambda *m: Placement([1, 1], list(m))
    # the large one loses X and has no other; then X is back, and the small one loses Y
    churn = [Change(1, here(0, 1)), Change(3, here(1, 0))]
    a = Arrivals([0, 2], prompt=0, output=[8, 3])
    run = simulate(c, here(1, 1), a, router(), churn=churn, lengths=Lengths(1))
    begin = run.start[np.append(0, np.flatnonzero(run.request == 1)[-1])]
    again = run.start[(run.request == 0) & (run.start > 0)]
    assert again.tolist() == [3] and begin[1] == run.end[0] == 10


def test_who_loses_a_server_is_first_in_line():
    # room for two on A, for one each on B and C; all tokens alike
    c = Cluster(1, 1, 1, memory=[3, 2, 2], tau=1, rtt=[0, 1, 5])
    here = lambda *m: Placement([1, 1, 1], list(m))
    a = Arrivals([0, 0, 0, 1], prompt=0, output=4)
    # at 2 A is lost, and C comes: the last to come stands behind both who were on A
    run = simulate(c, here(1, 1, 0), a, WithRoom(), churn=[Change(2, here(0, 1, 1))])
    assert [run.start[run.request == i].tolist() for i in range(4)] == [[0, 2], [0, 8], [0], [12]]
    assert run.tokens[run.request < 2].tolist() == [2, 2, 2, 2]


def test_without_a_chain_requests_wait_for_the_next_change():
    none = Placement([1, 3, 3], [2, 0, 0])
    run = simulate(
        TWINS, BOTH, Arrivals([0, 110], 1, 3), churn=[Change(100, none), Change(500, BOTH)]
    )
    assert sorted(run.tokens.tolist()) == [1, 2, 3]
    assert run.end.tolist() == [660, 740] and run.wait.tolist() == [400, 390]
    # A comes back with room for the large one only later
    small = Placement([1, 3, 3], [2, 2, 2])
    large = Arrivals([0], 6, 6)
    huge = Cluster(4, 4, 1, memory=[16, 12, 30], tau=[10, 20, 20], rtt=[10, 10, 30])
    churn = [Change(10, Placement([1, 3, 3], [2, 2, 0])), Change(70, small)]
    run = simulate(huge, small, large, churn=churn, lengths=Lengths(4))
    assert run.start.tolist() == [0, 70] and run.tokens.tolist() == [0, 6]
    # for ever: an error, or counted, with the tokens that it had
    with pytest.raises(NoRoute, match="no chain at all for client 0"):
        simulate(TWINS, BOTH, Arrivals([0], 1, 3), churn=[Change(100, none)])
    run = simulate(TWINS, BOTH, Arrivals([0], 1, 3), churn=[Change(100, none)], reject=True)
    assert run.rejected == 1 and run.first[0] == 80 and np.isnan(run.end[0])


# what is refused

ONE = Cluster(4, 4, 1, memory=[16, 12], tau=[10, 20], rtt=[10, 10])
TILED = Placement([1, 3], [2, 2])


@pytest.mark.parametrize(
    "given, said",
    [
        ({"arrival": [3, 2]}, r"arrival\[1\] is 2, before arrival\[0\], 3.*sort"),
        ({"arrival": [-1]}, r"arrival\[0\] is -1"),
        ({"arrival": [np.nan]}, r"arrival\[0\] is nan"),
        ({"output": 0}, r"output\[0\] is 0 \(1 more .*drop_empty"),
        ({"output": [1, 0]}, r"output\[1\] is 0"),
        ({"output": 1.5}, "output is 1.5; it must be a whole number"),
        ({"prompt": [1]}, r"prompt has shape \(1,\)"),
        ({"client": -1}, "client is -1"),
        ({"time_unit": "h"}, "time_unit is 'h'"),
    ],
)
def test_bad_arrivals(given, said):
    with pytest.raises(ValueError, match=said):
        Arrivals(**{"arrival": [0, 1], "prompt": 1, "output": 1} | given)


def test_what_does_not_belong_to_the_cluster():
    with pytest.raises(ValueError, match="arrivals are in s, the cluster's times in ms"):
        simulate(ONE, TILED, Arrivals([0], 1, 1, time_unit="s"))
    with pytest.raises(ValueError, match=r"client\[1\] is 1; the cluster has clients 0 to 0"):
        simulate(ONE, TILED, Arrivals([0, 1], 1, 1, [0, 1]))
    with pytest.raises(ValueError, match="tau_slope has shape .3,.*2 servers"):
        simulate(ONE, TILED, Arrivals([0], 1, 1), lengths=Lengths(4, 1, [1, 2, 3]))
    with pytest.raises(ValueError, match="a prompt of 1 tokens would take less than no time"):
        simulate(ONE, TILED, Arrivals([0], 1, 1), lengths=Lengths(4, 100, 1.0))
    with pytest.raises(ValueError, match=r"churn\[1\] is at 1, before churn\[0\] at 2"):
        simulate(ONE, TILED, Arrivals([0], 1, 1), churn=[Change(2, TILED), Change(1, TILED)])
    with pytest.raises(ValueError, match=r"churn\[0\] is of type int"):
        simulate(ONE, TILED, Arrivals([0], 1, 1), churn=[3])
    with pytest.raises(BadPlan, match="memory"):
        simulate(ONE, Placement([1, 1], [4, 4]), Arrivals([0], 1, 1))
    with pytest.raises(ValueError, match=r"lost\[0\] is 2"):
        Change(0, TILED, [2])


@pytest.mark.parametrize("router", [Fastest, WithRoom])
def test_a_request_larger_than_any_cache_is_named_with_the_limit(router):
    a = Arrivals([0, 1, 2], prompt=[1, 30, 1], output=3)
    with pytest.raises(NoRoute, match="request 1 has 33 tokens; no chain .* more than 8 for"):
        simulate(ONE, TILED, a, router(), lengths=Lengths(4))
    run = simulate(ONE, TILED, a, router(), lengths=Lengths(4), reject=True)
    assert run.served.tolist() == [True, False, True] and "1 rejected" in run.summary()


class Says:
    "A router that says one thing."

    def __init__(self, said):
        self.said = said

    def start(self, cluster, placement):
        pass

    def choose(self, pool, request):
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


def test_routers_are_not_believed():
    a = Arrivals([0, 5], 1, 3)
    for chain, said in [
        (Chain(0, (0,), (2,)), "stops at block 2"),
        (Chain(0, (1, 0), (2, 2)), "enters server 1 at block 1"),
        (Chain(1, (0, 1), (2, 2)), "has client 1"),
        (Chain(0, (0, 5), (2, 2)), "visits server 5"),
    ]:
        with pytest.raises(BadPlan, match=said):
            simulate(ONE, TILED, a, Says(chain))
    with pytest.raises(BadPlan, match="returned 3; it must be a Chain or None"):
        simulate(ONE, TILED, a, Says(3))
    with pytest.raises(ValueError, match="router is the class Fastest; give an object"):
        simulate(ONE, TILED, a, Fastest)
    with pytest.raises(ValueError, match="router is of type str; it must have a method start"):
        simulate(ONE, TILED, a, "fastest")
    with pytest.raises(NotFound, match="Says offered request 0 no chain"):
        simulate(ONE, TILED, a, Says(None))
    assert simulate(ONE, TILED, a, Says(None), reject=True).rejected == 2
    with pytest.raises(NoRoute, match="never"):
        simulate(ONE, TILED, a, Says(NoRoute("never")))
    assert simulate(ONE, TILED, a, Says(NoRoute("never")), reject=True).rejected == 2


@pytest.mark.parametrize(
    "field, at, value, error",
    [
        ("start", 2, 10.0, "times"),
        ("stop", 0, 200.0, "times"),
        ("tokens", 0, 2, "times|contradicts"),
        ("first", 1, 90.0, "first contradicts"),
        ("end", 1, 250.0, "end contradicts"),
        ("end", 1, np.nan, "end contradicts"),
    ],
)
def test_a_run_that_was_changed_is_refused(field, at, value, error):
    run = simulate(ONE, TILED, Arrivals([0, 5, 10], 1, 3))
    changed = getattr(run, field).copy()
    changed[at] = value
    with pytest.raises(ValueError, match=error):
        replace(run, **{field: changed})


def test_a_leg_beyond_the_loss_of_its_server_is_refused():
    run = simulate(TWINS, BOTH, Arrivals([0], 1, 3))
    with pytest.raises(BadPlan, match="request 0 goes on beyond 100 on servers that lost"):
        replace(run, changes=[Change(100, BOTH, lost=[1])])
    # what is started anew before, at its end, or elsewhere does not matter
    for change in (Change(0, BOTH, [1]), Change(240, BOTH, [1]), Change(100, BOTH, [2])):
        assert replace(run, changes=[change]).total.tolist() == [240]


def test_times_of_later_tokens_need_two_tokens():
    run = simulate(ONE, TILED, Arrivals([0, 0, 500], 1, [1, 2, 3]))
    np.testing.assert_array_equal(run.tpot, [np.nan, 80, 80])


@pytest.mark.parametrize("far", ["rtt", "prefill_rtt"])
def test_a_router_that_goes_where_nobody_can_is_refused(far):
    trips = {"rtt": [[1, 1]], "prefill_rtt": [[1, 1]]} | {far: [[np.inf, 1]]}
    c = Cluster(1, 1, 1, memory=[9, 9], tau=1, prefill_tau=1, **trips)
    with pytest.raises(BadPlan, match="cannot reach"):
        simulate(c, Placement([1, 1], [1, 1]), Arrivals([0], 0, 3), Says(Chain(0, (0,), (1,))))


def test_an_overfull_run_is_refused_though_its_times_are_right():
    run = simulate(ONE, TILED, Arrivals([0, 5, 10], 1, 3))
    early = {"start": [0, 5, 10], "stop": [240, 245, 250], "first": [80, 85, 90]}
    arrays = {k: np.array(v, float) for k, v in early.items()}
    with pytest.raises(BadPlan, match=r"server 1 .* holds 24 .* at 10; it has room for 16"):
        replace(run, **arrays, end=arrays["stop"])


def test_a_run_travels(tmp_path):
    churn = [Change(100, WITHOUT)]
    run = simulate(TWINS, BOTH, Arrivals([0, 3], 1, 3), churn=churn)
    run.save(tmp_path / "run.json")
    assert Run.load(tmp_path / "run.json") == run == pickle.loads(pickle.dumps(run))
    assert list(run.to_frame().index) == ["wait", "first token", "later token", "total"]
    empty = simulate(ONE, TILED, Arrivals([], 1, 1))
    assert "0 requests" in empty.summary() and empty.little() == (0, 0, 0)
    assert empty.to_frame().isna().all().all() and "<svg" in empty.plot()


def test_some_of_the_requests_stay_in_their_order():
    a = Arrivals([0, 5, 9], [1, 2, 3], [4, 5, 6], [0, 1, 0])
    for which in ([2, 0], [True, False, True]):
        some = a.take(which)
        assert some == Arrivals([0, 9], [1, 3], [4, 6], 0)
    with pytest.raises(ValueError, match="once"):
        a.take([0, 0])


def test_traces_keep_their_order_and_lengths():
    trace = load_requests("azure_code")
    a = Arrivals.from_trace(trace, rate=2, count=500)
    assert (a.prompt == trace.prompt[:500]).all() and a.rate == pytest.approx(2)
    same = np.diff(a.arrival) / np.diff(trace.arrival[:500])
    np.testing.assert_allclose(same, same[0], rtol=1e-6)
    frame = pd.DataFrame({"arrival": [0, 1, 2], "prompt": [5, 5, 5], "output": [1, 0, 2]})
    with pytest.raises(ValueError, match="drop_empty"):
        Arrivals.from_trace(frame)
    kept = Arrivals.from_trace(frame, drop_empty=True)
    assert kept.dropped == 1 and kept.arrival.tolist() == [0, 2000]
    assert "1 dropped" in simulate(ONE, TILED, kept).summary()
    with pytest.raises(ValueError, match="trace has no output"):
        Arrivals.from_trace(frame[["arrival", "prompt"]])
    with pytest.raises(ValueError, match="at one time"):
        Arrivals.from_trace(frame.iloc[:1], rate=1)


def test_unstable_is_said_where_it_is_true():
    # B holds two at once of 1.6 s each: 1.25 a second
    for rate, unstable in ((0.5, False), (0.9, False), (3, True), (10, True)):
        for seed in range(5):
            run = simulate(ONE, TILED, Arrivals.poisson(rate, 1000, 1, 20, seed=seed))
            assert run.unstable == unstable == ("unstable" in run.summary())


def test_a_burst_that_passes_is_not_called_unstable():
    calm = 2000.0 * np.arange(250)
    a = Arrivals(np.sort(np.append(calm, np.full(50, calm[160]))), 1, 20)
    run = simulate(ONE, TILED, a)
    growth = np.polyfit(a.arrival / a.arrival[-1], run.wait, 1)[0]
    # on the whole the wait rises, but at the end it is gone
    assert growth > (run.total - run.wait).mean() and not run.wait[-20:].any()
    assert not run.unstable


def test_arrivals_so_late_that_a_token_is_lost_beside_them_are_refused():
    c = Cluster(1, 1, 1, memory=[3], tau=[1], rtt=[1])
    held, at = Placement([1], [1]), Arrivals([0, 2**40], 1, 1)
    assert simulate(c, held, at).total.tolist() == [2, 2]
    for late in (2.0**60, 1e300):
        with pytest.raises(ValueError, match="take a larger rate, or fewer requests"):
            simulate(c, held, Arrivals([0, late], 1, 1))
