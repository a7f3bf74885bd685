//! `blklab fs`: images of file systems from the command line.

use crate::support::served::Served;
use crate::support::{Place, check_image};

/// A place with a text and an image of a kind.
fn place_with(kind: &str, size: &str) -> Place {
    let place = Place::new();
    place.file("password.txt", "PASSWORD: secret\n");
    place
        .blklab(&["fs", "disk.img", "mkfs", kind, "--size", size])
        .ok();
    place
}

fn fs(place: &Place, arguments: &[&str]) -> String {
    place
        .blklab(&[&["fs", "disk.img"], arguments].concat())
        .ok()
        .out
}

#[test]
fn files_go_in_and_out_and_leave_what_rm_leaves() {
    let judges: [(&str, &str, &[&str]); 2] = [
        ("ext2", "e2fsck", &["-f", "-n"]),
        ("fat16", "fsck.vfat", &["-n"]),
    ];
    for (kind, program, arguments) in judges {
        let place = place_with(kind, "16M");
        fs(&place, &["mkdir", "-p", "/a/b"]);
        fs(&place, &["put", "password.txt", "/a/b"]);
        fs(&place, &["put", "password.txt", "/a/other name.txt"]);
        assert_eq!(fs(&place, &["ls", "/a"]), "b\nother name.txt\n");
        let listed = fs(&place, &["ls", "-lR", "/a"]);
        assert!(listed.contains("/a:\ndrwxr-xr-x"), "{listed}");
        assert!(listed.contains("/a/b:\n-rw"), "{listed}");
        assert_eq!(
            fs(&place, &["cat", "/a/b/password.txt"]),
            "PASSWORD: secret\n"
        );
        fs(&place, &["get", "/a/b/password.txt", "copy.txt"]);
        let copy = std::fs::read_to_string(place.path("copy.txt")).expect("a copy");
        assert_eq!(copy, "PASSWORD: secret\n");
        assert!(fs(&place, &["stat", "/a/b/password.txt"]).contains("size: 17 bytes"));
        let blocks = fs(&place, &["blocks", "/a/b/password.txt"]);
        let last = blocks.split_whitespace().next_back().expect("a byte");
        fs(&place, &["rm", "/a/b/password.txt"]);
        // The text is where the block was.
        let texts = fs(&place, &["strings", "-n", "10"]);
        let line = format!("{last} PASSWORD: secret");
        assert!(
            texts.lines().any(|text| text.trim_start() == line),
            "{line}: {texts}"
        );
        let usage = fs(&place, &["stat"]);
        assert!(usage.contains("block size:"), "{usage}");
        fs(&place, &["rm", "-r", "/a"]);
        check_image(&place, program, arguments);
    }
}

#[test]
fn a_command_that_fails_leaves_the_image_as_it_was() {
    let place = place_with("ext2", "1M");
    fs(&place, &["put", "password.txt", "/"]);
    let large = vec![b'x'; 2 << 20];
    std::fs::write(place.path("large"), &large).expect("a file");
    let before = fs(&place, &["ls", "-l"]);
    let full = place.blklab(&["fs", "disk.img", "put", "large", "/password.txt"]);
    assert_eq!(full.status, 1, "{}", full.err);
    assert!(
        full.err
            .contains("/password.txt: no space left on device (ENOSPC)"),
        "{}",
        full.err
    );
    // The second path is wrong, so that the first stays too.
    let missing = place.blklab(&["fs", "disk.img", "rm", "/password.txt", "/none"]);
    assert_eq!(missing.status, 2);
    assert!(
        missing.err.contains("/none: no such file or directory"),
        "{}",
        missing.err
    );
    assert_eq!(fs(&place, &["ls", "-l"]), before);
    assert_eq!(fs(&place, &["cat", "/password.txt"]), "PASSWORD: secret\n");
    check_image(&place, "e2fsck", &["-f", "-n"]);
}

#[test]
fn mistakes_are_told_in_one_line() {
    let place = place_with("vfat", "4M");
    let err = |arguments: &[&str]| {
        let refused = place.blklab(arguments);
        assert_eq!(refused.status, 2, "{}", refused.err);
        assert_eq!(refused.err.lines().count(), 1, "{}", refused.err);
        refused.err
    };
    let again = err(&["fs", "disk.img", "mkfs", "ext2"]);
    assert!(
        again.contains("it has a file system (vfat); --force replaces it"),
        "{again}"
    );
    let none = err(&["fs", "new.img", "mkfs", "ext2"]);
    assert!(none.contains("give its --size"), "{none}");
    for (size, bytes) in [("20k", 20480), ("1k", 1024)] {
        let small = err(&["fs", "new.img", "mkfs", "ext2", "--size", size]);
        let message = format!("no such file system fits its {bytes} bytes");
        assert!(small.contains(&message), "{small}");
    }
    let folder = err(&["fs", ".", "ls"]);
    assert!(
        folder.contains(".: cannot open: is a directory"),
        "{folder}"
    );
    let mac = err(&["fs", "-o", "iocharset=macgreek", "disk.img", "ls"]);
    assert!(
        mac.contains("iocharset=macgreek: of those of the Macintosh there are macroman and"),
        "{mac}"
    );
    let page = err(&["fs", "-o", "codepage=1", "disk.img", "ls"]);
    assert!(page.contains("codepage=1: there are 1250, 1251"), "{page}");
    let text = err(&["fs", "password.txt", "ls"]);
    assert!(text.contains("password.txt: byte 17: "), "{text}");
    std::fs::write(place.path("zero.img"), vec![0; 1 << 20]).expect("a file");
    let zero = err(&["fs", "zero.img", "ls"]);
    assert!(
        zero.contains("zero.img: byte 14: neither ext2 nor FAT"),
        "{zero}"
    );
    assert!(!place.path("new.img").exists());
    let inode = err(&[
        "fs",
        "new.img",
        "mkfs",
        "ext2",
        "--size",
        "1M",
        "--inode-size",
        "100",
    ]);
    assert!(inode.contains("--inode-size 128 or 256"), "{inode}");
    // Whatever fails leaves the image as it was.
    let before = std::fs::read(place.path("disk.img")).expect("an image");
    err(&["fs", "disk.img", "mkfs", "ext2", "--size", "10k", "--force"]);
    err(&["fs", "disk.img", "mkfs", "fat12", "--size", "1T", "--force"]);
    assert!(std::fs::read(place.path("disk.img")).expect("an image") == before);
    let long = err(&["fs", "new.img", "mkfs", "ext2", "--size", "17E"]);
    assert!(long.contains("--size 17E"), "{long}");
    assert!(!place.path("new.img").exists());
    // ext4's features, which ext2 cannot have: still a file system.
    let mut other = before.clone();
    other.resize(4 << 20, 0);
    other[..4096].fill(0);
    other[1024 + 56..][..2].copy_from_slice(&[0x53, 0xef]);
    other[1024 + 96..][..4].copy_from_slice(&[0x42, 2, 0, 0]);
    std::fs::write(place.path("other.img"), &other).expect("a file");
    let held = err(&["fs", "other.img", "mkfs", "ext2"]);
    assert!(held.contains("--force replaces it"), "{held}");
    place
        .blklab(&["fs", "disk.img", "mkfs", "ext2", "--force"])
        .ok();
    assert!(fs(&place, &["stat"]).starts_with("type: ext2\n"));
}

#[test]
fn a_card_from_elsewhere_shows_its_names() {
    let place = place_with("fat12", "2M");
    let named = [
        "fs",
        "-o",
        "utf8,codepage=932",
        "disk.img",
        "put",
        "password.txt",
        "/ＳＪＩＳ",
    ];
    place.blklab(&named).ok();
    let shown = |options: &str| {
        place
            .blklab(&["fs", "-o", options, "disk.img", "ls"])
            .ok()
            .out
    };
    assert_eq!(shown("utf8,codepage=437"), "ＳＪＩＳ\n");
    assert_eq!(shown("iocharset=iso8859-1"), "????\n");
    check_image(&place, "fsck.vfat", &["-n"]);
}

#[test]
fn an_image_that_is_served_is_changed_by_nobody_else() {
    let place = place_with("ext2", "1M");
    let served = Served::start(&place, &["--file", "disk.img"]);
    let refusals: [&[&str]; 5] = [
        &["serve", "--socket", "other.sock", "--file", "disk.img"],
        &["fs", "disk.img", "mkfs", "ext2", "--force"],
        &["fs", "disk.img", "mkdir", "/dir"],
        &["fs", "disk.img", "put", "password.txt", "/"],
        &["fs", "disk.img", "rm", "-r", "/lost+found"],
    ];
    for words in refusals {
        let refused = place.blklab(words);
        assert_eq!(refused.status, 2, "{words:?}: {}", refused.err);
        let who = format!("disk.img: in use by process {} (blklab)", served.pid());
        assert!(refused.err.contains(&who), "{words:?}: {}", refused.err);
        assert_eq!(refused.err.lines().count(), 1, "{}", refused.err);
    }
    // One look does no harm.
    fs(&place, &["ls", "/"]);
    served.kill();
    // The lock of a dead process is gone.
    let successor = Served::start(&place, &["--file", "disk.img"]);
    assert_eq!(successor.terminate(), Some(0));
    fs(&place, &["mkdir", "/dir"]);
}

#[test]
fn servers_that_only_read_share_an_image() {
    let place = place_with("ext2", "1M");
    let only_reads = ["--file", "disk.img", "--read-only"];
    let one = Served::start(&place, &only_reads);
    let other_socket = place.path("other.sock").to_string_lossy().into_owned();
    let args = [&["--socket", &other_socket][..], &only_reads].concat();
    let other = Served::start_with(&place, "other.sock", &args);
    let refused = place.blklab(&["fs", "disk.img", "mkdir", "/dir"]);
    assert_eq!(refused.status, 2, "{}", refused.err);
    assert_eq!((one.terminate(), other.terminate()), (Some(0), Some(0)));
    fs(&place, &["mkdir", "/dir"]);
}
