//! The findings of document 000 on a Raspberry Pi 4, checked in the simulation. The document
//! prints charts without figures, so that a finding only has a direction; the thresholds are
//! set here.

use super::{Case, Finding, Measured, Study, mean, spread};
use crate::comparison::Direction;
use crate::quantity::{latency, signed_percent};

const SSD: &str = "SSD";
const CARD: &str = "SD card";

/// Below this spread, bandwidths of schedulers count as equal.
const ALIKE: f64 = 0.05;
/// The same for latencies, and for bandwidths of writes to a card, whose repeats vary more.
const ALIKE_ROUGHLY: f64 = 0.25;
/// Above this change, a bandwidth counts as higher or lower.
const CLEAR: f64 = 0.02;
/// From this share of its time on, a CPU that works is one that others may wait for.
const BUSY: f64 = 0.9;
/// By how much the document's bfq is behind.
const BFQ_BEHIND: f64 = 0.05;
/// Below this spread, shares of CPU time count as equal.
const CPU_ALIKE: f64 = 0.02;

/// Returns the findings for which the study has the patterns.
pub(super) fn findings(study: &Study) -> Vec<Finding> {
    let all: [fn(&Study) -> Option<Finding>; 10] = [
        ssd_reads_grow,
        ssd_reads_alike,
        bfq_falls_behind,
        card_reads_in_order,
        card_reads_at_random,
        card_writes_alike,
        card_writes_lowest,
        |study| latencies_alike(study, (SSD, Direction::Read)),
        |study| latencies_alike(study, (CARD, Direction::Write)),
        cpu_alike,
    ];
    all.iter().filter_map(|find| find(study)).collect()
}

fn mb_s(bytes_per_s: f64) -> String {
    format!("{:.1} MB/s", bytes_per_s / 1e6)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// The cases with one process and with four, and their mean bandwidths over schedulers.
struct Pair<'a> {
    cases: [&'a Case; 2],
    mean: [f64; 2],
}

impl<'a> Pair<'a> {
    /// Returns patterns 1 and 2 of a kind.
    fn of(study: &'a Study, on: (&str, Direction), kind: &str) -> Option<Pair<'a>> {
        let case = |number| study.case(on.0, on.1, &format!("{kind}-{number}"));
        let cases = [case(1)?, case(2)?];
        Some(Pair {
            cases,
            mean: cases.map(|case| mean(&case.bandwidths())),
        })
    }

    fn change(&self) -> f64 {
        self.mean[1] / self.mean[0] - 1.0
    }

    fn text(&self) -> String {
        format!(
            "{} with one process and {} with four ({})",
            mb_s(self.mean[0]),
            mb_s(self.mean[1]),
            signed_percent(self.change())
        )
    }

    /// Returns the share of time in which the busiest CPU worked with one process and with
    /// four.
    fn busiest(&self) -> [f64; 2] {
        self.cases.map(|case| {
            let each: Vec<f64> = case.measured.iter().map(|of| of.busiest_share).collect();
            mean(&each)
        })
    }

    /// Returns the requests in queue and drive with one process and with four.
    fn in_flight(&self) -> [f64; 2] {
        self.cases.map(|case| {
            let each: Vec<f64> = case.measured.iter().map(|of| of.in_flight).collect();
            mean(&each)
        })
    }
}

fn ssd_reads_grow(study: &Study) -> Option<Finding> {
    let on = (SSD, Direction::Read);
    let (order, random) = (Pair::of(study, on, "seq")?, Pair::of(study, on, "rand")?);
    let [one, four] = random.in_flight();
    let in_order = match (order.change() > CLEAR, order.in_flight()) {
        (false, _) => "readahead asks for enough that one process gets all that the drive and its \
                       link give"
            .to_string(),
        (true, [one, four]) => format!("with readahead, {one:.1} and {four:.1}"),
    };
    Some(Finding {
        document: "SSD, reads: the more processes the faster",
        here: format!("in order {}; at random {}", order.text(), random.text()),
        agrees: order.change() > CLEAR || random.change() > CLEAR,
        reason: format!(
            "Through the page cache each process waits for its own read. At random one process \
             keeps {one:.1} requests in flight and four keep {four:.1}; in order {in_order}."
        ),
        ..Finding::default()
    })
}

fn ssd_reads_alike(study: &Study) -> Option<Finding> {
    let cases = study.cases_of(SSD, Direction::Read);
    let (most, at) = widest(&cases)?;
    Some(Finding {
        document: "SSD, reads: no scheduler is ahead",
        here: format!("{} apart at most, in {}", percent(most), at.pattern),
        agrees: most < ALIKE,
        reason: "The drive and its bus decide on the rate. A process has one read under way, so \
                 that a scheduler has nothing to choose from, and its CPU time is a small part \
                 of a request of 128 KiB or more."
            .to_string(),
        ..Finding::default()
    })
}

/// Returns the case with the largest spread between schedulers, with the spread.
fn widest<'a>(cases: &[&'a Case]) -> Option<(f64, &'a Case)> {
    let spreads = cases.iter().map(|case| (spread(&case.bandwidths()), *case));
    spreads.max_by(|(a, _), (b, _)| a.total_cmp(b))
}

fn bfq_falls_behind(study: &Study) -> Option<Finding> {
    let case = study.case(SSD, Direction::Write, "seq-3")?;
    let (bfq, deadline) = (case.place("bfq")?, case.place("mq-deadline")?);
    let bandwidths = case.bandwidths();
    let change = bandwidths[bfq] / bandwidths[deadline] - 1.0;
    let of = |place: usize| &case.measured[place];
    Some(Finding {
        document: "SSD, writes: bfq is about 5 % behind mq-deadline with one process at depth 4 \
                   in order, perhaps because of its CPU time",
        here: format!(
            "bfq {} against {} ({})",
            mb_s(bandwidths[bfq]),
            mb_s(bandwidths[deadline]),
            signed_percent(change)
        ),
        agrees: (-0.10..-CLEAR).contains(&change),
        reason: why_bfq_is_no_slower(of(bfq), of(deadline)),
        ..Finding::default()
    })
}

/// Says what bfq would have to cost for the document's finding, and what it costs.
fn why_bfq_is_no_slower(bfq: &Measured, deadline: &Measured) -> String {
    if deadline.requests_per_s < 1.0 {
        return "All is written to memory: the drive has nothing to do yet.".to_string();
    }
    let more_ns = bfq.kernel_ns_per_request - deadline.kernel_ns_per_request;
    let wanted_ns = BFQ_BEHIND / (1.0 - BFQ_BEHIND) * 1e9 / deadline.requests_per_s;
    let waits = match bfq.busiest_share < BUSY {
        true => "so that no CPU is what writes wait for",
        false => "which writes may wait for",
    };
    format!(
        "The drive takes {:.0} requests of {:.0} KiB a second. If writes waited for a CPU, bfq \
         would have to keep it {} longer for each of them to be 5 % behind; the kernel takes {} a \
         request under bfq and {} under mq-deadline ({}{}), and the busiest CPU, which also runs \
         the USB driver, has work for {} and {} of the time, {waits}. The document's ext4, its \
         journal and the tables that it clears in the background after it is made are not \
         simulated.",
        deadline.requests_per_s,
        deadline.request_bytes / 1024.0,
        latency(wanted_ns),
        latency(bfq.kernel_ns_per_request),
        latency(deadline.kernel_ns_per_request),
        if more_ns < 0.0 { "-" } else { "+" },
        latency(more_ns.abs()),
        percent(bfq.busiest_share),
        percent(deadline.busiest_share)
    )
}

fn card_reads_in_order(study: &Study) -> Option<Finding> {
    let pair = Pair::of(study, (CARD, Direction::Read), "seq")?;
    Some(Finding {
        document: "SD card, reads in order: the more processes the slower",
        here: pair.text(),
        agrees: pair.change() < -CLEAR / 2.0,
        reason: "The card goes on at once with one reader; a read that belongs to another waits \
                 for the flash first. Readahead makes such changes seldom."
            .to_string(),
        ..Finding::default()
    })
}

fn card_reads_at_random(study: &Study) -> Option<Finding> {
    let pair = Pair::of(study, (CARD, Direction::Read), "rand")?;
    Some(Finding {
        document: "SD card, reads at random: much slower with one process",
        here: pair.text(),
        agrees: pair.change() > 0.1,
        reason: format!(
            "The kernel reads no further ahead than one call asks for (`POSIX_FADV_RANDOM`, which \
             fio gives): the card has nothing to do while one process copies, and the busiest CPU \
             works for {} of the time, so that the governor leaves the clock low and copying \
             takes long. The card has more to do while one of four copies.",
            percent(pair.busiest()[0])
        ),
        ..Finding::default()
    })
}

fn card_writes_alike(study: &Study) -> Option<Finding> {
    let cases = study.cases_of(CARD, Direction::Write);
    let (most, at) = widest(&cases)?;
    let in_order = cases.iter().filter(|case| case.pattern.starts_with("seq"));
    let in_order = in_order
        .map(|case| spread(&case.bandwidths()))
        .fold(0.0, f64::max);
    Some(Finding {
        document: "SD card, writes: no large difference between schedulers",
        here: format!(
            "in order {} apart at most; {} in {}",
            percent(in_order),
            percent(most),
            at.pattern
        ),
        agrees: most < ALIKE_ROUGHLY,
        reason: why_card_writes_differ(study.file_system, &cases, at),
        ..Finding::default()
    })
}

/// Says what decides on the writes to a card; `widest` is the case in which they differ most.
fn why_card_writes_differ(file_system: Option<&str>, cases: &[&Case], widest: &Case) -> String {
    let Some(file_system) = file_system else {
        let of_all = cases.iter().flat_map(|case| &case.measured);
        let copied = of_all.filter_map(|of| of.write_amplification);
        let copied = copied.fold(1.0, f64::max);
        return format!(
            "Who gives the driver a request while another runs sleeps in it, and kblockd takes \
             all that a scheduler has before the driver sees the first of it: what is written is \
             in the flusher's order under all of them. The card copies the rest of a unit that \
             is left half written, at random up to {copied:.1} times what the host writes."
        );
    };
    let shared = match file_system {
        "ext2" => {
            "ext2 puts an indirect block into a file every 4 MiB, which is written later and \
             leaves a hole in the unit, and files that grow together take turns by windows of \
             up to 1027 blocks, so that units of 4 MiB have parts of two. "
        }
        _ => "",
    };
    format!(
        "{shared}The flusher writes one file after the other, and with several more units are \
         begun than the card keeps open: it closes them half written and copies the rest. A \
         scheduler that sorts by sector writes what lies together before that. In {} the card \
         writes so many times what the host writes: {}.",
        widest.pattern,
        amplifications(widest)
    )
}

/// How many times what the host writes a card writes, by scheduler.
fn amplifications(case: &Case) -> String {
    let each = case.comparison.schedulers.iter().zip(&case.measured);
    let each = each.filter_map(|(name, of)| {
        let times = of.write_amplification?;
        Some(format!("{name} {times:.2}"))
    });
    each.collect::<Vec<_>>().join(", ")
}

fn card_writes_lowest(study: &Study) -> Option<Finding> {
    let cases = study.cases_of(CARD, Direction::Write);
    let first = cases.first()?;
    let names = &first.comparison.schedulers;
    let mut means: Vec<(f64, &str)> = Vec::new();
    for (place, name) in names.iter().enumerate() {
        // Relative to the mean of the case, so that each pattern has the same weight.
        let relative = cases.iter().map(|case| {
            let all = case.bandwidths();
            all[place] / mean(&all) - 1.0
        });
        means.push((mean(&relative.collect::<Vec<_>>()), name));
    }
    means.sort_by(|a, b| a.0.total_cmp(&b.0));
    let lowest: Vec<&str> = means.iter().take(2).map(|(_, name)| *name).collect();
    let shown = means
        .iter()
        .map(|(change, name)| format!("{name} {}", signed_percent(*change)));
    Some(Finding {
        document: "SD card, writes: mq-deadline and none are lowest",
        here: format!("against the mean: {}", shown.collect::<Vec<_>>().join(", ")),
        agrees: lowest.contains(&"none") && lowest.contains(&"mq-deadline"),
        reason: why_card_writes_are_ordered(&cases)?,
        ..Finding::default()
    })
}

/// Says what bandwidths of writes to a card follow: what the card writes beside the host's data.
fn why_card_writes_are_ordered(cases: &[&Case]) -> Option<String> {
    let (_, at) = widest(cases)?;
    let written = { at.bandwidths().into_iter() }
        .zip(&at.measured)
        .filter_map(|(bandwidth, of)| Some(bandwidth * of.write_amplification?));
    let (least, most) = written.fold((f64::INFINITY, 0.0f64), |(least, most), rate| {
        (least.min(rate), most.max(rate))
    });
    Some(format!(
        "Differences come from which units of the card are open when pieces of several files \
         meet. In {}, where they are largest, the card writes so many times what the host \
         writes: {}; what it writes in all is {} to {} under all of them.",
        at.pattern,
        amplifications(at),
        mb_s(least),
        mb_s(most)
    ))
}

/// Compares the requests' times in the drive, in the pattern that the document shows.
fn latencies_alike(study: &Study, (drive, direction): (&str, Direction)) -> Option<Finding> {
    let case = study.case(drive, direction, "seq-4")?;
    let medians = case
        .measured
        .iter()
        .map(|of| of.drive_ns.percentile(50.0) as f64);
    let medians: Vec<f64> = medians.collect();
    let shown = case.comparison.schedulers.iter().zip(&medians);
    let shown = shown.map(|(name, median)| format!("{name} {}", latency(*median)));
    Some(Finding {
        document: match direction {
            Direction::Read => "SSD, reads: latencies differ little (pattern 4)",
            _ => "SD card, writes: latencies differ little (pattern 4)",
        },
        here: format!("medians in order: {}", shown.collect::<Vec<_>>().join(", ")),
        agrees: spread(&medians) < ALIKE_ROUGHLY,
        reason: "A request's time is counted from when the driver starts it, waiting for the card \
                 or a place in the drive included; what a scheduler holds is not in it."
            .to_string(),
        ..Finding::default()
    })
}

fn cpu_alike(study: &Study) -> Option<Finding> {
    let fourth = study
        .cases
        .iter()
        .filter(|case| case.pattern.contains("-4-"));
    let shares = fourth.map(|case| {
        let shares = case.measured.iter().map(|of| of.kernel_share);
        let (least, most) = shares.fold((1.0f64, 0.0f64), |(least, most), share| {
            (least.min(share), most.max(share))
        });
        (most - least, most, case)
    });
    let (apart, most, case) = shares.max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(Finding {
        document: "CPUs: the kernel's part differs little between schedulers (pattern 4)",
        here: format!(
            "{:.1} points apart at most, of {}: {}, {} {}",
            apart * 100.0,
            percent(most),
            case.pattern,
            case.drive,
            match case.direction() {
                Direction::Read => "reads",
                _ => "writes",
            }
        ),
        agrees: apart < CPU_ALIKE,
        reason: "Most of the kernel's time goes into copying pages, which is the same under all \
                 of them, but longer or shorter with the clock: runs that last for less than a \
                 few turns of the governor differ by it."
            .to_string(),
        ..Finding::default()
    })
}
