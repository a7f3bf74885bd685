#!/bin/sh
# The module in a real kernel: builds it, boots a guest, and has fio write and verify
# (crc32c) on a RAM disk and on a virtio disk under each scheduler, and once more
# while the scheduler is switched every 100 ms. Passes if no data is wrong, the
# kernel's log has no warning, and the module leaves nothing behind.
#
# Then every call of each scheduler is recorded by the module's tracepoint and made of the same
# scheduler in user space by `blklab conform`: every answer must agree.
#
# Each allocation of the module's own is made to fail once: the scheduler is refused or works.
#
# TEST=cost instead tells what a request costs under each scheduler, the kernel's own
# ones beside ours, in instructions. TEST=verify, TEST=fail and TEST=conform do one part alone;
# TEST=short is the part of `make test`: TEST=fail with fewer of the allocations and TEST=conform
# with fewer I/Os, in the guest that `blklab guest setup` fetches.
#
# BUILD=DIR keeps what was fetched; BLKLAB is the program that boots the guest. RECORD=DIR gets
# the tables of TEST=conform and TEST=cost, of which `blklab-docs evidence kernel-module` makes a
# page.
set -eu
[ -z "${RECORD:-}" ] || RECORD=$(realpath "$RECORD")
cd "$(dirname "$0")"
BUILD=${BUILD:-build}
TEST=${TEST:-all}
BLKLAB=${BLKLAB:-../target/release/blklab}

command -v make >/dev/null && command -v gcc-12 >/dev/null || {
    echo "SKIPPED kernel module: apt-get install make gcc-12"
    exit 0
}
[ -x "$BLKLAB" ] || { echo "BLKLAB=$BLKLAB is not there: make build"; exit 2; }
make -s rustc 2>/dev/null || {
    echo "SKIPPED kernel module: rustup component add rust-src, or apt-get install rustc-web cargo-web rust-web-src"
    exit 0
}
mkdir -p "$BUILD"
packages="--guest $BUILD"
[ "$TEST" != short ] || packages=
# shellcheck disable=SC2086
variables=$("$BLKLAB" guest setup $packages) || { echo "SKIPPED kernel module"; exit 0; }
case $TEST in
cost | conform) debug='' ;;
*) debug=1 ;;
esac
# shellcheck disable=SC2086
make BLKLAB_DEBUG=$debug $variables >"$BUILD/make.log" 2>&1 || { tail -20 "$BUILD/make.log"; exit 1; }

guest() { # SCRIPT APPENDED OPTIONS
    script=$1 append=$2
    shift 2
    # shellcheck disable=SC2086
    "$BLKLAB" guest script "$script" $packages --module blklab-iosched.ko \
        --append "$append" "$@"
}

verify() { # OPTIONS
    truncate -s 256M "$BUILD/disk"
    guest guest-test.sh "TEST=$TEST" "$@" \
        --load configfs --load crc32c_generic --load bfq --load kyber-iosched --load virtio_blk \
        --load "null_blk nr_devices=1 gb=1 memory_backed=1 queue_mode=2 irqmode=2 completion_nsec=20000 submit_queues=2 hw_queue_depth=64" \
        --qemu "-drive file=$BUILD/disk,format=raw,if=none,id=disk,cache=unsafe" \
        --qemu "-device virtio-blk-pci,drive=disk,num-queues=2"
}

fail_allocations() {
    guest guest-fail.sh "TEST=$TEST" --guest-cpus 2 --load configfs --load crc32c_generic \
        --load "null_blk nr_devices=1 gb=1 memory_backed=1 queue_mode=2 irqmode=0 submit_queues=2 hw_queue_depth=64"
}

# Leaves a table where the pages are made from, if RECORD names that folder.
record() { # FILE
    [ -z "${RECORD:-}" ] || cp "$BUILD/$1" "$RECORD"
}

cost() {
    verify --count-instructions >"$BUILD/cost.txt" || { cat "$BUILD/cost.txt"; return 1; }
    cat "$BUILD/cost.txt"
    # Beside each of ours the kernel's own, where it has it.
    sed -n 's/.*cost \(.*\): \([0-9-]*\) instructions.*/\1 \2/p' "$BUILD/cost.txt" | awk '
        BEGIN { print "scheduler,instructions a request,the kernel\047s own,ratio" }
        $1 ~ /^(none|mq-deadline|bfq|kyber)$/ { kernels[$1] = $2; next }
        {
            name = $1 == "blklab-mq-dl" ? "mq-deadline" : $1
            sub(/^blklab-/, "", name)
            if (!seen[name]++)
                printf "%s,%d,%s,%s\n", name, $2, name in kernels ? kernels[name] : "-",
                    name in kernels ? sprintf("%.2f", $2 / kernels[name]) : "-"
        }' >"$BUILD/cost.csv"
    record cost.csv
}

conform() {
    guest guest-record.sh "TEST=$TEST" --count-instructions --output "$BUILD/recorded" \
        --load "null_blk nr_devices=1 gb=1 queue_mode=2 irqmode=2 completion_nsec=2000000 submit_queues=1 hw_queue_depth=4"
    rm -rf "$BUILD/traces" && mkdir "$BUILD/traces"
    # A description begins each trace, on one line.
    awk -v dir="$BUILD/traces" '/^{/ {
        split($0, words, "\"")
        name = dir "/" words[8]
        print >(name ".json")
        next
    } { print >(name ".trace") }' "$BUILD/recorded"
    failed=0
    echo "scheduler,calls,answers compared,agree" >"$BUILD/decisions.csv"
    for trace in "$BUILD"/traces/*.trace; do
        scheduler=$(basename "$trace" .trace)
        "$BLKLAB" conform --scheduler "$scheduler" "$trace" >"$BUILD/traces/$scheduler.txt" || failed=1
        echo "$scheduler: $(tail -1 "$BUILD/traces/$scheduler.txt")"
        calls=$(grep -c blklab_call: "$trace")
        sed -n "s/^agree \([0-9]*\) of \([0-9]*\)$/$scheduler,$calls,\2,\1/p" \
            "$BUILD/traces/$scheduler.txt" >>"$BUILD/decisions.csv"
    done
    record decisions.csv
    return $failed
}

case $TEST in
cost) cost ;;
verify) verify --guest-cpus 2 ;;
fail) fail_allocations ;;
short) fail_allocations && conform ;;
conform | all)
    [ "$TEST" = conform ] || { verify --guest-cpus 2 && fail_allocations; }
    conform
    ;;
*)
    echo "TEST is all, verify, fail, short, conform or cost"
    exit 2
    ;;
esac
