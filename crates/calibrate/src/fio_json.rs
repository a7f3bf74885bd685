//! Parser for rows in fio's JSON (`--output-format=json`).

use blklab_workload::fio::Direction;
use serde_json::Value;

use crate::row::{Measured, Row, RowError};

/// Parses a row for every job and direction with I/O; `scheduler` is not in fio's output. Jobs must
/// be reported as groups.
///
/// # Errors
/// If the text is not fio's JSON; the line is that of the JSON text, or the number of the job.
pub fn read_fio_json(file: &str, text: &str, scheduler: &str) -> Result<Vec<Row>, RowError> {
    let at = |line: usize, column: &str, problem: String| RowError {
        file: file.to_string(),
        line,
        column: column.to_string(),
        problem,
    };
    let whole: Value =
        serde_json::from_str(text).map_err(|e| at(e.line(), "", format!("no JSON: {e}")))?;
    let Some(jobs) = whole["jobs"].as_array() else {
        return Err(at(
            1,
            "jobs",
            "is missing; fio writes it with --output-format=json".into(),
        ));
    };
    let mut rows = Vec::new();
    for (n, job) in jobs.iter().enumerate() {
        let options = Options {
            own: &job["job options"],
            global: &whole["global options"],
        };
        for (direction, name) in [(Direction::Read, "read"), (Direction::Write, "write")] {
            let side = &job[name];
            if side["total_ios"].as_f64().unwrap_or(0.0) == 0.0 {
                continue;
            }
            let row = row(options, direction, side, scheduler);
            let mut row = row.map_err(|(column, problem)| at(n + 1, column, problem))?;
            row.study = job["jobname"].as_str().unwrap_or("fio").to_string();
            rows.push(row);
        }
    }
    Ok(rows)
}

#[derive(Clone, Copy)]
struct Options<'a> {
    own: &'a Value,
    global: &'a Value,
}

impl Options<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        self.own[name].as_str().or(self.global[name].as_str())
    }

    /// The engine and its options; empty if no engine is given.
    fn of_engine(&self) -> String {
        let said = ENGINE_OPTIONS.iter().filter_map(|name| {
            let value = self.text(name)?;
            Some(match value {
                "" => format!("{name}=1"),
                value => format!("{name}={value}"),
            })
        });
        match self.text("ioengine") {
            None => String::new(),
            Some(_) => said.collect::<Vec<String>>().join(" "),
        }
    }

    fn count(&self, name: &'static str) -> Result<u32, Fault> {
        match self.text(name) {
            None => Ok(1),
            Some(text) => text
                .parse()
                .map_err(|_| (name, format!("found {text:?}, legal is a whole number"))),
        }
    }
}

type Fault = (&'static str, String);

/// Options that determine how an I/O is submitted and how its completion is detected.
const ENGINE_OPTIONS: [&str; 5] = [
    "ioengine",
    "hipri",
    "sqthread_poll",
    "fixedbufs",
    "registerfiles",
];

fn row(
    options: Options<'_>,
    direction: Direction,
    side: &Value,
    scheduler: &str,
) -> Result<Row, Fault> {
    let processes = options.count("numjobs")?;
    let files = options.text("filename").unwrap_or("");
    Ok(Row {
        study: String::new(),
        scheduler: scheduler.to_string(),
        note: String::new(),
        rw: options.text("rw").unwrap_or("read").to_string(),
        direction,
        read_percent: match options.text("rwmixread") {
            Some(_) => options.count("rwmixread")?,
            None => 50,
        },
        options: options.of_engine(),
        bs: options.text("bs").unwrap_or("4k").to_string(),
        iodepth: options.count("iodepth")?,
        processes,
        cores: cores(options, processes)?,
        devices: files.split(':').count() as u32,
        read_before_bytes: 0,
        measured: Measured {
            iops: positive("iops", &side["iops"], 1.0)?,
            lat_mean_us: Some(positive("lat_ns.mean", &side["lat_ns"]["mean"], 1e-3)?),
            clat_p99_us: Some(positive(
                "clat_ns.percentile.99.000000",
                &side["clat_ns"]["percentile"]["99.000000"],
                1e-3,
            )?),
        },
    })
}

/// Number of cores in `cpus_allowed`; one for each process if it is not given.
fn cores(options: Options<'_>, processes: u32) -> Result<u32, Fault> {
    let Some(list) = options.text("cpus_allowed") else {
        return Ok(processes);
    };
    let count = |part: &str| -> Option<u32> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?
            .checked_add(1)
            .filter(|&n| n <= 4096)
    };
    let counts: Option<Vec<u32>> = list.split(',').map(count).collect();
    let sum = counts.map(|c| c.iter().map(|&n| u64::from(n)).sum::<u64>());
    sum.and_then(|n| u32::try_from(n).ok()).ok_or_else(|| {
        (
            "cpus_allowed",
            format!("found {list:?}, legal is a list such as 0-3,8"),
        )
    })
}

fn positive(name: &'static str, value: &Value, scale: f64) -> Result<f64, Fault> {
    match value.as_f64() {
        Some(number) if number > 0.0 => Ok(number * scale),
        _ => Err((name, format!("found {value}, legal is a number above 0"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rows_come_from_fios_json() {
        let text = r#"{"global options": {"iodepth": "8", "cpus_allowed": "0-1,4"},
            "jobs": [{"jobname": "a", "job options": {"rw": "randrw", "bs": "8k"},
              "read": {"total_ios": 5, "iops": 10.0, "lat_ns": {"mean": 2000.0},
                       "clat_ns": {"percentile": {"99.000000": 5000}}},
              "write": {"total_ios": 0}}]}"#;
        let rows = read_fio_json("f.json", text, "bfq").unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(
            (rows[0].iodepth, rows[0].cores, rows[0].bs.as_str()),
            (8, 3, "8k")
        );
        assert_eq!(rows[0].measured.clat_p99_us, Some(5.0));
        let error = read_fio_json("f.json", &text.replace("2000.0", "0"), "bfq").unwrap_err();
        assert_eq!((error.line, error.column.as_str()), (1, "lat_ns.mean"));
        assert_eq!(
            read_fio_json("f.json", "{\n x", "none").unwrap_err().line,
            2
        );
    }

    proptest! {
        #[test]
        fn no_json_makes_it_panic(
            key in prop_oneof![
                Just("iodepth"), Just("numjobs"), Just("cpus_allowed"), Just("bs"),
                Just("rw"), Just("filename"), Just("rwmixread"),
            ],
            option in "[-0-9a-z,:%/]{0,12}",
            figure in prop_oneof![
                Just("null".to_string()),
                Just("[]".to_string()),
                Just("\"1\"".to_string()),
                any::<i64>().prop_map(|n| n.to_string()),
                any::<f64>().prop_filter("JSON has no other", |f| f.is_finite())
                    .prop_map(|f| format!("{f:e}")),
            ],
            cut in 0..400usize,
        ) {
            let text = format!(
                r#"{{"global options": {{"{key}": "{option}"}}, "jobs": [{{"jobname": "a",
                "job options": {{"rw": "randrw", "{key}": "{option}"}},
                "read": {{"total_ios": {figure}, "iops": {figure}, "lat_ns": {{"mean": {figure}}},
                "clat_ns": {{"percentile": {{"99.000000": {figure}}}}}}}}}]}}"#
            );
            let _ = read_fio_json("f.json", &text, "none");
            let _ = read_fio_json("f.json", &text[..cut.min(text.len())], "none");
        }
    }
}
