//! Where an object of a program hears of asynchronous events: its context's mailbox, and the books of what it was told.
//! It promises that nothing is told of an object once it is going, and that who destroys it can wait until the program has
//! acknowledged what it was given. It refuses to know what kind of object it is.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use crate::abi::*;
use crate::log;
use crate::mailbox::{Acks, Mailbox};

/// Events of a context that its program may leave unread. Peers cause them, and many programs never read any.
const MOST: usize = 1 << 16;

/// An event on its way to a program.
pub(crate) struct Told {
    /// None if it is about the device.
    ear: Option<Arc<Ear>>,
    what: u32,
}

impl Told {
    const DEVICE_FATAL: Told = Told {
        ear: None,
        what: IBV_EVENT_DEVICE_FATAL,
    };
}

/// The mailbox of a context.
pub(crate) type Events = Mailbox<Told>;

/// An object that can be told of.
pub(crate) struct Ear {
    events: Arc<Events>,
    element: Element,
    gone: AtomicBool,
    acks: Acks,
}

/// The object as its program knows it.
struct Element(ibv_async_event__element);

// SAFETY: an address that only the program follows.
unsafe impl Send for Element {}
// SAFETY: as above.
unsafe impl Sync for Element {}

impl Ear {
    pub(crate) fn new(events: &Arc<Events>, element: ibv_async_event__element) -> Arc<Ear> {
        Arc::new(Ear {
            events: events.clone(),
            element: Element(element),
            gone: AtomicBool::new(false),
            acks: Acks::default(),
        })
    }

    /// Something happened to the object.
    pub(crate) fn tell(self: &Arc<Ear>, what: u32) {
        let told = Told {
            ear: Some(self.clone()),
            what,
        };
        // As for an adapter whose event queue overflows: what the program knows of its objects is not all any more.
        let lives = || !self.gone.load(Ordering::Relaxed);
        if self
            .events
            .put_within(MOST, told, lives, || Told::DEVICE_FATAL)
        {
            log::warn(|| format!("{MOST} asynchronous events are unread: later ones are dropped"));
        }
    }

    /// The program has acknowledged one; by its own count, since whoever destroys the object may go on before this returns.
    pub(crate) fn acknowledged(self: Arc<Ear>) {
        self.acks.acknowledged(1);
    }

    /// The object goes: waits until what the program was given is acknowledged.
    pub(crate) fn close(&self) {
        self.events.remove(
            |told| {
                told.ear
                    .as_ref()
                    .is_some_and(|ear| core::ptr::eq(&raw const **ear, self))
            },
            || self.gone.store(true, Ordering::Relaxed),
        );
        self.acks.wait();
    }
}

impl Events {
    /// The device itself has failed: the context is told, and nothing more will come.
    pub(crate) fn fail(&self) {
        self.put_within(MOST, Told::DEVICE_FATAL, || true, || Told::DEVICE_FATAL);
        self.end();
    }

    /// The next event of a context, as its program wants to see it.
    pub(crate) fn next(&self) -> Result<ibv_async_event, crate::errno::Errno> {
        let told = self.take(|told| {
            if let Some(ear) = &told.ear {
                ear.acks.given();
            }
        })?;
        Ok(ibv_async_event {
            element: match &told.ear {
                Some(ear) => ear.element.0,
                None => ibv_async_event__element { port_num: 0 },
            },
            event_type: told.what,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_events_are_bounded() {
        let events = Arc::new(Events::new().unwrap());
        // SAFETY: sets a flag of a descriptor that the mailbox keeps open, as programs do.
        let refused = unsafe { libc::fcntl(events.fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        assert_eq!(refused, 0);
        let element = || ibv_async_event__element { port_num: 0 };
        let (one, other) = (Ear::new(&events, element()), Ear::new(&events, element()));
        for _ in 0..MOST + 50 {
            one.tell(IBV_EVENT_QP_FATAL);
        }
        other.tell(IBV_EVENT_QP_FATAL);
        for _ in 0..MOST {
            assert_eq!(events.next().unwrap().event_type, IBV_EVENT_QP_FATAL);
            one.clone().acknowledged();
        }
        assert_eq!(events.next().unwrap().event_type, IBV_EVENT_DEVICE_FATAL);
        assert!(events.next().is_err(), "nothing more");
        // Neither the dropped ones nor the overflow are waited for.
        one.close();
        other.tell(IBV_EVENT_QP_FATAL);
        assert_eq!(events.next().unwrap().event_type, IBV_EVENT_QP_FATAL);
        other.clone().acknowledged();
        other.close();
    }
}
