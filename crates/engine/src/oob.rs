//! Out-of-band connections: queue pairs that programs connect by number, with addresses they exchanged themselves
//! (docs/connections.md). `qpn` gives a queue pair a number with a port in it, `handshake` decides which side calls, `hello` and
//! `auth` identify and authenticate both ends, and `requests` finds the queue pair that is called.

pub(crate) mod auth;
pub(crate) mod handshake;
pub(crate) mod hello;
pub(crate) mod qpn;
pub(crate) mod requests;

use qpn::QpnAllocator;
use requests::OobRequests;

/// The out-of-band connections of an engine.
#[derive(Default)]
pub(crate) struct Oob {
    /// Queue pairs that wait to be called, and calls for them.
    pub(crate) requests: OobRequests,
    /// Their numbers.
    pub(crate) qpn_allocator: QpnAllocator,
}
