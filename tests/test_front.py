"""The front page, the page of decisions, the README: texts are current and code runs."""

import json
import re
import shlex
import struct
import subprocess
import sys

import pytest
import yaml

from tests.tree import ROOT

sys.path.insert(0, str(ROOT / "book" / "_ext"))
import contents
import front
import picture

INDEX = (ROOT / "book/index.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
DECISIONS = json.loads((ROOT / "book/decisions.ipynb").read_text(encoding="utf-8"))
WORDS = "\n".join("".join(c["source"]) for c in DECISIONS["cells"] if c["cell_type"] == "markdown")


def test_the_readme_lists_today_s_chapters():
    said = "run make package: the table of chapters in README.md is not that of the notebooks"
    assert contents.with_table(README) == README, said


def test_every_chapter_of_the_contents_is_listed_once():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    files = [entry.get("file", "") for part in toc["parts"] for entry in part["chapters"]]
    listed = [c.page for chapters in contents.parts().values() for c in chapters]
    assert listed == [name for name in files if name.startswith("nbs/")]
    assert all(c.title and c.claim for chapters in contents.parts().values() for c in chapters)


def test_a_table_without_its_marks_is_an_error():
    with pytest.raises(SystemExit, match="must have the marks"):
        contents.with_table("# no marks")


@pytest.mark.parametrize(
    "text, home", [(README, ROOT), (INDEX, ROOT / "book"), (WORDS, ROOT / "book")]
)
def test_links_to_files_lead_somewhere(text, home):
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)\)", text)
    assert links and not [link for link in links if not (home / link).exists()]


def test_the_front_page_s_code_runs(tmp_path):
    code = re.findall(r"```python\n(.*?)```", INDEX, re.S)
    assert code
    (tmp_path / "front.py").write_text("\n".join(code))
    command = [sys.executable, tmp_path / "front.py"]
    env = {"PYTHONPATH": str(ROOT), "PATH": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert [line[2:] for line in code[-1].splitlines() if line.startswith("# ")] == [
        line.strip() for line in done.stdout.splitlines()
    ]


def test_the_readme_s_commands_run(tmp_path, monkeypatch):
    """In their order, in an empty folder; two that compute for long have chapters that run them."""
    import numpy as np
    from typer.testing import CliRunner

    from serving_or.cli.app import command_line
    from serving_or.tools.data import load_experts

    (lines,) = re.findall(r"```sh\n(.*?)```", README, re.S)
    commands = [shlex.split(line, comments=True)[1:] for line in lines.splitlines()]
    long = ["report", "deployment.yaml"], ["sweep", "sweep.yaml"]
    assert all(any(command[:2] == start for command in commands) for start in long)
    np.save(tmp_path / "loads.npy", load_experts(window=4).loads)
    monkeypatch.chdir(tmp_path)
    for command in commands:
        if command[:2] not in long:
            done = CliRunner().invoke(command_line(), command)
            assert done.exit_code == 0, (command, done.output)
    assert {p.name for p in tmp_path.iterdir()} == {
        *("loads.npy", "fleet.yaml", "map.json", "cluster.yaml", "plan.json"),
        *("deployment.yaml", "sweep.yaml"),
    }


def test_the_repository_has_one_address():
    settings = (ROOT / "settings.ini").read_text()
    user, repo = (re.search(rf"^{key} = (.*)$", settings, re.M)[1] for key in ("user", "repo"))
    address = f"https://github.com/{user}/{repo}"
    assert address in INDEX and f"git clone {address}\n" in INDEX
    assert set(re.findall(r"https://github\.com/[\w-]+/\w+", INDEX)) == {address}


def test_install_lines_name_the_versions_that_are_tested():
    least = re.search(r"^min_python = (.*)$", (ROOT / "settings.ini").read_text(), re.M)[1]
    for text in (INDEX, README):
        assert re.search(r"Python (3\.\d+) to 3\.\d+", text)[1] == least


def test_an_example_takes_what_interact_takes(monkeypatch):
    monkeypatch.setenv("SERVING_OR_BOOK", "")
    assert front.arguments("k=(0, 4), labels={'k': 'GPUs'}") == {
        "k": (0, 4),
        "labels": {"k": "GPUs"},
    }
    html = front.example("serving_or.tools.live:slowest_first", "k=(0, 4), labels={'k': 'GPUs'}")
    assert 'class="live"' in html and "GPUs" in html
    with pytest.raises(ValueError):
        front.arguments("k=print(1)")


def test_the_jump_of_the_front_page_is_stored_whole():
    """Every position answers at once, before Python runs."""
    target, text = re.search(r"```\{live\} (\S+)\n(.*?)```", INDEX, re.S).groups()
    html = front.example(target, text)
    states = json.loads(re.search(r'live-states">(.*?)</script>', html, re.S)[1])
    ranges = front.arguments(text)
    price = ranges["move_price"]
    prices = round((price[1] - price[0]) / price[2]) + 1
    assert len(states) == (ranges["length"][1] - ranges["length"][0] + 1) * prices
    assert len(html) < 400_000


def test_the_claim_under_the_picture_holds_wherever_one_drags():
    """Also at the finer prices that a running Python offers."""
    from serving_or.experts.spikes_and_shifts import glanced

    most = {}
    for length in range(1, 13):
        for step in range(16):
            schedules = glanced(length, 2 + 0.4 * step)
            for name, s in schedules.items():
                most[name] = max(most.get(name, 0), s.cost / schedules["hindsight"].cost)
    assert most["never"] > 3.5 and most["chase"] > 1.5 and most["hedge"] < 1.25


def test_the_result_that_is_ours_is_named_with_its_link():
    for text in (INDEX, README, WORDS):
        assert "13_beyond_the_barrier.ipynb" in text and "open for checking" in " ".join(
            text.split()
        )


def test_four_decisions_lead_to_their_sections():
    table = re.findall(r"\| \[([^]]*\?)\]\(#([\w-]+)\)", WORDS)
    heads = re.findall(r"^## (.*\?)$", WORDS, re.M)
    assert [title for title, _ in table] == heads and len(heads) == 4
    assert all(f"({anchor})=\n## {title}" in WORDS for title, anchor in table)


def test_numbers_in_the_words_of_decisions_are_asserted_in_its_cells():
    code = "\n".join("".join(c["source"]) for c in DECISIONS["cells"] if c["cell_type"] == "code")
    checks = re.findall(r"^assert (.*)$", code, re.M)
    assert len(checks) >= 8
    assert not any(c.get("outputs") for c in DECISIONS["cells"])


def size(path):
    "Width and height of a PNG."
    head = path.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    return struct.unpack(">II", head[16:24])


def test_the_picture_is_made_by_its_script(browser, site, tmp_path):
    page = browser.new_page()
    picture.take(page, f"{site}/book/index.html", tmp_path / "page.png")
    page.close()
    both = (picture.WIDTH, picture.HEIGHT)
    assert size(tmp_path / "page.png") == size(ROOT / "book/_static/page.png") == both


@pytest.mark.parametrize("wide, high", [(390, 844), (1280, 800)])
def test_the_front_page_says_it_in_one_screen(browser, site, wide, high):
    """What the book is, three doors, and the whole picture, without scrolling."""
    page = browser.new_page(viewport={"width": wide, "height": high})
    page.goto(f"{site}/book/index.html")
    page.wait_for_selector(".live.on")
    for part in ("h1", ".front-lead", ".doors", ".live-controls", ".live-out"):
        box = page.locator(f"article {part}").first.bounding_box()
        assert box["y"] + box["height"] <= high and box["x"] + box["width"] <= wide, part
    assert page.locator(".doors a").count() == 3
    assert page.evaluate("document.documentElement.scrollWidth") <= wide
    shown = page.locator(".live-out").inner_html()
    page.locator('[name="length"]').fill("11")
    page.wait_for_function(
        "old => document.querySelector('.live-out').innerHTML !== old", arg=shown
    )
    assert "12 steps" in page.locator(".live-out").inner_text()
    page.close()


def test_the_map_has_every_chapter(browser, site):
    page = browser.new_page()
    page.goto(f"{site}/book/index.html")
    listed = page.locator(".chapter-map a").count()
    assert listed == sum(map(len, contents.parts().values()))
    page.close()
