SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
FLINK := .tidemark/flink
AUDIT := .tidemark/audit
DBT := .tidemark/dbt
SQLMESH := .tidemark/sqlmesh
LOCK := deploy/image/requirements.lock
UV := uv==0.13.9
IN_IMAGE := kafka postgres s3 avro protobuf plots lineage otel
# A file's tests share a worker, and so the fixtures of their module; tests/conftest.py puts them in order. A worker that
# dies is not replaced: its successor would be given the test that killed it, again and again.
PARALLEL = $(BIN)/pytest --numprocesses $(or $(WORKERS),auto) --max-worker-restart 0 --dist loadfile --no-loadscope-reorder

# Dagster and Great Expectations import two to three times slower without cached bytecode.
unexport PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# What a checkout needs, as arguments of an installer.
DECLARED := --constraint constraints.txt --editable '.[dev,docs]'

# Everything that runs leaves its own file there, workers of Spark, too.
MEASURED = COVERAGE_FILE=$(CURDIR)/build/coverage/lines $(BIN)/coverage

# Cases of each law in the tests of every day; other ones each time.
FEW = $(or $(TIDEMARK_LAW_CASES),3)
# Laws beside tests/laws, of rooms that have their own oracles.
LAWS = $(wildcard tests/streaming/keyed/test_*laws.py) tests/streaming/joins/test_pure_parts.py tests/streaming/lateness/test_lateness_prediction.py

IS_311 := import sys; sys.exit(sys.version_info[:2] != (3, 11))
PYTHON := $(shell for p in python3.11 python3; do "$$p" -c '$(IS_311)' >/dev/null 2>&1 && { echo "$$p"; break; }; done)

.PHONY: help demo demo-kafka test test-all test-fast coverage prove mutate live soak kills kills-kafka cluster backlog bench bench-full ui check lock audit-deps docs clean python java packages jars archive services

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: jars ## Feed a week of real flights, run the whole path through Dagster, print what late data changed
	@$(BIN)/tidemark demo

demo-kafka: jars ## The same from a Kafka broker into a Postgres, both started for it on this machine
	@$(BIN)/tidemark demo --kafka

test: jars archive ## Run all tests but the long ones, on all cores, or in WORKERS processes; CI does the same for each change
	@TIDEMARK_LAW_CASES=$(FEW) $(PARALLEL) -m 'not long'

test-all: jars archive $(DBT)/.installed $(SQLMESH)/.installed ## Run every test, also each kill, a cluster, brokers that change their leader, and all commands of the guide; CI does so each night
	@$(PARALLEL)

test-fast: jars archive ## Run the tests that start neither Spark nor processes of their own
	@TIDEMARK_LAW_CASES=$(FEW) $(PARALLEL) -m 'not processes and not long' --without-spark

coverage: jars archive ## Tell which lines of streaming/ the tests of every day run, per room, or with ALL=1 all tests; takes half as long again as these
	@rm -rf build/coverage && mkdir -p build/coverage
	@TIDEMARK_LAW_CASES=$(FEW) $(MEASURED) run $(PARALLEL) $(if $(ALL),,-m 'not long') || echo 'Tests failed; the lines that ran are told all the same.' >&2
	@$(MEASURED) combine --quiet && $(MEASURED) json --quiet -o build/coverage/lines.json
	@$(BIN)/python -m tests.support.covered

prove: jars archive ## Try the laws on 500 cases of every kind of window, on 100 pipelines each of streams that meet, of keyed functions and of SQL views; then hostile rows for MINUTES (60); takes hours
	@TIDEMARK_LAW_CASES=500 $(PARALLEL) tests/laws $(LAWS)
	@$(BIN)/python -m tests.support.fuzz --minutes $(or $(MINUTES),60)

mutate: packages ## Break what decides without Spark, one change at a time; print the share that the tests catch
	@$(BIN)/mutmut run
	@$(BIN)/python -m tests.support.mutants

live: jars archive ## Run flights on and on, with Dagster beside it, until Ctrl-C
	@$(BIN)/tidemark live

soak: jars archive ## Leave a stream no peace for MINUTES (60), audit it, write the record to ./soak
	@$(BIN)/python -m benchmarks.soak --minutes $(or $(MINUTES),60)

kills: jars archive ## Kill ROUNDS (100) times whatever a pipeline of joins and lookups under Dagster consists of; the record goes to ./soak
	@$(BIN)/python -m benchmarks.kills --rounds $(or $(ROUNDS),100)

kills-kafka: jars archive ## From Kafka into Postgres and Kafka, all killed at random for MINUTES (20); the record goes to ./soak
	@$(BIN)/python -m benchmarks.kills_of_services --minutes $(or $(MINUTES),20)

cluster: jars archive ## A day of flights on a Spark master and two workers of this machine, each killed in mid-batch, S3=1 for a lake on S3; the record goes to ./soak/cluster
	@$(BIN)/python -m benchmarks.cluster $(if $(S3),--s3)

backlog: jars archive ## Work off ROWS (10000000) that gathered in an outage, in bounded memory; the record goes to ./soak
	@$(BIN)/python -m benchmarks.backlog --rows $(or $(ROWS),10000000)

bench: jars archive ## Tidemark beside what people use instead, in ten minutes; the record goes to ./bench
	@$(BIN)/python -m benchmarks.bench

bench-full: jars archive $(FLINK)/.installed ## The same with Flink and every bar; takes hours
	@$(BIN)/python -m benchmarks.bench --full $(FLINK)/bin/python

ui: jars ## Open Dagster on what the demo left behind
	@$(BIN)/tidemark ui

check: packages docs ## Lint (ruff), check types (mypy), and build the pages
	@$(BIN)/ruff check .
	@$(BIN)/mypy

docs: packages ## Build the pages of docs/ into ./build/site, without network; a link that leads nowhere fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# setuptools builds the library and the project in the image; what builds runs code, so it has a hash like the rest.
lock: $(AUDIT)/.installed ## Write the hashes of all that the image installs, after a change of dependencies
	@echo setuptools | $(AUDIT)/bin/uv pip compile $(IN_IMAGE:%=--extra %) --quiet --no-strip-extras --generate-hashes --no-header --no-annotate --python-version 3.11 --constraint constraints.txt pyproject.toml deploy/image/requirements.txt - --output-file $(LOCK)

audit-deps: $(AUDIT)/.installed ## Ask SERVICE (pypi, or osv) whether what the image installs has known vulnerabilities
	@$(AUDIT)/bin/python deploy/image/audit.py $(or $(SERVICE),pypi)

clean: ## Remove packages, jars, caches and the demo's ./lake
	@rm -rf $(VENV) .tidemark lake soak bench build dist mutants *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

python:
ifeq ($(PYTHON),)
	@echo 'Tidemark needs Python 3.11, and neither python3.11 nor python3 is that version: install it with "sudo apt install python3.11 python3.11-venv" (Debian), "sudo dnf install python3.11" (Fedora) or "brew install python@3.11" (macOS), then run make again.' >&2
	@exit 1
endif

# -P: the folder of the script must not come first on the path, where its modules would hide the standard ones.
java: python
	@$(PYTHON) -P streaming/spark/java.py

packages: java $(INSTALLED)

# Anew after each change of what is declared there. Most of what is installed is never imported, and what is gets compiled
# by then. 0.1.0 has another name, and would stay beside this one. uv resolves and downloads in parallel, and takes no
# settings of pip: where packages come from a place that only those name, pip installs them.
$(INSTALLED): pyproject.toml constraints.txt | java
	@echo 'Installing the packages into $(VENV) (once, a few minutes) ...'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -P -m pip uninstall --quiet --yes tidemark 2>/dev/null
	@$(BIN)/python -m pip install --quiet $(UV) && $(BIN)/uv pip install --quiet --python $(BIN)/python $(DECLARED) \
		|| $(BIN)/python -m pip install --quiet --no-compile $(DECLARED)
	@touch $@

# A Python of its own: what PyFlink asks for excludes what Spark asks for.
$(FLINK)/.installed: | python
	@echo 'Installing Flink into $(FLINK) (once, a few minutes) ...'
	@$(PYTHON) -m venv $(FLINK)
	@$(FLINK)/bin/python -m pip install --quiet apache-flink==2.3.0
	@touch $@

# A Python of its own: what dbt asks for excludes what Dagster asks for. The releases after these bring a parser that has to
# be compiled by a toolchain of Rust's.
$(DBT)/.installed: | python
	@echo 'Installing dbt into $(DBT) (once) ...'
	@$(PYTHON) -m venv $(DBT)
	@$(DBT)/bin/python -m pip install --quiet dbt-core==1.11.16 dbt-duckdb==1.10.1 deltalake==1.6.6 duckdb==2.0.0 pyarrow
	@touch $@

# A Python of its own: SQLMesh asks for a release of sqlglot, and only works with that one.
$(SQLMESH)/.installed: | python
	@echo 'Installing SQLMesh into $(SQLMESH) (once) ...'
	@$(PYTHON) -m venv $(SQLMESH)
	@$(SQLMESH)/bin/python -m pip install --quiet "sqlmesh[duckdb]==0.236.4" deltalake==1.6.6 pyarrow
	@touch $@

# A Python of its own: nothing of the platform needs what these two need.
$(AUDIT)/.installed: | python
	@echo 'Installing pip-audit and uv into $(AUDIT) (once) ...'
	@$(PYTHON) -m venv $(AUDIT)
	@$(AUDIT)/bin/python -m pip install --quiet pip-audit==2.10.1 $(UV)
	@touch $@

# Made once, in half a minute; every JVM of the tests, of which there are dozens, starts some five seconds faster.
archive: jars
	@$(BIN)/python -c 'from streaming.operations import make_class_archive; make_class_archive()'

# Tests would fetch them one after the other, and a worker waits meanwhile.
services: jars
	@$(BIN)/python -c 'from streaming.spark import BROKER, KAFKA, S3, jars_of; [jars_of(group) for group in (KAFKA, BROKER, S3)]' \
		|| echo 'Tests that need them will try again, or tell what they miss.' >&2

# Not "-m streaming.spark.jars": the package imports that module itself, and Python then warns about running it twice.
jars: packages
	@$(BIN)/python -c 'from streaming.spark.jars import main; main()'
