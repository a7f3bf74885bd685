//! The sysfs files of a scheduler that are not a single number.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The largest number that an attribute takes: the nanoseconds of a day, more than any meaningful
/// value.
const MAX: u64 = 86_400_000_000_000;

/// A sysfs file of a scheduler that is not a single number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Name of the file, as in the kernel.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Whether the file can be read.
    pub readable: bool,
    /// The forms that can be written, each with the names of its numbers. A name that is itself a
    /// number stands for exactly that value.
    pub takes: &'static [&'static [&'static str]],
}

impl Attribute {
    /// Parses the numbers of a write, which are separated by white space.
    ///
    /// # Errors
    /// If the text has none of the legal forms; the message says which are legal.
    pub fn parse(&self, text: &str) -> Result<Vec<u64>, String> {
        let numbers: Result<Vec<u64>, _> = text.split_whitespace().map(str::parse).collect();
        let fits = |numbers: &[u64]| {
            let form = self.takes.iter().find(|form| form.len() == numbers.len());
            form.is_some_and(|form| {
                let mut both = form.iter().zip(numbers);
                both.all(|(name, n)| name.parse().map_or(*n <= MAX, |only: u64| only == *n))
            })
        };
        match numbers {
            Ok(numbers) if fits(&numbers) => Ok(numbers),
            _ => Err(format!("{text:?} is not legal here; {}", self.legal())),
        }
    }

    /// Describes what can be written.
    pub fn legal(&self) -> String {
        if self.takes.is_empty() {
            return "it can only be read".to_string();
        }
        let forms: Vec<String> = self.takes.iter().map(|form| form.join(", ")).collect();
        let forms = forms.join("; or ");
        format!("legal is {forms}, with spaces between and up to {MAX} each")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: Attribute = Attribute {
        name: "pair",
        help: "",
        readable: true,
        takes: &[&["1"], &["base", "slope"]],
    };

    #[test]
    fn takes_what_its_forms_say() {
        assert_eq!(PAIR.parse(" 1\n"), Ok(vec![1]));
        assert_eq!(PAIR.parse("90000  4000"), Ok(vec![90_000, 4_000]));
        for wrong in ["", "2", "1 2 3", "1 x", "-1 2", "1 86400000000001"] {
            let message = PAIR.parse(wrong).unwrap_err();
            assert!(message.contains("1; or base, slope"), "{message}");
        }
    }

    #[test]
    fn one_that_takes_nothing_says_so() {
        let version = Attribute { takes: &[], ..PAIR };
        assert!(version.parse("3").unwrap_err().contains("only be read"));
    }
}
