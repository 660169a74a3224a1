# Every target makes its own .venv on first use; nothing else needs to be installed.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint bench clean

demo: $(READY)  ## Enhance the bundled noisy recording; leaves wav files and a picture in demo/
	$(BIN)/python -m drnmf.pictures.demo demo

test: $(READY)  ## All tests, without any corpus or GPU
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy

bench: $(READY)  ## Speed and memory of everything, as one table
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv demo build dist src/drnmf/engines/*.so

$(READY): pyproject.toml setup.py constraints.txt $(wildcard src/drnmf/engines/csrc/*.[ch])
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	-$(BIN)/pip install --quiet -c constraints.txt -e '.[pesq]' 2>/dev/null || echo "PESQ left out: it needs a C compiler"
	touch $@
