//! Compares the declarations with what the installed fio lists.

use std::collections::BTreeSet;
use std::process::Command;

use super::*;

/// Returns fio's output; `None` if fio is not installed.
fn fio(argument: &str) -> Option<String> {
    let output = blklab_judges::have("fio").then(|| Command::new("fio").arg(argument).output())?;
    let output = output.unwrap();
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Some(text)
}

/// Returns the names that `fio --cmdhelp` or `--enghelp` lists: the text before a colon in the
/// first 24 columns.
fn names_in(help: &str) -> BTreeSet<String> {
    help.lines()
        .filter(|line| !line.contains("has no options") && !line.ends_with("engines:"))
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name.trim().to_string())
        .filter(|name| !name.is_empty() && !name.contains(' '))
        .collect()
}

#[test]
fn options_are_known_by_name_and_alias() {
    assert!(has_option("iodepth") && has_option("blocksize") && !has_option("depth"));
}

#[test]
fn whole_numbers_are_told_from_fractions() {
    for name in ["iodepth", "blocksize", "runtime", "rate", "size"] {
        assert!(takes_whole_numbers(name), "{name}");
    }
    for name in ["latency_percentile", "steadystate", "rw", "no_such_option"] {
        assert!(!takes_whole_numbers(name), "{name}");
    }
}

#[test]
fn names_are_unique() {
    let mut seen = BTreeSet::new();
    for name in names() {
        assert!(seen.insert(name), "{name} is there twice");
    }
}

#[test]
fn every_default_is_legal_and_every_help_a_sentence() {
    for option in listed() {
        let help = option.help;
        assert!(help.ends_with('.') && !help.starts_with(' '), "{help:?}");
        if let Some(default) = option.default {
            let set = option.set(Some(default), &mut defaults());
            assert!(set.is_ok(), "{}={default}: {set:?}", option.name);
        }
    }
}

#[test]
fn we_know_every_option_fio_lists() {
    let Some(help) = fio("--cmdhelp") else { return };
    let names = names_in(&help);
    assert!(names.len() > 200, "{}", names.len());
    for name in &names {
        let option = find(name).unwrap_or_else(|| panic!("{name} is missing"));
        assert!(option.engines.is_empty(), "{name} is not an engine's own");
    }
}

#[test]
#[ignore = "asks fio two hundred times"]
fn we_know_no_option_fio_does_not() {
    for option in listed().filter(|option| option.engines.is_empty()) {
        if matches!(option.values, Values::Removed | Values::Obsolete) {
            continue;
        }
        let name = option.name;
        let Some(help) = fio(&format!("--cmdhelp={name}")) else {
            return;
        };
        assert!(!help.contains("No such command"), "{name}");
        let alias = help
            .lines()
            .find_map(|line| line.trim().strip_prefix("alias: "));
        assert_eq!(option.alias, alias, "{name}");
        check_values(option, &help);
    }
}

/// Compares words and bounds with `fio --cmdhelp=NAME`.
fn check_values(option: &FioOption, help: &str) {
    let name = option.name;
    let range = help
        .lines()
        .find_map(|line| line.trim().strip_prefix("range: "));
    let bound = |which: &str| -> Option<i64> {
        let (_, after) = range?.split_once(which)?;
        let end = after.find(',').unwrap_or(after.len());
        after[..end].trim().parse().ok()
    };
    let (min, max) = (bound("min="), bound("max=").filter(|max| *max != -1));
    match &option.values {
        Values::Count(legal, _) | Values::Counts(legal, _) => {
            assert_eq!(min.unwrap_or(0), *legal.start() as i64, "{name}");
            if let Some(max) = max {
                assert_eq!(max, *legal.end() as i64, "{name}");
            }
        }
        Values::Amounts(low, _) => assert_eq!(min.unwrap_or(0), *low as i64, "{name}"),
        Values::Signed(legal, _) => {
            assert_eq!(
                (min, max),
                (Some(*legal.start()), Some(*legal.end())),
                "{name}"
            );
        }
        Values::OneOf(_) | Values::Word(..) | Values::WordAndDetail(..) => {
            let (_, values) = help.split_once("valid values:").unwrap_or(("", ""));
            let listed: BTreeSet<&str> = values
                .lines()
                .filter_map(|line| line.trim_start_matches([' ', ':']).split(' ').next())
                .filter(|word| !word.is_empty())
                .collect();
            assert_eq!(BTreeSet::from_iter(option.values.words()), listed, "{name}");
        }
        Values::Flag(_) => assert!(help.contains("boolean value"), "{name}"),
        Values::Switch(_) => assert!(help.contains("empty or boolean"), "{name}"),
        Values::Time(..) | Values::Times(..) => assert!(
            help.contains("time postfix") || help.contains("integer value"),
            "{name}"
        ),
        _ => {}
    }
}

fn check_engine(engine: &str, help: &str) {
    assert!(Engine::names().contains(&engine), "{engine}");
    for name in names_in(help) {
        let option = find(&name).unwrap_or_else(|| panic!("{engine}: {name}"));
        assert!(option.engines.contains(&engine), "{engine}: {name}");
    }
}

#[test]
fn we_know_the_options_of_the_engines_we_have() {
    for engine in ["psync", "pvsync2", "libaio", "io_uring"] {
        let Some(help) = fio(&format!("--enghelp={engine}")) else {
            return;
        };
        check_engine(engine, &help);
    }
}

#[test]
#[ignore = "asks fio once for each of its engines"]
fn we_know_the_options_of_every_engine() {
    let Some(list) = fio("--enghelp") else { return };
    let engines: Vec<&str> = list.lines().skip(1).map(str::trim).collect();
    assert!(engines.len() > 20);
    for engine in engines.into_iter().filter(|engine| !engine.is_empty()) {
        check_engine(engine, &fio(&format!("--enghelp={engine}")).unwrap());
    }
}
