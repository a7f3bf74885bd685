//! virtio-blk over split virtqueues by the Virtual I/O Device specification (OASIS, version
//! 1.2): both sides of a ring, requests, the configuration space, and vhost-user's record of
//! requests in flight.
//!
//! The other side may change shared memory at any time: each field is copied once,
//! and the copy is checked.

mod config;
mod driver;
mod in_flight;
mod request;
mod ring;

use std::fs::File;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};

pub use config::{Config, Features, MAX_SEGMENTS};
pub use driver::{DriverRing, Ended, RingLayout};
pub use in_flight::{InFlight, InFlightArea};
pub use request::{HEADER_BYTES, ID_BYTES, Limits, Operation, Request, Status, encode_header};
pub use ring::{Chain, Ring, RingAddresses, RingFault};
pub use vm_memory;

/// A guest's memory as mapped by a device.
pub type Memory = vm_memory::GuestMemoryMmap<()>;

/// Memory to share with another process, which can neither grow nor shrink it.
///
/// # Errors
/// If the kernel has no memory.
pub fn shared_file(name: &str, size_bytes: u64) -> std::io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(memfd_create(name, flags)?);
    file.set_len(size_bytes)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// Whether a file has this many bytes and can never have fewer. Reading mapped memory of a
/// file that was shortened kills the process (`SIGBUS`).
pub fn cannot_shrink_below(file: &File, size_bytes: u64) -> bool {
    let is_sealed = fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
    is_sealed && file.metadata().is_ok_and(|found| found.len() >= size_bytes)
}
