//! The programs of librdmacm that use rsockets, and socket programs under the shim (docs/rsockets.md).
//! Cases with `-T v` verify the data, and copied files must be equal; the other cases check that the programs end without an error.
//! Speed is not checked; the long set has all sizes and the large file.

use super::case::{Case, PEER, PORT, Side};

/// Options of rstream and riostream for their ways to wait, and whether a case belongs to the quick set.
const WAIT_MODES: &[(&str, &[&str], bool)] = &[
    ("both", &[], true),
    ("async", &["-T", "a"], true),
    ("blocking", &["-T", "b"], true),
    ("nonblocking", &["-T", "n"], true),
    ("buffers", &["-B", "65536"], true),
];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for program in ["rstream", "riostream"] {
        for (way, options, quick) in WAIT_MODES {
            for (size, text) in [(64, "64"), (65_536, "65536"), (1 << 20, "1048576")] {
                let few = ["-T", "v", "-I", "20", "-C", "5", "-S", text];
                let options = [options, &few[..]].concat();
                let name = format!("{program}/{way}/{size}");
                let quick = *quick && size != 65_536;
                cases.push(streams(&name, program, &options).quick_if(quick));
            }
        }
    }
    // One message at a time: riostream polls memory instead of calling the library, and reads it as soon as the last byte has its value.
    for program in ["rstream", "riostream"] {
        let name = format!("{program}/questions");
        let few = ["-S", "64", "-C", "1", "-I", "100"];
        cases.push(streams(&name, program, &few));
    }
    let few = ["-T", "v", "-I", "20", "-C", "5", "-S", "65536"];
    cases.push(streams("rstream/tls", "rstream", &few).encrypted());
    // Small sends, which are coalesced.
    let small = ["-T", "v", "-S", "64", "-C", "20000", "-I", "1"];
    cases.push(streams("rstream/small", "rstream", &small));
    for (way, options) in [
        ("format", &["-f", "ip"][..]),
        ("keepalive", &["-k", "5"]),
        ("not-inline", &["-i", "0"]),
        // Plain sockets of the system, which must not be affected.
        ("sockets", &["-T", "s"]),
        ("fork", &["-T", "f"]),
    ] {
        let few = ["-S", "1000", "-C", "10", "-I", "10"];
        let options = [options, &few[..]].concat();
        cases.push(streams(&format!("rstream/{way}"), "rstream", &options));
    }
    for program in ["rstream", "riostream"] {
        let defaults = streams(&format!("{program}/defaults"), program, &[]);
        cases.push(defaults.limit(600).quick_if(false));
        let all = streams(&format!("{program}/all"), program, &["-S", "all"]);
        cases.push(all.limit(600).quick_if(false));
    }
    let six = format!(
        "rstream -b ::1 -p {PORT} -T v -I 20 -C 5 -S 1000 & sleep 1; \
         rstream -s ::1 -p {PORT} -T v -I 20 -C 5 -S 1000 && wait && echo done"
    );
    cases.push(script("rstream/ipv6", &six).limit(60));
    cases.push(streams(
        "rstream/resolve",
        "rstream",
        &["-T", "r", "-I", "10"],
    ));
    cases.push(script("rcopy/8MiB", &copy(8)).limit(60));
    cases.push(script("rcopy/1GiB", &copy(1024)).limit(600).quick_if(false));
    for (way, options) in [
        ("both", ""),
        ("async", "-T a"),
        ("blocking", "-T b"),
        ("nonblocking", "-T n"),
        ("echo", "-T e"),
        ("sockets", "-T s"),
    ] {
        let text = format!(
            "udpong -b 127.0.0.1 -p {PORT} {options} & s=$!; sleep 1; \
             udpong -s 127.0.0.1 -p {PORT} -C 200 {options}; e=$?; kill $s; test $e = 0 && echo done"
        );
        cases.push(script(&format!("udpong/{way}"), &text).limit(60));
    }
    cases.push(shimmed("shim/nc", &netcat()).limit(60));
    cases.push(iperf("shim/iperf3", &[]));
    cases.push(iperf("shim/iperf3/reverse", &["-R"]));
    cases.push(iperf("shim/iperf3/four", &["-P", "4"]));
    cases
}

/// Server and client with the same options.
fn streams(name: &str, program: &str, options: &[&str]) -> Case {
    let side = |last: &[&str]| Side::new([&[program, "-p", PORT], options, last].concat());
    let client = side(&["-s", PEER]).must_print("Gb/sec");
    Case::pair(name, side(&[]), client).limit(60)
}

/// A shell script, under `verbena run`.
fn script(name: &str, text: &str) -> Case {
    Case::single(name, Side::new(["sh", "-c", text]).must_print("done"))
}

fn shimmed(name: &str, text: &str) -> Case {
    let mut case = script(name, text);
    for side in &mut case.sides {
        side.launch = Some(vec!["--rsockets".to_owned()]);
    }
    case
}

/// Copies a file and compares it; the server does not end by itself.
fn copy(mebibytes: u32) -> String {
    format!(
        "d=$(mktemp -d) && cd $d || exit 1; rcopy -p {PORT} >server.txt & s=$!; \
         head -c {mebibytes}M /dev/urandom >from; sleep 1; rcopy from 127.0.0.1:to -p {PORT} >client.txt; \
         kill $s; cmp from to && echo done; cd /; rm -r $d"
    )
}

/// Five mebibytes from one netcat to another.
fn netcat() -> String {
    format!(
        "d=$(mktemp -d) && cd $d || exit 1; head -c 5M /dev/urandom >from; \
         nc -l 127.0.0.1 {PORT} >to & sleep 1; nc -N 127.0.0.1 {PORT} <from; wait; \
         cmp from to && echo done; cd /; rm -r $d"
    )
}

fn iperf(name: &str, options: &[&str]) -> Case {
    let mut server = Side::new(["iperf3", "-s", "-1", "-p", PORT]);
    let client = ["iperf3", "-c", PEER, "-p", PORT, "-t", "1"];
    let mut client = Side::new([&client[..], options].concat()).must_print("iperf Done");
    for side in [&mut server, &mut client] {
        side.launch = Some(vec!["--rsockets".to_owned()]);
    }
    Case::pair(name, server, client).limit(60)
}
