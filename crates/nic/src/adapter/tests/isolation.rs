//! A function cannot name anything of another, and can be removed only when it has no objects.

use std::sync::Arc;

use verbena_events::arrangement::Arrangement;
use verbena_events::eqe::Cause;
use verbena_events::event::{Event, Outbox};
use verbena_events::interrupts::{Interrupts, Origin, Scheme};
use verbena_events::vector::{Delivery, Fire, Shutdown, Signal};
use verbena_mem::{Access, Buffer, MemAccess, Misuse, Pd, WindowType};
use verbena_stream::Time;
use verbena_wire::number::Qpn;
use verbena_wire::{Stag, To};

use super::*;
use crate::function::{NewQp, NewUd};
use crate::qp::Limits;
use crate::ssq::SsqLimits;
use crate::state::QpState;
use crate::testing::{SEND, new_qp};
use crate::wr::{Data, Flags, ReceiveWr, SendWr};

struct NullSink;

impl Fire for NullSink {
    fn fire(&self, _: Signal, _: Delivery) {}
    fn overflow(&self, _: u16) {}
    fn shutdown(&self, _: Shutdown) {}
}

fn interrupts(function: &Function, processors: u16) -> Result<Interrupts, Error> {
    let arrangement = Arrangement::ProcessorQueuesProcessorVectors;
    function.create_interrupts(
        arrangement,
        Scheme::ByProcessor,
        processors,
        Box::new(NullSink),
    )
}

/// Handles of one object of each kind; a function that has one object of each kind has none with these.
#[derive(Clone, Copy)]
struct ObjectIds {
    pd: Pd,
    cq: u32,
    srq: u32,
    ssq: u32,
    channel: u32,
    qp: u32,
    ud: u32,
    control: u32,
    region: Stag,
    window: Stag,
    /// For registration by work request (M4).
    tag: Stag,
    /// A region that is invalidated by its first touch (M9).
    touch: Stag,
}

/// Handles that no function has ever given out.
const NO_OBJECTS: ObjectIds = ObjectIds {
    pd: Pd(9_999),
    cq: 9_999,
    srq: 9_999,
    ssq: 9_999,
    channel: 9_997,
    qp: 9_999,
    ud: 9_998,
    control: 9_999,
    region: Stag::new(0x00ff_ff01),
    window: Stag::new(0x00ff_fe01),
    tag: Stag::new(0x00ff_fd01),
    touch: Stag::new(0x00ff_fc01),
};

/// A one-touch region of 64 bytes.
fn one_touch(function: &Function, pd: Pd) -> Buffer {
    Buffer::one_touch(function.tpt(), 64, pd, Access::ALL).unwrap()
}

fn ud_of(pd: Pd, cq: u32, srq: Option<u32>) -> NewUd {
    NewUd {
        qpn: Qpn::new(0x004e_2001).unwrap(),
        pd,
        send_cq: cq,
        recv_cq: cq,
        srq,
        limits: Limits::default(),
    }
}

fn create_objects(function: &Arc<Function>) -> (ObjectIds, [Buffer; 2], Interrupts) {
    let twice = |make: &dyn Fn() -> u32| {
        make();
        make()
    };
    let pd = Pd(twice(&|| function.allocate_pd().unwrap().0));
    let cq = twice(&|| function.create_cq(8).unwrap().number());
    let srq = twice(&|| function.create_srq(pd, 4, 1).unwrap().number());
    let region = function.register_buffer(pd, 64, Access::ALL).unwrap();
    let touch = one_touch(function, pd);
    let limits = SsqLimits::default();
    let ssq = twice(&|| function.create_ssq(pd, cq, limits).unwrap().number());
    let names = ObjectIds {
        pd,
        cq,
        srq,
        ssq,
        tag: function.allocate_stag(pd, 1).unwrap(),
        touch: touch.stag(),
        qp: twice(&|| function.create_qp(new_qp(pd, cq)).unwrap().number()),
        ud: function.create_ud(ud_of(pd, cq, None)).unwrap().number(),
        control: twice(&|| function.create_control(2, Some(cq)).unwrap().number()),
        region: region.stag(),
        window: function.allocate_window(WindowType::TwoB, pd).unwrap(),
        channel: function
            .create_channel(ssq, new_qp(pd, cq))
            .unwrap()
            .number(),
    };
    (names, [region, touch], interrupts(function, 4).unwrap())
}

/// An error message without the number in it.
fn error_text(error: Option<Error>) -> String {
    let said = error.map_or("done".to_owned(), |error| error.to_string());
    said.replace(|c: char| c.is_ascii_hexdigit(), "")
}

/// Every verb of a function with these handles, of whatever function they are.
fn try_all(function: &Arc<Function>, of: ObjectIds, (pd, cq): (Pd, u32)) -> Vec<Option<Error>> {
    let out = &mut Outbox::new();
    let receive = ReceiveWr {
        id: 1,
        scatter: &[],
    };
    let (stag, window) = (of.region, of.window);
    let limits = SsqLimits::default();
    let send = SendWr {
        id: 1,
        op: SEND,
        flags: Flags::SIGNALED,
        data: Data::Inline(b""),
    };
    let control = function.create_control(2, None).unwrap().number();
    let attempts = vec![
        function.free_pd(of.pd).err(),
        function.create_srq(of.pd, 1, 1).err(),
        function.register_buffer(of.pd, 8, Access::ALL).err(),
        function.allocate_window(WindowType::One, of.pd).err(),
        function.allocate_stag(of.pd, 1).err(),
        function.create_qp(new_qp(of.pd, cq)).err(),
        function.create_ud(ud_of(of.pd, cq, None)).err(),
        function.cq(of.cq).err(),
        function.query_cq(of.cq).err(),
        function.resize_cq(of.cq, 16).err(),
        function.destroy_cq(of.cq).err(),
        function.create_qp(new_qp(pd, of.cq)).err(),
        function.create_ud(ud_of(pd, of.cq, None)).err(),
        function.create_control(2, Some(of.cq)).err(),
        function.srq(of.srq).err(),
        function.query_srq(of.srq).err(),
        function.modify_srq(of.srq, 1).err(),
        function.post_srq_receive(of.srq, &receive, out).err(),
        function.destroy_srq(of.srq, &mut Outbox::new()).err(),
        function
            .create_qp(NewQp {
                srq: Some(of.srq),
                ..new_qp(pd, cq)
            })
            .err(),
        function.create_ud(ud_of(pd, cq, Some(of.srq))).err(),
        function.create_ssq(of.pd, cq, limits).err(),
        function.create_ssq(pd, of.cq, limits).err(),
        function.ssq(of.ssq).err(),
        function.query_ssq(of.ssq).err(),
        function.query_channel(of.ssq, of.channel).err(),
        function.set_channel_open(of.ssq, of.channel, false).err(),
        function
            .post_shared_send(of.ssq, of.channel, &send, out)
            .err(),
        function.create_channel(of.ssq, new_qp(pd, cq)).err(),
        function.destroy_ssq(of.ssq, out).err(),
        function.qp(of.channel).err(),
        function.modify_qp(of.channel, QpState::Reset, out).err(),
        function.destroy_qp(of.channel, out).err(),
        function.qp(of.qp).err(),
        function.query_qp(of.qp).err(),
        function.modify_qp(of.qp, QpState::Init, out).err(),
        function.destroy_qp(of.qp, out).err(),
        function.ud(of.ud).err(),
        function.destroy_ud(of.ud).err(),
        function.control(of.control).err(),
        function.run_control(of.control, out).err(),
        function.post_create_cq(of.control, 1, 4).err(),
        function.destroy_control(of.control, out).err(),
        function.post_destroy_qp(control, 1, of.qp).err(),
        function.post_destroy_cq(control, 1, of.cq).err(),
        function.deregister(stag).err(),
        function.deregister_with_windows(stag).err(),
        function.deregister(window).err(),
        function.deregister(of.tag).err(),
        function.deregister_with_windows(of.tag).err(),
        function.deregister(of.touch).err(),
        function
            .register_shared(of.touch, To::new(0), pd, Access::ALL)
            .err(),
        function.post_deregister(control, 1, of.tag).err(),
        function
            .register_shared(stag, To::new(0), pd, Access::ALL)
            .err(),
        function.post_deregister(control, 1, stag).err(),
        function
            .post_register_shared(control, 1, stag, (To::new(0), pd, Access::ALL))
            .err(),
    ];
    function.destroy_control(control, out).unwrap();
    attempts
}

/// V1: every verb rejects handles of another function, with the same message as numbers that do not exist.
#[test]
fn handles_of_other_functions_fail_as_missing() {
    let adapter = Adapter::new(small(), Policy::Verbs, 1).unwrap();
    let (a, b) = (
        adapter.add_function(small()).unwrap(),
        adapter.add_function(small()).unwrap(),
    );
    let (theirs, _regions, _interrupts) = create_objects(&a);
    // One of each kind of its own, with smaller numbers.
    let own = (b.allocate_pd().unwrap(), b.create_cq(8).unwrap().number());
    let srq = b.create_srq(own.0, 1, 1).unwrap().number();
    let ssq = b.create_ssq(own.0, own.1, SsqLimits::default());
    assert!(ssq.unwrap().number() < theirs.ssq);
    let qp = b.create_qp(new_qp(own.0, own.1)).unwrap().number();
    assert!(srq < theirs.srq && qp < theirs.qp && own.1 < theirs.cq);
    let (before_a, before_b) = (a.used(), b.used());
    let refusals = try_all(&b, theirs, own);
    let missing = try_all(&b, NO_OBJECTS, own);
    for (at, (refusal, like)) in refusals.into_iter().zip(missing).enumerate() {
        let like_missing = matches!(
            refusal,
            Some(Error::NoSuch { .. } | Error::Memory(verbena_mem::Misuse::Stag(_)))
        );
        assert!(like_missing, "attempt {at}: {refusal:?}");
        assert_eq!(error_text(refusal), error_text(like), "attempt {at}");
    }
    assert_eq!(
        (a.used(), b.used()),
        (before_a, before_b),
        "nothing happened"
    );
}

/// V1: memory of another function is refused locally and to peers, like an invalid STag.
#[test]
fn stags_of_other_functions_are_invalid() {
    let adapter = Adapter::new(small(), Policy::Verbs, 1).unwrap();
    let (a, b) = (
        adapter.add_function(small()).unwrap(),
        adapter.add_function(small()).unwrap(),
    );
    let (pd_a, pd_b) = (a.allocate_pd().unwrap(), b.allocate_pd().unwrap());
    assert_eq!(
        pd_a, pd_b,
        "domains have the same number, which grants nothing"
    );
    let theirs = a.register_buffer(pd_a, 64, Access::ALL).unwrap();
    let ours = b.register_buffer(pd_b, 64, Access::ALL).unwrap();
    let never = Stag::new(0x00ff_ff01);
    let reach = |stag, access| MemAccess {
        stag,
        at: theirs.at(),
        len: 8,
        pd: pd_b,
        qp: 2,
        needs: access,
    };
    for stag in [theirs.stag(), never] {
        let invalid = verbena_mem::Refusal::Stag { stag };
        let tpt = b.tpt();
        let local = reach(stag, Access::LOCAL_WRITE);
        assert_eq!(tpt.place_local(&local).err(), Some(invalid));
        assert_eq!(tpt.gather_local(&local).err(), Some(invalid));
        let write = reach(stag, Access::REMOTE_WRITE);
        assert_eq!(tpt.place_remote(&write).err(), Some(invalid));
        let read = reach(stag, Access::REMOTE_READ);
        assert_eq!(tpt.gather_remote(&read).err(), Some(invalid));
    }
    assert!(a.tpt().find_entry(ours.stag()).is_none());
}

/// V1, M4: an STag that was given out for registration by work request is prepared and executed by its own function only.
#[test]
fn stags_and_tickets_register_in_own_function_only() {
    let adapter = Adapter::new(small(), Policy::Verbs, 1).unwrap();
    let (a, b) = (
        adapter.add_function(small()).unwrap(),
        adapter.add_function(small()).unwrap(),
    );
    let (pd, same) = (a.allocate_pd().unwrap(), b.allocate_pd().unwrap());
    assert_eq!(pd, same);
    let stag = a.allocate_stag(pd, 1).unwrap();
    let as_region = (pd, Access::ALL, false);
    let (theirs, ticket) = Buffer::prepared(a.tpt(), stag, 64, as_region).unwrap();
    // One of its own, at the same place in its part of the table.
    let own = b.allocate_stag(pd, 1).unwrap();
    let (_ours, mine) = Buffer::prepared(b.tpt(), own, 64, as_region).unwrap();
    for stag in [stag, NO_OBJECTS.tag] {
        let refused = Buffer::prepared(b.tpt(), stag, 64, as_region).err();
        assert_eq!(refused, Some(Misuse::Stag(stag)));
    }
    assert_eq!(b.tpt().execute(ticket, pd), Err(Misuse::Stag(stag)));
    assert!(!b.tpt().discard(ticket), "not b's to give up");
    assert!(b.tpt().discard(mine), "nor did that take b's own");
    assert!(b.tpt().find_entry(own).is_none(), "nothing was registered");
    // The owner's is unchanged.
    a.tpt().execute(ticket, pd).unwrap();
    assert!(a.tpt().find_entry(theirs.stag()).is_some());
}

/// V1, M9: a touch through another function is refused and spends nothing.
#[test]
fn other_functions_cannot_spend_one_touch_entry() {
    let adapter = Adapter::new(small(), Policy::Verbs, 1).unwrap();
    let (a, b) = (
        adapter.add_function(small()).unwrap(),
        adapter.add_function(small()).unwrap(),
    );
    let pd = a.allocate_pd().unwrap();
    assert_eq!(pd, b.allocate_pd().unwrap());
    let theirs = one_touch(&a, pd);
    let reach = MemAccess {
        stag: theirs.stag(),
        at: theirs.at(),
        len: 8,
        pd,
        qp: 2,
        needs: Access::REMOTE_WRITE,
    };
    let invalid = verbena_mem::Refusal::Stag { stag: reach.stag };
    assert_eq!(b.tpt().place_remote(&reach).err(), Some(invalid));
    let read = MemAccess {
        needs: Access::REMOTE_READ,
        ..reach
    };
    assert_eq!(b.tpt().gather_remote(&read).err(), Some(invalid));
    assert!(a.tpt().place_remote(&reach).is_ok(), "it is still there");
}

/// V1: event queues and vectors are a function's own, and no more than its share.
#[test]
fn event_queues_and_vectors_belong_to_one_function() {
    let adapter = Adapter::new(small(), Policy::Verbs, 1).unwrap();
    let shares = Shares {
        event_queues: 4,
        vectors: 3,
        ..small()
    };
    let (a, b) = (
        adapter.add_function(shares).unwrap(),
        adapter.add_function(shares).unwrap(),
    );
    let (object, limit) = (Object::EventQueue, 4);
    assert_eq!(
        interrupts(&a, 5).err(),
        Some(Error::Limit { object, limit })
    );
    assert_eq!(a.used(), Shares::NONE, "the refused ones hold nothing");
    let of_a = interrupts(&a, 4).unwrap();
    assert_eq!((a.used().event_queues, a.used().vectors), (4, 3));
    assert!(interrupts(&a, 1).is_err(), "its share is used up");
    // E10: the fourth shares a vector with another, and no grant changes that.
    of_a.vectors().grant(4);
    assert_eq!(of_a.vectors().usable(), 3);
    let of_b = interrupts(&b, 2).unwrap();
    assert!(of_b.queue(2).is_err(), "a's queue 2 is none of b's");
    assert!(of_b.vectors().check(2).is_err());
    for all in [&of_a, &of_b] {
        all.create_all(8, Default::default(), Time::ZERO).unwrap();
    }
    let event = Cause::Rdma(Event::QpFatal { qp: 2 });
    let raised = of_b.raise(event, Origin::UNSPECIFIED, Time::ZERO);
    assert!(raised.is_ok());
    let seen = |of: &Interrupts| {
        let mut seen = 0;
        for vector in (0..of.vectors().requested()).map(Signal::Vector) {
            let served = of.service(vector, Time::ZERO, |_, _| seen += 1);
            assert!(served.is_ok());
        }
        seen
    };
    assert_eq!(seen(&of_a), 0, "events of b do not reach a");
    assert_eq!(seen(&of_b), 1);
    drop(of_a);
    assert_eq!(a.used(), Shares::NONE);
}

/// V1, N9: a function that has objects is not removed, and works as before; one that has none accepts nothing any more.
#[test]
fn function_with_objects_cannot_be_removed() {
    let adapter = Adapter::new(small(), Policy::Verbs, 1).unwrap();
    let function = adapter.add_function(small()).unwrap();
    let out = &mut Outbox::new();
    let refused = |what: &str| {
        let Err(Error::Occupied { number, .. }) = adapter.remove_function(1) else {
            panic!("{what} must keep it");
        };
        assert_eq!(number, 1);
    };
    let cq = function.create_cq(8).unwrap().number();
    refused("a completion queue");
    let control = function.create_control(2, Some(cq)).unwrap().number();
    let promised = function.post_create_cq(control, 1, 4).unwrap();
    function.destroy_control(control, out).unwrap();
    assert!(function.cq(promised).is_err());
    function.destroy_cq(cq).unwrap();
    let control = function.create_control(2, None).unwrap().number();
    refused("a control queue pair");
    function.destroy_control(control, out).unwrap();
    let pd = function.allocate_pd().unwrap();
    refused("a domain");
    let region = function.register_buffer(pd, 8, Access::ALL).unwrap();
    refused("a region");
    drop(region);
    function.free_pd(pd).unwrap();
    let events = interrupts(&function, 2).unwrap();
    refused("an event queue");
    drop(events);
    adapter.remove_function(1).unwrap();
    let gone = |object| Some(Error::FunctionRemoved { object });
    assert_eq!(function.allocate_pd().err(), gone(Object::Pd));
    assert_eq!(function.create_cq(1).err(), gone(Object::Cq));
    assert_eq!(
        function.create_control(1, None).err(),
        gone(Object::Control)
    );
    assert_eq!(interrupts(&function, 1).err(), gone(Object::EventQueue));
}

/// The error says what is left, in numbers.
#[test]
fn refused_removal_lists_remaining_objects() {
    let adapter = Adapter::new(small(), Policy::Verbs, 1).unwrap();
    let function = adapter.add_function(small()).unwrap();
    let _all = create_objects(&function);
    let said = adapter.remove_function(1).unwrap_err().to_string();
    for part in [
        "function 1",
        "4 of kind queue pair",
        "2 of kind completion queue",
        "2 of kind protection domain",
        "4 of kind STag",
        "2 of kind shared send queue",
        "4 of kind event queue",
        "2 control queue pairs",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

/// Of two threads, one that removes a function and one that creates something in it, only one succeeds.
#[test]
fn removal_and_creation_cannot_both_succeed() {
    for _ in 0..300 {
        let adapter = Adapter::new(small(), Policy::Verbs, 1).unwrap();
        let function = adapter.add_function(small()).unwrap();
        let (made, removed) = std::thread::scope(|threads| {
            let maker = threads.spawn(|| function.allocate_pd().is_ok());
            (adapter.remove_function(1).is_ok(), maker.join().unwrap())
        });
        assert_ne!(made, removed);
    }
}
