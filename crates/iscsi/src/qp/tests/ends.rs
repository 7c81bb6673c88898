//! ends
