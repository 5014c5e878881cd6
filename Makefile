# Two commands for a newcomer: `make demo` and `make test`. Both make .venv first, where it is missing or out of date:
# `make demo` with what the demo needs, `make test` adds the tools of the checks, `make test-all` PyTorch, Ray and others.
#
#   PYTHON=python3.12 make test      takes another interpreter (3.11 or later)
#   PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make test
#                                    takes PyTorch without CUDA, a tenth of the size, where a GPU is not wanted

PYTHON ?= python3
OUTPUT ?= demo-output
SECONDS ?= 3600
CORES := $(shell nproc)
# Twice as many as the cores: many tests wait.
PROCESSES ?= $(shell echo $$(( $(CORES) * 2 )))

VENV := .venv
# The version that the committed modules were made with; others of the Elixir client's dependencies read them as well.
PROTOC_GEN_ELIXIR := 0.15.0
# A server of the Tinker API that runs on a CPU, with what it names no working versions of.
TINKER_VENV := .venv-tinker
TINKER_SERVER := 'skyrl-tx[tinker]==0.3.0' 'jax>=0.8,<1' 'flax>=0.12.2' 'optax>=0.2.5' 'torch==2.13.0'
# The harness that multiple_choice is compared with, on the libraries of $(VENV).
LM_EVAL_VENV := .venv-lm-eval
LM_EVAL := 'lm-eval[hf]==0.4.13'
# It asks for older versions of two libraries than constraints.txt pins, and for 150 MB of others.
INSPECT_VENV := .venv-inspect
INSPECT := 'inspect-ai==0.3.285'
# Experiment trackers, and the trainer Lightning: a hundred libraries.
LOGGERS_VENV := .venv-loggers
LOGGERS := 'trackio==0.43.0' 'wandb==0.31.0' 'mlflow==3.17.2' 'tensorboardX==2.6.5' 'lightning==2.6.6'
# Trainers that call rewards. Of the last three only the code that calls them is used: the rest wants a GPU.
TRAINERS_VENV := .venv-trainers
TRAINERS := 'trl==1.16.0' 'verifiers==0.4.0' 'tensordict==0.15.3' 'hydra-core==1.3.8' 'codetiming==1.4.0' 'colorlog==6.12.0'
TRAINERS_ALONE := 'verl==0.9.1' 'openrlhf==0.11.2' 'areal==1.0.4'
# Harnesses that call the endpoint of OpenAI's API.
ENDPOINT_VENV := .venv-endpoint
ENDPOINT := 'lm-eval[api]==0.4.13' 'litellm==1.110.2' $(INSPECT)
# Its validator wants Python 3.12 or later, and pandas, duckdb and others of the libraries it converts with.
EVERY_EVAL_EVER_VENV := .venv-every-eval-ever
EVERY_EVAL_EVER := 'every-eval-ever==0.3.0'
EVERY_EVAL_EVER_BASE ?= python3.12
# The oldest versions that the base may have, by pyproject.toml.
FLOORS_VENV := .venv-floors
# Tests of what they are used for.
FLOORS_TESTS := tests/unit/bridge tests/unit/cli/test_progress.py tests/unit/cli/test_tables.py tests/unit/cli/test_grade_counting.py \
	tests/unit/grading/math/test_cases.py tests/unit/grading/test_json_schema.py tests/unit/journal/test_packing.py \
	tests/unit/util/test_options.py tests/unit/grading/test_patterns.py tests/service/test_server_logging.py
# What builds the site of docs/: docs/site/requirements.txt.
DOCS_VENV := .venv-docs
# Rules of accessibility, for the tests of the pages.
AXE_VERSION := 4.14.1
AXE := build/axe.min.js
BIN := $(VENV)/bin
# What the demo needs; with what lint and the core of the tests need; with everything.
DEMO_READY := $(VENV)/.ready-demo
CORE_READY := $(VENV)/.ready-core
READY := $(VENV)/.ready

# pyright would ask the network for newer versions of itself; ours is pinned.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Set in many containers. Each of the hundreds of processes that tests start would compile the project again.
unexport PYTHONDONTWRITEBYTECODE

PIP := $(BIN)/pip install --quiet --constraint constraints.txt --editable
CORE_EXTRAS := frames,openai,postgres,text,web,dev
EXTRAS := frames,local,lora,openai,postgres,text,datasets,web,dev,dev-all

# One line for a step, with its seconds; what it prints is shown if it fails.
define step
	@printf '%s ... ' '$(1)'; began=$$(date +%s); log=$$(mktemp); \
	if ( $(2) ) >$$log 2>&1; then echo "$$(( $$(date +%s) - began )) s"; rm -f $$log; \
	else echo failed; cat $$log >&2; rm -f $$log; exit 1; fi
endef

.DEFAULT_GOAL := help
.PHONY: help demo test check test-elixir test-pages test-tinker test-inspect test-endpoint test-loggers test-trainers test-postgres test-history test-clusters test-failpoints test-every-eval-ever test-floors test-all test-docs lint lint-all docs vendor pictures generate generate-elixir bench bench-lm-eval torture fuzz serve clean

help: ## say what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 22

$(DEMO_READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or later is needed: PYTHON=python3.12 make ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "Python's venv module is missing; on Debian and Ubuntu: sudo apt install python3-venv" >&2; exit 1; }
	$(call step,$(VENV) with the worker (the first time),$(PYTHON) -m venv $(VENV) && $(PIP) .)
	@touch $@

$(CORE_READY): $(DEMO_READY)
	$(call step,tools of the checks (the first time),$(PIP) '.[$(CORE_EXTRAS)]')
	@touch $@

$(READY): $(CORE_READY)
	$(call step,libraries of all checks (the first time: some minutes and 2 GB),$(PIP) '.[$(EXTRAS)]')
	$(call step,tinker-cookbook,$(BIN)/pip install --quiet --constraint constraints.txt --no-deps tinker-cookbook==0.6.1)
	@touch $@

demo: $(DEMO_READY) ## evaluate the embedded checkpoints, live; OUTPUT=DIR takes the files it leaves
	$(BIN)/crucible-worker demo --output $(OUTPUT)

test: lint ## lint, and the core of the tests: after every change, some minutes
	$(BIN)/pytest -m core --quiet --numprocesses=$(CORES) --dist=worksteal $(CORE_OPTIONS)
	@echo "All passed. Everything else: make test-all. How to change something: docs/developing.md"

# A worker whose clock is wrong as a whole needs libfaketime (apt install libfaketime); without it two tests are skipped.
test-all: lint-all ## everything but what its own command is for; names what it skips, and its cure; PROCESSES=N of them at once
	$(BIN)/pytest --quiet --numprocesses=$(PROCESSES) --dist=worksteal --costliest=20
	@$(MAKE) --no-print-directory test-docs test-pages test-clusters test-postgres
	@echo "All passed. Commands with more tests: make help"

test-docs: $(READY) ## the commands and programs of README and docs, as a reader runs them
	$(BIN)/pytest -m docs --quiet --numprocesses=$(PROCESSES) --dist=worksteal

check: $(READY) ## lint, types and tests of what git says is not committed, or of FILES="a.py b.py"
	$(BIN)/python -m tests.changed --processes=$(PROCESSES) $(FILES)

$(TINKER_VENV)/.ready: Makefile
	$(PYTHON) -m venv $(TINKER_VENV)
	$(TINKER_VENV)/bin/pip install --quiet $(TINKER_SERVER)
	@touch $@

test-tinker: $(READY) $(TINKER_VENV)/.ready ## the tinker backend against a real server on the CPU; 2 GB of disk
	TINKER_SERVER_PYTHON=$(TINKER_VENV)/bin/python $(BIN)/pytest -m tinker

$(INSPECT_VENV)/.ready: $(READY)
	$(PYTHON) -m venv $(INSPECT_VENV)
	printf '%s\n' "$(CURDIR)/$$(echo $(VENV)/lib/python3.*/site-packages)" "$(CURDIR)/bridge" "$(CURDIR)/python_worker" > \
		"$$(echo $(INSPECT_VENV)/lib/python3.*/site-packages)/worker.pth"
	$(INSPECT_VENV)/bin/pip install --quiet $(INSPECT)
	@touch $@

test-inspect: $(INSPECT_VENV)/.ready ## tasks of Inspect AI by the worker, and beside Inspect itself
	$(INSPECT_VENV)/bin/python -m pytest -m inspect

$(ENDPOINT_VENV)/.ready: $(READY)
	$(PYTHON) -m venv $(ENDPOINT_VENV)
	printf '%s\n' "$(CURDIR)/$$(echo $(VENV)/lib/python3.*/site-packages)" "$(CURDIR)/bridge" "$(CURDIR)/python_worker" > \
		"$$(echo $(ENDPOINT_VENV)/lib/python3.*/site-packages)/worker.pth"
	$(ENDPOINT_VENV)/bin/pip install --quiet $(ENDPOINT)
	@touch $@

test-endpoint: $(ENDPOINT_VENV)/.ready ## lm-evaluation-harness, Inspect and LiteLLM through the endpoint of OpenAI's API
	$(ENDPOINT_VENV)/bin/python -m pytest -m endpoint

$(LOGGERS_VENV)/.ready: $(READY)
	$(PYTHON) -m venv $(LOGGERS_VENV)
	printf '%s\n' "$(CURDIR)/$$(echo $(VENV)/lib/python3.*/site-packages)" "$(CURDIR)/bridge" "$(CURDIR)/python_worker" > \
		"$$(echo $(LOGGERS_VENV)/lib/python3.*/site-packages)/worker.pth"
	$(LOGGERS_VENV)/bin/pip install --quiet $(LOGGERS)
	@touch $@

test-loggers: $(LOGGERS_VENV)/.ready ## experiments in trackio, wandb (offline), MLflow and TensorBoard, read back from there; Lightning's Trainer
	$(LOGGERS_VENV)/bin/python -m pytest -m loggers
	$(LOGGERS_VENV)/bin/python -m pytest tests/service/test_lightning_callback.py

$(TRAINERS_VENV)/.ready: $(READY)
	$(PYTHON) -m venv $(TRAINERS_VENV)
	printf '%s\n' "$(CURDIR)/$$(echo $(VENV)/lib/python3.*/site-packages)" "$(CURDIR)/bridge" "$(CURDIR)/python_worker" > \
		"$$(echo $(TRAINERS_VENV)/lib/python3.*/site-packages)/worker.pth"
	$(TRAINERS_VENV)/bin/pip install --quiet $(TRAINERS)
	@# Each by itself: one without a wheel for this Python is skipped, with its test.
	for trainer in $(TRAINERS_ALONE); do $(TRAINERS_VENV)/bin/pip install --quiet --no-deps $$trainer || true; done
	@touch $@

test-trainers: $(TRAINERS_VENV)/.ready ## rewards in TRL and verifiers, and in the code of verl, OpenRLHF and AReaL
	$(TRAINERS_VENV)/bin/python -m pytest -m trainers

# Tests of workers as a whole that open no file of the journal themselves.
POSTGRES_TESTS := $(addprefix tests/service/test_evaluation_,bad_input.py drain.py events.py identity.py pause.py plans.py samples.py spans.py) \
	tests/robustness/test_kill.py tests/robustness/test_pause.py tests/robustness/test_plans.py \
	tests/robustness/test_subscribers.py

test-postgres: $(READY) ## a journal in PostgreSQL: its own tests, then those of workers on it; needs its server (apt install postgresql)
	$(BIN)/pytest -m "postgres and not torture and not history" --numprocesses=$(PROCESSES) --dist=worksteal
	TEST_JOURNAL=postgres $(BIN)/pytest $(POSTGRES_TESTS) --numprocesses=$(PROCESSES) --dist=worksteal

test-history: $(READY) ## random calls and faults for 3 minutes, in SQLite and in PostgreSQL; HISTORY_SEED and HISTORY_SECONDS change a run
	$(BIN)/pytest -m history -s -o faulthandler_timeout=$(SECONDS)

# The tests of a module share a cluster.
test-clusters: $(READY) ## grading on real Ray clusters whose nodes die, and models behind `transformers serve`
	$(BIN)/pytest -m clusters --numprocesses=$(PROCESSES) --dist=loadfile

test-failpoints: $(READY) ## workers whose calls to the system fail, one after the other; needs a C compiler
	$(BIN)/pytest -m failpoints --numprocesses=$(PROCESSES) --dist=worksteal

$(EVERY_EVAL_EVER_VENV)/.ready: Makefile
	@command -v $(EVERY_EVAL_EVER_BASE) >/dev/null || { echo "$(EVERY_EVAL_EVER_BASE) is missing:" \
		"EVERY_EVAL_EVER_BASE=python3.13 make ..." >&2; exit 1; }
	$(EVERY_EVAL_EVER_BASE) -m venv $(EVERY_EVAL_EVER_VENV)
	$(EVERY_EVAL_EVER_VENV)/bin/pip install --quiet $(EVERY_EVAL_EVER)
	@touch $@

test-every-eval-ever: $(READY) $(EVERY_EVAL_EVER_VENV)/.ready ## exports for Every Eval Ever by its validator
	EVERY_EVAL_EVER_PYTHON="$(CURDIR)/$(EVERY_EVAL_EVER_VENV)/bin/python" $(BIN)/pytest tests/service/test_export_every_eval_ever.py

# Each dependency of the base at the version after its ">=".
$(FLOORS_VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(FLOORS_VENV)
	sed -n '/^dependencies = \[/,/^\]/s/^    "\([A-Za-z0-9_-]*\)>=\([^",]*\).*/\1==\2/p' pyproject.toml > $(FLOORS_VENV)/floors.txt
	$(FLOORS_VENV)/bin/pip install --quiet --constraint $(FLOORS_VENV)/floors.txt --editable .
	$(FLOORS_VENV)/bin/pip install --quiet pytest pytest-asyncio pytest-xdist hypothesis
	@touch $@

test-floors: $(FLOORS_VENV)/.ready ## the base at the oldest versions of its dependencies: the demo, and tests of what uses them
	$(FLOORS_VENV)/bin/crucible-worker demo --output build/floors
	@# The oldest typer calls what the newest click warns of.
	$(FLOORS_VENV)/bin/python -m pytest -W "ignore:'click.:DeprecationWarning" $(FLOORS_TESTS) --numprocesses=$(PROCESSES)

test-elixir: $(READY) ## the Elixir client against real workers; needs Elixir 1.16 or later, and Hex or BRIDGE_ELIXIR_DEPS
	@command -v mix >/dev/null || { echo "mix is missing: install Elixir 1.16 or later" >&2; exit 1; }
	@test -n "$$BRIDGE_ELIXIR_DEPS" || mix hex.info >/dev/null 2>&1 || { echo "Hex is missing: mix local.hex," \
		"or name a folder of dependencies by BRIDGE_ELIXIR_DEPS (see elixir_client_example/mix.exs)" >&2; exit 1; }
	cd elixir_client_example && { test -n "$$BRIDGE_ELIXIR_DEPS" || mix deps.get; } && \
		mix format --check-formatted && MIX_ENV=test mix compile --warnings-as-errors && mix test --include integration

# Its rules are run in the pages; nothing of it is part of the project.
$(AXE): Makefile
	@mkdir -p build && cd build && npm pack --silent axe-core@$(AXE_VERSION) && \
		tar -xzmf axe-core-$(AXE_VERSION).tgz --strip-components=1 package/axe.min.js || \
		echo "axe-core $(AXE_VERSION) cannot be fetched by npm: the pages are not searched for barriers" >&2
	@rm -f build/axe-core-$(AXE_VERSION).tgz

$(DOCS_VENV)/.ready: docs/site/requirements.txt
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/pip install --quiet --requirement docs/site/requirements.txt
	@touch $@

docs: $(DOCS_VENV)/.ready ## the site of docs/, strictly: build/site/html/index.html opens in a browser without a network
	$(DOCS_VENV)/bin/python docs/site/build.py

test-pages: $(READY) $(AXE) $(DOCS_VENV)/.ready ## every page in a real browser, and those of the site; needs Chromium (apt install chromium) and npm
	$(BIN)/pytest -m pages --numprocesses=$(CORES) --dist=loadfile

pictures: $(READY) ## screenshots of every page, light and dark, in build/pictures, and those of README and docs; needs Chromium
	PICTURES=build/pictures $(BIN)/pytest -m pages -k pictures
	$(BIN)/crucible-worker demo --output build/demo
	$(BIN)/python -m tests.pages.pictures build/demo/report.html docs/pictures
	$(BIN)/python -m tests.pages.terminal docs/pictures/terminal.png
	$(BIN)/python -m tests.pages.follow_pictures docs/pictures

vendor: $(READY) ## the chart library of the pages again, from npm, with its version and digests
	$(BIN)/python python_worker/crucible_worker/web/vendor/renew.py

# Types of `lint`: without the tests, and without what needs libraries that the core does without.
NOT_IN_CORE := PIL|datasets|huggingface_hub|inspect_ai|lightning|mlflow|peft|pyarrow|pytorch_lightning|ray|safetensors|tensorboardX|tinker|tinker_cookbook|tokenizers|torch|trackio|transformers|wandb
SHIPPED = $$(grep -rLE --include=*.py --exclude-dir=v1 --exclude-dir=wire '^ *(import|from) ($(NOT_IN_CORE))\b' bridge python_worker)

lint: $(CORE_READY) ## style, types of what is shipped, directions of imports, protos, generated code
lint-all: $(READY) ## the same, with the types of everything
lint: TYPED = $(SHIPPED)
lint lint-all:
	$(call step,style,$(BIN)/ruff check . && $(BIN)/ruff format --check .)
	$(call step,types,$(BIN)/pyright --threads $(CORES) $(TYPED))
	$(call step,directions of imports,$(BIN)/lint-imports)
	$(call step,protos,$(BIN)/buf lint protos && $(BIN)/buf breaking protos --against protos/baseline/v1.binpb)
	$(call step,generated code and tables,$(BIN)/python protos/generate.py --check && $(BIN)/python docs/generate.py --check)

generate: $(CORE_READY) ## generate what follows from protos/ (messages, types, conversions, reference), and tables of pages
	$(BIN)/python protos/generate.py
	$(BIN)/python docs/generate.py

generate-elixir: $(READY) ## generate Elixir from protos/; needs protoc-gen-elixir: mix escript.install hex protobuf 0.15.0
	@protoc-gen-elixir --version 2>/dev/null | grep -qF $(PROTOC_GEN_ELIXIR) || \
		{ echo "protoc-gen-elixir $(PROTOC_GEN_ELIXIR) is not on the PATH" >&2; exit 1; }
	@mkdir -p build && $(BIN)/python protos/generate.py --descriptors build/descriptors.binpb
	cd protos && ../$(BIN)/python -m grpc_tools.protoc --descriptor_set_in=../build/descriptors.binpb \
		--elixir_out=plugins=grpc,include_docs=true:../elixir_client_example/lib crucible_bridge/v1/*.proto

bench: $(READY) ## every measured claim; each script in benchmarks/ also runs alone
	@for script in benchmarks/[a-z]*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

$(LM_EVAL_VENV)/.ready: $(READY)
	$(PYTHON) -m venv $(LM_EVAL_VENV)
	echo "$(CURDIR)/$$(echo $(VENV)/lib/python3.*/site-packages)" > \
		"$$(echo $(LM_EVAL_VENV)/lib/python3.*/site-packages)/worker.pth"
	$(LM_EVAL_VENV)/bin/pip install --quiet $(LM_EVAL)
	@touch $@

bench-lm-eval: $(LM_EVAL_VENV)/.ready ## what lm-evaluation-harness measures as well; it is installed for it
	LM_EVAL_PYTHON=$(LM_EVAL_VENV)/bin/python $(BIN)/python benchmarks/multiple_choice.py
	LM_EVAL_PYTHON=$(LM_EVAL_VENV)/bin/python $(BIN)/python benchmarks/perplexity.py

fuzz: $(READY) ## a worker under hostile input for SECONDS=3600, by hand: no probe 1 s late, nothing left behind
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS)

torture: $(READY) ## many rounds of kills, disconnects and take-overs
	$(BIN)/pytest -m torture -o faulthandler_timeout=$(SECONDS)

serve: $(READY) ## a worker on 127.0.0.1:50051
	$(BIN)/crucible-worker serve

clean: ## remove the environment and everything else that was made
	rm -rf $(VENV) $(DOCS_VENV) .venv-grade .venv-tutorial $(TINKER_VENV) $(LM_EVAL_VENV) $(INSPECT_VENV) $(LOGGERS_VENV) $(TRAINERS_VENV) $(ENDPOINT_VENV) $(EVERY_EVAL_EVER_VENV) $(FLOORS_VENV) elixir_client_example/_build elixir_client_example/deps build dist demo-output .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
