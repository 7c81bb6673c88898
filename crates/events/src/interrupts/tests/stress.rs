//! No event lost, doubled or reordered: seeded schedules in one thread, and real threads, against a checker that counts.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::*;

const PRODUCERS: u32 = 4;

/// Splitmix: a seed is a schedule.
struct Rng(u64);

impl Rng {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }
}

/// Counts what each producer sent and what arrived.
///
/// A producer's events keep their order as long as they go through one queue; when its route is changed, those that it
/// raised before may still wait in the old queue. So order is checked per producer and queue, and the whole by counting.
#[derive(Default)]
struct Checker {
    last: std::collections::HashMap<(u32, u16), u32>,
    seen: std::collections::HashSet<u32>,
}

impl Checker {
    fn check_event(&mut self, queue: u16, eqe: Eqe) {
        let Ok(Cause::Rdma(Event::Completion { cq, .. })) = eqe.cause() else {
            assert!(matches!(eqe.cause(), Ok(Cause::Overflow { .. })));
            return;
        };
        assert!(self.seen.insert(cq), "event {cq:#x} came twice");
        let (producer, number) = (cq >> 20, cq & 0xf_ffff);
        let last = self.last.insert((producer, queue), number);
        assert!(last.is_none_or(|last| last < number), "{cq:#x} came late");
    }

    fn assert_complete(&self, sent: u32) {
        assert_eq!(
            self.seen.len() as u32,
            sent * PRODUCERS,
            "events are missing"
        );
    }
}

fn event(producer: u32, number: u32) -> Cause {
    completion(producer << 20 | number)
}

/// The origin of a producer's events: one of each kind.
fn origin(interrupts: &Interrupts, producer: u32) -> Origin {
    Origin::new(match producer {
        0 => At::Processor(0),
        1 => At::Processor(2),
        2 => At::Packet(packet(7)),
        _ => At::Queue(interrupts.queues() - 1),
    })
}

/// One disturbance: resize, switch, move, redirect, change the key, arm, unarm (and arm again), moderate, grant.
fn reconfigure_randomly(interrupts: &Interrupts, dice: &mut Rng, now: Time) {
    let queue = dice.below(u64::from(interrupts.queues())) as u16;
    let processor = dice.below(u64::from(interrupts.processors())) as u16;
    let signal = Signal::Vector(dice.below(u64::from(interrupts.vectors().requested())) as u16);
    match dice.below(12) {
        0 => {
            // Fails when the reader is too far behind, which is allowed.
            let _ = interrupts.resize(queue, 1 + dice.below(16) as usize, now);
        }
        1 => {
            let size = 1 + dice.below(16) as usize;
            let memory = Memory::paged(size, Form::Long, 1 << dice.below(4)).unwrap();
            let _ = interrupts.switch(queue, memory, now);
        }
        2 | 3 => {
            interrupts
                .remap(Duty::Rdma, processor, Route { queue, signal })
                .unwrap();
        }
        4 => {
            interrupts.arm(queue, now).unwrap();
        }
        5 => {
            interrupts.unarm(queue, now).unwrap();
            interrupts.arm(queue, now).unwrap();
        }
        6 => {
            let hold = Hold::new(
                2 + dice.below(6) as u32,
                Duration::from_nanos(1 + dice.below(50)),
            );
            let choice = [
                Moderation::Off,
                Moderation::Fixed(hold.unwrap()),
                Moderation::Adaptive,
            ];
            interrupts
                .moderate(queue, choice[dice.below(3) as usize])
                .unwrap();
        }
        7 => {
            let gap = Duration::from_nanos(1 + dice.below(30));
            let choice = [Arming::Now, Arming::WhenIdle(gap)];
            interrupts
                .set_arming(queue, choice[dice.below(2) as usize])
                .unwrap();
        }
        8 => {
            let to = Redirection {
                processor,
                channel: 0,
                queue,
            };
            let _ = interrupts.redirect(dice.below(4) as usize, to);
        }
        9 => interrupts.set_key(Key([dice.below(256) as u8; KEY_LEN])),
        // Vectors above the five bits of the flat map are refused.
        10 => drop(interrupts.revector(queue, signal)),
        _ => interrupts.vectors().grant(dice.below(6) as u16),
    }
}

fn small(arrangement: Arrangement, scheme: Scheme) -> (Interrupts, RecordingSink) {
    let board = RecordingSink::default();
    let fire = Box::new(board.clone());
    let interrupts = Interrupts::new(arrangement, scheme, 3, fire).unwrap();
    let settings = Settings {
        backlog: 1 << 20,
        ..Settings::default()
    };
    interrupts.create_all(4, settings, NOW).unwrap();
    let everywhere = [Redirection::default(); 4];
    interrupts.set_redirections(&everywhere).unwrap();
    (interrupts, board)
}

fn schedule(seed: u64) {
    const EACH: u32 = 60;
    let mut dice = Rng(seed);
    let arrangement = Arrangement::ALL[4 + dice.below(18) as usize];
    let scheme = [Scheme::ByProcessor, Scheme::ByQueue][dice.below(2) as usize];
    let (interrupts, board) = small(arrangement, scheme);
    let mut checker = Checker::default();
    let mut sent = [0; PRODUCERS as usize];
    let mut clock = 0;
    loop {
        clock += dice.below(20);
        let now = Time::from_nanos(clock);
        match dice.below(10) {
            0..5 => {
                let producer = dice.below(u64::from(PRODUCERS)) as usize;
                if sent[producer] < EACH {
                    let from = origin(&interrupts, producer as u32);
                    let cause = event(producer as u32, sent[producer]);
                    let _ = interrupts.raise(cause, from, now).unwrap();
                    sent[producer] += 1;
                }
            }
            5..7 => {
                // Any signal that was given, in any order; sometimes a spurious one.
                let mut signals = core::mem::take(&mut board.0.lock().signals);
                let spurious =
                    Signal::Vector(dice.below(u64::from(interrupts.vectors().requested())) as u16);
                let signal = match signals.len() as u64 {
                    0 => spurious,
                    n => signals.swap_remove(dice.below(n) as usize).0,
                };
                board.0.lock().signals.extend(signals);
                let handle = |queue, eqe| checker.check_event(queue, eqe);
                let _ = interrupts.service(signal, now, handle).unwrap();
            }
            7 => reconfigure_randomly(&interrupts, &mut dice, now),
            _ => {
                interrupts.tick(now);
                let _ = interrupts.poll(now, |queue, eqe| checker.check_event(queue, eqe));
            }
        }
        if sent.iter().all(|n| *n == EACH) {
            break;
        }
    }
    // Only signals, and ticks at the requested times, yield the rest: queues are not read without them.
    for _ in 0..1000 {
        clock += 200_000;
        let now = Time::from_nanos(clock);
        interrupts.tick(now);
        let _ = interrupts.poll(now, |queue, eqe| checker.check_event(queue, eqe));
        for signal in board.signals() {
            let handle = |queue, eqe| checker.check_event(queue, eqe);
            let _ = interrupts.service(signal, now, handle).unwrap();
        }
    }
    checker.assert_complete(EACH);
    assert_eq!(interrupts.down(), None);
}

#[test]
fn seeded_schedules_lose_no_event() {
    for seed in 0..5000 {
        let run = std::panic::catch_unwind(|| schedule(seed));
        assert!(run.is_ok(), "seed {seed}");
    }
}

/// Producers, two drivers, a clock and a disturbing thread, each a thread of its own.
#[test]
fn concurrent_drivers_lose_no_event() {
    const EACH: u32 = 20_000;
    let (interrupts, board) = small(Arrangement::AllQueuesProcessorVectors, Scheme::ByProcessor);
    let checker = Mutex::new(Checker::default());
    let clock = AtomicU32::new(0);
    let now = || Time::from_nanos(u64::from(clock.fetch_add(1, Ordering::Relaxed)));
    let (running, over) = (AtomicU32::new(PRODUCERS), AtomicBool::new(false));
    let drive = || {
        loop {
            // Loaded first: what was raised before it is served after it.
            let last = over.load(Ordering::Acquire);
            interrupts.tick(now());
            let handle = |queue, eqe| checker.lock().check_event(queue, eqe);
            let mut served = interrupts.poll(now(), handle).events;
            for signal in board.signals() {
                served += 1;
                let _ = interrupts.service(signal, now(), handle).unwrap();
            }
            if served == 0 {
                if last && checker.lock().seen.len() as u32 == EACH * PRODUCERS {
                    return;
                }
                // The time advances for signals that are held.
                clock.fetch_add(1_000, Ordering::Relaxed);
                std::thread::yield_now();
            }
        }
    };
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    std::thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let (interrupts, running, now) = (&interrupts, &running, &now);
            scope.spawn(move || {
                for number in 0..EACH {
                    let at = origin(interrupts, producer);
                    let _ = interrupts
                        .raise(event(producer, number), at, now())
                        .unwrap();
                }
                running.fetch_sub(1, Ordering::Release);
            });
        }
        scope.spawn(|| {
            let mut dice = Rng(7);
            while running.load(Ordering::Acquire) > 0 {
                reconfigure_randomly(&interrupts, &mut dice, now());
            }
            over.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            while !over.load(Ordering::Acquire)
                || checker.lock().seen.len() as u32 != EACH * PRODUCERS
            {
                // A missing event would leave the drivers waiting for ever.
                if std::time::Instant::now() > deadline {
                    let seen = checker.lock().seen.len();
                    eprintln!("{seen} of {} events came", EACH * PRODUCERS);
                    std::process::abort();
                }
                std::thread::yield_now();
            }
        });
        scope.spawn(drive);
        drive();
    });
    checker.lock().assert_complete(EACH);
    assert_eq!(interrupts.down(), None);
}
