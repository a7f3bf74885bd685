//! An eMMC's EXT_CSD (`mmc_decode_ext_csd` in `drivers/mmc/core/mmc.c`; JESD84-B51 7.4).

use crate::command::Error;

// Places of fields.
pub(crate) const FLUSH_CACHE: u8 = 32;
pub(crate) const CACHE_CTRL: u8 = 33;
pub(crate) const POWER_OFF_NOTIFICATION: u8 = 34;
const PARTITION_SUPPORT: usize = 160;
pub(crate) const HPI_MGMT: u8 = 161;
const WR_REL_PARAM: usize = 166;
const RPMB_MULT: usize = 168;
const FW_CONFIG: usize = 169;
const BOOT_WP: usize = 173;
pub(crate) const ERASE_GROUP_DEF: u8 = 175;
pub(crate) const PART_CONFIG: u8 = 179;
const ERASED_MEM_CONT: usize = 181;
pub(crate) const BUS_WIDTH: u8 = 183;
pub(crate) const HS_TIMING: u8 = 185;
pub(crate) const POWER_CLASS: u8 = 187;
const REV: usize = 192;
const STRUCTURE: usize = 194;
pub(crate) const CARD_TYPE: usize = 196;
const PART_SWITCH_TIME: usize = 199;
const PWR_CL_52_195: usize = 200;
const PWR_CL_26_195: usize = 201;
const PWR_CL_52_360: usize = 202;
const PWR_CL_26_360: usize = 203;
const SEC_CNT: usize = 212;
const S_A_TIMEOUT: usize = 217;
const HC_WP_GRP_SIZE: usize = 221;
const REL_WR_SEC_C: usize = 222;
const ERASE_TIMEOUT_MULT: usize = 223;
const HC_ERASE_GRP_SIZE: usize = 224;
const BOOT_SIZE_MULT: usize = 226;
const SEC_TRIM_MULT: usize = 229;
const SEC_ERASE_MULT: usize = 230;
const SEC_FEATURE_SUPPORT: usize = 231;
const TRIM_MULT: usize = 232;
const PWR_CL_200_195: usize = 236;
const PWR_CL_200_360: usize = 237;
const PWR_CL_DDR_52_195: usize = 238;
const PWR_CL_DDR_52_360: usize = 239;
const GENERIC_CMD6_TIME: usize = 248;
const CACHE_SIZE: usize = 249;
const PWR_CL_DDR_200_360: usize = 253;
const FIRMWARE_VERSION: usize = 254;
const PRE_EOL_INFO: usize = 267;
const LIFE_TIME_EST: usize = 268;
const SUPPORTED_MODES: usize = 493;
const HPI_FEATURES: usize = 503;

/// What a card says of itself on a wide bus has to be what it said on one line
/// (`mmc_compare_ext_csds`).
const READ_ONLY: [usize; 26] = [
    PARTITION_SUPPORT,
    ERASED_MEM_CONT,
    REV,
    STRUCTURE,
    CARD_TYPE,
    S_A_TIMEOUT,
    HC_WP_GRP_SIZE,
    ERASE_TIMEOUT_MULT,
    HC_ERASE_GRP_SIZE,
    SEC_TRIM_MULT,
    SEC_ERASE_MULT,
    SEC_FEATURE_SUPPORT,
    TRIM_MULT,
    SEC_CNT,
    SEC_CNT + 1,
    SEC_CNT + 2,
    SEC_CNT + 3,
    PWR_CL_52_195,
    PWR_CL_26_195,
    PWR_CL_52_360,
    PWR_CL_26_360,
    PWR_CL_200_195,
    PWR_CL_200_360,
    PWR_CL_DDR_52_195,
    PWR_CL_DDR_52_360,
    PWR_CL_DDR_200_360,
];

/// Switches of cards that do not tell (`DEFAULT_CMD6_TIMEOUT_MS`).
const SWITCH_MS: u32 = 500;
/// Cards exist that need more for a switch of partitions than they tell
/// (`MMC_MIN_PART_SWITCH_TIME`).
const LEAST_PARTITION_SWITCH_MS: u32 = 300;
/// Bytes of the firmware's version.
const FIRMWARE_BYTES: usize = 8;

/// What an eMMC says of itself beside its CSD. A field that a revision does not have yet
/// is as if the card had nothing of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtCsd {
    /// Its revision.
    pub revision: u32,
    /// The version of its structure.
    pub structure: u32,
    /// Whether it has high speed at 52 MHz.
    pub has_high_speed_52: bool,
    /// Whether it has high speed at 26 MHz.
    pub has_high_speed_26: bool,
    /// Whether it has HS200 with lines of 1.8 V.
    pub has_hs200: bool,
    /// Sectors.
    pub sectors: u32,
    /// How long a switch may take.
    pub generic_switch_ms: u32,
    /// How long a switch of partitions may take.
    pub partition_switch_ms: u32,
    /// Sectors of a high-capacity erase group.
    pub hc_erase_sectors: u32,
    /// How long an erase group may take.
    pub hc_erase_ms: u32,
    /// High-capacity erase groups of what can be write protected.
    pub hc_protect_groups: u32,
    /// Whether high-capacity erase groups are in use.
    pub erase_group_def: bool,
    /// How long a trim may take.
    pub trim_ms: u32,
    /// Secure erase and trim.
    pub sec_features: u32,
    /// Which partition is in use, and where it boots from.
    pub part_config: u8,
    /// Bytes of each of the two boot areas.
    pub boot_bytes: u64,
    /// How the boot areas are write protected; `None` where they cannot be.
    pub boot_protect: Option<u8>,
    /// Bytes of the replay protected area.
    pub rpmb_bytes: u64,
    /// Whether that takes longer frames.
    pub enhanced_rpmb: bool,
    /// Kibibytes of its cache.
    pub cache_kib: u32,
    /// Whether its cache is on.
    pub cache_on: bool,
    /// Whether what it does can be interrupted.
    pub has_hpi: bool,
    /// Sectors of a reliable write, 0 if there is none.
    pub reliable_sectors: u32,
    /// Whether a reliable write can have any number of them.
    pub any_reliable_write: bool,
    /// Whether erased sectors read as ones.
    pub erased_ones: bool,
    /// The firmware's version, of revision 7 and later.
    pub firmware: [u8; FIRMWARE_BYTES],
    /// Whether its firmware can be replaced.
    pub ffu_capable: bool,
    /// How much of its spare blocks is gone.
    pub pre_eol_info: u8,
    /// How much of its life is over, by its two kinds of flash.
    pub life_time: [u8; 2],
    /// Power classes, by voltage and clock.
    pub power_classes: PowerClasses,
    /// What is compared when the bus gets wider.
    read_only: [u8; READ_ONLY.len()],
}

/// What a card draws at a voltage and a clock: a class for four lines in the lower half
/// of a byte, one for eight in the upper half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PowerClasses {
    /// At 1.8 V and up to 26, 52 and 200 MHz.
    pub low: [u8; 3],
    /// At 2.7 to 3.6 V.
    pub high: [u8; 3],
}

impl PowerClasses {
    /// The class at a clock.
    pub fn at(&self, is_low: bool, clock_hz: u32, has_eight_lines: bool) -> u8 {
        const UP_TO_HZ: [u32; 3] = [26_000_000, 52_000_000, 200_000_000];
        let Some(place) = UP_TO_HZ.iter().position(|&hz| clock_hz <= hz) else {
            return 0;
        };
        let both = if is_low { self.low } else { self.high }[place];
        if has_eight_lines {
            both >> 4
        } else {
            both & 0xf
        }
    }
}

/// The register's bytes.
struct Raw<'a>(&'a [u8]);

impl Raw<'_> {
    fn byte(&self, place: usize) -> u8 {
        self.0.get(place).copied().unwrap_or(0)
    }

    fn number(&self, place: usize) -> u32 {
        u32::from(self.byte(place))
    }

    fn word(&self, place: usize) -> u32 {
        (0..4).fold(0, |word, n| word | self.number(place + n) << (8 * n))
    }
}

impl ExtCsd {
    /// Bytes of the register.
    pub const BYTES: usize = 512;

    /// Reads it. Any revision may be read as long as the structure is known
    /// (JESD84-B50 B.8).
    ///
    /// # Errors
    /// One that is too short.
    pub fn of(bytes: &[u8]) -> Result<ExtCsd, Error> {
        if bytes.len() < ExtCsd::BYTES {
            return Err(Error::Invalid);
        }
        let raw = Raw(bytes);
        let revision = raw.number(REV);
        let card_type = raw.byte(CARD_TYPE);
        let mut read = ExtCsd {
            revision,
            structure: raw.number(STRUCTURE),
            has_high_speed_52: card_type & 2 != 0,
            has_high_speed_26: card_type & 1 != 0,
            has_hs200: card_type & 1 << 4 != 0,
            hc_protect_groups: raw.number(HC_WP_GRP_SIZE),
            erased_ones: raw.byte(ERASED_MEM_CONT) != 0,
            generic_switch_ms: SWITCH_MS,
            read_only: READ_ONLY.map(|place| raw.byte(place)),
            ..ExtCsd::default()
        };
        if revision >= 2 {
            read.sectors = raw.word(SEC_CNT);
        }
        if revision >= 3 {
            read.add_groups_and_boot_areas(&raw);
        }
        if revision >= 4 {
            read.add_trim_and_power_classes(&raw);
        }
        if revision >= 5 {
            read.add_reliability(&raw);
        }
        if revision >= 6 {
            read.generic_switch_ms = 10 * raw.number(GENERIC_CMD6_TIME);
            read.cache_kib = raw.word(CACHE_SIZE) / 8;
        }
        if revision >= 7 {
            read.add_health(&raw);
        }
        if read.partition_switch_ms == 0 {
            read.partition_switch_ms = read.generic_switch_ms;
        }
        read.partition_switch_ms = read.partition_switch_ms.max(LEAST_PARTITION_SWITCH_MS);
        Ok(read)
    }

    fn add_groups_and_boot_areas(&mut self, raw: &Raw<'_>) {
        self.part_config = raw.byte(PART_CONFIG.into());
        self.partition_switch_ms = 10 * raw.number(PART_SWITCH_TIME);
        self.erase_group_def = raw.byte(ERASE_GROUP_DEF.into()) & 1 != 0;
        self.hc_erase_ms = 300 * raw.number(ERASE_TIMEOUT_MULT);
        self.hc_erase_sectors = raw.number(HC_ERASE_GRP_SIZE) << 10;
        self.reliable_sectors = raw.number(REL_WR_SEC_C);
        self.boot_bytes = u64::from(raw.byte(BOOT_SIZE_MULT)) << 17;
    }

    fn add_trim_and_power_classes(&mut self, raw: &Raw<'_>) {
        self.sec_features = raw.number(SEC_FEATURE_SUPPORT);
        self.trim_ms = 300 * raw.number(TRIM_MULT);
        self.boot_protect = Some(raw.byte(BOOT_WP));
        self.power_classes = PowerClasses {
            low: [PWR_CL_26_195, PWR_CL_52_195, PWR_CL_200_195].map(|place| raw.byte(place)),
            high: [PWR_CL_26_360, PWR_CL_52_360, PWR_CL_200_360].map(|place| raw.byte(place)),
        };
    }

    fn add_reliability(&mut self, raw: &Raw<'_>) {
        let parameters = raw.byte(WR_REL_PARAM);
        self.has_hpi = raw.byte(HPI_FEATURES) & 1 != 0;
        self.any_reliable_write = parameters & 1 << 2 != 0;
        self.rpmb_bytes = u64::from(raw.byte(RPMB_MULT)) << 17;
        self.enhanced_rpmb = self.revision >= 8 && parameters & 1 << 4 != 0;
    }

    fn add_health(&mut self, raw: &Raw<'_>) {
        self.firmware = std::array::from_fn(|n| raw.byte(FIRMWARE_VERSION + n));
        self.ffu_capable = raw.byte(SUPPORTED_MODES) & 1 != 0 && raw.byte(FW_CONFIG) & 1 == 0;
        self.pre_eol_info = raw.byte(PRE_EOL_INFO);
        self.life_time = [raw.byte(LIFE_TIME_EST), raw.byte(LIFE_TIME_EST + 1)];
    }

    /// Whether another reading is of the same card.
    pub(crate) fn is_same_card(&self, other: &ExtCsd) -> bool {
        self.read_only == other.read_only
    }

    /// Clock of high speed, if it has that.
    pub fn high_speed_hz(&self) -> Option<u32> {
        match (self.has_high_speed_52, self.has_high_speed_26) {
            (true, _) => Some(52_000_000),
            (_, true) => Some(26_000_000),
            _ => None,
        }
    }

    /// Whether it can trim (`mmc_can_trim`).
    pub fn can_trim(&self) -> bool {
        self.sec_features & 1 << 4 != 0
    }

    /// Whether it can erase securely.
    pub fn can_secure_erase(&self) -> bool {
        self.sec_features & 1 != 0
    }

    /// Whether it knows discard.
    pub fn can_discard(&self) -> bool {
        self.revision >= 6
    }

    /// Whether writes can be made reliable.
    pub fn has_reliable_write(&self) -> bool {
        self.any_reliable_write || self.reliable_sectors != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_revision(revision: u8) -> ExtCsd {
        let mut raw = [0; ExtCsd::BYTES];
        raw[REV] = revision;
        raw[SEC_CNT + 3] = 1;
        raw[BOOT_SIZE_MULT] = 8;
        raw[RPMB_MULT] = 1;
        raw[PWR_CL_52_360] = 0x21;
        ExtCsd::of(&raw).unwrap()
    }

    #[test]
    fn a_revision_has_what_came_until_then() {
        let old = of_revision(2);
        assert_eq!(
            (old.sectors, old.boot_bytes, old.rpmb_bytes),
            (1 << 24, 0, 0)
        );
        assert_eq!(of_revision(3).boot_bytes, 1 << 20);
        assert_eq!(of_revision(4).rpmb_bytes, 0);
        assert_eq!(of_revision(5).rpmb_bytes, 128 << 10);
        // One that is newer than all is read like the last.
        assert_eq!(of_revision(200).boot_bytes, 1 << 20);
    }

    #[test]
    fn a_register_that_is_too_short_is_refused() {
        assert_eq!(ExtCsd::of(&[0; ExtCsd::BYTES - 1]), Err(Error::Invalid));
    }

    #[test]
    fn a_power_class_is_of_a_clock_and_a_width() {
        let classes = of_revision(4).power_classes;
        let at = |hz, has_eight_lines| classes.at(false, hz, has_eight_lines);
        assert_eq!((at(52_000_000, false), at(52_000_000, true)), (1, 2));
        assert_eq!((at(26_000_000, false), at(200_000_000, true)), (0, 0));
        assert_eq!(classes.at(true, 52_000_000, false), 0);
    }
}
