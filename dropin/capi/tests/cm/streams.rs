//! What programs do with the connection manager, the same in both personalities.
//! Each flow is tried from both sides, and each test uses a port of its own.

mod addresses;
mod endpoints;
mod flows;
mod lifetimes;
mod own_pair;
mod service;
mod xrc;

use crate::begin;
use crate::common::streams;
