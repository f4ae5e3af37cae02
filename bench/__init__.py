"""Measured against named peers, in one run."""

import time


def seconds(function, repeats=5, time_limit=2.0):
    """Median seconds of a call, over at most ``repeats`` calls after a first one, in the limit."""
    function()
    times, began = [], time.perf_counter()
    while len(times) < repeats and (not times or time.perf_counter() - began < time_limit):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]
