//! vhost-user-blk: disks of virtual machines. Rings and data are in the guest's memory, which
//! the machine's monitor shares. A Unix socket carries only the setup.
//!
//! - `device`: the monitor's messages ("Vhost-user Protocol" in QEMU's manual).
//! - `queue`: a thread for each ring, which takes turns with the export's other threads.

mod device;
mod queue;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use blklab_blk::SECTOR_SIZE;
use blklab_nbd::wire::ExportFlags;
use blklab_virtio::{Config, ID_BYTES, Limits};
use vhost::vhost_user::BackendReqHandler;

use crate::export::FrontEndSetup;
use crate::net::{AcceptThread, Listener};
use device::Device;

/// The most queues of one device.
const MAX_QUEUES: u16 = 64;
/// The longest discard and write of zeroes: the export's requests have 32-bit lengths in bytes.
const MAX_RANGE_SECTORS: u32 = u32::MAX >> 9;

/// The setup shared by all devices of an export.
pub(crate) struct DeviceSetup {
    pub(crate) front_end: FrontEndSetup,
    /// The most memory segments of a request.
    pub(crate) max_segments: u16,
    /// Serve memory that its owner may shrink, which would end the server.
    pub(crate) allow_unsealed: bool,
    /// The most monitors at the same time.
    pub(crate) max_connections: usize,
    /// The number of queues started so far.
    pub(crate) queues_started: AtomicUsize,
}

impl DeviceSetup {
    /// The disk's configuration.
    fn config(&self) -> Config {
        let takes = |flag| self.front_end.export.flags.contains(flag);
        Config {
            capacity_sectors: self.front_end.export.size_bytes / SECTOR_SIZE,
            block_bytes: self
                .front_end
                .export
                .block_sizes
                .minimum
                .max(SECTOR_SIZE as u32),
            preferred_bytes: self.front_end.export.block_sizes.preferred,
            max_segments: self.max_segments,
            queues: MAX_QUEUES,
            max_discard_sectors: match takes(ExportFlags::SEND_TRIM) {
                true => MAX_RANGE_SECTORS,
                false => 0,
            },
            max_zeroes_sectors: MAX_RANGE_SECTORS,
            read_only: takes(ExportFlags::READ_ONLY),
        }
    }

    fn limits(&self) -> Limits {
        let config = self.config();
        Limits {
            capacity_sectors: config.capacity_sectors,
            block_bytes: config.block_bytes,
            max_transfer_bytes: self.front_end.export.block_sizes.maximum,
            max_discard_sectors: config.max_discard_sectors,
            max_zeroes_sectors: config.max_zeroes_sectors,
            read_only: config.read_only,
        }
    }

    /// The disk's identification, which guests show as its serial number.
    fn id(&self) -> [u8; ID_BYTES] {
        let name = match self.front_end.export.name.as_str() {
            "" => "blklab",
            name => name,
        };
        let mut id = [0; ID_BYTES];
        for (to, from) in id.iter_mut().zip(name.bytes()) {
            *to = from;
        }
        id
    }
}

/// The server of a socket that monitors connect to.
pub(crate) struct VhostUserServer {
    accept: AcceptThread,
    sessions: Sessions,
}

/// The connections, with their threads.
type Sessions = Arc<Mutex<Vec<(UnixStream, JoinHandle<()>)>>>;

impl VhostUserServer {
    /// Starts to serve an export's devices.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn start(listener: Listener, setup: DeviceSetup) -> Result<VhostUserServer, String> {
        let (sessions, setup) = (Sessions::default(), Arc::new(setup));
        let own = Arc::clone(&sessions);
        let accept = AcceptThread::start("vhost-user", vec![listener], move |_, socket| {
            // Without a thread or a descriptor, the connection is closed.
            let _ = begin(&own, &setup, socket);
        })?;
        Ok(VhostUserServer { accept, sessions })
    }

    /// Stops accepting, finishes all connections, and ends.
    pub(crate) fn stop(self) {
        self.accept.stop();
        let sessions = std::mem::take(&mut *locked(&self.sessions));
        for (stream, _) in &sessions {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        for (_, thread) in sessions {
            let _ = thread.join();
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn begin(sessions: &Sessions, setup: &Arc<DeviceSetup>, socket: OwnedFd) -> std::io::Result<()> {
    let mut sessions = locked(sessions);
    sessions.retain(|(_, thread)| !thread.is_finished());
    if sessions.len() >= setup.max_connections {
        return Ok(());
    }
    let stream = UnixStream::from(socket);
    let (own, setup) = (stream.try_clone()?, Arc::clone(setup));
    let builder = std::thread::Builder::new().name("vhost-user".to_string());
    let watched = setup.front_end.new_thread();
    let thread = builder.spawn(move || watched.run(|| serve(stream, &setup)))?;
    sessions.push((own, thread));
    Ok(())
}

/// Serves one monitor until it disconnects or breaks the protocol.
fn serve(stream: UnixStream, setup: &Arc<DeviceSetup>) {
    let Ok(own) = stream.try_clone() else { return };
    {
        let counters = &mut setup.front_end.shared.lock().counters;
        counters.connections += 1;
        counters.connections_total += 1;
    }
    let device = Arc::new(Mutex::new(Device::new(Arc::clone(setup), own)));
    let mut messages = BackendReqHandler::from_stream(stream, Arc::clone(&device));
    let error = loop {
        if let Err(error) = messages.handle_request() {
            break error;
        }
    };
    locked(&device).stop();
    let counters = &mut setup.front_end.shared.lock().counters;
    counters.connections -= 1;
    use vhost::vhost_user::Error::{Disconnected, SocketBroken};
    if !matches!(error, Disconnected | SocketBroken(_)) {
        counters.protocol_errors += 1;
    }
}
