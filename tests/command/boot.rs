//! `blklab boot`: a machine from its first initcall to its card's disk.

use crate::support::Place;

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
