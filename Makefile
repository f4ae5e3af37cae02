# Two commands: `make book` sets up, runs every chapter and builds the site; `make test` sets up and tests.
VENV    := .venv
BIN     := $(abspath $(VENV)/bin)
PYTHON  ?= python3
# The newest versions that ran together; constraints-oldest.txt has the oldest.
LOCK    ?= constraints.txt
WORKERS ?= 2
# A folder with Pyodide, to be put into the site; without one, live examples fetch it from its own host.
PYODIDE ?=
PORT    ?= 8000
HTML    := book/_build/html
LIVE    := book/_build/live
# Stamp of the last export.
EXPORT  := build/exported
SOURCES  = $(shell find nbs serving_or settings.ini pyproject.toml -type f \( -name '*.ipynb' -o -name '*.py' -o -name '*.ini' -o -name '*.toml' \) -not -path '*/.ipynb_checkpoints/*')
PAGES    = $(shell find nbs book -type f -not -path '*/_build/*' -not -path '*/__pycache__/*' -not -path '*/.ipynb_checkpoints/*')
# Each chapter runs once, for the tests and for the book, when it or what it imports has changed.
CHAPTERS = SERVING_OR_BOOK=1 python book/_ext/run_notebooks.py $(WORKERS)
# Jupyter starts the kernel of the environment that is first on PATH.
export PATH := $(BIN):$(PATH)

.PHONY: help book test lint test-long new bench house picture serve package lock lock-oldest clean clients swarm lite links outside dist

help:  ## this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*##/\t/'

book: $(HTML)/.built  ## build the book in book/_build/html (PYODIDE=folder: no foreign host, ever)
	@echo "The book is $(CURDIR)/$(HTML)/index.html (make serve shows it)"

# live.json changes with any file of the package, and only then.
$(HTML)/.built: $(LIVE)/live.json _toc.yml bench/results.json $(PAGES)
	$(CHAPTERS)
	SERVING_OR_BOOK=1 jupyter-book build . --all -W --keep-going --quiet --config book/_config.yml --path-output book
	python book/_ext/lite.py $(HTML) $(PYODIDE)
	touch $@

lite: book  ## the notebooks that run in a browser, in book/_build/html/lite, anew (make book makes them too)
	python book/_ext/lite.py $(HTML) $(PYODIDE)

links: book  ## every link of the built book: counts, and the dead ones
	python book/_ext/links.py $(HTML)

outside: book  ## ask the sites that the book links to whether they answer
	python book/_ext/links.py $(HTML) --ask

test: lint  ## check the style, run every notebook, then tests/ (WORKERS=4: on four cores)
	$(CHAPTERS)
	pytest -n $(WORKERS)

# Types are held against the newest libraries: older ones describe themselves less well.
lint: package  ## format, imports, names, types
	ruff format --check
	ruff check
	$(if $(filter constraints.txt,$(LOCK)),mypy)

test-long: package  ## tests/ with the thousands of cases that make test samples
	SERVING_OR_LONG=1 pytest -n $(WORKERS)

new: $(VENV)/ready  ## a chapter from the template: make new PART=experts NAME=queue
	@python book/_ext/new_chapter.py "$(PART)" "$(NAME)" $(NUMBER)

# The engines' own code as a client: an environment and a folder of their own, both ignored by git.
CLIENTS := .venv-clients
ENGINES ?= build/engines
TORCH   ?= torch==2.13.0
clients: package $(CLIENTS)/ready  ## run vLLM's, SGLang's and vLLM-Ascend's own code on our files (fetches them and torch)
	$(CLIENTS)/bin/python -m tests.clients.fetch $(ENGINES)
	SERVING_OR_ENGINES=$(abspath $(ENGINES)) $(CLIENTS)/bin/python -m pytest -n 0 tests/clients
	SERVING_OR_ENGINES=$(abspath $(ENGINES)) $(CLIENTS)/bin/python -m tests.clients.measure

$(CLIENTS)/ready: settings.ini setup.py $(LOCK)
	test -x $(CLIENTS)/bin/python || $(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/python -m pip install -q --disable-pip-version-check -c $(LOCK) setuptools wheel setuptools_scm
	$(CLIENTS)/bin/python -m pip install -q --disable-pip-version-check $(TORCH) einops safetensors
	$(CLIENTS)/bin/python -m pip install -q --disable-pip-version-check -c $(LOCK) --no-build-isolation -e '.[fast]' pytest pytest-xdist hypothesis
	touch $@

# A real PETALS swarm on this machine, in an environment of its own, ignored by git: PETALS 2.2 needs
# older libraries than we do. Its plain installation fails; hivemind's wheel has the network daemon.
SWARM := .venv-swarm
swarm: package $(SWARM)/ready  ## start three PETALS servers with our launch lines, and time them (fetches PETALS and torch)
	python -m tests.swarm.measure $(SWARM)/bin/python build/swarm
	pytest -n 0 tests/swarm

$(SWARM)/ready: Makefile
	test -x $(SWARM)/bin/python || $(PYTHON) -m venv $(SWARM)
	@for set in \
	  "'setuptools<81' wheel" \
	  "$(TORCH) hivemind==1.1.12 'numpy<2' transformers==4.34.1 'huggingface-hub<0.20' accelerate==0.26.1 humanfriendly async-timeout sentencepiece safetensors Dijkstar speedtest-cli==2.1.3" \
	  "--no-deps petals==2.2.0.post1 peft==0.5.0 tensor-parallel==1.0.23 bitsandbytes==0.41.1" \
	  "--no-deps --no-build-isolation cpufeature"; \
	do \
	  eval $(SWARM)/bin/python -m pip install -q --disable-pip-version-check $$set \
	    || { echo "No swarm: pip could not install $$set. It needs the package index, Python 3.11 and a C compiler."; exit 1; }; \
	done
	touch $@

# LIMITS=0.25 gives searches a quarter of their time limits.
bench: package $(VENV)/bench-ready  ## measure against named peers (ONLY=experts, COMPARE=bench/results.json, OUT=file)
	python -m bench run $(ONLY) $(if $(OUT),--out $(OUT)) $(if $(COMPARE),--compare $(COMPARE))

# The peers.
$(VENV)/bench-ready: $(VENV)/ready
	python -m pip install -q --disable-pip-version-check -c $(LOCK) --no-build-isolation -e '.[bench]'
	touch $@

dist: package  ## wheel and sdist in dist/: built, checked, installed and tried in an empty folder
	python .ci/dist.py build dist
	python .ci/dist.py check dist
	CONSTRAINTS=$(LOCK) python .ci/dist.py try dist

house: package  ## who imports whom, and how large each module is
	@python book/_ext/house.py

picture: book  ## the README's picture, from today's book; needs Chromium
	python book/_ext/picture.py

serve:  ## show the built book on this machine only
	@test -e $(HTML)/index.html || { echo "No book yet: run make book first."; exit 1; }
	@{ sleep 1; python -m webbrowser -t http://127.0.0.1:$(PORT)/index.html; } >/dev/null 2>&1 &
	python -m http.server $(PORT) --bind 127.0.0.1 --directory $(HTML)

package: $(EXPORT)  ## export the notebooks to serving_or/, and list them in README.md

# Only when a notebook or a module has changed: tests that run meanwhile never meet a module half written.
$(EXPORT): $(VENV)/ready $(SOURCES)
	@mkdir -p $(@D)
	nbdev_export
	python book/_ext/contents.py
	@touch $@

# The wheel that runs in the reader's browser: built again only when a file of the package has changed.
$(LIVE)/live.json: $(EXPORT) FORCE
	python book/_ext/live_wheel.py $(LIVE) $(PYODIDE)

$(VENV)/ready: settings.ini setup.py pyproject.toml $(LOCK)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	python -m pip install -q --disable-pip-version-check -c $(LOCK) setuptools wheel
	python -m pip install -q --disable-pip-version-check -c $(LOCK) --no-build-isolation -e '.[dev]'
	touch $@

# What runs together, from the ranges in settings.ini; needs uv. A pin stays while it fits.
LOCKED = uv pip compile --quiet --extra dev --extra bench --python-version 3.11 --no-header --no-annotate
lock:  ## constraints.txt anew, from settings.ini
	$(LOCKED) --universal setup.py -o constraints.txt

lock-oldest:  ## constraints-oldest.txt anew: each requirement at the version its range begins with
	@mkdir -p build
	sed -n 's/^requirements = //p' settings.ini | tr ' ' '\n' | sed 's/>=/==/' > build/oldest.in
	$(LOCKED) build/oldest.in setup.py -o constraints-oldest.txt

clean:  ## remove everything that was built (the environment stays)
	rm -rf book/_build build dist *.egg-info

FORCE:
