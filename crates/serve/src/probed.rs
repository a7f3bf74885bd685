//! An NBD export as a drive to probe.

use blklab_blk::Nanos;
use blklab_nbd::wire::{Command, REPLY_FLAG_DONE, chunk};
use blklab_nbd::{ReplyHead, Request, Uri};
use blklab_probe::{Batch, Io, ProbeError, Target};

use crate::channel::Channel;
use crate::client::{broken, connect};
use crate::clock::Clock;

/// Room for what one read of the socket brings.
const INPUT_BYTES: usize = 256 << 10;

/// NBD's smallest I/O that every server takes.
const BLOCK_BYTES: u64 = 4096;

/// A connection on which one batch after the other is asked for.
pub struct Probed {
    channel: Channel,
    clock: Clock,
    size_bytes: u64,
    input: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes of data that are on their way and of no interest.
    skip: usize,
    out: Vec<u8>,
}

impl Probed {
    /// Connects to an export.
    ///
    /// # Errors
    /// Where the server cannot be reached or refuses.
    pub fn connect(uri: &Uri) -> Result<Probed, String> {
        let (channel, negotiated) = connect(uri, false)?;
        Ok(Probed {
            channel,
            clock: Clock::start(),
            size_bytes: negotiated.size_bytes,
            input: vec![0; INPUT_BYTES],
            start: 0,
            end: 0,
            skip: 0,
            out: Vec::new(),
        })
    }

    fn ask(&mut self, cookie: usize, io: &Io) -> Result<(), String> {
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
        self.channel.write_all(&self.out).map_err(broken)
    }

    /// The next request that was answered.
    fn answer(&mut self) -> Result<usize, String> {
        loop {
            let skipped = self.skip.min(self.end - self.start);
            self.start += skipped;
            self.skip -= skipped;
            let rest = &self.input[self.start..self.end];
            let head = match self.skip {
                0 => ReplyHead::decode(rest).map_err(|m| format!("a reply starts with {m:#x}"))?,
                _ => None,
            };
            let Some((head, length)) = head else {
                self.read()?;
                continue;
            };
            self.start += length;
            match head {
                ReplyHead::Simple { error, .. } if error != 0 => {
                    return Err(format!("the server failed a request: error {error}"));
                }
                ReplyHead::Simple { cookie, .. } => return Ok(cookie as usize),
                ReplyHead::Chunk {
                    flags,
                    kind,
                    cookie,
                    length,
                } => {
                    if kind == chunk::ERROR || kind == chunk::ERROR_OFFSET {
                        return Err("the server failed a request".to_string());
                    }
                    self.skip = length as usize;
                    if flags & REPLY_FLAG_DONE != 0 {
                        return Ok(cookie as usize);
                    }
                }
            }
        }
    }

    fn read(&mut self) -> Result<(), String> {
        self.input.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        match self
            .channel
            .read(&mut self.input[self.end..])
            .map_err(broken)?
        {
            0 => Err("the server hung up".to_string()),
            length => {
                self.end += length;
                Ok(())
            }
        }
    }

    fn batch(&mut self, ios: &[Io], depth: usize) -> Result<Batch, String> {
        let start = self.clock.now();
        let mut asked = vec![Nanos::ZERO; ios.len()];
        let mut batch = Batch {
            elapsed_ns: 0,
            latencies_ns: vec![0; ios.len()],
            ended_ns: vec![0; ios.len()],
        };
        let (mut next, mut ended) = (0, 0);
        while ended < ios.len() {
            while next < ios.len() && next - ended < depth.max(1) {
                asked[next] = self.clock.now();
                self.ask(next, &ios[next])?;
                next += 1;
            }
            let at = self.answer()?;
            let now = self.clock.now();
            if at >= next {
                return Err(format!("a reply to request {at}, which was never sent"));
            }
            batch.latencies_ns[at] = (now - asked[at]).0;
            batch.ended_ns[at] = (now - start).0;
            ended += 1;
        }
        batch.elapsed_ns = (self.clock.now() - start).0;
        Ok(batch)
    }
}

impl Target for Probed {
    fn capacity_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn block_bytes(&self) -> u64 {
        BLOCK_BYTES
    }

    fn is_rotational(&self) -> bool {
        // The protocol does not tell what is behind it.
        false
    }

    fn run(&mut self, ios: &[Io], depth: usize) -> Result<Batch, ProbeError> {
        self.batch(ios, depth).map_err(ProbeError::Io)
    }

    fn rest(&mut self, ns: u64) {
        std::thread::sleep(std::time::Duration::from_nanos(ns));
    }
}
