//! Tokens, and who waits for them.

use blklab_blk::{RequestId, SchedCtx};

use super::{ELV_TOKEN, Kyber, domain_of};

impl Kyber {
    /// A token of the domain, or a place among those that wait for one.
    ///
    /// In the kernel the contexts that are woken run at once, each on a CPU of
    /// its own, and take tokens side by side. Here they run one after the other
    /// and the first may take them all, so who was woken in vain keeps its
    /// place before those that got some.
    pub(super) fn get_token(&mut self, hctx: usize, domain: usize) -> Option<u32> {
        let token = self.tokens[domain].get(None);
        let waiting = self.hctxs[hctx].waiting[domain];
        match token {
            Some(_) => {
                self.hctxs[hctx].served[domain] = true;
                if waiting {
                    self.hctxs[hctx].waiting[domain] = false;
                    self.waiters[domain].retain(|&w| w as usize != hctx);
                }
            }
            None if !waiting => self.wait(hctx, domain),
            None => {}
        }
        token
    }

    fn wait(&mut self, hctx: usize, domain: usize) {
        let h = &mut self.hctxs[hctx];
        h.waiting[domain] = true;
        if std::mem::take(&mut h.served[domain]) || h.place[domain] == 0 {
            self.places += 1;
            h.place[domain] = self.places;
        }
        let place = h.place[domain];
        let hctxs = &self.hctxs;
        let before = |w: &u16| hctxs[*w as usize].place[domain] < place;
        let at = self.waiters[domain].partition_point(before);
        self.waiters[domain].insert(at, hctx as u16);
    }

    /// Gives a request's token back and wakes who waited long enough.
    pub(super) fn put_token(&mut self, ctx: &mut SchedCtx<'_>, id: RequestId) {
        let rq = &mut ctx.rqs[id];
        let Some(token) = std::mem::take(&mut rq.elv[ELV_TOKEN]).checked_sub(1) else {
            return;
        };
        let domain = domain_of(rq.op);
        self.tokens[domain].put(token);
        if self.waiters[domain].is_empty() {
            return;
        }
        let woken = self.tokens[domain].freed_with_waiters() as usize;
        let woken = woken.min(self.waiters[domain].len());
        for hctx in self.waiters[domain].drain(..woken) {
            self.hctxs[hctx as usize].waiting[domain] = false;
            ctx.run_hw_queue(hctx as usize);
        }
    }
}
