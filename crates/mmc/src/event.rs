//! What the stack tells of itself, as the kernel's tracepoints and probes print it.

use std::fmt;

use crate::command::{Data, Done, Request, Started};
use crate::host::Ios;

/// One line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A card is looked for.
    Rescan,
    /// The bus is set.
    SetIos(Ios),
    /// A request goes to the controller.
    RequestStart {
        /// It.
        request: Box<Request>,
        /// What holds tuning back or asks for it.
        retune: Retune,
    },
    /// The controller is done with it.
    RequestDone {
        /// It, with what became of it.
        request: Box<Request>,
        /// What holds tuning back or asks for it.
        retune: Retune,
    },
    /// The data's time limit is reckoned, for this data.
    SetDataTimeout {
        /// Bytes of a block.
        block_bytes: u32,
        /// How many.
        blocks: u32,
        /// Which way, as flags.
        flags: u32,
    },
    /// It was reckoned.
    SetDataTimeoutDone {
        /// The limit.
        timeout_ns: u32,
        /// In clocks beside.
        timeout_clocks: u32,
    },
    /// Sectors are erased.
    Erase {
        /// The first one.
        from: u32,
        /// How many.
        sectors: u32,
        /// What kind of erase.
        arg: u32,
    },
    /// A card was identified.
    AddCard {
        /// Its kind.
        kind: u32,
        /// Its state.
        state: u32,
        /// Its address.
        rca: u32,
    },
    /// A card goes.
    RemoveCard {
        /// Its kind.
        kind: u32,
    },
}

impl Event {
    /// The data whose limit is reckoned.
    pub(crate) fn set_data_timeout(data: &Data) -> Event {
        Event::SetDataTimeout {
            block_bytes: data.block_bytes,
            blocks: data.blocks,
            flags: data.flags(),
        }
    }
}

/// How it stands with tuning the bus again. No timer asks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retune {
    /// It was tuned, and can be again.
    pub can: bool,
    /// It is being tuned again.
    pub doing: bool,
    /// The next request may tune first.
    pub now: bool,
    /// A checksum was wrong since it was tuned.
    pub need: bool,
    /// How many hold it back.
    pub hold: u32,
}

impl fmt::Display for Retune {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Retune { hold, .. } = self;
        let [can, doing, now, need] = [self.can, self.doing, self.now, self.need].map(u8::from);
        write!(f, " can_retune={can} doing_retune={doing} retune_now={now}")?;
        write!(f, " need_retune={need} hold_retune={hold} retune_period=0")
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Rescan => write!(f, "mmc_rescan:"),
            Event::SetIos(ios) => {
                let (clock, vdd) = (ios.clock_hz, ios.vdd);
                write!(f, "set_ios: clock={clock} vdd={vdd}")?;
                write!(f, " bus_mode={}", ios.bus_mode as u8)?;
                write!(f, " chip_select={}", ios.chip_select as u8)?;
                write!(f, " power_mode={}", ios.power_mode as u8)?;
                write!(f, " bus_width={}", ios.bus_width as u8)?;
                write!(f, " timing={}", ios.timing as u8)?;
                write!(f, " signal_voltage={} drv_type=0", ios.signal_voltage as u8)
            }
            Event::RequestStart { request, retune } => {
                write!(f, "mmc_request_start: {}{retune}", Started(request))
            }
            Event::RequestDone { request, retune } => {
                write!(f, "mmc_request_done: {}{retune}", Done(request))
            }
            Event::SetDataTimeout {
                block_bytes,
                blocks,
                flags,
            } => {
                write!(f, "mmc_set_data_timeout: timeout_ns=0 clks=0")?;
                write!(f, " blksz={block_bytes} blocks={blocks} dflags={flags:#x}")
            }
            Event::SetDataTimeoutDone {
                timeout_ns,
                timeout_clocks,
            } => {
                write!(f, "mmc_set_data_timeout_ret: timeout_ns={timeout_ns}")?;
                write!(f, " clks={timeout_clocks}")
            }
            Event::Erase { from, sectors, arg } => {
                write!(f, "mmc_erase: from={from} nr={sectors} arg={arg:#x}")
            }
            Event::AddCard { kind, state, rca } => {
                write!(f, "mmc_add_card: type={kind} state={state:#x} rca={rca:#x}")
            }
            Event::RemoveCard { kind } => write!(f, "mmc_remove_card: type={kind}"),
        }
    }
}
