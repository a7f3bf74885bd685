//! The driver of the PL181 against the kernel's: the same requests, register by register.

use std::path::{Path, PathBuf};

use blklab_mmc::emulated::{CardSpec, EmulatedCard, Protocol, Slot};
use blklab_mmc::pl181::{Access, Controller, Mmci};
use blklab_mmc::{Command, CommandFlags, Core, Data, Direction, Host, Ios, PowerMode, Request};
use blklab_workload::trace::read_text;

/// `max-frequency` of the board's device tree.
const F_MAX_HZ: u32 = 12_000_000;
/// What this card's registers allow a read and a write.
const TIMEOUT_NS: [u32; 2] = [100_000_000, 2_400_000_000];

fn recorded(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/pl181");
    let path: PathBuf = folder.join(format!("sdsc_128m.{name}.gz"));
    read_text(&path).unwrap()
}

/// QEMU's card of 128 MiB, with checksums behind its registers.
fn slot() -> Slot {
    Slot::with(EmulatedCard::new(CardSpec {
        protocol: Protocol::Sd { has_if_cond: true },
        ocr: 0x00ff_ff00,
        is_block_addressed: false,
        cid: [0xaa58_5951, 0x454d_5521, 0x01de_adbe, 0xef00_6218],
        csd: [0x0026_0032, 0x5f59_e07f, 0xffff_dfff, 0x9260_008e],
        scr: [0x0225_0000, 0],
        ssr: [0; 16],
        rca: 0x4567,
        modes: 3,
        ext_csd: Vec::new(),
        sectors: 262_144,
        power_up_polls: 0,
        busy_ns: 0,
    }))
}

/// The value of a field, in either base.
fn field(line: &str, name: &str) -> u32 {
    let words = line.split(' ').filter_map(|word| word.split_once('='));
    let (_, value) = { words }.find(|(key, _)| *key == name).expect(name);
    match value.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).unwrap(),
        None => value.parse().unwrap(),
    }
}

fn command(line: &str, name: &str) -> Option<Command> {
    let of = |part: &str| field(line, &format!("{name}_{part}"));
    let flags = CommandFlags::from_bits_retain(of("flags"));
    let command = Command::new(of("opcode") as u8, of("arg"), flags);
    (name == "cmd" || command.opcode > 0).then_some(command)
}

fn request(line: &str) -> Request {
    let data = (field(line, "blocks") > 0).then(|| {
        let (direction, timeout_ns) = match field(line, "data_flags") {
            0x200 => (Direction::Read, TIMEOUT_NS[0]),
            _ => (Direction::Write, TIMEOUT_NS[1]),
        };
        Data {
            timeout_ns,
            ..Data::new(direction, field(line, "block_size"), field(line, "blocks"))
        }
    });
    Request {
        set_block_count: command(line, "sbc"),
        command: command(line, "cmd").expect("a command"),
        data,
        stop: command(line, "stop"),
    }
}

fn shown(access: &Access) -> String {
    match access {
        Access::Read(offset, value) => format!("r {offset:03x} {value:x}"),
        Access::Write(offset, value) => format!("w {offset:03x} {value:x}"),
        Access::Take(words) => format!("take {words}"),
        Access::Put(words) => format!("put {words}"),
    }
}

/// From the driver's probe to the last of a hundred transfers.
#[test]
fn registers_are_used_as_the_kernel_uses_them() {
    let mut controller = Controller::new(slot());
    controller.watch();
    let mut host = Mmci::new(controller, F_MAX_HZ);
    let power = |power_mode, clock_hz| Ios {
        power_mode,
        clock_hz,
        ..Ios::default()
    };
    host.set_ios(&power(PowerMode::Up, 0));
    host.set_ios(&power(PowerMode::On, 400_000));
    let mut transfers = 0;
    let kernels = recorded("registers");
    let kernels: Vec<&str> = kernels.lines().collect();
    let mut ours: Vec<String> = Vec::new();
    for line in recorded("requests").lines() {
        let accesses = host.controller_mut().take_accesses();
        ours.extend(accesses.iter().map(shown));
        // Whether it had idled for 50 ms, only the recording knows.
        if kernels.get(ours.len()) == Some(&"w 03c 0") {
            host.runtime_suspend();
        }
        let mut request = request(line);
        let is_block_io = field(line, "block_size") == 512;
        if is_block_io && transfers == 0 {
            host.set_ios(&power(PowerMode::On, F_MAX_HZ));
        }
        transfers += u32::from(is_block_io);
        host.request(&mut request);
    }
    assert!(transfers > 100, "{transfers}");
    let accesses = host.controller_mut().take_accesses();
    ours.extend(accesses.iter().map(shown));
    let differs = (0..ours.len().max(kernels.len()))
        .find(|&at| ours.get(at).map(String::as_str) != kernels.get(at).copied());
    if let Some(at) = differs {
        let from = at.saturating_sub(12);
        let until = |len: usize| (at + 6).min(len);
        panic!(
            "line {} of {}: kernel {:?}, ours {:?}",
            at + 1,
            kernels.len(),
            &kernels[from..until(kernels.len())],
            &ours[from..until(ours.len())]
        );
    }
    assert!(kernels.len() > 40_000);
}

/// Our core on this host asks what the kernel's asked, until the card is known.
#[test]
fn a_card_behind_it_is_identified_as_the_kernel_does() {
    let host = Mmci::new(Controller::new(slot()), F_MAX_HZ);
    let mut core = Core::new(Box::new(host), 0);
    core.watch();
    assert!(core.rescan());
    let events = core
        .take_events()
        .into_iter()
        .map(|event| event.to_string());
    let starts = events.filter_map(|text| {
        let fields = text.strip_prefix("mmc_request_start: ")?.to_owned();
        Some(fields.split(" can_retune").next()?.to_owned())
    });
    let ours: Vec<String> = starts.collect();
    let recorded = recorded("requests");
    let kernels = recorded.lines();
    let kernels: Vec<&str> = { kernels }
        .take_while(|line| field(line, "block_size") != 512)
        .collect();
    assert_eq!(ours, kernels);
    assert_eq!(core.card().expect("a card").rca, 0x4567);
}
