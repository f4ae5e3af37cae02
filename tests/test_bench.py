"""The benchmarks' file: its schema, what a run keeps, and what is told of two files."""

import importlib
import json
import re
import types
from dataclasses import replace

import pytest

from bench import Row, _claims, _compare, _results, number, race, row
from bench.__main__ import benchmarks, chosen, main, run
from bench._results import Part, Results
from serving_or.tools.files import BadFile
from tests.tree import ROOT


def a_row(name="case", ours=(1.0, 1.1, 0.9), clock="processor", **peers):
    return Row(
        name=name,
        clock=clock,
        ours=list(ours),
        peers={peer: list(times) for peer, times in peers.items()},
        values={"gap %": 0.5, "nothing": None},
    )


def a_part(*rows, machine=None):
    return Part(
        about="Made up.",
        date="2026-01-01 00:00 UTC",
        seconds=1.0,
        machine=machine or _results.machine(),
        versions={"numpy": "2.0"},
        limits=1.0,
        load_before=[0.1, 0.2, 0.3],
        load_after=[],
        rows=list(rows),
    )


def results(**parts):
    return Results(parts=parts)


def other_machine():
    return replace(_results.machine(), processor="another")


# ---- times


def test_every_call_is_made_in_every_round():
    made = []
    calls = {"ours": lambda: made.append("ours"), "peer": lambda: made.append("peer")}
    found = race(calls, repeats=3, warm=False)
    assert made == ["ours", "peer", "peer", "ours", "ours", "peer"]
    assert {len(times) for times in found.seconds.values()} == {3}
    # the first round is made even when there is no time
    assert len(race(calls, repeats=9, warm=False, most=0.0).seconds["peer"]) == 1


def test_what_a_peer_got_less_of_is_scaled():
    found = race({"ours": lambda: 1, "peer": lambda: 2}, 3)
    assert found.answers == {"ours": 1, "peer": 2}
    made = row("case", found, {"peer": 0.01}, gap=float("inf"), count=3)
    for theirs, took in zip(made.peers["peer"], found.seconds["peer"]):
        assert theirs == pytest.approx(100 * took, rel=1e-3)
    assert made.values == {"gap": None, "count": 3.0}
    assert number(float("nan")) is None


# ---- the file


def test_a_file_comes_back_as_it_was(tmp_path):
    made = results(first=a_part(a_row(peer=[2.0, 2.1, 2.2]), a_row("é, 2")), second=a_part())
    path = tmp_path / "new" / "bench.json"
    _results.save(made, path)
    assert _results.load(path) == made
    # one row a line
    assert sum('"name"' in line for line in path.read_text("utf-8").splitlines()) == 2
    assert json.loads(path.read_text("utf-8"))["format"] == 1


def test_what_could_not_be_read_again_is_not_written(tmp_path):
    path = tmp_path / "bench.json"
    _results.save(results(part=a_part(a_row())), path)
    with pytest.raises(BadFile, match="line"):
        _results.save(results(part=a_part(replace(a_row(), line=3.0))), path)
    assert _results.load(path) == results(part=a_part(a_row()))


MISTAKES = {
    "unlike rounds": lambda p: p["rows"][0]["peers"].update(peer=[1.0]),
    "negative": lambda p: p["rows"][0].update(ours=[-1.0, 1.0, 1.0]),
    "no number": lambda p: p["rows"][0]["values"].update(gap="much"),
    "another field": lambda p: p.update(more=1),
    "clock": lambda p: p["rows"][0].update(clock="sun"),
    "twice": lambda p: p["rows"].append(p["rows"][0]),
    "empty": lambda p: p["rows"][0].update(ours=[], peers={}, values={}),
    "a line without size": lambda p: p["rows"][0].update(line="m"),
    "no machine": lambda p: p.pop("machine"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_file_is_told_with_its_line(tmp_path, mistake):
    path = tmp_path / "bench.json"
    _results.save(results(part=a_part(a_row(peer=[2.0, 2.1, 2.2]))), path)
    said = json.loads(path.read_text())
    MISTAKES[mistake](said["parts"]["part"])
    path.write_text(json.dumps(said))
    with pytest.raises(BadFile, match=r"parts\.part"):
        _results.load(path)


# ---- a run


def modules(**runs):
    "Stand-ins for the modules of bench/."

    def find(name):
        return types.SimpleNamespace(run=runs[name], __doc__=f"About {name}.", __name__=name)

    return find


def test_a_run_that_is_cut_off_keeps_what_it_has_finished(tmp_path):
    path = tmp_path / "bench.json"
    _results.save(results(a=a_part(a_row("old")), z=a_part(a_row("kept"))), path)

    def stopped():
        yield a_row("half")
        raise KeyboardInterrupt

    find = modules(a=lambda: [a_row("new")], b=stopped, c=lambda: [a_row("never")])
    with pytest.raises(KeyboardInterrupt):
        run(["a", "b", "c"], path, find)
    found = _results.load(path)
    assert [*found.parts] == ["a", "z"]
    assert [r.name for r in found.parts["a"].rows] == ["new"]
    assert found.parts["z"] == a_part(a_row("kept"))


def test_a_part_that_fails_stops_no_other(tmp_path, capsys):
    path = tmp_path / "bench.json"
    _results.save(results(a=a_part(a_row("old"))), path)

    def fails():
        yield a_row("half")
        raise AssertionError("peers differ")

    assert run(["a", "b"], path, modules(a=fails, b=lambda: [a_row()])) == ["a"]
    found = _results.load(path)
    assert found.parts["a"].rows[0].name == "old" and found.parts["b"].about == "About b."
    assert "peers differ" in capsys.readouterr().err


def test_names_are_chosen_by_how_they_begin():
    names = ["blocks_flow", "experts_online", "experts_pools", "fleet_mix"]
    assert chosen([], names) == names
    assert chosen(["experts"], names) == names[1:3]
    assert chosen(["fleet_mix", "experts_p"], names) == names[2:]
    with pytest.raises(ValueError, match="no cats; there are blocks_flow"):
        chosen(["experts", "cats"], names)


def test_the_command_line(tmp_path, capsys):
    assert main(["list"]) == 0
    assert capsys.readouterr().out.split() == benchmarks()
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    _results.save(results(a=a_part(a_row(peer=[2.0, 2.0, 2.0]))), old)
    _results.save(results(a=a_part(a_row(ours=[3.0, 3.1, 3.2], peer=[2.0, 2.0, 2.0]))), new)
    assert main(["compare", str(old), str(old)]) == 0
    assert main(["compare", str(old), str(new)]) == 1
    assert main(["compare", str(old), str(tmp_path / "none.json")]) == 2
    assert main(["run", "cats"]) == 2
    assert "no cats" in capsys.readouterr().err


@pytest.mark.parametrize("name", benchmarks())
def test_every_benchmark_has_a_run_and_says_what_it_is(name):
    pytest.importorskip("simpy")
    module = importlib.import_module(f"bench.{name}")
    assert module.__doc__ and len(" ".join(module.__doc__.split())) <= 2000
    assert callable(module.run)


# ---- two files


def kinds(old, new):
    return [(c.kind, c.row) for c in _compare.changes(results(a=old), results(a=new))]


def test_slower_beyond_the_spread_is_told():
    peer = [2.0, 2.0, 2.0]
    old = a_part(a_row(peer=peer))
    assert kinds(old, a_part(a_row(ours=(1.3, 1.4, 1.5), peer=peer))) == [("slower", "case")]
    assert kinds(old, a_part(a_row(ours=(0.6, 0.5, 0.7), peer=peer))) == [("faster", "case")]
    # within the spread: the fastest round now is as fast as the slowest before
    assert kinds(old, a_part(a_row(ours=(1.05, 1.4, 1.5), peer=peer))) == []
    # beyond it, but by little
    assert (
        kinds(a_part(a_row(ours=(1, 1, 1), peer=peer)), a_part(a_row(ours=(1.05,) * 3, peer=peer)))
        == []
    )
    # both got slower: a busy machine
    assert kinds(old, a_part(a_row(ours=(2.0, 2.2, 1.8), peer=[4.0, 4.0, 4.0]))) == []


def test_a_peer_that_got_faster_is_no_fault_of_ours():
    old = a_part(a_row(one=[2.0] * 3, two=[3.0] * 3))
    assert kinds(old, a_part(a_row(one=[1.0] * 3, two=[3.0] * 3))) == []
    slow = a_row(ours=(2.0, 2.1, 2.2), one=[2.0] * 3, two=[3.0] * 3)
    assert kinds(old, a_part(slow)) == [("slower", "case")]
    # another way of ours is no peer
    ours = {"our other": [1.0] * 3}
    assert kinds(a_part(a_row(**ours)), a_part(a_row(ours=(2, 2, 2), **ours))) == [
        ("slower", "case")
    ]


def test_seconds_are_compared_on_one_machine_only():
    old, slow = a_part(a_row()), a_row(ours=(2.0, 2.0, 2.0))
    assert kinds(old, a_part(slow)) == [("slower", "case")]
    assert kinds(old, a_part(slow, machine=other_machine())) == [("not compared", "case")]
    peer = [2.0, 2.0, 2.0]
    slow = a_part(a_row(ours=(2, 2, 2), peer=peer), machine=other_machine())
    assert kinds(a_part(a_row(peer=peer)), slow) == [("slower", "case")]


def test_one_round_has_no_spread():
    old = a_part(a_row(ours=(1.0,)))
    assert kinds(old, a_part(a_row(ours=(1.4,)))) == []
    assert kinds(old, a_part(a_row(ours=(1.6,)))) == [("slower", "case")]


def test_what_appears_and_what_is_gone():
    old, new = a_part(a_row("a", p=[1.0] * 3), a_row("b")), a_part(a_row("a"), a_row("c"))
    assert kinds(old, new) == [("gone", "a"), ("gone", "b"), ("new", "c")]
    assert kinds(a_part(a_row(clock="wall")), a_part(a_row())) == [("not compared", "case")]
    lines, code = _compare.report(results(a=old, b=old), results(a=old, c=new))
    assert code == 0 and any("not run this time: b" in line for line in lines)
    assert [c.kind for c in _compare.changes(results(), results(c=new))] == ["new"]
    assert _compare.report(results(a=old), results(a=new))[1] == 1


# ---- what is committed


def shown():
    return _results.load(ROOT / _results.SHOWN)


def test_the_committed_file_has_every_part():
    assert [*shown().parts] == benchmarks()
    for name, part in shown().parts.items():
        assert part.rows and part.load_before and part.versions["numpy"], name


def test_the_readme_has_todays_table_of_speed():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert _claims.with_table(readme, shown()) == readme, "run python -m bench claims"


def test_the_readme_says_nothing_else_of_speed():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    first, rest = readme.split(_claims.MARKS[0])
    # the table of chapters has their claims, which are in CLAIMS
    outside = re.sub(r"^\|.*$", "", first + rest.split(_claims.MARKS[1])[1], flags=re.M)
    assert not re.findall(r"times (?:faster|as fast|as long|slower)|\d ?(?:ms|µs|us)\b", outside)


@pytest.mark.parametrize("claim", _claims.CLAIMS, ids=lambda c: f"{c.file}: {c.sentence[:40]}")
def test_what_is_said_of_speed_is_measured(claim):
    assert claim.sentence in _claims.text_of(ROOT / claim.file)
    assert claim.holds(_claims.Found(shown()))


def test_a_claim_that_is_not_borne_out_is_told(monkeypatch):
    claim = _claims.Claim("README.md", "serving_or", lambda f: False)
    gone = _claims.Claim("README.md", "a thousand times faster than light", lambda f: True)
    none = _claims.Claim("README.md", "serving_or", lambda f: f.ours("part", "case") > 0)
    monkeypatch.setattr(_claims, "CLAIMS", (claim, gone, none))
    told = _claims.wrong(results(), ROOT)
    assert "says what is not so" in told[0] and "no longer says" in told[1]
    assert "nothing in the file on 'part'" in told[2]
