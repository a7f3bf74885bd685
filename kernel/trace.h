/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Each call of a scheduler with its arguments and its answer, in the order of the calls:
 * `blklab conform` makes the same calls in user space.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM blklab

#if !defined(BLKLAB_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define BLKLAB_TRACE_H

#include <linux/tracepoint.h>

#include "glue.h"

/* `rq` is the number of the request that the call is about, `other` what else it is told. */
TRACE_EVENT(blklab_call,
	TP_PROTO(const char *hook, u64 now, u32 rq, u32 other, const struct blklab_view *view,
		 u32 answer, const char *state),
	TP_ARGS(hook, now, rq, other, view, answer, state),
	TP_STRUCT__entry(
		__string(hook, hook)
		__field(u64, now)
		__field(u32, rq)
		__field(u32, other)
		__field(u32, answer)
		__field_struct(struct blklab_view, view)
		__string(state, state)
	),
	TP_fast_assign(
		__assign_str(hook);
		__entry->now = now;
		__entry->rq = rq;
		__entry->other = other;
		__entry->answer = answer;
		__entry->view = *view;
		__assign_str(state);
	),
	TP_printk("%s now=%llu rq=%u other=%u answer=%u op=%u flags=0x%x sector=%llu sectors=%u "
		  "class=%u level=%u sub=%u cpu=%u hctx=%u start=%llu state=%s",
		  __get_str(hook), __entry->now, __entry->rq, __entry->other, __entry->answer,
		  __entry->view.op, __entry->view.flags, __entry->view.sector,
		  __entry->view.sectors, __entry->view.prio_class, __entry->view.prio_level,
		  __entry->view.submitter, __entry->view.cpu, __entry->view.hctx,
		  __entry->view.start_ns, __get_str(state))
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
