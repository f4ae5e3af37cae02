# Two commands: `make book` sets up, runs every chapter and builds the site; `make test` sets up and tests.
VENV   := .venv
BIN    := $(abspath $(VENV)/bin)
PYTHON ?= python3
PORT   ?= 8000
HTML   := book/_build/html
LIVE   := book/_build/live
# Jupyter starts the kernel of the environment that is first on PATH.
export PATH := $(BIN):$(PATH)

.PHONY: help book test serve bench package clean

help:  ## this list
	@grep -E '^[a-z]+:.*##' Makefile | sed 's/:.*##/\t/'

book: $(HTML)/.built  ## build the book in book/_build/html
	@echo "The book is $(CURDIR)/$(HTML)/index.html (make serve shows it)"

# live.json changes with any file of the package, and only then.
$(HTML)/.built: $(LIVE)/live.json _toc.yml $(shell find nbs book -type f -not -path '*/_build/*' -not -path '*/__pycache__/*' -not -path '*/.ipynb_checkpoints/*')
	SERVING_OR_BOOK=1 jupyter-book build . --all -W --keep-going --quiet --config book/_config.yml --path-output book
	touch $@

test: package  ## run every notebook, then tests/
	nbdev_test --n_workers 2 --timing
	pytest

serve:  ## show the built book on this machine only
	@test -e $(HTML)/index.html || { echo "No book yet: run make book first."; exit 1; }
	@{ sleep 1; python -m webbrowser -t http://127.0.0.1:$(PORT)/index.html; } >/dev/null 2>&1 &
	python -m http.server $(PORT) --bind 127.0.0.1 --directory $(HTML)

bench: package  ## measure against named peers
	python -m bench

package: $(VENV)/ready  ## export the notebooks to serving_or/
	nbdev_export

# The wheel that runs in the reader's browser: built again only when a file of the package has changed.
$(LIVE)/live.json: package $(VENV)/ready
	python book/_ext/live_wheel.py $(LIVE)

$(VENV)/ready: settings.ini setup.py pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	python -m pip install -q --disable-pip-version-check -c constraints.txt setuptools wheel
	python -m pip install -q --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[dev]'
	touch $@

clean:  ## remove everything that was built (the environment stays)
	rm -rf book/_build build dist *.egg-info
