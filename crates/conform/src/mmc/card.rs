//! The recorded card, as its registers say.

use blklab_mmc::emulated::{CardSpec, Protocol};
use blklab_mmc::registers::{Csd, ExtCsd, Scr};

use super::recorded::Description;

/// Bytes of an eMMC's EXT_CSD (JESD84-B51 7.4).
const EXT_CSD_BYTES: usize = 512;

impl Description {
    /// The card as it has to be for its registers.
    pub(super) fn card(&self, ocr: u32) -> Result<CardSpec, String> {
        match self.card_file("type") {
            Some("SD") => self.sd_card(ocr),
            Some("MMC") => self.mmc_card(ocr),
            found => {
                let found = found.unwrap_or("nothing");
                Err(format!(
                    "card_sysfs type: found {found}, expected SD or MMC"
                ))
            }
        }
    }

    /// Its functions are not recorded: every card since version 1.10 is taken to have
    /// high speed.
    fn sd_card(&self, ocr: u32) -> Result<CardSpec, String> {
        let csd = self.register("csd")?;
        let scr = self.register("scr")?;
        let read_csd = Csd::of_sd(&csd).map_err(|_| "card_sysfs csd: structure 2 or 3".to_owned());
        let read_scr = Scr::of(&scr).map_err(|_| "card_sysfs scr: not of a card".to_owned())?;
        Ok(CardSpec {
            protocol: Protocol::Sd {
                has_if_cond: read_scr.sda_version >= 2,
            },
            ocr,
            is_block_addressed: read_csd?.is_block_addressed,
            cid: self.register("cid")?,
            csd,
            scr,
            ssr: self.register("ssr")?,
            rca: self.address()?,
            modes: if read_scr.sda_version >= 1 { 3 } else { 1 },
            ext_csd: Vec::new(),
            sectors: self.image_bytes / 512,
            power_up_polls: 0,
            busy_ns: 0,
        })
    }

    /// An eMMC of more than 2 GiB is addressed by blocks (JESD84-B51 6.6.35).
    fn mmc_card(&self, ocr: u32) -> Result<CardSpec, String> {
        const BYTE_ADDRESSED_SECTORS: u32 = 1 << 22;
        let csd = self.register("csd")?;
        let read_csd = Csd::of_mmc(&csd).map_err(|_| "card_sysfs csd: structure 0".to_owned())?;
        let ext_csd = self.ext_csd()?;
        let read = ExtCsd::of(&ext_csd).map_err(|_| "ext_csd: of a later version".to_owned())?;
        let is_block_addressed = read.sectors > BYTE_ADDRESSED_SECTORS;
        Ok(CardSpec {
            protocol: Protocol::Mmc,
            ocr,
            is_block_addressed,
            cid: self.register("cid")?,
            csd,
            scr: [0; 2],
            ssr: [0; 16],
            rca: self.address()?,
            modes: 0,
            ext_csd,
            sectors: match is_block_addressed {
                true => read.sectors.into(),
                false => read_csd.sectors(),
            },
            power_up_polls: 0,
            busy_ns: 0,
        })
    }

    fn card_file(&self, name: &str) -> Option<&str> {
        let files = self.card_sysfs.iter();
        { files.rev() }
            .find(|(path, _)| path.rsplit('/').next() == Some(name))
            .map(|(_, value)| value.as_str())
    }

    fn address(&self) -> Result<u32, String> {
        let rca = self.card_file("rca").and_then(|rca| rca.strip_prefix("0x"));
        rca.and_then(|digits| u32::from_str_radix(digits, 16).ok())
            .ok_or_else(|| "card_sysfs rca: expected a number such as 0x4567".to_owned())
    }

    /// A register as sysfs shows it: words of eight digits.
    fn register<const WORDS: usize>(&self, name: &str) -> Result<[u32; WORDS], String> {
        let found = self.card_file(name).unwrap_or_default();
        let wrong = || {
            format!(
                "card_sysfs {name}: found {found:?}, expected {} digits",
                8 * WORDS
            )
        };
        let mut words = [0; WORDS];
        if found.len() != 8 * WORDS || !found.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        for (n, word) in words.iter_mut().enumerate() {
            *word = u32::from_str_radix(&found[8 * n..8 * n + 8], 16).map_err(|_| wrong())?;
        }
        Ok(words)
    }

    /// What an eMMC is told follows from this register, which sysfs shows in part only.
    fn ext_csd(&self) -> Result<Vec<u8>, String> {
        let expected = format!(
            "expected {} digits: the EXT_CSD of an eMMC before anything was switched",
            2 * EXT_CSD_BYTES
        );
        let Some(found) = &self.ext_csd else {
            return Err(format!("ext_csd: found nothing, {expected}"));
        };
        let digits = found.as_bytes().chunks(2);
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let bytes: Option<Vec<u8>> = digits.map(byte).collect();
        { bytes.filter(|bytes| bytes.len() == EXT_CSD_BYTES) }
            .ok_or_else(|| format!("ext_csd: found {} characters, {expected}", found.len()))
    }
}
