//! The times of CPUs as marks in a trace, which has no event of its own for them: lines of
//! `/proc/stat` (Documentation/filesystems/proc.rst, 1.7), as a program writes them into
//! tracefs' `trace_marker`.

use std::fmt::{self, Display, Formatter};

/// A tick of the kernel's `USER_HZ`, which is 100 but on Alpha and Itanium.
const TICK_NS: u64 = 10_000_000;

/// The times of a CPU since the boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuStat {
    /// The CPU.
    pub cpu: u32,
    /// In nanoseconds: user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice;
    /// the last two are parts of the first two.
    pub ns: [u64; 10],
}

impl CpuStat {
    /// Reads a mark; `None` if the mark is another.
    pub fn of_mark(text: &str) -> Option<CpuStat> {
        CpuStat::of_line(text, TICK_NS)
    }

    /// Reads a line of `/proc/stat` in which a tick lasts so long; `None` if it is not the line of
    /// one CPU. Columns that old kernels lack count as zero. Ticks may have a fraction, which the
    /// kernel does not write.
    pub fn of_line(line: &str, tick_ns: u64) -> Option<CpuStat> {
        let rest = line.strip_prefix("cpu")?;
        if !rest.starts_with(|first: char| first.is_ascii_digit()) {
            return None;
        }
        let mut words = rest.split_ascii_whitespace();
        let mut stat = CpuStat {
            cpu: words.next()?.parse().ok()?,
            ..CpuStat::default()
        };
        for (slot, word) in stat.ns.iter_mut().zip(words) {
            *slot = ticks(word, tick_ns)?;
        }
        Some(stat)
    }
}

/// Reads a number of ticks, with at most nine fractional digits.
fn ticks(word: &str, tick_ns: u64) -> Option<u64> {
    let (whole, fraction) = word.split_once('.').unwrap_or((word, "0"));
    let digits = u32::try_from(fraction.len()).ok().filter(|&n| n <= 9)?;
    let part = u128::from(fraction.parse::<u32>().ok()?) * u128::from(tick_ns);
    let part_ns = u64::try_from(part / 10u128.pow(digits)).ok()?;
    let whole_ns = whole.parse::<u64>().ok()?.checked_mul(tick_ns)?;
    whole_ns.checked_add(part_ns)
}

/// Writes the mark, with fractions of ticks where the times have them.
impl Display for CpuStat {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "cpu{}", self.cpu)?;
        for ns in self.ns {
            write!(f, " {}", ns / TICK_NS)?;
            match ns % TICK_NS {
                0 => {}
                part_ns => write!(f, ".{part_ns:07}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let stat = CpuStat {
            cpu: 3,
            ns: [10_000_000, 1, 0, u64::MAX, 0, 0, 123_456_789, 0, 0, 5],
        };
        let text = stat.to_string();
        assert!(text.starts_with("cpu3 1 0.0000001 0 "), "{text}");
        assert_eq!(CpuStat::of_mark(&text), Some(stat));
    }

    #[test]
    fn other_lines_are_no_marks() {
        for wrong in [
            "cpu  30 3 12 100",
            "cpux 1",
            "cpu0 1 -2",
            "cpu0 18446744073709551615",
            "cpu0 1.x",
            "cpu0 1.1234567890",
            "cpufreq",
            "cgroup idle",
        ] {
            assert_eq!(CpuStat::of_mark(wrong), None, "{wrong}");
        }
    }
}
