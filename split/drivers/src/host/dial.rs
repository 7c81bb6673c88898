//! How a host dials its unit: opens a carrier, and requests each channel. Each attempt after a lost connection opens a new carrier, so
//! that a changed address of the unit or of this machine is found. When to dial is decided by the caller.

use core::fmt;
use std::time::Instant;

use super::{Host, PhaseEvent};
use crate::carrier::null::NullCarrier;
use crate::carrier::{Carrier, CarrierError};
use crate::link::{Link, LinkOptions};
use crate::request_channels::request_channels;

/// Opens carriers.
pub(super) struct Reopen(Box<dyn FnMut() -> Result<Box<dyn Carrier>, CarrierError> + Send>);

impl fmt::Debug for Reopen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reopen")
    }
}

impl Host {
    /// Uses `open` for a new carrier whenever the unit is dialled again: by then names may resolve to other addresses, this machine may have
    /// another, and its interface may have been replaced by one of the same name.
    #[must_use]
    pub fn with_reopen(
        mut self,
        open: impl FnMut() -> Result<Box<dyn Carrier>, CarrierError> + Send + 'static,
    ) -> Host {
        self.reopen = Some(Reopen(Box::new(open)));
        self
    }

    /// The carrier failed, perhaps because its interface was removed: another is opened when the unit is dialled again.
    pub(super) fn handle_carrier_error(&mut self, error: CarrierError) -> Result<(), CarrierError> {
        if self.reopen.is_none() {
            return Err(error);
        }
        self.drop_connection(&error.to_string());
        self.carrier = Box::new(NullCarrier);
        Ok(())
    }

    /// Requests channels of the unit, by a new carrier after a lost connection.
    pub(super) fn dial(&mut self, now: Instant) {
        let arrangement = self.options.arrangement;
        let options = LinkOptions {
            kinds: self.kinds,
            indication: self.options.indication,
            ..LinkOptions::new(arrangement, self.options.elements, self.options.size())
        };
        self.phase = self.phase.after(PhaseEvent::Dialled);
        self.since_dial.restart(now);
        if let Some(Reopen(open)) = self.reopen.as_mut().filter(|_| self.is_stale) {
            match open() {
                Ok(carrier) => self.carrier = carrier,
                Err(error) => return self.drop_connection(&error.to_string()),
            }
            self.is_stale = false;
        }
        let made = Link::new(&mut *self.carrier, options, now);
        let link = match made {
            Ok(link) => self.link.insert(link),
            Err(lost) => return self.drop_connection(&lost.to_string()),
        };
        let (lane, name) = (self.options.lane, &self.options.name);
        if let Err(error) = request_channels(&mut *self.carrier, link, lane, name) {
            self.drop_connection(&error.to_string());
        }
    }
}
