//! Events of an export's block layer on their way to a recorder.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use blklab_blk::TraceEvent;

/// Batches that may wait to be written.
const MAX_BATCHES: usize = 1024;

/// Events of one iteration of the export's thread.
#[derive(Default)]
pub(crate) struct TraceBatch {
    pub(crate) events: Vec<TraceEvent>,
    /// Events left out before these.
    pub(crate) lost: u64,
}

/// Takes an export's events. The export's thread never waits for whoever writes
/// them: events that there is no room for are counted and left out.
pub(crate) struct Recorder {
    sender: SyncSender<TraceBatch>,
    lost: u64,
}

impl Recorder {
    /// A recorder, and where its events come out.
    pub(crate) fn new() -> (Recorder, Receiver<TraceBatch>) {
        let (sender, receiver) = sync_channel(MAX_BATCHES);
        (Recorder { sender, lost: 0 }, receiver)
    }

    /// Takes events. `false` once the receiver is gone.
    pub(super) fn record(&mut self, events: Vec<TraceEvent>) -> bool {
        let batch = TraceBatch {
            events,
            lost: self.lost,
        };
        match self.sender.try_send(batch) {
            Ok(()) => {
                self.lost = 0;
                true
            }
            Err(TrySendError::Full(batch)) => {
                self.lost += batch.events.len() as u64;
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_without_room_are_counted() {
        let (mut recorder, receiver) = Recorder::new();
        for _ in 0..MAX_BATCHES + 1 {
            assert!(recorder.record(Vec::new()));
        }
        recorder.lost = 3;
        assert_eq!(receiver.recv().expect("a batch").lost, 0);
        assert!(recorder.record(Vec::new()));
        assert_eq!(receiver.try_iter().last().expect("the last").lost, 3);
        drop(receiver);
        assert!(!recorder.record(Vec::new()));
    }
}
