"""A million customers through ten servers, first come first served, against simpy.

The same arrivals and services for both; the waits must agree. simpy, an event loop of processes, is
given the first CUSTOMERS / SHARE of them only, and compared by the time for one customer. Our loop
is timed as it is, and as numba compiles it where that is installed (extra ``fast``). Then long runs
of what the chapter *Bursts* measures in short ones.
"""

from importlib.util import find_spec

import numpy as np

from bench import timed
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
    print(f"  formula over simulated mean wait, {n} servers, load 95, {runs} runs of {k:,}")
    for name, draw in laws.items():
        means = []
        for seed in range(runs):
            rng = np.random.default_rng(200 + seed)
            t = np.cumsum(rng.exponential(1 / 95, k))
            means.append(simulate_queue(t, draw(rng), n)[k // 10 :].mean())
        ratio = gg_wait(n, 95.0, 1.0, service_cv2=4.0) / np.mean(means)
        noise = ratio * np.std(means, ddof=1) / np.mean(means) / runs**0.5
        print(f"  {name:<17} {ratio:.2f} +- {noise:.2f}")


def run():
    customers()
    correction()


def customers():
    rng = np.random.default_rng(0)
    t = np.cumsum(rng.exponential(1 / LOAD, CUSTOMERS))
    s = rng.exponential(1.0, CUSTOMERS)
    many = bursts._MANY
    bursts._MANY = CUSTOMERS + 1
    plain, waits = timed(lambda: simulate_queue(t, s, SERVERS))
    bursts._MANY = many
    times = {"ours": plain / CUSTOMERS}
    if find_spec("numba"):
        # the first call compiles
        simulate_queue(t, s, SERVERS)
        fast, same = timed(lambda: simulate_queue(t, s, SERVERS))
        assert np.array_equal(same, waits)
        times["ours, numba"] = fast / CUSTOMERS
    if find_spec("simpy"):
        few = CUSTOMERS // SHARE
        took, theirs = timed(lambda: with_simpy(t[:few], s[:few]))
        assert np.allclose(theirs, waits[:few], atol=1e-6)
        times["simpy"] = took / few
    else:
        print("  simpy is not installed: no comparison, our times only")
    print(f"  {CUSTOMERS:,} customers, {SERVERS} servers; microseconds for each")
    for name, took in times.items():
        print(f"  {name:<14} {took * 1e6:8.3f}   {took / times['ours']:8.2f} x")
