//! A unit between its LAN and the hosts: each in a network namespace, connected by veth pairs.
//!
//! ```text
//!   host 1 ── fab ═══ fab1 ─┐
//!    net1                   unit ── lan0 ═══ eth0 ── LAN
//!   host 2 ── fab ═══ fab2 ─┘
//!    net2
//! ```

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock};

use serde_json::Value;

use crate::blob;
use crate::program::{Running, sh};
use crate::space::{self, Netns, wait_until};

pub(crate) const VERBENA: &str = env!("CARGO_BIN_EXE_verbena");
/// The LAN's station.
pub(crate) const LAN: &str = "192.168.9.1";
pub(crate) const LAN6: &str = "fd00:9::1";

/// The drivers' timeout where a test waits for it, in seconds.
pub(crate) const SHORT: &str = "2";

/// The carrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CarrierKind {
    Iwarp,
    Udp,
    Ethernet,
}

/// Programs that these tests need besides those of all tests with namespaces, with their Debian packages.
const PROGRAMS: [(&str, &str); 4] = [
    ("iperf3", "iperf3"),
    ("curl", "curl"),
    ("sha256sum", "coreutils"),
    ("bash", "bash"),
];

/// Runs a test where interfaces can be created, in parallel with others. `name` is the test's name for `cargo test`.
pub(crate) fn privileged(name: &str, test: impl FnOnce()) {
    // A failed test does not affect others.
    let _beside = PROCESSORS.read().unwrap_or_else(PoisonError::into_inner);
    with_programs(name, || {
        space::privileged(name, test);
    });
}

/// The same for a test that measures loss or processor time, or uses all of it: it runs alone.
pub(crate) fn exclusive(name: &str, test: impl FnOnce()) {
    let _alone = PROCESSORS.write().unwrap_or_else(PoisonError::into_inner);
    with_programs(name, || {
        space::privileged(name, test);
    });
}

/// Runs the cases of a test at once, since they mostly wait.
pub(crate) fn in_parallel<T: Send>(cases: impl IntoIterator<Item = T>, test: impl Fn(T) + Sync) {
    let test = &test;
    std::thread::scope(|scope| {
        for case in cases {
            scope.spawn(move || test(case));
        }
    });
}

/// Whether the long set of tests runs, too (`cargo xtask test --long`).
pub(crate) fn runs_long_set() -> bool {
    std::env::var_os("LONG_TESTS").is_some()
}

/// Runs a test in parallel with others, always in a user namespace.
pub(crate) fn unprivileged(name: &str, test: impl FnOnce()) {
    let _beside = PROCESSORS.read().unwrap_or_else(PoisonError::into_inner);
    with_programs(name, || space::unprivileged(name, test));
}

/// Held for writing by tests that need the processors for themselves.
static PROCESSORS: RwLock<()> = RwLock::new(());

fn with_programs(name: &str, what: impl FnOnce()) {
    let missing = PROGRAMS
        .iter()
        .find(|(program, _)| Command::new(program).arg("--version").output().is_err());
    match missing {
        Some((program, package)) => {
            let why = format!("{program} is missing (Debian package {package})");
            space::skip(name, &why);
        }
        None => what(),
    }
}

/// A folder that is removed on drop.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("verbena-split-{}-{n}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Namespaces and links.
pub(crate) struct World {
    pub(crate) carrier: CarrierKind,
    pub(crate) lan: Netns,
    pub(crate) unit: Netns,
    hosts: Vec<Netns>,
    /// The drivers' timeout in seconds: long, so that a busy machine does not cause one, and [`SHORT`] in tests that wait for it.
    pub(crate) timeout: &'static str,
    /// Logs and status sockets; dropped last.
    pub(crate) folder: Folder,
}

impl World {
    /// With this number of hosts, counted from 1.
    pub(crate) fn new(way: CarrierKind, hosts: usize) -> World {
        let world = World {
            carrier: way,
            lan: Netns::new(),
            unit: Netns::new(),
            hosts: (0..hosts).map(|_| Netns::new()).collect(),
            timeout: "10",
            folder: Folder::new(),
        };
        world.unit.connect_veth("lan0", &world.lan, "eth0");
        world.lan.ip(&format!("addr add {LAN}/24 dev eth0"));
        world.lan.ip(&format!("addr add {LAN6}/64 dev eth0 nodad"));
        for n in 1..=hosts {
            let (host, end) = (world.host(n), format!("fab{n}"));
            host.connect_veth("fab", &world.unit, &end);
            host.ip(&format!("addr add 10.77.{n}.2/24 dev fab"));
            let unit = &world.unit;
            unit.ip(&format!("addr add 10.77.{n}.1/24 dev {end}"));
        }
        world
    }

    pub(crate) fn host(&self, n: usize) -> &Netns {
        &self.hosts[n - 1]
    }

    /// Sets the MTU of the LAN's link.
    pub(crate) fn set_lan_mtu(&self, mtu: u32) {
        self.unit.ip(&format!("link set lan0 mtu {mtu}"));
        self.lan.ip(&format!("link set eth0 mtu {mtu}"));
    }

    /// The unit's address for a host.
    pub(crate) fn unit_for(&self, n: usize) -> String {
        match self.carrier {
            CarrierKind::Iwarp => format!("iwarp://10.77.{n}.1"),
            CarrierKind::Udp => format!("udp://10.77.{n}.1"),
            CarrierKind::Ethernet => {
                let said = self.unit.ip(&format!("-j link show fab{n}"));
                let links: Value = serde_json::from_str(&said).unwrap();
                let mac = links[0]["address"].as_str().unwrap();
                format!("ethernet://fab/{mac}")
            }
        }
    }

    fn listens(&self) -> Vec<String> {
        match self.carrier {
            CarrierKind::Iwarp => vec!["0.0.0.0".to_owned()],
            CarrierKind::Udp => vec!["udp://0.0.0.0".to_owned()],
            CarrierKind::Ethernet => {
                let each = 1..=self.hosts.len();
                each.map(|n| format!("ethernet://fab{n}")).collect()
            }
        }
    }

    /// The command, with the status directory of this world.
    pub(crate) fn verbena(&self) -> Command {
        let mut command = Command::new(VERBENA);
        command.env("XDG_RUNTIME_DIR", &self.folder.0);
        command
    }

    /// Starts the unit's driver, and waits until hosts can connect.
    pub(crate) fn start_unit(&self, more: &[&str]) -> Running {
        self.start_unit_on(["--lan", "lan0"], more)
    }

    /// The same with another LAN port.
    pub(crate) fn start_unit_on(&self, lan: [&str; 2], more: &[&str]) -> Running {
        let mut command = self.verbena();
        command.arg("unit").args(lan);
        command.args(["--patience", self.timeout]);
        for listen in self.listens() {
            command.arg("--listen").arg(listen);
        }
        command.args(more);
        let log = self.folder.file("unit.log");
        // An earlier unit wrote the same to the same file.
        let said = std::fs::read_to_string(&log).unwrap_or_default().len();
        let mut unit = Running::start(&self.unit, &mut command, &log);
        wait_until("the unit listens", || {
            assert!(!unit.has_exited(), "it ended");
            unit.output()[said..].contains("hosts connect to")
        });
        unit
    }

    /// Starts a host's driver, without waiting.
    pub(crate) fn start_host(&self, n: usize, more: &[&str]) -> Running {
        self.start_host_at(n, &self.unit_for(n), more)
    }

    pub(crate) fn start_host_at(&self, n: usize, unit: &str, more: &[&str]) -> Running {
        let mut command = self.verbena();
        let (tap, name) = (format!("net{n}"), format!("host{n}"));
        command.args(["host", "--connect", unit, "--tap", &tap, "--name", &name]);
        command.args(["--patience", self.timeout]).args(more);
        let log = self.folder.file(&format!("{name}.log"));
        Running::start(self.host(n), &mut command, &log)
    }

    /// Starts a host's driver, gives its interface addresses, and waits until frames can pass.
    pub(crate) fn bring_up(&self, n: usize, arrangement: &str) -> Running {
        self.bring_up_with(n, &["--arrangement", arrangement])
    }

    pub(crate) fn bring_up_with(&self, n: usize, more: &[&str]) -> Running {
        let mut host = self.start_host(n, more);
        wait_until("the interface is there", || {
            assert!(!host.has_exited(), "the driver ended");
            self.has_tap(n)
        });
        self.set_addresses(n);
        self.wait_until_up(n);
        host
    }

    /// An interface that stays when its driver ends.
    pub(crate) fn make_persistent(&self, n: usize) {
        self.make_tap(n, "mode tap");
    }

    /// The same, for a driver with several queues.
    pub(crate) fn make_persistent_for_several(&self, n: usize) {
        self.make_tap(n, "mode tap multi_queue");
    }

    fn make_tap(&self, n: usize, kind: &str) {
        self.host(n).ip(&format!("tuntap add dev net{n} {kind}"));
        self.set_addresses(n);
    }

    /// Sets addresses of a host's interface.
    pub(crate) fn set_addresses(&self, n: usize) {
        let host = self.host(n);
        host.ip(&format!("addr add {}/24 dev net{n}", address(n)));
        host.ip(&format!("addr add {}/64 dev net{n} nodad", address6(n)));
        host.ip(&format!("link set net{n} up"));
    }

    pub(crate) fn has_tap(&self, n: usize) -> bool {
        self.host(n).ip("-o link").contains(&format!(": net{n}:"))
    }

    /// Whether the interface of a host has carrier, as the kernel shows it.
    pub(crate) fn has_carrier(&self, n: usize) -> bool {
        let said = self.host(n).ip(&format!("-o link show net{n}"));
        said.contains(",LOWER_UP") && !said.contains("NO-CARRIER")
    }

    pub(crate) fn wait_until_up(&self, n: usize) {
        wait_until("the host is up", || {
            let queues = self.try_statuses("host", &format!("net{n}"));
            let up = |queue: &Value| queue["phase"] == "up" && queue["link"] == true;
            queues.is_some_and(|queues| queues.iter().all(up))
        });
        wait_until("its interface has a link", || self.has_carrier(n));
    }

    /// The status of the queues of a driver, if it runs.
    pub(crate) fn try_statuses(&self, kind: &str, name: &str) -> Option<Vec<Value>> {
        let ran = self.run_command([kind, "status", name, "--json"]);
        ran.status.success().then(|| {
            let said = String::from_utf8(ran.stdout).unwrap();
            let read = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{said}"));
            said.lines().map(read).collect()
        })
    }

    pub(crate) fn statuses(&self, kind: &str, name: &str) -> Vec<Value> {
        let statuses = self.try_statuses(kind, name);
        statuses.unwrap_or_else(|| panic!("{kind} {name} has no status"))
    }

    /// The status of the first queue of a driver, if it runs.
    pub(crate) fn try_status(&self, kind: &str, name: &str) -> Option<Value> {
        let queues = self.try_statuses(kind, name)?;
        queues.into_iter().next()
    }

    pub(crate) fn status(&self, kind: &str, name: &str) -> Value {
        let status = self.try_status(kind, name);
        status.unwrap_or_else(|| panic!("{kind} {name} has no status"))
    }

    /// The names of the unit's hosts.
    pub(crate) fn guests(&self) -> Vec<String> {
        let status = self.status("unit", "lan0");
        let hosts = status["hosts"].as_array().unwrap().iter();
        let mut names: Vec<String> = hosts
            .map(|host| host["name"].as_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    }

    /// Runs the command to its end.
    pub(crate) fn run_command<S: AsRef<OsStr>>(
        &self,
        words: impl IntoIterator<Item = S>,
    ) -> Output {
        self.verbena().args(words).output().unwrap()
    }

    /// The LAN's web server, with the blob.
    pub(crate) fn serve_web(&self) -> Running {
        self.serve_web_at(&self.lan)
    }

    pub(crate) fn serve_web_at(&self, space: &Netns) -> Running {
        blob::checksum();
        let folder = blob::folder().display();
        let line = format!("exec /usr/bin/python3 -m http.server -d {folder} 8000");
        let mut server = Running::sh(space, &line, &self.folder.file("web.log"));
        wait_until("the web server listens", || {
            assert!(!server.has_exited());
            let reached = || std::net::TcpStream::connect((LAN, 8000)).is_ok();
            space.run(reached)
        });
        server
    }

    /// The LAN's server of iperf3.
    pub(crate) fn serve_iperf3(&self) -> Running {
        self.serve_iperf3_at(&self.lan)
    }

    pub(crate) fn serve_iperf3_at(&self, space: &Netns) -> Running {
        Running::sh(space, "exec iperf3 -s", &self.folder.file("iperf3.log"))
    }

    /// Downloads the blob at a host; its checksum must be right.
    pub(crate) fn download(&self, n: usize) {
        let said = sh(self.host(n), &download("50G"));
        assert!(said.starts_with(blob::checksum()), "{said}");
    }

    /// Starts a download of the blob at a host, with this rate in bytes per second.
    pub(crate) fn begin_download(&self, n: usize, rate: &str) -> Running {
        let log = self.folder.file("download.log");
        let _ = std::fs::remove_file(&log);
        Running::sh(self.host(n), &download(rate), &log)
    }
}

fn download(rate: &str) -> String {
    let name = blob::NAME;
    format!("curl -sS --max-time 50 --limit-rate {rate} http://{LAN}:8000/{name} | sha256sum")
}

/// A host's address in the LAN.
pub(crate) fn address(n: usize) -> String {
    format!("192.168.9.{}", 10 + n)
}

pub(crate) fn address6(n: usize) -> String {
    format!("fd00:9::{}", 10 + n)
}
