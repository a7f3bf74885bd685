//! What debugfs shows of a queue (`block/blk-mq-debugfs.c`, `lib/sbitmap.c`).

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::bio::{BioFlags, Op, ZoneAction};
use crate::hctx::{DISPATCH_BUCKETS, Hctx, HctxStats};
use crate::limits::NoMerges;
use crate::list::RqList;
use crate::queue::RequestQueue;
use crate::request::{Request, RequestId, Requests, RqFlags};
use crate::tags::hex_dump;

/// Modifiers of an operation, in the order of the kernel's bits (`cmd_flag_name`).
const COMMAND_FLAGS: [(BioFlags, &str); 9] = [
    (BioFlags::SYNC, "SYNC"),
    (BioFlags::META, "META"),
    (BioFlags::NOMERGE, "NOMERGE"),
    (BioFlags::IDLE, "IDLE"),
    (BioFlags::FUA, "FUA"),
    (BioFlags::PREFLUSH, "PREFLUSH"),
    (BioFlags::RAHEAD, "RAHEAD"),
    (BioFlags::BACKGROUND, "BACKGROUND"),
    (BioFlags::NOWAIT, "NOWAIT"),
];

/// Flags of a request, likewise (`rqf_name`).
const REQUEST_FLAGS: [(RqFlags, &str); 7] = [
    (RqFlags::STARTED, "STARTED"),
    (RqFlags::FLUSH_SEQ, "FLUSH_SEQ"),
    (RqFlags::DONTPREP, "DONTPREP"),
    (RqFlags::SCHED_TAGS, "SCHED_TAGS"),
    (RqFlags::USE_SCHED, "USE_SCHED"),
    (RqFlags::HASHED, "HASHED"),
    (RqFlags::ZONE_WRITE, "ZONE_WRITE_PLUGGING"),
];

impl RequestQueue {
    /// The files of `/sys/kernel/debug/block/DISK` by their paths, without the newline that ends
    /// each. `is_blocking` says that the driver sleeps in `queue_rq` (`BLK_MQ_F_BLOCKING`).
    ///
    /// `run` and `dispatched` are those of Linux 5.13 and before; 6.12 has them no more.
    pub fn debug_files(&self, is_blocking: bool) -> Vec<(String, String)> {
        let mut files: Vec<(String, String)> = [
            ("pm_only", "0".to_string()),
            ("poll_stat", String::new()),
            ("requeue_list", self.requests_in(&self.requeue_list)),
            ("state", self.state_flags()),
        ]
        .map(|(name, value)| (name.to_string(), value))
        .into();
        if let Some(wbt) = self.wbt() {
            let of_wbt = wbt.debug_files().into_iter();
            files.extend(of_wbt.map(|(name, value)| (format!("rqos/wbt/{name}"), value)));
        }
        files.extend(self.sched_files(None));
        for (number, hctx) in self.hctxs.iter().enumerate() {
            let of_hctx = self.hctx_files(number, hctx, is_blocking).into_iter();
            let of_hctx = of_hctx.chain(self.sched_files(Some(number)));
            files.extend(of_hctx.map(|(name, value)| (format!("hctx{number}/{name}"), value)));
        }
        files
    }

    /// The scheduler's own folder.
    fn sched_files(&self, hctx: Option<usize>) -> impl Iterator<Item = (String, String)> {
        let elevator = self.elevator.as_deref().into_iter();
        let files = elevator.flat_map(move |elevator| elevator.debug_files(&self.rqs, hctx));
        files.map(|(name, value)| (format!("sched/{name}"), value))
    }

    /// `blk_queue_flag_name`.
    fn state_flags(&self) -> String {
        let nomerges = self.limits().nomerges;
        let is_single = { self.elevator.as_deref() }.is_some_and(|e| e.is_single_queue());
        names([
            (nomerges == NoMerges::Never, "NOMERGES"),
            (true, "SAME_COMP"),
            (nomerges == NoMerges::OneHit, "NOXMERGES"),
            (true, "INIT_DONE"),
            (self.wbt().is_some(), "STATS"),
            (true, "REGISTERED"),
            (is_single, "SQ_SCHED"),
        ])
    }

    fn hctx_files(&self, number: usize, hctx: &Hctx, is_blocking: bool) -> Vec<(String, String)> {
        let waiters = self.waiting[number].len();
        let sched_tags = hctx.sched_tags.as_ref();
        // A submitter waits for what it takes first.
        let (of_sched, of_driver) = match sched_tags {
            Some(_) => (waiters, 0),
            None => (0, waiters),
        };
        let allocation = match hctx.tags.is_round_robin() {
            true => "RR",
            false => "FIFO",
        };
        let flags = names([(true, "SHOULD_MERGE"), (is_blocking, "BLOCKING")]);
        let state = names([(hctx.stopped, "STOPPED"), (hctx.restart, "SCHED_RESTART")]);
        let tags = |tags: &crate::Tags, waiters| {
            let of_bitmap = tags.debug_text(waiters);
            format!(
                "nr_tags={}\nnr_reserved_tags=0\nactive_queues=0\n\nbitmap_tags:\n{of_bitmap}",
                tags.depth()
            )
        };
        let mut files: Vec<(String, String)> = [
            // Only queues that share their tags are counted.
            ("active", "0".to_string()),
            ("busy", self.busy(number)),
            ("ctx_map", hex_dump(&hctx.ctx_map, hctx.ctxs.len())),
            ("dispatch", self.requests_in(&hctx.dispatch)),
            ("dispatch_busy", hctx.dispatch_busy.to_string()),
            ("dispatched", dispatched(&hctx.stats)),
            ("flags", format!("alloc_policy={allocation} {flags}")),
            ("run", hctx.stats.run.to_string()),
            (
                "sched_tags",
                sched_tags.map_or_else(String::new, |of| tags(of, of_sched)),
            ),
            (
                "sched_tags_bitmap",
                sched_tags.map_or_else(String::new, |of| of.debug_bitmap()),
            ),
            ("state", state),
            ("tags", tags(&hctx.tags, of_driver)),
            ("tags_bitmap", hctx.tags.debug_bitmap()),
            ("type", "default".to_string()),
        ]
        .map(|(name, value)| (name.to_string(), value))
        .into();
        for &cpu in &hctx.ctxs {
            let queued = self.requests_in(&self.ctxs[usize::from(cpu)]);
            // All requests are of the default type: there are no queues for reads or polling.
            for (kind, value) in [
                ("default", queued),
                ("poll", String::new()),
                ("read", String::new()),
            ] {
                files.push((format!("cpu{cpu}/{kind}_rq_list"), value));
            }
        }
        files
    }

    /// Requests of a hardware context that the driver has (`hctx_busy_show`).
    fn busy(&self, hctx: usize) -> String {
        let all = self.rqs.in_driver().into_iter();
        let own = all.filter(|&id| usize::from(self.rqs[id].hctx) == hctx);
        lines(own.map(|id| debug_request(&self.rqs[id])))
    }

    fn requests_in(&self, list: &RqList) -> String {
        debug_requests(&self.rqs, list)
    }
}

/// The requests of a list, a line each.
pub fn debug_requests(rqs: &Requests, list: &RqList) -> String {
    let ids = core::iter::successors(list.front(), |&id: &RequestId| list.next(rqs, id));
    lines(ids.map(|id| debug_request(&rqs[id])))
}

/// A request (`__blk_mq_debugfs_rq_show`), with its serial number in place of its address.
pub fn debug_request(rq: &Request) -> String {
    let op = match rq.op {
        _ if rq.is_passthrough() => "DRV_IN",
        Op::Read => "READ",
        Op::Write => "WRITE",
        Op::Flush => "FLUSH",
        Op::Discard => "DISCARD",
        Op::WriteZeroes => "WRITE_ZEROES",
        Op::Zone(ZoneAction::Reset) => "ZONE_RESET",
        Op::Zone(ZoneAction::Open) => "ZONE_OPEN",
        Op::Zone(ZoneAction::Close) => "ZONE_CLOSE",
        Op::Zone(ZoneAction::Finish) => "ZONE_FINISH",
    };
    let state = match rq.rq_flags.has(RqFlags::IN_FLIGHT) {
        true => "in_flight",
        false => "idle",
    };
    let tag = |tag: Option<crate::Tag>| tag.map_or(-1, |tag| tag.index() as i64);
    format!(
        "{:016x} {{.op={op}, .cmd_flags={}, .rq_flags={}, .state={state}, .tag={}, .internal_tag={}}}",
        rq.serial,
        names(COMMAND_FLAGS.map(|(flag, name)| (rq.flags.has(flag), name))),
        names(REQUEST_FLAGS.map(|(flag, name)| (rq.rq_flags.has(flag), name))),
        tag(rq.tag),
        tag(rq.internal_tag),
    )
}

/// How many requests each run gave to the driver (`hctx_dispatched_show`).
fn dispatched(stats: &HctxStats) -> String {
    let all = stats.dispatched.iter().enumerate();
    lines(all.map(|(bucket, runs)| {
        let (from, plus) = match bucket {
            0 => (0, ""),
            n if n == DISPATCH_BUCKETS - 1 => (1_u32 << (n - 1), "+"),
            n => (1 << (n - 1), ""),
        };
        format!("{from:8}{plus}\t{runs}")
    }))
}

/// The names of what is so, as the kernel joins flags.
fn names<const N: usize>(flags: [(bool, &str); N]) -> String {
    let set = flags.into_iter().filter(|(is_set, _)| *is_set);
    let set: Vec<&str> = set.map(|(_, name)| name).collect();
    set.join("|")
}

fn lines(lines: impl Iterator<Item = String>) -> String {
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bio, BioFlags, BlkDriver, BlkStatus, Nanos, QueueConfig, QueueLimits, Sector};

    /// Keeps what it is given.
    struct Keeps;

    impl BlkDriver for Keeps {
        fn queue_rq(
            &mut self,
            _: Nanos,
            _: usize,
            _: RequestId,
            _: &Request,
            _: bool,
        ) -> BlkStatus {
            BlkStatus::Ok
        }
    }

    fn queue() -> RequestQueue {
        RequestQueue::new(&QueueConfig {
            nr_cpus: 2,
            nr_hw_queues: 1,
            queue_depth: 64,
            round_robin_tags: false,
            seed: 1,
            limits: QueueLimits::default(),
        })
    }

    fn file<'a>(files: &'a [(String, String)], name: &str) -> &'a str {
        let found = files.iter().find(|(known, _)| known == name);
        found.map_or_else(|| panic!("no {name} in {files:?}"), |(_, value)| value)
    }

    /// Values are those of an SD card's queue in Linux 6.12 under none.
    #[test]
    fn an_idle_queue_looks_as_the_kernels() {
        let mut queue = queue();
        queue.set_wbt_latency(Nanos::ZERO, 2000);
        let files = queue.debug_files(true);
        for (name, value) in [
            ("state", "SAME_COMP|INIT_DONE|STATS|REGISTERED"),
            ("hctx0/flags", "alloc_policy=FIFO SHOULD_MERGE|BLOCKING"),
            ("hctx0/ctx_map", "00000000: 00"),
            ("hctx0/tags_bitmap", "00000000: 0000 0000 0000 0000"),
            ("hctx0/sched_tags", ""),
            ("hctx0/state", ""),
            ("rqos/wbt/wb_normal", "8"),
            ("rqos/wbt/wb_background", "4"),
            ("rqos/wbt/min_lat_nsec", "2000000"),
        ] {
            assert_eq!(file(&files, name), value, "{name}");
        }
        let tags = file(&files, "hctx0/tags");
        for line in [
            "nr_tags=64",
            "busy=0",
            "bits_per_word=16",
            "map_nr=4",
            "wake_batch=8",
            "min_shallow_depth=4294967295",
        ] {
            assert!(tags.lines().any(|of| of == line), "no {line}: {tags}");
        }
    }

    #[test]
    fn a_request_that_the_driver_has_is_shown_with_its_tag() {
        let mut queue = queue();
        // Of words of 16 tags the second.
        queue.start_tags_at(0, 16);
        let bio = Bio {
            flags: BioFlags::SYNC,
            ..Bio::new(Op::Read, Sector(8), 8)
        };
        let _ = queue.submit_bio(Nanos::ZERO, 0, None, bio, &mut Keeps);
        let files = queue.debug_files(false);
        assert_eq!(
            file(&files, "hctx0/busy"),
            "0000000000000000 {.op=READ, .cmd_flags=SYNC, .rq_flags=, .state=in_flight, .tag=16, \
             .internal_tag=-1}"
        );
        assert_eq!(
            file(&files, "hctx0/tags_bitmap"),
            "00000000: 0000 0100 0000 0000"
        );
        // It was issued directly, not by a run.
        assert_eq!(file(&files, "hctx0/run"), "0");
    }

    #[test]
    fn runs_are_counted_by_how_much_they_dispatched() {
        let stats = HctxStats {
            run: 11,
            dispatched: [1, 2, 0, 3, 0, 0, 5],
        };
        let expected = [
            "       0\t1",
            "       1\t2",
            "       2\t0",
            "       4\t3",
            "       8\t0",
            "      16\t0",
            "      32+\t5",
        ];
        assert_eq!(dispatched(&stats), expected.join("\n"));
    }
}
