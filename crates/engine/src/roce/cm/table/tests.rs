//! The table alone, with times of its own: how many identifiers peers can cause, and when those that have ended are forgotten.

use core::net::Ipv4Addr;

use verbena_roce::Mtu;
use verbena_roce::cm::CmTimers;
use verbena_wire::roce::cm::{CmPath, CmTransport, CmaHeader};
use verbena_wire::roce::{Psn, Qpn, Service};

use super::*;

const LIMIT: Duration = Duration::from_secs(5);

fn req(local_id: u32) -> Req<'static> {
    Req {
        local_id,
        service: CmaHeader::service_id(CmaHeader::PS_TCP, 7174),
        ca_guid: 1,
        qkey: 0,
        qpn: Qpn::wrapping(0x11),
        responder_resources: 1,
        initiator_depth: 1,
        remote_response_timeout: 20,
        transport: CmTransport::Rc,
        flow_control: false,
        starting_psn: Psn::wrapping(7),
        local_response_timeout: 20,
        retry_count: 7,
        pkey: 0xffff,
        mtu: 3,
        rnr_retry_count: 7,
        max_cm_retries: 15,
        srq: false,
        primary: CmPath::default(),
        alternate: CmPath::default(),
        private: &[],
    }
}

fn source(number: u32) -> IpAddr {
    Ipv4Addr::from(0x0a00_0000 + number).into()
}

/// Adds the request of a peer; its identifiers are `number` on both sides.
fn add(table: &mut Table, from: IpAddr, number: u32, now: Time) {
    let id = CommunicationId::listen(&req(number), 1, number, CmTimers::default());
    let ends = Ends {
        local: ([127, 0, 0, 1], 7174).into(),
        peer: (from, 1).into(),
    };
    let asked = IncomingRequest {
        qpn: Qpn::wrapping(0x11),
        service: Service::Rc,
        mtu: Mtu::B1024,
        starting_psn: Psn::wrapping(7),
        responder_resources: 1,
        initiator_depth: 1,
        ack_timeout: 19,
        retry_count: 7,
        rnr_retry_count: 7,
        private_data: Vec::new(),
    };
    table.add_request(id, ends, 1, asked, Weak::new(), (now, now + LIMIT));
}

fn rejections(table: &mut Table) -> Vec<RejReason> {
    let outgoing = table.take_outgoing();
    let reason = |one: &Outgoing| match CmMessage::parse(&one.mad[..]) {
        Ok((_, CmMessage::Rej(rej))) => rej.reason,
        other => panic!("{other:?}"),
    };
    outgoing.iter().map(reason).collect()
}

const HALF_OPEN: usize = 16;

/// The requests that wait, by number.
fn waiting(table: &Table) -> Vec<u32> {
    let ids = table.ids.values();
    let open = ids.filter(|entry| entry.place.is_some());
    let mut open: Vec<u32> = open.map(|entry| entry.id.local_id()).collect();
    open.sort_unstable();
    open
}

#[test]
fn source_has_a_quarter_of_the_requests() {
    let mut table = Table::new(HALF_OPEN);
    for number in 1..=100 {
        add(&mut table, source(1), number, Time::ZERO);
    }
    assert_eq!(waiting(&table), [1, 2, 3, 4]);
    assert!(rejections(&mut table).is_empty(), "they are dropped");
    table.reject(1, RejReason::CONSUMER, &[], Time::ZERO);
    add(&mut table, source(1), 200, Time::ZERO);
    assert_eq!(waiting(&table), [2, 3, 4, 200]);
}

#[test]
fn newcomer_displaces_the_oldest_request_of_the_largest_source() {
    let mut table = Table::new(HALF_OPEN);
    for number in 1..=16 {
        add(&mut table, source(number % 4), number, Time::ZERO);
    }
    assert_eq!(waiting(&table).len(), HALF_OPEN);
    // Sources with three places: the fifth one gets as many.
    for (number, has_place) in [(20, true), (21, true), (22, true), (23, false)] {
        add(&mut table, source(9), number, Time::ZERO);
        assert_eq!(waiting(&table).contains(&number), has_place);
        let told = rejections(&mut table);
        assert_eq!(told == [RejReason::TIMEOUT], has_place, "{told:?}");
    }
    let (oldest, others) = (1..4, (4..=16).chain(20..=22));
    assert_eq!(waiting(&table), others.collect::<Vec<_>>());
    assert!(
        oldest
            .into_iter()
            .all(|number| table.asked(number).is_none())
    );
}

#[test]
fn calls_for_displaced_requests_are_bounded() {
    let mut table = Table::new(HALF_OPEN);
    for number in 1..=2 * MAX_ACTIONS as u32 {
        let from = source(number);
        add(&mut table, from, number, Time::ZERO);
        // As if it was accepted: then the next one takes its place.
        if let Some(place) = table.ids.get(&number).and_then(|entry| entry.place) {
            let source = Source::of(from);
            table.half_open.wait_for_peer(source, place, None);
        }
    }
    assert_eq!(table.actions.len(), MAX_ACTIONS);
    assert_eq!(waiting(&table).len(), HALF_OPEN);
}

#[test]
fn ended_identifiers_are_bounded_and_forgotten() {
    let mut table = Table::new(HALF_OPEN);
    let count = 2 * MAX_CLOSED as u32;
    for number in 1..=count {
        add(&mut table, source(number), number, Time::ZERO);
        table.reject(number, RejReason::CONSUMER, b"no", Time::ZERO);
    }
    assert_eq!(rejections(&mut table).len(), count as usize);
    assert_eq!(table.ids.len(), MAX_CLOSED);
    assert_eq!(table.by_peer.len(), MAX_CLOSED);
    // A repeated request is rejected again, and not shown again.
    let shown = table.actions.len();
    let again = CmMessage::Req(req(count));
    assert!(table.handle(source(count), 1, &again, Time::ZERO));
    assert_eq!(rejections(&mut table), [RejReason::CONSUMER]);
    assert_eq!(table.actions.len(), shown);
    table.expire(Time::ZERO + CLOSED_LIFETIME);
    assert!(table.ids.is_empty() && table.by_peer.is_empty() && table.closed.is_empty());
    assert!(table.timers.is_empty() && waiting(&table).is_empty());
}

#[test]
fn undecided_request_ends_at_its_limit() {
    let mut table = Table::new(HALF_OPEN);
    add(&mut table, source(1), 1, Time::ZERO);
    assert!(table.asked(1).is_some());
    table.expire(Time::ZERO + LIMIT);
    assert_eq!(rejections(&mut table), [RejReason::TIMEOUT]);
    assert!(table.asked(1).is_none());
    assert!(waiting(&table).is_empty());
}
