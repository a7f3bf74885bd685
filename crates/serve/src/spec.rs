//! Exports and servers as users describe them: on the command line, or in a
//! TOML file.

use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use blklab_description::{ReadError, Table, array, flag, keys, text, whole};
use blklab_device::{DriveSpec, Faults, registry};
use blklab_elevator::{SchedulerChoice, Setting};
use blklab_workload::cgroup::CgroupConfig;

use crate::backend::{self, BackendOptions};
use crate::config::{ExportConfig, Limits, ServerConfig};
use crate::net::{Listen, TlsMode, TlsSettings, tls_needed};
use crate::ublk::UblkNumber;
use crate::{parse_size, tcmu};

/// Requests that a back end gets at once by default.
const DEFAULT_DEPTH: u32 = 256;
/// The deepest queue: tags are numbered in 16 bits by some schedulers.
const DEPTH: RangeInclusive<u32> = 1..=4096;
/// Threads of an export.
const THREADS: RangeInclusive<usize> = 1..=64;
/// Times for a handshake, in seconds: at most a year.
const HANDSHAKE_S: RangeInclusive<u64> = 1..=365 * 24 * 3600;
/// Times to poll, in microseconds: at most a second.
const BUSY_POLL_US: RangeInclusive<u64> = 0..=1_000_000;
const TIME_DILATION: RangeInclusive<u64> = 1..=100;

keys! {
    /// One export.
    #[derive(Clone, Debug, Default)]
    pub struct ExportSpec(table) {
        /// The name clients ask for.
        pub name: String = text().or(String::new());
        /// A line for people.
        pub description: String = text().or(String::new());
        /// The back end: the name of its kind and the value. More than one is a
        /// mistake.
        pub backends: Vec<(&'static str, OsString)> => backends(table)?;
        /// How the file is read and written.
        pub engine: Option<String> = text().optional();
        /// Past the page cache.
        pub direct: bool = flag().or(false);
        /// Threads that read and write the file, or connections to the other server.
        pub backend_threads: Option<usize> as "backend-threads" = whole(0..=usize::MAX).optional();
        /// Threads that serve NBD clients, to which connections go in turn.
        pub threads: Option<usize> = whole(THREADS).optional();
        /// For how long a request waits for another server that went away, in
        /// seconds.
        pub reconnect: Option<u64> = whole(0..=u64::MAX).optional();
        /// Refuse writes.
        pub read_only: bool as "read-only" = flag().or(false);
        /// A Unix socket for virtual machines: vhost-user-blk.
        pub vhost_user: Option<PathBuf> as "vhost-user" = text().map(PathBuf::from).optional();
        /// A disk of this machine's kernel: the number of its ublk device, or `auto`.
        pub ublk: Option<String> = text().optional();
        /// A SCSI disk of this machine's kernel: its name among the kernel's targets.
        pub tcmu: Option<String> = text().optional();
        /// The scheduler.
        pub scheduler: Option<String> = text().optional();
        /// Its tunables: `NAME=VALUE`, or `SCHEDULER.NAME=VALUE`.
        pub set: Vec<String> = array(text(), TEXTS).or_derived(Vec::new(), "");
        /// `queue/nr_requests`.
        pub nr_requests: Option<u32> as "nr-requests" = whole(0..=u32::MAX).optional();
        /// Requests that the back end gets at once.
        pub depth: Option<u32> = whole(DEPTH).optional();
        /// The drive that it is as slow as.
        pub drive: Option<String> = text().optional();
        /// Its faults, as `blklab compare --faults` takes them.
        pub faults: Option<String> = text().optional();
        /// Whether its power can be cut: `blklab set --control PATH power cut`.
        pub power_cuts: bool as "power-cuts" = flag().or(false);
        /// A file of control groups: clients that ask for NAME@GROUP are in them.
        pub cgroup_file: Option<PathBuf> as "cgroup-file" = text().map(PathBuf::from).optional();
        /// Decides what the drive leaves to chance.
        pub seed: Option<u64> = whole(0..=u64::MAX).optional();
    }
}

/// What keys with several texts take.
const TEXTS: &str = "an array of texts in \"quotes\"";

fn backends(table: &Table<'_>) -> Result<Vec<(&'static str, OsString)>, ReadError> {
    let mut backends = Vec::new();
    for kind in backend::all() {
        let value = table.key(kind.name, kind.help, text().optional())?;
        backends.extend(value.map(|value| (kind.name, OsString::from(value))));
    }
    Ok(backends)
}

keys! {
    /// A server.
    #[derive(Clone, Debug, Default)]
    pub struct ServerSpec(table) {
        /// Unix sockets.
        pub socket: Vec<PathBuf> = array(text().map(PathBuf::from), TEXTS).or_derived(Vec::new(), "");
        /// TCP addresses with ports.
        pub listen: Vec<String> = array(text(), TEXTS).or_derived(Vec::new(), "");
        /// Serve addresses that others can reach without TLS.
        pub insecure_no_tls: bool as "insecure-no-tls" = flag().or(false);
        /// The folder with ca-cert.pem, server-cert.pem and server-key.pem.
        pub tls_certificates: Option<PathBuf> as "tls-certificates" =
            text().map(PathBuf::from).optional();
        /// Clients must show a certificate of ca-cert.pem.
        pub tls_verify_peer: bool as "tls-verify-peer" = flag().or(false);
        /// `off`, `on` or `require`.
        pub tls: Option<String> = text().optional();
        /// Listen on the sockets that systemd passed.
        pub activated: bool => false;
        /// Serve virtual machines' memory that is not sealed: one that shrinks it ends
        /// the server.
        pub insecure_unsealed_memory: bool as "insecure-unsealed-memory" = flag().or(false);
        /// Limits on clients.
        pub limits: LimitsSpec =>
            table.read_if_any("limits", LimitsSpec::read)?.unwrap_or_default();
        /// How long to poll for more requests before going to sleep, in microseconds.
        pub busy_poll_us: Option<u64> as "busy-poll-us" = whole(BUSY_POLL_US).optional();
        /// How many times slower than the clock time passes for the exports: for clients
        /// whose own clock is as much slower.
        pub time_dilation: Option<u64> as "time-dilation" = whole(TIME_DILATION).optional();
        /// The socket of `blklab set` and `blklab get`.
        pub control: Option<PathBuf> = text().map(PathBuf::from).optional();
        /// The folder in which attributes are shown as files.
        pub sysfs: Option<PathBuf> = text().map(PathBuf::from).optional();
        /// Where metrics are served.
        pub metrics: Option<String> = text().optional();
        /// Gets the server's process id.
        pub pid_file: Option<PathBuf> as "pid-file" = text().map(PathBuf::from).optional();
        /// The exports; the first is the default.
        pub export: Vec<ExportSpec> => table.read_each("export", ExportSpec::read)?;
    }
}

keys! {
    /// Limits on clients.
    #[derive(Clone, Debug, Default)]
    pub struct LimitsSpec(table) {
        /// Connections at once.
        pub connections: Option<usize> = whole(0..=usize::MAX).optional();
        /// Longest read or write.
        pub request: Option<String> = text().optional();
        /// Data that one connection may have under way.
        pub in_flight: Option<String> as "in-flight" = text().optional();
        /// Requests that one connection may have under way.
        pub in_flight_requests: Option<u32> as "in-flight-requests" =
            whole(0..=u32::MAX).optional();
        /// Seconds a client may take to choose an export.
        pub handshake_seconds: Option<u64> as "handshake-seconds" =
            whole(HANDSHAKE_S).optional();
    }
}

impl ServerSpec {
    /// Reads a server's file.
    ///
    /// # Errors
    /// Where it cannot be read, or says what is not understood; the message has
    /// file and line.
    pub fn load(path: &Path) -> Result<ServerSpec, String> {
        let name = path.display();
        let text = blklab_description::read_text(path).map_err(|e| format!("{name}: {e}"))?;
        ServerSpec::parse(&name.to_string(), &text)
    }

    /// The same, from its text.
    ///
    /// # Errors
    /// As [`ServerSpec::load`].
    pub fn parse(name: &str, text: &str) -> Result<ServerSpec, String> {
        let read = blklab_description::read(name, text, ServerSpec::read);
        read.map_err(|error| error.to_string())
    }

    /// All keys as a page of Markdown.
    pub fn reference() -> String {
        let text = "[limits]\n[[export]]\n";
        let read = blklab_description::read_with_reference("every", text, ServerSpec::read);
        let (_, reference) = read.expect("all keys may be left out");
        format!(
            "# Server files\n\nEvery key of the file that `blklab serve` reads.\n\n{}",
            reference.markdown()
        )
    }

    /// Checks everything that can be checked before anything is opened.
    ///
    /// # Errors
    /// At the first thing that will not do; the message says what would.
    pub fn resolve(&self) -> Result<ServerConfig, String> {
        if self.export.is_empty() {
            return Err("nothing to serve; give --memory SIZE, --file PATH or --nbd URI, or a TOML file with an [[export]]".to_string());
        }
        let tls = self.tls()?;
        let mut listen: Vec<Listen> = self.socket.iter().cloned().map(Listen::Unix).collect();
        for address in &self.listen {
            listen.push(tcp(address, &tls)?);
        }
        let is_elsewhere =
            |e: &ExportSpec| e.vhost_user.is_some() || e.ublk.is_some() || e.tcmu.is_some();
        let has_others = self.export.iter().any(is_elsewhere);
        if listen.is_empty() && !self.activated && !has_others {
            return Err(
                "nowhere to listen; give --socket PATH, --listen ADDR:PORT, --vhost-user PATH, --ublk or --tcmu NAME"
                    .to_string(),
            );
        }
        let mut exports: Vec<ExportConfig> = Vec::new();
        for spec in &self.export {
            let export = spec.resolve().map_err(|e| match spec.name.as_str() {
                "" => e,
                name => format!("the export {name:?}: {e}"),
            })?;
            exports.push(export);
        }
        check_names(&exports)?;
        let metrics = match &self.metrics {
            Some(address) => Some(address.parse().map_err(|_| {
                format!("metrics {address:?} is no address; write such as 127.0.0.1:9090")
            })?),
            None => None,
        };
        Ok(ServerConfig {
            listen,
            activated: self.activated,
            exports,
            tls,
            insecure_unsealed_memory: self.insecure_unsealed_memory,
            limits: self.limits.resolve()?,
            busy_poll_us: in_range("busy-poll-us", self.busy_poll_us.unwrap_or(0), BUSY_POLL_US)?,
            time_dilation: in_range(
                "time-dilation",
                self.time_dilation.unwrap_or(1),
                TIME_DILATION,
            )? as u32,
            control: self.control.clone(),
            sysfs: self.sysfs.clone(),
            metrics,
        })
    }

    fn tls(&self) -> Result<TlsSettings, String> {
        let mode = match self.tls.as_deref() {
            None | Some("on") => TlsMode::On,
            Some("off") => TlsMode::Off,
            Some("require") => TlsMode::Require,
            Some(other) => return Err(format!("tls {other}; it may be off, on or require")),
        };
        let has_certificates = self.tls_certificates.is_some();
        if mode == TlsMode::Require && !has_certificates {
            return Err("tls require needs certificates; give --tls-certificates DIR".to_string());
        }
        if self.tls_verify_peer && (!has_certificates || mode == TlsMode::Off) {
            return Err(
                "tls-verify-peer needs TLS; give --tls-certificates DIR, and not tls off"
                    .to_string(),
            );
        }
        Ok(TlsSettings {
            certificates: self.tls_certificates.clone(),
            verify_peer: self.tls_verify_peer,
            mode,
            insecure: self.insecure_no_tls,
        })
    }
}

/// No client is to find two exports under one name.
fn check_names(exports: &[ExportConfig]) -> Result<(), String> {
    let names = exports.iter().flat_map(ExportConfig::names);
    let mut names: Vec<String> = names.map(|(_, name)| name).collect();
    names.sort_unstable();
    let twice = names.windows(2).find(|two| two[0] == two[1]);
    match twice.map(|two| two[0].as_str()) {
        None => {}
        Some("") => return Err("two exports have no name; give each its own".to_string()),
        Some(name) => return Err(format!("two exports are called {name:?}")),
    }
    let is_long = |name: &&String| name.len() > blklab_nbd::wire::MAX_STRING_BYTES;
    match names.iter().find(is_long) {
        None => Ok(()),
        Some(name) => Err(format!("the name {name:?} is longer than 4096 bytes")),
    }
}

fn in_range(key: &str, value: u64, range: RangeInclusive<u64>) -> Result<u64, String> {
    match range.contains(&value) {
        true => Ok(value),
        false => Err(format!(
            "{key} {value}; it may be {} to {}",
            range.start(),
            range.end()
        )),
    }
}

fn tcp(address: &str, tls: &TlsSettings) -> Result<Listen, String> {
    let parsed: std::net::SocketAddr = address.parse().map_err(|_| {
        format!("{address:?} is no address with a port; write such as 127.0.0.1:10809")
    })?;
    let has_tls = tls.certificates.is_some() && tls.mode != TlsMode::Off;
    if !parsed.ip().is_loopback() && !tls.insecure && !has_tls {
        return Err(tls_needed(address));
    }
    Ok(Listen::Tcp(parsed))
}

impl LimitsSpec {
    fn resolve(&self) -> Result<Limits, String> {
        let defaults = Limits::default();
        let size = |text: &Option<String>, default: u64| match text {
            Some(text) => parse_size(text),
            None => Ok(default),
        };
        let request = size(&self.request, u64::from(defaults.request_bytes))?;
        // The document has every server take 64 KiB in one piece.
        let request_bytes = u32::try_from(request)
            .ok()
            .filter(|bytes| (64 << 10..=64 << 20).contains(bytes))
            .ok_or_else(|| {
                format!("the longest request is {request} bytes; it may be 64K to 64M")
            })?;
        let connections = self.connections.unwrap_or(defaults.connections);
        if connections == 0 {
            return Err("no connection is allowed; allow at least one".to_string());
        }
        Ok(Limits {
            connections,
            request_bytes,
            in_flight_bytes: size(&self.in_flight, defaults.in_flight_bytes)?,
            in_flight_requests: self
                .in_flight_requests
                .unwrap_or(defaults.in_flight_requests)
                .max(1),
            handshake_seconds: in_range(
                "handshake-seconds",
                self.handshake_seconds.unwrap_or(defaults.handshake_seconds),
                HANDSHAKE_S,
            )?,
        })
    }
}

impl ExportSpec {
    fn resolve(&self) -> Result<ExportConfig, String> {
        let depth = self.depth.unwrap_or(DEFAULT_DEPTH);
        in_range("depth", depth.into(), 1..=u64::from(*DEPTH.end()))?;
        let threads = self.threads.unwrap_or(1);
        let range = *THREADS.start() as u64..=*THREADS.end() as u64;
        in_range("threads", threads as u64, range)?;
        if self.drive.is_some() && self.depth.is_some() {
            return Err("the drive decides its depth; leave either out".to_string());
        }
        let drive = self.drive(depth)?;
        let cgroups = match &self.cgroup_file {
            Some(file) => Some(CgroupConfig::read(file).map_err(|error| error.to_string())?),
            None => None,
        };
        Ok(ExportConfig {
            name: self.name.clone(),
            description: self.description.clone(),
            backend: self.backend()?,
            read_only: self.read_only,
            threads,
            vhost_user: self.vhost_user.clone(),
            ublk: self.ublk.as_deref().map(UblkNumber::parse).transpose()?,
            tcmu: self.tcmu()?,
            scheduler: self.scheduler()?,
            depth,
            drive,
            cgroups,
            seed: self.seed.unwrap_or(1),
            power_cuts: self.power_cuts,
        })
    }

    /// The drive that it behaves as, with its name.
    fn drive(&self, depth: u32) -> Result<Option<(String, DriveSpec)>, String> {
        let drive = match &self.drive {
            Some(name) => Some((name.clone(), registry::load(name)?.0)),
            None => None,
        };
        let Some(faults) = &self.faults else {
            return Ok(drive);
        };
        let faults = Faults::parse(faults).map_err(|problem| format!("faults: {problem}"))?;
        if drive.is_none() && faults.is_slow() {
            return Err(
                "faults: slow multiplies the times of a drive, and there is none; give a drive, or \
                 leave slow out"
                    .to_string(),
            );
        }
        let (name, drive) = drive.unwrap_or_else(|| immediate(depth));
        Ok(Some((name, drive.with_faults(faults))))
    }

    fn tcmu(&self) -> Result<Option<String>, String> {
        let checked = self.tcmu.as_deref().map_or(Ok(()), tcmu::check_name);
        checked.map(|()| self.tcmu.clone())
    }

    fn backend(&self) -> Result<backend::BackendConfig, String> {
        let choices = self.backends.iter();
        let choices: Vec<(&str, &OsStr)> = choices.map(|(kind, v)| (*kind, &**v)).collect();
        let options = BackendOptions {
            engine: self.engine.clone(),
            direct: self.direct,
            threads: self.backend_threads,
            reconnect_s: self.reconnect,
        };
        backend::configure(&choices, &options)
    }

    fn scheduler(&self) -> Result<SchedulerChoice, String> {
        let name = self.scheduler.as_deref().unwrap_or("none");
        let mut choice = SchedulerChoice::named(name).map_err(|e| e.to_string())?;
        choice.nr_requests = self.nr_requests;
        for set in &self.set {
            let setting = Setting::parse(set).ok_or_else(|| {
                format!("set {set}: not of the form tunable=value, such as fifo_batch=1")
            })?;
            if let Some(other) = setting.scheduler.filter(|other| *other != name) {
                return Err(format!("set {set}: the scheduler is {name}, not {other}"));
            }
            choice
                .set(setting.tunable, setting.value)
                .map_err(|e| format!("set {set}: {e}"))?;
        }
        Ok(choice)
    }
}

/// A drive that takes no time, for an export with faults and without a drive, and its name.
fn immediate(depth: u32) -> (String, DriveSpec) {
    let text = format!(
        "description = \"no time at all\"\n\
         interface = \"null\"\n\
         model = \"null\"\n\
         [host]\n\
         capacity_bytes = {}\n\
         queue_depth = {depth}\n\
         max_transfer_kb = 1280 # the kernel's default limit (BLK_DEF_MAX_SECTORS_CAP)\n\
         max_segments = 65535\n\
         fua = true\n\
         discard = true\n\
         [timing]\n\
         read_ns = 0\n\
         write_ns = 0\n\
         flush_ns = 0\n\
         parallelism = {depth}\n",
        backend::MAX_SIZE_BYTES
    );
    let name = "immediate".to_string();
    let drive = DriveSpec::parse(&name, &text).expect("tests read it");
    (name, drive)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn resolve(text: &str) -> Result<ServerConfig, String> {
        ServerSpec::parse("server.toml", text)?.resolve()
    }

    #[test]
    fn several_exports_in_one_file() {
        let config = resolve(
            r#"
            socket = ["/run/blklab.sock"]
            listen = ["127.0.0.1:10809"]
            limits = { connections = 8, request = "1M" }
            [[export]]
            name = "scratch"
            memory = "1G"
            scheduler = "mq-deadline"
            set = ["fifo_batch=1"]
            [[export]]
            name = "slow"
            memory = "64M"
            drive = "mx100-256"
            "#,
        )
        .expect("valid");
        assert_eq!(config.listen.len(), 2);
        assert_eq!(config.limits.connections, 8);
        assert_eq!(config.limits.request_bytes, 1 << 20);
        assert_eq!(config.exports[0].scheduler.kind.name, "mq-deadline");
        assert!(config.exports[1].drive.is_some());
    }

    #[test]
    fn mistakes_say_what_would_be_right() {
        let socket = "socket = ['/run/s']\n";
        let cases = [
            ("", "nothing to serve"),
            ("[[export]]\nmemory = '1G'\n", "nowhere to listen"),
            (
                "[[export]]\nmemry = '1G'\n",
                "server.toml:2: `export.memory`: found `memry`; write `memory = ...`",
            ),
            (
                "[[export]]\nmemory = '1G'\ndepth = 0\n",
                "server.toml:4: `export.depth`: found 0, legal is a whole number from 1 to 4096",
            ),
            (
                "export = 5\n",
                "server.toml:2: `export`: found 5, legal is tables, [[export]]",
            ),
            ("[[export]]\nmemory = '1G'\ndirect = true\n", "for files"),
            ("[[export]]\nfile = '/x'\nmemory = '1G'\n", "choose one"),
            ("[[export]]\nmemory = '1Q'\n", "no size"),
            (
                "[[export]]\nfile = '/x'\nengine = 'libaio'\nbackend-threads = 2\n",
                "no threads of ours",
            ),
            (
                "[[export]]\nmemory = '1G'\nscheduler = 'mq-deadlin'\n",
                "mq-deadline",
            ),
            ("[[export]]\nmemory = '1G'\ndrive = 'floppy'\n", "mx100-256"),
            (
                "listen = ['0.0.0.0:1']\n[[export]]\nmemory = '1G'\n",
                "--tls-certificates",
            ),
            (
                "tls = 'always'\n[[export]]\nmemory = '1G'\n",
                "off, on or require",
            ),
            (
                "tls = 'require'\n[[export]]\nmemory = '1G'\n",
                "needs certificates",
            ),
            ("[[export]]\nmemory = '1G'\nreconnect = 1\n", "is for nbd"),
            (
                "limits = { request = '1K' }\n[[export]]\nmemory='1G'\n",
                "64K",
            ),
            (
                "limits = { handshake-seconds = 18446744073709551615 }\n[[export]]\nmemory='1G'\n",
                "handshake-seconds",
            ),
            (
                "limits = { handshake-seconds = 0 }\n[[export]]\nmemory='1G'\n",
                "1 to 31536000",
            ),
            (
                "busy-poll-us = 18446744073709551615\n[[export]]\nmemory='1G'\n",
                "`busy-poll-us`: found 18446744073709551615, legal is a whole number from 0 to 1000000",
            ),
            (
                "[[export]]\nnbd='nbd://h/'\nreconnect = 18446744073709551615\n",
                "reconnect",
            ),
            ("[[export]]\nmemory = '1G'\nublk = 'first'\n", "or auto"),
            (
                "[[export]]\nmemory = '1G'\ntcmu = 'a/b'\n",
                "such as scratch",
            ),
            (
                "[[export]]\nmemory = '1G'\nthreads = 0\n",
                "`export.threads`: found 0, legal is a whole number from 1 to 64",
            ),
            (
                "[[export]]\nmemory='1G'\n[[export]]\nmemory='1G'\n",
                "two exports",
            ),
        ];
        for (text, expected) in cases {
            let text = match expected {
                "nowhere to listen" => text.to_string(),
                _ if expected.starts_with("server.toml:2: `export.memory`") => text.to_string(),
                _ => format!("{socket}{text}"),
            };
            let error = resolve(&text)
                .err()
                .unwrap_or_else(|| panic!("{text} is valid"));
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    const KEYS: [&str; 22] = [
        "busy-poll-us",
        "tls",
        "listen",
        "metrics",
        "limits.connections",
        "limits.request",
        "limits.in-flight",
        "limits.in-flight-requests",
        "limits.handshake-seconds",
        "export.memory",
        "export.null",
        "export.nbd",
        "export.engine",
        "export.backend-threads",
        "export.threads",
        "export.reconnect",
        "export.scheduler",
        "export.set",
        "export.nr-requests",
        "export.depth",
        "export.seed",
        "export.power-cuts",
    ];

    fn values() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<i64>().prop_map(|n| n.to_string()),
            (0..100u32).prop_map(|n| n.to_string()),
            "[0-9]{1,20}[kKMGTQ]?".prop_map(|text| format!("'{text}'")),
            "[a-z_.:=0-9/-]{0,16}".prop_map(|text| format!("'{text}'")),
            "[a-z_.:=0-9/-]{0,16}".prop_map(|text| format!("['{text}']")),
            Just("'mq-deadline'".to_string()),
            Just("['fifo_batch=0']".to_string()),
        ]
    }

    proptest! {
        #[test]
        fn no_file_makes_it_panic(
            edits in proptest::collection::vec((0..KEYS.len(), values()), 0..6),
            tail in "[a-z'\\[\\]= \n]{0,20}",
        ) {
            let mut text = String::from("socket = ['/run/s']\n");
            for (key, value) in &edits {
                let key = KEYS[*key];
                if !key.starts_with("export.") {
                    text += &format!("{key} = {value}\n");
                }
            }
            text += "[[export]]\n";
            for (key, value) in &edits {
                if let Some(key) = KEYS[*key].strip_prefix("export.") {
                    text += &format!("{key} = {value}\n");
                }
            }
            let _ = resolve(&text);
            let _ = resolve(&(text + &tail));
        }
    }
}
