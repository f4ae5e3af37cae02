"""The best schedule and the best placement by two methods that share nothing with the package.

A float is a whole number times a power of two, and a latency is a load over a count up to 1 + k. So
all costs of a problem are whole multiples of one number, and dynamic programming in Python's whole
numbers is exact, whatever the scale. The other method is the integer program that one writes first.
"""

from fractions import Fraction
from functools import cache
from itertools import product
from math import lcm

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from serving_or.experts.model import Problem


@cache
def placements(m, k):
    "All whole placements of k extra GPUs on m experts, one a row."
    return np.array([x for x in product(range(k + 1), repeat=m) if sum(x) == k], int)


class Exact:
    "A problem in whole numbers: costs are multiples of ``unit``."

    def __init__(self, problem):
        self.x = placements(problem.experts, problem.extra)
        parts = [Fraction(float(v)) for v in (*problem.loads.ravel(), problem.move_price)]
        counts = lcm(*range(1, problem.extra + 2))
        below = lcm(*(f.denominator for f in parts)) * counts
        self.unit = Fraction(1, below)
        whole = [f.numerator * (below // f.denominator) for f in parts]
        loads = np.array(whole[:-1], object).reshape(problem.loads.shape)
        # (T, placements): exact, as the counts divide
        self.latency = np.array([(r // (1 + self.x)).max(axis=1) for r in loads])
        self.latency = self.latency.reshape(len(loads), len(self.x))
        added = np.maximum(self.x[None] - self.x[:, None], 0).sum(axis=2)
        first = np.maximum(self.x - np.asarray(problem.start).astype(int), 0).sum(axis=1)
        self.moves, self.first = added.astype(object) * whole[-1], first.astype(object) * whole[-1]

    def best(self):
        "The optimum of every prefix, a fraction each."
        value, found = self.first, []
        for t, now in enumerate(self.latency):
            value = now + (value if t == 0 else (value[:, None] + self.moves).min(axis=0))
            found.append(int(value.min()) * self.unit)
        return found

    def static(self):
        "The least sum of latencies of one placement."
        return int(self.latency.sum(axis=0).min()) * self.unit

    def cost(self, x):
        "The cost of a path (T, m) of whole placements."
        at = [int(np.flatnonzero((self.x == row).all(axis=1))[0]) for row in np.asarray(x)]
        total = self.first[at[0]] + sum(self.latency[t, c] for t, c in enumerate(at))
        return int(total + sum(self.moves[a, b] for a, b in zip(at, at[1:]))) * self.unit


def integer_program(problem):
    """The optimum by a time-indexed program: ``s[t, i, j]`` says that expert i has j extra GPUs in
    step t.
    """
    (T, m), k = problem.loads.shape, problem.extra
    unit = max(problem.loads.max(), 1e-300)
    loads, price = problem.loads / unit, problem.move_price / unit
    s = np.arange(T * m * (k + 1)).reshape(T, m, k + 1)
    y, level = s.size + np.arange(T * m).reshape(T, m), s.size + T * m + np.arange(T)
    columns, j, rows, low, high = level[-1] + 1, np.arange(k + 1), [], [], []

    def row(least, most, *terms):
        a = np.zeros(columns)
        for where, value in terms:
            a[where] += value
        rows.append(a)
        low.append(least)
        high.append(most)

    for t in range(T):
        row(k, k, (s[t].ravel(), np.tile(j, m)))
        for i in range(m):
            row(1, 1, (s[t, i], 1.0))
            row(0, np.inf, (level[t], 1.0), (s[t, i], -loads[t, i] / (1 + j)))
            before = [(s[t - 1, i], j)] if t else []
            least = 0 if t else -problem.start[i]
            row(least, np.inf, (y[t, i], 1.0), (s[t, i], -j), *before)
    cost = np.zeros(columns)
    cost[y], cost[level] = price, 1.0
    whole = np.arange(columns) < s.size
    upper = np.where(whole, 1.0, np.inf)
    found = milp(
        cost,
        integrality=whole,
        bounds=Bounds(0, upper),
        constraints=LinearConstraint(np.array(rows), low, high),
        options={"mip_rel_gap": 1e-9},
    )
    assert found.status == 0
    return found.fun * unit


# ---- instances over scales ----

KINDS = {
    "exponential": lambda g, T, m: g.exponential(1.0, (T, m)),
    "few values": lambda g, T, m: g.integers(0, 4, (T, m)).astype(float),
    "sparse": lambda g, T, m: g.integers(1, 30, (T, m)) * (g.random((T, m)) < 0.5).astype(float),
    "equal": lambda g, T, m: np.repeat(g.integers(0, 3, (T, 1)), m, axis=1).astype(float),
    "decades": lambda g, T, m: 10.0 ** g.uniform(-12, 0, (T, m)),
    "far apart": lambda g, T, m: 10.0 ** g.choice([-300.0, -20.0, 0.0], (T, m)),
    "spikes": lambda g, T, m: np.where(g.random((T, m)) < 0.2, 10.0, 1.0),
}


def over_scales(seed):
    """A small problem at any scale: loads 1e-320 to 1e300, prices 0 to 1e300, ties, zeros,
    silent steps, whole numbers, more experts than GPUs, no GPU, one expert, one step.
    """
    g = np.random.default_rng((8, seed))
    m, k, T = int(g.integers(1, 5)), int(g.choice([0, 1, 1, 2, 3, 4, 5])), int(g.integers(1, 7))
    loads = list(KINDS.values())[seed % len(KINDS)](g, T, m)
    loads = np.where(g.random((T, 1)) < 0.1, 0.0, loads)
    power = g.choice([0.0, 0.0, g.uniform(-320, 300), g.uniform(-320, -300), g.uniform(290, 300)])
    loads = loads * 10.0**power if power > -300 else (loads * 1e300) * 10.0 ** (power - 300)
    beside = g.choice([-np.inf, *g.uniform(-2, 2, 4), g.uniform(-16, 16), g.uniform(4, 9)])
    price = loads.max() * 10.0**beside if beside < 4 or loads.max() < 1e290 else 1e300
    if g.random() < 0.1:
        price = float(g.choice([0.0, 5e-324, 1e-320, 1e-300, 1.0, 1e8, 1e100, 1e300]))
    start = np.bincount(g.integers(0, m, k), minlength=m)
    return Problem(loads, k, float(min(price, 1e300)), start)
