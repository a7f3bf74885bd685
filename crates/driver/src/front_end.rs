//! The ways from a request queue to a program that serves it, one queue each: what a request takes
//! up there, and when the other side must be notified.

use core::fmt;

use blklab_blk::{Op, Request, SECTORS_PER_PAGE};

/// A way from a request queue to a program of user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontEndKind {
    /// NBD (`drivers/block/nbd.c`): a socket for each queue.
    Nbd,
    /// virtio-blk (`drivers/block/virtio_blk.c`) with a vhost-user server: a vring for each queue.
    VhostUser,
    /// ublk (`drivers/block/ublk_drv.c`): io_uring commands, and data that the server copies.
    Ublk,
    /// TCMU (`drivers/target/target_core_user.c`) under tcm_loop: one ring of SCSI commands.
    Tcmu,
}

impl FrontEndKind {
    /// All of them.
    pub const ALL: [FrontEndKind; 4] = [
        FrontEndKind::Nbd,
        FrontEndKind::VhostUser,
        FrontEndKind::Ublk,
        FrontEndKind::Tcmu,
    ];

    /// The name that commands and descriptions use.
    pub fn name(self) -> &'static str {
        match self {
            FrontEndKind::Nbd => "nbd",
            FrontEndKind::VhostUser => "vhost-user",
            FrontEndKind::Ublk => "ublk",
            FrontEndKind::Tcmu => "tcmu",
        }
    }

    /// Requests of one queue: `tag_set.queue_depth` of nbd, descriptors of QEMU's vhost-user-blk,
    /// the depth that `blklab serve` asks ublk for, and `can_queue` of tcm_loop.
    pub(crate) fn queue_depth(self) -> u32 {
        match self {
            FrontEndKind::Nbd => 128,
            FrontEndKind::Ublk => u32::from(UBLK_DEPTH),
            FrontEndKind::VhostUser => u32::from(VRING_DESCRIPTORS),
            FrontEndKind::Tcmu => 1024,
        }
    }

    /// The longest request in bytes, where `blklab serve` asks for a limit.
    pub(crate) fn max_io_bytes(self) -> Option<u32> {
        (self == FrontEndKind::Ublk).then_some(UBLK_MAX_IO_BYTES)
    }

    /// Queues that a kernel on this many CPUs has where `wanted` are asked for.
    pub fn queues(self, wanted: u32, nr_cpus: usize) -> usize {
        match self {
            FrontEndKind::Nbd | FrontEndKind::VhostUser => (wanted as usize).clamp(1, nr_cpus),
            FrontEndKind::Ublk => nr_cpus,
            FrontEndKind::Tcmu => 1,
        }
    }

    pub(crate) fn new_channel(self) -> Channel {
        match self {
            FrontEndKind::Nbd => Channel::Socket(Socket::default()),
            FrontEndKind::VhostUser => Channel::Vring(Vring::new(VRING_DESCRIPTORS, true)),
            FrontEndKind::Ublk => Channel::Uring,
            FrontEndKind::Tcmu => Channel::Mailbox(Mailbox::new(CMDR_BYTES, DATA_BLOCKS)),
        }
    }
}

/// A front end with its number of queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrontEnd {
    /// Which one.
    pub kind: FrontEndKind,
    /// Connections of NBD, or queues of vhost-user.
    pub queues: u32,
}

impl fmt::Display for FrontEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.queues {
            1 => f.write_str(self.kind.name()),
            queues => write!(f, "{}:{queues}", self.kind.name()),
        }
    }
}

/// What a request occupies between its sending and its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Occupied {
    /// Descriptors, bytes of a socket or bytes of a ring.
    entry: u32,
    /// Blocks of the data area.
    blocks: u32,
}

/// Pages of a request's data.
pub(crate) fn pages(op: Op, sectors: u32) -> u32 {
    match op {
        Op::Read | Op::Write => sectors.div_ceil(SECTORS_PER_PAGE),
        Op::Flush | Op::Discard | Op::WriteZeroes | Op::Zone(_) => 0,
    }
}

/// The way of one queue's requests.
#[derive(Debug)]
pub(crate) enum Channel {
    Socket(Socket),
    Vring(Vring),
    /// Each tag has an io_uring command that waits for a request, so there is always room.
    Uring,
    Mailbox(Mailbox),
}

impl Channel {
    /// Makes room for a request and sends it; `None` where there is no room.
    pub(crate) fn send(&mut self, rq: &Request) -> Option<Occupied> {
        match self {
            Channel::Socket(socket) => socket.send(rq),
            Channel::Vring(vring) => vring.add(rq),
            Channel::Uring => Some(Occupied::default()),
            Channel::Mailbox(mailbox) => mailbox.add(rq),
        }
    }

    /// The server has taken a request.
    pub(crate) fn taken(&mut self, room: Occupied) {
        if let Channel::Socket(socket) = self {
            socket.buffered_bytes -= room.entry;
        }
    }

    /// The kernel has seen the end of a request.
    pub(crate) fn ended(&mut self, room: Occupied) {
        match self {
            Channel::Socket(_) | Channel::Uring => {}
            Channel::Vring(vring) => vring.free += room.entry as u16,
            Channel::Mailbox(mailbox) => mailbox.free(room),
        }
    }

    /// The server goes to sleep, and wants a notification of the next request.
    pub(crate) fn listen(&mut self) {
        if let Channel::Vring(vring) = self {
            vring.enable_kicks();
        }
    }

    /// Whether the server, which sleeps or not, must be notified of what was sent since this
    /// was last asked.
    pub(crate) fn must_notify_server(&mut self, sleeps: bool) -> bool {
        match self {
            Channel::Vring(vring) => vring.needs_kick(),
            // Waking a thread that runs costs next to nothing.
            Channel::Socket(_) | Channel::Uring | Channel::Mailbox(_) => sleeps,
        }
    }

    /// The server has answered this many requests. Returns whether the kernel must be notified.
    pub(crate) fn answer(&mut self, answers: u16) -> bool {
        match self {
            Channel::Vring(vring) => vring.push_used(answers),
            Channel::Socket(_) | Channel::Uring | Channel::Mailbox(_) => true,
        }
    }

    /// The kernel has handled all answers, and wants a notification of the next.
    pub(crate) fn answers_are_handled(&mut self) {
        if let Channel::Vring(vring) = self {
            vring.used_event = vring.used_index;
        }
    }
}

/// `net.core.wmem_default`.
const SOCKET_BYTES: u32 = 212_992;
/// `struct nbd_request`.
const NBD_HEADER_BYTES: u32 = 28;

/// A connection of nbd: requests, and the data of writes, lie in the socket until the server reads
/// them.
#[derive(Debug, Default)]
pub(crate) struct Socket {
    buffered_bytes: u32,
}

impl Socket {
    /// The kernel's sender sleeps while the socket is full (`sock_xmit`); here the request waits in
    /// its queue, and an empty socket takes one of any length.
    fn send(&mut self, rq: &Request) -> Option<Occupied> {
        let data_bytes = match rq.op {
            Op::Write => rq.sectors << 9,
            _ => 0,
        };
        let bytes = NBD_HEADER_BYTES + data_bytes;
        if self.buffered_bytes > 0 && self.buffered_bytes + bytes > SOCKET_BYTES {
            return None;
        }
        self.buffered_bytes += bytes;
        Some(Occupied {
            entry: bytes,
            blocks: 0,
        })
    }
}

/// `queue-size` of QEMU's vhost-user-blk.
const VRING_DESCRIPTORS: u16 = 128;

/// A split virtqueue (virtio 1.2, 2.7) as both sides count it.
#[derive(Debug)]
pub(crate) struct Vring {
    /// Descriptors that no request has.
    free: u16,
    descriptors: u16,
    /// A request's descriptors are in a table of its own (`VIRTIO_F_INDIRECT_DESC`).
    is_indirect: bool,
    /// Requests made available, ever; both sides count modulo 65536.
    available_index: u16,
    /// The same when it was last found out whether to kick.
    kicked_index: u16,
    /// The server wants a kick once `available_index` passes this (`VIRTIO_F_EVENT_IDX`).
    available_event: u16,
    /// Requests answered, ever.
    used_index: u16,
    /// The guest wants an interrupt once `used_index` passes this.
    used_event: u16,
}

impl Vring {
    fn new(descriptors: u16, is_indirect: bool) -> Vring {
        Vring {
            free: descriptors,
            descriptors,
            is_indirect,
            available_index: 0,
            kicked_index: 0,
            available_event: 0,
            used_index: 0,
            used_event: 0,
        }
    }

    fn add(&mut self, rq: &Request) -> Option<Occupied> {
        // A header and a status beside the data.
        let chain = rq.segments.saturating_add(2).min(self.descriptors);
        let needed = if self.is_indirect { 1 } else { chain };
        self.free = self.free.checked_sub(needed)?;
        self.available_index = self.available_index.wrapping_add(1);
        Some(Occupied {
            entry: needed.into(),
            blocks: 0,
        })
    }

    fn enable_kicks(&mut self) {
        self.available_event = self.available_index;
    }

    fn needs_kick(&mut self) -> bool {
        let old = core::mem::replace(&mut self.kicked_index, self.available_index);
        passes(self.available_event, self.available_index, old)
    }

    fn push_used(&mut self, answers: u16) -> bool {
        let old = self.used_index;
        self.used_index = old.wrapping_add(answers);
        passes(self.used_event, self.used_index, old)
    }
}

/// `vring_need_event`: whether an index that went from `old` to `new` passed `event`.
fn passes(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

/// The depth of a queue of ublk that `blklab serve` asks for, in requests.
pub const UBLK_DEPTH: u16 = 128;
/// The longest read or write of ublk that it asks for, in bytes.
pub const UBLK_MAX_IO_BYTES: u32 = 512 << 10;
/// The size of TCMU's data area that it asks for, in MiB; the kernel allocates it when needed.
pub const TCMU_DATA_MIB: u32 = 128;

/// `MB_CMDR_SIZE_DEF` of target_core_user.
const CMDR_BYTES: u32 = 8 << 20;
/// Pages of the data area.
const DATA_BLOCKS: u32 = TCMU_DATA_MIB * 256;
/// `struct tcmu_cmd_entry` with one `iovec`, and a CDB of 16 bytes behind it.
const TCMU_ENTRY_BYTES: u32 = 80;
/// `struct iovec`.
const IOVEC_BYTES: u32 = 16;

/// The memory that TCMU shares with its server: a ring of commands and an area for data.
#[derive(Debug)]
pub(crate) struct Mailbox {
    ring_bytes: u32,
    blocks: u32,
    in_flight: u32,
}

impl Mailbox {
    fn new(ring_bytes: u32, blocks: u32) -> Mailbox {
        Mailbox {
            ring_bytes,
            blocks,
            in_flight: 0,
        }
    }

    fn add(&mut self, rq: &Request) -> Option<Occupied> {
        let blocks = pages(rq.op, rq.sectors);
        let vectors = u32::from(rq.segments.max(1)) - 1;
        let bytes = TCMU_ENTRY_BYTES + vectors * IOVEC_BYTES;
        let has_room = bytes <= self.ring_bytes && blocks <= self.blocks;
        // A command that the whole area could not hold would wait for ever.
        if !has_room && self.in_flight > 0 {
            return None;
        }
        let room = Occupied {
            entry: bytes.min(self.ring_bytes),
            blocks: blocks.min(self.blocks),
        };
        self.ring_bytes -= room.entry;
        self.blocks -= room.blocks;
        self.in_flight += 1;
        Some(room)
    }

    fn free(&mut self, room: Occupied) {
        self.ring_bytes += room.entry;
        self.blocks += room.blocks;
        self.in_flight -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blklab_blk::{Bio, Nanos, Sector};
    use proptest::prelude::*;

    fn request(op: Op, sectors: u32, segments: u16) -> Request {
        let mut rq = Request::for_bio(&Bio::new(op, Sector(0), sectors), Nanos::ZERO);
        rq.segments = segments;
        rq
    }

    #[test]
    fn a_vring_has_room_for_its_descriptors() {
        let rq = request(Op::Write, 32, 4);
        let mut direct = Vring::new(16, false);
        let rooms: Vec<_> = (0..3).map(|_| direct.add(&rq)).collect();
        assert_eq!(rooms[1].map(|room| room.entry), Some(6));
        assert_eq!((rooms[2], direct.free), (None, 4));
        let mut channel = Channel::Vring(direct);
        channel.ended(rooms[0].expect("it had room"));
        assert!(channel.send(&rq).is_some());
        let mut indirect = Vring::new(16, true);
        assert_eq!((0..20).filter_map(|_| indirect.add(&rq)).count(), 16);
    }

    /// A request goes into a socket that it fills, and one of any length into an empty one.
    #[test]
    fn a_socket_takes_what_fits() {
        for (buffered_bytes, op, sectors, fits) in [
            (SOCKET_BYTES - 28, Op::Read, 8, true),
            (SOCKET_BYTES - 27, Op::Read, 8, false),
            (SOCKET_BYTES - 28 - 4096, Op::Write, 8, true),
            (SOCKET_BYTES - 28 - 4095, Op::Write, 8, false),
            (0, Op::Write, 1024, true),
            (1, Op::Write, 1024, false),
        ] {
            let mut socket = Socket { buffered_bytes };
            let taken = socket.send(&request(op, sectors, 1));
            assert_eq!(taken.is_some(), fits, "{buffered_bytes} {op:?}");
        }
    }

    #[test]
    fn kicks_come_only_to_a_server_that_sleeps() {
        let mut channel = FrontEndKind::VhostUser.new_channel();
        let rq = request(Op::Read, 8, 1);
        for round in 0..70_000 {
            assert!(channel.send(&rq).is_some());
            assert!(channel.must_notify_server(true), "{round}");
            // It runs, and finds what comes meanwhile by itself.
            let room = channel.send(&rq).expect("room");
            assert!(!channel.must_notify_server(false));
            assert!(!channel.must_notify_server(true), "nothing was sent");
            channel.ended(room);
            channel.ended(room);
            channel.listen();
        }
    }

    #[test]
    fn interrupts_come_only_to_a_guest_that_has_handled_the_last() {
        let mut channel = FrontEndKind::VhostUser.new_channel();
        assert!(channel.answer(3));
        assert!(!channel.answer(2), "its handler is under way");
        channel.answers_are_handled();
        assert!(channel.answer(1));
    }

    #[test]
    fn a_socket_holds_so_many_writes() {
        let mut socket = FrontEndKind::Nbd.new_channel();
        let write = request(Op::Write, 64, 8);
        let sent: Vec<_> = std::iter::from_fn(|| socket.send(&write)).collect();
        assert_eq!(sent.len(), 6);
        socket.taken(sent[0]);
        assert!(socket.send(&write).is_some());
        let long = request(Op::Write, 2560, 8);
        assert!(Socket::default().send(&long).is_some());
    }

    #[test]
    fn a_data_area_holds_so_many_blocks() {
        let mut mailbox = Channel::Mailbox(Mailbox::new(4096, 10));
        let write = request(Op::Write, 32, 4);
        let sent: Vec<_> = std::iter::from_fn(|| mailbox.send(&write)).collect();
        assert_eq!(sent.len(), 2);
        mailbox.ended(sent[0]);
        mailbox.ended(sent[1]);
        // One that is longer than all of it comes alone.
        let long = mailbox.send(&request(Op::Write, 800, 100)).expect("alone");
        assert!(mailbox.send(&request(Op::Flush, 0, 0)).is_some());
        assert_eq!(mailbox.send(&write), None);
        mailbox.ended(long);
        assert!(mailbox.send(&write).is_some());
    }

    #[test]
    fn a_front_end_is_shown_with_its_queues_if_it_has_several() {
        let shown = |kind, queues| FrontEnd { kind, queues }.to_string();
        let one = FrontEndKind::ALL.map(|kind| shown(kind, 1));
        assert_eq!(one, ["nbd", "vhost-user", "ublk", "tcmu"]);
        assert_eq!(shown(FrontEndKind::VhostUser, 3), "vhost-user:3");
    }

    /// What a request occupies of a channel, and all that the channel has: bytes of a socket,
    /// descriptors, or bytes of TCMU's ring and blocks of its data area.
    fn model(kind: FrontEndKind, rq: &Request) -> ([u64; 2], [u64; 2]) {
        let pages = match rq.op {
            Op::Read | Op::Write => u64::from(rq.sectors).div_ceil(8),
            _ => 0,
        };
        let sent = if rq.op == Op::Write {
            u64::from(rq.sectors) * 512
        } else {
            0
        };
        let vectors = u64::from(rq.segments.max(1));
        match kind {
            FrontEndKind::Nbd => ([28 + sent, 0], [212_992, 0]),
            FrontEndKind::VhostUser => ([1, 0], [128, 0]),
            FrontEndKind::Ublk => ([0, 0], [0, 0]),
            FrontEndKind::Tcmu => ([64 + 16 * vectors, pages], [4096, 600]),
        }
    }

    proptest! {
        /// A channel takes a request if all that is in it leaves room, and one that is longer than
        /// the whole channel if nothing else is in it.
        #[test]
        fn a_channel_takes_what_it_has_room_for(
            kind in 0..4_usize,
            steps in prop::collection::vec((0..4_u8, 1..1000_u32, 0..60_u16, 0..20_usize), 1..200),
        ) {
            let kind = FrontEndKind::ALL[kind];
            let mut channel = match kind {
                FrontEndKind::Tcmu => Channel::Mailbox(Mailbox::new(4096, 600)),
                kind => kind.new_channel(),
            };
            let mut inside: Vec<(Occupied, [u64; 2])> = Vec::new();
            for (step, sectors, segments, place) in steps {
                if step == 0 && !inside.is_empty() {
                    let (room, _) = inside.swap_remove(place % inside.len());
                    channel.taken(room);
                    channel.ended(room);
                    continue;
                }
                let rq = match step {
                    1 => request(Op::Read, sectors, segments),
                    2 => request(Op::Flush, 0, 0),
                    _ => request(Op::Write, sectors, segments),
                };
                let (needs, all) = model(kind, &rq);
                let used = |of: usize| inside.iter().map(|(_, used)| used[of]).sum::<u64>();
                let fits = (0..2).all(|of| used(of) + needs[of] <= all[of]);
                let is_alone = inside.is_empty() && kind != FrontEndKind::VhostUser;
                let room = channel.send(&rq);
                prop_assert_eq!(room.is_some(), fits || is_alone);
                let taken = match kind {
                    FrontEndKind::Tcmu => [needs[0].min(all[0]), needs[1].min(all[1])],
                    _ => needs,
                };
                inside.extend(room.map(|room| (room, taken)));
            }
        }
    }
}
