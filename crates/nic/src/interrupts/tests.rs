//! Tests of interrupts.
