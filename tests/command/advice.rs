//! What to do: the last words of `blklab compare`.

use crate::support::{MIXED, Place};

/// One that waits for each of its reads, beside four that write all they can.
const NOISY: &str = "\
[global]
filename=/dev/x
direct=1
ioengine=libaio
bs=4k
norandommap
time_based
runtime=50ms
[victim]
rw=randread
iodepth=1
[writer]
rw=randwrite
iodepth=64
numjobs=4
";

/// A drive that takes two commands at a time, of which nobody has measured how long it
/// writes.
const NARROW: &str = "\
description = \"Two at a time\"
interface = \"null\"
model = \"null\"
[host]
capacity_bytes = 1073741824
queue_depth = 2
[timing]
read_ns = 10000
write_ns = 10000
flush_ns = 0
parallelism = 1
[assumed]
\"timing.write_ns\" = [200, 10000]
";

fn place() -> Place {
    let place = Place::new();
    place.file("noisy.fio", NOISY).file("narrow.toml", NARROW);
    place
}

const COMPARE: [&str; 9] = [
    "compare",
    "noisy.fio",
    "--drive",
    "narrow.toml",
    "--repeats",
    "2",
    "--goal",
    "victim.read.p99",
    "--schedulers",
];

fn compare(place: &Place, schedulers: &str, options: &[&str]) -> String {
    let args = [&COMPARE[..], &[schedulers], options].concat();
    place.blklab(&args).ok().out
}

#[test]
fn a_clear_answer_says_what_to_type_and_what_it_depends_on() {
    let out = compare(&place(), "none,bfq", &[]);
    for part in [
        "what to do: Take bfq: p99 read latency of victim -",
        "Its price: write bandwidth of writer -",
        "The answer depends on timing.write_ns of narrow.toml (assumed 10000): at 200 no difference \
         is worth leaving none.",
        "echo bfq > /sys/block/DISK/queue/scheduler",
        "ATTR{queue/rotational}==\"0\", ATTR{queue/scheduler}=\"bfq\"",
        "w /sys/block/DISK/queue/scheduler - - - - bfq",
    ] {
        assert!(out.contains(part), "{part}:\n{out}");
    }
    let out = compare(&place(), "none,bfq", &["--assumed", "0"]);
    assert!(!out.contains("answer depends on"), "{out}");
}

#[test]
fn what_is_typed_names_the_job_s_own_drives() {
    let place = place();
    let job = NOISY.replace("/dev/x", "/dev/nullb3:/dev/nullb1");
    place.file("noisy.fio", &job);
    let out = compare(&place, "none,bfq", &["--assumed", "0"]);
    for line in [
        "echo bfq > /sys/block/nullb1/queue/scheduler",
        "echo bfq > /sys/block/nullb3/queue/scheduler",
        "w /sys/block/nullb1/queue/scheduler - - - - bfq",
        "# every nullb[0-9]* device that does not rotate\n",
    ] {
        assert!(out.contains(line), "{line}:\n{out}");
    }
    assert!(!out.contains("DISK"), "{out}");
}

/// Where the answer is that a goal has to decide, assumed values are tried all the same.
#[test]
fn an_answer_that_depends_is_tried_at_assumed_values_too() {
    let place = place();
    place.file("noisy.fio", &NOISY.replace("numjobs=4", "numjobs=1"));
    let args = ["compare", "noisy.fio", "--drive", "narrow.toml"];
    let more = ["--schedulers", "none,bfq", "--repeats", "2"];
    let json = place.json(&[&args[..], &more].concat());
    let advice = &json["advice"];
    let sentence = advice["sentence"].as_str().expect("an answer");
    assert!(sentence.starts_with("It depends on what"), "{sentence}");
    let assumed = advice["assumed"].as_str().expect("a sentence");
    let said = "The answer depends on timing.write_ns of narrow.toml (assumed 10000): at 200 ";
    assert!(assumed.starts_with(said), "{assumed}");
}

/// When processes start decides nothing where there is one, or where their I/O is drawn.
#[test]
fn how_far_apart_processes_start_is_assumed_where_they_would_go_in_step() {
    let place = place();
    let untried = |rw: &str, processes: &str| {
        let job = "[a]\nfilename=/dev/x\ndirect=1\nruntime=10ms\ntime_based\nbs=4k\n";
        let job = format!("{job}rw={rw}\nnumjobs={processes}\nsize=16m\n");
        place.file("step.fio", &job);
        let args = ["compare", "step.fio", "--drive", "narrow.toml"];
        let more = [
            "--schedulers",
            "none,mq-deadline",
            "--repeats",
            "2",
            "--assumed",
            "0",
        ];
        let json = place.json(&[&args[..], &more].concat());
        let said = json["advice"]["assumed"].as_str().expect("a sentence");
        let number = said
            .split(' ')
            .nth(1)
            .and_then(|word| word.parse::<u32>().ok());
        number.unwrap_or_else(|| panic!("{said}"))
    };
    let alone = untried("read", "1");
    assert_eq!(untried("randread", "2"), alone);
    assert_eq!(untried("read", "2"), alone + 1);
}

#[test]
fn a_tunable_and_a_queue_setting_are_typed_too() {
    let options = ["--nomerges", "2", "--assumed", "0"];
    let out = compare(&place(), "none,bfq:low_latency=0", &options);
    assert!(
        out.contains("ATTR{queue/iosched/low_latency}=\"0\""),
        "{out}"
    );
    assert!(
        out.contains("echo 2 > /sys/block/DISK/queue/nomerges"),
        "{out}"
    );
}

#[test]
fn what_the_kernel_does_not_have_is_not_advised() {
    let place = place();
    let out = compare(&place, "none,bfq", &["--kernel", "4.11", "--assumed", "0"]);
    let said = "bfq would be better still, and Linux 4.11 does not have it.";
    assert!(out.contains(said) && !out.contains("echo bfq"), "{out}");
    let out = compare(
        &place,
        "all",
        &["--assumed", "0", "--output-format", "json"],
    );
    let json: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert!(
        json["schedulers"]
            .as_array()
            .is_some_and(|all| all.len() > 10)
    );
    let done = place.blklab(&["compare", "noisy.fio", "--kernel", "new"]);
    assert_eq!(done.status, 2);
    assert!(done.err.contains("as 6.12 or 4.19"), "{}", done.err);
}

#[test]
fn a_default_that_none_is_better_than_is_kept() {
    let place = Place::new();
    place.file("mixed.fio", &MIXED.replace("iodepth=64", "iodepth=1"));
    let json = place.json(&["compare", "mixed.fio", "--drive", "null", "--repeats", "2"]);
    // What Linux 6.12 has.
    let names = serde_json::json!(["none", "mq-deadline", "bfq", "kyber"]);
    assert_eq!(json["schedulers"], names);
    let sentence = json["advice"]["sentence"].as_str().expect("an answer");
    assert!(
        sentence.starts_with("Keep none (Linux 6.12 sets it by itself): all others are worse"),
        "{sentence}"
    );
    assert_eq!(json["advice"]["take"], serde_json::Value::Null);
}

#[test]
fn a_goal_of_an_unknown_job_is_told_before_anything_runs() {
    let place = place();
    let args = ["compare", "noisy.fio", "--goal", "victims.read.p99"];
    let done = place.blklab(&args);
    assert_eq!((done.status, done.out.as_str()), (2, ""));
    assert_eq!(
        done.err,
        "blklab: --goal victims.read.p99: there is no job victims; the jobs are victim and writer; \
         did you mean victim?\n"
    );
}

#[test]
fn an_assumed_value_that_is_not_legal_has_its_line() {
    let place = Place::new();
    place.file("d.toml", &NARROW.replace("[200, 10000]", "[-1, 10000]"));
    let done = place.blklab(&["compare", "thesis/all", "--drive", "d.toml"]);
    assert_eq!(done.status, 2);
    let said = "d.toml:13: `assumed.\"timing.write_ns\"`: found -1, legal is a whole number";
    assert!(done.err.contains(said), "{}", done.err);
}

#[test]
fn why_the_tail_is_long_is_told_by_where_time_went() {
    let place = place();
    let options = ["--assumed", "0", "--why", "p99", "--output-format", "json"];
    let out = compare(&place, "none,bfq", &options);
    let json: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let tables = json["slowest"].as_array().expect("tables");
    let victim = tables.iter().find(|table| table["job"] == "victim");
    let rows = victim.expect("the victim's")["rows"]
        .as_array()
        .expect("rows");
    let row = |name: &str| {
        let mut rows = rows.iter();
        &rows.find(|row| row["name"] == name).expect(name)["values"]
    };
    let ns = |values: &serde_json::Value, of: &str| values[0][of].as_f64().expect("a time");
    let whole = ns(row("in all"), "slowest_ns");
    assert!(whole >= ns(row("in all"), "median_ns"));
    let parts = rows
        .iter()
        .skip(1)
        .map(|row| ns(&row["values"], "slowest_ns"));
    let sum: f64 = parts.sum();
    assert!((sum - whole).abs() <= 0.02 * whole, "{sum} of {whole}");
    // The drive has two tags, for which the others ask all the time.
    assert!(ns(row("tag or throttle"), "slowest_ns") > 0.5 * whole);
}

/// A drive behind AHCI takes nothing beside a flush, for which a reader waits, then.
#[test]
fn waits_for_flushes_are_told_from_those_in_the_scheduler() {
    let place = Place::new();
    place.file(
        "wal.fio",
        "[global]\nfilename=/dev/sda\ndirect=1\nruntime=200ms\n[wal]\nrw=write\nbs=8k\n\
         fdatasync=1\n[read]\nrw=randread\nbs=8k\n",
    );
    let slowest = |drive| {
        let run = [
            "compare",
            "wal.fio",
            "--schedulers",
            "mq-deadline",
            "--repeats",
            "1",
        ];
        let more = ["--why", "p90", "--drive", drive];
        place.json(&[&run[..], &more].concat())["slowest"].clone()
    };
    let stage_ns = |slowest: &serde_json::Value, of: (&str, &str), stage: &str| {
        let mut tables = slowest.as_array().expect("tables").iter();
        let table = tables.find(|table| table["job"] == of.0 && table["operation"] == of.1);
        let mut rows = table.expect("a table")["rows"]
            .as_array()
            .expect("rows")
            .iter();
        let row = rows.find(|row| row["name"] == stage);
        row.map_or(0.0, |row| {
            row["values"][0]["slowest_ns"].as_f64().expect("a time")
        })
    };
    let sata = slowest("mx100-256");
    let (read, flushes) = (("read", "reads"), ("wal", "flushes"));
    let whole = stage_ns(&sata, read, "in all");
    assert!(stage_ns(&sata, read, "flush") > 0.5 * whole, "{sata:#}");
    assert!(stage_ns(&sata, read, "scheduler") < 0.2 * whole, "{sata:#}");
    // Programming a page takes longer than any wait before it.
    let whole = stage_ns(&sata, flushes, "in all");
    assert!(whole > 500_000.0 && stage_ns(&sata, flushes, "flush") < 0.5 * whole);
    let nvme = slowest("nvme");
    assert_eq!(stage_ns(&nvme, read, "flush"), 0.0, "{nvme:#}");
    assert!(stage_ns(&nvme, flushes, "in all") > 0.0);
}

#[test]
fn a_disk_of_another_kind_than_the_drive_is_noticed() {
    let place = Place::new();
    let job = "[a]\nrw=randread\nsize=4m\nio_size=400k\ndirect=1\nfilename=/dev/sdb\n";
    place.file("sata.fio", job);
    let notes = |options: &[&str]| {
        let compare = ["compare", "sata.fio", "--repeats", "1"];
        place.json(&[&compare, options].concat())["notes"].to_string()
    };
    let said = "the job's /dev/sdb is of another kind than nvme, which is simulated: --drive says";
    assert!(notes(&[]).contains(said), "{}", notes(&[]));
    for drive in ["mx100-256", "hdd-7200"] {
        assert!(!notes(&["--drive", drive]).contains("another kind"));
    }
}

/// What is set already is the first row, to which the others are compared.
#[test]
fn changes_are_against_what_the_kernel_sets_by_itself() {
    let place = Place::new();
    let job = "[a]\nrw=randread\nsize=4m\nio_size=400k\ndirect=1\nfilename=/dev/x\n";
    place.file("a.fio", job);
    for (drive, first) in [("mx100-256", "mq-deadline"), ("nvme", "none")] {
        let json = place.json(&["compare", "a.fio", "--repeats", "1", "--drive", drive]);
        assert_eq!(json["schedulers"][0], first, "{drive}");
    }
}

#[test]
fn one_run_tells_too_and_shows_such_a_request() {
    let place = place();
    let run = ["run", "noisy.fio", "--drive", "narrow.toml", "--why", "p99"];
    let out = place.blklab(&[&run[..], &["--perfetto", "t.pftrace"]].concat());
    let out = out.ok().out;
    assert!(
        out.contains("slowest 1 % of victim's reads (median)"),
        "{out}"
    );
    let trace = std::fs::read(place.path("t.pftrace")).expect("the trace");
    let trace = String::from_utf8_lossy(&trace);
    assert!(trace.contains("p99 of victim: R"));
    let done = place.blklab(&["run", "noisy.fio", "--why", "99"]);
    assert!(done.err.contains("as p99"), "{}", done.err);
}

#[test]
fn an_option_of_every_job_is_given_once() {
    let place = place();
    let runtime_ms = |options: &[&str]| {
        let run = ["run", "noisy.fio", "--drive", "narrow.toml"];
        let json = place.json(&[&run, options].concat());
        json["jobs"][0]["job_runtime"].as_u64().expect("a time")
    };
    assert!((50..=52).contains(&runtime_ms(&[])));
    assert!((20..=22).contains(&runtime_ms(&["--override", "runtime=20ms"])));
    let done = place.blklab(&["run", "noisy.fio", "--override", "runtme=2"]);
    assert_eq!(done.status, 2);
    let said = "--override runtme=2: fio has no option runtme; did you mean runtime?";
    assert!(done.err.contains(said), "{}", done.err);
}

#[test]
fn in_a_hurry_it_says_what_it_gave_up() {
    let place = place();
    place.file("long.fio", &NOISY.replace("50ms", "30s"));
    let args = [
        "compare",
        "long.fio",
        "--drive",
        "null",
        "--quick",
        "--repeats",
        "1",
    ];
    let more = [
        "--schedulers",
        "none",
        "--override",
        "iodepth=1",
        "--override",
        "thinktime=900",
    ];
    let json = place.json(&[&args[..], &more].concat());
    let notes = json["notes"].to_string();
    // Who says how many runs there are does not hear that they are fewer.
    assert!(
        notes.contains("--quick: the first second of each job, no assumed value tried"),
        "{notes}"
    );
    let over = ["compare", "noisy.fio", "--max-time", "1ns"];
    let done = place.blklab(&over);
    assert_eq!((done.status, done.out.as_str()), (1, ""));
    assert!(done.err.contains("stopped before any run"), "{}", done.err);
}

/// What a comparison on such a drive advises for a kernel.
fn advised(place: &Place, job: &str, options: &[&str]) -> String {
    let args = [
        &["compare", job, "--repeats", "2", "--assumed", "0"],
        options,
    ]
    .concat();
    let json = place.json(&args);
    let sentence = json["advice"]["sentence"].as_str().expect("an answer");
    sentence.to_string()
}

#[test]
fn a_loop_device_has_no_scheduler_by_itself_since_linux_5_15() {
    let place = Place::new();
    place.file("mixed.fio", &MIXED.replace("iodepth=64", "iodepth=1"));
    let of = |kernel| {
        advised(
            &place,
            "mixed.fio",
            &["--drive", "loop", "--kernel", kernel],
        )
    };
    let sentence = of("6.12");
    let keep = "Keep none (Linux 6.12 sets it by itself)";
    assert!(sentence.contains(keep), "{sentence}");
    let sentence = of("5.10");
    let by_itself = "mq-deadline (Linux 5.10 sets it by itself)";
    assert!(sentence.contains(by_itself), "{sentence}");
}

#[test]
fn zones_before_linux_6_10_are_for_mq_deadline() {
    let job = "[z]\nfilename=/dev/z\nzonemode=zbd\nrw=write\nbs=64k\ndirect=1\n\
               ioengine=libaio\niodepth=4\nnumber_ios=200\nsize=2z\n";
    let place = Place::new();
    place.file("zbd.fio", job);
    let drive = ["compare", "zbd.fio", "--drive", "zn540-1tb", "--kernel"];
    for (kernel, offered) in [
        ("6.1", serde_json::json!(["none", "mq-deadline"])),
        (
            "6.12",
            serde_json::json!(["none", "mq-deadline", "bfq", "kyber"]),
        ),
    ] {
        let args = [&drive[..], &[kernel, "--repeats", "2", "--assumed", "0"]].concat();
        let json = place.json(&args);
        assert_eq!(json["schedulers"], offered, "{kernel}");
        let sentence = json["advice"]["sentence"].as_str().expect("an answer");
        let warned = sentence.contains("under mq-deadline only");
        let is_none = !sentence.contains("Take mq-deadline");
        assert_eq!(warned, kernel == "6.1" && is_none, "{sentence}");
    }
    // What the kernel has and does not offer for zones is neither advised nor missing.
    let named = ["6.1", "--schedulers", "mq-deadline,bfq", "--repeats", "2"];
    let out = place.blklab(&[&drive[..], &named].concat()).ok().out;
    let wrong = out.contains("Take bfq") || out.contains("does not have it");
    assert!(!wrong, "{out}");
}

#[test]
fn only_what_the_kernel_has_already_is_kept() {
    let place = Place::new();
    place.file("mixed.fio", &MIXED.replace("iodepth=64", "iodepth=1"));
    let compare = |vary: &[&str]| {
        let args = [
            "compare",
            "mixed.fio",
            "--drive",
            "nvme",
            "--repeats",
            "2",
            "--assumed",
            "0",
        ];
        place.json(&[&args[..], vary].concat())
    };
    // Linux sets no drive's cache.
    let json = compare(&["--vary", "drive.controller.read_us=5,6"]);
    assert_eq!(json["advice"], serde_json::Value::Null);
    let json = compare(&[
        "--vary",
        "scheduler=none,kyber",
        "--vary",
        "nr_requests=32,256",
    ]);
    let sentence = json["advice"]["sentence"].as_str().expect("an answer");
    let found = sentence.contains("keep") || sentence.contains("by itself");
    assert!(!found, "{sentence}");
}
