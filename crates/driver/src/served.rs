//! A drive behind a front end: the kernel's side of each queue, and the server's thread there.
//!
//! A server works in rounds: it receives what has come, carries each request out on its drive, and
//! answers what has ended. How long each step takes and when it runs is the caller's.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use blklab_blk::{BlkStatus, Nanos, Op, QueueConfig, Request, RequestId};
use blklab_device::{Command, Completion, Device};

use crate::KernelDriver;
use crate::front_end::{Channel, FrontEnd, Occupied, pages};
use crate::port::{Port, request_of};

/// What a server's thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerStep {
    /// Receives requests, all at once.
    Receive {
        /// How many.
        requests: u32,
        /// Pages of the data that writes among them bring.
        write_pages: u32,
    },
    /// Carries a request out.
    Serve {
        /// Pages that it copies.
        pages: u32,
    },
    /// Answers requests that have ended, all at once.
    Reply {
        /// How many.
        answers: u32,
        /// Pages of the data that reads among them bring.
        read_pages: u32,
    },
}

/// What a queue was given since this was last asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Requests.
    pub requests: u32,
    /// Pages of the data of writes among them.
    pub write_pages: u32,
    /// The server must be notified.
    pub notifies_server: bool,
    /// The CPU that submitted the first of them.
    pub cpu: Option<usize>,
}

/// A request between its sending and its end.
#[derive(Clone, Copy)]
struct InFlight {
    command: Command,
    room: Occupied,
}

/// One queue with its server's thread.
struct Line {
    channel: Channel,
    sent: Sent,
    /// Requests that the server has not received, in order.
    waiting: VecDeque<InFlight>,
    /// Requests that it has received and not begun.
    received: VecDeque<InFlight>,
    /// Requests that the drive has.
    in_drive: Vec<InFlight>,
    /// Completions that are not in an answer yet.
    answers: Vec<(InFlight, Completion)>,
    /// What the thread does now.
    step: Option<ServerStep>,
    sleeps: bool,
    /// The last answers need an interrupt, or whatever else notifies the kernel.
    notifies_kernel: bool,
}

impl Line {
    fn new(channel: Channel) -> Line {
        Line {
            channel,
            sent: Sent::default(),
            waiting: VecDeque::new(),
            received: VecDeque::new(),
            in_drive: Vec::new(),
            answers: Vec::new(),
            step: None,
            sleeps: true,
            notifies_kernel: false,
        }
    }

    fn next_step(&self, batch: usize) -> Option<ServerStep> {
        let pages_of = |one: &InFlight| pages(one.command.op, one.command.sectors);
        if let Some(one) = self.received.front() {
            return Some(ServerStep::Serve {
                pages: pages_of(one),
            });
        }
        let pages_of_op = |one: &InFlight, op| {
            if one.command.op == op {
                pages_of(one)
            } else {
                0
            }
        };
        if !self.answers.is_empty() {
            let read = |(one, _): &(InFlight, Completion)| pages_of_op(one, Op::Read);
            return Some(ServerStep::Reply {
                answers: self.answers.len() as u32,
                read_pages: self.answers.iter().map(read).sum(),
            });
        }
        let first = self.waiting.iter().take(batch);
        let write = |one: &InFlight| pages_of_op(one, Op::Write);
        (!self.waiting.is_empty()).then(|| ServerStep::Receive {
            requests: first.len() as u32,
            write_pages: first.map(write).sum(),
        })
    }
}

/// The driver of a front end, with the server behind it.
pub struct Served {
    port: Port,
    front_end: FrontEnd,
    lines: Vec<Line>,
    /// By the tag of a command that the drive has, its queue.
    line_of_tag: Vec<u16>,
    /// Commands that the drive has, and the most that it takes.
    outstanding: usize,
    drive_depth: usize,
    /// The drive's queues.
    drive_queues: u16,
    /// Commands that wait for room in the drive.
    backlog: VecDeque<Command>,
    /// What the drive has ended, before it is sorted by queues.
    ended: Vec<Completion>,
    /// Answered completions that [`KernelDriver::advance`] has not returned.
    completed: Vec<Completion>,
    /// When the drive ended something that no server has noticed, or servers answered the kernel.
    noticed_at: Nanos,
}

impl Served {
    pub(crate) fn new(device: Box<dyn Device>, front_end: FrontEnd) -> Served {
        let drive = device.identify();
        let (depth, drive_queues) = (drive.queue_depth.max(1), drive.max_queues.max(1));
        Served {
            outstanding: 0,
            drive_depth: depth as usize * usize::from(drive_queues),
            drive_queues,
            backlog: VecDeque::new(),
            port: Port::new(device),
            front_end,
            lines: Vec::new(),
            line_of_tag: Vec::new(),
            ended: Vec::new(),
            completed: Vec::new(),
            noticed_at: Nanos::MAX,
        }
    }

    /// The front end.
    pub fn front_end(&self) -> FrontEnd {
        self.front_end
    }

    /// Makes the queues for a machine with this many CPUs, each with a server's thread that the
    /// caller runs. Returns how many there are.
    pub fn start(&mut self, nr_cpus: usize) -> usize {
        let FrontEnd { kind, queues } = self.front_end;
        let queues = kind.queues(queues, nr_cpus);
        self.lines = (0..queues).map(|_| Line::new(kind.new_channel())).collect();
        queues
    }

    /// What a queue was given since this was last asked.
    pub fn take_sent(&mut self, line: usize) -> Sent {
        let line = &mut self.lines[line];
        let mut sent = core::mem::take(&mut line.sent);
        if sent.requests > 0 {
            sent.notifies_server = line.channel.must_notify_server(line.sleeps);
            line.sleeps &= !sent.notifies_server;
        }
        sent
    }

    /// The CPU that submitted the first request that a queue was given since then.
    pub fn sender_cpu(&self, line: usize) -> Option<usize> {
        self.lines.get(line)?.sent.cpu
    }

    /// Whether the thread of a queue has something to do.
    pub fn has_work(&self, line: usize) -> bool {
        self.lines[line].next_step(1).is_some()
    }

    /// Begins the next step of a queue's thread, which receives `batch` requests at once at most;
    /// `None` puts it to sleep.
    pub fn begin(&mut self, line: usize, batch: usize) -> Option<ServerStep> {
        let line = &mut self.lines[line];
        line.step = line.next_step(batch.max(1));
        line.sleeps = line.step.is_none();
        if line.sleeps {
            line.channel.listen();
        }
        line.step
    }

    /// Ends the step that a queue's thread has begun.
    pub fn finish(&mut self, now: Nanos, line: usize) {
        let at = line;
        let line = &mut self.lines[at];
        match line.step.take() {
            None => {}
            Some(ServerStep::Receive { requests, .. }) => {
                for one in line.waiting.drain(..requests as usize) {
                    line.channel.taken(one.room);
                    line.received.push_back(one);
                }
            }
            Some(ServerStep::Serve { .. }) => {
                if let Some(one) = line.received.pop_front() {
                    line.in_drive.push(one);
                    let tag = one.command.tag as usize;
                    if self.line_of_tag.len() <= tag {
                        self.line_of_tag.resize(tag + 1, 0);
                    }
                    self.line_of_tag[tag] = at as u16;
                    self.backlog.push_back(one.command);
                    self.fill_drive(now);
                    self.advance_drive(now);
                }
            }
            Some(ServerStep::Reply { answers, .. }) => {
                let answers = (answers as usize).min(line.answers.len());
                line.notifies_kernel = line.channel.answer(answers as u16);
                for (one, completion) in line.answers.drain(..answers) {
                    line.channel.ended(one.room);
                    self.completed.push(Completion {
                        at: now,
                        ..completion
                    });
                }
                self.noticed_at = self.noticed_at.min(now);
            }
        }
    }

    /// Whether the last answers of a queue needed an interrupt, or whatever else notifies the
    /// kernel.
    pub fn notified_kernel(&self, line: usize) -> bool {
        self.lines[line].notifies_kernel
    }

    /// The kernel has handled all answers of a queue.
    pub fn answers_are_handled(&mut self, line: usize) {
        self.lines[line].channel.answers_are_handled();
    }

    /// The time of the next event in the drive, or of one here that is not noticed yet.
    pub fn next_event(&self) -> Nanos {
        self.port.next_event().min(self.noticed_at)
    }

    /// Gives the drive as many commands as it takes.
    fn fill_drive(&mut self, now: Nanos) {
        while self.outstanding < self.drive_depth
            && let Some(command) = self.backlog.pop_front()
        {
            self.outstanding += 1;
            self.port.device.submit(now, command);
        }
    }

    fn advance_drive(&mut self, now: Nanos) {
        self.port.device.advance(now, &mut self.ended);
        self.sort_ended(now);
    }

    /// Gives what the drive has ended to the servers that wait for it.
    fn sort_ended(&mut self, now: Nanos) {
        if self.ended.is_empty() {
            return;
        }
        self.noticed_at = self.noticed_at.min(now);
        self.outstanding -= self.ended.len();
        self.fill_drive(now);
        for completion in self.ended.drain(..) {
            let at = self.line_of_tag.get(completion.tag as usize);
            let Some(line) = at.and_then(|at| self.lines.get_mut(usize::from(*at))) else {
                continue;
            };
            let is_it = |one: &InFlight| one.command.tag == completion.tag;
            if let Some(place) = line.in_drive.iter().position(is_it) {
                let one = line.in_drive.swap_remove(place);
                line.answers.push((one, completion));
            }
        }
    }
}

impl KernelDriver for Served {
    fn port(&self) -> &Port {
        &self.port
    }

    fn port_mut(&mut self) -> &mut Port {
        &mut self.port
    }

    fn queue_config(&self, nr_cpus: usize) -> QueueConfig {
        let FrontEnd { kind, queues } = self.front_end;
        let queues = kind.queues(queues, nr_cpus);
        let mut config = self.port.queue_config(nr_cpus, queues, kind.queue_depth());
        let longest = kind.max_io_bytes().map_or(u32::MAX, |bytes| bytes >> 9);
        config.limits.max_sectors = config.limits.max_sectors.min(longest);
        config
    }

    fn queue_rq(&mut self, _now: Nanos, hctx: usize, id: RequestId, rq: &Request) -> BlkStatus {
        let Some(line) = self.lines.get_mut(hctx) else {
            return BlkStatus::Resource;
        };
        let Some(room) = line.channel.send(rq) else {
            return BlkStatus::DevResource;
        };
        line.sent.requests += 1;
        line.sent.cpu.get_or_insert(rq.ctx.into());
        if rq.op == Op::Write {
            line.sent.write_pages += pages(rq.op, rq.sectors);
        }
        let queue = hctx % usize::from(self.drive_queues);
        let command = Port::command(queue, id, rq);
        line.waiting.push_back(InFlight { command, room });
        BlkStatus::Ok
    }

    fn next_event(&self) -> Nanos {
        Served::next_event(self)
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        self.advance_drive(now);
        self.noticed_at = Nanos::MAX;
        done.append(&mut self.completed);
    }

    fn advance_to_completion(&mut self, limit: Nanos, _done: &mut Vec<Completion>) -> Nanos {
        // Ends are left to `advance`, after which the servers that wait for them are woken.
        if self.noticed_at < Nanos::MAX && self.noticed_at <= limit {
            return self.noticed_at;
        }
        let reached = (self.port.device).advance_to_completion(limit, &mut self.ended);
        if !self.ended.is_empty() {
            self.sort_ended(reached);
        }
        reached
    }

    fn waiting(&self) -> Vec<RequestId> {
        let of_line = |line: &Line| {
            let waiting = line.received.iter().chain(&line.waiting);
            let ids = waiting.map(|one| request_of(one.command.tag));
            ids.collect::<Vec<_>>()
        };
        self.lines.iter().flat_map(of_line).collect()
    }

    /// Does nothing: servers send the commands, so none is held here.
    fn hold(&mut self) {}

    fn forget_commands(&mut self) {
        let kind = self.front_end.kind;
        self.lines
            .iter_mut()
            .for_each(|line| *line = Line::new(kind.new_channel()));
        self.outstanding = 0;
        self.backlog.clear();
        self.ended.clear();
        self.completed.clear();
        self.noticed_at = Nanos::MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FrontEndKind;
    use blklab_blk::{Bio, Sector};
    use blklab_device::DriveSpec;

    fn served(kind: FrontEndKind, queues: u32, read_ns: u64) -> Served {
        on_drive(kind, queues, read_ns, "queue_depth = 128")
    }

    /// A server of a drive that ends all but reads at once.
    fn on_drive(kind: FrontEndKind, queues: u32, read_ns: u64, host: &str) -> Served {
        let text = format!(
            "description = \"x\"\ninterface = \"nvme\"\nmodel = \"null\"\n[host]\n\
             capacity_bytes = 1048576\n{host}\n[timing]\nread_ns = {read_ns}\n\
             write_ns = 0\nflush_ns = 0\nparallelism = 64\n"
        );
        let device = DriveSpec::parse("x", &text).expect("legal").build(1);
        let mut served = Served::new(device, FrontEnd { kind, queues });
        served.start(4);
        served
    }

    fn submit(served: &mut Served, line: usize, op: Op, id: usize) -> BlkStatus {
        submit_from(served, 0, line, op, id)
    }

    fn submit_from(served: &mut Served, cpu: u16, line: usize, op: Op, id: usize) -> BlkStatus {
        let mut rq = Request::for_bio(&Bio::new(op, Sector(0), 16), Nanos::ZERO);
        rq.ctx = cpu;
        served.queue_rq(Nanos::ZERO, line, RequestId::from_index(id), &rq)
    }

    /// The steps of a queue's thread until it sleeps, with a nanosecond between two of them, in
    /// which a drive ends what takes no time. Appends the tags of answered requests to `answered`.
    fn steps(
        served: &mut Served,
        (now, line, batch): (u64, usize, usize),
        answered: &mut Vec<u32>,
    ) -> Vec<ServerStep> {
        let mut now = now;
        let mut steps = Vec::new();
        while let Some(step) = served.begin(line, batch) {
            served.finish(Nanos(now), line);
            steps.push(step);
            now += 1;
            answered.extend(ends(served, now));
        }
        steps
    }

    /// The tags of requests whose answers the kernel has at `now`.
    fn ends(served: &mut Served, now: u64) -> Vec<u32> {
        let mut done = Vec::new();
        served.advance(Nanos(now), &mut done);
        done.iter().map(|end| end.tag).collect()
    }

    #[test]
    fn a_server_works_in_rounds() {
        let mut served = served(FrontEndKind::Nbd, 2, 0);
        for id in 0..3 {
            assert_eq!(submit(&mut served, 1, Op::Write, id), BlkStatus::Ok);
        }
        assert_eq!(submit(&mut served, 1, Op::Read, 3), BlkStatus::Ok);
        let sent = Sent {
            requests: 4,
            write_pages: 6,
            notifies_server: true,
            cpu: Some(0),
        };
        assert_eq!(served.take_sent(1), sent);
        assert_eq!(served.take_sent(1), Sent::default());
        assert_eq!(served.take_sent(0), Sent::default());
        assert!(served.has_work(1) && !served.has_work(0));
        let receive = |requests, write_pages| ServerStep::Receive {
            requests,
            write_pages,
        };
        let reply = |answers, read_pages| ServerStep::Reply {
            answers,
            read_pages,
        };
        let serve = ServerStep::Serve { pages: 2 };
        let expected = [receive(3, 6), serve, serve, serve, reply(3, 0)];
        let rest = [receive(1, 0), serve, reply(1, 2)];
        let mut answered = Vec::new();
        let done = steps(&mut served, (10, 1, 3), &mut answered);
        assert_eq!(done, [&expected[..], &rest].concat());
        assert_eq!(answered, [0, 1, 2, 3]);
        assert_eq!(KernelDriver::next_event(&served), Nanos::MAX);
    }

    #[test]
    fn a_server_goes_on_while_its_drive_works() {
        let mut served = served(FrontEndKind::VhostUser, 1, 100);
        let mut answered = Vec::new();
        submit(&mut served, 0, Op::Read, 0);
        let begun = steps(&mut served, (0, 0, 16), &mut answered);
        assert_eq!((begun.len(), answered.len()), (2, 0), "no answer yet");
        submit(&mut served, 0, Op::Read, 1);
        assert!(served.take_sent(0).notifies_server, "it sleeps");
        assert_eq!(steps(&mut served, (50, 0, 16), &mut answered).len(), 2);
        // The first was begun at 1, the second at 51.
        // Nothing else will happen in the run.
        let reached = served.advance_to_completion(Nanos::MAX, &mut Vec::new());
        assert_eq!(reached, Nanos(101));
        assert!(ends(&mut served, 101).is_empty() && served.has_work(0));
        assert_eq!(steps(&mut served, (120, 0, 16), &mut answered).len(), 1);
        assert!(served.notified_kernel(0));
        assert_eq!(answered, [0]);
        assert!(ends(&mut served, 151).is_empty());
        assert_eq!(steps(&mut served, (160, 0, 16), &mut answered).len(), 1);
        assert!(!served.notified_kernel(0), "its handler is under way");
        assert_eq!(answered, [0, 1]);
    }

    #[test]
    fn a_full_channel_takes_more_when_a_request_has_ended() {
        let mut served = served(FrontEndKind::VhostUser, 1, 0);
        let taken = (0..200).filter(|id| submit(&mut served, 0, Op::Read, *id) == BlkStatus::Ok);
        assert_eq!(taken.count(), 128);
        assert_eq!(served.waiting().len(), 128);
        steps(&mut served, (0, 0, 16), &mut Vec::new());
        assert_eq!(submit(&mut served, 0, Op::Read, 200), BlkStatus::Ok);
        served.forget_commands();
        assert!(served.waiting().is_empty() && ends(&mut served, 1000).is_empty());
    }

    #[test]
    fn queues_are_those_of_the_front_end() {
        for (kind, queues, depth) in [
            (FrontEndKind::Nbd, 3, 128),
            (FrontEndKind::VhostUser, 3, 128),
            (FrontEndKind::Ublk, 4, 128),
            (FrontEndKind::Tcmu, 1, 1024),
        ] {
            let config = served(kind, 3, 0).queue_config(4);
            let found = (config.nr_hw_queues, config.queue_depth);
            assert_eq!(found, (queues, depth), "{}", kind.name());
        }
        assert_eq!(
            served(FrontEndKind::Nbd, 9, 0).queue_config(4).nr_hw_queues,
            4
        );
    }

    /// A server that was notified is on its way, and is not notified again before it has slept.
    #[test]
    fn a_server_is_notified_once_for_each_sleep() {
        for kind in FrontEndKind::ALL {
            let mut served = served(kind, 1, 0);
            for round in 0..3 {
                for n in 0..3 {
                    submit(&mut served, 0, Op::Read, n);
                    let notified = served.take_sent(0).notifies_server;
                    assert_eq!(notified, n == 0, "{}: {round}, {n}", kind.name());
                }
                steps(&mut served, (0, 0, 16), &mut Vec::new());
            }
        }
    }

    #[test]
    fn the_first_to_send_is_known_until_what_was_sent_is_taken() {
        let mut served = served(FrontEndKind::Nbd, 2, 0);
        submit_from(&mut served, 3, 1, Op::Read, 0);
        submit_from(&mut served, 2, 1, Op::Read, 1);
        assert_eq!(
            (served.sender_cpu(0), served.sender_cpu(1)),
            (None, Some(3))
        );
        assert_eq!(served.sender_cpu(2), None, "no such queue");
        assert_eq!(served.take_sent(1).cpu, Some(3));
        assert_eq!(served.sender_cpu(1), None);
    }

    /// Queues beyond those of the drive share its queues in turn.
    #[test]
    fn commands_go_to_the_queues_that_the_drive_has() {
        let mut served = on_drive(FrontEndKind::Nbd, 4, 0, "queue_depth = 8\nqueues = 3");
        let queue_of = |line| {
            submit(&mut served, line, Op::Read, line);
            served.lines[line].waiting[0].command.queue
        };
        assert_eq!([0, 1, 2, 3].map(queue_of), [0, 1, 2, 0]);
    }

    /// The drive ends as many reads in each of its 100 ns as it takes commands at once.
    #[test]
    fn a_drive_is_given_what_it_takes_and_more_when_it_has_ended_some() {
        for (host, at_once) in [
            ("queue_depth = 1", 1),
            ("queue_depth = 2", 2),
            ("queue_depth = 2\nqueues = 2", 4),
        ] {
            let mut served = on_drive(FrontEndKind::Ublk, 1, 100, host);
            for id in 0..8 {
                submit(&mut served, 0, Op::Read, id);
            }
            // It receives all at once and begins them one by one.
            for _ in 0..9 {
                served.begin(0, 16);
                served.finish(Nanos::ZERO, 0);
            }
            let mut at = Vec::new();
            while Served::next_event(&served) != Nanos::MAX {
                let now = served.advance_to_completion(Nanos::MAX, &mut Vec::new());
                assert!(ends(&mut served, now.0).is_empty());
                at.resize(served.lines[0].answers.len(), now.0);
            }
            let expected: Vec<u64> = (0..8).map(|n| (n / at_once + 1) * 100).collect();
            assert_eq!(at, expected, "{host}");
        }
    }

    /// Time does not pass beyond an end that no server has noticed.
    #[test]
    fn time_stands_until_an_end_is_noticed() {
        let mut served = served(FrontEndKind::Ublk, 1, 100);
        submit(&mut served, 0, Op::Read, 0);
        submit(&mut served, 0, Op::Write, 1);
        for _ in 0..3 {
            served.begin(0, 16);
            served.finish(Nanos(10), 0);
        }
        let wait = |served: &mut Served, limit| {
            let reached = served.advance_to_completion(Nanos(limit), &mut Vec::new());
            (reached.0, Served::next_event(served).0)
        };
        // A write takes no time, which the drive takes for a nanosecond.
        assert_eq!(wait(&mut served, 1000), (11, 11), "the write");
        assert_eq!(wait(&mut served, 1000), (11, 11), "the write");
        assert!(ends(&mut served, 11).is_empty());
        assert_eq!(wait(&mut served, 109), (109, 110));
        assert_eq!(wait(&mut served, 1000), (110, 110), "the read");
    }
}
