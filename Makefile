# Two commands do everything: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CORE := .venv-core
CORE_READY := $(CORE)/.ready
# What `make test-pythons` runs the tests of the core with, as far as it is installed.
PYTHONS ?= python3.12 python3.13
# No doctests are looked for here: commands and HTTP have none.
NO_DOCTESTS := __main__.py cli service

# One more than two cores: many tests wait for servers, leases and browsers.
WORKERS ?= 3
# The tests start Python some thousand times; without bytecode, each start would compile the modules anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-pythons lint lint-page doctest docs docs-look docs-links slow bench release-check generate docs-tables clean lock help

help:
	@echo "make demo   set up, then reproduce the paper (windvane reproduce): reproduction/report.html"
	@echo "            (the live service with a simulated audience is another command: windvane demo)"
	@echo "make test   set up, then lint, types, import contracts, doctests, tests (those of the core without extras)"
	@echo "make test-pythons  the tests of the core with each of PYTHONS that is installed: $(PYTHONS)"
	@echo "make lint-page  types, lint and format of the live page (needs npm)"
	@echo "make docs   build the documentation site: build/docs/index.html; warnings are errors"
	@echo "make docs-look  the same, and check accessibility and widths of some pages in Chromium (needs npm)"
	@echo "make docs-links  follow every link of the site that leads out of it (needs the internet)"
	@echo "make slow   the longer studies (tens of minutes)"
	@echo "make bench  the speed measurements, each printing a ratio"
	@echo "make generate  write the stubs, the table of policies and the references of CITATION.cff anew"
	@echo "make release-check  build the last commit, install it in clean environments, use it"
	@echo "make lock   write requirements.lock anew from pyproject.toml"

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "windvane needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(READY)

# Without any extra: what `pip install windvane` gives, and what runs its tests. `.venv-core` has $(PYTHON),
# `.venv-core-3.12` python3.12.
.venv-%/.ready: requirements.lock pyproject.toml
	test -x $(@D)/bin/python || $(patsubst core,$(PYTHON),$(patsubst core-%,python%,$*)) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock \
		hatchling editables pytest pytest-xdist hypothesis
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock \
		--no-build-isolation -e .
	touch $@

demo: $(READY)
	$(BIN)/windvane reproduce --out reproduction --restart

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell src tests tools benchmarks docs deploy .github *.md Makefile
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory lint-page; else echo "lint-page skipped: no npm"; fi

# Types, lint and format of the live page. There is no lock file: package.json has exact versions.
PAGE := tools/page
$(PAGE)/node_modules: $(PAGE)/package.json
	cd $(PAGE) && npm install --no-package-lock --no-audit --no-fund --silent
	touch $@

lint-page: $(PAGE)/node_modules
	cd $(PAGE) && npm run --silent check

doctest: $(READY)
	$(BIN)/python -m pytest --doctest-modules src/windvane $(NO_DOCTESTS:%=--ignore=src/windvane/%)

# Anew each time: Sphinx repeats no warnings about pages that it has read before.
SPHINX = $(BIN)/python -m sphinx --fail-on-warning --keep-going --fresh-env --quiet --doctree-dir build/doctrees docs
docs: $(READY)
	$(SPHINX) build/docs

# Accessibility and widths of some pages of the built site, in Chromium.
DOCS_TOOLS := tools/docs
$(DOCS_TOOLS)/node_modules: $(DOCS_TOOLS)/package.json
	cd $(DOCS_TOOLS) && npm install --no-package-lock --no-audit --no-fund --silent
	touch $@

docs-look: docs $(DOCS_TOOLS)/node_modules
	$(BIN)/python $(DOCS_TOOLS)/check_pages.py

docs-links: $(READY)
	$(SPHINX) build/docs-links --builder linkcheck

PYTEST := -m pytest -n $(WORKERS) --dist worksteal

# A machine that stands still for a second can break a test of leases, stalled disks or restarts. So tests that fail run
# once more, alone, and count as failed if they fail again. Both runs are shown.
define run_tests
	$(1) $(PYTEST) --part $(2) || { \
		status=$$?; test $$status = 1 || exit $$status; \
		echo "tests that failed, once more and alone:"; \
		$(1) -m pytest --last-failed --last-failed-no-failures none --part $(2); }
endef

test: $(READY) $(CORE_READY)
	$(MAKE) --no-print-directory --jobs 2 lint doctest
	$(call run_tests,$(CORE)/bin/python,core)
	$(call run_tests,$(BIN)/python,extras)

# pyenv has commands for versions that are not installed, so each is started to see whether it is there.
test-pythons:
	@set -e; for python in $(PYTHONS); do \
		folder=$(CORE)-$${python#python}; \
		if ! $$python -c "" 2>/dev/null; then echo "$$python skipped: not installed"; continue; fi; \
		$(MAKE) --no-print-directory $$folder/.ready; \
		echo "$$python:"; $$folder/bin/python $(PYTEST) --part core; \
	done

slow: $(READY)
	$(BIN)/python $(PYTEST) -m slow

bench: $(READY)
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/stationary.py
	$(BIN)/python benchmarks/long_memory.py
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/lab.py
	$(BIN)/python benchmarks/service.py

release-check:
	$(PYTHON) tools/release_check.py

generate docs-tables: $(READY)
	$(BIN)/python tools/generate.py

lock:
	rm -rf .lockenv && $(PYTHON) -m venv .lockenv
	.lockenv/bin/python -m pip install --quiet --disable-pip-version-check -e ".[dev]" hatchling editables
	.lockenv/bin/python -m pip freeze --exclude-editable --exclude pip --exclude setuptools > requirements.lock
	rm -rf .lockenv

clean:
	rm -rf $(VENV) $(CORE) $(CORE)-* $(PAGE)/node_modules $(DOCS_TOOLS)/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache dist build
