"""The certificate beside a step of its policy, and beside two peers: the pool of the first edition,
and the product certificate with a grid of multipliers instead of tangents. Times are those of a
step; the bounds, over the relaxation's value, are of 60 traces of 60 steps.
"""

import numpy as np

from bench import Race, row, timed
from serving_or.experts.certificate import Certificate, step_multipliers
from serving_or.experts.model import Problem
from serving_or.experts.regularized_greedy import regularized_step, reverse_step
from serving_or.experts.relaxation import MARGIN, relax, step_bound
from serving_or.tools.generators import KINDS, trace

STEPS = 20


class FirstEdition:
    """The certificate of the first edition: 50 rules for multipliers, which may change through 0.

    One layer; the rules follow the path of `regularized_step` at eta = 1.
    """

    SLOPES = (0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.5)
    OFFSETS = (1.0, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32)

    def __init__(self, x0, extra, move_price=2.0):
        self.extra, self.move_price, self.bound = extra, move_price, 0.0
        c, share = (a.ravel() for a in np.meshgrid(self.SLOPES, self.OFFSETS, indexing="ij"))
        full = np.log1p(extra)
        self.slope = np.concatenate([[0.0, 1.0 / max(1.0, full)], c])[:, None]
        self.top = full + np.log(np.concatenate([[1.0, 1.0], share]))[:, None]
        self.x = np.asarray(x0, float)
        self.b = self.worth()
        self.value = -(self.b @ self.x) * (1 + MARGIN)

    def worth(self):
        "Multipliers of each rule (rules, m)."
        rules = self.slope * (self.top - np.log1p(self.x))
        return self.move_price * np.clip(rules, 0.0, 1.0)

    def step(self, loads):
        "Take in one step, and return the bound."
        self.x = regularized_step(loads, self.x, 1.0, self.move_price)
        before, after = self.b, self.worth()
        n = len(before)
        G = step_bound(loads, np.concatenate([before - after, before, -after]), self.extra)
        go_on, to_zero, from_zero = G[:n], G[n : 2 * n], G[2 * n :]
        value = np.maximum(self.value + go_on, self.value[0] + from_zero)
        value[0] = np.max(self.value + to_zero)
        self.b, self.value = after, value
        last = self.extra * after.min(axis=1) * (1 - MARGIN)
        self.bound = max(self.bound, float(np.max(value + last)))
        return self.bound


class Grid:
    """The product certificate that keeps W(b) = min_x work(x) - b x at a few b: one path, several
    scales of lambda, interpolated between the b or not.
    """

    def __init__(self, x0, extra, move_price=2.0, eta=1.0, scales=(1.0,), points=12, between=True):
        self.x, self.extra, self.move_price = np.asarray(x0, float), extra, move_price
        self.eta, self.scales, self.between, self.bound = eta, scales, between, 0.0
        self.b = move_price * (np.arange(points) / (points - 1)) ** 1.5
        self.W = [-self.x[:, None] * self.b for _ in scales]
        self.paid = np.zeros(len(scales))

    def step(self, loads):
        "Take in one step, and return the bound."
        before, self.x = self.x, reverse_step(loads, self.x, self.eta, self.move_price)
        rho = np.array([self.move_price / self.eta])
        p, lam, _ = step_multipliers(loads, before, self.x, rho)
        move = self._between if self.between else self._at_points
        for j, c in enumerate(self.scales):
            self.W[j] = move(self.W[j], (p * loads)[:, None, None], c * lam)
            self.paid[j] += self.extra * c * lam
            self.bound = max(self.bound, self.W[j].max(axis=1).sum() - self.paid[j])
        return self.bound

    def _at_points(self, W, gain, lam):
        z = lam + self.b - self.b[:, None]
        return np.where(z >= 0, W[:, None] + conjugate_of_one(gain, z), -np.inf).max(axis=2)

    def _between(self, W, gain, lam):
        "The best of each segment: its inside by its slope, or an end."
        slope = np.minimum(np.diff(W) / np.diff(self.b), 0.0)[:, None]
        low, high = lam + self.b[:-1] - self.b[:, None], lam + self.b[1:] - self.b[:, None]
        z = np.clip(gain / (1 - slope) ** 2, np.maximum(low, 0.0), np.maximum(high, 0.0))
        value = W[:, None, :-1] + slope * (z - low) + conjugate_of_one(gain, z)
        return np.where(high >= 0, value, -np.inf).max(axis=2)


def conjugate_of_one(load, z):
    "min over x of load / (1 + x) + z x."
    z = np.clip(z, 0.0, load)
    return 2.0 * np.sqrt(load * z) - z


def many_traces():
    """Kind, experts, extra GPUs, mean load and seed of 60 traces."""
    sizes = [(m, k, s) for m, k in ((8, 8), (16, 64), (64, 16), (32, 32)) for s in (1.0, 5.0, 25.0)]
    every = [(kind, *size) for kind in KINDS for size in sizes]
    return [(*case, seed) for seed, case in enumerate(every)]


def traced(kind, m, k, scale, seed, steps=60):
    """A problem of `many_traces`."""
    return Problem(trace(kind, m, steps, scale, seed), k, start=np.full(m, k / m))


def in_turn(steps, path):
    """Seconds of each step of several, which go along a path side by side."""
    seconds = {name: [] for name in steps}
    for r in path:
        for name, step in steps.items():
            seconds[name].append(timed(lambda step=step: step(r), "processor")[0])
    return seconds


def speed():
    """A step of the certificate beside the step of the policy, and beside the first edition."""
    for layers, m, k in [(1, 64, 16), (1, 256, 64), (1, 256, 1024), (58, 256, 64)]:
        path = np.stack([trace("ar", m, STEPS, 4.0, s) for s in range(layers)], axis=1)
        x0 = np.full((layers, m), k / m)
        x, former = [x0], FirstEdition(x0[0], k)
        steps = {
            "certificate": Certificate(x0, k).step,
            "our policy alone": lambda r: x.append(reverse_step(r, x[-1])),
            # the first edition takes one layer
            "first edition": lambda r: former.step(r[0]),
        }
        found = Race(in_turn(steps, path), {}, "processor")
        yield row(f"{layers} x {m}, k = {k}", found, {"first edition": 1 / layers})


def strength():
    """Bounds over the relaxation's value, on 60 traces."""
    makers = {
        "certificate": Certificate,
        "first edition": FirstEdition,
        "grid of 12, between": lambda x0, k: Grid(x0, k, scales=(0.1, 0.3, 0.6, 1.0)),
        "grid of 24, at points": lambda x0, k: Grid(
            x0, k, scales=(0.1, 0.3, 0.6, 1.0), points=24, between=False
        ),
    }
    shares, means = {name: [] for name in makers}, {name: [] for name in makers}
    for case in many_traces():
        p = traced(*case)
        value, made = relax(p).bound, {n: make(p.start, p.extra) for n, make in makers.items()}
        took = in_turn({name: each.step for name, each in made.items()}, p.loads)
        for name, each in made.items():
            shares[name].append(each.bound / value)
            means[name].append(float(np.mean(took[name])))
    values = {}
    for name, share in shares.items():
        better = np.mean(np.array(shares["certificate"]) >= np.array(share))
        values |= {f"{name}, least": min(share), f"{name}, mean": np.mean(share)}
        if name != "certificate":
            values[f"{name}, ours is as good %"] = 100 * better
    yield row("bounds over the relaxation, 60 traces", Race(means, {}, "processor"), **values)


def run():
    yield from speed()
    yield from strength()
