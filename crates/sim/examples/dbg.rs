use blklab_device::registry;
use blklab_sim::{Machine, SchedulerChoice, Setup, run};
use blklab_workload::fio;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let text = std::fs::read_to_string(&a[1]).unwrap();
    let job = fio::parse_str("t.fio", &text, &|_| None, &|_, f| Err(f.to_string())).unwrap();
    println!(
        "{:?}",
        (
            job.jobs[0].runtime_us,
            job.jobs[0].ramp_us,
            job.jobs[0].time_based,
            job.jobs[0].batch_submit,
            job.jobs[0].io_depth_low,
            job.jobs[0].batch_complete_min,
            job.jobs[0].batch_complete_max
        )
    );
    let drive = registry::find(&a[2]).unwrap().unwrap();
    let machine = Machine::find(a.get(4).map_or("generic-8", String::as_str)).unwrap().unwrap();
    let scheduler = SchedulerChoice::named(&a[3]).unwrap();
    let t = std::time::Instant::now();
    let r = run(&Setup {
        job: &job,
        machine: &machine,
        drive: &drive,
        scheduler: &scheduler,
        seed: 1,
    })
    .unwrap();
    let dt = t.elapsed();
    let n: u64 = r.jobs.iter().map(|j| j.read.ios + j.write.ios).sum();
    println!(
        "elapsed {} ios {n} {:?} per io {:.0} ns",
        r.elapsed_ns,
        dt,
        dt.as_nanos() as f64 / n as f64
    );
    println!("{:?}", r.disks[0].queue);
    println!("{:?}", r.disks[0].scheduler);
}
