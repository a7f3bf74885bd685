//! Parser for fio's JSON (`--output-format=json+`). Percentages are converted to counts and
//! histograms are read from fio's bins, so fio's rounding remains.

use blklab_stats::{
    BatchBuckets, CpuStats, DepthBuckets, DirResults, FioBin, GroupResults, Histogram, JobResults,
    LatencyTarget, PageFaults, ProcessResults, Results, Sample, SteadyState, Summary, World,
};
use blklab_workload::fio::{JobFile, JobSpec};
use blklab_workload::generate::{due_weights, processes};
use serde_json::{Map, Value};

/// A fault in fio's JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fio's JSON: {place}: {problem}")]
pub struct JsonFault {
    place: String,
    problem: String,
}

fn fault(place: impl Into<String>, problem: impl Into<String>) -> JsonFault {
    JsonFault {
        place: place.into(),
        problem: problem.into(),
    }
}

/// Parses fio's JSON; text before it (remarks on the job) is returned as notes. `job` is the job
/// that fio ran.
pub fn parse(text: &str, job: &JobFile) -> Result<Results, JsonFault> {
    let (remarks, json) = split(text)?;
    let mut values = serde_json::Deserializer::from_str(json).into_iter::<Value>();
    let root = match values.next() {
        Some(Ok(Value::Object(root))) => root,
        Some(Ok(_)) | None => return Err(fault("the whole", "not an object")),
        Some(Err(error)) => return Err(fault("the whole", error.to_string())),
    };
    let Some(Value::Array(entries)) = root.get("jobs") else {
        return Err(fault("jobs", "missing or no list"));
    };
    let mut results = Results {
        world: World::Host,
        job: job.name.clone(),
        global_options: job.global_options.clone(),
        notes: remarks,
        ..Results::default()
    };
    // fio 3.33 has an entry of zeroes without a name for each job with stats=0.
    let has_unreported = job.jobs.iter().any(|spec| !spec.stats);
    for (index, entry) in entries.iter().enumerate() {
        let place = format!("jobs[{index}]");
        let Value::Object(entry) = entry else {
            return Err(fault(place, "no object"));
        };
        if has_unreported && !entry.contains_key("jobname") {
            continue;
        }
        results
            .jobs
            .push(job_results(&Object { entry, place }, index, job)?);
    }
    results.groups = groups(&results.jobs);
    let elapsed_s = entries
        .iter()
        .filter_map(|e| e.get("elapsed")?.as_u64())
        .max();
    results.elapsed_ns = elapsed_s.unwrap_or(0).saturating_mul(1_000_000_000);
    Ok(results)
}

/// Returns what fio says beside its results as notes of ours; some of it begins with its name.
pub(crate) fn remarks(text: &str) -> impl Iterator<Item = String> {
    let lines = text.lines().map(|line| {
        let line = line.trim();
        line.strip_prefix("fio:").unwrap_or(line).trim()
    });
    // fio's engine for NBD says of every connection that there is one.
    let said = lines.filter(|line| !line.is_empty() && *line != "connected to NBD server");
    said.map(|line| format!("fio: {line}"))
}

/// Splits fio's output into remarks and JSON.
fn split(text: &str) -> Result<(Vec<String>, &str), JsonFault> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if line.starts_with('{') {
            return Ok((remarks(&text[..at]).collect(), &text[at..]));
        }
        at += line.len();
    }
    Err(fault("the whole", "fio wrote no JSON"))
}

/// A JSON object with its path, for messages.
struct Object<'a> {
    entry: &'a Map<String, Value>,
    place: String,
}

impl<'a> Object<'a> {
    fn at(&self, key: &str) -> String {
        format!("{}.{key}", self.place)
    }

    /// fio omits keys without a value.
    fn number(&self, key: &str) -> Result<f64, JsonFault> {
        match self.entry.get(key) {
            None => Ok(0.0),
            Some(value) => {
                let number = value.as_f64().filter(|n| n.is_finite() && *n >= 0.0);
                number.ok_or_else(|| fault(self.at(key), "not a number from zero on"))
            }
        }
    }

    fn count(&self, key: &str) -> Result<u64, JsonFault> {
        match self.entry.get(key) {
            None => Ok(0),
            Some(value) => value
                .as_u64()
                .ok_or_else(|| fault(self.at(key), "not a whole number from zero on")),
        }
    }

    fn text(&self, key: &str) -> Option<String> {
        self.entry.get(key)?.as_str().map(String::from)
    }

    fn object(&self, key: &str) -> Result<Option<Object<'a>>, JsonFault> {
        match self.entry.get(key) {
            None => Ok(None),
            Some(Value::Object(entry)) => Ok(Some(Object {
                entry,
                place: self.at(key),
            })),
            Some(_) => Err(fault(self.at(key), "no object")),
        }
    }
}

fn job_results(entry: &Object, index: usize, job: &JobFile) -> Result<JobResults, JsonFault> {
    let name = entry.text("jobname");
    let name = name.ok_or_else(|| fault(entry.at("jobname"), "missing"))?;
    let spec = job.jobs.iter().find(|spec| spec.name == name);
    let read = direction(entry, "read")?;
    let write = direction(entry, "write")?;
    let trim = direction(entry, "trim")?;
    let ios = read.ios.saturating_add(write.ios).saturating_add(trim.ios);
    let runtime_ns = entry.count("job_runtime")?.saturating_mul(1_000_000);
    let share = |percent: f64| (percent / 100.0 * runtime_ns as f64) as u64;
    let sync = entry.object("sync")?;
    let (sync_ns, syncs) = match &sync {
        Some(sync) => (latency(sync, "lat_ns")?, sync.count("total_ios")?),
        None => (Histogram::new(), 0),
    };
    let error = i32::try_from(entry.count("error")?).unwrap_or(i32::MAX);
    let process = ProcessResults {
        job: name.clone(),
        process: index as u32,
        runtime_ns,
        weight: due_weight(job, &name),
        finished: spec.is_some_and(|s| finished(s, runtime_ns)),
        failed: error != 0,
        ..ProcessResults::default()
    }
    .with_io([&read, &write, &trim]);
    Ok(JobResults {
        description: entry.text("desc"),
        group_id: u32::try_from(entry.count("groupid")?).unwrap_or(u32::MAX),
        process: index as u32,
        members: 1,
        group_reporting: false,
        calls: Vec::new(),
        processes: vec![process],
        options: spec.map(|s| s.options.clone()).unwrap_or_default(),
        sync_ns,
        syncs,
        // fio's JSON does not have it.
        zone_resets: 0,
        runtime_ns,
        cpu: CpuStats {
            user_ns: share(entry.number("usr_cpu")?),
            system_ns: share(entry.number("sys_cpu")?),
            context_switches: entry.count("ctx")?,
            faults: PageFaults {
                major: entry.count("majf")?,
                minor: entry.count("minf")?,
            },
        },
        depth: depths(entry, ios)?,
        submit: batches(entry, "iodepth_submit", ios)?,
        complete: batches(entry, "iodepth_complete", ios)?,
        error,
        total_errors: entry.count("total_err")?,
        percentiles: spec.map(|s| s.percentiles.clone()).unwrap_or_default(),
        percentiles_of: spec.map(JobSpec::percentiles_of).unwrap_or_default(),
        last_arrival_ns: None,
        latency_target: LatencyTarget {
            target_ns: entry.count("latency_target")?,
            window_us: entry.count("latency_window")?,
            percentile: entry.number("latency_percentile")?,
            depth: u32::try_from(entry.count("latency_depth")?).unwrap_or(u32::MAX),
        },
        steady_state: steady_state(entry, spec)?,
        setup: spec.map(JobSpec::setup).unwrap_or_default(),
        name,
        read,
        write,
        trim,
    })
}

/// What became of the job's steady state, if it has one.
fn steady_state(entry: &Object, spec: Option<&JobSpec>) -> Result<Option<SteadyState>, JsonFault> {
    let watched = spec.and_then(JobSpec::watched_figures);
    let (Some(state), Some(watched)) = (entry.object("steadystate")?, watched) else {
        return Ok(None);
    };
    let criterion = state.text("criterion").unwrap_or_default();
    let data = state.object("data")?;
    let figures = |key: &str| -> Vec<u64> {
        let list = data
            .as_ref()
            .and_then(|data| data.entry.get(key)?.as_array());
        let list = list.map(Vec::as_slice).unwrap_or_default();
        list.iter().filter_map(Value::as_u64).collect()
    };
    Ok(Some(SteadyState {
        attained: state.count("attained")? > 0,
        criterion: criterion.trim_end_matches('%').parse().unwrap_or(0.0),
        max_deviation: state.number("max_deviation")?,
        // It may fall, which `number` takes for a fault.
        slope: state
            .entry
            .get("slope")
            .and_then(Value::as_f64)
            .unwrap_or(0.0),
        figures: figures("iops").into_iter().zip(figures("bw")).collect(),
        ..watched
    }))
}

/// The weight of a job's processes, which is the same for all of them.
fn due_weight(job: &JobFile, name: &str) -> Option<f64> {
    let processes = processes(job);
    let at = processes.iter().position(|p| job.jobs[p.job].name == name);
    due_weights(job, &processes)[at?]
}

/// Whether a job completed its work. fio does not say so, but only a limit of the run time ends a
/// job earlier, or the end of another job that ends all.
fn finished(spec: &JobSpec, runtime_ns: u64) -> bool {
    let limit_ns = spec.runtime_us.saturating_mul(1000);
    !spec.time_based && (limit_ns == 0 || runtime_ns < limit_ns)
}

fn direction(entry: &Object, key: &str) -> Result<DirResults, JsonFault> {
    let Some(dir) = entry.object(key)? else {
        return Ok(DirResults::default());
    };
    let sample = |name: &str, deviation: &str, factor: f64| -> Result<Sample, JsonFault> {
        Ok(Sample::of_moments(
            dir.count(&format!("{name}_samples"))?,
            dir.number(&format!("{name}_min"))? * factor,
            dir.number(&format!("{name}_max"))? * factor,
            dir.number(&format!("{name}_mean"))? * factor,
            dir.number(deviation)? * factor,
        ))
    };
    Ok(DirResults {
        ios: dir.count("total_ios")?,
        bytes: dir.count("io_bytes")?,
        short_ios: dir.count("short_ios")?,
        slat_ns: latency(&dir, "slat_ns")?,
        clat_ns: latency(&dir, "clat_ns")?,
        lat_ns: latency(&dir, "lat_ns")?,
        runtime_ns: dir.count("runtime")?.saturating_mul(1_000_000),
        bw_samples: sample("bw", "bw_dev", 1024.0)?,
        iops_samples: sample("iops", "iops_stddev", 1.0)?,
    })
}

fn latency(dir: &Object, key: &str) -> Result<Histogram, JsonFault> {
    let Some(latency) = dir.object(key)? else {
        return Ok(Histogram::new());
    };
    let summary = Summary {
        min_ns: latency.count("min")?,
        max_ns: latency.count("max")?,
        mean_ns: latency.number("mean")?,
        stddev_ns: latency.number("stddev")?,
        count: latency.count("N")?,
    };
    if summary.min_ns > summary.max_ns {
        return Err(fault(latency.at("min"), "more than max"));
    }
    let bins = bins(&latency)?;
    let counted = bins
        .iter()
        .try_fold(0u64, |sum, bin| sum.checked_add(bin.count));
    if counted.is_none_or(|counted| counted > summary.count) {
        return Err(fault(latency.at("bins"), "hold more values than N"));
    }
    Ok(Histogram::of_fio(&bins, summary))
}

fn bins(latency: &Object) -> Result<Vec<FioBin>, JsonFault> {
    let Some(bins) = latency.object("bins")? else {
        return Ok(Vec::new());
    };
    let one = |(value, count): (&String, &Value)| match (value.parse(), count.as_u64()) {
        (Ok(value_ns), Some(count)) => Ok(FioBin { value_ns, count }),
        _ => Err(fault(bins.at(value), "not nanoseconds and a count")),
    };
    bins.entry.iter().map(one).collect()
}

/// Converts fio's percentages of all I/Os to counts, within the rounding to six decimals.
fn shares<const N: usize>(
    entry: &Object,
    key: &str,
    names: [&str; N],
    ios: u64,
) -> Result<[u64; N], JsonFault> {
    let mut counts = [0; N];
    if let Some(levels) = entry.object(key)? {
        for (count, name) in counts.iter_mut().zip(names) {
            *count = (levels.number(name)? / 100.0 * ios as f64).round() as u64;
        }
    }
    Ok(counts)
}

fn depths(entry: &Object, ios: u64) -> Result<DepthBuckets, JsonFault> {
    let names = ["0", "1", "2", "4", "8", "16", "32", ">=64"];
    let counts = shares(entry, "iodepth_level", names, ios)?;
    Ok(DepthBuckets { counts })
}

fn batches(entry: &Object, key: &str, ios: u64) -> Result<BatchBuckets, JsonFault> {
    let names = ["0", "4", "8", "16", "32", "64", ">=64"];
    let counts = shares(entry, key, names, ios)?;
    Ok(BatchBuckets { counts })
}

fn groups(jobs: &[JobResults]) -> Vec<GroupResults> {
    let mut groups: Vec<GroupResults> = Vec::new();
    for job in jobs {
        let known = groups.iter().position(|g| g.group_id == job.group_id);
        let at = known.unwrap_or_else(|| {
            groups.push(GroupResults {
                group_id: job.group_id,
                ..GroupResults::default()
            });
            groups.len() - 1
        });
        groups[at].read.merge(&job.read);
        groups[at].write.merge(&job.write);
        groups[at].trim.merge(&job.trim);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_workload::fio;
    use proptest::prelude::*;
    use std::process::Command;

    const JOB: &str = "[global]\nsize=1m\nioengine=psync\nnumber_ios=200\n\
        lat_percentiles=1\nclat_percentiles=1\n\
        [a]\nrw=randrw\nbs=4k\nfsync=8\n[b]\nstonewall\nrw=read\nbs=8k\nnumjobs=2\n";

    fn job(text: &str) -> JobFile {
        let no_includes = |_: &str, _: &str| Err("no includes".to_string());
        fio::parse_str("t.fio", text, &|_| None, &no_includes).unwrap()
    }

    /// Output of fio itself is parsed.
    #[test]
    fn real_fio_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("{JOB}[unreported]\nrw=read\nstats=0\n");
        std::fs::write(folder.path().join("t.fio"), &text).unwrap();
        let mut fio = Command::new("fio");
        fio.args(["--output-format=json+", "t.fio"])
            .current_dir(folder.path());
        let Ok(done) = fio.output() else {
            blklab_judges::missing("fio");
            return;
        };
        assert!(done.status.success());
        let output = String::from_utf8(done.stdout).unwrap();
        let results = parse(&output, &job(&text)).unwrap();
        let (_, json) = split(&output).unwrap();
        let json: Value = serde_json::from_str(json).unwrap();
        assert_eq!(results.jobs.len(), 3);
        for (ours, theirs) in results.jobs.iter().zip(json["jobs"].as_array().unwrap()) {
            let read = &theirs["read"];
            assert_eq!(ours.read.ios, read["total_ios"].as_u64().unwrap());
            assert_eq!(ours.read.bytes, read["io_bytes"].as_u64().unwrap());
            for (key, histogram) in [
                ("clat_ns", &ours.read.clat_ns),
                ("lat_ns", &ours.read.lat_ns),
            ] {
                let summary = histogram.summary();
                assert_eq!(summary.max_ns, read[key]["max"].as_u64().unwrap());
                let p99 = read[key]["percentile"]["99.000000"].as_u64().unwrap();
                assert_eq!(histogram.fio_percentiles(&[99.0]), [p99], "{key}");
                let mean = read[key]["mean"].as_f64().unwrap();
                assert!((summary.mean_ns - mean).abs() <= 1.0);
            }
            // fio counts syncs here too.
            assert!(ours.depth.counts[1] >= ours.read.ios + ours.write.ios);
        }
        assert!(results.jobs[0].syncs > 0);
        assert_eq!(results.jobs[1].group_id, 1);
        assert_eq!(results.groups.len(), 2);
        let sum = results.jobs[1].read.ios + results.jobs[2].read.ios;
        assert_eq!(results.groups[1].read.ios, sum);
        assert_eq!(results.jobs[0].setup.rw, "randrw");
    }

    #[test]
    fn remarks_before_the_json_become_notes() {
        let text = "fio: connected to NBD server\nnote: something\n{\"jobs\": []}\ntrailing";
        let results = parse(text, &job(JOB)).unwrap();
        assert_eq!(results.notes, ["fio: note: something"]);
    }

    #[test]
    fn faults_name_their_place() {
        let cases = [
            ("", "the whole: fio wrote no JSON"),
            ("{", "the whole: EOF"),
            ("{}", "jobs: missing"),
            ("{\"jobs\":[1]}", "jobs[0]: no object"),
            ("{\"jobs\":[{}]}", "jobs[0].jobname: missing"),
            (
                "{\"jobs\":[{\"jobname\":\"a\",\"read\":{\"total_ios\":-1}}]}",
                "jobs[0].read.total_ios: not a whole number",
            ),
            (
                "{\"jobs\":[{\"jobname\":\"a\",\"read\":{\"lat_ns\":{\"N\":1,\"bins\":{\"5\":2}}}}]}",
                "jobs[0].read.lat_ns.bins: hold more",
            ),
        ];
        for (text, message) in cases {
            let fault = parse(text, &job(JOB)).unwrap_err().to_string();
            assert!(fault.contains(message), "{fault}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_a_panic(text in "(?s)\\{?.{0,200}") {
            let _ = parse(&text, &job(JOB));
        }

        #[test]
        fn no_figures_are_a_panic(n in any::<u64>(), min in any::<u64>(), mean in any::<f64>(), bin in any::<u64>()) {
            let text = format!(
                "{{\"jobs\":[{{\"jobname\":\"a\",\"job_runtime\":{n},\"usr_cpu\":{mean:e},\"read\":{{\
                 \"runtime\":{n},\"total_ios\":{n},\"lat_ns\":{{\"N\":{n},\"min\":{min},\"max\":{n},\
                 \"mean\":{mean:e},\"bins\":{{\"{bin}\":{min}}}}}}}}}]}}"
            );
            let _ = parse(&text, &job(JOB));
        }
    }
}
