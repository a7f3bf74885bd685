//! The contents of `io.cost.model` and `io.cost.qos`, and the kernel's defaults.

use alloc::format;
use alloc::string::String;

use super::{VTIME_PER_SEC, div_up};
use crate::units::{SECTOR_SIZE, SECTORS_PER_PAGE};

/// The page size of the linear model, in bytes.
const PAGE_BYTES: u64 = SECTORS_PER_PAGE as u64 * SECTOR_SIZE;

/// The slowest and the fastest rate of virtual time, in parts per million of the clock's.
const RATE_PPM: [u64; 2] = [10_000, 100_000_000];

/// Throughput of a drive in one direction, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Speed {
    /// Bytes in one sequential stream (`rbps`, `wbps`).
    pub bytes: u64,
    /// Sequential I/Os of 4 KiB (`rseqiops`, `wseqiops`).
    pub sequential_ios: u64,
    /// Random I/Os of 4 KiB (`rrandiops`, `wrandiops`).
    pub random_ios: u64,
}

/// A linear model of the costs of I/O on a drive (`io.cost.model`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostModel {
    /// Whether the user gave the model; otherwise it follows from the kind of drive.
    pub is_users: bool,
    /// Reads, then writes.
    pub speeds: [Speed; 2],
}

impl CostModel {
    /// Parses a write to `io.cost.model`, without the drive's number.
    ///
    /// # Errors
    /// If the kernel refuses it; the message says why.
    pub fn write(&mut self, text: &str) -> Result<(), String> {
        let mut written = *self;
        for word in text.split_whitespace() {
            let (name, value) = name_and_value(word)?;
            match name {
                "ctrl" => {
                    written.is_users = is_users(value)?;
                    continue;
                }
                "model" if value == "linear" => continue,
                "model" => {
                    return Err(format!(
                        "model={value}: the kernel has the model linear alone (EINVAL)"
                    ));
                }
                _ => {}
            }
            let [reads, writes] = &mut written.speeds;
            let speed = match name {
                "rbps" => &mut reads.bytes,
                "rseqiops" => &mut reads.sequential_ios,
                "rrandiops" => &mut reads.random_ios,
                "wbps" => &mut writes.bytes,
                "wseqiops" => &mut writes.sequential_ios,
                "wrandiops" => &mut writes.random_ios,
                _ => {
                    return Err(format!(
                        "{name:?} is no parameter of io.cost.model; those are ctrl, model, rbps, \
                         rseqiops, rrandiops, wbps, wseqiops, wrandiops (EINVAL)"
                    ));
                }
            };
            *speed = number(name, value)?;
            written.is_users = true;
        }
        *self = written;
        Ok(())
    }
}

impl core::fmt::Display for CostModel {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let control = if self.is_users { "user" } else { "auto" };
        write!(f, "ctrl={control} model=linear")?;
        for (letter, speed) in ['r', 'w'].into_iter().zip(self.speeds) {
            write!(
                f,
                " {letter}bps={} {letter}seqiops={} {letter}randiops={}",
                speed.bytes, speed.sequential_ios, speed.random_ios
            )?;
        }
        Ok(())
    }
}

/// When a drive counts as saturated, and in which range its rate may vary (`io.cost.qos`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostQos {
    /// Whether the controller is enabled.
    pub enabled: bool,
    /// Whether the user gave the targets; otherwise they follow from the kind of drive.
    pub is_users: bool,
    /// The parts per million of reads and of writes that must meet the target; 0 for no target
    /// (`rpct`, `wpct`).
    pub within_ppm: [u32; 2],
    /// The targets, in microseconds (`rlat`, `wlat`).
    pub latency_us: [u32; 2],
    /// The slowest and the fastest rate of virtual time, in parts per million of the clock's
    /// (`min`, `max`).
    pub rate_ppm: [u32; 2],
}

impl CostQos {
    /// Parses a write to `io.cost.qos`, without the drive's number.
    ///
    /// # Errors
    /// If the kernel refuses it; the message says why.
    pub fn write(&mut self, text: &str) -> Result<(), String> {
        let mut written = *self;
        for word in text.split_whitespace() {
            let (name, value) = name_and_value(word)?;
            match name {
                "enable" => {
                    written.enabled = number(name, value)? != 0;
                    continue;
                }
                "ctrl" => {
                    written.is_users = is_users(value)?;
                    continue;
                }
                "rpct" | "wpct" => {
                    let ppm = ppm_of_percent(name, value)?;
                    if ppm > 1_000_000 {
                        return Err(format!("{name}={value} is above 100 percent (EINVAL)"));
                    }
                    written.within_ppm[(name == "wpct") as usize] = ppm as u32;
                }
                "rlat" | "wlat" => {
                    let latency_us = number(name, value)?.min(u32::MAX.into());
                    written.latency_us[(name == "wlat") as usize] = latency_us as u32;
                }
                "min" | "max" => {
                    let ppm = ppm_of_percent(name, value)?.clamp(RATE_PPM[0], RATE_PPM[1]);
                    written.rate_ppm[(name == "max") as usize] = ppm as u32;
                }
                _ => {
                    return Err(format!(
                        "{name:?} is no parameter of io.cost.qos; those are enable, ctrl, rpct, \
                         rlat, wpct, wlat, min, max (EINVAL)"
                    ));
                }
            }
            written.is_users = true;
        }
        let [min, max] = written.rate_ppm.map(f64::from).map(|ppm| ppm / 10_000.0);
        if min > max {
            return Err(format!("min={min:.2} is above max={max:.2} (EINVAL)"));
        }
        *self = written;
        Ok(())
    }
}

impl core::fmt::Display for CostQos {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let percent = |ppm: u32| f64::from(ppm) / 10_000.0;
        let control = if self.is_users { "user" } else { "auto" };
        write!(f, "enable={} ctrl={control}", self.enabled as u32)?;
        for at in 0..2 {
            let letter = ['r', 'w'][at];
            let within = percent(self.within_ppm[at]);
            let latency_us = self.latency_us[at];
            write!(f, " {letter}pct={within:.2} {letter}lat={latency_us}")?;
        }
        let [min, max] = self.rate_ppm.map(percent);
        write!(f, " min={min:.2} max={max:.2}")
    }
}

fn name_and_value(word: &str) -> Result<(&str, &str), String> {
    let pair = word.split_once('=');
    pair.ok_or_else(|| format!("{word:?} is not NAME=VALUE (EINVAL)"))
}

fn is_users(value: &str) -> Result<bool, String> {
    match value {
        "user" => Ok(true),
        "auto" => Ok(false),
        _ => Err(format!("ctrl={value}: auto or user is right (EINVAL)")),
    }
}

fn number(name: &str, value: &str) -> Result<u64, String> {
    let number = value.parse();
    number.map_err(|_| format!("{name} takes a number of up to 64 bits, not {value:?} (EINVAL)"))
}

/// Parses a percentage with up to two decimals and returns parts per million.
fn ppm_of_percent(name: &str, value: &str) -> Result<u64, String> {
    let percent = value.parse::<f64>().ok();
    let percent = percent.filter(|percent| percent.is_finite() && *percent >= 0.0);
    match percent {
        Some(percent) => Ok((percent * 100.0 + 0.5) as u64 * 100),
        None => Err(format!("{name} takes a percentage, not {value:?} (EINVAL)")),
    }
}

/// Costs in one direction, in virtual time (`LCOEF_*`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Coefficients {
    pub(super) page: u64,
    pub(super) sequential_io: u64,
    pub(super) random_io: u64,
}

impl Coefficients {
    /// Computes the costs from the throughput (`calc_lcoefs`): each page costs its time in a
    /// sequential stream, and each I/O costs what it takes beyond one such page.
    pub(super) fn of(speed: &Speed) -> Coefficients {
        let page = match speed.bytes {
            0 => 0,
            bytes => div_up(VTIME_PER_SEC, bytes.div_ceil(PAGE_BYTES)),
        };
        let io = |ios: u64| match ios {
            0 => 0,
            ios => div_up(VTIME_PER_SEC, ios).saturating_sub(page),
        };
        Coefficients {
            page,
            sequential_io: io(speed.sequential_ios),
            random_io: io(speed.random_ios),
        }
    }
}

/// The kinds of drive for which the kernel has parameters (`AUTOP_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DriveKind {
    Disk,
    /// A solid-state drive with a queue depth of one.
    SsdDepth1,
    Ssd,
    FastSsd,
}

impl DriveKind {
    /// The kernel's parameters: the latency target in microseconds, and the throughput of reads and
    /// writes.
    pub(super) fn assumed(self) -> (u32, [Speed; 2]) {
        let speed = |bytes, sequential_ios, random_ios| Speed {
            bytes,
            sequential_ios,
            random_ios,
        };
        match self {
            DriveKind::Disk => (
                250_000,
                [
                    speed(174_019_176, 41_708, 370),
                    speed(178_075_866, 42_705, 378),
                ],
            ),
            DriveKind::SsdDepth1 => (
                25_000,
                [
                    speed(245_855_193, 61_575, 6_946),
                    speed(141_365_009, 33_716, 26_796),
                ],
            ),
            DriveKind::Ssd => (
                25_000,
                [
                    speed(488_636_629, 8_932, 8_518),
                    speed(427_891_549, 28_755, 21_940),
                ],
            ),
            DriveKind::FastSsd => (
                5_000,
                [
                    speed(3_102_524_156, 724_816, 778_122),
                    speed(1_742_780_862, 425_702, 443_193),
                ],
            ),
        }
    }

    /// The default targets: no percentage, and any rate.
    pub(super) fn qos(self, enabled: bool) -> CostQos {
        let (latency_us, _) = self.assumed();
        CostQos {
            enabled,
            is_users: false,
            within_ppm: [0; 2],
            latency_us: [latency_us; 2],
            rate_ppm: RATE_PPM.map(|ppm| ppm as u32),
        }
    }

    /// The default model.
    pub(super) fn model(self) -> CostModel {
        CostModel {
            is_users: false,
            speeds: self.assumed().1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_refuses_is_refused() {
        let mut model = CostModel::default();
        for (text, why) in [
            ("rbps", "NAME=VALUE"),
            ("rbps=-1", "up to 64 bits"),
            ("model=table", "linear alone"),
            ("ctrl=me", "auto or user"),
            ("iops=5", "no parameter"),
        ] {
            let message = model.write(text).unwrap_err();
            assert!(message.contains(why), "{text}: {message}");
        }
        assert_eq!(model, CostModel::default(), "nothing of it is taken");
        let mut qos = CostQos::default();
        for (text, why) in [
            ("rpct=101", "above 100"),
            ("rpct=x", "percentage"),
            ("min=150 max=50", "above max"),
            ("enable=yes", "64 bits"),
            ("lat=5", "no parameter"),
        ] {
            let message = qos.write(text).unwrap_err();
            assert!(message.contains(why), "{text}: {message}");
        }
    }

    #[test]
    fn what_was_written_is_read_back() {
        let text = "ctrl=user model=linear rbps=80000000 rseqiops=2000 rrandiops=1800 \
                    wbps=70000000 wseqiops=1000 wrandiops=900";
        let mut model = CostModel::default();
        model.write(text).unwrap();
        assert_eq!(alloc::format!("{model}"), text);
        let mut qos = CostQos::default();
        qos.write("enable=1 rpct=95.5 rlat=10000 wlat=20000 min=50 max=150")
            .unwrap();
        let read = "enable=1 ctrl=user rpct=95.50 rlat=10000 wpct=0.00 wlat=20000 \
                    min=50.00 max=150.00";
        assert_eq!(alloc::format!("{qos}"), read);
    }

    /// The recorded run: a random read of 8 KiB costs 1/1800 s and one more page.
    #[test]
    fn costs_follow_from_speeds() {
        let costs = Coefficients::of(&Speed {
            bytes: 80_000_000,
            sequential_ios: 2000,
            random_ios: 1800,
        });
        let page_us = costs.page as f64 * 1e6 / VTIME_PER_SEC as f64;
        assert!((51.1..51.3).contains(&page_us), "{page_us}");
        let one = costs.page + costs.random_io;
        assert_eq!(one, VTIME_PER_SEC.div_ceil(1800));
        assert_eq!(Coefficients::of(&Speed::default()).page, 0);
    }
}
