//! pdus
