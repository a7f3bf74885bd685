//! A sparse memory: what was never written takes no space.

use std::ffi::OsStr;

use blklab_blk::IoStatus;
use blklab_nbd::Extent;

use super::{
    Backend, BackendConfig, BackendInfo, BackendRequest, BackendType, Completed, HOLE, Operation,
    give_zeroes, push_extent, size_bytes,
};

pub(super) const TYPE: BackendType = BackendType {
    name: "memory",
    value_name: "SIZE",
    help: "Keep the data in memory, as much as was written",
    plural: "memory",
    options: &[],
    configure: |value: &OsStr, _| Ok(memory(size_bytes(value)?)),
};

/// A back end of this size in memory.
pub fn memory(size_bytes: u64) -> BackendConfig {
    BackendConfig::new(move |options| {
        Ok(MemoryBackend {
            info: BackendInfo::of_memory(size_bytes, options),
            memory: Memory::new(size_bytes),
        })
    })
}

struct MemoryBackend {
    info: BackendInfo,
    memory: Memory,
}

impl Backend for MemoryBackend {
    fn info(&self) -> BackendInfo {
        self.info
    }

    fn submit(&mut self, mut request: BackendRequest, completed: &mut Vec<Completed>) {
        for segment in &request.segments {
            let (offset, length) = (segment.offset, segment.length);
            match request.operation {
                Operation::Write => self.memory.write(offset, &segment.data),
                Operation::Discard => self.memory.punch(offset, length),
                Operation::Zero { may_punch, .. } if may_punch => self.memory.punch(offset, length),
                Operation::Zero { .. } => self.memory.zero(offset, length),
                Operation::Extents { max } => {
                    let extents = &mut request.extents;
                    self.memory.extents(offset, length as u32, max, extents);
                }
                // Reads are carried out in place.
                Operation::Read | Operation::Flush => {}
            }
        }
        completed.push(Completed {
            request,
            status: IoStatus::Ok,
        });
    }

    fn read_in_place(&self, offset: u64, length: u64, take: &mut dyn FnMut(&[u8])) {
        self.memory.read(offset, length, take);
    }

    fn write_in_place(&mut self, offset: u64, length: u64, fill: &mut dyn FnMut(&mut [u8])) {
        self.memory.fill(offset, length, fill);
    }

    fn is_hole(&self, offset: u64, length: u64) -> bool {
        self.memory.is_hole(offset, length)
    }

    fn memory_bytes(&self) -> Option<u64> {
        Some(self.memory.used_bytes())
    }
}

/// Memory comes and goes in pieces of this size.
const CHUNK_BYTES: usize = 64 << 10;
/// Chunks of one table.
const TABLE_CHUNKS: usize = 4096;
const TABLE_BYTES: u64 = (CHUNK_BYTES * TABLE_CHUNKS) as u64;

type Chunk = Box<[u8]>;
type Table = Box<[Option<Chunk>]>;

/// Two levels of tables, so that a large memory costs little until it is used.
#[derive(Debug)]
struct Memory {
    tables: Vec<Option<Table>>,
    chunks: u64,
}

/// A piece of a range that lies in one chunk.
struct Piece {
    table: usize,
    chunk: usize,
    start: usize,
    len: usize,
}

/// The pieces of a range.
fn pieces(offset: u64, length: u64) -> impl Iterator<Item = Piece> {
    let end = offset + length;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let in_table = (at % TABLE_BYTES) as usize;
        let start = in_table % CHUNK_BYTES;
        let len = (CHUNK_BYTES - start).min((end - at) as usize);
        let piece = Piece {
            table: (at / TABLE_BYTES) as usize,
            chunk: in_table / CHUNK_BYTES,
            start,
            len,
        };
        at += len as u64;
        Some(piece)
    })
}

impl Memory {
    /// An empty memory of this size.
    fn new(size_bytes: u64) -> Memory {
        let tables = size_bytes.div_ceil(TABLE_BYTES) as usize;
        Memory {
            tables: (0..tables).map(|_| None).collect(),
            chunks: 0,
        }
    }

    /// Bytes that it takes.
    fn used_bytes(&self) -> u64 {
        self.chunks * CHUNK_BYTES as u64
    }

    fn chunk(&self, piece: &Piece) -> Option<&Chunk> {
        self.tables[piece.table].as_ref()?[piece.chunk].as_ref()
    }

    fn chunk_mut(&mut self, piece: &Piece) -> &mut Chunk {
        let table = self.tables[piece.table]
            .get_or_insert_with(|| (0..TABLE_CHUNKS).map(|_| None).collect());
        let chunks = &mut self.chunks;
        table[piece.chunk].get_or_insert_with(|| {
            *chunks += 1;
            vec![0; CHUNK_BYTES].into_boxed_slice()
        })
    }

    /// Gives what a range holds to `take`.
    fn read(&self, offset: u64, length: u64, take: &mut dyn FnMut(&[u8])) {
        for piece in pieces(offset, length) {
            match self.chunk(&piece) {
                Some(chunk) => take(&chunk[piece.start..piece.start + piece.len]),
                None => give_zeroes(piece.len as u64, take),
            }
        }
    }

    /// Has `fill` put data into a range.
    fn fill(&mut self, offset: u64, length: u64, fill: &mut dyn FnMut(&mut [u8])) {
        for piece in pieces(offset, length) {
            fill(&mut self.chunk_mut(&piece)[piece.start..piece.start + piece.len]);
        }
    }

    /// Stores data.
    fn write(&mut self, offset: u64, mut data: &[u8]) {
        self.fill(offset, data.len() as u64, &mut |room| {
            let (now, later) = data.split_at(room.len());
            room.copy_from_slice(now);
            data = later;
        });
    }

    /// Makes a range read as zeroes; whole chunks are given back.
    fn punch(&mut self, offset: u64, length: u64) {
        for piece in pieces(offset, length) {
            let Some(table) = &mut self.tables[piece.table] else {
                continue;
            };
            if piece.len == CHUNK_BYTES {
                self.chunks -= u64::from(table[piece.chunk].take().is_some());
            } else if let Some(chunk) = &mut table[piece.chunk] {
                chunk[piece.start..piece.start + piece.len].fill(0);
            }
        }
    }

    /// Makes a range read as zeroes and keeps its space.
    fn zero(&mut self, offset: u64, length: u64) {
        for piece in pieces(offset, length) {
            self.chunk_mut(&piece)[piece.start..piece.start + piece.len].fill(0);
        }
    }

    /// Whether nothing of a range was ever written.
    fn is_hole(&self, offset: u64, length: u64) -> bool {
        pieces(offset, length).all(|piece| self.chunk(&piece).is_none())
    }

    fn extents(&self, offset: u64, length: u32, max: usize, out: &mut Vec<Extent>) {
        for piece in pieces(offset, u64::from(length)) {
            let state = match self.chunk(&piece) {
                Some(_) => 0,
                None => HOLE,
            };
            if out.len() == max && out.last().is_some_and(|last| last.state != state) {
                return;
            }
            push_extent(out, piece.len as u32, state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Change {
        Write(u8),
        Punch,
        Zero,
    }

    proptest! {
        /// Against an array of bytes that is as large as the memory.
        #[test]
        fn it_is_an_array_of_bytes(
            changes in proptest::collection::vec(
                (0u64..400_000, 0u64..150_000, prop_oneof![
                    any::<u8>().prop_map(Change::Write), Just(Change::Punch), Just(Change::Zero)
                ]),
                0..20),
        ) {
            let size = 400_000u64;
            let mut memory = Memory::new(size);
            let mut model = vec![0u8; size as usize];
            for (offset, length, change) in changes {
                let length = length.min(size - offset);
                let range = offset as usize..(offset + length) as usize;
                match change {
                    Change::Write(byte) => {
                        let data: Vec<u8> = (0..length).map(|i| byte.wrapping_add(i as u8)).collect();
                        memory.write(offset, &data);
                        model[range].copy_from_slice(&data);
                    }
                    Change::Punch => {
                        memory.punch(offset, length);
                        model[range].fill(0);
                    }
                    Change::Zero => {
                        memory.zero(offset, length);
                        model[range].fill(0);
                        prop_assert!(length == 0 || !memory.is_hole(offset, length));
                    }
                }
            }
            let mut out = Vec::new();
            memory.read(0, size, &mut |piece| out.extend_from_slice(piece));
            prop_assert!(out == model);
            let mut extents = Vec::new();
            memory.extents(0, size as u32, usize::MAX, &mut extents);
            let mut at = 0usize;
            for extent in &extents {
                let range = at..at + extent.bytes as usize;
                prop_assert!(extent.state == 0 || model[range].iter().all(|&b| b == 0));
                at += extent.bytes as usize;
            }
            prop_assert_eq!(at, size as usize);
            prop_assert!(extents.windows(2).all(|w| w[0].state != w[1].state));
            let used = (0..size).step_by(CHUNK_BYTES).filter(|&o| !memory.is_hole(o, 1)).count();
            prop_assert_eq!(memory.used_bytes(), (used * CHUNK_BYTES) as u64);
        }
    }
}
