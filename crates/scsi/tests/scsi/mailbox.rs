//! The ring of target_core_user, with a kernel's side that is honest or is not.

use blklab_scsi::vm_memory::{Bytes, MmapRegion, VolatileMemory};
use blklab_scsi::{DataOut, Mailbox, MailboxFault, Outcome, Request};
use proptest::prelude::*;

const MEMORY_BYTES: usize = 16 << 10;
const RING_AT: usize = 128;
const RING_BYTES: usize = 1024;
const DATA_AT: usize = 8 << 10;
const ENTRY_BYTES: usize = 144;
const COMMAND: u32 = 1;

/// A memory as the kernel sets it up.
fn memory(write: impl FnOnce(&Kernel<'_>)) -> MmapRegion {
    let region: MmapRegion = MmapRegion::new(MEMORY_BYTES).expect("memory");
    let kernel = Kernel { region: &region };
    kernel.put(0, &2u16.to_ne_bytes());
    kernel.put(2, &1u16.to_ne_bytes());
    kernel.put_32(4, RING_AT as u32);
    kernel.put_32(8, RING_BYTES as u32);
    write(&kernel);
    region
}

struct Kernel<'a> {
    region: &'a MmapRegion,
}

impl Kernel<'_> {
    fn put(&self, at: usize, bytes: &[u8]) {
        let slice = self.region.get_slice(at, bytes.len()).expect("in memory");
        slice.copy_from(bytes);
    }

    fn put_32(&self, at: usize, number: u32) {
        self.put(at, &number.to_ne_bytes());
    }

    fn head(&self, head: usize) {
        self.put_32(12, head as u32);
    }

    /// A command of one buffer at a place in the ring.
    fn command(&self, at: usize, id: u16, buffer: (u64, u64)) {
        let entry = RING_AT + at;
        self.put_32(entry, ENTRY_BYTES as u32 | COMMAND);
        self.put(entry + 4, &id.to_ne_bytes());
        self.put_32(entry + 8, 1);
        let cdb_at = entry + 112;
        self.put(entry + 24, &(cdb_at as u64).to_ne_bytes());
        self.put(entry + 48, &buffer.0.to_ne_bytes());
        self.put(entry + 56, &buffer.1.to_ne_bytes());
        self.put(cdb_at, &[id as u8; 16]);
    }
}

fn bytes(region: &MmapRegion, at: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let slice = region.get_slice(at, length).expect("in memory");
    slice.read_slice(&mut bytes, 0).expect("in memory");
    bytes
}

/// Another view of the memory that a mailbox has, in a file.
fn two_views() -> (MmapRegion, MmapRegion) {
    use blklab_scsi::vm_memory::FileOffset;
    let file = tempfile::tempfile().expect("a file");
    file.set_len(MEMORY_BYTES as u64).expect("room");
    let view = || {
        let file = file.try_clone().expect("a descriptor");
        MmapRegion::from_file(FileOffset::new(file, 0), MEMORY_BYTES).expect("mapped")
    };
    (view(), view())
}

fn set_up(kernel: &Kernel<'_>) {
    kernel.put(0, &2u16.to_ne_bytes());
    kernel.put(2, &1u16.to_ne_bytes());
    kernel.put_32(4, RING_AT as u32);
    kernel.put_32(8, RING_BYTES as u32);
}

fn tail(region: &MmapRegion) -> u32 {
    let bytes = bytes(region, 64, 4);
    u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

#[test]
fn commands_are_answered_in_any_order() {
    let (ours, kernels) = two_views();
    let kernel = Kernel { region: &kernels };
    set_up(&kernel);
    let mut mailbox = Mailbox::new(ours).expect("a mailbox");
    kernel.command(0, 11, (DATA_AT as u64, 16));
    kernel.command(ENTRY_BYTES, 12, (DATA_AT as u64 + 32, 8));
    kernel.head(2 * ENTRY_BYTES);
    assert_eq!(mailbox.has_more(), Ok(true));
    let (mut first, mut second) = (Request::default(), Request::default());
    assert_eq!(mailbox.pop(&mut first), Ok(true));
    assert_eq!(mailbox.pop(&mut second), Ok(true));
    assert_eq!(mailbox.pop(&mut Request::default()), Ok(false));
    assert_eq!((first.id, first.cdb), (11, [11; 16]));
    kernel.put(DATA_AT, b"0123456789abcdef");
    let mut sent = [0; 4];
    assert!(mailbox.data_out(&first.buffers).read(10, &mut sent));
    assert_eq!(&sent, b"abcd");
    assert!(!mailbox.data_out(&first.buffers).read(13, &mut sent));

    // More than there is room for is left out.
    mailbox
        .put(&second.buffers, 6, b"xyz")
        .expect("there is room");
    assert_eq!(bytes(&kernels, DATA_AT + 36, 6), b"\0\0xy\0\0");
    // The second one's answer takes the first one's place.
    mailbox.answer(12, Outcome::Short(2)).expect("it waits");
    assert_eq!(tail(&kernels), ENTRY_BYTES as u32);
    let entry = bytes(&kernels, RING_AT, 16);
    assert_eq!(entry[4..6], 12u16.to_ne_bytes());
    assert_eq!(entry[7..9], [2, 0]);
    assert_eq!(entry[12..16], 2u32.to_ne_bytes());
    mailbox.answer(11, Outcome::Good).expect("it waits");
    assert_eq!(tail(&kernels), 2 * ENTRY_BYTES as u32);
    assert_eq!(
        mailbox.answer(11, Outcome::Good),
        Err(MailboxFault::NoEntry)
    );
}

#[test]
fn the_ring_is_passed_over_its_end() {
    let (ours, kernels) = two_views();
    let kernel = Kernel { region: &kernels };
    set_up(&kernel);
    let mut mailbox = Mailbox::new(ours).expect("a mailbox");
    let mut request = Request::default();
    let mut at = 0;
    for id in 0..50 {
        // As the kernel does: what does not fit before the end is padded.
        if at + ENTRY_BYTES > RING_BYTES {
            kernel.put_32(RING_AT + at, (RING_BYTES - at) as u32);
            at = 0;
        } else if id % 5 == 4 {
            // An aborted command is told of.
            kernel.put_32(RING_AT + at, 16 | 2);
            at = (at + 16) % RING_BYTES;
        }
        if at + ENTRY_BYTES > RING_BYTES {
            kernel.put_32(RING_AT + at, (RING_BYTES - at) as u32);
            at = 0;
        }
        kernel.command(at, id, (DATA_AT as u64, 8));
        at = (at + ENTRY_BYTES) % RING_BYTES;
        kernel.head(at);
        assert_eq!(mailbox.pop(&mut request), Ok(true));
        assert_eq!(request.id, id);
        mailbox.answer(id, Outcome::Good).expect("it waits");
        assert_eq!(mailbox.pop(&mut request), Ok(false));
        assert_eq!(tail(&kernels), at as u32);
    }
}

#[test]
fn wrong_mailboxes_are_refused() {
    let fault = |write: &dyn Fn(&Kernel<'_>)| Mailbox::new(memory(write)).expect_err("a fault");
    assert_eq!(
        fault(&|kernel| kernel.put(0, &3u16.to_ne_bytes())),
        MailboxFault::Version(3)
    );
    assert_eq!(
        fault(&|kernel| kernel.put(2, &[0, 0])),
        MailboxFault::Ordered
    );
    for (at, bytes) in [(0, 1024), (128, 0), (132, 1024), (128, 1 << 20), (128, 12)] {
        let wrong = fault(&|kernel| {
            kernel.put_32(4, at);
            kernel.put_32(8, bytes);
        });
        assert!(matches!(wrong, MailboxFault::Ring { .. }), "{wrong:?}");
    }
    assert_eq!(
        fault(&|kernel| kernel.put_32(64, 1024)),
        MailboxFault::Index(1024)
    );
}

#[test]
fn wrong_entries_end_the_ring() {
    let fault = |write: &dyn Fn(&Kernel<'_>)| {
        let region = memory(|kernel| {
            kernel.command(0, 1, (DATA_AT as u64, 8));
            kernel.head(ENTRY_BYTES);
            write(kernel);
        });
        let mut mailbox = Mailbox::new(region).expect("a mailbox");
        mailbox.pop(&mut Request::default()).expect_err("a fault")
    };
    let outside = |at, length| MailboxFault::Outside { at, length };
    let memory = MEMORY_BYTES as u64;
    assert_eq!(
        fault(&|kernel| kernel.command(0, 1, (memory - 8, 9))),
        outside(memory - 8, 9)
    );
    assert_eq!(
        fault(&|kernel| kernel.command(0, 1, (u64::MAX, 9))),
        outside(u64::MAX, 9)
    );
    assert_eq!(
        fault(&|kernel| kernel.put(RING_AT + 24, &memory.to_ne_bytes())),
        outside(memory, 16)
    );
    // More buffers than the entry has room for; entries of no, too little and too much length.
    assert_eq!(
        fault(&|kernel| kernel.put_32(RING_AT + 8, 7)),
        MailboxFault::Length(ENTRY_BYTES as u32)
    );
    for word in [COMMAND, 104 | COMMAND, 0, 1032, u32::MAX] {
        let wrong = fault(&|kernel| kernel.put_32(RING_AT, word));
        assert!(matches!(wrong, MailboxFault::Length(_)), "{wrong:?}");
    }
    assert_eq!(fault(&|kernel| kernel.head(4)), MailboxFault::Index(4));
}

proptest! {
    #[test]
    fn no_memory_makes_it_reach_outside(
        contents in proptest::collection::vec(any::<u8>(), 0..RING_BYTES),
        words in proptest::collection::vec((0..RING_BYTES / 8, 0u32..300), 0..20),
        head in 0..RING_BYTES / 8,
    ) {
        let region = memory(|kernel| {
            kernel.put(RING_AT, &contents);
            for (place, word) in words {
                kernel.put_32(RING_AT + place * 8, word);
            }
            kernel.head(head * 8);
        });
        let mut mailbox = Mailbox::new(region).expect("a mailbox");
        let mut request = Request::default();
        let mut taken = 0;
        while let Ok(true) = mailbox.pop(&mut request) {
            taken += 1;
            prop_assert!(taken <= RING_BYTES / 112);
            prop_assert!(request.buffers.length_bytes() <= (MEMORY_BYTES * RING_BYTES) as u64);
            let mut byte = [0];
            mailbox.data_out(&request.buffers).read(0, &mut byte);
            mailbox.put(&request.buffers, 0, &byte).expect("checked buffers");
            if taken % 3 == 0 {
                mailbox.answer(request.id, Outcome::Good).expect("one waits");
            }
        }
    }
}
