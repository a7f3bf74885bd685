//! What blktrace and blkparse write of a drive: who, when, and which action.

/// Who does something in a trace, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventContext<'a> {
    /// The drive's major number.
    pub major: u32,
    /// The drive's minor number.
    pub minor: u32,
    /// The CPU.
    pub cpu: u32,
    /// Counts a CPU's events.
    pub sequence: u64,
    /// From the trace's start.
    pub at_ns: u64,
    /// The process that runs.
    pub pid: u32,
    /// Its name.
    pub process: &'a str,
}

/// What happens to an extent. The letters are blkparse's actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Q: a bio enters the block layer.
    Queue,
    /// G: it gets a request.
    GetRequest,
    /// I: the request goes to the scheduler.
    Insert,
    /// M: a bio joins the end of a request.
    BackMerge,
    /// F: a bio joins the start of a request.
    FrontMerge,
    /// R: the driver gives a request back.
    Requeue,
    /// D: the request goes to the driver.
    Issue,
    /// C: it is done, with this error or 0.
    Complete(i32),
}
