//! `verbena pcap` on programs of rdma-core and perftest that know nothing of it, over TCP, RoCEv2 and shared memory; what tshark and `verbena decode` find in
//! the result; a program that is killed, a ring that is too small, and processes that may not or cannot be captured.

use std::fs::File;
use std::io::{BufRead, BufReader, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketAddrUnix, SocketType,
};
use rustix::process::{Pid, Signal, kill_process};
use verbena_testing::wait_for;

use super::dropin::libraries;
use super::running::{Program, Runtime, free_port, has_program, has_sent, text};

/// The lines of tshark for these frames; none if the machine has no tshark.
fn tshark(file: &Path, filter: &str, fields: &[&str]) -> Option<Vec<String>> {
    has_program("tshark").then(|| {
        let mut command = Command::new("tshark");
        // Checksums are checked, so that wrong ones are found by a filter.
        for name in ["ip", "tcp", "udp"] {
            command.args(["-o", &format!("{name}.check_checksum:TRUE")]);
        }
        command
            .args(["-Q", "-r"])
            .arg(file)
            .args(["-Y", filter, "-T", "fields"]);
        for field in fields {
            command.args(["-e", field]);
        }
        let output = command.output().expect("tshark starts");
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout).lines().map(str::to_owned).collect()
    })
}

/// No frame has a wrong checksum or is malformed.
fn is_sound(file: &Path) {
    let wrong = "_ws.malformed || ip.checksum.status == 0 || tcp.checksum.status == 0 || udp.checksum.status == 0";
    let found = tshark(file, wrong, &["frame.number", "_ws.col.info"]);
    assert_eq!(found.unwrap_or_default(), Vec::<String>::new());
}

/// A capture that is running.
struct Capture {
    program: Program,
    file: PathBuf,
}

impl Capture {
    fn begin(runtime: &Runtime, subject: &str, options: &[&str]) -> Capture {
        let file = runtime.0.join("capture.pcapng");
        // Of an earlier capture of this test.
        let _ = std::fs::remove_file(&file);
        let shown = file.to_str().unwrap();
        let child = runtime
            .command(&[&["pcap", subject, "-o", shown], options].concat())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        Capture {
            program: Program(child),
            file,
        }
    }

    /// Waits until the file has as many bytes.
    fn wait_for_bytes(&self, bytes: u64) {
        wait_for("captured frames", || {
            let found = std::fs::metadata(&self.file).ok()?;
            (found.len() >= bytes).then_some(())
        });
    }

    /// Ends it as Ctrl-C does; what it said.
    fn interrupt(mut self) -> (PathBuf, String) {
        kill_process(Pid::from_child(&self.program.0), Signal::INT).unwrap();
        self.wait()
    }

    fn wait(&mut self) -> (PathBuf, String) {
        let status = self.program.0.wait().unwrap();
        let mut said = String::new();
        let err = self.program.0.stderr.as_mut().expect("piped");
        std::io::Read::read_to_string(err, &mut said).unwrap();
        assert!(status.success(), "{said}");
        (self.file.clone(), said)
    }
}

/// perftest's writes with these settings of the adapter, without an end: a server, and a client that has sent.
fn write_bw_with(runtime: &Runtime, settings: &[&str]) -> Option<(Program, Program)> {
    libraries()?;
    if !has_program("ib_write_bw") {
        return None;
    }
    let port = free_port();
    let options = ["ib_write_bw", "-D", "120", "-s", "4096", "-p", &port];
    let start = |peer: &[&str]| {
        let mut command = runtime.command(&["run", "--set", "device=127.0.0.1"]);
        for setting in settings {
            command.args(["--set", setting]);
        }
        let child = command
            .arg("--")
            .args(options)
            .args(peer)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the command starts");
        Program(child)
    };
    let server = start(&[]);
    let client = wait_for("a client that has sent", || {
        let mut client = start(&["127.0.0.1"]);
        loop {
            match client.0.try_wait().unwrap() {
                Some(_) => return None,
                None if has_sent(runtime, client.pid()) => return Some(client),
                None => std::thread::yield_now(),
            }
        }
    });
    Some((server, client))
}

#[test]
fn writes_in_shared_memory_are_dissected() {
    let runtime = Runtime::new();
    let Some((_server, client)) = write_bw_with(&runtime, &["same_host=on"]) else {
        return;
    };
    let pid = client.pid().to_string();
    let mut capture = Capture::begin(&runtime, &pid, &["--max-size", "1M"]);
    capture.wait_for_bytes(1 << 19);
    let (file, said) = capture.wait();
    assert!(said.contains("(ib_write_bw)"), "{said}");
    // MPA FPDUs that are RDMA Writes, from the first one on.
    let writes = tshark(
        &file,
        "iwarp_ddp_rdmap && iwarp_rdma.opcode == 0",
        &["tcp.len"],
    );
    if let Some(writes) = writes {
        assert!(writes.len() > 50, "{} of {said}", writes.len());
        let acks = tshark(
            &file,
            "iwarp_mpa.fpdu && tcp.dstport == tcp.port",
            &["tcp.len"],
        );
        assert!(!acks.unwrap_or_default().is_empty());
    }
    is_sound(&file);
    // It began before the capture, which `verbena decode` says.
    let decoded = runtime.output(&["decode", file.to_str().unwrap()]);
    assert!(decoded.status.success(), "{decoded:?}");
    let shown = text(&decoded.stdout);
    assert!(shown.contains("captured from its middle on"), "{shown}");
    // The program goes on, and can be captured again.
    assert!(has_sent(&runtime, client.pid()));
    let again = Capture::begin(&runtime, &pid, &[]);
    again.wait_for_bytes(10_000);
    again.interrupt();
}

#[test]
fn killed_program_leaves_a_valid_file() {
    let runtime = Runtime::new();
    let Some((_server, mut client)) = write_bw_with(&runtime, &["same_host=off"]) else {
        return;
    };
    let subject = format!("{}/2", client.pid());
    let mut capture = Capture::begin(&runtime, &subject, &["--snaplen", "200"]);
    capture.wait_for_bytes(100_000);
    client.kill();
    let (file, said) = capture.wait();
    assert!(said.contains("frames captured"), "{said}");
    if let Some(writes) = tshark(&file, "iwarp_mpa.fpdu", &["frame.cap_len"]) {
        assert!(writes.len() > 20, "{said}");
        assert!(writes.iter().all(|len| len.parse::<u32>().unwrap() <= 200));
    }
}

#[test]
fn packets_of_rocev2_are_the_real_ones() {
    let runtime = Runtime::new();
    let Some((_server, client)) = write_bw_with(&runtime, &["wire=roce"]) else {
        return;
    };
    let pid = client.pid().to_string();
    let mut capture = Capture::begin(&runtime, &pid, &["--max-size", "400k"]);
    let (file, said) = capture.wait();
    is_sound(&file);
    let Some(packets) = tshark(&file, "infiniband", &["infiniband.bth.opcode"]) else {
        return;
    };
    // RDMA Writes (first, middle, last, only) and acknowledgements.
    let is = |range: core::ops::RangeInclusive<u32>| {
        let wanted = |code: &&String| code.parse().is_ok_and(|code: u32| range.contains(&code));
        packets.iter().filter(wanted).count()
    };
    assert!(is(6..=11) > 20 && is(17..=17) > 0, "{said} {packets:?}");
    // `verbena decode` checks the ICRC of each.
    let decoded = runtime.output(&["decode", file.to_str().unwrap()]);
    let shown = text(&decoded.stdout);
    assert!(!shown.contains("ICRC"), "{shown}");
}

#[test]
fn frames_beyond_a_small_ring_are_counted() {
    let runtime = Runtime::new();
    let Some((_server, client)) = write_bw_with(&runtime, &["same_host=on"]) else {
        return;
    };
    let pid = client.pid().to_string();
    let capture = Capture::begin(&runtime, &pid, &["--ring", "128k"]);
    // While the reader is stopped the ring becomes full; the program goes on.
    capture.wait_for_bytes(100_000);
    capture.program.signal(Signal::STOP);
    let sent = || {
        let output = runtime.output(&["devinfo", "--json", &pid]);
        let find = |line: &str| {
            let object: serde_json::Value = serde_json::from_str(line).unwrap();
            (object["kind"] == "qp").then(|| object["messages_out"].as_u64())?
        };
        text(&output.stdout).lines().find_map(find)
    };
    let before = sent().expect("a queue pair");
    wait_for("messages while the ring is full", || {
        (sent()? > before + 1000).then_some(())
    });
    capture.program.signal(Signal::CONT);
    let size = std::fs::metadata(&capture.file).unwrap().len();
    capture.wait_for_bytes(size + 100_000);
    let (file, said) = capture.interrupt();
    let dropped = said.split("captured, ").nth(1).and_then(|rest| {
        let (count, _) = rest.split_once(' ')?;
        count.parse::<u64>().ok()
    });
    assert!(dropped.is_some_and(|dropped| dropped > 100), "{said}");
    // Each frame is whole, wherever others are missing.
    if let Some(frames) = tshark(&file, "iwarp_mpa.fpdu", &["frame.number"]) {
        assert!(frames.len() > 10, "{said}");
    }
}

#[test]
fn started_program_is_captured_from_its_first_byte() {
    let runtime = Runtime::new();
    if libraries().is_none() || !has_program("rping") {
        return;
    }
    let file = runtime.0.join("all.pcapng");
    let port = free_port();
    let options = ["-C", "3", "-p", &port, "-a", "127.0.0.1"];
    let _server = runtime.start(&[&["rping", "-s"], &options[..]].concat());
    let output = wait_for("a client that finds its server", || {
        let mut command = runtime.command(&["pcap", "-o", file.to_str().unwrap()]);
        command.args(["--device", "127.0.0.1", "--", "rping", "-c"]);
        let output = command.args(options).output().expect("the command starts");
        output.status.success().then_some(output)
    });
    let said = text(&output.stderr);
    assert!(said.contains("frames captured, 0 dropped"), "{said}");
    is_sound(&file);
    // Judged as the receivers would.
    let decoded = runtime.output(&["decode", file.to_str().unwrap()]);
    let shown = text(&decoded.stdout);
    assert!(decoded.status.success(), "{shown}");
    assert!(shown.contains("extensions on"), "{shown}");
    for (kind, at_least) in [("> Send ", 6), ("< Write ", 3), ("> ReadV2Response", 3)] {
        let count = shown.matches(kind).count();
        assert!(count >= at_least, "{kind}: {shown}");
    }
}

#[test]
fn what_cannot_be_captured_is_an_error() {
    let runtime = Runtime::new();
    let child = Command::new("sleep").arg("1000").spawn().unwrap();
    let child = Program(child);
    let pid = child.pid().to_string();
    let file = runtime.0.join("none.pcapng");
    let name = file.to_str().unwrap();
    let output = runtime.output(&["pcap", &pid, "-o", name]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        text(&output.stderr).contains("cannot be watched"),
        "{output:?}"
    );
    for wrong in [
        &["pcap"][..],
        &["pcap", "x"],
        &["pcap", &pid, "--snaplen", "1"],
        &["pcap", &pid, "--ring", "1k"],
        &["pcap", &pid, "--max-size", "x"],
        &["pcap", &pid, "--files", "3", "-o", name],
    ] {
        let output = runtime.output(wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?} {output:?}");
    }
}

/// A socket with these abstract names, as those of captures are.
fn packet_socket() -> OwnedFd {
    net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap()
}

fn capture_name(pid: u32) -> SocketAddrUnix {
    SocketAddrUnix::new_abstract_name(format!("verbena-capture/{pid}/0").as_bytes()).unwrap()
}

#[test]
fn hostile_clients_are_disconnected() {
    let runtime = Runtime::new();
    let Some((_server, client)) = write_bw_with(&runtime, &["same_host=off"]) else {
        return;
    };
    let name = capture_name(client.pid());
    for request in [&b"x"[..], &[0; 20], &[0xff; 4000]] {
        let socket = packet_socket();
        net::connect(&socket, &name).unwrap();
        net::send(&socket, request, SendFlags::NOSIGNAL).unwrap();
        // Perhaps an answer that refuses, and then the end.
        let mut room = [0; 64];
        let ended = || match net::recv(&socket, &mut room[..], RecvFlags::empty()) {
            Ok((0, _)) | Err(Errno::CONNRESET | Errno::PIPE) => Some(()),
            Ok(_) => None,
            Err(error) => panic!("{error}"),
        };
        wait_for("the end of the connection", ended);
    }
    // Silent ones take the places for clients, and give them back.
    let silent: Vec<OwnedFd> = (0..8).map(|_| packet_socket()).collect();
    for socket in &silent {
        net::connect(socket, &name).unwrap();
    }
    drop(silent);
    let pid = client.pid().to_string();
    wait_for("a capture after all those", || {
        let file = runtime.0.join("after.pcapng");
        let options = [
            "pcap",
            &pid,
            "--max-size",
            "20k",
            "-o",
            file.to_str().unwrap(),
        ];
        runtime.output(&options).status.success().then_some(())
    });
    assert!(has_sent(&runtime, client.pid()));
}

/// Without the prefix of the settings: unknown settings are rejected.
const ROLE: &str = "TEST_OF_VERBENA_PCAP";

/// A process that is no adapter and serves its socket.
#[test]
fn as_hostile_child() {
    let Ok(what) = std::env::var(ROLE) else {
        return;
    };
    let listener = packet_socket();
    net::bind(&listener, &capture_name(std::process::id())).unwrap();
    net::listen(&listener, 1).unwrap();
    println!("\n> ready");
    let client = net::accept(&listener).unwrap();
    let mut request = [0; 64];
    let _ = net::recv(&client, &mut request[..], RecvFlags::empty());
    // "Attached", as an adapter would say.
    let answer = [0; 17];
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let ring = File::from(memfd_create("hostile", flags).unwrap());
    match what.as_str() {
        "a ring of ones" => {
            let bytes = vec![0xff; 64 << 20];
            (&ring).write_all(&bytes).unwrap();
        }
        "a short ring" => ring.set_len(4096).unwrap(),
        _ => ring.set_len(64 << 20).unwrap(),
    }
    if what != "an open ring" {
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&ring, seals).unwrap();
    }
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let fds = [ring.as_fd()];
    if what != "no ring" {
        control.push(SendAncillaryMessage::ScmRights(&fds));
    }
    let parts = [IoSlice::new(&answer)];
    let _ = net::sendmsg(&client, &parts, &mut control, SendFlags::NOSIGNAL);
    let _ = net::recv(&client, &mut request[..], RecvFlags::empty());
}

#[test]
fn hostile_process_ends_only_its_capture() {
    let runtime = Runtime::new();
    for (what, complaint) in [
        ("no ring", "refused the capture"),
        ("a short ring", "ring cannot be used"),
        ("an open ring", "ring cannot be used"),
        ("a ring of ones", "no record of a capture"),
    ] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["pcap::as_hostile_child", "--exact", "--nocapture"])
            .env(ROLE, what)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let child = Program(child);
        let mut lines = out.lines();
        assert!(lines.any(|line| line.unwrap() == "> ready"));
        let file = runtime.0.join("hostile.pcapng");
        let pid = child.pid().to_string();
        let output = runtime.output(&["pcap", &pid, "-o", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1), "{what}: {output:?}");
        assert!(
            text(&output.stderr).contains(complaint),
            "{what}: {output:?}"
        );
    }
}
