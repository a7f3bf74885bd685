//! A ring of target_core_user whose memory holds anything: each command ends in an answer, in
//! steps that lie on the disk or in the ring's end, and nothing outside is touched.
#![no_main]

use blklab_scsi::vm_memory::{Bytes, MmapRegion, VolatileMemory};
use blklab_scsi::{
    Disk, LogicalUnit, Mailbox, MailboxFault, Operation, Outcome, Request, Started,
};
use libfuzzer_sys::fuzz_target;

const MEMORY_BYTES: usize = 32 << 10;
const BLOCK_BYTES: u32 = 512;
const BLOCKS: u64 = 2048;
const MAX_REQUESTS: usize = 100;
/// Where the ring is behind a sound header, and its size.
const RING_AT: usize = 128;
const RING_BYTES: usize = 8 << 10;

fn serve(mailbox: &mut Mailbox, unit: &mut LogicalUnit) -> Result<(), MailboxFault> {
    let mut request = Request::default();
    while mailbox.pop(&mut request)? {
        let started = {
            let data = mailbox.data_out(&request.buffers);
            unit.start(&request.cdb, &data)
        };
        let outcome = match started {
            Err(sense) => Outcome::Failed(sense),
            Ok(Started::Answered(data)) => {
                mailbox.put(&request.buffers, 0, &data)?;
                Outcome::Short(data.len() as u32)
            }
            Ok(Started::Task(mut task)) => {
                let requests = std::iter::from_fn(|| task.next_request());
                for wanted in requests.take(MAX_REQUESTS) {
                    let end = wanted.offset + u64::from(wanted.length);
                    assert!(end <= BLOCKS * u64::from(BLOCK_BYTES));
                    let data = mailbox.data_out(&request.buffers);
                    let mut block = [0; BLOCK_BYTES as usize];
                    match wanted.operation {
                        Operation::Write(_) => drop(wanted.fill(&data, 0, &mut block)),
                        Operation::Compare(_) => drop(wanted.compare(&data, 0, &block)),
                        Operation::Read => mailbox.put(&request.buffers, wanted.data_at, &block)?,
                        _ => {}
                    }
                }
                Outcome::Good
            }
        };
        mailbox.answer(request.id, outcome)?;
    }
    Ok(())
}

/// The mailbox's header as the kernel writes it, with `length` bytes of commands in the ring: no
/// fuzzer finds one by itself.
fn sound_header(length: usize) -> [u8; RING_AT] {
    let head = length.min(RING_BYTES - 8) / 8 * 8;
    let mut header = [0; RING_AT];
    header[..2].copy_from_slice(&2u16.to_le_bytes());
    header[2..4].copy_from_slice(&1u16.to_le_bytes());
    for (at, value) in [(4, RING_AT), (8, RING_BYTES), (12, head)] {
        header[at..at + 4].copy_from_slice(&(value as u32).to_le_bytes());
    }
    header
}

fuzz_target!(|data: &[u8]| {
    let Ok(memory) = MmapRegion::new(MEMORY_BYTES) else {
        return;
    };
    let Some((choice, data)) = data.split_first() else {
        return;
    };
    let length = data.len().min(MEMORY_BYTES - RING_AT);
    let has_sound_header = choice % 4 != 0;
    let header = sound_header(length);
    let copied = memory.get_slice(0, MEMORY_BYTES).map(|slice| {
        let start = if has_sound_header { RING_AT } else { 0 };
        slice.write_slice(&data[..length], start)?;
        slice.write_slice(&header[..start], 0)
    });
    let Ok(Ok(())) = copied else { return };
    let mut unit = LogicalUnit::new(Disk {
        blocks: BLOCKS,
        block_bytes: BLOCK_BYTES,
        physical_block_bytes: 4096,
        max_transfer_bytes: 64 << 10,
        read_only: length % 2 == 1,
        rotational: false,
        unmaps: length % 4 < 2,
        name: "fuzzed".to_string(),
    });
    if let Ok(mut mailbox) = Mailbox::new(memory) {
        // A ring that is at its end stays there.
        let _ = serve(&mut mailbox, &mut unit);
    }
});
