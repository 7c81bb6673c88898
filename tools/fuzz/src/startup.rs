//! MPA startup (RFC 5044 §7.1, RFC 6581) with terms, bytes, splits and decisions from the input.
//! Alone, an endpoint must keep its buffer bounded, consume no more than it is given, stay in a final state, and reach the same outcome for
//! every split. In a pair, both ends of one exchange must reach matching agreements.

use core::time::Duration;

use verbena_stream::startup::{Failure, MAX_FRAME, Rtr, State};
use verbena_stream::{Agreement, Endpoint, Outcome, Role, Terms, Time};
use verbena_wire::mpa::RtrKinds;
use verbena_wire::mpa::startup::{Kind, Revision};

use crate::source::{Source, bit};

/// A Terminate FPDU without echoed headers, the most an initiator sends behind its Request.
const MAX_TERMINATE: usize = 64;

/// Runs one input.
pub fn target(data: &[u8]) {
    let mut source = Source::new(data);
    let switches = source.byte();
    let ours = terms(&mut source);
    let plan = Plan::read(&mut source);
    if bit(switches, 0) {
        let theirs = terms(&mut source);
        return pair(&ours, theirs, &plan, source.rest());
    }
    let role = if bit(switches, 1) {
        Role::Initiator
    } else {
        Role::Responder
    };
    let mut bytes = Vec::new();
    if bit(switches, 2) {
        // The key is long and has to be exact: it is provided.
        bytes.extend(expected(role).key());
    }
    bytes.extend(source.rest());
    let whole = run_one(role, &ours, &plan, &bytes, usize::MAX);
    let split = run_one(role, &ours, &plan, &bytes, plan.chunk);
    assert_eq!(whole, split, "the outcome depends on the split");
}

fn expected(role: Role) -> Kind {
    match role {
        Role::Initiator => Kind::Reply,
        Role::Responder => Kind::Request,
    }
}

fn terms(source: &mut Source<'_>) -> Terms {
    let (flags, rtr) = (source.byte(), source.byte());
    Terms {
        revision: if bit(flags, 0) {
            Revision::One
        } else {
            Revision::Two
        },
        crc: bit(flags, 1),
        markers: bit(flags, 2),
        peer_to_peer: bit(flags, 3),
        extensions: bit(flags, 4),
        ird: source.u16(),
        ord: source.u16(),
        rtr: RtrKinds {
            send: bit(rtr, 0),
            write: bit(rtr, 1),
            read: bit(rtr, 2),
        },
        timeout: Duration::from_millis(1),
    }
}

/// What happens besides the peer's bytes.
struct Plan {
    chunk: usize,
    accepts: bool,
    ird: u16,
    ord: u16,
    /// Private data of the answer; may be too long.
    answer: Vec<u8>,
    /// True: the connection closes after the bytes. False: the timeout expires, if startup is not over.
    closes: bool,
}

impl Plan {
    fn read(source: &mut Source<'_>) -> Plan {
        let flags = source.byte();
        Plan {
            chunk: 1 + usize::from(source.byte()),
            accepts: bit(flags, 0),
            closes: bit(flags, 1),
            ird: source.u16(),
            ord: source.u16(),
            answer: vec![0xa5; usize::from(source.u16()) % 600],
        }
    }
}

/// How a run ended: the final state, the outcome, the bytes left for the stream, and the bytes sent.
#[derive(Debug, PartialEq)]
struct End {
    state: State,
    outcome: Option<Outcome>,
    left: Option<usize>,
    sent: Vec<u8>,
}

fn run_one(role: Role, terms: &Terms, plan: &Plan, bytes: &[u8], chunk: usize) -> End {
    let private_data = &plan.answer[..plan.answer.len().min(500)];
    let endpoint = match role {
        Role::Initiator => Endpoint::initiator(terms.clone(), private_data, Time::ZERO),
        Role::Responder => Ok(Endpoint::responder(terms.clone(), Time::ZERO)),
    };
    let mut endpoint = endpoint.expect("private data fits");
    let mut sent = endpoint.poll_transmit();
    assert!(sent.len() <= MAX_FRAME);
    assert_eq!(sent.is_empty(), role == Role::Responder);

    let left = feed(&mut endpoint, bytes, chunk);
    if endpoint.state() == State::Deciding {
        decide(&mut endpoint, plan);
    }
    if plan.closes {
        endpoint.handle_eof();
    }
    let answer = endpoint.poll_transmit();
    assert!(answer.len() <= MAX_FRAME.max(MAX_TERMINATE));
    sent.extend(answer);
    final_is_final(&mut endpoint);
    let state = endpoint.state();
    let outcome = endpoint.into_outcome();
    assert_eq!(outcome.is_some(), state.is_final());
    End {
        state,
        // How many bytes came too early depends on the split.
        outcome: outcome.map(without_count),
        left: (state == State::Established).then_some(left),
        sent,
    }
}

/// Returns how many bytes startup did not consume.
fn feed(endpoint: &mut Endpoint, bytes: &[u8], chunk: usize) -> usize {
    let mut at = 0;
    while at < bytes.len() {
        let end = at.saturating_add(chunk).min(bytes.len());
        let was = endpoint.state();
        let used = endpoint.handle_bytes(&bytes[at..end]);
        assert!(used <= end - at, "took more than it was given");
        assert!(!was.is_final() || used == 0);
        at += used;
        if endpoint.state().is_final() {
            break;
        }
        assert_eq!(at, end, "left bytes while it waits for more");
        assert!(at <= MAX_FRAME, "an unfinished frame grows without bound");
    }
    bytes.len() - at
}

fn decide(endpoint: &mut Endpoint, plan: &Plan) {
    let proposal = endpoint.proposal().expect("a Request waits");
    assert_eq!(proposal.role, Role::Responder);
    let answered = if plan.accepts {
        endpoint.accept(plan.ird, plan.ord, &plan.answer)
    } else {
        endpoint.reject(&plan.answer)
    };
    if answered.is_err() {
        assert_eq!(endpoint.state(), State::Deciding, "misuse changes nothing");
        assert!(endpoint.poll_transmit().is_empty());
        let _ = endpoint.reject(b"");
    }
    assert!(endpoint.state().is_final());
    assert!(endpoint.proposal().is_none());
}

fn final_is_final(endpoint: &mut Endpoint) {
    let state = endpoint.state();
    if !state.is_final() {
        assert!(endpoint.deadline().is_some());
        endpoint.handle_timeout(Time::ZERO);
        assert_eq!(endpoint.state(), state, "timed out before the deadline");
        endpoint.handle_timeout(Time::from_nanos(u64::MAX));
        return assert_eq!(endpoint.state(), State::Failed);
    }
    assert!(endpoint.deadline().is_none());
    assert_eq!(endpoint.handle_bytes(b"MPA ID Req Frame"), 0);
    endpoint.handle_eof();
    endpoint.handle_timeout(Time::from_nanos(u64::MAX));
    assert!(endpoint.accept(1, 1, b"").is_err() && endpoint.reject(b"").is_err());
    assert_eq!(endpoint.state(), state);
    assert!(endpoint.poll_transmit().is_empty());
}

fn without_count(mut outcome: Outcome) -> Outcome {
    if let Outcome::Failed {
        reason: Failure::EarlyBytes(count),
        ..
    } = &mut outcome
    {
        *count = 0;
    }
    outcome
}

/// Two endpoints, each fed what the other sends; `private_data` goes with the Request.
fn pair(ours: &Terms, theirs: Terms, plan: &Plan, private_data: &[u8]) {
    let Ok(mut initiator) = Endpoint::initiator(ours.clone(), private_data, Time::ZERO) else {
        return assert!(private_data.len() > 500);
    };
    let mut responder = Endpoint::responder(theirs, Time::ZERO);
    let request = initiator.poll_transmit();
    assert_eq!(feed(&mut responder, &request, plan.chunk), 0);
    assert_eq!(
        responder.state(),
        State::Deciding,
        "our own Request is good"
    );
    decide(&mut responder, plan);
    let reply = responder.poll_transmit();
    assert_eq!(feed(&mut initiator, &reply, plan.chunk), 0);
    assert!(initiator.state().is_final());
    match (initiator.into_outcome(), responder.into_outcome()) {
        (Some(Outcome::Established(a)), Some(Outcome::Established(b))) => {
            assert_eq!(b.private_data, private_data);
            matching(&a, &b, ours.revision);
        }
        // An initiator may leave an agreement it cannot keep (RFC 6581 §9).
        (Some(Outcome::Failed { reason, .. }), Some(Outcome::Established(_))) => {
            assert!(
                matches!(
                    reason,
                    Failure::InsufficientIrd { .. } | Failure::NoCommonRtr
                ),
                "{reason}"
            );
        }
        (Some(Outcome::Rejected { .. }), Some(Outcome::Refused)) => {}
        (a, b) => panic!("initiator {a:?}, responder {b:?}"),
    }
}

fn matching(a: &Agreement, b: &Agreement, revision: Revision) {
    assert_eq!((a.role, b.role), (Role::Initiator, Role::Responder));
    assert_eq!((a.revision, b.revision), (revision, revision));
    assert_eq!((a.crc, a.extensions), (b.crc, b.extensions));
    assert_eq!((a.markers_tx, a.markers_rx), (b.markers_rx, b.markers_tx));
    if revision == Revision::Two {
        // An initiator may leave its ORD open (not negotiated); it is settled outside of MPA then.
        let open = a.ord == Terms::NOT_NEGOTIATED;
        assert!(
            open || a.ord <= b.ird,
            "the initiator asks more than is served"
        );
        assert!(b.ord <= a.ird, "the responder asks more than is served");
    }
    match (a.rtr, b.rtr) {
        (Rtr::None, Rtr::None) | (Rtr::Caps, Rtr::Caps) => {}
        (Rtr::Send, Rtr::AnyOf(kinds)) => assert!(kinds.send),
        (Rtr::Write, Rtr::AnyOf(kinds)) => assert!(kinds.write),
        (Rtr::Read, Rtr::AnyOf(kinds)) => {
            assert!(kinds.read);
            assert!(b.ird > 0, "no room for the ready-to-receive read");
        }
        (a, b) => panic!("initiator opens with {a:?}, responder waits for {b:?}"),
    }
}
