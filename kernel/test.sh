#!/bin/sh
# The module in a real kernel: builds it, boots a guest, and has fio write and verify
# (crc32c) on a RAM disk and on a virtio disk under each scheduler, and once more
# while the scheduler is switched every 100 ms. Passes if no data is wrong, the
# kernel's log has no warning, and the module leaves nothing behind.
#
# TEST=cost instead tells what a request costs under each scheduler, the kernel's own
# ones beside ours, in instructions.
#
# BUILD=DIR keeps what was fetched; ACCEL=kvm uses the host's hardware.
set -eu
cd "$(dirname "$0")"
BUILD=${BUILD:-build}
ACCEL=${ACCEL:-tcg,thread=multi}

missing=
for tool in qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio fio:fio \
    depmod:kmod xz:xz-utils make:make gcc-12:gcc-12; do
    command -v "${tool%%:*}" >/dev/null || missing="$missing ${tool##*:}"
done
[ -z "$missing" ] || { echo "SKIPPED kernel module: apt-get install$missing"; exit 0; }

./setup.sh "$BUILD" >/dev/null
variables=$(./setup.sh "$BUILD")
[ "${TEST:-all}" = cost ] && debug='' smp='-smp 1 -icount shift=0' || debug=1 smp='-smp 2'
# shellcheck disable=SC2086
make BLKLAB_DEBUG=$debug $variables >"$BUILD/make.log" 2>&1 || { tail -20 "$BUILD/make.log"; exit 1; }

release=$(cat "$BUILD/version")
root=$BUILD/initramfs
rm -rf "$root"
mkdir -p "$root/bin" "$root/sbin" "$root/proc" "$root/sys" "$root/dev" "$root/tmp" "$root/modules"
cp "$(command -v busybox)" "$root/bin/busybox"
cp "$(command -v fio)" "$root/bin/fio"
ldd "$(command -v fio)" | grep -o '/[^ ]*' | sort -u | while read -r library; do
    mkdir -p "$root/$(dirname "$library")"
    cp -L "$library" "$root/$library"
done
for module in fs/configfs/configfs drivers/block/null_blk/null_blk drivers/block/virtio_blk \
    block/bfq block/kyber-iosched crypto/crc32c_generic; do
    xz -dc "$BUILD/root/lib/modules/$release-amd64/kernel/$module.ko.xz" \
        >"$root/modules/$(basename "$module").ko"
done
cp blklab-iosched.ko "$root/modules/"
cp guest-init.sh "$root/init"
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc 2>/dev/null | gzip -1) >"$BUILD/guest.cpio.gz"
truncate -s 256M "$BUILD/disk"

[ "${TEST:-all}" = cost ] && ACCEL=tcg
# shellcheck disable=SC2086
timeout 1200 qemu-system-x86_64 -accel "$ACCEL" -machine q35 -cpu max $smp -m 2G \
    -nodefaults -no-user-config -no-reboot -display none -serial stdio \
    -kernel "$BUILD/root/boot/vmlinuz-$release-amd64" -initrd "$BUILD/guest.cpio.gz" \
    -drive "file=$BUILD/disk,format=raw,if=none,id=disk,cache=unsafe" \
    -device virtio-blk-pci,drive=disk,num-queues=2 \
    -append "console=ttyS0 panic=-1 quiet mitigations=off nokaslr clocksource=tsc tsc=reliable TEST=${TEST:-all}" \
    >"$BUILD/guest.log" 2>&1 || true
sed -n 's/\r$//; /^blklab test:/p' "$BUILD/guest.log"
grep -q '^blklab test: passed' "$BUILD/guest.log" || { tail -40 "$BUILD/guest.log"; exit 1; }
