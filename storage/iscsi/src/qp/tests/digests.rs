//! Digests: valid ones are sent and accepted, wrong ones end the connection with a cause (RFC 7143 §7.1, recovery level 0).

use verbena_storage_wire::iscsi::{BHS_LEN, FromInitiator};

use super::*;

fn digested((header_digest, data_digest): (bool, bool), split: Split) -> Rig {
    Rig::new(Setup {
        terms: Terms {
            header_digest,
            data_digest,
            max_send: 1000,
            immediate_data: true,
            ..Terms::DEFAULT
        },
        split,
        ..Setup::default()
    })
}

const BOTH: [(bool, bool); 4] = [(false, false), (true, false), (false, true), (true, true)];

/// The target verifies what is sent.
#[test]
fn data_moves_with_every_digest_setting() {
    for digests in BOTH {
        for way in Split::ALL {
            let mut rig = digested(digests, way);
            rig.memory.write(0, &pattern(0, 3000));
            let data = [rig.sge(0, 501), rig.sge(600, 2002)];
            let all = [rig.memory.read(0, 501), rig.memory.read(600, 2002)].concat();
            let (_, itt) = rig.command(1, Direction::Write, &data);
            rig.receive(1);
            let r2t = rig.target.r2t(itt, 4, 1000, 1503);
            rig.deliver(&r2t);
            let pdus = rig.take_pdus();
            let sent: Vec<u8> = pdus.iter().flat_map(|sent| sent.data.clone()).collect();
            assert_eq!(sent, all);
            assert!(matches!(pdus[2].pdu, FromInitiator::DataOut(pdu) if pdu.data_len == 503));

            let into = [rig.sge(10_001, 5), rig.sge(20_001, 996)];
            let (_, read) = rig.command(2, Direction::Read, &into);
            let bytes = pattern(5, 1001);
            rig.receive(2);
            let wire = [
                rig.target.data_in(read, 0, &bytes[..502]),
                rig.target.sense(itt, &[0, 1, 9]),
                rig.target.data_in_status(read, 502, &bytes[502..]),
            ];
            rig.deliver(&wire.concat());
            assert_eq!(rig.memory.read(10_001, 5), bytes[..5]);
            assert_eq!(rig.memory.read(20_001, 996), bytes[5..]);
            let ups = rig.received();
            assert_eq!(ups.len(), 4);
            assert_eq!(ups[2].bytes[BHS_LEN..], [0, 1, 9], "without digests");
            let done = [(1, Status::Success), (2, Status::Success)];
            assert_eq!(rig.sent(), done);
            let gathered = if digests.1 { 0 } else { 2503 };
            assert_eq!(rig.qp.view().counters.gathered, gathered);
        }
    }
}

/// A changed bit in the header or in its digest is detected.
#[test]
fn wrong_header_digest_ends_the_connection() {
    for way in [Split::Whole, Split::Single] {
        for at in [0, 16, 40, 47, 48, 51] {
            let mut rig = digested((true, false), way);
            let data = [rig.sge(0, 100)];
            let (_, itt) = rig.command(1, Direction::Read, &data);
            let mut pdu = rig.target.data_in_status(itt, 0, &[1; 100]);
            pdu[at] ^= 4;
            rig.deliver(&pdu);
            rig.assert_ended("digest of a header");
            rig.assert_untouched();
            assert_eq!(rig.sent(), [(1, Status::WrFlushErr)]);
            assert_eq!(rig.received()[0].status, Status::WrFlushErr);
        }
    }
}

#[test]
fn wrong_data_digest_ends_the_connection() {
    for way in Split::ALL {
        // Data, its padding, its digest; of data that is placed, and of a PDU that is delivered.
        for at in [48, 146, 148, 151] {
            let mut rig = digested((false, true), way);
            let data = [rig.sge(0, 99)];
            let (_, itt) = rig.command(1, Direction::Read, &data);
            let mut pdu = rig.target.data_in_status(itt, 0, &[1; 99]);
            assert_eq!(pdu.len(), 152);
            pdu[at] ^= 1;
            rig.deliver(&pdu);
            rig.assert_ended("digest of data");
            assert_eq!(rig.sent(), [(1, Status::WrFlushErr)], "no success");

            let mut rig = digested((false, true), way);
            let (_, itt) = rig.command(1, Direction::None, &[]);
            let mut pdu = rig.target.sense(itt, &[1; 99]);
            pdu[at] ^= 1;
            rig.deliver(&pdu);
            rig.assert_ended("digest of data");
            assert_eq!(rig.sent(), [(1, Status::WrFlushErr)]);
        }
    }
}

/// RFC 7143 §13.12: more data than we declared is a violation.
#[test]
fn pdu_longer_than_declared_ends_the_connection() {
    let mut rig = Rig::new(Setup {
        terms: Terms {
            max_recv: 600,
            ..Terms::DEFAULT
        },
        ..Setup::default()
    });
    let data = [rig.sge(0, 2000)];
    let (_, itt) = rig.command(1, Direction::Read, &data);
    rig.receive(1);
    let fits = rig.target.data_in(itt, 0, &[1; 600]);
    rig.deliver(&fits);
    assert_eq!(rig.state(), QpState::Rts);
    let over = rig.target.data_in(itt, 600, &[1; 601]);
    rig.deliver(&over);
    rig.assert_ended("601 bytes of data");
    assert_eq!(rig.memory.read(600, 1), [FILL]);
}
