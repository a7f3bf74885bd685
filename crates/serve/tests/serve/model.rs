//! The server against an array of bytes, under random requests on several
//! connections at once.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use blklab_nbd::wire::{Command, CommandFlags};
use blklab_nbd::{ClientHandshake, ClientOptions, ClientStep, Replies, Reply, ReplyBody, Request};
use blklab_serve::{ExportSpec, Server, ServerSpec};
use proptest::prelude::*;

const SIZE: u64 = 1 << 20;
/// Far more than any request takes, on a busy machine too.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A connection with replies read as they come.
struct Client {
    stream: UnixStream,
    replies: Replies,
    /// Reads under way: offset and length.
    reads: HashMap<u64, (u64, u32)>,
}

/// What a request came to: an error, and a read's data.
type Answer = (u32, Vec<u8>);

impl Client {
    fn connect(path: &Path, structured: bool) -> Client {
        let mut stream = UnixStream::connect(path).expect("the server listens");
        // An answer that never comes is a failure, too.
        stream
            .set_read_timeout(Some(TIMEOUT))
            .expect("a limit is set");
        let mut handshake = ClientHandshake::new(ClientOptions {
            export: String::new(),
            structured,
            base_allocation: structured,
            tls: false,
        });
        let (mut input, mut out) = (Vec::new(), Vec::new());
        loop {
            let mut byte = [0; 1];
            stream.read_exact(&mut byte).expect("the handshake goes on");
            input.push(byte[0]);
            let (used, step) = handshake.step(&input, &mut out).expect("agreed");
            input.drain(..used);
            stream.write_all(&out).expect("sent");
            out.clear();
            if let ClientStep::Ready(got) = step {
                assert_eq!(got.size_bytes, SIZE);
                return Client {
                    stream,
                    replies: Replies::new(4096),
                    reads: HashMap::new(),
                };
            }
        }
    }

    fn reply(&mut self) -> Reply {
        loop {
            let read_bytes = |cookie| self.reads.get(&cookie).map_or(0, |read| read.1 as usize);
            if let Some(reply) = self.replies.next_reply(read_bytes).expect("a reply") {
                return reply;
            }
            match self.stream.read(self.replies.room()) {
                Ok(0) => panic!("the server hung up"),
                Ok(len) => self.replies.received(len),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => panic!("a reply: {e}"),
            }
        }
    }

    /// The next answer, which is one reply.
    fn answer(&mut self) -> (u64, Answer) {
        let reply = self.reply();
        assert!(reply.is_last, "{reply:?}");
        let range = self.reads.remove(&reply.cookie);
        let answer = match reply.body {
            ReplyBody::Empty => (0, Vec::new()),
            ReplyBody::Error(error) => (error, Vec::new()),
            ReplyBody::Hole { offset, length } => {
                assert_eq!(range.expect("a read"), (offset, length));
                (0, vec![0; length as usize])
            }
            ReplyBody::Data { offset, length } => {
                let read = range.expect("a read");
                assert_eq!(
                    (offset.unwrap_or(read.0), length),
                    (read.0, read.1 as usize)
                );
                let mut data = vec![0; length];
                let buffered = self.replies.take_data(&mut data);
                let rest = &mut data[buffered..];
                self.stream.read_exact(rest).expect("a reply's data");
                self.replies.data_received(rest.len());
                (0, data)
            }
            ReplyBody::Extents(_) => panic!("nobody asked for {reply:?}"),
        };
        (reply.cookie, answer)
    }
}

#[derive(Clone, Debug)]
struct ClientRequest {
    client: usize,
    command: Command,
    flags: u16,
    offset: u64,
    length: u32,
    seed: u8,
}

fn asked() -> impl Strategy<Value = ClientRequest> {
    let command = prop_oneof![
        4 => Just(Command::Read),
        4 => Just(Command::Write),
        1 => Just(Command::Flush),
        1 => Just(Command::Trim),
        2 => Just(Command::WriteZeroes),
        1 => Just(Command::Cache),
    ];
    // Near each other, so that they merge; now and then behind the end.
    let offset = prop_oneof![
        0u64..66_000,
        (0u64..64).prop_map(|n| n * 4096),
        SIZE - 5000..SIZE + 10
    ];
    let length = prop_oneof![Just(4096u32), 0u32..9000, Just(200_000u32)];
    (0usize..3, command, 0u16..4, offset, length, any::<u8>()).prop_map(
        |(client, command, flags, offset, length, seed)| ClientRequest {
            client,
            command,
            flags: flags & command.allowed_flags().bits(),
            offset,
            length,
            seed,
        },
    )
}

fn data(seed: u8, length: u32) -> Vec<u8> {
    (0..length)
        .map(|i| seed.wrapping_add((i / 7) as u8))
        .collect()
}

fn overlaps(a: &ClientRequest, b: &ClientRequest) -> bool {
    let end = |x: &ClientRequest| x.offset + u64::from(x.length);
    (a.command.modifies() || b.command.modifies()) && a.offset < end(b) && b.offset < end(a)
}

/// Requests that do not touch each other's bytes go out together.
fn batches(asked: Vec<ClientRequest>) -> Vec<Vec<ClientRequest>> {
    let mut batches: Vec<Vec<ClientRequest>> = vec![Vec::new()];
    for one in asked {
        let batch = batches.last_mut().expect("one at least");
        if batch.iter().any(|other| overlaps(&one, other)) {
            batches.push(vec![one]);
        } else {
            batch.push(one);
        }
    }
    batches
}

fn check(path: &Path, asked: Vec<ClientRequest>) {
    let mut clients: Vec<Client> = [true, false, true]
        .map(|structured| Client::connect(path, structured))
        .into();
    let mut model = vec![0u8; SIZE as usize];
    let mut trimmed = vec![false; SIZE as usize];
    for batch in batches(asked) {
        let mut expected: Vec<HashMap<u64, ClientRequest>> = vec![HashMap::new(); clients.len()];
        for (cookie, one) in batch.into_iter().enumerate() {
            let cookie = cookie as u64;
            let mut request = Request::new(one.command, cookie, one.offset, one.length);
            request.flags = CommandFlags::from_bits_retain(one.flags);
            let mut bytes = Vec::new();
            request.encode(&mut bytes);
            match one.command {
                Command::Write => bytes.extend(data(one.seed, one.length)),
                Command::Read => {
                    let range = (one.offset, one.length);
                    clients[one.client].reads.insert(cookie, range);
                }
                _ => {}
            }
            clients[one.client].stream.write_all(&bytes).expect("sent");
            expected[one.client].insert(cookie, one);
        }
        for (client, mut expected) in clients.iter_mut().zip(expected) {
            while !expected.is_empty() {
                let (cookie, answer) = client.answer();
                let one = expected.remove(&cookie).expect("asked, and answered once");
                judge(&one, answer, &mut model, &mut trimmed);
            }
        }
    }
}

fn judge(one: &ClientRequest, (error, got): Answer, model: &mut [u8], trimmed: &mut [bool]) {
    let end = one.offset + u64::from(one.length);
    if end > SIZE && one.command != Command::Flush {
        let expected = match one.command {
            Command::Write | Command::WriteZeroes => 28,
            _ => 22,
        };
        assert_eq!(error, expected, "{one:?}");
        return;
    }
    assert_eq!(error, 0, "{one:?}");
    let range = one.offset as usize..(end as usize).min(SIZE as usize);
    match one.command {
        Command::Read => {
            assert_eq!(got.len(), range.len());
            for (i, at) in range.enumerate() {
                assert!(
                    trimmed[at] || got[i] == model[at],
                    "byte {at} after {one:?}"
                );
            }
        }
        Command::Write => {
            trimmed[range.clone()].fill(false);
            model[range].copy_from_slice(&data(one.seed, one.length));
        }
        Command::WriteZeroes => {
            trimmed[range.clone()].fill(false);
            model[range].fill(0);
        }
        Command::Trim => trimmed[range].fill(true),
        _ => {}
    }
}

fn memory() -> (&'static str, OsString) {
    ("memory", SIZE.to_string().into())
}

/// Serves one export, checks it, and ends it.
fn serve_and_check(export: ExportSpec, asked: Vec<ClientRequest>) {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("s");
    let export = match export.backends.first() {
        Some(("nbd", _)) => export,
        Some(_) => {
            let image = folder.path().join("image");
            let file = std::fs::File::create(&image).expect("a file");
            file.set_len(SIZE).expect("its size");
            ExportSpec {
                backends: vec![("file", image.into())],
                ..export
            }
        }
        None => ExportSpec {
            backends: vec![memory()],
            ..export
        },
    };
    let spec = ServerSpec {
        socket: vec![socket.clone()],
        export: vec![export],
        ..ServerSpec::default()
    };
    let server = Server::start(&spec.resolve().expect("valid")).expect("it starts");
    check(&socket, asked);
    server.shut_down().expect("it ends well");
}

fn scheduler() -> impl Strategy<Value = Option<String>> {
    let names = ["none", "noop", "mq-deadline", "kyber", "bfq", "ac"];
    proptest::sample::select(names.to_vec()).prop_map(|name| Some(name.to_string()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn memory_is_an_array_of_bytes(
        asked in proptest::collection::vec(asked(), 1..60),
        scheduler in scheduler(), depth in 1u32..8,
    ) {
        let export = ExportSpec { scheduler, depth: Some(depth), ..ExportSpec::default() };
        serve_and_check(export, asked);
    }

    #[test]
    fn a_file_is_an_array_of_bytes(
        asked in proptest::collection::vec(asked(), 1..60),
        scheduler in scheduler(), depth in 1u32..8,
        engine in proptest::sample::select(vec!["psync", "posixaio", "libaio", "io_uring"]),
    ) {
        let backends = vec![("file", OsString::new())];
        let engine = Some(engine.to_string());
        let depth = Some(depth);
        let export = ExportSpec { scheduler, depth, backends, engine, ..ExportSpec::default() };
        serve_and_check(export, asked);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// A server whose store is another server.
    #[test]
    fn a_server_before_a_server_is_an_array_of_bytes(
        asked in proptest::collection::vec(asked(), 1..60), scheduler in scheduler(),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("behind");
        let backends = vec![memory()];
        let behind = ServerSpec {
            socket: vec![socket.clone()],
            export: vec![ExportSpec { backends, ..ExportSpec::default() }],
            ..ServerSpec::default()
        };
        let behind = Server::start(&behind.resolve().expect("valid")).expect("it starts");
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        let backends = vec![("nbd", uri.into())];
        let threads = Some(3);
        serve_and_check(ExportSpec { scheduler, backends, threads, ..ExportSpec::default() }, asked);
        behind.shut_down().expect("it ends well");
    }
}

#[test]
fn a_paced_drive_is_an_array_of_bytes() {
    // The drive's blocks are 4 KiB: larger ones than it moves at once are cut.
    let one = |command, offset, length, seed| ClientRequest {
        client: 0,
        command,
        flags: 0,
        offset,
        length,
        seed,
    };
    let asked = vec![
        one(Command::Write, 0, 1 << 20, 3),
        one(Command::WriteZeroes, 8192, 65536, 0),
        one(Command::Flush, 0, 0, 0),
        one(Command::Read, 0, 1 << 20, 0),
        one(Command::Trim, 0, 4096, 0),
        one(Command::Write, 4096, 4096, 9),
        one(Command::Read, 4096, 8192, 0),
    ];
    // Faults that practically never happen take the way of those that do.
    let faults = [None, Some("stale_read=1e-300".to_string())];
    for (scheduler, faults) in ["none", "mq-deadline", "bfq"]
        .iter()
        .zip(faults.iter().cycle())
    {
        for drive in ["mx100-256", "nvme", "null"] {
            let export = ExportSpec {
                drive: Some(drive.to_string()),
                scheduler: Some(scheduler.to_string()),
                faults: faults.clone(),
                ..ExportSpec::default()
            };
            serve_and_check(export, asked.clone());
        }
    }
    for backends in [vec![], vec![("file", OsString::new())]] {
        let faults = faults[1].clone();
        let export = ExportSpec {
            backends,
            faults,
            ..ExportSpec::default()
        };
        serve_and_check(export, asked.clone());
    }
}
