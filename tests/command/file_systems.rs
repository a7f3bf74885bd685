//! Jobs on files of ext2 and VFAT, through the command.

use crate::support::Place;

/// What a run prints whose job ends with an error.
fn ended_badly(place: &Place, args: &[&str]) -> serde_json::Value {
    place
        .blklab(&[args, &["--output-format", "json"]].concat())
        .json()
}

#[test]
fn files_on_a_file_system_cost_reads_of_its_own_blocks() {
    let place = Place::new();
    place.file(
        "read.fio",
        "[a]\nrw=randread\nbs=4k\nsize=64m\nnumber_ios=500\n",
    );
    let read = |fs: &str| {
        let json = place.json(&["run", "read.fio", "--fs", fs]);
        let cache = &json["blklab"]["page_cache"];
        let count = |key: &str| cache[key].as_u64().expect("a count");
        (count("blocks_read"), count("names_looked_up"))
    };
    assert_eq!(read("raw"), (0, 0));
    let (blocks, names) = read("ext2");
    // One indirect block for each 4 MiB beyond the first 48 KiB, the block above them,
    // and on the way to the file its directory and its inode.
    assert!((16..=24).contains(&blocks), "{blocks}");
    assert_eq!(names, 1);
    let (sectors, _) = read("vfat");
    // A cluster has 32 KiB, and a sector of the table tells of 128 of them.
    assert!((12..=24).contains(&sectors), "{sectors}");
    let text = place.blklab(&["run", "read.fio", "--fs", "ext2"]).ok().out;
    assert!(text.contains("\n  file system: names=1 "), "{text}");
}

#[test]
fn a_file_system_that_is_full_tells_the_job() {
    let place = Place::new();
    let shipped = place.blklab(&["show", "drive", "null"]).ok().out;
    let small = shipped.replace("capacity_bytes = 256060514304", "capacity_bytes = 67108864");
    place.file("small.toml", &small);
    let job = "[a]\nrw=write\nbs=1m\nsize=100m\nfallocate=none\n";
    place.file("write.fio", job);
    for fs in ["ext2", "vfat"] {
        let args = ["run", "write.fio", "--drive", "small.toml", "--fs", fs];
        let json = ended_badly(&place, &args);
        let job = &json["jobs"][0];
        assert_eq!(job["error"], 28, "{fs}");
        let written = job["write"]["io_bytes"].as_u64().expect("bytes");
        assert!((50 << 20..64 << 20).contains(&written), "{fs}: {written}");
    }
    place.file("overwrite.fio", &format!("{job}overwrite=1\n"));
    let args = [
        "run",
        "overwrite.fio",
        "--drive",
        "small.toml",
        "--fs",
        "ext2",
    ];
    let refused = place.blklab(&args);
    assert_eq!(refused.status, 2, "{}", refused.err);
    assert!(refused.err.contains("no space left"), "{}", refused.err);
}

#[test]
fn a_file_that_is_written_through_a_mapping_is_laid_out_before() {
    let place = Place::new();
    for (fs, rw) in [("ext2", "write"), ("vfat", "randwrite"), ("xfs", "write")] {
        let job = format!("[a]\nioengine=mmap\nrw={rw}\nbs=4k\nsize=4m\nend_fsync=1\n");
        place.file("map.fio", &job);
        let json = place.json(&["run", "map.fio", "--fs", fs]);
        assert_eq!(json["jobs"][0]["error"], 0, "{fs}");
        assert_eq!(json["jobs"][0]["write"]["io_bytes"], 4 << 20, "{fs}");
        let written = &json["blklab"]["page_cache"]["written_pages"];
        assert!(written.as_u64() >= Some(1024), "{fs}: {written}");
    }
}

#[test]
fn direct_writes_of_one_file_are_under_way_together() {
    let place = Place::new();
    let iops = |fs: &str, options: &str| {
        let job = "[a]\nrw=randwrite\nbs=4k\nsize=8m\nio_size=4m\ndirect=1\noverwrite=1\n";
        place.file("write.fio", &format!("{job}{options}"));
        let args = ["run", "write.fio", "--drive", "optane-ssd", "--fs", fs];
        let json = place.json(&args);
        json["jobs"][0]["write"]["iops"].as_f64().expect("a rate")
    };
    let deep = "ioengine=libaio\niodepth=8\n";
    let raw = iops("raw", deep);
    for fs in ["ext2", "vfat", "xfs"] {
        let on_file = iops(fs, deep);
        assert!(on_file > 0.9 * raw, "{fs}: {on_file} of {raw}");
    }
    // pwrite holds the lock up to its end, alone on ext2 and shared on XFS.
    let jobs = "ioengine=psync\nnumjobs=8\nfilename=f\ngroup_reporting=1\n";
    let (ext2, xfs) = (iops("ext2", jobs), iops("xfs", jobs));
    assert!(xfs > 2.0 * ext2, "{xfs} and {ext2}");
}

#[test]
fn a_file_that_is_not_there_ends_its_reader() {
    let place = Place::new();
    place.file("read.fio", "[a]\nrw=read\nsize=1m\ncreate_on_open=1\n");
    let json = ended_badly(&place, &["run", "read.fio", "--fs", "ext2"]);
    assert_eq!(json["jobs"][0]["error"], 2, "ENOENT");
    // fio takes the size of a file from the file itself.
    place.file("named.fio", "[a]\nrw=read\nfilename=/some\n");
    let refused = place.blklab(&["run", "named.fio", "--fs", "ext2"]);
    assert_eq!(refused.status, 2, "{}", refused.err);
    let message = "named.fio:1: job a: /some is not there before the job; give its size=";
    assert!(refused.err.contains(message), "{}", refused.err);
}

#[test]
fn file_systems_are_compared_beside_each_other() {
    let place = Place::new();
    place.file("write.fio", "[a]\nrw=write\nbs=64k\nsize=16m\nfsync=16\n");
    let args = [
        "compare",
        "write.fio",
        "--schedulers",
        "none",
        "--repeats",
        "1",
    ];
    let vary = ["--vary", "fs=raw,ext2,vfat,xfs"];
    let out = place.blklab(&[&args[..], &vary].concat()).ok().out;
    for name in ["raw", "ext2", "vfat", "xfs"] {
        assert!(out.contains(name), "{out}");
    }
    for options in [["--fs", "ext4"], ["--vary", "fs=ext4"]] {
        let refused = place.blklab(&[&args[..], &options].concat());
        assert_eq!(refused.status, 2, "{}", refused.err);
        assert!(
            refused.err.contains("raw, ext2, vfat, xfs"),
            "{}",
            refused.err
        );
    }
}

#[test]
fn a_file_is_not_trimmed() {
    let place = Place::new();
    place.file("trim.fio", "[a]\nrw=trim\nbs=4k\nsize=1m\ndirect=1\n");
    let refused = place.blklab(&["run", "trim.fio", "--fs", "ext2"]);
    assert_eq!(refused.status, 2, "{}", refused.err);
    assert!(refused.err.contains("trim.fio:1"), "{}", refused.err);
}

/// How often fio opens its files and flushes them, by its system calls.
fn fios_opens_and_flushes(job: &str) -> Option<(u64, u64)> {
    if !blklab_judges::have("fio") || !blklab_judges::have("strace") {
        return None;
    }
    let place = Place::new();
    place.file("f.fio", &format!("{job}filename_format=f$filenum\n"));
    let strace = std::path::Path::new("strace");
    let args = [
        "-f",
        "-o",
        "calls",
        "-e",
        "trace=openat,fsync",
        "fio",
        "f.fio",
    ];
    place.run(strace, &args).ok();
    let calls = std::fs::read_to_string(place.path("calls")).expect("a list of calls");
    // Files are laid out before with O_WRONLY.
    let opens = |line: &&str| line.contains("\"f") && line.contains("O_RDWR|O_CREAT, 0600");
    let of = |call: &str| calls.lines().filter(|line| line.contains(call)).count() as u64;
    Some((calls.lines().filter(opens).count() as u64, of("fsync(")))
}

#[test]
fn files_are_opened_and_flushed_as_often_as_by_fio() {
    let place = Place::new();
    for options in [
        "nrfiles=3\nopenfiles=1\nend_fsync=1",
        "nrfiles=3\nopenfiles=2\nfsync_on_close=1",
        "nrfiles=3\nopenfiles=1\nfsync_on_close=1\nloops=2",
        "nrfiles=1\nfsync_on_close=1\nloops=2",
        "nrfiles=4\nopenfiles=2\nfsync_on_close=1\nfsync=4\nfile_service_type=sequential",
        "nrfiles=4\nopenfiles=3\nend_fsync=1\nfsync=3",
    ] {
        let job = format!("[a]\nioengine=psync\nrw=write\nbs=4k\nsize=96k\n{options}\n");
        let Some((opens, flushes)) = fios_opens_and_flushes(&job) else {
            return;
        };
        place.file("f.fio", &job);
        let files = place.json(&["run", "f.fio", "--fs", "ext2"]);
        let names = &files["blklab"]["page_cache"]["names_looked_up"];
        assert_eq!(names.as_u64(), Some(opens), "{options}");
        // On drives alone a file costs no call, but each flush.
        place.file("f.fio", &format!("{job}direct=1\n"));
        let drive = place.json(&["run", "f.fio"]);
        let ours = &drive["blklab"]["disks"][0]["queue"]["ios"]["flush"];
        assert_eq!(ours.as_u64(), Some(flushes), "{options}");
    }
}

#[test]
fn files_that_are_read_before_a_job_are_opened_for_that_too() {
    let place = Place::new();
    let job = "[a]\nrw=randread\nbs=4k\nsize=4m\nnrfiles=256\npre_read=1\n";
    for options in ["", "openfiles=2\n"] {
        place.file("open.fio", &format!("{job}{options}"));
        let json = place.json(&["run", "open.fio", "--fs", "ext2"]);
        let cache = &json["blklab"]["page_cache"];
        assert_eq!(cache["names_looked_up"], 512, "{options}");
        assert_eq!(json["jobs"][0]["error"], 0, "{options}");
    }
}

/// fio counts it as no error that the file system has no room for more.
#[test]
fn a_job_that_fills_a_file_system_ends_well_when_it_is_full() {
    let place = Place::new();
    let job = "[a]\nrw=write\nbs=256k\nfill_device=1\n";
    place.file("fill.fio", job);
    let shipped = place.blklab(&["show", "drive", "null"]).ok().out;
    let small = shipped.replace("capacity_bytes = 256060514304", "capacity_bytes = 67108864");
    place.file("small.toml", &small);
    for kind in ["ext2", "vfat"] {
        let args = ["run", "fill.fio", "--drive", "small.toml", "--fs", kind];
        let args = [&args[..], &["--output-format", "json"]].concat();
        let json = place.blklab(&args).ok().json();
        let job = &json["jobs"][0];
        assert_eq!(job["error"], 0, "{kind}");
        let bytes = job["write"]["io_bytes"].as_u64().expect("a count");
        // Nearly all of the drive: what is left holds the file system itself.
        assert!((58 << 20..64 << 20).contains(&bytes), "{kind}: {bytes}");
    }
    let args = [
        "run",
        "fill.fio",
        "--drive",
        "small.toml",
        "--output-format",
        "json",
    ];
    let json = place.blklab(&args).ok().json();
    assert_eq!(json["jobs"][0]["write"]["io_bytes"], 64 << 20);
}

/// ext2 has no `fallocate`: fio ends the job for `keep` alone, after its first I/O.
#[test]
fn fallocate_that_keeps_the_size_fails_on_ext2() {
    let place = Place::new();
    for (rw, made) in [("write", ""), ("read", ""), ("write", "create_on_open=1\n")] {
        let job = format!("[a]\nrw={rw}\nbs=64k\nsize=4m\nfallocate=keep\n{made}");
        place.file("keep.fio", &job);
        for fs in ["ext2", "vfat", "xfs", "raw"] {
            let json = ended_badly(&place, &["run", "keep.fio", "--fs", fs]);
            let job = &json["jobs"][0];
            let (error, bytes) = match fs == "ext2" && made.is_empty() {
                true => (95, 64 << 10),
                false => (0, 4 << 20),
            };
            assert_eq!(job["error"], error, "{fs} {rw} {made}");
            assert_eq!(job[rw]["io_bytes"], bytes, "{fs} {rw} {made}");
        }
    }
}

/// What writes makes its files anew in each loop; what reads does not find them in the second.
#[test]
fn files_are_removed_between_loops() {
    let place = Place::new();
    let loops = "bs=64k\nsize=4m\nnrfiles=2\nloops=3\nfallocate=none\n";
    let run = |rw: &str, unlinks: &str| {
        place.file("loops.fio", &format!("[a]\nrw={rw}\n{loops}{unlinks}"));
        ended_badly(&place, &["run", "loops.fio", "--fs", "ext2"])
    };
    let count = |json: &serde_json::Value, what: &str| {
        let count = json["blklab"]["page_cache"][what].as_u64();
        count.expect("a count")
    };
    let kept = run("write", "");
    let removed = run("write", "unlink_each_loop=1\n");
    for json in [&kept, &removed] {
        assert_eq!(json["jobs"][0]["error"], 0);
        assert_eq!(json["jobs"][0]["write"]["io_bytes"], 12 << 20);
    }
    // Each removal looks the name up once more, and frees the blocks.
    assert_eq!(
        count(&removed, "names_looked_up"),
        count(&kept, "names_looked_up") + 4
    );
    assert!(count(&removed, "blocks_looked_up") > count(&kept, "blocks_looked_up"));
    let gone = run("read", "unlink_each_loop=1\n");
    assert_eq!(gone["jobs"][0]["error"], 2);
    assert_eq!(gone["jobs"][0]["read"]["io_bytes"], 4 << 20);
}
