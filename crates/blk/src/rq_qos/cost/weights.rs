//! Weights of groups, and the shares of the drive that follow from them.

use super::{IoCost, Now, WEIGHT_ONE, ahead, mul_div_up};

impl IoCost {
    /// Sets the active weight of a group and the part of it in use, and updates the weights in use
    /// of all groups above it (`__propagate_weights`). If `now` is given, also saves the group's
    /// current margin.
    pub(super) fn propagate(&mut self, at: usize, active: u32, inuse: u32, now: Option<Now>) {
        let this = &mut self.groups[at];
        let is_inner = !this.is_active && this.child_active_sum > 0;
        let inuse = match is_inner {
            true => mul_div_up(active.into(), this.child_inuse_sum, this.child_active_sum) as u32,
            false => inuse.max(1).min(active),
        };
        this.last_inuse = this.inuse;
        if let Some(now) = now {
            this.saved_margin = ahead(now.vtime, this.vtime);
        }
        if (active, inuse) == (this.active, this.inuse) {
            return;
        }
        let (mut child, mut active, mut inuse) = (at, active, inuse);
        while let Some(parent) = self.groups[child].parent {
            let this = &mut self.groups[child];
            let before = (this.active, this.inuse);
            (this.active, this.inuse) = (active, inuse);
            let above = &mut self.groups[parent];
            above.child_active_sum = change(above.child_active_sum, before.0, active);
            above.child_inuse_sum = change(above.child_inuse_sum, before.1, inuse);
            (active, inuse) = match above.child_active_sum {
                0 => (0, 0),
                sum => {
                    let inuse = mul_div_up(above.weight.into(), above.child_inuse_sum, sum);
                    (above.weight, inuse as u32)
                }
            };
            if (active, inuse) == (above.active, above.inuse) {
                break;
            }
            child = parent;
        }
        self.weights_changed = true;
    }

    /// Puts changed weights into effect: shares are computed anew.
    pub(super) fn commit_weights(&mut self) {
        self.weights += core::mem::take(&mut self.weights_changed) as u64;
    }

    /// The share of the drive that belongs to a group, and the part of it that is not lent
    /// (`current_hweight`).
    pub(super) fn shares(&mut self, at: usize) -> (u32, u32) {
        if self.groups[at].share_of != Some(self.weights) {
            let (active, inuse) = self.product_of_shares(at);
            let this = &mut self.groups[at];
            this.share_active = active.max(1);
            this.share_inuse = inuse.max(1);
            this.share_of = Some(self.weights);
        }
        let this = &self.groups[at];
        (this.share_active, this.share_inuse)
    }

    /// Multiplies the shares of all levels from the root down.
    fn product_of_shares(&self, at: usize) -> (u32, u32) {
        let this = &self.groups[at];
        let Some(parent) = this.parent else {
            return (WEIGHT_ONE, WEIGHT_ONE);
        };
        let (active, inuse) = self.product_of_shares(parent);
        let above = &self.groups[parent];
        if above.child_active_sum == 0 || above.child_inuse_sum == 0 {
            return (active, inuse);
        }
        let part = |share: u32, weight: u32, sum: u64| {
            (u64::from(share) * u64::from(weight) / sum.max(weight.into())) as u32
        };
        (
            part(active, this.active, above.child_active_sum),
            part(inuse, this.inuse, above.child_inuse_sum),
        )
    }

    /// The share that a group would have if it lent nothing and all others stayed as they are
    /// (`current_hweight_max`).
    pub(super) fn largest_share(&self, at: usize) -> u32 {
        let mut share = u64::from(WEIGHT_ONE);
        let mut inuse = u64::from(self.groups[at].active);
        let mut child = at;
        while let Some(parent) = self.groups[child].parent {
            let above = &self.groups[parent];
            let own = u64::from(self.groups[child].inuse);
            let sum = (above.child_inuse_sum + inuse).saturating_sub(own);
            share = share * inuse / sum.max(1);
            inuse = mul_div_up(above.active.into(), sum, above.child_active_sum);
            child = parent;
        }
        share.max(1) as u32
    }
}

fn change(sum: u64, before: u32, after: u32) -> u64 {
    (sum + u64::from(after)).saturating_sub(before.into())
}
