//! Locks of inodes, and the one of all renames.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::task::{Poll, Waker};

use crate::vfs::dentry::Place;

/// What a lock is for: an inode (`i_rwsem`), or, if `None`, all renames
/// (`s_vfs_rename_mutex`).
pub(super) type LockName = Option<Place>;

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// By one task alone.
    Alone,
    /// By any number of tasks that share it.
    Shared,
}

/// A lock, and the tasks that wait for it, which get it first come, first served.
#[derive(Debug, Default)]
struct Lock {
    holders: u32,
    is_shared: bool,
    /// The waiters, each with its ticket.
    waiters: VecDeque<(u64, Hold, Waker)>,
    tickets: u64,
}

impl Lock {
    fn is_open_for(&self, hold: Hold) -> bool {
        self.holders == 0 || (self.is_shared && hold == Hold::Shared)
    }

    /// Takes it, or queues who asks, or keeps the place of who asked before.
    fn take(&mut self, ticket: &mut Option<u64>, hold: Hold, waker: &Waker) -> bool {
        let is_next = match *ticket {
            None => self.waiters.is_empty(),
            Some(ticket) => (self.waiters.front()).is_some_and(|(first, ..)| *first == ticket),
        };
        if is_next && self.is_open_for(hold) {
            if ticket.is_some() {
                self.waiters.pop_front();
            }
            self.holders += 1;
            self.is_shared = hold == Hold::Shared;
            self.wake_next();
            return true;
        }
        match *ticket {
            None => {
                self.tickets += 1;
                *ticket = Some(self.tickets);
                (self.waiters).push_back((self.tickets, hold, waker.clone()));
            }
            Some(ticket) => {
                let own = self.waiters.iter_mut().find(|(own, ..)| *own == ticket);
                if let Some((.., known)) = own {
                    known.clone_from(waker);
                }
            }
        }
        false
    }

    /// Wakes the first waiter if it can have the lock.
    fn wake_next(&self) {
        if let Some((_, hold, waker)) = self.waiters.front()
            && self.is_open_for(*hold)
        {
            waker.wake_by_ref();
        }
    }
}

/// The locks that are held.
#[derive(Debug, Default)]
pub(super) struct Locks(RefCell<BTreeMap<LockName, Lock>>);

impl Locks {
    /// Whether nobody holds a lock.
    pub(super) fn is_free(&self, name: LockName) -> bool {
        !self.0.borrow().contains_key(&name)
    }

    /// Takes a lock, after waiting for it.
    pub(super) async fn lock(&self, name: LockName, hold: Hold) -> LockGuard<'_> {
        let mut ticket = None;
        poll_fn(|context| {
            let mut locks = self.0.borrow_mut();
            let lock = locks.entry(name).or_default();
            match lock.take(&mut ticket, hold, context.waker()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        LockGuard { locks: self, name }
    }
}

#[cfg(test)]
impl Locks {
    /// How many locks are held.
    pub(super) fn held(&self) -> usize {
        self.0.borrow().len()
    }
}

/// A lock that is held until this is dropped.
pub(super) struct LockGuard<'a> {
    locks: &'a Locks,
    name: LockName,
}

impl LockGuard<'_> {
    /// Goes on to share a lock that was held alone (`downgrade_write`).
    pub(super) fn share(&self) {
        if let Some(lock) = self.locks.0.borrow_mut().get_mut(&self.name) {
            lock.is_shared = true;
            lock.wake_next();
        }
    }
}

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        let mut locks = self.locks.0.borrow_mut();
        let Some(lock) = locks.get_mut(&self.name) else {
            return;
        };
        lock.holders -= 1;
        match lock.holders == 0 && lock.waiters.is_empty() {
            true => {
                locks.remove(&self.name);
            }
            false => lock.wake_next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Context;

    use super::*;

    #[test]
    fn a_lock_is_shared_or_held_alone_in_the_order_of_asking() {
        let locks = Locks::default();
        let mut context = Context::from_waker(Waker::noop());
        let mut first = pin!(locks.lock(None, Hold::Shared));
        let mut second = pin!(locks.lock(None, Hold::Shared));
        let mut writer = pin!(locks.lock(None, Hold::Alone));
        let mut late = pin!(locks.lock(None, Hold::Shared));
        let Poll::Ready(first) = first.as_mut().poll(&mut context) else {
            panic!("it is free");
        };
        let Poll::Ready(second) = second.as_mut().poll(&mut context) else {
            panic!("it is shared");
        };
        assert!(writer.as_mut().poll(&mut context).is_pending());
        assert!(
            late.as_mut().poll(&mut context).is_pending(),
            "behind the writer"
        );
        drop(first);
        assert!(writer.as_mut().poll(&mut context).is_pending());
        drop(second);
        assert!(late.as_mut().poll(&mut context).is_pending());
        let Poll::Ready(writer) = writer.as_mut().poll(&mut context) else {
            panic!("nobody holds it");
        };
        assert!(late.as_mut().poll(&mut context).is_pending());
        writer.share();
        let Poll::Ready(late) = late.as_mut().poll(&mut context) else {
            panic!("the writer shares it");
        };
        drop((writer, late));
        assert_eq!(locks.held(), 0);
    }
}
