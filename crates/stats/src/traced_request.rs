//! `TracedRequest`: the times of one request in queue, scheduler and drive, from a recorded
//! timeline.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::histogram::Histogram;
use crate::queue::{RequestKind, RequestStats};
use crate::timeline::Timeline;
use crate::traced_cpu::{CpuRecord, add_programs};
use crate::traced_disk::of_disk;

macro_rules! stages {
    ($($(#[doc = $doc:literal])+ $stage:ident $name:literal,)+) => {
        /// A place where a request may spend time.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Stage {
            $($(#[doc = $doc])+ $stage,)+
        }

        impl Stage {
            /// All stages, in the order in which a request passes them.
            pub const ALL: [Stage; [$($name),+].len()] = [$(Stage::$stage),+];

            /// Returns the stage's name in tables.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Stage::$stage => $name,)+
                }
            }

            /// Returns the stage's meaning in a sentence.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Stage::$stage => concat!($($doc),+).trim_ascii(),)+
                }
            }
        }
    };
}

stages! {
    /// Before it was a request: waiting for a tag, held back by a limit, or behind an I/O of the
    /// same call that was.
    Tag "tag or throttle",
    /// A CPU at work for it, and its program's turn on that CPU: from the program's call through
    /// block layer and driver, and from the end in the drive until the program has it back.
    Cpu "CPU",
    /// A CPU waiting for the scheduler's lock, and for what that protects to come from another
    /// CPU: for this request, or for others while its program's turn is awaited.
    Lock "lock",
    /// In its submitter's plug, where later bios may merge with it.
    Plug "plug",
    /// Waiting for a flush of the drive's cache: its own, before or after its data, or another
    /// beside which the drive takes nothing.
    Flush "flush",
    /// In the scheduler, or without one in a software queue, until its dispatch.
    Scheduler "scheduler",
    /// Dispatched, but the driver gave it back for lack of room.
    Driver "driver",
    /// In the drive, until its controller had fetched and processed it.
    Controller "controller",
    /// In the drive, its data on the link to the host, or waiting for that.
    Link "link",
    /// In the drive, waiting for its channel, which another command's data used.
    Channel "busy channel",
    /// In the drive, waiting for its die or the arm, which another command used.
    Die "busy die or arm",
    /// In the drive, waiting for garbage collection on its die.
    Collection "collection",
    /// In the drive, waiting for a page of the map that was not in memory.
    Map "map",
    /// Its own data on the channel.
    Transfer "own transfer",
    /// Its own operation in the flash array, or its own data under the heads; of a flush, what
    /// was in the drive's cache.
    Media "own media",
    /// Of a write in the drive: waiting for room in its cache, and going there.
    Cache "write cache",
    /// Elsewhere in the drive, or all of its time there where the drive's parts are not modelled.
    Rest "rest of the drive",
}

/// Time by [`Stage`], in nanoseconds.
pub type StageTimes = [f64; Stage::ALL.len()];

/// A request that was recorded from its start to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct TracedRequest {
    /// The drive, by its index in [`Timeline::disks`].
    pub disk: usize,
    /// The request's number there, which is never reused.
    pub request: u64,
    /// The operation: `R`, `W`, `D` or `F`, as in blkparse.
    pub op: char,
    /// The first sector, merged bios included.
    pub sector: u64,
    /// The number of sectors.
    pub sectors: u32,
    /// The CPU whose software queue it belongs to.
    pub cpu: u32,
    /// The process that submitted it.
    pub submitter: u32,
    /// The time of its first bio's submission.
    pub submitted_ns: u64,
    /// The time of its insertion into the scheduler or a software queue; `None` if it
    /// bypassed both.
    pub inserted_ns: Option<u64>,
    /// The time of its dispatch by the scheduler; `None` without one.
    pub dispatched_ns: Option<u64>,
    /// The time at which the driver took it; for a flush, the command that served it.
    pub issued_ns: u64,
    /// The time of its end, that of a flush after its data included.
    pub completed_ns: u64,
    /// Requests in the drive when it was issued, itself included.
    pub depth: u32,
    /// The time at which its program began the I/O of which it was made; that of its submission
    /// if no program is known to wait for it.
    pub io_start_ns: u64,
    /// The time at which that program had its I/O back; that of its end otherwise.
    pub io_end_ns: u64,
    /// The time in each stage, which add up to [`TracedRequest::io_latency_ns`].
    pub stages_ns: StageTimes,
}

impl TracedRequest {
    /// Returns the time from submission to end, in nanoseconds.
    pub fn latency_ns(&self) -> u64 {
        self.completed_ns - self.submitted_ns
    }

    /// Returns the time from the program's call to when it had its I/O back, in nanoseconds.
    pub fn io_latency_ns(&self) -> u64 {
        self.io_end_ns - self.io_start_ns
    }
}

/// The requests of a run that were recorded from start to end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TracedRequests {
    /// The requests in the order of their ends, drive after drive.
    pub of: Vec<TracedRequest>,
    /// Whether the recording ended before the run, at the limit on entries.
    pub cut: bool,
}

impl TracedRequests {
    /// Their times in scheduler and drive, as a kernel's trace tells them. `job_of` names
    /// the process of a submitter.
    pub fn times(&self, job_of: impl Fn(u32) -> String) -> RequestStats {
        let mut stats = RequestStats::default();
        let mut kinds: BTreeMap<(usize, u64, u32), RequestKind> = BTreeMap::new();
        let mut last_flush = None;
        for request in &self.of {
            // One command serves all flushes that were asked for before it.
            let command = (request.op == 'F').then_some((request.disk, request.issued_ns));
            if command.is_some() && command == last_flush {
                continue;
            }
            last_flush = command.or(last_flush);
            let op = "RWDF".find(request.op).unwrap_or_default();
            let up_to_bytes = match request.sectors {
                0 => 0,
                sectors => (u64::from(sectors) * 512).next_power_of_two(),
            };
            let kind = kinds.entry((op, up_to_bytes, request.submitter));
            let kind = kind.or_insert_with(|| RequestKind {
                op,
                up_to_bytes,
                process: job_of(request.submitter),
                ..RequestKind::default()
            });
            let inserted_ns = request.inserted_ns.unwrap_or(request.issued_ns);
            let record = |to: &mut Histogram, from_ns: u64, until_ns: u64| {
                to.record(until_ns.saturating_sub(from_ns));
            };
            record(&mut kind.queued_ns, inserted_ns, request.issued_ns);
            record(&mut kind.drive_ns, request.issued_ns, request.completed_ns);
            record(&mut kind.whole_ns, inserted_ns, request.completed_ns);
            stats.depth_at_issue.record(request.depth, 1);
        }
        stats.kinds = kinds.into_values().collect();
        stats
    }
}

impl Timeline {
    /// Returns the requests that were recorded from start to end.
    pub fn traced_requests(&self) -> TracedRequests {
        let disks = self.disks.iter().enumerate();
        let cpus = CpuRecord::new(self);
        let of_disk = |(at, disk)| {
            let mut requests = of_disk(at, disk, &cpus);
            add_programs(&mut requests, at as u32, (&self.ios, &cpus));
            requests
        };
        TracedRequests {
            of: disks.flat_map(of_disk).collect(),
            cut: self.cut,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_by_operation_size_and_process() {
        let request = |op, sectors, submitter, inserted_ns| TracedRequest {
            disk: 0,
            request: 0,
            op,
            sector: 0,
            sectors,
            cpu: 0,
            submitter,
            submitted_ns: 0,
            inserted_ns,
            dispatched_ns: None,
            issued_ns: 300,
            completed_ns: 1000,
            depth: 2,
            io_start_ns: 0,
            io_end_ns: 1000,
            stages_ns: StageTimes::default(),
        };
        let traced = TracedRequests {
            of: vec![
                request('W', 9, 1, Some(100)),
                request('W', 16, 1, None),
                request('R', 16, 1, None),
                request('F', 0, 2, None),
            ],
            cut: false,
        };
        let stats = traced.times(|submitter| format!("job{submitter}"));
        let kinds = stats.kinds.iter();
        let kinds: Vec<_> = kinds
            .map(|kind| (kind.op, kind.up_to_bytes, kind.process.as_str()))
            .collect();
        assert_eq!(
            kinds,
            [(0, 8192, "job1"), (1, 8192, "job1"), (3, 0, "job2")]
        );
        let writes = &stats.kinds[1];
        assert_eq!(writes.drive_ns.summary().max_ns, 700);
        assert_eq!(writes.queued_ns.summary().max_ns, 200);
        assert_eq!(writes.whole_ns.summary().max_ns, 900);
        assert_eq!(stats.depth_at_issue.counts.iter().sum::<u64>(), 4);
    }
}
