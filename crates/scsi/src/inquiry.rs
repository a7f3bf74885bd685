//! INQUIRY: the standard data (SPC-4, section 6.6) and the vital product data pages
//! (SPC-4, section 7.8; SBC-3, section 6.5).

use crate::sense::Sense;
use crate::unit::Disk;

/// T10's vendor identification.
const VENDOR: &[u8; 8] = b"BLKLAB  ";
const PRODUCT: &[u8; 16] = b"DISK            ";
const REVISION: &[u8; 4] = b"0001";
/// The version of SPC-4.
const VERSION: u8 = 0x06;
/// Version descriptors: SAM-5, SPC-4 and SBC-3, without a revision.
const STANDARDS: [u16; 3] = [0x00a0, 0x0460, 0x04c0];
const STANDARD_BYTES: usize = 96;

/// Makes the content of a page, after its header.
type Contents = fn(&Disk) -> Vec<u8>;

/// The vital product data pages by their codes.
const PAGES: [(u8, Contents); 6] = [
    (0x00, |_| PAGES_SUPPORTED.to_vec()),
    (0x80, |disk| disk.serial().into()),
    (0x83, identification),
    (0xb0, block_limits),
    (0xb1, characteristics),
    (0xb2, provisioning),
];
const PAGES_SUPPORTED: [u8; 6] = [0x00, 0x80, 0x83, 0xb0, 0xb1, 0xb2];

/// The most blocks of COMPARE AND WRITE, whose length field has one byte.
pub(crate) const MAX_COMPARE_BLOCKS: u64 = 255;
/// The most ranges of one UNMAP.
pub(crate) const MAX_UNMAP_RANGES: usize = 256;
/// The most bytes of one WRITE SAME and of all ranges of one UNMAP.
pub(crate) const MAX_RANGE_BYTES: u64 = 4 << 30;

/// Returns the answer to INQUIRY.
pub(crate) fn inquiry(disk: &Disk, page: Option<u8>) -> Result<Vec<u8>, Sense> {
    let Some(page) = page else {
        return Ok(standard());
    };
    let found = PAGES.iter().find(|(code, _)| *code == page);
    let (_, contents) = found.ok_or(Sense::invalid_field(2))?;
    let contents = contents(disk);
    let length = (contents.len() as u16).to_be_bytes();
    Ok([&[0, page][..], &length, &contents].concat())
}

fn standard() -> Vec<u8> {
    let mut data = vec![0; STANDARD_BYTES];
    data[2] = VERSION;
    // RESPONSE DATA FORMAT: 2 is the only one since SPC.
    data[3] = 2;
    data[4] = STANDARD_BYTES as u8 - 5;
    // CMDQUE: it accepts several commands at once.
    data[7] = 0x02;
    data[8..16].copy_from_slice(VENDOR);
    data[16..32].copy_from_slice(PRODUCT);
    data[32..36].copy_from_slice(REVISION);
    for (place, standard) in data[58..].chunks_exact_mut(2).zip(STANDARDS) {
        place.copy_from_slice(&standard.to_be_bytes());
    }
    data
}

/// Returns the designators of the disk: T10 vendor identification with its name, and a locally
/// assigned name in IEEE's format (NAA).
fn identification(disk: &Disk) -> Vec<u8> {
    let serial = disk.serial().as_bytes();
    let mut data = Vec::new();
    // Code set ASCII; T10 vendor identification of the logical unit.
    data.extend([0x02, 0x01, 0, (VENDOR.len() + serial.len()) as u8]);
    data.extend(VENDOR);
    data.extend(serial);
    // Code set binary; NAA of the logical unit.
    data.extend([0x01, 0x03, 0, 8]);
    data.extend(disk.naa().to_be_bytes());
    data
}

fn block_limits(disk: &Disk) -> Vec<u8> {
    let max_transfer = disk.max_transfer_blocks() as u32;
    let physical = disk.physical_blocks();
    let max_range = disk.max_range_blocks();
    let (unmap_blocks, unmap_ranges) = match disk.unmaps {
        true => (max_range as u32, MAX_UNMAP_RANGES as u32),
        false => (0, 0),
    };
    let mut data = vec![0; 60];
    // WSNZ: WRITE SAME with length 0 is not supported.
    data[0] = 1;
    data[1] = disk.max_compare_blocks() as u8;
    data[2..4].copy_from_slice(&(physical as u16).to_be_bytes());
    data[4..8].copy_from_slice(&max_transfer.to_be_bytes());
    data[16..20].copy_from_slice(&unmap_blocks.to_be_bytes());
    data[20..24].copy_from_slice(&unmap_ranges.to_be_bytes());
    if disk.unmaps {
        data[24..28].copy_from_slice(&physical.to_be_bytes());
    }
    data[32..40].copy_from_slice(&max_range.to_be_bytes());
    data
}

fn characteristics(disk: &Disk) -> Vec<u8> {
    let mut data = vec![0; 60];
    // MEDIUM ROTATION RATE: not reported, or non-rotating.
    let rate: u16 = if disk.rotational { 0 } else { 1 };
    data[..2].copy_from_slice(&rate.to_be_bytes());
    data
}

fn provisioning(disk: &Disk) -> Vec<u8> {
    // LBPU, LBPWS and LBPWS10: UNMAP and both WRITE SAME may unmap. LBPRZ is 0, because a back
    // end need not return zeroes for unmapped blocks. Thin provisioning.
    match disk.unmaps {
        true => vec![0, 0xe0, 0x02, 0],
        false => vec![0; 4],
    }
}

/// Returns a name in IEEE's format (NAA 3h, locally assigned) that is a hash of a text.
pub(crate) fn local_naa(text: &str) -> u64 {
    // FNV-1a, because the standard library's hash may change between versions.
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash >> 4 | 0x3 << 60
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::number;

    fn disk() -> Disk {
        Disk {
            blocks: 1 << 20,
            block_bytes: 512,
            physical_block_bytes: 4096,
            max_transfer_bytes: 1 << 20,
            read_only: false,
            rotational: false,
            unmaps: true,
            name: "scratch".to_string(),
        }
    }

    fn page(code: u8, disk: &Disk) -> Vec<u8> {
        let page = inquiry(disk, Some(code)).expect("a page");
        assert_eq!(page[..2], [0, code]);
        assert_eq!(page.len() as u64, 4 + number(&page[2..4]));
        page[4..].to_vec()
    }

    #[test]
    fn standard_data_has_spc_s_layout() {
        let data = inquiry(&disk(), None).expect("data");
        assert_eq!(data.len(), 96);
        assert_eq!(data[..8], [0, 0, 6, 2, 91, 0, 0, 2]);
        assert_eq!(&data[8..36], b"BLKLAB  DISK            0001");
        assert_eq!(data[58..64], [0x00, 0xa0, 0x04, 0x60, 0x04, 0xc0]);
    }

    #[test]
    fn pages_are_those_that_are_listed() {
        assert_eq!(page(0x00, &disk()), PAGES_SUPPORTED);
        assert_eq!(PAGES.map(|(code, _)| code), PAGES_SUPPORTED);
        assert_eq!(inquiry(&disk(), Some(0x86)), Err(Sense::invalid_field(2)));
    }

    #[test]
    fn the_disk_is_told_from_others_by_its_name() {
        assert_eq!(page(0x80, &disk()), b"scratch");
        let data = page(0x83, &disk());
        assert_eq!(data[..4], [2, 1, 0, 15]);
        assert_eq!(&data[4..19], b"BLKLAB  scratch");
        assert_eq!(data[19..23], [1, 3, 0, 8]);
        assert_eq!(data[23] >> 4, 3);
        assert_eq!(data.len(), 31);
        let other = Disk {
            name: "other".to_string(),
            ..disk()
        };
        assert_ne!(page(0x83, &other)[23..], data[23..]);
    }

    #[test]
    fn limits_have_sbc_s_layout() {
        let data = page(0xb0, &disk());
        assert_eq!(data.len(), 0x3c);
        assert_eq!(data[..8], [1, 255, 0, 8, 0, 0, 8, 0]);
        // UNMAP: blocks, ranges, granularity and alignment; WRITE SAME.
        assert_eq!(number(&data[16..20]), (4 << 30) / 512);
        assert_eq!(number(&data[20..24]), 256);
        assert_eq!(data[24..32], [0, 0, 0, 8, 0, 0, 0, 0]);
        assert_eq!(number(&data[32..40]), (4 << 30) / 512);
    }

    #[test]
    fn media_and_provisioning_are_told() {
        let spinning = Disk {
            rotational: true,
            unmaps: false,
            ..disk()
        };
        assert_eq!(page(0xb1, &disk())[..2], [0, 1]);
        assert_eq!(page(0xb1, &spinning)[..2], [0, 0]);
        assert_eq!(page(0xb1, &disk()).len(), 0x3c);
        assert_eq!(page(0xb2, &disk()), [0, 0xe0, 2, 0]);
        assert_eq!(page(0xb2, &spinning), [0; 4]);
        assert_eq!(page(0xb0, &spinning)[16..28], [0; 12]);
    }
}
