//! The programs of librdmacm for datagrams: `udaddy` resolves a queue pair's number and Q_Key (SIDR), `mckey` joins a multicast group.
//! They run with their defaults, with many connections, and bound to the loopback address.
//! Neither takes a port: `udaddy` has a fixed one, and groups use the device's.

use super::case::{Case, PEER, Side};

/// The port at which `udaddy` listens.
const UDADDY: u16 = 7174;
/// The port at which datagrams for groups arrive (setting `multicast_port`).
const GROUPS: u16 = 19999;

pub(crate) fn cases() -> Vec<Case> {
    let many = ["-c", "100"];
    let long = ["-C", "1000", "-S", "2048"];
    let ipoib = ["-p", "0x0002"];
    let here = ["-b", "127.0.0.1"];
    let mut cases = Vec::new();
    for (word, options, quick) in [
        ("default", &[][..], true),
        ("100", &many, true),
        ("long", &long, false),
        ("ipoib", &ipoib, false),
        ("bound", &here, false),
    ] {
        let server = side("udaddy", options, &[], "data transfers complete");
        let client = side("udaddy", options, &["-s", PEER], "data transfers complete");
        let case = Case::pair(format!("cm/udaddy/{word}"), server, client);
        cases.push(case.ready_at_udp(UDADDY).quick_if(quick));
    }
    for (word, options, quick) in [
        ("default", &[][..], true),
        ("many", &["-c", "20", "-C", "20"], false),
        ("bound", &here, false),
        ("ipoib", &ipoib, false),
        (
            "unmapped",
            &["-b", "127.0.0.1", "-M", "::ffff:239.255.81.81"],
            false,
        ),
    ] {
        let group: &[&str] = if options.contains(&"-M") {
            &[]
        } else {
            &["-m", "239.255.81.80"]
        };
        let receiver = side("mckey", options, group, "data transfers complete");
        let sender = side(
            "mckey",
            options,
            &[group, &["-s"]].concat(),
            "test complete",
        );
        let case = Case::pair(format!("cm/mckey/{word}"), receiver, sender);
        cases.push(case.ready_at_udp(GROUPS).quick_if(quick));
    }
    cases
}

fn side(program: &str, options: &[&str], further: &[&str], says: &str) -> Side {
    let words = options.iter().chain(further).map(|word| (*word).to_owned());
    Side::new(std::iter::once(program.to_owned()).chain(words))
        .must_print(says)
        .must_print("return status 0")
}
