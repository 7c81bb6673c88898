//! The table of failures in docs/connections.md, row by row: what each side reports, in both personalities.

use verbena_events::event::Event;
use verbena_mem::{Access, Buffer};
use verbena_wire::Stag;

use crate::qp::QpAccessFlags;
use crate::state::{Personality, QpState};
use crate::testing::{PD, Pair, SEND, Setup, feed, transmit};
use crate::wc::Status;
use crate::wr::{SendOp, Sge};

/// The failure at the responder.
#[derive(Debug, Clone, Copy)]
enum Row {
    Stag,
    NotEnabled,
    Unaligned,
    TooManyReads,
    TooLong,
    ReceiveMemory,
    Checksum,
    Lost,
}

/// Runs the scenario of a row; the request that fails is the last one posted.
fn run_row(row: Row, personality: Personality) -> Pair {
    let many = matches!(row, Row::TooManyReads);
    let mut pair = Pair::new(Setup {
        personality,
        // Verbena peers keep to the depth by themselves.
        extensions: !many,
        ord: if many { 8 } else { 4 },
        ..Setup::default()
    });
    let remote = pair.b.remote(0);
    let read = |remote| SendOp::Read {
        remote,
        local_invalidate: None,
    };
    let piece = [pair.a.sge(0, 64)];
    let word = [pair.a.sge(0, 8)];
    match row {
        Row::Stag => {
            let stag = Stag::new(remote.stag.get() ^ 1);
            let bad = crate::wr::RemoteAddr { stag, ..remote };
            pair.a.post(1, read(bad), &piece);
        }
        Row::NotEnabled => {
            let enabled = QpAccessFlags {
                read: false,
                ..QpAccessFlags::default()
            };
            pair.b.qp.set_access_flags(enabled, &mut pair.b.out);
            pair.a.post(1, read(remote), &piece);
        }
        Row::Unaligned => {
            let at = 8 - pair.b.memory.at() % 8 + 1;
            let add = SendOp::FetchAdd {
                remote: pair.b.remote(at),
                add: 1,
                mask: 0,
            };
            pair.a.post(1, add, &word);
        }
        Row::TooManyReads => {
            for id in 1..=5 {
                pair.a.post(id, read(remote), &piece);
            }
        }
        Row::TooLong => {
            let small = [pair.b.sge(0, 10)];
            pair.b.receive(9, &small);
            pair.a.post(1, SEND, &piece);
        }
        Row::ReceiveMemory => {
            let lost = Buffer::new(&pair.b.tpt, 100, PD, Access::LOCAL_WRITE).unwrap();
            let scatter = [Sge {
                addr: lost.at(),
                len: 100,
                stag: lost.stag(),
            }];
            pair.b.receive(9, &scatter);
            drop(lost);
            pair.a.post(1, SEND, &piece);
        }
        Row::Checksum | Row::Lost => pair.a.post(1, read(remote), &piece),
    }
    let mut bytes = transmit(&pair.a.qp, 100_000, pair.now, &mut pair.a.out);
    match row {
        Row::Checksum => *bytes.last_mut().unwrap() ^= 1,
        Row::Lost => {
            pair.a.qp.handle_eof(true, &mut pair.a.out);
            return pair;
        }
        _ => {}
    }
    feed(&pair.b.qp, &bytes, pair.now, &mut pair.b.out);
    pair.run();
    pair
}

/// The status of the requester's last request.
fn requester(row: Row, personality: Personality) -> Status {
    // iWARP completes a Send when it was sent; a later failure is an event.
    let accepted = personality == Personality::Iwarp;
    match row {
        Row::Stag => Status::RemAccessErr,
        Row::NotEnabled | Row::Unaligned | Row::TooManyReads => Status::RemInvReqErr,
        Row::TooLong | Row::ReceiveMemory if accepted => Status::Success,
        Row::TooLong => Status::RemInvReqErr,
        Row::ReceiveMemory => Status::RemOpErr,
        Row::Checksum => Status::GeneralErr,
        Row::Lost if accepted => Status::WrFlushErr,
        Row::Lost => Status::RetryExcErr,
    }
}

/// The responder's event, and the status of its receive.
fn responder(row: Row) -> (Option<Event>, Option<Status>) {
    let qp = 2;
    match row {
        Row::Stag => (Some(Event::QpAccess { qp }), None),
        Row::NotEnabled | Row::Unaligned | Row::TooManyReads => {
            (Some(Event::QpRequest { qp }), None)
        }
        Row::TooLong => (Some(Event::QpRequest { qp }), Some(Status::LocLenErr)),
        Row::ReceiveMemory => (Some(Event::QpFatal { qp }), Some(Status::LocProtErr)),
        Row::Checksum => (Some(Event::QpFatal { qp }), None),
        Row::Lost => (None, None),
    }
}

#[test]
fn failures_match_the_documented_table() {
    let rows = [
        Row::Stag,
        Row::NotEnabled,
        Row::Unaligned,
        Row::TooManyReads,
        Row::TooLong,
        Row::ReceiveMemory,
        Row::Checksum,
        Row::Lost,
    ];
    for personality in [Personality::Roce, Personality::Iwarp] {
        for row in rows {
            let mut pair = run_row(row, personality);
            let what = format!("{row:?}, {personality:?}");
            let statuses = pair.a.statuses();
            let (last, before) = statuses.split_last().expect(&what);
            assert_eq!(last.1, requester(row, personality), "{what}");
            assert!(before.iter().all(|s| s.1 == Status::Success), "{what}");
            let failed = match personality {
                Personality::Roce => QpState::Err,
                Personality::Iwarp => QpState::Terminate,
            };
            let (event, receive) = responder(row);
            assert_eq!(pair.b.events().first().copied(), event, "{what}");
            let received = pair.b.received();
            assert_eq!(received.first().map(|wc| wc.status), receive, "{what}");
            if matches!(row, Row::Lost) {
                assert_eq!(pair.a.qp.state(), QpState::Err, "{what}");
                assert_eq!(pair.b.qp.state(), QpState::Rts, "{what}");
                continue;
            }
            let ended = [failed, QpState::Err];
            assert!(ended.contains(&pair.a.qp.state()), "{what}");
            assert!(ended.contains(&pair.b.qp.state()), "{what}");
            let fatal = Event::QpFatal { qp: 1 };
            assert!(pair.a.events().contains(&fatal), "{what}");
            let cause = pair.a.qp.cause().expect(&what);
            assert!(
                cause.starts_with("the peer sent Terminate"),
                "{what}: {cause}"
            );
        }
    }
}
