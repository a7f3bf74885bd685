//! Bios: what file systems send to the block layer, and how one is filled folio by
//! folio (`bio_add_folio`).

use blklab_blk::{BioFlags, Op, Sector};

use crate::PAGE_BYTES;
use crate::page_cache::FolioId;

/// Segments that a bio holds at most (`BIO_MAX_VECS`).
const SEGMENTS_MAX: u32 = 256;

/// What a bio of single pages holds at most, in bytes.
pub(crate) const BIO_MAX_BYTES: u64 = SEGMENTS_MAX as u64 * PAGE_BYTES;

/// Identifies a bio in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BioId(pub u32);

/// A bio on its way to the block layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bio {
    /// The operation.
    pub op: Op,
    /// Its `REQ_*` flags.
    pub flags: BioFlags,
    /// The first sector.
    pub sector: Sector,
    /// The length in sectors.
    pub size_sectors: u32,
}

impl Bio {
    /// A bio of data from `sector` on.
    pub(crate) const fn data(op: Op, flags: BioFlags, sector: u64, bytes: u64) -> Bio {
        Bio {
            op,
            flags,
            sector: Sector(sector),
            size_sectors: bytes.div_ceil(512) as u32,
        }
    }

    /// The sector after its last one.
    pub const fn end(&self) -> u64 {
        self.sector.0 + self.size_sectors as u64
    }
}

/// A bio that is still being filled.
#[derive(Debug, Default)]
pub(crate) struct BioBuilder {
    /// First sector and length in bytes; `None` while it is empty.
    range: Option<(u64, u64)>,
    segments: u32,
    /// The page frame after its last one, where frames are known.
    next_frame: Option<u64>,
    folios: Vec<FolioId>,
}

impl BioBuilder {
    /// The folio that was added last.
    pub(crate) fn last_folio(&self) -> Option<FolioId> {
        self.folios.last().copied()
    }

    /// Whether data in this page frame extends the last segment.
    pub(crate) fn extends_segment(&self, frame: Option<u64>) -> bool {
        frame.is_some() && frame == self.next_frame
    }

    /// Whether the bio must be sent before data at `sector` can be added: the data does
    /// not follow it on the device, or needs a segment more than a bio holds.
    pub(crate) fn must_send_before(&self, sector: u64, extends_segment: bool) -> bool {
        self.range.is_some_and(|(first, bytes)| {
            let is_full = self.segments >= SEGMENTS_MAX && !extends_segment;
            first + bytes / 512 != sector || is_full
        })
    }

    /// Adds data that lies at `sector`. `next_frame` is the page frame after it.
    pub(crate) fn add(
        &mut self,
        sector: u64,
        bytes: u64,
        extends_segment: bool,
        next_frame: Option<u64>,
    ) {
        self.segments += u32::from(self.range.is_none() || !extends_segment);
        let (first, bytes_before) = self.range.unwrap_or((sector, 0));
        self.range = Some((first, bytes_before + bytes));
        self.next_frame = next_frame;
    }

    /// The end of the bio concerns this folio. `new_list` gives memory for the first one.
    pub(crate) fn add_folio(&mut self, folio: FolioId, new_list: impl FnOnce() -> Vec<FolioId>) {
        if self.folios.capacity() == 0 {
            self.folios = new_list();
        }
        self.folios.push(folio);
    }

    /// Takes the bio with its folios, if it has any data; the builder is empty then.
    pub(crate) fn take(&mut self, op: Op, flags: BioFlags) -> Option<(Bio, Vec<FolioId>)> {
        let (sector, bytes) = self.range.take()?;
        let BioBuilder { folios, .. } = std::mem::take(self);
        Some((Bio::data(op, flags, sector, bytes), folios))
    }
}
