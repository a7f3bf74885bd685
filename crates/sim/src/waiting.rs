//! Who waits in a queue, by ticket.

use std::collections::VecDeque;

/// Waiters of one queue. Tickets only grow, and are drawn about in that order, so
/// that the one looked for is near the front.
#[derive(Clone, Debug)]
pub(crate) struct Waiting<T> {
    by_ticket: VecDeque<(u64, T)>,
}

impl<T> Waiting<T> {
    pub(crate) fn new() -> Waiting<T> {
        Waiting {
            by_ticket: VecDeque::new(),
        }
    }

    /// One more, whose ticket is the last that was given out.
    pub(crate) fn push(&mut self, ticket: u64, who: T) {
        debug_assert!(self.by_ticket.back().is_none_or(|last| last.0 < ticket));
        self.by_ticket.push_back((ticket, who));
    }

    /// The one with that ticket, which waits no longer.
    pub(crate) fn take(&mut self, ticket: u64) -> Option<T> {
        let at = self.by_ticket.binary_search_by_key(&ticket, |(t, _)| *t);
        let (_, who) = self.by_ticket.remove(at.ok()?)?;
        Some(who)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_once() {
        let mut waiting = Waiting::new();
        (1..=9).for_each(|ticket| waiting.push(ticket, ticket * 10));
        for ticket in [1, 3, 2, 9, 5] {
            assert_eq!(waiting.take(ticket), Some(ticket * 10));
            assert_eq!(waiting.take(ticket), None);
        }
        waiting.push(10, 100);
        assert_eq!(waiting.take(10), Some(100));
        assert_eq!(waiting.take(11), None);
    }
}
