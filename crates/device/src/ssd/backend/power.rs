//! Loss of power: everything stops at once.

use super::super::lanes::Lanes;
use super::super::op::Ops;
use super::Backend;
use super::unit::Phase;

impl Backend {
    /// Stops everything at once. Returns the owners of page programs that were
    /// changing the array.
    pub(crate) fn power_off(&mut self, now_ns: u64) -> Vec<u32> {
        let mut interrupted = Vec::new();
        self.plane_busy_ns = self.planes_busy_until(now_ns);
        for unit in &mut self.units {
            if unit.phase != Phase::Idle {
                let channel = &mut self.channels[unit.channel as usize];
                // What was going to arrive at an idle drive may have started.
                channel.leave(now_ns.max(channel.active_since_ns));
            }
            if let Some(stopped) = unit.suspended {
                interrupted.extend(self.ops.programs_of(stopped.group));
            }
            // Before that its data was still on the bus.
            if unit.phase == Phase::Busy && unit.began_ns <= now_ns {
                interrupted.extend(self.ops.programs_of(unit.group));
            }
            *unit = unit.powered_off(now_ns);
        }
        for channel in &mut self.channels {
            *channel = channel.powered_off(now_ns);
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.forget_all();
        }
        self.ops = Ops::new();
        self.lanes = Lanes::new();
        self.in_order.clear();
        self.finished.clear();
        interrupted
    }
}
