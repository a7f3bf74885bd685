//! Character sets: of programs (`iocharset`) and of short names on the device
//! (`codepage`). One character is a unit of UTF-16, as in Linux's `fs/nls`.

use encoding_rs::Encoding;
use oem_cp::code_table::{DECODING_TABLE_CP_MAP, ENCODING_TABLE_CP_MAP};
use oem_cp::code_table_type::TableType;

/// A character set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charset(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Utf8,
    Ascii,
    Latin1,
    /// A code page of DOS, by its number.
    Oem(u16),
    /// One byte a character; those below 0xa0 are control characters.
    Iso(&'static Encoding),
    /// One byte a character.
    Single(&'static Encoding),
    /// One byte a character, as KOI8-RU but for two line-drawing characters.
    Koi8U,
    /// One byte a character, without a table of letters' cases.
    Mac(&'static Encoding),
    /// One or more bytes a character.
    Multi(&'static Encoding),
}

/// KOI8-U's two characters that the web's encoding of that name has from KOI8-RU: byte and
/// character.
const KOI8_U: [(u8, u16); 2] = [(0xae, 0x255d), (0xbe, 0x256c)];

/// Linux's character sets that are not here, by the beginning of their names, and why not.
const NOT_SIMULATED: [(&str, &str); 2] = [
    (
        "koi8-ru",
        "Linux's own reads all bytes but two as one letter",
    ),
    (
        "mac",
        "of those of the Macintosh there are macroman and maccyrillic",
    ),
];

/// Linux's names of the character sets.
const NAMES: &[(&str, Kind)] = &[
    ("utf8", Kind::Utf8),
    ("ascii", Kind::Ascii),
    ("default", Kind::Latin1),
    ("iso8859-1", Kind::Latin1),
    ("iso8859-2", Kind::Iso(encoding_rs::ISO_8859_2)),
    ("iso8859-3", Kind::Iso(encoding_rs::ISO_8859_3)),
    ("iso8859-4", Kind::Iso(encoding_rs::ISO_8859_4)),
    ("iso8859-5", Kind::Iso(encoding_rs::ISO_8859_5)),
    ("iso8859-6", Kind::Iso(encoding_rs::ISO_8859_6)),
    ("iso8859-7", Kind::Iso(encoding_rs::ISO_8859_7)),
    ("iso8859-9", Kind::Iso(encoding_rs::WINDOWS_1254)),
    ("iso8859-13", Kind::Iso(encoding_rs::ISO_8859_13)),
    ("iso8859-14", Kind::Iso(encoding_rs::ISO_8859_14)),
    ("iso8859-15", Kind::Iso(encoding_rs::ISO_8859_15)),
    ("koi8-r", Kind::Single(encoding_rs::KOI8_R)),
    ("koi8-u", Kind::Koi8U),
    ("macroman", Kind::Mac(encoding_rs::MACINTOSH)),
    ("maccyrillic", Kind::Mac(encoding_rs::X_MAC_CYRILLIC)),
    ("cp1250", Kind::Single(encoding_rs::WINDOWS_1250)),
    ("cp1251", Kind::Single(encoding_rs::WINDOWS_1251)),
    ("cp1255", Kind::Single(encoding_rs::WINDOWS_1255)),
    ("cp437", Kind::Oem(437)),
    ("cp737", Kind::Oem(737)),
    ("cp775", Kind::Oem(775)),
    ("cp850", Kind::Oem(850)),
    ("cp852", Kind::Oem(852)),
    ("cp855", Kind::Oem(855)),
    ("cp857", Kind::Oem(857)),
    ("cp860", Kind::Oem(860)),
    ("cp861", Kind::Oem(861)),
    ("cp862", Kind::Oem(862)),
    ("cp863", Kind::Oem(863)),
    ("cp864", Kind::Oem(864)),
    ("cp865", Kind::Oem(865)),
    ("cp866", Kind::Oem(866)),
    ("cp869", Kind::Oem(869)),
    ("cp874", Kind::Oem(874)),
    ("cp932", Kind::Multi(encoding_rs::SHIFT_JIS)),
    ("sjis", Kind::Multi(encoding_rs::SHIFT_JIS)),
    ("euc-jp", Kind::Multi(encoding_rs::EUC_JP)),
    ("cp936", Kind::Multi(encoding_rs::GBK)),
    ("gb2312", Kind::Multi(encoding_rs::GBK)),
    ("cp949", Kind::Multi(encoding_rs::EUC_KR)),
    ("euc-kr", Kind::Multi(encoding_rs::EUC_KR)),
    ("cp950", Kind::Multi(encoding_rs::BIG5)),
    ("big5", Kind::Multi(encoding_rs::BIG5)),
];

/// A character's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Encoded {
    bytes: [u8; 4],
    len: usize,
}

impl Encoded {
    fn new(from: &[u8]) -> Option<Encoded> {
        let mut bytes = [0; 4];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        Some(Encoded {
            bytes,
            len: from.len(),
        })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Charset {
    /// The default of short names (`CONFIG_FAT_DEFAULT_CODEPAGE`).
    pub const CP437: Charset = Charset(Kind::Oem(437));
    /// The default of programs (`CONFIG_FAT_DEFAULT_IOCHARSET`).
    pub const LATIN1: Charset = Charset(Kind::Latin1);

    /// The character set with this name in Linux.
    pub fn named(name: &str) -> Option<Charset> {
        let found = NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, kind)| Charset(*kind))
    }

    /// Why a character set of Linux's is not here.
    pub(super) fn why_not(name: &str) -> Option<&'static str> {
        let found = NOT_SIMULATED
            .iter()
            .find(|(begin, _)| name.starts_with(begin));
        found.map(|(_, why)| *why)
    }

    /// The names of all character sets.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(name, _)| *name)
    }

    /// The first character of `bytes`, and how many of them it takes (`char2uni`).
    pub(super) fn decode(self, bytes: &[u8]) -> Option<(u16, usize)> {
        let &first = bytes.first()?;
        if first < 0x80 {
            return Some((first.into(), 1));
        }
        let unit = |character: char| u16::try_from(u32::from(character)).ok();
        match self.0 {
            Kind::Ascii => None,
            Kind::Latin1 => Some((first.into(), 1)),
            Kind::Iso(_) if first < 0xa0 => Some((first.into(), 1)),
            Kind::Oem(page) => {
                let place = usize::from(first - 0x80);
                let character = match DECODING_TABLE_CP_MAP.get(&page)? {
                    TableType::Complete(table) => table[place],
                    TableType::Incomplete(table) => table[place]?,
                };
                Some((unit(character)?, 1))
            }
            Kind::Koi8U => match KOI8_U.iter().find(|(byte, _)| *byte == first) {
                Some((_, unit)) => Some((*unit, 1)),
                None => Some((unit(decode_one(encoding_rs::KOI8_U, &bytes[..1])?)?, 1)),
            },
            Kind::Iso(encoding) | Kind::Single(encoding) | Kind::Mac(encoding) => {
                Some((unit(decode_one(encoding, &bytes[..1])?)?, 1))
            }
            Kind::Multi(encoding) => (1..=bytes.len().min(3))
                .find_map(|len| Some((unit(decode_one(encoding, &bytes[..len])?)?, len))),
            Kind::Utf8 => (2..=bytes.len().min(4)).find_map(|len| {
                let text = str::from_utf8(&bytes[..len]).ok()?;
                Some((unit(text.chars().next()?)?, len))
            }),
        }
    }

    /// A character's bytes (`uni2char`).
    pub(super) fn encode(self, unit: u16) -> Option<Encoded> {
        if unit < 0x80 {
            return Encoded::new(&[unit as u8]);
        }
        let character = char::from_u32(unit.into())?;
        match self.0 {
            Kind::Ascii => None,
            Kind::Latin1 => Encoded::new(&[u8::try_from(unit).ok()?]),
            Kind::Iso(_) if unit < 0xa0 => Encoded::new(&[unit as u8]),
            Kind::Oem(page) => {
                let byte = ENCODING_TABLE_CP_MAP.get(&page)?.get(&character)?;
                Encoded::new(&[*byte])
            }
            Kind::Utf8 => Encoded::new(character.encode_utf8(&mut [0; 4]).as_bytes()),
            Kind::Koi8U => match KOI8_U.iter().find(|(_, own)| *own == unit) {
                Some((byte, _)) => Encoded::new(&[*byte]),
                None => {
                    let is_own = |encoded: &Encoded| {
                        KOI8_U.iter().all(|(byte, _)| encoded.bytes() != [*byte])
                    };
                    encode_one(encoding_rs::KOI8_U, character).filter(is_own)
                }
            },
            Kind::Iso(encoding)
            | Kind::Single(encoding)
            | Kind::Mac(encoding)
            | Kind::Multi(encoding) => encode_one(encoding, character),
        }
    }

    /// A byte in lower case (`nls_tolower`).
    pub(super) fn lower(self, byte: u8) -> u8 {
        self.fold(byte, |character| {
            let mut lower = character.to_lowercase();
            lower.next().filter(|_| lower.next().is_none())
        })
    }

    /// A byte in upper case (`nls_toupper`).
    pub(super) fn upper(self, byte: u8) -> u8 {
        self.fold(byte, |character| {
            let mut upper = character.to_uppercase();
            upper.next().filter(|_| upper.next().is_none())
        })
    }

    fn fold(self, byte: u8, fold: impl Fn(char) -> Option<char>) -> u8 {
        // Linux's table for UTF-8 leaves all letters as they are.
        if self.0 == Kind::Utf8 {
            return byte;
        }
        // Its tables for the Macintosh have 0xff for all bytes: names of one length are equal.
        if matches!(self.0, Kind::Mac(_)) {
            return 0xff;
        }
        let folded = self
            .decode(&[byte])
            .and_then(|(unit, _)| char::from_u32(unit.into()))
            .and_then(fold)
            .and_then(|folded| u16::try_from(u32::from(folded)).ok())
            .and_then(|unit| self.encode(unit));
        match folded {
            Some(Encoded { bytes, len: 1 }) => bytes[0],
            _ => byte,
        }
    }
}

/// A character's bytes. The library follows the web's encodings, which map some characters to
/// similar ones; Linux does not.
fn encode_one(encoding: &'static Encoding, character: char) -> Option<Encoded> {
    let mut text = [0; 4];
    let (bytes, _, failed) = encoding.encode(character.encode_utf8(&mut text));
    let is_same = decode_one(encoding, &bytes) == Some(character);
    Encoded::new(&bytes).filter(|_| !failed && is_same)
}

/// The one character that `bytes` encode; `None` if they encode none or more.
fn decode_one(encoding: &'static Encoding, bytes: &[u8]) -> Option<char> {
    let text = encoding.decode_without_bom_handling_and_without_replacement(bytes)?;
    let mut characters = text.chars();
    characters.next().filter(|_| characters.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_that_is_a_character_comes_back() {
        for name in Charset::names() {
            let set = Charset::named(name).expect("listed");
            for byte in 0..=255_u8 {
                let Some((unit, 1)) = set.decode(&[byte]) else {
                    continue;
                };
                let back = set.encode(unit).map(|found| found.bytes().to_vec());
                assert_eq!(back, Some(vec![byte]), "{name} {byte:#x}");
            }
        }
    }

    /// Bytes as the tables in Linux's `fs/nls` have them.
    #[test]
    fn characters_are_linux_s() {
        for (name, byte, unit) in [
            ("koi8-u", 0xae, 0x255d),
            ("koi8-u", 0xbe, 0x256c),
            ("koi8-u", 0xad, 0x0491),
            ("macroman", 0xdb, 0x20ac),
            ("macroman", 0xf0, 0xf8ff),
            ("macroman", 0xff, 0x02c7),
            ("maccyrillic", 0xa2, 0x0490),
            ("maccyrillic", 0xb6, 0x0491),
            ("maccyrillic", 0xff, 0x20ac),
        ] {
            let set = Charset::named(name).expect("listed");
            assert_eq!(set.decode(&[byte]), Some((unit, 1)), "{name} {byte:#x}");
        }
        let koi8_u = Charset::named("koi8-u").expect("listed");
        assert_eq!(koi8_u.encode(0x045e), None, "it is KOI8-RU's alone");
        let mac = Charset::named("macroman").expect("listed");
        assert_eq!((mac.upper(b'a'), mac.lower(b'B')), (0xff, 0xff));
    }

    #[test]
    fn letters_have_the_case_of_their_code_page() {
        let cp437 = Charset::named("cp437").expect("listed");
        // u with two dots.
        assert_eq!(cp437.upper(0x81), 0x9a);
        assert_eq!(cp437.lower(b'Q'), b'q');
        assert_eq!(Charset(Kind::Utf8).lower(b'Q'), b'Q');
        let cp932 = Charset::named("cp932").expect("listed");
        assert_eq!(cp932.decode(&[0x82, 0x72, 0x82]), Some((0xff33, 2)));
        assert_eq!(cp932.encode(0xa5), None);
    }
}
