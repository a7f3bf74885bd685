//! A real kernel in a virtual machine: Debian's, from its packages, which are
//! unpacked and not installed.
//!
//! [`Packages`] says where the kernel and its modules are, [`Initramfs`] is the file
//! system that it starts with, and [`Machine`] boots it under QEMU and waits for its
//! end. What runs inside is one script; what it writes to its port comes back.

mod error;
mod initramfs;
mod machine;
mod packages;

pub use error::Error;
pub use initramfs::Initramfs;
pub use machine::{Accelerator, Boot, Machine, ORDER, PORT};
pub use packages::{Packages, default_folder, setup};
