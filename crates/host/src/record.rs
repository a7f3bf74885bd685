//! Records what a kernel's block layer does with a drive, for replay.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::disk::Disk;
use crate::error::HostError;
use crate::interrupt::Interrupts;
use crate::recorder::{Form, Recorder};
use crate::system::System;
use crate::tracefs::{Kind, Session};

/// How often a recording is looked after.
const POLL: Duration = Duration::from_millis(50);

/// What a recording came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Events recorded.
    pub events: u64,
    /// Events known to be missing.
    pub lost: u64,
}

/// Writes the drive's events to `path`, until `limit` is over or a signal
/// comes. Either is a proper end: what was recorded is kept. The drive itself
/// and its queue are left alone.
pub fn record(
    system: &System,
    disk: &Disk,
    limit: Option<Duration>,
    path: &Path,
    form: Form,
) -> Result<Recorded, HostError> {
    let recorder = Recorder::create(path, form, disk.number)?;
    let interrupts = Interrupts::watch()?;
    let session = Session::start(system, disk, &Kind::RECORDED, recorder)?;
    let start = Instant::now();
    while interrupts.check().is_ok() && limit.is_none_or(|limit| start.elapsed() < limit) {
        if !disk.folder(system).exists() {
            // What was recorded is worth keeping.
            break;
        }
        if session.has_ended() {
            break;
        }
        std::thread::sleep(POLL);
    }
    let recording = session.finish()?;
    recording.sink.finish()?;
    Ok(Recorded {
        events: recording.events,
        lost: recording.lost,
    })
}
