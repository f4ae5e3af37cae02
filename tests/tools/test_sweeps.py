"""Sweeps: a table does not know who computed it, in what order, or how often it was stopped."""

import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_or.tools import sweeps
from serving_or.tools.sweeps import Grid, SweepTable, fill
from tests.long import cases
from tests.tree import ROOT

GRID = Grid({"policy": ["a", "b"], "load": [0.5, 0.9], "seed": range(5)}, alike=["policy"])


def work(rng, policy, load, seed):
    "Answers of every kind, and two cells that fail."
    if (load, seed) == (0.9, 3):
        raise ArithmeticError(f"{policy} fails")
    x = rng.standard_normal(200)
    odd = [np.nan, np.inf, -np.inf, -0.0, 5e-324][seed]
    extra = {"only_b": np.float32(0.1)} if policy == "b" else {}
    return {"cost": x.sum() * load, "odd": odd, "name": f"{policy}é", "big": 2**70, **extra}


def slow(rng, seed):
    "Long enough to be killed in."
    time.sleep(0.15)
    return {"x": rng.random()}


@pytest.fixture(scope="module")
def table():
    return fill(work, GRID)


def test_cells_are_the_product_in_order():
    cells = [GRID.cell(i) for i in range(len(GRID))]
    names = tuple(GRID.axes)
    assert cells == [dict(zip(names, v)) for v in product(*GRID.axes.values())]


@settings(max_examples=cases(1000), deadline=None)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    alike=st.sets(st.integers(0, 3)),
    seed=st.integers(0, 2**40),
)
def test_dice_are_shared_by_those_who_are_compared_and_by_nobody_else(sizes, alike, seed):
    names = [f"x{i}" for i in range(len(sizes))]
    alike = [names[i] for i in alike if i < len(sizes)]
    grid = Grid({name: range(n) for name, n in zip(names, sizes)}, seed, alike)
    streams = {}
    for i in range(len(grid)):
        kept = tuple(v for k, v in grid.cell(i).items() if k not in alike)
        streams.setdefault(kept, set()).add(tuple(grid.rng(i).integers(0, 2**62, 2).tolist()))
    assert all(len(found) == 1 for found in streams.values())
    assert len(set.union(*streams.values())) == len(streams)


def test_a_cell_alone_has_the_dice_that_it_has_in_the_table(table):
    for i in (0, 7, 13):
        alone = work(GRID.rng(i), **GRID.cell(i))
        assert alone["cost"] == table.columns["cost"][i]


def test_a_failure_is_noted_and_the_others_go_on(table):
    assert table.failed == {8: "ArithmeticError: a fails", 18: "ArithmeticError: b fails"}
    assert table.columns["cost"][8] is None and None not in table.columns["cost"][9:18]
    assert "2 failed, the first at policy=a, load=0.9, seed=3" in table.summary()
    assert list(table.to_frame()["error"].dropna().index) == [8, 18]
    counts = table.over("seed", "cost")["count"]
    assert counts.to_dict() == {(p, x): 5 - (x == 0.9) for p in "ab" for x in (0.5, 0.9)}
    with pytest.raises(RuntimeError, match="cell 8.*a fails"):
        fill(work, GRID, errors="raise")


def test_means_are_those_of_a_loop(table):
    over = table.over(["seed", "policy"], "cost")
    for load in (0.5, 0.9):
        some = [
            c
            for i, c in enumerate(table.columns["cost"])
            if GRID.cell(i)["load"] == load and c is not None
        ]
        row = over.loc[load]
        assert np.isclose(row["mean"], np.mean(some)) and row["count"] == len(some)
        assert (row["least"], row["largest"]) == (min(some), max(some))
    assert table.over(list(GRID.axes), "cost")["count"].tolist() == [18]


def test_what_is_no_number_has_no_mean(table):
    odd = table.over(["policy", "load"], "odd")
    # NaN is left out, and the count says so; an infinity is a number
    assert odd.loc[0, "count"] == 0 and odd.loc[1, "mean"] == np.inf == odd.loc[1, "largest"]
    with pytest.raises(ValueError, match="column name holds 'aé'"):
        table.over("seed", "name")
    with pytest.raises(ValueError, match="column"):
        table.over("seed", "none")
    with pytest.raises(ValueError, match="axis"):
        table.over("cost", "cost")


def test_processes_give_the_same_table(table, tmp_path):
    assert fill(work, GRID, tmp_path / "w", workers=2) == table
    assert fill(work, GRID, tmp_path / "one") == table
    saved = [(tmp_path / name / "table.json").read_bytes() for name in ("w", "one")]
    assert saved[0] == saved[1] and SweepTable.load(tmp_path / "w" / "table.json") == table


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_goes_on_wherever_its_file_was_cut(table, tmp_path, workers):
    fill(work, GRID, tmp_path)
    whole = (tmp_path / "cells.jsonl").read_bytes()
    final = (tmp_path / "table.json").read_bytes()
    first = whole.index(b"\n") + 1
    step = 1 if os.environ.get("SERVING_OR_LONG") else 97
    for cut in range(first, len(whole), step if workers == 1 else 10**9):
        (tmp_path / "cells.jsonl").write_bytes(whole[:cut])
        assert fill(work, GRID, tmp_path, workers=workers) == table
        assert (tmp_path / "table.json").read_bytes() == final


def test_only_what_is_missing_is_computed(tmp_path):
    done = []

    def counted(rng, seed):
        done.append(seed)
        if seed == 2 and len(done) < 5:
            raise ValueError("not yet")
        return {"x": seed}

    grid = Grid({"seed": range(4)})
    assert fill(counted, grid, tmp_path).failed.keys() == {2}
    assert not fill(counted, grid, tmp_path).failed
    assert fill(counted, grid, tmp_path).columns["x"] == (0, 1, 2, 3)
    assert done == [0, 1, 2, 3, 2]


KILLED = """
import signal, sys
# also where the tests run in the background of a shell, which ignores it
signal.signal(signal.SIGINT, signal.default_int_handler)
from serving_or.tools.sweeps import Grid, fill
from tests.tools.test_sweeps import slow
fill(slow, Grid({"seed": range(30)}), sys.argv[1], workers=int(sys.argv[2]))
"""


def lines(folder):
    try:
        return (folder / "cells.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def gone(group):
    "Whether a group of processes has ended."
    for _ in range(600):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_run_goes_on_and_nobody_works_after_it(tmp_path, kind, workers):
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(workers)]
    run = subprocess.Popen(
        command,
        cwd=ROOT,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        began = time.monotonic()
        while lines(tmp_path) < 4 and time.monotonic() < began + 100:
            time.sleep(0.01)
        run.send_signal(kind)
        assert run.wait(60) != 0
        # its workers end, too
        assert gone(run.pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
    finished = lines(tmp_path)
    assert 4 <= finished < 31 and not (tmp_path / "table.json").exists()
    head = (tmp_path / "cells.jsonl").read_bytes()
    head = head[: head.rindex(b"\n") + 1]
    again = fill(slow, Grid({"seed": range(30)}), tmp_path)
    assert again == fill(slow, Grid({"seed": range(30)}))
    assert (tmp_path / "cells.jsonl").read_bytes().startswith(head)


def suicide(rng, seed, folder):
    "Ends its own process, once, as a machine without memory does."
    mark = os.path.join(folder, f"{seed}")
    if seed == 3 and not os.path.exists(mark):
        open(mark, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"x": rng.random()}


def always(rng, seed):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_dies_takes_no_cell_along(tmp_path):
    grid = Grid({"seed": range(8), "folder": [str(tmp_path)]})
    found = fill(suicide, grid, workers=2)
    assert not found.failed and (tmp_path / "3").exists()
    assert found == fill(suicide, grid)
    with pytest.raises(RuntimeError, match="ended from outside"):
        fill(always, Grid({"seed": range(3)}), workers=2)


@pytest.mark.parametrize("room, least", [(700, 2), (100, 0)])
def test_a_full_disk_loses_nothing_that_was_finished(tmp_path, monkeypatch, room, least):
    real, left = os.write, [room]

    def full(file, data):
        "Takes a few bytes more, then none."
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        some = data[: left[0]]
        left[0] -= len(some)
        return real(file, some)

    grid = Grid({"policy": ["a"], "load": [0.5], "seed": range(5)})
    monkeypatch.setattr(sweeps.os, "write", full)
    with pytest.raises(OSError, match=r"No space left.*cells\.jsonl") as caught:
        fill(work, grid, tmp_path)
    assert caught.value.errno == errno.ENOSPC
    monkeypatch.undo()
    data = (tmp_path / "cells.jsonl").read_bytes()
    assert data.endswith(b"\n" * min(1, least)) and least <= data.count(b"\n") < 6
    assert all(json.loads(line) for line in data.splitlines())
    assert fill(work, grid, tmp_path) == fill(work, grid)
    assert (tmp_path / "cells.jsonl").read_bytes().startswith(data)


def test_a_disk_that_is_really_full(tmp_path):
    "As far as this system lets a process limit its files."
    program = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (900, 900));"
        "from serving_or.tools.sweeps import fill; from tests.tools.test_sweeps import GRID, work;"
        "fill(work, GRID, sys.argv[1])"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 1 and "OSError: [Errno 27]" in run.stderr
    data = (tmp_path / "cells.jsonl").read_bytes()
    assert data.endswith(b"\n") and 2 <= data.count(b"\n") < 21 and len(data) <= 900
    assert fill(work, GRID, tmp_path) == fill(work, GRID)


@pytest.mark.parametrize("text", ["mine, without an end", "{ ", "mine\nand mine\n", "\n"])
def test_a_file_of_somebody_else_is_left_as_it_is(tmp_path, text):
    (tmp_path / "cells.jsonl").write_text(text)
    with pytest.raises(ValueError, match="line 1"):
        fill(other, GRID, tmp_path)
    assert (tmp_path / "cells.jsonl").read_text() == text


def test_a_first_line_that_was_cut_is_written_again(tmp_path):
    fill(other, GRID, tmp_path)
    data = (tmp_path / "cells.jsonl").read_bytes()
    first = data.index(b"\n") + 1
    for cut in (0, 10, first - 1, first):
        (tmp_path / "cells.jsonl").write_bytes(data[:cut])
        fill(other, GRID, tmp_path)
        assert (tmp_path / "cells.jsonl").read_bytes() == data


def test_runs_that_begin_together_do_not_lose_each_others_cells(tmp_path):
    # a second one that looks before the first has written anything meets the lock all the same
    from threading import Barrier, Thread

    told, start, found = sweeps._told(other, GRID), Barrier(4), []

    def begin():
        start.wait()
        try:
            with sweeps._Finished(tmp_path, told, len(GRID)) as kept:
                time.sleep(0.3)
                kept.add(0, ("values", {"cost": 1.0}))
                found.append(kept.path.read_bytes().count(b"\n"))
        except OSError as error:
            found.append(str(error))

    threads = [Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found.count(2) == 1 and sum("another run" in str(x) for x in found) == 3
    assert lines(tmp_path) == 2


def test_an_error_ends_the_workers(tmp_path):
    from joblib.externals.loky.process_executor import ProcessPoolExecutor

    made, real = [], ProcessPoolExecutor.__init__

    def noted(self, *args, **kwargs):
        made.append(self)
        real(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProcessPoolExecutor, "__init__", noted)
        # the error is kept, and with it the frames it went through
        with pytest.raises(RuntimeError, match="cell 0") as caught:
            fill(broken, Grid({"seed": range(50)}), tmp_path, workers=2, errors="raise")
    assert caught.value.__traceback__ is not None and made
    assert not any(
        process.is_alive() for pool in made for process in (pool._processes or {}).values()
    )
    assert lines(tmp_path) < 20


def broken(rng, seed):
    "Fails at once, or takes its time."
    if seed == 0:
        raise ArithmeticError("no")
    time.sleep(0.5)
    return {"x": 1}


def other(rng, policy, load, seed):
    return {"cost": 1.0}


def test_a_folder_of_another_sweep_is_refused(tmp_path):
    fill(work, GRID, tmp_path)
    before = (tmp_path / "cells.jsonl").read_bytes()
    changed = {
        "axes": Grid(GRID.axes | {"seed": range(6)}, alike=["policy"]),
        "alike": Grid(GRID.axes),
        "seed": Grid(GRID.axes, 1, ["policy"]),
    }
    for what, grid in changed.items():
        with pytest.raises(ValueError, match=f"another sweep: .*{what}"):
            fill(work, grid, tmp_path)
    # the same labels, in another order of axes
    turned = {k: GRID.axes[k] for k in ("load", "policy", "seed")}
    with pytest.raises(ValueError, match="another sweep"):
        fill(work, Grid(turned, alike=["policy"]), tmp_path)
    with pytest.raises(ValueError, match="function, the function's source"):
        fill(other, GRID, tmp_path)
    assert (tmp_path / "cells.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[]",
        '{"cell": 99, "values": {}}',
        '{"cell": -1, "values": {}}',
        '{"cell": 1, "values": []}',
        '{"cell": 1, "values": {"x": [1]}}',
        '{"cell": 1, "values": {"x": {"float": "1"}}}',
        '{"cell": 1, "values": {"x": 1, "x": 2}}',
        '{"cell": 1, "error": 5}',
        '{"cell": 1, "values": {}, "more": 1}',
        "[" * 100_000,
        '{"cell": 1, "values": {"x": 1e999}}',
    ],
)
def test_a_line_that_no_sweep_wrote_is_refused_with_its_number(tmp_path, line):
    fill(other, GRID, tmp_path)
    data = (tmp_path / "cells.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "cells.jsonl").write_text("".join([*data[:3], line + "\n", *data[3:]]))
    before = (tmp_path / "cells.jsonl").read_bytes()
    with pytest.raises(ValueError, match=r"cells\.jsonl, line 4"):
        fill(other, GRID, tmp_path)
    assert (tmp_path / "cells.jsonl").read_bytes() == before


def test_a_folder_is_filled_by_one_run_at_a_time(tmp_path):
    def nested(rng, seed):
        with pytest.raises(OSError, match="another run"):
            fill(other, GRID, tmp_path)
        return {"x": 1}

    grid = Grid({"seed": [0]})
    # the inner run meets the lock before it reads what is there
    assert fill(nested, grid, tmp_path).columns["x"] == (1,)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError):
        fill(other, GRID, tmp_path / "x")


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "x").write_text("mine")
    with pytest.raises(OSError, match="x"):
        fill(other, GRID, tmp_path / "x")
    assert (tmp_path / "x").read_text() == "mine"


@pytest.mark.parametrize(
    "answer, told",
    [
        (5, "must be a dict"),
        ({"x": np.zeros(3)}, "'x' with ndarray"),
        ({"x": "y" * 10_001}, "10000 characters"),
        ({"a b": 1}, "'a b' with int"),
        ({"seed": 1}, "seed, which is an axis"),
        ({"x": 1j}, "'x' with complex"),
        ({f"x{i}": 1 for i in range(1001)}, "at most 1000 names"),
    ],
)
def test_an_answer_that_no_line_holds_is_a_failure(answer, told):
    found = fill(lambda rng, seed: answer, Grid({"seed": [0]}))
    assert told in found.failed[0]


def test_texts_that_no_file_holds():
    def surrogate(rng, seed):
        raise ValueError("\ud800")

    assert fill(surrogate, Grid({"seed": [0]})).failed == {0: "ValueError: ?"}


@pytest.mark.parametrize(
    "axes, told",
    [
        ({}, "axes is empty"),
        ({"x": []}, "distinct"),
        ({"x": [1, 1.0]}, "distinct"),
        ({"x": [np.nan]}, "label 'nan'"),
        ({"x": [(1, 2)]}, "label"),
        ({"x": "ab"}, "list of labels"),
        ({"x": 5}, "list of labels"),
        ({"a b": [1]}, "must be a name"),
        ({"error": [1]}, "must be a name"),
        ({"x": range(2000), "y": range(2000)}, "4,000,000 cells"),
        ({"x": range(10**12)}, "labels; at most"),
    ],
)
def test_bad_axes_are_told(axes, told):
    with pytest.raises(ValueError, match=told):
        Grid(axes)


@pytest.mark.parametrize(
    "bad, told",
    [
        ({"workers": 0}, "workers"),
        ({"workers": -2}, "workers"),
        ({"workers": 1.5}, "workers"),
        ({"workers": 2, "scheduler": "tcp://127.0.0.1:1"}, "beside a scheduler"),
        ({"errors": "drop"}, "errors"),
    ],
)
def test_bad_arguments_are_told(bad, told):
    with pytest.raises(ValueError, match=told):
        fill(work, GRID, **bad)
    with pytest.raises(ValueError, match="callable"):
        fill(5, GRID)
    with pytest.raises(ValueError, match="alike"):
        Grid({"x": [1]}, alike=["y"])
    with pytest.raises(ValueError, match="grid"):
        fill(work, {"x": [1]})
    with pytest.raises(ValueError, match="index"):
        GRID.cell(20)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture
def cluster(tmp_path):
    "A scheduler and two workers, as processes of their own on loopback."
    address, processes = f"tcp://127.0.0.1:{free_port()}", []
    environment = os.environ | {"PYTHONPATH": str(ROOT)}

    def start(*arguments):
        command = [sys.executable, "-m", "distributed.cli." + arguments[0], *arguments[1:]]
        with open(tmp_path / f"{len(processes)}.log", "wb") as log:
            run = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
        processes.append(run)

    start("dask_scheduler", "--host", address, "--no-dashboard")
    for name in ("one", "two"):
        # without a nanny, so that the process that is killed is the one that works
        start(
            "dask_worker",
            address,
            "--nthreads",
            "1",
            "--no-nanny",
            "--no-dashboard",
            "--name",
            name,
        )
    yield address, processes[1:]
    for process in processes:
        process.kill()
        process.wait()


def test_a_cluster_gives_the_same_table_though_a_worker_is_killed(cluster, tmp_path):
    pytest.importorskip("distributed")
    from threading import Thread

    address, workers = cluster
    grid, folder = Grid({"seed": range(40)}), tmp_path / "sweep"

    def kill():
        while lines(folder) < 8:
            time.sleep(0.01)
        workers[0].kill()

    killer = Thread(target=kill, daemon=True)
    killer.start()
    found = fill(slow, grid, folder, scheduler=address)
    killer.join(10)
    assert workers[0].wait(10) == -signal.SIGKILL and workers[1].poll() is None
    assert found == fill(lambda rng, seed: {"x": rng.random()}, grid)
    saved = (folder / "table.json").read_bytes()
    assert fill(slow, grid, folder) == found and (folder / "table.json").read_bytes() == saved
    # failures and answers of every kind come through, too
    assert fill(work, GRID, scheduler=address) == fill(work, GRID)


def test_an_answer_that_is_lost_with_its_worker_is_waited_for(monkeypatch):
    "A future that was finished when it was handed out, and is not any more."
    distributed = pytest.importorskip("distributed")

    class Future:
        status = "lost"

        def __init__(self, key, given):
            self.key, self.given = key, given

        def result(self):
            if isinstance(self.given, BaseException):
                raise self.given
            return self.given

        def exception(self):
            return None

        def release(self):
            pass

    class Client:
        loop = None

        def __init__(self, *args, **kwargs):
            pass

        __enter__ = lambda self: self
        __exit__ = lambda self, *_: None

        def map(self, task, todo, key, pure):
            return [Future(k, told.get(i) or task(i)) for k, i in zip(key, todo)]

    monkeypatch.setattr(distributed, "Client", Client)
    monkeypatch.setattr(distributed, "as_completed", lambda futures, loop: reversed(futures))
    grid, told = Grid({"seed": range(3)}), {}
    quick = lambda rng, seed: {"x": rng.random()}
    assert fill(quick, grid, scheduler="tcp://x") == fill(quick, grid)
    told[1] = RuntimeError("three workers died")
    found = fill(quick, grid, scheduler="tcp://x")
    assert "three workers died" in found.failed[1] and len(found.failed) == 1
    told[1] = distributed.CancelledError("cell")
    with pytest.raises(OSError, match="went away"):
        fill(quick, grid, scheduler="tcp://x")


def test_no_scheduler_is_told():
    pytest.importorskip("distributed")
    with pytest.raises(OSError, match="no Dask scheduler answers at"):
        fill(work, GRID, scheduler="nonsense://x")


def test_a_summary_has_the_means_of_the_first_axis(table):
    first, title, *rest = table.summary().splitlines()
    assert first.startswith("20 cells") and title == "mean by policy:" and len(rest) == 2
    for line, policy in zip(rest, "ab"):
        some = table.over(["load", "seed"], "cost").loc[policy, "mean"]
        assert line.startswith(f"  {policy}: cost {some:.6g}, ")
    assert "\n" not in fill(other, Grid({"policy": [1], "load": [2], "seed": [3]})).summary()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_in_the_place_of_the_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "cells.jsonl")
    with pytest.raises(OSError, match="no ordinary file"):
        fill(other, GRID, tmp_path)
