"""Fetch the engines that the package registry has, and unpack the parts that place experts.

``python -m tests.clients.fetch FOLDER`` leaves vllm/, sglang/ and vllm_ascend/ in the folder, and
what it has fetched in FOLDER/fetched. Nothing of it is installed, and none of it is ours.
"""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

# what is fetched, and which files of it are unpacked
ENGINES = {
    "vllm==0.33.0": "vllm/distributed/eplb/",
    "sglang==0.5.23": "sglang/srt/eplb/",
    "vllm-ascend==0.23.0.post1": "vllm_ascend/eplb/",
}
# vLLM-Ascend has a source archive only, whose metadata wants a card's name
SETTINGS = {"SOC_VERSION": "ascend910b1", "COMPILE_CUSTOM_KERNELS": "0"}


def fetch(engine: str, folder: Path) -> Path:
    """The archive of an engine, fetched once."""
    name, version = engine.split("==")
    there = sorted(folder.glob(f"{name.replace('-', '[-_]')}-{version}*"))
    if not there:
        how = ["--no-deps", "--no-build-isolation", "-q", "-d", str(folder)]
        subprocess.run(
            [sys.executable, "-m", "pip", "download", *how, engine],
            check=True,
            env=os.environ | SETTINGS,
        )
        there = sorted(folder.glob(f"{name.replace('-', '[-_]')}-{version}*"))
    return there[0]


def unpack(archive: Path, part: str, folder: Path) -> int:
    """Write the Python files of one part; how many there were."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as whole:
            found = {name: whole.read(name) for name in whole.namelist()}
    else:
        with tarfile.open(archive) as whole:
            members = [m for m in whole.getmembers() if m.isfile()]
            # the first folder has the name of the archive
            found = {m.name.partition("/")[2]: whole.extractfile(m).read() for m in members}
    wanted = {n: b for n, b in found.items() if n.startswith(part) and n.endswith(".py")}
    for name, content in wanted.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return len(wanted)


def main(folder: Path) -> None:
    """Fetch and unpack every engine."""
    fetched = folder / "fetched"
    fetched.mkdir(parents=True, exist_ok=True)
    for engine, part in ENGINES.items():
        count = unpack(fetch(engine, fetched), part, folder)
        print(f"{engine}: {count} files of {part}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
