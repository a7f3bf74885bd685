//! The schedulers of `blklab-elevator` behind C functions, for the kernel module.
//!
//! Each scheduler has its own set of functions, `blklab_NAME_HOOK`, so that the calls for
//! a request are direct. The module calls them with its lock held. It owns the kernel's
//! requests; each has a copy in [`Requests`], which is what the scheduler sees. The kernel
//! merges and calls the hooks for it; the merge code of `blklab-blk` is switched off.

#![no_std]

extern crate alloc;

mod queue;
mod tunables;

use core::alloc::{GlobalAlloc, Layout};

use blklab_blk::QueueInfo;
use queue::{Inserted, Queue, Shape, View};
use tunables::{Description, File};

/// The functions of one scheduler, declared in C by `glue.h`. [`Queue`] documents them.
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
                fn state(q: Q, id: u32, out: *mut u8, room: usize) -> usize =
                    unsafe { (*q).state(id, core::slice::from_raw_parts_mut(out, room)) };
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

// The module's functions for memory and panics.

unsafe extern "C" {
    /// Allocates memory in any context; null if there is none.
    fn blklab_alloc(size: usize, align: usize) -> *mut u8;
    fn blklab_free(memory: *mut u8);
    /// Prints the place of a panic and calls `BUG()`.
    fn blklab_panic(message: *const u8, length: usize, line: u32) -> !;
}

struct Kernel;

// Safety: the module's functions have the guarantees of `malloc` and `free`.
unsafe impl GlobalAlloc for Kernel {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        unsafe { blklab_alloc(layout.size(), layout.align()) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, _layout: Layout) {
        unsafe { blklab_free(memory) }
    }
}

#[global_allocator]
static KERNEL: Kernel = Kernel;

/// Reports the place of a panic without its message, because formatting could allocate.
#[panic_handler]
pub fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let (file, line) = info.location().map_or(("", 0), |l| (l.file(), l.line()));
    unsafe { blklab_panic(file.as_ptr(), file.len(), line) }
}

/// Division of 128 bits, which the compiler calls by this name and the kernel lacks. It
/// goes bit by bit, because only adios needs it, and rarely.
#[unsafe(no_mangle)]
extern "C" fn __udivti3(dividend: u128, divisor: u128) -> u128 {
    let (mut quotient, mut rest) = (0, 0);
    for bit in (0..128).rev() {
        rest = rest << 1 | (dividend >> bit & 1);
        if rest >= divisor {
            rest -= divisor;
            quotient |= 1 << bit;
        }
    }
    quotient
}
