//! Another back end, with what a drive's faults do to its data. Where a write lands is as the
//! fault has it; everything else is in what clients read, and the back end below keeps what it
//! was given.

use std::os::fd::BorrowedFd;

use blklab_blk::{IoStatus, SECTOR_SIZE};
use blklab_device::{DataFault, Faults, FaultyData};
use slab::Slab;

use super::{
    Backend, BackendInfo, BackendRequest, Buffer, Buffers, Completed, Operation, Owner, PowerCuts,
    range_of, read_from, sectors_of,
};

/// A back end whose data has faults.
pub(crate) struct FaultyBackend {
    inner: Box<dyn Backend>,
    data: FaultyData,
    /// In the back end below, by their numbers.
    inner_ios: Slab<InnerIo>,
    buffers: Buffers,
    completed: Vec<Completed>,
}

/// What the back end below does for a request.
enum InnerIo {
    /// It reads for a request: where its segments begin, and what is wrong with each.
    Read {
        owner: Owner,
        parts: Vec<(u64, Option<DataFault>)>,
    },
    /// It reads what this write replaces.
    Replace { write: BackendRequest },
}

impl FaultyBackend {
    pub(crate) fn new(inner: Box<dyn Backend>, faults: &Faults) -> FaultyBackend {
        FaultyBackend {
            inner,
            data: FaultyData::new(faults),
            inner_ios: Slab::new(),
            buffers: Buffers::default(),
            completed: Vec::new(),
        }
    }

    fn read(&mut self, mut request: BackendRequest) {
        let first = range_of(&request).start / SECTOR_SIZE;
        let mut parts = Vec::new();
        for segment in &mut request.segments {
            let start = segment.offset;
            let sectors = start / SECTOR_SIZE..(start + segment.length).div_ceil(SECTOR_SIZE);
            let fault = request
                .fault
                .and_then(|fault| fault.of_part(first, sectors));
            parts.push((start, fault));
            segment.offset = FaultyData::source(fault, start);
        }
        let owner = request.owner;
        self.read_below(InnerIo::Read { owner, parts }, request);
    }

    /// Has the back end below read.
    fn read_below(&mut self, of: InnerIo, mut request: BackendRequest) {
        let number = self.inner_ios.insert(of);
        request.owner = Owner::InnerIo(number as u32);
        read_from(&mut *self.inner, request, &mut self.completed);
    }

    fn write(&mut self, mut write: BackendRequest) {
        land(&mut write);
        let replaced = sectors_of(&write, self.inner.info().size_bytes);
        if replaced.is_empty() {
            return self.completed.push(Completed {
                request: write,
                status: IoStatus::Ok,
            });
        }
        if !self.data.needs_old() {
            return self.replace(write, &[]);
        }
        let old = self.buffers.get((replaced.end - replaced.start) as usize);
        let read = BackendRequest::transfer(Operation::Read, replaced.start, old);
        self.read_below(InnerIo::Replace { write }, read);
    }

    /// Has the back end below write over data, which is `old` where that is needed.
    fn replace(&mut self, write: BackendRequest, old: &[u8]) {
        let written = range_of(&write);
        let first = written.start / SECTOR_SIZE * SECTOR_SIZE;
        self.data.replace(first, old, written);
        self.inner.submit(write, &mut self.completed);
    }

    /// Goes on with what the back end below has completed.
    fn proceed(&mut self, ended: &mut Vec<Completed>) {
        while !self.completed.is_empty() {
            for done in std::mem::take(&mut self.completed) {
                match done.request.owner {
                    Owner::InnerIo(number) => self.inner_io_ended(number, done, ended),
                    _ => ended.push(done),
                }
            }
        }
    }

    fn inner_io_ended(&mut self, number: u32, mut done: Completed, ended: &mut Vec<Completed>) {
        match self.inner_ios.remove(number as usize) {
            InnerIo::Read { owner, parts } => {
                for (segment, (start, fault)) in done.request.segments.iter_mut().zip(parts) {
                    segment.offset = start;
                    self.data.read(fault, start, &mut segment.data);
                }
                done.request.owner = owner;
                ended.push(done);
            }
            InnerIo::Replace { write } if done.status == IoStatus::Ok => {
                let old = done.request.segments.pop();
                let old = old.map_or(Buffer::empty(), |segment| segment.data);
                self.replace(write, &old);
                self.buffers.put(old);
            }
            InnerIo::Replace { write } => ended.push(Completed {
                request: write,
                status: done.status,
            }),
        }
    }

    /// A fault whose other place the back end has: the drive may be larger.
    fn within(&self, request: &BackendRequest) -> Option<DataFault> {
        let Some(DataFault::Misdirected { sector }) = request.fault else {
            return request.fault;
        };
        let info = self.inner.info();
        let range = range_of(request);
        let span = range.end.div_ceil(SECTOR_SIZE) - range.start / SECTOR_SIZE;
        let unit = u64::from(info.block_sizes.minimum).div_ceil(SECTOR_SIZE);
        let places = (info.size_bytes / SECTOR_SIZE).saturating_sub(span) / unit + 1;
        let sector = sector / unit % places * unit;
        Some(DataFault::Misdirected { sector })
    }
}

/// Has a write go where its fault has it land.
fn land(write: &mut BackendRequest) {
    let range = range_of(write);
    let length = range.end - range.start;
    let (landed, place) = FaultyData::landing(write.fault, range.start, length);
    for segment in &mut write.segments {
        let at = segment.offset - range.start;
        segment.offset = place + at;
        segment.length = landed.end.saturating_sub(at).min(segment.length);
        segment.data.truncate(segment.length as usize);
    }
    write.segments.retain(|segment| segment.length > 0);
}

impl Backend for FaultyBackend {
    fn info(&self) -> BackendInfo {
        BackendInfo {
            in_place: false,
            ..self.inner.info()
        }
    }

    fn submit(&mut self, mut request: BackendRequest, completed: &mut Vec<Completed>) {
        request.fault = self.within(&request);
        match request.operation {
            Operation::Read => self.read(request),
            Operation::Write | Operation::Discard | Operation::Zero { .. } => self.write(request),
            Operation::Flush | Operation::Extents { .. } => {
                self.inner.submit(request, &mut self.completed);
            }
        }
        self.proceed(completed);
    }

    fn kick(&mut self) {
        self.inner.kick();
    }

    fn events(&self) -> Vec<BorrowedFd<'_>> {
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

    fn cut_power(&mut self) -> Result<(), String> {
        self.inner.cut_power()
    }

    fn power_cuts(&self) -> Option<PowerCuts> {
        self.inner.power_cuts()
    }

    fn memory_bytes(&self) -> Option<u64> {
        self.inner.memory_bytes()
    }

    fn close(&mut self) -> Result<(), String> {
        self.inner.close()
    }
}
