//! The part of an identifier that is shared with its queued events and with the adapter's callbacks: where its events go.
//! No event is added for an identifier that is being destroyed; a connection is reported as ended once, and after it was reported as
//! established. The identifier's address is not dereferenced here.

use core::ffi::{c_int, c_void};
use core::net::IpAddr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use verbena::{Question, Request};

use super::timewait::Timewait;
use crate::abi::*;
use crate::mailbox::{Acks, Mailbox};

/// The parameters of an event.
pub(crate) enum Param {
    /// Of a connection.
    Connection {
        private_data: Vec<u8>,
        /// Reads and atomics that the peer requests of us, and that it serves.
        depths: (u8, u8),
    },
    /// The destination of datagrams.
    Datagram {
        private_data: Vec<u8>,
        address: ibv_ah_attr,
        number: u32,
        key: u32,
    },
    /// The destination of datagrams to a group.
    Group {
        ip: IpAddr,
        /// The context argument of the join.
        context: Given,
        address: ibv_ah_attr,
        number: u32,
        key: u32,
    },
}

/// A pointer that the program passed and gets back; it is not dereferenced.
#[derive(Clone, Copy)]
pub(crate) struct Given(pub(crate) *mut c_void);

/// A received request.
pub(crate) enum Comer {
    /// For a connection; counts as waiting until its event is taken.
    Request(Request, Waits),
    /// For datagrams.
    Question(Question),
}

/// Counts one request as waiting, until it is dropped.
pub(crate) struct Waits(Arc<AtomicUsize>);

impl Waits {
    /// None if `most` wait already.
    pub(crate) fn new(waiting: &Arc<AtomicUsize>, most: usize) -> Option<Waits> {
        let more = |n: usize| (n < most).then_some(n + 1);
        let free = waiting.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more);
        free.ok().map(|_| Waits(waiting.clone()))
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What the program was told of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    /// Nothing yet, or that it failed.
    Nothing,
    /// Nothing yet, but its end was seen: the thread that notices it may be faster than the one that reports the beginning.
    Short,
    /// That it is established.
    Beginning,
    /// That it has ended.
    End,
}

impl Param {
    pub(crate) const NONE: Param = Param::Connection {
        private_data: Vec::new(),
        depths: (0, 0),
    };

    pub(crate) fn said(private_data: Vec<u8>) -> Param {
        Param::Connection {
            private_data,
            depths: (0, 0),
        }
    }
}

/// An event that the program has not taken yet.
pub(crate) struct Event {
    pub(crate) link: Arc<Link>,
    pub(crate) kind: u32,
    pub(crate) status: c_int,
    pub(crate) param: Param,
    /// For a connection request: its identifier is created when the program takes the event.
    pub(crate) request: Option<Comer>,
}

// SAFETY: integers, bytes and handles that may be used by any thread; the C struct in it has no pointers, and the pointer of `Given` is not
// dereferenced.
unsafe impl Send for Event {}

/// The events of a channel.
pub(crate) type Events = Mailbox<Event>;

/// The shared part of an identifier.
pub(crate) struct Link {
    id: Address,
    /// Changed when the identifier moves to another channel.
    events: Mutex<Arc<Events>>,
    gone: AtomicBool,
    /// Registered to be notified when the device fails.
    pub(crate) bound: AtomicBool,
    pub(crate) acks: Acks,
    told: Mutex<Told>,
    /// Reports the end of the time wait, if the personality has one.
    after: OnceLock<Arc<Timewait>>,
}

struct Address(*mut rdma_cm_id);

// SAFETY: the pointer is not dereferenced here; it is returned to calls that the program makes.
unsafe impl Send for Address {}
// SAFETY: as for `Send`.
unsafe impl Sync for Address {}

impl Link {
    pub(crate) fn new(id: *mut rdma_cm_id, events: Arc<Events>) -> Arc<Link> {
        Arc::new(Link {
            id: Address(id),
            events: Mutex::new(events),
            gone: AtomicBool::new(false),
            bound: AtomicBool::new(false),
            acks: Acks::default(),
            told: Mutex::new(Told::Nothing),
            after: OnceLock::new(),
        })
    }

    /// The address of the identifier.
    pub(crate) fn id(&self) -> *mut rdma_cm_id {
        self.id.0
    }

    pub(crate) fn events(&self) -> Arc<Events> {
        self.events.lock().clone()
    }

    /// Adds an event.
    pub(crate) fn tell(self: &Arc<Link>, kind: u32, status: c_int, param: Param) {
        self.put(kind, status, param, None);
    }

    pub(crate) fn put(
        self: &Arc<Link>,
        kind: u32,
        status: c_int,
        param: Param,
        request: Option<Comer>,
    ) {
        let event = Event {
            link: self.clone(),
            kind,
            status,
            param,
            request,
        };
        // Under the lock that `migrate` takes: an event must not be added to the channel that the identifier has left.
        let events = self.events.lock();
        events.put_if(event, || !self.gone.load(Ordering::Relaxed));
    }

    /// Reports that the connection is established, and, if it has ended already, its end after that.
    pub(crate) fn established(self: &Arc<Link>, kind: u32, param: Param) {
        let mut told = self.told.lock();
        let over = *told == Told::Short;
        *told = if over { Told::End } else { Told::Beginning };
        // Under the lock: the end must not be reported before the beginning.
        self.tell(kind, 0, param);
        if over {
            self.tell_end();
        }
    }

    /// Makes the end of the connection be followed by the event of the time wait.
    pub(crate) fn lingers(&self, after: &Arc<Timewait>) {
        self.after.get_or_init(|| after.clone());
    }

    fn tell_end(self: &Arc<Link>) {
        self.tell(RDMA_CM_EVENT_DISCONNECTED, 0, Param::NONE);
        if let Some(after) = self.after.get() {
            after.add(self);
        }
    }

    /// Reports the end of the connection; true if that was not reported before.
    pub(crate) fn disconnected(self: &Arc<Link>) -> bool {
        let mut told = self.told.lock();
        match *told {
            Told::Nothing | Told::Short => *told = Told::Short,
            Told::End => {}
            Told::Beginning => {
                *told = Told::End;
                self.tell_end();
                return true;
            }
        }
        false
    }

    /// Moves to another channel, with the events that are queued.
    pub(crate) fn migrate(&self, to: &Arc<Events>) {
        let mut events = self.events.lock();
        if Arc::ptr_eq(&events, to) {
            return;
        }
        let waiting = events.withdraw(|event| core::ptr::eq(&raw const *event.link, self));
        for event in waiting {
            to.put_if(event, || true);
        }
        *events = to.clone();
    }

    /// A group was left: its queued events are removed.
    pub(crate) fn forget_group(&self, left: IpAddr) {
        let events = self.events.lock();
        let waiting = events.withdraw(|event| {
            let of_it = matches!(&event.param, Param::Group { ip, .. } if *ip == left);
            of_it && core::ptr::eq(&raw const *event.link, self)
        });
        drop(events);
        drop(waiting);
    }

    /// The identifier is being destroyed: removes its queued events, and waits until those that the program was given are acknowledged.
    pub(crate) fn close(&self) {
        let events = self.events();
        // Dropped without the lock: dropping a request rejects it, which takes locks of its own.
        let waiting = events.withdraw_and(
            |event| core::ptr::eq(&raw const *event.link, self),
            || self.gone.store(true, Ordering::Relaxed),
        );
        drop(waiting);
        self.acks.wait();
    }
}
