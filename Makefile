# make setup   .venv with everything pinned (Python 3.11 to 3.13 and make; no compiler)
# make run     the whole star in the foreground; options: make run ARGS="--targets 3 --port 8080"
# make test    lint, types, import contracts, dependencies, all tests
# make load    30 s of Locust on a star of its own; options: make load ARGS="--users 2 --run-time 10s"
# make compose-test   docker-compose.yml for real, in an engine of its own: root on Debian, 7 minutes
# make lint, make format, make docs (docs/settings.md), make constraints (after an upgrade)
# make manifests   k8s/manifests and the settings in the chart's schema

SHELL := /bin/sh
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup
ARGS ?=
PYTEST_ARGS ?=

.PHONY: setup run test load compose-test lint format docs manifests constraints

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt scripts/make-venv
	scripts/make-venv $(VENV)
	touch $@

run: $(STAMP)
	exec $(BIN)/starsd up $(ARGS)

test: lint
	$(BIN)/pytest $(PYTEST_ARGS)

load: $(STAMP)
	scripts/load $(VENV) $(ARGS)

compose-test: $(STAMP)
	scripts/compose-test $(VENV)

lint: $(STAMP)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
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
