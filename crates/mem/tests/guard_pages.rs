//! Every boundary of M6 and M7 next to memory without access: one byte too far raises SIGSEGV and ends this program.
//! Regions end, or begin, exactly at a page without any protection bits, in one run and scattered over pages.

use std::ptr;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use verbena_mem::att::Page;
use verbena_mem::{
    Access, Att, Bind, MemAccess, Misuse, PageSize, Pd, Placement, Policy, Refusal, Region, Tpt,
    WindowType, atomic,
};
use verbena_wire::rdmap::AtomicOp;
use verbena_wire::{Stag, To};

const PAGE: usize = 4096;
const PD: Pd = Pd(1);
const QP: u32 = 5;

/// Accessible pages, each between two that are not.
struct Guarded {
    map: *mut u8,
    pages: usize,
}

impl Guarded {
    fn new(pages: usize) -> Guarded {
        let len = (2 * pages + 1) * PAGE;
        // SAFETY: `MAP_FIXED` is not set, so that the kernel chooses `len` unused bytes; they are inaccessible.
        let map = unsafe {
            mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), MapFlags::PRIVATE).unwrap()
        };
        let guarded = Guarded {
            map: map.cast(),
            pages,
        };
        for page in 0..pages {
            let open = MprotectFlags::READ | MprotectFlags::WRITE;
            // SAFETY: a page of this mapping, which nothing uses yet.
            unsafe { mprotect(guarded.page(page).cast(), PAGE, open).unwrap() };
        }
        guarded
    }

    /// The first byte of an accessible page.
    fn page(&self, page: usize) -> *mut u8 {
        self.map.wrapping_add((2 * page + 1) * PAGE)
    }

    fn fill(&self, byte: u8) {
        for page in 0..self.pages {
            // SAFETY: the page is accessible, and no grant is running while a test fills it.
            unsafe { ptr::write_bytes(self.page(page), byte, PAGE) };
        }
    }

    /// All accessible bytes, one page after the other.
    fn bytes(&self) -> Vec<u8> {
        let mut all = vec![0; self.pages * PAGE];
        for (page, copy) in all.chunks_mut(PAGE).enumerate() {
            // SAFETY: the page is accessible, and no grant is running while a test reads it.
            unsafe { ptr::copy_nonoverlapping(self.page(page), copy.as_mut_ptr(), PAGE) };
        }
        all
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`; every table with a region in it is declared later and dropped before.
        unsafe { munmap(self.map.cast(), (2 * self.pages + 1) * PAGE).unwrap() };
    }
}

fn register(tpt: &Tpt, att: Att, start: u64, access: Access) -> Result<Stag, Misuse> {
    let start = To::new(start);
    // SAFETY: the tests keep the mapping until their table is dropped.
    unsafe {
        tpt.register(Region {
            att,
            start,
            pd: PD,
            access,
            one_touch: false,
        })
    }
}

fn table() -> Tpt {
    Tpt::new(1..100, Policy::Verbs, 3)
}

/// Reads and writes all of `at..at + len` by local and remote grants; all of them succeed or fail alike.
fn touch(tpt: &Tpt, stag: Stag, at: u64, len: u64, byte: u8) -> Result<(), Refusal> {
    let reach = |needs| MemAccess {
        stag,
        at,
        len,
        pd: PD,
        qp: QP,
        needs,
    };
    let write = |place: Placement<'_>| {
        // More than the grant covers: the copy must stop at its end.
        assert_eq!(
            place.write(0, &vec![byte; len as usize + 2 * PAGE]),
            Ok(len as usize)
        );
        assert_eq!(place.write(len, &[byte]), Ok(0));
    };
    let remote = tpt.place_remote(&reach(Access::REMOTE_WRITE)).map(write);
    let read = tpt.gather_remote(&reach(Access::REMOTE_READ)).map(|g| {
        let mut copy = vec![0; len as usize + 2 * PAGE];
        assert_eq!(g.read(0, &mut copy), Ok(len as usize));
        assert!(copy[..len as usize].iter().all(|b| *b == byte));
    });
    assert_eq!(remote, read);
    if tpt.find_entry(stag).is_some_and(|e| e.parent.is_none()) {
        assert_eq!(
            tpt.place_local(&reach(Access::LOCAL_WRITE)).map(write),
            remote
        );
        let local = tpt.gather_local(&reach(Access::LOCAL_READ)).map(|g| {
            let mut copy = vec![0; len as usize + PAGE];
            assert_eq!(g.read(0, &mut copy), Ok(len as usize));
        });
        assert_eq!(local, remote);
    }
    remote
}

/// Ranges inside of, beginning before and ending after `start..start + len`.
fn boundaries(tpt: &Tpt, stag: Stag, start: u64, len: u64) {
    for (at, len) in [
        (start, len),
        (start, 1),
        (start + len - 1, 1),
        (start + len, 0),
        (start, 0),
        (start + 1, len - 1),
        (start, len - 1),
    ] {
        assert_eq!(touch(tpt, stag, at, len, 7), Ok(()), "{len} at {at:#x}");
    }
    for (at, len) in [
        (start, len + 1),
        (start + 1, len),
        (start + len - 1, 2),
        (start + len, 1),
        (start.wrapping_sub(1), 1),
        (start.wrapping_sub(1), len + 1),
        (start.wrapping_sub(1), 0),
        (start + len + 1, 0),
        (start, u64::MAX - start),
        (start + 1, u64::MAX),
        (u64::MAX, 1),
        (u64::MAX, 2),
    ] {
        // Nothing is copied for lengths that are refused, so no buffer is allocated.
        let reach = |needs| MemAccess {
            stag,
            at,
            len,
            pd: PD,
            qp: QP,
            needs,
        };
        let refused = [
            tpt.place_remote(&reach(Access::REMOTE_WRITE)).err(),
            tpt.gather_remote(&reach(Access::REMOTE_READ)).err(),
            tpt.place_local(&reach(Access::LOCAL_WRITE)).err(),
            tpt.gather_local(&reach(Access::LOCAL_READ)).err(),
        ];
        assert!(refused.iter().all(Option::is_some), "{len} at {at:#x}");
    }
}

#[test]
fn run_next_to_guard_page_is_exact() {
    for (offset, len) in [
        (0, PAGE),
        (0, 100),
        (PAGE - 100, 100),
        (PAGE - 1, 1),
        (1, PAGE - 1),
    ] {
        let memory = Guarded::new(1);
        let first = memory.page(0).wrapping_add(offset);
        for start in [first as u64, 0, 1 << 40] {
            memory.fill(0);
            let tpt = table();
            let att = Att::direct(first, len as u64);
            let stag = register(&tpt, att, start, Access::ALL).unwrap();
            boundaries(&tpt, stag, start, len as u64);
            let bytes = memory.bytes();
            let (inside, outside): (Vec<_>, Vec<_>) =
                (0..PAGE).partition(|i| (offset..offset + len).contains(i));
            assert!(inside.iter().all(|i| bytes[*i] == 7));
            assert!(outside.iter().all(|i| bytes[*i] == 0));
        }
    }
}

#[test]
fn scattered_pages_are_accessed_exactly() {
    for (first, len) in [
        (0, 3 * PAGE),
        (100, 3 * PAGE - 100),
        (PAGE - 1, 2),
        (4000, 2 * PAGE),
    ] {
        let memory = Guarded::new(3);
        memory.fill(0);
        let order = [2, 0, 1];
        let pages = order.map(|page| Page::at(memory.page(page)));
        let count = (first + len).div_ceil(PAGE);
        let tpt = table();
        let att = Att::paged(PageSize::K4, &pages[..count], first as u64, len as u64).unwrap();
        let stag = register(&tpt, att, 0x1000, Access::ALL).unwrap();
        boundaries(&tpt, stag, 0x1000, len as u64);
        // Runs that cross a page boundary, one byte to each side.
        for edge in (PAGE..first + len).step_by(PAGE) {
            let at = (0x1000 + edge - first - 1) as u64;
            touch(&tpt, stag, at, 2, 9).unwrap();
        }
        let bytes = memory.bytes();
        for (at, byte) in bytes.iter().enumerate() {
            let place = order.iter().position(|p| *p == at / PAGE).unwrap() * PAGE + at % PAGE;
            let inside = (first..first + len).contains(&place);
            assert_eq!(*byte != 0, inside, "byte {at}");
        }
    }
}

#[test]
fn window_at_region_edge_is_exact() {
    for (offset, len) in [(PAGE - 64, 64), (0, 64), (0, PAGE)] {
        let memory = Guarded::new(1);
        memory.fill(0);
        let tpt = table();
        let base = memory.page(0) as u64;
        let att = Att::direct(memory.page(0), PAGE as u64);
        let region = register(&tpt, att, base, Access::ALL).unwrap();
        for ty in [WindowType::One, WindowType::TwoA, WindowType::TwoB] {
            let window = tpt.allocate_window(ty, PD).unwrap();
            let mut bind = Bind {
                window,
                region,
                addr: base + offset as u64,
                len: len as u64,
                access: Access::REMOTE_READ | Access::REMOTE_WRITE,
                pd: PD,
                qp: QP,
                key: 3,
                zero_based: false,
                one_touch: false,
            };
            bind.len = (PAGE - offset) as u64 + 1;
            assert!(tpt.bind(&bind).is_err(), "beyond the region");
            bind.len = len as u64;
            let bound = tpt.bind(&bind).unwrap();
            boundaries(&tpt, bound, bind.addr, bind.len);
            tpt.deregister(bound).unwrap();
        }
    }
}

#[test]
fn each_refusal_of_a_right_leaves_memory_untouched() {
    let memory = Guarded::new(1);
    memory.fill(1);
    let tpt = table();
    let base = memory.page(0) as u64;
    let att = || Att::direct(memory.page(0), PAGE as u64);
    let reach = |stag, needs| MemAccess {
        stag,
        at: base,
        len: PAGE as u64,
        pd: PD,
        qp: QP,
        needs,
    };
    let write = |stag| tpt.place_remote(&reach(stag, Access::REMOTE_WRITE));
    let read_only = register(&tpt, att(), base, Access::LOCAL_READ).unwrap();
    assert!(matches!(write(read_only), Err(Refusal::Right { .. })));
    let gone = register(&tpt, att(), base, Access::ALL).unwrap();
    tpt.deregister(gone).unwrap();
    assert!(matches!(write(gone), Err(Refusal::Stag { .. })));
    let open = register(&tpt, att(), base, Access::ALL).unwrap();
    let old_key = Stag::new(open.get() ^ 1);
    assert!(matches!(write(old_key), Err(Refusal::Stag { .. })));
    let mut foreign = reach(open, Access::REMOTE_WRITE);
    foreign.pd = Pd(2);
    let refused = tpt.place_remote(&foreign).unwrap_err();
    assert!(matches!(refused, Refusal::Domain { .. }));
    assert!(memory.bytes().iter().all(|b| *b == 1));
}

#[test]
fn atomic_reaches_only_words_inside_the_region() {
    let memory = Guarded::new(1);
    memory.fill(0);
    let tpt = table();
    let base = memory.page(0) as u64;
    let att = Att::direct(memory.page(0), PAGE as u64);
    let stag = register(&tpt, att, base, Access::ALL).unwrap();
    let word = |at| {
        tpt.place_remote(&MemAccess {
            stag,
            at,
            len: 8,
            pd: PD,
            qp: QP,
            needs: Access::REMOTE_ATOMIC,
        })
    };
    let end = base + PAGE as u64;
    let add = AtomicOp::FetchAdd { add: 1, mask: 0 };
    assert_eq!(atomic::execute(&word(end - 8).unwrap(), add), Ok(Some(0)));
    assert_eq!(atomic::execute(&word(base).unwrap(), add), Ok(Some(0)));
    assert_eq!(
        atomic::execute(&word(end - 9).unwrap(), add),
        Ok(None),
        "unaligned"
    );
    for at in [end - 7, end - 1, end, base - 1, base - 8] {
        assert!(word(at).is_err());
    }
}

#[test]
fn memory_into_guard_page_cannot_be_registered() {
    let memory = Guarded::new(2);
    let tpt = table();
    let refused = |att| {
        let stag = register(&tpt, att, 0, Access::ALL);
        assert!(matches!(stag, Err(Misuse::Unmapped { .. })), "{stag:?}");
    };
    refused(Att::direct(memory.page(0), PAGE as u64 + 1));
    refused(Att::direct(memory.page(0).wrapping_sub(1), 2));
    refused(Att::direct(memory.map, 1));
    let pages = [memory.page(0), memory.page(0).wrapping_add(PAGE)].map(Page::at);
    refused(Att::paged(PageSize::K4, &pages, 0, PAGE as u64 + 1).unwrap());
    assert!(tpt.is_empty(), "nothing is left of them");
}
