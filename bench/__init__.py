"""Measured against named peers, in one run."""
import time


def seconds(function, repeats=5, budget=2.0):
    "Median seconds of a call, over at most `repeats` calls after one warm-up, within a time budget."
    function()
    times, began = [], time.perf_counter()
    while len(times) < repeats and (not times or time.perf_counter() - began < budget):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]
