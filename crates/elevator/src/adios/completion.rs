//! What a completion teaches the models.

use blklab_blk::{Nanos, Request, RequestId, SchedCtx};

use super::tunables::LATENCY_LIMIT;
use super::{Adios, OTHER, kind_of};
use crate::jiffies::{jiffies, msecs_to_jiffies};

/// Time after a completion at which models are looked at.
const LOOK_MS: i64 = 100;

impl Adios {
    /// What a seek costs, as a weight of a sample on a drive with moving parts.
    fn sample_weight(&mut self, rq: &Request) -> u64 {
        if !self.rotational {
            return 1;
        }
        let last = std::mem::replace(&mut self.last_completed_end, rq.end().0);
        match last {
            0 => 1,
            last => 65 - last.abs_diff(rq.sector.0).leading_zeros() as u64,
        }
    }

    pub(super) fn learn(&mut self, ctx: &SchedCtx<'_>, id: RequestId) {
        let (rq, data) = (&ctx.rqs[id], self.data[id.index()]);
        let kind = kind_of(rq.op);
        if kind == OTHER {
            self.last_completed_end = 0;
            return;
        }
        // What a request took counts from the completion before it.
        let since = match self.last_completed {
            Nanos::ZERO => rq.io_start,
            last => last,
        };
        let busy = self.under_way > 0;
        self.last_completed = if busy { ctx.now } else { Nanos::ZERO };
        if rq.io_start == Nanos::ZERO || data.bytes == 0 || ctx.now < since {
            return;
        }
        let latency = (ctx.now - since).0;
        if latency > self.tunables.at(LATENCY_LIMIT) as u64 {
            return;
        }
        let (weight, now) = (self.sample_weight(rq), jiffies(ctx.now));
        let model = &mut self.models[kind];
        if model.learn(data.bytes, latency, data.predicted_ns, weight) {
            model.update(&mut self.gathered, &self.tunables, now);
        }
        let look = now + msecs_to_jiffies(LOOK_MS);
        self.look_at = Some(self.look_at.map_or(look, |at| at.min(look)));
    }

    /// Brings all models up to date, in the order of their kinds.
    pub(super) fn update_models(&mut self, now: i64) {
        for model in &mut self.models {
            model.update(&mut self.gathered, &self.tunables, now);
        }
    }
}
