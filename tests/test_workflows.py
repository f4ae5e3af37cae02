"""The workflows: what they may do, and that what they call is there."""

import os
import re
import stat
import subprocess
from configparser import ConfigParser

import pytest
import yaml

from tests.tree import ROOT

FILES = sorted((ROOT / ".github/workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.M))
BADGE = re.compile(r"^\[!\[([^]]*)\]\(([^)]*)\)\]\(([^)]*)\)$", re.M)
# What a job may have beyond reading, and the step that needs it.
GRANTS = {
    ("site", "deploy"): ({"pages": "write", "id-token": "write"}, "actions/deploy-pages@"),
    ("site", "notebooks"): ({"contents": "write"}, ".ci/notebooks"),
    ("release", "publish"): ({"id-token": "write"}, "gh-action-pypi-publish@"),
}


def read(path):
    """A workflow; YAML takes the key `on` for a truth value."""
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {"on" if key is True else key: value for key, value in found.items()}


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def workflow(request):
    return read(request.param)


def steps(workflow):
    return [(name, step) for name, job in workflow["jobs"].items() for step in job["steps"]]


def test_there_are_three():
    assert [path.stem for path in FILES] == ["release", "site", "tests"]
    assert [read(path)["name"] for path in FILES] == ["release", "site", "tests"]


def test_a_workflow_may_read_and_a_job_no_more_than_it_needs(workflow):
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        granted, why = GRANTS.get((workflow["name"], name), (None, ""))
        assert job.get("permissions") == granted, name
        assert why in str(job["steps"])
        assert "secrets." not in str(job)


def test_actions_have_a_major_version_and_runs_do_not_pile_up(workflow):
    for _, step in steps(workflow):
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|release/v\d+)", step["uses"])
    assert workflow["concurrency"]["group"] and "cancel-in-progress" in workflow["concurrency"]


def test_every_command_is_a_target_or_a_file(workflow):
    called = 0
    for name, step in steps(workflow):
        for line in step.get("run", "").splitlines():
            words = line.split()
            assert words[0] in ("make", "git", "test") or words[0].startswith(".ci/"), (name, line)
            if words[0] == "make":
                targets = [word for word in words[1:] if "=" not in word]
                assert targets and set(targets) <= TARGETS, line
                made = [word.partition("=")[2] for word in words if word.startswith("LOCK=")]
                assert all((ROOT / lock).is_file() for lock in made)
            elif words[0].startswith(".ci/"):
                assert os.stat(ROOT / words[0]).st_mode & stat.S_IXUSR, line
            called += 1
    assert called


def test_every_python_that_is_promised_is_tested():
    jobs = read(ROOT / ".github/workflows/tests.yml")["jobs"]
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    promised = re.findall(r"Programming Language :: Python :: (3\.\d+)", setup)
    assert jobs["newest"]["strategy"]["matrix"]["python"] == promised
    assert "constraints-oldest.txt" in str(jobs["oldest"]["steps"])


def test_badges_say_what_the_settings_say():
    """Tests and book by their workflows on `main`, licence and versions as in `setup.py`."""
    ini = ConfigParser(delimiters=["="])
    ini.read(ROOT / "settings.ini", encoding="utf-8")
    of = ini["DEFAULT"]
    repo = of["git_url"]
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    python = re.findall(r"Programming Language :: Python :: (3\.\d+)", setup)
    licence = re.search(r'license="(.*?)"', setup)[1]
    head = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## ")[0]
    badges = {words: (shown, to) for words, shown, to in BADGE.findall(head)}
    for words, name in (("tests", "tests"), ("book", "site")):
        assert (ROOT / f".github/workflows/{name}.yml").is_file()
        workflow = f"{repo}/actions/workflows/{name}.yml"
        assert badges[words][0] == f"{workflow}/badge.svg?branch={of['branch']}"
    book = f"{of['doc_host']}{of['doc_baseurl']}"
    assert badges["tests"][1] == f"{repo}/actions/workflows/tests.yml"
    assert badges["book"][1] == book
    versions, shield = f"{python[0]} to {python[-1]}", "https://img.shields.io/badge/"
    shown, to = badges[f"Python {versions}"]
    assert shown == f"{shield}Python-{versions.replace(' ', '_')}-blue" and (ROOT / to).is_file()
    shown, to = badges[f"licence: {licence}"]
    assert shown == f"{shield}licence-{licence.replace('-', '--')}-blue" and (ROOT / to).is_file()
    assert len(badges) == 4
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    told = {key: cited[key] for key in ("version", "license", "repository-code", "url")}
    wanted = {"version": of["version"], "license": licence, "repository-code": repo, "url": book}
    assert told == wanted


def test_a_release_is_the_version_of_the_settings(tmp_path):
    release = read(ROOT / ".github/workflows/release.yml")
    assert list(release["on"]) == ["push"] and list(release["on"]["push"]) == ["tags"]
    (command,) = (s["run"] for _, s in steps(release) if s.get("run", "").startswith("test "))
    version = re.search(r"^version = (.*)$", (ROOT / "settings.ini").read_text(), re.M)[1]
    for tag, code in ((f"v{version}", 0), ("v99.0.0", 1)):
        env = {"GITHUB_REF_NAME": tag, "PATH": os.environ["PATH"]}
        assert subprocess.run(["sh", "-c", command], cwd=ROOT, env=env).returncode == code
    made, out = (list(release["jobs"][name]["steps"]) for name in ("build", "publish"))
    assert any(step.get("run", "").startswith("make dist") for step in made)
    assert release["jobs"]["publish"]["needs"] == "build"
    assert not any("run" in step for step in out)


def test_published_notebooks_go_to_a_branch_of_their_own(tmp_path):
    """On a remote of this machine: without history, and the tree here stays as it was."""
    remote, folder = tmp_path / "remote.git", tmp_path / "published"
    clone = tmp_path / "clone"
    (folder / "nbs/x").mkdir(parents=True)

    def git(*words, at=clone):
        done = subprocess.run(["git", *words], cwd=at, capture_output=True, text=True, check=True)
        return done.stdout

    git("init", "-q", "--bare", str(remote), at=tmp_path)
    git("init", "-q", str(clone), at=tmp_path)
    (clone / ".ci").mkdir()
    (clone / ".ci/notebooks").write_bytes((ROOT / ".ci/notebooks").read_bytes())
    (clone / ".ci/notebooks").chmod(0o755)
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    git("add", "-A")
    git(*who, "commit", "-qm", "first")
    env = os.environ | {"REMOTE": str(remote), "GITHUB_ACTOR": "someone"}
    for text in ("{}", "[]"):
        (folder / "nbs/x/01_y.ipynb").write_text(text)
        subprocess.run([clone / ".ci/notebooks", folder], env=env, check=True)
    assert git("ls-tree", "-r", "--name-only", "notebooks", at=remote) == "nbs/x/01_y.ipynb\n"
    assert git("show", "notebooks:nbs/x/01_y.ipynb", at=remote) == "[]"
    assert git("rev-list", "--count", "notebooks", at=remote) == "1\n"
    assert git("status", "--porcelain") == ""


def test_binder_has_a_python_that_is_tested_and_installs_this_source():
    python = (ROOT / "binder/runtime.txt").read_text().strip().removeprefix("python-")
    assert f"Python :: {python}" in (ROOT / "setup.py").read_text()
    script = ROOT / "binder/postBuild"
    assert os.stat(script).st_mode & stat.S_IXUSR
    command = re.search(r"^python -m pip (install .*)$", script.read_text(), re.M)[1]
    assert command == "install --no-cache-dir -c constraints.txt '.[fast]'"
