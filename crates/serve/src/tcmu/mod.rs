//! TCMU: disks of this machine's kernel through its SCSI target (LIO). The module
//! target_core_user passes each command to this process, and tcm_loop makes the target a disk,
//! `/dev/sda` and so on.
//!
//! - `target`: the target in configfs, and its UIO device.
//! - `queue`: the command ring, and its thread.

mod queue;
mod target;

use std::path::PathBuf;
use std::sync::Arc;

use blklab_nbd::wire::ExportFlags;
use blklab_scsi::{Disk, LogicalUnit, Mailbox};

use crate::export::{FrontEndSetup, QueueThread};
use queue::{Queue, QueueSetup};
use target::{Former, Target, UioDevice};

/// The longest name of a disk.
const MAX_NAME_BYTES: usize = 64;
/// The smallest block of a SCSI disk, and the largest that Linux takes.
const MIN_BLOCK_BYTES: u32 = 512;
const MAX_BLOCK_BYTES: u32 = 4096;

/// Checks the name of a disk among the kernel's targets.
///
/// # Errors
/// If it is invalid; the message says what is valid.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_short = (1..=MAX_NAME_BYTES).contains(&name.len());
    match is_short && !name.starts_with('.') && name.bytes().all(is_allowed) {
        true => Ok(()),
        false => Err(format!(
            "tcmu {name:?} is no name of a disk; it may have up to {MAX_NAME_BYTES} letters, digits, dots, dashes and underscores, such as scratch"
        )),
    }
}

/// The setup of a disk.
pub(crate) struct TcmuSetup {
    /// The disk's name among the kernel's targets.
    pub(crate) name: String,
    pub(crate) front_end: FrontEndSetup,
}

impl TcmuSetup {
    fn disk(&self) -> Result<Disk, String> {
        let export = &self.front_end.export;
        let (sizes, flags) = (export.block_sizes, export.flags);
        let block_bytes = sizes.minimum.max(MIN_BLOCK_BYTES);
        if block_bytes > MAX_BLOCK_BYTES || !block_bytes.is_power_of_two() {
            return Err(format!(
                "tcmu {}: a SCSI disk's blocks have 512 to {MAX_BLOCK_BYTES} bytes, and the drive's have {block_bytes}",
                self.name
            ));
        }
        let blocks = export.size_bytes / u64::from(block_bytes);
        if blocks == 0 {
            return Err(format!(
                "tcmu {}: {} bytes are less than a block",
                self.name, export.size_bytes
            ));
        }
        Ok(Disk {
            blocks,
            block_bytes,
            physical_block_bytes: sizes.preferred.next_power_of_two().max(block_bytes),
            max_transfer_bytes: sizes.maximum,
            read_only: flags.contains(ExportFlags::READ_ONLY),
            rotational: flags.contains(ExportFlags::ROTATIONAL),
            unmaps: flags.contains(ExportFlags::SEND_TRIM),
            name: self.name.clone(),
        })
    }
}

/// A disk of the kernel, which is served until this is dropped.
pub(crate) struct TcmuDisk {
    target: Target,
    thread: Option<QueueThread<()>>,
    path: PathBuf,
}

impl TcmuDisk {
    /// Starts to serve an export as a disk.
    ///
    /// # Errors
    /// If the kernel lacks a module, or another process serves the name; the message says which.
    pub(crate) fn start(setup: TcmuSetup) -> Result<TcmuDisk, String> {
        let disk = setup.disk()?;
        let target = Target::new(&setup.name, disk.naa());
        target.check_kernel()?;
        let setup = Arc::new(setup);
        // From here on an error drops, and so removes, the disk.
        let mut served = TcmuDisk {
            target,
            thread: None,
            path: PathBuf::new(),
        };
        let former = served.target.find_former()?;
        let block_bytes = u64::from(disk.block_bytes);
        let size = (disk.blocks * block_bytes, block_bytes);
        let device = match former {
            Some(former) if (former.size_bytes, former.block_bytes) == size => {
                served.target.reset()?;
                former.device
            }
            former => {
                if let Some(Former { device, .. }) = former {
                    served.remove_former(&setup, device)?;
                }
                served.target.create(&disk)?
            }
        };
        served.serve(&setup, device, Some(LogicalUnit::new(disk)))?;
        served.target.export()?;
        served.path = served.target.wait_for_disk()?;
        Ok(served)
    }

    /// Removes the disk of a killed server. All its commands fail, so that old writes do not
    /// reach the new disk.
    fn remove_former(&mut self, setup: &Arc<TcmuSetup>, device: UioDevice) -> Result<(), String> {
        self.target.reset()?;
        self.serve(setup, device, None)?;
        self.target.unblock()?;
        self.remove();
        Ok(())
    }

    fn serve(
        &mut self,
        setup: &Arc<TcmuSetup>,
        device: UioDevice,
        unit: Option<LogicalUnit>,
    ) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| format!("tcmu {}: {error}", setup.name);
        let queue = Queue::new(QueueSetup {
            device: Arc::clone(setup),
            uio: device.file,
            mailbox: Mailbox::new(device.memory).map_err(|e| failed(&e))?,
            unit,
        });
        let thread = queue.and_then(Queue::start);
        self.thread = Some(thread.map_err(|e| failed(&e))?);
        Ok(())
    }

    fn remove(&mut self) {
        // The kernel flushes the disk before it removes it, so the thread must still run.
        self.target.withdraw();
        self.thread.take().and_then(QueueThread::stop);
        self.target.remove();
    }

    /// Returns the path of the disk.
    pub(crate) fn path(&self) -> PathBuf {
        self.path.clone()
    }
}

impl Drop for TcmuDisk {
    /// Removes the disk, completes the accepted commands, and removes the target.
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::check_name;

    #[test]
    fn names_are_those_of_configfs() {
        let longest = "x".repeat(64);
        for name in ["scratch", "disk-1.img", longest.as_str()] {
            assert_eq!(check_name(name), Ok(()));
        }
        let long = "x".repeat(65);
        for name in ["", "a/b", "..", "a b", "a,b", "ä", long.as_str()] {
            let error = check_name(name).expect_err("no name");
            assert!(error.contains("such as scratch"), "{error}");
        }
    }
}
