//! Tracks with their events, collected and then written in order of time.

use std::collections::HashMap;

use prost::encoding;

use super::proto::{
    ChildOrdering, CounterDescriptor, DebugAnnotation, EventType, INCREMENTAL_STATE_CLEARED,
    ProcessDescriptor, TracePacket, TrackDescriptor, TrackEvent,
};

/// The tag of `Trace.packet`.
const PACKET: u32 = 1;
/// The sequence of all packets, as there is one writer.
const SEQUENCE: u32 = 1;

/// A track's uuid in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Track(u64);

/// A span of time on a track.
#[derive(Clone, Debug, Default)]
pub(super) struct Slice {
    pub start_ns: u64,
    pub end_ns: u64,
    pub name: String,
    /// Flows that begin, pass or end there.
    pub flows: Vec<u64>,
    pub annotations: Vec<(&'static str, Annotation)>,
}

/// A fact on a slice.
#[derive(Clone, Debug)]
pub(super) enum Annotation {
    Number(u64),
    Text(String),
}

/// A trace under construction.
#[derive(Default)]
pub(super) struct Tracks {
    descriptors: Vec<TrackDescriptor>,
    /// Times and events, in the order of their creation, which orders events of the same
    /// time.
    events: Vec<(u64, TrackEvent)>,
}

impl Tracks {
    fn add(&mut self, descriptor: TrackDescriptor) -> Track {
        let uuid = self.descriptors.len() as u64 + 1;
        self.descriptors.push(TrackDescriptor {
            uuid: Some(uuid),
            sibling_order_rank: Some(uuid as i32),
            child_ordering: Some(ChildOrdering::Explicit as i32),
            ..descriptor
        });
        Track(uuid)
    }

    /// Adds a group of tracks.
    pub fn group(&mut self, name: &str) -> Track {
        let pid = self.descriptors.len() as i32 + 1;
        self.add(TrackDescriptor {
            process: Some(ProcessDescriptor {
                pid: Some(pid),
                process_name: Some(name.to_string()),
            }),
            ..TrackDescriptor::default()
        })
    }

    /// Adds a track to a group or below another track. Tracks of the same name and
    /// parent are shown as one with several rows.
    pub fn track(&mut self, within: Track, name: &str) -> Track {
        self.add(TrackDescriptor {
            name: Some(name.to_string()),
            parent_uuid: Some(within.0),
            ..TrackDescriptor::default()
        })
    }

    /// Adds a track of a number over time.
    pub fn counter(&mut self, within: Track, name: &str) -> Track {
        self.add(TrackDescriptor {
            name: Some(name.to_string()),
            parent_uuid: Some(within.0),
            counter: Some(CounterDescriptor {}),
            ..TrackDescriptor::default()
        })
    }

    /// Adds slices to a track, none of which overlaps another.
    pub fn slices(&mut self, track: Track, mut slices: Vec<Slice>) {
        slices.sort_by_key(|slice| (slice.start_ns, slice.end_ns));
        for slice in slices {
            let (start_ns, end_ns) = (slice.start_ns, slice.end_ns);
            let begin = begin(track, slice);
            self.events.push((start_ns, begin));
            self.events
                .push((end_ns, event(track, EventType::SliceEnd)));
        }
    }

    /// Adds slices that may overlap, on as many tracks of the same name as needed.
    pub fn overlapping(&mut self, within: Track, name: &str, mut slices: Vec<Slice>) {
        slices.sort_by_key(|slice| (slice.start_ns, slice.end_ns));
        let mut tracks: Vec<(u64, Vec<Slice>)> = Vec::new();
        for slice in slices {
            let end_ns = slice.end_ns;
            match tracks.iter_mut().find(|track| track.0 <= slice.start_ns) {
                Some(track) => {
                    track.0 = end_ns;
                    track.1.push(slice);
                }
                None => tracks.push((end_ns, vec![slice])),
            }
        }
        for (_, slices) in tracks {
            let track = self.track(within, name);
            self.slices(track, slices);
        }
    }

    /// Adds an event without duration.
    pub fn instant(&mut self, track: Track, at_ns: u64, name: &str, flow: Option<u64>) {
        let instant = TrackEvent {
            name: Some(name.to_string()),
            flow_ids: flow.into_iter().collect(),
            ..event(track, EventType::Instant)
        };
        self.events.push((at_ns, instant));
    }

    /// Adds a counter's new value.
    pub fn count(&mut self, track: Track, at_ns: u64, value: i64) {
        let counted = TrackEvent {
            counter_value: Some(value),
            ..event(track, EventType::Counter)
        };
        self.events.push((at_ns, counted));
    }

    /// Marks the end of each flow at its last event. A flow with a single event is
    /// removed.
    fn end_flows(&mut self) {
        let mut left: HashMap<u64, usize> = HashMap::new();
        let all = || self.events.iter().flat_map(|(_, event)| &event.flow_ids);
        all().for_each(|flow| *left.entry(*flow).or_default() += 1);
        left.retain(|_, events| *events > 1);
        for (_, event) in &mut self.events {
            let flows = std::mem::take(&mut event.flow_ids);
            for flow in flows {
                let Some(left) = left.get_mut(&flow) else {
                    continue;
                };
                *left -= 1;
                match *left {
                    0 => event.terminating_flow_ids.push(flow),
                    _ => event.flow_ids.push(flow),
                }
            }
        }
    }

    /// Returns the trace as a file's bytes.
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.events.sort_by_key(|(at_ns, _)| *at_ns);
        self.end_flows();
        let mut bytes = Vec::new();
        for (at, descriptor) in self.descriptors.into_iter().enumerate() {
            let packet = TracePacket {
                trusted_packet_sequence_id: Some(SEQUENCE),
                sequence_flags: (at == 0).then_some(INCREMENTAL_STATE_CLEARED),
                track_descriptor: Some(descriptor),
                ..TracePacket::default()
            };
            encoding::message::encode(PACKET, &packet, &mut bytes);
        }
        for (at_ns, event) in self.events {
            let packet = TracePacket {
                timestamp: Some(at_ns),
                trusted_packet_sequence_id: Some(SEQUENCE),
                track_event: Some(event),
                ..TracePacket::default()
            };
            encoding::message::encode(PACKET, &packet, &mut bytes);
        }
        bytes
    }
}

fn event(track: Track, kind: EventType) -> TrackEvent {
    TrackEvent {
        r#type: Some(kind as i32),
        track_uuid: Some(track.0),
        ..TrackEvent::default()
    }
}

fn begin(track: Track, slice: Slice) -> TrackEvent {
    let annotation = |(name, annotation): (&str, Annotation)| {
        let (uint_value, string_value) = match annotation {
            Annotation::Number(number) => (Some(number), None),
            Annotation::Text(text) => (None, Some(text)),
        };
        DebugAnnotation {
            name: Some(name.to_string()),
            uint_value,
            string_value,
        }
    };
    TrackEvent {
        name: Some(slice.name),
        flow_ids: slice.flows,
        debug_annotations: slice.annotations.into_iter().map(annotation).collect(),
        ..event(track, EventType::SliceBegin)
    }
}
