# Everything works on a fresh machine with Python >= 3.10, git and make: each target sets up .venv itself.
#   make demo | demo-backends | demo-fleet | docs | test | unit | check | newest | bench | size | lint | types | format | clean
#   make test ARGS="tests/unit/metrics -x"      make demo ARGS="--questions 40"

SHELL := /bin/sh
VENV ?= .venv
ARGS ?=
JOBS ?=
BIN := $(VENV)/bin

# Hundreds of the tests' processes import ragtrace and openai: compiled each time, that is two seconds a process.
unexport PYTHONDONTWRITEBYTECODE

# python3.11 if it runs, else whatever python3 is. A name on PATH may be a shim that fails, so each is tried.
PYTHON ?= $(shell for p in python3.11 python3 python; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1 && { echo $$p; break; }; done)

# -qq hides pip's warnings and keeps its errors; --no-input never waits for an answer.
PIP := $(BIN)/python -m pip --no-input --disable-pip-version-check --retries 10 --timeout 60
INSTALL := $(PIP) install -qq

.PHONY: help demo demo-backends demo-fleet docs docs-tools test parallel unit models check lint types format newest bench size clean setup
.DEFAULT_GOAL := help

help:
	@sed -n '2,3s/^# *//p' Makefile

# --- set-up: redone only when pyproject.toml is newer than the stamp ----------------------------------------------
$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "no Python >= 3.10 found; install python3.11 or say make PYTHON=/path/to/python" >&2; exit 1; }
	@echo "setting up $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 1; }

$(VENV)/.pip: | $(BIN)/python
	@$(INSTALL) --upgrade 'pip>=25.1' # dependency groups need 25.1
	@touch $@

$(VENV)/.runtime: pyproject.toml | $(VENV)/.pip
	@echo "installing ragtrace into $(VENV)"
	@$(INSTALL) -e '.[cli]'
	@touch $@

# Prometheus fetches metrics from the application, which takes a library; Phoenix and the others are used where installed.
$(VENV)/.backends: pyproject.toml | $(VENV)/.pip
	@echo "installing ragtrace with prometheus-client into $(VENV)"
	@$(INSTALL) -e '.[cli,prometheus]'
	@touch $(VENV)/.runtime $@

$(VENV)/.fleet: pyproject.toml | $(VENV)/.pip
	@echo "installing ragtrace with the gateway and the workers into $(VENV)"
	@$(INSTALL) -e '.[cli,serve,fleet]'
	@touch $(VENV)/.runtime $@

$(VENV)/.dev: pyproject.toml | $(VENV)/.pip
	@echo "installing ragtrace, its tools and its tests' libraries into $(VENV) (a minute or two, once)"
	@$(INSTALL) -e '.[cli]' --group dev --group test
	@touch $(VENV)/.runtime $@

# The exact version: an index may offer builds of torch for processors alone under it, and the newest brings CUDA along.
$(VENV)/.models: pyproject.toml | $(VENV)/.dev
	@echo "installing the libraries of local models into $(VENV)"
	@$(INSTALL) 'torch==2.13.0'
	@$(INSTALL) --group models
	@touch $@

$(VENV)/.docs: pyproject.toml | $(VENV)/.pip
	@echo "installing the generator of the documentation's site into $(VENV)"
	@$(INSTALL) --group docs
	@touch $@

setup: $(VENV)/.dev

models: $(VENV)/.models

# --- what it is for -----------------------------------------------------------------------------------------------
demo: $(VENV)/.runtime
	@$(BIN)/ragtrace demo $(ARGS)

demo-backends: $(VENV)/.backends
	@$(BIN)/python examples/demo_backends.py $(ARGS)

demo-fleet: $(VENV)/.fleet
	@$(BIN)/python examples/fleet_demo.py $(ARGS)

# A dead link or anchor, an unknown name of the reference, a page that is in no part: any warning is an error. With
# `--quiet` no warning would be counted.
docs: $(VENV)/.docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "the documentation is in site/index.html"

docs-tools: $(VENV)/.docs

# Three processes more than there are processors, as many of the tests wait for processes and servers. The tests of a file
# share imports and set-ups, so one process runs them. Not reordered: the folders with the longest files come first.
WORKERS := $(or $(JOBS),$(shell expr $$(getconf _NPROCESSORS_ONLN) + 3))
PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder --timing without

# In parallel, then the tests that measure times, alone. Exit status 5: no such test was selected.
test: $(VENV)/.dev
	@$(BIN)/python -m pytest $(PARALLEL) $(ARGS); first=$$?; \
	$(BIN)/python -m pytest --timing only $(ARGS); second=$$?; \
	[ $$first != 5 ] || [ $$second != 5 ] || { echo "no test was selected" >&2; exit 5; }; \
	[ $$first = 0 ] || [ $$first = 5 ] || exit $$first; [ $$second = 0 ] || [ $$second = 5 ] || exit $$second

# The first half of `test`.
parallel: $(VENV)/.dev
	@$(BIN)/python -m pytest $(PARALLEL) $(ARGS)

# The everyday loop: hypothesis tries a fifth of its examples.
unit: $(VENV)/.dev
	@$(BIN)/python -m pytest $(PARALLEL) --hypothesis-profile=quick -m "not integration" tests/contract tests/unit $(ARGS)

check: lint types

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Both at once, as each uses one processor; what mypy says is shown after it, and not between pyright's lines.
types: $(VENV)/.dev
	@said=$$(mktemp); $(BIN)/mypy >$$said 2>&1 & mypy=$$!; \
	echo "$(BIN)/pyright --pythonpath $(BIN)/python"; $(BIN)/pyright --pythonpath $(BIN)/python; pyright=$$?; \
	wait $$mypy; mypy=$$?; echo "$(BIN)/mypy"; cat $$said; rm -f $$said; \
	[ $$mypy = 0 ] && [ $$pyright = 0 ]

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Applications of the instrumented frameworks with the newest versions of all packages: what is read otherwise than with
# the pinned ones. A word chooses what has it in its name: make newest ARGS="haystack sync".
newest: $(VENV)/.dev
	@$(BIN)/python tests/integration/frameworks/record_all.py --newest $(ARGS)

bench: $(VENV)/.dev
	@for script in tests/benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

# Lines of the core and of each slice.
size: $(VENV)/.dev
	@$(BIN)/python -m tests.support.size

clean:
	rm -rf $(VENV) .cache build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
