//! perftest, without rdma_cm and with it: send, write, read and atomics, latency and bandwidth, over RC and where it allows over UC and UD.
//! Only combinations that the tools accept are run; their figures are information.
//! One figure has a limit: `ib_write_lat` polls memory without calling the library, and depends on the adapter's threads alone.

use super::case::{Case, Figure, Noise, PEER, PORT, Side, Topology};

/// Above this latency (µs) the case fails: the adapter's thread got a processor only with the scheduler's next time slice.
const COLLAPSE: f64 = 200.0;

/// perftest has a list of the adapters that it sends inline with.
pub(crate) const UNKNOWN_DEVICE: Noise = Noise {
    part: "Device not recognized to implement inline feature",
    reason: "perftest prints this for every adapter that is not in its own list",
};

/// One of the eight tools.
#[derive(Clone, Copy)]
struct Tool {
    verb: &'static str,
    bandwidth: bool,
}

/// Options under a name, and whether they belong to the quick set.
type Variant = (&'static str, &'static [&'static str], bool);

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for verb in ["send", "write", "read", "atomic"] {
        for bandwidth in [false, true] {
            let tool = Tool { verb, bandwidth };
            for (name, options, quick) in tool.variants() {
                cases.push(tool.case(name, options).quick_if(quick));
            }
            cases.extend(tool.managed());
        }
    }
    for bandwidth in [false, true] {
        let tool = Tool {
            verb: "send",
            bandwidth,
        };
        for (word, options) in [("", &[][..]), ("/cm", &["-R"])] {
            let mut across = tool.case("rc", options).at(Topology::Namespaces);
            across.name = format!("namespaces/{}{word}", tool.program());
            cases.push(across);
        }
    }
    cases
}

/// Connected by rdma_cm, in a personality.
const MANAGED: &[(&str, &str)] = &[("cm", "roce"), ("cm-iwarp", "iwarp")];

impl Tool {
    fn program(self) -> String {
        let kind = if self.bandwidth { "bw" } else { "lat" };
        format!("ib_{}_{kind}", self.verb)
    }

    fn variants(self) -> Vec<Variant> {
        let mut all: Vec<Variant> = vec![("rc", &[], true)];
        // Atomics have one size, and the tools for Write do not use events. The tool measures the processor's clock again
        // for each size, which takes half a second: only one case with all sizes is in the quick set.
        if self.verb != "atomic" {
            let quick = self.verb == "send" && self.bandwidth;
            all.push(("all", &["-a", "-n", "50"], quick));
        }
        if self.verb != "write" {
            all.push(("events", &["-e"], true));
        }
        if self.verb != "write" && self.bandwidth {
            all.push(("both-eight-events", &["-b", "-q", "8", "-e"], false));
        }
        if self.bandwidth {
            all.push(("both", &["-b"], true));
            all.push(("eight", &["-q", "8"], true));
            all.push(("list", &["-l", "8"], false));
            all.push(("long", &["-n", "20000"], false));
        }
        if matches!(self.verb, "send" | "write") {
            all.push(("uc", &["-c", "UC"], true));
            all.push(("uc-all", &["-c", "UC", "-a", "-n", "50"], false));
        }
        if self.verb == "send" {
            all.push(("ud", &["-c", "UD", "-s", "2048"], true));
            all.push(("ud-events", &["-c", "UD", "-s", "2048", "-e"], false));
            all.push(("srq", &["--use-srq"], true));
        }
        if self.verb == "send" && self.bandwidth {
            all.push(("srq-eight", &["--use-srq", "-q", "8"], false));
            all.push(("ud-both", &["-c", "UD", "-s", "2048", "-b"], false));
        }
        if self.verb == "atomic" {
            all.push(("compare", &["-A", "CMP_AND_SWAP"], true));
        }
        all
    }

    /// An iWARP adapter has no atomics, and the tool does not offer them.
    fn managed(self) -> Vec<Case> {
        let mut cases = Vec::new();
        for (name, personality) in MANAGED {
            if self.verb == "atomic" && *personality == "iwarp" {
                continue;
            }
            let mut all: Vec<Variant> = vec![(name, &["-R"], true)];
            if self.bandwidth {
                all.push(("eight", &["-R", "-q", "8"], false));
                all.push(("both", &["-R", "-b"], false));
            }
            if self.verb == "send" {
                all.push(("all", &["-R", "-a", "-n", "50"], false));
            }
            for (word, options, quick) in all {
                let mut case = self.case(word, options).quick_if(quick);
                if word != *name {
                    case.name = format!("perftest/{}/{name}/{word}", self.program());
                }
                cases.push(case.personality(personality));
            }
        }
        cases
    }

    fn case(self, name: &str, options: &[&str]) -> Case {
        let program = self.program();
        let side = |last: &[&str]| {
            // -F: do not fail on variable processor frequencies.
            let all = [&["-F", "-p", PORT][..], options, last].concat();
            let words = all.into_iter().map(str::to_owned);
            let mut side = Side::new(std::iter::once(program.clone()).chain(words));
            side.noise.push(UNKNOWN_DEVICE);
            side
        };
        let figure = match (self.bandwidth, self.verb, name) {
            (true, _, _) => Figure::Bandwidth,
            (false, "write", "rc") => Figure::Latency(Some(COLLAPSE)),
            (false, _, _) => Figure::Latency(None),
        };
        Case::pair(
            format!("perftest/{program}/{name}"),
            side(&[]),
            side(&[PEER]).must_print("#bytes"),
        )
        .limit(120)
        .figure(figure)
    }
}
