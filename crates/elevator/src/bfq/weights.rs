//! How many queues there are of each weight: with all alike, nobody needs the
//! drive kept free to get a fair share.

use super::Bfq;
use super::queue::QueueId;

/// Busy queues, or such with requests in the drive, by weight, in its order.
/// Raised ones do not count.
#[derive(Debug, Default)]
pub(super) struct WeightCounts(Vec<(u32, u32)>);

impl WeightCounts {
    fn add(&mut self, weight: u32) {
        match self.0.binary_search_by_key(&weight, |&(w, _)| w) {
            Ok(at) => self.0[at].1 += 1,
            Err(at) => self.0.insert(at, (weight, 1)),
        }
    }

    fn remove(&mut self, weight: u32) {
        if let Ok(at) = self.0.binary_search_by_key(&weight, |&(w, _)| w) {
            self.0[at].1 -= 1;
            if self.0[at].1 == 0 {
                self.0.remove(at);
            }
        }
    }
}

impl Bfq {
    pub(super) fn count_weight(&mut self, q: QueueId) {
        let queue = &mut self.queues[q];
        if queue.counted_weight.is_none() {
            queue.counted_weight = Some(queue.entity.weight);
            self.weights.add(queue.entity.weight);
        }
    }

    pub(super) fn uncount_weight(&mut self, q: QueueId) {
        if let Some(weight) = self.queues[q].counted_weight.take() {
            self.weights.remove(weight);
            self.release(q);
        }
    }

    /// Whether queues are to get different shares of the drive, or of the same
    /// share `q` needs more than the least (`bfq_asymmetric_scenario`).
    pub(super) fn is_asymmetric(&self, q: Option<QueueId>) -> bool {
        let counts = &self.weights.0;
        let weight = q.and_then(|q| self.queues[q].counted_weight);
        let least = weight.is_some() && weight == counts.first().map(|&(w, _)| w);
        let varied_weights = !least && counts.len() > 1;
        let classes = self.busy.iter().filter(|&&busy| busy > 0).count();
        varied_weights || classes > 1 || self.pending_groups > 1
    }
}
