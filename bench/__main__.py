"""Run the benchmarks, or compare two files of results.

``make bench`` runs all, ``make bench ONLY=experts`` those whose names begin so, ``make bench
ONLY="experts_online blocks_routing"`` those. The file is written whole after each part, so that a
run that is cut off keeps what it has finished; a part that is run again replaces its rows only.
``COMPARE=file`` says what got slower than in that file. ``LIMITS=0.25`` gives searches a quarter of
their time limits.
"""

import argparse
import importlib
import os
import pkgutil
import sys
import time
import traceback
from pathlib import Path

from bench import LIMITS, _claims, _compare, _results
from bench._results import SHOWN, WRITTEN, Part, Results, say
from serving_or.tools.answers import write_whole
from serving_or.tools.files import BadFile


def benchmarks():
    """The names of all benchmarks."""
    folder = os.path.dirname(__file__)
    names = (module.name for module in pkgutil.iter_modules([folder]))
    return sorted(name for name in names if not name.startswith("_"))


def chosen(only, names):
    """The names that begin with one of ``only``, or all; ValueError for a word that fits none."""
    unknown = [word for word in only if not any(name.startswith(word) for name in names)]
    if unknown:
        raise ValueError(f"no {', '.join(unknown)}; there are {', '.join(names)}")
    return [name for name in names if not only or name.startswith(tuple(only))]


def measured(module) -> Part:
    """One part, run."""
    before, began, rows = _results.busy(), time.perf_counter(), []
    for row in module.run():
        say(f"   {_results.line_of(row)}")
        rows.append(row)
    return Part(
        about=" ".join((module.__doc__ or module.__name__).split()),
        date=_results.now(),
        seconds=round(time.perf_counter() - began, 1),
        machine=_results.machine(),
        versions=_results.versions(),
        limits=LIMITS,
        load_before=before,
        load_after=_results.busy(),
        rows=rows,
    )


def run(names, out, find=lambda name: importlib.import_module(f"bench.{name}")) -> list[str]:
    """Run parts, each written when it is finished; the names of those that failed."""
    failed = []
    for name in names:
        say(f"== {name}")
        try:
            part = measured(find(name))
            # another run may have written meanwhile
            kept = _results.load(out) if Path(out).exists() else Results(parts={})
            _results.save(_results.with_part(kept, name, part), out)
            say(f"   ({part.seconds:.0f} s, load {part.load_before} to {part.load_after})")
        except KeyboardInterrupt:
            say(f"stopped in {name}; finished parts are in {out}")
            raise
        except Exception:
            traceback.print_exc()
            failed.append(name)
    return failed


def arguments(given):
    """The command line."""
    parser = argparse.ArgumentParser("python -m bench", description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="measure")
    runs.add_argument("only", nargs="*", help="beginnings of names; none: all")
    runs.add_argument("--out", type=Path, default=WRITTEN, help=f"file (default {WRITTEN})")
    runs.add_argument("--compare", type=Path, help=f"an earlier file, such as {SHOWN}")
    two = commands.add_parser("compare", help="what got slower")
    two.add_argument("old", type=Path)
    two.add_argument("new", type=Path)
    commands.add_parser("list", help="names of all benchmarks")
    commands.add_parser("claims", help="README's table, and sentences on speed that do not hold")
    return parser.parse_args(given)


def compared(old: Results, new: Results) -> int:
    """Print what changed; the exit code."""
    lines, code = _compare.report(old, new)
    print("\n".join(lines))
    return code


def claimed(root=Path()) -> int:
    """Write README's table of speed, and print which sentences do not hold; the exit code."""
    shown, readme = _results.load(root / SHOWN), root / "README.md"
    text = _claims.with_table(readme.read_text(encoding="utf-8"), shown)
    write_whole(readme, text)
    told = _claims.wrong(shown, root)
    print("\n".join(told))
    return int(bool(told))


def main(given) -> int:
    """The exit code: 0, 1 when something failed or got slower, 2 for a mistake in the question."""
    asked = arguments(given)
    try:
        if asked.command == "list":
            print("\n".join(benchmarks()))
            return 0
        if asked.command == "compare":
            return compared(_results.load(asked.old), _results.load(asked.new))
        if asked.command == "claims":
            return claimed()
        names = chosen(asked.only, benchmarks())
        # both files are read before an hour is spent, and one may take the other's place
        old = _results.load(asked.compare) if asked.compare else None
        if asked.out.exists():
            _results.load(asked.out)
        if failed := run(names, asked.out):
            say(f"failed: {', '.join(failed)}")
            return 1
        say(f"all in {asked.out}")
        if old is None:
            return 0
        parts = _results.load(asked.out).parts
        return compared(old, Results(parts={name: parts[name] for name in names}))
    except (BadFile, OSError, ValueError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
