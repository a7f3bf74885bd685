//! Linux's MMC stack (`drivers/mmc`), with controllers and cards for it.
//!
//! - [`Core`] identifies cards: power, clocks, the commands up to a selected card,
//!   its registers, timing and width of the bus; erase, status, removal.
//! - [`block`] makes requests of what the block layer issues, and mends what went
//!   wrong.
//! - [`sdhci`] and [`pl181`] are host controllers, as registers and as the drivers that
//!   work them.
//! - [`emulated`] has the cards that answer.
//!
//! Nothing here has a clock: what takes time says how long, and whoever runs the
//! stack counts.

pub mod block;
mod bus;
mod command;
mod core;
pub mod emulated;
mod event;
#[cfg(test)]
mod faults;
mod host;
pub mod pl181;
pub mod registers;
pub mod sdhci;

pub use bus::{HostDevice, HostDriverKind, Hosts, MakeHost, Wiring};
pub use command::{Command, CommandFlags, Data, Direction, Error, Request, Status, opcode};
pub use core::{Card, CardKind, Core};
pub use event::{Event, Retune};
pub use host::{
    BusMode, BusWidth, Caps, Caps2, ChipSelect, Host, HostSpec, Ios, PowerMode, SignalVoltage,
    Timing,
};
