//! What drives of every kind do is a pure function of description, commands and seed: on any
//! machine and after any change of the code that is not one of the model, a run has the results
//! that are recorded here. Where a model is changed on purpose, `INSTA_UPDATE=always` records them
//! anew, and the difference shows what the change does to which drive.

use std::collections::BTreeMap;
use std::fmt::Write;

use blklab_blk::{Nanos, Op, Sector, ZoneAction};
use blklab_device::{Command, CommandStatus, Completion, Device, DriveSpec, DriveState, Faults};
use blklab_stats::DriveTimeline;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use crate::harness::Rng;
use crate::small::{Small, small, small_in_rows, small_with_logs};
use crate::texts::{changed, complete};

/// Commands of a run; the power is cut after two thirds of them, and the counts start anew after
/// the first tenth.
const COMMANDS: u32 = 1500;
const RESET_AT: u32 = COMMANDS / 10;
const POWER_LOSS_AT: u32 = COMMANDS * 2 / 3;

/// Sequential streams beside random commands.
const STREAMS: usize = 3;

/// A drive under commands of every kind, and what came of them.
struct Run {
    drive: Box<dyn Device>,
    rng: Rng,
    now: Nanos,
    streams: [u64; STREAMS],
    /// By tag: operation and time of the commands in flight.
    in_flight: BTreeMap<u32, (Op, Nanos)>,
    done: Vec<Completion>,
    /// By operation: commands that ended well and not, their time, and the longest.
    ended: BTreeMap<&'static str, [u64; 4]>,
    data_faults: u64,
}

impl Run {
    fn new(spec: &DriveSpec, seed: u64) -> Run {
        let mut drive = spec.build(seed);
        drive.record(true);
        Run {
            drive,
            rng: Rng::new(seed),
            now: Nanos::ZERO,
            streams: [0; STREAMS],
            in_flight: BTreeMap::new(),
            done: Vec::new(),
            ended: BTreeMap::new(),
            data_faults: 0,
        }
    }

    /// Operation, first sector and length of the next command.
    fn draw(&mut self) -> (Op, u64, u32) {
        let capacity = self.drive.identify().capacity_sectors;
        let sectors = [8, 8, 8, 3, 16, 64][self.rng.below(6) as usize];
        let op = match self.rng.below(100) {
            0..=1 => Op::Flush,
            2..=4 if self.drive.identify().discard => Op::Discard,
            5..=6 => Op::WriteZeroes,
            7..=50 => Op::Read,
            _ => Op::Write,
        };
        if op == Op::Flush {
            return (op, 0, 0);
        }
        let sector = match self.rng.below(8) {
            // A stream of reads and one of writes, and one that both follow.
            stream @ 0..3 => {
                let next = &mut self.streams[stream as usize];
                let at = *next;
                *next = (*next + u64::from(sectors)) % (capacity - 64);
                at
            }
            3 => self.rng.below(capacity - 64),
            4 | 5 => self.rng.below(capacity / 8 - 8) * 8,
            // A hot eighth.
            _ => self.rng.below(capacity / 64) * 8,
        };
        (op, sector, sectors)
    }

    fn submit(&mut self, tag: u32, (op, sector, sectors): (Op, u64, u32)) {
        self.in_flight.insert(tag, (op, self.now));
        let command = Command {
            tag,
            queue: (tag % 4) as u16,
            op,
            sector: Sector(sector),
            sectors,
            fua: op == Op::Write && self.rng.below(16) == 0,
        };
        self.drive.submit(self.now, command);
    }

    fn take_ends(&mut self) {
        for end in self.done.drain(..) {
            let (op, since) = self.in_flight.remove(&end.tag).expect("it was in flight");
            let took_ns = (end.at - since).0;
            let ok = end.status == CommandStatus::Ok;
            let [well, badly, all_ns, longest_ns] = self.ended.entry(name(op)).or_default();
            *if ok { well } else { badly } += 1;
            *all_ns += took_ns;
            *longest_ns = took_ns.max(*longest_ns);
            self.data_faults += self.drive.take_data_fault(end.tag).is_some() as u64;
        }
    }

    /// Lets time pass until at most `depth` commands are in flight.
    fn wait_for(&mut self, depth: usize) {
        while self.in_flight.len() > depth {
            self.now = (self.drive).advance_to_completion(Nanos::MAX, &mut self.done);
            self.take_ends();
        }
    }

    fn pause(&mut self, ns: u64) {
        self.now += Nanos(ns);
        self.drive.advance(self.now, &mut self.done);
        self.take_ends();
    }

    fn lose_power(&mut self) {
        self.in_flight.clear();
        self.now = self.drive.power_loss(self.now);
    }

    fn mixed(&mut self, commands: u32) {
        let most = self.drive.identify().queue_depth.min(24) as u64;
        for tag in 0..commands {
            match tag {
                RESET_AT => self.drive.reset_stats(self.now),
                POWER_LOSS_AT => self.lose_power(),
                _ => {}
            }
            let command = self.draw();
            self.submit(tag, command);
            // Mostly busy, at times with one command, and at times idle for long.
            let depth = if tag % 300 < 40 {
                0
            } else {
                self.rng.below(most)
            };
            self.wait_for(depth as usize);
            if self.rng.below(60) == 0 {
                let ns = self.rng.below(20_000_000);
                self.pause(ns);
            }
        }
        self.wait_for(0);
        self.pause(10_000_000_000);
    }

    /// What came of it, a line for each kind of command, each part of the drive and its counts.
    fn result(mut self, name: &str) -> String {
        let mut text = format!("{name}: {} ns\n", self.now.0);
        for (op, [well, badly, all_ns, longest_ns]) in &self.ended {
            let _ = writeln!(
                text,
                "  {op} {well}+{badly} {all_ns} ns, at most {longest_ns}"
            );
        }
        if self.data_faults > 0 {
            let _ = writeln!(text, "  data faults {}", self.data_faults);
        }
        let mut timeline = DriveTimeline::default();
        self.drive.take_record(&mut timeline);
        for (work, [count, ns, commands]) in works(&timeline) {
            let _ = writeln!(text, "  {work} {count} {ns} ns for {commands}");
        }
        text + &counts(&format!("{:#?}", self.drive.stats(self.now)))
    }
}

fn name(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write => "write",
        Op::Discard => "discard",
        Op::WriteZeroes => "write zeroes",
        Op::Flush => "flush",
        Op::Zone(_) => "zone",
    }
}

/// Activities of all parts by kind: their number, time, and the commands that they were for.
fn works(timeline: &DriveTimeline) -> BTreeMap<String, [u64; 3]> {
    let mut works: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    for activity in &timeline.activities {
        let work = format!("{:?} for {:?}", activity.work, activity.cause);
        let [count, ns, commands] = works.entry(work).or_default();
        *count += 1;
        *ns += activity.end_ns - activity.start_ns;
        *commands += timeline.commands_of(activity).len() as u64;
    }
    works
}

/// The counts that are not zero, those of one struct in a line.
fn counts(debug: &str) -> String {
    let mut text = String::new();
    for line in debug.lines().map(str::trim) {
        let zero = [
            ": 0,", ": 0.0,", ": None,", ": [],", "},", "],", ")", "),", "}",
        ];
        if zero.iter().any(|zero| line.ends_with(zero)) {
            continue;
        }
        match line.ends_with(['{', '[', '(']) {
            true => text += &format!("\n  {line}"),
            false => text += &format!(" {line}"),
        }
    }
    // Structs without any other count.
    let lines = text.lines().filter(|line| !line.ends_with(['{', '[', '(']));
    lines.map(|line| line.to_string() + "\n").collect()
}

fn parse(text: &str) -> DriveSpec {
    DriveSpec::parse("drive.toml", text).unwrap_or_else(|error| panic!("{error}"))
}

fn recorded(name: &str, spec: &DriveSpec, seed: u64) -> String {
    let mut run = Run::new(spec, seed);
    run.mixed(COMMANDS);
    run.result(name)
}

/// The same drives each time: the strategy's first ones.
fn drawn(drives: impl Strategy<Value = Small>, count: u32) -> String {
    let mut runner = TestRunner::deterministic();
    (0..count)
        .map(|number| {
            let drive = drives.new_tree(&mut runner).expect("a drive").current();
            recorded(&format!("{number}"), &parse(&drive.text()), number.into())
        })
        .collect()
}

#[test]
fn small_ssds_do_as_recorded() {
    insta::assert_snapshot!("small", drawn(small(), 40));
    insta::assert_snapshot!("in_rows", drawn(small_in_rows(), 24));
    insta::assert_snapshot!("with_logs", drawn(small_with_logs(), 16));
}

/// Texts in a description, each with the one that stands there instead.
type Changes<'a> = &'a [(&'a str, &'a str)];

/// The description that has every key of its kind, with changes.
fn of_kind(kind: &str, changes: Changes<'_>) -> DriveSpec {
    parse(&changed(&complete(kind), changes))
}

#[test]
fn drives_with_every_key_do_as_recorded() {
    let mut text = String::new();
    for (kind, state) in [
        ("ssd-pages", DriveState::Aged),
        ("ssd-pages", DriveState::Fresh),
        ("ssd-blocks", DriveState::Aged),
        ("card-log", DriveState::Filled),
        ("card-map", DriveState::Filled),
        ("disk", DriveState::Filled),
        ("null", DriveState::Filled),
    ] {
        let spec = of_kind(kind, &[]);
        let spec = spec.clone().in_state(state).unwrap_or(spec);
        text += &recorded(&format!("{kind}, {state}"), &spec, 3);
    }
    insta::assert_snapshot!("every_key", text);
}

#[test]
fn disks_do_as_recorded() {
    let variants: [(&str, Changes<'_>); 5] = [
        (
            "first come",
            &[("\"shortest_positioning\"\npatience_us = 500000", "\"fcfs\"")],
        ),
        ("serpentine", &[("serpentine = false", "serpentine = true")]),
        (
            "small buffer",
            &[(
                "size_kb = 65536\nsegments = 16",
                "size_kb = 4096\nsegments = 2",
            )],
        ),
        (
            "eager",
            &[
                ("patience_us = 500000", "patience_us = 20000"),
                ("dirty_share = 0.25", "dirty_share = 0.01"),
            ],
        ),
        (
            "no read-ahead",
            &[(
                "read_ahead_kb = 2048\nread_ahead_min_kb = 1024",
                "read_ahead_kb = 0\nread_ahead_min_kb = 0",
            )],
        ),
    ];
    let text: String = variants
        .map(|(name, changes)| recorded(name, &of_kind("disk", changes), 7))
        .concat();
    insta::assert_snapshot!("disks", text);
}

#[test]
fn faulty_drives_do_as_recorded() {
    let faults =
        "read_error=0.05,bit_rot=0.05,stale_read=0.05,misdirected_read=0.05,stall=0.05:3ms,slow=2";
    let faults = Faults::parse(faults).unwrap_or_else(|error| panic!("{error}"));
    let text = recorded("card", &of_kind("card-log", &[]).with_faults(faults), 9);
    insta::assert_snapshot!("faulty", text);
}

/// Zones that are written in order, beside reads, and opened, closed, finished and reset.
#[test]
fn zones_do_as_recorded() {
    let zones = include_str!("../../complete/zones.toml");
    let text: String = ["card-log", "card-map", "null"]
        .map(|kind| {
            let text = complete(kind);
            let text = match text.contains(zones) {
                true => text,
                false => text + zones,
            };
            let mut run = Run::new(&parse(&text), 11);
            in_zones(&mut run);
            run.result(kind)
        })
        .concat();
    insta::assert_snapshot!("zones", text);
}

fn in_zones(run: &mut Run) {
    let limits = run.drive.identify().zones.expect("it has zones");
    let (size, capacity) = (
        u64::from(limits.zone_sectors),
        u64::from(limits.capacity_sectors),
    );
    let zones = run.drive.identify().capacity_sectors / size;
    let mut written = vec![0; zones as usize];
    for tag in 0..COMMANDS {
        let zone = run.rng.below(zones.min(24));
        let next = &mut written[zone as usize];
        let start = zone * size;
        let command = match run.rng.below(20) {
            0 => (Op::Zone(ZoneAction::Reset), start, 0),
            1 => (Op::Zone(ZoneAction::Open), start, 0),
            2 => (Op::Zone(ZoneAction::Close), start, 0),
            3 => (Op::Zone(ZoneAction::Finish), start, 0),
            4..=9 => (Op::Read, start + run.rng.below(size - 64), 32),
            // Not where the zone goes on.
            10 => (Op::Write, start + run.rng.below(capacity), 8),
            _ => (Op::Write, start + *next, 64),
        };
        match command.0 {
            Op::Zone(ZoneAction::Reset) => *next = 0,
            Op::Write if command.2 == 64 => *next = (*next + 64) % capacity,
            _ => {}
        }
        run.submit(tag, command);
        let depth = run.rng.below(4);
        run.wait_for(depth as usize);
    }
    run.wait_for(0);
}
