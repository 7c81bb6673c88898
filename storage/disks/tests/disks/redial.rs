//! Reconnecting without blocking the owner: no call waits, and attempts end in bounded time. The target is scripted: it accepts and stays
//! silent, does not accept, or skips a StatSN.

use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, Ipv4Addr, SocketAddrV4, SocketType, bind, listen, socket};
use verbena::Device;
use verbena_storage::Session;
use verbena_storage::iscsi::Direction;
use verbena_storage::session::{Options, Outcome, discover};
use verbena_storage_wire::iscsi::FromInitiator;

use crate::scripted::{LEN, World, good};

/// Time limit of one login step: a call that blocked on it would take as long.
const STEP: Duration = Duration::from_millis(700);
fn options() -> Options {
    Options {
        login: STEP,
        reconnect: Duration::from_secs(2),
        ..Options::default()
    }
}

#[track_caller]
fn assert_never_waits(world: &World) {
    let slept = &world.slept;
    // real time: a call that waited would sleep for a login step. The time that other programs take from this thread is not counted.
    assert!(slept.iter().all(|slept| *slept < STEP / 2), "{slept:?}");
}

/// Every attempt lasts 0.7 s; after 2 s no further one begins.
fn assert_given_up(world: &mut World, begun: Instant) {
    let ends = world.take_ended(1);
    let took = begun.elapsed();
    assert!(
        matches!(&ends[..], [(0, Outcome::Lost(_))]),
        "it is lost: {ends:?}"
    );
    assert!(took >= Duration::from_secs(2), "{took:?}");
    assert_never_waits(world);
}

/// A target that accepts connections and does not answer.
#[test]
fn silent_target_blocks_no_call() {
    let mut world = World::new(options());
    world.start(0, Direction::Read);
    world.receive_command();
    // The kernel accepts connections, the target does not read them.
    world.conn = world.conn.shut_down();
    world.slept.clear();
    assert_given_up(&mut world, Instant::now());
}

/// A target whose backlog is full: connecting does not complete.
#[test]
fn unreachable_target_blocks_no_call() {
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&fd, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    listen(&fd, 0).unwrap();
    let mut world = World::at("127.0.0.1", TcpListener::from(fd), options());
    world.start(0, Direction::Read);
    world.receive_command();
    let to = world.to();
    let crowd: Vec<_> = (0..8)
        .map(|_| TcpStream::connect_timeout(&to, Duration::from_millis(50)))
        .collect();
    assert!(crowd.iter().any(Result::is_err), "there is no more room");
    world.conn = world.conn.shut_down();
    world.slept.clear();
    assert_given_up(&mut world, Instant::now());
}

/// A name may have several addresses, of which some do not answer; it is looked up again after the connection is lost.
#[test]
fn reconnect_resolves_a_host_name() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut world = World::at("localhost", listener, options());
    world.start(0, Direction::None);
    world.receive_command();
    world.conn = world.conn.shut_down();
    world.slept.clear();
    world.accept();
    let again = world.receive_command();
    world.conn.respond(again.itt);
    assert_eq!(world.take_ended(1), [good(0)]);
    assert_never_waits(&world);
}

/// The target becomes reachable during these attempts, and outstanding commands continue.
#[test]
fn reconnect_resumes_outstanding_commands() {
    let mut world = World::new(options());
    world.start(0, Direction::Read);
    let first = world.receive_command();
    world.conn = world.conn.shut_down();
    let end = Instant::now() + Duration::from_millis(900);
    while Instant::now() < end {
        world.turn();
    }
    // The first attempt has timed out; another follows.
    let again = loop {
        world.accept();
        let end = Instant::now() + Duration::from_millis(300);
        let mut received = None;
        while received.is_none() && Instant::now() < end && !world.conn.closed {
            world.turn();
            received = world.conn.receive();
        }
        if let Some((FromInitiator::ScsiCommand(command), _)) = received {
            break command;
        }
    };
    assert_eq!(again.cdb, first.cdb);
    world.conn.data_in(again.itt, &[3; LEN], true);
    assert_eq!(world.take_ended(1), [good(0)]);
    assert_never_waits(&world);
}

/// M12 drops a response that is out of sequence, and a skipped StatSN closes the connection (RFC 7143 §7.9) at once: a command may take 30 s.
#[test]
fn statsn_gap_closes_the_connection_at_once() {
    for with_data in [false, true] {
        let mut world = World::new(Options::default());
        world.start(0, Direction::Read);
        world.start(1, Direction::None);
        let sent = [world.receive_command(), world.receive_command()];
        world.conn.stat_sn += 1;
        match with_data {
            true => world.conn.data_in(sent[0].itt, &[1; LEN], true),
            false => world.conn.respond(sent[1].itt),
        }
        // Before the time limit of its commands.
        world.until_closed();
        assert_eq!(world.ended, [], "nothing was acknowledged");
        world.accept();
        let again = [world.receive_command(), world.receive_command()];
        world.conn.data_in(again[0].itt, &[2; LEN], true);
        world.conn.respond(again[1].itt);
        assert_eq!(world.take_ended(2), [good(0), good(1)]);
        assert_eq!(world.bytes(0), [2; LEN]);
    }
}

/// A target that keeps sending login responses with the C bit runs into the limit of the whole login, even if each comes in time.
#[test]
fn endless_login_times_out() {
    // On a machine that is busy for longer than the limit not even the first response comes in time.
    let limits = [250, 2_500, 25_000].map(Duration::from_millis);
    let (error, requests) = limits
        .into_iter()
        .map(endless_login)
        .find(|(error, _)| !error.contains("no answer to a login"))
        .expect("a limit within which a response comes");
    assert!(error.contains("no final login response"), "{error}");
    assert!(requests > 2);
}

/// How a login with this limit fails, and to how many requests the target responded.
fn endless_login(limit: Duration) -> (String, u32) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let target = std::thread::spawn(move || {
        let mut conn = crate::scripted::Conn::over(listener.accept().unwrap().0);
        let mut requests = 0;
        while !conn.closed {
            // real time: each response comes in time, and all together take longer than a login may.
            std::thread::sleep(limit * 2 / 5);
            if let Some((FromInitiator::LoginRequest(request), _)) = conn.next() {
                conn.continue_login(&request);
                requests += 1;
            }
        }
        requests
    });
    let options = Options {
        login: limit,
        ..Options::default()
    };
    let address = format!("iscsi://127.0.0.1:{port}/iqn.2026-11.org.verbena:drip/1");
    let error = Session::open(&Device::open().unwrap(), &address.parse().unwrap(), options);
    let error = error.unwrap_err().to_string();
    assert!(error.contains(&format!("127.0.0.1:{port}")), "{error}");
    (error, target.join().unwrap())
}

/// A portal may send a NOP-In during discovery, and gets a logout.
#[test]
fn discovery_answers_nop_in_and_logs_out() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let target = std::thread::spawn(move || {
        let mut conn = crate::scripted::Conn::over(listener.accept().unwrap().0);
        let mut received = Vec::new();
        while !conn.closed {
            std::thread::yield_now();
            let Some((pdu, _)) = conn.receive() else {
                continue;
            };
            match &pdu {
                FromInitiator::TextRequest(request) => {
                    let name = b"TargetName=iqn.2026-11.org.verbena:one\0";
                    conn.ping(5);
                    conn.list(request.itt, name);
                }
                FromInitiator::LogoutRequest(request) => conn.logout_response(request.itt),
                _ => {}
            }
            received.push(pdu);
        }
        received
    });
    let address = format!("iscsi://127.0.0.1:{port}").parse().unwrap();
    let device = Device::open().unwrap();
    let found = discover(&device, &address, &Options::default()).unwrap();
    assert_eq!(found.len(), 1);
    let received = target.join().unwrap();
    assert!(
        matches!(
            &received[..],
            [
                FromInitiator::TextRequest(_),
                FromInitiator::NopOut(_),
                FromInitiator::LogoutRequest(_)
            ]
        ),
        "{received:?}"
    );
}

/// RFC 7143 §13.15: the login that replaces a lost session is not sent before DefaultTime2Wait.
#[test]
fn reconnect_waits_for_default_time2wait() {
    let mut world = World::new(Options::default());
    world.conn = world.conn.shut_down();
    world.accept();
    world.conn.time2wait = "1";
    world.start(0, Direction::Read);
    world.receive_command();
    world.conn = world.conn.shut_down();
    let lost = Instant::now();
    world.accept();
    let waited = lost.elapsed();
    assert!(waited >= Duration::from_millis(950), "{waited:?}");
    let again = world.receive_command();
    world.conn.data_in(again.itt, &[2; LEN], true);
    assert_eq!(world.take_ended(1), [good(0)]);
}
