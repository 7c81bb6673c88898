//! Labs and software switches as a user runs them: programs on hosts, faults, failover, and what remains after a process was killed. Each
//! test has a runtime folder of its own, so that labs of one name do not meet.

use std::fs;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketType, connect,
    recv, sendmsg, socket,
};
use rustix::process::{Pid, Signal, kill_process};
use verbena_testing::{WAIT_LIMIT, process_ends, wait_for, wait_readable, wait_until};

const VERBENA: &str = env!("CARGO_BIN_EXE_verbena");

/// Hosts a and b at two switches with two links between them, and c behind a router and a lossy link.
const THREE_HOSTS: &str = r#"
name = "three"
seed = 3
[hosts.a]
address = "10.1.0.1/24"
[hosts.b]
address = "10.1.0.2/24"
[hosts.c]
address = "10.2.0.3/24"
[switches.s]
[switches.t]
[routers.r]
[[links]]
ends = ["a", "s"]
[[links]]
name = "one"
ends = ["s", "t"]
[[links]]
name = "two"
ends = ["s", "t"]
[[links]]
ends = ["b", "t"]
[[links]]
ends = ["r", "t"]
address = { r = "10.1.0.254/24" }
[[links]]
name = "lossy"
ends = ["c", "r"]
address = { r = "10.2.0.254/24" }
faults = "loss=3% delay=1ms reorder=3% repeat=1%"
"#;

/// A runtime folder, and the lab in it, which ends with it.
pub(crate) struct Lab {
    pub(crate) folder: PathBuf,
    program: PathBuf,
    user: Option<u32>,
}

impl Lab {
    fn folder() -> Lab {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("vlab-{}-{number}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        Lab {
            folder,
            program: VERBENA.into(),
            user: None,
        }
    }

    /// Starts a lab; `None`, after a message, where there are no namespaces.
    fn up(file: &Path) -> Option<Lab> {
        Lab::folder().start(file)
    }

    fn start(self, file: &Path) -> Option<Lab> {
        let output = self.lab(&["up", file.to_str().unwrap()]).output().unwrap();
        let said = text(&output.stderr);
        if output.status.success() {
            return Some(self);
        }
        let forbidden = ["does not let", "does not allow", "/dev/net/tun"];
        assert!(forbidden.iter().any(|why| said.contains(why)), "{said}");
        let ci = std::env::var("CI").is_ok_and(|ci| !matches!(ci.as_str(), "" | "0" | "false"));
        assert!(!ci, "{said}");
        eprintln!("SKIPPED: no lab can be had here: {said}");
        None
    }

    pub(crate) fn of(plan: &str) -> Option<Lab> {
        let lab = Lab::folder();
        let file = lab.folder.join("lab.toml");
        fs::write(&file, plan).unwrap();
        lab.start(&file)
    }

    fn command(&self) -> Command {
        let mut command = match self.user {
            None => Command::new(&self.program),
            Some(user) => {
                let mut command = Command::new("setpriv");
                let id = user.to_string();
                command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
                command.arg(&self.program);
                command
            }
        };
        command.env("XDG_RUNTIME_DIR", &self.folder);
        command.stdin(Stdio::null());
        command
    }

    fn lab(&self, words: &[&str]) -> Command {
        let mut command = self.command();
        command.arg("lab").args(words);
        command
    }

    /// The output of a command, which succeeds.
    fn done(&self, words: &[&str]) -> String {
        let output = self.lab(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        text(&output.stdout)
    }

    /// A program on a host, without Verbena.
    fn plain(&self, host: &str, program: &[&str]) -> Command {
        let mut command = self.lab(&["run", "--plain", host, "--"]);
        command.args(program);
        command
    }

    fn ping(&self, host: &str, to: &str) -> Output {
        let words = ["ping", "-n", "-c", "1", "-W", "5", to];
        self.plain(host, &words).output().unwrap()
    }

    /// Waits for an answer to a ping; single ones may be lost.
    fn reaches(&self, host: &str, to: &str) {
        wait_until(&format!("{host} reaches {to}"), || {
            self.ping(host, to).status.success()
        });
    }

    fn snapshot(&self) -> serde_json::Value {
        serde_json::from_str(&self.done(&["show", "--json"])).unwrap()
    }

    /// A counter of a link, over both directions.
    fn count(&self, link: &str, counter: &str) -> u64 {
        let snapshot = self.snapshot();
        let links = snapshot["links"].as_array().unwrap();
        let found = links.iter().find(|found| found["name"] == link).unwrap();
        let both = found["traffic"].as_array().unwrap();
        both.iter().map(|one| one[counter].as_u64().unwrap()).sum()
    }

    fn processes(&self) -> Vec<u32> {
        let snapshot = self.snapshot();
        let all = snapshot["processes"].as_array().unwrap();
        all.iter().map(|one| one.as_u64().unwrap() as u32).collect()
    }

    fn sockets(&self) -> usize {
        let folder = fs::read_dir(self.folder.join("verbena-lab"));
        folder.map_or(0, Iterator::count)
    }

    /// Sends bytes by TCP from one host to another, which must receive them exactly.
    fn transfer(&self, from: &str, to: &str, address: &str, bytes: usize) {
        let sent: Vec<u8> = (0..bytes).map(|n| (n * 31 + n / 251) as u8).collect();
        let (input, output) = (self.folder.join("sent"), self.folder.join("received"));
        fs::write(&input, &sent).unwrap();
        let server = self
            .plain(to, &["nc", "-l", "-N", "-p", "5000"])
            .stdout(fs::File::create(&output).unwrap())
            .spawn();
        let mut server = server.unwrap();
        wait_until("the server takes the bytes", || {
            let client = self
                .plain(from, &["nc", "-N", address, "5000"])
                .stdin(fs::File::open(&input).unwrap())
                .output();
            client.unwrap().status.success()
        });
        assert!(server.wait().unwrap().success());
        assert!(fs::read(&output).unwrap() == sent, "other bytes arrived");
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.lab(&["down"]).output();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn ready_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/lab")
        .join(name)
}

/// Runs rping between two hosts on Verbena, if the libraries were built.
fn rping(lab: &Lab, server: &str, client: &str, address: &str) {
    if crate::dropin::libraries().is_none() {
        return;
    }
    let mut serving = lab.lab(&["run", server, "--", "rping", "-s", "-P", "-a", address]);
    let serving = serving.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut serving = Running(serving.unwrap());
    wait_until("rping ends without an error", || {
        let words = [
            "run", client, "--", "rping", "-c", "-a", address, "-C", "20", "-V",
        ];
        lab.lab(&words).output().unwrap().status.success()
    });
    assert!(serving.0.try_wait().unwrap().is_none());
}

/// Runs ib_write_bw between two hosts on Verbena, if the libraries were built.
fn perftest(lab: &Lab, server: &str, client: &str, address: &str) {
    if crate::dropin::libraries().is_none() {
        return;
    }
    let program = ["ib_write_bw", "-d", "verbena0", "-s", "65536", "-n", "500"];
    wait_until("ib_write_bw ends without an error", || {
        let mut serving = lab.lab(&["run", server, "--"]);
        let serving = serving.args(program).stdout(Stdio::null()).spawn();
        let _serving = Running(serving.unwrap());
        let mut command = lab.lab(&["run", client, "--"]);
        let output = command.args(program).arg(address).output().unwrap();
        output.status.success()
    });
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn three_hosts_survive_loss_and_a_cut() {
    let Some(lab) = Lab::of(THREE_HOSTS) else {
        return;
    };
    lab.reaches("a", "10.1.0.2");
    lab.reaches("a", "c");
    let names = lab.done(&["run", "--plain", "b", "--", "hostname"]);
    assert_eq!(names, "b\n");
    lab.transfer("a", "c", "10.2.0.3", 2_000_000);
    assert!(lab.count("lossy", "lost") > 0);
    rping(&lab, "c", "a", "10.2.0.3");

    assert_eq!(lab.count("two", "frames"), 0, "blocked against a loop");
    let said = lab.done(&["fault", "one", "cut"]);
    assert_eq!(said, "one: cut\n");
    lab.reaches("a", "10.1.0.2");
    assert!(lab.count("two", "frames") > 0);
    lab.transfer("b", "a", "10.1.0.1", 2_000_000);
    let shown = lab.done(&["show", "--once"]);
    assert!(
        shown.contains("one: ↓") && shown.contains("[CUT"),
        "{shown}"
    );

    let words = ["fault", "b-t", "loss=100%"];
    assert_eq!(lab.done(&words), "b-t: up loss=100%\n");
    let lost = lab
        .plain("a", &["ping", "-c", "1", "-W", "1", "10.1.0.2"])
        .output();
    assert_eq!(lost.unwrap().status.code(), Some(1));
    assert_eq!(lab.done(&["fault", "b-t", "clear"]), "b-t: up\n");
    lab.reaches("a", "10.1.0.2");
}

#[test]
fn lab_down_ends_programs_and_processes() {
    let Some(lab) = Lab::of(THREE_HOSTS) else {
        return;
    };
    let processes = lab.processes();
    let mut sleeper = Running(lab.plain("a", &["sleep", "1000"]).spawn().unwrap());
    wait_for("the program is on the host", || is_in_lab(&sleeper.0));
    lab.done(&["down"]);
    sleeper.0.wait().unwrap();
    assert!(processes.iter().all(|process| has_ended(*process)));
    assert_eq!(lab.sockets(), 0);
    let output = lab.lab(&["show"]).output().unwrap();
    assert!(
        text(&output.stderr).contains("no lab is running"),
        "{output:?}"
    );
}

/// Whether the program has left this test's network namespace.
fn is_in_lab(child: &Child) -> Option<()> {
    let own = fs::read_link("/proc/self/ns/net").unwrap();
    let its = fs::read_link(format!("/proc/{}/ns/net", child.id())).ok()?;
    (own != its).then_some(())
}

fn has_ended(process: u32) -> bool {
    let exists = Path::new(&format!("/proc/{process}")).exists();
    !exists || process_ends(process, WAIT_LIMIT)
}

#[test]
fn killed_process_of_a_lab_leaves_nothing() {
    for which in 0..2 {
        let Some(lab) = Lab::of(THREE_HOSTS) else {
            return;
        };
        let processes = lab.processes();
        let mut sleepers: Vec<Running> = ["a", "c"]
            .map(|host| Running(lab.plain(host, &["sleep", "1000"]).spawn().unwrap()))
            .into();
        for sleeper in &sleepers {
            wait_for("the program is on the host", || is_in_lab(&sleeper.0));
        }
        let victim = Pid::from_raw(processes[which] as i32).unwrap();
        kill_process(victim, Signal::KILL).unwrap();
        for sleeper in &mut sleepers {
            sleeper.0.wait().unwrap();
        }
        assert!(processes.iter().all(|process| has_ended(*process)));
        wait_until("the socket is removed", || lab.sockets() == 0);
    }
}

#[test]
fn ordinary_user_runs_a_lab() {
    if !rustix::process::geteuid().is_root() {
        // The other tests did.
        return;
    }
    let mut lab = Lab::folder();
    // Both the program and the folder may be where other users have no access.
    let program = lab.folder.join("verbena");
    fs::copy(VERBENA, &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let file = lab.folder.join("lab.toml");
    fs::write(&file, THREE_HOSTS).unwrap();
    std::os::unix::fs::chown(&lab.folder, Some(65534), Some(65534)).unwrap();
    (lab.program, lab.user) = (program, Some(65534));
    let Some(lab) = lab.start(&file) else { return };
    lab.reaches("a", "10.1.0.2");
    // From one host to another, as programs do that start others.
    let program = lab.program.to_str().unwrap().to_owned();
    let words = [
        "run", "--plain", "a", "--", &program, "lab", "run", "--plain", "b", "--", "hostname",
    ];
    assert_eq!(lab.done(&words), "b\n");
}

#[test]
fn mistakes_are_explained_without_a_lab() {
    let lab = Lab::folder();
    let file = lab.folder.join("bad.toml");
    fs::write(&file, "[hosts.a]\n").unwrap();
    let path = file.to_str().unwrap();
    for (words, said) in [
        (&["up", path][..], "bad.toml: host `a` has no link"),
        (
            &["up", "no-such-file.toml"],
            "no-such-file.toml: No such file",
        ),
        (&["show"], "no lab is running: begin with verbena lab up"),
        (&["show", "--lab", "x"], "lab `x` is not running"),
        (&["run", "a", "--", "true"], "no lab is running"),
    ] {
        let output = lab.lab(words).output().unwrap();
        let error = text(&output.stderr);
        assert!(error.contains(said) && !output.status.success(), "{error}");
    }
}

#[test]
fn example_file_of_the_page_is_valid() {
    let lab = Lab::folder();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("```toml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let file = lab.folder.join("example.toml");
    fs::write(&file, example).unwrap();
    let said = lab.done(&["up", "--check", file.to_str().unwrap()]);
    assert!(said.contains("lab example would have hosts a, b"), "{said}");
}

#[test]
fn forbidden_namespaces_are_named() {
    let lab = Lab::folder();
    let file = lab.folder.join("lab.toml");
    fs::write(&file, THREE_HOSTS).unwrap();
    let script = "echo 0 > /proc/sys/user/max_net_namespaces && \"$0\" lab up \"$1\"";
    let output = Command::new("unshare")
        .args(["-Ur", "sh", "-c", script, VERBENA])
        .arg(&file)
        .env("XDG_RUNTIME_DIR", &lab.folder)
        .output()
        .unwrap();
    let said = text(&output.stderr);
    if said.contains("unshare: ") || said.contains("/proc/sys/user") {
        eprintln!("SKIPPED: no limit can be set here: {said}");
        return;
    }
    let expected = "the limit user.max_net_namespaces is 0 (sysctl)";
    assert!(
        said.contains("host a: this system does not allow"),
        "{said}"
    );
    assert!(said.contains(expected), "{said}");
    assert_eq!(lab.sockets(), 0);
}

#[test]
fn timeline_cuts_and_mends() {
    let plan = format!("{THREE_HOSTS}\n[[events]]\nat = \"10ms\"\nlink = \"one\"\nset = \"cut\"\n");
    let Some(lab) = Lab::of(&plan) else { return };
    wait_until("the event has happened", || {
        let snapshot = lab.snapshot();
        let links = snapshot["links"].as_array().unwrap().clone();
        links
            .iter()
            .any(|link| link["name"] == "one" && link["up"] == false)
    });
    lab.reaches("a", "10.1.0.2");
}

#[test]
fn capture_has_the_frames_of_a_link() {
    let Some(lab) = Lab::of(THREE_HOSTS) else {
        return;
    };
    let file = lab.folder.join("link.pcapng");
    let mut capture = lab.lab(&["capture", "a-s", file.to_str().unwrap()]);
    let mut capture = Running(capture.stdout(Stdio::piped()).spawn().unwrap());
    wait_until("frames are captured", || {
        lab.reaches("a", "10.1.0.2");
        fs::metadata(&file).is_ok_and(|found| found.len() > 500)
    });
    kill_process(Pid::from_child(&capture.0), Signal::INT).unwrap();
    assert!(capture.0.wait().unwrap().success());
    let mut reader = pcap_file::pcapng::PcapNgReader::new(fs::File::open(&file).unwrap()).unwrap();
    let mut echoes = 0;
    while let Some(Ok(block)) = reader.next_block() {
        if let pcap_file::pcapng::Block::EnhancedPacket(packet) = block {
            echoes += u32::from(packet.data.len() > 34 && packet.data[23] == 1);
        }
    }
    assert!(echoes >= 2, "a request and its answer");
}

#[test]
fn two_hosts_file_runs_programs() {
    let Some(lab) = Lab::up(&ready_file("two-hosts.toml")) else {
        return;
    };
    lab.reaches("a", "10.77.0.2");
    lab.reaches("b", "fd77::1");
    rping(&lab, "a", "b", "10.77.0.1");
    // Shared memory would pass beside the links.
    let before = lab.count("a-s", "frames");
    rping(&lab, "b", "a", "10.77.0.2");
    let built = crate::dropin::libraries().is_some();
    assert!(!built || lab.count("a-s", "frames") > before + 20);
}

#[test]
fn lossy_wan_file_delivers_every_byte() {
    let Some(lab) = Lab::up(&ready_file("lossy-wan.toml")) else {
        return;
    };
    lab.reaches("near", "10.2.0.1");
    lab.reaches("near", "fd02::1");
    lab.transfer("near", "far", "10.2.0.1", 1_000_000);
    assert!(lab.count("wan", "lost") > 0);
}

#[test]
fn leaf_spine_file_fails_over() {
    let Some(lab) = Lab::up(&ready_file("leaf-spine.toml")) else {
        return;
    };
    for to in ["10.1.0.2", "10.1.0.3", "10.1.0.5", "10.2.0.8"] {
        lab.reaches("h1", to);
    }
    for link in ["leaf1-spine1", "leaf2-spine1"] {
        lab.done(&["fault", link, "cut"]);
        lab.reaches("h1", "10.1.0.3");
        lab.reaches("h3", "10.2.0.7");
    }
    let picture = lab.folder.join("lab.svg");
    lab.done(&["show", "--svg", picture.to_str().unwrap()]);
    assert!(fs::read_to_string(picture).unwrap().starts_with("<svg"));
    if std::env::var_os("LONG_TESTS").is_some() {
        leaf_spine_under_load(&lab);
    }
}

/// All hosts at once, by TCP and RDMA, while links are cut and mended.
fn leaf_spine_under_load(lab: &Lab) {
    lab.done(&["fault", "leaf1-spine1", "mend"]);
    lab.done(&["fault", "leaf2-spine1", "mend"]);
    let mut traffic: Vec<Running> = Vec::new();
    for (server, client, address) in [("h3", "h2", "10.1.0.3"), ("h8", "h4", "10.2.0.8")] {
        let serving = lab
            .plain(server, &["iperf3", "-s", "-1"])
            .stdout(Stdio::null())
            .spawn();
        let serving = Running(serving.unwrap());
        // Port 5201 in the state LISTEN.
        wait_until("iperf3 listens", || {
            let words = ["grep", "-q", ":1451 .* 0A ", "/proc/net/tcp6"];
            lab.plain(server, &words).status().unwrap().success()
        });
        let words = ["iperf3", "-c", address, "-t", "12"];
        let client = lab.plain(client, &words).stdout(Stdio::null()).spawn();
        traffic.push(Running(client.unwrap()));
        traffic.push(serving);
    }
    for round in 0..4 {
        let link = format!("leaf1-spine{}", round % 2 + 1);
        lab.done(&["fault", &link, "cut"]);
        lab.transfer("h1", "h5", "10.1.0.5", 5_000_000);
        lab.transfer("h7", "h1", "10.1.0.1", 5_000_000);
        rping(lab, "h6", "h1", "10.1.0.6");
        perftest(lab, "h5", "h7", "10.1.0.5");
        lab.done(&["fault", &link, "mend"]);
    }
    for mut program in traffic {
        assert!(program.0.wait().unwrap().success());
    }
}

/// A connection to the cable socket of a switch.
fn cable(path: &Path) -> OwnedFd {
    wait_for("the switch listens", || {
        let fd = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        connect(&fd, &SocketAddrUnix::new(path).unwrap()).ok()?;
        Some(fd)
    })
}

fn put(cable: &OwnedFd, frame: &[u8]) {
    let mut control = SendAncillaryBuffer::default();
    sendmsg(
        cable,
        &[IoSlice::new(frame)],
        &mut control,
        SendFlags::empty(),
    )
    .unwrap();
}

fn take(cable: &OwnedFd) -> Vec<u8> {
    wait_readable("a frame arrives", cable);
    let mut room = [0; 4096];
    let (got, _) = recv(cable, &mut room[..], RecvFlags::DONTWAIT).unwrap();
    room[..got].to_vec()
}

fn frame(from: u8, to: u8, mark: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x88, 0xb5];
    frame.resize(60, mark);
    frame
}

#[test]
fn switch_joins_cables_and_takes_faults() {
    let lab = Lab::folder();
    let (control, cables) = (lab.folder.join("control"), lab.folder.join("cables"));
    let (control, path) = (control.to_str().unwrap(), cables.to_str().unwrap());
    let mut switch = lab.command();
    switch.args([
        "switch",
        "--control",
        control,
        "--cable",
        path,
        "--cables",
        "3",
    ]);
    let mut switch = Running(switch.stdout(Stdio::null()).spawn().unwrap());
    let (one, two) = (cable(&cables), cable(&cables));
    let is_up = |name: &str| {
        let shown = lab.done(&["show", "--lab", control, "--json"]);
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        let links = shown["links"].as_array().unwrap().clone();
        links
            .iter()
            .any(|link| link["name"] == name && link["up"] == true)
    };
    wait_until("both cables are up", || is_up("cable0") && is_up("cable1"));
    put(&one, &frame(1, 2, 1));
    assert_eq!(take(&two), frame(1, 2, 1));
    put(&two, &frame(2, 1, 2));
    assert_eq!(take(&one), frame(2, 1, 2));

    // Frames that are no frames, and one that is too long for any interface.
    for hostile in [&[0xff; 1][..], &[0xff; 13], &[0xff; 70_000]] {
        put(&one, hostile);
    }
    lab.done(&["fault", "--lab", control, "cable1", "loss=100%"]);
    put(&one, &frame(1, 2, 3));
    lab.done(&["fault", "--lab", control, "cable1", "clear"]);
    put(&one, &frame(1, 2, 4));
    assert_eq!(take(&two), frame(1, 2, 4), "the one before was lost");

    drop(two);
    wait_until("the port of the closed cable is cut", || !is_up("cable1"));
    let three = cable(&cables);
    wait_until("the port is used again", || is_up("cable1"));
    put(&one, &frame(1, 9, 5));
    assert_eq!(take(&three), frame(1, 9, 5));

    kill_process(Pid::from_child(&switch.0), Signal::INT).unwrap();
    assert!(switch.0.wait().unwrap().success());
    assert!(!cables.exists() && !Path::new(control).exists());
}
