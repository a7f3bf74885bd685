//! `blklab replay`: a recorded load under other schedulers.

use crate::support::Place;
use blklab_workload::trace::tracefs::{Dev, events};
use blklab_workload::trace::{BlkparseWriter, BlktraceWriter};

/// Reads of two processes, as tracefs tells them: arrival, issue and end.
fn tracefs_text() -> String {
    let mut text = String::from("# tracer: nop\n");
    for n in 0..200_u64 {
        let (pid, sector) = (7 + n % 2, (n * 7919) % 100_000 * 8);
        let (us, end_us) = (n * 100, n * 100 + 90);
        let time = |us: u64| format!("1.{:09}", us * 1000);
        let issue = format!("R 4096 () {sector} + 8 none,0,0 [fio]");
        for (at, what) in [
            (us, format!("block_bio_queue: 8,16 R {sector} + 8 [fio]")),
            (us + 1, format!("block_rq_issue: 8,16 {issue}")),
            (
                end_us,
                format!("block_rq_complete: 8,16 R () {sector} + 8 none,0,0 [0]"),
            ),
        ] {
            text += &format!(" fio-{pid} [000] ..... {}: {what}\n", time(at));
        }
    }
    text
}

/// The same events as blkparse prints them, and as blktrace writes them.
fn other_forms(text: &str) -> (String, Vec<u8>) {
    let dev = Dev {
        major: 8,
        minor: 16,
    };
    let mut writer = BlktraceWriter::new(Vec::new(), dev);
    let mut lines = BlkparseWriter::new(Vec::new(), dev);
    for event in events(text, "memory") {
        let event = event.expect("written above");
        writer.event(&event).expect("memory takes it");
        lines.event(&event).expect("memory takes it");
    }
    let lines = String::from_utf8(lines.finish()).expect("text");
    (lines, writer.finish().expect("memory takes it"))
}

/// The table, less the line that names the trace.
fn table(out: &str) -> String {
    let lines = out.lines().filter(|line| !line.contains("load."));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_form_of_a_trace_gives_the_same_figures() {
    let place = Place::new();
    let text = tracefs_text();
    let (lines, binary) = other_forms(&text);
    place
        .file("load.tracefs", &text)
        .file("load.blkparse", &lines);
    std::fs::write(place.path("load.blktrace.0"), binary).expect("a file");
    for timing in ["open", "closed", "dependencies"] {
        let options = ["--drive", "mx100-256", "--schedulers", "none,mq-deadline"];
        let replay = |name: &str| {
            let mut args = vec!["replay", name, "--timing", timing, "--repeats", "1"];
            args.extend(options);
            args.push("--details");
            place.blklab(&args).ok().out
        };
        let first = table(&replay("load.tracefs"));
        assert!(first.contains("mq-deadline"), "{first}");
        // blkparse takes the name of a set, too.
        for name in ["load.blkparse", "load.blktrace.0", "load"] {
            assert_eq!(table(&replay(name)), first, "{name} {timing}");
        }
    }
}

#[test]
fn twice_the_speed_is_half_the_time() {
    let place = Place::new();
    place.file("load.trace", &tracefs_text());
    let iops = |speed: &str| {
        let json = place.json(&["run", "load.trace", "--speed", speed]);
        json["jobs"][0]["read"]["iops"].as_f64().expect("a rate")
    };
    let ratio = iops("2") / iops("1");
    assert!((1.95..2.05).contains(&ratio), "{ratio}");
    let text = place.blklab(&["run", "load.trace"]).ok().out;
    // fio's line on a job has no meaning for a trace.
    assert!(!text.contains("bs=(R)"), "{text}");
}

#[test]
fn mistakes_are_told() {
    let place = Place::new();
    place.file("load.trace", &tracefs_text());
    place.file("disksim.trace", "0 0 0 8 1\n1000 0 8 8 1\n");
    place.file("long.trace", "0 0 0 8 1\n4000000000000000000 0 8 8 1\n");
    place.file("month.trace", "0 0 0 8 1\n18446745000000000 0 8 8 1\n");
    place.file("job.fio", "[a]\nrw=read\n");
    place.file("cut.blktrace.0", "\u{7}taexx");
    place.file(
        "typo.csv",
        "128166372003061629,hm,0,Raed,9056256,4096,1331\n",
    );
    for (args, word) in [
        (&["nowhere.trace"][..], "no such trace"),
        (&["job.fio"][..], "unknown trace format"),
        (&["cut.blktrace.0"][..], "was cut"),
        (&["typo.csv"][..], "Timestamp,Hostname"),
        (&["load.trace", "--speed", "0"][..], "--speed 0"),
        (&["load.trace", "--speed", "NaN"][..], "--speed NaN"),
        (
            &["load.trace", "--speed", "2", "--timing", "closed"][..],
            "--speed is for",
        ),
        (
            &["disksim.trace", "--timing", "dependencies"][..],
            "does not tell when I/Os ended",
        ),
        (&["long.trace"][..], "long.trace:2: "),
        (&["month.trace", "--speed", "0.001"][..], "month.trace:2: "),
        (&["load.trace", "--schedulers", "cfqq"][..], "cfq"),
    ] {
        let mut all = vec!["replay"];
        all.extend(args);
        let done = place.blklab(&all);
        assert_eq!(done.status, 2, "{args:?}: {}", done.err);
        assert!(done.err.contains(word), "{args:?}: {}", done.err);
    }
    // A table is no job, though its format is not known.
    let done = place.blklab(&["run", "typo.csv"]);
    assert_eq!(done.status, 2, "{}", done.err);
    assert!(done.err.contains("unknown trace format"), "{}", done.err);
}

/// blkparse's lines of reads of 4 KiB, of which the last is at this sector.
fn reads_up_to(last: u64) -> String {
    let mut text = String::new();
    for (n, sector) in (0..20).map(|n| n * 800).chain([last]).enumerate() {
        let (at, end) = (n * 1_000_000, n * 1_000_000 + 300_000);
        text += &format!(
            "  8,16   0 {:8}     0.{at:09}  1000  Q   R {sector} + 8 [app]\n",
            2 * n + 1
        );
        text += &format!(
            "  8,16   0 {:8}     0.{end:09}     0  C   R {sector} + 8 [0]\n",
            2 * n + 2
        );
    }
    text
}

/// The end of mx100-256 in sectors.
const END: u64 = 500_118_192;

#[test]
fn a_trace_of_a_larger_drive_is_refused_with_its_place() {
    let place = Place::new();
    place
        .file("fits.blkparse", &reads_up_to(END - 8))
        .file("large.blkparse", &reads_up_to(END - 4));
    let replay = |name: &str, more: &[&str]| {
        let args = ["replay", name, "--drive", "mx100-256", "--repeats", "1"];
        place.blklab(&[&args[..], more].concat())
    };
    replay("fits.blkparse", &[]).ok();
    let done = replay("large.blkparse", &[]);
    assert_eq!((done.status, done.out.as_str()), (2, ""));
    for part in [
        "large.blkparse:41: ",
        "500118188 + 8",
        "500118192",
        "mx100-256",
        "--drive, or --wrap",
    ] {
        assert!(done.err.contains(part), "{part}:\n{}", done.err);
    }
    assert_eq!(
        done.err.matches("large.blkparse").count(),
        1,
        "{}",
        done.err
    );
    for timing in ["open", "closed", "dependencies"] {
        let done = replay("large.blkparse", &["--wrap", "--timing", timing]).ok();
        assert!(!done.out.contains("failed"), "{timing}:\n{}", done.out);
    }
}

#[test]
fn a_binary_trace_of_a_larger_drive_is_refused_with_its_place() {
    let place = Place::new();
    let text = tracefs_text().replace(" 0 + 8", &format!(" {END} + 8"));
    std::fs::write(place.path("load.blktrace.0"), other_forms(&text).1).expect("a file");
    let done = place.blklab(&["replay", "load.blktrace.0", "--drive", "mx100-256"]);
    assert_eq!((done.status, done.out.as_str()), (2, ""));
    assert!(
        done.err.contains("load.blktrace.0: at byte 64: "),
        "{}",
        done.err
    );
}

/// A trace in MSR's form with this many random reads a second, for two seconds.
fn random_reads(per_second: u64) -> String {
    let mut text = String::new();
    for n in 0..2 * per_second {
        let ticks = 128_166_372_000_000_000 + n * 10_000_000 / per_second;
        let offset = n * 2_654_435_761 % 15_000_000 * 4096;
        text += &format!("{ticks},host,0,Read,{offset},4096,100\n");
    }
    text
}

#[test]
fn a_replay_at_the_traces_times_is_judged_by_latency_and_an_overload_is_told() {
    let place = Place::new();
    let compare = |per_second, speed: &str| {
        place.file("t.csv", &random_reads(per_second));
        let args = ["replay", "t.csv", "--drive", "hdd-7200", "--repeats", "2"];
        let args = [
            &args[..],
            &["--schedulers", "none,mq-deadline", "--speed", speed],
        ]
        .concat();
        place.blklab(&args).ok().out
    };
    let (calm, overloaded) = (compare(20, "1"), compare(500, "1"));
    for out in [&calm, &overloaded] {
        assert!(!out.contains("bandwidth ("), "{out}");
        assert!(!out.contains("bandwidth and"), "{out}");
    }
    let falls_behind = "the drive falls behind the trace";
    assert!(!calm.contains(falls_behind), "{calm}");
    assert!(overloaded.contains(falls_behind), "{overloaded}");
    let (_, advised) = overloaded.split_once("--speed ").expect("a speed");
    let advised = advised.split_whitespace().next().expect("a number");
    let slow = compare(500, advised);
    assert!(!slow.contains(falls_behind), "{slow}");
}

/// The repeats of a replay are of one recording: they differ as chance in its timing does.
#[test]
fn repeats_of_a_replay_differ_and_say_what_they_tell() {
    let place = Place::new();
    place.file("t.csv", &random_reads(300));
    let args = ["replay", "t.csv", "--drive", "hdd-7200", "--repeats", "3"];
    let json = place.json(&[&args[..], &["--schedulers", "none,bfq"]].concat());
    let notes = json["notes"].to_string();
    assert!(notes.contains("the runs replay one recording"), "{notes}");
    let row = &json["sections"][0]["directions"][0]["rows"][0];
    let means = row["repeats"]["latency_mean_ns"].as_array().expect("runs");
    assert!(means[0] != means[1] && means[1] != means[2], "{means:?}");
    let once = place.json(&[&args[..4], &["--repeats", "1"]].concat());
    assert!(!once["notes"].to_string().contains("one recording"));
}
