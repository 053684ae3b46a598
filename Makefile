# Every target does its own set-up, in .venv; it needs Python 3.11+ and a C++ compiler (GCC or Clang).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
DATA ?=
MODELS ?=
PHOTOS ?=
SOURCES := pyproject.toml CMakeLists.txt $(wildcard src/kernels/*)

.PHONY: help demo test check format torture bench profile growth streams reasons images-bench serve-bench clean

help:
	@echo "make demo          index and search a made photo collection, beside exhaustive search"
	@echo "make test          all checks and tests"
	@echo "make check         format, lint, types"
	@echo "make format        put the code into its format"
	@echo "make torture       the tests of reliability in their long form (half an hour)"
	@echo "make bench         us and the rivals side by side; DATA=folder for your own vectors"
	@echo "make profile       where the time of one query goes; DATA=folder"
	@echo "make growth        time and accuracy from 10,000 to 1,000,000 vectors; DATA=folder"
	@echo "make streams       batches, relearning, query expansion, smoothing; DATA=folder"
	@echo "make reasons       why the paper's claims hold or fail; DATA=folder"
	@echo "make images-bench  pictures described a second; DATA=folder of photos for their quality"
	@echo "make serve-bench   requests per second and latency of logt serve; DATA=vectors, PHOTOS=photos"
	@echo "make clean         remove what was built"

$(VENV)/.installed: $(SOURCES)
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	$(PIP) --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.installed
	$(PIP) --group dev
	touch $@

$(VENV)/.bench: $(VENV)/.installed
	$(PIP) --group bench
	touch $@

demo: $(VENV)/.installed
	$(BIN)/logt demo

test: check
	$(BIN)/python -m pytest

check: $(VENV)/.dev
	$(BIN)/ruff format --check --quiet
	$(BIN)/ruff check --quiet
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

torture: $(VENV)/.dev
	LOGT_TORTURE=1 $(BIN)/python -m pytest tests/test_changes.py tests/test_durability.py tests/test_storage.py

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks.bench --data "$(DATA)"

profile growth streams reasons: $(VENV)/.bench
	$(BIN)/python -m benchmarks.$@ --data "$(DATA)"

images-bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks.images --data "$(DATA)" --models $(MODELS)

serve-bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks.serve --data "$(DATA)" --photos "$(PHOTOS)"

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis
