//! Parses amounts of data and times as fio does.
//!
//! The rules are those of fio's manual ("Parameter types"). Text that fio silently ignores is an
//! error here, because it cannot be intended: `runtime=10sec` would run for 10 microseconds, and
//! `size=1.5g` would be one byte.
//!
//! An expression in parentheses such as `(2 * 4k + 1)` may replace a number; its operations are
//! addition, subtraction, multiplication, division, modulus and exponentiation (`^`).

use super::error::Fault;

/// An amount of data, possibly relative to the file or drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extent {
    /// In bytes.
    Bytes(u64),
    /// In percent of the file or drive.
    Percent(u32),
    /// In zones of a zoned drive.
    Zones(u32),
}

impl Default for Extent {
    fn default() -> Extent {
        Extent::Bytes(0)
    }
}

const SIZE_HELP: &str =
    "a number, then nothing or one of k, m, g, t, p (or kb, kib, mb, ...), such as 64k";
const TIME_HELP: &str = "a number, then nothing or one of us, ms, s, m, h, d, such as 30s";

/// The unit of a time without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeUnit {
    Seconds,
    Microseconds,
}

/// Splits off a whole number; returns it, the text after it, and whether it was hexadecimal.
fn split_number(text: &str) -> Option<(i64, &str, bool)> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let negative = text.starts_with('-');
    let hexadecimal = unsigned
        .strip_prefix("0x")
        .or_else(|| unsigned.strip_prefix("0X"));
    let (digits, radix) = match hexadecimal {
        Some(digits) => (digits, 16),
        None => (unsigned, 10),
    };
    let end = digits
        .find(|c: char| !c.is_digit(radix))
        .unwrap_or(digits.len());
    let magnitude = i64::from_str_radix(&digits[..end], radix).ok()?;
    let value = if negative { -magnitude } else { magnitude };
    Some((value, &digits[end..], radix == 16))
}

/// Parses a number of bytes that may be negative, with fio's unit prefixes.
///
/// With `kb_base` 1024, fio's default, `k` and `kb` are 1024 and `kib` is 1000; with 1000 it is the
/// other way round, as the standards say.
pub(crate) fn signed_bytes(text: &str, kb_base: u32) -> Result<i64, Fault> {
    let text = text.trim();
    if text.starts_with('(') {
        return evaluate(text, &|number| {
            plain_bytes(number, kb_base).map(|n| n as f64)
        })
        .and_then(whole);
    }
    plain_bytes(text, kb_base)
}

/// Whether `text` is a number of any size, with or without a unit prefix.
pub(crate) fn is_number(text: &str) -> bool {
    let unit = text.trim().trim_start_matches(|c: char| c.is_ascii_digit());
    unit.len() < text.trim().len() && unit_factor(unit, 1024).is_some()
}

fn plain_bytes(text: &str, kb_base: u32) -> Result<i64, Fault> {
    let not_a_number = || match is_number(text) {
        true => too_large(),
        false => Fault::new("not an amount of data").help(SIZE_HELP),
    };
    let (value, unit, _) = split_number(text).ok_or_else(not_a_number)?;
    let factor = unit_factor(unit, kb_base)
        .ok_or_else(|| Fault::new(format!("no such unit `{unit}`")).help(SIZE_HELP))?;
    value.checked_mul(factor).ok_or_else(too_large)
}

fn too_large() -> Fault {
    Fault::new("too large").help("at most 8 EiB - 1")
}

fn unit_factor(unit: &str, kb_base: u32) -> Option<i64> {
    let unit = unit.to_ascii_lowercase();
    if matches!(unit.as_str(), "" | "b") {
        return Some(1);
    }
    let mut letters = unit.chars();
    let power = match letters.next()? {
        'k' => 1,
        'm' => 2,
        'g' => 3,
        't' => 4,
        'p' => 5,
        _ => return None,
    };
    let other_base = if kb_base == 1000 { 1024 } else { 1000 };
    let base: i64 = match letters.as_str() {
        "" | "b" | "i" => i64::from(kb_base),
        "ib" => other_base,
        _ => return None,
    };
    Some(base.pow(power))
}

/// Parses an amount of data in bytes.
pub(crate) fn bytes(text: &str, kb_base: u32) -> Result<u64, Fault> {
    let value = signed_bytes(text, kb_base)?;
    u64::try_from(value).map_err(|_| Fault::new("must not be negative").help(SIZE_HELP))
}

/// Parses an amount of data in bytes, percent (`20%`) or zones (`4z`).
pub(crate) fn extent(text: &str, kb_base: u32) -> Result<Extent, Fault> {
    let text = text.trim();
    if let Some(percent) = text.strip_suffix('%') {
        return match percent.parse() {
            Ok(percent @ 0..=100) => Ok(Extent::Percent(percent)),
            _ => Err(Fault::new("not a percentage").help("0% to 100%, whole")),
        };
    }
    if let Some(zones) = text.strip_suffix('z') {
        return zones
            .parse()
            .map(Extent::Zones)
            .map_err(|_| Fault::new("not a number of zones").help("such as 4z"));
    }
    bytes(text, kb_base).map(Extent::Bytes)
}

/// The longest time, one year, so that sums of many fit into a clock of nanoseconds.
const MAX_MICROSECONDS: u64 = 365 * 86_400 * 1_000_000;

/// Parses a time into microseconds; `plain` is the unit of a number without one.
pub(crate) fn microseconds(text: &str, plain: TimeUnit) -> Result<u64, Fault> {
    let text = text.trim();
    let value = if text.starts_with('(') {
        evaluate(text, &|number| {
            plain_time(number, plain).map(|us| us as f64)
        })
        .and_then(whole)?
    } else {
        plain_time(text, plain)?
    };
    match u64::try_from(value) {
        Ok(value) if value > MAX_MICROSECONDS => Err(Fault::new("too long").help("at most 365d")),
        Ok(value) => Ok(value),
        Err(_) => Err(Fault::new("must not be negative").help(TIME_HELP)),
    }
}

fn plain_time(text: &str, plain: TimeUnit) -> Result<i64, Fault> {
    let not_a_time = || Fault::new("not a time").help(TIME_HELP);
    let (value, unit, _) = split_number(text).ok_or_else(not_a_time)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" if plain == TimeUnit::Seconds => 1_000_000,
        "" | "us" | "usec" => 1,
        "ms" | "msec" => 1_000,
        "s" => 1_000_000,
        "m" => 60 * 1_000_000,
        "h" => 3_600 * 1_000_000,
        "d" => 86_400 * 1_000_000,
        _ => {
            return Err(Fault::new(format!("no such unit of time `{unit}`")).help(TIME_HELP));
        }
    };
    value
        .checked_mul(factor)
        .ok_or_else(|| Fault::new("too long").help("at most 365d"))
}

fn whole(value: f64) -> Result<i64, Fault> {
    // A cast would saturate beyond 2^63 and hide the error.
    if value.is_finite() && value.abs() < 9.2e18 {
        Ok(value as i64)
    } else {
        Err(Fault::new("too large"))
    }
}

/// Parses a fraction such as `1.1`.
pub(crate) fn fraction(text: &str) -> Result<f64, Fault> {
    let text = text.trim();
    if text.starts_with('(') {
        return evaluate(text, &|number| fraction(number));
    }
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        _ => Err(Fault::new(format!("`{text}` is not a number")).help("such as 1.1")),
    }
}

/// The deepest nesting of parentheses.
const DEPTH_LIMIT: u32 = 32;

/// Evaluates the expression `text`; `number` parses its numbers with their units.
pub(crate) fn evaluate(
    text: &str,
    number: &dyn Fn(&str) -> Result<f64, Fault>,
) -> Result<f64, Fault> {
    let mut parser = Parser {
        rest: text,
        number,
        depth: 0,
    };
    let value = parser.sum()?;
    parser.skip_blanks();
    if !parser.rest.is_empty() {
        return Err(Fault::new(format!(
            "`{}` does not belong after the expression",
            parser.rest
        )));
    }
    Ok(value)
}

struct Parser<'a> {
    rest: &'a str,
    number: &'a dyn Fn(&str) -> Result<f64, Fault>,
    depth: u32,
}

impl Parser<'_> {
    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, operators: &[char]) -> Option<char> {
        self.skip_blanks();
        let c = self.rest.chars().next()?;
        if !operators.contains(&c) {
            return None;
        }
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn sum(&mut self) -> Result<f64, Fault> {
        let mut value = self.product()?;
        while let Some(operator) = self.take(&['+', '-']) {
            let right = self.product()?;
            value = if operator == '+' {
                value + right
            } else {
                value - right
            };
        }
        Ok(value)
    }

    fn product(&mut self) -> Result<f64, Fault> {
        let mut value = self.power()?;
        while let Some(operator) = self.take(&['*', '/', '%']) {
            let right = self.power()?;
            if operator != '*' && right == 0.0 {
                return Err(Fault::new("division by zero"));
            }
            value = match operator {
                '*' => value * right,
                '/' => value / right,
                _ => value % right,
            };
        }
        Ok(value)
    }

    fn power(&mut self) -> Result<f64, Fault> {
        let base = self.term()?;
        match self.take(&['^']) {
            Some(_) => Ok(base.powf(self.nested(Parser::power)?)),
            None => Ok(base),
        }
    }

    fn term(&mut self) -> Result<f64, Fault> {
        if self.take(&['-']).is_some() {
            return Ok(-self.nested(Parser::term)?);
        }
        if self.take(&['(']).is_some() {
            let value = self.nested(Parser::sum)?;
            return match self.take(&[')']) {
                Some(_) => Ok(value),
                None => Err(Fault::new("a `(` is not closed")),
            };
        }
        self.skip_blanks();
        let end = self
            .rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '.'))
            .unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at(end);
        if number.is_empty() {
            return Err(Fault::new("a number is missing in the expression"));
        }
        self.rest = rest;
        (self.number)(number)
    }

    fn nested(&mut self, parse: fn(&mut Self) -> Result<f64, Fault>) -> Result<f64, Fault> {
        if self.depth == DEPTH_LIMIT {
            return Err(Fault::new("the expression nests too deeply"));
        }
        self.depth += 1;
        let value = parse(self);
        self.depth -= 1;
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_manuals_examples() {
        // By fio's manual these are 4 KiB and 4 KB under either base.
        for text in ["4096", "4096b", "4096B", "4k", "4kb", "4K", "4KB", "0x1000"] {
            assert_eq!(bytes(text, 1024), Ok(4096), "{text}");
        }
        for text in ["4000", "4000b", "4kib", "4KiB"] {
            assert_eq!(bytes(text, 1024), Ok(4000), "{text}");
        }
        assert_eq!(bytes("4k", 1000), Ok(4000));
        assert_eq!(bytes("4KiB", 1000), Ok(4096));
        assert_eq!(bytes("1MiB", 1000), Ok(1 << 20));
        assert_eq!(bytes("1p", 1024), Ok(1 << 50));
        assert_eq!(bytes("4ki", 1024), Ok(4096));
    }

    #[test]
    fn what_fio_would_drop_is_an_error() {
        for text in ["", "k", "1.5g", "4q", "4kk", "4 k", "-1", "99999999p", "0x"] {
            assert!(bytes(text, 1024).is_err(), "{text}");
        }
        for text in [
            "10sec",
            "1min",
            "",
            "s",
            "-5",
            "366d",
            "9223372036854775807",
        ] {
            assert!(microseconds(text, TimeUnit::Seconds).is_err(), "{text}");
        }
    }

    #[test]
    fn times_have_a_unit_of_their_own_per_option() {
        assert_eq!(microseconds("10", TimeUnit::Seconds), Ok(10_000_000));
        assert_eq!(microseconds("10", TimeUnit::Microseconds), Ok(10));
        assert_eq!(microseconds("10ms", TimeUnit::Seconds), Ok(10_000));
        assert_eq!(microseconds("2m", TimeUnit::Microseconds), Ok(120_000_000));
        assert_eq!(microseconds("1d", TimeUnit::Seconds), Ok(86_400_000_000));
        assert_eq!(microseconds("7USEC", TimeUnit::Seconds), Ok(7));
    }

    #[test]
    fn parentheses_hold_arithmetic() {
        assert_eq!(bytes("(4k * 2 + 1)", 1024), Ok(8193));
        assert_eq!(
            microseconds("(2 * 3s)", TimeUnit::Microseconds),
            Ok(6_000_000)
        );
        assert_eq!(fraction("(11 / 10)"), Ok(1.1));
        assert!(bytes("(1 / 0)", 1024).is_err());
    }

    #[test]
    fn extents_may_be_relative() {
        assert_eq!(extent("20%", 1024), Ok(Extent::Percent(20)));
        assert_eq!(extent("3z", 1024), Ok(Extent::Zones(3)));
        assert_eq!(extent("1g", 1024), Ok(Extent::Bytes(1 << 30)));
        assert!(extent("101%", 1024).is_err());
        assert!(extent("x%", 1024).is_err());
    }

    proptest! {
        #[test]
        fn plain_numbers_round_trip(n in 0u64..=i64::MAX as u64) {
            prop_assert_eq!(bytes(&n.to_string(), 1024), Ok(n));
            prop_assert_eq!(bytes(&format!("{n:#x}"), 1024), Ok(n));
        }

        #[test]
        fn plain_times_round_trip(n in 0..=MAX_MICROSECONDS) {
            prop_assert_eq!(microseconds(&n.to_string(), TimeUnit::Microseconds), Ok(n));
        }

        #[test]
        fn a_unit_is_its_power(n in 0u64..8000, unit in 0usize..5) {
            let text = format!("{n}{}", ["k", "m", "g", "t", "p"][unit]);
            prop_assert_eq!(bytes(&text, 1024), Ok(n << (10 * (unit + 1))));
        }

        #[test]
        fn nothing_panics(text in ".{0,24}") {
            let _ = bytes(&text, 1024);
            let _ = extent(&text, 1000);
            let _ = microseconds(&text, TimeUnit::Seconds);
            let _ = fraction(&text);
        }
    }
}
