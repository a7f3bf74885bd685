//! An NBD export as a drive to probe.

use blklab_blk::Nanos;
use blklab_nbd::wire::Command;
use blklab_nbd::{ReplyBody, Request, Uri};
use blklab_probe::{Batch, Io, ProbeError, Target};

use super::{Client, ClientSetup, broken};
use crate::Clock;

/// NBD's smallest I/O that every server takes.
const BLOCK_BYTES: u64 = 4096;

/// A connection to an export on which batches of reads and writes are timed.
pub struct ProbeTarget {
    client: Client,
    clock: Clock,
    out: Vec<u8>,
}

impl ProbeTarget {
    /// Connects to an export.
    ///
    /// # Errors
    /// Where the server cannot be reached or refuses.
    pub fn connect(uri: &Uri) -> Result<ProbeTarget, String> {
        let setup = ClientSetup {
            base_allocation: false,
            room_bytes: 256 << 10,
        };
        Ok(ProbeTarget {
            client: Client::connect(uri, setup)?,
            clock: Clock::start(),
            out: Vec::new(),
        })
    }

    fn send(&mut self, cookie: usize, io: &Io) -> Result<(), String> {
        let command = match io.is_write {
            true => Command::Write,
            false => Command::Read,
        };
        let length = u32::try_from(io.bytes).map_err(|_| "a request of 4 GiB".to_string())?;
        self.out.clear();
        Request::new(command, cookie as u64, io.offset, length).encode(&mut self.out);
        if io.is_write {
            self.out.resize(self.out.len() + io.bytes as usize, 0x5a);
        }
        self.client.channel.write_all(&self.out).map_err(broken)
    }

    /// Waits for the next request that completes, and returns its cookie.
    fn wait(&mut self, ios: &[Io]) -> Result<usize, String> {
        let read_bytes = |cookie: u64| match ios.get(cookie as usize) {
            Some(io) if !io.is_write => io.bytes as usize,
            _ => 0,
        };
        loop {
            match self.client.next_reply(read_bytes)? {
                Some(reply) if matches!(reply.body, ReplyBody::Error(_)) => {
                    return Err("the server failed a request".to_string());
                }
                Some(reply) if reply.is_last => return Ok(reply.cookie as usize),
                Some(_) => {}
                None => {
                    self.client.receive()?;
                }
            }
        }
    }

    fn run_batch(&mut self, ios: &[Io], depth: usize) -> Result<Batch, String> {
        let start = self.clock.now();
        let mut sent_at = vec![Nanos::ZERO; ios.len()];
        let mut batch = Batch {
            elapsed_ns: 0,
            latencies_ns: vec![0; ios.len()],
            ended_ns: vec![0; ios.len()],
        };
        let (mut next, mut ended) = (0, 0);
        while ended < ios.len() {
            while next < ios.len() && next - ended < depth.max(1) {
                sent_at[next] = self.clock.now();
                self.send(next, &ios[next])?;
                next += 1;
            }
            let index = self.wait(ios)?;
            let now = self.clock.now();
            if index >= next {
                return Err(format!("a reply to request {index}, which was never sent"));
            }
            batch.latencies_ns[index] = (now - sent_at[index]).0;
            batch.ended_ns[index] = (now - start).0;
            ended += 1;
        }
        batch.elapsed_ns = (self.clock.now() - start).0;
        Ok(batch)
    }
}

impl Target for ProbeTarget {
    fn capacity_bytes(&self) -> u64 {
        self.client.negotiated.size_bytes
    }

    fn block_bytes(&self) -> u64 {
        BLOCK_BYTES
    }

    fn is_rotational(&self) -> bool {
        // The protocol does not tell what is behind it.
        false
    }

    fn rotational_source(&self) -> String {
        "the export".to_string()
    }

    fn run(&mut self, ios: &[Io], depth: usize) -> Result<Batch, ProbeError> {
        self.run_batch(ios, depth).map_err(ProbeError::Io)
    }

    fn rest(&mut self, ns: u64) {
        std::thread::sleep(std::time::Duration::from_nanos(ns));
    }
}
