//! Drive descriptions with one mistake each: whatever the key, the error names
//! the file, the line, the key and what would be right.

use blklab_description::SpecError;
use blklab_device::{DriveSpec, registry};

#[path = "harness/texts.rs"]
mod texts;

use texts::{Setting, changed, settings, with_line};

/// All descriptions, and those with every key of a kind.
fn descriptions() -> Vec<(String, String)> {
    let text = |name: &str| registry::text(name).expect("listed").to_string();
    let mut all: Vec<(String, String)> = registry::names()
        .map(|name| (name.to_string(), text(name)))
        .collect();
    for (name, text) in [
        ("every-null", texts::null()),
        ("every-disk", texts::disk()),
        ("every-pages", texts::pages()),
        ("every-logs", texts::logs()),
    ] {
        all.push((name.to_string(), text));
    }
    for (name, text) in &all {
        DriveSpec::parse(name, text).unwrap_or_else(|error| panic!("{error}"));
    }
    all
}

fn error_of(name: &str, text: &str) -> Option<SpecError> {
    DriveSpec::parse(&format!("{name}.toml"), text).err()
}

#[test]
fn a_value_of_the_wrong_kind_or_size_is_refused_where_it_stands() {
    for (name, text) in descriptions() {
        for set in settings(&text) {
            let Setting {
                line: number,
                path,
                key,
                value,
            } = set;
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
        for set in settings(&text) {
            let Setting {
                line: number, path, ..
            } = set;
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
        for set in settings(&text) {
            let Setting {
                line: number,
                path,
                key,
                value,
            } = set;
            let stem = UNITS.iter().find_map(|unit| key.strip_suffix(unit));
            for other in stem.into_iter().chain(["no_such_key"]) {
                let changed = with_line(&text, number, &format!("{other} = {value}"));
                let error = error_of(&name, &changed)
                    .unwrap_or_else(|| panic!("{name}: {other} for {path} is taken"));
                let names = error.key.ends_with(key)
                    || error.key.ends_with(other)
                    || error.problem.contains(key);
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
    let text = texts::pages();
    let error = |from: &str, to: &str| {
        let text = changed(&text, &[(from, to)]);
        error_of("my", &text).unwrap_or_else(|| panic!("{to} is taken"))
    };
    let too_large = error("static_mb = 1\n", "static_mb = 1000000000\n");
    assert_eq!(too_large.key, "slc_cache.static_mb");
    assert!(
        too_large
            .problem
            .contains("legal is below blocks_per_plane")
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
    let fresh = [("state = \"aged\"", "state = \"fresh\""), (texts::AGED, "")];
    let empty = error_of("my", &changed(&text, &fresh)).expect("nothing fills it");
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
    let text = texts::logs();
    let error = |from: &str, to: &str| {
        let text = changed(&text, &[(from, to)]);
        error_of("my", &text).unwrap_or_else(|| panic!("{to} is taken"))
    };
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
