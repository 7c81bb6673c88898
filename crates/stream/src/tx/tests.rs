//! After a message that the peer discards only the same one from its start may follow, not its rest.

use verbena_wire::Rsn;
use verbena_wire::ext::Control;

use crate::testing::{Bench, control, timer};
use crate::{Delivery, Message};

fn send(len: u32) -> Message {
    Message::Send {
        solicited: false,
        invalidate: None,
        len,
    }
}

/// Found by the fuzz target `pair`: RNR and READY both arrived between two segments, and the old message continued.
#[test]
fn message_restarts_after_rnr_between_segments() {
    let mut bench = Bench::verbena();
    let mut stale = bench.stream.begin(send(5000)).unwrap();
    assert!(bench.stream.next_frame(&mut stale).is_some());
    let rsn = Rsn::ZERO;
    let timer = timer();
    bench
        .feed(&control(&Control::Rnr { rsn, timer }, 2))
        .unwrap();
    bench.feed(&control(&Control::Ready(rsn), 3)).unwrap();
    assert_eq!(bench.delivered.last(), Some(&Delivery::Ready(rsn)));

    assert!(bench.stream.next_frame(&mut stale).is_none());
    assert!(bench.stream.poll_control(false).is_some(), "RESUME");
    let mut again = bench.stream.begin(send(5000)).unwrap();
    assert_eq!(again.rsn(), Some(rsn));
    assert!(bench.stream.next_frame(&mut stale).is_none());
    let frame = bench.stream.next_frame(&mut again).unwrap();
    assert_eq!(frame.payload_offset(), 0);
}

#[test]
fn started_response_continues_after_rnr() {
    let mut bench = Bench::verbena();
    bench.send(send(1));
    let response = Message::ReadV2Response { len: 5000 };
    let mut response = bench.stream.begin(response).unwrap();
    assert!(bench.stream.next_frame(&mut response).is_some());
    let (rsn, timer) = (Rsn::ZERO, timer());
    bench
        .feed(&control(&Control::Rnr { rsn, timer }, 2))
        .unwrap();
    assert!(bench.stream.next_frame(&mut response).is_some());
}
