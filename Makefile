# Every command a contributor needs. `make demo` and `make test` are the only set-up on a machine with Python 3.11 or later.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := $(VENV)/.run-installed
DEV := $(VENV)/.dev-installed

.PHONY: demo test check fuzz format lint types generated write-generated goldens calibrate bench proofs preflight-truth live test-frameworks clean

demo: $(RUN)  ## judge a diverged run of the gallery and show the evidence
	@$(BIN)/trainproof epoch examples/gallery/lr_hot/trainer_state.json; test $$? -eq 1  # a FAIL exits 1

test: $(DEV)  ## install the development extras and run the tests
	$(BIN)/python -m pytest -q

check: $(DEV)  ## what CI runs: format, lint, types, generated files, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(MAKE) --no-print-directory generated
	$(BIN)/python -m pytest -q

format: $(DEV)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(DEV)
	$(BIN)/ruff check .

types: $(DEV)
	$(BIN)/mypy

generated: $(DEV)  ## fail when a generated file differs from what the code says
	$(BIN)/python -m tools.generate --check

write-generated: $(DEV)  ## rebuild rule pages, EVIDENCE_MATRIX.md and the CLI reference
	$(BIN)/python -m tools.generate --write

goldens: $(DEV)  ## rebuild the golden files of the tests; review the diff
	$(BIN)/python -m tests.report.goldens --write

calibrate: $(DEV)  ## measure false alarms and detection, and write the tables into docs/ (about half an hour)
	$(BIN)/python -m tools.calibrate --write
	$(BIN)/python -m tools.calibrate_compare --write

bench: $(DEV)  ## measure speed as ratios against named libraries
	$(BIN)/python -m benchmarks.run

preflight-truth: $(DEV)  ## find every fault of the made sets of clips, rows and tokenizers at full size (some minutes)
	$(BIN)/python -m pip install -q -e '.[tokenizer]' -c constraints-dev.txt
	$(BIN)/python -m tools.preflight_truth

fuzz: $(DEV)  ## read 10,000 damaged logs a format (about an hour)
	$(BIN)/python -m tools.fuzz

proofs: $(DEV)  ## measure replay, resume and bisection, and what they cost (installs torch; half an hour; SEED=1000: of other runs)
	$(BIN)/python -m pip install -q torch -c constraints-dev.txt
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.calibrate_bisect $(if $(SEED),--seed $(SEED),--seed 7000 --write)
	OMP_NUM_THREADS=1 $(BIN)/trainproof resume demo --seeds 5
	$(BIN)/python -m benchmarks.proofs

live: $(DEV)  ## feed a guardian every gallery log and more made runs than the tests do, one record at a time (half an hour on a busy machine)
	$(BIN)/python -m pytest -q -m thorough tests/live

test-frameworks: $(DEV)  ## compare the readers with the frameworks' own, and run the callbacks in real trainings (installs the frameworks)
	$(BIN)/python -m pip install -q -r tests/data/requirements-readers.txt -c constraints-dev.txt
	$(BIN)/python -m pip install -q -r tests/integrations/requirements.txt -c constraints-dev.txt
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m frameworks

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(RUN): pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install -q -e .
	touch $@

$(DEV): pyproject.toml constraints-dev.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install -q -e '.[dev]' -c constraints-dev.txt
	touch $@

clean:
	rm -rf $(VENV) .trainproof build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
