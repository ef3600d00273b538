# Two commands do everything: `make run` and `make test`.
#
#   make run                      build, fetch the default model, answer PROMPT
#   make run PROMPT="..." MODEL=smollm2-135m BACKEND=reference
#   make test                     every check, then every test but those on a Ray cluster; those of the
#                                 pages where there is a Chromium
#   make test-python | test-native | test-model
#   make test-ray                 replicas, batches and stages on a cluster of several nodes
#   make test-browser             the pages alone, in a headless Chromium
#   make sanitize                 the native tests under AddressSanitizer, UBSan and ThreadSanitizer
#   make docs                     the guide as plain files in build/docs, its figures recorded
#   make lint | clean

.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?=
MODEL ?= smollm2-135m
BACKEND ?= native
PROMPT ?= Why is the sky blue? Answer in two sentences.
# Workers of the test run; two keep a small machine busy without starving each other.
JOBS ?= 2
PYTEST_ARGS ?=

# Handed over in the environment, so that quotes and dollars in a prompt stay what they are.
export MODEL BACKEND PROMPT PYTHON

# A change to these needs the native code built, or dependencies installed, again. Python sources are
# read in place.
BUILD_INPUTS := pyproject.toml CMakeLists.txt $(shell find native -type f 2>/dev/null)
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
REQUIREMENTS := $(BIN)/python tools/requirements.py

.PHONY: help run install lint test test-python test-native test-model test-ray test-browser axe sanitize docs clean

help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile

$(VENV)/made:
	@python=$$(sh tools/find-python.sh) || exit 1; \
	echo "Creating $(VENV) with $$python"; \
	"$$python" -m venv --clear $(VENV)
	@touch $@

# What builds lies in the environment itself, not in one that pip makes anew each time: so that a change
# to one native file compiles one file.
$(VENV)/installed: $(VENV)/made $(BUILD_INPUTS)
	@sh tools/find-compiler.sh
	@echo "Building the native code and installing Pellucid (a minute or two the first time)"
	@$(REQUIREMENTS) build > $(VENV)/requirements-build.txt
	@$(PIP_INSTALL) -r $(VENV)/requirements-build.txt
	@$(PIP_INSTALL) --no-build-isolation --editable .
	@touch $@

$(VENV)/installed-test: pyproject.toml | $(VENV)/installed
	@echo "Installing what the tests need (PyTorch among it: several minutes the first time)"
	@$(REQUIREMENTS) test > $(VENV)/requirements-test.txt
	@$(PIP_INSTALL) -r $(VENV)/requirements-test.txt
	@touch $@

install: $(VENV)/installed

run: $(VENV)/installed
	@$(BIN)/pellucid run --model "$$MODEL" --backend "$$BACKEND" -- "$$PROMPT"

lint: $(VENV)/installed $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Those in a browser by themselves: they share one server and one Chromium. Those on a Ray cluster are
# for test-ray.
test: lint axe
	$(BIN)/pytest -n $(JOBS) tests/python tests/native tests/model $(PYTEST_ARGS)
	$(BIN)/pytest tests/browser $(PYTEST_ARGS) || [ $$? -eq 5 ] # 5: PYTEST_ARGS chose none of them

test-python test-native test-model: test-%: $(VENV)/installed $(VENV)/installed-test
	$(BIN)/pytest -n $(JOBS) tests/$* $(PYTEST_ARGS)

# One after the other: each starts a cluster.
test-ray: $(VENV)/installed $(VENV)/installed-test
	$(BIN)/pytest tests/cluster $(PYTEST_ARGS)

test-browser: $(VENV)/installed $(VENV)/installed-test axe
	$(BIN)/pytest tests/browser $(PYTEST_ARGS)

# axe-core, where npm can fetch it: without it the tests that ask it are skipped, and say so.
axe:
	@if command -v npm >/dev/null && [ ! -f tests/browser/node_modules/axe-core/axe.min.js ]; then \
		timeout 60 npm install --silent --no-audit --no-fund --prefix tests/browser || echo "axe-core was not fetched"; \
	fi

# Two builds of their own under build/sanitize, kept for the next time.
sanitize: $(VENV)/installed $(VENV)/installed-test
	@sh tools/sanitize.sh $(VENV)

docs: $(VENV)/installed
	@$(BIN)/python tools/build_guide.py build/docs "$$MODEL"

clean:
	rm -rf tests/browser/node_modules
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests -type d -name __pycache__ -prune -exec rm -rf {} +
