# What a developer types; `make` alone lists it. Needs Python 3.11 or newer, and make.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	if $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$p; break; fi; done)
BIN := .venv/bin
# Test processes, for two cores: one of three is blocked by a browser or a server most of the time.
# More needs more memory and database connections.
JOBS ?= 3
# Further words for pytest, as in: make test ARGS="tests/usage -k conservation"
ARGS ?=
UPGRADE ?=
# How many days of a trace `make truths` takes through the portal; all of them where it is empty.
DAYS ?=
CODE := manage.py gpuportal apps simulator clients tests scripts
PYTEST = $(BIN)/python -m pytest --numprocesses $(JOBS) --dist worksteal --require-servers
# Its plugin takes half a second in each process, for tests of check-full alone.
SOME := -p no:schemathesis
POSTGRESQL := $(BIN)/python -m tests.servers --
SQLITE := $(BIN)/python -m tests.servers --sqlite --

# Where a machine sets it, every process would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
ifndef TOGETHER
.NOTPARALLEL:
endif
.PHONY: help python runtime setup programs validator demo run test test-all test-sqlite repeats lint types contracts dead \
	migrations templates static prepared check check-full fix truths pictures bench load lock image secrets bundle release clean

help: ## Say what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed and none was found in PATH" >&2; exit 1; }

runtime: python
	@$(PYTHON) scripts/setup.py

setup: python ## Make .venv and node_modules as pinned
	@$(PYTHON) scripts/setup.py --dev

programs: setup validator
	@$(BIN)/python -m tests.programs

# The FinOps Foundation's validator wants old packages: it has an environment of its own.
VALIDATOR := var/focus-validator
VALIDATOR_PINS := tests/costs/focus_validator.txt

validator: setup
	@cmp -s $(VALIDATOR_PINS) $(VALIDATOR)/installed.txt || { \
		$(BIN)/uv venv --quiet --clear --python "$(PYTHON)" $(VALIDATOR) \
		&& $(BIN)/uv pip install --quiet --system-certs --python $(VALIDATOR)/bin/python --require-hashes \
			-r $(VALIDATOR_PINS) \
		&& cp $(VALIDATOR_PINS) $(VALIDATOR)/installed.txt; }

demo: runtime ## Serve the portal on a simulated cluster (SCENARIO=, PORT=, LAB_PORT=)
	@exec $(BIN)/python manage.py demo

run: runtime ## Serve the portal on your own catalog: web, worker, beat, watch
	@$(BIN)/python manage.py migrate --noinput
	@exec $(BIN)/python manage.py run

test: programs ## Run the tests on PostgreSQL but the long ones (ARGS= for pytest)
	$(POSTGRESQL) $(PYTEST) $(SOME) -m "not long and not exhaustive" $(ARGS)

test-all: programs ## Run the tests on PostgreSQL, the long ones too
	$(POSTGRESQL) $(PYTEST) $(SOME) -m "not exhaustive" $(ARGS)

# Selectors and services are where SQL is; what is built on them runs whole in check-full.
ON_SQLITE ?= tests/accounts tests/quota_requests tests/clusters tests/costs tests/fairness tests/pending \
	tests/planning tests/quotas tests/usage
# Whole traces through the chain hold numbers; the SQL behind them is asked by the other tests.
CHAINS := tests/costs/test_campus_slice.py tests/fairness/test_helios_chain.py \
	tests/pending/test_on_the_lab.py tests/planning/test_drain_on_campus.py \
	tests/planning/test_layouts_on_campus.py tests/planning/test_nodes_from_series.py \
	tests/quotas/test_campus.py tests/usage/test_matrix_trace.py
# Nor have these a statement of their own: they kill workers between those of the others, and apply
# on the simulator what the others apply.
CHAINS += tests/quota_requests/test_crashes.py tests/quota_requests/test_crashes_elsewhere.py \
	tests/quota_requests/test_apply_on_the_lab.py
# Tests of other files that are such chains.
CHAIN_TESTS := tests/quotas/test_any_order.py::test_the_order_of_collection_and_kills_do_not_matter \
	tests/usage/test_outages.py::test_without_labels_replicas_are_not_taken_for_gpus

SELECTED_ON_SQLITE = --database-only -m "not exhaustive and not redis and not prometheus" $(ON_SQLITE) \
	$(addprefix --ignore=,$(CHAINS)) $(addprefix --deselect=,$(CHAIN_TESTS))

# No browser delays these: two processes fill two cores.
test-sqlite: JOBS := 2
test-sqlite: programs ## Run the tests of what asks the database on SQLite
	$(SQLITE) $(PYTEST) $(SOME) --without-repeats $(SELECTED_ON_SQLITE) $(ARGS)

repeats: programs ## List anew the tests that say nothing new on SQLite, some minutes
	$(SQLITE) $(BIN)/python -m pytest -p tests.statements --require-servers $(SELECTED_ON_SQLITE)

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: setup
	$(BIN)/mypy $(CODE)

contracts: setup
	$(BIN)/lint-imports

dead: setup
	$(BIN)/python scripts/dead_code.py

migrations: setup
	DATABASE_URL=sqlite:///:memory: $(BIN)/python manage.py makemigrations --check --dry-run

# H021: a swatch takes its colour, a bar its length, from a style attribute; the CSP allows these.
templates: setup
	$(BIN)/djlint --lint --quiet --ignore H021 templates

# Each takes one core.
STATIC := lint types contracts dead migrations templates

static: setup ## Read the code without running it, two tools at a time
	@$(MAKE) --no-print-directory --jobs 2 --output-sync TOGETHER=yes $(STATIC) $(WITH)

# What tests begin with: migrated databases to copy, and every module of tests compiled with its
# asserts, which each process would do for itself. Types occupy one core meanwhile.
prepared: programs
	$(POSTGRESQL) true
	$(SQLITE) $(BIN)/python -m pytest $(SOME) --collect-only -qq --numprocesses 0 >var/collected.txt \
		|| { cat var/collected.txt; exit 1; }

check check-full: WITH := prepared
check: static test-all test-sqlite ## All that CI runs

check-full: static programs truths image ## check, with the long variants
	$(POSTGRESQL) $(PYTEST) --hypothesis-profile=exhaustive $(ARGS)
	$(SQLITE) $(PYTEST) --hypothesis-profile=exhaustive --database-only $(ARGS)

fix: setup ## Format, and mend what tools can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	find apps gpuportal tests -name '*.py' -exec $(BIN)/django-upgrade --target-version 5.2 {} +
	$(BIN)/djlint --reformat --quiet templates

truths: programs ## Hold whole traces against their published sums, some minutes (DAYS=)
	$(BIN)/python -m tests.simulator.truths
	$(POSTGRESQL) $(BIN)/python -m tests.truths $(DAYS)
	$(POSTGRESQL) $(BIN)/python -m tests.openb_truths $(DAYS)
	$(POSTGRESQL) $(BIN)/python -m tests.campus_truths $(DAYS)
	$(POSTGRESQL) $(BIN)/python -m tests.planning.scenario_backtest openb
	$(POSTGRESQL) $(BIN)/python -m tests.planning.scenario_backtest campus
	$(POSTGRESQL) $(BIN)/python -m tests.planning.scenario_backtest campus-from-series
	$(POSTGRESQL) $(BIN)/python -m tests.planning.scenario_forecasts

pictures: programs ## Make the pictures and the table of tasks of the documentation, and var/screenshots of every page
	GPUPORTAL_MAKE_PICTURES=1 $(SQLITE) $(BIN)/python -m pytest --require-servers tests/web/test_pictures.py \
		tests/web/test_tasks_browser.py tests/web/test_page_limits.py

bench: programs ## Measure against targets; writes var/bench.json (BENCH=full for 100,000 GPUs)
	$(BIN)/python -m tests.bench

load: programs ## Measure a company's clusters and readers, and a tenth of them (LOAD=tenth); writes var/load.json
	$(BIN)/python -m tests.load

# With the hash of each file that the index has of a version, for all platforms.
COMPILE := $(BIN)/uv pip compile --quiet $(UPGRADE) --generate-hashes --universal --python-version 3.11

lock: setup ## Write the pinned lists again, with hashes (UPGRADE=--upgrade takes the newest)
	$(COMPILE) requirements.in -o requirements.txt
	$(COMPILE) requirements-parquet.in -c requirements.txt -o requirements-parquet.txt
	$(COMPILE) requirements-dev.in -c requirements.txt -o requirements-dev.txt
	$(COMPILE) --no-annotate scripts/node.in -o scripts/node.txt
	$(COMPILE) --no-annotate tests/costs/focus_validator.in -o $(VALIDATOR_PINS)

image: programs ## Build the image from a Debian base and run it read-only (needs root and buildah)
	$(POSTGRESQL) $(BIN)/python -m tests.image

secrets: python ## Write the secrets of docker-compose.yml to var/secrets
	@$(PYTHON) scripts/make_secrets.py

bundle: runtime ## Write the packages, licenses and sources of this version to var/release
	@$(BIN)/python scripts/release_bundle.py

release: runtime ## bundle, with the image TAG= from bases with digests (NODE_IMAGE=, PYTHON_IMAGE=)
	@$(BIN)/python scripts/release_image.py "$(TAG)" "$(NODE_IMAGE)" "$(PYTHON_IMAGE)"

clean: ## Remove what setup and tools made; var/ stays
	rm -rf .venv node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache htmlcov .coverage
