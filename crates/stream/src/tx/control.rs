//! Control messages that are queued until the next boundary between two frames.
//! Each kind has one slot, because the protocol never has two of a kind outstanding; so the queue cannot grow.

use serde::{Deserialize, Serialize};
use verbena_wire::ext::{Caps, Control, RnrTimer};
use verbena_wire::number::Psn;
use verbena_wire::rdmap::Terminate;
use verbena_wire::{Rsn, Srqn};

/// Queued control messages. Fields in the order in which they are sent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct ControlOut {
    pub(crate) caps: Option<Caps>,
    pub(crate) rnr: Option<(Rsn, RnrTimer)>,
    pub(crate) ready: Option<Rsn>,
    pub(crate) resume: Option<Rsn>,
    pub(crate) active: Option<Psn>,
    /// Sent last: it is about the requests behind it. Not moved: an XRC queue pair is not migrated.
    #[serde(skip)]
    pub(crate) srq: Option<Srqn>,
    pub(crate) terminate: Option<Terminate>,
}

impl ControlOut {
    /// Nothing is queued; acknowledgements are not kept here.
    pub(crate) fn is_empty(&self) -> bool {
        self.caps.is_none()
            && self.rnr.is_none()
            && self.ready.is_none()
            && self.resume.is_none()
            && self.active.is_none()
            && self.srq.is_none()
            && self.terminate.is_none()
    }

    /// The next control message, without acknowledgements and the Terminate.
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
        if let Some(psn) = self.active.take() {
            return Some(Control::Active { psn });
        }
        self.srq.take().map(Control::Srq)
    }

    /// Requests must not be sent before these.
    pub(crate) fn blocks_requests(&self) -> bool {
        self.caps.is_some() || self.resume.is_some() || self.srq.is_some()
    }
}
