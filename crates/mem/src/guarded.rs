//! Copies from and to registered memory that survive its unmapping.
//!
//! A program may unmap, truncate or protect memory that it has registered. System calls answer that with `EFAULT`; a copy in user space
//! would get `SIGSEGV` or `SIGBUS`. The functions here are one piece of assembly without stack frames, and [`catch_faults`] installs a
//! handler that continues a fault within that piece at its failure exit, as the kernel does with its exception table: the copy returns
//! [`Unmapped`]. Faults elsewhere go to the handler that was there before. Other processors than x86-64 copy without protection.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

/// Registered memory is not mapped any more, or not with the rights that it had. A part of it may have been copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unmapped;

#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
mod arch {
    use core::arch::global_asm;
    use core::ffi::c_int;

    // System V AMD64 calls: arguments in rdi, rsi, rdx and rcx, the result in eax, no register is preserved that is written. Nothing is
    // pushed between `begin` and `end`, so `fault` returns to the caller from everywhere.
    global_asm!(
        ".pushsection .text.verbena_mem_guarded, \"ax\", @progbits",
        ".p2align 6",
        ".hidden verbena_mem_guarded_begin",
        ".globl verbena_mem_guarded_begin",
        "verbena_mem_guarded_begin:",
        // copy(to, from, len): short pieces by overlapping loads, all of which come before the stores.
        ".hidden verbena_mem_guarded_copy",
        ".globl verbena_mem_guarded_copy",
        "verbena_mem_guarded_copy:",
        "cmp rdx, 16",
        "jb 20f",
        "cmp rdx, 32",
        "ja 10f",
        "movups xmm0, [rsi]",
        "movups xmm1, [rsi + rdx - 16]",
        "movups [rdi], xmm0",
        "movups [rdi + rdx - 16], xmm1",
        "xor eax, eax",
        "ret",
        // The last 32 bytes are loaded first and stored last.
        "10: movups xmm4, [rsi + rdx - 32]",
        "movups xmm5, [rsi + rdx - 16]",
        "lea r8, [rdi + rdx - 32]",
        "cmp rdx, 96",
        "jb 12f",
        "lea r9, [r8 - 32]",
        "11: movups xmm0, [rsi]",
        "movups xmm1, [rsi + 16]",
        "movups xmm2, [rsi + 32]",
        "movups xmm3, [rsi + 48]",
        "movups [rdi], xmm0",
        "movups [rdi + 16], xmm1",
        "movups [rdi + 32], xmm2",
        "movups [rdi + 48], xmm3",
        "add rsi, 64",
        "add rdi, 64",
        "cmp rdi, r9",
        "jb 11b",
        "cmp rdi, r8",
        "jae 13f",
        "12: movups xmm0, [rsi]",
        "movups xmm1, [rsi + 16]",
        "movups [rdi], xmm0",
        "movups [rdi + 16], xmm1",
        "add rsi, 32",
        "add rdi, 32",
        "cmp rdi, r8",
        "jb 12b",
        "13: movups [r8], xmm4",
        "movups [r8 + 16], xmm5",
        "xor eax, eax",
        "ret",
        "20: cmp rdx, 8",
        "jb 21f",
        "mov rax, [rsi]",
        "mov rcx, [rsi + rdx - 8]",
        "mov [rdi], rax",
        "mov [rdi + rdx - 8], rcx",
        "xor eax, eax",
        "ret",
        "21: cmp rdx, 4",
        "jb 22f",
        "mov eax, [rsi]",
        "mov ecx, [rsi + rdx - 4]",
        "mov [rdi], eax",
        "mov [rdi + rdx - 4], ecx",
        "xor eax, eax",
        "ret",
        "22: test rdx, rdx",
        "je 23f",
        "mov r8, rdx",
        "shr r8, 1",
        "movzx eax, byte ptr [rsi]",
        "movzx ecx, byte ptr [rsi + r8]",
        "movzx r9d, byte ptr [rsi + rdx - 1]",
        "mov [rdi], al",
        "mov [rdi + r8], cl",
        "mov [rdi + rdx - 1], r9b",
        "23: xor eax, eax",
        "ret",
        // copy_long(to, from, len)
        ".hidden verbena_mem_guarded_copy_long",
        ".globl verbena_mem_guarded_copy_long",
        "verbena_mem_guarded_copy_long:",
        "mov rcx, rdx",
        "rep movsb",
        "xor eax, eax",
        "ret",
        // store_8, store_32 and store_64(to, value)
        ".hidden verbena_mem_guarded_store_8",
        ".globl verbena_mem_guarded_store_8",
        "verbena_mem_guarded_store_8:",
        "mov [rdi], sil",
        "xor eax, eax",
        "ret",
        ".hidden verbena_mem_guarded_store_32",
        ".globl verbena_mem_guarded_store_32",
        "verbena_mem_guarded_store_32:",
        "mov [rdi], esi",
        "xor eax, eax",
        "ret",
        ".hidden verbena_mem_guarded_store_64",
        ".globl verbena_mem_guarded_store_64",
        "verbena_mem_guarded_store_64:",
        "mov [rdi], rsi",
        "xor eax, eax",
        "ret",
        // fetch_add(word, add, before)
        ".hidden verbena_mem_guarded_fetch_add",
        ".globl verbena_mem_guarded_fetch_add",
        "verbena_mem_guarded_fetch_add:",
        "lock xadd [rdi], rsi",
        "mov [rdx], rsi",
        "xor eax, eax",
        "ret",
        // compare_exchange(word, expected, new, before)
        ".hidden verbena_mem_guarded_compare_exchange",
        ".globl verbena_mem_guarded_compare_exchange",
        "verbena_mem_guarded_compare_exchange:",
        "mov rax, rsi",
        "lock cmpxchg [rdi], rdx",
        "mov [rcx], rax",
        "xor eax, eax",
        "ret",
        ".hidden verbena_mem_guarded_end",
        ".globl verbena_mem_guarded_end",
        "verbena_mem_guarded_end:",
        ".hidden verbena_mem_guarded_fault",
        ".globl verbena_mem_guarded_fault",
        "verbena_mem_guarded_fault:",
        "mov eax, 1",
        "ret",
        ".popsection",
    );

    unsafe extern "C" {
        static verbena_mem_guarded_begin: u8;
        static verbena_mem_guarded_end: u8;
        static verbena_mem_guarded_fault: u8;
        #[link_name = "verbena_mem_guarded_copy"]
        pub(super) fn copy(to: *mut u8, from: *const u8, len: usize) -> c_int;
        #[link_name = "verbena_mem_guarded_copy_long"]
        pub(super) fn copy_long(to: *mut u8, from: *const u8, len: usize) -> c_int;
        #[link_name = "verbena_mem_guarded_store_8"]
        pub(super) fn store_8(to: *mut u8, value: u8) -> c_int;
        #[link_name = "verbena_mem_guarded_store_32"]
        pub(super) fn store_32(to: *mut u32, value: u32) -> c_int;
        #[link_name = "verbena_mem_guarded_store_64"]
        pub(super) fn store_64(to: *mut u64, value: u64) -> c_int;
        #[link_name = "verbena_mem_guarded_fetch_add"]
        pub(super) fn fetch_add(word: *mut u64, add: u64, before: *mut u64) -> c_int;
        #[link_name = "verbena_mem_guarded_compare_exchange"]
        pub(super) fn compare_exchange(
            word: *mut u64,
            expected: u64,
            new: u64,
            before: *mut u64,
        ) -> c_int;
    }

    /// From how many bytes on `copy_long` is the faster one, on processors with fast string operations (ERMSB): measured with 8 B to
    /// 256 KiB, it takes half the time of `copy` at 4 KiB, and twice at 1 KiB.
    pub(super) fn long() -> usize {
        if std::arch::is_x86_feature_detected!("ermsb") {
            2048
        } else {
            usize::MAX
        }
    }

    /// Where the thread goes on, if this context is of a fault in a function of ours.
    ///
    /// # Safety
    /// `context` is the third argument of a signal handler, which runs.
    pub(super) unsafe fn leave(context: *mut core::ffi::c_void) -> bool {
        let context = context.cast::<libc::ucontext_t>();
        // SAFETY: the kernel's context, which lives and is ours to change until the handler returns.
        let at = unsafe { &raw mut (*context).uc_mcontext.gregs[libc::REG_RIP as usize] };
        let addr = |label: *const u8| label.addr() as i64;
        // SAFETY: as above; of the labels only the addresses are taken.
        unsafe {
            let ours = addr(&raw const verbena_mem_guarded_begin)
                ..addr(&raw const verbena_mem_guarded_end);
            let within = ours.contains(&*at);
            if within {
                *at = addr(&raw const verbena_mem_guarded_fault);
            }
            within
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
mod arch {
    use core::ffi::c_int;
    use core::sync::atomic::{AtomicU64, Ordering};

    // SAFETY, of all: the caller's contract is that of the guarded functions, and the memory is mapped.
    pub(super) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> c_int {
        // SAFETY: see above.
        unsafe { core::ptr::copy_nonoverlapping(from, to, len) };
        0
    }

    pub(super) use copy as copy_long;

    pub(super) fn long() -> usize {
        usize::MAX
    }

    pub(super) unsafe fn store_8(to: *mut u8, value: u8) -> c_int {
        // SAFETY: see above.
        unsafe { to.write_volatile(value) };
        0
    }

    pub(super) unsafe fn store_32(to: *mut u32, value: u32) -> c_int {
        // SAFETY: see above.
        unsafe { to.write_volatile(value) };
        0
    }

    pub(super) unsafe fn store_64(to: *mut u64, value: u64) -> c_int {
        // SAFETY: see above.
        unsafe { to.write_volatile(value) };
        0
    }

    pub(super) unsafe fn fetch_add(word: *mut u64, add: u64, before: *mut u64) -> c_int {
        // SAFETY: see above; the word is aligned.
        unsafe { *before = AtomicU64::from_ptr(word).fetch_add(add, Ordering::SeqCst) };
        0
    }

    pub(super) unsafe fn compare_exchange(
        word: *mut u64,
        expected: u64,
        new: u64,
        before: *mut u64,
    ) -> c_int {
        let order = Ordering::SeqCst;
        // SAFETY: see above; the word is aligned.
        unsafe {
            let word = AtomicU64::from_ptr(word);
            let (Ok(value) | Err(value)) = word.compare_exchange(expected, new, order, order);
            *before = value;
        }
        0
    }

    pub(super) unsafe fn leave(_: *mut core::ffi::c_void) -> bool {
        false
    }
}

/// `arch::long`, once it is known.
static LONG: AtomicUsize = AtomicUsize::new(usize::MAX);

fn done(answer: c_int) -> Result<(), Unmapped> {
    if answer == 0 { Ok(()) } else { Err(Unmapped) }
}

/// Copies `len` bytes.
///
/// # Safety
/// Each side is memory of this process that the caller may read or write, or is registered memory under a grant; no reference to the
/// bytes at `to` exists, and the two do not overlap.
#[inline]
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> Result<(), Unmapped> {
    // SAFETY: the caller's contract.
    done(unsafe {
        if len < LONG.load(Ordering::Relaxed) {
            arch::copy(to, from, len)
        } else {
            arch::copy_long(to, from, len)
        }
    })
}

/// Writes one byte.
///
/// # Safety
/// As [`copy`].
pub(crate) unsafe fn store_8(to: *mut u8, value: u8) -> Result<(), Unmapped> {
    // SAFETY: the caller's contract.
    done(unsafe { arch::store_8(to, value) })
}

/// Writes four bytes at once.
///
/// # Safety
/// As [`copy`], and `to` is aligned.
pub(crate) unsafe fn store_32(to: *mut u32, value: u32) -> Result<(), Unmapped> {
    // SAFETY: the caller's contract.
    done(unsafe { arch::store_32(to, value) })
}

/// Writes eight bytes at once.
///
/// # Safety
/// As [`copy`], and `to` is aligned.
pub(crate) unsafe fn store_64(to: *mut u64, value: u64) -> Result<(), Unmapped> {
    // SAFETY: the caller's contract.
    done(unsafe { arch::store_64(to, value) })
}

/// Adds to a word atomically, and returns the value before.
///
/// # Safety
/// As [`copy`], and the word is aligned.
pub(crate) unsafe fn fetch_add(word: *mut u64, add: u64) -> Result<u64, Unmapped> {
    let mut before = 0;
    // SAFETY: the caller's contract; `before` is ours.
    done(unsafe { arch::fetch_add(word, add, &raw mut before) }).map(|()| before)
}

/// Writes `new` atomically if the word is `expected`, and returns the value before.
///
/// # Safety
/// As [`copy`], and the word is aligned.
pub(crate) unsafe fn compare_exchange(
    word: *mut u64,
    expected: u64,
    new: u64,
) -> Result<u64, Unmapped> {
    let mut before = 0;
    // SAFETY: the caller's contract; `before` is ours.
    done(unsafe { arch::compare_exchange(word, expected, new, &raw mut before) }).map(|()| before)
}

/// The signals of an access to memory that is not there: unmapped or protected, and beyond the end of a mapped file.
const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// The actions that were there before ours.
static BEFORE: [std::sync::OnceLock<libc::sigaction>; 2] =
    [const { std::sync::OnceLock::new() }; 2];

/// Has faults in copies from and to registered memory end the copy instead of the process, from now on. Handlers of other faults that are
/// installed before keep working; one that is installed later without passing faults on ends this protection.
pub fn catch_faults() {
    LONG.store(arch::long(), Ordering::Relaxed);
    for (signal, before) in SIGNALS.into_iter().zip(&BEFORE) {
        // Installed once, whichever thread comes first.
        before.get_or_init(|| {
            // SAFETY: zeroes are a valid action.
            let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
            let mut before = action;
            action.sa_sigaction = on_fault as *const () as usize;
            // On the alternate stack where there is one: a stack overflow is a fault, too.
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            // SAFETY: both are valid actions that outlive the calls, and the handler only calls what a handler may.
            unsafe {
                libc::sigaction(signal, core::ptr::null(), &raw mut before);
                libc::sigaction(signal, &raw const action, core::ptr::null_mut());
            }
            before
        });
    }
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel calls this with a context.
    if unsafe { arch::leave(context) } {
        return;
    }
    let known = SIGNALS.iter().position(|one| *one == signal);
    let before = known.and_then(|at| BEFORE[at].get());
    match before {
        Some(before)
            if before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != libc::SIG_IGN =>
        {
            if before.sa_flags & libc::SA_SIGINFO != 0 {
                // SAFETY: an action with this flag has a handler of this type; the address is not null.
                let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                    unsafe { core::mem::transmute(before.sa_sigaction) };
                handler(signal, info, context);
            } else {
                // SAFETY: an action without the flag has a handler of this type; the address is not null.
                let handler: extern "C" fn(c_int) =
                    unsafe { core::mem::transmute(before.sa_sigaction) };
                handler(signal);
            }
        }
        _ => {
            // The default: the instruction runs again and faults with no handler; a signal that was sent is sent again.
            // SAFETY: zeroes are the default action; `info` is the kernel's, and both calls are allowed in a handler.
            unsafe {
                let action: libc::sigaction = core::mem::zeroed();
                libc::sigaction(signal, &raw const action, core::ptr::null_mut());
                if (*info).si_code <= 0 {
                    libc::raise(signal);
                }
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
