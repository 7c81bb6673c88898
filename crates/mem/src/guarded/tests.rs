//! Guarded copies: all lengths and alignments, memory that is unmapped or read-only at every offset, and faults of other code.

use super::*;

const PAGE: usize = 4096;

/// Two pages of which the second has no access.
struct HalfMapped(*mut u8);

impl HalfMapped {
    fn new() -> HalfMapped {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: `MAP_FIXED` is not set, so that the kernel chooses two unused pages.
        let at = unsafe { libc::mmap(core::ptr::null_mut(), 2 * PAGE, rights, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        let at = at.cast::<u8>();
        // SAFETY: the second page of this mapping, which nothing uses yet.
        let refused = unsafe { libc::mprotect(at.add(PAGE).cast(), PAGE, libc::PROT_NONE) };
        assert_eq!(refused, 0);
        HalfMapped(at)
    }

    /// The address of the last `n` bytes with access.
    fn last(&self, n: usize) -> *mut u8 {
        self.0.wrapping_add(PAGE - n)
    }
}

impl Drop for HalfMapped {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`; no pointer into it is used afterwards.
        unsafe { libc::munmap(self.0.cast(), 2 * PAGE) };
    }
}

#[test]
fn copies_are_exact_at_every_length_and_alignment() {
    catch_faults();
    let from: Vec<u8> = (0..5000_u32).map(|n| (n * 7 + 1) as u8).collect();
    let lengths = (0..=300).chain([511, 1023, 1024, 1025, 2048, 4095, 4096, 4900]);
    for len in lengths {
        for (at, into) in [(0, 0), (1, 0), (0, 3), (7, 5), (15, 16)] {
            let mut to = vec![0xee_u8; len + 40];
            // SAFETY: both buffers have that many bytes from these offsets on.
            let copied = unsafe { copy(to.as_mut_ptr().add(into), from.as_ptr().add(at), len) };
            assert_eq!(copied, Ok(()));
            assert_eq!(to[into..into + len], from[at..at + len], "{len} bytes");
            let around = to[..into].iter().chain(&to[into + len..]);
            assert!(around.copied().all(|byte| byte == 0xee), "{len} bytes");
        }
    }
}

#[test]
fn a_fault_ends_the_copy() {
    catch_faults();
    let memory = HalfMapped::new();
    let mut own = vec![5_u8; 5000];
    for len in [1, 3, 4, 8, 12, 16, 20, 33, 64, 200, 1024, 1025, 4097] {
        for inside in [0, len / 2, len - 1] {
            let at = memory.last(inside.min(PAGE));
            // SAFETY: the fault is caught, which is what is tested; `own` has that many bytes.
            unsafe {
                assert_eq!(copy(at, own.as_ptr(), len), Err(Unmapped), "to, {len}");
                assert_eq!(
                    copy(own.as_mut_ptr(), at, len),
                    Err(Unmapped),
                    "from, {len}"
                );
            }
        }
        let at = memory.last(len.min(PAGE));
        // SAFETY: within the first page.
        assert_eq!(unsafe { copy(at, own.as_ptr(), len.min(PAGE)) }, Ok(()));
    }
    let word = memory.last(0);
    // SAFETY: the fault is caught, which is what is tested.
    unsafe {
        for len in 1..=8 {
            assert_eq!(copy_word(word, own.as_ptr(), len), Err(Unmapped), "{len}");
        }
        assert_eq!(fetch_add(word.cast(), 1), Err(Unmapped));
        assert_eq!(compare_exchange(word.cast(), 1, 2), Err(Unmapped));
    }
}

#[test]
fn words_are_added_to_and_exchanged() {
    let mut words = [7_u64, 7];
    let word = words.as_mut_ptr();
    // SAFETY: both words are local variables and aligned.
    unsafe {
        assert_eq!(fetch_add(word, 3), Ok(7));
        assert_eq!(compare_exchange(word, 7, 1), Ok(10));
        assert_eq!(compare_exchange(word, 10, 1), Ok(10));
    }
    assert_eq!(words, [1, 7]);
}

#[test]
fn words_are_copied_at_every_length_and_offset() {
    let from: Vec<u8> = (1..=16).collect();
    for at in 0..8 {
        for len in 1..=8 - at {
            let mut word = [0_u64];
            let to = word.as_mut_ptr().cast::<u8>();
            // SAFETY: the bytes lie in the local `word`, and `from` has more than eight from offset 3 on.
            let copied = unsafe { copy_word(to.add(at), from.as_ptr().add(3), len) };
            assert_eq!(copied, Ok(()));
            let mut expected = [0; 8];
            expected[at..at + len].copy_from_slice(&from[3..3 + len]);
            assert_eq!(word[0].to_ne_bytes(), expected, "{len} bytes at {at}");
        }
    }
}

#[test]
fn a_truncated_file_ends_the_copy() {
    catch_faults();
    let file = rustix::fs::memfd_create("truncated", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, PAGE as u64).unwrap();
    let file = std::fs::File::from(file);
    use std::os::fd::AsRawFd;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let (fd, shared) = (file.as_raw_fd(), libc::MAP_SHARED);
    // SAFETY: `MAP_FIXED` is not set, so that the kernel chooses an unused page; `fd` is an open file of this size.
    let at = unsafe { libc::mmap(core::ptr::null_mut(), PAGE, rights, shared, fd, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    file.set_len(0).unwrap();
    let mut byte = 0_u8;
    // SAFETY: the fault is caught, which is what is tested; only this test uses the mapping that is removed.
    unsafe {
        assert_eq!(copy(&raw mut byte, at.cast(), 1), Err(Unmapped));
        assert_eq!(copy(at.cast(), &raw const byte, 1), Err(Unmapped));
        libc::munmap(at, PAGE);
    }
}

/// A fault outside of a guarded copy ends the process with its signal, by the default action or by the handler that was there before;
/// and so does a signal that is sent.
#[test]
fn other_faults_are_passed_on() {
    use std::os::unix::process::ExitStatusExt;
    let program = std::env::current_exe().unwrap();
    for how in ["chained", "access", "sent"] {
        let child = std::process::Command::new(&program)
            .args([
                "--exact",
                "guarded::tests::child_that_faults",
                "--nocapture",
            ])
            .env("VERBENA_TEST_FAULT", how)
            .output()
            .unwrap();
        assert_eq!(
            child.status.signal(),
            Some(libc::SIGSEGV),
            "{how}: {child:?}"
        );
    }
}

#[test]
fn child_that_faults() {
    let Ok(how) = std::env::var("VERBENA_TEST_FAULT") else {
        return;
    };
    let memory = HalfMapped::new();
    // SAFETY: the fault ends this process, which the other test expects. The standard library's handler may be replaced.
    unsafe {
        if how != "chained" {
            libc::signal(libc::SIGSEGV, libc::SIG_DFL);
        }
        catch_faults();
        if how == "sent" {
            libc::raise(libc::SIGSEGV);
        }
        memory.last(0).write_volatile(1);
    }
    unreachable!("{how}");
}
