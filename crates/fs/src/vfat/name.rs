//! Names: each long one, in UTF-16, has a short one in the code page
//! (Linux 6.12's `fs/fat/namei_vfat.c` and `dir.c`).

use crate::error::FsError;
use crate::file_system::Timestamp;

use super::charset::Charset;

/// Characters of a long name (`FAT_LFN_LEN`).
const LONG_UNITS_MAX: usize = 255;
/// Characters of a long name that an entry holds.
pub(super) const UNITS_PER_SLOT: usize = 13;
/// The characters of a long name in its entry: byte offset and number.
const SLOT_UNITS: [(usize, usize); 3] = [(1, 5), (14, 6), (28, 2)];
/// Stands for a short name's first byte 0xe5, which would mark the entry as free.
const KANJI_E5: u8 = 0x05;
/// The name, or the extension, is shown in lower case.
pub(super) const CASE_LOWER_BASE: u8 = 0x08;
pub(super) const CASE_LOWER_EXTENSION: u8 = 0x10;

/// How short names are shown and made (`shortname=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShortNames {
    /// Shown in lower case; names that are not all in upper case get a long name.
    Lower,
    /// Shown in upper case; names that are not all in upper case get a long name.
    Win95,
    /// Shown in the case that the entry says; names all in one case get no long name.
    WinNt,
    /// Shown in the case that the entry says; names that are not all in upper case get a
    /// long name.
    #[default]
    Mixed,
}

/// VFAT's mount options, most of which are about names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VfatOptions {
    /// The character set of short names on the device.
    pub codepage: Charset,
    /// The character set of programs, unless `utf8`.
    pub iocharset: Charset,
    /// Programs use UTF-8.
    pub utf8: bool,
    /// How short names are shown and made.
    pub short_names: ShortNames,
    /// Shortened names end in `~1`, `~2` and so on.
    pub numtail: bool,
    /// Permissions that are taken from every file.
    pub umask: u16,
}

impl Default for VfatOptions {
    fn default() -> VfatOptions {
        VfatOptions {
            codepage: Charset::CP437,
            iocharset: Charset::LATIN1,
            utf8: false,
            short_names: ShortNames::default(),
            numtail: true,
            umask: 0o022,
        }
    }
}

impl VfatOptions {
    /// Reads mount options such as `utf8,codepage=932`.
    ///
    /// # Errors
    /// A message that names the wrong option and the legal ones.
    pub fn parse(text: &str) -> Result<VfatOptions, String> {
        let mut options = VfatOptions::default();
        let one_of = |known: Vec<&str>| format!("there are {}", known.join(", "));
        for option in text.split(',').filter(|option| !option.is_empty()) {
            match option.split_once('=').unwrap_or((option, "")) {
                ("codepage", page) => {
                    let pages = Charset::names().filter_map(|name| name.strip_prefix("cp"));
                    options.codepage = Charset::named(&format!("cp{page}"))
                        .ok_or_else(|| format!("{option}: {}", one_of(pages.collect())))?;
                }
                ("iocharset", name) => {
                    options.iocharset = Charset::named(name).ok_or_else(|| {
                        let why = Charset::why_not(name).map(|why| format!("{why}; "));
                        let legal = one_of(Charset::names().collect());
                        format!("{option}: {}{legal}", why.unwrap_or_default())
                    })?;
                }
                ("utf8", "" | "1" | "yes" | "true") => options.utf8 = true,
                ("utf8", "0" | "no" | "false") => options.utf8 = false,
                ("shortname", "lower") => options.short_names = ShortNames::Lower,
                ("shortname", "win95") => options.short_names = ShortNames::Win95,
                ("shortname", "winnt") => options.short_names = ShortNames::WinNt,
                ("shortname", "mixed") => options.short_names = ShortNames::Mixed,
                ("nonumtail", "" | "1" | "yes" | "true") => options.numtail = false,
                ("nonumtail", "0" | "no" | "false") => options.numtail = true,
                _ => {
                    return Err(format!(
                        "{option}: there are codepage=NUMBER, iocharset=NAME, utf8, \
                         shortname=lower|win95|winnt|mixed and nonumtail"
                    ));
                }
            }
        }
        Ok(options)
    }

    /// A program's name in UTF-16 (`xlate_to_uni`).
    fn to_long(&self, name: &[u8]) -> Result<Vec<u16>, FsError> {
        let units: Vec<u16> = if self.utf8 {
            let text = str::from_utf8(name).map_err(|_| FsError::BadName)?;
            text.encode_utf16().collect()
        } else {
            let mut units = Vec::new();
            let mut rest = name;
            while !rest.is_empty() && units.len() < LONG_UNITS_MAX {
                let (unit, len) = self.iocharset.decode(rest).ok_or(FsError::BadName)?;
                units.push(unit);
                rest = &rest[len..];
            }
            if !rest.is_empty() {
                return Err(FsError::NameTooLong);
            }
            units
        };
        match units.len() {
            0..=LONG_UNITS_MAX => Ok(units),
            _ => Err(FsError::NameTooLong),
        }
    }

    /// A long name as a program sees it (`fat_uni_to_x8`).
    pub(super) fn to_program(&self, units: &[u16]) -> Vec<u8> {
        let end = units.iter().position(|&unit| unit == 0);
        let units = &units[..end.unwrap_or(units.len())];
        if self.utf8 {
            // An unpaired surrogate has no form in UTF-8.
            let characters = char::decode_utf16(units.iter().copied());
            return characters.filter_map(Result::ok).collect::<String>().into();
        }
        let mut name = Vec::new();
        for &unit in units {
            match self.iocharset.encode(unit) {
                Some(encoded) => name.extend_from_slice(encoded.bytes()),
                None => name.push(b'?'),
            }
        }
        name
    }

    /// A short name as a program sees it (`fat_parse_short`).
    pub(super) fn short_to_program(&self, short: &[u8; 11], case: u8) -> Vec<u8> {
        let mut bytes = *short;
        if bytes[0] == KANJI_E5 {
            bytes[0] = 0xe5;
        }
        let mut units = self.short_part(&bytes[..8], case & CASE_LOWER_BASE != 0);
        let extension = self.short_part(&bytes[8..], case & CASE_LOWER_EXTENSION != 0);
        if !extension.is_empty() {
            units.push(b'.'.into());
            units.extend(extension);
        }
        self.to_program(&units)
    }

    /// The base or the extension of a short name, without the spaces that fill it up.
    fn short_part(&self, bytes: &[u8], is_marked_lower: bool) -> Vec<u16> {
        let is_lower = match self.short_names {
            ShortNames::Lower => true,
            ShortNames::Win95 => false,
            ShortNames::WinNt | ShortNames::Mixed => is_marked_lower,
        };
        let mut units = Vec::new();
        let mut len = 0;
        let mut rest = bytes;
        while let Some(&first) = rest.first().filter(|&&byte| byte != 0) {
            let (unit, bytes) = match self.codepage.decode(rest) {
                Some((_, 1)) if is_lower => {
                    let lower = [self.codepage.lower(first)];
                    (
                        self.codepage
                            .decode(&lower)
                            .map_or(b'?'.into(), |found| found.0),
                        1,
                    )
                }
                Some(found) => found,
                None => (b'?'.into(), 1),
            };
            units.push(unit);
            if first != b' ' {
                len = units.len();
            }
            rest = &rest[bytes..];
        }
        units.truncate(len);
        units
    }

    /// The form in which names are compared: in lower case, byte by byte
    /// (`nls_strnicmp`).
    pub(super) fn lower(&self, name: &[u8]) -> Vec<u8> {
        name.iter()
            .map(|&byte| self.iocharset.lower(byte))
            .collect()
    }
}

/// A name without the dots at its end (`vfat_striptail_len`).
pub(super) fn strip_trailing_dots(name: &[u8]) -> &[u8] {
    let len = name.iter().rposition(|&byte| byte != b'.');
    &name[..len.map_or(0, |last| last + 1)]
}

/// The checksum of a short name, which the entries of its long name repeat
/// (`fat_checksum`).
pub(super) fn checksum(short: &[u8; 11]) -> u8 {
    let add = |sum: u8, &byte: &u8| sum.rotate_right(1).wrapping_add(byte);
    short.iter().fold(0, add)
}

/// A new name as the device will hold it; its short name may still need digits to be
/// unique in the directory.
pub(super) struct NewName {
    pub(super) long: Vec<u16>,
    short: [u8; 11],
    /// The byte where `~1` would begin.
    tail_at: usize,
    /// The byte where four hexadecimal digits would begin, with `~1` after them.
    digits_at: usize,
    base_bytes: usize,
    base: Letters,
    extension: Letters,
    /// Whether the short name holds all characters of the long one.
    is_whole: bool,
}

/// The case of a name's base or extension, and whether a short name can hold it
/// (`struct shortname_info`).
#[derive(Clone, Copy)]
struct Letters {
    is_lower: bool,
    is_upper: bool,
    is_valid: bool,
}

impl Letters {
    const NONE: Letters = Letters {
        is_lower: true,
        is_upper: true,
        is_valid: true,
    };

    /// The bytes of a character in a short name; none if short names leave it out
    /// (`to_shortname_char`).
    fn add(&mut self, unit: u16, codepage: Charset) -> Vec<u8> {
        let ascii = u8::try_from(unit).unwrap_or(0xff);
        if matches!(ascii, b'.' | b' ') {
            self.is_valid = false;
            return Vec::new();
        }
        let encoded = codepage.encode(unit);
        let Some(encoded) = encoded.filter(|_| !b"[];,+=".contains(&ascii)) else {
            self.is_valid = false;
            return vec![b'_'];
        };
        let &[byte] = encoded.bytes() else {
            self.is_lower = false;
            self.is_upper = false;
            return encoded.bytes().to_vec();
        };
        if byte >= 0x7f {
            self.is_lower = false;
            self.is_upper = false;
        }
        let upper = codepage.upper(byte);
        // Linux's `isalpha` is that of ISO 8859-1.
        let is_letter =
            upper.is_ascii_alphabetic() || (upper >= 0xc0 && upper != 0xd7 && upper != 0xf7);
        if is_letter && upper == byte {
            self.is_lower = false;
        } else if is_letter {
            self.is_upper = false;
        }
        vec![upper]
    }
}

/// Where the extension begins: after the last dot, unless that is the last character or
/// has only dots and spaces before it.
fn extension_start(long: &[u16]) -> Option<usize> {
    let dot = long.iter().rposition(|&unit| unit == u16::from(b'.'))?;
    let is_skipped = |&unit: &u16| unit == u16::from(b'.') || unit == u16::from(b' ');
    let is_extension = dot + 1 < long.len() && !long[..dot].iter().all(is_skipped);
    is_extension.then_some(dot + 1)
}

impl NewName {
    /// Translates a program's name (the first half of `vfat_create_shortname`).
    pub(super) fn new(name: &[u8], options: &VfatOptions) -> Result<NewName, FsError> {
        let name = strip_trailing_dots(name);
        if name.is_empty() {
            return Err(FsError::NoEntry);
        }
        let long = options.to_long(name)?;
        let is_bad = |&unit: &u16| {
            let ascii = u8::try_from(unit).unwrap_or(b'a');
            ascii < 0x20 || b"*?<>|\":/\\".contains(&ascii)
        };
        if long.iter().any(is_bad) || long.last() == Some(&b' '.into()) {
            return Err(FsError::BadName);
        }
        let extension_start = extension_start(&long);
        let base_end = extension_start.map_or(long.len(), |start| start - 1);
        let mut new = NewName {
            short: [b' '; 11],
            tail_at: 6,
            digits_at: 2,
            base_bytes: 0,
            base: Letters::NONE,
            extension: Letters::NONE,
            is_whole: true,
            long,
        };
        new.shorten_base(base_end, options.codepage)?;
        if let Some(start) = extension_start {
            new.shorten_extension(start, options.codepage);
        }
        if new.short[0] == 0xe5 {
            new.short[0] = KANJI_E5;
        }
        Ok(new)
    }

    fn shorten_base(&mut self, end: usize, codepage: Charset) -> Result<(), FsError> {
        let mut len = 0;
        for n in 0..end {
            let bytes = self.base.add(self.long[n], codepage);
            // Digits must not cut a character of two bytes.
            if len < 2 && len + bytes.len() > 2 {
                self.digits_at = len;
            }
            if len < 6 && len + bytes.len() > 6 {
                self.tail_at = len;
            }
            let fits = bytes.len().min(8 - len);
            self.short[len..len + fits].copy_from_slice(&bytes[..fits]);
            len += fits;
            if len == 8 {
                self.is_whole &= fits == bytes.len() && n + 1 == end;
                break;
            }
        }
        self.base_bytes = len;
        if len == 0 {
            Err(FsError::BadName)
        } else {
            Ok(())
        }
    }

    fn shorten_extension(&mut self, start: usize, codepage: Charset) {
        let mut len = 0;
        for n in start..self.long.len() {
            let bytes = self.extension.add(self.long[n], codepage);
            if len + bytes.len() > 3 {
                self.is_whole = false;
                return;
            }
            self.short[8 + len..8 + len + bytes.len()].copy_from_slice(&bytes);
            len += bytes.len();
            if len == 3 {
                self.is_whole &= n + 1 == self.long.len();
                return;
            }
        }
    }

    /// The short name without digits, if it differs from the long one in case at most;
    /// with the entry's case byte, and whether the long name can be left out.
    pub(super) fn plain(&self, options: &VfatOptions) -> Option<([u8; 11], u8, bool)> {
        if !self.is_whole || !self.base.is_valid || !self.extension.is_valid {
            return None;
        }
        let (base, extension) = (self.base, self.extension);
        if options.short_names != ShortNames::WinNt {
            return Some((self.short, 0, base.is_upper && extension.is_upper));
        }
        let is_one_case = |part: Letters| part.is_upper || part.is_lower;
        if !is_one_case(base) || !is_one_case(extension) {
            return Some((self.short, 0, false));
        }
        let mut case = 0;
        if !base.is_upper {
            case |= CASE_LOWER_BASE;
        }
        if !extension.is_upper {
            case |= CASE_LOWER_EXTENSION;
        }
        Some((self.short, case, true))
    }

    /// The short names to try one after the other: with `~1` to `~9`, then with four
    /// hexadecimal digits that depend on the time (`vfat_create_shortname`).
    pub(super) fn candidates(
        &self,
        options: &VfatOptions,
        now: Timestamp,
    ) -> impl Iterator<Item = [u8; 11]> {
        let mut tail = self.short;
        let tail_at = self.base_bytes.min(self.tail_at);
        if self.base_bytes > 6 {
            tail[7] = b' ';
        }
        tail[tail_at] = b'~';
        let with_tail = (b'1'..=b'9').map(move |digit| {
            let mut short = tail;
            short[tail_at + 1] = digit;
            short
        });
        let mut digits = tail;
        let digits_at = if self.base_bytes > 2 {
            self.digits_at
        } else {
            self.base_bytes
        };
        digits[7] = b' ';
        // The kernel counts ticks of 4 ms.
        let ticks = now.seconds as u64 * 250 + u64::from(now.nanoseconds) / 4_000_000;
        digits[digits_at + 4] = b'~';
        digits[digits_at + 5] = b'1' + (ticks >> 16 & 7) as u8;
        let with_digits = (0..=u64::from(u16::MAX)).map(move |n| {
            let number = ticks.wrapping_sub(11 * n) as u16;
            let mut short = digits;
            short[digits_at..digits_at + 4].copy_from_slice(format!("{number:04X}").as_bytes());
            short
        });
        let without = (!options.numtail).then_some(self.short);
        without.into_iter().chain(with_tail).chain(with_digits)
    }

    /// The entries of the long name, its last part first.
    pub(super) fn slots(&self, short: &[u8; 11]) -> Vec<[u8; 32]> {
        let sum = checksum(short);
        let count = self.long.len().div_ceil(UNITS_PER_SLOT);
        let unit = |n: usize| match n.cmp(&self.long.len()) {
            std::cmp::Ordering::Less => self.long[n],
            std::cmp::Ordering::Equal => 0,
            std::cmp::Ordering::Greater => 0xffff,
        };
        let slot = |n: usize| {
            let mut slot = [0; 32];
            slot[0] = n as u8 | if n == count { 0x40 } else { 0 };
            slot[11] = super::entry::ATTRIBUTES_LONG;
            slot[13] = sum;
            let mut at = (n - 1) * UNITS_PER_SLOT;
            for (byte, units) in SLOT_UNITS {
                for n in 0..units {
                    let place = byte + 2 * n;
                    slot[place..place + 2].copy_from_slice(&unit(at).to_le_bytes());
                    at += 1;
                }
            }
            slot
        };
        (1..=count).rev().map(slot).collect()
    }
}

/// The part of a long name that an entry holds.
pub(super) fn slot_units(slot: &[u8; 32]) -> [u16; UNITS_PER_SLOT] {
    let mut units = [0; UNITS_PER_SLOT];
    let places = SLOT_UNITS
        .iter()
        .flat_map(|&(byte, count)| (0..count).map(move |n| byte + 2 * n));
    for (unit, place) in units.iter_mut().zip(places) {
        *unit = u16::from_le_bytes([slot[place], slot[place + 1]]);
    }
    units
}
