//! Stream sockets towards a program that is stopped, or a host that vanishes (docs/connections.md, "Peers that die, stall or fall silent"): two
//! network namespaces joined by a veth pair, which loses everything from some moment on. These need root, or a user namespace.

#[path = "../../../split/lan/tests/common/space.rs"]
mod space;
#[path = "../../../crates/engine/tests/common/tcp.rs"]
mod tcp;

use std::net::SocketAddr;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use space::Netns;
use verbena::{Config, Device};
use verbena_rsocket::{Error, Flags, Net, Stream};

const ADDRESSES: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
/// A keep-alive interval beyond the tests' duration, so that probes do not find what another timeout must find.
const NEVER: &str = "600s";

/// A device with these settings.
fn open(settings: &[(&str, &str)]) -> Arc<Net> {
    let mut config = Config::from_parts(None, std::iter::empty()).unwrap();
    for (key, value) in settings {
        config.set(key, value).unwrap();
    }
    Net::open(Device::with(config).unwrap())
}

/// Two connected sockets, one at each end of the veth pair.
struct Ends {
    spaces: [Netns; 2],
    sockets: [Stream; 2],
    _nets: [Arc<Net>; 2],
}

impl Ends {
    fn new(settings: &[(&str, &str)]) -> Ends {
        let spaces = [Netns::new(), Netns::new()];
        spaces[0].connect_veth("cable", &spaces[1], "cable");
        for (space, address) in spaces.iter().zip(ADDRESSES) {
            space.ip(&format!("address add {address}/24 dev cable"));
        }
        let nets = [0, 1].map(|at| {
            let all = [&[("device", ADDRESSES[at])][..], settings].concat();
            spaces[at].run(|| open(&all))
        });
        let listener = spaces[1].run(|| {
            let listener = Stream::new(&nets[1]);
            let any: SocketAddr = format!("{}:0", ADDRESSES[1]).parse().unwrap();
            listener.bind(any).unwrap();
            listener.listen(4).unwrap();
            listener
        });
        let to = listener.local_addr().unwrap();
        let sockets = std::thread::scope(|scope| {
            let one = scope.spawn(|| {
                spaces[0].run(|| {
                    let socket = Stream::new(&nets[0]);
                    socket.connect(to).unwrap();
                    socket
                })
            });
            let other = spaces[1].run(|| listener.accept().unwrap());
            [one.join().unwrap(), other]
        });
        let ends = Ends {
            spaces,
            sockets,
            _nets: nets,
        };
        // The connection works, and nothing is unacknowledged afterwards.
        let [a, b] = &ends.sockets;
        assert_eq!(a.send(b"here", Flags::default()).unwrap(), 4);
        let mut came = [0; 4];
        assert_eq!(b.recv(&mut came, Flags::WAIT_ALL).unwrap(), 4);
        for space in &ends.spaces {
            verbena_testing::wait_until("everything is acknowledged", || {
                let rows = space.run(tcp::tcp_rows);
                rows.iter().all(|row| row.unacknowledged == 0)
            });
        }
        ends
    }

    /// Both ends send to a MAC address that does not exist: everything is lost without an error.
    fn cut(&self) {
        for (space, peer) in self.spaces.iter().zip(ADDRESSES.iter().rev()) {
            space.ip(&format!(
                "neigh replace {peer} lladdr 02:00:00:00:00:99 nud permanent dev cable"
            ));
        }
    }
}

/// The error with which a waiting socket ends, in less time than other timeouts take.
fn end_of(socket: &Stream) -> Error {
    socket.set_nonblocking(true);
    verbena_testing::wait_for("the socket ends", || {
        match socket.recv(&mut [0; 64], Flags::default()) {
            Err(error) if error.is_would_block() => None,
            Err(error) => Some(error),
            Ok(len) => panic!("{len} bytes from a host that is gone"),
        }
    })
}

fn broke(error: &Error) -> bool {
    matches!(error, Error::Reset | Error::TimedOut)
}

#[test]
fn vanished_host_fails_sending_socket() {
    space::privileged("vanished_host_fails_sending_socket", || {
        let ends = Ends::new(&[("dead_after", "1s"), ("keep_alive", NEVER)]);
        ends.cut();
        let [a, _] = &ends.sockets;
        assert_eq!(a.send(b"lost", Flags::default()).unwrap(), 4);
        let error = end_of(a);
        assert!(broke(&error), "{error}");
        let later = a.send(b"more", Flags::default());
        assert!(later.is_err(), "{later:?}");
    });
}

#[test]
fn vanished_host_fails_receiving_socket() {
    space::privileged("vanished_host_fails_receiving_socket", || {
        let ends = Ends::new(&[("dead_after", NEVER), ("keep_alive", "2s")]);
        ends.cut();
        let [_, b] = &ends.sockets;
        let error = end_of(b);
        assert!(broke(&error), "{error}");
    });
}

/// Where this program connects to, if it was started to be stopped.
const CONNECT_TO: &str = "VERBENA_TEST_CONNECT_TO";

/// A process that is killed on drop.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Its program neither reads nor answers: the socket waits for it, as long as `stalled_after` says.
#[test]
fn stopped_program_fails_sending_socket() {
    if let Ok(to) = std::env::var(CONNECT_TO) {
        let socket = Stream::new(&open(&[]));
        socket.connect(to.parse().unwrap()).unwrap();
        assert_eq!(socket.send(b"here", Flags::default()).unwrap(), 4);
        loop {
            std::thread::park();
        }
    }
    for same_host in ["on", "off"] {
        let net = open(&[("stalled_after", "1s"), ("same_host", same_host)]);
        let listener = Stream::new(&net);
        listener.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        listener.listen(4).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["stopped_program_fails_sending_socket", "--exact"])
            .env(CONNECT_TO, listener.local_addr().unwrap().to_string())
            .spawn();
        let child = KillOnDrop(child.unwrap());
        let socket = listener.accept().unwrap();
        assert_eq!(socket.recv(&mut [0; 4], Flags::WAIT_ALL).unwrap(), 4);
        kill_process(Pid::from_child(&child.0), Signal::STOP).unwrap();
        let status = format!("/proc/{}/status", child.0.id());
        verbena_testing::wait_until("it is stopped", || {
            let status = std::fs::read_to_string(&status).unwrap();
            status.contains("State:\tT")
        });
        let began = Instant::now();
        socket.set_nonblocking(true);
        let error = verbena_testing::wait_for("the socket ends", || {
            match socket.send(&[7; 1 << 16], Flags::default()) {
                Err(error) if !error.is_would_block() => Some(error),
                _ => None,
            }
        });
        assert!(broke(&error), "same_host = {same_host}: {error}");
        assert!(began.elapsed() >= Duration::from_secs(1), "too early");
    }
}
