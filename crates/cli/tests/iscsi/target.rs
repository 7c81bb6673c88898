//! Debian's tgtd as a test's own SCSI target, over TCP or, on our drop-in libraries, over iSER.
//! Each has its folder, its control socket and its portal, so any number run beside each other and no system state is touched;
//! dropping it, also in a panic, ends the process and removes the folder. It includes nothing of its test program, so that
//! tests of other crates can take it in by its path.

#![allow(dead_code, unreachable_pub, reason = "every test program uses a part")]

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// What a loaded machine may take to start or stop a program.
const PATIENCE: Duration = Duration::from_secs(30);
/// No call of a program takes longer, in seconds: a target that hangs must not hang its test.
const LONGEST: &str = "60";
/// The port that iSCSI is known by; further targets of a process have those after it.
const ISCSI: u16 = 3260;
/// Where ports for iSER begin. tgtd keeps that port in a signed 16-bit word, so 32767 is the last one it can be told;
/// there the kernel's choice of ports for clients begins on most machines.
const ISER_FIRST: u16 = 16_384;
const ISER_LAST: u16 = 32_767;
/// How many ports for iSER are tried before somebody else is to blame.
const TRIES: u32 = 20;

/// The initiator that targets over iSER let in.
pub const INITIATOR: &str = "iqn.2026-01.test.verbena:initiator";

/// What the fixture starts, with its Debian package.
const PROGRAMS: [(&str, &str); 5] = [
    ("tgtd", "tgt"),
    ("tgtadm", "tgt"),
    ("iscsi-ls", "libiscsi-bin"),
    ("setpriv", "util-linux"),
    ("timeout", "coreutils"),
];

/// What carries SCSI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Carrier {
    Tcp,
    /// With the command `verbena`, which puts the drop-in libraries under tgtd.
    Iser(PathBuf),
    /// The same in the `iwarp` personality.
    Iwarp(PathBuf),
}

impl Carrier {
    /// As tgtadm calls it, and as the scheme of libiscsi's addresses.
    pub fn name(&self) -> &'static str {
        match self {
            Carrier::Tcp => "iscsi",
            Carrier::Iser(_) | Carrier::Iwarp(_) => "iser",
        }
    }

    /// The command that runs others on our libraries.
    fn verbena(&self) -> Option<(&Path, &[&str])> {
        match self {
            Carrier::Tcp => None,
            Carrier::Iser(verbena) => Some((verbena, &["run", "--"])),
            Carrier::Iwarp(verbena) => Some((verbena, &["run", "--personality", "iwarp", "--"])),
        }
    }
}

/// A folder that goes when this is dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running tgtd with what it was told.
pub struct Tgt {
    /// Among those of this process.
    number: u32,
    carrier: Carrier,
    portal: SocketAddr,
    /// None between [`Tgt::kill`] and [`Tgt::restart`].
    child: Option<Child>,
    /// Everything tgtadm was asked to do, to be asked again of a successor.
    told: Vec<Vec<String>>,
    targets: u32,
    /// The last to go.
    folder: Folder,
}

/// A target that [`Tgt::target`] made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub tid: u32,
    pub name: String,
}

impl Tgt {
    /// Starts one; nothing, said loudly, if a program is missing (in CI that is a failure).
    pub fn start(carrier: Carrier) -> Option<Tgt> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if let Some(why) = lacking(&carrier) {
            skip(&why);
            return None;
        }
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("verbena-tgt-{}-{n}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        std::fs::create_dir(&folder.0).unwrap();
        let mut tgt = Tgt {
            portal: own_place(n),
            number: n,
            carrier,
            child: None,
            told: Vec::new(),
            targets: 0,
            folder,
        };
        match tgt.carrier {
            Carrier::Tcp => assert!(tgt.up(), "no portal: {}", tgt.log()),
            Carrier::Iser(_) | Carrier::Iwarp(_) => tgt.up_somewhere(),
        }
        Some(tgt)
    }

    /// iSER has no address of its own in tgtd, only a port at all of them; somebody may take it before tgtd does.
    fn up_somewhere(&mut self) {
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
            if self.up() {
                return;
            }
            self.kill();
        }
        panic!("no port for iSER after {TRIES} tries: {}", self.log());
    }

    /// Starts the process and waits until it takes orders; whether its portal is there.
    fn up(&mut self) -> bool {
        let mut log = File::options();
        let log = log.create(true).append(true);
        let log = log.open(self.folder.0.join("log")).unwrap();
        // It goes with the thread that started it, should the test be killed: it takes no notice of SIGTERM.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]);
        if let Some((verbena, words)) = self.carrier.verbena() {
            command.arg(verbena).args(words);
        }
        command.args(["tgtd", "-f", "-t", "4"]);
        let tcp = own_place(self.number);
        command.arg("--iscsi").arg(format!("portal={tcp}"));
        if self.carrier != Carrier::Tcp {
            // No pings: a test that wants one sends it. The pool is the smallest that tgtd takes.
            let port = self.portal.port();
            let options = format!("port={port},nop=off,pool_sz_mb=128");
            command.arg("--iser").arg(options);
        }
        command.env("TGT_IPC_SOCKET", self.socket());
        command.stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.child = Some(command.spawn().unwrap());
        let end = Instant::now() + PATIENCE;
        while !self.ask(&["--mode", "system", "--op", "show"]).0 {
            let child = self.child.as_mut().unwrap();
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "tgtd ended, {ended:?}: {}", self.log());
            assert!(Instant::now() < end, "tgtd is not ready: {}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
        match self.carrier {
            // It goes on without a portal whose address is taken.
            Carrier::Tcp => {
                let (_, said) = self.ask(&["--lld", "iscsi", "--mode", "portal", "--op", "show"]);
                said.contains(&format!("{},", self.portal))
            }
            Carrier::Iser(_) | Carrier::Iwarp(_) => {
                let (_, said) = self.ask(&["--mode", "system", "--op", "show"]);
                said.contains("iser: ready")
            }
        }
    }

    /// tgtd appends its control port's number to it.
    fn socket(&self) -> PathBuf {
        self.folder.0.join("control")
    }

    /// Runs tgtadm: whether it succeeded, and what it said.
    fn ask(&self, words: &[&str]) -> (bool, String) {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", LONGEST, "tgtadm"]).args(words);
        command.env("TGT_IPC_SOCKET", self.socket());
        let ran = command.output().unwrap();
        (ran.status.success(), both(&ran))
    }

    /// Asks for something that a successor is to have too.
    fn tell(&mut self, words: &[&str]) {
        let mut all = vec!["--lld", self.carrier.name()];
        all.extend(words);
        let (well, said) = self.ask(&all);
        assert!(well, "tgtadm {words:?}: {said}{}", self.log());
        self.told
            .push(all.iter().map(ToString::to_string).collect());
    }

    /// A target without units, open to everybody; over iSER to [`INITIATOR`] alone.
    pub fn target(&mut self) -> Target {
        self.targets += 1;
        let target = Target {
            tid: self.targets,
            name: format!("iqn.2026-01.test.verbena:t{}", self.targets),
        };
        let tid = target.tid.to_string();
        let new = ["--mode", "target", "--op", "new", "--tid", &tid];
        self.tell(&[&new[..], &["--targetname", &target.name]].concat());
        let bind = ["--mode", "target", "--op", "bind", "--tid", &tid];
        self.tell(&[&bind[..], &["--initiator-address", "ALL"]].concat());
        if self.carrier != Carrier::Tcp {
            // There tgtd wants the name on a list too, and says "target not found" to others; "ALL" is no name.
            self.tell(&[&bind[..], &["--initiator-name", INITIATOR]].concat());
        }
        target
    }

    /// A unit with so many bytes, which are zero at first; units count from 1, since tgtd keeps 0 for itself.
    /// Answers with the file that holds the bytes.
    pub fn lun(&mut self, target: &Target, lun: u16, bytes: u64) -> PathBuf {
        let file = self.folder.0.join(format!("t{}-l{lun}", target.tid));
        File::create_new(&file).unwrap().set_len(bytes).unwrap();
        let (tid, unit) = (target.tid.to_string(), lun.to_string());
        let new = ["--mode", "logicalunit", "--op", "new", "--tid", &tid];
        let path = file.to_str().unwrap();
        let rest = ["--lun", &unit, "--backing-store", path];
        self.tell(&[&new[..], &rest].concat());
        file
    }

    /// The same bytes once more, as unit 1 of a target that is reached over TCP; where that is, and the target.
    pub fn also_over_tcp(&mut self, file: &Path) -> (SocketAddr, Target) {
        let carrier = core::mem::replace(&mut self.carrier, Carrier::Tcp);
        let target = self.target();
        let tid = target.tid.to_string();
        let new = ["--mode", "logicalunit", "--op", "new", "--tid", &tid];
        let rest = ["--lun", "1", "--backing-store", file.to_str().unwrap()];
        self.tell(&[&new[..], &rest].concat());
        self.carrier = carrier;
        (own_place(self.number), target)
    }

    /// Makes a unit refuse to be written.
    pub fn read_only(&mut self, target: &Target, lun: u16) {
        let (tid, unit) = (target.tid.to_string(), lun.to_string());
        let update = ["--mode", "logicalunit", "--op", "update", "--tid", &tid];
        let rest = ["--lun", &unit, "--params", "readonly=1"];
        self.tell(&[&update[..], &rest].concat());
    }

    /// Sets a parameter of a target, by its name in the login, for sessions to come.
    pub fn set(&mut self, target: &Target, key: &str, value: &str) {
        let tid = target.tid.to_string();
        let update = ["--mode", "target", "--op", "update", "--tid", &tid];
        self.tell(&[&update[..], &["--name", key, "--value", value]].concat());
    }

    /// Both digests. tgtd then insists: it asks who does not offer them, and agrees to None only if nothing else is offered.
    pub fn digests(&mut self, target: &Target) {
        self.set(target, "HeaderDigest", "CRC32C");
        self.set(target, "DataDigest", "CRC32C");
    }

    /// CHAP: initiators must show that they know this.
    pub fn account(&mut self, target: &Target, user: &str, password: &str) {
        self.bind_account(target, user, password, &[]);
    }

    /// CHAP the other way: what the target shows to those who ask.
    pub fn own_account(&mut self, target: &Target, user: &str, password: &str) {
        self.bind_account(target, user, password, &["--outgoing"]);
    }

    fn bind_account(&mut self, target: &Target, user: &str, password: &str, way: &[&str]) {
        let new = ["--mode", "account", "--op", "new", "--user", user];
        self.tell(&[&new[..], &["--password", password]].concat());
        let tid = target.tid.to_string();
        let bind = ["--mode", "account", "--op", "bind", "--tid", &tid];
        self.tell(&[&bind[..], &["--user", user], way].concat());
    }

    /// Where it listens.
    pub fn portal(&self) -> SocketAddr {
        self.portal
    }

    /// A unit's address as libiscsi writes it; `who` is nothing or `user%password`.
    pub fn url(&self, who: &str, target: &Target, lun: u16) -> String {
        let at = if who.is_empty() { "" } else { "@" };
        let (scheme, portal, name) = (self.carrier.name(), self.portal, &target.name);
        format!("{scheme}://{who}{at}{portal}/{name}/{lun}")
    }

    /// What tgtd said so far, its predecessors here too.
    pub fn log(&self) -> String {
        let said = std::fs::read(self.folder.0.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&said).into_owned()
    }

    /// What tgtadm shows about targets: units, accounts, sessions.
    pub fn shown(&self) -> String {
        let lld = self.carrier.name();
        self.ask(&["--lld", lld, "--mode", "target", "--op", "show"])
            .1
    }

    /// How often initiators are connected.
    pub fn sessions(&self) -> usize {
        let shown = self.shown();
        shown.lines().filter(|l| l.contains("I_T nexus: ")).count()
    }

    /// Ends it as a power failure would; its units' bytes stay.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Another one in its place: the same portal, targets, units and accounts. Initiators are let in last, so that none that
    /// comes back sees a target without its units.
    pub fn restart(&mut self) {
        self.kill();
        assert!(self.up(), "the portal is gone: {}", self.log());
        let opens = |words: &&Vec<String>| words.join(" ").contains("--mode target --op bind");
        let first = self.told.iter().filter(|words| !opens(words));
        for words in first.chain(self.told.iter().filter(opens)) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let (well, said) = self.ask(&words);
            assert!(well, "tgtadm {words:?}: {said}{}", self.log());
        }
    }

    /// A program of libiscsi, where the carrier is: whether it succeeded, and what it said.
    pub fn client(&self, words: &[&str]) -> (bool, String) {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", LONGEST]);
        if let Some((verbena, words)) = self.carrier.verbena() {
            command.arg(verbena).args(words);
        }
        let ran = command.args(words).output().unwrap();
        (ran.status.success(), both(&ran))
    }
}

impl Drop for Tgt {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A place in the loopback network that no other process takes, nor another target of this one.
fn own_place(n: u32) -> SocketAddr {
    // Processes have numbers of 22 bits at the most; what begins with 127.0 is everybody's.
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let port = ISCSI + u16::try_from(n).unwrap();
    SocketAddr::from((Ipv4Addr::new(127, 128 | high, middle, low), port))
}

fn both(ran: &Output) -> String {
    let (said, complained) = (&ran.stdout, &ran.stderr);
    String::from_utf8_lossy(said).into_owned() + &String::from_utf8_lossy(complained)
}

/// What is not there.
fn lacking(carrier: &Carrier) -> Option<String> {
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

/// Loudly; and where nobody reads it, as a failure.
fn skip(why: &str) {
    let ci = std::env::var("CI").is_ok_and(|v| !matches!(v.as_str(), "" | "0" | "false"));
    assert!(!ci, "{why}");
    eprintln!("SKIPPED: {why}; no target was started");
}
