//! A set's folder and the tables in it.

use std::path::{Path, PathBuf};

/// A set's folder.
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// The folder at that path.
    pub fn new(path: &Path) -> Folder {
        Folder {
            path: path.to_path_buf(),
        }
    }

    /// Where the file of that name is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The records of a CSV file, compressed where its name ends with `.gz`.
    ///
    /// # Errors
    /// Where it cannot be read; the message has the file.
    pub fn records(&self, name: &str) -> Result<Vec<Record>, String> {
        let path = self.path(name);
        let file = std::fs::File::open(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        match name.ends_with(".gz") {
            true => records(
                &path.display().to_string(),
                flate2::read::MultiGzDecoder::new(file),
            ),
            false => records(&path.display().to_string(), file),
        }
    }
}

/// The records of a CSV file that is open; `file` stands for it in messages.
///
/// # Errors
/// Where it cannot be read.
pub fn records(file: &str, text: impl std::io::Read) -> Result<Vec<Record>, String> {
    let mut reader = csv::Reader::from_reader(text);
    let unreadable = |e: csv::Error| format!("{file}: {e}");
    let columns: Vec<String> = (reader.headers().map_err(unreadable)?.iter())
        .map(str::to_string)
        .collect();
    let record = |values: Result<csv::StringRecord, csv::Error>| {
        let values = values.map_err(unreadable)?;
        let line = values.position().map_or(0, csv::Position::line);
        Ok(Record {
            place: format!("{file}:{line}"),
            columns: columns.clone(),
            values: values.iter().map(str::to_string).collect(),
        })
    };
    reader.records().map(record).collect()
}

/// A line of a table.
pub struct Record {
    place: String,
    columns: Vec<String>,
    values: Vec<String>,
}

impl Record {
    /// The text in a column.
    ///
    /// # Errors
    /// Where there is no such column.
    pub fn text(&self, column: &str) -> Result<&str, String> {
        let at = self.columns.iter().position(|name| name == column);
        let value = at.and_then(|at| self.values.get(at));
        value
            .map(String::as_str)
            .ok_or_else(|| format!("{}: there is no column {column}", self.place))
    }

    /// The number in a column, in the type that is asked for.
    ///
    /// # Errors
    /// Where there is none.
    pub fn number<N: std::str::FromStr>(&self, column: &str) -> Result<N, String> {
        let text = self.text(column)?;
        text.parse().map_err(|_| {
            format!(
                "{}: column {column}: found {text:?}, legal is a number",
                self.place
            )
        })
    }

    /// The same where the field is not empty.
    ///
    /// # Errors
    /// Where there is something else than a number.
    pub fn number_if_any<N: std::str::FromStr>(&self, column: &str) -> Result<Option<N>, String> {
        match self.text(column)? {
            "" => Ok(None),
            _ => self.number(column).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::records;

    #[test]
    fn a_mistake_has_its_line_and_column() {
        let rows = records("s.csv", "a,b\n1,x\n,2\n".as_bytes()).expect("a table");
        assert_eq!(rows[0].number("a"), Ok(1));
        assert_eq!(rows[1].number_if_any::<u32>("a"), Ok(None));
        let wrong = rows[0].number::<f64>("b").expect_err("no number");
        assert_eq!(wrong, "s.csv:2: column b: found \"x\", legal is a number");
        assert!(rows[0].text("c").is_err());
    }
}
