//! The schedulers of `blklab-elevator` behind C functions, for the kernel module.
//!
//! Each scheduler has its own set of functions, `blklab_NAME_HOOK`, so that no
//! call on the way of a request goes through a table. The module calls them with
//! its lock held; it owns the requests, and each has a mirror in [`Requests`],
//! which is what a scheduler sees. Merging is the kernel's: it asks through the
//! hooks, and the merge code of `blklab-blk` is switched off.

#![no_std]

extern crate alloc;

mod memory;
mod queue;
mod tunables;

use blklab_blk::QueueInfo;
use queue::{Inserted, Queue, Shape, View};
use tunables::{Description, File};

pub use memory::panic;

/// The functions of one scheduler. `glue.h` says the same in C; what a hook does
/// is told at [`Queue`].
macro_rules! hooks {
    ($($module:ident $Type:ident $DECLARATION:ident)*) => {
        $(hooks!(@one $module $Type $DECLARATION);)*
    };
    (@one $module:ident $Type:ident $DECLARATION:ident) => {
        mod $module {
            use super::*;
            use blklab_elevator::types::{$DECLARATION as DECLARATION, $Type as Scheduler};

            type Q = *mut Queue<Scheduler>;

            hooks! { @functions $module
                fn describe() -> Description = Description::of::<Scheduler>(&DECLARATION);
                fn file(number: u32) -> File = File::of(&DECLARATION, number as usize);
                fn create(d: &Shape) -> Q =
                    Queue::create(Scheduler::new(&QueueInfo::from(d)), d);
                fn limit_depth(q: Q, bio: &View) -> u32 = unsafe { &mut *q }.limit_depth(bio);
                fn insert(q: Q, now_ns: u64, id: u32, rq: &View, at_head: bool) -> Inserted =
                    unsafe { &mut *q }.insert(now_ns, id, rq, at_head);
                fn dispatch(q: Q, now_ns: u64, hctx: u32) -> u32 =
                    unsafe { &mut *q }.dispatch(now_ns, hctx);
                fn bio_merge(q: Q, now_ns: u64, bio: &View) -> u32 =
                    unsafe { &mut *q }.bio_merge(now_ns, bio);
                fn request_merge(q: Q, now_ns: u64, bio: &View) -> u32 =
                    unsafe { &mut *q }.request_merge(now_ns, bio);
                fn allow_merge(q: Q, now_ns: u64, id: u32, bio: &View) -> bool =
                    unsafe { &mut *q }.allow_merge(now_ns, id, bio);
                fn request_merged(q: Q, now_ns: u64, id: u32, rq: &View, front: bool) =
                    unsafe { &mut *q }.request_merged(now_ns, id, rq, front);
                fn requests_merged(q: Q, now_ns: u64, id: u32, rq: &View, next: u32) =
                    unsafe { &mut *q }.requests_merged(now_ns, id, rq, next);
                fn former(q: Q, now_ns: u64, id: u32) -> u32 =
                    unsafe { &mut *q }.former(now_ns, id);
                fn next(q: Q, now_ns: u64, id: u32) -> u32 =
                    unsafe { &mut *q }.next(now_ns, id);
                fn requeue(q: Q, now_ns: u64, id: u32) =
                    unsafe { &mut *q }.requeue(now_ns, id);
                fn finish(q: Q, now_ns: u64, id: u32, is_done: bool) =
                    unsafe { &mut *q }.finish(now_ns, id, is_done);
                fn exit_submitter(q: Q, now_ns: u64, submitter: u32) =
                    unsafe { &mut *q }.exit_submitter(now_ns, submitter);
                fn timer(q: Q, now_ns: u64) -> bool = unsafe { &mut *q }.timer(now_ns);
                fn next_run(q: Q) -> u32 = unsafe { &mut *q }.next_run();
                fn resize(q: Q, d: &Shape) = unsafe { &mut *q }.resize(d);
                fn show(q: Q, file: u32, out: *mut u8, room: usize) -> usize =
                    unsafe { (*q).show(file, core::slice::from_raw_parts_mut(out, room)) };
                fn store(q: Q, file: u32, text: *const u8, length: usize) -> bool =
                    unsafe { (*q).store(file, core::slice::from_raw_parts(text, length)) };
                fn destroy(q: Q) = unsafe { Queue::destroy(q) };
            }
        }
    };
    (@functions $module:ident
        $(fn $hook:ident($($name:ident: $Type:ty),*) $(-> $Returned:ty)? = $body:expr;)*
    ) => {
        $(
            #[unsafe(export_name = concat!("blklab_", stringify!($module), "_", stringify!($hook)))]
            extern "C" fn $hook($($name: $Type),*) $(-> $Returned)? {
                $body
            }
        )*
    };
}

blklab_elevator::for_each_scheduler!(hooks);
