# `make demo` trains the browser agent that ships; `make test` runs every check. Both set up the machine first.
PYTHON ?= python3
# The newest torch brings several GB of CUDA; this version also exists as a CPU build.
TORCH  ?= torch==2.13.0
BIN    := .venv/bin
RUN    ?= runs/demo

.PHONY: demo test check setup browser postgresql policy clean

demo: setup browser   ## train on miniwob-24 and end with a summary and a picture
	$(BIN)/quartet train recipes/miniwob/recipe.toml --run-dir $(RUN) --fresh

test: setup browser postgresql   ## lint, types, all tests
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/pytest -q

check: setup          ## lint, types, fast tests: under two minutes
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/pytest -q -m "not slow and not browser and not postgresql"

setup: .venv/installed   ## .venv with the `quartet` command

.venv/installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Quartet needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv .venv || (apt-get install -y --no-install-recommends python3-venv && $(PYTHON) -m venv .venv)
	$(BIN)/pip install --quiet --disable-pip-version-check $(TORCH)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[test]'
	touch $@

browser:              ## Chromium and fonts: Debian's packages, or whatever browser is there
	@sh tools/install_browser.sh

postgresql:           ## PostgreSQL's server programs, for the tests
	@sh tools/install_postgresql.sh

policy: setup browser ## rebuild the starting policy that ships with the repository
	$(BIN)/python -m recipes.miniwob.make_policy

clean:
	rm -rf .venv runs .pytest_cache .ruff_cache
