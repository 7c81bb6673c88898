//! Tests of handler threads alone: one that fails to start is not kept, no signal is accepted that would not be served, and the
//! order of tasks on a saturated processor.

use super::*;

fn no_engine() -> Weak<dyn HandlerHost> {
    Weak::<crate::core::Core>::new()
}

fn first() -> u16 {
    sys::processors().unwrap()[0]
}

#[test]
fn thread_that_fails_to_start_is_not_kept() {
    let (all_threads, core) = (HandlerThreads::default(), no_engine());
    for processor in 4000..4100 {
        let refused = all_threads.index_for(&core, &[processor], Class::Normal);
        assert!(
            matches!(refused, Err(Error::NoProcessor { processor: p }) if p == processor),
            "{refused:?}"
        );
    }
    assert!(all_threads.groups.lock().all.is_empty());
    let at = |class| all_threads.index_for(&core, &[first()], class).unwrap();
    assert_eq!((at(Class::Bulk), at(Class::Latency)), (0, 0));
    all_threads.stop(Duration::from_secs(1));
}

/// A thread that found the group a moment before it ended must serve the signal itself.
#[test]
fn stopped_threads_take_no_signal() {
    let (all_threads, core) = (HandlerThreads::default(), no_engine());
    let at = all_threads
        .index_for(&core, &[first()], Class::Normal)
        .unwrap();
    let group = all_threads.get(at).unwrap();
    assert!(group.queue_task(Task::Signal(Signal::Line), Class::Normal));
    assert!(
        group.queue_task(Task::Signal(Signal::Line), Class::Bulk),
        "any thread does"
    );
    all_threads.stop(Duration::from_secs(1));
    assert!(!group.queue_task(Task::Signal(Signal::Line), Class::Normal));
    let closed = all_threads.index_for(&core, &[first()], Class::Normal);
    assert!(matches!(closed, Err(Error::Closed)), "{closed:?}");
}

/// One processor, without threads and clocks: the queues and policies of a group, and the rule of the kernel that a thread runs while no
/// thread of a better policy is runnable. A callback runs to its end, which is the worst case: the kernel preempts it.
struct Processor {
    group: HandlerThreadGroup,
    /// Callbacks that have run, by class.
    ran: [u64; Class::ALL.len()],
}

impl Processor {
    fn new() -> Processor {
        let threads = [(); Class::ALL.len()].map(|()| {
            let idle = ClassThread {
                signal_queue: Arc::default(),
                thread: Mutex::new(None),
            };
            let slot = OnceLock::new();
            slot.get_or_init(|| idle);
            slot
        });
        let group = HandlerThreadGroup {
            engine: Weak::<crate::core::Core>::new(),
            processors: vec![0],
            threads,
        };
        let ran = [0; Class::ALL.len()];
        Processor { group, ran }
    }

    /// A completion of this queue is raised for a handler of this class.
    fn raise(&self, cq: u32, class: Class) {
        let (reason, way) = (Reason::Next, HandlerRoute::unpack(1));
        let task = Task::Completion { cq, reason, way };
        assert!(self.group.queue_task(task, class));
    }

    /// The thread that the kernel prefers runs its next callback; returns its class and completion queue.
    fn step(&mut self) -> Option<(Class, u32)> {
        let rank = |class: &Class| match policy_of(*class) {
            SchedPolicy::Normal => 0,
            SchedPolicy::Batch => 1,
            SchedPolicy::Idle => 2,
        };
        let mut order = Class::ALL;
        order.sort_by_key(rank);
        for class in order {
            let thread = self.group.threads[class as usize].get().unwrap();
            let next = thread.signal_queue.queue.lock().next();
            if let Next::Run(Task::Completion { cq, .. }) = next {
                self.ran[class as usize] += 1;
                return Some((class, cq));
            }
        }
        None
    }

    /// Callbacks that run after this queue's completion was raised and before its own.
    fn callbacks_before(&mut self, wanted: u32) -> u64 {
        for before in 0.. {
            match self.step() {
                Some((_, cq)) if cq == wanted => return before,
                Some(_) => {}
                None => break,
            }
        }
        panic!("completion of queue {wanted} was lost");
    }
}

const BACKLOG: u64 = 10_000;

/// A processor with this many bulk callbacks waiting, of as many queues.
fn saturated() -> Processor {
    let processor = Processor::new();
    for cq in 0..BACKLOG as u32 {
        processor.raise(cq, Class::Bulk);
    }
    processor
}

/// N6: behind a bulk backlog that grows, a latency event waits for as many callbacks as on an idle processor.
#[test]
fn latency_event_overtakes_the_bulk_backlog() {
    const EVENT: u32 = u32::MAX;
    let mut idle = Processor::new();
    idle.raise(EVENT, Class::Latency);
    assert_eq!(idle.callbacks_before(EVENT), 0);
    let mut busy = saturated();
    for round in 0..1000 {
        // Bulk goes on, and more of it arrives than is done.
        let (class, _) = busy.step().unwrap();
        assert_eq!(class, Class::Bulk, "round {round}");
        busy.raise(round, Class::Bulk);
        busy.raise(round, Class::Bulk);
        busy.raise(EVENT, Class::Latency);
        assert_eq!(busy.callbacks_before(EVENT), 0, "round {round}");
    }
    assert_eq!(busy.ran, [1000, 0, 1000]);
}

/// The same events in one class wait for everything before them: the test above fails without classes.
#[test]
fn events_of_one_class_wait_their_turn() {
    const EVENT: u32 = u32::MAX;
    let mut busy = saturated();
    busy.raise(EVENT, Class::Bulk);
    assert_eq!(busy.callbacks_before(EVENT), BACKLOG);
}

/// Latency events that arrive together wait for each other only, in order; then normal ones, then bulk.
#[test]
fn classes_are_served_best_first_in_order() {
    let mut busy = saturated();
    for cq in 0..10 {
        for class in [Class::Bulk, Class::Normal, Class::Latency] {
            busy.raise(20_000 + cq, class);
        }
    }
    for class in [Class::Latency, Class::Normal] {
        for cq in 0..10 {
            assert_eq!(busy.step(), Some((class, 20_000 + cq)));
        }
    }
    for cq in 0..BACKLOG as u32 {
        assert_eq!(busy.step(), Some((Class::Bulk, cq)));
    }
}

/// A signal stands for all entries of its vector, so it is queued once, in its class.
#[test]
fn repeated_signals_queue_once_per_class() {
    let busy = saturated();
    let signal = Task::Signal(Signal::Vector(7));
    for _ in 0..100 {
        assert!(busy.group.queue_task(signal, Class::Latency));
    }
    let latency = busy.group.threads[Class::Latency as usize].get().unwrap();
    let mut pending = latency.signal_queue.queue.lock();
    assert_eq!(pending.next(), Next::Run(signal));
    assert_eq!(pending.next(), Next::Wait);
}
