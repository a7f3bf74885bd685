//! Tests of the project's structure.

mod circles;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use blklab_description::Kind;
use blklab_device::{DriveSpec, registry};

use crate::page;
use crate::set::SERPENTINE;
use circles::circles;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the folders directly below `folder`.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of the project");
    let mut folders: Vec<PathBuf> = (entries.map(|entry| entry.expect("an entry").path()))
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders
}

/// Returns all Rust files below `folder`.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = folders(folder).iter().flat_map(|f| sources(f)).collect();
    let entries = fs::read_dir(folder).expect("a folder of the project");
    let files = entries.map(|entry| entry.expect("an entry").path());
    found.extend(files.filter(|path| path.extension().is_some_and(|ending| ending == "rs")));
    found
}

fn name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

#[test]
fn every_room_is_on_the_map() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    for room in folders(&root().join("crates")) {
        let room = name(&room);
        assert!(
            map.contains(&format!("`{room}`")),
            "ARCHITECTURE.md does not name {room}"
        );
    }
}

/// Every file and folder that the map names with a slash exists.
#[test]
fn the_map_names_what_is_there() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    for place in map
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|place| place.contains('/'))
    {
        let parts = ["", "crates"].map(|below| root().join(below).join(place));
        let rooms = folders(&root().join("crates"));
        let inside = rooms.iter().any(|room| {
            let deep = folders(&room.join("src"));
            room.join("src").join(place).exists() || deep.iter().any(|f| f.join(place).exists())
        });
        assert!(
            inside || parts.iter().any(|path| path.exists()),
            "{place} is not there"
        );
    }
}

/// Every page of evidence is found from the README, and so is every guide and reference page.
#[test]
fn every_page_is_linked_from_the_readme() {
    let readme = fs::read_to_string(root().join("README.md")).expect("README.md");
    for folder in ["docs", "docs/evidence", "docs/reference"] {
        for page in fs::read_dir(root().join(folder)).expect("a folder of the project") {
            let page = name(&page.expect("an entry").path());
            if page.ends_with(".md") {
                let link = format!("]({folder}/{page})");
                assert!(readme.contains(&link), "README.md has no link {link}");
            }
        }
    }
}

/// Returns the units that the map names, of files that may import one another: each as its files
/// and folders, the first of which says where the others are.
fn units(map: &str) -> Vec<Vec<PathBuf>> {
    let (_, list) = (map.split_once("Files that import one another are one unit"))
        .expect("the map's list of units");
    let lines = list.lines().skip_while(|line| !line.starts_with("- "));
    let unit = |line: &str| {
        let quoted = line.split('`').skip(1).step_by(2);
        let mut places = quoted.filter(|place| place.ends_with(".rs") || place.ends_with('/'));
        let first = root()
            .join("crates")
            .join(places.next().expect("a unit's place"));
        let folder = match first.is_dir() {
            true => first.as_path(),
            false => first.parent().expect("a folder"),
        };
        let others: Vec<PathBuf> = places.map(|place| folder.join(place)).collect();
        [vec![first], others].concat()
    };
    (lines.take_while(|line| line.starts_with("- ")).map(unit)).collect()
}

/// Files of a crate that import one another in a circle are one of the units that the map names,
/// and each of these is a circle.
#[test]
fn circles_of_files_are_units_on_the_map() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let units = units(&map);
    for place in units.iter().flatten() {
        assert!(place.exists(), "{} is not there", place.display());
    }
    let rooms = folders(&root().join("crates"));
    let circles: Vec<BTreeSet<PathBuf>> =
        (rooms.iter().flat_map(|room| circles(&room.join("src")))).collect();
    let holds = |unit: &[PathBuf], circle: &BTreeSet<PathBuf>| {
        let is_in_unit = |file: &PathBuf| unit.iter().any(|place| file.starts_with(place));
        circle.iter().all(is_in_unit)
    };
    let unnamed: Vec<_> = (circles.iter())
        .filter(|circle| !units.iter().any(|unit| holds(unit, circle)))
        .collect();
    assert!(
        unnamed.is_empty(),
        "files import one another that ARCHITECTURE.md does not name as a unit: {unnamed:#?}"
    );
    for unit in &units {
        assert!(
            circles.iter().any(|circle| holds(unit, circle)),
            "these files do not import one another: ARCHITECTURE.md need not name {unit:#?}"
        );
    }
}

/// The methods of a type are in the type's folder or below.
#[test]
fn types_own_their_methods() {
    for room in folders(&root().join("crates")) {
        let mut homes: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
        let files = sources(&room.join("src"));
        let texts: Vec<(PathBuf, String)> = (files.into_iter())
            .map(|file| {
                (
                    file.clone(),
                    fs::read_to_string(&file).expect("a source file"),
                )
            })
            .collect();
        for (file, text) in &texts {
            for line in text.lines() {
                if let Some(rest) = declared(line) {
                    let folder = file.parent().unwrap_or(file).to_path_buf();
                    homes.entry(identifier(rest)).or_default().push(folder);
                }
            }
        }
        for (file, text) in &texts {
            for line in text.lines().filter(|line| line.starts_with("impl")) {
                let Some(of) = inherent(line) else { continue };
                let Some(homes) = homes.get(&of) else {
                    continue;
                };
                assert!(
                    homes.iter().any(|home| file.starts_with(home)),
                    "{}: impl {of} stands outside of {}",
                    file.display(),
                    homes[0].display()
                );
            }
        }
    }
}

/// Returns the text after `struct` or `enum` if the line declares one.
fn declared(line: &str) -> Option<&str> {
    let line = ["pub ", "pub(crate) ", "pub(super) "]
        .iter()
        .fold(line, |line, visibility| {
            line.strip_prefix(visibility).unwrap_or(line)
        });
    line.strip_prefix("struct ").or(line.strip_prefix("enum "))
}

/// Returns the identifier at the beginning of a text.
fn identifier(text: &str) -> String {
    text.chars()
        .take_while(|letter| letter.is_alphanumeric() || *letter == '_')
        .collect()
}

/// Returns the type of a line `impl Type {`; `None` for a trait's implementation.
fn inherent(line: &str) -> Option<String> {
    let rest = line.strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        Some(generics) => {
            let mut depth = 1;
            let end = generics.find(|letter| {
                depth += i32::from(letter == '<') - i32::from(letter == '>');
                depth == 0
            })?;
            &generics[end + 1..]
        }
        None => rest,
    };
    let rest = rest.strip_prefix(' ')?;
    (!rest.contains(" for ")).then(|| identifier(rest))
}

/// Returns the keys of a table with their values, prefixed by the table's name.
fn settings(path: &str, table: &toml::Table) -> Vec<(String, String)> {
    let of_key = |(name, value): (&String, &toml::Value)| match value {
        toml::Value::Table(inner) => settings(&format!("{path}{name}."), inner),
        toml::Value::String(word) => vec![(format!("{path}{name}"), word.clone())],
        other => vec![(format!("{path}{name}"), other.to_string())],
    };
    table.iter().flat_map(of_key).collect()
}

/// Returns the keys and values that shipped drives and those of a data set set, and that
/// evidence pages vary.
fn used_in_drives() -> BTreeSet<(String, String)> {
    let mut used = BTreeSet::new();
    used.insert((format!("mechanics.{SERPENTINE}"), "true".into()));
    for name in registry::names() {
        let text = registry::text(name).expect("listed");
        used.extend(settings("", &text.parse().expect(name)));
    }
    for page in page::ALL {
        for varied in page.template.split("--vary drive.").skip(1) {
            let varied = varied.split([' ', '"']).next().unwrap_or_default();
            let (key, values) = varied.split_once('=').expect("KEY=VALUE");
            used.extend(values.split(',').map(|value| (key.into(), value.into())));
        }
    }
    used
}

/// Every choice of a drive's key is used by a shipped drive or shown by an evidence
/// page.
#[test]
fn every_choice_of_a_drive_is_used() {
    let used = used_in_drives();
    for (name, text) in DriveSpec::complete() {
        let (_, reference) = DriveSpec::parse_with_reference(name, text).expect(name);
        for table in reference.tables() {
            for key in &table.keys {
                let path = match table.path.as_str() {
                    "" => key.name.clone(),
                    table => format!("{table}.{}", key.name),
                };
                let choices: Vec<String> = match &key.kind {
                    Kind::Word(words) => words.iter().map(|(word, _)| word.clone()).collect(),
                    Kind::Flag => vec!["false".into(), "true".into()],
                    _ => Vec::new(),
                };
                for choice in choices {
                    let is_used = used.contains(&(path.clone(), choice.clone()));
                    assert!(
                        is_used || key.default.as_ref() == Some(&choice),
                        "{path} = {choice}: no drive has it, and no evidence page shows what it does"
                    );
                }
            }
        }
    }
}
