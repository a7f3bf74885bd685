//! What a card's registers say: CID, CSD, SCR, SSR and EXT_CSD
//! (`drivers/mmc/core/sd.c`, `mmc.c`; SD Physical Layer chapter 5, JESD84 chapter 7).

pub(crate) mod ext_csd;

pub use ext_csd::ExtCsd;

use crate::command::Error;

/// Bits `start..start + size` of a register of 32-bit words, the first word first
/// (`UNSTUFF_BITS`). Bit 0 is the last one sent.
fn bits<const WORDS: usize>(words: &[u32; WORDS], start: usize, size: usize) -> u32 {
    let value = (start..start + size).rev().fold(0_u64, |value, bit| {
        let word = words[WORDS - 1 - bit / 32];
        value << 1 | u64::from(word >> (bit % 32) & 1)
    });
    // No field has more than 32 bits.
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// Words as sysfs prints them.
pub(crate) fn hex(words: &[u32]) -> String {
    words.iter().map(|word| format!("{word:08x}")).collect()
}

/// The card's identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cid {
    /// Manufacturer.
    pub manfid: u32,
    /// Its customer.
    pub oemid: u32,
    /// The product's name.
    pub name: String,
    /// Hardware revision.
    pub hwrev: u32,
    /// Firmware revision.
    pub fwrev: u32,
    /// Product revision, of eMMC.
    pub prv: u32,
    /// Serial number.
    pub serial: u32,
    /// Year of manufacture.
    pub year: u32,
    /// Month.
    pub month: u32,
}

impl Cid {
    /// An SD card's.
    pub fn of_sd(raw: &[u32; 4]) -> Cid {
        Cid {
            manfid: bits(raw, 120, 8),
            oemid: bits(raw, 104, 16),
            name: name(raw, 64, 5),
            hwrev: bits(raw, 60, 4),
            fwrev: bits(raw, 56, 4),
            prv: 0,
            serial: bits(raw, 24, 32),
            year: 2000 + bits(raw, 12, 8),
            month: bits(raw, 8, 4),
        }
    }

    /// An eMMC's, of specification version 2 and later.
    pub fn of_mmc(raw: &[u32; 4], ext_csd_revision: u32) -> Cid {
        let year = 1997 + bits(raw, 8, 4);
        Cid {
            manfid: bits(raw, 120, 8),
            oemid: bits(raw, 104, 16),
            name: name(raw, 56, 6),
            hwrev: 0,
            fwrev: 0,
            prv: bits(raw, 48, 8),
            serial: bits(raw, 16, 32),
            // Four bits of a year began again in 2013.
            year: match ext_csd_revision >= 5 && year < 2010 {
                true => year + 16,
                false => year,
            },
            month: bits(raw, 12, 4),
        }
    }
}

/// Letters of a name, the first one in the highest byte.
fn name(raw: &[u32; 4], last_start: usize, letters: usize) -> String {
    let letter = |n: usize| bits(raw, last_start + 8 * n, 8);
    let letters = (0..letters).rev().map(letter).take_while(|&code| code != 0);
    { letters }.filter_map(char::from_u32).collect()
}

/// What the card can hold and do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Csd {
    /// How its fields are laid out, of eMMC.
    pub structure: u32,
    /// Version of the MMC specification.
    pub mmca_version: u32,
    /// Command classes.
    pub classes: u32,
    /// Access time, in time.
    pub taac_ns: u32,
    /// And in clocks.
    pub taac_clocks: u32,
    /// Size field of a card addressed by blocks.
    pub c_size: u32,
    /// How much longer a write takes, as a power of two.
    pub r2w_factor: u32,
    /// Fastest clock before any switch.
    pub max_clock_hz: u32,
    /// Sectors of what can be erased.
    pub erase_sectors: u32,
    /// Erase groups of what can be write protected, of eMMC.
    pub protect_groups: u32,
    /// Unit of the capacity, as a power of two.
    pub read_blkbits: u32,
    /// Whether drive strength can be set.
    pub dsr: bool,
    /// In units of `read_blkbits`.
    pub capacity: u64,
    /// Whether addresses are blocks, not bytes.
    pub is_block_addressed: bool,
}

/// Command classes.
pub(crate) mod class {
    pub(crate) const BLOCK_READ: u32 = 1 << 2;
    pub(crate) const BLOCK_WRITE: u32 = 1 << 4;
    pub(crate) const ERASE: u32 = 1 << 5;
    pub(crate) const APP_SPEC: u32 = 1 << 8;
    pub(crate) const SWITCH: u32 = 1 << 10;
}

const MANTISSAS: [u32; 16] = [
    0, 10, 12, 13, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 70, 80,
];

/// Time: mantissa in tenths, power of ten in nanoseconds.
fn access_ns(raw: &[u32; 4]) -> u32 {
    let exponent = 10_u32.pow(bits(raw, 112, 3));
    (exponent * MANTISSAS[bits(raw, 115, 4) as usize]).div_ceil(10)
}

fn clock_hz(raw: &[u32; 4]) -> u32 {
    let exponent = match bits(raw, 96, 3) {
        power @ 0..=3 => 10_u32.pow(power + 4),
        _ => 0,
    };
    exponent * MANTISSAS[bits(raw, 99, 4) as usize]
}

impl Csd {
    /// An SD card's.
    ///
    /// # Errors
    /// A structure of a later version.
    pub fn of_sd(raw: &[u32; 4]) -> Result<Csd, Error> {
        let common = Csd {
            max_clock_hz: clock_hz(raw),
            classes: bits(raw, 84, 12),
            ..Csd::default()
        };
        match bits(raw, 126, 2) {
            0 => {
                let write_blkbits = bits(raw, 22, 4);
                Ok(Csd {
                    taac_ns: access_ns(raw),
                    taac_clocks: bits(raw, 104, 8) * 100,
                    capacity: u64::from(1 + bits(raw, 62, 12)) << (bits(raw, 47, 3) + 2),
                    read_blkbits: bits(raw, 80, 4),
                    dsr: bits(raw, 76, 1) == 1,
                    r2w_factor: bits(raw, 26, 3),
                    erase_sectors: match (bits(raw, 46, 1), write_blkbits) {
                        (1, _) => 1,
                        (_, 9..) => (bits(raw, 39, 7) + 1) << (write_blkbits - 9),
                        _ => 0,
                    },
                    ..common
                })
            }
            // SDHC and SDXC: fields without use have fixed values.
            1 => {
                let c_size = bits(raw, 48, 22);
                Ok(Csd {
                    c_size,
                    capacity: u64::from(1 + c_size) << 10,
                    read_blkbits: 9,
                    r2w_factor: 4,
                    erase_sectors: 1,
                    is_block_addressed: true,
                    ..common
                })
            }
            _ => Err(Error::Invalid),
        }
    }

    /// An eMMC's.
    ///
    /// # Errors
    /// A structure of version 0, which no card was ever made with.
    pub fn of_mmc(raw: &[u32; 4]) -> Result<Csd, Error> {
        let structure = bits(raw, 126, 2);
        if structure == 0 {
            return Err(Error::Invalid);
        }
        let write_blkbits = bits(raw, 22, 4);
        let erase_sectors = match write_blkbits {
            9.. => ((bits(raw, 42, 5) + 1) * (bits(raw, 37, 5) + 1)) << (write_blkbits - 9),
            _ => 0,
        };
        Ok(Csd {
            structure,
            mmca_version: bits(raw, 122, 4),
            classes: bits(raw, 84, 12),
            taac_ns: access_ns(raw),
            taac_clocks: bits(raw, 104, 8) * 100,
            c_size: 0,
            r2w_factor: bits(raw, 26, 3),
            max_clock_hz: clock_hz(raw),
            erase_sectors,
            protect_groups: 1 + bits(raw, 32, 5),
            read_blkbits: bits(raw, 80, 4),
            dsr: bits(raw, 76, 1) == 1,
            capacity: u64::from(1 + bits(raw, 62, 12)) << (bits(raw, 47, 3) + 2),
            is_block_addressed: false,
        })
    }

    /// The capacity in sectors.
    pub fn sectors(&self) -> u64 {
        match self.read_blkbits {
            9.. => self.capacity << (self.read_blkbits - 9),
            bits => self.capacity >> (9 - bits),
        }
    }
}

/// What of the specification an SD card follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scr {
    /// Version of the physical layer: 0, 1 (1.10) or 2.
    pub sda_version: u32,
    /// Version 3 and later.
    pub sda_spec3: bool,
    /// Version 4 and later.
    pub sda_spec4: bool,
    /// Version 5 and later.
    pub sda_spec_x: u32,
    /// Bit 0: one line, bit 2: four.
    pub bus_widths: u32,
    /// Bit 1: CMD23.
    pub commands: u32,
    /// Whether erased sectors read as ones.
    pub erased_ones: bool,
}

impl Scr {
    /// Bit of CMD23.
    pub const CMD23: u32 = 1 << 1;
    /// Bit of four data lines.
    pub const WIDTH_4: u32 = 1 << 2;

    /// Reads it.
    ///
    /// # Errors
    /// A structure of a later version, or a card without the bus widths that every
    /// card has.
    pub fn of(raw: &[u32; 2]) -> Result<Scr, Error> {
        if bits(raw, 60, 4) != 0 {
            return Err(Error::Invalid);
        }
        let sda_version = bits(raw, 56, 4);
        let sda_spec3 = sda_version == 2 && bits(raw, 47, 1) == 1;
        let sda_spec4 = sda_spec3 && bits(raw, 42, 1) == 1;
        let bus_widths = bits(raw, 48, 4);
        if bus_widths & 1 == 0 || bus_widths & Scr::WIDTH_4 == 0 {
            return Err(Error::Invalid);
        }
        Ok(Scr {
            sda_version,
            sda_spec3,
            sda_spec4,
            sda_spec_x: match sda_spec3 {
                true => bits(raw, 38, 4),
                false => 0,
            },
            bus_widths,
            commands: match (sda_spec4, sda_spec3) {
                (true, _) => bits(raw, 32, 4),
                (_, true) => bits(raw, 32, 2),
                _ => 0,
            },
            erased_ones: bits(raw, 55, 1) == 1,
        })
    }
}

/// What an SD card's status says of erasing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ssr {
    /// Sectors of an allocation unit, 0 if it does not tell.
    pub au_sectors: u32,
    /// For an allocation unit, 0 if it does not tell.
    pub erase_timeout_ms: u32,
    /// Beside that.
    pub erase_offset_ms: u32,
    /// Whether it knows discard.
    pub can_discard: bool,
}

/// Sectors of allocation units, by their code.
const AU_KIB: [u32; 16] = [
    0, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 12288, 16384, 24576, 32768, 65536,
];

impl Ssr {
    /// Reads it.
    pub fn of(raw: &[u32; 16], scr: &Scr) -> Ssr {
        let mut ssr = Ssr {
            can_discard: bits(raw, 313, 1) == 1,
            ..Ssr::default()
        };
        let au = bits(raw, 428, 4);
        // Codes beyond 9 came with version 3.
        if au != 0 && (au <= 9 || scr.sda_spec3) {
            ssr.au_sectors = AU_KIB[au as usize] * 2;
            let (size, timeout) = (bits(raw, 408, 16), bits(raw, 402, 6));
            if size != 0 && timeout != 0 {
                ssr.erase_timeout_ms = timeout * 1000 / size;
                ssr.erase_offset_ms = bits(raw, 400, 2) * 1000;
            }
        }
        ssr
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Registers of the SD cards in `tests/data/mmc-traces`.
    const CID: [u32; 4] = [0xaa58_5951, 0x454d_5521, 0x01de_adbe, 0xef00_6200];
    const SDHC: [u32; 4] = [0x400e_0032, 0x5b59_0000, 0x1fff_7f80, 0x0a40_0000];
    const SDSC: [u32; 4] = [0x0026_0032, 0x5f59_e07f, 0xffff_dfff, 0x9260_0000];

    #[test]
    fn a_cid_is_as_sysfs_shows_it() {
        let cid = Cid::of_sd(&CID);
        assert_eq!(
            (cid.manfid, cid.oemid, cid.name.as_str()),
            (0xaa, 0x5859, "QEMU!")
        );
        assert_eq!((cid.hwrev, cid.fwrev, cid.serial), (0, 1, 0xdead_beef));
        assert_eq!((cid.month, cid.year), (2, 2006));
    }

    #[test]
    fn both_structures_of_csd_give_the_capacity() {
        let sdhc = Csd::of_sd(&SDHC).unwrap();
        assert_eq!((sdhc.sectors(), sdhc.is_block_addressed), (8_388_608, true));
        let sdsc = Csd::of_sd(&SDSC).unwrap();
        assert_eq!((sdsc.sectors(), sdsc.is_block_addressed), (262_144, false));
        assert_eq!(
            (sdsc.taac_ns, sdsc.r2w_factor, sdsc.erase_sectors),
            (1_500_000, 4, 1)
        );
        assert_eq!(sdsc.max_clock_hz, 25_000_000);
        assert_eq!(Csd::of_sd(&[0x8000_0000, 0, 0, 0]), Err(Error::Invalid));
    }

    #[test]
    fn an_scr_tells_its_version() {
        let scr = Scr::of(&[0x0225_0000, 0]).unwrap();
        assert_eq!(
            (scr.sda_version, scr.sda_spec3, scr.commands),
            (2, false, 0)
        );
        // Version 3 with CMD23.
        let scr = Scr::of(&[0x0235_8003, 0]).unwrap();
        assert_eq!(
            (scr.sda_spec3, scr.commands & Scr::CMD23),
            (true, Scr::CMD23)
        );
        assert_eq!(Scr::of(&[0x0221_0000, 0]), Err(Error::Invalid));
    }

    #[test]
    fn an_ssr_tells_allocation_units_and_erase_times() {
        let scr = Scr::of(&[0x0235_8003, 0]).unwrap();
        let mut raw = [0; 16];
        // AU 9 (4 MiB), 8 of them erased in 4 s and 2 s beside.
        raw[2] = 9 << 12;
        raw[3] = 8 << 24 | 4 << 18 | 2 << 16;
        let ssr = Ssr::of(&raw, &scr);
        assert_eq!((ssr.au_sectors, ssr.erase_timeout_ms), (8192, 500));
        assert_eq!(ssr.erase_offset_ms, 2000);
        assert_eq!(Ssr::of(&[0; 16], &scr), Ssr::default());
    }
}
