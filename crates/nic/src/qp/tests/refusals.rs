//! What an unreliable connection drops silently, and how often.

use verbena_events::event::Event;
use verbena_wire::{Stag, To};

use crate::state::{QpState, QpType};
use crate::testing::{Pair, SEND, Setup, write};
use crate::wr::RemoteAddr;

/// A peer that tries STags one after the other gets sixteen attempts.
#[test]
fn an_unreliable_connection_ends_after_sixteen_refusals() {
    let mut pair = Pair::new(Setup {
        qp_type: QpType::Uc,
        ..Setup::default()
    });
    let (good, piece) = (write(pair.b.remote(0)), [pair.a.sge(0, 3000)]);
    for guess in 1..=16 {
        assert_eq!(pair.b.qp.state(), QpState::Rts, "{guess}");
        assert_eq!(pair.b.events(), []);
        // Valid messages in between do not reset the count.
        pair.a.post(1, good, &piece);
        let bad = write(RemoteAddr {
            stag: Stag::new(0xdead_0000 + guess),
            to: To::new(0),
        });
        pair.a.post(2, bad, &piece);
        pair.run();
        pair.a.statuses();
    }
    assert_eq!(pair.b.qp.state(), QpState::Err);
    assert_eq!(pair.b.events()[0], Event::QpAccess { qp: 2 });
    let cause = pair.b.qp.cause().unwrap();
    assert!(cause.contains("16 messages"), "{cause}");
    let cause = pair.a.qp.cause().unwrap();
    assert!(cause.contains("invalid STag"), "{cause}");
}

/// A missing receive is not the peer's fault.
#[test]
fn missing_receive_does_not_count_as_refusal() {
    let mut pair = Pair::new(Setup {
        qp_type: QpType::Uc,
        ..Setup::default()
    });
    let piece = [pair.a.sge(0, 100)];
    for id in 0..40 {
        pair.a.post(id, SEND, &piece);
        pair.run();
    }
    assert_eq!(pair.b.qp.state(), QpState::Rts);
}
