//! A device that has failed (docs/events.md, "When the adapter ends"). Every context, completion channel and identifier of the
//! connection manager gets one event, and no call waits after that. Opening a context or channel of a failed device is refused with `EIO`.

use core::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::AdapterFunction;
use crate::abi::RDMA_CM_EVENT_DEVICE_REMOVAL;
use crate::async_event::Events;
use crate::channel::CqEvents;
use crate::cm::{Link, Param};
use crate::errno::Errno;
use crate::log;
use crate::mailbox::Mailbox;

/// What is notified when the device fails: contexts, completion channels, and identifiers of the connection manager.
#[derive(Default)]
pub(super) struct FailureListeners {
    failed: bool,
    contexts: Vec<Weak<Events>>,
    channels: Vec<Weak<Mailbox<Arc<CqEvents>>>>,
    identifiers: Vec<Weak<Link>>,
}

impl AdapterFunction {
    /// Adds a context to those that are notified when the device fails; `EIO` if it has failed.
    pub(crate) fn register_context(&self, events: &Arc<Events>) -> Result<(), Errno> {
        self.register(|bound| &mut bound.contexts, events)
    }

    /// The same for a completion channel.
    pub(crate) fn register_channel(&self, rung: &Arc<Mailbox<Arc<CqEvents>>>) -> Result<(), Errno> {
        self.register(|bound| &mut bound.channels, rung)
    }

    /// The same for an identifier.
    pub(crate) fn register_identifier(&self, link: &Arc<Link>) -> Result<(), Errno> {
        if link.registered.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.register(|bound| &mut bound.identifiers, link)
    }

    fn register<T>(
        &self,
        list: impl FnOnce(&mut FailureListeners) -> &mut Vec<Weak<T>>,
        one: &Arc<T>,
    ) -> Result<(), Errno> {
        let mut bound = self.failure_listeners.lock();
        if bound.failed {
            return Err(Errno(libc::EIO));
        }
        let list = list(&mut bound);
        // Entries of dropped objects are removed whenever the list would grow.
        if list.len() == list.capacity() {
            list.retain(|one| one.strong_count() > 0);
        }
        list.push(Arc::downgrade(one));
        Ok(())
    }

    /// The port has changed: notifies all contexts.
    pub(super) fn report_port(&self, event_type: u32) {
        let contexts = self.failure_listeners.lock().contexts.clone();
        for events in contexts.iter().filter_map(Weak::upgrade) {
            events.put_port(event_type);
        }
    }

    /// The device has failed: notifies all, and ends all waits.
    pub(super) fn fail(&self) {
        if let Some(why) = self.device.failure() {
            log::error(|| format!("{}: {why}", self.device.config().name));
        }
        let bound = {
            let mut bound = self.failure_listeners.lock();
            let failed = true;
            core::mem::replace(
                &mut *bound,
                FailureListeners {
                    failed,
                    ..FailureListeners::default()
                },
            )
        };
        for link in bound.identifiers.iter().filter_map(Weak::upgrade) {
            link.report(RDMA_CM_EVENT_DEVICE_REMOVAL, 0, Param::NONE);
        }
        for events in bound.contexts.iter().filter_map(Weak::upgrade) {
            events.fail();
        }
        for rung in bound.channels.iter().filter_map(Weak::upgrade) {
            rung.end();
        }
    }
}
