#!/bin/sh
# What the guest runs: see README.md. One line of fio's JSON a job in $PORT.
echo 0 >/proc/sys/kernel/sched_autogroup_enabled 2>/dev/null
echo none >/sys/block/nullb0/queue/scheduler
run() { # NAME, OPTIONS
    name=$1
    shift
    fio --filename=/dev/nullb0 --direct=1 --size=512m --norandommap --rw=randread --bs=4k \
        --time_based --runtime=1 --ramp_time=100ms --randrepeat=1 --output-format=json "$@" \
        >/tmp/out.json 2>/tmp/err || { cat /tmp/err; exit; }
    { echo "### $name"; cat /tmp/out.json; } >>"$PORT"
}
sync="--ioengine=psync"
deep="--ioengine=libaio --iodepth=32"
# shellcheck disable=SC2086
{
    run sync4 --name=sync $sync --numjobs=4
    run sync8 --name=sync $sync --numjobs=8
    run deep1 --name=deep $deep
    run deep2 --name=deep $deep --numjobs=2
    run deep4 --name=deep $deep --numjobs=4
    run victim1 --name=victim $sync --name=noise --new_group $deep
    run victim2 --name=victim $sync --name=noise --new_group $deep --numjobs=2
}
echo passed
