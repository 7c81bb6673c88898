//! Where an object of a program hears of asynchronous events: its context's mailbox, and the books of what it was told.
//! It promises that nothing is told of an object once it is going, and that who destroys it can wait until the program has
//! acknowledged what it was given. It refuses to know what kind of object it is.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use crate::abi::{IBV_EVENT_DEVICE_FATAL, ibv_async_event, ibv_async_event__element};
use crate::mailbox::{Acks, Mailbox};

/// An event on its way to a program.
pub(crate) struct Told {
    ear: Arc<Ear>,
    what: u32,
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
            ear: self.clone(),
            what,
        };
        self.events
            .put_if(told, || !self.gone.load(Ordering::Relaxed));
    }

    /// The program has acknowledged one; by its own count, since whoever destroys the object may go on before this returns.
    pub(crate) fn acknowledged(self: Arc<Ear>) {
        self.acks.acknowledged(1);
    }

    /// The object goes: waits until what the program was given is acknowledged.
    pub(crate) fn close(&self) {
        self.events.remove(
            |told| core::ptr::eq(&raw const *told.ear, self),
            || self.gone.store(true, Ordering::Relaxed),
        );
        self.acks.wait();
    }
}

impl Events {
    /// The device itself has failed: the context is told, and nothing more will come.
    pub(crate) fn fail(self: &Arc<Events>) {
        let ear = Ear::new(self, ibv_async_event__element { port_num: 0 });
        ear.tell(IBV_EVENT_DEVICE_FATAL);
        self.end();
    }

    /// The next event of a context, as its program wants to see it.
    pub(crate) fn next(&self) -> Result<ibv_async_event, crate::errno::Errno> {
        let told = self.take(|told| told.ear.acks.given())?;
        Ok(ibv_async_event {
            element: told.ear.element.0,
            event_type: told.what,
        })
    }
}
