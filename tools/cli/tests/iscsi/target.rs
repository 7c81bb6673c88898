//! Debian's tgtd as the SCSI target of a test, over TCP or, on our drop-in libraries, over iSER. Each has its own folder, control socket
//! and portal, so that several can run in parallel and no system state is changed; a drop, also in a panic, ends the process and removes
//! the folder. The file uses nothing of its test program, so that tests of other crates can include it by its path.

#![allow(dead_code, unreachable_pub, reason = "every test program uses a part")]

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Time limit for starting or stopping a program on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit of a call of a program, in seconds: a target that hangs must not hang its test.
const LONGEST: &str = "60";
/// The port of iSCSI; further targets of a process have those after it.
const ISCSI: u16 = 3260;
/// The first port for iSER. tgtd keeps that port in a signed 16-bit word, so 32767 is the last possible one; the kernel's ephemeral ports
/// begin there on most machines.
const ISER_FIRST: u16 = 16_384;
const ISER_LAST: u16 = 32_767;
/// Ports for iSER that are tried before the test fails.
const TRIES: u32 = 20;

/// The initiator that targets over iSER admit.
pub const INITIATOR: &str = "iqn.2026-01.test.verbena:initiator";

/// Programs that the fixture starts, with their Debian packages.
const PROGRAMS: [(&str, &str); 5] = [
    ("tgtd", "tgt"),
    ("tgtadm", "tgt"),
    ("iscsi-ls", "libiscsi-bin"),
    ("setpriv", "util-linux"),
    ("timeout", "coreutils"),
];

/// The transport of SCSI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Carrier {
    Tcp,
    /// With the command `verbena`, which runs tgtd on the drop-in libraries.
    Iser(PathBuf),
    /// The same in the `iwarp` personality.
    Iwarp(PathBuf),
}

impl Carrier {
    /// Its name in tgtadm, and as the scheme of libiscsi's addresses.
    pub fn name(&self) -> &'static str {
        match self {
            Carrier::Tcp => "iscsi",
            Carrier::Iser(_) | Carrier::Iwarp(_) => "iser",
        }
    }

    /// The command that runs programs on our libraries.
    fn verbena(&self) -> Option<(&Path, &[&str])> {
        match self {
            Carrier::Tcp => None,
            Carrier::Iser(verbena) => Some((verbena, &["run", "--"])),
            Carrier::Iwarp(verbena) => Some((verbena, &["run", "--personality", "iwarp", "--"])),
        }
    }
}

/// A folder that is removed on drop.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running tgtd with its configuration.
pub struct Tgt {
    /// Its number in this process.
    number: u32,
    carrier: Carrier,
    portal: SocketAddr,
    /// `None` between [`Tgt::kill`] and [`Tgt::restart`].
    child: Option<Child>,
    /// All configuration commands, which are repeated after a restart.
    config_commands: Vec<Vec<String>>,
    targets: u32,
    /// Dropped last.
    folder: Folder,
}

/// A target created by [`Tgt::target`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub tid: u32,
    pub name: String,
}

impl Tgt {
    /// Starts one; `None`, with a message, if a program is missing (in CI that is a failure).
    pub fn start(carrier: Carrier) -> Option<Tgt> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if let Some(why) = missing_program(&carrier) {
            skip(&why);
            return None;
        }
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("verbena-tgt-{}-{n}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        std::fs::create_dir(&folder.0).unwrap();
        let mut tgt = Tgt {
            portal: unused_address(n),
            number: n,
            carrier,
            child: None,
            config_commands: Vec::new(),
            targets: 0,
            folder,
        };
        match tgt.carrier {
            Carrier::Tcp => assert!(tgt.start_process(), "no portal: {}", tgt.log()),
            Carrier::Iser(_) | Carrier::Iwarp(_) => tgt.start_on_free_port(),
        }
        Some(tgt)
    }

    /// iSER has no address of its own in tgtd, only a port at all of them; another process may bind it before tgtd does.
    fn start_on_free_port(&mut self) {
        let range = u32::from(ISER_LAST - ISER_FIRST) + 1;
        let start = std::process::id()
            .wrapping_mul(31)
            .wrapping_add(self.number);
        for step in 0..TRIES {
            let offset = start.wrapping_add(step.wrapping_mul(977)) % range;
            let port = ISER_FIRST + u16::try_from(offset).unwrap();
            if TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_err() {
                continue;
            }
            self.portal = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            if self.start_process() {
                return;
            }
            self.kill();
        }
        panic!("no port for iSER after {TRIES} tries: {}", self.log());
    }

    /// Starts the process and waits until it accepts commands; returns whether it has its portal.
    fn start_process(&mut self) -> bool {
        let mut log = File::options();
        let log = log.create(true).append(true);
        let log = log.open(self.folder.0.join("log")).unwrap();
        // It is killed with the thread that started it, in case the test is killed: it ignores SIGTERM.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]);
        if let Some((verbena, words)) = self.carrier.verbena() {
            command.arg(verbena).args(words);
        }
        command.args(["tgtd", "-f", "-t", "4"]);
        let tcp = unused_address(self.number);
        command.arg("--iscsi").arg(format!("portal={tcp}"));
        if self.carrier != Carrier::Tcp {
            // No pings: a test that wants one sends it. The pool is the smallest that tgtd accepts.
            let port = self.portal.port();
            let options = format!("port={port},nop=off,pool_sz_mb=128");
            command.arg("--iser").arg(options);
        }
        command.env("TGT_IPC_SOCKET", self.socket());
        command.stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.child = Some(command.spawn().unwrap());
        verbena_testing::wait_until("tgtd is ready", || {
            let child = self.child.as_mut().unwrap();
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "tgtd ended, {ended:?}: {}", self.log());
            self.tgtadm(&["--mode", "system", "--op", "show"]).0
        });
        match self.carrier {
            // tgtd continues without a portal whose address is in use.
            Carrier::Tcp => {
                let (_, said) =
                    self.tgtadm(&["--lld", "iscsi", "--mode", "portal", "--op", "show"]);
                said.contains(&format!("{},", self.portal))
            }
            Carrier::Iser(_) | Carrier::Iwarp(_) => {
                let (_, said) = self.tgtadm(&["--mode", "system", "--op", "show"]);
                said.contains("iser: ready")
            }
        }
    }

    /// The control socket; tgtd appends its control port's number to it.
    fn socket(&self) -> PathBuf {
        self.folder.0.join("control")
    }

    /// Runs tgtadm; returns whether it succeeded, and its output.
    fn tgtadm(&self, words: &[&str]) -> (bool, String) {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", LONGEST, "tgtadm"]).args(words);
        command.env("TGT_IPC_SOCKET", self.socket());
        let ran = command.output().unwrap();
        (ran.status.success(), combined_output(&ran))
    }

    /// Runs a configuration command, and records it for a restart.
    fn configure(&mut self, words: &[&str]) {
        let mut all = vec!["--lld", self.carrier.name()];
        all.extend(words);
        let (well, said) = self.tgtadm(&all);
        assert!(well, "tgtadm {words:?}: {said}{}", self.log());
        self.config_commands
            .push(all.iter().map(ToString::to_string).collect());
    }

    /// A target without units, open to every initiator; over iSER to [`INITIATOR`] only.
    pub fn target(&mut self) -> Target {
        self.targets += 1;
        let target = Target {
            tid: self.targets,
            name: format!("iqn.2026-01.test.verbena:t{}", self.targets),
        };
        let tid = target.tid.to_string();
        let new = ["--mode", "target", "--op", "new", "--tid", &tid];
        self.configure(&[&new[..], &["--targetname", &target.name]].concat());
        let bind = ["--mode", "target", "--op", "bind", "--tid", &tid];
        self.configure(&[&bind[..], &["--initiator-address", "ALL"]].concat());
        if self.carrier != Carrier::Tcp {
            // Over iSER tgtd also requires the name on a list, and answers "target not found" to others; "ALL" is no name.
            self.configure(&[&bind[..], &["--initiator-name", INITIATOR]].concat());
        }
        target
    }

    /// A unit with this number of bytes, initially zero; units are counted from 1, since tgtd uses 0 itself. Returns the file that holds the
    /// bytes.
    pub fn lun(&mut self, target: &Target, lun: u16, bytes: u64) -> PathBuf {
        let file = self.folder.0.join(format!("t{}-l{lun}", target.tid));
        File::create_new(&file).unwrap().set_len(bytes).unwrap();
        let (tid, unit) = (target.tid.to_string(), lun.to_string());
        let new = ["--mode", "logicalunit", "--op", "new", "--tid", &tid];
        let path = file.to_str().unwrap();
        let rest = ["--lun", &unit, "--backing-store", path];
        self.configure(&[&new[..], &rest].concat());
        file
    }

    /// The same bytes as unit 1 of a second target over TCP; returns its address, and the target.
    pub fn also_over_tcp(&mut self, file: &Path) -> (SocketAddr, Target) {
        let carrier = core::mem::replace(&mut self.carrier, Carrier::Tcp);
        let target = self.target();
        let tid = target.tid.to_string();
        let new = ["--mode", "logicalunit", "--op", "new", "--tid", &tid];
        let rest = ["--lun", "1", "--backing-store", file.to_str().unwrap()];
        self.configure(&[&new[..], &rest].concat());
        self.carrier = carrier;
        (unused_address(self.number), target)
    }

    /// Makes a unit write-protected.
    pub fn read_only(&mut self, target: &Target, lun: u16) {
        let (tid, unit) = (target.tid.to_string(), lun.to_string());
        let update = ["--mode", "logicalunit", "--op", "update", "--tid", &tid];
        let rest = ["--lun", &unit, "--params", "readonly=1"];
        self.configure(&[&update[..], &rest].concat());
    }

    /// Sets a parameter of a target, by its name in the login, for later sessions.
    pub fn set(&mut self, target: &Target, key: &str, value: &str) {
        let tid = target.tid.to_string();
        let update = ["--mode", "target", "--op", "update", "--tid", &tid];
        self.configure(&[&update[..], &["--name", key, "--value", value]].concat());
    }

    /// Both digests. tgtd then requires them: it requests them from an initiator that does not offer them, and agrees to None only if nothing
    /// else is offered.
    pub fn digests(&mut self, target: &Target) {
        self.set(target, "HeaderDigest", "CRC32C");
        self.set(target, "DataDigest", "CRC32C");
    }

    /// CHAP: initiators must authenticate with these credentials.
    pub fn account(&mut self, target: &Target, user: &str, password: &str) {
        self.bind_account(target, user, password, &[]);
    }

    /// Mutual CHAP: the target's own credentials.
    pub fn own_account(&mut self, target: &Target, user: &str, password: &str) {
        self.bind_account(target, user, password, &["--outgoing"]);
    }

    fn bind_account(&mut self, target: &Target, user: &str, password: &str, way: &[&str]) {
        let new = ["--mode", "account", "--op", "new", "--user", user];
        self.configure(&[&new[..], &["--password", password]].concat());
        let tid = target.tid.to_string();
        let bind = ["--mode", "account", "--op", "bind", "--tid", &tid];
        self.configure(&[&bind[..], &["--user", user], way].concat());
    }

    /// Its address.
    pub fn portal(&self) -> SocketAddr {
        self.portal
    }

    /// A unit's address in libiscsi's form; `who` is empty or `user%password`.
    pub fn url(&self, who: &str, target: &Target, lun: u16) -> String {
        let at = if who.is_empty() { "" } else { "@" };
        let (scheme, portal, name) = (self.carrier.name(), self.portal, &target.name);
        format!("{scheme}://{who}{at}{portal}/{name}/{lun}")
    }

    /// Its output so far, that before a restart included.
    pub fn log(&self) -> String {
        let said = std::fs::read(self.folder.0.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&said).into_owned()
    }

    /// tgtadm's description of targets: units, accounts, sessions.
    pub fn shown(&self) -> String {
        let lld = self.carrier.name();
        self.tgtadm(&["--lld", lld, "--mode", "target", "--op", "show"])
            .1
    }

    /// The number of sessions.
    pub fn sessions(&self) -> usize {
        let shown = self.shown();
        shown.lines().filter(|l| l.contains("I_T nexus: ")).count()
    }

    /// Kills it with SIGKILL; the bytes of its units stay.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Starts it again with the same portal, targets, units and accounts. Initiators are admitted last, so that a session that reconnects sees no
    /// target without its units.
    pub fn restart(&mut self) {
        self.kill();
        assert!(self.start_process(), "the portal is gone: {}", self.log());
        let opens = |words: &&Vec<String>| words.join(" ").contains("--mode target --op bind");
        let first = self.config_commands.iter().filter(|words| !opens(words));
        for words in first.chain(self.config_commands.iter().filter(opens)) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let (well, said) = self.tgtadm(&words);
            assert!(well, "tgtadm {words:?}: {said}{}", self.log());
        }
    }

    /// Runs a program of libiscsi on the same transport; returns whether it succeeded, and its output.
    pub fn client(&self, words: &[&str]) -> (bool, String) {
        let mut attempts = 0;
        loop {
            let mut command = Command::new("timeout");
            command.args(["-s", "KILL", LONGEST]);
            if let Some((verbena, words)) = self.carrier.verbena() {
                command.arg(verbena).args(words);
            }
            let ran = command.args(words).output().unwrap();
            let output = combined_output(&ran);
            attempts += 1;
            if attempts == MAX_ATTEMPTS || !output.contains(LATE_ANSWER) {
                return (ran.status.success(), output);
            }
        }
    }
}

/// What libiscsi says over iSER when no answer has come for a second: it fails instead of waiting on, which happens on a busy machine.
const LATE_ANSWER: &str = "revents is not POLLIN";
const MAX_ATTEMPTS: u32 = 5;

impl Drop for Tgt {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A loopback address and port that no other process uses, nor another target of this one.
fn unused_address(n: u32) -> SocketAddr {
    // Process ids have 22 bits at most; addresses that begin with 127.0 are used by other programs.
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let port = ISCSI + u16::try_from(n).unwrap();
    SocketAddr::from((Ipv4Addr::new(127, 128 | high, middle, low), port))
}

fn combined_output(ran: &Output) -> String {
    let (said, complained) = (&ran.stdout, &ran.stderr);
    String::from_utf8_lossy(said).into_owned() + &String::from_utf8_lossy(complained)
}

/// A message about a missing program, if there is one.
fn missing_program(carrier: &Carrier) -> Option<String> {
    let absent = |program: &str| {
        let ran = Command::new(program).arg("--version").output();
        ran.is_err()
    };
    for (program, package) in PROGRAMS {
        if absent(program) {
            return Some(format!("{program} is missing (Debian package {package})"));
        }
    }
    let (verbena, _) = carrier.verbena()?;
    let libraries = dropin(verbena).join("librdmacm.so.1");
    let there = libraries.is_file();
    (!there).then(|| format!("{} is missing (`cargo xtask dropin`)", libraries.display()))
}

/// Where `verbena run` looks for the libraries in a source tree.
fn dropin(verbena: &Path) -> PathBuf {
    verbena.parent().unwrap().parent().unwrap().join("dropin")
}

/// Reports a skipped test; in CI, fails.
fn skip(why: &str) {
    let ci = std::env::var("CI").is_ok_and(|v| !matches!(v.as_str(), "" | "0" | "false"));
    assert!(!ci, "{why}");
    eprintln!("SKIPPED: {why}; no target was started");
}
