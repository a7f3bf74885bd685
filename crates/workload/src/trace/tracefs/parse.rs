//! Parses a line of tracefs text into an event. The formats are those of the `block` and `kyber`
//! trace events of Linux 6.12, and of probes that print `(place) name=value ...`.

use std::str::FromStr;

use blklab_blk::{IoClass, Sector};

use super::event::*;
use crate::trace::cursor::Cursor;
use crate::trace::error::Fault;
use crate::trace::rwbs::Rwbs;

const NUMBER_EXPECTED: &str = "a decimal number that fits the field";
const HEADER_EXPECTED: &str = "\"task-pid [cpu] flags time: event: arguments\"";

/// The kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineKind {
    /// An event.
    Event,
    /// A comment or an empty line.
    Skip,
    /// An overrun of the ring buffer; this many events are missing.
    Lost(u64),
}

/// Distinguishes events from other lines.
pub(super) fn line_kind(line: &str) -> LineKind {
    let start = line.trim_start();
    if start.is_empty() || start.starts_with('#') {
        return LineKind::Skip;
    }
    lost_events(start).map_or(LineKind::Event, LineKind::Lost)
}

/// A line of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Line<'a> {
    /// An event.
    Event(Event<'a>),
    /// A comment or an empty line.
    Skip,
    /// An overrun of the ring buffer; this many events are missing.
    Lost(u64),
}

/// Parses one line without its end.
pub fn parse_line(line: &str) -> Result<Line<'_>, Fault> {
    match line_kind(line) {
        LineKind::Event => event(line).map(Line::Event),
        LineKind::Skip => Ok(Line::Skip),
        LineKind::Lost(count) => Ok(Line::Lost(count)),
    }
}

/// Returns the line that reports `events` missing events. It names CPU 0, as readers ignore the
/// CPU.
pub fn lost_line(events: u64) -> String {
    format!("CPU:0 [LOST {events} EVENTS]")
}

/// Returns the number of missing events that a line reports.
pub fn lost_events(line: &str) -> Option<u64> {
    let (cpu, lost) = line.strip_prefix("CPU:")?.split_once(" [LOST ")?;
    cpu.parse::<u32>().ok()?;
    let count = lost.strip_suffix(" EVENTS]")?;
    // The kernel may know that events are lost but not how many.
    Some(if count.is_empty() {
        1
    } else {
        count.parse().ok()?
    })
}

/// Parses the line of an event.
pub(super) fn event(text: &str) -> Result<Event<'_>, Fault> {
    let (task_pid, mut at, cpu) = cpu_column(text)?;
    let (task, pid) = task_and_pid(text, task_pid)?;
    let before_flags = at;
    let flags = at.word();
    // Without the option `irq-info` there are no flags, and this is the time.
    let (flags, mut at) = if flags.ends_with(':') {
        ("", before_flags)
    } else {
        (flags, at)
    };
    let irq = matches!(
        flags.as_bytes().get(2),
        Some(b'h' | b'H' | b's' | b'z' | b'Z')
    );
    let need_resched = matches!(flags.as_bytes().get(1), Some(b'N' | b'n'));
    let depth = flags.as_bytes().get(3).map(|&depth| char::from(depth));
    let depth = depth.and_then(|depth| depth.to_digit(16)).unwrap_or(0);
    at.skip_blanks();
    let at_ns = at.seconds("timestamp")?;
    at.expect(": ", "timestamp")?;
    let name = at.until(':', "event")?;
    let kind = kind(name, Args { at })?;
    Ok(Event {
        task,
        pid,
        cpu,
        irq,
        need_resched,
        preempt_depth: depth as u8,
        at_ns,
        kind,
    })
}

/// Finds ` [cpu] ` after a pid, the first column that cannot be part of a task's name. Returns the
/// text before it, the text after it, and the CPU.
fn cpu_column(text: &str) -> Result<(&str, Cursor<'_>, u32), Fault> {
    for (open, _) in text.match_indices(" [") {
        let digits = &text[open + 2..];
        let Some(len) = digits.find(']') else { break };
        let Ok(cpu) = digits[..len].parse() else {
            continue;
        };
        let before = without_tgid(text[..open].trim_end());
        if before.ends_with(|last: char| last.is_ascii_digit()) {
            return Ok((before, Cursor::at(text, open + 2 + len + 1), cpu));
        }
    }
    Err(Cursor::new(text).fault("line", HEADER_EXPECTED))
}

/// Removes the column that the option `record-tgid` adds: `( 123)` or `(-----)`.
fn without_tgid(before: &str) -> &str {
    match before
        .strip_suffix(')')
        .and_then(|inner| inner.rsplit_once('('))
    {
        Some((task_pid, tgid))
            if tgid
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b' ' | b'-')) =>
        {
            task_pid.trim_end()
        }
        _ => before,
    }
}

fn task_and_pid<'a>(text: &str, column: &'a str) -> Result<(&'a str, u32), Fault> {
    let column = column.trim_start();
    column
        .rsplit_once('-')
        .and_then(|(task, pid)| Some((task, pid.parse().ok()?)))
        .ok_or_else(|| {
            let at = text.len() - text.trim_start().len();
            Fault::new(at, "task", column, "a task's name, '-' and its pid")
        })
}

/// Parses the arguments of event `name`.
fn kind<'a>(name: &'a str, mut args: Args<'a>) -> Result<EventKind<'a>, Fault> {
    use EventKind::*;
    Ok(match name {
        "block_bio_queue" => BioQueue(args.bio()?),
        "block_bio_backmerge" => BioBackmerge(args.bio()?),
        "block_bio_frontmerge" => BioFrontmerge(args.bio()?),
        "block_getrq" => GetRq(args.bio()?),
        "block_bio_complete" => args.bio_complete()?,
        "block_bio_remap" => BioRemap(args.remap()?),
        "block_rq_remap" => RqRemap(args.remap()?),
        "block_split" => args.split()?,
        "block_plug" => Plug { comm: args.comm()? },
        "block_unplug" => args.unplug()?,
        "block_rq_insert" => RqInsert(args.rq()?),
        "block_rq_issue" => RqIssue(args.rq()?),
        "block_rq_merge" => RqMerge(args.rq()?),
        "block_rq_requeue" => RqRequeue(args.rq_end()?),
        "block_rq_complete" => RqComplete(args.rq_end()?),
        "block_rq_error" => RqError(args.rq_end()?),
        "kyber_latency" => args.kyber_latency()?,
        "kyber_adjust" => KyberAdjust {
            dev: args.dev()?,
            domain: args.domain()?,
            depth: args.number("depth")?,
        },
        "kyber_throttled" => KyberThrottled {
            dev: args.dev()?,
            domain: args.domain()?,
        },
        _ => return probe(name, args),
    })
}

/// Parses the arguments of a probe.
fn probe<'a>(name: &'a str, args: Args<'a>) -> Result<EventKind<'a>, Fault> {
    let args = Values { at: args.at };
    let prefix = name.split_once('_').map_or(name, |(prefix, _)| prefix);
    match prefix {
        "wbt" | "thr" | "iocost" => rq_qos_probe(name, args),
        "zw" => zone_probe(name, args),
        _ => scheduler_probe(name, args),
    }
}

/// Parses the arguments of a probe in what throttles beside the scheduler.
fn rq_qos_probe<'a>(name: &'a str, mut args: Values<'a>) -> Result<EventKind<'a>, Fault> {
    use EventKind::*;
    Ok(match name {
        "wbt_timer" => WbtTimer {
            dev: args.colon_dev()?,
            status: args.decimal("status")?,
            step: args.decimal("step")?,
            in_flight: args.decimal("inflight")?,
        },
        "wbt_wait" => WbtWait(args.wbt_call(true)?),
        "wbt_wait_ret" => WbtWaitRet(args.wbt_call(false)?),
        "thr_ret" => ThrRet {
            bio: args.hex("bio")?,
            sector: args.sector("sector")?,
            bytes: args.decimal("size")?,
            held: args.decimal::<u8>("held")? != 0,
            jif: args.decimal("jif")?,
        },
        "thr_work" => ThrWork {
            work: args.hex("work")?,
            jif: args.decimal("jif")?,
        },
        "iocost_ioc_vrate_adj" => args.cost_rate()?,
        _ if name.starts_with("iocost_") => IocostGroup {
            name,
            text: args.at.rest().trim(),
        },
        _ => Other(name),
    })
}

/// Parses the arguments of a probe in the write plugs of zones.
fn zone_probe<'a>(name: &'a str, mut args: Values<'a>) -> Result<EventKind<'a>, Fault> {
    use EventKind::*;
    Ok(match name {
        "zw_plug" => ZwPlug {
            bio: args.hex("bio")?,
            sector: args.sector("sector")?,
            opf: args.hex("opf")?,
            held: args.decimal::<u8>("held")? != 0,
            jif: args.decimal("jif")?,
        },
        "zw_work" => ZwWork {
            work: args.hex("work")?,
            jif: args.decimal("jif")?,
        },
        "zw_end" => ZwEnd {
            bio: args.hex("bio")?,
            jif: args.decimal("jif")?,
        },
        _ => Other(name),
    })
}

/// Parses the arguments of a probe in a scheduler, or of a mark that a program wrote.
fn scheduler_probe<'a>(name: &'a str, mut args: Values<'a>) -> Result<EventKind<'a>, Fault> {
    use EventKind::*;
    Ok(match name {
        "rq_ins" => RqIns {
            rq: args.hex("rq")?,
            sector: args.sector("sector")?,
            jif: args.decimal("jif")?,
        },
        "dd_ins" => DdIns(args.insert_call()?),
        "ky_ins" => KyIns(args.insert_call()?),
        "bfq_ins" => BfqIns(args.insert_call()?),
        "dd_disp" => DdDisp(args.dd_disp()?),
        "ky_disp" => KyDisp(args.ky_disp()?),
        "bfq_disp" => BfqDisp(args.bfq_disp()?),
        "dd_disp_ret" => DdDispRet(args.dd_disp_ret()?),
        "ky_disp_ret" => KyDispRet(args.ky_disp_ret()?),
        "bfq_disp_ret" => BfqDispRet(args.bfq_disp_ret()?),
        "dd_fin" => {
            let (rq, sector) = args.request()?;
            DdFin {
                rq,
                sector,
                per_prio: args.pointer("pp")?,
            }
        }
        "ky_fin" => {
            let (rq, sector) = args.request()?;
            KyFin {
                rq,
                sector,
                token: args.decimal("token")?,
            }
        }
        "bfq_fin" => {
            let (rq, sector) = args.request()?;
            BfqFin { rq, sector }
        }
        "bfq_exit" => BfqExit {
            icq: args.hex("icq")?,
        },
        "tracing_mark_write" => TracingMark {
            text: args.at.rest().trim(),
        },
        "ky_done" => {
            let (rq, sector) = args.request()?;
            let now_ns = args.decimal("now")?;
            let start_ns = args.decimal("start")?;
            KyDone {
                rq,
                sector,
                now_ns,
                start_ns,
                io_start_ns: args.decimal("iostart")?,
            }
        }
        "blklab_call" => BlklabCall(args.blklab_call()?),
        "dd_bmerged" => {
            let (rq, sector) = args.request()?;
            DdBmerged {
                rq,
                sector,
                len_bytes: args.decimal("len")?,
                side: args.merge_side()?,
            }
        }
        "dd_rqmerged" => {
            let (rq, sector) = args.request()?;
            DdRqmerged {
                rq,
                sector,
                next: args.hex("next")?,
                next_sector: args.sector("nsector")?,
            }
        }
        _ => Other(name),
    })
}

/// The arguments of the kernel's own events, identified by position.
struct Args<'a> {
    at: Cursor<'a>,
}

impl<'a> Args<'a> {
    fn number<T: FromStr>(&mut self, field: &'static str) -> Result<T, Fault> {
        self.at.number(field, NUMBER_EXPECTED)
    }

    fn dev(&mut self) -> Result<Dev, Fault> {
        let major = self.at.number("device", "major,minor")?;
        self.at.expect(",", "device")?;
        Ok(Dev {
            major,
            minor: self.at.number("device", "major,minor")?,
        })
    }

    fn rwbs(&mut self) -> Result<Rwbs, Fault> {
        self.at.skip_blanks();
        let at = self.at;
        let letters = self.at.word();
        Rwbs::parse(letters, at.column())
    }

    fn domain(&mut self) -> Result<&'a str, Fault> {
        match self.at.word() {
            "" => Err(self.at.fault("domain", "READ, WRITE, DISCARD or OTHER")),
            domain => Ok(domain),
        }
    }

    fn sector(&mut self) -> Result<Sector, Fault> {
        Ok(Sector(self.number("sector")?))
    }

    /// Parses `sector + sectors`.
    fn extent(&mut self) -> Result<(Sector, u32), Fault> {
        let sector = self.sector()?;
        self.at.expect(" +", "extent")?;
        Ok((sector, self.number("sectors")?))
    }

    /// Parses `[comm]` up to the end of the line, as a name may contain brackets.
    fn comm(&mut self) -> Result<&'a str, Fault> {
        const EXPECTED: &str = "a task's name in brackets at the line's end";
        self.at.skip_blanks();
        let rest = self.at.rest();
        rest.strip_prefix('[')
            .and_then(|inner| inner.strip_suffix(']'))
            .ok_or_else(|| self.at.fault("comm", EXPECTED))
    }

    /// Parses `[error]`.
    fn error(&mut self) -> Result<i32, Fault> {
        self.at.skip_blanks();
        self.at.expect("[", "error")?;
        let error = self.at.number("error", "0 or a negative error number")?;
        self.at.expect("]", "error")?;
        Ok(error)
    }

    /// Parses `(hex bytes)`.
    fn cmd(&mut self) -> Result<&'a str, Fault> {
        self.at.skip_blanks();
        self.at.expect("(", "cmd")?;
        self.at.until(')', "cmd")
    }

    /// Parses `class,hint,level` if the kernel is new enough to print it.
    fn prio(&mut self) -> Result<RqPrio, Fault> {
        self.at.skip_blanks();
        if self.at.rest().starts_with('[') {
            return Ok(RqPrio::default());
        }
        let start = self.at;
        let class = match self.at.until(',', "priority")? {
            "none" => IoClass::None,
            "rt" => IoClass::Rt,
            "be" => IoClass::Be,
            "idle" => IoClass::Idle,
            _ => return Err(start.fault("priority", "rt, be, idle or none, then \",hint,level\"")),
        };
        let hint = self.number("priority hint")?;
        self.at.expect(",", "priority")?;
        Ok(RqPrio {
            class,
            hint,
            level: self.number("priority level")?,
        })
    }

    fn extent_of_bio(&mut self) -> Result<BioEvent<'a>, Fault> {
        let dev = self.dev()?;
        let rwbs = self.rwbs()?;
        let (sector, sectors) = self.extent()?;
        Ok(BioEvent {
            dev,
            rwbs,
            sector,
            sectors,
            comm: "",
        })
    }

    fn bio(&mut self) -> Result<BioEvent<'a>, Fault> {
        let bio = self.extent_of_bio()?;
        Ok(BioEvent {
            comm: self.comm()?,
            ..bio
        })
    }

    fn bio_complete(&mut self) -> Result<EventKind<'a>, Fault> {
        let bio = self.extent_of_bio()?;
        Ok(EventKind::BioComplete {
            bio,
            error: self.error()?,
        })
    }

    fn rq(&mut self) -> Result<RqEvent<'a>, Fault> {
        let dev = self.dev()?;
        let rwbs = self.rwbs()?;
        let bytes = self.number("bytes")?;
        let cmd = self.cmd()?;
        let (sector, sectors) = self.extent()?;
        let prio = self.prio()?;
        Ok(RqEvent {
            dev,
            rwbs,
            bytes,
            cmd,
            sector,
            sectors,
            prio,
            comm: self.comm()?,
        })
    }

    fn rq_end(&mut self) -> Result<RqEnd, Fault> {
        let dev = self.dev()?;
        let rwbs = self.rwbs()?;
        self.cmd()?;
        let (sector, sectors) = self.extent()?;
        let prio = self.prio()?;
        Ok(RqEnd {
            dev,
            rwbs,
            sector,
            sectors,
            prio,
            error: self.error()?,
        })
    }

    /// Parses `... <- (major,minor) sector`.
    fn remap(&mut self) -> Result<Remap, Fault> {
        let BioEvent {
            dev,
            rwbs,
            sector,
            sectors,
            ..
        } = self.extent_of_bio()?;
        self.at.expect(" <- (", "remap")?;
        let from_dev = self.dev()?;
        self.at.expect(")", "remap")?;
        Ok(Remap {
            dev,
            rwbs,
            sector,
            sectors,
            from_dev,
            from_sector: self.sector()?,
        })
    }

    /// Parses `sector / new_sector [comm]`.
    fn split(&mut self) -> Result<EventKind<'a>, Fault> {
        let dev = self.dev()?;
        let rwbs = self.rwbs()?;
        let sector = self.sector()?;
        self.at.expect(" /", "split")?;
        let new_sector = self.sector()?;
        Ok(EventKind::Split {
            dev,
            rwbs,
            sector,
            new_sector,
            comm: self.comm()?,
        })
    }

    /// Parses `[comm] requests`.
    fn unplug(&mut self) -> Result<EventKind<'a>, Fault> {
        self.at.skip_blanks();
        let rest = self.at.rest();
        rest.strip_prefix('[')
            .and_then(|inner| inner.rsplit_once("] "))
            .and_then(|(comm, count)| {
                Some(EventKind::Unplug {
                    comm,
                    requests: count.parse().ok()?,
                })
            })
            .ok_or_else(|| {
                self.at.fault(
                    "unplug",
                    "a task's name in brackets, then a number of requests",
                )
            })
    }

    /// Parses `dev domain type pPERCENTILE numerator/denominator samples=N`.
    fn kyber_latency(&mut self) -> Result<EventKind<'a>, Fault> {
        let dev = self.dev()?;
        let domain = self.domain()?;
        let latency_type = self.at.word();
        self.at.expect(" p", "percentile")?;
        let percentile = self.number("percentile")?;
        let numerator = self.number("latency")?;
        self.at.expect("/", "latency")?;
        let denominator = self.number("latency")?;
        self.at.expect(" samples=", "samples")?;
        let samples = self.number("samples")?;
        Ok(EventKind::KyberLatency {
            dev,
            domain,
            latency_type,
            percentile,
            numerator,
            denominator,
            samples,
        })
    }
}

/// The arguments of probes: ` name=value`, after the place in parentheses. They are usually
/// requested in their order in the line, so that each is found at once; others are searched for.
struct Values<'a> {
    at: Cursor<'a>,
}

impl<'a> Values<'a> {
    /// Moves to the value of `name`.
    fn find(&mut self, name: &'static str) -> Result<(), Fault> {
        let line = self.at.rest();
        let mut from = 0;
        while let Some(found) = line[from..].find(name) {
            let start = from + found;
            let end = start + name.len();
            let after_blank = start == 0 || line.as_bytes()[start - 1] == b' ';
            if after_blank && line.as_bytes().get(end) == Some(&b'=') {
                self.at.advance(end + 1);
                return Ok(());
            }
            from = end;
        }
        Err(Fault::new(
            self.at.column(),
            name,
            line.trim_start(),
            format!("\" {name}=\""),
        ))
    }

    fn decimal<T: FromStr>(&mut self, name: &'static str) -> Result<T, Fault> {
        self.find(name)?;
        self.at.number(name, NUMBER_EXPECTED)
    }

    /// Parses two numbers separated by `between`.
    fn pair<T: FromStr>(&mut self, name: &'static str, between: &str) -> Result<[T; 2], Fault> {
        self.find(name)?;
        let start = self.at;
        let pair = self.at.word().split_once(between);
        let pair = pair.and_then(|(a, b)| Some([a.parse().ok()?, b.parse().ok()?]));
        pair.ok_or_else(|| start.fault(name, "two numbers"))
    }

    fn hex(&mut self, name: &'static str) -> Result<u64, Fault> {
        self.find(name)?;
        let start = self.at;
        self.at
            .word()
            .strip_prefix("0x")
            .filter(|digits| !digits.starts_with('+'))
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .ok_or_else(|| start.fault(name, "0x and a hexadecimal number of up to 64 bits"))
    }

    /// Parses an address; 0 is `None`.
    fn pointer(&mut self, name: &'static str) -> Result<Option<u64>, Fault> {
        Ok(Some(self.hex(name)?).filter(|address| *address != 0))
    }

    fn sector(&mut self, name: &'static str) -> Result<Sector, Fault> {
        Ok(Sector(self.decimal(name)?))
    }

    fn request(&mut self) -> Result<(u64, Sector), Fault> {
        Ok((self.hex("rq")?, self.sector("sector")?))
    }

    /// Parses the arguments of `iocost_ioc_vrate_adj`.
    fn cost_rate(&mut self) -> Result<EventKind<'a>, Fault> {
        let start = self.at;
        let disk = self.at.word();
        let disk = disk
            .strip_prefix('[')
            .and_then(|disk| disk.strip_suffix(']'));
        Ok(EventKind::IocostRate {
            disk: disk.ok_or_else(|| start.fault("disk", "a drive's name in brackets"))?,
            rate: self.pair("vrate", "->")?,
            busy_level: self.decimal("busy")?,
            missed_ppm: self.pair("missed_ppm", ":")?,
            wait_percent: self.decimal("rq_wait_pct")?,
            lagging: self.decimal("lagging")?,
            shortages: self.decimal("shortages")?,
        })
    }

    /// Parses a call in the module; the fields are in the order of the line.
    fn blklab_call(&mut self) -> Result<BlklabCall<'a>, Fault> {
        self.at.skip_blanks();
        Ok(BlklabCall {
            hook: self.at.word(),
            now_ns: self.decimal("now")?,
            rq: self.decimal("rq")?,
            other: self.decimal("other")?,
            answer: self.decimal("answer")?,
            op: self.decimal("op")?,
            flags: self.hex("flags")? as u16,
            sector: self.sector("sector")?,
            sectors: self.decimal("sectors")?,
            class: self.decimal("class")?,
            level: self.decimal("level")?,
            submitter: self.decimal("sub")?,
            cpu: self.decimal("cpu")?,
            hctx: self.decimal("hctx")?,
            start_ns: self.decimal("start")?,
            state: {
                self.find("state")?;
                self.at.rest().trim_end()
            },
        })
    }

    fn insert_call(&mut self) -> Result<InsertCall, Fault> {
        let hctx = self.hex("hctx")?;
        let flags = self.decimal("flags")?;
        Ok(InsertCall {
            hctx,
            flags,
            jif: self.decimal("jif")?,
        })
    }

    fn dd_disp(&mut self) -> Result<DdDisp, Fault> {
        let hctx = self.hex("hctx")?;
        let busy = self.decimal("busy")?;
        Ok(DdDisp {
            hctx,
            busy,
            jif: self.decimal("jif")?,
        })
    }

    fn ky_disp(&mut self) -> Result<KyDisp, Fault> {
        let hctx = self.hex("hctx")?;
        let busy = self.decimal("busy")?;
        let domain = self.decimal("dom")?;
        let batching = self.decimal("batching")?;
        Ok(KyDisp {
            hctx,
            busy,
            domain,
            batching,
            jif: self.decimal("jif")?,
        })
    }

    fn bfq_disp(&mut self) -> Result<BfqDisp, Fault> {
        let hctx = self.hex("hctx")?;
        let busy = self.decimal("busy")?;
        let in_service = self.pointer("insv")?;
        let queued = self.decimal("queued")?;
        let in_driver = self.decimal("drv")?;
        Ok(BfqDisp {
            hctx,
            busy,
            in_service,
            queued,
            in_driver,
            jif: self.decimal("jif")?,
        })
    }

    fn dd_disp_ret(&mut self) -> Result<DdDispRet, Fault> {
        let picked = match self.pointer("rq")? {
            Some(rq) => {
                let sector = self.sector("sector")?;
                Some(DdPicked {
                    rq,
                    sector,
                    fifo_time: self.decimal("fifo")?,
                })
            }
            None => None,
        };
        let last_dir_is_write = self.direction("last_dir")?;
        let batching = self.decimal("batching")?;
        let starved = self.decimal("starved")?;
        Ok(DdDispRet {
            picked,
            last_dir_is_write,
            batching,
            starved,
            jif: self.decimal("jif")?,
        })
    }

    fn ky_disp_ret(&mut self) -> Result<KyDispRet, Fault> {
        let picked = match self.pointer("rq")? {
            Some(rq) => Some(KyPicked {
                rq,
                sector: self.sector("sector")?,
            }),
            None => None,
        };
        let domain = self.decimal("dom")?;
        let batching = self.decimal("batching")?;
        Ok(KyDispRet {
            picked,
            domain,
            batching,
            jif: self.decimal("jif")?,
        })
    }

    fn bfq_disp_ret(&mut self) -> Result<BfqDispRet, Fault> {
        let picked = match self.pointer("rq")? {
            Some(rq) => {
                let sector = self.sector("sector")?;
                let fifo_time = self.decimal("fifo")?;
                Some(BfqPicked {
                    rq,
                    sector,
                    fifo_time,
                    queue: self.bfq_queue()?,
                })
            }
            None => None,
        };
        let in_service = self.pointer("insv")?;
        let queued = self.decimal("queued")?;
        let in_driver = self.decimal("drv")?;
        let peak_rate = self.decimal("peak")?;
        let jif = self.decimal("jif")?;
        Ok(BfqDispRet {
            picked,
            in_service,
            queued,
            in_driver,
            peak_rate,
            jif,
        })
    }

    fn bfq_queue(&mut self) -> Result<Option<BfqQueue>, Fault> {
        let Some(bfqq) = self.pointer("bfqq")? else {
            return Ok(None);
        };
        let pid = self.decimal("bpid")?;
        let service = self.decimal("service")?;
        let budget = self.decimal("budget")?;
        let wr_coeff = self.decimal("wrc")?;
        Ok(Some(BfqQueue {
            bfqq,
            pid,
            service,
            budget,
            wr_coeff,
            group: self.bfq_group()?,
        }))
    }

    /// Parses the group of a BFQ queue; recordings without control groups have no such fields.
    fn bfq_group(&mut self) -> Result<Option<BfqGroup>, Fault> {
        if !self.at.rest().trim_start().starts_with("par=") {
            return Ok(None);
        }
        let Some(entity) = self.pointer("par")? else {
            return Ok(None);
        };
        let weight = self.decimal("gw")?;
        let service = self.decimal("gserv")?;
        Ok(Some(BfqGroup {
            entity,
            weight,
            service,
            budget: self.decimal("gbud")?,
        }))
    }

    fn direction(&mut self, name: &'static str) -> Result<bool, Fault> {
        self.find(name)?;
        let start = self.at;
        match self.at.word() {
            "0" => Ok(false),
            "1" => Ok(true),
            _ => Err(start.fault(name, "0 (reads) or 1 (writes)")),
        }
    }

    /// Parses a drive in the form of its `bdi`'s name.
    fn colon_dev(&mut self) -> Result<Dev, Fault> {
        let major = self.at.number("device", "major:minor")?;
        self.at.expect(":", "device")?;
        let minor = self.at.number("device", "major:minor")?;
        Ok(Dev { major, minor })
    }

    fn wbt_call(&mut self, entry: bool) -> Result<WbtCall, Fault> {
        let bio = self.hex("bio")?;
        let sector = self.sector("sector")?;
        let opf = entry.then(|| self.hex("opf")).transpose()?;
        let in_flight = [
            self.decimal("inf0")?,
            self.decimal("inf1")?,
            self.decimal("inf2")?,
        ];
        let (background, normal) = (self.decimal("bg")?, self.decimal("normal")?);
        let step = self.decimal("step")?;
        Ok(WbtCall {
            bio,
            sector,
            opf: opf.map(|opf| opf as u32),
            in_flight,
            limits: [background, normal, self.decimal("max_depth")?],
            step,
            jif: self.decimal("jif")?,
        })
    }

    fn merge_side(&mut self) -> Result<MergeSide, Fault> {
        self.find("type")?;
        let start = self.at;
        match self.at.word() {
            "1" => Ok(MergeSide::Front),
            "2" => Ok(MergeSide::Back),
            _ => Err(start.fault("type", "1 (front) or 2 (back)")),
        }
    }
}
