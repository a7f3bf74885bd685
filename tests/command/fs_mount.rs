//! `blklab fs IMAGE mount`: programs of every day work on an image's files, and the
//! tool that checks such images finds nothing wrong afterwards.

use std::io::Write;
use std::process::Command;

use crate::support::mounted::Mounted;
use crate::support::{Place, check_image, have_fuse};

/// Mounts the image; `None` where this machine does not let us.
fn mount<'a>(place: &'a Place, options: &[&str]) -> Option<Mounted<'a>> {
    let arguments = [&["fs", "disk.img", "mount", "mnt"], options].concat();
    Mounted::start(place, &arguments, "disk.img is mounted on mnt\n")
}

fn place_with(kind: &str) -> Place {
    let place = Place::new();
    let mkfs = ["fs", "disk.img", "mkfs", kind, "--size", "16M"];
    place.blklab(&mkfs).ok();
    std::fs::create_dir(place.path("mnt")).expect("a folder");
    place
}

/// A folder with files of several lengths, and a checksum of each.
fn sources(place: &Place) {
    let line = "mkdir -p src/a/b && cd src && \
        for n in 0 1 511 512 1024 4096 5000 70000 1500000; do \
            head -c $n /dev/zero | tr '\\0' \"$((n % 8))\" > a/b/f$n; done && \
        for n in $(seq 60); do echo $n > \"a/a name of some length, number $n\"; done && \
        find . -type f | sort | xargs -d '\\n' sha256sum > ../sums";
    let made = Command::new("sh")
        .args(["-ec", line])
        .current_dir(place.path(""))
        .status();
    assert!(made.expect("a shell").success());
}

#[test]
fn cp_tar_and_mv_work_in_a_mounted_image() {
    if !have_fuse() {
        return;
    }
    for (kind, program, arguments) in [
        ("ext2", "e2fsck", &["-f", "-n"][..]),
        ("fat16", "fsck.vfat", &["-n"]),
    ] {
        let place = place_with(kind);
        sources(&place);
        let Some(mounted) = mount(&place, &[]) else {
            return;
        };
        mounted.shell("cp -r ../src copy && cd copy && sha256sum --quiet -c ../../sums");
        mounted.shell(
            "mkdir untarred && tar -C ../src -cf - . | tar -C untarred --no-same-owner -xf -",
        );
        mounted.shell("cd untarred && sha256sum --quiet -c ../../sums");
        // What was deleted stays for the program that has it open.
        let kept = mounted.shell("exec 3< copy/a/b/f5000; rm copy/a/b/f5000; wc -c <&3");
        assert_eq!(kept.trim(), "5000");
        mounted.shell("mv copy/a moved && rm -r copy && mv untarred/a/b/f1 untarred/a/b/f0");
        mounted.shell("truncate -s 100 moved/b/f70000 && truncate -s 9000 moved/b/f1024");
        assert_eq!(
            mounted.shell("tail -c 7976 moved/b/f1024 | tr -d '\\0'"),
            ""
        );
        mounted.shell("printf more >> moved/b/f512; sync -f moved/b/f512");
        assert_eq!(mounted.shell("ls moved/b | wc -l").trim(), "8");
        assert!(!mounted.shell("stat -f -c %s .").trim().is_empty());
        mounted.end();
        check_image(&place, program, arguments);
        // It is in the image.
        let size = place.blklab(&["fs", "disk.img", "stat", "/moved/b/f512"]);
        assert!(size.ok().out.contains("size: 516 bytes"));
        let listed = place.blklab(&["fs", "disk.img", "ls", "/untarred/a/b"]);
        assert_eq!(listed.ok().out.lines().count(), 8);
    }
}

#[test]
fn links_owners_and_permissions_are_kept_on_ext2() {
    if !have_fuse() {
        return;
    }
    let place = place_with("ext2");
    let Some(mounted) = mount(&place, &[]) else {
        return;
    };
    mounted.shell("echo text > one && ln one two && ln -s one three && chmod 640 one");
    assert_eq!(
        mounted.shell("cat two three; stat -c '%h %a' two"),
        "text\ntext\n2 640\n"
    );
    assert_eq!(mounted.shell("readlink three"), "one\n");
    mounted.shell("touch -d 2001-02-03T04:05:06Z two && rm one");
    // While it is mounted, nobody else changes it.
    let refused = place.blklab(&["fs", "disk.img", "rm", "/two"]);
    assert_eq!(refused.status, 2);
    assert!(
        refused.err.contains("disk.img: in use by process"),
        "{}",
        refused.err
    );
    mounted.end();
    check_image(&place, "e2fsck", &["-f", "-n"]);
    let stat = place.blklab(&["fs", "disk.img", "stat", "/two"]).ok().out;
    assert!(stat.contains("links: 1\n"), "{stat}");
    assert!(stat.contains("(640)"), "{stat}");
    assert!(stat.contains("modified: 2001-02-03T04:05:06Z"), "{stat}");
}

#[test]
fn a_signal_writes_all_even_while_files_are_open() {
    if !have_fuse() {
        return;
    }
    let place = place_with("ext2");
    let Some(mut mounted) = mount(&place, &[]) else {
        return;
    };
    let mut open = std::fs::File::create(place.path("mnt/file")).expect("a file");
    open.write_all(b"before the signal").expect("written");
    assert!(mounted.terminate());
    // Unmounted, but not ended.
    while std::fs::exists(place.path("mnt/file")).expect("a folder") {
        std::thread::yield_now();
    }
    open.write_all(b", and after it").expect("written");
    drop(open);
    mounted.ends_well();
    let text = place.blklab(&["fs", "disk.img", "cat", "/file"]).ok().out;
    assert_eq!(text, "before the signal, and after it");
    check_image(&place, "e2fsck", &["-f", "-n"]);
}

#[test]
fn a_read_only_mount_changes_no_byte() {
    if !have_fuse() {
        return;
    }
    let place = place_with("fat16");
    place.file("text", "text\n");
    place.blklab(&["fs", "disk.img", "put", "text", "/"]).ok();
    let before = std::fs::read(place.path("disk.img")).expect("an image");
    let Some(mounted) = mount(&place, &["--read-only"]) else {
        return;
    };
    assert_eq!(
        mounted.shell("cat text; rm text 2>/dev/null || echo refused"),
        "text\nrefused\n"
    );
    mounted.end();
    assert!(std::fs::read(place.path("disk.img")).expect("an image") == before);
}

#[test]
fn what_is_no_folder_is_told() {
    let place = place_with("ext2");
    place.file("file", "");
    for (folder, why) in [("none", "No such file"), ("file", "it is no folder")] {
        let refused = place.blklab(&["fs", "disk.img", "mount", folder]);
        assert_eq!(refused.status, 2, "{}", refused.err);
        assert_eq!(refused.err.lines().count(), 1, "{}", refused.err);
        assert!(refused.err.contains(why), "{}", refused.err);
    }
}
