"""Run the chapters whose text, or a module that they import, has changed, several at a time.

    python book/_ext/run_notebooks.py WORKERS

Results go to the cache from which the book is built, so that each chapter runs once, whether the
tests or the book ask for it first. Ends with 1 when a chapter fails, and says where.
"""

import re
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import yaml
from nbdev_book import ROOT, read_notebook

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def execution():
    """What the book's configuration says of running."""
    return yaml.safe_load((ROOT / "book/_config.yml").read_text(encoding="utf-8"))["execute"]


def notebooks():
    """The chapters, and the pages that compute, the longest first."""
    found = [*ROOT.glob("nbs/*/[0-9]*_*.ipynb"), *ROOT.glob("book/*.ipynb")]
    return sorted(found, key=lambda path: path.stat().st_size, reverse=True)


def run(path, timeout):
    """Run a chapter where it lies: the notebook with its outputs, seconds, and what went wrong."""
    from jupyter_cache.executors.utils import single_nb_execution

    nb = read_notebook(path.read_text(encoding="utf-8"))
    # the kernel would warn each time that it speaks to us without encryption, on this machine
    quiet = {"extra_arguments": ["--log-level=ERROR"]}
    where = str(path.parent)
    done = single_nb_execution(nb, cwd=where, timeout=timeout, allow_errors=False, **quiet)
    return path, nb, done.time, done.exc_string


def is_known(cache, path):
    """Whether the cache has the results of a chapter as it is now."""
    try:
        cache.match_cache_notebook(read_notebook(path.read_text(encoding="utf-8")))
    except KeyError:
        return False
    return True


def main(workers):
    from jupyter_cache import get_cache
    from jupyter_cache.base import CacheBundleIn

    config = execution()
    cache = get_cache(str(ROOT / config["cache"]))
    todo = [path for path in notebooks() if not is_known(cache, path)]
    failed = []
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for asked in [pool.submit(run, path, config["timeout"]) for path in todo]:
            path, nb, seconds, wrong = asked.result()
            name = path.relative_to(ROOT)
            if wrong:
                failed.append(name)
                print(f"{name} failed\n{COLOUR.sub('', wrong)}", file=sys.stderr, flush=True)
                continue
            print(f"{seconds:6.1f} s  {name}", flush=True)
            bundle = CacheBundleIn(nb, str(path), data={"execution_seconds": seconds})
            cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
    known = len(notebooks()) - len(todo)
    print(f"chapters: {len(todo) - len(failed)} run, {known} as before, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
