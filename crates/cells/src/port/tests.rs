//! Tests of ports.
