//! Exports and servers as users describe them: on the command line, or in a
//! TOML file with the same words.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use blklab_device::registry;
use blklab_elevator::{SchedulerChoice, Setting};
use blklab_nbd::Uri;
use serde::Deserialize;

use crate::config::{Backend, ExportConfig, FileEngine, Limits, Listen, ServerConfig};
use crate::server::plain_and_public;
use crate::size::parse_size;
use crate::tls::{TlsMode, TlsSettings};

/// Requests a store gets at once, where nobody says otherwise.
const DEFAULT_DEPTH: u32 = 256;
/// The deepest queue: tags are numbered in 16 bits by some schedulers.
const MAX_DEPTH: u32 = 4096;
/// The largest memory, which takes what is written.
const MAX_MEMORY_BYTES: u64 = 1 << 50;
/// Threads of a file, where nobody says otherwise.
const DEFAULT_THREADS: usize = 8;
/// How long to wait for another server, where nobody says otherwise.
const DEFAULT_RECONNECT_SECONDS: u64 = 10;

/// The longest wait for a client or another server: clocks count no further than
/// some centuries, and nobody waits for a year.
const MAX_SECONDS: u64 = 365 * 24 * 3600;
/// A second is longer than any sleep is worth.
const MAX_BUSY_POLL_US: u64 = 1_000_000;

/// One export, in words.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct ExportSpec {
    /// The name clients ask for.
    pub name: String,
    /// A line for people.
    pub description: String,
    /// Size of a memory.
    pub memory: Option<String>,
    /// Size of a store that keeps nothing.
    pub null: Option<String>,
    /// Path of a file or block device.
    pub file: Option<PathBuf>,
    /// Another NBD server.
    pub nbd: Option<String>,
    /// How the file is read and written.
    pub engine: Option<String>,
    /// Past the page cache.
    pub direct: bool,
    /// Threads that read and write the file, or connections to the other server.
    pub threads: Option<usize>,
    /// For how long a request waits for another server that went away, in
    /// seconds.
    pub reconnect: Option<u64>,
    /// Refuse writes.
    pub read_only: bool,
    /// The scheduler.
    pub scheduler: Option<String>,
    /// Its tunables: `NAME=VALUE`, or `SCHEDULER.NAME=VALUE`.
    pub set: Vec<String>,
    /// `queue/nr_requests`.
    pub nr_requests: Option<u32>,
    /// Requests the store gets at once.
    pub depth: Option<u32>,
    /// The drive that it is to be as slow as.
    pub drive: Option<String>,
    /// Decides what the drive leaves to chance.
    pub seed: Option<u64>,
}

/// A server's file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct ServerSpec {
    /// Unix sockets.
    pub socket: Vec<PathBuf>,
    /// TCP addresses with ports.
    pub listen: Vec<String>,
    /// Serve addresses that others can reach without TLS.
    pub insecure_no_tls: bool,
    /// The folder with ca-cert.pem, server-cert.pem and server-key.pem.
    pub tls_certificates: Option<PathBuf>,
    /// Clients must show a certificate of ca-cert.pem.
    pub tls_verify_peer: bool,
    /// `off`, `on` or `require`.
    pub tls: Option<String>,
    /// Listen on the sockets that systemd passed.
    #[serde(skip)]
    pub activated: bool,
    /// Limits on clients.
    pub limits: LimitsSpec,
    /// How long to look for more work before going to sleep, in microseconds.
    pub busy_poll_us: Option<u64>,
    /// Where `blklab set` and `blklab get` come in.
    pub control: Option<PathBuf>,
    /// The folder in which attributes are shown as files.
    pub sysfs: Option<PathBuf>,
    /// Where Prometheus comes in.
    pub metrics: Option<String>,
    /// Gets the server's process id.
    pub pid_file: Option<PathBuf>,
    /// The exports; the first is the default.
    pub export: Vec<ExportSpec>,
}

/// Limits, in words.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct LimitsSpec {
    /// Connections at once.
    pub connections: Option<usize>,
    /// Longest read or write.
    pub request: Option<String>,
    /// Data that one connection may have under way.
    pub in_flight: Option<String>,
    /// Requests that one connection may have under way.
    pub in_flight_requests: Option<u32>,
    /// Seconds a client may take to choose an export.
    pub handshake_seconds: Option<u64>,
}

impl ServerSpec {
    /// Reads a server's file.
    ///
    /// # Errors
    /// Where it cannot be read, or says what is not understood; the message has
    /// file and line.
    pub fn read(path: &Path) -> Result<ServerSpec, String> {
        let name = path.display();
        let text = std::fs::read_to_string(path).map_err(|e| format!("{name}: {e}"))?;
        ServerSpec::parse(&name.to_string(), &text)
    }

    /// The same, from its text.
    ///
    /// # Errors
    /// As [`ServerSpec::read`].
    pub fn parse(name: &str, text: &str) -> Result<ServerSpec, String> {
        toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| {
                1 + text[..span.start.min(text.len())].matches('\n').count()
            });
            format!("{name}:{line}: {}", error.message())
        })
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
        if listen.is_empty() && !self.activated {
            return Err("nowhere to listen; give --socket PATH or --listen ADDR:PORT".to_string());
        }
        let mut exports: Vec<ExportConfig> = Vec::new();
        for spec in &self.export {
            let export = spec
                .resolve()
                .map_err(|e| format!("the export {:?}: {e}", spec.name))?;
            if exports.iter().any(|known| known.name == export.name) {
                return Err(match export.name.as_str() {
                    "" => "two exports have no name; give each its own".to_string(),
                    name => format!("two exports are called {name:?}"),
                });
            }
            exports.push(export);
        }
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
            limits: self.limits.resolve()?,
            busy_poll_us: in_range(
                "busy-poll-us",
                self.busy_poll_us.unwrap_or(0),
                0..=MAX_BUSY_POLL_US,
            )?,
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
        return Err(plain_and_public(address));
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
                1..=MAX_SECONDS,
            )?,
        })
    }
}

impl ExportSpec {
    fn resolve(&self) -> Result<ExportConfig, String> {
        if self.name.len() > blklab_nbd::wire::MAX_STRING_BYTES {
            return Err("the name is longer than 4096 bytes".to_string());
        }
        let depth = self.depth.unwrap_or(DEFAULT_DEPTH);
        if !(1..=MAX_DEPTH).contains(&depth) {
            return Err(format!("a depth of {depth}; it may be 1 to {MAX_DEPTH}"));
        }
        let drive = match &self.drive {
            Some(name) => Some((name.clone(), registry::load(name)?.0)),
            None => None,
        };
        if drive.is_some() && self.depth.is_some() {
            return Err("the drive decides its depth; leave either out".to_string());
        }
        Ok(ExportConfig {
            name: self.name.clone(),
            description: self.description.clone(),
            backend: self.backend()?,
            read_only: self.read_only,
            scheduler: self.scheduler()?,
            depth,
            drive,
            seed: self.seed.unwrap_or(1),
        })
    }

    fn backend(&self) -> Result<Backend, String> {
        let only_for_files = [
            (self.engine.is_some(), "engine"),
            (self.direct, "direct"),
            (self.threads.is_some(), "threads"),
        ];
        if self.reconnect.is_some() && self.nbd.is_none() {
            return Err("reconnect is for nbd".to_string());
        }
        let sized = |size: &str| {
            if let Some((_, option)) = only_for_files.iter().find(|(given, _)| *given) {
                return Err(format!("{option} is for files, not for memory or null"));
            }
            let size_bytes = parse_size(size)?;
            match size_bytes {
                1..=MAX_MEMORY_BYTES => Ok(size_bytes),
                _ => Err(format!("a size of {size}; it may be 1 byte to 1024T")),
            }
        };
        match (&self.memory, &self.null, &self.file, &self.nbd) {
            (Some(size), None, None, None) => Ok(Backend::Memory {
                size_bytes: sized(size)?,
            }),
            (None, Some(size), None, None) => Ok(Backend::Null {
                size_bytes: sized(size)?,
            }),
            (None, None, Some(path), None) => Ok(Backend::File {
                path: path.clone(),
                direct: self.direct,
                engine: self.file_engine()?,
            }),
            (None, None, None, Some(uri)) => {
                if self.engine.is_some() || self.direct {
                    return Err("engine and direct are for files".to_string());
                }
                Ok(Backend::Remote {
                    uri: Uri::parse(uri)?,
                    connections: self.threads(DEFAULT_THREADS)?,
                    reconnect_seconds: in_range(
                        "reconnect",
                        self.reconnect.unwrap_or(DEFAULT_RECONNECT_SECONDS),
                        0..=MAX_SECONDS,
                    )?,
                })
            }
            (None, None, None, None) => Err("no store; give memory, null, file or nbd".to_string()),
            _ => Err("several of memory, null, file and nbd; choose one".to_string()),
        }
    }

    fn threads(&self, default: usize) -> Result<usize, String> {
        let threads = self.threads.unwrap_or(default);
        if !(1..=1024).contains(&threads) {
            return Err(format!("{threads} threads; it may be 1 to 1024"));
        }
        Ok(threads)
    }

    /// glibc's POSIX AIO carries out the requests of one file one by one, in one
    /// thread.
    fn file_engine(&self) -> Result<FileEngine, String> {
        let name = self.engine.as_deref().unwrap_or("psync");
        match (name, self.threads) {
            ("psync", _) => self.threads(DEFAULT_THREADS).map(FileEngine::Threads),
            ("posixaio", None | Some(1)) => Ok(FileEngine::Threads(1)),
            ("posixaio", Some(_)) => {
                Err("posixaio has one thread for a file; use psync for more".to_string())
            }
            ("io_uring", None) => Ok(FileEngine::IoUring),
            ("libaio", None) => Ok(FileEngine::Libaio),
            ("io_uring" | "libaio", Some(_)) => {
                Err(format!("{name} has no threads of ours; leave threads out"))
            }
            _ => Err(format!(
                "there is no engine {name}; there are psync, posixaio, libaio and io_uring"
            )),
        }
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
            ("[[export]]\nmemry = '1G'\n", "server.toml:2"),
            ("[[export]]\nmemory = '1G'\ndirect = true\n", "for files"),
            ("[[export]]\nfile = '/x'\nmemory = '1G'\n", "choose one"),
            ("[[export]]\nmemory = '1Q'\n", "no size"),
            (
                "[[export]]\nfile = '/x'\nengine = 'libaio'\nthreads = 2\n",
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
                "busy-poll-us 18446744073709551615; it may be 0 to 1000000",
            ),
            (
                "[[export]]\nnbd='nbd://h/'\nreconnect = 18446744073709551615\n",
                "reconnect",
            ),
            (
                "[[export]]\nmemory='1G'\n[[export]]\nmemory='1G'\n",
                "two exports",
            ),
        ];
        for (text, expected) in cases {
            let text = match expected {
                "nowhere to listen" | "server.toml:2" => text.to_string(),
                _ => format!("{socket}{text}"),
            };
            let error = resolve(&text)
                .err()
                .unwrap_or_else(|| panic!("{text} is valid"));
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    const KEYS: [&str; 20] = [
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
        "export.threads",
        "export.reconnect",
        "export.scheduler",
        "export.set",
        "export.nr-requests",
        "export.depth",
        "export.seed",
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
