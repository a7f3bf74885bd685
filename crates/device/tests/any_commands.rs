//! Any legal mix of commands on any small drive: everything ends once, time
//! never runs back, and the drive's word on its next event can be relied on.

use blklab_blk::{Nanos, Op, Sector};
use blklab_device::{Command, CommandStatus, Completion, Device, DriveSpec};
use proptest::prelude::*;

/// A drive of a few hundred pages, small enough to be collected all the time.
#[derive(Clone, Debug)]
struct Small {
    channels: u32,
    packages: u32,
    dies: u32,
    planes: u32,
    spare_blocks: u32,
    page_kb: u32,
    map_unit: u32,
    layout: &'static str,
    scheduling: &'static str,
    interleave: &'static str,
    multi_plane: &'static str,
    policy: &'static str,
    cache: bool,
    protected: bool,
    suspend: bool,
    preemptible: bool,
    filled: bool,
    full_duplex: bool,
    slc: &'static str,
}

/// SLC caches, of a static and up to two dynamic blocks a plane.
const SLC_CACHES: [&str; 4] = [
    "",
    "[slc_cache]\nstatic_mb = 0.001\nwhen_full = \"direct\"\nfold_after_us = 500\n",
    "[slc_cache]\nstatic_mb = 0.001\ndynamic_mb = 0.1\nwhen_full = \"wait\"\n",
    "[slc_cache]\ndynamic_mb = 0.1\nwhen_full = \"wait\"\nfold_after_us = 100\n",
];

const PAGES_PER_BLOCK: u64 = 8;
const DATA_BLOCKS: u64 = 7;

impl Small {
    fn capacity_bytes(&self) -> u64 {
        let planes = (self.channels * self.packages * self.dies * self.planes) as u64;
        let bytes = planes * DATA_BLOCKS * PAGES_PER_BLOCK * self.page_kb as u64 * 1024;
        // Rounding to a page in every plane is checked by the drive.
        (bytes - planes * self.page_kb as u64 * 1024).max(1 << 20)
    }

    fn text(&self) -> String {
        let blocks = DATA_BLOCKS as u32 * 8 / 7
            + 5
            + self.spare_blocks
            + 2 * !self.slc.is_empty() as u32
            + (1 << 20) / (self.page_kb * 1024 * PAGES_PER_BLOCK as u32);
        let suspend = if self.suspend {
            "program_suspend_us = 5\nerase_suspend_us = 5\nsuspend_above_us = 10"
        } else {
            ""
        };
        format!(
            r#"
description = "small"
interface = "nvme"
model = "ssd"
state = "{state}"
[host]
capacity_bytes = {capacity}
queue_depth = 64
discard = true
fua = true
[link]
bandwidth_mb_s = 1000
full_duplex = {full_duplex}
submit_us = 0.1
complete_us = 0.1
[controller]
read_us = 1
write_us = 2
interval_us = 0.2
scheduling = "{scheduling}"
[geometry]
channels = {channels}
packages_per_channel = {packages}
dies_per_package = {dies}
planes_per_die = {planes}
blocks_per_plane = {blocks}
pages_per_block = {PAGES_PER_BLOCK}
page_kb = {page_kb}
[flash]
cell = "mlc"
read_us = [50, 75]
program_us = [300, 900]
erase_us = 2000
interleave = "{interleave}"
multi_plane = "{multi_plane}"
{suspend}
[channel]
rate_mt_s = 333
codeword_bytes = 512
[ftl]
map_unit_bytes = {map_unit}
order = "CWDP"
layout = "{layout}"
[write_cache]
enabled = {cache}
size_kb = 1024
bandwidth_mb_s = 200
power_loss_protection = {protected}
[gc]
policy = "{policy}"
start_blocks = 3
reserve_blocks = 1
preemptible = {preemptible}
{slc}"#,
            state = if self.filled { "filled" } else { "fresh" },
            capacity = self.capacity_bytes(),
            full_duplex = self.full_duplex,
            scheduling = self.scheduling,
            channels = self.channels,
            packages = self.packages,
            dies = self.dies,
            planes = self.planes,
            page_kb = self.page_kb,
            interleave = self.interleave,
            multi_plane = self.multi_plane,
            map_unit = self.map_unit,
            layout = self.layout,
            cache = self.cache,
            protected = self.protected,
            policy = self.policy,
            preemptible = self.preemptible,
            slc = match self.slc {
                "" => String::new(),
                table => format!("{table}read_us = 20\nprogram_us = 100\n"),
            },
        )
    }
}

fn small() -> impl Strategy<Value = Small> {
    let shape = (1u32..4, 1u32..3, 1u32..3, 1u32..3, 0u32..4);
    let names = (
        prop::sample::select(vec!["striped", "ranges"]),
        prop::sample::select(vec!["fcfs", "out_of_order", "read_priority"]),
        prop::sample::select(vec!["package", "die", "plane"]),
        prop::sample::select(vec!["none", "same_page", "any"]),
        prop::sample::select(vec!["greedy", "d_choices", "fifo", "cost_benefit"]),
        prop::sample::select(vec![(4, 4096), (8, 4096), (8, 8192), (16, 4096)]),
    );
    let flags = prop::array::uniform6(any::<bool>());
    let slc = prop::sample::select(SLC_CACHES.to_vec());
    (shape, names, flags, slc).prop_map(|(shape, names, flags, slc)| Small {
        channels: shape.0,
        packages: shape.1,
        dies: shape.2,
        planes: shape.3,
        spare_blocks: shape.4,
        layout: names.0,
        scheduling: names.1,
        interleave: names.2,
        multi_plane: names.3,
        policy: names.4,
        page_kb: names.5.0,
        map_unit: names.5.1,
        cache: flags[0],
        protected: flags[1],
        suspend: flags[2],
        preemptible: flags[3],
        filled: flags[4],
        full_duplex: flags[5],
        slc,
    })
}

#[derive(Clone, Debug)]
struct Step {
    kind: u8,
    place: u32,
    sectors: u32,
    fua: bool,
    pause_us: u16,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0u8..40, any::<u32>(), 1u32..64, any::<bool>(), 0u16..300).prop_map(
        |(kind, place, sectors, fua, pause_us)| Step {
            kind,
            place,
            sectors,
            fua: fua && place % 4 == 0,
            pause_us: if place % 8 == 0 { pause_us } else { 0 },
        },
    );
    prop::collection::vec(step, 1..1500)
}

/// Lets the drive run up to `now`, one event at a time.
fn run_to(drive: &mut dyn Device, now: Nanos, done: &mut Vec<Completion>) {
    loop {
        let next = drive.next_event();
        if next > now || next == Nanos::MAX {
            return;
        }
        let before = done.len();
        drive.advance(next, done);
        assert!(drive.next_event() > next, "an event stays due");
        assert!(
            done[before..].iter().all(|c| c.at <= next),
            "an end from the future"
        );
    }
}

/// Submits the steps with at most `depth` outstanding and checks every end.
fn check(spec: &DriveSpec, steps: &[Step], depth: usize) -> Result<(), TestCaseError> {
    let mut drive = spec.build(7);
    let capacity = spec.identity().capacity_sectors;
    let discards = spec.identity().discard;
    let mut now = Nanos::ZERO;
    let mut done = Vec::new();
    // The status that every command in flight should end with.
    let mut in_flight = vec![None; steps.len()];
    let mut last = Nanos::ZERO;
    let mut outstanding = 0usize;
    let mut take = |done: &mut Vec<Completion>, in_flight: &mut [Option<CommandStatus>]| {
        for completion in done.drain(..) {
            prop_assert!(completion.at >= last);
            last = completion.at;
            let expected = in_flight[completion.tag as usize].take();
            prop_assert_eq!(expected, Some(completion.status));
        }
        Ok(())
    };
    for (tag, step) in steps.iter().enumerate() {
        let op = match step.kind {
            0 => Op::Flush,
            1 => Op::Discard,
            2 => Op::WriteZeroes,
            3..=12 => Op::Read,
            _ => Op::Write,
        };
        // A few start beyond the end or reach over it.
        let sector = step.place as u64 % (capacity + 32);
        let sectors = if op == Op::Flush { 0 } else { step.sectors };
        let legal = op == Op::Flush
            || (sector + sectors as u64 <= capacity && (op != Op::Discard || discards));
        drive.submit(
            now,
            Command {
                tag: tag as u32,
                queue: 0,
                op,
                sector: Sector(sector),
                sectors,
                fua: step.fua,
            },
        );
        in_flight[tag] = Some(if legal {
            CommandStatus::Ok
        } else {
            CommandStatus::IoError
        });
        outstanding += 1;
        now = Nanos(now.0 + step.pause_us as u64 * 1000);
        run_to(drive.as_mut(), now, &mut done);
        while outstanding - done.len() >= depth {
            now = drive.next_event();
            prop_assert!(now < Nanos::MAX, "stuck with {outstanding} outstanding");
            run_to(drive.as_mut(), now, &mut done);
        }
        outstanding -= done.len();
        take(&mut done, &mut in_flight)?;
    }
    run_to(drive.as_mut(), Nanos(u64::MAX - 1), &mut done);
    take(&mut done, &mut in_flight)?;
    prop_assert!(
        in_flight.iter().all(Option::is_none),
        "a command never ended"
    );
    prop_assert_eq!(drive.next_event(), Nanos::MAX);
    Ok(())
}

/// A disk of 2 MiB.
fn disk(fcfs: bool, write_back: bool, read_ahead_kb: u32) -> String {
    format!(
        r#"
description = "small"
interface = "ahci"
model = "hdd"
[host]
capacity_bytes = 2097152
queue_depth = 32
fua = true
[link]
bandwidth_mb_s = 560
submit_us = 1
complete_us = 1
[controller]
command_us = 20
scheduling = "{scheduling}"
patience_us = 50000
[mechanics]
heads = 2
turns_per_minute = 7200
zones = [[20, 64], [40, 48]]
track_seek_us = 1000
average_seek_us = 8000
full_seek_us = 15000
head_switch_us = 800
write_settle_us = 500
[cache]
size_kb = 128
segments = 4
read_ahead_kb = {read_ahead_kb}
write_back = {write_back}
"#,
        scheduling = if fcfs { "fcfs" } else { "shortest_positioning" },
    )
}

fn parse(text: &str) -> DriveSpec {
    DriveSpec::parse("small.toml", text).unwrap_or_else(|error| panic!("{error}"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn an_ssd_ends_everything_once_and_in_order(
        small in small(), steps in steps(), depth in 1usize..48,
    ) {
        check(&parse(&small.text()), &steps, depth)?;
    }

    #[test]
    fn a_disk_ends_everything_once_and_in_order(
        fcfs: bool, write_back: bool, ahead in 0u32..64, steps in steps(), depth in 1usize..32,
    ) {
        check(&parse(&disk(fcfs, write_back, ahead)), &steps, depth)?;
    }

    #[test]
    fn a_null_drive_ends_everything_once_and_in_order(steps in steps(), depth in 1usize..100) {
        let text = blklab_device::registry::text("null").expect("listed");
        check(&parse(text), &steps, depth)?;
    }
}
