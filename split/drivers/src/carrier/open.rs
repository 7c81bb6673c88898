//! Opens a carrier for an address, to dial a unit or to listen as one. A name is resolved to its first address. Ethernet needs the unit's
//! address to dial, and none to listen.

use std::net::{SocketAddr, ToSocketAddrs};

use verbena::Config;
use verbena::config::Source;
use verbena::unstable::Log;
use verbena::unstable::access::{AccessList, Refusal};

use super::address::Address;
use super::cells::{CellCarrier, CellOptions};
use super::iwarp::IwarpCarrier;
use super::{Carrier, CarrierError, Result};

fn refused(address: &Address, why: impl Into<String>) -> CarrierError {
    CarrierError::Address {
        address: address.to_string(),
        why: why.into(),
    }
}

fn resolve(address: &Address, name: &str) -> Result<SocketAddr> {
    let found = name.to_socket_addrs();
    let mut found = found.map_err(|error| refused(address, error.to_string()))?;
    found
        .next()
        .ok_or_else(|| refused(address, "the name resolves to no address"))
}

/// A carrier that dials a unit.
pub fn dial(address: &Address, cell: Option<u16>) -> Result<Box<dyn Carrier>> {
    match address {
        Address::Iwarp(name) => {
            let carrier = IwarpCarrier::dial(resolve(address, name)?, config(address)?)?;
            Ok(Box::new(carrier))
        }
        Address::Udp(name) => {
            let carrier = CellCarrier::udp_dial(resolve(address, name)?, options(cell))?;
            Ok(Box::new(carrier))
        }
        Address::Ethernet { interface, unit } => {
            let unit = unit.ok_or_else(|| {
                refused(
                    address,
                    "the unit's address is missing: ethernet://INTERFACE/MAC",
                )
            })?;
            let carrier = CellCarrier::ethernet_dial(interface, unit, options(cell))?;
            Ok(Box::new(carrier))
        }
    }
}

/// A carrier that listens for hosts.
pub fn listen(address: &Address, cell: Option<u16>) -> Result<Box<dyn Carrier>> {
    match address {
        Address::Iwarp(name) => {
            let config = config(address)?;
            let tells = config.log >= Log::Warn;
            let carrier = IwarpCarrier::listen(resolve(address, name)?, config)?;
            if tells {
                carrier.access().on_refusal(report_refusal);
            }
            Ok(Box::new(carrier))
        }
        Address::Udp(name) => {
            let mut carrier = CellCarrier::udp_listen(resolve(address, name)?, options(cell))?;
            let config = config(address)?;
            let access = AccessList::new(&config);
            if config.log >= Log::Warn {
                access.on_refusal(report_refusal);
            }
            carrier.set_access(access);
            Ok(Box::new(carrier))
        }
        Address::Ethernet {
            interface,
            unit: None,
        } => {
            let carrier = CellCarrier::ethernet_listen(interface, options(cell))?;
            Ok(Box::new(carrier))
        }
        Address::Ethernet { unit: Some(_), .. } => {
            let why = "a unit listens at its interface's own address: ethernet://INTERFACE";
            Err(refused(address, why))
        }
    }
}

/// Refused hosts are no error of any call, so they are reported on standard error.
fn report_refusal(refusal: &Refusal) {
    eprintln!("verbena: {refusal}");
}

fn options(cell: Option<u16>) -> CellOptions {
    CellOptions {
        cell,
        ..CellOptions::default()
    }
}

/// The adapter's settings from the environment and the files; those not set get values that suit frames.
fn config(address: &Address) -> Result<Config> {
    let refused = |problems: verbena::config::ConfigErrors| refused(address, problems.to_string());
    let mut config = Config::load().map_err(refused)?;
    // TCP has checksums, and frames have their own: a CRC would need a copy of everything. The senders of the frames also do congestion
    // control, and pacing again does not help them.
    // The driver polls its queue often, so with `lend_polls` 2 its second empty poll reads from the sockets: while frames stream, that
    // saves a sleep for each.
    // An acknowledgement is due when most of the least limit in flight (`link/inflight.rs`) has come, and not later.
    for (key, value) in [
        ("crc", "off"),
        ("pacing", "off"),
        ("lend_polls", "2"),
        ("ack_bytes", "512K"),
    ] {
        if config.source(key) == Some(Source::Default) {
            config.set(key, value).map_err(refused)?;
        }
    }
    Ok(config)
}
