//! Runs the recorded calls on our page cache.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use blklab_fs::{Bio, BioId, Event, Extent, Host, InodeId, Memory, PAGE_BYTES, Policy, Vfs};

use super::calls::{RecordedRun, RunFile};
use super::layout::{buffer_address, buffer_page_bytes};
use super::program::Program;
use super::recorded::{PAGE_SECTORS, Recorded, RecordedStep, shown};
use super::shortage::Shortage;

/// Translations in the TLB of the emulated CPU that runs were recorded on, found by the
/// page's number (`CPU_TLB_DYN_DEFAULT_BITS` of QEMU). Linux on x86 does not empty it
/// when it clears an accessed bit (`ptep_clear_flush_young`).
const TLB_ENTRIES: usize = 256;

/// Our steps, each with the call that it was taken in.
pub(super) fn replay(
    run: &RecordedRun,
    steps: &[Recorded],
    text: &str,
    policy: Option<Policy>,
) -> Vec<(usize, Event)> {
    let files = &run.files;
    let buffer = buffer_address(text);
    let device = Device {
        files,
        steps,
        cursor: Cell::new(0),
        call: Cell::new(0),
        taken: RefCell::default(),
        under_way: RefCell::default(),
        frames: RefCell::default(),
        shortage: Shortage::new(steps),
        buffer_page_bytes: buffer_page_bytes(buffer),
        lowest_address: Cell::new(buffer.unwrap_or(0)),
        tlb: RefCell::new([None; TLB_ENTRIES]),
    };
    let vfs = match policy {
        Some(policy) => {
            // The recorded moments say when memory is short, so there is no limit.
            let max_pages = u64::MAX / 2;
            Vfs::new(device).limited(policy, Memory::Cgroup { max_pages })
        }
        None => Vfs::new(device),
    };
    for file in files {
        vfs.add_inode(file.inode);
    }
    let mapped_address = |bytes| vfs.host().mapped_address(bytes);
    let around = run.description.fault_around_pages();
    let mut program = Program::new(&vfs, files, around, &mapped_address);
    let mut context = Context::from_waker(Waker::noop());
    let short_counts = run.description.short_counts();
    for (call, line) in run.calls.iter().zip(1..) {
        vfs.host().begin(&vfs, line);
        program.buffer_bytes = short_counts.get(&line).copied().unwrap_or(u64::MAX);
        let mut running = pin!(program.call(call));
        while running.as_mut().poll(&mut context) == Poll::Pending {
            vfs.host().end_one(&vfs);
        }
    }
    vfs.host().taken.take()
}

/// The recorded device: bios end where requests did.
struct Device<'a> {
    files: &'a [RunFile],
    steps: &'a [Recorded],
    /// The next recorded step.
    cursor: Cell<usize>,
    /// The call that runs.
    call: Cell<usize>,
    taken: RefCell<Vec<(usize, Event)>>,
    /// Bios that have not ended, with the sectors of each that have not.
    under_way: RefCell<Vec<(BioId, Bio, u64)>>,
    /// The recorded page frames of pages that were added, by file and index.
    frames: RefCell<BTreeMap<(InodeId, u64), u64>>,
    shortage: Shortage,
    /// The size of the pages of the program's buffer.
    buffer_page_bytes: u64,
    /// Where the program's memory begins, of what is known of it.
    lowest_address: Cell<u64>,
    /// Pages whose translation the CPU has.
    tlb: RefCell<[Option<u64>; TLB_ENTRIES]>,
}

impl Device<'_> {
    /// The program begins a call: what ended before it has ended.
    fn begin(&self, vfs: &Vfs<Self>, line: usize) {
        let begins = |recorded: &Recorded| recorded.step == RecordedStep::Call(line);
        if let Some(ahead) = self.steps[self.cursor.get()..].iter().position(begins) {
            self.go_on(vfs, ahead + 1);
        }
        self.call.set(line);
        self.shortage.begin(vfs, line);
    }

    /// Takes the next recorded steps as given.
    fn go_on(&self, vfs: &Vfs<Self>, count: usize) {
        for _ in 0..count {
            let at = self.cursor.get();
            self.cursor.set(at + 1);
            match self.steps[at].step {
                RecordedStep::Ended { sector, sectors } => self.end(vfs, sector, sectors),
                RecordedStep::WrittenElsewhere { sector, sectors } => {
                    let end = sector.saturating_add(sectors);
                    let (first, last) =
                        (sector / PAGE_SECTORS, end.saturating_sub(1) / PAGE_SECTORS);
                    vfs.written_elsewhere(InodeId(0), first, last);
                }
                RecordedStep::Flushed => {
                    vfs.drain_lru_batches();
                    vfs.written_elsewhere(InodeId(0), 0, u64::MAX);
                }
                RecordedStep::Took(Event::Add { inode, index, .. }) => {
                    let frame = self.steps[at].frame;
                    let known = frame.map(|frame| ((inode, index), frame));
                    self.frames.borrow_mut().extend(known);
                }
                _ => {}
            }
        }
    }

    /// Requests of these sectors have ended.
    fn end(&self, vfs: &Vfs<Self>, sector: u64, sectors: u64) {
        let mut ended = Vec::new();
        self.under_way.borrow_mut().retain_mut(|(id, bio, left)| {
            let overlap = bio
                .end()
                .min(sector.saturating_add(sectors))
                .saturating_sub(bio.sector.0.max(sector));
            *left -= overlap.min(*left);
            if *left == 0 {
                ended.push(*id);
            }
            *left > 0
        });
        for id in ended {
            vfs.bio_ended(id);
        }
    }

    /// The program waits: the next recorded end comes, or, where none is recorded
    /// in this call, all that is under way ends.
    fn end_one(&self, vfs: &Vfs<Self>) {
        let rest = &self.steps[self.cursor.get()..];
        let in_call = rest
            .iter()
            .take_while(|r| !matches!(r.step, RecordedStep::Call(_)));
        let next = in_call
            .zip(0..)
            .find(|(r, _)| matches!(r.step, RecordedStep::Ended { .. }));
        if let Some((_, ahead)) = next {
            return self.go_on(vfs, ahead + 1);
        }
        let all = self.under_way.take();
        assert!(!all.is_empty(), "a call waits for nothing");
        for (id, ..) in all {
            vfs.bio_ended(id);
        }
    }

    /// What ended while the block layer still had the bio has ended when it returns.
    fn finish_submitting(&self, vfs: &Vfs<Self>) {
        let rest = &self.steps[self.cursor.get()..];
        let inside = rest.iter().take_while(|recorded| {
            matches!(
                recorded.step,
                RecordedStep::Submitting | RecordedStep::Ended { .. }
            )
        });
        let last =
            (inside.zip(1..)).filter(|(recorded, _)| recorded.step == RecordedStep::Submitting);
        let count = last.last().map_or(0, |(_, count)| count);
        self.go_on(vfs, count);
    }

    /// The address that the call of `mmap` answered with: the recorded one, or the one below
    /// all that is known of the program's memory.
    fn mapped_address(&self, bytes: u64) -> u64 {
        let rest = &self.steps[self.cursor.get()..];
        let answer = rest.iter().find_map(|recorded| match recorded.step {
            RecordedStep::Mapped { address } => Some(address),
            _ => None,
        });
        answer.unwrap_or_else(|| {
            let pages = bytes.div_ceil(PAGE_BYTES).saturating_mul(PAGE_BYTES);
            let lowest = self.lowest_address.get();
            self.lowest_address.set(lowest.saturating_sub(pages));
            self.lowest_address.get()
        })
    }
}

impl Host for Device<'_> {
    async fn submit(&self, vfs: &Vfs<Self>, id: BioId, bio: Bio) {
        let sectors = u64::from(bio.size_sectors);
        self.under_way.borrow_mut().push((id, bio, sectors));
        let flags = shown(bio.flags);
        self.trace(vfs, Event::Submit(Bio { flags, ..bio }));
    }

    async fn extent(&self, inode: InodeId, byte: u64, _bytes: u64) -> Extent {
        self.files[inode.0 as usize].extent(byte)
    }

    fn frame(&self, inode: InodeId, index: u64) -> Option<u64> {
        self.frames.borrow().get(&(inode, index)).copied()
    }

    fn walks_page_table(&self, page: u64) -> bool {
        let entry = &mut self.tlb.borrow_mut()[page as usize % TLB_ENTRIES];
        entry.replace(page) != Some(page)
    }

    fn buffer_page_bytes(&self) -> u64 {
        self.buffer_page_bytes
    }

    fn other_pages(&self) -> u64 {
        self.shortage.other_pages(self.call.get())
    }

    /// Notes the step. Where the kernel took the same one in this call, what it had
    /// seen end before that has ended.
    fn trace(&self, vfs: &Vfs<Self>, event: Event) {
        self.taken.borrow_mut().push((self.call.get(), event));
        self.shortage.took(&event);
        let rest = &self.steps[self.cursor.get()..];
        let in_call = rest
            .iter()
            .take_while(|r| !matches!(r.step, RecordedStep::Call(_)));
        let same = in_call
            .zip(0..)
            .find(|(r, _)| r.step == RecordedStep::Took(event));
        if let Some((_, ahead)) = same {
            self.go_on(vfs, ahead + 1);
            if let Event::Submit(_) = event {
                self.finish_submitting(vfs);
            }
        }
    }
}
