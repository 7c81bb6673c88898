//! Messages of a peer that breaks the rules.

use proptest::prelude::*;

use super::*;

/// A well-formed message with any content.
fn crafted() -> impl Strategy<Value = Vec<u8>> {
    let small = || {
        prop_oneof![
            0..6u32,
            Just(255),
            Just(256),
            any::<u32>(),
            Just(crate::MESSAGE_POOL)
        ]
    };
    let words = prop::collection::vec(small(), 0..12);
    (0..11u16, 0..8u64, words, any::<bool>()).prop_map(|(function, context, words, sized)| {
        let version = if context == 7 { 2 } else { 1 };
        let envelope = Envelope {
            function,
            version,
            context,
        };
        let mut bytes = envelope.emit().to_vec();
        let data: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
        if sized {
            if function >= 8 {
                bytes.extend_from_slice(&[0, (context % 13) as u8, 0, 0]);
            }
            bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
        }
        bytes.extend_from_slice(&data);
        bytes
    })
}

#[derive(Debug, Clone)]
enum Input {
    Message(Vec<u8>),
    Immediate(u32),
    Packet(u32),
    Send(u32),
    Written,
    GiveBack(usize),
    Flush,
    Request,
    Refresh,
    Poll,
}

fn input() -> impl Strategy<Value = Input> {
    let word = (0..3u8, 0..9u8, any::<u16>());
    let word = word.prop_map(|(p, e, l)| u32::from_be_bytes([p, e, (l >> 8) as u8, l as u8]));
    prop_oneof![
        10 => crafted().prop_map(Input::Message),
        2 => prop::collection::vec(any::<u8>(), 0..80).prop_map(Input::Message),
        2 => word.prop_map(Input::Immediate),
        2 => (0..300u32).prop_map(Input::Packet),
        2 => (0..300u32).prop_map(Input::Send),
        2 => Just(Input::Written),
        2 => any::<usize>().prop_map(Input::GiveBack),
        1 => Just(Input::Flush),
        1 => Just(Input::Request),
        1 => Just(Input::Refresh),
        4 => Just(Input::Poll),
    ]
}

fn limits() -> crate::Limits {
    crate::Limits {
        pools: 4,
        elements: 1000,
        transactions: 3,
        outputs: 200,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Nothing panics or grows without limit, and no write leaves the pools that the peer lent.
    #[test]
    fn arbitrary_input_stays_within_limits(
        arrangement in proptest::sample::select(&Arrangement::ALL[..]),
        inputs in prop::collection::vec(input(), 0..200),
    ) {
        run_inputs(arrangement, &inputs);
    }
}

fn run_inputs(arrangement: Arrangement, inputs: &[Input]) {
    let settings = Settings {
        limits: limits(),
        messages: 8,
        frame: 256,
        ..Settings::new(arrangement)
    };
    let mut session = Session::new(settings).unwrap();
    session.advertise(&[pool(1, 8, 200)]).unwrap();
    let mut lent: Vec<Pool> = Vec::new();
    let mut flying = Vec::new();
    let mut held: Vec<(u32, u32)> = Vec::new();
    for input in inputs {
        let before = session.counters().violations.total();
        let violated = match input {
            Input::Message(bytes) => session.handle_message(Channel::Control, bytes).is_err(),
            Input::Immediate(word) => session.handle_immediate(Channel::Data, *word).is_err(),
            Input::Packet(len) => session.handle_packet(Channel::Data, *len).is_err(),
            Input::Send(len) => {
                flying.extend(session.send(*len));
                false
            }
            Input::Written => {
                let packet = flying.pop();
                packet.is_some_and(|p| session.handle_written(p).is_err())
            }
            Input::GiveBack(which) if !held.is_empty() => {
                let (pool, element) = held.swap_remove(which % held.len());
                session.give_back(pool, element).unwrap();
                false
            }
            Input::Flush => {
                let _ = session.flush(&[1]);
                false
            }
            Input::Request => {
                let _ = session.request(Operation::GetMac, b"");
                false
            }
            Input::Refresh => {
                session.refresh();
                false
            }
            Input::Poll | Input::GiveBack(_) => {
                for output in outputs(&mut session) {
                    check_output(&output, &mut lent, &mut held, &mut session);
                }
                false
            }
        };
        assert!(!violated || session.counters().violations.total() > before);
        session.invariants();
        assert!(session.outputs.len() <= limits().outputs + 100);
        assert!(session.outbox.len() <= 8 + 3 * 3 + 100);
    }
}

fn check_output(
    output: &Output,
    lent: &mut Vec<Pool>,
    held: &mut Vec<(u32, u32)>,
    session: &mut Session,
) {
    match *output {
        Output::Write {
            handle, at, len, ..
        } => {
            let within = |p: &Pool| {
                let end = p.at.get() + u64::from(p.count) * u64::from(p.size);
                p.handle == handle && at >= p.at && at.get() + u64::from(len) <= end
            };
            assert!(lent.iter().any(within), "outside");
        }
        Output::Event(Event::PoolLent(pool)) => lent.push(pool),
        Output::Event(Event::Arrived { pool, element, len }) => {
            assert!(pool == 1 && element < 8 && len <= 200);
            assert!(!held.contains(&(pool, element)));
            held.push((pool, element));
        }
        Output::Event(Event::Request { context, .. }) => {
            session.reply(context, Status::Ok, b"").unwrap();
        }
        Output::Store { element, len, .. } => assert!(element < 8 && len <= 200),
        _ => {}
    }
}

/// A peer that has used up its credit for messages is ignored, and cannot make the answers that we owe grow.
#[test]
fn answers_owed_to_stalled_peer_are_limited() {
    let mut session = Session::new(Settings {
        limits: limits(),
        messages: 8,
        ..Settings::new(Arrangement::Writes)
    })
    .unwrap();
    let mut limit = INITIAL_CREDIT;
    let mut refused = 0;
    for _ in 0..2000 {
        let unknown = [0, 99, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1];
        refused += u32::from(session.handle_message(Channel::Control, &unknown).is_err());
        if session.grant.left() == 1 {
            // Just enough credit for the session to continue.
            limit += u32::from(session.credit.left() == 0);
            let _ = update(&mut session, crate::MESSAGE_POOL, 0, limit);
        }
        outputs(&mut session);
    }
    assert!(refused > 1000);
    assert!(session.outbox.len() <= 3 * 3 + 8);
}

#[test]
fn input_is_refused_while_outputs_wait() {
    let mut session = Session::new(Settings {
        limits: limits(),
        messages: 1000,
        ..Settings::new(Arrangement::Writes)
    })
    .unwrap();
    outputs(&mut session);
    let get = message(1, Body::BufferRecvPoolGet { count: 1, size: 1 });
    let most = limits().outputs;
    for _ in 0..most {
        session.handle_message(Channel::Control, &get).unwrap();
    }
    let result = session.handle_message(Channel::Control, &get);
    assert_eq!(result, Err(Violation::Backlog { most }));
}
