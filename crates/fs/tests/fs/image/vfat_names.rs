//! Names on VFAT, byte by byte: the cases of an article that creates and looks for a
//! file whose name is SJIS in full-width letters.

use std::cell::RefCell;

use blklab_fs::{
    FatWidth, FileSystem, FsError, Image, MountOptions, NewInode, VfatOptions, Volume,
};

use crate::image::{Kind, Memory, root};

const NAME: &str = "ＳＪＩＳ";

fn mounted(bytes: Vec<u8>, options: &str) -> Volume<Memory> {
    let options = MountOptions {
        vfat: VfatOptions::parse(options).expect("options"),
        ..MountOptions::default()
    };
    let image = Image::new(RefCell::new(bytes)).expect("memory");
    Volume::open(image, &options, root()).expect("a file system")
}

fn empty() -> Vec<u8> {
    Kind::Fat(FatWidth::Fat16)
        .volume()
        .image()
        .storage()
        .borrow()
        .clone()
}

/// Entries of the root directory behind the volume's label.
fn entries(volume: &Volume<Memory>) -> Vec<[u8; 32]> {
    volume.commit().expect("memory");
    let bytes = volume.image().storage().borrow();
    let fat_sectors = usize::from(u16::from_le_bytes([bytes[22], bytes[23]]));
    let root = (1 + 2 * fat_sectors) * 512;
    let entries = bytes[root + 32..]
        .chunks(32)
        .map(|entry| entry.try_into().expect("32"));
    entries
        .take_while(|entry: &[u8; 32]| entry[0] != 0)
        .collect()
}

fn created(options: &str, name: &[u8]) -> Vec<[u8; 32]> {
    let volume = mounted(empty(), options);
    let root = volume.file_system().root();
    volume
        .create(root, name, NewInode::Regular(0o644))
        .expect("a file");
    entries(&volume)
}

/// The characters of a long name's entry.
fn long(entry: &[u8; 32]) -> Vec<u16> {
    let places = (1..11)
        .step_by(2)
        .chain((14..26).step_by(2))
        .chain((28..32).step_by(2));
    places
        .map(|at| u16::from_le_bytes([entry[at], entry[at + 1]]))
        .collect()
}

#[test]
fn a_name_that_the_code_page_has() {
    let found = created("utf8,codepage=932", NAME.as_bytes());
    let [slot, short] = found.as_slice() else {
        panic!("{found:x?}");
    };
    assert_eq!(short[..11], *b"\x82\x72\x82\x69\x82\x68\x82\x72   ");
    assert_eq!(short[11], 0x20);
    let expected = [
        0x41, 0x33, 0xff, 0x2a, 0xff, 0x29, 0xff, 0x33, 0xff, 0x00, 0x00, 0x0f, 0x00, slot[13],
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0xff,
        0xff, 0xff, 0xff,
    ];
    assert_eq!(*slot, expected);
    // The sum of the short name, rotated to the right before each byte.
    let sum = short[..11].iter().fold(0_u32, |sum, &byte| {
        ((sum & 1) << 7 | sum >> 1).wrapping_add(byte.into()) & 0xff
    });
    assert_eq!(u32::from(slot[13]), sum);
}

#[test]
fn a_name_that_the_code_page_lacks() {
    let found = created("utf8,codepage=437", NAME.as_bytes());
    assert_eq!(found[1][..11], *b"____~1     ");
    assert_eq!(long(&found[0])[..5], [0xff33, 0xff2a, 0xff29, 0xff33, 0]);
}

#[test]
fn a_name_in_another_set_than_the_programs() {
    let found = created("iocharset=iso8859-1,codepage=932", NAME.as_bytes());
    assert_eq!(found[1][..11], *b"______~1   ");
    let bytes: Vec<u16> = NAME.bytes().map(u16::from).collect();
    assert_eq!(long(&found[0])[..12], bytes[..]);
    assert_eq!(long(&found[0])[12], 0);
}

/// The file of the first case, looked for with other options.
fn looked_for(options: &str) -> Result<(), FsError> {
    let volume = mounted(empty(), "utf8,codepage=932");
    let root = volume.file_system().root();
    volume
        .create(root, NAME.as_bytes(), NewInode::Regular(0o644))
        .expect("a file");
    volume.commit().expect("memory");
    let bytes = volume.image().storage().borrow().clone();
    mounted(bytes, options)
        .find(NAME.as_bytes(), true)
        .map(|_| ())
}

#[test]
fn it_is_found_with_the_code_page_that_it_was_made_with() {
    assert_eq!(looked_for("utf8,codepage=932"), Ok(()));
}

#[test]
fn it_is_found_by_its_long_name_with_another_code_page() {
    assert_eq!(looked_for("utf8,codepage=437"), Ok(()));
}

#[test]
fn it_is_not_found_with_another_set_than_the_programs() {
    let found = looked_for("iocharset=iso8859-1,codepage=437");
    assert_eq!(found, Err(FsError::NoEntry));
}

#[test]
fn short_names_are_made_and_shown_as_the_option_says() {
    // What is made, how many entries it takes, the case byte, and what is shown.
    let cases: &[(&str, &str, usize, u8, &str)] = &[
        ("mixed", "README.TXT", 1, 0, "README.TXT"),
        ("mixed", "readme.txt", 2, 0, "readme.txt"),
        ("winnt", "readme.txt", 1, 0x18, "readme.txt"),
        ("winnt", "README.txt", 1, 0x10, "README.txt"),
        ("winnt", "Readme.txt", 2, 0, "Readme.txt"),
        ("win95", "readme.txt", 2, 0, "readme.txt"),
        ("win95", "README.TXT", 1, 0, "README.TXT"),
        ("lower", "README.TXT", 1, 0, "readme.txt"),
    ];
    for &(option, name, count, case, shown) in cases {
        let volume = mounted(empty(), &format!("utf8,shortname={option}"));
        let root = volume.file_system().root();
        volume
            .create(root, name.as_bytes(), NewInode::Regular(0o644))
            .expect("a file");
        let found = entries(&volume);
        assert_eq!(found.len(), count, "{option} {name}");
        let last = found.last().expect("an entry");
        assert_eq!(last[..11], *b"README  TXT", "{option} {name}");
        assert_eq!(last[12], case, "{option} {name}");
        let listed = volume.list(root).expect("names");
        assert_eq!(String::from_utf8_lossy(&listed[0].name), shown, "{option}");
        // Case does not tell names apart.
        assert!(volume.find(name.to_lowercase().as_bytes(), true).is_ok());
    }
}

#[test]
fn shortened_names_are_unique() {
    let volume = mounted(empty(), "utf8");
    let root = volume.file_system().root();
    for n in 0..12 {
        let name = format!("a long name that is number {n}.text");
        volume
            .create(root, name.as_bytes(), NewInode::Regular(0o644))
            .expect("a file");
    }
    let found = entries(&volume);
    let short = found.iter().filter(|entry| entry[11] != 0x0f);
    let short: Vec<String> = short
        .map(|e| String::from_utf8_lossy(&e[..11]).into_owned())
        .collect();
    assert_eq!(short[0], "ALONGN~1TEX");
    assert_eq!(short[8], "ALONGN~9TEX");
    let digits = &short[9];
    assert!(digits.starts_with("AL") && &digits[6..7] == "~", "{digits}");
    let unique: std::collections::BTreeSet<&String> = short.iter().collect();
    assert_eq!(unique.len(), 12);
    let refused = volume.create(root, b"what?", NewInode::Regular(0o644));
    assert_eq!(refused, Err(FsError::BadName));
}
