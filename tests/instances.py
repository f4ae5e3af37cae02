"Instances that several test files and bench share, each under its name; one section a part."

import pickle
import time
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from serving_or.blocks.cluster import BLOOM, Cluster
from serving_or.blocks.plan import Chain, Placement
from serving_or.experts.model import Problem, latency
from serving_or.fleet.kv_cache import Requests
from serving_or.tools.models import A100, MIG

# ---- experts: placements and problems ----

# two experts that start at (2, 2): a spike in step 4, a shift after step 5
EIGHT_STEPS = np.array([[20, 4]] * 3 + [[4, 20]] + [[20, 4]] + [[4, 20]] * 3, float)


@cache
def placements(m, k):
    "All whole placements of k extra GPUs on m experts, one a row."
    return np.array([x for x in product(range(k + 1), repeat=m) if sum(x) == k])


def best_static(loads, k):
    "The best placement for all steps, by enumeration."
    return min(latency(loads, x).sum() for x in placements(loads.shape[1], k))


def best_schedule(p):
    "The cost of the best whole schedule, by dynamic programming over all placements."
    every = placements(p.experts, p.extra)
    moves = p.move_price * np.maximum(every[None] - every[:, None], 0).sum(axis=2)
    value = p.move_price * np.maximum(every - p.start, 0).sum(axis=1)
    for t, r in enumerate(p.loads):
        value = value if t == 0 else (value[:, None] + moves).min(axis=0)
        value = value + latency(r, every)
    return value.min()


def prefix_optima(p):
    "The cost of the best whole schedule of the first 1, 2, ... steps, by dynamic programming."
    every = placements(p.experts, p.extra)
    moves = p.move_price * np.maximum(every[None] - every[:, None], 0).sum(axis=2)
    value, best = p.move_price * np.maximum(every - p.start, 0).sum(axis=1), []
    for t, r in enumerate(p.loads):
        value = value if t == 0 else (value[:, None] + moves).min(axis=0)
        value = value + latency(r, every)
        best.append(value.min())
    return np.array(best)


def small(seed):
    "A small problem: ties, zeros, silent steps, k = 0, m = 1, k < m, w = 0 and T = 1 all occur."
    g = np.random.default_rng(seed)
    m, k, T = int(g.integers(1, 5)), int(g.integers(0, 7)), int(g.integers(1, 8))
    kinds = [
        lambda: g.integers(0, 4, (T, m)),
        lambda: g.exponential(5, (T, m)),
        lambda: g.integers(0, 30, (T, m)) * (g.random((T, m)) < 0.6),
    ]
    loads = kinds[seed % 3]()
    loads = np.where(g.random((T, 1)) < 0.1, 0, loads)
    w = float(g.choice([0, 0.3, 1, 2, 5]))
    return Problem(loads, k, w, np.bincount(g.integers(0, m, k), minlength=m))


def any_scale(seed):
    "Six kinds of loads in any unit, any price, silent steps, ties, whole and fractional starts."
    g = np.random.default_rng(seed)
    T, m, k = int(g.integers(1, 13)), int(g.integers(1, 9)), int(g.integers(0, 20))
    kinds = [
        g.exponential(1, (T, m)),
        np.exp(2 * g.normal(size=(T, m))),
        g.integers(0, 5, (T, m)),
        10 ** g.uniform(-6, 6, (T, m)),
        g.exponential(1, (T, m)) * (g.random((T, m)) < 0.4),
        np.exp(np.cumsum(0.3 * g.normal(size=(T, m)), axis=0)),
    ]
    loads = np.where(g.random((T, 1)) < 0.1, 0.0, kinds[g.integers(6)])
    unit, price = 10.0 ** g.uniform([-12, -6], [12, 6])
    whole, parts = np.bincount(g.integers(0, m, k), minlength=m), k * g.dirichlet(np.full(m, 0.5))
    start = [None, whole, parts][g.integers(3)]
    return Problem(unit * loads, k, unit * price * (loads.mean() or 1.0), start)


# a case in which the local search over depths stops at 22.5; the optimum is 22
AWKWARD = Problem([[9, 10, 4], [1, 3, 9], [10, 10, 1]], extra=2, move_price=2.0, start=[0, 0, 2])


# loads with ties and zeros, of every size that divides without loss
load = st.one_of(
    st.integers(0, 12).map(float),
    st.floats(1e-290, 1e6),
    st.sampled_from([0.0, 1e-300, 1e-12, 1e300]),
)


@st.composite
def steps(draw):
    "Loads of one step, a placement to start from, and a price."
    m, k = draw(st.integers(1, 4)), draw(st.integers(0, 6))
    r = np.array(draw(st.lists(load, min_size=m, max_size=m)))
    options = placements(m, k)
    return r, options[draw(st.integers(0, len(options) - 1))], draw(st.floats(0, 50))


@st.composite
def problems(draw, most_steps=6, most_experts=5, most_extra=7):
    "Small problems of four kinds, with fractional starts and prices from 0 to huge; and their rng."
    T, m = draw(st.integers(1, most_steps)), draw(st.integers(1, most_experts))
    k = draw(st.integers(0, most_extra))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["integers", "lognormal", "decades", "sparse"]))
    loads = {
        "integers": rng.integers(0, 5, (T, m)).astype(float),
        "lognormal": np.exp(2 * rng.normal(size=(T, m))),
        "decades": 10.0 ** rng.uniform(-6, 6, (T, m)),
        "sparse": rng.exponential(8.0, (T, m)) * (rng.random((T, m)) < 0.4),
    }[kind]
    w = draw(st.sampled_from([0.0, 1e-6, 0.5, 2.0, 20.0, 1e6]))
    start = None if draw(st.booleans()) else k * rng.dirichlet(np.full(m, 0.5))
    return Problem(loads, k, w, start), rng


# loads of all steps, and the number of extra GPUs
static_instances = st.integers(1, 4).flatmap(
    lambda m: st.tuples(
        st.lists(
            st.lists(
                st.one_of(st.integers(0, 9).map(float), st.floats(1e-3, 1e3)),
                min_size=m,
                max_size=m,
            ),
            min_size=1,
            max_size=5,
        ).map(np.array),
        st.integers(0, 6),
    )
)


# what no door may accept in place of an array of numbers (2, 2)
BAD_ARRAYS = [
    None,
    "loads",
    [["1", "2"], ["3", "4"]],
    [[1, 2j], [3, 4]],
    [[True, False], [True, True]],
    [[1, 2], [3]],
    [[1, None], [3, 4]],
    np.ma.masked_array([[1.0, 2.0], [3.0, 4.0]], [[0, 1], [0, 0]]),
    [[1, np.nan], [3, 4]],
    [[1, np.inf], [3, 4]],
    [[1, -1e-5], [3, 4]],
    [[len, 1], [2, 3]],
]
# and in place of a whole number, or of a price
BAD_COUNTS = [-1, 1.5, np.nan, np.inf, True, None, "2", [3], 1e300, 1j]
BAD_PRICES = [-1.0, np.nan, np.inf, True, None, "2", [3], 1j]


# ---- experts: steps, policies and paths ----

KINDS = ("lognormal", "integers", "sparse", "decades", "equal")


def draw_loads(rng, kind, shape):
    return {
        "lognormal": lambda: np.exp(rng.choice([0.3, 1.0, 3.0]) * rng.normal(size=shape)),
        "integers": lambda: rng.integers(0, 4, shape).astype(float),
        "sparse": lambda: rng.exponential(5.0, shape) * (rng.random(shape) < 0.4),
        "decades": lambda: 10.0 ** rng.uniform(-6, 6, shape),
        "equal": lambda: np.full(shape, float(rng.integers(1, 9))),
    }[kind]()


def draw_start(rng, m, k):
    "Inside, near the border, or a vertex."
    if rng.random() < 0.25:
        return k * np.eye(m)[rng.integers(m)]
    return k * rng.dirichlet(np.full(m, rng.choice([0.1, 1.0, 10.0])))


@st.composite
def layer_steps(draw, most_experts=11, most_extra=40):
    "A fractional step: loads, a start, eta, and the price."
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m, k = draw(st.integers(1, most_experts)), draw(st.integers(0, most_extra))
    r = draw_loads(rng, draw(st.sampled_from(KINDS)), m)
    return (
        r,
        draw_start(rng, m, k),
        float(10 ** rng.uniform(-2, 2)),
        float(10 ** rng.uniform(-2, 2)),
    )


@st.composite
def online_problems(draw):
    "A problem with k >= 1 and a positive price, an eta, and a generator."
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    T, m, k = draw(st.integers(1, 20)), draw(st.integers(1, 6)), draw(st.integers(1, 30))
    loads = draw_loads(rng, draw(st.sampled_from(KINDS)), (T, m)) * draw(
        st.sampled_from([0.1, 1.0, 20.0])
    )
    return (
        Problem(loads, k, draw(st.sampled_from([0.5, 2.0, 10.0])), draw_start(rng, m, k)),
        draw(st.sampled_from([0.1, 0.5, 1.0, 3.0, np.log1p(k)])),
        rng,
    )


WORKED = {
    "equal": (
        (EIGHT_STEPS, 4, 2.0),
        {
            "never": (53.333, 0, 53.333),
            "chase": (32.0, 28, 60.0),
            "myopic": (53.333, 0, 53.333),
            1.0: (41.104, 14.376, 55.480),
            np.log(5): (37.898, 17.193, 55.091),
        },
    ),
    "heavier": (
        ([[18, 2]] * 3 + [[2, 18]] + [[18, 2]] + [[2, 28]] * 3, 4, 2.0),
        {
            "never": (58.0, 0, 58.0),
            "chase": (34.8, 28, 62.8),
            "myopic": (51.0, 2, 53.0),
            1.0: (43.262, 14.463, 57.725),
            3.0: (37.563, 20.019, 57.582),
        },
    ),
    "longer": (
        ([[12, 2]] * 5 + [[2, 12]] + [[12, 2]] + [[2, 12]] * 5, 4, 2.0),
        {
            "never": (48.0, 0, 48.0),
            "chase": (28.8, 28, 56.8),
            "myopic": (48.0, 0, 48.0),
            1.0: (37.584, 13.304, 50.888),
        },
    ),
    "counted once": (
        ([[19, 2]] * 4 + [[2, 19]] + [[19, 2]] + [[2, 19]] * 4, 8, 1.0),
        {
            "chase": (21.111, 56, 49.111),
            "never": (38.0, 0, 38.0),
            "myopic": (38.0, 0, 38.0),
            1.0: (30.002, 21.710, 40.857),
        },
    ),
}


@st.composite
def paths(draw, experts=(1, 6), steps=(1, 25)):
    "A whole start, a path that wanders, jumps, and swings across whole numbers, and loads."
    m, k, T = draw(st.integers(*experts)), draw(st.integers(0, 9)), draw(st.integers(*steps))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    start = rng.multinomial(k, np.full(m, 1 / m))
    x, path = start.astype(float), []
    for _ in range(T):
        kind = rng.integers(4)
        goal = k * rng.dirichlet(np.full(m, rng.choice([0.2, 1.0, 5.0])))
        if kind == 0:
            x = goal
        elif kind == 1:
            x = x + rng.random() * (goal - x)
        elif kind == 2:
            x = np.rint(x * 2) / 2  # onto whole and half numbers, where the rules jump
            x = x * (k / x.sum()) if x.sum() else goal
        else:
            x = x + 0.02 * (goal - x)
        path.append(x)
    loads = rng.exponential(10.0 ** rng.uniform(-1, 2), (T, m)) * (rng.random((T, m)) < 0.7)
    return Problem(loads, k, float(rng.choice([0.0, 0.5, 2.0, 50.0])), start), np.array(path)


# ---- blocks: clusters and placements ----

# four requests on four blocks: the best plan costs 80, the one that reserves for all costs 90
# memory for four requests only where the small servers share them
EXAMPLE_A = Cluster(4, 4, 1, [24, 6, 6], [10, 20, 20], [10, 10, 10])
THREE = Cluster(4, 4, 1, [16, 12, 12], [10, 20, 20], [10, 10, 10])
BEST = Placement([1, 3, 3], [2, 2, 2])
WAYS = [Chain(0, (0, 1), (2, 2), 2), Chain(0, (0, 2), (2, 2), 2)]
# the same with other memories: CG-BPRR has no placement, the best plan costs 70
EXAMPLE_A = replace(THREE, memory=[24, 6, 6])
# reserving for two requests, greedy routing strands one of four; the best routing costs 24.25
STRANDED = Cluster(4, 1, 2, [7, 19, 24, 1], [1, 5, 4, 6], [1, 12, 8, 11])
# two requests that greedy routing cannot serve, although coverage promises it
STUCK = Cluster(3, 1, 1, [5, 4, 6], [0, 2, 1], [1, 7, 7])
STUCK_AT = Placement([1, 3, 1], [2, 1, 3])


def placed_cluster(seed, n=6, L=7, clients=2, cache=1):
    "A small cluster with ties, duplicate, unused and unreachable servers; a placement that fits."
    rng = np.random.default_rng(seed)
    n, L = int(rng.integers(1, n + 1)), int(rng.integers(1, L + 1))
    rtt = rng.integers(0, 6, (clients, n)).astype(float)
    rtt[rng.random(rtt.shape) < 0.1] = np.inf
    memory, tau = rng.integers(2, 50, n), rng.integers(1, 4, n)
    cluster = Cluster(L, 4, cache, memory, tau, rtt, hop=rng.integers(0, 6, (n, n)))
    m = rng.integers(0, cluster.counts(0) + 1)
    return cluster, Placement([rng.integers(1, L - k + 2) for k in m], m)


def tiny_cluster(rng, n=None, clients=1):
    "Up to three servers and four blocks, for enumeration."
    n, L = n or int(rng.integers(1, 4)), int(rng.integers(1, 5))
    memory, tau = rng.integers(4, 25, n), rng.integers(1, 20, n)
    return Cluster(L, 3, 1, memory, tau, rng.integers(1, 20, (clients, n)))


def unequal_cluster(rng, n=None, L=None, clients=1):
    "Blocks that differ in size, in cache, or in both; whole numbers, ties, some caches of zero."
    n, L = n or int(rng.integers(1, 4)), L or int(rng.integers(2, 5))
    block, cache = rng.integers(1, 9, L), rng.integers(0, 5, L)
    block = block if rng.random() < 0.7 else int(block[0])
    cache = cache if rng.random() < 0.7 else int(cache[0])
    rtt = rng.integers(1, 20, (clients, n)).astype(float)
    rtt[rng.random(rtt.shape) < 0.1] = np.inf
    tau = rng.choice(rng.integers(1, 9, n), n)
    return Cluster(L, block, cache, rng.integers(2, 30, n), tau, rtt)


def random_placement(rng, cluster):
    "Spans that fit, anywhere."
    m = np.array([rng.integers(0, k + 1) for k in cluster.counts(0)])
    return Placement([rng.integers(1, cluster.blocks + 2 - k) for k in m], m)


def fleet(n=12, fast=0.25, output=128, seed=0, clients=1, overhead=100.0, **more):
    "A100s and small slices that serve BLOOM-176B, scattered."
    devices = [A100 if j < round(fast * n) else MIG for j in range(n)]
    rtt = overhead + np.random.default_rng(seed).uniform(1, 20, (clients, n))
    return Cluster.of(BLOOM, devices, rtt, output=output, **more)


# what no door may accept in place of requests of three clients
BAD_REQUESTS = [
    None, "8", -1, 2.5, np.nan, np.inf, 1e19, True, 1j, {}, {1, 2, 3}, [1, 2], [1, 2, -1],
    [1, 2, 0.5], [1, 2, np.nan], [1e19, 1, 1], [2**53, 2**53, 1], [True, False, True],
    ["1", "2", "3"], [1, None, 2], [1, 2j, 3], [[1, 2, 3]], [[1], [2, 3]],
    np.ma.masked_array([1, 2, 3], [0, 1, 0]),
]  # fmt: skip


# ---- what people hand to doors by mistake ----

ODD_THINGS = [
    None, "", "x", "3", b"x", True, False, -1, 0, 1, 2, 2.5, np.nan, np.inf, -np.inf, 1e308, 1e99,
    5e-324, 1e19, 2**53, 10**30, 1j, np.int8(3), np.float32(2.5), np.array(3), np.array([3]), [],
    {}, (), {1: 2}, object(), len, [[1], [2, 3]], pd.NA, pd.NaT, np.datetime64("2020"),
]  # fmt: skip
EXTREMES = [np.nan, np.inf, -1.0, -0.0, 1e308, 1e99, 5e-324]


def odd_array(rng, *shape):
    "Whole numbers below 30, in one of many guises; some have an element that is wrong."
    x = rng.integers(0, 30, shape).astype(float)
    broken, objects = x.copy(), x.astype(object)
    if x.size:
        broken.flat[rng.integers(x.size)] = EXTREMES[rng.integers(len(EXTREMES))]
        objects.flat[rng.integers(x.size)] = ODD_THINGS[rng.integers(len(ODD_THINGS))]
    fixed = x.copy()
    fixed.flags.writeable = False
    guises = [
        x, x, x, x.tolist(), x.astype(np.int8), broken, objects, objects.tolist(), fixed,
        np.ma.array(x, mask=rng.random(shape) < 0.2), x.astype(complex), x.astype(str), x * 1e-300,
        x * 1e90, x * 1e300, pd.Series(x) if x.ndim == 1 else pd.DataFrame(x),
    ]  # fmt: skip
    return guises[rng.integers(len(guises))]


def odd(rng, good, share=0.1):
    "A good value, or now and then anything at all."
    return ODD_THINGS[rng.integers(len(ODD_THINGS))] if rng.random() < share else good


class Visitor:
    "Calls doors, and remembers what went otherwise than documented."

    def __init__(self, *errors, seconds=5.0):
        self.errors, self.seconds, self.calls, self.wrong = errors, seconds, 0, []

    def call(self, door, *arguments, **keywords):
        "The answer, or None where the door refuses."
        before = pickle.dumps((arguments, keywords)) if self._whole(arguments, keywords) else None
        began, answer = time.process_time(), None
        self.calls += 1
        try:
            answer = door(*arguments, **keywords)
        except self.errors as error:
            if type(pickle.loads(pickle.dumps(error))) is not type(error) or len(str(error)) > 2000:
                self._note(door, error, arguments, keywords)
        except Exception as error:
            self._note(door, error, arguments, keywords)
        if time.process_time() - began > self.seconds:
            self._note(door, "slow", arguments, keywords)
        if before is not None and pickle.dumps((arguments, keywords)) != before:
            self._note(door, "arguments changed", arguments, keywords)
        return answer

    def _whole(self, *things):
        try:
            return bool(pickle.dumps(things))
        except (TypeError, AttributeError, pickle.PicklingError):
            return False

    def _note(self, door, what, arguments, keywords):
        self.wrong.append(f"{door.__name__}: {what!r} for {arguments!r:.300} {keywords!r:.300}")


# ---- experts: maps of replicas ----

# layers x experts -> slots on GPUs, nodes, groups: what engines are run with
MAP_SHAPES = (
    (58, 256, 288, 32, 4, 8),
    (58, 256, 320, 40, 5, 1),
    (58, 256, 320, 320, 1, 1),
    (58, 256, 288, 144, 1, 1),
    (61, 256, 320, 64, 8, 8),
    (94, 128, 160, 32, 1, 1),
    (48, 128, 144, 16, 1, 1),
    (48, 128, 128, 8, 1, 1),
)
README_LOADS = np.array(
    [
        [90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86],
        [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27],
    ],
    float,
)
TOY_LOADS = np.array([[600, 560, 120, 120, 20, 10, 10, 10]], float)


def zipf_layers(layers, m, power=0.8, total=1e6, seed=0):
    "Zipf loads of each layer, its experts in a random order of its own."
    rng, loads = np.random.default_rng(seed), np.arange(1, m + 1) ** -power
    return np.array([rng.permutation(total * loads / loads.sum()) for _ in range(layers)])


def greedy_counts(loads, slots):
    "The open balancers' rule: each spare slot in turn to the expert with the largest share."
    counts, row = np.ones(loads.shape, np.int64), np.arange(len(loads))
    for _ in range(slots - loads.shape[1]):
        counts[row, (loads / counts).argmax(axis=1)] += 1
    return counts


def greedy_packing(weights, bins):
    "Items (rows, n) to bins, the heaviest first, into the lightest with room; bin of each item."
    found = np.empty(weights.shape, np.int64)
    for row, weight in enumerate(weights):
        load, room = np.zeros(bins), np.full(bins, weight.size // bins)
        for item in np.argsort(-weight, kind="stable"):
            open_ = np.flatnonzero(room)
            at = open_[load[open_].argmin()]
            found[row, item], load[at], room[at] = at, load[at] + weight[item], room[at] - 1
    return found


def peers_map(loads, slots, gpus, nodes=1, groups=1):
    """The open balancers' rule: whole groups to nodes, greedy counts in each node, greedy packing.

    The physical map (layers, slots); an expert may stand twice on a GPU.
    """
    layers, m = loads.shape
    node_of = greedy_packing(loads.reshape(layers, groups, -1).sum(axis=2), nodes)
    group = np.argsort(node_of, axis=1, kind="stable")
    experts = group[:, :, None] * (m // groups) + np.arange(m // groups)
    experts = experts.reshape(layers * nodes, m // nodes)
    part = np.take_along_axis(np.repeat(loads, nodes, axis=0), experts, axis=1)
    counts = greedy_counts(part, slots // nodes)
    copies = np.array([np.repeat(np.arange(m // nodes), c) for c in counts])
    gpu = greedy_packing(np.take_along_axis(part / counts, copies, axis=1), gpus // nodes)
    order = np.argsort(gpu, axis=1, kind="stable")
    physical = np.take_along_axis(experts, np.take_along_axis(copies, order, axis=1), axis=1)
    return physical.reshape(layers, slots)


# ---- fleet: requests with a growing cache ----

# shortest first takes 41 rounds in 10 tokens and 53 in 11
SEVEN_REQUESTS = Requests(
    [0, 0, 2, 5, 5, 5, 5], [3, 1, 2, 1, 2, 3, 3], [2, 6, 8, 2, 3, 4, 2], "ABCDEFG"
)
# with 9 tokens the optimum is 23, and the best of all orders 24
FOUR_IN_NINE = Requests([0, 0, 0, 0], [2, 1, 2, 2], [5, 3, 2, 5])


@st.composite
def instances_of_requests(draw, most=7, longest=6, gap=6):
    "Requests of up to a few tokens, unsorted, with ties, gaps and none at all; and a memory."
    n = draw(st.integers(0, most))

    def numbers(low, high):
        return draw(st.lists(st.integers(low, high), min_size=n, max_size=n))

    arrival = [a * draw(st.integers(0, gap)) for a in numbers(0, 2)]
    requests = Requests(arrival, numbers(0, 4), numbers(1, longest))
    needed = int((requests.prompt + requests.output).max(initial=1))
    return requests, needed + draw(st.integers(0, 12))


def least_latency(requests, memory):
    "The least total latency, by enumeration of all starts."
    last = int(requests.arrival.max() + requests.output.sum())
    starts = np.array(list(product(*(range(a, last) for a in requests.arrival))))
    fits = np.ones(len(starts), bool)
    for t in range(1, last + int(requests.output.max())):
        age = t - starts
        alive = (age >= 1) & (age <= requests.output)
        fits &= np.where(alive, requests.prompt + age, 0).sum(axis=1) <= memory
    return (starts[fits] + requests.output - requests.arrival).sum(axis=1).min()
