//! The type of a key: its legal values, its default, and what it needs to have an
//! effect.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Display;
use core::ops::RangeInclusive;

use strum::{EnumMessage, VariantArray};
use toml::de::DeValue;

/// The form of a key's value in the file, for programs that change or list it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number.
    Whole,
    /// A number with or without a fraction.
    Number,
    /// `true` or `false`.
    Flag,
    /// Text of a certain form.
    Text,
    /// One of these words, each with its meaning.
    Word(Vec<(String, &'static str)>),
    /// An array.
    Array,
}

/// A word of a file: an enum whose variants are the words (`#[strum(serialize_all =
/// "snake_case")]`), explained by their doc comments.
pub trait Word: Copy + Display + EnumMessage + VariantArray {}

impl<T: Copy + Display + EnumMessage + VariantArray> Word for T {}

/// The type of a key, whose values are converted to `T`.
pub struct KeyType<'a, T> {
    pub(crate) kind: Kind,
    /// The legal values in words, for messages.
    pub(crate) legal: String,
    /// The legal values for the reference, where `legal` depends on other keys.
    pub(crate) documented: Option<&'static str>,
    /// Converts a value; an error follows on "found ..., " in the message.
    pub(crate) take: Take<'a, T>,
    /// The default and its text in the reference; `None` if the key is required.
    pub(crate) default: Option<(T, String)>,
    /// What the key needs to have an effect, and whether that is there.
    pub(crate) needs: Option<(&'static str, bool)>,
}

type Take<'a, T> = Box<dyn Fn(&DeValue<'_>) -> Result<T, String> + 'a>;

impl<'a, T: 'a> KeyType<'a, T> {
    fn new(
        kind: Kind,
        legal: String,
        take: impl Fn(&DeValue<'_>) -> Option<T> + 'a,
    ) -> KeyType<'a, T> {
        let refusal = format!("legal is {legal}");
        KeyType {
            kind,
            legal,
            documented: None,
            take: Box::new(move |value| take(value).ok_or_else(|| refusal.clone())),
            default: None,
            needs: None,
        }
    }

    /// Makes the key optional, with this default.
    pub fn or(self, default: T) -> KeyType<'a, T>
    where
        T: Display,
    {
        let shown = default.to_string();
        self.or_derived(default, shown)
    }

    /// Makes the key optional with a default that depends on other keys, or whose
    /// `Display` is not fit for the reference.
    pub fn or_derived(self, default: T, shown: impl Into<String>) -> KeyType<'a, T> {
        KeyType {
            default: Some((default, shown.into())),
            ..self
        }
    }

    /// Makes the key optional, without a default.
    pub fn optional(self) -> KeyType<'a, Option<T>> {
        self.map(Some).or_derived(None, "")
    }

    /// Converts the value further, such as a number to a span of time.
    pub fn map<U>(self, make: impl Fn(T) -> U + 'a) -> KeyType<'a, U> {
        let take = self.take;
        KeyType {
            kind: self.kind,
            legal: self.legal,
            documented: self.documented,
            default: self.default.map(|(value, shown)| (make(value), shown)),
            take: Box::new(move |value| take(value).map(&make)),
            needs: self.needs,
        }
    }

    /// Refuses values for which `holds` is false, with a message on the legal ones.
    pub fn such_that(
        self,
        holds: impl Fn(&T) -> bool + 'a,
        legal: impl Into<String>,
    ) -> KeyType<'a, T> {
        let (take, legal) = (self.take, legal.into());
        KeyType {
            take: Box::new(move |value| {
                take(value).and_then(|taken| match holds(&taken) {
                    true => Ok(taken),
                    false => Err(format!("legal is {legal}")),
                })
            }),
            ..self
        }
    }

    /// Refuses the key if what it needs to have an effect is not there.
    pub fn needs(self, is_there: bool, what: &'static str) -> KeyType<'a, T> {
        KeyType {
            needs: Some((what, is_there)),
            ..self
        }
    }

    /// Sets the reference's text on the legal values, where they depend on other keys.
    pub fn documented(self, legal: &'static str) -> KeyType<'a, T> {
        KeyType {
            documented: Some(legal),
            ..self
        }
    }
}

/// An integer type.
pub trait Integer: Copy + Display + PartialOrd + TryFrom<u64> {}

impl<T: Copy + Display + PartialOrd + TryFrom<u64>> Integer for T {}

/// A whole number in a range.
pub fn whole<'a, T: Integer + 'a>(range: RangeInclusive<T>) -> KeyType<'a, T> {
    let legal = format!("a whole number from {} to {}", range.start(), range.end());
    KeyType::new(Kind::Whole, legal, move |value| {
        let number = T::try_from(digits(value)?).ok()?;
        range.contains(&number).then_some(number)
    })
}

/// A number in a range, with or without a fraction.
pub fn number<'a>(range: RangeInclusive<f64>) -> KeyType<'a, f64> {
    let legal = format!("a number from {} to {}", range.start(), range.end());
    KeyType::new(Kind::Number, legal, move |value| {
        fraction(value).filter(|number| range.contains(number))
    })
}

/// `true` or `false`.
pub fn flag<'a>() -> KeyType<'a, bool> {
    KeyType::new(Kind::Flag, "true or false".to_string(), |value| {
        value.as_bool()
    })
}

/// A line of text.
pub fn text<'a>() -> KeyType<'a, String> {
    parsed("text in \"quotes\"", |text| Some(text.to_string()))
}

/// Text that `parse` accepts; `legal` describes it.
pub fn parsed<'a, T: 'a>(legal: &str, parse: impl Fn(&str) -> Option<T> + 'a) -> KeyType<'a, T> {
    KeyType::new(Kind::Text, legal.to_string(), move |value| {
        value.as_str().and_then(&parse)
    })
}

/// One of the words of an enum.
pub fn word<'a, T: Word + 'a>() -> KeyType<'a, T> {
    one_of(words())
}

/// The words for the variants of an enum, each with its meaning and the variant.
pub fn words<T: Word>() -> impl Iterator<Item = (String, &'static str, T)> {
    T::VARIANTS.iter().map(|word| {
        let meaning = word.get_documentation().unwrap_or_default();
        (word.to_string(), meaning, *word)
    })
}

/// One of several words, each with its meaning and its converted value.
pub fn one_of<'a, T: Copy + 'a, W: Into<String>>(
    words: impl IntoIterator<Item = (W, &'static str, T)>,
) -> KeyType<'a, T> {
    let words = words.into_iter();
    let words: Vec<(String, &'static str, T)> = words
        .map(|(word, meaning, made)| (word.into(), meaning, made))
        .collect();
    let quoted: Vec<String> = words.iter().map(|word| format!("{:?}", word.0)).collect();
    let legal = format!("one of {}", quoted.join(", "));
    let meanings = words
        .iter()
        .map(|(word, meaning, _)| (word.clone(), *meaning));
    KeyType::new(Kind::Word(meanings.collect()), legal, move |value| {
        let found = value.as_str()?;
        let word = words.iter().find(|(word, ..)| word == found)?;
        Some(word.2)
    })
}

/// `count` values, or one value for all of them; `each` says what each is for.
pub fn one_or_each<'a, T: Clone + 'a>(
    count: usize,
    one: KeyType<'a, T>,
    each: &str,
) -> KeyType<'a, Vec<T>> {
    let legal = match count {
        1 => one.legal.clone(),
        _ => format!("{}, or an array of {count} such, {each}", one.legal),
    };
    let take = one.take;
    KeyType::new(one.kind, legal, move |value| match value {
        DeValue::Array(items) => {
            let items = items.iter().map(|item| take(item.get_ref()).ok());
            let items: Vec<T> = items.collect::<Option<_>>()?;
            (items.len() == count).then_some(items)
        }
        one => Some(vec![take(one).ok()?; count]),
    })
}

/// An array of values; `legal` describes it.
pub fn array<'a, T: 'a>(one: KeyType<'a, T>, legal: &str) -> KeyType<'a, Vec<T>> {
    let take = one.take;
    KeyType::new(Kind::Array, legal.to_string(), move |value| {
        let items = value.as_array()?.iter();
        items.map(|item| take(item.get_ref()).ok()).collect()
    })
}

/// Whether a number has no fraction.
pub fn is_whole(number: f64) -> bool {
    libm::trunc(number) == number
}

/// Converts microseconds to nanoseconds.
pub fn nanos(micros: f64) -> u64 {
    libm::round(micros * 1e3) as u64
}

fn digits(value: &DeValue<'_>) -> Option<u64> {
    let DeValue::Integer(digits) = value else {
        return None;
    };
    u64::from_str_radix(digits.as_str(), digits.radix()).ok()
}

fn fraction(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Integer(_) => digits(value).map(|number| number as f64),
        DeValue::Float(digits) => digits.as_str().parse().ok().filter(|n: &f64| n.is_finite()),
        _ => None,
    }
}

/// Parses a time with its unit to nanoseconds.
///
/// # Errors
/// If the text is something else; the message says what is right.
pub fn time_ns(text: &str) -> Result<u64, String> {
    let wrong = || "right is a number with its unit: 500us, 20ms, 1.5s or 1m".to_string();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        "h" => 3600e9,
        _ => return Err(wrong()),
    };
    let number: f64 = digits.parse().map_err(|_| wrong())?;
    let ns = number * factor;
    match (0.0..9e18).contains(&ns) {
        true => Ok(ns as u64),
        false => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_have_a_unit() {
        assert_eq!(time_ns("1.5s"), Ok(1_500_000_000));
        assert_eq!(time_ns("20ms"), Ok(20_000_000));
        assert_eq!(time_ns("0ns"), Ok(0));
        assert_eq!(time_ns("1m"), Ok(60_000_000_000));
        for wrong in ["", "1", "s", "-1s", "1e30s", "NaNs", "infs", "1 s", "1d"] {
            assert!(time_ns(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,12}", number in "[0-9.e+-]{0,8}(ns|us|ms|s)") {
            let _ = time_ns(&text);
            let _ = time_ns(&number);
        }
    }
}
