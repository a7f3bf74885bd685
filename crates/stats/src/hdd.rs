//! Counters of a disk's arm, platters and buffer.

use crate::fact::counters;

counters! {
    /// A disk's arm, platters and buffer.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ArmStats {
        /// Movements of the arm to another cylinder.
        pub seeks: u64 => sum Drive Count "seeks",
        /// Cylinders that the arm crossed.
        pub seek_cylinders: u64 => per(seeks) Drive Ratio "  cylinders crossed, mean":
            "Cylinders that the arm crossed in a seek, mean.",
        /// Time of the seeks until the heads had settled, in nanoseconds.
        pub seek_ns: u64 => per(seeks) Drive Nanoseconds "  one took, mean":
            "Time of a seek until the heads had settled, mean.",
        /// Changes to another head of the same cylinder.
        pub head_switches: u64 => sum Drive Count "head switches",
        /// Time of the head switches, in nanoseconds.
        pub head_switch_ns: u64
            => time(seek_ns, head_switch_ns) Drive Share "arm seeking or changing heads":
                "Share of the time in which the drive was seeking or switching heads.",
        /// Waits for a block to rotate under the heads.
        pub rotation_waits: u64 => sum Drive Count "waits for rotation",
        /// Time of these waits (rotational latency), in nanoseconds.
        pub rotation_ns: u64
            => per(rotation_waits) Drive Nanoseconds "  one took, mean":
                "Rotational latency of a wait, mean.";
            time(rotation_ns) Drive Share "heads waiting for their block to come around":
                "Share of the time that was rotational latency.",
        /// Time in which blocks passed under the heads to be read or written, in
        /// nanoseconds.
        pub transfer_ns: u64 => time(transfer_ns) Drive Share "blocks passing under the heads":
            "Share of the time in which blocks passed under the heads to be read or written.",
        /// Reads from the platters for a command of the host.
        pub reads: u64 => sum Drive Count "reads from the platters",
        /// Reads from the platters of blocks that readahead was about to reach.
        pub reads_streamed: u64
            => sum Drive Count "  that reading ahead was about to reach",
        /// Commands that the disk did next because they had waited for longer than
        /// controller.patience_us.
        pub overdue: u64 => sum Drive Count "commands done next by patience_us",
        /// Writes to the platters, for a command or to empty the buffer.
        pub writes: u64 => sum Drive Count "writes to the platters",
        /// Physical blocks read because only a part of them was written.
        pub blocks_completed: u64
            => sum Drive Count "blocks read because they were written in part",
        /// Sectors that passed under the heads to be read.
        pub sectors_read: u64,
        /// Sectors that passed under the heads to be written.
        pub sectors_written: u64,
        /// Writes that ended in the buffer.
        pub writes_buffered: u64 => sum Drive Count "writes that ended in the buffer",
        /// Writes that waited for room in the buffer.
        pub writes_waited: u64 => sum Drive Count "  that waited for room in it",
        /// Runs of adjacent sectors written out of the buffer.
        pub destages: u64 => sum Drive Count "runs written out of the buffer",
        /// Sectors of these runs.
        pub sectors_destaged: u64 => per(destages) Drive Ratio "  sectors of one, mean":
            "Sectors of a run written out of the buffer, mean.",
        /// Flushes of the buffer.
        pub flushes: u64 => sum Drive Count "flushes of the buffer",
        /// Time of the flushes, in nanoseconds.
        pub flush_ns: u64 => per(flushes) Drive Nanoseconds "  one took, mean":
            "Time of a flush of the buffer, mean.",
    }
    "arm_" of |disk| disk.device.arm.as_ref()
}
