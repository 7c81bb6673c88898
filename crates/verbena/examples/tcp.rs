//! Queue pairs on plain TCP connections, to servers that know nothing of RDMA: fetches a page from a web server, or measures with an
//! `iperf3` server. The reply and the test data are in registered memory; completions say what arrived.
//!
//! ```text
//! python3 -m http.server 8000 &      cargo run --release --example tcp -- get 127.0.0.1:8000 /
//! iperf3 -s &                        cargo run --release --example tcp -- iperf3 127.0.0.1:5201 2
//! ```

use std::error::Error;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use verbena::low::{Cq, Data, Flags, Pd, RecvWr, Sge, Wc};
use verbena::tcp::{Acknowledgement, Fill, TcpOptions, TcpQp, TcpSendWr};
use verbena::{Access, Device, Memory, Status};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Bytes of registered memory.
const MEMORY: usize = 4 << 20;
/// Bytes of one send of test data, and how many are outstanding.
const BLOCK: usize = 128 << 10;
const DEPTH: usize = 16;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["get", at, path] => get(resolve(at)?, path),
        ["iperf3", at, seconds] => iperf3(resolve(at)?, seconds.parse()?),
        _ => Err("usage: tcp get ADDRESS:PORT PATH | tcp iperf3 ADDRESS:PORT SECONDS".into()),
    }
}

fn resolve(at: &str) -> Result<SocketAddr> {
    let first = at.to_socket_addrs()?.next();
    first.ok_or_else(|| format!("{at}: no address").into())
}

/// One connection with a completion queue of its own.
struct Peer {
    qp: TcpQp,
    cq: Cq,
    memory: Memory,
}

impl Peer {
    fn connect(pd: &Pd, device: &Device, to: SocketAddr, options: TcpOptions<'_>) -> Result<Peer> {
        let cq = device.cq(64)?;
        Ok(Peer {
            qp: TcpQp::connect(pd, (&cq, &cq), to, options)?,
            memory: pd.memory(MEMORY, Access::ALL)?,
            cq,
        })
    }

    /// Sends and waits for the completion.
    fn send(&self, data: Data<'_>) -> Result<()> {
        let (id, flags) = (0, Flags::SIGNALED);
        self.qp.post_send(&[TcpSendWr { id, flags, data }])?;
        self.wait().map(drop)
    }

    /// Sends from memory at offset 0.
    fn send_text(&self, text: &[u8]) -> Result<()> {
        self.memory.write_at(0, text)?;
        self.send(Data::Gather(&[self.sge(0, text.len())?]))
    }

    /// Receives `len` bytes at `offset` of the memory; returns how many there were.
    fn receive(&self, offset: usize, len: usize) -> Result<usize> {
        let scatter = &[self.sge(offset, len)?];
        self.qp.post_recv(&[RecvWr { id: 0, scatter }])?;
        self.wait()
    }

    fn sge(&self, offset: usize, len: usize) -> Result<Sge> {
        Ok(self.memory.sge(offset, len)?)
    }

    /// The next completion: its length, and 0 for a receive behind the end of the stream.
    fn wait(&self) -> Result<usize> {
        let mut completions = [Wc::default(); 1];
        while self.cq.wait(&mut completions)? == 0 {}
        match completions[0].status {
            Status::Success => Ok(completions[0].len as usize),
            Status::WrFlushErr if self.qp.is_at_end() => Ok(0),
            status => Err(format!("{status:?}: {:?}", self.qp.cause()).into()),
        }
    }

    fn bytes(&self, offset: usize, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.memory.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }
}

/// Fetches a page by HTTP/1.0. The request is complete when the server has answered.
fn get(to: SocketAddr, path: &str) -> Result<()> {
    let device = Device::open()?;
    let pd = device.pd()?;
    let server = Peer::connect(&pd, &device, to, TcpOptions::default())?;
    server.send_text(format!("GET {path} HTTP/1.0\r\nHost: {to}\r\n\r\n").as_bytes())?;
    let mut at = 0;
    while at < MEMORY {
        match server.receive(at, MEMORY - at)? {
            0 => break,
            n => at += n,
        }
    }
    let reply = server.bytes(0, at)?;
    let end = reply.windows(4).position(|four| four == b"\r\n\r\n");
    let body = end.ok_or("the reply has no end of its header")? + 4;
    let line = reply.split(|byte| *byte == b'\r').next();
    let line = String::from_utf8_lossy(line.unwrap_or_default());
    println!("{line}: {} bytes", at - body);
    Ok(())
}

/// The client of an iperf3 test: a control connection with states of one byte and texts with their length, and one data connection.
fn iperf3(to: SocketAddr, seconds: u64) -> Result<()> {
    const TEST_END: &[u8] = &[4];
    const IPERF_DONE: &[u8] = &[16];
    let device = Device::open()?;
    let pd = device.pd()?;
    let whole = TcpOptions::default().fill(Fill::Whole);
    let control = Peer::connect(&pd, &device, to, whole)?;
    let cookie = format!("verbena-{:0>28}\0", std::process::id());
    control.send_text(cookie.as_bytes())?;
    let mut data = None;
    let mut sent = 0;
    loop {
        control.receive(0, 1)?;
        match control.bytes(0, 1)?[0] {
            // PARAM_EXCHANGE
            9 => send_json(
                &control,
                &format!(
                    r#"{{"tcp":true,"omit":0,"time":{seconds},"num":0,"blockcount":0,"parallel":1,"len":{BLOCK},"pacing_timer":1000,"client_version":"3.12"}}"#
                ),
            )?,
            // CREATE_STREAMS: completions of the data mean that the server's host has it.
            10 => {
                let delivered = TcpOptions::default().acknowledgement(Acknowledgement::Delivered);
                let stream = Peer::connect(&pd, &device, to, delivered)?;
                stream.send_text(cookie.as_bytes())?;
                data = Some(stream);
            }
            // TEST_START
            1 => {}
            // TEST_RUNNING
            2 => {
                let stream = data.as_ref().ok_or("the test began without a stream")?;
                let begin = Instant::now();
                sent = send_for(stream, Duration::from_secs(seconds))?;
                let rate = sent as f64 / begin.elapsed().as_secs_f64() / 1e9;
                println!("{sent} bytes delivered, {rate:.2} GB/s");
                control.send(Data::Inline(TEST_END))?;
            }
            // EXCHANGE_RESULTS
            13 => {
                send_json(
                    &control,
                    &format!(
                        r#"{{"cpu_util_total":0,"cpu_util_user":0,"cpu_util_system":0,"sender_has_retransmits":0,"streams":[{{"id":1,"bytes":{sent},"retransmits":0,"jitter":0,"errors":0,"packets":0,"start_time":0,"end_time":{seconds}}}]}}"#
                    ),
                )?;
                let results = receive_json(&control)?;
                let bytes = results.split("\"bytes\":").nth(1);
                let digits = bytes.map(str::trim_start);
                let digits =
                    digits.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
                println!("the server received {} bytes", digits.unwrap_or("?"));
            }
            // DISPLAY_RESULTS
            14 => {
                control.send(Data::Inline(IPERF_DONE))?;
                return Ok(());
            }
            state => return Err(format!("the server refused the test (state {state})").into()),
        }
    }
}

fn send_json(peer: &Peer, text: &str) -> Result<()> {
    let len = u32::try_from(text.len())?.to_be_bytes();
    peer.send_text(&[&len, text.as_bytes()].concat())
}

fn receive_json(peer: &Peer) -> Result<String> {
    peer.receive(0, 4)?;
    let len = peer.bytes(0, 4)?;
    let len = u32::from_be_bytes([len[0], len[1], len[2], len[3]]) as usize;
    if len > MEMORY {
        return Err(format!("a text of {len} bytes").into());
    }
    peer.receive(0, len)?;
    Ok(String::from_utf8(peer.bytes(0, len)?)?)
}

/// Keeps `DEPTH` sends outstanding; returns the bytes that were acknowledged.
fn send_for(peer: &Peer, time: Duration) -> Result<u64> {
    let end = Instant::now() + time;
    let (mut posted, mut done) = (0, 0);
    loop {
        while posted - done < DEPTH && Instant::now() < end {
            let at = posted % DEPTH * BLOCK;
            let data = &[peer.sge(at, BLOCK)?];
            let (id, flags, data) = (posted as u64, Flags::SIGNALED, Data::Gather(data));
            peer.qp.post_send(&[TcpSendWr { id, flags, data }])?;
            posted += 1;
        }
        if posted == done {
            return Ok(done as u64 * BLOCK as u64);
        }
        peer.wait()?;
        done += 1;
    }
}
