//! Our stack against Linux's over a TAP, each test in a user and network namespace of its own, so as root and as any user.

#![forbid(unsafe_code)]

mod host;
mod iperf;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::thread;

use host::{Faults, Host, KERNEL, OURS};
use verbena_testing::own_network;

/// Bytes of streams that are checked byte by byte.
const LONG: usize = 4 << 20;

/// False if a program is not installed; that is printed, and fails in CI.
fn has(program: &str) -> bool {
    let ran = Command::new(program).arg("--version").output();
    if ran.is_ok() {
        return true;
    }
    let ci = std::env::var("CI").is_ok_and(|ci| !matches!(ci.as_str(), "" | "0" | "false"));
    assert!(!ci, "{program} is not installed");
    eprintln!("SKIPPED: {program} is not installed");
    false
}

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    let byte = |at: usize| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ seed;
    (0..len).map(byte).collect()
}

fn at(address: &str, port: u16) -> String {
    if address.contains(':') {
        format!("[{address}]:{port}")
    } else {
        format!("{address}:{port}")
    }
}

#[test]
fn linux_pings_the_stack() {
    own_network!();
    if !has("ping") {
        return;
    }
    let mut host = Host::new(Faults::default());
    for address in OURS {
        let mut ping = Command::new("ping");
        ping.args(["-c", "3", "-i", "0.01", "-W", "10", "-s", "1400", address]);
        let output = host.run_program(&mut ping);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(" 0% packet loss"), "{text}");
    }
}

#[test]
fn curl_reads_from_the_stack() {
    own_network!();
    if !has("curl") {
        return;
    }
    let mut host = Host::new(Faults::default());
    host.listen(80);
    let body = pattern(1, 1 << 20);
    for address in OURS {
        let url = format!("http://{}/file", at(address, 80));
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--noproxy", "*", &url]);
        let mut child = curl.stdout(Stdio::piped()).spawn().expect("curl starts");
        let mut out = child.stdout.take().expect("a pipe");
        let reader = thread::spawn(move || {
            let mut bytes = Vec::new();
            out.read_to_end(&mut bytes).map(|_| bytes)
        });
        let id = host.accept(80);
        let mut request = Vec::new();
        host.run_until("the request", |host| {
            request.extend(host.take(id));
            request.ends_with(b"\r\n\r\n")
        });
        assert!(request.starts_with(b"GET /file HTTP/1.1\r\n"));
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        host.send(id, head.as_bytes());
        host.send(id, &body);
        host.finish(id);
        host.run_until("curl ends", |_| {
            child.try_wait().expect("a child").is_some()
        });
        assert!(child.wait().expect("a child").success());
        let bytes = reader.join().expect("the reader").expect("the output");
        assert!(bytes == body);
    }
}

#[test]
fn stack_reads_from_a_web_server() {
    own_network!();
    if !has("python3") {
        return;
    }
    let mut host = Host::new(Faults::default());
    let name = format!("verbena-tcpip-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    let body = pattern(2, 1 << 20);
    std::fs::write(folder.join("file"), &body).expect("a file");
    let mut server = Command::new("python3")
        .args(["-u", "-m", "http.server", "8000", "--bind", "::"])
        .current_dir(&folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("python3 starts");
    let mut line = [0; 7];
    let mut out = server.stdout.take().expect("a pipe");
    out.read_exact(&mut line).expect("it serves");
    for address in KERNEL {
        let id = host.connect(address, 8000);
        host.send(id, b"GET /file HTTP/1.0\r\n\r\n");
        let response = host.receive_all(id);
        host.finish(id);
        assert!(response.ends_with(&body), "{} bytes", response.len());
    }
    server.kill().expect("it runs");
    server.wait().expect("a child");
    std::fs::remove_dir_all(&folder).expect("the folder");
}

#[test]
fn iperf3_measures_both_directions() {
    own_network!();
    if !has("iperf3") {
        return;
    }
    const TOTAL: u64 = 20 << 20;
    let mut host = Host::new(Faults::default());
    host.listen(5201);
    for is_reverse in [false, true] {
        let mut client = Command::new("iperf3");
        client.args(["-c", OURS[0], "-n", &TOTAL.to_string()]);
        if is_reverse {
            client.arg("-R");
        }
        let mut child = client
            .stdout(Stdio::piped())
            .spawn()
            .expect("iperf3 starts");
        iperf::serve(&mut host, 5201, TOTAL, is_reverse);
        host.run_until("iperf3 ends", |_| {
            child.try_wait().expect("a child").is_some()
        });
        let output = child.wait_with_output().expect("its output");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
    }
    for is_reverse in [false, true] {
        let mut server = Command::new("iperf3")
            .args(["-s", "-1", "-p", "5202", "--forceflush"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("iperf3 starts");
        let mut out = server.stdout.take().expect("a pipe");
        let mut line = [0; 20];
        out.read_exact(&mut line).expect("it listens");
        iperf::run(&mut host, KERNEL[0], 5202, TOTAL, is_reverse);
        let mut rest = String::new();
        host.run_until("iperf3 ends", |_| {
            server.try_wait().expect("a child").is_some()
        });
        out.read_to_string(&mut rest).expect("its output");
        assert!(server.wait().expect("a child").success(), "{rest}");
    }
}

/// A stream of [`LONG`] bytes in each direction at once, checked.
fn exchange(host: &mut Host, id: verbena_tcpip::ConnectionId, mut kernel: TcpStream) {
    let mut reading = kernel.try_clone().expect("a socket");
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        reading.read_to_end(&mut bytes).map(|_| bytes)
    });
    let writer = thread::spawn(move || {
        kernel.write_all(&pattern(3, LONG))?;
        kernel.shutdown(Shutdown::Write)
    });
    host.send(id, &pattern(4, LONG));
    host.finish(id);
    let arrived = host.receive_all(id);
    assert!(arrived == pattern(3, LONG));
    host.run_until("the kernel has everything", |_| reader.is_finished());
    let bytes = reader.join().expect("the reader").expect("no error");
    assert!(bytes == pattern(4, LONG));
    writer.join().expect("the writer").expect("no error");
}

fn long_streams(faults: Faults) -> Host {
    let mut host = Host::new(faults);
    host.listen(7000);
    for (ours, kernels) in OURS.into_iter().zip(KERNEL) {
        let to = at(ours, 7000);
        let connecting = thread::spawn(move || TcpStream::connect(to));
        let id = host.accept(7000);
        host.run_until("the kernel is connected", |_| connecting.is_finished());
        let kernel = connecting.join().expect("a thread").expect("a connection");
        exchange(&mut host, id, kernel);

        let listener = TcpListener::bind(at(kernels, 0)).expect("a port");
        let port = listener.local_addr().expect("a port").port();
        let accepting = thread::spawn(move || listener.accept());
        let id = host.connect(kernels, port);
        host.run_until("the kernel accepts", |_| accepting.is_finished());
        let (kernel, _) = accepting.join().expect("a thread").expect("a connection");
        exchange(&mut host, id, kernel);
    }
    host
}

#[test]
fn long_streams_are_exact() {
    own_network!();
    long_streams(Faults::default());
}

#[test]
fn long_streams_are_exact_with_loss_and_reordering() {
    own_network!();
    let host = long_streams(Faults {
        loss: 10,
        reorder: 20,
    });
    assert!(host.out_of_order > 0, "data was placed ahead");
}

#[test]
fn closed_ports_refuse_in_both_directions() {
    own_network!();
    let mut host = Host::new(Faults::default());
    for (ours, kernels) in OURS.into_iter().zip(KERNEL) {
        let to = at(ours, 7001);
        let connecting = thread::spawn(move || TcpStream::connect(to));
        host.run_until("it is refused", |_| connecting.is_finished());
        let error = connecting.join().expect("a thread").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert!(host.is_refused(kernels, 7001));
    }
}

#[test]
fn unanswered_address_is_refused() {
    own_network!();
    let mut host = Host::new(Faults::default());
    assert!(host.is_refused("10.7.0.99", 1));
}

#[test]
fn datagrams_travel_in_both_directions() {
    own_network!();
    let mut host = Host::new(Faults::default());
    assert!(host.stack.bind_datagrams(9));
    for (ours, kernels) in OURS.into_iter().zip(KERNEL) {
        let socket = UdpSocket::bind(at(kernels, 0)).expect("a port");
        socket.connect(at(ours, 9)).expect("an address");
        for len in [0, 1, 1400] {
            let sent = pattern(5, len);
            socket.send(&sent).expect("a route");
            host.run_until("it arrives", |host| !host.datagrams.is_empty());
            let (source, arrived) = host.datagrams.remove(0);
            assert_eq!(arrived, sent);
            host.send_datagram(9, source, &arrived);
            let mut back = vec![0; 2000];
            socket.set_nonblocking(true).expect("a socket");
            let mut got = None;
            host.run_until("it comes back", |_| {
                got = socket.recv(&mut back).ok();
                got.is_some()
            });
            assert_eq!(got, Some(len));
            assert_eq!(back[..len], sent);
        }
        let refused = UdpSocket::bind(at(kernels, 0)).expect("a port");
        refused.connect(at(ours, 10)).expect("an address");
        refused.send(b"x").expect("a route");
        refused.set_nonblocking(true).expect("a socket");
        host.run_until("the port is unreachable", |_| {
            let error = refused.recv(&mut [0]).unwrap_err();
            error.kind() == ErrorKind::ConnectionRefused
        });
    }
}
