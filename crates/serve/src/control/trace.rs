//! Recordings of an export's block layer: events are written to a client as
//! they come.

use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use blklab_workload::trace::BlktraceWriter;
use blklab_workload::trace::tracefs::{Dev, Event, HEADER, lost_line};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::export::TraceBatch;

/// The kernel's major number of NBD.
const NBD_MAJOR: u32 = 43;
/// How often a client is looked after that gets no events.
const IDLE_CHECK: Duration = Duration::from_millis(100);

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

/// Writes events to a client until it has enough or the server ends.
pub(super) fn write(
    stream: &UnixStream,
    from: &Receiver<TraceBatch>,
    format: RecordFormat,
    minor: u32,
) -> io::Result<()> {
    let dev = Dev {
        major: NBD_MAJOR,
        minor,
    };
    let mut writer = Writer::new(BufWriter::new(stream), format, dev)?;
    loop {
        match from.recv_timeout(IDLE_CHECK) {
            Ok(batch) => writer.batch(&batch, dev)?,
            Err(RecvTimeoutError::Timeout) => writer.flush()?,
            Err(RecvTimeoutError::Disconnected) => return writer.flush(),
        }
        if has_closed(stream) {
            return writer.flush();
        }
    }
}

/// Whether a client has closed its side, as it does to end the recording.
fn has_closed(stream: &UnixStream) -> bool {
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
                to.write_all(HEADER.as_bytes())?;
                Ok(Writer::Text(to))
            }
            RecordFormat::Blktrace => Ok(Writer::Blktrace(BlktraceWriter::new(to, dev))),
        }
    }

    fn batch(&mut self, batch: &TraceBatch, dev: Dev) -> io::Result<()> {
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
