//! The server: a table in memory that can be handed over, one completion queue, and a process that can be replaced at any time.
//! Each request is answered once, by this process or the next. At most [`CLIENTS`] clients are accepted.

mod handover;
mod handover_acceptor;

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use verbena::cm::ConnectRequest;
use verbena::events::Event;
use verbena::handover::HandoverStep;
use verbena::low::{Cq, Data, Flags, Pd, Qp, QpOptions, QpState, RecvWr, SendOp, SendWr, Wc};
use verbena::{Access, Device, Listener, Memory, Status};

use crate::protocol::{
    ADD, CELL, CLIENTS, Cell, DEPTH, GET, KEYS, PUT, Result, SLOTS, WORDS, from_bytes,
    poll_or_sleep, slot, to_bytes,
};
use handover_acceptor::HandoverAcceptor;

/// Bit in the ids of sends.
const SEND_ID: u64 = 1 << 8;
/// How often a handover is tried if a client disconnects during it.
const MAX_TRIES: u32 = 5;
/// How long an idle server waits on its completion queue before it looks at anything else.
const IDLE_TIMEOUT: Duration = Duration::from_millis(2);

/// The command line of the process.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerOptions {
    pub(crate) at: Option<String>,
    pub(crate) handover_path: Option<String>,
    pub(crate) takeover_path: Option<String>,
    pub(crate) seconds: Option<u64>,
    pub(crate) timeout: Option<Duration>,
    /// For tests: the process kills or stops itself at this step.
    pub(crate) die_at: Option<String>,
    pub(crate) stop_at: Option<String>,
    /// For tests: message buffers that cannot be handed over.
    pub(crate) private: bool,
    /// For tests: a successor that does not unpack a connection.
    pub(crate) forget: bool,
}

impl ServerOptions {
    /// A step is done: kills or stops the process if a test asked for it.
    fn signal_at_step(&self, step: HandoverStep) {
        use rustix::process::{Signal, getpid, kill_process};
        let name = format!("{step:?}");
        for (at, signal) in [(&self.die_at, Signal::KILL), (&self.stop_at, Signal::STOP)] {
            if at.as_deref() == Some(&name) {
                println!("{signal:?} at {name}");
                let _ = kill_process(getpid(), signal);
            }
        }
    }
}

struct Client {
    qp: Qp,
    connected: bool,
}

struct Server {
    device: Device,
    pd: Pd,
    cq: Cq,
    /// Slots, and a word for each client.
    table: Memory,
    /// For each client: receives, then replies.
    messages: Memory,
    listener: Listener,
    clients: BTreeMap<u64, Client>,
    connect_results: (mpsc::Sender<ConnectResult>, mpsc::Receiver<ConnectResult>),
    generation: u64,
    served: u64,
}

/// A client's connection was established or has failed.
type ConnectResult = (u64, u32, std::result::Result<Vec<u8>, verbena::Error>);

/// Offset of the messages of a client.
fn message_offset(client: u64, part: u64) -> usize {
    (client * 2 * DEPTH + part) as usize * CELL
}

impl Server {
    fn start(orders: &ServerOptions) -> Result<Server> {
        let device = Device::open()?;
        let (pd, cq) = queues(&device)?;
        let table = pd.shared_memory(WORDS + CLIENTS as usize * 8, Access::ALL)?;
        let len = message_offset(CLIENTS, 0);
        let messages = match orders.private {
            false => pd.shared_memory(len, Access::LOCAL_WRITE)?,
            true => pd.memory(len, Access::LOCAL_WRITE)?,
        };
        let listener = device.listen(orders.at.as_deref().unwrap_or("0.0.0.0:4793"))?;
        println!("listening at {}", listener.local_addr()?);
        Ok(Server {
            device,
            pd,
            cq,
            table,
            messages,
            listener,
            clients: BTreeMap::new(),
            connect_results: mpsc::channel(),
            generation: 1,
            served: 0,
        })
    }

    /// Serves until the time limit, or until a successor has taken everything.
    fn run(mut self, orders: &ServerOptions, path: Option<&str>) -> Result<()> {
        let end = orders
            .seconds
            .map(|s| Instant::now() + Duration::from_secs(s));
        let doorkeeper = path.map(HandoverAcceptor::new).transpose()?;
        while end.is_none_or(|end| Instant::now() < end) {
            self.serve(IDLE_TIMEOUT)?;
            self.update_clients()?;
            let Some(keeper) = &doorkeeper else { continue };
            let Some(sender) = keeper.try_accept() else {
                continue;
            };
            match self.hand_over(sender, orders, MAX_TRIES)? {
                Some(kept) => {
                    keeper.accept_next();
                    self = kept;
                }
                None => {
                    if let Some(keeper) = doorkeeper {
                        keeper.close();
                    }
                    return Ok(());
                }
            }
        }
        println!("ending, served {}", self.served);
        Ok(())
    }

    /// Answers waiting requests, or waits at most `patience` for one.
    fn serve(&mut self, patience: Duration) -> Result<()> {
        let mut some = [Wc::default(); 64];
        let n = poll_or_sleep(&self.cq, &mut some, patience)?;
        for wc in &some[..n] {
            self.handle_completion(wc)?;
        }
        Ok(())
    }

    fn handle_completion(&mut self, wc: &Wc) -> Result<()> {
        let (index, part) = (wc.id >> 16, wc.id & 0xff);
        let Some(client) = self.clients.get(&index) else {
            return Ok(());
        };
        if client.qp.number() != wc.qpn {
            return Ok(());
        }
        if wc.status != Status::Success {
            // The client has disconnected; its other requests are flushed, too.
            self.clients.remove(&index);
            return Ok(());
        }
        if wc.id & SEND_ID != 0 {
            return Ok(());
        }
        let mut request = [0; CELL];
        self.messages
            .read_at(message_offset(index, part), &mut request)?;
        let reply = self.execute_request(index, &from_bytes(&request))?;
        let at = message_offset(index, DEPTH + part);
        self.messages.write_at(at, &to_bytes(&reply))?;
        let gather = [self.messages.sge(at, CELL)?];
        let op = SendOp::Send {
            invalidate: None,
            immediate: None,
        };
        let send = SendWr {
            id: index << 16 | SEND_ID | part,
            op,
            flags: Flags::SIGNALED,
            data: Data::Gather(&gather),
        };
        self.served += 1;
        let done = self.post_receive(index, part).and_then(|()| {
            let posted = self.clients[&index].qp.post_send(&[send]);
            posted.map_err(|error| error.source.into())
        });
        if done.is_err() {
            // The connection has failed meanwhile.
            self.clients.remove(&index);
        }
        Ok(())
    }

    /// A reply: number, version, value, generation, 0 (or 1 if the request is invalid), key.
    fn execute_request(&self, index: u64, request: &Cell) -> Result<Cell> {
        let [number, what, key, value, ..] = *request;
        let own = (index * KEYS..(index + 1) * KEYS).contains(&key);
        if !own || ![PUT, GET, ADD].contains(&what) {
            return Ok([number, 0, 0, self.generation, 1, key, 0, 0]);
        }
        let at = (key % SLOTS) as usize * CELL;
        let mut bytes = [0; CELL];
        self.table.read_at(at, &mut bytes)?;
        let [_, mut version, mut now, ..] = from_bytes(&bytes);
        if what != GET {
            version += 1;
            now = if what == PUT {
                value
            } else {
                now.wrapping_add(value)
            };
            self.table
                .write_at(at, &to_bytes(&slot(key, version, now)))?;
        }
        Ok([number, version, now, self.generation, 0, key, 0, 0])
    }

    fn post_receive(&self, index: u64, part: u64) -> Result<()> {
        let scatter = [self.messages.sge(message_offset(index, part), CELL)?];
        let receive = RecvWr {
            id: index << 16 | part,
            scatter: &scatter,
        };
        let posted = self.clients[&index].qp.post_recv(&[receive]);
        posted.map_err(|error| error.source.into())
    }

    /// Removes clients that have disconnected, admits new ones, and records established connections.
    fn update_clients(&mut self) -> Result<()> {
        while let Some(event) = self.device.next_event() {
            if let Event::Disconnected { qp } = event {
                self.clients.retain(|_, client| client.qp.number() != qp);
            }
        }
        while let Some(request) = self.listener.try_next()? {
            if let Err(error) = self.admit(request) {
                println!("request rejected: {error}");
            }
        }
        while let Ok((index, qpn, result)) = self.connect_results.1.try_recv() {
            let Some(client) = self.clients.get_mut(&index) else {
                continue;
            };
            if client.qp.number() != qpn {
                continue;
            }
            client.connected = true;
            if let Err(error) = result {
                println!("a client did not connect: {error}");
                self.clients.remove(&index);
            }
        }
        Ok(())
    }

    /// Assigns an index, two keys and a word, all zero, and sends the handle of the table with the accept.
    fn admit(&mut self, request: ConnectRequest) -> Result<()> {
        let free = (0..CLIENTS).find(|index| !self.clients.contains_key(index));
        let Some(index) = free else {
            request.reject(b"full");
            return Err("too many clients".into());
        };
        for key in index * KEYS..(index + 1) * KEYS {
            let cell = to_bytes(&slot(key, 0, 0));
            self.table.write_at((key % SLOTS) as usize * CELL, &cell)?;
        }
        self.table.store(WORDS + index as usize * 8, 0)?;
        let qp = Qp::new(&self.pd, &self.cq, &self.cq, QpOptions::default())?;
        qp.modify(QpState::Init)?;
        let qpn = qp.number();
        let joined = false;
        self.clients.insert(
            index,
            Client {
                qp,
                connected: joined,
            },
        );
        let results = self.connect_results.0.clone();
        let mut welcome = index.to_le_bytes().to_vec();
        welcome.extend_from_slice(&self.table.remote().to_bytes());
        let accepted = (0..DEPTH)
            .try_for_each(|part| self.post_receive(index, part))
            .and_then(|()| {
                let qp = &self.clients[&index].qp;
                request.accept_with_callback(qp, &welcome, move |result| {
                    // The server may have ended.
                    let _ = results.send((index, qpn, result));
                })?;
                Ok(())
            });
        if accepted.is_err() {
            self.clients.remove(&index);
        }
        accepted
    }
}

fn queues(device: &Device) -> Result<(Pd, Cq)> {
    Ok((device.pd()?, device.cq(2 * (CLIENTS * DEPTH) as usize * 2)?))
}

/// Runs a server until it has handed over or its time limit.
pub(crate) fn run(orders: &ServerOptions) -> Result<()> {
    match &orders.takeover_path {
        Some(path) => Server::take_over(path, orders)?.run(orders, Some(path)),
        None => Server::start(orders)?.run(orders, orders.handover_path.as_deref()),
    }
}
