//! Replies to a client that cares when they end, and not for their data.

use blklab_nbd::ReplyHead;
use blklab_nbd::wire::{REPLY_FLAG_DONE, chunk};
use rustix::io::Errno;

use crate::channel::Channel;
use crate::client::broken;

/// Room for what one read of the socket brings.
const INPUT_BYTES: usize = 256 << 10;

/// A piece of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    /// The request's handle.
    pub(crate) cookie: u64,
    /// The server failed it.
    pub(crate) failed: bool,
    /// Nothing more comes for it.
    pub(crate) is_last: bool,
}

/// What a connection has brought.
pub(crate) struct Replies {
    input: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes of data that are on their way.
    skip: usize,
}

impl Replies {
    pub(crate) fn new() -> Replies {
        Replies {
            input: vec![0; INPUT_BYTES],
            start: 0,
            end: 0,
            skip: 0,
        }
    }

    /// Reads once from a connection; false where it would have to wait.
    ///
    /// # Errors
    /// Where the connection is at its end.
    pub(crate) fn read(&mut self, channel: &mut Channel) -> Result<bool, String> {
        self.input.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        match channel.read(&mut self.input[self.end..]) {
            Ok(0) => Err("the server hung up".to_string()),
            Ok(len) => {
                self.end += len;
                Ok(true)
            }
            Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(broken(error)),
        }
    }

    /// The next piece of a reply that was read; `None` where more must be read
    /// first. `data_of` tells how many bytes a simple reply to a request brings
    /// where nothing failed: it does not tell itself.
    ///
    /// # Errors
    /// Where what comes is no reply.
    pub(crate) fn next(
        &mut self,
        data_of: impl FnOnce(u64) -> usize,
    ) -> Result<Option<Heard>, String> {
        let skipped = self.skip.min(self.end - self.start);
        self.start += skipped;
        self.skip -= skipped;
        if self.skip > 0 {
            return Ok(None);
        }
        let head = ReplyHead::decode(&self.input[self.start..self.end])
            .map_err(|magic| format!("a reply starts with {magic:#x}"))?;
        let Some((head, len)) = head else {
            return Ok(None);
        };
        self.start += len;
        let heard = match head {
            ReplyHead::Simple { cookie, error } => {
                let failed = error != 0;
                self.skip = if failed { 0 } else { data_of(cookie) };
                Heard {
                    cookie,
                    failed,
                    is_last: true,
                }
            }
            ReplyHead::Chunk {
                flags,
                kind,
                cookie,
                length,
            } => {
                self.skip = length as usize;
                Heard {
                    cookie,
                    failed: kind == chunk::ERROR || kind == chunk::ERROR_OFFSET,
                    is_last: flags & REPLY_FLAG_DONE != 0,
                }
            }
        };
        Ok(Some(heard))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_nbd::wire::ErrorCode;
    use blklab_nbd::{data_head, done, error, simple};

    /// What is heard of bytes that come a few at a time.
    fn heard(bytes: &[u8], step: usize) -> Vec<(u64, bool, bool)> {
        let mut replies = Replies::new();
        let mut heard = Vec::new();
        for part in bytes.chunks(step) {
            replies.input[replies.end..][..part.len()].copy_from_slice(part);
            replies.end += part.len();
            while let Some(piece) = replies.next(|_| 512).expect("replies") {
                heard.push((piece.cookie, piece.failed, piece.is_last));
            }
        }
        assert_eq!((replies.start, replies.skip), (replies.end, 0));
        heard
    }

    #[test]
    fn data_is_passed_over_however_it_comes() {
        let mut bytes = Vec::new();
        let data = [0x67; 512];
        simple(&mut bytes, 1, 0);
        bytes.extend_from_slice(&data);
        simple(&mut bytes, 2, 5);
        data_head(&mut bytes, 3, 0, 512, false);
        bytes.extend_from_slice(&data);
        error(&mut bytes, 4, ErrorCode::Io, "broken");
        done(&mut bytes, 3);
        let all = [
            (1, false, true),
            (2, true, true),
            (3, false, false),
            (4, true, true),
            (3, false, true),
        ];
        for step in [1, 7, 16, 20, 100, bytes.len()] {
            assert_eq!(heard(&bytes, step), all, "{step}");
        }
        let mut replies = Replies::new();
        replies.end = 16;
        assert!(replies.next(|_| 0).is_err());
    }
}
