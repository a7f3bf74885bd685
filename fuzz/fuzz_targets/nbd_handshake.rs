//! Both sides of NBD's handshake on any bytes: an answer or a hang-up, never a
//! panic; the same however the bytes are cut.
#![no_main]

use blklab_nbd::wire::ExportFlags;
use blklab_nbd::{
    BlockSizes, ClientHandshake, ClientOptions, ClientStep, Export, HandshakeError,
    ServerHandshake, ServerStep, Tls,
};
use libfuzzer_sys::fuzz_target;

fn exports() -> Vec<Export> {
    [("", false), ("tls", true)]
        .map(|(name, tls_only)| Export {
            name: name.to_string(),
            description: "an export".to_string(),
            size_bytes: 1 << 20,
            flags: ExportFlags::SEND_FLUSH,
            block_sizes: BlockSizes {
                minimum: 1,
                preferred: 4096,
                maximum: 1 << 20,
            },
            tls_only,
        })
        .into()
}

/// Feeds a server pieces of this length; what it said and how it ended.
fn serve(bytes: &[u8], piece: usize) -> (Vec<u8>, Result<ServerStep, HandshakeError>) {
    let (exports, mut out, mut input) = (exports(), Vec::new(), Vec::new());
    let mut server = ServerHandshake::start(Tls::Offered, &mut out);
    for piece in bytes.chunks(piece) {
        input.extend_from_slice(piece);
        match server.step(&input, &exports, &mut out) {
            Ok((used, step)) => {
                input.drain(..used);
                if step != ServerStep::More {
                    return (out, Ok(step));
                }
            }
            Err(error) => return (out, Err(error)),
        }
    }
    (out, Ok(ServerStep::More))
}

fuzz_target!(|bytes: &[u8]| {
    let whole = serve(bytes, bytes.len().max(1));
    assert_eq!(whole, serve(bytes, 3));
    let mut client = ClientHandshake::new(ClientOptions {
        export: "e".to_string(),
        structured: true,
        base_allocation: true,
        tls: bytes.len().is_multiple_of(2),
    });
    let mut left = bytes;
    let mut out = Vec::new();
    while let Ok((used, step)) = client.step(left, &mut out) {
        if step == ClientStep::StartTls {
            client.tls_started(&mut out);
        }
        if used == 0 {
            break;
        }
        left = &left[used..];
    }
});
