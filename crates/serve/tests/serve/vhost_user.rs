//! A virtual machine's disk: what a driver reads is what it wrote, and what breaks the
//! protocol ends its own connection only.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use blklab_serve::{ExportSpec, Machine, MachineQueue, MachineSetup, Server, ServerSpec};
use blklab_virtio::{Ended, Operation};

const SIZE: u64 = 1 << 20;
const BLOCK: usize = 4096;

struct Place {
    _folder: tempfile::TempDir,
    socket: PathBuf,
    server: Server,
}

fn serve(change: impl FnOnce(&mut ExportSpec)) -> Place {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("v.sock");
    let mut export = ExportSpec {
        name: "disk-of-a-name-too-long".to_string(),
        backends: vec![("memory", OsString::from("1M"))],
        vhost_user: Some(socket.clone()),
        ..ExportSpec::default()
    };
    change(&mut export);
    let spec = ServerSpec {
        export: vec![export],
        ..ServerSpec::default()
    };
    let config = spec.resolve().expect("a sound description");
    let server = Server::start(&config).expect("it starts");
    Place {
        _folder: folder,
        socket,
        server,
    }
}

fn connect(socket: &Path, queues: u16, depth: u16) -> (Machine, Vec<MachineQueue>) {
    let setup = MachineSetup {
        queues,
        depth,
        data_bytes: BLOCK as u32,
    };
    let queues = Machine::queues(setup).expect("memory");
    let (machine, kept) = Machine::start(socket, &queues, None).expect("it is served");
    assert!(kept.is_some(), "what is in flight is recorded");
    (machine, queues)
}

/// The next request that ends, which it does some time.
fn ended(queue: &mut MachineQueue) -> Ended {
    for _ in 0..60 {
        if let Some(ended) = queue.take_ended().expect("a ring") {
            return ended;
        }
        queue.wait().expect("a ring");
    }
    panic!("the disk does not answer");
}

/// The status of one request alone.
fn status_of(queue: &mut MachineQueue, operation: Operation, sector: u64, length: u32) -> u8 {
    queue
        .submit(0, operation, sector, length)
        .expect("submitted");
    queue.kick().expect("kicked");
    let Ended { slot, status } = ended(queue);
    assert_eq!(slot, 0);
    status
}

#[test]
fn what_was_written_is_read_through_any_queue() {
    for scheduler in ["none", "mq-deadline", "bfq"] {
        let place = serve(|export| export.scheduler = Some(scheduler.to_string()));
        let (machine, mut queues) = connect(&place.socket, 3, 8);
        assert_eq!(machine.capacity_bytes(), SIZE);
        for (index, queue) in queues.iter_mut().enumerate() {
            for slot in 0..8 {
                let block = index as u16 * 8 + slot;
                queue
                    .write_data(slot, &[block as u8 + 1; BLOCK])
                    .expect("room");
                let sector = u64::from(block) * 8;
                queue
                    .submit(slot, Operation::Write, sector, BLOCK as u32)
                    .expect("submitted");
            }
            queue.kick().expect("kicked");
        }
        for queue in &mut queues {
            (0..8).for_each(|_| assert_eq!(ended(queue).status, 0));
            assert_eq!(status_of(queue, Operation::Flush, 0, 0), 0);
        }
        let other = &mut queues[1];
        for block in 0..24 {
            let mut data = [0; BLOCK];
            assert_eq!(
                status_of(other, Operation::Read, block * 8, BLOCK as u32),
                0
            );
            other.read_data(0, &mut data).expect("room");
            assert_eq!(data, [block as u8 + 1; BLOCK]);
        }
        drop(machine);
        place.server.shut_down().expect("it ends well");
    }
}

#[test]
fn each_request_gets_its_status() {
    let place = serve(|_| {});
    let (_machine, mut queues) = connect(&place.socket, 1, 4);
    let queue = &mut queues[0];
    let (ok, io_error) = (0, 1);
    let end = SIZE / 512;
    assert_eq!(status_of(queue, Operation::Read, end - 8, BLOCK as u32), ok);
    assert_eq!(
        status_of(queue, Operation::Read, end - 7, BLOCK as u32),
        io_error
    );
    assert_eq!(status_of(queue, Operation::Write, u64::MAX, 512), io_error);
    assert_eq!(status_of(queue, Operation::GetId, 0, 20), ok);
    let mut id = [0; 20];
    queue.read_data(0, &mut id).expect("room");
    assert_eq!(&id, b"disk-of-a-name-too-l");
    // Zeroes and a discard of what was written.
    for operation in [
        Operation::WriteZeroes { may_unmap: false },
        Operation::Discard,
    ] {
        queue.write_data(0, &[7; BLOCK]).expect("room");
        assert_eq!(status_of(queue, Operation::Write, 8, BLOCK as u32), ok);
        let mut range = 8_u64.to_le_bytes().to_vec();
        range.extend([8, 0, 0, 0, 0, 0, 0, 0]);
        queue.write_data(0, &range).expect("room");
        assert_eq!(status_of(queue, operation, 0, 16), ok);
        assert_eq!(status_of(queue, Operation::Read, 8, BLOCK as u32), ok);
        let mut data = [1; BLOCK];
        queue.read_data(0, &mut data).expect("room");
        assert_eq!(data, [0; BLOCK]);
    }
    place.server.shut_down().expect("it ends well");
}

#[test]
fn writes_of_a_read_only_disk_fail() {
    let place = serve(|export| export.read_only = true);
    let (_machine, mut queues) = connect(&place.socket, 1, 1);
    assert_eq!(
        status_of(&mut queues[0], Operation::Write, 0, BLOCK as u32),
        1
    );
    assert_eq!(
        status_of(&mut queues[0], Operation::Read, 0, BLOCK as u32),
        0
    );
}

#[test]
fn who_breaks_the_protocol_harms_nobody_else() {
    let place = serve(|_| {});
    let (_machine, mut queues) = connect(&place.socket, 1, 1);
    for message in [vec![0xff; 64], vec![0; 12], vec![1]] {
        let mut stream = UnixStream::connect(&place.socket).expect("it listens");
        stream.write_all(&message).expect("sent");
    }
    // A driver whose requests overtake its ring.
    let (_other, mut broken) = connect(&place.socket, 1, 8);
    for _ in 0..100 {
        broken[0]
            .submit(0, Operation::Flush, 0, 0)
            .expect("submitted");
    }
    broken[0].kick().expect("kicked");
    assert_eq!(
        status_of(&mut queues[0], Operation::Read, 0, BLOCK as u32),
        0
    );
    place.server.shut_down().expect("it ends well");
}

#[test]
fn a_drive_of_a_model_answers_when_it_would() {
    let place = serve(|export| {
        export.drive = Some("hdd-7200".to_string());
        export.scheduler = Some("mq-deadline".to_string());
    });
    let (machine, mut queues) = connect(&place.socket, 2, 4);
    for queue in &mut queues {
        for slot in 0..4 {
            let sector = u64::from(slot) * 64;
            queue
                .submit(slot, Operation::Read, sector, BLOCK as u32)
                .expect("submitted");
        }
        queue.kick().expect("kicked");
    }
    for queue in &mut queues {
        (0..4).for_each(|_| assert_eq!(ended(queue).status, 0));
    }
    drop(machine);
    let (stats, _) = place.server.drive_stats().expect("a model");
    assert!(stats.queue.ios[0] > 0);
    place.server.shut_down().expect("it ends well");
}
