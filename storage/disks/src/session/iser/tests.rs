//! A link and a scripted target: encoding, command window, data, and invalid responses. The link's memory is that of a session: without
//! remote rights of its own.

mod hostile;
mod peer;
mod registrations;
mod sessions;
mod unsolicited;

use std::time::Duration;

use verbena::{Access, Memory, Status};
use verbena_iscsi::Direction;
use verbena_iscsi::Terms;
use verbena_iscsi::login::{Authentication, IserTerms, LoginOutcome};
use verbena_storage_wire::iscsi::{FromInitiator, Lun, NO_TAG, NopOut, Residual, ScsiCommand};
use verbena_storage_wire::iser::IserHeader;
use verbena_storage_wire::scsi::{Cdb, DeviceType};

use super::tags::Tags;
use super::{Iser, IserOptions};
use crate::blocks::BufferRef;
use crate::session::MemorySource;
use crate::session::link::{CommandProgress, Link, LinkCommand, LinkEvent, TransferCounters};
use peer::{Peer, pair};

const OPTIONS: IserOptions = IserOptions {
    depth: 8,
    patience: Duration::from_secs(5),
    max_data: 64 << 10,
    poll: None,
    one_touch: false,
};

/// The result of a login without unsolicited data; `unexpected_there` is the target's MaxOutstandingUnexpectedPDUs.
fn settled(unexpected_there: u32) -> LoginOutcome {
    LoginOutcome {
        terms: Terms {
            immediate_data: false,
            ..Terms::DEFAULT
        },
        iser: Some(IserTerms {
            max_recv: 8192,
            max_send: 8192,
            unexpected_in: 64,
            unexpected_out: unexpected_there,
            max_ahs: 256,
        }),
        tsih: 1,
        target_alias: None,
        portal_group: None,
        time2wait: 2,
        time2retain: 0,
        authentication: Authentication::None,
    }
}

/// A link after its login.
fn logged_in() -> (Iser, Peer) {
    let (mut link, peer) = pair(OPTIONS);
    link.begin(&settled(0));
    (link, peer)
}

fn memory(peer: &Peer, len: usize) -> Memory {
    let source = MemorySource(peer.initiator_pd.clone());
    source.memory(len).unwrap()
}

fn order(link: &mut Iser, task: u32, direction: Direction, place: Option<&BufferRef>, len: u32) {
    link.send_command(&LinkCommand {
        task,
        lun: Lun::new(3).unwrap(),
        device: DeviceType::Disk,
        cdb: Cdb::read(0x1122, 7),
        direction,
        buffer: place,
        len,
    })
    .unwrap();
}

fn plain(link: &mut Iser, task: u32) {
    order(link, task, Direction::None, None, 0);
}

fn ping(link: &mut Iser, itt: u32) {
    let ping = NopOut {
        immediate: true,
        data_len: 0,
        lun: Lun::default(),
        itt,
        ttt: NO_TAG,
        cmd_sn: 0,
        exp_stat_sn: 0,
    };
    link.send_pdu(&ping.emit(), b"").unwrap();
}

/// Polls until there are events.
fn wait_events(link: &mut Iser) -> Vec<LinkEvent> {
    let (mut news, end) = (Vec::new(), std::time::Instant::now() + OPTIONS.patience);
    while news.is_empty() {
        assert!(std::time::Instant::now() < end, "no news");
        link.sleep(&[], Duration::from_millis(20)).unwrap();
        link.poll(&mut news);
    }
    news
}

fn response_tasks(news: &[LinkEvent]) -> Vec<u32> {
    let task = |one: &LinkEvent| match one {
        LinkEvent::Response {
            task,
            transferred: None,
            ..
        } => *task,
        other => panic!("{other:?}"),
    };
    news.iter().map(task).collect()
}

fn command(pdu: &FromInitiator) -> ScsiCommand {
    match pdu {
        FromInitiator::ScsiCommand(command) => *command,
        other => panic!("{other}"),
    }
}

#[test]
fn connection_request_declares_missing_iser_features() {
    let (_link, peer) = pair(OPTIONS);
    assert_eq!(peer.private, [0x80, 0, 0, 0]);
}

/// RFC 7145 §9.2: an STag of the command's own, and the address of its buffer as base; RFC 7143 §11.3: followed by the command.
#[test]
fn command_carries_the_stag_of_its_buffer() {
    let (mut link, mut peer) = logged_in();
    let memory = memory(&peer, 4096);
    let place = BufferRef::new(&memory, 512);
    let at = memory.remote_addr(512).unwrap();
    for (task, direction, kind, flags) in [
        (5, Direction::Read, 0x14, 0xc1),
        (6, Direction::Write, 0x18, 0xa1),
    ] {
        order(&mut link, task, direction, Some(&place), 1536);
        let bytes = peer.bytes();
        let header = IserHeader::parse(&bytes).unwrap();
        let (stag, _) = header.read.or(header.write).unwrap();
        assert_ne!(stag, at.stag, "not that of the memory");
        let mut expected = vec![kind, 0, 0, 0];
        let named = |expected: &mut Vec<u8>| {
            expected.extend(stag.get().to_be_bytes());
            expected.extend(at.to.get().to_be_bytes());
        };
        if direction == Direction::Read {
            expected.extend([0; 12]);
            named(&mut expected);
        } else {
            named(&mut expected);
            expected.extend([0; 12]);
        }
        let sn = (task - 4) as u8;
        expected.extend([1, flags, 0, 0, 0, 0, 0, 0]);
        expected.extend([0, 3, 0, 0, 0, 0, 0, 0]);
        expected.extend([0, sn, 0, task as u8]);
        expected.extend(1536_u32.to_be_bytes());
        expected.extend([0, 0, 0, sn]);
        // The StatSN of the first response was 7.
        expected.extend([0, 0, 0, if task == 5 { 0 } else { 8 }]);
        expected.extend(Cdb::read(0x1122, 7).bytes());
        assert_eq!(bytes, expected, "{direction:?}");
        let itt = u32::from(sn) << 16 | task;
        peer.respond(itt, 6 + u32::from(sn), u32::from(sn) + 1, Residual::None);
        assert_eq!(response_tasks(&wait_events(&mut link)), [task]);
    }
    assert_eq!(
        link.transferred(),
        TransferCounters {
            placed: 1536,
            copied: 0,
            gathered: 1536
        }
    );
}

#[test]
fn target_moves_data_by_rdma() {
    let (mut link, mut peer) = logged_in();
    let memory = memory(&peer, 8192);
    memory.write_at(4096, &[7; 4096]).unwrap();
    let (read, write) = (BufferRef::new(&memory, 0), BufferRef::new(&memory, 4096));
    order(&mut link, 0, Direction::Read, Some(&read), 4096);
    let (header, pdu, _) = peer.receive_pdu();
    peer.write(header.read.unwrap(), &[9; 100]);
    peer.respond(command(&pdu).itt, 1, 2, Residual::Underflow(3996));
    assert_eq!(response_tasks(&wait_events(&mut link)), [0]);
    let mut got = [0; 101];
    memory.read_at(0, &mut got).unwrap();
    assert_eq!((got[..100] == [9; 100], got[100]), (true, 0));
    order(&mut link, 1, Direction::Write, Some(&write), 4096);
    let (header, pdu, _) = peer.receive_pdu();
    assert_eq!(peer.read(header.write.unwrap(), 4096), [7; 4096]);
    peer.respond(command(&pdu).itt, 2, 2, Residual::None);
    assert_eq!(response_tasks(&wait_events(&mut link)), [1]);
    let (placed, gathered) = (100, 4096);
    assert_eq!(
        link.transferred(),
        TransferCounters {
            placed,
            copied: 0,
            gathered
        }
    );
}

/// RFC 7143 §4.2.2.1: commands wait for the command window, requests for immediate delivery do not.
#[test]
fn commands_wait_for_the_window() {
    let (mut link, mut peer) = logged_in();
    for task in 0..4 {
        plain(&mut link, task);
    }
    ping(&mut link, 9);
    let first = command(&peer.receive_pdu().1);
    assert_eq!(first.cmd_sn, 1);
    let (_, pdu, _) = peer.receive_pdu();
    let FromInitiator::NopOut(nop) = pdu else {
        panic!("{pdu}")
    };
    assert_eq!((nop.itt, nop.cmd_sn, nop.immediate), (9, 2, true));
    // The window opens by two.
    peer.respond(first.itt, 1, 3, Residual::None);
    assert_eq!(response_tasks(&wait_events(&mut link)), [0]);
    ping(&mut link, 10);
    let sns: Vec<u32> = (0..2)
        .map(|_| command(&peer.receive_pdu().1).cmd_sn)
        .collect();
    assert_eq!(sns, [2, 3]);
    assert!(matches!(peer.receive_pdu().1, FromInitiator::NopOut(nop) if nop.cmd_sn == 4));
}

/// A command that was not sent can be cancelled and consumes no CmdSN, nor a registration.
#[test]
fn cancelled_unsent_command_uses_no_cmdsn() {
    let (mut link, mut peer) = logged_in();
    let memory = memory(&peer, 1024);
    let [one, other] = [0, 512].map(|offset| BufferRef::new(&memory, offset));
    plain(&mut link, 0);
    order(&mut link, 1, Direction::Read, Some(&one), 512);
    plain(&mut link, 2);
    let first = command(&peer.receive_pdu().1);
    let held: Vec<CommandProgress> = (0..4).map(|task| link.command_state(task)).collect();
    let (itt, cmd_sn) = (first.itt, 1);
    assert_eq!(
        held,
        [
            CommandProgress::Sent { itt, cmd_sn },
            CommandProgress::Unsent,
            CommandProgress::Unsent,
            CommandProgress::Ended
        ]
    );
    assert!(!link.cancel(3));
    assert!(link.cancel(1));
    assert!(!link.cancel(1), "once");
    let flushed = wait_events(&mut link);
    assert!(
        matches!(
            flushed[..],
            [LinkEvent::Failed {
                task: 1,
                status: Status::WrFlushErr
            }]
        ),
        "{flushed:?}"
    );
    // Its task number is free again.
    order(&mut link, 1, Direction::Read, Some(&other), 512);
    peer.respond(first.itt, 1, 3, Residual::None);
    assert_eq!(response_tasks(&wait_events(&mut link)), [0]);
    let next = command(&peer.receive_pdu().1);
    assert_eq!((next.cmd_sn, next.itt % 0x1_0000), (2, 2));
    let (header, pdu, _) = peer.receive_pdu();
    let next = command(&pdu);
    assert_eq!((next.cmd_sn, next.itt % 0x1_0000), (3, 1));
    peer.write(header.read.unwrap(), &[7; 512]);
    assert_eq!(memory.get::<[u8; 512]>(512).unwrap(), [7; 512]);
    assert_eq!(memory.get::<[u8; 512]>(0).unwrap(), [0; 512]);
}

/// RFC 7145 §8.1: the target has receives for a limited number of unexpected requests.
#[test]
fn requests_wait_for_receives() {
    let (mut link, mut peer) = pair(OPTIONS);
    link.begin(&settled(2));
    for itt in 2..5 {
        ping(&mut link, itt);
    }
    plain(&mut link, 0);
    let itts = |peer: &mut Peer| match peer.receive_pdu().1 {
        FromInitiator::NopOut(nop) => nop.itt,
        FromInitiator::ScsiCommand(_) => 0,
        other => panic!("{other}"),
    };
    assert_eq!([(); 3].map(|()| itts(&mut peer)), [2, 3, 0]);
    peer.pong(3, 1, 1);
    assert!(matches!(
        wait_events(&mut link)[..],
        [LinkEvent::Pdu { .. }]
    ));
    assert_eq!(itts(&mut peer), 4);
}

#[test]
fn invalid_orders_are_refused_and_others_continue() {
    let (mut link, mut peer) = pair(OPTIONS);
    let memory = memory(&peer, 128 << 10);
    let place = BufferRef::new(&memory, 0);
    let beyond = BufferRef::new(&memory, (128 << 10) - 511);
    let cdb = Cdb::read(0, 1);
    let refused = |link: &mut Iser, task, place, len, words: &str| {
        let refused = link.send_command(&LinkCommand {
            task,
            lun: Lun::default(),
            device: DeviceType::Disk,
            cdb,
            direction: Direction::Read,
            buffer: place,
            len,
        });
        let why = refused.unwrap_err().to_string();
        assert!(why.contains(words), "{why}");
    };
    refused(&mut link, 0, Some(&place), 512, "before the login");
    link.begin(&settled(0));
    refused(&mut link, 0, Some(&place), 65537, "at most 65536");
    refused(&mut link, 0, Some(&beyond), 512, "");
    refused(&mut link, 0, None, 512, "no buffer");
    let pd = peer.device.pd().unwrap();
    let foreign = BufferRef::new(&MemorySource(pd).memory(512).unwrap(), 0);
    refused(&mut link, 0, Some(&foreign), 512, "protection domain");
    let constant = peer.initiator_pd.memory(512, Access::LOCAL_READ).unwrap();
    let constant = BufferRef::new(&constant, 0);
    refused(&mut link, 0, Some(&constant), 512, "grants");
    refused(&mut link, 8, Some(&place), 512, "exceeds the queue depth");
    let long = link.send_pdu(&[0; 48], &[0; 8193]).unwrap_err().to_string();
    assert!(long.contains("at most 8192"), "{long}");
    plain(&mut link, 0);
    assert_eq!(command(&peer.receive_pdu().1).cmd_sn, 1);
}

#[test]
fn padded_text_keeps_its_unpadded_length() {
    let (mut link, mut peer) = pair(OPTIONS);
    // A text request with the I bit.
    let mut bhs = [0; 48];
    (bhs[0], bhs[1]) = (0x44, 0x80);
    link.send_pdu(&bhs, b"SendTargets=All\0.").unwrap();
    let bytes = peer.bytes();
    assert_eq!(bytes.len(), 28 + 48 + 20);
    assert_eq!(bytes[..28], [&[0x10][..], &[0; 27]].concat());
    assert_eq!(bytes[28 + 5..28 + 8], [0, 0, 17]);
    assert_eq!(&bytes[76..], b"SendTargets=All\0.\0\0\0");
}

#[test]
fn tags_are_unique_and_expire() {
    let mut tags = Tags::default();
    let mut last = None;
    for _ in 0..70_000 {
        let tag = tags.take(0xffff, Direction::None, 0).unwrap();
        assert!(tag > 0xffff && tag != NO_TAG && Some(tag) != last);
        assert_eq!(tags.take(0xffff, Direction::None, 0), None, "in use");
        assert_eq!(tags.sent(tag), None, "not sent");
        tags.set_sent(0xffff, 5, None);
        assert_eq!(last.and_then(|tag| tags.sent(tag)), None, "an old one");
        assert_eq!(tags.sent(tag).map(|(task, _)| task), Some(0xffff));
        tags.end(0xffff);
        assert_eq!(tags.sent(tag), None, "ended");
        last = Some(tag);
    }
    assert_eq!(tags.take(0x1_0000, Direction::None, 0), None);
    assert_eq!(tags.sent(NO_TAG), None);
}
