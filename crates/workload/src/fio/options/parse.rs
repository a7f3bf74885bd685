//! Parses an option's text into its value, by the type of its values.

use std::ops::RangeInclusive;

use blklab_description::nearest;

use super::declaration::{FioOption, PerDirection, Values};
use crate::fio::error::Fault;
use crate::fio::section::SectionOptions;
use crate::fio::units;

impl FioOption {
    /// Parses the text after the option's `=` (`None` without a `=`) and applies the option.
    pub fn set(&self, text: Option<&str>, options: &mut SectionOptions) -> Result<(), Fault> {
        match (&self.values, text) {
            (Values::Removed, _) => Err(Fault::new("fio no longer takes this option")),
            (Values::Obsolete, _) => Ok(()),
            (Values::Switch(effect), None) => effect.apply(options, true),
            (Values::OptionalText(effect), text) => {
                effect.apply(options, text.unwrap_or_default().to_string())
            }
            (_, None | Some("")) => {
                Err(Fault::new("needs a value").help(format!("such as {}", self.example())))
            }
            (values, Some(text)) => values.set(text, options),
        }
    }

    fn example(&self) -> String {
        let value = match &self.values {
            Values::Count(range, _) | Values::Counts(range, _) => {
                return format!("{}={}", self.name, range.start().max(&1));
            }
            Values::Amounts(min, _) => return format!("{}={}", self.name, min.max(&1)),
            Values::Flag(_) | Values::Switch(_) | Values::Signed(..) => "1",
            Values::Time(..) | Values::Times(..) => "10s",
            Values::Bytes(..) | Values::BytesOrShare(_) => "1m",
            Values::Ranges(_) => "4k-64k",
            Values::Fraction(..) | Values::Fractions(..) => "50",
            values => values.words().first().copied().unwrap_or("text"),
        };
        format!("{}={value}", self.name)
    }
}

impl Values {
    fn set(&self, text: &str, options: &mut SectionOptions) -> Result<(), Fault> {
        let kb_base = options.spec.kb_base;
        let bytes = |text: &str| units::bytes(text, kb_base);
        match self {
            Values::Flag(effect) => effect.apply(options, flag(text, true)?),
            Values::Switch(effect) => effect.apply(options, flag(text, false)?),
            Values::Count(range, effect) => match counts(text, kb_base, range)?[0] {
                Some(first) => effect.apply(options, first),
                None => Ok(()),
            },
            Values::Counts(range, effect) => effect.apply(options, counts(text, kb_base, range)?),
            Values::Amounts(min, effect) => {
                let range = *min..=u64::MAX;
                let amounts = triple(text, SEPARATORS, |part| in_range(bytes(part)?, &range))?;
                effect.apply(options, amounts)
            }
            Values::Signed(range, effect) => effect.apply(
                options,
                in_range(units::signed_bytes(text, kb_base)?, range)?,
            ),
            Values::Bytes(min, effect) => {
                let range = *min..=u64::MAX;
                let parts = triple(text, SEPARATORS, |part| in_range(bytes(part)?, &range))?;
                let first = parts[0].ok_or_else(|| Fault::new("the first amount is missing"))?;
                let last = parts.into_iter().flatten().last().unwrap_or(first);
                effect.apply(options, (first, last))
            }
            Values::BytesOrShare(effect) => effect.apply(options, units::extent(text, kb_base)?),
            Values::Time(unit, effect) => match times(text, *unit)?[0] {
                Some(first) => effect.apply(options, first),
                None => Ok(()),
            },
            Values::Times(unit, effect) => effect.apply(options, times(text, *unit)?),
            Values::Ranges(effect) => {
                effect.apply(options, triple(text, &[','], |part| range(part, kb_base))?)
            }
            Values::Fraction(bounds, effect) => match fractions(text, bounds, 1)?[..] {
                [fraction, ..] => effect.apply(options, fraction),
                [] => Ok(()),
            },
            Values::Fractions(bounds, effect) => {
                effect.apply(options, fractions(text, bounds, FRACTIONS_MAX)?)
            }
            Values::Text(effect) | Values::OptionalText(effect) => {
                effect.apply(options, text.to_string())
            }
            Values::OneOf(_) | Values::Word(..) | Values::WordAndDetail(..) => {
                self.set_word(text, options)
            }
            Values::Words(words, effect) => {
                check_words(text, words)?;
                effect.apply(options, text.to_string())
            }
            Values::Removed | Values::Obsolete => Ok(()),
        }
    }

    /// Parses one word, and the detail after its `:` if the option has one.
    fn set_word(&self, text: &str, options: &mut SectionOptions) -> Result<(), Fault> {
        let (word, detail) = match text.split_once(':') {
            Some((word, detail)) => (word, Some(detail.to_string())),
            None => (text, None),
        };
        let words = self.words();
        let Some(place) = words.iter().position(|known| *known == word) else {
            return Err(unknown_word(word, &words));
        };
        let word = words[place];
        if let Values::WordAndDetail(_, effect) = self {
            return effect.apply(options, (word, detail));
        }
        if let Some(detail) = detail {
            return Err(Fault::new(format!("`:{detail}` does not belong here")));
        }
        match self {
            Values::OneOf(words) => words[place].1(options),
            Values::Word(_, effect) => effect.apply(options, word)?,
            _ => {}
        }
        Ok(())
    }
}

/// The most values that fio keeps of a list of fractions.
const FRACTIONS_MAX: usize = 20;

/// The separators between values for different directions.
const SEPARATORS: &[char] = &[',', ':', '-'];

/// Splits `text` at the first kind of separator that it contains, as fio does: `4k,8k` has a value
/// for reads and one for writes and trims, `4k,8k,` leaves trims unchanged, `,8k` leaves reads
/// unchanged.
fn triple<T: Copy>(
    text: &str,
    separators: &[char],
    parse: impl Fn(&str) -> Result<T, Fault>,
) -> Result<PerDirection<T>, Fault> {
    // An expression may contain any separator, and a leading sign is not one.
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

fn flag(text: &str, only_one: bool) -> Result<bool, Fault> {
    match text.trim().parse::<u32>() {
        Ok(0) => Ok(false),
        Ok(1) => Ok(true),
        Ok(_) if !only_one => Ok(true),
        _ => Err(Fault::new("is either on or off").help("0 or 1")),
    }
}

/// Parses up to three numbers; fio takes unit prefixes here too.
fn counts(
    text: &str,
    kb_base: u32,
    range: &RangeInclusive<u64>,
) -> Result<PerDirection<u32>, Fault> {
    triple(text, SEPARATORS, |part| {
        let n = count(part, kb_base, range)?;
        // No option has a wider range.
        Ok(u32::try_from(n).unwrap_or(u32::MAX))
    })
}

fn count(text: &str, kb_base: u32, range: &RangeInclusive<u64>) -> Result<u64, Fault> {
    let legal = || format!("{} to {}", range.start(), range.end());
    match units::bytes(text, kb_base) {
        Ok(n) if range.contains(&n) => Ok(n),
        Ok(n) if n < *range.start() => Err(Fault::new("too small").help(legal())),
        Ok(_) => Err(Fault::new("too large").help(legal())),
        Err(_) if units::is_number(text) => Err(Fault::new("too large").help(legal())),
        Err(fault) if text.trim_start().starts_with(|c: char| c.is_ascii_digit()) => Err(fault),
        Err(_) => Err(Fault::new("not a number").help(legal())),
    }
}

fn times(text: &str, unit: units::TimeUnit) -> Result<PerDirection<u64>, Fault> {
    triple(text, SEPARATORS, |part| units::microseconds(part, unit))
}

fn in_range<T: PartialOrd + Copy + std::fmt::Display>(
    value: T,
    range: &RangeInclusive<T>,
) -> Result<T, Fault> {
    if value < *range.start() {
        return Err(Fault::new("too small").help(format!("at least {}", range.start())));
    }
    if value > *range.end() {
        return Err(Fault::new("too large").help(format!("at most {}", range.end())));
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
    let low = in_range(units::bytes(low, kb_base)?, &(1..=u64::MAX))?;
    let high = in_range(units::bytes(high, kb_base)?, &(1..=u64::MAX))?;
    Ok((low.min(high), low.max(high)))
}

fn fractions(text: &str, bounds: &RangeInclusive<f64>, most: usize) -> Result<Vec<f64>, Fault> {
    let mut values = Vec::new();
    for part in text.split(':') {
        let value = units::fraction(part)?;
        if !bounds.contains(&value) {
            let legal = format!("{} to {}", bounds.start(), bounds.end());
            return Err(Fault::new(format!("{part} is out of range")).help(legal));
        }
        values.push(value);
    }
    if values.len() > most {
        return Err(Fault::new(format!("{} values", values.len())).help(format!("at most {most}")));
    }
    Ok(values)
}

fn check_words(text: &str, words: &[&str]) -> Result<(), Fault> {
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
        _ => Ok(()),
    }
}

/// Returns the error for a word that fio does not know in an option.
pub(super) fn unknown_word(word: &str, words: &[&str]) -> Fault {
    let mut help = format!("fio 3.33 knows {}", words.join(", "));
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
    use super::super::{defaults, find};
    use super::*;

    fn set(name: &str, text: &str) -> Result<SectionOptions, Fault> {
        let mut options = defaults();
        find(name).unwrap().set(Some(text), &mut options)?;
        Ok(options)
    }

    #[test]
    fn commas_tell_directions_apart() {
        let numbers = |text| triple(text, SEPARATORS, |part| units::bytes(part, 1024)).unwrap();
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
        for (name, text) in [
            ("bs", "0"),
            ("bs", "4k,0"),
            ("bs", "1,2,3,4"),
            ("bs", ","),
            ("rwmixread", "101"),
            ("iodepth", "0"),
            ("direct", "2"),
            ("direct", "yes"),
            ("nice", "-21"),
        ] {
            assert!(set(name, text).is_err(), "{name}={text}");
        }
        assert!(set("thread", "2").unwrap().spec.threads);
        assert!(set("nice", "-5").is_ok());
    }

    #[test]
    fn a_count_is_refused_as_a_count() {
        for (text, message) in [
            ("99999999999999999999", "too large"),
            ("99999999999999999999k", "too large"),
            ("4294967296", "too large"),
            ("0", "too small"),
            ("-1", "not a number"),
            ("many", "not a number"),
        ] {
            let fault = set("iodepth", text).unwrap_err();
            assert_eq!(
                (&*fault.message, &*fault.help),
                (message, "1 to 4294967295"),
                "{text}"
            );
        }
        assert_eq!(set("iodepth", "1k").unwrap().spec.io_depth, 1024);
        let fault = set("bs", "99999999999999999999").unwrap_err();
        assert_eq!(fault.message, "too large");
    }

    #[test]
    fn reversed_ranges_are_turned_round() {
        let range = set("bsrange", "64k-4k").unwrap().block_range;
        assert_eq!(
            (range.read, range.trim),
            (Some((4096, 65536)), Some((4096, 65536)))
        );
        assert!(set("bsrange", "64k").is_err());
        assert!(set("bsrange", "0-4k").is_err());
    }

    #[test]
    fn an_unknown_word_names_its_neighbour() {
        let fault = set("rw", "randred").unwrap_err();
        assert!(fault.help.contains("did you mean randread?"), "{fault:?}");
        let fault = set("rw", " randread").unwrap_err();
        assert!(fault.message.contains("blank"), "{fault:?}");
    }
}
