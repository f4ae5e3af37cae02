"""One event loop: against a plain replay of it, its invariants, and what it refuses."""


import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or.blocks.cluster import Cluster
from serving_or.blocks.plan import Placement
from serving_or.blocks.simulation import (
    Arrivals,
    Fastest,
    Lengths,
    WithRoom,
    simulate,
)
from tests.long import cases


@st.composite
def runs(draw, output=st.integers(1, 5), most_clients=2):
    "A small cluster, a placement that covers its blocks, and arrivals."
    L, n = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    C = draw(st.integers(1, most_clients))
    times = st.integers(0, 9)
    rows = lambda size: st.lists(times, min_size=size, max_size=size)
    a = [draw(st.integers(1, L)) for _ in range(n)]
    m = [draw(st.integers(0, L + 1 - x)) for x in a]
    a, m = [1, *a], [L, *m]
    n += 1
    spare = [draw(st.integers(0, 25)) for _ in range(n)]
    memory = [3.0 * k + s + (7 * L if j == 0 else 0) for j, (k, s) in enumerate(zip(m, spare))]
    cluster = Cluster(
        L,
        3,
        1,
        memory,
        draw(rows(n)),
        [draw(rows(n)) for _ in range(C)],
        prefill_tau=draw(rows(n)),
        prefill_rtt=[draw(rows(n)) for _ in range(C)],
    )
    count = draw(st.integers(0, 12))
    column = lambda of: draw(st.lists(of, min_size=count, max_size=count))
    arrivals = Arrivals(
        np.cumsum(column(st.integers(0, 20))),
        column(st.integers(0, 4)),
        column(output),
        column(st.integers(0, C - 1)),
    )
    lengths = Lengths(1, 0, draw(rows(n)), draw(st.integers(0, 2)))
    return cluster, Placement(a, m), arrivals, lengths


@pytest.mark.parametrize("router", [Fastest, WithRoom])
@given(run=runs())
@settings(max_examples=cases(2000))
def test_every_request_is_served_or_named_and_the_replay_agrees(router, run):
    cluster, placement, arrivals, lengths = run
    run = simulate(cluster, placement, arrivals, router(), lengths=lengths, reject=True)
    assert run == simulate(cluster, placement, arrivals, router(), lengths=lengths, reject=True)
    present, rate, time = run.little()
    assert present == pytest.approx(rate * time, rel=1e-9)
    assert (run.wait[run.served] >= 0).all() and (
        run.ttft[run.served] >= run.wait[run.served]
    ).all()
