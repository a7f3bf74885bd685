//! Lists of requests, linked through the requests themselves.

use crate::request::{Link, RequestId, Requests};

/// A list that is linked by the `L`-th link of its requests. For each `L` a request is in at most
/// one list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RqList<const L: usize = 0> {
    head: Option<RequestId>,
    tail: Option<RequestId>,
    len: u32,
}

impl<const L: usize> RqList<L> {
    /// An empty list.
    pub const fn new() -> Self {
        RqList {
            head: None,
            tail: None,
            len: 0,
        }
    }

    /// Whether it has no requests.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    /// Number of requests.
    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// The first request.
    #[inline]
    pub fn front(&self) -> Option<RequestId> {
        self.head
    }

    /// The last request.
    #[inline]
    pub fn back(&self) -> Option<RequestId> {
        self.tail
    }

    /// The request after `id`.
    #[inline]
    pub fn next(&self, rqs: &Requests, id: RequestId) -> Option<RequestId> {
        rqs[id].links[L].next
    }

    /// The request before `id`.
    #[inline]
    pub fn prev(&self, rqs: &Requests, id: RequestId) -> Option<RequestId> {
        rqs[id].links[L].prev
    }

    /// Appends a request.
    #[inline]
    pub fn push_back(&mut self, rqs: &mut Requests, id: RequestId) {
        rqs[id].links[L] = Link {
            prev: self.tail,
            next: None,
        };
        match self.tail {
            Some(tail) => rqs[tail].links[L].next = Some(id),
            None => self.head = Some(id),
        }
        self.tail = Some(id);
        self.len += 1;
    }

    /// Prepends a request.
    #[inline]
    pub fn push_front(&mut self, rqs: &mut Requests, id: RequestId) {
        rqs[id].links[L] = Link {
            prev: None,
            next: self.head,
        };
        match self.head {
            Some(head) => rqs[head].links[L].prev = Some(id),
            None => self.tail = Some(id),
        }
        self.head = Some(id);
        self.len += 1;
    }

    /// Inserts a request right before `place`, which must be in this list.
    pub fn insert_before(&mut self, rqs: &mut Requests, id: RequestId, place: RequestId) {
        let Some(prev) = rqs[place].links[L].prev else {
            return self.push_front(rqs, id);
        };
        rqs[id].links[L] = Link {
            prev: Some(prev),
            next: Some(place),
        };
        rqs[prev].links[L].next = Some(id);
        rqs[place].links[L].prev = Some(id);
        self.len += 1;
    }

    /// Called when `next` was merged into `id`, both of this list: if the deadline of `next` is
    /// earlier, `id` takes over that deadline and its place.
    pub fn inherit_deadline(&mut self, rqs: &mut Requests, id: RequestId, next: RequestId) {
        if rqs[next].fifo_time < rqs[id].fifo_time {
            self.remove(rqs, id);
            self.insert_before(rqs, id, next);
            rqs[id].fifo_time = rqs[next].fifo_time;
        }
    }

    /// Removes a request, which must be in this list.
    #[inline]
    pub fn remove(&mut self, rqs: &mut Requests, id: RequestId) {
        let Link { prev, next } = rqs[id].links[L];
        debug_assert!(self.len > 0, "request {id:?} is in no list");
        match prev {
            Some(prev) => rqs[prev].links[L].next = next,
            None => {
                debug_assert!(self.head == Some(id), "request {id:?} is not in this list");
                self.head = next;
            }
        }
        match next {
            Some(next) => rqs[next].links[L].prev = prev,
            None => self.tail = prev,
        }
        rqs[id].links[L] = Link::default();
        self.len -= 1;
    }

    /// Removes the first request.
    #[inline]
    pub fn pop_front(&mut self, rqs: &mut Requests) -> Option<RequestId> {
        let id = self.head?;
        self.remove(rqs, id);
        Some(id)
    }

    /// Moves all requests of `other` to the end, in order.
    pub fn append(&mut self, rqs: &mut Requests, other: &mut RqList<L>) {
        let moved = core::mem::take(other);
        let (Some(head), Some(_)) = (moved.head, moved.tail) else {
            return;
        };
        match self.tail {
            Some(tail) => {
                rqs[tail].links[L].next = Some(head);
                rqs[head].links[L].prev = Some(tail);
            }
            None => self.head = Some(head),
        }
        self.tail = moved.tail;
        self.len += moved.len;
    }

    /// The requests in order.
    pub fn iter<'a>(&self, rqs: &'a Requests) -> impl Iterator<Item = RequestId> + 'a {
        core::iter::successors(self.head, move |&id| rqs[id].links[L].next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Request;
    use crate::units::Nanos;
    use crate::{Bio, Op, Sector};
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn request(rqs: &mut Requests) -> RequestId {
        rqs.insert(Request::for_bio(
            &Bio::new(Op::Read, Sector(0), 8),
            Nanos::ZERO,
        ))
    }

    /// Only an earlier deadline is taken over, and with it its place (`dd_merged_requests`).
    #[test]
    fn a_merged_request_leaves_an_earlier_deadline_and_its_place() {
        // Deadlines of three requests, of which the last is merged into the first and goes, or the
        // other way round.
        for (deadlines, last_goes, order, kept) in [
            ([10, 20, 30], true, [0, 1, 2], 10),
            ([10, 20, 30], false, [2, 0, 1], 10),
            ([10, 10, 10], true, [0, 1, 2], 10),
            ([10, 10, 10], false, [0, 1, 2], 10),
        ] {
            let (mut rqs, mut list) = (Requests::default(), RqList::<1>::new());
            let ids = deadlines.map(|deadline| {
                let id = request(&mut rqs);
                rqs[id].fifo_time = Nanos(deadline);
                list.push_back(&mut rqs, id);
                id
            });
            let (stays, goes) = match last_goes {
                true => (ids[0], ids[2]),
                false => (ids[2], ids[0]),
            };
            list.inherit_deadline(&mut rqs, stays, goes);
            let found: Vec<_> = list.iter(&rqs).collect();
            assert_eq!(found, order.map(|at| ids[at]), "{deadlines:?} {last_goes}");
            assert_eq!(rqs[stays].fifo_time, Nanos(kept));
        }
    }

    proptest! {
        #[test]
        fn behaves_as_a_deque(ops in prop::collection::vec((0u8..5, any::<prop::sample::Index>()), 0..200)) {
            let mut rqs = Requests::default();
            let (mut list, mut model) = (RqList::<1>::new(), VecDeque::new());
            for (op, pick) in ops {
                match op {
                    0 => { let id = request(&mut rqs); list.push_back(&mut rqs, id); model.push_back(id); }
                    1 => { let id = request(&mut rqs); list.push_front(&mut rqs, id); model.push_front(id); }
                    2 if !model.is_empty() => {
                        let at = pick.index(model.len());
                        let id = request(&mut rqs);
                        list.insert_before(&mut rqs, id, model[at]);
                        model.insert(at, id);
                    }
                    3 if !model.is_empty() => {
                        let id = model.remove(pick.index(model.len())).unwrap();
                        list.remove(&mut rqs, id);
                        rqs.remove(id);
                    }
                    _ => {
                        let id = list.pop_front(&mut rqs);
                        prop_assert_eq!(id, model.pop_front());
                    }
                }
                prop_assert_eq!(list.iter(&rqs).collect::<Vec<_>>(), Vec::from(model.clone()));
                prop_assert_eq!(list.len() as usize, model.len());
                prop_assert_eq!(list.back(), model.back().copied());
            }
        }
    }
}
