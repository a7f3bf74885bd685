//! The requests of one queue. Each tag belongs either to the kernel, which may assign a request to
//! it, or to this process, until it commits the request.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::{MAX_DEPTH, READ_WRITE, ioctl};

/// `UBLK_U_IO_*`, whose argument has 16 bytes.
pub(super) const FETCH: u32 = ioctl(READ_WRITE, 0x20, 16);
pub(super) const COMMIT_AND_FETCH: u32 = ioctl(READ_WRITE, 0x21, 16);

/// The offset of the requests' data in the character file (`UBLKSRV_IO_BUF_OFFSET`), and the
/// encoding of queue and tag in offsets.
const DATA_OFFSET: u64 = 0x8000_0000;
const TAG_SHIFT: u32 = 25;
const QUEUE_SHIFT: u32 = 41;

/// The user data of the watched event's completion; the other completions have their tag.
const WATCHED: u64 = u64::MAX;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A read, whose data goes to [`Queue::put_data`].
    Read,
    /// A write, whose data comes from [`Queue::take_data`].
    Write,
    /// A flush, which makes completed writes durable.
    Flush,
    /// A discard of a range.
    Discard,
    /// A write of zeroes to a range.
    WriteZeroes {
        /// Whether the range may be deallocated.
        may_unmap: bool,
    },
}

/// A request of the kernel (`struct ublksrv_io_desc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The operation; `None` if it is unknown.
    pub operation: Option<Operation>,
    /// Whether the request must be on stable storage before it completes.
    pub durable: bool,
    /// The first sector, of 512 bytes.
    pub sector: u64,
    /// The number of sectors.
    pub sectors: u32,
}

impl Request {
    fn new(description: Description) -> Request {
        const FUA: u32 = 1 << 13;
        const NO_UNMAP: u32 = 1 << 15;
        let has = |flag| description.op_flags & flag != 0;
        Request {
            operation: match description.op_flags as u8 {
                0 => Some(Operation::Read),
                1 => Some(Operation::Write),
                2 => Some(Operation::Flush),
                3 => Some(Operation::Discard),
                5 => Some(Operation::WriteZeroes {
                    may_unmap: !has(NO_UNMAP),
                }),
                _ => None,
            },
            durable: has(FUA),
            sector: description.start_sector,
            sectors: description.sectors,
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Description {
    op_flags: u32,
    sectors: u32,
    start_sector: u64,
    address: u64,
}

const DESCRIPTION_BYTES: usize = size_of::<Description>();

/// An event of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The tag has a request, until it is committed.
    Request(u16),
    /// The tag will have no more requests, as the device is stopped.
    Ended(u16),
}

/// One queue of a device. The kernel requires that a single thread makes and uses it.
pub struct Queue {
    ring: IoUring,
    device: Arc<File>,
    number: u16,
    depth: u16,
    /// The kernel's request descriptions, by tag.
    descriptions: NonNull<Description>,
    mapped_bytes: usize,
    /// The file descriptor that ends a wait when it becomes readable.
    watched: OwnedFd,
    is_watching: bool,
}

impl Queue {
    /// Starts to fetch the requests of a queue of the device with this character file. `watched`
    /// ends waits when it becomes readable.
    ///
    /// # Errors
    /// Fails if the kernel cannot map the descriptions, or if the queue has a server already.
    pub fn start(
        device: Arc<File>,
        number: u16,
        depth: u16,
        watched: BorrowedFd<'_>,
    ) -> io::Result<Queue> {
        let entries = (u32::from(depth) + 1).next_power_of_two();
        let ring = IoUring::builder()
            .setup_coop_taskrun()
            .setup_single_issuer()
            .build(entries)?;
        let page_bytes = rustix::param::page_size();
        let round = |bytes: usize| bytes.next_multiple_of(page_bytes);
        let mapped_bytes = round(usize::from(depth) * DESCRIPTION_BYTES);
        let offset = usize::from(number) * round(usize::from(MAX_DEPTH) * DESCRIPTION_BYTES);
        // SAFETY: the kernel chooses an unused address, and the mapping remains until the queue is
        // dropped.
        let mapped = unsafe {
            mmap(
                std::ptr::null_mut(),
                mapped_bytes,
                ProtFlags::READ,
                MapFlags::SHARED | MapFlags::POPULATE,
                &device,
                offset as u64,
            )
        }?;
        let descriptions = NonNull::new(mapped.cast()).ok_or(Errno::NOMEM)?;
        let mut queue = Queue {
            ring,
            device,
            number,
            depth,
            descriptions,
            mapped_bytes,
            watched: watched.try_clone_to_owned()?,
            is_watching: false,
        };
        for tag in 0..depth {
            queue.command(FETCH, tag, 0)?;
        }
        queue.ring.submit()?;
        // There are no requests yet, so a completion is a refusal.
        if let Some(entry) = queue.ring.completion().next() {
            return Err(io::Error::from_raw_os_error(-entry.result()));
        }
        Ok(queue)
    }

    /// Returns the most requests of the queue.
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// Returns the request of a tag.
    ///
    /// # Panics
    /// Panics if there is no such tag.
    pub fn request(&self, tag: u16) -> Request {
        assert!(tag < self.depth, "no tag {tag}");
        // SAFETY: the description lies within the mapping, which has one for each tag. The kernel
        // writes to it only while the tag belongs to it, and even a torn value would be a valid
        // number.
        let description = unsafe { self.descriptions.add(tag.into()).as_ptr().read_volatile() };
        Request::new(description)
    }

    /// Copies data of a write into `place`, from byte `at` on.
    ///
    /// # Errors
    /// Fails if the request does not have this data.
    pub fn take_data(&self, tag: u16, at: u32, place: &mut [u8]) -> Result<(), Errno> {
        let mut filled = 0;
        while filled < place.len() {
            let offset = self.data_offset(tag) + u64::from(at) + filled as u64;
            match rustix::io::pread(&*self.device, &mut place[filled..], offset)? {
                0 => return Err(Errno::IO),
                len => filled += len,
            }
        }
        Ok(())
    }

    /// Copies data to a read, from byte `at` on.
    ///
    /// # Errors
    /// Fails if the request is too short for it.
    pub fn put_data(&self, tag: u16, at: u32, data: &[u8]) -> Result<(), Errno> {
        let mut taken = 0;
        while taken < data.len() {
            let offset = self.data_offset(tag) + u64::from(at) + taken as u64;
            match rustix::io::pwrite(&*self.device, &data[taken..], offset)? {
                0 => return Err(Errno::IO),
                len => taken += len,
            }
        }
        Ok(())
    }

    fn data_offset(&self, tag: u16) -> u64 {
        DATA_OFFSET + (u64::from(self.number) << QUEUE_SHIFT | u64::from(tag) << TAG_SHIFT)
    }

    /// Completes a tag's request with its number of bytes or a negative error, and fetches the
    /// tag's next one. The next [`Queue::wait`] submits this to the kernel.
    ///
    /// # Errors
    /// Fails if the kernel accepts no commands.
    pub fn commit(&mut self, tag: u16, result: i32) -> io::Result<()> {
        self.command(COMMIT_AND_FETCH, tag, result)
    }

    fn command(&mut self, code: u32, tag: u16, result: i32) -> io::Result<()> {
        let mut command = [0; 16];
        command[0..2].copy_from_slice(&self.number.to_ne_bytes());
        command[2..4].copy_from_slice(&tag.to_ne_bytes());
        command[4..8].copy_from_slice(&result.to_ne_bytes());
        let file = types::Fd(self.device.as_raw_fd());
        let entry = opcode::UringCmd16::new(file, code).cmd(command).build();
        self.push(entry.user_data(tag.into()))
    }

    fn push(&mut self, entry: squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: the entries contain no addresses. `self` holds the device's file and the
            // watched descriptor.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return Ok(());
            }
            self.ring.submit()?;
        }
    }

    /// Submits the commits to the kernel, and waits at most `limit` for an event.
    ///
    /// # Errors
    /// Fails if the kernel accepts no commands.
    pub fn wait(&mut self, limit: Option<Duration>) -> io::Result<()> {
        if !self.is_watching {
            let file = types::Fd(self.watched.as_raw_fd());
            let entry = opcode::PollAdd::new(file, libc::POLLIN as u32).build();
            self.push(entry.user_data(WATCHED))?;
            self.is_watching = true;
        }
        let waited = match limit {
            None => self.ring.submit_and_wait(1),
            Some(Duration::ZERO) => self.ring.submit(),
            Some(limit) => {
                let limit = types::Timespec::from(limit);
                let limit = types::SubmitArgs::new().timespec(&limit);
                self.ring.submitter().submit_with_args(1, &limit)
            }
        };
        match waited {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // The time has passed, or completions must be taken first.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Whether there are events that were not taken.
    pub fn has_events(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// Appends the events so far. Returns whether the watched descriptor is readable.
    pub fn take_events(&mut self, events: &mut Vec<Event>) -> bool {
        let mut is_readable = false;
        for entry in self.ring.completion() {
            let result = entry.result();
            match entry.user_data() {
                WATCHED => (self.is_watching, is_readable) = (false, true),
                tag if result == 0 => events.push(Event::Request(tag as u16)),
                tag => events.push(Event::Ended(tag as u16)),
            }
        }
        is_readable
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this queue, and no pointers into it remain.
        let _ = unsafe { munmap(self.descriptions.as_ptr().cast(), self.mapped_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_what_the_kernel_describes() {
        let description = |op_flags| Description {
            op_flags,
            sectors: 8,
            start_sector: 100,
            address: 0,
        };
        let request = Request::new(description(1 | 1 << 13));
        assert_eq!(request.operation, Some(Operation::Write));
        assert!(request.durable);
        assert_eq!((request.sector, request.sectors), (100, 8));
        let zeroes = |flags: u32| Request::new(description(5 | flags)).operation;
        assert_eq!(zeroes(0), Some(Operation::WriteZeroes { may_unmap: true }));
        assert_eq!(
            zeroes(1 << 15),
            Some(Operation::WriteZeroes { may_unmap: false })
        );
        // A report of zones (`UBLK_IO_OP_REPORT_ZONES`).
        assert_eq!(Request::new(description(18)).operation, None);
    }
}
