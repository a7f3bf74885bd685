//! The driver under the request queue. Without a drive's model it hands requests
//! to the back end at once; with one, a request ends when both the back end and
//! the model have completed it. A model that damages data decides how as it completes
//! a request, and only then the back end gets that.

use blklab_blk::{BlkDriver, BlkStatus, IoStatus, Nanos, Request, RequestId};
use blklab_device::{Completion, DataFault};
use blklab_driver::{Driver, request_end};
use blklab_stats::Histogram;

/// Collects what the block layer issues, and paces it by a drive's model where
/// there is one.
pub(super) struct PacedDriver {
    issued: Vec<RequestId>,
    model: Option<Box<Driver>>,
    /// The model completes requests before the back end gets them.
    model_is_first: bool,
    /// By the index of the request; only with a model.
    completed_by: Vec<CompletedBy>,
    completions: Vec<Completion>,
    lateness: Histogram,
}

/// The status that each of the two gave a request.
#[derive(Clone, Copy, Debug, Default)]
struct CompletedBy {
    model: Option<IoStatus>,
    backend: Option<IoStatus>,
    /// What the model does to the data.
    data_fault: Option<DataFault>,
    /// Whether they have it.
    is_in_flight: bool,
    /// Whether it fails, whatever they say.
    fails: bool,
}

impl PacedDriver {
    pub(super) fn new(model: Option<Driver>, damages_data: bool) -> PacedDriver {
        PacedDriver {
            issued: Vec::new(),
            model: model.map(Box::new),
            model_is_first: damages_data,
            completed_by: Vec::new(),
            completions: Vec::new(),
            lateness: Histogram::new(),
        }
    }

    /// Swaps the requests for the back end that came since for an empty list.
    pub(super) fn take_issued(&mut self, into: &mut Vec<RequestId>) {
        std::mem::swap(&mut self.issued, into);
    }

    /// When the model completes its next request.
    #[inline]
    pub(super) fn next_event(&self) -> Nanos {
        match &self.model {
            Some(model) => model.next_event(),
            None => Nanos::MAX,
        }
    }

    pub(super) fn model(&self) -> Option<&Driver> {
        self.model.as_deref()
    }

    /// How much later than the model said requests ended.
    pub(super) fn lateness(&self) -> &Histogram {
        &self.lateness
    }

    /// The back end completed a request. Returns its status if it ended.
    #[inline]
    pub(super) fn backend_completed(
        &mut self,
        id: RequestId,
        status: IoStatus,
    ) -> Option<IoStatus> {
        if self.model.is_none() {
            return Some(status);
        }
        let by = &mut self.completed_by[id.index()];
        by.backend = Some(status);
        by.take_end()
    }

    /// Lets time pass in the model; appends the requests that ended.
    pub(super) fn advance(&mut self, now: Nanos, ended: &mut Vec<(RequestId, IoStatus)>) {
        let Some(model) = &mut self.model else {
            return;
        };
        let mut completions = std::mem::take(&mut self.completions);
        model.advance(now, &mut completions);
        for completion in completions.drain(..) {
            self.lateness.record(now.saturating_sub(completion.at).0);
            let (id, status) = request_end(&completion);
            let by = &mut self.completed_by[id.index()];
            if self.model_is_first {
                by.data_fault = model.device_mut().take_data_fault(completion.tag);
                match status {
                    // The drive has lost what was under way when its power was cut.
                    IoStatus::Ok if !by.fails => self.issued.push(id),
                    // The back end does nothing for it.
                    _ => by.backend = Some(IoStatus::Ok),
                }
            }
            by.model = Some(status);
            ended.extend(by.take_end().map(|status| (id, status)));
        }
        self.completions = completions;
    }

    /// Has every request in flight fail, as one does whose drive loses its power.
    pub(super) fn fail_in_flight(&mut self) {
        for by in &mut self.completed_by {
            by.fails |= by.is_in_flight;
        }
    }

    /// Takes what the model does to the data of a request that it has completed.
    #[inline]
    pub(super) fn take_data_fault(&mut self, id: RequestId) -> Option<DataFault> {
        match self.model_is_first {
            true => self.completed_by[id.index()].data_fault.take(),
            false => None,
        }
    }
}

impl CompletedBy {
    /// Takes the status of a request that both have completed.
    fn take_end(&mut self) -> Option<IoStatus> {
        let (model, backend) = (self.model?, self.backend?);
        let fails = std::mem::take(self).fails;
        Some(if fails {
            IoStatus::IoError
        } else if backend == IoStatus::Ok {
            model
        } else {
            backend
        })
    }
}

impl BlkDriver for PacedDriver {
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
                if self.completed_by.len() <= id.index() {
                    let len = id.index() + 1;
                    self.completed_by.resize(len, CompletedBy::default());
                }
                model.queue_rq(now, hctx, id, rq, last)
            }
            None => BlkStatus::Ok,
        };
        let is_accepted = matches!(status, BlkStatus::Ok | BlkStatus::OkBlocking);
        if let Some(by) = self.completed_by.get_mut(id.index()) {
            by.is_in_flight = is_accepted;
        }
        if is_accepted && !self.model_is_first {
            self.issued.push(id);
        }
        status
    }

    #[inline]
    fn would_sleep(&self) -> bool {
        (self.model.as_ref()).is_some_and(|model| model.would_sleep())
    }

    #[inline]
    fn take_woken(&mut self) -> Option<RequestId> {
        self.model.as_mut()?.take_woken()
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
