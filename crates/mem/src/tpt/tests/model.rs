//! A property test of the whole table against a naive model: random regions, windows, rights, page lists and accesses.
//! Bytes appear exactly where the rights allow, and nowhere else: all memory lies in one arena that is compared whole.

use proptest::prelude::*;

use super::*;
use crate::att::{Page, PageSize};

const PAGE: usize = 4096;
const PAGES: usize = 8;

/// Page-aligned memory.
#[repr(align(4096))]
struct Arena([u8; PAGE * PAGES]);

#[derive(Debug, Clone)]
struct Shape {
    pages: Vec<usize>,
    first: u64,
    len: u64,
    access: Access,
    pd: u32,
    window: Option<(u64, u64, Access, WindowType)>,
}

#[derive(Debug, Clone)]
struct Touch {
    region: usize,
    through_window: bool,
    at: u64,
    len: u64,
    pd: u32,
    qp: u32,
    fill: u8,
}

fn access() -> impl Strategy<Value = Access> {
    prop_oneof![
        Just(Access::ALL),
        Just(Access::LOCAL_WRITE | Access::REMOTE_WRITE),
        Just(Access::LOCAL_WRITE | Access::REMOTE_READ | Access::BIND),
        Just(Access::LOCAL_READ | Access::BIND),
    ]
}

fn shape() -> impl Strategy<Value = Shape> {
    let pages = Just((0..PAGES).collect::<Vec<_>>()).prop_shuffle();
    let window = proptest::option::of((
        0_u64..9000,
        1_u64..9000,
        prop_oneof![Just(Access::REMOTE_WRITE), Just(Access::REMOTE_READ)],
        prop_oneof![
            Just(WindowType::One),
            Just(WindowType::TwoA),
            Just(WindowType::TwoB)
        ],
    ));
    (
        pages,
        1_usize..4,
        0_u64..4096,
        1_u64..12000,
        access(),
        1_u32..3,
        window,
    )
        .prop_map(|(pages, count, first, len, access, pd, window)| {
            let room = (count * PAGE) as u64 - first;
            Shape {
                pages: pages[..count].to_vec(),
                first,
                len: len.min(room),
                access,
                pd,
                window,
            }
        })
}

fn touch() -> impl Strategy<Value = Touch> {
    (
        0_usize..3,
        any::<bool>(),
        0_u64..13000,
        0_u64..9000,
        1_u32..3,
        5_u32..7,
        1_u8..,
    )
        .prop_map(|(region, through_window, at, len, pd, qp, fill)| Touch {
            region,
            through_window,
            at,
            len,
            pd,
            qp,
            fill,
        })
}

/// The position of byte `offset` of a region in the arena.
fn place_of(shape: &Shape, offset: u64) -> usize {
    let at = (shape.first + offset) as usize;
    shape.pages[at / PAGE] * PAGE + at % PAGE
}

/// What a peer may write according to M7, implemented independently.
fn may_write(shape: &Shape, touch: &Touch) -> bool {
    let end = touch.at + touch.len;
    if !touch.through_window {
        return touch.pd == shape.pd
            && end <= shape.len
            && shape.access.contains(Access::REMOTE_WRITE);
    }
    let Some((at, len, access, ty)) = shape.window else {
        return false;
    };
    let bindable = shape.access.contains(Access::BIND)
        && at + len <= shape.len
        && (access != Access::REMOTE_WRITE || shape.access.contains(Access::LOCAL_WRITE));
    let scope = match ty {
        WindowType::One => touch.pd == shape.pd,
        WindowType::TwoA => touch.qp == 5,
        WindowType::TwoB => touch.qp == 5 && touch.pd == shape.pd,
    };
    bindable && scope && access == Access::REMOTE_WRITE && touch.at >= at && end <= at + len
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn writes_land_only_where_rights_allow(
        shapes in proptest::collection::vec(shape(), 3),
        touches in proptest::collection::vec(touch(), 1..12),
    ) {
        let mut arena = Box::new(Arena([0; PAGE * PAGES]));
        let base = arena.0.as_mut_ptr();
        let mut model = vec![0; PAGE * PAGES];
        let tpt = Tpt::new(1..1000, Policy::Verbs, 9);
        let mut stags = Vec::new();
        for shape in &shapes {
            let pages: Vec<Page> =
                shape.pages.iter().map(|p| Page::at(base.wrapping_add(p * PAGE))).collect();
            let region = Region {
                att: Att::paged(PageSize::K4, &pages, shape.first, shape.len).unwrap(),
                start: To::new(0),
                pd: Pd(shape.pd),
                access: shape.access,
                one_touch: false,
            };
            // SAFETY: the arena outlives the table and is read only when no grant is left.
            let stag = unsafe { tpt.register(region) }.unwrap();
            let window = shape.window.and_then(|(at, len, access, ty)| {
                let window = tpt.allocate_window(ty, Pd(shape.pd)).unwrap();
                let bind = Bind {
                    access,
                    pd: Pd(shape.pd),
                    ..bind(window, stag, at, len)
                };
                tpt.bind(&bind).ok()
            });
            stags.push((stag, window));
        }
        for touch in &touches {
            let shape = &shapes[touch.region];
            let (region, window) = stags[touch.region];
            let stag = if touch.through_window { window } else { Some(region) };
            let reach = MemAccess {
                stag: stag.unwrap_or(Stag::new(0)),
                at: touch.at,
                len: touch.len,
                pd: Pd(touch.pd),
                qp: touch.qp,
                needs: Access::REMOTE_WRITE,
            };
            let granted = tpt.place_remote(&reach);
            prop_assert_eq!(granted.is_ok(), may_write(shape, touch), "{:?} {:?}", shape, touch);
            if let Ok(grant) = granted {
                grant.write(0, &vec![touch.fill; touch.len as usize]).unwrap();
                for offset in touch.at..touch.at + touch.len {
                    model[place_of(shape, offset)] = touch.fill;
                }
            }
        }
        drop(tpt);
        prop_assert!(arena.0[..] == model[..], "every byte of the arena");
    }
}
