//! Asynchronous requests: calls that run beside the program that made them, through POSIX AIO,
//! Linux AIO or io_uring.

use super::argument::{Argument, Duration, Handle, ProgramName, Word, first};
use super::call::Call;

/// The operation of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A call.
    Call(Box<Call>),
    /// No operation.
    Nop,
    /// A timeout after this time.
    Timeout(Duration),
    /// A timeout that cancels the request linked before it.
    LinkTimeout(Duration),
    /// Cancellation of another request.
    Cancel(Handle),
}

/// The interface that takes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// POSIX AIO, with threads of glibc (`aio_read`, `lio_listio`).
    Posix,
    /// Linux AIO (`io_submit`).
    Linux,
    /// io_uring (`io_uring_enter`).
    IoUring,
}

impl Interface {
    /// Returns the call that submits requests to this interface.
    fn name(self) -> &'static str {
        match self {
            Interface::Posix => "lio_listio",
            Interface::Linux => "io_submit",
            Interface::IoUring => "io_uring_enter",
        }
    }

    /// Returns the list of operations of this interface, for messages.
    fn operations(self) -> &'static str {
        match self {
            Interface::Posix => "pread and pwrite",
            Interface::Linux => "pread, pwrite, fsync and fdatasync",
            Interface::IoUring => {
                "pread, pwrite, fsync, fdatasync, sync_file_range, fallocate, posix_fadvise, \
                 ftruncate, open, close, stat, lstat, unlink, rmdir, rename, mkdir, symlink, \
                 link, nop, timeout, link_timeout and cancel"
            }
        }
    }
}

impl Operation {
    /// Returns the call that the operation makes.
    pub fn call(&self) -> Option<&Call> {
        match self {
            Operation::Call(call) => Some(call),
            _ => None,
        }
    }

    /// Returns the request that the operation cancels.
    pub(super) fn cancelled(&self) -> &[Handle] {
        match self {
            Operation::Cancel(request) => std::slice::from_ref(request),
            _ => &[],
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Operation::Call(call) => call.name(),
            Operation::Nop => "nop",
            Operation::Timeout(_) => "timeout",
            Operation::LinkTimeout(_) => "link_timeout",
            Operation::Cancel(_) => "cancel",
        }
    }

    /// Whether `interface` has this operation (`lio_opcode` of glibc's `aio.h`, `IOCB_CMD_` of
    /// `aio_abi.h`, `IORING_OP_` of `io_uring.h`).
    fn is_of(&self, interface: Interface) -> bool {
        let Operation::Call(call) = self else {
            return interface == Interface::IoUring;
        };
        match **call {
            Call::Pread { .. } | Call::Pwrite { .. } => true,
            Call::Fsync { .. } | Call::Fdatasync { .. } => interface != Interface::Posix,
            Call::SyncFileRange { .. }
            | Call::Fallocate { .. }
            | Call::Fadvise { .. }
            | Call::Ftruncate { .. }
            | Call::Open { .. }
            | Call::Close { .. }
            | Call::Stat { .. }
            | Call::Lstat { .. }
            | Call::Unlink { .. }
            | Call::Rmdir { .. }
            | Call::Rename { .. }
            | Call::Mkdir { .. }
            | Call::Symlink { .. }
            | Call::Link { .. } => interface == Interface::IoUring,
            _ => false,
        }
    }
}

/// Returns the reason why a request cannot be submitted to an interface.
pub(super) fn refusal(
    interface: Interface,
    name: &Handle,
    (how, operation): (SubmitFlags, &Operation),
) -> Option<String> {
    let call = interface.name();
    if !operation.is_of(interface) {
        let (found, right) = (operation.name(), interface.operations());
        return Some(format!(
            "{call}: {}: it has no {found}, right is {right}",
            name.0
        ));
    }
    let is_plain = how == SubmitFlags::default() || interface == Interface::IoUring;
    (!is_plain).then(|| {
        format!(
            "{call}: {}: link, hardlink, drain and async are io_uring_enter's",
            name.0
        )
    })
}

impl Argument for Operation {
    const RIGHT: &'static str = "a call of those that io_uring_enter has, nop, timeout TIME, \
                                 link_timeout TIME or cancel REQUEST";

    fn take(words: &mut &[Word]) -> Option<Operation> {
        let before = *words;
        let name = first(words, |text| Some(text.to_string()))?;
        let taken = match name.as_str() {
            "nop" => Some(Operation::Nop),
            "timeout" => Duration::take(words).map(Operation::Timeout),
            "link_timeout" => Duration::take(words).map(Operation::LinkTimeout),
            "cancel" => Handle::take(words).map(Operation::Cancel),
            "prepare" => None,
            name => match Call::take(name, words) {
                Ok(Some(call)) => Some(Operation::Call(Box::new(call))),
                _ => None,
            },
        };
        let taken = taken.filter(|operation| operation.is_of(Interface::IoUring));
        if taken.is_none() {
            *words = before;
        }
        taken
    }

    fn print(&self, text: &mut String) {
        text.push(' ');
        match self {
            Operation::Call(call) => call.print(text),
            Operation::Nop => text.push_str("nop"),
            Operation::Timeout(time) | Operation::LinkTimeout(time) => {
                text.push_str(self.name());
                time.print(text);
            }
            Operation::Cancel(request) => {
                text.push_str("cancel");
                request.print(text);
            }
        }
    }
}

/// The flags of an io_uring submission (`IOSQE_IO_LINK` and the others of `io_uring.h`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubmitFlags {
    /// The next request begins when this one completes, and is cancelled if this one fails.
    pub link: bool,
    /// The next request begins when this one completes, even if it fails.
    pub hardlink: bool,
    /// The request begins when all earlier ones are complete.
    pub drain: bool,
    /// A worker makes the call at once, without a non-blocking attempt first.
    pub force_async: bool,
}

impl SubmitFlags {
    const NAMES: [&'static str; 4] = ["link", "hardlink", "drain", "async"];

    fn flags(&mut self) -> [&mut bool; 4] {
        let SubmitFlags {
            link,
            hardlink,
            drain,
            force_async,
        } = self;
        [link, hardlink, drain, force_async]
    }

    /// Whether the next request begins when this one completes.
    pub fn links(self) -> bool {
        self.link || self.hardlink
    }
}

impl Argument for SubmitFlags {
    const RIGHT: &'static str = "any of link, hardlink, drain and async, each once";

    /// Takes the flags; `link` before a path is not a flag but the call of that name.
    fn take(words: &mut &[Word]) -> Option<SubmitFlags> {
        let mut how = SubmitFlags::default();
        while let Some((word, rest)) = words.split_first() {
            let place = (SubmitFlags::NAMES.iter()).position(|name| word.plain() == Some(name));
            let begins_path = rest.first().is_some_and(|next| next.text.starts_with(b"/"));
            let Some(place) = place.filter(|_| !begins_path) else {
                break;
            };
            if std::mem::replace(how.flags()[place], true) {
                return None;
            }
            *words = rest;
        }
        Some(how)
    }

    fn print(&self, text: &mut String) {
        let mut how = *self;
        for (name, is_set) in SubmitFlags::NAMES.iter().zip(how.flags()) {
            if *is_set {
                text.push(' ');
                text.push_str(name);
            }
        }
    }
}

/// The names of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests(pub Vec<Handle>);

impl Argument for Requests {
    const RIGHT: &'static str = "names of requests, each once";

    fn take(words: &mut &[Word]) -> Option<Requests> {
        let mut requests: Vec<Handle> = Vec::new();
        while !words.is_empty() {
            let request = Handle::take(words)?;
            if requests.contains(&request) {
                return None;
            }
            requests.push(request);
        }
        Some(Requests(requests))
    }

    fn print(&self, text: &mut String) {
        self.0.iter().for_each(|request| request.print(text));
    }
}

/// How the end of a request of POSIX AIO is told (`sigev_notify`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Notification {
    /// Not at all (`SIGEV_NONE`).
    #[default]
    None,
    /// By a signal that is queued for the process (`SIGEV_SIGNAL`).
    Signal,
    /// By a new thread of the process, which makes this program's calls
    /// (`SIGEV_THREAD`).
    Thread(ProgramName),
}

impl Argument for Notification {
    const RIGHT: &'static str = "none, signal or thread PROGRAM";

    fn take(words: &mut &[Word]) -> Option<Notification> {
        let before = *words;
        let how = first(words, |text| Some(text.to_string()))?;
        let taken = match how.as_str() {
            "none" => Some(Notification::None),
            "signal" => Some(Notification::Signal),
            "thread" => ProgramName::take(words).map(Notification::Thread),
            _ => None,
        };
        if taken.is_none() {
            *words = before;
        }
        taken
    }

    fn print(&self, text: &mut String) {
        match self {
            Notification::None => text.push_str(" none"),
            Notification::Signal => text.push_str(" signal"),
            Notification::Thread(program) => {
                text.push_str(" thread");
                program.print(text);
            }
        }
    }
}

/// The mode of `lio_listio`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitMode {
    /// Wait until all requests are complete (`LIO_WAIT`).
    Wait,
    /// Return at once, and have the completion of all requests notified so (`LIO_NOWAIT`
    /// with its `sigevent`).
    NoWait(Notification),
}

impl Argument for WaitMode {
    const RIGHT: &'static str = "wait, nowait, signal or thread PROGRAM";

    fn take(words: &mut &[Word]) -> Option<WaitMode> {
        let plain = first(words, |text| match text {
            "wait" => Some(WaitMode::Wait),
            "nowait" => Some(WaitMode::NoWait(Notification::None)),
            _ => None,
        });
        plain.or_else(|| match Notification::take(words)? {
            Notification::None => None,
            how => Some(WaitMode::NoWait(how)),
        })
    }

    fn print(&self, text: &mut String) {
        match self {
            WaitMode::Wait => text.push_str(" wait"),
            WaitMode::NoWait(Notification::None) => text.push_str(" nowait"),
            WaitMode::NoWait(how) => how.print(text),
        }
    }
}
