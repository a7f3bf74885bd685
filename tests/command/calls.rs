//! Lists of calls: a recorded program, and programs of one's own, on a simulated drive.

use crate::support::{Outcome, Place};

const COPY: &str = "\
# Copies a file of 4 MiB, twice.
file /in 4M
directory /out

[cp]
repeat 2
  open from /in read
  open to /out/copy write create truncate
  repeat 32
    read from 128K
    write to 128K
  end
  fsync to
  close from
  close to
end
stat /none = ENOENT
wait other

[other]
sleep 1ms
mkdir /out/more
think 2ms
";

fn run_on(place: &Place, fs: &str, list: &str, options: &[&str]) -> Outcome {
    place.file("t.calls", list);
    let run = ["run", "t.calls", "--drive", "mx100-256", "--fs", fs];
    place.blklab(&[&run, options].concat())
}

fn run(place: &Place, list: &str, options: &[&str]) -> Outcome {
    run_on(place, "ext2", list, options)
}

/// What became of a program's calls of a kind.
fn times<'a>(
    json: &'a serde_json::Value,
    program: &str,
    call: &str,
) -> Option<&'a serde_json::Value> {
    let programs = json["blklab"]["calls"].as_array().expect("programs");
    let of = programs.iter().find(|of| of["program"] == program);
    let calls = of.expect("the program")["calls"].as_array();
    calls
        .expect("calls")
        .iter()
        .find(|times| times["call"] == call)
}

#[test]
fn a_list_runs_and_tells_where_its_time_went() {
    for fs in ["ext2", "vfat", "xfs"] {
        let place = Place::new();
        // Where CPUs cost nothing, computing takes as long as it says.
        let options = ["--machine", "generic-8", "--output-format", "json"];
        let json = run_on(&place, fs, COPY, &options).ok().json();
        let of = |call, what: &str| {
            let times = times(&json, "cp", call).expect("it was called");
            times[what].as_u64().expect("a count")
        };
        assert_eq!(
            (
                of("read", "calls"),
                of("write", "calls"),
                of("fsync", "calls")
            ),
            (64, 64, 2)
        );
        assert_eq!((of("stat", "calls"), of("stat", "errors")), (1, 1));
        // The file is read from the drive once, and both copies are written to it.
        assert!(
            of("read", "waits_ns") > 0 && of("fsync", "waits_ns") > 1_000_000,
            "{json:#}"
        );
        let pages = |what: &str| json["blklab"]["page_cache"][what].as_u64();
        // The first call's 32 pages are missing, and all others are read ahead.
        assert_eq!(pages("readahead_pages"), Some(992));
        assert_eq!(pages("written_pages"), Some(2048));
        let other = times(&json, "other", "think").expect("it computed");
        assert_eq!(other["total_ns"], 2_000_000);
        let cp = &json["jobs"][0];
        assert_eq!(cp["jobname"], "cp");
        assert_eq!(cp["read"]["io_bytes"], 8 << 20);
        assert_eq!(cp["write"]["io_bytes"], 8 << 20);
    }
}

#[test]
fn the_table_of_calls_is_in_the_text() {
    let place = Place::new();
    let text = run(&place, COPY, &[]).ok().out;
    let line = text
        .lines()
        .find(|line| line.trim_start().starts_with("fsync "));
    let words: Vec<&str> = line.expect("fsync's row").split_whitespace().collect();
    assert_eq!(words[1..3], ["2", "0"], "{text}");
    assert!(text.contains("throttled"), "{text}");
    // fio's line on a job has no meaning here.
    assert!(!text.contains("bs=(R)"), "{text}");
    // The same list gives the same text.
    assert_eq!(run(&place, COPY, &[]).ok().out, text);
}

#[test]
fn what_a_call_does_otherwise_than_its_line_says_is_told() {
    let place = Place::new();
    for (line, message) in [
        ("unlink /none", "t.calls:2: unlink: it fails with ENOENT"),
        (
            "mkdir /a = EEXIST",
            "t.calls:2: mkdir: it does not fail with EEXIST; right is without the = EEXIST",
        ),
        (
            "mkdir /a = EEXIST\n[q]\nwait p",
            "t.calls:2: mkdir: it does not fail with EEXIST",
        ),
        (
            "open f /x read = ENOENT\nread f 4k",
            "t.calls:3: read: it fails with EBADF; right is to open the file before, for what the \
             call does, or = EBADF behind the call",
        ),
        ("raed f 4k", "t.calls:2: raed: there is no such call"),
        (
            "stat /none",
            "t.calls:2: stat: it fails with ENOENT; right is a line such as file PATH BYTES",
        ),
        (
            "repeat 99999999999\nend",
            "t.calls:2: repeat: times: found 99999999999, legal is up to 1000000000",
        ),
        (
            "repeat 1000000\nrepeat 1000\nsync\nend\nend",
            "t.calls:6: end: the repeat of line 2 makes 2001000000 rounds and calls, legal is",
        ),
        (
            "open f /f write create\naio_cancel f a",
            "t.calls:3: aio_cancel: p prepares no request a",
        ),
    ] {
        let refused = run(&place, &format!("[p]\n{line}\n"), &[]);
        assert_eq!(refused.status, 2, "{}", refused.err);
        assert!(
            refused.err.starts_with(&format!("blklab: {message}")),
            "{}",
            refused.err
        );
        assert_eq!(refused.err.lines().count(), 1, "{}", refused.err);
    }
    for (list, line) in [("[p]\nopen f /x read\n", 2), ("file /x 1M\n[p]\nsync\n", 1)] {
        let raw = run_on(&place, "raw", list, &[]);
        let message = format!(
            "blklab: t.calls:{line}: with --fs raw there are no files; right is --fs ext2, --fs vfat \
             or --fs xfs, or a path below /dev for the drive itself"
        );
        assert_eq!((raw.status, raw.err.trim()), (2, message.as_str()));
    }
    let fio = place.blklab(&["run", "t.calls", "--fs", "ext2", "--override", "bs=4k"]);
    assert_eq!(fio.status, 2, "{}", fio.err);
}

/// The drive's own page cache, without it, and the character device that never had one.
#[test]
fn a_drive_is_opened_by_its_path() {
    let place = Place::new();
    let list = "[p]\nopen d /dev/sda read write\npwrite d 64K 1M\nfsync d\nread d 64K\n\
                read d 64K\nlseek d 0\nread d 64K\ncachestat d\nftruncate d 0 = EINVAL\n\
                readdir d = ENOTDIR\nclose d\nopen e /dev/sda write\nread e 4K = EBADF\n\
                close e\nopen c /dev/raw/raw1 read\npread c 4K 0\npread c 4K 0\n\
                pread c 1K 100 = EINVAL\nopen o /dev/sda read direct\npread o 4K 0\nsync\n";
    for fs in ["raw", "ext2", "vfat"] {
        let json = run_on(&place, fs, list, &["--output-format", "json"])
            .ok()
            .json();
        let calls = |call, what: &str| times(&json, "p", call).expect("called")[what].as_u64();
        assert_eq!(calls("read", "calls"), Some(4), "{fs}");
        // Three of the drive's pages, and as many past them.
        let read = json["jobs"][0]["read"]["total_ios"].as_u64();
        assert_eq!(read, Some(6), "{fs}");
        assert!(calls("pread", "waits_ns") > Some(50_000), "{fs}: {json}");
        assert!(calls("fsync", "waits_ns") > Some(0), "{fs}");
    }
}

/// A name that is no UTF-8 is one for the file system, and the list that strace's output becomes
/// reads back.
#[test]
fn names_are_bytes() {
    let place = Place::new();
    place.file(
        "t.strace",
        "1 0.000000 openat(AT_FDCWD, \"/b\\303(\", O_RDONLY) = 3 <0.0001>\n\
         1 0.001000 read(3, \"x\", 4096) = 1 <0.0001>\n1 0.002000 close(3) = 0 <0.0001>\n",
    );
    let made = place.blklab(&["calls", "t.strace", "--cwd", "/", "-o", "t.calls"]);
    assert_eq!(made.status, 0, "{}", made.err);
    for fs in ["ext2", "vfat", "xfs"] {
        place.blklab(&["run", "t.calls", "--fs", fs]).ok();
    }
}

#[test]
fn threads_share_files_and_programs_start_each_other() {
    let place = Place::new();
    let list = "[p]\nopen f /f write create\nwrite f 64K\nstart p/t\nwait p/t\nstart q\n\
                wait q\nstat /moved\n[p/t]\npwrite f 4K 1M\nfdatasync f\nclose f\n\
                [q]\nrename /f /moved\nunlink /f = ENOENT\n";
    let json = run(&place, list, &["--output-format", "json"]).ok().json();
    let wrote = times(&json, "p/t", "fdatasync").expect("it was called");
    assert!(wrote["waits_ns"].as_u64() > Some(0), "{wrote}");
    assert!(times(&json, "q", "rename").is_some());
}

#[test]
fn caches_that_are_dropped_are_read_again() {
    let place = Place::new();
    let list = |drop: &str| {
        format!(
            "file /f 8M\n[p]\nopen f /f read\nrepeat 64\nread f 128K\nend\n{drop}\n\
                 lseek f 0\nrepeat 64\nread f 128K\nend\n"
        )
    };
    let elapsed = |drop| {
        let json = run(&place, &list(drop), &["--output-format", "json"])
            .ok()
            .json();
        json["blklab"]["elapsed_ns"].as_u64().expect("a time")
    };
    let (kept, dropped) = (elapsed("sync"), elapsed("drop_caches 3"));
    assert!(dropped > kept * 3 / 2, "{kept} {dropped}");
}

#[test]
fn two_schedulers_are_compared_by_a_list() {
    let place = Place::new();
    place.file("t.calls", COPY);
    let compare = ["compare", "t.calls", "--drive", "hdd-7200", "--fs", "ext2"];
    let options = ["--schedulers", "none,mq-deadline", "--repeats", "1"];
    let text = place.blklab(&[&compare[..], &options].concat()).ok().out;
    let line = text
        .lines()
        .find(|line| line.trim_start().starts_with("fsync "));
    let words: Vec<&str> = line.expect("fsync's row").split_whitespace().collect();
    assert_eq!(words.len(), 5, "a time for each scheduler: {text}");
    assert!(text.contains("calls of cp (mean of a run)"), "{text}");
    let html = ["--html", "page.html"];
    place.blklab(&[&compare[..], &options, &html].concat()).ok();
    let page = std::fs::read_to_string(place.path("page.html")).expect("a page");
    for part in ["<h2>Calls</h2>", "<td>fsync</td>", "<h2>Memory</h2>"] {
        assert!(page.contains(part), "{part}");
    }
}

/// Document 003: `ls -R`, and once more from the dentry, inode and buffer caches.
#[test]
fn a_tree_is_listed_from_memory_the_second_time() {
    let place = Place::new();
    let list = "tree /t 40 20 4K\n[first]\nlist_all /\n[again]\nwait first\nlist_all /\n";
    let json = run(&place, list, &["--output-format", "json"]).ok().json();
    let of = |program| {
        let times = times(&json, program, "list_all").expect("it was called");
        times["total_ns"].as_u64().expect("a time")
    };
    assert!(
        of("first") > 4 * of("again"),
        "{} {}",
        of("first"),
        of("again")
    );
    let names = &json["blklab"]["page_cache"]["names_cached"];
    assert!(names.as_u64() >= Some(840), "{names}");
    let large = run(&place, "tree /t 1000 1000 0\n[p]\nsync\n", &[]);
    assert!(
        large.err.contains("t.calls:1: tree: 1001000 files"),
        "{}",
        large.err
    );
}

#[test]
fn a_recording_becomes_a_list_that_runs() {
    let place = Place::new();
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/strace");
    for name in ["program", "shell", "libaio"] {
        let recording = format!("{data}/{name}.strace");
        let folder = [
            "--under",
            "/srv/demo",
            "--cwd",
            "/srv/demo",
            "-o",
            "t.calls",
        ];
        place
            .blklab(&[&["calls", &recording][..], &folder].concat())
            .ok();
        let list = std::fs::read_to_string(place.path("t.calls")).expect("a list");
        let submits = list.lines().filter(|line| line.starts_with("io_submit"));
        let expected = if name == "libaio" { 16 } else { 0 };
        assert_eq!(submits.count(), expected, "{list}");
        let run = [
            "run",
            "t.calls",
            "--drive",
            "nvme",
            "--fs",
            "ext2",
            "--output-format",
            "json",
        ];
        let json = place.blklab(&run).ok().json();
        let elapsed_ms = json["blklab"]["elapsed_ns"].as_u64().expect("a time") / 1_000_000;
        assert!((1..2000).contains(&elapsed_ms), "{name}: {elapsed_ms} ms");
    }
    let empty = place.blklab(&[
        "calls",
        &format!("{data}/shell.strace"),
        "--under",
        "/elsewhere",
    ]);
    assert_eq!(empty.status, 2);
    assert!(
        empty.err.contains("no call on a wanted file"),
        "{}",
        empty.err
    );
    place.file("wrong.strace", "1.5 read(3\n");
    let wrong = place.blklab(&["calls", "wrong.strace"]);
    assert_eq!(wrong.status, 2);
    assert!(
        wrong.err.contains("wrong.strace:1: column 5: call"),
        "{}",
        wrong.err
    );
}

/// What a program's calls of a kind took in all, in nanoseconds.
fn total(json: &serde_json::Value, call: &str) -> u64 {
    let times = times(json, "p", call).expect("it was called");
    times["total_ns"].as_u64().expect("a time")
}

/// The figures of a run of one program `p` on a file `/f` of 1 MiB.
fn run_requests(place: &Place, calls: &str) -> serde_json::Value {
    let list = format!("file /f 1M\n[p]\n{calls}\n");
    run(place, &list, &["--output-format", "json"]).ok().json()
}

#[test]
fn threads_of_glibc_take_one_request_of_a_file_at_a_time() {
    let place = Place::new();
    let open = "open f /f read write direct\nopen g /f read write direct\n";
    let elapsed = |calls: &str| {
        let json = run_requests(&place, &format!("{open}{calls}"));
        json["blklab"]["elapsed_ns"].as_u64().expect("a time")
    };
    let opened = elapsed("");
    let elapsed = |calls: &str| elapsed(calls) - opened;
    let one = elapsed("aio_read a f 4K 0\naio_suspend a");
    let of_one_file = elapsed("aio_read a f 4K 0\naio_read b f 4K 32K\naio_suspend b");
    let of_two = elapsed("aio_read a f 4K 0\naio_read b g 4K 32K\naio_suspend b\naio_suspend a");
    assert!(of_one_file > one * 9 / 5, "{one} {of_one_file}");
    assert!(of_two < of_one_file * 3 / 4, "{of_two} {of_one_file}");
    let listed = "prepare a pread f 4K 0\nprepare b pread g 4K 32K\nlio_listio wait a b";
    assert!(elapsed(listed) < of_one_file * 3 / 4);
    // What is not begun is taken back, and a file's `fsync` comes behind its writes.
    let json = run_requests(
        &place,
        &format!(
            "{open}aio_write a f 4K 0\naio_read b f 4K 8K\naio_cancel f\naio_suspend b\n\
                  aio_fsync c f\naio_suspend c"
        ),
    );
    assert_eq!(json["jobs"][0]["write"]["total_ios"], 1);
    assert_eq!(json["jobs"][0]["read"]["total_ios"], 0);
    assert_eq!(json["jobs"][0]["sync"]["total_ios"], 1);
    // One request of three is taken back, if no thread has begun it and it is of that file.
    let json = run_requests(
        &place,
        &format!(
            "{open}aio_write a f 4K 0\naio_read b f 4K 8K\naio_read c f 4K 16K\n\
                  aio_cancel f a\naio_cancel f b\naio_cancel g c = EINVAL\naio_suspend c"
        ),
    );
    assert_eq!(json["jobs"][0]["write"]["total_ios"], 1);
    assert_eq!(json["jobs"][0]["read"]["total_ios"], 1);
}

#[test]
fn ends_of_posix_requests_are_told_by_signals_and_threads() {
    let place = Place::new();
    let list = "file /f 1M\n[p]\nopen f /f read write direct\nsigevent a thread p/told\n\
                sigevent b signal\nrepeat 3\n  aio_read a f 4K 0\n  aio_read b f 4K 64K\n  \
                sigwait 1\nend\naio_write c f 4K 0\nsigevent b thread p/told\n\
                aio_read b f 4K 8K\naio_cancel f\n[p/told]\npread f 8K 128K\n";
    let json = run(&place, list, &["--output-format", "json"]).ok().json();
    let of = |program, call, what: &str| {
        times(&json, program, call).expect("it was called")[what].as_u64()
    };
    assert_eq!(of("p", "sigwait", "calls"), Some(3));
    // Both reads of a round are of one file, and the signal is of the second.
    assert!(of("p", "sigwait", "waits_ns") > Some(300_000), "{json:#}");
    // Three ends of a, and that of b which was taken back.
    assert_eq!(of("p/told", "pread", "calls"), Some(4));
    for (calls, message) in [
        (
            "sigwait 1",
            "t.calls:3: sigwait: it waits for more signals than requests will send",
        ),
        (
            "sigevent a thread q\naio_fsync a f",
            "t.calls:3: sigevent: q is no thread of p",
        ),
        (
            "sigevent a thread p/t\naio_fsync a f\nwait p/t",
            "t.calls:5: wait: p/t runs when requests end, and ends with its process",
        ),
        (
            "sigevent a mail",
            "t.calls:3: sigevent: how: found \"mail\", right is none, signal or thread PROGRAM",
        ),
    ] {
        let list = format!("[p]\nopen f / read\n{calls}\n[p/t]\nsync\n[q]\nsync\n");
        let refused = run(&place, &list, &[]);
        assert_eq!(refused.status, 2, "{}", refused.err);
        assert!(refused.err.contains(message), "{}", refused.err);
    }
}

#[test]
fn the_end_of_a_whole_list_is_told_once() {
    let place = Place::new();
    let run_list = |calls: &str, options: &[&str]| {
        let list = format!(
            "file /f 1M\n[p]\nopen f /f read write direct\nopen g /f read direct\n\
             prepare a pread f 4K 0\nprepare b pread f 4K 64K\nprepare c pread g 4K 128K\n\
             {calls}\n[p/told]\nstat /f\n"
        );
        run(
            &place,
            &list,
            &[&["--output-format", "json"], options].concat(),
        )
    };
    let cpu_ns = |json: &serde_json::Value| {
        let job = (json["jobs"].as_array().expect("jobs").iter())
            .find(|job| job["jobname"] == "p/told")
            .expect("the thread");
        let percent = job["sys_cpu"].as_f64().expect("a share");
        percent / 100.0 * job["job_runtime"].as_f64().expect("a time") * 1e6
    };
    let calls_of = |json: &serde_json::Value, program, call| {
        times(json, program, call).and_then(|times| times["calls"].as_u64())
    };
    // Two requests of one file follow each other, and the signal comes after both.
    let waits_ns = |calls: &str| {
        let json = run_list(calls, &[]).ok().json();
        assert_eq!(calls_of(&json, "p", "sigwait"), Some(1));
        let waited = times(&json, "p", "sigwait").expect("it waits");
        waited["waits_ns"].as_u64().expect("a time")
    };
    let one_ns = waits_ns("lio_listio signal a\nsigwait 1");
    let both_ns = waits_ns("lio_listio signal a b\nsigwait 1");
    assert!(both_ns > one_ns * 9 / 5, "{one_ns} {both_ns}");
    // A request has a notification of its own besides; one that was taken back is done.
    let own = "sigevent a signal\nlio_listio signal a b c\naio_cancel f\nsigwait 2";
    assert!(waits_ns(own) < both_ns);
    assert_eq!(waits_ns("lio_listio signal\nsigwait 1"), 0, "nothing to do");
    // A thread for each list; starting it costs what the machine says.
    let calls = "repeat 3\nlio_listio thread p/told a c\naio_suspend a\naio_suspend c\nend";
    let json = run_list(calls, &[]).ok().json();
    assert_eq!(calls_of(&json, "p/told", "stat"), Some(3));
    assert!(cpu_ns(&json) > 3.0 * 5400.0, "{}", cpu_ns(&json));
    let free = run_list(calls, &["--machine", "generic-8"]).ok().json();
    assert_eq!(calls_of(&free, "p/told", "stat"), Some(3));
    assert!(cpu_ns(&free) < 5400.0, "{}", cpu_ns(&free));
    for (calls, message) in [
        (
            "lio_listio signal a\nsigwait 2",
            "t.calls:9: sigwait: it waits for more signals than requests will send",
        ),
        (
            "lio_listio later a",
            "t.calls:8: lio_listio: mode: found \"later\", right is wait, nowait, signal or thread \
             PROGRAM",
        ),
        (
            "lio_listio thread q a",
            "t.calls:8: lio_listio: there is no [q]",
        ),
    ] {
        let refused = run_list(calls, &[]);
        assert_eq!(refused.status, 2, "{}", refused.err);
        assert!(refused.err.contains(message), "{}", refused.err);
    }
}

#[test]
fn memory_of_the_other_socket_is_slower() {
    let place = Place::new();
    place.file(
        "two.toml",
        "description = \"x\"\n[cpu]\ncount = 2\nsockets = 2\n[costs]\nsyscall_ns = 100\n\
         [costs.loop]\nwrite_page_ns = 1000\nremote_page_ns = 1000\n",
    );
    // 100 MB for each socket. What does not fit on the program's own costs twice as much to
    // write, and what it takes is written twice: cleared, and filled.
    let cpu_ns = |calls: &str, call| {
        let list = format!("[p]\nopen f /f write create\n{calls}");
        let options = ["--machine", "two.toml", "--memory", "200M"];
        let options = [&options[..], &["--output-format", "json"]].concat();
        let json = run(&place, &list, &options).ok().json();
        let times = times(&json, "p", call).expect("it was called");
        times["cpu_ns"].as_u64().expect("a time")
    };
    let written = |taken| cpu_ns(&format!("malloc {taken}\nwrite f 8M\n"), "write");
    let (near, remote) = (written("4K"), written("100M"));
    let page_ns = |ns: u64| ns / 2048;
    assert!((1000..1100).contains(&page_ns(near)), "{near}");
    assert!((1980..2100).contains(&page_ns(remote)), "{remote}");
    assert!(cpu_ns("malloc 80M\n", "malloc") < 1000);
    let taken = cpu_ns("malloc 120M\n", "malloc");
    // 20 MiB, and what is kept free of the first node.
    assert!((5120..5700).contains(&(taken / 2000)), "{taken}");
    // What is given back is near again.
    let again = cpu_ns("malloc 120M\nfree 120M\nmalloc 80M\n", "malloc");
    assert_eq!(taken + 100, again);
}

#[test]
fn io_submit_waits_for_buffered_reads_and_not_for_direct_ones() {
    let place = Place::new();
    let calls = |how: &str| {
        format!(
            "open f /f read {how}\nprepare a pread f 4K 0\nprepare b pread f 4K 512K\n\
             io_submit a b\nio_cancel a\nio_getevents 2"
        )
    };
    let buffered = run_requests(&place, &calls(""));
    let direct = run_requests(&place, &calls("direct"));
    // A read of the drive takes longer than this, and both calls' CPU time less.
    let read_ns = 40_000;
    assert!(total(&buffered, "io_submit") > read_ns, "{buffered:#}");
    assert!(total(&buffered, "io_getevents") < read_ns, "{buffered:#}");
    assert!(total(&direct, "io_submit") < read_ns, "{direct:#}");
    assert!(total(&direct, "io_getevents") > read_ns, "{direct:#}");
    assert_eq!(
        times(&direct, "p", "io_cancel").expect("it was called")["errors"],
        1
    );
    for json in [buffered, direct] {
        assert_eq!(json["jobs"][0]["read"]["total_ios"], 2);
    }
}

#[test]
fn io_uring_links_drains_times_out_and_takes_back() {
    let place = Place::new();
    // A read behind the end is short, and breaks its chain but for a hard link.
    let ios = |link: &str| {
        let json = run_requests(
            &place,
            &format!(
                "open f /f read write\nprepare a {link} pread f 8K 1020K\n\
                 prepare b link pwrite f 4K 0\nprepare c fdatasync f\nio_uring_enter 3 a b c"
            ),
        );
        let job = &json["jobs"][0];
        let of = |what: &str| job[what]["total_ios"].as_u64().expect("a count");
        (of("read"), of("write"), of("sync"))
    };
    assert_eq!(ios("link"), (1, 0, 0));
    assert_eq!(ios("hardlink"), (1, 1, 1));
    assert_eq!(ios("link drain async"), (1, 0, 0));
    // Three timeouts: one ends, one is taken back, one is linked to what does not last
    // so long.
    let json = run_requests(
        &place,
        "open f /f read direct\nprepare t timeout 3ms\nprepare long timeout 10s\n\
         prepare x cancel long\nio_uring_enter 3 t long x\n\
         prepare a link pread f 4K 0\nprepare l link_timeout 1s\nio_uring_enter 2 a l",
    );
    let elapsed_ns = json["blklab"]["elapsed_ns"].as_u64().expect("a time");
    assert!((3_000_000..6_000_000).contains(&elapsed_ns), "{elapsed_ns}");
    // A program that ends waits for what is under way, and for no timeout.
    let json = run_requests(
        &place,
        "open f /f read direct\nprepare t timeout 10s\nprepare a pread f 4K 0\n\
         io_uring_enter 0 t a",
    );
    assert_eq!(json["jobs"][0]["read"]["total_ios"], 1);
    assert!(json["blklab"]["elapsed_ns"].as_u64() < Some(1_000_000_000));
}

#[test]
fn io_urings_workers_write_a_file_one_request_at_a_time() {
    // The second write waits behind the first, which reads its page first, and is taken back;
    // on XFS it is tried at once.
    let place = Place::new();
    let list = "file /f 1M\n[p]\nopen f /f read write\n\
                prepare a pwrite f 100 0\nprepare b pwrite f 100 8K = ECANCELED\n\
                prepare x cancel b\nio_uring_enter 3 a b x\n";
    let json = run_on(&place, "ext2", list, &["--output-format", "json"])
        .ok()
        .json();
    let job = &json["jobs"][0];
    assert_eq!(job["write"]["io_bytes"], 100);
    let depths = job["iodepth_level"].as_object().expect("shares").values();
    let sum: f64 = depths.map(|share| share.as_f64().expect("a share")).sum();
    assert_eq!(sum, 100.0, "{}", job["iodepth_level"]);
    let list = list
        .replace(" = ECANCELED", "")
        .replace("x cancel b", "x nop");
    for fs in ["ext2", "xfs"] {
        let json = run_on(&place, fs, &list, &["--output-format", "json"])
            .ok()
            .json();
        assert_eq!(json["jobs"][0]["write"]["io_bytes"], 200, "{fs}");
    }
}

#[test]
fn mapped_memory_faults_and_is_written_back() {
    let place = Place::new();
    let json = run_requests(
        &place,
        "open f /f read write\nmmap f 1M\nmadvise f random\nmapped_read f 64K 0\n\
         mapped_write f 16K 512K\nmsync f\nmunmap f\nmsync f = EFAULT",
    );
    let pages = |what: &str| json["blklab"]["page_cache"][what].as_u64();
    assert_eq!(pages("dirtied_pages"), Some(4));
    assert!(pages("written_pages") >= Some(4), "{json:#}");
    assert!(times(&json, "p", "msync").expect("it was called")["waits_ns"].as_u64() > Some(0));
}

#[test]
fn memory_that_a_program_takes_is_not_there_for_files() {
    let place = Place::new();
    let list = "file /a 64M\n[p]\nopen a /a read\nrepeat 64\n  read a 1M\nend\ncachestat a\n\
                malloc 80M\nstart q\nwait q\nfree 80M\nfree 1K = EINVAL\n\
                [q]\nopen a /a read\ncachestat a\n";
    let options = ["--memory", "128M", "--output-format", "json"];
    let json = run(&place, list, &options).ok().json();
    let cached = |program| {
        let times = times(&json, program, "cachestat").expect("it was called");
        times["returned"].as_u64().expect("pages")
    };
    assert_eq!(cached("p"), 64 << 8);
    let said = run(&place, list, &options[..2]).ok().out;
    let expected = format!("cachestat found {} cached pages", cached("q"));
    assert!(said.contains(&expected), "{said}");
    assert!((4_000..12_288).contains(&cached("q")), "{}", cached("q"));
    let evicted = json["blklab"]["page_cache"]["evicted_pages"].as_u64();
    assert!(evicted >= Some(4_096), "{evicted:?}");
}

/// A tree is listed, then memory becomes short: the more names are kept of it the lower
/// `vm.vfs_cache_pressure` is, and all at 0.
#[test]
fn names_are_dropped_as_the_cache_pressure_says() {
    let place = Place::new();
    let list = "tree /t 100 50 4K\nfile /big 64M\n[p]\nlist_all /t\nopen f /big read\n\
                malloc 88M\nrepeat 64\n  read f 1M\nend\nlist_all /t\n";
    let names = |percent: &str| {
        let sysctl = format!("vm.vfs_cache_pressure={percent}");
        let options = ["--memory", "100M", "--sysctl", &sysctl];
        let options = [&options[..], &["--output-format", "json"]].concat();
        let json = run(&place, list, &options).ok().json();
        let cache = &json["blklab"]["page_cache"];
        ["names_shrunk", "names_cached"].map(|what| cache[what].as_u64().expect("a count"))
    };
    let [[none, all_kept], [few, more_kept], [many, kept]] = ["0", "10", "100"].map(names);
    assert_eq!(none, 0);
    assert!(few < many / 2 && many > 2_000, "{few} of {many}");
    assert!(
        all_kept >= more_kept && more_kept > kept + 1_000,
        "{more_kept}, {kept}"
    );
    let wrong = ["--sysctl", "vm.vfs_cache_pressure=-1"];
    let said = run(&place, list, &wrong).err;
    let expected = "vm.vfs_cache_pressure: found -1, legal is a whole number from 0 to 2147483647";
    assert!(said.contains(expected), "{said}");
}

/// XFS writes a file that was truncated when it is closed, ext2 when it is old.
#[test]
fn a_file_is_used_only_for_what_it_was_opened_for() {
    let place = Place::new();
    let list = "file /f 64K\ndirectory /d\n[p]\n\
                open r /f read\nwrite r 10 = EBADF\npwrite r 10 0 = EBADF\n\
                ftruncate r 5 = EINVAL\nmmap r 64K\nmapped_read r 10 0\n\
                mapped_write r 10 0 = EACCES\n\
                open w /f write\nread w 10 = EBADF\npread w 10 0 = EBADF\n\
                readahead w 0 4096 = EBADF\nposix_fadvise w 0 0 willneed\n\
                mmap w 64K = EACCES\n\
                open d /f read direct\npwrite d 4096 0 = EBADF\n\
                open dir /d read directory\nread dir 10 = EISDIR\nwrite dir 10 = EBADF\n\
                rmdir / = EBUSY\nunlink / = EISDIR\nmkdir / = EEXIST\n";
    for fs in ["ext2", "vfat", "xfs"] {
        run_on(&place, fs, list, &[]).ok();
    }
}

#[test]
fn a_write_through_a_mapping_changes_the_inodes_times() {
    let place = Place::new();
    let blocks = |sync: &str| {
        let list = format!(
            "file /f 64K\n[p]\nopen f /f read write\nmmap f 64K\nfsync f\n\
             mapped_write f 10 0\n{sync} f\n"
        );
        let json = run(&place, &list, &["--output-format", "json"]).ok().json();
        let written = &json["blklab"]["page_cache"]["blocks_written"];
        written.as_u64().expect("a count")
    };
    // fdatasync leaves out times.
    assert_eq!(blocks("fsync"), blocks("fdatasync") + 1);
}

#[test]
fn programs_that_wait_for_each_other_are_told_by_line() {
    let place = Place::new();
    let outcome = run(&place, "[p]\nwait q\n[q]\nsleep 1ms\nwait p\n", &[]);
    assert_eq!(outcome.status, 2, "{}", outcome.err);
    let says = "t.calls:2: wait: q does not end; t.calls:5: wait: p does not end";
    assert!(outcome.err.contains(says), "{}", outcome.err);
}

#[test]
fn a_program_cannot_take_more_memory_than_the_machine_has() {
    let place = Place::new();
    let list = "[p]\nmalloc 512M\nthink 5ms\n[q]\nthink 1ms\nmalloc 1G\n";
    let outcome = run(&place, list, &["--memory", "1G"]);
    assert_eq!(outcome.status, 2, "{}", outcome.err);
    let line = "t.calls:6: malloc: of the machine's memory 5";
    assert!(outcome.err.contains(line), "{}", outcome.err);
    run(&place, list, &["--memory", "2G"]).ok();
}

#[test]
fn pages_that_a_call_drops_take_it_time() {
    let place = Place::new();
    let list = |then: &str| {
        format!("file /f 64M\n[p]\nopen f /f read write\nrepeat 64\n  read f 1M\nend\n{then}")
    };
    let took_ns = |then: &str, call: &str| {
        let json = run(&place, &list(then), &["--output-format", "json"])
            .ok()
            .json();
        let times = times(&json, "p", call).expect("it was called");
        let of = |what: &str| times[what].as_u64().expect("a time");
        assert!(of("total_ns") >= of("cpu_ns"), "{times}");
        of("cpu_ns")
    };
    // 16,384 pages, at 20 ns each at the very least.
    for (then, call) in [
        ("drop_caches 1", "drop_caches"),
        ("ftruncate f 0", "ftruncate"),
        ("close f\nunlink /f", "unlink"),
    ] {
        let all = took_ns(then, call);
        let none = took_ns(&format!("posix_fadvise f 0 0 dontneed\n{then}"), call);
        assert!(all > none + 16_384 * 20, "{call}: {all} after {none}");
    }
}

#[test]
fn every_write_to_a_file_that_is_appended_to_goes_to_its_end() {
    let place = Place::new();
    let list = "file /f 64K\n[p]\nopen a /f write append direct\nwrite a 4K\npwrite a 4K 0\n\
                open b /f write append sync\npwrite b 4K 0\nwrite b 4K\nstat /f\n";
    for fs in ["ext2", "vfat", "xfs"] {
        let json = run_on(&place, fs, list, &["--output-format", "json"])
            .ok()
            .json();
        let stat = times(&json, "p", "stat").expect("it was called");
        assert_eq!(stat["returned"], 80 << 10, "{fs}");
    }
}

#[test]
fn what_is_read_during_a_direct_write_does_not_stay_cached() {
    let place = Place::new();
    let list = "file /f 32M\n[p]\nopen d /f write direct\npwrite d 32M 0\n\
                [q]\nopen f /f read\nposix_fadvise f 0 0 random\nthink 2ms\n\
                pread f 4096 0\ncachestat f\nwait p\ncachestat f\n";
    for fs in ["ext2", "xfs"] {
        let json = run_on(&place, fs, list, &["--output-format", "json"])
            .ok()
            .json();
        let cached = times(&json, "q", "cachestat").expect("it was called");
        assert_eq!(
            cached["returned"], 1,
            "{fs}: there before its end, gone after it"
        );
        let writes = times(&json, "p", "pwrite").expect("it was called");
        let end_ns = writes["total_ns"].as_u64().expect("a time");
        assert!(
            end_ns > 10_000_000,
            "the read falls into the write: {end_ns}"
        );
    }
}

#[test]
fn a_truncated_file_is_written_when_xfs_closes_it() {
    let place = Place::new();
    let list = "file /a 8M\n[p]\nopen a /a write truncate\nwrite a 8M\nclose a\nsleep 200ms\n";
    let written = |fs| {
        let json = run_on(&place, fs, list, &["--output-format", "json"]);
        json.ok().json()["blklab"]["page_cache"]["written_pages"].as_u64()
    };
    assert_eq!(written("xfs"), Some(8 << 8));
    assert_eq!(written("ext2"), Some(0));
}

#[test]
fn requests_that_cannot_be_are_refused_by_line() {
    let place = Place::new();
    for (lines, message) in [
        (
            "io_submit a",
            "t.calls:3: io_submit: p prepares no request a",
        ),
        (
            "prepare a stat /f\nio_submit a",
            "t.calls:4: io_submit: a: it has no stat, right is pread, pwrite, fsync and fdatasync",
        ),
        (
            "prepare a fsync f\nlio_listio wait a",
            "t.calls:4: lio_listio: a: it has no fsync, right is pread and pwrite",
        ),
        (
            "prepare a link pread f 4K 0\nio_submit a",
            "t.calls:4: io_submit: a: link, hardlink, drain and async are io_uring_enter's",
        ),
        (
            "prepare a sync",
            "t.calls:3: prepare: operation: found \"sync\"",
        ),
        (
            "prepare a timeout 1ms = EIO",
            "t.calls:3: prepare: = EIO: only calls have errors",
        ),
        (
            "prepare a pread f 4K 0\nio_submit a\nio_getevents 2",
            "t.calls:5: io_getevents: it waits for more requests than were submitted",
        ),
        (
            "prepare a timeout 1s\nio_uring_enter 0 a\nio_uring_enter 0 a",
            "t.calls:5: io_uring_enter: a request is still under way",
        ),
        (
            "close f\nprepare a pwrite f 4K 0\nio_uring_enter 1 a",
            "t.calls:4: pwrite: it fails with EBADF",
        ),
        (
            "mapped_read f 4K 0",
            "t.calls:3: mapped_read: it fails with EFAULT",
        ),
    ] {
        let list = format!("[p]\nopen f /f read write create\n{lines}\n");
        let refused = run(&place, &list, &[]);
        assert_eq!(refused.status, 2, "{list}{}", refused.err);
        assert!(
            refused.err.starts_with(&format!("blklab: {message}")),
            "{}",
            refused.err
        );
    }
}

/// The file of a job, and that of a list, each written to and synced in part.
#[test]
fn sync_file_range_takes_as_long_for_a_job_as_in_a_list() {
    let place = Place::new();
    let on = ["--machine", "vm-2cpu", "--drive", "nvme", "--fs", "ext2"];
    place.file(
        "t.fio",
        "[a]\nrw=randwrite\nbs=4k\nsize=1m\nsync_file_range=write:1\n",
    );
    let json = place.json(&[&["run", "t.fio"], &on[..]].concat());
    let of_job = json["jobs"][0]["sync"]["lat_ns"]["min"]
        .as_u64()
        .expect("a time");
    let list = "file /x 1M\n[p]\nopen f /x read write\npwrite f 4k 8k\n\
                sync_file_range f 8k 4k write\nclose f\n";
    place.file("t.calls", list);
    let json = place.json(&[&["run", "t.calls"], &on[..]].concat());
    let of_list = times(&json, "p", "sync_file_range").expect("it was called");
    assert_eq!(of_list["total_ns"], of_job);
    let syscall_ns = times(&json, "p", "close").expect("at the end");
    assert!(
        of_job > 2 * syscall_ns["total_ns"].as_u64().expect("a time"),
        "{of_job}"
    );
}

/// A CPU that works for a call is not what the call waits for.
#[test]
fn the_parts_of_a_calls_time_are_not_more_than_it() {
    let place = Place::new();
    let list = "file /x 16M\n[p]\nopen f /x read write\npread f 16M 0\ndrop_caches 3\n\
                pwrite f 16M 0\nfsync f\n";
    let json = run(
        &place,
        list,
        &["--machine", "i7-3770k", "--output-format", "json"],
    );
    let json = json.ok().json();
    for call in ["pread", "drop_caches", "pwrite", "fsync"] {
        let times = times(&json, "p", call).expect("it was called");
        let part = |what: &str| times[what].as_u64().expect("a time");
        let parts = part("cpu_ns") + part("waits_ns") + part("tag_ns");
        assert!(parts <= part("total_ns"), "{call}: {times}");
        assert!(call != "drop_caches" || part("cpu_ns") > 0, "{times}");
    }
}

/// `MAX_RW_COUNT` of Linux.
#[test]
fn a_call_reads_and_writes_less_than_2_gib() {
    let place = Place::new();
    let list = "[p]\nopen f /x read write create\nftruncate f 3G\npread f 3G 0\n";
    let json = run_on(&place, "xfs", list, &["--output-format", "json"]);
    let json = json.ok().json();
    let read = times(&json, "p", "pread").expect("it was called");
    assert_eq!(read["returned"], 0x7fff_f000_u64);
}
