//! Clients at the level of bytes: valid and invalid requests, and clients that disconnect.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use verbena_testing::wait_until;

use super::client::MAX_OUTSTANDING;
use super::codec::Head;
use super::*;
use crate::error::Failure;
use crate::ram::{RamDisk, noise};

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISC: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const ZERO: u16 = 6;
const FUA: u16 = 1;

type Ended = (RamDisk, Result<Counts, Error>, Vec<String>);

/// A server on a thread.
struct TestServer {
    path: PathBuf,
    stop: Stop,
    thread: JoinHandle<Ended>,
}

impl TestServer {
    fn new(name: &str, ram: RamDisk) -> TestServer {
        TestServer::with(name, ram, Options::default())
    }

    fn with(name: &str, mut ram: RamDisk, options: Options) -> TestServer {
        let id = std::process::id();
        let path = std::env::temp_dir().join(format!("verbena-nbd-{id}-{name}.sock"));
        let export = Export::bind(&ExportAddr::Unix(path.clone()), options).unwrap();
        let stop = Stop::new().unwrap();
        let pulled = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut said = Vec::new();
            let mut say = |text: &str| said.push(text.to_owned());
            let ended = export.serve(&mut ram, &pulled, &mut say);
            (ram, ended, said)
        });
        TestServer { path, stop, thread }
    }

    fn client(&self) -> RawClient {
        let mut stream = UnixStream::connect(&self.path).unwrap();
        // Fail instead of hanging.
        let patience = Some(Duration::from_secs(60));
        stream.set_read_timeout(patience).unwrap();
        stream.set_write_timeout(patience).unwrap();
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        assert_eq!(greeting, *b"NBDMAGICIHAVEOPT\0\x03");
        RawClient(stream)
    }

    /// A client that has selected the export with NBD_OPT_EXPORT_NAME.
    fn selected_client(&self) -> RawClient {
        let mut client = self.client();
        client
            .0
            .write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0")
            .unwrap();
        client.0.read_exact(&mut [0; 10]).unwrap();
        client
    }

    fn end(self) -> (RamDisk, Counts, Vec<String>) {
        self.stop.request();
        wait_until("the server ends, all clients have left", || {
            self.thread.is_finished()
        });
        let (ram, ended, said) = self.thread.join().unwrap();
        assert!(!self.path.exists(), "the socket is gone");
        (ram, ended.unwrap(), said)
    }
}

struct RawClient(UnixStream);

impl RawClient {
    fn request(&mut self, kind: u16, flags: u16, cookie: u64, offset: u64, len: u32) {
        let head = Head::emit(kind, flags, cookie, offset, len);
        self.0.write_all(&head).unwrap();
    }

    /// The next simple reply: error and cookie.
    fn reply(&mut self) -> (u32, u64) {
        let mut head = [0; 16];
        self.0.read_exact(&mut head).unwrap();
        assert_eq!(head[..4], 0x6744_6698_u32.to_be_bytes());
        let error = u32::from_be_bytes(*head[4..].first_chunk().unwrap());
        (error, u64::from_be_bytes(*head[8..].first_chunk().unwrap()))
    }

    fn data(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Whether the server has closed the connection.
    fn is_closed(&mut self) -> bool {
        match self.0.read(&mut [0; 1]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
    }

    /// Whether a small read works.
    fn can_read(&mut self) -> bool {
        self.request(READ, 0, 99, 0, 512);
        self.reply() == (0, 99) && self.data(512).len() == 512
    }
}

#[test]
fn requests_are_pipelined_and_answered_as_they_complete() {
    let mut ram = RamDisk::filled(4096, 512, 1).reordering(3, 77);
    ram.geometry.maximal = 4096;
    let host = TestServer::new("pipelined", ram);
    let mut client = host.selected_client();
    let payload = noise(64 << 10, 2);
    for at in 0..16_u64 {
        let part = &payload[at as usize * 4096..][..4096];
        client.request(WRITE, 0, at, at * 4096, 4096);
        client.0.write_all(part).unwrap();
    }
    let mut cookies: Vec<u64> = (0..16)
        .map(|_| client.reply())
        .map(|(error, cookie)| {
            assert_eq!(error, 0);
            cookie
        })
        .collect();
    cookies.sort_unstable();
    assert!(cookies.iter().copied().eq(0..16));
    // One long read, split into pieces that complete in any order, beside short ones.
    client.request(READ, 0, 1, 0, 64 << 10);
    for at in 2..10 {
        client.request(READ, 0, at, at * 512, 512);
    }
    for _ in 0..9 {
        let (error, cookie) = client.reply();
        assert_eq!(error, 0);
        let range = match cookie {
            1 => 0..64 << 10,
            at => at as usize * 512..at as usize * 512 + 512,
        };
        assert!(client.data(range.len()) == payload[range]);
    }
    client.request(DISC, 0, 0, 0, 0);
    assert!(client.is_closed());
    let (ram, counts, said) = host.end();
    assert!(ram.counters.deepest > 4, "{:?}", ram.counters);
    assert_eq!(
        (counts.written, counts.refused, counts.failed),
        (64 << 10, 0, 0)
    );
    assert_eq!(counts.read, (64 << 10) + 8 * 512);
    // No client asked for a flush; the one at the end was done.
    assert_eq!(ram.counters.flushes, 1);
    assert_eq!(said, [""; 0]);
}

#[test]
fn invalid_requests_fail_and_the_next_succeeds() {
    let host = TestServer::new("refused", RamDisk::new(16384, 512));
    let end = 16384 * 512;
    let mut client = host.selected_client();
    let cases = [
        (READ, 0, 0, 0, 22),
        (READ, 0, 1, 512, 22),
        (READ, 0, 0, 511, 22),
        (READ, 0, end, 512, 22),
        (READ, 0, u64::MAX - 511, 512, 22),
        (READ, 0, 0, MAX_REQUEST + 512, 22),
        (READ, 0, 0, u32::MAX, 22),
        (READ, 1 << 9, 0, 512, 22),
        (WRITE, 0, end - 512, 1024, 28),
        (WRITE, 0, 5, 512, 22),
        (WRITE, 0, 0, MAX_REQUEST + 512, 22),
        (WRITE, 1 << 9, 0, 512, 22),
        (WRITE, 0, 0, 0, 22),
        (TRIM, 0, end, 512, 22),
        (ZERO, 0, end, 512, 28),
        (ZERO, 4, 0, 512, 22),
        (5, 0, 0, 512, 22),
        (7, 0, 0, 512, 22),
        (99, 0, 0, 512, 22),
    ];
    for (at, (kind, flags, offset, len, error)) in cases.into_iter().enumerate() {
        client.request(kind, flags, at as u64, offset, len);
        if kind == WRITE {
            client.0.write_all(&vec![0xee; len as usize]).unwrap();
        }
        assert_eq!(client.reply(), (error, at as u64), "case {at}");
        assert!(client.can_read());
    }
    drop(client);
    let (ram, counts, _) = host.end();
    assert_eq!(counts.refused, cases.len() as u64);
    assert!(
        ram.bytes.iter().all(|byte| *byte == 0),
        "nothing was written"
    );
    assert_eq!(ram.counters.flushes, 0, "and nothing flushed");
}

#[test]
fn write_protected_disk_refuses_writes() {
    let mut ram = RamDisk::new(64, 512);
    ram.geometry.read_only = true;
    let host = TestServer::new("protected", ram);
    let mut client = host.selected_client();
    client.request(WRITE, 0, 1, 0, 512);
    client.0.write_all(&[1; 512]).unwrap();
    assert_eq!(client.reply(), (1, 1));
    for kind in [TRIM, ZERO] {
        client.request(kind, 0, 2, 0, 512);
        assert_eq!(client.reply(), (1, 2));
    }
    client.request(FLUSH, 0, 3, 0, 0);
    assert_eq!(client.reply(), (0, 3));
    drop(client);
    host.end();
}

#[test]
fn structured_replies_carry_data_and_errors() {
    let mut ram = RamDisk::filled(64, 512, 5);
    ram.bad = vec![(9..10, Failure::Medium("scratched".into()))];
    let expected = ram.bytes[512..1024].to_vec();
    let host = TestServer::new("chunks", ram);
    let mut client = host.client();
    let go = b"\0\0\0\x03IHAVEOPT\0\0\0\x08\0\0\0\0IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0";
    client.0.write_all(go).unwrap();
    client.data(20 + 20 + 12 + 20 + 14 + 20);
    client.request(READ, 4, 7, 512, 512);
    let head = client.data(28);
    assert_eq!(head[..8], [0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 1]);
    assert_eq!(
        head[8..],
        [0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 2, 8, 0, 0, 0, 0, 0, 0, 2, 0]
    );
    assert_eq!(client.data(512), expected);
    for (offset, error) in [(4608, 5), (1, 22)] {
        client.request(READ, 0, 8, offset, 512);
        let head = client.data(26);
        assert_eq!(head[4..8], [0, 1, 0x80, 1]);
        assert_eq!(head[16..], [0, 0, 0, 6, 0, 0, 0, error, 0, 0]);
    }
    client.request(FLUSH, 0, 9, 0, 0);
    assert_eq!(client.reply(), (0, 9));
    drop(client);
    host.end();
}

#[test]
fn zero_requests_work_without_disk_support() {
    for (name, helps) in [("helps", true), ("helpless", false)] {
        let mut ram = RamDisk::filled(8192, 512, 6).reordering(2, 9);
        (ram.geometry.can_zero, ram.geometry.can_unmap) = (helps, helps);
        (ram.geometry.max_bulk_blocks, ram.geometry.maximal) = (1000, 128 << 10);
        let host = TestServer::new(name, ram);
        let mut client = host.selected_client();
        client.request(ZERO, FUA, 1, 512, 2 << 20);
        assert_eq!(client.reply(), (0, 1));
        client.request(TRIM, FUA, 2, 3 << 20, 1 << 20);
        assert_eq!(client.reply(), (if helps { 0 } else { 22 }, 2));
        drop(client);
        let (ram, _, _) = host.end();
        assert!(
            ram.bytes[512..512 + (2 << 20)]
                .iter()
                .all(|byte| *byte == 0)
        );
        assert!(ram.bytes[..512].iter().any(|byte| *byte != 0));
        let hole = ram.bytes[3 << 20..].iter().all(|byte| *byte == 0);
        assert_eq!(hole, helps);
        let seen = (
            ram.counters.zeroes,
            ram.counters.writes,
            ram.counters.unmaps,
        );
        assert_eq!(seen, if helps { (5, 0, 3) } else { (0, 16, 0) });
        // Each has its flush, after all its pieces; and one more at the end.
        assert_eq!(ram.counters.flushes, if helps { 3 } else { 2 });
    }
}

#[test]
fn protocol_violation_disconnects_only_its_client() {
    let host = TestServer::new("hostile", RamDisk::new(64, 512));
    let mut good = host.selected_client();
    let mut bad = host.selected_client();
    bad.0.write_all(&[0x11; 28]).unwrap();
    assert!(bad.is_closed());
    let mut long = host.selected_client();
    long.request(WRITE, 0, 1, 0, u32::MAX);
    assert!(long.is_closed());
    let mut flags = host.client();
    flags.0.write_all(&[0xff; 4]).unwrap();
    assert!(flags.is_closed());
    for seed in 0..40 {
        let mut noisy = if seed % 2 == 0 {
            host.client()
        } else {
            host.selected_client()
        };
        // The server may close the connection while the client still sends.
        let _ = noisy.0.write_all(&noise(5000, seed));
        assert!(good.can_read());
    }
    // Within a request header, and within payload.
    let mut partly = host.selected_client();
    partly
        .0
        .write_all(&Head::emit(READ, 0, 0, 0, 512)[..20])
        .unwrap();
    drop(partly);
    let mut partly = host.selected_client();
    partly.request(WRITE, 0, 0, 0, 4096);
    partly.0.write_all(&[1; 1000]).unwrap();
    drop(partly);
    assert!(good.can_read());
    drop(good);
    let (ram, counts, said) = host.end();
    assert_eq!((ram.counters.writes, counts.failed), (0, 0));
    assert!(
        said.iter()
            .any(|text| text.contains("a request begins with 0x11111111"))
    );
    assert!(
        said.iter()
            .any(|text| text.contains("a write of 4294967295 bytes"))
    );
}

#[test]
fn client_that_reads_no_replies_is_bounded() {
    let host = TestServer::new("greedy", RamDisk::filled(16384, 512, 3));
    let mut greedy = host.selected_client();
    greedy.0.set_nonblocking(true).unwrap();
    let head = Head::emit(READ, 0, 0, 0, 64 << 10);
    // Until the socket buffer is full, or far more was sent than may be outstanding.
    for _ in 0..20 * MAX_OUTSTANDING {
        if greedy.0.write(&head).map_or(0, |count| count) < head.len() {
            break;
        }
    }
    let mut good = host.selected_client();
    for _ in 0..100 {
        assert!(good.can_read());
    }
    drop((greedy, good));
    let (ram, counts, _) = host.end();
    let most = MAX_OUTSTANDING + 16 + 100;
    assert!(ram.counters.reads <= most, "{:?}", ram.counters);
    assert!(counts.requests <= most as u64, "{counts:?}");
}

#[test]
fn early_disconnects_leak_nothing() {
    let host = TestServer::new("early", RamDisk::filled(16384, 512, 3).reordering(5, 3));
    for at in 0..40 {
        let mut client = host.selected_client();
        for cookie in 0..8 {
            client.request(READ, 0, cookie, cookie * (64 << 10), 64 << 10);
        }
        client.request(ZERO, FUA, 9, 0, 1 << 20);
        if at % 2 == 0 {
            client.reply();
        }
    }
    assert!(host.selected_client().can_read());
    let (_, counts, _) = host.end();
    assert_eq!(counts.clients, 41);
}

#[test]
fn stop_answers_outstanding_requests() {
    let host = TestServer::new("farewell", RamDisk::filled(4096, 512, 3).reordering(50, 3));
    let mut client = host.selected_client();
    assert!(client.can_read());
    client.request(WRITE, 0, 1, 0, 4096);
    client.0.write_all(&[7; 4096]).unwrap();
    client.request(READ, 0, 2, 8192, 512);
    // Its reply shows that the requests before it were read.
    let mut answers = vec![client.reply()];
    if answers[0].1 == 2 {
        client.data(512);
    }
    host.stop.request();
    answers.push(client.reply());
    if answers[1].1 == 2 {
        client.data(512);
    }
    answers.sort_unstable();
    assert_eq!(answers, [(0, 1), (0, 2)]);
    assert!(client.is_closed());
    let (ram, _, _) = host.end();
    assert!(ram.bytes[..4096].iter().all(|byte| *byte == 7));
    assert_eq!(ram.counters.flushes, 1);
}

#[test]
fn lost_disk_ends_the_export() {
    let mut ram = RamDisk::new(64, 512);
    ram.requests_left = Some(3);
    let host = TestServer::new("lost", ram);
    let mut client = host.selected_client();
    for _ in 0..3 {
        assert!(client.can_read());
    }
    client.request(READ, 0, 1, 0, 512);
    assert!(client.is_closed());
    let (_, ended, _) = host.thread.join().unwrap();
    assert_eq!(ended.unwrap_err().to_string(), "the disk was lost");
    assert!(!host.path.exists());
}

#[test]
fn surplus_clients_wait_for_a_slot() {
    let host = TestServer::new("many", RamDisk::new(64, 512));
    let mut clients: Vec<RawClient> = (0..16).map(|_| host.selected_client()).collect();
    let mut late = UnixStream::connect(&host.path).unwrap();
    late.set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    assert!(clients.iter_mut().all(RawClient::can_read));
    late.set_nonblocking(true).unwrap();
    assert!(
        late.read(&mut [0; 18]).is_err(),
        "nothing is said to it yet"
    );
    late.set_nonblocking(false).unwrap();
    clients.pop();
    late.read_exact(&mut [0; 18]).unwrap();
    drop((clients, late));
    host.end();
}

/// A time limit that is short enough for a test.
fn short_timeouts() -> Options {
    Options {
        idle: Duration::from_secs(1),
        ..Options::default()
    }
}

#[test]
fn idle_client_is_dropped_for_a_waiting_one() {
    let host = TestServer::with("idle", RamDisk::new(64, 512), short_timeouts());
    let mut clients: Vec<RawClient> = (0..16).map(|_| host.selected_client()).collect();
    assert!(clients.iter_mut().all(RawClient::can_read));
    // No connection waits, so no idle client is disconnected.
    // real time: longer than the idle time, of which nothing is to be seen.
    std::thread::sleep(Duration::from_secs(2));
    assert!(clients.iter_mut().all(RawClient::can_read));
    let mut late = host.selected_client();
    assert!(late.can_read());
    assert!(clients[0].is_closed(), "the one that was idle for longest");
    assert!(clients[1..].iter_mut().all(RawClient::can_read));
    drop((clients, late));
    let (_, _, said) = host.end();
    let idle = |text: &&String| text.contains("it was idle, and another client was waiting");
    assert_eq!(said.iter().filter(idle).count(), 1, "{said:?}");
}

#[test]
fn incomplete_request_times_out() {
    let host = TestServer::with("half", RamDisk::filled(16384, 512, 3), short_timeouts());
    let mut head = host.selected_client();
    head.0.write_all(&[0x25, 0x60]).unwrap();
    let mut payload = host.selected_client();
    payload.request(WRITE, 0, 1, 0, 4096);
    payload.0.write_all(&[7; 100]).unwrap();
    let mut greedy = host.selected_client();
    for cookie in 0..200 {
        greedy.request(READ, 0, cookie, 0, 64 << 10);
    }
    let mut good = host.selected_client();
    assert!(head.is_closed() && payload.is_closed());
    assert!(good.can_read());
    drop((head, payload));
    wait_until("it is disconnected", || is_hung_up(&greedy.0));
    drop((greedy, good));
    let (_, _, said) = host.end();
    for (why, count) in [
        ("in the middle of a request", 2),
        ("it does not read replies", 1),
    ] {
        let of = said.iter().filter(|text| text.contains(why)).count();
        assert_eq!(of, count, "{said:?}");
    }
}

/// Whether the peer has closed its socket, regardless of unread bytes.
fn is_hung_up(stream: &UnixStream) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut on = [PollFd::new(stream, PollFlags::empty())];
    let none = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut on, Some(&none)).unwrap();
    on[0].revents().contains(PollFlags::HUP)
}

/// A request that the disk does not accept ends its client, and a failed allocation rejects a client; others are not affected.
#[test]
fn failure_of_one_client_spares_others() {
    let mut ram = RamDisk::new(64, 512);
    ram.rejected.push(32..33);
    // The zeroes, and two clients.
    ram.memories = Some(3);
    let host = TestServer::new("alone", ram);
    let (mut good, mut bad) = (host.selected_client(), host.selected_client());
    let mut third = UnixStream::connect(&host.path).unwrap();
    third
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    assert!(matches!(third.read(&mut [0; 1]), Ok(0)), "no memory for it");
    assert!(bad.can_read());
    bad.request(READ, 0, 1, 32 * 512, 512);
    assert!(bad.is_closed());
    assert!(good.can_read());
    // Its slot and its memory are free.
    assert!(host.selected_client().can_read());
    drop(good);
    let (_, counts, said) = host.end();
    assert_eq!(counts.clients, 3);
    assert!(said.iter().any(|text| text.contains("no more memory")));
    assert!(said.iter().any(|text| text.contains("it is not taken")));
}

/// Also if the socket's permissions admit it.
#[test]
fn another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: another_user_is_refused: needs root");
        return;
    }
    let host = TestServer::new("other-user", RamDisk::new(64, 512));
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(&host.path, open).unwrap();
    let code = format!(
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect('{}'); print(len(s.recv(18)))",
        host.path.display()
    );
    let greeted = |user: &str| {
        let mut command = std::process::Command::new("setpriv");
        command.args([
            &format!("--reuid={user}"),
            "--clear-groups",
            "/usr/bin/python3",
            "-c",
        ]);
        let ran = command.arg(&code).output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        String::from_utf8(ran.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(greeted("65534"), "0");
    assert_eq!(greeted("0"), "18");
    let (_, _, said) = host.end();
    assert!(
        said.iter().any(|text| text.contains("of user 65534")),
        "{said:?}"
    );
}
