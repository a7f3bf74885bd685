//! Threads that carry out requests which may sleep.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use blklab_blk::IoStatus;
use rustix::event::{EventfdFlags, eventfd};

use super::{BackendRequest, Completed};

/// What the threads and their owner share.
struct Shared {
    queue: Mutex<Queue>,
    wake_worker: Condvar,
    completed: Mutex<Vec<Completed>>,
    /// Readable while `completed` holds something.
    wake_owner: OwnedFd,
}

#[derive(Default)]
struct Queue {
    requests: VecDeque<BackendRequest>,
    stopping: bool,
}

/// The data stays whole even where a thread panics with the lock held.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The threads.
pub(crate) struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts a thread for each of `workers`, which carry requests out.
    pub(crate) fn start<F>(
        name: &str,
        workers: impl IntoIterator<Item = F>,
    ) -> std::io::Result<Workers>
    where
        F: FnMut(&mut BackendRequest) -> IoStatus + Send + 'static,
    {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            wake_worker: Condvar::new(),
            completed: Mutex::default(),
            wake_owner: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
        });
        let mut threads = Vec::new();
        for (number, perform) in workers.into_iter().enumerate() {
            let shared = Arc::clone(&shared);
            let builder = std::thread::Builder::new().name(format!("{name}-io{number}"));
            threads.push(builder.spawn(move || shared.serve(perform))?);
        }
        Ok(Workers { shared, threads })
    }

    pub(crate) fn submit(&self, request: BackendRequest) {
        lock(&self.shared.queue).requests.push_back(request);
        self.shared.wake_worker.notify_one();
    }

    /// Readable when [`Workers::reap`] has something.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.shared.wake_owner.as_fd()
    }

    /// Appends what completed.
    pub(crate) fn reap(&self, completed: &mut Vec<Completed>) {
        // Read before the list is taken: what comes later makes it readable again.
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.shared.wake_owner, &mut count);
        completed.append(&mut lock(&self.shared.completed));
    }

    /// Lets them complete what was submitted, and ends them.
    pub(crate) fn stop(&mut self) {
        lock(&self.shared.queue).stopping = true;
        self.shared.wake_worker.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn serve(&self, mut perform: impl FnMut(&mut BackendRequest) -> IoStatus) {
        while let Some(mut request) = self.next() {
            let status = perform(&mut request);
            let mut completed = lock(&self.completed);
            completed.push(Completed { request, status });
            // The owner takes all at once, so the first one wakes it.
            let first = completed.len() == 1;
            drop(completed);
            if first {
                let _ = rustix::io::write(&self.wake_owner, &1u64.to_ne_bytes());
            }
        }
    }

    fn next(&self) -> Option<BackendRequest> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(request) = queue.requests.pop_front() {
                return Some(request);
            }
            if queue.stopping {
                return None;
            }
            queue = self
                .wake_worker
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}
