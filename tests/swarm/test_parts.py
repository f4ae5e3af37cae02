"""The parts of the harness that need no PETALS."""

import sys

import numpy as np
import pytest

from tests.long import cases
from tests.swarm import fit, processes
from tests.swarm.measure import BLOCKS, CHAINS, lines_of, spread_plan, whole_plan


@pytest.mark.parametrize("seed", range(cases(40)))
def test_a_fit_finds_what_made_the_times(seed):
    rng = np.random.default_rng(seed)
    hop, tau = rng.uniform(1, 30, 3), rng.uniform(0.5, 9, 3)
    times = fit.design(CHAINS, False) @ np.concatenate([hop, tau])
    short = [fit.hops(chain) <= 2 for chain in CHAINS]
    for fitted in (None, short):
        found = fit.fit(CHAINS, times, fitted=fitted)
        assert np.allclose(found.hop, hop) and np.allclose(found.tau, tau)
        assert np.abs(found.error).max() < 1e-9
    assert np.abs(fit.left_out(CHAINS, times)).max() < 1e-9
    alike = fit.fit(CHAINS, [5 * fit.hops(c) + 2 * BLOCKS for c in CHAINS], alike=True)
    assert np.allclose([*alike.hop, *alike.tau], [5, 2]) and "17 fitted" in alike.said()


def test_every_chain_runs_every_block():
    assert all(sum(k for _, k in fit.read(chain)) == BLOCKS for chain in CHAINS)
    assert {fit.hops(chain) for chain in CHAINS} == {1, 2, 3, 4}
    assert fit.read("A2 B6") == [("A", 2), ("B", 6)]


@pytest.mark.parametrize("chain", ["2A", "A", "A0", "a2", "A2,B6", "A2-B6"])
def test_a_chain_that_is_none(chain):
    with pytest.raises(ValueError, match="is no visit"):
        fit.read(chain)


def test_too_few_chains():
    with pytest.raises(ValueError, match="do not tell"):
        fit.fit(["A8", "B8"], [1, 2])


def test_the_plans_and_their_lines(tmp_path):
    spread, whole = spread_plan(), whole_plan()
    assert max(spread.placement.m) < BLOCKS == min(whole.placement.m)
    peer = "/ip4/127.0.0.1/tcp/9/p2p/12D3KooWByGQbrTqjNxLzhVXmBwWct91YnfKiQ7RHA3ZSaKZThnp"
    for plan in (spread, whole):
        assert len(lines_of(plan, tmp_path / "model")) == 1
        assert len(lines_of(plan, tmp_path / "model", [peer])) == 3


CHILD = "import subprocess, sys, time; subprocess.Popen(['sleep', '60']); print('up', flush=True);"


@pytest.mark.parametrize("after", ["time.sleep(60)", "sys.exit(3)"])
def test_the_whole_group_is_ended(tmp_path, after):
    with processes.running() as programs:
        log = tmp_path / "log"
        program = processes.start([sys.executable, "-c", CHILD + after], log, tmp_path)
        programs.append(program)
        assert processes.await_text(program, log, "up", 20) == "up"
        assert processes.living(program.pid)
    assert not processes.living(program.pid)


def test_a_program_that_resists_is_killed(tmp_path):
    resists = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    program = processes.start(
        [sys.executable, "-c", resists + CHILD + "time.sleep(60)"], tmp_path / "log", tmp_path
    )
    processes.await_text(program, tmp_path / "log", "up", 20)
    processes.end(program, patience=0.3)
    assert not processes.living(program.pid)


def test_failures_say_what_was_said_last(tmp_path):
    log = tmp_path / "log"
    program = processes.start([sys.executable, "-c", "raise SystemExit('no room')"], log, tmp_path)
    with pytest.raises(processes.Failed, match=r"ended with 1:\nno room"):
        processes.await_text(program, log, "up", 20)
    with pytest.raises(processes.Failed, match="no room"):
        processes.await_end(program, log, 20)
    slow = processes.start(["sleep", "60"], log, tmp_path)
    with pytest.raises(processes.Failed, match="did not say 'up' in 0.2 s"):
        processes.await_text(slow, log, "up", 0.2)
    with pytest.raises(processes.Failed, match=r"took more than 0.1 s"):
        processes.await_end(slow, log, 0.1)
    processes.end(slow)
