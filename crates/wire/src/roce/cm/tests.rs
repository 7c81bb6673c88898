//! Messages of the connection manager: each kind both ways, other attributes, short input. Whole exchanges of a real peer are among the
//! vectors of this crate.

use core::net::IpAddr;

use super::*;
use crate::roce::mad::MadHeader;
use crate::{Malformed, Psn, Qpn};

const PRIVATE: &[u8] = b"private data";

fn req() -> Req<'static> {
    Req {
        local_id: 0x032d_b280,
        service: CmaHeader::service_id(CmaHeader::PS_TCP, 7174),
        ca_guid: 0x9441_beff_fee7_84c8,
        qkey: 0,
        qpn: Qpn::wrapping(0x11),
        responder_resources: 1,
        initiator_depth: 2,
        remote_response_timeout: 20,
        transport: CmTransport::Rc,
        flow_control: true,
        starting_psn: Psn::wrapping(0xa5_55c9),
        local_response_timeout: 19,
        retry_count: 7,
        pkey: 0xffff,
        mtu: 3,
        rnr_retry_count: 6,
        max_cm_retries: 15,
        srq: true,
        primary: CmPath {
            local_lid: 0xffff,
            remote_lid: 0xfffe,
            local_gid: [1; 16],
            remote_gid: [2; 16],
            flow_label: 0x2_13e4,
            rate: 7,
            traffic_class: 8,
            hop_limit: 64,
            sl: 5,
            subnet_local: true,
            ack_timeout: 19,
        },
        alternate: CmPath::default(),
        private: PRIVATE,
    }
}

fn messages() -> Vec<CmMessage<'static>> {
    let (local_id, remote_id, private) = (1, 2, PRIVATE);
    vec![
        CmMessage::Req(req()),
        CmMessage::Mra(Mra {
            local_id,
            remote_id,
            message: 1,
            service_timeout: 20,
            private,
        }),
        CmMessage::Rej(Rej {
            local_id,
            remote_id,
            message: 2,
            reason: RejReason::CONSUMER,
            info: b"more",
            private,
        }),
        CmMessage::Rep(Rep {
            local_id,
            remote_id,
            qkey: 3,
            qpn: Qpn::wrapping(0x11),
            starting_psn: Psn::wrapping(0x2a_95a8),
            responder_resources: 4,
            initiator_depth: 5,
            target_ack_delay: 15,
            failover: 1,
            flow_control: true,
            rnr_retry_count: 7,
            srq: true,
            ca_guid: 6,
            private,
        }),
        CmMessage::Rtu(Rtu {
            local_id,
            remote_id,
            private,
        }),
        CmMessage::Dreq(Dreq {
            local_id,
            remote_id,
            remote_qpn: Qpn::wrapping(0x11),
            private,
        }),
        CmMessage::Drep(Drep {
            local_id,
            remote_id,
            private,
        }),
        CmMessage::SidrReq(SidrReq {
            request_id: 9,
            pkey: 0xffff,
            service: CmaHeader::service_id(CmaHeader::PS_UDP, 7174),
            private,
        }),
        CmMessage::SidrRep(SidrRep {
            request_id: 9,
            status: 1,
            qpn: Qpn::wrapping(0x11),
            service: 10,
            qkey: 0x1111_1111,
            private,
        }),
        CmMessage::Lap(Lap {
            local_id,
            remote_id,
            remote_qpn: Qpn::wrapping(0x11),
            path: [7; 44],
            private,
        }),
        CmMessage::Apr(Apr {
            local_id,
            remote_id,
            status: Apr::UNSUPPORTED,
            private,
        }),
    ]
}

#[test]
fn each_message_round_trips() {
    for message in messages() {
        let mad = message.emit(77);
        let (transaction, parsed) = CmMessage::parse(&mad).unwrap();
        assert_eq!(transaction, 77);
        // Private data comes back with the zeros behind it.
        assert_eq!(parsed.attribute(), message.attribute());
        assert_eq!(parsed.emit(77), mad, "{message}");
        let words = (parsed.to_string(), message.to_string());
        assert_eq!(words.0, words.1);
        for cut in 0..mad.len() {
            assert!(CmMessage::parse(&mad[..cut]).is_err(), "{message}: {cut}");
        }
    }
}

#[test]
fn every_field_of_a_request_is_kept() {
    let mad = CmMessage::Req(req()).emit(1);
    let (_, CmMessage::Req(parsed)) = CmMessage::parse(&mad).unwrap() else {
        panic!("a REQ");
    };
    assert_eq!(parsed.private.len(), Req::PRIVATE_LEN);
    assert!(parsed.private.starts_with(PRIVATE));
    let private = PRIVATE;
    assert_eq!(Req { private, ..parsed }, req());
}

#[test]
fn other_attributes_are_refused() {
    for attribute in [0, 0x0f, 0x1b, 0xffff] {
        let mut mad = CmMessage::Req(req()).emit(1);
        mad[16..18].copy_from_slice(&u16::to_be_bytes(attribute));
        let wanted = Malformed::Mad {
            what: "MAD attribute",
            got: attribute.into(),
        };
        assert_eq!(CmMessage::parse(&mad), Err(wanted));
    }
}

#[test]
fn additional_information_beyond_its_field_is_refused() {
    let mut mad = messages()[2].emit(1);
    mad[MadHeader::LEN + 9] = 73 << 1;
    assert!(matches!(
        CmMessage::parse(&mad),
        Err(Malformed::TooLong { got: 73, .. })
    ));
}

#[test]
fn header_of_rdma_cm_has_both_families() {
    for (src, dst) in [("10.2.0.1", "10.2.0.2"), ("fe80::1", "fe80::2")] {
        let header = CmaHeader {
            port: 37_986,
            src: src.parse::<IpAddr>().unwrap(),
            dst: dst.parse().unwrap(),
        };
        assert_eq!(CmaHeader::parse(&header.emit()), Ok(header));
    }
    for (at, value) in [(0, 1), (1, 0x50)] {
        let mut bytes = [0; CmaHeader::LEN];
        bytes[1] = 0x40;
        bytes[at] = value;
        assert!(CmaHeader::parse(&bytes).is_err(), "{at}");
    }
    let service = CmaHeader::service_id(CmaHeader::PS_TCP, 7174);
    assert_eq!(service, 0x0106_1c06);
    assert_eq!(CmaHeader::port_of(CmaHeader::PS_TCP, service), Some(7174));
    assert_eq!(CmaHeader::port_of(CmaHeader::PS_UDP, service), None);
}
