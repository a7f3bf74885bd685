//! A server's configuration, checked.

use std::net::SocketAddr;
use std::path::PathBuf;

use blklab_blk::CgroupId;
use blklab_device::DriveSpec;
use blklab_elevator::SchedulerChoice;
use blklab_workload::cgroup::CgroupConfig;

use crate::backend::BackendConfig;
use crate::net::{Listen, TlsSettings};
use crate::ublk::UblkNumber;

/// One export.
#[derive(Clone)]
pub struct ExportConfig {
    /// The name clients ask for.
    pub name: String,
    /// A line for people.
    pub description: String,
    /// Where its data is.
    pub backend: BackendConfig,
    /// Writes are refused.
    pub read_only: bool,
    /// Threads that serve NBD clients, at least one.
    pub threads: usize,
    /// The socket of virtual machines' monitors.
    pub vhost_user: Option<PathBuf>,
    /// The disk of this machine's kernel that it becomes.
    pub ublk: Option<UblkNumber>,
    /// The name of the SCSI disk of this machine's kernel that it becomes.
    pub tcmu: Option<String>,
    /// Its scheduler.
    pub scheduler: SchedulerChoice,
    /// Requests that the back end gets at once, where no drive's model says.
    pub depth: u32,
    /// The drive that it is as slow as, with its name.
    pub drive: Option<(String, DriveSpec)>,
    /// Its control groups.
    pub cgroups: Option<CgroupConfig>,
    /// Decides everything that the drive's model leaves to chance.
    pub seed: u64,
    /// Whether its power can be cut.
    pub power_cuts: bool,
}

impl ExportConfig {
    /// What clients ask for, with the control group that they are in then: its name,
    /// or that and the path of a group that may have processes, as `disk@system/db`.
    pub(crate) fn names(&self) -> Vec<(CgroupId, String)> {
        let tree = self.cgroups.as_ref().map(CgroupConfig::tree);
        let tree = tree.unwrap_or_default();
        let leaves = tree.leaves();
        let in_groups = leaves.map(|(id, path)| (id, format!("{}@{path}", self.name)));
        let plain = (CgroupId::ROOT, self.name.clone());
        [plain].into_iter().chain(in_groups).collect()
    }
}

/// Limits that keep clients from taking more than their share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once.
    pub connections: usize,
    /// Bytes of the longest read or write.
    pub request_bytes: u32,
    /// Bytes of data that one connection may have under way.
    pub in_flight_bytes: u64,
    /// Requests that one connection may have under way.
    pub in_flight_requests: u32,
    /// Seconds a client may take to choose an export.
    pub handshake_seconds: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 64,
            request_bytes: 32 << 20,
            in_flight_bytes: 32 << 20,
            in_flight_requests: 1024,
            handshake_seconds: 10,
        }
    }
}

/// A server.
#[derive(Clone)]
pub struct ServerConfig {
    /// Where clients connect.
    pub listen: Vec<Listen>,
    /// Also on the sockets that systemd passed (`LISTEN_FDS`).
    pub activated: bool,
    /// The first is the one that clients get who name none.
    pub exports: Vec<ExportConfig>,
    /// Who must use TLS, and how.
    pub tls: TlsSettings,
    /// Virtual machines may share memory that may shrink.
    pub insecure_unsealed_memory: bool,
    /// Limits on clients.
    pub limits: Limits,
    /// How long to poll for more requests before going to sleep, in microseconds.
    pub busy_poll_us: u64,
    /// How many times slower than the clock time passes for the exports, at least 1: for
    /// clients whose own clock is as much slower.
    pub time_dilation: u32,
    /// The socket by which attributes are read and set.
    pub control: Option<PathBuf>,
    /// The empty folder in which attributes are shown as files.
    pub sysfs: Option<PathBuf>,
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
}
