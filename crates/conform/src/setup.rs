//! Our queue, set up as the recorded one was.

use blklab_blk::{Elevator, NoMerges, Op, QueueInfo, QueueLimits, ZoneLimits};
use blklab_workload::trace::tracefs::{EventKind, RunInfo};

use crate::recording::{Recorded, Recording};
use crate::{ConformError, Mode};

/// null_blk's own default (`hw_queue_depth`).
const DEFAULT_DEPTH: u32 = 64;

/// `BLK_MQ_MAX_DEPTH`, and `NR_CPUS` of Debian's kernel.
const MAX_DEPTH: u32 = 10_240;
const MAX_CPUS: u32 = 8192;

/// More zones than any drive has.
const MAX_ZONES: u64 = 1 << 20;

/// Largest request of a driver that does not say (in sectors).
const BLK_SAFE_MAX_SECTORS: u32 = 255;

/// The error for a scheduler that there is not.
pub(crate) fn unknown_scheduler(scheduler: &str) -> ConformError {
    let schedulers = blklab_elevator::all().iter().filter(|t| t.build.is_some());
    let names: Vec<&str> = schedulers.map(|t| t.name).collect();
    ConformError::Scheduler {
        found: scheduler.to_owned(),
        expected: names.join(", "),
        mode: Mode::SchedulerAlone,
    }
}

/// A queue's shape.
pub(crate) struct Setup {
    pub(crate) limits: QueueLimits,
    pub(crate) queue_depth: u32,
    /// `None`: as the scheduler finds it.
    pub(crate) nr_requests: Option<u32>,
    pub(crate) nr_cpus: u32,
    /// Of the driver; those that no CPU uses are not counted.
    pub(crate) nr_hw_queues: u32,
    /// The hardware contexts' addresses, in the order in which they are seen.
    hctxs: Vec<u64>,
    /// The driver may sleep, as null_blk with memory behind it.
    pub(crate) blocking: bool,
    /// The target of writeback throttling, where that is on and the trace shows its
    /// calls: only they tell which writes are background.
    pub(crate) wbt_latency_us: Option<u64>,
    /// Where it does not: operations that the throttling may have held back.
    pub(crate) throttled: Vec<Op>,
    /// Tunables, by the scheduler's names.
    pub(crate) tunables: Vec<(String, String)>,
}

impl Setup {
    /// The recorded queue's, or defaults; what had to be assumed goes to `notes`.
    pub(crate) fn of(
        recording: &Recording,
        events: &[Recorded<'_>],
        notes: &mut Vec<String>,
    ) -> Setup {
        if let Some(info) = &recording.info {
            return Setup::described(info, events);
        }
        let depth = most_in_flight(events);
        notes.push(format!(
            "no description beside it: taken as a queue of depth {depth}, the most commands in flight, with the kernel's default limits and tunables"
        ));
        Setup {
            limits: QueueLimits::default(),
            queue_depth: depth,
            nr_requests: None,
            nr_cpus: 1,
            nr_hw_queues: 1,
            hctxs: hctxs(events),
            blocking: false,
            wbt_latency_us: None,
            throttled: Vec::new(),
            tunables: Vec::new(),
        }
    }

    fn described(info: &RunInfo, events: &[Recorded<'_>]) -> Setup {
        let queue = &info.queue;
        let depth = info.driver_tags().map(|tags| tags.nr_tags);
        let parameter = |name: &str| info.null_blk_parameters.get(name)?.parse::<u32>().ok();
        let depth = depth.or_else(|| parameter("hw_queue_depth"));
        let wbt = |r: &Recorded<'_>| matches!(r.event.kind, EventKind::WbtWait(_));
        let (wbt_latency_us, shows_wbt) = (wbt_latency_us(info), events.iter().any(wbt));
        let (nr_cpus, submit_queues) = (info.smp.clamp(1, MAX_CPUS), parameter("submit_queues"));
        Setup {
            limits: limits(info),
            queue_depth: depth.unwrap_or(DEFAULT_DEPTH).clamp(1, MAX_DEPTH),
            nr_requests: Some(queue.nr_requests),
            nr_cpus,
            nr_hw_queues: submit_queues.map_or(1, |nr| nr.clamp(1, nr_cpus)),
            hctxs: hctxs(events),
            blocking: ["memory_backed", "blocking"].iter().any(|name| {
                let value = info.null_blk_parameters.get(*name);
                value.is_some_and(|value| value == "Y")
            }),
            wbt_latency_us: wbt_latency_us.filter(|_| shows_wbt),
            throttled: match wbt_latency_us {
                Some(_) if !shows_wbt => throttled(info),
                _ => Vec::new(),
            },
            tunables: queue
                .iosched
                .iter()
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        }
    }

    /// The number of the hardware context at an address.
    pub(crate) fn hctx(&self, address: u64) -> usize {
        let at = self.hctxs.iter().position(|&hctx| hctx == address);
        at.unwrap_or(0).min(self.nr_hw_queues as usize - 1)
    }

    /// What a scheduler learns of this queue.
    pub(crate) fn info(&self) -> QueueInfo {
        let nr_requests = self.nr_requests.unwrap_or(2 * self.queue_depth.min(128));
        QueueInfo {
            nr_requests,
            old_nr_requests: nr_requests,
            nr_hw_queues: self.nr_hw_queues,
            queue_depth: self.queue_depth,
            nr_cpus: self.nr_cpus,
            capacity_sectors: self.limits.capacity_sectors,
            rotational: self.limits.rotational,
        }
    }

    /// Builds the scheduler and sets its tunables, as [`Setup::tune`] does.
    ///
    /// # Errors
    /// If there is none of this name, or a tunable is refused.
    pub(crate) fn elevator(
        &self,
        scheduler: &str,
        file: &str,
        notes: &mut Vec<String>,
    ) -> Result<Box<dyn Elevator>, ConformError> {
        let elevator = blklab_elevator::find(scheduler).and_then(|kind| kind.build(&self.info()));
        let mut elevator = elevator.ok_or_else(|| unknown_scheduler(scheduler))?;
        self.tune(elevator.as_mut(), file, notes)?;
        Ok(elevator)
    }

    /// Sets the tunables. A name that ours does not have goes to `notes`.
    pub(crate) fn tune(
        &self,
        elevator: &mut dyn Elevator,
        file: &str,
        notes: &mut Vec<String>,
    ) -> Result<(), ConformError> {
        for (name, text) in &self.tunables {
            if elevator.tunables().get(name).is_none() {
                notes.push(format!("iosched/{name} = {text} is not a tunable of ours"));
                continue;
            }
            let value = text.trim().parse::<i64>();
            let set = value
                .map_err(|_| format!("found {text:?}, expected a number"))
                .and_then(|value| {
                    // It was read, not written: to write what is there already
                    // may do something.
                    if elevator.tunables().get(name) == Some(value) {
                        return Ok(());
                    }
                    let set = elevator.set_tunable(name, value);
                    set.map_err(|error| error.to_string())
                });
            set.map_err(|message| ConformError::Setup {
                file: file.to_owned(),
                name: format!("iosched/{name}"),
                message,
            })?;
        }
        Ok(())
    }
}

/// The hardware contexts that schedulers are called for.
fn hctxs(events: &[Recorded<'_>]) -> Vec<u64> {
    use EventKind::*;
    let mut found = Vec::new();
    for Recorded { event, .. } in events {
        let hctx = match event.kind {
            DdIns(call) | KyIns(call) | BfqIns(call) => call.hctx,
            DdDisp(call) => call.hctx,
            KyDisp(call) => call.hctx,
            BfqDisp(call) => call.hctx,
            _ => continue,
        };
        if !found.contains(&hctx) {
            found.push(hctx);
        }
    }
    found
}

/// `wbt_should_throttle`: discards, and writes that are not direct. Whether a
/// write is direct is in no trace, but in the job.
fn throttled(info: &RunInfo) -> Vec<Op> {
    let sections = info.fio_job.split('[');
    let global = sections
        .map(str::trim)
        .find_map(|section| section.strip_prefix("global]"));
    let direct = global.is_some_and(|options| options.lines().any(|o| o.trim() == "direct=1"));
    match direct {
        true => vec![Op::Discard],
        false => vec![Op::Discard, Op::Write],
    }
}

/// `wbt_lat_usec`, where throttling is on.
fn wbt_latency_us(info: &RunInfo) -> Option<u64> {
    let text = info.queue.all.get("wbt_lat_usec")?;
    text.trim()
        .parse()
        .ok()
        .filter(|&latency_us| latency_us > 0)
}

/// The zones of the recorded null_blk, which are all of one size.
fn zones(info: &RunInfo) -> Option<ZoneLimits> {
    let attribute = |name: &str| info.queue.all.get(name)?.trim().parse::<u32>().ok();
    let parameter = |name: &str| info.null_blk_parameters.get(name)?.parse::<u32>().ok();
    let zone_sectors = attribute("chunk_sectors").filter(|sectors| sectors.is_power_of_two())?;
    let capacity_mib = parameter("zone_capacity").filter(|&mib| mib > 0);
    let capacity_sectors = capacity_mib.map_or(zone_sectors, |mib| mib.saturating_mul(2048));
    let zoned = info.queue.all.get("zoned")?;
    (zoned.trim() == "host-managed").then_some(ZoneLimits {
        zone_sectors,
        capacity_sectors: capacity_sectors.min(zone_sectors),
        conventional: parameter("zone_nr_conv").unwrap_or(0),
        max_open: parameter("zone_max_open").unwrap_or(0),
        max_active: parameter("zone_max_active").unwrap_or(0),
    })
}

fn limits(info: &RunInfo) -> QueueLimits {
    let queue = &info.queue;
    let sectors = |bytes: u64| u32::try_from(bytes / 512).unwrap_or(u32::MAX);
    let attribute = |name: &str| queue.all.get(name)?.trim().parse::<u64>().ok();
    let zones = zones(info);
    let nr_zones = attribute("nr_zones").unwrap_or(0).min(MAX_ZONES);
    QueueLimits {
        capacity_sectors: match zones {
            Some(zones) => nr_zones * u64::from(zones.zone_sectors),
            None => attribute("size").unwrap_or(u64::MAX),
        },
        zones,
        logical_block_sectors: (queue.logical_block_size / 512).max(1),
        max_sectors: match queue.max_sectors_kb {
            // sysfs rounds down what a driver has that sets no limit.
            127 if !info
                .queue_set
                .iter()
                .any(|(name, _)| name == "max_sectors_kb") =>
            {
                BLK_SAFE_MAX_SECTORS
            }
            kb => kb.saturating_mul(2).max(1),
        },
        max_segments: queue.max_segments.clamp(1, u16::MAX.into()) as u16,
        max_discard_sectors: sectors(queue.discard_max_bytes),
        max_discard_segments: queue.max_discard_segments.clamp(1, u16::MAX.into()) as u16,
        max_write_zeroes_sectors: sectors(attribute("write_zeroes_max_bytes").unwrap_or(0)),
        write_cache: queue.write_cache,
        fua: queue.fua,
        rotational: attribute("rotational") == Some(1),
        nomerges: match queue.nomerges {
            0 => NoMerges::All,
            1 => NoMerges::OneHit,
            _ => NoMerges::Never,
        },
    }
}

/// The most commands that were with the drive at once.
fn most_in_flight(events: &[Recorded<'_>]) -> u32 {
    let (mut most, mut now) = (1u32, 0u32);
    for recorded in events {
        match &recorded.event.kind {
            EventKind::RqIssue(_) => now += 1,
            EventKind::RqComplete(_) => now = now.saturating_sub(1),
            _ => {}
        }
        most = most.max(now);
    }
    most
}
