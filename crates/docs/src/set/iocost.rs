//! The coefficients of io.cost for drives: the drive of each submission is described by
//! three of its six coefficients, its capacity and a rate from drives of other models,
//! and then measured like the real one.

use std::collections::BTreeMap;

use blklab_calibrate::measure_iocost;
use blklab_device::registry;
use blklab_sim::Machine;

use super::Figure;
use super::folder::{Folder, Record};

/// The coefficients that describe a drive.
const GIVEN: [&str; 3] = ["rbps", "rrandiops", "wrandiops"];

/// Length of each job in simulated seconds.
const SECONDS: u32 = 1;

/// Returns all six coefficients of every submission that measured them.
pub fn figures(folder: &Folder) -> Vec<Figure> {
    const FILE: &str = "coefficients.csv";
    let rates = program_rates(folder.each(FILE, |record| match is_measured(record)? {
        true => program_rate(record).map(Some),
        false => Ok(None),
    }));
    let submissions = folder.each(FILE, |record| match is_measured(record)? {
        true => figures_of(record, &rates).map(Some),
        false => Ok(None),
    });
    submissions.into_iter().flatten().collect()
}

/// Whether the submission measured the coefficients and did not take them from another.
fn is_measured(record: &Record) -> Result<bool, String> {
    Ok(record.text("measured_in_this_submission")? == "1")
}

fn figures_of(record: &Record, rates: &BTreeMap<String, f64>) -> Result<Vec<Figure>, String> {
    let (machine, _) = Machine::load("generic-8")?;
    let rate = rate_of_others(rates, record.text("model")?);
    let (drive, _) = registry::load_with("null", &description(record, rate)?)?;
    let found = measure_iocost(&drive, &machine, SECONDS, 1).map_err(|e| e.to_string())?;
    let row = format!(
        "{} db {} submission {}",
        record.text("model")?,
        record.text("db_version")?,
        record.text("submission")?
    );
    let mut figures = Vec::new();
    for (metric, simulated) in found.coefficients() {
        figures.push(Figure {
            group: metric.to_string(),
            row: row.clone(),
            metric: match metric.ends_with("bps") {
                true => "B/s",
                false => "IOPS",
            },
            measured: record.figure(metric)?,
            simulated: Some(simulated as f64),
            is_fitted: GIVEN.contains(&metric),
            is_left_out: !GIVEN.contains(&metric),
        });
    }
    Ok(figures)
}

/// Returns a drive's model and its rate of sequential writes in MB a second for each GB: a
/// larger drive has more dies that program at once.
fn program_rate(record: &Record) -> Result<(String, f64), String> {
    let bytes: f64 = record.number("wbps")?;
    let capacity_gb: f64 = record.number("capacity_gb")?;
    let rate = bytes / 1e6 / capacity_gb.max(1.0);
    Ok((record.text("model")?.to_string(), rate))
}

/// Returns the mean rate of each model.
fn program_rates(of_drives: Vec<(String, f64)>) -> BTreeMap<String, f64> {
    let mut rates: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (model, rate) in of_drives {
        rates.entry(model).or_default().push(rate);
    }
    let means = rates.into_iter().map(|(model, rates)| {
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        (model, mean)
    });
    means.collect()
}

/// Returns the median rate of the other models; `None` if there are none.
fn rate_of_others(rates: &BTreeMap<String, f64>, model: &str) -> Option<f64> {
    let others = rates.iter().filter(|(name, _)| *name != model);
    let mut others: Vec<f64> = others.map(|(_, rate)| *rate).collect();
    others.sort_by(f64::total_cmp);
    others.get(others.len() / 2).copied()
}

/// Returns the keys of a null drive with the given coefficients: the interval between
/// the starts of commands in each direction, the bandwidth of its link, and the program
/// rate, which is estimated from its capacity and the other models.
fn description(record: &Record, rate: Option<f64>) -> Result<Vec<(String, String)>, String> {
    let interval_ns = |column: &str| {
        let iops: f64 = record.number(column)?;
        Ok::<u64, String>((1e9 / iops.max(1.0)).round() as u64)
    };
    let bytes: f64 = record.number("rbps")?;
    let mb_s = (bytes / 1e6).round().max(1.0) as u64;
    let capacity_gb: f64 = record.number("capacity_gb")?;
    // Its sequential writes are at least as fast as its random ones.
    let random_iops: f64 = record.number("wrandiops")?;
    let least_mb_s = random_iops * 4096.0 / 1e6;
    let programs_mb_s = rate.map(|rate| (rate * capacity_gb).max(least_mb_s).ceil() as u64);
    let values = [
        ("timing.parallelism", 4096),
        ("timing.read_interval_ns", interval_ns("rrandiops")?),
        ("timing.write_interval_ns", interval_ns("wrandiops")?),
        ("timing.read_bandwidth_mb_s", mb_s),
        ("timing.write_bandwidth_mb_s", programs_mb_s.unwrap_or(mb_s)),
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
        let text = "rbps,rrandiops,wrandiops,capacity_gb\n2000000000,100000,50000,500\n";
        let record = &records("c", text.as_bytes()).expect("a table")[0];
        let values = description(record, Some(1.5)).expect("numbers");
        let value = |key: &str| {
            values
                .iter()
                .find(|(name, _)| name == key)
                .map(|v| v.1.as_str())
        };
        assert_eq!(value("timing.read_interval_ns"), Some("10000"));
        assert_eq!(value("timing.write_interval_ns"), Some("20000"));
        assert_eq!(value("timing.read_bandwidth_mb_s"), Some("2000"));
        assert_eq!(value("timing.write_bandwidth_mb_s"), Some("750"));
        registry::load_with("null", &values).expect("a drive");
    }

    #[test]
    fn a_model_says_nothing_of_itself() {
        let text = "model,wbps,capacity_gb\na,100000000,100\na,300000000,100\n\
                    b,500000000,100\nc,900000000,100\n";
        let records = records("c", text.as_bytes()).expect("a table");
        let of_drives: Result<Vec<_>, _> = records.iter().map(program_rate).collect();
        let rates = program_rates(of_drives.expect("numbers"));
        assert_eq!(rates["a"], 2.0);
        assert_eq!(rate_of_others(&rates, "a"), Some(9.0));
        assert_eq!(rate_of_others(&rates, "c"), Some(5.0));
        let one = BTreeMap::from([("a".to_string(), 1.0)]);
        assert_eq!(rate_of_others(&one, "a"), None);
    }
}
