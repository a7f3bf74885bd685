//! A card's registers, made from what is printed on it.

use blklab_mmc::emulated::{CardSpec, Protocol};

use crate::board::{Card, Emmc, SdCard};

/// Voltages that cards of today run at: 2.7 to 3.6 V.
const OCR: u32 = 0x00ff_8000;
/// A card of version 3 with CMD23 and one or four data lines.
const SCR: [u32; 2] = [0x0235_8002, 0];
/// Blocks of a card that is addressed by bytes, in its largest unit
/// (`C_SIZE_MULT` 7).
const UNITS: u64 = 512;
/// The largest card that is addressed by bytes.
const BYTES_MIB: u32 = 2048;

/// Modes of an SD card's bus: up to high speed, and all of UHS-I.
const MODES: u8 = 0x03;
const UHS_MODES: u8 = 0x1f;

impl Card {
    /// The card as it answers.
    pub(crate) fn spec(&self) -> CardSpec {
        match self {
            Card::Sd(card) => card.spec(),
            Card::Emmc(card) => card.spec(),
        }
    }
}

/// A name's letters, the first one first; 0 after the last.
fn letters<const COUNT: usize>(name: &str) -> [u32; COUNT] {
    let mut letters = [0; COUNT];
    for (letter, byte) in letters.iter_mut().zip(name.bytes()) {
        *letter = u32::from(byte);
    }
    letters
}

impl SdCard {
    fn spec(&self) -> CardSpec {
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
            modes: if self.uhs { UHS_MODES } else { MODES },
            ext_csd: Vec::new(),
            sectors: u64::from(self.size_mib) * 2048,
            power_up_polls: 0,
            busy_ns: 0,
        }
    }

    /// SD Physical Layer 5.2.
    fn cid(&self) -> [u32; 4] {
        let [a, b, c, d, e] = letters(&self.name);
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

/// Voltages that an eMMC runs at: 2.7 to 3.6 V, and 1.7 to 1.95 V.
const EMMC_OCR: u32 = 0x00ff_8080;
/// A version 4 CSD, whose size field says that EXT_CSD has it (JESD84-B51 7.3).
const EMMC_CSD: [u32; 4] = [0xd00f_0032, 0x8f59_03ff, 0xffff_ffe7, 0x9640_00fd];

impl Emmc {
    fn spec(&self) -> CardSpec {
        CardSpec {
            protocol: Protocol::Mmc,
            ocr: EMMC_OCR,
            is_block_addressed: true,
            cid: self.cid(),
            csd: EMMC_CSD,
            scr: [0; 2],
            ssr: [0; 16],
            rca: 1,
            modes: 0,
            ext_csd: self.ext_csd(),
            sectors: self.sectors().into(),
            power_up_polls: 0,
            busy_ns: 0,
        }
    }

    fn sectors(&self) -> u32 {
        self.size_mib * 2048
    }

    /// JESD84-B51 7.2.
    fn cid(&self) -> [u32; 4] {
        const EMBEDDED: u32 = 1;
        let [a, b, c, d, e, f] = letters(&self.name);
        // Four bits of a year, which began again in 2013.
        let date = self.month << 4 | (self.year - 2013);
        [
            self.manufacturer << 24 | EMBEDDED << 16 | self.customer << 8 | a,
            b << 24 | c << 16 | d << 8 | e,
            f << 24 | self.revision << 16 | self.serial >> 16,
            self.serial << 16 | date << 8,
        ]
    }

    /// JESD84-B51 7.4; what is not named there is 0.
    fn ext_csd(&self) -> Vec<u8> {
        const HIGH_SPEED: u8 = 3;
        const HS200_1_8_V: u8 = 1 << 4;
        let mut register = vec![0; 512];
        let mut put = |place: usize, bytes: &[u8]| {
            register[place..place + bytes.len()].copy_from_slice(bytes);
        };
        let units = |kib: u32| (kib / 128) as u8;
        let speed = if self.hs200 { HS200_1_8_V } else { 0 };
        // Revision 8 is version 5.1, structure 2 of version 4.1 and later.
        put(192, &[8]);
        put(194, &[2]);
        put(196, &[HIGH_SPEED | speed]);
        put(168, &[units(self.rpmb_kib)]);
        put(226, &[units(self.boot_kib)]);
        put(212, &self.sectors().to_le_bytes());
        // Reliable writes of any length.
        put(166, &[4]);
        // Erase groups of 512 KiB in 300 ms, which are write protected one by one, trim.
        put(221, &[1, 1, 1, 1]);
        put(231, &[0x55, 1]);
        // Switches in 100 ms.
        put(248, &[10]);
        // In kilobits.
        put(249, &(8 * self.cache_kib).to_le_bytes());
        register
    }
}

#[cfg(test)]
mod tests {
    use blklab_mmc::registers::{Cid, Csd, ExtCsd};

    use super::*;

    fn card(size_mib: u32) -> SdCard {
        SdCard {
            name: "SC16G".to_owned(),
            size_mib,
            manufacturer: 3,
            customer: 0x5344,
            revision: 0x80,
            serial: 0x1234_5678,
            year: 2023,
            month: 2,
            rca: 0xaaaa,
            uhs: false,
            partitions: Vec::new(),
        }
    }

    #[test]
    fn the_core_reads_an_emmc_as_it_was_described() {
        let emmc = Emmc {
            name: "BJTD4R".to_owned(),
            size_mib: 29_820,
            boot_kib: 4096,
            rpmb_kib: 4096,
            cache_kib: 64,
            hs200: true,
            manufacturer: 0x15,
            customer: 1,
            revision: 8,
            serial: 0x1234_5678,
            year: 2021,
            month: 3,
            partitions: Vec::new(),
        };
        let spec = emmc.spec();
        let cid = Cid::of_mmc(&spec.cid, 8);
        assert_eq!((cid.name.as_str(), cid.serial), ("BJTD4R", 0x1234_5678));
        // Its upper byte says that the card is soldered.
        assert_eq!((cid.manfid, cid.oemid, cid.prv), (0x15, 0x0101, 8));
        assert_eq!((cid.year, cid.month), (2021, 3));
        assert_eq!(Csd::of_mmc(&spec.csd).unwrap().mmca_version, 4);
        let read = ExtCsd::of(&spec.ext_csd).unwrap();
        assert_eq!(u64::from(read.sectors), spec.sectors);
        assert_eq!((read.boot_bytes, read.rpmb_bytes), (4 << 20, 4 << 20));
        assert!(read.has_hs200 && read.can_trim() && read.has_reliable_write());
        assert_eq!((read.cache_kib, read.generic_switch_ms), (64, 100));
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
