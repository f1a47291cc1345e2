# `make demo` and `make test` need nothing but Python 3.11: they set up .venv by themselves, from the lock
# files with their hashes checked, and find it ready the next time.
#
# PYTHON=python3.13 make test   another Python (for the first time; `make clean` to change it)
# ARGS="-k compaction" make test

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONPATH PYTHONHOME

# A .venv whose Python is gone or too old is made anew; one that was linked to another folder is linked anew.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
LINKED_HERE := import os, pi_ls; assert os.path.samefile(pi_ls.__path__[0], "pi_ls")
ifneq ($(shell { $(RUN) -I -c '$(NEW_ENOUGH)' && echo yes; } 2>/dev/null),yes)
$(shell rm -f $(VENV)/.installed)
else ifneq ($(shell { $(RUN) -I -c '$(LINKED_HERE)' && echo yes; } 2>/dev/null),yes)
$(shell rm -f $(VENV)/.linked)
endif

.PHONY: help setup demo test lint format e2e-vscode bench picture lock wheel clean

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /  make \1	/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20

setup: $(VENV)/.linked ## make .venv ready

$(VENV)/.installed: requirements-dev.txt
	@$(PYTHON) -c '$(NEW_ENOUGH)' || \
		{ echo "pi_ls needs Python 3.11 or newer, and '$(PYTHON)' is not: try PYTHON=python3.12 make ..." >&2; exit 1; }
	@echo "Setting up $(VENV) (about a minute, once)"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(RUN) -m pip install -qq --require-hashes -r requirements-dev.txt
	@touch $@

$(VENV)/.linked: $(VENV)/.installed pyproject.toml
	@$(RUN) -m pip install -qq --no-deps --no-build-isolation --no-index --editable .
	@touch $@

demo: setup ## a real editor session, told in the terminal: meter, compaction, tree, branch summary
	@$(RUN) -m pi_ls demo $(ARGS)

test: setup ## all tests
	@$(RUN) -m pytest $(ARGS)

lint: setup ## formatting, lint rules, types, and who may import whom
	$(RUN) -m ruff format --check .
	$(RUN) -m ruff check .
	$(RUN) -m basedpyright
	$(RUN) -c 'from importlinter.cli import lint_imports_command as run; run()'
	@! grep -nE '://|^ *--(index|extra|find|trusted)' requirements.txt requirements-dev.txt \
		editors/*/package-lock.json editors/*/*/package-lock.json || \
		{ echo "the lock files must name no host" >&2; exit 1; }

format: setup ## put the code into its format
	@$(RUN) -m ruff format .
	@$(RUN) -m ruff check --fix .

e2e-vscode: ## the VS Code extension, in a real VS Code in a real browser (installs both; minutes)
	@bash .ci/editors-vscode.sh

bench: setup ## how fast large sessions are, and a server whose agent is at work
	@$(RUN) -m tests.bench.run $(ARGS)
	@$(RUN) -m tests.bench.live

picture: setup ## put the demo's output into the README
	@$(RUN) -m tests.picture

lock: ## write the lock files anew from pyproject.toml (needs uv)
	uv pip compile $(LOCK) pyproject.toml -o requirements.txt
	uv pip compile $(LOCK) pyproject.toml --group dev -c requirements.txt -o requirements-dev.txt
LOCK := --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links

wheel: setup ## build dist/*.whl
	@rm -rf dist
	@$(RUN) -m hatchling build -t wheel

clean: ## remove what make made
	rm -rf $(VENV) dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
