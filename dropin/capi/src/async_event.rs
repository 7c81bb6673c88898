//! Asynchronous events of one object: they are queued in its context's [`Mailbox`], and the acknowledgements are counted.
//! Once an object is being destroyed, its queued events are removed and no more are added; destroying it waits until the program has
//! acknowledged those that it was given.

pub(crate) mod calls;

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use crate::abi::*;
use crate::identity::PORT;
use crate::log;
use crate::mailbox::{Acks, Mailbox};

/// Events of a context that may be unread. Peers cause them, and many programs never read any.
const MAX_UNREAD: usize = 1 << 16;

/// An event that the program has not read yet.
pub(crate) struct AsyncEvent {
    /// None if the event is about the device or its port.
    source: Option<Arc<AsyncEventSource>>,
    event_type: u32,
}

impl AsyncEvent {
    const DEVICE_FATAL: AsyncEvent = AsyncEvent {
        source: None,
        event_type: IBV_EVENT_DEVICE_FATAL,
    };
}

/// The asynchronous events of a context.
pub(crate) type Events = Mailbox<AsyncEvent>;

/// The events of one object.
pub(crate) struct AsyncEventSource {
    events: Arc<Events>,
    element: Element,
    closed: AtomicBool,
    acks: Acks,
}

/// The object's address, as it appears in events.
struct Element(ibv_async_event__element);

// SAFETY: the pointer in the union is copied into events for the program; this library does not dereference it.
unsafe impl Send for Element {}
// SAFETY: the union is written when it is created and only copied after that.
unsafe impl Sync for Element {}

impl AsyncEventSource {
    pub(crate) fn new(
        events: &Arc<Events>,
        element: ibv_async_event__element,
    ) -> Arc<AsyncEventSource> {
        Arc::new(AsyncEventSource {
            events: events.clone(),
            element: Element(element),
            closed: AtomicBool::new(false),
            acks: Acks::default(),
        })
    }

    /// The address of the object.
    pub(crate) fn subject(&self) -> usize {
        // SAFETY: the union was written as a pointer, whichever object it is.
        unsafe { self.element.0.cq as usize }
    }

    /// Raises an event of the object.
    pub(crate) fn raise(self: &Arc<AsyncEventSource>, event_type: u32) {
        let event = AsyncEvent {
            source: Some(self.clone()),
            event_type,
        };
        // As an adapter whose event queue overflows: the program has to assume that it knows less than all about its objects.
        let lives = || !self.closed.load(Ordering::Relaxed);
        if self
            .events
            .put_within(MAX_UNREAD, event, lives, || AsyncEvent::DEVICE_FATAL)
        {
            log::warn(|| {
                format!("{MAX_UNREAD} asynchronous events are unread: later ones are dropped")
            });
        }
    }

    /// The program has acknowledged one. Takes an own reference: the thread that waits in [`close`](AsyncEventSource::close) may free the object's first.
    pub(crate) fn acknowledged(self: Arc<AsyncEventSource>) {
        self.acks.acknowledged(1);
    }

    /// So many are not waited for when the object is destroyed (`verbena check`).
    pub(crate) fn forgive(&self, count: u64) {
        self.acks.acknowledged(count);
    }

    /// The object is being destroyed: waits until the events that the program was given are acknowledged.
    pub(crate) fn close(&self) {
        self.events.remove(
            |event| {
                event
                    .source
                    .as_ref()
                    .is_some_and(|event_source| core::ptr::eq(&raw const **event_source, self))
            },
            || self.closed.store(true, Ordering::Relaxed),
        );
        self.acks.wait();
    }
}

impl Events {
    /// The device has failed: the context gets `IBV_EVENT_DEVICE_FATAL`, and reads do not wait any more.
    pub(crate) fn fail(&self) {
        self.put_within(
            MAX_UNREAD,
            AsyncEvent::DEVICE_FATAL,
            || true,
            || AsyncEvent::DEVICE_FATAL,
        );
        self.end();
    }

    /// The port has changed.
    pub(crate) fn put_port(&self, event_type: u32) {
        let event = AsyncEvent {
            source: None,
            event_type,
        };
        self.put_within(MAX_UNREAD, event, || true, || AsyncEvent::DEVICE_FATAL);
    }

    /// The next event of a context, as `ibv_get_async_event` returns it.
    pub(crate) fn next(&self) -> Result<ibv_async_event, crate::errno::Errno> {
        let event = self.take(|event| {
            if let Some(event_source) = &event.source {
                event_source.acks.delivered();
            }
        })?;
        Ok(ibv_async_event {
            element: match &event.source {
                Some(event_source) => event_source.element.0,
                None if event.event_type == IBV_EVENT_DEVICE_FATAL => {
                    ibv_async_event__element { port_num: 0 }
                }
                None => ibv_async_event__element {
                    port_num: c_int::from(PORT),
                },
            },
            event_type: event.event_type,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_events_are_bounded() {
        let events = Arc::new(Events::new().unwrap());
        // SAFETY: `fcntl` with `F_SETFL` takes an integer; the mailbox keeps the descriptor open.
        let refused = unsafe { libc::fcntl(events.fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        assert_eq!(refused, 0);
        let element = || ibv_async_event__element { port_num: 0 };
        let (one, other) = (
            AsyncEventSource::new(&events, element()),
            AsyncEventSource::new(&events, element()),
        );
        for _ in 0..MAX_UNREAD + 50 {
            one.raise(IBV_EVENT_QP_FATAL);
        }
        other.raise(IBV_EVENT_QP_FATAL);
        for _ in 0..MAX_UNREAD {
            assert_eq!(events.next().unwrap().event_type, IBV_EVENT_QP_FATAL);
            one.clone().acknowledged();
        }
        assert_eq!(events.next().unwrap().event_type, IBV_EVENT_DEVICE_FATAL);
        assert!(events.next().is_err(), "nothing more");
        // Dropped events and the overflow need no acknowledgement.
        one.close();
        other.raise(IBV_EVENT_QP_FATAL);
        assert_eq!(events.next().unwrap().event_type, IBV_EVENT_QP_FATAL);
        other.clone().acknowledged();
        other.close();
    }
}
