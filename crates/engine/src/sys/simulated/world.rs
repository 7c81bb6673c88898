//! The state of the simulated system: descriptors and what they refer to, the virtual time, random numbers, and waiting threads.
//! It is reached through [`with`], which never suspends the calling thread, so every change is atomic.

use core::cell::RefCell;
use core::net::SocketAddr;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::RawFd;

use rustix::io::Errno;
use shuttle::thread::Thread;

use crate::sys::Interest;

std::thread_local! {
    // The real thread-local storage: all simulated threads share it.
    static WORLD: RefCell<World> = RefCell::new(World::new(0));
}

/// Calls `act` with the state. It must not call into shuttle.
pub(in crate::sys) fn with<R>(act: impl FnOnce(&mut World) -> R) -> R {
    WORLD.with_borrow_mut(act)
}

/// The same while this thread of the real system may be ending.
pub(in crate::sys) fn try_with(act: impl FnOnce(&mut World)) {
    let act = |world: &RefCell<World>| world.try_borrow_mut().map(|mut world| act(&mut world));
    // Without a state nothing is left to change.
    let _ = WORLD.try_with(act);
}

/// Names what one or more descriptors refer to.
pub(in crate::sys) type Id = u64;

/// The simulated system.
pub(in crate::sys) struct World {
    seed: u64,
    random: u64,
    /// Virtual time, in nanoseconds.
    pub(super) now: u64,
    /// How much of it a scheduling decision takes.
    pub(super) step: u64,
    next_id: Id,
    fds: BTreeMap<RawFd, Id>,
    pub(super) objects: BTreeMap<Id, Entry>,
    pub(super) waiting: Waiting,
    /// The next port that the system chooses.
    pub(super) next_port: u16,
    preemptions: u64,
    /// A thread that is to be paused, and after how many of its steps.
    pause_request: Option<(shuttle::scheduler::TaskId, u64)>,
}

/// Whether the wait of a thread is over.
type Condition = Box<dyn Fn(&World) -> bool>;

/// Waiting threads, and the clock.
#[derive(Default)]
pub(super) struct Waiting {
    pub(super) next: u64,
    pub(super) threads: Vec<Waiter>,
    /// The task of the clock thread, while it exists.
    pub(super) clock: Option<shuttle::scheduler::TaskId>,
    pub(super) stopped: bool,
}

/// A waiting thread.
pub(super) struct Waiter {
    pub(super) number: u64,
    /// The call that waits, for the report of a deadlock.
    pub(super) call: &'static str,
    pub(super) condition: Condition,
    pub(super) deadline: Option<u64>,
    pub(super) thread: Thread,
}

/// An object and the number of descriptors that refer to it.
pub(super) struct Entry {
    pub(super) object: Object,
    descriptors: u32,
}

/// What a descriptor refers to.
pub(in crate::sys) enum Object {
    Event(Event),
    Stream(Stream),
    Listener(ListeningSocket),
    Datagram(DatagramQueue),
    Poller(Vec<Watch>),
}

/// An eventfd.
#[derive(Default)]
pub(in crate::sys) struct Event {
    pub(in crate::sys) count: u64,
}

/// One end of a TCP connection or socket pair.
#[derive(Debug)]
pub(in crate::sys) struct Stream {
    /// Both are none for an end of a pair.
    pub(in crate::sys) local: Option<SocketAddr>,
    pub(in crate::sys) remote: Option<SocketAddr>,
    /// The other end, while it is open.
    pub(super) peer: Option<Id>,
    pub(super) incoming: VecDeque<u8>,
    /// Room for received bytes.
    pub(super) capacity: usize,
    pub(in crate::sys) low_water: usize,
    pub(super) fin_received: bool,
    pub(super) fin_sent: bool,
    /// The connection broke: reading returns what arrived before, then this.
    pub(super) broken: bool,
    /// What `SO_ERROR` returns once.
    pub(in crate::sys) error: Option<Errno>,
    /// Closing resets the connection.
    pub(in crate::sys) abortive: bool,
}

/// A bound TCP socket.
#[derive(Debug)]
pub(in crate::sys) struct ListeningSocket {
    pub(super) at: SocketAddr,
    pub(in crate::sys) listening: bool,
    /// Established connections that were not accepted yet.
    pub(super) backlog: VecDeque<Id>,
}

/// A UDP socket.
pub(in crate::sys) struct DatagramQueue {
    pub(super) at: SocketAddr,
    pub(super) received: VecDeque<(Vec<u8>, SocketAddr)>,
}

/// A descriptor that a poller watches.
#[derive(Debug)]
pub(in crate::sys) struct Watch {
    pub(super) fd: RawFd,
    pub(super) object: Id,
    pub(super) token: u64,
    pub(super) interest: Interest,
    pub(super) armed: bool,
}

/// Readiness of an object.
#[derive(Clone, Copy, Default)]
pub(in crate::sys) struct State {
    pub(in crate::sys) readable: bool,
    pub(in crate::sys) writable: bool,
    pub(in crate::sys) hangup: bool,
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        let mut world = World {
            seed,
            random: seed ^ 0x9e37_79b9_7f4a_7c15,
            // Not zero, which some counters use for "never".
            now: 1_000_000_000,
            step: 0,
            next_id: 0,
            fds: BTreeMap::new(),
            objects: BTreeMap::new(),
            waiting: Waiting::default(),
            next_port: 40_000,
            preemptions: 0,
            pause_request: None,
        };
        world.step = 1 << world.below(11);
        world
    }

    /// Replaces the state by that of a new run.
    pub(super) fn begin(seed: u64) {
        with(|world| *world = World::new(seed));
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// The virtual time.
    pub(in crate::sys) fn now(&self) -> u64 {
        self.now
    }

    /// Preemptions so far: the number grows at random.
    pub(in crate::sys) fn preemptions(&mut self) -> u64 {
        self.preemptions += self.below(2);
        self.preemptions
    }

    /// The thread is paused after this many of its steps, as if it lost its processor then.
    pub(super) fn request_pause(&mut self, thread: shuttle::scheduler::TaskId, steps: u64) {
        self.pause_request = Some((thread, steps));
    }

    /// This thread makes a step: whether a pause that was requested is due.
    pub(super) fn is_pause_due(&mut self, current: Option<shuttle::scheduler::TaskId>) -> bool {
        match &mut self.pause_request {
            Some((thread, steps)) if Some(*thread) == current => {
                if let Some(left) = steps.checked_sub(1) {
                    *steps = left;
                    return false;
                }
                self.pause_request = None;
                true
            }
            _ => false,
        }
    }

    /// The next random number (SplitMix64).
    pub(in crate::sys) fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A random number below `limit`, which is not zero.
    pub(in crate::sys) fn below(&mut self, limit: u64) -> u64 {
        self.random() % limit
    }

    pub(super) fn add(&mut self, object: Object) -> Id {
        self.next_id += 1;
        let entry = Entry {
            object,
            descriptors: 0,
        };
        self.objects.insert(self.next_id, entry);
        self.next_id
    }

    /// A descriptor refers to an object from now on.
    pub(super) fn open(&mut self, fd: RawFd, id: Id) {
        self.fds.insert(fd, id);
        if let Some(entry) = self.objects.get_mut(&id) {
            entry.descriptors += 1;
        }
    }

    /// The object of a descriptor.
    pub(in crate::sys) fn id(&self, fd: RawFd) -> Option<Id> {
        self.fds.get(&fd).copied()
    }

    /// A descriptor was closed; with the last one the object ends.
    pub(super) fn close(&mut self, fd: RawFd) {
        let Some(id) = self.fds.remove(&fd) else {
            return;
        };
        let Some(entry) = self.objects.get_mut(&id) else {
            return;
        };
        entry.descriptors -= 1;
        if entry.descriptors == 0 {
            self.end(id);
        }
    }

    fn end(&mut self, id: Id) {
        let Some(Entry { object, .. }) = self.objects.remove(&id) else {
            return;
        };
        for entry in self.objects.values_mut() {
            if let Object::Poller(watches) = &mut entry.object {
                watches.retain(|watch| watch.object != id);
            }
        }
        match object {
            Object::Stream(stream) => self.end_stream(&stream),
            Object::Listener(listener) => {
                for pending in listener.backlog {
                    self.end(pending);
                }
            }
            _ => {}
        }
    }

    pub(in crate::sys) fn event(&mut self, fd: RawFd) -> Option<&mut Event> {
        let id = self.id(fd)?;
        match &mut self.objects.get_mut(&id)?.object {
            Object::Event(event) => Some(event),
            _ => None,
        }
    }

    /// Every object, for the report of a deadlock.
    pub(super) fn describe(&self) -> String {
        let line = |(id, entry): (&Id, &Entry)| match &entry.object {
            Object::Event(event) => format!("{id}: event, {} rings\n", event.count),
            Object::Stream(stream) => format!("{id}: {stream:?}\n"),
            Object::Listener(listener) => format!("{id}: {listener:?}\n"),
            Object::Datagram(socket) => format!("{id}: datagram socket at {}\n", socket.at),
            Object::Poller(watches) => format!("{id}: poller of {watches:?}\n"),
        };
        self.objects.iter().map(line).collect()
    }

    /// The readiness of a descriptor; none if it is closed.
    pub(in crate::sys) fn state(&self, fd: RawFd) -> State {
        self.id(fd)
            .map(|id| self.object_state(id))
            .unwrap_or_default()
    }

    pub(super) fn object_state(&self, id: Id) -> State {
        let readable = |readable| State {
            readable,
            ..State::default()
        };
        match self.objects.get(&id).map(|entry| &entry.object) {
            Some(Object::Event(event)) => readable(event.count > 0),
            Some(Object::Listener(listener)) => readable(!listener.backlog.is_empty()),
            Some(Object::Poller(watches)) => readable(
                watches
                    .iter()
                    .any(|watch| self.watch_state(watch).is_some()),
            ),
            Some(Object::Datagram(socket)) => State {
                readable: !socket.received.is_empty(),
                writable: true,
                hangup: false,
            },
            Some(Object::Stream(stream)) => self.stream_state(stream),
            None => State::default(),
        }
    }
}
