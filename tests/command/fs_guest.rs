//! File systems in images with Linux in a guest as the outside judge: it mounts what we made and
//! finds what we wrote, and we find what it wrote.

use std::fmt::Write;

use blklab_guest::Packages;

use crate::support::{Place, check_image, guest};

/// What Linux mounts them with: ext4 mounts ext2, and FAT needs its code page and character sets.
const MODULES: [&str; 8] = [
    "virtio_blk",
    "crc32c_generic",
    "ext4",
    "vfat",
    "nls_utf8",
    "nls_cp437",
    "nls_ascii",
    "nls_iso8859-1",
];

/// An image and how we make it.
struct Case {
    name: &'static str,
    mkfs: &'static [&'static str],
}

const CASES: [Case; 6] = [
    case("ext2-1k", &["ext2", "-b", "1k", "--size", "24M"]),
    case("ext2-2k", &["ext2", "-b", "2k", "--size", "24M"]),
    case("ext2-4k", &["ext2", "-b", "4k", "--size", "24M"]),
    case("fat12", &["fat12", "-b", "8k", "--size", "24M"]),
    case("fat16", &["fat16", "--size", "24M"]),
    case("fat32", &["fat32", "-b", "512", "--size", "48M"]),
];

const fn case(name: &'static str, mkfs: &'static [&'static str]) -> Case {
    Case { name, mkfs }
}

const LONG: &str = "A long name, with spaces and more than 13 letters.text";
/// Letters of one to four bytes, none of which is in code page 437 but the first.
const WIDE: &str = "größer als Ａ.日本 𝄞";

/// Lines that both sides can make, beyond the first indirect block of any block size.
fn numbers(last: u32) -> String {
    (1..=last).fold(String::new(), |mut text, number| {
        let _ = writeln!(text, "{number}");
        text
    })
}

const LARGE: u32 = 800_000;
const SMALL: u32 = 900;
/// Files of a directory, more than fit into one of its blocks or clusters.
const FILES: u32 = 24;

/// What Linux does with each of the disks.
const CHECK: &str = r#"
set -e
cd /tmp
mkdir mnt
seq $last >large
seq $few >small
is_same() { cmp "$1" "$2" || { echo "$kind: $2 is not $1"; exit 1; }; }
check() {
    kind=$1 disk=$2
    case $kind in
    ext2) mount -t ext2 $disk mnt ;;
    vfat) mount -t vfat -o utf8 $disk mnt ;;
    esac
    is_same large "mnt/dir/$long"
    is_same small "mnt/$wide"
    [ "$(ls mnt/dir | wc -l)" = $((files + 1)) ] || { ls mnt/dir; exit 1; }
    is_same small "mnt/dir/file number $files"
    cp large "mnt/made by Linux, $wide"
    mkdir mnt/made
    for n in $(seq 300); do echo $n >"mnt/made/another file, number $n"; done
    mv "mnt/$wide" mnt/made/moved
    rm mnt/dir/file\ number\ 1*
    cat small >>"mnt/dir/$long"
    if [ $kind = ext2 ]; then
        ln -s "../dir/$long" mnt/made/symlink
        ln mnt/made/moved mnt/made/link
    fi
    umount mnt
}
"#;

/// What Linux has to say of the disks, and the end.
const END: &str = r#"
if dmesg | grep -iE 'ext[24]-fs.*(error|warning)|fat-fs|i/o error'; then exit 1; fi
echo passed
"#;

impl Case {
    fn is_ext2(&self) -> bool {
        self.mkfs[0] == "ext2"
    }

    fn fs(&self, place: &Place, arguments: &[&str]) -> String {
        let line = [&["fs", self.name], arguments].concat();
        place.blklab(&line).ok().out
    }

    fn names(&self, place: &Place, folder: &str) -> Vec<String> {
        let listed = self.fs(place, &["ls", folder]);
        listed.lines().map(String::from).collect()
    }

    fn judge(&self, place: &Place) {
        std::fs::copy(place.path(self.name), place.path("disk.img")).expect("a copy");
        match self.is_ext2() {
            true => check_image(place, "e2fsck", &["-f", "-n"]),
            false => check_image(place, "fsck.vfat", &["-n"]),
        }
    }

    /// Makes the image that Linux is to mount.
    fn write(&self, place: &Place) {
        self.fs(place, &[&["mkfs"], self.mkfs].concat());
        self.fs(place, &["mkdir", "/dir"]);
        self.fs(place, &["put", "large", &format!("/dir/{LONG}")]);
        self.fs(place, &["put", "small", &format!("/{WIDE}")]);
        for number in 1..=FILES {
            let path = format!("/dir/file number {number}");
            self.fs(place, &["put", "small", &path]);
        }
        self.judge(place);
    }

    /// Looks at what Linux has made of it, and changes it again.
    fn read(&self, place: &Place) {
        self.judge(place);
        let (large, small) = (numbers(LARGE), numbers(SMALL));
        let same = |path: &str, text: &str| {
            let found = self.fs(place, &["cat", path]);
            assert!(
                found == text,
                "{}: {path}: {} bytes",
                self.name,
                found.len()
            );
        };
        same(&format!("/dir/{LONG}"), &(large.clone() + &small));
        same(&format!("/made by Linux, {WIDE}"), &large);
        same("/made/moved", &small);
        for number in [1, 42, 300] {
            let path = format!("/made/another file, number {number}");
            same(&path, &format!("{number}\n"));
        }
        let of_links = if self.is_ext2() { 2 } else { 0 };
        assert_eq!(
            self.names(place, "/made").len(),
            301 + of_links,
            "{}",
            self.name
        );
        let left = (1..=FILES).filter(|number| !number.to_string().starts_with('1'));
        assert_eq!(
            self.names(place, "/dir").len(),
            left.count() + 1,
            "{}",
            self.name
        );
        if self.is_ext2() {
            same("/made/symlink", &(large.clone() + &small));
            same("/made/link", &small);
        }
        self.fs(place, &["rm", "-r", "/made"]);
        self.fs(place, &["put", "large", &format!("/dir/{WIDE}")]);
        self.judge(place);
    }
}

#[test]
fn linux_mounts_our_images_and_we_read_what_it_wrote() {
    let has_all = |packages: &Packages| MODULES.iter().all(|name| packages.has_module(name));
    let Some(kernel) = guest::kernel("kernel with ext4 and vfat", has_all) else {
        return;
    };
    let place = Place::new();
    place.file("large", &numbers(LARGE));
    place.file("small", &numbers(SMALL));
    let mut script =
        format!("last={LARGE} few={SMALL} files={FILES} long='{LONG}' wide='{WIDE}'\n{CHECK}");
    let mut devices = String::new();
    for (case, letter) in CASES.iter().zip('a'..) {
        case.write(&place);
        let file = place.path(case.name);
        let _ = write!(
            devices,
            "-drive file={},format=raw,if=none,id=d{letter} -device virtio-blk-pci,drive=d{letter} ",
            file.display()
        );
        let kind = if case.is_ext2() { "ext2" } else { "vfat" };
        let _ = writeln!(script, "check {kind} /dev/vd{letter}");
    }
    let mut more = vec!["--qemu", &devices];
    MODULES
        .iter()
        .for_each(|module| more.extend(["--load", module]));
    place.in_guest(&(script + END), &kernel, 512, &more).ok();
    CASES.iter().for_each(|case| case.read(&place));
}

/// What is read twice in each of two groups with a limit of memory, and what Linux says of it.
const LIMITED: &str = r#"
set -e
cd /tmp
mkdir mnt cg
mount -t cgroup2 none cg
mount -t ext2 /dev/vda mnt
echo +memory >cg/cgroup.subtree_control
field() { awk -v name=$2 '$1 == name { print $2 }' cg/$group/memory.$1; }
twice() {
    group=$1 file=$2
    mkdir cg/$group
    echo 16M >cg/$group/$file
    echo 1 >/proc/sys/vm/drop_caches
    before=$(awk '{ print $3 }' /sys/block/vda/stat)
    for pass in 1 2; do
        ( echo 0 >cg/$group/cgroup.procs; exec dd if=mnt/f of=/dev/null bs=128k 2>/dev/null )
    done
    echo "$group max_events $(field events max) high_events $(field events high)" \
        "reclaimed_pages $(field stat pgsteal) peak_bytes $(cat cg/$group/memory.peak)" \
        "sectors $(($(awk '{ print $3 }' /sys/block/vda/stat) - before))"
}
for lists in n y; do
    echo $lists >/sys/kernel/mm/lru_gen/enabled
    twice max-$lists memory.max
    twice high-$lists memory.high
done
umount mnt
echo passed
"#;

/// A reader of 48 MiB in a group of 16 MiB reads all of it twice, in Linux and here, with as many
/// reclaims of as many pages.
#[test]
fn a_group_at_its_limit_reclaims_as_linux_does() {
    let modules = ["virtio_blk", "crc32c_generic", "ext4"];
    let has_all = |packages: &Packages| modules.iter().all(|name| packages.has_module(name));
    let Some(kernel) = guest::kernel("kernel with ext4", has_all) else {
        return;
    };
    let place = Place::new();
    std::fs::write(place.path("f"), vec![0; 48 << 20]).expect("a file");
    let image = ["-b", "4k", "--size", "100M"];
    place
        .blklab(&[&["fs", "disk.img", "mkfs", "ext2"], &image[..]].concat())
        .ok();
    place.blklab(&["fs", "disk.img", "put", "f", "/f"]).ok();
    let device = format!(
        "-drive file={},format=raw,if=none,id=d -device virtio-blk-pci,drive=d",
        place.path("disk.img").display()
    );
    let mut more = vec!["--qemu", &device];
    modules
        .iter()
        .for_each(|module| more.extend(["--load", module]));
    let said = place.in_guest(LIMITED, &kernel, 1024, &more).ok().out;
    let job =
        "[a]\nfilename=f\nioengine=psync\nrw=read\nbs=128k\nsize=48m\nloops=2\ninvalidate=0\n";
    place.file("twice.fio", job);
    for (file, lists) in [("max", "n"), ("high", "n"), ("max", "y"), ("high", "y")] {
        let name = format!("{file}-{lists}");
        let line = said.lines().find_map(|line| line.strip_prefix(&name));
        let words: Vec<&str> = line.expect("the group's line").split_whitespace().collect();
        place.file("groups", &format!("[/a]\nmemory.{file} = 16M\njobs = a\n"));
        let sysctl = format!("mm.lru_gen.enabled={lists}");
        let options = [
            "--fs",
            "ext2",
            "--cgroup-file",
            "groups",
            "--sysctl",
            &sysctl,
        ];
        let run = place.json(&[&["run", "twice.fio", "--memory", "1G"], &options[..]].concat());
        let cache = &run["blklab"]["page_cache"];
        let read = &run["blklab"]["disks"][0]["queue"]["sectors"]["read"];
        for pair in words.chunks(2) {
            let theirs: f64 = pair[1].parse().expect("a number");
            let ours = match pair[0] {
                "sectors" => read.as_f64(),
                what => cache["groups"][0][what].as_f64(),
            };
            let ours = ours.expect("a number");
            let is_near = (ours - theirs).abs() <= theirs * 0.05;
            assert!(
                is_near,
                "{name}: {}: {ours}, and {theirs} in Linux",
                pair[0]
            );
        }
    }
}
