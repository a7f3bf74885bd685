//! Where the heads are and how long they take to be elsewhere.
//!
//! Seek times follow Ruemmler and Wilkes ("An introduction to disk drive
//! modeling", IEEE Computer 1994): the square root of the distance while the
//! arm accelerates and brakes, linear once it coasts; or a curve that was measured.

use super::spec::{MechanicsSpec, SeekCurve};

/// A place on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) cylinder: u32,
    pub(crate) head: u32,
    /// Angle of its start as a fraction of a turn, in nanoseconds of a turn.
    angle_ns: u64,
    /// Time of one sector on that track.
    sector_ps: u64,
}

/// One zone with where it starts.
#[derive(Clone, Copy, Debug)]
struct Band {
    first_sector: u64,
    first_cylinder: u32,
    sectors_per_track: u32,
    sector_ps: u64,
    /// Time of the spare sectors at the end of a track.
    spare_ns: u64,
    /// By how much tracks are shifted against their neighbours, so that reading
    /// on loses no turn: a head switch, and a seek by one cylinder.
    head_skew_ns: u64,
    cylinder_skew_ns: u64,
}

/// The arm, the heads and the platters.
#[derive(Clone, Debug)]
pub(crate) struct Mechanics {
    bands: Vec<Band>,
    heads: u32,
    turn_ns: u64,
    cylinders: u32,
    seek_curve: Option<SeekCurve>,
    track_seek_ns: u64,
    average_seek_ns: u64,
    full_seek_ns: u64,
    head_switch_ns: u64,
    write_settle_ns: u64,
    cylinder: u32,
    head: u32,
}

/// How long it takes until a transfer is over, in its parts.
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
        let mut bands = Vec::new();
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
            bands.push(Band {
                first_sector,
                first_cylinder: begins,
                sectors_per_track: zone.sectors_per_track,
                sector_ps,
                spare_ns: spares * sector_ps / 1000,
                head_skew_ns: head_skew_ns % spec.turn_ns,
                cylinder_skew_ns: cylinder_skew_ns % spec.turn_ns,
            });
            let tracks = zone.cylinders as u64 * spec.heads as u64;
            first_sector += tracks * zone.sectors_per_track as u64;
        }
        Mechanics {
            bands,
            heads: spec.heads,
            turn_ns: spec.turn_ns,
            cylinders: first_cylinder,
            seek_curve: spec.seek_curve.clone(),
            track_seek_ns: spec.track_seek_ns,
            average_seek_ns: spec.average_seek_ns,
            full_seek_ns: spec.full_seek_ns,
            head_switch_ns: spec.head_switch_ns,
            write_settle_ns: spec.write_settle_ns,
            cylinder: 0,
            head: 0,
        }
    }

    /// Where a sector is: cylinder after cylinder, in each head after head.
    pub(crate) fn spot(&self, sector: u64) -> Spot {
        let place = self.bands.partition_point(|b| b.first_sector <= sector) - 1;
        let band = &self.bands[place];
        let within = sector - band.first_sector;
        let track = within / band.sectors_per_track as u64;
        let (cylinder, head) = (track / self.heads as u64, track % self.heads as u64);
        // Every track starts later than the one before by the time it takes to
        // get there.
        let skew_ns = cylinder * band.cylinder_skew_ns + (track - cylinder) * band.head_skew_ns;
        let along_ns = within % band.sectors_per_track as u64 * band.sector_ps / 1000;
        Spot {
            cylinder: band.first_cylinder + cylinder as u32,
            head: head as u32,
            angle_ns: (skew_ns + along_ns) % self.turn_ns,
            sector_ps: band.sector_ps,
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
            // The root through one track and a third of all.
            let slope = (average - track) / (third.sqrt() - 1.0).max(1e-9);
            (track + slope * (distance.sqrt() - 1.0)) as u64
        } else {
            let rest = (self.cylinders as f64 - third).max(1.0);
            let slope = (self.full_seek_ns as f64 - average) / rest;
            (average + slope * (distance - third)) as u64
        }
    }

    /// What it takes to transfer `sectors` from `sector` on, from now; the transfer does
    /// not begin before `data_ns`, when a write's data is there.
    pub(crate) fn access(
        &self,
        now_ns: u64,
        sector: u64,
        sectors: u64,
        write: bool,
        data_ns: u64,
    ) -> Access {
        let spot = self.spot(sector);
        let cylinders = spot.cylinder.abs_diff(self.cylinder);
        let mut seek_ns = self.seek_ns(cylinders);
        if spot.head != self.head {
            seek_ns = seek_ns.max(self.head_switch_ns);
        }
        if write && seek_ns > 0 {
            seek_ns += self.write_settle_ns;
        }
        let there_ns = now_ns + seek_ns;
        let ready_ns = there_ns.max(data_ns);
        let turned_ns = (spot.angle_ns + self.turn_ns - ready_ns % self.turn_ns) % self.turn_ns;
        let rotation_ns = ready_ns - there_ns + turned_ns;
        Access {
            seek_ns,
            rotation_ns,
            transfer_ns: self.transfer_ns(sector, sectors),
            cylinders,
        }
    }

    /// Time that `sectors` from `sector` on take to pass under the heads, with
    /// the steps to following tracks.
    pub(crate) fn transfer_ns(&self, sector: u64, sectors: u64) -> u64 {
        let spot = self.spot(sector);
        let band = &self.bands[self.bands.partition_point(|b| b.first_sector <= sector) - 1];
        let per_track = band.sectors_per_track as u64;
        let first_on_track = (sector - band.first_sector) % per_track;
        let steps = (first_on_track + sectors.max(1) - 1) / per_track;
        let cylinder_steps = steps / self.heads as u64;
        sectors * spot.sector_ps / 1000
            + steps * band.spare_ns
            + (steps - cylinder_steps) * band.head_skew_ns
            + cylinder_steps * band.cylinder_skew_ns
    }

    /// The sector after the end of a sector's track and of `tracks` more.
    pub(crate) fn track_end(&self, sector: u64, tracks: u32) -> u64 {
        let band = &self.bands[self.bands.partition_point(|b| b.first_sector <= sector) - 1];
        let per_track = band.sectors_per_track as u64;
        let track = (sector - band.first_sector) / per_track;
        band.first_sector + (track + 1 + tracks as u64) * per_track
    }

    /// The heads are where a transfer has ended.
    pub(crate) fn move_to(&mut self, last_sector: u64) {
        let spot = self.spot(last_sector);
        self.cylinder = spot.cylinder;
        self.head = spot.head;
    }

    /// Time of a sector there.
    pub(crate) fn sector_ps(&self, sector: u64) -> u64 {
        self.spot(sector).sector_ps
    }
}
