//! Tests whole jobs, from text to [`JobFile`].

use blklab_workload::fio::*;

use super::{job as one, parse};

/// Parses a job file in which `${DEPTH}` is 16.
fn parse_with_depth(text: &str) -> Result<JobFile, JobError> {
    let environment = |name: &str| (name == "DEPTH").then(|| "16".to_string());
    parse_str(
        "t.fio",
        text,
        &environment,
        &|_, name| Err(name.to_string()),
    )
}

fn refused(options: &str) -> String {
    match parse(&format!("[a]\n{options}\n")) {
        Ok(file) => panic!("accepted {options}: {:?}", file.jobs),
        Err(error) => error.to_string(),
    }
}

#[test]
fn fios_defaults() {
    let job = one("");
    assert_eq!(job.name, "a");
    assert_eq!(job.pattern, Pattern::Read);
    assert_eq!(job.engine, Engine::Psync);
    assert_eq!(job.block_sizes.write.max_bytes, 4096);
    assert_eq!(
        (job.io_depth, job.batch_submit, job.io_depth_low),
        (1, 1, 1)
    );
    assert_eq!(job.file_names(0), ["a.0.0"]);
    assert_eq!(job.percentiles.len(), 17);
    assert!(!job.direct && job.random_repeatable && !job.no_random_map);
}

#[test]
fn globals_hand_down_and_jobs_override() {
    let file = parse_with_depth(
        "[global]\nbs=8k\niodepth=${DEPTH}\nioengine=libaio\ndirect=1\n\
         [a]\nrw=randread\n[global]\nbs=16k\n[b]\nrw=write\niodepth=2\n",
    )
    .unwrap();
    let [a, b] = &file.jobs[..] else { panic!() };
    assert_eq!((a.block_sizes.read.min_bytes, a.io_depth), (8192, 16));
    assert_eq!((b.block_sizes.read.min_bytes, b.io_depth), (16384, 2));
    assert_eq!(a.engine, Engine::Libaio);
    assert_eq!(a.options, [("rw".to_string(), "randread".to_string())]);
    assert_eq!(file.global_options[1], ("iodepth".into(), "16".into()));
    assert!(file.notes.is_empty(), "{:?}", file.notes);
}

#[test]
fn units_first_and_names_last() {
    let job = one("filename=x\nsize=1k\nbs=512\ndirectory=/d\nkb_base=1000");
    assert_eq!(job.size, Some(Extent::Bytes(1000)));
    assert_eq!(job.file_names(3), ["/d/x"]);
}

#[test]
fn patterns_and_their_suffixes() {
    let job = one("rw=randread:8");
    assert_eq!((job.pattern, job.random_every), (Pattern::RandRead, 8));
    let job = one("readwrite=write:-4k");
    assert_eq!(job.sequential_step_bytes, -4096);
    assert_eq!(one("rw=randrw\nrwmixwrite=30").read_percent, 70);
    assert!(refused("rw=randread:0").contains("such as rw=randread:8"));
    let error = refused("rw=randred");
    assert_eq!(
        error,
        "t.fio:2: rw=randred: `randred` is not one of its values; fio 3.33 knows read, write, trim, \
         randread, randwrite, randtrim, rw, readwrite, randrw, trimwrite, randtrimwrite; \
         did you mean randread?"
    );
}

#[test]
fn blocks() {
    let job = one("bs=4k,8k,");
    assert_eq!(job.block_sizes.read.min_bytes, 4096);
    assert_eq!(job.block_sizes.write.min_bytes, 8192);
    assert_eq!(job.block_sizes.trim.min_bytes, 4096);
    let job = one("bsrange=4k-64k,512-1k");
    assert_eq!(job.block_sizes.read.max_bytes, 65536);
    assert_eq!(job.block_sizes.trim.max_bytes, 1024);
    let job = one("bssplit=4k/60:64k/40,8k");
    assert_eq!(job.block_sizes.read.split, [(65536, 40), (4096, 60)]);
    assert_eq!(job.block_sizes.read.min_bytes, 4096);
    assert_eq!(job.block_sizes.write.max_bytes, 8192);
    let job = one("rw=randread\nba=512");
    assert!(job.no_random_map && job.align_bytes.read == 512);
    assert!(!one("rw=read\nba=512").no_random_map);
}

#[test]
fn depths_fit_one_another() {
    let job = one(
        "ioengine=libaio\niodepth=8\niodepth_batch=16\niodepth_low=99\niodepth_batch_complete=4",
    );
    assert_eq!((job.batch_submit, job.io_depth_low), (8, 8));
    assert_eq!((job.batch_complete_min, job.batch_complete_max), (4, 4));
}

#[test]
fn files() {
    let job = one("filename=/dev/sda:/dev/sdb\nnrfiles=5");
    assert_eq!(job.file_names(0), ["/dev/sda", "/dev/sdb"]);
    let job = one(r"filename=a\:b");
    assert_eq!(job.file_names(0), ["a:b"]);
    let job = one("nrfiles=2\nfilename_format=$jobname-$filenum\nname=other");
    assert_eq!(job.file_names(1), ["a-0", "a-1"]);
    assert_eq!(job.name, "other");
    // Names add up, as in fio.
    let file = parse("[global]\nfilename=A\n[x]\nfilename=B:C\n").unwrap();
    assert_eq!(file.jobs[0].file_names(0), ["A", "B", "C"]);
}

#[test]
fn distributions() {
    let zipf = |text: &str| one(&format!("rw=randread\nrandom_distribution={text}"));
    assert_eq!(
        zipf("zipf").distribution,
        Distribution::Popularity(Popularity {
            curve: PopularityCurve::Zipf { theta: 1.1 },
            center: None
        })
    );
    assert_eq!(
        zipf("pareto:0.9:0.5").distribution,
        Distribution::Popularity(Popularity {
            curve: PopularityCurve::Pareto { h: 0.9 },
            center: Some(0.5)
        })
    );
    assert!(zipf("normal:20").no_random_map);
    let Distribution::Zoned(zones) = zipf("zoned:60/10:40/90,100/5").distribution else {
        panic!()
    };
    assert_eq!(zones.read.len(), 2);
    assert_eq!(zones.write[0].size, 5);
    for text in [
        "zipf:1",
        "zipf:x",
        "pareto:1.5",
        "normal:100",
        "zoned",
        "zoned:50/5",
        "random:3",
        "zipf:1.2:2",
    ] {
        refused(&format!("random_distribution={text}"));
    }
}

#[test]
fn engine_options_need_their_engine() {
    let job = one("cmdprio_percentage=20,30\ncmdprio=3\nioengine=io_uring\nhipri\nrw=randrw");
    assert!(job.polled);
    assert_eq!(
        job.command_priority.write,
        [CommandPrioritySplit {
            block_bytes: None,
            percent: 30,
            priority: Priority { class: 1, level: 3 }
        }]
    );
    assert!(refused("cmdprio=3").contains("an option of libaio, io_uring"));
    assert!(refused("ioengine=libaoi").contains("did you mean libaio?"));
    // Options of another engine are not inherited.
    let file =
        parse("[global]\nioengine=libaio\ncmdprio_percentage=10\n[a]\nioengine=io_uring\n[b]\n")
            .unwrap();
    assert!(file.jobs[0].command_priority.read.is_empty());
    assert_eq!(file.jobs[1].command_priority.read.len(), 1);
}

#[test]
fn priorities_without_a_class_are_best_effort() {
    assert_eq!(
        one("prio=4").priority,
        Some(Priority { class: 2, level: 4 })
    );
    assert_eq!(
        one("prioclass=3").priority,
        Some(Priority { class: 3, level: 0 })
    );
    assert_eq!(one("").priority, None);
}

#[test]
fn times() {
    let job = one("runtime=10\nramp_time=500ms\nstartdelay=2-4\nthinktime=1ms\nthinktime_spin=2ms");
    assert_eq!((job.runtime_us, job.ramp_us), (10_000_000, 500_000));
    assert_eq!(job.start_delay_us, (2_000_000, 4_000_000));
    assert_eq!((job.think.pause_us, job.think.spin_us), (1000, 1000));
    assert!(!job.think.blocks_given);
}

#[test]
fn groups_and_waiting() {
    let file = parse("[a]\n[b]\n[c]\nstonewall\n[d]\nnew_group=1\nwait_for=a\n").unwrap();
    let groups: Vec<_> = file.jobs.iter().map(|job| job.group).collect();
    assert_eq!(groups, [0, 0, 1, 2]);
    assert!(parse("[a]\nwait_for=b\n[b]\n").is_err());
    assert!(parse("[a]\nwait_for=a\n").is_err());
    assert!(parse("[a]\n[a]\n[c]\nwait_for=a\n").is_err());
    // One job waits for itself by its other name, the other for one that waits for it behind a
    // stonewall.
    for wrong in [
        "[x]\n[y]\nname=x\nwait_for=x\n",
        "[y]\nname=x\nwait_for=x\n",
        "[a]\n[b]\nwait_for=a\n[a]\nstonewall\n",
    ] {
        let error = parse(wrong).unwrap_err().to_string();
        assert!(error.contains("wait_for="), "{wrong}: {error}");
    }
    let file = parse("[x]\nname=a\n[b]\nwait_for=a\n").unwrap();
    assert_eq!(file.jobs[1].wait_for, Some(0));
}

#[test]
fn notes_list_each_option_once() {
    let file = parse(
        "[a]\nverify=md5\nunique_filename=1\nwrite_barrier=8\nbuffered=1\n[b]\nverify=md5\niodepth=4\n",
    )
    .unwrap();
    let notes: Vec<_> = file.notes.iter().map(Note::to_string).collect();
    assert_eq!(
        notes,
        [
            "b: ioengine=psync is synchronous: iodepth=4 has the effect of 1",
            "options that are not simulated and are left out: write_barrier",
            "options that mean nothing in a simulation: unique_filename",
        ]
    );
}

#[test]
fn options_that_would_change_the_io_are_not_called_meaningless() {
    let text = "[a]\ndirect=1\nioengine=io_uring\nopendir=d\nfixedbufs\nregisterfiles=1\n\
                trim_percentage=10\ntrim_backlog=8\n";
    let notes = parse(text).unwrap().notes;
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert_eq!(
        notes[0].text,
        "options that are not simulated and are left out: opendir, trim_percentage, \
         trim_backlog"
    );
    let off = "[a]\ndirect=1\nverify=0\nverify_backlog=0\ntrim_percentage=0\nfill_device=0\n";
    assert!(parse(off).unwrap().notes.is_empty());
}

#[test]
fn options_of_profiles_are_taken_but_not_suggested() {
    let file = parse("[a]\nthreads=1\ndirect=1\n").unwrap();
    assert!(file.notes[0].text.ends_with(": threads"));
    assert!(refused("thraed=1").contains("did you mean thread?"));
}

#[test]
fn what_fio_refuses_is_refused() {
    for (options, about) in [
        ("size=2k", "one block"),
        ("rate=1m\nrate_iops=100", "rate_iops=100"),
        ("rate=1m\nrate_min=2m", "minimum"),
        ("numjobs=0", "numjobs"),
        ("zonesize=1m", "zonemode"),
        ("direct=1\nbs=1000", "direct I/O needs"),
        ("direct=1\nrw=randread\nba=100", "512"),
        ("direct=1\nrw=read:100", "512"),
        ("direct=1\noffset=100", "512"),
        ("rw=randtrim\nbs=1000", "a trim needs"),
        ("rw=write\nbs=1000\nverify=md5", "512"),
        ("direct=1\nbs=4KiB", "kb_base=1000"),
        ("size=${UNSET}", "set the variable"),
        ("rwmixcycle=5", "no longer"),
        ("iodepht=4", "did you mean iodepth?"),
        ("size", "needs a value"),
        ("direct=", "needs a value"),
        ("percentile_list=1:101", "out of range"),
        ("steadystate=iops", "threshold"),
        ("bssplit=4k/x", "share"),
        ("cpus_allowed=3-1", "backwards"),
        ("include nofile", "nofile"),
    ] {
        let error = refused(options);
        assert!(error.contains(about), "{error}");
        assert!(error.starts_with("t.fio:"), "{error}");
    }
    assert!(parse("[global]\nbs=4k\n").is_err());
    assert!(parse("").is_err());
}

fn args(line: &str) -> Result<JobFile, JobError> {
    let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
    parse_args(&words, &|_| None)
}

#[test]
fn the_command_line() {
    let file =
        args("--direct=1 --bs 8k --name=a --rw=randread --norandommap -name b --runt=3").unwrap();
    let [a, b] = &file.jobs[..] else { panic!() };
    assert!(a.direct && b.direct && a.no_random_map && !b.no_random_map);
    assert_eq!(b.block_sizes.read.min_bytes, 8192);
    assert_eq!(b.runtime_us, 3_000_000);
    assert_eq!(file.global_options.len(), 2);
    for (line, about) in [
        ("--name=a --rand=3", "several options"),
        ("--name=a --iodpeth=3", "did you mean iodepth?"),
        ("--name=a --rw", "needs a value"),
        ("--name=a --rw=rnadread", "--rw"),
        ("--bs=4k", "no job"),
        ("--name=a --stats=0", "no job counts in the results"),
        ("--name=a --readonly --rw=write", "readonly"),
        ("/no/such/file.fio", "/no/such/file.fio: cannot be read"),
    ] {
        let error = args(line).unwrap_err().to_string();
        assert!(error.contains(about) || about == "--rw", "{error}");
    }
}

#[test]
fn what_nothing_reads_is_noted_as_not_simulated() {
    let file = parse("[a]\nioengine=io_uring\nsqthread_poll_cpu=1\nreplay_skip=trim\n").unwrap();
    let note = "options that are not simulated and are left out";
    let notes = file.notes.iter().map(|note| note.text.as_str());
    let left_out: String = notes.filter(|text| text.starts_with(note)).collect();
    for option in ["sqthread_poll_cpu", "replay_skip"] {
        assert!(left_out.contains(option), "{option}: {left_out}");
    }
}

#[test]
fn fewer_open_files_are_refused_where_fio_waits_or_fails() {
    for (options, about) in [
        (
            "rw=write\nverify=md5\nverify_backlog=2\nopenfiles=1",
            "openfiles=1: fio opens a file again",
        ),
        (
            "ioengine=io_uring\nregisterfiles\nopenfiles=2",
            "openfiles=2: registerfiles needs all",
        ),
        (
            "zonemode=strided\nzonesize=64k\nopenfiles=1",
            "zonemode=strided: fio's zones",
        ),
    ] {
        let job = |files: &str| parse(&format!("[a]\nsize=1m\n{files}\n{options}\n"));
        let error = job("nrfiles=3").unwrap_err().to_string();
        assert!(error.contains(about), "{error}");
        assert!(job("nrfiles=1").is_ok(), "{options}");
    }
}
