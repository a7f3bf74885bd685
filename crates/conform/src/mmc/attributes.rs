//! What sysfs and debugfs show of card, host, disks and queues on our side.

use std::collections::BTreeMap;

use blklab_device_model::Sysfs;

/// The disk of the card's user area; names of the others begin with it.
const DISK: &str = "mmcblk0";

/// All files, under the names that the description gives them here.
pub(super) fn shown(sysfs: &Sysfs) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let lines = debug_lines(sysfs);
    all.extend({ lines.into_iter().enumerate() }.map(|(n, line)| (format!("ios {n}"), line)));
    for card in names(sysfs, "/bus/mmc/devices") {
        let path = format!("/bus/mmc/devices/{card}");
        add_files(&mut all, sysfs, &format!("card/{card}"), &path);
    }
    add_files(&mut all, sysfs, "host/mmc0", "/class/mmc_host/mmc0");
    for disk in names(sysfs, "/block") {
        let (of, queue) = match disk.strip_prefix(DISK) {
            Some("") | None => ("block", "queue".to_owned()),
            Some(area) => (area, format!("{area}/queue")),
        };
        add_files(&mut all, sysfs, of, &format!("/block/{disk}"));
        add_files(&mut all, sysfs, &queue, &format!("/block/{disk}/queue"));
        let scheduler = format!("/block/{disk}/queue/iosched");
        add_files(&mut all, sysfs, &format!("{queue}/iosched"), &scheduler);
    }
    all
}

/// What was recorded of debugfs, in that order: `ios`, `clock`, the card's `status` and
/// `state`, and the capabilities.
fn debug_lines(sysfs: &Sysfs) -> Vec<String> {
    let host = sysfs.find("/kernel/debug/mmc0");
    let file = |name: &str| sysfs.attribute(host?, name);
    let card = host.and_then(|id| sysfs.get(id)?.children().keys().next());
    let of_card = |name| file(&format!("{}/{name}", card?));
    let parts = [
        file("ios"),
        file("clock"),
        of_card("status"),
        of_card("state"),
        Some("== caps"),
        file("caps"),
        Some("== caps2"),
        file("caps2"),
    ];
    let lines = parts.into_iter().flatten().flat_map(str::lines);
    lines.map(str::to_owned).collect()
}

/// Names of the links in a folder.
fn names<'a>(sysfs: &'a Sysfs, folder: &str) -> impl Iterator<Item = &'a String> {
    let found = sysfs.find(folder).and_then(|id| sysfs.get(id));
    { found.into_iter() }.flat_map(|kobject| kobject.links().keys())
}

/// Files of a folder of sysfs, and the names of all that is in it.
fn add_files(all: &mut BTreeMap<String, String>, sysfs: &Sysfs, of: &str, path: &str) {
    let Some(kobject) = sysfs.find(path).and_then(|id| sysfs.get(id)) else {
        return;
    };
    for (name, value) in kobject.attributes() {
        all.insert(format!("{of}/{name}"), value.replace('\n', " "));
    }
    let mut names: Vec<&String> = kobject.attributes().keys().collect();
    names.extend(kobject.children().keys());
    names.extend(kobject.links().keys());
    names.sort();
    let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
    all.insert(format!("{of}/"), names.join(" "));
}
