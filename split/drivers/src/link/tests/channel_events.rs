//! Channel events of links over iWARP and over cells, as an observer of the adapter sees them, in each arrangement.
//! Without an observer nothing is reported.

use std::sync::mpsc;

use verbena::Device;
use verbena::events::{Cause, ChannelEvent};
use verbena_split_wire::push::{Message, Range};

use super::super::perform::MESSAGE;
use super::*;

/// Sends a message that the session would not send.
fn return_elements_of_unknown_pool(side: &mut Side) {
    let (pool, first, count) = (99, 0, 1);
    let mut message = Vec::new();
    Message::emit_ranges(7, &[Range { pool, first, count }], &mut message);
    let slot = side.link.messages.fill(&message).unwrap();
    let piece = side.link.messages.sge(slot, 0, message.len() as u32);
    let posted = side
        .carrier
        .post_send(side.link.control, id(MESSAGE, slot), piece);
    posted.unwrap();
}

fn settings() -> Config {
    Config::from_parts(None, std::iter::empty()).unwrap()
}

/// E7: an observer of the adapter sees what happens on the channels.
#[test]
fn observer_sees_events_of_channels() {
    check_events(|| {
        let listener = IwarpCarrier::listen("127.0.0.1:0".parse().unwrap(), settings()).unwrap();
        let dialler = IwarpCarrier::dial(listener.address().unwrap(), settings()).unwrap();
        let device = listener.device().clone();
        ([Box::new(dialler), Box::new(listener)], device)
    });
}

/// Carriers of cells have no adapter, and report to another one.
#[test]
fn observer_sees_events_of_cell_channels() {
    check_events(|| {
        let [dialler, mut listener] = carriers("udp");
        assert!(listener.event_device().is_none());
        let device = Device::with(settings()).unwrap();
        listener.report_channels_to(&device);
        ([dialler, listener], device)
    });
}

/// With a dialler, a listener, and the adapter of the listener's events.
fn check_events(carriers: impl Fn() -> ([Box<dyn Carrier>; 2], Device)) {
    for (arrangement, channel) in [
        (Arrangement::Sends, 1),
        (Arrangement::Writes, 1),
        (Arrangement::Single, 0),
    ] {
        let (carriers, device) = carriers();
        let mut sides = connected(carriers, LinkOptions::new(arrangement, 8, 3000));
        let (tell, told) = mpsc::channel();
        let observation = device.observe(move |cause| {
            if let Cause::Channel { .. } = cause {
                let _ = tell.send(cause);
            }
        });
        // The first turn records the counters.
        until(&mut sides, |_| true);
        // The program keeps them: less than a quarter of the pool is left.
        for byte in 0..7 {
            until(&mut sides, |sides| sides[0].link.has_room());
            sides[0].send(&[byte; 16]).unwrap();
        }
        let mut causes = Vec::new();
        let count_of = |causes: &[Cause], event| -> u32 {
            let count = |cause: &Cause| match *cause {
                Cause::Channel {
                    channel: of,
                    what,
                    count,
                } if of == channel && what == event => count,
                _ => 0,
            };
            causes.iter().map(count).sum()
        };
        until(&mut sides, |_| {
            causes.extend(told.try_iter());
            count_of(&causes, ChannelEvent::Returned) == 7
        });
        let low = |cause: &&Cause| {
            let what = ChannelEvent::BuffersLow;
            matches!(cause, Cause::Channel { what: is, .. } if *is == what)
        };
        assert_eq!(causes.iter().filter(low).count(), 1, "{causes:?}");
        assert_eq!(count_of(&causes, ChannelEvent::BuffersLow), 1);
        return_elements_of_unknown_pool(&mut sides[0]);
        let illegal = Cause::Channel {
            channel: 0,
            what: ChannelEvent::IllegalPost,
            count: 1,
        };
        until(&mut sides, |_| {
            told.try_iter().any(|cause| cause == illegal)
        });
        drop(observation);
        for _ in 0..7 {
            assert!(sides[1].packet().is_some());
        }
        until(&mut sides, |sides| sides[0].link.has_room());
        sides[0].send(b"not observed").unwrap();
        let mut last = None;
        until(&mut sides, |sides| {
            last = last.take().or_else(|| sides[1].packet());
            last.is_some()
        });
        assert!(told.try_recv().is_err());
    }
}
