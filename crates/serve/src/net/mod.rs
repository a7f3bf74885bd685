//! Sockets, TLS and the handshake: all that comes before an export is chosen. Here
//! are the sockets that clients connect to, and the threads that accept them.

mod channel;
mod handshake;
mod tls;

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

pub(crate) use channel::Channel;
pub(crate) use handshake::{Arrival, ConnectionPermit, Handshake};
pub(crate) use tls::{ServerTls, connect as connect_tls, tls_needed};
pub use tls::{TlsMode, TlsSettings};

/// Where clients connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A Unix socket.
    Unix(PathBuf),
    /// TCP.
    Tcp(SocketAddr),
}

/// How long to wait where no descriptor is left for a client.
const NO_DESCRIPTOR_PAUSE: Duration = Duration::from_millis(20);

/// A socket that clients connect to.
pub(crate) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    /// Starts listening.
    pub(crate) fn bind(listen: &Listen) -> Result<Listener, String> {
        let listener = match listen {
            Listen::Unix(path) => {
                remove_stale_socket(path)?;
                check_folder(path)?;
                let bound = UnixListener::bind(path);
                Listener::Unix(bound.map_err(|e| format!("{}: {e}", path.display()))?)
            }
            Listen::Tcp(address) => {
                let bound = TcpListener::bind(address);
                Listener::Tcp(bound.map_err(|e| format!("{address}: {e}"))?)
            }
        };
        listener.set_nonblocking()
    }

    /// The sockets that systemd opened and passed (`sd_listen_fds(3)`).
    pub(crate) fn activated() -> Result<Vec<Listener>, String> {
        let mut passed = listenfd::ListenFd::from_env();
        let mut listeners = Vec::new();
        for index in 0..passed.len() {
            let unix = passed.take_unix_listener(index).ok().flatten();
            let listener = match unix {
                Some(unix) => Listener::Unix(unix),
                None => match passed.take_tcp_listener(index) {
                    Ok(Some(tcp)) => Listener::Tcp(tcp),
                    _ => {
                        return Err(format!(
                            "socket {index} passed by systemd is neither a Unix nor a TCP stream socket"
                        ));
                    }
                },
            };
            listeners.push(listener.set_nonblocking()?);
        }
        Ok(listeners)
    }

    fn set_nonblocking(self) -> Result<Listener, String> {
        let done = match &self {
            Listener::Unix(unix) => unix.set_nonblocking(true),
            Listener::Tcp(tcp) => tcp.set_nonblocking(true),
        };
        done.map_err(|e| e.to_string())?;
        Ok(self)
    }

    /// Where it listens, with the port that the kernel chose for port 0.
    pub(crate) fn address(&self, asked: &Listen) -> Listen {
        match self {
            Listener::Tcp(tcp) => tcp.local_addr().map_or(asked.clone(), Listen::Tcp),
            Listener::Unix(_) => asked.clone(),
        }
    }

    /// Whether other machines can reach it.
    pub(crate) fn is_public(&self) -> bool {
        match self {
            Listener::Unix(_) => false,
            Listener::Tcp(tcp) => tcp
                .local_addr()
                .map_or(true, |address| !address.ip().is_loopback()),
        }
    }

    /// Where it listens, for people.
    pub(crate) fn name(&self) -> String {
        match self {
            Listener::Unix(_) => "a Unix socket".to_string(),
            Listener::Tcp(tcp) => tcp
                .local_addr()
                .map_or("a TCP socket".to_string(), |address| address.to_string()),
        }
    }

    fn accept(&self) -> std::io::Result<OwnedFd> {
        match self {
            Listener::Unix(unix) => unix.accept().map(|(stream, _)| stream.into()),
            Listener::Tcp(tcp) => {
                let (stream, _) = tcp.accept()?;
                // Replies are complete when they are written: Nagle would delay them.
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

/// Removes a socket without a listener, which would make binding fail.
fn remove_stale_socket(path: &Path) -> Result<(), String> {
    let Ok(found) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !found.file_type().is_socket() {
        return Err(format!(
            "{}: it exists and is no socket; name another path or remove it",
            path.display()
        ));
    }
    if UnixStream::connect(path).is_ok() {
        return Err(format!("{}: another server listens there", path.display()));
    }
    std::fs::remove_file(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Checks that a socket has a folder to be in.
fn check_folder(path: &Path) -> Result<(), String> {
    let folder = path.parent().filter(|of| !of.as_os_str().is_empty());
    match folder.filter(|folder| !folder.is_dir()) {
        Some(folder) => Err(format!(
            "{}: there is no folder {} for the socket; make it first",
            path.display(),
            folder.display()
        )),
        None => Ok(()),
    }
}

/// A thread that accepts clients.
pub(crate) struct AcceptThread {
    /// Ends the thread when it becomes readable.
    stop: Arc<OwnedFd>,
    thread: JoinHandle<()>,
}

impl AcceptThread {
    /// Starts to accept; `client` gets each new socket.
    pub(crate) fn start(
        name: &str,
        listeners: Vec<Listener>,
        client: impl Fn(&Listener, OwnedFd) + Send + 'static,
    ) -> Result<AcceptThread, String> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(|e| e.to_string())?;
        let stop = Arc::new(stop);
        let own = Arc::clone(&stop);
        let builder = std::thread::Builder::new().name(name.to_string());
        let thread = builder
            .spawn(move || accept_clients(&listeners, &own, client))
            .map_err(|e| e.to_string())?;
        Ok(AcceptThread { stop, thread })
    }

    pub(crate) fn stop(self) {
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        let _ = self.thread.join();
    }
}

fn accept_clients(listeners: &[Listener], stop: &OwnedFd, client: impl Fn(&Listener, OwnedFd)) {
    loop {
        let mut fds: Vec<PollFd<'_>> = listeners.iter().map(Listener::poll_fd).collect();
        fds.push(PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN));
        if poll(&mut fds, None).is_err() {
            continue;
        }
        if !fds[listeners.len()].revents().is_empty() {
            return;
        }
        for listener in listeners {
            loop {
                match listener.accept() {
                    Ok(socket) => client(listener, socket),
                    Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => break,
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(_) => {
                        std::thread::sleep(NO_DESCRIPTOR_PAUSE);
                        break;
                    }
                }
            }
        }
    }
}
