//! io_uring's workers, of jobs and of lists of calls (`io_uring/io-wq.c`).

use std::collections::VecDeque;

/// A request that waits for a worker: which, and the file that it must have alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
    request: u32,
    alone_on: Option<usize>,
}

/// The workers of a process, for calls that cannot be tried without waiting.
///
/// Writes of a regular file are done one at a time, in their order (`io_wq_hash_work`),
/// other requests as there are workers.
#[derive(Debug, Default)]
pub(in crate::process) struct IoWorkers {
    /// By file, whether a worker is at a write of it.
    are_written: Vec<bool>,
    running: usize,
    most: usize,
    waiting: VecDeque<Waiting>,
}

impl IoWorkers {
    /// Workers for rings of this many entries, on a machine of this many CPUs
    /// (`io_wq_create`).
    pub(in crate::process) fn new(files: usize, (entries, cpus): (usize, usize)) -> IoWorkers {
        IoWorkers {
            are_written: vec![false; files],
            most: entries.next_power_of_two().min(4 * cpus).max(1),
            ..IoWorkers::default()
        }
    }

    /// Queues a request, which if it says so must have a file alone. Returns whether a worker
    /// begins with it.
    pub(in crate::process) fn enqueue(&mut self, request: u32, alone_on: Option<usize>) -> bool {
        let waiting = Waiting { request, alone_on };
        let begins = self.running < self.most && self.can_begin(&waiting);
        match begins {
            true => self.begin(waiting),
            false => self.waiting.push_back(waiting),
        }
        begins
    }

    fn can_begin(&self, waiting: &Waiting) -> bool {
        !waiting.alone_on.is_some_and(|file| self.are_written[file])
    }

    fn begin(&mut self, waiting: Waiting) {
        self.running += 1;
        if let Some(file) = waiting.alone_on {
            self.are_written[file] = true;
        }
    }

    /// A worker is done with a request. Returns the one that it goes on with.
    pub(in crate::process) fn done(&mut self, alone_on: Option<usize>) -> Option<u32> {
        self.running -= 1;
        if let Some(file) = alone_on {
            self.are_written[file] = false;
        }
        let at = self.waiting.iter().position(|next| self.can_begin(next))?;
        let next = self.waiting.remove(at)?;
        self.begin(next);
        Some(next.request)
    }

    /// Takes a request back that no worker has begun. Returns whether it was such a one.
    pub(in crate::process) fn cancel(&mut self, request: u32) -> bool {
        let at = self.waiting.iter().position(|next| next.request == request);
        at.and_then(|at| self.waiting.remove(at)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_by_one_worker_at_a_time() {
        let mut workers = IoWorkers::new(2, (8, 8));
        assert!(workers.enqueue(10, Some(0)));
        assert!(!workers.enqueue(11, Some(0)), "behind the first");
        assert!(!workers.enqueue(12, Some(0)));
        assert!(workers.enqueue(20, Some(1)), "another file");
        assert!(workers.enqueue(13, None), "a read");
        assert!(workers.cancel(11) && !workers.cancel(10));
        assert_eq!(workers.done(None), None);
        assert_eq!(workers.done(Some(0)), Some(12));
        assert_eq!(workers.done(Some(0)), None);
        assert!(workers.enqueue(14, Some(0)));
    }

    #[test]
    fn there_are_as_many_workers_as_entries_or_four_times_the_cpus() {
        for (entries, cpus, most) in [(3, 8, 4), (64, 8, 32)] {
            let mut workers = IoWorkers::new(1, (entries, cpus));
            assert!((0..most).all(|request| workers.enqueue(request, None)));
            assert!(!workers.enqueue(most, None));
            assert_eq!(workers.done(None), Some(most));
        }
    }
}
