//! Waits at the handover socket on its own thread, so that a process that connects and sends nothing does not delay the server.
//! One successor at a time is passed to the server.

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use verbena::handover::{HandoverListener, HandoverSender};

use crate::protocol::Result;

/// How long the previous process may take to close the socket.
const BIND_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct HandoverAcceptor {
    senders: Receiver<HandoverSender>,
    resume: Sender<bool>,
    thread: std::thread::JoinHandle<()>,
}

impl HandoverAcceptor {
    pub(super) fn new(path: &str) -> Result<HandoverAcceptor> {
        let (come, go_on) = (mpsc::channel(), mpsc::channel());
        let path = PathBuf::from(path);
        let thread = std::thread::Builder::new().name("doorkeeper".into());
        let thread = thread.spawn(move || accept_loop(&path, &come.0, &go_on.1))?;
        Ok(HandoverAcceptor {
            senders: come.1,
            resume: go_on.0,
            thread,
        })
    }

    /// A successor that has connected.
    pub(super) fn try_accept(&self) -> Option<HandoverSender> {
        self.senders.try_recv().ok()
    }

    /// It did not take over: accept the next one.
    pub(super) fn accept_next(&self) {
        let _ = self.resume.send(true);
    }

    /// It did: the socket is closed when this returns.
    pub(super) fn close(self) {
        let _ = self.resume.send(false);
        let _ = self.thread.join();
    }
}

fn accept_loop(path: &std::path::Path, come: &Sender<HandoverSender>, go_on: &Receiver<bool>) {
    let end = Instant::now() + BIND_TIMEOUT;
    let handover_listener = loop {
        match HandoverListener::bind(path) {
            Ok(handover_listener) => break handover_listener,
            Err(error) if Instant::now() > end => {
                println!("cannot accept a successor: {error}");
                return;
            }
            // The previous process is about to close it.
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    println!("waiting for a successor");
    loop {
        match handover_listener.accept(Duration::from_secs(1)) {
            Ok(None) => {}
            Ok(Some(sender)) => {
                if come.send(sender).is_err() || go_on.recv() != Ok(true) {
                    return;
                }
            }
            Err(error) => {
                println!("successor not accepted: {error}");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}
