//! Pages as the memory of two rings, and program memory that is unmapped on either side of a copy.

use rustix::mm::{MprotectFlags, mprotect};
use verbena_mem::{
    Access, Att, Mapping, MemAccess, Pages, Pd, Policy, Region, Sources, Targets, Tpt, catch_faults,
};

use crate::memory::RingMemory;
use crate::on_heap;
use crate::{Layout, Read, RingError};

const PD: Pd = Pd(1);

/// Memory that a program registered and then made inaccessible, as if it were unmapped; another test cannot get its addresses.
fn unmapped(tpt: &Tpt) -> (Pages, MemAccess) {
    let pages = Pages::new(4096).unwrap();
    let at = pages.start().as_ptr();
    let start = verbena_wire::To::new(at.addr() as u64);
    let region = Region {
        att: Att::direct(at, 4096),
        start,
        pd: PD,
        access: Access::ALL,
        one_touch: false,
    };
    // SAFETY: only guarded copies access the memory, and they survive that it is not mapped.
    let stag = unsafe { tpt.register(region) }.unwrap();
    // SAFETY: the page is that of `pages`, to which there is no reference.
    unsafe { mprotect(at.cast(), 4096, MprotectFlags::empty()) }.unwrap();
    let access = MemAccess {
        stag,
        at: at.addr() as u64,
        len: 24,
        pd: PD,
        qp: 1,
        needs: Access::LOCAL_WRITE,
    };
    (pages, access)
}

#[test]
fn an_unmapped_source_publishes_nothing() {
    catch_faults();
    let tpt = Tpt::new(1..10, Policy::Verbs, 1);
    let (_pages, gone) = unmapped(&tpt);
    let (mut producer, consumer, _) = on_heap(Layout::new(256).unwrap());
    let mut sources = Sources::new();
    assert!(sources.borrow_bytes(b"head"));
    assert_eq!(sources.gather(tpt.gather_local(&gone).unwrap()), 24);
    assert_eq!(producer.write(&sources), Err(RingError::Unmapped));
    assert!(consumer.is_empty());
    // The ring is as it was.
    let mut sources = Sources::new();
    assert!(sources.borrow_bytes(b"next"));
    assert_eq!(producer.write(&sources), Ok(4));
}

#[test]
fn an_unmapped_target_takes_nothing() {
    catch_faults();
    let tpt = Tpt::new(1..10, Policy::Verbs, 1);
    let (_pages, gone) = unmapped(&tpt);
    let (mut producer, mut consumer, _) = on_heap(Layout::new(256).unwrap());
    let mut sources = Sources::new();
    assert!(sources.borrow_bytes(b"message"));
    assert_eq!(producer.write(&sources), Ok(7));
    let mut targets = Targets::new();
    assert_eq!(targets.place(tpt.place_local(&gone).unwrap()), 24);
    assert_eq!(consumer.read(&mut targets), Err(RingError::Unmapped));
    let mut stage = [0; 16];
    let mut targets = Targets::new();
    assert!(targets.stage(&mut stage));
    assert_eq!(consumer.read(&mut targets), Ok(Read::Bytes(7)));
    drop(targets);
    assert_eq!(&stage[..7], b"message");
}

#[test]
fn short_pages_hold_no_pair() {
    let layout = Layout::new(4096).unwrap();
    let short = Pages::new(layout.pair_len() - 1).unwrap();
    assert_eq!(RingMemory::pair(short, layout).unwrap_err().len(), 16383);
    assert!(RingMemory::pair(Pages::new(16384).unwrap(), layout).is_ok());
}

/// Two mappings of one file, as two processes have them.
#[test]
fn both_directions_work_between_two_mappings() {
    let layout = Layout::new(256).unwrap();
    let ours = Mapping::new(layout.pair_len()).unwrap();
    let theirs = ours.fd().try_clone_to_owned().unwrap();
    let theirs = Mapping::adopt(theirs, layout.pair_len()).unwrap();
    let (there, back) = RingMemory::pair(ours.into_pages(), layout).unwrap();
    let (peer_in, peer_out) = RingMemory::pair(theirs.into_pages(), layout).unwrap();
    for (tx, rx) in [(there, peer_in), (peer_out, back)] {
        let (mut tx, mut rx) = (tx.into_producer(), rx.into_consumer());
        for round in 0..100_u8 {
            let bytes = [round; 50];
            let mut sources = Sources::new();
            assert!(sources.borrow_bytes(&bytes));
            assert_eq!(tx.write(&sources), Ok(50));
            let mut stage = [0; 50];
            let mut targets = Targets::new();
            assert!(targets.stage(&mut stage));
            assert_eq!(rx.read(&mut targets), Ok(Read::Bytes(50)));
            drop(targets);
            assert_eq!(stage, bytes);
        }
        assert!(rx.is_empty());
    }
}
