"""A million requests with a growing cache through the look-ahead, with Numba and without, against
simpy on a comparable queue: requests that hold a fixed number of tokens for as long.
"""

import numpy as np

from bench import timed
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


def run():
    """Seconds for each million requests."""
    few, many = requests(20_000), requests(1_000_000)
    print(f"{len(many):,} requests, {many.summary()}; utilisation {many.utilisation(MEMORY):.2f}")
    took, mean = timed(lambda: with_simpy(few))
    theirs = took / len(few)
    print(
        f"  simpy, {len(few):,} requests: {1e6 * theirs:7.2f} us a request, mean latency {mean:.0f}"
    )
    loops = {"plain NumPy": 10**9, "compiled, with compiling": 1, "compiled": 1}
    before, starts = kv_cache._MANY, []
    for name, most in loops.items():
        kv_cache._MANY = most
        took, start = timed(lambda: look_ahead(many, MEMORY, many.output))
        starts.append(start)
        ours = took / len(many)
        print(f"  look-ahead, {name:25s}: {1e6 * ours:7.2f} us a request,", end=" ")
        print(f"simpy takes {theirs / ours:.1f} times as long")
    assert all((start == starts[0]).all() for start in starts)
    took, bound = timed(lambda: volume_bound(many, MEMORY))
    print(f"  volume bound: {1e6 * took / len(many):.2f} us a request")
    for policy in (FCFS(), MCSF()):
        took, table = timed(lambda: schedule(many, MEMORY, policy))
        assert table.value >= bound
        print(
            f"  {policy!r}: checked, with bound {took:.1f} s; mean {table.mean:.0f} rounds,",
            end=" ",
        )
        print(f"bound {bound / len(many):.0f}, largest {table.worst}")
    took, table = timed(lambda: schedule(few, MEMORY, AMin(np.maximum(few.output // 2, 1))))
    print(f"  AMin with half the outputs: {1e6 * took / len(few):.1f} us a request,", end=" ")
    print(f"{len(table.lost)} of {len(few):,} runs lost")
    kv_cache._MANY = before
