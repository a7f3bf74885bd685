//! The letters of operations and modifiers in blktrace's output and the kernel's trace events
//! (`blk_fill_rwbs` in Linux 6.12).

use std::fmt;

use blklab_blk::{BioFlags, Op};

use super::error::Fault;

/// The form that [`Rwbs::parse`] expects.
const EXPECTED: &str = "an operation (R, W, D, DE, F or N, with F before it for a preflush) \
     and modifiers (F fua, A readahead, S sync, M metadata)";

/// An operation with its modifiers, as `rwbs` shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rwbs {
    /// The operation; `None` is the kernel's `N`: an operation without a letter, such as a
    /// passthrough command or, in Linux 6.12, `REQ_OP_WRITE_ZEROES`. A secure erase (`DE`) reads as
    /// a discard.
    pub op: Option<Op>,
    /// The modifiers; only `SYNC`, `META`, `FUA`, `PREFLUSH` and `RAHEAD` have letters.
    pub flags: BioFlags,
}

impl Rwbs {
    /// Parses `letters`, which are at byte `at` of their line.
    ///
    /// `F` has three meanings: a preflush before another operation's letter, a flush alone, and FUA
    /// after the operation.
    pub(crate) fn parse(letters: &str, at: usize) -> Result<Rwbs, Fault> {
        let fault = |index: usize| Fault::new(at + index, "rwbs", letters, EXPECTED);
        let bytes = letters.as_bytes();
        let mut index = 0;
        let mut flags = BioFlags::NONE;
        if bytes.len() > 1 && bytes[0] == b'F' && b"RWDNF".contains(&bytes[1]) {
            flags = BioFlags::PREFLUSH;
            index = 1;
        }
        let op = match bytes.get(index) {
            Some(b'R') => Some(Op::Read),
            Some(b'W') => Some(Op::Write),
            Some(b'D') => Some(Op::Discard),
            Some(b'F') => Some(Op::Flush),
            Some(b'N') => None,
            _ => return Err(fault(index)),
        };
        index += 1;
        if op == Some(Op::Discard) && bytes.get(index) == Some(&b'E') {
            index += 1;
        }
        for (index, letter) in bytes.iter().enumerate().skip(index) {
            flags = flags.with(match letter {
                b'F' => BioFlags::FUA,
                b'A' => BioFlags::RAHEAD,
                b'S' => BioFlags::SYNC,
                b'M' => BioFlags::META,
                _ => return Err(fault(index)),
            });
        }
        Ok(Rwbs { op, flags })
    }
}

impl std::str::FromStr for Rwbs {
    type Err = Fault;

    fn from_str(letters: &str) -> Result<Rwbs, Fault> {
        Rwbs::parse(letters, 0)
    }
}

impl fmt::Display for Rwbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = [
            (BioFlags::FUA, "F"),
            (BioFlags::RAHEAD, "A"),
            (BioFlags::SYNC, "S"),
            (BioFlags::META, "M"),
        ];
        if self.flags.has(BioFlags::PREFLUSH) {
            f.write_str("F")?;
        }
        f.write_str(match self.op {
            Some(Op::Read) => "R",
            Some(Op::Write) => "W",
            Some(Op::Discard) => "D",
            Some(Op::Flush) => "F",
            Some(Op::WriteZeroes | Op::Zone(_)) | None => "N",
        })?;
        for (flag, letter) in letters {
            if self.flags.has(flag) {
                f.write_str(letter)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rwbs(op: Op, flags: &[BioFlags]) -> Rwbs {
        let flags = flags.iter().fold(BioFlags::NONE, |all, one| all.with(*one));
        Rwbs {
            op: Some(op),
            flags,
        }
    }

    #[test]
    fn letters_mean_what_the_kernel_means() {
        let cases = [
            ("R", rwbs(Op::Read, &[])),
            ("RA", rwbs(Op::Read, &[BioFlags::RAHEAD])),
            ("RSM", rwbs(Op::Read, &[BioFlags::SYNC, BioFlags::META])),
            ("WFS", rwbs(Op::Write, &[BioFlags::FUA, BioFlags::SYNC])),
            (
                "FWS",
                rwbs(Op::Write, &[BioFlags::PREFLUSH, BioFlags::SYNC]),
            ),
            (
                "FWFSM",
                rwbs(
                    Op::Write,
                    &[
                        BioFlags::PREFLUSH,
                        BioFlags::FUA,
                        BioFlags::SYNC,
                        BioFlags::META,
                    ],
                ),
            ),
            ("F", rwbs(Op::Flush, &[])),
            ("FF", rwbs(Op::Flush, &[BioFlags::PREFLUSH])),
            ("FS", rwbs(Op::Flush, &[BioFlags::SYNC])),
            ("DS", rwbs(Op::Discard, &[BioFlags::SYNC])),
            (
                "N",
                Rwbs {
                    op: None,
                    flags: BioFlags::NONE,
                },
            ),
        ];
        for (letters, meaning) in cases {
            assert_eq!(Rwbs::parse(letters, 0).unwrap(), meaning, "{letters}");
            assert_eq!(meaning.to_string(), letters);
        }
        assert_eq!(
            Rwbs::parse("DES", 0).unwrap(),
            rwbs(Op::Discard, &[BioFlags::SYNC])
        );
    }

    #[test]
    fn other_letters_are_faults_with_their_column() {
        assert_eq!(Rwbs::parse("", 4).unwrap_err().column, 5);
        assert_eq!(Rwbs::parse("WX", 4).unwrap_err().column, 6);
        assert_eq!(Rwbs::parse("S", 0).unwrap_err().found, "\"S\"");
    }
}
