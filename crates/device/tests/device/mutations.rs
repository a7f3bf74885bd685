//! Descriptions with some values changed at random: each is refused, or makes a drive that
//! completes every command.

use crate::harness::Rng;
use crate::harness::cases;
use blklab_blk::{Nanos, Op, Sector};
use blklab_device::{Command, Completion, Device, DriveSpec, registry};
use proptest::prelude::*;

/// Words that keys take.
const WORDS: [&str; 27] = [
    "slc",
    "mlc",
    "tlc",
    "qlc",
    "package",
    "die",
    "plane",
    "none",
    "same_page",
    "any",
    "same_plane",
    "fcfs",
    "out_of_order",
    "read_priority",
    "paq",
    "striped",
    "ranges",
    "next_free",
    "least_loaded",
    "greedy",
    "d_choices",
    "fifo",
    "cost_benefit",
    "chip",
    "drive",
    "fresh",
    "filled",
];

/// Keys that are left out of most descriptions, by table.
const OPTIONAL: [(&str, &str); 21] = [
    ("flash", "cache_read = true"),
    ("flash", "cache_program = true"),
    ("flash", "copyback = \"same_plane\""),
    ("flash", "superpage = true"),
    ("flash", "multi_plane_reach = 1"),
    ("flash", "program_suspend_us = 0"),
    ("flash", "erase_suspend_us = 1"),
    ("geometry", "page_parts = 2"),
    ("ftl", "allocation = \"least_loaded\""),
    ("ftl", "map_cache_kb = 1"),
    ("ftl", "read_unwritten = true"),
    ("gc", "pace_kb = 64"),
    ("gc", "scope = \"drive\""),
    ("gc", "depth = 1"),
    ("gc", "preemptible = true"),
    ("write_cache", "resume_kb = 64"),
    ("write_cache", "power_loss_protection = true"),
    ("controller", "interval_us = 0"),
    ("controller", "page_interval_us = 1"),
    ("controller", "reads_in_a_row = 1"),
    ("channel", "commands_first = true"),
];

/// Tables that are left out of most descriptions.
const TABLES: [&str; 4] = [
    "[read_cache]\nsize_kb = 64\npolicy = \"lru\"\nread_ahead_kb = 8\n",
    "[wear_levelling]\nstatic_spread = 1\n",
    "[nvme]\narbitration = \"weighted\"\nqueue_priorities = \"uhml\"\nfetch_limit = 3\n",
    "[slc_cache]\ndynamic_mb = 100\nread_us = 1\nprogram_us = 9\nwhen_full = \"wait\"\n",
];

/// Another value for a key in place of one.
fn another(value: &str, rng: &mut Rng) -> String {
    if value.starts_with('"') {
        return format!("\"{}\"", WORDS[rng.below(WORDS.len() as u64) as usize]);
    }
    match value {
        "true" => return "false".to_string(),
        "false" => return "true".to_string(),
        _ => {}
    }
    let Ok(number) = value.parse::<f64>() else {
        return rng.below(100).to_string();
    };
    let few = [0.0, 1.0, 2.0, 3.0, 7.0, 64.0, 1024.0, 1e6, 1e9];
    let factors = [0.001, 0.1, 0.5, 0.9, 1.1, 2.0, 10.0, 1000.0];
    let other = match rng.below(3) {
        0 => few[rng.below(few.len() as u64) as usize],
        _ => number * factors[rng.below(factors.len() as u64) as usize],
    };
    match value.contains('.') {
        true => other.to_string(),
        false => (other.round() as u64).to_string(),
    }
}

/// A shipped description with random changes.
fn mutated(seed: u64) -> String {
    let mut rng = Rng::new(seed);
    let names: Vec<&str> = registry::names().collect();
    let name = names[rng.below(names.len() as u64) as usize];
    let text = registry::text(name).expect("listed");
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    // A drive of some megabytes is collected sooner.
    let small = [("capacity_bytes", "100663296"), ("blocks_per_plane", "64")];
    if rng.below(2) == 0 {
        for (key, value) in small {
            let is_it = |line: &&mut String| line.starts_with(&format!("{key} = "));
            if let Some(line) = lines.iter_mut().find(is_it) {
                *line = format!("{key} = {value}");
            }
        }
    }
    for _ in 0..1 + rng.below(4) {
        let place = rng.below(lines.len() as u64) as usize;
        let line = lines[place].clone();
        let line = line.split('#').next().unwrap_or("").trim();
        if let Some(table) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            let of_table: Vec<&str> = (OPTIONAL.iter())
                .filter(|(of, _)| *of == table)
                .map(|(_, key)| *key)
                .collect();
            if !of_table.is_empty() {
                let key = of_table[rng.below(of_table.len() as u64) as usize];
                lines.insert(place + 1, key.to_string());
            }
        } else if let Some((key, value)) = line.split_once(" = ") {
            // Ageing a large drive write by write takes hours.
            if key != "simulate" && key != "interface" && key != "model" {
                lines[place] = format!("{key} = {}", another(value.trim(), &mut rng));
            }
        }
    }
    if rng.below(4) == 0 {
        lines.push(TABLES[rng.below(TABLES.len() as u64) as usize].to_string());
    }
    lines.join("\n")
}

fn command(tag: u32, drive: &dyn Device, rng: &mut Rng) -> Command {
    let identity = drive.identify();
    let block = (identity.logical_block_bytes / 512) as u64;
    let blocks = identity.capacity_sectors / block;
    let op = match rng.below(20) {
        0 => Op::Flush,
        1 if identity.discard => Op::Discard,
        2..8 => Op::Read,
        _ => Op::Write,
    };
    let most = (1 + rng.below(2) * 31)
        .min(identity.max_transfer_sectors as u64 / block)
        .max(1);
    let count = 1 + rng.below(most.min(blocks));
    Command {
        tag,
        queue: rng.below(identity.max_queues as u64) as u16,
        op,
        sector: Sector(rng.below(blocks - count + 1) * block),
        sectors: if op == Op::Flush {
            0
        } else {
            (count * block) as u32
        },
        fua: rng.below(8) == 0,
    }
}

/// Carries out commands at a random queue depth.
fn run(drive: &mut dyn Device, commands: u32, rng: &mut Rng) -> Result<(), TestCaseError> {
    let depth = (1 + rng.below(drive.identify().queue_depth.min(24) as u64)) as u32;
    let (mut sent, mut ended, mut now) = (0, 0, Nanos::ZERO);
    let mut done: Vec<Completion> = Vec::new();
    while ended < commands {
        while sent < commands && sent - ended < depth {
            let command = command(sent, drive, rng);
            drive.submit(now, command);
            sent += 1;
        }
        let reached = drive.advance_to_completion(Nanos::MAX, &mut done);
        prop_assert!(reached < Nanos::MAX, "{} commands never end", sent - ended);
        prop_assert!(reached >= now);
        now = reached;
        ended += done.len() as u32;
        done.clear();
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(128))]

    #[test]
    fn it_is_refused_or_it_works(seed: u64) {
        let text = mutated(seed);
        let Ok(spec) = DriveSpec::parse("mutated.toml", &text) else {
            return Ok(());
        };
        let mut drive = spec.build(1);
        run(drive.as_mut(), 600, &mut Rng::new(seed ^ 1))
            .map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
    }
}
