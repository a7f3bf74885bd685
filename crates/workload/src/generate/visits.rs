//! How the random blocks of a file are chosen: each once or any, evenly or
//! by a distribution.

use super::layout::{FileExtent, LayoutError};
use super::map::{MAP_LIMIT, Map};
use super::permutation::Permutation;
use super::random::Random;
use super::ranks::Ranks;
use super::rules::Rules;
use super::zones::ZoneTable;
use crate::fio::{ByDirection, Direction, Distribution, JobSpec, RandomGenerator, Zone};

/// How random blocks of a file are chosen.
#[derive(Clone, Debug)]
pub(crate) enum Visits {
    /// Any, any time.
    Any,
    /// Each once, all of one size.
    Each(Permutation),
    /// Each once, of different sizes.
    Mapped(Map),
    /// Some more often than others.
    Ranked(Box<Ranks>),
    /// Parts with shares.
    Zoned(Box<ByDirection<ZoneTable>>),
}

impl Visits {
    pub fn new(
        spec: &JobSpec,
        rules: &Rules,
        extent: &FileExtent,
        random: Random,
    ) -> Result<Visits, LayoutError> {
        if !rules.pattern.is_random() {
            return Ok(Visits::Any);
        }
        let range = extent.length_bytes.min(extent.file_bytes) / rules.unit;
        let ranked = |ranks: fn(u64, f64, Option<f64>, Random) -> Ranks, shape, center| {
            Visits::Ranked(Box::new(ranks(range.max(1), shape, center, random.clone())))
        };
        Ok(match &spec.distribution {
            Distribution::Zipf { theta, center } => ranked(Ranks::zipf, *theta, *center),
            Distribution::Pareto { h, center } => ranked(Ranks::pareto, *h, *center),
            Distribution::Normal {
                deviation_percent,
                center,
            } => ranked(Ranks::normal, *deviation_percent, *center),
            Distribution::Zoned(zones) => zoned(zones, false),
            Distribution::ZonedAbsolute(zones) => {
                check_zones(spec, zones, extent)?;
                zoned(zones, true)
            }
            Distribution::Random => Visits::evenly(spec, rules, range)?,
        })
    }

    fn evenly(spec: &JobSpec, rules: &Rules, blocks: u64) -> Result<Visits, LayoutError> {
        let one_size = rules.has_one_size(spec);
        let once = !spec.no_random_map || spec.generator == RandomGenerator::Lfsr;
        Ok(match (once, one_size) {
            (true, true) => Visits::Each(Permutation::new(blocks)),
            (false, _) => Visits::Any,
            (true, false) if spec.no_random_map => Visits::Any,
            (true, false) if blocks <= MAP_LIMIT => Visits::Mapped(Map::new(blocks)),
            (true, false) if spec.soft_random_map => Visits::Any,
            (true, false) => {
                return Err(LayoutError::Map { blocks });
            }
        })
    }

    /// Nothing is visited.
    pub fn restart(&mut self, random: &mut Random) {
        match self {
            Visits::Each(permutation) => permutation.restart(random),
            Visits::Mapped(map) => map.clear(),
            _ => {}
        }
    }

    /// Takes the blocks of a random I/O; returns how long it may be.
    #[inline]
    pub fn claim(&mut self, relative: u64, length: u64, unit: u64) -> u64 {
        match self {
            Visits::Mapped(map) => {
                let count = map.visit(relative / unit, length.div_ceil(unit));
                match count {
                    0 => length,
                    count => length.min(count * unit),
                }
            }
            _ => length,
        }
    }
}

fn zoned(zones: &ByDirection<Vec<Zone>>, absolute: bool) -> Visits {
    Visits::Zoned(Box::new(ByDirection::from_fn(|direction| {
        ZoneTable::new(&zones[direction], absolute)
    })))
}

fn check_zones(
    spec: &JobSpec,
    zones: &ByDirection<Vec<Zone>>,
    extent: &FileExtent,
) -> Result<(), LayoutError> {
    for direction in Direction::ALL {
        let zone_bytes = zones[direction]
            .iter()
            .fold(0u64, |sum, zone| sum.saturating_add(zone.size));
        if spec.pattern.does(direction) && zone_bytes > extent.length_bytes {
            return Err(LayoutError::Zones {
                zone_bytes,
                bytes: extent.length_bytes,
            });
        }
    }
    Ok(())
}
