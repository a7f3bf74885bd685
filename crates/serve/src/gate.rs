//! The driver under the request queue: the store at once, or a drive's model
//! beside it that says when a request may end.

use blklab_blk::{BlkDriver, BlkStatus, IoStatus, Nanos, Request, RequestId};
use blklab_device::Completion;
use blklab_driver::{Driver, request_end};
use blklab_stats::Histogram;

/// Collects what the block layer issues, and paces it by a model where there
/// is one.
pub(crate) struct Gate {
    issued: Vec<RequestId>,
    model: Option<Box<Driver>>,
    halves: Vec<Halves>,
    completions: Vec<Completion>,
    /// How late requests ended, beyond what the model said.
    lateness: Histogram,
}

/// A request ends when both the store and the model are done with it.
#[derive(Clone, Copy, Debug, Default)]
struct Halves {
    model: Option<IoStatus>,
    store: Option<IoStatus>,
}

impl Gate {
    pub(crate) fn new(model: Option<Driver>) -> Gate {
        Gate {
            issued: Vec::new(),
            model: model.map(Box::new),
            halves: Vec::new(),
            completions: Vec::new(),
            lateness: Histogram::new(),
        }
    }

    /// The request issued longest ago that has not been taken.
    pub(crate) fn take_issued(&mut self, into: &mut Vec<RequestId>) {
        std::mem::swap(&mut self.issued, into);
    }

    /// When the model wants to be asked.
    #[inline]
    pub(crate) fn next_event(&self) -> Nanos {
        match &self.model {
            Some(model) => model.next_event(),
            None => Nanos::MAX,
        }
    }

    /// The model.
    pub(crate) fn model(&self) -> Option<&Driver> {
        self.model.as_deref()
    }

    /// How late requests ended.
    pub(crate) fn lateness(&self) -> &Histogram {
        &self.lateness
    }

    /// The store is done with a request. Returns how it ended, if it did.
    #[inline]
    pub(crate) fn store_done(&mut self, id: RequestId, status: IoStatus) -> Option<IoStatus> {
        if self.model.is_none() {
            return Some(status);
        }
        self.half_done(id, |halves| halves.store = Some(status))
    }

    /// Lets time pass in the model; appends what ended.
    pub(crate) fn advance(&mut self, now: Nanos, ended: &mut Vec<(RequestId, IoStatus)>) {
        let Some(model) = &mut self.model else {
            return;
        };
        let mut completions = std::mem::take(&mut self.completions);
        model.advance(now, &mut completions);
        for completion in completions.drain(..) {
            self.lateness.record(now.saturating_sub(completion.at).0);
            let (id, status) = request_end(&completion);
            let done = self.half_done(id, |halves| halves.model = Some(status));
            ended.extend(done.map(|status| (id, status)));
        }
        self.completions = completions;
    }

    fn half_done(&mut self, id: RequestId, note: impl FnOnce(&mut Halves)) -> Option<IoStatus> {
        let halves = &mut self.halves[id.index()];
        note(halves);
        let (model, store) = (halves.model?, halves.store?);
        *halves = Halves::default();
        Some(if store == IoStatus::Ok { model } else { store })
    }
}

impl BlkDriver for Gate {
    #[inline]
    fn queue_rq(
        &mut self,
        now: Nanos,
        hctx: usize,
        id: RequestId,
        rq: &Request,
        last: bool,
    ) -> BlkStatus {
        let status = match &mut self.model {
            Some(model) => {
                if self.halves.len() <= id.index() {
                    self.halves.resize(id.index() + 1, Halves::default());
                }
                model.queue_rq(now, hctx, id, rq, last)
            }
            None => BlkStatus::Ok,
        };
        if matches!(status, BlkStatus::Ok | BlkStatus::OkBlocking) {
            self.issued.push(id);
        }
        status
    }

    fn get_budget(&mut self) -> bool {
        self.model.as_mut().is_none_or(|model| model.get_budget())
    }

    fn put_budget(&mut self) {
        if let Some(model) = &mut self.model {
            model.put_budget();
        }
    }
}
