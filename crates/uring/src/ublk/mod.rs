//! ublk: block devices whose requests a process of user space carries out
//! (Documentation/block/ublk.rst). Commands go through io_uring. Data is copied by reads and writes
//! of the device's character file (`UBLK_F_USER_COPY`), so that the kernel never keeps an address
//! of this process.
//!
//! - [`Control`]: adds, starts, stops, recovers and deletes devices.
//! - [`Queue`]: the requests of one queue of a device.

mod queue;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

pub use queue::{Event, Operation, Queue, Request};

/// The character device that controls all ublk devices.
const CONTROL: &str = "/dev/ublk-control";

/// The most requests of one queue (`UBLK_MAX_QUEUE_DEPTH`).
pub const MAX_DEPTH: u16 = 4096;

/// The features of a device or of the kernel (`UBLK_F_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features(pub u64);

impl Features {
    /// If the server ends, requests wait for another one.
    pub const USER_RECOVERY: Features = Features(1 << 3);
    /// The requests in flight in the former server are reissued to the next one.
    pub const USER_RECOVERY_REISSUE: Features = Features(1 << 4);
    /// Commands are encoded as ioctl numbers.
    pub const CMD_IOCTL_ENCODE: Features = Features(1 << 6);
    /// Data is copied by reads and writes of the character file.
    pub const USER_COPY: Features = Features(1 << 7);

    /// Returns the features of both sets.
    #[must_use]
    pub const fn with(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }

    /// Whether all of `other` are in the set.
    pub const fn has(self, other: Features) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The state of a device (`UBLK_S_DEV_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The device is not started, or was stopped.
    Dead,
    /// A server carries out the requests.
    Live,
    /// The server has ended, and requests wait for the next one.
    Quiesced,
}

/// The kernel's information about a device (`struct ublksrv_ctrl_dev_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The device's number: 0 for `/dev/ublkb0`.
    pub number: u32,
    /// The number of queues.
    pub queues: u16,
    /// The number of requests per queue.
    pub depth: u16,
    /// The longest read or write, in bytes.
    pub max_io_bytes: u32,
    /// The device's state.
    pub state: State,
    /// The process id of the server.
    pub server_pid: i32,
    /// The device's features.
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
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether the device is rotational.
    pub rotational: bool,
    /// Whether completed writes are not durable until a flush.
    pub write_cache: bool,
    /// The size, in sectors of 512 bytes.
    pub sectors: u64,
    /// The binary logarithm of the logical block size in bytes: 9 to 12.
    pub logical_block_shift: u8,
    /// The binary logarithm of the physical block size in bytes.
    pub physical_block_shift: u8,
    /// The longest read or write, in sectors.
    pub max_sectors: u32,
    /// The longest discard, in sectors; 0 if the device does not support discards.
    pub max_discard_sectors: u32,
    /// The longest write of zeroes, in sectors.
    pub max_write_zeroes_sectors: u32,
}

/// The size of the header with the basic parameters and those of discards.
const PARAMETER_BYTES: usize = 60;

impl Parameters {
    fn to_bytes(self) -> [u8; PARAMETER_BYTES] {
        const BASIC_AND_DISCARD: u32 = 0b11;
        // A device with a volatile cache supports FUA too.
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

    /// Returns the size in sectors from a device's parameters.
    fn sectors_of(bytes: &[u8; BUFFER_BYTES]) -> u64 {
        u64::from_ne_bytes(field(bytes, 24))
    }
}

/// The number of a command, which includes the direction of its buffer (`UBLK_U_CMD_*`).
#[derive(Clone, Copy)]
struct Code(u32);

/// The size of `struct ublksrv_ctrl_cmd`.
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

/// The size of a buffer for the data of any command, in newer kernels too; the parameters are the
/// longest.
const BUFFER_BYTES: usize = 256;

fn field<const N: usize>(bytes: &[u8; BUFFER_BYTES], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

/// Controls the ublk devices of this machine.
pub struct Control {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    file: File,
    /// The buffer that the kernel reads or fills during a command.
    buffer: Box<[u8; BUFFER_BYTES]>,
}

impl Control {
    /// Opens the control device.
    ///
    /// # Errors
    /// Fails if the kernel has no ublk or no io_uring, or does not permit it; the message says what
    /// provides it.
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

    /// Returns the features of the kernel's ublk.
    ///
    /// # Errors
    /// Fails if the kernel is older than this command (Linux 6.5).
    pub fn features(&mut self) -> io::Result<Features> {
        self.command(Code::GET_FEATURES, u32::MAX, &[], 8, 0)?;
        Ok(Features(u64::from_ne_bytes(field(&self.buffer, 0))))
    }

    /// Returns the information about a device; `None` if there is no such device.
    ///
    /// # Errors
    /// Fails if the kernel refuses the command.
    pub fn info(&mut self, number: u32) -> io::Result<Option<DeviceInfo>> {
        match self.command(Code::GET_INFO, number, &[], INFO_BYTES, 0) {
            Ok(()) => Ok(Some(DeviceInfo::from_bytes(&self.buffer))),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Adds a device; the number `u32::MAX` stands for the lowest free one.
    ///
    /// # Errors
    /// Fails if the kernel refuses the command.
    pub fn add(&mut self, info: DeviceInfo) -> io::Result<DeviceInfo> {
        self.command(Code::ADD, info.number, &info.to_bytes(), INFO_BYTES, 0)?;
        Ok(DeviceInfo::from_bytes(&self.buffer))
    }

    /// Sets the parameters of a device that is not started.
    ///
    /// # Errors
    /// Fails if the kernel refuses the command.
    pub fn set_parameters(&mut self, number: u32, parameters: Parameters) -> io::Result<()> {
        let bytes = parameters.to_bytes();
        // The kernel reads the size of its own structure, which ours is the beginning of.
        self.command(Code::SET_PARAMETERS, number, &bytes, BUFFER_BYTES, 0)
    }

    /// Returns the size of a device in sectors.
    ///
    /// # Errors
    /// Fails if the kernel refuses the command.
    pub fn sectors(&mut self, number: u32) -> io::Result<u64> {
        let room = (BUFFER_BYTES as u32).to_ne_bytes();
        self.command(Code::GET_PARAMETERS, number, &room, BUFFER_BYTES, 0)?;
        Ok(Parameters::sectors_of(&self.buffer))
    }

    /// Makes the block device. This process must wait for the requests of all queues by then.
    ///
    /// # Errors
    /// Fails if the kernel refuses the command.
    pub fn start(&mut self, number: u32) -> io::Result<()> {
        let pid = u64::from(std::process::id());
        self.command(Code::START, number, &[], 0, pid)
    }

    /// Removes the block device; requests in flight are completed first.
    ///
    /// # Errors
    /// Fails if the kernel refuses the command.
    pub fn stop(&mut self, number: u32) -> io::Result<()> {
        self.command(Code::STOP, number, &[], 0, 0)
    }

    /// Deletes a device once its character device is closed.
    ///
    /// # Errors
    /// Fails if the kernel refuses the command.
    pub fn delete(&mut self, number: u32) -> io::Result<()> {
        self.command(Code::DELETE, number, &[], 0, 0)
    }

    /// Lets this process take over the queues of a quiesced device.
    ///
    /// # Errors
    /// Fails with `EBUSY` while the former server is still exiting.
    pub fn start_recovery(&mut self, number: u32) -> io::Result<()> {
        self.command(Code::START_RECOVERY, number, &[], 0, 0)
    }

    /// Resumes the requests. This process must wait for those of all queues by then.
    ///
    /// # Errors
    /// Fails if the kernel refuses the command.
    pub fn end_recovery(&mut self, number: u32) -> io::Result<()> {
        let pid = u64::from(std::process::id());
        self.command(Code::END_RECOVERY, number, &[], 0, pid)
    }

    /// Executes a command. `given` is copied into the buffer, whose first `len` bytes the kernel
    /// may access.
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
        // The command does not refer to a queue.
        command[4..6].copy_from_slice(&u16::MAX.to_ne_bytes());
        command[6..8].copy_from_slice(&(len as u16).to_ne_bytes());
        if len > 0 {
            let address = self.buffer.as_mut_ptr() as u64;
            command[8..16].copy_from_slice(&address.to_ne_bytes());
        }
        command[16..24].copy_from_slice(&data.to_ne_bytes());
        let file = types::Fd(self.file.as_raw_fd());
        let entry = opcode::UringCmd80::new(file, code.0).cmd(command).build();
        // SAFETY: the entry points to the buffer, whose `len` bytes exist. The buffer is not
        // accessed until the command has completed below, and is leaked if its completion is not
        // seen. `self` holds the file.
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
