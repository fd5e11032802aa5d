# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
# A CPU build by default. For a GPU, choose your own: make demo TORCH="torch==2.13.0+cu130 --index-url ..."
TORCH ?= torch==2.13.0
# Tested versions, where there is a list for this Python; LOCK= installs the newest instead.
LOCK ?= $(wildcard requirements-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])').lock)
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

.PHONY: demo test quick lint docs setup lock clean

demo: $(VENV)/.demo
	$(BIN)/relfrog demo --overwrite

# Everything; ARGS chooses a part: make test ARGS="tests/graph -k future".
test: $(VENV)/.dev
	$(PYTEST) $(ARGS)

# What takes no time, with fewer random examples: for while you work.
quick: $(VENV)/.dev
	$(PYTEST) -m "not slow" --hypothesis-profile quick $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.dev
	$(BIN)/python docs/build.py

setup: $(VENV)/.dev

# After all tests pass with newer versions: write down which.
lock: $(VENV)/.dev
	{ sed -n '/^#/p' $(LOCK); $(BIN)/python -m pip freeze --exclude-editable \
		| grep -vE '^(torch|pip|setuptools|wheel)==| @ '; } > $(LOCK).new
	mv $(LOCK).new $(LOCK)

# torch goes first: the project's own range would otherwise pull the newest CUDA build.
$(VENV)/.torch:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "RelFrog needs Python 3.10 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade pip
	$(PIP) install $(TORCH)
	touch $@

$(VENV)/.demo: $(VENV)/.torch pyproject.toml $(LOCK)
	$(PIP) install $(LOCK:%=-c %) -e '.[demo]'
	touch $@

$(VENV)/.dev: $(VENV)/.torch pyproject.toml $(LOCK)
	$(PIP) install $(LOCK:%=-c %) -e '.[demo,dev,docs,pyg,ray]'
	touch $@

clean:
	rm -rf $(VENV) build dist docs/_build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
