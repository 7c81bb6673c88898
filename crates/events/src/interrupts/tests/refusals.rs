//! Invalid input to interrupts: each is rejected with its own error, and nothing changes.

use super::*;
use crate::steering::SteeringRegister;

/// The register of the first redirection entry.
const FIRST: SteeringRegister = SteeringRegister::Entry(0);

fn pair() -> (Interrupts, RecordingSink) {
    adapter(
        Arrangement::ProcessorQueuesProcessorVectors,
        Scheme::ByProcessor,
        2,
    )
}

fn no_queue(queue: u16) -> MapError {
    MapError::Queue { queue, queues: 2 }
}

#[test]
fn unknown_event_targets_are_refused() {
    let (interrupts, board) = pair();
    let raised = |at| interrupts.raise(completion(1), Origin::new(at), NOW);
    assert_eq!(raised(At::Queue(2)), Err(no_queue(2).into()));
    let processor = MapError::Processor {
        processor: 2,
        processors: 2,
    };
    assert_eq!(raised(At::Processor(2)), Err(processor.into()));
    let refused = interrupts.raise(channel(32, 0), Origin::UNSPECIFIED, NOW);
    assert_eq!(refused, Err(RaiseError::Channel(32)));
    assert!(board.signals().is_empty() && interrupts.down().is_none());
}

#[test]
fn out_of_range_vectors_and_queues_are_refused() {
    let (interrupts, _) = pair();
    let vector = VectorError::NoSuch {
        vector: 2,
        requested: 2,
    };
    let served = interrupts.service(Signal::Vector(2), NOW, |_, _| ());
    assert_eq!(served, Err(vector));
    let cell = interrupts.route_of(Duty::Rdma, 1).unwrap();
    let to = |queue, vector| Route {
        queue,
        signal: Signal::Vector(vector),
    };
    let remap = |to| interrupts.remap(Duty::Rdma, 1, to);
    assert_eq!(remap(to(0, 2)), Err(CommandError::Vector(vector)));
    assert_eq!(remap(to(2, 0)), Err(CommandError::Map(no_queue(2))));
    assert_eq!(interrupts.route_of(Duty::Rdma, 1), Ok(cell));
    assert_eq!(
        interrupts.revector(0, Signal::Vector(2)),
        Err(vector.into())
    );
    assert_eq!(
        interrupts.revector(2, Signal::Line),
        Err(no_queue(2).into())
    );
    let entry = |processor, queue| Redirection {
        processor,
        channel: 0,
        queue,
    };
    assert!(interrupts.redirect(0, entry(2, 0)).is_err());
    assert!(interrupts.redirect(0, entry(0, 2)).is_err());
    assert!(interrupts.redirect(1, entry(0, 0)).is_err());
    assert_eq!(interrupts.redirect(0, entry(1, 1)), Ok(entry(0, 0)));
    let (write, before) = (
        |entry: Redirection| interrupts.write_steering_register(FIRST, entry.pack()),
        interrupts.accesses(),
    );
    assert!(write(entry(2, 0)).is_err() && write(entry(0, 2)).is_err());
    assert_eq!(interrupts.redirections(), [entry(1, 1)]);
    assert_eq!(interrupts.accesses(), before);
    write(entry(0, 1)).unwrap();
    let read = interrupts.read_steering_register(FIRST);
    assert_eq!(read, Ok(entry(0, 1).pack()));
    let counted = interrupts.accesses();
    assert_eq!(counted.reads, before.reads + 1);
    assert_eq!(counted.writes, before.writes + 1);
}

#[test]
fn invalid_register_writes_are_refused() {
    let (interrupts, board) = pair();
    raise(&interrupts, completion(1), At::Queue(1));
    let write = |queue, read| {
        let armed = true;
        interrupts.write_register(Doorbell { queue, armed, read }.pack(), NOW)
    };
    let beyond = EqError::PastWriteIndicator {
        read: 0,
        by: 2,
        written: 1,
    };
    let refused = CommandError::Queue {
        queue: 1,
        why: beyond,
    };
    assert_eq!(write(1, Indicator::By(2)), Err(refused));
    assert_eq!(write(1, Indicator::At(2)), Err(refused));
    assert_eq!(write(9, Indicator::Keep), Err(no_queue(9).into()));
    assert!(interrupts.write_register(1 << 50, NOW).is_err());
    assert!(interrupts.resize(1, 0, NOW).is_err());
    assert!(interrupts.resize(2, 8, NOW).is_err());
    let memory = || Memory::new(4, Form::Long).unwrap();
    assert!(interrupts.create(1, memory(), Settings::default()).is_err());
    assert_eq!(board.serve(&interrupts), [(1, completion(1))]);

    // Arming a destroyed queue.
    interrupts.destroy(1).unwrap();
    let undefined = CommandError::Queue {
        queue: 1,
        why: EqError::Undefined,
    };
    assert_eq!(interrupts.arm(1, NOW), Err(undefined));
    assert_eq!(interrupts.switch(1, memory(), NOW), Err(undefined));
    assert_eq!(interrupts.destroy(1), Err(undefined));
    assert_eq!(interrupts.queue(1).unwrap().state(), State::Undefined);
    interrupts.create(1, memory(), Settings::default()).unwrap();
    interrupts.arm(1, NOW).unwrap();
    raise(&interrupts, completion(2), At::Queue(1));
    assert_eq!(board.serve(&interrupts), [(1, completion(2))]);
}

#[test]
fn oversized_arrangements_are_refused() {
    let new = |processors| {
        let board = Box::new(RecordingSink::default());
        let arrangement = Arrangement::AllQueuesAllVectors;
        Interrupts::new(arrangement, Scheme::ByProcessor, processors, board).err()
    };
    assert_eq!(new(0), Some(MapError::Processors(0).into()));
    assert_eq!(new(2049), Some(MapError::Processors(2049).into()));
    assert_eq!(new(342), Some(MapError::Queues(2052).into()));
    assert_eq!(new(341), None);
}

#[test]
fn wide_numbers_do_not_fit_short_entries() {
    let (interrupts, board) = pair();
    interrupts.destroy(1).unwrap();
    let short = Memory::new(4, Form::Short).unwrap();
    interrupts.create(1, short, Settings::default()).unwrap();
    interrupts.arm(1, NOW).unwrap();
    let wide = interrupts.raise(completion(1 << 24), Origin::new(At::Queue(1)), NOW);
    let refused = RaiseError::NumberTooLarge {
        number: 1 << 24,
        queue: 1,
    };
    assert_eq!(wide, Err(refused));
    raise(&interrupts, completion((1 << 24) - 1), At::Queue(1));
    assert_eq!(board.serve(&interrupts), [(1, completion((1 << 24) - 1))]);
    let key = Key([0; KEY_LEN]);
    interrupts.set_key(key);
}
