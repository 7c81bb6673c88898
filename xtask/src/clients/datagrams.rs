//! The programs of librdmacm for datagrams: `udaddy` asks where a queue pair is, `mckey` joins a group.
//! It promises their defaults, many connections, and the loopback and the machine's own address alike.
//! Neither takes a port: `udaddy` has one of its own, and groups have the device's.

use super::case::{Case, PEER, Side};

/// Where `udaddy` listens.
const UDADDY: u16 = 7174;
/// Where datagrams for groups arrive (setting `multicast_port`).
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
        .says(says)
        .says("return status 0")
}
