//! What faults do to the data of a drive, for whoever has that data.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use blklab_blk::SECTOR_SIZE;

use super::Faults;

/// What is wrong with the data of a command that completed without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataFault {
    /// Before this read a bit flipped on the medium; it stays flipped until it is written.
    BitRot {
        /// The sector.
        sector: u64,
        /// The bit in it, from 0 to 4095.
        bit: u16,
    },
    /// This read returns the data from before the last write.
    Stale,
    /// This read returns the data of a range that starts elsewhere, or this write lands there.
    Misdirected {
        /// Where it starts.
        sector: u64,
    },
    /// This write leaves everything as it was.
    Lost,
    /// Of this write only the beginning lands.
    Torn {
        /// How many sectors land.
        sectors: u64,
    },
}

/// Fate of unflushed writes at a power cut, as shares from 0 to 1: lost, torn (only some of the
/// logical blocks are written), or written otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerCut {
    /// Share of writes that are lost.
    pub lost: f64,
    /// Share of writes that are torn.
    pub torn: f64,
}

impl Default for PowerCut {
    fn default() -> PowerCut {
        PowerCut {
            lost: 0.4,
            torn: 0.2,
        }
    }
}

/// Fate of a write at a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFate {
    /// Nothing of it is written.
    Lost,
    /// Each block is written or not.
    Torn,
    /// All of it is written.
    Kept,
}

impl PowerCut {
    /// Returns the fate of a write by 64 random bits.
    pub fn fate(self, random: u64) -> WriteFate {
        // As many bits as an `f64` tells apart, as a number from 0 to below 1.
        let draw = (random >> 11) as f64 / (1u64 << 53) as f64;
        match draw {
            _ if draw < self.lost => WriteFate::Lost,
            _ if draw < self.lost + self.torn => WriteFate::Torn,
            _ => WriteFate::Kept,
        }
    }
}

impl DataFault {
    /// The fault of a part of a command that starts at the sector `start`, such as a bio of a
    /// request; `None` if it does not touch that part.
    pub fn of_part(self, start: u64, part: Range<u64>) -> Option<DataFault> {
        let before = part.start - start;
        match self {
            DataFault::BitRot { sector, .. } => part.contains(&sector).then_some(self),
            DataFault::Misdirected { sector } => Some(DataFault::Misdirected {
                sector: sector + before,
            }),
            DataFault::Torn { sectors } => (start + sectors < part.end).then(|| DataFault::Torn {
                sectors: sectors.saturating_sub(before),
            }),
            DataFault::Stale | DataFault::Lost => Some(self),
        }
    }
}

/// Splits a range into the parts that have a fault, and what lies between them; in order.
pub fn faulty_parts(
    range: Range<u64>,
    faulty: impl Iterator<Item = (Range<u64>, DataFault)>,
) -> Vec<(Range<u64>, Option<DataFault>)> {
    let mut faulty: Vec<_> = faulty.collect();
    faulty.sort_by_key(|(part, _)| part.start);
    let (mut at, mut parts) = (range.start, Vec::new());
    for (part, fault) in faulty {
        if at < part.start {
            parts.push((at..part.start, None));
        }
        at = part.end;
        parts.push((part, Some(fault)));
    }
    if at < range.end {
        parts.push((at..range.end, None));
    }
    parts
}

/// Bits that have flipped on a medium since they were written, by their bytes.
#[derive(Clone, Debug, Default)]
pub struct FlippedBits(BTreeMap<u64, u8>);

impl FlippedBits {
    /// Flips a bit. One that flips twice is right again.
    pub fn flip(&mut self, sector: u64, bit: u16) {
        let byte = sector * SECTOR_SIZE + u64::from(bit / 8);
        let flipped = self.0.entry(byte).or_default();
        *flipped ^= 1 << (bit % 8);
        if *flipped == 0 {
            self.0.remove(&byte);
        }
    }

    /// A range of bytes is written, and so right again.
    pub fn mend(&mut self, bytes: Range<u64>) {
        let mended: Vec<u64> = self.0.range(bytes).map(|(byte, _)| *byte).collect();
        for byte in mended {
            self.0.remove(&byte);
        }
    }

    /// Puts the flipped bits into data that is read from the byte `start` on.
    pub fn apply(&self, start: u64, data: &mut [u8]) {
        for (byte, flipped) in self.0.range(start..start + data.len() as u64) {
            data[(byte - start) as usize] ^= flipped;
        }
    }
}

/// What faults have done to the data of a drive. The data itself is kept elsewhere: whoever
/// keeps it asks here where a command goes, and what a read returns. Places are in bytes.
#[derive(Clone, Debug, Default)]
pub struct FaultyData {
    flipped: FlippedBits,
    /// Each sector before its last write, if reads may return that.
    before: Option<BTreeMap<u64, Box<[u8]>>>,
}

impl FaultyData {
    /// Nothing has happened yet; `faults` are those that will.
    pub fn new(faults: &Faults) -> FaultyData {
        FaultyData {
            flipped: FlippedBits::default(),
            before: faults.has_stale_reads().then(BTreeMap::new),
        }
    }

    /// Power came back: the medium has these flipped bits, and nothing older is known.
    pub fn restart(&mut self, flipped: FlippedBits) {
        self.flipped = flipped;
        if let Some(before) = &mut self.before {
            before.clear();
        }
    }

    /// Where the data of a read comes from.
    pub fn source(fault: Option<DataFault>, start: u64) -> u64 {
        match fault {
            Some(DataFault::Misdirected { sector }) => sector * SECTOR_SIZE + start % SECTOR_SIZE,
            _ => start,
        }
    }

    /// Which bytes of a write land, counted from its first, and where they do.
    pub fn landing(fault: Option<DataFault>, start: u64, length: u64) -> (Range<u64>, u64) {
        let landed = match fault {
            Some(DataFault::Lost) => 0,
            Some(DataFault::Torn { sectors }) => {
                (sectors * SECTOR_SIZE).saturating_sub(start % SECTOR_SIZE)
            }
            _ => length,
        };
        (0..landed.min(length), FaultyData::source(fault, start))
    }

    /// Whether [`FaultyData::replace`] needs the data that is written over.
    pub fn needs_old(&self) -> bool {
        self.before.is_some()
    }

    /// The sectors from the byte `start` on, whose data is `old`, are about to be written over in
    /// the range of bytes `written`.
    pub fn replace(&mut self, start: u64, old: &[u8], written: Range<u64>) {
        if let Some(before) = &mut self.before {
            let sectors = (start / SECTOR_SIZE..).zip(old.chunks(SECTOR_SIZE as usize));
            for (sector, data) in sectors {
                let mut data: Box<[u8]> = data.into();
                self.flipped.apply(sector * SECTOR_SIZE, &mut data);
                before.insert(sector, data);
            }
        }
        self.flipped.mend(written);
    }

    /// Makes what is at [`FaultyData::source`] what the read with that fault returns, which
    /// starts at the byte `start`.
    pub fn read(&mut self, fault: Option<DataFault>, start: u64, data: &mut [u8]) {
        if let Some(DataFault::BitRot { sector, bit }) = fault {
            self.flipped.flip(sector, bit);
        }
        self.flipped.apply(FaultyData::source(fault, start), data);
        if fault == Some(DataFault::Stale) {
            self.put_before(start, data);
        }
    }

    fn put_before(&self, start: u64, data: &mut [u8]) {
        let end = start + data.len() as u64;
        let sectors = start / SECTOR_SIZE..end.div_ceil(SECTOR_SIZE);
        for (sector, old) in self
            .before
            .iter()
            .flat_map(|all| all.range(sectors.clone()))
        {
            let at = sector * SECTOR_SIZE;
            let (from, to) = (at.max(start), (at + old.len() as u64).min(end));
            data[(from - start) as usize..(to - start) as usize]
                .copy_from_slice(&old[(from - at) as usize..(to - at) as usize]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory whose data has faults.
    struct Memory {
        bytes: Vec<u8>,
        faults: FaultyData,
    }

    impl Memory {
        fn new(faults: &str) -> Memory {
            Memory {
                bytes: vec![0; 16 * 512],
                faults: FaultyData::new(&Faults::parse(faults).unwrap()),
            }
        }

        fn write(&mut self, fault: Option<DataFault>, start: u64, data: &[u8]) {
            let (landed, place) = FaultyData::landing(fault, start, data.len() as u64);
            let landed = landed.start as usize..landed.end as usize;
            let written = place..place + landed.len() as u64;
            let outward = place / 512 * 512..written.end.div_ceil(512) * 512;
            let old = &self.bytes[outward.start as usize..outward.end as usize];
            self.faults.replace(outward.start, old, written);
            self.bytes[place as usize..][..landed.len()].copy_from_slice(&data[landed]);
        }

        fn read(&mut self, fault: Option<DataFault>, start: u64, length: usize) -> Vec<u8> {
            let place = FaultyData::source(fault, start) as usize;
            let mut data = self.bytes[place..place + length].to_vec();
            self.faults.read(fault, start, &mut data);
            data
        }
    }

    #[test]
    fn a_flipped_bit_stays_until_it_is_written() {
        let mut memory = Memory::new("bit_rot=1");
        memory.write(None, 0, &[7; 1024]);
        let fault = Some(DataFault::BitRot { sector: 1, bit: 17 });
        for fault in [fault, None] {
            let data = memory.read(fault, 512, 512);
            assert_eq!(data[2], 7 ^ 2);
            assert_eq!(data.iter().filter(|byte| **byte != 7).count(), 1);
        }
        memory.write(None, 515, &[7; 10]);
        assert_eq!(memory.read(None, 512, 4)[2], 7 ^ 2);
        memory.write(None, 514, &[7; 1]);
        assert_eq!(memory.read(None, 512, 512), [7; 512]);
        memory.read(fault, 512, 512);
        assert_eq!(memory.read(fault, 512, 512), [7; 512]);
    }

    #[test]
    fn a_stale_read_has_each_sector_before_its_last_write() {
        let mut memory = Memory::new("stale_read=1");
        memory.write(None, 0, &[1; 1536]);
        memory.write(None, 512, &[2; 512]);
        memory.write(None, 1034, &[3; 2]);
        let stale = memory.read(Some(DataFault::Stale), 511, 530);
        assert_eq!(stale[0], 0);
        assert_eq!(stale[1..513], [1; 512]);
        assert_eq!(stale[513..], [1; 17]);
        assert_eq!(memory.read(None, 1034, 2), [3, 3]);
    }

    #[test]
    fn a_misdirected_command_goes_elsewhere_and_leaves_its_own_place() {
        let mut memory = Memory::new("misdirected_write=1");
        memory.write(None, 0, &[1; 512]);
        memory.write(Some(DataFault::Misdirected { sector: 5 }), 3, &[2; 4]);
        assert_eq!(memory.read(None, 0, 512), [1; 512]);
        assert_eq!(memory.read(None, 5 * 512 + 2, 6), [0, 2, 2, 2, 2, 0]);
        let fault = Some(DataFault::Misdirected { sector: 5 });
        assert_eq!(memory.read(fault, 2, 6), [0, 2, 2, 2, 2, 0]);
    }

    #[test]
    fn of_a_lost_or_torn_write_nothing_or_its_beginning_lands() {
        let mut memory = Memory::new("torn_write=1");
        memory.write(Some(DataFault::Lost), 0, &[1; 512]);
        memory.write(Some(DataFault::Torn { sectors: 2 }), 1024, &[2; 2048]);
        memory.write(Some(DataFault::Torn { sectors: 1 }), 4096 + 500, &[3; 600]);
        assert_eq!(memory.read(None, 0, 1024), [0; 1024]);
        assert_eq!(memory.read(None, 1024, 1024), [2; 1024]);
        assert_eq!(memory.read(None, 2048, 2048), [0; 2048]);
        let torn = memory.read(None, 4096 + 500, 600);
        assert_eq!((&torn[..12], &torn[12..]), (&[3; 12][..], &[0; 588][..]));
    }

    #[test]
    fn what_lies_between_faulty_parts_is_whole() {
        let faulty = [(8..10, DataFault::Lost), (2..4, DataFault::Stale)];
        let parts = faulty_parts(0..10, faulty.into_iter());
        let (lost, stale) = (Some(DataFault::Lost), Some(DataFault::Stale));
        assert_eq!(
            parts,
            [(0..2, None), (2..4, stale), (4..8, None), (8..10, lost)]
        );
        assert_eq!(faulty_parts(3..5, [].into_iter()), [(3..5, None)]);
    }

    #[test]
    fn a_part_of_a_command_has_its_share_of_the_fault() {
        let rot = DataFault::BitRot { sector: 9, bit: 1 };
        let torn = |sectors| DataFault::Torn { sectors };
        let elsewhere = |sector| DataFault::Misdirected { sector };
        for (fault, part, expected) in [
            (rot, 8..16, Some(rot)),
            (rot, 16..24, None),
            (elsewhere(100), 16..24, Some(elsewhere(108))),
            (torn(4), 8..16, Some(torn(4))),
            (torn(8), 8..16, None),
            (torn(4), 16..24, Some(torn(0))),
            (torn(12), 16..24, Some(torn(4))),
            (DataFault::Lost, 16..24, Some(DataFault::Lost)),
        ] {
            assert_eq!(
                fault.of_part(8, part.clone()),
                expected,
                "{fault:?}: {part:?}"
            );
        }
    }
}
