/* SPDX-License-Identifier: GPL-2.0 */
/* The functions of the schedulers' library (rust/src), one set for each scheduler. */
#ifndef BLKLAB_GLUE_H
#define BLKLAB_GLUE_H

#include <linux/types.h>

/* A request or a bio as the scheduler sees it. */
struct blklab_view {
	u64 sector;
	u64 start_ns;
	u32 sectors;
	u32 submitter;
	u16 cpu;
	u16 hctx;
	u16 flags;		/* enum blklab_flags */
	u8 op;			/* enum blklab_op */
	u8 prio_class;
	u8 prio_level;
};

enum blklab_op {
	BLKLAB_READ,
	BLKLAB_WRITE,
	BLKLAB_FLUSH,
	BLKLAB_DISCARD,
	BLKLAB_WRITE_ZEROES,
};

enum blklab_flags {
	BLKLAB_SYNC = 1 << 0,
	BLKLAB_META = 1 << 1,
	BLKLAB_FUA = 1 << 2,
	BLKLAB_PREFLUSH = 1 << 3,
	BLKLAB_RAHEAD = 1 << 4,
	BLKLAB_NOWAIT = 1 << 5,
	BLKLAB_IDLE = 1 << 6,
	BLKLAB_NOMERGE = 1 << 7,
	BLKLAB_BACKGROUND = 1 << 8,
};

/* The properties of a queue. */
struct blklab_shape {
	u64 capacity_sectors;
	u32 nr_requests;
	u32 old_nr_requests;
	u32 nr_hw_queues;
	u32 queue_depth;
	u32 nr_cpus;
	u32 max_sectors;
	u32 max_requests;
	bool rotational;
};

/* The start of a scheduler's state, which the module reads without a call. */
struct blklab_shared {
	u64 next_timer_ns;
	bool has_runs;
	bool is_single_queue;
	bool disables_wbt;
	bool has_submitters;	/* state is kept for each submitter */
	bool sees_bios;		/* bio_merge() must be called */
	bool merges_by_end;	/* bios and requests are looked for by the ends of others */
	bool ends_can_wait;	/* nothing is to be done at a request's end */
	u32 min_shallow_depth;
	u32 depths[4];		/* reads, writes; asynchronous, synchronous */
};

struct blklab_inserted {
	u32 id;
	bool hashed;
};

struct blklab_description {
	const char *name;	/* not terminated */
	size_t name_length;
	size_t nr_files;
	bool has_submitters;
};

struct blklab_file {
	const char *name;	/* not terminated */
	size_t name_length;
	bool readable;
	bool writable;
};

/*
 * The functions of a scheduler, H(scheduler, type, function, parameters) for each.
 * Requests are named by a number from 1; 0 is none.
 */
#define BLKLAB_FOR_EACH_HOOK(H, n)								\
	H(n, struct blklab_description, describe, (void))					\
	H(n, struct blklab_file, file, (u32 number))						\
	H(n, struct blklab_shared *, create, (const struct blklab_shape *shape))		\
	H(n, u32, limit_depth, (void *q, const struct blklab_view *bio))			\
	H(n, struct blklab_inserted, insert, (void *q, u64 now, u32 id,				\
					      const struct blklab_view *rq, bool at_head))	\
	H(n, u32, dispatch, (void *q, u64 now, u32 hctx))					\
	H(n, u32, bio_merge, (void *q, u64 now, const struct blklab_view *bio))			\
	H(n, u32, request_merge, (void *q, u64 now, const struct blklab_view *bio))		\
	H(n, bool, allow_merge, (void *q, u64 now, u32 id, const struct blklab_view *bio))	\
	H(n, void, request_merged, (void *q, u64 now, u32 id, const struct blklab_view *rq,	\
				    bool front))						\
	H(n, void, requests_merged, (void *q, u64 now, u32 id, const struct blklab_view *rq,	\
				     u32 next))							\
	H(n, u32, former, (void *q, u64 now, u32 id))						\
	H(n, u32, next, (void *q, u64 now, u32 id))						\
	H(n, void, requeue, (void *q, u64 now, u32 id))						\
	H(n, void, finish, (void *q, u64 now, u32 id, bool is_done))				\
	H(n, void, exit_submitter, (void *q, u64 now, u32 submitter))				\
	H(n, bool, timer, (void *q, u64 now))							\
	H(n, u32, next_run, (void *q))								\
	H(n, void, resize, (void *q, const struct blklab_shape *shape))				\
	H(n, size_t, show, (void *q, u32 file, char *out, size_t room))				\
	H(n, bool, store, (void *q, u32 file, const char *text, size_t length))			\
	H(n, size_t, state, (void *q, u32 id, char *out, size_t room))				\
	H(n, void, destroy, (void *q))

#define BLKLAB_POINTER(n, type, hook, parameters) type (*hook)parameters;
struct blklab_hooks {
	BLKLAB_FOR_EACH_HOOK(BLKLAB_POINTER, )
};

#define BLKLAB_EXTERN(n, type, hook, parameters) type blklab_##n##_##hook parameters;
#define BLKLAB_ENTRY(n, type, hook, parameters) .hook = blklab_##n##_##hook,

#endif
