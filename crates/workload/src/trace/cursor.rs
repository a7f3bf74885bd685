//! A cursor over the fields of a line, which knows its column.

use std::borrow::Cow;
use std::str::FromStr;

use super::error::Fault;

/// A position in a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    line: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Returns the start of `line`.
    pub(crate) fn new(line: &'a str) -> Cursor<'a> {
        Cursor { line, at: 0 }
    }

    /// Returns byte `at` of `line`, which must be the start of a character.
    pub(crate) fn at(line: &'a str, at: usize) -> Cursor<'a> {
        Cursor { line, at }
    }

    /// Returns the byte of the line that comes next, from 0.
    pub(crate) fn column(&self) -> usize {
        self.at
    }

    /// Skips `bytes` bytes, which must end at the end of a character.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// Returns the rest of the line.
    pub(crate) fn rest(&self) -> &'a str {
        &self.line[self.at..]
    }

    /// Skips spaces and tabs.
    pub(crate) fn skip_blanks(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t']).len();
    }

    /// Skips `literal` if it comes next.
    pub(crate) fn eat(&mut self, literal: &str) -> bool {
        let here = self.rest().starts_with(literal);
        if here {
            self.at += literal.len();
        }
        here
    }

    /// Skips `literal`, which must come next.
    pub(crate) fn expect(&mut self, literal: &str, field: &'static str) -> Result<(), Fault> {
        if self.eat(literal) {
            Ok(())
        } else {
            Err(self.fault(field, format!("{literal:?}")))
        }
    }

    /// Skips blanks and returns the next word, up to a blank.
    pub(crate) fn word(&mut self) -> &'a str {
        self.skip_blanks();
        let rest = self.rest();
        let word = &rest[..rest.find([' ', '\t']).unwrap_or(rest.len())];
        self.at += word.len();
        word
    }

    /// Returns the text before `end` and skips both.
    pub(crate) fn until(&mut self, end: char, field: &'static str) -> Result<&'a str, Fault> {
        let rest = self.rest();
        match rest.find(end) {
            Some(len) => {
                self.at += len + end.len_utf8();
                Ok(&rest[..len])
            }
            None => Err(self.fault(field, format!("text that ends with {end:?}"))),
        }
    }

    /// Parses a decimal number after any blanks, with a sign if `T` is signed.
    pub(crate) fn number<T: FromStr>(
        &mut self,
        field: &'static str,
        expected: &'static str,
    ) -> Result<T, Fault> {
        self.skip_blanks();
        let rest = self.rest();
        let bytes = rest.as_bytes();
        let sign = usize::from(bytes.first() == Some(&b'-'));
        let digits = bytes[sign..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let value = rest[..sign + digits]
            .parse()
            .map_err(|_| self.fault(field, expected))?;
        self.at += sign + digits;
        Ok(value)
    }

    /// Parses seconds with 1 to 9 fractional digits into nanoseconds.
    pub(crate) fn seconds(&mut self, field: &'static str) -> Result<u64, Fault> {
        const EXPECTED: &str = "seconds with 1 to 9 fractional digits";
        let start = *self;
        let seconds: u64 = self.number(field, EXPECTED)?;
        self.expect(".", field)?;
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        if !(1..=9).contains(&digits) {
            return Err(start.fault(field, EXPECTED));
        }
        let fraction: u64 = self.number(field, EXPECTED)?;
        seconds
            .checked_mul(1_000_000_000)
            .and_then(|ns| ns.checked_add(fraction * 10_u64.pow(9 - digits as u32)))
            .ok_or_else(|| start.fault(field, "a time of less than 2^64 ns (584 years)"))
    }

    /// Returns the fault that `field` is wrong here.
    pub(crate) fn fault(
        &self,
        field: &'static str,
        expected: impl Into<Cow<'static, str>>,
    ) -> Fault {
        let rest = self.rest();
        let found = rest.trim_start_matches([' ', '\t']);
        let word = &found[..found.find([' ', '\t']).unwrap_or(found.len())];
        Fault::new(self.at + rest.len() - found.len(), field, word, expected)
    }
}
