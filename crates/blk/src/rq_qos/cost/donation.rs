//! Work conservation: a group lends the part of its share that it does not need, by lowering its
//! own weight in use so that all other groups keep their proportions.
//!
//! Notation in the formulas, for a group with the share b of the drive: f is the part of b that
//! belongs to non-lending groups below it, t the part of lenders. The weight w of a group and the
//! sum s of the weights inside it divide in the same proportions. A prime marks the values after
//! lending; an index p marks the parent.

use alloc::vec;
use alloc::vec::Vec;

use super::period::MARGIN_TARGET_PERCENT;
use super::{IoCost, Now, WEIGHT_ONE, ahead, div_up, mul_div_up};

const ONE: u64 = WEIGHT_ONE as u64;

impl IoCost {
    /// Returns the share that a group needs to use as much in the next period as in this one
    /// (`usage`) and still end it half a period behind the drive; returns `most` if it has nothing
    /// to lend (`hweight_after_donation`). Budget beyond half a period is lost.
    pub(super) fn share_after_donation(
        &mut self,
        at: usize,
        (old_share, most): (u32, u32),
        usage: u32,
        now: Now,
    ) -> u32 {
        let this = &mut self.groups[at];
        if this.abs_debt > 0 {
            return 1;
        }
        let margin = ahead(now.vtime, this.vtime);
        if this.is_waited_for() || margin < self.period.margin_min() as i64 {
            return most;
        }
        let excess = margin - self.period.margin_target() as i64;
        if excess > 0 {
            this.skip(excess as u64);
            self.period.add_lost_vtime(excess as u64, old_share);
        }
        // It spends the budget that it keeps and the new one, except the margin that should be left
        // at the end.
        let this = &self.groups[at];
        let passed = ahead(now.vtime, self.period.began_at_vtime()).max(1);
        let kept = i128::from(ONE) * i128::from(ahead(now.vtime, this.vtime)) / i128::from(passed);
        let target = i128::from(ONE * MARGIN_TARGET_PERCENT / 100);
        let spends = (i128::from(ONE) - target + kept).max(1);
        let needed = i128::from(ONE) * i128::from(usage) / spends;
        needed.clamp(1, most.into()) as u32
    }

    /// Lowers the weights of lenders to what they need (`transfer_surpluses`). Each lender has its
    /// present share in `share_donating`, and the part that it keeps in `share_after_donation`.
    pub(super) fn transfer_surpluses(&mut self, lenders: &[usize], now: Now) {
        self.keep_below_whole(lenders);
        let inner = self.inner_groups(lenders);
        self.sum_up(lenders, &inner);
        let root = &self.groups[0];
        let donating = u64::from(root.share_donating).min(ONE - 1);
        let after = u64::from(root.share_after_donation);
        // The factor by which the shares of all other groups grow.
        let growth = div_up((ONE - after) * ONE, ONE - donating);
        for &at in &inner {
            self.adjust_inner(at, growth);
        }
        for &at in lenders {
            if self.groups[at].abs_debt > 0 {
                continue;
            }
            let this = &self.groups[at];
            let above = &self.groups[this.parent.unwrap_or(0)];
            // w' = s'_p * b' / b'_p, where the whole of b' belongs to the lender.
            let inuse = mul_div_up(
                above.child_adjusted_sum,
                this.share_after_donation.into(),
                above.share_inuse.into(),
            );
            let active = this.active;
            self.propagate(at, active, inuse.min(u32::MAX.into()) as u32, Some(now));
        }
    }

    /// Reduces what lenders keep if they would together keep more than the whole drive; only those
    /// that want more than their share are reduced.
    fn keep_below_whole(&mut self, lenders: &[usize]) {
        let (mut sum, mut over_sum) = (0u64, 0u64);
        let mut over = Vec::new();
        for &at in lenders {
            let (share, _) = self.shares(at);
            let after = self.groups[at].share_after_donation;
            sum += u64::from(after);
            if after > share {
                over_sum += u64::from(after);
                over.push(at);
            }
        }
        if sum < ONE {
            return;
        }
        let target = over_sum.saturating_sub(sum - (ONE - 1));
        for at in over {
            let after = &mut self.groups[at].share_after_donation;
            *after = (u64::from(*after) * target / over_sum.max(1)) as u32;
        }
    }

    /// The ancestors of all lenders, parents before children.
    fn inner_groups(&self, lenders: &[usize]) -> Vec<usize> {
        let mut inner = vec![0];
        for &at in lenders {
            let known = inner.len();
            let mut above = self.groups[at].parent;
            while let Some(parent) = above.filter(|parent| !inner[..known].contains(parent)) {
                inner.insert(known, parent);
                above = self.groups[parent].parent;
            }
        }
        inner
    }

    /// Sums the lenders' shares up the tree, then computes the shares of their ancestors down the
    /// tree.
    fn sum_up(&mut self, lenders: &[usize], inner: &[usize]) {
        for &at in inner {
            let this = &mut self.groups[at];
            this.child_adjusted_sum = 0;
            this.share_donating = 0;
            this.share_after_donation = 0;
        }
        for &at in lenders.iter().chain(inner.iter().rev()) {
            let this = &self.groups[at];
            let (donating, after) = (this.share_donating, this.share_after_donation);
            if let Some(parent) = this.parent {
                let above = &mut self.groups[parent];
                above.share_donating += donating;
                above.share_after_donation += after;
            }
        }
        for &at in inner {
            if let Some(parent) = self.groups[at].parent {
                let above = &self.groups[parent];
                let active = self.groups[at].active.into();
                let share = mul_div_up(above.share_active.into(), active, above.child_active_sum);
                self.groups[at].share_active = share as u32;
            }
            let this = &mut self.groups[at];
            this.share_donating = this.share_donating.min(this.share_active);
            let most = this.share_donating.saturating_sub(1);
            this.share_after_donation = this.share_after_donation.min(most);
        }
    }

    /// Computes the share and the sum of weights of an ancestor of lenders after lending.
    fn adjust_inner(&mut self, at: usize, growth: u64) {
        let this = &self.groups[at];
        let active_share = u64::from(this.share_active).max(1);
        let donating = u64::from(this.share_donating).max(1);
        let after = u64::from(this.share_after_donation);
        let Some(parent) = this.parent else {
            // s' = s * f / f'
            let sum = mul_div_up(
                this.child_active_sum,
                ONE.saturating_sub(donating),
                ONE - after,
            );
            self.groups[at].child_adjusted_sum = sum;
            return;
        };
        let above = &self.groups[parent];
        // b' = growth * f + t'
        let keeps = active_share.saturating_sub(donating);
        let share = mul_div_up(growth, keeps, ONE) + after;
        // w' = s'_p * b' / b'_p
        let inuse = mul_div_up(above.child_adjusted_sum, share, above.share_inuse.into());
        // s' = s_f + s_t * w'_t / w_t
        let lent_sum = mul_div_up(this.child_active_sum, donating, active_share);
        let kept_sum = this.child_active_sum.saturating_sub(lent_sum);
        let lent_weight = mul_div_up(this.active.into(), donating, active_share);
        let lent_after = mul_div_up(inuse, after, share);
        let this = &mut self.groups[at];
        this.child_adjusted_sum = kept_sum + mul_div_up(lent_sum, lent_after, lent_weight);
        this.share_inuse = share as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::two_active;
    use super::*;

    /// What lenders keep is less than the whole, for which only those give that keep more than
    /// their share (`transfer_surpluses`).
    #[test]
    fn lenders_keep_less_than_the_whole() {
        let part = |percent: u32| ONE as u32 / 100 * percent;
        let rest = |percent: u32| ONE as u32 - 1 - part(percent);
        for (keep, expected) in [
            ([70, 50], [rest(50), part(50)]),
            ([70, 20], [part(70), part(20)]),
            ([30, 90], [part(30), rest(30)]),
        ] {
            let (mut cost, _) = two_active();
            for at in [1, 2] {
                cost.groups[at].share_after_donation = part(keep[at - 1]);
            }
            cost.keep_below_whole(&[1, 2]);
            let found = [1, 2].map(|at| cost.groups[at].share_after_donation);
            assert_eq!(found, expected, "{keep:?}");
        }
    }
}
