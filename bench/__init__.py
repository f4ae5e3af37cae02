"""Measured against named peers, in one run."""

import math
import time

from serving_or.tools.answers import Infeasible, NotFound, gap


def timed(call):
    """Seconds of one call, and what it returns."""
    began = time.perf_counter()
    answer = call()
    return time.perf_counter() - began, answer


def seconds(call, repeats=5, time_limit=2.0):
    """Median seconds of a call, over at most ``repeats`` calls after a first one, in the limit."""
    call()
    times, began = [], time.perf_counter()
    while len(times) < repeats and (not times or time.perf_counter() - began < time_limit):
        times.append(timed(call)[0])
    return sorted(times)[len(times) // 2]


def cost(call):
    """The cost of a method's plan; infinite where it finds none."""
    try:
        return call().cost
    except (Infeasible, NotFound):
        return math.inf


def percent(value, bound):
    """The gap in percent of the value; a dash where there is no plan."""
    return f"{100 * gap(value, bound):.2f}" if math.isfinite(value) else "-"
