//! A server: listeners, handshakes, and a thread an export.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use blklab_blk::Nanos;
use blklab_driver::disk_stats;
use blklab_nbd::wire::ExportFlags;
use blklab_nbd::{BlockSizes, Export, Tls};
use blklab_stats::{DiskStats, Histogram};

use crate::attributes::visit;
use crate::channel::Channel;
use crate::clock::Clock;
use crate::config::{Backend, ExportConfig, Limits, Listen, ServerConfig};
use crate::control::Exports;
use crate::disk::{Disk, DiskSetup};
use crate::export_loop::{ConnectionLimits, ExportLoop, Message, Ticket};
use crate::handshakes::Reception;
use crate::listener::{Listener, take_clients};
use crate::mailbox::Mailbox;
use crate::store::{FileOptions, FileStore, Memory, Nature, RemoteOptions, RemoteStore, Store};
use crate::sysfs::Sysfs;
use crate::tls::ServerTls;

/// Software queues of an export, at most: connections beyond share them.
const MAX_SOFTWARE_QUEUES: usize = 64;

/// A server that runs.
pub struct Server {
    reception: Arc<Reception>,
    doors: Vec<Door>,
    exports: Vec<JoinHandle<Result<(), String>>>,
    addresses: Vec<Listen>,
    metrics: Option<Listen>,
    bindings: Bindings,
    sysfs: Option<Sysfs>,
}

/// A thread that takes clients of one kind in.
struct Door {
    wake: Arc<Mailbox<()>>,
    thread: JoinHandle<()>,
}

impl Door {
    fn open(
        name: &str,
        listeners: Vec<Listener>,
        client: impl Fn(&Listener, OwnedFd) + Send + 'static,
    ) -> Result<Door, String> {
        let wake = Arc::new(Mailbox::new().map_err(|e| e.to_string())?);
        let own = Arc::clone(&wake);
        let builder = std::thread::Builder::new().name(name.to_string());
        let thread = builder
            .spawn(move || take_clients(&listeners, &own, client))
            .map_err(|e| e.to_string())?;
        Ok(Door { wake, thread })
    }

    fn close(self) {
        self.wake.send(());
        let _ = self.thread.join();
    }
}

/// What clients are asked for, where that lets all listeners be open.
fn allowed_tls(config: &ServerConfig, listeners: &[Listener]) -> Result<ServerTls, String> {
    let tls = ServerTls::new(&config.tls)?;
    let refused = |listener: &&Listener| tls.policy(listener.is_public()).is_none();
    match listeners.iter().find(refused) {
        Some(listener) => Err(plain_and_public(&listener.name())),
        None => Ok(tls),
    }
}

/// The doors for who administers the server and who watches it.
fn back_doors(
    administered: &Arc<Exports>,
    control: Vec<Listener>,
    metrics: Vec<Listener>,
) -> Result<Vec<Door>, String> {
    let mut doors = Vec::new();
    if !control.is_empty() {
        let exports = Arc::clone(administered);
        doors.push(Door::open("control", control, move |_, socket| {
            exports.serve(socket);
        })?);
    }
    if !metrics.is_empty() {
        let exports = Arc::clone(administered);
        doors.push(Door::open("metrics", metrics, move |_, socket| {
            exports.serve_metrics(socket);
        })?);
    }
    Ok(doors)
}

impl Server {
    /// Starts serving. When it returns, clients can connect.
    ///
    /// # Errors
    /// Where something cannot be served as asked; the message says what.
    pub fn start(config: &ServerConfig) -> Result<Server, String> {
        let clock = Clock::start();
        let mut prepared = Vec::new();
        for export in &config.exports {
            prepared.push(Prepared::new(export, config)?);
        }
        let mut bindings = Bindings::default();
        let mut listeners = bindings.bind(&config.listen)?;
        if config.activated {
            listeners.extend(Listener::activated()?);
        }
        if listeners.is_empty() {
            return Err("systemd passed no socket".to_string());
        }
        let tls = allowed_tls(config, &listeners)?;
        let addresses = bindings.addresses.clone();
        let control: Vec<Listen> = config.control.iter().cloned().map(Listen::Unix).collect();
        let control = bindings.bind(&control)?;
        let metrics: Vec<Listen> = config.metrics.iter().copied().map(Listen::Tcp).collect();
        let metrics = bindings.bind(&metrics)?;
        let (mut exports, mut mailboxes, mut threads) = (Vec::new(), Vec::new(), Vec::new());
        for one in prepared {
            let mailbox = Arc::new(Mailbox::new().map_err(|e| e.to_string())?);
            mailboxes.push(Arc::clone(&mailbox));
            exports.push((*one.export).clone());
            threads.push(one.start(clock, config, mailbox)?);
        }
        let administered = Arc::new(Exports {
            names: exports.iter().map(|e| e.name.clone()).collect(),
            mailboxes: mailboxes.clone(),
        });
        let reception = Arc::new(Reception {
            exports,
            mailboxes,
            deadline: Duration::from_secs(config.limits.handshake_seconds),
            tls,
            shutting_down: AtomicBool::new(false),
        });
        let front = front_door(&reception, listeners, config.limits.connections)?;
        let sysfs = match &config.sysfs {
            Some(folder) => Some(Sysfs::mount(folder, Arc::clone(&administered))?),
            None => None,
        };
        let mut doors = vec![front];
        doors.extend(back_doors(&administered, control, metrics)?);
        Ok(Server {
            reception,
            doors,
            exports: threads,
            addresses,
            metrics: bindings
                .addresses
                .last()
                .filter(|_| config.metrics.is_some())
                .cloned(),
            bindings,
            sysfs,
        })
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[Listen] {
        &self.addresses
    }

    /// Where it tells its metrics.
    pub fn metrics_address(&self) -> Option<&Listen> {
        self.metrics.as_ref()
    }

    /// What the first export's queue and drive have to tell, and how late the
    /// drive's requests ended.
    ///
    /// # Errors
    /// Where it has no drive's model, or does not answer.
    pub fn told(&self) -> Result<(DiskStats, Histogram), String> {
        let Some(mailbox) = self.reception.mailboxes.first() else {
            return Err("there is no export".to_string());
        };
        visit(mailbox, |v| {
            let model = v.disk.model().ok_or("there is no drive's model")?;
            let stats = disk_stats("nbd", v.disk.queue(), model, v.now);
            Ok((stats, v.disk.lateness().clone()))
        })?
    }

    /// Finishes what was accepted, makes it durable, and ends.
    ///
    /// # Errors
    /// Where that failed for some export.
    pub fn shut_down(self) -> Result<(), String> {
        self.reception.shutting_down.store(true, Ordering::Relaxed);
        // Nobody is to find files that are not answered for any more.
        drop(self.sysfs);
        for door in self.doors {
            door.close();
        }
        for mailbox in &self.reception.mailboxes {
            mailbox.send(Message::ShutDown);
        }
        let mut failed = Ok(());
        for thread in self.exports {
            let ended = thread.join();
            let ended = ended.unwrap_or_else(|_| Err("an export's thread panicked".to_string()));
            failed = failed.and(ended);
        }
        drop(self.bindings);
        failed
    }
}

/// What a server has bound. Its sockets' files go with it.
#[derive(Default)]
struct Bindings {
    addresses: Vec<Listen>,
    unix_paths: Vec<PathBuf>,
}

impl Drop for Bindings {
    fn drop(&mut self) {
        for path in &self.unix_paths {
            // Another may have taken it away already.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Bindings {
    fn bind(&mut self, wanted: &[Listen]) -> Result<Vec<Listener>, String> {
        let mut listeners = Vec::new();
        for listen in wanted {
            let listener = Listener::bind(listen)?;
            self.addresses.push(listener.address(listen));
            if let Listen::Unix(path) = listen {
                self.unix_paths.push(path.clone());
            }
            listeners.push(listener);
        }
        Ok(listeners)
    }
}

/// Why nobody is let in there.
pub(crate) fn plain_and_public(address: &str) -> String {
    format!(
        "{address} can be reached by others; give --tls-certificates DIR, listen on 127.0.0.1, or say --insecure-no-tls"
    )
}

/// Where NBD's clients come in.
fn front_door(
    reception: &Arc<Reception>,
    listeners: Vec<Listener>,
    max_connections: usize,
) -> Result<Door, String> {
    let reception = Arc::clone(reception);
    let count: Ticket = Arc::new(());
    Door::open("accept", listeners, move |listener, socket| {
        // One more than the tickets given out: our own.
        if Arc::strong_count(&count) <= max_connections
            && let Some(tls) = reception.tls.policy(listener.is_public())
        {
            let channel = Channel::plain(socket);
            receive(&reception, channel, tls, Arc::clone(&count));
        }
    })
}

fn receive(reception: &Arc<Reception>, channel: Channel, tls: Tls, ticket: Ticket) {
    let reception = Arc::clone(reception);
    let builder = std::thread::Builder::new()
        .name("handshake".to_string())
        .stack_size(512 << 10);
    // Where no thread can be had, the client is turned away.
    let _ = builder.spawn(move || reception.receive(channel, tls, ticket));
}

/// An export whose store is open.
struct Prepared<'a> {
    config: &'a ExportConfig,
    export: Arc<Export>,
    store: Store,
    nature: Nature,
}

impl Prepared<'_> {
    fn new<'a>(config: &'a ExportConfig, server: &ServerConfig) -> Result<Prepared<'a>, String> {
        let (store, mut nature) = open_store(config, &server.limits)?;
        if let Some((name, drive)) = &config.drive {
            let identity = drive.identity();
            let drive_bytes = identity.capacity_sectors * 512;
            if nature.size_bytes > drive_bytes {
                return Err(format!(
                    "the export {:?} has {} bytes, and the drive {name} only {drive_bytes}; make it smaller",
                    config.name, nature.size_bytes
                ));
            }
            let sizes = &mut nature.block_sizes;
            sizes.minimum = sizes.minimum.max(identity.logical_block_bytes);
            nature.size_bytes -= nature.size_bytes % u64::from(sizes.minimum);
        }
        let export = Arc::new(describe(config, &nature));
        Ok(Prepared {
            config,
            export,
            store,
            nature,
        })
    }

    fn start(
        self,
        clock: Clock,
        server: &ServerConfig,
        mailbox: Arc<Mailbox<Message>>,
    ) -> Result<JoinHandle<Result<(), String>>, String> {
        let software_queues = server.limits.connections.clamp(1, MAX_SOFTWARE_QUEUES);
        let disk = Disk::new(DiskSetup {
            store: self.store,
            nature: self.nature,
            scheduler: &self.config.scheduler,
            depth: self.config.depth,
            software_queues,
            drive: self.config.drive.as_ref().map(|(_, spec)| spec),
            seed: self.config.seed,
        })?;
        let limits = ConnectionLimits {
            in_flight_bytes: server.limits.in_flight_bytes,
            in_flight_requests: server.limits.in_flight_requests,
        };
        let export_loop = ExportLoop::new(
            self.export,
            disk,
            clock,
            limits,
            software_queues,
            Nanos::from_micros(server.busy_poll_us),
            mailbox,
        );
        let export_loop = export_loop.map_err(|e| e.to_string())?;
        std::thread::Builder::new()
            .name(format!("export-{}", self.config.name))
            .spawn(move || export_loop.run())
            .map_err(|e| e.to_string())
    }
}

fn open_store(config: &ExportConfig, limits: &Limits) -> Result<(Store, Nature), String> {
    match &config.backend {
        Backend::Memory { size_bytes } => {
            let nature = memory_nature(*size_bytes, config, limits);
            Ok((Store::Memory(Memory::new(*size_bytes)), nature))
        }
        Backend::Null { size_bytes } => {
            let nature = memory_nature(*size_bytes, config, limits);
            Ok((Store::Memory(Memory::forgetful(*size_bytes)), nature))
        }
        Backend::File {
            path,
            direct,
            engine,
        } => {
            let file = FileStore::open(&FileOptions {
                path: path.clone(),
                direct: *direct,
                read_only: config.read_only,
                engine: *engine,
                max_request_bytes: limits.request_bytes,
            })?;
            let nature = file.nature();
            Ok((Store::File(file), nature))
        }
        Backend::Remote {
            uri,
            connections,
            reconnect_seconds,
        } => {
            let remote = RemoteStore::connect(&RemoteOptions {
                uri: uri.clone(),
                connections: *connections,
                max_request_bytes: limits.request_bytes,
                reconnect: Duration::from_secs(*reconnect_seconds),
            })?;
            let mut nature = remote.nature();
            nature.read_only |= config.read_only;
            Ok((Store::Remote(remote), nature))
        }
    }
}

fn memory_nature(size_bytes: u64, config: &ExportConfig, limits: &Limits) -> Nature {
    Nature {
        size_bytes,
        block_sizes: BlockSizes {
            minimum: 1,
            preferred: 4096,
            maximum: limits.request_bytes,
        },
        write_cache: false,
        read_only: config.read_only,
    }
}

/// An export as clients see it.
fn describe(config: &ExportConfig, nature: &Nature) -> Export {
    let identity = config.drive.as_ref().map(|(_, spec)| spec.identity());
    let takes_discards = identity.is_none_or(|i| i.discard);
    // Several connections share one queue and one store, so that a flush on
    // any of them covers what was answered on all.
    let mut flags = ExportFlags::SEND_FLUSH
        .with(ExportFlags::SEND_FUA)
        .with(ExportFlags::SEND_CACHE)
        .with(ExportFlags::CAN_MULTI_CONN);
    if nature.read_only {
        flags = flags.with(ExportFlags::READ_ONLY);
    } else {
        flags = flags
            .with(ExportFlags::SEND_WRITE_ZEROES)
            .with(ExportFlags::SEND_FAST_ZERO);
        if takes_discards {
            flags = flags.with(ExportFlags::SEND_TRIM);
        }
    }
    if identity.is_some_and(|i| i.rotational) {
        flags = flags.with(ExportFlags::ROTATIONAL);
    }
    Export {
        name: config.name.clone(),
        description: config.description.clone(),
        size_bytes: nature.size_bytes,
        flags,
        block_sizes: nature.block_sizes,
        tls_only: false,
    }
}
