//! The handover from one server process to the next: what the old one gives, and what the new one starts with.
//! Clients whose connection is in startup are waited for, for at most a second.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use verbena::Device;
use verbena::handover::{FailedHandover, Handover, HandoverSender, IncomingHandover};
use verbena::low::QpState;

use super::{Client, Server, ServerOptions, queues};
use crate::protocol::Result;

/// Tags of memory and listener; clients are tagged with their index.
const TABLE: u64 = 1;
const MESSAGES: u64 = 2;
const LISTENER: u64 = 1;
/// Time limit for connections in startup.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a successor waits for the handover socket to exist.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(5);

impl Server {
    /// Hands everything over to the successor; returns the server if that fails.
    pub(super) fn hand_over(
        mut self,
        mut next_process: HandoverSender,
        orders: &ServerOptions,
        tries: u32,
    ) -> Result<Option<Server>> {
        if let Some(patience) = orders.timeout {
            next_process.set_timeout(patience);
        }
        self.listener.pause();
        let end = Instant::now() + STARTUP_TIMEOUT;
        loop {
            self.update_clients()?;
            let all = self.clients.values().all(|client| client.connected);
            if all && self.listener.is_idle() || Instant::now() > end {
                break;
            }
            self.serve(Duration::from_micros(100))?;
        }
        // Clients that are not connected or are disconnecting are left out.
        let flows = |client: &Client| {
            let view = client.qp.view();
            client.connected && view.state == QpState::Rts && !view.peer_disconnected
        };
        self.clients.retain(|_, client| flows(client));
        let begun = Instant::now();
        let note = [self.generation, self.served]
            .map(u64::to_le_bytes)
            .concat();
        let Server {
            device,
            pd,
            cq,
            table,
            messages,
            listener,
            clients,
            connect_results: joins,
            generation,
            served,
        } = self;
        let mut handover = Handover::default();
        handover.user_data(&note);
        handover.memory(TABLE, table).memory(MESSAGES, messages);
        handover.listener(LISTENER, listener);
        let count = clients.len();
        for (index, client) in clients {
            handover.qp(index, client.qp);
        }
        let Err(kept) = next_process.send(handover, |step| orders.signal_at_step(step)) else {
            let took = begun.elapsed().as_secs_f64() * 1e3;
            println!("handed over {count} connections in {took:.3} ms, served {served}");
            return Ok(None);
        };
        let FailedHandover {
            handover,
            sender: waits,
            source: why,
        } = *kept;
        let (mut memories, qps, mut listeners) = handover.into_parts();
        let mut memory = |tag| {
            let at = memories.iter().position(|(t, _)| *t == tag);
            at.map(|at| memories.remove(at).1)
                .ok_or("memory is missing")
        };
        let clients = qps
            .into_iter()
            .map(|(index, qp)| (index, connected_client(qp)));
        let server = Server {
            device,
            pd,
            cq,
            table: memory(TABLE)?,
            messages: memory(MESSAGES)?,
            listener: listeners.pop().ok_or("the listener is missing")?.1,
            clients: clients.collect(),
            connect_results: joins,
            generation,
            served,
        };
        match waits {
            // A client disconnected during the handover; it is left out of the next attempt.
            Some(next_process) if tries > 1 => {
                println!("trying again: {why}");
                server.hand_over(next_process, orders, tries - 1)
            }
            _ => {
                println!("kept: {why}");
                Ok(Some(server))
            }
        }
    }

    /// Takes everything over from the process that listens at this path.
    pub(super) fn take_over(path: &str, orders: &ServerOptions) -> Result<Server> {
        let device = Device::open()?;
        let (pd, cq) = queues(&device)?;
        let end = Instant::now() + SOCKET_TIMEOUT;
        while !std::path::Path::new(path).exists() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut inheritance = IncomingHandover::connect(path.as_ref())?;
        let note = inheritance.user_data();
        let word = |at: usize| {
            let bytes = note.get(at..at + 8).and_then(|b| b.try_into().ok());
            bytes.map(u64::from_le_bytes).ok_or("note too short")
        };
        let (generation, served) = (word(0)? + 1, word(8)?);
        let table = inheritance.memory(TABLE, &pd)?;
        let messages = inheritance.memory(MESSAGES, &pd)?;
        let mut clients = BTreeMap::new();
        let mut tags = inheritance.qps();
        if orders.forget {
            tags.pop();
        }
        for index in tags {
            let qp = inheritance.qp(index, &pd, &cq, &cq, None)?;
            clients.insert(index, connected_client(qp));
        }
        let mut listeners = inheritance.accept(&device, |step| orders.signal_at_step(step))?;
        let (came, listening) = (clients.len(), listeners.len());
        println!(
            "took over {came} connections, {listening} listener, served {served} so far; generation {generation}"
        );
        Ok(Server {
            device,
            pd,
            cq,
            table,
            messages,
            listener: listeners.pop().ok_or("no listener received")?.1,
            clients,
            connect_results: mpsc::channel(),
            generation,
            served,
        })
    }
}

fn connected_client(qp: verbena::low::Qp) -> Client {
    Client {
        qp,
        connected: true,
    }
}
