# Two commands for a newcomer: `make demo` and `make test`. Both make .venv first, where it is missing or out of date.
#
#   PYTHON=python3.12 make test      takes another interpreter (3.11 or later)
#   PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make demo
#                                    takes PyTorch without CUDA, a tenth of the size, where a GPU is not wanted

PYTHON ?= python3
OUTPUT ?= demo-output

VENV := .venv
# A server of the Tinker API that runs on a CPU, with what it names no working versions of.
TINKER_VENV := .venv-tinker
TINKER_SERVER := 'skyrl-tx[tinker]==0.3.0' 'jax>=0.8,<1' 'flax>=0.12.2' 'optax>=0.2.5' 'torch==2.13.0'
# The harness that multiple_choice is compared with, on the libraries of $(VENV).
LM_EVAL_VENV := .venv-lm-eval
LM_EVAL := 'lm-eval[hf]==0.4.13'
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# pyright would ask the network for newer versions of itself; ours is pinned.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-tinker lint generate bench bench-lm-eval torture serve clean

help: ## say what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 18

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or later is needed: PYTHON=python3.12 make ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "Python's venv module is missing; on Debian and Ubuntu: sudo apt install python3-venv" >&2; exit 1; }
	@echo "Setting up $(VENV): PyTorch and the rest take some minutes the first time."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[local,lora,openai,text,datasets,dev]'
	$(BIN)/pip install --quiet --constraint constraints.txt --no-deps tinker-cookbook==0.6.1
	@touch $@

demo: $(READY) ## evaluate the embedded checkpoints, live; OUTPUT=DIR takes the files it leaves
	$(BIN)/crucible-worker demo --output $(OUTPUT)

test: lint ## lint, then every test but torture and test-tinker
	$(BIN)/pytest

$(TINKER_VENV)/.ready: Makefile
	$(PYTHON) -m venv $(TINKER_VENV)
	$(TINKER_VENV)/bin/pip install --quiet $(TINKER_SERVER)
	@touch $@

test-tinker: $(READY) $(TINKER_VENV)/.ready ## the tinker backend against a real server on the CPU; 2 GB of disk
	TINKER_SERVER_PYTHON=$(TINKER_VENV)/bin/python $(BIN)/pytest -m tinker

lint: $(READY) ## style, types, directions of imports, protos, generated code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/buf lint protos
	$(BIN)/python protos/generate.py --check

generate: $(READY) ## generate Python from protos/
	$(BIN)/python protos/generate.py

bench: $(READY) ## every measured claim; each script in benchmarks/ also runs alone
	@for script in benchmarks/[a-z]*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

$(LM_EVAL_VENV)/.ready: $(READY)
	$(PYTHON) -m venv $(LM_EVAL_VENV)
	echo "$(CURDIR)/$$(echo $(VENV)/lib/python3.*/site-packages)" > \
		"$$(echo $(LM_EVAL_VENV)/lib/python3.*/site-packages)/worker.pth"
	$(LM_EVAL_VENV)/bin/pip install --quiet $(LM_EVAL)
	@touch $@

bench-lm-eval: $(LM_EVAL_VENV)/.ready ## multiple_choice against lm-evaluation-harness, which is installed for it
	LM_EVAL_PYTHON=$(LM_EVAL_VENV)/bin/python $(BIN)/python benchmarks/multiple_choice.py

torture: $(READY) ## many rounds of kills, disconnects and take-overs
	$(BIN)/pytest -m torture

serve: $(READY) ## a worker on 127.0.0.1:50051
	$(BIN)/crucible-worker serve

clean: ## remove the environment and everything else that was made
	rm -rf $(VENV) $(TINKER_VENV) $(LM_EVAL_VENV) build dist demo-output .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
