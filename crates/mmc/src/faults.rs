//! Whatever goes wrong on the bus, every request ends once, nothing hangs, and a card
//! that is put back is found again.

use std::ops::Range;

use blklab_blk::Op;
use proptest::prelude::*;

use crate::block::{Area, BlockRequest, Outcome, Queue, QueueLimits};
use crate::core::Core;
use crate::emulated::{CardSpec, EmulatedCard, Fault, FaultKind, Protocol, Slot};
use crate::host::{Caps, Caps2, Host as _, SignalVoltage, Timing};
use crate::pl181::{self, Mmci};
use crate::sdhci::{Controller, ControllerSpec, Sdhci};

/// Tries of a request at most: five, and one for each sector that got through.
const MAX_TRIES: usize = 64;

/// The larger SD card of `tests/data/mmc-traces`, with CMD23 if it has `counts`.
pub(crate) fn card(counts: bool) -> CardSpec {
    CardSpec {
        protocol: Protocol::Sd { has_if_cond: true },
        ocr: 0x00ff_ff00,
        is_block_addressed: true,
        cid: [0xaa58_5951, 0x454d_5521, 0x01de_adbe, 0xef00_6200],
        csd: [0x400e_0032, 0x5b59_0000, 0x1fff_7f80, 0x0a40_0000],
        scr: match counts {
            true => [0x0235_8002, 0],
            false => [0x0225_0000, 0],
        },
        ssr: [0; 16],
        rca: 0x4567,
        modes: 3,
        ext_csd: Vec::new(),
        sectors: 8_388_608,
        power_up_polls: 2,
        busy_ns: 300_000,
    }
}

pub(crate) fn core(spec: CardSpec, faults: Vec<Fault>) -> Core {
    let mut slot = Slot::with(EmulatedCard::new(spec));
    slot.set_faults(faults);
    let controller = Controller::new(ControllerSpec::default(), slot);
    Core::new(
        Box::new(Sdhci::new(controller, Caps2::NO_PRESCAN_POWERUP)),
        0,
    )
}

/// Bits of the upper capabilities register: SDR50, SDR104, DDR50, tuning for SDR50.
const SDR50: u64 = 1;
const SDR104: u64 = 2;
const DDR50: u64 = 4;
const TUNED_SDR50: u64 = 1 << 13;

/// A card of version 3 with all modes of UHS-I.
fn uhs_card() -> CardSpec {
    CardSpec {
        modes: 0x1f,
        ..card(true)
    }
}

/// A controller of version 3 with a clock of 208 MHz and these modes; its card's data is
/// right at these phases.
fn fast_core(spec: CardSpec, modes: u64, phases: Range<u8>, faults: Vec<Fault>) -> Core {
    let mut slot = Slot::with(EmulatedCard::new(spec));
    slot.set_faults(faults);
    slot.set_good_phases(phases);
    let spec = ControllerSpec {
        capabilities: modes << 32 | 0x0578_d0b4,
        version: 2,
        ..ControllerSpec::default()
    };
    let host = Sdhci::new(Controller::new(spec, slot), Caps2::NO_PRESCAN_POWERUP);
    Core::new(Box::new(host.with_caps(Caps::EIGHT_BIT_DATA)), 0)
}

/// What a card is behind.
#[derive(Clone, Copy, Debug)]
enum HostKind {
    Sdhci,
    Pl181,
}

/// A host with a card.
#[derive(Clone, Debug)]
struct Bench {
    host: HostKind,
    card: CardSpec,
}

impl Bench {
    fn any() -> impl Strategy<Value = Bench> {
        let host = prop_oneof![Just(HostKind::Sdhci), Just(HostKind::Pl181)];
        let card = prop_oneof![
            any::<bool>().prop_map(card),
            Just(emmc()),
            Just(trimming_emmc())
        ];
        (host, card).prop_map(|(host, card)| Bench { host, card })
    }

    fn core(&self, faults: Vec<Fault>) -> Core {
        match self.host {
            HostKind::Sdhci => core(self.card.clone(), faults),
            HostKind::Pl181 => {
                let mut slot = Slot::with(EmulatedCard::new(self.card.clone()));
                slot.set_faults(faults);
                let host = Mmci::new(pl181::Controller::new(slot), 12_000_000);
                Core::new(Box::new(host), 0)
            }
        }
    }
}

fn queue(core: &Core) -> Queue {
    let area = Area::all(core.card().unwrap(), core.host().spec())[0];
    Queue::new(core, area).unwrap()
}

/// Runs requests until all have ended; how often each ended, and how many sectors
/// of each kind ended well.
fn run(core: &mut Core, requests: &[BlockRequest]) -> (Vec<usize>, [u64; 2]) {
    let mut queue = queue(core);
    let mut ends = vec![0; requests.len()];
    let mut good = [0; 2];
    let mut waiting: Vec<(u32, BlockRequest)> = (0..).zip(requests.iter().copied()).collect();
    waiting.reverse();
    let mut tries = 0;
    loop {
        let next = waiting.pop();
        match next {
            Some((tag, request)) => {
                tries += 1;
                assert!(tries <= MAX_TRIES * requests.len(), "it is tried for ever");
                queue.issue(core, tag, request);
            }
            None => queue.complete_work(core),
        }
        let outcomes = queue.take_outcomes();
        for &(tag, outcome) in &outcomes {
            match outcome {
                Outcome::Requeued(rest) => waiting.push((tag, rest)),
                Outcome::Ended(done) => {
                    ends[tag as usize] += 1;
                    let request = requests[tag as usize];
                    match request.op {
                        Op::Read if done.is_ok() => good[0] += u64::from(request.sectors),
                        Op::Write if done.is_ok() => good[1] += u64::from(request.sectors),
                        _ => {}
                    }
                }
            }
        }
        if next.is_none() && waiting.is_empty() && outcomes.is_empty() {
            return (ends, good);
        }
    }
}

fn request() -> impl Strategy<Value = BlockRequest> {
    let op = prop_oneof![
        Just(Op::Read),
        Just(Op::Write),
        Just(Op::Discard),
        Just(Op::WriteZeroes)
    ];
    (op, 0..8_388_000_u64, 1..24_u32).prop_map(|(op, sector, sectors)| BlockRequest {
        op,
        sector,
        sectors,
        fua: false,
        retries: 0,
    })
}

fn fault() -> impl Strategy<Value = Fault> {
    let kind = prop_oneof![
        Just(FaultKind::CommandLost),
        Just(FaultKind::AnswerDamaged),
        Just(FaultKind::DataDamaged),
        Just(FaultKind::DataLost),
        Just(FaultKind::Pulled),
    ];
    (0..80_u64, 0..6_u32, kind).prop_map(|(command, block, kind)| Fault {
        command,
        block,
        kind,
    })
}

proptest! {
    #[test]
    fn every_request_ends_once_whatever_goes_wrong(
        bench in Bench::any(),
        faults in prop::collection::vec(fault(), 0..6),
        requests in prop::collection::vec(request(), 1..8),
    ) {
        let mut core = bench.core(faults);
        if core.rescan() {
            let (ends, good) = run(&mut core, &requests);
            prop_assert!(ends.iter().all(|&ends| ends == 1), "{ends:?}");
            if let Some(card) = core.host_mut().slot_mut().card() {
                // What ended well went over the bus; tries in vain may have too.
                let [read, written, _] = card.totals();
                prop_assert!(read >= good[0] && written >= good[1]);
            }
        }
        // Pulled or not, it is out now: the stack lets it go and finds it again.
        core.host_mut().slot_mut().set_faults(Vec::new());
        core.host_mut().slot_mut().pull();
        core.detect_change();
        prop_assert!(core.detect_card_removed());
        core.remove_card();
        core.stop();
        prop_assert!(!core.rescan());
        core.host_mut().slot_mut().put_back();
        prop_assert!(core.rescan());
        let (ends, [read, _]) = run(&mut core, &[BlockRequest {
            op: Op::Read,
            sector: 0,
            sectors: 8,
            fua: false,
            retries: 0,
        }]);
        prop_assert_eq!((ends, read), (vec![1], 8));
    }

    /// A single fault of the bus costs a try, not the request.
    #[test]
    fn one_fault_is_mended(
        bench in Bench::any(),
        after in 0..12_u64,
        block in 0..6_u32,
        damaged in any::<bool>(),
        lost in any::<bool>(),
        requests in prop::collection::vec(request(), 1..4),
    ) {
        let kind = match (damaged, lost) {
            (true, true) => FaultKind::DataLost,
            (true, false) => FaultKind::DataDamaged,
            (false, true) => FaultKind::CommandLost,
            (false, false) => FaultKind::AnswerDamaged,
        };
        let mut core = bench.core(Vec::new());
        prop_assert!(core.rescan());
        let slot = core.host_mut().slot_mut();
        let command = slot.commands() + after;
        slot.set_faults(vec![Fault { command, block, kind }]);
        let (ends, good) = run(&mut core, &requests);
        prop_assert!(ends.iter().all(|&ends| ends == 1));
        let of = |op: Op| -> u64 {
            let requests = requests.iter().filter(|request| request.op == op);
            requests.map(|request| u64::from(request.sectors)).sum()
        };
        prop_assert_eq!(good, [of(Op::Read), of(Op::Write)]);
    }
}

/// What the card's bus runs at.
fn bus(core: &Core) -> (Timing, u32, SignalVoltage) {
    let ios = core.ios();
    (ios.timing, ios.clock_hz, ios.signal_voltage)
}

const READ: BlockRequest = BlockRequest {
    op: Op::Read,
    sector: 8,
    sectors: 8,
    fua: false,
    retries: 0,
};

#[test]
fn the_best_mode_of_both_sides_is_taken() {
    let (high, low) = (SignalVoltage::V330, SignalVoltage::V180);
    let tuned = SDR50 | TUNED_SDR50;
    for (host, card_modes, expected) in [
        (SDR104 | DDR50, 0x1f, (Timing::UhsSdr104, 208_000_000, low)),
        // The Raspberry Pi 4's controller, whose log tells of DDR50 cards.
        (
            SDR50 | DDR50 | TUNED_SDR50,
            0x1f,
            (Timing::UhsDdr50, 50_000_000, low),
        ),
        (tuned, 0x1f, (Timing::UhsSdr50, 100_000_000, low)),
        (SDR50, 0x1f, (Timing::UhsSdr50, 100_000_000, low)),
        (SDR50, 0x13, (Timing::UhsSdr25, 50_000_000, low)),
        (SDR104, 0x03, (Timing::SdHs, 50_000_000, high)),
        (0, 0x1f, (Timing::SdHs, 50_000_000, high)),
    ] {
        let spec = CardSpec {
            modes: card_modes,
            ..uhs_card()
        };
        let mut core = fast_core(spec, host, 6..9, Vec::new());
        assert!(core.rescan(), "{host:#x}");
        assert_eq!(bus(&core), expected, "{host:#x} {card_modes:#x}");
        assert_eq!(run(&mut core, &[READ]), (vec![1], [8, 0]));
    }
}

#[test]
fn lines_without_a_good_phase_have_no_sdr104() {
    let mut core = fast_core(uhs_card(), SDR104, 0..0, Vec::new());
    assert!(!core.rescan());
    // DDR50 goes without: cards of version 3.00 cannot be tuned for it.
    let mut core = fast_core(uhs_card(), DDR50, 0..0, Vec::new());
    assert!(core.rescan());
    assert_eq!(core.ios().timing, Timing::UhsDdr50);
}

#[test]
fn a_controller_refuses_what_it_does_not_have() {
    let slot = || Slot::with(EmulatedCard::new(uhs_card()));
    let mut mmci = Mmci::new(pl181::Controller::new(slot()), 12_000_000);
    let unsupported = Err(crate::Error::NotSupported);
    assert_eq!(mmci.set_signal_voltage(SignalVoltage::V180), unsupported);
    assert_eq!(mmci.set_signal_voltage(SignalVoltage::V330), Ok(()));
    let old = Controller::new(ControllerSpec::default(), slot());
    let mut old = Sdhci::new(old, Caps2::empty());
    assert_eq!(old.set_signal_voltage(SignalVoltage::V180), unsupported);
    // A fast card is a plain one behind it, and never told to change its lines.
    let mut core = Core::new(Box::new(mmci), 0);
    core.watch();
    assert!(core.rescan());
    assert_eq!(bus(&core).2, SignalVoltage::V330);
    let events = core.take_events();
    let told = |event: &crate::Event| event.to_string().contains("cmd_opcode=11 ");
    assert!(!events.iter().any(told));
}

#[test]
fn a_wrong_checksum_has_the_bus_tuned_again() {
    let mut core = fast_core(uhs_card(), SDR104, 4..10, Vec::new());
    assert!(core.rescan());
    let next = core.host_mut().slot_mut().commands();
    let kind = FaultKind::DataDamaged;
    // CMD23, and then the read.
    let fault = Fault {
        command: next + 1,
        block: 0,
        kind,
    };
    core.host_mut().slot_mut().set_faults(vec![fault]);
    core.watch();
    assert_eq!(run(&mut core, &[READ, READ]).0, [1, 1]);
    let events = core.take_events();
    let needs = |event: &crate::Event| event.to_string().contains("need_retune=1");
    assert!(events.iter().any(needs));
    assert!(!events.last().is_some_and(needs));
    // 16 commands of tuning beside those that were traced.
    let traced = { events.iter() }
        .filter(|event| event.to_string().starts_with("mmc_request_done"))
        .count();
    let sent = core.host_mut().slot_mut().commands() - next;
    assert!(sent >= 16 + traced as u64, "{sent} sent, {traced} traced");
}

proptest! {
    /// Tuning begins at the 25th command or so of an identification.
    #[test]
    fn a_fast_card_survives_whatever_goes_wrong_while_it_is_tuned(
        mode in prop_oneof![Just(SDR104), Just(DDR50), Just(SDR50 | TUNED_SDR50)],
        is_emmc in any::<bool>(),
        phases in (0..16_u8, 0..16_u8),
        faults in prop::collection::vec(fault(), 0..6),
    ) {
        let spec = if is_emmc { emmc() } else { uhs_card() };
        let mut core = fast_core(spec, mode, phases.0..phases.1, faults);
        if core.rescan() {
            let (ends, _) = run(&mut core, &[READ, READ]);
            prop_assert_eq!(ends, vec![1, 1]);
        }
        core.host_mut().slot_mut().set_faults(Vec::new());
        core.host_mut().slot_mut().pull();
        core.detect_change();
        prop_assert!(core.card().is_none() || core.detect_card_removed());
        core.remove_card();
        core.stop();
        prop_assert!(!core.rescan());
        // With good lines it is found again, at its full speed.
        core.host_mut().slot_mut().put_back();
        core.host_mut().slot_mut().set_good_phases(3..12);
        prop_assert!(core.rescan());
        let fast = match (is_emmc, mode) {
            (true, SDR104) => Timing::MmcHs200,
            (true, _) => Timing::MmcHs,
            (_, SDR104) => Timing::UhsSdr104,
            (_, DDR50) => Timing::UhsDdr50,
            _ => Timing::UhsSdr50,
        };
        prop_assert_eq!(core.ios().timing, fast);
        prop_assert_eq!(run(&mut core, &[READ]), (vec![1], [8, 0]));
    }
}

#[test]
fn a_card_that_was_suspended_comes_back_as_the_same() {
    let mut core = core(card(true), Vec::new());
    assert!(core.rescan());
    let known = core.card().cloned();
    core.runtime_suspend().unwrap();
    core.runtime_resume().unwrap();
    assert_eq!(core.card().cloned(), known);
    let write = BlockRequest {
        op: Op::Write,
        sector: 8,
        sectors: 8,
        fua: false,
        retries: 0,
    };
    assert_eq!(run(&mut core, &[write]), (vec![1], [0, 8]));
}

/// An eMMC of 8 GiB with HS200.
pub(crate) fn emmc() -> CardSpec {
    let mut ext_csd = vec![0; 512];
    // Revision 8, 52 MHz and HS200, 16 Mi sectors, erase groups of 512 KiB, boot areas and
    // replay protected area of 128 KiB.
    for (place, value) in [
        (192, 8),
        (196, 0x13),
        (215, 1),
        (224, 1),
        (223, 1),
        (226, 1),
        (168, 1),
    ] {
        ext_csd[place] = value;
    }
    CardSpec {
        protocol: Protocol::Mmc,
        ocr: 0x00ff_8080,
        csd: [0xd00f_0032, 0x8f59_03ff, 0xffff_ffe7, 0x9640_00fd],
        scr: [0; 2],
        ext_csd,
        sectors: 1 << 24,
        ..card(true)
    }
}

/// The same with trim, which leaves zeroes.
fn trimming_emmc() -> CardSpec {
    const SEC_FEATURE_SUPPORT: usize = 231;
    let mut spec = emmc();
    spec.ext_csd[SEC_FEATURE_SUPPORT] = 1 << 4;
    spec
}

#[test]
fn an_emmc_that_offers_zeroes_writes_them_by_trimming() {
    let write_zeroes = BlockRequest {
        op: Op::WriteZeroes,
        sector: 1000,
        sectors: 3000,
        ..READ
    };
    let mut core = fast_core(trimming_emmc(), SDR104, 4..10, Vec::new());
    assert!(core.rescan());
    let limits = QueueLimits::of(&mut core).unwrap();
    assert!(limits.max_write_zeroes_bytes >= 3000 << 9);
    core.watch();
    let mut queue = queue(&core);
    queue.issue(&mut core, 0, write_zeroes);
    assert_eq!(queue.take_outcomes(), [(0, Outcome::Ended(Ok(())))]);
    let events = core.take_events();
    let trim = |event: &crate::Event| event.to_string() == "mmc_erase: from=1000 nr=3000 arg=0x1";
    assert_eq!(events.iter().filter(|event| trim(event)).count(), 1);
    assert_eq!(
        core.host_mut().slot_mut().card().unwrap().totals(),
        [0, 0, 3000]
    );
    // A card that cannot trim offers none, and is not told to.
    let mut core = fast_core(emmc(), SDR104, 4..10, Vec::new());
    assert!(core.rescan());
    assert_eq!(
        QueueLimits::of(&mut core).unwrap().max_write_zeroes_bytes,
        0
    );
    let mut queue = self::queue(&core);
    queue.issue(&mut core, 0, write_zeroes);
    let refused = Outcome::Ended(Err(crate::Error::NotSupported));
    assert_eq!(queue.take_outcomes(), [(0, refused)]);
}

/// What power takes from an eMMC's EXT_CSD it is told again.
#[test]
fn an_emmc_that_was_suspended_is_switched_anew() {
    let mut core = fast_core(emmc(), SDR104, 4..10, Vec::new());
    let register = |core: &mut Core| {
        core.host_mut()
            .slot_mut()
            .card()
            .unwrap()
            .ext_csd()
            .to_vec()
    };
    let made = register(&mut core);
    assert!(core.rescan());
    let switched = register(&mut core);
    core.switch_partition(1).unwrap();
    core.runtime_suspend().unwrap();
    assert_eq!(register(&mut core), made);
    core.runtime_resume().unwrap();
    assert_eq!(register(&mut core), switched);
    assert_ne!(switched, made);
    assert_eq!(run(&mut core, &[READ]), (vec![1], [8, 0]));
}

#[test]
fn a_cache_is_written_before_its_power_goes() {
    const CACHE_SIZE: usize = 249;
    let suspend = |size| {
        let mut spec = emmc();
        spec.ext_csd[CACHE_SIZE] = size;
        let mut core = core(spec, Vec::new());
        assert!(core.rescan());
        let before = core.host_mut().slot_mut().commands();
        core.runtime_suspend().unwrap();
        core.host_mut().slot_mut().commands() - before
    };
    // The switch that writes it, what became of that, and the deselection.
    assert_eq!([suspend(64), suspend(0)], [3, 1]);
}

#[test]
fn an_emmc_runs_at_the_speed_of_its_controller() {
    for (host, timing, clock_hz) in [
        (SDR104, Timing::MmcHs200, 200_000_000),
        (0, Timing::MmcHs, 52_000_000),
    ] {
        let mut core = fast_core(emmc(), host, 4..10, Vec::new());
        assert!(core.rescan());
        let ios = core.ios();
        assert_eq!((ios.timing, ios.clock_hz), (timing, clock_hz));
        assert_eq!(ios.bus_width.lines(), 8);
        assert_eq!(run(&mut core, &[READ]), (vec![1], [8, 0]));
    }
}

#[test]
fn an_emmc_is_identified_after_sd_was_tried() {
    let mut core = core(emmc(), Vec::new());
    assert!(core.rescan());
    let card = core.card().unwrap().clone();
    assert_eq!((card.rca, card.sectors()), (1, 1 << 24));
    let areas = Area::all(&card, core.host().spec());
    let areas: Vec<&str> = areas.iter().map(|area| area.suffix).collect();
    assert_eq!(areas, ["", "boot0", "boot1", "rpmb"]);
    let both = [Op::Read, Op::Write, Op::Discard].map(|op| BlockRequest {
        op,
        sector: 1024,
        sectors: 1024,
        fua: false,
        retries: 0,
    });
    assert_eq!(run(&mut core, &both), (vec![1; 3], [1024; 2]));
}

/// It answers CMD5 and no other question of what it is.
#[test]
fn an_sdio_card_is_found_and_has_no_blocks() {
    let spec = CardSpec {
        protocol: Protocol::Sdio { functions: 2 },
        scr: [0; 2],
        sectors: 0,
        ..card(false)
    };
    let mut core = core(spec, Vec::new());
    assert!(core.rescan());
    let found = core.card().unwrap().clone();
    assert_eq!(found.description(), "SDIO card");
    assert_eq!((found.rca, found.sectors()), (0x4567, 0));
    assert!(Queue::new(&core, Area::all(&found, core.host().spec())[0]).is_none());
    assert!(!core.detect_card_removed());
    core.host_mut().slot_mut().pull();
    core.detect_change();
    assert!(core.detect_card_removed());
    core.remove_card();
    core.stop();
    core.host_mut().slot_mut().put_back();
    assert!(core.rescan() && core.card().is_some());
}

/// The controller is armed for data before CMD23 goes out, which brings none.
#[test]
fn the_pl181_reads_many_blocks_at_the_first_try() {
    for spec in [card(true), emmc()] {
        let bench = Bench {
            host: HostKind::Pl181,
            card: spec,
        };
        let mut core = bench.core(Vec::new());
        assert!(core.rescan());
        let before = core.host_mut().slot_mut().commands();
        assert_eq!(run(&mut core, &[READ]), (vec![1], [8, 0]));
        // CMD23 and CMD18.
        assert_eq!(core.host_mut().slot_mut().commands() - before, 2);
    }
}
