//! What programs do with the connection manager, the same in both personalities.
//! They promise that each flow is tried from both ends. They refuse to share a port.

mod addresses;
mod endpoints;
mod flows;
mod lives;
mod own_pair;
mod service;

use super::common::streams;

/// Every test begins with this.
fn begin() {
    streams::settings(crate::SETTINGS);
}
