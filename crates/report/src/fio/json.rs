//! A run's results as fio 3.33's JSON (`--output-format=json` and `json+`): the same
//! keys in the same order with the same precision. Facts without a key in fio are under
//! the one key `blklab`.

use std::io;

use blklab_stats::{
    BatchBuckets, DirResults, DiskStats, Histogram, JobResults, Results, SteadyState,
};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter};
use serde_json::{Map, Value, json};

use super::number::ctime;
use super::stat::{
    GroupRate, GroupRates, LATENCY_CLASSES, LatencyShares, Rate, batch_shares, cpu_percent,
    depth_shares, directions, disk_util_percent, msec, percent_of_group, percentile_list,
};
use super::{pooled, reported};
use crate::comparison::drive_notes;

/// The version of fio whose format this is; scripts check it.
const FIO_VERSION: &str = "fio-3.33";

/// The options of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `json+`: adds every percentile's histogram, and each CPU's time over the run.
    pub plus: bool,
    /// The end of the run in milliseconds since 1970; `None` in virtual time, so that
    /// the same input gives the same bytes, and then 1970 is printed.
    pub timestamp_ms: Option<u64>,
}

/// Returns the run as fio's JSON, with a line feed at the end.
pub fn render(results: &Results, options: Options) -> String {
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, FioStyle::new());
    value(results, options)
        .serialize(&mut serializer)
        .expect("a vector takes all, and the keys are strings");
    bytes.push(b'\n');
    String::from_utf8(bytes).expect("JSON is UTF-8")
}

/// Returns the run as a JSON value.
pub fn value(results: &Results, options: Options) -> Value {
    let timestamp_ms = options.timestamp_ms.unwrap_or(0);
    let reported = reported(&results.jobs);
    let groups = GroupRates::of(&reported);
    let jobs: Vec<Value> = reported
        .iter()
        .map(|job| job_value(results.elapsed_ns, &groups, job, options))
        .collect();
    let disks = results.disks.iter();
    let disk_util: Vec<Value> = disks.map(|d| disk_util(d, results.elapsed_ns)).collect();
    json!({
        "fio version": FIO_VERSION,
        "timestamp": timestamp_ms / 1000,
        "timestamp_ms": timestamp_ms,
        "time": ctime(timestamp_ms / 1000),
        "global options": option_map(&results.global_options),
        "jobs": jobs,
        "disk_util": disk_util,
        "blklab": extra_facts(results, &reported, options),
    })
}

fn option_map(options: &[(String, String)]) -> Value {
    let pairs = options.iter();
    Value::Object(
        pairs
            .map(|(name, value)| (name.clone(), Value::from(value.clone())))
            .collect(),
    )
}

fn job_value(elapsed_ns: u64, groups: &GroupRates, job: &JobResults, options: Options) -> Value {
    let (user, system) = cpu_percent(job);
    let mut object = fields(json!({
        "jobname": job.name,
        "groupid": job.group_id,
        "error": job.error,
        "eta": 0,
        "elapsed": elapsed_ns.div_ceil(1_000_000_000),
        "job options": option_map(&job.options),
    }));
    let sums = groups.of_group(job.group_id).map(Option::unwrap_or_default);
    let named = ["read", "write", "trim"].into_iter().zip(directions(job));
    for ((name, dir), sum) in named.zip(&sums) {
        object.insert(name.to_string(), direction(dir, sum, job, options));
    }
    object.extend(fields(json!({
        "sync": {
            "total_ios": job.syncs,
            "lat_ns": latency(&job.sync_ns, &percentile_list(job), options),
        },
        "job_runtime": msec(job.total_runtime_ns()),
        "usr_cpu": user,
        "sys_cpu": system,
        "ctx": job.cpu.context_switches,
        "majf": job.cpu.faults.major,
        "minf": job.cpu.faults.minor,
        "iodepth_level": depth_levels(job),
        "iodepth_submit": batch_levels(&job.submit),
        "iodepth_complete": batch_levels(&job.complete),
    })));
    let shares = LatencyShares::of(job);
    let classes: [(&str, &[f64]); 3] = [
        ("latency_ns", &shares.ns),
        ("latency_us", &shares.us),
        ("latency_ms", &shares.ms),
    ];
    for (name, shares) in classes {
        object.insert(name.to_string(), latency_levels(shares));
    }
    if job.total_errors > 0 {
        object.insert("total_err".to_string(), job.total_errors.into());
        object.insert("first_error".to_string(), job.error.into());
    }
    object.extend(fields(json!({
        "latency_depth": job.latency_target.depth,
        "latency_target": job.latency_target.target_ns,
        "latency_percentile": job.latency_target.percentile,
        "latency_window": job.latency_target.window_us,
    })));
    if let Some(state) = &job.steady_state {
        object.insert("steadystate".to_string(), steady_state(state));
    }
    if let Some(description) = &job.description {
        object.insert("desc".to_string(), description.clone().into());
    }
    Value::Object(object)
}

fn steady_state(state: &SteadyState) -> Value {
    let percent = if state.in_percent { "%" } else { "" };
    let slope = if state.by_slope { "_slope" } else { "" };
    // A job that ended before there were enough has fewer here; fio adds zeroes.
    let figures = |of: fn(&(u64, u64)) -> u64| state.figures.iter().map(of).collect::<Vec<u64>>();
    json!({
        "ss": format!("{}{slope}:{:.6}{percent}", state.measure(), state.limit),
        "duration": state.seconds,
        "attained": u8::from(state.attained),
        "criterion": format!("{:.6}{percent}", state.criterion),
        "max_deviation": state.max_deviation,
        "slope": state.slope,
        "data": {
            "bw_mean": state.mean_bandwidth_bytes(),
            "iops_mean": state.mean_iops(),
            "iops": figures(|(iops, _)| *iops),
            "bw": figures(|(_, bytes)| *bytes),
        },
    })
}

fn direction(dir: &DirResults, group: &GroupRate, job: &JobResults, options: Options) -> Value {
    let bandwidth = dir.bandwidth() as u64;
    let bw = Rate::of(&dir.bw_samples, 1024.0);
    let share = match bw.samples {
        0 => 0.0,
        _ => percent_of_group(bw.mean, group.bandwidth),
    };
    let iops = Rate::of(&dir.iops_samples, 1.0);
    // fio lists percentiles only of the latencies that its *_percentiles options name.
    let percentiles = percentile_list(job);
    let of = job.percentiles_of;
    let listed = |asked: bool| if asked { &percentiles[..] } else { &[] };
    json!({
        "io_bytes": dir.bytes,
        "io_kbytes": dir.bytes >> 10,
        "bw_bytes": bandwidth,
        "bw": bandwidth / 1024,
        "iops": dir.iops(),
        "runtime": msec(dir.runtime_ns),
        "total_ios": dir.ios,
        "short_ios": dir.short_ios,
        "drop_ios": 0,
        "slat_ns": latency(&dir.slat_ns, listed(of.slat), options),
        "clat_ns": latency(&dir.clat_ns, listed(of.clat), options),
        "lat_ns": latency(&dir.lat_ns, listed(of.lat), options),
        "bw_min": bw.min,
        "bw_max": bw.max,
        "bw_agg": share,
        "bw_mean": bw.mean,
        "bw_dev": bw.stddev,
        "bw_samples": bw.samples,
        "iops_min": iops.min,
        "iops_max": iops.max,
        "iops_mean": iops.mean,
        "iops_stddev": iops.stddev,
        "iops_samples": iops.samples,
    })
}

fn latency(histogram: &Histogram, percentiles: &[f64], options: Options) -> Value {
    let summary = histogram.summary();
    let mut object = fields(json!({
        "min": summary.min_ns,
        "max": summary.max_ns,
        "mean": summary.mean_ns,
        "stddev": summary.sample_stddev_ns(),
        "N": summary.count,
    }));
    if percentiles.is_empty() || histogram.is_empty() {
        return Value::Object(object);
    }
    let values = histogram.fio_percentiles(percentiles);
    let listed = percentiles.iter().zip(values);
    let listed: Map<String, Value> = listed
        .map(|(percent, ns)| (format!("{percent:.6}"), ns.into()))
        .collect();
    object.insert("percentile".to_string(), Value::Object(listed));
    if options.plus {
        let bins = histogram.fio_bins().into_iter();
        let bins = bins.map(|bin| (bin.value_ns.to_string(), bin.count.into()));
        object.insert("bins".to_string(), Value::Object(bins.collect()));
    }
    Value::Object(object)
}

fn levels<'a>(names: impl IntoIterator<Item = &'a str>, shares: &[f64]) -> Value {
    let named = names.into_iter().zip(shares);
    Value::Object(
        named
            .map(|(name, share)| (name.to_string(), (*share).into()))
            .collect(),
    )
}

fn depth_levels(job: &JobResults) -> Value {
    let names = ["1", "2", "4", "8", "16", "32", ">=64"];
    levels(names, &depth_shares(job))
}

fn batch_levels(batches: &BatchBuckets) -> Value {
    let names = ["0", "4", "8", "16", "32", "64", ">=64"];
    levels(names, &batch_shares(batches))
}

fn latency_levels(shares: &[f64]) -> Value {
    let names = LATENCY_CLASSES.map(|end| end.to_string());
    let names = names.iter().map(String::as_str);
    levels(names.chain(["2000", ">=2000"]), shares)
}

fn disk_util(disk: &DiskStats, elapsed_ns: u64) -> Value {
    let queue = &disk.queue;
    json!({
        "name": disk.name,
        "read_ios": queue.ios[0],
        "write_ios": queue.ios[1],
        "read_merges": queue.merges[0],
        "write_merges": queue.merges[1],
        "read_ticks": queue.ticks_ns[0] / 1_000_000,
        "write_ticks": queue.ticks_ns[1] / 1_000_000,
        "in_queue": queue.time_in_queue_ns / 1_000_000,
        "util": disk_util_percent(disk, elapsed_ns),
    })
}

/// Returns the facts that fio has no key for; with `plus` also the long ones.
fn extra_facts(results: &Results, reported: &[JobResults], options: Options) -> Value {
    let disks: Vec<Value> = results.disks.iter().map(disk_facts).collect();
    let notes = [results.notes.clone(), drive_notes(results)].concat();
    let mut facts = fields(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "world": results.world.name(),
        "scheduler": results.scheduler,
        "drive": results.drive,
        "machine": results.machine,
        "seed": results.seed,
        "job": results.job,
        "elapsed_ns": results.elapsed_ns,
        "notes": notes,
        "cpus": plain(&results.cpus),
        "disks": disks,
    }));
    if let Some(cache) = &results.page_cache {
        facts.insert("page_cache".to_string(), plain(cache));
    }
    let programs = results.jobs.iter().filter(|job| !job.calls.is_empty());
    let calls: Vec<Value> = programs
        .map(|job| json!({"program": job.name, "calls": plain(&job.calls)}))
        .collect();
    if !calls.is_empty() {
        facts.insert("calls".to_string(), Value::Array(calls));
    }
    let pooled = pooled(&results.jobs, reported);
    if !pooled.is_empty() {
        let groups = GroupRates::of(&results.jobs);
        let job = |job| job_value(results.elapsed_ns, &groups, job, options);
        facts.insert(
            "pooled_jobs".to_string(),
            pooled.into_iter().map(job).collect(),
        );
    }
    if options.plus {
        facts.insert("cpu_timeline".to_string(), plain(&results.cpu_timeline));
    }
    Value::Object(facts)
}

/// Returns a drive's counters with the figures derived from them.
fn disk_facts(disk: &DiskStats) -> Value {
    let mut facts = plain(disk);
    if let Some(device) = facts["device"].as_object_mut() {
        let before = "flash_sectors_programmed";
        let at = device.keys().position(|key| key == before);
        let at = at.map_or(device.len(), |at| at + 1);
        let amplification = json!(disk.device.write_amplification());
        device.shift_insert(at, "write_amplification".to_string(), amplification);
    }
    facts
}

/// Serializes counters as they are declared.
fn plain(counters: &impl Serialize) -> Value {
    serde_json::to_value(counters).expect("keys are strings, values plain")
}

/// Returns the fields of an object literal.
fn fields(object: Value) -> Map<String, Value> {
    match object {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// A JSON formatter with fio's layout: `"key" : value`, six decimals.
struct FioStyle(PrettyFormatter<'static>);

impl FioStyle {
    fn new() -> FioStyle {
        FioStyle(PrettyFormatter::new())
    }
}

impl Formatter for FioStyle {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        write!(writer, "{value:.6}")
    }

    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_array(writer)
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array(writer)
    }

    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.0.begin_array_value(w, first)
    }

    fn end_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array_value(writer)
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object(writer)
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object(writer)
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.0.begin_object_key(w, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b" : ")
    }

    fn end_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object_value(writer)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::process::Command;

    use super::*;
    use blklab_stats::{ArmStats, LatencyPercentiles};

    use crate::fio::real_fio::{Scratch, real_fio};
    use crate::sample_run::{Recipe, mixed};

    const RECIPE: Recipe = Recipe {
        scheduler: "mq-deadline",
        seed: 1,
        reads: 9000,
        writes: 1000,
        base_ns: 60_000,
        tail: 30,
    };

    /// The keys that fio 3.33 printed for a job of reads and writes, for machines
    /// without fio.
    const FIO_KEYS: &str = include_str!("json_keys.txt");

    /// Returns the paths of all keys, without those that depend on the values, the job
    /// or the drives: percentiles, bins, job options and `aggr_` keys.
    fn key_paths(value: &Value) -> BTreeSet<String> {
        fn walk(value: &Value, path: &str, paths: &mut BTreeSet<String>) {
            match value {
                Value::Object(fields) => {
                    for (key, value) in fields {
                        let path = format!("{path}/{key}");
                        let named_by_value =
                            ["percentile", "bins", "job options", "global options"];
                        paths.insert(path.clone());
                        if !named_by_value.contains(&key.as_str()) {
                            walk(value, &path, paths);
                        }
                    }
                }
                Value::Array(values) => values.iter().for_each(|v| walk(v, path, paths)),
                _ => {}
            }
        }
        let mut paths = BTreeSet::new();
        walk(value, "", &mut paths);
        paths.retain(|path| !path.contains("/aggr_") && !path.starts_with("/blklab"));
        paths
    }

    fn fio_value(format: &str, test: &str) -> Option<Value> {
        let text = real_fio(format, test)?;
        let start = text.find('{').expect("fio prints JSON");
        Some(serde_json::from_str(&text[start..]).unwrap())
    }

    fn with_syncs() -> Results {
        let mut results = mixed(RECIPE);
        results.jobs[0].description = Some("a mix".to_string());
        results.jobs[0].syncs = 2;
        results.jobs[0].sync_ns.record(700_000);
        results.jobs[0].sync_ns.record(900_000);
        results
    }

    #[test]
    fn has_the_keys_of_the_real_fio() {
        let plus = |plus| Options {
            plus,
            timestamp_ms: None,
        };
        let ours_plus = key_paths(&value(&with_syncs(), plus(true)));
        let stored: BTreeSet<String> = FIO_KEYS.lines().map(str::to_string).collect();
        assert_eq!(ours_plus, stored);
        if let Some(theirs) = fio_value("json+", "keys") {
            // fio lists a drive only if it finds one below the file.
            let mut theirs = key_paths(&theirs);
            theirs.extend(stored.into_iter().filter(|k| k.starts_with("/disk_util/")));
            assert_eq!(ours_plus, theirs);
        }
        if let Some(theirs) = fio_value("json", "keys") {
            let mut ours = key_paths(&value(&with_syncs(), plus(false)));
            ours.retain(|k| !k.starts_with("/disk_util/"));
            let mut theirs = key_paths(&theirs);
            theirs.retain(|k| !k.starts_with("/disk_util/"));
            assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn keys_come_in_fios_order() {
        let Some(theirs) = fio_value("json", "order") else {
            return;
        };
        let ours = value(&with_syncs(), Options::default());
        let keys =
            |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
        let job = |value: &Value| value["jobs"][0].clone();
        assert_eq!(keys(&job(&ours)), keys(&job(&theirs)));
        assert_eq!(keys(&job(&ours)["read"]), keys(&job(&theirs)["read"]));
        assert_eq!(keys(&ours)[..7], keys(&theirs)[..7]);
    }

    #[test]
    fn is_laid_out_as_fio_lays_it_out() {
        let text = render(&mixed(RECIPE), Options::default());
        assert!(text.starts_with("{\n  \"fio version\" : \"fio-3.33\",\n  \"timestamp\" : 0,\n"));
        assert!(text.contains("\n        \"iops\" : 4500.000000,\n        \"runtime\" : 2000,\n"));
        assert!(text.contains("\n            \"99.990000\" : "));
        assert!(text.contains("\n  \"time\" : \"Thu Jan  1 00:00:00 1970\",\n"));
        assert!(text.ends_with("}\n"));
    }

    #[test]
    fn percentiles_are_of_the_latencies_asked_for() {
        let mut results = mixed(RECIPE);
        results.jobs[0].percentiles_of = LatencyPercentiles {
            slat: false,
            clat: false,
            lat: true,
        };
        let read = value(&results, Options::default())["jobs"][0]["read"].clone();
        let has = |key: &str| read[key].get("percentile").is_some();
        assert_eq!(
            ["slat_ns", "clat_ns", "lat_ns"].map(has),
            [false, false, true]
        );
        assert!(read["lat_ns"]["percentile"]["99.000000"].as_u64() > Some(0));
    }

    /// A hard disk has counters of its arm; other drives have none.
    #[test]
    fn a_disk_has_an_arm() {
        let mut results = mixed(RECIPE);
        let device = |results: &Results| {
            value(results, Options::default())["blklab"]["disks"][0]["device"].clone()
        };
        assert_eq!(device(&results)["arm"], Value::Null);
        results.disks[0].device.arm = Some(ArmStats {
            seeks: 7,
            seek_cylinders: 70_000,
            ..ArmStats::default()
        });
        let arm = device(&results)["arm"].clone();
        assert_eq!(
            (&arm["seeks"], &arm["seek_cylinders"]),
            (&json!(7), &json!(70_000))
        );
        let keys: BTreeSet<&str> = arm
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let pinned = "blocks_completed destages flush_ns flushes head_switch_ns head_switches \
                      overdue reads reads_streamed rotation_ns rotation_waits sectors_destaged \
                      sectors_read sectors_written seek_cylinders seek_ns seeks transfer_ns \
                      writes writes_buffered writes_waited";
        assert_eq!(keys, pinned.split_whitespace().collect());
    }

    #[test]
    fn same_results_same_bytes() {
        let options = Options {
            plus: true,
            timestamp_ms: None,
        };
        let text = render(&mixed(RECIPE), options);
        assert_eq!(text, render(&mixed(RECIPE), options));
        serde_json::from_str::<Value>(&text).unwrap();
    }

    #[test]
    fn figures_are_the_results() {
        let results = mixed(RECIPE);
        let json = value(
            &results,
            Options {
                plus: true,
                timestamp_ms: Some(1_795_219_841_124),
            },
        );
        let read = &json["jobs"][0]["read"];
        assert_eq!(read["io_bytes"], 9000 * 4096);
        assert_eq!(read["bw_bytes"], 9000 * 4096 / 2);
        assert_eq!(read["total_ios"], 9000);
        assert_eq!(json["timestamp"], 1_795_219_841u64);
        assert_eq!(json["time"], "Sat Nov 21 00:10:41 2026");
        assert_eq!(json["blklab"]["disks"][0]["scheduler"]["batches"], 812);
        let bins = read["clat_ns"]["bins"].as_object().unwrap();
        let counted: u64 = bins.values().map(|count| count.as_u64().unwrap()).sum();
        assert_eq!(counted, 9000);
        let median = read["clat_ns"]["percentile"]["50.000000"].to_string();
        assert!(bins.contains_key(&median), "{median} is no bin");
    }

    #[test]
    fn fios_own_script_reads_it() {
        let scratch = Scratch::new("clat2csv");
        let source = scratch.0.join("run.json");
        let options = Options {
            plus: true,
            timestamp_ms: None,
        };
        fs::write(&source, render(&with_syncs(), options)).unwrap();
        let convert = |extra: &[&str]| {
            Command::new("fio_jsonplus_clat2csv")
                .arg(&source)
                .arg(scratch.0.join("run.csv"))
                .args(extra)
                .output()
        };
        // Machines without fio's scripts skip this check.
        let Ok(output) = convert(&[]) else {
            return;
        };
        let stderr = String::from_utf8_lossy(&output.stderr);
        if stderr.contains("ModuleNotFoundError") {
            return;
        }
        assert!(output.status.success(), "{stderr}");
        let checked = convert(&["--validate"]).unwrap();
        let stdout = String::from_utf8_lossy(&checked.stdout);
        assert!(checked.status.success() && stdout.contains("run_job0.csv validated"));
        let csv = fs::read_to_string(scratch.0.join("run_job0.csv")).unwrap();
        assert!(csv.lines().count() > 50);
    }
}
