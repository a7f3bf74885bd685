//! Looking at and changing a running server: the control socket, the tree in
//! sysfs's form, and metrics.
//!
//! The control socket takes a line a request:
//! `get EXPORT NAME`, `set EXPORT NAME VALUE`, `names EXPORT`,
//! `sample EXPORT`, `exports`, `record EXPORT FORMAT`; words are separated by
//! tabs, so that an export's name may hold blanks. The reply is `ok` or `error`
//! with a message, then the answer, up to the end; of a recording that is when
//! the client closes its side.

mod attributes;
mod metrics;
mod sysfs;
mod top;
mod trace;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use crate::export::{ExportHandle, Recorder, TraceBatch};

pub(crate) use sysfs::MountedTree;
pub use top::{Rate, Sample};
pub use trace::RecordFormat;

/// Longest request.
const MAX_LINE_BYTES: u64 = 16 << 10;
/// A client that is silent for this long is disconnected.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);

/// All exports of a server, for the control socket, sysfs and metrics.
pub(crate) struct Exports(Vec<ExportHandle>);

impl Exports {
    pub(crate) fn new(exports: Vec<ExportHandle>) -> Exports {
        Exports(exports)
    }

    pub(crate) fn all(&self) -> &[ExportHandle] {
        &self.0
    }

    /// The export of that name; the empty one names the first.
    fn find(&self, name: &str) -> Result<&ExportHandle, String> {
        self.index(name).map(|index| &self.0[index])
    }

    fn index(&self, name: &str) -> Result<usize, String> {
        let named = self.0.iter().position(|export| export.name == name);
        match named {
            Some(index) => Ok(index),
            None if name.is_empty() => Ok(0),
            None => {
                let known = self.0.iter().map(|export| format!("{:?}", export.name));
                let known: Vec<String> = known.collect();
                Err(format!(
                    "no export {name:?}; there are {}",
                    known.join(", ")
                ))
            }
        }
    }

    /// Returns what an attribute is called here, of which a path of sysfs may be given. The kernel
    /// may call the disk anything, but not what another export is called.
    fn attribute<'n>(&self, export: &str, path: &'n str) -> Result<&'n str, String> {
        let of_disk = path.split_once("/block/").filter(|_| path.starts_with('/'));
        let Some((disk, name)) = of_disk.and_then(|(_, rest)| rest.split_once('/')) else {
            return Ok(sysfs::control_name(path));
        };
        let index = self.index(export)?;
        let mut others = (0..self.0.len()).filter(|&other| other != index);
        match others.find(|&other| sysfs::disk_name(other, &self.0[other].name) == disk) {
            Some(other) => Err(format!(
                "{path}: {disk} is another export; --export {:?} names it",
                self.0[other].name
            )),
            None => Ok(sysfs::control_name(name)),
        }
    }

    fn answer(&self, line: &str) -> Result<String, String> {
        let words: Vec<&str> = line.trim_end_matches('\n').split('\t').collect();
        match words[..] {
            ["exports"] => {
                let names = self.0.iter().map(|export| export.name.as_str());
                Ok(names.collect::<Vec<_>>().join("\n"))
            }
            ["names", export] => {
                let names = self.find(export)?.call(|view| attributes::names(view))?;
                Ok(names.join("\n"))
            }
            ["get", export, name] => {
                let name = self.attribute(export, name)?.to_string();
                self.find(export)?
                    .call(move |view| attributes::read(view, &name))?
            }
            ["sample", export] => self.find(export)?.call(|view| top::write(view)),
            ["set", export, name, value] => {
                let name = self.attribute(export, name)?;
                attributes::write(self.find(export)?, name, value)?;
                Ok(String::new())
            }
            _ => Err(format!("not understood: {line:?}")),
        }
    }

    /// Answers one client of the control socket.
    pub(crate) fn serve(&self, socket: OwnedFd) {
        let stream = UnixStream::from(socket);
        // A client that goes away concerns no other.
        let _ = self.converse(stream);
    }

    fn converse(&self, mut stream: UnixStream) -> std::io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
        stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
        let mut line = String::new();
        BufReader::new((&stream).take(MAX_LINE_BYTES)).read_line(&mut line)?;
        let words: Vec<&str> = line.trim_end_matches('\n').split('\t').collect();
        let answer = match words[..] {
            ["record", export, format] => match self.record(export, format) {
                Ok(recording) => return recording.start(stream),
                Err(message) => Err(message),
            },
            _ => self.answer(&line),
        };
        match answer {
            Ok(text) => writeln!(stream, "ok\n{text}"),
            Err(message) => writeln!(stream, "error\n{message}"),
        }
    }

    fn record(&self, export: &str, format: &str) -> Result<Recording, String> {
        let format = RecordFormat::named(format)?;
        let index = self.index(export)?;
        let (recorder, from) = Recorder::new();
        self.0[index].call(|view| view.disk.start_recording(recorder))??;
        Ok(Recording {
            from,
            format,
            index,
        })
    }
}

/// A recording that is about to start.
struct Recording {
    from: Receiver<TraceBatch>,
    format: RecordFormat,
    index: usize,
}

impl Recording {
    /// Goes on beside the control socket, which others wait for.
    fn start(self, mut stream: UnixStream) -> std::io::Result<()> {
        writeln!(stream, "ok")?;
        let builder = std::thread::Builder::new().name("recorder".to_string());
        let run = move || {
            // A client that goes away has ended the recording.
            let _ = trace::write(&stream, &self.from, self.format, self.index as u32);
        };
        builder.spawn(run).map(drop)
    }
}

/// Asks a running server for an export's events. They come from the stream;
/// closing its other side ends them.
///
/// # Errors
/// As [`ask`].
pub fn record(control: &Path, export: &str, format: &str) -> Result<BufReader<UnixStream>, String> {
    let place = control.display();
    let mut stream = connect(control)?;
    let fault = |e: std::io::Error| format!("{place}: {e}");
    writeln!(stream, "record\t{export}\t{format}").map_err(fault)?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).map_err(fault)?;
    if line == "ok\n" {
        return Ok(reader);
    }
    let mut message = String::new();
    reader.read_to_string(&mut message).map_err(fault)?;
    match message.is_empty() {
        true => Err(format!("{place}: no answer")),
        false => Err(message.trim_end().to_string()),
    }
}

fn connect(control: &Path) -> Result<UnixStream, String> {
    let place = control.display();
    UnixStream::connect(control)
        .map_err(|e| format!("{place}: {e}; is a server running with --control?"))
}

/// Asks a running server through its control socket.
///
/// # Errors
/// Where it cannot be reached, or refuses; the message says why.
pub fn ask(control: &Path, words: &[&str]) -> Result<String, String> {
    if let Some(word) = words.iter().find(|w| w.contains(['\t', '\n'])) {
        return Err(format!("{word:?} holds a tab or an end of line"));
    }
    let place = control.display();
    let fault = |e: std::io::Error| format!("{place}: {e}");
    let mut stream = connect(control)?;
    writeln!(stream, "{}", words.join("\t")).map_err(fault)?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).map_err(fault)?;
    match reply.split_once('\n') {
        Some(("ok", text)) => Ok(text.trim_end_matches('\n').to_string()),
        Some(("error", text)) => Err(text.trim_end_matches('\n').to_string()),
        _ => Err(format!("{place}: no answer")),
    }
}
