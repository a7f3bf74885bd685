//! What is on a machine's buses: the descriptions in `boards/`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use blklab_description::{
    KeyType, ReadError, Shipped, SpecError, Table, flag, keys, parsed, read, shipped, text, whole,
};
use blklab_device_model::{BusType, MatchId, Partition, PciId};
use blklab_mmc::block::MINORS;
use blklab_mmc::sdhci::ControllerSpec;

/// The machine as its device tree and its PCI bus tell.
#[derive(Clone, Debug, PartialEq)]
pub struct Board {
    /// One line of help.
    pub description: String,
    /// How many CPUs it has.
    pub cpus: u32,
    /// Its devices.
    pub devices: Vec<Device>,
}

/// The most CPUs of a machine (`CONFIG_NR_CPUS` of Debian's kernel for x86).
pub(crate) const CPUS_MAX: u32 = 8192;

/// A device that is there before any driver.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Its name in `/sys/devices`.
    pub name: String,
    /// Its bus.
    pub bus: &'static str,
    /// The folder of `/sys/devices` that it is in.
    pub folder: String,
    /// What drivers look at: any of them may match.
    pub ids: Vec<MatchId>,
    /// If it is a host controller of cards, what is wired into it.
    pub controller: Option<HostController>,
    /// The card in it.
    pub card: Option<Card>,
}

/// What is in a controller's socket, or soldered to it.
#[derive(Clone, Debug, PartialEq)]
pub enum Card {
    /// An SD card.
    Sd(SdCard),
    /// An eMMC.
    Emmc(Emmc),
}

impl Card {
    /// What lies on it.
    pub fn partitions(&self) -> &[Partition] {
        match self {
            Card::Sd(card) => &card.partitions,
            Card::Emmc(card) => &card.partitions,
        }
    }
}

/// A host controller of cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostController {
    /// The SD Association's.
    Sdhci(ControllerSpec),
    /// Arm's PL180 and PL181.
    Pl181 {
        /// The fastest clock that the board's wires take.
        f_max_hz: u32,
    },
}

fn hexadecimal<'a>(legal: &'static str, max: u64) -> KeyType<'a, u64> {
    parsed(legal, move |text: &str| {
        let digits = text.strip_prefix("0x")?;
        u64::from_str_radix(digits, 16)
            .ok()
            .filter(|&value| value <= max)
    })
}

keys! {
    /// An SD card.
    #[derive(Clone, Debug, PartialEq)]
    pub struct SdCard(table) {
        /// The product's name, of up to five letters.
        pub name: String = parsed("one to five ASCII letters or digits", |text: &str| {
            let fits = (1..=5).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
            fits.then(|| text.to_owned())
        });
        /// Its size: up to 2048 MiB it is addressed by bytes, beyond by blocks.
        pub size_mib: u32 = whole(1..=2_097_152);
        /// The manufacturer's number.
        pub manufacturer: u32 = whole(0..=255);
        /// The number of whom it was made for.
        pub customer: u32 = whole(0..=65_535);
        /// Hardware revision in the upper four bits, firmware in the lower.
        pub revision: u32 = whole(0..=255).or(0x10);
        /// Its serial number.
        pub serial: u32 = whole(0..=u32::MAX);
        /// When it was made.
        pub year: u32 = whole(2000..=2255);
        /// The month of that.
        pub month: u32 = whole(1..=12);
        /// The address that it chooses.
        pub rca: u32 = whole(1..=65_535).or(1);
        /// Whether it has the modes of UHS-I.
        pub uhs: bool = flag().or(false);
        /// What lies on it.
        pub partitions: Vec<Partition> => read_partitions(table, size_mib)?;
    }
}

keys! {
    /// An eMMC: of version 5.1, and addressed by blocks.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Emmc(table) {
        /// The product's name, of up to six letters.
        pub name: String = parsed("one to six ASCII letters or digits", |text: &str| {
            let fits = (1..=6).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
            fits.then(|| text.to_owned())
        });
        /// Its user area.
        pub size_mib: u32 = whole(2049..=2_097_151);
        /// Each of its two boot areas.
        pub boot_kib: u32 = whole(128..=32_640)
            .such_that(|kib| kib % 128 == 0, "a multiple of 128")
            .documented("a multiple of 128 from 128 to 32640");
        /// Its replay protected area (RPMB).
        pub rpmb_kib: u32 = whole(128..=16_384)
            .such_that(|kib| kib % 128 == 0, "a multiple of 128")
            .documented("a multiple of 128 from 128 to 16384");
        /// Its cache, 0 if it has none.
        pub cache_kib: u32 = whole(0..=1 << 20).or(0);
        /// Whether it has HS200.
        pub hs200: bool = flag().or(false);
        /// The manufacturer's number.
        pub manufacturer: u32 = whole(0..=255);
        /// The number of whom it was made for.
        pub customer: u32 = whole(0..=255);
        /// Product revision.
        pub revision: u32 = whole(0..=255).or(1);
        /// Its serial number.
        pub serial: u32 = whole(0..=u32::MAX);
        /// When it was made.
        pub year: u32 = whole(2013..=2025);
        /// The month of that.
        pub month: u32 = whole(1..=12);
        /// What lies on it.
        pub partitions: Vec<Partition> => read_partitions(table, size_mib)?;
    }
}

keys! {
    /// A partition of a card.
    #[derive(Clone, Copy, Debug)]
    struct PartitionKeys(table) {
        /// First sector.
        start: u64 = whole(1..=u64::from(u32::MAX));
        /// Its size.
        size_sectors: u64 = whole(1..=u64::from(u32::MAX));
    }
}

keys! {
    /// An SD host controller's registers.
    #[derive(Clone, Debug)]
    struct ControllerKeys(table) {
        /// The capabilities registers, the lower one in the lower half.
        capabilities: u64 = hexadecimal("a register such as \"0x057834b4\"", u64::MAX);
        /// The version of the specification: 2 or 3.
        version: u32 = whole(2..=3);
    }
}

keys! {
    /// Arm's PL180 or PL181, which has no register that tells what it can do.
    #[derive(Clone, Debug)]
    struct Pl181Keys(table) {
        /// The fastest clock that the board's wires take (`max-frequency` of the device
        /// tree).
        max_frequency_hz: u32 = whole(400_000..=100_000_000);
    }
}

/// The descriptions in `boards/`.
pub(crate) const BOARDS: Shipped =
    shipped!("board", "../../../boards": "emmc", "rpi4", "vexpress-a9");

impl Board {
    /// Puts cards into the slots of controllers that have them on another board, by their
    /// names: a device tree does not tell them.
    ///
    /// # Errors
    /// Where no controller is called so; the message names those that there are.
    pub fn take_cards(&mut self, from: Board) -> Result<(), String> {
        for other in from
            .devices
            .into_iter()
            .filter(|device| device.card.is_some())
        {
            let own = self
                .devices
                .iter_mut()
                .filter(|device| device.controller.is_some());
            let mut own: Vec<&mut Device> = own.collect();
            match own.iter_mut().find(|device| device.name == other.name) {
                Some(device) => device.card = other.card,
                None => {
                    let names: Vec<&str> = own.iter().map(|device| device.name.as_str()).collect();
                    return Err(format!(
                        "no controller is called {}; there is {}",
                        other.name,
                        match names.is_empty() {
                            true => "none".to_string(),
                            false => names.join(", "),
                        }
                    ));
                }
            }
        }
        Ok(())
    }

    /// Reads a description; `name` is the file as the user named it.
    ///
    /// # Errors
    /// Where a device is not described right; the message has file and line.
    pub fn parse(name: &str, text_of: &str) -> Result<Board, SpecError> {
        read(name, text_of, |root| {
            let description = root.key("description", "A line of help.", text())?;
            let cpus = whole(1..=CPUS_MAX).or(1);
            let cpus = root.key("cpus", "How many CPUs it has.", cpus)?;
            let names = RefCell::default();
            let devices = root.read_each("device", |table| read_device(table, &names))?;
            root.finish()?;
            Ok(Board {
                description,
                cpus,
                devices,
            })
        })
    }
}

/// Reads a device; `names` are those of the devices before it.
fn read_device(table: &Table<'_>, names: &RefCell<BTreeSet<String>>) -> Result<Device, ReadError> {
    let of_file = parsed("a name without /", |text: &str| {
        (!text.is_empty() && !text.contains('/')).then(|| text.to_owned())
    });
    let name: String = table.key("name", "Its name.", of_file)?;
    if !names.borrow_mut().insert(name.clone()) {
        return Err(table.wrong("name", "legal is one that no device before it has"));
    }
    let folder = table.key("folder", "Its folder.", text().or("platform".to_owned()))?;
    let bus = table.key("bus", "Its bus.", text().or("platform".to_owned()))?;
    let sdhci = table.read_if_any("controller", read_controller)?;
    let pl181 = table.read_if_any("pl181", Pl181Keys::read)?;
    let controller = match (sdhci, pl181) {
        (Some(_), Some(_)) => {
            return Err(table.wrong("pl181", "legal is one of controller and pl181"));
        }
        (Some(registers), None) => Some(HostController::Sdhci(registers)),
        (None, Some(keys)) => Some(HostController::Pl181 {
            f_max_hz: keys.max_frequency_hz,
        }),
        (None, None) => None,
    };
    let (bus, id) = match bus.as_str() {
        "platform" => {
            let compatible = table.key("compatible", "Its kind in the device tree.", text())?;
            (BusType::PLATFORM.name, MatchId::Compatible(compatible))
        }
        "amba" => {
            let legal = "a peripheral number such as \"0x00041181\"";
            let id = hexadecimal(legal, u64::from(u32::MAX));
            let id = table.key("id", "Its peripheral number.", id)? as u32;
            (BusType::AMBA.name, MatchId::Amba { id, mask: u32::MAX })
        }
        "pci" => {
            let class = hexadecimal("a class such as \"0x080501\"", 0xff_ffff);
            let class = table.key("class", "Its class.", class)? as u32;
            let id = PciId {
                class: Some(class),
                ..PciId::default()
            };
            (BusType::PCI.name, MatchId::Pci(id))
        }
        _ => return Err(table.wrong("bus", "legal is platform, amba or pci")),
    };
    let sd = table.read_if_any("card", SdCard::read)?;
    let emmc = table.read_if_any("emmc", Emmc::read)?;
    let card = match (sd, emmc) {
        (Some(_), Some(_)) => return Err(table.wrong("emmc", "legal is one of card and emmc")),
        (Some(card), None) => Some(("card", Card::Sd(card))),
        (None, Some(card)) => Some(("emmc", Card::Emmc(card))),
        (None, None) => None,
    };
    if let (Some((key, _)), None) = (&card, controller) {
        return Err(table.wrong(key, "legal is a card in a device with a controller"));
    }
    let card = card.map(|(_, card)| card);
    table.finish()?;
    Ok(Device {
        name,
        bus,
        folder,
        ids: vec![id],
        controller,
        card,
    })
}

fn read_controller(table: &Table<'_>) -> Result<ControllerSpec, ReadError> {
    let keys = ControllerKeys::read(table)?;
    // Its base clock drives the bus: without one there is none.
    if keys.capabilities >> 8 & 0x3f == 0 {
        let legal = "legal is one with a base clock in bits 8 to 13";
        return Err(table.wrong("capabilities", legal));
    }
    if keys.capabilities >> 24 & 7 == 0 {
        let legal = "legal is one with a voltage in bits 24 to 26";
        return Err(table.wrong("capabilities", legal));
    }
    Ok(ControllerSpec {
        capabilities: keys.capabilities,
        max_current: 0,
        // The register counts from 0.
        version: if keys.version == 3 { 2 } else { 1 },
    })
}

fn read_partitions(table: &Table<'_>, size_mib: u32) -> Result<Vec<Partition>, ReadError> {
    let sectors = u64::from(size_mib) << 11;
    let number = Cell::new(0);
    let read = table.read_each("partition", |table| {
        let keys = PartitionKeys::read(table)?;
        number.set(number.get() + 1);
        if number.get() >= MINORS {
            let legal = format!("legal are {} partitions at most", MINORS - 1);
            return Err(table.wrong("start", legal));
        }
        if keys.start + keys.size_sectors > sectors {
            let legal = format!("legal is an end within the card's {sectors} sectors");
            return Err(table.wrong("size_sectors", legal));
        }
        Ok(keys)
    })?;
    let numbered = (1..).zip(read).map(|(number, keys)| Partition {
        number,
        start: keys.start,
        size_sectors: keys.size_sectors,
    });
    Ok(numbered.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: &str = "description = \"x\"\n[[device]]\nname = \"fe340000.mmc\"\ncompatible = \"x\"\n\
        [device.controller]\ncapabilities = \"0x057834b4\"\nversion = 2\n\
        [device.card]\nname = \"SD\"\nsize_mib = 64\nmanufacturer = 1\ncustomer = 2\n\
        serial = 3\nyear = 2020\nmonth = 4\n";

    #[test]
    fn a_board_has_controllers_with_cards() {
        let board = Board::parse("m.toml", DEVICE).unwrap();
        let device = &board.devices[0];
        assert_eq!(
            (device.name.as_str(), device.bus),
            ("fe340000.mmc", "platform")
        );
        let Some(Card::Sd(card)) = &device.card else {
            panic!("{:?}", device.card);
        };
        assert_eq!(card.size_mib, 64);
    }

    #[test]
    fn what_cannot_be_is_told_with_its_line() {
        let cases = [
            (
                "version = 2",
                "version = 4",
                "m.toml:7: `device.controller.version`",
            ),
            (
                "0x057834b4",
                "0x05780034",
                "m.toml:6: `device.controller.capabilities`",
            ),
            (
                "0x057834b4",
                "0x007834b4",
                "m.toml:6: `device.controller.capabilities`",
            ),
            ("month = 4", "month = 13", "m.toml:15: `device.card.month`"),
            ("fe340000.mmc", "a/b", "m.toml:3: `device.name`"),
            (
                "month = 4",
                "month = 4\n[[device.card.partition]]\nstart = 131000\nsize_sectors = 73",
                "m.toml:18: `device.card.partition.size_sectors`",
            ),
            (
                "month = 4",
                "month = 4\n[[device]]\nname = \"fe340000.mmc\"",
                "m.toml:17: `device.name`",
            ),
            (
                "\"SD\"",
                "\"much too long\"",
                "m.toml:9: `device.card.name`",
            ),
            (
                "compatible = \"x\"",
                "compatble = \"x\"",
                "m.toml:4: `device.compatible`",
            ),
        ];
        for (found, put, expected) in cases {
            let text = DEVICE.replace(found, put);
            let error = Board::parse("m.toml", &text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
