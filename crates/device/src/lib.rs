//! Models of drives.
//!
//! A drive is a state machine behind [`Device`]: it takes commands, says when
//! it next has something to do, and hands completions back. It has no clock:
//! every call that needs the time is given `now`.

#![cfg_attr(not(any(test, feature = "std")), no_std)]

extern crate alloc;

use alloc::vec::Vec;

use blklab_blk::{Nanos, Op, Sector};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

mod faults;
mod identity;
mod pending;
mod power_states;
mod published;
pub mod registry;
mod spec;
mod zoned;

mod card;
mod hdd;
mod null;
mod ssd;

/// The kinds of drives.
const MODELS: [&spec::ModelType; 4] = [&null::MODEL, &ssd::MODEL, &hdd::MODEL, &card::MODEL];

pub use faults::{DataFault, Faults, FaultyData, FlippedBits, PowerCut, WriteFate, faulty_parts};
pub use identity::Identity;
pub use published::Published;
pub use spec::{DriveSpec, DriveState, Interface, reference, takes_whole_numbers};

/// One command as it crosses the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The host's handle; the drive gives it back with the completion.
    pub tag: u32,
    /// The hardware queue it arrives on.
    pub queue: u16,
    /// What to do.
    pub op: Op,
    /// Where it starts.
    pub sector: Sector,
    /// How much, in sectors of 512 bytes; zero for a flush.
    pub sectors: u32,
    /// Complete a write only when it is on stable storage.
    pub fua: bool,
}

impl Command {
    /// Whether its range is not empty and lies within `capacity_sectors`; a flush
    /// has no range.
    pub fn fits(&self, capacity_sectors: u64) -> bool {
        match self.op {
            Op::Flush => true,
            _ => {
                self.sectors > 0
                    && self
                        .sector
                        .0
                        .checked_add(self.sectors as u64)
                        .is_some_and(|end| end <= capacity_sectors)
            }
        }
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandStatus {
    /// It was carried out.
    Ok,
    /// The range is not on the drive, or the drive could not carry it out.
    IoError,
    /// No space could be reclaimed for a write.
    NoSpace,
}

/// The end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The tag of the [`Command`].
    pub tag: u32,
    /// When the drive raised it.
    pub at: Nanos,
    /// How it ended.
    pub status: CommandStatus,
}

/// A drive.
pub trait Device: Send {
    /// What it is.
    fn identify(&self) -> &Identity;

    /// Takes a command at `now`. The driver never has more in flight than
    /// [`Identity::queue_depth`] on a queue.
    fn submit(&mut self, now: Nanos, command: Command);

    /// Takes a read of addresses that hold nothing, of which the host gets zeroes: its
    /// data crosses the link as any other. `command` names sectors of the drive all the
    /// same, which are read where a model does not know what was written to it.
    fn submit_unwritten(&mut self, now: Nanos, command: Command) {
        self.submit(now, command);
    }

    /// When [`Device::advance`] should be called next; [`Nanos::MAX`] while
    /// nothing is going on inside.
    fn next_event(&self) -> Nanos;

    /// Lets time pass up to `now` and appends what completed, in order of time.
    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>);

    /// Lets time pass until something completes, at most up to `limit`, and
    /// returns the time reached.
    ///
    /// For a caller that will submit nothing before `limit`: it saves a call for
    /// every event inside the drive. Every completion at the time returned is in
    /// `done`, and nothing later.
    fn advance_to_completion(&mut self, limit: Nanos, done: &mut Vec<Completion>) -> Nanos {
        let before = done.len();
        loop {
            let next = self.next_event();
            if next > limit || next == Nanos::MAX {
                return limit;
            }
            self.advance(next, done);
            if done.len() > before {
                return next;
            }
        }
    }

    /// Cuts the power at `now`, up to which the drive has been advanced, and
    /// gives it back. What was in flight never completes; what a write cache
    /// held is lost, unless the drive can keep it. Returns when the drive takes
    /// commands again; those submitted earlier wait until then.
    fn power_loss(&mut self, now: Nanos) -> Nanos;

    /// What happened inside until `now`.
    fn stats(&self, now: Nanos) -> blklab_stats::DeviceStats;

    /// Forgets what [`Device::stats`] counted until `now` (the end of a ramp),
    /// not what is on the drive.
    fn reset_stats(&mut self, now: Nanos);

    /// Takes what is wrong with the data of the completed command that had this tag.
    fn take_data_fault(&mut self, _tag: u32) -> Option<DataFault> {
        None
    }

    /// Starts or stops recording what its parts (channels, dies, the arm) do. The
    /// commands that it takes while recording are numbered from zero.
    fn record(&mut self, _on: bool) {}

    /// Appends what was recorded since the last call to `out`; a drive without
    /// parts records nothing.
    fn take_record(&mut self, _out: &mut blklab_stats::DriveTimeline) {}
}

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): the same numbers on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Rng(SplitMix64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(SplitMix64::seed_from_u64(seed))
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// True with a probability of `rate`, from 0 to 1.
    #[inline]
    pub(crate) fn happens(&mut self, rate: f64) -> bool {
        // 53 random bits, the precision of an `f64`, against the rate scaled alike.
        rate > 0.0 && ((self.next() >> 11) as f64) < rate * (1u64 << 53) as f64
    }

    /// A number below `bound`, however large that is.
    #[inline]
    pub(crate) fn below_u64(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number below `bound`.
    #[inline]
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        (((self.next() >> 32) * bound as u64) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_fits_up_to_the_last_sector() {
        for (op, sector, sectors, expected) in [
            (Op::Read, 92, 8, true),
            (Op::Write, 93, 8, false),
            (Op::Read, 0, 0, false),
            (Op::Discard, u64::MAX, 1, false),
            (Op::Flush, u64::MAX, 0, true),
        ] {
            let command = Command {
                tag: 0,
                queue: 0,
                op,
                sector: Sector(sector),
                sectors,
                fua: false,
            };
            assert_eq!(command.fits(100), expected, "{command:?}");
        }
    }
}
