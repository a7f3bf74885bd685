//! Every key of every kind of drive: none is forgotten here, nothing passes at
//! zero that cannot be, and none is taken where it would do nothing.

use std::collections::BTreeSet;

use blklab_description::SpecError;
use blklab_device::DriveSpec;

use crate::texts::{Setting, changed, known_keys, settings, with_line};

/// What becomes of a key whose value is 0.
#[derive(Clone, Copy, PartialEq)]
enum Zero {
    Legal,
    Refused,
    /// It takes no number.
    Word,
}
use Zero::{Legal, Refused, Word};

/// What a key does together with others.
#[derive(Clone, Copy)]
enum Effect {
    /// It always does something, or nothing can do without it.
    Always,
    /// With the first of each pair in the text changed to the second it would
    /// do nothing.
    Not(&'static [(&'static str, &'static str)]),
    /// It does nothing in this kind of drive: likewise, but it stands in
    /// the second only.
    Put(&'static [(&'static str, &'static str)]),
}
use Effect::{Always, Not, Put};

/// Nothing favours reads: no order, and nothing stops for them.
const OUT_OF_ORDER: &[(&str, &str)] = &[
    ("read_priority", "out_of_order"),
    (
        "program_suspend_us = 20\nerase_suspend_us = 50\nsuspend_above_us = 50\n",
        "",
    ),
];

type Key = (&'static str, Zero, Effect);

/// What all drives have.
const COMMON: &[Key] = &[
    ("description", Word, Always),
    ("interface", Word, Always),
    ("model", Word, Always),
    ("host.logical_block_bytes", Refused, Always),
    ("host.physical_block_bytes", Refused, Always),
    ("host.capacity_bytes", Refused, Always),
    ("host.max_transfer_kb", Refused, Always),
    ("host.max_segments", Refused, Always),
    ("host.queue_depth", Refused, Always),
    ("host.queues", Refused, Always),
    ("host.fua", Word, Always),
    ("host.discard", Word, Always),
];

const NULL: &[Key] = &[
    ("timing.read_ns", Legal, Always),
    ("timing.write_ns", Legal, Always),
    ("timing.flush_ns", Legal, Always),
    ("timing.parallelism", Refused, Always),
];

const DISK: &[Key] = &[
    ("link.bandwidth_mb_s", Refused, Always),
    ("link.submit_us", Legal, Always),
    ("link.complete_us", Legal, Always),
    ("controller.command_us", Legal, Always),
    ("controller.scheduling", Word, Always),
    (
        "controller.patience_us",
        Legal,
        Not(&[("\"shortest_positioning\"", "\"fcfs\"")]),
    ),
    ("mechanics.heads", Refused, Always),
    ("mechanics.turns_per_minute", Refused, Always),
    ("mechanics.zones", Refused, Always),
    ("mechanics.track_seek_us", Legal, Always),
    ("mechanics.average_seek_us", Refused, Always),
    ("mechanics.full_seek_us", Refused, Always),
    ("mechanics.head_switch_us", Legal, Always),
    ("mechanics.write_settle_us", Legal, Always),
    ("cache.size_kb", Refused, Always),
    ("cache.segments", Refused, Always),
    ("cache.read_ahead_kb", Legal, Always),
    ("cache.write_back", Word, Always),
    (
        "cache.flush_limit_us",
        Legal,
        Not(&[("write_back = true", "write_back = false")]),
    ),
];

/// What SSDs have whatever their map is.
const FLASH: &[Key] = &[
    ("state", Word, Always),
    ("link.bandwidth_mb_s", Refused, Always),
    ("link.full_duplex", Word, Always),
    ("link.submit_us", Legal, Always),
    ("link.complete_us", Legal, Always),
    ("controller.read_us", Legal, Always),
    ("controller.write_us", Legal, Always),
    ("controller.interval_us", Legal, Always),
    ("controller.page_interval_us", Legal, Always),
    ("controller.discard_us", Legal, Always),
    ("controller.discard_unit_ns", Legal, Always),
    ("controller.scheduling", Word, Always),
    ("controller.reads_in_a_row", Refused, Not(OUT_OF_ORDER)),
    ("geometry.channels", Refused, Always),
    ("geometry.packages_per_channel", Refused, Always),
    ("geometry.dies_per_package", Refused, Always),
    ("geometry.planes_per_die", Refused, Always),
    ("geometry.blocks_per_plane", Refused, Always),
    ("geometry.pages_per_block", Refused, Always),
    ("geometry.page_kb", Refused, Always),
    ("geometry.page_parts", Refused, Always),
    ("flash.cell", Word, Always),
    ("flash.read_us", Refused, Always),
    ("flash.program_us", Refused, Always),
    ("flash.erase_us", Refused, Always),
    ("flash.interleave", Word, Always),
    ("flash.multi_plane", Word, Always),
    (
        "flash.multi_plane_reach",
        Refused,
        Not(&[("multi_plane = \"same_page\"", "multi_plane = \"none\"")]),
    ),
    ("flash.cache_read", Word, Always),
    ("flash.cache_program", Word, Always),
    ("flash.copyback", Word, Always),
    ("flash.superpage", Word, Always),
    ("flash.program_suspend_us", Legal, Always),
    ("flash.erase_suspend_us", Legal, Always),
    (
        "flash.suspend_above_us",
        Legal,
        Not(&[("program_suspend_us = 20\nerase_suspend_us = 50\n", "")]),
    ),
    ("channel.rate_mt_s", Refused, Always),
    ("channel.width_bits", Refused, Always),
    ("channel.read_command_ns", Legal, Always),
    ("channel.program_command_ns", Legal, Always),
    ("channel.erase_command_ns", Legal, Always),
    (
        "channel.plane_command_ns",
        Legal,
        Not(&[(
            "multi_plane = \"same_page\"\nmulti_plane_reach = 64",
            "multi_plane = \"none\"",
        )]),
    ),
    ("channel.codeword_bytes", Refused, Always),
    (
        "channel.commands_first",
        Word,
        Not(&[("scheduling = \"read_priority\"", "scheduling = \"paq\"")]),
    ),
    ("ftl.map_unit_bytes", Refused, Always),
    ("ftl.mapping", Word, Always),
    ("ftl.order", Word, Always),
    ("ftl.layout", Word, Always),
    ("ftl.allocation", Word, Always),
    ("ftl.map_cache_kb", Legal, Always),
    ("ftl.map_entry_bytes", Refused, Always),
    ("ftl.read_unwritten", Word, Always),
    ("write_cache.enabled", Word, Always),
    ("write_cache.size_kb", Refused, Always),
    ("write_cache.resume_kb", Refused, Always),
    ("write_cache.bandwidth_mb_s", Refused, Always),
    ("write_cache.access_ns", Legal, Always),
    ("write_cache.power_loss_protection", Word, Always),
    ("read_cache.size_kb", Refused, Always),
    ("read_cache.policy", Word, Always),
    ("read_cache.read_ahead_kb", Legal, Always),
    (
        "read_cache.read_ahead_streams",
        Refused,
        Not(&[("read_ahead_kb = 8", "read_ahead_kb = 0")]),
    ),
    ("nvme.arbitration", Word, Always),
    ("nvme.burst", Refused, Not(&[("queues = 64", "queues = 1")])),
    ("nvme.fetch_limit", Refused, Always),
    (
        "nvme.queue_priorities",
        Word,
        Not(&[("\"weighted\"", "\"round_robin\"")]),
    ),
    ("nvme.high_weight", Refused, Not(&[("\"uhml\"", "\"uml\"")])),
    (
        "nvme.medium_weight",
        Refused,
        Not(&[("\"uhml\"", "\"uhl\"")]),
    ),
    ("nvme.low_weight", Refused, Not(&[("\"uhml\"", "\"uhm\"")])),
    ("wear_levelling.dynamic", Word, Always),
    ("gc.depth", Refused, Always),
    ("aged.occupancy", Refused, Always),
    ("aged.hot_share", Legal, Always),
    (
        "aged.hot_writes",
        Legal,
        Not(&[("hot_share = 0.2", "hot_share = 0")]),
    ),
    ("aged.simulate", Word, Always),
];

/// What needs a map of pages.
const MAP: &[Key] = &[
    (
        "ftl.map_cache_entry_bytes",
        Refused,
        Not(&[("map_cache_kb = 64", "map_cache_kb = 0")]),
    ),
    (
        "ftl.map_line_entries",
        Refused,
        Not(&[(
            "map_cache_kb = 64\nmap_cache_entry_bytes = 8",
            "map_cache_kb = 0",
        )]),
    ),
    (
        "ftl.in_step",
        Word,
        Not(&[("scope = \"plane\"", "scope = \"chip\"")]),
    ),
    ("wear_levelling.static_spread", Refused, Always),
];

/// What SSDs have that map pages.
const PAGES: &[Key] = &[
    ("aged.behind_blocks", Legal, Always),
    ("slc_cache.static_mb", Legal, Always),
    ("slc_cache.dynamic_mb", Legal, Always),
    ("slc_cache.read_us", Refused, Always),
    ("slc_cache.program_us", Refused, Always),
    ("slc_cache.erase_us", Refused, Always),
    ("slc_cache.when_full", Word, Always),
    ("slc_cache.fold_after_us", Legal, Always),
    ("slc_cache.filled", Legal, Always),
    ("gc.policy", Word, Always),
    (
        "gc.choices",
        Refused,
        Not(&[("\"d_choices\"", "\"greedy\"")]),
    ),
    ("gc.start_blocks", Refused, Always),
    ("gc.reserve_blocks", Refused, Always),
    ("gc.pace_kb", Legal, Always),
    ("gc.preemptible", Word, Always),
    ("gc.scope", Word, Always),
];

/// What SSDs have that map blocks.
const LOGS: &[Key] = &[
    (
        "aged.behind_blocks",
        Legal,
        Put(&[("simulate = true", "simulate = true\nbehind_blocks = 0")]),
    ),
    (
        "ftl.map_cache_entry_bytes",
        Refused,
        Put(&[("map_cache_kb = 0", "map_cache_entry_bytes = 8")]),
    ),
    (
        "ftl.map_line_entries",
        Refused,
        Put(&[("map_cache_kb = 0", "map_line_entries = 1")]),
    ),
    (
        "ftl.in_step",
        Word,
        Not(&[("in_step = false", "in_step = true")]),
    ),
    (
        "wear_levelling.static_spread",
        Refused,
        Put(&[("dynamic = true", "static_spread = 9")]),
    ),
    ("hybrid.sequential_logs", Refused, Always),
    ("hybrid.random_logs", Refused, Always),
    ("hybrid.associativity", Refused, Always),
];

/// Four drives with every key that their kind can have, and these keys.
fn drives() -> Vec<(String, Vec<Key>)> {
    let all = vec![
        (crate::texts::null(), [COMMON, NULL].concat()),
        (crate::texts::disk(), [COMMON, DISK].concat()),
        (crate::texts::pages(), [COMMON, FLASH, MAP, PAGES].concat()),
        (crate::texts::logs(), [COMMON, FLASH, LOGS].concat()),
    ];
    for (text, _) in &all {
        parse(text).unwrap_or_else(|error| panic!("{error}"));
    }
    all
}

fn parse(text: &str) -> Result<DriveSpec, SpecError> {
    DriveSpec::parse("my.toml", text)
}

#[test]
fn every_key_is_listed_here_and_has_its_place_in_a_text() {
    for (text, keys) in drives() {
        let listed: BTreeSet<String> = keys.iter().map(|key| key.0.to_string()).collect();
        let set: BTreeSet<String> = settings(&text).into_iter().map(|set| set.path).collect();
        let known = known_keys(&text, |text| parse(text).err());
        // Tables that this kind cannot have.
        let known: BTreeSet<String> = known.into_iter().filter(|key| key.contains('.')).collect();
        let root = |keys: &BTreeSet<String>| -> BTreeSet<String> {
            keys.iter()
                .filter(|key| key.contains('.'))
                .cloned()
                .collect()
        };
        assert_eq!(root(&listed), known);
        let idle = |key: &str| {
            let of = keys.iter().find(|listed| listed.0 == key);
            of.is_some_and(|listed| matches!(listed.2, Put(..) | Not(..)))
        };
        let missing: Vec<&String> = listed.difference(&set).filter(|key| !idle(key)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}

#[test]
fn nothing_is_zero_that_cannot_be() {
    for (text, keys) in drives() {
        for set in settings(&text) {
            let Setting { line, path, .. } = set;
            let zero = keys.iter().find(|key| key.0 == path).expect("listed").1;
            let error = parse(&with_line(&text, line, &format!("{} = 0", set.key))).err();
            if zero == Legal {
                // It may take the meaning from others, which are refused then.
                let about_it = error.filter(|error| error.key == path);
                assert_eq!(about_it, None, "{path}");
                continue;
            }
            let error = error.unwrap_or_else(|| panic!("{path} = 0 is taken for {}", set.value));
            assert_eq!((error.line, &error.key), (line, &path), "{error}");
            assert!(error.problem.contains("legal"), "{error}");
        }
    }
}

#[test]
fn a_key_that_would_do_nothing_is_refused() {
    let drives = drives();
    for (text, keys) in &drives {
        for (path, _, effect) in keys {
            let changes = match effect {
                Always => continue,
                Not(changes) | Put(changes) => *changes,
            };
            let error = parse(&changed(text, changes)).expect_err(path);
            assert_eq!(&error.key, path, "{error}");
            assert!(
                error.problem.contains("legal is to leave it out"),
                "{error}"
            );
        }
    }
}
