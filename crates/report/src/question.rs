//! A question: an fio job, the drive to use, and the goals that judge the answer.

use std::path::Path;
use std::str::FromStr;

use blklab_description::{
    KeyType, Shipped, SpecError, array, keys, parsed, read, read_text, shipped, text,
};

use crate::comparison::{Goal, Limit};

/// The questions in `jobs/questions/`, each beside the job of the same name.
const QUESTIONS: Shipped = shipped!("question", "../../../jobs/questions":
    "postgres-sata",
    "etcd-nvme",
    "desktop-copy",
    "backup-database",
    "tenants",
    "video-recorder",
    "build-server",
    "vm-host",
    "sdcard-logger",
    "kafka",
);

/// The prefix of the shipped questions' names.
const FOLDER: &str = "questions/";

/// A key type for a list of figures or limits.
fn figures<T: FromStr + 'static>(legal: &'static str) -> KeyType<'static, Vec<T>> {
    array(parsed(legal, |text| text.parse().ok()), legal)
}

keys! {
    /// A question.
    #[derive(Clone, Debug)]
    pub struct Question(table) {
        /// What is asked, in a sentence.
        pub question: String = text();
        /// The fio job: a name from `blklab list jobs`, or a file beside this one.
        pub job: String = text();
        /// The drive, as in `--drive`.
        pub drive: Option<String> = text().optional();
        /// The machine, as in `--machine`.
        pub machine: Option<String> = text().optional();
        /// What the answer is judged by, as in `--goal`.
        pub goals: Vec<Goal> = figures("an array of figures, as [\"JOB.read.p99\"]");
        /// What a scheduler has to keep, as in `--subject-to`.
        pub subject_to: Vec<Limit> =
            figures("an array of limits, as [\"JOB.read.p99 < 5ms\"]").or_derived(Vec::new(), "none");
    }
}

impl Question {
    /// Finds a shipped question by its name, or reads one from a file that ends with
    /// `.toml`; `None` if the name is not a question's.
    ///
    /// # Errors
    /// If the file cannot be read or has a mistake; the message names file and line.
    pub fn find(name: &str) -> Option<Result<Question, String>> {
        if let Some(question) = Question::shipped(name) {
            return Some(question.map_err(|error| error.to_string()));
        }
        let path = Path::new(name);
        let is_file = path.extension().is_some_and(|end| end == "toml") && path.exists();
        is_file.then(|| {
            let text = read_text(path).map_err(|error| format!("{name}: cannot read: {error}"))?;
            let question = Question::parse(name, &text).map_err(|error| error.to_string())?;
            let beside = path.with_file_name(&question.job);
            Ok(match beside.exists() {
                true => Question {
                    job: beside.display().to_string(),
                    ..question
                },
                false => question,
            })
        })
    }

    /// Returns a shipped question.
    pub fn shipped(name: &str) -> Option<Result<Question, SpecError>> {
        let text = QUESTIONS.text(name.strip_prefix(FOLDER)?)?;
        let file = format!("{name}.toml");
        Some(Question::parse(&file, text).map(|question| Question {
            job: name.to_string(),
            ..question
        }))
    }

    /// Returns the text of a shipped question; `None` if there is no such question.
    pub fn text(name: &str) -> Option<&'static str> {
        QUESTIONS.text(name.strip_prefix(FOLDER)?)
    }

    /// Returns the names of the shipped questions.
    pub fn names() -> impl Iterator<Item = String> {
        QUESTIONS.names().map(|name| format!("{FOLDER}{name}"))
    }

    fn parse(file: &str, text: &str) -> Result<Question, SpecError> {
        read(file, text, |root| {
            let question = Question::read(root)?;
            root.finish()?;
            Ok(question)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_question_is_one() {
        assert_eq!(Question::names().count(), 10);
        for name in Question::names() {
            let question = Question::find(&name).expect("listed");
            let question = question.unwrap_or_else(|error| panic!("{error}"));
            assert!(question.question.ends_with('?') && !question.goals.is_empty());
            assert_eq!(question.job, name);
        }
    }

    #[test]
    fn a_mistake_has_its_line() {
        let start = "question = \"x?\"\njob = \"a.fio\"\n";
        for (rest, said) in [
            (
                "goals = [\"a.p98\"]",
                "q.toml:3: `goals`: found [\"a.p98\"], legal is an array of",
            ),
            (
                "goal = [\"a.p99\"]",
                "q.toml:3: `goals`: found `goal`; write `goals = ...`",
            ),
            (
                "goals = [\"a.p99\"]\nsubject_to = [\"a.p99\"]",
                "q.toml:4: `subject_to`: found [\"a.p99\"], legal is an array of limits",
            ),
        ] {
            let error = Question::parse("q.toml", &format!("{start}{rest}\n")).expect_err(said);
            assert!(error.to_string().starts_with(said), "{error}");
        }
    }
}
