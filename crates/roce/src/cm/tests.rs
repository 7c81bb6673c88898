//! Two identifiers against each other, with every message lost or repeated once; states and events; late and strange messages.

use verbena_wire::roce::cm::{CmPath, CmTransport};

use super::*;

fn req() -> Req<'static> {
    Req {
        local_id: 0xa,
        service: 0x0106_1c06,
        ca_guid: 1,
        qkey: 0,
        qpn: Qpn::wrapping(0x11),
        responder_resources: 4,
        initiator_depth: 4,
        remote_response_timeout: 20,
        transport: CmTransport::Rc,
        flow_control: false,
        starting_psn: Psn::wrapping(100),
        local_response_timeout: 20,
        retry_count: 7,
        pkey: 0xffff,
        mtu: 3,
        rnr_retry_count: 7,
        max_cm_retries: 15,
        srq: false,
        primary: CmPath::default(),
        alternate: CmPath::default(),
        private: b"hello",
    }
}

fn rep() -> Rep<'static> {
    Rep {
        local_id: 0,
        remote_id: 0,
        qkey: 0,
        qpn: Qpn::wrapping(0x22),
        starting_psn: Psn::wrapping(200),
        responder_resources: 4,
        initiator_depth: 4,
        target_ack_delay: 0,
        failover: 1,
        flow_control: false,
        rnr_retry_count: 7,
        srq: false,
        ca_guid: 2,
        private: b"welcome",
    }
}

/// Both sides; the passive one exists from its first REQ on.
struct World {
    active: CommunicationId,
    passive: Option<CommunicationId>,
    now: Time,
    /// Messages sent so far, and those that are lost or repeated by their number.
    sent: u32,
    lose: Option<u32>,
    repeat: Option<u32>,
    outcomes: Vec<Outcome>,
    /// REQs that were shown to the program.
    shown: u32,
}

impl World {
    fn new(lose: Option<u32>, repeat: Option<u32>) -> World {
        let timers = CmTimers::default();
        World {
            active: CommunicationId::connect(&req(), 1, timers, Time::ZERO),
            passive: None,
            now: Time::ZERO,
            sent: 0,
            lose,
            repeat,
            outcomes: Vec::new(),
            shown: 0,
        }
    }

    /// With a connection, over a link that does nothing to it.
    fn established() -> World {
        let mut world = World::new(None, None);
        world.run();
        world.outcomes.clear();
        world
    }

    /// Both sides see the end of the connection, once.
    fn ends(&mut self) {
        self.run();
        assert_eq!(self.states(), (State::TimeWait, Some(State::TimeWait)));
        let both = [Outcome::Disconnected, Outcome::Disconnected];
        assert_eq!(self.outcomes, both);
    }

    fn copies(&mut self) -> usize {
        let number = Some(self.sent);
        self.sent += 1;
        if number == self.lose {
            0
        } else if number == self.repeat {
            2
        } else {
            1
        }
    }

    fn note(&mut self, outcome: Outcome) {
        if outcome != Outcome::Nothing {
            self.outcomes.push(outcome);
        }
    }

    fn run(&mut self) {
        for _ in 0..100 {
            let mut busy = false;
            while let Some(mad) = self.active.poll() {
                busy = true;
                for _ in 0..self.copies() {
                    let (transaction, message) = CmMessage::parse(&mad).unwrap();
                    match (&mut self.passive, message) {
                        (Some(passive), message) => {
                            let outcome = passive.handle(&message, transaction, self.now);
                            self.note(outcome);
                        }
                        (None, CmMessage::Req(req)) => {
                            self.shown += 1;
                            let timers = CmTimers::default();
                            let mut new = CommunicationId::listen(&req, transaction, 0xb, timers);
                            assert!(new.accept(&rep(), self.now));
                            self.passive = Some(new);
                        }
                        (None, other) => panic!("{other}"),
                    }
                }
            }
            while let Some(mad) = self.passive.as_mut().and_then(CommunicationId::poll) {
                busy = true;
                for _ in 0..self.copies() {
                    let (transaction, message) = CmMessage::parse(&mad).unwrap();
                    let outcome = self.active.handle(&message, transaction, self.now);
                    self.note(outcome);
                }
            }
            if busy {
                continue;
            }
            let passive = self.passive.as_ref().and_then(CommunicationId::deadline);
            let Some(next) = [self.active.deadline(), passive]
                .into_iter()
                .flatten()
                .min()
            else {
                return;
            };
            self.now = next;
            let outcome = self.active.handle_timeout(next);
            self.note(outcome);
            if let Some(passive) = &mut self.passive {
                let outcome = passive.handle_timeout(next);
                self.note(outcome);
            }
        }
        panic!("no end");
    }

    fn states(&self) -> (State, Option<State>) {
        let passive = self.passive.as_ref().map(CommunicationId::state);
        (self.active.state(), passive)
    }
}

#[test]
fn states_and_events() {
    let mut rows = Vec::new();
    for state in State::ALL {
        for event in Event::ALL {
            if let Some(next) = state.next(event) {
                rows.push(format!("{state:?} + {event:?} -> {next:?}"));
            }
        }
    }
    insta::assert_snapshot!(rows.join("\n"), @r"
    ReqSent + Reject -> Ended
    ReqSent + Rep -> Established
    ReqSent + Rej -> Ended
    ReqSent + TimedOut -> Ended
    Deciding + Accept -> RepSent
    Deciding + Reject -> Ended
    Deciding + Rej -> Ended
    RepSent + Reject -> Ended
    RepSent + Disconnect -> DreqSent
    RepSent + Rtu -> Established
    RepSent + Rej -> Ended
    RepSent + Dreq -> TimeWait
    RepSent + TimedOut -> Ended
    Established + Disconnect -> DreqSent
    Established + Rej -> TimeWait
    Established + Dreq -> TimeWait
    DreqSent + Dreq -> TimeWait
    DreqSent + Drep -> TimeWait
    DreqSent + TimedOut -> TimeWait
    ");
}

#[test]
fn connections_survive_loss_and_repetition() {
    let each = (0..3).map(Some).chain([None]);
    for (lose, repeat) in each
        .clone()
        .flat_map(|lose| each.clone().map(move |r| (lose, r)))
    {
        let mut world = World::new(lose, repeat);
        world.run();
        let both = (State::Established, Some(State::Established));
        assert_eq!(world.states(), both, "{lose:?} {repeat:?}");
        assert_eq!(world.shown, 1, "a repeated request is not shown again");
        let accepted = world.outcomes.iter().filter(|outcome| {
            matches!(outcome, Outcome::Accepted(rep) if rep.qpn == Qpn::wrapping(0x22) && rep.private.starts_with(b"welcome"))
        });
        assert_eq!(accepted.count(), 1);
        let established = world
            .outcomes
            .iter()
            .filter(|o| **o == Outcome::Established);
        assert_eq!(established.count(), 1);
        // The end, with each message lost or repeated.
        for number in [None, Some(world.sent), Some(world.sent + 1)] {
            let mut world = World::established();
            (world.lose, world.repeat) = (number, number.map(|n| n + 1));
            assert!(world.active.disconnect(7, b"", world.now));
            world.ends();
        }
    }
}

#[test]
fn silent_peer_is_unreachable() {
    let mut world = World::new(None, None);
    let (mut sent, mut before, mut waits) = (0, Time::ZERO, Vec::new());
    let outcome = loop {
        while world.active.poll().is_some() {
            sent += 1;
        }
        let Some(deadline) = world.active.deadline() else {
            panic!("it waits for ever");
        };
        waits.push(deadline.since(before).as_millis());
        before = deadline;
        match world.active.handle_timeout(deadline) {
            Outcome::Nothing => {}
            other => break other,
        }
    };
    assert_eq!((outcome, sent), (Outcome::Unreachable, 8));
    assert_eq!(waits, [100, 200, 400, 800, 800, 800, 800, 800]);
    assert_eq!(world.active.state(), State::Ended);
}

#[test]
fn both_may_disconnect_at_once() {
    let mut world = World::established();
    assert!(world.active.disconnect(7, b"", world.now));
    let passive = world.passive.as_mut().unwrap();
    assert!(passive.disconnect(8, b"", world.now));
    world.ends();
}

#[test]
fn rejection_reaches_the_requester_once() {
    let timers = CmTimers::default();
    let mut active = CommunicationId::connect(&req(), 1, timers, Time::ZERO);
    let mut passive = CommunicationId::listen(&req(), 1, 0xb, timers);
    assert!(passive.reject(RejReason::CONSUMER, b"no"));
    assert!(!passive.reject(RejReason::CONSUMER, b"no"), "once");
    assert!(!passive.accept(&rep(), Time::ZERO), "too late");
    let mad = passive.poll().unwrap();
    let (transaction, message) = CmMessage::parse(&mad).unwrap();
    let outcome = active.handle(&message, transaction, Time::ZERO);
    assert!(
        matches!(&outcome, Outcome::Rejected { reason: RejReason::CONSUMER, private } if private.starts_with(b"no")),
        "{outcome:?}"
    );
    assert_eq!(
        active.handle(&message, transaction, Time::ZERO),
        Outcome::Nothing
    );
    // A repeated request is rejected again.
    passive.handle(&CmMessage::Req(req()), 1, Time::ZERO);
    assert_eq!(passive.poll(), Some(mad));
}

#[test]
fn receipt_acknowledgement_extends_the_wait() {
    let timers = CmTimers::default();
    let mut active = CommunicationId::connect(&req(), 1, timers, Time::ZERO);
    let mut passive = CommunicationId::listen(&req(), 1, 0xb, timers);
    // The request is repeated while the program decides.
    passive.handle(&CmMessage::Req(req()), 1, Time::ZERO);
    let mad = passive.poll().unwrap();
    let (transaction, message) = CmMessage::parse(&mad).unwrap();
    active.handle(&message, transaction, Time::ZERO);
    let wait = active.deadline().unwrap().since(Time::ZERO);
    assert!(wait > Duration::from_secs(60), "{wait:?}");
}

#[test]
fn messages_of_other_transactions_have_no_effect() {
    let timers = CmTimers::default();
    let mut active = CommunicationId::connect(&req(), 1, timers, Time::ZERO);
    let reply = CmMessage::Rep(Rep {
        local_id: 0xb,
        remote_id: 0xa,
        ..rep()
    });
    assert_eq!(active.handle(&reply, 2, Time::ZERO), Outcome::Nothing);
    assert_eq!(active.state(), State::ReqSent);
    let mut passive = CommunicationId::listen(&req(), 1, 0xb, timers);
    let other = Req {
        local_id: 0xc,
        ..req()
    };
    passive.handle(&CmMessage::Req(other), 1, Time::ZERO);
    assert_eq!(passive.poll(), None);
}
