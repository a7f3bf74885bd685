//! `verify` and its companions: how a job writes blocks that can be told from others, and which of
//! them it reads again.

use super::direction::Direction;
use super::error::{Fault, JobError};
use super::section::SectionOptions;
use super::spec::ZoneMode;

/// The bytes of fio's header before what it checks (`struct verify_header`).
pub const HEADER_BYTES: u64 = 40;

/// A checksum over a block, as fio names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum {
    /// fio's word.
    pub name: &'static str,
    /// The bytes that it takes behind the header.
    pub bytes: u64,
    /// The CPU time that it takes, in nanoseconds for 1 KiB. Measured with fio 3.33 writing to its
    /// null engine on an AMD EPYC, and assumed for any other processor.
    pub ns_per_kib: u64,
}

macro_rules! checksums {
    ($($name:literal $bytes:literal $ns:literal),* $(,)?) => {
        [$(Checksum { name: $name, bytes: $bytes, ns_per_kib: $ns }),*]
    };
}

const CHECKSUMS: [Checksum; 14] = checksums! {
    "md5" 16 1575,
    "crc64" 8 2660,
    "crc32" 4 2980,
    "crc32c" 4 220,
    "crc16" 2 2720,
    "crc7" 1 2460,
    "sha1" 20 2800,
    "sha256" 64 4640,
    "sha512" 128 3710,
    "sha3-224" 28 14_800,
    "sha3-256" 32 15_400,
    "sha3-384" 48 19_800,
    "sha3-512" 64 27_600,
    "xxhash" 4 650,
};

/// `verify`: what tells that a block is the one that was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VerifyKind {
    /// Nothing is verified.
    #[default]
    None,
    /// Blocks are read again, and not looked at.
    Null,
    /// A header alone, and the pattern behind it if there is one.
    Meta,
    /// A pattern, without a header.
    Pattern,
    /// A header with a checksum of the rest.
    Checksum(&'static Checksum),
}

impl VerifyKind {
    /// The words that are no checksum's own: none, the processor's `crc32c`, and what has no sum.
    const OTHERS: [&'static str; 5] = ["0", "crc32c-intel", "meta", "pattern", "null"];

    /// fio's words.
    pub(crate) const WORDS: [&'static str; Self::OTHERS.len() + CHECKSUMS.len()] = {
        let mut words = [""; Self::OTHERS.len() + CHECKSUMS.len()];
        let mut n = 0;
        while n < words.len() {
            words[n] = match n < Self::OTHERS.len() {
                true => Self::OTHERS[n],
                false => CHECKSUMS[n - Self::OTHERS.len()].name,
            };
            n += 1;
        }
        words
    };

    /// Returns the kind of one of these words.
    pub(crate) fn named(word: &str) -> VerifyKind {
        match word {
            "null" => VerifyKind::Null,
            "meta" => VerifyKind::Meta,
            "pattern" => VerifyKind::Pattern,
            _ => {
                let name = word.strip_suffix("-intel").unwrap_or(word);
                let known = CHECKSUMS.iter().find(|checksum| checksum.name == name);
                known.map_or(VerifyKind::None, VerifyKind::Checksum)
            }
        }
    }

    /// The bytes of a header with its checksum; 0: blocks have none.
    pub fn header_bytes(self) -> u64 {
        match self {
            VerifyKind::None | VerifyKind::Null | VerifyKind::Pattern => 0,
            VerifyKind::Meta => HEADER_BYTES,
            VerifyKind::Checksum(checksum) => HEADER_BYTES + checksum.bytes,
        }
    }
}

/// `verify` and its companions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyOptions {
    /// `verify`.
    pub kind: VerifyKind,
    /// `do_verify=0`: what was written is not read again.
    pub writes_alone: bool,
    /// `verify_only`: nothing is written; what an earlier job wrote is read.
    pub only: bool,
    /// `verify_interval`: a header is repeated after this number of bytes.
    pub interval_bytes: u64,
    /// `verify_offset`: where in a block the header lies.
    pub offset_bytes: u64,
    /// `verify_pattern`.
    pub pattern: Option<String>,
    /// `verify_fatal`: the job ends at the first block that differs, whatever it goes on after.
    pub fatal: bool,
    /// `verify_backlog`: the number of writes after which blocks are verified; 0: at the end.
    pub backlog: u64,
    /// `verify_backlog_batch`: how many are verified then; 0: as many.
    pub backlog_batch: u32,
    /// `continue_on_error=verify` or `all`.
    pub goes_on: bool,
}

impl VerifyOptions {
    /// Whether anything is verified.
    pub fn is_on(&self) -> bool {
        self.kind != VerifyKind::None
    }

    /// The bytes from one header to the next in an I/O of `length_bytes` (`get_hdr_inc`).
    pub fn header_every(&self, length_bytes: u64) -> u64 {
        match self.interval_bytes {
            0 => length_bytes,
            interval => interval.min(length_bytes),
        }
    }
}

/// Fits the interval to the blocks (`fixup_options`), and refuses what fio would fail with or what
/// is not simulated.
pub(super) fn fit(section: &mut SectionOptions) -> Result<(), JobError> {
    let spec = &mut section.spec;
    if spec.verify.pattern.is_some() && spec.written("verify").is_none() {
        spec.verify.kind = VerifyKind::Meta;
    }
    if !spec.verify.is_on() {
        return Ok(());
    }
    let writes = &spec.block_sizes[Direction::Write];
    let (min, max) = (writes.min_bytes, writes.max_bytes);
    let of_reads = spec.block_sizes[Direction::Read].min_bytes;
    let reads = spec.pattern.does(Direction::Read);
    let interval = &mut spec.verify.interval_bytes;
    if min != max && *interval == 0 {
        *interval = min;
    }
    if *interval > min {
        *interval = min;
    } else if reads && *interval > of_reads {
        *interval = of_reads;
    }
    if *interval == 0 || !min.is_multiple_of(*interval) || !max.is_multiple_of(*interval) {
        *interval = gcd(min, max);
    }
    check(section)
}

fn gcd(a: u64, b: u64) -> u64 {
    match b {
        0 => a,
        b => gcd(b, a % b),
    }
}

fn check(section: &SectionOptions) -> Result<(), JobError> {
    let spec = &section.spec;
    let verify = &spec.verify;
    let refusal = |option: &str, what: &str, help: &str| {
        Err(section.refuse(option, Fault::new(what.to_string()).help(help)))
    };
    if verify.kind == VerifyKind::Pattern && verify.pattern.is_none() {
        return refusal(
            "verify",
            "a pattern that is not given",
            "verify_pattern=0xabcd",
        );
    }
    let header_bytes = verify.kind.header_bytes();
    if header_bytes >= verify.interval_bytes {
        let what = format!(
            "no room for data beside a header of {header_bytes} bytes in every {}",
            verify.interval_bytes
        );
        return refusal("verify_interval", &what, "a larger one, and larger blocks");
    }
    if verify.offset_bytes > 0 && verify.offset_bytes + header_bytes > verify.interval_bytes {
        let what = format!("the header of {header_bytes} bytes ends behind its block");
        return refusal("verify_offset", &what, "a smaller one");
    }
    if spec.zones.mode != ZoneMode::None {
        return refusal(
            "verify",
            "not simulated with a zonemode",
            "leave one of them out",
        );
    }
    let is_only_writes = spec.pattern.does(Direction::Write)
        && !spec.pattern.does(Direction::Read)
        && !spec.pattern.does(Direction::Trim);
    let reads_again = !verify.writes_alone && verify.backlog == 0;
    if verify.only && spec.pattern.does(Direction::Write) && !(is_only_writes && reads_again) {
        return refusal(
            "verify_only",
            "simulated for jobs that write alone and verify at their end",
            "rw=write or rw=randwrite, without verify_backlog",
        );
    }
    Ok(())
}
