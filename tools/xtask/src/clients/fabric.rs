//! libfabric: what `fi_info` lists of the adapter, and `fi_pingpong` over the provider `verbs` and over messages on top of it.
//! They run over the host's own address and in two namespaces, and compare the data.
//! They do not use the loopback, whose addresses libfabric leaves out.

use super::case::{Case, PEER, PORT, Side, Topology};

/// Endpoint type, provider, and the word for both in the case's name.
const KINDS: &[(&str, &str, &str)] = &[("msg", "verbs", "msg"), ("rdm", "verbs;ofi_rxm", "rdm")];

pub(crate) fn cases() -> Vec<Case> {
    let info = |provider: &str| {
        Side::new(["fi_info", "-p", provider])
            .must_print("provider: verbs")
            .must_print("domain: verbena0")
    };
    let mut cases = vec![
        Case::single("fabric/info", info("verbs").must_print("FI_EP_MSG")).at(Topology::OwnAddress),
        Case::single(
            "fabric/info/rxm",
            info("verbs;ofi_rxm").must_print("FI_EP_RDM"),
        )
        .at(Topology::OwnAddress)
        .quick_if(false),
    ];
    for (word, provider, endpoint) in KINDS {
        let near = pingpong(&format!("fabric/pingpong/{word}"), provider, endpoint, &[]);
        cases.push(near.at(Topology::OwnAddress));
        let checked = pingpong(
            &format!("fabric/pingpong/{word}/check"),
            provider,
            endpoint,
            &["-c", "-I", "100", "-S", "all"],
        );
        cases.push(checked.at(Topology::OwnAddress).quick_if(false));
        let far = pingpong(
            &format!("namespaces/fi_pingpong/{word}"),
            provider,
            endpoint,
            &[],
        );
        cases.push(far.at(Topology::Namespaces));
    }
    cases
}

fn pingpong(name: &str, provider: &str, endpoint: &str, options: &[&str]) -> Case {
    let side = |last: &[&str]| {
        let head = ["fi_pingpong", "-p", provider, "-e", endpoint];
        Side::new([&head[..], options, last].concat()).must_print("usec/xfer")
    };
    Case::pair(name, side(&["-B", PORT]), side(&["-P", PORT, PEER])).limit(120)
}
