//! Reading and writing rows as CSV with named columns (RFC 4180: fields may be quoted).

use blklab_elevator::SchedulerChoice;
use blklab_workload::fio::{self, Direction};

use crate::row::{Measured, Row, RowError, direction_name};

/// A column of the file.
struct Column {
    name: &'static str,
    /// Whether a file must have the column.
    needed: bool,
    /// The field of a row.
    of: fn(&Row) -> String,
}

impl Column {
    const fn needed(name: &'static str, of: fn(&Row) -> String) -> Column {
        Column {
            name,
            needed: true,
            of,
        }
    }

    const fn optional(name: &'static str, of: fn(&Row) -> String) -> Column {
        Column {
            name,
            needed: false,
            of,
        }
    }
}

/// All columns, in the order of [`write_csv`].
const COLUMNS: [Column; 15] = [
    Column::optional("study", |row| row.study.clone()),
    Column::needed("scheduler", |row| row.scheduler.clone()),
    Column::optional("note", |row| row.note.clone()),
    Column::needed("rw", |row| row.rw.clone()),
    Column::needed("direction", |row| direction_name(row.direction).to_string()),
    Column::optional("rwmixread", |row| row.read_percent.to_string()),
    Column::optional("options", |row| row.options.clone()),
    Column::needed("bs", |row| row.bs.clone()),
    Column::needed("iodepth", |row| row.iodepth.to_string()),
    Column::needed("processes", |row| row.processes.to_string()),
    Column::needed("cores", |row| row.cores.to_string()),
    Column::needed("devices", |row| row.devices.to_string()),
    Column::needed("iops", |row| row.measured.iops.to_string()),
    Column::needed("lat_mean_us", |row| or_empty(row.measured.lat_mean_us)),
    Column::needed("clat_p99_us", |row| or_empty(row.measured.clat_p99_us)),
];

/// Formats a number; one that was not measured is an empty field.
fn or_empty(figure: Option<f64>) -> String {
    figure.map_or(String::new(), |figure| figure.to_string())
}

/// Names of the required columns.
fn needed() -> impl Iterator<Item = &'static str> {
    let needed = COLUMNS.iter().filter(|column| column.needed);
    needed.map(|column| column.name)
}

/// Parses rows; `file` is the name of the file in messages.
///
/// # Errors
/// At the first malformed line; the message has file, line and column.
pub fn read_csv(file: &str, text: &str) -> Result<Vec<Row>, RowError> {
    let at = |line: u64, column: &str, problem: String| RowError {
        file: file.to_string(),
        line: usize::try_from(line).unwrap_or(usize::MAX),
        column: column.to_string(),
        problem,
    };
    let text = text.trim_start_matches('\u{feff}');
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .from_reader(text.as_bytes());
    let mut records = reader.records();
    let unreadable = |error: csv::Error| {
        let line = error.position().map_or(1, csv::Position::line);
        at(line, "", error.to_string())
    };
    let Some(columns) = records.next().transpose().map_err(unreadable)? else {
        let problem = "the file is empty; a line of column names comes first";
        return Err(at(1, "", problem.into()));
    };
    if let Some(missing) = needed().find(|name| !columns.iter().any(|c| c == *name)) {
        let needed: Vec<&str> = needed().collect();
        let problem = format!("is missing; a file of results has {}", needed.join(", "));
        return Err(at(1, missing, problem));
    }
    let mut rows = Vec::new();
    for values in records {
        let values = values.map_err(unreadable)?;
        let line = values.position().map_or(1, csv::Position::line);
        if values.iter().all(|value| value.trim().is_empty()) && values.len() == 1 {
            continue;
        }
        if values.len() != columns.len() {
            let problem = format!(
                "found {} fields, the first line names {}",
                values.len(),
                columns.len()
            );
            return Err(at(line, "", problem));
        }
        let record = Record {
            columns: &columns,
            values: &values,
        };
        let row = record.row();
        rows.push(row.map_err(|(column, problem)| at(line, column, problem))?);
    }
    Ok(rows)
}

struct Record<'a> {
    columns: &'a csv::StringRecord,
    values: &'a csv::StringRecord,
}

type Fault = (&'static str, String);

impl Record<'_> {
    fn row(&self) -> Result<Row, Fault> {
        let row = Row {
            study: self.text("study").to_string(),
            scheduler: self.scheduler()?,
            note: self.text("note").to_string(),
            rw: self.option("rw")?,
            direction: self.direction()?,
            read_percent: self.read_percent()?,
            options: self.options()?,
            bs: self.option("bs")?,
            iodepth: self.count("iodepth", 65535)?,
            processes: self.count("processes", 4096)?,
            cores: self.count("cores", 4096)?,
            devices: self.count("devices", 256)?,
            read_before_bytes: 0,
            measured: Measured {
                iops: self.number("iops")?,
                lat_mean_us: self.number_if_any("lat_mean_us")?,
                clat_p99_us: self.number_if_any("clat_p99_us")?,
            },
        };
        match row.too_many_in_flight() {
            None => Ok(row),
            Some(problem) => Err(("lat_mean_us", problem)),
        }
    }

    /// The value of a column; empty if the file has no such column.
    fn text(&self, name: &str) -> &str {
        let at = self.columns.iter().position(|column| column == name);
        at.map_or("", |at| &self.values[at])
    }

    fn scheduler(&self) -> Result<String, Fault> {
        let name = self.text("scheduler");
        match SchedulerChoice::named(name) {
            Ok(_) => Ok(name.to_string()),
            Err(problem) => Err(("scheduler", problem.to_string())),
        }
    }

    /// Checks a value with fio's parser for the option of that name.
    fn option(&self, name: &'static str) -> Result<String, Fault> {
        let value = self.text(name);
        let words = ["--name=row".to_string(), format!("--{name}={value}")];
        match fio::parse_args(&words, &|_| None) {
            Ok(_) => Ok(value.to_string()),
            Err(problem) => Err((name, format!("found {value:?}: {problem}"))),
        }
    }

    /// Checks further options with fio's parser.
    fn options(&self) -> Result<String, Fault> {
        let value = self.text("options");
        let options = value.split_whitespace().map(|word| format!("--{word}"));
        let words: Vec<String> = std::iter::once("--name=row".to_string())
            .chain(options)
            .collect();
        match fio::parse_args(&words, &|_| None) {
            Ok(_) => Ok(value.to_string()),
            Err(problem) => Err(("options", format!("found {value:?}: {problem}"))),
        }
    }

    fn direction(&self) -> Result<Direction, Fault> {
        match self.text("direction") {
            "read" => Ok(Direction::Read),
            "write" => Ok(Direction::Write),
            other => Err((
                "direction",
                format!("found {other:?}, legal is read or write"),
            )),
        }
    }

    /// The percentage of reads; half by default, as in fio.
    fn read_percent(&self) -> Result<u32, Fault> {
        match self.text("rwmixread") {
            "" => Ok(50),
            _ => self.count("rwmixread", 99),
        }
    }

    fn count(&self, name: &'static str, most: u32) -> Result<u32, Fault> {
        let text = self.text(name);
        let number = text.parse().ok().filter(|n| (1..=most).contains(n));
        number.ok_or_else(|| {
            let problem = format!("found {text:?}, legal is a whole number from 1 to {most}");
            (name, problem)
        })
    }

    /// A number, unless the field is empty.
    fn number_if_any(&self, name: &'static str) -> Result<Option<f64>, Fault> {
        match self.text(name) {
            "" => Ok(None),
            _ => self.number(name).map(Some),
        }
    }

    fn number(&self, name: &'static str) -> Result<f64, Fault> {
        let text = self.text(name);
        let number = text
            .parse()
            .ok()
            .filter(|n: &f64| n.is_finite() && *n > 0.0);
        number.ok_or_else(|| (name, format!("found {text:?}, legal is a number above 0")))
    }
}

/// Writes rows in the format of [`read_csv`].
pub fn write_csv(rows: &[Row]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let heading = COLUMNS.map(|column| column.name.to_string());
    let fields = |row| COLUMNS.map(|column| (column.of)(row));
    for fields in std::iter::once(heading).chain(rows.iter().map(fields)) {
        // Writing to memory cannot fail, and all rows have the same length.
        let _ = writer.write_record(fields);
    }
    let bytes = writer.into_inner().unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEAD: &str = "study,scheduler,note,rw,direction,bs,iodepth,processes,cores,devices,iops,lat_mean_us,clat_p99_us\n";

    fn error(line: &str) -> String {
        read_csv("r.csv", &format!("{HEAD}{line}\n"))
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn a_row_is_read_with_its_quotes() {
        let rows = read_csv(
            "r.csv",
            &format!("{HEAD}s,kyber,\"a, \"\"b\"\"\",randrw,write,4k,128,1,2,1,1000.5,9,20\n"),
        )
        .unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].note, "a, \"b\"");
        assert_eq!((rows[0].iodepth, rows[0].cores), (128, 2));
        assert_eq!(rows[0].measured.iops, 1000.5);
        assert_eq!(rows[0].measured.lat_mean_us, Some(9.0));
        assert_eq!(rows[0].read_percent, 50);
        assert_eq!(read_csv("again.csv", &write_csv(&rows)), Ok(rows));
    }

    #[test]
    fn mistakes_have_file_line_and_column() {
        assert_eq!(
            error("s,none,,randread,read,4k,x,1,1,1,1,1,1"),
            "r.csv:2: column `iodepth`: found \"x\", legal is a whole number from 1 to 65535"
        );
        assert_eq!(
            error("s,none,,randread,read,4k,1,1,1,1,-3,1,1"),
            "r.csv:2: column `iops`: found \"-3\", legal is a number above 0"
        );
        assert_eq!(
            error("s,none,,randread,up,4k,1,1,1,1,1,1,1"),
            "r.csv:2: column `direction`: found \"up\", legal is read or write"
        );
        assert_eq!(
            error("s,none"),
            "r.csv:2: found 2 fields, the first line names 13"
        );
        for (line, column, word) in [
            (
                "s,nonne,,randread,read,4k,1,1,1,1,1,1,1",
                "scheduler",
                "none",
            ),
            ("s,none,,randread,read,4q,1,1,1,1,1,1,1", "bs", "4q"),
            ("s,none,,randred,read,4k,1,1,1,1,1,1,1", "rw", "randread"),
            (
                "\"two\nlines\",none,,randread,read,4q,1,1,1,1,1,1,1",
                "bs",
                "4q",
            ),
        ] {
            let error = error(line);
            let place = format!("r.csv:2: column `{column}`: ");
            assert!(error.starts_with(&place), "{error}");
            assert!(error.contains(word), "{error}");
        }
        let missing = read_csv("r.csv", "study,rw\n").unwrap_err();
        assert_eq!((missing.line, missing.column.as_str()), (1, "scheduler"));
    }

    #[test]
    fn more_in_flight_than_the_depth_allows_is_refused() {
        assert_eq!(
            error("s,none,,randread,read,4k,4,2,1,1,100000,900,1000"),
            "r.csv:2: column `lat_mean_us`: 100000 I/Os a second of 900 us each are 90.0 in \
             flight, where 2 processes at depth 4 have 8 at most"
        );
        let most = "s,none,,randread,read,4k,4,2,1,1,10000,800,1000";
        assert!(read_csv("r.csv", &format!("{HEAD}{most}\n")).is_ok());
    }

    #[test]
    fn an_engine_and_figures_that_nobody_measured_are_read() {
        let head = HEAD.replace("bs,", "options,bs,");
        let row = "s,none,,randread,read,ioengine=libaio size=5g,4k,1,1,1,1,1000,,";
        let rows = read_csv("r.csv", &format!("{head}{row}\n")).unwrap();
        assert_eq!(rows[0].options, "ioengine=libaio size=5g");
        assert_eq!(rows[0].measured.figures(), [Some(1000.0), None, None]);
        let wrong = format!("{head}{}\n", row.replace("libaio", "libio"));
        let error = read_csv("r.csv", &wrong).unwrap_err().to_string();
        assert!(error.starts_with("r.csv:2: column `options`: "), "{error}");
    }

    #[test]
    fn lines_are_those_of_the_file() {
        let row = "\"two\nlines\",none,,randread,read,4k,1,1,1,1,1,1,1";
        let text = format!("{HEAD}{row}\n\n{row}\ns,none\n");
        let error = read_csv("r.csv", &text).unwrap_err();
        assert_eq!(error.line, 7, "{error}");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            study in "[a-z ,\"\r\n]{0,12}",
            note in "[a-z ,\"\r\n]{0,12}",
            // What one I/O of a microsecond at a time allows.
            iops in 0.001f64..1e6,
        ) {
            let text = format!("{HEAD}s,none,,randread,read,4k,1,1,1,1,1,1,1\n");
            let mut rows = read_csv("r.csv", &text).unwrap();
            rows[0].study = study;
            rows[0].note = note;
            rows[0].measured.iops = iops;
            prop_assert_eq!(read_csv("again.csv", &write_csv(&rows)), Ok(rows));
        }

        #[test]
        fn no_text_makes_it_panic(text in "[a-z0-9,\"\\n]{0,80}") {
            let _ = read_csv("r.csv", &text);
            let _ = read_csv("r.csv", &format!("{HEAD}{text}"));
        }
    }
}
