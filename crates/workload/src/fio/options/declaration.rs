//! What an option is declared with: one row that says all of it.

use std::ops::RangeInclusive;

use crate::fio::direction::{ByDirection, Direction};
use crate::fio::error::Fault;
use crate::fio::section::SectionOptions;
use crate::fio::spec::{Extent, JobSpec};
use crate::fio::units::TimeUnit;

/// An option of fio's.
#[derive(Debug)]
pub(crate) struct FioOption {
    pub name: &'static str,
    pub alias: Option<&'static str>,
    /// What fio does with it, in a line.
    pub help: &'static str,
    /// The value that fio takes where none is given.
    pub default: Option<&'static str>,
    /// The engines that have it; empty: all.
    pub engines: &'static [&'static str],
    pub order: Order,
    pub values: Values,
    /// What the simulation leaves out of it.
    pub unmodelled: Option<Unmodelled>,
}

/// What the simulation leaves out of an option. One that only goes with such an
/// option changes nothing alone and has none.
#[derive(Debug)]
pub(crate) enum Unmodelled {
    /// It changes the job's work, for which it is refused.
    Work {
        /// What fio does, to follow "fio would".
        would: &'static str,
        /// What to do instead of giving the option.
        instead: &'static str,
        /// Whether it does so in this job.
        applies: fn(&JobSpec) -> bool,
    },
    /// What it sets, where the work is the same without it; and whether this job
    /// has it set.
    Setting(fn(&JobSpec) -> bool),
}

impl Unmodelled {
    pub const fn always(would: &'static str, instead: &'static str) -> Unmodelled {
        Unmodelled::Work {
            would,
            instead,
            applies: |_| true,
        }
    }

    /// Whether something of this job is left out.
    pub fn applies(&self, spec: &JobSpec) -> bool {
        match self {
            Unmodelled::Work { applies, .. } | Unmodelled::Setting(applies) => applies(spec),
        }
    }
}

/// When fio applies an option among those of its section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Order {
    /// Before the others, which are read by it.
    First,
    /// As written.
    Written,
    /// After the others, which it needs.
    Last,
}

/// What an option's values look like, and what they set.
#[derive(Debug)]
pub(crate) enum Values {
    /// `=0` or `=1`.
    Flag(Effect<bool>),
    /// Alone, or `=0` or `=1`.
    Switch(Effect<bool>),
    /// A number with a unit prefix. fio takes up to three and drops all but the
    /// first.
    Count(RangeInclusive<u64>, Effect<u32>),
    /// Up to three such numbers, for reads, writes and trims.
    Counts(RangeInclusive<u64>, Effect<PerDirection<u32>>),
    /// Up to three amounts of data of at least so many bytes, for reads, writes
    /// and trims.
    Amounts(u64, Effect<PerDirection<u64>>),
    /// A number that may be negative.
    Signed(RangeInclusive<i64>, Effect<i64>),
    /// An amount of data of at least so many bytes; two of them are a range where
    /// the option has one.
    Bytes(u64, Effect<(u64, u64)>),
    /// An amount of data, or a percentage, or a number of zones.
    BytesOrShare(Effect<Extent>),
    /// A span of time, in microseconds. fio takes up to three and drops all but
    /// the first.
    Time(TimeUnit, Effect<u64>),
    /// Up to three spans of time, in microseconds.
    Times(TimeUnit, Effect<PerDirection<u64>>),
    /// Up to three ranges of sizes: smallest and largest, in bytes.
    Ranges(Effect<PerDirection<(u64, u64)>>),
    /// A fraction within these bounds.
    Fraction(RangeInclusive<f64>, Effect<f64>),
    /// Up to twenty fractions within these bounds, with `:` between them.
    Fractions(RangeInclusive<f64>, Effect<Vec<f64>>),
    /// Any text.
    Text(Effect<String>),
    /// Any text, or nothing.
    OptionalText(Effect<String>),
    /// One of these words, each with what it sets.
    OneOf(&'static [(&'static str, SetsWord)]),
    /// One of these words.
    Word(&'static [&'static str], Effect<&'static str>),
    /// One of these words, and what may follow it after a `:`.
    WordAndDetail(
        &'static [&'static str],
        Effect<(&'static str, Option<String>)>,
    ),
    /// Any of these words, with `,` between them, and a number after a `:`.
    Words(&'static [&'static str], Effect<String>),
    /// fio no longer takes it.
    Removed,
    /// fio takes it and does nothing.
    Obsolete,
}

/// What a word sets.
pub(crate) type SetsWord = fn(&mut SectionOptions);

/// One value for reads, writes and trims each; `None` where it was left out.
pub(crate) type PerDirection<T> = [Option<T>; 3];

/// What a value does.
#[derive(Debug)]
pub(crate) enum Effect<T> {
    /// It is kept.
    Sets(fn(&mut SectionOptions, T)),
    /// It is kept if it is right.
    Checks(fn(&mut SectionOptions, T) -> Result<(), Fault>),
    /// Nothing: where no data is kept and no time is lost measuring it has no
    /// meaning.
    Meaningless,
    /// Nothing: what it asks for is not simulated. [`FioOption::unmodelled`] tells
    /// whether that changes the job's work.
    NotSimulated,
}

/// What becomes of an option, whatever its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is kept.
    Used,
    /// See [`Effect::Meaningless`].
    Meaningless,
    /// It changes the job's work, which is not simulated.
    Refused,
    /// See [`Effect::NotSimulated`].
    NotSimulated,
    /// fio itself does nothing with it.
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
    /// What becomes of it.
    pub fn outcome(&self) -> Outcome {
        match self.unmodelled {
            Some(Unmodelled::Work { .. }) => Outcome::Refused,
            Some(Unmodelled::Setting(_)) => Outcome::NotSimulated,
            None => self.kept(),
        }
    }

    /// What becomes of its value where it is not refused.
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
    /// The words to choose from; none where any text or number does.
    pub fn words(&self) -> Vec<&'static str> {
        match self {
            Values::OneOf(words) => words.iter().map(|(word, _)| *word).collect(),
            Values::Word(words, _) | Values::WordAndDetail(words, _) | Values::Words(words, _) => {
                words.to_vec()
            }
            _ => Vec::new(),
        }
    }
}

pub(super) const U32: u64 = u32::MAX as u64;
pub(super) const ANY: RangeInclusive<u64> = 0..=U32;
pub(super) const POSITIVE: RangeInclusive<u64> = 1..=U32;
pub(super) const PERCENT: RangeInclusive<u64> = 0..=100;

/// Takes the values given; the others stay.
pub(super) fn merge<T: Copy>(target: &mut ByDirection<T>, values: PerDirection<T>) {
    for (direction, value) in Direction::ALL.into_iter().zip(values) {
        if let Some(value) = value {
            target[direction] = value;
        }
    }
}

/// Rows of options: the doc comment is the help, then name, alias after `|`,
/// [`Order`] in brackets, default after `=`, engines after `of`, and behind `=>`
/// the [`Values`] and the [`Unmodelled`] where something is left out.
macro_rules! options {
    ($(
        $(#[doc = $help:literal])+
        $name:literal $(| $alias:literal)? $([$order:ident])? $(= $default:literal)?
        $(of $engines:expr)? => $values:expr $(, $unmodelled:expr)?;
    )*) => {
        &[$(FioOption {
            name: $name,
            alias: options!(@alias $($alias)?),
            help: concat!($($help),+).trim_ascii(),
            default: options!(@default $($default)?),
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
    (@engines) => { &[] };
    (@engines $engines:expr) => { $engines };
    (@unmodelled) => { None };
    (@unmodelled $unmodelled:expr) => { Some($unmodelled) };
    (@order) => { Order::Written };
    (@order $order:ident) => { Order::$order };
}
pub(super) use options;
