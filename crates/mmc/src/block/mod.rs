//! The block driver of cards (`drivers/mmc/core/block.c`, `queue.c`).
//!
//! Reads and writes are asynchronous: while one runs the next is prepared, and the
//! one before is looked at when the next is about to start, or by work of its own.
//! Everything else waits until the card is idle and goes alone.

mod attributes;
mod recovery;

pub(crate) use attributes::QUEUE_DEPTH;
pub use attributes::QueueLimits;

use blklab_blk::Op;

use crate::command::{Command, CommandFlags, Data, Direction, Error, Request, Status, opcode};
use crate::core::{Card, CardKind, Core, TRIM};
use crate::host::{Caps, HostSpec};
use crate::registers::{Scr, class};

/// Major number of cards (`MMC_BLOCK_MAJOR`).
pub const MAJOR: u32 = 179;
/// Minors of a disk (`CONFIG_MMC_BLOCK_MINORS` of Debian's kernel).
pub const MINORS: u32 = 256;
/// For how long a card may be busy after a write.
const BUSY_LIMIT_MS: u32 = 10 * 60 * 1000;

/// What the block layer issues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRequest {
    /// What to do.
    pub op: Op,
    /// First sector.
    pub sector: u64,
    /// How many.
    pub sectors: u32,
    /// Whether it has to be on the card when it ends.
    pub fua: bool,
    /// How often it was tried in vain.
    pub retries: u32,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has ended.
    Ended(Result<(), Error>),
    /// It comes back to be issued again: what is left of it.
    Requeued(BlockRequest),
}

/// An area of a card that is a disk of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// What its disk's name ends in.
    pub suffix: &'static str,
    /// Its size in sectors.
    pub sectors: u64,
    /// What the card is told to put it in the place of the user area.
    pub access: u8,
    /// Whether it is a character device for authenticated requests, not a disk.
    pub is_rpmb: bool,
}

impl Area {
    /// The card's areas, its user area first (`mmc_blk_alloc`,
    /// `mmc_blk_alloc_parts`). RPMB is used with CMD23 only.
    pub fn all(card: &Card, host: &HostSpec) -> Vec<Area> {
        let mut areas = vec![Area {
            suffix: "",
            sectors: card.sectors(),
            access: 0,
            is_rpmb: false,
        }];
        if card.kind != CardKind::Mmc {
            return areas;
        }
        let mut add = |suffix, bytes: u64, access, is_rpmb| {
            if bytes > 0 {
                areas.push(Area {
                    suffix,
                    sectors: bytes >> 9,
                    access,
                    is_rpmb,
                });
            }
        };
        add("boot0", card.ext_csd.boot_bytes, 1, false);
        add("boot1", card.ext_csd.boot_bytes, 2, false);
        if host.caps.contains(Caps::CMD23) {
            add("rpmb", card.ext_csd.rpmb_bytes, 3, true);
        }
        areas
    }
}

/// A request with what it is to the card.
#[derive(Clone, Debug)]
struct Issued {
    tag: u32,
    request: BlockRequest,
    commands: Request,
}

/// Reads and writes are counted apart where resets are: each may reset the card once
/// until one gets through.
#[derive(Clone, Copy, Debug, Default)]
struct ResetDone {
    read: bool,
    write: bool,
    discard: bool,
    trim: bool,
}

impl ResetDone {
    fn of(&mut self, op: Op) -> &mut bool {
        match op {
            Op::Read => &mut self.read,
            Op::Write => &mut self.write,
            Op::WriteZeroes => &mut self.trim,
            _ => &mut self.discard,
        }
    }
}

/// The queue of an area (`struct mmc_queue` with its `struct mmc_blk_data`).
#[derive(Debug)]
pub struct Queue {
    area: Area,
    /// Whether CMD23 goes before transfers.
    block_count: bool,
    /// Whether writes can be made reliable.
    reliable_write: bool,
    is_read_only: bool,
    /// It has run, and nobody has looked at it yet.
    previous: Option<Issued>,
    resets: ResetDone,
    outcomes: Vec<(u32, Outcome)>,
}

impl Queue {
    /// The queue of a card's area; `None` if the card has no block commands
    /// (`mmc_blk_probe`).
    pub fn new(core: &Core, area: Area) -> Option<Queue> {
        let card = core.card()?;
        if card.csd.classes & class::BLOCK_READ == 0 || card.kind == CardKind::Sdio {
            return None;
        }
        let knows_count = match card.kind {
            CardKind::Mmc => card.csd.mmca_version >= 3,
            _ => card.scr.commands & Scr::CMD23 != 0,
        };
        let block_count = core.host().spec().caps.contains(Caps::CMD23) && knows_count;
        Some(Queue {
            area,
            block_count,
            reliable_write: block_count && card.ext_csd.has_reliable_write(),
            is_read_only: card.is_read_only || card.csd.classes & class::BLOCK_WRITE == 0,
            previous: None,
            resets: ResetDone::default(),
            outcomes: Vec::new(),
        })
    }

    /// Its area.
    pub fn area(&self) -> &Area {
        &self.area
    }

    /// Whether nothing can be written to it.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// What has become of requests since this was last asked, by their tags.
    pub fn take_outcomes(&mut self) -> Vec<(u32, Outcome)> {
        std::mem::take(&mut self.outcomes)
    }

    /// Whether the request has run and waits for somebody to look at it.
    pub fn has_run(&self, tag: u32) -> bool {
        self.previous
            .as_ref()
            .is_some_and(|previous| previous.tag == tag)
    }

    /// Issues a request (`mmc_blk_mq_issue_rq`). Outcomes, of this one or others, are
    /// told by [`Queue::take_outcomes`].
    pub fn issue(&mut self, core: &mut Core, tag: u32, request: BlockRequest) {
        if request.op != Op::Read && request.op != Op::Write {
            self.complete_previous(core);
        }
        if let Err(error) = core.switch_partition(self.area.access) {
            self.complete_previous(core);
            self.end(tag, Err(error));
            return;
        }
        let done = match request.op {
            Op::Read | Op::Write => return self.issue_transfer(core, tag, request),
            Op::Flush => core.flush_cache(),
            Op::Discard => {
                let arg = core.card().map_or(0, |card| card.erase_arg);
                self.erase(core, request, arg)
            }
            Op::WriteZeroes => self.erase(core, request, TRIM),
            _ => Err(Error::NotSupported),
        };
        self.end(tag, done);
    }

    fn end(&mut self, tag: u32, done: Result<(), Error>) {
        self.outcomes.push((tag, Outcome::Ended(done)));
    }

    /// Erases, and once more after a reset if the card failed
    /// (`mmc_blk_issue_erase_rq`).
    fn erase(&mut self, core: &mut Core, request: BlockRequest, arg: u32) -> Result<(), Error> {
        let Ok(from) = u32::try_from(request.sector) else {
            return Err(Error::Invalid);
        };
        loop {
            match core.erase(from, request.sectors, arg) {
                Err(Error::Io) if self.reset(core, request.op).is_ok() => {}
                Err(error) => return Err(error),
                Ok(()) => {
                    *self.resets.of(request.op) = false;
                    return Ok(());
                }
            }
        }
    }

    /// Prepares a transfer, looks at the one before, and starts
    /// (`mmc_blk_mq_issue_rw_rq`).
    fn issue_transfer(&mut self, core: &mut Core, tag: u32, request: BlockRequest) {
        let Some(mut commands) = self.prepare(core, &request, None) else {
            self.complete_previous(core);
            self.end(tag, Err(Error::NoMedium));
            return;
        };
        let before = self.look_at_previous(core);
        let started = core.start_request(&mut commands);
        if let Some((tag, outcome)) = before {
            self.outcomes.push((tag, outcome));
        }
        match started {
            Ok(()) => {
                self.previous = Some(Issued {
                    tag,
                    request,
                    commands,
                });
            }
            Err(error) => {
                core.release_retune();
                self.end(tag, Err(error));
            }
        }
    }

    /// Looks at the request that has run, if nothing else came that did
    /// (`mmc_blk_mq_complete_work`).
    pub fn complete_work(&mut self, core: &mut Core) {
        self.complete_previous(core);
    }

    fn complete_previous(&mut self, core: &mut Core) {
        let before = self.look_at_previous(core);
        self.outcomes.extend(before);
    }

    /// What became of the request that has run: a card that was written to is asked
    /// until it is no longer busy (`mmc_blk_mq_poll_completion`,
    /// `mmc_blk_mq_complete_rq`).
    fn look_at_previous(&mut self, core: &mut Core) -> Option<(u32, Outcome)> {
        let mut issued = self.previous.take()?;
        let mut left_over = None;
        if recovery::has_error(&mut issued.commands) || self.wait_until_written(core, &mut issued) {
            left_over = self.recover(core, &mut issued);
        } else {
            *self.resets.of(issued.request.op) = false;
            core.release_retune();
        }
        let outcome = left_over.unwrap_or_else(|| issued.outcome(core));
        Some((issued.tag, outcome))
    }

    /// Whether the card says that a write went wrong, once it is no longer busy
    /// (`mmc_blk_card_busy`).
    fn wait_until_written(&mut self, core: &mut Core, issued: &mut Issued) -> bool {
        if issued.request.op == Op::Read {
            return false;
        }
        let mut all = 0;
        let waited = core.poll_while(BUSY_LIMIT_MS, |core| {
            let status = core.send_status(3)?;
            all |= status;
            Ok(!Status::is_ready_for_data(status))
        });
        let wrong = all & recovery::stop_errors(&issued.commands) != 0;
        if let (Some(data), true) = (&mut issued.commands.data, wrong) {
            data.transferred_bytes = 0;
        }
        wrong || waited.is_err()
    }

    /// The commands of a request (`mmc_blk_rw_rq_prep`); `one_at` reads a single
    /// sector of it.
    fn prepare(
        &self,
        core: &mut Core,
        request: &BlockRequest,
        one_at: Option<u64>,
    ) -> Option<Request> {
        let card = core.card()?.clone();
        let direction = match request.op {
            Op::Read => Direction::Read,
            _ => Direction::Write,
        };
        let sector = u32::try_from(one_at.unwrap_or(request.sector)).ok()?;
        let max_blocks = core.host().spec().max_blocks;
        let reliable = request.fua && direction == Direction::Write && self.reliable_write;
        let blocks = match one_at {
            Some(_) => 1,
            None => request.sectors.min(max_blocks),
        };
        let blocks = match reliable {
            true => reliable_blocks(&card, sector, blocks),
            false => blocks,
        };
        let mut data = Data::new(direction, 512, blocks);
        data.sector = sector;
        data.reliable = reliable;
        core.set_data_timeout(&card, &mut data);
        let address = match card.is_block_addressed {
            true => sector,
            false => sector.checked_mul(512)?,
        };
        let many = blocks > 1 || reliable;
        let opcode = match (direction, many) {
            (Direction::Read, false) => opcode::READ_SINGLE_BLOCK,
            (Direction::Read, true) => opcode::READ_MULTIPLE_BLOCK,
            (Direction::Write, false) => opcode::WRITE_BLOCK,
            (Direction::Write, true) => opcode::WRITE_MULTIPLE_BLOCK,
        };
        let flags = CommandFlags::SPI_S1 | CommandFlags::R1;
        let count = Command::new(
            opcode::SET_BLOCK_COUNT,
            blocks | u32::from(reliable) << 31,
            CommandFlags::R1,
        );
        let stop_flags = match direction {
            Direction::Read => flags,
            Direction::Write => CommandFlags::SPI_R1B | CommandFlags::R1B,
        };
        Some(Request {
            set_block_count: (many && self.block_count).then_some(count),
            command: Command::new(opcode, address, flags | CommandFlags::ADTC),
            data: Some(data),
            stop: many.then(|| Command::new(opcode::STOP_TRANSMISSION, 0, stop_flags)),
        })
    }
}

/// How many blocks a reliable write has: any number, or all that the card writes at once,
/// which have to begin at a multiple of that, or one (`mmc_apply_rel_rw`).
fn reliable_blocks(card: &Card, sector: u32, blocks: u32) -> u32 {
    let at_once = card.ext_csd.reliable_sectors;
    match card.ext_csd.any_reliable_write {
        true => blocks,
        false if blocks >= at_once && sector.is_multiple_of(at_once) => at_once,
        false => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reliable_write_is_as_long_as_the_card_takes_at_once() {
        let mut card = Card::default();
        card.ext_csd.reliable_sectors = 8;
        let blocks = |card: &Card, sector, blocks| reliable_blocks(card, sector, blocks);
        assert_eq!([blocks(&card, 16, 64), blocks(&card, 16, 8)], [8, 8]);
        assert_eq!([blocks(&card, 17, 64), blocks(&card, 16, 7)], [1, 1]);
        card.ext_csd.any_reliable_write = true;
        assert_eq!(blocks(&card, 17, 63), 63);
    }
}
