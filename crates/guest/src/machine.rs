//! Boots a guest under QEMU and waits for its end.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::Error;
use crate::packages::Packages;

/// Where the guest finds the file that it was given as its order.
pub const ORDER: &str = "/sys/firmware/qemu_fw_cfg/by_name/opt/blklab/order/raw";

/// The variable of the guest's script that names what it writes its answer to.
pub const PORT: &str = "$PORT";

/// Memory that the guest's kernel takes from each half of what there is.
const KERNEL_MIB: u64 = 16;

/// How often a running guest is looked after.
const POLL: Duration = Duration::from_millis(10);

/// How long a guest may be silent on the host's processor: one that works says
/// something within a second.
const SILENCE_LIMIT: Duration = Duration::from_secs(8);

/// How often a guest is booted that dies before its first process begins. QEMU's software lets a
/// processor meet a breakpoint of the kernel's own patching (arch/x86/kernel/alternative.c) after
/// another processor has taken it away, and QEMU itself may crash there.
const BOOTS: u32 = 3;

/// What a kernel says that gives up (kernel/panic.c).
const PANIC: &str = "Kernel panic";

/// What the guest's first process says first.
const UP: &str = "blklab guest: up";

/// How much of the end of what a guest said a message shows.
const SAID_BYTES: u64 = 2000;

/// Where libfaketime for programs with threads is: Debian, Fedora, Arch.
const FAKETIME: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib64/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketimeMT.so.1",
];

/// What the guest's instructions are carried out by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accelerator {
    /// The host's processor where that boots a guest, else software.
    #[default]
    Auto,
    /// The host's processor.
    Kvm,
    /// Software.
    Tcg,
}

/// What a guest is given.
#[derive(Clone, Debug)]
pub struct Machine {
    /// What carries out its instructions.
    pub accelerator: Accelerator,
    /// Its processors.
    pub cpus: u32,
    /// Its memory in MiB.
    pub memory_mib: u32,
    /// Whether its clock counts instructions, a nanosecond each, on one processor
    /// in software.
    pub counts_instructions: bool,
    /// How many times slower than the host's clock its own is, at least 1: executed by
    /// software, it is as fast as a processor then (Gupta et al.: To Infinity and Beyond,
    /// Time-Warped Network Emulation, NSDI 2006).
    pub time_dilation: u32,
    /// How long it may run, by its own clock.
    pub limit: Duration,
}

/// What is booted.
#[derive(Clone, Copy)]
pub struct Boot<'a> {
    /// The kernel.
    pub packages: &'a Packages,
    /// What it starts with.
    pub initramfs: &'a Path,
    /// QEMU's options for its devices.
    pub devices: &'a [String],
    /// What its script may read at [`ORDER`].
    pub order: Option<&'a Path>,
    /// Where what its script wrote to [`PORT`] is put.
    pub answer: &'a Path,
    /// Where what it says is put.
    pub console: &'a Path,
    /// More for the kernel's command line.
    pub append: &'a str,
    /// Whether it is to be ended at once.
    pub is_stopped: &'a (dyn Fn() -> bool + Sync),
}

impl Machine {
    /// Boots a guest and waits until it has ended.
    ///
    /// # Errors
    /// Where it does not run to its end.
    pub fn run(&self, boot: &Boot<'_>) -> Result<(), Error> {
        self.check_memory(boot.initramfs)?;
        self.check_clock()?;
        if self.counts_instructions || self.time_dilation > 1 {
            return self.run_on(Accelerator::Tcg, boot);
        }
        // What the first guest of this process found out.
        static FOUND: OnceLock<Accelerator> = OnceLock::new();
        match (self.accelerator, FOUND.get()) {
            (Accelerator::Auto, Some(found)) => self.run_on(*found, boot),
            (Accelerator::Auto, None) => {
                let mut found = Accelerator::Kvm;
                let mut done = match File::options().read(true).write(true).open("/dev/kvm") {
                    Ok(_) => self.run_on(found, boot),
                    Err(_) => Err(Error::Failed(String::new())),
                };
                if done.is_err() && !has_spoken(boot.console) && !(boot.is_stopped)() {
                    found = Accelerator::Tcg;
                    done = self.run_on(found, boot);
                }
                let _ = FOUND.set(found);
                done
            }
            (given, _) => self.run_on(given, boot),
        }
    }

    /// Refuses a dilated clock where QEMU's software does not keep it.
    fn check_clock(&self) -> Result<(), Error> {
        let problem = match (self.counts_instructions, self.accelerator) {
            _ if self.time_dilation <= 1 => return Ok(()),
            (true, _) => "a clock that counts instructions cannot be dilated",
            (false, Accelerator::Kvm) => "KVM's clock cannot be dilated: --accelerator tcg",
            (false, _) => return Ok(()),
        };
        Err(Error::Missing(problem.to_string()))
    }

    /// Refuses an archive that the guest's kernel cannot unpack: its first file system may take
    /// half of the memory (Documentation/filesystems/ramfs-rootfs-initramfs.rst), and the archive
    /// itself is in the other half meanwhile.
    fn check_memory(&self, initramfs: &Path) -> Result<(), Error> {
        let archive = std::fs::metadata(initramfs).map_err(|e| Error::file(initramfs, e))?;
        let archive_mib = archive.len().div_ceil(1 << 20);
        let needed_mib = 2 * (archive_mib + KERNEL_MIB);
        match u64::from(self.memory_mib) < needed_mib {
            false => Ok(()),
            true => Err(Error::Missing(format!(
                "the guest's programs and modules are an archive of {archive_mib} MiB, which \
                 cannot be unpacked in a memory of {} MiB; right is --memory {needed_mib} or \
                 more, or programs without debug information",
                self.memory_mib
            ))),
        }
    }

    fn run_on(&self, accelerator: Accelerator, boot: &Boot<'_>) -> Result<(), Error> {
        let mut boots = 1;
        loop {
            let ended = self.boot(accelerator, boot);
            let is_up = has_spoken(boot.console);
            let is_again = accelerator == Accelerator::Tcg && !is_up && boots < BOOTS;
            if !is_again || !has_died(&ended, boot.console) {
                return match ended? {
                    status if status.success() && is_up => Ok(()),
                    status => Err(failed(&format!("QEMU ended ({status})"), boot.console)),
                };
            }
            eprintln!("blklab: the guest died as it started; it is booted again");
            boots += 1;
        }
    }

    fn boot(&self, accelerator: Accelerator, boot: &Boot<'_>) -> Result<ExitStatus, Error> {
        let console = File::create(boot.console).map_err(|e| Error::file(boot.console, e))?;
        let errors = console
            .try_clone()
            .map_err(|e| Error::file(boot.console, e))?;
        let child = self
            .command(accelerator, boot)?
            .stdin(Stdio::null())
            .stdout(console)
            .stderr(errors)
            .spawn()
            .map_err(|e| Error::Missing(format!("qemu-system-x86_64 cannot be run: {e}")))?;
        let limit = self.limit.saturating_mul(self.time_dilation);
        Running { child }.wait(limit, accelerator, boot)
    }

    fn command(&self, accelerator: Accelerator, boot: &Boot<'_>) -> Result<Command, Error> {
        let mut qemu = Command::new("qemu-system-x86_64");
        if self.time_dilation > 1 {
            dilate(&mut qemu, self.time_dilation)?;
        }
        qemu.args(["-accel"]);
        qemu.arg(match (accelerator, self.counts_instructions) {
            (Accelerator::Kvm, _) => "kvm",
            (_, true) => "tcg",
            (_, false) => "tcg,thread=multi",
        });
        qemu.args([
            "-machine",
            "q35",
            "-cpu",
            "max",
            "-no-reboot",
            "-nodefaults",
        ]);
        qemu.args(["-no-user-config", "-display", "none", "-serial", "stdio"]);
        qemu.args(["-smp", &self.cpus.to_string()]);
        if self.counts_instructions {
            qemu.args(["-icount", "shift=0"]);
        }
        qemu.args(["-m", &format!("{}M", self.memory_mib)]);
        qemu.arg("-kernel").arg(boot.packages.kernel());
        qemu.arg("-initrd").arg(boot.initramfs);
        // A loaded host may be so late with timer interrupts that the kernel takes the
        // timer for broken.
        let append = "console=ttyS0 panic=-1 quiet mitigations=off nokaslr no_timer_check \
                      clocksource=tsc tsc=reliable";
        qemu.args(["-append", &format!("{append} {}", boot.append)]);
        qemu.args(["-device", "virtio-serial-pci"]);
        qemu.args([
            "-chardev",
            &format!("file,id=answer,path={}", boot.answer.display()),
        ]);
        qemu.args(["-device", "virtserialport,chardev=answer,name=answer"]);
        if let Some(order) = boot.order {
            let order = format!("name=opt/blklab/order,file={}", order.display());
            qemu.args(["-fw_cfg", &order]);
        }
        qemu.args(boot.devices);
        Ok(qemu)
    }
}

/// Has a program's clock go this many times slower, by libfaketime. The guest calibrates its
/// time stamp counter, which is the host's, against such timers.
fn dilate(program: &mut Command, dilation: u32) -> Result<(), Error> {
    let found = FAKETIME.into_iter().find(|path| Path::new(path).exists());
    let library = found.ok_or_else(|| {
        let message = "--time-dilation needs libfaketime: install the package libfaketime";
        Error::Missing(message.to_string())
    })?;
    program.env("LD_PRELOAD", library);
    program.env("FAKETIME", format!("+0 x{}", 1.0 / f64::from(dilation)));
    // A time that is kept for a while would stand still.
    program.env("FAKETIME_NO_CACHE", "1");
    Ok(())
}

/// Whether QEMU crashed or the guest's kernel gave up.
fn has_died(ended: &Result<ExitStatus, Error>, console: &Path) -> bool {
    match ended {
        Ok(status) => status.signal().is_some() || has_said(console, PANIC),
        Err(Error::Failed(_)) => has_said(console, PANIC),
        Err(_) => false,
    }
}

/// Whether the guest's first process has begun.
fn has_spoken(console: &Path) -> bool {
    has_said(console, UP)
}

fn has_said(console: &Path, words: &str) -> bool {
    let mut text = Vec::new();
    let read = File::open(console).and_then(|mut file| file.read_to_end(&mut text));
    read.is_ok() && String::from_utf8_lossy(&text).contains(words)
}

fn failed(how: &str, console: &Path) -> Error {
    let mut end = Vec::new();
    if let Ok(mut file) = File::open(console) {
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        // What cannot be read is shown as far as it can.
        let _ = file.seek(SeekFrom::Start(length.saturating_sub(SAID_BYTES)));
        let _ = file.read_to_end(&mut end);
    }
    let said = String::from_utf8_lossy(&end).trim().replace('\r', "");
    Error::Failed(format!("the guest failed: {how}; it said last:\n{said}"))
}

/// A running QEMU. It is ended when this goes.
struct Running {
    child: Child,
}

impl Running {
    fn wait(
        mut self,
        limit: Duration,
        accelerator: Accelerator,
        boot: &Boot<'_>,
    ) -> Result<ExitStatus, Error> {
        let start = Instant::now();
        let mut is_up = accelerator == Accelerator::Tcg;
        loop {
            let status = self.child.try_wait();
            let status = status.map_err(|e| Error::Failed(format!("QEMU: {e}")))?;
            if let Some(status) = status {
                return Ok(status);
            }
            if (boot.is_stopped)() {
                return Err(Error::Stopped);
            }
            let elapsed = start.elapsed();
            if !is_up && elapsed > SILENCE_LIMIT {
                is_up = has_spoken(boot.console);
                if !is_up {
                    let how = format!("nothing runs in it after {SILENCE_LIMIT:?} under KVM");
                    return Err(failed(&how, boot.console));
                }
            }
            if elapsed > limit {
                return Err(failed(
                    &format!("it did not end within {limit:?}"),
                    boot.console,
                ));
            }
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_fits_in_half_of_the_memory() {
        let folder = tempfile::tempdir().expect("a folder");
        let archive = folder.path().join("initramfs");
        let file = File::create(&archive).expect("a file");
        file.set_len(100 << 20).expect("its length");
        let machine = |memory_mib| Machine {
            accelerator: Accelerator::Auto,
            cpus: 1,
            memory_mib,
            counts_instructions: false,
            time_dilation: 1,
            limit: Duration::from_secs(1),
        };
        assert!(machine(232).check_memory(&archive).is_ok());
        let error = machine(231).check_memory(&archive).expect_err("too small");
        assert!(error.is_mistake());
        let said = error.to_string();
        let expected = ["100 MiB", "231 MiB", "--memory 232"];
        assert!(expected.iter().all(|part| said.contains(part)), "{said}");
    }
}
