//! The supervisor of a lab (`verbena lab supervise`): one thread that moves frames between the hosts' interfaces and the fabric, follows the
//! timeline and answers commands. When the holder ends, it ends what runs in the hosts and removes the control socket.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbena_split::lan::Queue;

use super::control::{Reply, Request, file_of};
use super::error::{LabError, failed};
use super::fault::Change;
use super::holder::remove_own;
use super::network::Network;
use super::order::{Order, Step};
use super::plan::Plan;
use super::pump::{Io, Port, Pump, Served};
use super::snapshot::Snapshot;
use super::{socket, sweep};

/// Limit on connections of commands.
const MOST_CLIENTS: usize = 64;

/// What a running lab or switch has besides its network and ports.
#[derive(Debug)]
pub(crate) struct Clients {
    listener: OwnedFd,
    all: Vec<Connected>,
}

#[derive(Debug)]
struct Connected {
    fd: OwnedFd,
    /// The link whose frames are copied to it.
    capture: Option<usize>,
}

/// What a command changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Nothing,
    /// Faults, links or captures.
    Changed,
    /// To end.
    Down,
}

impl Clients {
    pub(crate) fn new(listener: OwnedFd) -> Clients {
        Clients {
            listener,
            all: Vec::new(),
        }
    }

    pub(crate) fn fds(&self) -> impl Iterator<Item = std::os::fd::BorrowedFd<'_>> {
        core::iter::once(self.listener.as_fd())
            .chain(self.all.iter().map(|client| client.fd.as_fd()))
    }

    pub(crate) fn has_captures(&self) -> bool {
        self.all.iter().any(|client| client.capture.is_some())
    }

    /// Accepts, and answers one request of each client that sent one. `ready` has an entry for each of [`Clients::fds`].
    pub(crate) fn serve(
        &mut self,
        ready: &[bool],
        mut answer: impl FnMut(&Request) -> Answer,
    ) -> Outcome {
        let mut outcome = Outcome::Nothing;
        let mut gone = Vec::new();
        for (index, client) in self.all.iter_mut().enumerate() {
            if !ready.get(index + 1).copied().unwrap_or(false) {
                continue;
            }
            let Ok(Some((request, _))) = socket::receive::<Request>(&client.fd) else {
                gone.push(index);
                continue;
            };
            let (reply, fds, done, capture) = answer(&request);
            client.capture = client.capture.or(capture);
            let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
            if socket::send(&client.fd, &reply, &fds).is_err() {
                gone.push(index);
            }
            if done != Outcome::Nothing {
                outcome = done;
            }
        }
        for index in gone.into_iter().rev() {
            let client = self.all.remove(index);
            if client.capture.is_some() && outcome == Outcome::Nothing {
                outcome = Outcome::Changed;
            }
        }
        if ready.first().copied().unwrap_or(false)
            && let Ok(fd) =
                rustix::net::accept_with(&self.listener, rustix::net::SocketFlags::CLOEXEC)
            && socket::is_same_user(&fd)
            && self.all.len() < MOST_CLIENTS
        {
            self.all.push(Connected { fd, capture: None });
        }
        outcome
    }

    /// Sends copies of frames to the clients that asked for them; a client that does not read loses some.
    pub(crate) fn send_copies(&self, network: &mut Network) {
        while let Some(copy) = network.fabric.take_mirrored() {
            let nanos = u64::try_from(copy.at.as_nanos()).unwrap_or(u64::MAX);
            let packet = [
                &nanos.to_be_bytes()[..],
                &[copy.direction as u8],
                &copy.frame.bytes,
            ]
            .concat();
            let wanted = |client: &&Connected| {
                let link = client.capture.map(|link| network.link_id(link));
                link == Some(copy.link)
            };
            for client in self.all.iter().filter(wanted) {
                let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
                let _ = rustix::net::send(&client.fd, &packet, flags);
            }
        }
    }

    /// Sets which links are mirrored.
    pub(crate) fn mirror(&self, network: &mut Network) {
        for link in 0..network.plan().links.len() {
            let wanted = self.all.iter().any(|client| client.capture == Some(link));
            let id = network.link_id(link);
            network.fabric.set_mirrored(id, wanted);
        }
    }
}

/// A capture packet: nanoseconds, direction and frame.
pub fn parse_copy(packet: &[u8]) -> Option<(Duration, u8, &[u8])> {
    let (nanos, rest) = packet.split_first_chunk::<8>()?;
    let (direction, frame) = rest.split_first()?;
    Some((
        Duration::from_nanos(u64::from_be_bytes(*nanos)),
        *direction,
        frame,
    ))
}

/// The time until the next thing to do, for poll(2).
pub(crate) fn timeout(
    now: Duration,
    due: impl IntoIterator<Item = Option<Duration>>,
) -> Option<Timespec> {
    let next = due.into_iter().flatten().min()?;
    Timespec::try_from(next.saturating_sub(now)).ok()
}

/// Waits for any of these; which are ready.
pub(crate) fn wait<'a>(
    fds: impl Iterator<Item = std::os::fd::BorrowedFd<'a>>,
    timeout: Option<&Timespec>,
) -> Vec<bool> {
    let mut all: Vec<PollFd<'_>> = fds
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    match poll(&mut all, timeout) {
        Ok(_) => all.iter().map(|fd| !fd.revents().is_empty()).collect(),
        Err(_) => vec![false; all.len()],
    }
}

/// The namespaces of a host, by node.
struct HostSpaces {
    node: usize,
    spaces: Vec<(String, OwnedFd)>,
}

struct Supervisor {
    network: Network,
    hosts: Vec<HostSpaces>,
    pump: Pump,
    /// The link of each port.
    port_links: Vec<usize>,
    clients: Clients,
    socket: PathBuf,
}

/// Runs the supervisor with the holder at standard input; returns when the lab has ended.
pub fn supervise() -> Result<(), LabError> {
    socket::raise_descriptor_limit();
    let started = Supervisor::start();
    let mut supervisor = match started {
        Ok(supervisor) => supervisor,
        Err(error) => {
            let _ = socket::send(std::io::stdin(), &Step::Failed(error.to_string()), &[]);
            return Err(error);
        }
    };
    let notes = Vec::new();
    let _ = socket::send(std::io::stdin(), &Step::Ready { notes }, &[]);
    supervisor.run();
    supervisor.clean();
    Ok(())
}

fn next_step() -> Result<(Step, Vec<OwnedFd>), LabError> {
    let step = socket::receive::<Step>(std::io::stdin()).map_err(failed("the holder"))?;
    step.ok_or_else(|| LabError::new("the holder of the lab has ended"))
}

impl Supervisor {
    fn start() -> Result<Supervisor, LabError> {
        let order = socket::receive::<Order>(std::io::stdin()).map_err(failed("no order"))?;
        let Some((order, _)) = order else {
            return Err(LabError::new("the holder of the lab has ended"));
        };
        let plan = Plan::parse(&order.file, &order.default_name)?;
        let network = Network::new(plan)?;
        let (mut hosts, mut queues) = (Vec::new(), Vec::new());
        while let (Step::Host { node, spaces }, fds) = next_step()? {
            let mut fds = fds.into_iter();
            let spaces = spaces.into_iter().zip(fds.by_ref()).collect();
            hosts.push(HostSpaces { node, spaces });
            let links = network.plan().links_of(node).map(|(link, _, _)| link);
            for (number, (link, fd)) in links.zip(fds).enumerate() {
                queues.push((node, link, Queue::from_fd(fd, format!("eth{number}"))));
            }
            let taken = Step::Ready { notes: Vec::new() };
            socket::send(std::io::stdin(), &taken, &[]).map_err(failed("the holder"))?;
        }
        let (mut ports, mut port_links) = (Vec::new(), Vec::new());
        for (node, link, at) in network.host_ports() {
            let found = queues.iter().position(|(n, l, _)| (*n, *l) == (node, link));
            let io = found.map_or(Io::Absent, |found| Io::Tap(queues.swap_remove(found).2));
            ports.push(Port { at, io });
            port_links.push(link);
        }
        let socket = PathBuf::from(order.socket);
        let clients = Clients::new(socket::serve(&socket)?);
        let mut supervisor = Supervisor {
            network,
            hosts,
            pump: Pump::new(ports),
            port_links,
            clients,
            socket,
        };
        supervisor.changed();
        Ok(supervisor)
    }

    /// After faults, links or captures have changed.
    fn changed(&mut self) {
        self.clients.mirror(&mut self.network);
        let exact = self.network.has_faults() || self.clients.has_captures();
        self.pump.set_exact(exact);
        for (port, link) in self.pump.ports.iter().zip(&self.port_links) {
            if let Io::Tap(queue) = &port.io {
                // Programs see a cut as a link that is down; without it they only lose frames.
                let _ = queue.set_carrier(self.network.is_up(*link));
            }
        }
    }

    fn run(&mut self) {
        let holder = std::io::stdin();
        loop {
            let due = [self.network.fabric.next_event(), self.network.next_event()];
            let timeout = timeout(self.pump.now(), due);
            let fixed = core::iter::once(holder.as_fd());
            let commands = self.clients.fds();
            let count = self.clients.fds().count();
            let ports = self.pump.ports.iter().filter_map(Port::fd);
            let ready = wait(fixed.chain(commands).chain(ports), timeout.as_ref());
            if ready[0] {
                return;
            }
            let now = self.pump.now();
            if self.network.run_events(now) {
                self.changed();
            }
            self.network.fabric.advance(now);
            self.pump.deliver(&mut self.network.fabric);
            let open = self.pump.ports.iter().enumerate();
            let open: Vec<usize> = open
                .filter_map(|(index, port)| port.fd().map(|_| index))
                .collect();
            for (index, ready) in open.into_iter().zip(&ready[1 + count..]) {
                if *ready && self.pump.serve(index, &mut self.network.fabric) == Served::Closed {
                    self.pump.ports[index].io = Io::Absent;
                }
            }
            self.clients.send_copies(&mut self.network);
            match self.serve_clients(&ready[1..=count]) {
                Outcome::Nothing => {}
                Outcome::Changed => self.changed(),
                Outcome::Down => return,
            }
        }
    }

    fn serve_clients(&mut self, ready: &[bool]) -> Outcome {
        let now = self.pump.now();
        let (network, hosts) = (&mut self.network, &self.hosts);
        let outcome = self.clients.serve(ready, |request| match request {
            Request::Enter(name) => match enter(network.plan(), hosts, name) {
                Ok((kinds, fds)) => (Reply::Entered(kinds), fds, Outcome::Nothing, None),
                Err(error) => (
                    Reply::Failed(error.to_string()),
                    Vec::new(),
                    Outcome::Nothing,
                    None,
                ),
            },
            Request::Show => show(&network.snapshot(now, processes())),
            other => answer(network, other, now),
        });
        self.pump.deliver(&mut self.network.fabric);
        outcome
    }

    fn clean(&mut self) {
        let spaces = self.hosts.drain(..).flat_map(|host| host.spaces);
        let nets: Vec<OwnedFd> = spaces
            .filter(|(kind, _)| kind == "net")
            .map(|(_, fd)| fd)
            .collect();
        sweep::sweep(&nets, true);
        remove_listening(&self.socket);
    }
}

/// Of this process and the holder.
fn processes() -> Vec<i32> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    core::iter::once(own).chain(parent).collect()
}

/// Removes the socket at which this process listens.
pub(crate) fn remove_listening(path: &Path) {
    let _ = std::fs::remove_file(path);
    remove_own(path);
}

fn enter(
    plan: &Plan,
    hosts: &[HostSpaces],
    name: &str,
) -> Result<(Vec<String>, Vec<OwnedFd>), LabError> {
    let found = hosts.iter().find(|host| plan.nodes[host.node].name == name);
    let Some(host) = found else {
        let all = plan.hosts().map(|(_, node)| node.name.as_str());
        let all: Vec<&str> = all.collect();
        return Err(LabError(format!(
            "there is no host `{name}`; hosts: {}",
            all.join(", ")
        )));
    };
    let mut kinds = Vec::new();
    let mut fds = Vec::new();
    for (kind, fd) in &host.spaces {
        kinds.push(kind.clone());
        fds.push(fd.try_clone().map_err(failed("a namespace"))?);
    }
    Ok((kinds, fds))
}

/// An answer: the descriptors that go with it, what has changed, and the link that is to be captured.
pub(crate) type Answer = (Reply, Vec<OwnedFd>, Outcome, Option<usize>);

/// Answers with the state.
pub(crate) fn show(snapshot: &Snapshot) -> Answer {
    match file_of(snapshot) {
        Ok(file) => (Reply::Shown, vec![file], Outcome::Nothing, None),
        Err(error) => (
            Reply::Failed(error.to_string()),
            Vec::new(),
            Outcome::Nothing,
            None,
        ),
    }
}

/// Answers what labs and switches have in common besides the state.
pub(crate) fn answer(network: &mut Network, request: &Request, now: Duration) -> Answer {
    let done = |reply, outcome, capture| (reply, Vec::new(), outcome, capture);
    let failed = |error: LabError| done(Reply::Failed(error.to_string()), Outcome::Nothing, None);
    match request {
        Request::Show => show(&network.snapshot(now, Vec::new())),
        Request::Fault { link, change } => {
            let parsed = network.plan().link(link);
            match parsed.and_then(|link| Ok((link, Change::parse(change)?))) {
                Ok((link, change)) => {
                    let text = network.change(link, &change, now);
                    done(Reply::Done(text), Outcome::Changed, None)
                }
                Err(error) => failed(error),
            }
        }
        Request::Capture(link) => match network.plan().link(link) {
            Ok(index) => done(Reply::Done(link.clone()), Outcome::Changed, Some(index)),
            Err(error) => failed(error),
        },
        Request::Down => done(Reply::Done("ending".to_owned()), Outcome::Down, None),
        Request::Enter(name) => failed(LabError(format!("there is no host `{name}`"))),
    }
}
