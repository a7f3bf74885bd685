//! Threads that carry out work which may sleep.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use blklab_blk::IoStatus;
use rustix::event::{EventfdFlags, eventfd};

use super::{Done, Work};

/// What the threads and their owner share.
struct Shared {
    todo: Mutex<Todo>,
    wake_worker: Condvar,
    done: Mutex<Vec<Done>>,
    /// Readable while something is done that nobody has taken.
    wake_owner: OwnedFd,
}

#[derive(Default)]
struct Todo {
    work: VecDeque<Work>,
    ending: bool,
}

/// Nobody panics while holding these locks, and the data stays whole if so.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The threads.
pub(crate) struct Threads {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts a thread for each of `workers`, which do the work.
    pub(crate) fn start<F>(
        name: &str,
        workers: impl IntoIterator<Item = F>,
    ) -> std::io::Result<Threads>
    where
        F: FnMut(&mut Work) -> IoStatus + Send + 'static,
    {
        let shared = Arc::new(Shared {
            todo: Mutex::default(),
            wake_worker: Condvar::new(),
            done: Mutex::default(),
            wake_owner: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
        });
        let mut threads = Vec::new();
        for (number, perform) in workers.into_iter().enumerate() {
            let shared = Arc::clone(&shared);
            let builder = std::thread::Builder::new().name(format!("{name}-io{number}"));
            threads.push(builder.spawn(move || shared.serve(perform))?);
        }
        Ok(Threads { shared, threads })
    }

    /// Hands work over.
    pub(crate) fn submit(&self, work: Work) {
        lock(&self.shared.todo).work.push_back(work);
        self.shared.wake_worker.notify_one();
    }

    /// What is readable when [`Threads::take_done`] has something.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.shared.wake_owner.as_fd()
    }

    /// Appends what is done.
    pub(crate) fn take_done(&self, out: &mut Vec<Done>) {
        // Read before the list is taken: what comes later makes it readable again.
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.shared.wake_owner, &mut count);
        out.append(&mut lock(&self.shared.done));
    }

    /// Lets them finish what they have, and ends them.
    pub(crate) fn end(&mut self) {
        lock(&self.shared.todo).ending = true;
        self.shared.wake_worker.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn serve(&self, mut perform: impl FnMut(&mut Work) -> IoStatus) {
        while let Some(mut work) = self.next() {
            let status = perform(&mut work);
            let mut done = lock(&self.done);
            done.push(Done { work, status });
            // The owner takes all at once, so the first one wakes it.
            let first = done.len() == 1;
            drop(done);
            if first {
                let _ = rustix::io::write(&self.wake_owner, &1u64.to_ne_bytes());
            }
        }
    }

    fn next(&self) -> Option<Work> {
        let mut todo = lock(&self.todo);
        loop {
            if let Some(work) = todo.work.pop_front() {
                return Some(work);
            }
            if todo.ending {
                return None;
            }
            todo = self
                .wake_worker
                .wait(todo)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}
