# make setup   .venv with everything pinned (Python 3.11 to 3.13 and make; no compiler)
# make run     the whole star in the foreground; options: make run ARGS="--targets 3 --port 8080"
# make test    lint, types, import contracts, dependencies, all tests
# make load    30 s of Locust on a star of its own; options: make load ARGS="--users 2 --run-time 10s"
# make conformance  every client of the API on a star of its own, then docs/conformance.md: 5 minutes
# make compose-test   docker-compose.yml for real, in an engine of its own: root on Debian, 7 minutes
# make lint, make format, make docs (docs/settings.md), make constraints (after an upgrade)
# make manifests   k8s/manifests and the settings in the chart's schema

SHELL := /bin/sh
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup
ARGS ?=
PYTEST_ARGS ?=

.PHONY: setup run test load conformance compose-test lint format docs manifests constraints

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt scripts/make-venv
	scripts/make-venv $(VENV)
	touch $@

run: $(STAMP)
	exec $(BIN)/starsd up $(ARGS)

# Two at a time; services that are shared by a file's tests file by file. What times a model, or counts
# what comes in time, has the machine for itself.
PARALLEL := tests/unit tests/identity tests/deploy
ALONE := $(patsubst %,tests/%.py,faults/test_hub faults/test_two_hubs integration/test_bench \
    integration/test_bench_engine)

test: lint
	status=0; \
	$(BIN)/pytest --numprocesses 2 --dist loadgroup $(PYTEST_ARGS) $(PARALLEL) || status=1; \
	$(BIN)/pytest --numprocesses 2 --dist loadfile $(PYTEST_ARGS) \
	    $(foreach path,$(PARALLEL) $(ALONE),--ignore $(path)) || status=1; \
	$(BIN)/pytest $(PYTEST_ARGS) $(ALONE) || status=1; \
	exit $$status

load: $(STAMP)
	scripts/load $(VENV) $(ARGS)

conformance: $(STAMP)
	DIFFERENTIAL_REQUESTS=300 $(BIN)/pytest tests/conformance
	$(BIN)/python -m tests.conformance.run

compose-test: $(STAMP)
	scripts/compose-test $(VENV)

lint: $(STAMP)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy --num-workers 2 || { test $$? = 2 && $(BIN)/mypy; } # workers have 3 s to start
	$(BIN)/lint-imports --no-cache
	$(BIN)/deptry .

format: $(STAMP)
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

docs: $(STAMP)
	$(BIN)/starsd settings --markdown > docs/settings.md

manifests: $(STAMP)
	$(BIN)/python -m tests.deploy.render

constraints: $(STAMP)
	scripts/freeze $(VENV)
