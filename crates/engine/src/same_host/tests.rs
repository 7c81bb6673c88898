//! Tests of the exchange: two engines in one process, and hostile local connections.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use verbena_mem::Sources;
use verbena_ring::Read;
use verbena_testing::{wait_for, wait_readable, wait_until};

use super::message::{Kind, LEN};
use super::*;
use crate::{Config, Engine};

const CAPACITY: usize = 1 << 16;

/// A connection as the module sees it.
#[derive(Default)]
struct Connection(Mutex<Option<Result<RingEnds, NoRings>>>);

impl RingWaiter for Connection {
    fn rings_ready(self: Arc<Self>, ends: RingEnds) -> bool {
        assert!(self.0.lock().replace(Ok(ends)).is_none(), "called twice");
        true
    }

    fn rings_failed(self: Arc<Self>, why: NoRings) {
        assert!(self.0.lock().replace(Err(why)).is_none(), "called twice");
    }
}

impl Connection {
    fn outcome(&self) -> Result<RingEnds, NoRings> {
        wait_for("the waiter is called", || self.0.lock().take())
    }

    fn failure(&self) -> NoRings {
        self.outcome().unwrap_err()
    }

    fn is_waiting(&self) -> bool {
        self.0.lock().is_none()
    }
}

/// An engine with one connection that expects rings.
struct Side {
    expected: Expected,
    connection: Arc<Connection>,
    same_host: SameHost,
    engine: Engine,
}

impl Side {
    fn new() -> Side {
        Side::with_limits(LIMITS)
    }

    fn with_limits(limits: Limits) -> Side {
        Side::with(&Config::default(), limits)
    }

    fn in_folder(folder: &Folder) -> Side {
        let mut config = Config::default();
        let path = folder.0.to_str().unwrap();
        config.set("same_host_path", path).unwrap();
        Side::with(&config, LIMITS)
    }

    fn with(config: &Config, limits: Limits) -> Side {
        let engine = Engine::new(config.clone()).unwrap();
        let same_host = SameHost::with_limits(limits);
        let connection = Arc::new(Connection::default());
        let expected = same_host.expect(&engine.core, waiter(&connection)).unwrap();
        Side {
            expected,
            connection,
            same_host,
            engine,
        }
    }

    fn token(&self) -> Token {
        self.expected.token()
    }

    fn offer(&self, peer: Token) {
        let waiter = waiter(&self.connection);
        let core = &self.engine.core;
        let offered = self
            .same_host
            .offer(core, &self.token(), &peer, CAPACITY, waiter);
        assert_eq!(offered, Ok(()));
    }

    fn open(&self) -> (u32, usize) {
        self.expected.server.open()
    }

    /// A local connection to this side, made by the test.
    fn connect(&self) -> PacketChannel {
        PacketChannel::connect(&socket_name(self.token().socket)).unwrap()
    }

    /// What becomes of an offer with these descriptors.
    fn offered(&self, capacity: u64, fds: &[BorrowedFd<'_>]) -> NoRings {
        let channel = self.connect();
        let offer = Message {
            kind: Kind::Offer(capacity),
            secret: self.token().secret,
            probe: (0, 0),
        };
        assert!(channel.send_with_fds(&offer.emit(), fds).unwrap());
        let failure = self.connection.failure();
        assert_eq!(end_of(&channel), libc::EPIPE);
        assert_eq!(self.open(), (0, 0));
        failure
    }
}

fn waiter(connection: &Arc<Connection>) -> Weak<dyn RingWaiter> {
    let weak: Weak<Connection> = Arc::downgrade(connection);
    weak
}

/// Waits for the end of a local connection, on which nothing may arrive; the error.
fn end_of(channel: &PacketChannel) -> i32 {
    wait_readable("the local connection ends", channel);
    let mut bytes = [0; LEN];
    match channel.receive_with_fds(&mut bytes) {
        // The peer had not read everything when it closed.
        Err(error) if error.code() == libc::ECONNRESET => libc::EPIPE,
        Err(error) => error.code(),
        Ok(_) => panic!("an answer"),
    }
}

/// Sends a message through rings.
fn pass(from: &mut RingEnds, to: &mut RingEnds, text: &[u8]) {
    let mut sources = Sources::new();
    assert!(sources.borrow_bytes(text));
    assert!(to.rx.prepare_sleep());
    assert_eq!(from.tx.write(&sources), Ok(text.len()));
    assert!(from.tx.needs_wakeup());
    from.doorbell_out.ring();
    wait_readable("the doorbell is rung", &to.doorbell_in);
    assert_eq!(to.doorbell_in.clear(), 1);
    let mut room = vec![0; text.len()];
    let mut targets = Targets::new();
    assert!(targets.stage(&mut room));
    assert_eq!(to.rx.read(&mut targets), Ok(Read::Bytes(text.len())));
    drop(targets);
    assert_eq!(room, text);
}

/// A memfd as a peer may send it.
fn memfd(len: usize, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = memfd_create("hostile", flags).unwrap();
    ftruncate(&fd, len as u64).unwrap();
    fcntl_add_seals(&fd, seals).unwrap();
    fd
}

fn sealed() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}

#[test]
fn two_engines_exchange_rings() {
    let (a, b) = (Side::new(), Side::new());
    b.expected.set_peer(&a.token());
    a.offer(b.token());
    let mut ours = a.connection.outcome().unwrap();
    let mut theirs = b.connection.outcome().unwrap();
    for _ in 0..3 {
        pass(&mut ours, &mut theirs, b"there");
        pass(&mut theirs, &mut ours, b"and back");
    }
    for ends in [&ours, &theirs] {
        assert_eq!(ends.peer_pid, Some(std::process::id()));
        assert!(ends.reads_peer);
    }
    assert_eq!(b.same_host.rejections(), Rejections::default());
    wait_until("the local connection ends", || b.open() == (0, 0));
}

#[test]
fn an_offer_waits_for_the_peers_token() {
    let (a, b) = (Side::new(), Side::new());
    a.offer(b.token());
    wait_until("the offer arrives", || b.open() == (1, 1));
    assert!(a.connection.is_waiting() && b.connection.is_waiting());
    b.expected.set_peer(&a.token());
    let mut ours = a.connection.outcome().unwrap();
    let mut theirs = b.connection.outcome().unwrap();
    pass(&mut ours, &mut theirs, b"late");
}

#[test]
fn one_socket_serves_several_connections() {
    let (a, b) = (Side::new(), Side::new());
    let core = &b.engine.core;
    let others: Vec<_> = (0..20)
        .map(|_| {
            let connection = Arc::new(Connection::default());
            let expected = b.same_host.expect(core, waiter(&connection)).unwrap();
            expected.set_peer(&a.token());
            (expected, connection)
        })
        .collect();
    for (expected, connection) in &others {
        assert_eq!(expected.token().socket, b.token().socket);
        let own = Arc::new(Connection::default());
        let peer = expected.token();
        let offered = a
            .same_host
            .offer(&a.engine.core, &a.token(), &peer, CAPACITY, waiter(&own));
        assert_eq!(offered, Ok(()));
        let (mut ours, mut theirs) = (own.outcome().unwrap(), connection.outcome().unwrap());
        pass(&mut ours, &mut theirs, b"message");
    }
    assert!(b.connection.is_waiting());
}

#[test]
fn an_unused_part_has_no_socket() {
    let engine = Engine::new(Config::default()).unwrap();
    assert!(engine.core.same_host.server.lock().is_none());
    assert_eq!(engine.core.same_host.rejections(), Rejections::default());
}

#[test]
fn a_closed_engine_expects_nothing() {
    let side = Side::new();
    side.engine.shut_down(Duration::ZERO).unwrap();
    let connection = Arc::new(Connection::default());
    let core = &side.engine.core;
    assert!(side.same_host.expect(core, waiter(&connection)).is_err());
    let token = side.token();
    let offered = side
        .same_host
        .offer(core, &token, &token, CAPACITY, waiter(&connection));
    assert_eq!(offered, Err(NoRings::Stopped));
}

#[test]
fn rings_of_another_size_are_not_offered() {
    let side = Side::new();
    for size in [0, 63, 100, MAX_RING * 2] {
        let waiter = waiter(&side.connection);
        let token = side.token();
        let offered = side
            .same_host
            .offer(&side.engine.core, &token, &token, size, waiter);
        assert_eq!(offered, Err(NoRings::Size(size as u64)));
    }
}

#[test]
fn tokens_are_not_printed() {
    let token = Token::from_bytes(*b"socket..secret..");
    assert_eq!(token.to_bytes(), *b"socket..secret..");
    assert_eq!(format!("{token:?}"), "Token { .. }");
    let side = Side::new();
    let secret = side.token().secret;
    let shown = format!("{:?} {:?}", side.expected, side.same_host);
    assert!(!shown.contains(&secret.to_string()), "{shown}");
}

#[test]
fn a_wrong_secret_is_counted_and_closed() {
    let (a, b) = (Side::new(), Side::new());
    b.expected.set_peer(&a.token());
    for bit in [1, 1 << 63] {
        let Token { socket, secret } = b.token();
        a.offer(Token {
            socket,
            secret: secret ^ bit,
        });
        assert_eq!(a.connection.failure(), NoRings::Closed);
    }
    assert_eq!(b.same_host.rejections().wrong_secret, 2);
    assert!(b.connection.is_waiting());
    // The connection itself is not affected.
    a.offer(b.token());
    assert!(a.connection.outcome().is_ok() && b.connection.outcome().is_ok());
}

#[test]
fn a_socket_that_does_not_exist_is_unreachable() {
    let a = Side::new();
    let Token { socket, secret } = a.token();
    a.offer(Token {
        socket: !socket,
        secret,
    });
    assert!(matches!(a.connection.failure(), NoRings::Unreachable(error) if error.is_refused()));
}

/// A folder that only this user can enter, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let name = format!("verbena-same-host-{}-{test}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        std::fs::create_dir(&folder.0).unwrap();
        folder.set_mode(0o700);
        folder
    }

    fn set_mode(&self, mode: u32) {
        std::fs::set_permissions(&self.0, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn is_empty(&self) -> bool {
        std::fs::read_dir(&self.0).unwrap().next().is_none()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// The file gets a name that no abstract socket has, as it is in another network namespace.
#[test]
fn a_file_is_found_where_no_abstract_name_is() {
    let folder = Folder::new("found");
    let (a, b) = (Side::in_folder(&folder), Side::in_folder(&folder));
    let Token { socket, secret } = b.token();
    let file = |socket| folder.0.join(socket_name(socket));
    std::fs::rename(file(socket), file(!socket)).unwrap();
    b.expected.set_peer(&a.token());
    a.offer(Token {
        socket: !socket,
        secret,
    });
    let (mut a_ends, mut b_ends) = (
        a.connection.outcome().unwrap(),
        b.connection.outcome().unwrap(),
    );
    pass(&mut a_ends, &mut b_ends, b"there");
    pass(&mut b_ends, &mut a_ends, b"and back");
    assert_eq!(b.same_host.rejections(), Rejections::default());
}

#[test]
fn an_ended_engine_leaves_no_file() {
    let folder = Folder::new("left");
    let side = Side::in_folder(&folder);
    assert!(!folder.is_empty());
    drop(side);
    wait_until("the file is removed", || folder.is_empty());
}

/// The abstract name works nevertheless.
#[test]
fn a_folder_of_others_is_not_used() {
    let folder = Folder::new("others");
    folder.set_mode(0o750);
    let (a, b) = (Side::in_folder(&folder), Side::in_folder(&folder));
    assert!(folder.is_empty());
    let is_refused = |why| matches!(why, NoRings::Folder(error) if error.code() == libc::EPERM);
    assert!(is_refused(a.same_host.pending()));
    b.expected.set_peer(&a.token());
    a.offer(b.token());
    assert!(a.connection.outcome().is_ok() && b.connection.outcome().is_ok());
    let c = Side::in_folder(&folder);
    c.offer(Token {
        socket: !b.token().socket,
        secret: 0,
    });
    assert!(is_refused(c.connection.failure()));
}

#[test]
fn a_responder_must_know_the_secret() {
    let (a, b) = (Side::new(), Side::new());
    let Token { socket, secret } = a.token();
    b.expected.set_peer(&Token {
        socket,
        secret: secret ^ 1,
    });
    a.offer(b.token());
    assert_eq!(a.connection.failure(), NoRings::WrongSecret);
}

#[test]
fn a_second_offer_is_closed() {
    let (a, b, c) = (Side::new(), Side::new(), Side::new());
    a.offer(b.token());
    wait_until("the offer arrives", || b.open() == (1, 1));
    c.offer(b.token());
    assert_eq!(c.connection.failure(), NoRings::Closed);
    b.expected.set_peer(&a.token());
    assert!(a.connection.outcome().is_ok() && b.connection.outcome().is_ok());
}

#[test]
fn an_ended_connection_closes_its_offer() {
    let (a, b) = (Side::new(), Side::new());
    a.offer(b.token());
    wait_until("the offer arrives", || b.open() == (1, 1));
    let Side {
        expected,
        connection,
        engine: _engine,
        ..
    } = b;
    drop(expected);
    assert_eq!(a.connection.failure(), NoRings::Closed);
    assert!(connection.is_waiting());
}

#[test]
fn other_packets_are_closed() {
    let b = Side::new();
    let offer = Message {
        kind: Kind::Offer(CAPACITY as u64),
        secret: b.token().secret,
        probe: (0, 0),
    };
    let answer = Message {
        kind: Kind::Answer,
        ..offer
    };
    let offer = offer.emit();
    let longer = [&offer[..], b"!"].concat();
    let wrong = [
        &offer[..LEN - 1],
        &longer,
        b"x",
        &[0; LEN],
        &answer.emit()[..],
    ];
    for (count, packet) in wrong.into_iter().enumerate() {
        let channel = b.connect();
        assert!(channel.send(packet, b"").unwrap());
        assert_eq!(end_of(&channel), libc::EPIPE);
        assert_eq!(b.same_host.rejections().invalid, count as u64 + 1);
    }
    assert!(b.connection.is_waiting());
}

#[test]
fn an_unsealed_memfd_is_not_mapped() {
    let doorbell = Doorbell::new().unwrap();
    let len = Layout::new(CAPACITY).unwrap().pair_len();
    for seals in [SealFlags::empty(), SealFlags::GROW, SealFlags::SHRINK] {
        let b = Side::new();
        let memfd = memfd(len, seals);
        let failure = b.offered(CAPACITY as u64, &[memfd.as_fd(), doorbell.as_fd()]);
        let unsealed = matches!(failure, NoRings::Memory(SharedMemoryError::Unsealed { .. }));
        assert!(unsealed, "{failure}");
    }
}

#[test]
fn a_short_memfd_is_not_mapped() {
    let doorbell = Doorbell::new().unwrap();
    let len = Layout::new(CAPACITY).unwrap().pair_len();
    for short in [0, 1, len - 1] {
        let b = Side::new();
        let memfd = memfd(short, sealed());
        let failure = b.offered(CAPACITY as u64, &[memfd.as_fd(), doorbell.as_fd()]);
        let too_short = matches!(failure, NoRings::Memory(SharedMemoryError::TooShort { .. }));
        assert!(too_short, "{failure}");
    }
}

#[test]
fn rings_of_another_size_are_not_mapped() {
    let doorbell = Doorbell::new().unwrap();
    let memfd = memfd(1 << 20, sealed());
    for size in [0, 48, 100, MAX_RING as u64 * 2, u64::MAX] {
        let b = Side::new();
        let failure = b.offered(size, &[memfd.as_fd(), doorbell.as_fd()]);
        assert_eq!(failure, NoRings::Size(size));
    }
}

#[test]
fn descriptors_of_another_kind_are_not_used() {
    let doorbell = Doorbell::new().unwrap();
    let len = Layout::new(CAPACITY).unwrap().pair_len();
    let memfd = memfd(len, sealed());
    let file = File::open("/proc/self/status").unwrap();
    let (memfd, doorbell, file) = (memfd.as_fd(), doorbell.as_fd(), file.as_fd());
    let offered = |fds: &[BorrowedFd<'_>]| Side::new().offered(CAPACITY as u64, fds);
    assert!(matches!(offered(&[file, doorbell]), NoRings::Memory(_)));
    assert!(matches!(offered(&[memfd, file]), NoRings::System(_)));
    for count in [&[][..], &[memfd], &[memfd, doorbell, doorbell]] {
        assert_eq!(offered(count), NoRings::Malformed);
    }
}

#[test]
fn a_packet_behind_the_offer_fails_it() {
    let (a, b) = (Side::new(), Side::new());
    let channel = b.connect();
    let doorbell = Doorbell::new().unwrap();
    let len = Layout::new(CAPACITY).unwrap().pair_len();
    let memfd = memfd(len, sealed());
    let offer = Message {
        kind: Kind::Offer(CAPACITY as u64),
        secret: b.token().secret,
        probe: (0, 0),
    };
    let fds = [memfd.as_fd(), doorbell.as_fd()];
    assert!(channel.send_with_fds(&offer.emit(), &fds).unwrap());
    wait_until("the offer arrives", || b.open() == (1, 1));
    assert!(channel.send_with_fds(&offer.emit(), &fds).unwrap());
    assert_eq!(b.connection.failure(), NoRings::Malformed);
    assert_eq!(end_of(&channel), libc::EPIPE);
    drop(a);
}

/// The address of a word that the peer claims, and cannot be read.
#[test]
fn a_false_probe_is_noticed() {
    let (address, value) = probe_word();
    let ours = Some(std::process::id());
    assert!(can_read(ours, (address, value)));
    assert!(!can_read(ours, (address, value ^ 1)));
    assert!(!can_read(ours, (8, value)));
    assert!(!can_read(None, (address, value)));
}

#[test]
fn a_silent_connection_ends_at_the_limit() {
    let b = Side::with_limits(Limits {
        time: Duration::from_millis(20),
        ..LIMITS
    });
    let channel = b.connect();
    assert_eq!(end_of(&channel), libc::EPIPE);
    assert_eq!(b.same_host.rejections().invalid, 1);
    assert!(b.connection.is_waiting());
}

#[test]
fn an_offer_without_answer_ends_at_the_limit() {
    let limits = Limits {
        time: Duration::from_millis(20),
        ..LIMITS
    };
    let (a, b) = (Side::with_limits(limits), Side::new());
    a.offer(b.token());
    assert_eq!(a.connection.failure(), NoRings::TimedOut);
    // The end of its local connection is that of the offer.
    assert_eq!(b.connection.failure(), NoRings::Closed);
}

#[test]
fn connections_beyond_the_limit_are_closed() {
    let limits = Limits {
        clients: 4,
        ..LIMITS
    };
    let (a, b) = (Side::new(), Side::with_limits(limits));
    b.expected.set_peer(&a.token());
    let mut silent: Vec<_> = (0..4).map(|_| b.connect()).collect();
    wait_until("all are accepted", || b.open() == (4, 0));
    a.offer(b.token());
    assert_eq!(a.connection.failure(), NoRings::Closed);
    assert_eq!(b.same_host.rejections().too_many, 1);
    silent.pop();
    wait_until("one has ended", || b.open() == (3, 0));
    a.offer(b.token());
    assert!(a.connection.outcome().is_ok() && b.connection.outcome().is_ok());
}

#[test]
fn a_full_backlog_is_waited_for() {
    // As many as the backlog holds, and more, at once.
    let (a, b) = (Side::new(), Side::new());
    let all: Vec<_> = (0..150)
        .map(|_| {
            let (own, peer) = (Arc::<Connection>::default(), Arc::<Connection>::default());
            let core = &b.engine.core;
            let expected = b.same_host.expect(core, waiter(&peer)).unwrap();
            expected.set_peer(&a.token());
            let (core, token) = (&a.engine.core, expected.token());
            let offered = a
                .same_host
                .offer(core, &a.token(), &token, 4096, waiter(&own));
            assert_eq!(offered, Ok(()));
            (expected, own, peer)
        })
        .collect();
    for (_, own, peer) in &all {
        assert!(own.outcome().is_ok() && peer.outcome().is_ok());
    }
}

#[test]
fn rings_of_many_connections_are_small() {
    let same_host = SameHost::with_limits(LIMITS);
    let mut permits = Vec::new();
    for (connections, setting, size) in [
        (1, 1 << 20, 1 << 20),
        (LARGE_RINGS, 1 << 20, 1 << 20),
        (LARGE_RINGS + 1, 1 << 20, 256 << 10),
        (LARGE_RINGS + 1, 100 << 10, SMALL_RING),
        (LARGE_RINGS + 1, 5000, 8192),
    ] {
        while permits.len() < connections as usize {
            permits.push(same_host.permit(connections).unwrap());
        }
        assert_eq!(same_host.ring_size(setting), size, "{connections}");
    }
    permits.clear();
    assert_eq!(same_host.ring_size(1 << 20), 1 << 20);
}
