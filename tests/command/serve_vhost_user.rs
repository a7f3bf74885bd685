//! Disks of virtual machines: QEMU's guest as the outside judge, and a server that is
//! killed under load.

use std::process::Command;

use blklab_serve::{Kept, Machine, MachineQueue, MachineSetup};
use blklab_virtio::Operation;

use crate::support::served::Served;
use crate::support::{Place, guest, kills};

const BLOCK: u32 = 4096;
const DEPTH: u16 = 8;

/// What the guest does with its disk.
const SCRIPT: &str = "\
set -e
disk=/sys/block/vda
cat $disk/serial; echo
cat $disk/queue/write_cache
echo \"write through\" > $disk/cache_type
cat $disk/queue/write_cache
echo \"write back\" > $disk/cache_type
ls $disk/mq | wc -l
blkdiscard -f /dev/vda 2>/dev/null || :
fio --name=v --filename=/dev/vda --rw=randwrite --bsrange=512-64k --size=4m --verify=crc32c \\
    --iodepth=16 --ioengine=libaio --direct=1 --fsync=64 --verify_fatal=1 > /dev/null
dmesg | grep -i 'i/o error' && exit 1
echo passed
";

#[test]
fn linux_uses_the_disk_as_its_own() {
    let Some(kernel) = guest::kernel("kernel", |_| true) else {
        return;
    };
    if Command::new("qemu-system-x86_64")
        .arg("--version")
        .output()
        .is_err()
    {
        return blklab_judges::missing("qemu-system-x86_64");
    }
    let place = Place::new();
    let socket = place.path("v.sock").to_string_lossy().into_owned();
    let served = Served::start(
        &place,
        &[
            "--vhost-user",
            &socket,
            "--memory",
            "16M",
            "--name",
            "judged",
            "--scheduler",
            "bfq",
        ],
    );
    let devices = format!(
        "-object memory-backend-memfd,id=m,size=512M,share=on -machine memory-backend=m \
         -chardev socket,id=c,path={socket} -device vhost-user-blk-pci,chardev=c,num-queues=2"
    );
    let more = ["--load", "virtio_blk", "--qemu", &devices];
    let done = place.in_guest(SCRIPT, &kernel, 512, &more);
    let said = done.ok().out;
    for expected in ["judged", "write back", "write through", "2\n"] {
        assert!(said.contains(expected), "no {expected:?} in:\n{said}");
    }
    assert_eq!(served.terminate(), Some(0));
}

fn submit(queue: &mut MachineQueue, operation: Operation) {
    for slot in 0..DEPTH {
        let data = vec![slot as u8 + 1; BLOCK as usize];
        if operation == Operation::Write {
            queue.write_data(slot, &data).expect("room");
        }
        // Far apart, so that a disk takes its time for each.
        let sector = u64::from(slot) * 4096;
        queue
            .submit(slot, operation, sector, BLOCK)
            .expect("submitted");
    }
    queue.kick().expect("kicked");
}

/// All requests end once, and well.
fn end_all(queue: &mut MachineQueue) {
    let mut left: Vec<u16> = (0..DEPTH).collect();
    for _ in 0..600 {
        while let Some(ended) = queue.take_ended().expect("a ring") {
            assert_eq!(ended.status, 0);
            let place = left.iter().position(|slot| *slot == ended.slot);
            left.swap_remove(place.expect("it ends once"));
        }
        if left.is_empty() {
            return;
        }
        queue.wait().expect("a ring");
    }
    panic!("{left:?} never end");
}

#[test]
fn a_killed_server_s_successor_finishes_its_requests() {
    let place = Place::new();
    std::fs::File::create(place.path("disk.img"))
        .and_then(|file| file.set_len(64 << 20))
        .expect("an image");
    let socket = place.path("v.sock");
    let vhost_user = socket.to_string_lossy().into_owned();
    let options = [
        "--vhost-user",
        &vhost_user,
        "--file",
        "disk.img",
        "--drive",
        "hdd-7200",
    ];
    let setup = MachineSetup {
        queues: 1,
        depth: DEPTH,
        data_bytes: BLOCK,
    };
    let mut queues = Machine::queues(setup).expect("memory");
    let mut kept: Option<Kept> = None;
    let kills = kills(2);
    for round in 0..=kills {
        let served = Served::start(&place, &options);
        let (machine, now_kept) =
            Machine::start(&socket, &queues, kept.take()).expect("it is served");
        kept = now_kept;
        if round > 0 {
            end_all(&mut queues[0]);
        }
        if round < kills {
            submit(&mut queues[0], Operation::Write);
            served.kill();
        } else {
            submit(&mut queues[0], Operation::Read);
            end_all(&mut queues[0]);
            assert_eq!(served.terminate(), Some(0));
        }
        drop(machine);
    }
    for slot in 0..DEPTH {
        let mut data = vec![0; BLOCK as usize];
        queues[0].read_data(slot, &mut data).expect("room");
        assert_eq!(data, vec![slot as u8 + 1; BLOCK as usize]);
    }
}
