#!/bin/busybox sh
# The guest's first process: mounts what the kernel offers, loads the modules and runs
# /main, whose end is the guest's.
/bin/busybox --install -s /bin
export PATH=/bin:/sbin HOME=/tmp
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t tracefs none /sys/kernel/tracing
mkdir -p /dev/shm
mount -t tmpfs none /dev/shm
mount -t tmpfs none /tmp
ln -s /bin/busybox /sbin/modprobe
echo "blklab guest: up"
while read -r module parameters; do
    # shellcheck disable=SC2086
    insmod "/modules/$module" $parameters || echo "blklab guest: $module does not load"
done </modules/order
for port in /dev/vport*; do
    export PORT=$port
done
sh /main
poweroff -f
