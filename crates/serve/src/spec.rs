//! Exports and servers as users describe them: on the command line, or in a
//! TOML file with the same words.

use std::borrow::BorrowMut;
use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use blklab_device::registry;
use blklab_elevator::{SchedulerChoice, Setting};
use serde::Deserialize;
use toml::de::{DeTable, DeValue, Deserializer, ValueDeserializer};

use crate::backend::{self, BackendOptions};
use crate::config::{ExportConfig, Limits, ServerConfig};
use crate::net::{Listen, TlsMode, TlsSettings, tls_needed};
use crate::parse_size;

/// Requests that a back end gets at once, where nobody says otherwise.
const DEFAULT_DEPTH: u32 = 256;
/// The deepest queue: tags are numbered in 16 bits by some schedulers.
const MAX_DEPTH: u32 = 4096;
/// The longest time for a handshake: a year.
const MAX_SECONDS: u64 = 365 * 24 * 3600;
/// The longest time to poll: a second.
const MAX_BUSY_POLL_US: u64 = 1_000_000;

/// One export, in words.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct ExportSpec {
    /// The name clients ask for.
    pub name: String,
    /// A line for people.
    pub description: String,
    /// The back end: the name of its kind and the value. More than one is a
    /// mistake.
    #[serde(skip)]
    pub backends: Vec<(&'static str, OsString)>,
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
    /// Requests that the back end gets at once.
    pub depth: Option<u32>,
    /// The drive that it is as slow as.
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
    /// How long to poll for more requests before going to sleep, in microseconds.
    pub busy_poll_us: Option<u64>,
    /// The socket of `blklab set` and `blklab get`.
    pub control: Option<PathBuf>,
    /// The folder in which attributes are shown as files.
    pub sysfs: Option<PathBuf>,
    /// Where metrics are served.
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
        let parsed = DeTable::parse(text).and_then(|mut table| {
            let backends = take_backends(table.get_mut())?;
            let mut spec = ServerSpec::deserialize(Deserializer::from(table))?;
            for (export, backends) in spec.export.iter_mut().zip(backends) {
                export.backends = backends;
            }
            Ok(spec)
        });
        parsed.map_err(|error| {
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

/// Takes the keys of back ends out of each `[[export]]`.
fn take_backends(
    server: &mut DeTable<'_>,
) -> Result<Vec<Vec<(&'static str, OsString)>>, toml::de::Error> {
    let mut all = Vec::new();
    let Some(DeValue::Array(exports)) = server.get_mut("export").map(|v| v.get_mut()) else {
        return Ok(all);
    };
    let exports: &mut [_] = exports.borrow_mut();
    for export in exports {
        let mut backends = Vec::new();
        if let DeValue::Table(export) = export.get_mut() {
            for kind in backend::all() {
                if let Some(value) = export.remove(kind.name) {
                    let value = String::deserialize(ValueDeserializer::from(value))?;
                    backends.push((kind.name, OsString::from(value)));
                }
            }
        }
        all.push(backends);
    }
    Ok(all)
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

    fn backend(&self) -> Result<backend::BackendConfig, String> {
        let choices = self.backends.iter();
        let choices: Vec<(&str, &OsStr)> = choices.map(|(kind, v)| (*kind, &**v)).collect();
        let options = BackendOptions {
            engine: self.engine.clone(),
            direct: self.direct,
            threads: self.threads,
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
