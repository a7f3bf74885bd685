//! Power cuts at random moments: what was synced is there after a check.

use std::cell::RefCell;
use std::io;

use blklab_fs::{FatWidth, FsError, Image, Storage, Volume};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::image::model::{Model, TreeCall, after_no_space, step, steps, tree};
use crate::image::{Kind, judged, options, root};

/// Where something was written, and what.
type Written = (usize, Vec<u8>);

/// An image in memory that keeps what was written, in its order.
#[derive(Default)]
struct Recorder {
    bytes: RefCell<Vec<u8>>,
    written: RefCell<Vec<Written>>,
}

impl Storage for Recorder {
    fn size_bytes(&self) -> io::Result<u64> {
        self.bytes.size_bytes()
    }

    fn read_at(&self, byte: u64, into: &mut [u8]) -> io::Result<()> {
        self.bytes.read_at(byte, into)
    }

    fn write_at(&self, byte: u64, from: &[u8]) -> io::Result<()> {
        self.written
            .borrow_mut()
            .push((byte as usize, from.to_vec()));
        self.bytes.write_at(byte, from)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// What was synced when so much had been written.
struct Synced {
    written: usize,
    model: Model,
}

/// Power cuts. With `BLKLAB_IMAGE_CUTS` more of them than fit into `make test`.
fn cuts() -> u32 {
    let cuts = std::env::var("BLKLAB_IMAGE_CUTS").ok();
    cuts.and_then(|cuts| cuts.parse().ok()).unwrap_or(8)
}

/// Steps with a sync after each 20 of them.
fn run(kind: Kind, steps: &[TreeCall]) -> (Vec<u8>, Vec<Written>, Vec<Synced>) {
    let recorder = Recorder {
        bytes: RefCell::new(vec![0; kind.bytes()]),
        ..Recorder::default()
    };
    let image = Image::new(recorder).expect("memory");
    kind.make(&image);
    image.storage().written.borrow_mut().clear();
    let empty = image.storage().bytes.borrow().clone();
    let volume = Volume::open(image, &options(), root()).expect("a file system");
    let mut model = Model::new();
    let mut synced = Vec::new();
    for chunk in steps.chunks(20) {
        synced.push(Synced {
            written: volume.image().storage().written.borrow().len(),
            model: model.clone(),
        });
        for one in chunk {
            match step(&volume, &mut model, one) {
                Ok(()) => {}
                Err(FsError::NoSpace) => after_no_space(&volume, &mut model, one),
                Err(error) => panic!("{kind:?} {one:?}: {error}"),
            }
        }
        volume.commit().expect("memory");
    }
    synced.push(Synced {
        written: volume.image().storage().written.borrow().len(),
        model,
    });
    let written = volume.image().storage().written.borrow().clone();
    (empty, written, synced)
}

/// What mends and what checks, with their arguments.
type Tools<'a> = ((&'a str, &'a [&'a str]), (&'a str, &'a [&'a str]));

/// The image after the first writes, checked and mended by the tool that does so.
fn mended(kind: Kind, bytes: &[u8]) -> Option<Vec<u8>> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), bytes).expect("written");
    let (mend, check): Tools<'_> = match kind {
        Kind::Ext2 { .. } => (("e2fsck", &["-f", "-y"]), ("e2fsck", &["-f", "-n"])),
        Kind::Fat(_) => (("fsck.vfat", &["-a", "-w"]), ("fsck.vfat", &["-n"])),
    };
    // It fails where there was something to be mended.
    let _ = judged(mend.0, mend.1, file.path())?;
    let verdict = judged(check.0, check.1, file.path())?;
    assert_eq!(verdict, Ok(()), "{kind:?}: not mended");
    Some(std::fs::read(file.path()).expect("read"))
}

#[test]
fn what_was_synced_outlives_a_power_cut() {
    let kinds = [
        Kind::Ext2 {
            block: 1024,
            inode: 128,
        },
        Kind::Ext2 {
            block: 4096,
            inode: 256,
        },
        Kind::Fat(FatWidth::Fat16),
    ];
    for kind in kinds {
        let mut runner = TestRunner::new(Config {
            cases: 1,
            max_shrink_iters: 0,
            failure_persistence: None,
            ..Config::default()
        });
        let strategy = (
            prop::collection::vec(steps(), 120),
            prop::collection::vec(any::<prop::sample::Index>(), cuts() as usize),
        );
        let done = runner.run(&strategy, |(steps, cuts)| {
            let (empty, written, synced) = run(kind, &steps);
            for cut in cuts {
                let cut = cut.index(written.len() + 1);
                let mut bytes = empty.clone();
                for (at, data) in &written[..cut] {
                    bytes[*at..*at + data.len()].copy_from_slice(data);
                }
                let Some(bytes) = mended(kind, &bytes) else {
                    blklab_judges::have(if kind.is_ext2() {
                        "e2fsck"
                    } else {
                        "fsck.vfat"
                    });
                    return Ok(());
                };
                let image = Image::new(RefCell::new(bytes)).expect("memory");
                let volume = Volume::open(image, &options(), root()).expect("mended");
                let found = tree(&volume);
                let last = synced.iter().rposition(|s| s.written <= cut).unwrap_or(0);
                let after = synced
                    .get(last + 1)
                    .map_or(&synced[last].model, |s| &s.model);
                for (path, data) in &synced[last].model {
                    // What was changed after the last sync may be either.
                    if after.get(path) == Some(data) && !is_moved(&steps, last, path) {
                        prop_assert_eq!(found.get(path), Some(data), "{:?} {} {}", kind, cut, path);
                    }
                }
            }
            Ok(())
        });
        done.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    }
}

/// Whether a step after a sync may have changed something and put it back: steps that
/// move names are not followed one by one.
fn is_moved(steps: &[TreeCall], synced: usize, path: &str) -> bool {
    let since = steps.chunks(20).nth(synced).unwrap_or(&[]);
    let dir = path.split('/').next().unwrap_or(path);
    since.iter().any(|step| match step {
        TreeCall::Rename(_, to) => to == path || to.starts_with(dir),
        TreeCall::Create(to) | TreeCall::MakeDir(to) => to == path,
        _ => false,
    })
}
