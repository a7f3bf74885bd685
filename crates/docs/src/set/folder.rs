//! A set's folder and its tables.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

/// A set's folder.
pub struct Folder {
    path: PathBuf,
    /// Why files and rows were left out.
    left_out: RefCell<Vec<String>>,
}

impl Folder {
    /// Creates the folder at that path.
    pub fn new(path: &Path) -> Folder {
        Folder {
            path: path.to_path_buf(),
            left_out: RefCell::default(),
        }
    }

    /// Returns the path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Reads what each record of a CSV file gives, if it gives anything. A record that cannot be
    /// read is left out, and so are all of a file that cannot be: a set may have a part of the
    /// files, or rows of a kind that no other has.
    pub fn each<T>(
        &self,
        name: &str,
        read: impl Fn(&Record) -> Result<Option<T>, String>,
    ) -> Vec<T> {
        let records = self.records_if_any(name);
        let readable = records.iter().filter_map(|record| {
            let read = read(record);
            read.map_err(|why| self.leave_out(why)).ok().flatten()
        });
        readable.collect()
    }

    /// Reads the records of a CSV file, which is left out if it cannot be read.
    pub fn records_if_any(&self, name: &str) -> Vec<Record> {
        self.records(name).unwrap_or_else(|why| {
            self.leave_out(why);
            Vec::new()
        })
    }

    /// Leaves out a part of the set.
    pub fn leave_out(&self, why: String) {
        self.left_out.borrow_mut().push(why);
    }

    /// Returns why parts of the set were left out.
    pub fn take_left_out(&self) -> Vec<String> {
        self.left_out.take()
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
    /// Returns a message with the place of the record.
    pub fn problem(&self, what: &str) -> String {
        format!("{}: {what}", self.place)
    }

    /// Returns the text in a column.
    ///
    /// # Errors
    /// If there is no such column.
    pub fn text(&self, column: &str) -> Result<&str, String> {
        let at = self.columns.iter().position(|name| name == column);
        let value = at.and_then(|at| self.values.get(at));
        value
            .map(String::as_str)
            .ok_or_else(|| self.problem(&format!("there is no column {column}")))
    }

    /// Returns the number in a column.
    ///
    /// # Errors
    /// If there is none.
    pub fn number<N: std::str::FromStr>(&self, column: &str) -> Result<N, String> {
        let text = self.text(column)?;
        let mistake = || format!("column {column}: found {text:?}, legal is a number");
        text.parse().map_err(|_| self.problem(&mistake()))
    }

    /// Returns the measured figure in a column.
    ///
    /// # Errors
    /// If there is none, or if it is not above zero.
    pub fn figure(&self, column: &str) -> Result<f64, String> {
        let figure: f64 = self.number(column)?;
        match figure.is_finite() && figure > 0.0 {
            true => Ok(figure),
            false => Err(self.problem(&format!(
                "column {column}: found {figure}, legal is a number above 0"
            ))),
        }
    }

    /// Returns the measured figure in a column; `None` if the field is empty.
    ///
    /// # Errors
    /// If the field has something other than a number above zero.
    pub fn figure_if_any(&self, column: &str) -> Result<Option<f64>, String> {
        match self.text(column)? {
            "" => Ok(None),
            _ => self.figure(column).map(Some),
        }
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
    use super::{Folder, records};

    #[test]
    fn what_cannot_be_read_is_left_out_and_told() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("s.csv"), "a,b\n1,x\n2,y\n3,x\nz,x\n").expect("a file");
        let folder = Folder::new(dir.path());
        let of_x = |record: &super::Record| match record.text("b")? {
            "x" => record.number::<u32>("a").map(Some),
            _ => Ok(None),
        };
        assert_eq!(folder.each("s.csv", of_x), [1, 3]);
        assert!(folder.each("t.csv", of_x).is_empty());
        let [row, file] = &folder.take_left_out()[..] else {
            panic!("a row and a file");
        };
        assert!(row.contains("s.csv:5: column a: found \"z\""), "{row}");
        assert!(file.contains("t.csv: "), "{file}");
        assert!(folder.take_left_out().is_empty());
    }

    #[test]
    fn a_mistake_has_its_line_and_column() {
        let rows = records("s.csv", "a,b\n1,x\n,2\n".as_bytes()).expect("a table");
        assert_eq!(rows[0].number("a"), Ok(1));
        assert_eq!(rows[1].number_if_any::<u32>("a"), Ok(None));
        let wrong = rows[0].number::<f64>("b").expect_err("no number");
        assert_eq!(wrong, "s.csv:2: column b: found \"x\", legal is a number");
        assert!(rows[0].text("c").is_err());
        let nothing = &records("s.csv", "a\n0\n".as_bytes()).expect("a table")[0];
        assert!(nothing.figure("a").expect_err("zero").contains("above 0"));
    }
}
