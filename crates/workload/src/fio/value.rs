//! An option's text to its value, by the kind of option it is.

use super::error::Fault;
use super::spec::Extent;
use super::table::{Kind, OptionInfo};
use super::units;
use blklab_description::nearest;

/// What an option was set to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Flag(bool),
    /// For reads, writes and trims; `None` where it was left out.
    Numbers([Option<u64>; 3]),
    Signed(i64),
    /// An amount and, where a second was given, the end of its range.
    Bytes(u64, u64),
    Extent(Extent),
    /// In microseconds.
    Times([Option<u64>; 3]),
    /// Smallest and largest, in bytes.
    Ranges([Option<(u64, u64)>; 3]),
    Fractions(Vec<f64>),
    Text(String),
    /// The word, and what came after its `:`.
    Choice(&'static str, Option<String>),
    /// Nothing to set.
    Nothing,
}

/// Reads what was written after an option's `=`; `None` where there was no `=`.
pub(crate) fn parse(option: &OptionInfo, text: Option<&str>, kb_base: u32) -> Result<Value, Fault> {
    match (option.kind, text) {
        (Kind::Removed, _) => Err(Fault::new("fio no longer takes this option")),
        (Kind::Obsolete, _) => Ok(Value::Nothing),
        (Kind::Switch, None) => Ok(Value::Flag(true)),
        (Kind::OptionalText, text) => Ok(Value::Text(text.unwrap_or_default().to_string())),
        (kind, None | Some("")) => {
            Err(Fault::new("needs a value").help(format!("such as {}", example(option.name, kind))))
        }
        (kind, Some(text)) => parse_given(kind, text, kb_base),
    }
}

fn parse_given(kind: Kind, text: &str, kb_base: u32) -> Result<Value, Fault> {
    let bytes = |text: &str| units::bytes(text, kb_base);
    match kind {
        Kind::Flag => flag(text, true),
        Kind::Switch => flag(text, false),
        Kind::Number { min, max } => triple(text, &[',', ':', '-'], |part| match max {
            // Only amounts of data go beyond 32 bits.
            u64::MAX => in_range(bytes(part)?, min, max),
            _ => count(part, kb_base, min, max),
        })
        .map(Value::Numbers),
        Kind::Signed { min, max } => {
            in_range(units::signed_bytes(text, kb_base)?, min, max).map(Value::Signed)
        }
        Kind::Bytes { min } => {
            let parts = triple(text, &[',', ':', '-'], |part| {
                in_range(bytes(part)?, min, u64::MAX)
            })?;
            let first = parts[0].ok_or_else(|| Fault::new("the first amount is missing"))?;
            let last = parts.into_iter().flatten().last().unwrap_or(first);
            Ok(Value::Bytes(first, last))
        }
        Kind::Extent => units::extent(text, kb_base).map(Value::Extent),
        Kind::Time(unit) => triple(text, &[',', ':', '-'], |part| {
            units::microseconds(part, unit)
        })
        .map(Value::Times),
        Kind::Ranges => triple(text, &[','], |part| range(part, kb_base)).map(Value::Ranges),
        Kind::Fractions { min, max, most } => fractions(text, min, max, most),
        Kind::Choice(words) => choice(text, words),
        Kind::Choices(words) => choices(text, words),
        Kind::Text | Kind::OptionalText => Ok(Value::Text(text.to_string())),
        Kind::Removed | Kind::Obsolete => Ok(Value::Nothing),
    }
}

fn example(name: &str, kind: Kind) -> String {
    let value = match kind {
        Kind::Flag | Kind::Switch => "1",
        Kind::Time(_) => "10s",
        Kind::Number { min, .. } => return format!("{name}={}", min.max(1)),
        Kind::Signed { .. } => "1",
        Kind::Bytes { .. } | Kind::Extent => "1m",
        Kind::Ranges => "4k-64k",
        Kind::Fractions { .. } => "50",
        Kind::Choice(words) | Kind::Choices(words) => words.first().copied().unwrap_or(""),
        _ => "text",
    };
    format!("{name}={value}")
}

/// Splits `text` at the first kind of separator it contains, as fio does:
/// `4k,8k` has a value for reads and one for writes and trims, `4k,8k,` leaves
/// trims as they are, `,8k` leaves reads.
fn triple<T: Copy>(
    text: &str,
    separators: &[char],
    parse: impl Fn(&str) -> Result<T, Fault>,
) -> Result<[Option<T>; 3], Fault> {
    // An expression may contain any of the separators, and a sign at the
    // front separates nothing.
    let is_expression = text.trim_start().starts_with('(');
    let separator = separators.iter().copied().find(|separator| {
        text.char_indices()
            .any(|(i, c)| c == *separator && (i > 0 || c == ',') && !is_expression)
    });
    let mut parts: Vec<&str> = match separator {
        Some(separator) => text.split(separator).collect(),
        None => vec![text],
    };
    let ends_open = parts.len() > 1 && parts.last() == Some(&"");
    if ends_open {
        parts.pop();
    }
    if parts.len() > 3 {
        return Err(Fault::new("more than three values")
            .help("one each for reads, writes and trims at most"));
    }
    let mut values = [None; 3];
    for (slot, part) in values.iter_mut().zip(&parts) {
        if !part.is_empty() {
            *slot = Some(parse(part)?);
        }
    }
    if values.iter().all(Option::is_none) {
        return Err(Fault::new("no value given"));
    }
    if !ends_open {
        let last = values[parts.len() - 1];
        values[parts.len()..].fill(last);
    }
    Ok(values)
}

fn flag(text: &str, only_one: bool) -> Result<Value, Fault> {
    match text.trim().parse::<u32>() {
        Ok(0) => Ok(Value::Flag(false)),
        Ok(1) => Ok(Value::Flag(true)),
        Ok(_) if !only_one => Ok(Value::Flag(true)),
        _ => Err(Fault::new("is either on or off").help("0 or 1")),
    }
}

/// A number of things; fio takes unit prefixes here too.
fn count(text: &str, kb_base: u32, min: u64, max: u64) -> Result<u64, Fault> {
    let range = || format!("{min} to {max}");
    match units::bytes(text, kb_base) {
        Ok(n) if (min..=max).contains(&n) => Ok(n),
        Ok(n) if n < min => Err(Fault::new("too small").help(range())),
        Ok(_) => Err(Fault::new("too large").help(range())),
        Err(_) if units::is_number(text) => Err(Fault::new("too large").help(range())),
        Err(fault) if text.trim_start().starts_with(|c: char| c.is_ascii_digit()) => Err(fault),
        Err(_) => Err(Fault::new("not a number").help(range())),
    }
}

fn in_range<T: PartialOrd + std::fmt::Display>(value: T, min: T, max: T) -> Result<T, Fault> {
    if value < min {
        return Err(Fault::new("too small").help(format!("at least {min}")));
    }
    if value > max {
        return Err(Fault::new("too large").help(format!("at most {max}")));
    }
    Ok(value)
}

fn range(text: &str, kb_base: u32) -> Result<(u64, u64), Fault> {
    let (low, high) = text
        .split_once('-')
        .or_else(|| text.split_once(':'))
        .ok_or_else(|| {
            Fault::new("not a range").help("two sizes with `-` between, such as 4k-64k")
        })?;
    let low = in_range(units::bytes(low, kb_base)?, 1, u64::MAX)?;
    let high = in_range(units::bytes(high, kb_base)?, 1, u64::MAX)?;
    Ok((low.min(high), low.max(high)))
}

fn fractions(text: &str, min: f64, max: f64, most: usize) -> Result<Value, Fault> {
    let mut values = Vec::new();
    for part in text.split(':') {
        let value = units::fraction(part)?;
        if value < min || value > max {
            return Err(
                Fault::new(format!("{part} is out of range")).help(format!("{min} to {max}"))
            );
        }
        values.push(value);
    }
    if values.len() > most {
        return Err(Fault::new(format!("{} values", values.len())).help(format!("at most {most}")));
    }
    Ok(Value::Fractions(values))
}

fn choice(text: &str, words: &'static [&'static str]) -> Result<Value, Fault> {
    let (word, rest) = match text.split_once(':') {
        Some((word, rest)) => (word, Some(rest.to_string())),
        None => (text, None),
    };
    match words.iter().find(|known| **known == word) {
        Some(known) => Ok(Value::Choice(known, rest)),
        None => Err(unknown_word(word, words)),
    }
}

fn choices(text: &str, words: &'static [&'static str]) -> Result<Value, Fault> {
    let (list, count) = match text.split_once(':') {
        Some((list, count)) => (list, Some(count)),
        None => (text, None),
    };
    for word in list.split(',') {
        if !words.contains(&word) {
            return Err(unknown_word(word, words));
        }
    }
    match count.map(str::parse::<u32>) {
        Some(Err(_)) => Err(Fault::new("what follows the `:` is not a number")),
        _ => Ok(Value::Text(text.to_string())),
    }
}

/// What to say about a word fio does not know for an option.
pub(crate) fn unknown_word(word: &str, words: &[&str]) -> Fault {
    let mut help = format!("fio knows {}", words.join(", "));
    if let Some(close) = nearest(word.trim(), words.iter().copied()) {
        help.push_str(&format!("; did you mean {close}?"));
    }
    let message = match words.contains(&word.trim()) {
        true => "fio takes no blank next to the value".to_string(),
        false => format!("`{word}` is not one of its values"),
    };
    Fault::new(message).help(help)
}

#[cfg(test)]
mod tests {
    use super::super::table::find;
    use super::*;

    fn value(name: &str, text: &str) -> Result<Value, Fault> {
        parse(find(name).unwrap(), Some(text), 1024)
    }

    fn numbers(text: &str) -> [Option<u64>; 3] {
        match value("bs", text) {
            Ok(Value::Numbers(numbers)) => numbers,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn commas_tell_directions_apart() {
        assert_eq!(numbers("4k"), [Some(4096); 3]);
        assert_eq!(numbers("4k,8k"), [Some(4096), Some(8192), Some(8192)]);
        assert_eq!(numbers("4k,8k,16k"), [Some(4096), Some(8192), Some(16384)]);
        assert_eq!(numbers("4k,"), [Some(4096), None, None]);
        assert_eq!(numbers("4k,8k,"), [Some(4096), Some(8192), None]);
        assert_eq!(numbers(",8k"), [None, Some(8192), Some(8192)]);
        assert_eq!(numbers("4k,,16k"), [Some(4096), None, Some(16384)]);
        assert_eq!(numbers("(4k - 1)"), [Some(4095); 3]);
    }

    #[test]
    fn ranges_of_values_hold() {
        assert!(value("bs", "0").is_err());
        assert!(value("bs", "4k,0").is_err());
        assert!(value("bs", "1,2,3,4").is_err());
        assert!(value("bs", ",").is_err());
        assert!(value("rwmixread", "101").is_err());
        assert!(value("iodepth", "0").is_err());
        assert!(value("direct", "2").is_err());
        assert!(value("direct", "yes").is_err());
        assert_eq!(value("thread", "2"), Ok(Value::Flag(true)));
        assert_eq!(value("nice", "-5"), Ok(Value::Signed(-5)));
        assert!(value("nice", "-21").is_err());
    }

    #[test]
    fn a_count_is_told_as_a_count() {
        for (text, message) in [
            ("99999999999999999999", "too large"),
            ("99999999999999999999k", "too large"),
            ("4294967296", "too large"),
            ("0", "too small"),
            ("-1", "not a number"),
            ("many", "not a number"),
        ] {
            let fault = value("iodepth", text).unwrap_err();
            assert_eq!(
                (&*fault.message, &*fault.help),
                (message, "1 to 4294967295"),
                "{text}"
            );
        }
        assert_eq!(value("iodepth", "1k"), Ok(Value::Numbers([Some(1024); 3])));
        let fault = value("bs", "99999999999999999999").unwrap_err();
        assert_eq!(fault.message, "too large");
    }

    #[test]
    fn reversed_ranges_are_turned_round() {
        assert_eq!(
            value("bsrange", "64k-4k"),
            Ok(Value::Ranges([Some((4096, 65536)); 3]))
        );
        assert!(value("bsrange", "64k").is_err());
        assert!(value("bsrange", "0-4k").is_err());
    }

    #[test]
    fn an_unknown_word_names_its_neighbour() {
        let fault = value("rw", "randred").unwrap_err();
        assert!(fault.help.contains("did you mean randread?"), "{fault:?}");
        let fault = value("rw", " randread").unwrap_err();
        assert!(fault.message.contains("blank"), "{fault:?}");
    }
}
