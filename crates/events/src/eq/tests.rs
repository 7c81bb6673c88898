//! Tests of event queues: arming, indicators, overflow, switching, moderation, bad input; and models of the races (`--cfg loom`).

use core::time::Duration;

use super::*;
use crate::eqe::Cause;

const NOW: Time = Time::ZERO;
const VECTOR: Signal = Signal::Vector(3);

fn event(number: u32) -> Eqe {
    Eqe::new(Cause::Management { parameter: number })
}

fn queue(entries: usize, backlog: usize) -> (EventQueue, Reader) {
    let queue = EventQueue::new();
    let settings = Settings {
        backlog,
        publish_every: 2,
        ..Settings::default()
    };
    let memory = Memory::new(entries, Form::Long).unwrap();
    let reader = queue.initialise(memory, settings).unwrap();
    (queue, reader)
}

fn post(queue: &EventQueue, number: u32) -> Outcome {
    queue.post(event(number), VECTOR, NOW).unwrap()
}

fn arm(queue: &EventQueue, read: Indicator) -> bool {
    let out = queue.write(true, read, NOW).unwrap();
    out.signal.is_some()
}

fn numbers(reader: &mut Reader) -> Vec<u32> {
    reader.map(Eqe::number).collect()
}

#[cfg(not(loom))]
mod plain {
    use super::*;

    #[test]
    fn armed_queue_signals_once() {
        let (queue, mut reader) = queue(8, 0);
        assert_eq!(post(&queue, 1), Outcome::default(), "unarmed");
        assert_eq!(queue.state(), State::Unarmed);
        assert_eq!(numbers(&mut reader), [1]);
        assert!(!arm(&queue, Indicator::By(reader.acknowledge())));
        assert_eq!(post(&queue, 2).signal, Some(VECTOR));
        assert_eq!(queue.state(), State::Unarmed, "in the same step");
        assert_eq!(post(&queue, 3).signal, None);
        assert_eq!(numbers(&mut reader), [2, 3]);
    }

    /// E2: arming while unread entries wait signals; E3: with and without a valid indicator.
    #[test]
    fn arming_with_unread_entries_signals_at_once() {
        let (queue, mut reader) = queue(8, 0);
        let _ = (post(&queue, 1), post(&queue, 2));
        assert!(arm(&queue, Indicator::Keep));
        assert_eq!(queue.state(), State::Unarmed);
        reader.next();
        assert!(arm(&queue, Indicator::By(1)), "one is left");
        assert!(!arm(&queue, Indicator::At(2)));
        assert_eq!(queue.state(), State::Armed);
        let out = queue.write(false, Indicator::Keep, NOW).unwrap();
        assert_eq!((out, queue.state()), (Outcome::default(), State::Unarmed));
        assert_eq!(post(&queue, 3).signal, None, "the driver unarmed it");
    }

    #[test]
    fn entries_are_zeroed_after_reading() {
        for form in [Form::Short, Form::Long] {
            let queue = EventQueue::new();
            let memory = Memory::paged(5, form, 2).unwrap();
            let mut reader = queue.initialise(memory, Settings::default()).unwrap();
            let memory = reader.memory.clone();
            for lap in 0..4u32 {
                for slot in 0..5 {
                    let eqe = event(lap * 5 + slot).with_context(9);
                    assert!(queue.post(eqe, VECTOR, NOW).is_ok());
                }
                assert_eq!(memory.raw(memory.next_slot(reader.slot))[0] >> 24, 0xc0);
                let from = reader.slot;
                let got: Vec<Eqe> = reader.by_ref().collect();
                let expected: Vec<u32> = (lap * 5..lap * 5 + 5).collect();
                assert_eq!(got.iter().map(|e| e.number()).collect::<Vec<_>>(), expected);
                if form == Form::Long {
                    assert_eq!((got[2].context, got[2].indicator), (9, lap * 5 + 2));
                }
                assert_eq!(memory.raw(from)[0], 0, "E4: zeroed");
                assert!(!arm(&queue, Indicator::By(reader.acknowledge())));
            }
        }
    }

    /// E5: the write indicator is published every other entry here; the driver never needs it.
    #[test]
    fn write_indicator_is_published_every_other_entry() {
        let (queue, mut reader) = queue(8, 0);
        let published: Vec<u32> = (0..5)
            .map(|n| {
                let _ = post(&queue, n);
                queue.write_indicator()
            })
            .collect();
        assert_eq!(published, [0, 2, 2, 4, 4]);
        assert_eq!(numbers(&mut reader).len(), 5, "read on by code (E4)");
        assert_eq!((queue.read_indicator(), queue.unread()), (0, 5));
        arm(&queue, Indicator::By(3));
        assert_eq!(queue.read_indicator(), 3, "in part");
    }

    /// E2: overflow unarmed and armed is reported once, nothing is lost, and reading makes room.
    #[test]
    fn backlog_keeps_overflowing_events_in_order() {
        let (queue, mut reader) = queue(2, 3);
        let told: Vec<bool> = (0..5).map(|n| post(&queue, n).overflow).collect();
        assert_eq!(told, [false, false, true, false, false]);
        assert_eq!(queue.room(), Ok((2, 3)));
        assert_eq!(numbers(&mut reader), [0, 1]);
        assert!(arm(&queue, Indicator::By(1)), "more came in");
        assert_eq!(numbers(&mut reader), [2]);
        assert!(arm(&queue, Indicator::By(2)));
        assert_eq!(numbers(&mut reader), [3, 4]);
        assert_eq!(queue.room(), Ok((2, 0)));
        assert!(!arm(&queue, Indicator::By(2)));
        assert_eq!(post(&queue, 5).signal, Some(VECTOR));
    }

    /// A full queue that is armed (moderation holds its signal) signals when it overflows.
    #[test]
    fn overflow_ends_moderation() {
        let (queue, _reader) = queue(2, 3);
        let hold = Hold::new(10, Duration::from_millis(1)).unwrap();
        queue.moderate(Moderation::Fixed(hold)).unwrap();
        assert!(!arm(&queue, Indicator::Keep));
        assert!(post(&queue, 0).due.is_some());
        assert_eq!(post(&queue, 1), Outcome::default(), "held already");
        let out = post(&queue, 2);
        assert!(out.overflow && out.signal == Some(VECTOR));
    }

    #[test]
    fn full_backlog_leaves_queue_undefined() {
        let (queue, mut reader) = queue(1, 1);
        let _ = (post(&queue, 0), post(&queue, 1));
        let lost = queue.post(event(2), VECTOR, NOW);
        assert_eq!(lost, Err(EqError::Lost { kept: 1 }));
        assert_eq!(queue.state(), State::Undefined);
        assert_eq!(queue.post(event(3), VECTOR, NOW), Err(EqError::Undefined));
        assert_eq!(numbers(&mut reader), [0], "what was written can be read");
    }

    #[test]
    fn switching_memory_keeps_event_order() {
        let (queue, mut reader) = queue(2, 4);
        for n in 0..5 {
            let _ = post(&queue, n);
        }
        let _ = queue.resize(3, NOW).unwrap();
        assert_eq!(
            queue.room(),
            Ok((3, 0)),
            "the new memory took what was kept"
        );
        let _ = post(&queue, 5);
        let _ = queue.resize(2, NOW).unwrap();
        let _ = post(&queue, 6);
        assert_eq!(numbers(&mut reader), [0, 1, 2, 3, 4, 5, 6]);
        // A relative indicator counts entries in whichever memory they were; an absolute one continues, too.
        assert!(arm(&queue, Indicator::By(4)));
        assert!(!arm(&queue, Indicator::At(7)));
        assert_eq!(post(&queue, 7).signal, Some(VECTOR));
        assert_eq!(numbers(&mut reader), [7]);
    }

    #[test]
    fn resized_queue_keeps_form_and_pages() {
        let queue = EventQueue::new();
        let memory = Memory::paged(4, Form::Short, 2).unwrap();
        let mut reader = queue.initialise(memory, Settings::default()).unwrap();
        let _ = queue.resize(8, NOW).unwrap();
        let _ = post(&queue, 1);
        assert_eq!(numbers(&mut reader), [1]);
        assert_eq!((reader.memory.entries(), reader.memory.page()), (8, 2));
        assert_eq!(reader.memory.form(), Form::Short);
    }

    #[test]
    fn switches_are_limited_until_entries_are_read() {
        let (queue, mut reader) = queue(1, 0);
        for n in 0..MAX_PENDING_SWITCHES as u32 {
            let _ = post(&queue, n);
            let _ = queue.resize(1, NOW).unwrap();
        }
        let _ = post(&queue, 99);
        assert_eq!(
            queue.resize(1, NOW),
            Err(ResizeError::Queue(EqError::TooManySwitches))
        );
        assert_eq!(reader.by_ref().count(), MAX_PENDING_SWITCHES + 1);
        arm(&queue, Indicator::By(1));
        let _ = queue.resize(1, NOW).unwrap();
    }

    #[test]
    fn signals_wait_for_the_count_or_the_time() {
        let (queue, mut reader) = queue(8, 0);
        let hold = Hold::new(3, Duration::from_micros(10)).unwrap();
        queue.moderate(Moderation::Fixed(hold)).unwrap();
        arm(&queue, Indicator::Keep);
        let out = post(&queue, 0);
        let due = Time::ZERO + hold.delay;
        assert_eq!((out.signal, out.due), (None, Some(due)));
        assert_eq!(post(&queue, 1), Outcome::default());
        assert_eq!(queue.tick(NOW).due, Some(due), "too early");
        assert_eq!(post(&queue, 2).signal, Some(VECTOR), "by count");
        assert_eq!(queue.tick(due), Outcome::default(), "nothing is owed");
        reader.by_ref().count();
        arm(&queue, Indicator::By(3));
        let out = queue.post(event(3), VECTOR, due).unwrap();
        assert_eq!(out.due, Some(due + hold.delay));
        assert_eq!(queue.tick(due + hold.delay).signal, Some(VECTOR), "by time");
        // Armed with one unread entry: moderated as well.
        let out = queue.write(true, Indicator::Keep, due).unwrap();
        assert_eq!((out.signal, out.due), (None, Some(due + hold.delay)));
    }

    /// A new setting must not wait for the time of the old one.
    #[test]
    fn changed_moderation_releases_held_signal() {
        let (queue, _reader) = queue(8, 0);
        let long = Hold::new(3, Duration::from_millis(100)).unwrap();
        let short = Hold::new(3, Duration::from_micros(10)).unwrap();
        queue.moderate(Moderation::Fixed(long)).unwrap();
        arm(&queue, Indicator::Keep);
        assert_eq!(post(&queue, 0).due, Some(NOW + long.delay));
        queue.moderate(Moderation::Fixed(short)).unwrap();
        assert_eq!(queue.tick(NOW).signal, Some(VECTOR));
        let out = queue.write(true, Indicator::Keep, NOW).unwrap();
        assert_eq!(out.due, Some(NOW + short.delay));
    }

    #[test]
    fn adaptive_queues_hold_only_under_load() {
        let (queue, mut reader) = queue(4096, 0);
        queue.moderate(Moderation::Adaptive).unwrap();
        let mut signals = [0, 0];
        arm(&queue, Indicator::Keep);
        for (phase, gap) in [(0, 200_000), (1, 500)] {
            for n in 0..20_000u64 {
                let now = Time::from_nanos(phase as u64 * 10_000_000_000 + n * gap);
                let mut out = queue.tick(now);
                let posted = queue.post(event(0), VECTOR, now).unwrap();
                out.signal = out.signal.or(posted.signal);
                if out.signal.is_some() {
                    signals[phase] += 1;
                    reader.by_ref().count();
                    let taken = Indicator::By(reader.acknowledge());
                    assert!(queue.write(true, taken, now).is_ok());
                }
            }
        }
        assert!(signals[0] >= 19_998, "{signals:?}");
        assert!(
            signals[1] < 4_000,
            "most of them in the first window: {signals:?}"
        );
    }

    /// Invalid input: each is rejected with its own error, and nothing changes.
    #[test]
    fn invalid_input_is_refused() {
        let size = |n| Memory::new(n, Form::Short).err();
        assert_eq!(size(0), Some(MemoryError::Size(0)));
        assert_eq!(
            size(MAX_ENTRIES + 1),
            Some(MemoryError::Size(MAX_ENTRIES + 1))
        );
        assert_eq!(
            Memory::paged(4, Form::Short, 3).err(),
            Some(MemoryError::Page(3))
        );

        let undefined = EventQueue::new();
        let refused = Err(EqError::Undefined);
        assert_eq!(undefined.write(true, Indicator::Keep, NOW), refused);
        assert_eq!(undefined.post(event(0), VECTOR, NOW), refused);
        assert_eq!(
            undefined.moderate(Moderation::Adaptive),
            Err(EqError::Undefined)
        );
        assert_eq!(undefined.destroy(), Err(EqError::Undefined));
        assert_eq!(undefined.resize(4, NOW), Err(EqError::Undefined.into()));

        let (queue, mut reader) = queue(4, 0);
        let _ = (post(&queue, 0), post(&queue, 1));
        let before = queue.load_word();
        for read in [
            Indicator::By(3),
            Indicator::At(3),
            Indicator::At(u32::MAX),
            Indicator::By(u32::MAX),
        ] {
            let answer = queue.write(true, read, NOW);
            assert!(
                matches!(answer, Err(EqError::PastWriteIndicator { written: 2, .. })),
                "{answer:?}"
            );
        }
        assert_eq!(queue.resize(0, NOW), Err(MemoryError::Size(0).into()));
        let short = Memory::new(4, Form::Short).unwrap();
        assert!(matches!(
            queue.switch(short, NOW),
            Err(EqError::Form { .. })
        ));
        let again = queue.initialise(Memory::new(4, Form::Long).unwrap(), Settings::default());
        assert_eq!(again.err(), Some(EqError::AlreadyInitialised));
        assert_eq!(queue.load_word(), before, "nothing has changed");
        assert_eq!(numbers(&mut reader), [0, 1]);

        assert_eq!(queue.destroy(), Ok(2));
        assert_eq!(
            queue.write(true, Indicator::Keep, NOW),
            refused,
            "destroyed"
        );
        let memory = Memory::new(4, Form::Short).unwrap();
        let mut reader = queue.initialise(memory, Settings::default()).unwrap();
        let wide = queue.post(event(1 << 24), VECTOR, NOW);
        assert_eq!(wide, Err(EqError::NumberTooLarge(1 << 24)));
        assert_eq!(reader.next(), None);
    }

    /// Positions wrap around after 2^30 entries; a queue must not take old entries for new ones then.
    #[test]
    fn wrapped_positions_keep_entries_in_order() {
        let (queue, mut reader) = queue(2, 0);
        let _ = post(&queue, 0);
        let _ = queue.resize(2, NOW).unwrap();
        reader.next();
        arm(&queue, Indicator::By(1));
        let _ = post(&queue, 1);
        reader.next();
        arm(&queue, Indicator::By(1));
        // As if all but three of the positions had been used, both indicators having moved together.
        let near = word::POSITIONS - 1;
        queue.change(|word| {
            (
                Word {
                    read: near,
                    written: near,
                    ..word
                },
                (),
            )
        });
        queue.end.lock().memory.as_mut().unwrap().base = near;
        for n in 0..6 {
            assert!(queue.post(event(n), VECTOR, NOW).is_ok(), "{n}");
            assert_eq!(reader.next().map(Eqe::number), Some(n));
            arm(&queue, Indicator::By(1));
        }
        assert_eq!(queue.read_indicator(), 5);
    }
}

#[cfg(loom)]
mod model {
    use loom::thread::{self, JoinHandle};

    use super::*;

    /// Posts events; returns how often it had to signal.
    fn producer(queue: &Arc<EventQueue>, events: core::ops::Range<u32>) -> JoinHandle<usize> {
        let queue = queue.clone();
        thread::spawn(move || {
            let posts = events.map(|n| post(&queue, n).signal.iter().count());
            posts.sum()
        })
    }

    fn signals(out: Outcome) -> usize {
        out.signal.iter().count()
    }

    /// Reads the entries and arms; returns the signals of arming.
    fn serve(queue: &EventQueue, reader: &mut Reader, seen: &mut Vec<u32>) -> usize {
        seen.extend(numbers(reader));
        let read = Indicator::By(reader.acknowledge());
        signals(queue.write(true, read, NOW).unwrap())
    }

    /// The driver never sleeps while events wait; and after all threads have ended, reading alone yields the rest.
    fn all_three_come(queue: &EventQueue, reader: &mut Reader, mut seen: Vec<u32>, fired: usize) {
        assert!(fired <= 1, "one signal per arming");
        assert!(
            fired == 1 || seen.len() == 3,
            "asleep, and events wait: {seen:?}"
        );
        for _ in 0..3 {
            serve(queue, reader, &mut seen);
        }
        assert_eq!(seen, [0, 1, 2]);
    }

    /// E2: never asleep with an entry waiting and no signal, and never two signals for one arming.
    #[test]
    fn concurrent_arm_and_post_lose_no_signal() {
        loom::model(|| {
            let (queue, mut reader) = queue(4, 0);
            let queue = Arc::new(queue);
            let producer = producer(&queue, 0..2);
            let mut seen = Vec::new();
            let armed = serve(&queue, &mut reader, &mut seen);
            let fired = producer.join().unwrap() + armed;
            assert!(fired <= 1, "one signal per arming");
            assert!(fired == 1 || seen.len() == 2, "asleep, and entries wait");
            serve(&queue, &mut reader, &mut seen);
            assert_eq!(seen, [0, 1]);
        });
    }

    /// E3: one thread reads and advances, another switches, a third posts; nothing is lost, doubled or reordered.
    #[test]
    fn concurrent_switch_loses_no_event() {
        loom::model(|| {
            let (queue, mut reader) = queue(1, 2);
            let queue = Arc::new(queue);
            let _ = post(&queue, 0);
            let producer = producer(&queue, 1..3);
            let switcher = {
                let queue = queue.clone();
                thread::spawn(move || signals(queue.resize(2, NOW).unwrap()))
            };
            let mut seen = Vec::new();
            let armed = serve(&queue, &mut reader, &mut seen);
            let fired = producer.join().unwrap() + switcher.join().unwrap() + armed;
            all_three_come(&queue, &mut reader, seen, fired);
            assert_eq!((queue.room(), queue.unread()), (Ok((2, 0)), 0));
        });
    }

    /// E2: the driver makes room at the moment at which an event is lost; its write of the register ends.
    #[test]
    fn concurrent_write_ends_after_a_loss() {
        loom::model(|| {
            let (queue, mut reader) = queue(1, 1);
            let queue = Arc::new(queue);
            for number in 0..2 {
                let _ = post(&queue, number);
            }
            let producer = {
                let queue = queue.clone();
                thread::spawn(move || queue.post(event(2), VECTOR, NOW))
            };
            assert_eq!(numbers(&mut reader), [0]);
            let read = Indicator::By(reader.acknowledge());
            let written = queue.write(false, read, NOW);
            match producer.join().unwrap() {
                Ok(_) => assert!(written.is_ok(), "{written:?}"),
                Err(error) => {
                    assert_eq!(error, EqError::Lost { kept: 1 });
                    assert_eq!(queue.room(), Err(EqError::Undefined));
                }
            }
        });
    }

    /// The backlog is written to the queue although the thread that makes room does not wait for the lock.
    #[test]
    fn backlog_is_written_once_room_is_free() {
        loom::model(|| {
            let (queue, mut reader) = queue(1, 3);
            let queue = Arc::new(queue);
            let _ = post(&queue, 0);
            let producer = producer(&queue, 1..3);
            let mut seen = Vec::new();
            let armed = serve(&queue, &mut reader, &mut seen);
            let fired = producer.join().unwrap() + armed;
            all_three_come(&queue, &mut reader, seen, fired);
        });
    }

    /// E6: a tick while an entry is written is followed by another, or signals that entry.
    #[test]
    fn held_signal_is_given_or_rescheduled() {
        loom::model(|| {
            let (queue, mut reader) = queue(4, 0);
            let queue = Arc::new(queue);
            let hold = Hold::new(3, Duration::from_nanos(10)).unwrap();
            queue.moderate(Moderation::Fixed(hold)).unwrap();
            arm(&queue, Indicator::Keep);
            let due = post(&queue, 0).due.unwrap();
            let late = {
                let queue = queue.clone();
                thread::spawn(move || post(&queue, 1))
            };
            // The driver has polled the first one meanwhile, and armed again.
            reader.next();
            let again = queue.write(true, Indicator::By(1), NOW).unwrap();
            let tick = queue.tick(due);
            let late = late.join().unwrap();
            let fired = [again, tick, late].into_iter().map(signals).sum::<usize>();
            let comes = [again, tick, late].iter().any(|out| out.due.is_some());
            assert!(fired <= 1);
            assert!(
                fired == 1 || comes,
                "a signal is owed, and no thread serves it"
            );
        });
    }

    /// Destroying between a producer and a register write: each fails or is done, and nothing is written afterwards.
    #[test]
    fn concurrent_destroy_reports_every_posted_entry() {
        loom::model(|| {
            let (queue, mut reader) = queue(2, 0);
            let queue = Arc::new(queue);
            let producer = {
                let queue = queue.clone();
                thread::spawn(move || queue.post(event(0), VECTOR, NOW).is_ok())
            };
            let destroyer = {
                let queue = queue.clone();
                thread::spawn(move || queue.destroy().unwrap())
            };
            let armed = queue.write(true, Indicator::Keep, NOW);
            assert!(armed.is_ok() || armed == Err(EqError::Undefined));
            let (posted, unread) = (producer.join().unwrap(), destroyer.join().unwrap());
            assert_eq!(usize::from(posted), unread);
            assert_eq!(reader.by_ref().count(), unread);
            assert_eq!(queue.state(), State::Undefined);
        });
    }
}
