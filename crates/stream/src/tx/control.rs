//! Control messages that wait for the next gap between two frames.
//! Each kind has one slot, because the protocol never has two of a kind under way; so the queue cannot grow.
//! It refuses to invent: every slot is filled by an event of the stream.

use serde::{Deserialize, Serialize};
use verbena_wire::Rsn;
use verbena_wire::ext::{Caps, Control, RnrTimer};
use verbena_wire::number::Psn;
use verbena_wire::rdmap::Terminate;

/// What waits to be said. Fields in the order in which they leave.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct ControlOut {
    pub(crate) caps: Option<Caps>,
    pub(crate) rnr: Option<(Rsn, RnrTimer)>,
    pub(crate) ready: Option<Rsn>,
    pub(crate) resume: Option<Rsn>,
    pub(crate) active: Option<Psn>,
    pub(crate) terminate: Option<Terminate>,
}

impl ControlOut {
    /// None waits but acknowledgements.
    pub(crate) fn is_empty(&self) -> bool {
        self.caps.is_none()
            && self.rnr.is_none()
            && self.ready.is_none()
            && self.resume.is_none()
            && self.active.is_none()
            && self.terminate.is_none()
    }

    /// The next control message but acknowledgements and the Terminate.
    pub(crate) fn next(&mut self) -> Option<Control> {
        if let Some(caps) = self.caps.take() {
            return Some(Control::Caps(caps));
        }
        if let Some((rsn, timer)) = self.rnr.take() {
            return Some(Control::Rnr { rsn, timer });
        }
        if let Some(rsn) = self.ready.take() {
            return Some(Control::Ready(rsn));
        }
        if let Some(rsn) = self.resume.take() {
            return Some(Control::Resume(rsn));
        }
        self.active.take().map(|psn| Control::Active { psn })
    }

    /// No message of ours may pass these.
    pub(crate) fn blocks_requests(&self) -> bool {
        self.caps.is_some() || self.resume.is_some()
    }
}
