//! Queue pairs of the iSCSI initiator, over TCP connections that the program opened or has opened here.
//! `dial` is a connection being opened, `stream` the connection, and `pair` the object that a program holds.

pub(crate) mod dial;
pub(crate) mod pair;
pub(crate) mod stream;
