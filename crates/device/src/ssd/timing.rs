//! How long every step takes, worked out once.

use super::op::OpKind;
use super::spec::SsdSpec;

/// Largest transfer that is looked up rather than multiplied out.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    byte_ps: u64,
    command_ns: [u64; 3],
    pub(crate) plane_command_ns: u64,
    read_ns: Vec<u64>,
    program_ns: Vec<u64>,
    erase_ns: u64,
}

impl Timing {
    pub(crate) fn new(spec: &SsdSpec) -> Timing {
        let channel = &spec.channel;
        Timing {
            byte_ps: channel.byte_ps,
            command_ns: [
                channel.read_command_ns,
                channel.program_command_ns,
                channel.erase_command_ns,
            ],
            plane_command_ns: channel.plane_command_ns,
            read_ns: spec.flash.read_ns.clone(),
            program_ns: spec.flash.program_ns.clone(),
            erase_ns: spec.flash.erase_ns,
        }
    }

    /// Data over the channel.
    #[inline]
    pub(crate) fn data_ns(&self, bytes: u32) -> u64 {
        bytes as u64 * self.byte_ps / 1000
    }

    /// Command and address cycles of a command for one plane.
    #[inline]
    pub(crate) fn command_ns(&self, kind: OpKind) -> u64 {
        self.command_ns[kind as usize]
    }

    /// The array at work. The pages of a word line, one a bit of the cell,
    /// follow each other; each bit has its own time.
    #[inline]
    pub(crate) fn array_ns(&self, kind: OpKind, page: u32) -> u64 {
        let level = |times: &[u64]| match times.len() {
            1 => times[0],
            2 => times[(page & 1) as usize],
            n => times[page as usize % n],
        };
        match kind {
            OpKind::Read => level(&self.read_ns),
            OpKind::Program => level(&self.program_ns),
            OpKind::Erase => self.erase_ns,
        }
    }
}
