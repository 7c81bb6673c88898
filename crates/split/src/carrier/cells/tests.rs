//! Tests of carriers of cells over UDP on the loopback interface, a file per rule: what pairs do, and who may say what.

mod pairs;
mod strangers;
mod world;
