# Odradek's own commands. `make help` lists them; every target builds the environment it needs from nothing.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

SUITABLE := import sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))
ifndef PYTHON
  PYTHON := $(shell for each in python3 python3.14 python3.13 python3.12 python3.11; do \
    $$each -c '$(SUITABLE)' 2>/dev/null && echo $$each && break; done)
endif
# An environment a Python, so that `make test PYTHON=python3.12` leaves the usual one alone.
VENV := .venv$(if $(filter-out python3,$(notdir $(PYTHON))),-$(notdir $(PYTHON)))
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.ready
# The native module is part of it, where there is a cargo to build it with.
READY := $(VENV)/.native
CARGO := $(shell command -v cargo 2>/dev/null || ls $$HOME/.cargo/bin/cargo 2>/dev/null)
NATIVE_SOURCES := $(shell find native -name target -prune -o \( -name '*.rs' -o -name '*.toml' -o -name '*.pyi' \) -print)
UV := $(shell command -v uv 2>/dev/null)

# Start-up times are measured with bytecode at hand, as users have it, whatever this shell says.
unexport PYTHONDONTWRITEBYTECODE

# Files go to workers, in the order of tests/conftest.py. One more than there are cores, since many wait: measured best.
CORES := $(shell getconf _NPROCESSORS_ONLN)
WORKERS := $(shell expr $(CORES) + 1)
SIDE_BY_SIDE = -n $(WORKERS) --no-loadscope-reorder
SCENARIOS := logs groups quorum replication transactions compaction

.PHONY: help native native-wheel test test-side-by-side test-fast test-long check fuzz fuzz-records demo sim sim-long sim-mutants chaos pipelines-kill compat bench bench-clusters bench-pipelines fmt docs lock clean

help: ## List the targets
	@echo 'Odradek: Kafka in Python. Targets (PYTHON=python3.12 picks an interpreter):'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-22s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: $(READY) ## Everything that must hold: check beside all tests that are not slow; then those that measure time
	@$(BIN)/python -c 'from odradek.protocol.records.native import in_use; print("Records are looked at with:", in_use())'
	@$(MAKE) --no-print-directory --jobs=2 check test-side-by-side
	ODRADEK_NATIVE=0 $(BIN)/pytest -q -m 'not slow' tests/unit/protocol/records tests/unit/storage
	$(BIN)/pytest -m 'alone and not slow'

test-side-by-side: $(READY) ## Of `test`, what several workers share
	$(BIN)/pytest $(SIDE_BY_SIDE) -m 'not alone and not slow'

test-fast: $(READY) ## For every commit, in two minutes: unit, scenarios, tidy, and ten seeds of every scenario
	$(BIN)/pytest $(SIDE_BY_SIDE) -q tests/tidy tests/scenarios tests/unit
	@for scenario in $(SCENARIOS); do for seed in 1 6; do \
	  echo --scenario $$scenario --seed $$seed --count 5; done; done | \
	xargs -P $(CORES) -L 1 $(BIN)/python -m odradek.sim.run --quiet

test-long: $(READY) ## All that `test` leaves out: every mutant, mixed clusters, kill schedules, histories, Delta, Iceberg, other Pythons
	$(BIN)/pytest $(SIDE_BY_SIDE) --timeout=0 -m slow
	$(MAKE) sim-long COUNT=$(or $(COUNT),200)
	$(MAKE) chaos
	@for each in python3.11 python3.12 python3.13 python3.14; do \
	  if [ $$each != $(notdir $(PYTHON)) ] && $$each -c '$(SUITABLE)' 2>/dev/null; then \
	    $(MAKE) test-fast PYTHON=$$each || exit 1; \
	  else echo "NOT TESTED: $$each is not here, or is the one that \`make test\` takes"; fi; done

fuzz: $(READY) ## Spoilt requests for longer than in `test` (ROUNDS=250 of 4,100, from a seed drawn anew or SEED=7)
	ODRADEK_FUZZ_SEED=$${SEED:-$$RANDOM$$RANDOM} ODRADEK_FUZZ_ROUNDS=$${ROUNDS:-250} $(BIN)/pytest -s --timeout=0 tests/fuzz -k spoilt

fuzz-records: $(READY) ## Spoilt records through both twins, for longer than in `test` (BATCHES=100000000 of them, EXAMPLES=20000)
	$(if $(CARGO),cd native && ODRADEK_SPOILT_BATCHES=$(or $(BATCHES),100000000) PATH="$(dir $(CARGO)):$$PATH" \
	  $(CARGO) test --release --package odradek-records -- --nocapture)
	ODRADEK_TWIN_EXAMPLES=$(or $(EXAMPLES),20000) $(BIN)/pytest --timeout=0 tests/unit/protocol/records/test_twins.py

check: $(READY) ## Format, lint, types, and the one-way stairs between rooms
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy bench
	$(BIN)/lint-imports

demo: $(READY) ## See a consumer, a worker, a node, and the leader of three nodes be killed, also under a pipeline, and what is kept
	$(BIN)/python examples/demo.py
	$(BIN)/python examples/pipelines/demo.py

sim: $(READY) ## Play seeds of the simulation (SEED=7 COUNT=100 SCENARIO=groups, quorum, replication, transactions or compaction; ARGS=--trace)
	$(BIN)/python -m odradek.sim.run --scenario $(or $(SCENARIO),logs) --seed $(or $(SEED),1) --count $(or $(COUNT),1) $(ARGS)

sim-long: $(READY) ## Thousands of seeds of every scenario, from one drawn anew or SEED=7; a core each (COUNT=2000)
	@seed=$${SEED:-$$RANDOM$$RANDOM}; count=$(or $(COUNT),2000); \
	for scenario in $(SCENARIOS); do for start in $$(seq $$seed 100 $$((seed + count - 1))); do \
	  echo --scenario $$scenario --seed $$start --count 100; done; done | \
	xargs -P $(CORES) -L 1 $(BIN)/python -m odradek.sim.run --quiet

sim-mutants: $(READY) ## Plant faults in nodes, one after the other: each must be caught by some seed
	$(BIN)/pytest --timeout=0 tests/simulation/test_mutants.py tests/simulation/test_group_mutants.py \
	  tests/simulation/test_quorum_mutants.py tests/simulation/test_replication_mutants.py \
	  tests/simulation/test_operator_mutants.py tests/simulation/test_transaction_mutants.py \
	  tests/simulation/test_compaction_mutants.py \
	  tests/simulation/test_raft_model.py

chaos: $(READY) ## Kill, hold, stop, empty, fill up and cut off real nodes under load (SEED=7 COUNT=20 of drawn schedules)
	ODRADEK_CHAOS_SEED=$${SEED:-$$RANDOM} ODRADEK_CHAOS_COUNT=$${COUNT:-10} $(BIN)/pytest tests/chaos

pipelines-kill: $(READY) ## kill -9 of drivers, executors, leaders and compactions under pipelines; full disks (SEED=7 COUNT=5)
	ODRADEK_KILL_SEED=$${SEED:-$$RANDOM} ODRADEK_KILL_COUNT=$${COUNT:-5} $(BIN)/pytest -m slow -s tests/integration/pipelines \
	  --ignore=tests/integration/pipelines/test_histories.py

compat: $(READY) ## Clients nobody here wrote, against a real node (CLIENT=kafka-python)
	$(BIN)/pytest tests/compat $(if $(CLIENT),-k '$(CLIENT)')

bench: $(READY) ## Side by side with Apache Kafka, into bench/RESULTS.md (ARGS=--quick)
	$(BIN)/python -m bench.run $(ARGS)

bench-clusters: $(READY) ## Three nodes beside three of Apache Kafka (ARGS="--server odradek --cell 'gap-*'")
	$(BIN)/python -m bench.run_clusters $(ARGS)

bench-pipelines: $(READY) ## Pipelines over either server, into their part of bench/RESULTS.md (ARGS="--scale 0.1")
	$(BIN)/python -m bench.pipelines $(ARGS)

fmt: $(READY) ## Format the code and fix what can be fixed by itself
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(READY) ## Write the generated pages anew
	$(BIN)/python tools/config_reference.py
	$(BIN)/python tools/api_reference.py
	$(BIN)/python -m tools.client_config_reference

lock: ## Write requirements.lock anew from pyproject.toml (needs uv)
	uv pip compile pyproject.toml --all-extras --group dev --universal --python-version 3.11 --upgrade --generate-hashes \
	  --no-annotate --no-header --no-emit-index-url --no-emit-find-links --quiet --output-file requirements.lock

clean: ## Remove environments and caches
	rm -rf .venv .venv-* native/target native/Cargo.lock .ruff_cache .mypy_cache .pytest_cache .hypothesis .import_linter_cache build dist

# --- the environment: built once, and again when what it is made of changes -------------------------------------------

native-wheel: $(READY) ## A wheel of the native module for this platform and every Python, into dist/
	PATH="$(abspath $(BIN)):$(dir $(CARGO)):$$PATH" $(BIN)/maturin build --quiet --release --manifest-path native/Cargo.toml --out dist

native: $(READY) ## Build the native module into the environment, where there is cargo; every other target does so, too

$(READY): $(INSTALLED) $(NATIVE_SOURCES)
ifeq ($(CARGO),)
	@echo 'No cargo here, so no native module: Odradek works without it, and is slower record by record.'
else ifneq ($(UV),)
	@PATH="$(abspath $(BIN)):$(dir $(CARGO)):$$PATH" uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation \
	  --reinstall-package odradek-native ./native
else
	@PATH="$(abspath $(BIN)):$(dir $(CARGO)):$$PATH" $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
	  --no-build-isolation --force-reinstall ./native
endif
	@touch $@

$(INSTALLED): pyproject.toml requirements.lock
	@$(if $(PYTHON),$(PYTHON),false) -c '$(SUITABLE)' 2>/dev/null || { \
	  echo 'Odradek needs Python 3.11 to 3.14 with venv; say which one: make $(MAKECMDGOALS) PYTHON=python3.12' >&2; exit 1; }
ifneq ($(UV),)
	@test -x $(BIN)/python || uv venv --quiet --python $(PYTHON) $(VENV)
	uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
else
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
endif
	@touch $@
