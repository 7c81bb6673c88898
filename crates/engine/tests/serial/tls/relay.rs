//! A host between two engines that records, cuts, drops and changes what passes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};

use crate::common::{Side, TEST_TIMEOUT, accept_next, loopback};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attack {
    None,
    /// Nothing passes from this byte on, and both sides see the end.
    Cut,
    /// This byte is changed.
    Flip,
    /// Nothing passes from this byte on, and the sender does not notice; see [`Relay::end`].
    Swallow,
    /// Nothing is read until another attack is set.
    Hold,
}

/// What passes in one direction: 0 is from the initiator, 1 to it.
struct Direction {
    seen: Mutex<Vec<u8>>,
    attack: Mutex<Attack>,
    changed: Condvar,
    at: AtomicUsize,
}

/// A host between the two engines.
pub(crate) struct Relay {
    pub(crate) at: SocketAddr,
    directions: Arc<[Direction; 2]>,
    ends: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    pub(crate) fn new(to: SocketAddr) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let way = || Direction {
            seen: Mutex::default(),
            attack: Mutex::new(Attack::None),
            changed: Condvar::new(),
            at: AtomicUsize::new(usize::MAX),
        };
        let ways = Arc::new([way(), way()]);
        let ends = Arc::new(Mutex::new(Vec::new()));
        let (ours, kept) = (ways.clone(), ends.clone());
        std::thread::spawn(move || {
            let Ok((client, _)) = listener.accept() else {
                return;
            };
            let server = TcpStream::connect(to).unwrap();
            let both = [client.try_clone().unwrap(), server.try_clone().unwrap()];
            kept.lock().unwrap().extend(both);
            for (way, from, into) in [(0, &client, &server), (1, &server, &client)] {
                let (from, into) = (from.try_clone().unwrap(), into.try_clone().unwrap());
                let ways = ours.clone();
                std::thread::spawn(move || pass(&ways[way], from, into));
            }
        });
        Relay {
            at,
            directions: ways,
            ends,
        }
    }

    pub(crate) fn attack(&self, way: usize, attack: Attack, at: usize) {
        self.directions[way].at.store(at, Ordering::SeqCst);
        *self.directions[way].attack.lock().unwrap() = attack;
        self.directions[way].changed.notify_all();
    }

    /// The same, `ahead` bytes from now on.
    pub(crate) fn attack_next(&self, way: usize, attack: Attack, ahead: usize) {
        self.attack(way, attack, self.seen(way).len() + ahead);
    }

    pub(crate) fn seen(&self, way: usize) -> Vec<u8> {
        self.directions[way].seen.lock().unwrap().clone()
    }

    pub(crate) fn end(&self) {
        for end in self.ends.lock().unwrap().iter() {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

fn pass(way: &Direction, mut from: TcpStream, mut into: TcpStream) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let attack = way.attack.lock().unwrap();
        let held = |attack: &mut Attack| *attack == Attack::Hold;
        drop(way.changed.wait_while(attack, held).unwrap());
        let n = from.read(&mut bytes).unwrap_or(0);
        let mut seen = way.seen.lock().unwrap();
        let (begin, at) = (seen.len(), way.at.load(Ordering::SeqCst));
        seen.extend_from_slice(&bytes[..n]);
        let attack = *way.attack.lock().unwrap();
        let inside = at.saturating_sub(begin).min(n);
        let reached = at < begin + n;
        let keep = match attack {
            Attack::Flip if reached && at >= begin => {
                bytes[inside] ^= 1;
                n
            }
            Attack::Cut | Attack::Swallow => inside,
            Attack::None | Attack::Flip | Attack::Hold => n,
        };
        let passed = into.write_all(&bytes[..keep]).is_ok();
        // What was seen has passed.
        drop(seen);
        if n == 0 || !passed || (attack == Attack::Cut && begin + n >= at) {
            let _ = (from.shutdown(Shutdown::Both), into.shutdown(Shutdown::Both));
            return;
        }
    }
}

/// Connects two sides with a relay between them.
pub(crate) fn connect_through(a: &Side, b: &Side) -> Relay {
    let acceptor = b.engine.listen(loopback(), 16).unwrap();
    let relay = Relay::new(acceptor.local_addr().unwrap());
    let (done, notified) = mpsc::channel();
    let connect = a.qp.connect(relay.at, b"", move |r| done.send(r).unwrap());
    connect.unwrap();
    accept_next(&acceptor, &b.qp);
    notified.recv_timeout(TEST_TIMEOUT).unwrap().unwrap();
    relay
}
