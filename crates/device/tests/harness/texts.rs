//! Descriptions with every key that their kind of drive can have, and what reads
//! and changes descriptions line by line.

#![allow(dead_code, reason = "every test uses a part of it")]

use std::collections::BTreeSet;

use blklab_description::SpecError;

const HOST: &str = r#"
[host]
capacity_bytes = 100663296
logical_block_bytes = 512
physical_block_bytes = 4096
queue_depth = 32
queues = 64
max_transfer_kb = 512
max_segments = 128
fua = true
discard = true
"#;

const NULL_TEXT: &str = r#"
description = "every key"
interface = "null"
model = "null"
[timing]
read_ns = 10
write_ns = 10
flush_ns = 10
parallelism = 4
"#;

const DISK_TEXT: &str = r#"
description = "every key"
interface = "null"
model = "hdd"
[link]
bandwidth_mb_s = 560
submit_us = 1.5
complete_us = 1.5
[controller]
command_us = 50
scheduling = "shortest_positioning"
patience_us = 500000
[mechanics]
heads = 2
turns_per_minute = 7200
zones = [[1000, 64], [1000, 48]]
track_seek_us = 1000
average_seek_us = 8500
full_seek_us = 18000
head_switch_us = 800
write_settle_us = 1000
[cache]
size_kb = 65536
segments = 16
read_ahead_kb = 2048
write_back = true
flush_limit_us = 1000000
"#;

/// All but what belongs to the kind of map.
const FLASH_TEXT: &str = r#"
description = "every key"
interface = "nvme"
model = "ssd"
state = "aged"
[link]
bandwidth_mb_s = 3282
full_duplex = true
submit_us = 0.5
complete_us = 0.5
[controller]
read_us = 5
write_us = 5
interval_us = 1.5
page_interval_us = 1
discard_us = 50
discard_unit_ns = 20
scheduling = "read_priority"
reads_in_a_row = 64
[geometry]
channels = 2
packages_per_channel = 1
dies_per_package = 1
planes_per_die = 2
blocks_per_plane = 200
pages_per_block = 96
page_kb = 4
page_parts = 1
[flash]
cell = "tlc"
read_us = [50, 60, 75]
program_us = [640, 640, 640]
erase_us = 5000
interleave = "die"
multi_plane = "same_page"
multi_plane_reach = 64
cache_read = false
cache_program = false
copyback = "none"
superpage = false
program_suspend_us = 20
erase_suspend_us = 50
suspend_above_us = 50
[channel]
rate_mt_s = 800
width_bits = 8
read_command_ns = 290
program_command_ns = 361
erase_command_ns = 220
plane_command_ns = 650
codeword_bytes = 4096
commands_first = false
[write_cache]
enabled = true
size_kb = 256
resume_kb = 1
bandwidth_mb_s = 8000
access_ns = 50
power_loss_protection = false
[read_cache]
size_kb = 1024
policy = "lru"
read_ahead_kb = 8
read_ahead_streams = 8
[nvme]
arbitration = "weighted"
queue_priorities = "uhml"
high_weight = 8
medium_weight = 4
low_weight = 1
burst = 2
fetch_limit = 100
"#;

const PAGES_TEXT: &str = r#"
[ftl]
map_unit_bytes = 4096
mapping = "page"
order = "CWDP"
layout = "striped"
allocation = "static"
map_cache_kb = 64
map_cache_entry_bytes = 8
map_line_entries = 64
map_entry_bytes = 4
in_step = true
read_unwritten = false
[gc]
policy = "d_choices"
choices = 8
start_blocks = 8
reserve_blocks = 2
depth = 4
pace_kb = 0
preemptible = true
scope = "plane"
[wear_levelling]
dynamic = true
static_spread = 100
[slc_cache]
static_mb = 1
dynamic_mb = 1
read_us = 20
program_us = 100
erase_us = 1000
when_full = "wait"
fold_after_us = 1000
filled = 0.5
"#;

/// How its SSD that maps pages is aged.
pub const AGED: &str = r#"
[aged]
occupancy = 0.5
hot_share = 0.2
hot_writes = 0.8
behind_blocks = 0
simulate = false
"#;

const LOGS_TEXT: &str = r#"
[ftl]
map_unit_bytes = 4096
mapping = "hybrid"
order = "CWDP"
layout = "striped"
allocation = "static"
map_cache_kb = 0
map_entry_bytes = 4
in_step = false
read_unwritten = false
[hybrid]
sequential_logs = 2
random_logs = 8
associativity = 3
[gc]
depth = 4
[wear_levelling]
dynamic = true
[aged]
occupancy = 1.0
hot_share = 0.2
hot_writes = 0.8
simulate = true
"#;

/// A null drive.
pub fn null() -> String {
    [NULL_TEXT, HOST].concat()
}

/// A disk.
pub fn disk() -> String {
    [DISK_TEXT, HOST].concat()
}

/// An SSD that maps pages.
pub fn pages() -> String {
    [FLASH_TEXT, PAGES_TEXT, AGED, HOST].concat()
}

/// An SSD that maps blocks.
pub fn logs() -> String {
    [FLASH_TEXT, LOGS_TEXT, HOST].concat()
}

/// The text with the first of each pair changed to the second.
pub fn changed(text: &str, changes: &[(&str, &str)]) -> String {
    let mut text = text.to_string();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    text
}

/// A line that sets a key as a whole.
pub struct Setting<'a> {
    /// Its number, from one.
    pub line: usize,
    /// The key with its table.
    pub path: String,
    pub key: &'a str,
    pub value: &'a str,
}

/// Keys that a text sets in one line each.
pub fn settings(text: &str) -> Vec<Setting<'_>> {
    let mut table = String::new();
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            table = format!("{name}.");
        } else if let Some((key, value)) = line.split_once(" = ")
            && value.trim() != "["
        {
            found.push(Setting {
                line: number + 1,
                path: format!("{table}{key}"),
                key,
                value: value.trim(),
            });
        }
    }
    found
}

/// The text with another line in the place of one.
pub fn with_line(text: &str, number: usize, line: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines[number - 1] = line;
    lines.join("\n")
}

/// Keys that the program knows, as it tells them where it finds another.
pub fn known_keys(text: &str, error_of: impl Fn(&str) -> Option<SpecError>) -> BTreeSet<String> {
    let tables = text.lines().filter(|line| line.starts_with('['));
    let headers: Vec<&str> = std::iter::once("").chain(tables).collect();
    let mut known = BTreeSet::new();
    for header in headers {
        let wrong = format!("{header}\nno_such_key = 1\n");
        let changed = match header {
            "" => wrong + text,
            _ => text.replacen(&format!("{header}\n"), &wrong, 1),
        };
        let error = error_of(&changed).expect("there is no such key");
        let (_, keys) = (error.problem)
            .split_once("legal are ")
            .unwrap_or_else(|| panic!("{error}"));
        let table = match header {
            "" => String::new(),
            _ => header.replace('[', "").replace(']', "."),
        };
        known.extend(keys.split(", ").map(|key| format!("{table}{key}")));
    }
    // Tables are keys of the file.
    known.retain(|key| !text.contains(&format!("\n[{key}]\n")));
    known
}
