//! Chunks, how many work in parallel, and how addresses are mapped to them, found with reads only.
//!
//! Chen, Hou, Lee, "Essential roles of exploiting internal parallelism of flash memory based solid
//! state drives in high-speed data processing", HPCA 2011, section 3: two reads of the same die
//! wait for each other, two reads of different dies do not. So pairs of reads at a given distance
//! are timed at many positions. The distance at which they stop waiting is the size of a chunk; the
//! multiple of it at which they wait again is the number of chunks in parallel.

use crate::finding::{Finding, Mapping, median, median_of, size};
use crate::target::{Io, Places, ProbeError, Target};

/// Number of pairs timed at a distance.
const TRIALS: usize = 24;

/// Alignment of positions, a multiple of chunks and stripes if these are powers of two.
const ALIGN: u64 = 64 << 20;

/// The smallest difference between the waits at different distances, in reads, for a clear finding.
const CONTRAST: f64 = 0.25;

/// Number of measurements at far distances, where the exact share matters.
const FAR_ROUNDS: usize = 4;

/// The largest chunk, in bytes, and the most chunks in parallel that are searched for.
const CHUNK_MAX: u64 = 8 << 20;
const PARALLEL_MAX: u64 = 512;

/// Whether pairs at a distance mostly wait for each other.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Whether the median delay is above the limit.
    waits: bool,
    /// The share of pairs above the limit.
    share: f64,
}

/// Times of a pair of simultaneous reads, and of each read alone.
#[derive(Clone, Copy, Debug)]
struct Timed {
    pair_ns: u64,
    alone_ns: [u64; 2],
}

impl Timed {
    /// The delay of the pair in units of a read: 0 if both ran in parallel, 1 if one waited for the
    /// other, however long each takes alone. Pages of one drive may differ by a factor of four.
    fn delay(self) -> f64 {
        let [a, b] = self.alone_ns;
        let more = self.pair_ns as f64 - a.max(b) as f64;
        more / a.min(b).max(1) as f64
    }
}

/// The reference for a pair's time.
#[derive(Clone, Copy, Debug)]
enum Against {
    /// The time of each read alone, measured shortly before.
    Alone,
    /// The time of the fastest pairs, in nanoseconds, for a drive with a read cache, where no
    /// position can be read twice.
    Fastest(u64),
}

/// Findings from pairs of reads.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Bytes on one die before the next begins.
    pub chunk: Finding<u64>,
    /// Number of chunks that are read in parallel.
    pub parallel: Finding<u64>,
    /// Mapping of addresses to chunks.
    pub mapping: Finding<Mapping>,
}

/// Timing of pairs of reads.
pub(crate) struct Pairs<'a> {
    target: &'a mut dyn Target,
    places: Places,
    /// Length of a read: less than `unit`, because the block layer would merge adjacent reads.
    bytes: u64,
    /// The shortest distance.
    unit: u64,
    against: Against,
}

impl<'a> Pairs<'a> {
    pub(crate) fn new(target: &'a mut dyn Target, seed: u64) -> Pairs<'a> {
        let bytes = target.block_bytes().max(512);
        Pairs {
            bytes,
            unit: 2 * bytes,
            target,
            places: Places::new(seed),
            against: Against::Alone,
        }
    }

    /// The delay of each pair, in units of a read.
    ///
    /// All positions are read once first, so that the drive has loaded that part of its mapping
    /// table, and then in rounds, so that no chip still has the requested page in its register.
    fn delays(&mut self, pairs: &[[u64; 2]]) -> Result<Vec<f64>, ProbeError> {
        let reads = |pair: &[u64; 2]| pair.map(|at| Io::read(at, self.bytes));
        let pairs: Vec<[Io; 2]> = pairs.iter().map(reads).collect();
        let mut alone_ns = vec![[0; 2]; pairs.len()];
        if let Against::Alone = self.against {
            for _ in 0..2 {
                for (ns, pair) in alone_ns.iter_mut().zip(&pairs) {
                    for (ns, read) in ns.iter_mut().zip(pair) {
                        *ns = self.target.run(&[*read], 1)?.elapsed_ns;
                    }
                }
            }
        }
        let mut delays = Vec::with_capacity(pairs.len());
        for (pair, alone_ns) in pairs.iter().zip(alone_ns) {
            let pair_ns = self.target.run(pair, 2)?.elapsed_ns;
            delays.push(match self.against {
                Against::Alone => Timed { pair_ns, alone_ns }.delay(),
                Against::Fastest(ns) => pair_ns as f64 / ns.max(1) as f64 - 1.0,
            });
        }
        Ok(delays)
    }

    fn pairs(&mut self, distance: u64) -> Vec<[u64; 2]> {
        let capacity = self.target.capacity_bytes();
        let align = ALIGN
            .min((capacity / 4).next_power_of_two() / 2)
            .max(self.unit);
        let mut place = || self.places.aligned(align, distance + self.unit, capacity);
        let firsts: Vec<u64> = (0..TRIALS).map(|_| place()).collect();
        firsts.iter().map(|at| [*at, at + distance]).collect()
    }

    fn delays_at(&mut self, distance: u64) -> Result<Vec<f64>, ProbeError> {
        let pairs = self.pairs(distance);
        self.delays(&pairs)
    }

    fn seen(&mut self, distance: u64, limit: f64) -> Result<Seen, ProbeError> {
        let delays = self.delays_at(distance)?;
        Ok(Seen {
            waits: median_of(&delays) > limit,
            share: share_above(&delays, limit),
        })
    }

    /// The delay that separates pairs that wait from those that do not, or the observation if they
    /// cannot be distinguished.
    fn limit(&mut self) -> Result<Result<f64, String>, ProbeError> {
        self.against = Against::Alone;
        let found = self.limit_by_distance()?;
        if found.is_ok() {
            return Ok(found);
        }
        self.against = Against::Fastest(self.fastest_ns()?);
        self.limit_by_distance()
    }

    fn fastest_ns(&mut self) -> Result<u64, ProbeError> {
        let mut fastest = u64::MAX;
        for distance in self.distances() {
            let mut times = Vec::with_capacity(TRIALS);
            for pair in self.pairs(distance) {
                let pair = pair.map(|at| Io::read(at, self.bytes));
                times.push(self.target.run(&pair, 2)?.elapsed_ns);
            }
            fastest = fastest.min(median(&times));
        }
        Ok(fastest)
    }

    /// Distances up to half the drive, doubling.
    fn distances(&self) -> Vec<u64> {
        let half = self.target.capacity_bytes() / 2;
        let doubled = std::iter::successors(Some(self.unit), |d| d.checked_mul(2));
        doubled.take_while(|distance| *distance <= half).collect()
    }

    fn limit_by_distance(&mut self) -> Result<Result<f64, String>, ProbeError> {
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for distance in self.distances() {
            let delay = median_of(&self.delays_at(distance)?);
            (least, most) = (least.min(delay), most.max(delay));
        }
        Ok(if least > most {
            Err("the drive is too small".to_string())
        } else if most - least < CONTRAST {
            Err(format!(
                "of two reads at once, one waits {:.0} to {:.0} % of the other's time at every \
                 distance",
                least * 100.0,
                most * 100.0
            ))
        } else {
            Ok((least + most) / 2.0)
        })
    }

    /// Finds chunk, parallelism and mapping.
    pub(crate) fn layout(&mut self) -> Result<Layout, ProbeError> {
        let limit = match self.limit()? {
            Ok(limit) => limit,
            Err(why) => return Ok(Layout::none(&why)),
        };
        let chunk = self.chunk(limit)?;
        let Some(bytes) = chunk.value else {
            let why = "the chunk is not known";
            return Ok(Layout {
                chunk,
                ..Layout::none(why)
            });
        };
        let period = self.period(bytes, limit)?;
        let Some(count) = period.value else {
            return Ok(Layout {
                chunk,
                parallel: period,
                ..Layout::none("the number of chunks in parallel is not known")
            });
        };
        let mapping = self.mapping(bytes * count, limit)?;
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

    /// Finds the distance at which pairs stop waiting.
    fn chunk(&mut self, limit: f64) -> Result<Finding<u64>, ProbeError> {
        let mut distance = self.unit;
        let mut agreed = Vec::new();
        while distance <= CHUNK_MAX {
            let seen = self.seen(distance, limit)?;
            if !seen.waits {
                break;
            }
            agreed.push(seen.share);
            distance *= 2;
        }
        if agreed.is_empty() {
            return self.small_chunk(limit);
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
        while at < distance && self.seen(at, limit)?.waits {
            at += step;
        }
        agreed.push(1.0 - self.seen(at, limit)?.share);
        let confidence = agreed.iter().sum::<f64>() / agreed.len() as f64;
        let seen = format!("pairs of reads wait for each other below {}", size(at));
        Ok(Finding::found(at, confidence, seen))
    }

    /// Finds a chunk of one or two blocks, in which reads are adjacent and cannot be timed. Where
    /// stripes repeat, as many consecutive distances wait as a chunk has blocks, because the second
    /// read falls into it at every position.
    fn small_chunk(&mut self, limit: f64) -> Result<Finding<u64>, ProbeError> {
        for count in 2..=2 * PARALLEL_MAX {
            let distance = count * self.bytes;
            let seen = self.seen(distance, limit)?;
            if !seen.waits {
                continue;
            }
            let next = self.seen(distance + self.bytes, limit)?;
            let twice = self.seen(2 * distance, limit)?;
            if !twice.waits {
                continue;
            }
            let (chunk, agreed) = match next.waits {
                true => (2 * self.bytes, next.share),
                false => (self.bytes, 1.0 - next.share),
            };
            let words = format!(
                "reads {} apart do not wait for each other, those {} apart do{}",
                size(self.unit),
                size(distance),
                if next.waits { ", and one block on" } else { "" },
            );
            return Ok(Finding::found(chunk, (seen.share + agreed) / 2.0, words));
        }
        Ok(Finding::none(format!(
            "reads {} apart do not wait for each other",
            size(self.unit)
        )))
    }

    /// Finds the multiple of a chunk at which pairs wait again.
    fn period(&mut self, chunk: u64, limit: f64) -> Result<Finding<u64>, ProbeError> {
        for count in 2..=PARALLEL_MAX {
            let seen = self.seen(count * chunk, limit)?;
            if !seen.waits {
                continue;
            }
            // A coincidence happens once; a real period waits at every multiple, and not one chunk
            // further.
            let (twice, thrice) = (2 * count * chunk, 3 * count * chunk);
            let again = [self.seen(twice, limit)?, self.seen(thrice, limit)?];
            let beside = self.seen((count + 1) * chunk, limit)?;
            if !again.iter().all(|seen| seen.waits) || beside.waits {
                continue;
            }
            let agreed = seen.share + again[0].share + again[1].share;
            let confidence = (agreed + 1.0 - beside.share) / 4.0;
            let seen = format!("pairs wait again {count} chunks apart, and at multiples of that");
            return Ok(Finding::found(count, confidence, seen));
        }
        Ok(Finding::none(format!(
            "pairs do not wait again up to {PARALLEL_MAX} chunks apart"
        )))
    }

    /// Finds whether pairs that are whole stripes apart wait at any distance.
    fn mapping(&mut self, stripe: u64, limit: f64) -> Result<Finding<Mapping>, ProbeError> {
        let capacity = self.target.capacity_bytes();
        let near = self.seen(stripe, limit)?;
        let mut shares = Vec::new();
        for part in [2, 4, 8, 16, 32, 64] {
            let distance = capacity / part / stripe * stripe;
            let mut share = 0.0;
            for _ in 0..FAR_ROUNDS {
                share += self.seen(distance, limit)?.share / FAR_ROUNDS as f64;
            }
            shares.push((distance, share));
        }
        let (_, farthest) = shares[0];
        if farthest > near.share / 2.0 {
            let seen = "whole stripes apart, pairs wait however far apart".to_string();
            return Ok(Finding::found(Mapping::Striped, farthest, seen));
        }
        // Two positions at distance d are in one range of length r with probability 1 - d/r.
        let inside = shares
            .iter()
            .map(|(d, share)| (*d, share / near.share))
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

    /// Finds whether data written sequentially is mapped by address or by the order of writes.
    /// Overwrites a region.
    pub(crate) fn write_order(
        &mut self,
        chunk: u64,
        count: u64,
    ) -> Result<Finding<Mapping>, ProbeError> {
        let limit = match self.limit()? {
            Ok(limit) => limit,
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
        // After the buffer has been written back, so that reads come from the final location.
        self.target.rest(DRAIN_NS);
        let mut pairs = [Vec::new(), Vec::new()];
        for _ in 0..TRIALS {
            let first = self.places.aligned(1, count, total as u64);
            let by_address = [first, first + count];
            let by_order = by_address.map(|n| order[n as usize]);
            for (pairs, pair) in pairs.iter_mut().zip([by_address, by_order]) {
                pairs.push(pair.map(|n| base + n * chunk));
            }
        }
        let mut share = [0.0; 2];
        for (share, pairs) in share.iter_mut().zip(pairs) {
            *share = share_above(&self.delays(&pairs)?, limit);
        }
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

/// The share of pairs with a delay above the limit.
fn share_above(delays: &[f64], limit: f64) -> f64 {
    let waiting = delays.iter().filter(|delay| **delay > limit).count();
    waiting as f64 / delays.len() as f64
}

/// The time after which a drive should have written back its buffer, in nanoseconds.
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
