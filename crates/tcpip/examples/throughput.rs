//! Bytes per second of the stack against the kernel over a TAP, and of two kernels over two TAPs that this process joins.
//! `cargo run --release -p verbena-tcpip --example throughput` starts itself again in a user and network namespace; it needs unshare,
//! nsenter, ip and iperf3. No offloads are used on either path, so every frame has at most 1514 bytes and every checksum is computed.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbena_lan::{MAX_FRAME_LEN, Offloads, ReadOutcome, Tap, Vnet};
use verbena_stream::Time;
use verbena_tcpip::tcp::{Connection, TcpConfig};
use verbena_tcpip::{
    Arrival, InterfaceAddress, Mac, Outgoing, Stack, StackConfig, StackEvent, TrafficClass,
};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const INSIDE: &str = "TCPIP_THROUGHPUT_INSIDE";
const TOTAL: u64 = 1 << 30;
/// Frames that are read before the stack is asked for what it sends.
const BURST: usize = 64;

fn main() -> ExitCode {
    let result = if std::env::var_os(INSIDE).is_some() {
        measure()
    } else {
        start_inside()
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("throughput: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start_inside() -> Outcome<()> {
    let status = Command::new("unshare")
        .arg("-Urn")
        .arg(std::env::current_exe()?)
        .env(INSIDE, "1")
        .status()?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("in the namespace: {status}").into())
    }
}

fn run(line: &str) -> Outcome<()> {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap_or_default());
    let status = command.args(words).status()?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{line}: {status}").into())
    }
}

fn measure() -> Outcome<()> {
    run("ip link set lo up")?;
    let kernels = between_kernels()?;
    println!("kernel to kernel: {kernels:.2} Gbit/s");
    let (out, into) = (against_kernel(true)?, against_kernel(false)?);
    for (name, rate) in [("stack to kernel", out), ("kernel to stack", into)] {
        println!("{name}: {rate:.2} Gbit/s, {:.2} of it", rate / kernels);
    }
    Ok(())
}

fn tap(name: &str) -> Outcome<Tap> {
    let tap = Tap::create(name, 1)?;
    tap.set_offloads(Offloads::NONE)?;
    Ok(tap)
}

/// A process that keeps a network namespace, and is ended with the value.
struct Space(Child);

impl Drop for Space {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Gigabits per second of iperf3 between two namespaces, whose TAPs a thread joins frame by frame.
fn between_kernels() -> Outcome<f64> {
    let mut child = Command::new("unshare")
        .args(["-n", "sh", "-c", "echo ready; exec sleep 1000"])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = [0; 6];
    if let Some(out) = child.stdout.as_mut() {
        out.read_exact(&mut line)?;
    }
    let pid = child.id();
    let _space = Space(child);
    let (here, there) = (tap("near0")?, tap("far0")?);
    run(&format!("ip link set far0 netns {pid}"))?;
    run("ip address add 10.8.0.1/24 dev near0")?;
    run("ip link set near0 up")?;
    let inside = format!("nsenter -t {pid} -n ");
    run(&format!("{inside}ip address add 10.8.0.2/24 dev far0"))?;
    run(&format!("{inside}ip link set far0 up"))?;
    thread::spawn(move || join(&here, &there));
    let mut server = Command::new("nsenter")
        .args([
            "-t",
            &pid.to_string(),
            "-n",
            "iperf3",
            "-s",
            "-1",
            "--forceflush",
        ])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = [0; 20];
    if let Some(out) = server.stdout.as_mut() {
        out.read_exact(&mut line)?;
    }
    let total = TOTAL.to_string();
    let client = Command::new("iperf3")
        .args(["-c", "10.8.0.2", "-n", &total, "--json"])
        .output()?;
    drop(Space(server));
    let text = String::from_utf8_lossy(&client.stdout);
    let (_, sum) = text.split_once("\"sum_received\"").ok_or("no sum")?;
    let (_, rate) = sum.split_once("\"bits_per_second\":").ok_or("no rate")?;
    let rate = rate.split([',', '}']).next().unwrap_or_default().trim();
    Ok(rate.parse::<f64>()? / 1e9)
}

/// Copies frames between two TAPs for as long as the process runs.
fn join(a: &Tap, b: &Tap) {
    let mut room = vec![0; MAX_FRAME_LEN + 1];
    loop {
        let mut is_idle = true;
        for (from, to) in [(a, b), (b, a)] {
            for _ in 0..BURST {
                let Ok(ReadOutcome::Frame(_, len)) = from.queues()[0].read_frame(&mut room) else {
                    break;
                };
                is_idle = false;
                let _ = to.queues()[0].write_frame(&Vnet::PLAIN, &room[..len]);
            }
        }
        if is_idle {
            let fds = [&a.queues()[0], &b.queues()[0]];
            let _ = poll(&mut fds.map(|fd| PollFd::new(fd, PollFlags::IN)), None);
        }
    }
}

/// Gigabits per second between the stack and the kernel.
fn against_kernel(is_out: bool) -> Outcome<f64> {
    let tap = tap("tap0")?;
    run("ip address add 10.7.0.1/24 dev tap0")?;
    run("ip link set tap0 up")?;
    let config = StackConfig {
        mac: Mac([2, 0, 0, 0, 7, 2]),
        addresses: vec![InterfaceAddress {
            address: "10.7.0.2".parse()?,
            prefix: 24,
        }],
        ..StackConfig::default()
    };
    let listener = TcpListener::bind("10.7.0.1:0")?;
    let port = listener.local_addr()?.port();
    let kernel = thread::spawn(move || -> std::io::Result<u64> {
        let (mut socket, _) = listener.accept()?;
        let mut room = vec![0; 1 << 17];
        let mut count = 0;
        if is_out {
            while let len @ 1.. = socket.read(&mut room)? {
                count += len as u64;
            }
        } else {
            while count < TOTAL {
                count += socket.write(&room)? as u64;
            }
        }
        Ok(count)
    });
    let mut stack = Stack::new(config, [7; 32]);
    let began = Instant::now();
    let now = || Time::ZERO + Duration::from_secs(1000) + began.elapsed();
    let peer = SocketAddr::new("10.7.0.1".parse()?, port);
    let tcp = TcpConfig {
        receive_window: 4 << 20,
        ..TcpConfig::default()
    };
    let id = stack.connect(peer, None, tcp, TrafficClass::default(), now())?;
    let queue = &tap.queues()[0];
    let mut room = vec![0; MAX_FRAME_LEN + 1];
    let mut frame = Vec::with_capacity(2000);
    let zeros = [0; 2000];
    let (mut queued, mut arrived) = (0, 0);
    loop {
        let mut is_idle = true;
        for _ in 0..BURST {
            let ReadOutcome::Frame(_, len) = queue.read_frame(&mut room)? else {
                break;
            };
            is_idle = false;
            let arrival = stack.handle_frame(&room[..len], false, now());
            if let Arrival::Segment { received, .. } = arrival
                && received.in_order > arrived
            {
                stack.consume(id, received.in_order - arrived);
                arrived = received.in_order;
            }
        }
        if stack.deadline().is_some_and(|at| at <= now()) {
            stack.handle_timeout(now());
        }
        let released = stack.connection(id).map_or(0, Connection::released);
        while is_out && queued < TOTAL && queued < released + (4 << 20) {
            stack.queue(id, 1 << 16)?;
            queued += 1 << 16;
        }
        if is_out && queued >= TOTAL {
            stack.close(id, now());
        }
        while let Some(outgoing) = stack.poll_transmit(now()) {
            frame.clear();
            match outgoing {
                Outgoing::Frame(bytes) => frame.extend_from_slice(&bytes),
                Outgoing::Segment(mut segment) => {
                    let len = usize::try_from(segment.payload.end - segment.payload.start)?;
                    let payload = zeros.get(..len).ok_or("a long segment")?;
                    segment.complete([payload]);
                    frame.extend_from_slice(segment.headers());
                    frame.extend_from_slice(payload);
                }
            }
            queue.write_frame(&Vnet::PLAIN, &frame)?;
        }
        let mut is_done = false;
        while let Some(event) = stack.poll_event() {
            is_done |= matches!(event, StackEvent::PeerFinished(_) | StackEvent::Closed(..));
        }
        if is_done {
            break;
        }
        if is_idle {
            let wait = stack.deadline().map(|at| at.since(now()));
            let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
            let _ = poll(&mut [PollFd::new(queue, PollFlags::IN)], wait.as_ref());
        }
    }
    let took = began.elapsed();
    let counted = kernel.join().map_err(|_| "the kernel's side")??;
    let bytes = if is_out { counted } else { arrived };
    if bytes < TOTAL {
        return Err(format!("{bytes} of {TOTAL} bytes").into());
    }
    Ok(bytes as f64 * 8.0 / took.as_secs_f64() / 1e9)
}
