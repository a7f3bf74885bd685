//! What the recorder is told, where somebody asked for it.

use blklab_stats::Work;

use crate::ssd::flash::Flash;
use crate::ssd::flash::recorder::{Part, Recorder};
use crate::ssd::flash::transaction::{List, NONE, Operation};
use crate::ssd::spec::Interleave;

impl Flash {
    /// Starts or stops writing down what happens.
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

    /// Writes down what a unit's array has just ended or is stopped at.
    #[cold]
    pub(crate) fn record_array(&mut self, now_ns: u64, unit_index: u32) {
        let Some(recorder) = &mut self.recorder else {
            return;
        };
        let unit = &self.units[unit_index as usize];
        let work = match unit.kind {
            Operation::Read => Work::Sense,
            Operation::Program => Work::Program,
            Operation::Erase => Work::Erase,
        };
        let transactions = self.transactions.of(unit.group);
        recorder.worked(
            Part::Unit(unit_index),
            work,
            (unit.began_ns, now_ns),
            transactions,
        );
    }

    /// Writes down that a channel carries a group until it is free.
    #[inline]
    pub(crate) fn record_channel(&mut self, now_ns: u64, channel: u32, work: Work, group: List) {
        if let Some(recorder) = &mut self.recorder {
            let span_ns = (now_ns, self.channels[channel as usize].free_ns);
            recorder.worked(
                Part::Channel(channel),
                work,
                span_ns,
                self.transactions.of(group),
            );
        }
    }
}
