//! A drive's own counters, `/sys/block/NAME/stat`
//! (Documentation/block/stat.rst).

use blklab_stats::QueueStats;

use crate::disk::Disk;
use crate::error::HostError;
use crate::system::{System, read};

/// The counters at one moment, since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters([u64; 17]);

impl Counters {
    /// Reads the file's text. Kernels before 5.5 have no flushes, those before
    /// 4.18 no discards.
    pub fn parse(text: &str) -> Option<Counters> {
        let mut counters = [0; 17];
        let mut found = 0;
        for (slot, word) in counters.iter_mut().zip(text.split_ascii_whitespace()) {
            *slot = word.parse().ok()?;
            found += 1;
        }
        (found >= 11).then_some(Counters(counters))
    }

    /// The drive's counters now.
    pub fn of(system: &System, disk: &Disk) -> Result<Counters, HostError> {
        let path = disk.folder(system).join("stat");
        let text = match read("read the drive's counters", &path) {
            Err(_) if !disk.folder(system).exists() => {
                return Err(HostError::Vanished {
                    device: disk.path.display().to_string(),
                });
            }
            text => text?,
        };
        Counters::parse(&text).ok_or_else(|| HostError::Format {
            path,
            message: format!("{text:?} is not at least eleven numbers"),
        })
    }

    /// What happened since `before`. Times are in milliseconds in the kernel.
    pub fn since(&self, before: &Counters) -> QueueStats {
        let d = |at: usize| self.0[at].saturating_sub(before.0[at]);
        let ns = |at: usize| d(at).saturating_mul(1_000_000);
        QueueStats {
            ios: [d(0), d(4), d(11), d(15)],
            merges: [d(1), d(5), d(12), 0],
            sectors: [d(2), d(6), d(13), 0],
            ticks_ns: [ns(3), ns(7), ns(14), ns(16)],
            io_ticks_ns: ns(9),
            time_in_queue_ns: ns(10),
            ..QueueStats::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_the_kernels() {
        let before = Counters::parse("1 2 3 4 5 6 7 8 0 10 11 12 13 14 15 16 17").unwrap();
        let after = Counters::parse("11 12 13 14 15 16 17 18 1 20 21 22 23 24 25 26 27\n").unwrap();
        let went = after.since(&before);
        assert_eq!(went.ios, [10; 4]);
        assert_eq!(went.merges, [10, 10, 10, 0]);
        assert_eq!(went.ticks_ns, [10_000_000; 4]);
        assert_eq!(went.io_ticks_ns, 10_000_000);
        assert_eq!(before.since(&after), QueueStats::default());
    }

    #[test]
    fn short_and_wrong_text() {
        assert!(Counters::parse("1 2 3 4 5 6 7 8 9 10 11").is_some());
        for wrong in ["", "1 2 3", "1 2 3 4 5 6 7 8 9 10 x"] {
            assert_eq!(Counters::parse(wrong), None);
        }
    }
}
