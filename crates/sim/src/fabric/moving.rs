//! A queue pair's connection moves to another queue pair under traffic (V1), as it does between functions and processes.
//! It promises that the peer's end and the links know nothing of it, and that whatever can be written down is: the image passes
//! through bytes. It refuses what the queue pair refuses.

use std::sync::Arc;

use verbena_nic::event::Outbox;
use verbena_nic::{Image, Qp, Stays};

use super::{Fabric, QpId};

impl Fabric {
    /// Moves what a queue pair does to a fresh one of the same name; nothing happens if it stays.
    ///
    /// # Panics
    /// If an image cannot be read again, or does not fit the queue pair it was taken from.
    pub fn migrate(&mut self, qp: QpId) -> Result<(), Stays> {
        let (host, old) = self.qps[qp.0].clone();
        let mut out = Outbox::new();
        let image = match old.depart(|| (), &mut out) {
            Ok(image) => image,
            Err(stays) => {
                self.note(host, &mut out);
                return Err(stays);
            }
        };
        let image = match image.encode() {
            Ok(bytes) => Image::decode(&bytes).expect("an image of our own"),
            // It stays in the process, and may move there.
            Err(_) => image,
        };
        let new = Arc::new(Qp::new(old.init().clone()));
        let fits = new.arrive(image, &mut out);
        assert!(fits.is_ok(), "it is made of the same");
        let ends = self.connections.iter_mut().flat_map(|c| &mut c.ends);
        for end in ends.filter(|end| Arc::ptr_eq(&end.qp, &old)) {
            end.qp = new.clone();
        }
        self.qps[qp.0].1 = new;
        self.note(host, &mut out);
        Ok(())
    }
}
