//! Power states: without a command for a time a drive leaves full power, and the next
//! command waits until it is back.
//!
//! NVMe's states of no operation (autonomous power state transitions: Linux writes the table of
//! idle times, `nvme_configure_apst`), and what a drive does by itself. On top of any model.

use alloc::boxed::Box;
use alloc::vec::Vec;

use blklab_blk::Nanos;
use blklab_description::{KeyType, array, keys, nanos, number};
use blklab_stats::{DeviceStats, DriveTimeline};

use crate::{Command, Completion, DataFault, Device, Identity};

/// An hour without a command.
const MAX_IDLE_MS: f64 = 3_600_000.0;
/// Ten seconds: more than any exit latency.
const MAX_EXIT_US: f64 = 10_000_000.0;
/// NVMe has so many.
const MAX_STATES: usize = 32;

keys! {
    /// What the drive does to save power while it has no command.
    #[derive(Clone, Debug, PartialEq)]
    pub struct PowerSpec(table) {
        /// The states that it comes to, the shallowest first, as pairs of milliseconds without
        /// a command after which it is there, and of microseconds that the next command waits
        /// (the exit latency). Linux has an NVMe drive go to the deepest state of which entry
        /// and exit latency together are up to 15 ms after 100 ms, and to the deepest with up to
        /// 100 ms after 2 s.
        pub states: Vec<PowerState> = states();
    }
}

/// A state of less than full power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerState {
    /// It is entered after this time without a command.
    idle: Nanos,
    /// Until the drive can take a command again.
    exit: Nanos,
}

fn states() -> KeyType<'static, Vec<PowerState>> {
    const LEGAL: &str = "an array of one to 32 [milliseconds, microseconds], each with more of \
                         both than the one before, up to 3600000 and 10000000";
    let pair = array(number(0.0..=1e9), LEGAL).such_that(
        |pair| pair.len() == 2 && pair[0] <= MAX_IDLE_MS && pair[1] <= MAX_EXIT_US,
        LEGAL,
    );
    array(pair, LEGAL)
        .such_that(|pairs| (1..=MAX_STATES).contains(&pairs.len()), LEGAL)
        .such_that(
            |pairs| {
                let mut neighbours = pairs.windows(2);
                neighbours.all(|of| of[0][0] < of[1][0] && of[0][1] < of[1][1])
            },
            LEGAL,
        )
        .map(|pairs: Vec<Vec<f64>>| {
            let state = |pair: &Vec<f64>| PowerState {
                idle: Nanos(nanos(pair[0] * 1e3)),
                exit: Nanos(nanos(pair[1])),
            };
            pairs.iter().map(state).collect()
        })
}

/// A drive that saves power.
pub(crate) struct PowerLayer {
    inner: Box<dyn Device>,
    states: Vec<PowerState>,
    /// Commands in it.
    commands: usize,
    /// When it last had none, while it has none.
    idle_since: Nanos,
    /// When it is back at full power.
    awake_at: Nanos,
    /// What came before that, and whether it reads what was never written.
    waiting: Vec<(Command, bool)>,
    wakes: u64,
    wakes_ns: u64,
}

impl PowerLayer {
    pub(crate) fn new(inner: Box<dyn Device>, spec: &PowerSpec) -> PowerLayer {
        PowerLayer {
            inner,
            states: spec.states.clone(),
            commands: 0,
            idle_since: Nanos::ZERO,
            awake_at: Nanos::ZERO,
            waiting: Vec::new(),
            wakes: 0,
            wakes_ns: 0,
        }
    }

    /// The first command after a time without any leaves the state that the drive is in.
    fn wake(&mut self, now: Nanos) {
        let idle = now.saturating_sub(self.idle_since);
        let state = self.states.iter().rfind(|state| state.idle <= idle);
        if let Some(state) = state {
            self.awake_at = now + state.exit;
            self.wakes += 1;
            self.wakes_ns += state.exit.0;
        }
    }

    fn take(&mut self, now: Nanos, command: Command, is_unwritten: bool) {
        if self.commands == 0 {
            self.wake(now);
        }
        self.commands += 1;
        if now < self.awake_at {
            self.waiting.push((command, is_unwritten));
            return;
        }
        self.hand_over();
        self.give(now, command, is_unwritten);
    }

    fn give(&mut self, at: Nanos, command: Command, is_unwritten: bool) {
        match is_unwritten {
            true => self.inner.submit_unwritten(at, command),
            false => self.inner.submit(at, command),
        }
    }

    /// The drive is awake: it gets what waited, in order.
    fn hand_over(&mut self) {
        let mut waiting = core::mem::take(&mut self.waiting);
        for (command, is_unwritten) in waiting.drain(..) {
            self.give(self.awake_at, command, is_unwritten);
        }
        self.waiting = waiting;
    }

    /// Counts what has ended.
    fn count_ends(&mut self, done: &[Completion]) {
        self.commands -= done.len();
        if let Some(last) = done.last()
            && self.commands == 0
        {
            self.idle_since = last.at;
        }
    }
}

impl Device for PowerLayer {
    fn identify(&self) -> &Identity {
        self.inner.identify()
    }

    fn submit(&mut self, now: Nanos, command: Command) {
        self.take(now, command, false);
    }

    fn submit_unwritten(&mut self, now: Nanos, command: Command) {
        self.take(now, command, true);
    }

    fn next_event(&self) -> Nanos {
        let waking = match self.waiting.is_empty() {
            true => Nanos::MAX,
            false => self.awake_at,
        };
        waking.min(self.inner.next_event())
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        let before = done.len();
        if !self.waiting.is_empty() && self.awake_at <= now {
            self.inner.advance(self.awake_at, done);
            self.hand_over();
        }
        self.inner.advance(now, done);
        self.count_ends(&done[before..]);
    }

    fn power_loss(&mut self, now: Nanos) -> Nanos {
        self.waiting.clear();
        self.commands = 0;
        let ready = self.inner.power_loss(now);
        (self.idle_since, self.awake_at) = (ready, Nanos::ZERO);
        ready
    }

    fn stats(&self, now: Nanos) -> DeviceStats {
        DeviceStats {
            wakes: self.wakes,
            wakes_ns: self.wakes_ns,
            ..self.inner.stats(now)
        }
    }

    fn reset_stats(&mut self, now: Nanos) {
        (self.wakes, self.wakes_ns) = (0, 0);
        self.inner.reset_stats(now);
    }

    fn take_data_fault(&mut self, tag: u32) -> Option<DataFault> {
        self.inner.take_data_fault(tag)
    }

    fn record(&mut self, on: bool) {
        self.inner.record(on);
    }

    fn take_record(&mut self, out: &mut DriveTimeline) {
        self.inner.take_record(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DriveSpec, MODELS};
    use blklab_blk::{Op, Sector};

    /// A read takes 100 us; after 1 ms another 20, after 50 ms another 5,000.
    fn drive() -> Box<dyn Device> {
        let text = "description = \"x\"\ninterface = \"null\"\nmodel = \"null\"\n\
                    [host]\ncapacity_bytes = 100663296\nqueue_depth = 32\n\
                    [timing]\nread_ns = 100000\nwrite_ns = 100000\nflush_ns = 100000\n\
                    parallelism = 4\n[power]\nstates = [[1, 20], [50, 5000]]\n";
        DriveSpec::parse("my.toml", text).expect("legal").build(1)
    }

    fn read(tag: u32) -> Command {
        Command {
            tag,
            queue: 0,
            op: Op::Read,
            sector: Sector(0),
            sectors: 8,
            fua: false,
        }
    }

    /// How long reads take that come at these times, in us.
    fn latencies_us(drive: &mut dyn Device, at_us: &[u64]) -> Vec<u64> {
        let mut latencies = Vec::new();
        let mut done = Vec::new();
        for (tag, &us) in at_us.iter().enumerate() {
            drive.advance(Nanos::from_micros(us), &mut done);
            drive.submit(Nanos::from_micros(us), read(tag as u32));
            latencies.push(0);
        }
        drive.advance_to_completion(Nanos::from_millis(10_000), &mut done);
        drive.advance(Nanos::from_millis(10_000), &mut done);
        assert_eq!(done.len(), at_us.len());
        for end in done {
            let tag = end.tag as usize;
            latencies[tag] = end.at.0 / 1000 - at_us[tag];
        }
        latencies
    }

    #[test]
    fn the_longer_it_was_idle_the_longer_the_next_command_takes() {
        // From one end to the next start: 0.9 ms, 1 ms, 49.9 ms, 50 ms.
        let starts = [0, 1_000, 2_100, 52_120, 102_240];
        let mut drive = drive();
        let took = latencies_us(&mut *drive, &starts);
        assert_eq!(took, [100, 100, 120, 120, 5_100]);
        let stats = drive.stats(Nanos::from_millis(10_000));
        assert_eq!((stats.wakes, stats.wakes_ns), (3, 5_040_000));
        drive.reset_stats(Nanos::from_millis(10_000));
        assert_eq!(drive.stats(Nanos::from_millis(10_000)).wakes, 0);
    }

    #[test]
    fn what_comes_while_it_wakes_waits_as_long_as_that_takes() {
        let mut drive = drive();
        let took = latencies_us(&mut *drive, &[100_000, 101_000, 105_000, 105_050]);
        assert_eq!(took, [5_100, 4_100, 100, 100]);
        assert_eq!(drive.stats(Nanos::from_millis(10_000)).wakes, 1);
    }

    #[test]
    fn a_loss_of_power_ends_what_waits_for_it() {
        let mut drive = drive();
        let mut done = Vec::new();
        let at = Nanos::from_millis(100);
        drive.advance(at, &mut done);
        drive.submit(at, read(0));
        let ready = drive.power_loss(at + Nanos(10));
        drive.submit(ready, read(1));
        drive.advance(Nanos::from_millis(1_000), &mut done);
        let ended: Vec<(u32, u64)> = done.iter().map(|end| (end.tag, end.at.0)).collect();
        assert_eq!(ended, [(1, ready.0 + 100_000)]);
    }

    #[test]
    fn states_that_are_not_deeper_are_refused() {
        let (_, complete) = MODELS[0].complete[0];
        let at = complete.find("[power]").expect("it has every key");
        for states in ["[]", "[[1, 2, 3]]", "[[1, 2], [1, 3]]", "[[1, 5], [2, 3]]"] {
            let text = [&complete[..at], "[power]\nstates = ", states, "\n"].concat();
            let error = DriveSpec::parse("my.toml", &text).expect_err(states);
            assert_eq!(error.key, "power.states", "{error}");
        }
    }
}
