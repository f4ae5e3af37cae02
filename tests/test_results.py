"""What is proved, quoted, measured: the marks in the chapters are whole and name what exists."""

import re
import sys

import nbformat
import pytest

from tests.tree import ROOT

sys.path.insert(0, str(ROOT / "book" / "_ext"))
import results

BOOK = results.book()
CHAPTERS = [chapter for chapters in BOOK.values() for chapter in chapters]
STATEMENTS = [s for chapter in CHAPTERS for s in chapter.statements]
EXHIBITS = [e for chapter in CHAPTERS for e in chapter.exhibits]
WORKS = set(re.findall(r"^@\w+\{([^,]+),", (ROOT / "book/references.bib").read_text(), re.M))


def notebook(*cells):
    make = nbformat.v4.new_markdown_cell
    return nbformat.v4.new_notebook(cells=[make(text) for text in cells])


def read(*cells):
    return results.statements("nbs/experts/01_model", notebook(*cells))


THEOREM = ":::{prf:theorem} A name\n:label: thm-a-b\n\nSo it is.\n:::"
PROOF = ":::{prf:proof}\nClear.\n:::"


def test_a_proof_right_behind_proves():
    (found,) = read(f"{THEOREM}\n\n{PROOF}")
    assert found.proved and found.standing == "proved"
    assert (found.kind, found.title, found.label) == ("theorem", "A name", "thm-a-b")


@pytest.mark.parametrize(
    "cells",
    [(THEOREM,), (f"{THEOREM}\n\nWords.\n\n{PROOF}",), (THEOREM, "Words.", PROOF)],
    ids=["none", "after words", "another cell"],
)
def test_any_other_proof_does_not(cells):
    assert not read(*cells)[0].proved


def test_a_proof_further_on_names_what_it_proves():
    other = THEOREM.replace("thm-a-b", "lem-a-c").replace("theorem", "lemma")
    named = PROOF.replace("Clear", "*Of {prf:ref}`thm-a-b`.* Clear")
    first, second = read(THEOREM, other, "Words.", named)
    assert first.proved and not second.proved


def test_marks_are_read():
    marks = ":label: thm-a-b\n:class: ours\n:code: water_level, experts.place"
    (found,) = read(THEOREM.replace(":label: thm-a-b", marks))
    assert found.standing == "ours"
    assert results.targets(found) == {
        "water_level": "serving_or.experts.model.water_level",
        "experts.place": "serving_or.experts.static.place",
    }
    quoted = ":label: thm-a-b\n:class: quoted\n\nBy {cite:t}`sun2025bprr, knight2011zoo`."
    (found,) = read(THEOREM.replace(":label: thm-a-b", quoted))
    assert found.standing == "quoted" and found.cited == ["sun2025bprr", "knight2011zoo"]


def test_names_that_do_not_exist_are_none():
    marks = ":label: thm-a-b\n:code: nowhere, experts.nowhere, experts.model.latency"
    (found,) = read(THEOREM.replace(":label: thm-a-b", marks))
    assert list(results.targets(found).values()) == [
        None,
        None,
        "serving_or.experts.model.latency",
    ]


def test_every_theorem_has_a_name_a_label_and_a_proof_or_a_source():
    assert len(STATEMENTS) > 150
    wrong = [
        f"{s.page}: {s.kind} {s.title!r}"
        for s in STATEMENTS
        if not (s.title and s.label and (s.cited if s.standing == "quoted" else s.proved))
    ]
    assert not wrong
    assert len({s.label for s in STATEMENTS}) == len(STATEMENTS)


def test_nothing_quoted_has_a_proof_and_marks_are_known():
    assert not [s.label for s in STATEMENTS if s.standing == "quoted" and s.proved]
    marks = {mark for s in STATEMENTS for mark in s.marks}
    assert marks <= {"ours", "quoted"}


def test_no_code_names_what_is_not_there():
    missing = [
        f"{s.label}: {name}"
        for s in STATEMENTS
        for name, target in results.targets(s).items()
        if target is None
    ]
    assert not missing


def test_chapters_that_prove_say_what_their_sources_are():
    """And what they say names no theorem or figure that is not there."""
    silent = [c.page for c in CHAPTERS if c.statements and not c.sources]
    assert not silent
    labels = {s.label for s in STATEMENTS}
    shown = {e.label for e in EXHIBITS}
    for chapter in CHAPTERS:
        assert set(re.findall(r"\{prf:ref\}`([^`<]+)`", chapter.sources)) <= labels
        assert set(re.findall(r"\{numref\}`([^`<]+)`", chapter.sources)) <= shown


def test_what_is_marked_as_ours_is_called_so_in_words():
    words = re.compile(r"\bours\b|worked out here", re.I)
    for chapter in CHAPTERS:
        if any(s.standing == "ours" for s in chapter.statements):
            assert words.search(chapter.sources), chapter.page


def test_every_source_of_a_figure_exists():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    for exhibit in EXHIBITS:
        if exhibit.source.startswith("make "):
            assert exhibit.source.removeprefix("make ") in targets, exhibit.label
        elif exhibit.source.startswith("bench/"):
            assert (ROOT / exhibit.source).is_file(), exhibit.label
        elif exhibit.source:
            assert exhibit.source in WORKS, exhibit.label


def test_every_bench_that_a_chapter_names_exists():
    named = [name for c in CHAPTERS for name in results.BENCH.findall(c.sources)]
    assert len(named) > 10 and all((ROOT / name).is_file() for name in named)


def test_the_list_has_every_theorem_and_every_figure_once():
    text = "\n".join(results.everything())
    for statement in STATEMENTS:
        assert text.count(f"| {{prf:ref}}`{statement.label}` |") == 1
    for exhibit in EXHIBITS:
        assert text.count(f"| {{numref}}`{exhibit.label}` |") == 1
    counts = {h: sum(results.counted(c)[h] for c in BOOK.values()) for h in results.STANDINGS}
    assert sum(counts.values()) == len(STATEMENTS) + len(EXHIBITS)


def test_links_in_words_that_were_moved_lead_somewhere():
    text = "\n".join(results.everything())
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)\)", text)
    assert links and not [link for link in links if not (ROOT / "book" / link).exists()]


def test_theorems_are_listed_by_name():
    lines = results.all_theorems()
    for statement in STATEMENTS:
        assert sum(f"`{statement.label}`" in line for line in lines) == 1
    fleet = [s for c in BOOK["Fleet"] for s in c.statements]
    rows = [line for line in lines if "{prf:ref}" in line][: len(fleet)]
    names = sorted(fleet, key=results.by_name)
    assert [row.split(" | ")[0][2:] for row in rows] == [s.title for s in names]


def test_every_door_that_optimises_is_among_the_algorithms():
    from serving_or import blocks, experts, fleet
    from serving_or.tools.answers import Result

    for part in (experts, blocks, fleet):
        own = part.__name__.rpartition(".")[2]
        listed = {name for name, *_ in results.algorithms(own)}
        assert listed <= set(part.__all__)
        for name in part.__all__:
            door = getattr(part, name)
            if isinstance(door, type) and issubclass(door, Result):
                assert name not in listed
            elif name.endswith("bound"):
                assert name in listed
    assert {"place", "run", "optimum", "plan", "relax", "Credit"} <= {
        name for name, *_ in results.algorithms("experts")
    }


def test_rows_of_tables_have_as_many_cells_as_their_heads():
    for made in results.LISTS.values():
        width = None
        for line in made():
            if not line.startswith("|"):
                width = None
                continue
            cells = len(re.split(r"(?<!\\)\|", line))
            assert width in (None, cells), line
            width = cells


OPEN = nbformat.read(ROOT / "book/open_questions.ipynb", as_version=4)
WORDS = "\n".join(c.source for c in OPEN.cells if c.cell_type == "markdown")


def test_the_table_of_open_questions_has_every_section_once():
    rows = re.findall(r"^\| \[[^]]+\]\(#([\w-]+)\) \|", WORDS, re.M)
    sections = re.findall(r"^\(([\w-]+)\)=$", WORDS, re.M)
    assert len(rows) > 15 and rows == sections


def test_every_open_question_says_what_is_known_and_open_and_has_an_experiment():
    """Of a dozen lines at most, and with an assertion on what it shows."""
    for question in WORDS.split("\n(")[1:]:
        assert question.count("*Known.*") == question.count("*Open.*") == 1, question[:40]
    experiments = [c.source for c in OPEN.cells if c.cell_type == "code"][1:]
    assert len(experiments) == len(re.findall(r"^\(", WORDS, re.M))
    for source in experiments:
        assert "assert " in source and len(source.splitlines()) <= 12


def test_open_questions_name_theorems_that_are_there():
    named = set(re.findall(r"\{prf:ref\}`([^`<]+)`", WORDS))
    assert len(named) > 20 and named <= {s.label for s in STATEMENTS}
    links = re.findall(r"\]\((\.\.[^)#]+)\)", WORDS)
    assert links and all((ROOT / "book" / link).is_file() for link in links)
