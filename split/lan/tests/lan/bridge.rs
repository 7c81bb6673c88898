//! Programs and TCP connections through a TAP and a LAN port (P8), with offloads passed on and done in software.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

use verbena_lan::Offloads;

use crate::common::bridge::Bridge;
use crate::common::{Netns, PATIENCE, privileged};

const BYTES: usize = 8 << 20;

fn ping(from: &Netns, to: &str, size: u32) {
    // Unfragmented packets of this size, one after the other: none may be lost.
    let said = from.command(&format!(
        "ping -q -n -c 20 -i 0.01 -W 5 -M do -s {size} {to}"
    ));
    assert!(said.contains("20 received, 0% packet loss"), "{said}");
}

/// Pseudo-random bytes.
fn bytes(seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut all = Vec::with_capacity(BYTES);
    while all.len() < BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        all.extend(state.to_le_bytes());
    }
    all
}

fn transfer(from: &Netns, to: &Netns, ip: &str) {
    let at = SocketAddr::new(ip.parse().unwrap(), 5001);
    let listener = to.run(|| TcpListener::bind(at)).unwrap();
    let receiver = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut got = Vec::with_capacity(BYTES);
        stream.read_to_end(&mut got).unwrap();
        got
    });
    let sent = bytes(BYTES as u64);
    let mut stream = from
        .run(|| TcpStream::connect_timeout(&at, PATIENCE))
        .unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&sent).unwrap();
    drop(stream);
    assert!(receiver.join().unwrap() == sent, "other bytes came");
}

/// All traffic through one bridge.
fn check_all_traffic(mtu: u32, taken: Offloads) {
    let world = Bridge::new(mtu, taken);
    ping(&world.host, "10.9.0.2", mtu - 28);
    ping(&world.lan, "10.9.0.1", mtu - 28);
    ping(&world.host, "fd09::2", mtu - 48);
    for (from, to, last) in [(&world.host, &world.lan, 2), (&world.lan, &world.host, 1)] {
        transfer(from, to, &format!("10.9.0.{last}"));
        transfer(from, to, &format!("fd09::{last}"));
    }
    let [frames, super_frames, partial, pieces, unfit, refused] = world.counters.get();
    println!("{mtu} {taken:?}: {:?}", world.counters);
    // The kernel did use the offloads, or nothing was tested.
    assert!(super_frames > 0 && partial > super_frames);
    assert!(taken == Offloads::ALL || pieces > frames);
    assert_eq!((unfit, refused), (0, 0));
    assert!(frames > 0 && world.port.counters().unwrap().frames > 0);
}

#[test]
fn p8_offloads_passed_on_1500() {
    privileged("bridge::p8_offloads_passed_on_1500", || {
        check_all_traffic(1500, Offloads::ALL);
    });
}

#[test]
fn p8_offloads_passed_on_9000() {
    privileged("bridge::p8_offloads_passed_on_9000", || {
        check_all_traffic(9000, Offloads::ALL);
    });
}

#[test]
fn p8_offloads_in_software_1500() {
    privileged("bridge::p8_offloads_in_software_1500", || {
        check_all_traffic(1500, Offloads::NONE);
    });
}

#[test]
fn p8_offloads_in_software_9000() {
    privileged("bridge::p8_offloads_in_software_9000", || {
        check_all_traffic(9000, Offloads::NONE);
    });
}

/// One call, ten datagrams: the kernel hands over one super-frame of UDP.
const SEGMENTS: &str = "import socket,sys\n\
    s=socket.socket(socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET,socket.SOCK_DGRAM)\n\
    s.setsockopt(17,103,1000)\n\
    s.sendto(b''.join(bytes([i])*1000 for i in range(10))+b'end',(sys.argv[1],5002))\n";

#[test]
fn p8_gso_datagrams_arrive_one_by_one() {
    privileged("bridge::p8_gso_datagrams_arrive_one_by_one", || {
        for taken in [Offloads::ALL, Offloads::NONE] {
            let world = Bridge::new(1500, taken);
            for ip in ["10.9.0.2", "fd09::2"] {
                ping(&world.host, ip, 100);
                let at = SocketAddr::new(ip.parse().unwrap(), 5002);
                let socket = world.lan.run(|| UdpSocket::bind(at)).unwrap();
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                let before = world.counters.get()[1];
                world.host.run(|| {
                    let mut python = std::process::Command::new("/usr/bin/python3");
                    let ran = python.args(["-c", SEGMENTS, ip]).status().unwrap();
                    assert!(ran.success());
                });
                let mut room = [0; 2000];
                for i in 0..10u8 {
                    let len = socket.recv(&mut room).unwrap();
                    assert_eq!((&room[..len], len), (&[i; 1000][..], 1000), "{taken:?}");
                }
                let len = socket.recv(&mut room).unwrap();
                assert_eq!(&room[..len], b"end");
                assert!(world.counters.get()[1] > before, "no super-frame came");
            }
        }
    });
}

#[test]
fn p8_traffic_resumes_after_link_loss() {
    privileged("bridge::p8_traffic_resumes_after_link_loss", || {
        let world = Bridge::new(1500, Offloads::ALL);
        ping(&world.host, "10.9.0.2", 100);
        world.tap.set_carrier(false).unwrap();
        world.lan.ip("link set l0 down");
        let pinged = world.host.run(|| {
            let mut ping = std::process::Command::new("ping");
            ping.args("-q -c 1 -W 1 10.9.0.2".split(' ')).output()
        });
        assert!(!pinged.unwrap().status.success(), "a ping without a cable");
        world.tap.set_carrier(true).unwrap();
        world.lan.ip("link set l0 up");
        crate::common::wait_until("both links are up again", || {
            world.tap.interface().link().unwrap().running
                && world.port.interface().link().unwrap().running
        });
        ping(&world.host, "10.9.0.2", 100);
    });
}
