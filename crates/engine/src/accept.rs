//! Incoming connections: listeners at an address, and the acceptor that runs the startups of what arrives there.
//! `owner_rules` decides which device may listen and accept where (V2).

pub(crate) mod acceptor;
pub(crate) mod listening;
pub(crate) mod owner_rules;
