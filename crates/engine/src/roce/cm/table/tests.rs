//! The table alone, with times of its own: how many identifiers peers can cause, and when those that have ended are forgotten.

use core::net::Ipv4Addr;

use verbena_roce::cm::CmTimers;
use verbena_wire::roce::cm::{CmPath, CmTransport, CmaHeader};

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

#[test]
fn sources_have_shares_of_the_requests() {
    let mut table = Table::default();
    let limit = 16;
    for number in 1..=4 {
        assert!(table.admits(source(1), limit));
        add(&mut table, source(1), number, Time::ZERO);
    }
    assert!(!table.admits(source(1), limit), "its share");
    for number in 5..=16 {
        assert!(table.admits(source(number), limit));
        add(&mut table, source(number), number, Time::ZERO);
    }
    assert!(!table.admits(source(20), limit), "all");
    table.reject(1, RejReason::CONSUMER, &[], Time::ZERO);
    assert!(table.admits(source(1), limit));
    assert!(table.admits(source(20), limit));
}

#[test]
fn ended_identifiers_are_bounded_and_forgotten() {
    let mut table = Table::default();
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
    assert!(table.timers.is_empty() && table.half_open.is_empty());
    assert_eq!(table.half_open_count, 0);
}

#[test]
fn undecided_request_ends_at_its_limit() {
    let mut table = Table::default();
    add(&mut table, source(1), 1, Time::ZERO);
    assert!(table.asked(1).is_some());
    table.expire(Time::ZERO + LIMIT);
    assert_eq!(rejections(&mut table), [RejReason::TIMEOUT]);
    assert!(table.asked(1).is_none());
    assert_eq!(table.half_open_count, 0);
}
