# Two commands: `make demo` shows what the library does, `make test` checks that it does it.
# Both begin from nothing but Python 3.11 (or newer) and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: demo test test-all lint types unit browser bench bench-docs benchopt docs accessibility figures package oldest paper clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.user: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e ".[cli,plot]"
	touch $@

$(VENV)/.developer: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e ".[dev]"
	touch $@

demo: $(VENV)/.user
	$(BIN)/trsvr compare synthetic --methods trsvr,trsvr-esth,trsvr-id,svrg --paper --out demo

test: lint types unit

lint: $(VENV)/.developer
	$(BIN)/ruff check src tests benchmarks examples docs/hooks
	$(BIN)/ruff format --check src tests benchmarks examples docs/hooks

types: $(VENV)/.developer
	$(BIN)/mypy

# A process for each core, at most four: each may need a gigabyte or two. PYTEST_XDIST_AUTO_NUM_WORKERS says another number.
# Neighbours stay together, for they share fixtures and compiled code; whoever has finished takes from the other's end.
# The matrices of the tests are small: threads of BLAS would only wait for each other.
PARALLEL := -n logical --maxprocesses 4 --dist worksteal
PYTEST := OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest $(PARALLEL)

unit: $(VENV)/.developer browser
	$(PYTEST)

# Also what takes long for one test (marked slow), and everything with the lowest versions.
test-all: lint types $(VENV)/.developer browser
	$(PYTEST) -m "not long"
	$(MAKE) oldest

# All of the paper's studies, their alternatives and grids, and the page about them: two hours on two cores. It can be
# interrupted; the same command goes on. Data sets are looked for in TRSVR_DATA_DIR and downloaded otherwise.
paper: $(VENV)/.developer
	$(BIN)/trsvr paper run --complete --no-report --out paper
	$(BIN)/trsvr paper report --out paper --into docs/replication.md

# The report is tested in a real browser. Where it cannot be installed, those tests are skipped and say so.
browser:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  { apt-get install -y -qq chromium chromium-driver >/dev/null 2>&1 || \
	    { apt-get update -qq && apt-get install -y -qq chromium chromium-driver >/dev/null; } >/dev/null 2>&1; }; } || \
	echo "no chromium here, and it cannot be installed: the browser tests will be skipped"

# The documentation, into site/. Warnings are errors.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The site and a report of the studies before axe, in a browser; axe-core comes from the npm registry.
AXE := .axe/node_modules/axe-core/axe.min.js

$(AXE):
	npm install --silent --no-save --prefix .axe axe-core@4

accessibility: docs $(VENV)/.developer browser $(AXE)
	$(BIN)/python tests/accessibility.py site $(AXE)

$(VENV)/.docs: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e ".[docs]"
	touch $@

# The figures of the pages and of the gallery, drawn again: two minutes. Those of the examples with torch take much longer,
# and are drawn by the examples themselves.
figures: $(VENV)/.developer
	$(BIN)/python benchmarks/readme.py
	for name in alpha variance trust_region compare_solvers own_loss double_well path checkpoint memory_mapped \
	  calibration counts; do $(BIN)/python examples/$$name.py || exit 1; done

# What is published: an sdist, and a wheel built from it.
package: $(VENV)/.developer
	rm -rf dist
	$(BIN)/python -m build

# The lowest versions that pyproject.toml declares, in an environment of their own. Left out: what takes long, what needs
# a browser or real data. Old packages on newer ones of theirs deprecate this and that: no error here.
oldest: $(VENV)-oldest/.tested-versions
	OPENBLAS_NUM_THREADS=1 $(VENV)-oldest/bin/python -m pytest $(PARALLEL) \
	  -m "not (long or slow or browser or gpu or data)" -W default::DeprecationWarning

$(VENV)-oldest/.tested-versions: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pip --quiet --disable-pip-version-check install -c constraints-oldest.txt -e ".[all,test]"
	touch $@

# trsvr beside the solvers people use: about forty minutes on two quiet cores, BENCH=--quick five. It can be interrupted;
# the same command goes on. The peers have an environment of their own.
BENCH ?=
PEERS := .venv-peers

$(PEERS)/.ready: pyproject.toml constraints.txt benchmarks/peers/install.py
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip --quiet --disable-pip-version-check install -c constraints.txt -e ".[paper]" threadpoolctl
	$(PEERS)/bin/python -m benchmarks.peers install
	touch $@

bench: $(PEERS)/.ready
	$(PEERS)/bin/python -m benchmarks.peers run $(BENCH)
	$(PEERS)/bin/python -m benchmarks.peers report

bench-docs: $(PEERS)/.ready
	$(PEERS)/bin/python -m benchmarks.peers report --docs docs

# The same problem as a benchmark for benchopt, and our solver in benchopt's own one (LOGREG_L2: a checkout of it).
OPT := .venv-benchopt
BENCHOPT := PATH="$(CURDIR)/$(OPT)/bin:$$PATH" $(OPT)/bin/benchopt
LOGREG_L2 ?=

$(OPT)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(OPT)
	$(OPT)/bin/python -m pip --quiet --disable-pip-version-check install -c constraints.txt -e ".[sklearn]" "benchopt>=1.10" pytest
	touch $@

benchopt: $(OPT)/.ready
	$(BENCHOPT) test benchmarks/benchopt --skip-install -q
	$(BENCHOPT) run benchmarks/benchopt --config benchmarks/benchopt/small.yml --no-display
	$(if $(LOGREG_L2),cp benchmarks/benchopt/logreg_l2/trsvr.py "$(LOGREG_L2)/solvers/trsvr.py")
	$(if $(LOGREG_L2),$(BENCHOPT) test "$(LOGREG_L2)" --skip-install -q -k trsvr)

clean:
	rm -rf $(VENV) $(VENV)-oldest $(PEERS) $(OPT) .axe demo paper site dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
