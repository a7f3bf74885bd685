//! What a flush waits for.
//!
//! A flush covers everything acknowledged before it. Pages on their way to the
//! flash belong to the epoch in which they were begun; a flush closes all of
//! them and ends its epoch, and ends itself when that epoch and all older ones
//! have nothing on its way.

use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, Default)]
struct Epoch {
    pages: u32,
    /// The flush command that ended it.
    flush: Option<u32>,
}

/// Epochs from the oldest that is not durable to the present.
#[derive(Clone, Debug)]
pub(crate) struct Epochs {
    epochs: VecDeque<Epoch>,
    first: u32,
}

impl Epochs {
    pub(crate) fn new() -> Epochs {
        Epochs {
            epochs: VecDeque::from([Epoch::default()]),
            first: 0,
        }
    }

    /// The present epoch.
    #[inline]
    pub(crate) fn now(&self) -> u32 {
        self.first.wrapping_add(self.epochs.len() as u32 - 1)
    }

    /// A page is begun in the present epoch.
    #[inline]
    pub(crate) fn begin_page(&mut self) {
        if let Some(last) = self.epochs.back_mut() {
            last.pages += 1;
        }
    }

    /// A page of `epoch` is on the flash.
    #[inline]
    pub(crate) fn end_page(&mut self, epoch: u32) {
        let place = epoch.wrapping_sub(self.first) as usize;
        self.epochs[place].pages -= 1;
    }

    /// A flush ends the present epoch.
    pub(crate) fn flush(&mut self, command: u32) {
        if let Some(last) = self.epochs.back_mut() {
            last.flush = Some(command);
        }
        self.epochs.push_back(Epoch::default());
    }

    /// A flush that has nothing left to wait for.
    #[inline]
    pub(crate) fn pop_durable(&mut self) -> Option<u32> {
        let first = self.epochs.front()?;
        if first.pages > 0 || first.flush.is_none() {
            return None;
        }
        self.first = self.first.wrapping_add(1);
        self.epochs.pop_front()?.flush
    }
}
