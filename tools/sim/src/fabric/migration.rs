//! Moves a queue pair's connection to another queue pair under traffic (V1), as between functions and processes.
//! The peer's end and the links are not affected. The image is serialized and parsed again wherever that is possible.

use std::sync::Arc;

use verbena_events::event::Outbox;
use verbena_nic::{Image, MigrateRefusal, Qp};

use super::{Fabric, QpId};

impl Fabric {
    /// Moves the state of a queue pair to a new one with the same number; has no effect if that fails.
    ///
    /// # Panics
    /// If an image cannot be parsed again, or does not fit the queue pair it was taken from.
    pub fn migrate(&mut self, qp: QpId) -> Result<(), MigrateRefusal> {
        let (host, old) = self.qps[qp.0].clone();
        let mut out = Outbox::new();
        let image = match old.export_image(|| (), &mut out) {
            Ok(image) => image,
            Err(stays) => {
                self.note(host, &mut out);
                return Err(stays);
            }
        };
        let image = match image.encode() {
            Ok(bytes) => Image::decode(&bytes).expect("an image that was just encoded"),
            // An image that cannot be serialized can move within the process.
            Err(_) => image,
        };
        let new = Arc::new(Qp::new(old.init().clone()));
        let fits = new.import_image(image, &mut out);
        assert!(fits.is_ok(), "the image fits an equal queue pair");
        for connection in &mut self.connections {
            connection.replace(&old, &new);
        }
        self.qps[qp.0].1 = new;
        self.note(host, &mut out);
        Ok(())
    }
}
