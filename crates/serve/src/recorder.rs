//! Events of an export's block layer on their way to whoever records them.
//!
//! The export's thread never waits for a recorder: what one that is too slow
//! has no room for is counted and left out.

use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use blklab_blk::TraceEvent;
use blklab_workload::trace::BlktraceWriter;
use blklab_workload::trace::tracefs::{Dev, Event, lost_line};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The kernel's major number of NBD.
const NBD_MAJOR: u32 = 43;
/// Turns of an export whose events may wait to be written.
const MAX_BATCHES: usize = 1024;
/// How often a recorder is looked after without events.
const LOOK: Duration = Duration::from_millis(100);

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFormat {
    /// Text, as tracefs has it.
    Text,
    /// blktrace's binary form.
    Blktrace,
}

impl RecordFormat {
    /// The format of that name.
    ///
    /// # Errors
    /// Where there is none; the message says which there are.
    pub fn named(name: &str) -> Result<RecordFormat, String> {
        match name {
            "text" => Ok(RecordFormat::Text),
            "blktrace" => Ok(RecordFormat::Blktrace),
            _ => Err(format!("no format {name}; there are text and blktrace")),
        }
    }
}

/// Events of some turns.
#[derive(Default)]
pub(crate) struct Batch {
    events: Vec<TraceEvent>,
    /// Events left out before these.
    lost: u64,
}

/// Takes an export's events.
pub(crate) struct Recorder {
    to: SyncSender<Batch>,
    lost: u64,
}

/// Both ends of a recording.
pub(crate) fn recording() -> (Recorder, Receiver<Batch>) {
    let (to, from) = sync_channel(MAX_BATCHES);
    (Recorder { to, lost: 0 }, from)
}

impl Recorder {
    /// Hands events on. `false` where nobody listens any more.
    pub(crate) fn take(&mut self, events: Vec<TraceEvent>) -> bool {
        let batch = Batch {
            events,
            lost: self.lost,
        };
        match self.to.try_send(batch) {
            Ok(()) => {
                self.lost = 0;
                true
            }
            Err(TrySendError::Full(batch)) => {
                self.lost += batch.events.len() as u64;
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    }
}

/// Writes events to a client until it has enough or the server ends.
pub(crate) fn write(
    stream: &UnixStream,
    from: &Receiver<Batch>,
    format: RecordFormat,
    minor: u32,
) -> io::Result<()> {
    let dev = Dev {
        major: NBD_MAJOR,
        minor,
    };
    let mut writer = Writer::new(BufWriter::new(stream), format, dev)?;
    loop {
        match from.recv_timeout(LOOK) {
            Ok(batch) => writer.batch(&batch, dev)?,
            Err(RecvTimeoutError::Timeout) => writer.flush()?,
            Err(RecvTimeoutError::Disconnected) => return writer.flush(),
        }
        if has_enough(stream) {
            return writer.flush();
        }
    }
}

/// A client that has enough closes its side.
fn has_enough(stream: &UnixStream) -> bool {
    let what = PollFlags::IN | PollFlags::RDHUP;
    let mut fds = [PollFd::from_borrowed_fd(stream.as_fd(), what)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    matches!(poll(&mut fds, Some(&at_once)), Ok(1..))
}

/// Events on their way out.
enum Writer<W: Write> {
    Text(W),
    // The writer counts by CPU, and so owns what it writes to.
    Blktrace(BlktraceWriter<W>),
}

impl<W: Write> Writer<W> {
    fn new(mut to: W, format: RecordFormat, dev: Dev) -> io::Result<Writer<W>> {
        match format {
            RecordFormat::Text => {
                to.write_all(
                    b"# tracer: nop\n#\n#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n",
                )?;
                Ok(Writer::Text(to))
            }
            RecordFormat::Blktrace => Ok(Writer::Blktrace(BlktraceWriter::new(to, dev))),
        }
    }

    fn batch(&mut self, batch: &Batch, dev: Dev) -> io::Result<()> {
        match (&mut *self, batch.lost) {
            (_, 0) => {}
            (Writer::Text(to), lost) => writeln!(to, "{}", lost_line(lost))?,
            (Writer::Blktrace(writer), lost) => writer.lost(lost),
        }
        for event in &batch.events {
            let task = match event.submitter {
                0 => "export".to_string(),
                number => format!("client-{number}"),
            };
            let Some(event) = Event::of_model(event, dev, &task) else {
                continue;
            };
            match self {
                Writer::Text(to) => writeln!(to, "{event}")?,
                Writer::Blktrace(writer) => writer.event(&event)?,
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Writer::Text(to) => to.flush(),
            Writer::Blktrace(writer) => writer.flush(),
        }
    }
}
