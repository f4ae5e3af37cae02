"""The book's own site of notebooks: chapters that a reader runs in the browser, without a server.

    python book/_ext/lite.py HTML [PYODIDE]

JupyterLite goes to HTML/lite, with the chapters, the wheel that the live examples use, and the
wheels of packages of pure Python that Pyodide does not carry, packed from this environment. Python
itself comes from its public host, or from a folder that holds the release that the kernel wants.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib.metadata import distribution
from pathlib import Path, PurePosixPath

import nbformat
from launch import OWN, ROOT, asked_for, carried, needs, plain, published, sources_of, why_not

LABEXTENSIONS = Path(sys.prefix, "share/jupyter/labextensions")
EXTENSIONS = ("@jupyterlite/pyodide-kernel-extension", "@jupyter-widgets/jupyterlab-manager")
# of the environment's extensions only those named
IGNORE = {"ignore_sys_prefix": ["federated_extensions"]}
KERNEL = "@jupyterlite/pyodide-kernel-extension:kernel"
RELEASE = re.compile(r"pyodide/v([\d.]+)/full")
CORE = ("pyodide.mjs", "pyodide.asm.*", "python_stdlib.zip", "pyodide-lock.json")
# What the kernel itself loads from the interpreter's packages.
FOR_KERNEL = ("micropip", "packaging", "ipython", "jedi")
NEEDS = """This is a chapter of *Operations research for serving AI models*, in a Python that runs \
in your browser. Run all cells (Run, Run All Cells); the first fetches NumPy and what else the \
chapter loads, and may take a minute. Changes stay in your browser."""
INSTALL = """import piplite

await piplite.install({known})
await piplite.install(["serving_or"], deps=False)"""


def packed(name, folder):
    "A wheel of an installed package of pure Python, packed again."
    of = distribution(name)
    made = folder / f"{of.metadata['Name'].replace('-', '_')}-{of.version}-py3-none-any.whl"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as z:
        for path in of.files:
            inside = ".." not in path.parts and "__pycache__" not in path.parts
            if inside and path.name not in ("INSTALLER", "REQUESTED", "direct_url.json"):
                z.write(path.locate(), str(PurePosixPath(path)))
    return made


def chapter(page, told):
    "A chapter's notebook for the browser."
    wanted = needs(told, sources_of(page)) & set(carried()["packages"])
    code = INSTALL.format(known=json.dumps([*sorted(wanted), "ipywidgets"]))
    nb = published(ROOT / f"{page}.ipynb", NEEDS, code)
    nb.metadata["kernelspec"] = {"name": "python", "display_name": "Python (Pyodide)"}
    return nb


def entry(root, path):
    "A file or folder as Jupyter's listings have it, folders with their entries."
    name = path.relative_to(root).as_posix() if path != root else ""
    kind = "directory" if path.is_dir() else "notebook"
    time = "2026-01-01T00:00:00Z"
    return {
        "name": path.name if name else "",
        "path": name,
        "type": kind,
        "created": time,
        "last_modified": time,
        "mimetype": None,
        "size": None if path.is_dir() else path.stat().st_size,
        "writable": True,
        "format": None,
        "content": None,
    }


def write_listings(files, api):
    "Of each folder its entries, where the site looks for them."
    for folder in [files, *(path for path in files.rglob("*") if path.is_dir())]:
        content = [entry(files, path) for path in sorted(folder.iterdir())]
        listing = {**entry(files, folder), "format": "json", "content": content}
        to = api / folder.relative_to(files) / "all.json"
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(json.dumps(listing), encoding="utf-8")


def build(site, wheel, work):
    "JupyterLite with its kernel, widgets and our wheels, without notebooks."
    wheels = work / "pypi"
    wheels.mkdir()
    shutil.copy2(wheel, wheels)
    for name in OWN:
        packed(name, wheels)
    extensions = [str(LABEXTENSIONS / name) for name in EXTENSIONS]
    config = {"LiteBuildConfig": {"federated_extensions": extensions} | IGNORE}
    (work / "jupyter_lite_config.json").write_text(json.dumps(config))
    asked = ["--apps", "notebooks", "--no-sourcemaps", "--no-unused-shared-packages"]
    command = [sys.executable, "-W", "ignore", "-m", "jupyter", "lite", "build", *asked]
    to = ["--lite-dir", str(work), "--output-dir", str(site)]
    done = subprocess.run([*command, *to], cwd=work, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)


def configure(site, address):
    "Where listings are, and the interpreter if it is not the kernel's own choice."
    path = site / "jupyter-lite.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    data = config["jupyter-config-data"]
    data |= {"contentsAllJsonFile": "all.json", "appName": "Serving AI models"}
    kernel = data.setdefault("litePluginSettings", {}).setdefault(KERNEL, {})
    if address:
        kernel["pyodideUrl"] = address
    path.write_text(json.dumps(config, indent=1), encoding="utf-8")


def files_of(lock, names):
    "The files of some packages of an interpreter's list, and of what they depend on."
    packages = {plain(name): e for name, e in lock["packages"].items()}
    found, todo = {}, [plain(name) for name in names]
    while todo:
        name = todo.pop()
        found[name] = packages[name]["file_name"]
        todo += [plain(n) for n in packages[name]["depends"] if plain(n) not in found]
    return sorted(found.values())


def bundle(source, site):
    "The interpreter beside the notebooks, where the folder has the release that the kernel wants."
    lock = json.loads((source / "pyodide-lock.json").read_text(encoding="utf-8"))
    if lock["info"]["python"] != carried()["python"]:
        said = f"{source} has Python {lock['info']['python']}, notebooks want {carried()['python']}"
        print(f"{said}: they take it from its public host")
        return ""
    wanted = [*FOR_KERNEL, *(asked_for() & set(map(plain, lock["packages"])))]
    files = [path for part in CORE for path in sorted(source.glob(part))]
    files += [path for name in files_of(lock, wanted) if (path := source / name).is_file()]
    to = site / "pyodide"
    to.mkdir()
    for path in files:
        shutil.copy2(path, to)
    return "./pyodide/pyodide.mjs"


def version():
    "The release of Pyodide that the kernel takes from its public host."
    scripts = (LABEXTENSIONS / EXTENSIONS[0]).rglob("*.js")
    found = {hit for path in scripts for hit in RELEASE.findall(path.read_text(encoding="utf-8"))}
    (one,) = found
    return one


def table(lock):
    "What an interpreter's list says of the packages that the project asks for."
    names = asked_for() | asked_for("fast", "engines", "cluster", "dev", "bench")
    found = {plain(e["name"]): e["version"] for e in lock["packages"].values()}
    if "cvxpy-base" in found:  # the same package, without solvers of its own
        found["cvxpy"] = found["cvxpy-base"]
    info = {"version": version(), "python": lock["info"]["python"]}
    return info | {"packages": {name: found[name] for name in sorted(names & set(found))}}


def main(html, pyodide=""):
    html = Path(html).resolve()
    site, live = html / "lite", html / "_static"
    runs = json.loads((html.parent / "runs.json").read_text(encoding="utf-8"))
    wheel = live / json.loads((live / "live.json").read_text(encoding="utf-8"))["wheel"]
    shutil.rmtree(site, ignore_errors=True)
    with tempfile.TemporaryDirectory() as work:
        build(site, wheel, Path(work).resolve())
    for page, told in runs.items():
        if not why_not(told, sources_of(page)):
            to = site / "files" / f"{page}.ipynb"
            to.parent.mkdir(parents=True, exist_ok=True)
            nbformat.write(chapter(page, told), to)
    write_listings(site / "files", site / "api" / "contents")
    configure(site, bundle(Path(pyodide), site) if pyodide else "")
    count = len(list((site / "files").rglob("*.ipynb")))
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    print(f"lite: {count} of {len(runs)} chapters run in a browser, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(*sys.argv[1:3])
