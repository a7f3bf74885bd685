//! Drive descriptions with one mistake each: for any key, the error names file, line, key,
//! what was found and what is legal.

use blklab_description::SpecError;
use blklab_device::{DriveSpec, registry};

use crate::one_mistake::Description;
use crate::texts::{changed, with_line};

/// All shipped descriptions, and the complete ones.
fn descriptions() -> Vec<(String, String)> {
    let text = |name: &str| registry::text(name).expect("listed").to_string();
    let mut all: Vec<(String, String)> = registry::names()
        .map(|name| (name.to_string(), text(name)))
        .collect();
    for (name, text) in DriveSpec::complete() {
        all.push((format!("every-{name}"), text.to_string()));
    }
    for (name, text) in &all {
        DriveSpec::parse(name, text).unwrap_or_else(|error| panic!("{error}"));
    }
    all
}

fn error_of(name: &str, text: &str) -> Option<SpecError> {
    DriveSpec::parse(&format!("{name}.toml"), text).err()
}

/// The error of a text with these changes.
fn error_after(text: &str, changes: &[(&str, &str)]) -> SpecError {
    error_of("my", &changed(text, changes)).unwrap_or_else(|| panic!("{changes:?} is taken"))
}

#[test]
fn every_mistake_in_every_key_is_told_in_full() {
    let parse = |name: &str, text: &str| DriveSpec::parse(name, text).map(|_| ());
    for (name, text) in descriptions() {
        let (name, text, parse) = (&format!("{name}.toml"), &text, &parse);
        Description { name, text, parse }.check();
    }
}

#[test]
fn a_key_of_no_meaning_is_told_with_those_that_have_one() {
    for (name, text) in descriptions() {
        for (number, header) in text.lines().enumerate() {
            let Some(table) = header.strip_prefix('[').filter(|t| *t != "assumed]") else {
                continue;
            };
            let changed = with_line(&text, number + 1, &format!("{header}\nno_such_key = 1"));
            let error = error_of(&name, &changed).expect("there is no such key");
            let table = table.trim_end_matches(|c| c != ']').trim_end_matches(']');
            assert_eq!(error.key, format!("{table}.no_such_key"), "{error}");
            assert_eq!(error.line, number + 2, "{error}");
            let start = "no such key here; legal are ";
            assert!(error.problem.starts_with(start), "{error}");
        }
    }
}

#[test]
fn an_slc_cache_has_to_fit_its_drive() {
    let text = crate::texts::complete("ssd-pages");
    let error = |from: &str, to: &str| error_after(&text, &[(from, to)]);
    let too_large = error("static_mb = 1\n", "static_mb = 1000000000\n");
    assert_eq!(too_large.key, "slc_cache.static_mb");
    assert!(
        too_large
            .problem
            .contains("legal is below geometry.blocks_per_plane")
    );
    let takes_all = error("static_mb = 1\n", "static_mb = 80\n");
    assert_eq!(takes_all.key, "geometry.blocks_per_plane");
    assert!(
        takes_all.problem.contains("slc_cache.static_mb"),
        "{takes_all}"
    );
    let nothing = error(
        "static_mb = 1\ndynamic_mb = 1",
        "static_mb = 0\ndynamic_mb = 0",
    );
    assert!(nothing.problem.contains("above 0"), "{nothing}");
    let fresh = [("state = \"aged\"", "state = \"fresh\"")];
    let empty = error_after(&crate::texts::without_table(&text, "aged"), &fresh);
    assert_eq!(empty.key, "slc_cache.filled");
}

/// The least and most blocks of a plane that messages name are exact.
#[test]
fn the_bounds_of_blocks_that_are_told_are_the_bounds() {
    let text = crate::texts::complete("ssd-pages");
    let with = |blocks: u64| {
        let line = format!("blocks_per_plane = {blocks}");
        let changed = changed(&text, &[("blocks_per_plane = 200", &line)]);
        error_of("my", &changed).filter(|error| error.key == "geometry.blocks_per_plane")
    };
    let bound_in_message = |blocks: u64, before: &str| -> u64 {
        let error = with(blocks).expect("out of bounds");
        let found = format!("found {blocks}, ");
        assert!(error.problem.starts_with(&found), "{error}");
        let (_, legal) = error.problem.split_once(before).expect("in the message");
        let digits = legal.split(|c: char| !c.is_ascii_digit()).next();
        digits
            .and_then(|digits| digits.parse().ok())
            .expect("a number")
    };
    let least = bound_in_message(60, "legal is at least ");
    assert_eq!((with(least - 1).is_some(), with(least)), (true, None));
    let most = bound_in_message(1 << 20 | 1, "to ");
    assert_eq!((with(most + 1).is_some(), most), (true, 1 << 20));
    let many = [
        ("channels = 2", "channels = 64"),
        ("blocks_per_plane = 200", "blocks_per_plane = 200000"),
    ];
    let error = error_after(&text, &many);
    assert!(
        error
            .problem
            .ends_with("legal is at most 131072 (16777216 in all)"),
        "{error}"
    );
}

/// The blocks that the map takes are told where the drive keeps it on flash.
#[test]
fn what_takes_a_plane_s_blocks_is_told() {
    let pages = crate::texts::complete("ssd-pages");
    let nvme = registry::text("nvme").expect("listed");
    for (text, blocks, has_map) in [(&pages[..], 200, true), (nvme, 2000, false)] {
        let line = format!("blocks_per_plane = {blocks}");
        let error = error_after(text, &[(&line, "blocks_per_plane = 60")]);
        assert_eq!(error.key, "geometry.blocks_per_plane");
        let names_map = error.problem.contains(" for the map (ftl.map_cache_kb)");
        assert_eq!(names_map, has_map, "{error}");
    }
}

/// Map entries of a block are numbered in 16 bits and those of the drive in 32.
#[test]
fn too_many_map_entries_are_told_with_how_many_are_legal() {
    let text = crate::texts::complete("ssd-pages");
    let error = |unit_bytes: u32, pages: u32, blocks: u32| {
        let unit = format!("map_unit_bytes = {unit_bytes}");
        let pages = format!("pages_per_block = {pages}");
        let blocks = format!("blocks_per_plane = {blocks}");
        // One plane of pages of 4 KiB.
        let changes = [
            ("channels = 2", "channels = 1"),
            ("planes_per_die = 2", "planes_per_die = 1"),
            ("map_unit_bytes = 4096", &unit),
            ("pages_per_block = 96", &pages),
            ("blocks_per_plane = 200", &blocks),
        ];
        let found = error_of("my", &changed(&text, &changes));
        found.filter(|error| error.key == "ftl.map_unit_bytes")
    };
    let problem = |error: Option<SpecError>| error.expect("is too many").problem;
    assert!(error(1024, 16_383, 200).is_none());
    let of_block = problem(error(1024, 16_384, 200));
    let expected =
        "which makes 65536 map entries a block, legal is at most 65535: use a larger map unit";
    assert!(of_block.ends_with(expected), "{of_block}");
    assert!(error(4096, 13_107, 327_684).is_none());
    let of_drive = problem(error(4096, 13_107, 327_685));
    let expected =
        "which makes 4294967295 map entries, legal is below 4294967295: use a larger map unit";
    assert!(of_drive.ends_with(expected), "{of_drive}");
}

/// What is read ahead for all readers fits in the cache.
#[test]
fn the_most_that_may_be_read_ahead_is_told() {
    let text = crate::texts::complete("ssd-pages");
    let error = |kb: u32| {
        let line = format!("read_ahead_kb = {kb}");
        error_of("my", &changed(&text, &[("read_ahead_kb = 8", &line)]))
    };
    assert_eq!(error(128).map(|error| error.key), None);
    let error = error(129).expect("is more than 1024 for 8 readers");
    assert_eq!(error.key, "read_cache.read_ahead_kb");
    let expected = "legal is at most 128 (size_kb / read_ahead_streams)";
    assert!(error.problem.ends_with(expected), "{error}");
}

/// Background collection has to start early enough that the host always finds a block.
#[test]
fn collection_that_steps_aside_starts_before_the_reserve() {
    let text = registry::text("nvme").expect("listed");
    let started_at = |blocks: &str| error_of("my", &text.replace("start_blocks = 20", blocks));
    let error = started_at("start_blocks = 4").expect("the reserve is 2");
    assert_eq!(error.key, "gc.start_blocks");
    assert!(error.to_string().contains("at least 5"), "{error}");
    assert_eq!(started_at("start_blocks = 5").map(|error| error.key), None);
}

#[test]
fn hybrid_mapping_refuses_what_it_does_not_go_with() {
    let text = crate::texts::complete("ssd-blocks");
    let error = |from: &str, to: &str| error_after(&text, &[(from, to)]);
    for (from, to, key) in [
        ("\"static\"", "\"next_free\"", "ftl.allocation"),
        ("map_cache_kb = 0", "map_cache_kb = 64", "ftl.map_cache_kb"),
        (
            "copyback = \"none\"",
            "copyback = \"same_plane\"",
            "flash.copyback",
        ),
        (
            "dynamic = true",
            "static_spread = 9",
            "wear_levelling.static_spread",
        ),
        (
            "[gc]",
            "[slc_cache]\nstatic_mb = 9\nread_us = 1\nprogram_us = 1\nwhen_full = \"wait\"\n[gc]",
            "slc_cache",
        ),
        ("simulate = true", "simulate = false", "state"),
        ("occupancy = 1.0", "occupancy = 0.5", "aged.occupancy"),
        ("depth = 4", "policy = \"greedy\"", "gc.policy"),
        ("[hybrid]", "[hybrids]", "ftl.mapping"),
        ("mapping = \"hybrid\"", "", "hybrid"),
        (
            "random_logs = 8",
            "random_logs = 999",
            "geometry.blocks_per_plane",
        ),
    ] {
        assert_eq!(error(from, to).key, key, "{to}");
    }
}

/// A disk with a seek curve in place of its three seek times.
fn with_curve(curve: &str) -> Result<DriveSpec, SpecError> {
    let text = registry::text("hdd-7200").expect("listed");
    let is_seek = |line: &&str| !line.contains("_seek_us");
    let lines: Vec<&str> = text.lines().filter(is_seek).collect();
    let curve = format!(
        "[mechanics]
seek_curve = {curve}"
    );
    let text = lines
        .join(
            "
",
        )
        .replace("[mechanics]", &curve);
    DriveSpec::parse("my.toml", &text)
}

#[test]
fn a_seek_curve_has_rising_whole_distances_and_times_of_at_most_a_second() {
    for curve in [
        "[[1, 500]]",
        "[[1, 0], [2, 1000000]]",
        "[[1, 900], [1000, 5000.5], [9999999, 400]]",
    ] {
        if let Err(error) = with_curve(curve) {
            // The three seek times that follow from it have their own order.
            assert!(error.key.ends_with("_seek_us"), "{curve}: {error}");
        }
    }
    assert!(with_curve("[[1, 900], [1000, 5000], [90000, 14000]]").is_ok());
    for curve in [
        "[]",
        "[[1]]",
        "[[1, 2, 3]]",
        "[[0, 500]]",
        "[[0.5, 500]]",
        "[[1.5, 500]]",
        "[[1, 1000001]]",
        "[[1, 500], [1, 600]]",
        "[[2, 500], [1, 600]]",
        "[[1, 500], [3, 600], [3, 700]]",
    ] {
        let Err(error) = with_curve(curve) else {
            panic!("{curve} is taken");
        };
        assert!(
            error.key.contains("mechanics.seek_curve"),
            "{curve}: {error}"
        );
    }
}

/// A disk with these zones in place of its own.
fn with_zones(zones: &str) -> Result<DriveSpec, SpecError> {
    let text = registry::text("hdd-7200").expect("listed");
    let start = text.find("zones = [").expect("has zones");
    let length = text[start..]
        .find(
            "
]",
        )
        .expect("ends")
        + 2;
    let text = format!(
        "{}zones = {zones}{}",
        &text[..start],
        &text[start + length..]
    );
    DriveSpec::parse("my.toml", &text)
}

#[test]
fn a_zone_has_cylinders_and_sectors_or_both_skews_or_an_angle_as_well() {
    let large = "[10000000, 100000]";
    for zones in [
        format!("[{large}]"),
        format!("[{large}, [1, 0]]"),
        "[[10000000, 100000, 5, 9]]".to_string(),
        "[[10000000, 100000, 0, 0]]".to_string(),
        "[[10000000, 100000, 5, 9, 7]]".to_string(),
    ] {
        if let Err(error) = with_zones(&zones) {
            panic!("{zones}: {error}");
        }
    }
    for zones in [
        "[]",
        "[[10000000]]",
        "[[10000000, 100000, 5]]",
        "[[10000000, 100000, 5, 9, 7, 1]]",
        "[[0, 100000], [10000000, 100000]]",
        "[[10000000, 0]]",
        "[[10000000.5, 100000]]",
        "[[10000000, 100000.5]]",
        "[[10000001, 100000]]",
        "[[1, 8]]",
        "[[10000000, 100001]]",
    ] {
        let Err(error) = with_zones(zones) else {
            panic!("{zones} is taken");
        };
        assert!(error.key.contains("mechanics.zones"), "{zones}: {error}");
    }
}

#[test]
fn skipped_sectors_rise_and_are_in_the_zones() {
    let text = crate::texts::complete("disk");
    let skipped = |runs: &str| {
        let now = format!("skipped_sectors = {runs}");
        changed(&text, &[("skipped_sectors = [[64, 8], [128, 8]]", &now)])
    };
    for runs in ["[[0, 64]]", "[[0, 64], [64, 8]]"] {
        if let Err(error) = DriveSpec::parse("my", &skipped(runs)) {
            panic!("{runs}: {error}");
        }
    }
    for runs in [
        "[[0, 64], [56, 8]]",
        "[[64, 8], [0, 8]]",
        "[[64, 0]]",
        "[[64]]",
        "[[4, 8]]",
        "[[1000000000, 8]]",
    ] {
        let Some(error) = error_of("my", &skipped(runs)) else {
            panic!("{runs} is taken");
        };
        assert_eq!(error.key, "mechanics.skipped_sectors", "{runs}: {error}");
    }
}
