//! ublk: disks of this machine's kernel, `/dev/ublkb0` and so on, with a queue and a thread
//! for each CPU. If a server is killed, the kernel keeps its disk and its requests, and the
//! next server of the same number takes them over (user recovery).

mod queue;

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use blklab_driver::{UBLK_DEPTH, UBLK_MAX_IO_BYTES};
use blklab_nbd::Export;
use blklab_nbd::wire::ExportFlags;
use blklab_uring::ublk::{Control, DeviceInfo, Features, Parameters, State};
use rustix::io::Errno;

use crate::export::FrontEndSetup;
use crate::patiently;
use queue::{QueueSetup, serve};

/// The longest discard and zeroing in bytes; an NBD request has a length of 32 bits.
const MAX_RANGE_SECTORS: u32 = u32::MAX >> 9;
/// The required features of the kernel's ublk, with their names.
const NEEDED: [(Features, &str); 4] = [
    (Features::USER_RECOVERY, "UBLK_F_USER_RECOVERY"),
    (
        Features::USER_RECOVERY_REISSUE,
        "UBLK_F_USER_RECOVERY_REISSUE",
    ),
    (Features::CMD_IOCTL_ENCODE, "UBLK_F_CMD_IOCTL_ENCODE"),
    (Features::USER_COPY, "UBLK_F_USER_COPY"),
];
/// The longest wait for the kernel to release a device of a killed server, and to make a
/// device's files.
const PATIENCE: Duration = Duration::from_secs(10);

/// The number of the device for an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UblkNumber {
    /// The lowest free number.
    Free,
    /// This number; its device is created or taken over.
    Number(u32),
}

impl UblkNumber {
    /// Parses a number or `auto`.
    ///
    /// # Errors
    /// If the text is neither.
    pub fn parse(text: &str) -> Result<UblkNumber, String> {
        match (text, text.parse::<u32>()) {
            ("auto", _) => Ok(UblkNumber::Free),
            // Minor numbers of the kernel have 20 bits.
            (_, Ok(number)) if number < 1 << 20 => Ok(UblkNumber::Number(number)),
            _ => Err(format!(
                "ublk {text:?} is no device's number; write such as 0 for /dev/ublkb0, or auto"
            )),
        }
    }
}

/// Returns the parameters of the device for an export.
fn parameters(export: &Export) -> Result<Parameters, String> {
    let takes = |flag| export.flags.contains(flag);
    let sizes = export.block_sizes;
    let page_bytes = rustix::param::page_size() as u32;
    let logical = sizes.minimum.max(512);
    if logical > page_bytes {
        return Err(format!(
            "ublk takes blocks of at most {page_bytes} bytes, and the drive's have {logical}"
        ));
    }
    let shift = |bytes: u32| bytes.clamp(logical, page_bytes).ilog2() as u8;
    let max_range_sectors = MAX_RANGE_SECTORS - MAX_RANGE_SECTORS % (logical >> 9);
    let discards = takes(ExportFlags::SEND_TRIM);
    Ok(Parameters {
        read_only: takes(ExportFlags::READ_ONLY),
        rotational: takes(ExportFlags::ROTATIONAL),
        write_cache: takes(ExportFlags::SEND_FLUSH),
        sectors: export.size_bytes / u64::from(logical) * u64::from(logical >> 9),
        logical_block_shift: shift(logical),
        physical_block_shift: shift(sizes.preferred),
        max_sectors: UBLK_MAX_IO_BYTES.min(sizes.maximum) >> 9,
        max_discard_sectors: if discards { max_range_sectors } else { 0 },
        max_write_zeroes_sectors: max_range_sectors,
    })
}

/// A disk of the kernel, which is served until this is dropped.
pub(crate) struct UblkDevice {
    control: Control,
    number: u32,
    threads: Vec<JoinHandle<()>>,
}

impl UblkDevice {
    /// Starts to serve an export as a disk.
    ///
    /// # Errors
    /// If the kernel refuses, or the number is in use; the message says by what.
    pub(crate) fn start(setup: FrontEndSetup, wanted: UblkNumber) -> Result<UblkDevice, String> {
        let mut control = Control::open()?;
        check_features(&mut control)?;
        let parameters = parameters(&setup.export)?;
        let former = match wanted {
            UblkNumber::Free => None,
            UblkNumber::Number(number) => find_former(&mut control, number, parameters.sectors)?,
        };
        let info = match former {
            Some(info) => {
                let recovered = retried(|| control.start_recovery(info.number));
                recovered.map_err(|e| failed("take over", info.number, &e))?;
                info
            }
            None => add(&mut control, wanted)?,
        };
        // From here on an error drops, and so deletes, the device.
        let mut device = UblkDevice {
            control,
            number: info.number,
            threads: Vec::new(),
        };
        let new = former.is_none().then_some(parameters);
        device.serve_queues(setup, info, new).map(|()| device)
    }

    /// Starts the threads of the queues, then the device. `parameters` are `None` for a device
    /// that is taken over, which has those of its former server.
    fn serve_queues(
        &mut self,
        setup: FrontEndSetup,
        info: DeviceInfo,
        parameters: Option<Parameters>,
    ) -> Result<(), String> {
        let number = self.number;
        if let Some(parameters) = parameters {
            let set = self.control.set_parameters(number, parameters);
            set.map_err(|e| failed("set up", number, &e))?;
        }
        let path = format!("/dev/ublkc{number}");
        let opened = retried(|| File::options().read(true).write(true).open(&path));
        let file = Arc::new(opened.map_err(|e| format!("{path}: {e}"))?);
        let (ready, is_ready) = mpsc::channel();
        for queue in 0..info.queues {
            self.threads.push(start_queue(
                QueueSetup {
                    front_end: setup.clone(),
                    file: Arc::clone(&file),
                    number: queue,
                    depth: info.depth,
                },
                ready.clone(),
            )?);
        }
        for _ in 0..info.queues {
            let started = is_ready.recv().map_err(|e| e.to_string())?;
            started.map_err(|e| failed("serve", number, &e))?;
        }
        let started = match parameters {
            Some(_) => self.control.start(number),
            None => self.control.end_recovery(number),
        };
        started.map_err(|e| failed("start", number, &e))
    }

    /// Returns the path of the disk.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/ublkb{}", self.number))
    }
}

impl Drop for UblkDevice {
    /// Completes the accepted requests and deletes the disk.
    fn drop(&mut self) {
        let stopped = self.control.stop(self.number);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        if let Err(error) = stopped.and_then(|()| self.control.delete(self.number)) {
            eprintln!("blklab: {}", failed("delete", self.number, &error));
        }
    }
}

fn start_queue(
    setup: QueueSetup,
    ready: Sender<std::io::Result<()>>,
) -> Result<JoinHandle<()>, String> {
    let builder = std::thread::Builder::new().name("ublk".to_string());
    let watched = setup.front_end.new_thread();
    let started = builder.spawn(move || watched.run(|| serve(setup, &ready)));
    started.map_err(|e| e.to_string())
}

fn failed(what: &str, number: u32, error: &std::io::Error) -> String {
    format!("ublk: cannot {what} device {number}: {error}")
}

/// Repeats an attempt for a while if the kernel is not ready for it.
fn retried<T>(mut attempt: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    let done = patiently(PATIENCE, || match attempt() {
        Err(error) if is_temporary(&error) => None,
        done => Some(done),
    });
    done.unwrap_or_else(attempt)
}

fn is_temporary(error: &std::io::Error) -> bool {
    let temporary = [Errno::BUSY, Errno::NOENT, Errno::ACCESS];
    Errno::from_io_error(error).is_some_and(|errno| temporary.contains(&errno))
}

fn check_features(control: &mut Control) -> Result<(), String> {
    let found = control.features();
    let found = found.map_err(|e| format!("this kernel's ublk is too old ({e}): Linux 6.5"))?;
    let missing = NEEDED.iter().filter(|(feature, _)| !found.has(*feature));
    let missing: Vec<&str> = missing.map(|(_, name)| *name).collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "this kernel's ublk has no {}: Linux 6.5 has",
            missing.join(", ")
        )),
    }
}

/// Returns the device of this number if its server was killed.
fn find_former(
    control: &mut Control,
    number: u32,
    sectors: u64,
) -> Result<Option<DeviceInfo>, String> {
    let asked = |e: std::io::Error| failed("look at", number, &e);
    let is_killed =
        |info: &DeviceInfo| !PathBuf::from(format!("/proc/{}", info.server_pid)).exists();
    // The kernel detects with a delay that a server was killed.
    let found = patiently(PATIENCE, || match control.info(number) {
        Ok(Some(info)) if info.state == State::Live && is_killed(&info) => None,
        found => Some(found),
    });
    let found = found.unwrap_or_else(|| control.info(number));
    let Some(info) = found.map_err(asked)? else {
        return Ok(None);
    };
    match info.state {
        State::Quiesced => {
            let had = control.sectors(number).map_err(asked)?;
            match had == sectors {
                true => Ok(Some(info)),
                false => Err(format!(
                    "/dev/ublkb{number} waits for its server and has {had} sectors, not {sectors}; serve what was served, or another number"
                )),
            }
        }
        // Its server was killed before it had started the device.
        State::Dead => {
            control.delete(number).map_err(asked)?;
            Ok(None)
        }
        State::Live => Err(format!(
            "/dev/ublkb{number} is served by process {}; name another number, or auto",
            info.server_pid
        )),
    }
}

fn add(control: &mut Control, wanted: UblkNumber) -> Result<DeviceInfo, String> {
    let number = match wanted {
        UblkNumber::Free => u32::MAX,
        UblkNumber::Number(number) => number,
    };
    let queues = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
    let features = NEEDED.iter().map(|(feature, _)| *feature);
    let added = control.add(DeviceInfo {
        number,
        queues: queues.min(usize::from(u16::MAX)) as u16,
        depth: UBLK_DEPTH,
        max_io_bytes: UBLK_MAX_IO_BYTES,
        state: State::Dead,
        server_pid: 0,
        features: features.fold(Features(0), Features::with),
    });
    added.map_err(|e| format!("ublk: cannot add a device: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_by_its_number() {
        assert_eq!(UblkNumber::parse("auto"), Ok(UblkNumber::Free));
        assert_eq!(UblkNumber::parse("7"), Ok(UblkNumber::Number(7)));
        for wrong in ["", "-1", "1048576", "/dev/ublkb0"] {
            let error = UblkNumber::parse(wrong).expect_err("no number");
            assert!(error.contains("such as 0"), "{error}");
        }
    }
}
