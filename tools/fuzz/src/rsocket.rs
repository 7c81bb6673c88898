//! What the peer of a stream socket sends besides data: the hello in the private data, and control messages; and the credits that
//! they move. The checks are in `verbena_rsocket::fuzzing`, because these types are private to the crate.

/// Runs one input.
pub fn target(data: &[u8]) {
    verbena_rsocket::fuzzing::check(data);
}
