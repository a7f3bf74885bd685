//! Another back end, whose power can be cut: writes that finished and were not flushed, and
//! those under way, are then lost, torn or kept as the seed has it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use blklab_blk::{IoStatus, SECTOR_SIZE};
use blklab_device::{PowerCut, WriteFate};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};
use slab::Slab;

use super::{
    Backend, BackendInfo, BackendRequest, Buffers, Completed, Operation, Owner, read_from,
    sectors_of,
};

/// What a drive's cache holds at most; it writes older data back by itself.
const CACHE_BYTES: u64 = 64 << 20;

/// A back end whose power can be cut.
pub(crate) struct PowerBackend {
    inner: Box<dyn Backend>,
    /// Whether finished writes are lost with the power until they are flushed.
    is_volatile: bool,
    chance: SplitMix64,
    /// Writes that are not known to be durable, and what they replaced, in the order in which
    /// they began.
    unflushed: VecDeque<Unflushed>,
    unflushed_bytes: u64,
    /// Writes that began, and writes that ended.
    begun: u64,
    ended: u64,
    /// What the back end below does.
    inner_ios: Slab<InnerIo>,
    buffers: Buffers,
    completed: Vec<Completed>,
    power: Power,
    cuts: PowerCuts,
}

/// What power cuts did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PowerCuts {
    pub(crate) cuts: u64,
    pub(crate) lost_writes: u64,
    pub(crate) torn_writes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Power {
    On,
    /// The back end below finishes what it had begun.
    Failing,
    /// The data is made what the drive is left with.
    Restoring,
}

struct Unflushed {
    number: u64,
    /// The first byte of its first sector.
    offset: u64,
    /// What its sectors held before; empty where that is not kept.
    old: Vec<u8>,
    /// Its number among the writes that ended.
    ended: Option<u64>,
    is_durable: bool,
}

enum InnerIo {
    /// It reads what this write replaces.
    Old {
        write: BackendRequest,
    },
    /// It writes.
    Write {
        owner: Owner,
        number: u64,
        fua: bool,
    },
    /// It makes durable what ended before the flush began.
    Flush {
        owner: Owner,
        ended: u64,
    },
    Other {
        owner: Owner,
    },
    /// It makes the data what a power cut leaves.
    Restore,
}

impl PowerBackend {
    pub(crate) fn new(inner: Box<dyn Backend>, is_volatile: bool, seed: u64) -> PowerBackend {
        PowerBackend {
            inner,
            is_volatile,
            chance: SplitMix64::seed_from_u64(seed),
            unflushed: VecDeque::new(),
            unflushed_bytes: 0,
            begun: 0,
            ended: 0,
            inner_ios: Slab::new(),
            buffers: Buffers::default(),
            completed: Vec::new(),
            power: Power::On,
            cuts: PowerCuts::default(),
        }
    }

    /// Has the back end below do a request.
    fn submit_below(&mut self, of: InnerIo, mut request: BackendRequest) {
        let number = self.inner_ios.insert(of);
        request.owner = Owner::InnerIo(number as u32);
        match request.operation {
            Operation::Read => read_from(&mut *self.inner, request, &mut self.completed),
            _ => self.inner.submit(request, &mut self.completed),
        }
    }

    /// Has what a write replaces read first.
    fn read_old(&mut self, write: BackendRequest) {
        let replaced = sectors_of(&write, self.inner.info().size_bytes);
        let old = self.buffers.get((replaced.end - replaced.start) as usize);
        let read = BackendRequest::transfer(Operation::Read, replaced.start, old);
        self.submit_below(InnerIo::Old { write }, read);
    }

    /// Writes over sectors that held `old`.
    fn write(&mut self, write: BackendRequest, old: Vec<u8>) {
        let number = self.begun;
        self.begun += 1;
        self.unflushed_bytes += old.len() as u64;
        self.unflushed.push_back(Unflushed {
            number,
            offset: sectors_of(&write, self.inner.info().size_bytes).start,
            old,
            ended: None,
            is_durable: false,
        });
        let (owner, fua) = (write.owner, write.fua);
        self.submit_below(InnerIo::Write { owner, number, fua }, write);
    }

    /// A write has ended.
    fn write_ended(&mut self, number: u64, is_durable: bool) {
        let first = self.unflushed.front().map_or(0, |write| write.number);
        let at = number.saturating_sub(first) as usize;
        if let Some(write) = self.unflushed.get_mut(at) {
            write.ended = Some(self.ended);
            write.is_durable = is_durable;
        }
        self.ended += 1;
        self.forget_durable();
    }

    /// Forgets the oldest writes as far as they are durable: a later one that is durable has to
    /// be known while an earlier one of the same place may be lost.
    fn forget_durable(&mut self) {
        while let Some(write) = self.unflushed.front() {
            let is_old = self.unflushed_bytes > CACHE_BYTES && write.ended.is_some();
            if !write.is_durable && !is_old {
                break;
            }
            self.unflushed_bytes -= write.old.len() as u64;
            self.unflushed.pop_front();
        }
    }

    /// Goes on with what the back end below has completed.
    fn proceed(&mut self, completed: &mut Vec<Completed>) {
        loop {
            for done in std::mem::take(&mut self.completed) {
                match done.request.owner {
                    Owner::InnerIo(number) => self.inner_io_ended(number, done, completed),
                    _ => completed.push(done),
                }
            }
            if self.completed.is_empty() && !(self.inner_ios.is_empty() && self.power_proceeds()) {
                break;
            }
        }
    }

    fn inner_io_ended(&mut self, number: u32, mut done: Completed, completed: &mut Vec<Completed>) {
        let is_on = self.power == Power::On;
        let owner = match self.inner_ios.remove(number as usize) {
            InnerIo::Old { write } if is_on && done.status == IoStatus::Ok => {
                let old = done.request.segments.pop().map(|segment| segment.data);
                let old = old.unwrap_or_default();
                let bytes = old.to_vec();
                self.buffers.put(old);
                return self.write(write, bytes);
            }
            InnerIo::Old { write } => {
                done.request = write;
                done.request.owner
            }
            InnerIo::Write { owner, number, fua } => {
                let is_durable = is_on && (fua || !self.is_volatile);
                self.write_ended(number, is_durable);
                owner
            }
            InnerIo::Flush { owner, ended } => {
                if is_on && done.status == IoStatus::Ok {
                    let writes = self.unflushed.iter_mut();
                    let reached = writes.filter(|write| write.ended.is_some_and(|at| at < ended));
                    reached.for_each(|write| write.is_durable = true);
                    self.forget_durable();
                }
                owner
            }
            InnerIo::Other { owner } => owner,
            InnerIo::Restore => return,
        };
        done.request.owner = owner;
        if !is_on {
            done.status = IoStatus::IoError;
        }
        completed.push(done);
    }

    /// Goes on with a power cut once the back end below has nothing to do. Returns whether it
    /// has then.
    fn power_proceeds(&mut self) -> bool {
        match self.power {
            Power::On => false,
            Power::Failing => {
                self.power = Power::Restoring;
                self.restore();
                true
            }
            Power::Restoring => {
                self.power = Power::On;
                false
            }
        }
    }

    /// Makes the data what the drive is left with: from the last write to the first, sectors of
    /// those that are lost get back what they held, unless a later write of them is kept.
    fn restore(&mut self) {
        let cut = PowerCut::default();
        let (mut kept, mut restored) = (BTreeSet::new(), BTreeMap::new());
        self.unflushed_bytes = 0;
        for write in std::mem::take(&mut self.unflushed).into_iter().rev() {
            let random = self.chance.next_u64();
            let fate = match write.is_durable || write.old.is_empty() {
                true => WriteFate::Kept,
                false => cut.fate(random),
            };
            self.cuts.lost_writes += u64::from(fate == WriteFate::Lost);
            self.cuts.torn_writes += u64::from(fate == WriteFate::Torn);
            for (at, old) in write.old.chunks(SECTOR_SIZE as usize).enumerate() {
                let sector = write.offset / SECTOR_SIZE + at as u64;
                let lands = match fate {
                    WriteFate::Lost => false,
                    WriteFate::Torn => self.chance.next_u64().is_multiple_of(2),
                    WriteFate::Kept => true,
                };
                if lands {
                    kept.insert(sector);
                } else if !kept.contains(&sector) {
                    restored.insert(sector, old.to_vec());
                }
            }
        }
        for (sector, old) in restored {
            let mut data = self.buffers.get(old.len());
            data.copy_from_slice(&old);
            let write = BackendRequest::transfer(Operation::Write, sector * SECTOR_SIZE, data);
            self.submit_below(InnerIo::Restore, write);
        }
    }
}

impl Backend for PowerBackend {
    fn info(&self) -> BackendInfo {
        let info = self.inner.info();
        BackendInfo {
            in_place: false,
            write_cache: info.write_cache || self.is_volatile,
            ..info
        }
    }

    fn submit(&mut self, request: BackendRequest, completed: &mut Vec<Completed>) {
        if self.power != Power::On {
            let status = IoStatus::IoError;
            return completed.push(Completed { request, status });
        }
        let owner = request.owner;
        match request.operation {
            Operation::Write => self.read_old(request),
            // What they replace may be too much to keep: they are never lost.
            Operation::Discard | Operation::Zero { .. } => self.write(request, Vec::new()),
            Operation::Flush => {
                let ended = self.ended;
                self.submit_below(InnerIo::Flush { owner, ended }, request);
            }
            Operation::Read | Operation::Extents { .. } => {
                self.submit_below(InnerIo::Other { owner }, request);
            }
        }
        self.proceed(completed);
    }

    fn kick(&mut self) {
        self.inner.kick();
    }

    fn events(&self) -> Vec<std::os::fd::BorrowedFd<'_>> {
        self.inner.events()
    }

    fn reap(&mut self, completed: &mut Vec<Completed>) {
        self.inner.reap(&mut self.completed);
        self.proceed(completed);
        self.inner.kick();
    }

    fn prefetch(&self, offset: u64, length: u32) {
        self.inner.prefetch(offset, length);
    }

    fn memory_bytes(&self) -> Option<u64> {
        self.inner.memory_bytes()
    }

    fn cut_power(&mut self) -> Result<(), String> {
        if self.power == Power::On {
            self.power = Power::Failing;
            self.cuts.cuts += 1;
        }
        Ok(())
    }

    fn power_cuts(&self) -> Option<PowerCuts> {
        Some(self.cuts)
    }

    fn close(&mut self) -> Result<(), String> {
        self.inner.close()
    }
}
