//! A driver of a virtio disk over vhost-user, in place of a virtual machine.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

use blklab_virtio::vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryBackend};
use blklab_virtio::{DriverRing, Ended, Features, Memory, Operation, RingLayout, shared_file};
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// How long to wait before the caller looks at its clock again.
const WAIT_MS: i32 = 1000;
/// Bytes of the configuration space that hold the disk's size.
const CAPACITY_BYTES: u32 = 8;

/// A disk, with its rings running.
pub struct Machine {
    // Held for as long as the rings are used: the server ends with its socket.
    frontend: Frontend,
    capacity_bytes: u64,
}

/// A ring of a [`Machine`].
pub struct MachineQueue {
    memory: Arc<Memory>,
    ring: DriverRing,
    kick: EventFd,
    call: EventFd,
    /// Waits for `call`.
    epoll: Epoll,
}

/// What a machine keeps where its server ends, for the next one.
pub struct Kept {
    in_flight: File,
    layout: VhostUserInflight,
}

/// How a machine uses its disk.
#[derive(Clone, Copy, Debug)]
pub struct MachineSetup {
    /// Rings, each for a thread.
    pub queues: u16,
    /// Requests of each queue at once.
    pub depth: u16,
    /// Bytes of data of each request, at most.
    pub data_bytes: u32,
}

impl Machine {
    /// Rings and memory for a disk, which [`Machine::start`] starts.
    ///
    /// # Errors
    /// Where the kernel gives no memory.
    pub fn queues(setup: MachineSetup) -> Result<Vec<MachineQueue>, String> {
        let mut layouts = Vec::new();
        let mut start = 0;
        for _ in 0..setup.queues {
            let layout = RingLayout {
                depth: setup.depth,
                data_bytes: setup.data_bytes,
                start,
            };
            start = layout.end();
            layouts.push(layout);
        }
        let file = shared_file("blklab-machine", start).map_err(|e| e.to_string())?;
        let mapped = [(
            GuestAddress(0),
            start as usize,
            Some(FileOffset::new(file, 0)),
        )];
        let memory = Memory::from_ranges_with_files(&mapped).map_err(|e| e.to_string())?;
        let memory = Arc::new(memory);
        let event = || EventFd::new(EFD_NONBLOCK).map_err(|e| e.to_string());
        let mut queues = Vec::new();
        for layout in layouts {
            let (epoll, call) = (Epoll::new().map_err(|e| e.to_string())?, event()?);
            let interest = EpollEvent::new(EventSet::IN, 0);
            let added = epoll.ctl(ControlOperation::Add, call.as_raw_fd(), interest);
            added.map_err(|e| e.to_string())?;
            queues.push(MachineQueue {
                memory: Arc::clone(&memory),
                ring: DriverRing::new(layout),
                kick: event()?,
                call,
                epoll,
            });
        }
        Ok(queues)
    }

    /// Starts rings. Where their former server is gone, requests under way that
    /// `kept` tells of are not lost.
    ///
    /// # Errors
    /// Where the server cannot be reached or refuses.
    pub fn start(
        path: &Path,
        queues: &[MachineQueue],
        kept: Option<Kept>,
    ) -> Result<(Machine, Option<Kept>), String> {
        let failed = |what: &str, e: vhost::Error| format!("vhost-user: {what}: {e}");
        let mut frontend = Frontend::connect(path, queues.len() as u64)
            .map_err(|e| format!("{}: {e}", path.display()))?;
        let offered = frontend.get_features().map_err(|e| failed("features", e))?;
        let wanted = Features::EVENT_INDEX
            .with(Features::VERSION_1)
            .with(Features::FLUSH)
            .with(Features::MQ)
            .with(Features::DISCARD)
            .with(Features::WRITE_ZEROES)
            .with(Features::VHOST_USER_PROTOCOL);
        frontend.set_owner().map_err(|e| failed("owner", e))?;
        frontend
            .set_features(offered & wanted.0)
            .map_err(|e| failed("features", e))?;
        let offered = frontend.get_protocol_features();
        let offered = offered.map_err(|e| failed("protocol features", e))?;
        let wanted = VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD;
        let used = offered & wanted;
        frontend
            .set_protocol_features(used)
            .map_err(|e| failed("protocol features", e))?;
        if used.contains(VhostUserProtocolFeatures::REPLY_ACK) {
            frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        }
        let capacity = frontend.get_config(
            0,
            CAPACITY_BYTES,
            VhostUserConfigFlags::WRITABLE,
            &[0; CAPACITY_BYTES as usize],
        );
        let (_, capacity) = capacity.map_err(|e| failed("configuration", e))?;
        let mut sectors = [0; CAPACITY_BYTES as usize];
        sectors.copy_from_slice(&capacity[..CAPACITY_BYTES as usize]);
        let mut machine = Machine {
            frontend,
            capacity_bytes: u64::from_le_bytes(sectors).saturating_mul(512),
        };
        let tracks = used.contains(VhostUserProtocolFeatures::INFLIGHT_SHMFD);
        let kept = match tracks {
            true => Some(
                machine
                    .track(queues, kept)
                    .map_err(|e| failed("in flight", e))?,
            ),
            false => None,
        };
        machine
            .start_rings(queues)
            .map_err(|e| failed("rings", e))?;
        Ok((machine, kept))
    }

    /// Bytes of the disk.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn track(&mut self, queues: &[MachineQueue], kept: Option<Kept>) -> vhost::Result<Kept> {
        let kept = match kept {
            Some(kept) => kept,
            None => {
                let size = queues[0].ring.layout().size();
                let asked = VhostUserInflight::new(0, 0, queues.len() as u16, size);
                let (layout, in_flight) = self.frontend.get_inflight_fd(&asked)?;
                Kept { in_flight, layout }
            }
        };
        let descriptor = kept.in_flight.as_raw_fd();
        self.frontend.set_inflight_fd(&kept.layout, descriptor)?;
        Ok(kept)
    }

    fn start_rings(&mut self, queues: &[MachineQueue]) -> vhost::Result<()> {
        let memory = &queues[0].memory;
        let mut regions = Vec::new();
        for region in memory.iter() {
            regions.push(VhostUserMemoryRegionInfo::from_guest_region(region)?);
        }
        let base = regions.first().map_or(0, |region| region.userspace_addr);
        self.frontend.set_mem_table(&regions)?;
        for (index, queue) in queues.iter().enumerate() {
            let size = queue.ring.layout().size();
            let at = queue.ring.layout().addresses();
            self.frontend.set_vring_num(index, size)?;
            self.frontend.set_vring_base(index, 0)?;
            self.frontend.set_vring_addr(
                index,
                &VringConfigData {
                    queue_max_size: size,
                    queue_size: size,
                    flags: 0,
                    desc_table_addr: base + at.descriptors,
                    used_ring_addr: base + at.used,
                    avail_ring_addr: base + at.available,
                    log_addr: None,
                },
            )?;
            self.frontend.set_vring_call(index, &queue.call)?;
            self.frontend.set_vring_kick(index, &queue.kick)?;
            self.frontend.set_vring_enable(index, true)?;
        }
        Ok(())
    }
}

impl MachineQueue {
    /// Puts data where a request finds it.
    ///
    /// # Errors
    /// Where it is more than the setup said.
    pub fn write_data(&self, slot: u16, data: &[u8]) -> Result<(), String> {
        let at = GuestAddress(self.ring.layout().data(slot));
        self.memory.write_slice(data, at).map_err(|e| e.to_string())
    }

    /// Takes data where a request has put it.
    ///
    /// # Errors
    /// Where it is more than the setup said.
    pub fn read_data(&self, slot: u16, data: &mut [u8]) -> Result<(), String> {
        let at = GuestAddress(self.ring.layout().data(slot));
        self.memory.read_slice(data, at).map_err(|e| e.to_string())
    }

    /// Gives a request to the disk, which is told of it by [`MachineQueue::kick`].
    ///
    /// # Errors
    /// Where the memory is smaller than the ring.
    pub fn submit(
        &mut self,
        slot: u16,
        operation: Operation,
        sector: u64,
        length: u32,
    ) -> Result<(), String> {
        let submitted = self
            .ring
            .submit(&self.memory, slot, operation, sector, length);
        submitted.map_err(|e| e.to_string())
    }

    /// Tells the disk of what was submitted, if it wants to be told.
    ///
    /// # Errors
    /// Where the kernel fails, or the memory is smaller than the ring.
    pub fn kick(&mut self) -> Result<(), String> {
        if self
            .ring
            .needs_kick(&self.memory)
            .map_err(|e| e.to_string())?
        {
            self.kick.write(1).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// The next request that ended.
    ///
    /// # Errors
    /// Where the kernel fails, or the memory is smaller than the ring.
    pub fn take_ended(&mut self) -> Result<Option<Ended>, String> {
        self.ring
            .take_ended(&self.memory)
            .map_err(|e| e.to_string())
    }

    /// Waits until a request ends. Returns whether one may have, within a second.
    ///
    /// # Errors
    /// Where the kernel fails, or the memory is smaller than the ring.
    pub fn wait(&mut self) -> Result<bool, String> {
        if self
            .ring
            .enable_interrupt(&self.memory)
            .map_err(|e| e.to_string())?
        {
            return Ok(true);
        }
        let mut events = [EpollEvent::default()];
        match self.epoll.wait(WAIT_MS, &mut events) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.to_string()),
        }
        // One that was read meanwhile holds nothing.
        let _ = self.call.read();
        Ok(true)
    }
}
