//! The exports as disks in the device model's tree, over FUSE: `block/NAME` leads to
//! `devices/virtual/block/NAME`, as of the kernel's own virtual disks.
//!
//! Attributes that an export has now are shown and set through `attributes.rs`, as on
//! the control socket; the others are those that the model gives any disk. debugfs'
//! `kernel/debug/block/NAME` shows the export's queue as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use blklab_device_model::{Disk, HardwareQueue, KobjectId, Model, ModelError, Parent, Sysfs};
use fuser::BackgroundSession;
use rustix::io::Errno;

use super::{Exports, attributes};
use crate::export::ExportView;
use crate::tree::{Files, Still, Tree, mount_options};

/// What `/proc/devices` would call the exports' driver.
const DRIVER: &str = "blklab";
/// The folder of what the present scheduler has in a disk's folder.
const IOSCHED: &str = "queue/iosched";
/// The same in debugfs: of the queue, and in the folder of each hardware context.
const SCHED: &str = "sched";

/// A mounted tree; dropping it unmounts it.
pub(crate) struct MountedTree {
    _session: BackgroundSession,
}

impl MountedTree {
    /// Shows the exports' attributes in a folder.
    pub(crate) fn mount(folder: &Path, exports: Arc<Exports>) -> Result<MountedTree, String> {
        let name = folder.display();
        let options = mount_options(folder)?;
        let (sysfs, files) = ExportFiles::new(exports).map_err(|e| format!("{name}: {e}"))?;
        let tree = Tree::new(sysfs, files);
        let session = fuser::spawn_mount2(tree, folder, &options).map_err(|e| {
            format!("{name}: FUSE is not to be had: {e}; --control goes without it")
        })?;
        Ok(MountedTree { _session: session })
    }
}

/// What an attribute of a disk's folder is called on the control socket.
pub(super) fn control_name(path: &str) -> &str {
    match path.strip_prefix("queue/iosched/") {
        Some(_) => &path["queue/".len()..],
        None => path,
    }
}

/// What the tree calls an export's disk.
pub(super) fn disk_name(number: usize, export: &str) -> String {
    match export {
        "" | "." | ".." => format!("b{number}"),
        name => name.replace('/', "!"),
    }
}

/// Where an attribute of the control socket lies.
fn tree_path(name: &str) -> String {
    match name.starts_with("iosched/") {
        true => format!("queue/{name}"),
        false => name.to_string(),
    }
}

/// What a folder of an export's disk is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The disk's own folder.
    Disk,
    /// Its queue's folder in debugfs.
    Debug,
}

/// The exports' attributes.
struct ExportFiles {
    exports: Arc<Exports>,
    /// Which export a folder is of.
    folders: BTreeMap<KobjectId, (usize, Part)>,
}

/// An attribute of an export.
struct Found {
    export: usize,
    part: Part,
    /// Its path in the export's folder.
    path: String,
}

impl ExportFiles {
    /// A machine whose disks are the exports: its tree, and which disk is which.
    fn new(exports: Arc<Exports>) -> Result<(Sysfs, ExportFiles), ModelError> {
        let mut model = Model::new();
        for class in ["block", "bdi"] {
            model.register_class(class)?;
        }
        let major = model.register_blkdev(0, DRIVER)?;
        let mut folders = BTreeMap::new();
        for (number, export) in exports.all().iter().enumerate() {
            let name = disk_name(number, &export.name);
            // An export that has ended has no queue any more.
            let queues = export
                .call(|view| hardware_queues(view))
                .unwrap_or_default();
            let disk = Disk {
                name: name.clone(),
                major,
                first_minor: number as u32,
                minors: 1,
                // Its size and the rest are shown as they are when somebody looks.
                size_sectors: 0,
                read_only: false,
                is_scanned: true,
                partitions: Vec::new(),
                attributes: Vec::new(),
                hardware_queues: queues,
                debug: Vec::new(),
            };
            let added = model.add_disk(Parent::Virtual, &disk)?;
            let own = model.kobject_of(added.device);
            folders.extend(own.map(|folder| (folder, (number, Part::Disk))));
            let debug = model.sysfs().find(&format!("/kernel/debug/block/{name}"));
            folders.extend(debug.map(|folder| (folder, (number, Part::Debug))));
        }
        let files = ExportFiles { exports, folders };
        Ok((model.sysfs().clone(), files))
    }

    /// The folder of an export that a folder is or lies in, and the path from there.
    fn place(&self, sysfs: &Sysfs, folder: KobjectId) -> Option<(KobjectId, String)> {
        let (mut at, mut path) = (folder, String::new());
        while !self.folders.contains_key(&at) {
            path = match path.is_empty() {
                true => sysfs.name(at).to_string(),
                false => format!("{}/{path}", sysfs.name(at)),
            };
            at = sysfs.parent(at)?;
        }
        Some((at, path))
    }

    /// The attribute that an export has now at this place.
    fn live(&self, sysfs: &Sysfs, folder: KobjectId, name: &str) -> Result<Option<Found>, Errno> {
        let Some((top, path)) = self.place(sysfs, folder) else {
            return Ok(None);
        };
        let path = match path.is_empty() {
            true => name.to_string(),
            false => format!("{path}/{name}"),
        };
        let (export, part) = self.folders[&top];
        let is_live = self.paths(export, part)?.contains(&path);
        Ok(is_live.then_some(Found { export, part, path }))
    }

    /// The paths of the attributes that an export has now.
    fn paths(&self, export: usize, part: Part) -> Result<BTreeSet<String>, Errno> {
        let names = self.exports.all()[export].call(move |view| match part {
            Part::Disk => { attributes::names(view).into_iter() }
                .map(|name| tree_path(&name))
                .collect(),
            Part::Debug => { debug_files(view).into_iter() }
                .map(|(name, _)| name)
                .collect(),
        });
        names.map_err(|_| Errno::IO)
    }

    /// Whether a folder is that of a scheduler's files, which come and go.
    fn is_of_scheduler(&self, sysfs: &Sysfs, folder: KobjectId) -> bool {
        let disk = self.place(sysfs, folder);
        disk.is_some_and(|(_, path)| path == IOSCHED || path.rsplit('/').next() == Some(SCHED))
    }

    /// A scheduler comes and goes with its own files.
    fn forget_old_scheduler(sysfs: &mut Sysfs, top: KobjectId, now: &BTreeSet<String>) {
        let top = sysfs.path(top);
        let mut folders: Vec<String> = [IOSCHED, SCHED].map(str::to_string).into();
        let hctxs = (0..).map(|number| format!("hctx{number}"));
        let hctxs = hctxs.take_while(|hctx| sysfs.find(&format!("{top}/{hctx}")).is_some());
        folders.extend(hctxs.map(|hctx| format!("{hctx}/{SCHED}")));
        for folder in folders {
            let Some(shown) = sysfs.find(&format!("{top}/{folder}")) else {
                continue;
            };
            let files = sysfs.get(shown).map(|k| k.attributes().keys());
            let is_same = files
                .into_iter()
                .flatten()
                .eq(now.iter().filter_map(|path| {
                    let (of, name) = path.rsplit_once('/')?;
                    (of == folder).then_some(name)
                }));
            if !is_same {
                sysfs.remove(shown);
            }
        }
    }
}

/// What debugfs shows of an export's queue, whose driver never sleeps.
fn debug_files(view: &ExportView<'_>) -> Vec<(String, String)> {
    view.disk.queue().debug_files(false)
}

fn hardware_queues(view: &ExportView<'_>) -> Vec<HardwareQueue> {
    let queue = view.disk.queue();
    let info = queue.info();
    let of = |hctx| HardwareQueue {
        cpus: { 0..info.nr_cpus as usize }
            .filter(|&cpu| queue.hctx_of(cpu) == hctx)
            .collect(),
        tags: info.queue_depth,
    };
    (0..queue.nr_hw_queues()).map(of).collect()
}

impl Files for ExportFiles {
    fn refresh(&self, sysfs: &mut Sysfs, folder: KobjectId) -> Result<(), Errno> {
        let Some((top, _)) = self.place(sysfs, folder) else {
            return Ok(());
        };
        let (export, part) = self.folders[&top];
        let now = self.paths(export, part)?;
        ExportFiles::forget_old_scheduler(sysfs, top, &now);
        for path in now {
            if sysfs.attribute(top, &path).is_none() {
                sysfs.set(top, &path, "");
            }
        }
        Ok(())
    }

    fn mode(&self, sysfs: &Sysfs, folder: KobjectId, name: &str) -> u16 {
        let found = self.live(sysfs, folder, name).ok().flatten();
        let Some(Found {
            part: Part::Disk,
            path,
            ..
        }) = found
        else {
            return 0o444;
        };
        let name = control_name(&path);
        match attributes::is_readable(name) {
            true if attributes::is_writable(name) => 0o644,
            true => 0o444,
            false => 0o200,
        }
    }

    fn show(&self, sysfs: &Sysfs, folder: KobjectId, name: &str) -> Result<String, Errno> {
        let Some(Found { export, part, path }) = self.live(sysfs, folder, name)? else {
            if self.is_of_scheduler(sysfs, folder) {
                return Err(Errno::NODEV);
            }
            return Still.show(sysfs, folder, name);
        };
        let text = self.exports.all()[export].call(move |view| match part {
            Part::Disk => attributes::read(view, control_name(&path)).ok(),
            Part::Debug => { debug_files(view).into_iter() }
                .find(|(name, _)| *name == path)
                .map(|(_, text)| text),
        });
        // An attribute may go while it is open: that of a former scheduler.
        text.map_err(|_| Errno::IO)?.ok_or(Errno::NODEV)
    }

    fn store(
        &self,
        sysfs: &Sysfs,
        folder: KobjectId,
        name: &str,
        value: &str,
    ) -> Result<(), Errno> {
        let found = self.live(sysfs, folder, name)?;
        let Some(Found {
            export,
            part: Part::Disk,
            path,
        }) = found
        else {
            return Err(Errno::IO);
        };
        let name = control_name(&path);
        if !attributes::is_writable(name) {
            return Err(Errno::IO);
        }
        let export = &self.exports.all()[export];
        attributes::write(export, name, value).map_err(|_| Errno::INVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedulers_lie_where_the_kernel_has_them() {
        assert_eq!(tree_path("iosched/fifo_batch"), "queue/iosched/fifo_batch");
        assert_eq!(
            control_name("queue/iosched/fifo_batch"),
            "iosched/fifo_batch"
        );
        assert_eq!(control_name("queue/iostats"), "queue/iostats");
        for name in ["stat", "queue/scheduler", "iosched/x"] {
            assert_eq!(control_name(&tree_path(name)), name);
        }
    }
}
