//! Small SSDs of every kind, for property tests.

use proptest::prelude::*;

/// A drive of a few hundred pages, small enough to be collected all the time.
#[derive(Clone, Debug)]
pub struct Small {
    channels: u32,
    packages: u32,
    dies: u32,
    planes: u32,
    spare_blocks: u32,
    pages_per_block: u32,
    /// Free blocks of a plane below which collection starts, and the host waits.
    start_blocks: u32,
    reserve_blocks: u32,
    page_kb: u32,
    map_unit: u32,
    layout: &'static str,
    scheduling: &'static str,
    reads_in_a_row: u32,
    commands_first: bool,
    interleave: &'static str,
    multi_plane: &'static str,
    policy: &'static str,
    pub cache: bool,
    pub protected: bool,
    suspend: bool,
    preemptible: bool,
    pub filled: bool,
    /// Overwritten for long instead.
    aged: Option<Aged>,
    full_duplex: bool,
    cached_map: bool,
    slc: &'static str,
    allocation: &'static str,
    read_cache: bool,
    scope: &'static str,
    wear: &'static str,
    copyback: &'static str,
    /// Sequential and random logs of a plane, and the associativity of the
    /// latter, under hybrid mapping.
    logs: Option<(u32, u32, Option<u32>)>,
    /// Host writes are throttled to the pace of collection.
    paced: bool,
    superpage: bool,
}

/// How a drive was overwritten before the start.
#[derive(Clone, Copy, Debug)]
struct Aged {
    occupancy: f64,
    /// Share of the data that is hot, and of the writes that go there.
    hot: (f64, f64),
    simulate: bool,
}

/// SLC caches, of a static and up to two dynamic blocks a plane.
const SLC_CACHES: [&str; 4] = [
    "",
    "[slc_cache]\nstatic_mb = 0.001\nwhen_full = \"direct\"\nfold_after_us = 500\n",
    "[slc_cache]\nstatic_mb = 0.001\ndynamic_mb = 0.1\nwhen_full = \"wait\"\n",
    "[slc_cache]\ndynamic_mb = 0.1\nwhen_full = \"wait\"\nfold_after_us = 100\n",
];

const CAPACITY_BYTES: u64 = 1 << 20;

impl Small {
    /// No more blocks than collection needs, and a few to spare.
    fn blocks(&self) -> u64 {
        let planes = (self.channels * self.packages * self.dies * self.planes) as u64;
        let per_page = self.page_kb as u64 * 1024 / self.map_unit as u64;
        let per_plane = CAPACITY_BYTES / self.map_unit as u64 / planes + 1 + per_page;
        let slots = self.pages_per_block as u64 * per_page;
        let usable = slots - per_page + 1;
        if let Some((sequential, random, _)) = self.logs {
            let logical = per_plane.div_ceil(slots);
            return logical + (sequential + random + 2 + self.spare_blocks) as u64;
        }
        self.start_blocks as u64
            + 2
            + per_plane.div_ceil(usable)
            + self.spare_blocks as u64
            + 2 * !self.slc.is_empty() as u64
            // One that the map fills, and three to write it anew.
            + 4 * self.cached_map as u64
    }

    fn collection(&self) -> String {
        if let Some((sequential, random, associativity)) = self.logs {
            let associativity =
                associativity.map_or(String::new(), |most| format!("associativity = {most}\n"));
            return format!(
                "[hybrid]\nsequential_logs = {sequential}\nrandom_logs = {random}\n\
                 {associativity}[gc]\ndepth = 3"
            );
        }
        format!(
            r#"
[gc]
policy = "{policy}"
start_blocks = {start_blocks}
reserve_blocks = {reserve_blocks}
preemptible = {preemptible}
scope = "{scope}"
pace_kb = {pace_kb}
[wear_levelling]
{wear}
"#,
            policy = self.policy,
            start_blocks = self.start_blocks,
            reserve_blocks = self.reserve_blocks,
            pace_kb = if self.paced { 8 } else { 0 },
            preemptible = self.preemptible,
            scope = self.scope,
            wear = self.wear,
        )
    }

    /// The same drive with no more room for collection than is legal.
    fn with_least_room(self) -> Small {
        Small {
            spare_blocks: 0,
            pages_per_block: 4,
            start_blocks: if self.preemptible { 4 } else { 2 },
            reserve_blocks: 1,
            ..self
        }
    }

    /// The same drive with planes of a die filled in step.
    fn with_rows(self, planes: u32, aged: Option<Aged>) -> Small {
        Small {
            planes,
            aged,
            multi_plane: "same_page",
            copyback: "none",
            allocation: "static",
            scope: "plane",
            superpage: false,
            ..self
        }
    }

    /// The same drive with hybrid mapping, without what that does not go with.
    fn with_logs(self, logs: (u32, u32, Option<u32>)) -> Small {
        Small {
            logs: Some(logs),
            slc: "",
            cached_map: false,
            allocation: "static",
            copyback: "none",
            ..self
        }
    }

    /// Its description.
    pub fn text(&self) -> String {
        let blocks = self.blocks();
        let suspends = self.suspend && self.scheduling != "fcfs";
        let suspend = if suspends {
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
{reads_in_a_row}
[geometry]
channels = {channels}
packages_per_channel = {packages}
dies_per_package = {dies}
planes_per_die = {planes}
blocks_per_plane = {blocks}
pages_per_block = {pages_per_block}
page_kb = {page_kb}
[flash]
cell = "mlc"
read_us = [50, 75]
program_us = [300, 900]
erase_us = 2000
interleave = "{interleave}"
multi_plane = "{multi_plane}"
copyback = "{copyback}"
cache_read = {cache_read}
cache_program = {cache_program}
superpage = {superpage}
{suspend}
[channel]
rate_mt_s = 333
codeword_bytes = 512
{commands_first}
[ftl]
map_unit_bytes = {map_unit}
{cached_map}
order = "CWDP"
{mapping}
layout = "{layout}"
allocation = "{allocation}"
[write_cache]
enabled = {cache}
size_kb = 1024
bandwidth_mb_s = 200
power_loss_protection = {protected}
{collection}
{slc}
{read_cache}
{aged}
{nvme}"#,
            state = match (self.aged, self.filled) {
                (Some(_), _) => "aged",
                (None, true) => "filled",
                (None, false) => "fresh",
            },
            aged = self.aged.map_or(String::new(), Aged::table),
            capacity = CAPACITY_BYTES,
            full_duplex = self.full_duplex,
            scheduling = self.scheduling,
            reads_in_a_row = match suspends || self.scheduling == "read_priority" {
                true => format!("reads_in_a_row = {}", self.reads_in_a_row),
                false => String::new(),
            },
            commands_first = match self.scheduling {
                "paq" => String::new(),
                _ => format!("commands_first = {}", self.commands_first),
            },
            channels = self.channels,
            packages = self.packages,
            dies = self.dies,
            planes = self.planes,
            pages_per_block = self.pages_per_block,
            page_kb = self.page_kb,
            superpage = self.superpage
                && self.scheduling != "fcfs"
                && self.logs.is_none()
                && self.copyback == "none",
            interleave = self.interleave,
            multi_plane = self.multi_plane,
            copyback = self.copyback,
            cache_read = self.copyback != "same_plane",
            cache_program = self.full_duplex,
            map_unit = self.map_unit,
            cached_map = match self.cached_map {
                true => "map_cache_kb = 1\nmap_cache_entry_bytes = 32\nmap_entry_bytes = 64",
                false => "",
            },
            layout = self.layout,
            allocation = self.allocation,
            cache = self.cache,
            protected = self.protected,
            mapping = match self.logs {
                Some(_) => "mapping = \"hybrid\"",
                None => "",
            },
            collection = self.collection(),
            slc = match self.slc {
                "" => String::new(),
                table => format!("{table}read_us = 20\nprogram_us = 100\n"),
            },
            nvme = match self.copyback {
                "none" => "",
                "same_plane" => "[nvme]\narbitration = \"round_robin\"\nfetch_limit = 5",
                _ => "[nvme]\narbitration = \"weighted\"\nqueue_priorities = \"lu\"",
            },
            read_cache = match self.read_cache {
                true =>
                    "[read_cache]\nsize_kb = 64\npolicy = \"lru\"\n\
                     read_ahead_kb = 16\nread_ahead_streams = 4",
                false => "",
            },
        )
    }
}

impl Aged {
    fn table(self) -> String {
        let hot = match self.hot {
            (0.0, _) => String::new(),
            (share, writes) => format!("hot_share = {share}\nhot_writes = {writes}\n"),
        };
        let Aged {
            occupancy,
            simulate,
            ..
        } = self;
        format!("[aged]\noccupancy = {occupancy}\nsimulate = {simulate}\n{hot}")
    }
}

/// Drives whose planes are filled in step, many with as little room as is
/// legal, some overwritten for long.
#[allow(dead_code, reason = "not every test uses it")]
pub fn small_in_rows() -> impl Strategy<Value = Small> {
    let occupancy = prop::sample::select(vec![0.3, 0.9, 1.0]);
    let hot = prop::sample::select(vec![(0.0, 0.0), (0.1, 0.9), (0.5, 0.99)]);
    let aged = (occupancy, hot, any::<bool>()).prop_map(|(occupancy, hot, simulate)| Aged {
        occupancy,
        hot,
        simulate,
    });
    let page_mapped = small().prop_filter("pages are mapped", |small| small.logs.is_none());
    (page_mapped, 2u32..=4, prop::option::of(aged), any::<bool>()).prop_map(
        |(small, planes, aged, tightest)| match tightest {
            true => small.with_least_room().with_rows(planes, aged),
            false => small.with_rows(planes, aged),
        },
    )
}

/// Drives that map blocks and have logs.
#[allow(dead_code, reason = "not every test uses it")]
pub fn small_with_logs() -> impl Strategy<Value = Small> {
    let logs = (1u32..4, 1u32..4, prop::option::of(1u32..4));
    (small(), logs).prop_map(|(small, logs)| small.with_logs(logs))
}

/// Any of them.
pub fn small() -> impl Strategy<Value = Small> {
    let shape = (
        (1u32..4, 1u32..3, 1u32..3, 1u32..3),
        0u32..4,
        prop::sample::select(vec![4u32, 8, 12]),
    );
    // Free blocks that start collection, and less this many the reserve.
    let room = (2u32..6, 1u32..5);
    let reads_in_a_row = prop::sample::select(vec![1u32, 3, 1 << 20]);
    let names = (
        prop::sample::select(vec!["striped", "ranges"]),
        (
            prop::sample::select(vec!["fcfs", "out_of_order", "read_priority", "paq"]),
            reads_in_a_row,
        ),
        prop::sample::select(vec!["package", "die", "plane"]),
        prop::sample::select(vec!["none", "same_page", "any"]),
        prop::sample::select(vec!["greedy", "d_choices", "fifo", "cost_benefit"]),
        prop::sample::select(vec![(4, 4096), (8, 4096), (8, 8192), (16, 4096)]),
    );
    let flags = prop::array::uniform10(any::<bool>());
    let slc = prop::sample::select(SLC_CACHES.to_vec());
    let ftl = (
        prop::sample::select(vec!["static", "next_free", "least_loaded"]),
        prop::sample::select(vec!["plane", "chip", "drive"]),
        prop::sample::select(vec![
            "",
            "static_spread = 1",
            "dynamic = false\nstatic_spread = 3",
        ]),
    );
    let copyback = prop::sample::select(vec!["none", "same_plane"]);
    let logs = prop_oneof![
        2 => Just(None),
        2 => (1u32..4, 1u32..4, prop::option::of(1u32..4)).prop_map(Some),
    ];
    let parts = (shape, room, names, flags, slc, ftl, copyback, logs);
    parts.prop_map(|(shape, room, names, flags, slc, ftl, copyback, logs)| {
        let reserve_blocks = room.0.saturating_sub(room.1).max(1);
        let preemptible = flags[3];
        let small = Small {
            channels: shape.0.0,
            packages: shape.0.1,
            dies: shape.0.2,
            planes: shape.0.3,
            spare_blocks: shape.1,
            pages_per_block: shape.2,
            start_blocks: match preemptible {
                true => room.0.max(reserve_blocks + 3),
                false => room.0,
            },
            reserve_blocks,
            layout: names.0,
            scheduling: names.1.0,
            reads_in_a_row: names.1.1,
            commands_first: flags[9],
            interleave: names.2,
            multi_plane: names.3,
            policy: names.4,
            page_kb: names.5.0,
            map_unit: names.5.1,
            cache: flags[0],
            protected: flags[1],
            suspend: flags[2],
            preemptible,
            filled: flags[4],
            aged: None,
            full_duplex: flags[5],
            cached_map: flags[6],
            slc,
            allocation: ftl.0,
            scope: ftl.1,
            wear: ftl.2,
            read_cache: flags[7],
            copyback,
            logs: None,
            paced: flags[8],
            superpage: flags[8],
        };
        match logs {
            Some(logs) => small.with_logs(logs),
            None => small,
        }
    })
}
