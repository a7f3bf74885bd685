//! Fairness and start-up: what a program waits for among others, and whether
//! shares follow weights.

use crate::support::Place;
use serde_json::Value;

/// A job that comes with the program, on a drive, compared.
fn compare(job: &str, drive: &str, schedulers: &str) -> Value {
    compare_on("server-8", job, drive, schedulers)
}

fn compare_on(machine: &str, job: &str, drive: &str, schedulers: &str) -> Value {
    let args = [
        "compare",
        job,
        "--drive",
        drive,
        "--machine",
        machine,
        "--schedulers",
        schedulers,
        "--repeats",
        "1",
        "--output-format",
        "json",
    ];
    let done = Place::new().blklab(&args).ok();
    done.json()
}

/// A column of the table of processes, one figure a scheduler.
fn column(comparison: &Value, job: Option<&str>, metric: &str) -> Vec<f64> {
    let columns = comparison["sections"][0]["processes"].as_array();
    let same = |f: &&Value| {
        f["column"]["job"].as_str() == job && f["column"]["metric"].as_str() == Some(metric)
    };
    let found = columns.expect("a table").iter().find(same);
    let found = found.unwrap_or_else(|| panic!("no {metric} of {job:?}: {comparison:#}"));
    let cells = found["cells"].as_array().expect("cells").iter();
    cells
        .map(|cell| cell["value"]["mean"].as_f64().expect("a figure"))
        .collect()
}

/// A column of times, of which those that had not ended with the run are longer
/// than any.
fn times(comparison: &Value, job: &str) -> Vec<f64> {
    let mut comparison = comparison.clone();
    let columns = comparison["sections"][0]["processes"].as_array_mut();
    for column in columns.expect("a table") {
        for cell in column["cells"].as_array_mut().expect("cells") {
            if cell["value"]["mean"].as_f64().is_none() {
                *cell = serde_json::json!({ "value": { "mean": f64::MAX } });
            }
        }
    }
    column(&comparison, Some(job), "duration_ns")
}

/// bfq's authors' claim, and the reason for which it is there.
#[test]
fn a_program_starts_sooner_under_bfq_than_under_mq_deadline() {
    for drive in ["hdd-7200", "mx100-256"] {
        for job in ["startup/10-writers", "startup/5-readers-5-writers"] {
            let all = compare(job, drive, "mq-deadline,bfq");
            let took = times(&all, "program");
            assert!(
                took[1] < took[0] / 4.0,
                "{job} on {drive}: mq-deadline {} ns, bfq {} ns",
                took[0],
                took[1]
            );
        }
    }
}

/// What it takes alone is the least it can take.
#[test]
fn among_others_no_program_starts_sooner_than_alone() {
    let alone = compare("startup/alone", "hdd-7200", "mq-deadline,bfq,cfq");
    let among = compare("startup/10-readers", "hdd-7200", "mq-deadline,bfq,cfq");
    let took = |all| times(all, "program");
    for (alone, among) in took(&alone).iter().zip(took(&among)) {
        assert!(among > 0.95 * alone, "{among} ns against {alone} ns");
    }
}

#[test]
fn cfq_gives_equal_readers_equal_shares_of_a_disk_and_more_of_it() {
    let all = compare("fairness/readers", "hdd-7200", "noop,cfq");
    let index = column(&all, None, "jain_index");
    assert!(index[1] > 0.95, "{index:?}");
    let got = column(&all, Some("reader-1"), "bandwidth_bytes_per_s");
    // A disk that reads ahead for each before it turns to the next does part of it.
    assert!(got[1] > 3.0 * got[0], "{got:?}");
}

/// One keeps sixteen times as many requests under way as the others. Who counts
/// requests gives it that much more; who counts processes does not.
#[test]
fn a_greedy_process_gains_less_under_bfq() {
    let all = compare("fairness/greedy", "hdd-7200", "mq-deadline,bfq");
    let index = column(&all, None, "jain_index");
    assert!(index[1] > index[0] + 0.2, "{index:?}");
}

/// Levels 0, 4 and 7 weigh 80, 40 and 10 in bfq.
#[test]
fn bfq_s_shares_follow_priorities() {
    for drive in ["hdd-7200", "mx100-256"] {
        let all = compare("fairness/ioprio", drive, "mq-deadline,bfq");
        let index = column(&all, None, "jain_index");
        assert!(index[0] < 0.7 && index[1] > 0.9, "{drive}: {index:?}");
    }
}

/// A reader and a writer that have more requests than tags to share: who sleeps for a tag keeps
/// to the depth that bfq told it, and writes are told less than reads. What Linux 6.12 gives
/// them on `null_blk` is in tests/data/bfq-shares.
#[test]
fn bfq_gives_a_writer_beside_a_reader_what_the_kernel_s_does() {
    let place = Place::new();
    for (depth, request_us, strict, real) in [
        (64, 2000, 0, [10955.0, 4068.0]),
        (4, 2000, 1, [248.0, 248.0]),
        (32, 2000, 1, [386.0, 111.0]),
        (32, 5500, 1, [147.0, 34.0]),
    ] {
        let drive = format!(
            "description = \"x\"\ninterface = \"null\"\nmodel = \"null\"\n[host]\n\
             capacity_bytes = 10737418240\nqueue_depth = 32\n[timing]\n\
             read_ns = {request_us}000\nwrite_ns = {request_us}000\nflush_ns = 100\n\
             parallelism = 32\n"
        );
        place.file("slow.toml", &drive);
        let job = format!(
            "[global]\nfilename=/dev/x\ndirect=1\nioengine=libaio\nbs=4k\nnorandommap\n\
             iodepth={depth}\nramp_time=6\nruntime=7\ntime_based\n\
             [reader]\nrw=randread\n[writer]\nrw=randwrite\n"
        );
        place.file("both.fio", &job);
        let strict = format!("bfq.strict_guarantees={strict}");
        let run = ["run", "both.fio", "--drive", "slow.toml"];
        let under = ["--scheduler", "bfq", "--set", strict.as_str()];
        let json = place.json(&[&run[..], &under].concat());
        let ours = [(0, "read"), (1, "write")]
            .map(|(job, direction)| json["jobs"][job][direction]["iops"].as_f64());
        for (ours, real) in ours.into_iter().zip(real) {
            let ours: f64 = ours.expect("IOPS");
            assert!(
                (0.67..1.5).contains(&(ours / real)),
                "{job}: {ours}, {real}"
            );
        }
    }
}

/// Slices of 180, 100 and 40 ms for levels 0, 4 and 7, which only a queue has
/// that is waited for: requests that merge while they wait must not seem to seek.
#[test]
fn cfq_s_shares_follow_priorities_on_a_disk() {
    let all = compare("fairness/ioprio", "hdd-7200", "mq-deadline,cfq");
    let index = column(&all, None, "jain_index");
    assert!(index[0] < 0.7 && index[1] > 0.98, "{index:?}");
}

/// A group of weight 300 with one reader, one of weight 100 with three. Who has
/// no groups says so.
#[test]
fn shares_follow_the_weights_of_groups() {
    for drive in ["hdd-7200", "mx100-256"] {
        let all = compare_on(
            "generic-8",
            "fairness/cgroups",
            drive,
            "mq-deadline,bfq,cfq",
        );
        let index = column(&all, None, "jain_index");
        assert!(index[0] < 0.85 && index[1] > 0.99, "{drive}: {index:?}");
        assert!(index[2] > 0.98, "{drive}: {index:?}");
        let of_job = |job| column(&all, Some(job), "bandwidth_bytes_per_s");
        let light = ["light-1", "light-2", "light-3"].map(of_job);
        for scheduler in [1, 2] {
            let light: f64 = light.iter().map(|got| got[scheduler]).sum();
            let ratio = of_job("heavy")[scheduler] / light;
            assert!((2.6..3.4).contains(&ratio), "{drive}: {ratio}");
        }
        let notes = all["sections"][0]["notes"].to_string() + &all["notes"].to_string();
        assert!(
            notes.contains("mq-deadline has no control groups"),
            "{notes}"
        );
        assert!(!notes.contains("bfq has no control groups"), "{notes}");
    }
}

/// A drive that has room for all 32 requests at once, 30 ms each. Linux 6.12.117 on
/// null_blk like that gave the group of weight 300 208 I/Os a second, and the three
/// readers of the other group 20, 13 and 11: who has more requests than its share may use
/// one tag only (`bfqq_request_over_limit`).
#[test]
fn a_group_over_its_share_starves_under_bfq_as_in_the_kernel() {
    let place = Place::new();
    place.file(
        "null.toml",
        "description = \"30 ms\"\ninterface = \"null\"\nmodel = \"null\"\n\
         [host]\ncapacity_bytes = 100000000000\nqueue_depth = 32\nqueues = 1\n\
         max_transfer_kb = 1280\nmax_segments = 128\n\
         [timing]\nread_ns = 30000000\nwrite_ns = 30000000\nflush_ns = 0\nparallelism = 32\n",
    );
    let args = [
        "run",
        "fairness/cgroups",
        "--drive",
        "null.toml",
        "--scheduler",
        "bfq",
        "--nr-requests",
        "64",
        "--override",
        "runtime=7",
        "--output-format",
        "json",
    ];
    let all = place.blklab(&args).ok().json();
    let iops = |job: usize| all["jobs"][job]["read"]["iops"].as_f64().expect("a rate");
    assert!((180.0..267.0).contains(&iops(0)), "{}", iops(0));
    for light in 1..4 {
        assert!(iops(light) < 60.0, "{light}: {}", iops(light));
    }
}

/// Document 003: somebody who reads beside write-back is a fifth faster or more
/// under deadline than under noop.
#[test]
fn deadline_serves_a_reader_beside_write_back_better_than_noop() {
    let place = Place::new();
    place.file(
        "beside.fio",
        "[global]\nfilename=/dev/hdd\nsize=1G\nioengine=libaio\ndirect=1\nruntime=20\n\
         time_based\n[writers]\nrw=randread\nbs=4k\n\
         [write-back]\nrw=randwrite\nbs=12k\niodepth=128\n",
    );
    let job = place.path("beside.fio");
    let all = compare(
        &job.to_string_lossy(),
        "hdd-7200",
        "noop,deadline,mq-deadline",
    );
    let reads = column(&all, Some("writers"), "bandwidth_bytes_per_s");
    for better in &reads[1..] {
        assert!(*better > 1.2 * reads[0], "{reads:?}");
    }
    let writes = column(&all, Some("write-back"), "bandwidth_bytes_per_s");
    assert!(writes[1] > 0.95 * writes[0], "{writes:?}");
}

/// One process keeps all tags taken, and each of the others needs one now and
/// then. Those that are woken together each take one before the greedy one can
/// come back for the rest, as threads on CPUs of their own do.
#[test]
fn without_a_scheduler_nobody_starves_for_tags() {
    let all = compare("fairness/greedy", "mx100-256", "none,noop");
    let greedy = column(&all, Some("greedy"), "bandwidth_bytes_per_s");
    for job in ["modest-1", "modest-2", "modest-3"] {
        let modest = column(&all, Some(job), "bandwidth_bytes_per_s");
        // Their depths are as 1 to 16.
        assert!(modest[0] > greedy[0] / 16.0, "{modest:?} of {greedy:?}");
        assert!(modest[1] > greedy[1] / 20.0, "{modest:?} of {greedy:?}");
    }
}

/// Who reads one page at a time waits less under ac2 than under others, and costs
/// those who want throughput nothing.
#[test]
fn a_light_reader_beside_others_waits_least_under_ac2() {
    for job in ["latency/beside-32-readers", "latency/beside-8-writers"] {
        let all = compare(job, "mx100-256", "ac2,none,noop,mq-deadline");
        let figures = |section: usize, metric: &str| -> Vec<f64> {
            let rows = &all["sections"][section]["directions"][0]["rows"];
            let rows = rows.as_array().expect("rows").iter();
            rows.map(|row| row["cells"][metric]["value"]["mean"].as_f64())
                .map(|mean| mean.expect("a figure"))
                .collect()
        };
        let throughput = figures(0, "bandwidth_bytes_per_s");
        let waits = figures(1, "latency_p99_ns");
        for other in 1..waits.len() {
            assert!(waits[0] < waits[other], "{job}: {waits:?}");
            assert!(throughput[0] > 0.98 * throughput[other], "{throughput:?}");
        }
    }
}

/// Kyber holds writes back until nine reads of ten are in time (its heuristics:
/// the 90th percentile against the target), and not where they are anyway.
#[test]
fn kyber_reaches_its_target_by_holding_writes_back() {
    let job = "[global]\nfilename=/dev/x\ndirect=1\nioengine=libaio\nbs=4k\nnorandommap\n\
               runtime=1\ntime_based\nramp_time=1\n\
               [reader]\nrw=randread\niodepth=8\n\
               [writer]\nrw=randwrite\niodepth=128\nnumjobs=4\ngroup_reporting\nnew_group\n";
    let place = Place::new();
    place.file("both.fio", job);
    // The 90th percentile of reads in microseconds, and writes a second.
    let run = |target_ns: u32| {
        let target = format!("kyber.read_lat_nsec={target_ns}");
        let args = "run both.fio --drive 980pro-1tb --machine xeon-10core --scheduler kyber \
                    --output-format json --set kyber.write_lat_nsec=100000000 --set";
        let mut args: Vec<&str> = args.split_whitespace().collect();
        args.push(&target);
        let json = place.blklab(&args).ok().json();
        let (reads, writes) = (&json["jobs"][0]["read"], &json["jobs"][1]["write"]);
        let p90_ns = reads["clat_ns"]["percentile"]["90.000000"].as_f64();
        let figures = p90_ns.zip(writes["iops"].as_f64());
        let (p90_ns, writes) = figures.expect("figures");
        (p90_ns / 1e3, writes)
    };
    let (free_us, free_writes) = run(2_000_000);
    let (held_us, held_writes) = run(1_000_000);
    assert!((1_100.0..2_000.0).contains(&free_us), "{free_us} us");
    assert!(held_us < 1_050.0, "{held_us} us");
    assert!(
        held_writes < 0.8 * free_writes,
        "{held_writes} of {free_writes}"
    );
}
