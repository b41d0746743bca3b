# Each target does its own set-up in .venv; what is missing on the machine is named in one line.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Four processes for two cores: tests wait as much as they compute. In the order of the files: the short ones come last.
# ARGS='-n 0' is for one process, as a debugger wants it.
PROCESSES ?= 4
PYTEST = $(BIN)/python -m pytest -n $(PROCESSES) --dist loadgroup --no-loadscope-reorder --slow
# Bytecode is kept, whatever the environment says: without it each of the some thousand Python processes of a run compiles what
# it imports, and each process of pytest rewrites all tests.
unexport PYTHONDONTWRITEBYTECODE
ZIP ?= dist/pyproducer.zip
HOURS ?= 2
KERBEROS := gcc libkrb5-dev krb5-kdc krb5-admin-server
# The versions that passed together. `make clean setup-dev CONSTRAINTS=` takes the newest that pyproject.toml allows.
CONSTRAINTS ?= constraints.txt
CONSTRAIN := $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS))
# 25.3 knows --build-constraint: the versions that build the package come from the same file
PIP_VERSION := $(CONSTRAIN) --upgrade 'pip>=25.3'
CONSTRAIN_BUILD := $(if $(CONSTRAINTS),--build-constraint $(CONSTRAINTS))
.DEFAULT_GOAL := help
.PHONY: help check-python check-machine setup setup-dev quickstart jars kerberos prometheus bytecode test test-fast nightly coverage campaigns crash-seeds kills model matrix nemesis soak lint bench dashboard experiments asan notebooks zip wheel conda changes release release-check platforms deployments roots constraints docs licences fuzz site clean

help: ## show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

check-python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "Python 3.11 or newer is needed: install it and run make PYTHON=python3.11 ..."; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "Python's venv module is needed: apt-get install python3-venv"; exit 1; }

check-machine: check-python
	@java -version 2>&1 | grep -qE 'version "(1[7-9]|[2-9][0-9])' || { echo "Java 17 or newer is needed by Spark: apt-get install openjdk-17-jre-headless"; exit 1; }

$(VENV)/jobs.stamp: pyproject.toml $(CONSTRAINTS) $(wildcard spark_producer/kernel/*.p[yx][xd]) | check-machine
	@echo "Setting up $(VENV) (the first time takes a minute or two) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet $(PIP_VERSION)
	@rm -f spark_producer/kernel/*.cpython-*.so  # of earlier versions, which Python would take before the new ones
	@# compat: a plain path, since Spark looks for data sources with pkgutil, which does not see setuptools' import hooks
	@# PYTHONWARNINGS: setuptools warns of that mode and of extension modules in pyproject.toml, in the middle of the quickstart
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet $(CONSTRAIN) $(CONSTRAIN_BUILD) --editable '.[jobs]' --config-settings editable_mode=compat
	@touch $@

$(VENV)/dev.stamp: pyproject.toml $(VENV)/jobs.stamp
	@$(BIN)/python -m pip install --quiet $(CONSTRAIN) --group dev
	@touch $@

setup: $(VENV)/jobs.stamp ## make .venv with the package and what the jobs need
setup-dev: $(VENV)/dev.stamp ## the same, with everything that tests, lint and benchmarks need

quickstart: setup ## start the embedded broker, write the flights of 2013, read them back
	@env -u SPARK_HOME -u SPARK_CONF_DIR -u PYSPARK_DRIVER_PYTHON PYSPARK_PYTHON=$(abspath $(BIN)/python) $(BIN)/python jobs/quickstart.py $(ARGS)

jars: setup-dev ## fetch Kafka, and make the archives that its JVMs and Spark's start from
	@$(BIN)/python -m tests.support.jars

kerberos: $(VENV)/kerberos.stamp ## install MIT's KDC and gssapi, without which the tests of Kerberos are skipped; needs Debian and root

# gssapi has no wheel for Linux: it is built against Kerberos's headers, in less than a minute, by the Cython that it names.
$(VENV)/kerberos.stamp: pyproject.toml $(VENV)/dev.stamp
	@PATH="$$PATH:/usr/sbin"; command -v krb5-config > /dev/null && command -v krb5kdc > /dev/null || { \
	  test "$$(id -u)" = 0 && apt-get update -qq -o Acquire::Retries=5 && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -o Acquire::Retries=5 $(KERBEROS) > /dev/null; \
	} || { echo "Kerberos is needed: apt-get install $(KERBEROS)"; exit 1; }
	@$(BIN)/python -m pip install --quiet $(CONSTRAIN) gssapi
	@touch $@

prometheus: ## install Prometheus, without which the nightly test of the dashboard is skipped; needs Debian and root
	@command -v prometheus > /dev/null && command -v promtool > /dev/null || { \
	  test "$$(id -u)" = 0 && apt-get update -qq -o Acquire::Retries=5 && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -o Acquire::Retries=5 prometheus > /dev/null; \
	} || { echo "Prometheus is needed: apt-get install prometheus"; exit 1; }

bytecode: setup-dev ## compile package and tests once, so that the processes of a run need not all do it
	@$(BIN)/python -m compileall -q spark_producer tests benchmarks jobs
	@$(BIN)/python -m pytest -n 0 -q --collect-only > /dev/null

test: jars ## every test of CI, with real Kafka and real Spark
	$(PYTEST) $(ARGS)

test-fast: setup-dev ## tests without a JVM and without the slow ones, a minute or two
	$(PYTEST) -m 'not kafka and not spark and not slow' $(ARGS)

# Nearly all of these start Spark, which gives each of its Python processes 10 s to start: one test a core.
nightly: PROCESSES = 2
nightly: jars ## what CI leaves out: the twins on Kafka 3.9, notebooks, benchmarks' rows, samples of the matrix and of platforms
	$(PYTEST) -m nightly $(ARGS)

coverage: jars ## every test, with the lines and branches that none reaches; takes half as long again
	$(PYTEST) --cov --cov-report=term $(ARGS)

campaigns: setup-dev ## more cases of schedules, races and odd requests than make test has
	$(PYTEST) -m campaign $(ARGS)

crash-seeds: setup-dev ## crash the tiered engine 100,000 times on a simulated disk; takes hours, resumes
	@$(BIN)/python -m tests.unit.broker.storage.tiered.crash_seeds $(ARGS)

kills: setup-dev ## kill -9 the broker 200 times with each storage engine, under kafka-python and librdkafka, and read everything back
	$(BIN)/python -m pytest -n 0 -s -m campaign tests/faults/test_storage_killed.py $(ARGS)

fuzz: setup-dev ## give every decoder of foreign bytes damaged ones, ten seconds each; a finding is kept in tests/fuzz/corpus
	@$(BIN)/python -m tests.fuzz $(ARGS)

model: setup-dev ## model-check exactly-once writes, with more states than the tests, and write docs/exactly_once_models.md
	@$(BIN)/python -m tests.model $(ARGS)

matrix: jars ## kill every process of an exactly-once query after every step, and write docs/exactly_once_matrix.md; takes hours, resumes
	@$(BIN)/python -m tests.matrix $(ARGS)
	@$(BIN)/python -m tests.matrix.scenes
	@$(BIN)/python -m tests.matrix.duel

nemesis: jars ## ten times five minutes of random faults against an exactly-once query on three nodes
	@$(BIN)/python -m tests.matrix.nemesis $(ARGS)

soak: jars ## streams of every guarantee side by side under faults for HOURS (2), and write docs/soak.md with its plots
	@$(BIN)/python -m tests.soak --hours $(HOURS) $(ARGS)

lint: setup-dev ## ruff, mypy strict, import contracts, the form of changes/
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python .ci/check_changes.py

bench: setup-dev ## side by side with Spark's Kafka sink and confluent-kafka, on a real Kafka
	PYSPARK_PYTHON=$(abspath $(BIN)/python) $(BIN)/python -m benchmarks $(ARGS)

dashboard: jars prometheus ## have a Prometheus answer the Grafana dashboard's queries for some minutes, and draw the answers
	@$(BIN)/python -m tests.dashboard

experiments: setup-dev ## run the experiments on the embedded broker's memory, and write docs/broker_experiments.md
	$(BIN)/python -m benchmarks.broker_memory --page docs/broker_experiments.md $(ARGS)

asan: setup-dev ## the tests of the compiled kernel under AddressSanitizer, as committed; needs gcc
	@.ci/asan $(abspath $(BIN)/python)

notebooks: setup-dev ## run every notebook, write docs/results/notebooks, and test that each needs nothing but the package
	$(BIN)/python notebooks/run.py
	$(BIN)/python -m pytest tests/notebooks $(ARGS)

zip: ## make dist/pyproducer.zip, what Spark needs of the package, for spark-submit --py-files
	@$(PYTHON) .ci/make_zip.py $(ZIP)

wheel: ## build a wheel into dist and try it in an environment of its own, without Spark
	@rm -rf build/lib* build/bdist* build/wheel
	@$(PYTHON) -m venv build/wheel/venv
	@build/wheel/venv/bin/python -m pip install --quiet $(PIP_VERSION)
	@build/wheel/venv/bin/python -m pip wheel --quiet --no-deps $(CONSTRAIN_BUILD) --wheel-dir build/wheel .
	@build/wheel/venv/bin/python -m pip install --quiet $(CONSTRAIN) build/wheel/*.whl
	@build/wheel/venv/bin/python .ci/try_wheel.py
	@mkdir -p dist && cp build/wheel/*.whl dist && echo dist/$$(basename build/wheel/*.whl)

changes: check-python ## show what CHANGELOG.md would get from changes/
	@$(PYTHON) .ci/cut_release.py

release: check-python ## cut a release: make release VERSION=1.0.0 writes the version and CHANGELOG.md
	@test -n "$(VERSION)" || { echo "make release VERSION=1.0.0"; exit 1; }
	@$(PYTHON) .ci/cut_release.py $(VERSION)

release-check: check-machine ## build a release twice, compare the bytes, install each artefact in an empty environment and try it
	@$(PYTHON) .ci/release_check.py

conda: check-python ## check the conda recipe; it is built where conda's channels can be reached
	@$(PYTHON) .ci/check_recipe.py

platforms: setup-dev ## try the wheel with each Spark and Python in docs/platforms.md (3.14: after make roots), with --archives, Sail, and libraries of tables; 10 GB and half an hour
	@$(BIN)/python -m tests.platforms $(ARGS)
	@$(BIN)/python -m tests.platforms.kernels
	@$(BIN)/python -m tests.platforms.shipping
	@$(BIN)/python -m tests.platforms.sail
	@$(BIN)/python -m tests.platforms.recipes
	@$(BIN)/python -m tests.platforms.spark_tables

roots: setup-dev ## make the roots of make platforms with Python 3.14 and with aarch64: needs Debian, the user root and a gigabyte
	@$(BIN)/python -m tests.platforms.roots $(or $(ARGS),python-3.14 aarch64)

deployments: jars ## try the package on a standalone cluster, with a read-only root, and write the table in docs/platforms.md
	@$(BIN)/python -m tests.platforms.deployments $(ARGS)

constraints: setup-dev ## rewrite constraints.txt with the newest versions that pyproject.toml allows
	@$(BIN)/python .ci/renew_constraints.py

docs: setup ## write docs/{options,metrics,broker_metrics,errors}.md, the drawn pictures and the profiles in conf/ from the code
	@$(BIN)/python -m docs.update

licences: kerberos ## write the table of docs/licences.md from the metadata of what is installed
	@$(BIN)/python -m docs.licences

$(VENV)/site.stamp: pyproject.toml $(CONSTRAINTS) | check-python
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet $(PIP_VERSION)
	@$(BIN)/python -m pip install --quiet $(CONSTRAIN) --group site
	@touch $@

site: $(VENV)/site.stamp ## build the documentation into build/site, to open in a browser without a server
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build $(ARGS)
	@echo build/site/index.html

clean: ## remove what make made
	rm -rf $(VENV) spark_producer/kernel/*.c spark_producer/kernel/*.so build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis htmlcov .coverage .coverage.*
