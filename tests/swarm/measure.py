"""Three PETALS servers on this machine, started with our lines: what they do, and how fast.

``python -m tests.swarm.measure PYTHON FOLDER``: the interpreter of the environment with PETALS, and
a folder for the model, logs and ``run.json``. This program has our package and starts the others,
which have theirs: PETALS needs a NumPy that is too old for us.
"""

import argparse
import json
import os
import platform
import re
import shlex
import signal
import sys
import time
from datetime import date
from pathlib import Path

import numpy as np

from serving_or.blocks import Chain, Cluster, Placement, cg_bprr, check, launch_commands
from tests.swarm import fit, processes

HERE = Path(__file__).parent / "programs"
BLOCKS, HIDDEN, LONGEST = 8, 512, 96
NAMES = "ABC"
# milliseconds that a server waits before each step, and for each of its blocks
NATURAL = dict.fromkeys(NAMES, (0, 0))
DELAYED = {"A": (5, 0), "B": (20, 2), "C": (10, 6)}
CHAINS = (
    *("A8", "B8", "C8"),
    *("A2 B6", "B2 A6", "B4 C4", "C6 B2", "C2 A6", "A3 C5"),
    *("A2 B3 C3", "B4 A2 C2", "C1 A6 B1", "C2 B4 A2"),
    *("A2 B2 A2 C2", "A1 C3 B2 C2", "B2 C2 A3 B1", "C1 A3 B1 A3"),
)
ADDRESS = re.compile(r"/ip4/127\.0\.0\.1/tcp/\d+/p2p/\w+")
START_LIMIT, JOB_LIMIT = 120, 900


def spread_plan():
    """Spans that follow each other: nobody holds the whole model."""
    cluster = Cluster(BLOCKS, 4, 1, memory=[24, 18, 18], tau=[1, 1, 1], rtt=[1, 1, 1])
    return cg_bprr(cluster, 2)


def whole_plan():
    """Every server holds all blocks, and caches for two requests."""
    cluster = Cluster(BLOCKS, 4, 1, memory=[48] * 3, tau=[1] * 3, rtt=[1] * 3)
    chains = [Chain(0, (j,), (BLOCKS,), 2) for j in range(3)]
    return check(cluster, Placement([1] * 3, [BLOCKS] * 3), chains, requests=6)


def lines_of(plan, model, peers=()):
    """Our launch lines, for processors and for this machine alone."""
    return launch_commands(
        plan,
        str(model),
        LONGEST,
        peers,
        torch_dtype="float32",
        quant_type="none",
        device="cpu",
        host_maddrs=["/ip4/127.0.0.1/tcp/0"],
        dht_prefix="tiny",
    )


class Swarm:
    """The servers of a plan, up and known to each other."""

    def __init__(self, python, plan, folder, delays, programs):
        self.python, self.folder, self.programs = python, folder, programs
        self.delays, self.plan = delays, plan
        folder.mkdir(parents=True, exist_ok=True)
        self.model = folder.parent / "model"
        # the first starts the swarm; its log has the address that the lines of the others need
        (first, line), *_ = lines_of(plan, self.model).items()
        began = time.monotonic()
        self.lines, self.names = {first: line}, {}
        started = self.start(first, line)
        address = self.address(first, started)
        self.lines |= {
            j: line for j, line in lines_of(plan, self.model, [address]).items() if j != first
        }
        others = {j: self.start(j, line) for j, line in self.lines.items() if j != first}
        for j, program in others.items():
            self.address(j, program)
        for j, program in ({first: started} | others).items():
            processes.await_text(program, self.log(j), "Started", START_LIMIT)
        self.peers = [address]
        self.took = time.monotonic() - began

    def log(self, j):
        """The file that a server writes to."""
        return self.folder / f"{NAMES[j]}.log"

    def start(self, j, line):
        """Start one server: our line's words, behind the shims."""
        words = shlex.split(line)
        assert words[:3] == ["python", "-m", "petals.cli.run_server"]
        delay = " ".join(map(str, self.delays[NAMES[j]]))
        program = processes.start(
            [self.python, HERE / "serve.py", *words[3:]],
            self.log(j),
            self.folder,
            SERVING_OR_DELAY=delay,
            OMP_NUM_THREADS="1",
        )
        self.programs.append(program)
        return program

    def address(self, j, program):
        """Where a server listens; its peer's name is kept."""
        said = processes.await_text(program, self.log(j), "Running a server on", START_LIMIT)
        found = ADDRESS.search(said)
        if not found:
            raise processes.Failed(f"no address on this machine in {said!r}")
        self.names[NAMES[j]] = found[0].rpartition("/")[2]
        return found[0]

    def forced(self, chain):
        """A chain "A2 B6" as [[peer, start, end], ...], blocks from 0."""
        ends = np.cumsum([0, *(blocks for _, blocks in fit.read(chain))]).tolist()
        visits = zip(fit.read(chain), ends, ends[1:])
        return [[self.names[name], start, end] for (name, _), start, end in visits]

    def named(self, chain):
        """The other way: "A2 B6"."""
        names = {peer: name for name, peer in self.names.items()}
        return " ".join(f"{names[peer]}{end - start}" for peer, start, end in chain)

    def client(self, **deeds):
        """Let a client do things, one after the other; its answers."""
        job = {
            "model": str(self.model),
            "peers": self.peers,
            "prefix": "tiny",
            "servers": len(self.lines),
            "patience": 60,
            "limit": JOB_LIMIT - 10,
            "longest": LONGEST,
            "deeds": deeds,
        }
        at, answer = self.folder / "job.json", self.folder / "answer.json"
        at.write_text(json.dumps(job))
        answer.unlink(missing_ok=True)
        log = self.folder / "client.log"
        words = [self.python, HERE / "client.py", at, answer]
        program = processes.start(words, log, self.folder, OMP_NUM_THREADS="1")
        self.programs.append(program)
        try:
            processes.await_end(program, log, JOB_LIMIT)
        finally:
            processes.end(program)
        return json.loads(answer.read_text())


def plan_swarm(python, folder):
    """The plan whose servers hold parts: whose tokens, and by which way."""
    with processes.running() as programs:
        plan = spread_plan()
        swarm = Swarm(python, plan, folder / "spread", NATURAL, programs)
        made = swarm.client(own_route={}, tokens=dict(prompt=[5, 3, 8], count=12, chains=[None]))
        return {
            "lines": list(swarm.lines.values()),
            "started_in": swarm.took,
            "plan": plan.chains[0].blocks,
            "route": swarm.named(made["own_route"]),
            **made["tokens"],
        }


def timed_swarm(python, folder, delays, steps, rounds):
    """Every server holds everything: forced chains, and a cache that is full."""
    with processes.running() as programs:
        swarm = Swarm(python, whole_plan(), folder / "whole", delays, programs)
        forced = [swarm.forced(chain) for chain in CHAINS]
        few = [swarm.forced(c) for c in ("A8", "B3 C5", "C2 A2 B4", "A2 B2 A2 C2")]
        made = swarm.client(
            tokens=dict(prompt=[7, 1], count=8, chains=few),
            measure=dict(chains=forced, steps=steps, rounds=rounds),
            full=dict(chain=swarm.forced("A8"), length=LONGEST, free_after=2.0),
        )
        direct = swarm.client(measure=dict(chains=forced, steps=steps, rounds=1, direct=True))
        return {
            "delays": delays,
            "started_in": swarm.took,
            "chains": CHAINS,
            "relayed": made["measure"],
            "direct": direct["measure"],
            "tokens": made["tokens"],
            "full": made["full"],
        }


def chapter(run):
    """The table of blocks/02_plan: without waits, with waits, pushed on; medians without waits."""
    natural, delayed = run["natural"], run["delayed"]
    columns = natural["relayed"], delayed["relayed"], delayed["direct"]
    least = ([min(took) for took in times] for times in columns)
    rows = zip(delayed["chains"], *least, map(np.median, natural["relayed"]))
    return "\n".join(
        f'    "{c}": ' + "({:.1f}, {:.1f}, {:.1f}, {:.1f}),".format(*t) for c, *t in rows
    )


def report(run):
    """What a run says, in print."""
    before, after = run["load"]
    print(f"\n{run['date']}, {run['machine']}, load {before:.2f} before, {after:.2f} after")
    spread = run["spread"]
    equal = all(made == spread["local"] for made in spread["swarm"])
    print(f"plan of parts: {spread['route']} chosen by the client, tokens equal: {equal}")
    for name in ("natural", "delayed"):
        own = run[name]
        equal = all(made == own["tokens"]["local"] for made in own["tokens"]["swarm"])
        print(f"\n{name}: delays {own['delays']}; tokens equal on forced chains: {equal}")
        chains, alike = own["chains"], name == "natural"
        for what, times in (
            ("least", [min(t) for t in own["relayed"]]),
            ("lower quartile", [np.quantile(t, 0.25) for t in own["relayed"]]),
            ("median", [np.median(t) for t in own["relayed"]]),
        ):
            short = [fit.hops(chain) <= 2 for chain in chains]
            every, some = fit.fit(chains, times, alike), fit.fit(chains, times, alike, short)
            out = 100 * np.abs(fit.left_out(chains, times, alike))
            print(f"{what}: hop {every.hop.round(1)} ms, block {every.tau.round(2)} ms")
            print(
                f"  all: {every.said()}; left out one by one: {out.mean():.1f}, {out.max():.1f} %"
            )
            print(f"  up to two hops: {some.said()}")
        full = own["full"]
        print(f"third session after {1000 * full['refused_after']:.0f} ms: {full['refused']}")
        print(
            f"banned: {full['banned']}; room after {full['free_after']} s, admitted after"
            f" {full['admitted_after']:.2f} s; too long: {full['too_long']}"
        )
    print("\nfor nbs/blocks/02_plan.ipynb:")
    print(chapter(run))


def run(python, folder, steps, rounds):
    """Everything, into ``run.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    load = [os.getloadavg()[0]]
    with processes.running() as programs:
        words = [python, HERE / "model.py", folder / "model", BLOCKS, HIDDEN]
        programs.append(processes.start(words, folder / "model.log", folder))
        processes.await_end(programs[0], folder / "model.log", START_LIMIT)
    found = {"spread": plan_swarm(python, folder)}
    for name, delays in (("natural", NATURAL), ("delayed", DELAYED)):
        found[name] = timed_swarm(python, folder, delays, steps, rounds)
    load.append(os.getloadavg()[0])
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    found |= {"date": str(date.today()), "machine": machine, "load": load}
    (folder / "run.json").write_text(json.dumps(found))
    return found


def main():
    """Run, and report."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("python", type=Path)
    words.add_argument("folder", type=Path)
    words.add_argument("--steps", type=int, default=20)
    words.add_argument("--rounds", type=int, default=3)
    given = words.parse_args()
    # asked to end, a run ends its servers first
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    try:
        report(run(given.python.absolute(), given.folder.absolute(), given.steps, given.rounds))
    except processes.Failed as error:
        sys.exit(f"the swarm did not do its work: {error}\nlogs are in {given.folder}")


if __name__ == "__main__":
    main()
