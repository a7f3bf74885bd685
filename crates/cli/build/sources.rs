//! What a crate is built from, as one number.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The sources of a crate with all crates of the workspace that it is built from.
pub(crate) struct Sources {
    /// A hash of their contents, their manifests and the workspace's lock file (FNV-1a, which
    /// is the same with any compiler).
    pub(crate) hash: u64,
    /// The files and folders that were hashed.
    pub(crate) watched: Vec<PathBuf>,
}

impl Sources {
    /// Reads the sources of the crate in the folder `own` of a workspace.
    pub(crate) fn of(workspace: &Path, own: &str) -> Sources {
        let mut sources = Sources {
            hash: 0xcbf2_9ce4_8422_2325,
            watched: Vec::new(),
        };
        let mut crates = BTreeSet::new();
        add_crates(workspace, own, &mut crates);
        let files = ["Cargo.toml".to_string(), "Cargo.lock".to_string()];
        let of_crate = |of: &String| [format!("{of}/Cargo.toml"), format!("{of}/src")];
        for place in files.into_iter().chain(crates.iter().flat_map(of_crate)) {
            sources.add(workspace, &place);
            sources.watched.push(workspace.join(place));
        }
        sources
    }

    /// Adds a file or all files of a folder, by their names in the workspace.
    fn add(&mut self, workspace: &Path, place: &str) {
        let path = workspace.join(place);
        if let Ok(entries) = fs::read_dir(&path) {
            let names = entries.flatten().map(|entry| entry.file_name());
            let names: BTreeSet<_> = names.collect();
            for name in names {
                self.add(workspace, &format!("{place}/{}", name.to_string_lossy()));
            }
        } else {
            let content = fs::read(&path).unwrap_or_default();
            let length = content.len().to_le_bytes();
            for byte in place.bytes().chain(length).chain(content) {
                self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
        }
    }
}

/// Adds a crate and those of the workspace that it depends on, but not those of its tests.
fn add_crates(workspace: &Path, own: &str, crates: &mut BTreeSet<String>) {
    if !crates.insert(own.to_string()) {
        return;
    }
    let manifest = fs::read_to_string(workspace.join(own).join("Cargo.toml"));
    let manifest = manifest.unwrap_or_default();
    let lines = manifest.lines().map(str::trim);
    let after = lines.skip_while(|line| *line != "[dependencies]").skip(1);
    for line in after.take_while(|line| !line.starts_with('[')) {
        if let Some((name, _)) = line.split_once(['.', ' ', '='])
            && let Some(folder) = folder_of(workspace, name)
        {
            add_crates(workspace, &folder, crates);
        }
    }
}

/// Returns the folder of a crate of the workspace.
fn folder_of(workspace: &Path, name: &str) -> Option<String> {
    let manifest = fs::read_to_string(workspace.join("Cargo.toml")).ok()?;
    let line = |line: &&str| line.starts_with(&format!("{name} = {{ path"));
    let folder = manifest.lines().find(line)?.split('"').nth(1)?;
    Some(folder.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [(&str, &str); 6] = [
        (
            "Cargo.toml",
            "[workspace.dependencies]\nx-a = { path = \"crates/a\" }\nx-t = { path = \"crates/t\" }\n",
        ),
        (
            "crates/own/Cargo.toml",
            "[dependencies]\nx-a.workspace = true\n\n[dev-dependencies]\nx-t.workspace = true\n",
        ),
        ("crates/own/src/lib.rs", "mod a;"),
        ("crates/a/Cargo.toml", "[dependencies]\n"),
        ("crates/a/src/deep/b.rs", "fn b() {}"),
        ("crates/t/src/lib.rs", "fn t() {}"),
    ];

    /// The hash of a workspace in a folder of its own, with some files changed.
    fn hash(changes: &[(&str, &str)]) -> u64 {
        let place = tempfile::tempdir().expect("a folder");
        for (name, text) in FILES.iter().chain(changes) {
            let path = place.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
        Sources::of(place.path(), "crates/own").hash
    }

    #[test]
    fn the_hash_is_of_what_is_built_in_whatever_place() {
        let plain = hash(&[]);
        assert_eq!(hash(&[]), plain, "another place");
        assert_eq!(hash(&[("crates/t/src/lib.rs", "")]), plain, "a test's");
        for change in [
            ("crates/a/src/deep/b.rs", "fn b() { }"),
            ("crates/a/src/deep/c.rs", ""),
            ("crates/own/src/lib.rs", "mod b;"),
            ("Cargo.lock", "version = 4"),
        ] {
            assert_ne!(hash(&[change]), plain, "{change:?}");
        }
    }

    #[test]
    fn the_program_has_the_hash_of_its_sources() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let sources = Sources::of(&workspace, "crates/cli");
        assert_eq!(format!("{:016x}", sources.hash), env!("BLKLAB_SOURCES"));
        let has = |place: &str| sources.watched.iter().any(|path| path.ends_with(place));
        assert!(has("crates/device_model/src") && !has("crates/docs/src"));
    }

    /// Python's package is a workspace of its own, and should do the same.
    #[test]
    fn both_lock_files_have_the_same_versions() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let packages = |name: &str| {
            let text = fs::read_to_string(workspace.join(name)).expect(name);
            let of = |package: &str| {
                let mut lines = package.lines().skip(1);
                Some((lines.next()?.to_string(), lines.next()?.to_string()))
            };
            text.split("\n\n").filter_map(of).collect::<BTreeSet<_>>()
        };
        let (ours, pythons) = (packages("Cargo.lock"), packages("python/Cargo.lock"));
        assert!(ours.intersection(&pythons).count() > 100);
        let known = |name: &String| ours.iter().any(|(other, _)| other == name);
        let others = pythons.difference(&ours).filter(|(name, _)| known(name));
        assert_eq!(others.collect::<Vec<_>>(), Vec::<&(String, String)>::new());
    }
}
