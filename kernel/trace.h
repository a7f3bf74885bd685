/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What blklab-mq-dl and blklab-kyber are asked and answer: the events that `blklab
 * conform` reads of the kernel's own mq-deadline and kyber, with the same names and
 * fields. `jif` counts ticks of 4 ms of the time that the scheduler was told.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM blklab

#if !defined(BLKLAB_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define BLKLAB_TRACE_H

#include <linux/blk-mq.h>
#include <linux/tracepoint.h>

#ifndef BLKLAB_TICK_NS
#define BLKLAB_TICK_NS 4000000
#define blklab_tick(ns) div_u64(ns, BLKLAB_TICK_NS)
#endif

TRACE_EVENT(rq_ins,
	TP_PROTO(struct request *rq, u64 now),
	TP_ARGS(rq, now),
	TP_STRUCT__entry(
		__field(unsigned long, rq)
		__field(u64, sector)
		__field(u64, jif)
	),
	TP_fast_assign(
		__entry->rq = (unsigned long)rq;
		__entry->sector = blk_rq_pos(rq);
		__entry->jif = blklab_tick(now);
	),
	TP_printk("rq=0x%lx sector=%llu jif=%llu", __entry->rq, __entry->sector, __entry->jif)
);

DECLARE_EVENT_CLASS(blklab_insert,
	TP_PROTO(struct blk_mq_hw_ctx *hctx, unsigned int flags, u64 now),
	TP_ARGS(hctx, flags, now),
	TP_STRUCT__entry(
		__field(unsigned long, hctx)
		__field(unsigned int, flags)
		__field(u64, jif)
	),
	TP_fast_assign(
		__entry->hctx = (unsigned long)hctx;
		__entry->flags = flags;
		__entry->jif = blklab_tick(now);
	),
	TP_printk("hctx=0x%lx flags=%u jif=%llu", __entry->hctx, __entry->flags, __entry->jif)
);
DEFINE_EVENT(blklab_insert, dd_ins,
	TP_PROTO(struct blk_mq_hw_ctx *hctx, unsigned int flags, u64 now),
	TP_ARGS(hctx, flags, now));
DEFINE_EVENT(blklab_insert, ky_ins,
	TP_PROTO(struct blk_mq_hw_ctx *hctx, unsigned int flags, u64 now),
	TP_ARGS(hctx, flags, now));

DECLARE_EVENT_CLASS(blklab_ask,
	TP_PROTO(struct blk_mq_hw_ctx *hctx, const char *state, u64 now),
	TP_ARGS(hctx, state, now),
	TP_STRUCT__entry(
		__field(unsigned long, hctx)
		__field(unsigned int, busy)
		__string(state, state)
		__field(u64, jif)
	),
	TP_fast_assign(
		__entry->hctx = (unsigned long)hctx;
		__entry->busy = hctx->dispatch_busy;
		__assign_str(state);
		__entry->jif = blklab_tick(now);
	),
	TP_printk("hctx=0x%lx busy=%u %s jif=%llu", __entry->hctx, __entry->busy,
		  __get_str(state), __entry->jif)
);
DEFINE_EVENT(blklab_ask, dd_disp,
	TP_PROTO(struct blk_mq_hw_ctx *hctx, const char *state, u64 now),
	TP_ARGS(hctx, state, now));
DEFINE_EVENT(blklab_ask, ky_disp,
	TP_PROTO(struct blk_mq_hw_ctx *hctx, const char *state, u64 now),
	TP_ARGS(hctx, state, now));

DECLARE_EVENT_CLASS(blklab_answer,
	TP_PROTO(struct request *rq, const char *state, u64 now),
	TP_ARGS(rq, state, now),
	TP_STRUCT__entry(
		__field(unsigned long, rq)
		__field(u64, sector)
		__string(state, state)
		__field(u64, jif)
	),
	TP_fast_assign(
		__entry->rq = (unsigned long)rq;
		__entry->sector = rq ? blk_rq_pos(rq) : 0;
		__assign_str(state);
		__entry->jif = blklab_tick(now);
	),
	TP_printk("rq=0x%lx sector=%llu %s jif=%llu", __entry->rq, __entry->sector,
		  __get_str(state), __entry->jif)
);
DEFINE_EVENT(blklab_answer, dd_disp_ret,
	TP_PROTO(struct request *rq, const char *state, u64 now),
	TP_ARGS(rq, state, now));
DEFINE_EVENT(blklab_answer, ky_disp_ret,
	TP_PROTO(struct request *rq, const char *state, u64 now),
	TP_ARGS(rq, state, now));

TRACE_EVENT(dd_fin,
	TP_PROTO(struct request *rq, u32 id),
	TP_ARGS(rq, id),
	TP_STRUCT__entry(
		__field(unsigned long, rq)
		__field(u64, sector)
		__field(u32, id)
	),
	TP_fast_assign(
		__entry->rq = (unsigned long)rq;
		__entry->sector = blk_rq_pos(rq);
		__entry->id = id;
	),
	TP_printk("rq=0x%lx sector=%llu pp=0x%x", __entry->rq, __entry->sector, __entry->id)
);

TRACE_EVENT(ky_fin,
	TP_PROTO(struct request *rq),
	TP_ARGS(rq),
	TP_STRUCT__entry(
		__field(unsigned long, rq)
		__field(u64, sector)
	),
	TP_fast_assign(
		__entry->rq = (unsigned long)rq;
		__entry->sector = blk_rq_pos(rq);
	),
	TP_printk("rq=0x%lx sector=%llu token=0", __entry->rq, __entry->sector)
);

TRACE_EVENT(ky_done,
	TP_PROTO(struct request *rq, u64 now),
	TP_ARGS(rq, now),
	TP_STRUCT__entry(
		__field(unsigned long, rq)
		__field(u64, sector)
		__field(u64, now)
		__field(u64, start)
		__field(u64, io_start)
	),
	TP_fast_assign(
		__entry->rq = (unsigned long)rq;
		__entry->sector = blk_rq_pos(rq);
		__entry->now = now;
		__entry->start = rq->start_time_ns;
		__entry->io_start = rq->io_start_time_ns;
	),
	TP_printk("rq=0x%lx sector=%llu now=%llu start=%llu iostart=%llu", __entry->rq,
		  __entry->sector, __entry->now, __entry->start, __entry->io_start)
);

TRACE_EVENT(dd_bmerged,
	TP_PROTO(struct request *rq, unsigned int type),
	TP_ARGS(rq, type),
	TP_STRUCT__entry(
		__field(unsigned long, rq)
		__field(u64, sector)
		__field(unsigned int, length)
		__field(unsigned int, type)
	),
	TP_fast_assign(
		__entry->rq = (unsigned long)rq;
		__entry->sector = blk_rq_pos(rq);
		__entry->length = blk_rq_bytes(rq);
		__entry->type = type;
	),
	TP_printk("rq=0x%lx sector=%llu len=%u type=%u", __entry->rq, __entry->sector,
		  __entry->length, __entry->type)
);

TRACE_EVENT(dd_rqmerged,
	TP_PROTO(struct request *rq, struct request *next),
	TP_ARGS(rq, next),
	TP_STRUCT__entry(
		__field(unsigned long, rq)
		__field(u64, sector)
		__field(unsigned long, next)
		__field(u64, next_sector)
	),
	TP_fast_assign(
		__entry->rq = (unsigned long)rq;
		__entry->sector = blk_rq_pos(rq);
		__entry->next = (unsigned long)next;
		__entry->next_sector = blk_rq_pos(next);
	),
	TP_printk("rq=0x%lx sector=%llu next=0x%lx nsector=%llu", __entry->rq, __entry->sector,
		  __entry->next, __entry->next_sector)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
