# Each target does its own set-up, in .venv. It needs Python 3.11 or later and GCC or Clang.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
SOURCES := pyproject.toml CMakeLists.txt $(wildcard src/kernels/*)
DATA ?=
MODELS ?=
PHOTOS ?=
SCALE ?=

.DEFAULT_GOAL := help
.PHONY: help demo test check words format docs figures sanitize torture wheel bench profile updates scale failures fronts growth streams diffusion reasons images-bench text-bench \
        serve-bench page-bench clean

help:           ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# ------------------------------------------------------------------------------------------------------ set-up

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip

$(VENV)/.installed: $(SOURCES) | $(BIN)/python
	$(PIP) --editable .
	touch $@

$(VENV)/.dev: $(SOURCES) | $(BIN)/python
	$(PIP) --editable '.[all]' --group dev
	touch $(VENV)/.installed $@

$(VENV)/.bench: $(SOURCES) | $(BIN)/python
	$(PIP) --editable '.[baselines,reproduce]'
	touch $(VENV)/.installed $@

# ------------------------------------------------------------------------------------------------ use and tests

demo: $(VENV)/.installed      ## index and search a synthetic photo collection, next to exhaustive search
	$(BIN)/logt demo

test: check                   ## all checks and tests
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile

check: words $(VENV)/.dev     ## format, lint, types, words, docstrings
	$(BIN)/ruff format --check --quiet
	$(BIN)/ruff check --quiet
	$(BIN)/mypy
	$(BIN)/python scripts/check_docstrings.py $(DESCRIBED)

words:                        ## words to avoid
	@$(PYTHON) scripts/check_words.py $(WORDS)

WORDS := README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md benchmarks docs examples scripts src tests
# Public modules, whose docstrings describe every parameter.
STAGES := $(filter-out __init__,$(notdir $(basename $(wildcard src/logt/group_testing/*.py))))
DESCRIBED := logt $(addprefix logt.,augmentation baselines integrations.faiss datasets datasets.table_files descriptors distributed evaluation) \
             $(addprefix logt.,integrations.langchain methods photos server.client sklearn) \
             $(addprefix logt.group_testing.,$(STAGES))

format: $(VENV)/.dev          ## format the code
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

TORTURE_TESTS := $(addprefix tests/test_,changes.py change_log.py crafted_indexes.py flushing.py durability.py storage.py backup.py repair.py \
                   any_vectors.py filters.py photos_durability.py) \
                 $(addprefix tests/test_server_,changes.py connections.py images.py limits.py photos.py security.py)

torture: $(VENV)/.dev         ## the long form of the reliability tests (one to two hours)
	LOGT_TORTURE=1 $(BIN)/python -m pytest $(TORTURE_TESTS)

docs: $(VENV)/.dev            ## the documentation site, in build/docs; warnings are errors
	$(BIN)/python scripts/build_docs.py build/docs
	@echo "build/docs/index.html"

figures: $(VENV)/.dev         ## draw the figures of the documentation again
	$(BIN)/python scripts/draw_figures.py

wheel: $(VENV)/.dev           ## a wheel for this Python and machine, in dist
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

# A build of its own, with the sanitizers of GCC. Their run-time libraries must be loaded before Python's, and Python
# itself leaks on purpose. PYTHONMALLOC=malloc lets the address sanitizer see each array.
SANITIZE := build/sanitize
KERNEL_TESTS := $(addprefix tests/test_,kernels.py residual.py decoder.py dictionary.py grouping.py search.py filters.py diffusion.py walk.py graph.py graph_kernels.py)

sanitize: $(SANITIZE)/.installed  ## build the kernels with address and undefined-behaviour sanitizers and test them
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc \
	$(SANITIZE)/venv/bin/python -m pytest -p no:cacheprovider $(KERNEL_TESTS)

$(SANITIZE)/.installed: $(SOURCES) $(wildcard src/logt/*.py src/logt/*/*.py)
	$(PYTHON) -m venv $(SANITIZE)/venv
	$(SANITIZE)/venv/bin/python -m pip install --quiet --upgrade pip
	$(SANITIZE)/venv/bin/python -m pip install --quiet '.[pq]' hypothesis pytest scikit-learn \
	  --config-settings=cmake.define.LOGT_SANITIZE=ON --config-settings=build-dir=$(SANITIZE)/cmake
	touch $@

# --------------------------------------------------------------------------------------------------- benchmarks

bench: $(VENV)/.bench         ## logt and other libraries; DATA=folder for your own vectors
	$(BIN)/python -m benchmarks.bench --data "$(DATA)"

profile: $(VENV)/.bench       ## time of one query by step; DATA=folder
growth: $(VENV)/.bench        ## time and accuracy from 10,000 to 1,000,000 vectors; DATA=folder
streams: $(VENV)/.bench       ## batches, training again, query expansion, augmentation; DATA=folder
diffusion: $(VENV)/.bench     ## re-ranking on the neighbor graph; DATA=folder
diffusion-parameters: $(VENV)/.bench  ## parameters of diffusion, on synthetic collections
	$(BIN)/python -m benchmarks.diffusion_parameters

reasons: $(VENV)/.bench       ## why the claims of the paper hold or fail; DATA=folder
profile growth streams diffusion reasons:
	$(BIN)/python -m benchmarks.$@ --data "$(DATA)"

updates: $(VENV)/.bench       ## adds, removals, saves and filters
	$(BIN)/python -m benchmarks.updates

scale: $(VENV)/.dev           ## builds with many workers and searches in shards; SCALE="--rows 1000000" is smaller
	$(BIN)/python -m benchmarks.scale $(SCALE)

failures: $(VENV)/.dev        ## 10,000 searches in shards while all actors of a node are killed
	$(BIN)/python -m benchmarks.failures

fronts: $(VENV)/.dev          ## logt serve --ray next to Ray Serve, which it installs
	$(PIP) 'ray[serve]'
	$(BIN)/python -m benchmarks.fronts

images-bench: $(VENV)/.dev    ## images indexed per second; DATA=folder of photos also measures quality
	$(BIN)/python -m benchmarks.images --data "$(DATA)" --models $(MODELS)

text-bench: $(VENV)/.dev      ## quality of searches by text; DATA=photos with texts.json, MODELS=folders of models
	$(BIN)/python -m benchmarks.texts --data "$(DATA)" --models $(MODELS)

serve-bench: $(VENV)/.dev     ## requests per second and latency of logt serve; DATA=vectors, PHOTOS=photos
	$(BIN)/python -m benchmarks.serve --data "$(DATA)" --photos "$(PHOTOS)"

page-bench: $(VENV)/.dev      ## the web page with 100,000 photos
	$(BIN)/python -m benchmarks.page

clean:                        ## remove everything that was built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
