//! Starts a machine: initcalls, devices, drivers, cards and their disks, as Linux does
//! from `driver_init` to the mount of its root file system.
//!
//! Times are those that the drivers wait for: power, resets, and commands at the
//! clock of their bus. The processor's own work takes none.

mod board;
mod card;
mod device_tree;

pub use board::{Board, Card, Device, Emmc, HostController, SdCard};

use std::path::Path;
use std::rc::Rc;

use blklab_description::read_bytes;
use blklab_device_model::{
    BusType, DeviceDeclaration, Initcall, Level, MatchId, Model, ModelError, Parent,
};
use blklab_mmc::emulated::{EmulatedCard, Slot};
use blklab_mmc::pl181::{self, Mmci};
use blklab_mmc::sdhci::{self, Sdhci};
use blklab_mmc::{Caps, Caps2, Host, HostDriverKind, Hosts, Wiring};

use board::BOARDS;

/// How names of device tree blobs end.
const BLOB: &str = "dtb";

/// More than a kernel takes: 2 MiB (arm64's boot protocol).
const BLOB_BYTES_MAX: u64 = 2 << 20;

impl Board {
    /// The board of that name, or that a file describes; one whose name ends with `.dtb`
    /// is a device tree blob.
    ///
    /// # Errors
    /// Where there is none, or its description has a mistake; the message names the
    /// boards that there are, or file and line, or the blob's offset or node.
    pub fn load(name: &str) -> Result<Board, String> {
        let path = Path::new(name);
        if path.extension().is_some_and(|end| end == BLOB) {
            let blob = read_bytes(path, BLOB_BYTES_MAX);
            let blob = blob.map_err(|error| format!("{name}: cannot read: {error}"))?;
            return device_tree::read(name, &blob, &Board::known());
        }
        let text = BOARDS.text_or_file(name)?;
        Board::parse(name, &text).map_err(|error| error.to_string())
    }

    /// The devices of the shipped boards.
    fn known() -> Vec<Device> {
        let boards = BOARDS.texts.iter();
        let boards = boards.filter_map(|(name, text)| Board::parse(name, text).ok());
        boards.flat_map(|board| board.devices).collect()
    }
}

/// A machine that has started.
pub struct Booted {
    model: Model,
    without_driver: Vec<String>,
}

impl Booted {
    /// What happened: a line a step, with its time, inside what it belongs to.
    pub fn sequence(&self) -> String {
        let lines = self.model.log().iter();
        let mut text: String = lines
            .map(|line| {
                format!(
                    "{line}
"
                )
            })
            .collect();
        for name in &self.without_driver {
            text.push_str(&format!("no driver here serves {name}\n"));
        }
        text
    }

    /// Its `/sys`.
    pub fn tree(&self) -> String {
        self.model.sysfs().to_string()
    }

    /// The model as it stands.
    pub fn model(&self) -> &Model {
        &self.model
    }
}

/// Starts a machine with the drivers that there are.
pub fn boot(board: &Board) -> Booted {
    let mut model = Model::new();
    model.set_cpus(board.cpus as usize);
    let hosts = Hosts::new();
    for device in &board.devices {
        if let Some(wiring) = wiring(device) {
            hosts.wire(&device.name, wiring);
        }
    }
    model.enter("driver_init");
    let started = model.register_bus(BusType::PLATFORM);
    if let Err(error) = started {
        model.note(error.to_string());
    }
    model.leave();
    model.run_initcalls(&initcalls(board, &hosts));
    model.run_all_work();
    hosts.show_debug_files(&mut model);
    let has_driver = |device: &&Device| {
        let id = model.find_device(device.bus, &device.name);
        let kobject = id.and_then(|id| model.sysfs().get(model.kobject_of(id)?));
        kobject.is_some_and(|kobject| kobject.links().contains_key("driver"))
    };
    let without = board.devices.iter().filter(|device| !has_driver(device));
    let without_driver = without.map(|device| device.name.clone()).collect();
    Booted {
        model,
        without_driver,
    }
}

/// What the host driver finds behind a device.
fn wiring(device: &Device) -> Option<Wiring> {
    let controller = device.controller?;
    let slot = match &device.card {
        Some(card) => Slot::with(EmulatedCard::new(card.spec())),
        None => Slot::default(),
    };
    let caps2 = match device.bus == BusType::PCI.name {
        true => Caps2::NO_PRESCAN_POWERUP,
        false => Caps2::empty(),
    };
    // An eMMC is soldered, with all its lines (`sdhci-pci`, and `non-removable` and
    // `bus-width` of the device tree).
    let caps = match &device.card {
        Some(Card::Emmc(_)) => Caps::EIGHT_BIT_DATA | Caps::NONREMOVABLE,
        _ => Caps::empty(),
    };
    Some(Wiring {
        host: Rc::new(move || -> Box<dyn Host> {
            let slot = slot.clone();
            match controller {
                HostController::Sdhci(registers) => {
                    let controller = sdhci::Controller::new(registers, slot);
                    Box::new(Sdhci::new(controller, caps2).with_caps(caps))
                }
                HostController::Pl181 { f_max_hz } => {
                    Box::new(Mmci::new(pl181::Controller::new(slot), f_max_hz))
                }
            }
        }),
        partitions: device
            .card
            .iter()
            .flat_map(|card| card.partitions().to_vec())
            .collect(),
    })
}

/// An initcall that registers something.
fn initcall(
    level: Level,
    name: &'static str,
    call: impl Fn(&mut Model) -> Result<(), ModelError> + 'static,
) -> Initcall {
    Initcall {
        level,
        name,
        call: Rc::new(move |model| call(model).map_err(|error| error.to_string())),
    }
}

/// The functions that Linux calls, in its order: those of the device model that a
/// disk needs, and the MMC stack's.
fn initcalls(board: &Board, hosts: &Rc<Hosts>) -> Vec<Initcall> {
    let class = |level, name, class| {
        initcall(level, name, move |model: &mut Model| {
            model.register_class(class)
        })
    };
    let bus = |level, name, bus| {
        initcall(level, name, move |model: &mut Model| {
            model.register_bus(bus)
        })
    };
    let devices = |level, name, bus: &'static str| {
        let of_bus = board.devices.iter().filter(|device| device.bus == bus);
        let devices: Vec<Device> = of_bus.cloned().collect();
        initcall(level, name, move |model| {
            devices.iter().try_for_each(|device| add(model, device))
        })
    };
    let driver = |name, kind: HostDriverKind| {
        let hosts = Rc::clone(hosts);
        initcall(Level::Device, name, move |model| {
            hosts.init_host(model, kind.clone())?;
            model.run_asynchronous();
            Ok(())
        })
    };
    let blocks = Rc::clone(hosts);
    let (platform, amba, pci) = (BusType::PLATFORM, BusType::AMBA, BusType::PCI);
    vec![
        bus(Level::Postcore, "amba_init", amba),
        bus(Level::Postcore, "pci_driver_init", pci),
        class(Level::Postcore, "wakeup_sources_sysfs_init", "wakeup"),
        class(Level::Postcore, "bdi_class_init", "bdi"),
        devices(
            Level::ArchSync,
            "of_platform_default_populate_init",
            platform.name,
        ),
        devices(
            Level::ArchSync,
            "of_platform_default_populate_init",
            amba.name,
        ),
        class(Level::Subsys, "genhd_device_init", "block"),
        class(Level::Subsys, "leds_init", "leds"),
        devices(Level::Subsys, "pci_subsys_init", pci.name),
        initcall(Level::Subsys, "mmc_init", Hosts::init_core),
        initcall(Level::Device, "mmc_blk_init", move |model| {
            blocks.init_block(model)
        }),
        driver("mmci_driver_init", HostDriverKind::mmci()),
        driver("sdhci_driver_init", HostDriverKind::sdhci_pci(None)),
        driver("sdhci_iproc_driver_init", HostDriverKind::sdhci_iproc()),
    ]
}

/// Adds a device to its bus, in its folder of `/sys/devices`.
fn add(model: &mut Model, device: &Device) -> Result<(), ModelError> {
    let mut parent = Parent::Root("");
    let mut path = "/devices".to_owned();
    for folder in device.folder.split('/').filter(|folder| !folder.is_empty()) {
        path = format!("{path}/{folder}");
        parent = match model.device_at(&path) {
            Some(id) => Parent::Device(id),
            None => Parent::Device(model.add_device(DeviceDeclaration::new(folder, parent))?),
        };
    }
    let kinds = device.ids.iter().filter_map(|id| match id {
        MatchId::Compatible(kind) => Some(kind.clone()),
        _ => None,
    });
    let numbered = (0..).zip(kinds);
    let environment = numbered.map(|(n, kind)| (format!("OF_COMPATIBLE_{n}"), kind));
    model.add_device(DeviceDeclaration {
        bus: Some(device.bus),
        ids: device.ids.clone(),
        environment: environment.collect(),
        ..DeviceDeclaration::new(&device.name, parent)
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOARD: &str = "description = \"x\"\n[[device]]\nname = \"fe340000.mmc\"\nfolder = \"platform/emmc2bus\"\n\
        compatible = \"brcm,bcm2711-emmc2\"\n\
        [device.controller]\ncapabilities = \"0x057834b4\"\nversion = 2\n\
        [device.card]\nname = \"SC4G\"\nsize_mib = 4096\nmanufacturer = 3\ncustomer = 21316\n\
        serial = 3\nyear = 2020\nmonth = 4\nrca = 43690\n\
        [[device.card.partition]]\nstart = 2048\nsize_sectors = 4096\n\
        [[device]]\nname = \"fe204000.spi\"\ncompatible = \"brcm,bcm2835-spi\"\n";

    #[test]
    fn a_card_becomes_a_disk_with_its_partitions() {
        let booted = boot(&Board::parse("m.toml", BOARD).unwrap());
        let sysfs = booted.model().sysfs();
        let disk = sysfs.find("/block/mmcblk0").unwrap();
        assert_eq!(
            sysfs.path(disk),
            "/devices/platform/emmc2bus/fe340000.mmc/mmc_host/mmc0/mmc0:aaaa/block/mmcblk0"
        );
        assert_eq!(sysfs.attribute(disk, "size"), Some("8388608"));
        assert_eq!(sysfs.attribute(disk, "mmcblk0p1/start"), Some("2048"));
        assert_eq!(sysfs.attribute(disk, "mq/0/cpu_list"), Some("0"));
        assert_eq!(
            sysfs.attribute(disk, "queue/iosched/fifo_batch"),
            Some("16")
        );
        let sequence = booted.sequence();
        let place = |text: &str| sequence.find(text).unwrap_or_else(|| panic!("{sequence}"));
        assert!(place("initcall mmc_init") < place("initcall mmc_blk_init"));
        assert!(place("probe fe340000.mmc") < place("probe mmc0:aaaa"));
        assert!(place("new high speed SDHC card at address aaaa") < place("probe mmc0:aaaa"));
        assert!(
            sequence.ends_with("no driver here serves fe204000.spi\n"),
            "{sequence}"
        );
        assert!(booted.tree().contains("size: 8388608"));
    }

    /// The board that document 000 reads the drivers on; paths are those that Debian's
    /// kernel 6.1 shows on QEMU's.
    #[test]
    fn the_versatile_express_finds_its_card_behind_the_pl181() {
        let booted = boot(&Board::load("vexpress-a9").unwrap());
        let sysfs = booted.model().sysfs();
        let disk = sysfs.find("/block/mmcblk0").unwrap();
        assert_eq!(
            sysfs.path(disk),
            "/devices/platform/bus@40000000/bus@40000000:motherboard-bus@40000000/\
             bus@40000000:motherboard-bus@40000000:iofpga@7,00000000/10005000.mmci/\
             mmc_host/mmc0/mmc0:4567/block/mmcblk0"
        );
        assert_eq!(sysfs.attribute(disk, "size"), Some("262144"));
        let sequence = booted.sequence();
        assert!(sequence.contains("match 10005000.mmci with mmci-pl18x"));
        assert!(
            sequence.contains("mmc0: new SD card at address 4567"),
            "{sequence}"
        );
        assert!(booted.without_driver.is_empty());
    }

    /// Disks and log are as Linux has them for an eMMC with two boot areas and RPMB.
    #[test]
    fn an_emmc_becomes_a_disk_with_its_boot_areas() {
        let booted = boot(&Board::load("emmc").unwrap());
        let sysfs = booted.model().sysfs();
        let disk = sysfs.find("/block/mmcblk0").unwrap();
        assert_eq!(sysfs.attribute(disk, "size"), Some("61071360"));
        for area in ["mmcblk0boot0", "mmcblk0boot1"] {
            let boot = sysfs.find(&format!("/block/{area}")).unwrap();
            assert_eq!(sysfs.attribute(boot, "size"), Some("8192"));
            assert_eq!(sysfs.attribute(boot, "force_ro"), Some("1"));
        }
        let tree = booted.tree();
        assert!(tree.contains("mmcblk0rpmb"), "{tree}");
        for line in [
            "type: MMC\n",
            "removable: fixed\n",
            "rev: 0x8\n",
            "write back\n",
        ] {
            assert!(tree.contains(line), "no {line}: {tree}");
        }
        let sequence = booted.sequence();
        let found = "mmc0: new HS200 MMC card at address 0001";
        assert!(sequence.contains(found), "{sequence}");
    }

    /// The machine of document 000's measurements.
    #[test]
    fn the_raspberry_pi_starts_from_its_card() {
        let booted = boot(&Board::load("rpi4").unwrap());
        let sysfs = booted.model().sysfs();
        let root = sysfs.find("/block/mmcblk0/mmcblk0p2").unwrap();
        assert_eq!(sysfs.attribute(root, "start"), Some("532480"));
        assert!(booted.without_driver.is_empty());
        // Its four CPUs submit to the one queue.
        let queue = sysfs.find("/block/mmcblk0/mq/0").unwrap();
        assert_eq!(sysfs.attribute(queue, "cpu_list"), Some("0, 1, 2, 3"));
        let debug = sysfs.find("/kernel/debug").unwrap();
        let state = sysfs.attribute(debug, "block/mmcblk0/hctx0/flags");
        assert_eq!(state, Some("alloc_policy=FIFO SHOULD_MERGE|BLOCKING"));
        let last = sysfs.attribute(debug, "block/mmcblk0/hctx0/cpu3/default_rq_list");
        assert_eq!(last, Some(""));
        let ios = sysfs.attribute(debug, "mmc0/ios").unwrap();
        assert!(ios.contains("timing spec:\t7 (sd uhs DDR50)"), "{ios}");
        let status = sysfs.attribute(debug, "mmc0/mmc0:aaaa/status");
        assert_eq!(status, Some("00000900"));
    }
}
