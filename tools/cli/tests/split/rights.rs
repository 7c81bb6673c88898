//! Without privileges: the message names what is missing, and the remedy.

use crate::program::try_sh;
use crate::world::{CarrierKind, VERBENA, World, privileged};

/// Runs the command without any capability, even as root.
fn run_unprivileged(world: &World, words: &str) -> (bool, String) {
    let runtime = world.folder.file("powerless");
    let line = format!(
        "XDG_RUNTIME_DIR={} setpriv --bounding-set=-all --inh-caps=-all {VERBENA} {words} 2>&1; echo code $?",
        runtime.display()
    );
    try_sh(&world.unit, &line)
}

#[test]
fn missing_capability_is_named() {
    privileged("rights::missing_capability_is_named", || {
        let world = World::new(CarrierKind::Iwarp, 1);
        let each = [
            (
                "host --connect 10.77.1.1 --tap net0",
                "CAP_NET_ADMIN",
                "net0",
            ),
            (
                "unit --lan-tap own0 --listen 127.0.0.1",
                "CAP_NET_ADMIN",
                "own0",
            ),
            ("unit --lan lan0 --listen 127.0.0.1", "CAP_NET_RAW", "lan0"),
        ];
        for (words, capability, interface) in each {
            let (_, said) = run_unprivileged(&world, words);
            assert!(said.contains(capability), "{words}: {said}");
            assert!(said.contains(&format!("`{interface}`")), "{words}: {said}");
            for help in ["root", "setcap", "unshare -Urn"] {
                assert!(said.contains(help), "{words}: {said}");
            }
            assert!(said.ends_with("code 1\n"), "{words}: {said}");
        }
    });
}

#[test]
fn missing_capability_is_named_for_ethernet_cells() {
    privileged(
        "rights::missing_capability_is_named_for_ethernet_cells",
        || {
            let world = World::new(CarrierKind::Ethernet, 1);
            let to = world.unit_for(1).replace("//fab/", "//fab1/");
            let (_, said) = run_unprivileged(&world, &format!("host --connect {to} --tap net0"));
            assert!(
                said.contains("CAP_NET_RAW") && said.contains("unshare -Urn"),
                "{said}"
            );
            assert!(said.ends_with("code 1\n"), "{said}");
        },
    );
}
