//! A bridge and the bus to it, as a drive: commands cross the bus before the drive below sees
//! them, and completions once data and status have crossed it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use blklab_blk::{Nanos, Op, SECTOR_SIZE};
use blklab_device::{Command, CommandStatus, Completion, DataFault, Device, Identity};
use blklab_stats::{DeviceStats, DriveTimeline};

use super::{UsbBridge, UsbLink, UsbProtocol, UsbSpeed};

impl UsbLink {
    /// Bytes of a command and of its status on the bus: CBW and CSW, or a command IU with 16
    /// bytes of CDB and a sense IU without sense data.
    fn frame_bytes(&self) -> [u64; 2] {
        match self.protocol {
            UsbProtocol::Uas => [32, 16],
            UsbProtocol::UsbStorage => [31, 13],
        }
    }
}

/// Where a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// On the bus; the bridge has it then.
    Sending(Nanos),
    /// In the bridge, until the drive takes it.
    Held,
    /// In the drive.
    InDrive,
    /// Data or status are on the bus; the host has all then.
    Returning(Nanos, CommandStatus),
}

/// A command with what the bus does for it.
#[derive(Clone, Copy, Debug)]
struct Running {
    command: Command,
    phase: Phase,
    /// When its data can cross the bus at the earliest.
    data_from: Nanos,
}

impl Running {
    /// Which way its data goes, and how much; `None` if it has none.
    fn data(&self) -> Option<(Direction, u64)> {
        let bytes = u64::from(self.command.sectors) * SECTOR_SIZE;
        match self.command.op {
            Op::Read => Some((Direction::In, bytes)),
            Op::Write => Some((Direction::Out, bytes)),
            Op::Flush | Op::Discard | Op::WriteZeroes | Op::Zone(_) => None,
        }
    }

    /// Whether the drive can have it beside others: what is neither read nor write is no NCQ
    /// command.
    fn is_queued(&self) -> bool {
        matches!(self.command.op, Op::Read | Op::Write)
    }
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    In,
    Out,
}

/// The bus as data sees it.
struct Wire {
    byte_ps: u64,
    is_half_duplex: bool,
    /// When what goes in each direction has gone.
    free_at: [Nanos; 2],
}

impl Wire {
    fn time(&self, bytes: u64) -> Nanos {
        Nanos(bytes * self.byte_ps / 1000)
    }

    /// Carries data that the drive has or takes until `drive_end`, beginning no earlier than
    /// `from`. The bridge passes on what it has, so that drive and bus work at the same time.
    /// Returns when the last of it has gone.
    fn carry(
        &mut self,
        from: Nanos,
        drive_end: Nanos,
        (direction, bytes): (Direction, u64),
    ) -> Nanos {
        let lane = match self.is_half_duplex {
            true => 0,
            false => direction as usize,
        };
        let begin = from.max(self.free_at[lane]);
        let end = drive_end.max(begin + self.time(bytes));
        self.free_at[lane] = end;
        end
    }
}

/// A drive behind a bridge.
pub(super) struct Bridge {
    drive: Box<dyn Device>,
    link: UsbLink,
    turnaround: Nanos,
    identity: Identity,
    wire: Wire,
    /// Commands in the order in which they came, at most `queue_depth`.
    running: Vec<Running>,
    done: Vec<Completion>,
}

impl Bridge {
    pub(super) fn new(drive: Box<dyn Device>, bridge: UsbBridge) -> Bridge {
        let UsbBridge { link, turnaround } = bridge;
        let of_drive = drive.identify();
        let identity = Identity {
            queue_depth: of_drive.queue_depth.min(link.commands()),
            max_queues: 1,
            max_transfer_sectors: of_drive.max_transfer_sectors.min(link.max_sectors()),
            ..of_drive.clone()
        };
        Bridge {
            running: Vec::with_capacity(identity.queue_depth as usize),
            drive,
            link,
            turnaround,
            identity,
            wire: Wire {
                byte_ps: link.byte_ps(),
                is_half_duplex: link.speed == UsbSpeed::High,
                free_at: [Nanos::ZERO; 2],
            },
            done: Vec::new(),
        }
    }

    /// When a command next goes from one phase to the next without the drive.
    fn next_phase(&self) -> Nanos {
        let at = |running: &Running| match running.phase {
            Phase::Sending(at) | Phase::Returning(at, _) => at,
            Phase::Held | Phase::InDrive => Nanos::MAX,
        };
        self.running.iter().map(at).min().unwrap_or(Nanos::MAX)
    }

    /// Gives the drive what it can take: in the order of arrival, and a command that is not NCQ
    /// alone.
    fn start_held(&mut self, at: Nanos) {
        let in_drive = |running: &&Running| running.phase == Phase::InDrive;
        let mut count = self.running.iter().filter(in_drive).count();
        let mut alone = { self.running.iter().filter(in_drive) }.any(|r| !r.is_queued());
        for running in &mut self.running {
            match running.phase {
                Phase::Held if alone || (count > 0 && !running.is_queued()) => return,
                Phase::Held => {
                    running.phase = Phase::InDrive;
                    count += 1;
                    alone = !running.is_queued();
                    self.drive.submit(at, running.command);
                }
                _ => {}
            }
        }
    }

    /// The drive has done with a command: what is left of it on the bus.
    fn take_completion(&mut self, completion: Completion) {
        let is_it = |r: &&mut Running| r.command.tag == completion.tag && r.phase == Phase::InDrive;
        let Some(running) = self.running.iter_mut().find(is_it) else {
            return;
        };
        let data = running
            .data()
            .filter(|_| completion.status == CommandStatus::Ok);
        let data_end = match data {
            Some(data) => self.wire.carry(running.data_from, completion.at, data),
            None => completion.at,
        };
        let asked = match self.link.protocol {
            UsbProtocol::Uas => data_end,
            // The host asks for the status once it knows that the data has gone.
            UsbProtocol::UsbStorage => data_end + self.turnaround,
        };
        let [_, status_bytes] = self.link.frame_bytes();
        let ends = asked + self.wire.time(status_bytes);
        running.phase = Phase::Returning(ends, completion.status);
    }

    /// Whatever happens at this time.
    fn step(&mut self, at: Nanos, done: &mut Vec<Completion>) {
        let mut ended = core::mem::take(&mut self.done);
        self.drive.advance(at, &mut ended);
        for completion in ended.drain(..) {
            self.take_completion(completion);
        }
        self.done = ended;
        for running in &mut self.running {
            if matches!(running.phase, Phase::Sending(arrives) if arrives <= at) {
                running.phase = Phase::Held;
            }
        }
        self.start_held(at);
        self.running.retain(|running| match running.phase {
            Phase::Returning(ends, status) if ends <= at => {
                done.push(Completion {
                    tag: running.command.tag,
                    at: ends,
                    status,
                });
                false
            }
            _ => true,
        });
    }
}

impl Device for Bridge {
    fn identify(&self) -> &Identity {
        &self.identity
    }

    fn submit(&mut self, now: Nanos, command: Command) {
        let [command_bytes, _] = self.link.frame_bytes();
        let arrives = now + self.wire.time(command_bytes);
        // Without a stream the host offers its data transfer after the command's has ended.
        let data_from = match self.link.has_streams() {
            true => arrives,
            false => arrives + self.turnaround,
        };
        self.running.push(Running {
            command,
            phase: Phase::Sending(arrives),
            data_from,
        });
    }

    fn next_event(&self) -> Nanos {
        self.next_phase().min(self.drive.next_event())
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        loop {
            let next = self.next_event();
            if next > now || next == Nanos::MAX {
                return;
            }
            self.step(next, done);
        }
    }

    fn power_loss(&mut self, now: Nanos) -> Nanos {
        self.running.clear();
        self.wire.free_at = [now; 2];
        self.drive.power_loss(now)
    }

    fn stats(&self, now: Nanos) -> DeviceStats {
        self.drive.stats(now)
    }

    fn reset_stats(&mut self, now: Nanos) {
        self.drive.reset_stats(now);
    }

    fn take_data_fault(&mut self, tag: u32) -> Option<DataFault> {
        self.drive.take_data_fault(tag)
    }

    fn record(&mut self, on: bool) {
        self.drive.record(on);
    }

    fn take_record(&mut self, out: &mut DriveTimeline) {
        self.drive.take_record(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_blk::Sector;
    use blklab_device::registry;
    use proptest::prelude::*;

    const TURNAROUND: Nanos = Nanos(20_000);
    const MIB: u64 = 1 << 20;

    fn bridge(protocol: UsbProtocol, speed: UsbSpeed) -> Bridge {
        let spec = registry::find("mx100-256").expect("listed").expect("valid");
        let link = UsbLink {
            protocol,
            speed,
            bandwidth_mb_s: None,
        };
        let turnaround = TURNAROUND;
        Bridge::new(spec.build(1), UsbBridge { link, turnaround })
    }

    fn command(tag: u32, op: Op, sector: u64, sectors: u32) -> Command {
        Command {
            tag,
            queue: 0,
            op,
            sector: Sector(sector),
            sectors: if op == Op::Flush { 0 } else { sectors },
            fua: false,
        }
    }

    /// Carries the commands out with as many at once as the bridge takes; each one's completion.
    fn run(bridge: &mut Bridge, commands: &[(Op, u64, u32)]) -> Vec<Completion> {
        let depth = bridge.identify().queue_depth as usize;
        let (mut now, mut all, mut sent) = (Nanos::ZERO, Vec::new(), 0);
        while all.len() < commands.len() {
            while sent < commands.len() && sent - all.len() < depth {
                let (op, sector, sectors) = commands[sent];
                bridge.submit(now, command(sent as u32, op, sector, sectors));
                sent += 1;
            }
            let next = bridge.next_event();
            assert!(next != Nanos::MAX, "{} of {sent} ended", all.len());
            now = now.max(next);
            bridge.advance(now, &mut all);
        }
        all
    }

    fn mb_s(protocol: UsbProtocol, speed: UsbSpeed, op: Op) -> f64 {
        let mut bridge = bridge(protocol, speed);
        let sectors = bridge.identify().max_transfer_sectors;
        let count = 32 * MIB / (u64::from(sectors) * SECTOR_SIZE);
        let commands: Vec<_> = (0..count)
            .map(|n| (op, n * u64::from(sectors), sectors))
            .collect();
        let last = run(&mut bridge, &commands).pop().expect("some").at;
        (count * u64::from(sectors) * SECTOR_SIZE) as f64 * 1e3 / last.0 as f64
    }

    /// Bulk-only transport leaves the bus idle between a command, its data and its status; UAS
    /// fills it. A SATA drive of 550 MB/s is faster than both buses.
    #[test]
    fn the_bus_is_the_limit_and_bulk_only_transport_falls_short_of_it() {
        let (uas, storage) = (UsbProtocol::Uas, UsbProtocol::UsbStorage);
        let bus = UsbSpeed::Super.bandwidth_mb_s();
        let fast = mb_s(uas, UsbSpeed::Super, Op::Read);
        assert!((0.95 * bus..bus).contains(&fast), "{fast} of {bus}");
        let slow = mb_s(storage, UsbSpeed::Super, Op::Read);
        assert!((0.8 * fast..0.99 * fast).contains(&slow), "{slow}, {fast}");
        let bus = UsbSpeed::High.bandwidth_mb_s();
        assert!((53.2..53.3).contains(&bus));
        let fast = mb_s(uas, UsbSpeed::High, Op::Read);
        assert!((0.95 * bus..bus).contains(&fast), "{fast} of {bus}");
        // 120 KiB take 2.3 ms of it, and two turnarounds 40 us.
        let slow = mb_s(storage, UsbSpeed::High, Op::Read);
        assert!((0.95 * bus..0.99 * bus).contains(&slow), "{slow}");
    }

    #[test]
    fn a_slow_host_controller_is_the_limit() {
        let mut bridge = bridge(UsbProtocol::Uas, UsbSpeed::Super);
        bridge.link.bandwidth_mb_s = Some(100.0);
        assert_eq!(bridge.link.byte_ps(), 10_000);
        bridge.link.bandwidth_mb_s = Some(1000.0);
        assert_eq!(bridge.link.byte_ps(), bridge.wire.byte_ps);
    }

    #[test]
    fn bulk_only_transport_asks_for_the_status_by_itself() {
        let read = [(Op::Read, 0, 8)];
        let at = |protocol| run(&mut bridge(protocol, UsbSpeed::Super), &read)[0].at.0;
        let more = at(UsbProtocol::UsbStorage) - at(UsbProtocol::Uas);
        // The turnaround before the data passes while the drive reads; frames differ by bytes.
        assert!(more.abs_diff(TURNAROUND.0) < 20, "{more}");
    }

    #[test]
    fn protocols_have_the_depth_and_transfers_of_the_kernels_drivers() {
        for (protocol, speed, depth, sectors) in [
            (UsbProtocol::Uas, UsbSpeed::Super, 30, 1024),
            (UsbProtocol::Uas, UsbSpeed::High, 30, 1024),
            (UsbProtocol::UsbStorage, UsbSpeed::Super, 1, 2048),
            (UsbProtocol::UsbStorage, UsbSpeed::High, 1, 240),
        ] {
            let bridge = bridge(protocol, speed);
            let identity = bridge.identify();
            assert_eq!(
                (identity.queue_depth, identity.max_transfer_sectors),
                (depth, sectors)
            );
        }
    }

    #[test]
    fn both_directions_share_high_speed_and_not_super_speed() {
        for (speed, least) in [(UsbSpeed::High, 1.9), (UsbSpeed::Super, 0.9)] {
            let mut wire = bridge(UsbProtocol::Uas, speed).wire;
            let from = Nanos::ZERO;
            let one = wire.carry(from, from, (Direction::In, MIB));
            let both = wire.carry(from, from, (Direction::Out, MIB));
            let times = both.0 as f64 / one.0 as f64;
            assert!((least..least + 0.2).contains(&times), "{times}");
        }
    }

    #[test]
    fn a_flush_waits_in_the_bridge_and_goes_alone() {
        let mut bridge = bridge(UsbProtocol::Uas, UsbSpeed::Super);
        let (write, flush) = ((Op::Write, 0, 1024), (Op::Flush, 0, 0));
        let commands = [write, write, flush, (Op::Read, 4096, 8)];
        let ends = run(&mut bridge, &commands);
        let order: Vec<u32> = ends.iter().map(|end| end.tag).collect();
        assert_eq!(order, [0, 1, 2, 3]);
    }

    #[test]
    fn a_loss_of_power_forgets_commands_on_the_bus() {
        let mut bridge = bridge(UsbProtocol::UsbStorage, UsbSpeed::High);
        bridge.submit(Nanos::ZERO, command(1, Op::Write, 0, 8));
        let ready = bridge.power_loss(Nanos(10));
        bridge.submit(ready, command(2, Op::Read, 0, 8));
        let mut done = Vec::new();
        bridge.advance(Nanos::from_secs(60), &mut done);
        assert_eq!(done.len(), 1);
        assert!(done[0].tag == 2 && done[0].at > ready);
        assert_eq!(bridge.next_event(), Nanos::MAX);
    }

    /// A command of 31 bytes and its status of 13, or 32 and 16.
    #[test]
    fn a_command_and_its_status_take_their_bytes_on_the_bus() {
        for (protocol, frames) in [
            (UsbProtocol::Uas, [32, 16]),
            (UsbProtocol::UsbStorage, [31, 13]),
        ] {
            let mut bridge = bridge(protocol, UsbSpeed::High);
            assert_eq!(bridge.link.frame_bytes(), frames);
            bridge.submit(Nanos(500), command(1, Op::Flush, 0, 0));
            let sent = Nanos(500) + bridge.wire.time(frames[0]);
            assert_eq!(bridge.next_phase(), sent);
            assert_eq!(bridge.wire.time(1000), Nanos(18_780));
        }
    }

    /// What is asked of the bridge about its drive is the drive's to answer.
    #[test]
    fn the_drive_s_counters_and_records_pass_the_bridge() {
        let mut bridge = bridge(UsbProtocol::Uas, UsbSpeed::Super);
        bridge.record(true);
        let ends = run(&mut bridge, &[(Op::Read, 0, 8), (Op::Read, 4096, 8)]);
        let now = ends[1].at;
        let mut record = DriveTimeline::default();
        bridge.take_record(&mut record);
        assert!(!record.activities.is_empty());
        assert!(bridge.stats(now).flash_reads > 0);
        bridge.reset_stats(now);
        assert_eq!(bridge.stats(now).flash_reads, 0);
        assert_eq!(bridge.take_data_fault(0), None);
    }

    proptest! {
        #[test]
        fn every_command_ends_once_and_in_time(
            is_uas in any::<bool>(),
            is_super in any::<bool>(),
            commands in prop::collection::vec((0..4_u8, 0..1000_u64, 1..240_u32), 1..60),
        ) {
            let protocol = if is_uas { UsbProtocol::Uas } else { UsbProtocol::UsbStorage };
            let speed = if is_super { UsbSpeed::Super } else { UsbSpeed::High };
            let op = |kind| match kind {
                0 | 1 => Op::Read,
                2 => Op::Write,
                _ => Op::Flush,
            };
            let commands: Vec<_> = commands
                .into_iter()
                .map(|(kind, place, sectors)| (op(kind), place * 1024, sectors))
                .collect();
            let mut bridge = bridge(protocol, speed);
            let ends = run(&mut bridge, &commands);
            let mut tags: Vec<u32> = ends.iter().map(|end| end.tag).collect();
            prop_assert!(ends.is_sorted_by_key(|end| end.at));
            tags.sort_unstable();
            prop_assert!(tags.into_iter().eq(0..commands.len() as u32));
            let bytes: u64 = commands
                .iter()
                .filter(|(op, ..)| *op == Op::Read)
                .map(|(.., sectors)| u64::from(*sectors) * SECTOR_SIZE)
                .sum();
            // No more crosses the bus than it carries.
            let last = ends.last().map_or(Nanos::ZERO, |end| end.at);
            prop_assert!(last >= bridge.wire.time(bytes));
        }
    }
}
