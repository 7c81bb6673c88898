//! The pingpongs of ibverbs-utils: RC, UC, SRQ, UD and XRC, polling and by events, from 8 bytes to a mebibyte.
//! The long set has ten thousand rounds of every size; in the quick set the largest size has fewer.
//! They exchange queue pair numbers over TCP and connect by number, which only the RoCE personality has.

use super::case::{Case, Figure, Noise, PEER, PORT, Side, Topology};

/// Options of every run: GID index 0.
const COMMON: [&str; 4] = ["-g", "0", "-p", PORT];
const ROUNDS: u64 = 10_000;
const MEBIBYTE: u64 = 1 << 20;
/// The MTU that the system gives its loopback interface.
const LOOPBACK_MTU: u32 = 65536;

/// The name of the transport in the tool's name, its sizes, and further options.
struct Tool {
    kind: &'static str,
    sizes: &'static [u64],
    quick: &'static [u64],
    further: &'static [(&'static str, &'static [&'static str])],
}

const STREAM: &[u64] = &[8, 64, 1024, 4096, 65536, MEBIBYTE];
const STREAM_QUICK: &[u64] = &[8, 4096, MEBIBYTE];
/// A datagram fits into one packet; the tool accepts no more than the port's MTU.
const DATAGRAM: &[u64] = &[8, 64, 1024, 2048, 4096];
const DATAGRAM_QUICK: &[u64] = &[8, 2048];

const TOOLS: &[Tool] = &[
    Tool {
        kind: "rc",
        sizes: STREAM,
        quick: STREAM_QUICK,
        further: &[("new", &["-N"]), ("mtu", &["-m", "4096"])],
    },
    Tool {
        kind: "uc",
        sizes: STREAM,
        quick: STREAM_QUICK,
        further: &[],
    },
    Tool {
        kind: "srq",
        sizes: STREAM,
        quick: STREAM_QUICK,
        further: &[("one", &["-q", "1"])],
    },
    Tool {
        kind: "ud",
        sizes: DATAGRAM,
        quick: DATAGRAM_QUICK,
        further: &[],
    },
];

/// The GID indices that scripts for RoCE adapters use, different on each side.
fn other_gids() -> Vec<Case> {
    let case = |kind: &str| {
        let program = format!("ibv_{kind}_pingpong");
        let side = |gid: &str, peer: &[&str]| {
            let words = [&program, "-g", gid, "-p", PORT, "-n", "100"];
            Side::new(words.iter().chain(peer).map(|word| (*word).to_owned()))
        };
        let client = side("3", &[PEER]).must_print("usec/iter");
        Case::pair(format!("pingpong/{kind}/gids"), side("1", &[]), client)
    };
    ["rc", "ud"].map(case).into()
}

/// Connected by number, with TLS.
fn encrypted() -> Case {
    let side = |peer: &[&str]| {
        let words = ["ibv_rc_pingpong", "-g", "0", "-p", PORT, "-c"];
        Side::new(words.iter().chain(peer).map(|word| (*word).to_owned()))
    };
    let client = side(&[PEER]).must_print("usec/iter");
    Case::pair("pingpong/rc/tls", side(&[]), client).encrypted()
}

const FILE_OF_ANOTHER: Noise = Noise {
    part: "Couldn't create the file for the XRC Domain but not stopping",
    reason: "it leaves /tmp/xrc_domain behind, which another user cannot open; the domain then has no file",
};

/// XRC queue pairs and their shared receive queues. With several clients the server reaches each of them also through the targets of the others, which
/// are in other processes (docs/dropin.md).
fn xrc() -> Vec<Case> {
    let case = |name: &str, options: &[&str]| {
        let side = |last: &[&str]| {
            let all = [&COMMON, options, last].concat();
            let words = all.into_iter().map(str::to_owned);
            let program = "ibv_xsrq_pingpong".to_owned();
            let side = Side::new(std::iter::once(program).chain(words));
            side.must_print("success").noise(&[FILE_OF_ANOTHER])
        };
        let name = format!("pingpong/xsrq/{name}");
        Case::pair(name, side(&[]), side(&[PEER])).limit(120)
    };
    let clients = |name: &str, count: usize, options: &[&str]| {
        let side = |last: &[&str]| {
            let all = [&["ibv_xsrq_pingpong"], &COMMON[..], options, last].concat();
            Side::new(all).must_print("success")
        };
        let count_text = count.to_string();
        let mut case = Case::single(format!("pingpong/xsrq/{name}"), side(&["-c", &count_text]));
        case.sides.extend((0..count).map(|_| side(&[PEER])));
        // In a namespace of its own, and so by one user only: another one cannot open the file that names the domain.
        case.mtu = Some(LOOPBACK_MTU);
        case.limit(120)
    };
    vec![
        clients("clients", 2, &["-n", "500"]),
        clients("clients/events", 4, &["-n", "200", "-e"]).quick_if(false),
        clients("clients/long", 2, &["-n", "50", "-s", "1048576"]).quick_if(false),
        case("poll", &["-n", "2000"]),
        case("events", &["-n", "2000", "-e"]),
        case("odp", &["-n", "2000", "-o"]),
        case("long", &["-n", "100", "-s", "1048576"]),
    ]
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = other_gids();
    cases.push(encrypted());
    cases.extend(xrc());
    for tool in TOOLS {
        for &size in tool.sizes {
            let quick = tool.quick.contains(&size);
            for (word, mode) in [("poll", &[][..]), ("events", &["-e"][..])] {
                let name = format!("pingpong/{}/{size}/{word}", tool.kind);
                // Validation is part of the quick set for every size.
                cases.push(sized(
                    &format!("{name}/check"),
                    tool,
                    size,
                    mode,
                    &["-c"],
                    quick,
                ));
                cases.push(sized(&name, tool, size, mode, &[], false));
            }
        }
        for (word, options) in tool.further {
            let name = format!("pingpong/{}/{word}", tool.kind);
            cases.push(pair(&name, tool.kind, options, ROUNDS));
            let name = format!("pingpong/{}/{word}/events", tool.kind);
            let options = [options, &["-e"][..]].concat();
            cases.push(pair(&name, tool.kind, &options, ROUNDS).quick_if(false));
        }
        // Explicitly with the tool's default: sixteen queue pairs on one shared receive queue.
        if tool.kind == "srq" {
            cases.push(pair("pingpong/srq/sixteen", "srq", &["-q", "16"], ROUNDS));
        }
    }
    for kind in ["rc", "ud"] {
        let mut across = pair(&format!("namespaces/{kind}_pingpong"), kind, &["-c"], 1000);
        across.topology = Topology::Namespaces;
        cases.push(across);
    }
    // Longer than the MTU between the namespaces.
    let long = pair(
        "namespaces/ud_pingpong/fragments",
        "ud",
        &["-c", "-s", "4096"],
        1000,
    );
    cases.push(long.at(Topology::Namespaces).quick_if(false));
    cases
}

/// A case of one size; a large one in the quick set has fewer rounds.
fn sized(name: &str, tool: &Tool, size: u64, mode: &[&str], how: &[&str], quick: bool) -> Case {
    let size_text = size.to_string();
    let options = [&["-s", size_text.as_str()], mode, how].concat();
    if quick && size >= MEBIBYTE {
        return pair(name, tool.kind, &options, 200);
    }
    pair(name, tool.kind, &options, ROUNDS).quick_if(quick)
}

/// Server and client with the same options.
pub(crate) fn pair(name: &str, kind: &str, options: &[&str], rounds: u64) -> Case {
    let side = |last: &[&str]| {
        let program = format!("ibv_{kind}_pingpong");
        let rounds = rounds.to_string();
        let all = [&COMMON, &["-n", rounds.as_str()][..], options, last].concat();
        let words = all.into_iter().map(str::to_owned);
        Side::new(std::iter::once(program).chain(words)).must_print("usec/iter")
    };
    Case::pair(name, side(&[]), side(&[PEER]))
        .limit(120)
        .figure(Figure::PerIteration)
}
