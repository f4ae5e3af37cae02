"Files: schemas, lines, limits; every hostile and every mistaken file is refused in words."

import json
import os
import pickle
import time
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_or.tools.answers import write_whole
from serving_or.tools.files import (
    GB,
    GIB,
    MOST_BYTES,
    MOST_DEPTH,
    SIZES,
    TIMES,
    BadFile,
    Count,
    Either,
    Entries,
    Flag,
    Mistake,
    Name,
    Number,
    OneOf,
    Quantity,
    Size,
    Text,
    Time,
    Whole,
    a_time,
    distinct,
    fit,
    load,
    numbered,
    parse,
    quantity,
    read,
    required,
    schema,
)

RAW = ("pydantic", "Input should", "Extra inputs", "Field required", " valid ", "permitted", "\x00")


@schema
class Sizes:
    blocks: Annotated[int, Whole(1, 100_000)]
    block_size: Annotated[float, Quantity(above=0.0, units=SIZES, noun="a size")]
    cache_size: Size


@schema
class Server:
    name: Name
    memory: Size
    tau: Time
    count: Count = 1
    rent: Annotated[float, Number(least=0)] | None = None
    domain: Name | None = None
    spot: Annotated[bool, Flag()] = False


@schema
class Client:
    name: Name
    rtt: Annotated[float | dict, Either(Quantity(0.0, infinite=True, units=TIMES, noun="a time"))]


@schema
class Deployment:
    model: Annotated[object, Either(OneOf(("big", "small")), Sizes)]
    servers: Annotated[list[Server], Entries(1)]
    clients: Annotated[list[Client], Entries(1)]
    hop: list[list[Time]] | None = None


FILE = """\
model: {blocks: 4, block_size: 4 GB, cache_size: 1 GB}
servers:
  - {name: a, memory: 16 GB, tau: 10 ms}
  - name: b
    count: 2
    memory: 12 GiB
    tau: 0.02 s
    domain: oslo
clients:
  - {name: c, rtt: 10 ms}
  - {name: d, rtt: {a: 5 ms, b: inf ms}}
hop: [[0 ms, 1 ms, 2 ms], [1 ms, 0 ms, 3 ms], [2 ms, 3 ms, 0 ms]]
"""


def own_names(file):
    rows = enumerate(file.servers)
    yield from distinct(
        (("servers", i, "name"), full) for i, s in rows for full in numbered(s.name, s.count)
    )


def refused(text, kind=Deployment, check=None, **more):
    "What is said about a text, after what must hold for everything that is said."
    start = time.process_time()
    with pytest.raises(BadFile) as caught:
        fit(parse(text, "c.yaml", **more), kind, check)
    assert time.process_time() - start < 5
    said = str(caught.value)
    assert not any(raw in said for raw in RAW), said
    assert len(said) < 20_000 and said.startswith("c.yaml:")
    problems = caught.value.problems
    assert all(p.line >= 1 and p.required for p in problems)
    assert [p.line for p in problems] == sorted(p.line for p in problems)
    return said, {p.field: p for p in problems}


def test_a_file(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(FILE)
    got = read(path, Deployment, check=own_names)
    assert got.model == Sizes(blocks=4, block_size=4 * GB, cache_size=GB)
    assert got.servers[1] == Server(name="b", count=2, memory=12 * GIB, tau=20.0, domain="oslo")
    assert got.clients[1].rtt == {"a": 5.0, "b": float("inf")} and got.hop[1] == [1, 0, 3]
    assert read(str(path), Deployment) == got
    path.write_bytes(
        b"\xef\xbb\xbf" + FILE.replace("\n", "\r\n").encode()
    )  # as a Windows editor does
    assert read(path, Deployment) == got


def test_json_is_the_same(tmp_path):
    path = tmp_path / "c.json"
    path.write_text(json.dumps(parse(FILE).value, indent="\t"))
    assert read(path, Deployment) == fit(parse(FILE), Deployment)
    (tmp_path / "C.JSON").write_text("# a comment\n{}")
    with pytest.raises(BadFile, match="'#' is no JSON"):
        load(tmp_path / "C.JSON")


@pytest.mark.parametrize(
    "old, new, field, line, said",
    [
        ("memory: 16 GB", "memory: 16", "servers.0.memory", 3, "a size, at least 0, with its unit"),
        ("memory: 16 GB", "memory: 16 Gb", "servers.0.memory", 3, "GiB"),
        ("memory: 16 GB", "memory: -16 GB", "servers.0.memory", 3, "at least 0"),
        ("memory: 16 GB", "memory: inf GB", "servers.0.memory", 3, "at least 0"),
        ("memory: 16 GB", "memory: 1e308 GB", "servers.0.memory", 3, "with its unit"),
        ("memory: 16 GB", "memory: [16 GB]", "servers.0.memory", 3, "with its unit"),
        ("memory: 16 GB", "memory: true", "servers.0.memory", 3, "with its unit"),
        ("memory: 16 GB", "memory: ", "servers.0.memory", 3, "with its unit"),
        ("memory: 16 GB", "memory: 16 GB, memory: 8 GB", "servers.0.memory", 3, "given once"),
        ("tau: 0.02 s", "tau: fast", "servers.1.tau", 7, "a time"),
        ("tau: 0.02 s", "tau: -0.02 s", "servers.1.tau", 7, "a time"),
        ("    tau: 0.02 s\n", "", "servers.1.tau", 4, "a time"),
        ("count: 2", "count: 0", "servers.1.count", 5, "a whole number, at least 1"),
        ("count: 2", "count: 1000000000", "servers.1.count", 5, "at most 10,000"),
        ("count: 2", "count: 2.0", "servers.1.count", 5, "a whole number"),
        ("count: 2", "count: '2'", "servers.1.count", 5, "a whole number"),
        ("count: 2", "count: true", "servers.1.count", 5, "a whole number"),
        ("blocks: 4", "blocks: true", "model.blocks", 1, "a whole number"),
        ("blocks: 4", "blocks: .nan", "model.blocks", 1, "a whole number"),
        ("blocks: 4", "blocks: 0x10", "model.blocks", 1, "a whole number"),
        ("block_size: 4 GB", "block_size: 0 GB", "model.block_size", 1, "more than 0"),
        ("domain: oslo", "site: oslo", "servers.1.site", 8, "one of the fields name, memory"),
        ("domain: oslo", "doman: oslo", "servers.1.doman", 8, "one of the fields"),
        ("domain: oslo", "rent: -1", "servers.1.rent", 8, "a number, at least 0"),
        ("domain: oslo", "rent: .inf", "servers.1.rent", 8, "a number, at least 0"),
        ("domain: oslo", "rent: .nan", "servers.1.rent", 8, "a number, at least 0"),
        ("domain: oslo", "rent: true", "servers.1.rent", 8, "a number, at least 0"),
        ("domain: oslo", "rent: 1e999", "servers.1.rent", 8, "another way"),
        ("domain: oslo", "domain: 7", "servers.1.domain", 8, "text"),
        ("domain: oslo", 'domain: ""', "servers.1.domain", 8, "text"),
        ("domain: oslo", 'domain: "a\\nb"', "servers.1.domain", 8, "text"),
        ("domain: oslo", "spot: yes", "servers.1.spot", 8, "true or false"),
        ("domain: oslo", "spot: 1", "servers.1.spot", 8, "true or false"),
        ("rtt: 10 ms", "rtt: {1: 5 GB}", "clients.0.rtt.1", 10, "a time"),
        ("rtt: 10 ms", "rtt: {}", "clients.0.rtt", 10, "at least 1 entries"),
        ("rtt: 10 ms", "rtt: [10 ms]", "clients.0.rtt", 10, "a mapping from names"),
        ("rtt: 10 ms", "rtt: -1 ms", "clients.0.rtt", 10, "a time"),
        ("b: inf ms", "b: -inf ms", "clients.1.rtt.b", 11, "a time"),
        ("b: inf ms", "b: 1, b: 2 ms", "clients.1.rtt.b", 11, "given once"),
        ("name: b", "name: a-1", None, None, None),
        ("name: a,", "name: b-2,", "servers.1.name", 4, "taken by servers.0.name"),
        ("[1 ms, 0 ms, 3 ms]", "1 ms", "hop.1", 12, "a list"),
        ("hop: [[0 ms, 1 ms", "hop: [[0 ms, x", "hop.0.1", 12, "a time"),
        ("model: {blocks: 4, block_size: 4 GB, cache_size: 1 GB}", "model: GPT", "model", 1, "big"),
        ("model: {blocks: 4, ", "model: {", "model.blocks", 1, "a whole number"),
        ("model: {blocks: 4, ", "model: {block: 4, ", "model.block", 1, "block_size"),
        ("model: {blocks: 4, block_size: 4 GB, cache_size: 1 GB}\n", "", "model", 1, "one of big"),
        ("servers:", "server:", "server", 2, "servers"),
        ("clients:", "clients: [", "", None, "YAML"),
        ("clients:\n", "clients:\n\t", "", None, "YAML"),
        ("clients:", "<<: {a: 1}\nclients:", "<<", 9, "another way"),
        ("clients:", "[a]: 1\nclients:", "", 9, "text as a key"),
        ("clients:", "{a: b}: 1\nclients:", "", 9, "text as a key"),
        ("clients:", "x: *y\nclients:", "", 9, "an alias"),
        ("clients:", "x: &y [*y]\nclients:", "", 9, "an alias"),
        ("clients:", "&k clients:", None, None, None),
        ("clients:", "x: !!binary aGk=\nclients:", "", 9, "without a tag"),
        ("clients:", "x: !own 1\nclients:", "", 9, "without a tag"),
        ("clients:", "---\nclients:", "", 9, "one document"),
        ("domain: oslo", 'domain: "\\ud800"', "servers.1.domain", 8, "another way"),
        ("domain: oslo", "domain: os\x00lo", "", None, "control characters"),
        (FILE, "", "", 1, "a mapping with the fields model"),
        (FILE, "- 1", "", 1, "a mapping"),
        (FILE, "just words", "", 1, "a mapping"),
        (FILE, "# only a comment", "", 1, "a mapping"),
        (FILE, "servers: []", "servers", 1, "at least 1"),
        (FILE, "servers: 3", "servers", 1, "a list"),
        (FILE, "servers: [3]", "servers.0", 1, "a mapping with the fields name"),
    ],
)
def test_mistakes_in_a_file(old, new, field, line, said):
    assert old in FILE
    text = FILE.replace(old, new, 1)
    if field is None:
        fit(parse(text), Deployment, own_names)
        return
    if "\\ud800" in new:
        # libyaml calls it a mistake of syntax, PyYAML's own parser does not
        _, found = refused(text, check=own_names)
        assert any(p.line == line for p in found.values())
        return
    _, found = refused(text, check=own_names)
    assert field in found, found
    assert line is None or found[field].line == line
    assert said.lower() in found[field].required.lower()


def test_all_mistakes_at_once_in_the_order_of_lines():
    text = FILE.replace("16 GB", "16").replace("tau: 0.02 s", "tau: x").replace("oslo", "7")
    said, found = refused(text.replace("count: 2", "count: 2\n    count: 3"))
    assert list(found) == [
        "servers.0.memory",
        "servers.1.count",
        "servers.1.tau",
        "servers.1.domain",
    ]
    assert (
        "c.yaml:6: servers.1.count stands here again, after line 5; it must be given once" in said
    )


def test_unknown_fields_are_helped():
    said, _ = refused(FILE.replace("domain: oslo", "domian: oslo"))
    assert "servers.1.domian is not a field (do you mean domain?)" in said


def test_words_beside_a_file():
    assert required(Size).startswith("a size, at least 0, with its unit (bytes, B, kB")
    assert required(Literal["x", "y"]) == "one of x, y" and required(list[int]) == "a list"
    assert required(int | None) == "a whole number" and required(dict[str, float]) == "a mapping"


# hostile texts

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in zip("abcdefg", "bcdefgh")
)
LONG = f"a: &a {'x' * 300}\nb: [{', '.join(['*a'] * 5000)}]\n"


@pytest.mark.parametrize(
    "text, said",
    [
        (BOMB, "written out"),
        (LONG, "written out"),
        (f"x: &x {'y' * 1000}\n" + "".join(f"k{i}: *x\n" for i in range(2000)), "written out"),
        ("[" * 3000, "deep"),
        ("{a: " * 3000, "deep"),
        ("- " * 3000 + "x", "deep"),
        ("\n".join(" " * i + "a:" for i in range(500)), "deep"),
        ("[" * (MOST_DEPTH + 1) + "]" * (MOST_DEPTH + 1), "deep"),
        ("? " * 3000, "text as a key"),
        ("&a [" * 30 + "*a" + "]" * 30, "alias"),
        ("a: 'x", "YAML"),
        ("%YAML 9.9\n---\na: 1", "YAML"),
        ("- &a1 [x]\n" * 50_000, "mapping"),
        ("a: 1\n" * 100_000, "and 981 more"),
        ("a: " + "9" * 5000, "another way"),
        ("9" * 5000 + ": 1", "YAML"),
        ("? " + "k" * 100_000 + "\n: 1", "fields"),
        ("a: " + "x" * 500_000, "fields"),
    ],
)
def test_hostile_texts(text, said):
    words, _ = refused(text)
    assert said in words


def test_deep_aliases_count_as_deep():
    half = "a: &a " + "[" * 25 + "]" * 25 + "\n"
    assert parse(half).value["a"] is not None
    words, _ = refused(half + "b: " + "[" * 20 + "*a" + "]" * 20)
    assert "deep" in words


def test_many_mistakes_are_counted_not_listed():
    text = "servers: [" + "1, " * 50_000 + "1]"
    words, found = refused(text)
    assert words.splitlines()[-1] == f"c.yaml: and {len(found) - 20} more"
    assert len(found) == 50_003 and len(words.splitlines()) < 30


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "ends where a value must stand"),
        ("{", "ends where a key"),
        ("[1, 2", "a comma or a closing bracket"),
        ("[1,]", "']' stands where a value must stand"),
        ('{"a": 1,}', "'}' stands where a key"),
        ("{1: 2}", "'1' stands where a key"),
        ('{"a" 1}', "a colon"),
        ("[1}", "'}' stands where"),
        ("[1] 2", "nothing must stand"),
        ("[01]", "'01' is no JSON"),
        ("[1.]", "is no JSON"),
        ("[+1]", "'+1' is no JSON"),
        ("[NaN]", "'NaN' is no JSON"),
        ("[-Infinity]", "is no JSON"),
        ("[True]", "'True' is no JSON"),
        ("['a']", "is no JSON"),
        ('["a\nb"]', "a text has no end or a bad character"),
        ('["a', "a text has no end or a bad character"),
        ('["\\x"]', "a text has no end or a bad character"),
        ('["\\ud800"]', "surrogate"),
        ("[1e999]", "larger than"),
        ("[-1e999]", "larger than"),
        ("[" * 3000, "deep"),
        ('{"a":' * 3000, "deep"),
        ("[1] // x", "is no JSON"),
        ('{"a": 1, "a": 2}', "stands here again, after line 1"),
        ("[\u00a01]", "is no JSON"),
        ("[\u0661]", "is no JSON"),
    ],
)
def test_json_that_is_none(text, said):
    words, _ = refused(text, list[list[Annotated[int, Whole()]]], json=True)
    assert said in words, words


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON, st.sampled_from([None, 2, "\t"]), st.booleans())
def test_json_reads_what_json_writes(data, indent, ascii):
    text = json.dumps(data, indent=indent, ensure_ascii=ascii)
    assert parse(text, json=True).value == data


@given(st.text(alphabet='[]{},:"\\ 019.eE+-truefalsn\n', max_size=30))
def test_json_accepts_what_json_accepts(text):
    try:
        expected = json.loads(text, parse_constant=lambda _: 1 / 0)
    except (ValueError, ZeroDivisionError):
        with pytest.raises(BadFile):
            fit(parse(text, json=True), object)
        return
    assert (
        parse(text, json=True).value == expected or '"' in text
    )  # of equal keys we take the first


@given(JSON)
def test_yaml_reads_plain_json(data):
    # a printable text without YAML's other line breaks; ASCII escapes of pairs are not YAML's
    text = json.dumps(data, ensure_ascii=True)
    if "\\ud" in text or "\\u00" in text:
        return
    assert parse(text).value == data


PIECES = [
    "a",
    ": ",
    "- ",
    "\n",
    "  ",
    "[",
    "]",
    "{",
    "}",
    ", ",
    "&x ",
    "*x",
    "'",
    '"',
    "|",
    ">",
    "? ",
    "!",
    "%",
    "@",
    "`",
    "#",
    "\t",
    "1",
    "~",
    "---",
    "...",
    "<<",
    "\\",
    "\x85",
    "\u2028",
    "\ufeff",
    "é",
]


@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
def test_any_text_is_read_or_refused(text):
    for json_ in (False, True):
        try:
            document = parse(text, json=json_)
            document.line(("a", 0, "x"))
            fit(document, Deployment)
        except BadFile as error:
            assert all(
                1 <= p.line <= text.count("\n") + text.count("\x85") + text.count("\u2028") + 2
                for p in error.problems
            )


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(tmp_path_factory, raw):
    folder = tmp_path_factory.mktemp("raw")
    for name in ("f.yaml", "f.json"):
        (folder / name).write_bytes(raw)
        with pytest.raises(BadFile):
            read(folder / name, Deployment)


@pytest.mark.parametrize("loader", ["CSafeLoader", "SafeLoader"])
def test_both_parsers_of_yaml(monkeypatch, loader):
    import yaml

    if loader == "SafeLoader":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    assert fit(parse(FILE), Deployment).hop[2] == [2, 3, 0]
    for text in (BOMB, "[" * 3000, "a: 'x", "a: \x00", "a: 1\na: 2", "x: !!set {a}"):
        refused(text)
    assert parse('a: "\\u00e9\\x41"').value == {"a": "éA"}


# files


def test_files_that_cannot_be(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "no.yaml")
    with pytest.raises(IsADirectoryError):
        load(tmp_path)
    big = tmp_path / "big.yaml"
    big.write_text("a: b\n" + "#" * MOST_BYTES)
    with pytest.raises(BadFile, match="too large; it must be at most 1,048,576 bytes"):
        load(big)
    assert load(big, most_bytes=2 * MOST_BYTES).value == {"a": "b"}
    latin = tmp_path / "latin.yaml"
    latin.write_bytes("a: 1\nb: é".encode("latin-1"))
    with pytest.raises(
        BadFile, match="latin.yaml:2: the file has the byte 0xe9 here; it must be UTF-8"
    ):
        load(latin)
    latin.write_bytes("a: 1".encode("utf-16"))
    with pytest.raises(BadFile, match="UTF-8"):
        load(latin)
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(BadFile, match="ordinary file"):
        load(tmp_path / "pipe.yaml")
    with pytest.raises(BadFile, match="ordinary file"):
        load("/dev/zero")


def test_errors_are_data_and_travel():
    with pytest.raises(BadFile) as caught:
        fit(parse("a: 1\nb: 2"), Sizes)
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value) and again.problems == caught.value.problems
    assert isinstance(again.problems[0], Mistake) and again.problems[0] == again.problems[0][:]
    assert issubclass(BadFile, ValueError) and BadFile("x").problems == ()


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "c.yaml"
    write_whole(path, FILE)
    before = read(path, Deployment)
    with pytest.raises(ValueError):
        write_whole(path, "\ud800")
    assert read(path, Deployment) == before and len(list(tmp_path.iterdir())) == 1


# schemas and kinds


@pytest.mark.parametrize(
    "bare", [int, float, str, bool, list[int], int | None, dict[str, float], Annotated[int, "x"]]
)
def test_a_schema_refuses_bare_types(bare):
    with pytest.raises(TypeError, match="field a of Loose is a bare"):
        schema(type("Loose", (), {"__annotations__": {"a": bare}}))


def test_a_schema_of_pydantic_is_told_in_our_words():
    from pydantic import BaseModel, ConfigDict, Field

    class Inner(BaseModel, extra="forbid"):
        size: Size
        kind: Literal["x", "y"] = "x"

    class Outer(BaseModel):
        model_config = ConfigDict(extra="forbid")
        k: Annotated[int, Field(ge=2, strict=True)]
        inner: list[Inner] = []

    assert fit(parse("k: 3\ninner: [{size: 1 GB}]"), Outer).inner[0].size == GB
    _, found = refused("k: 1\ninner: [{size: 1, kind: z, other: 1}, 3]\nz: 1", Outer)
    assert {name: p.required for name, p in found.items()} == {
        "k": "at least 2",
        "inner.0.size": required(Size),
        "inner.0.kind": "one of x, y",
        "inner.0.other": "one of the fields size, kind",
        "inner.1": "a mapping with the fields size, kind",
        "z": "one of the fields k, inner",
    }


def test_every_code_of_pydantic_has_words_of_ours():
    from typing import get_args

    from pydantic_core.core_schema import ErrorType

    from serving_or.tools.files import _told

    for code in get_args(ErrorType):
        context = dict.fromkeys(("min_length", "max_length", "ge", "gt", "le", "lt"), 1)
        error = {"type": code, "loc": ("size",), "input": None, "ctx": context}
        place, _, wrong, must = _told(Sizes, lambda place: required(Size), error)
        assert (
            place == ("size",)
            and wrong
            and must
            and "_" not in must.replace("block_size", "").replace("cache_size", "")
        )


@pytest.mark.parametrize(
    "text",
    [
        "80",
        "GB",
        "80 Gb",
        "8 0 GB",
        "0x5 GB",
        "1e999 GB",
        "nan GB",
        "80 GB x",
        "1_000 GB",
        "٣ GB",
        "",
        None,
        80,
        True,
        [80],
        "--1 GB",
        "1e GB",
        "infinity s",
        "1e308 GiB",
    ],
)
def test_no_quantity(text):
    with pytest.raises(ValueError):
        quantity(text, SIZES)


@given(st.floats(-1e30, 1e30), st.sampled_from(sorted(SIZES)))
def test_quantities(value, unit):
    assert quantity(f"{value!r} {unit}", SIZES) == value * SIZES[unit]
    assert quantity(f" {value!r}{unit} ", SIZES) == value * SIZES[unit]


def test_infinity_only_where_it_is_allowed():
    endless = Quantity(0.0, infinite=True, units=TIMES)
    assert endless.take("inf s") == float("inf") == quantity("inf ms", TIMES)
    for wrong in ("-inf s", "nan s", "1e999 s"):
        with pytest.raises(ValueError):
            endless.take(wrong)
    for kind in (a_time, Number()):
        with pytest.raises(ValueError):
            kind.take("inf s" if kind is a_time else float("inf"))
    assert str(Number(least=-1).take(-0.0)) == "0.0"
    with pytest.raises(ValueError):
        Number().take(10**400)


def test_names_of_rows():
    assert numbered("a", 1) == ("a",) and numbered("a", 3) == ("a-1", "a-2", "a-3")
    names = [
        (("s", 0), "a-1"),
        (("s", 1), "a-1"),
        (("s", 1), "a-2"),
        (("s", 2), "a-2"),
        (("s", 2), "a-1"),
    ]
    assert [(place, given) for place, _, given in distinct(names)] == [
        (("s", 1), "a-1"),
        (("s", 2), "a-2"),
    ]


def test_texts_keep_to_one_line():
    for wrong in ("", "a\tb", "a\u2028b", "x" * 201, 1, None):
        with pytest.raises(ValueError):
            Text().take(wrong)
    assert Text().take("Zürich 1") == "Zürich 1"
