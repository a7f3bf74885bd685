//! How much is dirty, how much may be, and how strongly dirtiers are slowed down for it
//! (`struct dirty_throttle_control`).

/// Fractional bits of a ratio (`RATELIMIT_CALC_SHIFT`).
pub(super) const RATIO_BITS: u32 = 10;

/// The ratio 1.
const ONE: i64 = 1 << RATIO_BITS;

/// How much is dirty and how much may be, in pages. Pages under write-back count as
/// dirty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirtyState {
    /// Dirty pages of the whole system.
    pub dirty: u64,
    /// The threshold of `vm.dirty_ratio`.
    pub thresh: u64,
    /// The threshold of `vm.dirty_background_ratio`.
    pub background_thresh: u64,
    /// The threshold smoothed over time (`dom->dirty_limit`): it follows a lowered
    /// threshold slowly, so that dirtiers are not stopped all at once.
    pub limit: u64,
    /// Dirty pages of this device.
    pub device_dirty: u64,
    /// The device's share of the threshold.
    pub device_thresh: u64,
}

impl DirtyState {
    /// Dirtiers are not throttled up to this many dirty pages.
    const fn freerun_ceiling(&self) -> u64 {
        self.thresh.midpoint(self.background_thresh)
    }

    /// Whether dirtiers are not throttled.
    pub const fn is_freerun(&self) -> bool {
        self.dirty <= self.freerun_ceiling()
    }

    /// Whether both the device and the system are above their thresholds
    /// (`wb->dirty_exceeded`).
    pub(super) const fn is_exceeded(&self) -> bool {
        self.device_dirty > self.device_thresh && self.dirty > self.thresh
    }

    /// Pages that a task may dirty until it is checked again (`dirty_poll_interval`).
    pub(super) fn poll_interval(&self) -> u64 {
        let margin = self.thresh.saturating_sub(self.dirty);
        1 << (margin.checked_ilog2().unwrap_or(0) / 2)
    }

    /// At this many dirty pages dirtiers are stopped (`hard_dirty_limit`).
    fn hard_limit(&self) -> u64 {
        self.limit.max(self.thresh)
    }

    /// The number of dirty pages that the control loop aims at.
    pub fn setpoint(&self) -> u64 {
        self.freerun_ceiling().midpoint(self.hard_limit())
    }

    /// The factor on the device's base rate, in units of 1/1024: a cubic in the system's
    /// dirty pages times a linear function of the device's (`wb_position_ratio`).
    /// `write_rate` is the device's average write rate.
    pub fn position_ratio(&self, write_rate: u64) -> u64 {
        let limit = self.hard_limit();
        if self.dirty >= limit {
            return 0;
        }
        let global = polynomial(self.setpoint(), self.dirty, limit) as u64;
        let thresh = self.device_thresh.min(self.thresh);
        // A device that was idle has almost no share yet and needs some to start from.
        let thresh = thresh.max((limit - self.dirty) / 8);
        let share = (thresh << 16) / (self.thresh | 1);
        let setpoint = (self.setpoint() * share) >> 16;
        // These wrap, as the kernel's do, when a share is larger than the whole.
        let span = (self.thresh.wrapping_sub(thresh)).wrapping_add(8 * write_rate);
        let span = span.wrapping_mul(share) >> 16;
        let zero = setpoint.wrapping_add(span);
        let ratio = if self.device_dirty < zero.wrapping_sub(span / 4) {
            global.wrapping_mul(zero.wrapping_sub(self.device_dirty)) / (span | 1)
        } else {
            global / 4
        };
        let reserve = thresh / 2;
        match self.device_dirty {
            dirty if dirty >= reserve => ratio,
            dirty if dirty > reserve / 8 => ratio * reserve / dirty,
            _ => ratio * 8,
        }
    }
}

/// `1 + ((setpoint - dirty) / (limit - setpoint))^3`, from 0 to 2
/// (`pos_ratio_polynom`).
fn polynomial(setpoint: u64, dirty: u64, limit: u64) -> i64 {
    let distance = (setpoint as i64 - dirty as i64) << RATIO_BITS;
    let x = distance / ((limit - setpoint) | 1) as i64;
    let cube = ((x * x) >> RATIO_BITS) * x;
    ((cube >> RATIO_BITS) + ONE).clamp(0, 2 * ONE)
}

#[cfg(test)]
mod tests {
    use super::DirtyState;

    /// A device that has all of the threshold, with this many dirty pages.
    fn state(dirty: u64) -> DirtyState {
        DirtyState {
            dirty,
            thresh: 10_000,
            background_thresh: 5_000,
            limit: 10_000,
            device_dirty: dirty,
            device_thresh: 10_000,
        }
    }

    #[test]
    fn the_ratio_is_one_at_the_set_point_and_none_at_the_limit() {
        assert_eq!(state(0).setpoint(), 8_750);
        let ratio = |dirty| state(dirty).position_ratio(25_600);
        assert!((1_020..=1_024).contains(&ratio(8_750)), "{}", ratio(8_750));
        assert!(ratio(8_000) > ratio(8_750) && ratio(8_750) > ratio(9_500));
        assert_eq!(ratio(10_000), 0);
    }

    #[test]
    fn nobody_waits_below_the_middle_of_the_thresholds() {
        assert!(state(7_500).is_freerun() && !state(7_501).is_freerun());
        assert_eq!(state(0).poll_interval(), 64);
        assert_eq!(state(10_000).poll_interval(), 1);
    }
}
