//! The guarded functions for x86-64, and the change of the instruction pointer after a fault in them.
//! They are leaf functions in one range of addresses: the handler recognizes a fault by the range, and nothing has to be unwound.

use core::arch::global_asm;
use core::ffi::c_int;

/// A fault in the functions of this file ends the copy.
pub(super) const CATCHES: bool = true;

// System V AMD64 calling convention: arguments in rdi, rsi, rdx and rcx, the result in eax, only caller-saved registers are written. Nothing
// is pushed between `begin` and `end`, so `fault` returns to the caller from everywhere.
global_asm!(
    ".pushsection .text.verbena_mem_guarded, \"ax\", @progbits",
    ".p2align 6",
    ".hidden verbena_mem_guarded_begin",
    ".globl verbena_mem_guarded_begin",
    "verbena_mem_guarded_begin:",
    // copy(to, from, len): short lengths by overlapping loads, all of which come before the stores.
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
    "cmp rdx, 64",
    "ja 14f",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "movups [rdi + rdx - 32], xmm4",
    "movups [rdi + rdx - 16], xmm5",
    "xor eax, eax",
    "ret",
    "14: lea r8, [rdi + rdx - 32]",
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
    // copy_word(to, from, len): one to eight bytes, none of them stored twice.
    ".hidden verbena_mem_guarded_copy_word",
    ".globl verbena_mem_guarded_copy_word",
    "verbena_mem_guarded_copy_word:",
    "test dl, 8",
    "jne 33f",
    "test dl, 4",
    "je 30f",
    "mov eax, [rsi]",
    "mov [rdi], eax",
    "add rsi, 4",
    "add rdi, 4",
    "30: test dl, 2",
    "je 31f",
    "movzx eax, word ptr [rsi]",
    "mov [rdi], ax",
    "add rsi, 2",
    "add rdi, 2",
    "31: test dl, 1",
    "je 32f",
    "movzx eax, byte ptr [rsi]",
    "mov [rdi], al",
    "32: xor eax, eax",
    "ret",
    "33: mov rax, [rsi]",
    "mov [rdi], rax",
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
    #[link_name = "verbena_mem_guarded_copy_word"]
    pub(super) fn copy_word(to: *mut u8, from: *const u8, len: usize) -> c_int;
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

/// If the fault was in a function of this file, has the thread continue at `fault`, and returns true.
///
/// # Safety
/// `context` is the third argument of a signal handler that is running.
pub(super) unsafe fn leave(context: *mut core::ffi::c_void) -> bool {
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: `context` points to the kernel's `ucontext_t`, which is valid and may be changed until the handler returns.
    let at = unsafe { &raw mut (*context).uc_mcontext.gregs[libc::REG_RIP as usize] };
    let addr = |label: *const u8| label.addr() as i64;
    // SAFETY: `at` points into the `ucontext_t` of the running handler, which only this thread accesses; of the labels only the addresses are taken.
    unsafe {
        let ours =
            addr(&raw const verbena_mem_guarded_begin)..addr(&raw const verbena_mem_guarded_end);
        let within = ours.contains(&*at);
        if within {
            *at = addr(&raw const verbena_mem_guarded_fault);
        }
        within
    }
}
