# `make` lists what there is. Works with GNU make 3.81 (macOS) and later.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:

PYTHON      ?= python3
ACCELERATOR ?= cpu
ENGINE      ?= vllm

ifeq ($(filter $(ACCELERATOR),cpu gpu),)
$(error ACCELERATOR is cpu or gpu, not '$(ACCELERATOR)')
endif
ifeq ($(filter $(ENGINE),vllm simulated),)
$(error ENGINE is vllm or simulated, not '$(ENGINE)')
endif

BIN       := .venv/bin
INSTALLED := .venv/installed-$(if $(filter simulated,$(ENGINE)),simulated,$(ACCELERATOR))
PYTEST    := $(BIN)/python -m pytest -q

# $(call timed,command): runs it, then prints the seconds that it took.
timed = @start=$$(date +%s); $(1) && echo "$@: $$(( $$(date +%s) - start )) s"

# $(call suite,folder,options): the tests of a folder, if it has any yet.
suite = $(if $(shell find $(1) -name 'test_*.py' 2>/dev/null | head -n 1),\
	$(PYTEST) $(2) $(1),echo "no tests in $(1)")

.PHONY: help install run test lint unit integration acceptance test-long test-compose wheels images docs constraints clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14
	@echo
	@echo 'make run: ONCE=1 PROMPT="..." MODEL=folder-or-name ACCELERATOR=cpu|gpu ENGINE=vllm|simulated; PYTHON=python3.12 for all'

install: $(INSTALLED) ## make .venv with everything in it, the model included (1 to 2 minutes)

$(INSTALLED): pyproject.toml constraints.txt $(wildcard install/*.py install/*.txt)
	@$(PYTHON) -m install $(@:.venv/installed-%=%)
	@touch $@

# PROMPT and MODEL reach the shell as variables, so that it never parses what a person typed; set anew without
# expansion, so that make does not take a dollar sign in it for a variable of its own.
ifneq ($(value PROMPT),)
override PROMPT := $(value PROMPT)
export PROMPT
endif
ifneq ($(value MODEL),)
override MODEL := $(value MODEL)
export MODEL
endif

run: $(INSTALLED) ## start a whole pipeline on this machine and talk to it
	@if [ "$(ACCELERATOR) $(ENGINE)" = "cpu vllm" ] && nvidia-smi -L >/dev/null 2>&1; then \
		echo 'This machine has an NVIDIA GPU: `make run ACCELERATOR=gpu` uses it.'; fi
	@$(BIN)/headrace up --demo --engine $(ENGINE) $(if $(filter-out 0,$(ONCE)),--once) \
		$(if $(value PROMPT),--prompt "$$PROMPT") $(if $(value MODEL),--model "$$MODEL")

test: lint unit integration acceptance ## all of the next four, in this order

lint: $(INSTALLED) ## ruff, pyright, the direction of imports
	$(call timed,$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/pyright && $(BIN)/lint-imports)

unit: $(INSTALLED) ## without a broker
	$(call timed,$(call suite,tests/unit,-n 2 -m "not long"))

integration: $(INSTALLED) ## with a real nats-server
	$(call timed,$(call suite,tests/integration,-n 2 -m "not long"))

acceptance: $(INSTALLED) ## with real processes, a real engine, signals
	$(call timed,$(call suite,tests/acceptance,--durations=25 -m "not long"))

test-long: $(INSTALLED) ## minutes of chaos and load
	$(call timed,$(PYTEST) -m long tests)

# Not part of `make test`: it builds images. Without a Docker engine every test is skipped, and the reason is printed.
test-compose: $(INSTALLED) ## the images and compose files, on a Docker engine (5 to 10 minutes)
	$(call timed,$(PYTEST) tests/compose)

wheels: $(INSTALLED) ## fill wheels/, so that images are built without a package registry
	@$(BIN)/python -m install.wheels $(if $(filter simulated,$(ENGINE)),simulated,cpu)

images: ## build headrace-cpu-stage and headrace-inference (ENGINE=simulated: the first alone)
	docker build --target cpu-stage --tag headrace-cpu-stage .
	$(if $(filter simulated,$(ENGINE)),,docker build --target \
		$(if $(filter gpu,$(ACCELERATOR)),inference-gpu --tag headrace-inference-gpu,inference --tag headrace-inference) .)

docs: $(INSTALLED) ## write docs/configuration.md from the settings
	@$(BIN)/python -m stages.settings

# One resolution for all extras; torch without its build's name, so that the pin fits the CPU build too.
constraints: $(INSTALLED) ## renew constraints.txt
	@{ echo '# The exact versions of every package this project can bring along, for Linux, Python 3.11 to 3.14: `make constraints`'; \
	echo 'torch==2.13.0' | $(BIN)/uv pip compile -q --universal --python-version 3.11 --upgrade --no-annotate --no-header \
		--all-extras --overrides - pyproject.toml | sed -E -e "/== '(win32|emscripten)'/d" \
		-e "/== 's390x'( and sys_platform == 'linux')?$$/d" -e "/python_full_version/!s/ ;.*//"; } > constraints.new
	@mv constraints.new constraints.txt

clean: ## remove .venv and what tools leave behind
	rm -rf .venv .venv-smg-* .hypothesis .import_linter_cache .pytest_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
