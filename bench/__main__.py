"""Run the benchmarks: `python -m bench` runs all, `python -m bench experts_online blocks_routing` those.

Each module of this folder has a function ``run()`` that measures against named peers in the same process and prints rows.
The machine is printed first; the ratios travel, the seconds do not.
"""
import importlib
import os
import pkgutil
import platform
import sys
import time

import numpy as np


def main(names):
    names = names or sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith('_'))
    print(f"Python {platform.python_version()}, NumPy {np.__version__}, {os.cpu_count()} cores, {platform.machine()}")
    for name in names:
        began = time.perf_counter()
        print(f"\n== {name}", flush=True)
        importlib.import_module(f"bench.{name}").run()
        print(f"   ({time.perf_counter() - began:.0f} s)", flush=True)


__path__ = [os.path.dirname(__file__)]
if __name__ == "__main__":
    main(sys.argv[1:])
