//! What faults a drive had.

use crate::fact::counters;

counters! {
    /// Faults of a drive.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct FaultStats {
        /// Commands that stood still for a while.
        pub stalls: u64 => sum Drive Count "commands that stalled",
        /// Reads that ended with an error, as a sector could not be read.
        pub reads_failed: u64 => sum Drive Count "reads of unreadable sectors",
        /// Sectors that became unreadable.
        pub latent_errors: u64 => sum Drive Count "  sectors that became unreadable",
        /// Bits that turned on the medium, which nothing tells.
        pub bits_rotted: u64 => sum Drive Count "bits that turned on the medium",
        /// Reads that were given what was there before the last write.
        pub stale_reads: u64 => sum Drive Count "reads given stale data",
        /// Reads that were given another place's data.
        pub misdirected_reads: u64 => sum Drive Count "reads given another place's data",
    }
    "fault_" of |disk| disk.device.faults.as_ref()
}
