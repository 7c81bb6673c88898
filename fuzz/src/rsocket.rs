//! What a peer of a stream socket sends beside its data: the hello in the private data, and control messages; and the credits that
//! they move. The checks are inside of the crate, which has no public form of these.

/// Runs one input.
pub fn target(data: &[u8]) {
    verbena_rsocket::fuzzing::check(data);
}
