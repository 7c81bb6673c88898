//! Tests of ports, a file per subject: descriptors and kinds of channels, loss, rejected cells, connections.

mod connections;
mod descriptors;
mod loss;
mod refusals;
