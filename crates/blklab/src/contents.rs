//! The contents of a drive: what reads return, and what a power cut leaves.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;

use blklab_device::{DataFault, Faults, FaultyData, FlippedBits, PowerCut, WriteFate};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::RngCore;

/// Bytes of a sector.
pub(crate) const SECTOR_BYTES: usize = 512;
/// Number of sectors stored together.
const PAGE_SECTORS: u64 = 8;
const PAGE_BYTES: usize = PAGE_SECTORS as usize * SECTOR_BYTES;

/// Sectors by number; those never written read as zeroes.
#[derive(Default)]
struct Sectors(BTreeMap<u64, Box<[u8; PAGE_BYTES]>>);

/// A range of sectors in bytes.
fn bytes(sectors: &Range<u64>) -> Range<u64> {
    sectors.start * SECTOR_BYTES as u64..sectors.end * SECTOR_BYTES as u64
}

impl Sectors {
    fn read_all(&self, sectors: Range<u64>) -> Vec<u8> {
        sectors.flat_map(|at| self.read(at)).copied().collect()
    }

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

    /// Returns the sectors `part`, counted from the first of the payload.
    pub(crate) fn part(&self, part: Range<u64>) -> Payload {
        match self {
            Payload::Data(data) => {
                let bytes = bytes(&part);
                Payload::Data(data[bytes.start as usize..bytes.end as usize].to_vec())
            }
            Payload::Zeroes { .. } => Payload::Zeroes {
                sectors: part.end - part.start,
            },
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
pub(crate) struct Contents {
    /// What reads return, where the drive has no faults.
    visible: Sectors,
    faults: FaultyData,
    /// Flushed data, which survives a power cut.
    durable: Sectors,
    /// Its bits that have flipped.
    durable_flipped: FlippedBits,
    /// Acknowledged writes that are not in `durable`, in order.
    acknowledged: VecDeque<Acknowledged>,
    /// Number of acknowledged writes before these.
    before: u64,
}

impl Contents {
    /// Returns those of a drive that nothing was written to, with these faults.
    pub(crate) fn new(faults: &Faults) -> Contents {
        Contents {
            visible: Sectors::default(),
            faults: FaultyData::new(faults),
            durable: Sectors::default(),
            durable_flipped: FlippedBits::default(),
            acknowledged: VecDeque::new(),
            before: 0,
        }
    }

    /// Appends what a read with this fault returns.
    pub(crate) fn read(
        &mut self,
        sectors: Range<u64>,
        fault: Option<DataFault>,
        out: &mut Vec<u8>,
    ) {
        if let Some(DataFault::BitRot { sector, bit }) = fault {
            self.durable_flipped.flip(sector, bit);
        }
        let start = bytes(&sectors).start;
        let source = FaultyData::source(fault, start) / SECTOR_BYTES as u64;
        let sectors = sectors.end - sectors.start;
        let mut data = self.visible.read_all(source..source + sectors);
        self.faults.read(fault, start, &mut data);
        out.append(&mut data);
    }

    /// Records an acknowledged write with this fault.
    pub(crate) fn acknowledge(
        &mut self,
        start: u64,
        payload: Payload,
        fault: Option<DataFault>,
        is_durable: bool,
    ) {
        let range = bytes(&(start..start + payload.sectors()));
        let (landed, place) = FaultyData::landing(fault, range.start, range.end - range.start);
        let landed = landed.end / SECTOR_BYTES as u64;
        let payload = match landed == payload.sectors() {
            true => payload,
            false => payload.part(0..landed),
        };
        let (start, sectors) = (place / SECTOR_BYTES as u64, payload.sectors());
        let written = start..start + sectors;
        let old = match self.faults.needs_old() {
            true => self.visible.read_all(written.clone()),
            false => Vec::new(),
        };
        self.faults.replace(place, &old, bytes(&written));
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
            let sectors = write.payload.sectors();
            self.put_durable(&write, 0..sectors);
        }
        self.before += 1;
    }

    fn put_durable(&mut self, write: &Acknowledged, part: Range<u64>) {
        let written = write.start + part.start..write.start + part.end;
        self.durable_flipped.mend(bytes(&written));
        write.payload.put(&mut self.durable, write.start, part);
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
        let acknowledged = core::mem::take(&mut self.acknowledged);
        self.before += acknowledged.len() as u64;
        for write in acknowledged.into_iter().chain(in_flight) {
            let sectors = write.payload.sectors();
            let fate = match write.is_durable {
                true => WriteFate::Kept,
                false => cut.fate(chance.next_u64()),
            };
            if fate == WriteFate::Lost {
                continue;
            }
            let is_torn = fate == WriteFate::Torn;
            for block in (0..sectors).step_by(block_sectors as usize) {
                if !is_torn || chance.next_u64().is_multiple_of(2) {
                    let part = block..(block + block_sectors).min(sectors);
                    self.put_durable(&write, part);
                }
            }
        }
        self.visible.0.clone_from(&self.durable.0);
        self.faults.restart(self.durable_flipped.clone());
    }
}
