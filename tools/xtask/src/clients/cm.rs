//! The programs of librdmacm for connections: `ucmatose`, `rdma_client` with `rdma_server`, and `cmtime`.
//! They run with their defaults and with a hundred connections, in both personalities, over both address families.
//! `rping` and the programs for datagrams have files of their own.

use super::case::{Case, PEER, PEER6, PORT, Side, Topology};

pub(crate) fn cases() -> Vec<Case> {
    let many = ["-c", "100"];
    let data = ["-c", "10", "-C", "100", "-S", "4096"];
    let mut cases = vec![
        ucmatose("default", &[], PEER),
        ucmatose("100", &many, PEER),
        ucmatose("data", &data, PEER).quick_if(false),
        ucmatose("migrate", &["-m", "-c", "10"], PEER).quick_if(false),
        ucmatose("ipv6", &many, PEER6),
        ucmatose("iwarp", &many, PEER).personality("iwarp"),
        ucmatose("address", &many, PEER)
            .at(Topology::OwnAddress)
            .quick_if(false),
        endpoints("default"),
        endpoints("iwarp").personality("iwarp"),
        times("default", &[]),
        times("100", &many),
        times("iwarp", &many).personality("iwarp").quick_if(false),
    ];
    let mut far = ucmatose("far", &many, PEER).at(Topology::Namespaces);
    "namespaces/ucmatose".clone_into(&mut far.name);
    cases.push(far.quick_if(false));
    cases
}

fn ucmatose(word: &str, options: &[&str], peer: &str) -> Case {
    let side = |last: &[&str]| {
        Side::new([&["ucmatose", "-p", PORT], options, last].concat())
            .must_print("data transfers complete")
            .must_print("return status 0")
    };
    // By default it listens on IPv4 only.
    let family: &[&str] = if peer == PEER6 { &["-b", "::"] } else { &[] };
    Case::pair(
        format!("cm/ucmatose/{word}"),
        side(family),
        side(&["-s", peer]),
    )
    .limit(60)
}

/// `rdma_create_ep` and the blocking calls.
fn endpoints(word: &str) -> Case {
    let server = Side::new(["rdma_server", "-p", PORT]).must_print("rdma_server: end 0");
    let client =
        Side::new(["rdma_client", "-s", PEER, "-p", PORT]).must_print("rdma_client: end 0");
    Case::pair(format!("cm/rdma_client/{word}"), server, client)
}

/// Its server does not end.
fn times(word: &str, options: &[&str]) -> Case {
    let server = Side::new([&["cmtime", "-p", PORT], options].concat()).endless();
    let client = Side::new([&["cmtime", "-s", PEER, "-p", PORT], options].concat());
    let client = client.must_print("connect").must_print("disconnect");
    Case::pair(format!("cm/cmtime/{word}"), server, client).limit(60)
}
