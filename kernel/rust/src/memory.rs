//! Memory and panics, which are the kernel's.

use core::alloc::{GlobalAlloc, Layout};

unsafe extern "C" {
    /// Memory of so many bytes that any context may ask for, or null.
    fn blklab_alloc(size: usize, align: usize) -> *mut u8;
    fn blklab_free(memory: *mut u8);
    /// Says why and ends in `BUG()`.
    fn blklab_panic(message: *const u8, length: usize, line: u32) -> !;
}

struct Kernel;

// Safety: the module's functions keep the promises of `malloc` and `free`.
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

/// A broken promise of ours: the place, without the message, whose making could
/// need memory.
#[panic_handler]
pub fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let (file, line) = info.location().map_or(("", 0), |l| (l.file(), l.line()));
    unsafe { blklab_panic(file.as_ptr(), file.len(), line) }
}

/// Division of 128 bits, which the compiler asks for by this name and the kernel
/// does not have: bit by bit, since it is rare (adios halves its samples).
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
