//! Cards that answer: the state machines of the SD Physical Layer specification
//! (chapter 4) and of JESD84 (chapter 6), seen from the bus.
//!
//! What a card holds is not kept, only which blocks went where: registers alone have
//! content. Here is the slot between a controller and a card, in which things go wrong.

mod card;

use std::ops::Range;

use crate::command::Error;

pub use card::{CardSpec, EmulatedCard, Protocol};

/// What goes over the bus beside bits of data, in clocks (SD Physical Layer 4.12).
pub(crate) mod bus_clocks {
    /// Clocks between a command and its answer, and after it.
    pub(crate) const COMMAND: u64 = 48 + 5 + 48 + 8;
    /// Clocks that a long answer takes more.
    pub(crate) const LONG_ANSWER: u64 = 136 - 48;
    /// Clocks after which a missing answer is given up.
    pub(crate) const ANSWER_TIMEOUT: u64 = 64;
    /// Clocks of a block beside its bits: start, checksum, end, and the card's answer to
    /// a write.
    pub(crate) const BLOCK: u64 = 1 + 16 + 1 + 8;
}

/// What a card sends for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing: it has no such command, or not in its state.
    Silence,
    /// 32 bits.
    Short(u32),
    /// 128 bits.
    Long([u32; 4]),
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The card does not see the command.
    CommandLost,
    /// The answer's checksum is wrong; the card has done what it was told.
    AnswerDamaged,
    /// A block's checksum is wrong.
    DataDamaged,
    /// A block does not come.
    DataLost,
    /// The card is pulled out.
    Pulled,
}

/// Something that goes wrong with one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// With which, counted from 0 since the socket is there.
    pub command: u64,
    /// After how many of its blocks, of faults of data.
    pub block: u32,
    /// What.
    pub kind: FaultKind,
}

/// Moments within a clock at which a controller can take data off the lines.
pub const PHASES: u8 = 16;

/// A socket, and the card in it.
#[derive(Clone, Debug)]
pub struct Slot {
    card: Option<EmulatedCard>,
    pulled: Option<EmulatedCard>,
    faults: Vec<Fault>,
    commands: u64,
    blocks: u32,
    is_powered: bool,
    /// Phases at which data of a fast mode is right.
    good_phases: Range<u8>,
}

impl Default for Slot {
    fn default() -> Slot {
        Slot {
            card: None,
            pulled: None,
            faults: Vec::new(),
            commands: 0,
            blocks: 0,
            is_powered: false,
            // Not the first, at which an untuned controller takes it.
            good_phases: 4..10,
        }
    }
}

impl Slot {
    /// A socket with a card.
    pub fn with(card: EmulatedCard) -> Slot {
        Slot {
            card: Some(card),
            ..Slot::default()
        }
    }

    /// Makes things go wrong.
    pub fn set_faults(&mut self, faults: Vec<Fault>) {
        self.faults = faults;
    }

    /// Says at which phases data of a fast mode is right, of [`PHASES`].
    pub fn set_good_phases(&mut self, phases: Range<u8>) {
        self.good_phases = phases;
    }

    /// Whether data of a fast mode is right at this phase.
    pub fn is_good_phase(&self, phase: u8) -> bool {
        self.good_phases.contains(&phase)
    }

    /// The host has set the lines to 1.8 V.
    pub fn set_low_voltage(&mut self) {
        if let Some(card) = &mut self.card {
            card.take_low_voltage();
        }
    }

    /// Commands so far.
    pub fn commands(&self) -> u64 {
        self.commands
    }

    /// The card.
    pub fn card(&self) -> Option<&EmulatedCard> {
        self.card.as_ref()
    }

    /// Takes the card out.
    pub fn pull(&mut self) {
        if let Some(mut card) = self.card.take() {
            card.power_off();
            self.pulled = Some(card);
        }
    }

    /// Puts the card that was taken out back.
    pub fn put_back(&mut self) {
        if let Some(card) = self.pulled.take() {
            self.card = Some(card);
        }
    }

    /// Switches the card's power.
    pub fn set_power(&mut self, on: bool) {
        self.is_powered = on;
        if let (Some(card), false) = (&mut self.card, on) {
            card.power_off();
        }
    }

    /// Lets time pass.
    pub fn pass(&mut self, ns: u64) {
        if let Some(card) = &mut self.card {
            card.pass(ns);
        }
    }

    /// Whether the card holds its first data line down.
    pub fn is_busy(&self) -> bool {
        self.card.as_ref().is_some_and(EmulatedCard::is_busy)
    }

    /// Whether the card has data for the host, whatever becomes of it on the bus.
    pub(crate) fn is_sending(&self) -> bool {
        { self.card.as_ref() }.is_some_and(|card| self.is_powered && card.is_sending())
    }

    /// Lets pass what the card still needs; how long that was.
    pub fn wait_while_busy(&mut self) -> u64 {
        let ns = self.card.as_ref().map_or(0, EmulatedCard::busy_ns);
        self.pass(ns);
        ns
    }

    /// A fault that is due with the running command; it happens once.
    fn due(&mut self, is_due: impl Fn(&Fault) -> bool) -> Option<FaultKind> {
        let running = self.commands.saturating_sub(1);
        let place =
            { self.faults.iter() }.position(|fault| fault.command == running && is_due(fault))?;
        Some(self.faults.swap_remove(place).kind)
    }

    /// Sends a command.
    ///
    /// # Errors
    /// Where the answer's checksum is wrong.
    pub fn command(&mut self, opcode: u8, arg: u32) -> Result<Answer, Error> {
        self.commands += 1;
        self.blocks = 0;
        let of_command = |fault: &Fault| match fault.kind {
            FaultKind::CommandLost | FaultKind::AnswerDamaged => true,
            FaultKind::DataDamaged | FaultKind::DataLost => false,
            FaultKind::Pulled => fault.block == 0,
        };
        let fault = self.due(of_command);
        if fault == Some(FaultKind::Pulled) {
            self.pull();
        }
        let Some(card) = self.card.as_mut().filter(|_| self.is_powered) else {
            return Ok(Answer::Silence);
        };
        match fault {
            Some(FaultKind::CommandLost) => Ok(Answer::Silence),
            Some(FaultKind::AnswerDamaged) => match card.command(opcode, arg) {
                Answer::Silence => Ok(Answer::Silence),
                _ => Err(Error::Crc),
            },
            _ => Ok(card.command(opcode, arg)),
        }
    }

    /// What goes wrong with this block.
    fn block_fault(&mut self) -> Option<Error> {
        let block = self.blocks;
        self.blocks += 1;
        let fault = self.due(|fault| {
            fault.block == block
                && !matches!(
                    fault.kind,
                    FaultKind::CommandLost | FaultKind::AnswerDamaged
                )
        })?;
        match fault {
            FaultKind::DataDamaged => Some(Error::Crc),
            FaultKind::Pulled => {
                self.pull();
                Some(Error::Timeout)
            }
            _ => Some(Error::Timeout),
        }
    }

    /// Takes a block from the card.
    ///
    /// # Errors
    /// Where none comes, or a damaged one.
    pub fn read_block(&mut self, block: &mut [u8]) -> Result<(), Error> {
        let fault = self.block_fault();
        let sent = { self.card.as_mut() }.is_some_and(|card| card.read_block(block));
        match (fault, sent) {
            (Some(error), _) => Err(error),
            (None, true) => Ok(()),
            (None, false) => Err(Error::Timeout),
        }
    }

    /// Gives a block to the card.
    ///
    /// # Errors
    /// Where it takes none, or says that it was damaged.
    pub fn write_block(&mut self) -> Result<(), Error> {
        if let Some(error) = self.block_fault() {
            return Err(error);
        }
        match { self.card.as_mut() }.is_some_and(EmulatedCard::write_block) {
            true => Ok(()),
            false => Err(Error::Timeout),
        }
    }
}
