//! What sysfs and debugfs show of card, host, disks and queues on our side.

use std::collections::BTreeMap;

use blklab_blk::QueueInfo;
use blklab_device_model::{Model, Sysfs};
use blklab_mmc::HostDevice;

/// The disk of the card's user area; names of the others begin with it.
const DISK: &str = "mmcblk0";

/// All files, under the names that the description gives them here.
pub(super) fn shown(model: &Model, host: &HostDevice) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let lines = host.core().borrow_mut().debug_lines();
    all.extend({ lines.into_iter().enumerate() }.map(|(n, line)| (format!("ios {n}"), line)));
    // Reading debugfs sends a command that the trace was not on for.
    host.core().borrow_mut().take_events();
    let sysfs = model.sysfs();
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
        all.extend(scheduler_files(&all, of, &queue));
    }
    all
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

/// The files of the scheduler that the queue begins with.
fn scheduler_files(
    all: &BTreeMap<String, String>,
    disk: &str,
    queue: &str,
) -> Vec<(String, String)> {
    let number = |of: &str, name: &str| {
        all.get(&format!("{of}/{name}"))
            .and_then(|value| value.parse().ok())
            .unwrap_or(0)
    };
    let nr_requests = number(queue, "nr_requests");
    let info = QueueInfo {
        nr_requests,
        old_nr_requests: nr_requests,
        nr_hw_queues: 1,
        queue_depth: nr_requests / 2,
        nr_cpus: 1,
        capacity_sectors: u64::from(number(disk, "size")),
        rotational: false,
        tags_per_word: 16,
    };
    let name = all
        .get(&format!("{queue}/scheduler"))
        .and_then(|list| list.split(['[', ']']).nth(1));
    let scheduler = name.and_then(blklab_elevator::find);
    let Some(scheduler) = scheduler.and_then(|kind| kind.build(&info)) else {
        return Vec::new();
    };
    let tunables = scheduler.tunables();
    { tunables.declared().iter() }
        .filter_map(|tunable| {
            let value = tunables.get(tunable.name)?;
            Some((
                format!("{queue}/iosched/{}", tunable.name),
                value.to_string(),
            ))
        })
        .collect()
}
