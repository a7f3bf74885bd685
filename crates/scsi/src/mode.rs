//! MODE SENSE and MODE SELECT: the caching page (SBC-3, section 6.4.5), whose write cache bit
//! can be changed, and the control page (SPC-4, section 7.5.8).

use crate::DataOut;
use crate::command::number;
use crate::sense::Sense;
use crate::unit::Disk;

const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0a;
/// The codes for all pages and for all their subpages.
const ALL: u8 = 0x3f;
const ALL_SUBPAGES: u8 = 0xff;

/// Page control: the requested kind of values.
const CURRENT: u8 = 0;
const CHANGEABLE: u8 = 1;
const SAVED: u8 = 3;

/// WCE, in the third byte of the caching page.
const WRITE_CACHE: u8 = 0x04;
const CACHING_BYTES: usize = 20;
/// QUEUE ALGORITHM MODIFIER: unrestricted reordering.
const REORDERS: u8 = 0x10;

/// Bits of the header's device-specific parameter.
const WRITE_PROTECTED: u8 = 0x80;
const KNOWS_FUA: u8 = 0x10;
/// LONGLBA, in the longer header: the block descriptor has 16 bytes.
const LONG_LBA: u8 = 0x01;

/// The longest supported parameter list of MODE SELECT.
const MAX_LIST_BYTES: usize = 256;

fn caching(values: u8, write_cache: bool) -> [u8; CACHING_BYTES] {
    let mut page = [0; CACHING_BYTES];
    (page[0], page[1]) = (CACHING, CACHING_BYTES as u8 - 2);
    page[2] = match values {
        CURRENT => u8::from(write_cache) * WRITE_CACHE,
        // It can be changed and is set by default.
        _ => WRITE_CACHE,
    };
    page
}

fn control(values: u8) -> [u8; 12] {
    let mut page = [0; 12];
    (page[0], page[1]) = (CONTROL, 10);
    if values != CHANGEABLE {
        page[3] = REORDERS;
        // BUSY TIMEOUT PERIOD: no limit.
        (page[8], page[9]) = (0xff, 0xff);
    }
    page
}

/// The fields of MODE SENSE.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModeSenseFields {
    pub(crate) is_long: bool,
    pub(crate) no_descriptor: bool,
    pub(crate) long_lba: bool,
    /// PC and PAGE CODE.
    pub(crate) page: u8,
    pub(crate) subpage: u8,
}

/// Returns the answer to MODE SENSE.
pub(crate) fn sense(
    disk: &Disk,
    write_cache: bool,
    asked: ModeSenseFields,
) -> Result<Vec<u8>, Sense> {
    let (values, page) = (asked.page >> 6, asked.page & 0x3f);
    if values == SAVED {
        return Err(Sense::NOT_SAVED);
    }
    if asked.subpage != 0 && asked.subpage != ALL_SUBPAGES {
        return Err(Sense::invalid_field(3));
    }
    let (caching, control) = (caching(values, write_cache), control(values));
    let pages = match page {
        CACHING => caching.to_vec(),
        CONTROL => control.to_vec(),
        ALL => [&caching[..], &control].concat(),
        _ => return Err(Sense::invalid_field(2)),
    };
    let has_long_lba = asked.long_lba && !asked.no_descriptor;
    let descriptor = match (asked.no_descriptor, has_long_lba) {
        (true, _) => Vec::new(),
        (false, false) => short_descriptor(disk).to_vec(),
        (false, true) => long_descriptor(disk).to_vec(),
    };
    let specific = KNOWS_FUA | if disk.read_only { WRITE_PROTECTED } else { 0 };
    let rest = descriptor.len() + pages.len();
    let header = match asked.is_long {
        false => vec![(rest + 3) as u8, 0, specific, descriptor.len() as u8],
        true => {
            let ([l0, l1], [d0, d1]) = (
                ((rest + 6) as u16).to_be_bytes(),
                (descriptor.len() as u16).to_be_bytes(),
            );
            let long = u8::from(has_long_lba) * LONG_LBA;
            vec![l0, l1, 0, specific, long, 0, d0, d1]
        }
    };
    Ok([header, descriptor, pages].concat())
}

fn short_descriptor(disk: &Disk) -> [u8; 8] {
    let blocks = u32::try_from(disk.blocks).unwrap_or(u32::MAX);
    let mut descriptor = [0; 8];
    descriptor[..4].copy_from_slice(&blocks.to_be_bytes());
    descriptor[5..].copy_from_slice(&disk.block_bytes.to_be_bytes()[1..]);
    descriptor
}

fn long_descriptor(disk: &Disk) -> [u8; 16] {
    let mut descriptor = [0; 16];
    descriptor[..8].copy_from_slice(&disk.blocks.to_be_bytes());
    descriptor[12..].copy_from_slice(&disk.block_bytes.to_be_bytes());
    descriptor
}

/// Reads the parameter list of a MODE SELECT. Returns whether the write cache must be enabled;
/// `None` if it does not change.
pub(crate) fn select<D: DataOut + ?Sized>(
    disk: &Disk,
    write_cache: bool,
    is_long: bool,
    list_bytes: usize,
    data: &D,
) -> Result<Option<bool>, Sense> {
    if list_bytes == 0 {
        return Ok(None);
    }
    let header_bytes = if is_long { 8 } else { 4 };
    if !(header_bytes..=MAX_LIST_BYTES).contains(&list_bytes) {
        return Err(Sense::LIST_LENGTH);
    }
    let mut list = [0; MAX_LIST_BYTES];
    let list = &mut list[..list_bytes];
    if !data.read(0, list) {
        return Err(Sense::TOO_LITTLE_DATA);
    }
    let pages_at = check_head(disk, is_long, list)?;
    let mut wanted = None;
    let mut at = pages_at;
    while at < list.len() {
        let (code, length) = match list[at..] {
            [code, length, ..] => (code, usize::from(length) + 2),
            _ => return Err(Sense::LIST_LENGTH),
        };
        let place = at as u16;
        let Some(page) = list.get(at..at + length) else {
            return Err(Sense::LIST_LENGTH);
        };
        match code {
            CACHING => {
                check_page(page, &caching(CURRENT, write_cache), WRITE_CACHE, place)?;
                wanted = Some(page[2] & WRITE_CACHE != 0);
            }
            CONTROL => check_page(page, &control(CURRENT), 0, place)?,
            _ => return Err(Sense::invalid_parameter(place)),
        }
        at += length;
    }
    Ok(wanted)
}

/// Checks the header and the block descriptor. Returns the offset of the first page.
fn check_head(disk: &Disk, is_long: bool, list: &[u8]) -> Result<usize, Sense> {
    let (medium_at, header_bytes, descriptor_bytes) = match is_long {
        true => (2, 8, number(&list[6..8]) as usize),
        false => (1, 4, list[3].into()),
    };
    if list[medium_at] != 0 {
        return Err(Sense::invalid_parameter(medium_at as u16));
    }
    let has_long_lba = is_long && list[4] & LONG_LBA != 0;
    let pages_at = header_bytes + descriptor_bytes;
    let descriptor = list.get(header_bytes..pages_at);
    let descriptor = descriptor.ok_or(Sense::LIST_LENGTH)?;
    let (blocks, block_bytes, most) = match (descriptor.len(), has_long_lba) {
        (0, _) => return Ok(pages_at),
        (8, false) => (
            number(&descriptor[..4]),
            number(&descriptor[5..]),
            u64::from(u32::MAX),
        ),
        (16, true) => (
            number(&descriptor[..8]),
            number(&descriptor[12..]),
            u64::MAX,
        ),
        _ => return Err(Sense::invalid_parameter(header_bytes as u16 - 1)),
    };
    // Zero and all ones stand for the current number of blocks.
    let keeps_blocks = [0, most, disk.blocks.min(most)].contains(&blocks);
    match keeps_blocks && block_bytes == u64::from(disk.block_bytes) {
        true => Ok(pages_at),
        false => Err(Sense::invalid_parameter(header_bytes as u16)),
    }
}

/// Checks that a page, at offset `place` of the list, differs from the current one only in the
/// `changeable` bits of its third byte.
fn check_page(page: &[u8], present: &[u8], changeable: u8, place: u16) -> Result<(), Sense> {
    if page.len() != present.len() {
        return Err(Sense::invalid_parameter(place + 1));
    }
    let differs = |(at, (new, old)): (usize, (&u8, &u8))| {
        let may_differ = if at == 2 { changeable } else { 0 };
        (new ^ old) & !may_differ != 0
    };
    match page.iter().zip(present).enumerate().position(differs) {
        Some(at) => Err(Sense::invalid_parameter(place + at as u16)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> Disk {
        Disk {
            blocks: 0x0001_0203_0405,
            block_bytes: 4096,
            physical_block_bytes: 4096,
            max_transfer_bytes: 1 << 20,
            read_only: true,
            rotational: false,
            unmaps: true,
            name: String::new(),
        }
    }

    const ASKED: ModeSenseFields = ModeSenseFields {
        is_long: false,
        no_descriptor: true,
        long_lba: false,
        page: CACHING,
        subpage: 0,
    };

    #[test]
    fn the_caching_page_has_sbc_s_layout() {
        let on = sense(&disk(), true, ASKED).expect("a page");
        assert_eq!(on[..4], [23, 0, 0x90, 0]);
        assert_eq!(on[4..8], [0x08, 0x12, 0x04, 0]);
        assert_eq!(on.len(), 24);
        let off = sense(&disk(), false, ASKED).expect("a page");
        assert_eq!(off[6], 0);
        let changeable = ModeSenseFields {
            page: CHANGEABLE << 6 | CACHING,
            ..ASKED
        };
        assert_eq!(sense(&disk(), false, changeable).expect("a page")[6], 0x04);
        let saved = ModeSenseFields {
            page: SAVED << 6 | CACHING,
            ..ASKED
        };
        assert_eq!(sense(&disk(), true, saved), Err(Sense::NOT_SAVED));
        let unknown = ModeSenseFields {
            page: 0x1a,
            ..ASKED
        };
        assert_eq!(sense(&disk(), true, unknown), Err(Sense::invalid_field(2)));
    }

    #[test]
    fn block_descriptors_are_short_or_long() {
        let short = ModeSenseFields {
            no_descriptor: false,
            page: CONTROL,
            ..ASKED
        };
        let data = sense(&disk(), true, short).expect("a page");
        assert_eq!(data[..4], [23, 0, 0x90, 8]);
        assert_eq!(data[4..12], [0xff, 0xff, 0xff, 0xff, 0, 0, 0x10, 0]);
        assert_eq!(data[12..16], [0x0a, 0x0a, 0, 0x10]);
        let long = ModeSenseFields {
            is_long: true,
            long_lba: true,
            page: ALL,
            ..short
        };
        let data = sense(&disk(), true, long).expect("pages");
        assert_eq!(data[..8], [0, 54, 0, 0x90, 1, 0, 0, 16]);
        assert_eq!(data[8..16], [0, 0, 0, 1, 2, 3, 4, 5]);
        assert_eq!(data[16..24], [0, 0, 0, 0, 0, 0, 0x10, 0]);
        assert_eq!((data[24], data[44], data.len()), (CACHING, CONTROL, 56));
    }

    fn selected(list: &[u8]) -> Result<Option<bool>, Sense> {
        select(&disk(), true, false, list.len(), list)
    }

    #[test]
    fn the_write_cache_alone_can_be_changed() {
        let mut list = [0; 24];
        list[4..6].copy_from_slice(&[0x08, 0x12]);
        assert_eq!(selected(&list), Ok(Some(false)));
        list[6] = WRITE_CACHE;
        assert_eq!(selected(&list), Ok(Some(true)));
        // RCD.
        list[6] = 1;
        assert_eq!(selected(&list), Err(Sense::invalid_parameter(6)));
        assert_eq!(selected(&list[..23]), Err(Sense::LIST_LENGTH));
        assert_eq!(selected(&list[..3]), Err(Sense::LIST_LENGTH));
        assert_eq!(selected(&[]), Ok(None));
        assert_eq!(selected(&[0; 4]), Ok(None));
        assert_eq!(
            select(&disk(), true, false, 24, &list[..8]),
            Err(Sense::TOO_LITTLE_DATA)
        );
        // A page that is not there.
        let other = [0, 0, 0, 0, 0x01, 0x00];
        assert_eq!(selected(&other), Err(Sense::invalid_parameter(4)));
    }

    #[test]
    fn blocks_stay_as_they_are() {
        let with = |bytes: [u8; 8]| selected(&[&[0, 0, 0, 8][..], &bytes].concat());
        assert_eq!(with([0, 0, 0, 0, 0, 0, 0x10, 0]), Ok(None));
        let refused = Err(Sense::invalid_parameter(4));
        assert_eq!(with([0, 0, 0, 0, 0, 0, 2, 0]), refused);
        assert_eq!(with([0, 0, 0, 5, 0, 0, 0x10, 0]), refused);
    }
}
