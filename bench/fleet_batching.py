"""A million requests with a growing cache through the look-ahead, with Numba and without, against
simpy on a comparable queue: requests that hold a fixed number of tokens for as long. simpy gets a
fiftieth of the requests, and is compared by the time for as many as ours gets.
"""

import numpy as np

from bench import once, race, row
from serving_or.fleet import kv_cache
from serving_or.fleet.batching_policies import AMin
from serving_or.fleet.kv_cache import FCFS, MCSF, Requests, look_ahead, schedule, volume_bound

MEMORY, LOAD = 16_492, 0.9


def requests(n, seed=0):
    """Log-normal prompts and outputs, Poisson arrivals, at a utilisation of about LOAD."""
    rng = np.random.default_rng(seed)
    prompt = np.clip(np.exp(4.0 + rng.normal(size=n)), 1, 2000).astype(int)
    output = np.clip(np.exp(4.5 + 0.8 * rng.normal(size=n)), 1, 2000).astype(int)
    volume = prompt * output + output * (output + 1) // 2
    gap = volume.mean() / (LOAD * MEMORY)
    return Requests(np.floor(np.cumsum(rng.exponential(gap, n))), prompt, output)


def with_simpy(given):
    """Mean latency when each request takes its largest use from a container, first come first
    served, for as many rounds; from twice the memory, as the largest use is about twice the mean.
    """
    import simpy

    env = simpy.Environment()
    room = simpy.Container(env, capacity=2 * MEMORY, init=2 * MEMORY)
    latency = []

    def one(tokens, rounds):
        began = env.now
        yield room.get(tokens)
        yield env.timeout(rounds)
        yield room.put(tokens)
        latency.append(env.now - began)

    def source():
        now = 0
        for a, s, o in zip(*(v.tolist() for v in (given.arrival, given.prompt, given.output))):
            if a > now:
                yield env.timeout(a - now)
                now = a
            env.process(one(s + o, o))

    env.process(source())
    env.run()
    return np.mean(latency)


def look_aheads(few, many):
    """The look-ahead, compiled and not, and simpy on its queue."""
    before = kv_cache._MANY

    def ahead(most):
        kv_cache._MANY = most
        try:
            return look_ahead(many, MEMORY, many.output)
        finally:
            kv_cache._MANY = before

    took, first = once(lambda: ahead(1), "processor")
    calls = {
        "look-ahead, compiled": lambda: ahead(1),
        "our look-ahead, plain NumPy": lambda: ahead(10**9),
        "simpy": lambda: with_simpy(few),
    }
    found = race(calls, 3, False, most=40.0)
    starts = [*found.answers.values()][:2]
    assert all((start == first).all() for start in starts)
    name, share = f"{len(many):,} requests", {"simpy": len(few) / len(many)}
    values = {"utilisation": many.utilisation(MEMORY), "requests": len(many)}
    values["seconds of the first call, with compiling"] = took.seconds["ours"][0]
    yield row(name, found, share, **values)


def run():
    """Seconds for a million requests."""
    few, many = requests(20_000), requests(1_000_000)
    yield from look_aheads(few, many)
    found, bound = once(lambda: volume_bound(many, MEMORY), "processor")
    yield row("volume bound of a million", found, **{"bound, rounds": bound / len(many)})
    for policy in (FCFS(), MCSF()):
        found, table = once(lambda: schedule(many, MEMORY, policy), "processor")
        assert table.value >= bound
        values = {"mean, rounds": table.mean, "largest, rounds": table.worst}
        yield row(f"{policy!r}, a million, checked", found, **values)
    half = AMin(np.maximum(few.output // 2, 1))
    found, table = once(lambda: schedule(few, MEMORY, half), "processor")
    name = f"AMin with half the outputs, {len(few):,} requests"
    yield row(name, found, **{"runs lost": len(table.lost)})
