//! File systems on images: against a model in memory, and against the tools that
//! know what such images must be.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use blklab_fs::{
    Caller, Ext2Layout, FatWidth, FileKind, FileSystem, FsError, Image, MountOptions, NewInode,
    Timestamp, VfatLayout, VfatOptions, Volume, at_once,
};
use blklab_judges::have;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

type Memory = RefCell<Vec<u8>>;

/// 2024-01-01 and some seconds.
const NOW: Timestamp = Timestamp {
    seconds: 1_704_067_230,
    nanoseconds: 0,
};

fn root() -> Caller {
    Caller {
        pid: 7,
        now: NOW,
        ..Caller::default()
    }
}

fn options() -> MountOptions {
    MountOptions {
        vfat: VfatOptions::parse("utf8").expect("options"),
        ..MountOptions::default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ext2 { block: u32, inode: u32 },
    Fat(FatWidth),
}

fn kinds() -> Vec<Kind> {
    vec![
        Kind::Ext2 {
            block: 1024,
            inode: 128,
        },
        Kind::Ext2 {
            block: 2048,
            inode: 256,
        },
        Kind::Ext2 {
            block: 4096,
            inode: 256,
        },
        Kind::Fat(FatWidth::Fat12),
        Kind::Fat(FatWidth::Fat16),
        Kind::Fat(FatWidth::Fat32),
    ]
}

impl Kind {
    fn bytes(self) -> usize {
        match self {
            Kind::Ext2 { block: 1024, .. } => 20 << 20,
            Kind::Ext2 { .. } => 24 << 20,
            Kind::Fat(FatWidth::Fat12) => 6 << 20,
            Kind::Fat(FatWidth::Fat16) => 16 << 20,
            Kind::Fat(FatWidth::Fat32) => 36 << 20,
        }
    }

    fn make(self, image: &Image<Memory>) {
        let done = match self {
            Kind::Ext2 { block, inode } => {
                let layout = Ext2Layout {
                    block_bytes: Some(block),
                    inode_bytes: inode,
                    label: b"blklab".to_vec(),
                    uuid: *b"0123456789abcdef",
                    ..Ext2Layout::default()
                };
                at_once(layout.make(image, NOW))
            }
            Kind::Fat(width) => {
                let layout = VfatLayout {
                    width: Some(width),
                    cluster_sectors: (width == FatWidth::Fat32).then_some(1),
                    label: b"BLKLAB".to_vec(),
                    volume_id: 0x1234_5678,
                    ..VfatLayout::default()
                };
                at_once(layout.make(image, NOW))
            }
        };
        done.expect("a file system");
        image.commit().expect("memory");
    }

    fn volume(self) -> Volume<Memory> {
        let image = Image::new(RefCell::new(vec![0; self.bytes()])).expect("memory");
        self.make(&image);
        Volume::open(image, &options(), root()).expect("what was just made")
    }

    /// Asks the tools that know; `None` where they are not installed.
    fn judge(self, bytes: &[u8]) -> Option<Result<(), String>> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), bytes).expect("written");
        let (program, arguments): (_, &[&str]) = match self {
            Kind::Ext2 { .. } => ("e2fsck", &["-f", "-n"]),
            Kind::Fat(_) => ("fsck.vfat", &["-n", "-v"]),
        };
        judged(program, arguments, file.path())
    }
}

fn judged(program: &str, arguments: &[&str], image: &Path) -> Option<Result<(), String>> {
    let output = Command::new(program).args(arguments).arg(image).output();
    let output = output.ok()?;
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let all = out + &String::from_utf8_lossy(&output.stderr);
    Some(if output.status.success() {
        Ok(())
    } else {
        Err(all)
    })
}

/// Finds nothing wrong, or the test says that it was not asked.
fn is_sound(kind: Kind, volume: &Volume<Memory>) {
    volume.commit().expect("memory");
    match kind.judge(&volume.image().storage().borrow()) {
        None => {
            have(match kind {
                Kind::Ext2 { .. } => "e2fsck",
                Kind::Fat(_) => "fsck.vfat",
            });
        }
        Some(verdict) => assert_eq!(verdict, Ok(()), "{kind:?}"),
    }
}

/// What a tree should hold: directories are `None`.
type Model = BTreeMap<String, Option<Vec<u8>>>;

#[derive(Clone, Debug)]
enum Step {
    Create(String),
    MakeDir(String),
    Write(usize, u64, usize, u8),
    Truncate(usize, u64),
    Remove(usize),
    Rename(usize, String),
    Replace(usize, usize),
}

fn names() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        "[A-Z]{1,8}",
        "[a-z]{1,8}\\.[a-z]{1,3}",
        "[a-zA-Z0-9 +,;=._-]{0,40}[a-z0-9]",
        "[ａ-ｚ]{1,20}",
        "[a-c]{60,200}",
    ];
    let depth = prop_oneof![3 => Just(0_usize), 1 => Just(1), 1 => Just(2)];
    (depth, prop::collection::vec("D[0-2]", 2), name).prop_map(|(depth, dirs, name)| {
        let mut parts = dirs[..depth].to_vec();
        parts.push(name);
        parts.join("/")
    })
}

fn steps() -> impl Strategy<Value = Step> {
    let nth = 0..10_000_usize;
    let at = prop_oneof![0..20_000_u64, 0..400_000_u64, Just(270_000)];
    let bytes = prop_oneof![1..600_usize, 1..9000_usize, 1..70_000_usize];
    prop_oneof![
        4 => names().prop_map(Step::Create),
        2 => "D[0-2](/D[0-2])?(/D[0-2])?".prop_map(Step::MakeDir),
        6 => (nth.clone(), at.clone(), bytes, any::<u8>())
            .prop_map(|(n, at, bytes, fill)| Step::Write(n, at, bytes, fill)),
        2 => (nth.clone(), at).prop_map(|(n, at)| Step::Truncate(n, at)),
        3 => nth.clone().prop_map(Step::Remove),
        2 => (nth.clone(), names()).prop_map(|(n, name)| Step::Rename(n, name)),
        1 => (nth.clone(), nth).prop_map(|(n, m)| Step::Replace(n, m)),
    ]
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

/// The n-th path of a kind, counted round.
fn pick(model: &Model, n: usize, is_file: bool) -> Option<String> {
    let of_kind: Vec<&String> = model
        .iter()
        .filter(|(_, data)| data.is_some() == is_file)
        .map(|(path, _)| path)
        .collect();
    (!of_kind.is_empty()).then(|| of_kind[n % of_kind.len()].clone())
}

/// Whether the model lets a name be new. On VFAT names differ by more than case.
fn is_free(model: &Model, path: &str) -> bool {
    let has_dir = parent(path).is_empty() || model.get(parent(path)) == Some(&None);
    has_dir && !model.keys().any(|known| known.eq_ignore_ascii_case(path))
}

/// Does a step on both sides. Files are found by their path each time.
fn step(volume: &Volume<Memory>, model: &mut Model, step: &Step) -> Result<(), FsError> {
    let place = |path: &str| {
        let (dir, name) = volume.find_parent(path.as_bytes()).expect("a directory");
        (dir, name.to_vec())
    };
    match step {
        Step::Create(path) | Step::MakeDir(path) if !is_free(model, path) => {}
        Step::Create(path) => {
            let (dir, name) = place(path);
            volume.create(dir, &name, NewInode::Regular(0o644))?;
            model.insert(path.clone(), Some(Vec::new()));
        }
        Step::MakeDir(path) => {
            let (dir, name) = place(path);
            volume.create(dir, &name, NewInode::Directory(0o755))?;
            model.insert(path.clone(), None);
        }
        Step::Write(n, at, bytes, fill) => {
            let Some(path) = pick(model, *n, true) else {
                return Ok(());
            };
            let ino = volume.find(path.as_bytes(), true)?;
            let data: Vec<u8> = (0..*bytes).map(|n| fill.wrapping_add(n as u8)).collect();
            volume.write(ino, *at, &data)?;
            let file = model
                .get_mut(&path)
                .and_then(Option::as_mut)
                .expect("a file");
            let end = *at as usize + data.len();
            file.resize(file.len().max(end), 0);
            file[*at as usize..end].copy_from_slice(&data);
        }
        Step::Truncate(n, size) => {
            let Some(path) = pick(model, *n, true) else {
                return Ok(());
            };
            volume.truncate(volume.find(path.as_bytes(), true)?, *size)?;
            let file = model
                .get_mut(&path)
                .and_then(Option::as_mut)
                .expect("a file");
            file.resize(*size as usize, 0);
        }
        Step::Remove(n) => {
            let is_file = !n.is_multiple_of(4);
            let Some(path) = pick(model, *n, is_file) else {
                return Ok(());
            };
            let (dir, name) = place(&path);
            let below = format!("{path}/");
            let is_full = model.keys().any(|other| other.starts_with(&below));
            let removed = volume.remove(dir, &name);
            if is_full {
                assert_eq!(removed, Err(FsError::NotEmpty));
                return Ok(());
            }
            removed?;
            model.remove(&path);
        }
        Step::Rename(n, to) => {
            let Some(path) = pick(model, *n, !n.is_multiple_of(3)) else {
                return Ok(());
            };
            if !is_free(model, to) || to.starts_with(&format!("{path}/")) {
                return Ok(());
            }
            rename(volume, model, &path, to)?;
        }
        Step::Replace(n, m) => {
            let (Some(path), Some(to)) = (pick(model, *n, true), pick(model, *m, true)) else {
                return Ok(());
            };
            if path != to {
                rename(volume, model, &path, &to)?;
            }
        }
    }
    Ok(())
}

/// A step that failed on a full file system has changed nothing, but for what a write
/// wrote before. Then there is room again.
fn after_no_space(volume: &Volume<Memory>, model: &mut Model, step: &Step) {
    if let Step::Write(n, ..) | Step::Truncate(n, _) = step
        && let Some(path) = pick(model, *n, true)
    {
        let ino = volume.find(path.as_bytes(), true).expect("a file");
        let mut data = Vec::new();
        volume
            .copy_out(ino, &mut data)
            .expect("memory")
            .expect("data");
        model.insert(path, Some(data));
    }
    let files: Vec<String> = model.keys().cloned().collect();
    for path in files
        .iter()
        .step_by(2)
        .filter(|path| model[*path].is_some())
    {
        let (dir, name) = volume.find_parent(path.as_bytes()).expect("a directory");
        volume.remove(dir, name).expect("removed");
    }
    let removed: Vec<&String> = files.iter().step_by(2).collect();
    model.retain(|path, data| data.is_none() || !removed.contains(&path));
}

fn rename(volume: &Volume<Memory>, model: &mut Model, path: &str, to: &str) -> Result<(), FsError> {
    let from = volume.find_parent(path.as_bytes())?;
    volume.rename(from, volume.find_parent(to.as_bytes())?)?;
    let below = format!("{path}/");
    let moved: Vec<String> = model
        .keys()
        .filter(|other| *other == path || other.starts_with(&below))
        .cloned()
        .collect();
    for other in moved {
        let data = model.remove(&other).expect("a path of the model");
        model.insert(format!("{to}{}", &other[path.len()..]), data);
    }
    Ok(())
}

/// The whole tree as it is read.
fn tree(volume: &Volume<Memory>) -> Model {
    let mut found = Model::new();
    let top = volume.file_system().root();
    for (path, dir) in volume.directories(top).expect("directories") {
        let path = String::from_utf8(path).expect("UTF-8");
        for entry in volume.list(dir).expect("names") {
            let name = String::from_utf8(entry.name).expect("UTF-8");
            let slash = if path.is_empty() { "" } else { "/" };
            let path = format!("{path}{slash}{name}");
            if path == "lost+found" {
                continue;
            }
            let kind = volume.attributes(entry.ino).expect("attributes").kind;
            let data = (kind == FileKind::Regular).then(|| {
                let mut data = Vec::new();
                let copied = volume.copy_out(entry.ino, &mut data);
                copied.expect("memory").expect("data");
                data
            });
            found.insert(path, data);
        }
    }
    found
}

/// Random steps. With `BLKLAB_IMAGE_STEPS` more of them than fit into `make test`.
fn random_steps() -> usize {
    let steps = std::env::var("BLKLAB_IMAGE_STEPS").ok();
    steps.and_then(|steps| steps.parse().ok()).unwrap_or(250)
}

#[test]
fn random_steps_are_those_of_the_model_and_leave_a_sound_image() {
    for kind in kinds() {
        let strategy = prop::collection::vec(steps(), random_steps());
        let mut runner = TestRunner::new(Config {
            cases: 2,
            max_shrink_iters: 200,
            failure_persistence: None,
            ..Config::default()
        });
        let done = runner.run(&strategy, |steps| {
            let volume = kind.volume();
            let mut model = Model::new();
            for one in &steps {
                match step(&volume, &mut model, one) {
                    Ok(()) => {}
                    Err(FsError::NoSpace) => after_no_space(&volume, &mut model, one),
                    Err(error) => panic!("{kind:?} {one:?}: {error}"),
                }
            }
            volume.commit().expect("memory");
            let bytes = volume.image().storage().borrow().clone();
            let again = Image::new(RefCell::new(bytes)).expect("memory");
            let again = Volume::open(again, &options(), root()).expect("a file system");
            let (found, wanted) = (tree(&again), &model);
            prop_assert_eq!(
                found.keys().collect::<Vec<_>>(),
                wanted.keys().collect::<Vec<_>>()
            );
            for (path, data) in wanted {
                prop_assert!(found[path] == *data, "{kind:?} {path}");
            }
            is_sound(kind, &volume);
            Ok(())
        });
        done.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    }
}

#[test]
fn a_new_file_system_is_sound() {
    for kind in kinds() {
        is_sound(kind, &kind.volume());
    }
}
