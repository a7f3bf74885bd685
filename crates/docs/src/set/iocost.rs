//! What io.cost is told of drives: each submission's drive is described by three of its
//! six coefficients, and measured as they were measured.

use blklab_calibrate::measure_iocost;
use blklab_device::registry;
use blklab_sim::Machine;

use super::Figure;
use super::folder::{Folder, Record};

/// The coefficients that a drive is described by.
const GIVEN: [&str; 3] = ["rbps", "rrandiops", "wrandiops"];

/// How long each job runs.
const SECONDS: u32 = 1;

/// All six of every submission that measured them.
pub fn figures(folder: &Folder) -> Result<Vec<Figure>, String> {
    let (machine, _) = Machine::load("generic-8")?;
    let mut figures = Vec::new();
    for record in folder.records("coefficients.csv")? {
        if record.text("measured_in_this_submission")? != "1" {
            continue;
        }
        let (drive, _) = registry::load_with("null", &description(&record)?)?;
        let found = measure_iocost(&drive, &machine, SECONDS, 1).map_err(|e| e.to_string())?;
        let row = format!(
            "{} db {} submission {}",
            record.text("model")?,
            record.text("db_version")?,
            record.text("submission")?
        );
        for (metric, simulated) in found.coefficients() {
            figures.push(Figure {
                group: metric.to_string(),
                row: row.clone(),
                metric: match metric.ends_with("bps") {
                    true => "B/s",
                    false => "IOPS",
                },
                measured: record.number(metric)?,
                simulated: Some(simulated as f64),
                is_fitted: GIVEN.contains(&metric),
            });
        }
    }
    Ok(figures)
}

/// The values of a null drive that has the given coefficients: how far commands of a
/// direction begin apart, and how fast data crosses its cable, which is one for both.
fn description(record: &Record) -> Result<Vec<(String, String)>, String> {
    let interval_ns = |column: &str| {
        let iops: f64 = record.number(column)?;
        Ok::<u64, String>((1e9 / iops.max(1.0)).round() as u64)
    };
    let bytes: f64 = record.number("rbps")?;
    let mb_s = (bytes / 1e6).round().max(1.0) as u64;
    let values = [
        ("timing.parallelism", 4096),
        ("timing.read_interval_ns", interval_ns("rrandiops")?),
        ("timing.write_interval_ns", interval_ns("wrandiops")?),
        ("timing.read_bandwidth_mb_s", mb_s),
        ("timing.write_bandwidth_mb_s", mb_s),
    ];
    let values = values.map(|(key, value)| (key.to_string(), value.to_string()));
    Ok(values.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::folder::records;

    #[test]
    fn a_drive_is_described_by_what_is_given() {
        let text = "rbps,rrandiops,wrandiops\n2000000000,100000,50000\n";
        let record = &records("c", text.as_bytes()).expect("a table")[0];
        let values = description(record).expect("numbers");
        let value = |key: &str| {
            values
                .iter()
                .find(|(name, _)| name == key)
                .map(|v| v.1.as_str())
        };
        assert_eq!(value("timing.read_interval_ns"), Some("10000"));
        assert_eq!(value("timing.write_interval_ns"), Some("20000"));
        assert_eq!(value("timing.read_bandwidth_mb_s"), Some("2000"));
        registry::load_with("null", &values).expect("a drive");
    }
}
