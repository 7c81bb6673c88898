//! An impaired network between a host and its unit: a relay that loses and reorders datagrams.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::space::Netns;

/// The longest datagram.
const ROOM: usize = 65_536;
/// Interval at which the end is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Numbers per thousand datagrams.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Impairment {
    pub(crate) lost: u64,
    pub(crate) late: u64,
}

/// A relay that runs until it is dropped.
pub(crate) struct Relay {
    end: Arc<AtomicBool>,
    repaired: Arc<AtomicBool>,
    lost: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Relay {
    /// Relays between senders to `at` in this namespace and the unit `to`.
    pub(crate) fn start(space: &Netns, at: &str, to: &str, badness: Impairment) -> Relay {
        let open = |at: &str| {
            let socket = UdpSocket::bind(at).unwrap();
            socket.set_read_timeout(Some(POLL_INTERVAL)).unwrap();
            Arc::new(socket)
        };
        let (near, far) = space.run(|| (open(at), open("0.0.0.0:0")));
        far.connect(to).unwrap();
        let end = Arc::new(AtomicBool::new(false));
        let mended = Arc::new(AtomicBool::new(false));
        let lost = Arc::new(AtomicU64::new(0));
        let hands = |seed: u64| Direction {
            state: 0x9e37_79b9_7f4a_7c15 ^ seed,
            impairment: badness,
            end: end.clone(),
            repaired: mended.clone(),
            lost: lost.clone(),
        };
        // Answers go to the first sender: one host per relay.
        let host = Arc::new(std::sync::Mutex::new(None));
        let there = {
            let (near, far, host) = (near.clone(), far.clone(), host.clone());
            let hands = hands(1);
            std::thread::spawn(move || {
                hands.forward(
                    |room| {
                        let (n, from) = near.recv_from(room)?;
                        *host.lock().unwrap() = Some(from);
                        Ok(n)
                    },
                    |datagram| drop(far.send(datagram)),
                );
            })
        };
        let back = {
            let hands = hands(2);
            std::thread::spawn(move || {
                hands.forward(
                    |room| far.recv(room),
                    |datagram| {
                        if let Some(host) = *host.lock().unwrap() {
                            let _ = near.send_to(datagram, host);
                        }
                    },
                );
            })
        };
        Relay {
            end,
            repaired: mended,
            lost,
            threads: vec![there, back],
        }
    }

    /// From now on everything arrives, in order.
    pub(crate) fn repair(&self) {
        self.repaired.store(true, Ordering::Relaxed);
    }

    /// Datagrams lost.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// One direction.
struct Direction {
    state: u64,
    impairment: Impairment,
    end: Arc<AtomicBool>,
    repaired: Arc<AtomicBool>,
    lost: Arc<AtomicU64>,
}

impl Direction {
    fn of_thousand(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 20) % 1000
    }

    fn forward(mut self, take: impl Fn(&mut [u8]) -> std::io::Result<usize>, give: impl Fn(&[u8])) {
        let mut room = vec![0; ROOM];
        let mut held: Option<Vec<u8>> = None;
        while !self.end.load(Ordering::Relaxed) {
            let Ok(n) = take(&mut room) else {
                // A timeout: the delayed datagram is sent.
                held.take().iter().for_each(|late| give(late));
                continue;
            };
            let datagram = &room[..n];
            let dice = match self.repaired.load(Ordering::Relaxed) {
                true => 1000,
                false => self.of_thousand(),
            };
            if dice < self.impairment.lost {
                self.lost.fetch_add(1, Ordering::Relaxed);
            } else if dice < self.impairment.lost + self.impairment.late && held.is_none() {
                held = Some(datagram.to_vec());
            } else {
                give(datagram);
                held.take().iter().for_each(|late| give(late));
            }
        }
    }
}
