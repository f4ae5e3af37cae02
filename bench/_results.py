"""The file of results: parts, each with its rows, its machine, its date and its load."""

import json
import os
import platform
import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Annotated

from bench import Row, Seconds
from serving_or.tools.answers import write_whole
from serving_or.tools.files import Entries, Name, Number, Text, Whole, fit, parse, read, schema

# What the book shows, and what a run writes unless told otherwise.
SHOWN, WRITTEN = Path("bench/results.json"), Path("build/bench.json")
FORMAT, MOST_BYTES = 1, 1 << 24
# what a time may depend on
LIBRARIES = (
    *("numpy", "scipy", "highspy", "cvxpy", "clarabel", "networkx", "pandas"),
    *("numba", "simpy", "pyworkforce", "serving_or"),
)

Load = Annotated[list[Annotated[float, Number(0.0)]], Entries(0, 3)]


@schema
class Machine:
    """Where a part ran."""

    processor: Name
    processors: Annotated[int, Whole(1)]
    memory_gib: Annotated[float, Number(0.0)]
    system: Name
    python: Name


@schema
class Part:
    """One module of this folder, run once; ``load`` is the machine's before and after it, and
    ``limits`` the part of the usual time limits that its searches had.
    """

    about: Annotated[str, Text(2000)]
    date: Name
    seconds: Seconds
    machine: Machine
    versions: dict[str, Name]
    limits: Annotated[float, Number(above=0.0)]
    load_before: Load
    load_after: Load
    rows: list[Row]


@schema
class Results:
    """All parts, by name."""

    format: Annotated[int, Whole(FORMAT, FORMAT)] = FORMAT
    parts: dict[str, Part]


def mistakes(results):
    """Rules between fields, for `serving_or.tools.files.read`."""
    for part, made in results.parts.items():
        seen = set()
        for i, row in enumerate(made.rows):
            at = ("parts", part, "rows", i)
            if row.name in seen:
                yield (*at, "name"), "a name that no row of the part has before", row.name
            seen.add(row.name)
            if not row.ours and not row.values:
                yield (*at, "values"), "not empty where there are no times"
            for peer, times in row.peers.items():
                if len(times) != len(row.ours):
                    yield (*at, "peers", peer), "one time for each time of ours", len(times)
            if (row.line is None) != (row.size is None):
                yield (*at, "size"), "given with a line, and only then"


def load(path) -> Results:
    """The results in a file; `serving_or.tools.files.BadFile` says what is wrong with it."""
    return read(path, Results, mistakes, MOST_BYTES)


def save(results: Results, path) -> None:
    """Write a file whole, or not at all; one row a line, so that changes can be read."""
    said = asdict(results)
    for part in said["parts"].values():
        part["rows"] = [f"\x00{json.dumps(row, ensure_ascii=False)}\x00" for row in part["rows"]]
    text = json.dumps(said, indent=1, ensure_ascii=False, allow_nan=False)
    # rows were made texts, for one line each
    lines = [
        json.loads(line.strip().rstrip(",")).strip("\x00") + ("," if line.endswith(",") else "")
        if "\\u0000" in line
        else line
        for line in text.splitlines()
    ]
    text = "\n".join(lines) + "\n"
    # what could not be read again is not written
    fit(parse(text, str(path), json=True, most_bytes=MOST_BYTES), Results, mistakes)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text)


def with_part(results: Results, name: str, part: Part) -> Results:
    """The results with a part in the place of the former one, in the order of names."""
    return replace(results, parts=dict(sorted({**results.parts, name: part}.items())))


def processor() -> str:
    """The processor's name, as the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = (line.partition(":") for line in file)
            return next(said.strip() for word, _, said in lines if word.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def machine() -> Machine:
    """This machine."""
    pages = getattr(os, "sysconf", lambda _: 0)
    memory = pages("SC_PAGE_SIZE") * pages("SC_PHYS_PAGES") / 2**30
    return Machine(
        processor=processor(),
        processors=os.cpu_count() or 1,
        memory_gib=round(memory, 1),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
    )


def versions() -> dict[str, str]:
    """The libraries that are there."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def busy() -> list[float]:
    """How many processes wanted a processor in the last 1, 5 and 15 minutes, if that is known."""
    return [round(x, 2) for x in os.getloadavg()] if hasattr(os, "getloadavg") else []


def now() -> str:
    """Today, in universal time."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def ratios(row: Row, peer: str) -> list[float]:
    """How many times as long the peer takes as ours, round by round."""
    return [theirs / max(ours, 1e-12) for ours, theirs in zip(row.ours, row.peers[peer])]


def quantity(seconds: float) -> str:
    """Seconds in a unit that suits them."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size or unit == "µs":
            return f"{seconds / size:.3g} {unit}"
    raise AssertionError


def spread(values, show=lambda x: f"{x:.3g}") -> str:
    """Median and range."""
    middle = show(median(values))
    return middle if len(values) == 1 else f"{middle} ({show(min(values))} to {show(max(values))})"


def line_of(row: Row) -> str:
    """A row as the terminal shows it."""
    parts = [row.name]
    if row.ours:
        parts.append(spread(row.ours, quantity))
    parts += [f"{peer} × {spread(ratios(row, peer))}" for peer in row.peers]
    parts += [f"{word} {'-' if v is None else f'{v:.6g}'}" for word, v in row.values.items()]
    return "; ".join(parts)


def say(text: str) -> None:
    """A line of a report, at once."""
    print(text, file=sys.stdout, flush=True)
