//! A driver and a device over one memory, and a memory that holds anything.

use blklab_virtio::vm_memory::{Bytes, GuestAddress};
use blklab_virtio::{
    Chain, DriverRing, Ended, Limits, Memory, Operation, Request, Ring, RingAddresses, RingFault,
    RingLayout, Status, encode_header,
};
use proptest::prelude::*;

const MEMORY_BYTES: usize = 64 << 10;
/// A ring of 16 entries at the front of the memory.
const AT: RingAddresses = RingAddresses {
    descriptors: 0,
    available: 256,
    used: 320,
};
const LIMITS: Limits = Limits {
    capacity_sectors: 2048,
    block_bytes: 512,
    max_transfer_bytes: 64 << 10,
    max_discard_sectors: 1024,
    max_zeroes_sectors: 1024,
    read_only: false,
};

fn memory(bytes: &[u8]) -> Memory {
    let memory = Memory::from_ranges(&[(GuestAddress(0), MEMORY_BYTES)]).expect("memory");
    memory.write_slice(bytes, GuestAddress(0)).expect("it fits");
    memory
}

fn descriptor(address: u64, length: u32, flags: u16, next: u16) -> Vec<u8> {
    let mut bytes = address.to_le_bytes().to_vec();
    bytes.extend(length.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes.extend(next.to_le_bytes());
    bytes
}

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// What the first request comes to, of these descriptors.
fn chain_of(descriptors: &[Vec<u8>]) -> Result<Chain, RingFault> {
    let memory = memory(&descriptors.concat());
    let ring = Ring::new(&memory, 16, AT, 0, true).expect("a ring");
    let mut chain = Chain::default();
    ring.read_chain(&memory, 0, &mut chain).map(|()| chain)
}

#[test]
fn chains_that_break_the_specification_are_refused() {
    let status = descriptor(0x2000, 1, WRITE, 0);
    let loops = [
        descriptor(0x1000, 16, NEXT, 1),
        descriptor(0x1000, 16, NEXT, 0),
    ];
    assert_eq!(chain_of(&loops).err(), Some(RingFault::Loop));
    let far = [descriptor(0x1000, 16, NEXT, 16)];
    assert_eq!(chain_of(&far).err(), Some(RingFault::Descriptor(16)));
    let outside = RingFault::OutsideMemory {
        address: 0xfff0,
        length: 17,
    };
    let beyond = [descriptor(0xfff0, 17, NEXT, 1), status.clone()];
    assert_eq!(chain_of(&beyond).err(), Some(outside));
    let around = [descriptor(u64::MAX, 2, NEXT, 1), status.clone()];
    assert!(chain_of(&around).is_err());
    let order = [
        descriptor(0x2000, 1, WRITE | NEXT, 1),
        descriptor(0x1000, 16, 0, 0),
    ];
    assert_eq!(chain_of(&order).err(), Some(RingFault::Order));
    let silent = [descriptor(0x1000, 16, 0, 0)];
    assert_eq!(chain_of(&silent).err(), Some(RingFault::NoStatus));
    let nested = [
        descriptor(16, 32, INDIRECT, 0),
        descriptor(16, 32, INDIRECT, 0),
        status.clone(),
    ];
    assert_eq!(chain_of(&nested).err(), Some(RingFault::NestedTable));
    for length in [0, 15, 1025 * 16, 2 << 20] {
        let table = [descriptor(16, length, INDIRECT, 0)];
        assert_eq!(chain_of(&table).err(), Some(RingFault::TableLength(length)));
    }
}

#[test]
fn an_indirect_table_is_followed() {
    let chain = chain_of(&[
        descriptor(16, 48, INDIRECT, 0),
        descriptor(0x1000, 16, NEXT, 1),
        descriptor(0x3000, 512, NEXT | WRITE, 2),
        descriptor(0x2000, 1, WRITE, 0),
    ]);
    let chain = chain.expect("a chain");
    assert_eq!((chain.readable_bytes(), chain.writable_bytes()), (16, 513));
}

#[test]
fn a_ring_outside_the_memory_or_of_another_size_is_refused() {
    let memory = memory(&[]);
    for size in [0, 3, 65536] {
        let ring = Ring::new(&memory, size, AT, 0, true);
        assert_eq!(ring.err(), Some(RingFault::Size(size)));
    }
    let at = RingAddresses {
        descriptors: MEMORY_BYTES as u64 - 16,
        ..AT
    };
    assert!(Ring::new(&memory, 16, at, 0, true).is_err());
    let at = RingAddresses { used: 322, ..AT };
    assert_eq!(
        Ring::new(&memory, 16, at, 0, true).err(),
        Some(RingFault::Alignment(322))
    );
}

/// The request that a header, a payload of this length and room for so much come to.
fn parsed(header: [u8; 16], payload: &[u8], room: u32, limits: &Limits) -> Result<Request, Status> {
    let descriptors = [
        descriptor(0x1000, 16, NEXT, 1),
        descriptor(0x1100, payload.len() as u32, NEXT, 2),
        descriptor(0x2000, room + 1, WRITE, 0),
    ];
    let memory = memory(&descriptors.concat());
    memory
        .write_slice(&header, GuestAddress(0x1000))
        .expect("it fits");
    memory
        .write_slice(payload, GuestAddress(0x1100))
        .expect("it fits");
    let ring = Ring::new(&memory, 16, AT, 0, true).expect("a ring");
    let mut chain = Chain::default();
    ring.read_chain(&memory, 0, &mut chain).expect("a chain");
    Request::parse(&memory, &chain, limits)
}

#[test]
fn requests_are_checked_against_the_disk() {
    let range = |sector: u64, sectors: u32, flags: u32| {
        let mut bytes = sector.to_le_bytes().to_vec();
        bytes.extend(sectors.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes
    };
    let header = encode_header;
    let read = parsed(header(Operation::Read, 2047), &[], 512, &LIMITS);
    let request = Request {
        operation: Operation::Read,
        offset: 2047 * 512,
        length: 512,
    };
    assert_eq!(read, Ok(request));
    let zeroes = header(Operation::WriteZeroes { may_unmap: true }, 0);
    let punched = parsed(zeroes, &range(8, 8, 1), 0, &LIMITS).expect("taken");
    assert_eq!(
        punched.operation,
        Operation::WriteZeroes { may_unmap: true }
    );
    let discard = header(Operation::Discard, 0);
    let read_only = Limits {
        read_only: true,
        max_discard_sectors: 0,
        ..LIMITS
    };
    let mut unknown = header(Operation::Read, 0);
    unknown[0] = 99;
    let refused = [
        (
            header(Operation::Read, 2048),
            vec![],
            512,
            LIMITS,
            Status::IoError,
        ),
        (
            header(Operation::Read, u64::MAX),
            vec![],
            512,
            LIMITS,
            Status::IoError,
        ),
        (
            header(Operation::Read, 0),
            vec![],
            513,
            LIMITS,
            Status::IoError,
        ),
        (
            header(Operation::Read, 0),
            vec![0; 512],
            512,
            LIMITS,
            Status::IoError,
        ),
        (
            header(Operation::Write, 0),
            vec![0; 512],
            0,
            read_only,
            Status::IoError,
        ),
        (
            header(Operation::GetId, 0),
            vec![],
            19,
            LIMITS,
            Status::IoError,
        ),
        (discard, range(0, 1025, 0), 0, LIMITS, Status::IoError),
        (discard, range(u64::MAX, 8, 0), 0, LIMITS, Status::IoError),
        (discard, range(0, 8, 1), 0, LIMITS, Status::Unsupported),
        (discard, range(0, 8, 0), 0, read_only, Status::Unsupported),
        (discard, vec![0; 32], 0, LIMITS, Status::IoError),
        (unknown, vec![], 0, LIMITS, Status::Unsupported),
    ];
    for (header, payload, room, limits, status) in refused {
        let got = parsed(header, &payload, room, &limits);
        assert_eq!(got, Err(status), "{header:?} {payload:?} {room}");
    }
}

/// What a device does with one ring until nothing more is there.
fn serve(memory: &Memory, ring: &mut Ring) -> Result<u32, RingFault> {
    let (mut chain, mut served) = (Chain::default(), 0);
    while let Some(head) = ring.pop(memory)? {
        ring.read_chain(memory, head, &mut chain)?;
        let status = match Request::parse(memory, &chain, &LIMITS) {
            Ok(request) => {
                assert!(request.offset + u64::from(request.length) <= 2048 * 512);
                Status::Ok
            }
            Err(status) => status,
        };
        status.write(memory, &chain)?;
        ring.push(memory, head, 1)?;
        served += 1;
    }
    ring.needs_interrupt(memory)?;
    ring.enable_notifications(memory)?;
    Ok(served)
}

proptest! {
    /// Memory that holds anything comes to requests, to errors, or to a fault.
    #[test]
    fn any_memory_is_safe_to_serve(
        mut bytes in proptest::collection::vec(any::<u8>(), 4096),
        ahead in 0u16..20,
        heads in proptest::collection::vec(0u16..16, 16),
        has_event_index in any::<bool>(),
    ) {
        // Heads that exist and flags that mean something get further.
        bytes[258..260].copy_from_slice(&ahead.to_le_bytes());
        for (entry, head) in heads.iter().enumerate() {
            bytes[260 + 2 * entry..][..2].copy_from_slice(&head.to_le_bytes());
            let at = 16 * entry;
            bytes[at + 2..at + 8].fill(0);
            bytes[at + 9..at + 12].fill(0);
            bytes[at + 12] &= 7;
            bytes[at + 13] = 0;
            bytes[at + 14] &= 15;
            bytes[at + 15] = 0;
        }
        let memory = memory(&bytes);
        let mut ring = Ring::new(&memory, 16, AT, 0, has_event_index).expect("a ring");
        match serve(&memory, &mut ring) {
            Ok(served) => prop_assert!(served <= 16),
            Err(RingFault::AvailableIndex(ahead)) => prop_assert!(ahead > 16),
            Err(_) => {}
        }
    }

    /// Both sides of a ring agree on which requests are where, however many at a time
    /// and across the wrap of all counters.
    #[test]
    fn a_driver_and_a_device_agree(batches in proptest::collection::vec(1u16..=8, 1..200)) {
        let layout = RingLayout { depth: 8, data_bytes: 512, start: 0 };
        prop_assert!(layout.end() <= MEMORY_BYTES as u64);
        let memory = memory(&[]);
        let size = u32::from(layout.size());
        let mut ring = Ring::new(&memory, size, layout.addresses(), 0, true).expect("a ring");
        let mut driver = DriverRing::new(layout);
        prop_assert!(!ring.enable_notifications(&memory).expect("inside"));
        for (round, batch) in batches.into_iter().enumerate() {
            for slot in 0..batch {
                let sector = (round as u64 * 8 + u64::from(slot)) % 4096;
                let submitted = driver.submit(&memory, slot, Operation::Write, sector, 512);
                submitted.expect("inside");
            }
            prop_assert!(driver.needs_kick(&memory).expect("inside"));
            prop_assert!(!driver.enable_interrupt(&memory).expect("inside"));
            let mut chain = Chain::default();
            while let Some(head) = ring.pop(&memory).expect("a ring") {
                ring.read_chain(&memory, head, &mut chain).expect("a chain");
                let status = Request::parse(&memory, &chain, &LIMITS).map_or_else(|s| s, |_| Status::Ok);
                status.write(&memory, &chain).expect("room");
                ring.push(&memory, head, 1).expect("inside");
            }
            prop_assert!(ring.needs_interrupt(&memory).expect("inside"));
            prop_assert!(!ring.needs_interrupt(&memory).expect("inside"));
            prop_assert!(!ring.enable_notifications(&memory).expect("inside"));
            for slot in 0..batch {
                let sector = (round as u64 * 8 + u64::from(slot)) % 4096;
                let status = u8::from(sector >= 2048);
                let ended = driver.take_ended(&memory).expect("inside");
                prop_assert_eq!(ended, Some(Ended { slot, status }));
            }
            prop_assert_eq!(driver.take_ended(&memory).expect("inside"), None);
        }
    }
}
