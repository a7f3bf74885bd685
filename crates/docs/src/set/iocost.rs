//! The coefficients of io.cost for drives: the drive of each submission is described by
//! three of its six coefficients and by what drives of other models have in common, and
//! then measured like the real one.

use std::collections::BTreeMap;

use blklab_calibrate::measure_iocost;
use blklab_device::registry;
use blklab_sim::Machine;

use super::Figure;
use super::folder::{Folder, Record};

/// The coefficients that describe a drive.
const GIVEN: [&str; 3] = ["rbps", "wbps", "wrandiops"];

/// Length of each job in simulated seconds.
const SECONDS: u32 = 1;

/// Returns all six coefficients of every submission that measured them.
pub fn figures(folder: &Folder) -> Vec<Figure> {
    const FILE: &str = "coefficients.csv";
    let factors = mean_factors(folder.each(FILE, |record| match is_measured(record)? {
        true => read_factor(record).map(Some),
        false => Ok(None),
    }));
    let submissions = folder.each(FILE, |record| match is_measured(record)? {
        true => figures_of(record, &factors).map(Some),
        false => Ok(None),
    });
    submissions.into_iter().flatten().collect()
}

/// Whether the submission measured the coefficients and did not take them from another.
fn is_measured(record: &Record) -> Result<bool, String> {
    Ok(record.text("measured_in_this_submission")? == "1")
}

fn figures_of(record: &Record, factors: &BTreeMap<String, f64>) -> Result<Vec<Figure>, String> {
    let (machine, _) = Machine::load("generic-8")?;
    let factor = factor_of_others(factors, record.text("model")?);
    let (drive, _) = registry::load_with("null", &description(record, factor)?)?;
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

/// Returns a drive's model and its reads of 4 KiB a second as a factor of what its writes
/// tell of them.
fn read_factor(record: &Record) -> Result<(String, f64), String> {
    let random: f64 = record.number("rrandiops")?;
    let sequential: f64 = record.number("rseqiops")?;
    let factor = (random.max(1.0) * sequential.max(1.0)).sqrt() / told_by_writes(record)?;
    Ok((record.text("model")?.to_string(), factor))
}

/// Returns what reads of 4 KiB a second are proportional to: dies serve both reads and writes,
/// and the more a drive has the more it writes, but not as much more: the square root of the
/// bandwidth of writes, which an SLC cache raises, and the fourth root of random writes, which
/// spare flash and memory for the map raise.
fn told_by_writes(record: &Record) -> Result<f64, String> {
    let bytes: f64 = record.number("wbps")?;
    let iops: f64 = record.number("wrandiops")?;
    Ok(bytes.max(1.0).sqrt() * iops.max(1.0).sqrt().sqrt())
}

/// Returns the mean factor of each model.
fn mean_factors(of_drives: Vec<(String, f64)>) -> BTreeMap<String, f64> {
    let mut factors: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (model, factor) in of_drives {
        factors.entry(model).or_default().push(factor);
    }
    let means = factors.into_iter().map(|(model, factors)| {
        let mean = factors.iter().sum::<f64>() / factors.len() as f64;
        (model, mean)
    });
    means.collect()
}

/// Returns the median factor of the other models; `None` if there are none.
fn factor_of_others(factors: &BTreeMap<String, f64>, model: &str) -> Option<f64> {
    let others = factors.iter().filter(|(name, _)| *name != model);
    let mut others: Vec<f64> = others.map(|(_, factor)| *factor).collect();
    others.sort_by(f64::total_cmp);
    others.get(others.len() / 2).copied()
}

/// Returns the keys of a null drive with the given coefficients: the bandwidth of its link
/// and of its flash, and the interval between the starts of commands in each direction.
/// Reads have that of the other models by `factor`, or of its writes.
fn description(record: &Record, factor: Option<f64>) -> Result<Vec<(String, String)>, String> {
    let interval_ns = |iops: f64| (1e9 / iops.max(1.0)).round() as u64;
    let mb_s = |bytes: f64| (bytes / 1e6).round().max(1.0) as u64;
    let read_bytes: f64 = record.number("rbps")?;
    let write_bytes: f64 = record.number("wbps")?;
    let write_iops: f64 = record.number("wrandiops")?;
    let read_iops = match factor {
        Some(factor) => factor * told_by_writes(record)?,
        None => write_iops,
    };
    let values = [
        ("timing.parallelism", 4096),
        ("timing.read_interval_ns", interval_ns(read_iops)),
        ("timing.write_interval_ns", interval_ns(write_iops)),
        ("timing.read_bandwidth_mb_s", mb_s(read_bytes)),
        ("timing.write_bandwidth_mb_s", mb_s(write_bytes)),
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
        let text = "rbps,wbps,wrandiops\n4000000000,100000000,10000\n";
        let record = &records("c", text.as_bytes()).expect("a table")[0];
        let values = |factor| description(record, factor).expect("numbers");
        let value = |factor, key: &str| {
            let values = values(factor).into_iter();
            { values }.find_map(|(name, value)| (name == key).then_some(value))
        };
        // The square root of the bytes is 10,000, the fourth root of the writes 10.
        let of = |key| value(Some(2.0), key);
        assert_eq!(of("timing.read_interval_ns").as_deref(), Some("5000"));
        assert_eq!(of("timing.write_interval_ns").as_deref(), Some("100000"));
        assert_eq!(of("timing.read_bandwidth_mb_s").as_deref(), Some("4000"));
        assert_eq!(of("timing.write_bandwidth_mb_s").as_deref(), Some("100"));
        let alone = value(None, "timing.read_interval_ns");
        assert_eq!(alone.as_deref(), Some("100000"));
        registry::load_with("null", &values(Some(1.0))).expect("a drive");
    }

    #[test]
    fn a_model_says_nothing_of_itself() {
        let text = "model,wbps,wrandiops,rseqiops,rrandiops\na,10000,1,100,400\n\
                    a,10000,1,600,600\nb,2500,16,500,500\nc,10000,1,900,900\n";
        let records = records("c", text.as_bytes()).expect("a table");
        let of_drives: Result<Vec<_>, _> = records.iter().map(read_factor).collect();
        let factors = mean_factors(of_drives.expect("numbers"));
        assert_eq!(factors["a"], 4.0);
        assert_eq!(factor_of_others(&factors, "a"), Some(9.0));
        assert_eq!(factor_of_others(&factors, "c"), Some(5.0));
        let one = BTreeMap::from([("a".to_string(), 1.0)]);
        assert_eq!(factor_of_others(&one, "a"), None);
    }
}
