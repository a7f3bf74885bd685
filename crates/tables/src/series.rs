//! The table of time series: figures of CPUs, page cache and drives over time.

use blklab_stats::{Results, TracedRequest};

use crate::TableKind;
use crate::column::{Declared, Table};

/// One figure of one CPU, drive or the page cache in one span of a run.
struct Row<'a> {
    setting: &'a str,
    seed: u64,
    end_ns: u64,
    of: String,
    figure: &'static str,
    value: f64,
}

/// The number of spans into which a run is divided to count traced requests.
const SPANS: u64 = 100;

fn columns<'a>() -> Vec<Declared<Row<'a>>> {
    vec![
        Declared::text(
            "setting",
            "What the row of a comparison is called.",
            |row: &Row<'_>| Some(row.setting),
        ),
        Declared::integer("seed", "", "The run's seed.", |row| Some(row.seed)),
        Declared::integer(
            "end_ns",
            "ns",
            "When the span ended, from the run's start on; of memory, when it was looked at.",
            |row| Some(row.end_ns),
        ),
        Declared::text(
            "of",
            "cpu N, page cache, or the filename that a drive stands for with R, W, D or F.",
            |row| Some(&row.of),
        ),
        Declared::text(
            "figure",
            "Of CPUs what their time went to, in ns; of the page cache dirty_bytes and cached_bytes; of drives requests, bytes and latency_mean_ns of what ended in the span, where requests were traced.",
            |row| Some(row.figure),
        ),
        Declared::number(
            "value",
            "",
            "In the unit that the figure's name ends with.",
            |row| Some(row.value),
        ),
    ]
}

/// The table of time series.
pub const SERIES: TableKind = TableKind {
    name: "series",
    about: "One figure of one CPU, drive or the page cache in one span of a run.",
    columns: || columns().iter().map(Declared::described).collect(),
};

/// The time series of runs.
pub fn series<'a>(runs: impl IntoIterator<Item = (&'a str, &'a Results)>) -> Table {
    let mut rows = Vec::new();
    for (setting, run) in runs {
        let mut add = |end_ns: u64, of: String, figure: &'static str, value: f64| {
            rows.push(Row {
                setting,
                seed: run.seed,
                end_ns,
                of,
                figure,
                value,
            });
        };
        cpus(run, &mut add);
        page_cache(run, &mut add);
        drives(run, &mut add);
    }
    Table::of(&columns(), &rows)
}

/// Adds a row: the end of the span, the thing, the figure and its value.
type Add<'a> = &'a mut dyn FnMut(u64, String, &'static str, f64);

fn cpus(run: &Results, add: Add<'_>) {
    for slice in &run.cpu_timeline {
        for (cpu, times) in slice.cpus.iter().enumerate() {
            for (figure, ns) in times.parts() {
                add(slice.end_ns, format!("cpu {cpu}"), figure, ns as f64);
            }
        }
    }
}

fn page_cache(run: &Results, add: Add<'_>) {
    let samples = run.page_cache.iter().flat_map(|cache| &cache.samples);
    for sample in samples {
        for (figure, bytes) in [
            ("dirty_bytes", sample.dirty_bytes),
            ("cached_bytes", sample.cached_bytes),
        ] {
            add(sample.at_ns, "page cache".to_string(), figure, bytes as f64);
        }
    }
}

fn drives(run: &Results, add: Add<'_>) {
    let Some(traced) = &run.traced_requests else {
        return;
    };
    let span_ns = run.elapsed_ns.div_ceil(SPANS).max(1);
    let span_of = |request: &TracedRequest| request.completed_ns.div_ceil(span_ns).max(1);
    let mut all: Vec<&TracedRequest> = traced.of.iter().collect();
    all.sort_by_key(|request| (span_of(request), request.disk, request.op));
    let same = |a: &&TracedRequest, b: &&TracedRequest| {
        (span_of(a), a.disk, a.op) == (span_of(b), b.disk, b.op)
    };
    for of in all.chunk_by(same) {
        let (end_ns, first) = (span_of(of[0]) * span_ns, of[0]);
        let disk = run.disks.get(first.disk);
        let name = || {
            let name = disk.map_or("", |disk| disk.name.as_str());
            format!("{name} {}", first.op)
        };
        let sectors: u64 = of.iter().map(|request| u64::from(request.sectors)).sum();
        let latency_ns: u64 = of.iter().map(|request| request.latency_ns()).sum();
        add(end_ns, name(), "requests", of.len() as f64);
        add(end_ns, name(), "bytes", sectors as f64 * 512.0);
        add(
            end_ns,
            name(),
            "latency_mean_ns",
            latency_ns as f64 / of.len() as f64,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_stats::{CacheSample, CacheStats, CpuSlice, CpuTimes};

    #[test]
    fn time_is_in_spans_of_each_thing() {
        let run = Results {
            elapsed_ns: 1_000,
            cpu_timeline: vec![CpuSlice {
                end_ns: 500,
                cpus: vec![CpuTimes::default(); 2],
            }],
            page_cache: Some(CacheStats {
                samples: vec![CacheSample {
                    at_ns: 10,
                    dirty_bytes: 4096,
                    cached_bytes: 8192,
                }],
                ..CacheStats::default()
            }),
            ..Results::default()
        };
        let table = series([("none", &run)]);
        assert_eq!(table.rows(), 2 * CpuTimes::default().parts().len() + 2);
        let of = &table.column("of").expect("declared").values;
        assert_eq!(
            (of.json(0), of.json(table.rows() - 1)),
            ("cpu 0".into(), "page cache".into())
        );
        let value = &table.column("value").expect("declared").values;
        assert_eq!(value.json(table.rows() - 1).as_f64(), Some(8192.0));
    }
}
