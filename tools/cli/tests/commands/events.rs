//! `verbena events` against a second process that causes events on demand.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use verbena::datagram::{UdOptions, UdQp};
use verbena::events::{Cause, Origin};
use verbena::low::{
    Arm, Cq, Data, Flags, Pd, Qp, QpOptions, RecvWr, SendOp, SendWr, StreamPath, Wc,
};
use verbena::tcp::{TcpOptions, TcpQp};
use verbena::{Access, Device};

/// Without the prefix of the settings: unknown settings are rejected.
const ROLE: &str = "TEST_OF_VERBENA_EVENTS";
/// The role of a process that has queue pairs of all kinds, and one that was migrated.
const ALL_KINDS: (&str, &str) = (ROLE, "all kinds");

fn verbena(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_verbena"));
    command.args(args);
    command
}

fn output(args: &[&str]) -> Output {
    verbena(args).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Killed on drop.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// This test program again, as the watched process.
struct Watched {
    process: Process,
    stdout: BufReader<ChildStdout>,
    stdin: ChildStdin,
}

impl Watched {
    fn start(settings: &[(&str, &str)]) -> Watched {
        Watched::start_as("events::as_child", settings)
    }

    fn start_as(test: &str, settings: &[(&str, &str)]) -> Watched {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .env(ROLE, "yes")
            .envs(settings.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        let hears = child.stdin.take().unwrap();
        Watched {
            process: Process(child),
            stdout: says,
            stdin: hears,
        }
    }

    /// Reads its next line.
    fn read_numbers(&mut self) -> Vec<u32> {
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "it ended");
            if let Some(said) = line.strip_prefix("> ") {
                return said
                    .split_whitespace()
                    .map(|n| n.parse().unwrap())
                    .collect();
            }
        }
    }

    fn proceed(&mut self) {
        writeln!(self.stdin, "go").unwrap();
    }

    fn pid(&self) -> String {
        self.process.0.id().to_string()
    }
}

fn wait_for_line() -> bool {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap() > 0
}

fn complete(cq: &Cq, mut count: usize) {
    let mut some = [Wc::default(); 8];
    while count > 0 {
        count -= cq.wait(&mut some).unwrap();
    }
}

/// Two connected queue pairs that have exchanged messages until their path does not change any more.
fn connected_pair(device: &Device, pd: &Pd, cq: &Cq) -> [Qp; 2] {
    let new = || Qp::new(pd, cq, cq, QpOptions::default()).unwrap();
    let [a, b] = [new(), new()];
    let listener = device.listen("127.0.0.1:0").unwrap();
    let connecting = a.connect(listener.local_addr().unwrap(), b"").unwrap();
    let request = listener.next().wait().unwrap();
    request.accept_on(&b, b"").unwrap().wait().unwrap();
    connecting.wait().unwrap();
    let is_settled = |qp: &Qp| match qp.query().unwrap().path {
        Some(StreamPath::Tcp(why)) => !why.unwrap().contains(" yet"),
        path => path.is_some(),
    };
    while !is_settled(&a) || !is_settled(&b) {
        for (from, to) in [(&a, &b), (&b, &a)] {
            let receive = RecvWr {
                id: 1,
                scatter: &[],
            };
            to.post_recv(&[receive]).unwrap();
            let send = SendWr {
                id: 2,
                op: SendOp::Send {
                    invalidate: None,
                    immediate: None,
                },
                flags: Flags::SIGNALED,
                data: Data::Inline(b""),
            };
            from.post_send(&[send]).unwrap();
            complete(cq, 2);
        }
    }
    [a, b]
}

/// Has one connection between two of its queue pairs.
#[test]
fn as_connected_child() {
    if std::env::var(ROLE).is_err() {
        return;
    }
    let device = Device::open().unwrap();
    let (pd, cq) = (device.pd().unwrap(), device.cq(64).unwrap());
    let [a, b] = connected_pair(&device, &pd, &cq);
    println!("\n> {} {}", a.number(), b.number());
    wait_for_line();
}

/// For each line of input: a solicited message that takes a shared receive queue below its limit, and an access to memory that is not
/// registered.
#[test]
fn as_child() {
    if std::env::var(ROLE).is_err() {
        return;
    }
    let device = Device::open().unwrap();
    let (pd, sent, received) = (
        device.pd().unwrap(),
        device.cq(64).unwrap(),
        device.cq(64).unwrap(),
    );
    let srq = pd.srq(16, 1).unwrap();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let all_kinds = std::env::var(ROLE).as_deref() == Ok(ALL_KINDS.1);
    let others = all_kinds.then(|| {
        let ud = UdQp::new(&pd, &sent, &sent, UdOptions::default()).unwrap();
        ud.set_qkey(77);
        let to = server.local_addr().unwrap();
        let tcp = TcpQp::connect(&pd, (&sent, &sent), to, TcpOptions::default()).unwrap();
        (
            ud,
            tcp,
            to.port(),
            connected_pair(&device, &pd, &device.cq(64).unwrap()),
        )
    });
    let (ud, qpn, tcp, port, joined) =
        others
            .as_ref()
            .map_or((0, 0, 0, 0, 0), |(ud, tcp, port, [joined, _])| {
                let port = u32::from(*port);
                let (ud, qpn) = (ud.event_number(), ud.number());
                (ud, qpn, tcp.number(), port, joined.number())
            });
    let (cq, srq_number) = (received.number(), srq.number());
    println!("\n> {cq} {srq_number} {ud} {qpn} {tcp} {port} {joined}");
    let mut kept = Vec::new();
    while wait_for_line() {
        let a = Qp::new(&pd, &sent, &sent, QpOptions::default()).unwrap();
        let b = Qp::with_srq(&pd, &received, &received, &srq, QpOptions::default()).unwrap();
        let address = std::env::var("VERBENA_DEVICE").unwrap_or("127.0.0.1".to_owned());
        let listener = device.listen(format!("{address}:0")).unwrap();
        let joining = a.connect(listener.local_addr().unwrap(), b"").unwrap();
        let request = listener.next().wait().unwrap();
        request.accept_on(&b, b"").unwrap().wait().unwrap();
        joining.wait().unwrap();
        // One that was migrated is shown like any other.
        let a = if all_kinds {
            a.migrate(&pd, &sent, &sent, None).unwrap()
        } else {
            a
        };
        let receive = RecvWr {
            id: 1,
            scatter: &[],
        };
        srq.post(&[receive]).unwrap();
        srq.set_limit(1).unwrap();
        received.arm(Arm::Solicited);
        let send = SendWr {
            id: 2,
            op: SendOp::Send {
                invalidate: None,
                immediate: None,
            },
            flags: Flags::SIGNALED | Flags::SOLICITED,
            data: Data::Inline(b""),
        };
        a.post_send(&[send]).unwrap();
        complete(&received, 1);
        complete(&sent, 1);
        let gone = pd.memory(64, Access::ALL).unwrap().remote().remote_addr();
        let write = SendWr {
            op: SendOp::Write {
                remote: gone,
                immediate: None,
            },
            data: Data::Inline(b"x"),
            ..send
        };
        a.post_send(&[write]).unwrap();
        complete(&sent, 1);
        println!("\n> {} {}", a.number(), b.number());
        for pin in 0..3 {
            let cause = Cause::GeneralPurpose { pin };
            device.inject(cause, Origin::UNSPECIFIED).unwrap();
        }
        // For `verbena devinfo`.
        kept.push((a, b));
    }
}

/// Starts `verbena events PID`, and waits until it watches.
fn watch(args: &[&str]) -> (Process, BufReader<ChildStdout>) {
    let mut child = verbena(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut complaints = BufReader::new(child.stderr.take().unwrap());
    complaints.read_line(&mut first).unwrap();
    assert!(first.starts_with("watching 1 adapter(s)"), "{first}");
    let out = BufReader::new(child.stdout.take().unwrap());
    // Read to the end, so that it never blocks on the pipe.
    std::thread::spawn(move || complaints.lines().all(|line| line.is_ok()));
    (Process(child), out)
}

/// Lines up to the last event of a round. The peer's adapter raises the access error after it has answered the requester, so that event
/// may come after the last one of the program.
fn round(out: &mut BufReader<ChildStdout>, last: &str) -> Vec<String> {
    let mut missing = vec![last, "qp_access_error"];
    let mut all = Vec::new();
    loop {
        let mut line = String::new();
        assert!(out.read_line(&mut line).unwrap() > 0, "{all:?}");
        assert!(line.ends_with('\n'), "whole lines");
        all.push(line.trim_end().to_owned());
        missing.retain(|part| !line.contains(part));
        if missing.is_empty() {
            return all;
        }
    }
}

#[test]
fn events_of_another_process_are_shown_live() {
    let mut watched = Watched::start(&[]);
    let numbers = watched.read_numbers();
    let (cq, srq) = (numbers[0], numbers[1]);
    let pid = watched.pid();
    let (plain, mut lines) = watch(&["events", &pid]);
    let (_json, mut objects) = watch(&["events", "--json", &pid]);
    watched.proceed();
    let qps = watched.read_numbers();
    let lines = round(&mut lines, "pin=2");
    let has = |words: &str| {
        let squeezed = |line: &String| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            lines.iter().any(|line| squeezed(line).ends_with(words)),
            "{words} in {lines:#?}"
        );
    };
    has(&format!(" 0 rdma srq_limit srq={srq}"));
    has(&format!(" 0 rdma completion cq={cq} reason=solicited"));
    has(&format!(" 0 rdma qp_access_error qp={}", qps[1]));
    has(" 0 global general_purpose pin=0");
    let objects: Vec<serde_json::Value> = round(&mut objects, r#""pin":2"#)
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    // Events of other threads at the same time may be before the last event in one output and after it in the other.
    let certain = ["srq_limit", "qp_access_error", "general_purpose"];
    for event in certain {
        let here = lines.iter().filter(|line| line.contains(event)).count();
        let there = objects.iter().filter(|o| o["event"] == event).count();
        assert_eq!(here, there, "both see the same {event}");
    }
    let limit = objects.iter().find(|o| o["event"] == "srq_limit").unwrap();
    assert_eq!(
        (limit["class"].as_str(), limit["srq"].as_u64()),
        (Some("rdma"), Some(srq.into()))
    );
    let times: Vec<f64> = objects
        .iter()
        .map(|o| o["time"].as_f64().unwrap())
        .collect();
    assert!(times.is_sorted() && times[0] > 1e9, "{times:?}");

    // The end of one watcher affects no other, and a new one sees the next events.
    drop(plain);
    let (mut after, mut lines) = watch(&["events", &pid]);
    watched.proceed();
    watched.read_numbers();
    assert!(round(&mut lines, "pin=2").len() >= 5);
    drop(watched);
    let ended = verbena_testing::process_ends(after.0.id(), verbena_testing::WAIT_LIMIT);
    assert!(ended, "it ends with the process");
    assert_eq!(after.0.wait().unwrap().code(), Some(0));
}

/// N1: everything about the queues of a running program.
#[test]
fn devinfo_shows_objects_of_running_program() {
    let mut watched = Watched::start(&[ALL_KINDS]);
    let numbers: Vec<u64> = watched.read_numbers().into_iter().map(u64::from).collect();
    let (cq, srq) = (numbers[0], numbers[1]);
    watched.proceed();
    let qps: Vec<u64> = watched.read_numbers().into_iter().map(u64::from).collect();
    let pid = watched.pid();
    let shown = output(&["devinfo", "--json", &pid]);
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
    let objects: Vec<serde_json::Value> = text(&shown.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let find = |kind: &str, number: u64| {
        let found = objects
            .iter()
            .find(|o| o["kind"] == kind && o["number"] == number);
        found.unwrap_or_else(|| panic!("{kind} {number} in {objects:#?}"))
    };
    let adapter = objects.iter().find(|o| o["kind"] == "adapter").unwrap();
    for counter in [
        "dropped_checksum",
        "dropped_wrong_source",
        "packets_handed_over",
    ] {
        assert_eq!(adapter[counter], 0, "{adapter}");
    }
    let (queue, shared) = (find("cq", cq), find("srq", srq));
    assert_eq!((&queue["users"], &shared["users"]), (&1.into(), &1.into()));
    assert_eq!(shared["receives"], 16);
    let (a, b) = (find("qp", qps[0]), find("qp", qps[1]));
    assert_eq!((&b["recv_cq"], &b["srq"]), (&cq.into(), &srq.into()));
    assert_eq!(
        (&a["srq"], &a["max_sends"]),
        (&serde_json::Value::Null, &128.into())
    );
    assert_eq!((&a["state"], &a["pd"]), (&"Err".into(), &b["pd"]));
    assert_eq!(a["messages_out"], 2);
    assert_eq!(a["peer_timeout"], "10s");
    assert!(a["cause"].is_string(), "{a}");
    let (ud, tcp) = (find("qp", numbers[2]), find("qp", numbers[4]));
    assert_eq!(
        (&ud["type"], &ud["qpn"]),
        (&"Ud".into(), &numbers[3].into())
    );
    assert_eq!((&ud["qkey"], &ud["state"]), (&77.into(), &"Reset".into()));
    assert_eq!((&ud["send_cq"], &ud["pd"]), (&a["send_cq"], &a["pd"]));
    assert_eq!(
        (&ud["no_receive"], &ud["cause"]),
        (&0.into(), &serde_json::Value::Null)
    );
    assert_eq!(
        (&tcp["type"], &tcp["protocol"]),
        (&"Ulp".into(), &"tcp".into())
    );
    assert_eq!(
        (&tcp["state"], &tcp["service"]),
        (&"Rts".into(), &"rdma".into())
    );
    assert_eq!((&tcp["recv_cq"], &tcp["sends"]), (&a["recv_cq"], &0.into()));
    let peer = format!("127.0.0.1:{}", numbers[5]);
    assert_eq!(tcp["peer"], peer.as_str(), "{tcp}");
    assert!(tcp["local"].is_string(), "{tcp}");
    let joined = find("qp", numbers[6]);
    assert_eq!(
        (&joined["path"], joined["peer_pid"].to_string()),
        (&"shared-memory".into(), pid.clone()),
        "{joined}"
    );
    assert!(joined["no_shared_memory"].is_null(), "{joined}");
    let plain = text(&output(&["devinfo", &pid]).stdout);
    assert!(plain.contains("rnr_retry          Forever"), "{plain}");
    let refused = output(&["devinfo", "4194305"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("there is no process 4194305"));
}

/// N1: a connection over RoCEv2 has addresses, numbers and the values that were negotiated, like any other.
#[test]
fn devinfo_shows_roce_connections() {
    let address = "127.0.69.10";
    let settings = [("VERBENA_DEVICE", address), ("VERBENA_WIRE", "roce")];
    let mut watched = Watched::start(&settings);
    watched.read_numbers();
    watched.proceed();
    let numbers = watched.read_numbers();
    let shown = output(&["devinfo", "--json", &watched.pid()]);
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
    let objects: Vec<serde_json::Value> = text(&shown.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let find = |number: u32| {
        let mut qps = objects.iter().filter(|o| o["kind"] == "qp");
        let found = qps.find(|o| o["number"] == number);
        found.unwrap_or_else(|| panic!("{number} in {objects:#?}"))
    };
    let (a, b) = (find(numbers[0]), find(numbers[1]));
    let port = serde_json::json!(format!("{address}:4791"));
    for (here, there) in [(a, b), (b, a)] {
        assert_eq!(here["path"], "roce", "{here}");
        assert_eq!((&here["local"], &here["peer"]), (&port, &port), "{here}");
        assert!(here["qpn"].is_number(), "{here}");
        assert_eq!(here["peer_qpn"], there["qpn"]);
        assert_eq!(here["send_psn"], there["receive_psn"]);
        assert_eq!(here["path_mtu"], there["path_mtu"]);
        for key in ["path_mtu", "send_psn", "retry_count"] {
            assert!(here[key].is_number(), "{key} of {here}");
        }
        for key in ["ack_timeout", "traffic_class"] {
            assert!(here.get(key).is_some(), "{key} of {here}");
        }
    }
}

/// Also where shared memory was never tried.
#[test]
fn devinfo_says_why_a_connection_is_not_in_shared_memory() {
    let encrypted = [
        ("VERBENA_TLS", "psk"),
        ("VERBENA_KEY", "a key of both sides"),
    ];
    for (settings, why) in [
        (&[("VERBENA_SAME_HOST", "off")][..], "same_host-is-off"),
        (
            &[("VERBENA_SAME_HOST_CONNECTIONS", "0")],
            "same_host_connections-is-reached:-0",
        ),
        (&encrypted, "the-connection-uses-TLS"),
        (
            &[("VERBENA_EXTENSIONS", "off")],
            "the-peer-does-not-use-the-extensions",
        ),
    ] {
        let mut watched = Watched::start_as("events::as_connected_child", settings);
        let numbers = watched.read_numbers();
        let shown = output(&["devinfo", "--json", &watched.pid()]);
        let qps: Vec<serde_json::Value> = text(&shown.stdout)
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .filter(|object: &serde_json::Value| object["kind"] == "qp")
            .collect();
        assert_eq!(qps.len(), numbers.len());
        for qp in qps {
            assert_eq!(qp["path"], "tcp", "{qp}");
            assert_eq!(qp["no_shared_memory"], why, "{qp}");
        }
        watched.proceed();
    }
}

#[test]
fn processes_that_can_be_watched_are_listed() {
    let mut watched = Watched::start(&[]);
    watched.read_numbers();
    let pid = watched.pid();
    let said = text(&output(&["events"]).stdout);
    let line = said.lines().find(|line| line.trim().starts_with(&pid));
    assert!(
        line.is_some_and(|line| line.contains("1 adapter(s)")),
        "{said}"
    );
    let said = text(&output(&["events", "--json"]).stdout);
    let listed = said.lines().any(|line| {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        object["pid"].as_u64() == pid.parse().ok() && object["adapters"] == serde_json::json!([0])
    });
    assert!(listed, "{said}");
    let help = text(&output(&["events", "--help"]).stdout);
    assert!(
        help.contains("[PID]") && help.contains("srq_limit"),
        "{help}"
    );
}

#[test]
fn unwatchable_processes_are_refused_with_reason() {
    let mut silent = Watched::start(&[("VERBENA_MONITOR", "off")]);
    silent.read_numbers();
    let ours = std::process::id().to_string();
    for (pid, why) in [
        ("4194305", "there is no process 4194305"),
        (&silent.pid(), "its setting `monitor` is off"),
        (&ours, "it has no adapter"),
    ] {
        let refused = output(&["events", pid]);
        assert_eq!(refused.status.code(), Some(1));
        let said = text(&refused.stderr);
        assert!(said.contains(why) && said.lines().count() == 1, "{said}");
    }
    assert_eq!(output(&["events", "me"]).status.code(), Some(2));
}

/// It cannot answer; the command must report that within its time limit.
#[test]
fn stopped_process_is_reported_as_unresponsive() {
    let mut stopped = Watched::start(&[]);
    stopped.read_numbers();
    let pid = stopped.pid();
    let stop = Command::new("kill").args(["-STOP", &pid]).status();
    assert!(stop.unwrap().success());
    // The signal may not have taken effect yet: until then the process still answers.
    let is_stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| stat.contains(") T "))
    };
    verbena_testing::wait_until("it is stopped", is_stopped);
    let refused = output(&["events", &pid]);
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(said.contains("does not answer"), "{said}");
}

/// Any process can bind the name of another.
#[test]
fn socket_of_another_process_is_refused() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    let mut silent = Watched::start(&[("VERBENA_MONITOR", "off")]);
    silent.read_numbers();
    let pid = silent.pid();
    let name = format!("{}{pid}/0", verbena::unstable::monitor::NAME);
    let name = SocketAddr::from_abstract_name(name).unwrap();
    let _impostor = UnixListener::bind_addr(&name).unwrap();
    let refused = output(&["events", &pid]);
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    let ours = std::process::id();
    assert!(
        said.contains(&format!("is bound by process {ours}")),
        "{said}"
    );
}

/// E12: after the events of a round, each vector that was used is listed, and no register was read.
#[test]
fn interrupt_counters_of_a_process_are_shown() {
    let mut watched = Watched::start(&[]);
    watched.read_numbers();
    let pid = watched.pid();
    let (_watch, mut lines) = watch(&["events", &pid]);
    watched.proceed();
    watched.read_numbers();
    round(&mut lines, "pin=2");
    let out = output(&["events", "--counters", "--json", &pid]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let said = text(&out.stdout);
    let objects: Vec<serde_json::Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (total, vectors) = objects.split_last().unwrap();
    let global = vectors.iter().find(|o| o["vector"] == 0).expect(&said);
    assert!(global["interrupts"].as_u64() >= Some(3), "{global}");
    let sum = |key: &str| {
        vectors
            .iter()
            .map(|o| o[key].as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!(total["event"], "total");
    assert_eq!(total["register_reads"], 0, "{total}");
    assert_eq!(total["interrupts"].as_u64(), Some(sum("interrupts")));
    assert!(total["register_writes"].as_u64() >= Some(sum("register_writes")));
    for vector in vectors {
        // One queue per vector by default: at most one write per interrupt.
        assert!(vector["register_writes"].as_u64() <= vector["interrupts"].as_u64());
    }
    let said = text(&output(&["events", "--counters", &pid]).stdout);
    assert!(
        said.lines().last().unwrap().contains("register_reads=0"),
        "{said}"
    );
    let missing = output(&["events", "--counters"]);
    assert_eq!(missing.status.code(), Some(2), "a process is needed");

    // The same as a table.
    let shown = output(&["devinfo", "--events", &pid]);
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
    let rows = text(&shown.stdout);
    let rows: Vec<Vec<&str>> = rows
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let head = [
        "adapter",
        "vector",
        "interrupts",
        "events",
        "coalesced",
        "register_writes",
        "register_reads",
        "code",
    ];
    assert_eq!(rows[0], head);
    assert!(rows.iter().all(|row| row.len() == head.len()), "{rows:?}");
    let global = rows.iter().find(|row| row[1] == "0").expect("vector 0");
    assert_eq!(global[7], "0xa4", "the code of a general-purpose signal");
    let total = rows.last().unwrap();
    assert_eq!((total[1], total[6]), ("total", "0"), "{rows:?}");
    let said = text(&output(&["devinfo", "--events", "--json", &pid]).stdout);
    assert_eq!(said.lines().count() + 1, rows.len(), "{said}");
}

/// E8: the settings of events, and the table that they result in.
#[test]
fn devinfo_shows_the_configuration_of_events() {
    let show = |args: &[&str], settings: &[(&str, &str)]| {
        let mut command = verbena(args);
        command.envs(settings.iter().copied());
        let shown = command.output().expect("the command starts");
        (
            shown.status.code(),
            text(&shown.stdout),
            text(&shown.stderr),
        )
    };
    let table = ("VERBENA_INTERRUPT_TABLE", "1,0");
    let settings = [("VERBENA_HANDLERS", "2"), table];
    let (code, shown, _) = show(&["devinfo", "--events", "--json"], &settings);
    assert_eq!(code, Some(0));
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["settings"]["interrupt_table"], "1,0");
    assert_eq!(shown["settings"]["interrupt_routing"], "processor");
    let entry = |processor: u16, channel: u8| {
        let queue = processor;
        serde_json::json!({"processor": processor, "channel": channel, "queue": queue})
    };
    let expected = serde_json::json!([entry(4, 0), entry(3, 1)]);
    assert_eq!(shown["table"], expected);
    let (_, shown, _) = show(&["devinfo", "--events"], &settings);
    let row = "1   processor 3, channel 1, event queue 3";
    assert!(shown.contains(row), "{shown}");
    let settings = [("VERBENA_HANDLERS", "1"), table];
    let (code, _, said) = show(&["devinfo", "--events"], &settings);
    assert_eq!(code, Some(1));
    let why = "expected numbers below handlers, which is 1";
    assert!(said.contains(why), "{said}");
}
