//! Rows from a CSV file with named columns (RFC 4180: fields may be quoted).

use blklab_workload::fio::Direction;

use crate::row::{Measured, Row, RowError, direction_name};

/// Columns that must be there.
const NEEDED: [&str; 11] = [
    "scheduler",
    "rw",
    "direction",
    "bs",
    "iodepth",
    "processes",
    "cores",
    "devices",
    "iops",
    "lat_mean_us",
    "clat_p99_us",
];

/// Reads rows; `file` stands for the file in messages.
///
/// # Errors
/// At the first line that is no row, with file, line and column.
pub fn read_csv(file: &str, text: &str) -> Result<Vec<Row>, RowError> {
    let at = |line: usize, column: &str, problem: String| RowError {
        file: file.to_string(),
        line,
        column: column.to_string(),
        problem,
    };
    let mut lines = text.lines().enumerate().map(|(n, line)| (n + 1, line));
    let Some((_, heading)) = lines.next() else {
        return Err(at(
            1,
            "",
            "the file is empty; a line of column names comes first".into(),
        ));
    };
    let columns = fields(heading.trim_start_matches('\u{feff}')).map_err(|p| at(1, "", p))?;
    if let Some(missing) = NEEDED
        .iter()
        .find(|name| !columns.iter().any(|c| c == *name))
    {
        let problem = format!("is missing; a file of results has {}", NEEDED.join(", "));
        return Err(at(1, missing, problem));
    }
    let mut rows = Vec::new();
    for (line, text) in lines.filter(|(_, text)| !text.trim().is_empty()) {
        let values = fields(text).map_err(|p| at(line, "", p))?;
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
        rows.push(
            record
                .row()
                .map_err(|(column, problem)| at(line, column, problem))?,
        );
    }
    Ok(rows)
}

struct Record<'a> {
    columns: &'a [String],
    values: &'a [String],
}

type Fault = (&'static str, String);

impl Record<'_> {
    fn row(&self) -> Result<Row, Fault> {
        Ok(Row {
            study: self.text("study").to_string(),
            scheduler: self.text("scheduler").to_string(),
            note: self.text("note").to_string(),
            rw: self.text("rw").to_string(),
            direction: self.direction()?,
            read_percent: self.read_percent()?,
            bs: self.text("bs").to_string(),
            iodepth: self.count("iodepth", 65535)?,
            processes: self.count("processes", 4096)?,
            cores: self.count("cores", 4096)?,
            devices: self.count("devices", 256)?,
            measured: Measured {
                iops: self.number("iops")?,
                lat_mean_us: self.number("lat_mean_us")?,
                clat_p99_us: self.number("clat_p99_us")?,
            },
        })
    }

    /// The value of a column; empty where the file has no such column.
    fn text(&self, name: &str) -> &str {
        let at = self.columns.iter().position(|column| column == name);
        at.map_or("", |at| self.values[at].as_str())
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

    /// fio mixes half and half where nobody says otherwise.
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

    fn number(&self, name: &'static str) -> Result<f64, Fault> {
        let text = self.text(name);
        let number = text
            .parse()
            .ok()
            .filter(|n: &f64| n.is_finite() && *n > 0.0);
        number.ok_or_else(|| (name, format!("found {text:?}, legal is a number above 0")))
    }
}

/// Rows as [`read_csv`] reads them.
pub fn write_csv(rows: &[Row]) -> String {
    let mut text = String::from("study,scheduler,note,rw,direction,rwmixread,bs,iodepth,");
    text.push_str("processes,cores,devices,iops,lat_mean_us,clat_p99_us\n");
    for row in rows {
        let quoted = |field: &str| match field.contains([',', '"', '\n']) {
            true => format!("\"{}\"", field.replace('"', "\"\"")),
            false => field.to_string(),
        };
        let words = [&row.study, &row.scheduler, &row.note, &row.rw];
        for word in words {
            text.push_str(&quoted(word));
            text.push(',');
        }
        let m = &row.measured;
        text.push_str(&format!(
            "{},{},{},{},{},{},{},{},{},{}\n",
            direction_name(row.direction),
            row.read_percent,
            quoted(&row.bs),
            row.iodepth,
            row.processes,
            row.cores,
            row.devices,
            m.iops,
            m.lat_mean_us,
            m.clat_p99_us
        ));
    }
    text
}

/// Splits a line at commas outside of quotes.
fn fields(line: &str) -> Result<Vec<String>, String> {
    let mut fields = Vec::new();
    let (mut field, mut quoted) = (String::new(), false);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => {
                letters.next();
                field.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(std::mem::take(&mut field)),
            other => field.push(other),
        }
    }
    if quoted {
        return Err("a quote is opened and not closed".to_string());
    }
    fields.push(field);
    Ok(fields)
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
        let missing = read_csv("r.csv", "study,rw\n").unwrap_err();
        assert_eq!((missing.line, missing.column.as_str()), (1, "scheduler"));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[a-z0-9,\"\\n]{0,80}") {
            let _ = read_csv("r.csv", &text);
            let _ = read_csv("r.csv", &format!("{HEAD}{text}"));
        }
    }
}
