//! The link of a device: its state is that of the interface with the device's address, and its changes are events.
//! The tests run in a network namespace of their own, with a pair of virtual Ethernet interfaces.

use core::net::Ipv4Addr;
use std::process::Command;
use std::sync::mpsc;

use verbena::events::{Cause, Event};
use verbena::unstable::is_link_up;
use verbena_testing::{WAIT_LIMIT, wait_until};

use crate::common::device;

fn ip(arguments: &str) {
    let ran = Command::new("ip").args(arguments.split(' ')).output();
    let ran = ran.expect("iproute2 is installed");
    assert!(ran.status.success(), "ip {arguments}: {ran:?}");
}

/// An interface with a carrier; that of the other end determines it.
fn add_interfaces() {
    ip("link set lo up");
    ip("link add near type veth peer name far");
    ip("address add 198.51.100.1/24 dev near");
    ip("link set near up");
    ip("link set far up");
    // The kernel reports the carrier later.
    let address = Ipv4Addr::new(198, 51, 100, 1).into();
    wait_until("the link is up", || is_link_up(&[address]).unwrap());
}

#[test]
fn link_changes_are_events() {
    verbena_testing::own_network!();
    add_interfaces();
    let device = device(&[("device", "198.51.100.1")]);
    assert!(device.is_link_up().unwrap());
    let (tell, told) = mpsc::channel();
    let (observed, causes) = mpsc::channel();
    device.on_event(move |event| {
        let _ = tell.send(event);
    });
    let _observation = device.observe(move |cause| {
        let _ = observed.send(cause);
    });
    let _cq = device.cq(16).unwrap();
    for _ in 0..2 {
        ip("link set far down");
        let event = told.recv_timeout(WAIT_LIMIT).expect("an event");
        assert_eq!(event, Event::PortError { port: 1 });
        assert!(!device.is_link_up().unwrap());
        // Other changes of interfaces are no events.
        ip("link set far mtu 1400");
        ip("link set far up");
        let event = told.recv_timeout(WAIT_LIMIT).expect("an event");
        assert_eq!(event, Event::PortActive { port: 1 });
        assert!(device.is_link_up().unwrap());
    }
    let up = |up| Cause::Link { port: 1, up };
    let expected = [up(false), up(true), up(false), up(true)];
    assert_eq!(causes.try_iter().collect::<Vec<_>>(), expected);
    // Without the address the device cannot be reached either.
    ip("address del 198.51.100.1/24 dev near");
    let event = told.recv_timeout(WAIT_LIMIT).expect("an event");
    assert_eq!(event, Event::PortError { port: 1 });
}

#[test]
fn link_events_can_be_switched_off() {
    verbena_testing::own_network!();
    add_interfaces();
    let settings = ["on", "off"].map(|on| [("device", "198.51.100.1"), ("link_events", on)]);
    let [watched, unwatched] = settings.map(|settings| device(&settings));
    let _cqs = (watched.cq(16).unwrap(), unwatched.cq(16).unwrap());
    let (tell, told) = mpsc::channel();
    watched.on_event(move |event| {
        let _ = tell.send(event);
    });
    ip("link set near down");
    let event = told.recv_timeout(WAIT_LIMIT).expect("an event");
    assert_eq!(event, Event::PortError { port: 1 });
    assert_eq!(unwatched.next_event(), None);
    assert!(!unwatched.is_link_up().unwrap());
}
