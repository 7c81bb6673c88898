//! Logical devices and the initiator (V2): a session over a device with the iSCSI service, and the errors of devices without it. The target is
//! scripted; rejected requests never reach it.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};

use verbena::function::Service;
use verbena::low::{Qp, QpOptions};
use verbena::{Config, Device};
use verbena_storage::Session;
use verbena_storage::iscsi::Direction;
use verbena_storage::iscsi::{IscsiOptions, IscsiQp};
use verbena_storage::session::Options;

use crate::scripted::{World, good};

fn adapter(presents: &str) -> Device {
    let mut config = Config::default();
    config.set("presents", presents).unwrap();
    Device::with(config).unwrap()
}

/// A listener to which no connection is expected.
fn unused_listener() -> TcpListener {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    listener
}

#[track_caller]
fn assert_no_connection(listener: &TcpListener) {
    let error = listener.accept().map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

fn runs_commands(device: &Device) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut world = World::on(device, "127.0.0.1", listener, Options::default());
    world.start(0, Direction::Read);
    let command = world.receive_command();
    world
        .conn
        .data_in(command.itt, &[7; crate::scripted::LEN], true);
    assert_eq!(world.take_ended(1), [good(0)]);
}

#[test]
fn iscsi_device_refuses_rdma() {
    let adapter = adapter("verbena0=rdma,scsi0=iscsi");
    let initiator = adapter.logical_device("scsi0", Service::Iscsi).unwrap();
    assert_eq!(initiator.function_number(), 1);
    runs_commands(&initiator);
    let (pd, cq) = (initiator.pd().unwrap(), initiator.cq(8).unwrap());
    let words = "no queue pairs for rdma: its device provides iscsi";
    let refused = Qp::new(&pd, &cq, &cq, QpOptions::default()).unwrap_err();
    assert!(refused.to_string().contains(words), "{refused}");
    let refused = initiator.listen("127.0.0.1:0").map(drop).unwrap_err();
    assert!(refused.to_string().contains(words), "{refused}");
    // The logical device can be opened again by its name.
    assert!(initiator.logical_device("scsi0", Service::Iscsi).is_ok());
    assert!(initiator.logical_device("scsi0", Service::Rdma).is_err());
}

#[test]
fn device_without_iscsi_refuses_before_connecting() {
    let adapter = adapter("verbena0=rdma,scsi0=iscsi");
    let refused = adapter
        .logical_device("verbena0", Service::Iscsi)
        .unwrap_err();
    assert_eq!(refused.to_string(), "device verbena0 has no iscsi");
    let listener = unused_listener();
    let to = listener.local_addr().unwrap();
    let (pd, cq) = (adapter.pd().unwrap(), adapter.cq(8).unwrap());
    let words =
        "function 0 has no queue pairs for iscsi: its device provides rdma (setting `presents`)";
    let refused = IscsiQp::connect(&pd, &cq, &cq, to, IscsiOptions::default()).unwrap_err();
    assert_eq!(refused.to_string(), words);
    let address = format!("iscsi://{to}/iqn.2026-11.org.verbena:scripted/1");
    let address = address.parse().unwrap();
    let refused = Session::open(&adapter, &address, Options::default()).unwrap_err();
    assert!(refused.to_string().contains(words), "{refused}");
    assert_no_connection(&listener);
}

/// A multi-function device: both kinds of queue pairs, on one translation and protection table.
#[test]
fn device_may_offer_rdma_and_iscsi() {
    let adapter = adapter("verbena0=rdma+iscsi");
    let both = adapter.logical_device("verbena0", Service::Iscsi).unwrap();
    assert_eq!(both.function_number(), 0);
    runs_commands(&both);
    both.listen("127.0.0.1:0").unwrap();
    // Without a setting for logical devices there is one device with all services.
    let whole = Device::open().unwrap();
    runs_commands(&whole);
    whole.listen("127.0.0.1:0").unwrap();
}

/// M13: what a rule reserves for one service of the device, the other cannot take.
#[test]
fn owner_rules_distinguish_services_of_one_device() {
    let listener = unused_listener();
    let to = listener.local_addr().unwrap();
    let mut config = Config::default();
    config.set("presents", "verbena0=rdma+iscsi").unwrap();
    config.set("owners", "127.0.0.1=verbena0/rdma").unwrap();
    let device = Device::with(config).unwrap();
    let (pd, cq) = (device.pd().unwrap(), device.cq(8).unwrap());
    let refused = IscsiQp::connect(&pd, &cq, &cq, to, IscsiOptions::default()).unwrap_err();
    assert!(
        refused.to_string().contains("belong to verbena0/rdma"),
        "{refused}"
    );
    device.listen("127.0.0.1:0").unwrap();
}
