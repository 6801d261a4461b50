# Everything a newcomer needs: `make quickstart` and `make test`. Both build .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := runs/quickstart

MINUTES ?= 60

.PHONY: quickstart test lint docs serve-docs benchmark fuzz clean
.DEFAULT_GOAL := help

help:
	@echo "make quickstart   train on the embedded characters and show what it learned (about 3 minutes)"
	@echo "make test         linter, types and tests"
	@echo "make docs         the site, in build/site: runs the tutorials (about three minutes)"
	@echo "make serve-docs   the same, at http://127.0.0.1:8008"
	@echo "make benchmark    the cost of adaptation as ratios to the same networks without it"
	@echo "make fuzz         attack whatever reads files and requests, MINUTES=60 for each"
	@echo "make clean        remove the virtual environment and caches"

# The marker is newer than the files that say what to install, or it is made again.
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[fuzz]" || \
		echo "no schemathesis or atheris here: their tests are skipped, and fuzzing edits at random"
	@touch $@

quickstart: $(VENV)/installed
	rm -rf $(RUN)
	$(BIN)/csn train adacnn-df --recipe plus --data strokes --tasks 1400 --out $(RUN) \
		--set train.validate_every=350 --set train.validation_tasks=60
	$(BIN)/csn evaluate $(RUN) --way 5 --tasks 400 --references
	$(BIN)/csn report $(RUN) --way 5

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/pytest -n 2

docs: $(VENV)/installed
	$(BIN)/sphinx-build --fail-on-warning --keep-going -q -d build/doctrees docs build/site
	@echo "the site is in build/site/index.html"

serve-docs: docs
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site 8008

fuzz: $(VENV)/installed
	$(BIN)/python tests/fuzz/campaign.py --minutes $(MINUTES)

benchmark: $(VENV)/installed
	$(BIN)/python benchmarks/overhead.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
