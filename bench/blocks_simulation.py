"""Requests that come and go on 60 servers: `simulate` against the same simulation in simpy.

Both keep one queue, first come, first served, and give its head the cheapest chain with room now.
The peer is written as one would with simpy: a process for each request that is served, and a loop
that serves the queue. It finds chains once with a boundary program in plain Python, and once with
the steps of ours, so that only the loops differ. All totals must agree. Every run of ours is
replayed, which is part of its time. simpy is left out of the runs of 100,000 arrivals.
"""

import numpy as np
import simpy

from bench import race, row
from serving_or.blocks.cluster import scatter
from serving_or.blocks.designs import sweep
from serving_or.blocks.simulation import (
    Arrivals,
    Fastest,
    Lengths,
    Steps,
    WithRoom,
    simulate,
    times_on,
)
from serving_or.blocks.two_time_scales import ExactWait, WaitingPenalised, design_capacity
from serving_or.tools.data import load_topology


class InSimpy:
    "The queue, the free room of each server, and the time of each request in the end."

    def __init__(self, cluster, placement, arrivals, chooser):
        self.cluster, self.placement, self.arrivals = cluster, placement, arrivals
        self.environment, self.queue, self.end = simpy.Environment(), [], {}
        self.free = cluster.slots(placement.m).tolist()
        self.choose = chooser(cluster, placement, int(arrivals.output[0]))
        self.environment.process(self.arrive())
        self.environment.run()
        self.total = np.array([self.end[i] for i in range(len(arrivals))]) - arrivals.arrival

    def arrive(self):
        for i, at in enumerate(self.arrivals.arrival.tolist()):
            yield self.environment.timeout(at - self.environment.now)
            self.queue.append(i)
            self.serve()

    def serve(self):
        while self.queue:
            way = self.choose(self.free)
            if way is None:
                return
            self.environment.process(self.hold(self.queue.pop(0), *way))

    def hold(self, i, visits, took):
        for j, k in visits:
            self.free[j] -= k
        yield self.environment.timeout(took)
        self.end[i] = self.environment.now
        for j, k in visits:
            self.free[j] += k
        self.serve()


def in_plain_python(cluster, placement, output):
    "The boundary program, server by server."
    L, later = cluster.blocks, output - 1
    hop = (cluster.prompt_rtt[0] + later * cluster.rtt[0]).tolist()
    block = (cluster.prompt_tau + later * cluster.tau).tolist()
    order = np.argsort(placement.e, kind="stable").tolist()
    a, e, m = (x.tolist() for x in (placement.a, placement.e, placement.m))

    def choose(free):
        D, before = [np.inf] * (L + 2), [None] * (L + 2)
        D[1] = 0.0
        for j in order:
            for x in range(max(a[j], e[j] - int(free[j])), e[j]) if m[j] else ():
                cost = D[x] + hop[j] + block[j] * (e[j] - x)
                if cost < D[e[j]] * (1 - 1e-12):
                    D[e[j]], before[e[j]] = cost, (j, x)
        if D[L + 1] == np.inf:
            return None
        x, visits = L + 1, []
        while x > 1:
            j, entry = before[x]
            visits.append((j, x - entry))
            x = entry
        return visits, D[L + 1]

    return choose


def with_our_steps(cluster, placement, output):
    "The steps of ours."
    steps, lengths, kept = Steps(cluster, placement), Lengths(1), {}
    hop = cluster.prompt_rtt[0] + (output - 1) * cluster.rtt[0]
    block = cluster.prompt_tau + (output - 1) * cluster.tau
    costs = hop[steps.server] + block[steps.server] * steps.blocks

    def choose(free):
        room = steps.take <= np.array(free)[steps.server]
        cost, way = steps.best(np.where(room, costs, np.inf))
        if cost == np.inf:
            return None
        if tuple(way) not in kept:
            chain = steps.chain(0, way)
            first, _, later = times_on(cluster, lengths, chain)
            visits = list(zip(chain.servers, chain.blocks))
            kept[tuple(way)] = visits, first + (output - 1) * later
        return kept[tuple(way)]

    return choose


def run():
    """The queue beside simpy and beside our routers, at two rates."""
    cluster = scatter(load_topology("gtsce"), seed=0)
    peers = {
        "simpy, our steps": with_our_steps,
        "simpy, plain Python": in_plain_python,
    }
    for rate in (0.5, 4):
        plan = design_capacity(cluster, rate, method=sweep)
        for count in (10_000, 100_000):
            arrivals = Arrivals.poisson(rate, count)
            routers = [WithRoom(), WaitingPenalised(), ExactWait()]
            routers += [Fastest()] if rate < 1 else []
            calls = {f"our {type(r).__name__}": lambda r=r: go(plan, arrivals, r) for r in routers}
            if count == 10_000:
                for name, chooser in peers.items():
                    calls[name] = lambda c=chooser: InSimpy(cluster, plan.placement, arrivals, c)
            found = race(calls, 3 if count == 10_000 else 1, False, most=60.0)
            queued = found.answers["our WithRoom"]
            for name in peers:
                if name in calls:
                    assert np.allclose(found.answers[name].total, queued.total, rtol=1e-9)
            values = {"arrivals": count, "placed for": plan.requests}
            yield row(f"{rate:g} a second, {count:,} arrivals", found, **values)


def go(found, arrivals, router):
    "A run of ours."
    return simulate(found.plan.cluster, found.placement, arrivals, router)
