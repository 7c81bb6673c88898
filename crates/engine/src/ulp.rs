//! Queue pairs of upper-layer protocols ([`UlpQp`](verbena_nic::UlpQp)) over TCP connections that are opened here (docs/upper-protocols.md).
//! The protocol is that of another crate, as iSCSI is; sockets, threads, timers and the end of the adapter are handled here, for every
//! protocol alike. `dial` is a connection being opened, `stream` the connection, and `pair` the object that a program holds.

pub(crate) mod dial;
pub(crate) mod pair;
pub(crate) mod stream;
