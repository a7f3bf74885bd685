//! Bytes of a page that cross the channel: whole codewords, since the controller
//! can check and correct no less.

use crate::ssd::spec::SsdSpec;

/// How pages are divided into codewords and map units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Codewords {
    codeword_bytes: u32,
    unit_bytes: u32,
    slots_per_page: u32,
    /// The least that a host read transfers: a codeword, or the whole unit where a read
    /// cache keeps units.
    least_bytes: u32,
}

impl Codewords {
    pub(crate) fn new(spec: &SsdSpec) -> Codewords {
        Codewords {
            codeword_bytes: spec.channel.codeword_bytes,
            unit_bytes: spec.ftl.map_unit_bytes,
            slots_per_page: spec.slots_per_page(),
            least_bytes: match spec.read_cache {
                None => spec.channel.codeword_bytes,
                Some(_) => spec.channel.codeword_bytes.max(spec.ftl.map_unit_bytes),
            },
        }
    }

    /// Bytes on the channel of a host read of `from..to` of the address space, which
    /// lies within one map unit, where nothing else of its page is read with it.
    #[inline]
    pub(crate) fn of_part(&self, from: u64, to: u64) -> u64 {
        let mask = self.least_bytes as u64 - 1;
        ((to + mask) & !mask) - (from & !mask)
    }

    /// The same of a whole unit.
    fn of_unit(&self) -> u64 {
        self.unit_bytes.max(self.codeword_bytes) as u64
    }

    /// Bytes on the channel of whole units of one page, by their physical slots.
    pub(crate) fn of_units(&self, slots: impl Iterator<Item = u32>) -> u32 {
        let mut read = PageRead::default();
        slots.for_each(|at| read.add(self, at, self.of_unit()));
        read.bytes as u32
    }
}

/// Units of one page that are read together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PageRead {
    /// On the channel.
    pub(crate) bytes: u64,
    /// The codewords among these, as bits, where one holds several units. Such a page
    /// has at most 64.
    codewords: u64,
}

impl PageRead {
    /// Adds the unit at a physical slot, which alone would be `alone_bytes` on the
    /// channel.
    #[inline]
    pub(crate) fn add(&mut self, page: &Codewords, at: u32, alone_bytes: u64) {
        if page.codeword_bytes > page.unit_bytes {
            let in_page = at & (page.slots_per_page - 1);
            let codeword = 1 << (in_page * page.unit_bytes / page.codeword_bytes);
            if self.codewords & codeword != 0 {
                return;
            }
            self.codewords |= codeword;
        }
        self.bytes += alone_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(codeword_bytes: u32, unit_bytes: u32) -> Codewords {
        Codewords {
            codeword_bytes,
            unit_bytes,
            slots_per_page: 16384 / unit_bytes,
            least_bytes: codeword_bytes,
        }
    }

    #[test]
    fn a_part_of_a_unit_is_rounded_to_codewords() {
        let small = page(1024, 4096);
        assert_eq!(small.of_part(4096 + 512, 4096 + 1024), 1024);
        assert_eq!(small.of_part(4096 + 512, 4096 + 1536), 2048);
        assert_eq!(small.of_part(4096, 8192), 4096);
        assert_eq!(page(4096, 512).of_part(512, 1024), 4096);
    }

    #[test]
    fn units_of_a_codeword_cross_with_it() {
        // Eight units each; the third page begins at slot 64.
        let large = page(4096, 512);
        assert_eq!(large.of_units([64, 65, 71].into_iter()), 4096);
        assert_eq!(large.of_units([71, 72, 64, 95].into_iter()), 3 * 4096);
        assert_eq!(large.of_units(64..96), 4 * 4096);
        assert_eq!(page(1024, 4096).of_units([5, 7].into_iter()), 8192);
        assert_eq!(large.of_units(std::iter::empty()), 0);
    }
}
