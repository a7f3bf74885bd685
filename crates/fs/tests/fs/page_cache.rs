//! The page cache over a device that ends a bio only when it is told to.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use blklab_blk::Op;
use blklab_fs::write_back::Settings;
use blklab_fs::{
    Advice, BackingDevice, BegunRead, Bio, BioId, BufferCache, Buffers, DirectCall, Event, Extent,
    File, FsError, Host, Inode, InodeId, Memory, PAGE_BYTES, Policy, ReadPath, SparseDisk, Vfs,
    at_once,
};
use proptest::prelude::*;

const PAGES: u64 = 256;

/// A device on which a file lies from its first sector on, with a hole.
#[derive(Default)]
struct Device {
    under_way: RefCell<Vec<BioId>>,
    bios: RefCell<Vec<Bio>>,
    events: RefCell<Vec<Event>>,
    hole: Option<(u64, u64)>,
    /// Where bytes are is known without a wait.
    is_known: bool,
    /// The memory node of the CPU.
    node: Cell<u8>,
    wrote_remote: Cell<u64>,
}

impl Host for Device {
    async fn submit(&self, _vfs: &Vfs<Device>, id: BioId, bio: Bio) {
        self.under_way.borrow_mut().push(id);
        self.bios.borrow_mut().push(bio);
    }

    async fn extent(&self, _inode: InodeId, byte: u64, _bytes: u64) -> Extent {
        self.place(byte)
    }

    fn known_extent(&self, _inode: InodeId, byte: u64, _bytes: u64) -> Option<Extent> {
        self.is_known.then(|| self.place(byte))
    }

    fn node(&self) -> u8 {
        self.node.get()
    }

    fn wrote_remote_pages(&self, pages: u64) {
        self.wrote_remote.update(|wrote| wrote + pages);
    }

    fn trace(&self, _vfs: &Vfs<Device>, event: Event) {
        self.events.borrow_mut().push(event);
    }
}

impl Device {
    fn place(&self, byte: u64) -> Extent {
        let (hole, behind) = self.hole.unwrap_or((u64::MAX / 2, u64::MAX));
        let mapped = byte < hole || byte >= behind;
        let end = if byte < hole {
            hole
        } else if mapped {
            u64::MAX / 2
        } else {
            behind
        };
        Extent {
            sector: mapped.then_some(byte / 512),
            bytes: end - byte,
            boundary: false,
        }
    }
}

fn file_of(size_bytes: u64, is_device: bool) -> Inode {
    Inode {
        size_bytes,
        block_bytes: PAGE_BYTES,
        large_folios: false,
        read_path: ReadPath::Mpage,
        is_device,
        device: BackingDevice {
            ra_pages: 32,
            io_pages: 320,
        },
    }
}

fn vfs_with(device: Device) -> (Vfs<Device>, File) {
    let vfs = Vfs::new(device);
    let inode = vfs.add_inode(file_of(PAGES * PAGE_BYTES, false));
    let file = vfs.open(inode);
    (vfs, file)
}

/// Runs a call to its end; while it waits, the bio under way for longest ends.
fn run<T>(vfs: &Vfs<Device>, call: impl Future<Output = T>) -> T {
    run_with(vfs, call, Vfs::bio_ended)
}

/// Runs a call to its end; each bio that it waits for fails.
fn run_failing<T>(vfs: &Vfs<Device>, call: impl Future<Output = T>) -> T {
    run_with(vfs, call, Vfs::bio_failed)
}

/// Runs a call to its end; while it waits, `end` is told of the bio under way for longest.
fn run_with<T>(
    vfs: &Vfs<Device>,
    call: impl Future<Output = T>,
    end: impl Fn(&Vfs<Device>, BioId),
) -> T {
    let mut call = pin!(call);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(done) = call.as_mut().poll(&mut context) {
            return done;
        }
        let oldest = vfs.host().under_way.borrow_mut().remove(0);
        end(vfs, oldest);
    }
}

fn read_sectors(vfs: &Vfs<Device>) -> u64 {
    let bios = vfs.host().bios.borrow();
    let reads = bios.iter().filter(|bio| bio.op == Op::Read);
    reads.map(|bio| u64::from(bio.size_sectors)).sum()
}

#[test]
fn a_file_read_in_order_is_read_once_and_ahead() {
    let (vfs, file) = vfs_with(Device::default());
    for page in 0..PAGES {
        assert_eq!(
            run(&vfs, vfs.read(&file, page * PAGE_BYTES, PAGE_BYTES)),
            Ok(PAGE_BYTES)
        );
    }
    assert_eq!(read_sectors(&vfs), PAGES * 8);
    // 4, 8 and 16 pages, then windows of 32.
    assert_eq!(
        vfs.host().bios.borrow().len() as u64,
        3 + (PAGES - 28).div_ceil(32)
    );
    assert_eq!(run(&vfs, vfs.read(&file, PAGES * PAGE_BYTES, 1)), Ok(0));
}

/// Memory of two nodes with 20,000 pages each, of which 250 are at the low watermark and 300
/// at the high one.
fn vfs_of_two_nodes(policy: Policy) -> Vfs<Device> {
    let pages = 40_000;
    let vfs = Vfs::with_settings(Device::default(), Settings::with_memory(pages));
    vfs.limited(policy, Memory::Machine { pages, nodes: 2 })
}

/// The pages that were cached first, and that one order of use would evict, stay.
#[test]
fn a_node_reclaims_its_own_pages() {
    const FULL: u64 = 20_000 - 250;
    for policy in [Policy::ActiveInactive, Policy::Generations] {
        let vfs = vfs_of_two_nodes(policy);
        let files = [FULL, FULL, 1].map(|pages| {
            let inode = vfs.add_inode(file_of(pages * PAGE_BYTES, false));
            (vfs.open(inode), pages * PAGE_BYTES)
        });
        for ((file, bytes), node) in files.iter().zip([0, 1, 1]) {
            vfs.host().node.set(node);
            assert_eq!(run(&vfs, vfs.read(file, 0, *bytes)), Ok(*bytes));
        }
        let cached = || [0, 1].map(|number: usize| vfs.cached_pages(files[number].0.inode));
        assert_eq!(cached(), [FULL, FULL]);
        run(&vfs, vfs.kswapd(1));
        let [of_first, of_second] = cached();
        assert_eq!(of_first, FULL, "{policy:?}");
        assert!((FULL - 200..FULL - 49).contains(&of_second), "{of_second}");
        run(&vfs, vfs.kswapd(0));
        assert!(cached()[0] < FULL && cached()[1] == of_second);
    }
}

#[test]
fn dirty_pages_go_to_the_other_node_beyond_the_share_of_one() {
    let vfs = vfs_of_two_nodes(Policy::ActiveInactive);
    let pages = 5_000;
    let inode = vfs.add_inode(file_of(pages * PAGE_BYTES, false));
    let file = vfs.open(inode);
    let write = || run(&vfs, vfs.write(&file, 0, pages * PAGE_BYTES));
    assert_eq!(write(), Ok(pages * PAGE_BYTES));
    // A fifth of all but what is kept free, and the page that passes it.
    let share = (20_000 - 300) / 5 + 1;
    assert_eq!(vfs.host().wrote_remote.get(), pages - share);
    // Written pages are not dirty, but stay where they are.
    let bytes = pages * PAGE_BYTES;
    run(&vfs, vfs.write_range(inode, 0, bytes - 1, true));
    assert_eq!(write(), Ok(bytes));
    assert_eq!(vfs.host().wrote_remote.get(), 2 * (pages - share));
    run(&vfs, vfs.truncate(inode, 0));
    assert_eq!(write(), Ok(bytes));
    assert_eq!(vfs.host().wrote_remote.get(), 3 * (pages - share));
}

#[test]
fn a_page_whose_blocks_were_written_alone_is_dirty_until_write_back_finds_it_clean() {
    let vfs = Rc::new(Vfs::new(Device::default()));
    let device = vfs.add_inode(file_of(PAGES * PAGE_BYTES, true));
    let storage = SparseDisk::new(PAGES * PAGE_BYTES);
    let blocks = BufferCache::new(&vfs, device, storage).unwrap();
    run(&vfs, blocks.set_block_bytes(1024)).unwrap();
    for block in [4, 5] {
        blocks.mark_dirty(&blocks.zeroed(block).unwrap(), None);
    }
    run(&vfs, async {
        for block in [4, 5] {
            let buffer = blocks.bread(block).await?;
            blocks.sync_buffer(&buffer).await?;
        }
        Ok::<_, FsError>(())
    })
    .unwrap();
    let bios = || {
        let bios = vfs.host().bios.borrow();
        Vec::from_iter(bios.iter().map(|bio| (bio.sector.0, bio.size_sectors)))
    };
    assert_eq!(bios(), [(8, 2), (10, 2)]);
    assert_eq!(vfs.dirty_pages_now(), 1);
    run(&vfs, vfs.write_range(device, 0, u64::MAX / 2, true));
    assert_eq!(vfs.dirty_pages_now(), 0);
    assert_eq!(bios().len(), 2, "there was nothing to write");
}

#[test]
fn a_hole_costs_no_bio() {
    let hole = Some((8 * PAGE_BYTES, 200 * PAGE_BYTES));
    let (vfs, file) = vfs_with(Device {
        hole,
        ..Device::default()
    });
    assert_eq!(
        run(&vfs, vfs.read(&file, 100 * PAGE_BYTES, 65536)),
        Ok(65536)
    );
    assert_eq!(read_sectors(&vfs), 0);
}

#[test]
fn a_page_written_in_part_is_read_first() {
    let (vfs, file) = vfs_with(Device::default());
    assert_eq!(run(&vfs, vfs.write(&file, 100, 10)), Ok(10));
    assert_eq!(
        run(&vfs, vfs.write(&file, PAGE_BYTES, PAGE_BYTES)),
        Ok(PAGE_BYTES)
    );
    assert_eq!(read_sectors(&vfs), 8);
    run(&vfs, vfs.write_range(file.inode, 0, u64::MAX / 2, true));
    let bios = vfs.host().bios.borrow();
    let written = bios.iter().filter(|bio| bio.op == Op::Write);
    // The two pages are neighbours on the device, so they share a bio.
    let written: Vec<_> = written
        .map(|bio| (bio.sector.0, bio.size_sectors))
        .collect();
    assert_eq!(written, [(0, 16)]);
}

#[test]
fn a_direct_read_of_whole_sectors_may_pass_the_end_of_its_file() {
    let vfs = Vfs::new(Device::default());
    let inode = vfs.add_inode(file_of(5000, false));
    let file = vfs.open(inode);
    let read = |pos, bytes| {
        let call = DirectCall {
            pos,
            bytes,
            buffer_offset: 0,
            is_async: false,
        };
        run(&vfs, vfs.read_direct(&file, call))
    };
    assert_eq!(read(PAGE_BYTES, PAGE_BYTES), Ok(5000 - PAGE_BYTES));
    assert_eq!(read(8192, 512), Ok(0));
    assert_eq!(read(0, 5000), Err(FsError::NotAligned));
}

/// A read without a task: its bio, and the state of the cache after it.
#[test]
fn a_read_of_one_missing_page_is_the_same_without_a_task() {
    for is_random in [false, true] {
        let opened = || {
            let (vfs, file) = vfs_with(Device {
                is_known: true,
                ..Device::default()
            });
            if is_random {
                at_once(vfs.fadvise(&file, 0, 0, Advice::Random));
            }
            (vfs, file)
        };
        let ((with_task, file), (without, other)) = (opened(), opened());
        for page in [70, 9, 200, 9, 130, 255] {
            let pos = page * PAGE_BYTES + 512;
            assert_eq!(run(&with_task, with_task.read(&file, pos, 1024)), Ok(1024));
            let mut begun = without.begin_read(&other, pos, 1024);
            if let Some(BegunRead::Waits(id, bio)) = begun {
                without.host().bios.borrow_mut().push(bio);
                assert!(without.awaits_read(id));
                let again = without.begin_read(&other, pos, 1024);
                assert_eq!(again, None, "it is under way");
                without.bio_ended(id);
                begun = without.begin_read(&other, pos, 1024);
            }
            assert_eq!(begun, Some(BegunRead::Over(1024)));
            assert_eq!(without.counts(), with_task.counts(), "page {page}");
        }
        // The end of the batch is seen by tasks alone.
        let events = |vfs: &Vfs<Device>| {
            let events = vfs.host().events.borrow();
            let is_kept = |event: &&Event| !matches!(event, Event::GetPages { .. });
            events.iter().filter(is_kept).copied().collect::<Vec<_>>()
        };
        assert_eq!(events(&without), events(&with_task));
        assert_eq!(
            *without.host().bios.borrow(),
            *with_task.host().bios.borrow()
        );
        assert_eq!(without.begin_read(&other, 4000, 1024), None, "two pages");
        let first = without.begin_read(&other, 0, 1024);
        assert_eq!(first.is_some(), is_random, "else there is a window to it");
    }
}

#[test]
fn a_direct_write_drops_what_was_cached() {
    let (vfs, file) = vfs_with(Device::default());
    assert_eq!(run(&vfs, vfs.read(&file, 0, PAGE_BYTES)), Ok(PAGE_BYTES));
    assert_eq!(vfs.cached_pages(file.inode), 4);
    let call = DirectCall {
        pos: 0,
        bytes: PAGE_BYTES,
        buffer_offset: 0,
        is_async: false,
    };
    assert_eq!(run(&vfs, vfs.write_direct(&file, call)), Ok(PAGE_BYTES));
    assert_eq!(vfs.cached_pages(file.inode), 3);
    let call = DirectCall { pos: 100, ..call };
    assert_eq!(
        run(&vfs, vfs.write_direct(&file, call)),
        Err(FsError::NotAligned)
    );
}

#[test]
fn a_page_that_is_read_during_a_direct_write_is_dropped_after_it() {
    for (is_device, is_async, left) in [(false, true, 0), (true, false, 0), (true, true, 1)] {
        let vfs = Vfs::new(Device::default());
        let inode = vfs.add_inode(file_of(PAGE_BYTES, is_device));
        let file = vfs.open(inode);
        let call = DirectCall {
            pos: 0,
            bytes: PAGE_BYTES,
            buffer_offset: 0,
            is_async,
        };
        let mut write = pin!(vfs.write_direct(&file, call));
        let mut context = Context::from_waker(Waker::noop());
        assert!(write.as_mut().poll(&mut context).is_pending());
        let written = vfs.host().under_way.borrow_mut().remove(0);
        assert_eq!(run(&vfs, vfs.read(&file, 0, 512)), Ok(512));
        assert_eq!(vfs.cached_pages(inode), 1);
        vfs.bio_ended(written);
        let done = write.as_mut().poll(&mut context);
        assert_eq!(done, Poll::Ready(Ok(PAGE_BYTES)));
        assert_eq!(vfs.cached_pages(inode), left, "{is_device} {is_async}");
    }
}

#[derive(Clone, Debug)]
enum Call {
    Read(u64, u64),
    Write(u64, u64),
    Advise(u64, u64, Advice),
    Direct(u64, u64),
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let pos = 0..PAGES * PAGE_BYTES;
    let bytes = 1..200_000_u64;
    let advice = prop::sample::select(vec![
        Advice::Normal,
        Advice::Random,
        Advice::Sequential,
        Advice::WillNeed,
        Advice::DontNeed,
    ]);
    let call = prop_oneof![
        (pos.clone(), bytes.clone()).prop_map(|(pos, bytes)| Call::Read(pos, bytes)),
        (pos.clone(), bytes.clone()).prop_map(|(pos, bytes)| Call::Write(pos, bytes)),
        (pos.clone(), bytes.clone(), advice).prop_map(|(p, b, a)| Call::Advise(p, b, a)),
        (pos, bytes).prop_map(|(pos, bytes)| Call::Direct(pos & !511, bytes.next_multiple_of(512))),
    ];
    prop::collection::vec(call, 1..60)
}

proptest! {
    #[test]
    fn every_call_ends_and_no_page_is_cached_twice(calls in calls()) {
        let (vfs, file) = vfs_with(Device::default());
        for call in calls {
            let size = vfs.size_bytes(file.inode);
            match call {
                Call::Read(pos, bytes) => {
                    let done = run(&vfs, vfs.read(&file, pos, bytes));
                    prop_assert_eq!(done, Ok(bytes.min(size.saturating_sub(pos))));
                }
                Call::Write(pos, bytes) => {
                    prop_assert_eq!(run(&vfs, vfs.write(&file, pos, bytes)), Ok(bytes));
                }
                Call::Advise(pos, bytes, advice) => {
                    run(&vfs, vfs.fadvise(&file, pos, bytes, advice));
                }
                Call::Direct(pos, bytes) => {
                    let call = DirectCall { pos, bytes, buffer_offset: 0, is_async: false };
                    prop_assert_eq!(run(&vfs, vfs.write_direct(&file, call)), Ok(bytes));
                }
            }
        }
        run(&vfs, vfs.write_range(file.inode, 0, u64::MAX / 2, true));
        let mut cached = std::collections::BTreeSet::new();
        for event in vfs.host().events.borrow().iter() {
            match *event {
                Event::Add { index, .. } => prop_assert!(cached.insert(index), "page {} twice", index),
                Event::Delete { index, .. } => prop_assert!(cached.remove(&index)),
                _ => {}
            }
        }
        prop_assert_eq!(cached.len() as u64, vfs.cached_pages(file.inode));
    }
}

#[test]
fn a_failed_write_is_told_once_to_each_user_of_its_file() {
    let (vfs, file) = vfs_with(Device::default());
    let other_user = vfs.open(file.inode);
    let other_file = vfs.open(vfs.add_inode(file_of(PAGE_BYTES, false)));
    assert_eq!(run(&vfs, vfs.write(&file, 0, PAGE_BYTES)), Ok(PAGE_BYTES));
    run_failing(&vfs, vfs.write_range(file.inode, 0, u64::MAX / 2, true));
    let sync = |file| run(&vfs, vfs.fsync(file, 0, u64::MAX / 2, false));
    assert_eq!(sync(&other_file), Ok(()));
    for user in [&file, &other_user] {
        assert_eq!(sync(user), Err(FsError::Device));
        assert_eq!(sync(user), Ok(()));
    }
    assert_eq!(
        sync(&vfs.open(file.inode)),
        Ok(()),
        "opened after the error"
    );
}

#[test]
fn a_failed_read_is_told_to_its_reader_and_tried_again() {
    let (vfs, file) = vfs_with(Device::default());
    let read = vfs.read(&file, 0, PAGE_BYTES);
    assert_eq!(run_failing(&vfs, read), Err(FsError::Device));
    assert_eq!(vfs.begin_read(&file, 0, PAGE_BYTES), None);
    assert_eq!(run(&vfs, vfs.read(&file, 0, PAGE_BYTES)), Ok(PAGE_BYTES));
    let read = Some(BegunRead::Over(PAGE_BYTES));
    assert_eq!(vfs.begin_read(&file, 0, PAGE_BYTES), read);
}
