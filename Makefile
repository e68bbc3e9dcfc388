# One command each. Every target sets up what it needs and is safe to repeat.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON := .venv/bin/python
# Most of the time tests wait for a broker or a JVM: three files at once use what that leaves of two cores.
# The death of a process of pytest ends the run: with a new one pytest-xdist would wait endlessly for the files of the old one.
PYTEST_ARGS ?= --numprocesses 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0
SOURCES := libs services spark apps tests benchmarks tools

# Generated histories of each of the six tests of the oracle (the seventh, of the backfill: half of them); a seed repeats a run.
ORACLE_CASES ?= 8000
ORACLE_SEED ?= random
# Generated stories of each of the two tests of the oracle of the policy; twice as many of the oracle of the messenger.
ORACLE_DELIVERY_CASES ?= 10000
# Generated requests for each operation of the API, and the seconds of the attack on every door; a seed repeats a run.
FUZZ_EXAMPLES ?= 120
FUZZ_SEED ?= 1
FUZZ_LEAST ?= 5000
FUZZ_SECONDS ?= 600
EXTREMES_EVERY ?= 1
# The commit before computed traits had steps.
UPGRADE_FROM ?= fff89c1f
ORACLE_TESTS := $(addprefix tests/property/segments/test_segments_,oracle.py preview.py backfill.py)

.PHONY: $(shell grep -oE '^[a-z0-9-]+:' $(firstword $(MAKEFILE_LIST)) | tr -d :)

help: ## what there is
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | column -t -s "$$(printf '\t')"

setup: ## the virtual environment and the JVM parts; nothing is left to do when they are there
	@apps/local/setup.sh

demo: setup ## the main job on real purchases: from tracked events to delivered segment changes
	@.venv/bin/starling demo

test: setup helm ## the tests, on real parts; make test-long runs those that take long beside shorter ones of the same subject
	@$(PYTHON) -m pytest $(PYTEST_ARGS)

test-long: setup ## the tests marked `long`, which make test leaves out
	@STARLING_LONG=all $(PYTHON) -m pytest $(PYTEST_ARGS) -m long

helm: ## Helm 3 and 4, by which the tests render the chart; built from their Go modules into ~/.cache/starling/tools, once
	@caches="$$(mktemp -d)"; trap 'rm -rf "$$caches"' EXIT; export STARLING_GO_CACHE="$$caches"; \
	for major in 3 4; do HELM_MAJOR=$$major tools/helm.sh version >/dev/null; done

promtool: ## promtool, which evaluates alerts and dashboards; built from its Go module into ~/.cache/starling/tools, once: ten minutes
	@tools/promtool.sh --version >/dev/null

test-alerts: setup promtool ## every alert over series that fire it and series that do not, and every query of a dashboard over a live run; make test leaves them out without promtool
	@STARLING_LONG=all $(PYTHON) -m pytest tests/helm/test_promtool.py tests/system/test_live_dashboards.py

kube-score: ## kube-score, by which a test grades the chart; built from its Go module into ~/.cache/starling/tools, once: a minute
	@tools/kube_score.sh version >/dev/null

k8s-tools: ## etcd and Kubernetes without containers, for test-k8s; built from their Go modules into ~/.cache/starling/tools, once: ten minutes
	@tools/k8s_tools.sh >/dev/null

test-k8s: setup helm k8s-tools ## the chart on a real Kubernetes API server: every file of ci/ by Helm 3 and 4, a release that runs as processes with the demo on it, Spark executors in pods, a backfill, imports and runs in SQL that the API starts, spark-submit in cluster mode, the commands of docs/how-to/run-on-kubernetes.md, and the scaler: minutes
	@$(PYTHON) -m pytest -o faulthandler_timeout=0 tests/kubernetes/installation.py tests/kubernetes/running.py tests/kubernetes/executors.py tests/kubernetes/submission.py tests/kubernetes/guide.py tests/kubernetes/scaling.py

s3-server: ## an S3 server, for test-spark-cluster; built from its Go module into ~/.cache/starling/tools, once: minutes
	@tools/s3_server.sh --version >/dev/null

spark-environment: setup ## the Python of Spark's executors as an archive: out/spark-environment.tar.gz
	@$(PYTHON) -m tools.spark_environment out/spark-environment.tar.gz

test-spark-cluster: setup s3-server ## Spark jobs on a master and three workers, as root each in a network namespace of its own, with checkpoints and the lake in an object store: minutes
	@$(PYTHON) -m pytest -o faulthandler_timeout=0 -s tests/spark_cluster/jobs.py

test-upgrade: setup ## Spark jobs of a former commit, then those of this tree on their checkpoints and tables (UPGRADE_FROM=<commit>): minutes
	@STARLING_UPGRADE_FROM=$(UPGRADE_FROM) $(PYTHON) -m pytest -o faulthandler_timeout=0 -s tests/upgrade/spark_jobs.py

# Without --quiet: it would hide the warnings from --strict, which counts them.
docs: setup ## the documentation as a site in out/site; fails on a broken link and on a page outside the navigation
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict $(MKDOCS_ARGS) 2>&1 | { grep -v '^INFO' || true; }

test-images: setup ## every step of the Dockerfile executed without a container engine, and the process of each image started; needs root, and minutes
	@STARLING_IMAGES=all $(PYTHON) -m pytest --timeout 1800 -o faulthandler_timeout=0 tests/docker/test_images.py

disasters: setup ## the loss of Cassandra on a platform of its own, with and without a snapshot, and definitions moved to another one: the commands of docs/how-to/backup.md; minutes
	@STARLING_DISASTERS=all $(PYTHON) -m pytest --timeout 1800 -o faulthandler_timeout=0 -s tests/system/test_disasters.py tests/system/test_definitions_moved.py

guides: setup ## each tutorial and guide, followed in a shell without settings; make test leaves out the guides of the Spark jobs and the longest others
	@STARLING_GUIDES=all $(PYTHON) -m pytest tests/system/test_guides.py

# One test is left out: it requires compiled modules, and the measurement needs plain Python.
# Those of Spark on several hosts have modules to themselves.
COVERAGE_TESTS ?= tests tests/spark_cluster/jobs.py
coverage: setup helm s3-server ## lines and branches that the tests reach, the long ones and those on a cluster too, by package, subprocesses included: an hour, as root (COVERAGE_TESTS="tests/unit": minutes)
	@rm -rf out/coverage && mkdir -p out/coverage
	@STARLING_LONG=all COVERAGE_FILE="$(CURDIR)/out/coverage/data" PYTHONPATH="$(CURDIR)/tools/plain_python" $(PYTHON) -m coverage run -m pytest $(PYTEST_ARGS) \
	  --deselect tests/unit/segments/test_segments_native.py::test_where_there_is_a_compiler_the_hot_path_is_compiled $(COVERAGE_TESTS) || failed=1; \
	  $(PYTHON) -m coverage combine --quiet --data-file out/coverage/data out/coverage; \
	  $(PYTHON) -m tools.coverage_gate out/coverage/data || failed=1; exit $${failed:-0}

faults: setup ## every fault, more than 200 of them in half an hour, under load on real parts; FAULTS="--seed 7" repeats a run
	@$(PYTHON) -m tests.faults.run $(FAULTS)

faults-order: setup ## the order of arrival under delays, stalls, a busy machine, zombies and a backlog, and a replay that must equal it: five minutes
	@$(PYTHON) -m tests.faults.order $(FAULTS_ORDER)
faults-platform: setup ## every process of the whole platform killed, slowed, stopped for 75 s and hung, under load through HTTP: 175 faults, about an hour; FAULTS_PLATFORM="--seed 7"
	@$(PYTHON) -m tests.faults_platform.run $(FAULTS_PLATFORM)
faults-delivery: setup ## every process of delivery killed, also at each failpoint, slowed and suspended under the load of a campaign and a broadcast: 110 faults, half an hour; FAULTS_DELIVERY="--seed 7"
	@$(PYTHON) -m tests.faults_delivery.run $(FAULTS_DELIVERY)
fuzz: setup ## more than 100,000 hostile inputs at every door of a platform of its own, beside a bystander, then fuzz-api: a quarter of an hour
	@tests/fuzz/setup.sh
	@$(PYTHON) -m tests.fuzz.run --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED) $(FUZZ_ARGS)
	@$(MAKE) --no-print-directory fuzz-api FUZZ_EXAMPLES=20 FUZZ_LEAST=1000

bystander: setup ## the latency of a workspace that behaves well while each attack runs in another: ten minutes (ARGS="--attacks burst": one)
	@$(PYTHON) -m tests.fuzz.bystander $(ARGS)

fuzz-api: setup ## more than 5,000 generated requests to a running API, each answer compared with the OpenAPI document
	@STARLING_FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) STARLING_FUZZ_LEAST_CASES=$(FUZZ_LEAST) STARLING_FUZZ_SEED=$(FUZZ_SEED) $(PYTHON) -m pytest --timeout 7200 -o faulthandler_timeout=0 tests/contract/api/test_api_fuzz.py

api-clients: setup ## the quick start with a TypeScript and a Python client, generated from the OpenAPI document
	@tests/contract/api/clients/setup.sh
	@$(PYTHON) -m pytest tests/contract/api/clients/quick_start.py

clients: setup ## published tracking clients, two of them in Chromium, through a faulty proxy: each item accepted exactly once
	@tests/clients/setup.sh
	@$(PYTHON) -m pytest --timeout 600 tests/clients/published.py

push-browser: setup ## a notification of the channel process, decrypted by a push service of our own and shown in Chromium by the service worker of docs/how-to/push.md
	@tests/clients/setup.sh
	@$(PYTHON) -m pytest --timeout 600 tests/clients/push_browser.py

faults-spark: setup ## kill -9 of the driver of every streaming job of Spark, 20 times each, under load, as often a driver that was replaced and goes on, a broker away for 30 s, and exports whose process or PostgreSQL fails: an hour and a quarter, and a minute or more for each driver that goes on
	@$(PYTHON) -m tests.faults_spark.profiles $(FAULTS_PROFILES)
	@$(PYTHON) -m tests.faults_spark.lake_and_views $(FAULTS_LAKE)
	@$(PYTHON) -m tests.faults_spark.two_drivers
	@$(PYTHON) -m tests.faults_spark.broker_away
	@$(PYTHON) -m tests.faults_spark.sinks $(FAULTS_SINKS)

faults-spark-cluster: setup s3-server ## executors, workers, Python workers, drivers, disks and hosts lost, object store, broker, registry and catalog away, slow or faulty, 20 times each, while traits are computed and the lake is written on a cluster: hours (FAULTS_CLUSTER="--count 1 --job lake"; "--together 4": several at once)
	@$(PYTHON) -m tests.spark_cluster.faults $(FAULTS_CLUSTER)

oracle: setup ## feed, membership, preview, diff, explain and backfill against the brute-force oracle, 52,000 generated histories
	@STARLING_ORACLE_CASES=$(ORACLE_CASES) $(PYTHON) -m pytest $(PYTEST_ARGS) --timeout 0 -o faulthandler_timeout=0 --hypothesis-seed $(ORACLE_SEED) $(ORACLE_TESTS)

oracle-delivery: setup ## decisions of the messenger and of the policy against brute-force oracles, 40,000 generated stories; campaigns and callbacks of providers, 10,000 each
	@STARLING_ORACLE_DELIVERY_CASES=$(ORACLE_DELIVERY_CASES) STARLING_CAMPAIGN_EXAMPLES=$(ORACLE_DELIVERY_CASES) $(PYTHON) -m pytest $(PYTEST_ARGS) --dist worksteal --timeout 0 -o faulthandler_timeout=0 --hypothesis-seed $(ORACLE_SEED) tests/property/policy tests/property/messenger tests/property/tracker tests/property/campaigns tests/unit/api/test_api_campaigns.py

extremes: setup ## every operator, measure and window with every extreme operand and value: hours; EXTREMES_EVERY=7 tries each seventh combination
	@STARLING_EXTREMES_EVERY=$(EXTREMES_EVERY) $(PYTHON) -m pytest $(PYTEST_ARGS) --dist load --timeout 0 -o faulthandler_timeout=0 tests/property/segments/test_segments_extremes.py

check: setup ## style, types, the direction of imports, retired words, dead code and the locks of the images, in under a minute
	@.venv/bin/ruff format --check --quiet $(SOURCES)
	@.venv/bin/ruff check --quiet $(SOURCES)
	@.venv/bin/mypy $(SOURCES)
	@.venv/bin/lint-imports --no-logo
	@$(PYTHON) -m tests.architecture.vocabulary
	@$(PYTHON) -m tools.dead_code
	@$(PYTHON) -m tools.locks --check
	@! git grep -nE '^(<{7}|>{7}) ' || { echo 'conflict markers of a merge are left'; exit 1; }

locks: setup ## docker/locks: each package of each image with its hashes, from docker/requirements and constraints.txt
	@$(PYTHON) -m tools.locks

release: setup ## wheels, chart, SBOMs, licences, checksums and notes in out/release: make release VERSION=0.2.0
	@tools/helm.sh version >/dev/null
	@$(PYTHON) -m tools.release $(VERSION)

settings-reference: setup ## docs/reference/settings.md, generated from the settings models
	@$(PYTHON) -m tools.settings_reference

capacity: setup ## the rates of starling plan-capacity from benchmarks/results, the figures of docs/how-to/capacity.md and the presets of the chart
	@$(PYTHON) -m tools.capacity_rates
	@$(PYTHON) -m tools.capacity_guide
	@$(PYTHON) -m tools.chart_presets

simulate: setup ## the large size of the capacity guide with faults, simulated at 100,000 events/s: results as JSON, charts in docs/how-to, minutes
	@$(PYTHON) -m tools.simulation.run

dashboards: setup ## helm/starling/dashboards, generated from tools/dashboards.py
	@$(PYTHON) -m tools.dashboards

chart-schema: setup ## helm/starling/values.schema.json, generated from values.yaml and the settings models
	@$(PYTHON) -m tools.chart_schema

values-reference: setup ## docs/reference/values.md, generated from the comments of helm/starling/values.yaml
	@$(PYTHON) -m tools.chart_reference

proto: setup ## the classes of schemas/proto, after a change there
	@$(PYTHON) -m grpc_tools.protoc -I schemas/proto --python_out=libs/common/starling_common/wire --pyi_out=libs/common/starling_common/wire schemas/proto/ingest.proto schemas/proto/ingest_envelope.proto

format: setup ## put all code into the house style
	@.venv/bin/ruff format --quiet $(SOURCES)
	@.venv/bin/ruff check --quiet --fix $(SOURCES)

bench: bench-platform bench-at-rest bench-ingest bench-segments bench-segmenter bench-latency bench-preview bench-lists bench-webhooks bench-delivery bench-backfill bench-spark bench-stream ## every benchmark; results as JSON in benchmarks/results

bench-platform: setup ## what one event costs the whole platform, by part, topic and table (ARGS="--events 20000 --users 5000": minutes)
	@$(PYTHON) -m benchmarks.whole --write $(ARGS)

bench-at-rest: setup ## what an idle platform costs with 8 and with 64 partitions: twelve minutes
	@$(PYTHON) benchmarks/at_rest.py --write $(ARGS)

bench-ingest: setup ## requests and items a second through the edge
	@$(PYTHON) benchmarks/ingest.py

bench-webhooks: setup ## delivery to a webhook with one change and with 100 changes a request
	@$(PYTHON) benchmarks/webhooks.py --write

bench-delivery: setup ## delivery: rates relative to bare loops, latencies, a broadcast; ten parts, 25 minutes (ARGS="--only kit,broadcast --members 1000000")
	@$(PYTHON) benchmarks/delivery.py --write $(ARGS)

bench-stream: setup ## the stream layer beside Kafka Streams, Quix Streams and stock Faust: about an hour (ARGS=--small: minutes)
	@$(PYTHON) benchmarks/stream.py $(ARGS)

bench-spark: setup ## computed traits and the lake beside reading and decoding alone, two executors beside one (as root), values while events flow, when an executor is killed, and with up to three million people, a view, exports to each sink, imports of 500,000 rows: more than an hour (ARGS=--small: minutes)
	@$(PYTHON) benchmarks/spark_profiles.py --write $(ARGS)
	@$(PYTHON) benchmarks/spark_executors.py --write $(ARGS)
	@$(PYTHON) benchmarks/spark_lake.py --write $(ARGS)
	@PYTHONPATH=. $(PYTHON) benchmarks/spark_live.py --write $(ARGS)
	@PYTHONPATH=. $(PYTHON) benchmarks/spark_live.py --write --only live --matching 0.4 $(ARGS)
	@PYTHONPATH=. $(PYTHON) benchmarks/spark_recovery.py --write $(ARGS)
	@PYTHONPATH=. $(PYTHON) benchmarks/spark_scale.py --write $(ARGS)
	@$(PYTHON) benchmarks/spark_views.py --write $(ARGS)
	@$(PYTHON) benchmarks/spark_sinks.py --write $(ARGS)
	@PYTHONPATH=. $(PYTHON) benchmarks/spark_imports.py --rows 500000 --write $(ARGS)

bench-spark-state: setup ## the state of one person in Spark by the public and by the pipelined client, with up to a million people: ten minutes
	@$(PYTHON) benchmarks/spark_state.py --write $(ARGS)

bench-backfill: setup ## the past of one new segment over ten million events, and live traffic beside it: a quarter of an hour
	@$(PYTHON) benchmarks/backfill.py --write $(ARGS)

bench-segments: setup ## what an event costs in the fold with 1, 20, 100 and 1,000 segments of every kind
	@$(PYTHON) benchmarks/segments_mix.py --write

bench-segmenter: setup ## events a second through one segmenter, beside stock Faust
	@$(PYTHON) benchmarks/segmenter.py --events 300000 --peer-events 25000 --write

bench-latency: setup ## from an acknowledged event to a readable membership record, of an event and of a computed trait
	@.venv/bin/starling up --detach --no-spark --data-dir out/latency --port-base 27000
	@PATH="$(CURDIR)/.venv/bin:$$PATH" $(PYTHON) benchmarks/latency.py --data-dir out/latency --write || failed=1; \
	  .venv/bin/starling down --data-dir out/latency; rm -rf out/latency; exit $${failed:-0}
	@.venv/bin/starling up --detach --data-dir out/latency --port-base 27000
	@PATH="$(CURDIR)/.venv/bin:$$PATH" $(PYTHON) benchmarks/latency.py --trait --data-dir out/latency --write || failed=1; \
	  .venv/bin/starling down --data-dir out/latency; rm -rf out/latency; exit $${failed:-0}

bench-lists: setup ## lists of a million ids: uploaded, replaced, followed into a segment
	@$(PYTHON) benchmarks/list_upload.py --write $(ARGS)

bench-worst-cost: setup ## an event with the most expensive definitions that are accepted: about a minute
	@$(PYTHON) benchmarks/worst_cost.py --write

bench-preview: setup ## preview, diff and explain over a million users; ARGS="--users 200000" for fewer
	@$(PYTHON) benchmarks/preview.py --write $(ARGS)

clean: ## stop the local instance and remove its data, the environment and caches
	@if [ -x .venv/bin/starling ] && [ -d .starling ]; then .venv/bin/starling down; fi
	@rm -rf .venv .starling .mypy_cache .ruff_cache .hypothesis .import_linter_cache out
	@find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
