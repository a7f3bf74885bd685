//! Tables of what commands of their own measured, since that takes a real kernel or a machine
//! with nothing else to do.

use std::io::Read;

use serde::Deserialize;

use crate::part::{PagePart, Table};
use crate::program::Program;

/// A table of recorded measurements.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// A CSV file in the folder of measured data; its first line has the headings.
    file: String,
}

impl Block {
    /// Makes a table of the file.
    ///
    /// # Errors
    /// If the file cannot be read, or a line has another number of cells than the first.
    pub fn make(&self, program: &Program) -> Result<PagePart, String> {
        let file = program.data().join(&self.file);
        let in_file = |error: csv::Error| format!("{}: {error}", file.display());
        let reader = csv::Reader::from_path(&file).map_err(in_file)?;
        Ok(PagePart {
            text: markdown(reader).map_err(in_file)?,
            groups: Vec::new(),
        })
    }
}

fn markdown(mut reader: csv::Reader<impl Read>) -> Result<String, csv::Error> {
    let cells = |record: &csv::StringRecord| record.iter().map(str::to_string).collect();
    let mut table = Table::new(cells(reader.headers()?));
    for record in reader.records() {
        table.row(cells(&record?));
    }
    Ok(table.markdown())
}

#[cfg(test)]
mod tests {
    use super::markdown;

    fn of(csv: &str) -> Result<String, csv::Error> {
        markdown(csv::Reader::from_reader(csv.as_bytes()))
    }

    #[test]
    fn a_file_is_a_table() {
        let table = of("server,IOPS\nqemu,3\n").expect("a table");
        assert_eq!(table, "| server | IOPS |\n| --- | ---: |\n| qemu | 3 |\n");
    }

    #[test]
    fn a_line_that_is_cut_is_named() {
        let why = of("server,IOPS\nqemu\n").expect_err("a mistake");
        assert!(why.to_string().contains("line: 2"), "{why}");
    }
}
