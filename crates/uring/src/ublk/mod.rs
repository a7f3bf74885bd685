//! ublk: block devices of the kernel whose requests a process carries out
//! (Documentation/block/ublk.rst). Commands go through io_uring; data is copied by
//! reads and writes of the device's character file (`UBLK_F_USER_COPY`), so that the
//! kernel never keeps an address of ours.
//!
//! - [`Control`]: adds, starts, stops, recovers and deletes devices.
//! - [`Queue`]: the requests of one of a device's queues.

mod queue;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

pub use queue::{Event, Operation, Queue, Request};

/// The file that devices are controlled by.
const CONTROL: &str = "/dev/ublk-control";

/// Requests of one queue, at most (`UBLK_MAX_QUEUE_DEPTH`).
pub const MAX_DEPTH: u16 = 4096;

/// What a device is to do, and what a kernel can (`UBLK_F_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features(pub u64);

impl Features {
    /// Requests wait for another server where theirs ends.
    pub const USER_RECOVERY: Features = Features(1 << 3);
    /// Those that the former server had are given to the next one again.
    pub const USER_RECOVERY_REISSUE: Features = Features(1 << 4);
    /// Commands have the numbers of ioctls.
    pub const CMD_IOCTL_ENCODE: Features = Features(1 << 6);
    /// Data is copied by reads and writes of the character file.
    pub const USER_COPY: Features = Features(1 << 7);

    /// Those of both.
    #[must_use]
    pub const fn with(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }

    /// Whether all of `other` are among them.
    pub const fn has(self, other: Features) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What a device's requests are doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It was added and not started, or stopped.
    Dead,
    /// A server carries them out.
    Live,
    /// Its server ended; they wait for the next.
    Quiesced,
}

/// A device, as the kernel knows it (`struct ublksrv_ctrl_dev_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its number: `/dev/ublkb0` has 0.
    pub number: u32,
    /// Queues.
    pub queues: u16,
    /// Requests of each queue.
    pub depth: u16,
    /// Bytes of the longest read or write.
    pub max_io_bytes: u32,
    /// What its requests are doing.
    pub state: State,
    /// The process that serves it.
    pub server_pid: i32,
    /// How it works.
    pub features: Features,
}

const INFO_BYTES: usize = 64;

impl DeviceInfo {
    fn to_bytes(self) -> [u8; INFO_BYTES] {
        let mut bytes = [0; INFO_BYTES];
        bytes[0..2].copy_from_slice(&self.queues.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.depth.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.max_io_bytes.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.number.to_ne_bytes());
        bytes[16..20].copy_from_slice(&self.server_pid.to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.features.0.to_ne_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; BUFFER_BYTES]) -> DeviceInfo {
        DeviceInfo {
            queues: u16::from_ne_bytes(field(bytes, 0)),
            depth: u16::from_ne_bytes(field(bytes, 2)),
            state: match u16::from_ne_bytes(field(bytes, 4)) {
                0 => State::Dead,
                1 => State::Live,
                _ => State::Quiesced,
            },
            max_io_bytes: u32::from_ne_bytes(field(bytes, 8)),
            number: u32::from_ne_bytes(field(bytes, 12)),
            server_pid: i32::from_ne_bytes(field(bytes, 16)),
            features: Features(u64::from_ne_bytes(field(bytes, 24))),
        }
    }
}

/// A device's size and limits (`struct ublk_params`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Writes are refused.
    pub read_only: bool,
    /// It turns.
    pub rotational: bool,
    /// Finished writes are not durable until flushed.
    pub write_cache: bool,
    /// Sectors of 512 bytes.
    pub sectors: u64,
    /// The binary logarithm of the smallest block in bytes: 9 to 12.
    pub logical_block_shift: u8,
    /// The same of the block that it prefers.
    pub physical_block_shift: u8,
    /// The longest read or write.
    pub max_sectors: u32,
    /// The longest discard; 0 for a device that takes none.
    pub max_discard_sectors: u32,
    /// The longest range of zeroes.
    pub max_write_zeroes_sectors: u32,
}

/// Bytes of its header, its basic parameters and those of discards.
const PARAMETER_BYTES: usize = 60;

impl Parameters {
    fn to_bytes(self) -> [u8; PARAMETER_BYTES] {
        const BASIC_AND_DISCARD: u32 = 0b11;
        // A device that is flushed takes writes that are durable too.
        let cache = if self.write_cache { 0b1100 } else { 0 };
        let attributes = u32::from(self.read_only) | u32::from(self.rotational) << 1 | cache;
        let (logical, physical) = (self.logical_block_shift, self.physical_block_shift);
        let mut bytes = [0; PARAMETER_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &(PARAMETER_BYTES as u32).to_ne_bytes());
        put(4, &BASIC_AND_DISCARD.to_ne_bytes());
        put(8, &attributes.to_ne_bytes());
        put(12, &[logical, physical, physical, physical]);
        put(16, &self.max_sectors.to_ne_bytes());
        put(24, &self.sectors.to_ne_bytes());
        let block_bytes: u32 = 1 << logical;
        put(44, &block_bytes.to_ne_bytes());
        put(48, &self.max_discard_sectors.to_ne_bytes());
        put(52, &self.max_write_zeroes_sectors.to_ne_bytes());
        put(56, &1u16.to_ne_bytes());
        bytes
    }

    /// The sectors that a device's parameters tell.
    fn sectors_of(bytes: &[u8; BUFFER_BYTES]) -> u64 {
        u64::from_ne_bytes(field(bytes, 24))
    }
}

/// A command's number, and whether the kernel takes its buffer or fills it
/// (`UBLK_U_CMD_*`).
#[derive(Clone, Copy)]
struct Code(u32);

/// Bytes of `struct ublksrv_ctrl_cmd`.
const COMMAND_BYTES: u32 = 32;
/// `_IOC_READ` and `_IOC_WRITE` of linux/ioctl.h.
const READ: u32 = 2;
const READ_WRITE: u32 = 3;

/// `_IOC` of linux/ioctl.h, for commands of ublk.
const fn ioctl(direction: u32, number: u32, bytes: u32) -> u32 {
    direction << 30 | bytes << 16 | (b'u' as u32) << 8 | number
}

impl Code {
    const ADD: Code = Code(ioctl(READ_WRITE, 0x04, COMMAND_BYTES));
    const DELETE: Code = Code(ioctl(READ_WRITE, 0x05, COMMAND_BYTES));
    const START: Code = Code(ioctl(READ_WRITE, 0x06, COMMAND_BYTES));
    const STOP: Code = Code(ioctl(READ_WRITE, 0x07, COMMAND_BYTES));
    const SET_PARAMETERS: Code = Code(ioctl(READ_WRITE, 0x08, COMMAND_BYTES));
    const GET_PARAMETERS: Code = Code(ioctl(READ, 0x09, COMMAND_BYTES));
    const GET_INFO: Code = Code(ioctl(READ, 0x02, COMMAND_BYTES));
    const START_RECOVERY: Code = Code(ioctl(READ_WRITE, 0x10, COMMAND_BYTES));
    const END_RECOVERY: Code = Code(ioctl(READ_WRITE, 0x11, COMMAND_BYTES));
    const GET_FEATURES: Code = Code(ioctl(READ, 0x13, COMMAND_BYTES));
}

/// Room for what any command brings or takes, in newer kernels too: their parameters are
/// the longest.
const BUFFER_BYTES: usize = 256;

fn field<const N: usize>(bytes: &[u8; BUFFER_BYTES], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

/// Controls the devices of this machine.
pub struct Control {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    file: File,
    /// What the kernel reads or fills during a command.
    buffer: Box<[u8; BUFFER_BYTES]>,
}

impl Control {
    /// # Errors
    /// Where the kernel has no ublk or no io_uring, or does not allow it; the message
    /// says what provides it.
    pub fn open() -> Result<Control, String> {
        let file = File::options().read(true).write(true).open(CONTROL);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => format!(
                "this kernel has no ublk: there is no {CONTROL}; load the module ublk_drv (CONFIG_BLK_DEV_UBLK, Linux 6.5)"
            ),
            io::ErrorKind::PermissionDenied => {
                format!("{CONTROL}: {error}; ublk needs root (CAP_SYS_ADMIN)")
            }
            _ => format!("{CONTROL}: {error}"),
        })?;
        let ring = IoUring::builder().build(4).map_err(|error| {
            format!("ublk needs io_uring: {error}; see kernel.io_uring_disabled (sysctl)")
        })?;
        Ok(Control {
            ring,
            file,
            buffer: Box::new([0; BUFFER_BYTES]),
        })
    }

    /// What the kernel's ublk can do.
    ///
    /// # Errors
    /// Where it is older than the question (Linux 6.5).
    pub fn features(&mut self) -> io::Result<Features> {
        self.command(Code::GET_FEATURES, u32::MAX, &[], 8, 0)?;
        Ok(Features(u64::from_ne_bytes(field(&self.buffer, 0))))
    }

    /// A device; `None` where there is none of that number.
    ///
    /// # Errors
    /// Where the kernel does not say.
    pub fn info(&mut self, number: u32) -> io::Result<Option<DeviceInfo>> {
        match self.command(Code::GET_INFO, number, &[], INFO_BYTES, 0) {
            Ok(()) => Ok(Some(DeviceInfo::from_bytes(&self.buffer))),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Adds a device; the number `u32::MAX` is the lowest that is free.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn add(&mut self, info: DeviceInfo) -> io::Result<DeviceInfo> {
        self.command(Code::ADD, info.number, &info.to_bytes(), INFO_BYTES, 0)?;
        Ok(DeviceInfo::from_bytes(&self.buffer))
    }

    /// Sets what a device that is not started is like.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn set_parameters(&mut self, number: u32, parameters: Parameters) -> io::Result<()> {
        let bytes = parameters.to_bytes();
        // The kernel reads as much as its own structure has, of which ours is a part.
        self.command(Code::SET_PARAMETERS, number, &bytes, BUFFER_BYTES, 0)
    }

    /// The sectors of a device.
    ///
    /// # Errors
    /// Where the kernel does not say.
    pub fn sectors(&mut self, number: u32) -> io::Result<u64> {
        let room = (BUFFER_BYTES as u32).to_ne_bytes();
        self.command(Code::GET_PARAMETERS, number, &room, BUFFER_BYTES, 0)?;
        Ok(Parameters::sectors_of(&self.buffer))
    }

    /// Makes the disk of a device, once this process waits for the requests of all
    /// its queues.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn start(&mut self, number: u32) -> io::Result<()> {
        let pid = u64::from(std::process::id());
        self.command(Code::START, number, &[], 0, pid)
    }

    /// Takes the disk of a device away; requests under way are finished first.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn stop(&mut self, number: u32) -> io::Result<()> {
        self.command(Code::STOP, number, &[], 0, 0)
    }

    /// Deletes a device, once nobody has its character file open.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn delete(&mut self, number: u32) -> io::Result<()> {
        self.command(Code::DELETE, number, &[], 0, 0)
    }

    /// Lets this process take over the queues of a quiesced device.
    ///
    /// # Errors
    /// `EBUSY` while its former server still ends.
    pub fn start_recovery(&mut self, number: u32) -> io::Result<()> {
        self.command(Code::START_RECOVERY, number, &[], 0, 0)
    }

    /// Has the requests go on, once this process waits for those of all queues.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn end_recovery(&mut self, number: u32) -> io::Result<()> {
        let pid = u64::from(std::process::id());
        self.command(Code::END_RECOVERY, number, &[], 0, pid)
    }

    /// Carries out a command. `given` is put into the buffer, of which the kernel is
    /// shown `len` bytes.
    fn command(
        &mut self,
        code: Code,
        device: u32,
        given: &[u8],
        len: usize,
        data: u64,
    ) -> io::Result<()> {
        self.buffer.fill(0);
        self.buffer[..given.len()].copy_from_slice(given);
        let mut command = [0; 80];
        command[0..4].copy_from_slice(&device.to_ne_bytes());
        // It concerns no queue.
        command[4..6].copy_from_slice(&u16::MAX.to_ne_bytes());
        command[6..8].copy_from_slice(&(len as u16).to_ne_bytes());
        if len > 0 {
            let address = self.buffer.as_mut_ptr() as u64;
            command[8..16].copy_from_slice(&address.to_ne_bytes());
        }
        command[16..24].copy_from_slice(&data.to_ne_bytes());
        let file = types::Fd(self.file.as_raw_fd());
        let entry = opcode::UringCmd80::new(file, code.0).cmd(command).build();
        // SAFETY: the entry points to the buffer, whose `len` bytes exist, which is
        // not touched until the command has completed, below, and is lost where that
        // is not seen. The file is held by `self`.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(|_| io::Error::from(io::ErrorKind::ResourceBusy))?;
        loop {
            let waited = self.ring.submit_and_wait(1);
            if let Some(entry) = self.ring.completion().next() {
                return match entry.result() {
                    result if result < 0 => Err(io::Error::from_raw_os_error(-result)),
                    _ => Ok(()),
                };
            }
            match waited {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    let used = std::mem::replace(&mut self.buffer, Box::new([0; BUFFER_BYTES]));
                    std::mem::forget(used);
                    return Err(error);
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_numbers_of_the_kernel_s_header() {
        // Computed by a C program from linux/ublk_cmd.h of 6.12.
        assert_eq!(Code::ADD.0, 0xc020_7504);
        assert_eq!(Code::GET_INFO.0, 0x8020_7502);
        assert_eq!(Code::GET_FEATURES.0, 0x8020_7513);
        assert_eq!(queue::FETCH, 0xc010_7520);
        assert_eq!(queue::COMMIT_AND_FETCH, 0xc010_7521);
    }

    #[test]
    fn a_device_s_information_is_read_as_it_is_written() {
        let info = DeviceInfo {
            number: 3,
            queues: 2,
            depth: 64,
            max_io_bytes: 1 << 20,
            state: State::Dead,
            server_pid: 77,
            features: Features::USER_COPY.with(Features::USER_RECOVERY),
        };
        let mut buffer = [0; BUFFER_BYTES];
        buffer[..INFO_BYTES].copy_from_slice(&info.to_bytes());
        assert_eq!(DeviceInfo::from_bytes(&buffer), info);
    }

    #[test]
    fn what_is_missing_names_what_provides_it() {
        match Control::open() {
            Ok(mut control) => assert!(control.info(4_000_000).expect("an answer").is_none()),
            Err(message) => assert!(
                ["ublk_drv", "CAP_SYS_ADMIN", "io_uring"]
                    .iter()
                    .any(|name| message.contains(name)),
                "{message}"
            ),
        }
    }
}
