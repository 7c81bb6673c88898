//! Closing with a peer that reads, one that has stalled, and more stalled ones than the limits allow. A relay of TCP connections between
//! the two sides stalls the peer: while it holds bytes back, nothing is acknowledged.

use core::net::SocketAddr;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Condvar, Mutex as StdMutex};
use std::thread;

use verbena::Device;
use verbena_testing::wait_until;

use super::*;
use crate::options::Linger;
use crate::stream::{Flags, Stream};

/// Longer than anything here takes, shorter than the time limit of a close in the background.
const LONG_TIME: Duration = Duration::from_secs(20);
/// A close that waited would wait this long, or for ever: the relay is not opened before.
const NEVER: Duration = Duration::from_secs(3600);

/// Forwards connections to `to`, unless they are held.
struct Relay {
    at: SocketAddr,
    held: Arc<Gate>,
}

/// Whether the relay holds bytes back.
#[derive(Default)]
struct Gate(StdMutex<bool>, Condvar);

impl Gate {
    fn hold(&self, held: bool) {
        *self.0.lock().unwrap() = held;
        self.1.notify_all();
    }

    /// Waits while bytes are held back.
    fn pass(&self) {
        drop(self.1.wait_while(self.0.lock().unwrap(), |held| *held));
    }
}

fn relay(to: SocketAddr) -> Relay {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (at, held) = (listener.local_addr().unwrap(), Arc::<Gate>::default());
    let its = held.clone();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(to).unwrap());
            let ways = [
                (client.try_clone().unwrap(), server.try_clone().unwrap()),
                (server, client),
            ];
            for (from, into) in ways {
                let held = its.clone();
                thread::spawn(move || forward(from, into, &held));
            }
        }
    });
    Relay { at, held }
}

fn forward(mut from: TcpStream, mut into: TcpStream, held: &Gate) {
    let mut bytes = [0; 4096];
    loop {
        held.pass();
        let n = from.read(&mut bytes).unwrap_or(0);
        if n == 0 || into.write_all(&bytes[..n]).is_err() {
            let _ = into.shutdown(std::net::Shutdown::Both);
            return;
        }
    }
}

struct Fixture {
    net: Arc<Net>,
    relay: Relay,
    listener: Stream,
}

impl Fixture {
    fn new() -> Fixture {
        let listener = Stream::new(&Net::open(Device::open().unwrap()));
        listener.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        listener.listen(64).unwrap();
        Fixture {
            net: Net::open(Device::open().unwrap()),
            relay: relay(listener.local_addr().unwrap()),
            listener,
        }
    }

    fn pair(&self) -> (Stream, Stream) {
        let client = Stream::new(&self.net);
        let server = thread::scope(|scope| {
            let accepting = scope.spawn(|| self.listener.accept().unwrap());
            client.connect(self.relay.at).unwrap();
            accepting.join().unwrap()
        });
        wait_until("both sides stand", || server.is_connected());
        (client, server)
    }

    fn hold(&self, held: bool) {
        self.relay.held.hold(held);
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 251) as u8).collect()
}

fn read_all(from: &Stream) -> Vec<u8> {
    let mut all = Vec::new();
    let mut some = vec![0; 1 << 16];
    loop {
        match from.recv(&mut some, Flags::default()).unwrap() {
            0 => return all,
            n => all.extend(&some[..n]),
        }
    }
}

#[test]
fn close_returns_while_the_peer_stalls() {
    let sides = Fixture::new();
    let (client, server) = sides.pair();
    sides.hold(true);
    let sent = bytes(1 << 20);
    assert_eq!(client.send(&sent, Flags::default()).unwrap(), sent.len());
    // Returns although nothing is acknowledged before the relay opens.
    client.close();
    assert_eq!(sides.net.closing(), 1);
    assert!(
        !sides
            .net
            .wait_closed(Instant::now() + Duration::from_millis(100))
    );
    sides.hold(false);
    assert!(read_all(&server) == sent, "all of it arrives");
    wait_until("the connection ends", || sides.net.closing() == 0);
    wait_until("the thread ends", || {
        sides.net.closing.0.lock().notifier.is_none()
    });
    // The thread is started again.
    let (client, server) = sides.pair();
    client.send(&sent, Flags::default()).unwrap();
    client.close();
    assert!(read_all(&server) == sent);
}

#[test]
fn small_sends_before_close_arrive() {
    let sides = Fixture::new();
    for round in 0..8 {
        let (client, server) = sides.pair();
        let sent = bytes(200 * 64 + round);
        for part in sent.chunks(64) {
            assert_eq!(client.send(part, Flags::default()).unwrap(), part.len());
        }
        drop(client);
        assert!(read_all(&server) == sent);
    }
    assert!(sides.net.wait_closed(Instant::now() + LONG_TIME));
}

#[test]
fn linger_waits_as_long_as_set() {
    let sides = Fixture::new();
    let (client, server) = sides.pair();
    sides.hold(true);
    let wait = Duration::from_millis(300);
    client.set_options(|options| options.linger = Linger::For(wait));
    let sent = bytes(100_000);
    client.send(&sent, Flags::default()).unwrap();
    let start = Instant::now();
    client.close();
    assert!(start.elapsed() >= wait);
    assert_eq!(sides.net.closing(), 1, "the rest leaves in the background");
    sides.hold(false);
    assert!(read_all(&server) == sent);
    // Nothing is in flight: the close does not wait.
    let (client, server) = sides.pair();
    client.set_options(|options| options.linger = Linger::For(NEVER));
    client.close();
    assert_eq!(read_all(&server), []);
}

#[test]
fn linger_of_zero_resets() {
    let sides = Fixture::new();
    let (client, server) = sides.pair();
    client.set_options(|options| options.linger = Linger::For(Duration::ZERO));
    client.close();
    assert_eq!(sides.net.closing(), 0);
    let read = server.recv(&mut [0; 8], Flags::default());
    assert!(matches!(read, Err(Error::Reset)), "{read:?}");
}

#[test]
fn background_closes_are_bounded() {
    let sides = Fixture::new();
    sides.net.closing.0.lock().bounds.connections = 3;
    let pairs: Vec<_> = (0..6).map(|_| sides.pair()).collect();
    sides.hold(true);
    let mut servers = Vec::new();
    for (client, server) in pairs {
        client.send(&bytes(50_000), Flags::default()).unwrap();
        client.close();
        assert!(sides.net.closing() <= 3);
        servers.push(server);
    }
    sides.hold(false);
    for (number, server) in servers.iter().enumerate() {
        let mut got = vec![0; 50_000];
        let all = server.recv(&mut got, Flags::WAIT_ALL).unwrap_or(0) == got.len();
        assert!(
            all || number < 3,
            "connection {number} is not of the oldest"
        );
    }
    // A peer that stalls for ever is given up.
    sides.net.closing.0.lock().bounds.time = Duration::from_millis(200);
    let (client, _server) = sides.pair();
    sides.hold(true);
    client.send(&bytes(50_000), Flags::default()).unwrap();
    client.close();
    wait_until("its time is over", || sides.net.closing() == 0);
}
