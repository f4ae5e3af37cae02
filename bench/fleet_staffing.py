"""Erlang C for up to a million GPUs, and staffing, against pyworkforce in the same run.

Each peer gets the same load; the probabilities of waiting must agree to nine digits. pyworkforce
adds up a sum with as many terms as there are GPUs, one number at a time; the time of ours does not
depend on their number. Then 100,000 loads at once, and the fewest GPUs for a service level.
Without pyworkforce (extra ``bench``) only our own times are shown, and that is said.
"""

import numpy as np

from bench import seconds, timed
from serving_or.fleet.staffing import erlang_c, staff

SIZES = (100, 10_000, 1_000_000)


def peer():
    "The class of the peer, or None."
    try:
        from pyworkforce.queuing import ErlangC
    except ImportError:
        print("  pyworkforce is not installed: no comparison, our times only")
        return None
    return ErlangC


def one_probability(theirs):
    "The probability of waiting, one square root of spare GPUs."
    for n in SIZES:
        a = n - n**0.5
        ours = seconds(lambda: erlang_c(n, a), repeats=50)
        line = f"  Erlang C, {n:>9,} GPUs   ours {ours * 1e3:8.3f} ms"
        if theirs is not None:
            # a transaction that takes one minute, a in one minute
            queue = theirs(transactions=a, aht=1, asa=1, interval=1)
            took, found = timed(lambda: queue.waiting_probability(n))
            assert np.isclose(found, erlang_c(n, a), rtol=1e-9)
            line += f"   pyworkforce {took * 1e3:9.3f} ms   {took / ours:8.1f} x"
        print(line)


def many_probabilities(theirs):
    "A grid of loads at once, and by a loop over the peer's first ones, scaled."
    n, a, asked = 10_000.0, np.linspace(1.0, 9_999.0, 100_000), 100
    ours, found = timed(lambda: erlang_c(n, a))
    line = f"  Erlang C, {a.size:,} loads       ours {ours * 1e3:8.1f} ms"
    if theirs is not None:
        picked = np.linspace(0, a.size - 1, asked).astype(int)
        loop = lambda: [
            theirs(transactions=x, aht=1, asa=1, interval=1).waiting_probability(int(n))
            for x in a[picked]
        ]
        took, listed = timed(loop)
        good = np.isfinite(listed) & (found[picked] > 1e-290)
        assert np.allclose(np.array(listed)[good], found[picked][good], rtol=1e-7)
        took *= a.size / asked
        line += f"   pyworkforce {took * 1e3:9.0f} ms   {took / ours:8.1f} x (scaled)"
    print(line)


def staffing(theirs):
    "99 of 100 wait at most a fifth of a service time."
    for a in (30.5, 3000.5):
        plan = staff(a, 1.0, wait=0.2, share=0.99)
        ours = seconds(lambda: staff(a, 1.0, wait=0.2, share=0.99))
        line = f"  fewest GPUs, load {a:>7}    ours {ours * 1e3:8.2f} ms ({plan.gpus} GPUs)"
        if theirs is not None:
            queue = theirs(transactions=a, aht=1, asa=0.2, interval=1)
            took, found = timed(lambda: queue.required_positions(0.99))
            assert found["raw_positions"] == plan.gpus
            line += f"   pyworkforce {took * 1e3:9.2f} ms   {took / ours:8.1f} x"
        print(line)


def run():
    theirs = peer()
    one_probability(theirs)
    many_probabilities(theirs)
    staffing(theirs)
