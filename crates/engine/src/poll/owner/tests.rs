//! Tests of the ownership of a group: the table as text, what holds in every transition, and models of threads at the word (`--cfg loom`).
//! A state with more than two sleeping threads behaves as one with two, so counts up to two are enough.

use super::*;

#[cfg(not(loom))]
mod table {
    use super::*;

    const EVENTS: [Event; 11] = [
        Event::Borrowed(Polling::Queue),
        Event::Borrowed(Polling::Reply),
        Event::Armed,
        Event::SleepBegins,
        Event::SleepEnds,
        Event::Expired(Judgement::Present),
        Event::Expired(Judgement::Busy),
        Event::Expired(Judgement::Away),
        Event::Expired(Judgement::Bulk),
        Event::Ready,
        Event::Retired,
    ];

    /// Every state, with at most two sleeping threads.
    fn states() -> Vec<Owner> {
        let mut all: Vec<Owner> = [false, true].map(|timer| Owner::Shard { timer }).into();
        for by in [Polling::Queue, Polling::Reply] {
            let sleep = [
                Sleep::None,
                Sleep::Awaited,
                Sleep::Asleep(1),
                Sleep::Asleep(2),
            ];
            all.extend(sleep.map(|sleep| Owner::PollingThread(by, sleep)));
        }
        for n in [1, 2] {
            let timer = [SleepTimer::Unset, SleepTimer::Set, SleepTimer::Renewed];
            all.extend(timer.map(|timer| Owner::SleepingThread(n, timer)));
        }
        all.push(Owner::AwaitedThread);
        all.extend([0, 1, 2].map(Owner::Retired));
        all
    }

    /// Calls `check` with every transition, except the end of a sleep in which no thread sleeps.
    fn for_each_transition(check: impl Fn(Owner, Event, Owner, &[Action])) {
        for from in states() {
            for event in EVENTS {
                if event != Event::SleepEnds || from.sleepers() > 0 {
                    let (to, actions) = from.next(event);
                    check(from, event, to, actions);
                }
            }
        }
    }

    #[test]
    fn table_matches_snapshot() {
        let mut out = String::new();
        for from in states() {
            for event in EVENTS {
                let (to, actions) = from.next(event);
                let to = if to == from {
                    "-".into()
                } else {
                    format!("{to:?}")
                };
                let (from, event) = (format!("{from:?}"), format!("{event:?}"));
                let actions: Vec<String> = actions.iter().map(|one| format!("{one:?}")).collect();
                let actions = actions.join(", ");
                let line = format!("{from:<31} {event:<16} -> {to:<31} {actions}");
                out += line.trim_end();
                out += "\n";
            }
        }
        insta::assert_snapshot!(out);
    }

    #[test]
    fn packed_word_is_the_state() {
        for owner in states() {
            assert_eq!(Owner::unpack(owner.pack()), owner);
            assert_eq!(OwnerCell::new(owner).is_lent(), owner.is_lent());
        }
    }

    #[test]
    fn some_thread_or_timer_always_serves() {
        for_each_transition(|from, event, to, actions| {
            let arms = actions.contains(&Action::ArmPoller);
            match to {
                Owner::Shard { .. } => {
                    let reported = event == Event::Ready;
                    let armed = matches!(from, Owner::Shard { .. }) && !reported;
                    assert!(armed || arms, "{from:?} {event:?}");
                }
                Owner::Retired(_) => assert!(!arms),
                _ => {
                    assert!(to.sleepers() > 0 || to.is_timer_set(), "{to:?}");
                    assert!(!arms, "a thread serves: {from:?} {event:?}");
                }
            }
        });
    }

    #[test]
    fn timer_bit_is_the_timer() {
        for_each_transition(|from, event, to, actions| {
            let runs = from.is_timer_set() && !matches!(event, Event::Expired(_));
            let sets = actions.contains(&Action::SetTimer);
            assert!(!(runs && sets), "two timers: {from:?} {event:?}");
            let retired = matches!(to, Owner::Retired(_));
            assert!(
                retired || to.is_timer_set() == (runs || sets),
                "{from:?} {event:?}"
            );
        });
    }

    #[test]
    fn udp_sockets_follow_every_loan() {
        for_each_transition(|from, event, to, actions| {
            let retired = matches!(to, Owner::Retired(_));
            let changes = from.is_lent() != to.is_lent() && !retired;
            let applies = actions.contains(&Action::ApplyLent);
            assert_eq!(changes, applies, "{from:?} {event:?}");
        });
    }

    #[test]
    fn deferred_acknowledgements_outlast_no_borrower() {
        for_each_transition(|from, event, to, actions| {
            let borrowed = matches!(from, Owner::PollingThread(..) | Owner::AwaitedThread);
            let polls_no_longer = from.is_lent() && !to.is_lent();
            let returned = matches!(to, Owner::Shard { .. }) && borrowed;
            let retired = matches!(to, Owner::Retired(_));
            let sends = actions
                .iter()
                .any(|one| matches!(one, Action::SendDeferred { .. }));
            assert_eq!(
                sends,
                (polls_no_longer || returned) && !retired,
                "{from:?} {event:?}"
            );
        });
    }

    #[test]
    fn shard_watches_no_channel_of_sleepers() {
        for_each_transition(|from, event, to, actions| {
            let slept = from.sleep() != Sleep::None;
            let ends = slept && matches!(to, Owner::Shard { .. });
            let unwatches = actions.contains(&Action::UnwatchChannel);
            assert!(!ends || unwatches, "{from:?} {event:?}");
            assert!(!unwatches || to.sleepers() == 0, "{from:?} {event:?}");
        });
    }

    #[test]
    fn only_sleeps_change_the_sleeper_count() {
        for_each_transition(|from, event, to, _| {
            let expected = match event {
                Event::SleepBegins => from.sleepers() + 1,
                Event::SleepEnds => from.sleepers() - 1,
                _ => from.sleepers(),
            };
            assert_eq!(to.sleepers(), expected, "{from:?} {event:?}");
        });
    }

    #[test]
    fn retired_group_stays_retired() {
        for_each_transition(|from, event, to, actions| {
            let retired = |owner| matches!(owner, Owner::Retired(_));
            assert_eq!(retired(to), retired(from) || event == Event::Retired);
            assert!(!retired(from) || actions.is_empty(), "{from:?} {event:?}");
        });
    }

    #[test]
    fn unchanged_state_is_not_written() {
        let cell = OwnerCell::new(Owner::AwaitedThread);
        assert_eq!(cell.apply(Event::Armed), &[]);
        assert_eq!(cell.load(), Owner::AwaitedThread);
        assert_eq!(cell.apply(Event::SleepBegins), &[]);
        assert_eq!(cell.load(), Owner::SleepingThread(1, SleepTimer::Renewed));
    }
}

#[cfg(loom)]
mod model {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;
    use loom::thread;

    use super::*;

    type Table = fn(Owner, Event) -> (Owner, &'static [Action]);

    /// A group with one member: what the kernel, the shard and the timekeeper know of it. Its flags change by exchanges only, as the kernel and
    /// the shard change them under locks.
    struct World {
        owner: OwnerCell,
        table: Table,
        /// The shard's poller is armed.
        armed: AtomicBool,
        /// Input waits in the socket.
        input: AtomicBool,
        /// The timekeeper has a timer.
        timer: AtomicBool,
    }

    impl World {
        fn new(owner: Owner, armed: bool, table: Table) -> Arc<World> {
            Arc::new(World {
                owner: OwnerCell::new(owner),
                table,
                armed: AtomicBool::new(armed),
                input: AtomicBool::new(false),
                timer: AtomicBool::new(owner.is_timer_set()),
            })
        }

        fn apply(&self, event: Event) {
            for action in self.owner.apply_by(event, self.table) {
                match action {
                    Action::Serve => self.serve(),
                    Action::ArmPoller => {
                        self.armed.swap(true, Ordering::SeqCst);
                    }
                    Action::SetTimer => {
                        let before = self.timer.swap(true, Ordering::SeqCst);
                        assert!(!before, "two timers");
                    }
                    Action::UnwatchChannel
                    | Action::ApplyLent
                    | Action::SendDeferred { .. }
                    | Action::Forget => {}
                }
            }
        }

        /// Reads the socket.
        fn serve(&self) {
            self.input.swap(false, Ordering::SeqCst);
        }

        /// The peer sends.
        fn arrive(&self) {
            self.input.swap(true, Ordering::SeqCst);
        }

        /// The timekeeper expires the timer, if it is set; true if it was.
        fn expire(&self, judgement: Judgement) -> bool {
            let expires = self.timer.swap(false, Ordering::SeqCst);
            if expires {
                self.apply(Event::Expired(judgement));
            }
            expires
        }

        /// The shard takes what its poller reports; true if it reported something.
        fn report(&self) -> bool {
            let reports =
                self.input.load(Ordering::SeqCst) && self.armed.swap(false, Ordering::SeqCst);
            if reports {
                self.apply(Event::Ready);
            }
            reports
        }

        /// A thread sleeps in the poller, serves what is there, and wakes.
        fn sleep(&self) {
            self.apply(Event::SleepBegins);
            self.serve();
            self.apply(Event::SleepEnds);
        }

        /// All threads have left and do not come back: shard and timekeeper alone must serve this input and the next.
        fn settle(&self) {
            self.serve_rest();
            self.arrive();
            self.serve_rest();
        }

        fn serve_rest(&self) {
            while self.report() || self.expire(Judgement::Away) {}
            let owner = self.owner.load();
            assert!(!self.input.load(Ordering::SeqCst), "input waits: {owner:?}");
            let timer = self.timer.load(Ordering::SeqCst);
            assert_eq!(owner.is_timer_set(), timer, "{owner:?}");
        }
    }

    /// Runs two threads in the group, beside a peer that sends, until no thread is left.
    fn two(owner: Owner, armed: bool, table: Table, first: fn(&World), second: fn(&World)) {
        loom::model(move || {
            let world = World::new(owner, armed, table);
            let threads = [first, second].map(|work| {
                let world = world.clone();
                thread::spawn(move || work(&world))
            });
            world.arrive();
            for thread in threads {
                thread.join().unwrap();
            }
            world.settle();
        });
    }

    /// A thread wakes while the timer expires: one of them sets the timer again.
    fn wake_and_expire(table: Table) {
        for timer in [SleepTimer::Set, SleepTimer::Renewed] {
            two(
                Owner::SleepingThread(1, timer),
                false,
                table,
                |world| world.apply(Event::SleepEnds),
                |world| {
                    world.expire(Judgement::Present);
                },
            );
        }
    }

    #[test]
    fn waking_thread_and_timer_lose_no_input() {
        wake_and_expire(Owner::next);
    }

    /// The thread wakes and does not set the timer.
    #[test]
    #[should_panic(expected = "input waits")]
    fn model_finds_a_missing_timer() {
        wake_and_expire(|owner, event| {
            let (to, actions) = owner.next(event);
            match event {
                Event::SleepEnds => (to, &[]),
                _ => (to, actions),
            }
        });
    }

    /// A thread goes to sleep while the timer judges it away.
    #[test]
    fn sleeping_thread_and_timer_lose_no_input() {
        two(
            Owner::AwaitedThread,
            false,
            Owner::next,
            World::sleep,
            |world| {
                world.expire(Judgement::Away);
            },
        );
    }

    /// A thread arms the queue while the timer judges it away.
    fn arm_and_expire(table: Table) {
        for sleep in [Sleep::None, Sleep::Awaited] {
            let lent = Owner::PollingThread(Polling::Queue, sleep);
            two(
                lent,
                false,
                table,
                |world| world.apply(Event::Armed),
                |world| {
                    world.expire(Judgement::Away);
                },
            );
        }
    }

    #[test]
    fn arming_thread_and_timer_lose_no_input() {
        arm_and_expire(Owner::next);
    }

    /// Arming does not arm the shard's poller.
    #[test]
    #[should_panic(expected = "input waits")]
    fn model_finds_an_unarmed_poller() {
        arm_and_expire(|owner, event| {
            let (to, actions) = owner.next(event);
            match event {
                Event::Armed => (to, &[]),
                _ => (to, actions),
            }
        });
    }

    /// A polling thread takes the group from the shard and serves it once, while another one arms the queue.
    #[test]
    fn polling_and_arming_thread_lose_no_input() {
        two(
            Owner::Shard { timer: false },
            true,
            Owner::next,
            |world| {
                world.apply(Event::Borrowed(Polling::Queue));
                world.serve();
            },
            |world| world.apply(Event::Armed),
        );
    }

    /// The shard takes a turn while a polling thread borrows the group and arms the queue again.
    #[test]
    fn shard_and_polling_thread_lose_no_input() {
        two(
            Owner::Shard { timer: false },
            true,
            Owner::next,
            |world| {
                world.apply(Event::Borrowed(Polling::Queue));
                world.apply(Event::Armed);
            },
            |world| {
                world.report();
                world.report();
            },
        );
    }

    /// Two threads borrow the group at once, and one timer is set.
    #[test]
    fn two_polling_threads_set_one_timer() {
        two(
            Owner::Shard { timer: false },
            true,
            Owner::next,
            |world| world.apply(Event::Borrowed(Polling::Queue)),
            |world| world.apply(Event::Borrowed(Polling::Reply)),
        );
    }

    /// Two threads sleep with the group and do not come back, and the timer expires after one of them woke.
    #[test]
    fn two_sleepers_lose_no_input() {
        for from in [Owner::Shard { timer: false }, Owner::AwaitedThread] {
            let armed = matches!(from, Owner::Shard { .. });
            two(from, armed, Owner::next, World::sleep, |world| {
                world.sleep();
                world.expire(Judgement::Away);
            });
        }
    }

    /// A thread wakes while the queue is destroyed.
    #[test]
    fn retired_group_sets_no_timer() {
        loom::model(|| {
            let world = World::new(
                Owner::SleepingThread(1, SleepTimer::Unset),
                false,
                Owner::next,
            );
            let waking = {
                let world = world.clone();
                thread::spawn(move || world.apply(Event::SleepEnds))
            };
            world.apply(Event::Retired);
            waking.join().unwrap();
            assert_eq!(world.owner.load(), Owner::Retired(0));
        });
    }
}
