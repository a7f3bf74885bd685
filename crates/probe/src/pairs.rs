//! Chunks, how many work in parallel, and how addresses lie on them, from
//! reads alone.
//!
//! Chen, Hou, Lee, "Essential roles of exploiting internal parallelism of
//! flash memory based solid state drives in high-speed data processing",
//! HPCA 2011, section 3: two reads that go to the same die wait for each
//! other, two that go to different ones do not. So pairs of reads at a
//! distance are timed, over many places. The distance at which they stop
//! waiting is the chunk; the multiple of it at which they wait again is the
//! number of chunks in parallel.

use crate::finding::{Finding, Mapping, median, size};
use crate::target::{Io, Places, ProbeError, Target};

/// Pairs timed at a distance.
const TRIALS: usize = 48;

/// Places begin at multiples of this, which chunks and stripes divide where
/// they are powers of two.
const ALIGN: u64 = 64 << 20;

/// Pairs that wait take at least so much longer than those that do not, or
/// nothing is said.
const CONTRAST: f64 = 1.25;

/// The largest chunk and the most chunks in parallel that are looked for.
const CHUNK_MAX: u64 = 8 << 20;
const PARALLEL_MAX: u64 = 512;

/// Whether pairs at a distance wait for each other, mostly.
#[derive(Clone, Copy, Debug)]
struct Seen {
    median_ns: u64,
    /// The share of pairs that took longer than the limit.
    waiting: f64,
}

/// What pairs of reads tell.
#[derive(Clone, Debug)]
pub struct Layout {
    /// What lies on one die before the next begins.
    pub chunk: Finding<u64>,
    /// Chunks that are read side by side.
    pub parallel: Finding<u64>,
    /// How addresses lie on them.
    pub mapping: Finding<Mapping>,
}

/// Times pairs of reads.
pub(crate) struct Pairs<'a> {
    target: &'a mut dyn Target,
    places: Places,
    /// What is read: less than `unit`, for the block layer makes one request of
    /// two reads that touch.
    bytes: u64,
    /// The shortest distance.
    unit: u64,
}

impl<'a> Pairs<'a> {
    pub(crate) fn new(target: &'a mut dyn Target, seed: u64) -> Pairs<'a> {
        let bytes = target.block_bytes().max(512);
        Pairs {
            bytes,
            unit: (2 * bytes).max(4096),
            target,
            places: Places::new(seed),
        }
    }

    fn times(&mut self, distance: u64) -> Result<Vec<u64>, ProbeError> {
        let capacity = self.target.capacity_bytes();
        let align = ALIGN
            .min((capacity / 4).next_power_of_two() / 2)
            .max(self.unit);
        let mut times = Vec::with_capacity(TRIALS);
        for _ in 0..TRIALS {
            let at = self.places.aligned(align, distance + self.unit, capacity);
            let pair = [at, at + distance].map(|at| Io::read(at, self.bytes));
            times.push(self.target.run(&pair, 2)?.elapsed_ns);
        }
        Ok(times)
    }

    fn seen(&mut self, distance: u64, limit_ns: u64) -> Result<Seen, ProbeError> {
        let times = self.times(distance)?;
        let waiting = times.iter().filter(|ns| **ns > limit_ns).count();
        Ok(Seen {
            median_ns: median(&times),
            waiting: waiting as f64 / times.len() as f64,
        })
    }

    /// The time that parts pairs that wait from those that do not, or what was
    /// seen where they are not to be told apart.
    fn limit(&mut self) -> Result<Result<u64, String>, ProbeError> {
        let capacity = self.target.capacity_bytes();
        let mut medians = Vec::new();
        let mut distance = self.unit;
        while distance <= capacity / 2 {
            let times = self.times(distance)?;
            medians.push(median(&times));
            distance *= 2;
        }
        medians.sort_unstable();
        let (Some(&least), Some(&most)) = (medians.first(), medians.last()) else {
            return Ok(Err("the drive is too small".to_string()));
        };
        if (most as f64) < least as f64 * CONTRAST {
            return Ok(Err(format!(
                "pairs of reads take {:.1} to {:.1} us at every distance: none waits for the other",
                least as f64 / 1e3,
                most as f64 / 1e3
            )));
        }
        Ok(Ok(((least as f64 * most as f64).sqrt()) as u64))
    }

    /// Looks for all three.
    pub(crate) fn layout(&mut self) -> Result<Layout, ProbeError> {
        let limit_ns = match self.limit()? {
            Ok(limit_ns) => limit_ns,
            Err(why) => return Ok(Layout::none(&why)),
        };
        let chunk = self.chunk(limit_ns)?;
        let Some(bytes) = chunk.value else {
            let why = "the chunk is not known";
            return Ok(Layout {
                chunk,
                ..Layout::none(why)
            });
        };
        let period = self.period(bytes, limit_ns)?;
        let Some(count) = period.value else {
            return Ok(Layout {
                chunk,
                parallel: period,
                ..Layout::none("the number of chunks in parallel is not known")
            });
        };
        let mapping = self.mapping(bytes * count, limit_ns)?;
        let parallel = match mapping.value {
            Some(Mapping::Ranges(range)) => {
                let groups = (self.target.capacity_bytes() as f64 / range as f64).round() as u64;
                Finding {
                    value: Some(count * groups.max(1)),
                    seen: format!("{} in each of {groups} ranges", period.seen),
                    ..period
                }
            }
            _ => period,
        };
        Ok(Layout {
            chunk,
            parallel,
            mapping,
        })
    }

    /// The distance at which pairs stop waiting.
    fn chunk(&mut self, limit_ns: u64) -> Result<Finding<u64>, ProbeError> {
        let mut distance = self.unit;
        let mut agreed = Vec::new();
        while distance <= CHUNK_MAX {
            let seen = self.seen(distance, limit_ns)?;
            if seen.median_ns <= limit_ns {
                break;
            }
            agreed.push(seen.waiting);
            distance *= 2;
        }
        if agreed.is_empty() {
            return Ok(Finding::none(format!(
                "reads {} apart do not wait for each other",
                size(self.unit)
            )));
        }
        if distance > CHUNK_MAX {
            return Ok(Finding::none(format!(
                "pairs wait for each other up to {}",
                size(CHUNK_MAX)
            )));
        }
        // Chunks need not be powers of two.
        let (from, step) = (distance / 2, (distance / 16).max(self.unit));
        let mut at = from + step;
        while at < distance && self.seen(at, limit_ns)?.median_ns > limit_ns {
            at += step;
        }
        agreed.push(1.0 - self.seen(at, limit_ns)?.waiting);
        let confidence = agreed.iter().sum::<f64>() / agreed.len() as f64;
        let seen = format!("pairs of reads wait for each other below {}", size(at));
        Ok(Finding::found(at, confidence, seen))
    }

    /// The multiple of a chunk at which pairs wait again.
    fn period(&mut self, chunk: u64, limit_ns: u64) -> Result<Finding<u64>, ProbeError> {
        for count in 2..=PARALLEL_MAX {
            let seen = self.seen(count * chunk, limit_ns)?;
            if seen.median_ns <= limit_ns {
                continue;
            }
            // By chance once; by the drive's making every time, and one chunk
            // further never.
            let (twice, thrice) = (2 * count * chunk, 3 * count * chunk);
            let again = [self.seen(twice, limit_ns)?, self.seen(thrice, limit_ns)?];
            let beside = self.seen((count + 1) * chunk, limit_ns)?;
            let waits = again.iter().all(|seen| seen.median_ns > limit_ns);
            if !waits || beside.median_ns > limit_ns {
                continue;
            }
            let agreed = seen.waiting + again[0].waiting + again[1].waiting;
            let confidence = (agreed + 1.0 - beside.waiting) / 4.0;
            let seen = format!("pairs wait again {count} chunks apart, and at multiples of that");
            return Ok(Finding::found(count, confidence, seen));
        }
        Ok(Finding::none(format!(
            "pairs do not wait again up to {PARALLEL_MAX} chunks apart"
        )))
    }

    /// Whether pairs a whole number of stripes apart wait however far apart.
    fn mapping(&mut self, stripe: u64, limit_ns: u64) -> Result<Finding<Mapping>, ProbeError> {
        let capacity = self.target.capacity_bytes();
        let near = self.seen(stripe, limit_ns)?;
        let mut shares = Vec::new();
        for part in [2, 4, 8, 16, 32, 64] {
            let distance = capacity / part / stripe * stripe;
            shares.push((distance, self.seen(distance, limit_ns)?.waiting));
        }
        let (_, farthest) = shares[0];
        if farthest > near.waiting / 2.0 {
            let seen = "whole stripes apart, pairs wait however far apart".to_string();
            return Ok(Finding::found(Mapping::Striped, farthest, seen));
        }
        // Two places d apart are in one range of r with the chance 1 - d/r.
        let inside = shares
            .iter()
            .map(|(d, share)| (*d, share / near.waiting))
            .find(|(_, share)| (0.25..0.9).contains(share));
        let Some((distance, share)) = inside else {
            return Ok(Finding::none(
                "far pairs wait neither always nor by distance",
            ));
        };
        let range = distance as f64 / (1.0 - share);
        let groups = (capacity as f64 / range).round().max(1.0);
        let range = (capacity as f64 / groups) as u64;
        let seen = format!(
            "{:.0} % of pairs wait {} apart, and {:.0} % half the drive apart",
            share * 100.0,
            size(distance),
            farthest * 100.0
        );
        Ok(Finding::found(Mapping::Ranges(range), 1.0 - farthest, seen))
    }

    /// Whether what was written one after the other lies as addresses do, or
    /// in the order of writing. Overwrites a region.
    pub(crate) fn write_order(
        &mut self,
        chunk: u64,
        count: u64,
    ) -> Result<Finding<Mapping>, ProbeError> {
        let limit_ns = match self.limit()? {
            Ok(limit_ns) => limit_ns,
            Err(why) => return Ok(Finding::none(why)),
        };
        let total = (count * 16).min(4096) as usize;
        let capacity = self.target.capacity_bytes();
        let room = total as u64 * chunk;
        let base = self.places.aligned(ALIGN, room, capacity);
        let mut order: Vec<u64> = (0..total as u64).collect();
        for last in (1..order.len()).rev() {
            let other = self.places.aligned(1, 0, last as u64 + 1) as usize;
            order.swap(last, other);
        }
        let writes: Vec<Io> = order
            .iter()
            .map(|n| Io::write(base + n * chunk, chunk))
            .collect();
        self.target.run(&writes, 1)?;
        // Behind the buffer, so that reads come from where it went.
        self.target.rest(DRAIN_NS);
        let mut waiting = [0_u32; 2];
        for _ in 0..TRIALS {
            let first = self.places.aligned(1, count, total as u64);
            let by_address = [first, first + count];
            let by_order = by_address.map(|n| order[n as usize]);
            for (waits, pair) in waiting.iter_mut().zip([by_address, by_order]) {
                let pair = pair.map(|n| Io::read(base + n * chunk, self.unit));
                *waits += u32::from(self.target.run(&pair, 2)?.elapsed_ns > limit_ns);
            }
        }
        let share = waiting.map(|n| f64::from(n) / TRIALS as f64);
        let seen = format!(
            "after overwriting in another order, {:.0} % of pairs wait by address and {:.0} % by \
             order of writing",
            share[0] * 100.0,
            share[1] * 100.0
        );
        Ok(match share {
            [address, order] if order > 0.5 && order > address + 0.25 => {
                Finding::found(Mapping::WriteOrder, order, seen)
            }
            [address, order] if address > 0.5 && address > order + 0.25 => {
                Finding::found(Mapping::Striped, address, seen)
            }
            _ => Finding::none(seen),
        })
    }
}

/// How long a drive may take to write what it buffers.
const DRAIN_NS: u64 = 2_000_000_000;

impl Layout {
    pub(crate) fn none(why: &str) -> Layout {
        Layout {
            chunk: Finding::none(why),
            parallel: Finding::none(why),
            mapping: Finding::none(why),
        }
    }
}
