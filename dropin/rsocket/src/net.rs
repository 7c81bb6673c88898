//! The adapter for sockets: dispatches its events to connections, and owns the connections of closed sockets. A connection whose end the
//! adapter reports is told, however the events arrive: by [`Net::open`], or through [`Net::handle_event`] from their owner, as in the C API.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use verbena::Device;
use verbena::events::Event;

use crate::closing::ClosingLinks;
use crate::notifier::Waiters;

/// Asynchronous results for a connection; not locked while the adapter is called.
#[derive(Debug, Default)]
pub(crate) struct LinkEvents {
    /// The result of connecting.
    pub(crate) connect_result: Mutex<Option<Result<Vec<u8>, verbena::Error>>>,
    /// The connection is over.
    pub(crate) lost: AtomicBool,
    pub(crate) waiters: Arc<Waiters>,
}

/// An adapter that sockets use.
#[derive(Debug)]
pub struct Net {
    pub(crate) device: Device,
    /// Connections by queue pair number.
    links: Mutex<HashMap<u32, Weak<LinkEvents>>>,
    /// Connections of sockets that were closed.
    pub(crate) closing: ClosingLinks,
}

fn set_lost(news: &LinkEvents) {
    news.lost.store(true, Ordering::Release);
    news.waiters.notify();
}

impl Net {
    /// For a device whose events the caller passes to [`handle_event`](Net::handle_event).
    pub fn new(device: Device) -> Arc<Net> {
        Arc::new(Net {
            device,
            links: Mutex::default(),
            closing: ClosingLinks::default(),
        })
    }

    /// For a device whose events are handled here.
    pub fn open(device: Device) -> Arc<Net> {
        let net = Net::new(device);
        let weak = Arc::downgrade(&net);
        net.device.on_event(move |event| {
            if let Some(net) = weak.upgrade() {
                net.handle_event(event);
            }
        });
        net
    }

    /// Handles an event of a queue pair; false if it belongs to no connection. Does not block.
    pub fn handle_event(&self, event: Event) -> bool {
        let qp = match event {
            Event::Disconnected { qp }
            | Event::QpFatal { qp }
            | Event::QpAccess { qp }
            | Event::QpRequest { qp } => qp,
            Event::DeviceFatal => {
                let all: Vec<_> = self.links.lock().values().cloned().collect();
                all.iter()
                    .filter_map(Weak::upgrade)
                    .for_each(|news| set_lost(&news));
                return false;
            }
            _ => return false,
        };
        let found = self.links.lock().get(&qp).cloned();
        let Some(news) = found else { return false };
        if let Some(news) = news.upgrade() {
            set_lost(&news);
        }
        true
    }

    /// The number of closed sockets whose last bytes have not all reached their peers.
    pub fn closing(&self) -> usize {
        self.closing.len()
    }

    /// Waits until there are none, at most until the given time; false if some are left. Their data is lost if the process ends.
    pub fn wait_closed(&self, until: Instant) -> bool {
        // Polls: it may be called while the process exits, in the middle of any other call.
        while !self.closing.is_empty() {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        true
    }

    pub(crate) fn register(&self, qp: u32, news: &Arc<LinkEvents>) {
        self.links.lock().insert(qp, Arc::downgrade(news));
    }

    pub(crate) fn unregister(&self, qp: u32) {
        self.links.lock().remove(&qp);
    }
}
