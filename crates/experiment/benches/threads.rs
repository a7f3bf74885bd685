//! The speed-up of a comparison by a second core, in real time; needs two idle cores.

use std::time::Instant;

use blklab_experiment::{NamedScheduler, Plan, Setting, Simulated, WorkloadSource, World, run};
use blklab_workload::fio::JobSource;

/// Runs of each scheduler: enough that the end of the last run does not matter.
const REPEATS: usize = 8;
const REQUESTS: u64 = 250_000;

fn main() {
    let text = format!(
        "[a]\nfilename=/dev/x\ndirect=1\nioengine=libaio\niodepth=32\nrw=randread\nbs=4k\n\
         norandommap\nnumber_ios={REQUESTS}\n"
    );
    let name = "bench".to_string();
    let work = WorkloadSource::Job(JobSource::File { name, text });
    let settings = ["none", "mq-deadline"].map(|scheduler| Setting {
        label: scheduler.to_string(),
        scheduler: NamedScheduler::new(scheduler),
        drive: "mqsim-ideal".to_string(),
        machine: "generic-8".to_string(),
        ..Setting::default()
    });
    let world = Simulated::new(&work, &settings).expect("the job can be simulated");
    let seconds = [1, 2].map(|threads| seconds(&world, threads));
    let runs = settings.len() * REPEATS;
    let requests = runs as f64 * REQUESTS as f64;
    println!(
        "comparison of {runs} runs: {:.2} M/s on one thread, {:.2} M/s on two: {:.2} times as fast",
        requests / seconds[0] / 1e6,
        requests / seconds[1] / 1e6,
        seconds[0] / seconds[1]
    );
    println!(
        "two that know nothing of each other: {:.2} times as fast as one after the other",
        apart(&world)
    );
}

fn seconds(world: &impl World, threads: usize) -> f64 {
    let plan = Plan {
        repeats: REPEATS,
        threads: Some(threads),
        ..Plan::default()
    };
    let start = Instant::now();
    run(world, &plan, &|_| {}).expect("the job can be simulated");
    start.elapsed().as_secs_f64()
}

/// Returns the speed-up of two independent comparisons on a thread each over one after
/// the other: the most that the machine can give.
fn apart(world: &impl World) -> f64 {
    let one = seconds(world, 1);
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| seconds(world, 1));
        scope.spawn(|| seconds(world, 1));
    });
    2.0 * one / start.elapsed().as_secs_f64()
}
