//! Opening a carrier for an address: to dial a unit there, or to be one.
//! It promises that a name which stands for several addresses is tried in their order, as far as that is possible before
//! anything is sent. It refuses addresses that make no sense for what is wanted.

use std::net::{SocketAddr, ToSocketAddrs};

use verbena::access::{AccessList, Refusal};
use verbena::low::Log;
use verbena::{Config, Source};

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
        .ok_or_else(|| refused(address, "the name stands for no address"))
}

/// A carrier that leads to a unit.
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
                    "whom to dial? ethernet://INTERFACE/MAC, the unit's",
                )
            })?;
            let carrier = CellCarrier::ethernet_dial(interface, unit, options(cell))?;
            Ok(Box::new(carrier))
        }
    }
}

/// A carrier that units are reached by.
pub fn listen(address: &Address, cell: Option<u16>) -> Result<Box<dyn Carrier>> {
    match address {
        Address::Iwarp(name) => {
            let config = config(address)?;
            let tells = config.log >= Log::Warn;
            let carrier = IwarpCarrier::listen(resolve(address, name)?, config)?;
            if tells {
                carrier.access().on_refusal(tell);
            }
            Ok(Box::new(carrier))
        }
        Address::Udp(name) => {
            let mut carrier = CellCarrier::udp_listen(resolve(address, name)?, options(cell))?;
            let config = config(address)?;
            let access = AccessList::new(&config);
            if config.log >= Log::Warn {
                access.on_refusal(tell);
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

/// Hosts that are refused are nobody's result, so they are told of where the user sees it.
fn tell(refusal: &Refusal) {
    eprintln!("verbena: {refusal}");
}

fn options(cell: Option<u16>) -> CellOptions {
    CellOptions {
        cell,
        ..CellOptions::default()
    }
}

/// The adapter's settings, from where they always come; what they leave open is decided for frames.
fn config(address: &Address) -> Result<Config> {
    let refused = |problems: verbena::Problems| refused(address, problems.to_string());
    let mut config = Config::load().map_err(refused)?;
    // TCP sums what it carries, and frames bring sums of their own: a third one would cost a copy of everything. Their senders
    // see to congestion, too, and are not helped by one who spaces out what they have spaced out.
    // The driver comes back to its queue all the time, so that its second look in vain reads from the sockets: while frames
    // stream, that saves going to sleep for each.
    // An acknowledgement is due when most of what a short way takes (`link/flight.rs`) has come, and not later.
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
