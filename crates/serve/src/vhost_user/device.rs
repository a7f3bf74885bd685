//! One device, which its monitor sets up with messages about memory and rings.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use blklab_virtio::vm_memory::{FileOffset, GuestAddress};
use blklab_virtio::{
    Config, Features, InFlightArea, Memory, Ring, RingAddresses, cannot_shrink_below,
};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};

use super::queue::{Call, Queue, QueueSetup};
use super::{DeviceSetup, MAX_QUEUES, locked};
use crate::export::QueueThread;

/// The size of a ring before its monitor sets it.
const DEFAULT_RING_SIZE: u32 = 128;

/// A region of the guest's memory, by the guest's addresses and by its monitor's.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    guest: u64,
    monitor: u64,
    size_bytes: u64,
}

/// One ring, as set up by its monitor.
struct RingState {
    size: u32,
    /// In the monitor's addresses.
    addresses: Option<RingAddresses>,
    next_available: u16,
    kick: Option<Arc<File>>,
    call: Arc<Call>,
    is_enabled: bool,
    thread: Option<QueueThread<u16>>,
}

impl RingState {
    fn new() -> RingState {
        RingState {
            size: DEFAULT_RING_SIZE,
            addresses: None,
            next_available: 0,
            kick: None,
            call: Arc::default(),
            is_enabled: false,
            thread: None,
        }
    }

    fn stop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.next_available = thread.stop().unwrap_or(0);
        }
    }
}

/// The device of one monitor.
pub(super) struct Device {
    setup: Arc<DeviceSetup>,
    config: Config,
    stream: UnixStream,
    features: Features,
    /// Whether the guest switched the write cache on.
    writeback: bool,
    /// Read by the threads of its rings: whether each write must be durable.
    writes_through: Arc<AtomicBool>,
    memory: Option<Arc<Memory>>,
    mappings: Vec<Mapping>,
    in_flight: Option<Arc<InFlightArea>>,
    rings: Vec<RingState>,
}

impl Device {
    pub(super) fn new(setup: Arc<DeviceSetup>, stream: UnixStream) -> Device {
        Device {
            config: setup.config(),
            setup,
            stream,
            features: Features(0),
            writeback: true,
            writes_through: Arc::new(AtomicBool::new(true)),
            memory: None,
            mappings: Vec::new(),
            in_flight: None,
            rings: (0..MAX_QUEUES).map(|_| RingState::new()).collect(),
        }
    }

    /// Finishes the requests of its rings, and ends their threads.
    pub(super) fn stop(&mut self) {
        self.rings.iter_mut().for_each(RingState::stop);
    }

    fn ring(&mut self, index: usize) -> Result<&mut RingState> {
        self.rings.get_mut(index).ok_or(Error::InvalidParam)
    }

    /// Updates the setting for the threads. A guest without the flush feature gets no write
    /// cache.
    fn update_write_cache(&self) {
        let has_cache = self.writeback && self.features.has(Features::FLUSH);
        self.writes_through.store(!has_cache, Ordering::Relaxed);
    }

    /// Translates an address of the monitor into the guest's.
    fn guest_address(&self, monitor: u64) -> Result<u64> {
        let holds = |mapping: &&Mapping| {
            let offset = monitor.checked_sub(mapping.monitor);
            offset.is_some_and(|offset| offset < mapping.size_bytes)
        };
        let mapping = self.mappings.iter().find(holds);
        let mapping = mapping.ok_or(Error::InvalidParam)?;
        Ok(monitor - mapping.monitor + mapping.guest)
    }

    /// Starts a ring, if it is completely set up and not running.
    fn start(&mut self, index: usize) -> Result<()> {
        let ring = self.ring(index)?;
        if ring.thread.is_some() || !ring.is_enabled {
            return Ok(());
        }
        let (Some(addresses), Some(kick)) = (ring.addresses, ring.kick.clone()) else {
            return Ok(());
        };
        let (size, next_available, call) = (ring.size, ring.next_available, Arc::clone(&ring.call));
        let Some(memory) = self.memory.clone() else {
            return Ok(());
        };
        let addresses = RingAddresses {
            descriptors: self.guest_address(addresses.descriptors)?,
            available: self.guest_address(addresses.available)?,
            used: self.guest_address(addresses.used)?,
        };
        let has_event_index = self.features.has(Features::EVENT_INDEX);
        let ring = Ring::new(&memory, size, addresses, next_available, has_event_index);
        let mut ring = ring.map_err(|_| Error::InvalidParam)?;
        let (mut in_flight, mut unanswered) = (None, Vec::new());
        if let Some(area) = &self.in_flight {
            let record = area.queue(index as u16, ring.size());
            let mut record = record.ok_or(Error::InvalidParam)?;
            unanswered = record.recover(ring.next_used());
            ring.skip_to_unanswered(unanswered.len() as u16);
            in_flight = Some(record);
        }
        let queue = Queue::new(QueueSetup {
            device: Arc::clone(&self.setup),
            memory,
            ring,
            in_flight,
            unanswered,
            kick,
            call,
            writes_through: Arc::clone(&self.writes_through),
            stream: self.stream.try_clone().map_err(Error::SocketError)?,
        });
        let thread = queue.and_then(Queue::start);
        self.rings[index].thread = Some(thread.map_err(Error::ReqHandlerError)?);
        Ok(())
    }

    fn map(&mut self, regions: &[VhostUserMemoryRegion], files: Vec<File>) -> Result<()> {
        let mut ranges = Vec::with_capacity(regions.len());
        let mut mappings = Vec::with_capacity(regions.len());
        for (region, file) in regions.iter().zip(files) {
            let end = region.mmap_offset.checked_add(region.memory_size);
            let end = end.ok_or(Error::InvalidParam)?;
            let is_whole = file.metadata().is_ok_and(|found| found.len() >= end);
            let is_safe = self.setup.allow_unsealed && is_whole || cannot_shrink_below(&file, end);
            if !is_safe {
                eprintln!(
                    "blklab: vhost-user: memory that may shrink is not served; share it as a sealed memfd (QEMU: memory-backend-memfd,share=on), or allow it with --insecure-unsealed-memory"
                );
                return Err(Error::InvalidParam);
            }
            mappings.push(Mapping {
                guest: region.guest_phys_addr,
                monitor: region.user_addr,
                size_bytes: region.memory_size,
            });
            ranges.push((
                GuestAddress(region.guest_phys_addr),
                region.memory_size as usize,
                Some(FileOffset::new(file, region.mmap_offset)),
            ));
        }
        ranges.sort_by_key(|(address, ..)| *address);
        let memory = Memory::from_ranges_with_files(&ranges);
        self.memory = Some(Arc::new(memory.map_err(|_| Error::InvalidParam)?));
        self.mappings = mappings;
        Ok(())
    }
}

/// Makes the monitor's descriptor non-blocking, so that it cannot make a thread wait.
fn nonblocking(file: File) -> Result<File> {
    let set = fcntl_getfl(&file).and_then(|flags| fcntl_setfl(&file, flags | OFlags::NONBLOCK));
    set.map_err(|error| Error::ReqHandlerError(error.into()))?;
    Ok(file)
}

const NOT_OFFERED: Error = Error::InvalidOperation("not offered");

impl VhostUserBackendReqHandlerMut for Device {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.reset_device()
    }

    fn reset_device(&mut self) -> Result<()> {
        self.stop();
        self.rings
            .iter_mut()
            .for_each(|ring| *ring = RingState::new());
        self.features = Features(0);
        self.writeback = true;
        self.update_write_cache();
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.config.features().0)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if !self.config.features().has(Features(features)) {
            return Err(Error::InvalidParam);
        }
        self.features = Features(features);
        self.update_write_cache();
        // Without the protocol features there is no message that enables rings.
        let are_enabled = !self.features.has(Features::VHOST_USER_PROTOCOL);
        if are_enabled {
            self.rings
                .iter_mut()
                .for_each(|ring| ring.is_enabled = true);
        }
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy_listening: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        let running: Vec<usize> = (0..self.rings.len())
            .filter(|index| self.rings[*index].thread.is_some())
            .collect();
        self.stop();
        self.map(regions, files)?;
        running
            .into_iter()
            .try_for_each(|index| self.start(index))?;
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        self.ring(index as usize)?.size = num;
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        self.ring(index as usize)?.addresses = Some(RingAddresses {
            descriptors: descriptor,
            available,
            used,
        });
        Ok(())
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.ring(index as usize)?.next_available = base as u16;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let ring = self.ring(index as usize)?;
        ring.stop();
        ring.kick = None;
        let next = u32::from(ring.next_available);
        Ok(VhostUserVringState::new(index, next))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        // A ring without a kick descriptor must be polled all the time, which is not offered.
        let kick = nonblocking(fd.ok_or(NOT_OFFERED)?)?;
        let ring = self.ring(index.into())?;
        ring.stop();
        ring.kick = Some(Arc::new(kick));
        self.start(index.into())
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let call = fd.map(nonblocking).transpose()?;
        *locked(&self.ring(index.into())?.call) = call;
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, _fd: Option<File>) -> Result<()> {
        // The descriptor is not needed, because a broken ring ends the connection.
        self.ring(index.into()).map(drop)
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::RESET_DEVICE)
    }

    fn set_protocol_features(&mut self, _features: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(MAX_QUEUES.into())
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        let ring = self.ring(index as usize)?;
        ring.is_enabled = enable;
        match enable {
            true => self.start(index as usize),
            false => {
                ring.stop();
                Ok(())
            }
        }
    }

    fn get_config(
        &mut self,
        offset: u32,
        size: u32,
        _flags: VhostUserConfigFlags,
    ) -> Result<Vec<u8>> {
        let (offset, size) = (offset as usize, size as usize);
        Ok(self.config.read(self.writeback, offset, size))
    }

    fn set_config(&mut self, offset: u32, buf: &[u8], _flags: VhostUserConfigFlags) -> Result<()> {
        let writeback = Config::written_writeback(offset as usize, buf);
        self.writeback = writeback.ok_or(Error::InvalidParam)?;
        self.update_write_cache();
        Ok(())
    }

    fn get_inflight_fd(
        &mut self,
        inflight: &VhostUserInflight,
    ) -> Result<(VhostUserInflight, File)> {
        let (queues, queue_size) = (inflight.num_queues, inflight.queue_size);
        if queues > MAX_QUEUES {
            return Err(Error::InvalidParam);
        }
        let file = InFlightArea::create(queues, queue_size).map_err(Error::ReqHandlerError)?;
        let bytes = InFlightArea::size_bytes(queues, queue_size);
        Ok((VhostUserInflight::new(bytes, 0, queues, queue_size), file))
    }

    fn set_inflight_fd(&mut self, inflight: &VhostUserInflight, file: File) -> Result<()> {
        let VhostUserInflight {
            mmap_offset,
            num_queues,
            queue_size,
            ..
        } = *inflight;
        if num_queues > MAX_QUEUES {
            return Err(Error::InvalidParam);
        }
        let area = InFlightArea::open(file, mmap_offset, num_queues, queue_size);
        self.in_flight = Some(area.map_err(|_| Error::InvalidParam)?);
        Ok(())
    }

    // The following messages belong to features that are not offered.

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        Err(NOT_OFFERED)
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        Err(NOT_OFFERED)
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Err(NOT_OFFERED)
    }

    fn add_mem_region(
        &mut self,
        _: &VhostUserSingleMemoryRegion,
        _: File,
        _: Option<bool>,
    ) -> Result<Option<u64>> {
        Err(NOT_OFFERED)
    }

    fn remove_mem_region(&mut self, _: &VhostUserSingleMemoryRegion) -> Result<()> {
        Err(NOT_OFFERED)
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        Err(NOT_OFFERED)
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(NOT_OFFERED)
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(NOT_OFFERED)
    }

    fn set_log_base(&mut self, _: &VhostUserLog, _: File) -> Result<()> {
        Err(NOT_OFFERED)
    }
}
