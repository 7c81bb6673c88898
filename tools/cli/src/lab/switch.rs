//! A software switch (`verbena switch`): TAP interfaces and cables at one learning switch. A cable is a connection to a local SEQPACKET
//! socket with one frame in each packet; the number of cables is limited, and a cable that is closed leaves a port that is cut.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use verbena_fabric::{Mac, PortMode};
use verbena_split::lan::Tap;

use super::control::Request;
use super::error::{LabError, failed};
use super::fault::Change;
use super::network::Network;
use super::plan::{End, Kind, Link, Node, Plan, check_name};
use super::pump::{Io, Port, Pump, Served};
use super::socket;
use super::supervisor::{Clients, Outcome, answer, remove_listening, show, timeout, wait};

/// Limit on the cables of a switch.
pub const MOST_CABLES: usize = 128;

/// What a switch is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwitchPlan {
    /// Where commands are received.
    pub control: PathBuf,
    /// Where cables are received.
    pub cable: Option<PathBuf>,
    /// Limit on cables.
    pub cables: usize,
    /// Frames of cables have a virtio-net header before them.
    pub headers: bool,
    /// Interfaces to create.
    pub taps: Vec<String>,
    /// The seed of faults.
    pub seed: u64,
}

/// The plan of the network: the switch, and a host for each interface and cable.
fn plan(options: &SwitchPlan) -> Result<Plan, LabError> {
    let node = |name: String, kind| Node {
        name,
        kind,
        gateways: Vec::new(),
        flood_limit: None,
        age: None,
        routes: Vec::new(),
    };
    let mut plan = Plan {
        name: "switch".to_owned(),
        seed: options.seed,
        nodes: vec![node("switch".to_owned(), Kind::Switch)],
        links: Vec::new(),
        events: Vec::new(),
    };
    let taps = options.taps.iter().map(|tap| (tap.clone(), ""));
    let cables = (0..options.cables).map(|number| (format!("cable{number}"), "cut"));
    for (name, faults) in taps.chain(cables) {
        check_name("port", &name)?;
        if plan.nodes.iter().any(|node| node.name == name) {
            return Err(LabError(format!("two ports have the name `{name}`")));
        }
        let index = plan.nodes.len();
        plan.nodes.push(node(name.clone(), Kind::Host));
        let end = |node| End {
            node,
            addresses: Vec::new(),
            mode: PortMode::Plain,
            mac: Mac::local(node as u64),
        };
        plan.links.push(Link {
            name,
            ends: [end(index), end(0)],
            mtu: 1500,
            faults: Change::parse(faults)?,
        });
    }
    Ok(plan)
}

struct Switch {
    network: Network,
    pump: Pump,
    clients: Clients,
    cables: Option<OwnedFd>,
    first_cable: usize,
    headers: bool,
}

/// Runs a switch until `stop` is readable or a command ends it. `ready` is called when it serves.
pub fn run(
    options: &SwitchPlan,
    mut stop: UnixStream,
    ready: impl FnOnce(),
) -> Result<(), LabError> {
    let network = Network::new(plan(options)?)?;
    let mut ports = Vec::new();
    for (index, (_, _, at)) in network.host_ports().into_iter().enumerate() {
        let io = match options.taps.get(index) {
            Some(name) => {
                let tap = Tap::create(name, 1).map_err(|error| LabError(error.to_string()))?;
                tap.interface()
                    .set_up(true)
                    .map_err(|error| LabError(error.to_string()))?;
                let queue = tap.into_queues().pop();
                queue.map_or(Io::Absent, Io::Tap)
            }
            None => Io::Absent,
        };
        ports.push(Port { at, io });
    }
    let control = socket::serve(&options.control)?;
    let cables = match &options.cable {
        Some(path) => {
            Some(socket::serve(path).inspect_err(|_| remove_listening(&options.control))?)
        }
        None => None,
    };
    let mut switch = Switch {
        network,
        pump: Pump::new(ports),
        clients: Clients::new(control),
        cables,
        first_cable: options.taps.len(),
        headers: options.headers,
    };
    switch.changed();
    ready();
    let done = switch.serve(&mut stop);
    remove_listening(&options.control);
    if let Some(path) = &options.cable {
        remove_listening(path);
    }
    done
}

impl Switch {
    fn changed(&mut self) {
        self.clients.mirror(&mut self.network);
        let exact = self.network.has_faults() || self.clients.has_captures();
        self.pump.set_exact(exact);
    }

    fn serve(&mut self, stop: &mut UnixStream) -> Result<(), LabError> {
        stop.set_nonblocking(true).map_err(failed("signals"))?;
        loop {
            let timeout = timeout(self.pump.now(), [self.network.fabric.next_event()]);
            let count = self.clients.fds().count();
            let fixed = core::iter::once(stop.as_fd());
            let ports = self.pump.ports.iter().filter_map(Port::fd);
            let open = self.pump.ports.iter().enumerate();
            let open: Vec<usize> = open
                .filter_map(|(index, port)| port.fd().map(|_| index))
                .collect();
            let cables = self.cables.iter().map(AsFd::as_fd);
            let all = fixed.chain(self.clients.fds()).chain(ports).chain(cables);
            let ready = wait(all, timeout.as_ref());
            if ready[0]
                && !matches!(stop.read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
            {
                return Ok(());
            }
            let now = self.pump.now();
            self.network.fabric.advance(now);
            self.pump.deliver(&mut self.network.fabric);
            for (index, ready) in open.iter().zip(&ready[1 + count..]) {
                if *ready && self.pump.serve(*index, &mut self.network.fabric) == Served::Closed {
                    self.pump.ports[*index].io = Io::Absent;
                    self.network.set_up(*index, false, now);
                }
            }
            if ready.get(1 + count + open.len()).copied().unwrap_or(false) {
                self.accept();
            }
            self.clients.send_copies(&mut self.network);
            let network = &mut self.network;
            let own = rustix::process::getpid().as_raw_nonzero().get();
            let outcome = self
                .clients
                .serve(&ready[1..=count], |request| match request {
                    Request::Show => {
                        let mut snapshot = network.snapshot(now, vec![own]);
                        hide_unused(&mut snapshot);
                        show(&snapshot)
                    }
                    other => answer(network, other, now),
                });
            self.pump.deliver(&mut self.network.fabric);
            match outcome {
                Outcome::Nothing => {}
                Outcome::Changed => self.changed(),
                Outcome::Down => return Ok(()),
            }
        }
    }

    /// A new cable takes the first free port; without one it is closed.
    fn accept(&mut self) {
        let flags = rustix::net::SocketFlags::CLOEXEC;
        let Some(Ok(fd)) = self
            .cables
            .as_ref()
            .map(|fd| rustix::net::accept_with(fd, flags))
        else {
            return;
        };
        if !socket::is_same_user(&fd) {
            return;
        }
        let ports = self.pump.ports.iter().enumerate().skip(self.first_cable);
        let free = ports.filter(|(_, port)| matches!(port.io, Io::Absent));
        let free = free.map(|(index, _)| index).next();
        if let Some(index) = free {
            self.pump.ports[index].io = Io::Cable(fd, self.headers);
            let now = self.pump.now();
            self.network.set_up(index, true, now);
        }
    }
}

/// Leaves out cables that were never used.
fn hide_unused(snapshot: &mut super::snapshot::Snapshot) {
    let mut kept = Vec::new();
    let mut numbers = vec![0];
    let is_used = |link: &super::snapshot::LinkView| {
        link.up || link.traffic.iter().any(|traffic| traffic.frames > 0)
    };
    snapshot.links.retain(is_used);
    for link in &mut snapshot.links {
        numbers.push(link.ends[0]);
        link.ends = [numbers.len() - 1, 0];
    }
    for number in numbers {
        kept.push(snapshot.nodes[number].clone());
    }
    snapshot.nodes = kept;
}
