//! Which thread serves a connection. A `group` is the connections of one completion queue; a `shard` serves it until threads that
//! poll the queue (`queue`) or sleep on its channel (`sleep_poll`) do so themselves: `owner` decides between
//! them. `watch` is the readiness of one socket;
//! `preemption` and `backoff` decide when polling threads keep connections.

pub(crate) mod backoff;
mod busy_poll;
pub(crate) mod group;
mod owner;
pub(crate) mod preemption;
pub(crate) mod queue;
pub(crate) mod shard;
pub(crate) mod sleep_poll;
pub(crate) mod watch;
