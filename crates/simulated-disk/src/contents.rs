//! The contents of a drive: what reads return, and what a power cut leaves.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::RngCore;

/// Bytes of a sector.
pub(crate) const SECTOR_BYTES: usize = 512;
/// Number of sectors stored together.
const PAGE_SECTORS: u64 = 8;
const PAGE_BYTES: usize = PAGE_SECTORS as usize * SECTOR_BYTES;

/// Fate of unflushed writes at a power cut, as shares from 0 to 1: lost, torn (only some of the
/// logical blocks are written), or written otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerCut {
    /// Share of writes that are lost.
    pub lost: f64,
    /// Share of writes that are torn.
    pub torn: f64,
}

impl Default for PowerCut {
    fn default() -> PowerCut {
        PowerCut {
            lost: 0.4,
            torn: 0.2,
        }
    }
}

/// Sectors by number; those never written read as zeroes.
#[derive(Default)]
struct Sectors(BTreeMap<u64, Box<[u8; PAGE_BYTES]>>);

impl Sectors {
    fn read(&self, sector: u64) -> &[u8] {
        const ZEROES: &[u8] = &[0; SECTOR_BYTES];
        let at = (sector % PAGE_SECTORS) as usize * SECTOR_BYTES;
        let page = self.0.get(&(sector / PAGE_SECTORS));
        page.map_or(ZEROES, |page| &page[at..at + SECTOR_BYTES])
    }

    fn sector_mut(&mut self, sector: u64) -> &mut [u8] {
        let at = (sector % PAGE_SECTORS) as usize * SECTOR_BYTES;
        let page = self.0.entry(sector / PAGE_SECTORS);
        &mut page.or_insert_with(|| Box::new([0; PAGE_BYTES]))[at..at + SECTOR_BYTES]
    }
}

/// Contents of a write.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    Data(Vec<u8>),
    Zeroes { sectors: u64 },
}

impl Payload {
    pub(crate) fn sectors(&self) -> u64 {
        match self {
            Payload::Data(data) => (data.len() / SECTOR_BYTES) as u64,
            Payload::Zeroes { sectors } => *sectors,
        }
    }

    /// Writes the sectors `part`, counted from the first of the payload.
    fn put(&self, onto: &mut Sectors, start: u64, part: Range<u64>) {
        for at in part {
            let sector = onto.sector_mut(start + at);
            match self {
                Payload::Data(data) => {
                    let from = at as usize * SECTOR_BYTES;
                    sector.copy_from_slice(&data[from..from + SECTOR_BYTES]);
                }
                Payload::Zeroes { .. } => sector.fill(0),
            }
        }
    }
}

/// A write that the drive has acknowledged and no flush has covered.
struct Acknowledged {
    start: u64,
    payload: Payload,
    /// Whether it is on stable storage and waits here only for earlier writes that are not.
    is_durable: bool,
}

/// A position in the order of acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position(u64);

/// Contents of a drive.
#[derive(Default)]
pub(crate) struct Contents {
    /// What reads return.
    visible: Sectors,
    /// Flushed data, which survives a power cut.
    durable: Sectors,
    /// Acknowledged writes that are not in `durable`, in order.
    acknowledged: VecDeque<Acknowledged>,
    /// Number of acknowledged writes before these.
    before: u64,
    /// The contents of each sector before its last write, if they are needed.
    previous: Option<Sectors>,
}

impl Contents {
    /// Starts keeping the contents before the last write.
    pub(crate) fn keep_previous(&mut self) {
        self.previous = Some(Sectors::default());
    }

    pub(crate) fn read(&self, sectors: Range<u64>) -> Vec<u8> {
        sectors
            .flat_map(|sector| self.visible.read(sector))
            .copied()
            .collect()
    }

    /// Returns the contents before the last write.
    pub(crate) fn read_previous(&self, sectors: Range<u64>) -> Vec<u8> {
        match &self.previous {
            Some(previous) => sectors.flat_map(|at| previous.read(at)).copied().collect(),
            None => self.read(sectors),
        }
    }

    /// Flips a bit on the medium.
    pub(crate) fn turn_bit(&mut self, sector: u64, bit: u16) {
        let (byte, bit) = (usize::from(bit / 8), 1 << (bit % 8));
        self.visible.sector_mut(sector)[byte] ^= bit;
        self.durable.sector_mut(sector)[byte] ^= bit;
    }

    /// Records an acknowledged write.
    pub(crate) fn acknowledge(&mut self, start: u64, payload: Payload, is_durable: bool) {
        let sectors = payload.sectors();
        if let Some(previous) = &mut self.previous {
            for sector in start..start + sectors {
                let old = self.visible.read(sector);
                previous.sector_mut(sector).copy_from_slice(old);
            }
        }
        payload.put(&mut self.visible, start, 0..sectors);
        self.acknowledged.push_back(Acknowledged {
            start,
            payload,
            is_durable,
        });
        while self
            .acknowledged
            .front()
            .is_some_and(|write| write.is_durable)
        {
            self.make_first_durable();
        }
    }

    /// The position up to which a flush that starts now reaches.
    pub(crate) fn position(&self) -> Position {
        Position(self.before + self.acknowledged.len() as u64)
    }

    /// Records the end of a flush that started at this position.
    pub(crate) fn flushed(&mut self, to: Position) {
        while self.before < to.0 {
            self.make_first_durable();
        }
    }

    fn make_first_durable(&mut self) {
        if let Some(write) = self.acknowledged.pop_front() {
            let all = 0..write.payload.sectors();
            write.payload.put(&mut self.durable, write.start, all);
        }
        self.before += 1;
    }

    /// Applies a power cut with these writes in flight.
    pub(crate) fn cut_power(
        &mut self,
        in_flight: impl IntoIterator<Item = (u64, Payload)>,
        block_sectors: u64,
        cut: PowerCut,
        chance: &mut SplitMix64,
    ) {
        let in_flight = in_flight.into_iter().map(|(start, payload)| Acknowledged {
            start,
            payload,
            is_durable: false,
        });
        let acknowledged = std::mem::take(&mut self.acknowledged);
        self.before += acknowledged.len() as u64;
        for write in acknowledged.into_iter().chain(in_flight) {
            let sectors = write.payload.sectors();
            let draw = match write.is_durable {
                true => 1.0,
                false => (chance.next_u64() >> 11) as f64 / (1u64 << 53) as f64,
            };
            if draw < cut.lost {
                continue;
            }
            let is_torn = draw < cut.lost + cut.torn;
            for block in (0..sectors).step_by(block_sectors as usize) {
                if !is_torn || chance.next_u64().is_multiple_of(2) {
                    let part = block..(block + block_sectors).min(sectors);
                    write.payload.put(&mut self.durable, write.start, part);
                }
            }
        }
        self.visible.0.clone_from(&self.durable.0);
        if self.previous.is_some() {
            self.keep_previous();
        }
    }
}
