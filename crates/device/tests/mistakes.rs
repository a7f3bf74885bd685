//! Drive descriptions with one mistake each: whatever the key, the error names
//! the file, the line, the key and what would be right.

use blklab_description::SpecError;
use blklab_device::{DriveSpec, registry};

/// What a complete SSD can have besides what the drives that come with the
/// program use, so that every key is there once.
const MORE: &str = r#"
[slc_cache]
static_mb = 1000
dynamic_mb = 1000
read_us = 20
program_us = 100
erase_us = 1000
when_full = "wait"
fold_after_us = 1000
filled = 0.5
[read_cache]
size_kb = 1024
policy = "lru"
[nvme]
arbitration = "weighted"
queue_priorities = "uhml"
high_weight = 8
medium_weight = 4
low_weight = 1
burst = 2
fetch_limit = 100
"#;

/// All descriptions, and one with every optional table.
fn descriptions() -> Vec<(String, String)> {
    let text = |name: &str| registry::text(name).expect("listed").to_string();
    let mut all: Vec<(String, String)> = registry::names()
        .map(|name| (name.to_string(), text(name)))
        .collect();
    let more = text("nvme").replace(
        "multi_plane =",
        "copyback = \"same_parity\"\ncache_program = true\nmulti_plane =",
    ) + MORE;
    all.push(("hybrid".to_string(), hybrid()));
    all.push(("more".to_string(), more));
    for (name, text) in &all {
        DriveSpec::parse(name, text).unwrap_or_else(|error| panic!("{error}"));
    }
    all
}

/// A drive that maps blocks.
fn hybrid() -> String {
    let text = registry::text("nvme").expect("listed");
    let (before, _) = text.split_once("[gc]").expect("the last table");
    let mapping = "[ftl]\nmapping = \"hybrid\"";
    before.replace("[ftl]", mapping)
        + "[gc]\ndepth = 4\n[hybrid]\nsequential_logs = 2\nrandom_logs = 8\nassociativity = 3\n"
}

/// The lines that set a key as a whole: number from one, key with its table,
/// key, value.
fn settings(text: &str) -> Vec<(usize, String, String, String)> {
    let mut table = String::new();
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            table = format!("{name}.");
        } else if let Some((key, value)) = line.split_once(" = ")
            && value.trim() != "["
        {
            let entry = (number + 1, format!("{table}{key}"), key, value.trim());
            found.push((entry.0, entry.1, entry.2.to_string(), entry.3.to_string()));
        }
    }
    found
}

/// The text with another line in the place of one.
fn with_line(text: &str, number: usize, line: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines[number - 1] = line;
    lines.join("\n")
}

fn error_of(name: &str, text: &str) -> Option<SpecError> {
    DriveSpec::parse(&format!("{name}.toml"), text).err()
}

#[test]
fn a_value_of_the_wrong_kind_or_size_is_refused_where_it_stands() {
    for (name, text) in descriptions() {
        for (number, path, key, value) in settings(&text) {
            let wrong: &[&str] = match value.chars().next() {
                Some('"') => &["\"nonsense\"", "17", "[]"],
                Some('t' | 'f') => &["1", "\"yes\""],
                Some('[') => &["[]", "[-1]", "\"x\""],
                _ => &["-1", "1e300", "nan", "\"1\"", "true", "1979-05-27"],
            };
            for wrong in wrong {
                if key == "description" && wrong.starts_with('"') {
                    continue; // Any text is one.
                }
                let changed = with_line(&text, number, &format!("{key} = {wrong}"));
                let error = error_of(&name, &changed)
                    .unwrap_or_else(|| panic!("{name}: {path} = {wrong} is taken"));
                assert_eq!(error.file, format!("{name}.toml"));
                assert_eq!((error.line, &error.key), (number, &path), "{error}");
                assert!(error.problem.contains("legal"), "{error}");
                assert!(!error.to_string().contains('\n'), "{error}");
            }
        }
    }
}

#[test]
fn a_key_that_is_missing_is_optional_or_named() {
    for (name, text) in descriptions() {
        for (number, path, ..) in settings(&text) {
            let Some(error) = error_of(&name, &with_line(&text, number, "")) else {
                continue;
            };
            // Without its size or state, other keys may not fit any more.
            let about_it = error.key == path && error.problem.contains("missing");
            let about_another = error.problem.contains("legal") || error.problem.contains("needs");
            assert!(about_it || about_another, "{name}: without {path}: {error}");
        }
    }
}

#[test]
fn a_unit_left_out_and_a_key_of_no_meaning_are_refused() {
    const UNITS: [&str; 8] = [
        "_us", "_ns", "_kb", "_mb", "_mb_s", "_mt_s", "_bytes", "_ms",
    ];
    for (name, text) in descriptions() {
        for (number, path, key, value) in settings(&text) {
            let stem = UNITS.iter().find_map(|unit| key.strip_suffix(unit));
            for other in stem.into_iter().chain(["no_such_key"]) {
                let changed = with_line(&text, number, &format!("{other} = {value}"));
                let error = error_of(&name, &changed)
                    .unwrap_or_else(|| panic!("{name}: {other} for {path} is taken"));
                let names = error.key.ends_with(&key)
                    || error.key.ends_with(other)
                    || error.problem.contains(&key);
                let about_another =
                    error.problem.contains("legal") || error.problem.contains("needs");
                assert!(
                    names || about_another,
                    "{name}: {other} for {path}: {error}"
                );
            }
        }
    }
}

#[test]
fn an_slc_cache_has_to_fit_its_drive() {
    let (_, more) = descriptions().pop().expect("the last has one");
    let error = |from: &str, to: &str| {
        assert!(more.contains(from), "{from}");
        error_of("my", &more.replace(from, to)).unwrap_or_else(|| panic!("{to} is taken"))
    };
    let too_large = error("static_mb = 1000", "static_mb = 1000000000");
    assert_eq!(too_large.key, "slc_cache.static_mb");
    assert!(
        too_large
            .problem
            .contains("legal is below blocks_per_plane")
    );
    let takes_all = error("static_mb = 1000", "static_mb = 100000");
    assert_eq!(takes_all.key, "geometry.blocks_per_plane");
    assert!(
        takes_all.problem.contains("slc_cache.static_mb"),
        "{takes_all}"
    );
    let nothing = error(
        "static_mb = 1000\ndynamic_mb = 1000",
        "static_mb = 0\ndynamic_mb = 0",
    );
    assert!(nothing.problem.contains("above 0"), "{nothing}");
    let empty = error("state = \"filled\"", "state = \"fresh\"");
    assert_eq!(empty.key, "slc_cache.filled");
}

/// Where collection stops there must be a block left that the host can begin.
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
    let text = hybrid();
    let error = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        error_of("my", &text.replace(from, to)).unwrap_or_else(|| panic!("{to} is taken"))
    };
    let filled = "state = \"filled\"";
    let aged = "state = \"aged\"\naged = { occupancy = 1.0 }";
    for (from, to, key) in [
        (
            "layout =",
            "allocation = \"next_free\"\nlayout =",
            "ftl.allocation",
        ),
        (
            "layout =",
            "map_cache_kb = 64\nlayout =",
            "ftl.map_cache_kb",
        ),
        (
            "multi_plane =",
            "copyback = \"same_plane\"\nmulti_plane =",
            "flash.copyback",
        ),
        (
            "[gc]",
            "[wear_levelling]\nstatic_spread = 9\n[gc]",
            "wear_levelling.static_spread",
        ),
        (
            "[gc]",
            "[slc_cache]\nstatic_mb = 9\nread_us = 1\nprogram_us = 1\nwhen_full = \"wait\"\n[gc]",
            "slc_cache",
        ),
        (filled, aged, "state"),
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
