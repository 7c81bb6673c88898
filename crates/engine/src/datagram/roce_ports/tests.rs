//! Tests of port 4791: opened once, shared by engines of one user, closed with the engine, and a clear error if another program has it.

use core::net::Ipv4Addr;
use std::net::UdpSocket;

use super::*;
use crate::{Config, Engine};

/// An engine with this address; each test has addresses of its own, since other tests may use the port too.
fn engine(address: &str) -> Engine {
    let mut config = Config::from_parts(None, core::iter::empty()).unwrap();
    config.set("device", address).unwrap();
    Engine::new(config).unwrap()
}

#[test]
fn port_is_opened_once_for_an_address() {
    let engine = engine("127.91.1.1,::1");
    let core = &engine.core;
    let first = core
        .roce_ports
        .at(core, Ipv4Addr::new(127, 91, 1, 1).into())
        .unwrap();
    let all = core.roce_ports.at_all(core).unwrap();
    assert_eq!(all.len(), 2);
    assert!(Arc::ptr_eq(&first, &all[0]));
    let mapped = Ipv4Addr::new(127, 91, 1, 1).to_ipv6_mapped();
    let mapped = core.roce_ports.at(core, mapped.into()).unwrap();
    assert!(Arc::ptr_eq(&first, &mapped));
    let other = core
        .roce_ports
        .at(core, Ipv4Addr::new(127, 91, 1, 2).into());
    assert!(matches!(other, Err(Error::NotLocalAddress { .. })));
}

#[test]
fn port_of_another_program_is_a_clear_error() {
    let taken = UdpSocket::bind("127.91.2.1:4791").unwrap();
    let engine = engine("127.91.2.1");
    let core = &engine.core;
    let error = core.roce_ports.at_all(core).unwrap_err();
    assert!(matches!(error, Error::RocePortInUse { .. }));
    assert_eq!(
        error.to_string(),
        "UDP port 4791 at 127.91.2.1 is in use by another user's process or by the kernel (rxe): RoCEv2 cannot be used there, TCP can"
    );
    drop(taken);
}

#[test]
fn shutdown_closes_the_port() {
    let engine = engine("127.91.3.1");
    let core = &engine.core;
    core.roce_ports.at_all(core).unwrap();
    engine.shut_down(core::time::Duration::ZERO).unwrap();
    assert!(matches!(core.roce_ports.at_all(core), Err(Error::Closed)));
}

#[test]
fn members_of_a_group_have_different_residues() {
    let engines: Vec<Engine> = (0..4).map(|_| engine("127.91.4.1")).collect();
    let residues: Vec<Option<u16>> = engines
        .iter()
        .map(|engine| {
            let core = &engine.core;
            assert_eq!(core.roce_ports.steered_residue(core), None, "not open");
            core.roce_ports.at_all(core).unwrap();
            core.roce_ports.steered_residue(core)
        })
        .collect();
    assert_eq!(residues, [Some(0), Some(1), Some(2), Some(3)]);
    for (engine, residue) in engines.iter().zip(residues) {
        let number = engine.core.oob.qpn_allocator.allocate(&engine.core);
        let port = number.unwrap().get() >> 8;
        assert_eq!(Some(port as u16 % MAX_STEERED), residue);
    }
}
