//! `random_distribution=zoned` and `zoned_abs`: parts of a file with a share
//! of the I/O each.

use crate::fio::Zone;

/// Of a hundred draws, which part of the file each goes to.
#[derive(Clone, Debug)]
pub(crate) struct ZoneTable {
    /// Start and end of a part: in percent of the file, or in bytes. Empty
    /// where the direction has no zones.
    parts: Vec<(u64, u64)>,
    absolute: bool,
}

impl ZoneTable {
    pub fn new(zones: &[Zone], absolute: bool) -> ZoneTable {
        let mut parts = Vec::new();
        let mut start = 0u64;
        for zone in zones {
            let end = start.saturating_add(zone.size);
            parts.extend(std::iter::repeat_n(
                (start, end),
                zone.access_percent as usize,
            ));
            start = end;
        }
        ZoneTable { parts, absolute }
    }

    /// The blocks that draw number `percent` (1 to 100) goes to: the first,
    /// and how many.
    pub fn part(&self, percent: u32, blocks: u64, block_bytes: u64) -> (u64, u64) {
        let Some(&(start, end)) = self.parts.get(percent as usize - 1) else {
            return (0, blocks);
        };
        let place = |at: u64| match self.absolute {
            true => at / block_bytes,
            false => (u128::from(at) * u128::from(blocks) / 100) as u64,
        };
        (place(start), place(end) - place(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(access_percent: u32, size: u64) -> Zone {
        Zone {
            access_percent,
            size,
        }
    }

    #[test]
    fn parts_of_a_file() {
        let table = ZoneTable::new(&[zone(60, 10), zone(40, 90)], false);
        assert_eq!(table.part(1, 1000, 1), (0, 100));
        assert_eq!(table.part(60, 1000, 1), (0, 100));
        assert_eq!(table.part(61, 1000, 1), (100, 900));
        assert_eq!(table.part(100, 1000, 1), (100, 900));
        let table = ZoneTable::new(&[zone(100, 8192)], true);
        assert_eq!(table.part(50, 1000, 4096), (0, 2));
        assert_eq!(ZoneTable::new(&[], true).part(5, 1000, 4096), (0, 1000));
    }
}
