//! One run of real programs: the command lines of its sides, the disturbance, and the output they must print.
//! All criteria of a case are fields of the case. Ports and addresses are filled in when it runs.

use std::time::Duration;

use super::source::Source;

/// Placeholder in an argument for the TCP port of the run; each run has its own.
pub(crate) const PORT: &str = "{port}";
/// Placeholder in an argument for the address at which the first side is reached.
pub(crate) const PEER: &str = "{peer}";
/// The same over IPv6.
pub(crate) const PEER6: &str = "{peer6}";
/// Placeholder in an argument for the folder with our scripts.
pub(crate) const SCRIPTS: &str = "{scripts}";

/// The option of `verbena run` for programs that ignore environment variables.
pub(crate) const NAMESPACE: &str = "--namespace";

/// How a side must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With exit code 0, and no standard error but the lines in `noise`.
    Success,
    /// With another exit code, not by a signal; it may print to standard error.
    Failure,
    /// By the signal that the case's disturbance sends.
    Killed,
    /// Not before the others: a server without an end, which prints no errors and is killed once the others have ended.
    Endless,
    /// As [`Ending::Failure`], or not at all: a side that only waits for its peer gets no notice of the peer's death on any adapter.
    FailureOrEndless,
}

/// A line on standard error that is not caused by Verbena.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Noise {
    /// Part of the line.
    pub(crate) part: &'static str,
    /// Why it is printed on any adapter.
    pub(crate) reason: &'static str,
}

/// One process of a case.
#[derive(Debug, Clone)]
pub(crate) struct Side {
    /// Program and arguments.
    pub(crate) command: Vec<String>,
    /// Further environment.
    pub(crate) env: Vec<(&'static str, String)>,
    /// Options of `verbena run`; `None` starts the program without Verbena.
    pub(crate) launch: Option<Vec<String>>,
    pub(crate) ending: Ending,
    /// Text that standard output must contain, and text that it must not.
    pub(crate) must_print: Vec<String>,
    pub(crate) must_not_print: Vec<String>,
    pub(crate) noise: Vec<Noise>,
    /// Checks the system calls, if they are to be recorded.
    pub(crate) trace: Option<TraceCheck>,
}

/// Checks the lines that strace wrote; `Ok` is text for the table, `Err` a failure.
pub(crate) type TraceCheck = fn(&str) -> Result<String, String>;

impl Side {
    pub(crate) fn new<I: IntoIterator<Item: Into<String>>>(command: I) -> Side {
        Side {
            command: command.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            launch: Some(Vec::new()),
            ending: Ending::Success,
            must_print: Vec::new(),
            must_not_print: Vec::new(),
            noise: Vec::new(),
            trace: None,
        }
    }

    pub(crate) fn must_print(mut self, text: impl Into<String>) -> Side {
        self.must_print.push(text.into());
        self
    }

    pub(crate) fn must_not_print(mut self, text: impl Into<String>) -> Side {
        self.must_not_print.push(text.into());
        self
    }

    /// Adds lines that it prints to standard error on any adapter.
    pub(crate) fn noise(mut self, noise: &[Noise]) -> Side {
        self.noise.extend(noise);
        self
    }

    pub(crate) fn endless(mut self) -> Side {
        self.ending = Ending::Endless;
        self
    }

    pub(crate) fn program(&self) -> &str {
        self.command.first().map_or("", String::as_str)
    }
}

/// What is done to a side while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disturbance {
    /// SIGKILL.
    Kill,
    /// SIGSTOP, and SIGCONT after this time.
    Pause(Duration),
}

/// Where the sides run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topology {
    /// Both on this machine, connected by the loopback address.
    Loopback,
    /// Both on this machine, connected by a global address of it.
    OwnAddress,
    /// Each in its own network namespace, joined by a veth pair; needs root.
    Namespaces,
    /// As [`Topology::Namespaces`], and with process and IPC namespaces of their own as containers have: a program that looks
    /// for shared memory finds the other side on another host.
    SeparateHosts,
}

impl Topology {
    /// Whether the sides are in network namespaces.
    pub(crate) fn is_separate(self) -> bool {
        matches!(self, Topology::Namespaces | Topology::SeparateHosts)
    }
}

/// Which number of the last side's output the table shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Figure {
    None,
    /// perftest's typical latency; above the limit (µs), if there is one, the case fails.
    Latency(Option<f64>),
    /// perftest's average bandwidth.
    Bandwidth,
    /// Microseconds per iteration of a pingpong.
    PerIteration,
}

impl Figure {
    /// The same number, which does not decide.
    pub(crate) fn without_limit(self) -> Figure {
        match self {
            Figure::Latency(_) => Figure::Latency(None),
            other => other,
        }
    }
}

/// One run of one or two programs.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// `family/what/how`, shown in the table and matched by `--only`.
    pub(crate) name: String,
    /// Belongs to the quick set.
    pub(crate) quick: bool,
    /// The server first.
    pub(crate) sides: Vec<Side>,
    pub(crate) limit: Duration,
    /// The UDP port at which the server is ready, if it does not listen at [`PORT`].
    pub(crate) udp: Option<u16>,
    /// Which side is disturbed, how long after the last side was started, and how.
    pub(crate) disturbance: Option<(usize, Duration, Disturbance)>,
    pub(crate) topology: Topology,
    /// The MTU of the interfaces between the sides, which are in namespaces then; the system's, if there is none.
    pub(crate) mtu: Option<u32>,
    /// Where the programs come from, if they are not installed.
    pub(crate) source: Option<Source>,
    /// Programs that its own start, which must be installed.
    pub(crate) further: &'static [&'static str],
    pub(crate) figure: Figure,
}

impl Case {
    /// A program alone.
    pub(crate) fn single(name: impl Into<String>, side: Side) -> Case {
        Case {
            name: name.into(),
            quick: true,
            sides: vec![side],
            limit: Duration::from_secs(30),
            udp: None,
            disturbance: None,
            topology: Topology::Loopback,
            mtu: None,
            source: None,
            further: &[],
            figure: Figure::None,
        }
    }

    /// A server that listens at [`PORT`], and a client that is given [`PEER`].
    pub(crate) fn pair(name: impl Into<String>, server: Side, client: Side) -> Case {
        let mut case = Case::single(name, server);
        case.sides.push(client);
        case
    }

    /// The programs use this fixed UDP port.
    pub(crate) fn ready_at_udp(mut self, port: u16) -> Case {
        self.udp = Some(port);
        self
    }

    pub(crate) fn limit(mut self, seconds: u64) -> Case {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// Whether no other case may run at the same time: it has a port that others have, too (also port 4791, which belongs to one user at an
    /// address), installs programs, or its system calls are counted.
    pub(crate) fn runs_alone(&self) -> bool {
        let is_roce = |side: &Side| side.env.iter().any(|(key, _)| *key == "VERBENA_WIRE");
        let has_namespaces = self.needs_namespaces();
        self.udp.is_some()
            || self.source.is_some()
            || self.sides.iter().any(|side| side.trace.is_some())
            || (!has_namespaces && self.sides.iter().any(is_roce))
    }

    /// Puts it into the quick set only if the condition holds.
    pub(crate) fn quick_if(mut self, quick: bool) -> Case {
        self.quick = quick;
        self
    }

    /// The personality of the adapter, for both sides.
    pub(crate) fn personality(mut self, name: &str) -> Case {
        for side in &mut self.sides {
            side.launch = Some(["--personality", name].map(str::to_owned).to_vec());
        }
        self
    }

    /// Both sides use TLS with a pre-shared key.
    pub(crate) fn encrypted(mut self) -> Case {
        for side in &mut self.sides {
            side.env.push(("VERBENA_TLS", "psk".to_owned()));
            side.env
                .push(("VERBENA_KEY", "a key of both sides".to_owned()));
        }
        self
    }

    /// Both sides use RoCEv2, and lose this many of a million packets that arrive.
    pub(crate) fn over_roce(mut self, loss: u32) -> Case {
        let address = match (self.topology, self.over_ipv6()) {
            (Topology::Loopback, false) => Some("127.0.0.1"),
            (Topology::Loopback, true) => Some("::1"),
            _ => None,
        };
        for side in &mut self.sides {
            side.env.push(("VERBENA_WIRE", "roce".to_owned()));
            if loss > 0 {
                side.env.push(("VERBENA_ROCE_LOSS", loss.to_string()));
            }
            // Without the setting, the loopback address is no device's.
            let device = address.map(|address| ("VERBENA_DEVICE", address.to_owned()));
            side.env.extend(device);
        }
        self
    }

    /// `verbena run` mounts the libraries over the system's, in a mount namespace.
    pub(crate) fn needs_mount_namespace(&self) -> bool {
        let mut options = self
            .sides
            .iter()
            .flat_map(|side| side.launch.iter().flatten());
        options.any(|option| option == NAMESPACE)
    }

    /// Runs in namespaces of its own, which need root.
    pub(crate) fn needs_namespaces(&self) -> bool {
        self.topology.is_separate() || self.mtu.is_some()
    }

    /// It starts these programs itself.
    pub(crate) fn starts(mut self, programs: &'static [&'static str]) -> Case {
        self.further = programs;
        self
    }

    pub(crate) fn at(mut self, place: Topology) -> Case {
        self.topology = place;
        self
    }

    pub(crate) fn figure(mut self, figure: Figure) -> Case {
        self.figure = figure;
        self
    }

    /// The programs that must be installed.
    pub(crate) fn programs(&self) -> impl Iterator<Item = &str> {
        let traced = self.sides.iter().any(|side| side.trace.is_some());
        let further = [
            (traced, "strace"),
            (
                self.topology != Topology::Loopback || self.mtu.is_some(),
                "ip",
            ),
        ];
        let own = self.sides.iter().map(Side::program);
        let own = own.chain(self.further.iter().copied());
        own.chain(
            further
                .into_iter()
                .filter_map(|(needed, name)| needed.then_some(name)),
        )
        // Programs in the stage's folder were put there by the run.
        .filter(|name| !name.starts_with(SCRIPTS))
    }

    /// Whether a side connects over IPv6.
    pub(crate) fn over_ipv6(&self) -> bool {
        let mut words = self.sides.iter().flat_map(|side| &side.command);
        words.any(|word| word.contains(PEER6))
    }
}
