//! `blklab boot`: a machine from its first initcall to its card's disk.

use std::collections::BTreeSet;

use blklab_guest::Packages;

use crate::support::mounted::Mounted;
use crate::support::{Place, guest, have_fuse};

#[test]
fn the_raspberry_pi_finds_its_card() {
    let place = Place::new();
    let sequence = place.blklab(&["boot", "rpi4"]).ok().out;
    let place_of = |text: &str| sequence.find(text).unwrap_or_else(|| panic!("{sequence}"));
    let order = [
        "driver_init",
        "subsys_initcall\n",
        "initcall mmc_init",
        "device_initcall\n",
        "initcall mmc_blk_init",
        "match fe340000.mmc with sdhci-iproc",
        "uevent bind@/devices/platform/emmc2bus/fe340000.mmc\n",
        "new ultra high speed DDR50 SDHC card at address",
        "match mmc0:",
        "/block/mmcblk0/mmcblk0p2",
    ];
    for pair in order.windows(2) {
        assert!(place_of(pair[0]) < place_of(pair[1]), "{pair:?}");
    }
    let tree = place.blklab(&["boot", "rpi4", "--tree"]).ok().out;
    assert!(tree.contains("scheduler: none [mq-deadline]\n"), "{tree}");
    assert!(tree.contains("mmcblk0 -> ../devices/platform/emmc2bus/fe340000.mmc/mmc_host/mmc0/"));
    // The scheduler's tunables, the four CPUs of the one queue, and debugfs.
    for line in [
        "fifo_batch: 16\n",
        "cpu_list: 0, 1, 2, 3\n",
        "flags: alloc_policy=FIFO SHOULD_MERGE|BLOCKING\n",
        "status: 00000900\n",
    ] {
        assert!(tree.contains(line), "no {line}: {tree}");
    }
}

#[test]
fn a_device_that_cannot_be_is_one_message() {
    let place = Place::new();
    let cases = [
        ("[[devise]]\n", "m.toml:2: `device`"),
        (
            "[[device]]\nname = \"x\"\nbus = \"isa\"\n",
            "m.toml:4: `device.bus`",
        ),
        ("[[device]]\nbus = \"platform\"\n", "`device.name`"),
    ];
    for (devices, expected) in cases {
        let text = format!("description = \"x\"\n{devices}");
        place.file("m.toml", &text);
        let outcome = place.blklab(&["boot", "m.toml"]);
        assert_eq!(outcome.status, 2);
        assert!(outcome.err.contains(expected), "{}", outcome.err);
    }
}

#[test]
fn a_broken_device_tree_is_one_message_with_its_offset() {
    let place = Place::new();
    place.file("text.dtb", &"no blob at all. ".repeat(4));
    place.file("short.dtb", "");
    for (file, expected) in [
        (
            "text.dtb",
            "text.dtb: Invalid FDT magic number at offset 0; right is a blob",
        ),
        (
            "short.dtb",
            "short.dtb: Invalid FDT length at offset 0; right is a blob",
        ),
        ("none.dtb", "none.dtb: cannot read"),
    ] {
        let outcome = place.blklab(&["boot", file]);
        assert_eq!(outcome.status, 2);
        assert!(outcome.err.contains(expected), "{}", outcome.err);
        assert_eq!(outcome.err.lines().count(), 1);
    }
    let outcome = place.blklab(&["boot", "rpi4", "--cards", "vexpress-a9"]);
    assert_eq!(outcome.status, 2);
    let expected =
        "--cards vexpress-a9: no controller is called 10005000.mmci; there is fe340000.mmc";
    assert!(outcome.err.contains(expected), "{}", outcome.err);
}

#[test]
fn an_emmc_has_boot_areas_and_rpmb() {
    let place = Place::new();
    let tree = place.blklab(&["boot", "emmc", "--tree"]).ok().out;
    for line in ["mmcblk0boot0", "mmcblk0boot1", "mmcblk0rpmb", "type: MMC\n"] {
        assert!(tree.contains(line), "no {line}: {tree}");
    }
    let text = "description = \"x\"\n[[device]]\nname = \"x\"\ncompatible = \"x\"\n\
                [device.emmc]\nname = \"E\"\nsize_mib = 4096\nboot_kib = 100\n";
    place.file("m.toml", text);
    let outcome = place.blklab(&["boot", "m.toml"]);
    assert_eq!(outcome.status, 2);
    let expected = "m.toml:8: `device.emmc.boot_kib`: found 100, legal is";
    assert!(outcome.err.contains(expected), "{}", outcome.err);
}

/// Mounts the `/sys` of a machine on `mnt`; `None` where this machine does not let us.
/// Minors are counted over the disks of all hosts, boot areas included.
#[test]
fn an_sd_card_beside_an_emmc_has_a_disk() {
    let place = Place::new();
    let emmc = include_str!("../../boards/emmc.toml");
    let card = "\n[[device]]\nname = \"0000:00:1d.0\"\nfolder = \"pci0000:00\"\nbus = \"pci\"\n\
                class = \"0x080501\"\n[device.controller]\ncapabilities = \"0x057834b4\"\n\
                version = 2\n[device.card]\nname = \"SD\"\nsize_mib = 64\nmanufacturer = 1\n\
                customer = 2\nserial = 3\nyear = 2020\nmonth = 4\n";
    place.file("two.toml", &format!("{emmc}{card}"));
    let boot = place.blklab(&["boot", "two.toml"]).ok().out;
    assert!(!boot.contains("failed"), "{boot}");
    let tree = place.blklab(&["boot", "two.toml", "--tree"]).ok().out;
    for disk in [
        "mmcblk0 ->",
        "mmcblk0boot0 ->",
        "mmcblk0boot1 ->",
        "mmcblk1 ->",
    ] {
        assert!(tree.contains(disk), "{disk}: {tree}");
    }
    assert!(tree.contains("179:768"), "{tree}");
}

fn mount<'a>(place: &'a Place, board: &str) -> Option<Mounted<'a>> {
    std::fs::create_dir(place.path("mnt")).expect("a folder");
    let said = format!("/sys of {board} is mounted on mnt\n");
    Mounted::start(place, &["boot", board, "--mount", "mnt"], &said)
}

#[test]
fn the_tree_is_there_as_files() {
    if !have_fuse() {
        return;
    }
    let place = Place::new();
    let Some(mounted) = mount(&place, "rpi4") else {
        return;
    };
    for (line, expected) in [
        ("cat block/mmcblk0/queue/scheduler", "none [mq-deadline]\n"),
        ("ls bus/mmc", "devices\ndrivers\n"),
        ("ls bus/mmc/devices", "mmc0:aaaa\n"),
        ("cat block/mmcblk0/queue/iosched/fifo_batch", "16\n"),
        ("cat class/mmc_host/mmc0/mmc0:aaaa/type", "SD\n"),
        ("cat kernel/debug/mmc0/clock", "50000000\n"),
    ] {
        assert_eq!(mounted.shell(line), expected, "{line}");
    }
    // Nothing can be set: the machine is as it stood after its boot.
    mounted.shell("! echo none > block/mmcblk0/queue/scheduler");
    mounted.end();
    assert!(!place.path("mnt/block").exists());
    place.file("mnt/mine", "");
    let refused = place.blklab(&["boot", "rpi4", "--mount", "mnt"]);
    assert_eq!(refused.status, 2);
    assert!(refused.err.contains("not empty"), "{}", refused.err);
}

/// QEMU's SD card behind SDHCI on PCI, in a machine of two CPUs.
const QEMU: &str = "\
description = \"QEMU\"
cpus = 2
[[device]]
name = \"0000:00:02.0\"
folder = \"pci0000:00\"
bus = \"pci\"
class = \"0x080501\"
[device.controller]
capabilities = \"0x057834b4\"
version = 2
[device.card]
name = \"QEMU!\"
size_mib = 128
manufacturer = 170
customer = 22617
serial = 3735928559
year = 2006
month = 2
rca = 17767
";

/// What the kernel's debugfs has, a line a file, with its text behind it.
const SHOW: &str = "\
for file in $(find block/mmcblk0 mmc0 -type f | sort); do
    echo \"$file=$(cat $file | tr '\\n\\t' '; ')\"
done
";

/// Statistics and lists that are not modelled, files that Linux 5.13 was the last to have, and what
/// counts the reads of a search for partitions.
const THEIRS: [&str; 5] = [
    "/zone_wplugs",
    "/curr_win_nsec",
    "/err_state",
    "/err_stats",
    "sched/batching",
];
const OURS: [&str; 3] = ["hctx0/run", "hctx0/dispatched", "sched/batching"];

/// A file with its text; of tags, where each CPU looks first and what was freed is a matter of
/// what has run.
fn comparable(line: &str) -> String {
    let parts = line.split(';').filter(|part| {
        !["cleared=", "alloc_hint=", "wake_index="]
            .iter()
            .any(|of| part.starts_with(of))
    });
    let parts: Vec<&str> = parts.map(str::trim).collect();
    parts.join(";").trim_end_matches(';').to_string()
}

#[test]
fn debugfs_is_that_of_a_real_kernel() {
    let wanted = |packages: &Packages| packages.has_module("mmc_block");
    let Some(kernel) = guest::kernel("kernel with mmc_block", wanted) else {
        return;
    };
    if !have_fuse() {
        return;
    }
    let place = Place::new();
    place.file("m.toml", QEMU);
    let Some(mounted) = mount(&place, "m.toml") else {
        return;
    };
    let ours = mounted.shell(&format!("cd kernel/debug; {SHOW}"));
    mounted.end();
    place.file("sd.img", "");
    let image = std::fs::File::options()
        .write(true)
        .open(place.path("sd.img"));
    image
        .and_then(|image| image.set_len(128 << 20))
        .expect("an image");
    let drive = format!(
        "-device sdhci-pci -drive if=none,id=sd0,file={},format=raw -device sd-card,drive=sd0",
        place.path("sd.img").display()
    );
    let modules = [
        "--load",
        "mmc_block",
        "--load",
        "sdhci-pci",
        "--qemu",
        &drive,
    ];
    let script = format!(
        "mount -t debugfs none /sys/kernel/debug\n\
         until [ -e /sys/block/mmcblk0 ]; do sleep 0.1; done\nsleep 1\n\
         cd /sys/kernel/debug\necho begin\n{SHOW}\necho end\necho passed\n"
    );
    let done = place.in_guest(&script, &kernel, 768, &modules).ok();
    let begin = done.out.find("begin\n").expect("the script begins");
    let end = done.out.find("end\n").expect("the script ends");
    let theirs = { done.out[begin..end].lines() }.filter(|line| line.contains('='));
    let theirs = theirs.filter(|line| !THEIRS.iter().any(|part| line.contains(part)));
    let theirs: BTreeSet<String> = theirs.map(comparable).collect();
    let ours = ours
        .lines()
        .filter(|line| !OURS.iter().any(|part| line.contains(part)));
    let ours: BTreeSet<String> = ours.map(comparable).collect();
    assert!(theirs.len() > 30, "{theirs:?}");
    let differ: Vec<&String> = theirs.symmetric_difference(&ours).collect();
    assert!(differ.is_empty(), "{differ:#?}");
}
