//! Jobs whose I/O is not direct, through the command.

use crate::support::Place;

const READ: &str = "[a]\nfilename=/dev/x\nrw=read\nbs=4k\nsize=16m\n";

#[test]
fn the_report_has_what_the_page_cache_did() {
    let place = Place::new();
    place.file("read.fio", READ);
    let json = place.json(&["run", "read.fio"]);
    let cache = &json["blklab"]["page_cache"];
    assert_eq!(cache["read_pages"], 4096);
    // The first page is read because it is missing, and all others before they are asked for.
    assert_eq!(cache["readahead_used"], 4095);
    assert!(!cache["samples"].as_array().expect("samples").is_empty());
    let text = place.blklab(&["run", "read.fio"]).ok().out;
    assert!(text.contains("Page cache:\n  reads: pages=4096 "), "{text}");
    place.file("direct.fio", &format!("{READ}direct=1\n"));
    let json = place.json(&["run", "direct.fio"]);
    assert!(json["blklab"].get("page_cache").is_none());
}

/// Each page is read because somebody misses it, however many a call asks for.
#[test]
fn what_is_missed_is_neither_cached_nor_read_ahead() {
    let place = Place::new();
    for bs in ["4k", "64k"] {
        let job = "[a]\nfilename=/dev/x\nrw=randread\nsize=16m\n";
        place.file("random.fio", &format!("{job}bs={bs}\n"));
        let json = place.json(&["run", "random.fio"]);
        let cache = &json["blklab"]["page_cache"];
        let found = ["read_pages", "misses", "hits", "readahead_pages"].map(|key| &cache[key]);
        assert_eq!(found, [4096, 4096, 0, 0], "bs={bs}: {cache}");
    }
}

/// What goes through the page cache may begin and end inside a sector.
#[test]
fn a_block_may_be_any_number_of_bytes_unless_it_is_direct() {
    let place = Place::new();
    let job = "[a]\nrw=randrw\nbs=1000\nsize=1000k\nnorandommap\nnumber_ios=500\nend_fsync=1\n";
    place.file("odd.fio", job);
    for fs in ["raw", "ext2", "vfat", "xfs"] {
        let json = place.json(&["run", "odd.fio", "--fs", fs, "--memory", "64M"]);
        let job = &json["jobs"][0];
        let bytes = |dir: &str| job[dir]["io_bytes"].as_u64().expect("bytes");
        assert_eq!(bytes("read") + bytes("write"), 500_000, "{fs}: {job}");
        assert_eq!(job["error"], 0, "{fs}");
    }
    place.file("direct.fio", &format!("{job}direct=1\n"));
    let outcome = place.blklab(&["run", "direct.fio"]);
    assert_eq!(outcome.status, 2);
    let expected = "direct.fio:3: bs=1000: 1000 bytes are not whole sectors; a multiple of 512 \
                    bytes, as direct I/O needs";
    assert!(outcome.err.contains(expected), "{}", outcome.err);
}

/// The notes of a run are in what it prints, whatever that is.
#[test]
fn a_note_is_in_the_report() {
    let place = Place::new();
    let job =
        "[global]\nfilename=/dev/x\nsize=1m\nbs=4k\n[d]\nrw=randread\ndirect=1\n[b]\nrw=write\n";
    place.file("mixed.fio", job);
    let note = "d: its direct I/O does not look at what the page cache has";
    let text = place
        .blklab(&["run", "mixed.fio", "--output", "o.txt"])
        .ok();
    assert!(text.err.contains(note), "{}", text.err);
    let text = std::fs::read_to_string(place.path("o.txt")).expect("a report");
    assert!(text.contains(&format!("\nnote: {note}")), "{text}");
}

#[test]
fn settings_of_a_cache_that_nobody_uses_are_said_to_change_nothing() {
    let place = Place::new();
    place.file("direct.fio", "[d]\nfilename=/dev/x\nsize=1m\ndirect=1\n");
    let note = "vm settings change nothing";
    for (options, has_note) in [
        (&["--sysctl", "vm.dirty_ratio=10"][..], true),
        (&["--memory", "1G"], true),
        (&["--read-ahead-kb", "64"], true),
        (&["--fs", "ext2"], false),
        (&[], false),
    ] {
        let args = [&["run", "direct.fio"][..], options].concat();
        let err = place.blklab(&args).ok().err;
        assert_eq!(err.contains(note), has_note, "{options:?}: {err}");
    }
}

/// Document 003: readahead makes a program that reads in order several times as fast, though
/// the drive reads ahead of it as well.
#[test]
fn readahead_and_the_kernels_settings_vary() {
    let place = Place::new();
    let compared = |job: &str, vary: &str, metric: &str| {
        let args = [
            "compare",
            job,
            "--drive",
            "mx100-256",
            "--schedulers",
            "none",
        ];
        let more = ["--repeats", "1", "--vary", vary, "--output-format", "json"];
        let out = place.blklab(&[&args[..], &more].concat()).ok().out;
        let all: serde_json::Value = serde_json::from_str(&out).expect("JSON");
        let rows = &all["sections"][0]["directions"][0]["rows"];
        let rows = rows.as_array().expect("rows").iter();
        rows.map(|row| {
            row["cells"][metric]["value"]["mean"]
                .as_f64()
                .expect("a figure")
        })
        .collect::<Vec<f64>>()
    };
    let metric = "bandwidth_bytes_per_s";
    let found = compared("disk/readahead", "read_ahead_kb=128,0", metric);
    assert!(found[0] > 3.0 * found[1], "{found:?}");
    place.file(
        "write.fio",
        "[w]\nfilename=/dev/x\nrw=write\nbs=64k\nsize=256m\nend_fsync=0\n",
    );
    let found = compared("write.fio", "vm.dirty_bytes=16777216,1073741824", metric);
    assert!(found[1] > 2.0 * found[0], "{found:?}");
}

/// Document 003: 172 writes a second buffered and 33.5 with O_SYNC, a factor of 5.1. Its
/// disk wrote 4159 times for 2081 writes of fio, data and a second block each, as ext2
/// does with the inode. But ext2 has no log: the inode is near its data, where the
/// document's disk has a way of its own to its log for each write. So a factor of 4, as
/// without a file system, is not reached on ext2.
#[test]
fn o_sync_costs_a_writer_of_small_blocks_most_of_its_speed() {
    let place = Place::new();
    let run = |job: &str, fs: &str| {
        let on = ["--drive", "hdd-7200", "--scheduler", "deadline", "--fs", fs];
        place.json(&[&["run", job][..], &on].concat())
    };
    let writes = |json: &serde_json::Value, what: &str| {
        let write = &json["jobs"][0]["write"];
        write[what].as_f64().expect("a figure")
    };
    let times_slower = |fs| {
        let [buffered, synced] = ["disk/buffered", "disk/o-sync"].map(|job| run(job, fs));
        writes(&buffered, "iops") / writes(&synced, "iops")
    };
    let without_inodes = times_slower("raw");
    assert!(without_inodes > 4.0, "{without_inodes}");
    let on_ext2 = times_slower("ext2");
    assert!((3.2..5.1).contains(&on_ext2), "{on_ext2}");
    // The data, the inode, and the flush of the disk's buffer.
    let synced = run("disk/o-sync", "ext2");
    let written = synced["disk_util"][0]["write_ios"]
        .as_f64()
        .expect("writes");
    let each = written / writes(&synced, "total_ios");
    assert!((2.8..3.1).contains(&each), "{each}");
}

/// ext2 cannot be tried without waiting, so that a worker of io_uring's has to be woken for
/// each write and read; on XFS neither is.
#[test]
fn io_uring_gives_the_files_of_some_file_systems_to_its_workers() {
    let place = Place::new();
    for (rw, dir) in [("randwrite", "write"), ("randread", "read")] {
        let iops = |fs: &str, engine: &str| {
            let job = format!("[a]\nrw={rw}\nbs=4k\nsize=16m\npre_read=1\ninvalidate=0\n");
            place.file("a.fio", &format!("{job}overwrite=1\nioengine={engine}\n"));
            let json = place.json(&["run", "a.fio", "--fs", fs]);
            json["jobs"][0][dir]["iops"].as_f64().expect("a rate")
        };
        let speed = |fs| iops(fs, "io_uring\niodepth=8") / iops(fs, "psync");
        let (ext2, vfat, xfs) = (speed("ext2"), speed("vfat"), speed("xfs"));
        assert!(ext2 < 0.7 && vfat < 0.7, "{rw}: {ext2} {vfat}");
        assert!(xfs > 0.9, "{rw}: {xfs}");
    }
}

/// An access in order faults once for each 64 KiB that are mapped around it, and some of
/// those find their page missing.
#[test]
fn what_is_read_through_a_mapping_is_counted() {
    let place = Place::new();
    place.file("map.fio", "[a]\nioengine=mmap\nrw=read\nbs=4k\nsize=4m\n");
    for fs in ["raw", "ext2"] {
        let json = place.json(&["run", "map.fio", "--fs", fs]);
        let cache = &json["blklab"]["page_cache"];
        assert_eq!(cache["read_pages"], 1024, "{fs}");
        // All but the first page, which is read around.
        assert_eq!(cache["readahead_used"], 1023, "{fs}");
        assert_eq!(cache["readahead_wasted"], 0, "{fs}");
        let job = &json["jobs"][0];
        let of = |what: &str| job[what].as_u64().expect("a count");
        assert_eq!(cache["misses"], of("majf"), "{fs}");
        assert!((1..64).contains(&of("majf")), "{fs}: {}", of("majf"));
        let faults = of("majf") + of("minf");
        assert!((64..=128).contains(&faults), "{fs}: {faults}");
    }
}

/// What writeback throttling holds back is counted without control groups as well.
#[test]
fn writes_that_wait_for_reads_are_counted() {
    let place = Place::new();
    place.file(
        "mixed.fio",
        "[global]\ntime_based\nruntime=1\nfilename=/dev/x\n[w]\nrw=write\nbs=1m\nsize=8g\n\
         [r]\nrw=randread\nbs=4k\ndirect=1\nioengine=libaio\niodepth=4\n",
    );
    let run = place.json(&[
        "compare",
        "mixed.fio",
        "--drive=mx100-256",
        "--schedulers=none",
        "--repeats=1",
        "--sysctl=vm.dirty_bytes=67108864",
        "--vary=wbt_lat_usec=0,2000",
    ]);
    let facts = run["why"].as_array().expect("facts");
    let held = facts.iter().find(|fact| fact["key"] == "wbt_held");
    let held = held.unwrap_or_else(|| panic!("no fact about it in {facts:?}"));
    assert_eq!(held["values"][0], 0.0);
    assert!(held["values"][1].as_f64() > Some(10.0), "{held}");
}

/// As in Linux 6.12, where nobody has set it: under all schedulers but bfq.
#[test]
fn writes_wait_for_reads_by_default() {
    let place = Place::new();
    place.file(
        "mixed.fio",
        "[global]\ntime_based\nruntime=1\nfilename=/dev/x\n[w]\nrw=write\nbs=1m\nsize=8g\n\
         [r]\nrw=randread\nbs=4k\ndirect=1\nioengine=libaio\niodepth=4\n",
    );
    let held = |options: &[&str]| {
        let run = place.json(
            &[
                &[
                    "compare",
                    "mixed.fio",
                    "--drive=mx100-256",
                    "--schedulers=none,mq-deadline,bfq",
                    "--repeats=1",
                    "--sysctl=vm.dirty_bytes=67108864",
                ],
                options,
            ]
            .concat(),
        );
        let facts = run["why"].as_array().expect("facts");
        let held = facts.iter().find(|fact| fact["key"] == "wbt_held");
        held.map(|held| [0, 1, 2].map(|row| held["values"][row].as_f64()))
    };
    let [none, mq_deadline, bfq] = held(&[]).expect("a fact");
    assert!(none > Some(10.0) && mq_deadline > Some(10.0), "{none:?}");
    assert!(bfq.is_none_or(|held| held == 0.0), "{bfq:?}");
    assert_eq!(held(&["--wbt-lat-usec=0"]), None);
}

#[test]
fn a_setting_that_is_wrong_is_refused_in_a_sentence() {
    let place = Place::new();
    place.file("read.fio", READ);
    for (options, says) in [
        (
            &["--sysctl", "vm.dirty_rato=1"][..],
            "there is no vm.dirty_rato",
        ),
        (
            &["--sysctl", "vm.dirty_ratio"],
            "not of the form NAME=VALUE",
        ),
        (&["--sysctl", "vm.dirty_ratio=200"], "from 0 to 100"),
        (&["--sysctl", "mm.lru_gen.enabled=1"], "legal is y or n"),
        (&["--memory", "1M"], "legal is 16777216 to"),
        (
            &["--power-loss-at", "1ms"],
            "a loss of power is simulated with direct=1",
        ),
    ] {
        let args = [&["run", "read.fio"][..], options].concat();
        let done = place.blklab(&args);
        assert_eq!(done.status, 2, "{options:?}: {}", done.err);
        assert!(done.err.contains(says), "{options:?}: {}", done.err);
    }
    for option in [
        "--memory=4G",
        "--read-ahead-kb=0",
        "--sysctl=vm.dirty_ratio=1",
    ] {
        let host = ["compare", "read.fio", "--world", "host", option];
        let done = place.blklab(&host);
        assert_eq!(done.status, 2, "{option}: {}", done.err);
    }
}
