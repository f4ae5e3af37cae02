"""PETALS' own code on our launch lines, and what one run of a swarm has found."""

import json
import shlex
import subprocess
import sys

import numpy as np
import pytest

from serving_or.blocks import read_launch
from tests.swarm import fit
from tests.swarm.measure import HERE, LONGEST, lines_of, spread_plan, whole_plan
from tests.tree import ROOT

PYTHON = ROOT / ".venv-swarm" / "bin" / "python"
RUN = ROOT / "build" / "swarm" / "run.json"
PEER = "/ip4/127.0.0.1/tcp/9/p2p/12D3KooWByGQbrTqjNxLzhVXmBwWct91YnfKiQ7RHA3ZSaKZThnp"

if not (PYTHON.exists() and RUN.exists()):
    pytest.skip("skipped: no PETALS swarm (make swarm)", allow_module_level=True)


@pytest.fixture(scope="module")
def found():
    return json.loads(RUN.read_text())


def asked(lines, folder, *more):
    "What PETALS makes of launch lines."
    words = [shlex.split(line)[3:] for line in lines]
    done = subprocess.run(
        [PYTHON, HERE / "parse.py", *more],
        input=json.dumps(words),
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


MODEL = ROOT / "build" / "swarm" / "model"


def test_petals_reads_what_we_wrote(tmp_path):
    for plan in (spread_plan(), whole_plan()):
        lines = lines_of(plan, MODEL, [PEER])
        for line, answer in zip(lines.values(), asked(lines.values(), tmp_path)):
            ours, theirs = read_launch(line), answer["parsed"]
            assert theirs["block_indices"] == f"{ours.start}:{ours.end}"
            for name in (
                "attn_cache_tokens",
                "inference_max_length",
                "throughput",
                "torch_dtype",
                "device",
                "dht_prefix",
            ):
                assert theirs[name] == getattr(ours, name), name
            assert theirs["initial_peers"] == list(ours.initial_peers)
        for line, answer in zip(lines.values(), asked(lines.values(), tmp_path, "--server")):
            ours = read_launch(line)
            assert answer["parsed"] == {
                "blocks": [ours.start, ours.end],
                "cache_tokens": ours.attn_cache_tokens,
                "inference_max_length": LONGEST,
            }


# what is wrong with a line; whether PETALS' parser takes it, and whether its server does
WRONG = {
    "--block_indices 0-3": (True, False),
    "--block_indices 0:3 --num_blocks 3": (True, False),
    "--block_ind 0:3": (True, True),
    "--block_indices 0:3 --torch_dtype float16": (True, False),
    "--block_indices 0:3 --dht_prefix tiny.1": (True, False),
    "--block_indices 3:3": (True, True),
    "--block_indices 0:3 --block_indices 0:4": (True, True),
    "--block_indices 0:3 --colour red": (False, False),
    "--block_indices 0:3 --attn_cache_tokens many": (False, False),
    "--block_indices 0:3 --initial_peers " + PEER: (False, False),
}


def test_what_petals_lets_through_and_we_do_not(tmp_path):
    head = f"python -m petals.cli.run_server {MODEL} --new_swarm --device cpu --throughput 1.0"
    rest = " --attn_cache_tokens 9 --inference_max_length 9"
    more = " --torch_dtype float32 --quant_type none"
    lines = [
        f"{head} {wrong}"
        + ("" if "attn_cache" in wrong else rest)
        + ("" if "torch_dtype" in wrong else more)
        + ("" if "dht_prefix" in wrong else " --dht_prefix tiny")
        for wrong in WRONG
    ]
    for line in lines:
        with pytest.raises(ValueError):
            read_launch(line)
    for at, flags in ((0, ()), (1, ("--server",))):
        answers = asked(lines, tmp_path, *flags)
        took = {wrong: "parsed" in answer for wrong, answer in zip(WRONG, answers)}
        assert took == {wrong: passes[at] for wrong, passes in WRONG.items()}


def test_a_folder_needs_a_prefix(tmp_path):
    "PETALS makes a prefix from a model's name, but none from a folder, and then stops."
    plan = whole_plan()
    line = lines_of(plan, MODEL, [PEER])[0].replace(" --dht_prefix tiny", "")
    (parsed,), (served,) = (asked([line], tmp_path, *flags) for flags in ((), ("--server",)))
    assert "parsed" in parsed and "NoneType" in served["refused"]
    with pytest.raises(ValueError, match="is a folder"):
        read_launch(line)


def test_the_swarm_says_what_the_model_says(found):
    for part in (found["spread"], found["natural"]["tokens"], found["delayed"]["tokens"]):
        assert part["swarm"] and all(made == part["local"] for made in part["swarm"])
    # the only way through the plan, run to each server's end
    assert found["spread"]["route"] == "A4 B3 C1"


@pytest.mark.parametrize("which", ["natural", "delayed"])
def test_a_full_cache_refuses(found, which):
    full = found[which]["full"]
    assert "Could not allocate" in full["refused"] and full["refused_after"] < 1
    assert full["banned"] and "Cannot allocate KV cache" in full["too_long"]
    # tried at 0, 0, 1 and 3 s, while there is room from 2 s on
    assert full["free_after"] < 2.9 < full["admitted_after"] < 4


def test_times_come_in_the_order_of_the_model(found):
    "Not milliseconds: where delays set two chains clearly apart, so do the times."
    own = found["delayed"]
    times = np.array([min(took) for took in own["relayed"]])
    delay = fit.design(own["chains"], False) @ np.transpose(list(own["delays"].values())).ravel()
    apart = delay[:, None] < delay[None] - 15
    assert apart.any() and (times[:, None] < times[None])[apart].all()


def test_chains_that_were_not_fitted(found):
    own = found["delayed"]
    times = [min(took) for took in own["relayed"]]
    short = [fit.hops(chain) <= 2 for chain in own["chains"]]
    assert np.abs(fit.fit(own["chains"], times, fitted=short).error).max() < 0.25


def test_a_swarm_that_cannot_start_says_so(tmp_path):
    wrong = tmp_path / "python"
    wrong.write_text("#!/bin/sh\necho there is no PETALS here >&2; exit 1\n")
    wrong.chmod(0o755)
    words = [sys.executable, "-m", "tests.swarm.measure", wrong, tmp_path / "run"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 1 and "there is no PETALS here" in done.stderr
