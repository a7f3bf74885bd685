//! What the steps of each scheduler take a CPU beside those of mq-deadline, which machines'
//! descriptions know from measurements: what each declares as its [`StepCosts`]. Fails where a
//! declaration is far from what is measured.
//!
//! valgrind's callgrind counts instructions, so other work on the machine changes nothing. The
//! work is the thesis's six patterns (document 002, 5.1.3) as `jobs/thesis` has them, with one
//! request at a time and with 128; a figure is the mean of these twelve. With the name of a
//! scheduler, `cargo bench --bench step_costs -- NAME` shows each of them.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Error};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::{env, fs};

use blklab_blk::{Bio, BioFlags, InsertAt, Nanos, Op, RequestId, Sector, SubmitterId};
use blklab_elevator::{ElevatorType, StepCosts};

#[path = "../src/test_queue.rs"]
mod test_queue;
use test_queue::{TestQueue, queue_info, random_numbers};

/// Bios of a run that are counted, after as many that are not.
const BIOS: u64 = 2048;
/// Commands that the drive of `jobs/thesis` takes.
const DRIVE_DEPTH: usize = 32;
/// How long the drive takes for each; about what an SSD does.
const COMMAND: Nanos = Nanos(100_000);
/// Requests that wait or are in the drive.
const DEPTHS: [usize; 2] = [1, 128];
/// How far a declared figure may be from the measured one: other versions of the compiler differ.
const TOLERANCE_PERCENT: u32 = 10;

/// The functions below that make the steps, and their names in callgrind's files.
const STEPS: [&str; 4] = ["step_merge", "step_insert", "step_dispatch", "step_finish"];
const MERGE: usize = 0;
const INSERT: usize = 1;
const DISPATCH: usize = 2;
const FINISH: usize = 3;

#[derive(Clone, Copy)]
struct Pattern {
    name: &'static str,
    is_random: bool,
    read_percent: u64,
    sectors: u32,
}

const fn pattern(name: &'static str, sectors: u32, is_random: bool, read_percent: u64) -> Pattern {
    Pattern {
        name,
        is_random,
        read_percent,
        sectors,
    }
}

const PATTERNS: [Pattern; 6] = [
    pattern("read", 128, false, 100),
    pattern("write", 128, false, 0),
    pattern("randread", 8, true, 100),
    pattern("randwrite", 8, true, 0),
    pattern("randrw-50-50", 8, true, 50),
    pattern("randrw-90-10", 8, true, 90),
];

/// Twice [`BIOS`] bios of a pattern, of one process or of four by turns.
fn bios(pattern: Pattern, depth: usize) -> Vec<Bio> {
    let mut random = random_numbers();
    let sectors = u64::from(pattern.sectors);
    let blocks = queue_info().capacity_sectors / sectors;
    let submitters = depth.min(4) as u64;
    let bio = |at: u64| {
        let submitter = at % submitters;
        let block = match pattern.is_random {
            true => random() % blocks,
            false => submitter * (blocks / submitters) + at / submitters,
        };
        // The flags of direct I/O (`dio_bio_write_op`).
        let (op, flags) = match random() % 100 < pattern.read_percent {
            true => (Op::Read, BioFlags::NONE),
            false => (Op::Write, BioFlags::SYNC | BioFlags::IDLE),
        };
        Bio {
            flags,
            submitter: SubmitterId(submitter as u32),
            ..Bio::new(op, Sector(block * sectors), pattern.sectors)
        }
    };
    (0..2 * BIOS).map(bio).collect()
}

#[inline(never)]
fn step_merge(queue: &mut TestQueue, bio: &Bio) -> Option<RequestId> {
    queue.merge(bio)
}

#[inline(never)]
fn step_insert(queue: &mut TestQueue, id: RequestId) {
    queue.prepare(id);
    queue.insert_request(id, InsertAt::Tail);
}

#[inline(never)]
fn step_dispatch(queue: &mut TestQueue) -> Option<RequestId> {
    queue.dispatch()
}

#[inline(never)]
fn step_finish(queue: &mut TestQueue, id: RequestId) {
    queue.end(id);
}

/// A scheduler with processes above it that submit a bio when a request has ended, and a drive
/// below it.
struct ClosedLoop {
    queue: TestQueue,
    in_drive: VecDeque<RequestId>,
    depth: usize,
}

impl ClosedLoop {
    fn submit(&mut self, bio: &Bio) {
        while self.queue.in_use() >= self.depth {
            self.run_queue();
            self.end_oldest();
        }
        if step_merge(&mut self.queue, bio).is_none() {
            let id = self.queue.allocate(bio);
            step_insert(&mut self.queue, id);
        }
        self.queue.merged_away();
    }

    /// Fills the drive, as far as the scheduler lets it.
    fn run_queue(&mut self) {
        while self.in_drive.len() < DRIVE_DEPTH {
            match step_dispatch(&mut self.queue) {
                Some(id) => self.in_drive.push_back(id),
                None if self.in_drive.is_empty() => self.wait_for_timer(),
                None => return,
            }
        }
    }

    fn wait_for_timer(&mut self) {
        let due = self.queue.elevator.next_timer();
        self.queue.now = due
            .expect("who holds all back has a timer")
            .max(self.queue.now);
        self.queue.run_timer();
    }

    fn end_oldest(&mut self) {
        let id = self.in_drive.pop_front().expect("the drive has work");
        let ends_at = self.queue.rq(id).io_start + COMMAND;
        self.queue.now = self.queue.now.max(ends_at);
        self.queue.run_timer();
        step_finish(&mut self.queue, id);
        self.queue.free(id);
    }
}

/// What callgrind counts in.
#[inline(never)]
fn counted_part(work: &mut ClosedLoop, bios: &[Bio]) {
    bios.iter().for_each(|bio| work.submit(bio));
}

/// The work of a process under callgrind.
fn run(kind: &ElevatorType, pattern: Pattern, depth: usize) {
    let elevator = kind.build(&queue_info()).expect("a scheduler");
    let mut work = ClosedLoop {
        queue: TestQueue::new(elevator),
        in_drive: VecDeque::new(),
        depth,
    };
    let bios = bios(pattern, depth);
    let (before, counted) = bios.split_at(BIOS as usize);
    before.iter().for_each(|bio| work.submit(bio));
    counted_part(&mut work, counted);
}

/// Instructions of each step, on average of its calls.
type Instructions = [f64; 4];

/// Runs this program again under callgrind. Returns what it counted.
fn instructions_of(kind: &str, pattern: Pattern, depth: usize) -> io::Result<Instructions> {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("step_costs.callgrind");
    let done = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no"])
        .arg("--toggle-collect=*step_costs::counted_part*")
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(env::current_exe()?)
        .args(["run", kind, pattern.name, &depth.to_string()])
        .output()?;
    if !done.status.success() {
        return Err(Error::other(String::from_utf8_lossy(&done.stderr)));
    }
    Ok(means(&fs::read_to_string(&out)?))
}

/// Instructions of each step on average, from a file of callgrind's: after `cfn=(ID) NAME`, whose
/// name is left out when it was given before, come `calls=COUNT TARGET` and a line with what they
/// took (valgrind's manual, "Callgrind Format Specification").
fn means(profile: &str) -> Instructions {
    let mut names = BTreeMap::new();
    let (mut calls, mut took) = ([0; 4], [0; 4]);
    let mut called = None;
    let mut lines = profile.lines();
    while let Some(line) = lines.next() {
        if let Some(function) = line.strip_prefix("cfn=").or(line.strip_prefix("fn=")) {
            let (id, name) = function.split_once(' ').unwrap_or((function, ""));
            if !name.is_empty() {
                names.insert(id, STEPS.iter().position(|step| name.ends_with(step)));
            }
            called = names.get(id).copied().flatten();
        } else if let (Some(count), Some(step)) = (line.strip_prefix("calls="), called) {
            calls[step] += number_at(count, 0);
            took[step] += number_at(lines.next().unwrap_or_default(), 1);
        }
    }
    std::array::from_fn(|step| took[step] as f64 / calls[step].max(1) as f64)
}

fn number_at(line: &str, at: usize) -> u64 {
    let number = line.split(' ').nth(at);
    number
        .and_then(|n| n.parse().ok())
        .expect("a number of callgrind's")
}

/// The mean over all patterns and depths; each of them is printed if that is wanted.
fn measure(kind: &ElevatorType, is_shown: bool) -> io::Result<Instructions> {
    let mut sum = [0.0; 4];
    for depth in DEPTHS {
        for pattern in PATTERNS {
            let found = instructions_of(kind.name, pattern, depth)?;
            if is_shown {
                println!(
                    "{:12} {:13} depth {depth:3} {found:6.0?}",
                    kind.name, pattern.name
                );
            }
            sum.iter_mut()
                .zip(found)
                .for_each(|(sum, found)| *sum += found);
        }
    }
    Ok(sum.map(|sum| sum / (DEPTHS.len() * PATTERNS.len()) as f64))
}

/// The costs of `own` beside those of mq-deadline, `base`.
fn relative(own: Instructions, base: Instructions) -> StepCosts {
    let of = |step: usize| (100.0 * own[step] / base[step]).round() as u32;
    let more = (own[FINISH] - base[FINISH]).max(0.0);
    StepCosts {
        merge: of(MERGE),
        insert: of(INSERT),
        dispatch: of(DISPATCH),
        finish: (100.0 * more / base[DISPATCH]).round() as u32,
    }
}

fn figures(costs: StepCosts) -> [u32; 4] {
    [costs.merge, costs.insert, costs.dispatch, costs.finish]
}

fn is_near(declared: u32, measured: u32) -> bool {
    // Of a small figure a tenth is nothing that another version of the compiler keeps to.
    let tolerance = TOLERANCE_PERCENT * measured.max(50) / 100;
    declared.abs_diff(measured) <= tolerance
}

/// Prints a row for each scheduler. Returns whether all are near what they declare.
fn compare(wanted: Option<&str>) -> io::Result<bool> {
    println!("merge, insert, dispatch, finish: instructions; as declared; as to be declared");
    let base = blklab_elevator::find("mq-deadline").expect("is ours");
    let base = measure(base, false)?;
    let is_wanted = |kind: &&ElevatorType| wanted.is_none_or(|name| name == kind.name);
    let mut all_near = true;
    for kind in blklab_elevator::all().iter().filter(is_wanted) {
        let Some(declared) = kind.costs.map(figures) else {
            continue;
        };
        let found = measure(kind, wanted.is_some())?;
        let measured = figures(relative(found, base));
        let mut pairs = declared.into_iter().zip(measured);
        let verdict = match pairs.all(|(declared, measured)| is_near(declared, measured)) {
            true => "",
            false => "  FAR",
        };
        all_near &= verdict.is_empty();
        println!(
            "{:12} {found:5.0?}  {declared:3?}  {measured:3?}{verdict}",
            kind.name
        );
    }
    Ok(all_near)
}

fn main() -> ExitCode {
    let args: Vec<String> = env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if let ["run", kind, pattern, depth] = args[..] {
        let kind = blklab_elevator::find(kind).expect("a scheduler");
        let pattern = PATTERNS.into_iter().find(|known| known.name == pattern);
        run(
            kind,
            pattern.expect("a pattern"),
            depth.parse().expect("a depth"),
        );
        return ExitCode::SUCCESS;
    }
    match compare(args.first().copied()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            eprintln!("SKIPPED: the costs of schedulers' steps (make setup installs valgrind)");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
