"""The mix of GPUs for 60 classes and 4 types: `mix` against cvxpy and scipy on the same program.

`mix` checks its input, solves the relaxation for prices, begins with a mix of its own and proves
the bound again; the two peers only state the program and call HiGHS. Build and solve are counted
together for all three, to the same gap of 1e-9, and the rents must agree. Three kinds of instance:
no limit, half of the GPUs of the favourite type in stock, and classes that may be split; each on
three seeds, as one search may be lucky. Where classes are split the program is
solved in milliseconds, and the prices and proofs take as long again: that is what they cost.
"""

import cvxpy as cp
import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from bench import race, row
from serving_or.fleet.gpu_mix import mix

CLASSES = 60
RENT = np.array([0.8, 1.9, 2.5, 4.0])
SEEDS, GAP = range(3), 1e-9


def instance(seed=0):
    "Demands and throughputs of slices whose work grows in two directions."
    rng = np.random.default_rng(seed)
    size = rng.uniform(0.2, 8, CLASSES)
    demand = rng.exponential(6.0, CLASSES) / size
    speed = np.array([1.0, 3.0, 4.0, 8.0])
    u = speed * rng.uniform(0.6, 1.4, (CLASSES, 4)) * size[:, None] ** [-1.2, -1.05, -0.95, -0.9]
    # the longest do not fit on the smallest
    u[size > 6, 0] = 0
    return demand, u


def with_cvxpy(demand, u, stock, split):
    "As one would write it."
    B = cp.Variable(4, integer=True)
    y = cp.Variable(u.shape, boolean=not split, nonneg=split)
    busy = np.where(u > 0, demand[:, None] / np.where(u > 0, u, 1), 0)
    rows = [cp.sum(y, axis=1) == 1, cp.sum(cp.multiply(busy, y), axis=0) <= B, y[u == 0] == 0]
    rows += [B <= stock] if np.isfinite(stock).all() else []
    problem = cp.Problem(cp.Minimize(RENT @ B), rows)
    problem.solve(solver=cp.HIGHS, mip_rel_gap=GAP)
    return problem.value


def with_scipy(demand, u, stock, split):
    "The matrix by hand: GPUs first, then shares row by row."
    S, G = u.shape
    busy = np.where(u > 0, demand[:, None] / np.where(u > 0, u, 1), 0)
    one = np.hstack([np.zeros((S, G)), np.kron(np.eye(S), np.ones(G))])
    load = np.hstack([-np.eye(G), np.hstack([np.diag(row) for row in busy])])
    upper = np.concatenate([stock, (u > 0).ravel()])
    rows = [LinearConstraint(one, 1, 1), LinearConstraint(load, -np.inf, 0)]
    whole = np.concatenate([np.ones(G), np.full(S * G, float(not split))])
    cost = np.concatenate([RENT, np.zeros(S * G)])
    limits, options = Bounds(0, upper), {"mip_rel_gap": GAP}
    return milp(cost, integrality=whole, bounds=limits, constraints=rows, options=options).fun


def kinds(demand, u):
    "Stock and whether classes may be split, by name."
    count = mix(demand, u, RENT).count
    some = np.where(count == count.max(), count // 2, 300).astype(float)
    return {
        "no limit": (np.full(4, np.inf), False),
        "half of the favourite in stock": (some, False),
        "split": (some, True),
    }


def run():
    peers = {
        "mix": lambda *given: mix(given[0], given[1], RENT, *given[2:]).value,
        "cvxpy": with_cvxpy,
        "scipy milp": with_scipy,
    }
    for call in peers.values():
        # what only the first call pays
        call(np.ones(2), np.ones((2, 4)), np.full(4, np.inf), True)
    for seed in SEEDS:
        demand, u = instance(seed)
        for name, (stock, split) in kinds(demand, u).items():
            calls = {p: lambda call=c: call(demand, u, stock, split) for p, c in peers.items()}
            # a search takes all processors that HiGHS likes: what counts is how long one waits
            found = race(calls, 3, False, "wall")
            values = [*found.answers.values()]
            assert np.allclose(values, values[0]), values
            yield row(f"{name}, seed {seed}", found, rent=values[0])
