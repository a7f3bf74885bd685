/* SPDX-License-Identifier: GPL-2.0 */
/* What the schedulers' library offers (rust/src): one set of functions for each. */
#ifndef BLKLAB_GLUE_H
#define BLKLAB_GLUE_H

#include <linux/types.h>

/* What a scheduler is told of a request or a bio. */
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

/* What a scheduler is told of its queue. */
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

/* The start of a scheduler's state. */
struct blklab_shared {
	u64 next_timer_ns;
	bool has_runs;
	bool is_single_queue;
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

/* Requests are named by a number from 1; 0 is none. */
struct blklab_hooks {
	struct blklab_description (*describe)(void);
	struct blklab_file (*file)(u32 number);
	struct blklab_shared *(*create)(const struct blklab_shape *shape);
	u32 (*limit_depth)(void *q, const struct blklab_view *bio);
	struct blklab_inserted (*insert)(void *q, u64 now, u32 id, const struct blklab_view *rq,
					 bool at_head);
	u32 (*dispatch)(void *q, u64 now, u32 hctx);
	u32 (*bio_merge)(void *q, u64 now, const struct blklab_view *bio);
	u32 (*request_merge)(void *q, u64 now, const struct blklab_view *bio);
	bool (*allow_merge)(void *q, u64 now, u32 id, const struct blklab_view *bio);
	void (*request_merged)(void *q, u64 now, u32 id, const struct blklab_view *rq, bool front);
	void (*requests_merged)(void *q, u64 now, u32 id, const struct blklab_view *rq,
				u32 next);
	u32 (*former)(void *q, u64 now, u32 id);
	u32 (*next)(void *q, u64 now, u32 id);
	void (*requeue)(void *q, u64 now, u32 id);
	void (*finish)(void *q, u64 now, u32 id, bool is_done);
	void (*exit_submitter)(void *q, u64 now, u32 submitter);
	bool (*timer)(void *q, u64 now);
	u32 (*next_run)(void *q);
	void (*resize)(void *q, const struct blklab_shape *shape);
	size_t (*show)(void *q, u32 file, char *out, size_t room);
	bool (*store)(void *q, u32 file, const char *text, size_t length);
	void (*destroy)(void *q);
};

#define BLKLAB_EXTERN(n)								\
	struct blklab_description blklab_##n##_describe(void);				\
	struct blklab_file blklab_##n##_file(u32);					\
	struct blklab_shared *blklab_##n##_create(const struct blklab_shape *);		\
	u32 blklab_##n##_limit_depth(void *, const struct blklab_view *);		\
	struct blklab_inserted blklab_##n##_insert(void *, u64, u32,			\
						   const struct blklab_view *, bool);	\
	u32 blklab_##n##_dispatch(void *, u64, u32);					\
	u32 blklab_##n##_bio_merge(void *, u64, const struct blklab_view *);		\
	u32 blklab_##n##_request_merge(void *, u64, const struct blklab_view *);	\
	bool blklab_##n##_allow_merge(void *, u64, u32, const struct blklab_view *);	\
	void blklab_##n##_request_merged(void *, u64, u32, const struct blklab_view *, bool); \
	void blklab_##n##_requests_merged(void *, u64, u32, const struct blklab_view *, u32); \
	u32 blklab_##n##_former(void *, u64, u32);					\
	u32 blklab_##n##_next(void *, u64, u32);					\
	void blklab_##n##_requeue(void *, u64, u32);					\
	void blklab_##n##_finish(void *, u64, u32, bool);				\
	void blklab_##n##_exit_submitter(void *, u64, u32);				\
	bool blklab_##n##_timer(void *, u64);						\
	u32 blklab_##n##_next_run(void *);						\
	void blklab_##n##_resize(void *, const struct blklab_shape *);			\
	size_t blklab_##n##_show(void *, u32, char *, size_t);				\
	bool blklab_##n##_store(void *, u32, const char *, size_t);			\
	void blklab_##n##_destroy(void *);

#define BLKLAB_HOOKS(n) {					\
	.describe = blklab_##n##_describe,			\
	.file = blklab_##n##_file,				\
	.create = blklab_##n##_create,				\
	.limit_depth = blklab_##n##_limit_depth,		\
	.insert = blklab_##n##_insert,				\
	.dispatch = blklab_##n##_dispatch,			\
	.bio_merge = blklab_##n##_bio_merge,			\
	.request_merge = blklab_##n##_request_merge,		\
	.allow_merge = blklab_##n##_allow_merge,		\
	.request_merged = blklab_##n##_request_merged,		\
	.requests_merged = blklab_##n##_requests_merged,	\
	.former = blklab_##n##_former,				\
	.next = blklab_##n##_next,				\
	.requeue = blklab_##n##_requeue,			\
	.finish = blklab_##n##_finish,				\
	.exit_submitter = blklab_##n##_exit_submitter,		\
	.timer = blklab_##n##_timer,				\
	.next_run = blklab_##n##_next_run,			\
	.resize = blklab_##n##_resize,				\
	.show = blklab_##n##_show,				\
	.store = blklab_##n##_store,				\
	.destroy = blklab_##n##_destroy,			\
}

#endif
