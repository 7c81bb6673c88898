//! Targets that violate the protocol or disconnect: the commands end, the link ends, and the reason is reported.

use verbena::Status;
use verbena::low::{Data, RemoteAddr, SendOp};
use verbena_iscsi::Direction;
use verbena_storage_wire::iscsi::{Lun, NO_TAG, NopIn, Residual, Window};
use verbena_storage_wire::iser::IserHeader;
use verbena_wire::{Stag, To};

use super::peer::{Peer, response};
use super::{Iser, Link, LinkEvent, command, logged_in, plain, wait_events};
use crate::blocks::BufferRef;

/// The reported reason after the target's action while a command is outstanding, whose tag is passed.
fn reason_after(wrong: impl FnOnce(&mut Peer, u32)) -> String {
    let (mut link, mut peer) = logged_in();
    plain(&mut link, 4);
    let itt = command(&peer.receive_pdu().1).itt;
    wrong(&mut peer, itt);
    let mut all = Vec::new();
    loop {
        all.extend(wait_events(&mut link));
        if let Some(LinkEvent::Ended(why)) = all.last() {
            let why = why.clone();
            let failed = |one: &&LinkEvent| {
                let status = Status::WrFlushErr;
                matches!(one, LinkEvent::Failed { task: 4, status: s } if *s == status)
            };
            let responded = |one: &&LinkEvent| matches!(one, LinkEvent::Response { task: 4, .. });
            let ends = all.iter().filter(failed).count() + all.iter().filter(responded).count();
            assert_eq!(ends, 1, "{all:?}");
            assert!(link.send_pdu(&[0x40; 48], &[]).is_err());
            return why;
        }
    }
}

fn control(rest: &[u8]) -> Vec<u8> {
    [&IserHeader::default().emit()[..], rest].concat()
}

#[test]
fn malformed_pdus_end_the_link() {
    for (bytes, words) in [
        (vec![], "0 bytes"),
        (vec![0x10; 75], "75 bytes"),
        (vec![0x30; 76], "opcode"),
        (vec![0; 76], "opcode"),
        (control(&[0x01; 48]), "PDU"),
        (control(&[0xff; 48]), "PDU"),
    ] {
        let why = reason_after(|peer, _| peer.raw(&bytes, None));
        assert!(why.contains(words), "{words}: {why}");
    }
}

#[test]
fn missing_data_segment_ends_the_link() {
    let why = reason_after(|peer, itt| {
        let mut response = response(itt, 1, 1, Residual::None);
        response.data_len = 21;
        peer.send_pdu(&response.emit(), &[0; 20]);
    });
    assert!(why.contains("20 bytes") && why.contains("21"), "{why}");
}

#[test]
fn too_long_data_segment_ends_the_link() {
    let why = reason_after(|peer, itt| {
        let mut response = response(itt, 1, 1, Residual::None);
        response.data_len = 8196;
        peer.send_pdu(&response.emit(), &[0; 8196]);
    });
    assert!(!why.is_empty(), "{why}");
}

#[test]
fn unexpected_responses_end_the_link() {
    let why = reason_after(|peer, itt| peer.respond(itt ^ 1, 1, 1, Residual::None));
    assert!(why.contains("not under way"), "{why}");
    let why = reason_after(|peer, itt| {
        peer.respond(itt, 1, 1, Residual::None);
        peer.respond(itt, 2, 1, Residual::None);
    });
    assert!(why.contains("not under way"), "{why}");
}

#[test]
fn statsn_out_of_sequence_ends_the_link() {
    let why = reason_after(|peer, itt| {
        peer.pong(9, 4, 1);
        peer.respond(itt, 6, 1, Residual::None);
    });
    assert_eq!(why, "status 6 came, expected 5");
}

/// The events up to the end of the link, and its reason.
pub(super) fn events_to_the_end(link: &mut Iser) -> (Vec<LinkEvent>, String) {
    let mut all = Vec::new();
    loop {
        all.extend(wait_events(link));
        if let Some(LinkEvent::Ended(why)) = all.last() {
            let why = why.clone();
            return (all, why);
        }
    }
}

/// A target may invalidate the STag of the command that it answers, and no other: not that of another command, of the memory, or an unknown
/// one, and not with another PDU.
#[test]
fn invalidating_another_stag_ends_the_link() {
    for case in 0..5 {
        let (mut link, mut peer) = logged_in();
        let memory = super::memory(&peer, 1024);
        peer.pong(NO_TAG, 1, 8);
        assert!(matches!(
            wait_events(&mut link)[..],
            [LinkEvent::Pdu { .. }]
        ));
        let mut stags = Vec::new();
        let mut itts = Vec::new();
        for task in 0..2 {
            let place = BufferRef::new(&memory, task as usize * 512);
            super::order(&mut link, task, Direction::Read, Some(&place), 512);
            let (header, pdu, _) = peer.receive_pdu();
            stags.push(header.read.unwrap().0);
            itts.push(command(&pdu).itt);
        }
        let own = memory.remote_addr(0).unwrap().stag;
        let words = match case {
            0 => {
                peer.respond_invalidating(itts[0], 1, 8, stags[1]);
                "not of a command that it answers"
            }
            1 => {
                peer.respond_invalidating(itts[0], 1, 8, own);
                "violated the protocol"
            }
            2 => {
                peer.respond_invalidating(itts[0], 1, 8, Stag::new(0x1234_5678));
                "violated the protocol"
            }
            3 => {
                let bytes = response(itts[0], 1, 8, Residual::None).emit();
                peer.raw(&control(&bytes), Some(stags[0]));
                peer.raw(&control(&bytes), Some(stags[0]));
                "violated the protocol"
            }
            _ => {
                let nop = NopIn {
                    data_len: 0,
                    lun: Lun::default(),
                    itt: NO_TAG,
                    ttt: NO_TAG,
                    stat_sn: 1,
                    window: Window {
                        exp_cmd_sn: 3,
                        max_cmd_sn: 8,
                    },
                };
                peer.raw(&control(&nop.emit()), Some(stags[0]));
                "not of a command that it answers"
            }
        };
        let (all, why) = events_to_the_end(&mut link);
        assert!(why.contains(words), "{case}: {why}");
        let responses = all
            .iter()
            .filter(|one| matches!(one, LinkEvent::Response { task: 0, .. } if case == 3));
        let failed = all
            .iter()
            .filter(|one| matches!(one, LinkEvent::Failed { .. }));
        assert_eq!(responses.count() + failed.count(), 2, "{case}: {all:?}");
    }
}

/// Tags can be guessed: a response to a command that the target has not received ends the link, not the command.
#[test]
fn response_to_an_unsent_command_ends_the_link() {
    let why = {
        let (mut link, mut peer) = logged_in();
        for task in 4..6 {
            plain(&mut link, task);
        }
        let first = command(&peer.receive_pdu().1);
        assert_eq!(first.itt, 0x1_0004);
        peer.respond(0x2_0005, 1, 1, Residual::None);
        let (all, why) = events_to_the_end(&mut link);
        assert!(
            matches!(
                all[..],
                [
                    LinkEvent::Failed { task: 4, .. },
                    LinkEvent::Failed { task: 5, .. },
                    LinkEvent::Ended(_)
                ]
            ),
            "{all:?}"
        );
        why
    };
    assert!(why.contains("0x20005, which is not under way"), "{why}");
}

#[test]
fn write_to_an_unknown_stag_ends_the_link() {
    let why = reason_after(|peer, _| {
        let op = SendOp::Write {
            remote: RemoteAddr {
                stag: Stag::new(0x1234_5678),
                to: To::new(0),
            },
            immediate: None,
        };
        peer.work(op, Data::Inline(&[1; 8]));
    });
    assert!(!why.is_empty());
}

#[test]
fn disconnect_of_the_target_ends_the_link() {
    let why = reason_after(|peer, _| peer.disconnect());
    assert!(!why.is_empty());
}

#[test]
fn local_end_fails_commands_once() {
    let (mut link, mut peer) = logged_in();
    plain(&mut link, 4);
    let itt = command(&peer.receive_pdu().1).itt;
    link.close("enough");
    peer.respond(itt, 1, 1, Residual::None);
    let all = wait_events(&mut link);
    let [LinkEvent::Failed { task: 4, .. }, LinkEvent::Ended(why)] = &all[..] else {
        panic!("{all:?}")
    };
    assert_eq!(why, "enough");
    let mut more = Vec::new();
    link.poll(&mut more);
    assert!(more.is_empty(), "once");
}

/// After the link has ended, memory of a lost command may be reused at once: the target cannot access it.
#[test]
fn memory_is_inaccessible_after_the_end() {
    let (mut link, mut peer) = logged_in();
    let memory = super::memory(&peer, 512);
    let place = BufferRef::new(&memory, 0);
    super::order(&mut link, 4, Direction::Read, Some(&place), 512);
    let (header, _, _) = peer.receive_pdu();
    link.close("enough");
    assert_ne!(
        peer.write_status(header.read.unwrap(), &[1; 512]),
        Status::Success
    );
    let mut got = [0; 512];
    memory.read_at(0, &mut got).unwrap();
    assert_eq!(got, [0; 512]);
}
