//! Zones of a host-managed drive, on top of any model: where a zone may be written, how many are
//! open, and what the commands on zones do.
//!
//! States and limits are those of the NVM Express Zoned Namespace Command Set (revision 1.1,
//! section 2.1.1), which ZBC has too. What it leaves to the drive is as in the kernel's null_blk
//! (`drivers/block/null_blk/zoned.c`).

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use blklab_blk::{Nanos, Op, Sector, ZoneAction, ZoneLimits};
use blklab_description::{ReadError, Table, keys, nanos, number, whole};
use blklab_stats::{DeviceStats, DriveTimeline};

use crate::pending::PendingCompletions;
use crate::{Command, CommandStatus, Completion, DataFault, Device, Identity};

/// More zones than any drive has.
const MAX_ZONES: u64 = 1 << 20;
/// Longest time of a command on a zone: an hour.
const MAX_US: f64 = 3.6e9;

keys! {
    /// The zones of a host-managed drive, on top of what the other tables describe.
    ///
    /// `host.capacity_bytes` is what can be written; the address space is larger where a zone's
    /// capacity is smaller than the zone. With `host.discard` the drive gives back the space of
    /// a zone that is reset.
    #[derive(Clone, Debug, PartialEq)]
    struct ZoneSpec(table) {
        /// Size of a zone in the address space.
        ///
        /// Here in sectors of 512 bytes.
        size_sectors: u32 as "size_kb" = whole(4..=1 << 30)
            .such_that(|kb: &u32| kb.is_power_of_two(), "a power of two")
            .documented("a power of two from 4 to 1073741824")
            .map(|kb: u32| kb * 2);
        /// What of a zone can be written.
        ///
        /// Here in sectors of 512 bytes.
        capacity_sectors: u32 as "capacity_kb" = whole(4..=1 << 30)
            .or_derived(size_sectors / 2, "zones.size_kb")
            .such_that(|kb: &u32| *kb <= size_sectors / 2, "at most the zone's size")
            .map(|kb: u32| kb * 2);
        /// Zones at the beginning that can be written anywhere.
        conventional: u32 = whole(0..=MAX_ZONES as u32 - 1).or(0);
        /// Most zones that are open or closed at once; 0: no limit.
        max_active: u32 = whole(0..=MAX_ZONES as u32).or(0);
        /// Most zones that are open at once; 0: no limit.
        max_open: u32 = whole(0..=MAX_ZONES as u32)
            .or_derived(max_active, "zones.max_active")
            .such_that(
                |open: &u32| max_active == 0 || (1..=max_active).contains(open),
                "from 1 to zones.max_active where that is not 0",
            );
        /// Time of a command on a zone that moves no data.
        command_ns: u64 as "command_us" = number(0.0..=MAX_US).map(nanos);
        /// Time to reset a full zone, in proportion less for one that is not.
        reset_ns: u64 as "reset_us" = number(0.0..=MAX_US).map(nanos);
        /// Time to finish a zone that is hardly written, in proportion less for one that is
        /// written further; an empty zone is finished by the command alone.
        finish_ns: u64 as "finish_us" = number(0.0..=MAX_US).map(nanos);
    }
}

/// The zones of a drive, and what the host sees with them.
#[derive(Clone, Debug)]
pub(crate) struct ZoneLayer {
    spec: ZoneSpec,
    limits: ZoneLimits,
    identity: Identity,
}

impl ZoneLayer {
    /// Reads the table of a drive of which the host sees `inner` without zones.
    pub(crate) fn read(
        root: &Table<'_>,
        table: &Table<'_>,
        inner: &Identity,
    ) -> Result<ZoneLayer, ReadError> {
        let spec = ZoneSpec::read(table)?;
        let conventional = u64::from(spec.conventional) * u64::from(spec.size_sectors);
        let left = inner.capacity_sectors.checked_sub(conventional);
        let sequential = left.unwrap_or(0) / u64::from(spec.capacity_sectors);
        let count = u64::from(spec.conventional) + sequential;
        if sequential == 0 || count > MAX_ZONES {
            let problem = format!(
                "legal are 1 to {MAX_ZONES} zones; host.capacity_bytes has room for {sequential} \
                 that are written in order"
            );
            return Err(root.wrong("zones", problem));
        }
        let block_sectors = inner.logical_block_bytes / 512;
        if !(spec.capacity_sectors | spec.size_sectors).is_multiple_of(block_sectors) {
            let problem = "legal are sizes that are multiples of host.logical_block_bytes";
            return Err(root.wrong("zones", problem));
        }
        let limits = ZoneLimits {
            zone_sectors: spec.size_sectors,
            capacity_sectors: spec.capacity_sectors,
            conventional: spec.conventional,
            max_open: spec.max_open,
            max_active: spec.max_active,
        };
        let identity = Identity {
            capacity_sectors: count * u64::from(spec.size_sectors),
            discard: false,
            zones: Some(limits),
            ..inner.clone()
        };
        Ok(ZoneLayer {
            spec,
            limits,
            identity,
        })
    }

    /// What the host sees.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The drive with zones over `inner`, all of them empty or, where it holds data, full.
    pub(crate) fn put_on(&self, inner: Box<dyn Device>, are_full: bool) -> Box<dyn Device> {
        let all = self.limits.count(self.identity.capacity_sectors);
        let sequential = all - u64::from(self.limits.conventional);
        Box::new(ZonedDevice {
            inner,
            layer: self.clone(),
            zones: Zones::new(self.limits, sequential as usize, are_full),
            resets: BTreeMap::new(),
            completed: PendingCompletions::default(),
            ended: Vec::new(),
        })
    }
}

/// The state of a zone that is written in order (`enum blk_zone_cond`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Empty,
    /// A write has opened it, and the drive may close it.
    ImplicitlyOpen,
    /// The host has opened it.
    ExplicitlyOpen,
    Closed,
    Full,
}

#[derive(Clone, Copy, Debug)]
struct Zone {
    condition: Condition,
    /// The write pointer, counted from the zone's start.
    written_sectors: u32,
}

/// A zone does not allow what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refused;

/// The state of all zones that are written in order.
#[derive(Debug)]
struct Zones {
    limits: ZoneLimits,
    zones: Vec<Zone>,
    implicitly_open: u32,
    explicitly_open: u32,
    closed: u32,
    /// The zone after the one that the drive closed last.
    next_to_close: usize,
}

impl Zones {
    fn new(limits: ZoneLimits, count: usize, are_full: bool) -> Zones {
        let zone = match are_full {
            true => Zone {
                condition: Condition::Full,
                written_sectors: limits.capacity_sectors,
            },
            false => Zone {
                condition: Condition::Empty,
                written_sectors: 0,
            },
        };
        Zones {
            limits,
            zones: vec![zone; count],
            implicitly_open: 0,
            explicitly_open: 0,
            closed: 0,
            next_to_close: 0,
        }
    }

    fn count_of(&mut self, condition: Condition) -> Option<&mut u32> {
        match condition {
            Condition::ImplicitlyOpen => Some(&mut self.implicitly_open),
            Condition::ExplicitlyOpen => Some(&mut self.explicitly_open),
            Condition::Closed => Some(&mut self.closed),
            Condition::Empty | Condition::Full => None,
        }
    }

    fn set(&mut self, zone: usize, condition: Condition) {
        let before = core::mem::replace(&mut self.zones[zone].condition, condition);
        if let Some(count) = self.count_of(before) {
            *count -= 1;
        }
        if let Some(count) = self.count_of(condition) {
            *count += 1;
        }
    }

    fn open(&self) -> u32 {
        self.implicitly_open + self.explicitly_open
    }

    fn active(&self) -> u32 {
        self.open() + self.closed
    }

    /// Makes room for one more open zone, for which the drive may close one that a write has
    /// opened (`null_check_zone_resources`). A closed zone is active already, so it needs no room
    /// under the limit of active zones, as in QEMU's `nvme_zrm_open_flags`; null_blk refuses it
    /// there.
    fn make_room(&mut self, zone: usize) -> Result<(), Refused> {
        let ZoneLimits {
            max_open,
            max_active,
            ..
        } = self.limits;
        let is_new = self.zones[zone].condition == Condition::Empty;
        if is_new && max_active > 0 && self.active() >= max_active {
            return Err(Refused);
        }
        if max_open == 0 || self.open() < max_open {
            return Ok(());
        }
        let count = self.zones.len();
        let mut from_last = (0..count).map(|n| (self.next_to_close + n) % count);
        let implicit = |zone: &usize| self.zones[*zone].condition == Condition::ImplicitlyOpen;
        let closes = from_last.find(implicit).ok_or(Refused)?;
        self.next_to_close = closes + 1;
        self.close(closes);
        Ok(())
    }

    /// A zone that was opened and not written is empty again when it is closed.
    fn close(&mut self, zone: usize) {
        let is_empty = self.zones[zone].written_sectors == 0;
        let closed = match is_empty {
            true => Condition::Empty,
            false => Condition::Closed,
        };
        self.set(zone, closed);
    }

    /// Writes to a zone, which must begin at its write pointer and end within its capacity.
    fn write(&mut self, zone: usize, offset: u32, sectors: u32) -> Result<(), Refused> {
        let Zone {
            condition,
            written_sectors,
        } = self.zones[zone];
        let end = offset.checked_add(sectors).ok_or(Refused)?;
        if condition == Condition::Full
            || offset != written_sectors
            || end > self.limits.capacity_sectors
        {
            return Err(Refused);
        }
        if matches!(condition, Condition::Empty | Condition::Closed) {
            self.make_room(zone)?;
            self.set(zone, Condition::ImplicitlyOpen);
        }
        self.zones[zone].written_sectors = end;
        if end == self.limits.capacity_sectors {
            self.set(zone, Condition::Full);
        }
        Ok(())
    }

    /// Carries a command on a zone out. Returns how many sectors were written, or filled up.
    fn act(&mut self, zone: usize, action: ZoneAction) -> Result<u32, Refused> {
        let Zone {
            condition,
            written_sectors,
        } = self.zones[zone];
        match (action, condition) {
            (ZoneAction::Reset, _) => {
                self.set(zone, Condition::Empty);
                self.zones[zone].written_sectors = 0;
                Ok(written_sectors)
            }
            (ZoneAction::Finish, Condition::Full) => Ok(0),
            (ZoneAction::Finish, _) => {
                if matches!(condition, Condition::Empty | Condition::Closed) {
                    self.make_room(zone)?;
                }
                self.set(zone, Condition::Full);
                self.zones[zone].written_sectors = self.limits.capacity_sectors;
                Ok(self.limits.capacity_sectors - written_sectors)
            }
            (ZoneAction::Open, Condition::Full) => Err(Refused),
            (ZoneAction::Open, Condition::ExplicitlyOpen) => Ok(0),
            (ZoneAction::Open, _) => {
                if condition != Condition::ImplicitlyOpen {
                    self.make_room(zone)?;
                }
                self.set(zone, Condition::ExplicitlyOpen);
                Ok(0)
            }
            (ZoneAction::Close, Condition::Empty | Condition::Full) => Err(Refused),
            (ZoneAction::Close, Condition::Closed) => Ok(0),
            (ZoneAction::Close, _) => {
                self.close(zone);
                Ok(0)
            }
        }
    }

    /// After a loss of power no zone is open.
    fn close_all(&mut self) {
        for zone in 0..self.zones.len() {
            let condition = self.zones[zone].condition;
            if matches!(
                condition,
                Condition::ImplicitlyOpen | Condition::ExplicitlyOpen
            ) {
                self.close(zone);
            }
        }
    }
}

/// A drive with zones. The model below has their capacity alone, without the gaps behind it.
struct ZonedDevice {
    inner: Box<dyn Device>,
    layer: ZoneLayer,
    zones: Zones,
    /// Resets whose space the model below gives back, by tag, with the earliest time of their end.
    resets: BTreeMap<u32, Nanos>,
    /// What has ended, or will, and the host has yet to see.
    completed: PendingCompletions,
    ended: Vec<Completion>,
}

impl ZonedDevice {
    /// The zone that a sector is in, among those that are written in order.
    fn sequential_zone(&self, sector: Sector) -> Option<usize> {
        let zone = self.layer.limits.zone_of(sector);
        let zone = zone.checked_sub(u64::from(self.layer.limits.conventional))?;
        Some(zone as usize)
    }

    /// Where a sector of a zone is in the model below.
    fn inner_sector(&self, zone: usize, offset: u32) -> Sector {
        let conventional =
            u64::from(self.layer.limits.conventional) * u64::from(self.layer.limits.zone_sectors);
        let before = zone as u64 * u64::from(self.layer.limits.capacity_sectors);
        Sector(conventional + before + u64::from(offset))
    }

    fn complete(&mut self, tag: u32, at: Nanos, status: CommandStatus) {
        self.completed.insert(Completion { tag, at, status });
    }

    /// Reads behind a zone's capacity, as the NVM Express Zoned Namespace Command Set has it:
    /// a read's boundary is the zone's end, and what no write reaches is deallocated (QEMU's
    /// `hw/nvme` does the same). The model below has no such place, nor reads across the end
    /// of the capacity: those are reads of as much before it.
    fn read_gap(&mut self, now: Nanos, zone: usize, offset: u32, command: Command) {
        let capacity = self.layer.limits.capacity_sectors;
        let in_zone = offset.min(capacity.saturating_sub(command.sectors));
        let inner_sectors = self.inner.identify().capacity_sectors;
        let last = inner_sectors.saturating_sub(u64::from(command.sectors));
        let sector = self.inner_sector(zone, in_zone).min(Sector(last));
        let command = Command { sector, ..command };
        match offset < capacity {
            true => self.inner.submit(now, command),
            false => self.inner.submit_unwritten(now, command),
        }
    }

    fn refuse(&mut self, now: Nanos, command: &Command) {
        let at = Nanos(now.0.saturating_add(self.layer.spec.command_ns));
        self.complete(command.tag, at, CommandStatus::IoError);
    }

    /// Part of the time that a whole zone takes.
    fn part_ns(&self, whole_ns: u64, sectors: u32) -> u64 {
        let part = u128::from(whole_ns) * u128::from(sectors);
        (part / u128::from(self.layer.limits.capacity_sectors)) as u64
    }

    fn act(&mut self, now: Nanos, command: &Command, action: ZoneAction) {
        let zone = self.sequential_zone(command.sector);
        let starts = self.layer.limits.offset_of(command.sector) == 0;
        let fits = command.sector.0 < self.layer.identity.capacity_sectors && starts;
        let Some(zone) = zone.filter(|_| fits) else {
            return self.refuse(now, command);
        };
        let Ok(sectors) = self.zones.act(zone, action) else {
            return self.refuse(now, command);
        };
        let ns = match action {
            ZoneAction::Reset => self.part_ns(self.layer.spec.reset_ns, sectors),
            // There is nothing to fill up to the end of a block.
            ZoneAction::Finish if sectors == self.layer.limits.capacity_sectors => 0,
            ZoneAction::Finish => self.part_ns(self.layer.spec.finish_ns, sectors),
            ZoneAction::Open | ZoneAction::Close => 0,
        };
        let at = Nanos(
            now.0
                .saturating_add(self.layer.spec.command_ns)
                .saturating_add(ns),
        );
        if action == ZoneAction::Reset && sectors > 0 && self.inner.identify().discard {
            self.resets.insert(command.tag, at);
            let discard = Command {
                op: Op::Discard,
                sector: self.inner_sector(zone, 0),
                sectors,
                ..*command
            };
            return self.inner.submit(now, discard);
        }
        self.complete(command.tag, at, CommandStatus::Ok);
    }
}

impl Device for ZonedDevice {
    fn identify(&self) -> &Identity {
        &self.layer.identity
    }

    fn submit(&mut self, now: Nanos, command: Command) {
        match command.op {
            Op::Flush => return self.inner.submit(now, command),
            Op::Zone(action) => return self.act(now, &command, action),
            Op::Read | Op::Write | Op::WriteZeroes | Op::Discard => {}
        }
        let fits = command.fits(self.layer.identity.capacity_sectors)
            && command.sectors <= self.layer.limits.sectors_left(command.sector)
            && command.op != Op::Discard;
        if !fits {
            return self.refuse(now, &command);
        }
        let Some(zone) = self.sequential_zone(command.sector) else {
            return self.inner.submit(now, command);
        };
        let offset = self.layer.limits.offset_of(command.sector);
        if command.op != Op::Read {
            if self.zones.write(zone, offset, command.sectors).is_err() {
                return self.refuse(now, &command);
            }
        } else if offset + command.sectors > self.layer.limits.capacity_sectors {
            return self.read_gap(now, zone, offset, command);
        }
        let sector = self.inner_sector(zone, offset);
        self.inner.submit(now, Command { sector, ..command });
    }

    #[inline]
    fn next_event(&self) -> Nanos {
        self.completed.next_event().min(self.inner.next_event())
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        if self.completed.is_empty() && self.resets.is_empty() {
            return self.inner.advance(now, done);
        }
        let mut ended = core::mem::take(&mut self.ended);
        self.inner.advance(now, &mut ended);
        for Completion { tag, at, status } in ended.drain(..) {
            let earliest = self.resets.remove(&tag).unwrap_or(Nanos::ZERO);
            self.complete(tag, at.max(earliest), status);
        }
        self.ended = ended;
        self.completed.take_until(now, done);
    }

    fn power_loss(&mut self, now: Nanos) -> Nanos {
        self.zones.close_all();
        self.resets.clear();
        self.completed.clear();
        self.inner.power_loss(now)
    }

    fn stats(&self, now: Nanos) -> DeviceStats {
        self.inner.stats(now)
    }

    fn reset_stats(&mut self, now: Nanos) {
        self.inner.reset_stats(now);
    }

    fn take_data_fault(&mut self, tag: u32) -> Option<DataFault> {
        self.inner.take_data_fault(tag)
    }

    fn record(&mut self, on: bool) {
        self.inner.record(on);
    }

    fn take_record(&mut self, out: &mut DriveTimeline) {
        self.inner.take_record(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DriveSpec, DriveState, registry};
    use proptest::prelude::*;

    const CAPACITY: u32 = 24;

    fn limits(max_open: u32, max_active: u32) -> ZoneLimits {
        ZoneLimits {
            zone_sectors: 32,
            capacity_sectors: CAPACITY,
            conventional: 0,
            max_open,
            max_active,
        }
    }

    fn conditions(zones: &Zones) -> Vec<Condition> {
        zones.zones.iter().map(|zone| zone.condition).collect()
    }

    #[test]
    fn the_drive_closes_a_zone_that_a_write_opened_and_none_that_the_host_did() {
        use Condition::*;
        let mut zones = Zones::new(limits(2, 3), 5, false);
        assert_eq!(zones.act(0, ZoneAction::Open), Ok(0));
        assert_eq!(zones.write(1, 0, 8), Ok(()));
        assert_eq!(zones.write(2, 0, 8), Ok(()));
        assert_eq!(
            conditions(&zones),
            [ExplicitlyOpen, Closed, ImplicitlyOpen, Empty, Empty]
        );
        // Three are active, which is the limit.
        assert_eq!(zones.write(3, 0, 8), Err(Refused));
        assert_eq!(zones.write(1, 8, 8), Ok(()));
        assert_eq!(conditions(&zones)[1..3], [ImplicitlyOpen, Closed]);
        assert_eq!(zones.act(2, ZoneAction::Open), Ok(0));
        // Both are open by the host's command now.
        assert_eq!(zones.write(1, 16, 8), Err(Refused));
        assert_eq!(zones.act(0, ZoneAction::Close), Ok(0));
        assert_eq!(conditions(&zones)[0], Empty, "it was not written");
        assert_eq!(zones.write(1, 16, 8), Ok(()));
        assert_eq!(conditions(&zones)[1], Full);
        assert_eq!(zones.act(1, ZoneAction::Open), Err(Refused));
        assert_eq!(zones.act(1, ZoneAction::Reset), Ok(CAPACITY));
        assert_eq!(zones.act(1, ZoneAction::Close), Err(Refused));
    }

    /// A limit of 0 is none (`null_check_active`, `null_check_open`).
    #[test]
    fn a_drive_without_limits_opens_every_zone() {
        // The zones that can be written beside the others, of five.
        for (max_open, max_active, most) in [(0, 0, 5), (2, 0, 5), (0, 3, 3), (2, 3, 3)] {
            let mut zones = Zones::new(limits(max_open, max_active), 5, false);
            let written = (0..5).take_while(|zone| zones.write(*zone, 0, 8).is_ok());
            assert_eq!(written.count(), most, "{max_open} {max_active}");
            let open = if max_open == 0 { most as u32 } else { max_open };
            assert_eq!((zones.open(), zones.active()), (open, most as u32));
        }
    }

    /// The search for a zone to close goes on behind the one that was closed last
    /// (`null_close_imp_open_zone`).
    #[test]
    fn zones_that_writes_opened_are_closed_by_turns() {
        let mut zones = Zones::new(limits(2, 0), 4, false);
        // The zone that is written next, and those that are open then.
        for (written, open) in [
            (0, vec![0]),
            (1, vec![0, 1]),
            (2, vec![1, 2]),
            (0, vec![0, 2]),
            // Zone 2 and not zone 0, which was passed by.
            (1, vec![0, 1]),
            // Zone 3 is not open, so it begins anew.
            (3, vec![1, 3]),
            (2, vec![2, 3]),
            (1, vec![1, 3]),
            (0, vec![0, 1]),
            (2, vec![1, 2]),
        ] {
            let offset = zones.zones[written].written_sectors;
            assert_eq!(zones.write(written, offset, 1), Ok(()));
            let found = conditions(&zones).into_iter().enumerate();
            let found = found.filter(|(_, condition)| *condition == Condition::ImplicitlyOpen);
            let found: Vec<usize> = found.map(|(zone, _)| zone).collect();
            assert_eq!(found, open, "{written}");
        }
        // Zone 0 was closed last; it is written again once another is full, and is not the next.
        zones.act(1, ZoneAction::Finish).expect("it is open");
        zones.write(0, 3, 1).expect("there is room");
        zones.write(3, 1, 1).expect("another can be closed");
        use Condition::*;
        assert_eq!(
            conditions(&zones),
            [ImplicitlyOpen, Full, Closed, ImplicitlyOpen]
        );
    }

    #[derive(Clone, Debug)]
    enum ZoneStep {
        Write {
            zone: usize,
            at_wp: bool,
            blocks: u32,
        },
        Act {
            zone: usize,
            action: ZoneAction,
        },
        PowerLoss,
    }

    fn step() -> impl Strategy<Value = ZoneStep> {
        const ACTIONS: &[ZoneAction] = &[
            ZoneAction::Reset,
            ZoneAction::Open,
            ZoneAction::Close,
            ZoneAction::Finish,
        ];
        let zone = 0usize..6;
        prop_oneof![
            8 => (zone.clone(), any::<bool>(), 1u32..=4)
                .prop_map(|(zone, at_wp, blocks)| ZoneStep::Write { zone, at_wp, blocks }),
            6 => (zone, proptest::sample::select(ACTIONS))
                .prop_map(|(zone, action)| ZoneStep::Act { zone, action }),
            1 => Just(ZoneStep::PowerLoss),
        ]
    }

    proptest! {
        /// Whatever comes, the limits hold, a zone is written only at its write pointer, and what
        /// is refused changes nothing.
        #[test]
        fn zones_keep_to_their_states_and_limits(
            max_open in 0u32..4,
            more in 0u32..3,
            steps in prop::collection::vec(step(), 1..200),
        ) {
            let max_active = if max_open == 0 { 0 } else { max_open + more };
            let mut zones = Zones::new(limits(max_open, max_active), 6, false);
            for step in steps {
                let before: Vec<u32> = zones.zones.iter().map(|z| z.written_sectors).collect();
                let changed = match step {
                    ZoneStep::Write { zone, at_wp, blocks } => {
                        let offset = if at_wp { before[zone] } else { 8 };
                        let sectors = blocks * 8;
                        let written = zones.write(zone, offset, sectors);
                        if written.is_ok() {
                            prop_assert_eq!(offset, before[zone]);
                            prop_assert_eq!(zones.zones[zone].written_sectors, offset + sectors);
                        }
                        written.is_ok().then_some(zone)
                    }
                    ZoneStep::Act { zone, action } => {
                        let done = zones.act(zone, action);
                        let wp = zones.zones[zone].written_sectors;
                        match (action, done) {
                            (ZoneAction::Reset, Ok(sectors)) => {
                                prop_assert_eq!((wp, sectors), (0, before[zone]));
                            }
                            (ZoneAction::Finish, Ok(sectors)) => {
                                prop_assert_eq!((wp, sectors), (CAPACITY, CAPACITY - before[zone]));
                            }
                            (ZoneAction::Reset, Err(_)) => prop_assert!(false, "never refused"),
                            _ => prop_assert_eq!(wp, before[zone]),
                        }
                        done.is_ok().then_some(zone)
                    }
                    ZoneStep::PowerLoss => {
                        zones.close_all();
                        prop_assert_eq!(zones.open(), 0);
                        None
                    }
                };
                for (zone, written) in before.iter().enumerate() {
                    if Some(zone) != changed {
                        prop_assert_eq!(zones.zones[zone].written_sectors, *written);
                    }
                    let Zone { condition, written_sectors } = zones.zones[zone];
                    prop_assert_eq!(condition == Condition::Full, written_sectors == CAPACITY);
                    if condition == Condition::Empty {
                        prop_assert_eq!(written_sectors, 0);
                    }
                }
                let count = |wanted: &[Condition]| {
                    let all = zones.zones.iter();
                    all.filter(|zone| wanted.contains(&zone.condition)).count() as u32
                };
                let open = count(&[Condition::ImplicitlyOpen, Condition::ExplicitlyOpen]);
                let active = open + count(&[Condition::Closed]);
                prop_assert_eq!((open, active), (zones.open(), zones.active()));
                prop_assert!(max_open == 0 || open <= max_open);
                prop_assert!(max_active == 0 || active <= max_active);
            }
        }
    }

    /// A null drive with a conventional zone of 64 KiB, and others of which 48 KiB can be written.
    fn drive() -> Box<dyn Device> {
        let text = "description = \"x\"\ninterface = \"null\"\nmodel = \"null\"\n[host]\n\
                    capacity_bytes = 1081344\nqueue_depth = 9\ndiscard = true\n[timing]\n\
                    read_ns = 100\nwrite_ns = 200\nflush_ns = 100\nparallelism = 1\n[zones]\n\
                    size_kb = 64\ncapacity_kb = 48\nconventional = 1\nmax_active = 2\n\
                    command_us = 1\nreset_us = 48\nfinish_us = 96\n";
        let spec = DriveSpec::parse("x", text).unwrap_or_else(|error| panic!("{error}"));
        // 1 MiB and 32 KiB: one zone of 64 KiB, and 20 of 48 KiB.
        assert_eq!(spec.identity().capacity_sectors, 21 * 128);
        spec.build(1)
    }

    /// How a command ends, and how long it takes.
    fn run(drive: &mut dyn Device, now: &mut Nanos, op: Op, range: (u64, u32)) -> (bool, u64) {
        let started = *now;
        let command = Command {
            tag: 7,
            queue: 0,
            op,
            sector: Sector(range.0),
            sectors: range.1,
            fua: false,
        };
        drive.submit(started, command);
        let mut done = Vec::new();
        *now = drive.advance_to_completion(Nanos::MAX, &mut done);
        assert_eq!((done.len(), done[0].at, done[0].tag), (1, *now, 7));
        (done[0].status == CommandStatus::Ok, (*now - started).0)
    }

    #[test]
    fn a_zoned_drive_takes_writes_at_the_write_pointer_alone() {
        let (mut drive, mut now) = (drive(), Nanos::ZERO);
        let mut run = |op, sector, sectors| run(&mut *drive, &mut now, op, (sector, sectors));
        assert_eq!(run(Op::Write, 64, 8), (true, 200), "a conventional zone");
        assert_eq!(run(Op::Write, 128, 8), (true, 200));
        assert_eq!(run(Op::Write, 144, 8), (false, 1000), "beyond it");
        assert_eq!(run(Op::Write, 128, 8), (false, 1000), "before it");
        assert_eq!(run(Op::Write, 136, 88), (true, 200), "up to the capacity");
        assert_eq!(run(Op::Write, 224, 8), (false, 1000), "behind it");
        assert_eq!(run(Op::Read, 128, 8), (true, 100));
        assert_eq!(run(Op::Read, 224, 8), (true, 100), "behind the capacity");
        assert_eq!(run(Op::Read, 216, 40), (true, 100), "across its end");
        assert_eq!(run(Op::Read, 216, 41), (false, 1000), "across the zone's");
        assert_eq!(run(Op::Discard, 128, 8), (false, 1000));
        assert_eq!(run(Op::Zone(ZoneAction::Reset), 128, 0), (true, 49_000));
        assert_eq!(run(Op::Zone(ZoneAction::Reset), 128, 0), (true, 1000));
        assert_eq!(run(Op::Zone(ZoneAction::Reset), 136, 0), (false, 1000));
        assert_eq!(run(Op::Zone(ZoneAction::Reset), 0, 0), (false, 1000));
        assert_eq!(run(Op::Write, 128, 48), (true, 200));
        assert_eq!(run(Op::Zone(ZoneAction::Finish), 128, 0), (true, 49_000));
        assert_eq!(run(Op::Write, 256, 8), (true, 200));
        assert_eq!(run(Op::Write, 384, 8), (true, 200));
        assert_eq!(run(Op::Write, 512, 8), (false, 1000), "two are active");
        assert_eq!(run(Op::Zone(ZoneAction::Finish), 640, 0), (false, 1000));
        assert_eq!(run(Op::Zone(ZoneAction::Finish), 256, 0), (true, 89_000));
        assert_eq!(
            run(Op::Zone(ZoneAction::Finish), 640, 0),
            (true, 1000),
            "empty"
        );
        let past = Op::Zone(ZoneAction::Open);
        assert_eq!(run(past, 1 << 40, 0), (false, 1000));
    }

    /// The link carries 3282 MB/s.
    #[test]
    fn what_is_read_behind_a_zone_s_capacity_crosses_the_link() {
        let spec = registry::find("zn540-1tb")
            .expect("listed")
            .expect("parses");
        for state in [DriveState::Fresh, DriveState::Filled] {
            let mut drive = spec.clone().in_state(state).expect("an SSD").build(1);
            for tag in 0..32 {
                let command = Command {
                    tag,
                    queue: 0,
                    op: Op::Read,
                    sector: Sector::from_bytes((1100 << 20) + u64::from(tag) * 131_072),
                    sectors: 256,
                    fua: false,
                };
                drive.submit(Nanos::ZERO, command);
            }
            let (mut now, mut done) = (Nanos::ZERO, Vec::new());
            while done.len() < 32 {
                now = drive.advance_to_completion(Nanos::MAX, &mut done);
            }
            assert!(done.iter().all(|end| end.status == CommandStatus::Ok));
            let link_ns = 32 * 131_072 * 1000 / 3282;
            assert!((link_ns..link_ns + 20_000).contains(&now.0), "{now:?}");
            let stats = drive.stats(now);
            assert_eq!(
                (stats.sectors_read_unwritten, stats.flash_reads),
                (32 * 256, 0)
            );
        }
    }

    /// A read across the end of a zone's capacity needs the flash for what is before it.
    #[test]
    fn only_what_is_before_a_zone_s_capacity_is_read_from_flash() {
        let spec = registry::find("zn540-1tb")
            .expect("listed")
            .expect("parses");
        let spec = spec.in_state(DriveState::Filled).expect("an SSD");
        let zones = spec.identity().zones.expect("it has zones");
        let flash_reads = |offset: u32| {
            let (mut drive, mut now) = (spec.build(1), Nanos::ZERO);
            let sector = u64::from(zones.zone_sectors) + u64::from(offset);
            assert!(run(&mut *drive, &mut now, Op::Read, (sector, 16)).0);
            drive.stats(now).flash_reads > 0
        };
        let capacity = zones.capacity_sectors;
        let found = [capacity - 16, capacity - 8, capacity, capacity + 8].map(flash_reads);
        assert_eq!(found, [true, true, false, false]);
    }

    /// Only the reset of a zone that was written gives space back, for which the model below is
    /// busy; what else happens to zones does not touch it.
    #[test]
    fn only_the_reset_of_a_written_zone_discards() {
        let (mut drive, mut now) = (drive(), Nanos::ZERO);
        // How long a write to the conventional zone takes beside a command on a zone. The model
        // below does one thing after the other.
        let mut beside = |action: ZoneAction| {
            let command = |tag, op, sector, sectors| Command {
                tag,
                queue: 0,
                op,
                sector: Sector(sector),
                sectors,
                fua: false,
            };
            drive.submit(now, command(1, Op::Zone(action), 128, 0));
            drive.submit(now, command(2, Op::Write, 0, 8));
            let (started, mut done) = (now, Vec::new());
            while done.len() < 2 {
                now = drive.advance_to_completion(Nanos::MAX, &mut done);
            }
            let of = |tag| *done.iter().find(|end| end.tag == tag).expect("has ended");
            assert_eq!(of(1).status, CommandStatus::Ok, "{action:?}");
            (of(2).at - started).0
        };
        for (action, took_ns) in [
            (ZoneAction::Reset, 200),
            (ZoneAction::Open, 200),
            (ZoneAction::Close, 200),
            (ZoneAction::Finish, 200),
            (ZoneAction::Finish, 200),
            (ZoneAction::Reset, 400),
            (ZoneAction::Reset, 200),
        ] {
            assert_eq!(beside(action), took_ns, "{action:?}");
        }
    }
}
