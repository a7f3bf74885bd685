//! The block layer under the real clock: block devices over NBD, vhost-user, ublk and TCMU.
//!
//! - `backend`: where an export's data is, a file a kind.
//! - `net`: sockets, TLS and the handshake, up to the choice of an export.
//! - `export`: one export's thread, with its connections and its block layer.
//! - `control`: attributes, counters, traces and metrics of a running server.
//! - `lock`: who has a file or device.
//! - `mount`: an image's files in a folder, over FUSE.
//! - `vhost_user`: disks of virtual machines, in memory that they share.
//! - `ublk`: disks of this machine's kernel.
//! - `tcmu`: SCSI disks of this machine's kernel.
//! - `client`: the other side of the protocol: a load, and a drive to probe.
//!
//! Each export has one request queue, at which its threads take turns, so that
//! its scheduler sees the requests of all connections together, as a kernel's sees
//! those of all processes.

mod backend;
mod client;
mod config;
mod control;
mod export;
mod lock;
mod mount;
mod net;
mod server;
mod spec;
mod tcmu;
mod tree;
mod ublk;
mod vhost_user;

use std::time::{Duration, Instant};

use blklab_blk::Nanos;

pub use backend::{BackendConfig, BackendType, all as backends, memory, null};
pub use client::{
    Kept, LoadConfig, LoadReport, LoadTarget, Machine, MachineQueue, MachineSetup, ProbeTarget,
    load,
};
pub use config::{ExportConfig, Limits, ServerConfig};
pub use control::{Rate, RecordFormat, Sample, ask, record};
pub use lock::{lock, open_to_change};
pub use mount::{ImageMount, SysfsMount, Unmounter};
pub use net::{Listen, TlsMode, TlsSettings};
pub use server::Server;
pub use spec::{ExportSpec, LimitsSpec, ServerSpec};
pub use ublk::UblkNumber;

/// A clock: nanoseconds since it was started.
#[derive(Clone, Copy, Debug)]
struct Clock {
    start: Instant,
    /// How many real nanoseconds each of its nanoseconds takes.
    dilation: u32,
}

impl Clock {
    /// The real clock.
    fn start() -> Clock {
        Clock::dilated(1)
    }

    /// A clock that is slower than the real one, as those who use the export have it
    /// (Gupta et al.: To Infinity and Beyond, Time-Warped Network Emulation, NSDI 2006).
    fn dilated(dilation: u32) -> Clock {
        Clock {
            start: Instant::now(),
            dilation,
        }
    }

    #[inline]
    fn now(&self) -> Nanos {
        Nanos(self.start.elapsed().as_nanos() as u64 / u64::from(self.dilation))
    }

    /// The real time from one of its times to another.
    #[inline]
    fn real_time(&self, from: Nanos, to: Nanos) -> Nanos {
        Nanos(
            to.saturating_sub(from)
                .0
                .saturating_mul(u64::from(self.dilation)),
        )
    }
}

/// Has sleeps of this thread end on time: the kernel rounds them up by 50 us otherwise.
fn sleep_precisely() {
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

/// Looks for something until it is found or the time is over.
fn patiently<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    const PAUSE: Duration = Duration::from_millis(10);
    let end = Instant::now() + patience;
    loop {
        let found = look();
        if found.is_some() || Instant::now() >= end {
            return found;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Bytes of `4096`, `64K`, `512MiB`, `1G`, `2T`, `3P` or `1E`: powers of 1024.
///
/// # Errors
/// Where the text is no size; the message says what would be one.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let fault = || format!("{text:?} is no size; write such as 4096, 64K, 512M, 1G or 2T");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        "p" | "pb" | "pib" => 50,
        "e" | "eb" | "eib" => 60,
        _ => return Err(fault()),
    };
    let number: u64 = digits.parse().map_err(|_| fault())?;
    let bytes = number.checked_mul(1 << shift);
    bytes.ok_or_else(|| format!("{text:?} is more than 16 EiB, the most that can be addressed"))
}

#[cfg(test)]
mod tests {
    use super::parse_size;

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("64k"), Ok(65536));
        assert_eq!(parse_size("1GiB"), Ok(1 << 30));
        assert_eq!(parse_size("999P"), Ok(999 << 50));
        for wrong in ["", "G", "1.5G", "1X", "-1", "99999999T"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
