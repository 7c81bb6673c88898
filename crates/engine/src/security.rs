//! Which peers may connect, and how connections are protected: access lists, shared keys and TLS (docs/operating.md).
//! Each is checked before a peer can make the adapter allocate a queue pair's memory.

pub mod access;
pub(crate) mod key_auth;
pub(crate) mod keys;
pub(crate) mod tls;
