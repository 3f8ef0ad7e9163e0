PYTHON ?= python3.11
VENV := .venv
PY := $(VENV)/bin/python
# solc's path in foundry.toml is relative to the working directory, so forge is run inside contracts/
FORGE := cd contracts && bin/foundry forge
PY_STAMP := $(VENV)/.assay-installed
NPM_STAMP := contracts/node_modules/.assay-installed
HARDHAT_STAMP := tests/hardhat/node_modules/.assay-installed
TRITON := .assay/tools/triton-3.9.0

.PHONY: help setup demo test test-contracts test-python test-slow lint lint-python lint-contracts check \
	format site browser screenshots clean bench-diloco bench-market bench-rl vectors games symbolic mutants slither \
	fuzz artifacts kills chaos arm kernels second-chain lock torches wheel zoo gpu-bundle

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install everything (.venv, contracts/node_modules); nothing the second time
	@$(MAKE) --no-print-directory -s -j2 $(PY_STAMP) $(NPM_STAMP) # pip and npm side by side: neither needs the other

$(PY_STAMP): requirements.lock pyproject.toml scripts/setup.sh
	@PYTHON="$(PYTHON)" scripts/setup.sh python

$(NPM_STAMP): contracts/package-lock.json contracts/package.json contracts/.npmrc scripts/setup.sh
	@scripts/setup.sh contracts

$(HARDHAT_STAMP): tests/hardhat/package-lock.json
	@scripts/setup.sh hardhat

demo: setup ## a local market in which a solver lies about one bit and is caught (DEVICES=solver:cuda,verifier:cpu)
	@$(PY) scripts/demo.py

# The contracts' tests compile for minutes and need no Python, so they run beside pytest, whose summary comes last.
FORGE_LOG := contracts/cache/test.log

# FOUNDRY_FUZZ_RUNS overrules contracts/foundry.toml, every profile of it.
QUICK_FUZZ = $(if $(filter 1,$(WHOLE)),,FOUNDRY_FUZZ_RUNS=$${FOUNDRY_FUZZ_RUNS:-64})

test: $(NPM_STAMP) ## quick tests, Solidity and Python; WHOLE=1, as in CI: those marked long, 1,000 fuzz runs
	@mkdir -p $(dir $(FORGE_LOG)); \
	( $(QUICK_FUZZ) $(MAKE) --no-print-directory test-contracts > $(FORGE_LOG) 2>&1; status=$$?; cat $(FORGE_LOG); exit $$status ) & \
	forge=$$!; status=0; \
	$(MAKE) --no-print-directory test-python || status=1; \
	wait $$forge || { echo "the contracts' tests failed: $(FORGE_LOG)"; status=1; }; \
	exit $$status

test-contracts: $(NPM_STAMP) ## forge's tests, 1,000 fuzz runs (FOUNDRY_PROFILE=nightly: 10,000)
	$(FORGE) test

# Half of the tests wait for blocks: one worker more than there are processors. A file stays with one worker, and a
# worker that crashes ends the run (replaced, it leaves pytest-xdist waiting for ever).
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 8 ? n + 1 : 8)))
MARKED = not slow and not gpu$(if $(filter 1,$(WHOLE)),, and not long)

test-python: setup ## pytest (WORKERS=0: in one process; PYTEST_ARGS="tests/unit/node")
	PYTHONDONTWRITEBYTECODE= $(PY) -m pytest -m "$(MARKED)" -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0 $(PYTEST_ARGS)

test-slow: setup ## tests that take minutes
	$(PY) -m pytest -m slow

lint: lint-python lint-contracts ## formatting, types, import rules, generated documents, Solidity lints

lint-python: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check --quiet .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(PY) scripts/check_columns.py
	$(PY) scripts/generate/reference.py --check
	$(PY) scripts/generate/pictures.py --check
	@$(MAKE) --no-print-directory site

lint-contracts: setup
	$(FORGE) fmt --check
	@# forge lint leaves artifacts without bytecode behind, with which forge test would silently skip suites
	export FOUNDRY_OUT=cache/lint/out FOUNDRY_CACHE_PATH=cache/lint && $(FORGE) lint --deny warnings
	$(PY) scripts/generate/artifacts.py --check
	$(PY) scripts/generate/contract_snapshots.py --check
	$(PY) scripts/generate/structs.py --check

check: WHOLE := 1
check: lint test ## lint and test, as CI runs them

format: setup ## fix what ruff and forge fmt can fix
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .
	$(FORGE) fmt

site: setup ## the documents as a site, in site/; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet

browser: setup ## the dashboard in Chromium: live, at 390 px, by keyboard, with axe-core
	tests/browser/run.sh

screenshots: setup ## docs/pictures/dashboard-*.png, of a market in which a solver lies (two minutes)
	tests/browser/pictures.sh

clean: ## remove build outputs and caches
	rm -rf contracts/out contracts/cache .pytest_cache .mypy_cache .ruff_cache .hypothesis

bench-diloco: setup ## low-communication training beside data parallel, three seeds (hours of one core)
	OMP_NUM_THREADS=1 $(PY) scripts/bench/diloco.py --record

bench-market: setup ## a 13M model through a devnet of processes and in one process: time, bits
	OMP_NUM_THREADS=1 $(PY) scripts/bench/market.py --record

bench-rl: setup ## GRPO of a million parameters through a devnet: reward, bits
	OMP_NUM_THREADS=1 $(PY) scripts/bench/rl.py --record

vectors: setup ## the arbiter against the integer model on a million vectors
	$(PY) scripts/prove/vectors.py

games: setup ## ten thousand random programs with a planted fault, on the court's twin
	GAMES=10200 $(PY) -m pytest -q -m slow -n $(WORKERS) tests/adversaries/test_random_games.py

symbolic: setup ## proofs about the contracts' money (installs halmos)
	scripts/prove/symbolic.sh

mutants: setup ## a fault planted at every place of the contracts: a test fails for each (hours)
	nice $(PY) scripts/prove/mutants.py

slither: setup ## static analysis of the contracts (installs slither)
	$(PY) scripts/prove/slither.py

fuzz: setup ## coverage-guided fuzzing of every decoder (installs atheris)
	$(PY) scripts/prove/fuzz.py

artifacts: setup ## contracts/artifacts, after a change of contracts/src
	$(PY) scripts/generate/artifacts.py

kills: setup ## a thousand processes of all roles killed at random (an hour)
	PYTHONPATH=. $(PY) scripts/prove/kills.py

chaos: setup ## eight nodes under a storm of five hundred faults, a hundred rounds (hours; SEED=1)
	PYTHONPATH=. $(PY) -m drills chaos --seed $(or $(SEED),1)

arm: setup ## the C kernels' ARM forms in an emulator (gcc-aarch64-linux-gnu, qemu-user)
	PYTHONPATH=. $(PY) scripts/prove/arm.py

kernels: setup ## the GPU's kernels by Triton's interpreter (installs Triton, a gigabyte)
	@[ -d $(TRITON)/triton ] || $(PY) -m pip install --quiet --no-deps --target $(TRITON) triton==3.9.0
	PYTHONPATH=$(CURDIR):$(TRITON) $(PY) -m pytest -q -m "slow or not slow" tests/unit/numerics/test_product_triton.py tests/unit/numerics/test_operand_triton.py tests/unit/numerics/test_attention_triton.py tests/unit/program/compiled/test_gpu_code.py

second-chain: setup $(HARDHAT_STAMP) ## a job and a dispute on Hardhat's node (300 MB of npm packages)
	$(PY) -m pytest -m slow tests/hardhat

lock: setup ## the hashes of requirements.lock, after a version in it was changed (installs uv)
	$(PY) scripts/generate/lock.py

torches: setup ## numerics and compiled steps on the oldest and newest PyTorch admitted (gigabytes each)
	scripts/prove/torches.sh

gpu-bundle: setup ## dist/assay-gpu.tar.xz, for a machine that has a GPU and PyTorch and nothing else
	$(PY) scripts/gpu_bundle.py

zoo: setup ## models of transformers, torchvision, timm, diffusers and peft as they are written (installs these)
	scripts/prove/zoo.sh

wheel: ## the wheel in an environment of its own: a devnet, a job, a deployment, without Node.js
	scripts/prove/wheel.sh
