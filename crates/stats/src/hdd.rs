//! What a disk's arm, platters and buffer did.
/// A disk's arm, platters and buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArmStats {
    /// Movements of the arm to another cylinder.
    pub seeks: u64,
    /// Cylinders that it crossed.
    pub seek_cylinders: u64,
    /// Time that this took until the heads had settled, in nanoseconds.
    pub seek_ns: u64,
    /// Changes to another head of the same cylinder.
    pub head_switches: u64,
    /// Time that these took, in nanoseconds.
    pub head_switch_ns: u64,
    /// Times that heads waited for a block to come around.
    pub rotation_waits: u64,
    /// Time that they waited, in nanoseconds.
    pub rotation_ns: u64,
    /// Time in which blocks passed under the heads to be read or written, in
    /// nanoseconds.
    pub transfer_ns: u64,
    /// Times that heads read for a command of the host's.
    pub reads: u64,
    /// Those of them that came as reading ahead was about to reach them.
    pub reads_streamed: u64,
    /// Times that heads wrote, for a command or to empty the buffer.
    pub writes: u64,
    /// Blocks that were read because they were written in part.
    pub blocks_completed: u64,
    /// Sectors that passed under the heads to be read.
    pub sectors_read: u64,
    /// Sectors that passed under the heads to be written.
    pub sectors_written: u64,
    /// Writes that ended in the buffer.
    pub writes_buffered: u64,
    /// Those of them that waited for room.
    pub writes_waited: u64,
    /// Runs written out of the buffer.
    pub destages: u64,
    /// Sectors of these.
    pub sectors_destaged: u64,
    /// Flushes.
    pub flushes: u64,
    /// Time that they took, in nanoseconds.
    pub flush_ns: u64,
}
