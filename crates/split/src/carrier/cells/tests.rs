//! Tests of carriers of cells over UDP on the loopback interface, a file per rule: what pairs do, who may say what, a bad network.

mod bad;
mod pairs;
mod strangers;
mod world;
