//! Every key of every kind of drive: the complete descriptions have all of them, a zero is
//! refused where it makes no sense, and a key is refused where it has no effect.

use std::collections::BTreeSet;

use blklab_description::SpecError;
use blklab_device::DriveSpec;

use crate::texts::{changed, known_keys, settings, with_line};

/// Keys that may be zero.
const MAY_BE_ZERO: &[&str] = &[
    "timing.read_ns",
    "timing.write_ns",
    "timing.flush_ns",
    "timing.read_interval_ns",
    "timing.write_interval_ns",
    "link.submit_us",
    "link.complete_us",
    "link.read_watermark",
    "link.write_watermark",
    "overheads.read_hit_after_read_us",
    "overheads.read_hit_after_write_us",
    "overheads.read_miss_after_read_us",
    "overheads.read_miss_after_write_us",
    "overheads.write_after_read_us",
    "overheads.write_after_write_us",
    "overheads.read_end_us",
    "overheads.write_end_us",
    "controller.command_us",
    "controller.patience_us",
    "controller.write_interval_us",
    "mechanics.spare_sectors_per_track",
    "mechanics.track_seek_us",
    "mechanics.head_switch_us",
    "mechanics.write_settle_us",
    "mechanics.min_positioning_us",
    "cache.read_ahead_kb",
    "cache.read_ahead_tracks",
    "cache.read_ahead_min_kb",
    "cache.flush_limit_us",
    "controller.read_us",
    "controller.write_us",
    "controller.interval_us",
    "controller.page_interval_us",
    "controller.discard_us",
    "controller.discard_unit_ns",
    "flash.program_suspend_us",
    "flash.erase_suspend_us",
    "flash.suspend_above_us",
    "channel.read_command_ns",
    "channel.program_command_ns",
    "channel.erase_command_ns",
    "channel.plane_command_ns",
    "ftl.map_cache_kb",
    "write_cache.access_ns",
    "write_cache.flush_records",
    "write_cache.fua_records",
    "read_cache.read_ahead_kb",
    "aged.hot_share",
    "aged.hot_writes",
    "slc_cache.static_mb",
    "slc_cache.dynamic_mb",
    "slc_cache.fold_after_us",
    "slc_cache.filled",
    "gc.pace_kb",
    "bus.command_us",
    "reads.access_us",
    "reads.streams",
    "writes.random_us",
    "units.erase_us",
    "units.fat_kb",
    "map.write_us",
    "zones.conventional",
    "zones.max_active",
    "zones.command_us",
    "zones.reset_us",
    "zones.finish_us",
];

/// A key, and changes of a description after which it has no effect; a key that never has
/// an effect on such a drive is added by the changes.
type Idle = (&'static str, &'static [(&'static str, &'static str)]);

/// Reads are not favoured: neither by scheduling nor by suspension.
const OUT_OF_ORDER: &[(&str, &str)] = &[
    ("read_priority", "out_of_order"),
    (
        "program_suspend_us = 20\nerase_suspend_us = 50\nsuspend_above_us = 50\n",
        "",
    ),
];

/// A disk.
const DISK: &[Idle] = &[
    (
        "controller.patience_us",
        &[("\"shortest_positioning\"", "\"fcfs\"")],
    ),
    (
        "mechanics.seek_curve",
        &[(
            "heads = 2",
            "heads = 2\nseek_curve = [[1, 1000.5], [2000, 18000]]",
        )],
    ),
    (
        "cache.flush_limit_us",
        &[(
            "write_back = true\ndirty_share = 0.25\nline_kb = 64",
            "write_back = false",
        )],
    ),
    (
        "cache.dirty_share",
        &[("write_back = true", "write_back = false")],
    ),
    (
        "cache.line_kb",
        &[(
            "write_back = true\ndirty_share = 0.25",
            "write_back = false",
        )],
    ),
];

/// Any SSD.
const SSD: &[Idle] = &[
    (
        "write_cache.flush_records",
        &[(
            "power_loss_protection = false",
            "power_loss_protection = true",
        )],
    ),
    (
        "write_cache.fua_records",
        &[
            ("flush_records = 1\n", ""),
            (
                "power_loss_protection = false",
                "power_loss_protection = true",
            ),
        ],
    ),
    ("controller.reads_in_a_row", OUT_OF_ORDER),
    (
        "flash.multi_plane_reach",
        &[("multi_plane = \"same_page\"", "multi_plane = \"none\"")],
    ),
    (
        "flash.suspend_above_us",
        &[("program_suspend_us = 20\nerase_suspend_us = 50\n", "")],
    ),
    (
        "channel.plane_command_ns",
        &[(
            "multi_plane = \"same_page\"\nmulti_plane_reach = 64",
            "multi_plane = \"none\"",
        )],
    ),
    (
        "channel.commands_first",
        &[("scheduling = \"read_priority\"", "scheduling = \"paq\"")],
    ),
    (
        "read_cache.read_ahead_streams",
        &[("read_ahead_kb = 8", "read_ahead_kb = 0")],
    ),
    (
        "read_cache.read_ahead_alone",
        &[
            ("read_ahead_kb = 8", "read_ahead_kb = 0"),
            ("read_ahead_streams = 8\n", ""),
        ],
    ),
    ("nvme.burst", &[("queues = 64", "queues = 1")]),
    (
        "nvme.queue_priorities",
        &[("\"weighted\"", "\"round_robin\"")],
    ),
    ("nvme.high_weight", &[("\"uhml\"", "\"uml\"")]),
    ("nvme.medium_weight", &[("\"uhml\"", "\"uhl\"")]),
    ("nvme.low_weight", &[("\"uhml\"", "\"uhm\"")]),
    ("aged.hot_writes", &[("hot_share = 0.2", "hot_share = 0")]),
];

/// An SSD that maps pages.
const PAGES: &[Idle] = &[
    (
        "ftl.map_cache_entry_bytes",
        &[("map_cache_kb = 64", "map_cache_kb = 0")],
    ),
    (
        "ftl.map_line_entries",
        &[(
            "map_cache_kb = 64\nmap_cache_entry_bytes = 8",
            "map_cache_kb = 0",
        )],
    ),
    ("ftl.in_step", &[("scope = \"plane\"", "scope = \"chip\"")]),
    ("gc.choices", &[("\"d_choices\"", "\"greedy\"")]),
];

/// An SSD that maps blocks.
const BLOCKS: &[Idle] = &[
    (
        "ftl.map_cache_entry_bytes",
        &[("map_cache_kb = 0", "map_cache_entry_bytes = 8")],
    ),
    (
        "ftl.map_line_entries",
        &[("map_cache_kb = 0", "map_line_entries = 1")],
    ),
    ("ftl.in_step", &[("in_step = false", "in_step = true")]),
    (
        "wear_levelling.static_spread",
        &[("dynamic = true", "static_spread = 9")],
    ),
];

/// The complete descriptions, and when keys have no effect in them.
fn drives() -> Vec<(String, Vec<Idle>)> {
    let idle = |name| match name {
        "disk" => DISK.to_vec(),
        "ssd-pages" => [SSD, PAGES].concat(),
        "ssd-blocks" => [SSD, BLOCKS].concat(),
        _ => Vec::new(),
    };
    let all = DriveSpec::complete().map(|(name, text)| (text.to_string(), idle(name)));
    let all: Vec<(String, Vec<Idle>)> = all.collect();
    for (text, _) in &all {
        parse(text).unwrap_or_else(|error| panic!("{error}"));
    }
    all
}

fn parse(text: &str) -> Result<DriveSpec, SpecError> {
    DriveSpec::parse("my.toml", text)
}

#[test]
fn every_key_has_its_place_in_a_text() {
    for (text, idle) in drives() {
        let set: BTreeSet<String> = settings(&text).into_iter().map(|set| set.path).collect();
        let known = known_keys(&text, |text| parse(text).err());
        // Tables that this kind cannot have are known outside of tables.
        let known = known.into_iter().filter(|key| key.contains('.'));
        let missing: Vec<String> = known
            .filter(|key| !set.contains(key) && !idle.iter().any(|(idle, _)| idle == key))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}

#[test]
fn nothing_is_zero_that_cannot_be() {
    let mut seen = BTreeSet::new();
    for (text, _) in drives() {
        for set in settings(&text) {
            let (line, path) = (set.line, set.path);
            let error = parse(&with_line(&text, line, &format!("{} = 0", set.key))).err();
            if MAY_BE_ZERO.contains(&path.as_str()) {
                // It may take the meaning from others, which are refused then.
                let about_it = error.filter(|error| error.key == path);
                assert_eq!(about_it, None, "{path}");
                seen.insert(path);
                continue;
            }
            let error = error.unwrap_or_else(|| panic!("{path} = 0 is taken for {}", set.value));
            assert_eq!((error.line, &error.key), (line, &path), "{error}");
            assert!(error.problem.contains("legal"), "{error}");
        }
    }
    let all: BTreeSet<String> = MAY_BE_ZERO.iter().map(|key| key.to_string()).collect();
    assert_eq!(seen, all);
}

#[test]
fn a_key_that_would_do_nothing_is_refused() {
    for (text, idle) in drives() {
        for (path, changes) in idle {
            let error = parse(&changed(&text, changes)).expect_err(path);
            assert_eq!(error.key, path, "{error}");
            assert!(
                error.problem.contains("legal is to leave it out"),
                "{error}"
            );
        }
    }
}
