//! A drive's model in virtual time, for which the right findings are known.

use blklab_blk::{Nanos, Op, Sector};
use blklab_device::{Command, CommandStatus, Completion, Device, DriveSpec};

use crate::target::{Batch, Io, ProbeError, Target};

/// A drive's model with a clock.
pub struct Modelled {
    device: Box<dyn Device>,
    now: Nanos,
    done: Vec<Completion>,
}

impl Modelled {
    /// Returns a drive of this description in its initial state.
    pub fn new(spec: &DriveSpec, seed: u64) -> Modelled {
        Modelled {
            device: spec.build(seed),
            now: Nanos::ZERO,
            done: Vec::new(),
        }
    }

    fn submit(&mut self, tag: usize, io: &Io) {
        let op = if io.is_write { Op::Write } else { Op::Read };
        let command = Command {
            tag: tag as u32,
            queue: 0,
            op,
            sector: Sector::from_bytes(io.offset),
            sectors: (io.bytes / 512) as u32,
            fua: false,
        };
        self.device.submit(self.now, command);
    }
}

impl Target for Modelled {
    fn capacity_bytes(&self) -> u64 {
        self.device.identify().capacity_sectors * 512
    }

    fn block_bytes(&self) -> u64 {
        u64::from(self.device.identify().physical_block_bytes)
    }

    fn is_rotational(&self) -> bool {
        self.device.identify().rotational
    }

    fn rotational_source(&self) -> String {
        "the description".to_string()
    }

    fn run(&mut self, ios: &[Io], depth: usize) -> Result<Batch, ProbeError> {
        let depth = depth.min(self.device.identify().queue_depth as usize);
        let start = self.now;
        let mut submitted = vec![Nanos::ZERO; ios.len()];
        let mut batch = Batch {
            elapsed_ns: 0,
            latencies_ns: vec![0; ios.len()],
            ended_ns: vec![0; ios.len()],
        };
        let (mut next, mut ended) = (0, 0);
        while ended < ios.len() {
            while next < ios.len() && next - ended < depth {
                submitted[next] = self.now;
                self.submit(next, &ios[next]);
                next += 1;
            }
            let mut done = std::mem::take(&mut self.done);
            self.now = self.device.advance_to_completion(Nanos::MAX, &mut done);
            for completion in done.drain(..) {
                let at = completion.tag as usize;
                if completion.status != CommandStatus::Ok {
                    return Err(ProbeError::Io(format!(
                        "the model failed {:?} at byte {}: {:?}",
                        if ios[at].is_write {
                            "a write"
                        } else {
                            "a read"
                        },
                        ios[at].offset,
                        completion.status
                    )));
                }
                batch.latencies_ns[at] = (completion.at - submitted[at]).0;
                batch.ended_ns[at] = (completion.at - start).0;
                ended += 1;
            }
            self.done = done;
        }
        batch.elapsed_ns = (self.now - start).0;
        Ok(batch)
    }

    fn rest(&mut self, ns: u64) {
        let end = self.now + Nanos(ns);
        while self.device.next_event() <= end {
            let next = self.device.next_event();
            self.device.advance(next, &mut self.done);
        }
        self.done.clear();
        self.now = end;
    }
}
