//! An NBD export as a drive to probe.

use blklab_blk::Nanos;
use blklab_nbd::wire::Command;
use blklab_nbd::{Request, Uri};
use blklab_probe::{Batch, Io, ProbeError, Target};

use crate::channel::Channel;
use crate::client::{broken, connect};
use crate::clock::Clock;
use crate::replies::Replies;

/// NBD's smallest I/O that every server takes.
const BLOCK_BYTES: u64 = 4096;

/// A connection on which one batch after the other is asked for.
pub struct Probed {
    channel: Channel,
    clock: Clock,
    size_bytes: u64,
    replies: Replies,
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
            replies: Replies::new(),
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
    fn answer(&mut self, ios: &[Io]) -> Result<usize, String> {
        let data_of = |cookie: u64| match ios.get(cookie as usize) {
            Some(io) if !io.is_write => io.bytes as usize,
            _ => 0,
        };
        loop {
            match self.replies.next(data_of)? {
                Some(heard) if heard.failed => {
                    return Err("the server failed a request".to_string());
                }
                Some(heard) if heard.is_last => return Ok(heard.cookie as usize),
                Some(_) => {}
                None => {
                    self.replies.read(&mut self.channel)?;
                }
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
            let at = self.answer(ios)?;
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
