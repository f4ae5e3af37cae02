"""A million customers through ten servers, first come first served, against simpy.

The same arrivals and services for both; the waits must agree. simpy, an event loop of processes, is
given the first CUSTOMERS / SHARE of them only, and compared by the time for as many as ours gets.
Our loop is timed as it is, and as numba compiles it where that is installed (extra ``fast``).
Then long runs of what the chapter *Bursts* measures in short ones.
"""

from importlib.util import find_spec

import numpy as np

from bench import race, row
from serving_or.fleet import bursts
from serving_or.fleet.bursts import gg_wait, simulate_queue

CUSTOMERS, SHARE, SERVERS, LOAD = 1_000_000, 20, 10, 9.0


def with_simpy(arrivals, services):
    "Waits of the customers by processes that ask for a resource."
    import simpy

    env, waits = simpy.Environment(), np.empty(arrivals.size)
    resource = simpy.Resource(env, capacity=SERVERS)

    def customer(i):
        with resource.request() as turn:
            yield turn
            waits[i] = env.now - arrivals[i]
            yield env.timeout(services[i])

    def source():
        for i in range(arrivals.size):
            yield env.timeout(arrivals[i] - env.now)
            env.process(customer(i))

    env.process(source())
    env.run()
    return waits


def correction():
    "What the correction for two moments cannot tell apart: two laws with the same two."
    runs, k, n = (16, 2_000_000, 100) if find_spec("numba") else (4, 200_000, 100)
    p = (1 + np.sqrt(3 / 5)) / 2
    laws = {
        "hyperexponential": lambda rng: (
            rng.exponential(1.0, k) / np.where(rng.random(k) < p, 2 * p, 2 - 2 * p)
        ),
        "lognormal": lambda rng: rng.lognormal(-np.log(5) / 2, np.sqrt(np.log(5)), k),
    }
    for name, draw in laws.items():
        means = []
        for seed in range(runs):
            rng = np.random.default_rng(200 + seed)
            t = np.cumsum(rng.exponential(1 / 95, k))
            means.append(simulate_queue(t, draw(rng), n)[k // 10 :].mean())
        ratio = gg_wait(n, 95.0, 1.0, service_cv2=4.0) / np.mean(means)
        noise = ratio * np.std(means, ddof=1) / np.mean(means) / runs**0.5
        values = {"formula / simulated wait": ratio, "its standard error": noise}
        yield row(f"{name}, {n} servers, load 95", **values, runs=runs, customers=k)


def customers():
    "A million, through the loop as it is, compiled, and in simpy."
    rng = np.random.default_rng(0)
    t = np.cumsum(rng.exponential(1 / LOAD, CUSTOMERS))
    s = rng.exponential(1.0, CUSTOMERS)
    few, many = CUSTOMERS // SHARE, bursts._MANY

    def plain():
        bursts._MANY = CUSTOMERS + 1
        try:
            return simulate_queue(t, s, SERVERS)
        finally:
            bursts._MANY = many

    calls, fast = {"our loop": plain}, lambda: simulate_queue(t, s, SERVERS)
    if find_spec("numba"):
        # the first call compiles
        fast()
        calls = {"our loop, numba": fast, **calls}
    if find_spec("simpy"):
        calls["simpy"] = lambda: with_simpy(t[:few], s[:few])
    found = race(calls, warm=False, most=40.0)
    waits = found.answers["our loop"]
    if "simpy" in calls:
        assert np.allclose(found.answers["simpy"], waits[:few], atol=1e-6)
    if "our loop, numba" in calls:
        assert np.array_equal(found.answers["our loop, numba"], waits)
    name = f"{CUSTOMERS:,} customers, {SERVERS} servers"
    yield row(name, found, {"simpy": few / CUSTOMERS}, customers=CUSTOMERS)


def run():
    yield from customers()
    yield from correction()
