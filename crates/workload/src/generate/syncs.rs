//! When a job flushes: `fsync` and `fdatasync`.

use crate::fio::{Direction, JobSpec};

/// How to flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncKind {
    /// `fsync(2)`.
    Fsync,
    /// `fdatasync(2)`.
    Fdatasync,
    /// `sync_file_range(2)`, which direct I/O leaves nothing to do.
    FileRange,
}

/// Counts writes, and says when the next thing to issue is a flush.
#[derive(Clone, Debug)]
pub struct SyncSchedule {
    fsync_every: u64,
    fdatasync_every: u64,
    file_range_every: u64,
    writes: u64,
    just_synced: bool,
}

impl SyncSchedule {
    /// `None` where the job never flushes.
    pub fn new(spec: &JobSpec) -> Option<SyncSchedule> {
        let schedule = SyncSchedule {
            fsync_every: u64::from(spec.fsync_every),
            fdatasync_every: u64::from(spec.fdatasync_every),
            file_range_every: match spec.direct {
                true => 0,
                false => u64::from(spec.sync_file_range.every),
            },
            writes: 0,
            just_synced: false,
        };
        let flushes = schedule.fsync_every > 0
            || schedule.fdatasync_every > 0
            || schedule.file_range_every > 0;
        (flushes && spec.pattern.does(Direction::Write)).then_some(schedule)
    }

    /// Whether a flush comes before the next read or write.
    pub fn due(&self) -> Option<SyncKind> {
        let is_due = |every: u64| every > 0 && self.writes.is_multiple_of(every);
        if self.just_synced || self.writes == 0 {
            None
        } else if is_due(self.fsync_every) {
            Some(SyncKind::Fsync)
        } else if is_due(self.fdatasync_every) {
            Some(SyncKind::Fdatasync)
        } else if is_due(self.file_range_every) {
            Some(SyncKind::FileRange)
        } else {
            None
        }
    }

    /// A flush was issued.
    pub fn synced(&mut self) {
        self.just_synced = true;
    }

    /// A read, write or trim was issued.
    pub fn issued(&mut self, direction: Direction) {
        self.just_synced = false;
        self.writes += u64::from(direction == Direction::Write);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::parse_str;

    #[test]
    fn every_so_many_writes() {
        let text = "[a]\nrw=randrw\nfsync=2\nfdatasync=3\n[b]\nrw=read\nfsync=1\n";
        let file = parse_str("t", text, &|_| None, &|_, _| Err(String::new())).unwrap();
        assert!(SyncSchedule::new(&file.jobs[1]).is_none());
        let mut schedule = SyncSchedule::new(&file.jobs[0]).unwrap();
        let mut seen = Vec::new();
        for _ in 0..6 {
            schedule.issued(Direction::Write);
            seen.push(schedule.due());
            if schedule.due().is_some() {
                schedule.synced();
                assert_eq!(schedule.due(), None);
            }
        }
        use SyncKind::*;
        assert_eq!(
            seen,
            [
                None,
                Some(Fsync),
                Some(Fdatasync),
                Some(Fsync),
                None,
                Some(Fsync)
            ]
        );
        // fio looks at the number of writes, not at whether it changed.
        schedule.issued(Direction::Read);
        assert_eq!(schedule.due(), Some(Fsync));
    }
}
