//! A set's folder and its tables.

use std::path::{Path, PathBuf};

/// A set's folder.
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Creates the folder at that path.
    pub fn new(path: &Path) -> Folder {
        Folder {
            path: path.to_path_buf(),
        }
    }

    /// Returns the path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Reads the records of a CSV file, which is compressed if its name ends with `.gz`.
    ///
    /// # Errors
    /// If it cannot be read; the message names the file.
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

/// Reads the records of an open CSV file, called `file` in messages.
///
/// # Errors
/// If it cannot be read.
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

/// A row of a table.
pub struct Record {
    place: String,
    columns: Vec<String>,
    values: Vec<String>,
}

impl Record {
    /// Returns the text in a column.
    ///
    /// # Errors
    /// If there is no such column.
    pub fn text(&self, column: &str) -> Result<&str, String> {
        let at = self.columns.iter().position(|name| name == column);
        let value = at.and_then(|at| self.values.get(at));
        value
            .map(String::as_str)
            .ok_or_else(|| format!("{}: there is no column {column}", self.place))
    }

    /// Returns the number in a column.
    ///
    /// # Errors
    /// If there is none.
    pub fn number<N: std::str::FromStr>(&self, column: &str) -> Result<N, String> {
        let text = self.text(column)?;
        text.parse().map_err(|_| {
            format!(
                "{}: column {column}: found {text:?}, legal is a number",
                self.place
            )
        })
    }

    /// Returns the number in a column; `None` if the field is empty.
    ///
    /// # Errors
    /// If the field has something other than a number.
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
