//! Writer of events as tracefs text, like the kernel's `trace` file (block events of
//! include/trace/events/block.h).

use std::io::Write;
use std::path::{Path, PathBuf};

use blklab_workload::trace::tracefs::{Dev, Event, HEADER, lost_line};

use super::decode::{Kind, RequestEvent};
use super::session::Sink;
use super::split::name;
use crate::error::HostError;

/// Writer of events as text.
#[derive(Debug)]
pub struct TextWriter<W> {
    to: W,
    path: PathBuf,
}

impl<W: Write> TextWriter<W> {
    /// Returns a writer to `to`, which messages call `path`.
    pub fn new(mut to: W, path: impl Into<PathBuf>) -> Result<TextWriter<W>, HostError> {
        let path = path.into();
        to.write_all(HEADER.as_bytes())
            .map_err(|e| output(&path, e))?;
        Ok(TextWriter { to, path })
    }

    /// Writes an event that is not of the block layer.
    pub fn other(&mut self, event: &Event<'_>) -> Result<(), HostError> {
        let done = writeln!(self.to, "{event}");
        self.done(done)
    }

    /// Flushes all output.
    pub fn finish(mut self) -> Result<W, HostError> {
        let done = self.to.flush();
        done.map_err(|e| output(&self.path, e))?;
        Ok(self.to)
    }

    fn done(&self, done: std::io::Result<()>) -> Result<(), HostError> {
        done.map_err(|e| output(&self.path, e))
    }
}

impl<W: Write + Send + 'static> Sink for TextWriter<W> {
    fn event(&mut self, event: &RequestEvent) -> Result<(), HostError> {
        let done = write_event(&mut self.to, event);
        self.done(done)
    }

    fn lost(&mut self, events: u64) -> Result<(), HostError> {
        let done = writeln!(self.to, "{}", lost_line(events));
        self.done(done)
    }
}

fn output(path: &Path, source: std::io::Error) -> HostError {
    HostError::Output {
        path: path.to_path_buf(),
        source,
    }
}

fn write_event(to: &mut impl Write, event: &RequestEvent) -> std::io::Result<()> {
    let comm = name(&event.comm);
    // Completions do not include a name; the kernel writes this for an unknown one.
    let task = if comm.is_empty() { "<...>" } else { &comm };
    let (seconds, ns) = (event.at_ns / 1_000_000_000, event.at_ns % 1_000_000_000);
    let dev = Dev::of_number(event.dev);
    let letters: String = event
        .rwbs
        .iter()
        .take_while(|b| **b != 0)
        .map(|b| *b as char)
        .collect();
    write!(
        to,
        "{task:>16}-{:<7} [{:03}] ..... {seconds:>5}.{ns:09}: {}: {dev} {letters} ",
        event.pid,
        event.cpu,
        event.kind.name()
    )?;
    let extent = format!("{} + {}", event.sector, event.bytes / 512);
    match event.kind {
        Kind::Queue | Kind::GetRequest | Kind::BackMerge | Kind::FrontMerge => {
            writeln!(to, "{extent} [{comm}]")
        }
        Kind::Complete | Kind::Requeue => {
            writeln!(
                to,
                "() {extent} {} [{}]",
                priority(event.ioprio),
                event.error
            )
        }
        Kind::Start | Kind::Insert | Kind::Issue | Kind::Merge => writeln!(
            to,
            "{} () {extent} {} [{comm}]",
            event.bytes,
            priority(event.ioprio)
        ),
    }
}

/// Formats class, hint and level, of 3, 10 and 3 bits.
fn priority(ioprio: u16) -> String {
    let class = match ioprio >> 13 {
        1 => "rt",
        2 => "be",
        3 => "idle",
        _ => "none",
    };
    format!("{class},{},{}", ioprio >> 3 & 0x3ff, ioprio & 7)
}

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_workload::trace::tracefs::{EventKind, events};

    fn event(kind: Kind, rwbs: &[u8]) -> RequestEvent {
        let mut event = RequestEvent {
            at_ns: 51_821_860_972,
            kind,
            dev: 253 << 20 | 1,
            sector: 505_944,
            bytes: 48 * 512,
            op: Some(1),
            comm: *b"my fio\0\0\0\0\0\0\0\0\0\0",
            error: 0,
            cpu: 3,
            pid: 2094,
            rwbs: [0; 10],
            ioprio: 2 << 13 | 4,
        };
        event.rwbs[..rwbs.len()].copy_from_slice(rwbs);
        event
    }

    /// The parser of traces reads the written lines back.
    #[test]
    fn lines_are_read_back_as_they_were() {
        let mut writer = TextWriter::new(Vec::new(), "memory").unwrap();
        for (kind, _, _) in Kind::RECORDED {
            writer.event(&event(kind, b"WS")).unwrap();
        }
        writer.lost(7).unwrap();
        let nameless = RequestEvent {
            comm: [0; 16],
            error: -5,
            ..event(Kind::Complete, b"FWFS")
        };
        writer.event(&nameless).unwrap();
        let text = String::from_utf8(writer.finish().unwrap()).unwrap();
        assert!(text.contains("[LOST 7 EVENTS]"));
        let read: Vec<_> = events(&text, "memory").collect::<Result<_, _>>().unwrap();
        assert_eq!(read.len(), Kind::RECORDED.len() + 1);
        for (read, (kind, name, _)) in read.iter().zip(Kind::RECORDED) {
            assert_eq!(read.kind.name(), name, "{kind:?}");
            assert_eq!((read.at_ns, read.pid, read.cpu), (51_821_860_972, 2094, 3));
            assert_eq!(read.task, "my fio");
        }
        let EventKind::RqIssue(issue) = &read[5].kind else {
            panic!("{:?}", read[5]);
        };
        assert_eq!(
            (issue.bytes, issue.sector.0, issue.sectors),
            (24_576, 505_944, 48)
        );
        assert_eq!((issue.dev.major, issue.dev.minor), (253, 1));
        assert_eq!((issue.prio.hint, issue.prio.level), (0, 4));
        let EventKind::RqComplete(end) = &read.last().unwrap().kind else {
            panic!("{:?}", read.last());
        };
        assert_eq!(end.error, -5);
    }
}
