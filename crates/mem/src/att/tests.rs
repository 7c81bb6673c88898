//! Tests of translation: every order and page size against a naive walk, and the ends of a region.

#[cfg(not(loom))]
use proptest::prelude::*;

use super::*;

/// Pages at invented addresses; none is dereferenced.
fn pages(size: PageSize, order: &[usize]) -> Vec<Page> {
    let at = |i: usize| Page::at((0x1_0000_0000 + i * 3 * size.bytes() as usize) as *mut u8);
    order.iter().map(|&i| at(i)).collect()
}

/// The address of one byte, by a simple computation.
fn naive(size: PageSize, pages: &[Page], first_offset: u64, offset: u64) -> usize {
    let at = first_offset + offset;
    let page = pages[(at / size.bytes()) as usize];
    page.span(at % size.bytes(), 1).as_ptr() as usize
}

#[test]
fn direct_translation_is_one_run() {
    let att = Att::direct(0x1000 as *mut u8, 100);
    assert_eq!((att.order(), att.page_size()), (0, None));
    assert_eq!(att.run(40, 1000), Span::new(0x1028 as *mut u8, 60));
    assert!(att.run(100, 1).is_empty());
}

#[test]
fn every_page_size_translates_in_both_orders() {
    for size in PageSize::ALL {
        for count in [1, 3, FIRST_ORDER_MAX, FIRST_ORDER_MAX + 1, 3 * FAN_OUT + 7] {
            let order: Vec<usize> = (0..count).map(|i| (i * 7 + 3) % count).collect();
            let pages = pages(size, &order);
            let first = size.bytes() - 5;
            let len = (count as u64 * size.bytes() - first)
                .saturating_sub(9)
                .max(5);
            let att = Att::paged(size, &pages, first, len).unwrap();
            assert_eq!(att.order(), if count <= FIRST_ORDER_MAX { 1 } else { 2 });
            assert_eq!(att.page_size(), Some(size));
            for offset in [0, 4, 5, 6, len / 2, len - 1] {
                if offset < len {
                    let got = att.run(offset, 1).as_ptr() as usize;
                    assert_eq!(got, naive(size, &pages, first, offset), "{size:?} {count}");
                }
            }
            let total: usize = att.runs().map(|s| s.len()).sum();
            assert_eq!(total as u64, len);
            assert!(att.runs().all(|s| s.len() as u64 <= size.bytes()));
        }
    }
}

#[test]
fn page_list_must_cover_the_region() {
    let pages = pages(PageSize::K4, &[0, 1]);
    let made = |first, len| Att::paged(PageSize::K4, &pages, first, len).is_ok();
    assert!(made(0, 8192) && made(4095, 4097));
    assert!(!made(0, 8193) && !made(4095, 4098) && !made(4096, 1));
    assert!(!made(1, u64::MAX));
}

#[cfg(not(loom))]
proptest! {
    #[test]
    fn runs_match_naive_translation(
        count in 1_usize..6,
        first in 0_u64..4096,
        cut in 0_u64..4096,
        from in 0_u64..24576,
        len in 1_u64..24576,
        seed in any::<u64>(),
    ) {
        let order: Vec<usize> = (0..count).map(|i| (i + seed as usize % 97) * 5 % 101).collect();
        let pages = pages(PageSize::K4, &order);
        let room = count as u64 * 4096;
        let total = (room - first).saturating_sub(cut);
        let att = Att::paged(PageSize::K4, &pages, first, total).unwrap();
        let mut at = from;
        loop {
            let span = att.run(at, (from + len).saturating_sub(at));
            if span.is_empty() {
                break;
            }
            for i in 0..span.len() {
                let expected = naive(PageSize::K4, &pages, first, at + i as u64);
                prop_assert_eq!(span.as_ptr() as usize + i, expected);
            }
            at += span.len() as u64;
        }
        prop_assert_eq!(at.max(from), (from + len).min(total).max(from));
    }
}

#[test]
fn null_translation_reads_and_writes_apart() {
    let att = Att::null().unwrap();
    for (offset, len) in [(0, 64), (u64::MAX / 2, 1 << 20), (1 << 40, u64::MAX)] {
        let (from, to) = (att.run(offset, len), att.run_mut(offset, len));
        assert_eq!(from.len() as u64, len.min(1 << 20));
        assert_eq!(to.len(), from.len());
        assert_ne!(from.as_ptr(), to.as_ptr());
    }
    assert!(att.is_on_demand() && !att.may_overlap(&att));
    assert_eq!((att.order(), att.page_size(), att.pages()), (0, None, 1));
}

#[test]
fn address_space_translates_addresses_to_themselves() {
    let att = Att::address_space();
    let byte = 7_u8;
    let at = (&raw const byte) as u64;
    assert_eq!(att.run(at, 1).as_ptr() as u64, at);
    assert_eq!(
        att.run(u64::MAX - 8, 64).len(),
        8,
        "not beyond the last address"
    );
}
