//! The adapter as sockets see it: where connections are made, and who is told when one ends.
//! It promises that a connection whose end the adapter reports is told, whoever else listens to the adapter's events.
//! It refuses to own the adapter's events where somebody hands them on: the C face does.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use verbena::{Device, Event};

use crate::alarm::Waiters;
use crate::closing::Background;

/// What others leave for a connection; never locked while the adapter is called.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// How connecting ended.
    pub(crate) answer: Mutex<Option<Result<Vec<u8>, verbena::Error>>>,
    /// The connection is over.
    pub(crate) lost: AtomicBool,
    pub(crate) waiters: Arc<Waiters>,
}

/// Where sockets connect.
#[derive(Debug)]
pub struct Net {
    pub(crate) device: Device,
    /// Connections by queue pair.
    links: Mutex<HashMap<u32, Weak<News>>>,
    /// Connections of sockets that were closed.
    pub(crate) closing: Background,
}

fn lose(news: &News) {
    news.lost.store(true, Ordering::Release);
    news.waiters.ring();
}

impl Net {
    /// On a device whose events somebody hands to [`tell`](Net::tell).
    pub fn new(device: Device) -> Arc<Net> {
        Arc::new(Net {
            device,
            links: Mutex::default(),
            closing: Background::default(),
        })
    }

    /// On a device whose events nobody else wants.
    pub fn open(device: Device) -> Arc<Net> {
        let net = Net::new(device);
        let weak = Arc::downgrade(&net);
        net.device.on_event(move |event| {
            if let Some(net) = weak.upgrade() {
                net.tell(event);
            }
        });
        net
    }

    /// Something happened to a queue pair; false if it is none of ours. Waits for nothing.
    pub fn tell(&self, event: Event) -> bool {
        let qp = match event {
            Event::Disconnected { qp }
            | Event::QpFatal { qp }
            | Event::QpAccess { qp }
            | Event::QpRequest { qp } => qp,
            Event::DeviceFatal => {
                let all: Vec<_> = self.links.lock().values().cloned().collect();
                all.iter()
                    .filter_map(Weak::upgrade)
                    .for_each(|news| lose(&news));
                return false;
            }
            _ => return false,
        };
        let found = self.links.lock().get(&qp).cloned();
        let Some(news) = found else { return false };
        if let Some(news) = news.upgrade() {
            lose(&news);
        }
        true
    }

    /// Closed sockets whose last bytes have not all reached their peers.
    pub fn closing(&self) -> usize {
        self.closing.len()
    }

    /// Waits until there are none, at most until then; false if there still are. What is left when the process ends is lost.
    pub fn wait_closed(&self, until: Instant) -> bool {
        // Polls: it may be called by a process that ends in the middle of anything.
        while !self.closing.is_empty() {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        true
    }

    pub(crate) fn joined(&self, qp: u32, news: &Arc<News>) {
        self.links.lock().insert(qp, Arc::downgrade(news));
    }

    pub(crate) fn parted(&self, qp: u32) {
        self.links.lock().remove(&qp);
    }
}
