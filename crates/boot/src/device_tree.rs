//! Device tree blobs: which devices `of_platform_default_populate_init` makes of one, under
//! which names, and what drivers look at (Linux' `drivers/of/platform.c` and `address.c`;
//! the Devicetree Specification 0.4).
//!
//! A tree tells neither what a controller's registers hold nor which card is in its slot:
//! the registers are those of the shipped boards' controllers of the same kind.

use blklab_device_model::{BusType, MatchId};
use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::{Node, Property};

use crate::board::{Board, CPUS_MAX, Device, HostController};

/// Deeper trees are refused, as by the kernel (`FDT_MAX_DEPTH`).
const DEPTH_MAX: usize = 64;

/// The fastest clock of a PL18x whose board says none (`fmax` of `mmci.c`).
const PL18X_CLOCK_HZ: u32 = 515_633;

/// Kinds of nodes whose children are devices too (`of_default_bus_match_table`).
const BUSES: [&str; 4] = ["simple-bus", "simple-mfd", "isa", "arm,amba-bus"];

/// A node with what its children's addresses need.
struct Level<'a> {
    node: FdtNode<'a>,
    /// Cells of an address and of a size of its children.
    cells: [usize; 2],
}

/// A walk through a blob.
struct Walk<'a> {
    file: &'a str,
    known: &'a [Device],
    /// From the root to the node that is looked at.
    levels: Vec<Level<'a>>,
    devices: Vec<Device>,
}

/// Reads a blob; `known` are devices whose controllers' registers are known.
///
/// # Errors
/// Where it is broken: the message names file, and offset or node, and what is right.
pub(crate) fn read(file: &str, blob: &[u8], known: &[Device]) -> Result<Board, String> {
    let tree = Fdt::new(blob).map_err(|error| {
        format!("{file}: {error}; right is a blob of version 17 as dtc writes it, whole")
    })?;
    let root = tree.root();
    let mut walk = Walk {
        file,
        known,
        levels: Vec::new(),
        devices: Vec::new(),
    };
    let model = walk.text(&root, "model")?.unwrap_or("no model named");
    let description = model.to_string();
    walk.enter(root)?;
    walk.populate("platform")?;
    let cpus = walk.cpus(&tree.root())?;
    Ok(Board {
        description,
        cpus,
        devices: walk.devices,
    })
}

impl<'a> Walk<'a> {
    /// A mistake in a node.
    fn wrong(&self, node: &FdtNode<'_>, problem: &str) -> String {
        let names = self.levels.iter().skip(1).map(|level| level.node.name());
        let mut path: String = names.map(|name| format!("/{name}")).collect();
        let is_inner = self
            .levels
            .last()
            .is_some_and(|last| last.node.name() == node.name());
        if !is_inner {
            path.push_str(&format!("/{}", node.name()));
        }
        format!("{}: {path}: {problem}", self.file)
    }

    /// A property that is one text.
    fn text(&self, node: &FdtNode<'a>, name: &str) -> Result<Option<&'a str>, String> {
        Ok(self.texts(node, name)?.first().copied())
    }

    /// A property that is a list of texts, each ended by a zero.
    fn texts(&self, node: &FdtNode<'a>, name: &str) -> Result<Vec<&'a str>, String> {
        let Some(value) = value(node, name) else {
            return Ok(Vec::new());
        };
        let text = value
            .strip_suffix(&[0])
            .and_then(|text| std::str::from_utf8(text).ok());
        match text {
            Some(text) => Ok(text.split('\0').collect()),
            None => Err(self.wrong(
                node,
                &format!("{name} is no text; right are texts that each end with a zero"),
            )),
        }
    }

    /// How many CPUs `/cpus` lists, 1 if none (`of_parse_and_init_cpus`).
    fn cpus(&self, root: &FdtNode<'a>) -> Result<u32, String> {
        let all = root.children().filter(|node| node.name() == "cpus");
        let mut cpus = 0;
        for node in all.flat_map(|node| node.children()) {
            if self.text(&node, "device_type")? == Some("cpu") {
                cpus += 1;
            }
        }
        Ok(cpus.clamp(1, CPUS_MAX))
    }

    /// A property of one cell.
    fn cell(&self, node: &FdtNode<'a>, name: &str) -> Result<Option<u32>, String> {
        let Some(value) = value(node, name) else {
            return Ok(None);
        };
        match <[u8; 4]>::try_from(value) {
            Ok(bytes) => Ok(Some(u32::from_be_bytes(bytes))),
            Err(_) => {
                let found = value.len();
                Err(self.wrong(node, &format!("{name} has {found} bytes; right are 4")))
            }
        }
    }

    /// Goes down to a node.
    fn enter(&mut self, node: FdtNode<'a>) -> Result<(), String> {
        if self.levels.len() == DEPTH_MAX {
            let problem = format!("deeper than {DEPTH_MAX} nodes; right is a flatter tree");
            return Err(self.wrong(&node, &problem));
        }
        let mut cells = [0; 2];
        let names = [("#address-cells", 2), ("#size-cells", 1)];
        for (cells, (name, default)) in cells.iter_mut().zip(names) {
            let found = self.cell(&node, name)?.unwrap_or(default);
            if found > 4 {
                let problem = format!("{name} is {found}; right is a number from 0 to 4");
                return Err(self.wrong(&node, &problem));
            }
            *cells = found as usize;
        }
        self.levels.push(Level { node, cells });
        Ok(())
    }

    /// Makes devices of the children of the node that was entered last
    /// (`of_platform_bus_create`).
    fn populate(&mut self, folder: &str) -> Result<(), String> {
        let children = self.levels.last().map(|level| level.node.children());
        for node in children.into_iter().flatten() {
            let kinds = self.texts(&node, "compatible")?;
            let status = self.text(&node, "status")?.unwrap_or("okay");
            if kinds.is_empty() || !["okay", "ok"].contains(&status) {
                continue;
            }
            let name = self.name(&node)?;
            let inside = format!("{folder}/{name}");
            let device = self.device(&node, &kinds, (name, folder))?;
            let is_platform = device.bus == BusType::PLATFORM.name;
            self.devices.push(device);
            if is_platform && kinds.iter().any(|kind| BUSES.contains(kind)) {
                self.enter(node)?;
                self.populate(&inside)?;
                self.levels.pop();
            }
        }
        Ok(())
    }

    /// What a device is called: by its address where the processor sees one, else by its
    /// node and the names above (`of_device_make_bus_id`).
    fn name(&self, node: &FdtNode<'a>) -> Result<String, String> {
        let mut name = String::new();
        for depth in (0..self.levels.len()).rev() {
            // The node at `depth + 1` is the child of the one at `depth`.
            let at = match self.levels.get(depth + 1) {
                Some(level) => &level.node,
                None => node,
            };
            let below = match name.is_empty() {
                true => String::new(),
                false => format!(":{name}"),
            };
            if let Some(address) = self.address(at, depth)? {
                let plain = at.name_without_address();
                return Ok(format!("{address:x}.{plain}{below}"));
            }
            name = format!("{}{below}", at.name());
        }
        Ok(name)
    }

    /// The processor's address of the first register of a child of the node at `depth`
    /// (`of_translate_address`); `None` where it has none.
    fn address(&self, node: &FdtNode<'a>, depth: usize) -> Result<Option<u128>, String> {
        let [address_cells, size_cells] = self.levels[depth].cells;
        let entries = self.entries(node, "reg", address_cells + size_cells)?;
        let Some(first) = entries.and_then(|mut entries| entries.next()) else {
            return Ok(None);
        };
        let mut address = number(&first[..address_cells * 4]);
        for bus in (1..=depth).rev() {
            let [child, size] = self.levels[bus].cells;
            let parent = self.levels[bus - 1].cells[0];
            let of = &self.levels[bus].node;
            let Some(ranges) = value(of, "ranges") else {
                return Ok(None);
            };
            if ranges.is_empty() {
                continue;
            }
            let entries = self.entries(of, "ranges", child + parent + size)?;
            let mut entries = entries.into_iter().flatten().map(|entry| {
                let (from, rest) = entry.split_at(child * 4);
                let (to, length) = rest.split_at(parent * 4);
                (number(from), number(to), number(length))
            });
            let found = entries.find(|(from, _, length)| {
                address
                    .checked_sub(*from)
                    .is_some_and(|inside| inside < *length)
            });
            match found.and_then(|(from, to, _)| to.checked_add(address - from)) {
                Some(translated) => address = translated,
                None => return Ok(None),
            }
        }
        Ok(Some(address))
    }

    /// A property as entries of so many cells each.
    fn entries(
        &self,
        node: &FdtNode<'a>,
        name: &str,
        cells: usize,
    ) -> Result<Option<std::slice::ChunksExact<'a, u8>>, String> {
        let Some(value) = value(node, name) else {
            return Ok(None);
        };
        if cells == 0 || !value.len().is_multiple_of(cells * 4) {
            let found = value.len();
            let problem = match cells {
                0 => format!("{name} has {found} bytes, and its bus gives entries no cells"),
                _ => format!(
                    "{name} has {found} bytes; right are entries of {} bytes ({cells} cells each)",
                    cells * 4
                ),
            };
            return Err(self.wrong(node, &problem));
        }
        Ok(Some(value.chunks_exact(cells * 4)))
    }

    fn device(
        &self,
        node: &FdtNode<'a>,
        kinds: &[&str],
        (name, folder): (String, &str),
    ) -> Result<Device, String> {
        let is_primecell = kinds.contains(&"arm,primecell");
        let (bus, ids) = match is_primecell {
            true => {
                let told = self.cell(node, "arm,primecell-periphid")?;
                let id = told.or_else(|| kinds.iter().find_map(|kind| primecell_id(kind)));
                let mask = u32::MAX;
                let amba = MatchId::Amba {
                    id: id.unwrap_or_default(),
                    mask,
                };
                (BusType::AMBA.name, vec![amba])
            }
            false => {
                let of = kinds
                    .iter()
                    .map(|kind| MatchId::Compatible(kind.to_string()));
                (BusType::PLATFORM.name, of.collect())
            }
        };
        let f_max_hz = self.cell(node, "max-frequency")?.unwrap_or(PL18X_CLOCK_HZ);
        let is_pl18x = |kind: &&str| ["arm,pl180", "arm,pl181"].contains(kind);
        let alike = self
            .known
            .iter()
            .find(|device| device.ids.iter().any(|id| ids.contains(id)));
        let controller = match kinds.iter().any(is_pl18x) {
            true => Some(HostController::Pl181 { f_max_hz }),
            false => alike.and_then(|device| device.controller),
        };
        Ok(Device {
            name,
            bus,
            folder: folder.to_string(),
            ids,
            controller,
            card: None,
        })
    }
}

/// A property's bytes.
fn value<'a>(node: &FdtNode<'a>, name: &str) -> Option<&'a [u8]> {
    let mut properties = node.properties();
    let found = properties.find(|property| property.name() == name)?;
    found.value_as::<&'a [u8]>().ok()
}

/// The number that cells are, the highest first.
fn number(cells: &[u8]) -> u128 {
    cells
        .iter()
        .fold(0, |sum, byte| sum << 8 | u128::from(*byte))
}

/// The peripheral number of one of Arm's PrimeCells, which its own registers tell: the
/// designer 0x41 and the digits of its name.
fn primecell_id(kind: &str) -> Option<u32> {
    let digits = kind
        .strip_prefix("arm,pl")
        .or_else(|| kind.strip_prefix("arm,sp"))?;
    let part = u32::from_str_radix(digits, 16)
        .ok()
        .filter(|part| *part < 0x1000)?;
    Some(0x0004_1000 | part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot;
    use dtoolkit::model::{DeviceTree, DeviceTreeNode, DeviceTreeProperty};
    use proptest::prelude::*;

    type Properties<'a> = &'a [(&'a str, &'a [u8])];

    fn node(
        name: &str,
        properties: Properties<'_>,
        children: Vec<DeviceTreeNode>,
    ) -> DeviceTreeNode {
        let mut node = DeviceTreeNode::new_unchecked(name);
        for (name, value) in properties {
            node.add_property(DeviceTreeProperty::new_unchecked(*name, *value));
        }
        children.into_iter().for_each(|child| node.add_child(child));
        node
    }

    fn cells(cells: &[u32]) -> Vec<u8> {
        cells.iter().flat_map(|cell| cell.to_be_bytes()).collect()
    }

    fn blob(root: DeviceTreeNode) -> Vec<u8> {
        let mut tree = DeviceTree::new();
        tree.root = root;
        tree.to_dtb()
    }

    /// The nodes of `vexpress-v2m.dtsi` above the card interface, and of `bcm2711.dtsi`
    /// above the Pi's. `reg` is the interface's.
    fn tree(reg: &[u32]) -> Vec<u8> {
        let [one, two] = [cells(&[1]), cells(&[2])];
        let mmci = node(
            "mmci@5000",
            &[
                ("compatible", b"arm,pl180\0arm,primecell\0"),
                ("reg", &cells(reg)),
                ("max-frequency", &cells(&[12_000_000])),
            ],
            vec![],
        );
        let fpga = node(
            "iofpga@7,00000000",
            &[
                ("compatible", b"simple-bus\0"),
                ("#address-cells", &one),
                ("#size-cells", &one),
                ("ranges", &cells(&[0, 7, 0, 0x20000])),
            ],
            vec![mmci],
        );
        let motherboard = node(
            "motherboard-bus@40000000",
            &[
                ("compatible", b"arm,vexpress,v2m-p1\0simple-bus\0"),
                ("#address-cells", &two),
                ("#size-cells", &one),
                ("ranges", &cells(&[7, 0, 0x1000_0000, 0x20000])),
            ],
            vec![fpga],
        );
        let bus = node(
            "bus@40000000",
            &[
                ("compatible", b"simple-bus\0"),
                ("#address-cells", &one),
                ("#size-cells", &one),
                ("ranges", b""),
            ],
            vec![motherboard],
        );
        let emmc2 = node(
            "mmc@7e340000",
            &[
                ("compatible", b"brcm,bcm2711-emmc2\0"),
                ("reg", &cells(&[0, 0x7e34_0000, 0x100])),
            ],
            vec![],
        );
        let disabled = node(
            "mmc@7e300000",
            &[
                ("compatible", b"brcm,bcm2835-mmc\0"),
                ("status", b"disabled\0"),
            ],
            vec![],
        );
        let emmc2bus = node(
            "emmc2bus",
            &[
                ("compatible", b"simple-bus\0"),
                ("#address-cells", &two),
                ("#size-cells", &one),
                ("ranges", &cells(&[0, 0x7e00_0000, 0xfe00_0000, 0x180_0000])),
            ],
            vec![emmc2, disabled],
        );
        let cpu = |name| node(name, &[("device_type", b"cpu\0")], vec![]);
        let cpus = [cpu("cpu@0"), cpu("cpu@1"), node("cpu-map", &[], vec![])];
        let cpus = node("cpus", &[], cpus.into());
        blob(node(
            "",
            &[
                ("model", b"V2P-CA9\0"),
                ("#address-cells", &one),
                ("#size-cells", &one),
            ],
            vec![cpus, bus, emmc2bus],
        ))
    }

    fn known() -> Vec<Device> {
        Board::load("rpi4").expect("shipped").devices
    }

    #[test]
    fn devices_have_the_names_that_linux_gives_them() {
        let mut board = read("b.dtb", &tree(&[0x5000, 0x1000]), &known()).expect("sound");
        assert_eq!((board.description.as_str(), board.cpus), ("V2P-CA9", 2));
        for shipped in ["vexpress-a9", "rpi4"] {
            let of = Board::load(shipped).expect("shipped").devices.remove(0);
            let found = board.devices.iter().find(|device| device.name == of.name);
            let found = found.unwrap_or_else(|| panic!("no {}: {board:?}", of.name));
            assert_eq!((found.bus, &found.folder), (of.bus, &of.folder));
            assert_eq!(found.controller, of.controller);
        }
        assert!(
            board
                .devices
                .iter()
                .all(|device| !device.name.contains("7e300000"))
        );
        // What the tree does not tell comes from elsewhere.
        let card = Board::load("vexpress-a9").expect("shipped");
        board.take_cards(card).expect("it has that controller");
        let booted = boot(&board);
        let sysfs = booted.model().sysfs();
        let disk = sysfs
            .find("/block/mmcblk0")
            .expect("a card behind the PL181");
        assert_eq!(sysfs.attribute(disk, "size"), Some("262144"));
        let pi = Board::load("rpi4").expect("shipped");
        let mut none = Board {
            devices: Vec::new(),
            ..pi.clone()
        };
        let why = none.take_cards(pi).expect_err("there is no controller");
        assert_eq!(why, "no controller is called fe340000.mmc; there is none");
    }

    #[test]
    fn what_is_broken_is_told_with_its_node_or_offset() {
        let sound = tree(&[0x5000, 0x1000]);
        let problem = |blob: &[u8]| read("b.dtb", blob, &[]).expect_err("broken");
        let told = problem(&tree(&[0x5000]));
        let mmci = "/bus@40000000/motherboard-bus@40000000/iofpga@7,00000000/mmci@5000";
        assert_eq!(
            told,
            format!("b.dtb: {mmci}: reg has 4 bytes; right are entries of 8 bytes (2 cells each)")
        );
        let odd = node("x", &[("compatible", b"open")], vec![]);
        assert_eq!(
            problem(&blob(node("", &[], vec![odd]))),
            "b.dtb: /x: compatible is no text; right are texts that each end with a zero"
        );
        let wide = node(
            "x",
            &[
                ("compatible", b"simple-bus\0"),
                ("#size-cells", &cells(&[9])),
            ],
            vec![],
        );
        assert_eq!(
            problem(&blob(node("", &[], vec![wide]))),
            "b.dtb: /x: #size-cells is 9; right is a number from 0 to 4"
        );
        for (blob, offset) in [
            (&sound[..40], "offset 4"),
            (&[0; 60], "offset 0"),
            (&[], "offset 0"),
        ] {
            let told = problem(blob);
            assert!(
                told.contains(offset) && told.contains("right is a blob"),
                "{told}"
            );
        }
        let mut deep = node("x", &[("compatible", b"simple-bus\0")], vec![]);
        for _ in 0..100 {
            deep = node("x", &[("compatible", b"simple-bus\0")], vec![deep]);
        }
        let told = problem(&blob(node("", &[], vec![deep])));
        assert!(
            told.ends_with("deeper than 64 nodes; right is a flatter tree"),
            "{told}"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn any_blob_is_read_or_refused(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            length in any::<prop::sample::Index>(),
            is_cut in prop::bool::weighted(0.2),
        ) {
            let mut blob = tree(&[0x5000, 0x1000]);
            for (at, byte) in changes {
                let at = at.index(blob.len());
                blob[at] = byte;
            }
            if is_cut {
                blob.truncate(length.index(blob.len()));
            }
            if let Err(told) = read("b.dtb", &blob, &[]) {
                prop_assert!(told.starts_with("b.dtb: ") && told.lines().count() == 1, "{told}");
            }
        }
    }
}
