# SPDX-License-Identifier: Apache-2.0
# ARGS goes to the program behind a target: make test ARGS="tests/libbpf -k ring"

VENV := .venv/bin
# Some containers set it, and each of the tests' thousands of processes would compile its modules again.
unexport PYTHONDONTWRITEBYTECODE
# Most tests wait for the kernel most of the time.
PYTEST = $(VENV)/python -m pytest --processes $(shell echo $$((2 * $$(nproc))))
C_FILES = $(shell find src/hopscope/bpf bench tests -name '*.[ch]')
.DEFAULT_GOAL := help
.PHONY: help build run test test-quick test-all lint layout layout-check format bench chaos soak fuzz vmtest matrix wheel deb lock clean

help: ## Show the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

build: ## Install what is missing into .venv and compile the BPF programs
	@tools/setup build

run: ## Install what is missing, build, and show where received packets spend their time on this host (root)
	@trap tools/give-back EXIT; tools/setup run && tools/run

test: ## Install what is missing, build, and run the tests (root: those of the kernel, too)
	@trap tools/give-back EXIT; tools/setup test && $(PYTEST) -m "not slow and not spark" $(ARGS)

test-quick: ## Run the tests that need no root and take less than a second each
	@tools/setup test && $(PYTEST) -m "not root and not alone and not slow and not spark" $(ARGS)

test-all: ## As test, with the tests that take longest and those of Spark
	@trap tools/give-back EXIT; tools/setup test-all && $(PYTEST) $(ARGS)

lint: ## Check style, types, import rules, and that generated files are up to date
	@tools/setup lint
	$(VENV)/ruff check --quiet
	$(VENV)/ruff format --quiet --check
	$(VENV)/mypy
	$(VENV)/lint-imports --no-logo
	$(VENV)/clang-format --dry-run -Werror $(C_FILES)
	@$(MAKE) --no-print-directory layout-check

layout-check: ## Check that the generated sources are up to date
	$(VENV)/python -m hopscope.libbpf.stub --check src/hopscope/bpf/layout.py
	$(VENV)/python -m hopscope.model.histogram --c-table | diff src/hopscope/bpf/common/hist_table.h -

layout: ## Write the generated sources anew
	@tools/setup build
	$(VENV)/python -m hopscope.model.histogram --c-table >src/hopscope/bpf/common/hist_table.h
	text=$$($(VENV)/python -m hopscope.libbpf.stub) && echo "$$text" >src/hopscope/bpf/layout.py

format: ## Rewrite the sources in the project's style
	@tools/setup lint
	$(VENV)/ruff check --quiet --fix
	$(VENV)/ruff format --quiet
	$(VENV)/clang-format -i $(C_FILES)

bench: ## Measure hopscope's own cost (root)
	@trap tools/give-back EXIT; tools/setup bench && $(VENV)/python -m bench $(ARGS)

chaos: ## End every long-running verb at random moments, and check that nothing is left or lost unsaid (root)
	@trap tools/give-back EXIT; tools/setup chaos && $(VENV)/python -m tests.chaos $(ARGS)

soak: ## Run `hopscope serve` for an hour, and check that nothing grows and no count drifts: ARGS="--seconds 60" (root)
	@trap tools/give-back EXIT; tools/setup chaos && $(VENV)/python -m tests.soak $(ARGS)

fuzz: ## Give all readers of foreign input what they have never seen: ARGS="--inputs 20000 --seed 7"
	@trap tools/give-back EXIT; tools/setup test && $(VENV)/python -m tests.fuzz $(ARGS)

vmtest: ## Boot other kernels under QEMU and run the kernel tests there (root)
	@trap tools/give-back EXIT; tools/setup vmtest && $(VENV)/python -m vmtest --setup && $(VENV)/python -m vmtest $(ARGS)

matrix: ## Write docs/support-matrix.md from the results of the last vmtest and of this machine (root)
	$(VENV)/python -m vmtest.matrix build/vmtest docs/support-matrix.md

wheel: ## Build dist/*.whl with libbpf in it and its SBOM, check that it is reproducible, and that it can be installed
	@tools/setup wheel
	@rm -rf dist
	$(VENV)/python tools/build_wheel.py dist
	$(VENV)/python tools/sbom.py dist/*.whl requirements/run.txt
	$(VENV)/python tools/check_wheel.py dist/*.whl
	@tools/give-back

deb: wheel ## Build dist/*.deb of that wheel: with all Python packages that it needs, man pages, completion and the service
	$(VENV)/python tools/build_deb.py dist/*.whl dist
	@tools/give-back

lock: ## Renew the versions and hashes of all Python packages, in requirements/
	@trap tools/give-back EXIT; tools/setup lock && tools/lock

clean: ## Remove all that was built or installed here
	rm -rf .venv build dist .*_cache .hypothesis src/hopscope/bpf/*.bpf.o
	find . -name __pycache__ -type d -exec rm -rf {} +
