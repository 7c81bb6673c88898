//! The rules one by one: indications at their limits, transactions, errors, and messages of a hostile peer.

mod hostile;

use verbena_split_wire::push::{
    Body, Element, Envelope, Indication, Message, Operation, Parsed, Pool, Range, Reference, Status,
};
use verbena_wire::{Stag, To};

use super::*;
use crate::error::Refused;
use crate::settings::IndicationMode;
use crate::world::World;

fn session(arrangement: Arrangement) -> Session {
    Session::new(Settings::new(arrangement)).unwrap()
}

fn pool(reference: u32, count: u32, size: u32) -> Pool {
    World::pool(reference, count, size)
}

fn outputs(session: &mut Session) -> Vec<Output> {
    core::iter::from_fn(|| session.poll()).collect()
}

fn events(session: &mut Session) -> Vec<Event> {
    let event = |output| match output {
        Output::Event(event) => Some(event),
        _ => None,
    };
    outputs(session).into_iter().filter_map(event).collect()
}

/// The messages, except those that only grant credit for messages.
fn messages(session: &mut Session) -> Vec<Vec<u8>> {
    let message = |output| match output {
        Output::Send(bytes) => Some(bytes),
        _ => None,
    };
    let all = outputs(session).into_iter().filter_map(message);
    all.filter(|bytes| !matches!(parse_known(bytes).body, Body::BufferRecvPoolUpdate(r) if r.iter().all(|r| r.pool == crate::MESSAGE_POOL)))
        .collect()
}

fn parse_known(bytes: &[u8]) -> Message<'_> {
    match Message::parse(bytes).unwrap() {
        Parsed::Known(message) => message,
        Parsed::Unknown(envelope) => panic!("{envelope}"),
    }
}

fn message(context: u64, body: Body<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Message { context, body }.emit(&mut bytes);
    bytes
}

fn lend(session: &mut Session, pools: &[Pool]) -> Result<(), Violation> {
    let mut bytes = Vec::new();
    Message::emit_pools(1, pools, &mut bytes);
    session.handle_message(Channel::Control, &bytes)
}

fn update(session: &mut Session, pool: u32, first: u32, count: u32) -> Result<(), Violation> {
    let mut bytes = Vec::new();
    Message::emit_ranges(1, &[Range { pool, first, count }], &mut bytes);
    session.handle_message(Channel::Control, &bytes)
}

/// A user with one pool, whose elements up to `element` are in use.
fn user(reference: u32, element: u32, size: u32) -> Session {
    let mut session = session(Arrangement::Writes);
    lend(&mut session, &[pool(reference, element + 1, size)]).unwrap();
    for _ in 0..element {
        let packet = session.send(1).unwrap();
        session.handle_written(packet).unwrap();
    }
    outputs(&mut session);
    session
}

/// P7: 255 and 256 pools and elements, 65535 and 65536 bytes.
#[test]
fn indication_uses_immediate_data_when_it_fits() {
    let cases = [
        (255, 255, 65535, true),
        (256, 255, 65535, false),
        (255, 256, 65535, false),
        (255, 255, 65536, false),
        (0, 0, 0, true),
        (0x7fff_fffe, 300, 100_000, false),
    ];
    for (reference, element, len, fits) in cases {
        let mut session = user(reference, element, 100_000);
        let packet = session.send(len).unwrap();
        let write = outputs(&mut session).remove(0);
        let Output::Write { at, immediate, .. } = write else {
            panic!("{write:?}");
        };
        let base = pool(reference, 1, 1).at.get();
        assert_eq!(at.get(), base + u64::from(element) * 100_000);
        let expected = Indication::fit(reference, element, len).map(Indication::immediate);
        assert_eq!(immediate, expected);
        assert_eq!(immediate.is_some(), fits, "{reference} {element} {len}");
        // Not before the write has completed.
        session.handle_written(packet).unwrap();
        let indicated = messages(&mut session);
        assert_eq!(indicated.len(), usize::from(!fits));
        if let [bytes] = indicated.as_slice() {
            let Body::BufferRdmaIndicate(elements) = parse_known(bytes).body else {
                panic!("another message");
            };
            let expected = Element::Index {
                pool: reference,
                element,
                length: len,
            };
            assert_eq!(elements.iter().collect::<Vec<_>>(), [expected]);
        }
    }
}

#[test]
fn gathered_indications_share_a_message() {
    let settings = Settings {
        indication: IndicationMode::Address,
        ..Settings::new(Arrangement::Writes)
    };
    let mut session = Session::new(settings).unwrap();
    lend(&mut session, &[pool(1, 8, 100)]).unwrap();
    let packets: Vec<_> = (0..5).map(|len| session.send(len).unwrap()).collect();
    assert!(messages(&mut session).len() <= 1);
    for packet in packets {
        session.handle_written(packet).unwrap();
    }
    let sent = messages(&mut session);
    let Body::BufferRdmaIndicate(elements) = parse_known(&sent[0]).body else {
        panic!("another message");
    };
    let base = pool(1, 1, 1).at.get();
    let expected = (0..5).map(|n| Element::Address {
        pool: 1,
        at: To::new(base + 100 * u64::from(n)),
        length: n,
    });
    assert!(elements.iter().eq(expected));
    assert_eq!(sent.len(), 1);
}

/// P6: an element is not reused before the owner gave it back, even if the write completes later.
#[test]
fn element_is_reused_only_after_owner_returns_it() {
    let mut session = session(Arrangement::Writes);
    lend(&mut session, &[pool(1, 1, 100)]).unwrap();
    let packet = session.send(10).unwrap();
    assert_eq!(session.send(10), Err(Refused::Full { len: 10 }));
    update(&mut session, 1, 0, 1).unwrap();
    assert_eq!(session.send(10), Err(Refused::Full { len: 10 }));
    session.handle_written(packet).unwrap();
    assert!(events(&mut session).contains(&Event::RoomAvailable));
    let packet = session.send(10).unwrap();
    session.handle_written(packet).unwrap();
    assert_eq!(session.send(10), Err(Refused::Full { len: 10 }));
    // Given back twice.
    update(&mut session, 1, 0, 1).unwrap();
    let twice = Violation::NotUsed {
        pool: 1,
        element: 0,
    };
    assert_eq!(update(&mut session, 1, 0, 1), Err(twice));
    assert_eq!(session.free(), 1);
}

/// P6: the session asks when it runs low, once.
#[test]
fn session_low_on_elements_asks_once() {
    let settings = Settings {
        low: 2,
        request_count: 77,
        ..Settings::new(Arrangement::Writes)
    };
    let mut session = Session::new(settings).unwrap();
    lend(&mut session, &[pool(1, 3, 100)]).unwrap();
    session.send(50).unwrap();
    assert_eq!(messages(&mut session).len(), 0);
    session.send(60).unwrap();
    let asked = messages(&mut session);
    let expected = Body::BufferRecvPoolGet {
        count: 77,
        size: 60,
    };
    assert_eq!(parse_known(&asked[0]).body, expected);
    session.send(50).unwrap();
    session.send(50).unwrap_err();
    assert_eq!(messages(&mut session).len(), 0);
    // A longer packet is asked for again.
    let refused = session.send(101);
    assert_eq!(
        refused,
        Err(Refused::TooLong {
            len: 101,
            most: 100
        })
    );
    assert_eq!(messages(&mut session).len(), 1);
}

/// P6: the user stops before it replies.
#[test]
fn flush_is_answered_after_writes_complete() {
    let mut session = session(Arrangement::Writes);
    lend(&mut session, &[pool(1, 4, 100), pool(2, 4, 100)]).unwrap();
    let packet = session.send(10).unwrap();
    let mut bytes = Vec::new();
    Message::emit_flush(99, &[Reference(1), Reference(2), Reference(5)], &mut bytes);
    session.handle_message(Channel::Control, &bytes).unwrap();
    assert!(session.send(10).is_err());
    let reply = message(99, Body::BufferPoolFlushReply);
    assert!(!messages(&mut session).contains(&reply));
    session.handle_written(packet).unwrap();
    assert!(messages(&mut session).contains(&reply));
    assert_eq!(session.peer_pools.len(), 0);
}

#[test]
fn pool_advertisements_are_split_at_frame_size() {
    let settings = Settings {
        frame: 12 + 2 * 32,
        ..Settings::new(Arrangement::Writes)
    };
    let mut session = Session::new(settings).unwrap();
    let pools: Vec<Pool> = (0..5).map(|n| pool(n, 2, 10)).collect();
    session.advertise(&pools).unwrap();
    let sent = messages(&mut session);
    let counts: Vec<usize> = sent
        .iter()
        .map(|bytes| match parse_known(bytes).body {
            Body::BufferRecvPool(pools) => pools.len(),
            _ => 0,
        })
        .collect();
    assert_eq!(counts, [2, 2, 1]);
}

/// P6: unknown functions and versions are counted and answered.
#[test]
fn unknown_messages_are_answered() {
    let mut session = session(Arrangement::Single);
    for (function, version) in [(10, 1), (0, 1), (1, 2), (9, 0), (0xffff, 0xffff)] {
        let context = 0x0102_0304_0506_0708;
        let envelope = Envelope {
            function,
            version,
            context,
        };
        let result = session.handle_message(Channel::Control, &envelope.emit());
        assert_eq!(result, Ok(()));
        let replies = messages(&mut session);
        let expected = Body::CfgUtilReply {
            operation: Operation::None,
            status: Status::UnknownMessage,
            data: &[],
        };
        assert_eq!(parse_known(&replies[0]).body, expected);
        assert_eq!(parse_known(&replies[0]).context, context);
        let grant = session.grant.received();
        update(&mut session, crate::MESSAGE_POOL, 0, 8 + grant).unwrap();
    }
    assert_eq!(session.counters().unknown, 5);
}

/// P6: CfgUtilRequest is always answered.
#[test]
fn every_request_is_answered() {
    let mut session = session(Arrangement::Writes);
    let status = |session: &mut Session, bytes: &[u8]| {
        let _ = session.handle_message(Channel::Control, bytes);
        let sent = messages(session);
        sent.first().map(|bytes| match parse_known(bytes).body {
            Body::CfgUtilReply {
                operation, status, ..
            } => (parse_known(bytes).context, operation, status),
            other => panic!("{other:?}"),
        })
    };
    let request = |operation, data| message(5, Body::CfgUtilRequest { operation, data });
    let unknown = request(Operation::Unknown(900), b"");
    let expected = (5, Operation::Unknown(900), Status::UnknownOperation);
    assert_eq!(status(&mut session, &unknown), Some(expected));
    let mut short = request(Operation::SetMac, b"123");
    short.pop();
    let expected = (5, Operation::SetMac, Status::BadData);
    assert_eq!(status(&mut session, &short), Some(expected));
    // The program answers the others, once.
    assert_eq!(status(&mut session, &request(Operation::GetMac, b"")), None);
    session.reply(5, Status::Ok, b"mac").unwrap();
    let misuse = Misuse::UnknownRequest { context: 5 };
    assert_eq!(session.reply(5, Status::Ok, b"mac"), Err(misuse));
    let sent = messages(&mut session);
    let expected = Body::CfgUtilReply {
        operation: Operation::GetMac,
        status: Status::Ok,
        data: b"mac",
    };
    assert_eq!((parse_known(&sent[0]).body, sent.len()), (expected, 1));
}

#[test]
fn reply_must_match_its_request() {
    let mut session = session(Arrangement::Writes);
    let context = session.request(Operation::GetLink, b"").unwrap();
    let reply = Body::CfgUtilReply {
        operation: Operation::GetLink,
        status: Status::Ok,
        data: b"up",
    };
    let stray = session.handle_message(Channel::Control, &message(context + 1, reply));
    let expected = Violation::StrayReply {
        context: context + 1,
    };
    assert_eq!(stray, Err(expected));
    let flush = message(context, Body::BufferPoolFlushReply);
    assert!(session.handle_message(Channel::Control, &flush).is_err());
    let answer = message(context, reply);
    assert_eq!(session.handle_message(Channel::Control, &answer), Ok(()));
    assert_eq!(session.open_requests(), 0);
    assert!(session.handle_message(Channel::Control, &answer).is_err());
}

#[test]
fn pool_is_freed_after_flush_reply() {
    let mut session = session(Arrangement::Writes);
    session.advertise(&[pool(1, 2, 100)]).unwrap();
    let word = |element| Indication::fit(1, element, 9).unwrap().immediate();
    session.handle_immediate(Channel::Data, word(0)).unwrap();
    let context = session.flush(&[1]).unwrap();
    // What the peer wrote before it was asked still arrives.
    session.handle_immediate(Channel::Data, word(1)).unwrap();
    let freed = Event::PoolFreed { pool: 1 };
    assert!(!events(&mut session).contains(&freed));
    let reply = message(context, Body::BufferPoolFlushReply);
    session.handle_message(Channel::Control, &reply).unwrap();
    assert!(events(&mut session).contains(&freed));
    assert!(session.handle_immediate(Channel::Data, word(0)).is_err());
    // The program keeps its elements; with the last one the number becomes available.
    let again = [pool(1, 2, 100)];
    assert!(session.advertise(&again).is_err());
    session.give_back(1, 1).unwrap();
    session.give_back(1, 0).unwrap();
    session.advertise(&again).unwrap();
}

#[test]
fn settings_and_pools_are_checked() {
    for frame in [0, 63] {
        let settings = Settings {
            frame,
            ..Settings::new(Arrangement::Writes)
        };
        assert!(Session::new(settings).is_err());
    }
    let mut session = session(Arrangement::Writes);
    let wrap = Pool {
        at: To::new(u64::MAX - 10),
        handle: Stag::new(0),
        ..pool(1, 2, 10)
    };
    for bad in [pool(1, 0, 10), pool(1, 1, 0), wrap] {
        assert!(matches!(
            session.advertise(&[bad]),
            Err(Misuse::BadPool { .. })
        ));
        assert!(matches!(
            lend(&mut session, &[bad]),
            Err(Violation::BadPool { .. })
        ));
    }
    let twice = [pool(4, 1, 1), pool(4, 1, 1)];
    assert!(matches!(
        session.advertise(&twice),
        Err(Misuse::PoolExists { .. })
    ));
    assert_eq!(session.own_pools().len(), 0);
    let most = session.settings.limits.elements;
    assert!(session.advertise(&[pool(1, most + 1, 1)]).is_err());
    assert!(lend(&mut session, &[pool(1, most + 1, 1)]).is_err());
    assert!(lend(&mut session, &[pool(1, most, 1)]).is_ok());
    assert!(lend(&mut session, &[pool(2, 1, 1)]).is_err());
}

/// A packet that does not fit consumes its descriptor: the carrier's queue and ours stay equal.
#[test]
fn overlong_packet_consumes_its_descriptor() {
    let mut session = session(Arrangement::Sends);
    session.advertise(&[pool(1, 2, 100)]).unwrap();
    outputs(&mut session);
    let result = session.handle_packet(Channel::Data, 101);
    assert!(matches!(result, Err(Violation::Length { element: 0, .. })));
    session.handle_packet(Channel::Data, 100).unwrap();
    let all = outputs(&mut session);
    let post = Output::Post {
        pool: 1,
        first: 0,
        count: 1,
    };
    let arrived = Output::Event(Event::Arrived {
        pool: 1,
        element: 1,
        len: 100,
    });
    assert_eq!(all[..2], [post, arrived]);
    session.handle_packet(Channel::Data, 0).unwrap();
    session.handle_packet(Channel::Data, 0).unwrap_err();
}

/// A packet that was given up arrives late: it consumes the next descriptor, here as at the carrier.
#[test]
fn late_packet_consumes_its_descriptor() {
    let mut session = session(Arrangement::Sends);
    session.advertise(&[pool(1, 2, 100)]).unwrap();
    outputs(&mut session);
    session.handle_lost(Channel::Data, 2);
    let late = session.handle_packet(Channel::Data, 100);
    assert_eq!(
        late,
        Err(Violation::Late {
            pool: 1,
            element: 0
        })
    );
    let post = Output::Post {
        pool: 1,
        first: 0,
        count: 1,
    };
    assert_eq!(outputs(&mut session)[0], post);
    session.handle_packet(Channel::Data, 100).unwrap();
    let arrived = Event::Arrived {
        pool: 1,
        element: 1,
        len: 100,
    };
    assert_eq!(events(&mut session), [arrived]);
    session.invariants();
}

/// An element that is returned does not cancel the request for a longer one.
#[test]
fn request_for_longer_element_is_kept() {
    let mut session = user(1, 0, 100);
    let packet = session.send(50).unwrap();
    session.handle_written(packet).unwrap();
    outputs(&mut session);
    session.send(101).unwrap_err();
    update(&mut session, 1, 0, 1).unwrap();
    let asked = messages(&mut session);
    let body = parse_known(&asked[0]).body;
    assert!(matches!(body, Body::BufferRecvPoolGet { size: 101, .. }));
    lend(&mut session, &[pool(2, 20, 101)]).unwrap();
    assert!(events(&mut session).contains(&Event::RoomAvailable));
}

/// Messages beyond the granted credit are not processed.
#[test]
fn messages_beyond_the_window_are_refused() {
    let settings = Settings {
        messages: INITIAL_CREDIT,
        ..Settings::new(Arrangement::Writes)
    };
    let mut session = Session::new(settings).unwrap();
    for reference in 0..INITIAL_CREDIT {
        lend(&mut session, &[pool(reference, 1, 1)]).unwrap();
    }
    let window = INITIAL_CREDIT;
    let beyond = lend(&mut session, &[pool(99, 1, 1)]);
    assert_eq!(beyond, Err(Violation::MessageOverrun { window }));
    assert_eq!(session.peer_pools.len(), INITIAL_CREDIT as usize);
    // Polling grants new credit.
    outputs(&mut session);
    lend(&mut session, &[pool(99, 1, 1)]).unwrap();
}

/// A peer that asks has run low: it is told of every element, not only of a batch.
#[test]
fn pool_request_is_answered_with_returned_elements() {
    let mut session = session(Arrangement::Writes);
    session.advertise(&[pool(1, 8, 100)]).unwrap();
    let word = Indication::fit(1, 3, 9).unwrap().immediate();
    session.handle_immediate(Channel::Data, word).unwrap();
    session.give_back(1, 3).unwrap();
    // Only the pool.
    assert_eq!(messages(&mut session).len(), 1);
    let get = message(1, Body::BufferRecvPoolGet { count: 1, size: 1 });
    session.handle_message(Channel::Control, &get).unwrap();
    let sent = messages(&mut session);
    let mut expected = Vec::new();
    let range = Range {
        pool: 1,
        first: 3,
        count: 1,
    };
    Message::emit_ranges(parse_known(&sent[0]).context, &[range], &mut expected);
    assert_eq!(sent, [expected]);
}
