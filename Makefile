# Every target sets up what it needs, so each works in a fresh clone.
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.DELETE_ON_ERROR:
# Tests start hundreds of processes: each would compile everything anew where the environment forbids to cache bytecode.
export PYTHONDONTWRITEBYTECODE :=

PY := .venv/bin/python
STAMP := .venv/.set-up
# bench/ and tools/ hold scripts; all four are held to the same types and style.
CODE := src tests tools $(if $(wildcard bench/*.py),bench)

.PHONY: help setup java lock audit format lint check fast test nightly mutants simulate demo console docs reference pictures bench bench-peers clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## build .venv with everything SMILE needs, Java included

$(STAMP): pyproject.toml requirements.lock requirements-hashes.lock requirements-java.lock tools/find-python tools/setup.py tools/lock_platform.py tools/setup_java.py
	@python="$$(sh tools/find-python)" && "$$python" tools/setup.py
	@touch $@

java: $(STAMP) ## install Java in .venv if the machine has none
	@$(PY) tools/setup_java.py

lock: ## rebuild the lock files from pyproject.toml; UPGRADE="rich typer" takes the newest versions of these that fit
	@python="$$(sh tools/find-python)" && "$$python" tools/lock.py $(UPGRADE)

audit: ## look for known vulnerabilities of the locked packages; needs pip-audit and its index of advisories
	@python="$$(sh tools/find-python)" && "$$python" tools/audit.py

format: $(STAMP) ## format all code, and apply the fixes of ruff
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

lint: $(STAMP) ## style, layout and types
	@$(PY) -m ruff check --quiet .
	@$(PY) -m ruff format --quiet --check .
	@$(PY) -m mypy $(CODE)

# More workers than cores, since many of the slow tests wait. The longest tests come first (tests/conftest.py).
WORKERS := 4
PYTEST = $(PY) -m pytest -q -n $(WORKERS) --dist loadgroup --no-loadscope-reorder

check: $(STAMP) ## lint and the fast tests, side by side: under 90 seconds
	@$(MAKE) --jobs=2 --output-sync=target lint fast

fast: WORKERS := 2
fast: $(STAMP) ## the fast tests, with a part of their random cases
	@SMILE_RUNS=0.2 $(PYTEST) -m "not slow and not nightly"

test: lint ## lint, and all tests but the nightly ones; what continuous integration runs
	@SMILE_RUNS=0.4 $(PYTEST) -m "not nightly"

nightly: $(STAMP) ## everything there is, with new random cases; PARTS="lint torture" runs some of it, SEED=17 repeats a run
	@$(PY) tools/nightly.py $(if $(SEED),--seed $(SEED)) $(PARTS)

mutants: $(STAMP) ## change the kernels at N random places, and report the changes that no test notices; FILES="kleene best" chooses
	@$(PY) -m tools.mutants $(if $(N),--count $(N)) $(if $(SEED),--seed $(SEED)) $(FILES)

simulate: $(STAMP) ## simulate networks of brokers with faults, SEEDS=17 or SEEDS=0-999, KIND=network or registry; a failing seed is shrunk
	@$(PY) -m tests.simulation $(or $(SEEDS),0-99) $(if $(KIND),--kind $(KIND))

demo: $(STAMP) ## tell a story of a minute on a broker on Spark; NAME=flights chooses it, SECONDS=20 ends it after 20 seconds
	@.venv/bin/smile demo $(NAME) $(if $(SECONDS),--seconds $(SECONDS))

console: ## build the web page from clients/console into src/smile/console/static; needs npm
	@cd clients/js && rm -rf dist && npm ci --no-audit --no-fund
	@cd clients/console && npm ci --no-audit --no-fund && npm run check && npm run build

docs: $(STAMP) reference ## build the web site of the documentation in build/site
	@$(PY) -m sphinx -q -W --keep-going -c tools/site docs build/site
	@echo "open build/site/index.html"

reference: $(STAMP) ## write the pages of docs/reference, the pictures of concepts, and the figures beside peers, from the code and docs/performance.md
	@$(PY) -m tools.reference

pictures: $(STAMP) ## take the pictures of the console for the documents, with Chromium
	@$(PY) -m tools.pictures

bench: $(STAMP) ## run the benchmarks; PARTS="engine spark" runs some of them
	$(PY) -m bench $(PARTS)

bench-peers: $(STAMP) ## build the environments of the systems that SMILE is compared with
	$(PY) -m bench.peers.build

clean: ## remove .venv and all other generated files
	rm -rf .venv .peers build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests tools -name __pycache__ -prune -exec rm -rf {} +
