//! SD cards and eMMC modules: four figures of each card are used to describe it, and the
//! others are predicted. The set's file system tasks are left out.

use blklab_calibrate::{Measured, Model, Row, cases, score};

use super::Figure;
use super::fio_sets::row;
use super::folder::{Folder, Record};

const MACHINE: &str = "rpi4";

/// Number of times that parameters are rescaled; then the given figures are reproduced
/// within a percent.
const ROUNDS: usize = 6;

/// Cards with fewer random 4 KiB writes a second map whole allocation units. (Assumed:
/// between the slowest known card, with 33, and the 500 that class A1 requires.)
const LEAST_MAPPED_IOPS: f64 = 100.0;

/// Factor that removes the bus limit of the description: cards of the set are limited by
/// their bus only for data, whose rate the read figures already contain.
const BUS_TIMES: f64 = 10.0;

/// Cards whose other figures were used to find the mechanisms, and whose figures the
/// shipped descriptions have.
const FITTED_CARDS: [&str; 2] = [
    "Intenso Class 4 4GB (02/2015)",
    "SanDisk Extreme A1 32GB (10/2017)",
];

/// A figure of a card.
struct CardFigure {
    row: Row,
    /// The keys that are determined by the figure.
    gives: Option<Gives>,
}

/// Keys that are scaled until a figure is reproduced.
struct Gives {
    keys: &'static str,
    /// Whether the figure grows with the keys.
    grows: bool,
}

/// Returns all figures of all cards.
pub fn figures(folder: &Folder) -> Vec<Figure> {
    let cards = folder.each("cards.csv", |record| figures_of(record).map(Some));
    cards.into_iter().flatten().collect()
}

fn figures_of(record: &Record) -> Result<Vec<Figure>, String> {
    let name = record.text("card")?;
    let small_writes: Option<f64> = record.number_if_any("iops_rand_write_4k")?;
    let has_map = small_writes.is_none_or(|iops| iops >= LEAST_MAPPED_IOPS);
    let drive = match has_map {
        true => "sd-card-a1",
        false => "sd-card",
    };
    let card = card_figures(record, has_map)?;
    let rows: Vec<Row> = card.iter().map(|figure| figure.row.clone()).collect();
    let mut model = Model::load(drive, MACHINE)?;
    scale(&mut model, "drive.bus.bandwidth_mb_s", BUS_TIMES)?;
    let mut simulated = simulate(&model, &rows)?;
    for _ in 0..ROUNDS {
        for (figure, simulated) in card.iter().zip(&simulated) {
            let (Some(gives), Some(simulated)) = (&figure.gives, simulated) else {
                continue;
            };
            let times = figure.row.measured.iops / simulated;
            let times = if gives.grows { times } else { 1.0 / times };
            scale(&mut model, gives.keys, times)?;
        }
        simulated = simulate(&model, &rows)?;
    }
    let figure = |(figure, simulated): (&CardFigure, &Option<f64>)| Figure {
        group: figure.row.study.clone(),
        row: format!("{name} {}", figure.row.label()),
        metric: "IOPS",
        measured: figure.row.measured.iops,
        simulated: *simulated,
        is_fitted: figure.gives.is_some() || FITTED_CARDS.contains(&name),
        is_left_out: figure.gives.is_none() && !FITTED_CARDS.contains(&name),
    };
    Ok(card.iter().zip(&simulated).map(figure).collect())
}

/// Returns the figures that the record has.
fn card_figures(record: &Record, has_map: bool) -> Result<Vec<CardFigure>, String> {
    let mut figures = Vec::new();
    for (side, rw) in [("read", "randread"), ("write", "randwrite")] {
        for kib in [1, 4, 16] {
            let iops = record.figure_if_any(&format!("iops_rand_{side}_{kib}k"))?;
            let (keys, grows) = match side {
                "read" => ("drive.reads.access_us", false),
                _ if has_map => ("drive.writes.random_us,drive.map.write_us", false),
                _ => ("drive.log.kb", true),
            };
            let gives = (kib == 4).then_some(Gives { keys, grows });
            let bs = format!("{kib}k");
            figures
                .extend(iops.map(|iops| card_figure(format!("rand-{side}"), rw, bs, iops, gives)));
        }
        let mb_s = record.figure_if_any(&format!("seq_{side}_mb_s"))?;
        let iops = mb_s.map(|mb_s| mb_s * 1e6 / f64::from(16 << 20));
        let keys = match side {
            "read" => "drive.reads.bandwidth_mb_s",
            _ => "drive.writes.bandwidth_mb_s",
        };
        let gives = Some(Gives { keys, grows: true });
        let bs = "16m".to_string();
        figures.extend(iops.map(|iops| card_figure(format!("seq-{side}"), side, bs, iops, gives)));
    }
    Ok(figures)
}

fn card_figure(study: String, rw: &str, bs: String, iops: f64, gives: Option<Gives>) -> CardFigure {
    let measured = Measured {
        iops,
        lat_mean_us: None,
        clat_p99_us: None,
    };
    // iozone goes through its file once, and at random writes each record once: what a card
    // puts off is in the figure.
    let options = match rw {
        "randwrite" => {
            "ioengine=psync size=100m time_based=0 ramp_time=0 runtime=0 number_ios=0 norandommap=0"
        }
        _ => "ioengine=psync size=100m",
    };
    CardFigure {
        row: Row {
            bs,
            measured,
            ..row(study, rw, options.to_string())
        },
        gives,
    }
}

/// Scales keys of the model, within their limits.
fn scale(model: &mut Model, keys: &str, times: f64) -> Result<(), String> {
    for key in model.parameters(keys).map_err(|e| e.to_string())? {
        let value = model.get(&key).map_err(|e| e.to_string())?;
        // The range that all keys of a card accept.
        let scaled = (value * times).clamp(1.0, 5e5);
        model
            .set(&key, scaled, "fitted")
            .map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// Returns the I/Os a second of each row.
fn simulate(model: &Model, rows: &[Row]) -> Result<Vec<Option<f64>>, String> {
    let cases = cases(rows, false).map_err(|e| e.to_string())?;
    let scored = score(model, &cases, rows, 1).map_err(|e| e.to_string())?;
    let iops = |scored: Option<blklab_calibrate::Scored>| Some(scored?.simulated?.iops);
    Ok(scored.into_iter().map(iops).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::folder::records;

    /// For made-up cards, given figures are reproduced and the others lie between.
    #[test]
    fn what_is_given_comes_back() {
        let columns = "card,iops_rand_read_1k,iops_rand_write_1k,iops_rand_read_4k,\
                       iops_rand_write_4k,iops_rand_read_16k,iops_rand_write_16k,seq_read_mb_s,\
                       seq_write_mb_s";
        for (row, cliff) in [
            ("x,,,2500,900,,500,80,40", false),
            ("y,,,1000,25,,3,30,12", true),
        ] {
            let text = format!("{columns}\n{row}\n");
            let record = &records("c", text.as_bytes()).expect("a table")[0];
            let figures = figures_of(record).expect("a card");
            assert_eq!(figures.len(), 5);
            for figure in figures.iter().filter(|figure| figure.is_fitted) {
                // Logs have whole KiB, and units are rewritten as a whole.
                assert!(figure.percent().abs() < 10.0, "{figure:?}");
            }
            let predicted = figures.iter().find(|figure| !figure.is_fitted);
            let iops = predicted
                .and_then(|figure| figure.simulated)
                .expect("simulated");
            assert_eq!(iops < 5.0, cliff, "{iops}");
        }
    }
}
