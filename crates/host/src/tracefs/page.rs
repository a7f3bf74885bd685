//! A page of the ring buffer, as read from `per_cpu/cpuN/trace_pipe_raw`
//! (Documentation/trace/ring-buffer-design.rst; `events/header_event` describes the beginning of an
//! event).
//!
//! A page begins with the time of its first event and the `commit` word, which has the length of
//! the events in bytes and, in its upper bits, whether events were lost before this page. An event
//! begins with a word of 5 bits for its type and 27 bits for the nanoseconds since the previous
//! event.

use super::format::PageFormat;

/// The largest type that is the length of an event in words.
const DATA_TYPE_LEN_MAX: u32 = 28;
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// Bits of the time in an event's first word; higher bits are in the next word.
const DELTA_BITS: u32 = 27;

/// Flag in `commit`: events are missing before this page (`RB_MISSED_EVENTS`).
const MISSED: u64 = 1 << 31;
/// Flag in `commit`: the word after the last event has the number of missing events
/// (`RB_MISSED_STORED`).
const MISSED_STORED: u64 = 1 << 30;
/// Bits of `commit` with the length of the events.
const LENGTH: u64 = (1 << 30) - 1;

/// A malformed page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a page of the trace is damaged at byte {at}: {problem}")]
pub struct PageFault {
    at: usize,
    problem: &'static str,
}

/// The events of a page, and the number of events lost before it.
#[derive(Clone, Debug)]
pub struct Page<'a> {
    bytes: &'a [u8],
    at: usize,
    end: usize,
    now_ns: u64,
    lost: u64,
}

/// An event's time and its bytes, which begin with the event's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Time of the trace clock, in nanoseconds.
    pub at_ns: u64,
    /// The record.
    pub bytes: &'a [u8],
}

impl<'a> Page<'a> {
    /// Begins to parse a page in the machine's byte order.
    pub fn new(bytes: &'a [u8], format: &PageFormat) -> Result<Page<'a>, PageFault> {
        let fault = |at, problem| PageFault { at, problem };
        let header = bytes.get(..format.data_offset);
        let header = header.ok_or(fault(0, "shorter than its header"))?;
        let now_ns = u64_at(header, 0).ok_or(fault(0, "no time stamp"))?;
        let commit = match format.commit_bytes {
            4 => u32_at(header, 8).map(u64::from),
            _ => u64_at(header, 8),
        };
        let commit = commit.ok_or(fault(8, "no commit word"))?;
        let length = usize::try_from(commit & LENGTH).unwrap_or(usize::MAX);
        let end = format.data_offset.saturating_add(length);
        if end > bytes.len() {
            return Err(fault(8, "its events are longer than the page"));
        }
        // The number of missing events is stored only if there is space for it.
        let lost = match (commit & MISSED != 0, commit & MISSED_STORED != 0) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => match format.commit_bytes {
                4 => u32_at(bytes, end).map_or(1, u64::from),
                _ => u64_at(bytes, end).unwrap_or(1),
            },
        };
        Ok(Page {
            bytes,
            at: format.data_offset,
            end,
            now_ns,
            lost,
        })
    }

    /// Number of events lost before this page; one if the kernel does not know the number.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the next event, or `None` after the last.
    pub fn next_record(&mut self) -> Result<Option<Record<'a>>, PageFault> {
        while self.at < self.end {
            let at = self.at;
            let word = self.word(at)?;
            let (kind, delta) = (word & 31, u64::from(word >> 5));
            match kind {
                PADDING if delta == 0 => {
                    // The rest of the page is unused.
                    self.at = self.end;
                }
                PADDING => {
                    // A discarded event; its length counts from after the first word.
                    let length = self.word(at + 4)? as usize;
                    self.now_ns = self.now_ns.wrapping_add(delta);
                    self.skip(at, length.checked_add(4))?;
                }
                TIME_EXTEND => {
                    let high = u64::from(self.word(at + 4)?);
                    self.now_ns = self.now_ns.wrapping_add(high << DELTA_BITS | delta);
                    self.skip(at, Some(8))?;
                }
                TIME_STAMP => {
                    // The event has only the lower 59 bits.
                    let high = u64::from(self.word(at + 4)?);
                    let low = high << DELTA_BITS | delta;
                    let kept = (1u64 << 59) - 1;
                    self.now_ns = (self.now_ns & !kept) | (low & kept);
                    self.skip(at, Some(8))?;
                }
                0 => {
                    // Too long for the type field: the next word is the length, including itself.
                    let length = self.word(at + 4)? as usize;
                    self.now_ns = self.now_ns.wrapping_add(delta);
                    self.skip(at, length.checked_add(4))?;
                    return self.record(at + 8).map(Some);
                }
                words => {
                    debug_assert!(words <= DATA_TYPE_LEN_MAX);
                    self.now_ns = self.now_ns.wrapping_add(delta);
                    self.skip(at, Some(4 + 4 * words as usize))?;
                    return self.record(at + 4).map(Some);
                }
            }
        }
        Ok(None)
    }

    fn word(&self, at: usize) -> Result<u32, PageFault> {
        let inside = at.checked_add(4).is_some_and(|end| end <= self.end);
        let word = inside.then(|| u32_at(self.bytes, at)).flatten();
        word.ok_or(PageFault {
            at,
            problem: "an event is cut off",
        })
    }

    /// Skips the event at `at`, of this length in bytes.
    fn skip(&mut self, at: usize, length: Option<usize>) -> Result<(), PageFault> {
        // Events are padded to words; a length below eight would not contain its own first words
        // and could cause an endless loop.
        let next = length.and_then(|length| at.checked_add(length.checked_next_multiple_of(4)?));
        match next.filter(|next| *next <= self.end && *next >= at + 8) {
            Some(next) => {
                self.at = next;
                Ok(())
            }
            None => Err(PageFault {
                at,
                problem: "an event's length reaches beyond the page",
            }),
        }
    }

    fn record(&self, from: usize) -> Result<Record<'a>, PageFault> {
        let bytes = self.bytes.get(from..self.at);
        let bytes = bytes.ok_or(PageFault {
            at: from,
            problem: "an event's length is less than its head",
        })?;
        Ok(Record {
            at_ns: self.now_ns,
            bytes,
        })
    }
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let word = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_ne_bytes(word.try_into().ok()?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_ne_bytes(word.try_into().ok()?))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) const FORMAT: PageFormat = PageFormat {
        commit_bytes: 8,
        data_offset: 16,
        page_bytes: 4096,
    };

    /// A page in the kernel's layout.
    pub(crate) struct Builder {
        start_ns: u64,
        data: Vec<u8>,
    }

    impl Builder {
        pub(crate) fn new(start_ns: u64) -> Builder {
            let data = Vec::new();
            Builder { start_ns, data }
        }

        pub(crate) fn word(mut self, kind: u32, delta: u32) -> Builder {
            self.data.extend((kind | delta << 5).to_ne_bytes());
            self
        }

        pub(crate) fn raw(mut self, word: u32) -> Builder {
            self.data.extend(word.to_ne_bytes());
            self
        }

        /// An event of at most 112 bytes.
        pub(crate) fn event(self, delta: u32, bytes: &[u8]) -> Builder {
            let words = bytes.len().div_ceil(4);
            let mut page = self.word(words as u32, delta);
            page.data.extend(bytes);
            page.data.resize(page.data.len().next_multiple_of(4), 0);
            page
        }

        pub(crate) fn page(self, flags: u64) -> Vec<u8> {
            let mut page = self.start_ns.to_ne_bytes().to_vec();
            page.extend((self.data.len() as u64 | flags).to_ne_bytes());
            page.extend(self.data);
            page.resize(4096, 0);
            page
        }
    }

    fn all(page: &[u8]) -> Result<Vec<(u64, Vec<u8>)>, PageFault> {
        let mut page = Page::new(page, &FORMAT)?;
        let mut records = Vec::new();
        while let Some(record) = page.next_record()? {
            records.push((record.at_ns, record.bytes.to_vec()));
        }
        Ok(records)
    }

    #[test]
    fn times_add_up_and_extend() {
        let page = Builder::new(1_000)
            .event(0, &[1, 2, 3, 4])
            .event(10, &[5, 6, 7, 8, 9])
            .word(TIME_EXTEND, 3)
            .raw(2)
            .event(1, &[1; 4])
            .word(TIME_STAMP, 5)
            .raw(1)
            .event(0, &[2; 4])
            .page(0);
        let records = all(&page).unwrap();
        assert_eq!(records[0], (1_000, vec![1, 2, 3, 4]));
        assert_eq!(records[1], (1_010, vec![5, 6, 7, 8, 9, 0, 0, 0]));
        assert_eq!(records[2].0, 1_010 + (2 << 27) + 3 + 1);
        assert_eq!(records[3].0, (1 << 27) + 5);
    }

    #[test]
    fn padding_and_long_events_are_passed() {
        let long = 300u32;
        let mut builder = Builder::new(5)
            .word(PADDING, 2)
            .raw(12)
            .raw(0xdead)
            .raw(0xbeef)
            .word(0, 1)
            .raw(long + 4);
        builder.data.extend(vec![7; long as usize]);
        let records = all(&builder.event(1, &[3; 4]).word(PADDING, 0).page(0)).unwrap();
        assert_eq!(records[0], (8, vec![7; long as usize]));
        assert_eq!(records[1], (9, vec![3; 4]));
        assert_eq!(records.len(), 2);
    }

    #[test]
    fn lost_events_are_told() {
        let builder = || Builder::new(0).event(0, &[1; 4]);
        let lost = |page: &[u8]| Page::new(page, &FORMAT).unwrap().lost();
        assert_eq!(lost(&builder().page(0)), 0);
        assert_eq!(lost(&builder().page(MISSED)), 1);
        let mut page = builder().page(MISSED | MISSED_STORED);
        page[24..32].copy_from_slice(&77u64.to_ne_bytes());
        assert_eq!(lost(&page), 77);
        assert_eq!(all(&page).unwrap().len(), 1);
    }

    #[test]
    fn damage_is_told_and_not_read() {
        assert!(Page::new(&[0; 15], &FORMAT).is_err());
        let mut page = Builder::new(0).event(0, &[1; 4]).page(0);
        page[8..16].copy_from_slice(&9999u64.to_ne_bytes());
        assert!(Page::new(&page, &FORMAT).is_err());
        // An event that claims to be longer than the page.
        assert!(all(&Builder::new(0).word(28, 0).page(0)).is_err());
        // A length of zero would never end.
        assert!(all(&Builder::new(0).word(PADDING, 1).raw(0).page(0)).is_err());
        assert!(all(&Builder::new(0).word(0, 1).raw(u32::MAX).page(0)).is_err());
    }

    proptest! {
        #[test]
        fn no_page_is_a_panic_or_endless(bytes in prop::collection::vec(any::<u8>(), 0..600), length in 0u64..600) {
            let mut bytes = bytes;
            if bytes.len() >= 16 {
                bytes[8..16].copy_from_slice(&length.to_ne_bytes());
            }
            let _ = all(&bytes);
        }

        #[test]
        fn what_is_written_is_read(events in prop::collection::vec((0u32..1 << 27, prop::collection::vec(any::<u8>(), 4..60)), 0..30)) {
            let mut builder = Builder::new(17);
            for (delta, bytes) in &events {
                builder = builder.event(*delta, bytes);
            }
            let records = all(&builder.page(0)).unwrap();
            prop_assert_eq!(records.len(), events.len());
            let mut at = 17u64;
            for ((delta, bytes), (at_ns, read)) in events.iter().zip(&records) {
                at += u64::from(*delta);
                prop_assert_eq!(*at_ns, at);
                prop_assert_eq!(&read[..bytes.len()], &bytes[..]);
            }
        }
    }
}
