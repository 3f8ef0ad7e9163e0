# make setup   install everything (.venv, contracts/node_modules); does nothing the second time
# make demo    run a local market in which a solver lies about one bit, and watch it being caught
# make demo-124m   the same with GPT-2 small, 124 million parameters: 24 GB of memory, by hand (docs/scale.md)
# make test    all quick tests, Solidity and Python; with WHOLE=1, as in CI, those too that take seconds each
# make lint    formatting, types, import rules, Solidity lints
# make check   lint and test, as CI runs them
# make artifacts   contracts/artifacts anew, after a change of contracts/src: what a client deploys and calls
# make vectors   the arbiter against the integer model on a million vectors; make games: ten thousand random programs
# make second-chain   a whole job and a dispute on Hardhat's node, which is not Anvil (300 MB of npm packages)
# make symbolic  proofs about the contracts' money; make slither: static analysis (both install their tool when asked)
# make mutants   a fault planted at every place of the market's and the Court's contracts: a test fails for each (hours)
# make site    the documentation as a site, in site/ (part of lint: a broken link fails)
# make browser   the dashboard in Chromium: live, at 390 px, by keyboard, with axe-core (installs Chromium when asked)
# make attacks   every attack of docs/threats.md: what it was, what it paid, what the honest side kept
# make fuzz      coverage-guided fuzzing of every decoder (installs atheris when asked)
# make bench-diloco   low-communication training beside data parallel, three seeds and the failures (hours of one core)
# make bench-market   the 13M model through a devnet of processes and in one process: wall time, bits, idleness
# make bench-rl   GRPO in process, a decoder of a million parameters on sums of two digits, twice
# make supply    pins, hashes, licences and bills of materials; make bytecode: what is deployed is what compiles;
#                make faces: schemathesis on the HTTP faces
# make kills      a thousand processes of all roles killed at random; make undone: blocks lost at every moment of a
#                job's and a game's life; make age: 10,000 tasks, a day, and 500 junk challenges (each an hour)
# make arm     the C kernels' ARM forms against the definition, in an emulator (gcc-aarch64-linux-gnu, qemu-user)
# make wheel   the wheel in an environment of its own: a devnet, a job, a deployment, without Node.js
# make torches   numerics and compiled steps on the oldest and the newest PyTorch that are admitted (gigabytes, each)
# make kernels   the GPU's kernels against the definition, by Triton's interpreter (installed when asked)

PYTHON ?= python3.11
VENV := .venv
PY := $(VENV)/bin/python
# solc's path in foundry.toml is relative to the working directory, so forge is run inside contracts/
FORGE := cd contracts && bin/foundry forge
PY_STAMP := $(VENV)/.assay-installed
NPM_STAMP := contracts/node_modules/.assay-installed
HARDHAT_STAMP := tests/hardhat/node_modules/.assay-installed

.PHONY: artifacts torches wheel bench-diloco bench-market bench-rl setup demo demo-124m test test-contracts test-python test-slow browser site vectors games symbolic mutants slither kernels arm second-chain lint lint-python lint-contracts check format clean

# pip and npm side by side: neither needs the other
setup:
	@$(MAKE) --no-print-directory -j2 $(PY_STAMP) $(NPM_STAMP)

$(PY_STAMP): requirements.lock pyproject.toml scripts/setup.sh
	@PYTHON="$(PYTHON)" scripts/setup.sh python

$(NPM_STAMP): contracts/package-lock.json contracts/package.json contracts/.npmrc scripts/setup.sh
	@scripts/setup.sh contracts

demo: setup
	@$(PY) scripts/demo.py

demo-124m: setup
	@PYTHONPATH=. $(PY) scripts/demo_124m.py

# solc takes minutes of one processor, and needs no Python: the contracts' tests begin beside everything else, and say
# what they found when they end; pytest's summary comes last
FORGE_LOG := contracts/cache/test.log

test: $(NPM_STAMP)
	@mkdir -p $(dir $(FORGE_LOG)); \
	( $(MAKE) --no-print-directory test-contracts > $(FORGE_LOG) 2>&1; status=$$?; cat $(FORGE_LOG); exit $$status ) & \
	forge=$$!; status=0; \
	$(MAKE) --no-print-directory test-python || status=1; \
	wait $$forge || { echo "the contracts' tests failed: $(FORGE_LOG)"; status=1; }; \
	exit $$status

test-contracts: $(NPM_STAMP)
	$(FORGE) test

# half of the tests wait for blocks: a worker more than there are processors; a file stays with one worker;
# a worker that crashes ends the run (replaced, it leaves pytest-xdist waiting without end)
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 8 ? n + 1 : 8)))

# WHOLE=1, as in CI: those too that take seconds each
MARKED = not slow and not gpu$(if $(filter 1,$(WHOLE)),, and not long)

# each worker and each node that a test starts imports the same modules: who comes later finds them compiled
test-python: setup
	PYTHONDONTWRITEBYTECODE= $(PY) -m pytest -m "$(MARKED)" -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0 $(PYTEST_ARGS)

test-slow: setup
	$(PY) -m pytest -m slow

second-chain: setup $(HARDHAT_STAMP)
	$(PY) -m pytest -m slow tests/hardhat

$(HARDHAT_STAMP): tests/hardhat/package-lock.json
	@scripts/setup.sh hardhat

bench-diloco: setup
	OMP_NUM_THREADS=1 $(PY) scripts/bench/diloco.py --faults --plots docs/quality --record

bench-market: setup
	OMP_NUM_THREADS=1 $(PY) scripts/bench/market.py --record

bench-rl: setup
	OMP_NUM_THREADS=1 $(PY) scripts/bench/rl.py --twice

vectors: setup
	$(PY) scripts/prove/vectors.py

games: setup
	$(PY) scripts/prove/games.py --workers 2 --out .assay/games.jsonl

symbolic: setup
	scripts/prove/symbolic.sh

kernels: setup
	scripts/prove/kernels.sh

arm: setup
	PYTHONPATH=. $(PY) scripts/prove/arm.py

browser: setup
	tests/browser/run.sh

attacks: setup
	PYTHONPATH=. $(PY) scripts/prove/attacks.py

fuzz: setup
	$(PY) scripts/prove/fuzz.py

faces: setup
	$(PY) scripts/prove/http_faces.py

supply: setup
	PYTHONPATH=. $(PY) scripts/prove/supply.py --sbom .assay/sbom

artifacts: setup
	$(PY) scripts/generate/artifacts.py

bytecode: setup
	$(PY) scripts/generate/artifacts.py --check
	PYTHONPATH=. $(PY) scripts/prove/bytecode.py --local

kills: setup
	PYTHONPATH=. $(PY) scripts/prove/kills.py

undone: setup
	PYTHONPATH=. $(PY) scripts/prove/reorganisations.py

age: setup
	PYTHONPATH=. $(PY) scripts/prove/age.py
	PYTHONPATH=. $(PY) scripts/prove/junk_challenges.py

torches: setup
	scripts/prove/torches.sh

wheel:
	scripts/prove/wheel.sh

mutants: setup
	nice $(PY) scripts/prove/mutants.py

slither: setup
	$(PY) scripts/prove/slither.py

lint: lint-python lint-contracts

lint-python: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(PY) scripts/check_columns.py
	$(PY) scripts/generate/reference.py --check
	@$(MAKE) --no-print-directory site

site: setup
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet

lint-contracts: setup
	$(FORGE) fmt --check
	@# forge lint leaves artifacts without bytecode behind, with which forge test would silently skip suites
	export FOUNDRY_OUT=cache/lint/out FOUNDRY_CACHE_PATH=cache/lint && $(FORGE) lint --deny warnings
	$(PY) scripts/generate/artifacts.py --check
	$(PY) scripts/generate/contract_snapshots.py --check
	$(PY) scripts/generate/structs.py --check

check: WHOLE := 1
check: lint test

format: setup
	$(VENV)/bin/ruff check --fix .
	$(FORGE) fmt

clean:
	rm -rf contracts/out contracts/cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
