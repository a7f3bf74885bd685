#!/bin/sh
# What the guest runs to record decisions (test.sh): a job under the scheduler that the kernel's
# command line names, its requests traced.
scheduler=$(sed -n 's/.*SCHEDULER=\([^ ]*\).*/\1/p' /proc/cmdline)
tracing=/sys/kernel/tracing
queue=/sys/block/nullb0/queue
echo 60000 >$tracing/buffer_size_kb
echo mono >$tracing/trace_clock
echo "$scheduler" >$queue/scheduler
echo 1 >$tracing/events/blklab/enable
for event in bio_queue bio_backmerge bio_frontmerge getrq plug unplug rq_insert rq_merge rq_issue rq_complete; do
    echo 1 >$tracing/events/block/block_$event/enable
done
# Reads and writes of mixed sizes, a stream that merges, and the three classes.
cat >/tmp/job.fio <<END
[global]
filename=/dev/nullb0
direct=1
ioengine=libaio
iodepth=64
iodepth_batch_submit=16
iodepth_batch_complete_min=4
thread
randrepeat=1
[mixed]
rw=randrw
bsrange=4k-64k
size=512m
number_ios=1500
[stream]
rw=write
bs=4k
offset=512m
size=64m
number_ios=800
[urgent]
rw=randread
bs=4k
prioclass=1
size=512m
number_ios=200
[idle]
rw=randread
bs=4k
prioclass=3
size=512m
number_ios=200
END
fio /tmp/job.fio >/dev/null 2>/tmp/err || { cat /tmp/err; exit; }
echo 0 >$tracing/tracing_on
# The description first, on one line.
files() { # FOLDER PREFIX
    for file in "$1"/*; do
        [ -f "$file" ] && value=$(cat "$file" 2>/dev/null) &&
            printf '"%s":"%s",' "$2$(basename "$file")" "$value"
    done
}
{
    printf '{"name":"%s","scheduler":"%s","smp":1,' "$scheduler" "$scheduler"
    printf '"null_blk_parameters":{%s},' "$(files /sys/module/null_blk/parameters | sed 's/,$//')"
    printf '"queue":{%s}}\n' "$( (files $queue; files $queue/iosched iosched/) | sed 's/,$//')"
    cat $tracing/trace
} >"$PORT"
lost=$(cat $tracing/per_cpu/cpu*/stats | sed -n 's/^overrun: //p')
[ "$lost" = 0 ] && echo passed || echo "$lost events are lost"
