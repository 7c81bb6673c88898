//! The namespaces of a lab: one user namespace for all hosts, and for each host a network, host name, IPC and mount namespace with its
//! interfaces. They have no process and end with the descriptors of holder and supervisor, and with the programs in them.

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};
use verbena_split::lan::{Queue, Tap};

use super::error::{LabError, failed};
use super::plan::Plan;

/// Where programs keep shared memory; a host has its own.
const SHM: &str = "/dev/shm";
const HOSTS: &str = "/etc/hosts";

/// A namespace's kind, by the name of its file in `/proc/PID/ns`.
pub(crate) fn kind(name: &str) -> Option<LinkNameSpaceType> {
    Some(match name {
        "user" => LinkNameSpaceType::User,
        "net" => LinkNameSpaceType::Network,
        "uts" => LinkNameSpaceType::HostNameAndNISDomainName,
        "ipc" => LinkNameSpaceType::InterProcessCommunication,
        "mnt" => LinkNameSpaceType::Mount,
        _ => return None,
    })
}

#[allow(
    deprecated,
    reason = "its successor is unsafe for a flag that shares descriptors among threads, which is not used"
)]
fn unshare(flags: UnshareFlags) -> std::io::Result<()> {
    Ok(rustix::thread::unshare(flags)?)
}

fn open(thread: &str, kind: &str) -> Result<OwnedFd, LabError> {
    let path = format!("/proc/{thread}/ns/{kind}");
    let file = std::fs::File::open(&path).map_err(failed(&path))?;
    Ok(file.into())
}

/// Moves this process, which has one thread, into a new user namespace. False if it is root and goes on without one. `limit` is that of
/// [`forbidding_limit`].
pub(crate) fn enter_user_namespace(limit: &str) -> Result<bool, LabError> {
    match unshare(UnshareFlags::NEWUSER) {
        Ok(()) => Ok(true),
        Err(_) if rustix::process::geteuid().is_root() => Ok(false),
        Err(error) => Err(LabError(format!(
            "this system does not let a user create a user namespace ({error}): {limit}"
        ))),
    }
}

/// The user namespace of this process.
pub(crate) fn own_user_namespace() -> Result<OwnedFd, LabError> {
    open("self", "user")
}

/// Which of the known limits forbids namespaces, if one does. To be asked before a user namespace is entered, which has limits of its own
/// besides those of the ones above it.
pub(crate) fn forbidding_limit() -> &'static str {
    let is = |path: &str, value: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/{path}"));
        text.is_ok_and(|text| text.trim() == value)
    };
    if is("user/max_user_namespaces", "0") {
        "the limit user.max_user_namespaces is 0 (sysctl)"
    } else if is("user/max_net_namespaces", "0") {
        "the limit user.max_net_namespaces is 0 (sysctl)"
    } else if is("kernel/unprivileged_userns_clone", "0") {
        "the limit kernel.unprivileged_userns_clone is 0 (sysctl)"
    } else if is("kernel/apparmor_restrict_unprivileged_userns", "1") {
        "AppArmor restricts it to programs with a profile (sysctl kernel.apparmor_restrict_unprivileged_userns is 1)"
    } else {
        "probably a seccomp filter or a security module, as in a container; root outside of it can create the lab"
    }
}

/// Writes the maps of a process in a new user namespace: root of it is the caller. Root keeps all users and groups that it has.
pub(crate) fn write_maps(process: u32) -> Result<(), LabError> {
    let put = |file: &str, text: &str| {
        let path = format!("/proc/{process}/{file}");
        std::fs::write(&path, text).map_err(failed(format!("cannot write {path}")))
    };
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    if user.is_root() {
        let whole = |file: &str| put(file, &identity(file));
        if whole("gid_map").is_ok() && whole("uid_map").is_ok() {
            return Ok(());
        }
    }
    // Either may have been written above.
    let _ = put("setgroups", "deny");
    let single = |file: &str, id: u32| {
        let path = format!("/proc/{process}/{file}");
        let is_written = std::fs::read_to_string(path).is_ok_and(|map| !map.trim().is_empty());
        match is_written {
            true => Ok(()),
            false => put(file, &format!("0 {id} 1")),
        }
    };
    single("gid_map", group.as_raw())?;
    single("uid_map", user.as_raw())
}

/// Every identifier that this process's namespace has, mapped to itself.
fn identity(file: &str) -> String {
    let own = std::fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
    let lines = own.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (inside, count) = (words.next()?, words.nth(1)?);
        Some(format!("{inside} {inside} {count}\n"))
    });
    lines.collect()
}

/// A host: its namespaces by kind, and its interfaces.
pub(crate) struct Host {
    pub(crate) spaces: Vec<(&'static str, OwnedFd)>,
    pub(crate) interfaces: Vec<Queue>,
    pub(crate) notes: Vec<String>,
}

impl Host {
    pub(crate) fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let spaces = self.spaces.iter().map(|(_, fd)| fd.as_fd());
        spaces
            .chain(self.interfaces.iter().map(AsFd::as_fd))
            .collect()
    }
}

/// Makes the namespaces and interfaces of a host.
pub(crate) fn make_host(plan: &Plan, node: usize, limit: &str) -> Result<Host, LabError> {
    // A thread of its own moves into the namespaces, which stay when it ends.
    let made = std::thread::scope(|scope| scope.spawn(|| make_here(plan, node, limit)).join());
    made.unwrap_or_else(|_| Err(LabError::new("the thread that makes a host panicked")))
}

fn make_here(plan: &Plan, node: usize, limit: &str) -> Result<Host, LabError> {
    let name = &plan.nodes[node].name;
    let flags = UnshareFlags::NEWNET | UnshareFlags::NEWUTS | UnshareFlags::NEWIPC;
    unshare(flags).map_err(|error| {
        LabError(format!(
            "host {name}: this system does not allow a network namespace ({error}): {limit}"
        ))
    })?;
    let mut kinds = vec!["net", "uts", "ipc"];
    let mut notes = Vec::new();
    // Unlike the others, these are a convenience.
    if let Err(error) = rustix::system::sethostname(name.as_bytes()) {
        notes.push(format!("host {name}: no host name of its own ({error})"));
    }
    match make_mounts(plan) {
        Ok(()) => kinds.push("mnt"),
        Err(error) => notes.push(format!(
            "host {name}: no {SHM} and {HOSTS} of its own ({error})"
        )),
    }
    let interfaces = make_interfaces(plan, node)?;
    // Echo sockets of users, as on other systems.
    let _ = std::fs::write("/proc/sys/net/ipv4/ping_group_range", "0 2147483647");
    let spaces = kinds
        .into_iter()
        .map(|kind| Ok((kind, open("thread-self", kind)?)));
    let spaces: Result<Vec<_>, LabError> = spaces.collect();
    Ok(Host {
        spaces: spaces?,
        interfaces,
        notes,
    })
}

/// A mount namespace in which shared memory is the host's, and the names of all hosts are known.
fn make_mounts(plan: &Plan) -> std::io::Result<()> {
    unshare(UnshareFlags::NEWNS)?;
    // Later mounts of the system still arrive here, and none of these leaves.
    let down = MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM;
    mount_change("/", down)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("lab", SHM, "tmpfs", flags, c"mode=1777")?;
    let mut text = "127.0.0.1 localhost\n::1 localhost\n".to_owned();
    for (index, host) in plan.hosts() {
        for (_, _, end) in plan.links_of(index) {
            for prefix in &end.addresses {
                text += &format!("{} {}\n", prefix.address(), host.name);
            }
        }
    }
    let file = format!("{SHM}/.lab-hosts");
    std::fs::write(&file, text)?;
    mount_bind(file.as_str(), HOSTS)?;
    Ok(())
}

fn make_interfaces(plan: &Plan, node: usize) -> Result<Vec<Queue>, LabError> {
    let name = &plan.nodes[node].name;
    let mut queues = Vec::new();
    let mut lines = "link set lo up\n".to_owned();
    for (number, (_, link, end)) in plan.links_of(node).enumerate() {
        let interface = format!("eth{number}");
        let tap = Tap::create(&interface, 1);
        let tap = tap.map_err(|error| LabError(format!("host {name}: {error}")))?;
        queues.extend(tap.into_queues());
        lines += &format!(
            "link set {interface} address {} mtu {}\n",
            end.mac, link.mtu
        );
        for prefix in &end.addresses {
            let v6 = if prefix.address().is_ipv6() {
                " nodad"
            } else {
                ""
            };
            lines += &format!("addr add {prefix} dev {interface}{v6}\n");
        }
        lines += &format!("link set {interface} up\n");
    }
    for gateway in &plan.nodes[node].gateways {
        lines += &format!("route add default via {gateway}\n");
    }
    configure(&lines).map_err(|why| LabError(format!("host {name}: {why}")))?;
    Ok(queues)
}

/// Lets `ip` do this in the namespaces of the calling thread.
fn configure(lines: &str) -> Result<(), String> {
    let spawned = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let needs = |error| format!("cannot start `ip` (of iproute2), which sets addresses: {error}");
    let mut child = spawned.map_err(needs)?;
    if let Some(mut input) = child.stdin.take() {
        // A failure shows in the exit status.
        let _ = input.write_all(lines.as_bytes());
    }
    let output = child
        .wait_with_output()
        .map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said: Vec<&str> = said.lines().map(str::trim).collect();
    Err(format!("ip refused the addresses: {}", said.join(" ")))
}
