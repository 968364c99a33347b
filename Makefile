# Every target sets up what it needs, so each of them works in a fresh clone.
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.DELETE_ON_ERROR:

PY := .venv/bin/python
STAMP := .venv/.set-up
# bench/ and tools/ hold scripts; all four are held to the same types and style.
# Other seeds in every run; a failing test's name has the one to repeat.
NOW := $(shell date +%s)
SEEDS ?= $(NOW)00-$(NOW)99
CODE := src tests tools $(if $(wildcard bench/*.py),bench)

.PHONY: help setup java lock format lint check test fuzz torture canaries demo bench bench-peers clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## build .venv with everything SMILE needs, Java included

$(STAMP): pyproject.toml requirements.lock requirements-java.lock tools/find-python tools/setup.py tools/setup_java.py
	@python="$$(sh tools/find-python)" && "$$python" tools/setup.py
	@touch $@

java: $(STAMP) ## give .venv a Java if the machine has lost its own
	@$(PY) tools/setup_java.py

lock: ## make requirements.lock anew from pyproject.toml
	@python="$$(sh tools/find-python)" && "$$python" tools/lock.py > requirements.lock.new
	@mv requirements.lock.new requirements.lock

format: $(STAMP) ## lay out all code, and mend what ruff can mend
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

lint: $(STAMP) ## style, layout and types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy $(CODE)

check: lint ## lint and the fast tests: under two minutes
	$(PY) -m pytest -q -n 2 --dist loadgroup -m "not slow"

test: lint ## lint and all tests
	$(PY) -m pytest -q -n 2 --dist loadgroup

# The same programs on Spark with ENGINE=spark.
FUZZED := $(if $(filter spark,$(ENGINE)),tests/engine/spark/test_random_programs.py,tests/test_random_programs.py \
	tests/reference/test_random_programs.py tests/engine/test_random_programs.py tests/engine/test_repartition.py)

fuzz: $(STAMP) ## random programs with SEEDS=1000-2000, or from where the clock is; with ENGINE=spark on Spark
	SMILE_SEEDS=$(SEEDS) $(PY) -m pytest -q -n 2 --dist loadgroup $(FUZZED)

# Ten seeds, with ten kills each.
torture: SEEDS := $(NOW)0-$(NOW)9
torture: $(STAMP) ## kill a broker 100 times under load; SEEDS=1-10 repeats, ENGINE=spark has the views on Spark
	SMILE_SEEDS=$(SEEDS) TORTURED=$(or $(ENGINE),local) $(PY) -m pytest -q -n 2 --dist loadgroup tests/torture/test_kills.py

canaries: $(STAMP) ## plant bugs in the transforms and in the broker, one by one, and see each of them found
	$(PY) -m pytest -q -n 2 tests/engine/canaries.py tests/torture/canaries.py

demo: $(STAMP) ## the trading floor: a broker on Spark with simulated people; with SECONDS=20 it ends by itself
	@.venv/bin/smile demo $(if $(SECONDS),--seconds $(SECONDS))

bench: $(STAMP) ## run the benchmarks, or with PARTS="engine spark" some of them
	$(PY) -m bench $(PARTS)

bench-peers: $(STAMP) ## build the environments of the systems that the benchmarks compare SMILE with
	$(PY) -m bench.peers.build

clean: ## remove .venv and everything else that was made
	rm -rf .venv .peers build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis requirements.lock.new
	find src tests tools -name __pycache__ -prune -exec rm -rf {} +
