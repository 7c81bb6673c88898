//! The server: a table in memory that can be handed over, one completion queue, and a process that can be replaced at any time.
//! Each request is answered once, by this process or the next. At most [`CLIENTS`] clients are accepted.

mod doorkeeper;
mod succession;

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use verbena::low::{BLANK, Data, Flags, QpState, RecvWr, SendOp, SendWr, Wc};
use verbena::{
    Access, Cq, Device, Event, Listener, Memory, Pd, Qp, QpOptions, Request, Status, Step,
};

use crate::words::{
    ADD, CELL, CLIENTS, Cell, DEPTH, GET, KEYS, PUT, Result, SLOTS, WORDS, from_bytes, slot, take,
    to_bytes,
};
use doorkeeper::Doorkeeper;

/// Bit in the ids of sends.
const SENT: u64 = 1 << 8;
/// How often a handover is tried if a client disconnects during it.
const TRIES: u32 = 5;
/// How long an idle server waits on its completion queue before it looks at anything else.
const NAP: Duration = Duration::from_millis(2);

/// The command line of the process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Orders {
    pub(crate) at: Option<String>,
    pub(crate) hatch: Option<String>,
    pub(crate) inherit: Option<String>,
    pub(crate) seconds: Option<u64>,
    pub(crate) patience: Option<Duration>,
    /// For tests: the process kills or stops itself at this step.
    pub(crate) die_at: Option<String>,
    pub(crate) stop_at: Option<String>,
    /// For tests: message buffers that cannot be handed over.
    pub(crate) private: bool,
    /// For tests: a successor that does not unpack a connection.
    pub(crate) forget: bool,
}

impl Orders {
    /// A step is done: kills or stops the process if a test asked for it.
    fn obey(&self, step: Step) {
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
    joined: bool,
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
    joins: (mpsc::Sender<Join>, mpsc::Receiver<Join>),
    generation: u64,
    served: u64,
}

/// A client's connection was established or has failed.
type Join = (u64, u32, std::result::Result<Vec<u8>, verbena::Error>);

/// Offset of the messages of a client.
fn place(client: u64, part: u64) -> usize {
    (client * 2 * DEPTH + part) as usize * CELL
}

impl Server {
    fn first(orders: &Orders) -> Result<Server> {
        let device = Device::open()?;
        let (pd, cq) = queues(&device)?;
        let table = pd.shared_memory(WORDS + CLIENTS as usize * 8, Access::ALL)?;
        let len = place(CLIENTS, 0);
        let messages = match orders.private {
            false => pd.shared_memory(len, Access::LOCAL_WRITE)?,
            true => pd.memory(len, Access::LOCAL_WRITE)?,
        };
        let listener = device.listen(orders.at.as_deref().unwrap_or("0.0.0.0:4793"))?;
        println!("listening at {}", listener.local()?);
        Ok(Server {
            device,
            pd,
            cq,
            table,
            messages,
            listener,
            clients: BTreeMap::new(),
            joins: mpsc::channel(),
            generation: 1,
            served: 0,
        })
    }

    /// Serves until the time limit, or until a successor has taken everything.
    fn run(mut self, orders: &Orders, path: Option<&str>) -> Result<()> {
        let end = orders
            .seconds
            .map(|s| Instant::now() + Duration::from_secs(s));
        let doorkeeper = path.map(Doorkeeper::new).transpose()?;
        while end.is_none_or(|end| Instant::now() < end) {
            self.serve(NAP)?;
            self.welcome()?;
            let Some(keeper) = &doorkeeper else { continue };
            let Some(successor) = keeper.come() else {
                continue;
            };
            match self.hand_over(successor, orders, TRIES)? {
                Some(kept) => {
                    keeper.go_on();
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
        let mut some = [BLANK; 64];
        let n = take(&self.cq, &mut some, patience)?;
        for wc in &some[..n] {
            self.judge(wc)?;
        }
        Ok(())
    }

    fn judge(&mut self, wc: &Wc) -> Result<()> {
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
        if wc.id & SENT != 0 {
            return Ok(());
        }
        let mut request = [0; CELL];
        self.messages.read_at(place(index, part), &mut request)?;
        let reply = self.answer(index, &from_bytes(&request))?;
        let at = place(index, DEPTH + part);
        self.messages.write_at(at, &to_bytes(&reply))?;
        let gather = [self.messages.sge(at, CELL)?];
        let op = SendOp::Send {
            invalidate: None,
            immediate: None,
        };
        let send = SendWr {
            id: index << 16 | SENT | part,
            op,
            flags: Flags::SIGNALED,
            data: Data::Gather(&gather),
        };
        self.served += 1;
        let done = self.receive(index, part).and_then(|()| {
            let posted = self.clients[&index].qp.post_send(&[send]);
            posted.map_err(|(_, error)| error.into())
        });
        if done.is_err() {
            // The connection has failed meanwhile.
            self.clients.remove(&index);
        }
        Ok(())
    }

    /// A reply: number, version, value, generation, 0 (or 1 if the request is invalid), key.
    fn answer(&self, index: u64, request: &Cell) -> Result<Cell> {
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

    fn receive(&self, index: u64, part: u64) -> Result<()> {
        let scatter = [self.messages.sge(place(index, part), CELL)?];
        let receive = RecvWr {
            id: index << 16 | part,
            scatter: &scatter,
        };
        let posted = self.clients[&index].qp.post_recv(&[receive]);
        posted.map_err(|(_, error)| error.into())
    }

    /// Removes clients that have disconnected, admits new ones, and records established connections.
    fn welcome(&mut self) -> Result<()> {
        while let Some(event) = self.device.next_event() {
            if let Event::Disconnected { qp } = event {
                self.clients.retain(|_, client| client.qp.number() != qp);
            }
        }
        while let Some(request) = self.listener.try_next()? {
            if let Err(error) = self.admit(request) {
                println!("not let in: {error}");
            }
        }
        while let Ok((index, qpn, result)) = self.joins.1.try_recv() {
            let Some(client) = self.clients.get_mut(&index) else {
                continue;
            };
            if client.qp.number() != qpn {
                continue;
            }
            client.joined = true;
            if let Err(error) = result {
                println!("a client did not come: {error}");
                self.clients.remove(&index);
            }
        }
        Ok(())
    }

    /// Assigns an index, two keys and a word, all zero, and sends the handle of the table with the accept.
    fn admit(&mut self, request: Request) -> Result<()> {
        let free = (0..CLIENTS).find(|index| !self.clients.contains_key(index));
        let Some(index) = free else {
            request.reject(b"full");
            return Err("there is no room".into());
        };
        for key in index * KEYS..(index + 1) * KEYS {
            let cell = to_bytes(&slot(key, 0, 0));
            self.table.write_at((key % SLOTS) as usize * CELL, &cell)?;
        }
        self.table.store(WORDS + index as usize * 8, 0)?;
        let qp = Qp::new(&self.pd, &self.cq, &self.cq, QpOptions::default())?;
        qp.modify(QpState::Init);
        let qpn = qp.number();
        let joined = false;
        self.clients.insert(index, Client { qp, joined });
        let told = self.joins.0.clone();
        let mut welcome = index.to_le_bytes().to_vec();
        welcome.extend_from_slice(&self.table.remote().to_bytes());
        let accepted = (0..DEPTH)
            .try_for_each(|part| self.receive(index, part))
            .and_then(|()| {
                let qp = &self.clients[&index].qp;
                request.accept_telling(qp, &welcome, move |result| {
                    // The server may have ended.
                    let _ = told.send((index, qpn, result));
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
pub(crate) fn run(orders: &Orders) -> Result<()> {
    match &orders.inherit {
        Some(path) => Server::inherit(path, orders)?.run(orders, Some(path)),
        None => Server::first(orders)?.run(orders, orders.hatch.as_deref()),
    }
}
