//! Tests of virtual functions by engines: limits, errors, released resources, and that handles belong to one function.

use std::time::Duration;

use verbena_nic::{Error as Refusal, Object, SsqLimits};

use super::*;
use crate::datagram::ud_pair::UdOptions;
use crate::verbs::queue_pair::QueuePairOptions;
use crate::{Engine, HandlerOptions};

fn engine() -> Engine {
    let mut config = Config::default();
    config.set("device", "127.0.0.1").unwrap();
    config.set("owners", "127.0.0.1=verbena0").unwrap();
    Engine::new(config).unwrap()
}

fn small_options() -> FunctionOptions {
    FunctionOptions {
        qps: 2,
        cqs: 2,
        srqs: 1,
        pds: 2,
        regions: 3,
        handlers: 1,
        ..FunctionOptions::default()
    }
}

#[test]
fn function_enforces_its_own_limits() {
    let physical = engine();
    let function = physical.add_function(&small_options()).unwrap();
    assert_eq!(function.config().name, "verbena0v1");
    let pd = function.function().allocate_pd().unwrap();
    let queues: Vec<_> = (0..2).map(|_| function.create_cq(8).unwrap()).collect();
    assert!(function.create_cq(8).is_err());
    let make = || function.create_qp(&queues[0], &queues[0], QueuePairOptions::new(pd));
    let _pairs = [make().unwrap(), make().unwrap()];
    let refused = make().unwrap_err();
    let (object, limit) = (Object::Qp, 2);
    assert!(
        matches!(refused, Error::Adapter(error) if error == Refusal::Limit { object, limit }),
        "{refused}"
    );
    let _handler = function.set_handler(&HandlerOptions::default()).unwrap();
    assert!(function.set_handler(&HandlerOptions::default()).is_err());
    let used = function.function().used();
    assert_eq!((used.event_queues, used.vectors), (4, 4));
    assert_eq!(
        function.config().device_profile().unwrap().devices().len(),
        1
    );
    // The physical function is unchanged.
    physical.create_cq(8).unwrap();
    assert_eq!(physical.function().used().qps, 0);
}

#[test]
fn exhausted_resources_are_reported_and_reusable() {
    let physical = engine();
    let large = FunctionOptions {
        regions: 1 << 20,
        ..small_options()
    };
    let mut all = Vec::new();
    let refused = loop {
        match physical.add_function(&large) {
            Ok(function) => all.push(function),
            Err(error) => break error,
        }
    };
    assert_eq!(all.len(), 14);
    let left = physical.remaining_shares().unwrap().stags;
    let said = refused.to_string();
    assert!(said.contains("1048576"), "{said}");
    assert!(said.contains(&left.to_string()), "{said}");
    // Its resources are free when it is gone with all its objects.
    let last = all.pop().unwrap();
    let queue = last.create_cq(8).unwrap();
    drop(last);
    assert!(
        physical.add_function(&large).is_err(),
        "a queue of it is left"
    );
    drop(queue);
    physical.add_function(&large).unwrap();
}

#[test]
fn refused_function_allocates_nothing() {
    let physical = engine();
    let left = physical.remaining_shares().unwrap();
    let refuse = |options: FunctionOptions, part: &str| {
        let said = physical.add_function(&options).unwrap_err().to_string();
        assert!(said.contains(part), "{said}");
    };
    refuse(
        FunctionOptions {
            qps: 0,
            ..small_options()
        },
        "max_qps",
    );
    refuse(
        FunctionOptions {
            handlers: 1025,
            ..small_options()
        },
        "handlers",
    );
    let name = Some("with blanks".to_owned());
    refuse(
        FunctionOptions {
            name,
            ..small_options()
        },
        "name",
    );
    assert_eq!(physical.remaining_shares().unwrap(), left);
    let function = physical.add_function(&small_options()).unwrap();
    let number = function.function().number();
    let refused = function.add_function(&small_options()).unwrap_err();
    assert!(
        matches!(refused, Error::Virtual { function } if function == number),
        "{refused}"
    );
}

/// A function outlives the physical one's engine, and its end does not affect other functions.
#[test]
fn functions_end_independently() {
    let physical = engine();
    let (a, b) = (
        physical.add_function(&small_options()).unwrap(),
        physical.add_function(&small_options()).unwrap(),
    );
    a.shut_down(Duration::from_millis(10)).unwrap();
    assert!(a.create_cq(1).is_err());
    b.create_cq(1).unwrap();
    drop(physical);
    b.create_cq(1).unwrap();
}

/// V1: objects of one function are rejected by another, where numbers alone would name something else.
#[test]
fn handles_of_another_function_are_refused() {
    let physical = engine();
    let function = physical.add_function(&small_options()).unwrap();
    let pd = function.function().allocate_pd().unwrap();
    let (ours, theirs) = (
        function.create_cq(8).unwrap(),
        physical.create_cq(8).unwrap(),
    );
    assert_eq!(ours.number(), theirs.number(), "the numbers say nothing");
    let foreign = |outcome: Result<(), Error>| {
        assert!(matches!(outcome, Err(Error::Foreign)), "{outcome:?}");
    };
    let options = QueuePairOptions::new(pd);
    foreign(function.create_qp(&ours, &theirs, options).map(drop));
    foreign(function.create_qp(&theirs, &ours, options).map(drop));
    let datagrams = UdOptions::new(pd);
    foreign(function.create_ud(&theirs, &ours, datagrams).map(drop));
    foreign(function.create_ud(&ours, &theirs, datagrams).map(drop));
    foreign(function.create_control(Some(&theirs), 4).map(drop));
    // V6: shared send queues and their channels.
    let sends = SsqLimits::default();
    foreign(function.create_ssq(pd, &theirs, sends).map(drop));
    let other = physical.function().allocate_pd().unwrap();
    let shared = physical.create_ssq(other, &theirs, sends).unwrap();
    foreign(function.create_channel(&shared, &ours, options).map(drop));
    foreign(physical.create_channel(&shared, &ours, options).map(drop));
    // Handlers: an id is valid for its own function only.
    let of_physical = physical.set_handler(&HandlerOptions::default()).unwrap();
    let unknown = function.create_cq_with(8, of_physical).map(drop);
    assert!(
        matches!(unknown, Err(Error::NoHandler { .. })),
        "{unknown:?}"
    );
    assert!(ours.set_handler(Some(of_physical)).is_err());
    assert!(function.clear_handler(of_physical).is_err());
    physical.clear_handler(of_physical).unwrap();
    // A connection received by one function is not accepted by a queue pair of another.
    let listening = physical.listen("127.0.0.1:0".parse().unwrap(), 4).unwrap();
    let qp = function.create_qp(&ours, &ours, options).unwrap();
    let caller = function.create_qp(&ours, &ours, options).unwrap();
    let to = listening.local_addr().unwrap();
    caller.connect(to, b"", |_| ()).unwrap();
    let incoming = listening.next().unwrap().unwrap();
    foreign(incoming.accept(&qp, b"", |_| ()));
    assert_eq!(function.function().used().qps, 2, "nothing else was made");
}
