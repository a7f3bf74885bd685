//! Compares our addresses with those that the installed fio writes to an iolog.
//!
//! Sequential jobs must agree I/O by I/O. Random jobs draw other numbers, so only their amounts,
//! their set of blocks and their skew must agree.

use std::collections::{BTreeMap, BTreeSet};

use blklab_workload::fio::{Direction, Extent};
use blklab_workload::generate::{
    FileStep, Io, Layout, OffsetGenerator, Seeds, SyncSchedule, VerifyLog, ZoneCursor, ZonedFile,
    ZonedNext,
};

use super::parse;
use super::{Scratch, have_fio, text};

/// Direction, offset and length.
type Access = (Direction, u64, u64);

const HEAD: &str = "[a]\nioengine=null\nfilename=f\n";

/// Returns fio's I/Os.
fn fios(options: &str) -> Vec<Access> {
    let scratch = Scratch::new();
    scratch.write("t.fio", &format!("{HEAD}write_iolog=log\n{options}\n"));
    let output = scratch.fio(&["t.fio"]);
    assert!(output.status.success(), "{options}: {}", text(&output));
    accesses(&scratch.read("log"))
}

/// Returns the I/Os of an iolog (version 3: time, file, action, offset, length).
fn accesses(log: &str) -> Vec<Access> {
    log.lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let direction = match *fields.get(2)? {
                "read" => Direction::Read,
                "write" => Direction::Write,
                "trim" => Direction::Trim,
                _ => return None,
            };
            Some((direction, fields[3].parse().ok()?, fields[4].parse().ok()?))
        })
        .collect()
}

/// Returns our I/Os. fio's null engine takes the end of the job for that of the file.
fn ours(options: &str) -> Vec<Access> {
    let job = format!("{HEAD}{options}\n");
    let file = parse(&job).unwrap_or_else(|error| panic!("{error}"));
    let spec = &file.jobs[0];
    let seeds = Seeds::new(spec, 1, 0);
    let end = [spec.size, Some(spec.offset)]
        .into_iter()
        .flatten()
        .map(|extent| match extent {
            Extent::Bytes(bytes) => bytes,
            _ => 0,
        })
        .sum();
    let layout = Layout::new(spec, 0, &seeds, &[end]).unwrap();
    let mut generator = OffsetGenerator::new(spec, &layout, &seeds).unwrap();
    let mut accesses = Vec::new();
    while generator.start_pass() {
        while let Some(io) = generator.next() {
            accesses.push((io.direction, io.offset_bytes, u64::from(io.length_bytes)));
        }
    }
    accesses
}

#[test]
fn sequential_jobs_agree_io_by_io() {
    if !have_fio() {
        return;
    }
    for options in [
        "rw=read\nsize=64k",
        "rw=write\nsize=64k\nbs=16k",
        "rw=read\nsize=66k",
        "rw=read\nsize=64k\noffset=32k",
        "rw=read:4k\nsize=64k",
        "rw=read:12k\nsize=60k",
        "rw=read:-8k\nsize=64k",
        "rw=read\nsize=64k\nio_size=32k",
        "rw=read\nsize=64k\nio_size=160k",
        "rw=read\nsize=64k\nloops=3",
        "rw=read\nsize=64k\nnumber_ios=5",
        "rw=read\nsize=64k\nnumber_ios=5\nloops=2",
        "rw=read\nsize=64k\nnumber_ios=40",
        "rw=trim\nsize=64k",
        "rw=trimwrite\nsize=64k",
        "rw=read\nbs=64k\nsize=8m\nzonemode=strided\nzonesize=256k\nzoneskip=768k",
        "rw=read\nbs=64k\nsize=8m\nzonemode=strided\nzonesize=256k\nzonerange=1m\nzoneskip=1m",
        "rw=write\nbs=64k\nsize=8m\nio_size=2m\nzonemode=strided\nzonesize=1m\nzonerange=256k",
        "rw=read\nbs=64k\nsize=7m\noffset=1m\nzonemode=strided\nzonesize=192k\nzoneskip=3z",
    ] {
        assert_eq!(ours(options), fios(options), "{options}");
    }
}

/// What fio logs of files and their I/O: which file, what, from which byte on.
type FileEvent = (u32, &'static str, u64);

/// fio's events with files f0, f1 and so on.
fn fios_with_files(options: &str) -> Vec<FileEvent> {
    let scratch = Scratch::new();
    let head = "[a]\nioengine=null\nfilename_format=f$filenum\nwrite_iolog=log";
    scratch.write("t.fio", &format!("{head}\n{options}\n"));
    let output = scratch.fio(&["t.fio"]);
    assert!(output.status.success(), "{options}: {}", text(&output));
    let log = scratch.read("log");
    let mut events: Vec<FileEvent> = log.lines().filter_map(file_event).collect();
    // fio logs an I/O twice that the null engine takes at the second try.
    events.dedup();
    events
}

fn file_event(line: &str) -> Option<FileEvent> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let what = ["open", "close", "read", "write", "trim", "sync"];
    let what = what.into_iter().find(|what| fields.get(2) == Some(what))?;
    let at_bytes = match what {
        "read" | "write" | "trim" => fields[3].parse().ok()?,
        _ => 0,
    };
    Some((fields[1].strip_prefix('f')?.parse().ok()?, what, at_bytes))
}

/// Our events. As with fio's null engine, a process with a depth above one has an I/O in flight while
/// it decides on the next, and reaps it then, or when it must wait to open a file.
fn ours_with_files(options: &str) -> Vec<FileEvent> {
    let job = format!("[a]\nioengine=null\n{options}\n");
    let file = parse(&job).unwrap_or_else(|error| panic!("{error}"));
    let spec = &file.jobs[0];
    let seeds = Seeds::new(spec, 1, 0);
    let Some(Extent::Bytes(size)) = spec.size else {
        panic!("{options}: no size");
    };
    let files = vec![size / u64::from(spec.file_count); spec.file_count as usize];
    let layout = Layout::new(spec, 0, &seeds, &files).unwrap();
    let mut offsets = OffsetGenerator::new(spec, &layout, &seeds).unwrap();
    let mut syncs = SyncSchedule::new(spec);
    let (mut events, mut in_flight) = (Vec::new(), Vec::new());
    while offsets.start_pass() {
        loop {
            match offsets.turn_to_file() {
                FileStep::Over => break,
                FileStep::Open(file) => events.push((file, "open", 0)),
                FileStep::Close(file) => events.push((file, "close", 0)),
                FileStep::Busy => reap_all(&mut offsets, &mut in_flight),
                FileStep::Ready if syncs.as_ref().is_some_and(|s| s.due().is_some()) => {
                    events.push((offsets.chosen_file().unwrap(), "sync", 0));
                    offsets.flushed();
                    syncs.as_mut().unwrap().synced();
                }
                FileStep::Ready => {
                    let direction = offsets.next_direction();
                    let Some(io) = offsets.next_in(direction) else {
                        continue;
                    };
                    reap_all(&mut offsets, &mut in_flight);
                    in_flight.push(io.file);
                    if spec.io_depth == 1 {
                        reap_all(&mut offsets, &mut in_flight);
                    }
                    let what = match io.direction {
                        Direction::Read => "read",
                        Direction::Write => "write",
                        Direction::Trim => "trim",
                    };
                    events.push((io.file, what, io.offset_bytes));
                    if let Some(syncs) = &mut syncs {
                        syncs.issued(io.direction);
                    }
                }
            }
        }
        reap_all(&mut offsets, &mut in_flight);
    }
    while let Some(closed) = offsets.open_files().close_any() {
        events.push((closed, "close", 0));
    }
    events
}

fn reap_all(offsets: &mut OffsetGenerator, in_flight: &mut Vec<u32>) {
    for file in in_flight.drain(..) {
        offsets.open_files().reaped(file);
    }
}

/// The files of a job are opened, used and closed in fio's order.
#[test]
fn files_are_opened_and_closed_as_fio_does() {
    if !have_fio() {
        return;
    }
    for options in [
        "rw=read\nnrfiles=3\nsize=36k",
        "rw=read\nnrfiles=3\nsize=36k\nopenfiles=1",
        "rw=read\nnrfiles=3\nsize=36k\nopenfiles=2",
        "rw=write\nnrfiles=5\nsize=100k\nopenfiles=3\nloops=2",
        "rw=read\nnrfiles=4\nsize=70k\nopenfiles=2",
        "rw=read\nnrfiles=4\nsize=70k\nopenfiles=9\nloops=2",
        "rw=read\nnrfiles=4\nsize=48k\nopenfiles=2\nfile_service_type=roundrobin:2",
        "rw=read\nnrfiles=4\nsize=64k\nopenfiles=3\nfile_service_type=roundrobin:3",
        "rw=write\nnrfiles=4\nsize=64k\nfile_service_type=sequential",
        "rw=write\nnrfiles=4\nsize=64k\nopenfiles=2\nfile_service_type=sequential\nloops=2",
        "rw=read\nnrfiles=4\nsize=64k\nopenfiles=2\nio_size=160k",
        "rw=read\nnrfiles=4\nsize=64k\nopenfiles=2\nnumber_ios=9",
        "rw=write\nnrfiles=2\nsize=24k\nfsync=1",
        "rw=write\nnrfiles=4\nsize=64k\nopenfiles=2\nfsync=2",
        "rw=write\nnrfiles=4\nsize=64k\nopenfiles=2\nfsync=3\nfile_service_type=sequential",
        "rw=trimwrite\nnrfiles=3\nsize=48k\nopenfiles=2",
    ] {
        assert_events(options, ours_with_files(options), fios_with_files(options));
    }
    for options in [
        "nrfiles=3\nsize=48k\nopenfiles=2\niodepth=4",
        "nrfiles=5\nsize=100k\nopenfiles=2\niodepth=3\nfile_service_type=roundrobin:2",
        "nrfiles=5\nsize=100k\nopenfiles=1\niodepth=8",
        "nrfiles=4\nsize=100k\nopenfiles=3\niodepth=5\nfile_service_type=roundrobin:3",
    ] {
        // fio logs that a file is done, which closes when its I/Os are reaped.
        let without_closes = |mut events: Vec<FileEvent>| {
            events.retain(|(_, what, _)| *what != "close");
            events
        };
        let options = format!("rw=read\n{options}");
        let (ours, fios) = (ours_with_files(&options), fios_with_files(&options));
        assert_events(&options, without_closes(ours), without_closes(fios));
    }
}

fn assert_events(options: &str, ours: Vec<FileEvent>, fios: Vec<FileEvent>) {
    let differs = ours.iter().zip(&fios).position(|(our, their)| our != their);
    let from = differs
        .unwrap_or(ours.len().min(fios.len()))
        .saturating_sub(3);
    let part = |events: &[FileEvent]| {
        format!("{:?}", events.iter().skip(from).take(8).collect::<Vec<_>>())
    };
    assert!(
        ours == fios,
        "{options}: from {from} of {}\nours {}\nfio  {}",
        fios.len(),
        part(&ours),
        part(&fios)
    );
}

/// Where files are drawn, the numbers differ; but as many are open, and each is opened, read and
/// closed as often.
#[test]
fn drawn_files_are_opened_and_closed_as_often_as_in_fio() {
    if !have_fio() {
        return;
    }
    for options in [
        "rw=read\nnrfiles=4\nsize=256k\nopenfiles=2\nfile_service_type=random",
        "rw=randread\nnrfiles=6\nsize=384k\nopenfiles=1\nfile_service_type=random\nloops=2",
        "rw=randread\nnrfiles=6\nsize=384k\nopenfiles=3\niodepth=4\nfile_service_type=random:3",
    ] {
        let counted = |events: Vec<FileEvent>| {
            let (mut open, mut most, mut counts) = (0, 0, BTreeMap::new());
            for (file, what, _) in events {
                match what {
                    "open" => open += 1,
                    "close" => open -= 1,
                    _ => {}
                }
                most = most.max(open);
                *counts.entry((file, what)).or_insert(0) += 1;
            }
            (open, most, counts)
        };
        assert_eq!(
            counted(ours_with_files(options)),
            counted(fios_with_files(options)),
            "{options}"
        );
    }
}

/// The size of the file in which jobs keep to zones of 1 MiB.
const ZONED_FILE_BYTES: u64 = 8 << 20;

/// fio's I/Os in zones that it makes up itself on a plain file, and the zones that it reset.
fn fios_in_zones(options: &str) -> (Vec<Access>, u64) {
    let scratch = Scratch::new();
    scratch.write_bytes("f", &vec![0; ZONED_FILE_BYTES as usize]);
    let head = "[a]\nioengine=psync\nfilename=f\nzonemode=zbd\nzonesize=1m\n";
    scratch.write("t.fio", &format!("{head}write_iolog=log\n{options}\n"));
    let output = scratch.fio(&["t.fio"]);
    assert!(output.status.success(), "{options}: {}", text(&output));
    let printed = text(&output);
    let resets = printed
        .split(" zone resets")
        .next()
        .filter(|part| *part != printed);
    let resets = resets.and_then(|part| part.rsplit(' ').next()?.parse().ok());
    (accesses(&scratch.read("log")), resets.unwrap_or(0))
}

/// Our I/Os of a process that waits for each.
fn ours_in_zones(options: &str) -> (Vec<Access>, u64) {
    let head = "[a]\nioengine=psync\ndirect=1\nfilename=f\nzonemode=zbd\nzonesize=1m\n";
    let file = parse(&format!("{head}{options}\n")).unwrap_or_else(|error| panic!("{error}"));
    let spec = &file.jobs[0];
    let seeds = Seeds::new(spec, 1, 0);
    let mut layout = Layout::new(spec, 0, &seeds, &[ZONED_FILE_BYTES]).unwrap();
    let mut zones = ZonedFile::new(spec, ZONED_FILE_BYTES, None).unwrap();
    zones.check(spec).unwrap();
    zones.fit(spec, &mut layout.files[0]).unwrap();
    let mut cursor = ZoneCursor::new(spec, 0, &layout.files[0], &zones);
    let mut generator = OffsetGenerator::new(spec, &layout, &seeds).unwrap();
    let mut accesses = Vec::new();
    while generator.start_pass() {
        cursor.start_pass(&mut zones);
        loop {
            match generator.turn_to_file() {
                FileStep::Ready => {}
                FileStep::Over => break,
                _ => continue,
            }
            let direction = generator.next_direction();
            if !generator.draw_in_zones(direction, (&mut cursor, &zones)) {
                continue;
            }
            let next = loop {
                match generator.place_in_zones((&mut cursor, &mut zones), true) {
                    ZonedNext::Idle => {}
                    next => break next,
                }
            };
            let ZonedNext::Io(io, holds_zone) = next else {
                assert_eq!(next, ZonedNext::End, "{options}");
                break;
            };
            let length = u64::from(io.length_bytes);
            generator.open_files().reaped(io.file);
            accesses.push((io.direction, io.offset_bytes, length));
            if holds_zone {
                zones.release(&mut cursor, io.direction, io.offset_bytes + length);
            }
        }
    }
    (accesses, zones.resets())
}

#[test]
fn sequential_jobs_in_zones_agree_io_by_io() {
    if !have_fio() {
        return;
    }
    for options in [
        "rw=write\nbs=64k\nsize=8m\nzonecapacity=768k",
        "rw=write\nbs=64k\nsize=4m\noffset=1m\nloops=2",
        "rw=write\nbs=96k\nsize=4m\nzonecapacity=768k\nmax_open_zones=2\nio_size=8m",
        "rw=write\nbs=96k\nsize=4m\nzonecapacity=700k",
        "rw=write\nbs=64k\nsize=3z\noffset=2z",
        "rw=write\nbs=64k\nsize=8m\nzone_reset_threshold=0.5\nzone_reset_frequency=0.25",
        "rw=write\nbs=64k\noffset=100k\nsize=3500k",
        "rw=write\nbs=64k\nsize=8m\nmax_open_zones=1\njob_max_open_zones=1",
        "rw=read\nbs=64k\nsize=8m",
        "rw=read\nbs=64k\nsize=8m\nread_beyond_wp=1",
    ] {
        assert_eq!(ours_in_zones(options), fios_in_zones(options), "{options}");
    }
}

/// Other numbers are drawn, but as much is read and written, as many zones are reset, and each
/// write is where the zone's last one ended.
#[test]
fn random_jobs_in_zones_do_as_much() {
    if !have_fio() {
        return;
    }
    for (options, resets_alike) in [
        ("rw=randwrite\nbs=64k\nsize=8m", 2),
        ("rw=randwrite\nbs=64k\nsize=8m\nmax_open_zones=2", 3),
        (
            "rw=randwrite\nbs=64k\nsize=8m\nnorandommap\nio_size=64m\nzonecapacity=512k",
            8,
        ),
        (
            "rw=randwrite\nbs=64k\nsize=8m\nnorandommap\nio_size=64m\n\
             zone_reset_threshold=0.5\nzone_reset_frequency=0.25",
            15,
        ),
        (
            "rw=randrw\nbs=64k\nsize=8m\nnorandommap\nio_size=64m\nread_beyond_wp=1",
            8,
        ),
        (
            "rw=randrw\nbs=64k\nsize=8m\nnorandommap\nio_size=64m\nmax_open_zones=3",
            8,
        ),
    ] {
        let ((ours, our_resets), (fios, their_resets)) =
            (ours_in_zones(options), fios_in_zones(options));
        assert!(
            our_resets.abs_diff(their_resets) <= resets_alike,
            "{options}: {our_resets} {their_resets}"
        );
        // There is nothing to read at first.
        if !options.contains("read_beyond_wp") {
            assert_eq!([ours[0].0, fios[0].0], [Direction::Write; 2], "{options}");
        }
        let all = |accesses: &[Access]| bytes_by_direction(accesses).values().sum::<u64>();
        assert_eq!(all(&ours), all(&fios), "{options}");
        for accesses in [&ours, &fios] {
            let mut ends = BTreeMap::new();
            for (_, offset, length) in accesses.iter().filter(|a| a.0 == Direction::Write) {
                let zone = offset >> 20;
                let end = ends.insert(zone, offset + length).unwrap_or(zone << 20);
                assert!(
                    [end, zone << 20].contains(offset),
                    "{options}: {offset} {end}"
                );
            }
        }
    }
}

/// The options of a job that writes a file and verifies it, with psync unless they say otherwise.
fn verifying(options: &str) -> String {
    format!("[a]\nioengine=psync\ndirect=1\nfilename=f\nverify=crc32c\n{options}\n")
}

/// fio's I/Os where it verifies a file.
fn fios_verified(options: &str) -> Vec<Access> {
    let scratch = Scratch::new();
    // Not every file system of a test takes direct I/O; the order is the same without.
    let job = verifying(options).replace("direct=1\n", "");
    scratch.write("t.fio", &format!("{job}write_iolog=log\n"));
    let output = scratch.fio(&["t.fio"]);
    assert!(output.status.success(), "{options}: {}", text(&output));
    accesses(&scratch.read("log"))
}

fn access(io: &Io, direction: Direction) -> Access {
    (direction, io.offset_bytes, u64::from(io.length_bytes))
}

/// A list of what a process writes that waits for each I/O, and its I/Os so far.
struct Verifying {
    log: VerifyLog,
    accesses: Vec<Access>,
}

impl Verifying {
    /// Reads again what is due between two writes.
    fn read_due(&mut self) -> Option<u64> {
        let io = self.log.due()?.io;
        self.log.other_ended(Direction::Read);
        self.accesses.push(access(&io, Direction::Read));
        Some(io.length_bytes.into())
    }

    fn carry_out(&mut self, io: Io) {
        self.accesses.push(access(&io, io.direction));
        match io.direction {
            Direction::Write => {
                let written = self.log.issued(io, true);
                self.log.write_ended(&written, true);
            }
            other => self.log.other_ended(other),
        }
    }

    /// Reads again what is left. Returns the bytes.
    fn read_rest(&mut self) -> u64 {
        self.log.start_verify();
        let rest = std::iter::from_fn(|| self.log.next());
        let rest: Vec<Access> = rest.map(|w| access(&w.io, Direction::Read)).collect();
        self.accesses.extend(&rest);
        rest.iter().map(|(_, _, length)| length).sum()
    }
}

fn ours_verified(options: &str) -> Vec<Access> {
    let file = parse(&verifying(options)).unwrap_or_else(|error| panic!("{error}"));
    let spec = &file.jobs[0];
    let seeds = Seeds::new(spec, 1, 0);
    let Some(Extent::Bytes(size)) = spec.size else {
        panic!("{options}: no size");
    };
    let layout = Layout::new(spec, 0, &seeds, &[size]).unwrap();
    let mut generator = OffsetGenerator::new(spec, &layout, &seeds).unwrap();
    let mut process = Verifying {
        log: VerifyLog::new(spec).unwrap(),
        accesses: Vec::new(),
    };
    while generator.start_pass() {
        process.log.start_pass();
        while generator.may_issue() {
            if let Some(bytes) = process.read_due() {
                generator.verified(bytes, true);
                continue;
            }
            let Some(io) = generator.next() else { break };
            process.carry_out(io);
        }
        generator.verified(process.read_rest(), false);
    }
    process.accesses
}

#[test]
fn sequential_jobs_verify_io_by_io_as_fio_does() {
    if !have_fio() {
        return;
    }
    for options in [
        "rw=write\nsize=64k",
        "rw=write\nsize=64k\nverify=md5",
        "rw=write\nsize=64k\nverify_pattern=0xab",
        "rw=write\nsize=64k\ndo_verify=0",
        "rw=write\nsize=64k\nverify_backlog=3",
        "rw=write\nsize=64k\nverify_backlog=3\nverify_backlog_batch=2",
        "rw=write\nsize=64k\nverify_backlog=2\nverify_backlog_batch=5",
        "rw=write\nsize=64k\nverify_backlog=16\nloops=2",
        "rw=write\nsize=64k\nloops=3",
        "rw=write\nsize=64k\nio_size=160k",
        "rw=write\nsize=64k\nnumber_ios=6",
        "rw=write\nsize=64k\nnumber_ios=6\nloops=2",
        "rw=write\nsize=64k\nnumber_ios=6\nverify_backlog=2",
        "rw=write\nsize=64k\nverify_backlog=2\nioengine=libaio",
        "rw=write\nsize=64k\nverify_backlog=2\nioengine=libaio\nloops=2",
        "rw=write:4k\nsize=64k\nverify_backlog=3",
        "rw=write\nbs=16k\nsize=128k\nverify_interval=4k",
    ] {
        assert_eq!(ours_verified(options), fios_verified(options), "{options}");
    }
}

/// fio draws other offsets; given its writes, its reads follow from our list.
#[test]
fn random_jobs_verify_the_writes_in_fios_order() {
    if !have_fio() {
        return;
    }
    for options in [
        "rw=randwrite\nsize=256k",
        "rw=randwrite\nsize=256k\nverify_backlog=5",
        "rw=randwrite\nsize=256k\nverify_backlog=5\nverify_backlog_batch=3",
        "rw=randwrite\nsize=256k\nnorandommap",
        "rw=randwrite\nsize=256k\nnorandommap\nverify_backlog=5",
        "rw=randwrite\nsize=256k\nnorandommap\nverify_backlog=4\nverify_backlog_batch=9",
        "rw=randwrite\nsize=256k\nrandom_generator=lfsr",
        "rw=randwrite\nsize=256k\nbsrange=4k-16k",
        "rw=randwrite\nsize=256k\nbsrange=4k-16k\nnorandommap\nverify_backlog=3",
        "rw=randwrite\nsize=256k\nrandom_distribution=zipf:1.2",
        "rw=randrw\nsize=256k",
        "rw=randrw\nsize=256k\nverify_backlog=4",
    ] {
        let fios = fios_verified(options);
        let file = parse(&verifying(options)).unwrap_or_else(|error| panic!("{error}"));
        let mut process = Verifying {
            log: VerifyLog::new(&file.jobs[0]).unwrap(),
            accesses: Vec::new(),
        };
        let mut seen = BTreeSet::new();
        for &(direction, offset_bytes, length) in &fios {
            // A mix reads each block once itself, and no block that it has written.
            let is_first = seen.insert(offset_bytes);
            if direction == Direction::Read && !is_first {
                continue;
            }
            while process.read_due().is_some() {}
            process.carry_out(Io {
                direction,
                file: 0,
                offset_bytes,
                length_bytes: length as u32,
            });
        }
        while process.read_due().is_some() {}
        process.read_rest();
        assert_eq!(process.accesses, fios, "{options}");
    }
}

fn bytes_by_direction(accesses: &[Access]) -> BTreeMap<Direction, u64> {
    let mut bytes = BTreeMap::new();
    for (direction, _, length) in accesses {
        *bytes.entry(*direction).or_insert(0) += length;
    }
    bytes
}

fn sorted(mut accesses: Vec<Access>) -> Vec<Access> {
    accesses.sort_unstable_by_key(|(direction, offset, length)| (*offset, *direction, *length));
    accesses
}

#[test]
fn random_jobs_visit_the_same_blocks() {
    if !have_fio() {
        return;
    }
    for options in [
        "rw=randread\nsize=1m",
        "rw=randwrite\nsize=1m\nbs=12k",
        "rw=randread\nsize=1m\noffset=64k",
        "rw=randread\nsize=1m\nloops=2",
        "rw=randread\nsize=1m\nio_size=3m",
        "rw=randread\nsize=1m\nrandom_generator=lfsr",
        "rw=randtrimwrite\nsize=256k",
    ] {
        assert_eq!(sorted(ours(options)), sorted(fios(options)), "{options}");
    }
}

#[test]
fn random_jobs_do_as_much() {
    if !have_fio() {
        return;
    }
    for options in [
        "rw=randread\nsize=1m\nnorandommap",
        "rw=randread\nsize=1m\nnorandommap\nio_size=5m",
        "rw=randwrite\nsize=1m\nnorandommap\nio_size=5m",
        "rw=randread\nsize=1m\nnumber_ios=17",
        "rw=randread:8\nsize=1m\nnorandommap",
        "rw=randread\nsize=1m\nrandom_distribution=zipf:1.2",
        "rw=randread\nsize=1m\nba=512",
    ] {
        let (ours, fios) = (ours(options), fios(options));
        assert_eq!(
            bytes_by_direction(&ours),
            bytes_by_direction(&fios),
            "{options}"
        );
    }
}

/// Returns the share of I/Os that went to the `n` most popular blocks.
fn share_of_most_popular(accesses: &[Access], n: usize) -> f64 {
    let mut counts = BTreeMap::new();
    for (_, offset, _) in accesses {
        *counts.entry(*offset).or_insert(0u32) += 1;
    }
    let mut counts: Vec<u32> = counts.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let most: u32 = counts.iter().take(n).sum();
    f64::from(most) / accesses.len() as f64
}

#[test]
fn distributions_are_as_skewed() {
    if !have_fio() {
        return;
    }
    for distribution in [
        "zipf:1.2",
        "zipf:0.8",
        "pareto:0.2",
        "pareto:0.1",
        "normal:10",
    ] {
        let options = format!(
            "rw=randread\nsize=16m\nio_size=256m\nrandrepeat=0\nrandom_distribution={distribution}"
        );
        let (ours, fios) = (ours(&options), fios(&options));
        for n in [1, 10, 100, 1000] {
            let (our, their) = (
                share_of_most_popular(&ours, n),
                share_of_most_popular(&fios, n),
            );
            assert!(
                (our - their).abs() < 0.02 + 0.05 * their,
                "{distribution}: the first {n}: {our} {their}"
            );
        }
    }
}

#[test]
fn mixes_and_splits_have_the_same_shares() {
    if !have_fio() {
        return;
    }
    for (options, of) in [
        ("rw=randrw\nrwmixread=70\nnorandommap", None),
        ("rw=rw\nrwmixread=10", None),
        (
            "rw=randread\nnorandommap\nbssplit=4k/60:64k/30:16k/10",
            Some(65536),
        ),
        (
            "rw=randread\nnorandommap\nbssplit=4k/60:64k/30:16k/10",
            Some(16384),
        ),
        ("rw=randread\nnorandommap\nbsrange=4k-16k", Some(16384)),
        ("rw=randread\nnorandommap\nbsrange=4k-16k", Some(8192)),
    ] {
        let options = format!("{options}\nsize=256m\nnumber_ios=20000\nrandrepeat=0");
        let share = |accesses: Vec<Access>| {
            let hits = accesses.iter().filter(|(direction, _, length)| match of {
                None => *direction == Direction::Read,
                Some(size) => *length == size,
            });
            hits.count() as f64 / accesses.len() as f64
        };
        let (our, their) = (share(ours(&options)), share(fios(&options)));
        assert!(
            (our - their).abs() < 0.02,
            "{options} {of:?}: {our} {their}"
        );
    }
}
