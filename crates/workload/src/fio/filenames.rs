//! Names of files: lists with `:` between, and those fio makes up.

use super::spec::JobSpec;

/// The names in a list; `\:` is a colon that belongs to a name.
pub(crate) fn split(list: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut name = String::new();
    let mut chars = list.trim().chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.peek() == Some(&':') => {
                chars.next();
                name.push(':');
            }
            ':' => names.extend(take(&mut name)),
            c => name.push(c),
        }
    }
    names.extend(take(&mut name));
    names
}

fn take(name: &mut String) -> Option<String> {
    (!name.is_empty()).then(|| std::mem::take(name))
}

impl JobSpec {
    /// The files that process `process` (0 up to [`JobSpec::processes`]) of
    /// this job uses.
    ///
    /// Without `filename`, fio makes up `nrfiles` names for each process from
    /// `filename_format`, which is `$jobname.$jobnum.$filenum`.
    pub fn file_names(&self, process: u32) -> Vec<String> {
        if !self.files.is_empty() {
            let count = (self.file_count as usize).min(self.files.len());
            return self.files[..count].to_vec();
        }
        let directory = match self.directories.len() {
            0 => String::new(),
            n => format!("{}/", self.directories[process as usize % n]),
        };
        (0..self.file_count)
            .map(|file| {
                let name = replace(&self.filename_format, "$jobname", &self.section);
                let name = replace(&name, "$jobnum", &process.to_string());
                let name = replace(&name, "$filenum", &file.to_string());
                let name = replace(&name, "$clientuid", "");
                format!("{directory}{name}")
            })
            .collect()
    }
}

/// Replaces `keyword`, whatever its case.
fn replace(text: &str, keyword: &str, value: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let mut out = String::new();
    let mut from = 0;
    while let Some(at) = lower[from..].find(keyword) {
        out.push_str(&text[from..from + at]);
        out.push_str(value);
        from += at + keyword.len();
    }
    out.push_str(&text[from..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colons_separate_unless_escaped() {
        assert_eq!(split("/dev/sda:/dev/sdb"), ["/dev/sda", "/dev/sdb"]);
        assert_eq!(split(r"/dev/a\:b:c"), ["/dev/a:b", "c"]);
        assert_eq!(split("::a::"), ["a"]);
        assert!(split("").is_empty());
    }

    #[test]
    fn keywords_in_any_case() {
        assert_eq!(replace("$JobName.x.$jobname", "$jobname", "a"), "a.x.a");
    }
}
