//! Schedules the flushes of a job: `fsync` and `fdatasync`.

use crate::fio::{Direction, JobSpec, SyncKind};

/// Counts writes and tells when a flush is due.
#[derive(Clone, Debug)]
pub struct SyncSchedule {
    fsync_every: u64,
    fdatasync_every: u64,
    file_range_every: u64,
    writes: u64,
    just_synced: bool,
}

impl SyncSchedule {
    /// Makes the schedule; returns `None` if the job never flushes.
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

    /// Returns the flush that is due before the next read or write.
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

    /// Records a flush.
    pub fn synced(&mut self) {
        self.just_synced = true;
    }

    /// Records an issued read, write or trim.
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
        // fio uses the number of writes, even if it has not changed.
        schedule.issued(Direction::Read);
        assert_eq!(schedule.due(), Some(Fsync));
    }
}
