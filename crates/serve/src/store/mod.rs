//! Where the data is.
//!
//! A store carries out [`Work`]: what the block layer made of requests, merged
//! or not. Memory does so at once; a file through threads that may sleep.

mod file;
mod kernel;
mod memory;
mod remote;
mod threads;

use std::os::fd::BorrowedFd;

use blklab_blk::{IoStatus, RequestId};
use blklab_nbd::{BlockSizes, Extent};

use crate::buffers::Buffer;
use crate::io::IoId;

pub(crate) use file::{FileOptions, FileStore};
pub(crate) use memory::Memory;
pub(crate) use remote::{RemoteOptions, RemoteStore};

/// One client's piece of a request.
#[derive(Debug)]
pub(crate) struct Segment {
    /// Whose it is.
    pub(crate) io: u32,
    /// Which of its buffers it is.
    pub(crate) part: u32,
    /// Where, in bytes.
    pub(crate) offset: u64,
    /// How much, in bytes.
    pub(crate) length: u64,
    /// The data of a read or write.
    pub(crate) data: Buffer,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Fills the segments.
    Read,
    /// Stores the segments.
    Write,
    /// Makes finished writes durable.
    Flush,
    /// Gives the segments' ranges up.
    Discard,
    /// Makes the segments' ranges read as zeroes.
    Zero {
        /// The range may become a hole.
        may_punch: bool,
        /// Fail rather than write zeroes.
        only_fast: bool,
    },
    /// Tells what is data and what is not, at most so many extents of it.
    Extents { max: usize },
}

/// Whom work is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A request of the block layer.
    Request(RequestId),
    /// A client's request that goes past the block layer.
    Client(IoId),
    /// The store itself, which is about to end.
    Closing,
}

/// A request on its way through a store.
#[derive(Debug)]
pub(crate) struct Work {
    /// Whom it is for.
    pub(crate) owner: Owner,
    /// What is to be done.
    pub(crate) action: Action,
    /// On stable storage before it ends.
    pub(crate) fua: bool,
    /// Where; in order of place and without gaps.
    pub(crate) segments: Vec<Segment>,
    /// What [`Action::Extents`] found.
    pub(crate) extents: Vec<Extent>,
}

impl Work {
    /// Makes finished writes durable.
    pub(crate) fn flush(owner: Owner) -> Work {
        Work {
            owner,
            action: Action::Flush,
            fua: false,
            segments: Vec::new(),
            extents: Vec::new(),
        }
    }
}

/// A request that a store carried out.
#[derive(Debug)]
pub(crate) struct Done {
    /// The work, with its buffers.
    pub(crate) work: Work,
    /// How it went.
    pub(crate) status: IoStatus,
}

/// What a store is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nature {
    /// Size in bytes.
    pub(crate) size_bytes: u64,
    /// Sizes of requests.
    pub(crate) block_sizes: BlockSizes,
    /// Finished writes are not durable until flushed.
    pub(crate) write_cache: bool,
    /// Nothing may be written.
    pub(crate) read_only: bool,
}

/// A store.
pub(crate) enum Store {
    /// Memory.
    Memory(Memory),
    /// A file or block device.
    File(FileStore),
    /// Another NBD server.
    Remote(RemoteStore),
}

impl Store {
    /// Extents of a range: at least one, at most `max`. `false` where they are
    /// not known at once: [`Action::Extents`] is for that.
    pub(crate) fn extents(
        &self,
        offset: u64,
        length: u32,
        max: usize,
        out: &mut Vec<Extent>,
    ) -> Result<bool, IoStatus> {
        match self {
            Store::Memory(memory) => {
                memory.extents(offset, length, max, out);
                Ok(true)
            }
            Store::File(file) => file.extents(offset, length, max, out).map(|()| true),
            Store::Remote(_) => Ok(false),
        }
    }

    /// Says that a range will be read.
    pub(crate) fn prefetch(&self, offset: u64, length: u32) {
        if let Store::File(file) = self {
            file.prefetch(offset, length);
        }
    }

    /// Makes everything durable before the server ends.
    pub(crate) fn close(&mut self) -> Result<(), String> {
        match self {
            Store::Memory(_) => Ok(()),
            Store::File(file) => file.close(),
            Store::Remote(remote) => remote.close(),
        }
    }

    /// What is readable when [`Store::take_done`] has something.
    pub(crate) fn events(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Store::Memory(_) => Vec::new(),
            Store::File(file) => file.events(),
            Store::Remote(remote) => vec![remote.threads().event()],
        }
    }

    /// Takes work that is not done at once.
    pub(crate) fn submit(&mut self, work: Work) {
        match self {
            // Its work is done as it is issued.
            Store::Memory(_) => {}
            Store::File(file) => file.submit(work),
            Store::Remote(remote) => remote.threads().submit(work),
        }
    }

    /// Hands on what was submitted.
    #[inline]
    pub(crate) fn kick(&mut self) {
        if let Store::File(file) = self {
            file.kick();
        }
    }

    /// Appends what is done.
    pub(crate) fn take_done(&mut self, out: &mut Vec<Done>) {
        match self {
            Store::Memory(_) => {}
            Store::File(file) => file.take_done(out),
            Store::Remote(remote) => remote.threads().take_done(out),
        }
    }
}

/// Appends an extent, as part of the last where that is of the same kind.
pub(crate) fn push_extent(out: &mut Vec<Extent>, bytes: u32, state: u32) {
    match out.last_mut() {
        Some(last) if last.state == state => last.bytes += bytes,
        _ => out.push(Extent { bytes, state }),
    }
}

/// How the block layer calls an error of the system.
pub(crate) fn status_of(error: rustix::io::Errno) -> IoStatus {
    use rustix::io::Errno;
    match error {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => IoStatus::NoSpace,
        Errno::OPNOTSUPP => IoStatus::NotSupported,
        _ => IoStatus::IoError,
    }
}
