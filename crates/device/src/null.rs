//! A drive that only takes time: fixed latencies, a fixed number of servers.
//!
//! As the kernel's `null_blk` does, it shows what the host's side costs where the
//! drive adds nothing but a latency. No command takes less than a nanosecond.

use alloc::boxed::Box;
use alloc::vec::Vec;

use blklab_blk::{Nanos, Op};
use blklab_stats::DeviceStats;

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use crate::spec::{Model, ModelType};
use crate::{Command, CommandStatus, Completion, Device, Identity};
use blklab_description::{ReadError, Table, keys, whole};

/// A drive that only takes time.
pub(crate) const MODEL: ModelType = ModelType {
    name: "null",
    about: "A drive that only takes time.",
    read: |root, _| Ok(Arc::new(NullSpec::read(root)?)),
    complete: &[(
        "null",
        concat!(
            include_str!("../complete/null.toml"),
            include_str!("../complete/host.toml"),
            include_str!("../complete/zones.toml"),
            include_str!("../complete/power.toml"),
            include_str!("../complete/published.toml"),
        ),
    )],
};

/// What a null drive is made of.
#[derive(Clone, Debug)]
pub struct NullSpec {
    identity: Identity,
    timing: TimingSpec,
}

/// Longest time of a command: an hour.
const MAX_NS: u64 = 3_600_000_000_000;

keys! {
    /// How long commands take.
    #[derive(Clone, Debug)]
    struct TimingSpec(table) {
        /// Time of a read.
        read_ns: u64 = whole(0..=MAX_NS);
        /// Time of a write, write-zeroes or discard.
        write_ns: u64 = whole(0..=MAX_NS);
        /// Time of a flush.
        flush_ns: u64 = whole(0..=MAX_NS);
        /// Commands served at once; the others wait in order of arrival.
        parallelism: u32 = whole(1..=1_000_000);
        /// Least time between the starts of two reads.
        read_interval_ns: u64 = whole(0..=MAX_NS).or(0);
        /// Least time between the starts of two writes.
        write_interval_ns: u64 = whole(0..=MAX_NS).or(0);
        /// Bandwidth of the link for reads, which share it one after the other; without
        /// it their transfers take no time.
        read_bandwidth_mb_s: Option<u64> = whole(1..=1_000_000).optional();
        /// The most of it that reads have which go on where another one ended.
        read_stream_mb_s: Option<u64> = whole(1..=1_000_000).optional();
        /// The same for writes.
        write_bandwidth_mb_s: Option<u64> = whole(1..=1_000_000).optional();
    }
}

impl NullSpec {
    fn read(root: &Table<'_>) -> Result<NullSpec, ReadError> {
        Ok(NullSpec {
            identity: Identity::read(&root.table("host")?, 512, false, false)?,
            timing: TimingSpec::read(&root.table("timing")?)?,
        })
    }
}

impl Model for NullSpec {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn has_state(&self) -> bool {
        false
    }

    fn build(&self, _seed: u64) -> Box<dyn Device> {
        Box::new(NullDrive::new(self.clone()))
    }
}

/// A drive with `parallelism` servers behind one queue.
#[derive(Clone, Debug)]
pub struct NullDrive {
    spec: NullSpec,
    waiting: VecDeque<Command>,
    /// How what is being served will end: soonest first, and of what ends together what
    /// came first.
    serving: VecDeque<Completion>,
    /// When the next read and the next write may start.
    next_start_ns: [u64; 2],
    /// When the link is free for reads' data and for writes' data.
    link_free_ns: [u64; 2],
    streams: VecDeque<Stream>,
    stats: DeviceStats,
}

/// Streams of reads that are known at once.
const STREAMS_MAX: usize = 64;

/// Reads of which each goes on where another one ended.
#[derive(Clone, Copy, Debug)]
struct Stream {
    /// Where its next read begins.
    next_sector: u64,
    /// When its data so far is transferred.
    free_ns: u64,
}

impl NullDrive {
    /// A drive as described.
    pub fn new(spec: NullSpec) -> NullDrive {
        let room = spec.timing.parallelism.min(4096) as usize;
        NullDrive {
            spec,
            waiting: VecDeque::with_capacity(64),
            serving: VecDeque::with_capacity(room),
            next_start_ns: [0; 2],
            link_free_ns: [0; 2],
            streams: VecDeque::new(),
            stats: DeviceStats::default(),
        }
    }

    fn serve(&mut self, now_ns: u64, command: Command) {
        let fits = command.fits(self.spec.identity.capacity_sectors);
        let service_ns = match command.op {
            _ if !fits => 0,
            Op::Read => self.spec.timing.read_ns,
            Op::Flush => self.spec.timing.flush_ns,
            Op::Write | Op::WriteZeroes | Op::Discard | Op::Zone(_) => self.spec.timing.write_ns,
        };
        // Commands that take no time would let a job submit without end at one moment.
        let service_ns = service_ns.max(1);
        if fits && command.op == Op::Write {
            self.stats.host_sectors_written += command.sectors as u64;
        }
        let timing = &self.spec.timing;
        let direction = match command.op {
            Op::Read => Some((0, timing.read_interval_ns, timing.read_bandwidth_mb_s)),
            Op::Write => Some((1, timing.write_interval_ns, timing.write_bandwidth_mb_s)),
            _ => None,
        };
        let mut end_ns = now_ns.saturating_add(service_ns);
        if let (Some((direction, interval_ns, mb_s)), true) = (direction, fits) {
            let start_ns = now_ns.max(self.next_start_ns[direction]);
            self.next_start_ns[direction] = start_ns.saturating_add(interval_ns);
            let bytes = u64::from(command.sectors) * blklab_blk::SECTOR_SIZE;
            let transfer_ns = mb_s.map_or(0, |mb_s| bytes * 1000 / mb_s);
            let transferred_ns = start_ns
                .max(self.link_free_ns[direction])
                .saturating_add(transfer_ns);
            self.link_free_ns[direction] = transferred_ns;
            let transferred_ns = match (command.op, timing.read_stream_mb_s) {
                (Op::Read, Some(mb_s)) => {
                    transferred_ns.max(self.stream_end(start_ns, &command, mb_s))
                }
                _ => transferred_ns,
            };
            end_ns = transferred_ns.saturating_add(service_ns);
        }
        self.will_end(Completion {
            tag: command.tag,
            at: Nanos(end_ns),
            status: match fits {
                true => CommandStatus::Ok,
                false => CommandStatus::IoError,
            },
        });
    }

    /// Most commands end behind all others, as those of a kind take the same time.
    fn will_end(&mut self, end: Completion) {
        match self.serving.back() {
            Some(last) if last.at > end.at => {
                let place = self.serving.partition_point(|other| other.at <= end.at);
                self.serving.insert(place, end);
            }
            _ => self.serving.push_back(end),
        }
    }

    /// When a read's data is transferred as far as its stream goes, which has `mb_s`.
    fn stream_end(&mut self, start_ns: u64, read: &Command, mb_s: u64) -> u64 {
        let goes_on = |stream: &Stream| stream.next_sector == read.sector.0;
        let before = self.streams.iter().position(goes_on);
        let before = before.and_then(|at| self.streams.remove(at));
        let begin_ns = before.map_or(start_ns, |stream| stream.free_ns.max(start_ns));
        let bytes = u64::from(read.sectors) * blklab_blk::SECTOR_SIZE;
        let stream = Stream {
            next_sector: read.sector.0 + u64::from(read.sectors),
            free_ns: begin_ns.saturating_add(bytes * 1000 / mb_s),
        };
        if self.streams.len() == STREAMS_MAX {
            self.streams.pop_front();
        }
        self.streams.push_back(stream);
        stream.free_ns
    }
}

impl Device for NullDrive {
    fn identify(&self) -> &Identity {
        &self.spec.identity
    }

    fn submit(&mut self, now: Nanos, command: Command) {
        if self.serving.len() < self.spec.timing.parallelism as usize {
            self.serve(now.0, command);
        } else {
            self.waiting.push_back(command);
        }
    }

    fn next_event(&self) -> Nanos {
        self.serving.front().map_or(Nanos::MAX, |first| first.at)
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        while let Some(&end) = self.serving.front()
            && end.at <= now
        {
            self.serving.pop_front();
            done.push(end);
            if let Some(next) = self.waiting.pop_front() {
                self.serve(end.at.0, next);
            }
        }
    }

    fn power_loss(&mut self, now: Nanos) -> Nanos {
        self.stats.power_losses += 1;
        self.waiting.clear();
        self.serving.clear();
        self.streams.clear();
        now
    }

    fn stats(&self, _now: Nanos) -> DeviceStats {
        self.stats.clone()
    }

    fn reset_stats(&mut self, _now: Nanos) {
        self.stats = DeviceStats::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DriveSpec, registry};
    use blklab_blk::Sector;

    /// Otherwise commands that follow each other would stop time.
    #[test]
    fn every_command_takes_time() {
        let text = registry::text("null").expect("listed");
        let text = text.replace("= 10000 ", "= 0 ");
        let spec = DriveSpec::parse("null.toml", &text).unwrap_or_else(|e| panic!("{e}"));
        let mut drive = spec.build(1);
        let mut now = Nanos(0);
        for op in [Op::Read, Op::Write, Op::Discard, Op::Flush] {
            let command = Command {
                tag: 0,
                queue: 0,
                op,
                sector: Sector(0),
                sectors: if op == Op::Flush { 0 } else { 8 },
                fua: false,
            };
            drive.submit(now, command);
            let mut done = Vec::new();
            let ended = drive.advance_to_completion(Nanos(1 << 40), &mut done);
            assert_eq!((ended, done.len()), (Nanos(now.0 + 1), 1), "{op:?}");
            now = ended;
        }
    }

    #[test]
    fn commands_share_servers_the_controller_and_the_link() {
        let ends = |timing: &str| -> Vec<(u32, u64)> {
            let text = format!(
                "description = \"x\"\ninterface = \"null\"\nmodel = \"null\"\n[host]\n\
                 capacity_bytes = 1048576\nqueue_depth = 9\n[timing]\nread_ns = 100\n\
                 write_ns = 100\nflush_ns = 100\n{timing}"
            );
            let spec = DriveSpec::parse("x", &text).unwrap_or_else(|e| panic!("{e}"));
            let mut drive = spec.build(1);
            for (tag, op) in (0..).zip([Op::Read, Op::Write, Op::Read, Op::Write]) {
                let command = Command {
                    tag,
                    queue: 0,
                    op,
                    sector: Sector(0),
                    sectors: 8,
                    fua: false,
                };
                drive.submit(Nanos(0), command);
            }
            let mut done = Vec::new();
            drive.advance(Nanos(1 << 40), &mut done);
            done.iter().map(|end| (end.tag, end.at.0)).collect()
        };
        let one = ends("parallelism = 1");
        assert_eq!(one, [(0, 100), (1, 200), (2, 300), (3, 400)]);
        let apart = ends("parallelism = 9\nread_interval_ns = 30\nwrite_interval_ns = 50");
        assert_eq!(apart, [(0, 100), (1, 100), (2, 130), (3, 150)]);
        // 4 KiB take 1 us out, and 2 us in.
        let link = "parallelism = 9\nread_bandwidth_mb_s = 4096\nwrite_bandwidth_mb_s = 2048";
        assert_eq!(ends(link), [(0, 1100), (1, 2100), (2, 2100), (3, 4100)]);
    }

    #[test]
    fn reads_that_follow_each_other_have_a_part_of_the_link() {
        let text = "description = \"x\"\ninterface = \"null\"\nmodel = \"null\"\n[host]\n\
             capacity_bytes = 1048576\nqueue_depth = 9\n[timing]\nread_ns = 100\n\
             write_ns = 100\nflush_ns = 100\nparallelism = 9\nread_bandwidth_mb_s = 4096\n\
             read_stream_mb_s = 2048";
        let spec = DriveSpec::parse("x", text).unwrap_or_else(|e| panic!("{e}"));
        let mut drive = spec.build(1);
        // Two streams, whose reads come in turn, have all of it together.
        for (tag, sector) in (0..).zip([0, 80, 8, 88, 16]) {
            let command = Command {
                tag,
                queue: 0,
                op: Op::Read,
                sector: Sector(sector),
                sectors: 8,
                fua: false,
            };
            drive.submit(Nanos(0), command);
        }
        let mut done = Vec::new();
        drive.advance(Nanos(1 << 40), &mut done);
        let ends: Vec<(u32, u64)> = done.iter().map(|end| (end.tag, end.at.0)).collect();
        // 4 KiB take 1 us of the link, and 2 us of a stream.
        let expected = [(0, 2100), (1, 2100), (2, 4100), (3, 4100), (4, 6100)];
        assert_eq!(ends, expected);
    }
}
