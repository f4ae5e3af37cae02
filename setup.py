"Package metadata, read from settings.ini so that nbdev and pip agree."

from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup

here = Path(__file__).parent
ini = ConfigParser(delimiters=["="])
ini.read(here / "settings.ini", encoding="utf-8")
cfg = ini["DEFAULT"]
CLASSIFIERS = [
    "Development Status :: 3 - Alpha",
    "Intended Audience :: Science/Research",
    "Intended Audience :: Developers",
    "Programming Language :: Python :: 3",
    "Programming Language :: Python :: 3.11",
    "Programming Language :: Python :: 3.12",
    "Programming Language :: Python :: 3.13",
    "Topic :: Scientific/Engineering :: Mathematics",
    "Typing :: Typed",
]

setup(
    name=cfg["lib_name"],
    version=cfg["version"],
    description=cfg["description"],
    long_description=(here / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author=cfg["author"],
    keywords=cfg["keywords"].split(),
    license="Apache-2.0",
    license_files=["LICENSE"],
    packages=find_packages(include=[cfg["lib_path"], f"{cfg['lib_path']}.*"]),
    package_data={cfg["lib_path"]: ["py.typed", "data/*", "data/*/*"]},
    classifiers=CLASSIFIERS,
    python_requires=f">={cfg['min_python']}",
    install_requires=cfg["requirements"].split(),
    extras_require={
        extra: cfg[f"{extra}_requirements"].split()
        for extra in ("fast", "engines", "cluster", "dev", "bench")
    },
    entry_points={
        "nbdev": [f"{cfg['lib_path']}={cfg['lib_path']}._modidx:d"],
        "console_scripts": ["serving-or = serving_or.cli.start:program"],
    },
)
