//! One export: its threads, their connections, its block layer, and how other
//! threads reach it.

mod connection;
mod disk;
mod event_loop;
mod io;
mod pacing;
mod queue_client;
mod requests;
mod shared;
mod trace;
mod waiting;
mod watch;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use blklab_blk::{CgroupId, Nanos};
use blklab_nbd::wire::Command;
use blklab_stats::Histogram;

use crate::net::Arrival;

pub(crate) use disk::{Change, ChangeDone, Disk, DiskSetup};
pub(crate) use event_loop::{EventLoop, EventLoopSetup};
pub(crate) use io::{IoId, Source};
pub(crate) use queue_client::{FrontEndQueue, FrontEndSetup, QueueClient, QueueThread};
pub(crate) use requests::ConnectionLimits;
pub(crate) use shared::{ExportThread, SharedExport, Waker};
pub(crate) use trace::{Recorder, TraceBatch};
pub(crate) use watch::PanicWatch;

/// An export's thread that takes longer than this to answer is stuck in its back end.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Messages to a thread of an export.
enum Message {
    /// A client comes, and is in this control group.
    Arrive(Box<Arrival>, CgroupId),
    /// Change something once the queue is empty.
    Change(Change, ChangeDone),
    /// Call a function at once.
    Call(Box<dyn FnOnce(&mut ExportView<'_>) + Send>),
    /// Finish what was accepted, and end.
    ShutDown,
}

/// An export as its thread sees it between two requests.
pub(crate) struct ExportView<'a> {
    pub(crate) now: Nanos,
    pub(crate) disk: &'a mut Disk,
    pub(crate) counters: &'a Counters,
}

/// Messages to one thread of an export.
#[derive(Clone)]
pub(crate) struct Inbox {
    messages: Arc<Mutex<Vec<Message>>>,
    waker: Waker,
}

impl Inbox {
    /// An inbox whose messages notify this thread.
    pub(crate) fn of(thread: &ExportThread) -> Inbox {
        Inbox {
            messages: Arc::default(),
            waker: thread.waker(),
        }
    }

    fn send(&self, message: Message) {
        self.messages
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(message);
        self.waker.wake();
    }

    fn take(&self) -> Vec<Message> {
        std::mem::take(&mut *self.messages.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// An export, as other threads reach it.
#[derive(Clone)]
pub(crate) struct ExportHandle {
    pub(crate) name: String,
    /// The first is told what concerns the whole export.
    inboxes: Arc<[Inbox]>,
    arrivals: Arc<AtomicUsize>,
}

impl ExportHandle {
    /// An export with these threads, at least one.
    pub(crate) fn new(name: &str, inboxes: Vec<Inbox>) -> ExportHandle {
        ExportHandle {
            name: name.to_string(),
            inboxes: inboxes.into(),
            arrivals: Arc::default(),
        }
    }

    fn send(&self, message: Message) {
        self.inboxes[0].send(message);
    }

    /// Gives a client to the threads in turn.
    pub(crate) fn arrive(&self, arrival: Arrival, cgroup: CgroupId) {
        let turn = self.arrivals.fetch_add(1, Ordering::Relaxed);
        let inbox = &self.inboxes[turn % self.inboxes.len()];
        inbox.send(Message::Arrive(Box::new(arrival), cgroup));
    }

    /// Has all threads finish what was accepted, and end.
    pub(crate) fn shut_down(&self) {
        for inbox in self.inboxes.iter() {
            inbox.send(Message::ShutDown);
        }
    }

    /// Calls a function in the export's first thread.
    ///
    /// # Errors
    /// Where the thread does not answer.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        function: impl FnOnce(&mut ExportView<'_>) -> T + Send + 'static,
    ) -> Result<T, String> {
        let (sender, receiver) = mpsc::channel();
        self.send(Message::Call(Box::new(move |view| {
            // The caller may have given up.
            let _ = sender.send(function(view));
        })));
        receiver.recv_timeout(CALL_TIMEOUT).map_err(|_| hangs())
    }

    /// Makes a change that waits until the queue is empty.
    ///
    /// # Errors
    /// Where the change is refused, or the thread does not answer.
    pub(crate) fn change(&self, change: Change) -> Result<(), String> {
        let (sender, receiver) = mpsc::channel();
        let done: ChangeDone = Box::new(move |result| {
            let _ = sender.send(result);
        });
        self.send(Message::Change(change, done));
        receiver.recv_timeout(CALL_TIMEOUT).map_err(|_| hangs())?
    }
}

fn hangs() -> String {
    "the export does not answer; its back end may hang".to_string()
}

/// The kinds of requests that are counted.
pub(crate) const KINDS: [&str; 5] = ["read", "write", "flush", "trim", "zero"];

/// The index of a command in [`KINDS`]; `None` for one that is not counted.
fn kind_of(command: Command) -> Option<usize> {
    Some(match command {
        Command::Read => 0,
        Command::Write => 1,
        Command::Flush => 2,
        Command::Trim => 3,
        Command::WriteZeroes => 4,
        _ => return None,
    })
}

/// Counters of one export.
#[derive(Default)]
pub(crate) struct Counters {
    /// Requests answered, by kind.
    pub(crate) requests: [u64; 5],
    /// Bytes, by kind.
    pub(crate) bytes: [u64; 5],
    /// Time from the request to its reply, by kind.
    pub(crate) latency: [Histogram; 5],
    /// Requests answered with an error.
    pub(crate) errors: u64,
    /// Connections, ever.
    pub(crate) connections_total: u64,
    /// Connections, now.
    pub(crate) connections: u64,
    /// Connections that broke the protocol.
    pub(crate) protocol_errors: u64,
    /// Iterations of the event loop.
    pub(crate) loop_iterations: u64,
}
