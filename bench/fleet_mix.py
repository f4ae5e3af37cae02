"""The mix of GPUs for 60 classes and 4 types: `mix` against cvxpy and scipy on the same program.

`mix` checks its input, solves the relaxation for prices, begins with a mix of its own and proves
the bound again; the two peers only state the program and call HiGHS. Build and solve are counted
together for all three, the rents must agree. Three instances: no limit, a stock that binds, and
classes that may be split.
"""

import cvxpy as cp
import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from bench import seconds
from serving_or.fleet.gpu_mix import mix

CLASSES = 60
RENT = np.array([0.8, 1.9, 2.5, 4.0])


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
    problem.solve(solver=cp.HIGHS)
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
    return milp(cost, constraints=rows, bounds=Bounds(0, upper), integrality=whole).fun


def run():
    demand, u = instance()
    free = mix(demand, u, RENT)
    some = np.maximum(free.count // 2, 1)
    some = np.where(free.count > 0, some, 300).astype(float)
    for name, stock, split in (
        ("no limit", np.full(4, np.inf), False),
        ("half of the best in stock", some, False),
        ("split", some, True),
    ):
        calls = {
            "mix": lambda: mix(demand, u, RENT, stock, split).value,
            "cvxpy": lambda: with_cvxpy(demand, u, stock, split),
            "scipy milp": lambda: with_scipy(demand, u, stock, split),
        }
        values = {peer: call() for peer, call in calls.items()}
        assert np.allclose(list(values.values()), values["mix"], rtol=1e-4), values
        took = {peer: seconds(call) for peer, call in calls.items()}
        print(f"  {name}: rent {values['mix']:.2f}")
        for peer, time in took.items():
            print(f"    {peer:<12} {1e3 * time:9.1f} ms   {time / took['mix']:7.1f} x")


if __name__ == "__main__":
    run()
