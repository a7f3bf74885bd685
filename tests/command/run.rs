//! `blklab run`: prints like fio.

use crate::support::{MIXED, Place};

#[test]
fn json_has_the_fields_that_fio_scripts_read() {
    let place = Place::new();
    place.file("mixed.fio", MIXED);
    let args = ["run", "mixed.fio", "--scheduler", "mq-deadline"];
    let json = place.json(&args);
    let job = &json["jobs"][0];
    assert_eq!(job["jobname"], "mixed");
    let ios = |dir: &str| job[dir]["total_ios"].as_u64().expect("a count");
    assert_eq!(ios("read") + ios("write"), 4000);
    let share = ios("read") as f64 / 4000.0;
    assert!((share - 0.7).abs() < 0.03, "rwmixread=70 gave {share}");
    for path in ["iops", "bw", "runtime"] {
        assert!(
            job["read"][path].as_f64().is_some_and(|v| v > 0.0),
            "{path}"
        );
    }
    assert!(job["read"]["clat_ns"]["percentile"]["99.000000"].as_u64() > Some(0));
    assert_eq!(json["blklab"]["scheduler"], "mq-deadline");
}

/// What the scheduler counts and what its queue counts are of the same time:
/// a ramp is left out of both.
#[test]
fn a_ramp_is_in_no_count() {
    let place = Place::new();
    let job = "[job]\nfilename=/dev/a\ndirect=1\nrw=randread\nbs=4k\nioengine=libaio\n\
               iodepth=8\ntime_based\nruntime=20ms\nramp_time=100ms\nsize=1g\n";
    place.file("ramp.fio", job);
    let args = ["run", "ramp.fio", "--scheduler", "mq-deadline"];
    let json = place.json(&args);
    let disk = &json["blklab"]["disks"][0];
    let served = disk["queue"]["ios"]["read"].as_u64().expect("reads");
    let dispatched = disk["scheduler"]["dispatched"].as_u64().expect("a count");
    // Those in the drive at either end are in one of the two.
    assert!(
        served > 0 && served.abs_diff(dispatched) <= 8,
        "{served} served, {dispatched} dispatched"
    );
}

/// A drive that is written to a little collects a little: a reader hardly
/// notices, in a short run as in a long one.
#[test]
fn few_writes_cost_a_reader_little() {
    let iops = |writer: &str| {
        let place = Place::new();
        let job = format!(
            "[global]\nfilename=/dev/a\ndirect=1\nbs=4k\nioengine=io_uring\ntime_based\n\
             runtime=100ms\nramp_time=50ms\n[r]\nrw=randread\n{writer}"
        );
        place.file("few.fio", &job);
        let json = place.json(&["run", "few.fio", "--drive", "980pro-1tb"]);
        json["jobs"][0]["read"]["iops"].as_f64().expect("IOPS")
    };
    let alone = iops("");
    let beside = iops("[w]\nrw=randwrite\niodepth=8\nrate_iops=200\n");
    assert!(beside > 0.98 * alone, "{alone} alone, {beside} beside");
}

/// A drive that maps blocks can be had as it is after long overwriting, and goes on.
#[test]
fn a_card_with_logs_works_when_it_is_old() {
    let place = Place::new();
    let job = "[w]\nfilename=/dev/a\ndirect=1\nrw=randwrite\nbs=16k\nsize=64m\nnumber_ios=20\n";
    place.file("w.fio", job);
    let run = |state: &str| {
        place.json(&[
            "run",
            "w.fio",
            "--drive",
            "sd-card-hybrid",
            "--state",
            state,
        ])
    };
    let mean_ns = |state: &str| {
        let write = run(state)["jobs"][0]["write"].clone();
        assert_eq!(write["total_ios"], 20, "{state}");
        write["lat_ns"]["mean"].as_f64().expect("a mean")
    };
    // The logs of the old one are full: nearly every write needs a merge.
    assert!(mean_ns("aged") > 5.0 * mean_ns("filled"));
}

/// Where superblocks are collected, all dies begin together: the host does not
/// wait for the first one alone.
#[test]
fn collection_begins_without_a_standstill() {
    let place = Place::new();
    let job = "[mix]\nfilename=/dev/a\ndirect=1\nbs=4k\nioengine=io_uring\niodepth=128\n\
               norandommap\nrw=randrw\ntime_based\nruntime=600ms\n";
    place.file("mix.fio", job);
    let args = [
        "run",
        "mix.fio",
        "--drive",
        "980pro-1tb",
        "--machine",
        "xeon-10core",
    ];
    let json = place.json(&args);
    let device = &json["blklab"]["disks"][0]["device"];
    assert!(device["collection"]["sectors_moved"].as_u64() > Some(0));
    let longest = json["jobs"][0]["write"]["clat_ns"]["max"].as_u64();
    assert!(longest < Some(60_000_000), "{longest:?} ns");
}

/// A write that is to be on the medium, on a drive without FUA, is data and a
/// flush. Schedulers that wait for what is in the drive do not wait for the
/// flush, which waits for other writes' data.
#[test]
fn synchronous_writes_beside_readers_come_to_an_end() {
    let place = Place::new();
    let job = "[global]\nfilename=/dev/a\ndirect=1\nbs=4k\nioengine=libaio\niodepth=8\n\
               time_based\nruntime=500ms\n[r]\nrw=randread\n[w]\nrw=randwrite\nsync=1\n";
    place.file("sync.fio", job);
    let names: Vec<&str> = (blklab_elevator::all().iter())
        .map(|kind| kind.name)
        .collect();
    let schedulers = names.join(",");
    let args = [
        "compare",
        "sync.fio",
        "--drive",
        "hdd-7200",
        "--repeats",
        "1",
        "--schedulers",
        &schedulers,
    ];
    place.blklab(&args).ok();
}

/// fio's depths are shares of the I/Os: together they are all of them, also
/// where a call into the kernel takes time.
#[test]
fn depths_are_counted_once() {
    let place = Place::new();
    let job = "[job]\nfilename=/dev/a\ndirect=1\nrw=randread\nbs=4k\nioengine=libaio\n\
               iodepth=16\nnumber_ios=500\nsize=1g\n";
    place.file("depth.fio", job);
    let args = ["run", "depth.fio", "--machine", "xeon-10core"];
    let json = place.json(&args);
    let levels = json["jobs"][0]["iodepth_level"]
        .as_object()
        .expect("levels");
    let sum: f64 = levels.values().filter_map(serde_json::Value::as_f64).sum();
    assert!((sum - 100.0).abs() < 1.0, "{levels:?}");
}

/// A plain call costs the kernel least, and libaio's events come by a call of
/// their own, which io_uring's do not.
#[test]
fn engines_cost_what_they_do() {
    let place = Place::new();
    let system_ns = |engine: &str, depth: u32| {
        let job = format!(
            "[job]\nfilename=/dev/a\ndirect=1\nrw=randread\nbs=4k\nioengine={engine}\n\
             iodepth={depth}\nnumber_ios=2000\nsize=1g\n"
        );
        place.file("engine.fio", &job);
        let json = place.json(&["run", "engine.fio", "--machine", "xeon-10core"]);
        let job = &json["jobs"][0];
        let percent = job["sys_cpu"].as_f64().expect("a share");
        percent / job["read"]["iops"].as_f64().expect("IOPS")
    };
    assert!(system_ns("psync", 1) < system_ns("io_uring", 1));
    assert!(system_ns("io_uring", 1) < system_ns("libaio", 1));
    assert!(system_ns("io_uring", 32) < system_ns("libaio", 32));
}

/// json+ has every CPU's time as mpstat would show it: its slices are the run.
#[test]
fn cpus_are_told_over_time() {
    let place = Place::new();
    let job = "[job]\nfilename=/dev/a\ndirect=1\nrw=randread\nbs=4k\nioengine=io_uring\n\
               iodepth=8\nnumber_ios=2000\nsize=1g\n";
    place.file("cpus.fio", job);
    let args = ["run", "cpus.fio", "--machine", "xeon-10core"];
    let json = place.json(&args);
    assert!(json["blklab"].get("cpu_timeline").is_none(), "it is long");
    let plus = [&args[..], &["--output-format", "json+"]].concat();
    let json = place.blklab(&plus).ok().json();
    let slices = json["blklab"]["cpu_timeline"].as_array().expect("slices");
    assert!(slices.len() > 10, "{} slices", slices.len());
    let sum = |cpu: usize, part: &str| -> u64 {
        let parts = slices.iter().map(|slice| &slice["cpus"][cpu][part]);
        parts.map(|ns| ns.as_u64().expect("a time")).sum()
    };
    for part in ["user_ns", "system_ns", "irq_ns", "iowait_ns", "idle_ns"] {
        let whole = &json["blklab"]["cpus"][0][part];
        assert_eq!(whole.as_u64(), Some(sum(0, part)), "{part}");
    }
    assert!(sum(0, "user_ns") > 0);
}

/// Processes that wait for one CPU cost it a switch each, not only the first.
#[test]
fn who_shares_a_cpu_pays_for_every_switch() {
    let place = Place::new();
    let machine = "description = \"dear switches\"\n[cpu]\ncount = 1\n\
                   [costs]\ncontext_switch_ns = 10000\n";
    place.file("m.toml", machine);
    let job = "[job]\nfilename=/dev/a\ndirect=1\nrw=randread\nbs=4k\nioengine=psync\n\
               time_based\nruntime=20ms\nsize=1g\nnumjobs=4\ngroup_reporting\n";
    place.file("share.fio", job);
    let args = ["run", "share.fio", "--machine", "m.toml", "--drive", "null"];
    let json = place.json(&args);
    let iops = json["jobs"][0]["read"]["iops"].as_f64().expect("IOPS");
    assert!((90_000.0..101_000.0).contains(&iops), "{iops}");
}

#[test]
fn the_text_looks_like_fios() {
    let place = Place::new();
    let done = place
        .file("mixed.fio", MIXED)
        .blklab(&["run", "mixed.fio"])
        .ok();
    for piece in [
        "mixed: (groupid=0",
        "read: IOPS=",
        "clat percentiles",
        "Run status group 0",
        "Disk stats",
    ] {
        assert!(
            done.out.contains(piece),
            "{piece} is missing:\n{}",
            done.out
        );
    }
}

#[test]
fn a_trace_beyond_the_end_is_refused_or_wraps() {
    let place = Place::new();
    place.file(
        "off.trace",
        "0 0 0 8 1\n1000 0 99999999999 8 1\n2000 0 99999999999 8 0\n",
    );
    let args = ["run", "off.trace", "--drive", "null"];
    let done = place.blklab(&args);
    assert_eq!((done.status, done.out.as_str()), (2, ""), "{}", done.err);
    for part in ["off.trace:2:", "99999999999 + 8", "--wrap"] {
        assert!(done.err.contains(part), "{part}: {}", done.err);
    }
    let json = place.json(&[&args[..], &["--wrap"]].concat());
    let job = &json["jobs"][0];
    assert_eq!(job["read"]["total_ios"], 2);
    assert_eq!(job["write"]["total_ios"], 1);
    assert_eq!(job["error"], 0);
}

#[test]
fn psync_waits_for_each_io() {
    let place = Place::new();
    let job = MIXED.replace("libaio", "psync");
    let json = place
        .file("psync.fio", &job)
        .json(&["run", "psync.fio", "--drive", "mx100-256"]);
    assert_eq!(json["jobs"][0]["iodepth_level"]["1"], 100.0);
}

#[test]
fn fsync_reaches_the_drive() {
    let place = Place::new();
    let job = "[w]\nfilename=/dev/x\ndirect=1\nioengine=psync\nrw=randwrite\nbs=4k\nnumber_ios=64\nfsync=8\n";
    let json = place
        .file("sync.fio", job)
        .json(&["run", "sync.fio", "--drive", "mx100-256"]);
    assert!(
        json["jobs"][0]["sync"]["total_ios"].as_u64() >= Some(7),
        "{json}"
    );
    let flushes = &json["blklab"]["disks"][0]["queue"]["ios"];
    assert!(
        flushes[3].as_u64() >= Some(7) || flushes["flush"].as_u64() >= Some(7),
        "{flushes}"
    );
}

#[test]
fn stonewall_makes_jobs_follow_each_other() {
    let place = Place::new();
    let job = "[global]\nfilename=/dev/x\ndirect=1\nioengine=libaio\niodepth=4\nbs=4k\nnumber_ios=1000\n[a]\nrw=randread\n[b]\nstonewall\nrw=randwrite\n";
    let json = place.file("two.fio", job).json(&["run", "two.fio"]);
    assert_eq!(json["jobs"][0]["groupid"], 0);
    assert_eq!(json["jobs"][1]["groupid"], 1);
    assert_eq!(json["jobs"][1]["write"]["total_ios"], 1000);
}

#[test]
fn a_rate_is_kept() {
    let place = Place::new();
    let job = "[r]\nfilename=/dev/x\ndirect=1\nioengine=libaio\niodepth=8\nbs=4k\nrw=randread\nrate_iops=2000\nruntime=1\ntime_based\n";
    let json = place.file("rate.fio", job).json(&["run", "rate.fio"]);
    let iops = json["jobs"][0]["read"]["iops"].as_f64().expect("iops");
    assert!((iops - 2000.0).abs() < 40.0, "rate_iops=2000 gave {iops}");
}

#[test]
fn a_run_can_be_looked_at_moment_by_moment() {
    let place = Place::new();
    place.file("mixed.fio", MIXED);
    let args = [
        "run",
        "mixed.fio",
        "--drive",
        "mx100-256",
        "--machine",
        "xeon-10core",
        "--scheduler",
        "mq-deadline",
        "--timeline-start",
        "1ms",
        "--timeline-length",
        "5ms",
        "--html",
        "page.html",
        "--perfetto",
        "run.pftrace",
    ];
    place.blklab(&args).ok();
    let page = std::fs::read_to_string(place.path("page.html")).expect("a page");
    assert!(page.contains("over 5000 us of the first run, from 1000 us on"));
    for name in ["\"CPU 0\"", "\"channel 7\"", "\"die 15\"", ">CPU 0, "] {
        assert!(page.contains(name), "{name} is missing");
    }
    let trace = std::fs::read(place.path("run.pftrace")).expect("a trace");
    // The first packet (field 1 of Trace), then names of tracks.
    assert_eq!(trace[0], 0x0a);
    let text = String::from_utf8_lossy(&trace);
    for name in [
        "CPUs of xeon-10core",
        "queue, mq-deadline",
        "die 15",
        "read sense",
    ] {
        assert!(text.contains(name), "{name} is missing");
    }
}

#[test]
fn a_timeline_that_cannot_be_is_no_file() {
    let place = Place::new();
    place.file("mixed.fio", MIXED);
    let late = [
        "run",
        "mixed.fio",
        "--timeline-start",
        "1000s",
        "--perfetto",
        "run.pftrace",
    ];
    let done = place.blklab(&late);
    assert_eq!(done.status, 2);
    assert!(done.err.contains("the run was over after"), "{}", done.err);
    assert!(!place.path("run.pftrace").exists());
    for (args, said) in [
        (
            vec!["--timeline-start", "1ms"],
            "needs --html, --perfetto or --trace",
        ),
        (
            vec!["--timeline-start", "1", "--html", "x"],
            "a number with its unit",
        ),
    ] {
        let args: Vec<&str> = ["run", "mixed.fio"].into_iter().chain(args).collect();
        let done = place.blklab(&args);
        assert_eq!(done.status, 2);
        assert!(done.err.contains(said), "{}", done.err);
    }
}

#[test]
fn notes_end_the_text_and_go_beside_it() {
    let place = Place::new();
    let job = format!("{MIXED}trim_percentage=10\n");
    let done = place
        .file("trims.fio", &job)
        .blklab(&["run", "trims.fio", "--lenient"])
        .ok();
    assert!(done.err.contains("trim_percentage"), "{}", done.err);
    let mut lines = done.out.lines().rev();
    let note = lines.find(|line| line.contains("trim_percentage"));
    assert!(
        note.is_some_and(|line| line.starts_with("note: ")),
        "{}",
        done.out
    );
}

/// A loop device takes its worker's time, which a machine may not know.
#[test]
fn copies_for_nothing_are_told() {
    let place = Place::new();
    place.file("mixed.fio", MIXED);
    let said = |drive: &str, machine: &str| {
        let args = ["run", "mixed.fio", "--drive", drive, "--machine", machine];
        place.blklab(&args).ok().err.contains("[costs.loop]")
    };
    assert!(said("loop", "generic-8"));
    assert!(!said("loop", "vm-2cpu"));
    assert!(!said("nvme", "generic-8"));
}

/// The loop device of the machine that `vm-2cpu` describes did 537,651 a second
/// over a file in memory (tests/data/loop-host). Its worker sleeps for no
/// request.
#[test]
fn a_loop_device_over_memory_is_as_fast_as_a_real_one() {
    let place = Place::new();
    let args = "run --drive loop --machine vm-2cpu --scheduler none -- --name=t --rw=randread \
                --bs=4k --filename=/dev/x --ioengine=libaio --direct=1 --iodepth=32 --runtime=1";
    let args: Vec<&str> = args.split_whitespace().collect();
    let json = place.json(&args);
    let iops = json["jobs"][0]["read"]["iops"].as_f64().unwrap_or(0.0);
    assert!((480_000.0..600_000.0).contains(&iops), "{iops}");
}

#[test]
fn depths_are_what_fio_has_under_way() {
    let place = Place::new();
    let args = "run --drive mx100-256 -- --name=t --rw=randread --bs=4k \
                --filename=/dev/x --ioengine=libaio --direct=1 --iodepth=64 --number_ios=5000";
    let args: Vec<&str> = args.split_whitespace().collect();
    let json = place.json(&args);
    // All are kept under way, though the drive takes 32 at once.
    let deepest = json["jobs"][0]["iodepth_level"][">=64"].as_f64();
    assert!(deepest > Some(98.0), "{deepest:?}");
}

/// A disk without discards. As under fio, the first error ends a job.
const TRIMS: &str = "\
[t]
filename=/dev/x
rw=randtrim
direct=1
ioengine=libaio
iodepth=4
bs=4k
runtime=1
time_based
";

#[test]
fn the_first_error_ends_a_job_and_the_command_fails() {
    let place = Place::new();
    place.file("trims.fio", TRIMS);
    let run = ["run", "trims.fio", "--drive", "hdd-7200"];
    let done = place.blklab(&[&run[..], &["--output-format", "json"]].concat());
    assert_eq!(done.status, 1, "{}", done.err);
    let json = done.json();
    assert_eq!(json["jobs"][0]["error"], 95);
    assert!(json["jobs"][0]["total_err"].as_u64().expect("a count") <= 4);
    let compare = ["compare", "trims.fio", "--drive", "hdd-7200"];
    let more = ["--schedulers", "none,bfq", "--repeats", "1"];
    let done = place.blklab(&[&compare[..], &more[..]].concat());
    assert_eq!(done.status, 1, "{}", done.err);
    let expected = "No verdict: I/O failed under none and bfq";
    assert!(done.out.contains(expected), "{}", done.out);
}

#[test]
fn a_job_may_name_its_scheduler() {
    let place = Place::new();
    place.file(
        "job.fio",
        "[a]\nioscheduler=bfq\nfilename=/dev/x\ndirect=1\nnumber_ios=1\n",
    );
    let run = |more: &[&str]| {
        let json = place.json(&[&["run", "job.fio"], more].concat());
        json["blklab"].clone()
    };
    let own = run(&[]);
    assert_eq!(own["scheduler"], "bfq");
    assert_eq!(own["notes"], serde_json::json!([]));
    let named = run(&["--scheduler", "kyber"]);
    assert_eq!(named["scheduler"], "kyber");
    let note = named["notes"][0].as_str().expect("a note");
    assert!(note.contains("ioscheduler=bfq is left out"), "{note}");
    let tuned = run(&["--set", "bfq.low_latency=0"]);
    assert_eq!(tuned["scheduler"], "bfq low_latency=0");
    let compare = [
        "compare",
        "job.fio",
        "--schedulers",
        "none,kyber",
        "--repeats",
        "1",
    ];
    let out = place.blklab(&compare).ok().out;
    assert!(out.contains("ioscheduler=bfq is left out"), "{out}");
}

#[test]
fn percentiles_are_those_that_the_job_asks_for() {
    let place = Place::new();
    let text = MIXED.replace(
        "[global]",
        "[global]\nlat_percentiles=1\nclat_percentiles=0",
    );
    place.file("lat.fio", &text);
    let json = place.json(&["run", "lat.fio"]);
    let read = &json["jobs"][0]["read"];
    assert!(read["lat_ns"]["percentile"]["99.000000"].as_u64() > Some(0));
    assert!(read["clat_ns"]["percentile"].is_null());
    let text = place.blklab(&["run", "lat.fio"]).ok().out;
    assert!(text.contains("    lat percentiles ("), "{text}");
    assert!(!text.contains("clat percentiles ("), "{text}");
}

#[test]
#[cfg(unix)]
fn a_page_has_the_job_that_came_by_standard_input() {
    let place = Place::new();
    place.file("job.fio", &format!("# this very job\n{MIXED}"));
    let command = "\"$0\" run - --html x.html < job.fio";
    let program = env!("CARGO_BIN_EXE_blklab");
    let shell = std::path::Path::new("sh");
    place.run(shell, &["-c", command, program]).ok();
    let page = std::fs::read_to_string(place.path("x.html")).expect("a page");
    assert!(page.contains("# this very job"));
}

/// The lines of a log, each a list of numbers.
fn log_lines(place: &Place, name: &str) -> Vec<Vec<u64>> {
    let text = std::fs::read_to_string(place.path(name)).expect("a log");
    let numbers = |line: &str| {
        let words = line.split(", ");
        words.map(|word| word.parse().expect("a number")).collect()
    };
    text.lines().map(numbers).collect()
}

const LOGGED: &str = "[j]\nfilename=x\ndirect=1\nioengine=libaio\nrw=randrw\nbs=8k\nsize=1m\n\
                      numjobs=2\nwrite_lat_log=L\nwrite_bw_log=B\nwrite_iops_log\n";

/// fio itself writes the same files with as many lines and columns.
#[test]
fn logs_of_each_io_are_fios() {
    let (place, fio) = (Place::new(), Place::new());
    let job = format!("{LOGGED}number_ios=50\nlog_offset=1\n");
    place.file("job.fio", &job);
    let json = place.json(&["run", "job.fio", "--machine", "xeon-10core"]);
    let names: Vec<String> = (["B_bw", "L_clat", "L_lat", "L_slat", "j_iops"].iter())
        .flat_map(|stem| [1, 2].map(|n| format!("{stem}.{n}.log")))
        .collect();
    let lines: Vec<Vec<Vec<u64>>> = names.iter().map(|name| log_lines(&place, name)).collect();
    assert!(lines.iter().flatten().all(|l| (l.len(), l[3]) == (6, 8192)));
    let [bandwidth, clat, lat, slat, iops] = [0, 2, 4, 6, 8].map(|at| &lines[at]);
    let column = |lines: &[Vec<u64>], at: usize| -> Vec<u64> {
        let mut column: Vec<u64> = lines.iter().map(|line| line[at]).collect();
        column.sort();
        column
    };
    for (c, b) in clat.iter().zip(bandwidth) {
        assert_eq!(b[1], 8192 * 1_000_000 / c[1]);
    }
    let sum = |lines: &[Vec<u64>]| column(lines, 1).iter().sum::<u64>();
    assert_eq!(sum(slat) + sum(clat), sum(lat));
    assert!(sum(slat) > 0 && column(iops, 1) == [1; 50]);
    assert!(
        column(lat, 4).is_sorted_by(|a, b| a < b),
        "a place is read twice"
    );
    let reads: Vec<u64> = lat.iter().filter(|l| l[2] == 0).map(|l| l[1]).collect();
    let of_json = &json["jobs"][0]["read"];
    assert_eq!(
        of_json["lat_ns"]["max"].as_u64(),
        reads.iter().copied().max()
    );
    assert_eq!(of_json["total_ios"], reads.len());

    fio.file("job.fio", &job.replace("direct=1\n", ""));
    match std::process::Command::new("fio")
        .arg("job.fio")
        .current_dir(fio.path("."))
        .output()
    {
        Ok(_) => {
            for (name, ours) in names.iter().zip(&lines) {
                let theirs = log_lines(&fio, name);
                assert_eq!((theirs.len(), theirs[0].len()), (ours.len(), 6), "{name}");
            }
        }
        Err(_) => blklab_judges::missing("fio"),
    }
}

#[test]
fn logs_of_spans_of_time_share_a_file_where_asked() {
    let place = Place::new();
    let spans = "time_based\nruntime=100ms\nlog_avg_msec=20\nper_job_logs=0\n\
                 write_hist_log=H\nlog_hist_msec=30\nlog_hist_coarseness=2\n";
    place.file("job.fio", &format!("{LOGGED}{spans}"));
    let json = place.json(&["run", "job.fio"]);
    let iops = log_lines(&place, "j_iops.log");
    let ends: Vec<u64> = iops.iter().filter(|l| l[2] == 0).map(|l| l[0]).collect();
    assert_eq!(ends[..4], [20, 40, 60, 80]);
    let first = ends.iter().filter(|end| **end == 20).count();
    assert_eq!(first, 2, "one of each process: {ends:?}");
    let ios = json["jobs"][0]["read"]["iops"].as_f64().expect("IOPS");
    let mean = iops.iter().filter(|l| l[2] == 0).map(|l| l[1]).sum::<u64>() / ends.len() as u64;
    assert!((mean as f64 / ios - 1.0).abs() < 0.1, "{mean} of {ios}");
    let spans = log_lines(&place, "H_clat_hist.log");
    assert!(
        spans
            .iter()
            .all(|l| l.len() == 3 + 1856 / 4 && l[3..].iter().sum::<u64>() > 0)
    );
    assert!(
        log_lines(&place, "L_lat.log")
            .iter()
            .all(|l| (l.len(), l[3], l[4]) == (5, 0, 0))
    );
}

/// Where many runs are compared nobody reads them; over the job none is written.
#[test]
fn logs_are_written_by_run_alone_and_over_nothing_that_is_read() {
    let place = Place::new();
    place.file("job.fio", &format!("{LOGGED}number_ios=5\n"));
    place.blklab(&["compare", "job.fio", "--repeats", "1"]).ok();
    assert_eq!(place.files(), ["job.fio"]);
    let job = LOGGED
        .replace("numjobs=2", "per_job_logs=0")
        .replace("=L", "=job");
    place.file("job_lat.log", &job);
    let outcome = place.blklab(&["run", "job_lat.log"]);
    assert_eq!(outcome.status, 2);
    let is_read = "job_lat.log: the command reads that file";
    assert!(outcome.err.contains(is_read), "{}", outcome.err);
    place.file("job.fio", &LOGGED.replace("=L", "=none/L"));
    let outcome = place.blklab(&["run", "job.fio"]);
    assert_eq!(outcome.status, 2);
    assert!(
        outcome.err.contains("its folder does not exist"),
        "{}",
        outcome.err
    );
}

/// fio adds up the jobs that ask for it. What each did alone is there beside it, and
/// who does not ask keeps a line.
#[test]
fn jobs_that_are_reported_together_are_there_one_by_one_too() {
    let place = Place::new();
    let job = |global: &str, reader: &str| {
        format!(
            "[global]\nfilename=/dev/x\ndirect=1\nnumber_ios=200\nsize=1g\n{global}\n\
             [victim]\nrw=randread\n[reader]\nrw=read\nnumjobs=2\n{reader}\n"
        )
    };
    let names = |jobs: &serde_json::Value| -> Vec<(String, u64)> {
        let jobs = jobs.as_array().map_or(&[][..], |jobs| &jobs[..]);
        let row = |job: &serde_json::Value| {
            let ios = job["read"]["total_ios"].as_u64().expect("a count");
            (job["jobname"].as_str().expect("a name").to_string(), ios)
        };
        jobs.iter().map(row).collect()
    };
    let (victim, reader) = (("victim".to_string(), 200), ("reader".to_string(), 400));
    place.file("all.fio", &job("group_reporting", ""));
    let json = place.json(&["run", "all.fio"]);
    assert_eq!(names(&json["jobs"]), [("victim".to_string(), 600)]);
    let own = names(&json["blklab"]["pooled_jobs"]);
    assert_eq!(own, [victim.clone(), reader.clone()]);
    let text = place.blklab(&["run", "all.fio"]).ok().out;
    assert_eq!(
        text.matches("\nreader: (groupid=0, jobs=2)").count(),
        1,
        "{text}"
    );
    assert_eq!(text.matches("reader: (g=0): rw=read").count(), 1, "{text}");
    place.file("one.fio", &job("", "group_reporting"));
    let json = place.json(&["run", "one.fio"]);
    assert_eq!(names(&json["jobs"]), [victim, reader]);
    assert_eq!(json["blklab"]["pooled_jobs"], serde_json::Value::Null);
}

#[test]
fn the_text_ends_with_its_last_line() {
    let place = Place::new();
    place.file("mixed.fio", &MIXED.replace("4000", "50"));
    for more in [&[][..], &["--why", "p99"]] {
        let args = [&["run", "mixed.fio", "--drive", "mx100-256"], more].concat();
        let text = place.blklab(&args).ok().out;
        assert!(text.ends_with('\n') && !text.ends_with("\n\n"), "{text}");
    }
}
