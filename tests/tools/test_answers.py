"""What every answer promises: numbers that agree, arguments that are checked, errors and results
that travel.
"""

import builtins
import copy
import inspect
import json
import logging
import math
import multiprocessing
import os
import pickle
import re
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_or.tools import answers
from serving_or.tools.answers import (
    OPTIMALITY,
    ROUNDING,
    Clock,
    Infeasible,
    NotFound,
    Record,
    Result,
    Scope,
    Status,
    TooLarge,
    choice,
    finite,
    gap,
    labels_of,
    lowered,
    number,
    positions,
    progress,
    ratio,
    seconds,
    whole,
    write_whole,
)

FLOATS = st.floats(allow_nan=False)


@dataclass(frozen=True, eq=False)
class Inner(Record):
    """A record inside of others."""

    loads: np.ndarray = field(repr=False)
    extra: int = 0
    labels: tuple | None = None

    def __post_init__(self):
        self._put(loads=finite(self.loads, "loads"), extra=whole(self.extra, "extra"))
        super().__post_init__()

    @cached_property
    def total(self):
        return self.loads.sum()


@dataclass(frozen=True, eq=False)
class Outer(Result):
    """A result with everything in it."""

    problem: Inner
    value: float
    bound: float = 0.0
    status: Status = Status.FEASIBLE
    scope: Scope = Scope.ALL
    extras: object = None
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, eq=False)
class Computed(Result):
    """A result whose numbers are properties, with a tolerance of its own."""

    costs: np.ndarray
    bounds: np.ndarray
    status: Status = Status.FEASIBLE
    tolerance: float = OPTIMALITY

    def __post_init__(self):
        costs = finite(self.costs, "costs", ndim=1)
        bounds = lowered(finite(self.bounds, "bounds", shape=costs.shape), costs, "bounds")
        self._put(costs=costs, bounds=bounds)
        super().__post_init__()

    @property
    def value(self):
        return float(self.costs[-1])

    @property
    def bound(self):
        return float(self.bounds[-1])


INNER = Inner([[1, 2.5], [0, 3]], 4, labels=["a", 2, ("x", 1.5)])
EXTRAS = [
    None,
    True,
    7,
    2**60,
    -0.0,
    5e-324,
    1.7976931348623157e308,
    np.inf,
    -np.inf,
    np.nan,
    "text \n «ü»",
    ("a", (1, 2.0), ()),
    {"a": 1, 2: np.nan, ("x", 1): (INNER,)},
    {},
    np.zeros((0, 3)),
    np.zeros((2, 0, 3), int),
    np.array(3.5),
    np.array([[1.5, np.nan], [np.inf, -np.inf]]),
    np.array([1, 2, 2**53]),
    np.array([True, False]),
    np.array(["a", "bc"]),
    np.arange(6.0).reshape(2, 3)[:, ::2],
    INNER,
    [INNER, (INNER, {"deep": INNER})],
    Status.OPTIMAL,
]


def outer(extras=None, **changes):
    return Outer(INNER, 80.0, 60.0, extras=extras, **changes)


# --- value, bound, gap, ratio ---


@pytest.mark.parametrize(
    "value, bound, share, times",
    [
        (80, 60, 0.25, 80 / 60),
        (0, 0, 0, 1),
        (5, 0, 1, np.inf),
        (0, -1, np.inf, np.inf),
        (5, -5, 2, np.inf),
        (5, -np.inf, np.inf, np.inf),
        (np.inf, 5, 1, np.inf),
        (np.inf, np.inf, 0, 1),
        (1, 1 + 1e-12, 0, 1),
        (1e-320, 2e-320, 0, 1),
        (1, 2, -1, 0.5),
        (1e308, -1e308, np.inf, np.inf),
    ],
)
def test_gap_and_ratio(value, bound, share, times):
    assert gap(value, bound) == share and ratio(value, bound) == times
    assert type(gap(np.float64(value), bound)) is float


@given(FLOATS, FLOATS)
def test_gap_and_ratio_agree(value, bound):
    value, bound = abs(value), min(abs(bound), abs(value))
    g, r = gap(value, bound), ratio(value, bound)
    assert 0 <= g <= 1 and r >= 1
    if bound > 0 and np.isfinite(value) and r < 1e300:
        assert g == pytest.approx(1 - 1 / r, abs=2e-9)


def test_nan_is_no_number_to_compare():
    for pair in ((np.nan, 1), (1, np.nan)):
        for function in (gap, ratio):
            with pytest.raises(ValueError, match="nan"):
                function(*pair)


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=200))
def test_sums_in_any_order_are_close(terms):
    up, down = np.cumsum(terms)[-1], np.cumsum(terms[::-1])[-1]
    assert gap(min(up, down), max(up, down)) == 0 and lowered(up, down) <= down


def test_lowered():
    assert lowered(1.0, 1.0 - 1e-12) == 1.0 - 1e-12 and type(lowered(1.0, 2.0)) is float
    assert lowered([1, 2], [1, 2 - 1e-12]).tolist() == [1, 2 - 1e-12]
    assert lowered(-np.inf, 3.0) == -np.inf
    with pytest.raises(ValueError, match=r"bounds\[1\] is 2.1; it must be at most the value, 2.0"):
        lowered([0, 2.1], [1, 2], "bounds")
    with pytest.raises(ValueError, match="bound is nan"):
        lowered(np.nan, 1)


# --- what cannot be built ---


@pytest.mark.parametrize(
    "changes, said",
    [
        (dict(bound=90.0), "bound is 90.0; it must be at most the value, 80.0"),
        (dict(bound=80 * (1 + 2 * ROUNDING)), "at most the value"),
        (dict(bound=np.nan), "bound is nan"),
        (dict(bound=None), "bound is None"),
        (dict(bound="60"), "bound is '60'"),
        (dict(value=np.nan), "value is nan"),
        (dict(status="banana"), "status is 'banana'; it must be one of 'optimal'"),
        (dict(status=None), "status is None"),
        (dict(status="optimal"), "gap must be at most 1e-06, not 0.25"),
        (dict(status="optimal", value=np.inf), "gap must be at most"),
        (dict(status="optimal", value=np.inf, bound=np.inf), "gap must be at most"),
        (dict(status="optimal", bound=80.0, scope="placement"), "does not prove"),
        (dict(status="optimal", bound=80.0, scope=Scope.RELAYED), "does not prove"),
        (dict(scope="some"), "scope is 'some'"),
    ],
)
def test_a_result_that_contradicts_itself(changes, said):
    good = dict(problem=INNER, value=80.0, bound=60.0)
    with pytest.raises(ValueError, match=said):
        Outer(**good | changes)


@pytest.mark.parametrize("bounds", [[1, 2, 3], [[1, 2]], [1, np.nan], [1, 2.1], [1, -1], None])
def test_arrays_of_the_wrong_shape_or_content(bounds):
    with pytest.raises(ValueError, match="bounds"):
        Computed([1, 2], bounds)


def test_a_result_of_properties():
    found = Computed([1, 2], [1, 2 * (1 + 1e-12)], "optimal")
    assert found.bound == 2 and found.status is Status.OPTIMAL and found.gap == 0
    with pytest.raises(ValueError, match="gap must be"):
        Computed([1, 2], [1, 1.99], "optimal")
    assert Computed([1, 2], [1, 1.99], "optimal", tolerance=0.01).ratio == 2 / 1.99
    assert outer(status="time_limit").status is Status.TIME_LIMIT
    assert outer().scope is Scope.ALL and Computed([1], [1]).scope is Scope.ALL
    assert "gap 25.00% (feasible)" in outer().summary()
    assert f"{Status.OPTIMAL}" == "optimal"


# --- frozen, equal, hashed, sent ---


def test_nothing_is_shared():
    mine = np.array([[1.0, 2.0]])
    record = Inner(mine, 1)
    frozen = mine.view()
    frozen.flags.writeable = False
    other = Outer(record, 3.0, extras={"a": frozen, "list": [mine]})
    mine += 1
    assert record.loads.tolist() == [[1, 2]] == other.extras["a"].tolist()
    assert other.extras["list"][0].tolist() == [[1, 2]]
    for array in (record.loads, other.extras["a"], other.extras["list"][0]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(AttributeError):
        record.extra = 3
    assert Outer(record, 3.0).problem is record


def test_equal_by_value():
    same = Inner([[1, 2.5], [0, 3]], 4.0, labels=("a", 2, ("x", 1.5)))
    assert INNER == same and hash(INNER) == hash(same)
    assert INNER != replace(same, extra=5) and INNER != "text" and INNER != 3
    assert outer() == replace(outer(), seconds=3.0) and hash(outer()) == hash(outer(seconds=2.0))
    for i, a in enumerate(EXTRAS):
        for j, b in enumerate(EXTRAS):
            if i == j:
                assert outer(a) == outer(b) and hash(outer(a)) == hash(outer(copy.deepcopy(b)))
            elif type(a) is not type(b):
                assert (outer(a) == outer(b)) in (False, True)
    assert outer(np.array([0.0, 1.0])) == outer(np.array([-0.0, 1.0]))
    assert hash(outer(np.array([0.0, 1.0]))) == hash(outer(np.array([False, True])))
    assert outer(np.zeros(3)) != outer(np.zeros((3, 1))) and outer(np.zeros(1)) != outer(0.0)


def check_state(record):
    """Run in another process: arrays arrive read-only."""
    arrays = [v for v in vars(record).values() if isinstance(v, np.ndarray)]
    assert not any(a.flags.writeable for a in arrays)
    return record


@pytest.mark.parametrize("extras", EXTRAS, ids=str)
def test_copies_and_pickles(extras):
    record = outer(extras)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(record, protocol)) == record
    for twin in (copy.copy(record), copy.deepcopy(record), replace(record)):
        assert twin == record and hash(twin) == hash(record)
        assert isinstance(twin.problem, Inner) and not twin.problem.loads.flags.writeable


def test_what_is_cached_does_not_travel():
    record = Inner([1, 2])
    assert record.total == 3 and "total" in vars(record)
    twin = pickle.loads(pickle.dumps(record))
    assert "total" not in vars(twin) and twin.total == 3


ERRORS = [
    Infeasible("short", blocks_short=2, largest=[1, 2]),
    NotFound("gave up", served=1, unserved=(2,), bound=3.5),
    TooLarge("many", size=10, limit=3),
]


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_errors_travel(error):
    twin = pickle.loads(pickle.dumps(error))
    assert type(twin) is type(error) and str(twin) == str(error) and vars(twin) == vars(error)
    bare = type(error)("only this")
    assert str(bare) == "only this" and set(vars(bare).values()) == {None}


def fail(error):
    raise error


def test_through_a_process_pool():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        records = [outer(extras) for extras in EXTRAS] + [Computed([1, 2], [1, 2], "optimal")]
        assert list(pool.map(check_state, records)) == records
        for error in ERRORS:
            with pytest.raises(type(error), match=str(error)) as caught:
                pool.submit(fail, error).result()
            assert {k: getattr(caught.value, k) for k in vars(error)} == vars(error)


# --- files ---


@pytest.mark.parametrize("extras", EXTRAS, ids=str)
def test_saved_and_loaded(extras, tmp_path):
    record = outer(extras, seconds=1.25)
    record.save(tmp_path / "a.json")
    assert record.to_json() == (tmp_path / "a.json").read_text(encoding="utf-8")
    twin = Outer.load(tmp_path / "a.json")
    assert twin == record == Record.load(str(tmp_path / "a.json")) and twin.seconds == 1.25
    assert type(twin.problem) is Inner and type(twin.problem.extra) is int
    if isinstance(record.extras, np.ndarray):
        assert twin.extras.dtype.kind == record.extras.dtype.kind
        assert not twin.extras.flags.writeable
    elif not isinstance(extras, Status):
        assert type(twin.extras) is type(record.extras)
    # plain JSON, for whoever reads it with something else
    plain = json.loads((tmp_path / "a.json").read_text("utf-8"), parse_constant=fail)
    assert plain["type"].endswith("Outer") and plain["value"] == 80.0
    twin.save(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


@given(st.lists(st.floats(), max_size=8), st.floats(allow_nan=False), st.integers(-(2**53), 2**53))
def test_numbers_survive_a_file(tmp_path_factory, numbers, scalar, integer):
    record = outer((np.array(numbers), scalar, integer, np.array([integer])))
    path = tmp_path_factory.mktemp("file") / "a.json"
    record.save(path)
    assert Outer.load(path) == record
    assert [type(v) for v in Outer.load(path).extras] == [np.ndarray, float, int, np.ndarray]


def test_what_has_no_words_in_a_file_is_refused(tmp_path):
    for odd in (lambda: 0, object(), {1, 2}, 1 + 2j, np.array([1j]), np.array([None]), "\ud800"):
        with pytest.raises(ValueError):
            outer(odd).save(tmp_path / "a.json")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda t: t[:-20], "line"),
        (lambda t: t.replace('"loads"', '"lods"'), "has no field lods"),
        (lambda t: t.replace("2.5", "-2.5"), r"loads\[0, 1\] is -2.5"),
        (lambda t: t.replace("2.5", '"nan"'), r"loads\[0, 1\] is nan"),
        (lambda t: t.replace("2.5", "NaN"), "NaN is not JSON"),
        (lambda t: t.replace("2.5", "null"), "an element of an array is None"),
        (lambda t: t.replace("2.5", "true"), "an element of an array is True"),
        (lambda t: t.replace("2.5", "1e999"), "larger than a computer"),
        (lambda t: t.replace("2.5", "9" * 5000), "digits"),
        (lambda t: t.replace('"bound": 60.0', '"bound": 90.0'), "at most the value"),
        (lambda t: t.replace('"bound": 60.0', '"bound": {"a": 1}'), "keys a is not known"),
        (lambda t: t.replace('"bound": 60.0', '"bound": {"float": "12"}'), "keys float"),
        (lambda t: t.replace('"bound": 60.0', '"bound": 60.0, "bound": 60.0'), "occurs twice"),
        (lambda t: t.replace('"feasible"', '"optimal"'), "gap must be"),
        (lambda t: t.replace("Inner", "os.system"), "type is .*os.system.*; the types known here"),
        (lambda t: t.replace("[2, 2]", "[2, 3]"), "reshape"),
        (lambda t: t.replace("[2, 2]", "[2, -1]"), "shape is -1"),
        (lambda t: t.replace("[2, 2]", "[1e300]"), "shape is 1e"),
        (lambda t: t.replace('"array": "float"', '"array": "object"'), "kind 'object'"),
        (lambda t: t.replace('"array": "float"', '"array": ["float"]'), "kind"),
        (lambda t: t.replace('"value": 80.0,', ""), "value"),
        (lambda t: "[" * 100_000, "too deep"),
        (lambda t: "3", "holds a int, not a"),
        (lambda t: "", "line 1"),
        (lambda t: t.replace('"extras": null', '"extras": {"dict": 3}'), "int"),
        (lambda t: t.replace('"extras": null', '"extras": {"dict": [[[{}], 2]]}'), "keys none"),
        (lambda t: t.replace('"extras": null', '"extras": {"type": 3}'), "type is 3"),
    ],
)
def test_a_file_that_was_edited(change, said, tmp_path):
    path = tmp_path / "a.json"
    outer().save(path)
    path.write_text(change(path.read_text()))
    with pytest.raises(ValueError, match=f"(?i)a.json.*{said}"):
        Outer.load(path)


def test_the_wrong_file(tmp_path):
    INNER.save(tmp_path / "inner.json")
    with pytest.raises(ValueError, match="holds a .*Inner, not a .*Outer"):
        Outer.load(tmp_path / "inner.json")
    (tmp_path / "latin.json").write_bytes(b'"\xff"')
    with pytest.raises(ValueError, match="utf-8"):
        Outer.load(tmp_path / "latin.json")
    with pytest.raises(FileNotFoundError):
        Outer.load(tmp_path / "none.json")
    with pytest.raises(FileNotFoundError):
        INNER.save(tmp_path / "no folder" / "a.json")


@pytest.mark.parametrize("step", ["open", "fsync", "replace", "write"])
def test_written_whole_or_not_at_all(step, tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    write_whole(path, "old")

    def broken(*arguments, **keywords):
        raise OSError("no space left")

    class Half:
        def __init__(self, file):
            self.file = file

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

        def write(self, data):
            self.file.write(data[:2])
            raise OSError("no space left")

    with monkeypatch.context() as patch:
        if step == "open":
            patch.setattr(builtins, "open", broken)
        elif step == "write":
            original = open
            patch.setattr(builtins, "open", lambda *a, **k: Half(original(*a, **k)))
        else:
            patch.setattr(os, step, broken)
        with pytest.raises(OSError, match="no space"):
            write_whole(path, "new text")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a.txt"]


def test_a_folder_or_a_device_is_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        with pytest.raises(OSError, match="it must be an ordinary file"):
            write_whole(path, "text")
    assert pipe.is_fifo() and os.listdir(tmp_path) == ["pipe"]
    with pytest.raises(FileNotFoundError) as caught:
        write_whole(tmp_path / "none" / "a.txt", "text")
    assert caught.value.filename == str(tmp_path / "none" / "a.txt")


def test_a_written_file_is_an_ordinary_one(tmp_path):
    path, link = tmp_path / "a.txt", tmp_path / "link.txt"
    umask = os.umask(0o022)
    try:
        write_whole(path, "ü\n")
    finally:
        os.umask(umask)
    assert path.read_bytes() == "ü\n".encode() and path.stat().st_mode & 0o777 == 0o644
    path.chmod(0o600)
    link.symlink_to(path)
    write_whole(str(link), "new")
    assert link.is_symlink() and path.read_text() == "new" and path.stat().st_mode & 0o777 == 0o600


# --- arguments ---

NOT_NUMBERS = [None, "3", b"3", True, np.True_, np.nan, 3 + 0j, [3], {}, object(), np.ma.masked]
NOT_NUMBERS += [np.array([3]), float, Decimal("nan"), Decimal("snan"), np.float64("nan"), pd.NA]
NOT_NUMBERS += [np.datetime64("2026-01-01"), np.timedelta64(3, "s"), np.array("3"), np.array(True)]


def unaddressed(value):
    """What an object looks like, the same in every worker."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


@pytest.mark.parametrize("value", NOT_NUMBERS, ids=unaddressed)
def test_what_is_no_number(value):
    for check in (number, whole, seconds):
        if not (check is seconds and value is None):
            with pytest.raises(ValueError, match=r"^n is .*; it must be a "):
                check(value, "n")
    with pytest.raises(ValueError, match="^n"):
        finite([1.0, value], "n", ndim=1)


def test_numbers():
    for three in (3, 3.0, np.int8(3), np.float32(3), np.array(3), Decimal(3), Fraction(6, 2)):
        assert whole(three, "n") == 3 and type(whole(three, "n")) is int
        assert number(three, "n") == 3 and type(number(three, "n")) is float
    for value in (-1, 2.5, 1e300, np.inf, 10**400, -(10**400), 2**53 + 1, 5e-324):
        with pytest.raises(ValueError, match="n is .*; it must be a whole number"):
            whole(value, "n")
    assert whole(2**53, "n") == 2**53 and whole(-2, "n", least=-2) == -2
    with pytest.raises(
        ValueError, match="n is 6; it must be a whole number, at least 2, at most 5"
    ):
        whole(6, "n", least=2, most=5)
    for value in (np.inf, -np.inf, 10**400, np.longdouble("1e4000")):
        with pytest.raises(ValueError, match="it must be a finite number"):
            number(value, "n")
    assert number(np.inf, "n", infinite=True) == np.inf and number(5e-324, "n") == 5e-324
    with pytest.raises(ValueError, match="n is 0; it must be a finite number, above 0, at most 1"):
        number(0, "n", above=0, most=1)
    assert seconds(None) == np.inf == seconds(np.inf) and seconds(0) == 0
    with pytest.raises(ValueError, match="time_limit is -0.001; it must be a number, at least 0"):
        seconds(-0.001)


def test_choice():
    assert choice("optimal", "status", Status) is Status.OPTIMAL
    for value in ("optimum", None, 3, ["optimal"], np.array(["optimal"])):
        with pytest.raises(ValueError, match="status is .*; it must be one of 'optimal', 'feas"):
            choice(value, "status", Status)


@pytest.mark.parametrize(
    "values, said",
    [
        ([1, np.nan, np.nan], r"n\[1\] is nan; .*number, at least 0 \(one more such element\)"),
        ([1, -2, -3, -4], r"n\[1\] is -2.0; .* \(2 more such elements\)"),
        ([[1, 2], [3, np.inf]], r"n\[1, 1\] is inf; it must be a finite number"),
        ([1, 1e308 * 10], "inf"),
        ([1, "2"], r"n\[1\] is '2'; it must be a number$"),
        (np.array(["1", "2"]), r"n\[0\] is '1'"),
        ([1, None], r"n\[1\] is None"),
        ([1, 10**400], r"n\[1\] is inf; it must be a finite"),
        ([[1, 2], [3]], "n must be numbers in rows of equal length"),
        ([True, False], r"n\[0\] is True"),
        ([[1, 2], (3, False)], r"n\[1, 1\] is False"),
        ([1, np.ma.masked], r"n\[1\] is masked"),
        (np.array([1 + 0j]), r"n\[0\] is \(1\+0j\)"),
        (np.ma.array([1, 2], mask=[False, True]), r"n\[1\] is masked"),
        (np.ma.masked_all((2, 2)), r"n\[0, 0\] is masked"),
        (np.array([np.datetime64("2026-01-01")]), "n"),
        (pd.DataFrame({"a": [1], "b": ["x"]}), r"n\[0, 1\] is 'x'"),
        (pd.Series([1, None], dtype="Float64"), r"n\[1\] is nan"),
        (pd.Series(["a"], dtype="category"), r"n\[0\] is 'a'"),
        (iter([1, 2]), "n is <list_iterator"),
        ({1: 2}, "n is {1: 2}"),
        (None, "n is None"),
        (object(), "n is <object"),
        (np.array([(1, 2)], dtype="i,i"), r"n\[0\]"),
        (np.array([np.longdouble("1e4000")]), "inf"),
    ],
    ids=unaddressed,
)
def test_what_is_no_array_of_numbers(values, said):
    with pytest.raises(ValueError, match=said):
        finite(values, "n")


@pytest.mark.parametrize("kind", ["int8", "uint64", "float16", "float32", "float64", "longdouble"])
def test_arrays(kind):
    mine = np.array([[0, 1], [2, 3]], kind)[::-1]
    mine.flags.writeable = False
    for values in (mine, mine.tolist(), pd.DataFrame(mine), np.ma.array(mine), tuple(mine)):
        checked = finite(values, "n", shape=(2, None), ndim=2)
        assert checked.tolist() == [[2, 3], [0, 1]] and checked.dtype == np.float64
        assert not checked.flags.writeable and not np.shares_memory(checked, mine)
        assert type(checked) is np.ndarray and checked.flags.c_contiguous
        assert finite(values, "n", whole=True).dtype == np.intp
    assert finite([], "n").shape == (0,) and finite(3, "n").shape == ()
    assert finite(np.zeros((0, 4), object), "n").shape == (0, 4)
    assert finite([np.inf, 5e-324], "n", infinite=True).tolist() == [np.inf, 5e-324]
    assert finite([-np.inf], "n", infinite=True, least=-np.inf).tolist() == [-np.inf]
    assert finite([Fraction(1, 2), Decimal("2.5")], "n").tolist() == [0.5, 2.5]
    assert finite(pd.Series([1, 2], dtype="Int64"), "n", whole=True).tolist() == [1, 2]


def test_a_list_of_itself():
    loop = [1]
    loop.append(loop)
    with pytest.raises(ValueError, match="n must be numbers in rows"):
        finite(loop, "n")


def test_shapes_and_whole_numbers():
    with pytest.raises(ValueError, match=r"n has shape \(2,\); it must have shape \(3,\)"):
        finite([1, 2], "n", shape=(3,))
    with pytest.raises(ValueError, match=r"n has shape \(2,\); it must have shape \(any, 2\)"):
        finite([1, 2], "n", shape=(None, 2))
    with pytest.raises(ValueError, match=r"n has shape \(2,\); it must have 2 dimensions"):
        finite([1, 2], "n", ndim=2)
    for values in ([2.7], [-1], [1e19], [2**53 + 2.0], [np.inf]):
        with pytest.raises(
            ValueError, match=r"n\[0\] is .*; it must be a whole number, at least 0"
        ):
            finite(values, "n", whole=True)


def test_positions():
    assert positions([2, 0], "lost", 3).tolist() == [2, 0]
    assert positions([], "lost", 3).tolist() == [] and positions([], "lost", 0).size == 0
    for mask in (
        [True, False, True],
        np.array([True, False, True]),
        pd.Series([True, False, True]),
    ):
        assert positions(mask, "lost", 3).tolist() == [0, 2]
    for wrong, said in [
        ([3], r"lost\[0\] is 3; it must be a position, at least 0 and below 3"),
        ([0, -1], r"lost\[1\] is -1.0"),
        ([0, 1, 0], r"lost\[2\] is 0; it must be a position that occurs once"),
        ([0.5], r"lost\[0\] is 0.5"),
        ([True, False], r"lost has shape \(2,\); it must have shape \(3,\)"),
        (1, "lost has shape"),
        ([[1]], "lost has shape"),
        ("0", "lost is '0'"),
        (None, "lost is None"),
    ]:
        with pytest.raises(ValueError, match=said):
            positions(wrong, "lost", 3)


EXTREME = [np.nan, np.inf, -np.inf, -1, 0, 5e-324, 1e308, -1e308, 2**63, 10**400, 1j, "x", None]
EXTREME += [True, b"", [], (), {}, np.int8(-128), np.array([]), np.ma.masked, pd.NA, Status.OPTIMAL]


@given(st.lists(st.sampled_from(EXTREME), max_size=4), st.booleans(), st.booleans())
def test_only_the_documented_error(values, infinite, integers):
    before = copy.deepcopy(values)
    calls = [lambda: finite(values, "n", infinite=infinite, whole=integers, least=-np.inf)]
    calls += [lambda: positions(values, "n", 3), lambda: finite(np.array(values, object), "n")]
    calls += [lambda v=v: f(v, "n") for v in values for f in (number, whole, seconds)]
    for call in calls:
        try:
            call()
        except ValueError as error:
            assert str(error).startswith("n") and len(str(error)) < 200
    assert repr(values) == repr(before)


def test_labels():
    frame = pd.DataFrame(np.ones((2, 2)), index=["a", "b"], columns=[3, 4.5])
    assert labels_of(frame, 0) == ("a", "b") and labels_of(frame, 1) == (3, 4.5)
    assert labels_of(frame["a":], 0) == ("a", "b") and labels_of(frame[3], 0) == ("a", "b")
    assert labels_of(frame[3], 1) is None
    for plain in (pd.DataFrame([[1]]), pd.Series([1]), np.ones(2), [1, 2], None, 3):
        assert labels_of(plain, 0) is None
    assert labels_of(pd.Series([1, 2], index=[1, 2])[1:], 0) == (2,)
    days = pd.Series([1], index=pd.to_datetime(["2026-01-02"]))
    assert labels_of(days, 0) == ("2026-01-02 00:00:00",)
    pairs = pd.MultiIndex.from_tuples([("x", 1), ("y", 2)])
    assert labels_of(pd.Series([1, 2], index=pairs), 0) == (("x", 1), ("y", 2))
    assert Inner([1, 2], labels=labels_of(frame, 0)).labels == ("a", "b")


# --- time, progress, log ---


def test_clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    clock = Clock(2)
    now[0] += 0.5
    assert clock.spent() == 0.5 and clock.left() == 1.5 and not clock.over() and clock.limit == 2
    now[0] += 5
    assert clock.left() == 0 and clock.over()
    assert Clock(0).over() and Clock().left() == math.inf and not Clock(None).over()
    for wrong in (np.nan, -1, "3", True):
        with pytest.raises(ValueError, match="time_limit is"):
            Clock(wrong)


def test_progress_is_one_line_or_nothing(capfd):
    with progress(False, "sweep", 60) as line:
        line.show(80.0, 60.0)
    assert capfd.readouterr() == ("", "")
    with progress(True, "sweep", time_limit=60) as line:
        for bound in range(300):
            line.show(400.0, float(bound))
    out, err = capfd.readouterr()
    assert out == "" and err.count("\n") == 1 and err.endswith("\n")
    last = err.rstrip("\n").split("\r")[-1]
    assert last.rstrip().startswith("sweep: 0.") and " of 60 s" in last
    assert "value 400, bound 299, gap 25.25%" in last
    with pytest.raises(ZeroDivisionError), progress(True, "sweep") as line:
        line.show(value=1.0)
        raise ZeroDivisionError
    assert capfd.readouterr().err.count("\n") == 1


def test_the_logger_is_silent(capfd):
    assert answers.log.name == "serving_or"
    answers.log.warning("nobody listens")
    assert capfd.readouterr() == ("", "")
    assert any(isinstance(h, logging.NullHandler) for h in answers.log.handlers)


def test_fields_of_the_examples_are_covered():
    assert {f.name for f in fields(outer())} >= {"value", "bound", "status", "scope"}


@answers.door
def opened(box: answers.Record | None, other: answers.Result = None, number: int = 3) -> int:
    "A door with three arguments."
    return number


def test_a_door_tells_what_is_no_record():
    assert opened(None) == opened(box=None, number=3) == 3
    for arguments, words in (
        (dict(box=7), "box is of type int; it must be a Record or None"),
        (dict(box=None, other=[1]), "other is of type list; it must be a Result"),
    ):
        with pytest.raises(ValueError) as caught:
            opened(**arguments)
        assert str(caught.value) == words
    with pytest.raises(TypeError, match="missing"):
        opened()
    assert opened.__name__ == "opened" and next(iter(inspect.signature(opened).parameters)) == "box"


def test_a_bound_is_above_by_rounding_or_it_is_wrong():
    assert gap(80, 80 * (1 + ROUNDING / 2)) == 0 and ratio(80, 80 * (1 + ROUNDING / 2)) == 1
    assert gap(80, 80 * (1 + 2 * ROUNDING)) < 0 and ratio(80, 80 * (1 + 2 * ROUNDING)) < 1
