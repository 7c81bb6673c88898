//! Helpers of the test programs: devices, connected pairs, and bytes to send.
//! Everything runs over loopback.

#![allow(dead_code, reason = "each test program uses a part of it")]

use verbena::function::FunctionOptions;
use verbena::{Config, Connection, Device};

pub(crate) mod exchange;
pub(crate) mod low;
pub(crate) mod process;
pub(crate) mod relay;

pub(crate) fn device(settings: &[(&str, &str)]) -> Device {
    let mut config = Config::default();
    for (key, value) in settings {
        config.set(key, value).unwrap();
    }
    Device::with(config).unwrap()
}

/// Connections of two devices; the second one accepted.
pub(crate) fn pair(settings: &[(&str, &str)]) -> (Connection, Connection) {
    let (ours, theirs) = (device(settings), device(settings));
    let listener = theirs.listen("127.0.0.1:0").unwrap();
    let connecting = ours.connect(listener.local_addr().unwrap());
    let there = listener.accept().wait().unwrap();
    (connecting.wait().unwrap(), there)
}

pub(crate) fn pattern(len: usize, salt: u8) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ salt)
        .collect()
}

/// The device's address is a loopback address.
pub(crate) const LOOPBACK: &[(&str, &str)] = &[("device", "127.0.0.1")];

/// Options of a function with few resources.
pub(crate) fn small_function() -> FunctionOptions {
    FunctionOptions {
        qps: 64,
        cqs: 64,
        pds: 8,
        regions: 256,
        handlers: 1,
        ..FunctionOptions::default()
    }
}

/// Creates a virtual function of an adapter.
pub(crate) fn virtual_function(adapter: &Device) -> Device {
    adapter.function(&small_function()).unwrap()
}
