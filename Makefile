# Every target makes its own .venv on first use; nothing else needs to be installed.
PYTHON ?= python3
BIN := .venv/bin
ENHANCES := .venv/.enhances
READY := .venv/.ready

.PHONY: demo test slow lint fuzz long bench sanitize instructions soak release docs bare clean

demo: $(ENHANCES)  ## Enhance the bundled noisy recording; leaves wav files and a picture in demo/
	$(BIN)/python -m drnmf.pictures.demo demo

test: $(READY)  ## All tests, without any corpus or GPU
	$(BIN)/python -m pytest

slow: $(READY)  ## The tests that `make test` leaves out, because they take long
	$(BIN)/python -m pytest -m slow

lint: $(READY)
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy

fuzz: $(READY)  ## Random inputs of every class for some minutes; figures go to docs/results/reliability
	PYTHONPATH=tests $(BIN)/python -m fuzz --seconds 30 --save docs/results/reliability/fuzz.json
	$(BIN)/python -m benchmarks.pages

long: $(READY)  ## Ten hours and five gigabytes of sound, in bounded memory; needs 7 GB of disk
	PYTHONPATH=tests $(BIN)/python -m long_sound --save docs/results/reliability/long.json
	$(BIN)/python -m benchmarks.pages

bench: $(READY)  ## Speed and memory of everything, as one table
	$(BIN)/python -m benchmarks

USES_C := tests/engines tests/models tests/use/test_streaming.py tests/use/test_live.py tests/use/test_files.py \
          tests/use/test_reference.py
SANITIZED := build/sanitize/drnmf
PRELOADED = $(foreach library,asan stdc++,$(shell $(CC) -print-file-name=lib$(library).so))

sanitize: $(READY)  ## The tests that use C under AddressSanitizer and UBSan (GCC), with every set of instructions
	rm -rf build/sanitize && mkdir -p $(SANITIZED) && cp -r src/drnmf/. $(SANITIZED) && rm -f $(SANITIZED)/engines/_steps*
	$(CC) -shared -fPIC -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-math-errno -Wno-psabi \
	    src/drnmf/engines/csrc/steps.c -lm -o $(SANITIZED)/engines/_steps.so
	for set in avx512 avx2 baseline; do \
	    DRNMF_INSTRUCTIONS=$$set PYTHONPATH=build/sanitize ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	    LD_PRELOAD="$(PRELOADED)" \
	    $(BIN)/python -m pytest --capture=sys --junitxml=build/sanitize/$$set.xml $(USES_C) || exit 1; \
	done
	PYTHONPATH=tests $(BIN)/python -m engines.sanitized build/sanitize
	$(BIN)/python -m benchmarks.pages

instructions: $(READY)  ## The tests that use C with every set of instructions that it is compiled for
	for set in avx512 avx2 baseline; do \
	    DRNMF_INSTRUCTIONS=$$set $(BIN)/python -m pytest $(USES_C) || exit 1; \
	done

MINUTES ?= 60
soak: $(READY)  ## Live streams for an hour, or MINUTES=5: the same as files, in memory that does not grow
	PYTHONPATH=tests $(BIN)/python -m use.soak $(MINUTES)
	$(BIN)/python -m benchmarks.pages

# --quiet would hide the warnings from --strict, too.
docs: $(ENHANCES)  ## The documentation as a site, in build/site; a dead link is an error
	$(BIN)/pip install --quiet -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

ALONE := build/alone/bin
WITHOUT_PYTORCH := $(addprefix tests/,test_bare.py test_parallel.py \
    $(addprefix signal/test_,audio.py loudness.py media.py pipes.py short_filters.py tags.py) \
    $(addprefix use/test_,end_to_end.py files.py live.py reference.py streaming_arrays.py) \
    pictures/test_demo.py pictures/test_plots.py)

bare:  ## Install the package where there is no PyTorch, and run the tests of all that it does there
	rm -rf build/alone && $(PYTHON) -m venv build/alone
	$(ALONE)/pip install --quiet . && $(ALONE)/drnmf --version
	$(ALONE)/pip install --quiet pytest hypothesis matplotlib pyloudnorm
	$(ALONE)/python -m pytest $(WITHOUT_PYTORCH)

BARE := $(CURDIR)/build/bare/bin
release: $(READY)  ## Build what is published; install the wheel where there is no compiler, and use it
	rm -rf dist build/bare build/lib* && $(BIN)/python -m build --outdir dist .
	$(PYTHON) -m venv build/bare
	PATH=$(BARE) $(BARE)/pip install --quiet dist/*.whl
	PATH=$(BARE) $(BARE)/python tests/release.py

anywhere: $(READY)  ## The C library, the plugins, WebAssembly and the page: built and tested; INSTALL=1 installs what is missing, on Debian
	$(BIN)/python tests/native.py $(if $(INSTALL),--install)
	DRNMF_ANYWHERE=1 $(BIN)/python -m pytest -rs tests/use/test_anywhere.py tests/use/test_c_library.py \
	    tests/use/test_plugin.py tests/use/test_javascript.py tests/use/test_page.py

clean:
	rm -rf .venv demo build dist src/drnmf/engines/*.so js/drnmf.wasm js/default.drnmf js/LICENSE

# Editable, so that what follows adds packages only.
$(ENHANCES): pyproject.toml setup.py constraints.txt $(wildcard src/drnmf/engines/csrc/*.[ch])
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -c constraints.txt -e '.[plot]'
	$(BIN)/python -c 'from drnmf.engines import streams; exit(not streams.available())' \
	    || $(BIN)/pip install --quiet -c constraints.txt -e '.[train]'  # no compiler: PyTorch does it, slower
	touch $@

$(READY): $(ENHANCES)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	-$(BIN)/pip install --quiet -c constraints.txt pesq 2>/dev/null || echo "PESQ left out: it needs a C compiler"
	touch $@
