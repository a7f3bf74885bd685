//! Cards that answer: the state machines of the SD Physical Layer specification
//! (chapter 4) and of JESD84 (chapter 6), seen from the bus.
//!
//! What a card holds is not kept, only which blocks went where: registers alone have
//! content.

mod card;
mod slot;

pub use card::{CardSpec, EmulatedCard, Protocol};
pub use slot::{Fault, FaultKind, Slot};

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
