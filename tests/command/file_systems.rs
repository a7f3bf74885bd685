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
