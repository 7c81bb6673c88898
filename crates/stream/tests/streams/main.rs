//! Two streams connected by slices of bytes: every scenario at every split, found bugs, and an observer of both directions.
//! There is no adapter and no socket: a test decides which bytes arrive when.

mod observer;
mod regressions;
mod splits;
