//! What sysfs and debugfs show of a card and its host (`MMC_DEV_ATTR` in
//! `drivers/mmc/core/sd.c` and `mmc.c`, `debugfs.c`).

use super::{Card, CardKind, Core};
use crate::host::{Caps, PowerMode, SignalVoltage};
use crate::registers::hex;

/// The drive stage register's value where nobody set it.
const DEFAULT_DSR: u32 = 0x404;

/// The card is there (`MMC_STATE_PRESENT`).
const PRESENT: u32 = 1;

/// Place and size of the enhanced area of a card without one (`-EINVAL`).
const NO_ENHANCED_AREA: u64 = 22_u64.wrapping_neg();

impl Card {
    /// Its files in sysfs.
    pub fn attributes(&self) -> Vec<(String, String)> {
        let Card { cid, kind, .. } = self;
        let bytes = |sectors: u32| (u64::from(sectors) << 9).to_string();
        let mut rows = vec![
            ("cid", hex(&self.raw_cid)),
            ("csd", hex(&self.raw_csd)),
            ("date", format!("{:02}/{:04}", cid.month, cid.year)),
            ("dsr", format!("{DEFAULT_DSR:#x}")),
            ("erase_size", bytes(self.erase_sectors)),
            ("manfid", format!("0x{:06x}", cid.manfid)),
            ("name", cid.name.clone()),
            ("ocr", format!("0x{:08x}", self.ocr)),
            ("oemid", format!("0x{:04x}", cid.oemid)),
            ("preferred_erase_size", bytes(self.preferred_erase_sectors)),
            ("rca", format!("0x{:04x}", self.rca)),
            ("serial", format!("0x{:08x}", cid.serial)),
            ("type", kind.name().to_owned()),
        ];
        match kind {
            CardKind::Sd => rows.extend([
                ("fwrev", format!("{:#x}", cid.fwrev)),
                ("hwrev", format!("{:#x}", cid.hwrev)),
                ("scr", hex(&self.raw_scr)),
                ("ssr", hex(&self.raw_ssr)),
            ]),
            CardKind::Mmc => rows.extend(self.mmc_attributes()),
            CardKind::Sdio => {}
        }
        { rows.into_iter() }
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    fn mmc_attributes(&self) -> [(&'static str, String); 14] {
        let Card { cid, ext_csd, .. } = self;
        let firmware = match ext_csd.revision {
            ..7 => format!("{:#x}", cid.fwrev),
            _ => { ext_csd.firmware.iter() }
                .fold("0x".to_owned(), |all, byte| format!("{all}{byte:02x}")),
        };
        let [a, b] = ext_csd.life_time;
        [
            ("cmdq_en", "0".to_owned()),
            ("enhanced_area_offset", NO_ENHANCED_AREA.to_string()),
            ("enhanced_area_size", (NO_ENHANCED_AREA as u32).to_string()),
            (
                "enhanced_rpmb_supported",
                format!("{:#x}", u8::from(ext_csd.enhanced_rpmb)),
            ),
            ("ffu_capable", u8::from(ext_csd.ffu_capable).to_string()),
            ("fwrev", firmware),
            ("hwrev", format!("{:#x}", cid.hwrev)),
            ("life_time", format!("0x{a:02x} 0x{b:02x}")),
            ("pre_eol_info", format!("0x{:02x}", ext_csd.pre_eol_info)),
            ("prv", format!("{:#x}", cid.prv)),
            (
                "raw_rpmb_size_mult",
                format!("{:#x}", ext_csd.rpmb_bytes >> 17),
            ),
            ("rel_sectors", format!("{:#x}", ext_csd.reliable_sectors)),
            ("rev", format!("{:#x}", ext_csd.revision)),
            (
                "wp_grp_size",
                (u64::from(self.protect_sectors()) << 9).to_string(),
            ),
        ]
    }

    /// What its bus tells user space (`mmc_bus_uevent`).
    pub fn environment(&self) -> Vec<(String, String)> {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let mut told = vec![pair("MMC_TYPE", self.kind.name())];
        if self.kind != CardKind::Sdio {
            told.push(pair("MMC_NAME", &self.cid.name));
            told.push(pair("MODALIAS", "mmc:block"));
        }
        told
    }
}

impl Core {
    /// The host's files in debugfs, those of its card in a folder of the card's name
    /// (`mmc_add_host_debugfs`, `mmc_add_card_debugfs`). The card is asked for its status.
    pub fn debug_files(&mut self) -> Vec<(String, String)> {
        let spec = self.host().spec();
        let (caps, caps2) = (spec.caps.bits(), spec.caps2.bits());
        let mut files = vec![
            ("caps".to_owned(), format!("{caps:#010x}")),
            ("caps2".to_owned(), format!("{caps2:#010x}")),
            ("clock".to_owned(), self.ios().clock_hz.to_string()),
            ("ios".to_owned(), self.ios_lines().join("\n")),
        ];
        let Some(card) = self.card() else {
            return files;
        };
        let (name, state) = (self.card_name(card), card.state() | PRESENT);
        files.push((format!("{name}/quirks"), format!("{:#010x}", 0)));
        files.push((format!("{name}/state"), format!("{state:#010x}")));
        if let Ok(status) = self.send_status(0) {
            files.push((format!("{name}/status"), format!("{status:08x}")));
        }
        files
    }

    /// The bus as it is set (`mmc_ios_show`).
    fn ios_lines(&self) -> Vec<String> {
        let ios = *self.ios();
        let mut lines = vec![format!("clock:\t\t{} Hz", ios.clock_hz)];
        let actual_hz = self.host().actual_clock_hz();
        if actual_hz != 0 {
            lines.push(format!("actual clock:\t{actual_hz} Hz"));
        }
        let power = match ios.power_mode {
            PowerMode::Off => "off",
            PowerMode::Up => "up",
            PowerMode::On => "on",
        };
        let width = ios.bus_width;
        let bus_mode = ["open drain", "push-pull"][ios.bus_mode as usize - 1];
        let select = ["don't care", "active high"][ios.chip_select as usize];
        let signal = match ios.signal_voltage {
            SignalVoltage::V330 => "3.30 V",
            SignalVoltage::V180 => "1.80 V",
        };
        lines.extend([
            format!("vdd:\t\t{} ({})", ios.vdd, volts(ios.vdd)),
            format!("bus mode:\t{} ({bus_mode})", ios.bus_mode as u8),
            format!("chip select:\t{} ({select})", ios.chip_select as u8),
            format!("power mode:\t{} ({power})", ios.power_mode as u8),
            format!("bus width:\t{} ({} bits)", width as u8, width.lines()),
            format!("timing spec:\t{} ({})", ios.timing as u8, ios.timing.name()),
            format!("signal voltage:\t{} ({signal})", ios.signal_voltage as u8),
            "driver type:\t0 (driver type B)".to_owned(),
        ]);
        lines
    }

    /// Whether its card can be taken out, as sysfs shows it.
    pub(crate) fn removable(&self) -> &'static str {
        match self.host().spec().caps.contains(Caps::NONREMOVABLE) {
            true => "fixed",
            false => "removable",
        }
    }
}

/// The voltages that a bit of OCR stands for.
fn volts(bit: u16) -> String {
    let tenths = |bit: u16| format!("{}.{}", (bit + 12) / 10, (bit + 12) % 10);
    match bit {
        7 => "1.65 - 1.95 V".to_owned(),
        8..24 => format!("{} ~ {} V", tenths(bit), tenths(bit + 1)),
        _ => "invalid".to_owned(),
    }
}
