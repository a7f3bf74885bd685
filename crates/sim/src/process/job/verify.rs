//! `verify=`: what a process writes is stamped, and what it reads again is compared
//! (`do_verify` in fio's `backend.c`, `verify.c`).

use blklab_blk::{IoStatus, Nanos};
use blklab_workload::calls::Errno;
use blklab_workload::fio::{Direction, JobSpec, VerifyKind};
use blklab_workload::generate::{Io, VerifyLog, Written};

use super::JobProcess;
use crate::contents::{Expected, Mismatch, Stamp};
use crate::system::System;
use crate::timers::user_data;

/// The CPU time to fill a KiB with random numbers; measured as those of
/// [`Checksum`](blklab_workload::fio::Checksum), and assumed for other processors.
const FILL_NS_PER_KIB: u64 = 200;
/// The CPU time to compare a KiB with a pattern (assumed: 40 GB/s from the cache).
const COMPARE_NS_PER_KIB: u64 = 25;

/// What an I/O is to a job that verifies.
#[derive(Clone, Debug, Default)]
pub(super) enum Role {
    /// Nothing.
    #[default]
    Plain,
    /// A write with a stamp.
    Stamped(Written),
    /// A read of what the job wrote.
    Again(Written),
    /// A read of what another job wrote.
    OfOther,
    /// A read that differs from what was written.
    Differs(Mismatch),
}

impl Role {
    /// The write that the I/O makes or reads again.
    fn written(&self) -> Option<Written> {
        match self {
            Role::Stamped(written) | Role::Again(written) => Some(*written),
            _ => None,
        }
    }
}

/// How far a process is with writing and verifying.
pub(crate) struct Verification {
    pub(super) log: VerifyLog,
    /// It writes no more in this pass, and reads again what is left.
    reads_rest: bool,
    /// What is read again as soon as its file is open.
    pub(super) due: Option<Io>,
    /// The role of the I/O that was decided on last.
    next: Role,
    /// By slot.
    roles: Vec<Role>,
    /// What fio checks of a header beside where it is.
    checks_number: bool,
    checks_draw: bool,
    /// Reads of the job itself are compared.
    compares_reads: bool,
    only: bool,
    reads_again: bool,
}

impl Verification {
    pub(crate) fn new(spec: &JobSpec) -> Option<Verification> {
        let log = VerifyLog::new(spec)?;
        let does = |direction| spec.pattern.does(direction);
        let (reads, writes) = (does(Direction::Read), does(Direction::Write));
        let sizes = Direction::ALL.map(|d| &spec.block_sizes[d]);
        let largest = sizes.iter().map(|sizes| sizes.max_bytes).max();
        let smallest = sizes.iter().map(|sizes| sizes.min_bytes).min();
        let verify = &spec.verify;
        Some(Verification {
            log,
            reads_rest: false,
            due: None,
            next: Role::Plain,
            roles: Vec::new(),
            checks_number: writes && largest == smallest && !spec.time_based && !verify.only,
            checks_draw: reads && writes && verify.backlog == 0 && verify.pattern.is_none(),
            compares_reads: reads && !writes,
            only: verify.only && writes,
            reads_again: !verify.writes_alone,
        })
    }

    /// A pass begins.
    pub(super) fn start_pass(&mut self) {
        self.reads_rest = false;
        self.log.start_pass();
    }

    /// Whether the process only reads what is left.
    pub(super) fn reads_rest(&self) -> bool {
        self.reads_rest
    }

    /// Whether it writes nothing and reads what another job wrote in its place.
    pub(super) fn only(&self) -> bool {
        self.only
    }

    /// A write is to be read again.
    pub(super) fn again(&mut self, written: Written) -> Io {
        self.next = Role::Again(written);
        Io {
            direction: Direction::Read,
            ..written.io
        }
    }

    /// One of the job's own I/Os was decided on.
    pub(super) fn decided(&mut self, io: Io) {
        self.next = match io.direction {
            Direction::Write => Role::Stamped(self.log.issued(io, true)),
            Direction::Read if self.compares_reads => Role::OfOther,
            _ => Role::Plain,
        };
    }

    fn role(&self, slot: u32) -> &Role {
        self.roles.get(slot as usize).unwrap_or(&Role::Plain)
    }
}

impl JobProcess {
    /// The I/O in a slot has the role that was decided on.
    #[cold]
    pub(super) fn set_role(&mut self, slot: u32) {
        let Some(verification) = self.plan.verification_mut() else {
            return;
        };
        let slot = slot as usize;
        if verification.roles.len() <= slot {
            verification.roles.resize_with(slot + 1, Role::default);
        }
        verification.roles[slot] = std::mem::take(&mut verification.next);
    }

    /// The CPU time to fill a write's buffer and to take its checksum.
    #[cold]
    pub(super) fn stamp_cost(&self, slot: u32) -> Nanos {
        let role = self.plan.verification().map(|v| v.role(slot));
        match role {
            Some(Role::Stamped(_)) => self.checksum_cost(slot, false),
            _ => Nanos::ZERO,
        }
    }

    fn checksum_cost(&self, slot: u32, compares: bool) -> Nanos {
        let verify = &self.spec.verify;
        let checksum = match verify.kind {
            VerifyKind::Checksum(checksum) => checksum.ns_per_kib,
            _ => 0,
        };
        // A buffer holds the pattern from one write to the next.
        let data = match (compares, verify.pattern.is_some(), verify.kind) {
            (_, _, VerifyKind::None | VerifyKind::Null) => 0,
            (false, false, _) => FILL_NS_PER_KIB,
            (true, true, VerifyKind::Meta | VerifyKind::Pattern) => COMPARE_NS_PER_KIB,
            _ => 0,
        };
        Nanos((checksum + data) * self.ios[slot as usize].bytes / 1024)
    }

    /// An I/O ended in the drive or the page cache, which has its blocks now.
    #[cold]
    pub(super) fn note_contents(&mut self, slot: u32, status: IoStatus, system: &mut System) {
        let io = self.ios[slot as usize];
        let faults = system.disks[io.disk].take_data_faults(user_data(self.id, slot));
        let Some(contents) = system
            .contents
            .as_deref_mut()
            .filter(|_| status == IoStatus::Ok)
        else {
            return;
        };
        let (space, start) = (self.plan.space_of(io.file), io.at_bytes);
        let offset_bytes = self.plan.offset_in_file(io.file, start);
        let verification = self.plan.verification_mut();
        let role = verification.as_ref().map(|v| v.role(slot).clone());
        match (io.dir, role.unwrap_or_default()) {
            (Direction::Write, role) => {
                let written = role.written();
                contents.wrote(
                    space,
                    Stamp {
                        writer: self.id,
                        start: start as i64,
                        offset_bytes,
                        length_bytes: io.bytes,
                        number: written.map(|written| written.number),
                        draw: written.map_or(0, |written| written.draw),
                    },
                    &faults,
                );
            }
            (Direction::Trim, _) => contents.clear(space, start..start + io.bytes),
            (Direction::Read, role @ (Role::Again(_) | Role::OfOther)) => {
                let written = role.written();
                let Some(v) = verification else { return };
                contents.rot(space, &faults);
                let found = contents.check(&Expected {
                    reader: self.id,
                    space,
                    start,
                    offset_bytes,
                    length_bytes: io.bytes,
                    number: written.filter(|_| v.checks_number).map(|w| w.number),
                    draw: written.filter(|_| v.checks_draw).map(|w| w.draw),
                    faults: &faults,
                });
                if let Some(mismatch) = found {
                    v.roles[slot as usize] = Role::Differs(mismatch);
                }
            }
            (Direction::Read, _) => contents.rot(space, &faults),
        }
    }

    /// A completion was taken: the list of writes goes on, and what was read is compared. Returns
    /// what comparing costs.
    #[cold]
    pub(super) fn verify_taken(&mut self, slot: u32, status: IoStatus) -> Nanos {
        let io = self.ios[slot as usize];
        let Some(verification) = self.plan.verification_mut() else {
            return Nanos::ZERO;
        };
        let role = match verification.roles.get_mut(slot as usize) {
            Some(role) => std::mem::take(role),
            None => Role::Plain,
        };
        match &role {
            Role::Stamped(written) => {
                let ok = status == IoStatus::Ok;
                verification.log.write_ended(written, ok);
            }
            _ => verification.log.other_ended(io.dir),
        }
        if status != IoStatus::Ok {
            return Nanos::ZERO;
        }
        match role {
            Role::Differs(mismatch) => self.differs(slot, &mismatch),
            Role::Again(_) | Role::OfOther => {}
            Role::Plain | Role::Stamped(_) => return Nanos::ZERO,
        }
        self.checksum_cost(slot, true)
    }

    /// What was read is not what was written (EILSEQ).
    fn differs(&mut self, slot: u32, mismatch: &Mismatch) {
        self.recorder.failed(Errno::EILSEQ.0);
        if self.mismatch.is_none() {
            let file = self.plan.file_name(self.ios[slot as usize].file);
            self.mismatch = Some(format!("{}: {file}: {mismatch}", self.spec.name));
        }
        if !self.spec.verify.goes_on {
            self.fail();
        } else if self.spec.verify.fatal {
            self.plan.stop();
        }
    }

    /// Begins to read what is left of the pass's writes; whether it does.
    pub(super) fn start_verify(&mut self, now: Nanos) -> bool {
        self.end_phase(now);
        let is_over = self.plan.is_over(now);
        let Some(v) = self.plan.verification_mut() else {
            return false;
        };
        if v.reads_rest || !v.reads_again || is_over || !self.has_begun {
            return false;
        }
        v.reads_rest = true;
        v.log.start_verify();
        self.closes_all = true;
        true
    }

    /// Its writes of a pass are over, or what it read of them again.
    fn end_phase(&mut self, now: Nanos) {
        let Some(v) = self.plan.verification() else {
            return;
        };
        let (reads_rest, pattern) = (v.reads_rest, self.spec.pattern);
        let does = |d| match reads_rest {
            true => d == Direction::Read,
            false => pattern.does(d),
        };
        self.recorder.phase_ended(now, Direction::ALL.map(does));
    }
}
