// SPDX-License-Identifier: GPL-2.0
/*
 * blklab's schedulers for the kernel's block layer.
 *
 * The schedulers are written in Rust (crates/elevator); the simulation compiles the same
 * source. This file makes no scheduling decisions. It owns the lock, the requests, the
 * timer and the memory, and gives each request the number by which the scheduler knows
 * it. Merging is the kernel's (blk_mq_sched_try_merge), which calls the same hooks.
 */
#include <linux/module.h>
#include <linux/blkdev.h>
#include <linux/blk-mq.h>
#include <linux/genalloc.h>
#include <linux/hrtimer.h>
#include <linux/iocontext.h>
#include <linux/ioprio.h>
#include <linux/llist.h>
#include <linux/sbitmap.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>
#include <trace/events/block.h>

#include "elevator.h"
#include "blk.h"
#include "blk-mq.h"
#include "blk-mq-sched.h"
#include "blk-wbt.h"

#include "glue.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

/* What belongs to a request's number. */
struct blklab_slot {
	struct request *rq;
	u64 end_ns;			/* time of completion; 0 if it did not complete */
	struct llist_node ended;	/* in blklab_data.ended */
};

/* One scheduler on one queue. */
struct blklab_data {
	spinlock_t lock;		/* serialises all calls of the scheduler */
	struct blklab_shared *sched;	/* the scheduler's state, in Rust */
	const struct blklab_hooks *hooks;
	struct request_queue *queue;
	struct blklab_slot *slots;	/* by number, from 1 */
	u32 max_requests;
	struct llist_head ended;	/* requests of whose end the scheduler is not told yet */
	u64 now;			/* time of the current insert or merge */
	u32 merger;			/* the submitter of the bio of the current merge */
	struct list_head unnumbered;	/* requests beyond max_requests, in order */
	u32 queued;
	u32 *queued_on;			/* by hardware context */
	struct hrtimer timer;
	u64 armed_ns;			/* expiry of the timer; U64_MAX if not armed */
};

/* Identifies a submitter to a scheduler that keeps state for each. */
struct blklab_icq {
	struct io_cq icq;
	u32 id;
};

/* ---- Memory ---- */

/*
 * Memory for when kmalloc(GFP_ATOMIC) fails. While less than half of it is free, new
 * requests bypass the scheduler, so that it needs no more memory.
 */
#define RESERVE_BYTES (4UL << 20)
static struct gen_pool *reserve;
static void *reserve_memory;
static bool reserve_used;	/* since the module was loaded */

/* A block of the reserve begins with its size, which gen_pool_free needs. */
#define HEADER 64

/* A task that creates a scheduler may wait for memory, as it holds no spinlock. */
static DEFINE_MUTEX(creating);
static struct task_struct *creator;

#ifdef BLKLAB_DEBUG
static atomic_long_t allocated = ATOMIC_LONG_INIT(0);

/* Which of the coming allocations fails, from 1; 0 for none. */
static int fail_nth;
module_param(fail_nth, int, 0600);

static bool must_fail(void)
{
	int n = READ_ONCE(fail_nth);

	return n && cmpxchg(&fail_nth, n, n - 1) == n && n == 1;
}

/* Larger blocks than this fail as if the reserve were used up, too. */
#define FAIL_OF_RESERVE (4 * PAGE_SIZE)
#else
static inline bool must_fail(void)
{
	return false;
}
#define FAIL_OF_RESERVE ULONG_MAX
#endif

#define MAY_FAIL(allocation) (must_fail() ? NULL : (allocation))

void *blklab_alloc(size_t size, size_t align);
void *blklab_alloc(size_t size, size_t align)
{
	void *memory = NULL;
	unsigned long block;

	/* kmalloc aligns sizes that are powers of two to themselves. */
	size = max(roundup_pow_of_two(size), align);
	if (unlikely(must_fail())) {
		if (size > FAIL_OF_RESERVE)
			return NULL;
	} else if (READ_ONCE(creator) == current && !irqs_disabled()) {
		/*
		 * No hook of another queue that interrupts it. The queue is frozen: memory that
		 * needs I/O on it would never come.
		 */
		memory = kvmalloc(size, GFP_NOIO | __GFP_NOWARN);
	} else if (size <= KMALLOC_MAX_SIZE) {
		memory = kmalloc(size, GFP_ATOMIC | __GFP_NOWARN);
	}
	if (!memory) {
		WRITE_ONCE(reserve_used, true);
		size += HEADER;
		block = WARN_ON_ONCE(align > HEADER) ? 0 : gen_pool_alloc(reserve, size);
		if (!block)
			return NULL;
		*(size_t *)block = size;
		memory = (void *)block + HEADER;
	}
#ifdef BLKLAB_DEBUG
	atomic_long_inc(&allocated);
#endif
	return memory;
}

/* Large blocks that were freed under a spinlock, where vfree must not be called. */
static LLIST_HEAD(to_vfree);

static void vfree_late(struct work_struct *work)
{
	struct llist_node *block, *next;

	llist_for_each_safe(block, next, llist_del_all(&to_vfree))
		vfree(block);
}
static DECLARE_WORK(vfree_work, vfree_late);

void blklab_free(void *memory);
void blklab_free(void *memory)
{
	unsigned long block;

#ifdef BLKLAB_DEBUG
	atomic_long_dec(&allocated);
#endif
	if (gen_pool_has_addr(reserve, (unsigned long)memory, 1)) {
		block = (unsigned long)memory - HEADER;
		gen_pool_free(reserve, block, *(size_t *)block);
	} else if (is_vmalloc_addr(memory) && irqs_disabled()) {
		llist_add(memory, &to_vfree);
		schedule_work(&vfree_work);
	} else {
		kvfree(memory);
	}
}

static bool reserve_is_low(void)
{
	return unlikely(READ_ONCE(reserve_used)) && gen_pool_avail(reserve) < RESERVE_BYTES / 2;
}

void __noreturn blklab_panic(const char *file, size_t length, u32 line);
void __noreturn blklab_panic(const char *file, size_t length, u32 line)
{
	pr_emerg("blklab: panic at %.*s:%u\n", (int)length, file, line);
	BUG();
}

/* ---- Conversion of requests and bios for the scheduler ---- */

static __always_inline u8 op_of(blk_opf_t opf)
{
	switch (opf & REQ_OP_MASK) {
	case REQ_OP_READ:
		return BLKLAB_READ;
	case REQ_OP_FLUSH:
		return BLKLAB_FLUSH;
	case REQ_OP_DISCARD:
	case REQ_OP_SECURE_ERASE:
		return BLKLAB_DISCARD;
	case REQ_OP_WRITE_ZEROES:
		return BLKLAB_WRITE_ZEROES;
	default:
		return op_is_write(opf) ? BLKLAB_WRITE : BLKLAB_READ;
	}
}

/* Moves flags that are neighbours in the same order there and here. */
#define MOVED(opf, first, ours) ((opf) >> (__REQ_##first - ilog2(BLKLAB_##first)) & (ours))
static_assert(__REQ_META == __REQ_SYNC + 1);
static_assert(__REQ_PREFLUSH == __REQ_FUA + 1 && __REQ_RAHEAD == __REQ_FUA + 2);

static __always_inline u16 flags_of(blk_opf_t opf)
{
	u16 flags = MOVED(opf, SYNC, BLKLAB_SYNC | BLKLAB_META) |
		    MOVED(opf, FUA, BLKLAB_FUA | BLKLAB_PREFLUSH | BLKLAB_RAHEAD) |
		    MOVED(opf, IDLE, BLKLAB_IDLE);

	if (unlikely(opf & (REQ_NOWAIT | REQ_NOMERGE | REQ_BACKGROUND)))
		flags |= (opf & REQ_NOWAIT ? BLKLAB_NOWAIT : 0) |
			 (opf & REQ_NOMERGE ? BLKLAB_NOMERGE : 0) |
			 (opf & REQ_BACKGROUND ? BLKLAB_BACKGROUND : 0);
	return flags;
}

static __always_inline void set_prio(struct blklab_view *view, u16 ioprio)
{
	view->prio_class = IOPRIO_PRIO_CLASS(ioprio);
	view->prio_level = IOPRIO_PRIO_LEVEL(ioprio);
}

static u32 submitter_of(struct request *rq)
{
	if (rq->elv.icq)
		return container_of(rq->elv.icq, struct blklab_icq, icq)->id;
	return (unsigned long)rq->elv.priv[1];
}

static __always_inline void view_request(struct blklab_view *view, struct request *rq)
{
	view->sector = blk_rq_pos(rq);
	view->sectors = blk_rq_sectors(rq);
	view->start_ns = rq->start_time_ns;
	view->submitter = submitter_of(rq);
	view->cpu = rq->mq_ctx->cpu;
	view->hctx = rq->mq_hctx->queue_num;
	view->op = op_of(rq->cmd_flags);
	view->flags = flags_of(rq->cmd_flags);
	set_prio(view, req_get_ioprio(rq));
}

static __always_inline void view_bio(struct blklab_view *view, struct bio *bio, u32 submitter)
{
	view->sector = bio->bi_iter.bi_sector;
	view->sectors = bio_sectors(bio);
	view->start_ns = 0;
	view->submitter = submitter;
	view->cpu = raw_smp_processor_id();
	view->hctx = 0;
	view->op = op_of(bio->bi_opf);
	view->flags = flags_of(bio->bi_opf);
	set_prio(view, bio->bi_ioprio);
}

static struct blklab_data *data_of(struct request_queue *q)
{
	return q->elevator->elevator_data;
}

static u32 id_of(struct request *rq)
{
	return (unsigned long)rq->elv.priv[0];
}

static struct request *rq_of(struct blklab_data *d, u32 id)
{
	struct request *rq = id ? d->slots[id - 1].rq : NULL;

#ifdef BLKLAB_DEBUG
	BUG_ON(id && (rq == (void *)LIST_POISON1 || !rq || id_of(rq) != id));
#endif
	return rq;
}

/* ---- Tracing ---- */

static const struct blklab_view no_view;

/* Notes a call that has no answer. */
#define NOTE(hook, now, rq, other, view) trace_blklab_call(hook, now, rq, other, view, 0, "")

/* Makes a call, notes it, and gives its answer. */
#define NOTED(hook, now, rq, view, call) ({						\
	typeof(call) answer = call;							\
	trace_blklab_call(hook, now, rq, 0, view, answer, "");				\
	answer;										\
})

/* ---- Submitters ---- */

static struct blklab_icq *lookup_icq(struct request_queue *q)
{
	struct io_cq *icq;
	unsigned long flags;

	if (!current->io_context)
		return NULL;
	spin_lock_irqsave(&q->queue_lock, flags);
	icq = ioc_lookup_icq(q);
	spin_unlock_irqrestore(&q->queue_lock, flags);
	return icq ? container_of(icq, struct blklab_icq, icq) : NULL;
}

/* Returns 0 for a task that has not submitted anything yet. */
static u32 current_submitter(struct request_queue *q)
{
	struct blklab_icq *icq;

	if (!q->elevator->type->icq_size)
		return current->pid;
	icq = lookup_icq(q);
	return icq ? icq->id : 0;
}

static void blklab_init_icq(struct io_cq *icq)
{
	static atomic_t last = ATOMIC_INIT(0);

	container_of(icq, struct blklab_icq, icq)->id = atomic_inc_return(&last);
}

/* ---- The ends of requests, of which the scheduler is told before its next hook ---- */

/* Called under the lock. */
static __always_inline void tell_ends(const struct blklab_hooks *h, struct blklab_data *d)
{
	struct blklab_slot *slot;
	struct llist_node *node;
	u64 now;
	u32 id;

	if (llist_empty(&d->ended))
		return;
	node = llist_reverse_order(llist_del_all(&d->ended));
	llist_for_each_entry(slot, node, ended) {
		id = slot - d->slots + 1;
		now = slot->end_ns ?: ktime_get_ns();
		NOTE("finish", now, id, !!slot->end_ns, &no_view);
		h->finish(d->sched, now, id, slot->end_ns);
	}
}

static __always_inline unsigned long lock(const struct blklab_hooks *h, struct blklab_data *d)
{
	unsigned long flags;

	spin_lock_irqsave(&d->lock, flags);
	tell_ends(h, d);
	return flags;
}

/* Tells of ends that were noted while they still could wait. Called under the lock. */
static noinline void tell_late_ends(struct blklab_data *d)
{
	/* Pairs with llist_add in do_finish: one of the two sees what the other wrote. */
	smp_mb();
	tell_ends(d->hooks, d);
}

/* ---- Timer and queue runs that a hook requested ---- */

/* Called under the lock. Returns the hardware contexts to be run, as a bit mask. */
static __always_inline u64 after_hook(struct blklab_data *d)
{
	u64 runs = 0;
	u32 hctx;

	if (unlikely(!d->sched->ends_can_wait))
		tell_late_ends(d);
	while (unlikely(d->sched->has_runs) && (hctx = d->hooks->next_run(d->sched)))
		runs |= 1ULL << min(hctx - 1, 63U);
	if (unlikely(d->sched->next_timer_ns != d->armed_ns)) {
		d->armed_ns = d->sched->next_timer_ns;
		if (d->armed_ns != U64_MAX)
			hrtimer_start(&d->timer, ns_to_ktime(d->armed_ns), HRTIMER_MODE_ABS_SOFT);
	}
	return runs;
}

/* Called without the lock, because running a hardware context calls dispatch. */
static void run_hctxs(struct request_queue *q, u64 runs)
{
	struct blk_mq_hw_ctx *hctx;
	unsigned long i;

	queue_for_each_hw_ctx(q, hctx, i)
		if (runs & 1ULL << min(i, 63UL))
			blk_mq_run_hw_queue(hctx, true);
}

static __always_inline void unlock(struct blklab_data *d, unsigned long flags)
{
	u64 runs = after_hook(d);

	spin_unlock_irqrestore(&d->lock, flags);
	if (unlikely(runs))
		run_hctxs(d->queue, runs);
}

static enum hrtimer_restart timer_expired(struct hrtimer *timer)
{
	struct blklab_data *d = container_of(timer, struct blklab_data, timer);
	u64 now = ktime_get_ns();
	unsigned long flags;
	bool run = false;

	flags = lock(d->hooks, d);
	d->armed_ns = U64_MAX;
	if (d->sched->next_timer_ns <= now)
		run = NOTED("timer", now, 0, &no_view, d->hooks->timer(d->sched, now));
	unlock(d, flags);
	if (run)
		blk_mq_run_hw_queues(d->queue, true);
	return HRTIMER_NORESTART;
}

/* ---- Hooks: inlined into a copy for each scheduler, so that its calls are direct ---- */

/*
 * These store the submitter only. The request gets its number at insert, when its sector,
 * size and flags are known.
 */
static void blklab_prepare(struct request *rq)
{
	rq->elv.icq = NULL;
	rq->elv.priv[0] = NULL;
	rq->elv.priv[1] = (void *)(unsigned long)current->pid;
}

static void blklab_prepare_icq(struct request *rq)
{
	rq->elv.icq = ioc_find_get_icq(rq->q);
	rq->elv.priv[0] = NULL;
	rq->elv.priv[1] = NULL;
}

/* The kernel calls it right before the request's end, with the time that it has read anyway. */
static void blklab_completed(struct request *rq, u64 now)
{
	u32 id = id_of(rq);

	if (id)
		data_of(rq->q)->slots[id - 1].end_ns = now;
}

/*
 * Notes the end of a request without the lock. Only if the scheduler may have to do something
 * at once, it is told here.
 */
static __always_inline void do_finish(const struct blklab_hooks *h, struct request *rq)
{
	struct blklab_data *d = data_of(rq->q);
	u32 id = id_of(rq);
	struct blklab_slot *slot;
	unsigned long flags;

	if (likely(id)) {
		slot = &d->slots[id - 1];
		slot->rq = (void *)LIST_POISON1;
		llist_add(&slot->ended, &d->ended);
		if (!READ_ONCE(d->sched->ends_can_wait)) {
			flags = lock(h, d);
			unlock(d, flags);
		}
		rq->elv.priv[0] = NULL;
	}
	if (rq->elv.icq) {
		put_io_context(rq->elv.icq->ioc);
		rq->elv.icq = NULL;
	}
}

/* Called under the lock. */
static __always_inline void insert_one(const struct blklab_hooks *h, struct blklab_data *d,
				       struct request *rq, bool at_head)
{
	struct request_queue *q = rq->q;
	struct blklab_inserted in = { 0 };
	struct blklab_view view;

	trace_block_rq_insert(rq);
	d->queued_on[rq->mq_hctx->queue_num]++;
	WRITE_ONCE(d->queued, d->queued + 1);
	view_request(&view, rq);
	if (likely(!reserve_is_low())) {
		in = h->insert(d->sched, d->now, id_of(rq), &view, at_head);
		trace_blklab_call("insert", d->now, id_of(rq), at_head, &view, in.id,
				  in.hashed ? "hashed" : "");
	}
	if (unlikely(!in.id)) {
		list_add_tail(&rq->queuelist, &d->unnumbered);
		return;
	}
	d->slots[in.id - 1].rq = rq;
	d->slots[in.id - 1].end_ns = 0;
	rq->elv.priv[0] = (void *)(unsigned long)in.id;
	if (in.hashed) {
		elv_rqhash_add(q, rq);
		if (!q->last_merge)
			q->last_merge = rq;
	}
}

/* Removes a request from the queue's accounts. Called under the lock. */
static __always_inline void take_out(struct blklab_data *d, struct request *rq)
{
	struct request_queue *q = rq->q;

	if (rq->rq_flags & RQF_HASHED)
		elv_rqhash_del(q, rq);
	if (q->last_merge == rq)
		q->last_merge = NULL;
	d->queued_on[rq->mq_hctx->queue_num]--;
	WRITE_ONCE(d->queued, d->queued - 1);
}

static __always_inline void do_insert(const struct blklab_hooks *h, struct blk_mq_hw_ctx *hctx,
				      struct list_head *list, blk_insert_t how)
{
	struct request_queue *q = hctx->queue;
	struct blklab_data *d = data_of(q);
	unsigned long flags;
	LIST_HEAD(free);

	flags = lock(h, d);
	d->now = blk_time_get_ns();
	while (!list_empty(list)) {
		struct request *rq = list_first_entry(list, struct request, queuelist);

		list_del_init(&rq->queuelist);
		if (!d->sched->merges_by_end || !blk_mq_sched_try_insert_merge(q, rq, &free))
			insert_one(h, d, rq, how & BLK_MQ_INSERT_AT_HEAD);
	}
	unlock(d, flags);
	blk_mq_free_requests(&free);
}

/* Size of the scheduler's state as text, in the names of the kernel's debugfs. */
#define STATE_ROOM 256

static noinline void note_dispatch(const struct blklab_hooks *h, struct blklab_data *d, u64 now,
				   const struct blklab_view *view, u32 id)
{
	char state[STATE_ROOM];

	state[h->state(d->sched, id, state, sizeof(state) - 1)] = 0;
	trace_blklab_call("dispatch", now, 0, 0, view, id, state);
}

static __always_inline struct request *ask(const struct blklab_hooks *h, struct blklab_data *d,
					   struct blk_mq_hw_ctx *hctx)
{
	u64 now = blk_time_get_ns();
	u32 id = h->dispatch(d->sched, now, hctx->queue_num);

	if (trace_blklab_call_enabled()) {
		struct blklab_view view = { .hctx = hctx->queue_num };

		note_dispatch(h, d, now, &view, id);
	}
	return rq_of(d, id);
}

static __always_inline struct request *do_dispatch(const struct blklab_hooks *h,
						   struct blk_mq_hw_ctx *hctx)
{
	struct blklab_data *d = data_of(hctx->queue);
	struct request *rq;
	unsigned long flags;

	flags = lock(h, d);
	rq = list_first_entry_or_null(&d->unnumbered, struct request, queuelist);
	if (unlikely(rq))
		list_del_init(&rq->queuelist);
	else
		rq = ask(h, d, hctx);
	if (rq) {
		take_out(d, rq);
		rq->rq_flags |= RQF_STARTED;
	}
	unlock(d, flags);
	return rq;
}

static bool has_work(struct blk_mq_hw_ctx *hctx)
{
	struct blklab_data *d = data_of(hctx->queue);

	if (d->sched->is_single_queue)
		return READ_ONCE(d->queued);
	return READ_ONCE(d->queued_on[hctx->queue_num]) || !list_empty_careful(&d->unnumbered);
}

/* If the scheduler is empty, only one that knows submitters may want to see a bio. */
static __always_inline bool may_merge(struct request_queue *q)
{
	struct blklab_data *d = data_of(q);

	return READ_ONCE(d->queued) || d->sched->has_submitters;
}

/* Called under the lock, as all that merges. */
static __always_inline void tell_merged(const struct blklab_hooks *h, struct blklab_data *d,
					struct request *rq, bool front)
{
	struct blklab_view view;

	view_request(&view, rq);
	NOTE("request_merged", d->now, id_of(rq), front, &view);
	h->request_merged(d->sched, d->now, id_of(rq), &view, front);
}

static __always_inline bool do_bio_merge(const struct blklab_hooks *h, struct request_queue *q,
					 struct bio *bio, unsigned int nr_segs)
{
	struct blklab_data *d = data_of(q);
	struct request *free = NULL, *rq = NULL;
	struct blklab_view view;
	u32 submitter = current_submitter(q);
	unsigned long flags;
	bool merged = false;

	flags = lock(h, d);
	d->merger = submitter;
	d->now = blk_time_get_ns();
	if (d->sched->sees_bios) {
		view_bio(&view, bio, submitter);
		rq = rq_of(d, NOTED("bio_merge", d->now, 0, &view,
				    h->bio_merge(d->sched, d->now, &view)));
	}
	if (rq) {
		LIST_HEAD(one);

		list_add(&rq->queuelist, &one);
		merged = blk_bio_list_merge(q, &one, bio, nr_segs);
		list_del_init(&rq->queuelist);
		tell_merged(h, d, rq, false);
	} else if (d->sched->merges_by_end) {
		merged = blk_mq_sched_try_merge(q, bio, nr_segs, &free);
	}
	unlock(d, flags);
	if (free)
		blk_mq_free_request(free);
	return merged;
}

/* From here to do_next the lock is held by do_insert or do_bio_merge. */

static __always_inline int do_request_merge(const struct blklab_hooks *h, struct request_queue *q,
					    struct request **found, struct bio *bio)
{
	struct blklab_data *d = data_of(q);
	struct blklab_view view;
	struct request *rq;

	view_bio(&view, bio, d->merger);
	rq = rq_of(d, NOTED("request_merge", d->now, 0, &view,
			    h->request_merge(d->sched, d->now, &view)));
	if (!rq || !elv_bio_merge_ok(rq, bio))
		return ELEVATOR_NO_MERGE;
	*found = rq;
	return blk_discard_mergable(rq) ? ELEVATOR_DISCARD_MERGE : ELEVATOR_FRONT_MERGE;
}

static __always_inline bool do_allow_merge(const struct blklab_hooks *h, struct request_queue *q,
					   struct request *rq, struct bio *bio)
{
	struct blklab_data *d = data_of(q);
	struct blklab_view view;

	if (!id_of(rq))
		return false;
	view_bio(&view, bio, d->merger);
	return NOTED("allow_merge", d->now, id_of(rq), &view,
		     h->allow_merge(d->sched, d->now, id_of(rq), &view));
}

static __always_inline void do_request_merged(const struct blklab_hooks *h, struct request_queue *q,
					      struct request *rq, enum elv_merge type)
{
	tell_merged(h, data_of(q), rq, type == ELEVATOR_FRONT_MERGE);
}

static __always_inline void do_requests_merged(const struct blklab_hooks *h,
					       struct request_queue *q, struct request *rq,
					       struct request *next)
{
	struct blklab_data *d = data_of(q);
	struct blklab_view view;

	if (id_of(next)) {
		view_request(&view, rq);
		NOTE("requests_merged", d->now, id_of(rq), id_of(next), &view);
		h->requests_merged(d->sched, d->now, id_of(rq), &view, id_of(next));
		take_out(d, next);
	} else {
		/* The other request was merged during its insertion. */
		tell_merged(h, d, rq, false);
	}
}

static __always_inline struct request *do_former(const struct blklab_hooks *h,
						 struct request_queue *q, struct request *rq)
{
	struct blklab_data *d = data_of(q);

	return rq_of(d, NOTED("former", d->now, id_of(rq), &no_view,
			      h->former(d->sched, d->now, id_of(rq))));
}

static __always_inline struct request *do_next(const struct blklab_hooks *h,
					       struct request_queue *q, struct request *rq)
{
	struct blklab_data *d = data_of(q);

	return rq_of(d, NOTED("next", d->now, id_of(rq), &no_view,
			      h->next(d->sched, d->now, id_of(rq))));
}

static void blklab_limit_depth(blk_opf_t opf, struct blk_mq_alloc_data *data)
{
	struct blklab_data *d = data_of(data->q);
	u32 depth = READ_ONCE(d->sched->depths[op_is_write(opf) + 2 * op_is_sync(opf)]);

	if (trace_blklab_call_enabled()) {
		struct blklab_view view = { .op = op_of(opf), .flags = flags_of(opf) };

		trace_blklab_call("limit_depth", 0, 0, 0, &view, depth, "");
	}
	if (depth)
		data->shallow_depth = depth;
}

static void blklab_limit_depth_icq(blk_opf_t opf, struct blk_mq_alloc_data *data)
{
	struct blklab_data *d = data_of(data->q);
	struct blklab_view view = {
		.op = op_of(opf),
		.flags = flags_of(opf),
		.submitter = current_submitter(data->q),
	};
	unsigned long flags;
	u32 depth;

	flags = lock(d->hooks, d);
	depth = NOTED("limit_depth", 0, 0, &view, d->hooks->limit_depth(d->sched, &view));
	unlock(d, flags);
	if (depth)
		data->shallow_depth = depth;
}

static __always_inline void do_requeue(const struct blklab_hooks *h, struct request *rq)
{
	struct blklab_data *d = data_of(rq->q);
	unsigned long flags;
	u64 now;

	if (!id_of(rq))
		return;
	flags = lock(h, d);
	now = ktime_get_ns();
	NOTE("requeue", now, id_of(rq), 0, &no_view);
	h->requeue(d->sched, now, id_of(rq));
	unlock(d, flags);
}

static void blklab_exit_icq(struct io_cq *icq)
{
	struct elevator_queue *e = icq->q->elevator;
	struct blklab_data *d = e ? e->elevator_data : NULL;
	struct blklab_view view = { .submitter = container_of(icq, struct blklab_icq, icq)->id };
	unsigned long flags;
	u64 now;

	if (!d)
		return;
	flags = lock(d->hooks, d);
	now = ktime_get_ns();
	NOTE("exit_submitter", now, 0, 0, &view);
	d->hooks->exit_submitter(d->sched, now, view.submitter);
	after_hook(d);
	spin_unlock_irqrestore(&d->lock, flags);
}

/* ---- Attaching to a queue and detaching ---- */

static void shape_of(struct request_queue *q, struct blklab_shape *shape)
{
	struct blk_mq_hw_ctx *hctx = xa_load(&q->hctx_table, 0);
	struct blk_mq_tags *tags = hctx->sched_tags;
	u32 tags_each = tags->bitmap_tags.sb.depth + tags->nr_reserved_tags;

	*shape = (struct blklab_shape) {
		.capacity_sectors = get_capacity(q->disk),
		/* While nr_requests is written, the queue still has the old value. */
		.nr_requests = tags->bitmap_tags.sb.depth,
		.old_nr_requests = q->nr_requests,
		.nr_hw_queues = q->nr_hw_queues,
		.queue_depth = q->tag_set->queue_depth,
		.nr_cpus = nr_cpu_ids,
		.max_sectors = queue_max_sectors(q),
		.max_requests = tags_each * q->nr_hw_queues,
		.rotational = !blk_queue_nonrot(q),
	};
}

static void free_data(struct blklab_data *d)
{
	kvfree(d->slots);
	kfree(d->queued_on);
	kfree(d);
}

static struct blklab_shared *create(const struct blklab_hooks *hooks,
				    const struct blklab_shape *shape)
{
	struct blklab_shared *sched;

	mutex_lock(&creating);
	WRITE_ONCE(creator, current);
	sched = hooks->create(shape);
	WRITE_ONCE(creator, NULL);
	mutex_unlock(&creating);
	return sched;
}

static int init_sched(struct request_queue *q, struct elevator_type *e,
		      const struct blklab_hooks *hooks)
{
	struct elevator_queue *eq = MAY_FAIL(elevator_alloc(q, e));
	struct blklab_shape shape;
	struct blklab_data *d;

	if (!eq)
		return -ENOMEM;
	shape_of(q, &shape);
	d = MAY_FAIL(kzalloc_node(sizeof(*d), GFP_KERNEL, q->node));
	if (!d)
		goto put;
	d->slots = MAY_FAIL(kvcalloc(shape.max_requests, sizeof(*d->slots), GFP_KERNEL));
	d->queued_on = MAY_FAIL(kcalloc(q->nr_hw_queues, sizeof(*d->queued_on), GFP_KERNEL));
	if (!d->slots || !d->queued_on || reserve_is_low())
		goto free;
	d->hooks = hooks;
	d->queue = q;
	d->max_requests = shape.max_requests;
	d->armed_ns = U64_MAX;
	spin_lock_init(&d->lock);
	INIT_LIST_HEAD(&d->unnumbered);
	hrtimer_init(&d->timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_SOFT);
	d->timer.function = timer_expired;
	d->sched = create(hooks, &shape);
	if (!d->sched)
		goto free;

	eq->elevator_data = d;
	if (d->sched->is_single_queue)
		blk_queue_flag_set(QUEUE_FLAG_SQ_SCHED, q);
	else
		blk_queue_flag_clear(QUEUE_FLAG_SQ_SCHED, q);
	spin_lock_irq(&q->queue_lock);
	q->elevator = eq;
	spin_unlock_irq(&q->queue_lock);
	if (d->sched->disables_wbt) {
		set_bit(ELEVATOR_FLAG_DISABLE_WBT, &eq->flags);
		wbt_disable_default(q->disk);
	}
	return 0;
free:
	free_data(d);
put:
	kobject_put(&eq->kobj);
	return -ENOMEM;
}

static void blklab_exit_sched(struct elevator_queue *e)
{
	struct blklab_data *d = e->elevator_data;

	WARN_ON_ONCE(d->queued);
	hrtimer_cancel(&d->timer);
	if (test_and_clear_bit(ELEVATOR_FLAG_DISABLE_WBT, &e->flags))
		wbt_enable_default(d->queue->disk);
	d->hooks->destroy(d->sched);
	free_data(d);
}

static int blklab_init_hctx(struct blk_mq_hw_ctx *hctx, unsigned int index)
{
	struct blklab_data *d = data_of(hctx->queue);

	if (d->sched->min_shallow_depth)
		sbitmap_queue_min_shallow_depth(&hctx->sched_tags->bitmap_tags,
						d->sched->min_shallow_depth);
	return 0;
}

/* Called for each hardware context, with the queue frozen. */
static void blklab_depth_updated(struct blk_mq_hw_ctx *hctx)
{
	struct blklab_data *d = data_of(hctx->queue);
	struct blklab_shape shape;
	struct blklab_slot *slots = NULL;
	unsigned long flags;

	shape_of(hctx->queue, &shape);
	if (shape.max_requests > d->max_requests)
		slots = MAY_FAIL(kvcalloc(shape.max_requests, sizeof(*slots), GFP_KERNEL));
	flags = lock(d->hooks, d);
	/* Without the memory, requests beyond the old number get no number. */
	if (slots) {
		swap(d->slots, slots);
		d->max_requests = shape.max_requests;
	}
	shape.max_requests = d->max_requests;
	d->hooks->resize(d->sched, &shape);
	unlock(d, flags);
	kvfree(slots);
	blklab_init_hctx(hctx, 0);
}

/* ---- sysfs: show and store functions do not know their file, so each has its own ---- */

#define MAX_FILES 24

static ssize_t show_file(struct elevator_queue *e, char *page, u32 file)
{
	struct blklab_data *d = e->elevator_data;
	unsigned long flags;
	ssize_t length;

	flags = lock(d->hooks, d);
	length = d->hooks->show(d->sched, file, page, PAGE_SIZE);
	unlock(d, flags);
	return length;
}

static ssize_t store_file(struct elevator_queue *e, const char *page, size_t count, u32 file)
{
	struct blklab_data *d = e->elevator_data;
	unsigned long flags;
	bool legal;

	flags = lock(d->hooks, d);
	legal = d->hooks->store(d->sched, file, page, count);
	unlock(d, flags);
	return legal ? count : -EINVAL;
}

#define FOR_EACH_FILE(F)							\
	F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11)		\
	F(12) F(13) F(14) F(15) F(16) F(17) F(18) F(19) F(20) F(21) F(22) F(23)

#define FILE_FUNCTIONS(n)							\
	static ssize_t show_##n(struct elevator_queue *e, char *page)		\
	{									\
		return show_file(e, page, n);					\
	}									\
	static ssize_t store_##n(struct elevator_queue *e, const char *page, size_t count) \
	{									\
		return store_file(e, page, count, n);				\
	}
FOR_EACH_FILE(FILE_FUNCTIONS)

#define FILE_ENTRY(n) { .show = show_##n, .store = store_##n },
static const struct elv_fs_entry by_number[MAX_FILES] = { FOR_EACH_FILE(FILE_ENTRY) };

/* ---- The schedulers: schedulers.h lists them and is generated from the library ---- */

#define SCHEDULER(n) BLKLAB_FOR_EACH_HOOK(BLKLAB_EXTERN, n)
#include "schedulers.h"
#undef SCHEDULER

#define SCHEDULER(n)									\
	static const struct blklab_hooks hooks_##n = {					\
		BLKLAB_FOR_EACH_HOOK(BLKLAB_ENTRY, n)					\
	};										\
	static int n##_init_sched(struct request_queue *q, struct elevator_type *e)	\
	{ return init_sched(q, e, &hooks_##n); }					\
	static void n##_finish(struct request *rq)					\
	{ do_finish(&hooks_##n, rq); }							\
	static void n##_insert(struct blk_mq_hw_ctx *hctx, struct list_head *list,	\
			       blk_insert_t how)					\
	{ do_insert(&hooks_##n, hctx, list, how); }					\
	static struct request *n##_dispatch(struct blk_mq_hw_ctx *hctx)			\
	{ return do_dispatch(&hooks_##n, hctx); }					\
	static noinline bool n##_try_merge(struct request_queue *q, struct bio *bio,	\
					   unsigned int segs)				\
	{ return do_bio_merge(&hooks_##n, q, bio, segs); }				\
	static bool n##_bio_merge(struct request_queue *q, struct bio *bio, unsigned int segs) \
	{ return may_merge(q) && n##_try_merge(q, bio, segs); }				\
	static int n##_request_merge(struct request_queue *q, struct request **found,	\
				     struct bio *bio)					\
	{ return do_request_merge(&hooks_##n, q, found, bio); }				\
	static bool n##_allow_merge(struct request_queue *q, struct request *rq,	\
				    struct bio *bio)					\
	{ return do_allow_merge(&hooks_##n, q, rq, bio); }				\
	static void n##_request_merged(struct request_queue *q, struct request *rq,	\
				       enum elv_merge type)				\
	{ do_request_merged(&hooks_##n, q, rq, type); }					\
	static void n##_requests_merged(struct request_queue *q, struct request *rq,	\
					struct request *next)				\
	{ do_requests_merged(&hooks_##n, q, rq, next); }				\
	static struct request *n##_former(struct request_queue *q, struct request *rq)	\
	{ return do_former(&hooks_##n, q, rq); }					\
	static struct request *n##_next(struct request_queue *q, struct request *rq)	\
	{ return do_next(&hooks_##n, q, rq); }						\
	static void n##_requeue(struct request *rq)					\
	{ do_requeue(&hooks_##n, rq); }							\
	static struct elevator_type type_##n = {					\
		.ops = {								\
			.init_sched = n##_init_sched,					\
			.exit_sched = blklab_exit_sched,				\
			.init_hctx = blklab_init_hctx,					\
			.depth_updated = blklab_depth_updated,				\
			.allow_merge = n##_allow_merge,					\
			.bio_merge = n##_bio_merge,					\
			.request_merge = n##_request_merge,				\
			.request_merged = n##_request_merged,				\
			.requests_merged = n##_requests_merged,				\
			.limit_depth = blklab_limit_depth,				\
			.prepare_request = blklab_prepare,				\
			.completed_request = blklab_completed,				\
			.finish_request = n##_finish,					\
			.insert_requests = n##_insert,					\
			.dispatch_request = n##_dispatch,				\
			.has_work = has_work,						\
			.requeue_request = n##_requeue,					\
			.former_request = n##_former,					\
			.next_request = n##_next,					\
		},									\
		.elevator_owner = THIS_MODULE,						\
	};
#include "schedulers.h"
#undef SCHEDULER

static const struct scheduler {
	struct elevator_type *type;
	const struct blklab_hooks *hooks;
} schedulers[] = {
#define SCHEDULER(n) { &type_##n, &hooks_##n },
#include "schedulers.h"
#undef SCHEDULER
};

/* These names are taken by the kernel's schedulers; sysfs reads at most 15 characters. */
static const char *name_of(const struct blklab_description *d)
{
	static const char *const renamed[][2] = {
		{ "mq-deadline", "blklab-mq-dl" },
		{ "deadline", "blklab-deadline" },
		{ "kyber", "blklab-kyber" },
		{ "bfq", "blklab-bfq" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(renamed); i++)
		if (strlen(renamed[i][0]) == d->name_length &&
		    !memcmp(renamed[i][0], d->name, d->name_length))
			return kstrdup(renamed[i][1], GFP_KERNEL);
	return kstrndup(d->name, d->name_length, GFP_KERNEL);
}

static void free_type(struct elevator_type *type)
{
	struct elv_fs_entry *entry;

	for (entry = type->elevator_attrs; entry && entry->attr.name; entry++)
		kfree(entry->attr.name);
	kfree(type->elevator_attrs);
	kfree(type->elevator_name);
	type->elevator_attrs = NULL;
	type->elevator_name = NULL;
}

static int fill_type(const struct scheduler *s)
{
	struct blklab_description d = s->hooks->describe();
	struct elevator_type *type = s->type;
	struct elv_fs_entry *entries;
	u32 i;

	if (WARN_ON(d.nr_files > MAX_FILES))
		return -EINVAL;
	type->elevator_name = name_of(&d);
	type->elevator_attrs = entries = kcalloc(d.nr_files + 1, sizeof(*entries), GFP_KERNEL);
	if (!type->elevator_name || !entries)
		return -ENOMEM;
	if (d.has_submitters) {
		type->icq_size = sizeof(struct blklab_icq);
		type->icq_align = __alignof__(struct blklab_icq);
		type->ops.init_icq = blklab_init_icq;
		type->ops.exit_icq = blklab_exit_icq;
		type->ops.prepare_request = blklab_prepare_icq;
		type->ops.limit_depth = blklab_limit_depth_icq;
	}
	for (i = 0; i < d.nr_files; i++) {
		struct blklab_file file = s->hooks->file(i);

		entries[i] = by_number[i];
		entries[i].attr.mode = (file.readable ? 0444 : 0) | (file.writable ? 0200 : 0);
		entries[i].attr.name = kstrndup(file.name, file.name_length, GFP_KERNEL);
		if (!entries[i].attr.name)
			return -ENOMEM;
	}
	return 0;
}

static void unregister(size_t count)
{
	while (count--) {
		elv_unregister(schedulers[count].type);
		free_type(schedulers[count].type);
	}
	/* Wait until call_rcu has freed the io_cqs, which are in the types' caches. */
	rcu_barrier();
}

static void free_reserve(void)
{
	gen_pool_destroy(reserve);
	vfree(reserve_memory);
}

static int __init blklab_init(void)
{
	size_t i;
	int error;

	reserve = gen_pool_create(ilog2(HEADER), NUMA_NO_NODE);
	if (!reserve)
		return -ENOMEM;
	reserve_memory = vmalloc(RESERVE_BYTES);
	error = reserve_memory ? gen_pool_add(reserve, (unsigned long)reserve_memory,
					      RESERVE_BYTES, NUMA_NO_NODE) : -ENOMEM;
	for (i = 0; !error && i < ARRAY_SIZE(schedulers); i++) {
		error = fill_type(&schedulers[i]);
		error = error ?: elv_register(schedulers[i].type);
		if (error) {
			pr_err("blklab: %s cannot be registered: %d\n",
			       schedulers[i].type->elevator_name, error);
			free_type(schedulers[i].type);
			unregister(i);
		}
	}
	if (error)
		free_reserve();
	return error;
}

static void __exit blklab_exit(void)
{
	unregister(ARRAY_SIZE(schedulers));
#ifdef BLKLAB_DEBUG
	WARN(atomic_long_read(&allocated), "blklab: %ld blocks of memory were leaked\n",
	     atomic_long_read(&allocated));
#endif
	flush_work(&vfree_work);
	free_reserve();
}

module_init(blklab_init);
module_exit(blklab_exit);

MODULE_DESCRIPTION("blklab's I/O schedulers");
MODULE_LICENSE("GPL");
