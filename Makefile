# Everything runs in an environment of its own, .venv, made from requirements.lock. It needs python3 (3.11 or later,
# with venv), make and git; no cluster, no container engine, no root.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
UV_VERSION := 0.13.9
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo sandbox test bench check lint crds lock clean

help:
	@echo 'make demo     a whole maintenance window on a sandbox, in about a minute'
	@echo 'make sandbox  a cluster to try on; prints its kubeconfig'
	@echo 'make test     the tests; PYTEST_ARGS="-k name" for some of them'
	@echo 'make check    everything that must hold before a commit: lint, types, layers, generated files, tests'
	@echo 'make lint     the same without the tests'
	@echo 'make bench    time and memory on 10,000 nodes, beside kubectl; WRITE=1 writes docs/benchmarks.md'
	@echo 'make crds     writes crds/ from the models'
	@echo 'make lock     resolves the dependencies of pyproject.toml again'
	@echo 'make clean    removes the environment and what tools leave behind'

# Made anew when the lock changes, so that nothing stays that the lock does not name.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "taintctl needs Python 3.11 or later; say which with: make PYTHON=python3.13 $(MAKECMDGOALS)" >&2; exit 2; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(READY)
	$(BIN)/taintctl demo

sandbox: $(READY)
	$(BIN)/taintctl sandbox

# Three on two cores: a good part of the time is spent waiting for scaled clocks.
test: $(READY)
	$(BIN)/python -m pytest -n 3 $(PYTEST_ARGS)

# Some ten minutes, alone on the machine. Needs kubectl.
bench: $(READY)
	$(BIN)/python -m tests.bench.bench $(if $(WRITE),--write)

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tools/crds.py --check

check: lint test

crds: $(READY)
	$(BIN)/python tools/crds.py

# requirements.lock is for work on taintctl, requirements-runtime.lock for the image; both hold the same versions.
lock:
	$(PYTHON) -m venv --clear .lock-venv
	.lock-venv/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	$(COMPILE) --extra dev --output-file requirements.lock pyproject.toml
	$(COMPILE) --extra slack --constraints requirements.lock --output-file requirements-runtime.lock pyproject.toml
	rm -rf .lock-venv

COMPILE = .lock-venv/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
	--no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock'

clean:
	rm -rf $(VENV) .lock-venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage htmlcov \
		build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
