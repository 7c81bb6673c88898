//! A network that loses and reorders, under acknowledged cells: whatever arrives is right, and it recovers.

use crate::program::{answers, ping};
use crate::relay::{Badness, Relay};
use crate::space::until;
use crate::world::{LAN, Way, World, privileged};

#[test]
fn one_in_twenty_lost_and_others_overtaken() {
    privileged("lossy::one_in_twenty_lost_and_others_overtaken", || {
        for arrangement in ["b", "c"] {
            let world = World::new(Way::Udp, 1);
            let _unit = world.start_unit(&[]);
            let badness = Badness { lost: 50, late: 20 };
            let relay = Relay::start(world.host(1), "127.0.0.1:48001", "10.77.1.1:7471", badness);
            world.make_persistent(1);
            let with = ["--arrangement", arrangement];
            let mut host = world.start_host_at(1, "udp://127.0.0.1:48001", &with);
            world.until_up(1);
            // Acknowledged cells lose nothing, only time.
            ping(world.host(1), LAN, 200);
            let _web = world.serve_web();
            world.download(1);
            assert!(relay.lost() > 100, "{}", relay.lost());
            until("it is up afterwards", || answers(world.host(1), LAN));
            assert!(!host.is_over());
            let status = world.status("host", "net1");
            assert_eq!(status["messages"]["violations"], 0, "{status}");
            assert_eq!(status["connections"], 1, "{status}");
        }
    });
}
