//! The lines of a job file: sections, options, comments and includes; and fio's substitutions in an
//! option before it is parsed: `${VARIABLE}`, and the keywords `$pagesize`, `$mb_memory` and
//! `$ncpus` with their arithmetic.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use blklab_description::read_text;

use super::error::{Fault, JobError, Position};
use super::units;

/// The deepest nesting of included job files; fio has no limit and would overflow its stack with a
/// file that includes itself.
const INCLUDE_DEPTH_LIMIT: u32 = 16;

/// The longest line that fio reads in one piece, in bytes.
const LINE_LIMIT: usize = 4096;

/// Finds an included file: given the including file and the name of the included one, returns the
/// name for messages and the text, or the error.
pub type Includes<'a> = &'a dyn Fn(&str, &str) -> Result<(String, String), String>;

/// An option as written in a job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OptionLine {
    pub position: Position,
    /// `name=value` or `name`, without comment and surrounding blanks.
    pub text: String,
}

impl OptionLine {
    /// Returns the option's name.
    pub fn name(&self) -> &str {
        let name = self.text.split_once('=').map(|(name, _)| name);
        name.unwrap_or(&self.text).trim()
    }
}

/// A section and its options.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Section {
    pub name: String,
    pub position: Position,
    pub entries: Vec<OptionLine>,
}

impl Section {
    /// Whether this is a global section, which in fio is any whose name begins with `global`.
    pub fn is_global(&self) -> bool {
        self.name.starts_with("global")
    }
}

/// Reads the text of a job file; `-` is standard input.
pub(crate) fn read(name: &str) -> Result<String, JobError> {
    read_text(Path::new(name)).map_err(|error| {
        let position = Position {
            file: name.to_string(),
            line: 0,
        };
        JobError::at(
            &position,
            "",
            Fault::new(format!("cannot be read: {error}")).help("give a job file"),
        )
    })
}

/// Looks for an included file as fio does: at the given path, then beside the including file.
pub(crate) fn include_file(from: &str, name: &str) -> Result<(String, String), String> {
    let beside = Path::new(from).with_file_name(name);
    let path = match Path::new(name).exists() {
        true => Path::new(name).to_path_buf(),
        false => beside,
    };
    let text =
        read_text(&path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    Ok((path.display().to_string(), text))
}

/// Returns the files that a job file includes, as far as they can be read. Files that are not
/// regular, such as pipes, are not searched.
pub fn included_files(path: &Path) -> Vec<PathBuf> {
    let included = RefCell::new(Vec::new());
    let include = |from: &str, name: &str| {
        let (file, text) = include_file(from, name)?;
        included.borrow_mut().push(PathBuf::from(&file));
        Ok((file, text))
    };
    let text = path.is_file().then(|| read_text(path));
    if let Some(Ok(text)) = text {
        // Mistakes in the job are reported when it is read to be run.
        let _ = split(&path.display().to_string(), &text, &include);
    }
    included.into_inner()
}

/// Splits a job file into its sections.
pub(crate) fn split(
    file: &str,
    text: &str,
    includes: Includes<'_>,
) -> Result<Vec<Section>, JobError> {
    let mut sections: Vec<Section> = Vec::new();
    for (position, line) in lines(file, text)? {
        if line.starts_with('[') {
            sections.push(Section {
                name: section_name(&position, line)?,
                position,
                entries: Vec::new(),
            });
            continue;
        }
        let Some(section) = sections.last_mut() else {
            return Err(JobError::at(
                &position,
                line,
                Fault::new("an option outside of a section")
                    .help("begin with a section such as [global] or [job1]"),
            ));
        };
        add_line(position, line, includes, 0, &mut section.entries)?;
    }
    Ok(sections)
}

fn add_line(
    position: Position,
    line: &str,
    includes: Includes<'_>,
    depth: u32,
    entries: &mut Vec<OptionLine>,
) -> Result<(), JobError> {
    let Some(rest) = line.strip_prefix("include") else {
        entries.push(OptionLine {
            position,
            text: line.to_string(),
        });
        return Ok(());
    };
    let fail = |fault| JobError::at(&position, line, fault);
    // fio skips one character after the word, whatever it is.
    let name = rest.strip_prefix([' ', '\t', '=']).unwrap_or("").trim();
    if name.is_empty() {
        return Err(fail(
            Fault::new("needs the name of a file").help("such as include common.fio"),
        ));
    }
    if depth == INCLUDE_DEPTH_LIMIT {
        return Err(fail(
            Fault::new("files include one another too deeply").help("does a file include itself?"),
        ));
    }
    let (file, text) = includes(&position.file, name).map_err(|reason| fail(Fault::new(reason)))?;
    for (position, line) in lines(&file, &text)? {
        if line.starts_with('[') {
            return Err(JobError::at(
                &position,
                line,
                Fault::new("an included file has no sections of its own")
                    .help("put the options there without a section"),
            ));
        }
        add_line(position, line, includes, depth + 1, entries)?;
    }
    Ok(())
}

/// Returns the lines with content, without comments and surrounding blanks.
fn lines<'a>(file: &str, text: &'a str) -> Result<Vec<(Position, &'a str)>, JobError> {
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let position = Position {
            file: file.to_string(),
            line: number,
        };
        // As in fio, a comment begins anywhere, even inside a value.
        let line = line.split([';', '#']).next().unwrap_or("");
        let line = line.trim_matches(|c: char| c.is_whitespace() || c.is_control());
        if line.len() >= LINE_LIMIT {
            return Err(JobError::at(
                &position,
                "",
                Fault::new("the line is too long").help("at most 4095 bytes"),
            ));
        }
        if !line.is_empty() {
            lines.push((position, line));
        }
    }
    Ok(lines)
}

fn section_name(position: &Position, line: &str) -> Result<String, JobError> {
    let name = line
        .strip_prefix('[')
        .and_then(|line| line.strip_suffix(']'))
        .unwrap_or("");
    if name.is_empty() || name.len() > 254 {
        return Err(JobError::at(
            position,
            line,
            Fault::new("not a section")
                .help("a name of 1 to 254 bytes in brackets, such as [job1]"),
        ));
    }
    Ok(name.to_string())
}

/// Looks up `${NAME}`, and fio's keywords `$ncpus` and `$mb_memory`, whose names are passed with
/// their `$`.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Substitutes variables and keywords in an option. As in fio, an unset variable becomes the empty
/// string.
pub(crate) fn substitute(option: &str, environment: Environment<'_>) -> Result<String, Fault> {
    let replaced = variables(option, environment);
    keywords(replaced, environment)
}

fn variables(option: &str, environment: Environment<'_>) -> String {
    let mut out = String::with_capacity(option.len());
    let mut rest = option;
    while let Some(start) = rest.find("${") {
        let Some(length) = rest[start + 2..].find('}') else {
            break;
        };
        out.push_str(&rest[..start]);
        let name = &rest[start + 2..start + 2 + length];
        out.push_str(&environment(name).unwrap_or_default());
        rest = &rest[start + 2 + length + 1..];
    }
    out.push_str(rest);
    out
}

fn keywords(option: String, environment: Environment<'_>) -> Result<String, Fault> {
    let mut out = option;
    let mut found = false;
    for keyword in ["$pagesize", "$mb_memory", "$ncpus"] {
        if !out.contains(keyword) {
            continue;
        }
        let value = environment(keyword)
            .or_else(|| (keyword == "$pagesize").then(|| "4096".to_string()))
            .ok_or_else(|| {
                Fault::new(format!("{keyword} is not known here")).help("write the number")
            })?;
        if value.contains('$') {
            return Err(Fault::new(format!("{keyword} is not a number")));
        }
        out = out.replace(keyword, &value);
        found = true;
    }
    match out.split_once('=') {
        // fio passes such values to bc(1), which calculates in whole numbers.
        Some((name, sum)) if found && sum.contains(['+', '-', '*', '/']) => {
            let value = units::evaluate(sum, &|number| {
                number
                    .parse::<u64>()
                    .map(|n| n as f64)
                    .map_err(|_| Fault::new(format!("`{number}` is not a whole number")))
            })?;
            Ok(format!("{name}={}", value.trunc()))
        }
        _ => Ok(out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(_: &str, name: &str) -> Result<(String, String), String> {
        Err(format!("no file {name}"))
    }

    #[test]
    fn sections_comments_and_blanks() {
        let text = "; c\n[global]\n  bs=4k # c\n\n[a]\t\nrw=read;c\nthread\n#x\n[b]\n";
        let sections = split("t", text, &none).unwrap();
        let names: Vec<_> = sections.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["global", "a", "b"]);
        assert!(sections[0].is_global() && !sections[1].is_global());
        assert_eq!(sections[0].entries[0].text, "bs=4k");
        assert_eq!(sections[0].entries[0].position.line, 3);
        assert_eq!(sections[1].entries[0].text, "rw=read");
        assert_eq!(sections[1].entries[1].text, "thread");
        assert!(sections[2].entries.is_empty());
    }

    #[test]
    fn includes_keep_their_own_lines() {
        let includes = |from: &str, name: &str| match name {
            "one" => Ok(("dir/one".into(), "bs=8k\ninclude two\n".into())),
            "two" => Ok((format!("{from}-two"), "\n\nrw=write\n".into())),
            "sections" => Ok(("s".into(), "[x]\n".into())),
            _ => Ok(("loop".into(), "include loop\n".into())),
        };
        let sections = split("t", "[a]\ninclude one\niodepth=2\n", &includes).unwrap();
        let entries: Vec<_> = sections[0]
            .entries
            .iter()
            .map(|e| format!("{} {}", e.position, e.text))
            .collect();
        assert_eq!(
            entries,
            ["dir/one:1 bs=8k", "dir/one-two:3 rw=write", "t:3 iodepth=2"]
        );
        let error = split("t", "[a]\ninclude loop\n", &includes).unwrap_err();
        assert!(error.message.contains("too deeply"), "{error}");
        let error = split("t", "[a]\ninclude=sections\n", &includes).unwrap_err();
        assert_eq!(error.file, "s");
    }

    #[test]
    fn mistakes_name_their_line() {
        for (text, line) in [
            ("bs=4k\n", 1),
            ("[a]\nbs=1\n[b\n", 3),
            ("\n[]\n", 2),
            ("[a]\ninclude\n", 2),
            ("[a]\ninclude x\n", 2),
        ] {
            let error = split("t", text, &none).unwrap_err();
            assert_eq!(error.line, line, "{error}");
        }
    }

    fn environment(name: &str) -> Option<String> {
        match name {
            "SIZE" => Some("1g".into()),
            "$ncpus" => Some("8".into()),
            _ => None,
        }
    }

    #[test]
    fn variables_and_keywords() {
        let sub = |text| substitute(text, &environment).unwrap();
        assert_eq!(sub("size=${SIZE}"), "size=1g");
        assert_eq!(sub("name=${UNSET}x"), "name=x");
        assert_eq!(sub("name=${SIZE"), "name=${SIZE");
        assert_eq!(sub("numjobs=$ncpus"), "numjobs=8");
        assert_eq!(sub("bs=$pagesize*2+1"), "bs=8193");
        assert_eq!(sub("size=$pagesize/3"), "size=1365");
        assert!(substitute("size=8*$mb_memory", &environment).is_err());
    }
}
