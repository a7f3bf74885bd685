//! How the program is slowed down: `balance_dirty_pages` with the recorded
//! counters, rates and shares.

use std::path::Path;

use blklab_blk::JIFFY_NS;
use blklab_fs::write_back::{Bandwidth, Dirtier, DirtyState, HZ, Throttle, ThrottleAction};

use crate::page_cache::Fields;
use crate::report::TraceReport;
use crate::{ConformError, Difference};

/// A pass of `balance_dirty_pages`.
pub(super) const THROTTLE: &str = "throttling";

/// What is known while the program is in `balance_dirty_pages`.
struct Inside {
    pages: u64,
    began: u64,
    rates: Bandwidth,
    /// The average write rate as the next call finds it.
    next_average: u64,
    state: DirtyState,
    /// The counters were read, and nothing has come of it yet.
    is_open: bool,
    /// The recorded new base rate, and the rate of dirtying that it comes from.
    renewed: Option<(Vec<u64>, u64)>,
}

/// Compares each throttle of `balance_dirty_pages`.
pub(super) fn compare(
    path: &Path,
    text: &str,
    jiffies: &Jiffies,
    report: &mut TraceReport,
) -> Result<(), ConformError> {
    let mut averages = (text.lines().filter_map(Fields::of))
        .filter(|fields| fields.is_driver && fields.event == "bdp")
        .filter_map(|fields| fields.unsigned("avg_write_bw"))
        .skip(1);
    let mut task = Dirtier::default();
    let mut inside: Option<Inside> = None;
    for (line, number) in text.lines().zip(1..) {
        let Some(fields) = Fields::of(line).filter(|fields| fields.is_driver) else {
            continue;
        };
        let malformed = || ConformError::Description {
            file: format!("{}:{number}", path.display()),
            message: format!("found {:?}, expected the fields of this event", line.trim()),
        };
        let now = jiffies.at(fields.at_ns);
        let mut compare = |ours: &[u64], kernel: &[u64], task: &Dirtier| {
            report.count(THROTTLE, ours == kernel, || Difference {
                line: number,
                at_ns: fields.at_ns,
                kind: THROTTLE,
                kernel: format!("{} {kernel:?}", fields.event),
                ours: format!("{ours:?}"),
                state: vec![format!("{task:?}")],
            });
        };
        match (fields.event, &mut inside) {
            ("bdp", _) => {
                let next = averages.next();
                inside = Some(Inside::begin(&fields, now, next).ok_or_else(malformed)?);
            }
            ("global_dirty_state", Some(inside)) => {
                inside.read_counters(&fields).ok_or_else(malformed)?;
            }
            ("wb_share", Some(inside)) => {
                inside.state.device_thresh = fields.unsigned("share").ok_or_else(malformed)?;
            }
            ("bdi_dirty_ratelimit", Some(inside)) => {
                let dirty_rate = fields.unsigned("dirty_rate").ok_or_else(malformed)?;
                let kernel = numbers(&fields, RATELIMIT_FIELDS).ok_or_else(malformed)?;
                inside.renewed = Some((kernel, dirty_rate / KIB));
            }
            ("balance_dirty_pages", Some(inside)) => {
                let dirty = fields.unsigned("bdi_dirty").ok_or_else(malformed)?;
                inside.state.device_dirty = dirty;
                let average = inside.rates.average_write_rate;
                let ratio = inside.state.position_ratio(average);
                if let Some((kernel, dirty_rate)) = inside.renewed.take() {
                    compare(&inside.renew(ratio, dirty_rate), &kernel, &task);
                }
                let throttle = task.throttle(inside.pages, dirty, ratio, &inside.rates, now);
                let kernel = numbers(&fields, THROTTLE_FIELDS).ok_or_else(malformed)?;
                compare(&inside.shown(&task, &throttle, now), &kernel, &task);
                task.record(&throttle);
                inside.is_open = false;
            }
            ("bdp_ret", Some(last)) => {
                if last.is_open {
                    compare(&[u64::from(last.state.is_freerun())], &[1], &task);
                    task.freerun(&last.state, now);
                }
                inside = None;
            }
            _ => {}
        }
    }
    Ok(())
}

/// The device's rates as a call finds them.
pub(super) fn rates(fields: &Fields<'_>, now: u64) -> Option<Bandwidth> {
    let mut rates = Bandwidth::new(now);
    rates.write_rate = fields.unsigned("write_bw")?;
    rates.average_write_rate = fields.unsigned("avg_write_bw")?;
    rates.dirty_ratelimit = fields.unsigned("ratelimit")?;
    rates.balanced_dirty_ratelimit = fields.unsigned("balanced")?;
    Some(rates)
}

/// The fields of `balance_dirty_pages` that are compared.
const THROTTLE_FIELDS: [&str; 9] = [
    "setpoint",
    "bdi_setpoint",
    "dirty",
    "task_ratelimit",
    "dirtied_pause",
    "paused",
    "pause",
    "period",
    "think",
];

/// What is compared of a new base rate.
const RATELIMIT_FIELDS: [&str; 3] = [
    "dirty_ratelimit",
    "task_ratelimit",
    "balanced_dirty_ratelimit",
];

fn numbers<const N: usize>(fields: &Fields<'_>, names: [&str; N]) -> Option<Vec<u64>> {
    let number = |name| fields.number(name).map(i64::cast_unsigned);
    names.into_iter().map(number).collect()
}

/// KiB of a page: rates are shown in KiB/s.
const KIB: u64 = 4;

/// A time as it is shown, in milliseconds.
const fn shown_time(jiffies: i64) -> u64 {
    (jiffies * (1000 / HZ as i64)).cast_unsigned()
}

impl Inside {
    /// The task enters `balance_dirty_pages`.
    fn begin(fields: &Fields<'_>, now: u64, next_average: Option<u64>) -> Option<Inside> {
        let rates = rates(fields, now)?;
        Some(Inside {
            pages: fields.unsigned("pages_dirtied")?,
            began: now,
            next_average: next_average.unwrap_or(rates.average_write_rate),
            rates,
            state: DirtyState::default(),
            is_open: false,
            renewed: None,
        })
    }

    fn read_counters(&mut self, fields: &Fields<'_>) -> Option<()> {
        self.state = DirtyState {
            dirty: fields.unsigned("dirty")? + fields.unsigned("writeback")?,
            thresh: fields.unsigned("thresh")?,
            background_thresh: fields.unsigned("bg_thresh")?,
            limit: fields.unsigned("limit")?,
            ..DirtyState::default()
        };
        self.is_open = true;
        Some(())
    }

    /// The base rate is renewed at a recorded rate of dirtying; then the average
    /// write rate is, which is given.
    fn renew(&mut self, ratio: u64, dirty_rate: u64) -> [u64; 3] {
        let task = ((self.rates.dirty_ratelimit * ratio) >> 10) + 1;
        let rates = &mut self.rates;
        rates.update_dirty_ratelimit(&self.state, ratio, dirty_rate);
        rates.average_write_rate = self.next_average;
        let shown = [rates.dirty_ratelimit, task, rates.balanced_dirty_ratelimit];
        shown.map(|rate| rate * KIB)
    }

    /// A check of a task as the trace shows it.
    fn shown(&self, task: &Dirtier, throttle: &Throttle, now: u64) -> [u64; 9] {
        let setpoint = self.state.setpoint();
        let pause = match throttle.action {
            ThrottleAction::Continue => throttle.pause.min(0),
            ThrottleAction::Pause(_) => throttle.pause,
        };
        [
            setpoint,
            setpoint * self.state.device_thresh / (self.state.thresh + 1),
            self.state.dirty,
            throttle.task_ratelimit * KIB,
            task.nr_dirtied_pause,
            shown_time(now as i64 - self.began as i64),
            shown_time(pause),
            shown_time(throttle.period as i64),
            shown_time(throttle.think),
        ]
    }
}

/// The kernel's clock of jiffies, told from an event that shows it.
pub(super) struct Jiffies {
    at_zero: u64,
}

impl Jiffies {
    pub(super) fn of(text: &str) -> Option<Jiffies> {
        let shown = text.lines().filter_map(Fields::of).find_map(|fields| {
            let jiffies = fields.unsigned("jif")?;
            Some((fields.at_ns, jiffies))
        });
        let enqueued = || {
            text.lines().filter_map(Fields::of).find_map(|fields| {
                let (_, rest) = fields.rest.split_once("dirtied ")?;
                let is_event = fields.event == "writeback_dirty_inode_enqueue";
                let jiffies = rest.split(' ').next()?.parse().ok()?;
                is_event.then_some((fields.at_ns, jiffies))
            })
        };
        let (at_ns, jiffies): (u64, u64) = shown.or_else(enqueued)?;
        Some(Jiffies {
            at_zero: jiffies.checked_sub(at_ns / JIFFY_NS)?,
        })
    }

    pub(super) fn at(&self, ns: u64) -> u64 {
        self.at_zero + ns / JIFFY_NS
    }
}
