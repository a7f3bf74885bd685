//! The control socket: attributes of a running server, a line a request.
//!
//! `get EXPORT NAME`, `set EXPORT NAME VALUE`, `names EXPORT`,
//! `sample EXPORT`, `exports`; words
//! are separated by tabs, so that an export's name may hold blanks. The reply
//! is `ok` or `error` with a message, then the answer, up to the end.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::attributes;
use crate::export_loop::Message;
use crate::mailbox::Mailbox;
use crate::sample;

/// Longest request.
const MAX_LINE_BYTES: u64 = 16 << 10;
/// A client that says nothing for so long is left alone.
const PATIENCE: Duration = Duration::from_secs(10);

/// The exports, for whoever administers them.
pub(crate) struct Exports {
    pub(crate) names: Vec<String>,
    pub(crate) mailboxes: Vec<Arc<Mailbox<Message>>>,
}

impl Exports {
    /// The export of that name; the empty one names the first.
    fn find(&self, name: &str) -> Result<&Mailbox<Message>, String> {
        let named = self.names.iter().position(|known| known == name);
        let index = match named {
            Some(index) => index,
            None if name.is_empty() => 0,
            None => {
                let known: Vec<String> = self.names.iter().map(|n| format!("{n:?}")).collect();
                return Err(format!(
                    "no export {name:?}; there are {}",
                    known.join(", ")
                ));
            }
        };
        Ok(&self.mailboxes[index])
    }

    fn answer(&self, line: &str) -> Result<String, String> {
        let words: Vec<&str> = line.trim_end_matches('\n').split('\t').collect();
        match words[..] {
            ["exports"] => Ok(self.names.join("\n")),
            ["names", export] => {
                let names = attributes::visit(self.find(export)?, |v| attributes::names(v))?;
                Ok(names.join("\n"))
            }
            ["get", export, name] => {
                let name = name.to_string();
                attributes::visit(self.find(export)?, move |v| attributes::read(v, &name))?
            }
            ["sample", export] => attributes::visit(self.find(export)?, |v| sample::write(v)),
            ["set", export, name, value] => {
                attributes::write(self.find(export)?, name, value)?;
                Ok(String::new())
            }
            _ => Err(format!("not understood: {line:?}")),
        }
    }

    /// Answers one client.
    pub(crate) fn serve(&self, socket: OwnedFd) {
        let stream = UnixStream::from(socket);
        // A client that goes away concerns nobody else.
        let _ = self.converse(stream);
    }

    fn converse(&self, mut stream: UnixStream) -> std::io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut line = String::new();
        BufReader::new((&stream).take(MAX_LINE_BYTES)).read_line(&mut line)?;
        match self.answer(&line) {
            Ok(text) => writeln!(stream, "ok\n{text}"),
            Err(message) => writeln!(stream, "error\n{message}"),
        }
    }
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
    let fault = |e: std::io::Error| format!("{place}: {e}; is a server running with --control?");
    let mut stream = UnixStream::connect(control).map_err(fault)?;
    writeln!(stream, "{}", words.join("\t")).map_err(fault)?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).map_err(fault)?;
    match reply.split_once('\n') {
        Some(("ok", text)) => Ok(text.trim_end_matches('\n').to_string()),
        Some(("error", text)) => Err(text.trim_end_matches('\n').to_string()),
        _ => Err(format!("{place}: no answer")),
    }
}
