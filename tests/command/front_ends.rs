//! Front ends compared in a guest, each with the same disk in memory.

use blklab_guest::Packages;

use crate::support::{Place, guest};

const VERIFIED: &str = "[v]\nrw=randwrite\nbs=4k\nsize=400k\nioengine=libaio\niodepth=8\n\
                        direct=1\nverify=crc32c\nverify_fatal=1\n";

#[test]
fn a_disk_in_memory_is_the_same_behind_each() {
    let has_client = |packages: &Packages| packages.program("nbd-client").is_ok();
    let Some(kernel) = guest::kernel("kernel and NBD client", has_client) else {
        return;
    };
    let place = Place::new();
    place.file("verified.fio", VERIFIED);
    let done = place.json(&[
        "compare",
        "verified.fio",
        "--frontends",
        "nbd:2,vhost-user,tcmu",
        "--guest",
        &kernel,
        "--accelerator",
        "tcg",
        "--guest-cpus",
        "2",
        "--no-trace",
        "--repeats",
        "1",
    ]);
    assert_eq!(
        (&done["world"], &done["drive"]),
        (&"guest".into(), &"memory".into())
    );
    let names = ["frontend=nbd:2", "frontend=vhost-user", "frontend=tcmu"];
    assert_eq!(done["schedulers"], serde_json::json!(names));
    // fio fails if it reads other data than it wrote.
    for direction in 0..2 {
        let rows = &done["sections"][0]["directions"][direction]["rows"];
        for row in 0..names.len() {
            assert_eq!(rows[row]["ios"], 100, "{}", names[row]);
        }
    }
    assert!(done.get("failed").is_none(), "{}", done["failed"]);
}

#[test]
fn an_unknown_front_end_is_refused() {
    let place = Place::new();
    place.file("verified.fio", VERIFIED);
    for (given, expected) in [
        (["--frontends", "nbdd"], "did you mean nbd?"),
        (["--frontends", "nbd:17"], "from 1 to 16 connections"),
        (["--vary", "frontend=ublk"], "--world guest"),
    ] {
        let done = place.blklab(&["compare", "verified.fio", given[0], given[1]]);
        assert_eq!(done.status, 2, "{}", done.err);
        assert!(done.err.contains(expected), "{}", done.err);
    }
}
