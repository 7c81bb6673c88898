//! Data of writes that is sent with the command or behind it, as the login negotiated: how it is divided, and that the target can read the
//! rest and only that.

use std::time::Duration;

use verbena::Status;
use verbena_iscsi::login::LoginOutcome;
use verbena_iscsi::{Direction, Terms};
use verbena_storage_wire::iscsi::{FromInitiator, Lun, NO_TAG, Residual};

use super::peer::{Peer, pair};
use super::{
    BufferRef, Iser, Link, LinkEvent, OPTIONS, command, memory, order, response_tasks, settled,
    wait_events,
};

fn after_login(terms: Terms) -> (Iser, Peer) {
    let (mut link, peer) = pair(OPTIONS);
    link.begin(&LoginOutcome {
        terms,
        ..settled(0)
    });
    (link, peer)
}

fn terms(immediate_data: bool, initial_r2t: bool, first_burst: u32) -> Terms {
    Terms {
        immediate_data,
        initial_r2t,
        first_burst,
        max_send: 1024,
        ..Terms::DEFAULT
    }
}

/// Sends Data-Out PDUs that found no room at first.
fn finish_burst(link: &mut Iser) {
    let mut news: Vec<LinkEvent> = Vec::new();
    while link.burst.is_some() {
        link.sleep(&[], Duration::from_millis(20)).unwrap();
        link.poll(&mut news);
    }
    assert!(news.is_empty(), "{news:?}");
}

#[test]
fn writes_are_divided_as_negotiated() {
    // ImmediateData, InitialR2T, FirstBurstLength; length; immediate data, Data-Out PDUs, rest.
    let rows = [
        ((true, true, 4096), 512, 512, vec![], 0),
        ((true, true, 4096), 1021, 1021, vec![], 0),
        ((true, true, 4096), 3000, 1024, vec![], 1976),
        ((true, true, 512), 3000, 512, vec![], 2488),
        ((true, false, 4096), 3000, 1024, vec![1024, 952], 0),
        ((true, false, 4096), 2051, 1024, vec![1024, 3], 0),
        ((true, false, 4096), 10_000, 1024, vec![1024; 3], 5904),
        ((false, false, 4096), 2500, 0, vec![1024, 1024, 452], 0),
        ((false, false, 40_960), 50_000, 0, vec![1024; 40], 9040),
        ((false, true, 4096), 100, 0, vec![], 100),
    ];
    for ((immediate_data, initial_r2t, first_burst), len, immediate, behind, rest) in rows {
        let row = format!("{immediate_data} {initial_r2t} {first_burst}: {len}");
        let (mut link, mut peer) = after_login(terms(immediate_data, initial_r2t, first_burst));
        let memory = memory(&peer, len + 8);
        let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8 + 1).collect();
        memory.write_at(8, &bytes).unwrap();
        let place = BufferRef::new(&memory, 8);
        order(&mut link, 0, Direction::Write, Some(&place), len as u32);
        finish_burst(&mut link);
        let (header, pdu, mut got) = peer.receive_pdu();
        let first = command(&pdu);
        assert_eq!(first.data_len as usize, immediate, "{row}");
        assert_eq!(first.is_final, behind.is_empty(), "{row}");
        assert_eq!(first.expected_len as usize, len, "{row}");
        // RFC 7143 §11.1: padded with zeros.
        assert_eq!(got.len(), immediate.next_multiple_of(4), "{row}");
        assert!(got[immediate..].iter().all(|byte| *byte == 0));
        got.truncate(immediate);
        for (at, part) in behind.iter().enumerate() {
            let (header, pdu, data) = peer.receive_pdu();
            let FromInitiator::DataOut(out) = pdu else {
                panic!("{pdu}")
            };
            assert_eq!((header.read, header.write), (None, None));
            assert_eq!((out.itt, out.ttt), (first.itt, NO_TAG));
            assert_eq!(out.lun, Lun::new(3).unwrap());
            assert_eq!((out.data_sn as usize, out.offset as usize), (at, got.len()));
            assert_eq!(out.is_final, at + 1 == behind.len(), "{row}");
            assert_eq!(out.data_len, *part, "{row}");
            got.extend(&data[..*part as usize]);
        }
        assert_eq!(header.write.is_some(), rest > 0, "{row}");
        if let Some(at) = header.write {
            got.extend(peer.read(at, rest));
        }
        assert!(got == bytes, "{row}");
        peer.respond(first.itt, 1, 2, Residual::None);
        assert_eq!(response_tasks(&wait_events(&mut link)), [0]);
        assert_eq!(link.transferred().gathered, len as u64);
        assert_eq!(link.transferred().copied, 0);
    }
}

/// What was sent is not exposed in addition.
#[test]
fn target_cannot_read_unsolicited_data() {
    let (mut link, mut peer) = after_login(terms(true, true, 4096));
    let memory = memory(&peer, 2048);
    let place = BufferRef::new(&memory, 0);
    order(&mut link, 0, Direction::Write, Some(&place), 2048);
    let (header, _, _) = peer.receive_pdu();
    let (stag, base) = header.write.unwrap();
    assert_eq!(base, memory.remote_addr(1024).unwrap().to.get());
    assert_eq!(peer.read_status((stag, base - 4), 8), Status::RemAccessErr);
}

/// Data-Out PDUs of a command come before the next command, and other requests keep their places.
#[test]
fn bursts_follow_their_commands() {
    let (mut link, mut peer) = after_login(terms(false, false, 4096));
    peer.pong(NO_TAG, 1, 8);
    assert!(matches!(
        wait_events(&mut link)[..],
        [LinkEvent::Pdu { .. }]
    ));
    let memory = memory(&peer, 2048);
    let place = BufferRef::new(&memory, 0);
    for task in 0..3 {
        order(&mut link, task, Direction::Write, Some(&place), 2048);
    }
    finish_burst(&mut link);
    for task in 0..3 {
        let itt = command(&peer.receive_pdu().1).itt;
        assert_eq!(itt % 0x1_0000, task);
        for sn in 0..2 {
            let (_, pdu, _) = peer.receive_pdu();
            let FromInitiator::DataOut(out) = pdu else {
                panic!("{pdu}")
            };
            assert_eq!((out.itt, out.data_sn), (itt, sn));
        }
    }
}

/// A target that has aborted a command gets no more of its data than was posted.
#[test]
fn cancelled_write_sends_no_more_data() {
    let (mut link, mut peer) = after_login(terms(false, false, 40_960));
    let memory = memory(&peer, 40_960);
    let place = BufferRef::new(&memory, 0);
    order(&mut link, 0, Direction::Write, Some(&place), 40_960);
    assert!(link.burst.is_some(), "40 PDUs, of which 32 are posted");
    let itt = command(&peer.receive_pdu().1).itt;
    let free = link.free_headers.len();
    assert!(link.cancel(0));
    assert!(link.burst.is_none() && free == 0);
    let ended = wait_events(&mut link);
    assert!(
        matches!(ended[..], [LinkEvent::Failed { task: 0, .. }]),
        "{ended:?}"
    );
    for sn in 0..32 {
        let (_, pdu, _) = peer.receive_pdu();
        assert!(
            matches!(pdu, FromInitiator::DataOut(out) if (out.itt, out.data_sn) == (itt, sn)),
            "{pdu}"
        );
    }
    super::ping(&mut link, 9);
    let (_, pdu, _) = peer.receive_pdu();
    assert!(matches!(pdu, FromInitiator::NopOut(_)), "{pdu}");
}
