//! Tests of carriers of cells over UDP on the loopback interface: what pairs do, and which senders are heard.

mod pairs;
mod unknown_sources;
mod world;
