//! Where the program's memory lies.

use blklab_fs::PAGE_BYTES;

use super::recorded::Fields;

/// Memory as long as some of these lies at a multiple of them, so that pages of this size can
/// hold it (`thp_get_unmapped_area`).
const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// The size of the pages that the buffer of the program's reads and writes is made of, by its
/// address: one at a multiple of a huge page is a large one, which has them.
pub(super) fn buffer_page_bytes(address: Option<u64>) -> u64 {
    match address {
        Some(address) if address.is_multiple_of(HUGE_PAGE_BYTES) => HUGE_PAGE_BYTES,
        _ => PAGE_BYTES,
    }
}

/// The address of the buffer's first page. The kernel lays a program's mappings one below the
/// other, so that the next one ends there (`mmap_topdown`).
pub(super) fn buffer_address(text: &str) -> Option<u64> {
    let buffer = text.lines().find_map(buffer_of);
    buffer.map(|address| address / PAGE_BYTES * PAGE_BYTES)
}

/// The buffer of a read or a write.
fn buffer_of(line: &str) -> Option<u64> {
    let fields = Fields::of(line)?;
    if !fields.is_driver || !fields.event.starts_with("sys_p") {
        return None;
    }
    let (_, rest) = fields.rest.split_once("buf: ")?;
    u64::from_str_radix(rest.split(',').next()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::{HUGE_PAGE_BYTES, PAGE_BYTES, buffer_address, buffer_page_bytes};

    #[test]
    fn a_buffer_at_a_multiple_of_a_huge_page_has_them() {
        let read = |address: &str| {
            let line = "drv-307 [000] ...1. 6.167675076: sys_pread64(fd: 7, buf: ";
            buffer_page_bytes(buffer_address(&format!(
                "{line}{address}, count: 400000, pos: 2000000)"
            )))
        };
        assert_eq!(read("7f0424600200"), HUGE_PAGE_BYTES);
        assert_eq!(read("7f05f0d8e000"), PAGE_BYTES);
        assert_eq!(buffer_page_bytes(buffer_address("")), PAGE_BYTES);
    }
}
