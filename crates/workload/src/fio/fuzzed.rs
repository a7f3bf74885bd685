//! Property tests with random jobs.

use proptest::prelude::*;

use super::options::{self, FioOption, Values};
use super::{JobFile, JobSpec, parse_args, parse_str};

fn parse(text: &str) -> Result<JobFile, super::JobError> {
    parse_str(
        "t.fio",
        text,
        &|_| Some("x".into()),
        &|_, name| match name {
            "loop" => Ok(("loop".into(), "include loop\n".into())),
            _ => Ok(("included".into(), "bs=8k\n".into())),
        },
    )
}

/// Returns a value that is often valid for an option.
fn value(values: &'static Values) -> BoxedStrategy<Option<String>> {
    let numbers = |low: u64, high: u64| (low..=high.min(low + 5000)).prop_map(|n| n.to_string());
    let text = match values {
        Values::Flag(_) => (0..2u8).prop_map(|n| n.to_string()).boxed(),
        Values::Switch(_) => {
            return prop::option::of((0..2u8).prop_map(|n| n.to_string())).boxed();
        }
        Values::Count(range, _) | Values::Counts(range, _) => {
            numbers(*range.start(), *range.end()).boxed()
        }
        Values::Amounts(min, _) => numbers(*min, u64::MAX).boxed(),
        Values::Signed(range, _) => range.clone().prop_map(|n| n.to_string()).boxed(),
        Values::Bytes(..) | Values::BytesOrShare(_) => "[1-9][0-9]{0,3}[kmg]?|[1-9]?[0-9]%".boxed(),
        Values::Time(..) | Values::Times(..) => "[0-9]{1,4}(us|ms|s|m|h|d)?".boxed(),
        Values::Ranges(_) => "[1-9]k-[1-9]k(,[1-9]k-[1-9]k)?".boxed(),
        Values::Fraction(..) | Values::Fractions(..) => "[0-9]{1,2}(\\.[0-9])?".boxed(),
        values if !values.words().is_empty() => prop::sample::select(values.words())
            .prop_map(str::to_string)
            .boxed(),
        _ => "[a-z0-9:/,]{0,12}".boxed(),
    };
    text.prop_map(Some).boxed()
}

/// Returns an option of fio, mostly with a valid value.
fn any_option() -> impl Strategy<Value = String> {
    let all: Vec<&'static FioOption> = options::listed().collect();
    prop::sample::select(all).prop_flat_map(|option| {
        let value = prop_oneof![
            9 => value(&option.values),
            1 => ".{0,12}".prop_map(Some),
        ];
        (Just(option.name), value).prop_map(|(name, value)| match value {
            Some(value) => format!("{name}={value}"),
            None => name.to_string(),
        })
    })
}

fn any_section() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["global", "a", "b", "read job"]);
    (name, prop::collection::vec(any_option(), 0..8))
        .prop_map(|(name, options)| format!("[{name}]\n{}\n", options.join("\n")))
}

/// Returns a job without the places of its options.
fn unplaced(spec: &JobSpec) -> JobSpec {
    let mut spec = spec.clone();
    spec.position.line = 0;
    spec.written.clear();
    spec
}

/// Prints the job file that was read.
fn printed(file: &JobFile) -> String {
    let list = |options: &[(String, String)]| -> String {
        options
            .iter()
            .map(|(name, value)| match value.as_str() {
                "" => format!("{name}\n"),
                value => format!("{name}={value}\n"),
            })
            .collect()
    };
    let mut text = format!("[global]\n{}", list(&file.global_options));
    for job in &file.jobs {
        text.push_str(&format!("[{}]\n{}", job.section, list(&job.options)));
    }
    text
}

proptest! {
    #[test]
    fn any_text_is_read_without_panic(text in "(?s).{0,300}") {
        let _ = parse(&text);
    }

    #[test]
    fn any_lines_are_read_without_panic(
        lines in prop::collection::vec("(\\[.{0,8}\\]?|[a-z_]{1,12}=.{0,20}|include( loop)?|[;#].{0,5}|\\$\\{.{0,4}\\}?)", 0..12)
    ) {
        let _ = parse(&format!("[a]\n{}", lines.join("\n")));
    }

    #[test]
    fn any_options_are_read_without_panic(sections in prop::collection::vec(any_section(), 0..5)) {
        if let Err(error) = parse(&sections.concat()) {
            let error = error.to_string();
            prop_assert!(error.starts_with("t.fio") || error.starts_with("included"));
        }
    }

    #[test]
    fn any_arguments_are_read_without_panic(
        args in prop::collection::vec("--?[a-z_-]{1,8}(=.{0,8})?|--name=a", 0..6)
    ) {
        let _ = parse_args(&args, &|_| None);
    }

    #[test]
    fn what_is_printed_reads_the_same(
        global in prop::collection::vec(any_option(), 0..5),
        jobs in prop::collection::vec(prop::collection::vec(any_option(), 0..8), 1..4),
    ) {
        // One bad option makes a job fail, so only good ones are kept.
        let good = |options: Vec<String>| -> Vec<String> {
            options
                .into_iter()
                .filter(|option| parse(&format!("[a]\n{option}\n")).is_ok())
                .collect()
        };
        let mut text = format!("[global]\n{}\n", good(global).join("\n"));
        for (i, options) in jobs.into_iter().enumerate() {
            text.push_str(&format!("[job{i}]\n{}\n", good(options).join("\n")));
        }
        if let Ok(first) = parse(&text) {
            let again = parse(&printed(&first));
            let again = again.map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(&first.global_options, &again.global_options);
            prop_assert_eq!(&first.notes, &again.notes);
            prop_assert_eq!(first.jobs.len(), again.jobs.len());
            for (one, other) in first.jobs.iter().zip(&again.jobs) {
                prop_assert_eq!(unplaced(one), unplaced(other));
            }
        }
    }
}
