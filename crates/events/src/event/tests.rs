//! Tests of the outbox: each event is raised once, in order, with the packet that caused it.

use core::net::Ipv4Addr;

use parking_lot::Mutex;

use super::*;

#[derive(Default)]
struct Raised(Mutex<Vec<(Event, Option<Tuple>)>>);

impl Raise for Raised {
    fn raise(&self, event: Event) {
        self.0.lock().push((event, None));
    }

    fn raise_from(&self, event: Event, packet: Tuple) {
        self.0.lock().push((event, Some(packet)));
    }
}

fn packet(last: u8) -> Tuple {
    Tuple::V4 {
        from: Ipv4Addr::new(192, 0, 2, last),
        to: Ipv4Addr::LOCALHOST,
    }
}

#[test]
fn events_are_raised_with_their_packets() {
    let (mut out, raised) = (Outbox::new(), Raised::default());
    let event = |qp| Event::Established { qp };
    out.set_packet(None);
    out.push(event(0));
    out.set_packet(Some(packet(1)));
    out.set_packet(None);
    out.set_packet(Some(packet(2)));
    out.push(event(1));
    out.push(event(2));
    out.set_packet(None);
    out.push(event(3));
    out.set_packet(Some(packet(3)));
    out.flush(&raised);
    let expected = [
        (event(0), None),
        (event(1), Some(packet(2))),
        (event(2), Some(packet(2))),
        (event(3), None),
    ];
    assert_eq!(*raised.0.lock(), expected);
    // Nothing is left of the packets.
    raised.0.lock().clear();
    out.push(event(4));
    out.flush(&raised);
    assert_eq!(*raised.0.lock(), [(event(4), None)]);
}
