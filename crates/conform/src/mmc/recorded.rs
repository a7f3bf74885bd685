//! What was recorded of a card: its description, and the steps of the stack.

use std::collections::BTreeMap;
use std::path::Path;

use blklab_device_model::Partition;
use blklab_mmc::sdhci::ControllerSpec;
use blklab_workload::trace::tracefs::{Dev, EventKind, Line, RqEvent, parse_line};
use serde::Deserialize;

use crate::ConformError;
use crate::page_cache::Fields;
use crate::recording::read_description;

/// A line that is compared.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    pub(super) line: u64,
    pub(super) at_ns: u64,
    pub(super) text: String,
}

/// What is given to our side, in order.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RecordedInput {
    /// The block layer issues a request.
    Issue(RequestLine),
    /// A request that has run was looked at by now.
    Complete { area: usize, sector: u64 },
    /// The driver is taken from the controller.
    Unbind,
    /// It is given back.
    Bind,
}

/// A request as it is issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestLine {
    /// Of the card's disks, in the order in which they were added.
    pub(super) area: usize,
    pub(super) op: blklab_blk::Op,
    pub(super) sector: u64,
    pub(super) sectors: u32,
    pub(super) fua: bool,
}

/// Both, of a trace.
pub(super) struct Steps {
    pub(super) compared: Vec<Recorded>,
    pub(super) given: Vec<RecordedInput>,
    /// The card's voltages, as it first answered ACMD41 or CMD1.
    pub(super) ocr: u32,
}

/// Events of the stack whose text is compared.
const COMPARED: [&str; 9] = [
    "mmc_rescan",
    "set_ios",
    "mmc_request_start",
    "mmc_request_done",
    "mmc_set_data_timeout",
    "mmc_set_data_timeout_ret",
    "mmc_erase",
    "mmc_add_card",
    "mmc_remove_card",
];

impl Steps {
    pub(super) fn read(file: &str, text: &str) -> Result<Steps, ConformError> {
        let mut steps = Steps {
            compared: Vec::new(),
            given: Vec::new(),
            ocr: 0,
        };
        for (line, number) in text.lines().zip(1..) {
            if let Ok(Line::Lost(count)) = parse_line(line) {
                return Err(ConformError::Lost {
                    file: file.to_owned(),
                    line: number,
                    count,
                });
            }
            let Some(fields) = Fields::of(line) else {
                continue;
            };
            let malformed = || ConformError::Description {
                file: format!("{file}:{number}"),
                message: format!("found {:?}, expected the fields of this event", line.trim()),
            };
            if COMPARED.contains(&fields.event) {
                let text = normal(&fields).ok_or_else(malformed)?;
                steps.note_ocr(&text);
                steps.compared.push(Recorded {
                    line: number,
                    at_ns: fields.at_ns,
                    text,
                });
            } else if fields.event == "mark" {
                steps.given.extend(match fields.rest.split(' ').next() {
                    Some("unbind") => Some(RecordedInput::Unbind),
                    Some("bind") => Some(RecordedInput::Bind),
                    _ => None,
                });
            } else if fields.event.starts_with("block_rq_") {
                let given = given(line).ok_or_else(malformed)?;
                steps.given.extend(given);
            }
        }
        if steps.compared.is_empty() {
            return Err(ConformError::Nothing {
                file: file.to_owned(),
                expected: "mmc_request_start",
            });
        }
        Ok(steps)
    }

    fn note_ocr(&mut self, text: &str) {
        let of_ocr = ["cmd_opcode=41 cmd_err=0 ", "cmd_opcode=1 cmd_err=0 "];
        let asks = of_ocr.iter().any(|asks| text.contains(asks));
        let answer = text
            .split("cmd_resp=0x")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        if let (true, 0, Some(answer)) = (asks, self.ocr, answer) {
            // All but that it has powered up.
            self.ocr = u32::from_str_radix(answer, 16).unwrap_or(0) & 0x7fff_ffff;
        }
    }
}

/// A step's text without what differs between any two runs: addresses and tags.
fn normal(fields: &Fields<'_>) -> Option<String> {
    let event = fields.event;
    let text = match event {
        "mmc_rescan" => "",
        "mmc_request_start" | "mmc_request_done" => fields.rest.split_once("]: ")?.1,
        _ => fields.rest,
    };
    let words = text
        .split_whitespace()
        .filter(|word| !word.starts_with("tag="));
    let words: Vec<&str> = std::iter::once("").chain(words).collect();
    Some(format!("{event}:{}", words.join(" ")))
}

/// What a line of the block layer gives; `None` if it is malformed.
fn given(line: &str) -> Option<Option<RecordedInput>> {
    let Ok(Line::Event(event)) = parse_line(line) else {
        return None;
    };
    let of_card = |major: u32| major == blklab_mmc::block::MAJOR;
    Some(match event.kind {
        EventKind::RqIssue(rq) if of_card(rq.dev.major) => request(&rq).map(RecordedInput::Issue),
        EventKind::RqComplete(end) if of_card(end.dev.major) => Some(RecordedInput::Complete {
            area: area(end.dev),
            sector: end.sector.0,
        }),
        _ => None,
    })
}

/// Which of the card's disks it is, by its minors.
fn area(dev: Dev) -> usize {
    (dev.minor / blklab_mmc::block::MINORS) as usize
}

fn request(rq: &RqEvent<'_>) -> Option<RequestLine> {
    Some(RequestLine {
        area: area(rq.dev),
        op: rq.rwbs.op?,
        sector: rq.sector.0,
        sectors: rq.sectors,
        fua: rq.rwbs.flags.has(blklab_blk::BioFlags::FUA),
    })
}

/// The file beside a trace.
#[derive(Deserialize)]
pub(super) struct Description {
    pub(super) image_bytes: u64,
    partition_table: Option<Vec<TableEntry>>,
    #[serde(default)]
    host_option: String,
    queue: BTreeMap<String, String>,
    block_attrs: BTreeMap<String, String>,
    #[serde(default)]
    block_dir_and_partitions: Vec<String>,
    /// Disks of the card's other areas, by the ends of their names.
    #[serde(default)]
    areas: BTreeMap<String, AreaFiles>,
    pub(super) card_sysfs: BTreeMap<String, String>,
    /// An eMMC's EXT_CSD as it was read first, in hexadecimal.
    pub(super) ext_csd: Option<String>,
    #[serde(default)]
    mmc_host_sysfs: BTreeMap<String, String>,
    #[serde(default)]
    debugfs_ios_after_init: Vec<String>,
    uevents: Vec<String>,
}

#[derive(Deserialize)]
struct AreaFiles {
    queue: BTreeMap<String, String>,
    block_attrs: BTreeMap<String, String>,
    block_dir: Vec<String>,
}

#[derive(Deserialize)]
struct TableEntry {
    start: u64,
    sectors: u64,
}

/// Options of the controller that the model has.
const HOST_OPTIONS: [&str; 3] = ["capareg", "sd-spec-version", "maxcurr"];

impl Description {
    pub(super) fn open(path: &Path) -> Result<Description, ConformError> {
        read_description(path)
    }

    fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        let words = self.host_option.split(',').map(str::trim);
        words.filter_map(|word| word.split_once('='))
    }

    /// The controller's registers, as the virtual machine's options set them.
    pub(super) fn controller(&self) -> Result<ControllerSpec, String> {
        let mut spec = ControllerSpec::default();
        for (name, value) in self.options() {
            let number = match value.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16).ok(),
                None => value.parse().ok(),
            };
            let number = number
                .ok_or_else(|| format!("host_option {name}: found {value:?}, expected a number"))?;
            match name {
                "capareg" => spec.capabilities = number,
                "maxcurr" => spec.max_current = number,
                // The register counts from 0, and version 1 is 0.
                "sd-spec-version" => spec.version = (number.clamp(1, 255) - 1) as u8,
                _ => {}
            }
        }
        Ok(spec)
    }

    /// An option that nothing here knows.
    pub(super) fn unknown_option(&self) -> Option<String> {
        { self.options() }
            .find(|(name, _)| !HOST_OPTIONS.contains(name))
            .map(|(name, value)| format!("host_option {name}={value}"))
    }

    /// What lies on the card.
    pub(super) fn partitions(&self) -> Vec<Partition> {
        let entries = self.partition_table.iter().flatten();
        { entries.zip(1..) }
            .map(|(entry, number)| Partition {
                number,
                start: entry.start,
                size_sectors: entry.sectors,
            })
            .collect()
    }

    /// Files and what the kernel had in them.
    pub(super) fn attributes(&self) -> Vec<(String, String)> {
        let named = |of: &str, files: &BTreeMap<String, String>| -> Vec<(String, String)> {
            let named = |(name, value): (&String, &String)| {
                let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
                (format!("{of}/{name}"), value)
            };
            files.iter().map(named).collect()
        };
        let mut all = named("card", &self.card_sysfs);
        all.extend(named("host", &self.mmc_host_sysfs));
        all.extend(named("block", &self.block_attrs));
        all.extend(named("queue", &self.queue));
        let end = self
            .block_dir_and_partitions
            .iter()
            .position(|name| name.contains(' '));
        let names = self.block_dir_and_partitions[..end.unwrap_or(0)].join(" ");
        all.push(("block/".to_owned(), names));
        for (suffix, files) in &self.areas {
            all.extend(named(suffix, &files.block_attrs));
            all.extend(named(&format!("{suffix}/queue"), &files.queue));
            all.push((format!("{suffix}/"), files.block_dir.join(" ")));
        }
        let statistics = self
            .debugfs_ios_after_init
            .iter()
            .position(|line| line == "== err_state");
        let lines = &self.debugfs_ios_after_init[..statistics.unwrap_or(0)];
        all.extend((lines.iter().enumerate()).map(|(n, line)| (format!("ios {n}"), line.clone())));
        all
    }

    /// The recorded messages, without their times.
    pub(super) fn uevents(&self) -> Vec<Recorded> {
        let split = self.uevents.iter().filter_map(|line| line.split_once(' '));
        { split.zip(1..) }
            .map(|((stamp, text), line)| Recorded {
                line,
                at_ns: stamp
                    .parse::<f64>()
                    .map_or(0, |seconds| (seconds * 1e9) as u64),
                text: text.trim().to_owned(),
            })
            .collect()
    }
}
