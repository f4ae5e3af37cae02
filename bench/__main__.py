"""Run the benchmarks.

``make bench`` runs all, ``make bench ONLY="experts_online blocks_routing"`` those.

Each module of this folder has a function ``run()`` that measures against named peers in the same
process and prints rows. The machine is printed first; the ratios travel, the seconds do not.
"""

import importlib
import os
import pkgutil
import platform
import sys
import time

import numpy as np


def benchmarks():
    """The names of all benchmarks."""
    folder = os.path.dirname(__file__)
    names = (module.name for module in pkgutil.iter_modules([folder]))
    return sorted(name for name in names if not name.startswith("_"))


def main(names):
    unknown = sorted(set(names) - set(benchmarks()))
    if unknown:
        sys.exit(f"bench: no {', '.join(unknown)}; there are {', '.join(benchmarks())}")
    cores = f"{os.cpu_count()} cores, {platform.machine()}"
    print(f"Python {platform.python_version()}, NumPy {np.__version__}, {cores}")
    for name in names or benchmarks():
        began = time.perf_counter()
        print(f"\n== {name}", flush=True)
        importlib.import_module(f"bench.{name}").run()
        print(f"   ({time.perf_counter() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
