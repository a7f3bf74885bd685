//! Tables as files.

use std::io::Write;
use std::path::Path;

use crate::WriteError;
use crate::column::{Table, Values};

/// A format of a table's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Apache Parquet.
    Parquet,
    /// Arrow's IPC file, Feather version 2.
    Arrow,
    /// Comma separated values with the columns' names in the first line.
    Csv,
}

impl Format {
    /// All formats with their file name extensions.
    pub const ALL: [(&'static str, Format); 3] = [
        ("parquet", Format::Parquet),
        ("arrow", Format::Arrow),
        ("csv", Format::Csv),
    ];

    /// Returns the format by a file's extension.
    ///
    /// # Errors
    /// If the extension is unknown, with a message for the user.
    pub fn of_path(path: &Path) -> Result<Format, String> {
        let end = path.extension().and_then(|end| end.to_str());
        let found = Format::ALL.iter().find(|(name, _)| Some(*name) == end);
        let (_, format) = found.ok_or_else(|| {
            format!(
                "{}: what is right ends with .parquet, .arrow or .csv",
                path.display()
            )
        })?;
        Ok(*format)
    }

    /// Writes a table in this format.
    ///
    /// # Errors
    /// If `out` or the format's library fails.
    pub fn write(self, table: &Table, out: &mut (impl Write + Send)) -> Result<(), WriteError> {
        match self {
            Format::Parquet => crate::parquet::write(table, out),
            Format::Csv => csv(table, out),
            Format::Arrow => crate::ipc::write(table, out),
        }
    }
}

fn csv(table: &Table, out: &mut impl Write) -> Result<(), WriteError> {
    let mut writer = csv::Writer::from_writer(out);
    let form = |error: csv::Error| WriteError::Format(error.to_string());
    let names = table.columns.iter().map(|column| column.name.as_str());
    writer.write_record(names).map_err(form)?;
    for row in 0..table.rows() {
        let cells = table.columns.iter().map(|column| cell(&column.values, row));
        writer.write_record(cells).map_err(form)?;
    }
    writer.flush()?;
    Ok(())
}

/// A cell of a CSV file; empty if the value is missing.
fn cell(values: &Values, row: usize) -> String {
    match values {
        Values::Integers(numbers) if !numbers.is_missing(row) => numbers.values[row].to_string(),
        Values::Numbers(numbers) if !numbers.is_missing(row) => numbers.values[row].to_string(),
        Values::Texts(texts) => texts.get(row).unwrap_or_default().to_string(),
        Values::Integers(_) | Values::Numbers(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column::{Declared, Numbers, Texts, Values};

    struct Row(Option<u64>, Option<f64>, &'static str);

    fn table() -> Table {
        let declared: [Declared<Row>; 3] = [
            Declared::integer("count", "", "How many.", |row: &Row| row.0),
            Declared::number("mean_ns", "ns", "How long.", |row: &Row| row.1),
            Declared::text("job", "Whose.", |row: &Row| Some(row.2)),
        ];
        let rows = [
            Row(Some(u64::MAX), None, "a, b"),
            Row(None, Some(1.5), "c"),
            Row(Some(3), Some(-2.0), "c"),
        ];
        Table::of(&declared, &rows)
    }

    #[test]
    fn csv_has_a_line_a_row_and_nothing_where_nothing_is_known() {
        let mut bytes = Vec::new();
        Format::Csv.write(&table(), &mut bytes).expect("written");
        assert_eq!(
            String::from_utf8(bytes).expect("text"),
            "count,mean_ns,job\n18446744073709551615,,\"a, b\"\n,1.5,c\n3,-2,c\n"
        );
    }

    #[test]
    fn parquet_is_read_back_as_it_was() {
        use ::parquet::file::reader::{FileReader, SerializedFileReader};
        let mut bytes = Vec::new();
        Format::Parquet
            .write(&table(), &mut bytes)
            .expect("written");
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).expect("is Parquet");
        let rows = reader.get_row_iter(None).expect("has rows");
        let lines: Vec<String> = rows
            .map(|row| row.expect("can be read").to_string())
            .collect();
        assert_eq!(
            lines,
            [
                "{count: 18446744073709551615, mean_ns: null, job: \"a, b\"}",
                "{count: null, mean_ns: 1.5, job: \"c\"}",
                "{count: 3, mean_ns: -2E0, job: \"c\"}",
            ]
        );
    }

    #[test]
    fn rows_come_back_from_json() {
        let table = table();
        let mut other = table.clone();
        for column in &mut other.columns {
            column.values = match column.values {
                Values::Integers(_) => Values::Integers(Numbers::default()),
                Values::Numbers(_) => Values::Numbers(Numbers::default()),
                Values::Texts(_) => Values::Texts(Texts::default()),
            };
        }
        for row in 0..table.rows() {
            let text = serde_json::to_string(&table.json_row(row)).expect("plain");
            other.push_json(&serde_json::from_str(&text).expect("an object"));
        }
        assert_eq!(other, table);
    }

    #[test]
    fn a_name_says_which_form() {
        let of = |name: &str| Format::of_path(Path::new(name));
        assert_eq!(of("a.parquet"), Ok(Format::Parquet));
        assert_eq!(of("a.csv"), Ok(Format::Csv));
        assert_eq!(of("a.arrow"), Ok(Format::Arrow));
        let wrong = of("a.txt").expect_err("no table");
        assert!(wrong.contains(".parquet, .arrow or .csv"), "{wrong}");
    }
}
