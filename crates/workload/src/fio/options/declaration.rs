//! The type of an option's declaration.

use std::ops::RangeInclusive;

use crate::fio::direction::{ByDirection, Direction};
use crate::fio::error::Fault;
use crate::fio::section::SectionOptions;
use crate::fio::spec::JobSpec;
use crate::fio::units::Extent;
use crate::fio::units::TimeUnit;

/// An option of fio.
#[derive(Debug)]
pub(crate) struct FioOption {
    pub name: &'static str,
    pub alias: Option<&'static str>,
    /// What fio does with the option, in one line.
    pub help: &'static str,
    /// fio's default.
    pub default: Option<&'static str>,
    /// Whether the option says what is read and written, and not only the way in which it is done.
    pub is_work: bool,
    /// The engines that have the option; empty means all.
    pub engines: &'static [&'static str],
    pub order: Order,
    pub values: Values,
    /// The part of the option that is not simulated.
    pub unmodelled: Option<Unmodelled>,
}

/// The part of an option that is not simulated. An option that only modifies another such option
/// has none.
#[derive(Debug)]
pub(crate) enum Unmodelled {
    /// The option changes the job's work, so the job is refused.
    Work {
        /// What fio does, to follow "fio would".
        would: &'static str,
        /// What the user can do instead.
        instead: &'static str,
        /// Whether the option has this effect in a job.
        applies: fn(&JobSpec) -> bool,
    },
    /// The option changes a setting but not the work.
    Setting {
        /// Where it is simulated all the same; empty if nowhere.
        but: &'static str,
        /// Whether a job sets it and it is not simulated there.
        applies: fn(&JobSpec) -> bool,
    },
}

impl Unmodelled {
    pub const fn always(would: &'static str, instead: &'static str) -> Unmodelled {
        Unmodelled::Work {
            would,
            instead,
            applies: |_| true,
        }
    }

    /// Whether a part of this job is not simulated.
    pub fn applies(&self, spec: &JobSpec) -> bool {
        match self {
            Unmodelled::Work { applies, .. } | Unmodelled::Setting { applies, .. } => applies(spec),
        }
    }
}

/// When an option is applied among those of its section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Order {
    /// Before the others, as their values depend on it.
    First,
    /// In the order written.
    Written,
    /// After the others, as it depends on them.
    Last,
}

/// The type of an option's values, with their effect.
#[derive(Debug)]
pub(crate) enum Values {
    /// `=0` or `=1`.
    Flag(Effect<bool>),
    /// No value, or `=0` or `=1`.
    Switch(Effect<bool>),
    /// A number with a unit prefix. fio takes up to three and uses only the first.
    Count(RangeInclusive<u64>, Effect<u32>),
    /// Up to three numbers, for reads, writes and trims.
    Counts(RangeInclusive<u64>, Effect<PerDirection<u32>>),
    /// Up to three amounts of data of at least this many bytes, for reads, writes and trims.
    Amounts(u64, Effect<PerDirection<u64>>),
    /// A number that may be negative.
    Signed(RangeInclusive<i64>, Effect<i64>),
    /// An amount of data of at least this many bytes, or a range of two.
    Bytes(u64, Effect<(u64, u64)>),
    /// An amount of data, a percentage, or a number of zones.
    BytesOrShare(Effect<Extent>),
    /// A time in microseconds. fio takes up to three and uses only the first.
    Time(TimeUnit, Effect<u64>),
    /// Up to three times in microseconds.
    Times(TimeUnit, Effect<PerDirection<u64>>),
    /// Up to three ranges of sizes, each with its smallest and largest in bytes.
    Ranges(Effect<PerDirection<(u64, u64)>>),
    /// A fraction within these bounds.
    Fraction(RangeInclusive<f64>, Effect<f64>),
    /// Up to twenty fractions within these bounds, separated by `:`.
    Fractions(RangeInclusive<f64>, Effect<Vec<f64>>),
    /// Any text.
    Text(Effect<String>),
    /// Any text, or no value.
    OptionalText(Effect<String>),
    /// One of these words, each with its effect.
    OneOf(&'static [(&'static str, SetsWord)]),
    /// One of these words.
    Word(&'static [&'static str], Effect<&'static str>),
    /// One of these words, optionally followed by `:` and a detail.
    WordAndDetail(
        &'static [&'static str],
        Effect<(&'static str, Option<String>)>,
    ),
    /// Any of these words, separated by `,`, with an optional `:` and number.
    Words(&'static [&'static str], Effect<String>),
    /// fio no longer accepts the option.
    Removed,
    /// fio accepts the option and ignores it.
    Obsolete,
}

/// The effect of a word.
pub(crate) type SetsWord = fn(&mut SectionOptions);

/// A value each for reads, writes and trims; `None` where it is left out.
pub(crate) type PerDirection<T> = [Option<T>; 3];

/// The effect of a value.
#[derive(Debug)]
pub(crate) enum Effect<T> {
    /// The value is stored.
    Sets(fn(&mut SectionOptions, T)),
    /// The value is stored if it is valid.
    Checks(fn(&mut SectionOptions, T) -> Result<(), Fault>),
    /// The value has no effect, as no data is kept and measuring takes no time here.
    Meaningless,
    /// The value has no effect, as the function is not simulated. [`FioOption::unmodelled`] tells
    /// whether that changes the job's work.
    NotSimulated,
}

/// The treatment of an option, whatever its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The option is used.
    Used,
    /// See [`Effect::Meaningless`].
    Meaningless,
    /// The option changes the job's work, which is not simulated, so the job is refused.
    Refused,
    /// See [`Effect::NotSimulated`].
    NotSimulated,
    /// fio itself ignores the option.
    Obsolete,
}

impl<T> Effect<T> {
    pub(super) fn apply(&self, options: &mut SectionOptions, value: T) -> Result<(), Fault> {
        match self {
            Effect::Sets(set) => set(options, value),
            Effect::Checks(set) => set(options, value)?,
            Effect::Meaningless | Effect::NotSimulated => {}
        }
        Ok(())
    }

    fn outcome(&self) -> Outcome {
        match self {
            Effect::Sets(_) | Effect::Checks(_) => Outcome::Used,
            Effect::Meaningless => Outcome::Meaningless,
            Effect::NotSimulated => Outcome::NotSimulated,
        }
    }
}

impl FioOption {
    /// Returns the treatment of the option.
    pub fn outcome(&self) -> Outcome {
        match self.unmodelled {
            Some(Unmodelled::Work { .. }) => Outcome::Refused,
            Some(Unmodelled::Setting { .. }) => Outcome::NotSimulated,
            None => self.kept(),
        }
    }

    /// Returns the treatment of the option's value if the job is not refused.
    pub fn kept(&self) -> Outcome {
        match &self.values {
            Values::Flag(effect) | Values::Switch(effect) => effect.outcome(),
            Values::Count(_, effect) => effect.outcome(),
            Values::Counts(_, effect) => effect.outcome(),
            Values::Amounts(_, effect) => effect.outcome(),
            Values::Signed(_, effect) => effect.outcome(),
            Values::Bytes(_, effect) => effect.outcome(),
            Values::BytesOrShare(effect) => effect.outcome(),
            Values::Time(_, effect) => effect.outcome(),
            Values::Times(_, effect) => effect.outcome(),
            Values::Ranges(effect) => effect.outcome(),
            Values::Fraction(_, effect) => effect.outcome(),
            Values::Fractions(_, effect) => effect.outcome(),
            Values::Text(effect) | Values::OptionalText(effect) => effect.outcome(),
            Values::OneOf(_) => Outcome::Used,
            Values::Word(_, effect) => effect.outcome(),
            Values::WordAndDetail(_, effect) => effect.outcome(),
            Values::Words(_, effect) => effect.outcome(),
            Values::Removed | Values::Obsolete => Outcome::Obsolete,
        }
    }
}

impl Values {
    /// Returns the words to choose from; empty if any text or number is allowed.
    pub fn words(&self) -> Vec<&'static str> {
        match self {
            Values::OneOf(words) => words.iter().map(|(word, _)| *word).collect(),
            Values::Word(words, _) | Values::WordAndDetail(words, _) | Values::Words(words, _) => {
                words.to_vec()
            }
            _ => Vec::new(),
        }
    }

    /// Returns whether values are whole numbers, with or without a unit.
    pub fn are_whole_numbers(&self) -> bool {
        matches!(
            self,
            Values::Count(..)
                | Values::Counts(..)
                | Values::Amounts(..)
                | Values::Signed(..)
                | Values::Bytes(..)
                | Values::BytesOrShare(_)
                | Values::Time(..)
                | Values::Times(..)
                | Values::Ranges(_)
        )
    }
}

pub(super) const U32: u64 = u32::MAX as u64;
pub(super) const ANY: RangeInclusive<u64> = 0..=U32;
pub(super) const POSITIVE: RangeInclusive<u64> = 1..=U32;
pub(super) const PERCENT: RangeInclusive<u64> = 0..=100;

/// Replaces the values that are given and keeps the others.
pub(super) fn merge<T: Copy>(target: &mut ByDirection<T>, values: PerDirection<T>) {
    for (direction, value) in Direction::ALL.into_iter().zip(values) {
        if let Some(value) = value {
            target[direction] = value;
        }
    }
}

/// Declares options. In each row the doc comment is the help; then follow `way` where the option
/// says only how I/O is done ([`FioOption::is_work`]), name, alias after `|`, [`Order`] in brackets, default after `=`, engines after `of`, and after `=>` the [`Values`] and
/// optionally the [`Unmodelled`].
macro_rules! options {
    ($(
        $(#[doc = $help:literal])+
        $($way:ident)? $name:literal $(| $alias:literal)? $([$order:ident])? $(= $default:literal)?
        $(of $engines:expr)? => $values:expr $(, $unmodelled:expr)?;
    )*) => {
        &[$(FioOption {
            name: $name,
            alias: options!(@alias $($alias)?),
            help: concat!($($help),+).trim_ascii(),
            default: options!(@default $($default)?),
            is_work: options!(@is_work $($way)?),
            engines: options!(@engines $($engines)?),
            order: options!(@order $($order)?),
            values: $values,
            unmodelled: options!(@unmodelled $($unmodelled)?),
        }),*]
    };
    (@alias) => { None };
    (@alias $alias:literal) => { Some($alias) };
    (@default) => { None };
    (@default $default:literal) => { Some($default) };
    (@is_work) => { true };
    (@is_work way) => { false };
    (@engines) => { &[] };
    (@engines $engines:expr) => { $engines };
    (@unmodelled) => { None };
    (@unmodelled $unmodelled:expr) => { Some($unmodelled) };
    (@order) => { Order::Written };
    (@order $order:ident) => { Order::$order };
}
pub(super) use options;
