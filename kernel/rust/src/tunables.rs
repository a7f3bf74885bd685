//! A scheduler's files in sysfs: its tunables, then its attributes.

use alloc::string::String;

use blklab_blk::Elevator;
use blklab_elevator::ElevatorType;

use crate::queue::Queue;

/// The properties of a scheduler on any queue (`struct blklab_description`).
#[repr(C)]
pub struct Description {
    name: *const u8,
    name_length: usize,
    nr_files: usize,
    /// Whether it keeps state for each submitter.
    has_submitters: bool,
}

/// A file in sysfs (`struct blklab_file`).
#[repr(C)]
pub struct File {
    name: *const u8,
    name_length: usize,
    readable: bool,
    writable: bool,
}

impl Description {
    /// Returns the description from a scheduler's declaration.
    pub fn of<E: Elevator>(declared: &ElevatorType) -> Description {
        Description {
            name: declared.name.as_ptr(),
            name_length: declared.name.len(),
            nr_files: declared.tunables.len() + declared.attributes.len(),
            has_submitters: E::has_submitters(),
        }
    }
}

impl File {
    /// Returns the file with a number.
    pub fn of(declared: &ElevatorType, file: usize) -> File {
        let (name, readable, writable) = match declared.tunables.get(file) {
            Some(tunable) => (tunable.name, true, true),
            None => {
                let attribute = &declared.attributes[file - declared.tunables.len()];
                let writable = !attribute.takes.is_empty();
                (attribute.name, attribute.readable, writable)
            }
        };
        File {
            name: name.as_ptr(),
            name_length: name.len(),
            readable,
            writable,
        }
    }
}

impl<E: Elevator> Queue<E> {
    /// Writes the content of a file to `out`; returns the number of bytes.
    pub fn show(&self, file: u32, out: &mut [u8]) -> usize {
        let tunables = self.elevator.tunables();
        let file = file as usize;
        let text = match file.checked_sub(tunables.declared().len()) {
            None => alloc::format!("{}", tunables.at(file)),
            Some(i) => {
                let attribute = &self.elevator.attributes()[i];
                self.elevator.attribute(attribute.name).unwrap_or_default()
            }
        };
        let line = text.bytes().chain(*b"\n");
        out.iter_mut().zip(line).map(|(o, byte)| *o = byte).count()
    }

    /// Writes the scheduler's state to `out`, with the deadline of a request if one is given;
    /// returns the number of bytes.
    pub fn state(&self, request: u32, out: &mut [u8]) -> usize {
        let mut text = String::new();
        if request > 0 {
            text = alloc::format!("fifo={}", self.deadline(request));
        }
        for (name, value) in self.elevator.debug_state() {
            let blank = if text.is_empty() { "" } else { " " };
            text = alloc::format!("{text}{blank}{name}={value}");
        }
        out.iter_mut()
            .zip(text.bytes())
            .map(|(o, byte)| *o = byte)
            .count()
    }

    /// Handles a write to a file. Returns whether the value is legal.
    pub fn store(&mut self, file: u32, text: &[u8]) -> bool {
        let Ok(text) = core::str::from_utf8(text) else {
            return false;
        };
        let declared = self.elevator.tunables().declared();
        let file = file as usize;
        let legal = match file.checked_sub(declared.len()) {
            None => {
                let (name, value) = (declared[file].name, text.trim().parse());
                value.is_ok_and(|value| self.elevator.store_tunable(name, value).is_ok())
            }
            Some(i) => {
                let attribute = &self.elevator.attributes()[i];
                let numbers = attribute.parse(text);
                numbers.is_ok_and(|numbers| {
                    self.elevator.set_attribute(attribute.name, &numbers);
                    true
                })
            }
        };
        self.publish_depths();
        legal
    }
}
