#!/bin/sh
# What the guest runs to record decisions (test.sh): a job under each scheduler of the module, whose
# calls are traced from before it is attached. For each a description, on one line, and the trace.
tracing=/sys/kernel/tracing
disk=/sys/block/nullb0
queue=$disk/queue
echo 60000 >$tracing/buffer_size_kb
echo mono >$tracing/trace_clock
# Reads and writes of mixed sizes, a stream that merges, and the three classes; TEST=short has
# a fifth of the I/Os.
share=1
! grep -q TEST=short /proc/cmdline || share=5
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
number_ios=$((500 / share))
[stream]
rw=write
bs=4k
offset=512m
size=64m
number_ios=$((300 / share))
[urgent]
rw=randread
bs=4k
prioclass=1
size=512m
number_ios=$((100 / share))
[idle]
rw=randread
bs=4k
prioclass=3
size=512m
number_ios=$((100 / share))
END

files() { # FOLDER PREFIX
    for file in "$1"/*; do
        [ -f "$file" ] && value=$(cat "$file" 2>/dev/null) &&
            printf '"%s":"%s",' "$2$(basename "$file")" "$(printf %s "$value" | tr '\n' ' ')"
    done
}

# Its name in blklab.
ours() {
    case $1 in
    blklab-mq-dl) echo mq-deadline ;;
    *) echo "${1#blklab-}" ;;
    esac
}

describe() { # SCHEDULER
    printf '{"name":"%s","scheduler":"%s","smp":%s,' "$1" "$(ours "$1")" "$(nproc)"
    printf '"null_blk_parameters":{%s},' "$(files /sys/module/null_blk/parameters | sed 's/,$//')"
    printf '"queue":{"size":"%s",%s}}\n' "$(cat $disk/size)" \
        "$( (files $queue; files $queue/iosched iosched/) | sed 's/,$//')"
}

record() { # SCHEDULER
    echo none >$queue/scheduler
    echo >$tracing/trace
    for event in blklab block/block_rq_insert block/block_rq_issue block/block_rq_complete; do
        echo 1 >$tracing/events/$event/enable
    done
    echo "$1" >$queue/scheduler
    fio /tmp/job.fio >/dev/null 2>/tmp/err || { cat /tmp/err; return 1; }
    echo 0 >$tracing/events/enable
    lost=$(cat $tracing/per_cpu/cpu*/stats | sed -n 's/^overrun: //p' | sort -n | tail -1)
    [ "$lost" = 0 ] || { echo "$lost events are lost"; return 1; }
    describe "$1"
    cat $tracing/trace
}

for scheduler in $(sed 's/[][]//g' $queue/scheduler); do
    case $scheduler in
    none | mq-deadline | kyber | bfq) continue ;;
    esac
    record "$scheduler" >"$PORT" || exit
    echo "$scheduler: recorded"
done
echo passed
