//! The part of an identifier that is shared with its queued events and with the adapter's callbacks: where its events go.
//! No event is added for an identifier that is being destroyed; a connection is reported as ended once, and after it was reported as
//! established. The identifier's address is not dereferenced here.

use core::ffi::{c_int, c_void};
use core::net::IpAddr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use verbena::cm::ConnectRequest;
use verbena::datagram::SidrRequest;

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
        context: UserContext,
        address: ibv_ah_attr,
        number: u32,
        key: u32,
    },
}

/// A pointer that the program passed and gets back; it is not dereferenced.
#[derive(Clone, Copy)]
pub(crate) struct UserContext(pub(crate) *mut c_void);

/// A received request.
pub(crate) enum IncomingRequest {
    /// For a connection; counts as waiting until its event is taken.
    Request(ConnectRequest, BacklogSlot),
    /// For datagrams.
    Sidr(SidrRequest),
}

/// Counts one request as waiting, until it is dropped.
pub(crate) struct BacklogSlot(Arc<AtomicUsize>);

impl BacklogSlot {
    /// None if `most` wait already.
    pub(crate) fn new(waiting: &Arc<AtomicUsize>, most: usize) -> Option<BacklogSlot> {
        let more = |n: usize| (n < most).then_some(n + 1);
        let free = waiting.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more);
        free.ok().map(|_| BacklogSlot(waiting.clone()))
    }
}

impl Drop for BacklogSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What the program was told of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reported {
    /// Nothing yet, or that it failed.
    NotYet,
    /// Nothing yet, but its end was seen: the thread that notices it may be faster than the one that reports the beginning.
    EndedEarly,
    /// That it is established.
    Established,
    /// That it has ended.
    Disconnected,
}

impl Param {
    pub(crate) const NONE: Param = Param::Connection {
        private_data: Vec::new(),
        depths: (0, 0),
    };

    pub(crate) fn with_private_data(private_data: Vec<u8>) -> Param {
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
    pub(crate) request: Option<IncomingRequest>,
}

// SAFETY: integers, bytes and handles that may be used by any thread; the C struct in it has no pointers, and the pointer of `UserContext` is not
// dereferenced.
unsafe impl Send for Event {}

/// The events of a channel.
pub(crate) type Events = Mailbox<Event>;

/// The shared part of an identifier.
pub(crate) struct Link {
    id: IdPtr,
    /// Changed when the identifier moves to another channel.
    events: Mutex<Arc<Events>>,
    closed: AtomicBool,
    /// The program has ended the connection, and the event follows when the peer has confirmed it.
    pub(crate) awaits_peer: AtomicBool,
    /// Registered to be notified when the device fails.
    pub(crate) registered: AtomicBool,
    pub(crate) acks: Acks,
    reported: Mutex<Reported>,
    /// Reports the end of the time wait, if the personality has one.
    timewait: OnceLock<Arc<Timewait>>,
}

struct IdPtr(*mut rdma_cm_id);

// SAFETY: the pointer is not dereferenced here; it is returned to calls that the program makes.
unsafe impl Send for IdPtr {}
// SAFETY: the pointer is written when the link is created; threads that share it only copy it.
unsafe impl Sync for IdPtr {}

impl Link {
    pub(crate) fn new(id: *mut rdma_cm_id, events: Arc<Events>) -> Arc<Link> {
        Arc::new(Link {
            id: IdPtr(id),
            events: Mutex::new(events),
            closed: AtomicBool::new(false),
            awaits_peer: AtomicBool::new(false),
            registered: AtomicBool::new(false),
            acks: Acks::default(),
            reported: Mutex::new(Reported::NotYet),
            timewait: OnceLock::new(),
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
    pub(crate) fn report(self: &Arc<Link>, kind: u32, status: c_int, param: Param) {
        self.queue_event(kind, status, param, None);
    }

    pub(crate) fn queue_event(
        self: &Arc<Link>,
        kind: u32,
        status: c_int,
        param: Param,
        request: Option<IncomingRequest>,
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
        events.put_if(event, || !self.closed.load(Ordering::Relaxed));
    }

    /// Reports that the connection is established, and, if it has ended already, its end after that.
    pub(crate) fn report_established(self: &Arc<Link>, kind: u32, param: Param) {
        let mut reported = self.reported.lock();
        let over = *reported == Reported::EndedEarly;
        *reported = if over {
            Reported::Disconnected
        } else {
            Reported::Established
        };
        // Under the lock: the end must not be reported before the beginning.
        self.report(kind, 0, param);
        if over {
            self.report_end();
        }
    }

    /// Makes the end of the connection be followed by the event of the time wait.
    pub(crate) fn set_timewait(&self, after: &Arc<Timewait>) {
        self.timewait.get_or_init(|| after.clone());
    }

    fn report_end(self: &Arc<Link>) {
        self.report(RDMA_CM_EVENT_DISCONNECTED, 0, Param::NONE);
        if let Some(after) = self.timewait.get() {
            let link = Arc::downgrade(self);
            after.add(Box::new(move || {
                if let Some(link) = link.upgrade() {
                    link.report(RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, Param::NONE);
                }
            }));
        }
    }

    /// Reports the end of the connection; true if that was not reported before.
    pub(crate) fn report_disconnected(self: &Arc<Link>) -> bool {
        let mut reported = self.reported.lock();
        match *reported {
            Reported::NotYet | Reported::EndedEarly => *reported = Reported::EndedEarly,
            Reported::Disconnected => {}
            Reported::Established => {
                *reported = Reported::Disconnected;
                self.report_end();
                return true;
            }
        }
        false
    }

    /// The queue pair is destroyed: if the program has ended the connection, its end is reported now.
    pub(crate) fn report_destroyed(self: &Arc<Link>) {
        if self.awaits_peer.swap(false, Ordering::AcqRel) {
            self.report_disconnected();
        }
    }

    /// Moves to another channel, with the events that are queued.
    pub(crate) fn migrate(&self, to: &Arc<Events>) {
        let mut events = self.events.lock();
        if Arc::ptr_eq(&events, to) {
            return;
        }
        let waiting = events.drain_matching(|event| core::ptr::eq(&raw const *event.link, self));
        for event in waiting {
            to.put_if(event, || true);
        }
        *events = to.clone();
    }

    /// A group was left: its queued events are removed.
    pub(crate) fn remove_group_events(&self, left: IpAddr) {
        let events = self.events.lock();
        let waiting = events.drain_matching(|event| {
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
        let waiting = events.drain_matching_and(
            |event| core::ptr::eq(&raw const *event.link, self),
            || self.closed.store(true, Ordering::Relaxed),
        );
        drop(waiting);
        self.acks.wait();
    }
}
