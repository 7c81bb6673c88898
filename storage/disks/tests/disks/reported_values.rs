//! Validation of what a unit reports: block sizes that would take all memory, names with control characters. The target is scripted.

use std::net::{Ipv4Addr, TcpListener};
use std::thread::JoinHandle;

use verbena::Device;
use verbena_storage::session::Options;
use verbena_storage::{Blocks, Session, Unit};
use verbena_storage_wire::iscsi::{FromInitiator, Lun};

use crate::scripted::Conn;

/// A target with one unit of 16 blocks, with this block size and vendor. Returns the requests it received.
fn target(block: u32, vendor: [u8; 8]) -> (String, JoinHandle<Vec<FromInitiator>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let to = listener.local_addr().unwrap();
    let serve = move || {
        let mut conn = Conn::over(listener.accept().unwrap().0);
        let mut received = Vec::new();
        while !conn.closed {
            std::thread::yield_now();
            let Some((pdu, _)) = conn.receive() else {
                continue;
            };
            match &pdu {
                FromInitiator::ScsiCommand(command) => {
                    let mut answer = vec![0; command.expected_len as usize];
                    match command.cdb {
                        // INQUIRY, without VPD pages.
                        [0x12, 0, ..] => {
                            answer[4] = 91;
                            answer[8..16].copy_from_slice(&vendor);
                        }
                        // READ CAPACITY (16).
                        [0x9e, ..] => {
                            answer[7] = 15;
                            answer[8..12].copy_from_slice(&block.to_be_bytes());
                        }
                        _ => {}
                    }
                    conn.data_in(command.itt, &answer, true);
                }
                FromInitiator::LogoutRequest(request) => conn.logout_response(request.itt),
                _ => {}
            }
            received.push(pdu);
        }
        received
    };
    let url = format!("iscsi://{to}/iqn.2026-11.org.verbena:claims/1");
    (url, std::thread::spawn(serve))
}

#[test]
fn invalid_block_sizes_are_refused() {
    for (block, good) in [
        (512, true),
        (1 << 20, true),
        (1 << 21, false),
        (1 << 31, false),
        (0, false),
        (520, false),
    ] {
        let (url, target) = target(block, *b"VERBENA ");
        let (device, address) = (Device::open().unwrap(), url.parse().unwrap());
        match Unit::open(&device, &address, Options::default()) {
            Ok(unit) => {
                assert!(good, "{block}");
                assert_eq!(unit.geometry().block_size, block);
                unit.close().unwrap();
            }
            Err(error) => {
                let error = error.to_string();
                assert!(!good, "{error}");
                assert!(
                    error.contains(&format!("blocks of {block} bytes")),
                    "{error}"
                );
            }
        }
        target.join().unwrap();
    }
}

/// Names come from an untrusted target, and a terminal would interpret control characters.
#[test]
fn control_characters_of_identities_are_replaced() {
    let (url, target) = target(512, *b"\x1b[2J\x07ab\xff");
    let (device, address) = (Device::open().unwrap(), url.parse().unwrap());
    let mut session = Session::open(&device, &address, Options::default()).unwrap();
    let identity = session.identity(Lun::new(1).unwrap()).unwrap();
    assert_eq!(identity.vendor, "?[2J?ab\u{fffd}");
    session.close().unwrap();
    target.join().unwrap();
}
