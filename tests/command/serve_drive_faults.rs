//! `blklab serve --faults`: what clients see of a drive that damages data, on every back end and
//! through every front end.

use blklab_serve::{Machine, MachineQueue, MachineSetup};
use blklab_virtio::Operation;

use crate::support::served::{Served, have, metric, nbdsh};
use crate::support::{Outcome, Place};

/// Python for all scripts: each sector of the disk has its own number all over.
const FILL: &str = "\
import struct
size, sector = h.get_size(), 512
def numbered(first, count):
    return b''.join(struct.pack('<I', n) * 128 for n in range(first, first + count))
def all_of():
    return b''.join(h.pread(1 << 20, at) for at in range(0, size, 1 << 20))
def places(data, byte):
    return [n for n in range(len(data) // sector) if data[n * sector] == byte]
";

/// With only faults of reads, a disk is filled as it should be.
const NUMBER: &str = "\
for at in range(0, size, 1 << 20):
    h.pwrite(numbered(at // sector, 2048), at)
";

/// A fault, the metric that counts it, and what a client finds.
const FOUND: [(&str, &str, &[&str]); 7] = [
    (
        "bit_rot=1",
        "bits_rotted",
        &["\
ones = lambda data: sum(bin(byte).count('1') for byte in data)
h.pwrite(bytes(4096), 4096)
first, second = h.pread(4096, 4096), h.pread(4096, 4096)
assert ones(first) == 1, ones(first)
assert ones(second) in (0, 2), ones(second)
assert ones(second) == 0 or ones(bytes(a & b for a, b in zip(first, second))) == 1
h.pwrite(bytes(4096), 4096)
assert ones(h.pread(4096, 4096)) == 1
print(first.hex())
"],
    ),
    (
        "stale_read=1",
        "stale_reads",
        &[
            NUMBER,
            "\
h.pwrite(b'a' * 4096, 4096)
assert h.pread(4096, 4096) == numbered(8, 8)
h.pwrite(b'b' * 512, 4608)
assert h.pread(4096, 4096) == numbered(8, 1) + b'a' * 512 + numbered(10, 6)
h.zero(4096, 4096)
assert h.pread(1024, 4096) == b'a' * 512 + b'b' * 512
",
        ],
    ),
    (
        "misdirected_read=1",
        "misdirected_reads",
        &[
            NUMBER,
            "\
found = [struct.unpack('<I', h.pread(4096, 4096)[:4])[0] for _ in range(8)]
assert len(set(found)) > 4 and found != [8] * 8, found
data = h.pread(4096, 4096)
first = struct.unpack('<I', data[:4])[0]
assert data == numbered(first, 8), first
print(found, first)
",
        ],
    ),
    (
        "misdirected_write=1",
        "misdirected_writes",
        &["\
h.pwrite(b'x' * 4096, 4096)
data = all_of()
found = places(data, ord('x'))
assert len(found) == 8 and found != list(range(8, 16)), found
assert data.count(b'x') == 4096 and found[-1] - found[0] == 7
print(found)
"],
    ),
    (
        "lost_write=1",
        "lost_writes",
        &["\
h.pwrite(b'x' * 4096, 4096)
h.flush()
assert b'x' not in all_of()
"],
    ),
    (
        "torn_write=1",
        "torn_writes",
        &["\
for at in range(0, 65536, 4096):
    h.pwrite(b'x' * 4096, at)
landed = [h.pread(4096, at) for at in range(0, 65536, 4096)]
counts = [data.count(b'x') for data in landed]
assert all(data == b'x' * n + bytes(4096 - n) for data, n in zip(landed, counts))
assert all(n % sector == 0 and n < 4096 for n in counts) and any(counts), counts
print(counts)
"],
    ),
    (
        "read_error=1",
        "reads_failed",
        &["\
try:
    h.pread(4096, 0)
    assert False, 'it was read'
except nbd.Error as error:
    assert error.errno == 'EIO', error
"],
    ),
];

/// What a client finds, which must be as it should be.
fn seen(place: &Place, back_end: &[&str], fault: &str, counter: &str, script: &[&str]) -> String {
    let faults = ["--faults", fault, "--seed", "7", "--metrics", "127.0.0.1:0"];
    let mut served = Served::start(place, &[back_end, &faults].concat());
    let metrics = served.metrics_address();
    let said = nbdsh(place, &served.uri(), &[&[FILL], script].concat());
    let counted = format!("blklab_drive_fault_{counter}_total");
    assert!(metric(&metrics, &counted, &[]) > 0, "{fault}");
    assert_eq!(served.terminate(), Some(0));
    said
}

#[test]
fn a_client_sees_each_fault_on_every_back_end_and_again_with_the_same_seed() {
    if !have("nbdsh") {
        return;
    }
    let other = Place::new();
    for (fault, counter, script) in FOUND {
        let mut said = Vec::new();
        let remote = Served::start(&other, &["--memory", "16M"]);
        for back_end in [
            &["--memory", "16M"][..],
            &["--file", "disk.img"],
            &[
                "--file", "disk.img", "--engine", "io_uring", "--drive", "nvme",
            ],
            &["--nbd", &remote.uri()],
            &["--memory", "16M"],
        ] {
            let place = Place::new();
            image(&place);
            said.push(seen(&place, back_end, fault, counter, script));
        }
        // The drive of one is larger, so that other places are drawn.
        assert_eq!(said[0], said[1], "{fault}");
        assert_eq!(said[0], said[3], "{fault}");
        assert_eq!(said[0], said[4], "{fault}");
        drop(remote);
    }
}

fn image(place: &Place) {
    std::fs::File::create(place.path("disk.img"))
        .and_then(|file| file.set_len(16 << 20))
        .expect("an image");
}

/// Whatever it shows, the file has what was written to it.
#[test]
fn the_back_end_keeps_what_it_was_given() {
    if !have("nbdsh") {
        return;
    }
    let place = Place::new();
    image(&place);
    let faults = ["--file", "disk.img", "--faults", "bit_rot=1,stale_read=1"];
    let served = Served::start(&place, &faults);
    nbdsh(
        &place,
        &served.uri(),
        &["h.pwrite(b'x' * 65536, 0); assert h.pread(65536, 0) != b'x' * 65536; h.flush()"],
    );
    assert_eq!(served.terminate(), Some(0));
    let image = std::fs::read(place.path("disk.img")).expect("an image");
    assert!(image[..65536].iter().all(|byte| *byte == b'x'));
}

fn once(queue: &mut MachineQueue, operation: Operation) {
    queue.submit(0, operation, 8, 4096).expect("submitted");
    queue.kick().expect("kicked");
    loop {
        queue.wait().expect("a ring");
        if let Some(ended) = queue.take_ended().expect("a ring") {
            return assert_eq!(ended.status, 0);
        }
    }
}

#[test]
fn a_virtual_machine_sees_them_too() {
    let place = Place::new();
    let socket = place.path("v.sock");
    let vhost_user = socket.to_string_lossy().into_owned();
    let setup = MachineSetup {
        queues: 1,
        depth: 1,
        data_bytes: 4096,
    };
    for (fault, expected) in [("lost_write=1", 0), ("stale_read=1", 1), ("slow=1", 2)] {
        let options = [
            "--vhost-user",
            &vhost_user,
            "--memory",
            "16M",
            "--faults",
            fault,
        ];
        let served = Served::start(&place, &options);
        let mut queues = Machine::queues(setup).expect("memory");
        let (machine, _) = Machine::start(&socket, &queues, None).expect("it is served");
        let queue = &mut queues[0];
        for byte in [1, 2] {
            queue.write_data(0, &[byte; 4096]).expect("room");
            once(queue, Operation::Write);
        }
        once(queue, Operation::Read);
        let mut data = [9; 4096];
        queue.read_data(0, &mut data).expect("room");
        assert_eq!(data, [expected; 4096], "{fault}");
        drop(machine);
        assert_eq!(served.terminate(), Some(0));
    }
}

/// fio writes, reads again what it wrote, and finds what was lost.
#[test]
fn a_served_job_that_verifies_finds_them() {
    if !have("fio") {
        return;
    }
    let place = Place::new();
    place.file(
        "v.fio",
        "[v]\nfilename=/dev/x\ndirect=1\nioengine=libaio\nrw=write\nbs=4k\nsize=1m\n\
         verify=crc32c\ncontinue_on_error=verify\n",
    );
    let compared = |faults: &[&str]| -> Outcome {
        let options = "compare v.fio --world serve --drive nvme --schedulers none --repeats 1 \
                       --output-format json -o c.json";
        let options: Vec<&str> = options.split_whitespace().collect();
        place.blklab(&[&options, faults].concat())
    };
    compared(&[]).ok();
    for (fault, counter) in [
        ("bit_rot=0.2", "bits_rotted"),
        ("lost_write=0.2", "lost_writes"),
    ] {
        compared(&["--faults", fault]);
        let text = std::fs::read_to_string(place.path("c.json")).expect("a comparison");
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let found = json.to_string();
        assert!(found.contains(counter), "{found}");
    }
}

#[test]
fn a_fault_that_cannot_be_is_told() {
    let place = Place::new();
    for (faults, says) in [
        ("bitrot=1", "did you mean bit_rot?"),
        ("lost_write=2", "right is a share of commands"),
        ("slow=2", "give a drive"),
    ] {
        let options = [
            "serve", "--socket", "s", "--memory", "16M", "--faults", faults,
        ];
        let refused = place.blklab(&options);
        assert_eq!(refused.status, 2, "{faults}: {}", refused.err);
        assert!(refused.err.contains(says), "{faults}: {}", refused.err);
    }
}

/// What a client wrote without a flush is lost in part with the power, what it flushed is not.
#[test]
fn a_power_cut_takes_what_was_not_flushed() {
    if !have("nbdsh") {
        return;
    }
    let write = "\
h.pwrite(b'f' * (1 << 20), 4 << 20)
h.flush()
for at in range(0, 1 << 20, 4096):
    h.pwrite(b'u' * 4096, at)
assert h.pread(1 << 20, 0) == b'u' * (1 << 20)
";
    let after = "\
blocks = [h.pread(4096, at) for at in range(0, 1 << 20, 4096)]
whole = sum(block == b'u' * 4096 for block in blocks)
gone = sum(block == bytes(4096) for block in blocks)
torn = [block for block in blocks if block not in (b'u' * 4096, bytes(4096))]
assert all(set(block) == set(b'u\\0') for block in torn)
assert all(block[n:n + 512] in (b'u' * 512, bytes(512)) for block in torn for n in range(0, 4096, 512))
assert h.pread(1 << 20, 4 << 20) == b'f' * (1 << 20)
assert whole > 50 and gone > 50 and len(torn) > 20, (whole, gone, len(torn))
print(whole, gone, len(torn))
";
    let mut said = Vec::new();
    for back_end in [
        &["--memory", "16M"][..],
        &["--memory", "16M", "--drive", "mx100-256"],
        &["--file", "disk.img"],
    ] {
        let place = Place::new();
        image(&place);
        let options = ["--power-cuts", "--seed", "5"];
        let served = Served::start(&place, &[back_end, &options].concat());
        let control = served.control.to_string_lossy();
        nbdsh(&place, &served.uri(), &[write]);
        let power = |words: &[&str]| place.blklab(&[words, &["--control", &*control]].concat());
        power(&["set", "power", "cut"]).ok();
        said.push(nbdsh(&place, &served.uri(), &[after]));
        let told = power(&["get", "power"]).ok().out;
        assert!(
            told.starts_with("1 cuts, ") && told.contains(" writes lost, "),
            "{told}"
        );
        assert_eq!(power(&["set", "power", "on"]).status, 2);
        assert_eq!(served.terminate(), Some(0));
    }
    // The same writes and the same seed.
    assert!(said.iter().all(|text| *text == said[0]), "{said:?}");
}

/// A client whose requests are under way is told that they failed, and goes on.
#[test]
fn requests_under_way_fail_with_the_power() {
    if !have("nbdsh") {
        return;
    }
    let place = Place::new();
    let options = ["--memory", "16M", "--drive", "hdd-7200", "--power-cuts"];
    let served = Served::start(&place, &options);
    let control = served.control.to_string_lossy();
    let program = env!("CARGO_BIN_EXE_blklab");
    let script = format!(
        "\
import subprocess
buffers = [nbd.Buffer(4096) for _ in range(200)]
cookies = [h.aio_pread(buffer, n * 7919 % 4000 * 4096) for n, buffer in enumerate(buffers)]
subprocess.run(['{program}', 'set', '--control', '{control}', 'power', 'cut'], check=True)
failed = 0
while cookies:
    h.poll(-1)
    for cookie in list(cookies):
        try:
            if h.aio_command_completed(cookie):
                cookies.remove(cookie)
        except nbd.Error as error:
            assert error.errno == 'EIO', error
            failed += 1
            cookies.remove(cookie)
assert failed > 0
assert h.pread(4096, 0) == bytes(4096)
"
    );
    nbdsh(&place, &served.uri(), &[&script]);
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn a_power_cut_has_to_be_asked_for() {
    let place = Place::new();
    let served = Served::start(&place, &["--memory", "16M"]);
    let control = served.control.to_string_lossy();
    let refused = place.blklab(&["set", "--control", &*control, "power", "cut"]);
    assert!(
        refused.err.contains("start it with --power-cuts"),
        "{}",
        refused.err
    );
    assert_eq!(served.terminate(), Some(0));
}
