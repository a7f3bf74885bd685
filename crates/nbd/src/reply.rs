//! Writers for a server's replies, and the parser of their headers for clients.

use crate::wire::Reader;
use crate::wire::{
    BASE_ALLOCATION_ID, Command, ErrorCode, REPLY_FLAG_DONE, SIMPLE_REPLY_MAGIC,
    STRUCTURED_REPLY_MAGIC, chunk,
};
use crate::{Request, Session};

/// Length of the longest header, that of a chunk, in bytes.
pub(crate) const REPLY_HEAD_BYTES: usize = 20;

/// A range with one state, as in a reply to BLOCK_STATUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes.
    pub bytes: u32,
    /// State: [`crate::wire::STATE_HOLE`] and [`crate::wire::STATE_ZERO`].
    pub state: u32,
}

/// Appends the header of a simple reply; the data of a read follows it.
#[inline]
pub fn simple(out: &mut Vec<u8>, cookie: u64, error: u32) {
    let mut head = [0; 16];
    head[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    head[4..8].copy_from_slice(&error.to_be_bytes());
    head[8..].copy_from_slice(&cookie.to_be_bytes());
    out.extend_from_slice(&head);
}

#[inline]
fn chunk_head(flags: u16, kind: u16, cookie: u64, length: u32) -> [u8; REPLY_HEAD_BYTES] {
    let mut head = [0; REPLY_HEAD_BYTES];
    head[..4].copy_from_slice(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
    head[4..6].copy_from_slice(&flags.to_be_bytes());
    head[6..8].copy_from_slice(&kind.to_be_bytes());
    head[8..16].copy_from_slice(&cookie.to_be_bytes());
    head[16..].copy_from_slice(&length.to_be_bytes());
    head
}

/// Appends the reply to a request that ended well, without data. Only reads and BLOCK_STATUS
/// need structured replies (NBD protocol, "Simple reply message"). A client that receives a
/// reply's fixed part first gets a simple one with one call less.
#[inline]
pub fn success(out: &mut Vec<u8>, session: Session, request: &Request) {
    let is_chunk = matches!(
        request.command(),
        Some(Command::Read | Command::BlockStatus)
    );
    match session.structured && is_chunk {
        true => done(out, request.cookie),
        false => simple(out, request.cookie, 0),
    }
}

/// Appends the last chunk of a reply, without data.
#[inline]
pub(crate) fn done(out: &mut Vec<u8>, cookie: u64) {
    out.extend_from_slice(&chunk_head(REPLY_FLAG_DONE, chunk::NONE, cookie, 0));
}

/// Appends the header of a chunk of data; `length` bytes of data follow it.
///
/// # Panics
/// If there is no data, or more than a chunk can hold.
#[inline]
pub fn data_head(out: &mut Vec<u8>, cookie: u64, offset: u64, length: u32, last: bool) {
    assert!(length > 0, "a chunk of data is never empty");
    let total = length.checked_add(8).expect("no more than a chunk holds");
    let flags = if last { REPLY_FLAG_DONE } else { 0 };
    out.extend_from_slice(&chunk_head(flags, chunk::OFFSET_DATA, cookie, total));
    out.extend_from_slice(&offset.to_be_bytes());
}

/// Appends a chunk for a range of zeroes.
pub fn hole(out: &mut Vec<u8>, cookie: u64, offset: u64, length: u32, last: bool) {
    let flags = if last { REPLY_FLAG_DONE } else { 0 };
    out.extend_from_slice(&chunk_head(flags, chunk::OFFSET_HOLE, cookie, 12));
    out.extend_from_slice(&offset.to_be_bytes());
    out.extend_from_slice(&length.to_be_bytes());
}

/// Appends an error chunk, the last chunk of its reply.
pub fn error(out: &mut Vec<u8>, cookie: u64, code: ErrorCode, message: &str) {
    // The format has 16 bits for the length of the message.
    let message = &message.as_bytes()[..message.len().min(crate::wire::MAX_STRING_BYTES)];
    let length = 6 + message.len() as u32;
    out.extend_from_slice(&chunk_head(REPLY_FLAG_DONE, chunk::ERROR, cookie, length));
    out.extend_from_slice(&(code as u32).to_be_bytes());
    out.extend_from_slice(&(message.len() as u16).to_be_bytes());
    out.extend_from_slice(message);
}

/// Appends extents of `base:allocation`, the last chunk of the reply.
pub fn block_status(out: &mut Vec<u8>, cookie: u64, extents: &[Extent]) {
    let length = 4 + 8 * extents.len() as u32;
    out.extend_from_slice(&chunk_head(
        REPLY_FLAG_DONE,
        chunk::BLOCK_STATUS,
        cookie,
        length,
    ));
    out.extend_from_slice(&BASE_ALLOCATION_ID.to_be_bytes());
    for extent in extents {
        out.extend_from_slice(&extent.bytes.to_be_bytes());
        out.extend_from_slice(&extent.state.to_be_bytes());
    }
}

/// Header of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyHead {
    /// A simple reply; the data of a successful read follows.
    Simple {
        /// Cookie of the request.
        cookie: u64,
        /// Error number; zero for success.
        error: u32,
    },
    /// A chunk; `length` bytes follow.
    Chunk {
        /// Flags: [`REPLY_FLAG_DONE`] for the last chunk.
        flags: u16,
        /// Type of the chunk.
        kind: u16,
        /// Cookie of the request.
        cookie: u64,
        /// Number of bytes that follow.
        length: u32,
    },
}

impl ReplyHead {
    /// Parses the header at the front of `bytes`; also returns its length. `None` while it is
    /// incomplete.
    ///
    /// # Errors
    /// The first word, if it is no magic number of a reply.
    #[inline]
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<(ReplyHead, usize)>, u32> {
        let mut reader = Reader::new(bytes);
        let head = match reader.u32() {
            None => return Ok(None),
            Some(SIMPLE_REPLY_MAGIC) => Self::decode_simple(&mut reader).map(|head| (head, 16)),
            Some(STRUCTURED_REPLY_MAGIC) => {
                Self::decode_chunk(&mut reader).map(|head| (head, REPLY_HEAD_BYTES))
            }
            Some(other) => return Err(other),
        };
        Ok(head)
    }

    fn decode_simple(reader: &mut Reader<'_>) -> Option<ReplyHead> {
        let error = reader.u32()?;
        let cookie = reader.u64()?;
        Some(ReplyHead::Simple { cookie, error })
    }

    fn decode_chunk(reader: &mut Reader<'_>) -> Option<ReplyHead> {
        Some(ReplyHead::Chunk {
            flags: reader.u16()?,
            kind: reader.u16()?,
            cookie: reader.u64()?,
            length: reader.u32()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_client_reads_what_a_server_writes(cookie: u64, offset: u64, len in 1u32..1 << 30) {
            let mut out = Vec::new();
            simple(&mut out, cookie, 5);
            let head = ReplyHead::Simple { cookie, error: 5 };
            prop_assert_eq!(ReplyHead::decode(&out), Ok(Some((head, 16))));
            for cut in 0..16 {
                prop_assert_eq!(ReplyHead::decode(&out[..cut]), Ok(None));
            }
            out.clear();
            data_head(&mut out, cookie, offset, len, true);
            let head = ReplyHead::Chunk {
                flags: REPLY_FLAG_DONE, kind: chunk::OFFSET_DATA, cookie, length: len + 8,
            };
            prop_assert_eq!(ReplyHead::decode(&out), Ok(Some((head, REPLY_HEAD_BYTES))));
            prop_assert_eq!(&out[20..], &offset.to_be_bytes());
        }
    }

    #[test]
    fn heads_tell_how_much_follows() {
        let mut out = Vec::new();
        error(&mut out, 7, ErrorCode::Io, "broken");
        assert_eq!(out.len(), REPLY_HEAD_BYTES + 6 + "broken".len());
        out.clear();
        let extent = Extent {
            bytes: 512,
            state: 3,
        };
        block_status(&mut out, 7, &[extent; 3]);
        let (head, len) = ReplyHead::decode(&out).expect("a reply").expect("whole");
        let ReplyHead::Chunk { length, .. } = head else {
            panic!("a chunk");
        };
        assert_eq!(out.len(), len + length as usize);
        out.clear();
        hole(&mut out, 7, 4096, 512, false);
        assert_eq!(out.len(), REPLY_HEAD_BYTES + 12);
        assert!(ReplyHead::decode(&[0; 20]).is_err());
    }
}
