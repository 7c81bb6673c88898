//! Tests of connections that moved between functions: which memory they reach in the new and the former functions, and which not.

use std::sync::Arc;

use verbena_events::event::Outbox;
use verbena_mem::{Access, Bind, Buffer, Pd, Policy, Tpt, WindowType};
use verbena_stream::{Role, Time};
use verbena_wire::{Stag, To};

use crate::adapter::Adapter;
use crate::error::Error;
use crate::function::{Function, Shares};
use crate::memory_scope::MAX_FORMER_FUNCTIONS;
use crate::object::Object;
use crate::qp::{MigrateRefusal, Qp};
use crate::state::{Personality, QpState};
use crate::testing::{Setup, feed, new_qp, poll, stream, transmit, write};
use crate::wc::Status;
use crate::wr::{Data, Flags, RemoteAddr, SendOp, SendWr, Sge};

fn shares() -> Shares {
    Shares {
        qps: 16,
        cqs: 64,
        srqs: 4,
        ssqs: 4,
        pds: 16,
        stags: 100,
        event_queues: 4,
        vectors: 4,
    }
}

/// One end of a connection, in a function.
struct End {
    function: Arc<Function>,
    pd: Pd,
    qp: Arc<Qp>,
    out: Outbox,
}

impl End {
    fn new(function: &Arc<Function>) -> End {
        let pd = function.allocate_pd().unwrap();
        let cq = function.create_cq(64).unwrap().number();
        let qp = function.create_qp(new_qp(pd, cq)).unwrap();
        End {
            function: function.clone(),
            pd,
            qp,
            out: Outbox::new(),
        }
    }

    fn attach(&mut self, role: Role) {
        self.qp.modify(QpState::Init, &mut self.out).unwrap();
        let stream = stream(role, Setup::default());
        assert!(self.qp.attach(stream, true, &mut self.out));
    }

    fn memory(&self) -> Buffer {
        memory(self.function.tpt(), self.pd)
    }

    /// Moves to a new domain in another function.
    fn migrate(&mut self, to: &Arc<Function>) -> Result<(), Error> {
        let pd = to.allocate_pd()?;
        self.migrate_to(to, pd)
    }

    fn migrate_to(&mut self, to: &Arc<Function>, pd: Pd) -> Result<(), Error> {
        let cq = to.create_cq(64)?.number();
        let number = self.qp.number();
        let qp = to.create_moved(new_qp(pd, cq), None, &self.function, number)?;
        let image = self.qp.export_image(|| (), &mut self.out).unwrap();
        qp.import_image(image, &mut self.out).unwrap();
        self.function.destroy_qp(number, &mut self.out).unwrap();
        (self.function, self.pd, self.qp) = (to.clone(), pd, qp);
        Ok(())
    }

    /// Posts one request and returns its status.
    fn request(&mut self, peer: &mut End, op: SendOp, sges: &[Sge]) -> Option<Status> {
        let wr = SendWr {
            id: 1,
            op,
            flags: Flags::SIGNALED,
            data: Data::Gather(sges),
        };
        self.qp.post_send(&wr, &mut self.out).unwrap();
        run(self, peer);
        poll(&self.qp.init().send_cq).first().map(|wc| wc.status)
    }
}

fn memory(tpt: &Arc<Tpt>, pd: Pd) -> Buffer {
    Buffer::new(tpt, 256, pd, Access::ALL).unwrap()
}

fn sge(memory: &Buffer) -> [Sge; 1] {
    [Sge {
        addr: memory.at(),
        len: 64,
        stag: memory.stag(),
    }]
}

fn remote(memory: &Buffer) -> RemoteAddr {
    RemoteAddr {
        stag: memory.stag(),
        to: To::new(memory.at()),
    }
}

fn run(a: &mut End, b: &mut End) {
    let mut moved = 1;
    while moved > 0 {
        moved = 0;
        for (from, to) in [(true, false), (false, true)] {
            let (from, to) = match (from, to) {
                (true, _) => (&mut *a, &mut *b),
                _ => (&mut *b, &mut *a),
            };
            let bytes = transmit(&from.qp, 4096, Time::ZERO, &mut from.out);
            feed(&to.qp, &bytes, Time::ZERO, &mut to.out);
            moved += bytes.len();
        }
    }
}

/// An adapter with three virtual functions, and a connection from the second to the first.
fn world() -> (Adapter, [Arc<Function>; 3], End, End) {
    let adapter = Adapter::new(shares(), Policy::Verbs, 7).unwrap();
    let functions = [(); 3].map(|()| adapter.add_function(shares()).unwrap());
    let (mut moving, mut peer) = (End::new(&functions[0]), End::new(&functions[2]));
    moving.attach(Role::Initiator);
    peer.attach(Role::Responder);
    run(&mut moving, &mut peer);
    (adapter, functions, moving, peer)
}

#[test]
fn migrated_queue_pair_reaches_old_and_new_memory() {
    let (_adapter, [_, b, _], mut moving, mut peer) = world();
    let (old, theirs) = (moving.memory(), peer.memory());
    theirs.write(0, b"from the peer");
    moving.migrate(&b).unwrap();
    // The peer continues to write where it wrote.
    let ended = peer.request(&mut moving, write(remote(&old)), &sge(&theirs));
    assert_eq!(ended, Some(Status::Success));
    assert_eq!(old.read(0, 13), b"from the peer");
    // Its own requests may use the old memory, and new memory.
    let new = moving.memory();
    for source in [&old, &new] {
        source.write(0, b"of ours");
        let ended = moving.request(&mut peer, write(remote(&theirs)), &sge(source));
        assert_eq!(ended, Some(Status::Success));
        assert_eq!(theirs.read(0, 7), b"of ours");
    }
    let ended = peer.request(&mut moving, write(remote(&new)), &sge(&theirs));
    assert_eq!(ended, Some(Status::Success));
}

#[test]
fn migrated_queue_pair_cannot_reach_other_old_domains() {
    let (_adapter, [a, b, _], mut moving, mut peer) = world();
    let other = a.allocate_pd().unwrap();
    let (foreign, theirs) = (memory(a.tpt(), other), peer.memory());
    moving.migrate(&b).unwrap();
    let ended = peer.request(&mut moving, write(remote(&foreign)), &sge(&theirs));
    assert_eq!(ended, Some(Status::RemAccessErr));
}

#[test]
fn migrated_queue_pair_cannot_reach_other_new_domains() {
    let (_adapter, [_, b, _], mut moving, mut peer) = world();
    let other = b.allocate_pd().unwrap();
    let (foreign, theirs) = (memory(b.tpt(), other), peer.memory());
    moving.migrate(&b).unwrap();
    let ended = moving.request(&mut peer, write(remote(&theirs)), &sge(&foreign));
    assert_eq!(ended, Some(Status::LocProtErr));
}

#[test]
fn deregistered_memory_is_gone_after_migration() {
    let (_adapter, [_, b, _], mut moving, mut peer) = world();
    let (old, theirs) = (moving.memory(), peer.memory());
    let target = remote(&old);
    moving.migrate(&b).unwrap();
    drop(old);
    let ended = peer.request(&mut moving, write(target), &sge(&theirs));
    assert_eq!(ended, Some(Status::RemAccessErr));
}

#[test]
fn migrated_queue_pair_keeps_its_source_domain() {
    let (adapter, [a, b, _], mut moving, _peer) = world();
    let pd = moving.pd;
    moving.migrate(&b).unwrap();
    let (object, number, users) = (Object::Pd, pd.0, 1);
    let in_use = Error::InUse {
        object,
        number,
        users,
    };
    assert_eq!(a.free_pd(pd), Err(in_use));
    assert!(matches!(
        adapter.remove_function(a.number()),
        Err(Error::Occupied { .. })
    ));
    let number = moving.qp.number();
    b.destroy_qp(number, &mut moving.out).unwrap();
    assert_eq!(a.free_pd(pd), Ok(()), "although another function holds it");
}

#[test]
fn bound_windows_follow_a_migrated_queue_pair() {
    let (_adapter, [a, b, _], mut moving, mut peer) = world();
    let (region, theirs) = (moving.memory(), peer.memory());
    let window = a
        .tpt()
        .allocate_window(WindowType::TwoA, moving.pd)
        .unwrap();
    let bind = |window: Stag, key| {
        SendOp::Bind(Bind {
            window,
            region: region.stag(),
            addr: region.at(),
            len: 64,
            access: Access::REMOTE_WRITE,
            pd: Pd(0),
            qp: 0,
            key,
            zero_based: false,
            one_touch: false,
        })
    };
    assert_eq!(
        moving.request(&mut peer, bind(window, 9), &[]),
        Some(Status::Success)
    );
    moving.migrate(&b).unwrap();
    let bound = Stag::from_parts(window.index(), 9).unwrap();
    let to = To::new(region.at());
    let target = RemoteAddr { stag: bound, to };
    let ended = peer.request(&mut moving, write(target), &sge(&theirs));
    assert_eq!(ended, Some(Status::Success));
    // Its owner can still invalidate it, by a request in the new function.
    let invalidate = SendOp::LocalInvalidate(bound);
    let ended = moving.request(&mut peer, invalidate, &[]);
    assert_eq!(ended, Some(Status::Success));
    let ended = peer.request(&mut moving, write(target), &sge(&theirs));
    assert_eq!(ended, Some(Status::RemAccessErr));
}

#[test]
fn pending_memory_of_source_function_is_refused() {
    let (_adapter, [a, b, _], mut moving, mut peer) = world();
    let (pd, theirs) = (moving.pd, peer.memory());
    moving.migrate(&b).unwrap();
    let (later, _reserved) = Buffer::pending(a.tpt(), 64, pd, Access::ALL).unwrap();
    let ended = peer.request(&mut moving, write(remote(&later)), &sge(&theirs));
    assert_eq!(ended, Some(Status::RemAccessErr), "nothing would wake it");
}

#[test]
fn repeated_migration_between_two_domains_succeeds() {
    let (_adapter, [a, b, _], mut moving, mut peer) = world();
    let (old, theirs) = (moving.memory(), peer.memory());
    let homes = [(b.clone(), b.allocate_pd().unwrap()), (a, moving.pd)];
    for round in 0..12 {
        let (to, pd) = &homes[round % 2];
        moving.migrate_to(to, *pd).unwrap();
        let ended = peer.request(&mut moving, write(remote(&old)), &sge(&theirs));
        assert_eq!(ended, Some(Status::Success), "after {round} moves");
    }
}

#[test]
fn migration_through_new_domains_is_limited() {
    let (_adapter, [a, b, _], mut moving, _peer) = world();
    let mut moves = 0;
    let refused = loop {
        let to = if moves % 2 == 0 { &b } else { &a };
        match moving.migrate(to) {
            Ok(()) => moves += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(moves, MAX_FORMER_FUNCTIONS);
    let number = moving.qp.number();
    let why = MigrateRefusal::TooManyMoves;
    assert_eq!(refused, Error::NotMigratable { number, why });
    assert_eq!(moving.qp.state(), QpState::Rts, "it flows where it is");
}

#[test]
fn each_function_counts_its_own_traffic() {
    let (_adapter, [a, b, _], mut moving, mut peer) = world();
    let (ours, theirs) = (moving.memory(), peer.memory());
    let to = write(remote(&theirs));
    moving.request(&mut peer, to, &sge(&ours));
    let before = a.counters().connections;
    assert!(before.bytes_out > 64);
    moving.migrate(&b).unwrap();
    assert_eq!(a.counters().connections, before);
    assert_eq!(b.counters().connections.bytes_out, 0);
    moving.request(&mut peer, to, &sge(&ours));
    assert_eq!(b.counters().connections.messages_out, 1);
    assert_eq!(a.counters().connections, before);
    assert_eq!(moving.qp.init().personality, Personality::Roce);
}
