//! `rping`: a thousand rounds with data compared, from the smallest size to the largest, and a server with many clients.
//! Cases cover both address families, queue pairs that the program creates itself, and two namespaces.
//! Speed is not checked: every round prints a line.

use super::case::{Case, Noise, PEER, PEER6, PORT, Side, Topology};

/// What the program prints to standard error for every connection that ends.
pub(crate) const RPING_STDERR: &[Noise] = &[
    Noise {
        part: "DISCONNECT EVENT",
        reason: "rping reports the end of a connection there",
    },
    Noise {
        part: "wait for RDMA_READ_ADV state",
        reason: "the server of rping waits for another round when the client has ended its last one",
    },
];

/// The size of both its buffers; the program accepts at most 65535.
const SIZES: &[(&str, bool)] = &[
    ("64", true),
    ("1000", false),
    ("4096", false),
    ("65535", true),
];

pub(crate) fn cases() -> Vec<Case> {
    let rounds = ["-C", "1000", "-v", "-V"];
    let few = ["-C", "10", "-v", "-V"];
    let mut cases = Vec::new();
    for (size, quick) in SIZES {
        let options = [&rounds[..], &["-S", size]].concat();
        cases
            .push(pair(&format!("rping/{size}"), &options, PEER, "rdma-ping-999").quick_if(*quick));
    }
    for (word, further) in [("own-qp", &["-q"][..]), ("plain", &[])] {
        let options = [&rounds[..], further].concat();
        let name = format!("rping/ipv6/{word}");
        cases.push(pair(&name, &options, PEER6, "rdma-ping-999").quick_if(word == "plain"));
    }
    let options = [&rounds[..], &["-q"]].concat();
    cases.push(pair("rping/own-qp", &options, PEER, "rdma-ping-999"));
    let honest = pair("rping/iwarp", &rounds, PEER, "rdma-ping-999");
    cases.push(honest.personality("iwarp"));
    cases.push(pair("rping/tls", &rounds, PEER, "rdma-ping-999").encrypted());
    let near = pair("rping/address", &few, PEER, "rdma-ping-9");
    cases.push(near.at(Topology::OwnAddress).quick_if(false));
    for (word, peer) in [("ipv4", PEER), ("ipv6", PEER6)] {
        let options = [&rounds[..], &["-S", "4096"]].concat();
        let far = pair(
            &format!("namespaces/rping/{word}"),
            &options,
            peer,
            "rdma-ping-999",
        );
        cases.push(far.at(Topology::Namespaces));
    }
    cases.push(persistent("rping/persistent/20", &one_after_another(), &[]));
    cases.push(persistent("rping/persistent/at-once", &at_once(), &[]));
    cases
        .push(persistent("rping/persistent/own-qp", &one_after_another(), &["-q"]).quick_if(false));
    cases
}

/// The options are for both sides; the client must print `last`.
fn pair(name: &str, options: &[&str], peer: &str, last: &str) -> Case {
    let side = |own: &[&str]| {
        Side::new([&["rping", "-p", PORT], own, options].concat()).noise(RPING_STDERR)
    };
    let server = side(&["-s", "-a", any(peer)]).must_print("server ping data");
    Case::pair(name, server, side(&["-c", "-a", peer]).must_print(last)).limit(60)
}

/// The address at which a server accepts all connections of a family.
fn any(peer: &str) -> &'static str {
    if peer == PEER6 { "::" } else { "0.0.0.0" }
}

/// A persistent server, and a script that starts its clients.
fn persistent(name: &str, script: &str, options: &[&str]) -> Case {
    let server = ["rping", "-s", "-P", "-p", PORT];
    let server = Side::new([&server[..], options].concat())
        .noise(RPING_STDERR)
        .endless();
    let client = Side::new(["sh", "-c", script])
        .noise(RPING_STDERR)
        .must_print("all 20 came back");
    Case::pair(name, server, client).limit(90)
}

fn one_after_another() -> String {
    format!(
        "for i in $(seq 20); do rping -c -a {PEER} -p {PORT} -C 10 -V || exit 1; done; echo all 20 came back"
    )
}

/// A tenth of a second apart: the program holds one request at a time, and loses one that another follows too soon.
fn at_once() -> String {
    format!(
        "for i in $(seq 20); do rping -c -a {PEER} -p {PORT} -C 1000 -V & all=\"$all $!\"; sleep 0.1; done; \
         for i in $all; do wait $i || exit 1; done; echo all 20 came back"
    )
}
