"""Measured against named peers, in one run.

A module of this folder has one function, ``run()``, which yields rows: `row` for times, with
`race` for the times themselves, or for values alone. ``python -m bench`` keeps them in a file.
"""

import math
import os
import time

# NumPy's threads wait for each other by counting, which is no work and would be measured; solvers
# have one thread, too. In time only before NumPy is loaded, as it is by ``python -m bench``.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

from serving_or.tools.answers import Infeasible, NotFound, gap
from serving_or.tools.files import Name, Number, OneOf, Text, schema


def processor_time():
    """Seconds of the processor, of this process and of those that it has started and ended."""
    return time.process_time() + sum(os.times()[2:4])


CLOCKS = {"processor": processor_time, "wall": time.perf_counter}
# a call that is shorter is repeated until it has taken so many seconds
SHORTEST = 2e-3
# what part of its usual time limits a search gets, where they are in the way: LIMITS=0.25
LIMITS = float(os.environ.get("LIMITS", 1.0))
# no more seconds for all rounds of a race, but for the first round
MOST = 20.0

Seconds = Annotated[float, Number(0.0)]
Value = Annotated[float, Number()]


@schema
class Row:
    """One case: times of ours and of peers in the same rounds, and what came out.

    Rows that have the same ``line`` lie on one, over ``size``. ``ours`` holds one time for each
    round, and so does each of ``peers``; one whose name begins with "our" is another way of ours.
    """

    name: Name
    line: Annotated[str, Text()] | None = None
    size: Annotated[float, Number(above=0.0)] | None = None
    clock: Annotated[str, OneOf((*CLOCKS,))] = "processor"
    ours: list[Seconds]
    peers: dict[str, list[Seconds]]
    values: dict[str, Value | None]


class Race(NamedTuple):
    """Seconds of each call in each round, its last answer, and the clock."""

    seconds: dict[str, list[float]]
    answers: dict[str, Any]
    clock: str


def timed(call, clock="wall"):
    """Seconds of one call, and what it returns."""
    now = CLOCKS[clock]
    began = now()
    answer = call()
    return now() - began, answer


def race(
    calls: Mapping[str, Callable[[], Any]],
    repeats: int = 5,
    warm: bool = True,
    clock: str = "processor",
    most: float = MOST,
) -> Race:
    """Time calls in turn, so that all see the same machine.

    Each round has every call once, the rounds to and fro alternately. There are ``repeats`` rounds,
    or fewer when ``most`` seconds have gone. A first round is not counted where ``warm``; it says
    how often a call shorter than SHORTEST is made.
    """
    often, answers = dict.fromkeys(calls, 1), {}
    if warm:
        for name, call in calls.items():
            took, answers[name] = timed(call, clock)
            often[name] = min(math.ceil(SHORTEST / max(took, 1e-7)), 10_000)
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    began, order = time.perf_counter(), list(calls)
    for turn in range(repeats):
        if turn and time.perf_counter() - began > most:
            break
        for name in order:
            call, times = calls[name], often[name]
            took, answers[name] = timed(lambda: [call() for _ in range(times)][-1], clock)
            seconds[name].append(took / times)
        order.reverse()
    return Race(seconds, answers, clock)


def once(call, clock="wall") -> tuple[Race, Any]:
    """One call on its own, as of a search that has a time limit, and its answer."""
    found = race({"ours": call}, 1, False, clock)
    return found, found.answers["ours"]


def row(name, found=None, share=None, line=None, size=None, **values) -> Row:
    """A row from a race, of which the first call is ours.

    ``share`` is what part of the work a call did, for peers that got less; other words are values,
    numbers or None, with their unit in the name where they have one.
    """
    found, share = found or Race({}, {}, "processor"), share or {}
    listed = {
        peer: [float(f"{t / share.get(peer, 1.0):.4g}") for t in times]
        for peer, times in found.seconds.items()
    }
    ours = listed.pop(next(iter(listed))) if listed else []
    return Row(
        name=name,
        line=line,
        size=None if size is None else float(size),
        clock=found.clock,
        ours=ours,
        peers=listed,
        values={word: number(value) for word, value in values.items()},
    )


def number(value) -> float | None:
    """A value as a row holds it: six digits, None where there is none."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.6g}")


def cost(call):
    """The cost of a method's plan; infinite where it finds none."""
    try:
        return call().cost
    except (Infeasible, NotFound):
        return math.inf


def percent(value, bound):
    """The gap in percent of the value; None where there is no plan."""
    return 100 * gap(value, bound) if math.isfinite(value) else None
