//! A ring of virtio-blk whose memory holds anything: each request ends in a range of
//! the disk, in a status or in the ring's end, and nothing outside is touched.
#![no_main]

use blklab_virtio::vm_memory::{Bytes, GuestAddress};
use blklab_virtio::{Chain, Limits, Memory, Request, Ring, RingAddresses, RingFault};
use libfuzzer_sys::fuzz_target;

const MEMORY_BYTES: usize = 64 << 10;
const LIMITS: Limits = Limits {
    capacity_sectors: 2048,
    block_bytes: 512,
    max_transfer_bytes: 64 << 10,
    max_discard_sectors: 1024,
    max_zeroes_sectors: 1024,
    read_only: false,
};

fn serve(memory: &Memory, ring: &mut Ring) -> Result<(), RingFault> {
    let mut chain = Chain::default();
    while let Some(head) = ring.pop(memory)? {
        ring.read_chain(memory, head, &mut chain)?;
        match Request::parse(memory, &chain, &LIMITS) {
            Ok(request) => {
                assert!(request.offset + u64::from(request.length) <= 2048 * 512);
                let mut data = vec![0; chain.readable_bytes() as usize];
                chain.read(memory, 0, &mut data)?;
            }
            Err(status) => status.write(memory, &chain)?,
        }
        ring.push(memory, head, 1)?;
        ring.needs_interrupt(memory)?;
    }
    ring.enable_notifications(memory).map(drop)
}

fuzz_target!(|data: &[u8]| {
    let Ok(memory) = Memory::from_ranges(&[(GuestAddress(0), MEMORY_BYTES)]) else {
        return;
    };
    let length = data.len().min(MEMORY_BYTES);
    let Ok(()) = memory.write_slice(&data[..length], GuestAddress(0)) else {
        return;
    };
    let at = RingAddresses {
        descriptors: 0,
        available: 256,
        used: 320,
    };
    if let Ok(mut ring) = Ring::new(&memory, 16, at, 0, length % 2 == 0) {
        // A ring that is at its end stays there.
        let _ = serve(&memory, &mut ring);
    }
});
