//! Feature bits and the configuration space of a device (section 5.2 of the specification).

/// The most data segments of one request where a drive sets no limit: with header and status
/// they fit into a queue of 128.
pub const MAX_SEGMENTS: u16 = 126;

/// Bytes of the configuration space; later fields belong to features that are not offered.
const CONFIG_BYTES: usize = 60;
/// The byte that the driver writes to switch the write cache (`writeback`).
const WRITEBACK_AT: usize = 32;

/// A set of feature bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features(pub u64);

impl Features {
    /// `VIRTIO_BLK_F_SEG_MAX`.
    pub const SEG_MAX: Features = Features(1 << 2);
    /// `VIRTIO_BLK_F_RO`.
    pub const READ_ONLY: Features = Features(1 << 5);
    /// `VIRTIO_BLK_F_BLK_SIZE`.
    pub const BLK_SIZE: Features = Features(1 << 6);
    /// `VIRTIO_BLK_F_FLUSH`.
    pub const FLUSH: Features = Features(1 << 9);
    /// `VIRTIO_BLK_F_TOPOLOGY`.
    pub const TOPOLOGY: Features = Features(1 << 10);
    /// `VIRTIO_BLK_F_CONFIG_WCE`: the driver may switch the write cache.
    pub const CONFIG_WCE: Features = Features(1 << 11);
    /// `VIRTIO_BLK_F_MQ`.
    pub const MQ: Features = Features(1 << 12);
    /// `VIRTIO_BLK_F_DISCARD`.
    pub const DISCARD: Features = Features(1 << 13);
    /// `VIRTIO_BLK_F_WRITE_ZEROES`.
    pub const WRITE_ZEROES: Features = Features(1 << 14);
    /// `VIRTIO_F_INDIRECT_DESC`.
    pub const INDIRECT: Features = Features(1 << 28);
    /// `VIRTIO_F_EVENT_IDX`.
    pub const EVENT_INDEX: Features = Features(1 << 29);
    /// `VHOST_USER_F_PROTOCOL_FEATURES`.
    pub const VHOST_USER_PROTOCOL: Features = Features(1 << 30);
    /// `VIRTIO_F_VERSION_1`.
    pub const VERSION_1: Features = Features(1 << 32);

    /// Whether all of `others` are in the set.
    pub fn has(self, others: Features) -> bool {
        self.0 & others.0 == others.0
    }

    /// The set with `others` added.
    #[must_use]
    pub fn with(self, others: Features) -> Features {
        Features(self.0 | others.0)
    }
}

/// The properties of a disk in its configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Its size, in sectors of 512 bytes.
    pub capacity_sectors: u64,
    /// Its logical block size.
    pub block_bytes: u32,
    /// Its preferred I/O size (`opt_io_size`).
    pub preferred_bytes: u32,
    /// The most data segments of one request (`seg_max`). More than a queue has room for come
    /// in an indirect table, as Linux' driver sends them.
    pub max_segments: u16,
    /// The number of its queues.
    pub queues: u16,
    /// The longest discard, in sectors; 0 if it takes none.
    pub max_discard_sectors: u32,
    /// The longest write of zeroes, in sectors.
    pub max_zeroes_sectors: u32,
    /// Writes are refused.
    pub read_only: bool,
}

impl Config {
    /// The features that the device offers.
    pub fn features(&self) -> Features {
        let mut features = Features::SEG_MAX
            .with(Features::BLK_SIZE)
            .with(Features::FLUSH)
            .with(Features::TOPOLOGY)
            .with(Features::CONFIG_WCE)
            .with(Features::MQ)
            .with(Features::INDIRECT)
            .with(Features::EVENT_INDEX)
            .with(Features::VHOST_USER_PROTOCOL)
            .with(Features::VERSION_1);
        if self.read_only {
            return features.with(Features::READ_ONLY);
        }
        if self.max_discard_sectors > 0 {
            features = features.with(Features::DISCARD);
        }
        features.with(Features::WRITE_ZEROES)
    }

    /// `length` bytes of the configuration space from `offset` on; zeroes after its end.
    pub fn read(&self, writeback: bool, offset: usize, length: usize) -> Vec<u8> {
        let space = self.encode(writeback);
        let byte = |at: usize| space.get(at).copied().unwrap_or(0);
        (0..length)
            .map(|at| byte(offset.saturating_add(at)))
            .collect()
    }

    /// The setting of the write cache in a driver's write. `None` for a write to any other
    /// field, which is not allowed.
    pub fn written_writeback(offset: usize, bytes: &[u8]) -> Option<bool> {
        match (offset, bytes) {
            (WRITEBACK_AT, [value @ (0 | 1)]) => Some(*value == 1),
            _ => None,
        }
    }

    fn encode(&self, writeback: bool) -> [u8; CONFIG_BYTES] {
        let mut space = [0; CONFIG_BYTES];
        let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
        let blocks = self.preferred_bytes / self.block_bytes.max(1);
        put(0, &self.capacity_sectors.to_le_bytes());
        put(12, &u32::from(self.max_segments).to_le_bytes());
        put(20, &self.block_bytes.to_le_bytes());
        put(24, &[blocks.max(1).ilog2() as u8]);
        put(26, &1_u16.to_le_bytes());
        put(28, &blocks.to_le_bytes());
        put(WRITEBACK_AT, &[u8::from(writeback)]);
        put(34, &self.queues.to_le_bytes());
        put(36, &self.max_discard_sectors.to_le_bytes());
        put(40, &1_u32.to_le_bytes());
        put(44, &(self.block_bytes / 512).to_le_bytes());
        put(48, &self.max_zeroes_sectors.to_le_bytes());
        put(52, &1_u32.to_le_bytes());
        put(56, &[1]);
        space
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_space_has_the_fields_where_linux_reads_them() {
        let config = Config {
            capacity_sectors: 0x0102_0304_0506,
            block_bytes: 512,
            preferred_bytes: 4096,
            max_segments: 168,
            queues: 7,
            max_discard_sectors: 0,
            max_zeroes_sectors: 9,
            read_only: false,
        };
        assert_eq!(config.read(true, 0, 8), [6, 5, 4, 3, 2, 1, 0, 0]);
        assert_eq!(config.read(true, 12, 4), [168, 0, 0, 0]);
        assert_eq!(config.read(true, 20, 5), [0, 2, 0, 0, 3]);
        assert_eq!(config.read(true, 32, 4), [1, 0, 7, 0]);
        assert_eq!(config.read(false, 48, 4), [9, 0, 0, 0]);
        assert_eq!(config.read(false, usize::MAX, 2), [0, 0]);
        assert!(!config.features().has(Features::DISCARD));
        assert_eq!(Config::written_writeback(32, &[0]), Some(false));
        assert_eq!(Config::written_writeback(32, &[2]), None);
        assert_eq!(Config::written_writeback(0, &[1]), None);
    }
}
