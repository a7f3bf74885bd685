//! Descriptions with one mistake each, made from one without: every key is given
//! every mistake, and the message has to name file, line, key, what was found
//! and what is legal. For drives and for machines.

use blklab_description::SpecError;

use super::texts::{Setting, settings, with_line};

/// Endings that are units. A key has one of them or takes no unit.
const UNITS: [&str; 8] = [
    "_us", "_ns", "_kb", "_mb", "_mb_s", "_mt_s", "_bytes", "_ms",
];

/// Reads a description of that name; whatever it is made of does not matter.
pub type Parse<'a> = &'a dyn Fn(&str, &str) -> Result<(), SpecError>;

/// A description, and what reads it.
pub struct Description<'a> {
    pub name: &'a str,
    pub text: &'a str,
    pub parse: Parse<'a>,
}

impl Description<'_> {
    /// Checks that every mistake in every key is told as it should be.
    pub fn check(&self) {
        (self.parse)(self.name, self.text).unwrap_or_else(|error| panic!("{error}"));
        for set in settings(self.text) {
            let legal = self.legal(&set);
            self.check_kinds(&set, &legal);
            self.check_range(&set, &legal);
            self.check_missing(&set, &legal);
            self.check_unit(&set, &legal);
            self.check_twice(&set);
        }
    }

    fn error_of(&self, text: &str) -> Option<SpecError> {
        let error = (self.parse)(self.name, text).err()?;
        let said = error.to_string();
        let start = format!("{}:{}: `{}`: ", self.name, error.line, error.key);
        assert_eq!(said, start + &error.problem);
        assert!(said.lines().count() == 1 && said.len() < 400, "{said}");
        Some(error)
    }

    /// The message for another line in a key's place, which must be about it.
    fn with(&self, set: &Setting<'_>, line: &str) -> String {
        let error = self
            .error_of(&with_line(self.text, set.line, line))
            .unwrap_or_else(|| panic!("{}: `{line}` is taken", self.name));
        assert_eq!(
            (error.line, error.key.as_str()),
            (set.line, set.path.as_str()),
            "`{line}`: {error}"
        );
        error.problem
    }

    /// What is legal there, as it is told of a value that never is.
    fn legal(&self, set: &Setting<'_>) -> String {
        let problem = self.with(set, &format!("{} = 1979-05-27", set.key));
        let legal = problem.strip_prefix("found 1979-05-27, legal is ");
        let legal = legal.unwrap_or_else(|| panic!("{}: {problem}", set.path));
        legal.to_string()
    }

    fn refuses(&self, set: &Setting<'_>, value: &str, found: &str, legal: &str) {
        let problem = self.with(set, &format!("{} = {value} # mine", set.key));
        assert_eq!(
            problem,
            format!("found {found}, legal is {legal}"),
            "{}",
            set.path
        );
    }

    /// Values of another kind, some of which are not even TOML.
    fn check_kinds(&self, set: &Setting<'_>, legal: &str) {
        let wrong: &[&str] = match set.value.chars().next() {
            Some('"') => &["17", "[]", "true"],
            Some('t' | 'f') => &["1", "\"yes\"", "[true]"],
            Some('[') => &["[]", "[-1]", "\"x\""],
            _ => &["1e300", "nan", "\"1\"", "true"],
        };
        for wrong in wrong {
            self.refuses(set, wrong, wrong, legal);
        }
        for (wrong, why) in [
            ("50us", ""),
            ("50 us", ""),
            ("maybe", ""),
            ("", "nothing"),
            ("007", "007 (unexpected leading zero)"),
        ] {
            let found = if why.is_empty() { wrong } else { why };
            self.refuses(set, wrong, found, legal);
        }
    }

    /// Numbers beside the range that was told.
    fn check_range(&self, set: &Setting<'_>, legal: &str) {
        let words: Vec<&str> = legal.split([' ', ',']).collect();
        let after = |word| {
            let at = words.iter().position(|other| *other == word);
            at.and_then(|at| words.get(at + 1).copied())
        };
        let beside = match (after("from"), after("to")) {
            _ if !legal.starts_with("a number") && !legal.starts_with("a whole number") => return,
            (Some(from), Some(to)) => [beside(from, -1), beside(to, 1)],
            _ => panic!("{}: no range in: {legal}", set.path),
        };
        for value in beside {
            self.refuses(set, &value, &value, legal);
        }
    }

    /// A key that is not there may be left out, or is named; only keys that say
    /// how much there is of something may make another one illegal.
    fn check_missing(&self, set: &Setting<'_>, legal: &str) {
        let Some(error) = self.error_of(&with_line(self.text, set.line, "")) else {
            return;
        };
        if error.key == set.path && error.problem.contains("missing") {
            assert_eq!(error.problem, format!("is missing; it takes {legal}"));
            let line = self.text.lines().nth(error.line - 1).unwrap_or_default();
            let table = set.path.strip_suffix(&format!(".{}", set.key));
            match table {
                Some(table) => assert_eq!(line.split('#').next(), Some(&*format!("[{table}]"))),
                None => assert_eq!(error.line, 1),
            }
            return;
        }
        // What is assumed of it has nothing to be about then.
        if error.key == format!("assumed.\"{}\"", set.path) {
            return;
        }
        let tells = error.problem.starts_with("found ") && error.problem.contains("legal is ");
        assert!(tells, "{}: without {}: {error}", self.name, set.path);
    }

    /// The unit left out, or another.
    fn check_unit(&self, set: &Setting<'_>, legal: &str) {
        let units = UNITS.iter().filter_map(|unit| set.key.strip_suffix(unit));
        let Some(stem) = units.min_by_key(|stem| stem.len()) else {
            return;
        };
        for other in [stem.to_string(), format!("{stem}_gb_s")] {
            let problem = self.with(set, &format!("{other} = {}", set.value));
            let key = set.key;
            assert_eq!(
                problem,
                format!(
                    "found `{other}`: the unit is missing or another; write `{key} = ...` ({legal})"
                )
            );
        }
    }

    /// The same key again.
    fn check_twice(&self, set: &Setting<'_>) {
        let line = format!("{} = {}", set.key, set.value);
        let twice = with_line(self.text, set.line, &format!("{line}\n{line} # again"));
        let error = self.error_of(&twice).expect("it stands there twice");
        assert_eq!((error.line, &error.key), (set.line + 1, &set.path));
        let first = set.line;
        assert_eq!(
            error.problem,
            format!("found `{line}` a second time; legal is once (the first is in line {first})")
        );
    }
}

/// The number beside one.
fn beside(number: &str, step: i128) -> String {
    match number.parse::<i128>() {
        Ok(whole) => (whole + step).to_string(),
        Err(_) => (number.parse::<f64>().expect("a number") + step as f64).to_string(),
    }
}
