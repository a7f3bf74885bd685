//! The cable: who may send when.

use crate::ssd::spec::LinkSpec;

/// One or two lanes that serve transfers in the order in which they are asked
/// for. SATA sends one way at a time, PCIe both ways at once.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    spec: LinkSpec,
    to_drive_ns: u64,
    to_host_ns: u64,
}

impl Link {
    pub(crate) fn new(spec: LinkSpec) -> Link {
        Link {
            spec,
            to_drive_ns: 0,
            to_host_ns: 0,
        }
    }

    /// Nothing is under way, and nothing comes through before `ready_ns`.
    pub(crate) fn power_off(&mut self, ready_ns: u64) {
        self.to_drive_ns = ready_ns;
        self.to_host_ns = ready_ns;
    }

    /// Whether both directions share one lane, so that what is booked for one
    /// keeps the other waiting.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        !self.spec.full_duplex
    }

    #[inline]
    fn transfer_ns(&self, bytes: u64) -> u64 {
        (bytes * self.spec.byte_ps).div_ceil(1000)
    }

    /// When data that is ready at the host by `now_ns` is in the drive.
    #[inline]
    pub(crate) fn receive(&mut self, now_ns: u64, bytes: u64) -> u64 {
        let end_ns = self.to_drive_ns.max(now_ns) + self.transfer_ns(bytes);
        self.to_drive_ns = end_ns;
        if !self.spec.full_duplex {
            self.to_host_ns = end_ns;
        }
        end_ns
    }

    /// When a command's status, whose size does not count, can follow.
    #[inline]
    pub(crate) fn send_status(&mut self, now_ns: u64) -> u64 {
        self.to_host_ns.max(now_ns)
    }

    /// When data that is ready in the drive by `now_ns` is at the host.
    #[inline]
    pub(crate) fn send(&mut self, now_ns: u64, bytes: u64) -> u64 {
        let end_ns = self.to_host_ns.max(now_ns) + self.transfer_ns(bytes);
        self.to_host_ns = end_ns;
        if !self.spec.full_duplex {
            self.to_drive_ns = end_ns;
        }
        end_ns
    }
}
