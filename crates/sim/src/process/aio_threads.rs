//! glibc's threads of POSIX AIO, of jobs and of lists of calls.

use std::collections::VecDeque;

/// The most threads that glibc runs (`aio_threads`) where a program, as fio, does not
/// call `aio_init(3)`.
const AIO_THREADS: usize = 20;

/// glibc's asynchronous I/O of a process (`aio_read(3)`): threads in user space that
/// call `pread` and `pwrite`.
///
/// A file descriptor has one thread at a time, which does its requests one after
/// the other (`__aio_enqueue_request` in glibc's `aio_misc.c`), so that depth is had
/// from several files only. Files beyond the number of threads wait. fio gives all
/// requests the same priority, so they keep their order.
#[derive(Debug, Default)]
pub(in crate::process) struct AioThreads {
    /// By file, the slots of its requests.
    files: Vec<VecDeque<u32>>,
    /// Files whose first request is with a thread.
    running: usize,
    /// Files that wait for a thread.
    runlist: VecDeque<usize>,
}

impl AioThreads {
    pub(in crate::process) fn new(files: usize) -> AioThreads {
        AioThreads {
            files: vec![VecDeque::new(); files],
            ..AioThreads::default()
        }
    }

    /// Enqueues a request. Returns whether a thread begins with it.
    pub(in crate::process) fn enqueue(&mut self, file: usize, slot: u32) -> bool {
        self.files[file].push_back(slot);
        if self.files[file].len() > 1 {
            return false;
        }
        let begins = self.running < AIO_THREADS;
        match begins {
            true => self.running += 1,
            false => self.runlist.push_back(file),
        }
        begins
    }

    /// Takes back the requests of a file, or one of them, that no thread has begun
    /// (`aio_cancel`).
    pub(in crate::process) fn cancel(&mut self, file: usize, only: Option<u32>) -> VecDeque<u32> {
        let queue = &mut self.files[file];
        let waiting = self.runlist.iter().position(|waiting| *waiting == file);
        let begun = match waiting {
            Some(_) => 0,
            None => queue.len().min(1),
        };
        let mut cancelled = queue.split_off(begun);
        if let Some(only) = only {
            let is_it = |slot: &u32| *slot == only;
            queue.extend(cancelled.iter().copied().filter(|slot| !is_it(slot)));
            cancelled.retain(is_it);
        }
        if let Some(place) = waiting.filter(|_| queue.is_empty()) {
            self.runlist.remove(place);
        }
        cancelled
    }

    /// A file's first request is done. Returns the one that its thread begins
    /// with now: the file's next, unless other files wait for a thread.
    pub(in crate::process) fn done(&mut self, file: usize) -> Option<u32> {
        self.files[file].pop_front();
        if !self.files[file].is_empty() {
            self.runlist.push_back(file);
        }
        let Some(next) = self.runlist.pop_front() else {
            self.running -= 1;
            return None;
        };
        self.files[next].front().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_no_thread_has_begun_is_taken_back_alone() {
        let mut aio = AioThreads::new(1);
        assert!(aio.enqueue(0, 10));
        assert!(!aio.enqueue(0, 11) && !aio.enqueue(0, 12) && !aio.enqueue(0, 13));
        assert!(aio.cancel(0, Some(10)).is_empty(), "a thread is at it");
        assert_eq!(aio.cancel(0, Some(12)), [12]);
        assert!(aio.cancel(0, Some(12)).is_empty());
        assert_eq!(aio.done(0), Some(11));
        assert_eq!(aio.cancel(0, None), [13]);
        assert_eq!(aio.done(0), None);
    }

    #[test]
    fn a_file_has_one_thread() {
        let mut aio = AioThreads::new(2);
        assert!(aio.enqueue(0, 10));
        assert!(!aio.enqueue(0, 11), "behind the first");
        assert!(aio.enqueue(1, 20), "another file");
        assert_eq!(aio.done(0), Some(11));
        assert_eq!(aio.done(0), None);
        assert_eq!(aio.done(1), None);
        assert!(aio.enqueue(0, 12));
    }

    #[test]
    fn no_more_than_twenty_files_have_one_at_once() {
        let mut aio = AioThreads::new(AIO_THREADS + 1);
        for file in 0..AIO_THREADS {
            assert!(aio.enqueue(file, file as u32));
        }
        assert!(!aio.enqueue(AIO_THREADS, 99));
        assert!(!aio.enqueue(3, 100));
        assert_eq!(aio.done(3), Some(99), "who waited longest");
        assert_eq!(aio.done(AIO_THREADS), Some(100));
    }

    #[test]
    fn what_no_thread_has_begun_is_taken_back() {
        let mut aio = AioThreads::new(AIO_THREADS + 1);
        for file in 0..=AIO_THREADS {
            aio.enqueue(file, file as u32);
        }
        aio.enqueue(0, 100);
        assert_eq!(aio.cancel(0, None), [100]);
        assert!(aio.cancel(0, None).is_empty());
        assert_eq!(aio.cancel(AIO_THREADS, None), [AIO_THREADS as u32]);
        assert_eq!(aio.done(0), None, "nobody waits");
        assert!(aio.enqueue(AIO_THREADS, 101));
    }
}
