//! A server: listeners, handshakes, and a thread an export.

use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use blklab_blk::Nanos;
use blklab_nbd::wire::ExportFlags;
use blklab_nbd::{BlockSizes, Export};
use rustix::event::{PollFd, PollFlags, poll};

use crate::clock::Clock;
use crate::config::{Backend, ExportConfig, Limits, Listen, ServerConfig};
use crate::disk::{Disk, DiskSetup};
use crate::export_loop::{ConnectionLimits, ExportLoop, Message, Ticket};
use crate::handshakes::Reception;
use crate::mailbox::Mailbox;
use crate::store::{FileOptions, FileStore, Memory, Nature, Store};

/// Software queues of an export, at most: connections beyond share them.
const MAX_SOFTWARE_QUEUES: usize = 64;
/// What a server wants to hear more of than it can handle.
const BACKLOG_PAUSE: Duration = Duration::from_millis(20);

/// A server that runs.
pub struct Server {
    reception: Arc<Reception>,
    acceptor_wake: Arc<Mailbox<()>>,
    acceptor: JoinHandle<()>,
    exports: Vec<JoinHandle<Result<(), String>>>,
    addresses: Vec<Listen>,
    unix_paths: Vec<PathBuf>,
}

/// A socket that clients connect to.
enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    fn bind(listen: &Listen) -> Result<Listener, String> {
        match listen {
            Listen::Unix(path) => {
                remove_stale_socket(path)?;
                let listener = UnixListener::bind(path);
                listener
                    .map(Listener::Unix)
                    .map_err(|e| format!("{}: {e}", path.display()))
            }
            Listen::Tcp(address) => TcpListener::bind(address)
                .map(Listener::Tcp)
                .map_err(|e| format!("{address}: {e}")),
        }
    }

    /// Where it really listens: port 0 became some port.
    fn address(&self, asked: &Listen) -> Listen {
        match self {
            Listener::Tcp(tcp) => tcp.local_addr().map_or(asked.clone(), Listen::Tcp),
            Listener::Unix(_) => asked.clone(),
        }
    }

    fn set_nonblocking(&self) -> std::io::Result<()> {
        match self {
            Listener::Unix(unix) => unix.set_nonblocking(true),
            Listener::Tcp(tcp) => tcp.set_nonblocking(true),
        }
    }

    fn accept(&self) -> std::io::Result<OwnedFd> {
        match self {
            Listener::Unix(unix) => unix.accept().map(|(stream, _)| stream.into()),
            Listener::Tcp(tcp) => {
                let (stream, _) = tcp.accept()?;
                // Replies are complete when they are written: do not hold them.
                stream.set_nodelay(true)?;
                Ok(stream.into())
            }
        }
    }

    fn poll_fd(&self) -> PollFd<'_> {
        let fd = match self {
            Listener::Unix(unix) => unix.as_fd(),
            Listener::Tcp(tcp) => tcp.as_fd(),
        };
        PollFd::from_borrowed_fd(fd, PollFlags::IN)
    }
}

/// A socket that nobody listens on any more is in the way.
fn remove_stale_socket(path: &std::path::Path) -> Result<(), String> {
    use std::os::unix::fs::FileTypeExt;
    let Ok(found) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !found.file_type().is_socket() {
        return Err(format!(
            "{}: it exists and is no socket; name another path or remove it",
            path.display()
        ));
    }
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(format!("{}: another server listens there", path.display()));
    }
    std::fs::remove_file(path).map_err(|e| format!("{}: {e}", path.display()))
}

impl Server {
    /// Starts serving. When it returns, clients can connect.
    ///
    /// # Errors
    /// Where something cannot be served as asked; the message says what.
    pub fn start(config: &ServerConfig) -> Result<Server, String> {
        let clock = Clock::start();
        let mut listeners = Vec::new();
        let (mut addresses, mut unix_paths) = (Vec::new(), Vec::new());
        let mut prepared = Vec::new();
        for export in &config.exports {
            prepared.push(Prepared::new(export, config)?);
        }
        for listen in &config.listen {
            let listener = Listener::bind(listen)?;
            listener.set_nonblocking().map_err(|e| e.to_string())?;
            addresses.push(listener.address(listen));
            if let Listen::Unix(path) = listen {
                unix_paths.push(path.clone());
            }
            listeners.push(listener);
        }
        let (mut exports, mut mailboxes, mut threads) = (Vec::new(), Vec::new(), Vec::new());
        for one in prepared {
            let mailbox = Arc::new(Mailbox::new().map_err(|e| e.to_string())?);
            mailboxes.push(Arc::clone(&mailbox));
            exports.push((*one.export).clone());
            threads.push(one.start(clock, config, mailbox)?);
        }
        let reception = Arc::new(Reception {
            exports,
            mailboxes,
            deadline: Duration::from_secs(config.limits.handshake_seconds),
            shutting_down: AtomicBool::new(false),
        });
        let acceptor_wake = Arc::new(Mailbox::new().map_err(|e| e.to_string())?);
        let acceptor = {
            let (reception, wake) = (Arc::clone(&reception), Arc::clone(&acceptor_wake));
            let max = config.limits.connections;
            let builder = std::thread::Builder::new().name("accept".to_string());
            builder
                .spawn(move || accept(&listeners, &reception, &wake, max))
                .map_err(|e| e.to_string())?
        };
        Ok(Server {
            reception,
            acceptor_wake,
            acceptor,
            exports: threads,
            addresses,
            unix_paths,
        })
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[Listen] {
        &self.addresses
    }

    /// Finishes what was accepted, makes it durable, and ends.
    ///
    /// # Errors
    /// Where that failed for some export.
    pub fn shut_down(self) -> Result<(), String> {
        self.reception.shutting_down.store(true, Ordering::Relaxed);
        self.acceptor_wake.send(());
        for mailbox in &self.reception.mailboxes {
            mailbox.send(Message::ShutDown);
        }
        let mut failed = Ok(());
        for thread in self.exports {
            let ended = thread.join();
            let ended = ended.unwrap_or_else(|_| Err("an export's thread panicked".to_string()));
            failed = failed.and(ended);
        }
        let _ = self.acceptor.join();
        for path in &self.unix_paths {
            let _ = std::fs::remove_file(path);
        }
        failed
    }
}

/// Takes clients in until it is woken to end.
fn accept(
    listeners: &[Listener],
    reception: &Arc<Reception>,
    wake: &Mailbox<()>,
    max_connections: usize,
) {
    let count: Ticket = Arc::new(());
    loop {
        let mut fds: Vec<PollFd<'_>> = listeners.iter().map(Listener::poll_fd).collect();
        fds.push(PollFd::from_borrowed_fd(wake.event(), PollFlags::IN));
        if poll(&mut fds, None).is_err() {
            continue;
        }
        if !fds[listeners.len()].revents().is_empty() {
            return;
        }
        for listener in listeners {
            loop {
                match listener.accept() {
                    Ok(socket) => {
                        // One more than the tickets given out: our own.
                        if Arc::strong_count(&count) <= max_connections {
                            receive(reception, socket, Arc::clone(&count));
                        }
                    }
                    Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => break,
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(_) => {
                        // No descriptor to be had: wait for some to come free.
                        std::thread::sleep(BACKLOG_PAUSE);
                        break;
                    }
                }
            }
        }
    }
}

fn receive(reception: &Arc<Reception>, socket: OwnedFd, ticket: Ticket) {
    let reception = Arc::clone(reception);
    let builder = std::thread::Builder::new()
        .name("handshake".to_string())
        .stack_size(256 << 10);
    // Where no thread can be had, the client is turned away.
    let _ = builder.spawn(move || reception.receive(socket, ticket));
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
        });
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
            let nature = Nature {
                size_bytes: *size_bytes,
                block_sizes: BlockSizes {
                    minimum: 1,
                    preferred: 4096,
                    maximum: limits.request_bytes,
                },
                write_cache: false,
                read_only: config.read_only,
            };
            Ok((Store::Memory(Memory::new(*size_bytes)), nature))
        }
        Backend::File {
            path,
            direct,
            threads,
        } => {
            let file = FileStore::open(&FileOptions {
                path: path.clone(),
                direct: *direct,
                read_only: config.read_only,
                threads: *threads,
                max_request_bytes: limits.request_bytes,
            })?;
            let nature = file.nature();
            Ok((Store::File(file), nature))
        }
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
