"""What got slower between two files of results, beyond the spread of both.

A row with peers is judged by its time over theirs, so that files of two machines can be compared;
one without peers by its seconds, on the same machine only.
"""

from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

from bench._results import Part, Results, quantity, spread

# A slowdown is told when the fastest round now is slower than the slowest before, and the medians
# differ by so much; a case of one or two rounds has no spread to speak of.
LEAST, LEAST_OF_FEW, FEW = 1.1, 1.5, 3


class Change(NamedTuple):
    """What happened to a row: slower, faster, gone, new, or not compared; and how that is known."""

    kind: str
    part: str
    row: str
    told: str


def measures(row, peers) -> dict[str, list[float]]:
    """Time over each peer's time, or seconds where there is no peer."""
    if peers:
        return {p: [a / max(b, 1e-12) for a, b in zip(row.ours, row.peers[p])] for p in peers}
    return {"seconds": row.ours}


def beyond(old: list[float], new: list[float]) -> bool:
    """Whether ``new`` is larger than ``old`` beyond the spread of both."""
    least = LEAST if min(len(old), len(new)) >= FEW else LEAST_OF_FEW
    return min(new) > max(old) and median(new) > least * median(old)


def judged(part: str, old, new, alike: bool) -> Change | None:
    """The change of a row that both have."""
    if not old.ours and not new.ours:
        return None
    if bool(old.ours) != bool(new.ours) or old.clock != new.clock:
        return Change("not compared", part, new.name, "it is measured in another way")
    peers = [p for p in old.peers if p in new.peers and not p.startswith("our")]
    if not peers and not alike:
        return Change("not compared", part, new.name, "no peer, and another machine")
    before, after = measures(old, peers), measures(new, peers)
    for kind, first, second in (("slower", before, after), ("faster", after, before)):
        # against every peer: one that got faster is no fault of ours
        if all(beyond(first[m], second[m]) for m in first):
            show = quantity if not peers else lambda x: f"{x:.3g}"
            told = "; ".join(
                f"{m if not peers else f'time over that of {m}'}"
                f" {spread(before[m], show)}, now {spread(after[m], show)}"
                for m in before
            )
            return Change(kind, part, new.name, told)
    return None


def of_part(name: str, old: Part, new: Part) -> Iterator[Change]:
    """Changes of a part that both files have."""
    before, after = ({row.name: row for row in part.rows} for part in (old, new))
    alike = old.machine == new.machine
    for row in before:
        if row not in after:
            yield Change("gone", name, row, "a row of the earlier file is missing")
            continue
        if change := judged(name, before[row], after[row], alike):
            yield change
        for peer in before[row].peers:
            if peer not in after[row].peers:
                yield Change("gone", name, row, f"the peer {peer} is missing")
    for row in after:
        if row not in before:
            yield Change("new", name, row, "the earlier file does not have it")


def changes(old: Results, new: Results) -> list[Change]:
    """Changes of all parts; a part that only the earlier file has was not run, and is no change."""
    found = []
    for name, part in new.parts.items():
        if name in old.parts:
            found += of_part(name, old.parts[name], part)
        else:
            found.append(Change("new", name, "", f"a part of {len(part.rows)} rows"))
    return found


def report(old: Results, new: Results) -> tuple[list[str], int]:
    """Lines to print, and the exit code: 1 when something got slower or is gone, else 0."""
    found, order = changes(old, new), ("slower", "gone", "faster", "new", "not compared")
    lines = []
    for kind in order:
        same = (c for c in found if c.kind == kind)
        lines += [f"{kind:>12}  {c.part}: {c.row}  {c.told}".rstrip() for c in same]
    both = [name for name in new.parts if name in old.parts]
    rows = sum(len(new.parts[name].rows) for name in both)
    counts = ", ".join(f"{sum(c.kind == k for c in found)} {k}" for k in order)
    lines.append(f"{len(both)} parts in both files, {rows} rows: {counts}")
    left = [name for name in old.parts if name not in new.parts]
    if left:
        lines.append(f"not run this time: {', '.join(left)}")
    for word in ("processor", "python"):
        said = {getattr(p.machine, word) for n in both for p in (old.parts[n], new.parts[n])}
        if len(said) > 1:
            lines.append(f"other {word}: {', '.join(sorted(said))}")
    return lines, int(any(c.kind in ("slower", "gone") for c in found))
