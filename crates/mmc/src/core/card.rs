//! A card as the core knows it (`include/linux/mmc/card.h`).

use crate::registers::{Cid, Csd, ExtCsd, Scr, Ssr};

/// What kind of card it is, by the kernel's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CardKind {
    /// MMC or eMMC.
    Mmc = 0,
    /// SD.
    #[default]
    Sd = 1,
    /// SDIO.
    Sdio = 2,
}

impl CardKind {
    /// As sysfs and uevents name it.
    pub fn name(self) -> &'static str {
        match self {
            CardKind::Mmc => "MMC",
            CardKind::Sd => "SD",
            CardKind::Sdio => "SDIO",
        }
    }
}

/// What was learnt of a card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Card {
    /// Its kind.
    pub kind: CardKind,
    /// Its address.
    pub rca: u32,
    /// Voltages that both sides have.
    pub ocr: u32,
    /// CID as it came.
    pub raw_cid: [u32; 4],
    /// CSD as it came.
    pub raw_csd: [u32; 4],
    /// SCR as it came, of SD.
    pub raw_scr: [u32; 2],
    /// SSR as it came, of SD.
    pub raw_ssr: [u32; 16],
    /// Identity.
    pub cid: Cid,
    /// Capacity and classes.
    pub csd: Csd,
    /// Version, of SD.
    pub scr: Scr,
    /// Allocation units, of SD.
    pub ssr: Ssr,
    /// EXT_CSD, of eMMC.
    pub ext_csd: ExtCsd,
    /// Whether SD high speed is there.
    pub has_sd_high_speed: bool,
    /// Modes of UHS-I that are there: a bit a function of the card's first group.
    pub uhs_modes: u8,
    /// Whether addresses are blocks.
    pub is_block_addressed: bool,
    /// Whether its switch forbids writing.
    pub is_read_only: bool,
    /// Whether it was found to be gone.
    pub is_removed: bool,
    /// Whether the partition in use need not be the one that its registers told, since it lost
    /// power (`MMC_BLK_PART_INVALID`).
    pub partition_is_unknown: bool,
    /// Sectors of what it erases.
    pub erase_sectors: u32,
    /// The same as a power of two, 0 if it is none.
    pub erase_shift: u32,
    /// Sectors that are best erased together.
    pub preferred_erase_sectors: u32,
    /// How it discards.
    pub erase_arg: u32,
    /// Whether only one erase group fits into the host's time limit.
    pub one_erase_group: bool,
}

impl Card {
    /// The kernel's state bits.
    pub fn state(&self) -> u32 {
        // An SDXC card has a C_SIZE of 0xffff or more.
        let is_sdxc = self.kind == CardKind::Sd && self.csd.c_size >= 0xffff;
        u32::from(self.is_read_only) << 1
            | u32::from(self.is_block_addressed) << 2
            | u32::from(is_sdxc) << 3
            | u32::from(self.is_removed) << 4
    }

    /// Its size in sectors.
    pub fn sectors(&self) -> u64 {
        match self.kind == CardKind::Mmc && self.is_block_addressed {
            true => u64::from(self.ext_csd.sectors),
            false => self.csd.sectors(),
        }
    }

    /// As the kernel's log tells it.
    pub fn description(&self) -> &'static str {
        match (self.kind, self.state() & 0xc) {
            (CardKind::Mmc, _) => "MMC card",
            (CardKind::Sdio, _) => "SDIO card",
            (CardKind::Sd, 0xc) => "SDXC card",
            (CardKind::Sd, 0x4) => "SDHC card",
            (CardKind::Sd, _) => "SD card",
        }
    }
}
