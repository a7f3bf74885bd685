use std::collections::{BTreeMap, BTreeSet};

use blklab_stats::{
    Activity, CacheSample, CacheStats, CallSpan, Cause, CpuTask, CpuWork, DiskTimeline, DrivePart,
    DriveTimeline, DriveWork, RequestStep, Results, StepKind, Timeline,
};
use prost::Message;

use super::proto::{EventType, TracePacket, TrackEvent};
use super::render;

/// `Trace`, which is written packet by packet.
#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<TracePacket>,
}

fn step(at_ns: u64, kind: StepKind, request: u64) -> RequestStep {
    RequestStep {
        at_ns,
        kind,
        request,
        op: 'R',
        flags: 0,
        sector: 8 * request,
        sectors: 8,
        cpu: 0,
        submitter: 0,
        errno: 0,
    }
}

fn task(work: CpuWork, start_ns: u64, end_ns: u64, request: u64) -> CpuTask {
    CpuTask {
        cpu: 1,
        work,
        process: Some(0),
        start_ns,
        end_ns,
        disk: 0,
        first_request: request,
        requests: 1,
        lock_ns: 0,
    }
}

fn activity(part: u32, work: DriveWork, span_ns: (u64, u64), command: u32) -> Activity {
    Activity {
        part,
        work,
        cause: Cause::Host,
        start_ns: span_ns.0,
        end_ns: span_ns.1,
        first_command: command,
        commands: 1,
    }
}

/// Two reads of one die, one after the other; request 5 is the first of them.
fn two_reads() -> Results {
    use StepKind::{Completed, Dispatched, Inserted, Issued, Made};
    let mut steps = Vec::new();
    for (request, at) in [(5, 100), (6, 110)] {
        steps.extend([Made, Inserted].map(|kind| step(at, kind, request)));
        steps.extend([Dispatched, Issued].map(|kind| step(at + 5, kind, request)));
    }
    steps.push(step(400, Completed, 5));
    steps.push(step(700, Completed, 6));
    steps.sort_by_key(|step| step.at_ns);
    let part = |name: &str, within| DrivePart {
        name: name.to_string(),
        within,
    };
    let drive = DriveTimeline {
        parts: vec![part("channel 0", None), part("die 0", Some(0))],
        activities: vec![
            activity(0, DriveWork::Command, (120, 130), 0),
            activity(1, DriveWork::Sense, (130, 300), 0),
            activity(0, DriveWork::DataOut, (300, 390), 0),
            activity(0, DriveWork::Command, (390, 400), 1),
            activity(1, DriveWork::Sense, (400, 600), 1),
            activity(0, DriveWork::DataOut, (600, 690), 1),
        ],
        commands: vec![0, 1],
        passages: Vec::new(),
    };
    Results {
        timeline: Some(Timeline {
            start_ns: 0,
            end_ns: 1000,
            cut: false,
            cpus: 2,
            tasks: vec![
                task(CpuWork::Kernel, 90, 100, 5),
                task(CpuWork::Kernel, 100, 110, 6),
                task(CpuWork::Interrupt, 400, 450, 5),
                task(CpuWork::Interrupt, 700, 700, 6),
            ],
            ios: Vec::new(),
            calls: Vec::new(),
            disks: vec![DiskTimeline {
                name: "/dev/x".to_string(),
                flushes_hold_others: false,
                steps,
                drive,
            }],
        }),
        ..Results::default()
    }
}

fn packets(results: &Results) -> Vec<TracePacket> {
    let bytes = render(results).expect("it was recorded");
    Trace::decode(&bytes[..]).expect("protobuf").packet
}

fn events(packets: &[TracePacket]) -> Vec<(u64, &TrackEvent)> {
    let events = packets.iter().filter_map(|packet| {
        let event = packet.track_event.as_ref()?;
        Some((packet.timestamp.expect("events have a time"), event))
    });
    events.collect()
}

/// Each program has a track; a call that began before the window is shown from its start on.
#[test]
fn calls_are_slices_of_their_program() {
    let mut results = two_reads();
    let call = |process, call, span_ns: (u64, u64), returned| CallSpan {
        process,
        call,
        start_ns: span_ns.0,
        end_ns: span_ns.1,
        returned,
    };
    results.timeline.as_mut().expect("recorded").start_ns = 50;
    results.timeline.as_mut().expect("recorded").calls = vec![
        call(1, "pwrite", (20, 300), Some(4096)),
        call(2, "open", (60, 70), None),
        call(1, "fsync", (300, 700), Some(0)),
    ];
    let packets = packets(&results);
    let tracks = packets.iter().filter_map(|p| p.track_descriptor.as_ref());
    let name_of: BTreeMap<u64, String> = tracks
        .filter_map(|track| Some((track.uuid?, track.name.clone()?)))
        .collect();
    let shown = events(&packets).into_iter().filter_map(|(at_ns, event)| {
        let track = name_of.get(&event.track_uuid?)?.as_str();
        let is_program = track.starts_with(", process ");
        is_program.then_some((at_ns, track, event.name.as_deref()))
    });
    let (one, two) = (", process 1", ", process 2");
    let expected = [
        (50, one, Some("pwrite")),
        (60, two, Some("open")),
        (70, two, None),
        (300, one, None),
        (300, one, Some("fsync")),
        (700, one, None),
    ];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
}

#[test]
fn slices_are_closed_in_order_on_tracks_that_are_described() {
    let packets = packets(&two_reads());
    let known: BTreeSet<u64> = packets
        .iter()
        .filter_map(|packet| packet.track_descriptor.as_ref()?.uuid)
        .collect();
    let mut open: BTreeMap<u64, u32> = BTreeMap::new();
    let mut last_ns = 0;
    for (at_ns, event) in events(&packets) {
        assert!(at_ns >= last_ns);
        last_ns = at_ns;
        let track = event.track_uuid.expect("events have a track");
        assert!(known.contains(&track));
        let depth = open.entry(track).or_default();
        match event.r#type() {
            EventType::SliceBegin => {
                assert_eq!(*depth, 0, "{:?} at {at_ns}", event.name);
                *depth = 1;
            }
            EventType::SliceEnd => *depth = depth.checked_sub(1).expect("it was begun"),
            _ => {}
        }
    }
    assert!(open.values().all(|depth| *depth == 0));
}

#[test]
fn a_flow_leads_from_the_cpu_through_queue_and_die_back_to_the_cpu() {
    let packets = packets(&two_reads());
    let mut ways: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for (_, event) in events(&packets) {
        for flow in event.flow_ids.iter().chain(&event.terminating_flow_ids) {
            let way = ways.entry(*flow).or_default();
            way.push(event.name.as_deref().unwrap_or_default());
        }
    }
    assert_eq!(ways.len(), 2);
    let way = [
        "kernel",
        "R 40 + 8",
        "insert",
        "dispatch",
        "R 40 + 8",
        "command",
        "read sense",
        "data out",
        "interrupt",
    ];
    assert_eq!(ways.values().next().unwrap(), &way);
}

#[test]
fn a_flow_ends_where_it_passes_last() {
    let packets = packets(&two_reads());
    let mut open: BTreeSet<u64> = BTreeSet::new();
    let mut ended: BTreeSet<u64> = BTreeSet::new();
    for (_, event) in events(&packets) {
        for flow in &event.flow_ids {
            assert!(!ended.contains(flow), "it has ended");
            open.insert(*flow);
        }
        for flow in &event.terminating_flow_ids {
            assert!(open.remove(flow), "it has not begun");
            ended.insert(*flow);
        }
    }
    assert_eq!((open.len(), ended.len()), (0, 2));
}

#[test]
fn a_request_seen_once_has_no_flow() {
    let mut results = two_reads();
    let timeline = results.timeline.as_mut().expect("recorded");
    timeline.disks.clear();
    timeline.tasks.truncate(1);
    let packets = packets(&results);
    let flows = events(&packets)
        .into_iter()
        .map(|(_, event)| event.flow_ids.len() + event.terminating_flow_ids.len());
    assert_eq!(flows.sum::<usize>(), 0);
}

#[test]
fn requests_side_by_side_take_tracks_of_one_name() {
    let packets = packets(&two_reads());
    let named = |name: &str| {
        let tracks = packets.iter().filter_map(|p| p.track_descriptor.as_ref());
        tracks.filter(|t| t.name.as_deref() == Some(name)).count()
    };
    assert_eq!(named("in the drive"), 2);
    assert_eq!(named("queued"), 1);
    assert_eq!((named("channel 0"), named("die 0")), (1, 1));
}

#[test]
fn what_was_not_recorded_is_not_written() {
    assert_eq!(render(&Results::default()), None);
}

#[test]
fn flushes_have_a_track_with_what_was_beside_them() {
    let names = |results: &Results| -> Vec<String> {
        let packets = packets(results);
        let events = events(&packets);
        let named = events.iter().filter_map(|(_, event)| event.name.clone());
        named.filter(|name| name.contains("flush")).collect()
    };
    let mut results = two_reads();
    assert_eq!(names(&results), [""; 0]);
    let timeline = results.timeline.as_mut().expect("recorded");
    let flush = |at_ns, kind| RequestStep {
        op: 'F',
        ..step(at_ns, kind, 9)
    };
    let steps = &mut timeline.disks[0].steps;
    steps.extend([
        flush(350, StepKind::Issued),
        flush(650, StepKind::Completed),
    ]);
    steps.sort_by_key(|step| step.at_ns);
    assert_eq!(names(&results), ["flush beside 2 others"]);
}

#[test]
fn memory_is_counted_where_the_page_cache_was_used() {
    let counted = |results: &Results| -> Vec<(u64, Option<i64>)> {
        let packets = packets(results);
        let tracks = packets
            .iter()
            .filter_map(|packet| packet.track_descriptor.as_ref());
        let dirty = tracks.filter(|track| track.name.as_deref() == Some("dirty bytes"));
        let dirty: Vec<Option<u64>> = dirty.map(|track| track.uuid).collect();
        let events = events(&packets);
        let own = events
            .iter()
            .filter(|(_, event)| dirty.contains(&event.track_uuid));
        own.map(|(at_ns, event)| (*at_ns, event.counter_value))
            .collect()
    };
    let mut results = two_reads();
    assert_eq!(counted(&results), []);
    let sample = |at_ns, dirty_bytes| CacheSample {
        at_ns,
        dirty_bytes,
        cached_bytes: 8192,
    };
    results.page_cache = Some(CacheStats {
        samples: vec![sample(0, 0), sample(500, 4096), sample(5000, 0)],
        ..CacheStats::default()
    });
    // The last sample is after the end of the recording.
    assert_eq!(counted(&results), [(0, Some(0)), (500, Some(4096))]);
}
