//! Counters of a disk's arm, platters and buffer.

use crate::fact::counters;

counters! {
    /// A disk's arm, platters and buffer.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ArmStats {
        /// Movements of the arm to another cylinder.
        pub seeks: u64 => sum Drive Count "seeks",
        /// Cylinders that it crossed.
        pub seek_cylinders: u64 => per(seeks) Drive Ratio "  cylinders crossed, mean",
        /// Time that this took until the heads had settled, in nanoseconds.
        pub seek_ns: u64 => per(seeks) Drive Nanoseconds "  one took, mean",
        /// Changes to another head of the same cylinder.
        pub head_switches: u64 => sum Drive Count "head switches",
        /// Time that these took, in nanoseconds.
        pub head_switch_ns: u64
            => time(seek_ns, head_switch_ns) Drive Share "arm seeking or changing heads",
        /// Times that heads waited for a block to come around.
        pub rotation_waits: u64 => sum Drive Count "waits for rotation",
        /// Time that they waited, in nanoseconds.
        pub rotation_ns: u64
            => per(rotation_waits) Drive Nanoseconds "  one took, mean";
            time(rotation_ns) Drive Share "heads waiting for their block to come around",
        /// Time in which blocks passed under the heads to be read or written, in
        /// nanoseconds.
        pub transfer_ns: u64 => time(transfer_ns) Drive Share "blocks passing under the heads",
        /// Times that heads read for a command of the host's.
        pub reads: u64 => sum Drive Count "reads from the platters",
        /// Those of them that came as reading ahead was about to reach them.
        pub reads_streamed: u64
            => sum Drive Count "  that reading ahead was about to reach",
        /// Times that heads wrote, for a command or to empty the buffer.
        pub writes: u64 => sum Drive Count "writes to the platters",
        /// Blocks that were read because they were written in part.
        pub blocks_completed: u64
            => sum Drive Count "blocks read because they were written in part",
        /// Sectors that passed under the heads to be read.
        pub sectors_read: u64,
        /// Sectors that passed under the heads to be written.
        pub sectors_written: u64,
        /// Writes that ended in the buffer.
        pub writes_buffered: u64 => sum Drive Count "writes that ended in the buffer",
        /// Those of them that waited for room.
        pub writes_waited: u64 => sum Drive Count "  that waited for room in it",
        /// Runs written out of the buffer.
        pub destages: u64 => sum Drive Count "runs written out of the buffer",
        /// Sectors of these.
        pub sectors_destaged: u64 => per(destages) Drive Ratio "  sectors of one, mean",
        /// Flushes.
        pub flushes: u64 => sum Drive Count "flushes of the buffer",
        /// Time that they took, in nanoseconds.
        pub flush_ns: u64 => per(flushes) Drive Nanoseconds "  one took, mean",
    }
    "arm_" of |disk| disk.device.arm.as_ref()
}
