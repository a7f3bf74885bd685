//! Clients that break the protocol, go away or never read, and servers that
//! are killed: each is dealt with, and nobody else notices.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::support::served::{Served, have, judge, verified};
use crate::support::{Place, kills};

const GREETING_BYTES: usize = 18;
const OPTION_MAGIC: &[u8] = b"IHAVEOPT";

/// A client that has not said anything.
fn connect(served: &Served) -> UnixStream {
    let stream = UnixStream::connect(&served.socket).expect("the server listens");
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("a limit");
    stream
}

/// A client of the first export in the transmission phase.
fn attached(served: &Served) -> UnixStream {
    attached_to(served, "")
}

/// A client in the transmission phase, by EXPORT_NAME.
fn attached_to(served: &Served, export: &str) -> UnixStream {
    let mut stream = connect(served);
    let mut greeting = [0; GREETING_BYTES];
    stream.read_exact(&mut greeting).expect("a greeting");
    let mut hello = vec![0, 0, 0, 3];
    hello.extend(OPTION_MAGIC);
    hello.extend([0, 0, 0, 1]);
    hello.extend((export.len() as u32).to_be_bytes());
    hello.extend(export.as_bytes());
    stream.write_all(&hello).expect("sent");
    let mut export = [0; 10];
    stream.read_exact(&mut export).expect("an export");
    stream
}

fn request(code: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
    bytes.extend([0, 0]);
    bytes.extend(code.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

/// The error and cookie of the next simple reply.
fn simple_reply(stream: &mut UnixStream) -> (u32, u64) {
    let mut reply = [0; 16];
    stream.read_exact(&mut reply).expect("a reply");
    assert_eq!(reply[..4], 0x6744_6698u32.to_be_bytes());
    let error = u32::from_be_bytes(reply[4..8].try_into().expect("four"));
    (
        error,
        u64::from_be_bytes(reply[8..].try_into().expect("eight")),
    )
}

/// The server hangs up on this client.
fn hangs_up(stream: &mut UnixStream) {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::ConnectionReset => {}
        Err(e) => panic!("still connected: {e}"),
    }
}

/// Somebody well-behaved is served.
fn still_serves(served: &Served) {
    let mut stream = attached(served);
    let mut write = request(1, 1, 4096, 512);
    write.extend([0x5a; 512]);
    stream.write_all(&write).expect("sent");
    assert_eq!(simple_reply(&mut stream), (0, 1));
    stream.write_all(&request(0, 2, 4096, 512)).expect("sent");
    assert_eq!(simple_reply(&mut stream), (0, 2));
    let mut data = [0; 512];
    stream.read_exact(&mut data).expect("data");
    assert_eq!(data, [0x5a; 512]);
}

#[test]
fn each_malformed_request_gets_its_error() {
    let place = Place::new();
    let served = Served::start(&place, &["--memory", "1M", "--max-request", "64K"]);
    let mut stream = attached(&served);
    let cases: [(u16, u64, u32, u32); 8] = [
        (0, 1 << 20, 1, 22),     // read behind the end
        (0, u64::MAX, 4096, 22), // read around the end of numbers
        (0, 0, 65537, 75),       // read too long
        (3, 0, 0, 0),            // flush: all is well
        (4, 1 << 20, 1, 22),     // trim behind the end
        (6, 1 << 20, 1, 28),     // zeroes behind the end
        (7, 0, 512, 22),         // extents without a context
        (4711, 0, 512, 22),      // no such command
    ];
    for (cookie, (code, offset, length, error)) in cases.into_iter().enumerate() {
        let cookie = cookie as u64;
        let bytes = request(code, cookie, offset, length);
        stream.write_all(&bytes).expect("sent");
        assert_eq!(simple_reply(&mut stream), (error, cookie));
    }
    // The data of a refused write is passed over, and the next request found.
    for (offset, length, error) in [(1u64 << 20, 100u32, 28), (0, 200_000, 22)] {
        let mut bytes = request(1, 77, offset, length);
        bytes.resize(bytes.len() + length as usize, 0xff);
        bytes.extend(request(3, 78, 0, 0));
        stream.write_all(&bytes).expect("sent");
        assert_eq!(simple_reply(&mut stream), (error, 77));
        assert_eq!(simple_reply(&mut stream), (0, 78));
    }
    // Nothing of it was stored.
    stream.write_all(&request(0, 79, 0, 4096)).expect("sent");
    assert_eq!(simple_reply(&mut stream), (0, 79));
    let mut data = [1; 4096];
    stream.read_exact(&mut data).expect("data");
    assert_eq!(data, [0; 4096]);
}

#[test]
fn who_breaks_the_protocol_is_hung_up_on() {
    let place = Place::new();
    let served = Served::start(&place, &["--memory", "1M"]);
    let mut stream = attached(&served);
    stream.write_all(&[0; 28]).expect("sent");
    hangs_up(&mut stream);
    let mut stream = connect(&served);
    stream.write_all(&[0xff; 4]).expect("sent");
    hangs_up(&mut stream);
    let mut stream = connect(&served);
    stream.write_all(&[0, 0, 0, 3]).expect("sent");
    stream.write_all(&[b'x'; 16]).expect("sent");
    hangs_up(&mut stream);
    still_serves(&served);
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn who_vanishes_takes_nothing_along() {
    let place = Place::new();
    let options = ["--memory", "1M", "--depth", "1", "--scheduler", "bfq"];
    let served = Served::start(&place, &options);
    for cut in [1, 27, 28, 100, 28 + 4095] {
        let mut stream = attached(&served);
        let mut bytes = request(1, 1, 0, 4096);
        bytes.extend([0xee; 4096]);
        stream.write_all(&bytes[..cut]).expect("sent");
        drop(stream);
    }
    // With many requests under way, and replies that nobody reads.
    let mut stream = attached(&served);
    for cookie in 0..500 {
        stream
            .write_all(&request(0, cookie, 0, 1024))
            .expect("sent");
    }
    drop(stream);
    let mut stream = attached(&served);
    stream.write_all(&request(0, 1, 0, 4096)).expect("sent");
    assert_eq!(simple_reply(&mut stream), (0, 1));
    let mut data = [1; 4096];
    stream.read_exact(&mut data).expect("data");
    // A write that did not come whole was not carried out.
    assert_eq!(data, [0; 4096]);
    still_serves(&served);
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn who_never_reads_bounds_only_himself() {
    let place = Place::new();
    let served = Served::start(&place, &["--memory", "16M"]);
    let mut deaf = attached(&served);
    deaf.set_write_timeout(Some(Duration::from_millis(300)))
        .expect("a limit");
    let mut sent = 0u64;
    // 16 GiB of replies, if the server let itself be asked.
    for cookie in 0..1024 {
        match deaf.write(&request(0, cookie, 0, 16 << 20)) {
            Ok(28) => sent += 1,
            _ => break,
        }
    }
    assert!(sent > 0);
    std::thread::sleep(Duration::from_millis(300));
    let status = std::fs::read_to_string(format!("/proc/{}/status", served.pid()));
    let peak_kib: u64 = status
        .expect("the server runs")
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok())
        .expect("its peak");
    assert!(peak_kib < 200 << 10, "{peak_kib} KiB");
    still_serves(&served);
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn connections_are_limited_and_come_free() {
    let place = Place::new();
    let options = ["--memory", "1M", "--max-connections", "5"];
    let served = Served::start(&place, &options);
    let held: Vec<UnixStream> = (0..5).map(|_| attached(&served)).collect();
    for _ in 0..200 {
        let mut refused = connect(&served);
        let mut byte = [0; 1];
        // Closed at once, or reset.
        assert!(matches!(refused.read(&mut byte), Ok(0) | Err(_)));
    }
    drop(held);
    for _ in 0..100 {
        let mut stream = connect(&served);
        if matches!(stream.read(&mut [0; 1]), Ok(1)) {
            // The last of them may have left this very moment.
            std::thread::sleep(Duration::from_millis(50));
            drop(stream);
            std::thread::sleep(Duration::from_millis(50));
            return still_serves(&served);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("no connection came free");
}

#[test]
fn a_slow_client_holds_nobody_up() {
    let place = Place::new();
    let served = Served::start(&place, &["--memory", "1M"]);
    let mut slow = attached(&served);
    let mut write = request(1, 9, 0, 64);
    write.extend([0x11; 64]);
    for byte in &write {
        slow.write_all(&[*byte]).expect("sent");
        if byte % 16 == 1 {
            still_serves(&served);
        }
    }
    assert_eq!(simple_reply(&mut slow), (0, 9));
}

#[test]
fn what_was_accepted_is_finished_on_sigterm() {
    let place = Place::new();
    let image = place.path("image");
    let file = std::fs::File::create(&image).expect("a file");
    file.set_len(1 << 20).expect("its size");
    let path = image.to_string_lossy().into_owned();
    let served = Served::start(&place, &["--file", &path, "--scheduler", "mq-deadline"]);
    let mut stream = attached(&served);
    for cookie in 0..64u64 {
        let mut write = request(1, cookie, cookie * 4096, 4096);
        write.extend([cookie as u8 + 1; 4096]);
        stream.write_all(&write).expect("sent");
    }
    // The first is answered, so that the server is in the middle of them.
    simple_reply(&mut stream);
    let reader = std::thread::spawn(move || {
        let mut answered = 1;
        let mut reply = [0; 16];
        while stream.read_exact(&mut reply).is_ok() {
            answered += 1;
        }
        answered
    });
    assert_eq!(served.terminate(), Some(0));
    let answered: usize = reader.join().expect("the client");
    let stored = std::fs::read(&image).expect("the file");
    let whole = (0..64)
        .filter(|&i| stored[i * 4096..][..4096] == [i as u8 + 1; 4096])
        .count();
    assert!(whole >= answered, "{whole} stored, {answered} answered");
}

#[test]
fn what_was_flushed_outlives_a_kill() {
    if !have("fio") {
        return;
    }
    let place = Place::new();
    let image = place.path("image");
    let file = std::fs::File::create(&image).expect("a file");
    file.set_len(64 << 20).expect("its size");
    let path = image.to_string_lossy().into_owned();
    let options = ["--file", &path, "--scheduler", "kyber", "--depth", "8"];
    let served = Served::start(&place, &options);
    // The first half is written, flushed and done with.
    let mut args = verified(&served.uri(), 1, "randwrite", "32m");
    args.retain(|a| !a.starts_with("--bsrange") && !a.starts_with("--verify_backlog"));
    args.extend(["--bs=4k", "--do_verify=0", "--end_fsync=1"].map(String::from));
    let flushed: Vec<&str> = args.iter().map(String::as_str).collect();
    judge(&place, "fio", &flushed);
    // The second half is being written when the server dies.
    let mut served = Some(served);
    for _ in 0..kills(1) {
        let running = served.take().expect("it was started");
        let uri = format!("--uri={}", running.uri());
        let mut other = std::process::Command::new("fio")
            .args([
                "--name=u",
                "--ioengine=nbd",
                &uri,
                "--rw=randwrite",
                "--bs=4k",
                "--offset=32m",
                "--size=32m",
                "--iodepth=32",
                "--fsync=64",
                "--time_based",
                "--runtime=60",
            ])
            .current_dir(place.path("."))
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("fio");
        std::thread::sleep(Duration::from_millis(700));
        running.kill();
        other.wait().expect("fio ends");
        let running = Served::start(&place, &options);
        let verify_only = args.iter().filter(|a| !a.starts_with("--do_verify"));
        let uri = format!("--uri={}", running.uri());
        let mut verify: Vec<&str> = verify_only
            .map(String::as_str)
            .filter(|a| !a.starts_with("--uri") && *a != "--end_fsync=1")
            .collect();
        verify.extend([uri.as_str(), "--verify_only=1"]);
        judge(&place, "fio", &verify);
        served = Some(running);
    }
    let served = served.expect("it was started");
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn mistakes_are_told_before_anything_is_served() {
    let place = Place::new();
    place.file("in-the-way", "not a socket");
    place.file("empty", "");
    for (args, expected) in [
        (&["serve"][..], "nothing to serve"),
        (&["serve", "--memory", "1G"], "nowhere to listen"),
        (&["serve", "--socket", "s", "--memory", "1Q"], "no size"),
        (
            &[
                "serve",
                "--socket",
                "s",
                "--memory",
                "1G",
                "--scheduler",
                "cfk",
            ],
            "no scheduler called cfk",
        ),
        (
            &["serve", "--socket", "s", "--memory", "1G", "--set", "x=1"],
            "no such tunable",
        ),
        (
            &["serve", "--socket", "in-the-way", "--memory", "1G"],
            "is no socket",
        ),
        (
            &["serve", "--socket", "s", "--file", "empty"],
            "it is empty",
        ),
        (&["serve", "--socket", "s", "--file", "none"], "none: "),
        (
            &["serve", "--listen", "0.0.0.0:0", "--memory", "1G"],
            "--insecure-no-tls",
        ),
        (
            &[
                "serve", "--socket", "s", "--file", "empty", "--engine", "mmap",
            ],
            "there is no engine mmap",
        ),
        (
            &[
                "serve",
                "--socket",
                "s",
                "--memory",
                "2000G",
                "--drive",
                "mx100-256",
            ],
            "make it smaller",
        ),
        (&["serve", "none.toml"], "none.toml"),
        (
            &[
                "serve",
                "--socket",
                "s",
                "--nbd",
                "nbd+unix:///?socket=none",
            ],
            "none: ",
        ),
        (
            &["serve", "--socket", "s", "--nbd", "http://x"],
            "write nbd://",
        ),
    ] {
        let refused = place.blklab(args);
        assert_eq!(refused.status, 2, "{args:?}: {}", refused.err);
        assert!(refused.err.contains(expected), "{args:?}: {}", refused.err);
    }
}

#[test]
fn misaligned_requests_get_their_error() {
    let place = Place::new();
    let served = Served::start(&place, &["--memory", "64M", "--drive", "mx100-256"]);
    let mut stream = attached(&served);
    // The drive's blocks have 512 bytes, whatever the client thinks.
    for (code, offset, length) in [
        (0u16, 100u64, 4096u32),
        (0, 0, 511),
        (4, 4096, 100),
        (6, 1, 4096),
    ] {
        let bytes = request(code, 5, offset, length);
        stream.write_all(&bytes).expect("sent");
        assert_eq!(
            simple_reply(&mut stream),
            (22, 5),
            "{code} {offset} {length}"
        );
    }
    let mut write = request(1, 6, 100, 4096);
    write.extend([0x77; 4096]);
    stream.write_all(&write).expect("sent");
    assert_eq!(simple_reply(&mut stream), (22, 6));
    stream.write_all(&request(0, 7, 0, 4096)).expect("sent");
    assert_eq!(simple_reply(&mut stream), (0, 7));
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn interleaved_requests_get_their_own_answers() {
    let place = Place::new();
    let options = ["--memory", "16M", "--scheduler", "bfq", "--depth", "2"];
    let served = Served::start(&place, &options);
    let mut streams: Vec<UnixStream> = (0..4).map(|_| attached(&served)).collect();
    // Pieces of writes and reads of all four take turns on their way in.
    let bytes: Vec<Vec<u8>> = (0..4u64)
        .map(|client| {
            let mut all = Vec::new();
            for cookie in 0..50 {
                let mut write = request(1, cookie, (client * 50 + cookie) * 512, 512);
                write.extend([client as u8 * 50 + cookie as u8; 512]);
                all.extend(write);
                all.extend(request(3, 100 + cookie, 0, 0));
            }
            all
        })
        .collect();
    for start in (0..bytes[0].len()).step_by(777) {
        for (stream, bytes) in streams.iter_mut().zip(&bytes) {
            let end = (start + 777).min(bytes.len());
            stream.write_all(&bytes[start..end]).expect("sent");
        }
    }
    for stream in &mut streams {
        let mut answered: Vec<u64> = (0..100)
            .map(|_| {
                let (error, cookie) = simple_reply(stream);
                assert_eq!(error, 0);
                cookie
            })
            .collect();
        answered.sort_unstable();
        let asked: Vec<u64> = (0..50).chain(100..150).collect();
        assert_eq!(answered, asked);
    }
    let stream = &mut streams[0];
    stream
        .write_all(&request(0, 1, 0, 200 * 512))
        .expect("sent");
    assert_eq!(simple_reply(stream), (0, 1));
    let mut data = vec![0; 200 * 512];
    stream.read_exact(&mut data).expect("data");
    for (block, data) in data.chunks(512).enumerate() {
        assert!(
            data.iter().all(|&byte| byte == block as u8),
            "block {block}"
        );
    }
}

#[test]
fn who_does_not_come_to_the_point_is_sent_away() {
    let place = Place::new();
    let config = format!(
        "limits = {{ connections = 2, handshake-seconds = 1 }}\nsocket = [{:?}]\n[[export]]\nmemory = '1M'\n",
        place.path("s.sock").to_string_lossy()
    );
    place.file("server.toml", &config);
    let served = Served::start_with(&place, "s.sock", &["server.toml"]);
    let mut slow: Vec<UnixStream> = (0..2).map(|_| connect(&served)).collect();
    // A byte now and then does not put the end off.
    for byte in [0u8, 0, 0, 3, b'I', b'H', b'A', b'V'] {
        for stream in &mut slow {
            let _ = stream.write_all(&[byte]);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    slow.iter_mut().for_each(hangs_up);
    still_serves(&served);
}

#[test]
fn a_thousand_connections_change_nothing_for_the_others() {
    let place = Place::new();
    let served = Served::start(&place, &["--memory", "1M"]);
    let mut known = attached(&served);
    let thousand: Vec<UnixStream> = (0..1000).map(|_| connect(&served)).collect();
    known.write_all(&request(3, 1, 0, 0)).expect("sent");
    assert_eq!(simple_reply(&mut known), (0, 1));
    let status = std::fs::read_to_string(format!("/proc/{}/status", served.pid()));
    let number = |name: &str| -> u64 {
        let status = status.as_ref().expect("the server runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let digits = line.and_then(|rest| rest.split_whitespace().next());
        digits.and_then(|n| n.parse().ok()).expect("a number")
    };
    // 64 connections at most, with a thread each while they shake hands.
    assert!(number("Threads:") < 80, "{}", number("Threads:"));
    assert!(number("VmRSS:") < 100 << 10, "{} KiB", number("VmRSS:"));
    drop(thousand);
    // They are gone before their time is over.
    for _ in 0..200 {
        let mut stream = connect(&served);
        if matches!(stream.read(&mut [0; 1]), Ok(1)) {
            drop(stream);
            std::thread::sleep(Duration::from_millis(50));
            return still_serves(&served);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("nobody is let in any more");
}

/// A small file system that goes with the test; `None`, and said so, where this
/// user cannot have one.
struct SmallTmpfs(std::path::PathBuf);

impl SmallTmpfs {
    fn mount(place: &Place, size: &str) -> Option<SmallTmpfs> {
        let path = place.path("small");
        std::fs::create_dir(&path).expect("a folder");
        let done = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(&path)
            .output();
        match done {
            Ok(done) if done.status.success() => Some(SmallTmpfs(path)),
            _ => {
                blklab_judges::not_possible("a file system that is full: cannot mount here");
                None
            }
        }
    }
}

impl Drop for SmallTmpfs {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg("-l")
            .arg(&self.0)
            .status();
    }
}

#[test]
fn a_full_file_system_is_told_as_such() {
    let place = Place::new();
    let Some(small) = SmallTmpfs::mount(&place, "256k") else {
        return;
    };
    let image = small.0.join("image");
    let file = std::fs::File::create(&image).expect("a file");
    file.set_len(4 << 20).expect("its size");
    let path = image.to_string_lossy().into_owned();
    for engine in ["psync", "io_uring", "libaio"] {
        let served = Served::start(&place, &["--file", &path, "--engine", engine]);
        let mut stream = attached(&served);
        let mut errors = Vec::new();
        for cookie in 0..8u64 {
            let mut write = request(1, cookie, cookie << 16, 1 << 16);
            write.resize(28 + (1 << 16), 0x42);
            stream.write_all(&write).expect("sent");
            errors.push(simple_reply(&mut stream).0);
        }
        assert!(
            errors.contains(&0) && errors.contains(&28),
            "{engine}: {errors:?}"
        );
        assert!(
            errors.iter().all(|e| [0, 28].contains(e)),
            "{engine}: {errors:?}"
        );
        // What was there can still be read.
        stream.write_all(&request(0, 9, 0, 512)).expect("sent");
        assert_eq!(simple_reply(&mut stream), (0, 9));
        let mut data = [0; 512];
        stream.read_exact(&mut data).expect("data");
        assert_eq!(data, [0x42; 512], "{engine}");
    }
}

/// nbdkit, and where it is found.
fn behind(place: &Place, options: &[&str]) -> (std::process::Child, String) {
    let socket = place.path("behind.sock");
    let child = std::process::Command::new("nbdkit")
        .args(["-f", "--exit-with-parent", "-U"])
        .arg(&socket)
        .args(options)
        .spawn()
        .expect("nbdkit starts");
    while UnixStream::connect(&socket).is_err() {
        std::thread::sleep(Duration::from_millis(10));
    }
    (child, format!("nbd+unix:///?socket={}", socket.display()))
}

#[test]
fn a_second_signal_waits_for_nothing() {
    if !have("nbdkit") {
        return;
    }
    let place = Place::new();
    let slow = ["--filter=delay", "memory", "1M", "rdelay=600"];
    let (mut nbdkit, uri) = behind(&place, &slow);
    let mut served = Served::start(&place, &["--nbd", &uri, "--pid-file", "pid"]);
    let written = std::fs::read_to_string(place.path("pid")).expect("a pid file");
    assert_eq!(written, format!("{}\n", served.pid()));
    let mut stream = attached(&served);
    stream.write_all(&request(0, 1, 0, 512)).expect("sent");
    std::thread::sleep(Duration::from_millis(100));
    served.signal("-TERM");
    std::thread::sleep(Duration::from_millis(300));
    assert!(served.runs(), "what was accepted is waited for");
    assert_eq!(served.terminate(), Some(1));
    assert!(!place.path("pid").exists());
    nbdkit.kill().expect("it ran");
    nbdkit.wait().expect("it ends");
}

#[test]
fn a_back_end_that_errs_or_is_slow_is_passed_on() {
    if !have("nbdkit") {
        return;
    }
    for (options, error) in [
        (&["full", "1M"][..], 28),
        (
            &[
                "--filter=error",
                "memory",
                "1M",
                "error-pwrite=EIO",
                "error-pwrite-rate=100%",
            ],
            5,
        ),
    ] {
        let place = Place::new();
        let (mut nbdkit, uri) = behind(&place, options);
        let served = Served::start(&place, &["--nbd", &uri, "--scheduler", "mq-deadline"]);
        let mut stream = attached(&served);
        let mut write = request(1, 1, 0, 512);
        write.extend([1; 512]);
        stream.write_all(&write).expect("sent");
        assert_eq!(simple_reply(&mut stream), (error, 1));
        stream.write_all(&request(0, 2, 0, 512)).expect("sent");
        assert_eq!(simple_reply(&mut stream), (0, 2));
        assert_eq!(served.terminate(), Some(0));
        nbdkit.kill().expect("it ran");
        nbdkit.wait().expect("it ends");
    }
    // A slow one holds up who waits for it, and nobody at another export.
    let place = Place::new();
    let slow = ["--filter=delay", "memory", "1M", "rdelay=1"];
    let (mut nbdkit, uri) = behind(&place, &slow);
    let config = format!(
        "socket = [{:?}]\n[[export]]\nname = 'quick'\nmemory = '1M'\n[[export]]\nname = 'slow'\nnbd = {uri:?}\n",
        place.path("s.sock").to_string_lossy()
    );
    place.file("server.toml", &config);
    let served = Served::start_with(&place, "s.sock", &["server.toml"]);
    let mut waits = attached_to(&served, "slow");
    waits.write_all(&request(0, 3, 0, 512)).expect("sent");
    still_serves(&served);
    waits.set_nonblocking(true).expect("set");
    let early = waits.read(&mut [0; 1]);
    assert!(early.is_err_and(|e| e.kind() == ErrorKind::WouldBlock));
    waits.set_nonblocking(false).expect("set");
    assert_eq!(simple_reply(&mut waits), (0, 3));
    nbdkit.kill().expect("it ran");
    nbdkit.wait().expect("it ends");
}
