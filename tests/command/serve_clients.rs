//! Real clients against `blklab serve`: fio, libnbd's tools, QEMU's tools.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::Place;
use crate::support::served::{Served, have, judge, nbdsh, verified};

fn strings(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

/// A file of 64 MiB in the test's folder.
fn image(place: &Place) -> String {
    let path = place.path("disk.img");
    let file = std::fs::File::create(&path).expect("a file");
    file.set_len(64 << 20).expect("its size");
    path.to_string_lossy().into_owned()
}

/// Every scheduler that the server has.
fn schedulers(place: &Place, served: &Served) -> Vec<String> {
    let shown = served.get(place, "queue/scheduler");
    let names = shown.split_whitespace();
    names
        .map(|name| name.trim_matches(['[', ']']).into())
        .collect()
}

/// fio's verified load while every scheduler takes its turn, over and over.
fn switched_under_load(options: &[&str], jobs: u32, extra: &[&str]) {
    let place = Place::new();
    let served = Served::start(&place, &[&["--depth", "4"], options].concat());
    let names = schedulers(&place, &served);
    assert!(names.len() > 10, "{names:?}");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let switcher = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for name in &names {
                    served.set(&place, "queue/scheduler", name);
                    let shown = served.get(&place, "queue/scheduler");
                    assert!(shown.contains(&format!("[{name}]")), "{shown}");
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
            }
        });
        let mut args = verified(&served.uri(), jobs, "randrw", "16m");
        if !extra.is_empty() {
            args.retain(|a| !a.starts_with("--bsrange"));
            args.extend(extra.iter().map(|a| a.to_string()));
        }
        let fio = Command::new("fio").args(&args).output().expect("fio");
        stop.store(true, Ordering::Relaxed);
        let text = String::from_utf8_lossy(&fio.stdout).into_owned();
        assert!(fio.status.success(), "{options:?}: {text}");
        assert!(text.contains("err= 0"), "{options:?}: {text}");
        switcher.join().expect("every switch went well");
    });
    assert_eq!(served.terminate(), Some(0), "{options:?}");
}

#[test]
fn no_byte_is_lost_while_schedulers_change_above_memory() {
    if !have("fio") {
        return;
    }
    for jobs in [1, 4] {
        switched_under_load(&["--memory", "64M"], jobs, &[]);
    }
}

#[test]
fn no_byte_is_lost_between_threads() {
    if !have("fio") {
        return;
    }
    switched_under_load(&["--memory", "64M", "--threads", "3"], 4, &[]);
    let place = Place::new();
    let image = image(&place);
    let options = ["--file", &image, "--threads", "2"];
    let served = Served::start(&place, &options);
    // The second job's requests end in the other thread's turns too.
    let args = verified(&served.uri(), 2, "randrw", "8m");
    let said = judge(&place, "fio", &strings(&args)).out;
    assert!(said.contains("err= 0"), "{said}");
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn no_byte_is_lost_while_schedulers_change_above_a_file() {
    if !have("fio") {
        return;
    }
    let place = Place::new();
    for engine in ["psync", "posixaio", "libaio", "io_uring"] {
        for jobs in [1, 4] {
            let image = image(&place);
            let options = ["--file", &image, "--engine", engine];
            switched_under_load(&options, jobs, &[]);
        }
    }
}

#[test]
fn no_byte_is_lost_while_schedulers_change_above_a_file_without_its_cache() {
    if !have("fio") {
        return;
    }
    let place = Place::new();
    for engine in ["psync", "libaio", "io_uring"] {
        let image = image(&place);
        let options = ["--file", &image, "--direct", "--engine", engine];
        switched_under_load(&options, 4, &["--bs=4k"]);
    }
}

#[test]
fn no_byte_is_lost_while_schedulers_change_above_another_server() {
    if !have("fio") {
        return;
    }
    for jobs in [1, 4] {
        let place = Place::new();
        let behind = Served::start(&place, &["--memory", "64M"]);
        switched_under_load(&["--nbd", &behind.uri()], jobs, &[]);
    }
}

#[test]
fn a_paced_drive_loses_nothing() {
    if !have("fio") {
        return;
    }
    let place = Place::new();
    let options = [
        "--memory",
        "64M",
        "--drive",
        "mx100-256",
        "--scheduler",
        "mq-deadline",
    ];
    let served = Served::start(&place, &options);
    let mut args = verified(&served.uri(), 2, "randrw", "2m");
    // The drive's block is 4 KiB.
    args.retain(|a| !a.starts_with("--bsrange"));
    args.push("--bs=4k".to_string());
    judge(&place, "fio", &strings(&args));
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn a_scheduler_stands_before_other_servers() {
    if !have("nbdkit") || !have("qemu-nbd") || !have("fio") {
        return;
    }
    for server in ["nbdkit", "qemu-nbd"] {
        let place = Place::new();
        let image = image(&place);
        let socket = place.path("behind.sock");
        let behind = socket.to_string_lossy().into_owned();
        let mut command = Command::new(server);
        match server {
            "nbdkit" => command.args(["-f", "-U", &behind, "memory", "64M"]),
            _ => command.args(["-f", "raw", "-t", "-e", "8", "-k", &behind, &image]),
        };
        let mut child = command.spawn().expect("the other server starts");
        while !socket.exists() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let uri = format!("nbd+unix:///?socket={behind}");
        let options = ["--nbd", &uri, "--scheduler", "mq-deadline", "--depth", "4"];
        let served = Served::start(&place, &options);
        let mut args = verified(&served.uri(), 2, "randrw", "4m");
        args.retain(|a| !a.starts_with("--bsrange"));
        args.push("--bs=4k".to_string());
        judge(&place, "fio", &strings(&args));
        let commands = [
            "write -z 1M 1M",
            "read -P 0 1M 1M",
            "write -f -P 7 0 4k",
            "discard 4k 4k",
        ];
        let mut args = vec!["-f", "raw"];
        commands.iter().for_each(|c| args.extend(["-c", c]));
        let uri = served.uri();
        args.push(&uri);
        judge(&place, "qemu-io", &args);
        assert_eq!(served.terminate(), Some(0));
        child.kill().expect("it runs");
        child.wait().expect("it ends");
    }
}

#[test]
fn nbdinfo_sees_what_was_asked_for() {
    if !have("nbdinfo") {
        return;
    }
    let place = Place::new();
    place.file(
        "server.toml",
        "[[export]]\nname = 'one'\nmemory = '1G'\ndescription = 'first of two'\n\
         [[export]]\nname = 'two'\nmemory = '64M'\nread-only = true\n",
    );
    let served = Served::start(&place, &["server.toml"]);
    let shown = judge(&place, "nbdinfo", &["--json", "--list", &served.uri()]);
    let shown = shown.json();
    let exports = shown["exports"].as_array().expect("a list");
    assert_eq!(exports.len(), 2);
    assert_eq!(exports[0]["export-name"], "one");
    assert_eq!(exports[0]["export-size"], 1 << 30);
    assert_eq!(exports[0]["description"], "first of two");
    assert_eq!(exports[0]["can_multi_conn"], true);
    assert_eq!(exports[0]["can_fast_zero"], true);
    assert_eq!(exports[1]["is_read_only"], true);
    assert_eq!(exports[1]["can_zero"], false);
}

#[test]
fn tcp_and_metrics_are_found_where_it_says() {
    if !have("nbdcopy") {
        return;
    }
    let place = Place::new();
    let original = patchwork(&place, "original");
    let mut served = Served::start(
        &place,
        &[
            "--listen",
            "127.0.0.1:0",
            "--metrics",
            "127.0.0.1:0",
            "--memory",
            "24M",
            "--scheduler",
            "kyber",
        ],
    );
    let uri = served.next_line();
    assert!(uri.starts_with("nbd://127.0.0.1:"), "{uri}");
    judge(&place, "nbdcopy", &[&original, &uri]);
    judge(&place, "qemu-img", &["compare", &original, &uri]);
    let metrics = served.next_line();
    let address = metrics
        .strip_prefix("metrics: http://")
        .and_then(|rest| rest.strip_suffix("/metrics"))
        .unwrap_or_else(|| panic!("{metrics}"));
    let get = |path: &str| {
        let mut stream = TcpStream::connect(address).expect("it listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("a reply");
        reply
    };
    let reply = get("/metrics");
    let value = |name: &str| -> f64 {
        let line = reply.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("no {name} in {reply}"));
        let number = line.rsplit(' ').next().expect("a value");
        number.parse().expect("a number")
    };
    assert!(reply.starts_with("HTTP/1.1 200 OK\r\n"));
    // Two thirds of the file are data.
    let written = value("blklab_bytes_total{export=\"\",op=\"write\"}");
    assert!(written >= 16e6, "{written}");
    assert!(value("blklab_latency_seconds_count{export=\"\",op=\"write\"}") > 0.0);
    assert!(value("blklab_memory_bytes{export=\"\"}") >= 16e6);
    assert_eq!(
        value("blklab_scheduler_info{export=\"\",scheduler=\"kyber\"}"),
        1.0
    );
    assert_eq!(value("blklab_errors_total{export=\"\"}"), 0.0);
    assert!(get("/other").starts_with("HTTP/1.1 404"));
}

#[test]
fn top_and_load_tell_the_same() {
    let place = Place::new();
    let served = Served::start(&place, &["--memory", "16M", "--scheduler", "bfq"]);
    let control = served.control.to_string_lossy().into_owned();
    let uri = served.uri();
    let load = [
        "load",
        &uri,
        "--depth",
        "4",
        "--reads",
        "100",
        "--seconds",
        "1.5",
    ];
    let shown = std::thread::scope(|scope| {
        let loading = scope.spawn(|| place.blklab(&load).ok());
        std::thread::sleep(std::time::Duration::from_millis(400));
        let args = [
            "top",
            "--control",
            &control,
            "--interval",
            "0.5",
            "--count",
            "1",
        ];
        let shown = place.blklab(&args).ok();
        let loaded = loading.join().expect("the load ends well");
        assert!(loaded.out.starts_with("read: IOPS="), "{}", loaded.out);
        assert!(!loaded.out.contains("write:"), "{}", loaded.out);
        shown.out
    });
    assert!(shown.starts_with("scheduler bfq, 1 connections"), "{shown}");
    let row = shown.lines().find(|line| line.starts_with("read"));
    let row: Vec<&str> = row.expect("reads").split_whitespace().collect();
    let number = |n: usize| -> f64 { row[n].parse().expect("a number") };
    assert!(number(1) > 0.0 && number(2) > 0.0, "{shown}");
    assert!(number(3) <= number(4) && number(4) <= number(5), "{shown}");
    assert!(!shown.contains("write  "), "{shown}");
}

#[test]
fn a_socket_can_be_passed_as_systemd_does() {
    if !have("nbdinfo") || !have("nbdcopy") {
        return;
    }
    let place = Place::new();
    // libnbd's tools start a server between brackets and pass it a socket.
    let server = [
        "[",
        env!("CARGO_BIN_EXE_blklab"),
        "serve",
        "--memory",
        "24M",
        "]",
    ];
    let info = judge(
        &place,
        "nbdinfo",
        &[&["--size", "--"], &server[..]].concat(),
    );
    assert_eq!(info.out.trim(), (24u64 << 20).to_string());
    let original = patchwork(&place, "original");
    judge(
        &place,
        "nbdcopy",
        &[&["--", &original], &server[..]].concat(),
    );
}

/// A file with data and holes.
fn patchwork(place: &Place, name: &str) -> String {
    let mut bytes = vec![0u8; 24 << 20];
    for (i, chunk) in bytes.chunks_mut(1 << 20).enumerate() {
        if i % 3 != 0 {
            let seed = i as u8;
            chunk
                .iter_mut()
                .enumerate()
                .for_each(|(j, byte)| *byte = seed.wrapping_mul(31) ^ (j % 251) as u8);
        }
    }
    let path = place.path(name);
    std::fs::write(&path, bytes).expect("a file");
    path.to_string_lossy().into_owned()
}

#[test]
fn nbdcopy_goes_there_and_back() {
    if !have("nbdcopy") {
        return;
    }
    for backend in ["memory", "file"] {
        let place = Place::new();
        let (original, back) = (patchwork(&place, "original"), place.path("back"));
        let image = image(&place);
        let options = match backend {
            "memory" => ["--memory", "24M"],
            _ => {
                std::fs::File::options()
                    .write(true)
                    .open(&image)
                    .and_then(|f| f.set_len(24 << 20))
                    .expect("its size");
                ["--file", &image]
            }
        };
        let served = Served::start(&place, &options);
        judge(&place, "nbdcopy", &["--flush", &original, &served.uri()]);
        let back = back.to_string_lossy().into_owned();
        judge(&place, "nbdcopy", &[&served.uri(), &back]);
        judge(&place, "cmp", &[&original, &back]);
        // Holes are told of.
        let map = judge(&place, "nbdinfo", &["--map", &served.uri()]).out;
        assert!(map.contains("hole"), "{backend}: {map}");
        assert!(map.contains("data"), "{backend}: {map}");
    }
}

#[test]
fn qemu_img_converts_and_compares() {
    if !have("qemu-img") || !have("qemu-io") {
        return;
    }
    let place = Place::new();
    let original = patchwork(&place, "original");
    let served = Served::start(&place, &["--memory", "24M", "--scheduler", "bfq"]);
    let uri = served.uri();
    judge(
        &place,
        "qemu-img",
        &["convert", "-n", "-f", "raw", "-O", "raw", &original, &uri],
    );
    judge(&place, "qemu-img", &["compare", &original, &uri]);
    judge(
        &place,
        "qemu-img",
        &["convert", "-f", "raw", "-O", "qcow2", &uri, "back.qcow2"],
    );
    judge(&place, "qemu-img", &["compare", &original, "back.qcow2"]);
    let commands = [
        "write -P 0xaa 1000 70000",
        "write -f -P 0xbb 65536 512",
        "write -z -u 1M 1M",
        "write -z 3M 64k",
        "discard 4M 1M",
        "flush",
        "read -P 0xaa 1000 64536",
        "read -P 0xbb 65536 512",
        "read -P 0xaa 66048 4952",
        "read -P 0 1M 1M",
        "read -P 0 3M 64k",
    ];
    let mut args = vec!["-f", "raw"];
    for command in &commands {
        args.extend(["-c", command]);
    }
    args.push(&uri);
    let shown = judge(&place, "qemu-io", &args);
    assert!(!shown.out.contains("failed"), "{}", shown.out);
}

#[test]
fn a_file_system_survives() {
    if !have("mkfs.ext4") || !have("e2fsck") || !have("qemu-img") {
        return;
    }
    let place = Place::new();
    std::fs::create_dir(place.path("tree")).expect("a folder");
    place.file("tree/hello", "kept\n");
    judge(&place, "truncate", &["-s", "64M", "fs.img"]);
    judge(&place, "mkfs.ext4", &["-q", "-d", "tree", "fs.img"]);
    let served = Served::start(&place, &["--memory", "64M", "--scheduler", "kyber"]);
    let uri = served.uri();
    let raw = ["-f", "raw", "-O", "raw"];
    judge(
        &place,
        "qemu-img",
        &[&["convert", "-n"], &raw[..], &["fs.img", &uri]].concat(),
    );
    judge(
        &place,
        "qemu-img",
        &[&["convert"], &raw[..], &[&uri, "back.img"]].concat(),
    );
    judge(&place, "e2fsck", &["-fn", "back.img"]);
    let shown = judge(&place, "debugfs", &["-R", "cat /hello", "back.img"]);
    assert_eq!(shown.out, "kept\n");
}

#[test]
fn libnbd_gets_every_command_right() {
    if !have("nbdsh") {
        return;
    }
    let script = r#"
import nbd
h2 = nbd.NBD()
h2.connect_uri(uri)
# Unaligned, overlapping, forced through.
h.pwrite(b"a" * 1000, 511, nbd.CMD_FLAG_FUA)
h.pwrite(b"b" * 3, 1000)
h.flush()
assert h2.pread(1002, 510) == b"\0" + b"a" * 489 + b"bbb" + b"a" * 508 + b"\0"
# Zeroes that keep their space, and that do not.
h.pwrite(b"c" * 200000, 1 << 20)
h.zero(65536, 1 << 20, nbd.CMD_FLAG_NO_HOLE)
h.zero(65536, (1 << 20) + 65536, nbd.CMD_FLAG_FAST_ZERO)
h.trim(65536, (1 << 20) + 131072 - 65536)
assert h.pread(131072, 1 << 20) == b"\0" * 131072
assert h.pread(10, (1 << 20) + 131072) == b"c" * 10
h.cache(4096, 0)
# A read in one piece, and one of several pieces.
got = []
def chunk(buf, offset, status, err):
    got.append((offset, len(buf), status))
h.pread_structured(65536, 1 << 20, chunk, nbd.CMD_FLAG_DF)
assert got == [(1 << 20, 65536, nbd.READ_DATA)], got
extents = []
h.block_status(4 << 20, 0, lambda ctx, off, e, err: extents.append((ctx, off, e)))
assert extents[0][0] == "base:allocation", extents
assert sum(extents[0][2][0::2]) == 4 << 20, extents
one = []
h.block_status(4 << 20, 0, lambda ctx, off, e, err: one.append(e), nbd.CMD_FLAG_REQ_ONE)
assert len(one[0]) == 2, one
# What does not fit.
h.set_strict_mode(0)
for (what, errno) in [
    (lambda: h.pread(1, h.get_size()), 22),
    (lambda: h.pwrite(b"x", h.get_size()), 28),
    (lambda: h.zero(1, h.get_size()), 28),
    (lambda: h.trim(1, h.get_size()), 22),
    (lambda: h.pread(512, 0, 0x8000), 22),
]:
    try:
        what()
        raise SystemExit("an error was expected")
    except nbd.Error as e:
        assert e.errnum == errno, (e.errnum, errno)
assert h.pread(3, 1000) == b"bbb"
h2.shutdown()
"#;
    for scheduler in ["none", "mq-deadline"] {
        let place = Place::new();
        let image = image(&place);
        for options in [["--memory", "64M"], ["--file", &image]] {
            let options = [&options[..], &["--scheduler", scheduler]].concat();
            let served = Served::start(&place, &options);
            let uri = served.uri();
            let named = format!("uri = {uri:?}");
            nbdsh(&place, &uri, &[&named, script]);
        }
    }
}

#[test]
fn attributes_and_metrics_tell_what_happened() {
    if !have("qemu-io") {
        return;
    }
    let place = Place::new();
    let options = ["--memory", "1M", "--scheduler", "mq-deadline"];
    let served = Served::start(&place, &options);
    let uri = served.uri();
    judge(
        &place,
        "qemu-io",
        &["-f", "raw", "-c", "write 0 4k", "-c", "read 0 8k", &uri],
    );
    assert_eq!(served.get(&place, "iosched/fifo_batch"), "16");
    served.set(&place, "iosched/fifo_batch", "3");
    assert_eq!(served.get(&place, "iosched/fifo_batch"), "3");
    served.set(&place, "queue/nr_requests", "64");
    assert_eq!(served.get(&place, "queue/nr_requests"), "64");
    // As Linux does: not below BLKDEV_MIN_RQ, and -1 for its own target.
    served.set(&place, "queue/nr_requests", "1");
    assert_eq!(served.get(&place, "queue/nr_requests"), "4");
    served.set(&place, "queue/wbt_lat_usec", "-1");
    assert_eq!(served.get(&place, "queue/wbt_lat_usec"), "2000");
    assert_eq!(served.get(&place, "size"), "2048");
    let stat = served.get(&place, "stat");
    let columns: Vec<u64> = stat
        .split_whitespace()
        .map(|c| c.parse().expect("a number"))
        .collect();
    assert_eq!(columns.len(), 17);
    // qemu-io may read the first blocks to find the format out.
    assert!(columns[0] >= 1 && columns[2] >= 16, "{stat}");
    assert_eq!((columns[4], columns[6]), (1, 8), "{stat}");
    let control = served.control.to_string_lossy().into_owned();
    for (name, value, expected) in [
        ("queue/scheduler", "mq-deadlin", "did you mean mq-deadline"),
        ("iosched/fifo_batch", "x", "no number"),
        ("iosched/fifo_bach", "1", "fifo_batch"),
        ("queue/nr_requests", "10000", "nr_requests takes"),
        ("queue/wbt_lat_usec", "-2", "-1 for the kernel's own"),
        ("size", "1", "only be read"),
        ("sise", "1", "there are size"),
    ] {
        let refused = place.blklab(&["set", "--control", &control, name, value]);
        assert_eq!(refused.status, 2);
        assert!(refused.err.contains(expected), "{name}: {}", refused.err);
    }
}

#[test]
fn the_manual_page_has_an_example_for_each_client() {
    let place = Place::new();
    let page = place.blklab(&["man", "serve"]).ok().out;
    // Dashes are written so that a browser of pages does not break lines there.
    let page = page.replace("\\-", "-");
    for word in [
        "blklab-serve",
        "qemu-system-x86_64",
        "nbd-client -unix",
        "fio --name",
        "--tls-certificates",
    ] {
        assert!(page.contains(word), "{word}: {page}");
    }
    let unknown = place.blklab(&["man", "serv"]);
    assert_eq!(unknown.status, 2);
    assert!(unknown.err.contains("serve"), "{}", unknown.err);
}

#[test]
fn the_address_of_a_relative_socket_is_good_anywhere() {
    let place = Place::new();
    let mut served = Served::start_with(
        &place,
        "b.sock",
        &["--socket", "b.sock", "--socket", "c.sock", "--memory", "1M"],
    );
    let folder = place.path("").canonicalize().expect("it is there");
    let uri = format!("nbd+unix:///?socket={}", folder.join("c.sock").display());
    assert_eq!(served.next_line(), uri);
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn a_nameless_export_is_not_named_in_errors() {
    let place = Place::new();
    let args = ["serve", "--socket", "b.sock", "--memory", "1M"];
    for (name, begin) in [("", "blklab: "), ("db", "blklab: the export \"db\": ")] {
        let more = ["--name", name, "--scheduler", "nonesuch"];
        let refused = place.blklab(&[&args[..], &more].concat());
        assert_eq!(refused.status, 2, "{}", refused.err);
        assert!(refused.err.starts_with(begin), "{}", refused.err);
        assert!(!refused.err.contains("\"\""), "{}", refused.err);
    }
}
