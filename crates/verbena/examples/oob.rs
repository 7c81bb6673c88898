//! Two programs connect a queue pair each out of band: one line of text in each direction over a plain TCP socket, then RDMA.
//! Run it without arguments for both sides in one process, or with `server [ADDR]` and `client ADDR` on two machines.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use verbena::low::{
    Cq, Data, Flags, Pd, Qp, QpEndpoint, QpOptions, QpState, RecvWr, SendOp, SendWr, Wc,
};
use verbena::{Access, Config, Device, Memory, RemoteMemory, Status};

const BYTES: usize = 100_000;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn pattern() -> Vec<u8> {
    (0..BYTES).map(|i| (i ^ (i >> 8)) as u8).collect()
}

/// The objects of one side.
struct Side {
    qp: Qp,
    cq: Cq,
    memory: Memory,
    _pd: Pd,
}

impl Side {
    /// The address of the socket is the one that the peer can reach.
    fn new(socket: &TcpStream) -> Result<Side> {
        let mut config = Config::load()?;
        config.set("device", &socket.local_addr()?.ip().to_string())?;
        let device = Device::with(config)?;
        let (pd, cq) = (device.pd()?, device.cq(64)?);
        let options = QpOptions::default().oob(true);
        let qp = Qp::new(&pd, &cq, &cq, options)?;
        qp.set_attr(|attr| attr.peer_timeout = Some(Duration::from_secs(10)));
        let memory = pd.memory(BYTES, Access::ALL)?;
        Ok(Side {
            qp,
            cq,
            memory,
            _pd: pd,
        })
    }

    /// Exchanges names with the peer; any other channel would do.
    fn exchange(&self, socket: &TcpStream) -> Result<RemoteMemory> {
        let handle = self.memory.remote().to_bytes();
        let hex: String = handle.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(&mut &*socket, "{} {hex}", self.qp.endpoint()?)?;
        let mut line = String::new();
        BufReader::new(socket).read_line(&mut line)?;
        let (name, hex) = line.trim().split_once(' ').ok_or("incomplete line")?;
        self.qp.set_peer(name.parse::<QpEndpoint>()?)?;
        let byte = |at| u8::from_str_radix(hex.get(at..at + 2).unwrap_or(""), 16);
        let bytes: std::result::Result<Vec<u8>, _> = (0..hex.len()).step_by(2).map(byte).collect();
        Ok(RemoteMemory::from_bytes(&bytes?)?)
    }

    fn wait_completion(&self) -> Result<Wc> {
        let mut one = [verbena::low::Wc::default()];
        self.cq.wait(&mut one)?;
        match one[0].status {
            Status::Success => Ok(one[0]),
            status => Err(format!("{status:?}: {:?}", self.qp.view().cause).into()),
        }
    }
}

/// Waits for the message that all bytes were written.
fn serve(socket: &TcpStream) -> Result<()> {
    let side = Side::new(socket)?;
    side.exchange(socket)?;
    // May be posted after the peer's message: without a receive that message waits.
    let receive = RecvWr {
        id: 1,
        scatter: &[],
    };
    side.qp.post_recv(&[receive])?;
    let completion = side.wait_completion()?;
    assert_eq!(
        completion.immediate,
        Some(BYTES as u32),
        "the immediate is the length"
    );
    let mut got = vec![0; BYTES];
    side.memory.read_at(0, &mut got)?;
    assert!(got == pattern(), "every byte is right");
    println!("{BYTES} bytes came from {:?}", side.qp.peer_addr());
    // Closing the socket tells the peer that the bytes were checked.
    Ok(())
}

fn run_client(socket: &TcpStream) -> Result<()> {
    let side = Side::new(socket)?;
    let there = side.exchange(socket)?;
    side.qp.modify(QpState::Rts)?;
    side.memory.write_at(0, &pattern())?;
    let pieces = [side.memory.sge(0, BYTES)?];
    let write = SendWr {
        id: 2,
        op: SendOp::Write {
            remote: there.remote_addr(),
            immediate: Some(BYTES as u32),
        },
        flags: Flags::SIGNALED,
        data: Data::Gather(&pieces),
    };
    side.qp.post_send(&[write])?;
    side.wait_completion()?;
    let mut end = String::new();
    BufReader::new(socket).read_line(&mut end)?;
    println!("{BYTES} bytes written to {}", socket.peer_addr()?.ip());
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let at = |usual: &str| arguments.get(1).cloned().unwrap_or(usual.into());
    match arguments.first().map(String::as_str) {
        Some("server") => {
            let listener = TcpListener::bind(at("0.0.0.0:4792"))?;
            println!("listening at {}", listener.local_addr()?);
            serve(&listener.accept()?.0)
        }
        Some("client") => run_client(&TcpStream::connect(at("127.0.0.1:4792"))?),
        _ => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let to = listener.local_addr()?;
            let server = std::thread::spawn(move || serve(&listener.accept()?.0));
            run_client(&TcpStream::connect(to)?)?;
            server.join().map_err(|_| "the server failed")?
        }
    }
}
