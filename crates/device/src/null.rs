//! A drive that only takes time: fixed latencies, a fixed number of servers.
//!
//! It shows what the host's side costs or gains where the drive has no
//! character of its own, as the kernel's `null_blk` does. No command takes less
//! than a nanosecond.

use blklab_blk::{Nanos, Op};
use blklab_stats::DeviceStats;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::spec::read_identity;
use crate::{Command, CommandStatus, Completion, Device, Identity};
use blklab_description::{ReadError, Table};

/// What a null drive is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct NullSpec {
    /// What the host sees.
    pub identity: Identity,
    /// Time of a read.
    pub read_ns: u64,
    /// Time of a write, write-zeroes or discard.
    pub write_ns: u64,
    /// Time of a flush.
    pub flush_ns: u64,
    /// Commands served at once; the others wait in order of arrival.
    pub parallelism: u32,
}

impl NullSpec {
    pub(crate) fn read(root: &Table<'_>) -> Result<NullSpec, ReadError> {
        let identity = read_identity(root, 512, false)?;
        let timing = root.table("timing")?;
        let spec = NullSpec {
            identity,
            read_ns: timing.int("read_ns", 0..=3_600_000_000_000)?,
            write_ns: timing.int("write_ns", 0..=3_600_000_000_000)?,
            flush_ns: timing.int("flush_ns", 0..=3_600_000_000_000)?,
            parallelism: timing.int("parallelism", 1..=1_000_000)? as u32,
        };
        timing.finish()?;
        Ok(spec)
    }
}

/// A drive with `parallelism` servers before one queue.
#[derive(Clone, Debug)]
pub struct NullDrive {
    spec: NullSpec,
    waiting: VecDeque<Command>,
    /// (when, order of arrival, tag, status) of what is being served.
    serving: BinaryHeap<Reverse<(u64, u64, u32, bool)>>,
    arrivals: u64,
    stats: DeviceStats,
}

impl NullDrive {
    /// A drive as described.
    pub fn new(spec: NullSpec) -> NullDrive {
        let room = spec.parallelism.min(4096) as usize;
        NullDrive {
            spec,
            waiting: VecDeque::with_capacity(64),
            serving: BinaryHeap::with_capacity(room),
            arrivals: 0,
            stats: DeviceStats::default(),
        }
    }

    fn serve(&mut self, now_ns: u64, command: Command) {
        let fits = command.fits(self.spec.identity.capacity_sectors);
        let service_ns = match command.op {
            _ if !fits => 0,
            Op::Read => self.spec.read_ns,
            Op::Flush => self.spec.flush_ns,
            Op::Write | Op::WriteZeroes | Op::Discard => self.spec.write_ns,
        };
        // In no time a job whose commands follow each other would never see the
        // end of its run.
        let service_ns = service_ns.max(1);
        if fits && command.op == Op::Write {
            self.stats.host_sectors_written += command.sectors as u64;
        }
        self.arrivals += 1;
        self.serving.push(Reverse((
            now_ns.saturating_add(service_ns),
            self.arrivals,
            command.tag,
            fits,
        )));
    }
}

impl Device for NullDrive {
    fn identify(&self) -> &Identity {
        &self.spec.identity
    }

    fn submit(&mut self, now: Nanos, command: Command) {
        if self.serving.len() < self.spec.parallelism as usize {
            self.serve(now.0, command);
        } else {
            self.waiting.push_back(command);
        }
    }

    fn next_event(&self) -> Nanos {
        self.serving
            .peek()
            .map_or(Nanos::MAX, |Reverse(first)| Nanos(first.0))
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        while let Some(&Reverse((at_ns, _, tag, fits))) = self.serving.peek() {
            if at_ns > now.0 {
                break;
            }
            self.serving.pop();
            done.push(Completion {
                tag,
                at: Nanos(at_ns),
                status: if fits {
                    CommandStatus::Ok
                } else {
                    CommandStatus::IoError
                },
            });
            if let Some(next) = self.waiting.pop_front() {
                self.serve(at_ns, next);
            }
        }
    }

    fn power_loss(&mut self, now: Nanos) -> Nanos {
        self.stats.power_losses += 1;
        self.waiting.clear();
        self.serving.clear();
        now
    }

    fn stats(&self, _now: Nanos) -> DeviceStats {
        self.stats.clone()
    }

    fn reset_stats(&mut self, _now: Nanos) {
        self.stats = DeviceStats::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DriveSpec, registry};
    use blklab_blk::Sector;

    /// Otherwise commands that follow each other would stop time.
    #[test]
    fn every_command_takes_time() {
        let text = registry::text("null").expect("listed");
        let text = text.replace("= 10000 ", "= 0 ");
        let spec = DriveSpec::parse("null.toml", &text).unwrap_or_else(|e| panic!("{e}"));
        let mut drive = spec.build(1);
        let mut now = Nanos(0);
        for op in [Op::Read, Op::Write, Op::Discard, Op::Flush] {
            let command = Command {
                tag: 0,
                queue: 0,
                op,
                sector: Sector(0),
                sectors: if op == Op::Flush { 0 } else { 8 },
                fua: false,
            };
            drive.submit(now, command);
            let mut done = Vec::new();
            let ended = drive.advance_to_completion(Nanos(1 << 40), &mut done);
            assert_eq!((ended, done.len()), (Nanos(now.0 + 1), 1), "{op:?}");
            now = ended;
        }
    }
}
