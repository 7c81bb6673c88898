//! Tests of the records of windows: every field arrives, and damaged bytes are an error or a record that the table of the successor checks.
//! The versions of the format are tested with real processes in `tests/devices/handover.rs`.

use super::*;

fn region() -> Stag {
    Stag::from_parts(9, 1).unwrap()
}

fn state() -> WindowState {
    let stag = Stag::from_parts(7, 3).unwrap();
    let binding = WindowBinding {
        region: region(),
        addr: 0x1000,
        len: 64,
        access: Access::REMOTE_WRITE,
        qp: Some(5),
        zero_based: true,
        one_touch: true,
    };
    WindowState {
        export: WindowExport {
            window_type: WindowType::TwoB,
            stag,
            spent: false,
            binding: Some(binding),
        },
        stag,
        bound: true,
        one_touch: true,
    }
}

fn record(state: &WindowState) -> WindowRecord {
    let region_tag = |stag| {
        assert_eq!(stag, region());
        Ok(11)
    };
    let qp_tag = |qp| {
        assert_eq!(qp, 5);
        Ok(12)
    };
    WindowRecord::new(state, region_tag, qp_tag).unwrap()
}

#[test]
fn window_record_keeps_every_field() {
    let unbound = WindowState {
        export: WindowExport {
            window_type: WindowType::One,
            stag: Stag::from_parts(7, 4).unwrap(),
            spent: true,
            binding: None,
        },
        ..state()
    };
    for sent in [state(), unbound] {
        let bytes = postcard::to_allocvec(&record(&sent)).unwrap();
        let read: WindowRecord = postcard::from_bytes(&bytes).unwrap();
        let bound = read.binding().map(|binding| (binding.memory, binding.qp));
        assert_eq!(bound, sent.export.binding.map(|_| (11, Some(12))));
        let got = read.to_window_state(Some(region()), Some(5)).unwrap();
        assert_eq!(got.export, sent.export);
        assert_eq!(
            (got.stag, got.bound, got.one_touch),
            (sent.stag, sent.bound, sent.one_touch)
        );
    }
}

#[test]
fn invalid_window_records_are_refused() {
    let good = record(&state());
    let binding = good.binding().unwrap();
    let unknown = [
        WindowRecord {
            window_type: 3,
            ..good
        },
        WindowRecord {
            window_type: u8::MAX,
            ..good
        },
        WindowRecord {
            binding: Some(BindingRecord {
                access: 0x80,
                ..binding
            }),
            ..good
        },
    ];
    for record in unknown {
        let refused = record.to_window_state(Some(region()), Some(5));
        assert!(
            matches!(refused, Err(HandoverError::InvalidMessage(_))),
            "{refused:?}"
        );
    }
}

#[test]
fn damaged_window_bytes_never_panic() {
    let bytes = postcard::to_allocvec(&record(&state())).unwrap();
    for len in 0..bytes.len() {
        assert!(
            postcard::from_bytes::<WindowRecord>(&bytes[..len]).is_err(),
            "cut at {len}"
        );
    }
    for (at, bit) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << bit;
        if let Ok(read) = postcard::from_bytes::<WindowRecord>(&damaged)
            && let Ok(state) = read.to_window_state(Some(region()), Some(5))
        {
            assert_eq!(state.stag.index(), state.export.stag.index());
        }
    }
}
