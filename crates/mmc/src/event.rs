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
        /// How many hold tuning back.
        hold_retune: u32,
    },
    /// The controller is done with it.
    RequestDone {
        /// It, with what became of it.
        request: Box<Request>,
        /// How many hold tuning back.
        hold_retune: u32,
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

/// Tuning is of UHS-I and HS200, which no controller here has.
fn write_retune(f: &mut fmt::Formatter<'_>, hold: u32) -> fmt::Result {
    write!(f, " can_retune=0 doing_retune=0 retune_now=0 need_retune=0")?;
    write!(f, " hold_retune={hold} retune_period=0")
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
                write!(f, " signal_voltage=0 drv_type=0")
            }
            Event::RequestStart {
                request,
                hold_retune,
            } => {
                write!(f, "mmc_request_start: {}", Started(request))?;
                write_retune(f, *hold_retune)
            }
            Event::RequestDone {
                request,
                hold_retune,
            } => {
                write!(f, "mmc_request_done: {}", Done(request))?;
                write_retune(f, *hold_retune)
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
