//! A SCSI target in configfs (the kernel's "LIO Userspace API" and "TCM Userspace Design"):
//! a device of target_core_user, which tcm_loop shows as a disk, and the UIO device through
//! which its commands come.
//!
//! The kernel can also announce devices over netlink and wait for an answer. This process
//! serves only devices that it set up itself, so it declines the announcements
//! (`nl_reply_supported`).

use std::fs::{self, File};
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use blklab_driver::TCMU_DATA_MIB;
use blklab_scsi::Disk;
use blklab_scsi::vm_memory::{FileOffset, MmapRegion};

use crate::patiently;

const TARGETS: &str = "/sys/kernel/config/target";
const UIO_CLASS: &str = "/sys/class/uio";
/// The number of the adapter (HBA) in configfs; other tools count from 0.
const ADAPTER: u32 = 1000;
/// The longest wait for the kernel to make devices and files.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest wait for a killed server to end.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// A target's directories in configfs.
#[derive(Debug)]
pub(super) struct Target {
    name: String,
    targets: PathBuf,
    /// The WWN of the target's port.
    port: String,
    /// Whether this process made it or took it over.
    is_ours: bool,
}

/// An open UIO device with its mapped memory.
#[derive(Debug)]
pub(super) struct UioDevice {
    pub(super) file: File,
    pub(super) memory: MmapRegion,
}

/// The device of a killed server.
#[derive(Debug)]
pub(super) struct Former {
    pub(super) device: UioDevice,
    /// The size of the disk in bytes.
    pub(super) size_bytes: u64,
    /// The size of a block in bytes.
    pub(super) block_bytes: u64,
}

impl Target {
    /// Returns the target with this name, for a unit with this NAA name.
    pub(super) fn new(name: &str, naa: u64) -> Target {
        Target {
            name: name.to_string(),
            targets: PathBuf::from(TARGETS),
            port: format!("naa.{naa:016x}"),
            is_ours: false,
        }
    }

    fn adapter(&self) -> PathBuf {
        self.targets.join(format!("core/user_{ADAPTER}"))
    }

    fn device(&self) -> PathBuf {
        self.adapter().join(&self.name)
    }

    fn fabric(&self) -> PathBuf {
        self.targets.join("loopback")
    }

    fn port(&self) -> PathBuf {
        self.fabric().join(&self.port)
    }

    fn group(&self) -> PathBuf {
        self.port().join("tpgt_1")
    }

    fn lun(&self) -> PathBuf {
        self.group().join("lun/lun_0")
    }

    fn link(&self) -> PathBuf {
        self.lun().join(&self.name)
    }

    fn failed(&self, what: &str, error: &Error) -> String {
        let hint = match error.kind() {
            ErrorKind::PermissionDenied => "; it takes root",
            _ => "",
        };
        format!("tcmu {}: {what}: {error}{hint}", self.name)
    }

    /// Checks that the kernel has SCSI targets.
    ///
    /// # Errors
    /// If it has none; the message names the missing module.
    pub(super) fn check_kernel(&self) -> Result<(), String> {
        match self.targets.join("core").is_dir() {
            true => Ok(()),
            false => Err(format!(
                "tcmu {}: this kernel has no SCSI targets in {}; as root: modprobe -a target_core_user tcm_loop (CONFIG_TCM_USER2, CONFIG_LOOPBACK_TARGET), and mount -t configfs none /sys/kernel/config where that is not done",
                self.name,
                self.targets.display()
            )),
        }
    }

    /// Returns the device of a killed server with the same name. A device whose setup was not
    /// completed is removed.
    ///
    /// # Errors
    /// If another process serves it.
    pub(super) fn find_former(&mut self) -> Result<Option<Former>, String> {
        if !self.device().is_dir() {
            return Ok(None);
        }
        if !self.link().exists() {
            // Another server may be in the middle of its setup.
            std::thread::sleep(END_PATIENCE);
        }
        let device = match self.find_uio() {
            Some(name) => Some(self.open(&name)?),
            None => None,
        };
        self.is_ours = true;
        match device {
            Some(device) if self.link().exists() => Ok(Some(Former {
                device,
                size_bytes: self.attribute("dev_size")?,
                block_bytes: self.attribute("hw_block_size")?,
            })),
            device => {
                drop(device);
                self.remove();
                Ok(None)
            }
        }
    }

    fn attribute(&self, name: &str) -> Result<u64, String> {
        let path = self.device().join("attrib").join(name);
        let text = fs::read_to_string(&path);
        let text = text.map_err(|e| self.failed(&path.display().to_string(), &e))?;
        let number = text.trim().parse();
        number.map_err(|_| format!("{}: {:?} is no number", path.display(), text.trim()))
    }

    /// Makes the device and opens it; its ring is empty.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub(super) fn create(&mut self, disk: &Disk) -> Result<UioDevice, String> {
        make_folder(&self.adapter()).map_err(|e| {
            let missing = "modprobe target_core_user (CONFIG_TCM_USER2) provides it";
            self.failed(&format!("the kernel makes no adapter ({missing})"), &e)
        })?;
        let made = fs::create_dir(self.device());
        made.map_err(|e| self.failed("the kernel makes no device", &e))?;
        self.is_ours = true;
        let size_bytes = disk.blocks * u64::from(disk.block_bytes);
        let control = [
            format!("dev_config={}", self.config()),
            format!("dev_size={size_bytes}"),
            format!("hw_block_size={}", disk.block_bytes),
            format!("max_data_area_mb={TCMU_DATA_MIB}"),
            "nl_reply_supported=-1".to_string(),
        ];
        for setting in control {
            self.write(&self.device().join("control"), &setting)?;
        }
        self.write(&self.device().join("wwn/vpd_unit_serial"), &self.name)?;
        self.write(&self.device().join("enable"), "1")?;
        let found = patiently(PATIENCE, || self.find_uio());
        let name = found.ok_or_else(|| {
            format!(
                "tcmu {}: no device in {UIO_CLASS}; modprobe uio (CONFIG_UIO) provides them",
                self.name
            )
        })?;
        self.open(&name)
    }

    /// Returns the configuration string of the device, which tools show.
    fn config(&self) -> String {
        format!("blklab/{}", self.name)
    }

    /// Returns the name of its UIO device.
    fn find_uio(&self) -> Option<String> {
        let wanted = format!("tcm-user/{ADAPTER}/{}/{}", self.name, self.config());
        let devices = fs::read_dir(UIO_CLASS).ok()?;
        let mut names = devices.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.find(|name| {
            let found = fs::read_to_string(Path::new(UIO_CLASS).join(name).join("name"));
            found.is_ok_and(|found| found.trim_end() == wanted)
        })
    }

    /// Opens and maps a UIO device, which only one process can have open.
    fn open(&self, name: &str) -> Result<UioDevice, String> {
        let path = Path::new("/dev").join(name);
        let opened = patiently(END_PATIENCE, || {
            match File::options().read(true).write(true).open(&path) {
                Err(error) if is_busy_or_missing(&error) => None,
                done => Some(done),
            }
        });
        let shown = path.display().to_string();
        let file = match opened {
            Some(opened) => opened.map_err(|e| self.failed(&shown, &e))?,
            None if path.exists() => {
                return Err(format!(
                    "tcmu {}: another process serves this name; choose another",
                    self.name
                ));
            }
            None => return Err(format!("tcmu {}: there is no {shown}", self.name)),
        };
        let size = Path::new(UIO_CLASS).join(name).join("maps/map0/size");
        let text = fs::read_to_string(&size);
        let text = text.map_err(|e| self.failed(&size.display().to_string(), &e))?;
        let bytes = usize::from_str_radix(text.trim().trim_start_matches("0x"), 16);
        let bytes = bytes.map_err(|_| format!("{}: {text:?} is no size", size.display()))?;
        let own = file.try_clone().map_err(|e| self.failed(&shown, &e))?;
        let memory = MmapRegion::from_file(FileOffset::new(own, 0), bytes);
        let memory = memory.map_err(|e| format!("tcmu {}: {shown}: {e}", self.name))?;
        Ok(UioDevice { file, memory })
    }

    /// Blocks the device and fails the commands that a killed server had, so that the kernel
    /// retries them. Further ones wait for [`Target::unblock`].
    ///
    /// # Errors
    /// If the kernel does not.
    pub(super) fn reset(&self) -> Result<(), String> {
        let actions = self.device().join("action");
        self.write(&actions.join("block_dev"), "1")?;
        self.write(&actions.join("reset_ring"), "1")
    }

    /// Unblocks the device, so that commands arrive again.
    ///
    /// # Errors
    /// If the kernel does not.
    pub(super) fn unblock(&self) -> Result<(), String> {
        self.write(&self.device().join("action/block_dev"), "0")
    }

    /// Makes the device a disk through tcm_loop, if it is none. It must already be served,
    /// because the kernel sends it commands to scan it.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(super) fn export(&self) -> Result<(), String> {
        if self.link().exists() {
            return self.unblock();
        }
        make_folder(&self.fabric()).map_err(|e| {
            let missing = "modprobe tcm_loop (CONFIG_LOOPBACK_TARGET) provides it";
            self.failed(
                &format!("the kernel shows no targets as disks ({missing})"),
                &e,
            )
        })?;
        for folder in [self.port(), self.group()] {
            make_folder(&folder).map_err(|e| self.failed(&folder.display().to_string(), &e))?;
        }
        self.write(&self.group().join("nexus"), &self.port)?;
        make_folder(&self.lun()).map_err(|e| self.failed("the kernel makes no unit", &e))?;
        let linked = std::os::unix::fs::symlink(self.device(), self.link());
        linked.map_err(|e| self.failed("the kernel shows no disk", &e))
    }

    /// Returns the path of the disk once it exists.
    ///
    /// # Errors
    /// If it does not appear.
    pub(super) fn wait_for_disk(&self) -> Result<PathBuf, String> {
        let path = patiently(PATIENCE, || self.disk().filter(|path| path.exists()));
        path.ok_or_else(|| {
            format!(
                "tcmu {}: the kernel makes no disk of the target; modprobe sd_mod (CONFIG_BLK_DEV_SD) provides them",
                self.name
            )
        })
    }

    fn disk(&self) -> Option<PathBuf> {
        // The address of the disk: host, channel and target.
        let address = fs::read_to_string(self.group().join("address")).ok()?;
        let folder = format!("/sys/class/scsi_device/{}:0/device/block", address.trim());
        let disk = fs::read_dir(folder).ok()?.next()?.ok()?;
        Some(Path::new("/dev").join(disk.file_name()))
    }

    /// Removes the disk; the kernel writes its cached data before.
    pub(super) fn withdraw(&self) {
        if !self.is_ours {
            return;
        }
        self.gone(fs::remove_file(self.link()), &self.link());
        for folder in [self.lun(), self.group(), self.port()] {
            self.gone(fs::remove_dir(&folder), &folder);
        }
        // Fails if other targets exist, which keep it.
        let _ = fs::remove_dir(self.fabric());
    }

    /// Removes the device after its disk was removed.
    pub(super) fn remove(&mut self) {
        self.withdraw();
        if std::mem::take(&mut self.is_ours) {
            self.gone(fs::remove_dir(self.device()), &self.device());
            let _ = fs::remove_dir(self.adapter());
        }
    }

    fn gone(&self, removed: std::io::Result<()>, path: &Path) {
        match removed {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                let what = format!("{} cannot be removed", path.display());
                eprintln!("blklab: {}", self.failed(&what, &error));
            }
            _ => {}
        }
    }

    fn write(&self, path: &Path, text: &str) -> Result<(), String> {
        let written = fs::write(path, text);
        written.map_err(|e| self.failed(&format!("{} takes no {text:?}", path.display()), &e))
    }
}

fn make_folder(path: &Path) -> std::io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        done => done,
    }
}

fn is_busy_or_missing(error: &Error) -> bool {
    use ErrorKind::{NotFound, ResourceBusy};
    matches!(error.kind(), NotFound | ResourceBusy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_targets_is_told() {
        let empty = tempfile::tempdir().expect("a folder");
        let target = Target {
            targets: empty.path().join("target"),
            ..Target::new("scratch", 1)
        };
        let error = target.check_kernel().expect_err("no targets");
        for wanted in ["scratch", "target_core_user", "tcm_loop", "configfs"] {
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn what_is_not_ours_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut target = Target {
            targets: folder.path().to_path_buf(),
            ..Target::new("scratch", 0x3000_0000_0000_0001)
        };
        fs::create_dir_all(target.device()).expect("a device");
        fs::create_dir_all(target.port()).expect("a port");
        target.remove();
        assert!(target.device().is_dir());
        target.is_ours = true;
        target.remove();
        assert!(!folder.path().join("core/user_1000").exists());
        assert!(!folder.path().join("loopback").exists());
        assert_eq!(target.port, "naa.3000000000000001");
    }
}
