//! The callback of a control request. It is called exactly once, also if the request panics.

use super::Told;
use crate::error::Error;
use crate::pipeline::shield;

/// A callback that is called once, also if its request panics.
pub(super) struct Answer(pub(super) Option<Told>);

impl Answer {
    pub(super) fn give(mut self, outcome: Result<(), Error>) {
        if let Some(told) = self.0.take() {
            shield(|| told(outcome));
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(told) = self.0.take() {
            shield(|| told(Err(Error::Closed)));
        }
    }
}
