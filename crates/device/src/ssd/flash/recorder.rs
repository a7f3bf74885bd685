//! Records what channels and dies do, where a timeline is asked for.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use blklab_stats::{Activity, Cause, DrivePart, DriveTimeline, DriveWork};

use crate::ssd::flash::Flash;
use crate::ssd::flash::transaction::{List, NONE, Operation, Transaction};
use crate::ssd::spec::Interleave;

/// A part of the flash that has a line in the timeline.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FlashPart {
    Channel(u32),
    Unit(u32),
}

/// What was recorded and not taken yet.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    parts: Vec<DrivePart>,
    /// The index in `parts` of each unit, and of each channel.
    unit_parts: Vec<u32>,
    channel_parts: Vec<u32>,
    recorded: DriveTimeline,
    next_command: u32,
    /// The commands whose data is in a page that has not been programmed, by the page's
    /// record.
    writers: BTreeMap<u32, Vec<u32>>,
}

impl Recorder {
    /// A recorder for channels and the units on each, which are called `unit_name`.
    pub(crate) fn new(channels: usize, channel_of_unit: &[u32], unit_name: &str) -> Recorder {
        let mut recorder = Recorder {
            parts: Vec::new(),
            unit_parts: Vec::new(),
            channel_parts: Vec::new(),
            recorded: DriveTimeline::default(),
            next_command: 0,
            writers: BTreeMap::new(),
        };
        for channel in 0..channels {
            let within = recorder.add_part(format!("channel {channel}"), None);
            recorder.channel_parts.push(within);
            for (unit, of) in channel_of_unit.iter().enumerate() {
                if *of as usize == channel {
                    let part = recorder.add_part(format!("{unit_name} {unit}"), Some(within));
                    recorder.unit_parts.push(part);
                }
            }
        }
        recorder
    }

    fn add_part(&mut self, name: String, within: Option<u32>) -> u32 {
        self.parts.push(DrivePart { name, within });
        self.parts.len() as u32 - 1
    }

    /// Numbers a command.
    #[cold]
    pub(crate) fn next_command(&mut self) -> u32 {
        self.next_command += 1;
        self.next_command - 1
    }

    /// A command's data is in a page.
    #[cold]
    pub(crate) fn wrote(&mut self, record: u32, command: u32) {
        let writers = self.writers.entry(record).or_default();
        if command != NONE && writers.last() != Some(&command) {
            writers.push(command);
        }
    }

    /// A page was programmed or given up: its record will mean another.
    #[cold]
    pub(crate) fn forget(&mut self, record: u32) {
        self.writers.remove(&record);
    }

    /// No page will be programmed.
    pub(crate) fn forget_all(&mut self) {
        self.writers.clear();
    }

    /// A part was or will be busy with transactions, one a plane.
    #[cold]
    pub(crate) fn worked<'a>(
        &mut self,
        part: FlashPart,
        work: DriveWork,
        (start_ns, end_ns): (u64, u64),
        transactions: impl Iterator<Item = &'a Transaction>,
    ) {
        let part = match part {
            FlashPart::Channel(channel) => self.channel_parts[channel as usize],
            FlashPart::Unit(unit) => self.unit_parts[unit as usize],
        };
        let first_command = self.recorded.commands.len() as u32;
        let mut cause = Cause::Host;
        for op in transactions {
            cause = op.cause();
            if op.command != NONE {
                self.recorded.commands.push(op.command);
            } else if let Some(writers) = op.page_record().and_then(|r| self.writers.get(&r)) {
                self.recorded.commands.extend(writers);
            }
        }
        self.recorded.activities.push(Activity {
            part,
            work,
            cause,
            start_ns,
            end_ns,
            first_command,
            commands: self.recorded.commands.len() as u32 - first_command,
        });
    }

    /// Moves what was recorded to the end of `out`.
    pub(crate) fn take(&mut self, out: &mut DriveTimeline) {
        if out.parts.is_empty() {
            out.parts.clone_from(&self.parts);
        }
        out.append(&mut self.recorded);
    }
}

impl Flash {
    /// Appends what was recorded since the last call to `out`.
    pub(crate) fn take_record(&mut self, out: &mut DriveTimeline) {
        if let Some(recorder) = &mut self.recorder {
            recorder.take(out);
        }
    }

    /// Starts or stops recording.
    pub(crate) fn record(&mut self, on: bool) {
        let channel_of_unit: Vec<u32> = self.units.iter().map(|unit| unit.channel).collect();
        let name = match self.flash.interleave {
            Interleave::Package => "package",
            Interleave::Die => "die",
            Interleave::Plane => "plane",
        };
        self.recorder =
            on.then(|| Box::new(Recorder::new(self.channels.len(), &channel_of_unit, name)));
    }

    /// The number of the command that comes in, where that is recorded.
    #[inline]
    pub(crate) fn next_command(&mut self) -> u32 {
        match &mut self.recorder {
            Some(recorder) => recorder.next_command(),
            None => NONE,
        }
    }

    /// A command's data is in a page.
    #[inline]
    pub(crate) fn note_writer(&mut self, record: u32, command: u32) {
        if let Some(recorder) = &mut self.recorder {
            recorder.wrote(record, command);
        }
    }

    /// A page's record will mean another page.
    #[inline]
    pub(crate) fn forget_writers(&mut self, record: u32) {
        if let Some(recorder) = &mut self.recorder {
            recorder.forget(record);
        }
    }

    /// Records an array operation that has just ended or is suspended.
    #[cold]
    pub(crate) fn record_array(&mut self, now_ns: u64, unit_index: u32) {
        let Some(recorder) = &mut self.recorder else {
            return;
        };
        let unit = &self.units[unit_index as usize];
        let work = match unit.kind {
            Operation::Read => DriveWork::Sense,
            Operation::Program => DriveWork::Program,
            Operation::Erase => DriveWork::Erase,
        };
        let transactions = self.transactions.of(unit.group);
        recorder.worked(
            FlashPart::Unit(unit_index),
            work,
            (unit.began_ns, now_ns),
            transactions,
        );
    }

    /// Records that a channel is busy with a group until it is free.
    #[inline]
    pub(crate) fn record_channel(
        &mut self,
        now_ns: u64,
        channel: u32,
        work: DriveWork,
        group: List,
    ) {
        if let Some(recorder) = &mut self.recorder {
            let span_ns = (now_ns, self.channels[channel as usize].free_ns);
            recorder.worked(
                FlashPart::Channel(channel),
                work,
                span_ns,
                self.transactions.of(group),
            );
        }
    }
}
