//! Text keys.
