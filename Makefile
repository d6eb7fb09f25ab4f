# A new user needs two of these: `make demo` and `make test`. `make` alone lists them all.
# Needs: Python >= 3.11. Java >= 17 is installed where that may be done (deploy/ensure_java.sh says what to type elsewhere).

SHELL := /bin/bash
.DEFAULT_GOAL := help

VENV ?= .venv
PYTHON := $(VENV)/bin/python
BIN := $(VENV)/bin
# Spark would start its Python workers with the first python3 on the PATH, which lacks what .venv has.
export PYSPARK_PYTHON := $(abspath $(PYTHON))
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)

# Kinds of tests, in the order in which they run: the quick ones first.
KINDS := unit property contract golden tidy simulation integration spark
# Tests that start processes and wait for them; each pytest process of them has a Spark session of its own.
WAITING_KINDS := integration spark
WAITING_TESTS := $(foreach kind,$(WAITING_KINDS),tests/$(kind))
OTHER_TESTS := $(foreach kind,$(filter-out $(WAITING_KINDS),$(KINDS)),tests/$(kind))
# One process per core, up to so many: their memory is limited, too.
PYTEST := $(PYTHON) -m pytest -p tests.kind_summary -n auto --dist worksteal
# More arguments for pytest: make test PYTEST_ARGS='-x -k chain'
PYTEST_ARGS ?=
# They may leave no test of one of the two runs, which pytest ends with 5.
NONE_IS_FINE := $(if $(PYTEST_ARGS),|| [ $$? -eq 5 ])

DEMO := examples.flights
DEMO_ARGS ?=
# Options of a benchmark: make bench-smoke BENCH_ARGS='--workload map-update'
BENCH_ARGS ?=
# The first ones are what the report compares with targets.
BENCHMARKS := ack_state_size trigger_interval trigger_latency requests_and_bill recovery space materializer_speed
OTHER_BENCHMARKS := smoke state_access changelog_cost timers windows many_partitions.driver_cost many_partitions.restart_reads

.PHONY: help
help: ## List the commands
	@echo "varvite: keyed state with a changelog for PySpark Structured Streaming"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: java $(VENV)/.installed-dev ## Make .venv with everything that a developer needs

# --- the environment -------------------------------------------------------------------------------------------------

.PHONY: java
java:
	@deploy/ensure_java.sh

$(PYTHON):
	deploy/make_venv.sh $(VENV)

# One stamp per extra; the project itself is installed as a link to this directory.
$(VENV)/.installed-%: pyproject.toml | $(PYTHON)
	@echo "Installing varvite[$*] into $(VENV); the first time this downloads a few hundred MB."
	$(PYTHON) -m pip install --disable-pip-version-check --editable '.[$*]'
	@touch $@

# --- the demo --------------------------------------------------------------------------------------------------------

.PHONY: demo
demo: java $(VENV)/.installed-demo ## Run a job over all New York flights of 2013 and check its state
	$(PYTHON) -m $(DEMO) $(DEMO_ARGS)

.PHONY: demo-crash
demo-crash: java $(VENV)/.installed-demo ## The same while its processes are killed at random; same result
	$(PYTHON) -m $(DEMO) --crash $(DEMO_ARGS)

.PHONY: demo-kafka
demo-kafka: java $(VENV)/.installed-demo ## Count a million orders from Kafka to Kafka, exactly once, with a live table
	deploy/install_kafka.sh .kafka
	$(PYTHON) -m examples.orders $(DEMO_ARGS)

# --- tests -----------------------------------------------------------------------------------------------------------

# $(1): a selection of tests, or options; $(2): directories.
RUN = $(PYTEST) --maxprocesses $(3) $(1) $(2) $(PYTEST_ARGS) $(NONE_IS_FINE)
# Those with clusters of executors mostly wait, but want the cores when they do not. So they run one by one, beside tests
# that need nothing but time.
CLUSTER_TESTS := tests/spark/cluster
.PHONY: run-clusters run-others
run-clusters:
	$(call RUN,$(SELECTION),$(CLUSTER_TESTS),1)
run-others:
	nice -n 19 $(call RUN,$(SELECTION),$(OTHER_TESTS),2)
BESIDE := --no-print-directory -j2 --output-sync=target run-clusters run-others

# Classes of Spark as Java prepares them: its many processes in tests start 4 s sooner.
CLASSES := $(VENV)/spark-classes.jsa
$(CLASSES): $(VENV)/.installed-test
	$(PYTHON) -m tests.short_lived_java

.PHONY: test
test: java $(CLASSES) ## Run the tests, but for the long ones
	$(call RUN,-m 'not long and not rare',$(OTHER_TESTS),4)
	$(call RUN,-m 'not long and not rare',$(WAITING_TESTS),2)

.PHONY: test-long
test-long: java $(CLASSES) ## Run the long tests
	$(MAKE) $(BESIDE) SELECTION="-m 'long and not rare'"
	$(call RUN,-m 'long and not rare' --ignore=$(CLUSTER_TESTS),$(WAITING_TESTS),2)

.PHONY: test-all
test-all: java $(CLASSES) ## Run all tests and list what was skipped, with the reason
	$(MAKE) $(BESIDE) SELECTION=-rs
	$(call RUN,-rs --ignore=$(CLUSTER_TESTS),$(WAITING_TESTS),2)

# --- checks ----------------------------------------------------------------------------------------------------------

.PHONY: check check-lint check-format check-types check-imports check-spelling
check: check-lint check-format check-types check-imports check-spelling ## Lint, format, types, import direction, spelling

check-lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .

check-format: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .

check-types: $(VENV)/.installed-dev
	$(BIN)/pyright --pythonpath $(PYTHON)

check-imports: $(VENV)/.installed-dev
	$(BIN)/lint-imports

check-spelling: $(VENV)/.installed-dev
	$(BIN)/codespell

# --- measurements ----------------------------------------------------------------------------------------------------

.PHONY: bench-smoke
bench-smoke: java $(VENV)/.installed-bench ## Compare varvite with Spark's own state
	$(PYTHON) -m benchmarks.smoke $(BENCH_ARGS)

.PHONY: bench-state
bench-state: $(VENV)/.installed-bench ## Measure single accesses of keyed state, without Spark
	$(PYTHON) -m benchmarks.state_access $(BENCH_ARGS)

.PHONY: bench-changelog
bench-changelog: java $(VENV)/.installed-bench ## Measure what the changelog costs a job
	$(PYTHON) -m benchmarks.changelog_cost $(BENCH_ARGS)

.PHONY: bench-ack bench-trigger bench-latency bench-bill bench-recovery bench-space bench-materializer
bench-ack: java $(VENV)/.installed-bench ## Measure acknowledgements while the state grows
	$(PYTHON) -m benchmarks.ack_state_size $(BENCH_ARGS)

bench-trigger: java $(VENV)/.installed-bench ## Find the smallest trigger interval, beside Spark's
	$(PYTHON) -m benchmarks.trigger_interval $(BENCH_ARGS)

bench-latency: java $(VENV)/.installed-bench ## Measure triggers of few rows by both ways, beside Spark's
	$(PYTHON) -m benchmarks.trigger_latency $(BENCH_ARGS)

bench-bill: java $(VENV)/.installed-bench ## Count requests to the storage, beside Spark's, and price them
	$(PYTHON) -m benchmarks.requests_and_bill $(BENCH_ARGS)

bench-recovery: java $(VENV)/.installed-bench ## Measure restarts with a gigabyte of state, beside Spark's
	$(PYTHON) -m benchmarks.recovery $(BENCH_ARGS)

bench-space: $(VENV)/.installed-bench ## Measure what the storage holds in an hour of sliding windows
	$(PYTHON) -m benchmarks.space $(BENCH_ARGS)

bench-materializer: java $(VENV)/.installed-bench ## Measure how fast the materializer folds
	$(PYTHON) -m benchmarks.materializer_speed $(BENCH_ARGS)

.PHONY: bench bench-all bench-report
bench: java $(VENV)/.installed-bench ## Measure what has a target, and write the report
	set -e; for name in $(BENCHMARKS); do $(PYTHON) -m benchmarks.$$name $(BENCH_ARGS); done
	$(PYTHON) -m benchmarks.harness.report_page

bench-all: bench ## Run the other benchmarks too
	set -e; for name in $(OTHER_BENCHMARKS); do $(PYTHON) -m benchmarks.$$name; done
	$(PYTHON) -m benchmarks.harness.report_page

bench-report: $(VENV)/.installed-bench ## Write the report of the results that there are
	$(PYTHON) -m benchmarks.harness.report_page

# --- cleaning --------------------------------------------------------------------------------------------------------

.PHONY: clean
clean: ## Remove everything that these commands have made, .venv included
	if [ -f '$(VENV)/pyvenv.cfg' ]; then rm -rf '$(VENV)'; fi
	rm -rf build dist src/varvite.egg-info .hypothesis .pytest_cache .ruff_cache .import_linter_cache
	rm -rf metastore_db spark-warehouse derby.log .kafka .azurite
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
