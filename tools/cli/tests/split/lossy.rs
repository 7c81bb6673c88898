//! A network that loses and reorders datagrams, with acknowledged cells: nothing that arrives is wrong, and it recovers.

use crate::blob;
use crate::program::ping_with;
use crate::relay::{Impairment, Relay};
use crate::space::wait_until;
use crate::world::{CarrierKind, LAN, World, privileged};

#[test]
fn writes_survive_five_percent_loss() {
    privileged("lossy::writes_survive_five_percent_loss", || {
        run_impaired(&["--arrangement", "b"]);
    });
}

#[test]
fn messages_survive_five_percent_loss() {
    privileged("lossy::messages_survive_five_percent_loss", || {
        run_impaired(&["--arrangement", "c"]);
    });
}

#[test]
fn connectionless_writes_survive_five_percent_loss() {
    let name = "lossy::connectionless_writes_survive_five_percent_loss";
    privileged(name, || {
        run_impaired(&["--data-channel", "connectionless"]);
    });
}

fn run_impaired(kind: &[&str]) {
    let world = World::new(CarrierKind::Udp, 1);
    let _unit = world.start_unit(&[]);
    let badness = Impairment { lost: 50, late: 20 };
    let relay = Relay::start(world.host(1), "127.0.0.1:48001", "10.77.1.1:7471", badness);
    world.make_persistent(1);
    // On loopback cells would have 64 KiB; this is the size on an ordinary network.
    let with = [kind, &["--cell", "1400"]].concat();
    let mut host = world.start_host_at(1, "udp://127.0.0.1:48001", &with);
    world.wait_until_up(1);
    // Acknowledged cells lose nothing, only time: a repeated one is overtaken by all that is sent meanwhile.
    ping_with(world.host(1), &format!("-i 0.01 {LAN}"), 200);
    let _web = world.serve_web();
    let mut download = world.begin_download(1, "50G");
    wait_until("a hundred datagrams are lost", || relay.lost() > 100);
    assert!(!download.has_exited(), "the network was not bad enough");
    relay.repair();
    assert!(download.wait().success(), "{}", download.output());
    assert!(download.output().starts_with(blob::checksum()));
    ping_with(world.host(1), &format!("-i 0.01 {LAN}"), 200);
    assert!(!host.has_exited());
    let status = world.status("host", "net1");
    assert_eq!(status["messages"]["violations"], 0, "{status}");
    assert_eq!(status["connections"], 1, "{status}");
}
