"""The runs of the block layer that are recorded: one table.

A job is written on one line a section: `NAME: OPTION OPTION ...`; `ONE` stands for submitting
and reaping one by one.
"""

from dataclasses import dataclass, field

LIBAIO = (
    "filename=/dev/nullb0 direct=1 ioengine=libaio iodepth=64 iodepth_batch_submit=16"
    " iodepth_batch_complete_min=4 randrepeat=1 randseed=1 thread=1"
)
PSYNC = "filename=/dev/nullb0 direct=1 ioengine=psync randrepeat=1 randseed=1 thread=1"
FILES = "directory=/mnt randrepeat=1 randseed=1 thread=1 fallocate=none"
ONE = "iodepth_batch_submit=1 iodepth_batch_complete_min=1"
EXT4 = (
    "mkdir -p /mnt; mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 /dev/nullb0"
    " && mount -t ext4 /dev/nullb0 /mnt; for f in a b c; do dd if=/dev/zero of=/mnt/$f bs=1M"
    " count={mib} 2>/dev/null; done; sync; echo 3 > /proc/sys/vm/drop_caches; sleep 1; sync"
)
ROTATES = "echo 1 > /sys/block/nullb0/queue/rotational"


def job(*sections, base=LIBAIO):
    """A fio job file."""
    lines = ["[global]", *base.split()]
    for section in sections:
        name, options = section.split(":", 1)
        lines.append(f"[{name}]")
        lines += [o for word in options.split() for o in (ONE.split() if word == "ONE" else [word])]
    return "\n".join(lines) + "\n"


@dataclass
class Run:
    """One run. `jobs` is a fio job, or one for each control group by its path with dots."""

    name: str
    kind: str
    scheduler: str
    jobs: object
    null: dict = field(default_factory=dict)
    queue: dict = field(default_factory=dict)
    prep: str = ""
    # Paths of groups, and what is written to files of groups: before the jobs begin...
    files: list = field(default_factory=list)
    # ... and while they run: (seconds to wait, path of the group, file, value).
    during: list = field(default_factory=list)
    weights: dict = field(default_factory=dict)
    cpus: int = 1

    def groups(self):
        """All groups, each behind those that it is in."""
        if not isinstance(self.jobs, dict):
            return []
        paths = [g.replace(".", "/") for g in self.jobs if g != "root"]
        return sorted({p.rsplit("/", n)[0] for p in paths for n in range(p.count("/") + 1)})


RUNS = []


def run(name, kind, scheduler, jobs, depth=4, ns=2_000_000, gb=4, null=None, **more):
    """Adds a run to the table."""
    arguments = dict(
        queue_mode=2, irqmode=2, completion_nsec=ns, hw_queue_depth=depth, submit_queues=1,
        nr_devices=1, gb=gb,
    )
    arguments.update(null or {})
    RUNS.append(Run(f"{name}_d{depth}", kind, scheduler, jobs, arguments, **more))


def deep(scheduler):
    """The queue settings that most runs have."""
    return {
        "none": {},
        "mq-deadline": {"nr_requests": 128, "iosched/async_depth": 128},
    }.get(scheduler, {"nr_requests": 128})


# What there was before: recorded anew to see that the recorder does the same.
MODEL = "DEV ctrl=user model=linear rbps=80000000 rseqiops=2000 rrandiops=1800 wbps=80000000 wseqiops=2000 wrandiops=1800"
QOS = "DEV enable=1 ctrl=user rpct=90 rlat=10000 wpct=90 wlat=20000 min=50.00 max=150.00"


def cost(name, jobs, weights, model=MODEL, qos=QOS, scheduler="none", **more):
    files = [("io.cost.model", model), ("io.cost.qos", qos)]
    files += [(f"{path}/io.weight", f"default {weight}") for path, weight in weights.items()]
    run(name, "io.cost", scheduler, jobs, files=files, queue=deep(scheduler), **more)


def limit(name, jobs, limits, scheduler="none", ns=500_000, **more):
    files = [(f"{path}/io.max", f"DEV {value}") for path, value in limits]
    run(name, "io.max", scheduler, jobs, files=files, queue=deep(scheduler), ns=ns, **more)


def reader(ios, offset="0", bs="bsrange=4k-16k", depth=16, rw="randread", more="ONE"):
    return f"r: rw={rw} {bs} offset={offset} size=900m number_ios={ios} iodepth={depth} {more}"


def writer(ios, offset="0", bs="bsrange=4k-32k", depth=8, rw="randwrite", more=""):
    return f"w: rw={rw} {bs} offset={offset} size=900m number_ios={ios} iodepth={depth} {more}"


cost("c_two", {"a": job(reader(700)), "b": job(reader(900, "1g"))}, {"a": 100, "b": 300})
limit(
    "t_bps",
    {"a": job(reader(300, bs="bsrange=4k-64k", depth=8)), "b": job(writer(300, "1g"))},
    [("a", "rbps=8000000"), ("b", "wbps=4000000 wiops=500")],
)


def wbt(name, lat, jobs=None, scheduler="none", ns=2_000_000, prep=EXT4.format(mib=32), **more):
    queue = {**deep(scheduler), "wbt_lat_usec": lat}
    jobs = jobs or job(
        "bw: ioengine=psync rw=randwrite bs=16k filename=a size=32m fsync=100 number_ios=600",
        "bs: ioengine=psync rw=write bs=64k filename=b size=24m end_fsync=1",
        "dr: ioengine=libaio direct=1 iodepth=4 rw=randread bs=4k-16k filename=c size=32m number_ios=400 thinktime=0",
        base=FILES,
    )
    null = {"memory_backed": 1, **more.pop("null", {})}
    run(name, "wbt", scheduler, jobs, ns=ns, gb=1, null=null, prep=prep, queue=queue, **more)


wbt("b_lat3000", 3000)
ZONED = LIBAIO + " zonemode=zbd max_open_zones=6"


def zoned(name, scheduler, jobs, size=16, null=None, ns=2_000_000, **more):
    null = dict(zoned=1, zone_size=size, zone_nr_conv=0, **(null or {}))
    run(name, "zoned", scheduler, jobs, ns=ns, gb=1, null=null, queue=deep(scheduler), **more)


zoned(
    "z_two_writers",
    "mq-deadline",
    job(
        "a: rw=write bsrange=4k-64k offset=0 size=64m number_ios=450 iodepth=16",
        "b: rw=randwrite bs=16k offset=128m size=128m number_ios=450 iodepth=16",
        "r: rw=randread bs=16k offset=512m size=128m number_ios=300 read_beyond_wp=1 iodepth=8",
        base=ZONED,
    ),
)


def disk(name, jobs, scheduler="bfq", rotates=True, low=None, queue=None, prep="", **more):
    queue = {**deep(scheduler), **(queue or {})}
    if low == 0:
        queue["iosched/low_latency"] = 0
    prep = "; ".join([p for p in [ROTATES if rotates else "", prep] if p]) or ":"
    run(name, scheduler, scheduler, jobs, queue=queue, prep=prep, **more)


SEQ = "rw=read bs=16k size=1g iodepth=2 ONE"
disk(
    "r_idle20_nolowlat",
    job(
        f"a: {SEQ} offset=0 number_ios=500",
        f"b: {SEQ} offset=1g number_ios=500",
        "w: rw=randwrite bs=16k offset=2g size=1g number_ios=350 iodepth=24",
    ),
    low=0,
    queue={"iosched/slice_idle": 20},
)


def multi(name, scheduler, jobs, queues=2, depth=4, **more):
    null = {"submit_queues": queues}
    run(f"{scheduler}_{name}_q{queues}", "multi-queue", scheduler, jobs, depth=depth, null=null,
        queue=deep(scheduler), cpus=2, **more)


def on_cpu(cpu, name, options):
    return f"{name}: {options} cpus_allowed={cpu}"


multi(
    "randrw",
    "mq-deadline",
    job(*[f"m{i}: rw=randrw bsrange=4k-64k offset={i * 900}m size=900m number_ios=700"
          f" cpus_allowed={i} iodepth=32" for i in range(2)]),
)

# New ones: the same kinds with other parameters. io.cost first.
SLOW = "DEV enable=1 ctrl=user rpct=0 rlat=10000 wpct=0 wlat=20000 min=40.00 max=40.00"
FIXED = "DEV enable=1 ctrl=user rpct=0 rlat=10000 wpct=0 wlat=20000 min=100.00 max=100.00"
TIGHT = "DEV enable=1 ctrl=user rpct=95 rlat=3000 wpct=95 wlat=4000 min=25.00 max=200.00"


def two(a, b, more=None):
    return {"a": job(a), "b": job(b), **(more or {})}


cost("c_equal", two(reader(500), reader(500, "1g")), {"a": 100, "b": 100})
cost("c_skew", two(reader(250), reader(900, "1g")), {"a": 50, "b": 800})
cost("c_fixed", two(reader(450), reader(700, "1g")), {"a": 100, "b": 200}, qos=FIXED)
cost("c_slow", two(reader(250), reader(450, "1g")), {"a": 100, "b": 200}, qos=SLOW)
cost("c_tight", two(reader(500), reader(500, "1g")), {"a": 200, "b": 100}, qos=TIGHT)
cost("c_three", {"a": job(reader(300)), "b": job(reader(450, "1g")), "c": job(reader(600, "2g"))},
     {"a": 100, "b": 200, "c": 400})
cost("c_nested", {"a.x": job(reader(300)), "a.y": job(reader(500, "1g")), "b": job(reader(400, "2g"))},
     {"a": 300, "a/x": 100, "a/y": 200, "b": 100})
cost("c_donate", two(reader(250, more="ONE thinktime=4000", depth=1), reader(800, "1g", depth=32)),
     {"a": 500, "b": 100})
cost("c_donate_nested",
     {"a.x": job(reader(200, more="ONE thinktime=3000", depth=1)), "a.y": job(reader(400, "1g")),
      "b": job(reader(500, "2g", depth=32))},
     {"a": 400, "a/x": 300, "a/y": 100, "b": 100})
cost("c_idle", two(reader(700), reader(400, "1g", more="ONE startdelay=400ms")), {"a": 100, "b": 300})
cost("c_burst", two(reader(700), reader(300, "1g", more="ONE thinktime=60000 thinktime_blocks=40")),
     {"a": 100, "b": 300})
cost("c_write", two(writer(500, bs="bsrange=4k-16k", depth=16, more="ONE"), reader(600, "1g")),
     {"a": 100, "b": 200})
cost("c_writes", two(writer(500, depth=32), writer(700, "1g", depth=32)), {"a": 100, "b": 300})
cost("c_seq", two(reader(500, bs="bs=16k", rw="read", depth=8), reader(600, "1g", bs="bs=16k", rw="read", depth=8)),
     {"a": 100, "b": 200})
cost("c_seqw_merge", two(writer(900, rw="write", bs="bs=4k", depth=32), reader(400, "1g")), {"a": 100, "b": 100})
cost("c_root", {"root": job(reader(400)), "a": job(reader(500, "1g"))}, {"a": 100})
cost("c_two", two(reader(400, depth=4), reader(500, "1g", depth=4)), {"a": 100, "b": 300}, depth=1)
cost("c_two", two(reader(900, depth=32), reader(900, "1g", depth=32)), {"a": 100, "b": 300}, depth=32, ns=8_000_000)
cost("c_big", two(reader(300, bs="bsrange=32k-64k"), reader(500, "1g")), {"a": 100, "b": 100})
cost("c_fast_model", two(reader(600), reader(800, "1g")), {"a": 100, "b": 300},
     model="DEV ctrl=user model=linear rbps=400000000 rseqiops=20000 rrandiops=9000 wbps=400000000 wseqiops=20000 wrandiops=9000")
cost("c_weight_written", two(reader(700), reader(800, "1g")), {"a": 100, "b": 100},
     during=[(0.3, "a", "io.weight", "default 600"), (0.3, "b", "io.weight", "default 900")])
cost("c_enabled_late", two(reader(700), reader(800, "1g")), {"a": 100, "b": 300},
     qos=QOS.replace("enable=1", "enable=0"),
     during=[(0.2, "", "io.cost.qos", QOS)])
cost("c_bfq_below", two(reader(400), reader(500, "1g")), {"a": 100, "b": 300}, scheduler="mq-deadline")

limit("t_riops", two(reader(250, depth=8), reader(400, "1g", depth=8)), [("a", "riops=200"), ("b", "riops=450")])
limit("t_wiops", two(writer(250, depth=8), reader(500, "1g", depth=8)), [("a", "wiops=150")])
limit("t_both",
      two("m: rw=randrw bsrange=4k-32k offset=0 size=900m number_ios=400 iodepth=16",
          "m: rw=randrw bsrange=4k-32k offset=1g size=900m number_ios=400 iodepth=16 ONE"),
      [("a", "rbps=3000000 wbps=2000000"), ("b", "rbps=4000000 wbps=6000000 riops=300 wiops=400")])
limit("t_nested",
      {"a.x": job(reader(250, depth=8)), "a.y": job(reader(300, "1g", depth=8)), "b": job(writer(250, "2g"))},
      [("a", "rbps=5000000"), ("a/x", "riops=200"), ("b", "wbps=3000000")])
limit("t_nested_iops",
      {"a.x": job(reader(250, depth=8)), "a.y": job(writer(250, "1g", depth=8)), "a.z": job(reader(200, "2g"))},
      [("a", "riops=350 wiops=300"), ("a/x", "rbps=1000000"), ("a/z", "riops=120")])
limit("t_changed", two(reader(500, depth=8), writer(400, "1g")), [("a", "rbps=3000000"), ("b", "wiops=200")],
      during=[(0.4, "a", "io.max", "DEV rbps=12000000"), (0.2, "b", "io.max", "DEV wiops=max wbps=3000000")])
limit("t_removed", two(reader(500, depth=8), writer(400, "1g")), [("a", "riops=250"), ("b", "wbps=2000000")],
      during=[(0.4, "a", "io.max", "DEV riops=max"), (0.3, "b", "io.max", "DEV wbps=max")])
limit("t_split", two(reader(120, bs="bsrange=64k-512k", depth=4), writer(150, "1g", bs="bsrange=64k-256k", depth=4)),
      [("a", "rbps=20000000 riops=300"), ("b", "wbps=12000000 wiops=250")])
limit("t_tiny", two(reader(60, bs="bs=64k", depth=4), writer(60, "1g", bs="bs=4k", depth=2)),
      [("a", "rbps=1000000"), ("b", "wiops=25")])
for scheduler in ["mq-deadline", "bfq", "kyber"]:
    limit(f"t_{scheduler}",
          two("m: rw=randrw bsrange=4k-32k offset=0 size=900m number_ios=350 iodepth=16",
              reader(400, "1g", depth=8)),
          [("a", "rbps=3000000 wiops=250"), ("b", "riops=400")], scheduler=scheduler, ns=2_000_000)
limit("t_seqw", two(writer(700, rw="write", bs="bs=4k", depth=32), reader(300, "1g", depth=8)),
      [("a", "wbps=2000000"), ("b", "riops=300")])
limit("t_root", {"root": job(reader(400, depth=8)), "a": job(writer(250, "1g"))}, [("a", "wbps=2500000")])
limit("t_psync", {"a": job("w: rw=randwrite bsrange=4k-16k offset=0 size=900m number_ios=200 fsync=8", base=PSYNC),
                  "b": job("r: rw=randread bsrange=4k-16k offset=1g size=900m number_ios=250", base=PSYNC)},
      [("a", "wiops=200"), ("b", "rbps=2500000")])
limit("t_bps_deep", two(reader(500, depth=64), writer(500, "1g", depth=64)), [("a", "rbps=5000000"), ("b", "wbps=9000000")],
      depth=32)

wbt("b_lat1000", 1000)
wbt("b_lat20000", 20000, depth=16)
wbt("b_lat5000", 5000, scheduler="mq-deadline")
wbt("b_lat5000_kyber", 5000, scheduler="kyber", depth=8)
wbt("b_lat2500_mq", 2500, scheduler="mq-deadline", depth=2)
wbt("b_lat2500_kyber", 2500, scheduler="kyber", ns=3_000_000)
wbt("b_lat4000", 4000, depth=32, ns=4_000_000)
wbt("b_lat6000_nr16", 6000, scheduler="mq-deadline", depth=8)
wbt("b_osync", 3000, job(
    "ow: ioengine=psync rw=randwrite bs=8k filename=a size=32m sync=1 number_ios=200",
    "bs: ioengine=psync rw=write bs=64k filename=b size=24m end_fsync=1",
    "dr: ioengine=libaio direct=1 iodepth=4 rw=randread bs=4k-16k filename=c size=32m number_ios=400",
    base=FILES))
wbt("b_writers", 2000, job(
    *[f"w{i}: ioengine=psync rw=randwrite bs=16k filename={f} size=32m fsync=50 number_ios=400" for i, f in enumerate("ab")],
    "dr: ioengine=psync direct=1 rw=randread bs=4k filename=c size=32m number_ios=300", base=FILES))
wbt("b_wcache", 4000, null={"cache_size": 64}, depth=8)
wbt("b_trim", 3000, job(
    "w: ioengine=libaio rw=randwrite bs=16k direct=1 iodepth=8 offset=0 size=200m number_ios=400 buffered=0",
    "t: ioengine=libaio rw=randtrim bs=64k direct=1 iodepth=8 offset=400m size=200m number_ios=300",
    "bw: ioengine=psync direct=0 rw=randwrite bs=16k offset=600m size=100m number_ios=500 fsync=100",
    "r: ioengine=libaio direct=1 iodepth=4 rw=randread bs=4k-16k offset=200m size=200m number_ios=300",
    base="filename=/dev/nullb0 randrepeat=1 randseed=1 thread=1"), prep="", null={"discard": 1})

for scheduler in ["mq-deadline", "none", "bfq", "kyber"]:
    zoned(f"z_mixed_{scheduler}", scheduler, job(
        "a: rw=write bsrange=4k-64k offset=0 size=64m number_ios=300 iodepth=16",
        "b: rw=randwrite bs=8k offset=128m size=128m number_ios=350 iodepth=24",
        "r: rw=randread bs=16k offset=512m size=128m number_ios=250 read_beyond_wp=1 iodepth=8",
        base=ZONED))
zoned("z_full", "mq-deadline", job("a: rw=randwrite bs=64k offset=0 size=64m number_ios=500 iodepth=16", base=ZONED), size=4)
zoned("z_full_none", "none", job("a: rw=randwrite bs=64k offset=0 size=32m number_ios=600 iodepth=16", base=ZONED), size=2)
zoned("z_reset", "mq-deadline", job(
    "a: rw=write bs=64k offset=0 size=8m io_size=24m iodepth=8",
    "r: rw=randread bs=8k offset=512m size=128m number_ios=250 read_beyond_wp=1 iodepth=4", base=ZONED), size=4)
zoned("z_open2", "none", job(
    "a: rw=randwrite bsrange=4k-32k offset=0 size=256m number_ios=500 iodepth=16",
    base=LIBAIO + " zonemode=zbd max_open_zones=2"), null={"zone_max_open": 2})
zoned("z_active", "mq-deadline", job(
    "a: rw=randwrite bsrange=4k-32k offset=0 size=256m number_ios=400 iodepth=16",
    "r: rw=randread bs=8k offset=512m size=128m number_ios=250 read_beyond_wp=1 iodepth=4",
    base=LIBAIO + " zonemode=zbd max_open_zones=3"), null={"zone_max_open": 3, "zone_max_active": 4}, depth=2)
zoned("z_capacity", "none", job(
    "a: rw=write bs=32k offset=0 size=64m number_ios=500 iodepth=8", base=ZONED), size=4, null={"zone_capacity": 3})
zoned("z_conv", "mq-deadline", job(
    "c: rw=randwrite bsrange=4k-32k offset=0 size=32m number_ios=300 iodepth=16",
    "a: rw=write bsrange=4k-32k offset=64m size=64m number_ios=400 iodepth=16", base=ZONED), size=16, )
zoned("z_psync", "none", job(
    "a: rw=write bsrange=4k-64k offset=0 size=64m number_ios=250",
    "b: rw=write bsrange=4k-64k offset=128m size=64m number_ios=250 fsync=16",
    "r: rw=randread bs=16k offset=512m size=128m number_ios=250 read_beyond_wp=1",
    base=PSYNC + " zonemode=zbd max_open_zones=6"))
zoned("z_seqmerge", "none", job(
    "a: rw=write bs=4k offset=0 size=64m number_ios=900 iodepth=64", base=ZONED), depth=8)
zoned("z_big", "mq-deadline", job(
    "a: rw=write bs=256k offset=0 size=64m number_ios=200 iodepth=16",
    "b: rw=write bs=128k offset=128m size=64m number_ios=200 iodepth=8", base=ZONED), depth=8)

HALVES = [f"m{i}: rw=randrw bsrange=4k-64k offset={i * 900}m size=900m number_ios=500 cpus_allowed={i} iodepth=32"
          for i in range(2)]
for scheduler in ["none", "mq-deadline", "kyber", "bfq"]:
    multi("seqwrite_read", scheduler, job(
        "s: rw=write bs=4k offset=0 size=900m number_ios=900 cpus_allowed=0 iodepth=32",
        "r: rw=randread bs=8k offset=1g size=900m number_ios=500 cpus_allowed=1 iodepth=16"), depth=8)
    multi("prio", scheduler, job(
        "p0: rw=randrw bsrange=4k-32k offset=0g size=900m number_ios=350 cpus_allowed=0 iodepth=24 prioclass=1 prio=3",
        "p1: rw=randrw bsrange=4k-32k offset=1g size=900m number_ios=350 cpus_allowed=1 iodepth=24 prioclass=2 prio=3",
        "p2: rw=randrw bsrange=4k-32k offset=2g size=900m number_ios=350 cpus_allowed=0 iodepth=24 prioclass=3"),
          queues=4, depth=2)
    multi("sync", scheduler, job(
        *[f"s{i}: rw=randwrite bsrange=4k-16k offset={i * 900}m size=900m number_ios=250 cpus_allowed={i % 2} sync=1"
          for i in range(2)],
        "r: rw=randread bsrange=4k-16k offset=2g size=900m number_ios=250 cpus_allowed=1", base=PSYNC))
    multi("same", scheduler, job(
        *[f"m{i}: rw=randread bs=4k offset={i}g size=900m number_ios=500 cpus_allowed=0-1 iodepth=16" for i in range(2)]),
          depth=2)
multi("randrw", "none", job(*HALVES), queues=4, depth=8)
multi("randrw", "kyber", job(*HALVES), queues=4, depth=2)
multi("randrw", "bfq", job(*HALVES), queues=4, depth=2)
multi("randrw", "kyber", job(*HALVES))
multi("randrw", "bfq", job(*HALVES))
multi("randrw", "none", job(*HALVES))

disk("r_start2", job(
    f"a: {SEQ} offset=0 number_ios=500",
    "w: rw=randwrite bsrange=4k-32k offset=1g size=1g number_ios=400 iodepth=16",
    "p: rw=randread bsrange=4k-16k offset=2g size=200m number_ios=150 startdelay=300ms iodepth=1 ONE",
    "q: rw=randread bs=8k offset=3g size=200m number_ios=120 startdelay=700ms iodepth=2 ONE"))
disk("r_softrt2", job(
    f"a: {SEQ} offset=0 number_ios=500",
    "v0: rw=read bs=16k offset=2000m size=200m number_ios=80 thinktime=15000 iodepth=1 ONE",
    "v1: rw=read bs=4k offset=2300m size=200m number_ios=80 thinktime=40000 iodepth=1 ONE",
    "w: rw=randwrite bs=8k offset=1g size=900m number_ios=300 iodepth=8"))
disk("r_burst20", job(
    f"a: {SEQ} offset=0 number_ios=400",
    "p: rw=randread bsrange=4k-16k offset=1g size=100m number_ios=40 numjobs=20 offset_increment=120m startdelay=200ms iodepth=1 ONE"), depth=2)
disk("r_burst8", job(
    f"a: {SEQ} offset=0 number_ios=400",
    "p: rw=read bs=16k offset=1g size=100m number_ios=60 numjobs=8 offset_increment=120m startdelay=200ms iodepth=2 ONE"))
disk("r_coop3", job(
    *[f"e{i}: rw=read:32k bs=16k offset={16 * i}k size=1g number_ios=300 iodepth=1 ONE" for i in range(3)],
    f"z: {SEQ} offset=2g number_ios=300"))
disk("r_coop2", job(
    *[f"e{i}: rw=read:16k bs=16k offset={16 * i}k size=1g number_ios=350 iodepth=2 ONE" for i in range(2)],
    *[f"f{i}: rw=read:16k bs=16k offset={1024 * 1024 + 16 * i}k size=1g number_ios=350 iodepth=1 ONE" for i in range(2)]), low=0)
disk("g_deep", {"a.x.p": job(f"s: {SEQ} offset=0 number_ios=250"), "a.x.q": job(f"s: {SEQ} offset=1g number_ios=250"),
                "a.y": job(reader(300, "2g", depth=4)), "b": job(f"s: {SEQ} offset=3g number_ios=300")},
     weights={"a": 200, "a/x": 300, "a/y": 100, "a/x/p": 100, "a/x/q": 400, "b": 100}, low=0)
disk("g_lowlat", {"a": job(f"s: {SEQ} offset=0 number_ios=350"), "b": job(reader(300, "1g", depth=4)),
                  "c": job("w: rw=randwrite bs=16k offset=2g size=900m number_ios=300 iodepth=16")},
     weights={"a": 100, "b": 200, "c": 50})
disk("g_lowlat_start", {"a": job(f"s: {SEQ} offset=0 number_ios=400"),
                        "b": job("p: rw=randread bs=8k offset=1g size=900m number_ios=200 iodepth=1 startdelay=400ms ONE"),
                        "root": job("w: rw=randwrite bs=16k offset=2g size=900m number_ios=250 iodepth=16")},
     weights={"a": 100, "b": 200})
disk("g_weights_deep", {"a.x": job(f"s: {SEQ} offset=0 number_ios=350"), "a.y": job(reader(350, "1g", depth=4)),
                        "b": job(f"s: {SEQ} offset=2g number_ios=350")},
     weights={"a": 100, "a/x": 100, "a/y": 100, "b": 300}, low=0,
     during=[(0.3, "a", "io.bfq.weight", "500"), (0.2, "a/y", "io.bfq.weight", "700")])
disk("g_flash", {"a": job(reader(400, depth=16)), "b": job(writer(400, "1g", depth=16)), "c": job(reader(300, "2g", depth=1))},
     weights={"a": 100, "b": 100, "c": 500}, rotates=False, low=0, depth=8)
disk("g_two_jobs", {"a": job(f"s: {SEQ} offset=0 number_ios=250", reader(250, "512m", depth=4)),
                    "b": job(f"s: {SEQ} offset=1g number_ios=250", "w: rw=randwrite bs=16k offset=2g size=900m number_ios=250 iodepth=8")},
     weights={"a": 300, "b": 100}, low=0)
disk("r_ext4_fsync", job(
    "bufrand: ioengine=psync rw=randwrite bsrange=4k-16k filename=a size=48m fsync=8 number_ios=300",
    "create: ioengine=psync rw=write bs=16k nrfiles=25 filesize=32k fsync_on_close=1",
    "dread: ioengine=libaio direct=1 iodepth=8 rw=randread bsrange=4k-32k filename=c size=48m number_ios=400", base=FILES),
     null={"memory_backed": 1}, gb=1, prep=EXT4.format(mib=48))
disk("n_mixed", job(
    f"a: {SEQ} offset=0 number_ios=350",
    "r: rw=randread bs=4k offset=1g size=900m number_ios=400 iodepth=4 ONE",
    "w: rw=randwrite bs=16k offset=2g size=900m number_ios=350 iodepth=16"), rotates=False)
disk("n_start", job(
    "a: rw=randread bs=16k offset=0 size=1g number_ios=600 iodepth=8 ONE",
    "p: rw=randread bsrange=4k-16k offset=2g size=200m number_ios=150 startdelay=300ms iodepth=1 ONE",
    "v: rw=read bs=8k offset=3g size=200m number_ios=60 thinktime=20000 iodepth=1 ONE"), rotates=False)
disk("n_psync", job(
    "s: rw=randwrite bsrange=4k-16k offset=0 size=900m number_ios=250 fsync=4",
    "o: rw=randwrite bs=8k offset=1g size=900m number_ios=250 sync=1",
    "r: rw=randread bs=8k offset=2g size=900m number_ios=300", base=PSYNC), rotates=False)
disk("r_wcache", job(
    "s: rw=randwrite bsrange=4k-16k offset=0 size=200m number_ios=200 fsync=4",
    "o: rw=randwrite bs=8k offset=200m size=200m number_ios=200 sync=1",
    "r: rw=read bs=16k offset=400m size=200m number_ios=400", base=PSYNC),
     null={"memory_backed": 1, "cache_size": 64}, gb=1)
disk("r_deep", job(
    f"a: {SEQ} offset=0 number_ios=400", f"b: {SEQ} offset=1g number_ios=400",
    "r: rw=randread bs=4k offset=2g size=900m number_ios=300 iodepth=32"), depth=16, ns=4_000_000)
disk("r_trim", job(
    f"a: {SEQ} offset=0 number_ios=300",
    "t: rw=randtrim bs=64k offset=1g size=900m number_ios=300 iodepth=8",
    "w: rw=randwrite bs=16k offset=2g size=900m number_ios=300 iodepth=8"), null={"discard": 1}, gb=4)
disk("r_prio", job(*[f"c{i}: rw=randread bsrange=4k-32k offset={700 * i}m size=650m number_ios=250 prioclass={1 + i // 2} prio={2 * i} iodepth=8"
                     for i in range(4)]))
disk("r_idle2", job(f"a: {SEQ} offset=0 number_ios=350", f"b: {SEQ} offset=1g number_ios=350",
                    "w: rw=randwrite bs=16k offset=2g size=1g number_ios=300 iodepth=24"),
     queue={"iosched/slice_idle_us": 2000, "iosched/timeout_sync": 60})

MIX = "m: rw=randrw bsrange=4k-64k offset=0 size=2g number_ios=900"
SEQW = "s: rw=write bs=4k offset=3g size=400m number_ios=900"
SYNCS = job("o: rw=randrw sync=1 bsrange=4k-32k offset=0 size=200m number_ios=500",
            "f: rw=randrw fsync=8 bsrange=4k-32k offset=300m size=200m number_ios=500")
for scheduler, tunings in {
    "mq-deadline": {
        "fb4ws1": {"iosched/fifo_batch": 4, "iosched/writes_starved": 1},
        "expire": {"iosched/read_expire": 20, "iosched/write_expire": 100, "iosched/fifo_batch": 8},
        "async2": {"iosched/async_depth": 2},
        "nofront": {"iosched/front_merges": 0},
        "aging": {"iosched/prio_aging_expire": 50},
    },
    "kyber": {
        "read500": {"iosched/read_lat_nsec": 500_000, "iosched/write_lat_nsec": 3_000_000},
        "loose": {"iosched/read_lat_nsec": 20_000_000, "iosched/write_lat_nsec": 80_000_000},
    },
}.items():
    for name, tuning in tunings.items():
        more = [f"p{i}: rw=randread bs=8k offset={i}g size=900m number_ios=200 iodepth=8 prioclass={i}" for i in (1, 3)]
        disk(f"v_{name}", job(MIX, SEQW, *more), scheduler=scheduler, rotates=False, queue=tuning)
    disk("v_wcache", SYNCS, scheduler=scheduler, rotates=False, gb=1, null={"memory_backed": 1, "cache_size": 64})
    disk("v_trim", job(MIX, "t: rw=randtrim bs=64k offset=2g size=900m number_ios=400 iodepth=16"), scheduler=scheduler,
         rotates=False, null={"discard": 1})
    disk("v_deep", job(MIX, SEQW), scheduler=scheduler, rotates=False, depth=32, ns=8_000_000)
    disk("v_psync", job("w: rw=randwrite bsrange=4k-16k offset=0 size=900m number_ios=400 fsync=8",
                        "r: rw=randread bs=8k offset=1g size=900m number_ios=400", base=PSYNC),
         scheduler=scheduler, rotates=False, depth=1)
