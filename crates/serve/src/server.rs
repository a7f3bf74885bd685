//! A server: listeners, handshakes, and the threads of its exports.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use blklab_blk::{CgroupId, Nanos};
use blklab_device::{DriveSpec, Faults};
use blklab_driver::{Driver, disk_stats};
use blklab_nbd::Export;
use blklab_nbd::wire::ExportFlags;
use blklab_stats::{DiskStats, Histogram};
use blklab_virtio::MAX_SEGMENTS;

use crate::Clock;
use crate::backend::{
    Backend, BackendInfo, FaultyBackend, OpenOptions, PowerBackend, whole_blocks,
};
use crate::config::{ExportConfig, ServerConfig};
use crate::control::{Exports, MountedTree};
use crate::export::{
    ConnectionLimits, Disk, DiskSetup, EventLoop, EventLoopSetup, ExportHandle, FrontEndSetup,
    Inbox, PanicWatch, SharedExport,
};
use crate::net::{AcceptThread, Handshake, Listen, Listener, ServerTls, tls_needed};
use crate::tcmu::{TcmuDisk, TcmuSetup};
use crate::ublk::{UblkDevice, UblkNumber};
use crate::vhost_user::{DeviceSetup, VhostUserServer};

/// Software queues of an export, at most: connections beyond share them.
const MAX_SOFTWARE_QUEUES: usize = 64;

/// A server that runs.
pub struct Server {
    handshake: Arc<Handshake>,
    accepting: Vec<AcceptThread>,
    exports: Vec<RunningExport>,
    machines: Vec<VhostUserServer>,
    machine_sockets: Vec<PathBuf>,
    disks: Vec<UblkDevice>,
    scsi_disks: Vec<TcmuDisk>,
    addresses: Vec<Listen>,
    metrics: Option<Listen>,
    bindings: Bindings,
    sysfs: Option<MountedTree>,
    watch: PanicWatch,
}

/// An export with its threads.
struct RunningExport {
    handle: ExportHandle,
    shared: Arc<SharedExport>,
    threads: Vec<JoinHandle<Result<(), String>>>,
}

impl RunningExport {
    /// Waits for its threads, which were told to end, and closes its back end.
    fn join(self) -> Result<(), String> {
        let mut failed = Ok(());
        for thread in self.threads {
            let ended = thread.join();
            let ended = ended.unwrap_or_else(|_| Err("an export's thread panicked".to_string()));
            failed = failed.and(ended);
        }
        failed.and(self.shared.lock().disk.backend_mut().close())
    }
}

/// The exports of a server, with what their virtual machines and this machine's kernel use.
#[derive(Default)]
struct StartedExports {
    exports: Vec<RunningExport>,
    machines: Vec<VhostUserServer>,
    /// The disks to make of ublk and of target_core_user.
    disks: Vec<(FrontEndSetup, UblkNumber)>,
    scsi_disks: Vec<TcmuSetup>,
}

impl StartedExports {
    fn start(
        prepared: Vec<Prepared<'_>>,
        config: &ServerConfig,
        clock: Clock,
        watch: &PanicWatch,
        bindings: &mut Bindings,
    ) -> Result<StartedExports, String> {
        let mut started = StartedExports::default();
        for one in prepared {
            let socket = one.config.vhost_user.clone().map(Listen::Unix);
            let listener = bindings.bind(socket.as_slice())?.pop();
            let (ublk, tcmu) = (one.config.ublk, one.config.tcmu.clone());
            let drive = one.config.drive.as_ref();
            let max_segments = drive.map_or(MAX_SEGMENTS, |(_, d)| d.identity().max_segments);
            let (export, front_end) = one.start(clock, config, watch)?;
            started
                .disks
                .extend(ublk.map(|number| (front_end.clone(), number)));
            started.scsi_disks.extend(tcmu.map(|name| TcmuSetup {
                name,
                front_end: front_end.clone(),
            }));
            if let Some(listener) = listener {
                let devices = DeviceSetup {
                    front_end,
                    max_segments,
                    allow_unsealed: config.insecure_unsealed_memory,
                    max_connections: config.limits.connections,
                    queues_started: AtomicUsize::new(0),
                };
                started
                    .machines
                    .push(VhostUserServer::start(listener, devices)?);
            }
            started.exports.push(export);
        }
        Ok(started)
    }
}

impl Server {
    /// Starts serving. When it returns, clients can connect.
    ///
    /// # Errors
    /// Where something cannot be served as asked; the message says what.
    pub fn start(config: &ServerConfig) -> Result<Server, String> {
        let clock = Clock::dilated(config.time_dilation);
        let watch = PanicWatch::default();
        let prepared: Result<Vec<_>, String> = config
            .exports
            .iter()
            .map(|export| Prepared::new(export, config))
            .collect();
        let prepared = prepared?;
        let mut bindings = Bindings::default();
        let mut listeners = bindings.bind(&config.listen)?;
        if config.activated {
            listeners.extend(Listener::activated()?);
        }
        let sockets = config
            .exports
            .iter()
            .map(|export| export.vhost_user.clone());
        let machine_sockets: Vec<PathBuf> = sockets.flatten().collect();
        let is_disk = |export: &ExportConfig| export.ublk.is_some() || export.tcmu.is_some();
        let has_disks = config.exports.iter().any(is_disk);
        if listeners.is_empty() && machine_sockets.is_empty() && !has_disks {
            return Err("systemd passed no socket".to_string());
        }
        let tls = allowed_tls(config, &listeners)?;
        let addresses = bindings.addresses.clone();
        let control: Vec<Listen> = config.control.iter().cloned().map(Listen::Unix).collect();
        let control = bindings.bind(&control)?;
        let metrics: Vec<Listen> = config.metrics.iter().copied().map(Listen::Tcp).collect();
        let metrics = bindings.bind(&metrics)?;
        let metrics_address = config.metrics.and(bindings.addresses.last().cloned());
        let offers = offers(&prepared);
        let StartedExports {
            exports,
            machines,
            disks,
            scsi_disks,
        } = StartedExports::start(prepared, config, clock, &watch, &mut bindings)?;
        let handles: Vec<ExportHandle> =
            exports.iter().map(|export| export.handle.clone()).collect();
        let handshake = handshake(config, offers, handles.clone(), tls);
        let accepting = Arc::clone(&handshake);
        let accepting = AcceptThread::start("accept", listeners, move |listener, socket| {
            accepting.start(listener, socket);
        })?;
        let mut accepting = vec![accepting];
        let administered = Arc::new(Exports::new(handles));
        let sysfs = match &config.sysfs {
            Some(folder) => Some(MountedTree::mount(folder, Arc::clone(&administered))?),
            None => None,
        };
        accepting.extend(accept_control(&administered, control, metrics)?);
        // Last, as the kernel reads a disk as soon as there is one.
        let disks = disks.into_iter();
        let disks: Result<_, String> = disks
            .map(|(setup, number)| UblkDevice::start(setup, number))
            .collect();
        let scsi_disks = scsi_disks.into_iter().map(TcmuDisk::start);
        let scsi_disks: Result<_, String> = scsi_disks.collect();
        let metrics = metrics_address;
        Ok(Server {
            handshake,
            accepting,
            exports,
            machines,
            machine_sockets,
            disks: disks?,
            scsi_disks: scsi_disks?,
            addresses,
            metrics,
            bindings,
            sysfs,
            watch,
        })
    }

    /// Has a function called with the name of the export of whose threads the first panics.
    /// What that thread had under way is never answered: the server should be shut down.
    pub fn on_panic(&self, on_panic: impl FnOnce(&str) + Send + 'static) {
        self.watch.on_panic(Box::new(on_panic));
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[Listen] {
        &self.addresses
    }

    /// The sockets of virtual machines.
    pub fn machine_sockets(&self) -> &[PathBuf] {
        &self.machine_sockets
    }

    /// The disks of this machine's kernel.
    pub fn disks(&self) -> Vec<PathBuf> {
        let scsi_disks = self.scsi_disks.iter().map(TcmuDisk::path);
        let paths = self.disks.iter().map(UblkDevice::path);
        paths.chain(scsi_disks).collect()
    }

    /// Where it serves metrics.
    pub fn metrics_address(&self) -> Option<&Listen> {
        self.metrics.as_ref()
    }

    /// The counters of the first export's queue and drive, and how much later
    /// than the drive's model said its requests ended.
    ///
    /// # Errors
    /// Where it has no drive's model, or does not answer.
    pub fn drive_stats(&self) -> Result<(DiskStats, Histogram), String> {
        let Some(RunningExport { handle: export, .. }) = self.exports.first() else {
            return Err("there is no export".to_string());
        };
        export.call(|view| {
            let model = view.disk.model().ok_or("there is no drive's model")?;
            let stats = disk_stats("nbd", view.disk.queue(), model, view.now);
            Ok((stats, view.disk.lateness().clone()))
        })?
    }

    /// Finishes what was accepted, makes it durable, and ends.
    ///
    /// # Errors
    /// Where that failed for some export.
    pub fn shut_down(self) -> Result<(), String> {
        self.handshake.shutting_down.store(true, Ordering::Relaxed);
        // Unmounted before the threads end that answer reads of its files.
        drop(self.sysfs);
        for thread in self.accepting {
            thread.stop();
        }
        // What these have under way needs the exports' threads.
        drop(self.disks);
        drop(self.scsi_disks);
        self.machines.into_iter().for_each(VhostUserServer::stop);
        for export in &self.exports {
            export.handle.shut_down();
        }
        let mut failed = Ok(());
        for export in self.exports {
            failed = failed.and(export.join());
        }
        drop(self.bindings);
        failed
    }
}

/// The TLS of a server, if it lets clients use all listeners.
fn allowed_tls(config: &ServerConfig, listeners: &[Listener]) -> Result<ServerTls, String> {
    let tls = ServerTls::new(&config.tls)?;
    let refused = |listener: &&Listener| tls.policy(listener.is_public()).is_none();
    match listeners.iter().find(refused) {
        Some(listener) => Err(tls_needed(&listener.name())),
        None => Ok(tls),
    }
}

/// Something that clients may ask for.
struct Offer {
    described: Export,
    /// The place of the export that it is.
    export: usize,
    /// Where its clients are.
    cgroup: CgroupId,
}

/// What clients may ask for: the exports, and behind them each with its groups.
fn offers(prepared: &[Prepared<'_>]) -> Vec<Offer> {
    let of_one = |(export, one): (usize, &Prepared<'_>)| {
        let names = one.config.names().into_iter();
        let described = Arc::clone(&one.export);
        names.map(move |(cgroup, name)| Offer {
            described: Export {
                name,
                ..(*described).clone()
            },
            export,
            cgroup,
        })
    };
    let mut offers: Vec<Offer> = prepared.iter().enumerate().flat_map(of_one).collect();
    offers.sort_by_key(|offer| offer.cgroup != CgroupId::ROOT);
    offers
}

fn handshake(
    config: &ServerConfig,
    offers: Vec<Offer>,
    handles: Vec<ExportHandle>,
    tls: ServerTls,
) -> Arc<Handshake> {
    let places: Vec<(usize, CgroupId)> = offers.iter().map(|o| (o.export, o.cgroup)).collect();
    Arc::new(Handshake {
        exports: offers.into_iter().map(|offer| offer.described).collect(),
        timeout: Duration::from_secs(config.limits.handshake_seconds),
        tls,
        max_connections: config.limits.connections,
        permit: Arc::new(()),
        shutting_down: AtomicBool::new(false),
        deliver: Box::new(move |offer, arrival| {
            let (export, cgroup) = places[offer];
            handles[export].arrive(arrival, cgroup);
        }),
    })
}

/// Starts to accept clients of the control socket and of the metrics.
fn accept_control(
    exports: &Arc<Exports>,
    control: Vec<Listener>,
    metrics: Vec<Listener>,
) -> Result<Vec<AcceptThread>, String> {
    let mut threads = Vec::new();
    if !control.is_empty() {
        let exports = Arc::clone(exports);
        threads.push(AcceptThread::start(
            "control",
            control,
            move |_, socket| {
                exports.serve(socket);
            },
        )?);
    }
    if !metrics.is_empty() {
        let exports = Arc::clone(exports);
        threads.push(AcceptThread::start(
            "metrics",
            metrics,
            move |_, socket| {
                exports.serve_metrics(socket);
            },
        )?);
    }
    Ok(threads)
}

/// The addresses that a server has bound; dropping it removes its sockets' files.
#[derive(Default)]
struct Bindings {
    addresses: Vec<Listen>,
    unix_paths: Vec<PathBuf>,
}

impl Drop for Bindings {
    fn drop(&mut self) {
        for path in &self.unix_paths {
            // It may be gone already.
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

/// An export whose back end is open.
struct Prepared<'a> {
    config: &'a ExportConfig,
    export: Arc<Export>,
    backend: Box<dyn Backend>,
    info: BackendInfo,
}

impl Prepared<'_> {
    fn new<'a>(config: &'a ExportConfig, server: &ServerConfig) -> Result<Prepared<'a>, String> {
        let backend = config.backend.open(OpenOptions {
            read_only: config.read_only,
            max_request_bytes: server.limits.request_bytes,
        })?;
        let drive = config.drive.as_ref().map(|(_, drive)| drive);
        let faults = drive.and_then(DriveSpec::faults);
        let backend = match config.power_cuts {
            true => {
                let model = drive.map(|drive| Driver::new(drive, config.seed).queue_config(1));
                let is_volatile = model.is_none_or(|queue| queue.limits.write_cache);
                Box::new(PowerBackend::new(backend, is_volatile, config.seed))
            }
            false => backend,
        };
        let backend = match faults.filter(Faults::in_data) {
            Some(faults) => Box::new(FaultyBackend::new(backend, &faults)),
            None => backend,
        };
        let mut info = backend.info();
        if let Some((name, drive)) = &config.drive {
            let identity = drive.identity();
            if identity.zones.is_some() {
                return Err(format!(
                    "the drive {name} has zones, and no client could learn of them: NBD, \
                     vhost-user-blk and SCSI show a disk that is written anywhere, as Linux's nbd \
                     driver makes one; right is a drive without [zones], or --world sim"
                ));
            }
            let drive_bytes = identity.capacity_sectors * 512;
            if info.size_bytes > drive_bytes {
                let export = match config.name.as_str() {
                    "" => "the export".to_string(),
                    name => format!("the export {name:?}"),
                };
                return Err(format!(
                    "{export} has {} bytes, and the drive {name} only {drive_bytes}; make it smaller",
                    info.size_bytes
                ));
            }
            let sizes = &mut info.block_sizes;
            sizes.minimum = sizes.minimum.max(identity.logical_block_bytes);
            info.size_bytes = whole_blocks("the export", info.size_bytes, sizes.minimum);
        }
        Ok(Prepared {
            config,
            export: Arc::new(describe(config, &info)),
            backend,
            info,
        })
    }

    fn start(
        self,
        clock: Clock,
        server: &ServerConfig,
        watch: &PanicWatch,
    ) -> Result<(RunningExport, FrontEndSetup), String> {
        let software_queues = server.limits.connections.clamp(1, MAX_SOFTWARE_QUEUES);
        let disk = Disk::new(DiskSetup {
            backend: self.backend,
            info: self.info,
            scheduler: &self.config.scheduler,
            depth: self.config.depth,
            software_queues,
            drive: self.config.drive.as_ref().map(|(_, spec)| spec),
            cgroups: self.config.cgroups.clone(),
            seed: self.config.seed,
        })?;
        let shared = Arc::new(SharedExport::new(disk));
        let front_end = FrontEndSetup {
            export: Arc::clone(&self.export),
            shared: Arc::clone(&shared),
            clock,
            in_flight_bytes: server.limits.in_flight_bytes,
            software_queues,
            busy_poll: Nanos::from_micros(server.busy_poll_us),
            watch: watch.clone(),
        };
        let threads = self.config.threads;
        let (mut inboxes, mut running) = (Vec::new(), Vec::new());
        for thread in 0..threads {
            let export_thread = shared.join().map_err(|e| e.to_string())?;
            let inbox = Inbox::of(&export_thread);
            inboxes.push(inbox.clone());
            let event_loop = EventLoop::new(EventLoopSetup {
                export: Arc::clone(&self.export),
                shared: Arc::clone(&shared),
                export_thread,
                inbox,
                clock,
                limits: ConnectionLimits {
                    in_flight_bytes: server.limits.in_flight_bytes,
                    in_flight_requests: server.limits.in_flight_requests,
                },
                thread,
                threads,
                software_queues,
                busy_poll: front_end.busy_poll,
            });
            let event_loop = event_loop.map_err(|e| e.to_string())?;
            let watched = watch.thread(&self.config.name);
            let started = std::thread::Builder::new()
                .name(format!("export-{}", self.config.name))
                .spawn(move || watched.run(|| event_loop.run()));
            running.push(started.map_err(|e| e.to_string())?);
        }
        let export = RunningExport {
            handle: ExportHandle::new(&self.config.name, inboxes),
            shared,
            threads: running,
        };
        Ok((export, front_end))
    }
}

/// An export as clients see it.
fn describe(config: &ExportConfig, info: &BackendInfo) -> Export {
    let identity = config.drive.as_ref().map(|(_, spec)| spec.identity());
    let takes_discards = identity.is_none_or(|i| i.discard);
    // Several connections share one queue and one back end, so that a flush on
    // any of them covers what was answered on all.
    let mut flags = ExportFlags::SEND_FLUSH
        | ExportFlags::SEND_FUA
        | ExportFlags::SEND_CACHE
        | ExportFlags::CAN_MULTI_CONN;
    if info.read_only {
        flags |= ExportFlags::READ_ONLY;
    } else {
        flags |= ExportFlags::SEND_WRITE_ZEROES | ExportFlags::SEND_FAST_ZERO;
        flags.set(ExportFlags::SEND_TRIM, takes_discards);
    }
    let rotational = identity.is_some_and(|i| i.rotational);
    flags.set(ExportFlags::ROTATIONAL, rotational);
    Export {
        name: config.name.clone(),
        description: config.description.clone(),
        size_bytes: info.size_bytes,
        flags,
        block_sizes: info.block_sizes,
        tls_only: false,
    }
}
