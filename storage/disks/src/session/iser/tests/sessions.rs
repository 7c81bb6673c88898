//! A session over iSER and a scripted target: single commands are aborted, a unit is reset, and the connection stays.

use std::time::{Duration, Instant};

use verbena::{Device, Memory, Status};
use verbena_iscsi::Direction;
use verbena_storage_wire::iscsi::{
    FromInitiator, Lun, Residual, TaskFunction, TaskOutcome, TaskRequest,
};
use verbena_storage_wire::scsi::{Cdb, DeviceType};
use verbena_wire::Stag;

use super::command;
use super::peer::Peer;
use crate::address::Address;
use crate::blocks::BufferRef;
use crate::session::{Command, Ended, Options, Outcome, Session};

const PATIENCE: Duration = Duration::from_secs(5);

/// A session that is logged in, its target, and memory for data.
fn open() -> (Session, Peer, Memory) {
    let device = Device::open().unwrap();
    let listener = device.listen("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let address = format!("iser://{to}/iqn.2026-11.org.verbena:scripted/1");
    let address: Address = address.parse().unwrap();
    std::thread::scope(|scope| {
        let target = scope.spawn(|| {
            let mut peer = Peer::accept(&device, &listener, &device.pd().unwrap());
            peer.log_in();
            peer
        });
        let session = Session::open(&device, &address, Options::default()).unwrap();
        let memory = session.memory(1024).unwrap();
        (session, target.join().unwrap(), memory)
    })
}

fn read(memory: &Memory, slot: usize) -> Command {
    Command {
        lun: Lun::new(1).unwrap(),
        device: DeviceType::Disk,
        cdb: Cdb::read(0, 1),
        direction: Direction::Read,
        buffer: Some(BufferRef::new(memory, slot * 512)),
        len: 512,
        idempotent: true,
    }
}

/// The next command of the session: STag and base of its memory, its tag and its CmdSN.
fn receive_command(peer: &mut Peer) -> ((Stag, u64), u32, u32) {
    let (header, pdu, _) = peer.receive_pdu();
    let got = command(&pdu);
    (header.read.unwrap(), got.itt, got.cmd_sn)
}

fn receive_task(peer: &mut Peer) -> TaskRequest {
    match peer.receive_pdu().1 {
        FromInitiator::TaskRequest(request) => request,
        other => panic!("{other}"),
    }
}

fn wait_ended(session: &mut Session) -> Vec<Ended> {
    let (mut ended, end) = (Vec::new(), Instant::now() + PATIENCE);
    while ended.is_empty() {
        assert!(Instant::now() < end, "no command has ended");
        session.wait(&[], Some(Duration::from_millis(20))).unwrap();
        session.poll(&mut ended);
    }
    ended
}

fn ended(id: u64, outcome: Outcome) -> Ended {
    Ended { id, outcome }
}

/// RFC 7143 §11.5.1: one command is aborted, the other one continues on the same connection.
#[test]
fn cancel_aborts_one_command() {
    let (mut session, mut peer, memory) = open();
    for id in 0..2 {
        session.start(id, read(&memory, id as usize)).unwrap();
    }
    let (aborted, itt, cmd_sn) = receive_command(&mut peer);
    let (other, other_itt, _) = receive_command(&mut peer);
    assert!(session.cancel(0));
    let request = receive_task(&mut peer);
    assert_eq!(request.function, TaskFunction::AbortTask);
    assert_eq!((request.reference, request.ref_cmd_sn), (itt, cmd_sn));
    // Until the target has answered, it may access the memory.
    peer.write(aborted, &[1; 8]);
    peer.answer(request.itt, 2, TaskOutcome::Complete);
    assert_eq!(wait_ended(&mut session), [ended(0, Outcome::Cancelled)]);
    peer.write(other, &[2; 512]);
    peer.respond_invalidating(other_itt, 3, 64, other.0);
    let good = Outcome::Good(Residual::None);
    assert_eq!(wait_ended(&mut session), [ended(1, good)]);
    assert_eq!(memory.get::<[u8; 512]>(512).unwrap(), [2; 512]);
    assert_eq!(peer.write_status(aborted, &[3; 512]), Status::RemAccessErr);
    assert_eq!(memory.get::<[u8; 8]>(0).unwrap(), [1; 8]);
}

/// The command's own response came first: it counts, although its memory is closed only after the answer to the abort has arrived.
#[test]
fn response_before_the_abort_counts() {
    let (mut session, mut peer, memory) = open();
    session.start(5, read(&memory, 0)).unwrap();
    let (_, itt, _) = receive_command(&mut peer);
    assert!(session.cancel(5));
    let request = receive_task(&mut peer);
    peer.respond(itt, 2, 64, Residual::None);
    peer.answer(request.itt, 3, TaskOutcome::NoTask);
    let good = || Outcome::Good(Residual::None);
    assert_eq!(wait_ended(&mut session), [ended(5, good())]);
    // On the same connection.
    session.start(6, read(&memory, 0)).unwrap();
    let (_, itt, _) = receive_command(&mut peer);
    peer.respond(itt, 4, 64, Residual::None);
    assert_eq!(wait_ended(&mut session), [ended(6, good())]);
}

/// Commands of a unit that was reset are sent again on the same connection, with another STag.
#[test]
fn reset_closes_memory_and_repeats_commands() {
    let (mut session, mut peer, memory) = open();
    session.start(0, read(&memory, 0)).unwrap();
    let (before, ..) = receive_command(&mut peer);
    let mut peer = std::thread::scope(|scope| {
        let target = scope.spawn(move || {
            let request = receive_task(&mut peer);
            assert_eq!(request.function, TaskFunction::LogicalUnitReset);
            peer.answer(request.itt, 2, TaskOutcome::Complete);
            peer
        });
        session.reset_unit(Lun::new(1).unwrap()).unwrap();
        target.join().unwrap()
    });
    // The link's report, and with it the repetition, comes with the next poll.
    let mut none = Vec::new();
    let end = Instant::now() + PATIENCE;
    let (after, itt, _) = loop {
        session.poll(&mut none);
        assert!(none.is_empty() && Instant::now() < end, "{none:?}");
        if peer.has_received() {
            break receive_command(&mut peer);
        }
    };
    assert_ne!(after.0, before.0);
    peer.write(after, &[4; 512]);
    peer.respond(itt, 3, 64, Residual::None);
    let good = Outcome::Good(Residual::None);
    assert_eq!(wait_ended(&mut session), [ended(0, good)]);
    assert_eq!(peer.write_status(before, &[5; 8]), Status::RemAccessErr);
    assert_eq!(memory.get::<[u8; 512]>(0).unwrap(), [4; 512]);
}
