//! Random steps on an image and on a map in memory: both hold the same afterwards.

use std::cell::RefCell;
use std::collections::BTreeMap;

use blklab_fs::{FileKind, FileSystem, FsError, Image, NewInode, Storage, Volume};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::image::{is_sound, kinds, options, root};

/// What a tree should hold: directories are `None`.
pub type Model = BTreeMap<String, Option<Vec<u8>>>;

#[derive(Clone, Debug)]
pub enum TreeCall {
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

pub fn steps() -> impl Strategy<Value = TreeCall> {
    let nth = 0..10_000_usize;
    let at = prop_oneof![0..20_000_u64, 0..400_000_u64, Just(270_000)];
    let bytes = prop_oneof![1..600_usize, 1..9000_usize, 1..70_000_usize];
    prop_oneof![
        4 => names().prop_map(TreeCall::Create),
        2 => "D[0-2](/D[0-2])?(/D[0-2])?".prop_map(TreeCall::MakeDir),
        6 => (nth.clone(), at.clone(), bytes, any::<u8>())
            .prop_map(|(n, at, bytes, fill)| TreeCall::Write(n, at, bytes, fill)),
        2 => (nth.clone(), at).prop_map(|(n, at)| TreeCall::Truncate(n, at)),
        3 => nth.clone().prop_map(TreeCall::Remove),
        2 => (nth.clone(), names()).prop_map(|(n, name)| TreeCall::Rename(n, name)),
        1 => (nth.clone(), nth).prop_map(|(n, m)| TreeCall::Replace(n, m)),
    ]
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

/// The n-th path of a kind, counted round.
pub fn pick(model: &Model, n: usize, is_file: bool) -> Option<String> {
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
pub fn step<S: Storage>(
    volume: &Volume<S>,
    model: &mut Model,
    step: &TreeCall,
) -> Result<(), FsError> {
    let place = |path: &str| {
        let (dir, name) = volume.find_parent(path.as_bytes()).expect("a directory");
        (dir, name.to_vec())
    };
    match step {
        TreeCall::Create(path) | TreeCall::MakeDir(path) if !is_free(model, path) => {}
        TreeCall::Create(path) => {
            let (dir, name) = place(path);
            volume.create(dir, &name, NewInode::Regular(0o644))?;
            model.insert(path.clone(), Some(Vec::new()));
        }
        TreeCall::MakeDir(path) => {
            let (dir, name) = place(path);
            volume.create(dir, &name, NewInode::Directory(0o755))?;
            model.insert(path.clone(), None);
        }
        TreeCall::Write(n, at, bytes, fill) => {
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
        TreeCall::Truncate(n, size) => {
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
        TreeCall::Remove(n) => {
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
        TreeCall::Rename(n, to) => {
            let Some(path) = pick(model, *n, !n.is_multiple_of(3)) else {
                return Ok(());
            };
            if !is_free(model, to) || to.starts_with(&format!("{path}/")) {
                return Ok(());
            }
            rename(volume, model, &path, to)?;
        }
        TreeCall::Replace(n, m) => {
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
pub fn after_no_space<S: Storage>(volume: &Volume<S>, model: &mut Model, step: &TreeCall) {
    if let TreeCall::Write(n, ..) | TreeCall::Truncate(n, _) = step
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

fn rename<S: Storage>(
    volume: &Volume<S>,
    model: &mut Model,
    path: &str,
    to: &str,
) -> Result<(), FsError> {
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
pub fn tree<S: Storage>(volume: &Volume<S>) -> Model {
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
