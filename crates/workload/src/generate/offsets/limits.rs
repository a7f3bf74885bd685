//! The limits of a process's I/O: `size`, `io_size`, `number_ios`, `loops` and `time_based`, by
//! fio's rules.

use crate::fio::{Direction, JobSpec, Pattern};
use crate::generate::layout::Layout;

/// Counts the I/O that a process issues against its limits.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    time_based: bool,
    /// Whether time alone ends a pass.
    ends_by_time: bool,
    /// Whether what is read to verify counts against the size of a pass (`bytes_issued` in
    /// `do_io`), which fio leaves out for synchronous engines.
    counts_verified: bool,
    /// Whether a first pass is the last (`bytes_done` in `thread_main`): what a job reads to
    /// compare it with what another wrote does not count as done.
    has_one_pass: bool,
    /// The size of a pass, in bytes, if it ends before its files are done.
    pass_bytes: u64,
    /// The size of the job in bytes, over the directions that count.
    job_bytes: u64,
    /// The number of I/Os of the job.
    job_ios: u64,
    /// The total in bytes below which fio starts another pass.
    wanted_bytes: u64,
    /// Whether `io_size` was given.
    beyond_files: bool,
    largest_block: u64,
    trims_count: bool,
    reads_count: bool,
    loops_left: u32,
    issued_in_pass: u64,
    issued_that_count: u64,
    issued: u64,
    ios: u64,
    passes: u64,
}

impl Limits {
    pub fn new(spec: &JobSpec, layout: &Layout) -> Limits {
        let size = layout.pass_bytes;
        let wanted = layout.io_bytes.unwrap_or(size);
        let all = wanted.saturating_mul(u64::from(spec.loops));
        let twice = matches!(spec.pattern, Pattern::TrimWrite | Pattern::RandTrimWrite);
        let writes_at_random =
            spec.pattern.is_random() && spec.pattern.does(Direction::Write) && spec.no_random_map;
        let pass_bytes = match layout.io_bytes {
            Some(bytes) if writes_at_random => size.max(bytes),
            _ => size,
        };
        let ios = match spec.number_ios {
            0 => u64::MAX,
            n => n.saturating_mul(u64::from(spec.loops)),
        };
        let does = |direction| spec.pattern.does(direction);
        let (verifies, is_queued) = (spec.verify.is_on(), !spec.engine.is_synchronous());
        let has_backlog = verifies && spec.verify.backlog > 0 && does(Direction::Write);
        // Each byte is trimmed and then written, or written and then verified.
        let trimmed = if twice { all } else { 0 };
        let both = trimmed.saturating_add(if has_backlog { size } else { 0 });
        Limits {
            time_based: spec.time_based,
            ends_by_time: spec.time_based && !(verifies && is_queued),
            counts_verified: is_queued,
            has_one_pass: verifies && !does(Direction::Write) && does(Direction::Read),
            // fio counts what a synchronous engine does only for the whole job (`io_queue_event`), so
            // that such a pass ends where its files are done.
            pass_bytes: match is_queued {
                true => pass_bytes.saturating_add(both),
                false => u64::MAX,
            },
            job_bytes: all,
            job_ios: if twice { ios.saturating_mul(2) } else { ios },
            wanted_bytes: wanted,
            beyond_files: layout.io_bytes.is_some(),
            largest_block: Direction::ALL
                .into_iter()
                .filter(|direction| does(*direction))
                .map(|direction| spec.block_sizes[direction].max_bytes)
                .max()
                .unwrap_or(0),
            trims_count: !does(Direction::Write),
            reads_count: does(Direction::Read),
            loops_left: spec.loops,
            issued_in_pass: 0,
            issued_that_count: 0,
            issued: 0,
            ios: 0,
            passes: 0,
        }
    }

    /// Whether this pass may issue another I/O.
    #[inline]
    pub fn may_issue(&self) -> bool {
        if self.time_based {
            return self.ends_by_time || self.issued_in_pass < self.pass_bytes;
        }
        self.issued_in_pass < self.pass_bytes
            && self.issued_that_count < self.job_bytes
            && self.ios < self.job_ios
    }

    /// A block was read to verify it, between writes or after them.
    pub fn verified(&mut self, bytes: u64, between: bool) {
        self.issued += bytes;
        self.ios += 1;
        if between && self.counts_verified {
            self.issued_in_pass += bytes;
        }
    }

    #[inline]
    pub fn issued(&mut self, direction: Direction, bytes: u64) {
        let counts = match direction {
            Direction::Read => self.reads_count,
            Direction::Write => true,
            Direction::Trim => self.trims_count,
        };
        self.issued += bytes;
        self.issued_in_pass += bytes;
        self.issued_that_count += if counts { bytes } else { 0 };
        self.ios += 1;
    }

    /// Starts another pass. Returns `false` if there is none; a pass that issued nothing is the
    /// last.
    pub fn start_pass(&mut self, files_done: bool) -> bool {
        let is_over = self.passes > 0 && (self.issued_in_pass == 0 || self.has_one_pass);
        if is_over || !self.another(files_done) {
            return false;
        }
        self.passes += 1;
        self.issued_in_pass = 0;
        true
    }

    fn another(&mut self, files_done: bool) -> bool {
        if self.time_based {
            return true;
        }
        if self.loops_left > 0 {
            self.loops_left -= 1;
            return true;
        }
        if self.ios >= self.job_ios || self.issued >= self.wanted_bytes {
            return false;
        }
        self.wanted_bytes - self.issued >= self.largest_block && (!files_done || self.beyond_files)
    }

    pub fn is_first_pass(&self) -> bool {
        self.passes <= 1
    }
}
