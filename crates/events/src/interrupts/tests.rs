//! Tests of interrupts: defaults, schemes, every arrangement, moving load, vectors, overflow, invalid input.

use core::net::Ipv4Addr;
use core::time::Duration;
use std::sync::Arc;

use parking_lot::Mutex;

use super::*;
use crate::eq::{Doorbell, EqError, Indicator, Memory, Settings, State};
use crate::eqe::{Cause, ChannelEvent, Eqe, Form};
use crate::event::Event;
use crate::event::Reason;
use crate::message_map::{Duty, Route};
use crate::moderation::{Hold, Moderation};
use crate::steering::Redirection;
use crate::toeplitz::{KEY_LEN, Key, Tuple};
use crate::vector::Delivery;

mod arrangements;
mod conventional;
mod refusals;
mod stress;

const NOW: Time = Time::ZERO;

/// Records signals until they are served.
#[derive(Debug, Clone, Default)]
struct RecordingSink(Arc<Mutex<Recorded>>);

#[derive(Debug, Default)]
struct Recorded {
    signals: Vec<(Signal, Delivery)>,
    overflows: Vec<u16>,
    down: Vec<Shutdown>,
}

impl Fire for RecordingSink {
    fn fire(&self, signal: Signal, delivery: Delivery) {
        self.0.lock().signals.push((signal, delivery));
    }

    fn overflow(&self, queue: u16) {
        self.0.lock().overflows.push(queue);
    }

    fn shutdown(&self, why: Shutdown) {
        self.0.lock().down.push(why);
    }
}

impl RecordingSink {
    /// The signals since last time.
    fn signals(&self) -> Vec<Signal> {
        let signals = core::mem::take(&mut self.0.lock().signals);
        signals.into_iter().map(|(signal, _)| signal).collect()
    }

    /// Serves until no signal is left; returns queue and cause of each event.
    fn serve(&self, interrupts: &Interrupts) -> Vec<(u16, Cause)> {
        let mut got = Vec::new();
        loop {
            let signals = self.signals();
            if signals.is_empty() {
                return got;
            }
            for signal in signals {
                let handle = |queue, eqe: Eqe| got.push((queue, eqe.cause().unwrap()));
                let _ = interrupts.service(signal, NOW, handle).unwrap();
            }
        }
    }
}

fn adapter(
    arrangement: Arrangement,
    scheme: Scheme,
    processors: u16,
) -> (Interrupts, RecordingSink) {
    let board = RecordingSink::default();
    let fire = Box::new(board.clone());
    let interrupts = Interrupts::new(arrangement, scheme, processors, fire).unwrap();
    let settings = Settings::default();
    interrupts.create_all(64, settings, NOW).unwrap();
    (interrupts, board)
}

fn completion(cq: u32) -> Cause {
    Cause::Rdma(Event::Completion {
        cq,
        reason: Reason::Next,
    })
}

fn channel(channel: u8, count: u32) -> Cause {
    let what = ChannelEvent::Returned;
    Cause::Channel {
        channel,
        what,
        count,
    }
}

fn packet(port: u16) -> Tuple {
    Tuple::TcpV4 {
        from: (Ipv4Addr::LOCALHOST, port),
        to: (Ipv4Addr::LOCALHOST, 4791),
    }
}

fn raise(interrupts: &Interrupts, cause: Cause, at: At) -> u16 {
    let raised = interrupts.raise(cause, Origin::new(at), NOW).unwrap();
    raised.queue
}

/// E7: completions to their queue, other RDMA events to queue 1, global and management ones to queue 0 with vector 0.
#[test]
fn event_classes_use_their_default_queues() {
    for scheme in [Scheme::ByProcessor, Scheme::ByQueue] {
        let (interrupts, board) = adapter(Arrangement::AllQueuesAllVectors, scheme, 4);
        assert_eq!(raise(&interrupts, completion(3), At::Queue(7)), 7);
        assert_eq!(board.signals(), [Signal::Vector(7)]);
        let others = [
            Cause::Rdma(Event::QpFatal { qp: 5 }),
            Cause::Rdma(Event::CqOverflow { cq: 5 }),
            Cause::Rdma(Event::SrqLimit { srq: 5 }),
            Cause::Rdma(Event::SrqError { srq: 5 }),
            Cause::CommandDone { command: 5 },
        ];
        for cause in others {
            assert_eq!(raise(&interrupts, cause, At::Unspecified), RDMA_QUEUE);
        }
        assert_eq!(board.signals(), [Signal::Vector(1)]);
        let globals = [
            Cause::MemoryError {
                internal: true,
                bank: 1,
            },
            Cause::Link { port: 1, up: false },
            Cause::GeneralPurpose { pin: 3 },
            Cause::Overflow { queue: 3 },
            Cause::Management { parameter: 9 },
        ];
        for cause in globals {
            assert_eq!(raise(&interrupts, cause, At::Processor(2)), GLOBAL_QUEUE);
        }
        assert_eq!(board.signals(), [GLOBAL_SIGNAL]);
    }
}

/// E8, scheme 1: hash, entry, processor, map.
#[test]
fn packet_hash_selects_processor_and_queue() {
    let (interrupts, board) = adapter(Arrangement::AllQueuesAllVectors, Scheme::ByProcessor, 4);
    let key = Key(*b"any forty bytes will do if they are rand");
    interrupts.set_key(key);
    let entries = (0..16).map(|n| Redirection {
        processor: n % 4,
        ..Redirection::default()
    });
    let entries: Vec<Redirection> = entries.collect();
    interrupts.set_redirections(&entries).unwrap();
    let mut load = [0; 4];
    for port in 0..400 {
        let processor = (key.hash(packet(port)) & 15) % 4;
        load[processor as usize] += 1;
        let queue = raise(&interrupts, channel(0, 0), At::Packet(packet(port)));
        assert_eq!(u32::from(queue), Duty::Tcp as u32 * 4 + processor);
        let rdma = Origin::new(At::Packet(packet(port))).with_duty(Duty::RdmaRx);
        let queue = interrupts.raise(completion(1), rdma, NOW).unwrap().queue;
        assert_eq!(u32::from(queue), Duty::RdmaRx as u32 * 4 + processor);
        assert_eq!(board.serve(&interrupts).len(), 2);
    }
    assert!(load.iter().all(|n| *n > 50), "{load:?}");
}

/// E8, scheme 2: the entry names channel and queue for channel events; RDMA events name their own queue.
#[test]
fn redirection_entry_selects_channel_and_queue() {
    let (interrupts, board) = adapter(
        Arrangement::ProcessorQueuesProcessorVectors,
        Scheme::ByQueue,
        4,
    );
    let to = Redirection {
        processor: 1,
        channel: 17,
        queue: 3,
    };
    interrupts.set_redirections(&[to]).unwrap();
    assert_eq!(raise(&interrupts, channel(0, 5), At::Packet(packet(1))), 3);
    assert_eq!(board.serve(&interrupts), [(3, channel(17, 5))]);
    assert_eq!(raise(&interrupts, completion(1), At::Queue(2)), 2);
    let fatal = Cause::Rdma(Event::QpFatal { qp: 1 });
    assert_eq!(raise(&interrupts, fatal, At::Packet(packet(1))), RDMA_QUEUE);
    assert_eq!(raise(&interrupts, completion(1), At::Processor(3)), 3);
    // The queue selects the cell of the flat map: legacy bit or vector.
    board.serve(&interrupts);
    interrupts.revector(2, Signal::Line).unwrap();
    raise(&interrupts, completion(1), At::Queue(2));
    assert_eq!(board.signals(), [Signal::Line]);
}

/// E11: load moves between processors under traffic, and no event is left behind.
#[test]
fn remapping_under_load_loses_no_event() {
    let (interrupts, board) = adapter(Arrangement::AllQueuesAllVectors, Scheme::ByProcessor, 2);
    let mut seen = Vec::new();
    for n in 0..1000 {
        raise(&interrupts, completion(n), At::Processor((n % 2) as u16));
        if n % 7 == 0 {
            let to = interrupts.route_of(Duty::Rdma, (n / 7 % 2) as u16).unwrap();
            interrupts.remap(Duty::Rdma, 0, to).unwrap();
        }
        if n % 3 == 0 {
            seen.extend(board.serve(&interrupts));
        }
    }
    seen.extend(board.serve(&interrupts));
    let mut numbers: Vec<Cause> = seen.into_iter().map(|(_, cause)| cause).collect();
    numbers.sort_by_key(|cause| Eqe::new(*cause).number());
    let all: Vec<Cause> = (0..1000).map(completion).collect();
    assert_eq!(numbers, all);
}

/// E9: one vector for several queues; the driver finds the right one without reading the others' entries.
#[test]
fn shared_vector_serves_the_signalled_queues() {
    let (interrupts, board) = adapter(Arrangement::AllQueuesOneVector, Scheme::ByProcessor, 4);
    for queue in [5, 23, 5, 11] {
        raise(&interrupts, completion(u32::from(queue)), At::Queue(queue));
    }
    assert_eq!(board.0.lock().signals.len(), 3, "one per armed queue");
    let mut seen = board.serve(&interrupts);
    seen.sort_by_key(|(queue, _)| *queue);
    let expected = [5, 5, 11, 23].map(|q| (q, completion(u32::from(q))));
    assert_eq!(seen, expected);
}

/// E10: spurious signals do nothing, cost nothing, and do not affect the next real one.
#[test]
fn spurious_interrupts_cause_no_register_access() {
    let (interrupts, board) = adapter(
        Arrangement::ProcessorQueuesProcessorVectors,
        Scheme::ByProcessor,
        2,
    );
    let before = interrupts.accesses();
    for signal in [Signal::Line, Signal::Vector(0), Signal::Vector(1)] {
        let nothing = interrupts.service(signal, NOW, |_, _| panic!("no event"));
        assert_eq!(nothing, Ok(Served::default()));
    }
    assert_eq!(interrupts.accesses(), before);
    raise(&interrupts, completion(1), At::Processor(1));
    let _ = interrupts.service(Signal::Vector(0), NOW, |_, _| panic!("not here"));
    assert_eq!(board.serve(&interrupts), [(1, completion(1))]);
    let _ = interrupts.service(Signal::Vector(1), NOW, |_, _| panic!("served"));
    raise(&interrupts, completion(2), At::Processor(1));
    assert_eq!(
        board.serve(&interrupts),
        [(1, completion(2))],
        "still armed"
    );
}

/// E10: inline, pinned, line, fewer and more vectors make no difference to the events consumed.
#[test]
fn delivery_and_vector_count_do_not_affect_events() {
    let run = |prepare: fn(&Interrupts)| {
        let (interrupts, board) = adapter(Arrangement::AllQueuesAllVectors, Scheme::ByProcessor, 3);
        prepare(&interrupts);
        let mut seen = Vec::new();
        for n in 0..300u32 {
            raise(&interrupts, completion(n), At::Processor((n % 3) as u16));
            if n % 10 == 9 {
                let mut batch = board.serve(&interrupts);
                batch.sort_by_key(|(_, cause)| Eqe::new(*cause).number());
                seen.extend(batch);
            }
        }
        seen
    };
    let all = run(|_| ());
    assert_eq!(all.len(), 300);
    assert_eq!(run(|i| i.vectors().grant(100)), all);
    assert_eq!(run(|i| i.vectors().grant(2)), all);
    assert_eq!(run(|i| i.vectors().grant(0)), all);
    let pinned = |i: &Interrupts| {
        for vector in 0..i.vectors().requested() {
            let to = Delivery::Pinned(vector % 3);
            i.vectors().deliver(vector, to).unwrap();
        }
    };
    assert_eq!(run(pinned), all);
}

/// E2: overflow is reported out of band and as an event; after resizing all events arrive in order.
#[test]
fn overflow_is_reported_and_resize_resolves_it() {
    let (interrupts, board) = adapter(
        Arrangement::ProcessorQueuesProcessorVectors,
        Scheme::ByProcessor,
        2,
    );
    for n in 0..100 {
        raise(&interrupts, completion(n), At::Queue(1));
    }
    assert_eq!(board.0.lock().overflows, [1]);
    assert_eq!(interrupts.resize(1, 128, NOW), Ok(None));
    let seen = board.serve(&interrupts);
    let (told, events): (Vec<_>, Vec<_>) = seen.into_iter().partition(|(queue, _)| *queue == 0);
    assert_eq!(told, [(0, Cause::Overflow { queue: 1 })]);
    let all: Vec<_> = (0..100).map(|n| (1, completion(n))).collect();
    assert_eq!(events, all);
}

/// E2: an event for an undefined queue, and one that cannot be kept, shut the adapter down; that is reported once.
#[test]
fn undeliverable_events_shut_the_adapter_down() {
    let (interrupts, board) = adapter(
        Arrangement::ProcessorQueuesOneVector,
        Scheme::ByProcessor,
        2,
    );
    interrupts.destroy(1).unwrap();
    let why = Shutdown::Undefined { queue: 1 };
    for at in [At::Queue(1), At::Queue(0)] {
        let refused = interrupts.raise(completion(0), Origin::new(at), NOW);
        assert_eq!(refused, Err(RaiseError::Down(why)));
    }
    assert_eq!(
        (interrupts.down(), &board.0.lock().down[..]),
        (Some(why), &[why][..])
    );

    let (interrupts, board) = adapter(Arrangement::OneQueueOneVector, Scheme::ByProcessor, 1);
    interrupts.destroy(0).unwrap();
    let settings = Settings {
        backlog: 2,
        ..Settings::default()
    };
    let memory = Memory::new(1, Form::Short).unwrap();
    interrupts.create(0, memory, settings).unwrap();
    let answers = (0..4).map(|n| {
        interrupts
            .raise(completion(n), Origin::UNSPECIFIED, NOW)
            .is_ok()
    });
    assert_eq!(answers.collect::<Vec<_>>(), [true, true, true, false]);
    assert_eq!(
        interrupts.down(),
        Some(Shutdown::Overflow { queue: 0, kept: 2 })
    );
    assert_eq!(board.0.lock().overflows, [0], "out of band only");
}

/// E6: held signals are given by count or by a tick at the requested time.
#[test]
fn moderated_queues_signal_in_time() {
    let (interrupts, board) = adapter(Arrangement::OneQueueOneVector, Scheme::ByProcessor, 1);
    let hold = Hold::new(4, Duration::from_micros(50)).unwrap();
    interrupts.moderate(0, Moderation::Fixed(hold)).unwrap();
    let raised = interrupts
        .raise(completion(0), Origin::UNSPECIFIED, NOW)
        .unwrap();
    let due = raised.due.unwrap();
    assert_eq!(due, NOW + hold.delay);
    assert_eq!(
        (interrupts.tick(NOW), board.signals().len()),
        (Some(due), 0)
    );
    assert_eq!(interrupts.tick(due), None);
    assert_eq!(board.serve(&interrupts), [(0, completion(0))]);
    for n in 0..8 {
        raise(&interrupts, completion(n), At::Unspecified);
    }
    assert_eq!(interrupts.fired(), 2, "by time, by count");
    assert_eq!(board.serve(&interrupts).len(), 8);
}

/// E6, the driver's part: interrupts while idle, polling while busy.
#[test]
fn busy_driver_polls_without_interrupts() {
    let (interrupts, board) = adapter(Arrangement::OneQueueOneVector, Scheme::ByProcessor, 1);
    let gap = Duration::from_micros(10);
    interrupts.set_arming(0, Arming::WhenIdle(gap)).unwrap();
    raise(&interrupts, completion(0), At::Unspecified);
    let before = interrupts.accesses().writes;
    let served = interrupts
        .service(board.signals()[0], NOW, |_, _| ())
        .unwrap();
    assert_eq!((served.events, served.due), (1, Some(NOW + gap)));
    let mut now = NOW;
    for n in 0..1000 {
        raise(&interrupts, completion(n), At::Unspecified);
        now = now + gap;
        let served = interrupts.poll(now, |_, _| ());
        assert_eq!((served.events, served.due), (1, Some(now + gap)));
    }
    assert!(board.signals().is_empty(), "no interrupt while it is busy");
    let writes = interrupts.accesses().writes - before;
    assert!(writes < 40, "indicators are told lazily (E5): {writes}");
    let served = interrupts.poll(now + gap, |_, _| ());
    assert_eq!(served, Served::default());
    raise(&interrupts, completion(7), At::Unspecified);
    assert_eq!(
        board.serve(&interrupts),
        [(0, completion(7))],
        "idle: armed"
    );
}

/// E6: a driver with several threads polls by the vector, so that the same thread serves the queue; that is no interrupt.
#[test]
fn polls_are_served_by_the_vector() {
    let arrangement = Arrangement::ProcessorQueuesProcessorVectors;
    let (interrupts, board) = adapter(arrangement, Scheme::ByProcessor, 3);
    let gap = Duration::from_micros(10);
    interrupts.set_arming(2, Arming::WhenIdle(gap)).unwrap();
    raise(&interrupts, completion(0), At::Processor(2));
    assert_eq!(board.serve(&interrupts), [(2, completion(0))]);
    raise(&interrupts, completion(1), At::Processor(2));
    assert!(board.signals().is_empty(), "not armed");
    assert_eq!(interrupts.fire_polls(NOW), Some(NOW + gap), "not due");
    assert_eq!(interrupts.fire_polls(NOW + gap), None);
    let signals = board.signals();
    assert_eq!(signals, [Signal::Vector(2)]);
    let served = interrupts.service(signals[0], NOW + gap, |_, _| ());
    assert_eq!(served.unwrap().due, Some(NOW + gap * 2));
    let counters: Vec<_> = interrupts.counters().collect();
    let expected = SignalCounters {
        signal: Signal::Vector(2),
        interrupts: 1,
        events: 2,
        writes: 0,
        code: Eqe::new(completion(0)).code(),
    };
    assert_eq!(counters[3], expected);
    assert_eq!(expected.coalesced(), 1);
    // The timers end: what waits for a poll is served, and the queue is armed.
    raise(&interrupts, completion(2), At::Processor(2));
    interrupts.end_polling();
    assert_eq!(board.serve(&interrupts), [(2, completion(2))]);
    raise(&interrupts, completion(3), At::Processor(2));
    assert_eq!(board.serve(&interrupts), [(2, completion(3))]);
    assert_eq!(interrupts.fire_polls(Time::MAX), None);
}

/// E12: what is counted per vector adds up to the totals.
#[test]
fn counters_of_vectors_add_up() {
    let (interrupts, board) = adapter(Arrangement::OneQueueOneVector, Scheme::ByProcessor, 1);
    let armed = interrupts.accesses().writes;
    for n in 0..5 {
        raise(&interrupts, completion(n), At::Unspecified);
    }
    assert_eq!(board.serve(&interrupts).len(), 5);
    let [line, vector] = interrupts.counters().collect::<Vec<_>>()[..] else {
        panic!("the line and one vector");
    };
    assert_eq!((line.interrupts, line.events, line.writes), (0, 0, 0));
    let counted = (vector.interrupts, vector.events, vector.writes);
    assert_eq!(counted, (1, 5, 1));
    assert_eq!(vector.coalesced(), 4);
    assert_eq!(interrupts.fired(), 1);
    assert_eq!(
        interrupts.accesses(),
        Accesses {
            reads: 0,
            writes: armed + 1
        }
    );
}

/// The message of an interrupt contains the code of the event that caused it, unless the event was written before.
#[test]
fn interrupt_message_contains_the_event_code() {
    let (interrupts, board) = adapter(Arrangement::OneQueueOneVector, Scheme::ByProcessor, 1);
    let code = || interrupts.counters().last().map(|vector| vector.code);
    assert_eq!(code(), Some(0));
    for cause in [Cause::GeneralPurpose { pin: 3 }, completion(1)] {
        raise(&interrupts, cause, At::Unspecified);
        assert_eq!(code(), Some(Eqe::new(cause).code()));
        // Written while the queue is not armed.
        raise(&interrupts, channel(4, 1), At::Unspecified);
        assert_eq!(code(), Some(Eqe::new(cause).code()));
        assert_eq!(board.serve(&interrupts).len(), 2);
    }
    interrupts.unarm(0, NOW).unwrap();
    raise(&interrupts, channel(4, 1), At::Unspecified);
    assert_eq!(interrupts.arm(0, NOW), Ok(None));
    assert_eq!(board.signals().len(), 1);
    assert_eq!(code(), Some(0));
}

/// A handler that raises events for the queue it serves, inline: they are served, in order, without deadlock.
#[test]
fn handlers_may_raise_events_and_be_interrupted_themselves() {
    let (interrupts, board) = adapter(Arrangement::OneQueueOneVector, Scheme::ByProcessor, 1);
    raise(&interrupts, completion(0), At::Unspecified);
    let mut order = Vec::new();
    while let Some(signal) = board.signals().first() {
        let handle = |_, eqe: Eqe| {
            let n = eqe.number();
            order.push(n);
            if n < 500 {
                raise(&interrupts, completion(n + 1), At::Unspecified);
            }
            // As if another vector of this queue fired on this thread.
            let _ = interrupts.arm(0, NOW);
            let nested = interrupts.service(*signal, NOW, |_, _| panic!("out of turn"));
            assert_eq!(nested.unwrap().events, 0);
        };
        let served = interrupts.service(*signal, NOW, handle).unwrap();
        assert!(served.events <= BUDGET);
    }
    assert_eq!(order, (0..=500).collect::<Vec<u32>>());
}

#[cfg(loom)]
mod model {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Counts signals.
    struct Count(Arc<AtomicUsize>);

    impl Fire for Count {
        fn fire(&self, _: Signal, _: Delivery) {
            self.0.fetch_add(1, Ordering::AcqRel);
        }

        fn overflow(&self, _: u16) {}

        fn shutdown(&self, _: Shutdown) {}
    }

    /// An adapter with one small queue, armed; the count of its signals; what was handled.
    fn adapter() -> (Arc<Interrupts>, Arc<AtomicUsize>, Arc<Handled>) {
        let count = Arc::new(AtomicUsize::new(0));
        let fire = Box::new(Count(count.clone()));
        let (arrangement, scheme) = (Arrangement::OneQueueOneVector, Scheme::ByQueue);
        let interrupts = Interrupts::new(arrangement, scheme, 1, fire).unwrap();
        let memory = Memory::new(2, Form::Short).unwrap();
        interrupts.create(0, memory, Settings::default()).unwrap();
        interrupts.arm(0, NOW).unwrap();
        let handled = Arc::new(Handled(AtomicUsize::new(0)));
        (Arc::new(interrupts), count, handled)
    }

    /// The next event that may be handled: any other is lost, doubled or out of order.
    struct Handled(AtomicUsize);

    impl Handled {
        fn serve(&self, interrupts: &Interrupts) {
            let handle = |_, eqe: Eqe| {
                let next = self.0.fetch_add(1, Ordering::AcqRel);
                assert_eq!(eqe.number() as usize, next, "out of turn");
            };
            let _ = interrupts.service(GLOBAL_SIGNAL, NOW, handle).unwrap();
        }

        /// Serves once for every signal; then all events must have been handled.
        fn finish(&self, interrupts: &Interrupts, count: &AtomicUsize, events: usize) {
            let mut served = 0;
            while served < count.load(Ordering::Acquire) {
                served += 1;
                self.serve(interrupts);
            }
            assert_eq!(
                self.0.load(Ordering::Acquire),
                events,
                "asleep, and events wait"
            );
        }
    }

    fn raise(interrupts: &Interrupts, number: u32) {
        let origin = Origin::new(At::Queue(0));
        let _ = interrupts.raise(completion(number), origin, NOW).unwrap();
    }

    /// A driver serves while events arrive, and once more than needed: signals alone suffice to get all of them.
    #[test]
    fn signals_alone_deliver_every_event() {
        loom::model(|| {
            let (interrupts, count, handled) = adapter();
            raise(&interrupts, 0);
            let producer = {
                let interrupts = interrupts.clone();
                thread::spawn(move || {
                    raise(&interrupts, 1);
                    raise(&interrupts, 2);
                })
            };
            handled.serve(&interrupts);
            handled.serve(&interrupts);
            producer.join().unwrap();
            handled.finish(&interrupts, &count, 3);
        });
    }

    /// Two drivers at one queue: each event is handled once, and in order.
    #[test]
    fn two_drivers_handle_each_event_once() {
        loom::model(|| {
            let (interrupts, count, handled) = adapter();
            raise(&interrupts, 0);
            let other = {
                let (interrupts, handled) = (interrupts.clone(), handled.clone());
                thread::spawn(move || handled.serve(&interrupts))
            };
            raise(&interrupts, 1);
            handled.serve(&interrupts);
            other.join().unwrap();
            handled.finish(&interrupts, &count, 2);
        });
    }
}
