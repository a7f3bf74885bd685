//! `random_distribution` and `file_service_type`: a word and its numbers.

use super::direction::{ByDirection, Direction};
use super::error::Fault;
use super::spec::{Distribution, FileService, Popularity, PopularityCurve};
use super::{lists, units};

/// fio's defaults where no number is given.
const ZIPF_THETA: f64 = 1.1;
const PARETO_H: f64 = 0.2;

/// Parses the numbers of a word such as `zipf:1.2:0.5`: the parameter and the center.
fn numbers(rest: Option<&str>, default: f64) -> Result<(f64, Option<f64>), Fault> {
    let Some(rest) = rest else {
        return Ok((default, None));
    };
    let (value, center) = match rest.split_once(':') {
        Some((value, center)) => (value, Some(units::fraction(center)?)),
        None => (rest, None),
    };
    match center {
        // fio uses -1 for "no center".
        Some(-1.0) => Ok((units::fraction(value)?, None)),
        Some(center) if !(0.0..=1.0).contains(&center) => {
            Err(Fault::new("the center is out of range").help("0 to 1"))
        }
        center => Ok((units::fraction(value)?, center)),
    }
}

/// Parses a distribution by popularity; `None` if the word is not one.
fn popularity(word: &str, rest: Option<&str>) -> Result<Option<Popularity>, Fault> {
    let (curve, center) = match word {
        "zipf" => {
            let (theta, center) = numbers(rest, ZIPF_THETA)?;
            if theta == 1.0 || theta < 0.0 {
                return Err(Fault::new("no such zipf theta").help("0 or more, but not 1"));
            }
            (PopularityCurve::Zipf { theta }, center)
        }
        "pareto" => {
            let (h, center) = numbers(rest, PARETO_H)?;
            if h <= 0.0 || h >= 1.0 {
                return Err(Fault::new("no such pareto power").help("between 0 and 1"));
            }
            (PopularityCurve::Pareto { h }, center)
        }
        "normal" | "gauss" => {
            let (deviation_percent, center) = numbers(rest, 0.0)?;
            if !(0.0..100.0).contains(&deviation_percent) {
                return Err(Fault::new("no such deviation").help("0 to less than 100 percent"));
            }
            (PopularityCurve::Normal { deviation_percent }, center)
        }
        _ => return Ok(None),
    };
    Ok(Some(Popularity { curve, center }))
}

/// Parses `random_distribution`; `previous` has the zones of directions that are left out.
pub(crate) fn offsets(
    word: &str,
    rest: Option<&str>,
    previous: &Distribution,
    kb_base: u32,
) -> Result<Distribution, Fault> {
    if let Some(popularity) = popularity(word, rest)? {
        return Ok(Distribution::Popularity(popularity));
    }
    Ok(match word {
        "zoned" | "zoned_abs" => {
            let absolute = word == "zoned_abs";
            let mut zones = match previous {
                Distribution::Zoned(zones) if !absolute => zones.clone(),
                Distribution::ZonedAbsolute(zones) if absolute => zones.clone(),
                _ => ByDirection::default(),
            };
            let rest = rest.ok_or_else(|| {
                Fault::new("the zones are missing").help("such as zoned:60/10:40/90")
            })?;
            let lists = lists::by_direction(rest)?;
            for direction in Direction::ALL {
                let list = lists::zones(lists[direction], absolute, kb_base)?;
                if !list.is_empty() {
                    zones[direction] = list;
                }
            }
            match absolute {
                true => Distribution::ZonedAbsolute(zones),
                false => Distribution::Zoned(zones),
            }
        }
        _ => match rest {
            None => Distribution::Random,
            Some(_) => return Err(Fault::new("random takes no number")),
        },
    })
}

/// Parses `file_service_type` into the choice and the number of I/Os per file.
pub(crate) fn files(word: &str, rest: Option<&str>) -> Result<(FileService, u32), Fault> {
    if let Some(popularity) = popularity(word, rest)? {
        return Ok((FileService::Popularity(popularity), 1));
    }
    let service = match word {
        "random" => FileService::Random,
        "sequential" => FileService::Sequential,
        _ => FileService::RoundRobin,
    };
    let count = match rest.map(str::parse::<u32>) {
        None => 1,
        Some(Ok(count)) if count > 0 => count,
        Some(_) => {
            return Err(
                Fault::new("the number of I/Os per file is wrong").help("such as random:16")
            );
        }
    };
    Ok((service, count))
}
