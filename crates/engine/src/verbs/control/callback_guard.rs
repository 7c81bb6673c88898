//! The callback of a control request. It is called exactly once, also if the request panics.

use super::ControlCallback;
use crate::error::Error;
use crate::guard::catch_panic;

/// A callback that is called once, also if its request panics.
pub(super) struct CallbackGuard(pub(super) Option<ControlCallback>);

impl CallbackGuard {
    pub(super) fn call(mut self, outcome: Result<(), Error>) {
        if let Some(callback) = self.0.take() {
            catch_panic(|| callback(outcome));
        }
    }
}

impl Drop for CallbackGuard {
    fn drop(&mut self) {
        if let Some(callback) = self.0.take() {
            catch_panic(|| callback(Err(Error::Closed)));
        }
    }
}
