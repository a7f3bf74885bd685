//! The supported commands and their descriptor blocks (CDBs).

use crate::sense::Sense;

/// Bytes of the longest command descriptor block.
pub const CDB_BYTES: usize = 16;

/// Adjacent blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first block.
    pub lba: u64,
    /// The number of blocks.
    pub blocks: u64,
}

/// The comparison that VERIFY makes (the BYTCHK field).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteCheck {
    /// None; the blocks are only read.
    None,
    /// With data of the same length.
    All,
    /// Of each block with one block of data.
    OneBlock,
}

/// The commands that REPORT SUPPORTED OPERATION CODES asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opcodes {
    /// All commands.
    All,
    /// One, by its operation code.
    One(u8),
    /// One, by its operation code and service action.
    Action(u8, u16),
    /// One, by its operation code and, if it has service actions, by its service action.
    Either(u8, u16),
}

/// A command with the fields of its descriptor block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    TestUnitReady,
    RequestSense {
        descriptor: bool,
        allocation: usize,
    },
    Inquiry {
        page: Option<u8>,
        allocation: usize,
    },
    ModeSense {
        is_long: bool,
        /// Whether the block descriptor is left out (DBD).
        no_descriptor: bool,
        long_lba: bool,
        /// PC and PAGE CODE in one byte.
        page: u8,
        subpage: u8,
        allocation: usize,
    },
    ModeSelect {
        is_long: bool,
        list_bytes: usize,
    },
    StartStop {
        start: bool,
        no_flush: bool,
    },
    ReadCapacity10,
    ReadCapacity16 {
        allocation: usize,
    },
    GetLbaStatus {
        lba: u64,
        allocation: usize,
    },
    ReportLuns {
        select: u8,
        allocation: usize,
    },
    ReportOpcodes {
        which: Opcodes,
        with_timeouts: bool,
        allocation: usize,
    },
    Read {
        extent: Extent,
    },
    Write {
        extent: Extent,
        fua: bool,
    },
    Verify {
        extent: Extent,
        check: ByteCheck,
    },
    SynchronizeCache {
        extent: Extent,
    },
    WriteSame {
        extent: Extent,
        unmap: bool,
        /// Whether zeroes are written without data from the initiator (NDOB).
        no_data: bool,
    },
    CompareAndWrite {
        extent: Extent,
        fua: bool,
    },
    Unmap {
        list_bytes: usize,
    },
}

/// A supported command.
pub(crate) struct Supported {
    /// The service action, in the low five bits of the second byte.
    pub(crate) service_action: Option<u8>,
    /// The CDB usage data of REPORT SUPPORTED OPERATION CODES (SPC-4, section 6.27.3): the
    /// operation code, then the bits that may be set in each further byte.
    pub(crate) usage: &'static [u8],
    parse: fn(&[u8]) -> Result<Command, Sense>,
}

impl Supported {
    pub(crate) fn opcode(&self) -> u8 {
        self.usage[0]
    }

    const fn new(usage: &'static [u8], parse: fn(&[u8]) -> Result<Command, Sense>) -> Supported {
        Supported {
            service_action: None,
            usage,
            parse,
        }
    }

    const fn action(mut self, action: u8) -> Supported {
        self.service_action = Some(action);
        self
    }
}

/// The supported commands in the order of their operation codes.
pub(crate) const COMMANDS: [Supported; 29] = [
    // TEST UNIT READY.
    Supported::new(&[0x00, 0, 0, 0, 0, 0], |_| Ok(Command::TestUnitReady)),
    // REQUEST SENSE.
    Supported::new(&[0x03, 1, 0, 0, 0xff, 0], |cdb| {
        Ok(Command::RequestSense {
            descriptor: cdb[1] & 1 != 0,
            allocation: cdb[4].into(),
        })
    }),
    // READ(6).
    Supported::new(&[0x08, 0x1f, 0xff, 0xff, 0xff, 0], |cdb| {
        let extent = extent_6(cdb);
        Ok(Command::Read { extent })
    }),
    // WRITE(6).
    Supported::new(&[0x0a, 0x1f, 0xff, 0xff, 0xff, 0], |cdb| {
        Ok(Command::Write {
            extent: extent_6(cdb),
            fua: false,
        })
    }),
    // INQUIRY.
    Supported::new(&[0x12, 1, 0xff, 0xff, 0xff, 0], |cdb| {
        let has_page = cdb[1] & 1 != 0;
        if !has_page && cdb[2] != 0 {
            return Err(Sense::invalid_field(2));
        }
        Ok(Command::Inquiry {
            page: has_page.then_some(cdb[2]),
            allocation: number(&cdb[3..5]) as usize,
        })
    }),
    // MODE SELECT(6).
    Supported::new(&[0x15, 0x11, 0, 0, 0xff, 0], |cdb| {
        mode_select(cdb, false, cdb[4].into())
    }),
    // MODE SENSE(6).
    Supported::new(&[0x1a, 0x08, 0xff, 0xff, 0xff, 0], |cdb| {
        Ok(mode_sense(cdb, false, cdb[4].into()))
    }),
    // START STOP UNIT.
    Supported::new(&[0x1b, 1, 0, 0, 0x05, 0], |cdb| {
        Ok(Command::StartStop {
            start: cdb[4] & 1 != 0,
            no_flush: cdb[4] & 4 != 0,
        })
    }),
    // READ CAPACITY(10).
    Supported::new(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], |_| {
        Ok(Command::ReadCapacity10)
    }),
    // READ(10).
    Supported::new(&rw_10(0x28, 0x18), |cdb| {
        let extent = extent_10(cdb);
        Ok(Command::Read { extent })
    }),
    // WRITE(10).
    Supported::new(&rw_10(0x2a, 0x18), |cdb| {
        Ok(Command::Write {
            extent: extent_10(cdb),
            fua: has_fua(cdb),
        })
    }),
    // VERIFY(10).
    Supported::new(&rw_10(0x2f, 0x16), |cdb| verify(cdb, extent_10(cdb))),
    // SYNCHRONIZE CACHE(10).
    Supported::new(&rw_10(0x35, 0x02), |cdb| {
        let extent = extent_10(cdb);
        Ok(Command::SynchronizeCache { extent })
    }),
    // WRITE SAME(10).
    Supported::new(&rw_10(0x41, 0x08), |cdb| write_same(cdb, extent_10(cdb))),
    // UNMAP.
    Supported::new(&[0x42, 0, 0, 0, 0, 0, 0x3f, 0xff, 0xff, 0], |cdb| {
        let list_bytes = number(&cdb[7..9]) as usize;
        Ok(Command::Unmap { list_bytes })
    }),
    // MODE SELECT(10).
    Supported::new(&[0x55, 0x11, 0, 0, 0, 0, 0, 0xff, 0xff, 0], |cdb| {
        mode_select(cdb, true, number(&cdb[7..9]) as usize)
    }),
    // MODE SENSE(10).
    Supported::new(&[0x5a, 0x18, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, 0], |cdb| {
        Ok(mode_sense(cdb, true, number(&cdb[7..9]) as usize))
    }),
    // READ(16).
    Supported::new(&rw_16(0x88, 0x18), |cdb| {
        let extent = extent_16(cdb);
        Ok(Command::Read { extent })
    }),
    // COMPARE AND WRITE.
    Supported::new(&COMPARE_AND_WRITE, |cdb| {
        Ok(Command::CompareAndWrite {
            extent: Extent {
                lba: number(&cdb[2..10]),
                blocks: cdb[13].into(),
            },
            fua: has_fua(cdb),
        })
    }),
    // WRITE(16).
    Supported::new(&rw_16(0x8a, 0x18), |cdb| {
        Ok(Command::Write {
            extent: extent_16(cdb),
            fua: has_fua(cdb),
        })
    }),
    // VERIFY(16).
    Supported::new(&rw_16(0x8f, 0x16), |cdb| verify(cdb, extent_16(cdb))),
    // SYNCHRONIZE CACHE(16).
    Supported::new(&rw_16(0x91, 0x02), |cdb| {
        let extent = extent_16(cdb);
        Ok(Command::SynchronizeCache { extent })
    }),
    // WRITE SAME(16).
    Supported::new(&rw_16(0x93, 0x09), |cdb| write_same(cdb, extent_16(cdb))),
    // READ CAPACITY(16).
    Supported::new(&action_16(0x10, 0), |cdb| {
        let allocation = number(&cdb[10..14]) as usize;
        Ok(Command::ReadCapacity16 { allocation })
    })
    .action(0x10),
    // GET LBA STATUS.
    Supported::new(&action_16(0x12, 0xff), |cdb| {
        Ok(Command::GetLbaStatus {
            lba: number(&cdb[2..10]),
            allocation: number(&cdb[10..14]) as usize,
        })
    })
    .action(0x12),
    // REPORT LUNS.
    Supported::new(
        &[0xa0, 0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
        |cdb| {
            Ok(Command::ReportLuns {
                select: cdb[2],
                allocation: number(&cdb[6..10]) as usize,
            })
        },
    ),
    // REPORT SUPPORTED OPERATION CODES.
    Supported::new(
        &[
            0xa3, 0x0c, 0x87, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0,
        ],
        report_opcodes,
    )
    .action(0x0c),
    // READ(12).
    Supported::new(&rw_12(0xa8), |cdb| {
        let extent = extent_12(cdb);
        Ok(Command::Read { extent })
    }),
    // WRITE(12).
    Supported::new(&rw_12(0xaa), |cdb| {
        Ok(Command::Write {
            extent: extent_12(cdb),
            fua: has_fua(cdb),
        })
    }),
];

const COMPARE_AND_WRITE: [u8; 16] = {
    let mut usage = rw_16(0x89, 0x18);
    // The length has one byte; three bytes of the other commands' length are reserved.
    (usage[10], usage[11], usage[12]) = (0, 0, 0);
    usage
};

/// The usage data of a command of 10 bytes with address, group number and length.
const fn rw_10(opcode: u8, flags: u8) -> [u8; 10] {
    [opcode, flags, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0]
}

/// The same with 12 bytes.
const fn rw_12(opcode: u8) -> [u8; 12] {
    [
        opcode, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0,
    ]
}

/// The same with 16 bytes.
const fn rw_16(opcode: u8, flags: u8) -> [u8; 16] {
    let mut usage = [0xff; 16];
    (usage[0], usage[1], usage[14], usage[15]) = (opcode, flags, 0x3f, 0);
    usage
}

/// The usage data of a service action of SERVICE ACTION IN(16); `lba` is for each byte of the
/// address.
const fn action_16(action: u8, lba: u8) -> [u8; 16] {
    let l = lba;
    [
        0x9e, action, l, l, l, l, l, l, l, l, 0xff, 0xff, 0xff, 0xff, 0, 0,
    ]
}

impl Command {
    /// Parses a descriptor block, which may be followed by other bytes.
    ///
    /// # Errors
    /// If the command is not supported, or has unsupported bits set.
    pub(crate) fn parse(cdb: &[u8]) -> Result<Command, Sense> {
        let (Some(&opcode), action) = (cdb.first(), cdb.get(1)) else {
            return Err(Sense::UNKNOWN_COMMAND);
        };
        let mut same_opcode = COMMANDS.iter().filter(|one| one.opcode() == opcode);
        let Some(first) = same_opcode.next() else {
            return Err(Sense::UNKNOWN_COMMAND);
        };
        let action = action.map(|byte| byte & 0x1f);
        let has_action = |one: &&Supported| one.service_action.is_none_or(|a| Some(a) == action);
        let found = [first].into_iter().chain(same_opcode).find(has_action);
        let found = found.ok_or(Sense::invalid_field(1))?;
        let cdb = cdb.get(..found.usage.len());
        let cdb = cdb.ok_or(Sense::invalid_field(0))?;
        let bytes = cdb.iter().zip(found.usage).skip(1);
        match bytes
            .clone()
            .position(|(byte, allowed)| byte & !allowed != 0)
        {
            Some(place) => Err(Sense::invalid_field(place as u16 + 1)),
            None => (found.parse)(cdb),
        }
    }
}

/// Returns a big-endian number.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Returns the FUA bit: the data must be on the medium before the command ends.
fn has_fua(cdb: &[u8]) -> bool {
    cdb[1] & 0x08 != 0
}

fn extent_6(cdb: &[u8]) -> Extent {
    Extent {
        lba: number(&cdb[1..4]),
        // Length 0 means 256 blocks.
        blocks: match cdb[4] {
            0 => 256,
            blocks => blocks.into(),
        },
    }
}

fn extent_10(cdb: &[u8]) -> Extent {
    Extent {
        lba: number(&cdb[2..6]),
        blocks: number(&cdb[7..9]),
    }
}

fn extent_12(cdb: &[u8]) -> Extent {
    Extent {
        lba: number(&cdb[2..6]),
        blocks: number(&cdb[6..10]),
    }
}

fn extent_16(cdb: &[u8]) -> Extent {
    Extent {
        lba: number(&cdb[2..10]),
        blocks: number(&cdb[10..14]),
    }
}

fn verify(cdb: &[u8], extent: Extent) -> Result<Command, Sense> {
    let check = match cdb[1] >> 1 & 3 {
        0 => ByteCheck::None,
        1 => ByteCheck::All,
        3 => ByteCheck::OneBlock,
        _ => return Err(Sense::invalid_field(1)),
    };
    Ok(Command::Verify { extent, check })
}

fn write_same(cdb: &[u8], extent: Extent) -> Result<Command, Sense> {
    Ok(Command::WriteSame {
        extent,
        unmap: cdb[1] & 0x08 != 0,
        no_data: cdb[1] & 0x01 != 0,
    })
}

fn mode_sense(cdb: &[u8], is_long: bool, allocation: usize) -> Command {
    Command::ModeSense {
        is_long,
        no_descriptor: cdb[1] & 0x08 != 0,
        long_lba: cdb[1] & 0x10 != 0,
        page: cdb[2],
        subpage: cdb[3],
        allocation,
    }
}

fn mode_select(cdb: &[u8], is_long: bool, list_bytes: usize) -> Result<Command, Sense> {
    let (has_pages, saves) = (cdb[1] & 0x10 != 0, cdb[1] & 0x01 != 0);
    match has_pages && !saves {
        true => Ok(Command::ModeSelect {
            is_long,
            list_bytes,
        }),
        // Vendor's own formats, and saved pages.
        false => Err(Sense::invalid_field(1)),
    }
}

fn report_opcodes(cdb: &[u8]) -> Result<Command, Sense> {
    let (opcode, action) = (cdb[3], number(&cdb[4..6]) as u16);
    let which = match cdb[2] & 7 {
        0 => Opcodes::All,
        1 => Opcodes::One(opcode),
        2 => Opcodes::Action(opcode, action),
        3 => Opcodes::Either(opcode, action),
        _ => return Err(Sense::invalid_field(2)),
    };
    Ok(Command::ReportOpcodes {
        which,
        with_timeouts: cdb[2] & 0x80 != 0,
        allocation: number(&cdb[6..10]) as usize,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_lengths_are_where_sbc_has_them() {
        let read = |lba, blocks| {
            Ok(Command::Read {
                extent: Extent { lba, blocks },
            })
        };
        assert_eq!(Command::parse(&[8, 0x1f, 2, 3, 4, 0]), read(0x1f_0203, 4));
        assert_eq!(Command::parse(&[8, 0, 0, 1, 0, 0]), read(1, 256));
        assert_eq!(
            Command::parse(&[0x28, 0x18, 1, 2, 3, 4, 0, 5, 6, 0]),
            read(0x0102_0304, 0x0506)
        );
        assert_eq!(
            Command::parse(&[0xa8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0]),
            read(0x0102_0304, 0x0506_0708)
        );
        assert_eq!(
            Command::parse(&[0x88, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0]),
            read(0x0102_0304_0506_0708, 0x090a_0b0c)
        );
        // Bytes behind a shorter command do not matter.
        assert_eq!(Command::parse(&[8, 0, 0, 1, 1, 0, 0xff]), read(1, 1));
    }

    #[test]
    fn what_is_unknown_is_refused_where_it_is() {
        assert_eq!(Command::parse(&[]), Err(Sense::UNKNOWN_COMMAND));
        // FORMAT UNIT.
        assert_eq!(Command::parse(&[4; 6]), Err(Sense::UNKNOWN_COMMAND));
        // Protection information, NACA, and a service action that is not there.
        let protected = [0x28, 0x20, 0, 0, 0, 0, 0, 0, 1, 0];
        assert_eq!(Command::parse(&protected), Err(Sense::invalid_field(1)));
        let naca = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 4];
        assert_eq!(Command::parse(&naca), Err(Sense::invalid_field(9)));
        let mut action = [0; 16];
        (action[0], action[1]) = (0x9e, 0x11);
        assert_eq!(Command::parse(&action), Err(Sense::invalid_field(1)));
        assert_eq!(Command::parse(&[0x28, 0]), Err(Sense::invalid_field(0)));
    }

    #[test]
    fn commands_are_listed_in_order_with_the_length_of_their_group() {
        let place = |one: &Supported| (one.opcode(), one.service_action);
        assert!(
            COMMANDS
                .windows(2)
                .all(|two| place(&two[0]) < place(&two[1]))
        );
        for one in &COMMANDS {
            let length = match one.opcode() >> 5 {
                0 => 6,
                1 | 2 => 10,
                4 => 16,
                _ => 12,
            };
            assert_eq!(one.usage.len(), length, "{:#x}", one.opcode());
        }
    }
}
