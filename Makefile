# Two commands: `make demo` and `make test`. Both do their own set-up.

CARGO ?= cargo
BLKLAB = target/release/blklab
DEMO_JOB = thesis/randrw-90-10
DEMO_DRIVE = mx100-256-ranges
DEMO_SCHEDULERS = noop,deadline,mq-deadline,ac

.PHONY: demo test python soak kills images module-test mutants bench step-costs bench-serve check setup build build-pgo docs evidence defaults-report tune-report many-runs clean

demo: build
	$(BLKLAB) compare $(DEMO_JOB) --drive $(DEMO_DRIVE) --machine i7-3770k \
		--schedulers $(DEMO_SCHEDULERS) --html demo.html
	@echo
	@echo "The same as a page: demo.html"

build:
	$(CARGO) build --release --locked -p blklab-cli

# The same program, optimised for what it did in jobs of ours: a tenth faster, in
# three times the time. `make build` puts the ordinary one back.
build-pgo:
	CARGO="$(CARGO)" ./benches/pgo.sh

# fio is the outside judge of job files and of JSON. Tests that need it say so
# by name and are skipped where it cannot be had.
setup:
	@./tests/setup.sh

# The cases of property tests are the same in each run: what lands is not a
# matter of luck. `make soak` looks for new ones.
test: setup build
	@$(BLKLAB) guest setup >/dev/null || echo "SKIPPED: tests in a guest with a real kernel"
	PROPTEST_RNG_SEED=1 $(CARGO) test --workspace --locked
	TEST=short ./kernel/test.sh
	./python/check.sh

# The Python package, built and tested: minutes more, as it is a workspace of its own.
# `pip install ./python` installs the one for use. PYTEST is what pytest is told.
PYTEST =
python: build
	./tests/setup.sh python
	./python/check.sh
	CARGO="$(CARGO)" ./python/test.sh $(PYTEST)

# Property tests with new cases, until one fails or SOAK_ROUNDS are over.
SOAK_ROUNDS = 20
soak:
	for round in $$(seq $(SOAK_ROUNDS)); do \
		PROPTEST_RNG_SEED=$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ') \
			$(CARGO) test --workspace --locked || exit 1; \
	done

# File systems under so many random calls beside a model of them, and so many power cuts at
# random moments, judged by e2fsck and fsck.vfat: more than fit into `make test`.
IMAGE_STEPS = 10000
IMAGE_CUTS = 1000
images: setup
	BLKLAB_IMAGE_STEPS=$(IMAGE_STEPS) BLKLAB_IMAGE_CUTS=$(IMAGE_CUTS) PROPTEST_RNG_SEED=1 \
		$(CARGO) test --locked --package blklab-fs --test fs image::
	BLKLAB_IMAGE_STEPS=$(IMAGE_STEPS) PROPTEST_RNG_SEED=1 \
		$(CARGO) test --locked --package blklab-sim --lib random_calls
# Kills the server of each front end a hundred times under load; `make test` does so once or
# twice.
kills: setup build
	BLKLAB_KILLS=100 $(CARGO) test --locked -p blklab-cli --test command -- \
		what_was_flushed_outlives_a_kill a_killed_server_s_successor server_is_killed

# What CI checks beside the tests.
check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) check --package blklab-elevator --no-default-features --locked
	$(CARGO) check --package blklab --no-default-features --locked
	$(CARGO) clippy --package blklab-tables --features arrow --all-targets --locked -- -D warnings
	$(CARGO) check --manifest-path fuzz/Cargo.toml --target-dir target/fuzz --locked
	$(CARGO) fmt --manifest-path python/Cargo.toml --check
	$(CARGO) metadata --manifest-path python/Cargo.toml --locked --format-version 1 >/dev/null
	$(CARGO) fmt --manifest-path kernel/rust/Cargo.toml --check
	$(CARGO) check --manifest-path kernel/rust/Cargo.toml --target-dir target/kernel --locked

# The kernel module in a real kernel, in a guest that is fetched from Debian's packages.
module-test: build
	./kernel/test.sh

# A sample of the changes that cargo-mutants (`cargo install cargo-mutants`) makes to these
# crates. "missed" are those that no test of the crate's own or of conform's notices. SEED draws
# another sample, SHARE is its size in percent.
MUTATED = blk elevator driver device stats
SEED = 1
SHARE = 1
mutants:
	python3 tests/mutants/run.py $(MUTATED) --seed $(SEED) --share $(SHARE)

# The reference pages, from what is declared; a test says when they are not current.
docs:
	$(CARGO) run --locked -p blklab-docs -- reference

# The evidence pages, from runs. DATA names another folder of the layout of tests/data,
# SETS the pages to make, all of them if it is empty.
DATA = tests/data
SETS =
evidence: build
	$(CARGO) run --release --locked -p blklab-docs -- evidence --blklab $(BLKLAB) --data $(DATA) $(SETS)

# Which scheduler and readahead should be the default, and how near `blklab tune` comes to
# the best: pages from sweeps under workloads of real programs. Runs are kept in target/.
defaults-report: setup build
	target/python/bin/python python/evidence/defaults.py --blklab $(BLKLAB) \
		--folder target/defaults --page docs/evidence/defaults.md
tune-report: setup build
	target/python/bin/python python/evidence/tune.py --blklab $(BLKLAB) --page docs/evidence/tune.md

# What many runs cost: Python beside the command, rows, all cores, kills, a cluster. A quiet
# machine, 16 GB of memory and ten minutes; MANY_RUNS=--small tells that it works.
MANY_RUNS =
many-runs: build
	./tests/setup.sh python
	CARGO="$(CARGO)" ./python/build.sh release
	PYTHONPATH=python target/python/bin/python python/evidence/many_runs --blklab $(BLKLAB) \
		--page docs/evidence/many-runs.md $(MANY_RUNS)

# Figures are ratios in one run: absolute times depend on the machine.
bench:
	$(CARGO) bench --workspace --benches --locked

# What each scheduler should declare as its costs (`ElevatorType::costs`); fails where that is
# far from what it does declare. NAME shows one scheduler's by kind of work.
NAME =
step-costs: setup
	$(CARGO) bench --locked --package blklab-elevator --bench step_costs -- $(NAME)

# Our servers beside nbdkit, qemu-nbd and qemu-storage-daemon. RECORD=tests/data/servers leaves
# the tables for `make evidence SETS=servers`.
bench-serve: setup build
	./benches/serve.sh

clean:
	$(CARGO) clean
	rm -f demo.html
