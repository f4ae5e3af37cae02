"""What is said of speed elsewhere, from the committed file: README's table, and sentences.

``python -m bench claims`` writes the table into README.md, and says which sentences no longer hold.
"""

import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench._results import Results, ratios

MARKS = "<!-- speed: written by python -m bench claims -->\n", "<!-- end of speed -->\n"


class Found(NamedTuple):
    """Numbers of a file of results, by part and case; medians over rounds."""

    results: Results

    def row(self, part, case):
        """A row; KeyError when it is not there."""
        rows = {row.name: row for row in self.results.parts[part].rows}
        return rows[case]

    def ours(self, part, case):
        """Seconds."""
        return median(self.row(part, case).ours)

    def ratio(self, part, case, peer):
        """A peer's time over ours."""
        return median(ratios(self.row(part, case), peer))

    def value(self, part, case, word):
        """What came out."""
        return self.row(part, case).values[word]


def two(x: float) -> str:
    """Two digits."""
    return f"{float(f'{x:.2g}'):,.10g}"


def milliseconds(x: float) -> str:
    """Seconds as milliseconds, two digits."""
    return f"{two(1e3 * x)} ms"


# what is done; part, case; peers with the words for them
TABLE = (
    (
        "One step of an online policy, 58 layers of 256 experts",
        ("experts_online", "58 x 256, k = 64, beside Clarabel"),
        {"cvxpy, Clarabel": "cvxpy with Clarabel"},
    ),
    (
        "A map of copies, 58 layers of 256 experts on 32 GPUs",
        ("experts_replicas", "58 x 256, 288 slots on 32 GPUs"),
        {
            "loops": "the published rule in loops",
            "counts at once": "its counts at once",
            "snake": "copies dealt to and fro",
        },
    ),
    (
        "The relaxation, 60 steps of 64 experts",
        ("experts_relaxation", "ar 60 x 64, k = 64"),
        {"cvxpy as written": "cvxpy with Clarabel"},
    ),
    (
        "Cheapest chains of 1,000 clients through 147 servers",
        ("blocks_routing", "1000 clients, 147 servers"),
        {"scipy dijkstra": "SciPy's Dijkstra", "networkx dijkstra": "networkx's"},
    ),
    (
        "10,000 requests that come and go, on 60 servers",
        ("blocks_simulation", "0.5 a second, 10,000 arrivals"),
        {"simpy, plain Python": "simpy", "simpy, our steps": "simpy with our routing"},
    ),
    (
        "A million requests through ten GPUs, with Numba",
        ("fleet_bursts", "1,000,000 customers, 10 servers"),
        {"simpy": "simpy"},
    ),
    (
        "The probability of waiting with a million GPUs",
        ("fleet_staffing", "Erlang C, 1,000,000 GPUs"),
        {"pyworkforce": "pyworkforce"},
    ),
    (
        "The same with a hundred",
        ("fleet_staffing", "Erlang C, 100 GPUs"),
        {"pyworkforce": "pyworkforce"},
    ),
)


def table(results: Results) -> str:
    """README's table."""
    found = Found(results)
    lines = ["| | ours | a peer's time over ours |", "|---|---|---|"]
    for what, at, peers in TABLE:
        said = ", ".join(f"{word} × {two(found.ratio(*at, peer))}" for peer, word in peers.items())
        lines.append(f"| {what} | {milliseconds(found.ours(*at))} | {said} |")
    return "\n".join(lines) + "\n"


def with_table(readme: str, results: Results) -> str:
    """README with the table of a file between its marks."""
    before, _, rest = readme.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    if not after:
        raise ValueError("README.md has lost its marks of speed")
    return f"{before}{MARKS[0]}\n{table(results)}\n{MARKS[1]}{after}"


class Claim(NamedTuple):
    """A sentence in a file, and whether results bear it out."""

    file: str
    sentence: str
    holds: Callable[[Found], bool]


BATCH, MAPS = ("fleet_batching", "1,000,000 requests"), "experts_replicas"
NINE, TWO = "58 x 256, 288 slots on 32 GPUs", "58 x 256, 288 slots on 144 GPUs"
PROOF = ("experts_certificate", "bounds over the relaxation, 60 traces")
FAST = "fast drift, 4 x 64, 8 GPUs"
GTS = "20% A100s, 128 tokens, 1 clients, R = 60"
CLAIMS = (
    Claim(
        "nbs/fleet/01_staffing.ipynb",
        "with the exact answer in milliseconds nobody needs them for numbers",
        lambda f: f.ours("fleet_staffing", "fewest GPUs, load 3000.5") < 0.01,
    ),
    Claim(
        "nbs/fleet/02_bursts.ipynb",
        "six lines, and less than a microsecond a request",
        lambda f: (
            f.ours("fleet_bursts", "1,000,000 customers, 10 servers")
            * f.ratio("fleet_bursts", "1,000,000 customers, 10 servers", "our loop")
            < 1.0
        ),
    ),
    Claim(
        "nbs/fleet/02_bursts.ipynb",
        "it is 1.19 ± 0.03 and 1.35 ± 0.03 times the truth",
        lambda f: (
            [
                round(f.value("fleet_bursts", f"{law}, 100 servers, load 95", word), 2)
                for law in ("hyperexponential", "lognormal")
                for word in ("formula / simulated wait", "its standard error")
            ]
            == [1.19, 0.03, 1.35, 0.03]
        ),
    ),
    Claim(
        "nbs/fleet/05_kv_cache.ipynb",
        "Then a request takes about half a microsecond: a seventh of what it takes without, and a"
        " fifteenth of what simpy takes",
        lambda f: (
            0.35 < f.ours(*BATCH) < 0.7
            and 6 < f.ratio(*BATCH, "our look-ahead, plain NumPy") < 8
            and 12 < f.ratio(*BATCH, "simpy") < 18
        ),
    ),
    Claim(
        "nbs/experts/16_replicas.ipynb",
        "some forty to seventy times as long as a plan with nine slots",
        lambda f: 40 < f.ours(MAPS, TWO) / f.ours(MAPS, NINE) < 70,
    ),
    Claim(
        "nbs/experts/16_replicas.ipynb",
        "takes about a tenth of the time of a plan with nine slots",
        lambda f: 0.05 < f.ratio(MAPS, NINE, "snake") < 0.15,
    ),
    Claim(
        "nbs/experts/16_replicas.ipynb",
        "the map is to be ready in a few milliseconds",
        lambda f: f.ours(MAPS, NINE) < 0.02,
    ),
    Claim(
        "nbs/experts/22_sizes_and_pools.ipynb",
        "58 layers of 256 experts in some milliseconds",
        lambda f: f.ours("experts_pools", "pooled step, 58 x 256, k = 32, spread 1.5") < 0.01,
    ),
    Claim(
        "nbs/blocks/07_conservative_greedy.ipynb",
        "A plan in milliseconds",
        lambda f: f.ours("blocks_conservative_greedy", "planning, 150 servers, R = 60") < 0.02,
    ),
    Claim(
        "nbs/blocks/07_conservative_greedy.ipynb",
        "ten thousand servers are placed in milliseconds",
        lambda f: f.ours("blocks_conservative_greedy", "placing, 10,000 servers, R = 1000") < 0.01,
    ),
    Claim(
        "book/decisions.ipynb",
        "a plan in milliseconds with a guarantee",
        lambda f: f.ours("blocks_conservative_greedy", "planning, 150 servers, R = 60") < 0.02,
    ),
    Claim(
        "nbs/blocks/08_bounds.ipynb",
        "in a fraction of a second for sixty servers",
        lambda f: f.ours("blocks_bounds", GTS) < 1.0,
    ),
    Claim(
        "nbs/blocks/10_search.ipynb",
        "With 400 requests on sixty servers, plan and bound end within a quarter of a percent of"
        " each other after a minute with it",
        lambda f: (
            f.results.parts["blocks_line_program"].limits == 1
            and all(
                f.value("blocks_line_program", f"gtsce, seed {i}, R = 400: sixty servers", "gap %")
                < 0.25
                for i in (1, 2, 4)
            )
        ),
    ),
    Claim(
        "nbs/experts/19_next_window.ipynb",
        "repair without slack is a little below the rebuild, too: at 2 % most of the loss is not"
        " the slack's",
        lambda f: (
            0
            > f.value("experts_next_window", f"{FAST}: repair, 0 %", "less the rule")
            > f.value("experts_next_window", f"{FAST}: repair, 2 %", "less the rule")
            > 2 * f.value("experts_next_window", f"{FAST}: repair, 0 %", "less the rule")
        ),
    ),
    Claim(
        "nbs/blocks/15_two_time_scales.ipynb",
        "a chain is chosen in a millisecond",
        lambda f: (
            f.ours("blocks_simulation", "4 a second, 10,000 arrivals")
            * f.ratio("blocks_simulation", "4 a second, 10,000 arrivals", "our ExactWait")
            < 10.0
        ),
    ),
    Claim(
        "CHANGELOG.md",
        "in less time than the former",
        lambda f: f.ratio(*PROOF, "first edition") > 1,
    ),
    Claim(
        "CHANGELOG.md",
        "it proves .94 of the relaxation where the former proved .75 (means of 60 traces,",
        lambda f: (
            [round(f.value(*PROOF, f"{who}, mean"), 2) for who in ("certificate", "first edition")]
            == [0.94, 0.75]
        ),
    ),
    Claim(
        "CHANGELOG.md",
        "thousand servers that all differ with 5,000 requests in seconds",
        lambda f: f.ours("blocks_bounds", "1000 servers that all differ, R = 5000") < 60,
    ),
)


def text_of(path: Path) -> str:
    """The words of a file, with any white space as one blank; of a notebook, its cells of text."""
    said = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(said)["cells"]
        said = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    return " ".join(said.split())


def wrong(results: Results, root: Path) -> list[str]:
    """The sentences that are not there, or that results do not bear out."""
    found, told = Found(results), []
    for claim in CLAIMS:
        if claim.sentence not in text_of(root / claim.file):
            told.append(f"{claim.file} no longer says: {claim.sentence}")
            continue
        try:
            holds = claim.holds(found)
        except KeyError as missing:
            told.append(f"{claim.file}: nothing in the file on {missing}: {claim.sentence}")
            continue
        if not holds:
            told.append(f"{claim.file} says what is not so: {claim.sentence}")
    return told
