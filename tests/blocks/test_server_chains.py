"""Chains against enumeration, the queue against a Markov chain, JFFC against a recursion."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or.blocks import Cluster, NoRoute, NotFound, Placement, TooLarge
from serving_or.blocks.designs import candidate_designs
from serving_or.blocks.plan import Chain, token_time
from serving_or.blocks.routing import cheapest
from serving_or.blocks.server_chains import (
    ChainQueue,
    JoinFastestFree,
    ServerChains,
    allocate_caches,
    as_one,
    place_chains,
    plan_chains,
)
from serving_or.blocks.simulation import Arrivals, Lengths, WithRoom, simulate
from serving_or.fleet.staffing import Queue, erlang_c
from tests.long import cases


def small(seed, clients=1):
    "A small cluster and a placement through which there is a chain, and the rng."
    rng = np.random.default_rng(seed)
    while True:
        n, L = int(rng.integers(1, 7)), int(rng.integers(1, 7))
        memory, tau = rng.integers(2, 40, n), rng.integers(1, 9, n)
        c = Cluster(L, 2, 1, memory, tau, rng.integers(0, 30, (clients, n)))
        m = rng.integers(0, c.counts(1) + 1)
        placement = Placement([rng.integers(1, L - k + 2) for k in m], m)
        if np.isfinite(cheapest(as_one(c, 8), placement)[0]).all():
            return c, placement, rng


def every_chain(c, placement, slots):
    "All chains with room for one request, by depth-first search."
    found, open_ = [], [((), (), 1)]
    while open_:
        servers, blocks, x = open_.pop()
        if x == c.blocks + 1:
            found.append((servers, blocks))
        for j in range(c.n):
            k = placement.e[j] - x
            if placement.a[j] <= x < placement.e[j] and k <= slots[j]:
                open_.append(((*servers, j), (*blocks, int(k)), int(placement.e[j])))
    return found


@pytest.mark.parametrize("seed", range(cases(2000)))
def test_the_chains_are_those_of_enumeration_and_leave_no_room(seed):
    c, placement, _ = small(seed)
    found = allocate_caches(c, placement, output=4)
    one, slots = as_one(c, 4), c.slots(placement.m)
    time_of = lambda way: token_time(one, Chain(0, *way))
    for chain, time in zip(found.chains, found.times):
        best = min(map(time_of, every_chain(c, placement, slots)))
        assert np.isclose(best * 4, time)
        j = list(chain.servers)
        often = slots[j] // np.array(chain.blocks)
        # alike chains may have been merged, or stand in another order than they were found
        slots[j] -= chain.count * np.array(chain.blocks)
        assert chain.count <= often.min() and (slots >= 0).all()
    assert not every_chain(c, placement, slots)
    assert len(found.chains) <= placement.m.sum()


@pytest.mark.parametrize("seed", range(cases(1000)))
def test_no_other_chain_is_ever_used(seed):
    c, placement, rng = small(seed)
    found = allocate_caches(c, placement, output=4)
    rate = found.most_rate * rng.uniform(0.3, 1.3)
    arrivals = Arrivals.poisson(rate, 60, prompt=3, output=4, seed=seed)
    run = simulate(c, placement, arrivals, JoinFastestFree(4))
    free = simulate(c, placement, arrivals, WithRoom())
    if len(set(found.times.tolist())) == len(found.times):
        assert np.allclose(run.end, free.end, rtol=1e-12)
    # the loop keeps no count of places: the claim is that it needs none
    most = {(chain.servers, chain.blocks): chain.count for chain in found.chains}
    for q, chain in enumerate(run.chains):
        legs = run.chain == q
        start, stop = run.start[legs], run.stop[legs]
        present = (start[:, None] <= start) & (start < stop[:, None])
        assert present.sum(axis=0).max(initial=0) <= most[chain.servers, chain.blocks]


@given(st.lists(st.floats(0, 50), min_size=1, max_size=40), st.integers(1, 9))
def test_one_place_is_the_recursion_of_a_line(gaps, tau):
    c, arrival = Cluster(1, 1, 1, memory=[2], tau=[tau], rtt=[1]), np.cumsum(gaps)
    placement = Placement([1], [1])
    run = simulate(c, placement, Arrivals(arrival, 1, 1), JoinFastestFree(1))
    end, free = [], 0.0
    for t in arrival.tolist():
        free = max(free, t) + 1 + tau
        end.append(free)
    assert np.allclose(run.end, end, rtol=1e-12)


def steps_of(state, rate, times, places):
    "What happens next: the state after it, and its rate; its last number is the line."
    n, w = state[:-1], state[-1]
    free = [i for i in range(len(n)) if n[i] < places[i]]
    joined = tuple(x + (i == free[0]) for i, x in enumerate(n)) if free else n
    yield (*joined, w + (not free)), rate
    for i in range(len(n)):
        left = n if w else tuple(x - (h == i) for h, x in enumerate(n))
        if n[i]:
            yield (*left, max(w - 1, 0)), n[i] / times[i]


def truncated(rate, times, places, line):
    "The Markov chain with at most so many in line, state by state."
    every = [(*n, 0) for n in product(*(range(q + 1) for q in places))]
    every += [(*places, w) for w in range(1, line + 1)]
    index = {state: i for i, state in enumerate(every)}
    A = np.zeros((len(every), len(every)))
    for state, at in index.items():
        for to, speed in steps_of(state, rate, times, places):
            if to in index:
                A[index[to], at] += speed
                A[at, at] -= speed
    A[-1] = 1.0
    p = np.linalg.solve(A, np.eye(len(every))[-1])
    n = np.array(every)
    present, wait = p @ n.sum(axis=1), p @ n[:, -1]
    full = n[:, :-1].sum(axis=1) == sum(places)
    return present, present / rate, p @ full, wait / rate


def reduced(rate, times, places):
    "The chain of states by state reduction, which subtracts nothing and so keeps every digit."
    rho = rate / sum(q / t for q, t in zip(places, times))
    every = list(product(*(range(q + 1) for q in places)))
    index = {state: i for i, state in enumerate(every)}
    A = np.zeros((len(every), len(every)))
    for state, at in index.items():
        for to, speed in steps_of((*state, 0), rate, times, places):
            if to[-1] == 0:
                full = state == tuple(places)
                A[at, index[to[:-1]]] += speed * (1 - rho if full else 1.0)
    for k in range(len(A) - 1, 0, -1):
        A[:k, k] /= A[k, :k].sum()
        A[:k, :k] += np.outer(A[:k, k], A[k, :k])
    p = np.ones(len(A))
    for k in range(1, len(A)):
        p[k] = p[:k] @ A[:k, k]
        p[: k + 1] /= max(p[k], 1.0)
    p /= p.sum()
    line = p[-1] * rho / (1 - rho)
    present = p @ np.array(every).sum(axis=1) + line
    return present, present / rate, p[-1], line / rate


@pytest.mark.parametrize("seed", range(cases(400)))
def test_the_exact_measures_of_chains_that_differ_a_thousandfold(seed):
    rng = np.random.default_rng(seed)
    K = int(rng.integers(2, 5))
    times = np.sort(10 ** rng.uniform(-3, 3, K))
    places = rng.integers(1, [0, 0, 22, 8, 4][K], K).tolist()
    if seed % 4 == 0:
        # many places on the slow chain, none of which is used in the first state
        times, places = np.array([1.0, 1000.0]), [1, int(rng.integers(100, 140))]
    load = float(rng.choice([0.01, 0.3, 0.7, 0.99, 0.9999]))
    q = ChainQueue(load * (places / times).sum(), times, places)
    exact, sure = q.exact(), reduced(q.rate, times.tolist(), places)
    assert np.allclose(exact, sure, rtol=1e-7, atol=1e-10 * max(times))
    assert abs(exact.waiting - sure[2]) < 1e-10
    for low, x, high in zip(q.low, sure, q.high):
        assert low <= x * (1 + 1e-9) and x <= high * (1 + 1e-9)


def test_an_exact_queue_far_from_its_first_state():
    # 2,250 of 19,999 slow places are busy; the state with none of them has weight e^-2250
    q = ChainQueue(3, [1, 1000], [1, 19_999])
    # a quarter of the requests finds the fast place free: Erlang's loss of load 3 with one place
    assert np.isclose(q.exact().present, 0.75 + 3 * 0.75 * 1000, rtol=1e-9)
    assert q.low.present <= q.exact().present <= q.high.present
    tiny = ChainQueue(1e-310, [1e308, 1e308], 1)
    assert np.isclose(tiny.exact().waiting, erlang_c(2, 0.01), rtol=1e-6)


@pytest.mark.parametrize("seed", range(cases(300)))
def test_the_exact_measures_are_those_of_the_chain_of_states(seed):
    rng = np.random.default_rng(seed)
    K = int(rng.integers(1, 4))
    times, places = np.sort(rng.uniform(1, 9, K)), rng.integers(1, 4, K)
    rate = (places / times).sum() * rng.uniform(0.05, 0.7)
    q = ChainQueue(rate, times, places)
    assert np.allclose(q.exact(), truncated(rate, times, places.tolist(), 60), rtol=1e-6)


chains = st.integers(1, 3).flatmap(
    lambda K: st.tuples(
        st.lists(st.floats(0.1, 100), min_size=K, max_size=K),
        st.lists(st.integers(1, 6), min_size=K, max_size=K),
        st.floats(0.01, 0.99),
    )
)


@settings(max_examples=cases(3000))
@given(chains)
def test_the_bounds_hold(drawn):
    times, places, load = drawn
    q = ChainQueue(load * (np.array(places) / times).sum(), times, places)
    for low, exact, high in zip(q.low, q.exact(), q.high):
        assert low <= exact * (1 + 1e-8) + 1e-12 and exact <= high * (1 + 1e-8) + 1e-12
    assert min(times) * (1 - 1e-9) <= q.low.response
    assert all(high < np.inf for high in q.high)


def test_a_full_matrix_and_a_sparse_one_agree_and_states_are_limited():
    few = ChainQueue(1.0, [3.0, 5.0], [14, 16])
    assert np.isclose(few.low.response, 3.0, rtol=1e-3)
    # one chain given as two is Erlang's queue, in 30 states and in 961
    for q in (ChainQueue(7.0, [3.0, 3.0], [14, 15]), ChainQueue(9.5, [3.0, 3.0], [30, 30])):
        Q, a = int(q.places.sum()), q.rate * 3
        assert np.isclose(q.exact().waiting, erlang_c(Q, a), rtol=1e-8)
    with pytest.raises(TooLarge, match="limit is 40000"):
        ChainQueue(1.0, [1.0, 2.0, 3.0], 100).exact()
    with pytest.raises(TooLarge, match="million|1e\\+0|1000000"):
        ChainQueue(1.0, [1.0, 2.0], 10**6)


@settings(max_examples=cases(2000))
@given(st.integers(1, 400), st.floats(0.01, 0.995), st.floats(1e-3, 1e3))
def test_alike_chains_are_erlangs_queue(Q, load, time):
    q, erlang = ChainQueue(load * Q / time, time, Q), Queue(Q, load * Q / time, time)
    assert np.isclose(q.low.waiting, erlang.waiting, rtol=1e-7, atol=1e-300)
    assert np.isclose(q.high.mean_wait, erlang.mean_wait, rtol=1e-7, atol=1e-300)
    assert np.allclose(q.low, q.high, rtol=1e-9)


def test_a_load_of_one_has_no_end():
    q = ChainQueue(3.0, [1.0, 1.0], 1)
    assert q.low == q.high == q.exact() == (np.inf, np.inf, 1.0, np.inf)


def disjoint_chains(own, K, size):
    "All sets of K disjoint sets of servers, as sums of their times."
    if K == 0:
        yield ()
        return
    for group in combinations(sorted(own), size):
        rest = {j: own[j] for j in own if j not in group and j > group[0]}
        # the first set holds the least number, so that no set of sets comes twice
        for more in disjoint_chains(rest, K - 1, size):
            yield (sum(own[j] for j in group), *more)


@pytest.mark.parametrize("seed", range(cases(400)))
def test_equal_counts_put_the_fastest_servers_together(seed):
    rng = np.random.default_rng(seed)
    n, size, K = int(rng.integers(4, 8)), int(rng.integers(1, 4)), int(rng.integers(1, 3))
    if size * K > n:
        K = 1
    even = seed % 2
    L = 2 * size if even else max(2 * size - 1, 1)
    tau = rng.integers(1, 9, n) if even else np.full(n, 3)
    c = Cluster(L, 4, 1, [12] * n, tau, rng.integers(0, 30, n))
    if c.counts(2).min() < 2:
        return
    own = dict(enumerate(c.rtt[0] + (2 * c.tau if even else 0.0)))
    extra = 0.0 if even else 3.0 * L
    best = max(sum(1 / (x + extra) for x in sums) for sums in disjoint_chains(own, K, size))
    found = place_chains(c, None, 2, output=1)
    rank = sorted(np.flatnonzero(found.m), key=lambda j: own[j])[: size * K]
    sums = [sum(own[j] for j in rank[i * size : (i + 1) * size]) + extra for i in range(K)]
    assert np.isclose(sum(1 / x for x in sums), best)


@pytest.mark.parametrize("seed", range(cases(400)))
def test_chains_that_are_placed_are_disjoint_and_have_their_places(seed):
    rng = np.random.default_rng(seed)
    n, L, design = int(rng.integers(1, 9)), int(rng.integers(1, 9)), int(rng.integers(1, 4))
    c = Cluster(L, 2, 1, rng.integers(2, 60, n), rng.integers(1, 9, n), rng.integers(0, 30, n))
    try:
        placement = place_chains(c, None, design, output=5)
    except NotFound:
        assert c.counts(design).sum() < L
        return
    used = np.flatnonzero(placement.m)
    assert (placement.m[used] == c.counts(design)[used]).all()
    # every chain has a last server, and holds each block
    ends = (placement.e[used] == L + 1).sum()
    assert (placement.hosts(L)[used].sum(axis=0) >= ends).all()
    chains = allocate_caches(c, placement, 5)
    assert chains.places.sum() >= design


def middle_of(chains, rate):
    "The middle of the two bounds on the mean time."
    return (chains.queue(rate).low.response + chains.queue(rate).high.response) / 2


@pytest.mark.parametrize("seed", range(cases(400)))
def test_the_design_is_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    n, L = int(rng.integers(2, 9)), int(rng.integers(1, 9))
    c = Cluster(L, 2, 1, rng.integers(4, 60, n), rng.integers(1, 9, n), rng.integers(0, 30, n))
    load, rate = float(rng.choice([0.5, 0.9, 1.0])), 10 ** rng.uniform(-1, 2.5)
    others = []
    for design in range(1, 60):
        try:
            other = allocate_caches(c, place_chains(c, rate, design, 3, load), 3)
        except NotFound:
            continue
        if other.queue(rate).utilisation <= load * (1 + 1e-9):
            others.append(middle_of(other, rate))
    if not others:
        with pytest.raises(NotFound, match="designs tried"):
            plan_chains(c, rate, 3, load)
        return
    found = plan_chains(c, rate, 3, load)
    assert np.isclose(middle_of(found, rate), min(others), rtol=1e-9)
    assert found.queue(rate).utilisation <= load * (1 + 1e-9)


def test_of_many_designs_the_largest_of_each_block_count_is_tried():
    c = Cluster(6, 2, 0.1, [30, 28, 26, 24, 22, 20], [1, 2, 3, 4, 5, 6], [5] * 6)
    largest = candidate_designs(as_one(c, 3), 10_000, 64)
    few, all_of_them = plan_chains(c, 20, 3, most=30), plan_chains(c, 20, 3, most=1000)
    assert few.design in largest
    assert middle_of(all_of_them, 20) <= middle_of(few, 20) * (1 + 1e-9)


def test_a_design_that_loses_rate_when_caches_are_split_is_no_design():
    c = Cluster(4, 2, 1, [15, 16, 5, 20], [4, 2, 4, 8], [9, 19, 12, 6])
    # disjoint chains carry 150 requests/s, the fastest chains first 138
    split = allocate_caches(c, place_chains(c, 144, 3, output=1, load=1.0), 1)
    assert split.most_rate < 144 and split.queue(72).utilisation > 0.5
    with pytest.raises(NotFound, match="has chains for 142.857"):
        plan_chains(c, 72, output=1, load=0.5)
    assert plan_chains(c, 71, output=1, load=0.5).queue(71).utilisation <= 0.5


def test_the_unit_of_time_does_not_matter():
    ms = Cluster(4, 4, 1, [16, 12, 12], [10, 20, 30], [10, 10, 10])
    s = Cluster(4, 4, 1, [16, 12, 12], [0.01, 0.02, 0.03], [0.01] * 3, time_unit="s")
    a, b = (allocate_caches(c, Placement([1, 3, 3], [2, 2, 2]), 1) for c in (ms, s))
    assert np.isclose(a.most_rate, b.most_rate)
    assert np.isclose(a.queue(30).high.response, 1000 * b.queue(30).high.response)


def test_several_clients_see_their_own_order():
    c = Cluster(1, 1, 1, [3, 3], [1, 1], [[1, 9], [9, 1]])
    placement = Placement([1, 1], [1, 1])
    run = simulate(c, placement, Arrivals([0, 0], 1, 1, client=[0, 1]), JoinFastestFree(1))
    assert run.end.tolist() == [2, 2]
    assert allocate_caches(c, placement, 1).times.tolist() == [6, 6]
    # a server that one client does not reach is in no chain of all, but the other client finds it
    far = Cluster(1, 1, 1, [3, 3], [1, 1], [[1, 9], [np.inf, 1]])
    assert allocate_caches(far, placement, 1).chains[0].servers == (1,)
    both = Arrivals([0, 0], 1, 1, client=[0, 1])
    assert simulate(far, placement, both, JoinFastestFree(1)).end.tolist() == [2, 2]


def test_lists_of_several_clients_do_as_well_as_a_search():
    ratios = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n, L = int(rng.integers(3, 9)), int(rng.integers(2, 7))
        rtt = rng.integers(1, 40, (3, n)).astype(float)
        rtt[rng.random((3, n)) < 0.1] = np.inf
        c = Cluster(L, 2, 1, rng.integers(6, 50, n), rng.integers(1, 9, n), rtt)
        m = rng.integers(1, c.counts(1) + 1)
        placement = Placement([rng.integers(1, L - k + 2) for k in m], m)
        if not np.isfinite(cheapest(c.weighted(4), placement)[0]).all():
            continue
        arrivals = Arrivals.poisson(15, 150, prompt=3, output=4, seed=seed, clients=3)
        runs = [simulate(c, placement, arrivals, r) for r in (JoinFastestFree(4), WithRoom())]
        ratios.append(runs[0].total.mean() / runs[1].total.mean())
    assert len(ratios) > 20 and np.mean(ratios) < 1.01


@pytest.mark.parametrize("seed", range(cases(400)))
def test_equally_fast_chains_keep_their_order_and_places(seed):
    rng = np.random.default_rng(seed)
    n, L = int(rng.integers(2, 7)), int(rng.integers(2, 7))
    # sums of these are equal but for rounding
    tau, rtt = rng.choice([0.1, 0.2, 0.3], n), rng.choice([0.1, 0.2, 0.3, 0.7], n)
    c = Cluster(L, 2, 1, rng.integers(2, 40, n), tau, rtt)
    m = rng.integers(0, c.counts(1) + 1)
    placement = Placement([rng.integers(1, L - k + 2) for k in m], m)
    if not np.isfinite(cheapest(as_one(c, 4), placement)[0]).all():
        return
    found = allocate_caches(c, placement, 4)
    arrivals = Arrivals.poisson(found.most_rate * 0.9, 80, prompt=3, output=4, seed=seed)
    run = simulate(c, placement, arrivals, JoinFastestFree(4))
    most = {(chain.servers, chain.blocks): chain.count for chain in found.chains}
    for q, chain in enumerate(run.chains):
        start, stop = run.start[run.chain == q], run.stop[run.chain == q]
        present = (start[:, None] <= start) & (start < stop[:, None])
        assert present.sum(axis=0).max(initial=0) <= most[chain.servers, chain.blocks]


def test_without_caches_there_is_always_room():
    c = Cluster(1, 1, 0, [3, 3], [1, 1], [1, 5])
    run = simulate(c, Placement([1, 1], [1, 1]), Arrivals([0, 0, 0], 1, 1), JoinFastestFree(1))
    assert run.end.tolist() == [2, 2, 2]


@pytest.mark.parametrize("seed", range(cases(300)))
def test_requests_of_many_lengths_are_served_as_far_as_the_servers_hold_them(seed):
    c, placement, rng = small(seed, clients=1 + seed % 2)
    count = 40
    lengths = rng.integers(1, 12, count)
    arrivals = Arrivals(
        np.cumsum(rng.exponential(20, count)),
        rng.integers(0, 12, count),
        lengths,
        client=rng.integers(1 + seed % 2, size=count),
    )
    run = simulate(c, placement, arrivals, JoinFastestFree(4), reject=True)
    free = simulate(c, placement, arrivals, WithRoom(), reject=True)
    assert (run.served == free.served).all()


def test_records_travel(tmp_path):
    c = Cluster(4, 4, 1, [16, 12, 12], [10, 20, 30], [10, 10, 10])
    found = allocate_caches(c, Placement([1, 3, 3], [2, 2, 2]), 1)
    for record in (found, found.queue(30)):
        record.save(tmp_path / "x.json")
        assert type(record).load(tmp_path / "x.json") == record
    assert found.to_frame()["places"].tolist() == [2, 2] and "2 chains" in found.summary()


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda c, p: allocate_caches(c, p, 0), "output is 0"),
        (lambda c, p: allocate_caches(c, p).queue(0), "rate is 0"),
        (lambda c, p: ChainQueue(1, [1, 0], 1), "above 0"),
        (lambda c, p: ChainQueue(1, [], 1), "times"),
        (lambda c, p: ChainQueue(1, [1, 2], [1, 2, 3]), "places has shape"),
        (lambda c, p: ChainQueue(1, [1, 2], [1, 0]), "places"),
        (lambda c, p: ServerChains(c, p, (), 1), "chains is empty"),
        (lambda c, p: place_chains(c, -1, 2), "rate is -1"),
        (lambda c, p: place_chains(c, 0, 2), "rate is 0"),
        (lambda c, p: ChainQueue(1, [1, 1e-310], 1), "above 0"),
        (lambda c, p: place_chains(c, 1, 0), "design is 0"),
        (lambda c, p: place_chains(c, 1, 2, load=0), "load is 0"),
        (lambda c, p: plan_chains(c, 0), "rate is 0"),
        (lambda c, p: plan_chains(Cluster(1, 1, 0, [3], [1], [1]), 1), "cache_size is 0"),
        (
            lambda c, p: allocate_caches(Cluster(1, 1, 0, [3], [1], [1]), Placement([1], [1])),
            "size",
        ),
        (lambda c, p: JoinFastestFree(np.nan), "output"),
        (lambda c, p: place_chains(Cluster(2, [1, 2], 1, [9], [1], [1]), 1, 2), "padded"),
    ],
)
def test_what_is_refused(call, words):
    c = Cluster(4, 4, 1, [16, 12, 12], [10, 20, 30], [10, 10, 10])
    with pytest.raises(ValueError, match=words):
        call(c, Placement([1, 3, 3], [2, 2, 2]))


def test_too_little_is_said():
    c = Cluster(4, 4, 1, [16, 12, 12], [10, 20, 30], [10, 10, 10])
    with pytest.raises(NoRoute, match="no chain"):
        allocate_caches(c, Placement([1, 3, 3], [1, 2, 2]))
    with pytest.raises(NotFound, match="designs tried"):
        plan_chains(c, 1e6)
    with pytest.raises(NotFound, match="disjoint chains"):
        place_chains(c, None, 1000)
    with pytest.raises(TooLarge, match="places"):
        allocate_caches(Cluster(1, 1, 1e-12, [3], [1], [1]), Placement([1], [1]))


def test_a_chain_ends_with_what_is_missing():
    # 10 + 2 * 10 and 5 + 1 * 15: the second server holds two blocks and runs one
    c = Cluster(3, 1, 0.1, memory=[2.3, 2.3], tau=[10, 15], rtt=[10, 5])
    assert place_chains(c, 1000 / 50, 1, output=1, load=1.0).m.tolist() == [2, 2]
    with pytest.raises(NotFound, match="carry 20 requests/s"):
        place_chains(c, 21, 1, output=1, load=1.0)


def test_a_rate_that_is_just_carried_opens_no_other_chain():
    # 125 ms, so 8 requests a second
    c = Cluster(1, 1, 1, memory=[2, 2], tau=[25, 25], rtt=[100, 100])
    assert place_chains(c, 8, 1, output=1, load=1.0).m.tolist() == [1, 0]
    assert place_chains(c, 8.01, 1, output=1, load=1.0).m.tolist() == [1, 1]


def test_of_designs_with_the_same_chains_the_largest_is_told():
    assert plan_chains(Cluster(1, 1, 1, [9], [1], [1]), 1, output=1).design == 8


def test_a_server_that_one_client_does_not_reach_is_in_no_placed_chain():
    c = Cluster(1, 1, 1, [3, 3], [1, 1], [[1, 9], [np.inf, 1]])
    assert place_chains(c, None, 1, output=1).m.tolist() == [0, 1]


def test_a_request_that_no_chain_of_the_list_could_hold_takes_another():
    "The list fills X's two slots with the two fast seconds, which have one each; a long one has Y."
    c = Cluster(2, 1, 1, memory=[3, 2, 2, 3], tau=[1] * 4, rtt=[1, 1, 1, 9])
    held = Placement([1, 2, 2, 2], [1, 1, 1, 1])
    listed = [chain.servers for chain in allocate_caches(c, held, 1).chains]
    assert listed == [(0, 1), (0, 2)]
    run = simulate(c, held, Arrivals([0], 1, 1), JoinFastestFree(1), lengths=Lengths(1))
    assert run.end.tolist() == [12]


def test_states_are_counted_before_they_are_listed():
    with pytest.raises(TooLarge, match="40401 states"):
        ChainQueue(1, [1, 2], [200, 200]).exact()
