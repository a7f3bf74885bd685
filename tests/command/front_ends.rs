//! Front ends compared in a guest and in the simulated world, each with the same disk in memory.

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

/// Each I/O of the job ends behind each of them, on memory and on a drive that is slow.
#[test]
fn the_simulated_world_has_models_of_them() {
    let place = Place::new();
    place.file(
        "r.fio",
        "[r]\nrw=randrw\nbs=4k\nsize=64m\nioengine=libaio\niodepth=32\ndirect=1\n\
         number_ios=1500\n",
    );
    let names = ["nbd", "nbd:2", "vhost-user", "ublk", "tcmu", "loop"];
    let compare = |more: &[&str]| {
        let all = names.join(",");
        let args = ["compare", "r.fio", "--world", "sim", "--machine", "vm-2cpu"];
        let front_ends = [
            "--frontends",
            &all,
            "--schedulers",
            "none",
            "--repeats",
            "1",
        ];
        place.json(&[&args[..], &front_ends, more].concat())
    };
    let done = compare(&[]);
    assert_eq!(
        (&done["world"], &done["drive"]),
        (&"sim".into(), &"memory".into())
    );
    let reads = &done["sections"][0]["directions"][0]["rows"];
    let ios = |row: usize| reads[row]["ios"].as_u64().expect("a number");
    let writes = &done["sections"][0]["directions"][1]["rows"];
    for (row, name) in names.iter().enumerate() {
        let written = writes[row]["ios"].as_u64().expect("a number");
        assert_eq!(ios(row) + written, 1500, "{name}");
    }
    let slow = compare(&["--drive", "hdd-7200", "--override", "number_ios=20"]);
    assert_eq!(slow["drive"], "hdd-7200");
}

/// TCMU's server spends more than half of its time on telling the kernel, as document 004's did.
#[test]
fn a_run_says_what_servers_spend_on_answers() {
    let place = Place::new();
    place.file(
        "r.fio",
        "[r]\nrw=randrw\nbs=4k\nsize=64m\nioengine=libaio\niodepth=32\ndirect=1\n\
         number_ios=1500\n",
    );
    let args = ["compare", "r.fio", "--world", "sim", "--machine"];
    let front_ends = ["i5-4200u", "--frontends", "tcmu,loop", "--repeats", "1"];
    let done = place.json(&[&args[..], &front_ends, &["--schedulers", "none"]].concat());
    let facts = done["why"].as_array().expect("facts");
    let of_answers = |fact: &&serde_json::Value| fact["key"] == "server_reply_share";
    let values = &facts.iter().find(of_answers).expect("it is there")["values"];
    let share = values[0].as_f64().expect("TCMU has a server");
    assert!((0.5..0.8).contains(&share), "{share}");
    assert!(values[1].is_null(), "a loop device has none");
}

#[test]
fn an_unknown_front_end_is_refused() {
    let place = Place::new();
    place.file("verified.fio", VERIFIED);
    for (given, expected) in [
        (["--frontends", "nbdd"], "did you mean nbd?"),
        (["--frontends", "nbd:17"], "from 1 to 16 connections"),
        (["--vary", "frontend=ublk"], "--world guest"),
        (["--vary", "frontend=lio-ramdisk"], "no model of it"),
    ] {
        let done = place.blklab(&["compare", "verified.fio", given[0], given[1]]);
        assert_eq!(done.status, 2, "{}", done.err);
        assert!(done.err.contains(expected), "{}", done.err);
    }
}
