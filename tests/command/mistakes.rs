//! A user's mistake is one message that says what would be right, exit status
//! 2, and nothing half-written.

use crate::support::{MIXED, Place};

/// Runs the command, which must refuse, and gives the message.
fn refused(place: &Place, args: &[&str]) -> String {
    let before = place.files();
    let done = place.blklab(args);
    assert_eq!(done.status, 2, "{args:?}\n{}\n{}", done.out, done.err);
    assert!(done.out.is_empty(), "{args:?} printed {}", done.out);
    assert_eq!(done.err.lines().count(), 1, "{args:?}: {}", done.err);
    assert_eq!(place.files(), before, "{args:?} left files behind");
    done.err
}

fn says(message: &str, pieces: &[&str]) {
    for piece in pieces {
        assert!(message.contains(piece), "no {piece:?} in: {message}");
    }
}

#[test]
fn an_unknown_option_names_line_and_neighbour() {
    let place = Place::new();
    place.file(
        "bad.fio",
        "[a]\nfilename=/dev/x\nrw=randread\nblocksze=4k\n",
    );
    says(
        &refused(&place, &["run", "bad.fio"]),
        &["bad.fio:4", "blocksze", "blocksize"],
    );
}

#[test]
fn a_bad_value_names_what_would_be_right() {
    let place = Place::new();
    place.file("bad.fio", "[a]\nfilename=/dev/x\nrw=randred\n");
    says(
        &refused(&place, &["compare", "bad.fio"]),
        &["bad.fio:3", "randred", "randread"],
    );
}

#[test]
fn an_engine_that_is_not_simulated_is_refused() {
    let place = Place::new();
    place.file(
        "splice.fio",
        "[a]\nfilename=/dev/x\nrw=read\nioengine=splice\nsize=1m\n",
    );
    says(
        &refused(&place, &["run", "splice.fio"]),
        &["splice.fio:4: job a: ioengine=splice", "--engine-as libaio"],
    );
    let done = place
        .blklab(&["run", "splice.fio", "--engine-as", "psync"])
        .ok();
    says(&done.err, &["ioengine=splice runs as psync"]);
    let args = ["run", "splice.fio", "--engine-as", "rbd"];
    says(
        &refused(&place, &args),
        &["--engine-as rbd", "right is one of", "libaio"],
    );
}

#[test]
fn an_option_that_changes_the_work_is_refused_unless_lenient() {
    let place = Place::new();
    let job = |options: &str| {
        let job = format!("[a]\nfilename=/dev/x\ndirect=1\nnumber_ios=8\n{options}\n");
        place.file("job.fio", &job);
    };
    for option in ["opendir=d", "pre_read=1", "fill_device=1", "profile=act"] {
        job(option);
        let message = refused(&place, &["run", "job.fio"]);
        let start = format!("job.fio:5: {option}: fio 3.33 would");
        says(&message, &[start.as_str(), "not simulated", "--lenient"]);
        let done = place.blklab(&["run", "job.fio", "--lenient"]).ok();
        assert!(done.err.contains("left out"), "{option}: {}", done.err);
    }
    for off in [
        "zonemode=none\npre_read=0",
        "rw=write\nverify=md5",
        "write_bw_log=x",
    ] {
        job(off);
        place.blklab(&["run", "job.fio"]).ok();
    }
}

#[test]
fn unknown_names_come_with_the_nearest() {
    let place = Place::new();
    place.file("ok.fio", MIXED);
    let cases: [(&[&str], &[&str]); 6] = [
        (
            &["run", "ok.fio", "--scheduler", "mq-dedline"],
            &["mq-dedline", "mq-deadline"],
        ),
        (
            &["run", "ok.fio", "--drive", "mx100"],
            &["mx100", "mx100-256"],
        ),
        (
            &["run", "ok.fio", "--machine", "generic"],
            &["generic", "generic-8"],
        ),
        (
            &["run", "thesis/randrd"],
            &["thesis/randrd", "thesis/randread"],
        ),
        (&["show", "scheduler", "deadlin"], &["deadlin", "deadline"]),
        (&["show", "drive", "nul"], &["nul", "null"]),
    ];
    for (args, pieces) in cases {
        says(&refused(&place, args), pieces);
    }
}

#[test]
fn tunables_are_checked_before_anything_runs() {
    let place = Place::new();
    place.file("ok.fio", MIXED);
    let refuse = |set: &str| {
        let args = [
            "compare",
            "ok.fio",
            "--schedulers",
            "none,mq-deadline",
            "--set",
            set,
            "--html",
            "page.html",
        ];
        refused(&place, &args)
    };
    says(
        &refuse("mq-deadline.fifo_bach=1"),
        &["fifo_bach", "fifo_batch"],
    );
    says(
        &refuse("mq-deadline.front_merges=7"),
        &["7", "takes 0 or 1"],
    );
    says(&refuse("mq-deadline.fifo_batch=many"), &["many"]);
    says(&refuse("fifo_batch=1"), &["scheduler.tunable=value"]);
    says(&refuse("kyberr.x=1"), &["kyberr"]);
    says(&refuse("ac.channels=4"), &["ac", "not among"]);
}

#[test]
fn a_broken_drive_names_file_line_and_key() {
    let place = Place::new();
    let text = place.blklab(&["show", "drive", "null"]).ok().out;
    place.file("ok.fio", MIXED);
    place.file("mine.toml", &format!("nonsense = 1\n{text}"));
    let args = ["run", "ok.fio", "--drive", "mine.toml"];
    says(&refused(&place, &args), &["mine.toml:1", "nonsense"]);
    place.file("worse.toml", "[[[");
    let args = ["run", "ok.fio", "--drive", "worse.toml"];
    says(&refused(&place, &args), &["worse.toml:1"]);
}

/// The descriptions' own tests give every key every mistake; here each key gets
/// one, and the command has to end with it.
#[test]
fn a_number_with_its_unit_is_refused_whatever_the_key() {
    let place = Place::new();
    place.file("ok.fio", MIXED);
    for (kind, name) in [
        ("drive", "980pro-1tb"),
        ("drive", "hdd-7200"),
        ("machine", "vm-2cpu"),
    ] {
        let text = place.blklab(&["show", kind, name]).ok().out;
        let lines: Vec<&str> = text.lines().collect();
        let option = format!("--{kind}");
        for (at, line) in lines.iter().enumerate() {
            let Some((key, value)) = line.split_once(" = ") else {
                continue;
            };
            if key.contains('#') || value == "[" {
                continue;
            }
            let wrong = format!("{key} = 50us");
            let changed = [&lines[..at], &[wrong.as_str()], &lines[at + 1..]].concat();
            place.file("mine.toml", &changed.join("\n"));
            let message = refused(&place, &["run", "ok.fio", &option, "mine.toml"]);
            says(&message, &[&format!("mine.toml:{}: `", at + 1)]);
            says(&message, &[key, "`: found 50us, legal is "]);
        }
    }
}

#[test]
fn a_broken_trace_names_its_line() {
    let place = Place::new();
    place.file("t.trace", "0 0 100 8 1\n1000 0 200 8 7\n");
    says(&refused(&place, &["run", "t.trace"]), &["t.trace:2", "7"]);
}

#[test]
fn results_go_whole_or_not_at_all() {
    let place = Place::new();
    place.file("ok.fio", MIXED);
    let args = ["run", "ok.fio", "--output", "no/such/folder.json"];
    says(&refused(&place, &args), &["no/such/folder.json"]);
}

#[test]
#[cfg(unix)]
fn a_link_stays_and_rights_are_kept() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let place = Place::new();
    place.file("ok.fio", MIXED).file("private", "old");
    let rights = |name: &str| {
        let found = place.path(name).metadata().expect("is there");
        found.permissions().mode() & 0o777
    };
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(place.path("private"), private).expect("one's own file");
    symlink("private", place.path("link")).expect("a link");
    symlink("new", place.path("dangling")).expect("a link");
    for name in ["link", "dangling"] {
        place.blklab(&["run", "ok.fio", "--output", name]).ok();
        let kind = place.path(name).symlink_metadata().expect("is there");
        assert!(kind.is_symlink(), "{name}");
    }
    assert_eq!(rights("private"), 0o600);
    let written = std::fs::read_to_string(place.path("private")).expect("is there");
    assert!(written.contains("IOPS="), "{written}");
    // A file made by us has what any new file has.
    place.file("plain", "");
    assert_eq!(rights("new"), rights("plain"));
}

#[test]
fn a_folder_is_no_file_to_write() {
    let place = Place::new();
    place.file("ok.fio", MIXED);
    std::fs::create_dir(place.path("results")).expect("a folder");
    for args in [
        &["run", "ok.fio", "-o", "results"][..],
        &["run", "ok.fio", "--html", "results"],
        &["compare", "ok.fio", "-o", "results"],
        &["probe", "--drive", "null", "-o", "results"],
        &["probe", "--drive", "null", "--output-drive", "results"],
    ] {
        says(&refused(&place, args), &["results", "this is a folder"]);
    }
}

#[test]
fn a_count_that_is_too_large_is_told_as_a_count() {
    let place = Place::new();
    let args = ["run", "--", "--name=a", "--iodepth=99999999999999999999"];
    says(
        &refused(&place, &args),
        &["iodepth=", "too large", "1 to 4294967295"],
    );
}

#[test]
fn two_results_do_not_share_a_file() {
    let place = Place::new();
    place.file("ok.fio", MIXED);
    let args = ["compare", "ok.fio", "--html", "x", "--output", "x"];
    let expected = ["--output x", "--html writes that file too"];
    says(&refused(&place, &args), &expected);
    let args = ["run", "ok.fio", "--perfetto", "x", "--html", "x"];
    says(&refused(&place, &args), &["--html x", "--perfetto"]);
    let args = ["run", "ok.fio", "--html", "/dev/null", "-o", "/dev/null"];
    place.blklab(&args).ok();
}

#[test]
fn results_do_not_replace_what_is_read() {
    let place = Place::new();
    place.file("job.fio", MIXED);
    let same = place.path("./job.fio").display().to_string();
    for args in [
        &["compare", "job.fio", "-o", "job.fio"][..],
        &["compare", "job.fio", "--html", &same],
        &["run", "job.fio", "--perfetto", "job.fio"],
        &["run", "job.fio", "--drive", "job.fio", "-o", "job.fio"],
        &["report", "job.fio", "-o", "job.fio"],
    ] {
        says(&refused(&place, args), &["job.fio", "reads that file"]);
    }
    let text = std::fs::read_to_string(place.path("job.fio")).expect("it is there");
    assert_eq!(text, MIXED);
}

#[test]
fn odd_values_get_a_message_that_fits() {
    let place = Place::new();
    place.file("job.fio", MIXED);
    let run = |options: &[&str]| refused(&place, &[&["compare", "job.fio"], options].concat());
    let seed = place.blklab(&["compare", "job.fio", "--seed", "-1"]);
    assert_eq!(seed.status, 2, "{}", seed.err);
    says(&seed.err, &["--seed", "from 0 to"]);
    let early = place.blklab(&["compare", "job.fio", "--power-loss-at", "-3ms"]);
    assert_eq!(early.status, 2, "{}", early.err);
    says(&early.err, &["-3ms", "a number with its unit"]);
    says(
        &run(&["--schedulers", ","]),
        &["name is missing", "mq-deadline"],
    );
    says(
        &refused(&place, &["run", "/dev/zero"]),
        &["/dev/zero: a device"],
    );
}

#[test]
fn a_timeline_begins_while_something_happens() {
    let place = Place::new();
    place.file("ok.fio", MIXED);
    for command in ["run", "compare"] {
        let args = [command, "ok.fio", "--html", "x", "--timeline-start", "900s"];
        let expected = ["--timeline-start", "the run was over after"];
        says(&refused(&place, &args), &expected);
    }
}

#[test]
fn a_broken_machine_names_file_line_and_key() {
    let place = Place::new();
    let text = place.blklab(&["show", "machine", "rpi4"]).ok().out;
    place.file("ok.fio", MIXED);
    place.file("mine.toml", &text.replacen("count = ", "cuont = ", 1));
    let args = ["run", "ok.fio", "--machine", "mine.toml"];
    says(
        &refused(&place, &args),
        &["mine.toml:5:", "cpu.count", "found `cuont`", "count = "],
    );
    let text = place.blklab(&["show", "machine", "server-8"]).ok().out;
    place.file("table.toml", &text.replacen("[cpu]", "[cpuu]", 1));
    let line = text
        .lines()
        .position(|line| line == "[cpu]")
        .expect("it has CPUs")
        + 1;
    let args = ["run", "ok.fio", "--machine", "table.toml"];
    says(
        &refused(&place, &args),
        &[
            &format!("table.toml:{line}:"),
            "found [cpuu]",
            "write [cpu]",
        ],
    );
}

#[test]
fn no_job_says_what_to_give() {
    let place = Place::new();
    says(&refused(&place, &["compare"]), &["list jobs"]);
}

#[test]
fn what_would_have_no_effect_is_refused() {
    let place = Place::new();
    place.file("ok.fio", MIXED);
    let run = |args: &[&str]| refused(&place, &[&["run", "ok.fio"], args].concat());
    says(&run(&["--nr-requests", "1"]), &["nr_requests", "not 1"]);
    says(
        &run(&["--nr-requests", "20000", "--scheduler", "mq-deadline"]),
        &["nr_requests takes 4 to", "not 20000"],
    );
    says(&run(&["--speed", "2"]), &["--speed", "traces"]);
    says(&run(&["--replay", "closed"]), &["--replay", "traces"]);
    let twice = ["compare", "ok.fio", "--schedulers", "none,none"];
    says(&refused(&place, &twice), &["none", "twice"]);
    let socket = place.path("b.sock").to_string_lossy().into_owned();
    let serve = ["serve", "--socket", &socket, "--memory", "1M"];
    let serve = [&serve[..], &["--nr-requests", "1"]].concat();
    says(&refused(&place, &serve), &["nr_requests", "not 1"]);
}

#[test]
fn an_export_is_described_in_the_file_or_by_options() {
    let place = Place::new();
    place.file("s.toml", "[[export]]\nmemory = '1M'\n");
    for option in [
        &["--read-only"][..],
        &["--nr-requests", "3"],
        &["--name", "foo"],
        &["--description", "foo"],
        &["--set", "zz=1"],
        &["--scheduler", "bfq"],
        &["--depth", "3"],
        &["--drive", "nvme"],
        &["--seed", "3"],
        &["--threads", "3"],
        &["--backend-threads", "3"],
        &["--memory", "1M"],
        &["--null", "1M"],
        &["--file", "x"],
        &["--nbd", "nbd://x/"],
    ] {
        let socket = place.path("b.sock").to_string_lossy().into_owned();
        let serve = ["serve", "s.toml", "--socket", &socket];
        let done = place.blklab(&[&serve[..], option].concat());
        assert_eq!(done.status, 2, "{option:?}: {}", done.err);
        says(&done.err, &[option[0], "FILE.toml"]);
    }
}

#[test]
fn counts_have_ranges() {
    let place = Place::new();
    place.file("ok.fio", MIXED);
    for (option, value) in [
        ("--repeats", "0"),
        ("--repeats", "-1"),
        ("--repeats", "18446744073709551615"),
        ("--repeats", "1000000000000"),
        ("--threads", "0"),
        ("--threads", "100000000"),
    ] {
        let done = place.blklab(&["compare", "ok.fio", option, value]);
        assert_eq!(done.status, 2, "{option} {value}: {}", done.err);
        says(&done.err, &[option, value, "is not in 1..="]);
        assert!(!done.err.contains("tip:"), "{}", done.err);
    }
}

#[test]
fn a_real_machine_is_given_nothing_of_a_simulation() {
    let place = Place::new();
    place.file("ok.fio", MIXED);
    for (option, value) in [
        ("--drive", "nvme"),
        ("--state", "aged"),
        ("--seed", "1"),
        ("--machine", "generic-8"),
        ("--depth", "32"),
        ("--replay", "open"),
        ("--speed", "1"),
        ("--timeline-start", "1ms"),
        ("--timeline-length", "1ms"),
    ] {
        let world = |world: &str| {
            let mut args = vec!["compare", "ok.fio", "--world", world, option, value];
            if world == "host" {
                args.extend(["--device", "/dev/nothing"]);
            }
            refused(&place, &args)
        };
        says(&world("host"), &[option]);
        if !["--drive", "--state", "--seed"].contains(&option) {
            says(&world("serve"), &[option]);
        }
    }
}

#[test]
fn a_cpu_that_the_machine_lacks_is_refused() {
    let place = Place::new();
    let job = |cpus: &str| format!("[a]\nfilename=/dev/x\nrw=read\n{cpus}\nnumber_ios=1\n");
    place.file("cpus.fio", &job("cpus_allowed=2,99"));
    let expected = ["cpus.fio:4", "cpus_allowed=2,99", "no CPU 99", "0 to 7"];
    says(&refused(&place, &["run", "cpus.fio"]), &expected);
    says(&refused(&place, &["compare", "cpus.fio"]), &expected);
    place.file("cpus.fio", &job("cpumask=256"));
    let expected = ["cpus.fio:4", "cpumask=256", "no CPU 8", "0 to 7"];
    says(&refused(&place, &["run", "cpus.fio"]), &expected);
    place.file("cpus.fio", &job("cpus_allowed=0-7"));
    place.blklab(&["run", "cpus.fio"]).ok();
}

#[test]
fn blocks_are_those_of_the_drive() {
    let place = Place::new();
    let text = place.blklab(&["show", "drive", "nvme"]).ok().out;
    let text = text.replace("logical_block_bytes = 512", "logical_block_bytes = 4096");
    place.file("4kn.toml", &text);
    let base = "[a]\ndirect=1\nfilename=/dev/x\nrw=randrw\nnumber_ios=1\nsize=1m\n";
    for (options, place_of) in [
        ("bs=512", "a.fio:7: bs=512"),
        ("bs=4k,512", "a.fio:7: bs=4k,512"),
        ("bssplit=4k/50:512/50", "a.fio:7: bssplit"),
        ("bsrange=512-8k", "a.fio:7: bsrange"),
        ("ba=512", "a.fio:7: ba=512"),
        ("offset=1536", "a.fio:7: offset=1536"),
    ] {
        place.file("a.fio", &format!("{base}{options}\n"));
        let said = refused(&place, &["run", "a.fio", "--drive", "4kn.toml"]);
        says(&said, &[place_of, "a multiple", "4096 bytes"]);
        place.blklab(&["run", "a.fio", "--drive", "nvme"]).ok();
    }
    // The page cache takes any size.
    place.file("a.fio", &format!("{base}bs=512\ndirect=0\n"));
    place.blklab(&["run", "a.fio", "--drive", "4kn.toml"]).ok();
    // Only writes are 512 bytes, and none are done.
    place.file("a.fio", &format!("{base}bs=4k,512\nrw=randread\n"));
    place.blklab(&["run", "a.fio", "--drive", "4kn.toml"]).ok();
}

#[test]
fn schedulers_that_jobs_ask_for_have_to_agree() {
    let place = Place::new();
    let job = |a: &str, b: &str| {
        let each = "filename=/dev/x\nnumber_ios=1\n";
        format!("[a]\nioscheduler={a}\n{each}[b]\nioscheduler={b}\n{each}")
    };
    place.file("two.fio", &job("bfq", "kyber"));
    let expected = [
        "two.fio:6",
        "ioscheduler=kyber",
        "ioscheduler=bfq",
        "--scheduler",
    ];
    says(&refused(&place, &["run", "two.fio"]), &expected);
    place
        .blklab(&["run", "two.fio", "--scheduler", "none"])
        .ok();
    place.file("two.fio", &job("bfq", "bqf"));
    let expected = ["two.fio:6", "ioscheduler=bqf", "bfq"];
    says(&refused(&place, &["run", "two.fio"]), &expected);
}

#[test]
fn a_name_left_out_is_no_scheduler() {
    let place = Place::new();
    place.file("ok.fio", MIXED);
    for args in [
        ["compare", "ok.fio", "--schedulers", ""],
        ["compare", "ok.fio", "--schedulers", "none,,bfq"],
        ["run", "ok.fio", "--scheduler", ""],
    ] {
        let expected = ["a scheduler's name is missing", "mq-deadline"];
        says(&refused(&place, &args), &expected);
    }
}

#[test]
fn a_trace_without_io_is_nothing_to_replay() {
    let place = Place::new();
    let head = "fio version 2 iolog\n/dev/x add\n/dev/x open\n/dev/x close\n";
    place.file("none.iolog", head);
    for command in ["run", "replay"] {
        says(
            &refused(&place, &[command, "none.iolog"]),
            &["none.iolog: there is no I/O in it"],
        );
    }
}

#[test]
fn processes_that_begin_beyond_the_end_blame_what_moved_them_there() {
    let place = Place::new();
    let job = "[a]\nfilename=/dev/x\nrw=read\noffset=120k\noffset_increment=100t\nnumjobs=2\n";
    place.file("a.fio", job);
    says(
        &refused(&place, &["run", "a.fio", "--drive", "nvme"]),
        &["a.fio:5: offset_increment=100t", "beyond the end"],
    );
}

#[test]
fn what_is_beyond_a_drives_end_is_told_where_it_was_asked_for() {
    let place = Place::new();
    place.file("far.fio", "[a]\nfilename=/dev/x\nrw=read\noffset=100t\n");
    let said = refused(&place, &["run", "far.fio"]);
    says(&said, &["far.fio:4: offset=100t: byte 109951162777600"]);
    assert_eq!(said.matches("offset").count(), 1, "{said}");
    let every = "[a]\nfilename=/dev/x\nrw=read\nnumber_ios=1\nstats=0\n";
    place.file("none.fio", every);
    let said = refused(&place, &["compare", "none.fio"]);
    says(&said, &["none.fio:5: stats", "no job counts"]);
}

#[test]
fn what_a_queue_takes_is_said_with_its_drive_and_scheduler() {
    let place = Place::new();
    place.file("ok.fio", MIXED);
    let compare = ["compare", "ok.fio", "--vary", "drive=mx100-256,nvme"];
    let few = [&compare[..], &["--vary", "nr_requests=32,256"]].concat();
    says(
        &refused(&place, &few),
        &[
            "mx100-256: nr_requests takes 4 to 32 under none",
            "tag",
            "not 256",
        ],
    );
    let more = ["--schedulers", "mq-deadline", "--nr-requests", "2049"];
    says(
        &refused(&place, &[&["compare", "ok.fio"], &more[..]].concat()),
        &[
            "nvme: nr_requests takes 4 to 2048 under a scheduler",
            "not 2049",
        ],
    );
}

#[test]
fn help_has_only_what_is_taken() {
    let place = Place::new();
    let tune = place.blklab(&["tune", "--help"]).ok().out;
    for option in [
        "--quick",
        "--max-time",
        "--assumed",
        "--series",
        "--timeline-start",
    ] {
        assert!(!tune.contains(&format!("{option} ")) && !tune.contains(&format!("{option}\n")));
        let compare = place.blklab(&["compare", "--help"]).ok().out;
        assert!(compare.contains(option), "{option}");
    }
    let axes = place.blklab(&["list", "axes"]).ok().out;
    let fs = axes
        .lines()
        .find(|line| line.trim_start().starts_with("fs "));
    assert!(fs.is_some_and(|line| line.contains("xfs")), "{axes}");
}

#[test]
fn a_missing_file_or_folder_of_a_server_is_named() {
    let place = Place::new();
    let memory = ["serve", "--memory", "1M", "--socket", "nodir/x"];
    let done = place.blklab(&memory);
    says(&done.err, &["nodir/x: there is no folder nodir"]);
    let file = ["serve", "--file", "none.img", "--socket", "x"];
    let done = place.blklab(&file);
    says(
        &done.err,
        &["none.img: there is no such file", "truncate -s"],
    );
    let large = ["serve", "--memory", "99E", "--socket", "x"];
    says(&refused(&place, &large), &["99E", "more than 16 EiB"]);
}
