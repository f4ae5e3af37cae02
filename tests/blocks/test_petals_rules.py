"""What the chapter on PETALS' rules claims, against literal loops; and what it refuses."""

import shlex
import subprocess

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_or.blocks.cluster import Cluster
from serving_or.blocks.conservative_greedy import cg_bprr
from serving_or.blocks.petals_rules import Launch, launch_commands, read_launch
from serving_or.blocks.plan import Chain, Placement, check

B = Cluster(4, 4, 1, memory=[24, 12, 12], tau=[10, 20, 20], rtt=[10, 10, 10])
WHO = "QmedTaZXmULqwspJXz44SsPZyTNKxhnnFvYRajfH7MGhCY"
PEER = f"/ip4/10.0.0.7/tcp/31337/p2p/{WHO}"
LINE = (
    "python -m petals.cli.run_server bigscience/bloom --block_indices 0:3 --attn_cache_tokens 592"
    " --inference_max_length 148 --throughput 12.5 --torch_dtype bfloat16 --quant_type nf4"
    f" --initial_peers {PEER}"
)
NEEDED = {"attn_cache_tokens": 592, "inference_max_length": 148, "throughput": 12.5}


# launch lines


def test_a_plan_becomes_lines_that_are_read_back():
    plan = cg_bprr(B, 4)
    lines = launch_commands(plan, "bigscience/bloom", 148, [PEER, PEER], port=[31337, 31338, 1])
    assert list(lines) == sorted(lines, key=lambda j: (plan.placement.e[j], plan.placement.a[j]))
    for j, line in lines.items():
        launch = read_launch(line)
        assert launch.line == line and launch.initial_peers == (PEER, PEER)
        assert (launch.start + 1, launch.end + 1) == (plan.placement.a[j], plan.placement.e[j])
        assert launch.port == [31337, 31338, 1][j] and launch.inference_max_length == 148
        # requests a second: tau is in milliseconds
        held = launch.end - launch.start
        assert launch.throughput == pytest.approx(2000 / (plan.cluster.tau[j] * (held + 1)))


def test_without_peers_one_server_starts_the_swarm():
    (line,) = launch_commands(cg_bprr(B, 4), "m", 148).values()
    assert read_launch(line).start == 0 and line.endswith(" --new_swarm")
    assert read_launch(line).initial_peers == ()


@given(
    st.integers(1, 6), st.integers(1, 9), st.integers(1, 300), st.floats(0.1, 3), st.floats(0, 1)
)
def test_the_cache_budget_holds_the_chains_and_keeps_to_memory(m, slots, tokens, size, spare):
    c = Cluster(m, 2.0, size, memory=[2 * m + size * (slots + spare)], tau=[1], rtt=[1])
    f = int(c.sessions([m])[0])
    if f:
        plan = check(c, Placement([1], [m]), [Chain(0, (0,), (m,), f)], f)
        (line,) = launch_commands(plan, "m", tokens).values()
        T = read_launch(line).attn_cache_tokens
        # f sessions of so many tokens in all m blocks are admitted
        assert f * tokens * m <= T * m
        # memory holds them, but for less than a token a block
        assert (T - 1) * m * size / tokens <= (size * (slots + spare)) * (1 + 1e-8)


def test_whole_tokens_are_rounded_up_where_the_chains_need_it():
    # eight slots of 148 tokens over three blocks are 394.67 tokens a block
    c = Cluster(4, 4, 1, memory=[20, 24], tau=[1, 1], rtt=[1, 1])
    chains = [Chain(0, (0, 1), (3, 1), 2)]
    placement = Placement([1, 4], [3, 1])
    assert c.slots([3, 1]).tolist() == [8, 20]
    lines = launch_commands(check(c, placement, chains, 2), "m", 148, [PEER])
    budgets = [read_launch(line).attn_cache_tokens for line in lines.values()]
    # six of the eight slots are taken, and whole tokens hold them
    assert budgets == [394, 20 * 148]
    some = [Chain(0, (0,), (3,), 2), Chain(0, (1, 0), (1, 2), 1)]
    room = Cluster(3, 4, 1, memory=[20, 8], tau=[1, 1], rtt=[1, 1])
    plan = check(room, Placement([1, 1], [3, 1]), some, 3)
    lines = launch_commands(plan, "m", 10, [PEER])
    # 8 of 8 slots are taken: 80 / 3 = 26.67
    assert read_launch(lines[0]).attn_cache_tokens == 27


def test_lines_keep_one_word_one_word_in_a_shell():
    for model in ("a b", "it's; rm -rf $HOME", '"`x`$(y)', "ümlaut/модель", "../odd|>&"):
        line = Launch(model, 0, 3, **NEEDED).line
        assert read_launch(line).model == model == shlex.split(line)[3]
        show = subprocess.run(
            ["sh", "-c", f'printf "%s\\n" {line.removeprefix("python ")}'],
            capture_output=True,
            text=True,
            check=True,
        )
        assert show.stdout.splitlines() == shlex.split(line)[1:]


def changed(old, new):
    assert old in LINE
    return LINE.replace(old, new)


@pytest.mark.parametrize(
    "line, said",
    [
        (changed("0:3", "0-3"), "start:end"),
        (changed("0:3", "3:3"), "3:3"),
        (changed("0:3", "5:3"), "5:3"),
        (changed("0:3", "-1:3"), "block_indices has 0 values"),
        (changed("0:3", "'٠:٣'"), "start:end"),
        (LINE + " --num_blocks 3", "beside --block_indices"),
        (changed("--block_indices", "--block_ind"), "'--block_ind'"),
        (changed("--block_indices 0:3", "--block_indices=0:3"), "'--block_indices=0:3'"),
        (changed(" --block_indices 0:3", ""), "block_indices is not given"),
        (LINE + " --block_indices 0:3", "given twice"),
        (changed("12.5", "auto"), "'auto'"),
        (changed("12.5", "nan"), "throughput is nan"),
        (changed("12.5", "0"), "throughput is 0"),
        (changed(" --throughput 12.5", ""), "throughput is not given"),
        (LINE + " --device cpu", "torch_dtype|quant_type"),
        (changed("nf4", "none").replace("bfloat16", "float16") + " --device cpu", "torch_dtype"),
        (changed("nf4", "none").replace("bfloat16", "auto") + " --device cpu", "torch_dtype"),
        (changed("nf4", "fp8"), "quant_type is 'fp8'"),
        (LINE + " --device tpu", "device is 'tpu'"),
        (LINE + " --dht_prefix my.model", "dht_prefix is 'my.model'"),
        (LINE + " --dht_prefix 'my model'", "dht_prefix is 'my model'"),
        (LINE + " --port 0", "port is 0"),
        (LINE + " --port 65536", "port is 65536"),
        (LINE + " --port 1e3", "'1e3'"),
        (LINE + " --port 80 --host_maddrs /ip4/0.0.0.0/tcp/80", "one of them"),
        (LINE + " --new_swarm", "and not both"),
        (changed(f" --initial_peers {PEER}", ""), "one of --initial_peers and --new_swarm"),
        (changed(f" {PEER}", ""), "initial_peers has 0 values"),
        (changed(f"/p2p/{WHO}", ""), r"initial_peers\[0\]"),
        (changed("/tcp/31337", "/tcp/99999"), r"initial_peers\[0\]"),
        (changed("592", "0"), "attn_cache_tokens is 0"),
        (changed("148", "1.5"), "'1.5'"),
        (changed("bigscience/bloom", "''"), "model is ''"),
        (changed("bigscience/bloom", "--new_swarm"), "model is '--new_swarm'"),
        (LINE + " 'open", "a shell cannot read it"),
        ("python -m petals.cli.run_dht", "must be `python"),
        ("", "must be `python"),
        (None, "line is None"),
        (changed("bigscience/bloom", "$HOME"), "quoted word by word"),
        (LINE + "; rm x", "quoted word by word"),
        (LINE + " # on the left", "quoted word by word"),
        (LINE + " extra", "initial_peers"),
    ],
)
def test_a_line_is_read_more_strictly_than_petals_does(line, said):
    with pytest.raises(ValueError, match=said):
        read_launch(line)


@pytest.mark.parametrize(
    "more, said",
    [
        ({"model": "-v"}, "model is '-v'"),
        ({"model": "a\nb"}, "model is"),
        ({"model": ""}, "model is ''"),
        ({"model": None}, "model is None"),
        ({"tokens": 0}, "tokens is 0"),
        ({"tokens": 1.5}, "tokens is 1.5"),
        ({"port": 0}, "port is 0"),
        ({"port": [1, 2]}, "port has shape"),
        ({"port": "80"}, "port is '80'"),
        ({"initial_peers": PEER}, "must be a list of addresses"),
        ({"initial_peers": ["10.0.0.7:31337"]}, r"initial_peers\[0\] is '10.0.0.7:31337'"),
        ({"initial_peers": [f"{PEER} --port 1"]}, r"initial_peers\[0\]"),
        ({"device": "cpu"}, "on a CPU"),
        ({"throughput": "auto"}, "throughput is 'auto'"),
    ],
)
def test_bad_launches_are_refused(more, said):
    given = {"model": "m", "tokens": 148, "initial_peers": [PEER]} | more
    with pytest.raises(ValueError, match=said):
        launch_commands(cg_bprr(B, 4), **given)


def test_caches_that_differ_or_take_nothing_have_no_line():
    for cache, said in (([1, 1, 1, 2], "differs by block"), (0, "cache_size is 0")):
        c = Cluster(4, 4, cache, memory=[40], tau=[10], rtt=[10])
        plan = check(c, Placement([1], [4]), [Chain(0, (0,), (4,), 1)], 1)
        with pytest.raises(ValueError, match=said):
            launch_commands(plan, "m", 148, [PEER])


def test_a_free_server_has_no_throughput_to_report():
    c = Cluster(4, 4, 1, memory=[40], tau=[0], rtt=[10])
    plan = check(c, Placement([1], [4]), [Chain(0, (0,), (4,), 1)], 1)
    with pytest.raises(ValueError, match="throughput is inf"):
        launch_commands(plan, "m", 148)
    (line,) = launch_commands(plan, "m", 148, throughput=np.float64(3)).values()
    assert read_launch(line).throughput == 3
