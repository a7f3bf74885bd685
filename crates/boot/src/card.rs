//! A card's registers, made from what is printed on it.

use blklab_mmc::emulated::{CardSpec, Protocol};

use crate::board::Card;

/// Voltages that cards of today run at: 2.7 to 3.6 V.
const OCR: u32 = 0x00ff_8000;
/// A card of version 3 with CMD23 and one or four data lines.
const SCR: [u32; 2] = [0x0235_8002, 0];
/// Blocks of a card that is addressed by bytes, in its largest unit
/// (`C_SIZE_MULT` 7).
const UNITS: u64 = 512;
/// The largest card that is addressed by bytes.
const BYTES_MIB: u32 = 2048;

impl Card {
    /// The card as it answers.
    pub(crate) fn spec(&self) -> CardSpec {
        let is_block_addressed = self.size_mib > BYTES_MIB;
        CardSpec {
            protocol: Protocol::Sd { has_if_cond: true },
            ocr: OCR,
            is_block_addressed,
            cid: self.cid(),
            csd: match is_block_addressed {
                true => self.csd_of_blocks(),
                false => self.csd_of_bytes(),
            },
            scr: SCR,
            ssr: [0; 16],
            rca: self.rca,
            has_high_speed: true,
            ext_csd: Vec::new(),
            sectors: u64::from(self.size_mib) * 2048,
            power_up_polls: 0,
            busy_ns: 0,
        }
    }

    /// SD Physical Layer 5.2.
    fn cid(&self) -> [u32; 4] {
        let mut letters = [0; 5];
        for (letter, byte) in letters.iter_mut().zip(self.name.bytes()) {
            *letter = u32::from(byte);
        }
        let [a, b, c, d, e] = letters;
        let date = (self.year - 2000) << 4 | self.month;
        [
            self.manufacturer << 24 | self.customer << 8 | a,
            b << 24 | c << 16 | d << 8 | e,
            self.revision << 24 | self.serial >> 8,
            self.serial << 24 | date << 8,
        ]
    }

    /// Structure 2 of SD Physical Layer 5.3, whose other fields are fixed.
    fn csd_of_blocks(&self) -> [u32; 4] {
        // Units of 512 KiB.
        let c_size = 2 * self.size_mib - 1;
        let (high, low) = (c_size >> 16, c_size & 0xffff);
        [
            0x400e_0032,
            0x5b59_0000 | high,
            low << 16 | 0x7f80,
            0x0a40_0000,
        ]
    }

    /// Structure 1: the size is a mantissa of 12 bits, a power of two and the length
    /// of a block.
    fn csd_of_bytes(&self) -> [u32; 4] {
        let block_bits = if self.size_mib > 1024 { 10 } else { 9 };
        let bytes = u64::from(self.size_mib) << 20;
        // No more than 4096 units fit: sizes are checked when they are read.
        let c_size = ((bytes / UNITS) >> block_bits).saturating_sub(1) as u32 & 0xfff;
        [
            0x0026_0032,
            0x5f50_e000 | block_bits << 16 | c_size >> 2,
            (c_size & 3) << 30 | 0x3fff_dfff,
            0x9020_0000 | block_bits << 22,
        ]
    }
}

#[cfg(test)]
mod tests {
    use blklab_mmc::registers::{Cid, Csd};

    use super::*;

    fn card(size_mib: u32) -> Card {
        Card {
            name: "SC16G".to_owned(),
            size_mib,
            manufacturer: 3,
            customer: 0x5344,
            revision: 0x80,
            serial: 0x1234_5678,
            year: 2023,
            month: 2,
            rca: 0xaaaa,
            partitions: Vec::new(),
        }
    }

    #[test]
    fn the_core_reads_what_was_described() {
        for size_mib in [1, 128, 1024, 2048, 4096, 65_536] {
            let spec = card(size_mib).spec();
            let csd = Csd::of_sd(&spec.csd).unwrap();
            assert_eq!(csd.sectors(), spec.sectors, "{size_mib} MiB");
            assert_eq!(csd.is_block_addressed, size_mib > 2048);
        }
        let cid = Cid::of_sd(&card(4096).spec().cid);
        assert_eq!((cid.name.as_str(), cid.serial), ("SC16G", 0x1234_5678));
        assert_eq!(
            (cid.manfid, cid.oemid, cid.year, cid.month),
            (3, 0x5344, 2023, 2)
        );
    }

    /// The registers of the recorded cards in `tests/data/mmc-traces`.
    #[test]
    fn csds_are_those_of_cards_of_the_size() {
        assert_eq!(
            card(4096).spec().csd,
            [0x400e_0032, 0x5b59_0000, 0x1fff_7f80, 0x0a40_0000]
        );
        assert_eq!(
            card(128).spec().csd,
            [0x0026_0032, 0x5f59_e07f, 0xffff_dfff, 0x9260_0000]
        );
    }
}
