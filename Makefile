# Each target does its own set-up, in .venv. It needs Python 3.11 or later and GCC or Clang.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# uv needs a fraction of the time of pip, which installs the same where uv cannot.
install = $(BIN)/uv pip install --quiet --python $(BIN)/python $(1) || { $(PIP) --upgrade pip && $(PIP) $(1); }
SOURCES := pyproject.toml CMakeLists.txt $(wildcard src/kernels/*)
DATA ?=
MODELS ?=
PHOTOS ?=
SCALE ?=
GROWTH ?=
FUZZ ?=

.DEFAULT_GOAL := help
.PHONY: help demo test check format types docs sanitize torture fuzz wheel-test release bench recall growth updates scale images-bench serve-bench page-bench gpu-test gpu-bench clean

help:           ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# ------------------------------------------------------------------------------------------------------ set-up

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	-$(PIP) uv

$(VENV)/.installed: $(SOURCES) | $(BIN)/python
	$(call install,--editable .)
	touch $@

$(VENV)/.dev: $(SOURCES) | $(BIN)/python
	$(call install,--editable '.[all]' --group dev)
	touch $(VENV)/.installed $@

BENCHMARKS := --editable '.[baselines,reproduce]'

$(VENV)/.bench: $(SOURCES) | $(BIN)/python
	$(call install,$(BENCHMARKS))
	touch $(VENV)/.installed $@

# ------------------------------------------------------------------------------------------------ use and tests

demo:                         ## index and search a synthetic photo collection, next to exhaustive search
	@test -e $(VENV)/.installed || echo "Compiling takes about two minutes; nothing is printed meanwhile"
	@$(MAKE) --no-print-directory $(VENV)/.installed
	$(BIN)/logt demo

test: check                   ## all checks and tests
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

check: $(VENV)/.dev           ## format, lint, types, words, direction of imports
	$(BIN)/ruff format --check --quiet
	$(BIN)/ruff check --quiet
	$(BIN)/mypy
	$(BIN)/codespell
	$(BIN)/python -m pytest --quiet --quiet -p no:xdist tests/test_project.py::test_imports_point_one_way

format: $(VENV)/.dev          ## format the code
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

TORTURE_TESTS := $(addprefix tests/test_,changes.py change_log.py crafted_indexes.py flushing.py durability.py fuzz.py storage.py storage_url.py verification.py backup.py repair.py \
                   any_vectors.py filters.py onnx_files.py photos_durability.py photos_removal.py random_indexes.py) \
                 $(addprefix tests/test_server_,changes.py connections.py images.py limits.py photos.py security.py uploads.py)

torture: $(VENV)/.dev         ## the long form of the reliability tests (one to two hours)
	LOGT_TORTURE=1 $(BIN)/python -m pytest $(TORTURE_TESTS)

fuzz: $(VENV)/.dev            ## fuzz all loaders for 10 minutes; FUZZ="--seconds 3600 --target image"
	$(BIN)/python tests/fuzz.py $(FUZZ)

types: $(VENV)/.dev           ## the types of the public API, with pyright
	$(call install,--group types)
	$(BIN)/python scripts/check_public_types.py

docs: $(VENV)/.dev            ## the documentation site, in build/docs; warnings are errors
	$(BIN)/python scripts/build_docs.py build/docs
	@echo "build/docs/index.html"

# WHEEL_PYTHONS="python3.12 python3.13": the wheel is built with the first, and tried with each.
WHEEL_PYTHONS ?=

wheel-test: $(VENV)/.dev      ## a wheel of a clean copy, in dist, tried in new environments without a compiler
	$(BIN)/python scripts/test_wheel.py $(WHEEL_PYTHONS)

release: check types docs wheel-test  ## check version, changelog, wheels and documentation; say what is left to do
	$(BIN)/python scripts/release.py

# Builds of their own, with the sanitizers of GCC. Their run-time libraries must be loaded before Python's, and Python
# itself leaks on purpose. PYTHONMALLOC=malloc lets them see each array. The thread sanitizer needs addresses that are
# not at random. Captured by pytest, the report of a fatal error would be lost.
SANITIZE := build/sanitize
sanitized = LD_PRELOAD="$$($(CXX) -print-file-name=lib$(1).so) $$($(CXX) -print-file-name=libstdc++.so)" PYTHONMALLOC=malloc \
            ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1:suppressions=$(CURDIR)/scripts/tsan.supp \
            $(SANITIZE)/$(2)/venv/bin/python -m pytest -p no:cacheprovider --capture=sys
KERNEL_TESTS := $(addprefix tests/test_,kernels.py kernel_arrays.py margins.py prepared_filters.py shards.py query_kinds.py residual.py decoder.py dictionary.py grouping.py search.py filters.py \
                  diffusion.py walk.py graph.py graph_kernels.py unit_groups.py nearest.py crafted_indexes.py fuzz.py)
CONCURRENT_TESTS := $(addprefix tests/test_,threads.py any_vectors.py index.py graph_kernels.py linked_changes.py verification.py default_index.py) \
                    -k "thread or during or while or reads_method or background"

sanitize: $(SANITIZE)/address,undefined/.installed $(SANITIZE)/thread/.installed  ## test the kernels and loaders with the sanitizers of GCC
	$(call sanitized,asan,address$(comma)undefined) $(KERNEL_TESTS)
	setarch -R env $(call sanitized,tsan,thread) $(CONCURRENT_TESTS)

comma := ,
$(SANITIZE)/%/.installed: $(SOURCES) $(wildcard src/logt/*.py src/logt/*/*.py)
	$(PYTHON) -m venv $(SANITIZE)/$*/venv
	$(SANITIZE)/$*/venv/bin/python -m pip install --quiet --upgrade pip
	$(SANITIZE)/$*/venv/bin/python -m pip install --quiet '.[pq]' fsspec h5py hypothesis onnx pandas pillow polars pyarrow pytest scikit-learn \
	  --config-settings=cmake.define.LOGT_SANITIZE=$* --config-settings=build-dir=$(SANITIZE)/$*/cmake
	touch $@

# --------------------------------------------------------------------------------------------------- benchmarks

bench: $(VENV)/.bench         ## logt and other libraries; DATA=folder for your own vectors
	$(BIN)/python -m benchmarks.bench --data "$(DATA)"

recall: $(VENV)/.bench        ## recall asked for and found, for many kinds of queries; DATA=folder adds your own vectors
	$(BIN)/python -m benchmarks.recall --data "$(DATA)" --plot

growth: $(VENV)/.bench        ## the same as a synthetic collection grows; GROWTH="--sizes 1000000 10000000"
	$(BIN)/python -m benchmarks.growth $(GROWTH)

updates: $(VENV)/.bench       ## adds, removals, saves and filters
	$(BIN)/python -m benchmarks.updates

scale: $(VENV)/.dev           ## builds with many workers, searches in a large index; SCALE="--rows 1000000" is smaller
	$(BIN)/python -m benchmarks.scale $(SCALE)

images-bench: $(VENV)/.dev    ## photos indexed per second; DATA=photos and MODELS also measure quality, by text too
	$(BIN)/python -m benchmarks.images --data "$(DATA)" --models $(MODELS)

serve-bench: $(VENV)/.dev     ## requests per second and latency of logt serve; DATA=vectors, PHOTOS=photos
	$(BIN)/python -m benchmarks.serve --data "$(DATA)" --photos "$(PHOTOS)"

page-bench: $(VENV)/.dev      ## the web page with 100,000 photos
	$(BIN)/python -m benchmarks.page

# CuPy for the CUDA of the driver; GPU_EXTRA=cupy-cuda12x for an older one.
GPU_EXTRA ?= '.[gpu]'
GPU ?=

$(VENV)/.gpu: $(SOURCES) | $(VENV)/.dev
	$(call install,$(GPU_EXTRA))
	touch $@

gpu-test: $(VENV)/.gpu        ## the tests of searches and builds on a GPU, on the GPU
	LOGT_DEVICE=cuda $(BIN)/python -m pytest tests/test_gpu.py tests/test_gpu_building.py tests/test_gpu_diffusion.py tests/test_gpu_kernels.py

gpu-bench: $(VENV)/.gpu       ## builds and searches on a GPU; GPU="--rows 100000000 --place drawn" or GPU="--data FOLDER"
	$(BIN)/python -m benchmarks.gpu $(GPU)

clean:                        ## remove everything that was built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
