//! The order in which a unit starts what waits for it.

use crate::ssd::events::{EventKind, EventQueue};
use crate::ssd::flash::Flash;
use crate::ssd::flash::transaction::{FlashPage, Operation, Priority, Source, Transaction};
use crate::ssd::tests::small;

/// A drive of one unit with two planes, that starts one read in a row.
fn one_unit() -> Flash {
    let scheduling = "scheduling = \"read_priority\"";
    let limited = format!("{scheduling}\nreads_in_a_row = 1");
    Flash::new(&small(&[(scheduling, &limited)]))
}

/// Queues transactions on plane 0 all at once. Returns their places in the order in
/// which they end.
fn ends(flash: &mut Flash, transactions: &[(Operation, u32)]) -> Vec<u32> {
    let transactions: Vec<_> = transactions
        .iter()
        .map(|(kind, block)| (*kind, *block, Priority::Normal))
        .collect();
    queue(flash, &transactions);
    ends_of_queued(flash, |op| op.owner)
}

fn queue(flash: &mut Flash, transactions: &[(Operation, u32, Priority)]) {
    queue_at(flash, 0, transactions);
}

fn queue_at(flash: &mut Flash, now_ns: u64, transactions: &[(Operation, u32, Priority)]) {
    for (place, (kind, block, priority)) in transactions.iter().enumerate() {
        let source = match priority {
            Priority::Normal => Source::Host,
            _ => Source::Gc,
        };
        let owner = match priority {
            // Transactions of collection name their plane.
            Priority::Background => 0,
            _ => place as u32,
        };
        let at = FlashPage {
            plane: 0,
            block: *block,
            page: 0,
        };
        let op = Transaction::new(*kind, source, owner, at, 4096);
        let priority = *priority;
        flash.enqueue(now_ns, Transaction { priority, ..op });
    }
}

fn ends_of_queued<T>(flash: &mut Flash, what: impl Fn(&Transaction) -> T) -> Vec<T> {
    let mut ended = Vec::new();
    while let Some((now_ns, kind, event)) = flash.events.pop_due(EventQueue::until(u64::MAX)) {
        match kind {
            EventKind::DATA_OUT => {
                flash.data_out(now_ns, event);
                flash.finished.push(event);
            }
            EventKind::CHANNEL_FREE => flash.bus_free(now_ns, event),
            _ => flash.array_done(now_ns, event),
        }
        for index in std::mem::take(&mut flash.finished) {
            ended.push(what(&flash.transactions[index]));
            flash.transactions.remove(index);
        }
    }
    ended
}

const READ: Operation = Operation::Read;
const ERASE: Operation = Operation::Erase;

#[test]
fn an_erase_has_its_turn_after_reads_in_a_row() {
    let transactions = [(READ, 1), (READ, 2), (READ, 3), (ERASE, 9)];
    assert_eq!(ends(&mut one_unit(), &transactions), [0, 3, 1, 2]);
}

#[test]
fn what_was_stopped_for_reads_goes_on_after_so_many() {
    let scheduling = "scheduling = \"read_priority\"";
    let ended = |bound: &str| {
        let limited = format!("{scheduling}{bound}");
        let stops = "erase_us = 500\nprogram_suspend_us = 1";
        let spec = small(&[(scheduling, &limited), ("erase_us = 500", stops)]);
        let mut drive = Flash::new(&spec);
        let normal = |kind, block| (kind, block, Priority::Normal);
        queue(&mut drive, &[normal(PROGRAM, 1)]);
        // The array is at work for 50 us.
        let reads: Vec<_> = (2..7).map(|block| normal(READ, block)).collect();
        queue_at(&mut drive, 20_000, &reads);
        let kinds = ends_of_queued(&mut drive, |op| op.kind);
        kinds.iter().position(|kind| *kind == PROGRAM)
    };
    assert_eq!(ended(""), Some(5));
    // It is not stopped again.
    assert_eq!(ended("\nreads_in_a_row = 2"), Some(2));
}

#[test]
fn an_erase_does_not_pass_a_read_of_its_block() {
    let transactions = [(READ, 1), (READ, 2), (READ, 9), (READ, 3), (ERASE, 9)];
    assert_eq!(ends(&mut one_unit(), &transactions), [0, 1, 2, 4, 3]);
}

const PROGRAM: Operation = Operation::Program;

#[test]
fn what_the_host_waits_for_goes_before_reads_and_programs() {
    let normal = |kind, block| (kind, block, Priority::Normal);
    let urgent = |kind, block| (kind, block, Priority::Urgent);
    let mut drive = one_unit();
    let transactions = [
        normal(READ, 1),
        normal(PROGRAM, 2),
        normal(READ, 3),
        urgent(ERASE, 9),
    ];
    queue(&mut drive, &transactions);
    assert_eq!(ends_of_queued(&mut drive, |op| op.owner), [0, 3, 2, 1]);
    // Nothing is lost under a read: the block is erased after it.
    let mut drive = one_unit();
    let transactions = [
        normal(READ, 1),
        normal(PROGRAM, 2),
        normal(READ, 9),
        urgent(ERASE, 9),
    ];
    queue(&mut drive, &transactions);
    assert_eq!(ends_of_queued(&mut drive, |op| op.owner), [0, 2, 3, 1]);
}

#[test]
fn background_work_is_promoted_where_it_waits() {
    let transactions = [
        (READ, 1, Priority::Normal),
        (PROGRAM, 2, Priority::Normal),
        (ERASE, 9, Priority::Background),
    ];
    let kinds = |promote: bool| -> Vec<Operation> {
        let mut drive = one_unit();
        queue(&mut drive, &transactions);
        if promote {
            drive.promote_collection(0, 0, 0..1);
        }
        let ended = ends_of_queued(&mut drive, |op| op.owner);
        assert_eq!(ended.len(), 3);
        // The erase names plane 0, and so does the first read its place.
        let place = ended.iter().skip(1).position(|owner| *owner == 1);
        match place {
            Some(0) => vec![PROGRAM, ERASE],
            _ => vec![ERASE, PROGRAM],
        }
    };
    assert_eq!(kinds(false), [PROGRAM, ERASE]);
    assert_eq!(kinds(true), [ERASE, PROGRAM]);
}

/// A read suspends only what still takes longer than the suspension does, by more than
/// `suspend_above`; otherwise it is there sooner by waiting.
#[test]
fn what_ends_before_it_could_be_suspended_is_not() {
    const SUSPEND_NS: u64 = 3_000;
    for (above_ns, above) in [(0, ""), (7_000, "suspend_above_us = 7\n")] {
        let program = format!("program_us = 50\nprogram_suspend_us = 3\n{above}");
        let spec = small(&[("program_us = 50\n", &program)]);
        let suspensions = |left_ns: u64| {
            let mut drive = Flash::new(&spec);
            queue(&mut drive, &[(PROGRAM, 1, Priority::Normal)]);
            let now_ns = drive.units[0].done_ns - left_ns;
            while let Some((at_ns, kind, event)) = drive.events.pop_due(EventQueue::until(now_ns)) {
                assert_eq!(kind, EventKind::CHANNEL_FREE);
                drive.bus_free(at_ns, event);
            }
            queue_at(&mut drive, now_ns, &[(READ, 2, Priority::Normal)]);
            let ended = ends_of_queued(&mut drive, |op| op.kind);
            let is_suspended = drive.counts.suspensions == 1;
            let order = [[PROGRAM, READ], [READ, PROGRAM]];
            assert_eq!(ended, order[usize::from(is_suspended)], "{left_ns}");
            drive.counts.suspensions
        };
        let least_ns = SUSPEND_NS + above_ns;
        assert_eq!(
            [least_ns - 1, least_ns, least_ns + 1].map(suspensions),
            [0, 0, 1]
        );
        assert_eq!([1, 49_000].map(suspensions), [0, 1]);
    }
}

/// The page register spares another read of the same physical page only where pages are parts of
/// one; where registers are followed for copyback, each read senses its page.
#[test]
fn a_page_is_sensed_for_each_read_unless_it_is_a_part() {
    let copyback = (
        "multi_plane = \"any\"",
        "multi_plane = \"none\"\ncopyback = \"same_plane\"",
    );
    let parts = ("page_kb = 4", "page_kb = 4\npage_parts = 2");
    for (change, sensed) in [(copyback, 3), (parts, 1)] {
        let mut drive = Flash::new(&small(&[change]));
        queue(&mut drive, &[(READ, 1, Priority::Normal); 3]);
        assert_eq!(ends_of_queued(&mut drive, |op| op.kind), [READ; 3]);
        assert_eq!(drive.plane_busy_ns[0], sensed * 10_000);
    }
}
