"""The rules of the house, each over every room and every door, without exceptions.

A room is a chapter and its module; a door is what a part hands to others (its ``__all__``).
"""

import ast
import doctest
import importlib
import inspect
import re
import subprocess
import sys
import typing
import warnings
from collections import defaultdict
from pathlib import Path

import pytest
import yaml
from numpydoc import validate
from numpydoc.docscrape import NumpyDocString
from pybtex.database import parse_file

from serving_or.tools import live
from tests.tree import ROOT, sources

sys.path.insert(0, str(ROOT / "book" / "_ext"))
import house

ROOMS = house.rooms()
PARTS = house.parts()
DOORS = [
    f"{part}.{name}"
    for part in PARTS
    for name in house.exports(ROOT / "serving_or" / part / "__init__.py") or ()
]
# Words of the first edition, and the one word that each of them has become.
OLD_WORDS = {
    "tol": "tolerance",
    "budget": "time_limit",
    "deadline": "time_limit",
    "ranks": "orders",
    "rank": "order",
}

TEXTS = {".py", ".ipynb", ".md", ".toml", ".ini", ".yml", ".txt", ".bib", ".js", ".css", ""}

every_room = pytest.mark.parametrize("room", ROOMS, ids=str)
every_part = pytest.mark.parametrize("part", PARTS)
every_door = pytest.mark.parametrize("door", DOORS)


def public(room):
    """What a module offers to others: name to object."""
    module = importlib.import_module(room.name)
    return {name: getattr(module, name) for name in module.__all__}


def functions(things):
    """The functions among some objects, and the methods that their classes define themselves."""
    for name, thing in things.items():
        if inspect.isfunction(thing):
            yield name, thing
        elif inspect.isclass(thing):
            for method, member in vars(thing).items():
                if isinstance(member, property):
                    member = member.fget
                member = getattr(member, "__func__", member)
                hidden = method.startswith("_") and method not in ("__init__", "__call__")
                written = getattr(member, "__qualname__", "").startswith(f"{thing.__name__}.")
                # dataclass writes some methods itself, in no file
                here = inspect.isfunction(member) and "serving_or" in member.__code__.co_filename
                if here and written and not hidden:
                    yield f"{name}.{method}", member


def none(found):
    """Nothing was found; else all of it is said."""
    assert not found, "".join(f"\n  {what}" for what in found)


def the_door(door):
    part, name = door.split(".")
    return getattr(importlib.import_module(f"serving_or.{part}"), name)


# The tree


@every_room
def test_a_chapter_and_its_module_have_the_same_path(room):
    assert room.file.is_file()
    first = next(house.cells(room))
    assert ("default_exp", f"{room.part}.{room.module}") in first[0]
    assert house.exports(room.file) is not None


def test_every_module_has_a_chapter_and_a_line_in_the_contents():
    files = {p for part in PARTS for p in (ROOT / "serving_or" / part).glob("[a-z]*.py")}
    assert files == {room.file for room in ROOMS}
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    listed = [c["file"] for part in toc["parts"] for c in part["chapters"]]
    for part in PARTS:
        mine = [str(r.notebook.relative_to(ROOT).with_suffix("")) for r in ROOMS if r.part == part]
        assert [name for name in listed if name.startswith(f"nbs/{part}/")] == mine


@every_room
def test_numbers_are_given_once(room):
    assert [r for r in ROOMS if (r.part, r.number) == (room.part, room.number)] == [room]


@every_room
def test_a_room_has_its_tests(room):
    assert room.test.is_file(), f"{room.test.relative_to(ROOT)} is missing"


@every_part
def test_every_test_file_has_its_room(part):
    files = set((ROOT / "tests" / part).glob("test_*.py"))
    assert files <= {room.test for room in ROOMS if room.part == part}


# Arrows


@every_room
def test_arrows_point_one_way(room):
    """tools <- fleet <- experts, blocks <- cli; in a part, to smaller numbers."""
    none([str(other) for other in house.arrows(room) if not room.may_import(other)])


@every_room
def test_a_chapter_reads_in_order(room):
    """What a chapter's other cells import stands before it, too."""
    others = {other.name: other for other in ROOMS}
    late = set()
    for directives, source in house.cells(room):
        if ("eval", "false") in directives or re.search(r"^\s*[%!]", source, re.M):
            continue
        for module, _ in house.imported(source, f"serving_or.{room.part}"):
            if module in others and others[module] != room and not room.may_import(others[module]):
                late.add(module)
    none(late)


@every_room
def test_no_room_goes_through_the_door_of_its_own_part(room):
    source = room.file.read_text(encoding="utf-8")
    package = f"serving_or.{room.part}"
    assert package not in {module for module, _ in house.imported(source, package)}


# Doors


@every_part
def test_a_part_is_its_list_of_doors(part):
    """A docstring, imports of what it hands on (its own things, and the tools'), ``__all__``."""
    path = ROOT / "serving_or" / part / "__init__.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    for node in tree.body[1:]:
        if isinstance(node, ast.ImportFrom):
            assert all(alias.asname in (None, alias.name) for alias in node.names)
        else:
            assert isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
    doors = house.doors(part)
    assert sorted(house.exports(path)) == sorted(doors)
    homes = set(doors.values())
    assert all(m.startswith((f"serving_or.{part}.", "serving_or.tools.")) for m in homes), homes


@every_part
def test_doors_are_public_where_they_are_made(part):
    made = {
        module: importlib.import_module(module).__all__ for module in house.doors(part).values()
    }
    none([f"{m}.{name}" for name, m in house.doors(part).items() if name not in made[m]])


@every_part
def test_nothing_has_the_name_of_a_module(part):
    """So that ``import serving_or.part.module`` is a module."""
    modules = {room.module for room in ROOMS if room.part == part}
    for module in modules:
        found = importlib.import_module(f"serving_or.{part}.{module}")
        assert inspect.ismodule(getattr(importlib.import_module(f"serving_or.{part}"), module))
        assert module not in found.__all__
    assert not modules & {door.split(".")[1] for door in DOORS if door.split(".")[0] == part}


@every_door
def test_a_door_is_told_in_full(door):
    """Parameters, what is returned, and an example, in numpydoc's form."""
    thing = the_door(door)
    if not callable(thing):
        return
    doc = inspect.getdoc(thing)
    assert doc, f"{door} has no docstring"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        said = NumpyDocString(doc)
    if inspect.isclass(thing) and issubclass(thing, BaseException):
        return
    assert said["Examples"], f"{door} has no example"
    wanted = {"PR01", "PR02", "PR03", "RT01"}
    wrong = validate.validate(f"serving_or.{door}")["errors"]
    none([text for code, text in wrong if code in wanted])


@every_room
def test_examples_in_docstrings_run(room):
    """Each with its module's names, and those that it imports."""
    module = importlib.import_module(room.name)
    runner = doctest.DocTestRunner(
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, verbose=False
    )
    said = []
    for example in doctest.DocTestFinder(exclude_empty=True).find(module):
        runner.run(example, out=said.append)
    assert runner.failures == 0, "".join(said)


# Names


@every_room
def test_public_things_are_described_and_typed(room):
    """A docstring; a type for each parameter and for what is returned, which can be resolved."""
    things = public(room)
    missing = []
    for name, function in functions(things):
        hints = typing.get_type_hints(function)
        wanted = set(inspect.signature(function).parameters) - {"self", "cls"}
        missing += [f"{name}({parameter})" for parameter in sorted(wanted - set(hints))]
        if "return" not in hints and not name.endswith("__init__"):
            missing.append(f"{name} -> ?")
        if not name.endswith("__") and not inspect.getdoc(function):
            missing.append(f"{name}: no docstring")
    for name, thing in things.items():
        if inspect.isclass(thing):
            typing.get_type_hints(thing)
            if not thing.__doc__ or thing.__doc__.startswith(f"{name}("):
                missing.append(f"{name}: no docstring")
    none(missing)


@every_room
def test_one_word_for_each_thing(room):
    found = [
        f"{name}({parameter}): {OLD_WORDS[parameter]}"
        for name, function in functions(public(room))
        for parameter in inspect.signature(function).parameters
        if parameter in OLD_WORDS
    ]
    none(found)


def test_a_public_name_is_given_once():
    homes = defaultdict(list)
    for room in ROOMS:
        for name in house.exports(room.file) or ():
            homes[name].append(str(room))
    none([f"{name}: {found}" for name, found in homes.items() if len(found) > 1])


@every_room
def test_live_examples_are_not_for_others(room):
    """What a chapter shows live is in its module, and not in its ``__all__``."""
    module = importlib.import_module(room.name)
    shown = []
    for _, source in house.cells(room):
        if "interact(" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "interact":
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Name):
                    shown.append(first.id)
    none([name for name in shown if name in module.__all__])
    here = [name for name in shown if hasattr(module, name)]
    assert here or not shown
    # a notebook finds the module of its function by the function's name
    none([f"{name}: {live._homes(name)}" for name in here if len(live._homes(name)) != 1])


# The sources


def texts():
    for name in sources():
        path = ROOT / name
        if path.suffix in {
            ".py",
            ".ipynb",
            ".md",
            ".toml",
            ".ini",
            ".yml",
            ".txt",
            ".js",
            ".css",
            "",
        }:
            yield name, path.read_text(encoding="utf-8")


def test_nothing_points_into_one_machine():
    """No folder of somebody's, no address of a package index."""
    own = re.compile(r"(?<![\w.:])/(?:work|root|home|opt|mnt)/\w")
    index = re.compile(r"pypi\.org|pythonhosted\.org|registry\.npmjs|index-url|file:///\w")
    this = str(Path(__file__).relative_to(ROOT))
    found = []
    for name, text in texts():
        if name != this:
            found += [f"{name}: {hit[0]}" for hit in own.finditer(text)]
            found += [f"{name}: {hit[0]}" for hit in index.finditer(text)]
    none(found)


def test_no_merge_was_left_half_done():
    marks = re.compile(r"^(<<<<<<< |>>>>>>> |=======$)", re.M)
    none([name for name, text in texts() if marks.search(text)])
    bibliography = parse_file(ROOT / "book/references.bib")
    assert len(bibliography.entries) > 10


def test_the_package_says_that_it_is_typed():
    assert (ROOT / "serving_or/py.typed").is_file()


def test_the_readme_runs(tmp_path):
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert code
    (tmp_path / "readme.py").write_text("\n".join(code))
    done = subprocess.run(
        [sys.executable, tmp_path / "readme.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
    )
    assert done.returncode == 0, done.stderr


def test_how_large_the_rooms_are(capsys):
    """A habit and not a limit: said, not held."""
    lines = list(house.report())
    with capsys.disabled():
        print("\n" + "\n".join(lines[-7:]))
    assert len(lines) > len(ROOMS)
