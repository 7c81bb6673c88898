//! The holder of a lab (`verbena lab hold`): makes the namespaces, starts the supervisor and waits. When the supervisor ends, it ends what
//! runs in the hosts and removes the control socket.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};

use super::error::{LabError, failed};
use super::namespaces::{self, Host};
use super::order::{Order, Step};
use super::plan::Plan;
use super::{socket, sweep};

/// Runs the holder with the command at standard input; returns when the lab has ended.
pub fn hold() -> Result<(), LabError> {
    socket::raise_descriptor_limit();
    let command = std::io::stdin();
    let order = socket::receive::<Order>(&command).map_err(failed("no order"))?;
    let Some((order, _)) = order else {
        return Err(LabError::new("the command that starts the lab has ended"));
    };
    let mut lab = Lab {
        order,
        hosts: Vec::new(),
    };
    let started = lab.start();
    let supervisor = match started {
        Ok((supervisor, notes)) => {
            tell(&Step::Ready { notes });
            supervisor
        }
        Err(error) => {
            lab.clean();
            tell(&Step::Failed(error.to_string()));
            return Err(error);
        }
    };
    lab.wait(&supervisor);
    lab.clean();
    Ok(())
}

/// To the command, which may have ended.
fn tell(step: &Step) {
    let _ = socket::send(std::io::stdin(), step, &[]);
}

struct Lab {
    order: Order,
    hosts: Vec<Host>,
}

impl Lab {
    fn start(&mut self) -> Result<(OwnedFd, Vec<String>), LabError> {
        let plan = Plan::parse(&self.order.file, &self.order.default_name)?;
        // A signal to the command's group, as Ctrl-C, is not for the lab.
        let _ = rustix::process::setsid();
        let limit = namespaces::forbidding_limit();
        let mut user = None;
        if namespaces::enter_user_namespace(limit)? {
            tell(&Step::NeedsMaps);
            match socket::receive::<Step>(std::io::stdin()).map_err(failed("no maps"))? {
                Some((Step::Mapped, _)) => {}
                _ => return Err(LabError::new("the command that starts the lab has ended")),
            }
            user = Some(namespaces::own_user_namespace()?);
        }
        let mut notes = Vec::new();
        for (node, _) in plan.hosts() {
            let mut host = namespaces::make_host(&plan, node, limit)?;
            if let Some(user) = &user {
                let user = user.try_clone().map_err(failed("user namespace"))?;
                host.spaces.insert(0, ("user", user));
            }
            notes.append(&mut host.notes);
            self.hosts.push(host);
        }
        let supervisor = self.start_supervisor(&plan)?;
        match socket::receive::<Step>(&supervisor).map_err(failed("the supervisor"))? {
            Some((Step::Ready { .. }, _)) => Ok((supervisor, notes)),
            Some((Step::Failed(why), _)) => Err(LabError(why)),
            _ => Err(LabError::new(
                "the supervisor of the lab ended at its start",
            )),
        }
    }

    /// Starts it and passes the hosts to it. Their interfaces are its own from then on.
    fn start_supervisor(&mut self, plan: &Plan) -> Result<OwnedFd, LabError> {
        let what = "cannot start the supervisor";
        let (own, its) = socket::pair().map_err(failed(what))?;
        let program = std::env::current_exe().map_err(failed(what))?;
        let spawned = Command::new(program)
            .args(["lab", "supervise"])
            .stdin(Stdio::from(its))
            .spawn();
        // Its end is noticed by its socket; it is waited for by the system when this process ends.
        spawned.map_err(failed(what))?;
        socket::send(&own, &self.order, &[]).map_err(failed(what))?;
        for ((node, _), host) in plan.hosts().zip(&mut self.hosts) {
            let kinds = host.spaces.iter().map(|(kind, _)| (*kind).to_owned());
            let step = Step::Host {
                node,
                spaces: kinds.collect(),
            };
            socket::send(&own, &step, &host.fds()).map_err(failed(what))?;
            // So that the interfaces end with the supervisor.
            host.interfaces.clear();
            wait_taken(&own)?;
        }
        socket::send(&own, &Step::AllHosts, &[]).map_err(failed(what))?;
        Ok(own)
    }

    /// Waits for the end of the supervisor, or of the command if the lab is tied to it.
    fn wait(&self, supervisor: &OwnedFd) {
        let command = std::io::stdin();
        loop {
            let mut fds = vec![PollFd::new(supervisor, PollFlags::IN)];
            if self.order.tied {
                fds.push(PollFd::new(&command, PollFlags::IN));
            }
            match poll(&mut fds, None) {
                Ok(_) => return,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    fn clean(&mut self) {
        let nets = self.hosts.drain(..).flat_map(|host| host.spaces);
        let nets: Vec<OwnedFd> = nets
            .filter(|(kind, _)| *kind == "net")
            .map(|(_, fd)| fd)
            .collect();
        sweep::sweep(&nets, false);
        remove_own(Path::new(&self.order.socket));
    }
}

/// Waits until a host has been taken, so that the buffer of the socket is enough for any number of hosts.
fn wait_taken(supervisor: &OwnedFd) -> Result<(), LabError> {
    match socket::receive::<Step>(supervisor).map_err(failed("the supervisor"))? {
        Some((Step::Ready { .. }, _)) => Ok(()),
        Some((Step::Failed(why), _)) => Err(LabError(why)),
        _ => Err(LabError::new(
            "the supervisor of the lab ended at its start",
        )),
    }
}

/// Removes a socket at which no process listens any more: another lab may have taken the place.
pub(crate) fn remove_own(path: &Path) {
    if socket::dial(path).is_err() {
        let _ = std::fs::remove_file(path);
    }
}

/// Starts a holder and waits until the lab is ready; returns notes, and the socket that a tied lab ends with.
pub fn start(order: &Order) -> Result<(OwnedFd, Vec<String>), LabError> {
    let what = "cannot start the lab";
    let (own, its) = socket::pair().map_err(failed(what))?;
    let program = std::env::current_exe().map_err(failed(what))?;
    let errors = if order.tied {
        Stdio::inherit()
    } else {
        Stdio::null()
    };
    let mut child = Command::new(program)
        .args(["lab", "hold"])
        .stdin(Stdio::from(its))
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn()
        .map_err(failed(what))?;
    socket::send(own.as_fd(), order, &[]).map_err(failed(what))?;
    let answer = loop {
        match socket::receive::<Step>(&own).map_err(failed(what))? {
            Some((Step::NeedsMaps, _)) => {
                namespaces::write_maps(child.id())?;
                socket::send(&own, &Step::Mapped, &[]).map_err(failed(what))?;
            }
            Some((Step::Ready { notes }, _)) => return Ok((own, notes)),
            Some((Step::Failed(why), _)) => break LabError(why),
            Some(_) => {}
            None => break LabError::new("the holder of the lab ended at its start"),
        }
    };
    // Until it has cleaned up.
    let _ = child.wait();
    Err(answer)
}

/// Waits until the other side of a socket has closed it.
pub fn wait_closed(socket: &OwnedFd) {
    // Nothing is sent after the start.
    while let Ok(Some(_)) = socket::receive::<Step>(socket) {}
}

/// Waits until these processes have ended.
pub fn wait_ended(processes: &[i32]) {
    for process in processes {
        let pid = rustix::process::Pid::from_raw(*process);
        let opened = pid.map(|pid| {
            let flags = rustix::process::PidfdFlags::empty();
            rustix::process::pidfd_open(pid, flags)
        });
        if let Some(Ok(fd)) = opened {
            let mut fds = [PollFd::new(&fd, PollFlags::IN)];
            while let Err(rustix::io::Errno::INTR) = poll(&mut fds, None) {}
        }
    }
}
