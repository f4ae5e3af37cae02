"""Erlang C for up to a million GPUs, and staffing, against pyworkforce in the same run.

Each peer gets the same load; the probabilities of waiting must agree to nine digits. pyworkforce
adds up a sum with as many terms as there are GPUs, one number at a time; the time of ours does not
depend on their number. Then 100,000 loads at once (the peer gets a thousandth of them), and the
fewest GPUs for a service level. The peer is in the extra ``bench``; without it there is none.
"""

import numpy as np

from bench import race, row
from serving_or.fleet.staffing import erlang_c, staff

SIZES = (100, 10_000, 1_000_000)


def peer():
    "The class of the peer, or None."
    try:
        from pyworkforce.queuing import ErlangC
    except ImportError:
        return None
    return ErlangC


def one_probability(theirs):
    "The probability of waiting, one square root of spare GPUs."
    for n in SIZES:
        a = n - n**0.5
        calls = {"ours": lambda: erlang_c(n, a)}
        if theirs is not None:
            # a transaction that takes one minute, a in one minute
            queue = theirs(transactions=a, aht=1, asa=1, interval=1)
            calls["pyworkforce"] = lambda: queue.waiting_probability(n)
        found = race(calls)
        assert np.allclose([*found.answers.values()], erlang_c(n, a), rtol=1e-9)
        yield row(f"Erlang C, {n:,} GPUs", found, line="Erlang C, GPUs", size=n)


def many_probabilities(theirs):
    "A grid of loads at once, and by a loop over the peer's first ones, scaled."
    n, a, asked = 10_000.0, np.linspace(1.0, 9_999.0, 100_000), 100
    calls = {"ours": lambda: erlang_c(n, a)}
    picked = np.linspace(0, a.size - 1, asked).astype(int)
    if theirs is not None:
        calls["pyworkforce"] = lambda: [
            theirs(transactions=x, aht=1, asa=1, interval=1).waiting_probability(int(n))
            for x in a[picked]
        ]
    found = race(calls)
    if theirs is not None:
        listed, some = found.answers["pyworkforce"], found.answers["ours"][picked]
        good = np.isfinite(listed) & (some > 1e-290)
        assert np.allclose(np.array(listed)[good], some[good], rtol=1e-7)
    share = {"pyworkforce": asked / a.size}
    yield row(f"Erlang C, {a.size:,} loads", found, share)


def staffing(theirs):
    "99 of 100 wait at most a fifth of a service time."
    for a in (30.5, 3000.5):
        calls = {"ours": lambda: staff(a, 1.0, wait=0.2, share=0.99)}
        if theirs is not None:
            queue = theirs(transactions=a, aht=1, asa=0.2, interval=1)
            calls["pyworkforce"] = lambda: queue.required_positions(0.99)
        found = race(calls)
        gpus = found.answers["ours"].gpus
        if theirs is not None:
            assert found.answers["pyworkforce"]["raw_positions"] == gpus
        yield row(f"fewest GPUs, load {a}", found, GPUs=gpus)


def run():
    theirs = peer()
    yield from one_probability(theirs)
    yield from many_probabilities(theirs)
    yield from staffing(theirs)
