"""Files of numbers: each format read back, each lie refused, and nothing that is not documented."""

import io
import json
import os
import pickle
import struct
import sys
import time
import types
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from serving_or.tools import array_files
from serving_or.tools.array_files import (
    Lines,
    from_torch,
    keys_of,
    path_of,
    read_arrays,
    read_folder,
    read_npy,
    room_for,
    whole_numbers,
)
from tests.long import cases
from tests.tools.hostile import HOSTILE, RANDOM, npy_file, safetensors_file, spoiled

ARRAYS = hnp.arrays(
    st.sampled_from([np.uint8, np.int16, np.int64, np.uint64, np.float16, np.float32, np.float64]),
    hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
)


def held(folder, data):
    (folder / "file").write_bytes(data)
    return read_arrays(folder / "file")


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b, equal_nan=True)


# What is written is read back


@settings(max_examples=cases(2000, 60))
@given(ARRAYS, st.booleans())
def test_arrays_of_numpy(tmp_path_factory, x, turned):
    folder = tmp_path_factory.getbasetemp()
    x = np.asfortranarray(x) if turned else x
    for save, told in ((np.save, None), (np.savez, "a"), (np.savez_compressed, "a")):
        stream = io.BytesIO()
        save(stream, x) if told is None else save(stream, a=x, b=x[None])
        read = held(folder, stream.getvalue())
        assert same(read if told is None else read[told], x)
        assert told is None or (set(read) == {"a", "b"} and same(read["b"], x[None]))


@settings(max_examples=cases(2000, 60))
@given(
    st.dictionaries(
        st.text(max_size=5).filter(lambda key: key != "__metadata__"),
        hnp.arrays(
            st.sampled_from([np.int32, np.int64, np.float32]),
            hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
        ),
        max_size=3,
    )
)
def test_arrays_of_safetensors(tmp_path_factory, arrays):
    read = held(tmp_path_factory.getbasetemp(), safetensors_file(arrays))
    assert set(read) == set(arrays) and all(same(read[key], x) for key, x in arrays.items())


@settings(max_examples=cases(1000, 60))
@given(
    hnp.arrays(
        np.int64, st.tuples(*[st.integers(1, 4)] * 2), elements=st.integers(-(2**40), 2**40)
    ),
    st.sampled_from([",", ";", "\t", " ", "   ", ", "]),
    st.sampled_from(["\n", "\r\n", "\n\n"]),
    st.booleans(),
)
def test_tables(tmp_path_factory, x, divider, end, names):
    rows = [divider.join(map(str, row)) for row in x.tolist()]
    rows = [divider.join("abcd"[: x.shape[1]]), *rows] if names else rows
    text = end.join(rows) + end
    for mark in ("", "\ufeff"):
        assert same(held(tmp_path_factory.getbasetemp(), (mark + text).encode()), x)


def test_texts(tmp_path):
    assert held(tmp_path, b'{"a": [1.5, 2]}') == {"a": [1.5, 2]}
    assert held(tmp_path, b'{"a": 1}\n\n{"a": 2}\r\n') == [{"a": 1}, {"a": 2}]
    assert held(tmp_path, b'{\n"a": {}\n}') == {"a": {}}
    assert held(tmp_path, b'{"a": {"b": 1}\n, "c": 2}') == {"a": {"b": 1}, "c": 2}
    assert held(tmp_path, b"# by hand\n---\na: [1, 2]\n") == {"a": [1, 2]}
    assert held(tmp_path, b"# x y\n1 2\n3 4.5\n").tolist() == [[1, 2], [3, 4.5]]
    lines = held(tmp_path, b"1\t2\t\t0.5\t0.5\n\n3\t4\t\t0.1\t0.2\n")
    assert type(lines) is Lines and len(lines) == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("1,2\n3", "different lengths"),
        ("1,nan", "no number"),
        ("1,1e999", "no number"),
        ("1_0,2", "no number"),
        ("1,\u0663", "no number"),
        ("1,5;2,5", "no number"),
        ("1,,2", "no number"),
        ("a,b", "no rows of numbers"),
        (",a\n0,1\n1,2", "without a name"),
        ("# only a remark", "no rows of numbers"),
        ("a: 1\nb: 2\na: 3", "stands here again"),
        ('{"a": 1}\n{"a": 1, "a": 2}', "line 2"),
        ('{"a": 1e999}', "larger than"),
        ('{"a": -Infinity}', "no"),
        ('{"a": 1} x', "cannot be read"),
    ],
)
def test_texts_that_are_refused(tmp_path, text, told):
    with pytest.raises(ValueError, match=told):
        held(tmp_path, text.encode())


def test_numbers_that_floats_do_not_hold_stay_apart(tmp_path):
    x = held(tmp_path, b"9007199254740993 1\n")
    assert x.dtype == float and held(tmp_path, b"9007199254740991 1\n").dtype == np.int64


# Lies


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_read_as_data_or_refused(tmp_path, name):
    began = time.process_time()
    try:
        held(tmp_path, HOSTILE[name])
    except ValueError as error:
        assert 10 < len(str(error)) < 2000
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (npy_file((2,), data=bytes(15)), r"16 bytes; 15 bytes are there"),
        (npy_file((2,), data=bytes(17)), r"16 bytes; 17 bytes are there"),
        (npy_file((10**6, 10**6)), "bytes are there"),
        (npy_file((-1, -2), data=bytes(16)), "must be numbers"),
        (npy_file((1,), "|O", b"\x80\x04N."), "must be numbers"),
        (npy_file((1,), "<c8", bytes(8)), "must be numbers"),
        (npy_file((8,), "|b1", bytes(8)), "must be numbers"),
        (npy_file((1,), "(2,)<i4", bytes(8)), "header|must be numbers"),
        (b"\x93NUMPY\x03\x00", "version"),
        (pickle.dumps(print), "torch"),
        (struct.pack("<Q", 9) + b"{}", "header of 9 bytes and 2"),
        (safetensors_file({"a": np.arange(3)}) + b"x", "no array owns"),
        (safetensors_file({"a": np.arange(3)})[:-1], "24 bytes at 0 to 24"),
        (b" \n", "empty"),
        (b"\xff\xfe1\x00", "UTF-8"),
    ],
)
def test_what_is_said_of_a_lie(tmp_path, data, told):
    with pytest.raises(ValueError, match=told):
        held(tmp_path, data)


def safe(header, body=b""):
    head = json.dumps(header).encode()
    return struct.pack("<Q", len(head)) + head + body


@pytest.mark.parametrize(
    "entries",
    [
        {"a": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}} | {"b": 1},
        {"a": {"dtype": "I64", "shape": [2], "data_offsets": [0, 8]}},
        {"a": {"dtype": "I64", "shape": [1], "data_offsets": [1, 9]}},
        {"a": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}},
        {"a": {"dtype": "I64", "shape": [-1], "data_offsets": [0, 8]}},
        {k: {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]} for k in "ab"},
        {"a": {"dtype": "I64", "shape": [2**60, 0], "data_offsets": [0, 0]}, "b": None},
        [],
    ],
)
def test_headers_of_safetensors_that_lie(tmp_path, entries):
    with pytest.raises(ValueError, match="header|bytes"):
        held(tmp_path, safe(entries, bytes(8)))


def test_an_archive_that_would_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(array_files, "MOST_READ", 2**20)
    for size, kind in ((2**20, np.float64), (2**18, np.uint8)):
        np.savez_compressed(tmp_path / "file.npz", np.zeros(size, kind))
        assert (tmp_path / "file.npz").stat().st_size < 2**14
        with pytest.raises(ValueError, match="unpacks to 8,388,|2,097,152 bytes; at most"):
            read_arrays(tmp_path / "file.npz")
    # each of them fits, all together do not
    np.savez_compressed(tmp_path / "file.npz", *[np.zeros(2**15, np.uint8)] * 5)
    with pytest.raises(ValueError, match="at most 0"):
        read_arrays(tmp_path / "file.npz")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_packer_whose_pieces_have_no_limit(tmp_path, method):
    with zipfile.ZipFile(tmp_path / "file", "w", method) as packed:
        packed.writestr("a.npy", bytes(10**7))
    with pytest.raises(ValueError, match="method"):
        read_arrays(tmp_path / "file")


def test_an_archive_with_one_name_twice(tmp_path):
    with zipfile.ZipFile(tmp_path / "file", "w") as packed, pytest.warns(UserWarning):
        for _ in range(2):
            packed.writestr("a.npy", npy_file((1,), data=bytes(8)))
    with pytest.raises(ValueError, match="one name"):
        read_arrays(tmp_path / "file")


def test_texts_have_a_limit_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(array_files, "MOST_TEXT", 100)
    assert held(tmp_path, b"[" + b"1," * 40 + b"1]") == [1] * 41
    for data in (b"[" + b"1," * 60 + b"1]", safe({"a" * 100: 1})):
        with pytest.raises(ValueError, match="at most 100"):
            held(tmp_path, data)


class Tensor:
    "What torch hands over, without torch."

    shape = (2, 2)

    def detach(self):
        return self

    cpu = detach

    def numpy(self):
        return np.ones(self.shape)


Tensor.__module__ = "torch"


class Endless(Tensor):
    shape = (2**30, 2**30)


Endless.__module__ = "torch"


def test_what_torch_holds(tmp_path, monkeypatch):
    "The walk through it, with a torch that hands over what we say."
    torch = types.ModuleType("torch")
    monkeypatch.setitem(sys.modules, "torch", torch)
    torch.load = lambda stream, weights_only, map_location: value
    value = {"a": [Tensor(), (1, "x")], 3: None}
    read = held(tmp_path, b"\x80\x02N.")
    assert np.array_equal(read["a"][0], np.ones((2, 2))) and read["a"][1] == [1, "x"]
    assert read["3"] is None
    for wrong, told in [
        ({3: 1, "3": 2}, "two keys"),
        (Endless(), "would be an array"),
        ({"a": [Endless()]}, "would be an array"),
    ]:
        value = wrong
        with pytest.raises(ValueError, match=told):
            held(tmp_path, b"\x80\x02N.")


def test_lists_that_hold_each_other(tmp_path, monkeypatch):
    monkeypatch.setattr(array_files, "MOST_READ", 2**20)
    value = [1]
    for _ in range(15):
        value = [value] * 10
    torch = types.ModuleType("torch")
    torch.load = lambda stream, weights_only, map_location: value
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(ValueError, match="says too much"):
        held(tmp_path, b"\x80\x02N.")
    value = [Tensor()] * 100_000
    with pytest.raises(ValueError):
        held(tmp_path, b"\x80\x02N.")


def test_without_torch_its_files_are_refused_with_a_way_out(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
    (tmp_path / "b.pt").write_bytes(b"\x80\x02}q\x00.")
    for name in ("a.pt", "b.pt"):
        with pytest.raises(ValueError, match=r"serving-or\[engines\]"):
            read_arrays(tmp_path / name)


# Paths and folders


def test_what_is_no_file(tmp_path):
    with pytest.raises(OSError):
        read_arrays(tmp_path / "nothing")
    for wrong in (None, 3, [1], b"bytes", "a\x00b", ""):
        for read in (read_arrays, read_folder, path_of):
            with pytest.raises(ValueError, match="must name a file"):
                read(wrong)
    with pytest.raises(ValueError, match="no ordinary file"):
        read_arrays(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="ordinary file"):
        read_arrays(tmp_path / "pipe")
    with pytest.raises(ValueError, match="ordinary file"):
        read_arrays("/dev/zero")


def test_folders(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="0 files"):
        read_folder(tmp_path)
    for name in ("b", "a", ".hidden"):
        np.save(tmp_path / f"{name}.npy", np.zeros(1000, np.uint8))
    (tmp_path / "inside").mkdir()
    assert [os.path.basename(name) for name, _ in read_folder(tmp_path)] == ["a.npy", "b.npy"]
    monkeypatch.setattr(array_files, "MOST_READ", 15_000)
    with pytest.raises(ValueError, match="more than 15,000 bytes"):
        read_folder(tmp_path)
    monkeypatch.setattr(array_files, "MOST_FILES", 1)
    with pytest.raises(ValueError, match="2 files"):
        read_folder(tmp_path)


# Whole numbers


@settings(max_examples=cases(1000, 60))
@given(
    hnp.arrays(
        st.sampled_from([np.int8, np.uint16, np.int64]),
        hnp.array_shapes(max_dims=3, max_side=3),
        elements=st.integers(0, 100),
    )
)
def test_whole_numbers_as_they_are(x):
    for given_ in (x, x.tolist(), tuple(x.tolist())):
        read = whole_numbers(given_, "x")
        assert read.dtype == np.int64 and np.array_equal(read, x)
    read[...] = 7
    assert np.array_equal(whole_numbers(x, "x"), x)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ([1, 2.0], r"holds 2\.0"),
        ([[1], [True]], "holds True"),
        ([[1, 2], [3]], "equal length"),
        ([1, "2"], "holds '2'"),
        ([1, None], "holds None"),
        (np.array([1.0]), "elements of type float64"),
        (np.array([True]), "elements of type bool"),
        ([2**60], "1152921504606846976 in size"),
        ([-(2**60)], "1152921504606846976 in size"),
        ([2**70], "whole numbers"),
        (None, "holds None"),
        ({}, "holds"),
    ],
)
def test_whole_numbers_that_are_none(wrong, told):
    with pytest.raises(ValueError, match=f"x .*{told}"):
        whole_numbers(wrong, "x")


def test_small_helpers():
    assert keys_of({}) == "none" and keys_of({1: 2, "a": 3}) == "'1', 'a'"
    assert keys_of(dict.fromkeys("abcdefgh")).endswith("'f', ...")
    assert room_for((2, 3), "x") == 48 and room_for((), "x") == 8
    with pytest.raises(ValueError, match="56 bytes; at most 55"):
        room_for((7,), "x", 55)
    assert room_for((7,), "x", 56) == 56
    x = np.ones(2)
    assert from_torch(x) is x and np.array_equal(from_torch(Tensor()), np.ones((2, 2)))
    assert read_npy(npy_file((0, 10**12))).shape == (0, 10**12)


# Anything


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    "A valid file of each format."
    folder, x = tmp_path_factory.mktemp("good"), np.arange(16).reshape(2, 2, 4)
    np.save(folder / "a.npy", x)
    np.savez(folder / "b.npz", x=x, y=x[0])
    np.savez_compressed(folder / "c.npz", weight=x)
    (folder / "d").write_bytes(safetensors_file({"a": x, "b": x[0]}))
    (folder / "e").write_text(json.dumps({"a": x.tolist(), "b": 1.5, "c": "x"}))
    (folder / "f").write_text('{"a": 1}\n{"b": [2]}\n')
    (folder / "g").write_text("a: [1, 2]\nb: &x {c: 3}\nd: *x\n")
    (folder / "h").write_text("x;y\n1;2\n3;4\n")
    return [p.read_bytes() for p in sorted(folder.iterdir())]


def only_documented(file, data):
    file.write_bytes(data)
    try:
        read_arrays(file)
    except ValueError as error:
        assert str(error)


@settings(max_examples=cases(20000, 300))
@given(RANDOM)
def test_random_bytes(tmp_path_factory, data):
    only_documented(tmp_path_factory.getbasetemp() / "random", data)


@settings(max_examples=cases(20000, 300))
@given(data=st.data())
def test_valid_files_with_some_bytes_changed(tmp_path_factory, good, data):
    only_documented(tmp_path_factory.getbasetemp() / "changed", data.draw(spoiled(good)))


@pytest.mark.parametrize("divider", [",", ";", "\t"])
@pytest.mark.parametrize("names", [("layer", "expert", "count"), ("Layer_id", "tokens"), ("step",)])
def test_a_list_of_places_is_no_table(tmp_path, names, divider):
    "Read as a table, its three columns would be three experts."
    file = tmp_path / "long.csv"
    row = divider.join("1" for _ in names)
    file.write_text("\n".join([divider.join(names), row, row]))
    with pytest.raises(ValueError, match="so each row is one number"):
        read_arrays(file)
