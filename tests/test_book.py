"""What the book makes of a notebook before Sphinx sees it: folds, captions, numbers, links."""

import ast
import json
import sys

import nbformat
import pytest

from tests.tree import ROOT

sys.path.insert(0, str(ROOT / "book" / "_ext"))
import captions
import chapter_numbers
import folds
import nbdev_book
import reference

FUNCTION = '''def share(loads, gpus):
    """Load of each GPU.

    Parameters
    ----------
    loads : array_like
    """
    return loads / gpus'''
LONG = "def share(loads):\n    " + "\n    ".join(f"a{i} = {i}" for i in range(20))
NOTEBOOKS = sorted(ROOT.glob("nbs/*/[0-9]*.ipynb"))


@pytest.mark.parametrize(
    "source, told, whole, words",
    [
        ("import json\nimport re", {}, "Imports, 2 lines", []),
        ("import json", {}, None, []),
        (FUNCTION, {"export": ""}, None, ["⋯ 5 lines of documentation"]),
        (LONG, {"export": ""}, None, ["⋯ body, 20 lines"]),
        (LONG, {"export": "", "code-fold": "false"}, None, []),
        (LONG.replace("share", "_share"), {"export": ""}, "_share, 21 lines", []),
        (LONG.replace("def share(loads)", "class A"), {"export": ""}, "class A, 21 lines", []),
        ("x = 1", {"code-fold": "true"}, "x, 1 line", []),
        ("interact(picture, k=(0, 4))", {}, "The example's call, 1 line", []),
        ("fig, ax = plt.subplots()\n" + "ax.plot(x)\n" * 5, {}, "Code of the figure, 6 lines", []),
        ("x = f(1)\n" * 8 + "assert x\n" * 4, {}, None, ["⋯ checks, 4 lines"]),
        ("assert x", {}, None, []),
        ("%magic", {}, None, []),
    ],
)
def test_what_is_in_view(source, told, whole, words):
    summary, ranges = folds.folds(source, told)
    assert (summary[0] if summary else None) == whole
    assert [said for *_, said in ranges] == words


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_folds_of_all_chapters_are_ranges_of_their_cells(notebook):
    """Apart, in order, never the first line; and a page shows a third of its code at most."""
    seen = lines = 0
    for cell in nbformat.read(notebook, 4).cells:
        if cell.cell_type != "code":
            continue
        directives, source = nbdev_book.split_directives(cell.source)
        whole, ranges = folds.folds(source, dict(directives))
        n = len(source.splitlines())
        lines += n
        seen += 0 if whole else n - sum(last - first + 1 for first, last, _ in ranges)
        ends = [1] + [last for _, last, _ in ranges]
        assert all(first > end for (first, _, _), end in zip(ranges, ends))
        assert all(first <= last <= n for first, last, _ in ranges)
    assert seen <= 0.6 * lines


def test_buttons_leave_every_line_in_its_place():
    html = '<div class="highlight"><pre><span></span>a\nb\nc\nd\n</pre></div>'
    made = folds.with_buttons(html, [(2, 3, "⋯ <2>")])
    button = '<button type="button" class="unfold" aria-expanded="false" data-words="⋯ &lt;2&gt;">'
    fold = f'a{button}⋯ &lt;2&gt;</button><span class="fold">\nb\nc</span>\nd\n'
    assert made == html.replace("a\nb\nc\nd\n", fold)


def test_captions_come_from_directives_and_calls():
    told = {"label": "fig-model-water", "fig-cap": "Latency, in tokens."}
    assert captions.of_cell("plot()", told, "model") == ("fig-model-water", "Latency, in tokens.")
    call = "interact(stay_or_move, caption='Cost' ' of three.', k=(0, 4))"
    assert captions.of_cell(call, {}, "one_step") == ("fig-one_step-stay_or_move", "Cost of three.")
    assert captions.of_cell("interact(stay, k=(0, 4))", {}, "model") is None
    assert captions.of_cell("frame", {"tbl-cap": "T."}, "model")[0].startswith("tbl-model")


def test_labels_of_all_captions_are_of_the_form_and_given_once():
    labels = []
    for path in NOTEBOOKS:
        module = path.stem.partition("_")[2]
        for cell in nbformat.read(path, 4).cells:
            if cell.cell_type == "code":
                directives, source = nbdev_book.split_directives(cell.source)
                found = captions.of_cell(source, dict(directives), module)
                labels += [found[0]] if found else []
    wrong = [label for label in labels if not captions.LABEL.fullmatch(label)]
    assert not wrong and len(set(labels)) == len(labels)


def test_a_chapter_has_the_number_of_its_file():
    assert chapter_numbers.number_of("nbs/experts/07_regularized_greedy") == "E7"
    assert chapter_numbers.number_of("book/index") is None
    numbers = [chapter_numbers.number_of(str(p.relative_to(ROOT))) for p in NOTEBOOKS]
    assert len(set(numbers)) == len(numbers)


def test_a_chapter_rests_on_what_its_module_imports_and_no_more():
    nbdev_book.module_imports.cache_clear()
    assert nbdev_book.before("serving_or.experts.model") == []
    assert nbdev_book.before("serving_or.experts.one_step") == ["nbs/experts/01_model"]
    said = nbdev_book.compass("experts.one_step")
    assert "E1 The serving model </nbs/experts/01_model>" in said
    assert "/book/reference/experts.one_step" in said


def test_every_front_door_has_its_place_first_on_its_module_s_page():
    for part in ("experts", "blocks"):
        for name, target in reference.front_doors(part).items():
            module = target.rpartition(".")[0]
            if module in reference.modules():
                text = reference.page(module, nbdev_book.all_modules()[module])
                assert f":: {target}\n" in text.partition("## Further names")[0], name


def test_directives_of_a_cell_are_told_and_vanish():
    nb = nbformat.v4.new_notebook()
    lines = "#| label: fig-x-y\n#| fig-cap: A *caption*: with a colon.\nplot()"
    nb.cells = [nbformat.v4.new_markdown_cell("# X"), nbformat.v4.new_code_cell(lines)]
    read = nbdev_book.read_notebook(json.dumps(nb))
    assert read.cells[1].source == "plot()"
    assert read.cells[2].source == "::::{cell-caption} fig-x-y\nA *caption*: with a colon.\n::::"


GREEK = {"alpha", "beta", "gamma", "delta", "eps", "epsilon", "eta", "theta", "mu", "rho", "sigma"}
GREEK |= {"tau", "phi", "lambda"}


def called_in(source):
    "Of each live example in a cell: its controls, and the labels that it gives, if they are plain."
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "interact":
            given = {k.arg: k.value for k in node.keywords}
            labels = given.pop("labels", ast.Dict([], []))
            controls = set(given) - {"units", "caption", "packages"}
            if isinstance(labels, ast.Dict):
                yield controls, ast.literal_eval(labels)


def test_no_control_is_labelled_by_the_name_of_a_variable():
    unnamed = [
        f"{path.stem}: {name}"
        for path in NOTEBOOKS
        for cell in nbformat.read(path, 4).cells
        if cell.cell_type == "code" and "interact(" in cell.source
        for controls, labels in called_in(nbdev_book.split_directives(cell.source)[1])
        for name in sorted(controls)
        if len(word := labels.get(name, name)) > 1
        if word in GREEK or "_" in word or (name not in labels and len(name) < 4)
    ]
    assert not unnamed
