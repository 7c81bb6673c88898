//! Tests of ports, a file per rule: descriptors and kinds of channels, loss, refusals, connections.

mod connections;
mod descriptors;
mod loss;
mod refusals;
