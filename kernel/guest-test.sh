#!/bin/sh
# What the guest runs: see test.sh.
failed=0
say() {
    echo "blklab test: $*"
}
fail() {
    say "FAILED: $*"
    failed=1
}

[ -d /sys/module/blklab_iosched ] || fail "the module does not load"
dmesg -c >/dev/null

ours() {
    sed 's/[][]//g' /sys/block/nullb0/queue/scheduler | tr ' ' '\n' |
        grep -v -x -e none -e mq-deadline -e kyber -e bfq -e ''
}

# What a random read of 4 KiB costs beyond one without a scheduler, in instructions:
# under -icount they are the guest's nanoseconds. The median of five runs.
cost() {
    for _ in 1 2 3 4 5; do
        fio --name=c --filename=/dev/nullb0 --direct=1 --ioengine=libaio --iodepth=32 --rw=randread \
            --bs=4k --size=512m --number_ios=20000 --norandommap --randrepeat=1 --thread --minimal \
            --iodepth_batch_submit=16 --iodepth_batch_complete_min=16 | cut -d ';' -f 9
    done | sort -n | sed -n 3p
}
if grep -q TEST=cost /proc/cmdline; then
    for scheduler in none mq-deadline blklab-mq-dl bfq blklab-bfq kyber blklab-kyber $(ours); do
        echo "$scheduler" >/sys/block/nullb0/queue/scheduler || fail "$scheduler"
        ms=$(cost)
        [ "$scheduler" != none ] || none_ms=$ms
        say "cost $scheduler: $(((ms - none_ms) * 50)) instructions a request above none"
    done
    [ "$failed" = 1 ] || echo passed
    exit
fi

# fio DEVICE DEPTH: mixed sizes, jobs beside each other, every block verified.
verify() {
    fio --name=v --filename="/dev/$1" --direct=1 --ioengine=libaio --iodepth="$2" --rw=randwrite \
        --bsrange=512-64k --numjobs=3 --offset_increment=64m --size=48m --io_size=6m \
        --verify=crc32c --verify_fatal=1 --group_reporting --minimal --thread \
        >/tmp/fio.out 2>/tmp/fio.err || { fail "fio on $1: $(head -c 300 /tmp/fio.err)"; return 1; }
    # Runs of neighbours, through the page cache, so that there is much to merge.
    fio --name=m --filename="/dev/$1" --ioengine=psync --rw=write --bs=4k --size=16m --numjobs=2 \
        --offset_increment=64m --end_fsync=1 --verify=crc32c --verify_fatal=1 --minimal --thread \
        >/tmp/fio.out 2>/tmp/fio.err || { fail "buffered fio on $1: $(head -c 300 /tmp/fio.err)"; return 1; }
}

say "schedulers: $(ours | tr '\n' ' ')"
for scheduler in $(ours); do
    for disk in nullb0 vda; do
        echo "$scheduler" >/sys/block/$disk/queue/scheduler || fail "$scheduler on $disk"
        grep -q "\[$scheduler\]" /sys/block/$disk/queue/scheduler || fail "$scheduler is not on $disk"
        echo 32 >/sys/block/$disk/queue/nr_requests
        for file in /sys/block/$disk/queue/iosched/*; do
            [ -w "$file" ] || continue
            value=$(cat "$file" 2>/dev/null) || value=
            case "$value" in
            *[!0-9]* | "") ;;
            *) echo "$value" >"$file" || fail "$file does not take its own value $value" ;;
            esac
            echo nonsense 2>/dev/null >"$file" && fail "$file takes nonsense"
        done
        verify $disk 16 && merges=$(awk '{ print $2 + $6 }' /sys/block/$disk/stat) &&
            say "$scheduler on $disk: verified, $merges merges so far"
    done
done

# Every scheduler after every other, in turns of 100 ms, with I/O on its way.
(while [ ! -e /tmp/stop ]; do
    for scheduler in $(ours) none mq-deadline bfq; do
        echo "$scheduler" >/sys/block/nullb0/queue/scheduler
        echo "$scheduler" >/sys/block/vda/queue/scheduler
        echo x >>/tmp/switches
        usleep 100000
    done
done) &
for round in 1 2 3; do
    verify nullb0 32
    verify vda 32
done
touch /tmp/stop
wait
say "$(wc -l </tmp/switches) switches with I/O on its way"

echo none >/sys/block/nullb0/queue/scheduler
echo none >/sys/block/vda/queue/scheduler
rmmod blklab-iosched || fail "the module does not unload"
dmesg | grep -E 'WARNING|BUG|Oops|Call Trace|blklab:|I/O error' | head -20 >/tmp/bad
[ ! -s /tmp/bad ] || { cat /tmp/bad; dmesg | tail -60; fail "the kernel's log has warnings"; }
[ "$failed" = 1 ] || echo passed
