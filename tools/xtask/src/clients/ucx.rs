//! UCX: whether it lists the adapter, and its own benchmark over `rc_verbs` and `ud_verbs`, at the lower (UCT) level and at the upper (UCP).
//! The counter-test is included: without the shim UCX finds no device file and skips the adapter.
//! Not covered are connections through rdma_cm, and atomics, which UCX does not offer over `rc_verbs`.

use super::case::{Case, PEER, PORT, Side};

const DEVICE: &str = "verbena0:1";

pub(crate) fn cases() -> Vec<Case> {
    let info = || Side::new(["ucx_info", "-d"]);
    let mut seen = info()
        .must_print("rc_verbs")
        .must_print("ud_verbs")
        .must_print(DEVICE);
    seen.must_not_print.push("failed to open interface".into());
    let mut unseen = info().must_not_print("rc_verbs").must_not_print(DEVICE);
    unseen.launch = None;
    let mut cases = vec![
        Case::single("ucx/info", seen),
        Case::single("ucx/info/without", unseen),
    ];
    for transport in ["rc_verbs", "ud_verbs"] {
        for (test, further, quick) in TESTS {
            // A datagram queue pair has neither Write nor Read.
            if transport == "ud_verbs" && !test.starts_with("am_") {
                continue;
            }
            cases.push(benchmark(transport, test, further).quick_if(*quick));
        }
    }
    for (test, further, quick) in UPPER {
        cases.push(upper(test, further).quick_if(*quick));
    }
    cases
}

/// Test, its options, and whether it is quick.
const TESTS: &[(&str, &[&str], bool)] = &[
    ("am_lat", &["-n", "10000"], true),
    (
        "am_lat",
        &["-n", "1000", "-D", "bcopy", "-s", "1024"],
        false,
    ),
    (
        "am_lat",
        &["-n", "1000", "-D", "zcopy", "-s", "1024"],
        false,
    ),
    ("am_bw", &["-n", "10000", "-D", "bcopy", "-s", "1024"], true),
    ("put_lat", &["-n", "10000"], true),
    (
        "put_bw",
        &["-n", "2000", "-D", "zcopy", "-s", "65536"],
        true,
    ),
    ("get", &["-n", "2000", "-D", "zcopy", "-s", "65536"], true),
];

fn benchmark(transport: &str, test: &str, further: &[&str]) -> Case {
    let side = |last: &[&str]| {
        let head = [
            "-d", DEVICE, "-x", transport, "-t", test, "-w", "100", "-p", PORT,
        ];
        let words = [&["ucx_perftest"][..], &head, further, last].concat();
        Side::new(words)
    };
    let layout = further.iter().find(|word| word.ends_with("copy"));
    let name = match layout {
        Some(layout) => format!("ucx/{transport}/{test}/{layout}"),
        None => format!("ucx/{transport}/{test}"),
    };
    Case::pair(name, side(&[]), side(&[PEER]).must_print("Final")).limit(60)
}

/// Of the upper level: test, its options, and whether it is quick.
const UPPER: &[(&str, &[&str], bool)] = &[
    ("tag_lat", &["-n", "10000"], true),
    ("tag_bw", &["-n", "2000", "-s", "65536"], true),
    ("tag_bw", &["-n", "200", "-s", "4194304"], false),
    ("ucp_put_bw", &["-n", "2000", "-s", "65536"], false),
    ("ucp_get", &["-n", "2000", "-s", "65536"], false),
    ("stream_bw", &["-n", "2000", "-s", "65536"], false),
];

/// The upper level selects among the transports that it is allowed.
fn upper(test: &str, further: &[&str]) -> Case {
    let side = |last: &[&str]| {
        let head = ["ucx_perftest", "-t", test, "-w", "100", "-p", PORT];
        let mut side = Side::new([&head[..], further, last].concat());
        side.env = vec![
            ("UCX_TLS", "rc_verbs,ud_verbs".to_owned()),
            ("UCX_NET_DEVICES", DEVICE.to_owned()),
        ];
        side
    };
    let size = further.iter().skip_while(|word| **word != "-s").nth(1);
    let name = match size {
        Some(size) => format!("ucx/ucp/{test}/{size}"),
        None => format!("ucx/ucp/{test}"),
    };
    Case::pair(name, side(&[]), side(&[PEER]).must_print("Final")).limit(60)
}
