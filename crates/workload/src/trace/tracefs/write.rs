//! Writes events as lines of tracefs text, as they are read, except for the place of a probe, which
//! is not kept.

use std::fmt::{self, Display, Formatter};

use blklab_blk::IoClass;

use super::event::*;

/// The beginning of the kernel's `trace` file.
pub const HEADER: &str =
    "# tracer: nop\n#\n#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n";

impl Display for Event<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Event {
            task,
            pid,
            cpu,
            irq,
            need_resched,
            preempt_depth,
            at_ns,
            ref kind,
        } = *self;
        let resched = if need_resched { 'N' } else { '.' };
        let context = if irq { 'h' } else { '.' };
        let depth = char::from_digit(preempt_depth.into(), 16).filter(|&depth| depth != '0');
        let depth = depth.unwrap_or('.');
        let (seconds, ns) = (at_ns / 1_000_000_000, at_ns % 1_000_000_000);
        write!(
            f,
            "{task:>16}-{pid:<7} [{cpu:03}] .{resched}{context}{depth}. {seconds:>5}.{ns:09}: "
        )?;
        write!(f, "{}:{kind}", kind.name())
    }
}

impl EventKind<'_> {
    /// Returns the trace event's name.
    pub fn name(&self) -> &str {
        use EventKind::*;
        match self {
            BioQueue(_) => "block_bio_queue",
            BioBackmerge(_) => "block_bio_backmerge",
            BioFrontmerge(_) => "block_bio_frontmerge",
            BioComplete { .. } => "block_bio_complete",
            BioRemap(_) => "block_bio_remap",
            RqRemap(_) => "block_rq_remap",
            Split { .. } => "block_split",
            GetRq(_) => "block_getrq",
            Plug { .. } => "block_plug",
            Unplug { .. } => "block_unplug",
            RqInsert(_) => "block_rq_insert",
            RqIssue(_) => "block_rq_issue",
            RqMerge(_) => "block_rq_merge",
            RqRequeue(_) => "block_rq_requeue",
            RqComplete(_) => "block_rq_complete",
            RqError(_) => "block_rq_error",
            RqIns { .. } => "rq_ins",
            DdIns(_) => "dd_ins",
            KyIns(_) => "ky_ins",
            BfqIns(_) => "bfq_ins",
            DdDisp(_) => "dd_disp",
            KyDisp(_) => "ky_disp",
            BfqDisp(_) => "bfq_disp",
            DdDispRet(_) => "dd_disp_ret",
            KyDispRet(_) => "ky_disp_ret",
            BfqDispRet(_) => "bfq_disp_ret",
            DdFin { .. } => "dd_fin",
            KyFin { .. } => "ky_fin",
            BfqFin { .. } => "bfq_fin",
            BfqExit { .. } => "bfq_exit",
            WbtWait(_) => "wbt_wait",
            WbtWaitRet(_) => "wbt_wait_ret",
            WbtTimer { .. } => "wbt_timer",
            ThrRet { .. } => "thr_ret",
            ThrWork { .. } => "thr_work",
            ZwPlug { .. } => "zw_plug",
            ZwWork { .. } => "zw_work",
            ZwEnd { .. } => "zw_end",
            IocostRate { .. } => "iocost_ioc_vrate_adj",
            IocostGroup { name, .. } => name,
            TracingMark { .. } => "tracing_mark_write",
            KyDone { .. } => "ky_done",
            BlklabCall(_) => "blklab_call",
            DdBmerged { .. } => "dd_bmerged",
            DdRqmerged { .. } => "dd_rqmerged",
            KyberLatency { .. } => "kyber_latency",
            KyberAdjust { .. } => "kyber_adjust",
            KyberThrottled { .. } => "kyber_throttled",
            Other(name) => name,
        }
    }
}

/// Writes the arguments, with a leading blank.
impl Display for EventKind<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        use EventKind::*;
        match self {
            BioQueue(bio) | BioBackmerge(bio) | BioFrontmerge(bio) | GetRq(bio) => {
                write!(f, " {bio} [{}]", bio.comm)
            }
            BioComplete { bio, error } => write!(f, " {bio} [{error}]"),
            BioRemap(remap) | RqRemap(remap) => write!(f, " {remap}"),
            Split {
                dev,
                rwbs,
                sector,
                new_sector,
                comm,
            } => {
                write!(f, " {dev} {rwbs} {sector} / {new_sector} [{comm}]")
            }
            Plug { comm } => write!(f, " [{comm}]"),
            Unplug { comm, requests } => write!(f, " [{comm}] {requests}"),
            RqInsert(rq) | RqIssue(rq) | RqMerge(rq) => write!(f, " {rq}"),
            RqRequeue(end) | RqComplete(end) | RqError(end) => write!(f, " {end}"),
            KyberLatency {
                dev,
                domain,
                latency_type,
                percentile,
                numerator,
                denominator,
                samples,
            } => {
                write!(f, " {dev} {domain} {latency_type} p{percentile} ")?;
                write!(f, "{numerator}/{denominator} samples={samples}")
            }
            KyberAdjust { dev, domain, depth } => write!(f, " {dev} {domain} {depth}"),
            KyberThrottled { dev, domain } => write!(f, " {dev} {domain}"),
            TracingMark { text } => write!(f, " {text}"),
            _ => self.write_rq_qos_probe(f),
        }
    }
}

/// Each writes its own kinds and leaves the others to the next.
impl EventKind<'_> {
    fn write_rq_qos_probe(&self, f: &mut Formatter<'_>) -> fmt::Result {
        use EventKind::*;
        match self {
            WbtWait(call) | WbtWaitRet(call) => write!(f, " {call}"),
            WbtTimer {
                dev,
                status,
                step,
                in_flight,
            } => write!(
                f,
                " {}:{}: status={status}, step={step}, inflight={in_flight}",
                dev.major, dev.minor
            ),
            ThrRet {
                bio,
                sector,
                bytes,
                held,
                jif,
            } => write!(
                f,
                " bio={bio:#x} sector={sector} size={bytes} held={} jif={jif}",
                u8::from(*held)
            ),
            ThrWork { work, jif } => write!(f, " work={work:#x} jif={jif}"),
            IocostRate {
                disk,
                rate: [before, after],
                busy_level,
                missed_ppm: [reads, writes],
                wait_percent,
                lagging,
                shortages,
            } => {
                write!(f, " [{disk}] vrate={before}->{after} busy={busy_level} ")?;
                write!(f, "missed_ppm={reads}:{writes} rq_wait_pct={wait_percent} ")?;
                write!(f, "lagging={lagging} shortages={shortages}")
            }
            IocostGroup { text, .. } => write!(f, " {text}"),
            _ => self.write_zone_probe(f),
        }
    }

    fn write_zone_probe(&self, f: &mut Formatter<'_>) -> fmt::Result {
        use EventKind::*;
        match self {
            ZwPlug {
                bio,
                sector,
                opf,
                held,
                jif,
            } => write!(
                f,
                " bio={bio:#x} sector={sector} opf={opf:#x} held={} jif={jif}",
                u8::from(*held)
            ),
            ZwWork { work, jif } => write!(f, " work={work:#x} jif={jif}"),
            ZwEnd { bio, jif } => write!(f, " bio={bio:#x} jif={jif}"),
            _ => self.write_scheduler_probe(f),
        }
    }

    fn write_scheduler_probe(&self, f: &mut Formatter<'_>) -> fmt::Result {
        use EventKind::*;
        match self {
            RqIns { rq, sector, jif } => write!(f, " rq={rq:#x} sector={sector} jif={jif}"),
            DdIns(call) | KyIns(call) | BfqIns(call) => write!(f, " {call}"),
            DdDisp(call) => write!(
                f,
                " hctx={:#x} busy={} jif={}",
                call.hctx, call.busy, call.jif
            ),
            KyDisp(call) => write!(f, " {call}"),
            BfqDisp(call) => write!(f, " {call}"),
            DdDispRet(ret) => write!(f, " {ret}"),
            KyDispRet(ret) => write!(f, " {ret}"),
            BfqDispRet(ret) => write!(f, " {ret}"),
            DdFin {
                rq,
                sector,
                per_prio,
            } => {
                write!(
                    f,
                    " rq={rq:#x} sector={sector} pp={:#x}",
                    per_prio.unwrap_or(0)
                )
            }
            KyFin { rq, sector, token } => write!(f, " rq={rq:#x} sector={sector} token={token}"),
            BfqFin { rq, sector } => write!(f, " rq={rq:#x} sector={sector}"),
            BfqExit { icq } => write!(f, " icq={icq:#x}"),
            KyDone {
                rq,
                sector,
                now_ns,
                start_ns,
                io_start_ns,
            } => {
                write!(f, " rq={rq:#x} sector={sector} now={now_ns} ")?;
                write!(f, "start={start_ns} iostart={io_start_ns}")
            }
            BlklabCall(call) => write!(f, " {call}"),
            DdBmerged {
                rq,
                sector,
                len_bytes,
                side,
            } => {
                let side = match side {
                    MergeSide::Front => 1,
                    MergeSide::Back => 2,
                };
                write!(f, " rq={rq:#x} sector={sector} len={len_bytes} type={side}")
            }
            DdRqmerged {
                rq,
                sector,
                next,
                next_sector,
            } => {
                write!(
                    f,
                    " rq={rq:#x} sector={sector} next={next:#x} nsector={next_sector}"
                )
            }
            // The arguments of `Other` were not kept; no other kind comes here.
            _ => Ok(()),
        }
    }
}

impl Display for Dev {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.major, self.minor)
    }
}

/// Writes all fields except the task, which a completion does not have.
impl Display for BioEvent<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {} + {}",
            self.dev, self.rwbs, self.sector, self.sectors
        )
    }
}

impl Display for RqEvent<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let RqEvent {
            dev,
            rwbs,
            bytes,
            cmd,
            sector,
            sectors,
            prio,
            comm,
        } = self;
        write!(
            f,
            "{dev} {rwbs} {bytes} ({cmd}) {sector} + {sectors} {prio} [{comm}]"
        )
    }
}

impl Display for RqEnd {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let RqEnd {
            dev,
            rwbs,
            sector,
            sectors,
            prio,
            error,
        } = self;
        write!(f, "{dev} {rwbs} () {sector} + {sectors} {prio} [{error}]")
    }
}

impl Display for Remap {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Remap {
            dev,
            rwbs,
            sector,
            sectors,
            from_dev,
            from_sector,
        } = self;
        write!(
            f,
            "{dev} {rwbs} {sector} + {sectors} <- ({from_dev}) {from_sector}"
        )
    }
}

impl Display for RqPrio {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let class = match self.class {
            IoClass::None => "none",
            IoClass::Rt => "rt",
            IoClass::Be => "be",
            IoClass::Idle => "idle",
        };
        write!(f, "{class},{},{}", self.hint, self.level)
    }
}

impl Display for InsertCall {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "hctx={:#x} flags={} jif={}",
            self.hctx, self.flags, self.jif
        )
    }
}

impl Display for KyDisp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let KyDisp {
            hctx,
            busy,
            domain,
            batching,
            jif,
        } = self;
        write!(
            f,
            "hctx={hctx:#x} busy={busy} dom={domain} batching={batching} jif={jif}"
        )
    }
}

impl Display for BfqDisp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let BfqDisp {
            hctx,
            busy,
            in_service,
            queued,
            in_driver,
            jif,
        } = self;
        write!(
            f,
            "hctx={hctx:#x} busy={busy} insv={:#x} ",
            in_service.unwrap_or(0)
        )?;
        write!(f, "queued={queued} drv={in_driver} jif={jif}")
    }
}

impl Display for BlklabCall<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let BlklabCall {
            hook,
            now_ns,
            rq,
            other,
            answer,
            op,
            flags,
            sector,
            sectors,
            class,
            level,
            submitter,
            cpu,
            hctx,
            start_ns,
            state,
        } = self;
        write!(
            f,
            "{hook} now={now_ns} rq={rq} other={other} answer={answer} op={op} "
        )?;
        write!(
            f,
            "flags={flags:#x} sector={sector} sectors={sectors} class={class} "
        )?;
        write!(f, "level={level} sub={submitter} cpu={cpu} hctx={hctx} ")?;
        write!(f, "start={start_ns} state={state}")
    }
}

impl Display for DdDispRet {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.picked {
            Some(DdPicked {
                rq,
                sector,
                fifo_time,
            }) => {
                write!(f, "rq={rq:#x} sector={sector} fifo={fifo_time} ")?;
            }
            None => f.write_str("rq=0x0 ")?,
        }
        let DdDispRet {
            last_dir_is_write,
            batching,
            starved,
            jif,
            ..
        } = *self;
        let last_dir = u8::from(last_dir_is_write);
        write!(
            f,
            "last_dir={last_dir} batching={batching} starved={starved} jif={jif}"
        )
    }
}

impl Display for KyDispRet {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.picked {
            Some(KyPicked { rq, sector }) => write!(f, "rq={rq:#x} sector={sector} ")?,
            None => f.write_str("rq=0x0 ")?,
        }
        write!(
            f,
            "dom={} batching={} jif={}",
            self.domain, self.batching, self.jif
        )
    }
}

impl Display for BfqDispRet {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.picked {
            Some(BfqPicked {
                rq,
                sector,
                fifo_time,
                queue,
            }) => {
                write!(f, "rq={rq:#x} sector={sector} fifo={fifo_time} ")?;
                match queue {
                    Some(queue) => write!(f, "{queue} ")?,
                    None => f.write_str("bfqq=0x0 ")?,
                }
            }
            None => f.write_str("rq=0x0 ")?,
        }
        let BfqDispRet {
            in_service,
            queued,
            in_driver,
            peak_rate,
            jif,
            ..
        } = *self;
        write!(
            f,
            "insv={:#x} queued={queued} drv={in_driver} ",
            in_service.unwrap_or(0)
        )?;
        write!(f, "peak={peak_rate} jif={jif}")
    }
}

impl Display for BfqQueue {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let BfqQueue {
            bfqq,
            pid,
            service,
            budget,
            wr_coeff,
            group,
        } = self;
        write!(
            f,
            "bfqq={bfqq:#x} bpid={pid} service={service} budget={budget} wrc={wr_coeff}"
        )?;
        let Some(BfqGroup {
            entity,
            weight,
            service,
            budget,
        }) = group
        else {
            return Ok(());
        };
        write!(
            f,
            " par={entity:#x} gw={weight} gserv={service} gbud={budget}"
        )
    }
}
impl Display for WbtCall {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let ([writes, swap, discards], [background, normal, max]) = (self.in_flight, self.limits);
        write!(f, "bio={:#x} sector={}", self.bio, self.sector)?;
        if let Some(opf) = self.opf {
            write!(f, " opf={opf:#x}")?;
        }
        write!(
            f,
            " inf0={writes} inf1={swap} inf2={discards} bg={background} normal={normal} step={} max_depth={max} jif={}",
            self.step, self.jif
        )
    }
}
