//! Ports joined by hand, for the tests of this crate.
//! Everything is done by the public calls; datagrams are carried one by one, so that a test can lose any of them.
//! It is compiled for tests only.
