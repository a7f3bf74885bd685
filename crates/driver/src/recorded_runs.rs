//! What a driver with its drive does is a pure function of the calls that it gets: on any machine
//! and after any change of the code that is not one of a driver's behaviour, requests take as long
//! as is recorded here, behind every interface, bridge and front end. Where the behaviour is changed
//! on purpose, `INSTA_UPDATE=always` records it anew.

use std::fmt::Write;

use blklab_blk::{Bio, Nanos, Op, RequestQueue, Sector, Submit, Waiter};
use blklab_device::DriveSpec;
use blklab_judges::Numbers;

use crate::{
    Attachment, Driver, FrontEnd, FrontEndKind, ServerStep, UsbBridge, UsbLink, UsbProtocol,
    UsbSpeed, disk_stats, request_end,
};

const BIOS: u64 = 400;
const CPUS: usize = 4;

/// A drive that answers after some microseconds, as the interface's drives do.
fn spec(interface: &str, host: &str) -> DriveSpec {
    let text = format!(
        "description = \"x\"\ninterface = \"{interface}\"\nmodel = \"null\"\n[host]\n\
         capacity_bytes = 1073741824\n{host}\n[timing]\nread_ns = 9000\nwrite_ns = 21000\n\
         flush_ns = 400000\nparallelism = 4\nread_bandwidth_mb_s = 700\n"
    );
    DriveSpec::parse("x", &text).unwrap_or_else(|error| panic!("{error}"))
}

/// A queue and its driver under random bios, and the threads beside them: a loop device's worker,
/// or a server's.
struct Run {
    now: Nanos,
    queue: RequestQueue,
    driver: Driver,
    numbers: Numbers,
    waiters: Vec<Waiter>,
    since: Vec<Nanos>,
    ended: u64,
    took_ns: u64,
    longest_ns: u64,
    /// Commands that a CPU held, by how many there were.
    held: u64,
    /// Threads beside the queue: their steps, and notifications to them and by them.
    steps: u64,
    pages: u64,
    notifications: [u64; 2],
    servers: usize,
}

impl Run {
    fn new(spec: &DriveSpec, attachment: Attachment) -> Run {
        let mut driver = Driver::attached(spec, attachment, 1);
        let queue = RequestQueue::new(&driver.queue_config(CPUS));
        let servers = driver.as_served().map_or(0, |served| served.start(CPUS));
        Run {
            now: Nanos::ZERO,
            queue,
            driver,
            numbers: Numbers(3),
            waiters: Vec::new(),
            since: Vec::new(),
            ended: 0,
            took_ns: 0,
            longest_ns: 0,
            held: 0,
            steps: 0,
            pages: 0,
            notifications: [0; 2],
            servers,
        }
    }

    fn bio(&mut self) -> Bio {
        let (op, sectors) = match self.numbers.below(20) {
            0 => (Op::Flush, 0),
            1..=12 => (Op::Read, 8 << self.numbers.below(5)),
            _ => (Op::Write, 8 << self.numbers.below(4)),
        };
        let sector = self.numbers.below(200_000) * 8;
        let mut bio = Bio::new(op, Sector(sector), sectors as u32);
        bio.user_data = self.since.len() as u64;
        bio
    }

    fn submit(&mut self) {
        let bio = self.bio();
        self.since.push(self.now);
        let cpu = self.numbers.below(CPUS as u64) as usize;
        let submit = (self.queue).submit_bio(self.now, cpu, None, bio, &mut self.driver);
        if let Submit::Blocked(waiter) = submit {
            self.waiters.push(waiter);
        }
    }

    /// Ends requests, and lets go on who waits for them.
    fn settle(&mut self) {
        loop {
            let (mut ended, mut woken) = (Vec::new(), Vec::new());
            self.queue.take_ended(&mut ended);
            self.queue.take_woken(&mut woken);
            if ended.is_empty() && woken.is_empty() {
                return;
            }
            for end in ended {
                let took_ns = (self.now - self.since[end.user_data as usize]).0;
                self.ended += 1;
                self.took_ns += took_ns;
                self.longest_ns = self.longest_ns.max(took_ns);
            }
            for ticket in woken {
                let at = self.waiters.iter().position(|w| w.ticket == ticket);
                let waiter = self.waiters.remove(at.expect("it sleeps"));
                let done = self.queue.resume(self.now, None, waiter, &mut self.driver);
                if let Submit::Blocked(waiter) = done {
                    self.waiters.push(waiter);
                }
            }
        }
    }

    /// Lets the threads beside the queue do a step each; `true` if one did.
    fn run_threads(&mut self) -> bool {
        let mut ran = false;
        if let Some(worker) = self.driver.as_loop()
            && let Some(job) = worker.begin()
        {
            self.now += Nanos(2_000 + 30 * u64::from(job.sectors));
            worker.copied(self.now);
            self.steps += 1;
            ran = true;
        }
        for line in 0..self.servers {
            let served = self.driver.as_served().expect("it has servers");
            let _ = served.sender_cpu(line);
            let sent = served.take_sent(line);
            self.notifications[0] += u64::from(sent.notifies_server);
            self.pages += u64::from(sent.write_pages);
            if !served.has_work(line) {
                served.begin(line, 3);
                continue;
            }
            let step = served.begin(line, 3).expect("it has work");
            self.now += Nanos(match step {
                ServerStep::Receive { write_pages, .. } => 900 + 200 * u64::from(write_pages),
                ServerStep::Serve { pages } => 400 + 100 * u64::from(pages),
                ServerStep::Reply { read_pages, .. } => 700 + 200 * u64::from(read_pages),
            });
            served.finish(self.now, line);
            if matches!(step, ServerStep::Reply { .. }) {
                self.notifications[1] += u64::from(served.notified_kernel(line));
                served.answers_are_handled(line);
            }
            self.steps += 1;
            ran = true;
        }
        ran
    }

    fn advance(&mut self, to: Nanos) {
        self.now = self.now.max(to);
        let mut done = Vec::new();
        self.driver.advance(self.now, &mut done);
        for end in &done {
            let (id, status) = request_end(end);
            self.queue.complete(self.now, id, status, &mut self.driver);
        }
        self.settle();
        if self.queue.next_event() <= self.now {
            self.queue.process(self.now, &mut self.driver);
            self.settle();
        }
    }

    /// Submits all bios, up to `burst` at a time, through CPUs that take a while to send a command
    /// if `holds`.
    fn run(&mut self, burst: u64, holds: bool) {
        if holds {
            self.driver.hold();
            if let Some(worker) = self.driver.as_loop() {
                worker.schedule_worker();
            }
        }
        while self.ended < BIOS {
            let outstanding = self.since.len() as u64 - self.ended;
            if (self.since.len() as u64) < BIOS && outstanding < 24 {
                let count = 1 + self.numbers.below(burst);
                for _ in 0..count.min(BIOS - self.since.len() as u64) {
                    self.submit();
                }
            }
            self.settle();
            let on_the_way = self.driver.on_the_way();
            self.held += on_the_way
                .iter()
                .filter(|(at, _)| *at == Nanos::MAX)
                .count() as u64;
            if holds {
                let queues = self.queue.nr_hw_queues();
                self.driver.release_queue(queues / 2, self.now + Nanos(700));
                self.driver.release(self.now + Nanos(300));
            }
            if self.run_threads() {
                self.advance(self.now);
                continue;
            }
            let next = self.driver.next_event().min(self.queue.next_event());
            if next == Nanos::MAX {
                assert!((self.since.len() as u64) < BIOS, "it is stuck");
                continue;
            }
            self.advance(next);
        }
    }

    fn result(&mut self, name: &str, burst: u64, holds: bool) -> String {
        self.run(burst, holds);
        let mut text = format!(
            "{name}: {} ns, requests took {} ns, at most {}\n",
            self.now.0, self.took_ns, self.longest_ns
        );
        let _ = writeln!(
            text,
            "  {} held, {} steps, {} pages, notifications {:?}",
            self.held, self.steps, self.pages, self.notifications
        );
        let stats = disk_stats("disk", &self.queue, &self.driver, self.now);
        let _ = writeln!(text, "  {:?}", stats.queue);
        let _ = writeln!(text, "  {} events in the drive", stats.device.events);
        text
    }
}

#[test]
fn requests_take_as_long_as_recorded() {
    let mut text = String::new();
    for (interface, host) in [
        ("nvme", "queue_depth = 16\nqueues = 4"),
        ("nvme", "queue_depth = 3\nqueues = 2\nfua = true"),
        ("ahci", "queue_depth = 32"),
        ("ahci", "queue_depth = 1"),
        ("mmc", "queue_depth = 1"),
        ("loop", "queue_depth = 128"),
        ("null", "queue_depth = 64"),
    ] {
        for holds in [false, true] {
            let mut run = Run::new(&spec(interface, host), Attachment::Direct);
            let name = format!("{interface} {}, holds {holds}", host.replace('\n', ", "));
            text += &run.result(&name, 6, holds);
        }
    }
    insta::assert_snapshot!("interfaces", text);
}

#[test]
fn requests_over_usb_take_as_long_as_recorded() {
    let mut text = String::new();
    for protocol in [UsbProtocol::Uas, UsbProtocol::UsbStorage] {
        for speed in [UsbSpeed::High, UsbSpeed::Super] {
            for bandwidth_mb_s in [None, Some(120.0)] {
                let link = UsbLink {
                    protocol,
                    speed,
                    bandwidth_mb_s,
                };
                let bridge = UsbBridge {
                    link,
                    turnaround: Nanos(15_000),
                };
                let spec = spec("ahci", "queue_depth = 32");
                let mut run = Run::new(&spec, Attachment::Usb(bridge));
                text += &run.result(&format!("{link:?}"), 8, true);
            }
        }
    }
    insta::assert_snapshot!("usb", text);
}

#[test]
fn requests_through_a_front_end_take_as_long_as_recorded() {
    let mut text = String::new();
    for kind in FrontEndKind::ALL {
        for queues in [1, 2, 4] {
            let front_end = Attachment::FrontEnd(FrontEnd { kind, queues });
            let spec = spec("nvme", "queue_depth = 5\nqueues = 1");
            let mut run = Run::new(&spec, front_end);
            text += &run.result(&format!("{} with {queues}", kind.name()), 10, false);
        }
    }
    insta::assert_snapshot!("front_ends", text);
}
