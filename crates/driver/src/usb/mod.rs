//! SATA drives behind a USB bridge: the drivers `uas` and `usb-storage`.
//!
//! Both are SCSI hosts with one queue. Bulk-only transport (USB Mass Storage Class, Bulk-Only
//! Transport 1.0) has one command at a time, in three transfers that follow each other: the
//! command (CBW), its data and its status (CSW). USB Attached SCSI (T10 UAS) has a pipe each for
//! commands, status, data in and data out, and tells its commands apart by tags, on SuperSpeed by
//! a stream each.

mod link;

use alloc::boxed::Box;

use blklab_blk::{BlkStatus, Nanos, QueueConfig, Request, RequestId};
use blklab_description::{ReadError, Table, keys, number, word};
use blklab_device::Device;
use strum::{Display, EnumMessage, VariantArray};

use crate::KernelDriver;
use crate::port::{Budget, Port};

use link::Bridge;

/// Commands of a UAS device: the 32 streams of usual bridges, of which the driver leaves two
/// unused (`uas_slave_configure`). Without streams it assumes as many tags.
const UAS_COMMANDS: u32 = 30;

/// What the bridge and the kernel speak, by the kernel's name for the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumMessage, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum UsbProtocol {
    /// USB Attached SCSI: 30 commands at once.
    Uas,
    /// Bulk-only transport: one command at a time.
    UsbStorage,
}

/// How fast the bus is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumMessage, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum UsbSpeed {
    /// USB 2.0: 480 Mbit/s, one way at a time.
    High,
    /// USB 3.0: 5 Gbit/s each way.
    Super,
}

impl UsbSpeed {
    /// Data that bulk transfers carry, at most.
    fn bandwidth_mb_s(self) -> f64 {
        match self {
            // USB 2.0, table 5-10: 13 packets of 512 bytes in each of 8000 microframes a second.
            UsbSpeed::High => 13.0 * 512.0 * 8000.0 / 1e6,
            // USB 3.0, 7.2.1: 500 MB/s after 8b/10b, and 32 bytes of frame and header for each
            // packet of 1024.
            UsbSpeed::Super => 500.0 * 1024.0 / 1056.0,
        }
    }
}

keys! {
    /// How SATA drives are attached to a machine that has USB alone.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct UsbLink(table) {
        /// What the bridge and the kernel speak.
        pub protocol: UsbProtocol = word();
        /// How fast the bus is.
        pub speed: UsbSpeed = word();
        /// What the host controller moves at most, where that is less than the bus does.
        pub bandwidth_mb_s: Option<f64> = number(1.0..=1e6).optional();
    }
}

impl UsbLink {
    /// Reads the table `[usb]` of a machine's description.
    ///
    /// # Errors
    /// Where a key is missing or not legal.
    pub fn of_table(table: &Table<'_>) -> Result<UsbLink, ReadError> {
        UsbLink::read(table)
    }

    /// Transfers of a command: command, data and status.
    pub const TRANSFERS: u64 = 3;

    /// Interrupts of a command. Data and status end together under UAS, and the host controller
    /// tells of both at once (`imod_interval`).
    pub fn interrupts(&self) -> u64 {
        match self.protocol {
            UsbProtocol::Uas => 2,
            UsbProtocol::UsbStorage => 3,
        }
    }

    /// How often a command wakes the driver's thread, which waits for each transfer of bulk-only
    /// transport (`usb_stor_control_thread`).
    pub fn wakeups(&self) -> u64 {
        match self.protocol {
            UsbProtocol::Uas => 0,
            UsbProtocol::UsbStorage => 3,
        }
    }

    /// Whether the bridge may send data without having been asked for it: each command has a
    /// stream of its own, on which its data transfer waits.
    fn has_streams(&self) -> bool {
        (self.protocol, self.speed) == (UsbProtocol::Uas, UsbSpeed::Super)
    }

    fn commands(&self) -> u32 {
        match self.protocol {
            UsbProtocol::Uas => UAS_COMMANDS,
            UsbProtocol::UsbStorage => 1,
        }
    }

    /// Largest request in sectors of 512 bytes: `SCSI_DEFAULT_MAX_SECTORS` for UAS, and what
    /// `usb-storage` sets by the bus's speed (`slave_configure`).
    fn max_sectors(&self) -> u32 {
        match (self.protocol, self.speed) {
            (UsbProtocol::Uas, _) => 1024,
            (UsbProtocol::UsbStorage, UsbSpeed::Super) => 2048,
            (UsbProtocol::UsbStorage, UsbSpeed::High) => 240,
        }
    }

    fn byte_ps(&self) -> u64 {
        let bus = self.speed.bandwidth_mb_s();
        let mb_s = self.bandwidth_mb_s.map_or(bus, |host| host.min(bus));
        libm::round(1e6 / mb_s) as u64
    }
}

/// A bridge on a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UsbBridge {
    /// How it is attached.
    pub link: UsbLink,
    /// How long the machine takes from the end of a transfer to the start of the one that has to
    /// wait for it.
    pub turnaround: Nanos,
}

/// The driver of a drive behind a bridge.
pub struct Usb {
    port: Port,
    budget: Budget,
}

impl Usb {
    pub(crate) fn new(drive: Box<dyn Device>, bridge: UsbBridge) -> Usb {
        let bridge = Bridge::new(drive, bridge);
        let budget = Budget::new(bridge.identify().queue_depth);
        Usb {
            port: Port::new(Box::new(bridge)),
            budget,
        }
    }
}

impl KernelDriver for Usb {
    #[inline]
    fn port(&self) -> &Port {
        &self.port
    }

    #[inline]
    fn port_mut(&mut self) -> &mut Port {
        &mut self.port
    }

    fn queue_config(&self, nr_cpus: usize) -> QueueConfig {
        self.port.queue_config(nr_cpus, 1, self.budget.depth())
    }

    fn queue_rq(&mut self, now: Nanos, hctx: usize, id: RequestId, rq: &Request) -> BlkStatus {
        self.port.submit(now, hctx, id, rq);
        BlkStatus::Ok
    }

    fn get_budget(&mut self) -> bool {
        self.budget.take()
    }

    fn put_budget(&mut self) {
        self.budget.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(protocol: UsbProtocol, speed: UsbSpeed) -> UsbLink {
        UsbLink {
            protocol,
            speed,
            bandwidth_mb_s: None,
        }
    }

    /// Bulk-only transport has an interrupt and a wake-up of its thread for each transfer; UAS tells
    /// of data and status together, in interrupt context.
    #[test]
    fn a_command_costs_what_its_transfers_do() {
        let cost = |protocol| {
            let link = link(protocol, UsbSpeed::Super);
            (link.interrupts(), link.wakeups())
        };
        assert_eq!(cost(UsbProtocol::Uas), (2, 0));
        assert_eq!(cost(UsbProtocol::UsbStorage), (3, UsbLink::TRANSFERS));
    }

    #[test]
    fn streams_are_of_uas_on_super_speed() {
        let streams = |protocol| {
            let speeds = [UsbSpeed::High, UsbSpeed::Super];
            speeds.map(|speed| link(protocol, speed).has_streams())
        };
        assert_eq!(streams(UsbProtocol::Uas), [false, true]);
        assert_eq!(streams(UsbProtocol::UsbStorage), [false, false]);
    }

    /// 53.248 MB/s, and 484.848 MB/s.
    #[test]
    fn a_byte_takes_what_the_bus_leaves_for_data() {
        let byte_ps = |speed| link(UsbProtocol::Uas, speed).byte_ps();
        assert_eq!(byte_ps(UsbSpeed::High), 18_780);
        assert_eq!(byte_ps(UsbSpeed::Super), 2_063);
    }

    #[test]
    fn budget_that_is_given_back_can_be_taken_again() {
        let spec = blklab_device::registry::find("mx100-256");
        let spec = spec.expect("known").expect("valid");
        let bridge = UsbBridge {
            link: link(UsbProtocol::UsbStorage, UsbSpeed::High),
            turnaround: Nanos(20_000),
        };
        let mut usb = Usb::new(spec.build(1), bridge);
        assert!(usb.get_budget() && !usb.get_budget());
        usb.put_budget();
        assert!(usb.get_budget() && !usb.get_budget());
    }
}
