#!/bin/sh
# Fetches, from the machine's own Debian packages, what building the module and
# booting it in a guest needs; nothing of it is installed. Everything is unpacked
# into the folder named, whose two lines of output are to be given to make. `blklab
# guest setup` runs it too.
set -eu
[ $# -eq 1 ] || { echo "usage: $0 DIR"; exit 2; }
mkdir -p "$1"
cd "$1"
dir=$(pwd)

need() {
    command -v "$1" >/dev/null || { echo "$1 is missing: apt-get install $2" >&2; exit 2; }
}
need apt-get apt
need dpkg dpkg
need xz xz-utils
need zstd zstd
need depmod kmod

if [ ! -f version ]; then
    release=$(apt-cache depends linux-image-6.12-amd64 | sed -n 's/.*Depends: linux-image-\(.*\)-amd64/\1/p')
    [ -n "$release" ] || { echo "apt knows no linux-image-6.12-amd64: add the security archive" >&2; exit 2; }
    rm -rf debs root source
    mkdir debs
    (cd debs && apt-get download "linux-image-$release-amd64" "linux-headers-$release-amd64" \
        "linux-headers-$release-common" "linux-kbuild-$release" linux-source-6.12 >&2)
    for deb in debs/*.deb; do
        dpkg -x "$deb" root
    done
    rm -r debs
    mkdir source
    tar -C source -xf root/usr/src/linux-source-6.12.tar.xz --wildcards 'linux-source-6.12/block/*.h'
    rm root/usr/src/linux-source-6.12.tar.xz
    headers=root/usr/src/linux-headers-$release-amd64
    # Their makefile names where they would be installed; a kernel image beside them
    # would have type information made, for which tools are needed.
    sed -i "s|/usr/src|$dir/root/usr/src|" "$headers/Makefile"
    rm -f "$headers/vmlinux"
    echo "$release" >version
fi
# The kernel's NBD client, for guests that compare front ends.
if [ ! -x root/sbin/nbd-client ] && [ ! -x root/usr/sbin/nbd-client ]; then
    mkdir -p debs
    libraries=$(apt-cache depends nbd-client | sed -n 's/.*Depends: \(libnl[^ ]*\).*/\1/p')
    # shellcheck disable=SC2086
    (cd debs && apt-get download nbd-client $libraries >&2)
    for deb in debs/*.deb; do
        dpkg -x "$deb" root
    done
    rm -r debs
fi
release=$(cat version)-amd64
[ -f "root/lib/modules/$release/modules.dep" ] || depmod -b root "$release"
# The image within the compressed one, which says where it begins and how long it is
# (Documentation/arch/x86/boot.rst: setup_sects, payload_offset, payload_length).
if [ ! -f vmlinux ]; then
    image=root/boot/vmlinuz-$release
    number() {
        od -An -t "u$2" -j "$1" -N "$2" "$image" | tr -d ' '
    }
    start=$((($(number 497 1) + 1) * 512 + $(number 584 4)))
    tail -c "+$((start + 1))" "$image" | head -c "$(($(number 588 4) - 4))" | zstd -dcq >vmlinux.new
    mv vmlinux.new vmlinux
fi
echo "KDIR=$dir/root/usr/src/linux-headers-$(cat version)-amd64"
echo "BLKSRC=$dir/source/linux-source-6.12/block"
