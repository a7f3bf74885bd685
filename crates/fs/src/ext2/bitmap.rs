//! The bitmaps of a block group: a bit for each block or inode, lowest bits first.

/// Whether a bit is set.
pub(super) fn test(bitmap: &[u8], bit: u32) -> bool {
    bitmap[bit as usize / 8] & 1 << (bit % 8) != 0
}

/// Sets a bit. Whether it was clear.
pub(super) fn set(bitmap: &mut [u8], bit: u32) -> bool {
    let was_clear = !test(bitmap, bit);
    bitmap[bit as usize / 8] |= 1 << (bit % 8);
    was_clear
}

/// Clears a bit. Whether it was set.
pub(super) fn clear(bitmap: &mut [u8], bit: u32) -> bool {
    let was_set = test(bitmap, bit);
    bitmap[bit as usize / 8] &= !(1 << (bit % 8));
    was_set
}

/// The first clear bit from `start` on and below `end`.
pub(super) fn next_zero(bitmap: &[u8], start: u32, end: u32) -> Option<u32> {
    let mut bit = start;
    while bit < end {
        let byte = bitmap[bit as usize / 8];
        if byte == 0xff {
            bit = (bit / 8 + 1) * 8;
        } else if byte & 1 << (bit % 8) == 0 {
            return Some(bit);
        } else {
            bit += 1;
        }
    }
    None
}

/// A clear bit for a block whose goal is `start`: one before the next multiple of 64, else
/// the first of a free byte, else the next one (`find_next_usable_block`).
pub(super) fn next_usable(bitmap: &[u8], start: u32, end: u32) -> Option<u32> {
    if start > 0 {
        let near_end = start.next_multiple_of(64).min(end);
        if let Some(bit) = next_zero(bitmap, start, near_end) {
            return Some(bit);
        }
    }
    let bytes = &bitmap[start as usize / 8..end.div_ceil(8) as usize];
    let free_byte = bytes.iter().position(|&byte| byte == 0);
    let bit = free_byte.map(|at| (start / 8 + at as u32) * 8);
    match bit {
        Some(bit) if bit < end && bit >= start => Some(bit),
        _ => next_zero(bitmap, start, end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_byte_goes_before_a_free_bit() {
        let mut bitmap = [0xff_u8; 32];
        bitmap[9] = 0xfe;
        bitmap[20] = 0;
        // Bit 72 is before the next multiple of 64 that follows 70.
        assert_eq!(next_usable(&bitmap, 70, 256), Some(72));
        assert_eq!(next_usable(&bitmap, 3, 256), Some(160));
        bitmap[20] = 0x7f;
        assert_eq!(next_usable(&bitmap, 3, 256), Some(72));
        assert_eq!(next_usable(&bitmap, 80, 160), None);
        assert_eq!(next_zero(&bitmap, 73, 256), Some(167));
    }
}
