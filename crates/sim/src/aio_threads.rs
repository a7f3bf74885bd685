//! glibc's asynchronous I/O (`aio_read(3)`): threads in user space that call
//! `pread` and `pwrite`.
//!
//! A file descriptor has one thread at a time, so its requests are done one
//! after the other (`__aio_enqueue_request` in glibc's `aio_misc.c`), however
//! many are enqueued: depth is had from several files only. At most 20 threads
//! run (`aio_threads`), files beyond that wait. fio gives all requests the same
//! priority, so they keep their order.

use std::collections::VecDeque;

/// glibc's `aio_threads`, where `aio_init(3)` is not called; fio does not.
const THREADS: usize = 20;

/// Requests of a process by file, as slots.
#[derive(Debug, Default)]
pub(crate) struct AioThreads {
    files: Vec<VecDeque<u32>>,
    /// Files whose first request is with a thread.
    running: usize,
    /// Files that wait for a thread.
    runlist: VecDeque<usize>,
}

impl AioThreads {
    pub(crate) fn new(files: usize) -> AioThreads {
        AioThreads {
            files: vec![VecDeque::new(); files],
            ..AioThreads::default()
        }
    }

    /// Enqueues a request. Returns whether a thread begins with it.
    pub(crate) fn enqueue(&mut self, file: usize, slot: u32) -> bool {
        self.files[file].push_back(slot);
        if self.files[file].len() > 1 {
            return false;
        }
        let begins = self.running < THREADS;
        match begins {
            true => self.running += 1,
            false => self.runlist.push_back(file),
        }
        begins
    }

    /// A file's first request is done. Returns the one that its thread begins
    /// with now: the file's next, unless other files wait for a thread.
    pub(crate) fn done(&mut self, file: usize) -> Option<u32> {
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
        let mut aio = AioThreads::new(THREADS + 1);
        for file in 0..THREADS {
            assert!(aio.enqueue(file, file as u32));
        }
        assert!(!aio.enqueue(THREADS, 99));
        assert!(!aio.enqueue(3, 100));
        assert_eq!(aio.done(3), Some(99), "who waited longest");
        assert_eq!(aio.done(THREADS), Some(100));
    }
}
