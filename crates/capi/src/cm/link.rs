//! What an identifier shares with its events and with whoever causes them: where to tell, and whether anybody still wants to know.
//! It promises that nothing is told of an identifier that goes, that a connection ends once, and that who destroys an
//! identifier can wait until its events are acknowledged. It refuses to follow the identifier's address: the program does.

use core::ffi::{c_int, c_void};
use core::net::IpAddr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use verbena::{Question, Request};

use super::timewait::Timewait;
use crate::abi::*;
use crate::mailbox::{Acks, Mailbox};

/// What comes with an event.
pub(crate) enum Param {
    /// Nothing but the connection's numbers.
    Connection {
        private_data: Vec<u8>,
        /// Reads and atomics that the peer wants of us, and that it serves.
        depths: (u8, u8),
    },
    /// Where datagrams go.
    Datagram {
        private_data: Vec<u8>,
        address: ibv_ah_attr,
        number: u32,
        key: u32,
    },
    /// Where datagrams for a group go.
    Group {
        ip: IpAddr,
        /// What the program said when it joined.
        context: Given,
        address: ibv_ah_attr,
        number: u32,
        key: u32,
    },
}

/// A word of the program's, which only it follows.
#[derive(Clone, Copy)]
pub(crate) struct Given(pub(crate) *mut c_void);

/// Somebody who came.
pub(crate) enum Comer {
    /// For a connection; it is one of those who wait until its event is taken.
    Request(Request, Waits),
    /// For datagrams.
    Question(Question),
}

/// A place among the requests that may wait; given back when it is dropped.
pub(crate) struct Waits(Arc<AtomicUsize>);

impl Waits {
    /// None if as many wait as may.
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

/// How far a connection is, as its program was told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    /// Nothing yet, or that there is none.
    Nothing,
    /// Nothing yet, but its end was seen already: whoever notices it may be faster than whoever began it.
    Short,
    /// That it is there.
    Beginning,
    /// That it is over.
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

/// An event on its way to a program.
pub(crate) struct Event {
    pub(crate) link: Arc<Link>,
    pub(crate) kind: u32,
    pub(crate) status: c_int,
    pub(crate) param: Param,
    /// Somebody came: an identifier is made for it when the program takes the event.
    pub(crate) request: Option<Comer>,
}

// SAFETY: numbers, bytes and handles that may be used from anywhere; the one struct of C in it has no pointers, and only
// its program follows the one it gave.
unsafe impl Send for Event {}

/// Where events of several identifiers arrive.
pub(crate) type Events = Mailbox<Event>;

/// What an identifier shares.
pub(crate) struct Link {
    id: Address,
    /// Changed when the identifier moves to another channel.
    events: Mutex<Arc<Events>>,
    gone: AtomicBool,
    /// It is told when the device fails.
    pub(crate) bound: AtomicBool,
    pub(crate) acks: Acks,
    told: Mutex<Told>,
    /// Where the time after an end is kept, if it is.
    after: OnceLock<Arc<Timewait>>,
}

struct Address(*mut rdma_cm_id);

// SAFETY: an address that only the program follows.
unsafe impl Send for Address {}
// SAFETY: as above.
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

    /// The identifier, as its program knows it.
    pub(crate) fn id(&self) -> *mut rdma_cm_id {
        self.id.0
    }

    pub(crate) fn events(&self) -> Arc<Events> {
        self.events.lock().clone()
    }

    /// Tells of something.
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
        // Under the lock that moving takes: an event must not arrive where the identifier is no more.
        let events = self.events.lock();
        events.put_if(event, || !self.gone.load(Ordering::Relaxed));
    }

    /// The connection is there; if it is over already, that is told after it.
    pub(crate) fn established(self: &Arc<Link>, kind: u32, param: Param) {
        let mut told = self.told.lock();
        let over = *told == Told::Short;
        *told = if over { Told::End } else { Told::Beginning };
        // Under the lock: the end must not be told before the beginning.
        self.tell(kind, 0, param);
        if over {
            self.tell_end();
        }
    }

    /// An end of this identifier's connection is followed by the end of the time after it.
    pub(crate) fn lingers(&self, after: &Arc<Timewait>) {
        self.after.get_or_init(|| after.clone());
    }

    fn tell_end(self: &Arc<Link>) {
        self.tell(RDMA_CM_EVENT_DISCONNECTED, 0, Param::NONE);
        if let Some(after) = self.after.get() {
            after.add(self);
        }
    }

    /// The connection is over; true if that was news.
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

    /// Events go elsewhere from now on, those that wait included.
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

    /// A group was left: nobody is told of it any more.
    pub(crate) fn forget_group(&self, left: IpAddr) {
        let events = self.events.lock();
        let waiting = events.withdraw(|event| {
            let of_it = matches!(&event.param, Param::Group { ip, .. } if *ip == left);
            of_it && core::ptr::eq(&raw const *event.link, self)
        });
        drop(events);
        drop(waiting);
    }

    /// The identifier goes: what waits is dropped, and what its program was given is acknowledged.
    pub(crate) fn close(&self) {
        let events = self.events();
        // Dropped without the lock: a request that is refused by that has locks of its own.
        let waiting = events.withdraw_and(
            |event| core::ptr::eq(&raw const *event.link, self),
            || self.gone.store(true, Ordering::Relaxed),
        );
        drop(waiting);
        self.acks.wait();
    }
}
