//! NBD's transmission phase on any bytes: what a server takes lies on the
//! export, and replies are read or refused.
#![no_main]

use blklab_nbd::wire::{Command, ExportFlags};
use blklab_nbd::{BlockSizes, Export, REQUEST_BYTES, Replies, Request, Session};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, mut left)) = bytes.split_first() else {
        return;
    };
    let export = Export {
        name: String::new(),
        description: String::new(),
        size_bytes: 1_000_000,
        flags: ExportFlags::from_bits_retain(u16::from(choice) << 1),
        block_sizes: BlockSizes {
            minimum: 1 << (choice % 13),
            preferred: 4096,
            maximum: 65536,
        },
        tls_only: false,
    };
    let session = Session {
        structured: choice & 1 != 0,
        base_allocation: choice & 2 != 0,
    };
    let mut replies = Replies::new(64);
    for mut piece in left.chunks(40) {
        while !piece.is_empty() {
            let room = replies.room();
            let len = room.len().min(piece.len());
            room[..len].copy_from_slice(&piece[..len]);
            replies.received(len);
            piece = &piece[len..];
            while let Ok(Some(_)) = replies.next_reply(|_| 100) {}
            if len == 0 {
                break;
            }
        }
    }
    while let Ok(Some(request)) = Request::decode(left) {
        if let Ok(command) = request.check(&export, session)
            && !matches!(command, Command::Flush | Command::Disconnect)
        {
            let end = request.offset + u64::from(request.length);
            assert!(end <= export.size_bytes);
            assert!(!(command.modifies() && export.flags.contains(ExportFlags::READ_ONLY)));
        }
        let next = REQUEST_BYTES + request.payload_bytes() as usize;
        let Some(rest) = left.get(next..) else { break };
        left = rest;
    }
});
