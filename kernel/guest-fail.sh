#!/bin/sh
# What the guest runs to have each allocation fail once (test.sh): of a scheduler that is attached,
# and of a queue that is made deeper. The switch is refused or the scheduler works, and the
# kernel's log has no warning. TEST=short takes every seventh allocation, and data is verified once
# under each scheduler.
failed=0
say() {
    echo "blklab test: $*"
}
fail() {
    say "FAILED: $*"
    failed=1
}

step=1 verified=8
! grep -q TEST=short /proc/cmdline || step=7 verified=10000
parameter=/sys/module/blklab_iosched/parameters/fail_nth
queue=/sys/block/nullb0/queue
[ -w $parameter ] || fail "the module has no fail_nth: it is not the debug build"
dmesg -c >/dev/null

ours() {
    sed 's/[][]//g' $queue/scheduler | tr ' ' '\n' | grep -v -x -e none -e mq-deadline -e kyber -e bfq -e ''
}

# A job that verifies what it writes.
works() {
    fio --name=w --filename=/dev/nullb0 --direct=1 --ioengine=libaio --iodepth=32 --rw=randwrite \
        --bs=4k --size=16m --io_size=1m --verify=crc32c --verify_fatal=1 --thread --minimal \
        >/dev/null 2>/tmp/fio.err || fail "$1: fio: $(head -c 300 /tmp/fio.err)"
}

# Whether the allocation that was to fail was made; if not, none is left.
has_failed() {
    left=$(cat $parameter)
    echo 0 >$parameter
    [ "$left" = 0 ]
}

for scheduler in $(ours); do
    attach=0 refused=0 resize=0
    while :; do
        echo none >$queue/scheduler
        echo $((attach + 1)) >$parameter
        echo "$scheduler" 2>/dev/null >$queue/scheduler || refused=$((refused + 1))
        has_failed || break
        attach=$((attach + step))
        [ $((attach % verified)) != "$step" ] || works "$scheduler after allocation $attach had failed"
        [ $attach -lt 10000 ] || { fail "$scheduler never ends to allocate"; break; }
    done
    grep -q "\[$scheduler\]" $queue/scheduler || fail "$scheduler is not attached with all memory"
    while :; do
        echo "$scheduler" >$queue/scheduler
        echo 64 >$queue/nr_requests
        echo $((resize + 1)) >$parameter
        echo 512 >$queue/nr_requests
        has_failed || break
        resize=$((resize + step))
        [ "$step" != 1 ] || works "$scheduler with a deeper queue, allocation $resize had failed"
        echo none >$queue/scheduler
    done
    [ "$refused" -gt 0 ] || fail "$scheduler was never refused"
    say "$scheduler: the first $attach allocations failed, one at a time, and $refused refused it; $resize of a deeper queue"
done

echo none >$queue/scheduler
rmmod blklab-iosched || fail "the module does not unload"
# The kernel itself says when it falls back to none.
dmesg | grep -E 'WARNING|BUG|Oops|Call Trace|blklab:|I/O error' | head -20 >/tmp/bad
[ ! -s /tmp/bad ] || { cat /tmp/bad; dmesg | tail -60; fail "the kernel's log has warnings"; }
[ "$failed" = 1 ] || echo passed
