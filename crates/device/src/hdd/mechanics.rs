//! Where the heads are, and how long seeks, rotation and transfers take.
//!
//! Seek times follow Ruemmler and Wilkes ("An introduction to disk drive
//! modeling", IEEE Computer 1994): the square root of the distance while the
//! arm accelerates and brakes, linear once it coasts; or a curve that was measured.

use alloc::vec::Vec;

use super::spec::{MechanicsSpec, SeekCurve};

/// Where a sector is on the platters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PhysicalAddress {
    pub(crate) cylinder: u32,
    pub(crate) head: u32,
    /// The angle of its start, as time since the start of a revolution.
    angle_ns: u64,
    /// Time of one sector on its track.
    sector_ps: u64,
}

/// A zone with data, and where it starts.
#[derive(Clone, Copy, Debug)]
struct ZoneLayout {
    first_sector: u64,
    first_cylinder: u32,
    sectors_per_track: u32,
    sector_ps: u64,
    /// Time of the spare sectors at the end of a track.
    spare_ns: u64,
    /// Track skew and cylinder skew, so that reading on to the next track loses no
    /// revolution.
    head_skew_ns: u64,
    cylinder_skew_ns: u64,
    /// The angle of its first sector, as time since the start of a revolution.
    first_ns: u64,
}

/// Sectors on the platters that addresses pass over: spares, the firmware's own, and
/// defects, whose place the next good sector takes (sector slipping).
#[derive(Clone, Debug, Default)]
struct SkippedSectors {
    /// Of each run the first address behind it, and how many sectors were skipped until
    /// there.
    runs: Vec<(u64, u64)>,
}

impl SkippedSectors {
    /// From runs of first sector on the platters and length, which rise.
    fn new(runs: &[[u64; 2]]) -> SkippedSectors {
        let mut skipped = 0;
        let run = |[first, sectors]: &[u64; 2]| {
            let address = first - skipped;
            skipped += sectors;
            (address, skipped)
        };
        SkippedSectors {
            runs: runs.iter().map(run).collect(),
        }
    }

    /// How many were skipped before the run with this index.
    fn before(&self, index: usize) -> u64 {
        index.checked_sub(1).map_or(0, |last| self.runs[last].1)
    }

    /// Where on the platters an address is.
    fn place_of(&self, address: u64) -> u64 {
        let behind = self.runs.partition_point(|run| run.0 <= address);
        address + self.before(behind)
    }

    /// The first address at or behind a sector on the platters.
    fn address_at(&self, place: u64) -> u64 {
        let behind = (self.runs).partition_point(|(address, skipped)| address + skipped <= place);
        let address = place - self.before(behind);
        let next = self.runs.get(behind);
        next.map_or(address, |(behind_it, _)| address.min(*behind_it))
    }
}

/// The arm, the heads and the platters.
#[derive(Clone, Debug)]
pub(crate) struct Mechanics {
    zones: Vec<ZoneLayout>,
    skipped: SkippedSectors,
    serpentine: bool,
    heads: u32,
    turn_ns: u64,
    cylinders: u32,
    seek_curve: Option<SeekCurve>,
    track_seek_ns: u64,
    average_seek_ns: u64,
    full_seek_ns: u64,
    head_switch_ns: u64,
    write_settle_ns: u64,
    min_positioning_ns: u64,
    cylinder: u32,
    head: u32,
}

/// The time of an access, in its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) seek_ns: u64,
    pub(crate) rotation_ns: u64,
    pub(crate) transfer_ns: u64,
    /// How far the arm moves.
    pub(crate) cylinders: u32,
}

impl Access {
    pub(crate) fn positioning_ns(&self) -> u64 {
        self.seek_ns + self.rotation_ns
    }
}

impl Mechanics {
    pub(crate) fn new(spec: &MechanicsSpec) -> Mechanics {
        let (mut first_sector, mut first_cylinder) = (0, 0);
        let mut zones = Vec::new();
        for zone in &spec.zones {
            let begins = first_cylinder;
            first_cylinder += zone.cylinders;
            if zone.sectors_per_track == 0 {
                continue;
            }
            let spares = spec.spare_sectors_per_track as u64;
            let sector_ps = spec.turn_ns * 1000 / (zone.sectors_per_track as u64 + spares);
            let [head_skew_ns, cylinder_skew_ns] = match zone.skews {
                Some(skews) => skews.map(|sectors| sectors as u64 * sector_ps / 1000),
                None => [
                    spec.head_switch_ns.min(spec.turn_ns - 1),
                    spec.track_seek_ns,
                ],
            };
            zones.push(ZoneLayout {
                first_sector,
                first_cylinder: begins,
                sectors_per_track: zone.sectors_per_track,
                sector_ps,
                spare_ns: spares * sector_ps / 1000,
                head_skew_ns: head_skew_ns % spec.turn_ns,
                cylinder_skew_ns: cylinder_skew_ns % spec.turn_ns,
                first_ns: zone.first_sector_at as u64 * sector_ps / 1000 % spec.turn_ns,
            });
            let tracks = zone.cylinders as u64 * spec.heads as u64;
            first_sector += tracks * zone.sectors_per_track as u64;
        }
        Mechanics {
            zones,
            skipped: SkippedSectors::new(&spec.skipped_sectors),
            serpentine: spec.serpentine,
            heads: spec.heads,
            turn_ns: spec.turn_ns,
            cylinders: first_cylinder,
            seek_curve: spec.seek_curve.clone(),
            track_seek_ns: spec.track_seek_ns,
            average_seek_ns: spec.average_seek_ns,
            full_seek_ns: spec.full_seek_ns,
            head_switch_ns: spec.head_switch_ns,
            write_settle_ns: spec.write_settle_ns,
            min_positioning_ns: spec.min_positioning_ns,
            cylinder: 0,
            head: 0,
        }
    }

    /// The zone of a sector on the platters.
    fn zone_of(&self, place: u64) -> &ZoneLayout {
        let after = (self.zones).partition_point(|zone| zone.first_sector <= place);
        &self.zones[after - 1]
    }

    /// Where a sector is: addresses run over the heads of a cylinder, then on to the next
    /// cylinder.
    pub(crate) fn physical_address(&self, sector: u64) -> PhysicalAddress {
        self.address_of_place(self.skipped.place_of(sector))
    }

    fn address_of_place(&self, place: u64) -> PhysicalAddress {
        let zone = self.zone_of(place);
        let within = place - zone.first_sector;
        let track = within / zone.sectors_per_track as u64;
        let (cylinder, head) = (track / self.heads as u64, track % self.heads as u64);
        // Every track starts later than the one before by its skew.
        let skew_ns = cylinder * zone.cylinder_skew_ns + (track - cylinder) * zone.head_skew_ns;
        let along_ns = within % zone.sectors_per_track as u64 * zone.sector_ps / 1000;
        let backwards = self.serpentine && cylinder % 2 == 1;
        PhysicalAddress {
            cylinder: zone.first_cylinder + cylinder as u32,
            head: match backwards {
                true => self.heads - 1 - head as u32,
                false => head as u32,
            },
            angle_ns: (zone.first_ns + skew_ns + along_ns) % self.turn_ns,
            sector_ps: zone.sector_ps,
        }
    }

    /// Time to move the arm by `distance` cylinders.
    pub(crate) fn seek_ns(&self, distance: u32) -> u64 {
        if let (Some(curve), 1..) = (&self.seek_curve, distance) {
            return curve.seek_ns(distance);
        }
        let third = (self.cylinders / 3).max(1) as f64;
        let distance = distance as f64;
        let (track, average) = (self.track_seek_ns as f64, self.average_seek_ns as f64);
        if distance == 0.0 {
            0
        } else if distance <= third {
            // The square root through the track seek and the average seek, which is over
            // a third of all cylinders.
            let slope = (average - track) / (libm::sqrt(third) - 1.0).max(1e-9);
            (track + slope * (libm::sqrt(distance) - 1.0)) as u64
        } else {
            let rest = (self.cylinders as f64 - third).max(1.0);
            let slope = (self.full_seek_ns as f64 - average) / rest;
            (average + slope * (distance - third)) as u64
        }
    }

    /// The time to transfer `sectors` from `sector` on, from now. The transfer begins no
    /// earlier than `data_ns`, when a write's data is there.
    pub(crate) fn access(
        &self,
        now_ns: u64,
        sector: u64,
        sectors: u64,
        write: bool,
        data_ns: u64,
    ) -> Access {
        let address = self.physical_address(sector);
        let cylinders = address.cylinder.abs_diff(self.cylinder);
        let mut seek_ns = self.seek_ns(cylinders);
        if address.head != self.head {
            seek_ns = seek_ns.max(self.head_switch_ns);
        }
        if write && seek_ns > 0 {
            seek_ns += self.write_settle_ns;
        }
        let there_ns = now_ns + seek_ns;
        let ready_ns = there_ns.max(now_ns + self.min_positioning_ns).max(data_ns);
        let turned_ns = (address.angle_ns + self.turn_ns - ready_ns % self.turn_ns) % self.turn_ns;
        let rotation_ns = ready_ns - there_ns + turned_ns;
        Access {
            seek_ns,
            rotation_ns,
            transfer_ns: self.transfer_ns(sector, sectors),
            cylinders,
        }
    }

    /// Time of a transfer of `sectors` from `sector` on, with the skews of the tracks that
    /// it continues on. Skipped sectors pass under the heads, but whole tracks of them are
    /// not waited for.
    pub(crate) fn transfer_ns(&self, sector: u64, sectors: u64) -> u64 {
        let first = self.skipped.place_of(sector);
        let last = self.skipped.place_of(sector + sectors.max(1) - 1);
        let zone = self.zone_of(first);
        let per_track = zone.sectors_per_track as u64;
        let [first_track, last_track] =
            [first, last].map(|place| (place - zone.first_sector) / per_track);
        let steps = last_track - first_track;
        let heads = self.heads as u64;
        let cylinder_steps = last_track / heads - first_track / heads;
        let skipped = last - first - (sectors.max(1) - 1);
        let passed = sectors + skipped % per_track;
        passed * zone.sector_ps / 1000
            + steps.saturating_sub(skipped / per_track) * zone.spare_ns
            + (steps - cylinder_steps) * zone.head_skew_ns
            + cylinder_steps * zone.cylinder_skew_ns
    }

    /// The first sector behind a sector's track and the `tracks` after it.
    pub(crate) fn track_end(&self, sector: u64, tracks: u32) -> u64 {
        let place = self.skipped.place_of(sector);
        let zone = self.zone_of(place);
        let per_track = zone.sectors_per_track as u64;
        let track = (place - zone.first_sector) / per_track;
        let end = zone.first_sector + (track + 1 + tracks as u64) * per_track;
        self.skipped.address_at(end)
    }

    /// Puts the heads where a transfer has ended.
    pub(crate) fn move_to(&mut self, last_sector: u64) {
        let address = self.physical_address(last_sector);
        self.cylinder = address.cylinder;
        self.head = address.head;
    }

    /// Time of one sector on a sector's track.
    pub(crate) fn sector_ps(&self, sector: u64) -> u64 {
        self.physical_address(sector).sector_ps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hdd::spec::HddSpec;

    const SKIPPED: &str = "skipped_sectors = [[64, 8], [128, 8]]\n";

    /// Two heads; 1000 cylinders of 64 sectors a track, one without data, and 1000 of
    /// 48 sectors with skews of 4 and 6 sectors; one spare sector a track
    /// and none skipped.
    fn mechanics() -> Mechanics {
        mechanics_with("", "")
    }

    /// The same with a line of the description replaced.
    fn mechanics_with(line: &str, replacement: &str) -> Mechanics {
        let (_, text) = crate::hdd::MODEL.complete[0];
        let text = text.replace(SKIPPED, "skipped_sectors = none\n");
        let text = text
            .replace(line, replacement)
            .replace("skipped_sectors = none\n", "");
        let spec = blklab_description::read("disk", &text, HddSpec::read);
        Mechanics::new(&spec.unwrap_or_else(|e| panic!("{e}")).mechanics)
    }

    const TURN_NS: u64 = 8_333_333;
    const OUTER_PS: u64 = TURN_NS * 1000 / 65;
    const INNER_PS: u64 = TURN_NS * 1000 / 49;
    const HEAD_SWITCH_NS: u64 = 800_000;
    const TRACK_SEEK_NS: u64 = 1_000_000;

    #[test]
    fn addresses_run_over_heads_then_cylinders_then_zones() {
        let mechanics = mechanics();
        for (sector, cylinder, head, angle_ns) in [
            (0, 0, 0, 0),
            (2, 0, 0, 2 * OUTER_PS / 1000),
            (64, 0, 1, HEAD_SWITCH_NS),
            (128, 1, 0, HEAD_SWITCH_NS + TRACK_SEEK_NS),
            (128_000, 1001, 0, 0),
            (128_048, 1001, 1, 4 * INNER_PS / 1000),
            (128_096, 1002, 0, 4 * INNER_PS / 1000 + 6 * INNER_PS / 1000),
        ] {
            let address = mechanics.physical_address(sector);
            let found = (address.cylinder, address.head, address.angle_ns);
            assert_eq!(found, (cylinder, head, angle_ns), "{sector}");
        }
        assert_eq!(mechanics.track_end(10, 0), 64);
        assert_eq!(mechanics.track_end(63, 1), 128);
        assert_eq!(mechanics.track_end(128_000, 0), 128_048);
    }

    #[test]
    fn a_transfer_pays_the_skews_of_the_tracks_that_it_continues_on() {
        let mechanics = mechanics();
        let spare_ns = OUTER_PS / 1000;
        for (sectors, steps_ns) in [
            (64, 0),
            (65, spare_ns + HEAD_SWITCH_NS),
            (129, 2 * spare_ns + HEAD_SWITCH_NS + TRACK_SEEK_NS),
        ] {
            let found = mechanics.transfer_ns(0, sectors);
            assert_eq!(found, sectors * OUTER_PS / 1000 + steps_ns, "{sectors}");
        }
        assert_eq!(mechanics.transfer_ns(63, 1), OUTER_PS / 1000);
    }

    #[test]
    fn a_transfer_ends_where_its_last_sector_does() {
        ends_where_its_last_sector_does(&mechanics());
        let skipped = "skipped_sectors = [[8, 8], [56, 160], [128032, 8], [128080, 24]]";
        ends_where_its_last_sector_does(&mechanics_with("skipped_sectors = none", skipped));
    }

    fn ends_where_its_last_sector_does(mechanics: &Mechanics) {
        for start in [0, 30, 63, 64, 127, 128, 128_000, 128_040, 128_060, 128_100] {
            let first = mechanics.physical_address(start);
            for sectors in 1..300 {
                let last = mechanics.physical_address(start + sectors - 1);
                let ends_ns = (last.angle_ns + last.sector_ps / 1000) % TURN_NS;
                let found_ns = (first.angle_ns + mechanics.transfer_ns(start, sectors)) % TURN_NS;
                let apart_ns = ends_ns.abs_diff(found_ns);
                let apart_ns = apart_ns.min(TURN_NS - apart_ns);
                assert!(apart_ns < 10, "{sectors} from {start}: {apart_ns} ns");
            }
        }
    }

    #[test]
    fn addresses_pass_over_skipped_sectors() {
        let skipped = "skipped_sectors = [[0, 16], [32, 8], [56, 16], [72, 64], [192, 64]]";
        let (all, mechanics) = (
            mechanics(),
            mechanics_with("skipped_sectors = none", skipped),
        );
        let seen = (0..400).filter(|place: &u64| {
            let runs = [(0, 16), (32, 40), (56, 136), (192, 256)];
            !runs
                .iter()
                .any(|(start, end)| (*start..*end).contains(place))
        });
        for (sector, place) in seen.enumerate() {
            let sector = sector as u64;
            assert_eq!(
                mechanics.physical_address(sector),
                all.physical_address(place),
                "{sector}"
            );
            // The first address behind the track.
            let end = all.track_end(place, 0);
            let behind = (sector..).find(|s| mechanics.skipped.place_of(*s) >= end);
            assert_eq!(Some(mechanics.track_end(sector, 0)), behind, "{sector}");
        }
    }

    #[test]
    fn tracks_of_skipped_sectors_are_not_waited_for() {
        // All but the first sectors of two cylinders.
        let mechanics = mechanics_with("skipped_sectors = none", "skipped_sectors = [[8, 248]]");
        let skews_ns = 2 * HEAD_SWITCH_NS + 2 * TRACK_SEEK_NS;
        let passed_ns = (16 + 248 - 3 * 64) * OUTER_PS / 1000 + OUTER_PS / 1000;
        assert_eq!(mechanics.transfer_ns(0, 16), passed_ns + skews_ns);
    }

    #[test]
    fn a_serpentine_comes_back_over_the_same_heads() {
        let mechanics = mechanics_with("serpentine = false", "serpentine = true");
        let heads = [0, 64, 128, 192, 256, 128_000, 128_096].map(|sector| {
            let address = mechanics.physical_address(sector);
            (address.cylinder, address.head)
        });
        let want = [(0, 0), (0, 1), (1, 1), (1, 0), (2, 0), (1001, 0), (1002, 1)];
        assert_eq!(heads, want);
    }

    #[test]
    fn a_zone_begins_at_its_angle() {
        let mechanics = mechanics_with("[1000, 48, 4, 6]", "[1000, 48, 4, 6, 12]");
        let address = mechanics.physical_address(128_000);
        assert_eq!(address.angle_ns, 12 * INNER_PS / 1000);
    }

    #[test]
    fn the_heads_take_their_least_time_on_their_own_track_too() {
        let mut mechanics = mechanics_with("min_positioning_us = 0", "min_positioning_us = 600");
        mechanics.move_to(3);
        let sector_ns = OUTER_PS / 1000;
        // The heads are at the next sector, which passes before they may write.
        let at_next = mechanics.access(4 * sector_ns, 4, 1, true, 0);
        assert_eq!((at_next.seek_ns, at_next.rotation_ns), (0, TURN_NS));
        let later = mechanics.access(4 * sector_ns, 9, 1, true, 0);
        assert!(later.rotation_ns.abs_diff(5 * sector_ns) < 10);
        // A longer way hides it.
        let read = mechanics.access(0, 64, 8, false, 0);
        assert_eq!((read.seek_ns, read.rotation_ns), (HEAD_SWITCH_NS, 0));
    }

    #[test]
    fn seeks_follow_the_root_then_a_line() {
        let mechanics = mechanics();
        assert_eq!(
            (mechanics.seek_ns(0), mechanics.seek_ns(1)),
            (0, TRACK_SEEK_NS)
        );
        // A third of 2001 cylinders, half of that by the root, and all.
        for (distance, ns) in [(667, 8_500_000), (334, 6_219_000), (2001, 18_000_000)] {
            let found = mechanics.seek_ns(distance);
            assert!(found.abs_diff(ns) < 1000, "{distance}: {found}");
        }
    }

    #[test]
    fn a_skew_saves_a_revolution_to_a_reader_and_not_to_a_write() {
        let mut mechanics = mechanics();
        let read = mechanics.access(0, 64, 8, false, 0);
        assert_eq!((read.seek_ns, read.rotation_ns), (HEAD_SWITCH_NS, 0));
        let write = mechanics.access(0, 64, 8, true, 0);
        assert_eq!(write.seek_ns, HEAD_SWITCH_NS + 1_000_000);
        assert_eq!(write.rotation_ns, TURN_NS - 1_000_000);
        // Data that comes later than the arm.
        let late = mechanics.access(0, 64, 8, false, 1_000_000);
        assert_eq!(late.rotation_ns, TURN_NS);
        mechanics.move_to(64);
        assert_eq!(mechanics.access(0, 64, 8, true, 0).seek_ns, 0);
        let far = mechanics.access(0, 128_000, 8, false, 0);
        assert_eq!(
            (far.cylinders, far.seek_ns),
            (1001, mechanics.seek_ns(1001))
        );
    }
}
