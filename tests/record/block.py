#!/usr/bin/env python3
"""Records runs of the block layer: `block.py OUT [NAME...]` (README.md)."""

import fnmatch
import pathlib
import sys

import guest_trace
from block_runs import RUNS

BLOCK_EVENTS = [
    "block_bio_queue", "block_bio_backmerge", "block_bio_frontmerge", "block_getrq",
    "block_plug", "block_unplug", "block_split", "block_rq_insert", "block_rq_issue",
    "block_rq_complete", "block_rq_merge", "block_rq_requeue",
]
JIF = "jif=@jiffies_64:u64"
# Offsets in structures of this kernel: struct request (tag +32, sector +48, len +44, elv +192,
# fifo_time +224), blk_mq_hw_ctx (dispatch_busy +248, sched_data +176, queue +184), request_queue
# (elevator +8), elevator_queue (elevator_data +8).
DATA = "+8(+8(+184($arg1)))"
BFQ_GROUP = (
    " par=+232(+200($retval)):x64 gw=+80(+232(+200($retval))):s32"
    " gserv=+64(+232(+200($retval))):s32 gbud=+68(+232(+200($retval))):s32"
)
PROBES = {
    "all": [f"t:cf/rq_ins block_rq_insert rq=$arg1 sector=+48($arg1):u64 {JIF}"],
    "mq-deadline": [
        f"f:cf/dd_ins dd_insert_requests hctx=$arg1 flags=$arg3:u32 {JIF}",
        f"f:cf/dd_disp dd_dispatch_request hctx=$arg1 busy=+248($arg1):u32 {JIF}",
        "f8:cf/dd_disp_ret dd_dispatch_request%return rq=$retval sector=+48($retval):u64"
        f" fifo=+224($retval):u64 last_dir=+256({DATA}):u32 batching=+260({DATA}):u32"
        f" starved=+264({DATA}):u32 {JIF}",
        "f:cf/dd_fin dd_finish_request rq=$arg1 sector=+48($arg1):u64 pp=+192($arg1):x64",
        "f:cf/dd_bmerged dd_request_merged rq=$arg2 sector=+48($arg2):u64 len=+44($arg2):u32"
        " type=$arg3:u32",
        "f:cf/dd_rqmerged dd_merged_requests rq=$arg2 sector=+48($arg2):u64 next=$arg3"
        " nsector=+48($arg3):u64",
    ],
    "kyber": [
        f"f:cf/ky_ins kyber_insert_requests hctx=$arg1 flags=$arg3:u32 {JIF}",
        "f:cf/ky_disp kyber_dispatch_request hctx=$arg1 busy=+248($arg1):u32"
        f" dom=+72(+176($arg1)):u32 batching=+76(+176($arg1)):u32 {JIF}",
        "f8:cf/ky_disp_ret kyber_dispatch_request%return rq=$retval sector=+48($retval):u64"
        f" dom=+72(+176($arg1)):u32 batching=+76(+176($arg1)):u32 {JIF}",
        "f:cf/ky_fin kyber_finish_request rq=$arg1 sector=+48($arg1):u64 token=+192($arg1):s64",
        "f:cf/ky_done kyber_completed_request rq=$arg1 sector=+48($arg1):u64 now=$arg2:u64"
        " start=+104($arg1):u64 iostart=+112($arg1):u64",
    ],
    "bfq": [
        f"f:cf/bfq_ins bfq_insert_requests hctx=$arg1 flags=$arg3:u32 {JIF}",
        f"f:cf/bfq_disp bfq_dispatch_request hctx=$arg1 busy=+248($arg1):u32"
        f" insv=+192({DATA}):x64 queued=+68({DATA}):s32 drv=+72({DATA}):s32 {JIF}",
        "f8:cf/bfq_disp_ret bfq_dispatch_request%return rq=$retval sector=+48($retval):u64"
        " fifo=+224($retval):u64 bfqq=+200($retval):x64 bpid=+412(+200($retval)):s32"
        " service=+200(+200($retval)):s32 budget=+204(+200($retval)):s32"
        " wrc=+448(+200($retval)):u32GROUP"
        f" insv=+192({DATA}):x64 queued=+68({DATA}):s32 drv=+72({DATA}):s32"
        f" peak=+344({DATA}):u32 {JIF}",
        "f:cf/bfq_fin bfq_finish_requeue_request rq=$arg1 sector=+48($arg1):u64",
        "f:cf/bfq_exit bfq_exit_icq icq=$arg1",
    ],
    "io.max": [
        "f8:cf/thr_ret __blk_throtl_bio%return bio=$arg1 sector=+32($arg1):u64"
        f" size=+40($arg1):u32 held=$retval:u8 {JIF}",
        f"f:cf/thr_work blk_throtl_dispatch_work_fn work=$arg1 {JIF}",
    ],
    "zoned": [
        "f8:cf/zw_plug blk_zone_plug_bio%return bio=$arg1 sector=+32($arg1):u64"
        f" opf=+16($arg1):x32 held=$retval:u8 {JIF}",
        f"f:cf/zw_work blk_zone_wplug_bio_work work=$arg1 {JIF}",
        f"f:cf/zw_end blk_zone_write_plug_bio_endio bio=$arg1 {JIF}",
    ],
    "wbt": [
        probe + " inf0=+64($arg1):s32 inf1=+96($arg1):s32 inf2=+128($arg1):s32"
        " bg=-80($arg1):u32 normal=-76($arg1):u32 step=+140($arg1):s32"
        f" max_depth=+136($arg1):u32 {JIF}"
        for probe in [
            "f:cf/wbt_wait wbt_wait bio=$arg2 sector=+32($arg2):u64 opf=+16($arg2):x32",
            "f16:cf/wbt_wait_ret wbt_wait%return bio=$arg2 sector=+32($arg2):u64",
            "f:cf/wbt_done wbt_done rq=$arg2 sector=+48($arg2):u64 wbt_flags=+120($arg2):u16",
        ]
    ],
}
EVENTS = {"kyber": ["kyber"], "wbt": ["wbt"], "io.cost": ["iocost"]}

# What one run does in the guest; `$R` is its folder, `/tmp/in/NAME.*` its files.
GUEST = """
Q=/sys/block/nullb0/queue
C=/sys/fs/cgroup
files() { # FOLDER PREFIX
    for f in "$1"/*; do
        [ -f "$f" ] && v=$(cat "$f" 2>/dev/null) && echo "$2${f##*/}=$(echo "$v" | tr '\\n' ' ')"
    done
}
grp() {
    mkdir -p $C/$1
    echo "grp $1"
}
fiog() { # GROUP: a fio of that name in that group
    cp /bin/fio /tmp/$1
    (
        [ $1 = root ] || echo 0 > $C/$(echo $1 | tr . /)/cgroup.procs
        exec /tmp/$1 /tmp/in/$N.$1.fio --output-format=json --output=$R/fio.$1.json
    )
}
put() { # FILE VALUE, with the drive's number for DEV
    echo "$2" | sed "s/DEV/$(cat /sys/block/nullb0/dev)/" > $C/$1 || echo "CG-FAIL $1"
}
marked() { # SECONDS GROUP FILE VALUE
    sleep $1
    echo "/$2 $3 $4" > $T/trace_marker
    put $2/$3 "$4"
}
one() {
    N=$1 SCHED=$2
    R=$O/$N
    mkdir -p $R
    insmod /modules/null_blk.ko $(cat /tmp/in/$N.null)
    while [ ! -b /dev/nullb0 ]; do sleep 0.1; done
    echo $SCHED > $Q/scheduler
    . /tmp/in/$N.set
    . /tmp/in/$N.prep
    echo none > $Q/scheduler
    echo $SCHED > $Q/scheduler
    . /tmp/in/$N.set
    files /sys/module/null_blk/parameters "" > $R/parameters
    files $Q "" > $R/queue
    files $Q/iosched iosched/ >> $R/queue
    for t in sched_tags tags; do
        cat /sys/kernel/debug/block/nullb0/hctx0/$t 2>/dev/null
    done | grep -E '^(nr_tags|bits_per_word|map_nr|min_shallow_depth)=' > $R/tags
    cat /sys/block/nullb0/dev > $R/dev
    trace_setup /tmp/in/$N.probes /tmp/in/$N.events
    read -r up rest < /proc/uptime
    trace_start
    . /tmp/in/$N.go
    trace_stop
    read -r end rest < /proc/uptime
    echo $up $end > $R/elapsed
    mv $O/trace.txt $O/trace.raw $O/stats $R
    files $Q "" > $R/queue_after
    files $Q/iosched iosched/ >> $R/queue_after
    for f in $(find $C -name io.stat -o -name io.cost.model -o -name io.cost.qos -o -name io.max -o -name io.weight); do
        echo "$f: $(cat $f | tr '\\n' ';')"
    done > $R/cg
    # What is switched on stays on for the next run otherwise.
    echo 0 > $T/events/enable
    echo > $T/dynamic_events
    sync
    ! grep -q ' /mnt ' /proc/mounts || umount /mnt
    [ ! -s $C/io.cost.qos ] || echo "$(cat $R/dev) enable=0" > $C/io.cost.qos
    find $C -depth -mindepth 1 -type d -exec rmdir {} \\;
    sleep 1
    rmmod null_blk
}
"""


def probes(run):
    wanted = PROBES["all"] + PROBES.get(run.scheduler, [])
    if run.kind != run.scheduler:
        wanted = wanted + PROBES.get(run.kind, [])
    group = BFQ_GROUP if run.groups() and run.scheduler == "bfq" else ""
    return [probe.replace("GROUP", group) for probe in wanted]


def events(run):
    more = EVENTS.get(run.scheduler, []) + EVENTS.get(run.kind, [])
    return [f"block/{event}" for event in BLOCK_EVENTS] + more


def prep(run):
    """What is done before the scheduler is chosen."""
    lines = [run.prep] if run.prep else []
    opened = set()
    for path in run.groups():
        above = "".join(f"{a}/" for a in path.split("/")[:-1])
        if above not in opened:
            opened.add(above)
            lines.append(f"echo +io > /sys/fs/cgroup/{above}cgroup.subtree_control")
        lines.append(f"grp {path}")
    for path, weight in run.weights.items():
        lines.append(f"echo {weight} > /sys/fs/cgroup/{path}/io.bfq.weight")
    return "; ".join(lines)


def go(run):
    lines = [f"put {path} '{value}'" for path, value in run.files]
    if not isinstance(run.jobs, dict):
        return f"fio /tmp/in/{run.name}.fio --output-format=json --output=$R/fio.json || echo FIO-FAIL"
    lines += [f"fiog {group} &" for group in run.jobs]
    lines += [f"marked {wait} '{path}' {name} '{value}'" for wait, path, name, value in run.during]
    return "\n".join([*lines, "wait"])


def guest_files(run):
    files = {
        "null": " ".join(f"{k}={v}" for k, v in run.null.items()),
        "set": "\n".join(f"echo {v} > $Q/{k}" for k, v in run.queue.items()) or ":",
        "prep": prep(run) or ":",
        "probes": "\n".join(probes(run)) + "\n",
        "events": "\n".join(events(run)) + "\n",
        "go": go(run),
    }
    if isinstance(run.jobs, dict):
        files.update({f"{group}.fio": text for group, text in run.jobs.items()})
    else:
        files["fio"] = run.jobs
    return {f"{run.name}.{name}": text for name, text in files.items()}


def pairs(text):
    return {k: v.strip() for k, v in (line.split("=", 1) for line in text.splitlines() if "=" in line)}


def description(run, left, trace):
    """What the run was recorded on, for `NAME.json`."""
    events = guest_trace.counts(trace)
    begin, end = map(float, left["elapsed"].split())
    before, after = pairs(left["queue"]), pairs(left["queue_after"])
    grouped = isinstance(run.jobs, dict)
    told = {
        "name": run.name,
        "kernel": guest_trace.kernel_name(),
        "vm": guest_trace.machine(run.cpus),
        "smp": run.cpus,
        "scheduler": run.scheduler,
        "null_blk_args": " ".join(f"{k}={v}" for k, v in run.null.items()),
        "null_blk_parameters": pairs(left["parameters"]),
        "queue_set": run.queue,
        "queue": before,
        "hctx_debugfs": left["tags"].split(),
        "fio_job": "\n".join(f"# {g}\n{text}" for g, text in run.jobs.items()) if grouped else run.jobs,
        "prep": prep(run),
    }
    if grouped:
        told["go"] = go(run)
        told["cgroups"] = run.weights or run.groups()
    if run.files:
        told["cgroup_files"] = [list(pair) for pair in run.files]
        told["cgroup_files_after"] = left["cg"].splitlines()
    told |= {
        "dev": left["dev"].strip().replace(":", ","),
        **events,
        "ring_buffer": guest_trace.ring_buffer(left["stats"]),
        "trace_clock": "mono",
        "timestamp_unit": "s with 9 fractional digits (ns)",
        "elapsed_s": round(end - begin, 2),
        "probes": probes(run),
        "lost_events": 0,
        "queue_changed_during_run": {k: [v, after.get(k)] for k, v in before.items() if after.get(k) != v},
        "preempt": "voluntary",
        "dispatch_calls": {
            "entry": sum(n for e, n in events["event_counts"].items() if e.endswith("_disp")),
            "return": sum(n for e, n in events["event_counts"].items() if e.endswith("_disp_ret")),
            "null": sum("_disp_ret: " in line and " rq=0x0 " in line for line in trace.splitlines()),
        },
    }
    return told


def record(runs, initrd, out):
    """Records runs of one number of CPUs in one guest."""
    files = {name: text for run in runs for name, text in guest_files(run).items()}
    files["main"] = "\n".join([guest_trace.TRACING, GUEST, *[f"one {r.name} {r.scheduler}" for r in runs]])
    left = guest_trace.boot(files, initrd, runs[0].cpus)
    for line in left.get("log", "").splitlines():
        if not line.startswith("grp "):
            print("guest:", line)
    for run in runs:
        mine = {n.split("/", 1)[1]: t for n, t in left.items() if n.startswith(run.name + "/")}
        try:
            trace = guest_trace.join(mine["trace.txt"], mine["trace.raw"], probes(run))
            told = description(run, mine, trace)
        except (KeyError, ValueError) as error:
            print(f"{run.name}: {error!r}")
            continue
        lost = [told["ring_buffer"].get(k, "0") for k in ("overrun", "commit overrun", "dropped events")]
        if any(n != "0" for n in lost):
            print(f"{run.name}: events were lost")
            continue
        guest_trace.write(pathlib.Path(out) / run.kind, run.name, trace, told)
        size = (pathlib.Path(out) / run.kind / f"{run.name}.trace.gz").stat().st_size
        print(f"{run.kind}/{run.name}: {told['events_total']} events, {size // 1024} KiB", flush=True)


def main():
    out, *names = sys.argv[1:]
    wanted = [r for r in RUNS if not names or any(fnmatch.fnmatch(f"{r.kind}/{r.name}", n) for n in names)]
    initrd = guest_trace.initramfs(pathlib.Path(out) / ".boot")
    for cpus in sorted({r.cpus for r in wanted}):
        same = [r for r in wanted if r.cpus == cpus]
        for at in range(0, len(same), 6):
            record(same[at : at + 6], initrd, out)


if __name__ == "__main__":
    main()
