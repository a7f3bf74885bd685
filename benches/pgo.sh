#!/bin/sh
# Builds blklab optimised by a profile: once with counters, then, after jobs of
# our own have run on that, as these counts tell. What the two print must be the
# same. The program ends up where `make build` puts it.
# CARGO, CARGO_TARGET_DIR and RUSTFLAGS mean what they mean to cargo.
set -eu

cargo=${CARGO:-cargo}
target=${CARGO_TARGET_DIR:-target}
host=$(rustc -vV | sed -n 's/^host: //p')
llvm=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')

# Profiles are read by tools of the compiler's own LLVM version only.
find_profdata() {
    for tool in "$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata" \
        "llvm-profdata-$llvm" llvm-profdata; do
        if "$tool" merge --version 2>/dev/null | grep -q "version $llvm\."; then
            echo "$tool"
            return
        fi
    done
}

install_profdata() {
    if command -v rustup >/dev/null 2>&1; then
        rustup component add llvm-tools >/dev/null 2>&1 && return
    fi
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        apt-get install -y --no-install-recommends "llvm-$llvm" >/dev/null 2>&1 || :
    fi
}

profdata=$(find_profdata)
if [ -z "$profdata" ]; then
    install_profdata
    profdata=$(find_profdata)
fi
if [ -z "$profdata" ]; then
    echo "SKIPPED: the build by profile needs llvm-profdata of LLVM $llvm" \
        "(rustup component add llvm-tools, or the package llvm-$llvm)"
    echo "An ordinary build instead."
    exec "$cargo" build --release --locked -p blklab-cli
fi

# Afresh: cargo does not see whether a profile of the same name is another.
rm -rf "$target/pgo"
mkdir -p "$target/pgo"
pgo=$(cd "$target/pgo" && pwd)
place=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || :; rm -rf "$place" "$pgo"' EXIT

# build FLAG: with the host named, so that what runs in the build itself
# goes without the flag.
build() {
    RUSTFLAGS="${RUSTFLAGS:-} $1" CARGO_TARGET_DIR="$pgo" \
        "$cargo" build --release --locked -p blklab-cli --target "$host"
    cp "$pgo/$host/release/blklab" "$place/blklab"
}

# fio DRIVE MACHINE SCHEDULER REQUESTS OPTION...: one job.
fio() {
    models="--drive $1 --machine $2 --scheduler $3"
    ios=$4
    shift 4
    # shellcheck disable=SC2086
    "$place/blklab" run $models --output-format json -- --name=t --filename=/dev/x \
        --direct=1 --ioengine=libaio --iodepth=32 --bs=4k --norandommap \
        --number_ios="$ios" "$@"
}

# Jobs of every kind, since the compiler takes what no job has come by for rare.
simulate() {
    for scheduler in none mq-deadline bfq kyber; do
        for rw in randread randwrite randrw; do
            fio mqsim-ideal generic-8 $scheduler 150000 --rw=$rw
        done
    done
    for scheduler in none mq-deadline ac ac2 cfq; do
        fio 980pro-1tb xeon-10core $scheduler 30000 --rw=randrw --numjobs=2
        fio mx100-256 i7-3770k $scheduler 30000 --rw=randrw --rwmixread=90
    done
    fio null generic-8 none 200000 --rw=randread
    fio null generic-8 mq-deadline 100000 --rw=randrw --iodepth=256
    fio mqsim-default generic-8 kyber 50000 --rw=randread --bs=8k --iodepth=64
    fio enterprise-tlc xeon-10core none 30000 --rw=randrw --bs=64k --ioengine=io_uring
    fio qlc-1tb xeon-10core none 20000 --rw=write --bs=128k
    fio hdd-7200 generic-8 mq-deadline 10000 --rw=randrw
    fio sd-card rpi4 bfq 5000 --rw=randrw --iodepth=1 --ioengine=psync
    "$place/blklab" replay tests/data/traces/wsrch-small.trace --drive mx100-256 \
        --schedulers mq-deadline,bfq --repeats 1 --threads 1
    "$place/blklab" compare thesis/randrw-90-10 --drive mx100-256 --machine i7-3770k \
        --repeats 1 --threads 1 --html "$place/page.html"
    cat "$place/page.html"
}

# What is served is timed by the real clock, so that no two runs are the same.
serve() {
    "$place/blklab" serve --socket "$place/sock" --memory 256M >/dev/null &
    server=$!
    tries=0
    until [ -S "$place/sock" ] || [ $tries = 100 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
    "$place/blklab" load "nbd+unix:///?socket=$place/sock" --depth 32 --seconds 2 >/dev/null
    kill "$server"
    wait "$server" || :
    server=
}

build "-Cprofile-generate=$pgo/counts"
simulate >"$place/expected"
serve
"$profdata" merge -o "$pgo/profile" "$pgo/counts"
build "-Cprofile-use=$pgo/profile"
simulate >"$place/found"
if ! cmp "$place/expected" "$place/found"; then
    echo "The build by profile prints something else than the one with counters." >&2
    exit 1
fi
mkdir -p "$target/release"
# What is there may be a link to what cargo keeps.
rm -f "$target/release/blklab"
cp "$place/blklab" "$target/release/blklab"
