//! Guarantees about data, under any legal mix of commands and with losses of power at any
//! time: a read returns the last write that was acknowledged before it, and flushed data
//! survives.

use std::collections::BTreeMap;

use blklab_blk::{Nanos, Op, Sector};
use proptest::prelude::*;

use crate::ssd::Ssd;
use crate::ssd::ftl::shadow::{Value, initial_value};
use crate::ssd::tests::small_drives::{Small, small};
use crate::ssd::tests::{followed, spec_of};
use crate::{Command, CommandStatus, Completion, Device};

/// A write of one sector, with the steps of the test at which things happened.
#[derive(Clone, Copy, Debug)]
struct Write {
    value: Value,
    submitted: u32,
    acknowledged: Option<u32>,
    durable: bool,
}

impl Write {
    /// Whether it was over before `step`.
    fn ended_before(&self, step: u32) -> bool {
        self.acknowledged.is_some_and(|at| at < step)
    }
}

/// All writes of one sector since it was last known for certain.
#[derive(Clone, Debug)]
struct History(Vec<Write>);

impl History {
    fn known(value: Value) -> History {
        History(vec![Write {
            value,
            submitted: 0,
            acknowledged: Some(0),
            durable: true,
        }])
    }

    /// Whether `value` may be found, given the later writes that `counts` says
    /// are certain to have happened.
    fn allows(&self, value: Value, counts: impl Fn(&Write) -> bool) -> bool {
        self.0.iter().filter(|w| w.value == value).any(|write| {
            let overwritten = |later: &&Write| counts(later) && write.ended_before(later.submitted);
            self.0.iter().find(overwritten).is_none()
        })
    }
}

#[derive(Clone, Debug)]
enum HostAction {
    Command {
        op: Op,
        place: u32,
        sectors: u32,
        fua: bool,
    },
    Wait {
        ns: u64,
    },
    PowerLoss,
}

fn steps() -> impl Strategy<Value = Vec<HostAction>> {
    let command = |op, most: u32| {
        (any::<u32>(), 1..most, prop::bool::weighted(0.2)).prop_map(move |(place, sectors, fua)| {
            HostAction::Command {
                op,
                place,
                sectors,
                fua: fua && matches!(op, Op::Write | Op::WriteZeroes),
            }
        })
    };
    let step = prop_oneof![
        40 => command(Op::Write, 48),
        20 => command(Op::Read, 64),
        2 => command(Op::Discard, 200),
        1 => command(Op::WriteZeroes, 100),
        2 => Just(HostAction::Command { op: Op::Flush, place: 0, sectors: 0, fua: false }),
        6 => (0u64..3_000_000).prop_map(|ns| HostAction::Wait { ns }),
        1 => Just(HostAction::PowerLoss),
    ];
    prop::collection::vec(step, 1..900)
}

/// A drive, what was asked of it and what it has answered.
struct Trial {
    drive: Ssd,
    now: Nanos,
    step: u32,
    sectors: Vec<History>,
    in_flight: BTreeMap<u32, (Command, u32)>,
    next_tag: u32,
    done: Vec<Completion>,
    /// Every acknowledged write is safe.
    always_durable: bool,
}

impl Trial {
    fn new(small: &Small) -> Trial {
        let drive = followed(spec_of(&small.text()), 7);
        let initial = |sector: u64| match small.filled {
            true => History::known(initial_value(sector)),
            false => History::known(0),
        };
        let sectors = drive.controller.media.spec.identity.capacity_sectors;
        Trial {
            drive,
            now: Nanos::ZERO,
            step: 1,
            sectors: (0..sectors).map(initial).collect(),
            in_flight: BTreeMap::new(),
            next_tag: 0,
            done: Vec::new(),
            always_durable: small.protected || !small.cache,
        }
    }

    /// The part of a command's range that it is certain to change, in sectors.
    fn changed(&self, command: &Command) -> std::ops::Range<usize> {
        let unit = self.drive.controller.media.spec.ftl.map_unit_bytes as usize / 512;
        let (start, end) = (
            command.sector.0 as usize,
            command.sector.0 as usize + command.sectors as usize,
        );
        match command.op {
            Op::Write | Op::WriteZeroes => start..end,
            Op::Discard => {
                let start = start.next_multiple_of(unit);
                start..(end / unit * unit).max(start)
            }
            Op::Read | Op::Flush | Op::Zone(_) => 0..0,
        }
    }

    fn submit(&mut self, op: Op, sector: u64, sectors: u32, fua: bool) {
        self.step += 1;
        let command = Command {
            tag: self.next_tag,
            queue: 0,
            op,
            sector: Sector(sector),
            sectors,
            fua,
        };
        self.next_tag += 1;
        let write = Write {
            value: match op {
                Op::Write => command.tag as Value + 1,
                _ => 0,
            },
            submitted: self.step,
            acknowledged: None,
            durable: false,
        };
        for sector in self.changed(&command) {
            self.sectors[sector].0.push(write);
        }
        self.in_flight.insert(command.tag, (command, self.step));
        self.drive.submit(self.now, command);
    }

    /// Lets the drive run up to `until`, one event at a time.
    fn run(&mut self, until: Nanos) {
        while self.drive.next_event() <= until && self.drive.next_event() != Nanos::MAX {
            let next = self.drive.next_event();
            assert!(next >= self.now, "time runs back");
            self.now = next;
            self.drive.advance(next, &mut self.done);
            assert!(self.drive.next_event() > next, "an event stays due");
            for end in std::mem::take(&mut self.done) {
                assert_eq!(end.at, next, "an end at another time than its event");
                self.complete(end);
            }
        }
    }

    fn complete(&mut self, end: Completion) {
        self.step += 1;
        let (command, submitted) = self.in_flight.remove(&end.tag).expect("ends once");
        assert_eq!(end.status, CommandStatus::Ok, "{command:?}");
        let durable = self.always_durable || command.fua;
        for sector in self.changed(&command) {
            let writes = &mut self.sectors[sector].0;
            let write = writes.iter_mut().find(|w| w.submitted == submitted);
            let write = write.expect("it was submitted");
            write.acknowledged = Some(self.step);
            write.durable |= durable;
        }
        match command.op {
            Op::Read => self.check_read(&command, submitted),
            Op::Flush => {
                for write in self.sectors.iter_mut().flat_map(|h| &mut h.0) {
                    write.durable |= write.ended_before(submitted);
                }
            }
            _ => {}
        }
    }

    fn data_of(&mut self, command: &Command) -> Vec<Value> {
        let shadow = self
            .drive
            .controller
            .media
            .ftl
            .shadow
            .as_mut()
            .expect("followed");
        let data = shadow.take_data(command.tag).expect("a read has data");
        assert_eq!(data.len(), command.sectors as usize);
        data
    }

    fn check_read(&mut self, command: &Command, submitted: u32) {
        for (place, value) in self.data_of(command).into_iter().enumerate() {
            let sector = command.sector.0 as usize + place;
            let history = &self.sectors[sector];
            assert!(
                history.allows(value, |later| later.ended_before(submitted)),
                "sector {sector} reads {value:#x} after {history:?}"
            );
        }
    }

    /// Cuts the power and reads what is left.
    fn lose_power(&mut self) {
        self.drive.power_loss(self.now);
        self.in_flight.clear();
        self.check_inside();
        let found = self.read_all();
        for (sector, value) in found.into_iter().enumerate() {
            let history = &self.sectors[sector];
            assert!(
                history.allows(value, |later| later.durable),
                "sector {sector} has {value:#x} after a loss of power and {history:?}",
            );
            self.sectors[sector] = History::known(value);
        }
    }

    fn read_all(&mut self) -> Vec<Value> {
        let mut found = Vec::new();
        while found.len() < self.sectors.len() {
            let sectors = (self.sectors.len() - found.len()).min(64);
            self.submit(Op::Read, found.len() as u64, sectors as u32, false);
            let (_, (command, _)) = self.in_flight.pop_first().expect("submitted");
            while self.done.is_empty() {
                self.now = self.drive.next_event();
                self.drive.advance(self.now, &mut self.done);
            }
            self.done.clear();
            found.extend(self.data_of(&command));
        }
        found
    }

    fn check_inside(&self) {
        self.drive.check_at_rest();
        if let Some(map) = self.drive.controller.media.ftl.map() {
            map.check();
        }
        let shadow = self
            .drive
            .controller
            .media
            .ftl
            .shadow
            .as_ref()
            .expect("followed");
        for (block, pages) in self
            .drive
            .controller
            .media
            .ftl
            .blocks()
            .programmed
            .iter()
            .enumerate()
        {
            assert_eq!(
                shadow.pages_programmed(block as u32),
                *pages as u32,
                "block {block}"
            );
        }
    }
}

/// Carries out the steps, with at most `depth` commands outstanding.
fn keeps_its_promises(small: &Small, steps: &[HostAction], depth: usize) {
    let mut trial = Trial::new(small);
    let capacity = trial.drive.controller.media.spec.identity.capacity_sectors;
    for step in steps {
        match *step {
            HostAction::Wait { ns } => trial.run(Nanos(trial.now.0 + ns)),
            HostAction::PowerLoss => trial.lose_power(),
            HostAction::Command {
                op,
                place,
                sectors,
                fua,
            } => {
                let sector = place as u64 % capacity;
                let sectors = (sectors as u64).min(capacity - sector) as u32;
                trial.submit(op, sector, sectors, fua);
                while trial.in_flight.len() >= depth {
                    assert!(trial.drive.next_event() < Nanos::MAX, "a command is lost");
                    trial.run(trial.drive.next_event());
                }
            }
        }
    }
    trial.run(Nanos(u64::MAX - 1));
    assert!(trial.in_flight.is_empty(), "a command is lost");
    trial.check_inside();
    // What is at rest survives if it was flushed.
    trial.submit(Op::Flush, 0, 0, false);
    trial.run(Nanos(u64::MAX - 1));
    trial.lose_power();
}

proptest! {
    #[test]
    fn a_drive_keeps_its_promises(small in small(), steps in steps(), depth in 1usize..40) {
        keeps_its_promises(&small, &steps, depth);
    }
}
