//! responses
