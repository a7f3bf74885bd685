//! The client against the server, and the server against arbitrary bytes.

use proptest::prelude::*;

use crate::client::{ClientHandshake, ClientOptions, ClientStep, Negotiated};
use crate::server::{Chosen, HandshakeError, ServerHandshake, ServerStep, Tls};
use crate::wire::*;
use crate::{BlockSizes, Export, Request, Session};
use crate::{Extent, Replies, Reply, ReplyBody, ReplyError, reply};

fn export(name: &str, size_bytes: u64) -> Export {
    Export {
        name: name.to_string(),
        description: format!("the export {name}"),
        size_bytes,
        flags: ExportFlags::SEND_FLUSH,
        block_sizes: BlockSizes {
            minimum: 1,
            preferred: 4096,
            maximum: 1 << 20,
        },
        tls_only: false,
    }
}

fn exports() -> Vec<Export> {
    vec![export("a", 1 << 20), export("b", 2 << 20)]
}

/// A server after the flags of a client that sets both.
fn greeted(tls: Tls) -> ServerHandshake {
    let mut out = Vec::new();
    let mut server = ServerHandshake::start(tls, &mut out);
    assert_eq!(out.len(), 18);
    let done = server.step(&[0, 0, 0, 3], &exports(), &mut out);
    assert_eq!(done, Ok((4, ServerStep::More)));
    server
}

fn option(code: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = IHAVEOPT.to_be_bytes().to_vec();
    bytes.extend(code.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// The types of the replies in `out`.
fn kinds(mut out: &[u8]) -> Vec<u32> {
    let mut kinds = Vec::new();
    while !out.is_empty() {
        assert_eq!(out[..8], OPTION_REPLY_MAGIC.to_be_bytes());
        kinds.push(u32::from_be_bytes(out[12..16].try_into().expect("four")));
        let length = u32::from_be_bytes(out[16..20].try_into().expect("four"));
        out = &out[20 + length as usize..];
    }
    kinds
}

fn ask(server: &mut ServerHandshake, code: OptionCode, data: &[u8]) -> (ServerStep, Vec<u32>) {
    let mut out = Vec::new();
    let bytes = option(code as u32, data);
    let (used, step) = server.step(&bytes, &exports(), &mut out).expect("goes on");
    assert_eq!(used, bytes.len());
    (step, kinds(&out))
}

/// Data of INFO or GO.
fn info_data(name: &str, wanted: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend((wanted.len() as u16).to_be_bytes());
    wanted.iter().for_each(|w| data.extend(w.to_be_bytes()));
    data
}

fn meta_data(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend((queries.len() as u32).to_be_bytes());
    for query in queries {
        data.extend((query.len() as u32).to_be_bytes());
        data.extend(query.as_bytes());
    }
    data
}

/// Runs the client against the server, passing `piece` bytes at a time.
fn negotiate(wanted: ClientOptions, piece: usize) -> Result<(Negotiated, Chosen), String> {
    let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
    let mut server = ServerHandshake::start(Tls::Off, &mut to_client);
    let mut client = ClientHandshake::new(wanted);
    let (mut seen_by_client, mut seen_by_server) = (Vec::new(), Vec::new());
    let mut chosen = None;
    loop {
        let take = piece.min(to_client.len());
        seen_by_client.extend(to_client.drain(..take));
        let (used, step) = client.step(&seen_by_client, &mut to_server)?;
        seen_by_client.drain(..used);
        if let ClientStep::Ready(negotiated) = step {
            return Ok((negotiated, chosen.expect("the server was ready first")));
        }
        let take = piece.min(to_server.len());
        seen_by_server.extend(to_server.drain(..take));
        let (used, step) = server
            .step(&seen_by_server, &exports(), &mut to_client)
            .map_err(|e| e.to_string())?;
        seen_by_server.drain(..used);
        if let ServerStep::Ready(c) = step {
            chosen = Some(c);
        }
    }
}

fn wanted(export: &str) -> ClientOptions {
    ClientOptions {
        export: export.to_string(),
        structured: true,
        base_allocation: true,
        tls: false,
    }
}

#[test]
fn client_and_server_agree() {
    for piece in [1, 7, 1000] {
        let (negotiated, chosen) = negotiate(wanted("b"), piece).expect("agreed");
        assert_eq!(negotiated.size_bytes, 2 << 20);
        assert_eq!(negotiated.block_sizes.maximum, 1 << 20);
        assert!(negotiated.flags.contains(ExportFlags::SEND_DF));
        assert!(negotiated.session.structured && negotiated.session.base_allocation);
        assert_eq!(chosen.export, 1);
        assert_eq!(chosen.session, negotiated.session);
    }
    let plain = ClientOptions {
        structured: false,
        ..wanted("a")
    };
    let (negotiated, _) = negotiate(plain, 1000).expect("agreed");
    assert!(!negotiated.flags.contains(ExportFlags::SEND_DF));
    assert!(!negotiated.session.structured && !negotiated.session.base_allocation);
    let refusal = negotiate(wanted("c"), 1000).expect_err("no such export");
    assert!(refusal.contains("no such export"), "{refusal}");
}

#[test]
fn list_names_every_export() {
    let mut server = greeted(Tls::Off);
    let (_, replies) = ask(&mut server, OptionCode::List, b"");
    assert_eq!(replies, [REP_SERVER, REP_SERVER, REP_ACK]);
    let (_, replies) = ask(&mut server, OptionCode::List, b"x");
    assert_eq!(replies, [REP_ERR_INVALID]);
}

#[test]
fn info_goes_on_and_go_ends() {
    let mut server = greeted(Tls::Off);
    let all = [INFO_NAME, INFO_DESCRIPTION, INFO_BLOCK_SIZE];
    let (step, replies) = ask(&mut server, OptionCode::Info, &info_data("a", &all));
    assert_eq!(step, ServerStep::More);
    assert_eq!(replies, [REP_INFO, REP_INFO, REP_INFO, REP_INFO, REP_ACK]);
    let (step, replies) = ask(&mut server, OptionCode::Go, &info_data("no", &[]));
    assert_eq!((step, replies), (ServerStep::More, vec![REP_ERR_UNKNOWN]));
    let (step, _) = ask(&mut server, OptionCode::Go, &info_data("", &[]));
    assert!(matches!(step, ServerStep::Ready(Chosen { export: 0, .. })));
    let mut cut = info_data("a", &all);
    cut.pop();
    let (_, replies) = ask(&mut greeted(Tls::Off), OptionCode::Go, &cut);
    assert_eq!(replies, [REP_ERR_INVALID]);
}

#[test]
fn meta_contexts_need_structured_replies_and_their_export() {
    let mut server = greeted(Tls::Off);
    let query = meta_data("a", &["base:allocation"]);
    let (_, replies) = ask(&mut server, OptionCode::SetMetaContext, &query);
    assert_eq!(replies, [REP_ERR_INVALID]);
    ask(&mut server, OptionCode::StructuredReply, b"");
    let (_, replies) = ask(
        &mut server,
        OptionCode::ListMetaContext,
        &meta_data("a", &[]),
    );
    assert_eq!(replies, [REP_META_CONTEXT, REP_ACK]);
    let (_, replies) = ask(
        &mut server,
        OptionCode::SetMetaContext,
        &meta_data("a", &["base:"]),
    );
    assert_eq!(replies, [REP_ACK], "a namespace chooses nothing");
    let (_, replies) = ask(&mut server, OptionCode::SetMetaContext, &query);
    assert_eq!(replies, [REP_META_CONTEXT, REP_ACK]);
    let (step, _) = ask(&mut server.clone(), OptionCode::Go, &info_data("b", &[]));
    let ServerStep::Ready(chosen) = step else {
        panic!("ready")
    };
    assert!(!chosen.session.base_allocation, "chosen for another export");
    let (step, _) = ask(&mut server, OptionCode::Go, &info_data("a", &[]));
    let ServerStep::Ready(chosen) = step else {
        panic!("ready")
    };
    assert!(chosen.session.base_allocation);
}

#[test]
fn export_name_pads_unless_told_not_to() {
    for (flags, len) in [(1u32, 10 + 124), (3, 10)] {
        let mut out = Vec::new();
        let mut server = ServerHandshake::start(Tls::Off, &mut out);
        out.clear();
        let mut bytes = flags.to_be_bytes().to_vec();
        bytes.extend(option(1, b"a"));
        let (_, step) = server.step(&bytes, &exports(), &mut out).expect("ready");
        assert!(matches!(step, ServerStep::Ready(_)));
        assert_eq!(out.len(), len);
    }
    let gone = greeted(Tls::Off).step(&option(1, b"zzz"), &exports(), &mut Vec::new());
    assert_eq!(gone, Err(HandshakeError::UnknownExport));
}

#[test]
fn tls_comes_first_where_it_must() {
    let mut server = greeted(Tls::Required);
    assert_eq!(
        ask(&mut server, OptionCode::List, b"").1,
        [REP_ERR_TLS_REQD]
    );
    let (step, replies) = ask(&mut server, OptionCode::StartTls, b"");
    assert_eq!((step, replies), (ServerStep::StartTls, vec![REP_ACK]));
    server.tls_started();
    assert_eq!(ask(&mut server, OptionCode::List, b"").1.len(), 3);
    let (_, replies) = ask(&mut server, OptionCode::StartTls, b"");
    assert_eq!(replies, [REP_ERR_INVALID]);
    let (_, replies) = ask(&mut greeted(Tls::Off), OptionCode::StartTls, b"");
    assert_eq!(replies, [REP_ERR_POLICY]);
}

#[test]
fn a_client_that_wants_tls_does_not_go_on_without() {
    let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
    let mut server = ServerHandshake::start(Tls::Required, &mut to_client);
    let secret = ClientOptions {
        tls: true,
        ..wanted("b")
    };
    let mut client = ClientHandshake::new(secret.clone());
    let (_, step) = client.step(&to_client, &mut to_server).expect("goes on");
    assert_eq!(step, ClientStep::More);
    to_client.clear();
    let done = server.step(&to_server, &exports(), &mut to_client);
    assert_eq!(done, Ok((to_server.len(), ServerStep::StartTls)));
    server.tls_started();
    to_server.clear();
    let (_, step) = client.step(&to_client, &mut to_server).expect("goes on");
    assert_eq!((step, to_server.len()), (ClientStep::StartTls, 0));
    client.tls_started(&mut to_server);
    assert!(!to_server.is_empty());
    let refused = negotiate(secret, 1000).expect_err("the server has none");
    assert!(refused.contains("no TLS"), "{refused}");
}

#[test]
fn strange_clients_are_answered_or_dropped() {
    let mut server = greeted(Tls::Off);
    let mut out = Vec::new();
    let bytes = option(4711, b"whatever");
    server.step(&bytes, &exports(), &mut out).expect("goes on");
    assert_eq!(kinds(&out), [REP_ERR_UNSUP]);
    out.clear();
    // An option that is too long is skipped and refused, whatever its contents.
    let long = vec![0; 100_000];
    let bytes = option(OptionCode::List as u32, &long);
    for piece in bytes.chunks(1000) {
        let (used, _) = server.step(piece, &exports(), &mut out).expect("goes on");
        assert_eq!(used, piece.len());
    }
    assert_eq!(kinds(&out), [REP_ERR_TOO_BIG]);
    let (step, replies) = ask(&mut server, OptionCode::Abort, b"");
    assert_eq!((step, replies), (ServerStep::Closed, vec![REP_ACK]));

    let mut fresh = ServerHandshake::start(Tls::Off, &mut Vec::new());
    let dropped = fresh.step(&[0, 0, 0, 8], &exports(), &mut Vec::new());
    assert_eq!(dropped, Err(HandshakeError::ClientFlags(8)));
    let dropped = greeted(Tls::Off).step(&[0; 16], &exports(), &mut Vec::new());
    assert_eq!(dropped, Err(HandshakeError::OptionMagic(0)));
    let mut patient = greeted(Tls::Off);
    let flood: Vec<u8> = (0..2000).flat_map(|_| option(99, b"")).collect();
    let dropped = patient.step(&flood, &exports(), &mut Vec::new());
    assert_eq!(dropped, Err(HandshakeError::TooManyOptions));
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut server = greeted(Tls::Offered);
        if let Ok((used, _)) = server.step(&bytes, &exports(), &mut Vec::new()) {
            prop_assert!(used <= bytes.len());
        }
    }

    #[test]
    fn any_options_are_survived(
        options in proptest::collection::vec(
            (0u32..13, proptest::collection::vec(0u8..5, 0..40)), 0..8),
        cut in 1usize..50,
    ) {
        let mut whole = Vec::new();
        options.iter().for_each(|(code, data)| whole.extend(option(*code, data)));
        // The reply does not depend on how the bytes are split.
        let mut at_once = Vec::new();
        let expected = greeted(Tls::Offered).step(&whole, &exports(), &mut at_once);
        let (mut server, mut buffer, mut pieces) = (greeted(Tls::Offered), Vec::new(), Vec::new());
        let mut end = Ok(ServerStep::More);
        for piece in whole.chunks(cut) {
            buffer.extend_from_slice(piece);
            match server.step(&buffer, &exports(), &mut pieces) {
                Ok((used, step)) => {
                    buffer.drain(..used);
                    end = Ok(step);
                }
                Err(error) => end = Err(error),
            }
            if end != Ok(ServerStep::More) {
                break;
            }
        }
        prop_assert_eq!(expected.map(|(_, step)| step), end);
        prop_assert_eq!(at_once, pieces);
    }

    #[test]
    fn a_client_survives_any_server(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut client = ClientHandshake::new(wanted("a"));
        let mut greeting = Vec::new();
        ServerHandshake::start(Tls::Off, &mut greeting);
        let mut out = Vec::new();
        client.step(&greeting, &mut out).expect("a greeting");
        let _ = client.step(&bytes, &mut out);
    }
}

/// The replies in bytes that arrive `step` at a time, for reads of 512 bytes.
fn replies_in(bytes: &[u8], step: usize) -> Vec<Reply> {
    let mut replies = Replies::new(64);
    let mut all = Vec::new();
    for part in bytes.chunks(step) {
        let mut part = part;
        while !part.is_empty() {
            let room = replies.room();
            let len = room.len().min(part.len());
            room[..len].copy_from_slice(&part[..len]);
            replies.received(len);
            part = &part[len..];
            while let Some(reply) = replies.next_reply(|_| 512).expect("replies") {
                all.push(reply);
            }
        }
    }
    assert_eq!(replies.take_data(&mut [0; 512]), 0);
    all
}

#[test]
fn replies_are_the_same_however_they_come() {
    let (mut bytes, data) = (Vec::new(), [0x67; 512]);
    let extents: Vec<Extent> = (1..40).map(|bytes| Extent { bytes, state: 3 }).collect();
    reply::simple(&mut bytes, 1, 0);
    bytes.extend_from_slice(&data);
    reply::simple(&mut bytes, 2, 5);
    reply::data_head(&mut bytes, 3, 4096, 512, false);
    bytes.extend_from_slice(&data);
    reply::error(&mut bytes, 4, ErrorCode::Io, "broken");
    reply::block_status(&mut bytes, 5, &extents);
    reply::hole(&mut bytes, 3, 4608, 512, false);
    reply::done(&mut bytes, 3);
    let expected = [
        (
            1,
            true,
            ReplyBody::Data {
                offset: None,
                length: 512,
            },
        ),
        (2, true, ReplyBody::Error(5)),
        (
            3,
            false,
            ReplyBody::Data {
                offset: Some(4096),
                length: 512,
            },
        ),
        (4, true, ReplyBody::Error(5)),
        (5, true, ReplyBody::Extents(extents)),
        (
            3,
            false,
            ReplyBody::Hole {
                offset: 4608,
                length: 512,
            },
        ),
        (3, true, ReplyBody::Empty),
    ]
    .map(|(cookie, is_last, body)| Reply {
        cookie,
        is_last,
        body,
    });
    for step in [1, 7, 16, 20, 100, bytes.len()] {
        assert_eq!(replies_in(&bytes, step), expected, "{step}");
    }
}

#[test]
fn only_reads_and_extents_have_structured_replies_without_data() {
    for structured in [false, true] {
        let session = Session {
            structured,
            base_allocation: structured,
        };
        for (command, needs_chunk) in [
            (Command::Read, true),
            (Command::BlockStatus, true),
            (Command::Write, false),
            (Command::Flush, false),
            (Command::Trim, false),
            (Command::WriteZeroes, false),
            (Command::Cache, false),
        ] {
            let mut bytes = Vec::new();
            reply::success(&mut bytes, session, &Request::new(command, 7, 0, 512));
            let expected_bytes = match structured && needs_chunk {
                true => 20,
                false => 16,
            };
            assert_eq!(bytes.len(), expected_bytes, "{command:?}");
            assert_eq!(bytes[8..16], 7u64.to_be_bytes(), "{command:?}");
        }
    }
}

#[test]
fn data_of_a_reply_is_taken_in_pieces() {
    let (mut bytes, mut data) = (Vec::new(), [0; 300]);
    reply::simple(&mut bytes, 1, 0);
    bytes.extend_from_slice(&[7; 200]);
    let mut replies = Replies::new(4096);
    replies.room()[..bytes.len()].copy_from_slice(&bytes);
    replies.received(bytes.len());
    let reply = replies.next_reply(|_| 300).expect("a reply");
    assert!(matches!(reply, Some(Reply { cookie: 1, .. })));
    assert_eq!(replies.take_data(&mut data), 200);
    // The rest is received directly into the caller's memory.
    replies.data_received(100);
    replies.room()[..16].fill(0);
    replies.received(16);
    assert_eq!(replies.next_reply(|_| 0), Err(ReplyError::Magic(0)));
}
