"""Routers against enumeration of all chains, and the design capacity against its definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or.blocks.plan import NoRoute
from serving_or.blocks.simulation import Arrivals, Pool, Request, simulate
from serving_or.blocks.two_time_scales import ExactWait, WaitingPenalised
from tests.blocks.test_simulation import runs
from tests.long import cases


def chains_through(placement, blocks, x=1):
    "All chains from boundary x on, as tuples of (server, entry, end)."
    if x == blocks + 1:
        yield ()
        return
    for j in np.flatnonzero((placement.a <= x) & (x < placement.e)).tolist():
        e = int(placement.e[j])
        for rest in chains_through(placement, blocks, e):
            yield ((j, x, e), *rest)


class Against:
    "Asks a router, and compares what it chose with the best of all chains."

    def __init__(self, router, longest):
        self.router, self.longest = router, longest

    def start(self, cluster, placement):
        self.router.start(cluster, placement)

    def choose(self, pool, request):
        hop, block = pool.times(request)
        best = np.inf
        for way in chains_through(pool.placement, pool.cluster.blocks):
            best = min(best, self.cost(pool, request, hop, block, way))
        try:
            chain = self.router.choose(pool, request)
        except NoRoute:
            assert best == np.inf
            raise
        ends = np.cumsum((1, *chain.blocks)).tolist()
        way = list(zip(chain.servers, ends, ends[1:]))
        assert self.cost(pool, request, hop, block, way) == pytest.approx(best, rel=1e-9)
        return chain

    def cost(self, pool, request, hop, block, way):
        waits = [pool.from_time(j, (e - x) * request.units) - pool.time for j, x, e in way]
        wait = max(waits) if self.longest else sum(waits)
        return wait + sum(hop[j] + block[j] * (e - x) for j, x, e in way)


@pytest.mark.parametrize("router, longest", [(WaitingPenalised, False), (ExactWait, True)])
@given(run=runs())
@settings(max_examples=cases(2000))
def test_the_chosen_chain_is_the_best_of_all_chains(router, longest, run):
    cluster, placement, arrivals, lengths = run
    simulate(
        cluster, placement, arrivals, Against(router(), longest), lengths=lengths, reject=True
    )
