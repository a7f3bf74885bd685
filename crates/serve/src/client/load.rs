//! A load generator: keeps a number of requests under way, to find a server's
//! limit.

use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use blklab_blk::Nanos;
use blklab_nbd::wire::Command;
use blklab_nbd::{ReplyBody, Request, Uri};
use blklab_stats::Histogram;
use blklab_virtio::{Ended, Operation};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use slab::Slab;

use super::machine::{Machine, MachineQueue, MachineSetup};
use super::{Client, ClientSetup, broken};
use crate::Clock;

/// A virtual machine's disk that is silent for so long after a load hangs.
const SILENCE: Nanos = Nanos::from_secs(30);

/// Where a load goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadTarget {
    /// An NBD server.
    Nbd(Uri),
    /// A server of virtual machines' disks, by its socket.
    VhostUser(PathBuf),
}

impl LoadTarget {
    /// The target that a URI names; `vhost-user:PATH` is a socket.
    ///
    /// # Errors
    /// Where it is no URI of NBD either.
    pub fn parse(text: &str) -> Result<LoadTarget, String> {
        match text.strip_prefix("vhost-user:") {
            Some(path) => Ok(LoadTarget::VhostUser(PathBuf::from(path))),
            None => Uri::parse(text).map(LoadTarget::Nbd),
        }
    }
}

/// A load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadConfig {
    /// The export.
    pub target: LoadTarget,
    /// Connections, or queues of a virtual machine's disk: a thread each.
    pub connections: usize,
    /// Requests under way on each.
    pub depth: usize,
    /// Bytes of each request.
    pub block_bytes: u32,
    /// Share of reads, in percent.
    pub read_percent: u32,
    /// One behind the other, not anywhere.
    pub sequential: bool,
    /// For how long.
    pub span: Duration,
    /// Decides where and what.
    pub seed: u64,
}

/// What a load measured.
#[derive(Clone, Debug, Default)]
pub struct LoadReport {
    /// Reads and writes answered.
    pub requests: [u64; 2],
    /// Time from sending to the answer, of reads and writes.
    pub latency: [Histogram; 2],
    /// Requests answered with an error.
    pub errors: u64,
    /// How long it took.
    pub span: Duration,
}

/// Runs a load against a server.
///
/// # Errors
/// Where the server cannot be reached, refuses, or breaks the protocol.
pub fn load(config: &LoadConfig) -> Result<LoadReport, String> {
    let clock = Clock::start();
    match &config.target {
        LoadTarget::Nbd(uri) => total((0..config.connections).map(|number| {
            let (config, uri) = (config.clone(), uri.clone());
            std::thread::spawn(move || {
                let mut generator = Generator::connect(&config, &uri, clock, number as u64)?;
                generator.run(&config)?;
                Ok(generator.report)
            })
        })),
        LoadTarget::VhostUser(path) => {
            let setup = MachineSetup {
                queues: config.connections as u16,
                depth: config.depth as u16,
                data_bytes: config.block_bytes,
            };
            let queues = Machine::queues(setup)?;
            let (machine, _) = Machine::start(path, &queues, None)?;
            let size_bytes = machine.capacity_bytes();
            total(queues.into_iter().enumerate().map(|(number, queue)| {
                let config = config.clone();
                std::thread::spawn(move || {
                    let addresses = Addresses::new(&config, size_bytes, number as u64)?;
                    run_queue(&config, clock, queue, addresses)
                })
            }))
        }
    }
}

type Loader = JoinHandle<Result<LoadReport, String>>;

/// What all threads of a load measured. All of them start before one is waited for.
fn total(threads: impl Iterator<Item = Loader>) -> Result<LoadReport, String> {
    let threads: Vec<Loader> = threads.collect();
    let mut total = LoadReport::default();
    for thread in threads {
        let report = thread
            .join()
            .unwrap_or_else(|_| Err("a client's thread panicked".to_string()));
        let report = report?;
        for op in 0..2 {
            total.requests[op] += report.requests[op];
            total.latency[op].merge(&report.latency[op]);
        }
        total.errors += report.errors;
        total.span = total.span.max(report.span);
    }
    Ok(total)
}

/// A request under way: when it was sent, and whether it writes.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Nanos,
    is_write: bool,
}

/// The load of one connection.
struct Generator {
    client: Client,
    clock: Clock,
    out: Vec<u8>,
    out_start: usize,
    /// Requests under way, by cookie.
    sent: Slab<Sent>,
    data: Vec<u8>,
    addresses: Addresses,
    report: LoadReport,
}

/// Chooses what the requests of one connection do, and where.
struct Addresses {
    random: SplitMix64,
    next_block: u64,
    blocks: u64,
}

impl Addresses {
    /// # Errors
    /// Where no request fits into the export.
    fn new(config: &LoadConfig, size_bytes: u64, number: u64) -> Result<Addresses, String> {
        let blocks = size_bytes / u64::from(config.block_bytes);
        if blocks == 0 {
            return Err("the export is smaller than one request".to_string());
        }
        // Drawn, so that the streams of connections have nothing in common.
        let stream = SplitMix64::seed_from_u64(number).next_u64();
        Ok(Addresses {
            random: SplitMix64::seed_from_u64(config.seed ^ stream),
            // Each connection starts at its own share.
            next_block: number * blocks / config.connections as u64,
            blocks,
        })
    }

    /// Whether the next request writes, and where.
    fn next(&mut self, config: &LoadConfig) -> (bool, u64) {
        let is_write = self.random.next_u64() % 100 >= u64::from(config.read_percent);
        let block = match config.sequential {
            true => {
                self.next_block += 1;
                self.next_block
            }
            false => self.random.next_u64(),
        };
        (
            is_write,
            block % self.blocks * u64::from(config.block_bytes),
        )
    }
}

/// The load of one ring.
fn run_queue(
    config: &LoadConfig,
    clock: Clock,
    mut queue: MachineQueue,
    mut addresses: Addresses,
) -> Result<LoadReport, String> {
    let start = clock.now();
    let end = start.saturating_add(Nanos(config.span.as_nanos() as u64));
    let mut report = LoadReport::default();
    let mut free: Vec<u16> = (0..config.depth as u16).collect();
    let nothing = Sent {
        at: start,
        is_write: false,
    };
    let mut sent = vec![nothing; config.depth];
    loop {
        let now = clock.now();
        while now < end
            && let Some(slot) = free.pop()
        {
            let (is_write, offset) = addresses.next(config);
            sent[usize::from(slot)] = Sent { at: now, is_write };
            let operation = match is_write {
                true => Operation::Write,
                false => Operation::Read,
            };
            queue.submit(slot, operation, offset / 512, config.block_bytes)?;
        }
        queue.kick()?;
        let free_before = free.len();
        while let Some(Ended { slot, status }) = queue.take_ended()? {
            let Sent { at, is_write } = sent[usize::from(slot)];
            let op = usize::from(is_write);
            report.requests[op] += 1;
            report.latency[op].record(clock.now().saturating_sub(at).0);
            report.errors += u64::from(status != 0);
            free.push(slot);
        }
        if now >= end && free.len() == config.depth {
            report.span = Duration::from_nanos((now - start).0);
            return Ok(report);
        }
        if free.len() == free_before && !queue.wait()? && clock.now() > end.saturating_add(SILENCE)
        {
            return Err("the disk does not answer".to_string());
        }
    }
}

impl Generator {
    fn connect(
        config: &LoadConfig,
        uri: &Uri,
        clock: Clock,
        number: u64,
    ) -> Result<Generator, String> {
        let setup = ClientSetup {
            base_allocation: false,
            room_bytes: 256 << 10,
        };
        let mut client = Client::connect(uri, setup)?;
        let addresses = Addresses::new(config, client.negotiated.size_bytes, number)?;
        client.channel.set_nonblocking(true);
        Ok(Generator {
            client,
            clock,
            out: Vec::new(),
            out_start: 0,
            sent: Slab::with_capacity(config.depth),
            data: vec![number as u8; config.block_bytes as usize],
            addresses,
            report: LoadReport::default(),
        })
    }

    fn run(&mut self, config: &LoadConfig) -> Result<(), String> {
        let start = self.clock.now();
        let end = start.saturating_add(Nanos(config.span.as_nanos() as u64));
        loop {
            let now = self.clock.now();
            if now < end {
                self.queue_requests(config, now);
            } else if self.sent.is_empty() {
                self.report.span = Duration::from_nanos((now - start).0);
                return Ok(());
            }
            let wrote = self.write()?;
            let read = self.client.receive()?;
            if read {
                self.take_replies()?;
            }
            if !wrote && !read {
                self.wait()?;
            }
        }
    }

    /// Queues requests until `depth` of them are under way.
    fn queue_requests(&mut self, config: &LoadConfig, now: Nanos) {
        while self.sent.len() < config.depth {
            let (is_write, offset) = self.addresses.next(config);
            let command = match is_write {
                true => Command::Write,
                false => Command::Read,
            };
            let cookie = self.sent.insert(Sent { at: now, is_write });
            Request::new(command, cookie as u64, offset, config.block_bytes).encode(&mut self.out);
            if is_write {
                self.out.extend_from_slice(&self.data);
            }
        }
    }

    fn write(&mut self) -> Result<bool, String> {
        let mut any = false;
        while self.out_start < self.out.len() {
            match self.client.channel.write(&self.out[self.out_start..]) {
                Ok(len) => {
                    self.out_start += len;
                    any = true;
                }
                Err(Errno::AGAIN) => return Ok(any),
                Err(error) => return Err(broken(error)),
            }
        }
        self.out.clear();
        self.out_start = 0;
        match self.client.channel.push() {
            Ok(()) | Err(Errno::AGAIN) => Ok(any),
            Err(error) => Err(broken(error)),
        }
    }

    fn take_replies(&mut self) -> Result<(), String> {
        let now = self.clock.now();
        let (sent, block) = (&mut self.sent, self.data.len());
        loop {
            let read_bytes = |cookie: u64| match sent.get(cookie as usize) {
                Some(Sent {
                    is_write: false, ..
                }) => block,
                _ => 0,
            };
            let Some(reply) = self.client.next_reply(read_bytes)? else {
                return Ok(());
            };
            let cookie = usize::try_from(reply.cookie).unwrap_or(usize::MAX);
            let Some(&Sent { at, is_write }) = sent.get(cookie) else {
                return Err(format!("a reply to request {cookie}, which was never sent"));
            };
            self.report.errors += u64::from(matches!(reply.body, ReplyBody::Error(_)));
            if reply.is_last {
                let op = usize::from(is_write);
                self.report.requests[op] += 1;
                self.report.latency[op].record(now.saturating_sub(at).0);
                sent.remove(cookie);
            }
        }
    }

    fn wait(&self) -> Result<(), String> {
        let mut what = PollFlags::IN;
        let unsent = self.out_start < self.out.len() || self.client.channel.holds_unsent();
        what.set(PollFlags::OUT, unsent);
        let mut fds = [PollFd::from_borrowed_fd(self.client.channel.socket(), what)];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(broken(error)),
        }
    }
}
