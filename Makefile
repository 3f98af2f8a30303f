# The two commands of the README are `make demo` and `make test`; everything else is for developers.
PYTHON := .venv/bin/python
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: $(shell sed -n 's,^\([a-z][a-z0-9-]*\):.*,\1,p' $(MAKEFILE_LIST))

help: ## Show the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .setup-stamp ## Make .venv with everything in it (again only when the lock has changed)

.setup-stamp: requirements.lock pyproject.toml scripts/setup.sh
	@scripts/setup.sh
	@touch $@ .runtime-stamp

.runtime-stamp: requirements.lock pyproject.toml scripts/setup.sh scripts/runtime_lock.py
	@scripts/setup.sh runtime
	@touch $@

demo: .runtime-stamp ## A simulated cluster on which users submit gangs, live; ARGS=--once: a few, to their end
	@.venv/bin/muster up --demo $(ARGS)

# What is compiled is kept for the tests: pytest rewrites every test file, and every service that a
# test starts compiles its own modules. It is in __pycache__, which git does not see.
test test-long test-kubernetes test-containers soak names: export PYTHONDONTWRITEBYTECODE :=
test: setup ## Every test but the long ones: on RabbitMQ against a real broker, the live page in Chromium
	@scripts/ensure_broker.sh
	@scripts/ensure_browser.sh
	@$(PYTHON) scripts/get_kubernetes_tools.py --if-possible
	@$(PYTHON) -m pytest -n 4 --dist loadgroup -m "not long" $(ARGS)

test-long: setup ## The long tests, which make test leaves to CI: processes under load, what seeds have found
	@scripts/ensure_broker.sh
	@$(PYTHON) -m pytest -n 4 --dist loadgroup -m long $(ARGS)

kubernetes-tools: setup ## helm, kubectl and schemas for the tests, into build/kubernetes-tools (90 MB, once)
	@$(PYTHON) scripts/get_kubernetes_tools.py

test-kubernetes: setup ## The Kubernetes tests on a real API server too: K3s in Docker, or KUBECONFIG's
	@$(PYTHON) -m pytest tests/integration/kubernetes tests/chaos/test_gang_survives.py --real-api-server $(ARGS)

test-containers: setup ## The composed stack, and the bus through testcontainers; needs a Docker Engine
	@$(PYTHON) -m pytest -n 0 tests/containers/composed.py $(ARGS)
	@$(PYTHON) -m pytest -n 2 --dist loadgroup -m broker

test-upgrade: setup ## Services of the previous version replaced one by one by these, under load; ARGS="--from TAG"
	@scripts/ensure_broker.sh
	@$(PYTHON) -m tests.chaos.rolling $(ARGS)

check: setup lint types arrows sizes names docs lock ## What every commit passes

lint: setup
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .

types: setup
	@.venv/bin/mypy

arrows: setup
	@.venv/bin/lint-imports

sizes: setup
	@$(PYTHON) scripts/check_sizes.py
	@PYTHONPATH=. $(PYTHON) scripts/shape.py --check

names: setup
	@$(PYTHON) -m pytest -n 0 -p no:cacheprovider --collect-only -qq >/dev/null

shape: setup ## How often the core does one thing, how large its classes are; ARGS=--which says which
	@PYTHONPATH=. $(PYTHON) scripts/shape.py $(ARGS)

docs: setup
	@PYTHONPATH=. $(PYTHON) scripts/make_docs.py --check
	@PYTHONPATH=. $(PYTHON) scripts/make_chart.py --check
	@$(PYTHON) scripts/check_docs.py
	@$(PYTHON) scripts/check_words.py
	@$(PYTHON) scripts/stage_docs.py

lock: setup
	@$(PYTHON) scripts/check_lock.py

audit: ## The dependencies against a database of vulnerabilities (pip-audit, a network)
	@command -v pip-audit >/dev/null || { echo "make audit needs pip-audit: pipx install pip-audit" >&2; exit 1; }
	@python3 scripts/audit.py

pin-images: ## Pin the images that deploy/ begins from by digest (docker, a network)
	@$(PYTHON) scripts/pin_images.py

site: setup ## The documentation as a site, into build/site
	@$(PYTHON) scripts/build_site.py

bench: bench-gang bench-core bench-growth bench-actions bench-what-if bench-bus bench-api bench-partitions ## Every figure of docs/performance.md (a quarter of an hour)

bench-smallest: setup ## Every bench to its end, as small as it can be: that none is broken unseen
	@scripts/ensure_broker.sh
	@scripts/ensure_browser.sh
	@$(PYTHON) -m tests.benchmarks.smallest $(ARGS)

bench-gang: setup ## Throughput and latency of one large gang, in memory and on RabbitMQ
	@scripts/ensure_broker.sh
	@$(PYTHON) -m tests.benchmarks.gang $(ARGS)

bench-core: setup ## What the core costs by itself, beside a floor that only counts (minutes)
	@$(PYTHON) -m tests.benchmarks.core $(ARGS)

bench-growth: setup ## What one operation costs as there is more of something, axis by axis (minutes)
	@$(PYTHON) -m tests.benchmarks.growth $(ARGS)

bench-bus: setup ## What the whole costs over RabbitMQ, five processes, beside a floor that hands on
	@scripts/ensure_broker.sh
	@$(PYTHON) -m tests.benchmarks.bus $(ARGS)

bench-partitions: setup ## Decisions a second with 1, 2, 4 partitions in as many processes; what the broker carries
	@scripts/ensure_broker.sh
	@$(PYTHON) -m tests.benchmarks.partitions $(ARGS)

bench-burst: setup ## 100,000 asks handed in at once: memory, CPU, places lost of each service
	@scripts/ensure_broker.sh
	@$(PYTHON) -m tests.benchmarks.burst $(ARGS)

endure: setup ## Minutes at so many applications a second: memory, latency, what is left; ARGS="20 20"
	@scripts/ensure_broker.sh
	@$(PYTHON) -m tests.benchmarks.endure $(ARGS)

bench-api: setup ## Long lists of the API, four clients at once, while scheduling goes on
	@scripts/ensure_broker.sh
	@$(PYTHON) -m tests.benchmarks.api $(ARGS)

bench-actions: setup ## Time to decide of reclaim, consolidation and the rest, as clusters grow
	@$(PYTHON) -m tests.benchmarks.actions $(ARGS)

bench-schedule: setup ## The schedule itself: traces in virtual time, the rows of docs/schedule.md
	@$(PYTHON) -m tests.benchmarks.schedule $(ARGS)

bench-what-if: setup ## How long a what-if takes on 5,000 nodes, and who comes behind it
	@$(PYTHON) -m tests.benchmarks.what_if $(ARGS)

bench-topology: setup ## What gangs in racks cost, and whether a placement is missed (docs/topology.md)
	@$(PYTHON) -m tests.benchmarks.topology $(ARGS)

bench-kubernetes: setup ## 5,000 nodes and 50,000 pods on the double; with KUBECONFIG binds beside a raw client
	@$(PYTHON) -m tests.benchmarks.kubernetes $(ARGS)

bench-page: setup ## The live page in Chromium: 5,000 nodes, 50,000 pods, 1,000 changes a second
	@scripts/ensure_browser.sh
	@$(PYTHON) -m tests.benchmarks.page $(ARGS)

ui-shots: setup ## Pictures of every view of the live page, into build/ui-shots
	@scripts/ensure_browser.sh
	@$(PYTHON) -m tests.ui.shots $(ARGS)

ui-sheets: setup ## A picture of every view into docs/pictures/views, of a muster up --demo that runs; ARGS=URL
	@scripts/ensure_browser.sh
	@$(PYTHON) -m tests.ui.sheets $(ARGS)

soak: setup ## The property tests and the seeds, many more (an hour and more)
	@HYPOTHESIS_PROFILE=soak SIMULATED_SEEDS=2000 PEER_SEEDS=1000 PEER_FRAMES=240 TEST_SECONDS=0 $(PYTHON) -m pytest -n 2 tests/property tests/simulation -o faulthandler_timeout=0 $(ARGS)

guards: setup ## Remove every guard of the table once: its tests must fail (minutes; ARGS='epoch quota' for some)
	@$(PYTHON) -m tests.mutation.guards $(ARGS)

chaos: setup ## Real services, a real broker, and everything that breaks; ARGS="--seed N --minutes M"
	@scripts/ensure_broker.sh
	@$(PYTHON) -m tests.chaos $(ARGS)

chaos-cluster: setup ## Three brokers in a cluster, and what befalls them, under load; ARGS="--pods 50 --seed N"
	@scripts/ensure_broker.sh
	@$(PYTHON) -m tests.chaos.brokers $(ARGS)

gang-of-200: setup ## A gang of 200 on Kubernetes, each part killed in its middle at five moments; ARGS="--only core"
	@scripts/ensure_broker.sh
	@$(PYTHON) -m tests.chaos.gang_of_200 $(ARGS)

mutants: setup build/covering.json ## Every mutant of the pure parts (hours; stopped, it goes on; ARGS='--lines 600 --seed x' for some)
	@$(PYTHON) -m tests.mutation.every $(ARGS)

mutants-sample: setup ## A fixed sample of them, each with its test (some 50 s of CPU)
	@$(PYTHON) -m tests.mutation.sample $(ARGS)

build/covering.json:
	@$(PYTHON) -m tests.mutation.covering

clean: ## Remove what the other targets made
	@find services shared tools tests scripts -name __pycache__ -prune -exec rm -rf {} +
	@rm -rf .venv .setup-stamp .runtime-stamp .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
