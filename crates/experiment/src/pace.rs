//! How a trace's I/Os arrive, as a user asks for it.

use blklab_sim::{Replay, ReplayMode};
use strum::{Display, EnumMessage, IntoStaticStr, VariantArray};

use crate::error::Error;

/// When each I/O of a replayed trace is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumMessage, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Timing {
    /// At their recorded times.
    Open,
    /// As earlier ones end, with a fixed number in flight.
    Closed,
    /// As soon as the I/Os of the same process have ended that had ended before it in the
    /// recording.
    Dependencies,
}

/// The slowest and fastest replay of a trace, as factors of the recorded speed.
pub(crate) const SPEED_MIN: f64 = 1e-3;
pub(crate) const SPEED_MAX: f64 = 1e6;

/// Default number of I/Os in flight of a trace replayed closed.
const CLOSED_DEPTH: u32 = 32;

/// The pace at which a trace's I/Os arrive; its fields are the options of these names.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// When I/Os are submitted; at their recorded times if not given.
    pub replay: Option<Timing>,
    /// I/Os in flight of a trace replayed closed; 32 if not given.
    pub depth: Option<u32>,
    /// How many times as fast as recorded a trace is replayed at its times; 1 if not given.
    pub speed: Option<f64>,
    /// Whether sectors beyond the drive's end continue at its start.
    pub wrap: bool,
}

impl Pace {
    /// Refuses a pace for a job, which has its own arrival times.
    ///
    /// # Errors
    /// If anything of it was given; the message names it.
    pub fn refuse(&self) -> Result<(), Error> {
        let given = [
            (self.replay.is_some(), "--replay"),
            (self.depth.is_some(), "--depth"),
            (self.speed.is_some(), "--speed"),
            (self.wrap, "--wrap"),
        ];
        match given.iter().find(|(given, _)| *given) {
            Some((_, option)) => Err(Error::Mistake(format!(
                "{option} is for traces; an fio job says itself when and where its I/Os come"
            ))),
            None => Ok(()),
        }
    }

    /// Returns how a trace is to be replayed.
    ///
    /// # Errors
    /// If the options do not go together, or the speed is out of its range.
    pub fn replay(&self) -> Result<Replay, Error> {
        Ok(Replay {
            mode: self.mode()?,
            wraps: self.wrap,
            ..Replay::default()
        })
    }

    fn mode(&self) -> Result<ReplayMode, Error> {
        let (replay, speed) = (self.replay.unwrap_or(Timing::Open), self.speed);
        if speed.is_some() && replay != Timing::Open {
            return Err(Error::mistake(
                "--speed is for traces replayed at their times (--replay open)",
            ));
        }
        if self.depth.is_some() && replay != Timing::Closed {
            return Err(Error::mistake(
                "--depth is for traces replayed with a number in flight (--replay closed)",
            ));
        }
        let speed = speed.unwrap_or(1.0);
        if !(SPEED_MIN..=SPEED_MAX).contains(&speed) {
            return Err(Error::mistake(format!(
                "--speed {speed:?}: from {SPEED_MIN} to {SPEED_MAX} is possible; 2 is twice as fast"
            )));
        }
        Ok(match replay {
            Timing::Open => ReplayMode::Open { speed },
            Timing::Closed => ReplayMode::Closed {
                depth: self.depth.unwrap_or(CLOSED_DEPTH),
            },
            Timing::Dependencies => ReplayMode::Dependencies,
        })
    }
}
