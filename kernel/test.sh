#!/bin/sh
# The module in a real kernel: builds it, boots a guest, and has fio write and verify
# (crc32c) on a RAM disk and on a virtio disk under each scheduler, and once more
# while the scheduler is switched every 100 ms. Passes if no data is wrong, the
# kernel's log has no warning, and the module leaves nothing behind.
#
# TEST=cost instead tells what a request costs under each scheduler, the kernel's own
# ones beside ours, in instructions.
#
# BUILD=DIR keeps what was fetched; BLKLAB is the program that boots the guest.
set -eu
cd "$(dirname "$0")"
BUILD=${BUILD:-build}
TEST=${TEST:-all}
BLKLAB=${BLKLAB:-../target/release/blklab}

command -v make >/dev/null && command -v gcc-12 >/dev/null || {
    echo "SKIPPED kernel module: apt-get install make gcc-12"
    exit 0
}
[ -x "$BLKLAB" ] || { echo "BLKLAB=$BLKLAB is not there: make build"; exit 2; }
variables=$("$BLKLAB" guest setup --guest "$BUILD") || { echo "SKIPPED kernel module"; exit 0; }
[ "$TEST" = cost ] && debug='' || debug=1
# shellcheck disable=SC2086
make BLKLAB_DEBUG=$debug $variables >"$BUILD/make.log" 2>&1 || { tail -20 "$BUILD/make.log"; exit 1; }

if [ "$TEST" = cost ]; then
    set -- --count-instructions
else
    set -- --guest-cpus 2
fi
truncate -s 256M "$BUILD/disk"
"$BLKLAB" guest script guest-test.sh --guest "$BUILD" --module blklab-iosched.ko "$@" \
    --load configfs --load crc32c_generic --load bfq --load kyber-iosched --load virtio_blk \
    --load "null_blk nr_devices=1 gb=1 memory_backed=1 queue_mode=2 irqmode=2 completion_nsec=20000 submit_queues=2 hw_queue_depth=64" \
    --qemu "-drive file=$BUILD/disk,format=raw,if=none,id=disk,cache=unsafe" \
    --qemu "-device virtio-blk-pci,drive=disk,num-queues=2" \
    --append "TEST=$TEST"
