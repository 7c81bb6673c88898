//! Two ends of a connection, and bytes to send over it.

#![allow(dead_code, reason = "each test program uses a part of it")]

use verbena::{Config, Connection, Device, FunctionOptions};

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

/// Two devices, joined; the second listened.
pub(crate) fn pair(settings: &[(&str, &str)]) -> (Connection, Connection) {
    let (ours, theirs) = (device(settings), device(settings));
    let listener = theirs.listen("127.0.0.1:0").unwrap();
    let connecting = ours.connect(listener.local().unwrap());
    let there = listener.accept().wait().unwrap();
    (connecting.wait().unwrap(), there)
}

pub(crate) fn pattern(len: usize, salt: u8) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ salt)
        .collect()
}

/// Everything stays on this host.
pub(crate) const LOOPBACK: &[(&str, &str)] = &[("device", "127.0.0.1")];

/// A function that needs little.
pub(crate) fn few() -> FunctionOptions {
    FunctionOptions {
        qps: 64,
        cqs: 64,
        pds: 8,
        regions: 256,
        handlers: 1,
        ..FunctionOptions::default()
    }
}

/// One more function of an adapter.
pub(crate) fn tenant(adapter: &Device) -> Device {
    adapter.function(&few()).unwrap()
}
