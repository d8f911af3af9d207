# Two commands for people: `make demo` and `make test`. Each sets up what it needs in .venv first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready

# The tested combination for this Python; newer Pythons take the newest list we have.
MINOR       := $(shell $(PYTHON) -c 'import sys; print(sys.version_info[1] if sys.version_info[0] == 3 else 0)' 2>/dev/null)
CONSTRAINTS := $(shell f=constraints/python-3.$(MINOR).txt; test -f $$f && echo $$f || echo constraints/python-3.13.txt)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Hundreds of processes of the tests would each compile all sources again.
unexport PYTHONDONTWRITEBYTECODE
# Pyright's wrapper would ask for a newer version at every run.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
# Tests and the demo share one persistent compilation cache, inside the folder of the project.
export JAXWORLDS_CACHE_DIR ?= $(CURDIR)/.jax_cache

.PHONY: help setup demo test lint types unit asusers unit8 thorough oracle fuzz bench soak coverage release docs clean

help:            ## show this list
	@grep -hE '^[a-z0-9]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 10

setup: $(STAMP)  ## make .venv and install everything (instant when nothing changed)

$(STAMP): pyproject.toml $(wildcard constraints/*.txt)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "jaxworlds needs Python 3.11 or newer; '$(PYTHON)' is not. Try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@printf 'Setting up $(VENV) from $(CONSTRAINTS), once: 2 GB, a few minutes '
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@( while sleep 3 && kill -0 $$$$ 2>/dev/null; do printf .; done ) & dots=$$!; \
	  $(BIN)/python -m pip install --quiet --quiet -c $(CONSTRAINTS) -e '.[dev]'; code=$$?; \
	  kill $$dots 2>/dev/null; echo; exit $$code
	@touch $@

demo: $(STAMP)   ## run the systems on embedded defaults and write report/index.html
	@$(BIN)/jaxworlds demo --out report

test: lint       ## everything CI runs
	@$(MAKE) --no-print-directory -j2 types unit
	@$(MAKE) --no-print-directory asusers
	@$(MAKE) --no-print-directory unit8

lint: $(STAMP)   ## style
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(STAMP)  ## static types
	@$(BIN)/pyright

# Run compiled as users compile; all other tests compile quickly.
LAWS := tests/laws tests/peers/test_arc_oracle.py

unit: $(STAMP)   ## all tests but the laws, on one device
	@$(BIN)/pytest -n auto --dist loadfile $(LAWS:%=--ignore=%)

asusers: $(STAMP) ## the laws and the comparison with the oracle, compiled as users compile
	@JAXWORLDS_TEST_AS_USERS=1 $(BIN)/pytest -n auto --dist loadfile $(LAWS)

thorough: $(STAMP) ## all tests and further cases of them (tests/thorough.txt)
	@JAXWORLDS_TEST_THOROUGH=1 $(BIN)/pytest -n auto --dist loadfile
	@JAXWORLDS_TEST_THOROUGH=1 $(MAKE) --no-print-directory unit8

unit8: $(STAMP)  ## the tests marked `devices` again, on 8 simulated devices
	@JAXWORLDS_TEST_DEVICES=8 $(BIN)/pytest -n auto --dist loadfile -m devices tests/unit

oracle: $(STAMP) ## a million random ARC steps beside the NumPy oracle, and 100,000 beside ARCLE
	@$(BIN)/python tests/support/arc_compare.py --steps 1000000 --part 0/2 --out benchmarks/results/cpu & \
	  $(BIN)/python tests/support/arc_compare.py --steps 1000000 --part 1/2 --out benchmarks/results/cpu; other=$$?; wait $$! && exit $$other
	@$(BIN)/python tests/peers/test_arcle.py --steps 100000 --out benchmarks/results/cpu

fuzz: $(STAMP)   ## 100,000 malformed inputs for all loaders; goes on where it was stopped
	@$(BIN)/python tests/support/fuzz.py --inputs 100000 --jobs 2 --out benchmarks/results/cpu/fuzz.json

bench: $(STAMP)  ## measure what the README claims, next to a peer
	@$(BIN)/python benchmarks/bench_core.py
	@$(BIN)/python benchmarks/bench_arc.py --setup-peers .peers
	@$(BIN)/python benchmarks/bench_trace.py --setup-peers .peers
	@$(BIN)/python benchmarks/bench_trace_geo.py
	@$(BIN)/python benchmarks/bench_acbo_inference.py --setup-peers .peers
	@$(BIN)/python benchmarks/bench_acbo_policy.py

soak: $(STAMP)   ## a million ARC steps, and long runs of the others: nothing may grow (a quarter of an hour)
	@$(BIN)/python benchmarks/soak.py

# Files to run in place of all tests, for a look at one part: make coverage TESTS=tests/unit/jaxworlds/store
TESTS ?=

coverage: $(STAMP) ## all tests on one device, and the share of lines that they run; commands are not counted
	@rm -f .coverage .coverage.*
	@$(BIN)/coverage run -m pytest -n auto --dist loadfile $(TESTS); tests=$$?; \
	  $(BIN)/coverage combine --quiet && $(BIN)/coverage report $(if $(TESTS),--fail-under=0) && exit $$tests

release: $(STAMP) ## build both wheels and the sdist into dist/ and try them outside the tree on every Python here (needs a network)
	@$(BIN)/python tests/support/release.py

docs: $(STAMP)   ## build the documentation into site/ (strict)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet && echo "Documentation: site/index.html; to search it, serve it: $(BIN)/python -m http.server -d site"

clean:           ## remove everything that the commands made
	rm -rf $(VENV) .jax_cache site report .pytest_cache .ruff_cache .hypothesis .coverage .coverage.* build dist
