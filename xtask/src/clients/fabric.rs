//! libfabric: what `fi_info` lists of the adapter, and `fi_pingpong` over the provider `verbs` and over messages on top of it.
//! They run over the host's own address and in two namespaces, and compare the data.
//! They do not use the loopback, whose addresses libfabric leaves out.

use super::case::{Case, PEER, PORT, Place, Side};

/// Endpoint type, provider, and the word for both in the case's name.
const KINDS: &[(&str, &str, &str)] = &[("msg", "verbs", "msg"), ("rdm", "verbs;ofi_rxm", "rdm")];

pub(crate) fn cases() -> Vec<Case> {
    let info = |provider: &str| {
        Side::new(["fi_info", "-p", provider])
            .says("provider: verbs")
            .says("domain: verbena0")
    };
    let mut cases = vec![
        Case::alone("fabric/info", info("verbs").says("FI_EP_MSG")).at(Place::Own),
        Case::alone("fabric/info/rxm", info("verbs;ofi_rxm").says("FI_EP_RDM"))
            .at(Place::Own)
            .quick_if(false),
    ];
    for (word, provider, endpoint) in KINDS {
        let near = pingpong(&format!("fabric/pingpong/{word}"), provider, endpoint, &[]);
        cases.push(near.at(Place::Own));
        let checked = pingpong(
            &format!("fabric/pingpong/{word}/check"),
            provider,
            endpoint,
            &["-c", "-I", "100", "-S", "all"],
        );
        cases.push(checked.at(Place::Own).quick_if(false));
        let far = pingpong(
            &format!("namespaces/fi_pingpong/{word}"),
            provider,
            endpoint,
            &[],
        );
        cases.push(far.at(Place::Namespaces));
    }
    cases
}

fn pingpong(name: &str, provider: &str, endpoint: &str, options: &[&str]) -> Case {
    let side = |last: &[&str]| {
        let head = ["fi_pingpong", "-p", provider, "-e", endpoint];
        Side::new([&head[..], options, last].concat()).says("usec/xfer")
    };
    Case::pair(name, side(&["-B", PORT]), side(&["-P", PORT, PEER])).limit(120)
}
